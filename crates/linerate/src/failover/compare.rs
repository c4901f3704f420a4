//! `compare` of runs of `failover`: how the interruptions of one side differ from those of the other.

use std::path::Path;

use linerate_analysis::changes::{Change, of_host, of_trials};
use linerate_analysis::experiment::compare::Verdict;
use linerate_analysis::failover_comparison::{
    ComparedRow, FailoverComparison, FailoverSide, Longest, SideOfRow, compare, words,
};
use linerate_analysis::record::RunKind;
use linerate_analysis::text::words::{count, wrap};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::plan::End;
use linerate_model::units::Nanoseconds;
use linerate_runtime::cli::{CompareArgs, RunGroup};
use linerate_runtime::console::say::Say;
use linerate_store as store;

use super::document::TrialResult;
use super::stored::Read;
use crate::stored_runs::{Conclusion, conclude, list_differences, require_kind};

/// More differences between the hosts are in the document only.
const DIFFERENCES_SHOWN: usize = 12;
/// No line is longer.
const WIDTH: usize = 100;

/// Compares two groups of runs. Exit code 11 if interruptions became longer, 12 if inconclusive.
pub(crate) fn run(
    (before, after): (&RunGroup, &RunGroup),
    args: &CompareArgs,
    say: &Say,
) -> Outcome<()> {
    let first = |group: &RunGroup| group.0.first().cloned().unwrap_or_default();
    // First: a run of another command has no hosts to compare.
    let sides = (side(before)?, side(after)?);
    let differences = differences(&first(before), &first(after))?;
    let Some(document) = compare(sides.0, sides.1, args.margin, differences) else {
        let why = "the runs have no trigger and workload in common";
        let hint = "compare runs of `failover` with the same options: `linerate runs --kind failover` lists them";
        return Err(Stop::new(Code::Inconclusive, why).hint(hint));
    };
    let conclusion = Conclusion {
        verdict: document.verdict,
        why: document.why.as_deref(),
        worse: "longer interruptions",
        hint: "raise `--repeats` (a verdict needs at least 5 trials on each side, several workloads more) or `--time`",
    };
    conclude(&document, || text(&document), &conclusion, say)
}

/// The trials of all runs of a group.
fn side(group: &RunGroup) -> Outcome<FailoverSide> {
    let mut side = FailoverSide {
        name: group.to_string(),
        runs: group.0.len(),
        rows: Vec::new(),
    };
    for folder in &group.0 {
        require_kind(folder, &[RunKind::Failover], "failover")?;
        let stored = store::read(folder)?;
        let trials = Read::of(&stored.records, folder)?.results();
        for trial in trials.iter().filter(|trial| !trial.cut_short) {
            add(&mut side, trial);
        }
    }
    Ok(side)
}

fn add(side: &mut FailoverSide, trial: &TrialResult) {
    for part in &trial.parts {
        for trigger in &part.triggers {
            let key = (trigger.trigger.key(), part.direction, part.workload.word());
            let longest = Longest {
                length_ns: trigger.gaps.longest_ns,
                step_ns: part.step_ns,
                is_over: trigger.is_over,
            };
            side.add(key, longest);
        }
    }
}

/// What differs in the options and the hosts of two runs.
fn differences(before: &Path, after: &Path) -> Outcome<Vec<Change>> {
    let (was, is) = (store::read(before)?, store::read(after)?);
    let (read_was, read_is) = (
        Read::of(&was.records, before)?,
        Read::of(&is.records, after)?,
    );
    let mut changes = of_trials(&read_was.plan.spec, &read_is.plan.spec);
    let nics = (&was.header.local_nic, &was.header.remote_nic);
    let ends = [
        (End::Local, nics.0, read_was.hosts.0, read_is.hosts.0),
        (End::Remote, nics.1, read_was.hosts.1, read_is.hosts.1),
    ];
    for (end, nic, was, is) in ends {
        changes.extend(of_host(end, nic, was, is));
    }
    Ok(changes)
}

fn text(document: &FailoverComparison) -> String {
    let mut lines = Vec::new();
    let title = format!(
        "longest interruptions of {} vs {}; increases below {:.1} % or one step are ignored",
        document.after,
        document.before,
        document.margin * 100.0
    );
    wrapped(&mut lines, &title);
    for row in &document.rows {
        let name = words((row.trigger, row.direction, row.workload));
        wrapped(&mut lines, &format!("  {name}: {}", row_in_words(row)));
    }
    for name in &document.unmatched {
        wrapped(&mut lines, &format!("  {name}: on one side only"));
    }
    let title = "differences between the first runs of both sides:";
    list_differences(
        &mut lines,
        (title, &document.differences),
        DIFFERENCES_SHOWN,
        WIDTH,
    );
    let is_better = document.rows.iter().any(|row| row.is_better);
    lines.push(match document.verdict {
        Verdict::NotWorse if is_better => "not worse; better where stated".to_owned(),
        verdict => verdict.word().to_owned(),
    });
    lines.join("\n")
}

fn row_in_words(row: &ComparedRow) -> String {
    let verdict = if row.is_better {
        "better"
    } else {
        row.verdict.word()
    };
    let medians = format!(
        "{} -> {}",
        side_in_words(&row.before),
        side_in_words(&row.after)
    );
    let Some(level) = row.level else {
        return format!("{medians}, too few trials: {verdict}");
    };
    let end = |value: Option<f64>| value.map_or_else(|| "unbounded".to_owned(), signed);
    format!(
        "{medians}, shift {}, {:.0} % CI [{}, {}]: {verdict}",
        end(row.shift_ns),
        level * 100.0,
        end(row.low_ns),
        end(row.high_ns)
    )
}

fn side_in_words(side: &SideOfRow) -> String {
    let trials = count(side.trials, "trial");
    let open = match side.not_over {
        0 => String::new(),
        open => format!(", {open} not over"),
    };
    format!("median {} ({trials}{open})", side.median_ns)
}

/// A difference of times with its sign.
fn signed(value: f64) -> String {
    let time = Nanoseconds::from_f64(value.abs()).unwrap_or_default();
    match value {
        value if time == Nanoseconds::new(0) || value == 0.0 => "0".to_owned(),
        value if value < 0.0 => format!("-{time}"),
        _ => format!("+{time}"),
    }
}

fn wrapped(lines: &mut Vec<String>, text: &str) {
    let indent = text.len() - text.trim_start().len();
    for (number, line) in wrap(text.trim_start(), WIDTH - indent - 2)
        .into_iter()
        .enumerate()
    {
        let more = if number == 0 { 0 } else { 2 };
        lines.push(format!("{}{line}", " ".repeat(indent + more)));
    }
}
