//! What the trials of one round cost their hosts: the figures by which a shared bound is named, without the records.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::analysis::{Figures, ways};
use linerate_model::ids::CpuId;
use linerate_model::limit::dropped;
use linerate_model::plan::End;
use linerate_model::sample::{CpuTimes, FlowRecord, Sample, SideSample};
use linerate_model::units::Ratio;

/// The load of trials that ran at the same time, one for each NIC.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Load {
    /// This end's CPUs.
    pub local: CpuLoad,
    /// The peer's.
    pub remote: CpuLoad,
    /// Whether both ends ran on one kernel: then their CPUs are the same.
    pub shared_kernel: bool,
    /// The largest share of the sent bytes that one of the trials lost; none if a flow did not report it.
    pub lost: Option<f64>,
    /// The packets that the hosts dropped; none if an end's counters were not read.
    pub dropped: Option<u64>,
}

/// The CPUs of one end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuLoad {
    /// The busy share of all of them; none if not known.
    pub busy: Option<f64>,
    /// The share that programs other than the trials had, without interrupts; none if not known.
    pub others: Option<f64>,
    /// Each CPU that serves a flow: its busy share, and the NICs whose flows it serves.
    pub serving: BTreeMap<CpuId, (f64, BTreeSet<usize>)>,
}

impl Load {
    /// The load of these trials, in the order of the NICs.
    pub fn of(samples: &[Sample]) -> Self {
        let lost = |sample: &Sample| {
            let all = ways(sample).into_iter();
            let all = all.map(|way| Some(Figures::of(&way, &sample.spec).lost?.as_f64()));
            greatest(all)
        };
        let dropped = samples.iter().map(dropped);
        Self {
            local: CpuLoad::of(samples, End::Local),
            remote: CpuLoad::of(samples, End::Remote),
            shared_kernel: samples.iter().any(|sample| sample.shared_kernel),
            lost: greatest(samples.iter().map(lost)),
            dropped: dropped.sum::<Option<u64>>().filter(|_| !samples.is_empty()),
        }
    }

    /// The CPUs of an end.
    pub fn cpus(&self, end: End) -> &CpuLoad {
        match end {
            End::Local => &self.local,
            End::Remote => &self.remote,
        }
    }
}

/// The greatest of values that are all known.
fn greatest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Option<Vec<f64>> = values.collect();
    all?.into_iter().reduce(f64::max)
}

impl CpuLoad {
    fn of(samples: &[Sample], end: End) -> Self {
        let sides = samples.iter().map(|sample| match end {
            End::Local => &sample.local,
            End::Remote => &sample.remote,
        });
        let sides: Vec<&SideSample> = sides.collect();
        // Each trial has read the same CPUs.
        let machine = sides.iter().find_map(|side| side.cpu.machine.value());
        let mut serving: BTreeMap<CpuId, (f64, BTreeSet<usize>)> = BTreeMap::new();
        for (nic, side) in sides.iter().enumerate() {
            for cpu in side.flows.iter().flat_map(serving_cpus) {
                let times = machine.into_iter().flatten().filter(|one| one.cpu == cpu);
                if let Some(busy) = busy_of(times) {
                    let entry = serving.entry(cpu).or_insert((busy, BTreeSet::new()));
                    entry.1.insert(nic);
                }
            }
        }
        Self {
            busy: machine.and_then(|all| busy_of(all.iter())),
            others: machine.and_then(|all| others_of(all, own_s(samples, end))),
            serving,
        }
    }
}

/// The CPU seconds of the trials' own threads on the machine of an end.
fn own_s(samples: &[Sample], end: End) -> f64 {
    let of = |side: &SideSample| {
        side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64()
    };
    let all = samples.iter().map(|sample| match end {
        _ if sample.shared_kernel => of(&sample.local) + of(&sample.remote),
        End::Local => of(&sample.local),
        End::Remote => of(&sample.remote),
    });
    all.sum()
}

fn others_of(machine: &[CpuTimes], own: f64) -> Option<f64> {
    let programs: f64 = machine
        .iter()
        .map(|times| times.user_ns.as_secs_f64() + times.system_ns.as_secs_f64())
        .sum();
    let all: f64 = machine
        .iter()
        .map(|times| times.total().as_secs_f64())
        .sum();
    (all > 0.0).then(|| (programs - own).max(0.0) / all)
}

/// The CPUs that a flow cannot leave: the one that received its packets, and the one that its thread is pinned to.
fn serving_cpus(flow: &FlowRecord) -> impl Iterator<Item = CpuId> {
    [flow.incoming_cpu.get(), flow.pinned_to]
        .into_iter()
        .flatten()
}

fn busy_of<'a>(times: impl Iterator<Item = &'a CpuTimes>) -> Option<f64> {
    let (busy, all) = times.fold((0.0, 0.0), |(busy, all), times| {
        (
            busy + times.busy().as_secs_f64(),
            all + times.total().as_secs_f64(),
        )
    });
    (all > 0.0).then(|| Ratio::new(busy / all).as_f64())
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::{Cause, Known};
    use linerate_model::units::Nanoseconds;

    use super::*;

    #[test]
    fn a_cpu_serves_the_nics_whose_packets_it_received() {
        let sample = |cpu: u32, busy: u64| {
            let mut sample = build::sample().gbit(1).build();
            for flow in &mut sample.remote.flows {
                flow.incoming_cpu = Known::Value(CpuId(cpu));
                flow.pinned_to = None;
            }
            sample.remote.cpu.machine = Known::Value(vec![
                build::cpu_times(0, 0, busy, 100 - busy),
                build::cpu_times(1, 0, 0, 100),
            ]);
            sample
        };
        let load = Load::of(&[sample(0, 98), sample(0, 98)]);
        let (busy, nics) = &load.remote.serving[&CpuId(0)];
        assert!((busy - 0.98).abs() < 1e-9, "{busy}");
        assert_eq!(nics.len(), 2);
        assert!((load.remote.busy.expect("known") - 0.49).abs() < 1e-9);
        assert_eq!(load.remote.others, Some(0.0), "softirqs are no program");
        let apart = Load::of(&[sample(0, 98), sample(1, 98)]);
        assert_eq!(apart.remote.serving[&CpuId(0)].1.len(), 1);
    }

    #[test]
    fn the_trials_own_threads_are_not_other_programs() {
        let second = |seconds: u64| Nanoseconds::from_millis(seconds * 1_000);
        let mut sample = build::sample().build();
        sample.local.cpu.machine = Known::Value(vec![build::cpu_times(0, 90, 0, 10)]);
        let all = sample.local.cpu.machine.value().expect("set")[0].total();
        sample.local.cpu.threads_user_ns = Nanoseconds::new(all.as_u64() / 10);
        sample.local.cpu.threads_system_ns = second(0);
        let others = |samples: &[Sample]| Load::of(samples).local.others.expect("known");
        assert!((others(&[sample.clone()]) - 0.8).abs() < 1e-9);
        assert!((others(&[sample.clone(), sample]) - 0.7).abs() < 1e-9);
    }

    #[test]
    fn cpus_that_were_not_read_are_unknown_not_idle() {
        let mut sample = build::sample().build();
        sample.local.cpu.machine = Known::unknown(Cause::Unreadable, "/proc/stat", "denied");
        let load = Load::of(&[sample]);
        assert_eq!(load.local.busy, None);
        assert_eq!(load.cpus(End::Local).serving.len(), 0);
    }
}
