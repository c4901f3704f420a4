//! What the commands have in common that show and compare stored runs.

use std::path::Path;

use linerate_analysis::changes::Change;
use linerate_analysis::experiment::compare::Verdict;
use linerate_analysis::record::{RunKind, StoredRun};
use linerate_analysis::text::words::wrap;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::console::say::{Format, Say};
use linerate_store as store;
use serde::Serialize;

/// Reads a run, and notes one whose end is torn.
pub(crate) fn read(folder: &Path, say: &Say) -> Outcome<StoredRun> {
    let stored = store::read(folder)?;
    note_torn(&stored, say);
    Ok(stored)
}

/// Notes a run whose end is torn.
pub(crate) fn note_torn(stored: &StoredRun, say: &Say) {
    if stored.torn {
        say.note(&format!(
            "{} was truncated while being written: its last record is dropped",
            stored.folder.display()
        ));
    }
}

/// Refuses to compare a run of another command.
pub(crate) fn require_kind(folder: &Path, kinds: &[RunKind], command: &str) -> Outcome<()> {
    if kinds.contains(&store::kind_of(folder)?) {
        return Ok(());
    }
    let shown = folder.display();
    let why = format!("cannot compare {shown}: it is not a run of `{command}`");
    Err(Stop::new(Code::BadInput, why).hint("compare runs of one command"))
}

/// The verdict of a comparison, and why it is none.
pub(crate) struct Conclusion<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) why: Option<&'a str>,
    /// What is worse.
    pub(crate) worse: &'static str,
    /// What makes it conclusive.
    pub(crate) hint: &'static str,
}

/// Prints a comparison; its verdict is the exit code.
pub(crate) fn conclude(
    document: &impl Serialize,
    text: impl FnOnce() -> String,
    conclusion: &Conclusion<'_>,
    say: &Say,
) -> Outcome<()> {
    if say.format == Format::Json {
        say.json(document)?;
    } else {
        say.lines(&text())?;
    }
    match conclusion.verdict {
        Verdict::NotWorse => Ok(()),
        Verdict::Worse => Err(Stop::new(Code::Regression, conclusion.worse)),
        Verdict::CannotTell => {
            let why = conclusion.why.unwrap_or("no verdict");
            let stop = Stop::new(Code::Inconclusive, format!("inconclusive: {why}"));
            Err(stop.hint(conclusion.hint))
        }
    }
}

/// Lists the first `most` differences between the runs, within `width` columns.
pub(crate) fn list_differences(
    lines: &mut Vec<String>,
    (title, differences): (&str, &[Change]),
    most: usize,
    width: usize,
) {
    if differences.is_empty() {
        return;
    }
    lines.push(title.to_owned());
    for change in differences.iter().take(most) {
        for part in wrap(&change.in_words(), width - 2) {
            lines.push(format!("  {part}"));
        }
    }
    if let more @ 1.. = differences.len().saturating_sub(most) {
        lines.push(format!("  and {more} more (`--format json` lists all)"));
    }
}
