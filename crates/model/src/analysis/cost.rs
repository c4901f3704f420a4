//! CPU time of each end by kind, in total and per gigabyte.

use serde::{Deserialize, Serialize};

use super::{OneWay, ways};
use crate::known::Known;
use crate::sample::{CpuTimes, Role, Sample, SideSample};
use crate::units::Nanoseconds;

/// CPU time of one end. The keys are those of `measure --format json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideCost {
    /// User seconds of linerate's data threads.
    pub user_s: f64,
    /// System seconds of linerate's data threads.
    pub system_s: f64,
    /// Seconds in softirqs, machine-wide: of both ends if they share a kernel.
    pub softirq_s: Known<f64>,
    /// Seconds in hard interrupts, machine-wide.
    pub irq_s: Known<f64>,
    /// Steal time in seconds, machine-wide.
    pub steal_s: Known<f64>,
    /// User and system seconds of the data threads per gigabyte (10^9 bytes) received in the trial.
    pub s_per_gb: Option<f64>,
    /// All busy seconds of the machine's CPUs per gigabyte: includes the kernel's work on other CPUs and the work of
    /// other processes.
    pub machine_s_per_gb: Known<Option<f64>>,
}

/// CPU time of the host that linerate was started on.
pub fn cost_of_local(sample: &Sample) -> SideCost {
    cost(sample, &sample.local)
}

/// CPU time of the peer.
pub fn cost_of_remote(sample: &Sample) -> SideCost {
    cost(sample, &sample.remote)
}

/// User and system seconds of the data threads of both ends per gigabyte received.
pub fn s_per_gb(sample: &Sample) -> Option<f64> {
    Some(cost_of_local(sample).s_per_gb? + cost_of_remote(sample).s_per_gb?)
}

/// User and system seconds of the data threads with `role`, at either end, per gigabyte received. Unknown if nothing
/// arrived or an end reported no threads.
pub fn s_per_gb_of_role(sample: &Sample, role: Role) -> Option<f64> {
    let gigabytes = gigabytes_received(sample);
    let mut threads = [&sample.local, &sample.remote]
        .into_iter()
        .flat_map(|side| &side.threads)
        .filter(|thread| thread.role == role)
        .peekable();
    threads.peek()?;
    let seconds: f64 = threads
        .map(|thread| thread.user_ns.as_secs_f64() + thread.system_ns.as_secs_f64())
        .sum();
    (gigabytes > 0.0).then(|| seconds / gigabytes)
}

fn cost(sample: &Sample, side: &SideSample) -> SideCost {
    let user_s = side.cpu.threads_user_ns.as_secs_f64();
    let system_s = side.cpu.threads_system_ns.as_secs_f64();
    let gigabytes = gigabytes_received(sample);
    let per_gb = |seconds: f64| (gigabytes > 0.0).then(|| seconds / gigabytes);
    let machine = |kind: fn(&CpuTimes) -> Nanoseconds| {
        side.cpu
            .machine
            .clone()
            .map(|cpus| cpus.iter().map(|cpu| kind(cpu).as_secs_f64()).sum::<f64>())
    };
    SideCost {
        user_s,
        system_s,
        softirq_s: machine(|cpu| cpu.softirq_ns),
        irq_s: machine(|cpu| cpu.irq_ns),
        steal_s: machine(|cpu| cpu.steal_ns),
        s_per_gb: per_gb(user_s + system_s),
        machine_s_per_gb: machine(CpuTimes::busy).map(per_gb),
    }
}

/// Gigabytes received by both ends.
#[expect(clippy::cast_precision_loss, reason = "a petabyte is below 2^53 bytes")]
pub fn gigabytes_received(sample: &Sample) -> f64 {
    let bytes = ways(sample)
        .iter()
        .flat_map(OneWay::counted)
        .fold(0, |sum: u64, flow| {
            sum.saturating_add(flow.total().as_u64())
        });
    bytes as f64 / 1e9
}

impl CpuTimes {
    /// Busy time of this CPU: user, system, hard interrupts and softirqs.
    pub fn busy(&self) -> Nanoseconds {
        let all = [self.user_ns, self.system_ns, self.irq_ns, self.softirq_ns];
        Nanoseconds::new(
            all.iter()
                .fold(0, |sum, ns| sum.saturating_add(ns.as_u64())),
        )
    }

    /// Total time: busy, steal and idle.
    pub fn total(&self) -> Nanoseconds {
        let all = [self.busy(), self.steal_ns, self.idle_ns];
        Nanoseconds::new(
            all.iter()
                .fold(0, |sum, ns| sum.saturating_add(ns.as_u64())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn seconds_per_gigabyte_are_those_of_the_data_threads() {
        // 8 Gb/s for 2 s is 2 GB; a thread that was busy 50 % of 2 s spent 1 s.
        let sample = build::sample().gbit(8).cpu_share(0.5, 1.0).build();
        let near = |value: Option<f64>, wanted: f64| {
            value.is_some_and(|value| (value - wanted).abs() < 1e-6)
        };
        assert!(near(cost_of_local(&sample).s_per_gb, 0.5));
        assert!(near(cost_of_remote(&sample).s_per_gb, 1.0));
    }

    #[test]
    fn machine_time_that_was_not_read_is_a_gap_and_not_zero() {
        let mut sample = build::sample().build();
        sample.local.cpu.machine = Known::not_asked("/proc/stat");
        let cost = cost_of_local(&sample);
        assert!(cost.softirq_s.gap().is_some() && cost.machine_s_per_gb.gap().is_some());
    }

    #[test]
    fn a_trial_that_moved_nothing_has_no_cost_per_byte() {
        let sample = build::sample().gbit(0).build();
        assert_eq!(cost_of_local(&sample).s_per_gb, None);
    }
}
