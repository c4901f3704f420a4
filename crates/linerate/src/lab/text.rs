//! What a person reads of an experiment.

use linerate_analysis::experiment::difference::in_words as difference_in_words;
use linerate_analysis::experiment::document::{
    DifferenceDocument, LabDocument, PublishedDocument, ResponseDocument, ServerDocument,
    TrialDocument,
};
use linerate_analysis::experiment::hits::hits_in_words;
use linerate_analysis::experiment::published::{OTHER_HARDWARE, notes};
use linerate_analysis::text::table::table;
use linerate_analysis::text::words::{TOO_NOISY, detectable, effect_figure, is_too_noisy};
use linerate_analysis::trial::figure::{in_words, s_per_gb_in_words};
use linerate_report::flag_in_words;

/// Maximum number of trials that are listed.
const NAMED_MAX: usize = 5;
/// A terminal is no page: figures after the first one are printed while all of them take no more lines than these, and
/// so are differences, and the published figures of a source.
const FIGURES_MAX: usize = 120;
const ROWS_MAX: usize = 48;
/// Combinations whose flows fit side by side on a terminal; the page has all.
const FLOW_COLUMNS_MAX: usize = 6;
/// Where the rest is.
const ELSEWHERE: &str = "on the page (`linerate report RUN`) and in `--format json`";

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
    for peer in &document.peers {
        let host = peer.host.as_deref().unwrap_or("?");
        lines.push(format!(
            "another host: {} ({host}), {} -> {}",
            peer.peer, peer.local_nic, peer.remote_nic
        ));
    }
    if let Some(found) = &document.flows
        && found.cells.len() <= FLOW_COLUMNS_MAX
    {
        lines.extend([String::new(), "rate of each flow".to_owned()]);
        table(&mut lines, &found.table());
    }
    if let Some(found) = &document.times {
        lines.extend([String::new(), "seconds of each process".to_owned()]);
        table(&mut lines, &found.table());
    }
    if let Some(server) = &document.server {
        lines.push(server.in_words());
    }
    for words in &design.confounding {
        lines.push(format!("note: {words}"));
    }
    lines.extend(skipped_levels(document));
    figures(&mut lines, document);
    if let Some(found) = &document.fabric {
        lines.extend([String::new(), "latency and rate".to_owned()]);
        table(&mut lines, &found.table());
    }
    if let Some(server) = &document.server {
        hits(&mut lines, document, server);
    }
    if let Some(found) = &document.difference {
        difference(&mut lines, document, found);
    }
    published(&mut lines, document);
    let flags = flags(document);
    if !flags.is_empty() {
        lines.push(format!("flags: {}", flags.join("; ")));
    }
    if let Some(why) = &document.stopped {
        lines.push(format!("the run stopped early: {why}"));
    }
    match document.restored {
        Some(true) => lines.push("no setting differs from the baseline".to_owned()),
        Some(false) => lines.push("NOT all settings were restored to the baseline".to_owned()),
        None => {}
    }
    if let Some(page) = &document.report {
        lines.push(format!("report: {page}"));
    }
    lines.join("\n")
}

/// The levels that are skipped, and why; those of a factor that share a reason share a line.
fn skipped_levels(document: &LabDocument) -> Vec<String> {
    let mut lines = Vec::new();
    for factor in &document.factors {
        for same in factor
            .levels
            .chunk_by(|one, other| one.skipped == other.skipped)
        {
            if let Some(why) = &same[0].skipped {
                let names: Vec<&str> = same.iter().map(|level| level.name.as_str()).collect();
                lines.push(format!(
                    "skipped: {} {}: {why}",
                    factor.name,
                    names.join(", ")
                ));
            }
        }
    }
    lines
}

/// The means and effects of each figure, the first one complete, the others as far as they fit.
fn figures(lines: &mut Vec<String>, document: &LabDocument) {
    let mut room = FIGURES_MAX;
    let mut others: Vec<&str> = Vec::new();
    for (place, response) in document.responses.iter().enumerate() {
        let mut own = vec![String::new()];
        means(&mut own, document, response);
        own.push(String::new());
        effects(&mut own, response);
        if place == 0 {
            checks(&mut own, document, response);
        } else if own.len() > room {
            others.push(response.response.word());
            continue;
        }
        room = room.saturating_sub(own.len());
        lines.append(&mut own);
    }
    if !others.is_empty() {
        let words = others.join(", ");
        lines.extend([String::new(), format!("{words}: {ELSEWHERE}")]);
    }
}

/// The factors that distinguish combinations: not those that are the same in all of them.
fn differing<'d>(
    document: &LabDocument,
    combinations: &(impl Iterator<Item = &'d Vec<String>> + Clone),
) -> Vec<usize> {
    let differs = |column: &usize| {
        let mut levels = combinations.clone().map(|levels| levels.get(*column));
        let first = levels.next();
        levels.any(|level| Some(level) != first)
    };
    (0..document.factors.len()).filter(differs).collect()
}

fn means(lines: &mut Vec<String>, document: &LabDocument, response: &ResponseDocument) {
    let columns = differing(document, &response.cells.iter().map(|cell| &cell.levels));
    let names = columns.iter().map(|at| document.factors[*at].name.clone());
    let mut head: Vec<String> = names.collect();
    head.extend([response.response.word().to_owned(), "min to max".to_owned()]);
    let bounded = response.cells.iter().any(|cell| cell.ceiling.is_some());
    if bounded {
        head.push("of the ceiling".to_owned());
    }
    let mut rows = vec![head];
    for cell in &response.cells {
        let levels = columns.iter().filter_map(|at| cell.levels.get(*at));
        let mut row: Vec<String> = levels.cloned().collect();
        if let (Some(mean), Some(least), Some(most)) = (cell.mean, cell.least, cell.most) {
            let words = |value| in_words(response.response, value);
            let range = format!("{} to {} ({})", words(least), words(most), cell.trials);
            row.extend([words(mean), range]);
            row.extend(bounded.then(|| cell.share_in_words().unwrap_or_else(|| "?".to_owned())));
        } else {
            row.extend(["-".to_owned(), cell.why.clone().unwrap_or_default()]);
        }
        rows.push(row);
    }
    table(lines, &rows);
}

fn effects(lines: &mut Vec<String>, response: &ResponseDocument) {
    if response.effects.is_empty() {
        let why = response.left_out.clone();
        lines.push(
            why.unwrap_or_else(|| "no effects: three complete blocks are required".to_owned()),
        );
        return;
    }
    let mut rows = vec![vec![
        format!("effect on {}", response.response.word()),
        "change".to_owned(),
        "95 % CI".to_owned(),
        String::new(),
    ]];
    for effect in &response.effects {
        let mut verdict = effect.verdict(response.more_is_better).to_owned();
        if !effect.shown && is_too_noisy(effect) {
            rows.push(vec![
                effect.in_words(),
                "?".to_owned(),
                String::new(),
                TOO_NOISY.to_owned(),
            ]);
            continue;
        }
        if !effect.shown {
            let seen = detectable(effect);
            verdict = format!("{verdict} (minimum detectable effect {seen})");
        }
        let figure = effect_figure(effect);
        rows.push(vec![
            effect.in_words(),
            figure(effect.relative),
            format!("{} to {}", figure(effect.low), figure(effect.high)),
            verdict,
        ]);
    }
    table(lines, &rows);
    lines.extend(response.left_out.clone());
}

/// The hits of a server over time.
fn hits(lines: &mut Vec<String>, document: &LabDocument, server: &ServerDocument) {
    let Some(first) = server.hits.first() else {
        return;
    };
    lines.extend([String::new(), first.step_in_words()]);
    if server.hits.len() > ROWS_MAX {
        lines.push(format!("  {} combinations: {ELSEWHERE}", server.hits.len()));
        return;
    }
    let columns = differing(document, &server.hits.iter().map(|one| &one.levels));
    let names = columns.iter().map(|at| document.factors[*at].name.clone());
    let mut rows = vec![
        names
            .chain(["mean", "in each step"].map(str::to_owned))
            .collect(),
    ];
    for one in &server.hits {
        let levels = columns.iter().filter_map(|at| one.levels.get(*at));
        let mut row: Vec<String> = levels.cloned().collect();
        let steps: Vec<String> = one.per_s.iter().map(|rate| hits_in_words(*rate)).collect();
        row.extend([hits_in_words(one.mean_per_s), steps.join(" ")]);
        rows.push(row);
    }
    table(lines, &rows);
}

/// What a level takes longer than another.
fn difference(lines: &mut Vec<String>, document: &LabDocument, found: &DifferenceDocument) {
    lines.extend([String::new(), difference_in_words(found)]);
    if found.cells.len() > ROWS_MAX {
        lines.push(format!("  {} combinations: {ELSEWHERE}", found.cells.len()));
        return;
    }
    let columns = differing(document, &found.cells.iter().map(|cell| &cell.levels));
    let names = columns.iter().map(|at| document.factors[*at].name.clone());
    let mut head: Vec<String> = names.collect();
    head.extend([&found.of, &found.less].map(|level| format!("{} {level}", found.factor)));
    head.extend(["difference", "95 % CI", "blocks"].map(str::to_owned));
    let mut rows = vec![head];
    for cell in &found.cells {
        let levels = columns.iter().filter_map(|at| cell.levels.get(*at));
        let mut row: Vec<String> = levels.cloned().collect();
        let words = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), s_per_gb_in_words);
        row.extend([words(cell.of), words(cell.less), words(cell.difference)]);
        row.extend(match (cell.low, cell.high) {
            (Some(low), Some(high)) => {
                let range = format!("{} to {}", s_per_gb_in_words(low), s_per_gb_in_words(high));
                vec![range, cell.blocks.to_string()]
            }
            _ => vec![cell.why.clone().unwrap_or_default()],
        });
        rows.push(row);
    }
    table(lines, &rows);
}

fn checks(lines: &mut Vec<String>, document: &LabDocument, response: &ResponseDocument) {
    if let Some(drift) = &response.drift
        && drift.steady
    {
        lines.push(format!(
            "drift: {:+.2} % per block, in all combinations",
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
            "outliers: {}{more} (kept in the figures)",
            named.join("; ")
        ));
    }
}

/// What others published, each source with its figures and those of this run. Of figures whose combination this run has
/// not, their number must do: the document and the page have them all.
fn published(lines: &mut Vec<String>, document: &LabDocument) {
    for of_source in document
        .published
        .chunk_by(|one, other| one.source == other.source)
    {
        let (told, others): (Vec<_>, Vec<_>) =
            (of_source.iter()).partition(|one| one.yours.is_some() || one.at.is_empty());
        let (told, left) = as_many_as_fit(document, told);
        let notes = notes(of_source, |one| one.yours.is_some());
        lines.extend([String::new(), format!("published: {}", of_source[0].source)]);
        let head = ["of", "what", "published", "yours", "ratio"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(told.iter().map(|one| {
            let (yours, ratio) = one.yours_in_words();
            let figure = one.figure.clone();
            vec![one.of_in_words(), one.what_in_words(), figure, yours, ratio]
        }));
        if rows.len() > 1 {
            table(lines, &rows);
        }
        if !left.is_empty() {
            lines.push(format!("  more of {}: {ELSEWHERE}", kinds(&left)));
        }
        lines.extend(notes.iter().map(|note| format!("  note: {note}")));
        if !others.is_empty() {
            let words = "for combinations not in this run";
            lines.push(format!("  {} more {words}", others.len()));
        }
    }
    if !document.published.is_empty() {
        lines.push(OTHER_HARDWARE.to_owned());
    }
}

/// Of many published figures those that are compared with the figure that decides, or against none, and the others.
fn as_many_as_fit<'d>(
    document: &LabDocument,
    told: Vec<&'d PublishedDocument>,
) -> (Vec<&'d PublishedDocument>, Vec<&'d PublishedDocument>) {
    if told.len() <= ROWS_MAX {
        return (told, Vec::new());
    }
    let first = document.responses.first().map(|one| one.response.word());
    let (mut told, mut left): (Vec<_>, Vec<_>) = (told.into_iter())
        .partition(|one| one.held_against().is_none() || one.held_against() == first);
    left.extend(told.split_off(told.len().min(ROWS_MAX)));
    (told, left)
}

/// What published figures are compared with, each with how many are.
fn kinds(figures: &[&PublishedDocument]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for figure in figures {
        let word = figure.held_against().unwrap_or("no figure here");
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    let words = counts
        .iter()
        .map(|(word, count)| format!("{word} ({count})"));
    words.collect::<Vec<String>>().join(", ")
}

/// The flags of the trials, each with how many have it.
fn flags(document: &LabDocument) -> Vec<String> {
    let all = document.trials.len();
    let flags = document.flags().into_iter();
    flags
        .map(|(flag, count)| format!("{} ({count} of {all} trials)", flag_in_words(flag)))
        .collect()
}

#[cfg(test)]
mod tests {
    use linerate_analysis::experiment::judge;
    use linerate_analysis::made_up;

    use super::*;
    use crate::measure::fitting::assert_fits;

    #[test]
    fn a_large_experiment_fits_a_terminal_and_says_where_the_rest_of_it_is() {
        let header = made_up::header(5, 0);
        let records = made_up::tcp_vs_rdma();
        let document = judge::document(&header, &records).expect("an experiment");
        let value = serde_json::to_value(&document).expect("JSON");
        assert_fits("lab-1", &value);
        let text = text(&document);
        let lines = text.lines().count();
        assert!((100..200).contains(&lines), "{lines} lines");
        for words in [
            "cpu, user-local, user-peer, system-local, system-peer: on the page (`linerate report RUN`)",
            "difference: work yes minus work no, wall-clock seconds per GB",
            "more of cpu (40), user-local (40), user-peer (40), system-local (40), system-peer (40), difference (20): on",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        // Of each combination both times, the difference and its interval.
        let row = text
            .lines()
            .find(|line| line.contains("tcp        4MiB    8 "));
        let row = row.expect("a row of the difference");
        assert!(
            row.contains("0.396 s/GB") && row.contains("0.198 s/GB"),
            "{row}"
        );
    }
}
