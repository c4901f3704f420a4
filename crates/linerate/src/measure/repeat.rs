//! Trials repeated until their confidence interval is narrow enough.

use std::time::{Duration, Instant};

use linerate_analysis::trial::LEVEL;
use linerate_model::exit::Outcome;
use linerate_model::units::Nanoseconds;
use linerate_stats::summary::{median, median_interval};
use serde::Serialize;

use crate::cli::UntilArgs;

/// With fewer trials the median has no interval of 95 % (sign test).
const TRIALS_MIN: usize = 6;
/// More would take too long.
const TRIALS_MAX: usize = 1_000;

/// With `--until-ci` and `--require`: every trial's result, their median with its 95 % CI, and half its width relative
/// to the median. The rest of the document is the trial nearest to the median.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Repeats {
    /// How many there were.
    trials: usize,
    /// The result of each, in order: bit/s of bulk, operations a second of the others.
    results: Vec<f64>,
    /// Their median.
    median: f64,
    /// Its 95 % interval.
    low: f64,
    high: f64,
    /// Half the interval's width, relative to the median.
    reached: f64,
    /// The requested precision; none if only a number of trials was requested.
    asked: Option<f64>,
}

impl Repeats {
    /// Whether the interval is as narrow as was requested.
    pub(super) fn is_certain(&self) -> bool {
        self.asked.is_none_or(|asked| self.reached <= asked)
    }

    pub(super) fn in_words(&self, figure: impl Fn(f64) -> String) -> String {
        format!(
            "{} [{}, {}], +-{:.2} % after {} trials{}",
            figure(self.median),
            figure(self.low),
            figure(self.high),
            self.reached * 100.0,
            self.trials,
            match self.asked {
                Some(asked) if !self.is_certain() => {
                    format!(": not within the requested {:.2} %", asked * 100.0)
                }
                _ => String::new(),
            }
        )
    }
}

/// Runs trials until their interval is narrow enough or the time is over. Comes back with the trial whose
/// result is nearest to the median, and with what all of them gave.
pub(super) fn until_certain<T>(
    args: &UntilArgs,
    each: Nanoseconds,
    mut trial: impl FnMut(usize) -> Outcome<T>,
    result: impl Fn(&T) -> Option<f64>,
) -> Outcome<(T, Option<Repeats>)> {
    let begun = Instant::now();
    let first = trial(0)?;
    let asked = args.until_ci;
    if asked.is_none() && args.require.is_empty() {
        return Ok((first, None));
    }
    let mut kept: Vec<(f64, T)> = result(&first)
        .map(|value| (value, first))
        .into_iter()
        .collect();
    let mut results: Vec<f64> = kept.iter().map(|(value, _)| *value).collect();
    let mut last = None;
    for number in 1..TRIALS_MAX {
        let repeats = judged(&results, asked);
        if repeats.as_ref().is_some_and(Repeats::is_certain) {
            last = repeats;
            break;
        }
        last = repeats;
        let over = begun.elapsed() + Duration::from(each) > Duration::from(args.max_time);
        if over && results.len() >= TRIALS_MIN {
            break;
        }
        let one = trial(number)?;
        if let Some(value) = result(&one) {
            results.push(value);
            kept.push((value, one));
            keep_nearest(&mut kept, &results);
        }
    }
    let middle = median(&results).unwrap_or_default();
    let nearest = kept
        .into_iter()
        .min_by(|one, other| (one.0 - middle).abs().total_cmp(&(other.0 - middle).abs()));
    match nearest {
        Some((_, nearest)) => Ok((nearest, last)),
        None => Ok((trial(TRIALS_MAX)?, None)),
    }
}

/// Holds a few records only, the nearest to the median: a record may have megabytes.
pub(super) fn keep_nearest<T>(kept: &mut Vec<(f64, T)>, results: &[f64]) {
    const KEPT: usize = 5;
    let middle = median(results).unwrap_or_default();
    kept.sort_by(|one, other| (one.0 - middle).abs().total_cmp(&(other.0 - middle).abs()));
    kept.truncate(KEPT);
}

fn judged(results: &[f64], asked: Option<f64>) -> Option<Repeats> {
    if results.len() < TRIALS_MIN {
        return None;
    }
    let middle = median(results).ok()?;
    let interval = median_interval(results, LEVEL).ok()?;
    Some(Repeats {
        trials: results.len(),
        results: results.to_vec(),
        median: middle,
        low: interval.low,
        high: interval.high,
        reached: (interval.high - interval.low) / 2.0 / middle.abs().max(f64::MIN_POSITIVE),
        asked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(asked: Option<f64>) -> UntilArgs {
        UntilArgs {
            until_ci: asked,
            require: Vec::new(),
            max_time: Nanoseconds::from_millis(60_000),
        }
    }

    fn run(asked: Option<f64>, value: impl Fn(usize) -> f64) -> (f64, Option<Repeats>) {
        let each = Nanoseconds::from_millis(1);
        until_certain(&until(asked), each, |n| Ok(value(n)), |value| Some(*value))
            .expect("trials that succeed")
    }

    #[test]
    fn without_being_asked_there_is_one_trial() {
        assert_eq!(run(None, |_| 7.0), (7.0, None));
    }

    #[test]
    fn equal_results_are_certain_after_the_fewest_trials() {
        let (value, repeats) = run(Some(0.01), |_| 100.0);
        let repeats = repeats.expect("repeated");
        assert_eq!(
            (value, repeats.trials, repeats.is_certain()),
            (100.0, TRIALS_MIN, true)
        );
    }

    #[test]
    fn noisy_results_take_more_trials_and_the_middle_one_is_shown() {
        let noisy = |n: usize| 100.0 + [0.0, 3.0, -3.0, 1.0, -1.0][n % 5];
        let (value, repeats) = run(Some(0.01), noisy);
        let repeats = repeats.expect("repeated");
        assert!(
            repeats.trials > TRIALS_MIN && repeats.is_certain(),
            "{repeats:?}"
        );
        assert!((value - 100.0).abs() <= 1.0, "{value}");
    }
}
