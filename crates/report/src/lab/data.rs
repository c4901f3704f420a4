//! The data of the pictures of an experiment: a little of each trial, extracted from its raw record, so that
//! thousands of trials fit, and nothing is kept that no picture shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linerate_analysis::record::Record;
use linerate_analysis::trial::figure::times;
use linerate_analysis::trial::first_kept;
use linerate_analysis::trial::operations::{askers, real};
use linerate_model::analysis::{rate_series, sends};
use linerate_model::host::Host;
use linerate_model::ids::{CpuId, CpuSet, NicName};
use linerate_model::lab::Experiment;
use linerate_model::plan::End;
use linerate_model::sample::{Checksum, CpuTimes, Film, FlowRecord, Role, Sample, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Diffusion, Workload};

use super::course::Course;
use super::grid::film_of;
use super::sizes::{OfSize, of_sizes};
use crate::chart::whole;

/// More points of one trial than these add nothing to a picture.
const POINTS_MAX: usize = 120;
/// Bins of operations' times per decade.
const BINS_OF_TENFOLD: f64 = 24.0;
/// The kernel counts CPU time in ticks of up to 10 ms: shares of less time than this are not shown.
pub(super) const COUNTED_MIN_S: f64 = 0.2;
/// A CPU that took less than this share of a host's packets is not shown as taking them.
const SHARE_OF_PACKETS: f64 = 0.05;

/// Everything that the pictures show in addition to the document.
#[derive(Debug, Default)]
pub struct LabData {
    pub(super) experiment: Option<Box<Experiment>>,
    /// Whether it created its own two hosts.
    pub(super) own_hosts: bool,
    /// The baseline of both hosts.
    pub(super) hosts: Option<(Box<Host>, Box<Host>)>,
    /// The other hosts that are levels.
    pub(super) peers: Vec<OtherHost>,
    /// The hosts of the earlier runs that are levels.
    pub(super) earlier: Vec<EarlierHosts>,
    /// The grid that the page shows, recomputed: what [`LabData::film_wanted`] asks for.
    pub film: Option<Film>,
    /// The trials that count, by block and combination.
    trials: BTreeMap<(u32, Vec<usize>), Trial>,
}

/// Another host that is a level.
#[derive(Debug)]
pub(super) struct OtherHost {
    /// Its name.
    pub(super) at: String,
    /// The interface that data to it is sent from.
    pub(super) local_nic: NicName,
    /// The interface that has its address.
    pub(super) remote_nic: NicName,
    /// That address, if the run contains it.
    pub(super) address: Option<IpAddr>,
    pub(super) host: Box<Host>,
}

/// Both hosts of an earlier run that is a level, as they were then.
#[derive(Debug)]
pub(super) struct EarlierHosts {
    /// The factor, and its level.
    pub(super) level: (usize, usize),
    pub(super) local: Box<Host>,
    pub(super) remote: Box<Host>,
}

/// The transfer of a trial over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateKind {
    /// Bits per second.
    Bits,
    /// Operations per second.
    Operations,
}

/// One trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) block: u32,
    /// The other host that was its remote end; none for the experiment's own peer.
    pub(super) peer: Option<String>,
    pub(super) moved: RateKind,
    /// The end of each interval, seconds since the start, and the rate within it.
    pub(super) series: Vec<(f64, f64)>,
    /// The end of its warm-up, seconds.
    pub(super) warm_up_s: f64,
    /// Latencies, if it has operations.
    pub(super) times: Option<Times>,
    /// Its result for each size, if it went through several.
    pub(super) sizes: Vec<OfSize>,
    /// This end's, and the peer's.
    pub(super) ends: [EndOfTrial; 2],
    /// Whether both ends ran on one kernel: then they share the CPUs.
    pub(super) shared_kernel: bool,
    pub(super) grid: Option<Grid>,
}

/// The latencies of a trial.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) count: u64,
    /// How many are in each non-empty bin; [`bin_s`] returns its bounds.
    pub(super) bins: BTreeMap<i32, u64>,
    /// Seconds, of each of [`QUANTILES`] and the longest.
    pub(super) quantiles: Vec<f64>,
}

/// The quantiles that are kept, and their names.
pub(super) const QUANTILES: [(f64, &str); 5] = [
    (0.5, "median"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (1.0, "longest"),
];

/// The kinds of CPU time.
pub(super) const KINDS: [&str; 5] = ["user", "system", "softirq", "irq", "steal"];

/// One end of a trial.
#[derive(Debug, Default)]
pub(super) struct EndOfTrial {
    /// The shares of each CPU's time by kind.
    pub(super) cpus: BTreeMap<CpuId, [f64; KINDS.len()]>,
    /// Why they are unknown, if they are.
    pub(super) why_no_cpus: String,
    /// The same of the busiest CPUs, step by step.
    pub(super) course: Course,
    /// Where sending and receiving threads ran.
    pub(super) senders: BTreeSet<CpuId>,
    pub(super) receivers: BTreeSet<CpuId>,
    /// Where the kernel took packets in.
    pub(super) packets: BTreeSet<CpuId>,
    /// Interrupts by their number and the CPU that took them.
    pub(super) interrupts: BTreeMap<(u32, CpuId), u64>,
}

/// What is reported about the first pair's grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) diffusion: Diffusion,
    pub(super) repetitions: u64,
    pub(super) checksum: Checksum,
    /// Whether both ends reported the same.
    pub(super) same: bool,
}

impl LabData {
    /// The data of all records of a run.
    pub fn of<'r>(records: impl IntoIterator<Item = &'r Record>) -> Self {
        let mut seen = Self::default();
        for record in records {
            seen.see(record);
        }
        seen
    }

    /// The grid that the page shows, if the run has one: its size, and after which repetitions.
    pub fn film_wanted(&self) -> Option<(Bytes, Vec<u64>)> {
        film_of(self).map(|(grid, after)| (grid.diffusion.bytes, after))
    }

    /// Adds a record; records arrive in the order of the run.
    pub fn see(&mut self, record: &Record) {
        match record {
            Record::Lab {
                experiment,
                own_hosts,
                ..
            } => {
                self.experiment = Some(experiment.clone());
                self.own_hosts = *own_hosts;
            }
            Record::Hosts { local, remote } => {
                (self.hosts).get_or_insert_with(|| (local.clone(), remote.clone()));
            }
            Record::Peer {
                at,
                local_nic,
                remote_nic,
                address,
                host,
            } => self.peers.push(OtherHost {
                at: at.clone(),
                local_nic: local_nic.clone(),
                remote_nic: remote_nic.clone(),
                address: *address,
                host: host.clone(),
            }),
            Record::Earlier(earlier) => self.earlier.push(EarlierHosts {
                level: (earlier.factor, earlier.level),
                local: earlier.local.clone(),
                remote: earlier.remote.clone(),
            }),
            Record::Cell {
                block,
                levels,
                samples,
                ..
            } => {
                let place = (*block, levels.clone());
                let experiment = self.experiment.as_ref();
                let peer = experiment.and_then(|experiment| experiment.at(levels).peer.at);
                // A second trial takes the place of the first.
                match samples.first() {
                    Some(sample) => self.trials.insert(place, Trial::of(*block, sample, peer)),
                    None => self.trials.remove(&place),
                };
            }
            _ => {}
        }
    }

    /// The trials, by the names of their levels, in the order of their blocks.
    pub(super) fn by_combination(&self) -> BTreeMap<Vec<String>, Vec<&Trial>> {
        let mut all: BTreeMap<Vec<String>, Vec<&Trial>> = BTreeMap::new();
        let Some(experiment) = &self.experiment else {
            return all;
        };
        for ((_, cell), trial) in &self.trials {
            let names = experiment.level_names(cell);
            all.entry(names).or_default().push(trial);
        }
        all
    }

    /// The trials.
    pub(super) fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.values()
    }
}

impl Trial {
    fn of(block: u32, sample: &Sample, peer: Option<String>) -> Self {
        let (moved, series, warm_up_s) = series(sample);
        Self {
            block,
            peer,
            moved,
            series,
            warm_up_s,
            times: Times::of(sample),
            sizes: of_sizes(sample),
            ends: [
                EndOfTrial::of(&sample.local, sends(sample, End::Local), sample),
                EndOfTrial::of(&sample.remote, sends(sample, End::Remote), sample),
            ],
            shared_kernel: sample.shared_kernel,
            grid: Grid::of(sample),
        }
    }
}

/// The course over time: the rate of bulk transfers, operations of all others.
fn series(sample: &Sample) -> (RateKind, Vec<(f64, f64)>, f64) {
    let workload = &sample.spec.workload;
    if workload.is_bulk() {
        if workload.is_sweep() {
            return (RateKind::Bits, Vec::new(), 0.0);
        }
        let points = rate_series(sample).total;
        let cut = first_kept(sample).checked_sub(1);
        let cut = cut.and_then(|last| Some(points.get(last)?.at_ns.as_secs_f64()));
        let points = points.iter();
        let points = points.map(|point| (point.at_ns.as_secs_f64(), point.bit_per_s.as_f64()));
        let points = thinned(&whole(points));
        return (RateKind::Bits, points, cut.unwrap_or(0.0));
    }
    // A ping-pong goes through its sizes: its operations per second follow from them.
    let mut asking = askers(sample);
    let steps = match (asking.next(), asking.next()) {
        (Some((_, operations)), None) if operations.sizes.is_empty() => &operations.steps[..],
        _ => &[],
    };
    // Round trips are shown by their bits, both directions together.
    let (moved, each) = match workload {
        Workload::Transfer(transfer) => (RateKind::Bits, real(transfer.bytes.as_u64()) * 16.0),
        Workload::Diffusion(diffusion) => (RateKind::Bits, real(diffusion.bytes.as_u64()) * 16.0),
        _ => (RateKind::Operations, 1.0),
    };
    let mut points = Vec::new();
    let (mut from, mut before) = (0.0, 0);
    // A reading right after another, as at the end, yields no rate.
    let shortest = sample.spec.interval_ns.as_secs_f64() / 2.0;
    for step in steps {
        let at = step.at_ns.as_secs_f64();
        if at - from > shortest {
            let gained = step.completed.saturating_sub(before);
            points.push((at, real(gained) * each / (at - from)));
            (from, before) = (at, step.completed);
        }
    }
    (moved, thinned(&points), 0.0)
}

/// At most [`POINTS_MAX`] points, each the mean of neighbors.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let together = |points: &[(f64, f64)]| {
        let sum: f64 = points.iter().map(|(_, rate)| rate).sum();
        let (at, _) = points.last()?;
        Some((*at, sum / real(points.len() as u64)))
    };
    points.chunks(step).filter_map(together).collect()
}

impl Times {
    fn of(sample: &Sample) -> Option<Self> {
        let all = times(sample);
        let (shortest, longest) = (all.min()?, all.max()?);
        let mut bins: BTreeMap<i32, u64> = BTreeMap::new();
        // In one pass over the buckets, of which there are thousands: same values as `Histogram::quantile`.
        let mut quantiles = Vec::new();
        let mut below = 0;
        for (ns, count) in all.filled() {
            *bins.entry(bin_of(ns)).or_default() += count;
            below += count;
            let passed = QUANTILES[quantiles.len()..].iter();
            let passed = passed.take_while(|(share, _)| real(below) >= share * real(all.count()));
            let time = Nanoseconds::new(ns).clamp(shortest, longest).as_secs_f64();
            quantiles.extend(passed.map(|_| time).collect::<Vec<f64>>());
        }
        Some(Self {
            count: all.count(),
            bins,
            quantiles,
        })
    }
}

/// The bin of a time.
fn bin_of(ns: u64) -> i32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "20 tenfolds at most, of 64 bits"
    )]
    let bin = (real(ns.max(1)).log10() * BINS_OF_TENFOLD).floor() as i32;
    bin
}

/// The bounds of a bin in seconds.
pub(super) fn bin_s(bin: i32) -> (f64, f64) {
    let at = |bin: i32| 10f64.powf(f64::from(bin) / BINS_OF_TENFOLD) / 1e9;
    (at(bin), at(bin + 1))
}

impl EndOfTrial {
    fn of(side: &SideSample, sends: bool, sample: &Sample) -> Self {
        let machine = &side.cpu.machine;
        let cpus = machine.value().into_iter().flatten();
        let mut end = Self {
            cpus: cpus
                .filter_map(|cpu| Some((cpu.cpu, shares(cpu)?)))
                .collect(),
            why_no_cpus: machine.gap().map_or_else(
                || {
                    "the trials are too short for what the kernel counts in ticks of up to 10 ms"
                        .to_owned()
                },
                ToString::to_string,
            ),
            course: Course::of(&side.cpu.series),
            ..Self::default()
        };
        for thread in &side.threads {
            let cpus = thread.seen_on.iter().copied().chain(thread.pinned_to);
            match thread.role {
                Role::Sender => end.senders.extend(cpus),
                Role::Receiver => end.receivers.extend(cpus),
            }
        }
        // If no thread's path was reported, its last CPU is used.
        if side.threads.is_empty() {
            let cpus = side.flows.iter().filter_map(FlowRecord::cpu);
            if sends {
                end.senders.extend(cpus);
            } else {
                end.receivers.extend(cpus);
            }
        }
        end.packets = side
            .flows
            .iter()
            .filter_map(|flow| flow.incoming_cpu.get())
            .collect();
        if let Some(watch) = side.counters.value() {
            // One kernel's counters are those of both ends.
            if end.packets.is_empty() || !sample.shared_kernel {
                let taken: Vec<(CpuId, u64)> = (watch.below("cpu/"))
                    .filter_map(|(rest, grown, _)| {
                        let cpu = rest.strip_suffix("/softnet/processed")?;
                        Some((CpuId(cpu.parse().ok()?), grown))
                    })
                    .collect();
                let all: f64 = taken.iter().map(|(_, grown)| real(*grown)).sum();
                let most = taken
                    .iter()
                    .filter(|(_, grown)| real(*grown) > all * SHARE_OF_PACKETS);
                end.packets.extend(most.map(|(cpu, _)| *cpu));
            }
            for (rest, grown, _) in watch.below("irq/") {
                let Some((irq, cpu)) = rest.split_once("/cpu/") else {
                    continue;
                };
                if let (Ok(irq), Ok(cpu), true) = (irq.parse(), cpu.parse(), grown > 0) {
                    end.interrupts.insert((irq, CpuId(cpu)), grown);
                }
            }
        }
        end
    }
}

/// The share of a CPU's time by kind; none if little more than a tick was counted.
pub(super) fn shares(cpu: &CpuTimes) -> Option<[f64; KINDS.len()]> {
    let kinds = [
        cpu.user_ns,
        cpu.system_ns,
        cpu.softirq_ns,
        cpu.irq_ns,
        cpu.steal_ns,
    ];
    let kinds = kinds.map(Nanoseconds::as_secs_f64);
    let all = kinds.iter().sum::<f64>() + cpu.idle_ns.as_secs_f64();
    (all >= COUNTED_MIN_S).then(|| kinds.map(|time| time / all))
}

/// CPUs as a set.
pub(super) fn set<'c>(cpus: impl IntoIterator<Item = &'c CpuId>) -> CpuSet {
    cpus.into_iter().copied().collect()
}

/// A rate as drawn, with its unit.
pub(super) fn moved_unit(moved: RateKind) -> (f64, &'static str) {
    match moved {
        RateKind::Bits => (1e9, "rate, Gb/s"),
        RateKind::Operations => (1.0, "operations a second"),
    }
}

impl Grid {
    fn of(sample: &Sample) -> Option<Self> {
        let Workload::Diffusion(diffusion) = &sample.spec.workload else {
            return None;
        };
        let grid = |side: &SideSample| {
            let grid = side.flows.iter().find_map(|flow| flow.grid.as_ref())?;
            Some((grid.repetitions, grid.checksum))
        };
        let (here, there) = (grid(&sample.local)?, grid(&sample.remote)?);
        Some(Self {
            diffusion: diffusion.clone(),
            repetitions: here.0,
            checksum: here.1,
            same: here == there,
        })
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::Known;
    use linerate_model::latency::Histogram;
    use linerate_model::sample::Operations;

    use super::*;

    #[test]
    fn a_trial_is_kept_as_what_its_pictures_show() {
        let mut sample = build::sample().flows(2).gbit(10).cpus(1, 3).build();
        let second = Nanoseconds::new(1_000_000_000);
        let cpu = CpuTimes {
            cpu: CpuId(3),
            user_ns: second,
            system_ns: second,
            irq_ns: Nanoseconds::new(0),
            softirq_ns: second,
            steal_ns: Nanoseconds::new(0),
            idle_ns: second,
        };
        sample.remote.cpu.machine = Known::Value(vec![cpu]);
        let trial = Trial::of(0, &sample, None);
        assert_eq!(trial.moved, RateKind::Bits);
        assert!(trial.series.len() > 1 && trial.series.len() <= POINTS_MAX);
        assert!(
            trial
                .series
                .iter()
                .all(|(_, rate)| (rate / 1e10 - 1.0).abs() < 1e-6)
        );
        let shares = trial.ends[1].cpus[&CpuId(3)].map(|share| format!("{share:.2}"));
        assert_eq!(shares, ["0.25", "0.25", "0.25", "0.00", "0.00"]);
        assert!(trial.times.is_none() && trial.grid.is_none());
    }

    #[test]
    fn quantiles_are_those_of_the_histogram() {
        let mut latency = Histogram::default();
        for number in 1..2_000_u64 {
            latency.record(Nanoseconds::new(number * number * 31));
        }
        let mut sample = build::sample().build();
        sample.local.operations = Some(Operations {
            latency: latency.clone(),
            ..Operations::default()
        });
        let times = Times::of(&sample).expect("there are operations");
        for (quantile, of) in times.quantiles.iter().zip(QUANTILES) {
            let told = latency.quantile(of.0).expect("there are operations");
            assert!((quantile - told.as_secs_f64()).abs() < 1e-12, "{of:?}");
        }
        assert_eq!(times.quantiles.len(), QUANTILES.len());
        assert_eq!(times.bins.values().sum::<u64>(), 1_999);
    }

    #[test]
    fn a_time_lies_within_the_bounds_of_its_bin() {
        for ns in [1, 999, 1_000, 64_321, 1_000_000_000, u64::MAX] {
            let (from, to) = bin_s(bin_of(ns));
            let time = real(ns) / 1e9;
            assert!(from <= time * 1.000_001 && time < to * 1.000_001, "{ns}");
        }
    }

    #[test]
    fn a_trial_that_was_made_again_takes_the_place_of_the_first() {
        let cell = |samples| Record::Cell {
            block: 0,
            levels: vec![1],
            samples,
            why: None,
        };
        let slow = build::sample().gbit(1).build();
        let fast = build::sample().gbit(2).build();
        let records = [cell(vec![slow]), cell(vec![fast])];
        let seen = LabData::of(&records);
        let trials: Vec<&Trial> = seen.trials().collect();
        assert_eq!(trials.len(), 1);
        assert!((trials[0].series[0].1 - 2e9).abs() < 1e6);
    }
}
