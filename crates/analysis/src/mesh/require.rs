//! `--require` of a mesh: bounds that its result keeps or not.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::document::{HostResult, HostVerdict, Named, PairsSummary};

/// What a bound is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Hosts, pairs and groups that are named.
    Named,
    /// Hosts that were not reached.
    Unreached,
    /// Hosts that were not tried.
    NotTried,
    /// Flows that failed.
    Failed,
    /// The lowest rate of a pair over the median.
    MinShare,
    /// The lowest rate of a pair.
    MinRate,
}

/// A bound: `named<=0`, `unreached=0`, `min-share>=0.8`, `min-rate>=40G`.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    text: String,
    figure: Figure,
    is_at_least: bool,
    bound: f64,
}

/// The result for a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RequirementVerdict {
    /// It holds.
    Kept,
    /// It does not.
    Broken,
    /// Not enough was measured.
    CannotTell,
}

/// A bound, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequirementResult {
    /// As it was asked.
    pub requirement: String,
    /// The value; null if it is not known.
    pub value: Option<f64>,
    /// Whether the bound holds.
    pub verdict: RequirementVerdict,
}

/// How figures are written.
const FIGURES: [(&str, Figure); 6] = [
    ("named", Figure::Named),
    ("unreached", Figure::Unreached),
    ("not-tried", Figure::NotTried),
    ("failed", Figure::Failed),
    ("min-share", Figure::MinShare),
    ("min-rate", Figure::MinRate),
];

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Requirement {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
            format!(
                "{why}; a bound is a figure, `<=` or `>=`, and a number, such as `named<=0` or `min-share>=0.8`. Figures: {}",
                names.join(", ")
            )
        };
        let (name, is_at_least, bound) = if let Some((name, bound)) = text.split_once(">=") {
            (name, true, bound)
        } else if let Some((name, bound)) = text.split_once("<=") {
            (name, false, bound)
        } else {
            return Err(refused("`<=` or `>=` is missing"));
        };
        let known = FIGURES.iter().find(|(known, _)| *known == name.trim());
        let Some((_, figure)) = known else {
            return Err(refused(&format!("`{}` is not a figure", name.trim())));
        };
        let rates = matches!(figure, Figure::MinShare | Figure::MinRate);
        if rates != is_at_least {
            return Err(refused(if rates {
                "a rate has a lower bound"
            } else {
                "a count has an upper bound"
            }));
        }
        let bound = number(bound.trim()).ok_or_else(|| refused("the bound is not a number"))?;
        Ok(Self {
            text: text.to_owned(),
            figure: *figure,
            is_at_least,
            bound,
        })
    }
}

/// A number, with an SI prefix if it has one.
fn number(text: &str) -> Option<f64> {
    let factors = [('k', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let prefixed = factors
        .iter()
        .find_map(|(prefix, factor)| Some((text.strip_suffix(*prefix)?, *factor)));
    let (digits, factor) = prefixed.unwrap_or((text, 1.0));
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Each bound. A count of what was found is no more than a lower bound while hosts were not judged.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn judged(
    requirements: &[Requirement],
    hosts: &[HostResult],
    named: &[Named],
    pairs: &PairsSummary,
) -> Vec<RequirementResult> {
    let count = |state| hosts.iter().filter(|host| host.state == state).count();
    let unjudged = count(HostVerdict::Unreached) + count(HostVerdict::NotTried);
    let judge = |requirement: &Requirement| {
        let value = match requirement.figure {
            Figure::Named => Some(named.len() as f64),
            Figure::Unreached => Some(count(HostVerdict::Unreached) as f64),
            Figure::NotTried => Some(count(HostVerdict::NotTried) as f64),
            Figure::Failed => Some(pairs.failed as f64),
            Figure::MinShare => pairs
                .min
                .zip(pairs.median)
                .map(|(min, median)| min / median),
            Figure::MinRate => pairs.min,
        };
        let is_whole =
            unjudged == 0 || matches!(requirement.figure, Figure::Unreached | Figure::NotTried);
        let verdict = match value {
            None => RequirementVerdict::CannotTell,
            Some(value) if requirement.is_at_least && value < requirement.bound => {
                RequirementVerdict::Broken
            }
            Some(value) if !requirement.is_at_least && value > requirement.bound => {
                RequirementVerdict::Broken
            }
            Some(_) if !is_whole => RequirementVerdict::CannotTell,
            Some(_) => RequirementVerdict::Kept,
        };
        RequirementResult {
            requirement: requirement.text.clone(),
            value,
            verdict,
        }
    };
    requirements.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_reads_back_as_it_was_written() {
        for text in [
            "named<=0",
            "min-share>=0.8",
            "min-rate>=40G",
            "unreached<=1",
        ] {
            let read = text.parse::<Requirement>().map(|one| one.to_string());
            assert_eq!(read, Ok(text.to_owned()));
        }
        assert_eq!(
            "min-rate>=40G".parse::<Requirement>().map(|one| one.bound),
            Ok(40e9)
        );
    }

    #[test]
    fn a_bound_without_meaning_is_refused() {
        for text in [
            "named",
            "named>=0",
            "min-rate<=1",
            "speed>=1",
            "named<=x",
            "failed<=-1",
        ] {
            assert!(text.parse::<Requirement>().is_err(), "{text}");
        }
    }
}
