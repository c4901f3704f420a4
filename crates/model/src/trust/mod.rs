//! The reliability of a trial: whether both ends' byte counts agree, and its flags.

mod kept;
mod machine;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::analysis::ways;
use crate::buffers::{self, Buffer};
use crate::ceiling::{Bound, Ceiling};
use crate::host::Host;
use crate::ids::CpuId;
use crate::known::Known;
use crate::plan::End;
use crate::sample::{Checksum, Flag, FlowRecord, Sample, SideSample};
use crate::units::{BitRate, Bytes, Nanoseconds, real};
use crate::workload::{Service, Verb, Workload};

/// A trial is flagged above this share of steal time.
const STEAL_SHARE: f64 = 0.02;

/// The bytes of one connection as both ends counted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountCheck {
    /// The number of the connection.
    pub flow: u32,
    /// The end that sent.
    pub from: End,
    /// Bytes that the sender passed to its kernel; `None` without a record.
    pub sent: Option<Bytes>,
    /// Bytes that the receiver got from its kernel; `None` without a record.
    pub received: Option<Bytes>,
    /// The maximum held by both kernels and one buffer in each program.
    pub in_flight_max: Known<Bytes>,
}

impl CountCheck {
    /// Whether the counts agree within what was in flight; a missing record does not agree.
    pub fn agrees(&self) -> Known<bool> {
        let (Some(sent), Some(received)) = (self.sent, self.received) else {
            return Known::Value(false);
        };
        self.in_flight_max.clone().map(|most| {
            // The receiver may be read slightly after the sender, so the difference has no sign.
            sent.as_u64().abs_diff(received.as_u64()) <= most.as_u64()
        })
    }
}

/// The byte counts of both ends for every connection of a trial.
pub fn count_checks(sample: &Sample, local: &Host, remote: &Host) -> Vec<CountCheck> {
    let mut checks = Vec::new();
    for way in ways(sample) {
        let (from, to) = match way.from {
            End::Local => (local, remote),
            End::Remote => (remote, local),
        };
        let in_flight_max = in_flight_max(sample, from, to);
        let total = |flow: &FlowRecord| (flow.flow, flow.total());
        let sent: BTreeMap<u32, Bytes> = way.sender.senders().map(total).collect();
        let received: BTreeMap<u32, Bytes> = way.receiver.receivers().map(total).collect();
        let numbers: BTreeSet<u32> = sent.keys().chain(received.keys()).copied().collect();
        checks.extend(numbers.into_iter().map(|flow| CountCheck {
            flow,
            from: way.from,
            sent: sent.get(&flow).copied(),
            received: received.get(&flow).copied(),
            in_flight_max: in_flight_max.clone(),
        }));
    }
    checks
}

fn in_flight_max(sample: &Sample, from: &Host, to: &Host) -> Known<Bytes> {
    // Each kernel's limit may be exceeded by one packet of 64 KiB, and one call's buffer is in use in each program
    // when the counters are read.
    let beside = 2 * (sample.spec.buffer_bytes.as_u64().min(1 << 30) + (64 << 10));
    if let Some(verbs) = &sample.spec.verbs {
        // No kernel buffers: what a queue pair has in flight, at either end.
        let message = match &sample.spec.workload {
            Workload::Rdma(rdma) => rdma.sizes.iter().copied().max().unwrap_or_default(),
            _ => sample.spec.buffer_bytes,
        };
        let held = message.as_u64().saturating_mul(2 * u64::from(verbs.depth));
        return Known::Value(Bytes::new(held));
    }
    let asked = sample.spec.socket_buffer_bytes;
    buffers::largest(from, Buffer::Send, asked).and_then(|sent| {
        buffers::largest(to, Buffer::Receive, asked).map(|received| {
            let held = sent.as_u64().saturating_add(received.as_u64());
            Bytes::new(held.saturating_add(beside))
        })
    })
}

/// All flags of a trial: those it was recorded with, and those that follow from its values. `ceiling` is the lowest
/// one, `rate` the rate that is compared with it.
pub fn flags(
    sample: &Sample,
    local: &Host,
    remote: &Host,
    ceiling: Option<&Ceiling>,
    rate: Option<BitRate>,
) -> Vec<Flag> {
    let mut flags: BTreeSet<Flag> = sample.flags.iter().copied().collect();
    let sides = [
        (End::Local, &sample.local, local),
        (End::Remote, &sample.remote, remote),
    ];
    let mut flag_if = |flag, holds: bool| {
        if holds {
            flags.insert(flag);
        }
    };
    flag_if(Flag::SharedKernel, sample.shared_kernel);
    // A remote end that is not linerate reports nothing that could be doubted.
    let is_foreign = sample.flags.contains(&Flag::ForeignPeer) || sample.spec.workload.is_local();
    let reported = |(end, ..): &(End, _, _)| !(is_foreign && *end == End::Remote);
    for (end, side, host) in sides.into_iter().filter(reported) {
        let exact = host.identity.irq_time_accounting.get();
        // If the kernel's accounting is unknown, assume the coarser one.
        flag_if(Flag::TickAccounting, exact != Some(true));
        flag_if(
            Flag::Steal,
            steal_share(side).is_some_and(|share| share > STEAL_SHARE),
        );
        flag_if(Flag::CutShort, cut_short(sample, side));
        flag_if(Flag::Migrated, kept::migrated(side));
        flag_if(
            Flag::MemoryElsewhere,
            kept::memory_elsewhere(&sample.spec, side, host),
        );
        flag_if(
            Flag::CopiedAfterAll,
            kept::copied_after_all(&sample.spec, side),
        );
        flag_if(Flag::RateNotKept, kept::rate_not_kept(&sample.spec, side));
        flag_if(
            Flag::PollingUncounted,
            kept::polling_uncounted(sample.spec.waiting_at(end), side),
        );
        flag_if(Flag::FrequencyMoved, machine::frequency_moved(side, host));
        flag_if(Flag::DeepSleep, machine::slept_deeply(side, host));
        let others = !sample.shared_kernel && machine::other_traffic(&sample.spec, side, host);
        flag_if(Flag::OtherTraffic, others);
        let sharing: &[&SideSample] = if sample.shared_kernel {
            &[&sample.local, &sample.remote]
        } else {
            &[side]
        };
        flag_if(Flag::OtherLoad, !is_foreign && machine::other_load(sharing));
    }
    let disagree = |check: &CountCheck| check.agrees().get() == Some(false);
    // Datagrams may be lost, request workloads count sent and received bytes at either end, and the passive end of
    // one-sided verbs counts nothing.
    let counted_alike = match &sample.spec.workload {
        Workload::Stream(_) => true,
        Workload::Rdma(rdma) => {
            let reliable =
                (sample.spec.verbs.as_ref()).is_some_and(|verbs| verbs.service == Service::Rc);
            rdma.verb == Verb::Send && !rdma.latency && reliable
        }
        _ => false,
    };
    flag_if(
        Flag::CountsDisagree,
        counted_alike && count_checks(sample, local, remote).iter().any(disagree),
    );
    flag_if(Flag::GridsDiffer, grids_differ(sample));
    flag_if(Flag::UnequalFlows, has_unequal_flows(sample));
    let above = ceiling
        .zip(rate)
        .is_some_and(|(ceiling, rate)| is_above(sample, ceiling, rate));
    flag_if(Flag::CeilingWrong, above);
    flags.into_iter().collect()
}

/// Below this index flows share a path unequally: half of them at 125 Mb/s and half at 9 Mb/s have 0.57.
pub const FAIRNESS_MIN: f64 = 0.8;
/// Shorter trials show how flows begin, not how they share.
const SHARE_AFTER: Nanoseconds = Nanoseconds::from_millis(1_000);

/// Jain's fairness index (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984): 1 if all rates are equal, 1/count if one flow has
/// everything. None of fewer than two, and if nothing moved.
pub fn fairness(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (rates.len() >= 2 && squares > 0.0).then(|| sum * sum / (real(rates.len() as u64) * squares))
}

fn has_unequal_flows(sample: &Sample) -> bool {
    let is_long = sample.spec.duration_ns >= SHARE_AFTER;
    let is_unequal = |side: &SideSample| {
        let totals = side.receivers().map(|flow| real(flow.total().as_u64()));
        let totals: Vec<f64> = totals.collect();
        fairness(&totals).is_some_and(|index| index < FAIRNESS_MIN)
    };
    let is_bulk = matches!(sample.spec.workload, Workload::Stream(_));
    is_bulk && is_long && [&sample.local, &sample.remote].into_iter().any(is_unequal)
}

/// Whether a rate proves a ceiling wrong: it is above by more than the bound's tolerance, and by more than what was in
/// flight when the measured time began and is counted in it.
fn is_above(sample: &Sample, ceiling: &Ceiling, rate: BitRate) -> bool {
    // A request is no fact that may be wrong. At low rates the first datagram or window is a large part of it.
    if ceiling.bound == Bound::Requested {
        return false;
    }
    let in_flight: f64 = [&sample.local, &sample.remote]
        .into_iter()
        .flat_map(SideSample::senders)
        .filter_map(|flow| flow.tcp.value())
        .map(|tcp| f64::from(tcp.cwnd_segments) * real(tcp.snd_mss_bytes.as_u64()))
        .sum();
    let seconds = sample.spec.duration_ns.as_secs_f64();
    let carried_over = if seconds > 0.0 {
        8.0 * in_flight / seconds
    } else {
        0.0
    };
    let (tolerance, _) = ceiling.bound.tolerance();
    let bound = ceiling.bit_per_s.as_f64() * (1.0 + tolerance.as_f64());
    // A congestion window may be far larger than what a queue can hold: it excuses no more than 1 %.
    rate.as_f64() > bound + carried_over.min(0.01 * bound)
}

/// Whether the two ends of a pair have different grids, as far as both report them.
fn grids_differ(sample: &Sample) -> bool {
    let grids = |side: &'_ SideSample| -> BTreeMap<u32, Checksum> {
        let flows = side.flows.iter();
        let known = flows.filter_map(|flow| Some((flow.flow, flow.grid.as_ref()?.checksum)));
        known.collect()
    };
    let remote = grids(&sample.remote);
    let mut local = grids(&sample.local).into_iter();
    local.any(|(flow, checksum)| remote.get(&flow).is_some_and(|other| *other != checksum))
}

/// The steal share of the CPUs that ran this end's threads (of all, if those are not known): on a large machine the
/// idle CPUs would hide it.
fn steal_share(side: &SideSample) -> Option<f64> {
    let used: BTreeSet<CpuId> = side.flows.iter().filter_map(FlowRecord::cpu).collect();
    let mut stolen = 0.0;
    let mut total = 0.0;
    for cpu in side.cpu.machine.value()? {
        if used.is_empty() || used.contains(&cpu.cpu) {
            stolen += cpu.steal_ns.as_secs_f64();
            total += cpu.total().as_secs_f64();
        }
    }
    (total > 0.0).then(|| stolen / total)
}

/// Whether an end stopped more than an interval early. A workload with a fixed amount cannot.
fn cut_short(sample: &Sample, side: &SideSample) -> bool {
    if sample.spec.workload.ends_by_itself() {
        return false;
    }
    let lasted = side.elapsed_ns.as_u64();
    lasted.saturating_add(sample.spec.interval_ns.as_u64()) < sample.spec.duration_ns.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::sample::GridRecord;
    use crate::units::Nanoseconds;

    fn flags_of(sample: &Sample) -> Vec<Flag> {
        let (near, far) = build::veth_pair();
        flags(sample, &near, &far, None, None)
    }

    #[test]
    fn a_sound_trial_on_one_kernel_says_only_that() {
        let sample = build::sample().shared_kernel().build();
        assert_eq!(flags_of(&sample), [Flag::SharedKernel]);
    }

    #[test]
    fn a_remote_end_that_is_not_linerate_reports_nothing_to_doubt() {
        let mut sample = build::sample().build();
        sample.remote = SideSample::unheard("an HTTP server");
        sample.spec.workload = Workload::Rr(crate::workload::Rr {
            request_bytes: Bytes::new(1),
            response_bytes: Bytes::new(1),
            depth: 1,
            connect_each: false,
            rate_per_s: None,
        });
        assert!(flags_of(&sample).contains(&Flag::CutShort));
        sample.flags = vec![Flag::ForeignPeer];
        assert_eq!(flags_of(&sample), [Flag::ForeignPeer]);
    }

    #[test]
    fn counts_may_differ_by_what_was_in_flight_and_no_more() {
        let mut sample = build::sample().build();
        let sent = sample.local.flows[0].total().as_u64();
        let last = |bytes: u64, sample: &mut Sample| {
            *sample.local.flows[0].bytes.last_mut().expect("readings") = Bytes::new(bytes);
        };
        last(sent + (20 << 20), &mut sample);
        assert_eq!(flags_of(&sample), []);
        last(sent + (200 << 20), &mut sample);
        assert_eq!(flags_of(&sample), [Flag::CountsDisagree]);
        sample.local.flows.clear();
        assert_eq!(flags_of(&sample), [Flag::CountsDisagree]);
    }

    #[test]
    fn flows_of_which_half_have_a_fraction_of_the_rate_of_the_others_are_flagged() {
        let mut sample = build::sample().flows(16).build();
        let mut flagged = |slow_mbit: u64| {
            for side in [&mut sample.local, &mut sample.remote] {
                for (number, flow) in side.flows.iter_mut().enumerate() {
                    let mbit = if number % 2 == 0 { 125 } else { slow_mbit };
                    *flow.bytes.last_mut().expect("readings") = Bytes::new(mbit * 1_000_000);
                }
            }
            flags_of(&sample).contains(&Flag::UnequalFlows)
        };
        assert!(flagged(9), "as a report of 16 flows shows");
        assert!(!flagged(80));
        let index = |rates: &[f64]| fairness(rates).expect("several");
        assert!((index(&[[125.0; 8], [9.0; 8]].concat()) - 0.57).abs() < 0.01);
        assert_eq!(fairness(&[1.0]), None);
        assert_eq!(fairness(&[0.0, 0.0]), None);
    }

    #[test]
    fn what_verbs_moved_is_counted_alike_only_where_both_ends_see_it() {
        let trial = |verb| build::over_verbs(build::sample().build(), build::rdma(verb, 65_536));
        assert_eq!(flags_of(&trial(Verb::Write)), []);
        let mut sample = trial(Verb::Send);
        assert_eq!(flags_of(&sample), []);
        // Twice 128 messages of 64 KiB are 16 MiB.
        let sent = sample.local.flows[0].total().as_u64();
        let last = |bytes: u64, sample: &mut Sample| {
            *sample.local.flows[0].bytes.last_mut().expect("readings") = Bytes::new(bytes);
        };
        last(sent + (15 << 20), &mut sample);
        assert_eq!(flags_of(&sample), []);
        last(sent + (17 << 20), &mut sample);
        assert_eq!(flags_of(&sample), [Flag::CountsDisagree]);
        if let Some(verbs) = &mut sample.spec.verbs {
            verbs.service = Service::Ud;
        }
        assert_eq!(flags_of(&sample), [], "datagrams may be lost");
    }

    #[test]
    fn two_ends_with_different_grids_are_flagged_and_an_end_that_tells_none_is_not() {
        let grid = |checksum| {
            Some(GridRecord {
                repetitions: 7,
                checksum: Checksum(checksum),
                work_ns: Nanoseconds::new(0),
                vectors: None,
                pictures: Vec::new(),
            })
        };
        let mut sample = build::sample().flows(2).build();
        for (index, checksum) in [(0, 5), (1, 6)] {
            sample.local.flows[index].grid = grid(checksum);
            sample.remote.flows[index].grid = grid(checksum);
        }
        assert_eq!(flags_of(&sample), []);
        sample.remote.flows[1].grid = grid(5);
        assert_eq!(flags_of(&sample), [Flag::GridsDiffer]);
        sample.remote.flows[1].grid = None;
        assert_eq!(flags_of(&sample), []);
    }

    #[test]
    fn unknown_buffers_leave_the_agreement_unknown() {
        let sample = build::sample().build();
        let host = build::host().without_sysctl("net.ipv4.tcp_rmem").build();
        let checks = count_checks(&sample, &host, &host);
        assert!(checks[0].agrees().gap().is_some());
    }

    #[test]
    fn steal_is_judged_on_the_cpus_that_worked() {
        let mut sample = build::sample().build();
        let Known::Value(machine) = &mut sample.local.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        machine[0].steal_ns = Nanoseconds::from_millis(100);
        assert_eq!(flags_of(&sample), [Flag::Steal]);
    }

    #[test]
    fn ticks_a_short_end_and_a_rate_above_the_ceiling_are_flagged() {
        let mut sample = build::sample().gbit(10).build();
        sample.remote.elapsed_ns = Nanoseconds::from_millis(900);
        let host = build::host().irq_time_accounting(false).build();
        let ceiling = crate::ceiling::copy(BitRate::from_mbit_per_s(9_000), 1, None);
        let rate = crate::analysis::rate_after(&sample, 0);
        assert_eq!(
            flags(&sample, &host, &host, Some(&ceiling), rate),
            [Flag::TickAccounting, Flag::CeilingWrong, Flag::CutShort]
        );
    }

    #[test]
    fn a_ceiling_is_wrong_only_above_its_tolerance() {
        let sample = build::sample().build();
        let host = build::host().build();
        let is_flagged = |bound: Bound, mbit| {
            let mut ceiling = crate::ceiling::copy(BitRate::from_mbit_per_s(1_000), 1, None);
            ceiling.bound = bound;
            let rate = Some(BitRate::from_mbit_per_s(mbit));
            flags(&sample, &host, &host, Some(&ceiling), rate).contains(&Flag::CeilingWrong)
        };
        assert!(!is_flagged(Bound::Shaper, 1_002), "its burst");
        assert!(is_flagged(Bound::Shaper, 1_020));
        assert!(is_flagged(Bound::Ethernet, 1_020), "no clock is 2 % off");
        assert!(!is_flagged(Bound::Copy, 1_020), "it is measured");
    }
}
