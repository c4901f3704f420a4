//! Operations of a trial: which end requested, how many completed per second, and what they moved.

use linerate_model::sample::{Operations, Sample, SideSample};
use linerate_model::units::BitRate;
use linerate_model::workload::Workload;
use linerate_stats::summary::{mean, standard_deviation};
use serde::Serialize;

use super::{diffusion, rate_of};

/// The figure that a trial is about: bit/s of bulk, operations a second of the others.
pub fn result_of(sample: &Sample) -> Option<f64> {
    if sample.spec.workload.is_bulk() {
        rate_of(sample).map(BitRate::as_f64)
    } else {
        ops_per_s(sample)
    }
}

/// The ends that ask: one, or both at once.
pub fn askers(sample: &Sample) -> impl Iterator<Item = (&SideSample, &Operations)> {
    [&sample.local, &sample.remote]
        .into_iter()
        .filter_map(|side| Some((side, side.operations.as_ref()?)))
}

/// Operations a second of all ends that ask.
pub fn ops_per_s(sample: &Sample) -> Option<f64> {
    let rates: Vec<f64> = askers(sample)
        .filter(|(side, _)| side.elapsed_ns.as_u64() > 0)
        .map(|(side, operations)| {
            real(operations.completed) / side.began_for(&sample.spec).as_secs_f64()
        })
        .collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// The operations per second of single threads, over the intervals between readings: what wrk calls `Req/Sec`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadRates {
    /// The mean over threads and intervals.
    pub mean: f64,
    /// The standard deviation, of a sample.
    pub stddev: f64,
    /// The highest.
    pub max: f64,
    /// The share within one standard deviation of the mean.
    pub within_stddev: f64,
}

/// None of a trial without two readings, or whose threads were too many to be recorded one by one.
pub fn thread_rates(sample: &Sample) -> Option<ThreadRates> {
    let mut rates = Vec::new();
    for (_, operations) in askers(sample) {
        for counts in &operations.steps_of_threads {
            let ends = operations.steps.iter().zip(counts);
            let mut before = (0.0, 0);
            for (step, &count) in ends {
                let at = step.at_ns.as_secs_f64();
                if at > before.0 {
                    rates.push(real(count.saturating_sub(before.1)) / (at - before.0));
                }
                before = (at, count);
            }
        }
    }
    let (mean, stddev) = (mean(&rates).ok()?, standard_deviation(&rates).ok()?);
    let within = rates.iter().filter(|rate| (**rate - mean).abs() <= stddev);
    Some(ThreadRates {
        mean,
        stddev,
        max: rates.iter().copied().fold(0.0, f64::max),
        within_stddev: real(within.count() as u64) / real(rates.len() as u64),
    })
}

/// `http`: the bytes a second that the clients received, heads included.
pub fn received_per_s(sample: &Sample) -> Option<f64> {
    if !matches!(sample.spec.workload, Workload::Http(_)) {
        return None;
    }
    let rates = askers(sample)
        .filter(|(side, _)| side.elapsed_ns.as_u64() > 0)
        .map(|(side, operations)| {
            real(operations.received_bytes.as_u64()) / side.began_for(&sample.spec).as_secs_f64()
        });
    rates.reduce(|sum, rate| sum + rate)
}

/// Both directions of an exchange, over its time.
pub fn exchanged_rate(sample: &Sample) -> Option<BitRate> {
    if let Some(found) = diffusion::figures(sample) {
        return found.rate();
    }
    let each = |workload: &Workload| match workload {
        Workload::Rr(rr) => Some(rr.request_bytes.as_u64() + rr.response_bytes.as_u64()),
        Workload::Transfer(transfer) => Some(transfer.bytes.as_u64().saturating_mul(2)),
        Workload::Block(block) => Some(block.block_bytes.as_u64()),
        _ => None,
    };
    BitRate::from_f64(ops_per_s(sample)? * real(each(&sample.spec.workload)?) * 8.0)
}

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts of a trial fit in 2^53")]
pub fn real(count: u64) -> f64 {
    count as f64
}
