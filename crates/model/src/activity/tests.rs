//! The activity computed from synthetic counters.

use super::*;
use crate::build;
use crate::build::WatchBuilder;

fn host() -> Host {
    build::host()
        .nodes(1, 4)
        .nic("eth0", |nic| nic.gbit(100).queues(&[0, 1]))
        .build()
}

fn seen(change: impl FnOnce(WatchBuilder) -> WatchBuilder) -> Activity {
    let host = host();
    activity(&host, &change(build::watch(&host)).build())
}

fn eth0(activity: &Activity) -> &NicActivity {
    &activity.nics[0]
}

#[test]
fn a_quiet_host_shows_rates_of_zero_and_no_cpu() {
    let quiet = seen(|watch| watch);
    assert!((quiet.seconds - 10.0).abs() < 1e-9);
    assert!(quiet.cpus.is_empty(), "{:?}", quiet.cpus);
    assert_eq!(eth0(&quiet).rx_bit_per_s, Known::Value(0.0));
    assert!(eth0(&quiet).errors.is_empty());
}

#[test]
fn traffic_is_counted_by_interface_and_by_queue() {
    let busy = seen(|watch| {
        watch
            .grew("nic/eth0/stat/rx_bytes", 12_500_000)
            .grew("nic/eth0/stat/rx_packets", 10_000)
            .grew("nic/eth0/queue/rx-1/packets", 4_000)
            .grew("nic/eth0/driver/tx_queue_0_bytes", 5_000)
    });
    let nic = eth0(&busy);
    assert_eq!(nic.rx_bit_per_s, Known::Value(10_000_000.0));
    assert_eq!(nic.rx_packets_per_s, Known::Value(1_000.0));
    let queue = |kind, index| {
        let mut all = nic.queues.iter();
        all.find(|queue| (queue.kind, queue.index) == (kind, index))
            .expect("the queue")
    };
    assert_eq!(queue(QueueKind::Rx, 1).packets_per_s, Known::Value(400.0));
    assert_eq!(queue(QueueKind::Tx, 0).bit_per_s, Known::Value(4_000.0));
    let missing = queue(QueueKind::Rx, 0).packets_per_s.gap();
    assert_eq!(missing.map(|gap| gap.cause), Some(Cause::Absent));
}

#[test]
fn the_cpus_that_took_an_interrupt_are_told_and_the_busiest_comes_first() {
    let irq = host().nics[0].queues[0].irq.get().expect("an interrupt");
    let busy = seen(|watch| {
        watch
            .grew(&format!("irq/{irq}/cpu/0"), 50)
            .grew(&format!("irq/{irq}/cpu/3"), 250)
            .grew(&format!("irq/{irq}/cpu/2"), 0)
    });
    let queue = &eth0(&busy).queues[0];
    assert_eq!(queue.interrupts_per_s, Known::Value(30.0));
    let cpus: Vec<u32> = queue.taken_by.iter().map(|one| one.cpu.0).collect();
    assert_eq!(cpus, [3, 0]);
}

#[test]
fn interrupts_that_may_not_be_counted_are_a_gap_and_not_zero() {
    let denied = seen(|watch| watch.denied("irq"));
    let queue = &eth0(&denied).queues[0];
    assert_eq!(
        queue.interrupts_per_s.gap().map(|gap| gap.cause),
        Some(Cause::Denied)
    );
    assert_eq!(denied.gaps.len(), 1);
}

#[test]
fn only_errors_and_drops_that_grew_are_listed() {
    let busy = seen(|watch| {
        watch
            .grew("nic/eth0/stat/rx_missed_errors", 7)
            .grew("nic/eth0/driver/rx_out_of_buffer", 3)
            .grew("nic/eth0/driver/rx_steer_missed_packets", 0)
            .grew("nic/eth0/stat/rx_packets", 99)
            .grew("nic/eth0/fec/corrected-bits", 5)
    });
    let names: Vec<&str> = eth0(&busy)
        .errors
        .iter()
        .map(|one| one.counter.as_str())
        .collect();
    assert_eq!(names, ["driver/rx_out_of_buffer", "stat/rx_missed_errors"]);
}

#[test]
fn cpus_that_worked_are_told_with_what_they_did() {
    let busy = seen(|watch| watch.softirq(2, 0.75).softirq(1, 0.25));
    let cpus: Vec<u32> = busy.cpus.iter().map(|cpu| cpu.cpu.0).collect();
    assert_eq!(cpus, [2, 1]);
    assert!((busy.cpus[0].softirq_share - 0.75).abs() < 1e-9);
    assert!((busy.cpus[0].idle_share - 0.25).abs() < 1e-9);
}

fn link_of(activity: &Activity) -> &LinkErrors {
    eth0(activity).bit_error_rate.as_ref().expect("a wire")
}

#[test]
fn wrong_bits_before_and_after_correction_are_told_apart() {
    let mended = seen(|watch| watch.grew("nic/eth0/driver/rx_corrected_bits_phy", 20_000_000));
    let link = link_of(&mended);
    let before = link.before.value().expect("bits are counted");
    assert_eq!(before.counted, Counted::Bits);
    assert!((before.rate.rate.expect("errors") - 2e-5).abs() < 1e-9);
    let after = link.after.value().expect("blocks are counted");
    assert_eq!((after.rate.rate, after.rate.errors), (None, 0));
    assert!(link.advice.starts_with("FEC corrects"), "{}", link.advice);
    let lost = seen(|watch| watch.grew("nic/eth0/stat/rx_crc_errors", 1));
    assert!(link_of(&lost).advice.starts_with("Data is lost"));
}

#[test]
fn a_driver_that_counts_blocks_only_is_said_to_count_codewords() {
    let blocks = seen(|watch| {
        watch.grew("nic/eth0/fec/corrected", 10).with(|watch| {
            watch.counters.remove("nic/eth0/fec/corrected-bits");
        })
    });
    let before = link_of(&blocks).before.value().expect("blocks are counted");
    assert_eq!(before.counted, Counted::Codewords);
    assert_eq!(before.counters, ["fec/corrected"]);
}

#[test]
fn a_link_without_counters_or_without_a_speed_has_no_rate() {
    let silent = seen(|watch| watch.without("nic/eth0/"));
    assert!(link_of(&silent).before.gap().is_some());
    assert!(link_of(&silent).after.gap().is_some());
    assert!(link_of(&silent).advice.starts_with("Unknown"));
    let mut host = host();
    host.nics[0].link_bit_per_s = Known::unknown(Cause::NotSaid, "speed", "-1");
    let watch = build::watch(&host).build();
    let told = activity(&host, &watch);
    assert!(link_of(&told).before.gap().is_some());
    assert!(link_of(&told).advice.starts_with("Unknown"));
}
