//! Counters may have any value: a host whose counters all increased by the maximum is checked without an overflow.

use linerate_model::build;
use linerate_model::finding::{Context, Profile};
use linerate_model::plan::End;
use linerate_model::rules::diagnose;
use linerate_model::watch::Counter;

#[test]
fn counters_that_grew_by_the_most_there_is_are_judged() {
    let host = build::host()
        .nodes(2, 3)
        .nic("eth2", |nic| {
            nic.gbit(100)
                .node(1)
                .queues(&[3, 4])
                .pcie(build::pcie_link((8000, 4), (16_000, 16)))
        })
        .build();
    let irqs = host.nics.iter().flat_map(|nic| &nic.queues);
    let irqs: Vec<u32> = irqs.filter_map(|queue| Some(queue.irq.get()?.0)).collect();
    assert!(!irqs.is_empty(), "the queues have interrupts");
    let watch = build::watch(&host).with(|watch| {
        for irq in irqs {
            for cpu in 0..6 {
                let key = format!("irq/{irq}/cpu/{cpu}");
                let counter = Counter {
                    before: 0,
                    after: 0,
                    path: key.clone(),
                };
                watch.counters.insert(key, counter);
            }
        }
        for counter in watch.counters.values_mut() {
            counter.before = 0;
            counter.after = u64::MAX;
        }
    });
    let watch = watch.build();
    for profile in [
        Profile::Throughput,
        Profile::Latency,
        Profile::Forwarding,
        Profile::Rdma,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ] {
        let said = diagnose(&Context {
            end: End::Local,
            host: &host,
            nic: None,
            other: None,
            sample: None,
            watch: Some(&watch),
            profile,
            owns_shapers: false,
        });
        assert!(!said.findings.is_empty(), "{profile:?}");
    }
}
