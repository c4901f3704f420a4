//! One trial over verbs for each limit, and those that must not be reported.

use crate::build::{self, SampleBuilder, WatchBuilder};
use crate::ceiling::{PathFacts, ceilings_of_path};
use crate::host::Host;
use crate::ids::PciAddress;
use crate::known::Known;
use crate::limit::{Limit, LimitKind, name_limit};
use crate::sample::{Datagrams, Sample};
use crate::units::Nanoseconds;
use crate::workload::{Service, Verb, Waiting};

/// A 100 Gb/s NIC and its RDMA device.
fn host() -> Host {
    let mut device = build::roce("mlx5_0", "eth2");
    device.pci_address = Known::Value(PciAddress {
        domain: 0,
        bus: 0x17,
        device: 0,
        function: 0,
    });
    device.pcie = Known::Value(build::pcie_link((16_000, 16), (16_000, 16)));
    build::host()
        .nic("eth2", |nic| nic.gbit(100))
        .with(|host| host.rdma = vec![device])
        .build()
}

/// A trial of `verb` with messages of 64 KiB, whose counters were read.
fn trial(sample: SampleBuilder, verb: Verb) -> Sample {
    let mut sample = build::over_verbs(sample.build(), build::rdma(verb, 65_536));
    for side in [&mut sample.local, &mut sample.remote] {
        side.counters = Known::Value(counted(build::watch(&host())).build());
    }
    sample
}

/// mlx5 counters without any increase.
fn counted(watch: WatchBuilder) -> WatchBuilder {
    ["out_of_sequence", "rnr_nak_retry_err", "rp_cnp_handled"]
        .into_iter()
        .fold(watch, |watch, name| {
            watch.grew(&format!("rdma/mlx5_0/1/hw/{name}"), 0)
        })
}

fn grew(name: &str, by: u64) -> Known<crate::watch::Watch> {
    let watch = counted(build::watch(&host()));
    Known::Value(watch.grew(&format!("rdma/mlx5_0/1/hw/{name}"), by).build())
}

fn judged(sample: &Sample) -> Limit {
    let (near, far) = (host(), host());
    let nic = &near.nics[0].name;
    let facts = PathFacts {
        local: &near,
        local_nic: nic,
        remote: &far,
        remote_nic: nic,
        flows: sample.spec.flows,
        direction: sample.spec.direction,
        ipv6: false,
        datagram_bytes: None,
        copy_bandwidth: None,
        sample: Some(sample),
    };
    let ceilings = ceilings_of_path(&facts).ceilings;
    let rate = crate::analysis::rate_after(sample, 0).expect("a rate");
    name_limit(sample, &near, &far, &ceilings, rate)
}

fn says(limit: &Limit, what: &str, value: &str) -> bool {
    let mut evidence = limit.evidence.iter();
    evidence.any(|one| one.what.contains(what) && one.value.contains(value))
}

#[test]
fn a_rate_near_what_the_frames_carry_has_filled_the_wire() {
    let limit = judged(&trial(build::sample().gbit(93), Verb::Write));
    assert_eq!(limit.what, LimitKind::Wire);
    assert!(says(&limit, "RoCE packets", "of 98.01 Gb/s"), "{limit:?}");
    assert!(says(&limit, "path MTU", "4096"), "{limit:?}");
}

#[test]
fn what_no_figure_explains_is_not_determined_and_shows_them_all() {
    let limit = judged(&trial(build::sample().gbit(40), Verb::Write));
    assert_eq!(limit.what, LimitKind::NotDetermined);
    assert!(says(
        &limit,
        "retransmitted",
        "no counter of either port moved"
    ));
    assert!(says(&limit, "CQ polls", "95.0 % empty"), "{limit:?}");
    assert!(
        !limit
            .evidence
            .iter()
            .any(|one| one.path.contains("TCP_INFO")),
        "{limit:?}"
    );
}

#[test]
fn counters_that_were_not_read_are_said_and_never_taken_for_no_loss() {
    let mut sample = trial(build::sample().gbit(40), Verb::Write);
    sample.remote.counters = Known::not_asked("/sys/class/infiniband");
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::NotDetermined);
    assert!(
        says(&limit, "retransmitted", "unknown for the remote end"),
        "{limit:?}"
    );
}

#[test]
fn messages_that_found_no_room_were_not_taken_by_the_receivers_program() {
    let mut sample = trial(build::sample().gbit(10), Verb::Send);
    // 38,146 messages of 16 packets each.
    sample.local.counters = grew("rnr_nak_retry_err", 600);
    assert_ne!(judged(&sample).what, LimitKind::ReceiverProgram);
    sample.local.counters = grew("rnr_nak_retry_err", 700);
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::ReceiverProgram);
    assert!(says(
        &limit,
        "rnr_nak_retry_err of mlx5_0/1 at the local end",
        "700"
    ));
    // A receiver that polls and always finds a completion has no time left.
    for flow in &mut sample.remote.flows {
        flow.system_ns = Nanoseconds::from_millis(1_950);
        let verbs = flow.verbs.as_mut().expect("verbs");
        verbs.polls_empty = 10;
    }
    let busy = build::sample().gbit(10).cpu_share(0.3, 0.97);
    let busy = busy.threads((0.0, 3), (0.0, 3)).build();
    sample.remote.threads = busy.remote.threads;
    sample.remote.cpu = busy.remote.cpu;
    assert_eq!(judged(&sample).what, LimitKind::ReceiverCpu);
}

#[test]
fn packets_that_came_out_of_order_are_loss() {
    let mut sample = trial(build::sample().gbit(10), Verb::Read);
    sample.remote.counters = grew("out_of_sequence", 9_000);
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::Loss);
    assert!(says(&limit, "out_of_sequence", "9000"), "{limit:?}");
}

#[test]
fn a_thread_that_sleeps_for_events_and_lacks_a_cpu_says_so() {
    let mut sample = trial(build::sample().gbit(10).cpu_share(0.95, 0.0), Verb::Write);
    sample.spec.waiting = Waiting::Blocking;
    assert_eq!(judged(&sample).what, LimitKind::SenderCpu);
    sample.spec.waiting = Waiting::Spin;
    assert_eq!(judged(&sample).what, LimitKind::NotDetermined, "it polls");
}

#[test]
fn a_thread_that_polls_and_hardly_ever_in_vain_has_no_time_left() {
    let busy = build::sample().gbit(10).cpu_share(0.97, 0.0);
    let mut sample = trial(busy.threads((0.0, 3), (0.0, 1)), Verb::Write);
    // All of it in the kernel: a software device sends in the caller's context.
    assert_eq!(judged(&sample).what, LimitKind::SenderCpu);
    for thread in &mut sample.local.threads {
        (thread.user_ns, thread.system_ns) = (thread.system_ns, thread.user_ns);
    }
    // 724,774 empty polls may be 0.72 s of the 2 s: that it worked is not shown.
    assert_eq!(judged(&sample).what, LimitKind::NotDetermined);
    let verbs = sample.local.flows[0].verbs.as_mut().expect("verbs");
    verbs.polls_empty = 100_000;
    assert_eq!(judged(&sample).what, LimitKind::SenderCpu);
}

#[test]
fn a_cpu_full_of_soft_interrupts_is_the_software_devices() {
    let mut sample = trial(build::sample().gbit(2), Verb::Write);
    let full = |sample: &mut Sample| {
        let Known::Value(machine) = &mut sample.remote.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        machine[1].softirq_ns = Nanoseconds::from_millis(1_950);
        machine[1].system_ns = Nanoseconds::new(0);
        machine[1].idle_ns = Nanoseconds::from_millis(50);
    };
    full(&mut sample);
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::ReceiverCpu);
    assert!(
        says(&limit, "share of CPU 1 in interrupts", "97.5 %"),
        "{limit:?}"
    );
    sample.shared_kernel = true;
    assert_eq!(judged(&sample).what, LimitKind::SharedCpu);
}

#[test]
fn full_queue_pairs_over_the_time_of_one_message_are_the_limit() {
    let mut sample = trial(build::sample().gbit(10), Verb::Write);
    let alone = |sample: &mut Sample, micros| {
        let operations = sample.local.operations.as_mut().expect("operations");
        operations.sizes[0].alone_ns = Some(Nanoseconds::from_micros(micros));
    };
    // 128 x 64 KiB in 6.5 ms are 10.3 Gb/s.
    alone(&mut sample, 6_500);
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::WindowRtt);
    assert!(says(&limit, "depth of each queue pair", "128"), "{limit:?}");
    alone(&mut sample, 650);
    assert_eq!(judged(&sample).what, LimitKind::NotDetermined);
}

#[test]
fn queue_pairs_found_empty_were_not_kept_full_by_their_program() {
    let mut sample = trial(build::sample().gbit(10), Verb::Write);
    let dry = |sample: &mut Sample, times| {
        let verbs = sample.local.flows[0].verbs.as_mut().expect("verbs");
        verbs.ran_dry = Some(times);
    };
    dry(&mut sample, 40);
    assert_eq!(judged(&sample).what, LimitKind::NotDetermined);
    dry(&mut sample, 200);
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::SenderProgram);
    assert!(says(&limit, "found empty", "200 times"), "{limit:?}");
}

#[test]
fn notifications_of_congestion_are_the_congestion_controls() {
    let mut sample = trial(build::sample().gbit(10), Verb::Write);
    sample.local.counters = grew("rp_cnp_handled", 5_000);
    assert_eq!(judged(&sample).what, LimitKind::CongestionControl);
}

#[test]
fn datagrams_that_were_lost_are_missed_among_the_completions() {
    let mut sample = trial(build::sample().gbit(93), Verb::Send);
    if let Some(verbs) = &mut sample.spec.verbs {
        verbs.service = Service::Ud;
    }
    let datagrams = |sample: &mut Sample, sent, came| {
        for (side, count) in [(&mut sample.local, sent), (&mut sample.remote, came)] {
            for flow in &mut side.flows {
                flow.datagrams = Some(Datagrams {
                    count,
                    ..Datagrams::default()
                });
            }
        }
    };
    datagrams(&mut sample, 100_000, 100_000);
    assert_eq!(judged(&sample).what, LimitKind::Wire);
    datagrams(&mut sample, 100_000, 90_000);
    let limit = judged(&sample);
    assert_eq!(limit.what, LimitKind::Loss);
    assert!(
        says(&limit, "datagrams lost", "10000 of 100000"),
        "{limit:?}"
    );
    sample.remote.counters = grew("out_of_buffer", 9_000);
    assert_eq!(judged(&sample).what, LimitKind::ReceiverProgram);
}

#[test]
fn one_sided_verbs_are_counted_where_they_are_posted() {
    let sample = trial(build::sample().gbit(10), Verb::Read);
    assert!(sample.remote.flows.iter().all(|flow| flow.bytes.is_empty()));
    let rate = crate::analysis::rate_after(&sample, 0).map(|rate| rate.to_string());
    // Whole messages: slightly less than requested.
    assert_eq!(rate.as_deref(), Some("10.00 Gb/s"));
    let flags = crate::trust::flags(&sample, &host(), &host(), None, None);
    assert_eq!(flags, []);
    let cost = crate::analysis::cost_of_local(&sample).s_per_gb;
    assert!(
        cost.is_some_and(|cost| (cost - 0.4).abs() < 0.01),
        "{cost:?}"
    );
}
