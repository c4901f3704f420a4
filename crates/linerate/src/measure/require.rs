//! `--require`: a measurement as a test that passes, fails, or is inconclusive.

use linerate_analysis::trial::figure::{figure, in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::Response;
use linerate_model::sample::Sample;
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
    /// Its 95 % interval.
    low: Option<f64>,
    high: Option<f64>,
    verdict: Verdict,
    #[serde(skip)]
    response: Response,
}

/// All requirements of a measurement, and the results of its trials so far.
#[derive(Debug)]
pub(super) struct Requirements<'a> {
    asked: &'a [Requirement],
    figures: Vec<Vec<f64>>,
}

impl<'a> Requirements<'a> {
    pub(super) fn new(asked: &'a [Requirement]) -> Self {
        Self {
            asked,
            figures: vec![Vec::new(); asked.len()],
        }
    }

    /// Takes in a trial.
    pub(super) fn see(&mut self, sample: &Sample) {
        for (requirement, figures) in self.asked.iter().zip(&mut self.figures) {
            figures.extend(figure(requirement.response, sample));
        }
    }

    /// The results over all trials.
    pub(super) fn judge(&self) -> Vec<Judged> {
        let each = self.asked.iter().zip(&self.figures);
        each.map(|(requirement, figures)| judge(requirement, figures))
            .collect()
    }
}

fn judge(requirement: &Requirement, figures: &[f64]) -> Judged {
    // With six to 19 trials the range of all: the interval of independent trials.
    let interval = look(figures).ok();
    let verdict = interval.map_or(Verdict::CannotTell, |interval| {
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
        verdict,
        response: requirement.response,
    }
}

impl Judged {
    /// A line for a person.
    pub(super) fn in_words(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Kept => "kept",
            Verdict::Broken => "BROKEN",
            Verdict::CannotTell => "inconclusive",
        };
        let words = |value| in_words(self.response, value);
        match (self.median, self.low, self.high) {
            (Some(median), Some(low), Some(high)) => format!(
                "{}: {verdict}, {} [{}, {}]",
                self.requirement,
                words(median),
                words(low),
                words(high)
            ),
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
    stop(Verdict::CannotTell, Code::Inconclusive, "inconclusive")
        .map_err(|stop| stop.hint("use longer trials (`--time`) or more of them (`--until-ci`)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str, figures: &[f64]) -> Verdict {
        judge(&text.parse().expect("a requirement"), figures).verdict
    }

    #[test]
    fn a_bound_is_kept_broken_or_cannot_be_told_by_the_interval_of_the_median() {
        let gbit = |values: [f64; 6]| values.map(|value| value * 1e9);
        let steady = gbit([9.5, 9.51, 9.52, 9.53, 9.54, 9.55]);
        assert_eq!(verdict("rate>=9.4Gbit/s", &steady), Verdict::Kept);
        assert_eq!(verdict("rate>=9.6Gbit/s", &steady), Verdict::Broken);
        assert_eq!(verdict("rate>=9.52Gbit/s", &steady), Verdict::CannotTell);
        assert_eq!(verdict("rate<=9.6Gbit/s", &steady), Verdict::Kept);
        assert_eq!(verdict("p99<=100us", &[90e-6; 6]), Verdict::Kept);
        assert_eq!(verdict("cpu <= 0.5", &[0.6; 6]), Verdict::Broken);
        assert_eq!(verdict("cpu-op<=12.5", &[12.0; 6]), Verdict::Kept);
        assert_eq!(verdict("system-peer<=0.1", &[0.0; 6]), Verdict::Kept);
        assert_eq!(verdict("user-local<=0.1", &[0.2; 6]), Verdict::Broken);
        assert_eq!(
            verdict("operations>=100", &[1000.0; 5]),
            Verdict::CannotTell
        );
        assert_eq!(verdict("rate>=1Gbit/s", &[]), Verdict::CannotTell);
    }
}
