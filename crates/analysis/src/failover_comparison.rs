//! Compares the interruptions of runs before a change with those of runs after it.
//!
//! Each trial has a failure of its own, so the unit is the trial, and the trials of all runs of a side are taken together. The
//! length of an interruption follows from timers and from what has to converge, not from the speed of the host; where hosts
//! drift (a loaded router), compare runs that alternate.
//!
//! Errors. A comparison is `worse` if one row is, so the interval that decides it is corrected for all rows (Bonferroni); it
//! is `not-worse` if every row is, which needs no correction (an intersection-union test, as in
//! [`crate::experiment::compare`]). Either verdict uses one end of an interval, so an error of 5 % is an interval at 90 %.

use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;
use linerate_stats::shift::{Shift, shift};
use linerate_stats::summary::median;
use serde::Serialize;

use crate::changes::Change;
use crate::experiment::compare::{ERROR, Verdict};

/// What `linerate compare RUNS RUNS --format json` prints of runs of `failover`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailoverComparison {
    /// The name of this schema.
    pub schema: &'static str,
    /// The baseline runs, separated by commas.
    pub before: String,
    /// The runs that are compared with them.
    pub after: String,
    /// How many runs `before` has.
    pub runs_before: usize,
    /// How many runs `after` has.
    pub runs_after: usize,
    /// Interruptions that are longer by less than this share of the median before are no regression.
    pub margin: f64,
    /// The probability of a wrong verdict, over all rows.
    pub error: f64,
    /// `worse` if one row is, `not-worse` if every row is and `after` has all rows of `before`.
    pub verdict: Verdict,
    /// Why it is `cannot-tell`; null otherwise.
    pub why: Option<String>,
    /// Each trigger, direction and workload that both sides have.
    pub rows: Vec<ComparedRow>,
    /// Those that only one side has.
    pub unmatched: Vec<String>,
    /// What differs between the first runs of both sides: hosts, settings, and the options of the trials.
    pub differences: Vec<Change>,
}

/// The longest interruptions of one trigger, direction and workload on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedRow {
    /// `failure`, `return` or `no-event`.
    pub trigger: &'static str,
    /// The direction.
    pub direction: Direction,
    /// The workload.
    pub workload: &'static str,
    /// Before.
    pub before: SideOfRow,
    /// After.
    pub after: SideOfRow,
    /// Smaller differences are ignored: the margin of the median before, at least the time between two packets of a flow.
    pub tolerance_ns: Nanoseconds,
    /// How much longer interruptions became (Hodges-Lehmann estimate); negative if shorter. Null with too few trials, or if
    /// too many had not ended.
    pub shift_ns: Option<f64>,
    /// The interval of the shift, which decides `not-worse`; null if the trials do not bound it.
    pub low_ns: Option<f64>,
    /// Its upper end.
    pub high_ns: Option<f64>,
    /// The confidence level of `low_ns` to `high_ns`; null with too few trials for an interval.
    pub level: Option<f64>,
    /// The interval corrected for all rows, which decides `worse`.
    pub low_among_all_ns: Option<f64>,
    /// Its upper end.
    pub high_among_all_ns: Option<f64>,
    /// The confidence level of the corrected interval; null with too few trials for one.
    pub level_among_all: Option<f64>,
    /// Whether interruptions became shorter by more than the tolerance, by the corrected interval.
    pub is_better: bool,
    /// The verdict.
    pub verdict: Verdict,
}

/// The trials of one side of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideOfRow {
    /// How many trials.
    pub trials: usize,
    /// The median of their longest interruptions.
    pub median_ns: Nanoseconds,
    /// The maximum.
    pub max_ns: Nanoseconds,
    /// Trials in which not all flows were back at the end: their interruptions are longer than shown.
    pub not_over: usize,
}

/// What identifies a row.
pub type RowKey = (&'static str, Direction, &'static str);

/// The longest interruption of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Longest {
    /// Its length.
    pub length_ns: Nanoseconds,
    /// It is known to within this time.
    pub step_ns: Nanoseconds,
    /// Whether all flows were back at the end of the trial.
    pub is_over: bool,
}

/// The runs before a change, or those after it.
#[derive(Debug, Clone, Default)]
pub struct FailoverSide {
    /// As they were named.
    pub name: String,
    /// How many runs.
    pub runs: usize,
    /// The longest interruption of each trial, in the order of the rows.
    pub rows: Vec<(RowKey, Vec<Longest>)>,
}

impl FailoverSide {
    /// Adds a trial to its row.
    pub fn add(&mut self, key: RowKey, longest: Longest) {
        match self.rows.iter_mut().find(|(own, _)| *own == key) {
            Some((_, all)) => all.push(longest),
            None => self.rows.push((key, vec![longest])),
        }
    }

    fn of(&self, key: RowKey) -> Option<&[Longest]> {
        let own = self.rows.iter().find(|(own, _)| *own == key)?;
        Some(&own.1)
    }
}

/// Compares two sides, whose first runs differ in `differences`; none if they share no row.
pub fn compare(
    before: FailoverSide,
    after: FailoverSide,
    margin: f64,
    differences: Vec<Change>,
) -> Option<FailoverComparison> {
    let keys = before.rows.iter().map(|(key, _)| *key);
    let both: Vec<RowKey> = keys.filter(|key| after.of(*key).is_some()).collect();
    let of_each = ERROR / f64::from(u32::try_from(both.len().max(1)).unwrap_or(u32::MAX));
    let rows = both.iter().filter_map(|key| {
        let sides = (before.of(*key)?, after.of(*key)?);
        Some(row(*key, sides, margin, of_each))
    });
    let rows: Vec<ComparedRow> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let only = |side: &FailoverSide| -> Vec<String> {
        let keys = side.rows.iter().map(|(key, _)| *key);
        keys.filter(|key| !both.contains(key)).map(words).collect()
    };
    let missing = only(&before);
    let (verdict, why) = overall(&rows, missing.first());
    Some(FailoverComparison {
        schema: "linerate.failover-compare/1",
        runs_before: before.runs,
        runs_after: after.runs,
        margin,
        error: ERROR,
        verdict,
        why,
        unmatched: [missing, only(&after)].concat(),
        before: before.name,
        after: after.name,
        rows,
        differences,
    })
}

/// A row in words.
pub fn words((trigger, direction, workload): RowKey) -> String {
    let to = match direction {
        Direction::Reverse => "from the peer",
        _ => "to the peer",
    };
    format!("{}, {workload} {to}", trigger.replace('-', " "))
}

fn overall(rows: &[ComparedRow], missing: Option<&String>) -> (Verdict, Option<String>) {
    let is = |verdict: Verdict| move |row: &ComparedRow| row.verdict == verdict;
    if rows.iter().any(is(Verdict::Worse)) {
        return (Verdict::Worse, None);
    }
    if let Some(missing) = missing {
        let why = format!("only the baseline has a result of {missing}");
        return (Verdict::CannotTell, Some(why));
    }
    if rows.iter().all(is(Verdict::NotWorse)) {
        return (Verdict::NotWorse, None);
    }
    let why = if rows.iter().any(|row| row.level.is_none()) {
        "too few trials"
    } else {
        "the trials scatter too much, or interruptions were longer than the trials"
    };
    (Verdict::CannotTell, Some(why.to_owned()))
}

fn row(
    (trigger, direction, workload): RowKey,
    (before, after): (&[Longest], &[Longest]),
    margin: f64,
    error: f64,
) -> ComparedRow {
    let values = |side: &[Longest]| -> Vec<f64> {
        let length = |one: &Longest| {
            if one.is_over {
                one.length_ns.as_f64()
            } else {
                f64::INFINITY
            }
        };
        side.iter().map(length).collect()
    };
    let (was, is) = (side(before), side(after));
    let steps = before.iter().chain(after).map(|one| one.step_ns.as_f64());
    let tolerance = steps.fold(was.median_ns.as_f64() * margin, f64::max);
    let shift_at = |error: f64| {
        let level = 1.0 - 2.0 * error;
        shift(&values(before), &values(after), level).ok()
    };
    let (plain, corrected) = (shift_at(ERROR), shift_at(error));
    let verdict = match (plain, corrected) {
        (_, Some(one)) if one.low > tolerance => Verdict::Worse,
        (Some(one), _) if one.high <= tolerance => Verdict::NotWorse,
        _ => Verdict::CannotTell,
    };
    let bounded = |end: fn(Shift) -> f64| {
        move |one: Option<Shift>| one.map(end).filter(|value| value.is_finite())
    };
    let (low, high) = (bounded(|one| one.low), bounded(|one| one.high));
    ComparedRow {
        trigger,
        direction,
        workload,
        before: was,
        after: is,
        tolerance_ns: Nanoseconds::from_f64(tolerance).unwrap_or_default(),
        shift_ns: plain.and_then(|one| one.estimate),
        low_ns: low(plain),
        high_ns: high(plain),
        level: plain.map(|one| one.level),
        low_among_all_ns: low(corrected),
        high_among_all_ns: high(corrected),
        level_among_all: corrected.map(|one| one.level),
        is_better: corrected.is_some_and(|one| one.high < -tolerance),
        verdict,
    }
}

fn side(trials: &[Longest]) -> SideOfRow {
    let lengths: Vec<f64> = trials.iter().map(|one| one.length_ns.as_f64()).collect();
    let middle = median(&lengths).unwrap_or(0.0);
    SideOfRow {
        trials: trials.len(),
        median_ns: Nanoseconds::from_f64(middle).unwrap_or_default(),
        max_ns: trials
            .iter()
            .map(|one| one.length_ns)
            .max()
            .unwrap_or_default(),
        not_over: trials.iter().filter(|one| !one.is_over).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: RowKey = ("failure", Direction::Forward, "udp");
    const RETURN: RowKey = ("return", Direction::Forward, "udp");

    fn side_of(rows: &[(RowKey, &[u64])]) -> FailoverSide {
        let mut side = FailoverSide {
            name: "a".to_owned(),
            runs: 1,
            ..FailoverSide::default()
        };
        for (key, lengths) in rows {
            for length in *lengths {
                let longest = Longest {
                    length_ns: Nanoseconds::from_millis(*length),
                    step_ns: Nanoseconds::from_millis(3),
                    is_over: *length < 9_000,
                };
                side.add(*key, longest);
            }
        }
        side
    }

    fn compared(before: &[(RowKey, &[u64])], after: &[(RowKey, &[u64])]) -> FailoverComparison {
        compare(side_of(before), side_of(after), 0.02, Vec::new()).expect("rows in common")
    }

    const FAST: [u64; 10] = [330, 345, 352, 338, 341, 360, 333, 347, 355, 340];
    const SLOW: [u64; 10] = [
        3_300, 3_450, 3_520, 3_380, 3_410, 3_600, 3_330, 3_470, 3_550, 3_400,
    ];

    #[test]
    fn a_longer_interruption_is_worse_and_a_shorter_one_better() {
        let worse = compared(&[(FAILURE, &FAST)], &[(FAILURE, &SLOW)]);
        assert_eq!(worse.verdict, Verdict::Worse);
        let shift = worse.rows[0].shift_ns.expect("an estimate");
        assert!((3.0e9..3.2e9).contains(&shift), "{shift}");
        let better = compared(&[(FAILURE, &SLOW)], &[(FAILURE, &FAST)]);
        assert_eq!(better.verdict, Verdict::NotWorse);
        assert!(better.rows[0].is_better);
    }

    #[test]
    fn differences_within_a_step_are_no_regression_also_from_nothing() {
        let none = [0; 10];
        let one_step = [0, 3, 0, 3, 0, 0, 3, 0, 3, 0];
        let same = compared(&[(RETURN, &none)], &[(RETURN, &one_step)]);
        assert_eq!(same.verdict, Verdict::NotWorse);
        assert!(!same.rows[0].is_better);
    }

    #[test]
    fn two_failures_on_each_side_show_nothing() {
        let few = compared(&[(FAILURE, &FAST[..2])], &[(FAILURE, &SLOW[..2])]);
        assert_eq!(few.verdict, Verdict::CannotTell);
        assert_eq!(few.why.as_deref(), Some("too few trials"));
        assert_eq!(few.rows[0].level, None);
    }

    #[test]
    fn an_interruption_that_did_not_end_is_longer_than_any_that_did() {
        let never = [9_000; 10];
        let worse = compared(&[(FAILURE, &FAST)], &[(FAILURE, &never)]);
        assert_eq!(worse.verdict, Verdict::Worse);
        assert_eq!(worse.rows[0].high_ns, None);
        assert_eq!(worse.rows[0].after.not_over, 10);
        let unknown = compared(&[(FAILURE, &never)], &[(FAILURE, &never)]);
        assert_eq!(unknown.verdict, Verdict::CannotTell);
    }

    #[test]
    fn a_row_that_only_the_baseline_has_is_inconclusive() {
        let both: [(RowKey, &[u64]); 2] = [(FAILURE, &FAST), (RETURN, &[0; 10])];
        let lost = compared(&both, &[(FAILURE, &FAST)]);
        assert_eq!(lost.verdict, Verdict::CannotTell);
        assert_eq!(lost.unmatched, ["return, udp to the peer"]);
    }
}
