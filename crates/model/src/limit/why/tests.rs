//! What interventions prove, refute and leave open.

use super::*;
use crate::build::{self, SampleBuilder};
use crate::path::PathView;
use crate::units::{Bytes, Nanoseconds};
use crate::workload::Workload;

fn rate(mbit: u64) -> BitRate {
    BitRate::from_mbit_per_s(mbit)
}

fn tried(effects: &[(Intervention, Effect)]) -> Vec<Tried> {
    let one = |(intervention, effect): &(Intervention, Effect)| Tried {
        intervention: *intervention,
        rates: Vec::new(),
        effect: *effect,
        reason: None,
    };
    effects.iter().map(one).collect()
}

/// Half a gigabit a second whose threads are idle most of the time, always with data to send.
fn held() -> SampleBuilder {
    build::sample().mbit(500).cpu_share(0.1, 0.1)
}

fn decided(
    sample: &SampleBuilder,
    suggested: &[LimitKind],
    effects: &[(Intervention, Effect)],
) -> (LimitKind, Status) {
    let verdict = decide(&sample.clone().build(), suggested, &tried(effects));
    (verdict.what, verdict.status)
}

use Effect::{Higher, NotHigher, Unclear};
use Intervention::{Datagrams, DiscardingReader, LargerBuffers, MoreFlows, OtherControl};

#[test]
fn a_path_that_carries_no_more_by_any_means_is_a_shaper_that_no_fact_shows() {
    let effects = [
        (MoreFlows, NotHigher),
        (DiscardingReader, NotHigher),
        (Datagrams, NotHigher),
    ];
    assert_eq!(
        decided(&held(), &[LimitKind::ReceiverProgram], &effects),
        (LimitKind::ReceiverProgram, Status::Likely),
        "what the trial suggests is not refuted by what stays the same"
    );
    assert_eq!(
        decided(&held(), &[], &effects),
        (LimitKind::Shaper, Status::Proved)
    );
}

#[test]
fn more_connections_and_larger_buffers_that_help_prove_the_suggested_window() {
    let effects = [
        (MoreFlows, Higher),
        (LargerBuffers, Higher),
        (Datagrams, Higher),
    ];
    for window in [LimitKind::SendBuffer, LimitKind::ReceiveWindow] {
        assert_eq!(
            decided(&held(), &[window], &effects),
            (window, Status::Proved)
        );
    }
    // Named wrongly, the interventions find it.
    let named = decided(&held(), &[LimitKind::CongestionControl], &effects);
    assert_eq!(
        named,
        (LimitKind::ReceiveWindow, Status::Likely),
        "which window is not known"
    );
}

#[test]
fn another_congestion_control_that_helps_proves_loss_only_if_there_was_some() {
    let effects = [
        (MoreFlows, Higher),
        (LargerBuffers, NotHigher),
        (OtherControl, Higher),
    ];
    let lossy = held().tcp(|tcp| tcp.bytes_retransmitted = Bytes::new(50_000));
    let loss = decided(&lossy, &[LimitKind::Loss], &effects);
    assert_eq!(loss.0, LimitKind::Loss);
    let clean = decided(&held(), &[LimitKind::CongestionControl], &effects);
    assert_eq!(clean, (LimitKind::CongestionControl, Status::Proved));
}

#[test]
fn a_reader_that_is_faster_without_copying_proves_the_receivers_cpu() {
    let busy = build::sample().gbit(20).cpu_share(0.5, 0.97);
    let effects = [
        (MoreFlows, NotHigher),
        (LargerBuffers, NotHigher),
        (DiscardingReader, Higher),
    ];
    let named = decided(&busy, &[LimitKind::ReceiverCpu], &effects);
    assert_eq!(named, (LimitKind::ReceiverCpu, Status::Proved));
}

#[test]
fn without_a_clear_effect_a_suggestion_stays_likely_and_nothing_is_made_up() {
    let effects = Intervention::ALL.map(|one| (one, Unclear));
    assert_eq!(
        decided(&held(), &[LimitKind::SendBuffer], &effects),
        (LimitKind::SendBuffer, Status::Likely)
    );
    assert_eq!(
        decided(&held(), &[], &effects),
        (LimitKind::NotDetermined, Status::NotDetermined)
    );
}

#[test]
fn every_round_must_show_the_same_and_more_than_the_noise() {
    let rounds = |all: &[(u64, u64)]| {
        let all = all.iter().map(|(plain, with)| (rate(*plain), rate(*with)));
        effect(&all.collect::<Vec<_>>())
    };
    assert_eq!(rounds(&[(100, 200), (105, 190)]), Higher);
    assert_eq!(rounds(&[(100, 50), (105, 60)]), NotHigher);
    assert_eq!(rounds(&[(100, 103), (105, 101)]), NotHigher);
    assert_eq!(rounds(&[(100, 200), (105, 110)]), Unclear);
    // The plain trials differ by a factor of two: a rise of a third is no effect.
    assert_eq!(rounds(&[(100, 130), (200, 270)]), Unclear);
    assert_eq!(rounds(&[(0, 10), (0, 10)]), Unclear);
    assert_eq!(rounds(&[]), Unclear);
}

#[test]
fn interventions_that_cannot_show_anything_are_left_out_with_their_reason() {
    let host = |name: &str| {
        build::host()
            .sysctl("net.core.rmem_max", "212992")
            .sysctl("net.core.wmem_max", "212992")
            .sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic")
            .nic(name, build::NicBuilder::veth)
            .build()
    };
    let (near, far) = (host("near0"), host("far0"));
    let path = PathView {
        local: &near,
        remote: &far,
        local_nic: &near.nics[0].name,
        remote_nic: &far.nics[0].name,
        ipv6: false,
    };
    let sample = held().build();
    let each = Nanoseconds::from_millis(300);
    let trial = |one: Intervention| one.trial(&sample, rate(500), path, each);
    let reason = |one: Intervention| trial(one).expect_err("not possible");
    assert!(
        reason(LargerBuffers).contains("rmem_max"),
        "{}",
        reason(LargerBuffers)
    );
    assert!(
        reason(OtherControl).contains("bbr"),
        "{}",
        reason(OtherControl)
    );
    let more = trial(MoreFlows).expect("possible");
    assert_eq!((more.flows, more.duration_ns), (4, each));
    let Workload::Udp(udp) = trial(Datagrams).expect("possible").workload else {
        panic!("no datagrams");
    };
    assert_eq!(udp.rate_bit_per_s, Some(rate(1_000)));
}
