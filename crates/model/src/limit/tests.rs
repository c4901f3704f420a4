//! One trial for each limit, and those that must not be named.

use super::*;
use crate::analysis::rate_after;
use crate::build::{self, SampleBuilder};
use crate::ceiling::{PathFacts, ceilings_of_path};
use crate::workload::Direction;

fn limit_between(near: &Host, far: &Host, sample: &SampleBuilder) -> Limit {
    let sample = sample.clone().build();
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
        sample: Some(&sample),
    };
    let ceilings = ceilings_of_path(&facts).ceilings;
    let rate = rate_after(&sample, 0).expect("a rate");
    name_limit(&sample, near, far, &ceilings, rate)
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
    let crate::known::Known::Value(machine) = &mut sample.remote.cpu.machine else {
        panic!("the builder knows the machine's times");
    };
    machine[1].softirq_ns = machine[1].idle_ns;
    machine[1].idle_ns = crate::units::Nanoseconds::new(0);
    let (near, far) = build::veth_pair();
    let limit = name_limit(&sample, &near, &far, &[], BitRate::from_mbit_per_s(10_000));
    assert_eq!(limit.what, LimitKind::ReceiverCpu);
}

#[test]
fn loss_the_program_and_the_congestion_control_are_told_apart() {
    let lossy = build::sample().tcp(|tcp| {
        tcp.bytes_retransmitted = crate::units::Bytes::new(tcp.bytes_sent.as_u64() / 100);
    });
    assert_eq!(limit(&lossy).0, LimitKind::Loss);
    let lazy = build::sample()
        .cpu_share(0.2, 0.2)
        .tcp(|tcp| tcp.busy_ns = crate::units::Nanoseconds::from_millis(500));
    assert_eq!(limit(&lazy).0, LimitKind::SenderProgram);
    assert_eq!(
        limit(&build::sample()),
        (LimitKind::CongestionControl, None)
    );
    let bbr = build::host()
        .sysctl("net.ipv4.tcp_congestion_control", "bbr")
        .nic("near0", build::NicBuilder::veth)
        .build();
    let (_, far) = build::veth_pair();
    let limit = limit_between(&bbr, &far, &build::sample());
    assert_eq!(limit.rule.as_deref(), Some("tcp-cc-qdisc"));
}

#[test]
fn a_crowded_machine_or_a_computing_program_is_not_called_lazy() {
    // Seen on a veth while others compiled: the sender got 22 % of a CPU, and had data for 59 %.
    let contended = build::sample()
        .shared_kernel()
        .cpu_share(0.22, 0.19)
        .tcp(|tcp| tcp.busy_ns = crate::units::Nanoseconds::from_millis(1_180));
    let mut sample = contended.clone().build();
    for side in [&mut sample.local, &mut sample.remote] {
        let crate::known::Known::Value(machine) = &mut side.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        for cpu in machine {
            let idle = cpu.idle_ns.as_u64();
            cpu.user_ns = crate::units::Nanoseconds::new(idle / 100 * 85);
            cpu.idle_ns = crate::units::Nanoseconds::new(idle / 100 * 9);
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
        flow.tcp = crate::known::Known::not_asked("TCP_INFO");
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
