//! Trials repeated until their confidence interval is narrow enough.

use std::time::{Duration, Instant};

use linerate_model::exit::Outcome;
use linerate_model::units::Nanoseconds;
use linerate_runtime::cli::UntilArgs;
use linerate_stats::sequential::{FEWEST, FIRST_LOOK, Look, is_look, look};
use linerate_stats::summary::median;
use serde::Serialize;

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
    /// Its 95 % interval, with correlated trials counted as fewer. Not `valid`: the smallest and the largest result.
    low: f64,
    high: f64,
    /// Half the interval's width, relative to the median.
    reached: f64,
    /// The requested precision; none if only a number of trials was requested.
    asked: Option<f64>,
    /// Whether there are enough trials for an interval that allows for their correlation: at least 20, and more the
    /// more correlated they are.
    valid: bool,
    /// The correlation of successive trials, corrected for its bias; null with fewer than 20 trials.
    correlation: Option<f64>,
    /// The number of independent trials with the same information; null with fewer than 20 trials.
    effective: Option<f64>,
    /// How many times the interval was computed to decide whether to stop.
    looks: u32,
    /// The change from the first to the last trial by a linear trend, relative to the median; null if not significant
    /// (1 %), or with fewer than 20 trials.
    drift: Option<f64>,
    /// Whether Ctrl-C ended the repeating. The trial that was running is none of `trials`.
    pub(super) interrupted: bool,
}

impl Repeats {
    /// Whether there is an interval, and it is as narrow as was requested.
    pub(super) fn is_certain(&self) -> bool {
        self.valid && self.asked.is_none_or(|asked| self.reached <= asked)
    }

    /// Whether the result is as precise as was requested.
    pub(super) fn is_as_asked(&self) -> bool {
        self.asked.is_none() || self.is_certain()
    }

    /// How many trials there were, in words.
    pub(super) fn counted(&self) -> String {
        let plural = if self.trials == 1 { "" } else { "s" };
        format!("{} trial{plural}", self.trials)
    }

    pub(super) fn in_words(&self, figure: impl Fn(f64) -> String) -> String {
        let worth = match (self.effective, self.correlation) {
            (Some(effective), Some(correlation)) => {
                format!(" (effective {effective:.0}, correlation {correlation:.2})")
            }
            _ => String::new(),
        };
        let missed = match self.asked {
            _ if self.interrupted => ": interrupted".to_owned(),
            Some(asked) if !self.is_as_asked() => {
                format!(": not within the requested {:.2} %", asked * 100.0)
            }
            _ => String::new(),
        };
        let range = match self.correlation {
            _ if self.valid => "",
            Some(_) => "; the range of all trials: too correlated for an interval",
            None => "; the range of all trials: fewer than 20 do not show their correlation",
        };
        format!(
            "{} [{}, {}], +-{:.2} % after {}{worth}{missed}{range}",
            figure(self.median),
            figure(self.low),
            figure(self.high),
            self.reached * 100.0,
            self.counted(),
        )
    }

    /// The warning if the result changed during the measurement.
    pub(super) fn drift_in_words(&self) -> Option<String> {
        self.drift.map(|drift| {
            format!(
                "{:+.2} % from the first to the last trial: the median depends on the time of measurement",
                drift * 100.0
            )
        })
    }
}

/// Runs trials until they have an interval that is narrow enough and, if a precision was requested, every requirement
/// `is_decided`; until the time is over, or it `ends_early`. Comes back with the trial whose result is nearest to the median,
/// and with what all of them gave.
pub(super) fn until_certain<T>(
    args: &UntilArgs,
    each: Nanoseconds,
    mut trial: impl FnMut(usize) -> Outcome<T>,
    result: impl Fn(&T) -> Option<f64>,
    (ends_early, is_decided): (impl Fn() -> bool, impl Fn() -> bool),
) -> Outcome<(T, Option<Repeats>)> {
    let begun = Instant::now();
    let first = trial(0)?;
    let asked = args.until_ci;
    if ends_early() || asked.is_none() && args.require.is_empty() {
        return Ok((first, None));
    }
    let mut kept: Vec<(f64, T)> = result(&first)
        .map(|value| (value, first))
        .into_iter()
        .collect();
    let mut results: Vec<f64> = kept.iter().map(|(value, _)| *value).collect();
    let mut last = None;
    let mut looks = 0;
    for number in 1..=TRIALS_MAX {
        let over = begun.elapsed() + Duration::from(each) > Duration::from(args.max_time);
        let is_last = number == TRIALS_MAX || (over && results.len() >= FEWEST);
        if is_last || is_look(FIRST_LOOK, results.len()) {
            looks += 1;
            last = judged(&results, asked, looks);
            let is_certain = last.as_ref().is_some_and(Repeats::is_certain);
            if is_last || (is_certain && (asked.is_none() || is_decided())) {
                break;
            }
        }
        let one = trial(number);
        // A part of a trial is no trial.
        if ends_early() && !results.is_empty() {
            last = Some(so_far(&results, asked, looks));
            break;
        }
        let one = one?;
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

fn judged(results: &[f64], asked: Option<f64>, looks: u32) -> Option<Repeats> {
    let look = look(results).ok()?;
    Some(Repeats::of(results, look, asked, looks))
}

/// What interrupted trials gave: of a few of them only the range.
fn so_far(results: &[f64], asked: Option<f64>, looks: u32) -> Repeats {
    let look = look(results).unwrap_or_else(|_| Look {
        median: median(results).unwrap_or_default(),
        low: results.iter().copied().fold(f64::INFINITY, f64::min),
        high: results.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        is_valid: false,
        joint: None,
        correlation: None,
        effective: None,
        drift: None,
    });
    Repeats {
        interrupted: true,
        ..Repeats::of(results, look, asked, looks)
    }
}

impl Repeats {
    /// Those of a stored measurement.
    pub(super) fn stored(results: &[f64]) -> Self {
        Self {
            interrupted: false,
            ..so_far(results, None, 1)
        }
    }

    fn of(results: &[f64], look: Look, asked: Option<f64>, looks: u32) -> Self {
        let middle = look.median.abs().max(f64::MIN_POSITIVE);
        Self {
            trials: results.len(),
            results: results.to_vec(),
            median: look.median,
            low: look.low,
            high: look.high,
            reached: (look.high - look.low) / 2.0 / middle,
            asked,
            valid: look.is_valid,
            correlation: look.correlation,
            effective: look.effective,
            looks,
            drift: look.drift.map(|drift| drift / middle),
            interrupted: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn until(asked: Option<f64>) -> UntilArgs {
        UntilArgs {
            interval: None,
            per_flow: false,
            until_ci: asked,
            require: Vec::new(),
            max_time: Nanoseconds::from_millis(60_000),
        }
    }

    fn run(asked: Option<f64>, value: impl Fn(usize) -> f64) -> (f64, Option<Repeats>) {
        let each = Nanoseconds::from_millis(1);
        until_certain(
            &until(asked),
            each,
            |n| Ok(value(n)),
            |value| Some(*value),
            (|| false, || true),
        )
        .expect("trials that succeed")
    }

    #[test]
    fn without_being_asked_there_is_one_trial() {
        assert_eq!(run(None, |_| 7.0), (7.0, None));
    }

    #[test]
    fn equal_results_are_certain_at_the_first_look() {
        let (value, repeats) = run(Some(0.01), |_| 100.0);
        let repeats = repeats.expect("repeated");
        assert_eq!(
            (value, repeats.trials, repeats.is_certain()),
            (100.0, FIRST_LOOK, true)
        );
    }

    #[test]
    fn noisy_results_take_more_trials_and_the_middle_one_is_shown() {
        let noisy = |n: usize| 100.0 + [0.0, 3.0, -3.0, 1.0, -1.0][n % 5];
        let (value, repeats) = run(Some(0.005), noisy);
        let repeats = repeats.expect("repeated");
        assert!(
            repeats.trials > FIRST_LOOK && repeats.is_certain(),
            "{repeats:?}"
        );
        assert!((value - 100.0).abs() <= 1.0, "{value}");
    }

    #[test]
    fn with_a_precision_trials_go_on_until_every_requirement_is_decided() {
        let made = Cell::new(0);
        let trials = |asked| {
            let trial = |number| {
                made.set(number + 1);
                Ok(100.0)
            };
            let is_decided = || made.get() >= 30;
            let each = Nanoseconds::from_millis(1);
            let (_, repeats) = until_certain(
                &UntilArgs {
                    require: vec!["rate>=1Gb/s".parse().expect("a requirement")],
                    ..until(asked)
                },
                each,
                trial,
                |value| Some(*value),
                (|| false, is_decided),
            )
            .expect("trials that succeed");
            repeats.map(|repeats| repeats.trials)
        };
        assert_eq!(trials(None), Some(FIRST_LOOK));
        // The first look with at least 30.
        assert_eq!(trials(Some(0.01)), Some(36));
    }

    #[test]
    fn trials_that_end_too_early_are_a_range_without_the_requested_precision() {
        let none = UntilArgs {
            max_time: Nanoseconds::new(0),
            ..until(Some(0.5))
        };
        let each = Nanoseconds::from_millis(1);
        let (_, repeats) = until_certain(
            &none,
            each,
            |_| Ok(100.0),
            |value| Some(*value),
            (|| false, || true),
        )
        .expect("trials that succeed");
        let repeats = repeats.expect("repeated");
        assert_eq!((repeats.trials, repeats.looks), (FEWEST, 1));
        assert!(!repeats.valid && !repeats.is_certain(), "{repeats:?}");
        let words = repeats.in_words(|value| value.to_string());
        assert!(words.contains("fewer than 20"), "{words}");
    }

    #[test]
    fn an_interrupt_keeps_the_whole_trials_before_it_and_of_a_first_one_its_part() {
        let each = Nanoseconds::from_millis(1);
        let begun = Cell::new(0);
        let run = |interrupted_in: usize| {
            let trial = |number: usize| {
                begun.set(number);
                Ok([90.0, 110.0, 100.0, 1.0][number])
            };
            until_certain(
                &until(Some(0.01)),
                each,
                trial,
                |value| Some(*value),
                (|| begun.get() == interrupted_in, || true),
            )
            .expect("trials that succeed")
        };
        let (value, repeats) = run(3);
        let repeats = repeats.expect("repeated");
        assert_eq!((value, repeats.trials, repeats.median), (100.0, 3, 100.0));
        assert!(repeats.interrupted && !repeats.is_certain(), "{repeats:?}");
        let words = repeats.in_words(|value| value.to_string());
        assert!(words.contains("after 3 trials: interrupted"), "{words}");
        assert_eq!(run(0), (90.0, None));
    }

    #[test]
    fn a_requirement_alone_takes_as_many_trials_as_an_interval_of_correlated_ones_needs() {
        let required = UntilArgs {
            require: vec!["rate>=1Gb/s".parse().expect("a requirement")],
            ..until(None)
        };
        let trials = |value: fn(usize) -> f64| {
            let each = Nanoseconds::from_millis(1);
            let (_, repeats) = until_certain(
                &required,
                each,
                |n| Ok(value(n)),
                |value| Some(*value),
                (|| false, || true),
            )
            .expect("trials that succeed");
            repeats.map(|repeats| (repeats.trials, repeats.valid))
        };
        assert_eq!(trials(|_| 100.0), Some((FIRST_LOOK, true)));
        // Ten trials at one speed, ten at the other: 20 of them show nothing yet.
        let blocks = |n| if n / 10 % 2 == 0 { 100.0 } else { 90.0 };
        let (longer, valid) = trials(blocks).expect("repeated");
        assert!(longer > FIRST_LOOK && valid, "{longer} trials");
    }

    #[test]
    fn a_result_that_rises_is_reported_as_drift() {
        let rising = |n: usize| 100.0 + f64::from(u32::try_from(n).expect("few trials"));
        let (_, repeats) = run(Some(0.2), rising);
        let words = repeats.and_then(|repeats| repeats.drift_in_words());
        assert!(words.is_some_and(|words| words.starts_with('+')));
    }
}
