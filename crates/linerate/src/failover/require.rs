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
    let parts = || {
        let all = trials.iter().flat_map(|trial| &trial.parts);
        all.filter(|part| part.workload == workload)
    };
    let figures: Vec<Figure> = parts().map(|part| Figure::of(bound.figure, part)).collect();
    // The last packet of an interruption that goes on bounds nothing.
    let is_over = parts()
        .flat_map(|part| &part.triggers)
        .all(|trigger| trigger.is_over);
    RequirementResult {
        requirement: bound.text.clone(),
        worst: figures.iter().map(|one| one.value).max(),
        within: figures.iter().map(|one| one.within()).max().unwrap_or(0),
        verdict: bound_verdict(bound, &figures, is_over),
    }
}

fn bound_verdict(bound: &FailoverBound, figures: &[Figure], is_over: bool) -> Verdict {
    let keeps = |value: u64| {
        if bound.is_strict {
            value < bound.most
        } else {
            value <= bound.most
        }
    };
    if figures.iter().any(|one| !keeps(one.least)) {
        Verdict::Broken
    } else if is_over
        && !figures.is_empty()
        && figures.iter().all(|one| one.most.is_some_and(keeps))
    {
        Verdict::Kept
    } else {
        Verdict::CannotTell
    }
}

/// What a bound is about, in one direction of one trial.
#[derive(Debug, Clone, Copy)]
struct Figure {
    least: u64,
    value: u64,
    /// None if nothing limits it.
    most: Option<u64>,
}

impl Figure {
    fn of(figure: FailoverFigure, part: &PartResult) -> Self {
        let at_least = |value: u64, more: u64| Self {
            least: value,
            value,
            most: value.checked_add(more),
        };
        match figure {
            FailoverFigure::Gap => Self::of_gap(part),
            FailoverFigure::Lost => at_least(part.lost, part.unrecorded),
            FailoverFigure::Late => at_least(part.late, part.unrecorded),
            FailoverFigure::Duplicated => at_least(part.duplicated, 0),
            FailoverFigure::Reordered => at_least(part.reordered, 0),
        }
    }

    /// An interruption begins and ends between two packets: it is at most a step longer than what is shown, and shorter if the sender
    /// paused at its ends. What happens within a pause is not seen. One that is not recorded may be of any length.
    fn of_gap(part: &PartResult) -> Self {
        let value = part.gaps.longest_ns.as_u64();
        let pause = part.hosts.longest_send_gap_ns.unwrap_or_default();
        let step = part.step_ns.as_u64();
        let within = pause.max(part.step_ns).as_u64();
        Self {
            least: value.saturating_sub((2 * within).saturating_sub(step)),
            value,
            most: (value.checked_add(step))
                .map(|most| most.max(within))
                .filter(|_| part.unrecorded == 0),
        }
    }

    fn within(self) -> u64 {
        let above = self.most.map_or(0, |most| most - self.value);
        above.max(self.value - self.least)
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
             back at the end; a sender that pauses (`longest send gap`) needs a quieter host",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use linerate_model::units::Nanoseconds;
    use linerate_model::workload::Direction;

    use super::super::document::{Gaps, HostResult};
    use super::Verdict::{Broken, CannotTell, Kept};
    use super::*;

    const MS: u64 = 1_000_000;

    /// A direction whose longest interruption was 100 ms, with packets every 5 ms.
    fn part() -> PartResult {
        PartResult {
            direction: Direction::Forward,
            workload: WorkloadWord::Udp,
            flows: 1,
            step_ns: Nanoseconds::new(5 * MS),
            sent: 1_000,
            received: 980,
            gaps: Gaps {
                count: 1,
                longest_ns: Nanoseconds::new(100 * MS),
                total_ns: Nanoseconds::new(100 * MS),
            },
            lost: 20,
            late: 0,
            duplicated: 0,
            reordered: 0,
            unrecorded: 0,
            triggers: Vec::new(),
            hosts: HostResult {
                longest_send_gap_ns: Some(Nanoseconds::new(6 * MS)),
                skipped: 0,
                longest_stall_ns: None,
                stalls: 0,
                socket_drops: None,
                ignored: 0,
                send_errors: Vec::new(),
            },
            tcp: None,
        }
    }

    fn paused(ms: u64) -> PartResult {
        let mut part = part();
        part.hosts.longest_send_gap_ns = Some(Nanoseconds::new(ms * MS));
        part
    }

    fn unrecorded(packets: u64) -> PartResult {
        PartResult {
            unrecorded: packets,
            ..part()
        }
    }

    fn verdict(bound: &str, part: &PartResult) -> Verdict {
        let bound: FailoverBound = bound.parse().expect("a bound");
        let figure = Figure::of(bound.figure, part);
        bound_verdict(&bound, &[figure], true)
    }

    #[test]
    fn an_interruption_is_judged_with_what_the_sender_did_not_see() {
        let verdicts = |part: PartResult| {
            ["gap<90ms", "gap<105ms", "gap<110ms"].map(|bound| verdict(bound, &part))
        };
        assert_eq!(verdicts(part()), [Broken, CannotTell, Kept]);
        assert_eq!(verdicts(paused(8)), [CannotTell, CannotTell, Kept]);
        assert_eq!(verdicts(paused(700)), [CannotTell; 3]);
    }

    #[test]
    fn losses_that_were_not_recorded_count_for_the_bound_and_leave_lengths_open() {
        let verdicts = |part: PartResult| {
            ["lost<=10", "lost<=20", "lost<=25", "gap<1s", "gap<50ms"]
                .map(|bound| verdict(bound, &part))
        };
        assert_eq!(verdicts(part()), [Broken, Kept, Kept, Kept, Broken]);
        assert_eq!(
            verdicts(unrecorded(5)),
            [Broken, CannotTell, Kept, CannotTell, Broken]
        );
    }

    #[test]
    fn without_a_trial_nothing_is_kept() {
        let bound: FailoverBound = "gap<1s".parse().expect("a bound");
        assert_eq!(judge(&bound, &[]).verdict, CannotTell);
    }
}
