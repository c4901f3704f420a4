//! `--require`: a measurement as a test that passes, fails, or is inconclusive.

use linerate_analysis::trial::figure::{Figures, in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::Response;
use linerate_model::sample::{Flag, Sample};
use linerate_stats::sequential::look;
use linerate_stats::summary::median;
use serde::Serialize;

use crate::cli::Requirement;

/// The result of the trials for a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Kept,
    Broken,
    CannotTell,
}

/// A requirement, and the figures of all trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Judged {
    /// As it was asked.
    requirement: String,
    /// The median.
    median: Option<f64>,
    /// Its 95 % interval, with correlated trials counted as fewer. Not `valid`: the smallest and the largest.
    low: Option<f64>,
    high: Option<f64>,
    /// Whether there are enough trials for an interval: at least 20, and more the more correlated they are.
    valid: bool,
    verdict: Verdict,
    #[serde(skip)]
    response: Response,
    #[serde(skip)]
    interrupted: bool,
}

/// All requirements of a measurement, and the results of its trials so far.
#[derive(Debug)]
pub(super) struct Requirements<'a> {
    asked: &'a [Requirement],
    /// Of every whole trial.
    figures: Figures,
}

impl<'a> Requirements<'a> {
    pub(super) fn new(asked: &'a [Requirement]) -> Self {
        Self {
            asked,
            figures: Figures::default(),
        }
    }

    /// Takes in a trial; a part of one does not count.
    pub(super) fn see(&mut self, sample: &Sample) {
        if !sample.flags.contains(&Flag::CutShort) {
            self.figures.add(sample);
        }
    }

    /// The figures of all whole trials.
    pub(super) fn into_figures(self) -> Figures {
        self.figures
    }

    /// The results over all trials. Those that were `interrupted` decide nothing: there would have been more.
    pub(super) fn judge(&self, interrupted: bool) -> Vec<Judged> {
        let each = self.asked.iter();
        let judged = each.map(|one| judge(one, self.figures.of(one.response)));
        let decided = judged.map(|one| Judged {
            verdict: if interrupted {
                Verdict::CannotTell
            } else {
                one.verdict
            },
            interrupted,
            ..one
        });
        decided.collect()
    }
}

fn judge(requirement: &Requirement, figures: &[f64]) -> Judged {
    let interval = look(figures).ok();
    // The range of a few trials that are like each other may lie on the wrong side of the bound.
    let valid = interval.filter(|interval| interval.is_valid);
    let verdict = valid.map_or(Verdict::CannotTell, |interval| {
        let (worst, best) = if requirement.is_least {
            (
                interval.low - requirement.bound,
                interval.high - requirement.bound,
            )
        } else {
            (
                requirement.bound - interval.high,
                requirement.bound - interval.low,
            )
        };
        if worst >= 0.0 {
            Verdict::Kept
        } else if best < 0.0 {
            Verdict::Broken
        } else {
            Verdict::CannotTell
        }
    });
    Judged {
        requirement: requirement.text.clone(),
        median: median(figures).ok(),
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        valid: valid.is_some(),
        verdict,
        response: requirement.response,
        interrupted: false,
    }
}

impl Judged {
    /// A line for a person.
    pub(super) fn in_words(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Kept => "kept",
            Verdict::Broken => "BROKEN",
            Verdict::CannotTell if self.interrupted => "inconclusive, interrupted",
            Verdict::CannotTell => "inconclusive",
        };
        let words = |value| in_words(self.response, value);
        match (self.median, self.low, self.high) {
            (Some(median), Some(low), Some(high)) => format!(
                "{}: {verdict}, {} [{}, {}]{}",
                self.requirement,
                words(median),
                words(low),
                words(high),
                if self.valid {
                    ""
                } else {
                    "; the range of all trials: too few for an interval"
                },
            ),
            _ if self.interrupted => format!("{}: {verdict}", self.requirement),
            _ => format!(
                "{}: {verdict}, the trials do not report it",
                self.requirement
            ),
        }
    }
}

/// The exit code for all of them: 11 if one is violated, 12 if one is inconclusive.
pub(super) fn outcome(judged: &[Judged]) -> Outcome<()> {
    let stop = |verdict, code, what: &str| {
        let names: Vec<&str> = (judged.iter())
            .filter(|one| one.verdict == verdict)
            .map(|one| one.requirement.as_str())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Stop::new(code, format!("{what}: {}", names.join(", "))))
    };
    stop(Verdict::Broken, Code::Regression, "violated")?;
    let hint = if judged.iter().all(|one| one.valid) {
        "use longer trials (`--time`) or more of them (`--until-ci`)"
    } else {
        "at least 20 trials are needed, more if they are correlated: use shorter ones (`--time`), \
         raise `--max-time`, or use `--until-ci`"
    };
    stop(Verdict::CannotTell, Code::Inconclusive, "inconclusive").map_err(|stop| stop.hint(hint))
}

#[cfg(test)]
mod tests {
    use linerate_model::units::Nanoseconds;
    use linerate_stats::{Random, Seed};

    use super::super::repeat::until_certain;
    use super::*;
    use crate::cli::UntilArgs;

    fn verdict(text: &str, figures: &[f64]) -> Verdict {
        judge(&text.parse().expect("a requirement"), figures).verdict
    }

    #[test]
    fn a_bound_is_kept_broken_or_cannot_be_told_by_the_interval_of_the_median() {
        let gbit = |values: [f64; 6]| values.map(|value| value * 1e9).repeat(4);
        let steady = gbit([9.5, 9.54, 9.52, 9.53, 9.51, 9.55]);
        assert_eq!(verdict("rate>=9.4Gbit/s", &steady), Verdict::Kept);
        assert_eq!(verdict("rate>=9.6Gbit/s", &steady), Verdict::Broken);
        assert_eq!(verdict("rate>=9.52Gbit/s", &steady), Verdict::CannotTell);
        assert_eq!(verdict("rate<=9.6Gbit/s", &steady), Verdict::Kept);
        assert_eq!(verdict("p99<=100us", &[90e-6; 20]), Verdict::Kept);
        assert_eq!(verdict("cpu <= 0.5", &[0.6; 20]), Verdict::Broken);
        assert_eq!(verdict("cpu-op<=12.5", &[12.0; 20]), Verdict::Kept);
        assert_eq!(verdict("system-peer<=0.1", &[0.0; 20]), Verdict::Kept);
        assert_eq!(verdict("user-local<=0.1", &[0.2; 20]), Verdict::Broken);
        assert_eq!(verdict("rate>=1Gbit/s", &[]), Verdict::CannotTell);
    }

    #[test]
    fn trials_too_few_or_too_much_alike_for_an_interval_decide_nothing() {
        assert_eq!(verdict("operations>=9", &[99.0; 19]), Verdict::CannotTell);
        let two_speeds: Vec<f64> = (0..20).map(|n| if n < 10 { 90.0 } else { 99.0 }).collect();
        assert_eq!(verdict("operations>=9", &two_speeds), Verdict::CannotTell);
        let few = judge(&"rate>=1Gb/s".parse().expect("a requirement"), &[9e9; 6]);
        assert!(few.in_words().ends_with("too few for an interval"));
        let stop = outcome(&[few]).expect_err("inconclusive");
        assert!(
            stop.hint
                .is_some_and(|hint| hint.contains("at least 20 trials"))
        );
    }

    /// Trials with a normal autoregressive noise of 2 % around the bound, or at one of two speeds around it.
    fn series(correlation: f64, is_bimodal: bool, random: &mut Random) -> impl FnMut() -> f64 {
        let mut random = Random::new(Seed(random.next_u64()));
        let mut state = random.normal();
        let mut is_fast = random.unit() < 0.5;
        move || {
            let own = (1.0 - correlation * correlation).sqrt() * random.normal();
            state = correlation * state + own;
            if random.unit() >= correlation {
                is_fast = random.unit() < 0.5;
            }
            match (is_bimodal, is_fast) {
                (false, _) => 1e9 * (1.0 + 0.02 * state),
                (true, true) => 1e9 * (1.1 + 0.01 * random.normal()),
                (true, false) => 1e9 * (0.9 + 0.01 * random.normal()),
            }
        }
    }

    #[test]
    fn a_bound_on_the_true_value_passes_or_fails_in_at_most_one_of_twenty_measurements() {
        const MEASUREMENTS: u32 = 4_000;
        let required = UntilArgs {
            require: vec!["rate>=1Gb/s".parse().expect("a requirement")],
            max_time: Nanoseconds::from_millis(300_000),
            ..UntilArgs::once()
        };
        let mut random = Random::new(Seed(0x000b_0cad));
        for is_bimodal in [false, true] {
            for correlation in [0.0, 0.3, 0.5, 0.7] {
                let mut decided = 0;
                for _ in 0..MEASUREMENTS {
                    let mut next = series(correlation, is_bimodal, &mut random);
                    let mut figures = Vec::new();
                    let trial = |_| {
                        let rate = next();
                        figures.push(rate);
                        Ok(rate)
                    };
                    let each = Nanoseconds::from_millis(1);
                    until_certain(&required, each, trial, |rate| Some(*rate), || false)
                        .expect("trials that succeed");
                    let verdict = judge(&required.require[0], &figures).verdict;
                    decided += u32::from(verdict != Verdict::CannotTell);
                }
                let share = f64::from(decided) / f64::from(MEASUREMENTS);
                assert!(share <= 0.05, "correlation {correlation}: {share}");
            }
        }
    }
}
