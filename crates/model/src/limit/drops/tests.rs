//! Which place of drops explains a loss.

use super::*;
use crate::build::{self, WatchBuilder};
use crate::ceiling::{PathFacts, ceilings_of_path};
use crate::host::Host;
use crate::limit::{Limit, name_limit};
use crate::sample::Datagrams;
use crate::workload::Udp;

/// 1 % of the data sent at 0.5 Gb/s was lost: 25 MB.
fn lossy() -> Sample {
    let sample = build::sample().mbit(500).cpu_share(0.3, 0.3);
    sample
        .tcp(|tcp| tcp.bytes_retransmitted = Bytes::new(25_000_000))
        .build()
}

fn hosts(shaped: bool) -> (Host, Host) {
    let (near, far) = build::veth_pair();
    let shaper = || {
        build::host()
            .nic("near0", |nic| nic.veth().qdisc(build::tbf(5_000)))
            .build()
    };
    (if shaped { shaper() } else { near }, far)
}

/// The limit of `sample` between `hosts`, with the increase of their counters.
fn limit(
    mut sample: Sample,
    (near, far): &(Host, Host),
    here: impl FnOnce(WatchBuilder) -> WatchBuilder,
    there: impl FnOnce(WatchBuilder) -> WatchBuilder,
) -> Limit {
    sample.local.counters = Known::Value(here(build::watch(near)).build());
    sample.remote.counters = Known::Value(there(build::watch(far)).build());
    judged(&sample, near, far)
}

fn judged(sample: &Sample, near: &Host, far: &Host) -> Limit {
    let facts = PathFacts {
        local: near,
        local_nic: &near.nics[0].name,
        remote: far,
        remote_nic: &far.nics[0].name,
        flows: sample.spec.flows,
        direction: sample.spec.direction,
        ipv6: false,
        datagram_bytes: None,
        copy_bandwidth: None,
        sample: Some(sample),
    };
    let ceilings = ceilings_of_path(&facts).ceilings;
    let rate = BitRate::from_mbit_per_s(500);
    name_limit(sample, near, far, &ceilings, rate)
}

fn says(limit: &Limit, what: &str, value: &str) -> bool {
    let mut evidence = limit.evidence.iter();
    evidence.any(|one| one.what.contains(what) && one.value.contains(value))
}

#[test]
fn drops_of_a_queue_behind_a_shaper_are_the_shapers() {
    let drops = |watch: WatchBuilder| watch.grew("nic/near0/qdisc/drops", 400);
    let shaped = limit(lossy(), &hosts(true), drops, |watch| watch);
    assert_eq!(shaped.what, LimitKind::Shaper);
    assert_eq!(shaped.rule.as_deref(), Some("qdisc-shaper"));
    let what = "dropped at the local end, qdisc of near0 (drops)";
    assert!(says(&shaped, what, "400"), "{shaped:?}");
    let plain = limit(lossy(), &hosts(false), drops, |watch| watch);
    assert_eq!(plain.what, LimitKind::Loss);
    assert!(says(&plain, what, "400") && !says(&plain, "drop location", ""));
}

#[test]
fn a_backlog_that_a_cpu_did_not_take_is_the_receivers_cpu() {
    let limit = limit(
        lossy(),
        &hosts(false),
        |watch| watch,
        |watch| {
            let watch = watch.grew("cpu/0/softnet/dropped", 50);
            let watch = watch.grew("cpu/1/softnet/dropped", 450);
            // The interface counts the same packets again.
            watch.grew("nic/far0/stat/rx_dropped", 500)
        },
    );
    assert_eq!(limit.what, LimitKind::ReceiverCpu);
    let what = "dropped at the remote end, softnet backlog, mostly of CPU 1";
    assert!(says(&limit, what, "500"), "{limit:?}");
}

#[test]
fn what_the_machines_backlogs_drop_of_other_interfaces_is_not_this_trials() {
    let others = |watch: WatchBuilder| watch.grew("cpu/0/softnet/dropped", 9_000);
    let limit = limit(lossy(), &hosts(false), |watch| watch, others);
    assert_eq!(limit.what, LimitKind::Loss);
    assert!(!says(&limit, "softnet", ""), "{limit:?}");
    assert!(says(&limit, "drop location", "no drop counter"));
}

#[test]
fn other_counters_that_stood_still_and_were_left_out_do_not_blind() {
    let few = |watch: WatchBuilder| watch.with(|watch| *watch = watch.clone().without_still(1));
    let limit = limit(lossy(), &hosts(false), few, few);
    let words = "no drop counter that was read moved";
    assert!(says(&limit, "drop location", words), "{limit:?}");
}

#[test]
fn what_netfilter_dropped_is_a_place_and_counts_once_on_one_kernel() {
    let drops = |watch: WatchBuilder| watch.grew("drop/NETFILTER_DROP", 1_234);
    let one = limit(lossy(), &hosts(false), drops, drops);
    assert_eq!(one.what, LimitKind::Loss);
    let what =
        "dropped on the machine of both ends, netfilter (NETFILTER_DROP, of the whole machine)";
    assert!(says(&one, what, "1234"), "{one:?}");
    assert!(!says(&one, "drop location", ""), "{one:?}");
    let count = one
        .evidence
        .iter()
        .filter(|one| one.what.contains("netfilter"));
    assert_eq!(count.count(), 1);
    let (near, far) = hosts(false);
    let mut far = far;
    far.identity.boot_id = Known::Value("00000000-0000-4000-8000-000000000002".to_owned());
    let still = |watch: WatchBuilder| watch;
    let two = limit(lossy(), &(near, far), drops, still);
    assert!(
        says(&two, "dropped at the local end, netfilter", "1234"),
        "{two:?}"
    );
}

#[test]
fn drops_that_the_senders_qdisc_counts_are_not_those_of_another_interface() {
    let drops = |watch: WatchBuilder| {
        let watch = watch.grew("drop/QDISC_DROP", 400);
        watch.grew("nic/near0/qdisc/drops", 400)
    };
    let shaped = limit(lossy(), &hosts(true), drops, |watch| watch);
    assert_eq!(shaped.what, LimitKind::Shaper);
    assert!(!says(&shaped, "other interfaces", ""), "{shaped:?}");
    let others = |watch: WatchBuilder| watch.grew("drop/QDISC_DROP", 400);
    let elsewhere = limit(lossy(), &hosts(true), others, |watch| watch);
    assert_eq!(elsewhere.what, LimitKind::Loss);
    assert!(says(&elsewhere, "other interfaces", "400"), "{elsewhere:?}");
}

#[test]
fn what_others_on_the_machine_lose_does_not_hide_a_qdisc_that_explains_the_loss() {
    // 24 MB are lost.
    let both = |own: u64, machine: u64| {
        let drops = move |watch: WatchBuilder| {
            let watch = watch.grew("drop/NETFILTER_DROP", machine);
            watch.grew("nic/near0/qdisc/drops", own)
        };
        limit(lossy(), &hosts(true), drops, |watch| watch).what
    };
    assert_eq!(both(20_000, 90_000), LimitKind::Shaper);
    // A few drops of up to 64 KiB may be as much, but not surely.
    assert_eq!(both(400, 20_000), LimitKind::Loss);
}

#[test]
fn without_the_right_to_count_reasons_netfilter_is_not_ruled_out() {
    let denied = |watch: WatchBuilder| watch.denied("drop");
    let limit = limit(lossy(), &hosts(false), |watch| watch, denied);
    let words =
        "netfilter, ingress qdiscs: the drop reasons of the remote end are unknown: it needs root";
    assert!(says(&limit, "drop location", words), "{limit:?}");
}

#[test]
fn a_ring_that_overflowed_is_named_as_the_place_of_a_loss() {
    let missed = |watch: WatchBuilder| watch.grew("nic/far0/stat/rx_missed_errors", 9_000);
    let limit = limit(lossy(), &hosts(false), |watch| watch, missed);
    assert_eq!(limit.what, LimitKind::Loss);
    let what = "dropped at the remote end, ring of far0 (rx_missed_errors)";
    assert!(says(&limit, what, "9000"), "{limit:?}");
}

#[test]
fn a_card_counts_frames_and_a_queue_what_the_kernel_cuts_later() {
    let near = build::host().nic("near0", |nic| nic.veth().qdisc(build::tbf(5_000)));
    let far = build::host().nic("far0", |nic| nic);
    let hosts = (near.build(), far.build());
    // 400 frames are 0.6 MB of 25 MB, 390 GSO packets may be all of it.
    let missed = |watch: WatchBuilder| watch.grew("nic/far0/stat/rx_missed_errors", 400);
    let unexplained = limit(lossy(), &hosts, |watch| watch, missed);
    assert_eq!(unexplained.what, LimitKind::Loss);
    assert!(says(&unexplained, "drop location", "explain less than"));
    let drops = |watch: WatchBuilder| watch.grew("nic/near0/qdisc/drops", 390);
    let shaped = limit(lossy(), &hosts, drops, missed);
    assert_eq!(shaped.what, LimitKind::Shaper);
}

#[test]
fn datagrams_whose_rate_was_kept_have_no_limit_however_near_a_shaper_is() {
    let still = |watch: WatchBuilder| watch;
    let mut kept = lossy_datagrams(Some(0));
    if let Workload::Udp(udp) = &mut kept.spec.workload {
        udp.rate_bit_per_s = Some(BitRate::from_mbit_per_s(500));
    }
    for flow in &mut kept.remote.flows {
        flow.datagrams = Some(Datagrams {
            count: 100_000,
            ..Datagrams::default()
        });
    }
    let (_, far) = build::veth_pair();
    let near = build::host().nic("near0", |nic| nic.veth().qdisc(build::tbf(550)));
    let hosts = (near.build(), far);
    let none = limit(kept.clone(), &hosts, still, still);
    assert_eq!(none.what, LimitKind::NotDetermined);
    if let Workload::Udp(udp) = &mut kept.spec.workload {
        udp.rate_bit_per_s = Some(BitRate::from_mbit_per_s(900));
    }
    assert_eq!(limit(kept, &hosts, still, still).what, LimitKind::Shaper);
}

#[test]
fn where_no_counter_moved_the_path_between_the_hosts_lost_it() {
    let still = |watch: WatchBuilder| watch;
    let limit = limit(lossy(), &hosts(true), still, still);
    assert_eq!((limit.what, limit.rule.clone()), (LimitKind::Loss, None));
    let words = "no drop counter that was read moved on either host: the path between them";
    assert!(says(&limit, "drop location", words), "{limit:?}");
}

#[test]
fn a_few_drops_do_not_explain_a_large_loss() {
    let few = |watch: WatchBuilder| watch.grew("nic/near0/qdisc/drops", 100);
    let limit = limit(lossy(), &hosts(true), few, |watch| watch);
    assert_eq!(limit.what, LimitKind::Loss);
    assert!(says(&limit, "qdisc", "100"));
    assert!(says(&limit, "drop location", "explain less than"));
}

#[test]
fn counters_that_were_not_read_are_not_counters_that_stood_still() {
    let (near, far) = hosts(false);
    let unread = judged(&lossy(), &near, &far);
    assert_eq!(unread.what, LimitKind::Loss);
    assert!(says(&unread, "drop location", "unknown"), "{unread:?}");
    let denied = |watch: WatchBuilder| watch.denied("nic/far0/stat");
    let partly = limit(lossy(), &(near, far), |watch| watch, denied);
    let words = "the drop counters of the remote end are missing: it needs root";
    assert!(says(&partly, "drop location", words), "{partly:?}");
}

/// 1,000 of 100,000 datagrams of 1400 bytes were lost.
fn lossy_datagrams(socket_drops: Option<u64>) -> Sample {
    let mut sample = build::sample().mbit(500).cpu_share(0.3, 0.3).build();
    sample.spec.workload = Workload::Udp(Udp {
        datagram_bytes: Bytes::new(1_400),
        rate_bit_per_s: Some(BitRate::from_mbit_per_s(510)),
        batch: DatagramBatch::Mmsg,
        probe: None,
    });
    for side in [&mut sample.local, &mut sample.remote] {
        for flow in &mut side.flows {
            flow.tcp = Known::default();
            flow.datagrams = Some(Datagrams::default());
        }
    }
    sample.remote.flows[0].datagrams = Some(Datagrams {
        count: 99_000,
        lost: 1_000,
        socket_drops,
        ..Datagrams::default()
    });
    sample
}

#[test]
fn datagrams_are_lost_where_a_counter_says_so() {
    let still = |watch: WatchBuilder| watch;
    let socket = limit(lossy_datagrams(Some(990)), &hosts(false), still, still);
    assert_eq!(socket.what, LimitKind::ReceiveBuffer);
    assert!(
        says(&socket, "receive buffers of sockets", "990"),
        "{socket:?}"
    );
    let counted = |watch: WatchBuilder| watch.grew("snmp/Udp/RcvbufErrors", 1_000);
    let counted = limit(lossy_datagrams(None), &hosts(false), still, counted);
    assert_eq!(counted.what, LimitKind::ReceiveBuffer);
    let mut busy = lossy_datagrams(Some(990));
    busy.remote.flows[0].system_ns = busy.remote.elapsed_ns;
    let busy = limit(busy, &hosts(false), still, still);
    assert_eq!(busy.what, LimitKind::ReceiverCpu);
    let drops = |watch: WatchBuilder| watch.grew("nic/near0/qdisc/drops", 700);
    let shaped = limit(lossy_datagrams(Some(3)), &hosts(true), drops, still);
    assert_eq!(shaped.what, LimitKind::Shaper);
    let nowhere = limit(lossy_datagrams(Some(0)), &hosts(false), still, still);
    assert_eq!(nowhere.what, LimitKind::Loss);
    assert!(
        says(&nowhere, "share of the datagrams lost", "1.0 %"),
        "{nowhere:?}"
    );
    assert!(says(&nowhere, "drop location", "the path between them"));
}
