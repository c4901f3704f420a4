//! `--require`: whether every trial keeps a bound.

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::{FailoverBound, FailoverFigure};
use serde::Serialize;

use super::document::{PartResult, TrialResult, WorkloadWord};

/// The result for a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Kept,
    Broken,
    CannotTell,
}

/// A bound, and the worst trial.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RequirementResult {
    /// As it was asked.
    pub(super) requirement: String,
    /// The worst direction of the worst trial: nanoseconds, or a count. Null if no trial has the workload.
    pub(super) worst: Option<u64>,
    /// It is known to within this much.
    pub(super) within: u64,
    /// Whether the bound holds.
    pub(super) verdict: Verdict,
}

/// Each bound over all trials.
pub(super) fn judged(bounds: &[FailoverBound], trials: &[TrialResult]) -> Vec<RequirementResult> {
    bounds.iter().map(|bound| judge(bound, trials)).collect()
}

fn judge(bound: &FailoverBound, trials: &[TrialResult]) -> RequirementResult {
    let workload = WorkloadWord::from(bound.workload);
    let parts = trials
        .iter()
        .flat_map(|trial| &trial.parts)
        .filter(|part| part.workload == workload);
    let worst = parts.clone().map(|part| value(bound.figure, part)).max();
    // An interruption begins and ends between two packets; counts are exact.
    let within = match bound.figure {
        FailoverFigure::Gap => parts.clone().map(|part| part.step_ns.as_u64()).max(),
        _ => None,
    };
    let within = within.unwrap_or(0);
    // The last packet of an interruption that goes on bounds nothing.
    let is_over = parts
        .flat_map(|part| &part.triggers)
        .all(|trigger| trigger.is_over);
    let keeps = |value: u64| {
        if bound.is_strict {
            value < bound.most
        } else {
            value <= bound.most
        }
    };
    let verdict = match worst {
        Some(worst) if !keeps(worst.saturating_sub(within)) => Verdict::Broken,
        Some(worst) if keeps(worst.saturating_add(within)) && is_over => Verdict::Kept,
        Some(_) if bound.figure != FailoverFigure::Gap && is_over => Verdict::Kept,
        _ => Verdict::CannotTell,
    };
    RequirementResult {
        requirement: bound.text.clone(),
        worst,
        within,
        verdict,
    }
}

fn value(figure: FailoverFigure, part: &PartResult) -> u64 {
    match figure {
        FailoverFigure::Gap => part.gaps.longest_ns.as_u64(),
        FailoverFigure::Lost => part.lost,
        FailoverFigure::Late => part.late,
        FailoverFigure::Duplicated => part.duplicated,
        FailoverFigure::Reordered => part.reordered,
    }
}

/// The exit code for all of them: 11 if one is violated, 12 if one is inconclusive.
pub(super) fn outcome(results: &[RequirementResult]) -> Outcome<()> {
    let of = |verdict| -> Vec<&str> {
        let own = results.iter().filter(|one| one.verdict == verdict);
        own.map(|one| one.requirement.as_str()).collect()
    };
    let broken = of(Verdict::Broken);
    if !broken.is_empty() {
        let what = format!("violated: {}", broken.join(", "));
        return Err(Stop::new(Code::Regression, what));
    }
    let open = of(Verdict::CannotTell);
    if !open.is_empty() {
        let what = format!("inconclusive: {}", open.join(", "));
        return Err(Stop::new(Code::Inconclusive, what).hint(
            "raise `--rate` if the bound is close to the time between two packets, or `--time` if not all flows were \
             back at the end",
        ));
    }
    Ok(())
}
