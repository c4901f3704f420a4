//! Made-up traffic with a known truth, packet by packet through the recorder to the outages.

use proptest::prelude::*;

use super::*;
use crate::units::{Bytes, Nanoseconds};

const MS: u64 = 1_000_000;
const LATE: Nanoseconds = Nanoseconds::from_millis(100);
/// The receiver's clock is this far ahead.
const AHEAD: u64 = 77_000 * MS;

fn ns(count: u64) -> Nanoseconds {
    Nanoseconds::new(count)
}

/// What the path does with a packet.
#[derive(Debug, Clone, Copy)]
enum Path {
    Drops,
    /// Holds it until then.
    HoldsUntil(u64),
    Takes(u64),
}

/// A flow of `count` packets, one each `step`; `path` decides by send time. Copies arrive 1 us after the first.
fn sent_over(
    (count, step): (u64, u64),
    path: impl Fn(u64, u64) -> Path,
    copied: impl Fn(u64) -> bool,
) -> (ProbeRecord, ProbeRecord) {
    let mut arriving = Vec::new();
    for number in 0..count {
        let sent = 1_000 * MS + number * step;
        let at = match path(number, sent) {
            Path::Drops => continue,
            Path::HoldsUntil(until) => until.max(sent) + MS / 2,
            Path::Takes(time) => sent + time,
        };
        arriving.push((at, number, sent));
        if copied(number) {
            arriving.push((at + 1_000, number, sent));
        }
    }
    arriving.sort_unstable();
    let mut recorder = Recorder::new(ns(step), LATE, count + 10, RUNS_MAX);
    for (at, number, sent) in arriving {
        recorder.arrived(Stamp {
            number,
            sent_ns: ns(sent),
            received_ns: ns(at + AHEAD),
        });
    }
    let departures = Departures {
        sent: count,
        first_ns: Some(ns(1_000 * MS)),
        last_ns: Some(ns(1_000 * MS + count.saturating_sub(1) * step)),
        ..Departures::default()
    };
    (
        ProbeRecord {
            departures: Some(departures),
            ..ProbeRecord::default()
        },
        ProbeRecord {
            arrivals: Some(recorder.close()),
            ..ProbeRecord::default()
        },
    )
}

fn hole(from: u64, to: u64) -> impl Fn(u64, u64) -> Path {
    move |_, sent| {
        if (from..to).contains(&sent) {
            Path::Drops
        } else {
            Path::Takes(MS / 2)
        }
    }
}

#[test]
fn a_black_hole_is_one_outage_bounded_by_the_packets_around_it() {
    let (sender, receiver) = sent_over((5_000, MS), hole(2_000 * MS, 2_500 * MS), |_| false);
    let all = outages(Some(&sender), &receiver);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((all[0].lost, all[0].late), (500, 0));
    assert_eq!(all[0].from_ns, ns(1_999 * MS));
    assert_eq!(all[0].to_ns, ns(2_500 * MS));
    assert_eq!(all[0].length(ns(MS)), Nanoseconds::from_millis(500));
    assert!(all[0].has_ended);
}

#[test]
fn without_a_fault_there_is_no_outage_whatever_the_pauses() {
    // The receiver pauses for 90 ms, less than what is late.
    let path = |number, _| {
        if (100..109).contains(&number) {
            Path::HoldsUntil(2_090 * MS)
        } else {
            Path::Takes(MS)
        }
    };
    let (sender, receiver) = sent_over((300, 10 * MS), path, |_| false);
    assert_eq!(outages(Some(&sender), &receiver), []);
    let arrivals = receiver.arrivals.expect("recorded");
    assert_eq!(arrivals.stall.count, 1, "{:?}", arrivals.stall);
    assert_eq!(arrivals.stall.longest_ns, Nanoseconds::from_micros(99_500));
}

#[test]
fn packets_held_and_let_go_are_late_and_part_of_the_same_outage() {
    // 0.3 s are lost, what is sent in the following 0.7 s is held until a second later.
    let path = |_, sent| match sent / MS {
        2_000..2_300 => Path::Drops,
        2_300..3_000 => Path::HoldsUntil(4_000 * MS),
        _ => Path::Takes(MS),
    };
    let (sender, receiver) = sent_over((4_000, MS), path, |_| false);
    let all = outages(Some(&sender), &receiver);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((all[0].lost, all[0].late), (300, 700));
    assert_eq!(all[0].to_ns, ns(3_000 * MS));
    let arrivals = receiver.arrivals.expect("recorded");
    assert_eq!((arrivals.late, arrivals.reordered), (700, 700));
    assert_eq!(arrivals.duplicated, 0);
}

#[test]
fn a_flow_that_does_not_come_back_has_an_open_outage() {
    let (sender, receiver) = sent_over((2_000, MS), hole(2_000 * MS, u64::MAX), |_| false);
    let all = outages(Some(&sender), &receiver);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].lost, 1_000);
    assert!(!all[0].has_ended);
    // Without the sender's record nobody knows that more was sent.
    assert_eq!(outages(None, &receiver), []);
    let (sender, receiver) = sent_over((100, MS), |_, _| Path::Drops, |_| false);
    assert_eq!(outages(Some(&sender), &receiver)[0].lost, 100);
}

#[test]
fn numbers_that_no_trial_sends_are_ignored_and_counted() {
    let mut recorder = Recorder::new(ns(MS), LATE, 1_000, RUNS_MAX);
    for number in [0, 1, u64::MAX, 1_000, 2] {
        recorder.arrived(Stamp {
            number,
            sent_ns: ns(number),
            received_ns: ns(7),
        });
    }
    let arrivals = recorder.close();
    assert_eq!(
        (arrivals.ignored, arrivals.received, arrivals.next),
        (2, 3, 3)
    );
    assert!(arrivals.runs.is_empty());
}

#[test]
fn more_runs_than_are_recorded_are_counted() {
    let path = |number: u64, _| {
        if number % 2 == 1 {
            Path::Drops
        } else {
            Path::Takes(MS)
        }
    };
    let (_, receiver) = sent_over((4_001, MS), path, |_| false);
    let arrivals = receiver.arrivals.expect("recorded");
    assert_eq!(arrivals.runs.len(), RUNS_MAX);
    assert_eq!(arrivals.unrecorded, 2_000 - RUNS_MAX as u64);
}

#[test]
fn a_fault_of_a_quarter_of_the_flows_affects_a_quarter() {
    let step = 6 * MS;
    let flows: Vec<FlowOutages> = (0..64)
        .map(|flow| {
            let is_hit = flow % 4 == 0;
            let path = |_: u64, sent: u64| {
                let shifted = sent + u64::from(flow) * step / 64;
                if is_hit && (2_000 * MS..2_180 * MS).contains(&shifted) {
                    Path::Drops
                } else {
                    Path::Takes(MS)
                }
            };
            let (sender, receiver) = sent_over((1_000, step), path, |_| false);
            FlowOutages {
                flow,
                outages: outages(Some(&sender), &receiver),
            }
        })
        .collect();
    let triggers = TriggerTimes {
        failure_ns: Some(ns(2_000 * MS)),
        return_ns: None,
    };
    let joined = joined(&flows, ns(step), &triggers);
    assert_eq!(joined.clusters.len(), 1, "{joined:?}");
    let cluster = joined.clusters[0];
    assert_eq!((cluster.flows, cluster.trigger), (16, Trigger::Failure));
    assert_eq!(cluster.common, None);
    let off = cluster.longest_ns.as_u64().abs_diff(180 * MS);
    assert!(off <= step, "{cluster:?}");
}

#[test]
fn failure_and_return_are_apart_and_all_flows_together_are_finer_than_one() {
    let step = 6 * MS;
    let flows: Vec<FlowOutages> = (0..64)
        .map(|flow| {
            let turn = u64::from(flow) * step / 64;
            let mut outages = Vec::new();
            for (from, to) in [(2_000 * MS, 2_500 * MS), (5_000 * MS, 5_040 * MS)] {
                let before = (from - turn - 1) / step * step + turn;
                let after = (to - turn).div_ceil(step) * step + turn;
                outages.push(Outage {
                    from_ns: ns(before),
                    to_ns: ns(after),
                    has_ended: true,
                    lost: (after - before) / step - 1,
                    late: 0,
                    resumed_ns: None,
                    worst_ns: None,
                });
            }
            FlowOutages { flow, outages }
        })
        .collect();
    // The clock of the events is one second ahead.
    let ahead = 1_000 * MS;
    let triggers = TriggerTimes {
        failure_ns: Some(ns(2_000 * MS + ahead)),
        return_ns: Some(ns(5_000 * MS + ahead)),
    };
    let flows: Vec<FlowOutages> = flows
        .iter()
        .map(|flow| flow.on_clock(ahead.cast_signed()))
        .collect();
    let joined = joined(&flows, ns(step), &triggers);
    let kinds: Vec<Trigger> = joined.clusters.iter().map(|one| one.trigger).collect();
    assert_eq!(kinds, [Trigger::Failure, Trigger::Return]);
    for (cluster, truth) in joined.clusters.iter().zip([500 * MS, 40 * MS]) {
        assert_eq!(cluster.flows, 64);
        assert!(cluster.longest_ns.as_u64().abs_diff(truth) <= step);
        let (common, within) = cluster.common.expect("all flows at once");
        assert!(
            common.as_u64().abs_diff(truth) <= within.as_u64(),
            "{cluster:?}"
        );
        assert!(within.as_u64() <= step / 64);
    }
}

#[test]
fn ten_of_ten_failures_bound_the_share_of_shorter_ones() {
    let all: Vec<Nanoseconds> = (1..=10).map(Nanoseconds::from_millis).collect();
    let repeated = repeated(&all).expect("ten");
    assert_eq!(repeated.median_ns, Nanoseconds::from_micros(5_500));
    assert_eq!(repeated.max_ns, Nanoseconds::from_millis(10));
    assert!((repeated.share - 0.741_1).abs() < 1e-3, "{repeated:?}");
    assert!((share_at_least(1) - 0.05).abs() < 1e-12);
    assert_eq!(super::repeated(&[]), None);
}

/// What each number's arrivals show, by a record of all of them: on time, late, and copies.
fn naive(arriving: &[(u64, u64, u64)]) -> (u64, u64, u64) {
    let mut fastest = u64::MAX;
    let mut seen = std::collections::BTreeSet::new();
    let mut highest = None;
    let (mut late, mut duplicated, mut reordered) = (0, 0, 0);
    for &(at, number, sent) in arriving {
        fastest = fastest.min(at - sent);
        if !seen.insert(number) {
            duplicated += 1;
            continue;
        }
        late += u64::from(at - sent - fastest > LATE.as_u64());
        reordered += u64::from(highest.is_some_and(|highest| number < highest));
        highest = highest.max(Some(number));
    }
    (late, duplicated, reordered)
}

proptest! {
    #[test]
    fn counts_agree_with_a_record_of_every_packet(
        fates in proptest::collection::vec((0u8..10, 0u64..400 * MS), 1..200),
    ) {
        let mut arriving = Vec::new();
        for (number, (fate, time)) in (0u64..).zip(&fates) {
            let sent = number * 5 * MS;
            match fate {
                0 | 1 => {}
                2 => arriving.push((sent + time, number, sent)),
                3 => {
                    arriving.push((sent + MS, number, sent));
                    arriving.push((sent + MS + time, number, sent));
                }
                _ => arriving.push((sent + MS, number, sent)),
            }
        }
        arriving.sort_unstable();
        let mut recorder = Recorder::new(ns(5 * MS), LATE, 1_000, RUNS_MAX);
        for &(at, number, sent) in &arriving {
            recorder.arrived(Stamp { number, sent_ns: ns(sent), received_ns: ns(at) });
        }
        let arrivals = recorder.close();
        let (late, duplicated, reordered) = naive(&arriving);
        prop_assert_eq!(arrivals.late, late);
        prop_assert_eq!(arrivals.duplicated, duplicated);
        prop_assert_eq!(arrivals.reordered, reordered);
        let count = fates.len() as u64;
        let distinct: std::collections::BTreeSet<u64> =
            arriving.iter().map(|one| one.1).collect();
        let sender = ProbeRecord {
            departures: Some(Departures { sent: count, ..Departures::default() }),
            ..ProbeRecord::default()
        };
        let receiver = ProbeRecord { arrivals: Some(arrivals), ..ProbeRecord::default() };
        let all = outages(Some(&sender), &receiver);
        let lost: u64 = all.iter().map(|one| one.lost).sum();
        prop_assert_eq!(lost, count - distinct.len() as u64);
        let in_outages: u64 = all.iter().map(|one| one.late).sum();
        prop_assert_eq!(in_outages, late);
        for pair in all.windows(2) {
            prop_assert!(pair[0].to_ns <= pair[1].from_ns, "{:?}", pair);
        }
    }

    #[test]
    fn a_hole_is_read_within_one_step_beside_jitter_and_copies(
        from in 1_100u64..2_000,
        length_us in 0u64..3_600_000,
        step in prop_oneof![Just(MS / 5), Just(MS), Just(6 * MS)],
        jitter in 0u64..20 * MS,
    ) {
        let (from, to) = (from * MS, from * MS + length_us * 1_000);
        let count = 6_000 * MS / step;
        let path = |number: u64, sent: u64| {
            if (from..to).contains(&sent) {
                Path::Drops
            } else {
                Path::Takes(MS + number * 7_919 % jitter.max(1))
            }
        };
        let (sender, receiver) = sent_over((count, step), path, |number| number % 97 == 0);
        let all = outages(Some(&sender), &receiver);
        let lost: u64 = all.iter().map(|one| one.lost).sum();
        if lost == 0 {
            prop_assert!(all.is_empty());
            prop_assert!(to - from < step);
        } else {
            prop_assert_eq!(all.len(), 1);
            let read = all[0].length(ns(step)).as_u64();
            prop_assert!(read.abs_diff(to - from) <= step, "{} of {}", read, to - from);
        }
    }
}

#[test]
fn transit_times_are_recorded_over_the_whole_trial_in_bounded_memory() {
    for count in [10_u64, 100, 100_000] {
        let mut recorder = Recorder::new(ns(MS), LATE, count, RUNS_MAX);
        for number in 0..count {
            let sent = number * MS;
            recorder.arrived(Stamp {
                number,
                sent_ns: ns(sent),
                received_ns: ns(sent + 500),
            });
        }
        let transits = recorder.close().transits;
        let expected = usize::try_from(count).expect("small").min(TRANSITS_MAX / 2);
        assert!(
            (expected.min(10)..=TRANSITS_MAX).contains(&transits.len()),
            "{count}: {}",
            transits.len()
        );
        assert!(transits.iter().all(|Transit(_, took)| *took == 500));
        let first_half = |one: &&Transit| one.0.as_u64() < count / 2 * MS;
        let early = transits.iter().filter(first_half).count();
        assert!(
            early.abs_diff(transits.len() - early) <= 2,
            "{count}: {early}"
        );
    }
}

#[test]
fn the_throughput_dip_is_the_number_of_flows_that_were_interrupted_at_once() {
    let outage = |from, to| Outage {
        from_ns: ns(from * MS),
        to_ns: ns(to * MS),
        has_ended: true,
        lost: 1,
        late: 0,
        resumed_ns: None,
        worst_ns: None,
    };
    let flow = |flow, outages| FlowOutages { flow, outages };
    // Two overlap, the third begins when they have ended.
    let flows = [
        flow(0, vec![outage(1_100, 1_300)]),
        flow(1, vec![outage(1_150, 1_250)]),
        flow(2, vec![outage(1_300, 1_400)]),
        flow(3, Vec::new()),
    ];
    let times = TriggerTimes {
        failure_ns: Some(ns(1_100 * MS)),
        return_ns: None,
    };
    let of = |trigger| interrupted_at_once(&flows, ns(10 * MS), &times, trigger);
    assert_eq!(of(Trigger::Failure), 2);
    assert_eq!(of(Trigger::Return), 0);
}

#[test]
fn a_route_that_is_being_replaced_is_no_change_of_the_path_mtu() {
    let mut track = TcpTrack::default();
    for (at, bytes) in [(1, 1_500), (2, 68), (3, 1_500), (4, 68), (5, 1_400)] {
        let timer = Backoff {
            at_ns: ns(at),
            expirations: 0,
            timeout_ns: ns(200 * MS),
        };
        track.saw(timer, Bytes::new(bytes));
    }
    let seen = track
        .path_mtus
        .iter()
        .map(|mtu| (mtu.at_ns, mtu.bytes.as_u64()));
    assert_eq!(seen.collect::<Vec<_>>(), [(ns(1), 1_500), (ns(5), 1_400)]);
}
