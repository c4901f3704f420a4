//! The figures of one trial: its rate once it settled, whether it can be trusted, operations and times.

pub mod diffusion;
pub mod figure;
pub mod operations;

use linerate_model::analysis::{rate_after, rate_series};
use linerate_model::sample::{Flag, Sample};
use linerate_model::units::BitRate;
use linerate_stats::summary::{median, median_interval};
use linerate_stats::warmup;

/// The level of every interval.
pub const LEVEL: f64 = 0.95;
/// The flags for which a trial is repeated, because it did not measure what it should.
pub(crate) const NOT_TO_BE_TRUSTED: [(Flag, &str); 3] = [
    (Flag::CutShort, "truncated"),
    (Flag::CountsDisagree, "byte counts of the ends differ"),
    (Flag::Steal, "steal"),
];

/// Whether a trial did not measure what it should: its flags report it, or it stalled.
pub fn is_doubtful(sample: &Sample) -> bool {
    stalled(sample) || is_disturbed(sample)
}

/// Whether something outside disturbed a trial, according to its flags. A stall is a result, which a repetition would
/// hide.
pub fn is_disturbed(sample: &Sample) -> bool {
    let is_flagged = |(flag, _): &(Flag, &str)| sample.flags.contains(flag);
    !stalled(sample) && NOT_TO_BE_TRUSTED.iter().any(is_flagged)
}

/// Whether nothing was moved once the trial had settled.
pub(crate) fn stalled(sample: &Sample) -> bool {
    rate_of(sample).is_none_or(|rate| rate.as_bit_per_s() == 0)
}

fn warm_up(sample: &Sample) -> warmup::Warmup {
    let total = rate_series(sample).total;
    // To the nearest reading.
    let half = sample.spec.interval_ns.as_u64() / 2;
    let omitted = sample.spec.omit_ns.map_or(0, |omit| {
        total.partition_point(|point| point.at_ns.as_u64().saturating_sub(half) <= omit.as_u64())
    });
    let rates: Vec<f64> = total
        .iter()
        .skip(omitted)
        .map(|point| point.bit_per_s.as_f64())
        .collect();
    let warmup = warmup::cut(&rates);
    warmup::Warmup {
        first_kept: omitted + warmup.first_kept,
        ..warmup
    }
}

/// How many leading intervals of a trial are warm-up. Over several sizes the rate is not constant.
pub fn first_kept(sample: &Sample) -> usize {
    if sample.spec.workload.is_sweep() {
        return 0;
    }
    warm_up(sample).first_kept
}

/// The flag of a trial whose rate had not settled, or for which too little data exists to decide.
pub fn settling_flag(sample: &Sample) -> Option<Flag> {
    (!warm_up(sample).settled).then_some(Flag::NotSettled)
}

/// The rate of a trial after its warm-up, as the receivers counted it.
pub fn rate_of(sample: &Sample) -> Option<BitRate> {
    rate_after(sample, first_kept(sample))
}

/// A line of text with the rates of some trials.
pub fn rates_in_words(rates: &[f64]) -> String {
    let Ok(middle) = median(rates) else {
        return "no rate".to_owned();
    };
    let word = |rate| BitRate::from_f64(rate).map_or_else(|| "?".to_owned(), |r| r.to_string());
    match median_interval(rates, LEVEL) {
        Ok(interval) => format!(
            "{} [{}, {}], {} trials",
            word(middle),
            word(interval.low),
            word(interval.high),
            rates.len()
        ),
        Err(_) => format!("{} ({} trials)", word(middle), rates.len()),
    }
}
