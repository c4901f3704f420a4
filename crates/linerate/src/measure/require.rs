//! `--require`: a measurement as a test that passes, fails, or is inconclusive.

use std::cell::RefCell;

use linerate_analysis::trial::figure::{Figures, in_words};
use linerate_model::ceiling::Bound::{Copy as CopyBound, WindowRtt};
use linerate_model::ceiling::{Ceiling, PathCeilings};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::Response;
use linerate_model::sample::{Flag, Sample};
use linerate_report::junit::{Case, CaseResult, suite};
use linerate_runtime::cli::{Bound, Requirement, UntilArgs};
use linerate_stats::sequential::look;
use linerate_stats::summary::median;
use serde::Serialize;

/// The result of the trials for a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Kept,
    Broken,
    CannotTell,
}

/// A requirement, and the figures of all trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Judged {
    /// As it was asked.
    pub(super) requirement: String,
    /// The bound in the figure's own unit: bit/s, 1/s, s/GB, us/op, s. Null if it is a share of a ceiling that is not known.
    bound: Option<f64>,
    /// The median.
    median: Option<f64>,
    /// Its 95 % interval, with correlated trials counted as fewer. Not `valid`: the smallest and the largest.
    low: Option<f64>,
    high: Option<f64>,
    /// Whether there are enough trials for an interval: at least 20, and more the more correlated they are.
    valid: bool,
    pub(super) verdict: Verdict,
    #[serde(skip)]
    response: Response,
    #[serde(skip)]
    interrupted: bool,
}

/// All requirements of a measurement, and the results of its trials so far.
#[derive(Debug)]
pub(super) struct Requirements<'a> {
    asked: &'a [Requirement],
    /// Whether the trials go on until the requirements are decided: then their intervals must hold at all looks together.
    goes_on: bool,
    /// Of every whole trial.
    figures: RefCell<Figures>,
    /// What limits the rate of any trial on this path, once it is known.
    ceiling: RefCell<Option<Ceiling>>,
}

impl<'a> Requirements<'a> {
    pub(super) fn new(until: &'a UntilArgs, as_junit: bool) -> Outcome<Self> {
        if as_junit && until.require.is_empty() {
            let why = "`--format junit` has no case without `--require`";
            return Err(Stop::new(Code::Usage, why));
        }
        Ok(Self {
            asked: &until.require,
            goes_on: until.until_ci.is_some(),
            figures: RefCell::default(),
            ceiling: RefCell::default(),
        })
    }

    /// Takes in a trial; a part of one does not count. `ceilings` are those of its path.
    pub(super) fn see(
        &self,
        sample: &Sample,
        ceilings: impl FnOnce() -> PathCeilings,
    ) -> Outcome<()> {
        if sample.flags.contains(&Flag::CutShort) {
            return Ok(());
        }
        self.figures.borrow_mut().add(sample);
        let needs_ceiling = |one: &Requirement| matches!(one.bound, Bound::OfCeiling(_));
        let mut ceiling = self.ceiling.borrow_mut();
        if ceiling.is_none() && self.asked.iter().any(needs_ceiling) {
            *ceiling = Some(lowest(ceilings())?);
        }
        Ok(())
    }

    /// The figures of all whole trials.
    pub(super) fn into_figures(self) -> Figures {
        self.figures.into_inner()
    }

    /// Whether no more trials are needed to pass or fail.
    pub(super) fn are_decided(&self) -> bool {
        let undecided = |one: &Judged| one.verdict == Verdict::CannotTell;
        !self.judge(false).iter().any(undecided)
    }

    /// The results over all trials. Those that were `interrupted` decide nothing: there would have been more.
    pub(super) fn judge(&self, interrupted: bool) -> Vec<Judged> {
        let figures = self.figures.borrow();
        let judged = self.asked.iter().map(|one| {
            let bound = self.bound(one);
            judge(one, bound, figures.of(one.response), self.goes_on)
        });
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

    /// In the figure's own unit.
    fn bound(&self, requirement: &Requirement) -> Option<f64> {
        match requirement.bound {
            Bound::Value(value) => Some(value),
            Bound::OfCeiling(share) => {
                let ceiling = self.ceiling.borrow();
                Some(share * ceiling.as_ref()?.bit_per_s.as_f64())
            }
        }
    }
}

/// The lowest ceiling that every trial on the path has. Copies and the window of one trial are none: they are what is
/// measured.
fn lowest(ceilings: PathCeilings) -> Outcome<Ceiling> {
    let is_of_path = |ceiling: &Ceiling| !matches!(ceiling.bound, CopyBound | WindowRtt);
    let of_path = ceilings.ceilings.into_iter().filter(is_of_path);
    of_path
        .min_by_key(|ceiling| ceiling.bit_per_s)
        .ok_or_else(|| {
            let unknown = ceilings.undetermined.iter();
            let unknown: Vec<String> = unknown
                .map(|unknown| format!("{}: {}", unknown.bound, unknown.missing))
                .collect();
            let why = if unknown.is_empty() {
                "the path has none".to_owned()
            } else {
                unknown.join("; ")
            };
            Stop::new(
                Code::Inconclusive,
                format!("inconclusive: no ceiling of this path is known ({why})"),
            )
            .hint("require a rate, such as `rate>=9.4Gb/s`")
        })
}

fn judge(requirement: &Requirement, bound: Option<f64>, figures: &[f64], goes_on: bool) -> Judged {
    let look = look(figures).ok();
    // The range of a few trials that are like each other may lie on the wrong side of the bound.
    let interval = look.and_then(|look| {
        if goes_on {
            look.joint
        } else {
            look.is_valid.then_some((look.low, look.high))
        }
    });
    let verdict = bound
        .zip(interval)
        .map_or(Verdict::CannotTell, |(bound, (low, high))| {
            let (worst, best) = if requirement.is_least {
                (low - bound, high - bound)
            } else {
                (bound - high, bound - low)
            };
            if worst >= 0.0 {
                Verdict::Kept
            } else if best < 0.0 {
                Verdict::Broken
            } else {
                Verdict::CannotTell
            }
        });
    let shown = interval.or(look.map(|look| (look.low, look.high)));
    Judged {
        requirement: requirement.text.clone(),
        bound,
        median: median(figures).ok(),
        low: shown.map(|(low, _)| low),
        high: shown.map(|(_, high)| high),
        valid: interval.is_some(),
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
        // A share of the ceiling is no figure yet.
        let bound = self.bound.filter(|_| self.requirement.contains('%'));
        let bound = bound.map_or_else(String::new, |bound| format!(" ({})", words(bound)));
        match (self.median, self.low, self.high) {
            (Some(median), Some(low), Some(high)) => format!(
                "{}{bound}: {verdict}, {} [{}, {}]{}",
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

/// The requirements as JUnit's XML: one that is inconclusive is an error, as it is no pass.
pub(super) fn junit(suite_name: &str, judged: &[Judged]) -> String {
    let case = |one: &Judged| {
        let words = one.in_words();
        Case {
            class: suite_name.to_owned(),
            name: one.requirement.clone(),
            result: match one.verdict {
                Verdict::Kept => CaseResult::Passed(Some(words)),
                Verdict::Broken => CaseResult::Failed {
                    kind: "violated".to_owned(),
                    message: words,
                    text: String::new(),
                },
                Verdict::CannotTell => CaseResult::Inconclusive(words),
            },
        }
    };
    let cases: Vec<Case> = judged.iter().map(case).collect();
    suite(suite_name, &cases)
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
    use linerate_runtime::cli::UntilArgs;
    use linerate_stats::{Random, Seed};

    use super::super::repeat::until_certain;
    use super::*;

    fn judged(text: &str, figures: &[f64]) -> Judged {
        let requirement: Requirement = text.parse().expect("a requirement");
        let Bound::Value(bound) = requirement.bound else {
            panic!("a share of a ceiling")
        };
        judge(&requirement, Some(bound), figures, false)
    }

    fn verdict(text: &str, figures: &[f64]) -> Verdict {
        judged(text, figures).verdict
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
        let few = judged("rate>=1Gb/s", &[9e9; 6]);
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

    /// The share of `measurements` of a true value that is its own bound which pass or fail all the same.
    fn decided_share(measurements: u32, goes_on: bool, is_bimodal: bool, correlation: f64) -> f64 {
        /// The number of trials after which an undecided measurement ends.
        const TRIALS: usize = 300;
        let required = UntilArgs {
            until_ci: goes_on.then_some(0.2),
            require: vec!["rate>=1Gb/s".parse().expect("a requirement")],
            max_time: Nanoseconds::from_millis(300_000),
            ..UntilArgs::once()
        };
        let mut random = Random::new(Seed(0x000b_0cad));
        let mut decided = 0;
        for _ in 0..measurements {
            let mut next = series(correlation, is_bimodal, &mut random);
            let figures = RefCell::new(Vec::new());
            let trial = |_| {
                let rate = next();
                figures.borrow_mut().push(rate);
                Ok(rate)
            };
            let verdict = || {
                let figures = figures.borrow();
                judge(&required.require[0], Some(1e9), &figures, goes_on).verdict
            };
            let ends = || goes_on && figures.borrow().len() >= TRIALS;
            let is_decided = || verdict() != Verdict::CannotTell;
            let each = Nanoseconds::from_millis(1);
            until_certain(
                &required,
                each,
                trial,
                |rate| Some(*rate),
                (ends, is_decided),
            )
            .expect("trials that succeed");
            decided += u32::from(verdict() != Verdict::CannotTell);
        }
        f64::from(decided) / f64::from(measurements)
    }

    /// Two standard errors of a share of 5 % of this many measurements.
    fn slack(measurements: u32) -> f64 {
        2.0 * (0.05 * 0.95 / f64::from(measurements)).sqrt()
    }

    #[test]
    fn a_bound_on_the_true_value_passes_or_fails_in_at_most_one_of_twenty_measurements() {
        for is_bimodal in [false, true] {
            for correlation in [0.0, 0.3, 0.5, 0.7] {
                let share = decided_share(4_000, false, is_bimodal, correlation);
                assert!(
                    share <= 0.05 + slack(4_000),
                    "correlation {correlation}: {share}"
                );
            }
        }
    }

    #[test]
    fn a_measurement_that_goes_on_until_it_can_tell_is_wrong_no_more_often() {
        for is_bimodal in [false, true] {
            for correlation in [0.0, 0.3, 0.5, 0.7] {
                let share = decided_share(600, true, is_bimodal, correlation);
                assert!(share <= 0.05, "correlation {correlation}: {share}");
            }
        }
    }
}
