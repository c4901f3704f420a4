//! One trial for each limit, and those that must not be reported.

use super::*;
use crate::analysis::rate_after;
use crate::build::{self, SampleBuilder};
use crate::ceiling::{PathFacts, ceilings_of_path};
use crate::known::Known;
use crate::units::{Bytes, Nanoseconds};
use crate::workload::Direction;

fn limit_between(near: &Host, far: &Host, sample: &SampleBuilder) -> Limit {
    limit_of(near, far, &sample.clone().build())
}

fn limit_of(near: &Host, far: &Host, sample: &Sample) -> Limit {
    let nic = |host: &Host| host.nics[0].name.clone();
    let facts = PathFacts {
        local: near,
        local_nic: &nic(near),
        remote: far,
        remote_nic: &nic(far),
        flows: sample.spec.flows,
        direction: sample.spec.direction,
        ipv6: false,
        datagram_bytes: None,
        copy_bandwidth: None,
        sample: Some(sample),
    };
    let ceilings = ceilings_of_path(&facts).ceilings;
    let rate = rate_after(sample, 0).expect("a rate");
    name_limit(sample, near, far, &ceilings, rate)
}

fn limit(sample: &SampleBuilder) -> (LimitKind, Option<String>) {
    let (near, far) = build::veth_pair();
    let limit = limit_between(&near, &far, sample);
    (limit.what, limit.rule)
}

fn small_buffers(name: &str) -> Host {
    build::host()
        .sysctl("net.ipv4.tcp_wmem", "4096 16384 65536")
        .sysctl("net.ipv4.tcp_rmem", "4096 65536 65536")
        .nic(name, build::NicBuilder::veth)
        .build()
}

#[test]
fn a_rate_at_the_shapers_ceiling_is_held_by_the_shaper_whatever_else_is_seen() {
    let near = build::host()
        .nic("near0", |nic| nic.veth().qdisc(build::tbf(5_000)))
        .build();
    let (_, far) = build::veth_pair();
    let sample = build::sample().mbit(4_600).limited(0.0, 0.9);
    let limit = limit_between(&near, &far, &sample);
    assert_eq!(limit.what, LimitKind::Shaper);
    assert_eq!(limit.rule.as_deref(), Some("qdisc-shaper"));
    assert!(
        limit.evidence[0].value.contains("96.2 %"),
        "{:?}",
        limit.evidence
    );
    let slower = limit_between(
        &near,
        &far,
        &build::sample().mbit(2_000).cpu_share(0.99, 0.2),
    );
    assert_eq!(slower.what, LimitKind::SenderCpu);
}

#[test]
fn the_shaper_of_the_receiving_end_holds_no_data() {
    let far = build::host()
        .nic("far0", |nic| nic.veth().qdisc(build::tbf(5_000)))
        .build();
    let (near, _) = build::veth_pair();
    let sample = build::sample().mbit(4_600).cpu_share(0.99, 0.2);
    assert_eq!(
        limit_between(&near, &far, &sample).what,
        LimitKind::SenderCpu
    );
    let reverse = sample.direction(Direction::Reverse);
    assert_eq!(limit_between(&near, &far, &reverse).what, LimitKind::Shaper);
}

#[test]
fn a_full_link_is_the_wire_and_no_fault() {
    let card = |id: &str| {
        build::host()
            .boot_id(id)
            .nic("eth0", |nic| nic.gbit(10))
            .build()
    };
    let limit = limit_between(&card("a"), &card("b"), &build::sample().mbit(9_300));
    assert_eq!((limit.what, limit.rule), (LimitKind::Wire, None));
}

#[test]
fn a_narrow_pcie_link_that_is_full_names_its_rule() {
    let card = |id: &str| {
        let link = build::pcie_link((8_000, 8), (8_000, 16));
        build::host()
            .boot_id(id)
            .nic("eth0", |nic| nic.gbit(100).pcie(link))
            .build()
    };
    let limit = limit_between(&card("a"), &card("b"), &build::sample().gbit(55));
    assert_eq!(limit.what, LimitKind::Pcie);
    assert_eq!(limit.rule.as_deref(), Some("pcie-link-degraded"));
}

#[test]
fn small_buffers_are_named_with_their_rule() {
    let (near, far) = (small_buffers("near0"), small_buffers("far0"));
    let named = |sample: SampleBuilder| {
        let limit = limit_between(&near, &far, &sample);
        (limit.what, limit.rule)
    };
    let rule = Some("tcp-buffer-below-bdp".to_owned());
    assert_eq!(
        named(build::sample().limited(0.1, 0.6)),
        (LimitKind::SendBuffer, rule.clone())
    );
    assert_eq!(
        named(build::sample().limited(0.6, 0.3)),
        (LimitKind::ReceiveWindow, rule)
    );
}

#[test]
fn a_buffer_that_is_as_it_should_be_may_limit_but_breaks_no_rule() {
    let sample = build::sample()
        .gbit(25)
        .limited(0.0, 0.5)
        .cpu_share(0.7, 0.7);
    assert_eq!(limit(&sample), (LimitKind::SendBuffer, None));
}

#[test]
fn a_window_that_a_busy_receiver_leaves_closed_is_the_receivers_cpu() {
    let sample = build::sample().limited(0.7, 0.0).cpu_share(0.6, 0.97);
    assert_eq!(limit(&sample), (LimitKind::ReceiverCpu, None));
    let both = build::sample().limited(0.7, 0.0).cpu_share(0.99, 0.97);
    assert_eq!(limit(&both).0, LimitKind::ReceiverCpu);
    let sender = build::sample().cpu_share(0.99, 0.97);
    assert_eq!(limit(&sender).0, LimitKind::SenderCpu);
}

#[test]
fn both_ends_on_one_cpu_are_named_before_all_they_cause() {
    let sample = build::sample()
        .shared_kernel()
        .cpus(0, 0)
        .pinned()
        .cpu_share(0.5, 0.48)
        .limited(0.5, 0.5);
    let rule = Some("endpoints-share-cpu".to_owned());
    assert_eq!(limit(&sample), (LimitKind::SharedCpu, rule));
}

#[test]
fn many_threads_that_fill_the_machine_are_the_machine() {
    let sample = build::sample()
        .shared_kernel()
        .flows(4)
        .cpu_share(0.245, 0.245);
    assert_eq!(limit(&sample).0, LimitKind::Machine);
}

#[test]
fn interrupts_on_the_cpu_of_a_pinned_thread_count() {
    let mut sample = build::sample().pinned().build();
    let Known::Value(machine) = &mut sample.remote.cpu.machine else {
        panic!("the builder knows the machine's times");
    };
    machine[1].softirq_ns = machine[1].idle_ns;
    machine[1].idle_ns = Nanoseconds::new(0);
    let (near, far) = build::veth_pair();
    let limit = name_limit(&sample, &near, &far, &[], BitRate::from_mbit_per_s(10_000));
    assert_eq!(limit.what, LimitKind::ReceiverCpu);
}

#[test]
fn loss_the_program_and_the_congestion_control_are_told_apart() {
    let lossy = build::sample().tcp(|tcp| {
        tcp.bytes_retransmitted = Bytes::new(tcp.bytes_sent.as_u64() / 100);
    });
    assert_eq!(limit(&lossy).0, LimitKind::Loss);
    let lazy = build::sample()
        .cpu_share(0.2, 0.2)
        .tcp(|tcp| tcp.busy_ns = Nanoseconds::from_millis(500));
    assert_eq!(limit(&lazy).0, LimitKind::SenderProgram);
    let held = || build::sample().tcp(|tcp| tcp.cwnd_segments = 90);
    assert_eq!(limit(&held()), (LimitKind::CongestionControl, None));
    // A window with free space is no limit.
    assert_eq!(limit(&build::sample()).0, LimitKind::NotDetermined);
    let bbr = build::host()
        .sysctl("net.ipv4.tcp_congestion_control", "bbr")
        .nic("near0", build::NicBuilder::veth)
        .build();
    let (_, far) = build::veth_pair();
    let limit = limit_between(&bbr, &far, &held());
    assert_eq!(limit.rule.as_deref(), Some("tcp-cc-qdisc"));
}

#[test]
fn a_crowded_machine_or_a_computing_program_is_not_called_lazy() {
    // Seen on a veth during a compilation: the sender got 22 % of a CPU, and had data for 59 %.
    let contended = build::sample()
        .shared_kernel()
        .cpu_share(0.22, 0.19)
        .tcp(|tcp| tcp.busy_ns = Nanoseconds::from_millis(1_180));
    let mut sample = contended.clone().build();
    for side in [&mut sample.local, &mut sample.remote] {
        let Known::Value(machine) = &mut side.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        for cpu in machine {
            let idle = cpu.idle_ns.as_u64();
            cpu.user_ns = Nanoseconds::new(idle / 100 * 85);
            cpu.idle_ns = Nanoseconds::new(idle / 100 * 9);
        }
    }
    let (near, far) = build::veth_pair();
    let rate = BitRate::from_mbit_per_s(8_000);
    let named = name_limit(&sample, &near, &far, &[], rate);
    assert_eq!(named.what, LimitKind::NotDetermined);
    let computing = contended.cpu_share(0.85, 0.6);
    assert_eq!(limit(&computing).0, LimitKind::NotDetermined);
}

#[test]
fn without_figures_nothing_is_claimed() {
    let mut sample = build::sample().build();
    for flow in sample
        .local
        .flows
        .iter_mut()
        .chain(&mut sample.remote.flows)
    {
        flow.tcp = Known::not_asked("TCP_INFO");
    }
    let (near, far) = build::veth_pair();
    let limit = name_limit(&sample, &near, &far, &[], BitRate::from_mbit_per_s(10_000));
    assert_eq!((limit.what, limit.rule), (LimitKind::NotDetermined, None));
    sample.local.flows.clear();
    sample.remote.flows.clear();
    let limit = name_limit(&sample, &near, &far, &[], BitRate::default());
    assert_eq!(limit.what, LimitKind::NotDetermined);
    assert_eq!(LimitKind::NotDetermined.to_string(), "not determined");
}

// --- by each thread's own record ------------------------------------------------------------------------

const US: fn(u64) -> Nanoseconds = Nanoseconds::from_micros;

/// A trial on one kernel whose threads are known: their shares of CPU wait time, and their sleeps.
fn known(sender: (f64, u64), receiver: (f64, u64)) -> SampleBuilder {
    build::sample().shared_kernel().threads(sender, receiver)
}

fn ample(name: &str) -> Host {
    build::host()
        .sysctl("net.ipv4.tcp_wmem", "4096 131072 16777216")
        .sysctl("net.ipv4.tcp_rmem", "4096 131072 33554432")
        .nic(name, build::NicBuilder::veth)
        .build()
}

fn named(sample: &SampleBuilder) -> LimitKind {
    limit_between(&ample("near0"), &ample("far0"), sample).what
}

#[test]
fn a_thread_that_waits_for_a_cpu_lacks_it_wherever_its_time_went() {
    let sender = known((0.5, 100), (0.0, 9_000))
        .cpu_share(0.45, 0.3)
        .pinned();
    assert_eq!(named(&sender), LimitKind::SenderCpu);
    let receiver = known((0.0, 100), (0.4, 100))
        .cpu_share(0.3, 0.3)
        .pinned()
        .limited(0.8, 0.0);
    let limit = limit_between(&ample("near0"), &ample("far0"), &receiver);
    assert_eq!(limit.what, LimitKind::ReceiverCpu);
    assert!(
        limit.evidence[0].value.contains("other programs"),
        "{:?}",
        limit.evidence[0]
    );
    // A near miss: it waited a little, and slept for the rest.
    let little = known((0.1, 100), (0.1, 20_000))
        .cpu_share(0.3, 0.3)
        .limited(0.0, 0.0);
    assert_eq!(named(&little), LimitKind::NotDetermined);
}

#[test]
fn two_ends_that_wait_for_cpus_alike_are_not_told_apart() {
    let both = known((0.5, 100), (0.48, 100)).cpu_share(0.3, 0.3).pinned();
    assert_eq!(named(&both), LimitKind::NotDetermined);
    let window = both.limited(0.5, 0.0);
    assert_eq!(named(&window), LimitKind::ReceiverCpu);
}

#[test]
fn a_reader_that_copies_all_the_time_is_named_with_its_cpu() {
    let sample = known((0.0, 100), (0.0, 10)).cpu_share(0.4, 0.98).pinned();
    let limit = limit_between(&ample("near0"), &ample("far0"), &sample);
    assert_eq!(limit.what, LimitKind::ReceiverCpu);
    assert!(
        limit.evidence[0]
            .value
            .contains("reading thread and its copies on CPU 1")
    );
}

#[test]
fn a_full_window_is_the_buffer_the_round_trip_or_the_reader() {
    // 10 Gb/s x 100 us is 125 kB.
    let small = |rcv: &str| {
        build::host()
            .sysctl("net.ipv4.tcp_rmem", rcv)
            .nic("far0", build::NicBuilder::veth)
            .build()
    };
    let sample = known((0.0, 20_000), (0.0, 20_000))
        .cpu_share(0.3, 0.3)
        .limited(0.7, 0.0);
    let buffer = limit_between(&ample("near0"), &small("4096 65536 65536"), &sample);
    assert_eq!(buffer.what, LimitKind::ReceiveWindow);
    assert_eq!(named(&sample), LimitKind::ReceiverProgram);
    let busy_reader = sample.clone().cpu_share(0.3, 0.85);
    assert_eq!(named(&busy_reader), LimitKind::NotDetermined);
    let far_away = sample.tcp(|tcp| (tcp.rtt_min_ns, tcp.rtt_ns) = (US(10_000), US(11_000)));
    let path = limit_between(&ample("near0"), &small("4096 65536 65536"), &far_away);
    assert_eq!(path.what, LimitKind::WindowRtt);
}

#[test]
fn a_reader_that_is_away_again_and_again_is_the_limit_however_short_its_other_sleeps_are() {
    // It notes its byte counter each 100 ms while it is there.
    let away = |ms: u64| {
        let sample = known((0.0, 20_000), (0.0, 20_000)).cpu_share(0.3, 0.1);
        let mut sample = sample.limited(0.7, 0.0).build();
        let flows = sample.remote.flows.iter_mut();
        for flow in flows.filter(|flow| flow.role == crate::sample::Role::Receiver) {
            let count = 2_000 / ms;
            flow.at_ns = (1..=count)
                .map(|at| Nanoseconds::from_millis(at * ms))
                .collect();
            let total = flow.bytes.last().map_or(0, |all| all.as_u64());
            flow.bytes = (1..=count)
                .map(|at| Bytes::new(total / count * at))
                .collect();
        }
        let rate = rate_after(&sample, 0).expect("a rate");
        let small = build::host()
            .sysctl("net.ipv4.tcp_rmem", "4096 65536 65536")
            .nic("far0", build::NicBuilder::veth)
            .build();
        name_limit(&sample, &ample("near0"), &small, &[], rate)
    };
    let paused = away(400);
    assert_eq!(paused.what, LimitKind::ReceiverProgram, "{paused:?}");
    assert!(
        paused.evidence[0].what.contains("read nothing"),
        "{paused:?}"
    );
    assert_eq!(away(100).what, LimitKind::ReceiveWindow);
}

#[test]
fn a_reader_that_waits_for_a_path_is_not_late_however_large_the_buffer_may_be() {
    let sample = known((0.0, 1_000), (0.0, 1_000))
        .cpu_share(0.1, 0.1)
        .limited(0.7, 0.0);
    let on = |rtt: (u64, u64), window: Bytes| {
        let sample = sample.clone();
        named(&sample.tcp(|tcp| {
            (tcp.rtt_min_ns, tcp.rtt_ns) = (US(rtt.0), US(rtt.1));
            tcp.snd_wnd_bytes = Some(window);
        }))
    };
    // Its sleeps of 1.8 ms are as long as the RTT, which varies too much for the path's alone: 2.1 MB per RTT.
    assert_eq!(on((1_000, 1_700), Bytes::mib(2)), LimitKind::ReceiveWindow);
    assert_eq!(
        on((1_000, 1_700), Bytes::mib(20)),
        LimitKind::NotDetermined,
        "acknowledgments are lost"
    );
    assert_eq!(on((30, 100), Bytes::mib(2)), LimitKind::ReceiverProgram);
}

#[test]
fn a_pipe_that_runs_dry_is_a_small_buffer_or_a_program_that_sleeps() {
    let dry = |sleeps| {
        known((0.0, sleeps), (0.0, 20_000))
            .cpu_share(0.2, 0.3)
            .tcp(|tcp| tcp.busy_ns = Nanoseconds::from_millis(1_200))
    };
    let near = small_buffers("near0");
    let kind = |sample: &SampleBuilder| limit_between(&near, &ample("far0"), sample).what;
    // Each sleep lasts 80 us, or 16 ms, at a round trip of 100 us.
    assert_eq!(kind(&dry(20_000)), LimitKind::SendBuffer);
    assert_eq!(kind(&dry(100)), LimitKind::SenderProgram);
    assert_eq!(named(&dry(100)), LimitKind::SenderProgram);
    // A buffer that was full is emptied within a round trip; this writer sleeps for three, and was never counted as
    // limited by the buffer.
    let late = dry(5_333);
    assert_eq!(kind(&late), LimitKind::SenderProgram);
    assert_eq!(kind(&late.limited(0.0, 0.1)), LimitKind::SendBuffer);
    let nearly_full = dry(100).tcp(|tcp| tcp.busy_ns = Nanoseconds::from_millis(1_800));
    assert_eq!(named(&nearly_full), LimitKind::NotDetermined);
}

#[test]
fn a_send_buffer_that_is_all_on_the_way_is_the_round_trip_also_when_the_kernel_does_not_say_so() {
    let far_away = known((0.0, 100), (0.0, 500))
        .mbit(100)
        .cpu_share(0.01, 0.01)
        .tcp(|tcp| {
            (tcp.rtt_min_ns, tcp.rtt_ns) = (US(10_000), US(10_500));
            tcp.bytes_sent = Bytes::new(25_000_000);
        });
    // 100 Mb/s x 10.5 ms is 131 kB; the congestion window has 1.4 MB.
    let near = build::host()
        .sysctl("net.ipv4.tcp_wmem", "4096 16384 131072")
        .nic("near0", build::NicBuilder::veth)
        .build();
    let kind = |sample: &SampleBuilder| limit_between(&near, &ample("far0"), sample).what;
    assert_eq!(kind(&far_away), LimitKind::WindowRtt);
    // What waits on the path waits because it carries no more.
    let queue = far_away.clone().tcp(|tcp| tcp.rtt_min_ns = US(300));
    assert_eq!(kind(&queue), LimitKind::Shaper);
    // A window that was closed for most of the time held it back before any queue did.
    let closed = named(&queue.clone().limited(0.8, 0.0));
    assert_ne!(closed, LimitKind::Shaper);
    let busy = queue.cpu_share(0.01, 0.8);
    assert_eq!(kind(&busy), LimitKind::NotDetermined);
    assert_eq!(named(&far_away), LimitKind::NotDetermined);
}

/// A route with `window`, a connection without window scaling, BBR: the kernel does not count the flow as limited.
#[test]
fn a_window_of_the_peer_that_is_full_is_the_limit_also_when_the_kernel_does_not_count_it() {
    let clamped = |window: u64| {
        known((0.0, 100), (0.0, 500))
            .mbit(100)
            .cpu_share(0.01, 0.01)
            .tcp(|tcp| {
                (tcp.rtt_min_ns, tcp.rtt_ns) = (US(10_000), US(10_500));
                tcp.bytes_sent = Bytes::new(25_000_000);
                tcp.snd_wnd_bytes = Some(Bytes::new(window));
            })
    };
    // 131 kB on the way, and a congestion window of 1.4 MB.
    assert_eq!(named(&clamped(140_000)), LimitKind::WindowRtt);
    // The window that autotuning leaves open has room.
    assert_eq!(named(&clamped(300_000)), LimitKind::NotDetermined);
    let own = clamped(140_000).tcp(|tcp| tcp.cwnd_segments = 95);
    assert_eq!(named(&own), LimitKind::CongestionControl);
}

#[test]
fn a_reader_that_comes_late_is_its_program() {
    let late = known((0.0, 100), (0.0, 60)).cpu_share(0.1, 0.1);
    assert_eq!(
        named(&late.clone().limited(0.05, 0.0)),
        LimitKind::ReceiverProgram
    );
    // One whose window never closed had read everything: it slept because nothing came.
    assert_ne!(named(&late.limited(0.0, 0.0)), LimitKind::ReceiverProgram);
}

#[test]
fn what_was_sent_again_in_vain_is_no_loss() {
    let again = |in_vain: u64| {
        known((0.0, 100), (0.0, 50_000)).tcp(|tcp| {
            tcp.cwnd_segments = 90;
            tcp.bytes_retransmitted = Bytes::new(1448 * 10_000);
            tcp.duplicate_segments = Some(in_vain);
        })
    };
    assert_eq!(named(&again(0)), LimitKind::Loss);
    assert_eq!(named(&again(9_900)), LimitKind::CongestionControl);
    // Where some of the reports were lost too, the rest shows no loss either.
    assert_eq!(named(&again(6_000)), LimitKind::NotDetermined);
}

#[test]
fn one_cpu_of_both_ends_is_not_blamed_where_others_fill_it() {
    let shared = |sender, receiver| {
        known((0.5, 100), (0.4, 100))
            .cpus(0, 0)
            .pinned()
            .cpu_share(sender, receiver)
    };
    assert_eq!(named(&shared(0.45, 0.5)), LimitKind::SharedCpu);
    let mut sample = shared(0.05, 0.05).build();
    for side in [&mut sample.local, &mut sample.remote] {
        let Known::Value(machine) = &mut side.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        machine[0].user_ns = machine[0].idle_ns;
        machine[0].idle_ns = Nanoseconds::new(0);
    }
    let (near, far) = (ample("near0"), ample("far0"));
    let limit = name_limit(&sample, &near, &far, &[], BitRate::from_mbit_per_s(1_000));
    assert_ne!(limit.what, LimitKind::SharedCpu);
}

/// Programs fill every CPU. One that may use a single CPU (a cpuset) is slower than one that may use them all.
#[test]
fn a_full_machine_is_the_limit_only_where_the_threads_of_both_ends_wait() {
    let named = |near: f64, far: f64| {
        let mut sample = known((near, 100), (far, 5_000))
            .cpu_share(0.2, 0.15)
            .build();
        for side in [&mut sample.local, &mut sample.remote] {
            let times = [0, 1].map(|cpu| build::cpu_times(cpu, 2_000, 0, 0));
            side.cpu.machine = Known::Value(times.to_vec());
        }
        limit_of(&ample("near0"), &ample("far0"), &sample).what
    };
    assert_eq!(named(0.7, 0.5), LimitKind::Machine);
    assert_eq!(named(0.7, 0.03), LimitKind::SenderCpu);
}

#[test]
fn packets_that_wait_for_the_rate_of_a_qdisc_suggest_a_shaper_that_is_not_reached() {
    let sample = known((0.0, 100), (0.0, 500)).gbit(1).cpu_share(0.3, 0.3);
    let suggests = |waits: u64| {
        let (near, far) = build::veth_pair();
        let mut sample = sample.clone().build();
        let watch = build::watch(&near).grew("nic/near0/qdisc/overlimits", waits);
        sample.local.counters = Known::Value(watch.build());
        limit_of(&near, &far, &sample)
            .suggested
            .contains(&LimitKind::Shaper)
    };
    // 250 MB in packets of up to 64 KiB.
    assert!(suggests(90_000));
    assert!(!suggests(500));
    assert!(!suggests(0));
}

#[test]
fn a_congestion_window_that_the_own_host_keeps_small_is_not_the_congestion_controls() {
    let window = known((0.0, 100), (0.0, 500))
        .mbit(100)
        .cpu_share(0.01, 0.01)
        .limited(0.0, 0.0)
        .tcp(|tcp| {
            (tcp.rtt_min_ns, tcp.rtt_ns) = (US(10_000), US(10_500));
            tcp.bytes_sent = Bytes::new(25_000_000);
            tcp.cwnd_segments = 95;
        });
    let what = |refused: u64| {
        let (near, far) = build::veth_pair();
        let mut sample = window.clone().build();
        let watch = build::watch(&near).grew("nic/near0/qdisc/drops", refused);
        sample.local.counters = Known::Value(watch.build());
        limit_of(&near, &far, &sample).what
    };
    assert_eq!(what(0), LimitKind::CongestionControl);
    assert_ne!(what(40), LimitKind::CongestionControl);
}

#[test]
fn threads_that_spin_are_not_called_used_up() {
    let mut sample = known((0.0, 0), (0.0, 0)).cpu_share(1.0, 1.0).build();
    sample.spec.waiting = crate::workload::Waiting::Spin;
    let (near, far) = (ample("near0"), ample("far0"));
    let limit = name_limit(&sample, &near, &far, &[], BitRate::from_mbit_per_s(10_000));
    assert_eq!(limit.what, LimitKind::NotDetermined);
}

#[test]
fn a_rate_that_the_trial_asked_for_is_the_pacing() {
    let mut sample = build::sample().mbit(970).build();
    sample.spec.pacing_bit_per_s = Some(BitRate::from_mbit_per_s(1_000));
    let limit = limit_of(&ample("near0"), &ample("far0"), &sample);
    assert_eq!(limit.what, LimitKind::Shaper);
    assert!(
        limit.evidence[0].what.contains("requested rate"),
        "{limit:?}"
    );
}

#[test]
fn a_cpu_quota_is_told_from_other_programs_that_use_the_cpu() {
    let waiting = known((0.65, 100), (0.0, 100)).cpu_share(0.3, 0.1);
    let with = |throttled_us: u64| {
        let (near, far) = build::veth_pair();
        let mut sample = waiting.clone().build();
        let watch = build::watch(&near)
            .grew("cgroup/0/throttled_us", throttled_us)
            .grew("cgroup/0/nr_throttled", 80)
            .grew("cgroup/0/nr_periods", 94);
        sample.local.counters = Known::Value(watch.build());
        let rate = rate_after(&sample, 0).expect("a rate");
        name_limit(&sample, &near, &far, &[], rate)
    };
    let throttled = with(5_000_000);
    assert_eq!(throttled.what, LimitKind::SenderCpu);
    let first = &throttled.evidence[0];
    assert!(
        first.value.contains("quota") && first.value.contains("80 of 94 periods"),
        "{first:?}"
    );
    let crowded = with(0);
    assert_eq!(crowded.what, LimitKind::SenderCpu);
    assert!(
        crowded.evidence[0].value.contains("other programs"),
        "{crowded:?}"
    );
}

#[test]
fn a_small_loss_on_a_long_path_is_the_limit_and_the_same_on_a_short_one_is_not() {
    // Half a gigabit a second in 10 s: 625 MB, of which 0.03 % are lost.
    let lossy = |rtt: u64| {
        build::sample()
            .mbit(30)
            .cpu_share(0.1, 0.1)
            .tcp(move |tcp| {
                tcp.bytes_retransmitted = Bytes::new(tcp.bytes_sent.as_u64() * 3 / 10_000);
                tcp.rtt_ns = Nanoseconds::from_micros(rtt);
                tcp.rtt_min_ns = Nanoseconds::from_micros(rtt);
            })
    };
    let (near, far) = build::veth_pair();
    let long = limit_between(&near, &far, &lossy(20_000));
    assert_eq!(long.what, LimitKind::Loss);
    let left = long.evidence.iter().find(|one| one.what.contains("leaves"));
    let left = left.expect("the arithmetic").value.clone();
    assert!(left.contains("cubic can carry"), "{left}");
    let short = limit_between(&near, &far, &lossy(50));
    assert_ne!(short.what, LimitKind::Loss);
}

#[test]
fn the_list_of_limits_has_each_of_them_in_order() {
    let places: Vec<usize> = LimitKind::ALL.iter().map(|kind| *kind as usize).collect();
    let last = LimitKind::NotDetermined as usize;
    assert_eq!(places, (0..=last).collect::<Vec<_>>());
}

#[test]
fn a_link_that_went_down_is_the_limit_whatever_waited_meanwhile() {
    let (near, far) = build::veth_pair();
    let with = |carrier_changes: u64, stalled: usize| {
        let mut sample = build::sample()
            .cpu_share(0.1, 0.1)
            .limited(0.9, 0.0)
            .build();
        for flow in &mut sample.remote.flows {
            let from = flow.bytes.len() / 2;
            let before = flow.bytes[from];
            flow.bytes[from..from + stalled].fill(before);
        }
        let watch = build::watch(&near).grew("nic/near0/stat/carrier_changes", carrier_changes);
        sample.local.counters = Known::Value(watch.build());
        limit_of(&near, &far, &sample)
    };
    let limit = with(2, 6);
    assert_eq!(limit.what, LimitKind::LinkDown, "{limit:?}");
    assert_eq!(limit.what.to_string(), "link down");
    assert!(limit.evidence[1].what.contains("near0"), "{limit:?}");
    // A link that only blinked, and a stall without it.
    assert_ne!(with(2, 1).what, LimitKind::LinkDown);
    assert_ne!(with(0, 6).what, LimitKind::LinkDown);
}
