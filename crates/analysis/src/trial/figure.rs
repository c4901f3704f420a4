//! The figures of a trial that an experiment can analyze.

use std::collections::BTreeMap;

use linerate_model::analysis::{SideCost, cost_of_local, cost_of_remote, s_per_gb};
use linerate_model::lab::{Response, Unit};
use linerate_model::latency::Histogram;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::Workload;
use linerate_stats::summary;
use serde::{Deserialize, Serialize};

use super::operations::{askers, exchanged_rate, ops_per_s, real};
use super::rate_of;

/// What a workload is about.
pub fn own_response(sample: &Sample) -> Response {
    match &sample.spec.workload {
        workload if workload.is_bulk() => Response::Rate,
        Workload::Pingpong(_) | Workload::Rdma(_) => Response::Mean,
        _ => Response::Operations,
    }
}

/// A figure of a trial; none if it was not recorded or is empty.
pub fn figure(response: Response, sample: &Sample) -> Option<f64> {
    let figure = match response {
        Response::Rate => rate(sample)?.as_f64(),
        Response::Operations => ops_per_s(sample)?,
        Response::Cpu => s_per_gb(sample)?,
        Response::CpuLocal => cost_of_local(sample).s_per_gb?,
        Response::CpuPeer => cost_of_remote(sample).s_per_gb?,
        Response::UserLocal => part(&cost_of_local(sample), |cost| cost.user_s)?,
        Response::SystemLocal => part(&cost_of_local(sample), |cost| cost.system_s)?,
        Response::UserPeer => part(&cost_of_remote(sample), |cost| cost.user_s)?,
        Response::SystemPeer => part(&cost_of_remote(sample), |cost| cost.system_s)?,
        Response::CpuOp => us_per_op(sample, &sample.local)? + us_per_op(sample, &sample.remote)?,
        Response::CpuOpLocal => us_per_op(sample, &sample.local)?,
        Response::CpuOpPeer => us_per_op(sample, &sample.remote)?,
        Response::Mean => times(sample).mean_ns()? / 1e9,
        Response::P50 => seconds(times(sample).quantile(0.5)?),
        Response::P99 => seconds(times(sample).quantile(0.99)?),
    };
    let is_one = figure > 0.0 || (response.is_part() && figure == 0.0);
    (figure.is_finite() && is_one).then_some(figure)
}

/// The median of a response over some trials; none without any.
pub fn median_in_words(response: Response, values: &[f64]) -> Option<String> {
    let median = summary::median(values).ok()?;
    Some(in_words(response, median))
}

/// The figures of some trials: of each response one for each trial that reported it, in the order of the trials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures(BTreeMap<Response, Vec<f64>>);

impl Figures {
    /// Adds those of a trial.
    pub fn add(&mut self, sample: &Sample) {
        for response in Response::ALL {
            if let Some(value) = figure(response, sample) {
                self.push(response, value);
            }
        }
    }

    /// Adds one of a trial.
    pub fn push(&mut self, response: Response, value: f64) {
        self.0.entry(response).or_default().push(value);
    }

    /// All of a response; empty if no trial reported it.
    pub fn of(&self, response: Response) -> &[f64] {
        self.0.get(&response).map_or(&[], Vec::as_slice)
    }

    /// Whether no trial reported anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of them are figures as [`figure`] returns them. Stored ones may come from anyone.
    pub fn are_valid(&self) -> bool {
        self.0.iter().all(|(response, values)| {
            let is_one = |value: &f64| {
                let least = if response.is_part() {
                    0.0
                } else {
                    f64::MIN_POSITIVE
                };
                value.is_finite() && *value >= least
            };
            values.iter().all(is_one)
        })
    }
}

/// CPU seconds of one kind per GB. Known if the end's CPU time is: for an end that reports none, 0 of a kind is not a
/// figure; for one that reports some, it is.
fn part(cost: &SideCost, seconds: fn(&SideCost) -> f64) -> Option<f64> {
    let whole = cost.user_s + cost.system_s;
    (whole > 0.0).then(|| cost.s_per_gb.map(|all| all * (seconds(cost) / whole)))?
}

/// Which mean a figure's trials have.
pub fn kind_of_mean(response: Response) -> &'static str {
    if response.is_part() {
        "arithmetic"
    } else {
        "geometric"
    }
}

/// The mean of a figure's trials: geometric, as rates and times are; of the parts of another figure arithmetic.
pub fn mean(response: Response, values: &[f64]) -> Option<f64> {
    if response.is_part() {
        return summary::mean(values).ok();
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    summary::mean(&logs).ok().map(f64::exp)
}

/// Whether an end reports CPU time of its threads: if not, 0 is not a figure.
pub fn tells_cpu(side: &SideSample) -> bool {
    let cpu = &side.cpu;
    let used = cpu.threads_user_ns.as_u64() > 0 || cpu.threads_system_ns.as_u64() > 0;
    used || !side.threads.is_empty()
}

/// CPU microseconds of an end's threads, user and system, per completed operation, whichever end requested it.
/// For the whole trial: threads do not report which part of their time was the warm-up.
pub fn us_per_op(sample: &Sample, side: &SideSample) -> Option<f64> {
    let completed = askers(sample).map(|(_, operations)| operations.completed);
    let completed = real(completed.fold(0, u64::saturating_add));
    let used = side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64();
    (completed > 0.0 && tells_cpu(side)).then(|| used / completed * 1e6)
}

fn seconds(time: Nanoseconds) -> f64 {
    time.as_secs_f64()
}

/// For round trips, one direction; over all sizes if there are several.
pub fn rate(sample: &Sample) -> Option<BitRate> {
    if sample.spec.workload.is_bulk() {
        return rate_of(sample);
    }
    if !matches!(sample.spec.workload, Workload::Pingpong(_)) {
        return exchanged_rate(sample);
    }
    let sizes: Vec<_> = askers(sample)
        .flat_map(|(_, operations)| &operations.sizes)
        .collect();
    // Half of each round trip is one direction: the same bytes in half of the time.
    let bits: f64 = (sizes.iter())
        .map(|size| real(size.bytes.as_u64()) * real(size.repetitions) * 16.0)
        .sum();
    let time: f64 = sizes.iter().map(|size| size.elapsed_ns.as_secs_f64()).sum();
    (time > 0.0)
        .then(|| BitRate::from_f64(bits / time))
        .flatten()
}

/// How long operations took; of round trips, one direction.
pub fn times(sample: &Sample) -> Histogram {
    let mut whole = Histogram::default();
    for (_, operations) in askers(sample) {
        if operations.sizes.is_empty() {
            whole.add(&operations.latency);
        }
        for size in &operations.sizes {
            whole.add(&size.one_way);
        }
    }
    whole
}

/// A figure for a person.
pub fn in_words(response: Response, value: f64) -> String {
    match response.unit() {
        Unit::BitPerS => {
            BitRate::from_f64(value).map_or_else(|| "-".to_owned(), |rate| rate.to_string())
        }
        Unit::PerS => format!("{value:.0}/s"),
        Unit::SPerGb => s_per_gb_in_words(value),
        Unit::UsPerOp => format!("{value:.2} us/op"),
        Unit::S => match value {
            small if small < 1e-3 => format!("{:.2} us", small * 1e6),
            middle if middle < 1.0 => format!("{:.2} ms", middle * 1e3),
            large => format!("{large:.2} s"),
        },
    }
}

/// Seconds for each GB for a person, also below 0.
pub fn s_per_gb_in_words(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s/GB".to_owned(),
        small if small < 0.000_995 => format!("{value:.6} s/GB"),
        middle if middle < 0.0995 => format!("{value:.4} s/GB"),
        _ => format!("{value:.3} s/GB"),
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::sample::Operations;

    use super::*;

    #[test]
    fn the_cpu_time_of_an_operation_is_that_of_all_threads_over_what_was_completed() {
        let mut sample = build::sample().build();
        for response in [Response::CpuOp, Response::CpuOpLocal] {
            assert_eq!(
                figure(response, &sample),
                None,
                "a stream has no operations"
            );
        }
        sample.local.operations = Some(Operations {
            completed: 1_000,
            ..Operations::default()
        });
        let used = |user, system, side: &mut SideSample| {
            side.cpu.threads_user_ns = Nanoseconds::from_millis(user);
            side.cpu.threads_system_ns = Nanoseconds::from_millis(system);
        };
        used(2, 6, &mut sample.local);
        used(1, 3, &mut sample.remote);
        let near = |response, us: f64| {
            let told = figure(response, &sample).expect("told");
            assert!((told - us).abs() < 1e-9, "{told}");
        };
        near(Response::CpuOpLocal, 8.0);
        near(Response::CpuOpPeer, 4.0);
        near(Response::CpuOp, 12.0);
        // An end that reports no thread has no cost of 0, and neither has the sum of both.
        used(0, 0, &mut sample.remote);
        sample.remote.threads.clear();
        assert_eq!(figure(Response::CpuOpPeer, &sample), None);
        assert_eq!(figure(Response::CpuOp, &sample), None);
    }

    #[test]
    fn user_and_system_time_apart_add_up_to_the_whole_and_either_may_be_0() {
        let mut sample = build::sample().build();
        let used = |user, system, side: &mut SideSample| {
            side.cpu.threads_user_ns = Nanoseconds::from_millis(user);
            side.cpu.threads_system_ns = Nanoseconds::from_millis(system);
        };
        used(300, 100, &mut sample.local);
        used(250, 0, &mut sample.remote);
        let told = |response| figure(response, &sample).expect("told");
        let (user, system) = (told(Response::UserLocal), told(Response::SystemLocal));
        assert!((user / system - 3.0).abs() < 1e-9, "{user} {system}");
        assert!((user + system - told(Response::CpuLocal)).abs() < 1e-12);
        // Polling verbs needs no system call: 0 is a figure.
        assert_eq!(figure(Response::SystemPeer, &sample), Some(0.0));
        assert!((told(Response::UserPeer) - told(Response::CpuPeer)).abs() < 1e-12);
        // An end that reports no CPU time has no part of it either.
        used(0, 0, &mut sample.remote);
        for response in [Response::CpuPeer, Response::UserPeer, Response::SystemPeer] {
            assert_eq!(figure(response, &sample), None, "{response:?}");
        }
    }

    #[test]
    fn means_are_geometric_and_those_of_parts_arithmetic_so_that_0_is_one_of_them() {
        let of = |response, values: &[f64]| mean(response, values).expect("values");
        assert!((of(Response::Cpu, &[0.1, 0.4]) - 0.2).abs() < 1e-12);
        assert!((of(Response::UserLocal, &[0.1, 0.4]) - 0.25).abs() < 1e-12);
        assert!((of(Response::SystemLocal, &[0.0, 0.3, 0.0]) - 0.1).abs() < 1e-12);
        assert_eq!(mean(Response::SystemLocal, &[]), None);
    }

    #[test]
    fn seconds_for_each_gb_keep_three_digits() {
        for (value, words) in [
            (0.0, "0 s/GB"),
            (0.000_24, "0.000240 s/GB"),
            (0.0187, "0.0187 s/GB"),
            (-0.0187, "-0.0187 s/GB"),
            (0.6118, "0.612 s/GB"),
        ] {
            assert_eq!(s_per_gb_in_words(value), words);
        }
    }
}
