//! What a person reads of an experiment.

use super::figure::in_words;
use super::judge::{LabDocument, ResponseDocument, TrialDocument};
use crate::report::flag_in_words;

/// So many trials are named one by one.
const NAMED_MAX: usize = 5;

/// The lines.
pub(super) fn text(document: &LabDocument) -> String {
    let mut lines = vec![document.title.clone()];
    if !document.question.is_empty() {
        lines.push(document.question.clone());
    }
    let design = &document.design;
    lines.push(format!(
        "{} combinations ({}), {} blocks, {} trials, seed {}",
        design.cells,
        design.kind,
        design.blocks,
        document.trials.len(),
        document.seed
    ));
    for words in &design.confounding {
        lines.push(format!("note: {words}"));
    }
    for factor in &document.factors {
        for level in &factor.levels {
            if let Some(why) = &level.skipped {
                lines.push(format!("skipped: {} {}: {why}", factor.name, level.name));
            }
        }
    }
    for (place, response) in document.responses.iter().enumerate() {
        lines.push(String::new());
        means(&mut lines, document, response);
        lines.push(String::new());
        effects(&mut lines, response);
        if place == 0 {
            checks(&mut lines, document, response);
        }
    }
    let flags = flags(document);
    if !flags.is_empty() {
        lines.push(format!("flags: {}", flags.join("; ")));
    }
    if let Some(why) = &document.stopped {
        lines.push(format!("the run stopped before its end: {why}"));
    }
    match document.restored {
        Some(true) => lines.push("every setting is as it was found".to_owned()),
        Some(false) => lines.push("NOT every setting is as it was found".to_owned()),
        None => {}
    }
    if let Some(page) = &document.report {
        lines.push(format!("report: {page}"));
    }
    lines.join("\n")
}

/// Rows under their heads, each column as wide as its widest.
fn table(lines: &mut Vec<String>, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        lines.push(format!("  {}", line.join("  ").trim_end()));
    }
}

fn means(lines: &mut Vec<String>, document: &LabDocument, response: &ResponseDocument) {
    // A factor that is the same in all combinations tells none of them apart.
    let differs = |column: &usize| {
        let mut levels = response.cells.iter().map(|cell| cell.levels.get(*column));
        let first = levels.next();
        levels.any(|level| Some(level) != first)
    };
    let columns: Vec<usize> = (0..document.factors.len()).filter(differs).collect();
    let names = columns.iter().map(|at| document.factors[*at].name.clone());
    let mut head: Vec<String> = names.collect();
    head.extend([
        response.response.word().to_owned(),
        "least to most".to_owned(),
    ]);
    let mut rows = vec![head];
    for cell in &response.cells {
        let levels = columns.iter().filter_map(|at| cell.levels.get(*at));
        let mut row: Vec<String> = levels.cloned().collect();
        if let (Some(mean), Some(least), Some(most)) = (cell.mean, cell.least, cell.most) {
            let words = |value| in_words(response.response, value);
            let range = format!("{} to {} ({})", words(least), words(most), cell.trials);
            row.extend([words(mean), range]);
        } else {
            row.extend(["-".to_owned(), cell.why.clone().unwrap_or_default()]);
        }
        rows.push(row);
    }
    table(lines, &rows);
}

fn effects(lines: &mut Vec<String>, response: &ResponseDocument) {
    if response.effects.is_empty() {
        lines.push("no effect can be told: it takes three whole blocks".to_owned());
        return;
    }
    let percent = |value: f64| format!("{:+.1} %", value * 100.0);
    let mut rows = vec![vec![
        format!("effect on {}", response.response.word()),
        "change".to_owned(),
        "95 % interval".to_owned(),
        String::new(),
    ]];
    for effect in &response.effects {
        let mut verdict = effect.verdict(response.more_is_better).to_owned();
        if !effect.shown {
            let seen = effect.smallest_detectable * 100.0;
            verdict = format!("{verdict}; {seen:.1} % would have been");
        }
        rows.push(vec![
            effect.in_words(),
            percent(effect.relative),
            format!("{} to {}", percent(effect.low), percent(effect.high)),
            verdict,
        ]);
    }
    table(lines, &rows);
}

fn checks(lines: &mut Vec<String>, document: &LabDocument, response: &ResponseDocument) {
    if let Some(drift) = &response.drift
        && drift.steady
    {
        lines.push(format!(
            "drift: {:+.2} % from each block to the next; it is in all combinations alike",
            drift.relative_per_block * 100.0
        ));
    }
    let far = &response.outliers;
    if !far.is_empty() {
        let name = |place: &usize| {
            let trial: Option<&TrialDocument> = document.trials.get(*place);
            trial.map_or_else(String::new, |trial| {
                format!("block {} {}", trial.block + 1, trial.levels.join(", "))
            })
        };
        let named: Vec<String> = far.iter().take(NAMED_MAX).map(name).collect();
        let more = far.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        lines.push(format!(
            "far from the others: {}{more} (kept in the figures)",
            named.join("; ")
        ));
    }
}

/// The flags of the trials, each with how many have it.
fn flags(document: &LabDocument) -> Vec<String> {
    let all = document.trials.len();
    let flags = document.flags().into_iter();
    flags
        .map(|(flag, count)| format!("{} ({count} of {all} trials)", flag_in_words(flag)))
        .collect()
}
