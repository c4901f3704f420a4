//! What interventions prove, refute and leave open.

use super::*;
use crate::build::{self, SampleBuilder};
use crate::known::Known;
use crate::path::PathView;
use crate::units::{Bytes, Nanoseconds};
use crate::workload::Workload;

fn rate(mbit: u64) -> BitRate {
    BitRate::from_mbit_per_s(mbit)
}

fn tried(effects: &[(Intervention, Effect)]) -> Vec<Tried> {
    let one = |(intervention, effect): &(Intervention, Effect)| Tried {
        intervention: *intervention,
        rounds: Vec::new(),
        obstacle: None,
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

use Effect::{Higher, Lower, NotHigher, NotLower, Unchanged, Unclear};
use Intervention::{
    Datagrams, DiscardingReader, HalfSegments, LargerBuffers, MoreFlows, OtherControl,
    OtherReceiverCpu, OtherSenderCpu, Paced, Sendfile, SmallerBuffers,
};

#[test]
fn a_path_that_carries_no_more_by_any_means_is_a_shaper_that_no_fact_shows() {
    let effects = [
        (MoreFlows, NotHigher),
        (DiscardingReader, NotHigher),
        (Datagrams, NotHigher),
    ];
    assert_eq!(
        decided(&held(), &[LimitKind::ReceiverProgram], &effects),
        (LimitKind::NotDetermined, Status::NotDetermined),
        "what the trial suggests is not refuted by what stays the same, but nothing speaks for it"
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
    // Named wrongly, the interventions find it: of two windows the one that had no room.
    let of_peer = |window: Bytes| {
        let sample = held().tcp(|tcp| tcp.snd_wnd_bytes = Some(window));
        decided(&sample, &[LimitKind::CongestionControl], &effects)
    };
    let ample = of_peer(Bytes::mib(3));
    assert_eq!(ample, (LimitKind::SendBuffer, Status::Likely));
    let closed = of_peer(Bytes::new(0));
    assert_eq!(closed, (LimitKind::ReceiveWindow, Status::Likely));
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
    assert_eq!(loss.1, Status::Likely, "below a policer it is the same");
    let stays = [&effects[..], &[(Paced, NotLower)]].concat();
    let loss = decided(&lossy, &[LimitKind::Loss], &stays);
    assert_eq!(loss, (LimitKind::Loss, Status::Proved));
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

fn seen(mbit: u64, segments: Option<(f64, f64)>) -> TrialFigures {
    TrialFigures {
        rate: rate(mbit),
        segments,
    }
}

fn rounds(all: &[(u64, u64)]) -> Vec<Round> {
    let all = all.iter().map(|(plain, with)| Round {
        without: seen(*plain, None),
        with: seen(*with, None),
    });
    all.collect()
}

#[test]
fn every_round_must_show_the_same_and_more_than_the_noise() {
    let effect = |all: &[(u64, u64)]| MoreFlows.effect(&rounds(all), seen(100, None));
    assert_eq!(effect(&[(100, 200), (105, 190)]), Higher);
    assert_eq!(effect(&[(100, 50), (105, 60)]), Lower);
    assert_eq!(effect(&[(100, 103), (105, 101)]), Unchanged);
    assert_eq!(effect(&[(100, 100), (105, 60)]), NotHigher);
    assert_eq!(effect(&[(100, 100), (105, 200)]), NotLower);
    assert_eq!(effect(&[(100, 200), (105, 50)]), Unclear);
    // The plain trials differ by a factor of two: a rise of a third is no effect.
    assert_eq!(effect(&[(100, 130), (200, 270)]), Unclear);
    assert_eq!(effect(&[(0, 10), (0, 10)]), Unclear);
    assert_eq!(effect(&[]), Unclear);
}

#[test]
fn a_loss_that_is_gone_when_paced_is_not_random_if_enough_were_to_be_expected() {
    let beside = |measured: (f64, f64), without: (f64, f64), with: (f64, f64)| {
        let round = Round {
            without: seen(100, Some(without)),
            with: seen(70, Some(with)),
        };
        Paced.effect(&[round, round], seen(100, Some(measured)))
    };
    let effect = |without, with| beside((50_000.0, 500.0), without, with);
    assert_eq!(effect((10_000.0, 100.0), (7_000.0, 0.0)), Lower);
    assert_eq!(effect((10_000.0, 100.0), (7_000.0, 60.0)), NotLower);
    assert_eq!(effect((10_000.0, 100.0), (7_000.0, 20.0)), Unclear);
    // One in a thousand: of 2 x 700 segments none might be lost by chance.
    assert_eq!(effect((1_000.0, 1.0), (700.0, 0.0)), Unclear);
    // Needless retransmissions: 5 % seem lost where one in a thousand is.
    assert_eq!(effect((20_000.0, 1_000.0), (14_000.0, 14.0)), Unclear);
    // What a connection loses when it starts is not the loss that holds it back later.
    let start = beside((50_000.0, 5.0), (10_000.0, 1_000.0), (7_000.0, 0.0));
    assert_eq!(start, Unclear);
    assert_eq!(Paced.effect(&[], seen(100, None)), Unclear);
}

#[test]
fn a_policer_is_a_rate_of_the_path_though_connections_that_lose_stay_below_it() {
    // 300 Mb/s instead of the 480 that pass; four connections come closer.
    let overflow = Round {
        without: seen(300, None),
        with: seen(480, Some((60_000.0, 20_000.0))),
    };
    let mut all = tried(&[(MoreFlows, Higher), (Datagrams, Higher), (Paced, Lower)]);
    all[0].rounds = rounds(&[(300, 460), (310, 470)]);
    all[1].rounds = vec![overflow; 2];
    let lossy = held().tcp(|tcp| tcp.bytes_retransmitted = Bytes::new(2_000_000));
    let named = |all: &[Tried]| {
        let verdict = decide(&lossy.clone().build(), &[LimitKind::Loss], all);
        (verdict.what, verdict.hypotheses)
    };
    let (what, hypotheses) = named(&all);
    let stands = |what| {
        hypotheses
            .iter()
            .any(|one| one.what == what && one.stands())
    };
    assert!(
        stands(LimitKind::Shaper) && !stands(LimitKind::Loss),
        "{what}: {hypotheses:#?}"
    );
    // Where the datagrams all arrived, more than the rate before passes.
    all[1].rounds[0].with.segments = Some((60_000.0, 0.0));
    let (_, hypotheses) = named(&all);
    assert!(
        !hypotheses
            .iter()
            .any(|one| one.what == LimitKind::Shaper && one.stands())
    );
}

#[test]
fn a_rival_that_said_more_of_what_came_true_takes_the_suggestion_away() {
    // Segments of half the size at half the rate: the window counts segments, whatever the first trial looked like.
    let effects = [
        (HalfSegments, Lower),
        (LargerBuffers, Unchanged),
        (DiscardingReader, Unchanged),
    ];
    let named = decided(&held(), &[LimitKind::ReceiverProgram], &effects);
    assert_eq!(named, (LimitKind::NotDetermined, Status::NotDetermined));
    let both = [LimitKind::ReceiverProgram, LimitKind::CongestionControl];
    let named = decided(&held(), &both, &effects);
    assert_eq!(named, (LimitKind::CongestionControl, Status::Likely));
}

#[test]
fn a_full_window_of_the_peer_is_no_matter_of_buffers_or_of_the_congestion_window() {
    let ms = Nanoseconds::from_millis;
    let clamped = build::sample().mbit(100).cpu_share(0.01, 0.01).tcp(|tcp| {
        (tcp.rtt_min_ns, tcp.rtt_ns) = (ms(20), ms(20));
        tcp.bytes_sent = Bytes::new(25_000_000);
        tcp.snd_wnd_bytes = Some(Bytes::new(260_000));
    });
    let effects = [
        (MoreFlows, Higher),
        (LargerBuffers, Unchanged),
        (SmallerBuffers, Unchanged),
        (DiscardingReader, Unchanged),
    ];
    let named = decided(&clamped, &[LimitKind::WindowRtt], &effects);
    assert_eq!(named, (LimitKind::WindowRtt, Status::Proved));
}

#[test]
fn short_trials_that_reach_another_rate_than_the_measured_one_show_nothing() {
    let judged = |measured: u64| {
        let mut one = tried(&[(MoreFlows, Unclear)]).remove(0);
        one.rounds = rounds(&[(100, 300), (110, 310)]);
        one.judge(seen(measured, None));
        (one.effect, one.reason.is_some())
    };
    assert_eq!(judged(105), (Higher, false));
    // Before its first loss a connection is faster than after it; what is faster than both is faster.
    assert_eq!(judged(40), (Higher, false));
    assert_eq!(judged(280), (Unclear, true));
}

#[test]
fn an_obstacle_counts_only_where_the_rate_did_not_rise() {
    let judged = |with: u64| {
        let mut one = tried(&[(MoreFlows, Unclear)]).remove(0);
        one.rounds = rounds(&[(100, with), (100, with)]);
        one.obstacle = Some("it used up a CPU".to_owned());
        one.judge(seen(100, None));
        one.effect
    };
    assert_eq!(judged(300), Higher);
    assert_eq!(judged(100), Unclear);
}

#[test]
fn a_thread_that_is_faster_on_another_cpu_proves_that_cpu() {
    let sender = build::sample().gbit(5).cpu_share(0.97, 0.3);
    let effects = [
        (MoreFlows, Unclear),
        (SmallerBuffers, Unchanged),
        (OtherControl, Unchanged),
        (OtherSenderCpu, Higher),
        (Sendfile, Higher),
    ];
    let named = decided(&sender, &[LimitKind::SenderCpu], &effects);
    assert_eq!(named, (LimitKind::SenderCpu, Status::Proved));
    let receiver = build::sample().gbit(5).cpu_share(0.3, 0.97);
    let effects = [
        (SmallerBuffers, Unchanged),
        (OtherControl, Unchanged),
        (OtherReceiverCpu, Higher),
    ];
    let named = decided(&receiver, &[LimitKind::ReceiverCpu], &effects);
    assert_eq!(named, (LimitKind::ReceiverCpu, Status::Proved));
}

#[test]
fn the_interventions_that_distinguish_most_limits_come_first_and_useless_ones_never() {
    let all = Intervention::ALL;
    let standing = [LimitKind::Shaper, LimitKind::Loss];
    let chosen = choose(&standing, Some(LimitKind::Loss), &all, 4);
    assert_eq!(
        chosen,
        [MoreFlows],
        "one that distinguishes the two is enough"
    );
    let without = all
        .into_iter()
        .filter(|one| *one != MoreFlows)
        .collect::<Vec<_>>();
    let chosen = choose(&standing, Some(LimitKind::Loss), &without, 4);
    assert_eq!(chosen, [Paced]);
    let windows = [LimitKind::SendBuffer, LimitKind::ReceiveWindow];
    let chosen = choose(&windows, Some(LimitKind::SendBuffer), &all, 4);
    assert_eq!(chosen, [MoreFlows], "what speaks for both");
    let every: Vec<LimitKind> = PREDICTIONS.iter().map(|(what, ..)| *what).collect();
    for count in 0..=all.len() {
        let chosen = choose(&every, None, &all, count);
        assert!(chosen.len() <= count);
        for (at, one) in chosen.iter().enumerate() {
            assert!(!chosen[..at].contains(one), "{chosen:?}");
        }
    }
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
    let mut sample = held().build();
    sample.spec.omit_ns = Some(Nanoseconds::from_millis(1_000));
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
    assert!(
        reason(SmallerBuffers).contains("less than half"),
        "{}",
        reason(SmallerBuffers)
    );
    assert!(
        reason(OtherSenderCpu).contains("any CPU"),
        "{}",
        reason(OtherSenderCpu)
    );
    assert!(reason(Paced).contains("lost"), "{}", reason(Paced));
    let half = trial(HalfSegments).expect("possible").mss_bytes;
    assert_eq!(half, Some(Bytes::new(724)));
    let more = trial(MoreFlows).expect("possible");
    assert_eq!((more.flows, more.duration_ns), (4, each));
    // A start that the measured trial leaves out may be longer than this one.
    assert_eq!(more.check(), Ok(()));
    let Workload::Udp(udp) = trial(Datagrams).expect("possible").workload else {
        panic!("no datagrams");
    };
    assert_eq!(udp.rate_bit_per_s, Some(rate(1_000)));
}

/// Datagrams of which a path that carries 480 Mb/s drops a third, beside plain trials at `plain`.
fn overflow(plain: u64) -> Tried {
    let mut all = tried(&[(Datagrams, Unclear)]).remove(0);
    let round = Round {
        without: seen(plain, None),
        with: seen(480, Some((60_000.0, 20_000.0))),
    };
    all.rounds = vec![round; 2];
    all
}

#[test]
fn a_measured_rate_near_what_the_path_carries_of_datagrams_is_the_paths() {
    let judged = |measured, plain| {
        let mut all = overflow(plain);
        all.judge(measured);
        all.effect
    };
    assert_eq!(judged(seen(450, None), 440), NotHigher);
    // The measured trial is longer than the plain ones.
    assert_eq!(judged(seen(450, None), 200), NotHigher);
    // A connection that loses stays below a policer's rate, and so it does where packets are lost at random.
    assert_eq!(judged(seen(300, Some((100.0, 1.0))), 300), NotLower);
    // Without loss it is not clear who had the rest: other traffic may have left it to the datagrams.
    assert_eq!(judged(seen(300, Some((100.0, 0.0))), 300), NotLower);
}

#[test]
fn datagrams_that_all_arrive_at_twice_the_rate_are_more_than_the_path_limits() {
    let mut all = overflow(300);
    for round in &mut all.rounds {
        round.with = seen(590, Some((60_000.0, 0.0)));
    }
    all.judge(seen(300, None));
    assert_eq!(all.effect, Higher);
}

#[test]
fn a_loss_that_vanishes_only_beside_slower_trials_shows_nothing() {
    let judged = |plain: u64| {
        let mut paced = tried(&[(Paced, Unclear)]).remove(0);
        let round = Round {
            without: seen(plain, Some((10_000.0, 100.0))),
            with: seen(70, Some((7_000.0, 0.0))),
        };
        paced.rounds = vec![round; 2];
        paced.judge(seen(100, Some((50_000.0, 500.0))));
        paced.effect
    };
    assert_eq!(judged(100), Lower);
    // A connection that starts loses more than later, at a rate of its own.
    assert_eq!(judged(900), Unclear);
}

#[test]
fn loss_that_trials_like_the_measured_one_do_not_have_is_not_the_limit() {
    // 500 Mb/s for 2 s with 1 % of the segments lost.
    let lossy = held().tcp(|tcp| {
        tcp.bytes_sent = Bytes::new(125_000_000);
        tcp.bytes_retransmitted = Bytes::new(1_250_000);
    });
    let stands_of = |plain: u64, lost: f64, of: f64| {
        // The same two plain trials are beside four interventions.
        let mut all =
            tried(&[MoreFlows, OtherControl, DiscardingReader, Sendfile].map(|one| (one, Unclear)));
        let rounds = [10_000.0, 10_001.0].map(|sent| Round {
            without: seen(plain, Some((sent / of, lost / of))),
            with: seen(plain, None),
        });
        for one in &mut all {
            one.rounds = rounds.to_vec();
        }
        let verdict = decide(&lossy.clone().build(), &[LimitKind::Loss], &all);
        let mut all = verdict.hypotheses.iter();
        all.any(|one| one.what == LimitKind::Loss && one.stands())
    };
    let stands = |plain, lost| stands_of(plain, lost, 1.0);
    assert!(stands(500, 100.0), "as much");
    assert!(!stands(500, 0.0), "none at the same rate");
    assert!(stands(900, 0.0), "none, and faster");
    assert!(stands(100, 0.0), "none, and far slower");
    // Of 2 x 200 segments four were to be expected, however many interventions they are beside.
    assert!(stands_of(500, 0.0, 50.0), "too few");
}

#[test]
fn a_thread_that_has_no_time_left_waits_for_nothing_else() {
    let sender = build::sample().gbit(2).cpu_share(0.97, 0.3);
    // What many limits say, and what a small window says.
    let effects = [
        (DiscardingReader, Unchanged),
        (Sendfile, NotHigher),
        (Datagrams, Higher),
    ];
    let named = decided(&sender, &[LimitKind::SenderCpu], &effects);
    assert_eq!(named, (LimitKind::SenderCpu, Status::Likely));
}

#[test]
fn a_loss_that_bbr_does_not_mind_when_paced_is_not_its_limit() {
    let lossy = |control: &str| {
        let control = control.to_owned();
        held().tcp(move |tcp| {
            tcp.bytes_retransmitted = Bytes::new(20_000_000);
            tcp.rtt_ns = Nanoseconds::from_millis(20);
            tcp.congestion_control = Some(control.clone());
        })
    };
    let stands = |control: &str, lost: f64| {
        let mut one = tried(&[(Paced, Unclear)]).remove(0);
        one.rounds = vec![
            Round {
                without: seen(900, Some((20_000.0, 5_000.0))),
                with: seen(350, Some((15_000.0, lost))),
            };
            2
        ];
        let verdict = decide(&lossy(control).build(), &[LimitKind::Loss], &[one]);
        let mut all = verdict.hypotheses.iter();
        all.any(|one| one.what == LimitKind::Loss && one.stands())
    };
    assert!(!stands("bbr", 0.0));
    assert!(stands("bbr", 1_000.0));
    // At 20 ms one lost segment in 10,000 leaves less than that to reno.
    assert!(stands("reno", 0.0));
}

#[test]
fn datagrams_of_which_far_fewer_arrive_than_a_connection_carried_were_too_many_packets() {
    let mut all = overflow(900);
    all.judge(seen(900, None));
    assert_eq!(all.effect, Unclear);
    assert!(all.reason.is_some());
}

#[test]
fn cpus_that_others_keep_busy_are_not_the_limit_of_threads_that_do_not_wait_for_them() {
    let effects = [(MoreFlows, Unchanged), (Datagrams, NotHigher)];
    let machine = |waited: f64| {
        let mut sample = held().threads((waited, 20_000), (0.0, 20_000)).build();
        for side in [&mut sample.local, &mut sample.remote] {
            let Known::Value(cpus) = &mut side.cpu.machine else {
                panic!("no CPU times");
            };
            for times in cpus {
                times.user_ns = side.elapsed_ns;
                times.idle_ns = Nanoseconds::default();
            }
        }
        let verdict = decide(&sample, &[], &tried(&effects));
        (verdict.what, verdict.status)
    };
    assert_eq!(machine(0.01), (LimitKind::Shaper, Status::Proved));
    assert_eq!(
        machine(0.45),
        (LimitKind::NotDetermined, Status::NotDetermined)
    );
}

#[test]
fn of_two_suggestions_that_nothing_distinguishes_neither_is_named() {
    let effects = Intervention::ALL.map(|one| (one, Unclear));
    let both = [LimitKind::WindowRtt, LimitKind::ReceiverProgram];
    let none = (LimitKind::NotDetermined, Status::NotDetermined);
    assert_eq!(decided(&held(), &both, &effects), none);
    // Of a path that is faster with larger buffers, and of a reader that is not, one is left.
    let unchanged = decided(&held(), &both, &[(LargerBuffers, Unchanged)]);
    assert_eq!(unchanged, (LimitKind::ReceiverProgram, Status::Likely));
}

#[test]
fn a_window_that_is_larger_with_smaller_buffers_is_still_the_limit() {
    // A router lowers the window scale, which follows the buffer.
    let effects = [(MoreFlows, Higher), (SmallerBuffers, Higher)];
    let named = decided(&held(), &[LimitKind::WindowRtt], &effects);
    assert_eq!(named, (LimitKind::WindowRtt, Status::Likely));
    let unfounded = decided(&held(), &[], &effects);
    assert_ne!(unfounded.0, LimitKind::WindowRtt);
}

#[test]
fn a_loss_is_not_named_where_it_may_be_what_exceeds_a_rate() {
    // At 1 % lost and 20 ms reno carries 7 Mb/s.
    let lossy = |mbit: u64| {
        build::sample()
            .mbit(mbit)
            .cpu_share(0.1, 0.1)
            .tcp(move |tcp| {
                tcp.bytes_sent = Bytes::new(mbit * 250_000);
                tcp.bytes_retransmitted = Bytes::new(mbit * 2_500);
                tcp.rtt_ns = Nanoseconds::from_millis(20);
                tcp.congestion_control = Some("reno".to_owned());
            })
    };
    let none = (LimitKind::NotDetermined, Status::NotDetermined);
    let named = |mbit, effects: &[_]| decided(&lossy(mbit), &[LimitKind::Loss], effects);
    assert_eq!(named(9, &[]), none, "a policer stands too");
    let higher = [(MoreFlows, Higher)];
    assert_eq!(named(9, &higher), (LimitKind::Loss, Status::Likely));
    // Losses that leave a connection a hundred times what losses at random do come together, as in a full queue.
    assert_eq!(named(700, &higher), none);
    let stays = [(MoreFlows, Higher), (Paced, NotLower)];
    assert_eq!(named(700, &stays), (LimitKind::Loss, Status::Proved));
}

#[test]
fn more_connections_that_help_do_not_tell_which_window_it_is() {
    let none = (LimitKind::NotDetermined, Status::NotDetermined);
    for both in [&[(MoreFlows, Higher)][..], &[(Datagrams, Higher)]] {
        assert_eq!(decided(&held(), &[], both), none);
    }
    let larger = decided(&held(), &[], &[(LargerBuffers, Higher)]);
    assert_eq!(
        larger,
        (LimitKind::SendBuffer, Status::Likely),
        "the peer's window has room"
    );
}

#[test]
fn loss_speaks_against_every_window_that_nothing_suggests() {
    // 0.2 %; the peer's window is full.
    let lossy = held().tcp(|tcp| {
        tcp.bytes_retransmitted = Bytes::new(5_000_000);
        tcp.snd_wnd_bytes = Some(Bytes::new(0));
    });
    let verdict = decide(&lossy.build(), &[], &tried(&[(MoreFlows, Higher)]));
    for window in [
        LimitKind::ReceiveWindow,
        LimitKind::SendBuffer,
        LimitKind::WindowRtt,
    ] {
        assert!(!verdict.standing().contains(&window), "{verdict:?}");
    }
}

#[test]
fn what_the_senders_own_host_refuses_counts_as_lost() {
    let refused = |count: u64| {
        let (near, _) = build::veth_pair();
        let watch = build::watch(&near).grew("nic/near0/stat/tx_dropped", count);
        let mut sample = build::sample().mbit(500).build();
        sample.local.counters = Known::Value(watch.build());
        TrialFigures::of(&sample, rate(500)).segments
    };
    let (none, some) = refused(0).zip(refused(40)).expect("TCP");
    assert!((some.1 - none.1 - 40.0).abs() < 1e-9, "{none:?} {some:?}");
}
