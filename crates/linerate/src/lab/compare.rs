//! `linerate compare`: what changed from some runs of an experiment to others, combination by combination.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path as FilePath, PathBuf};

use linerate_analysis::experiment::compare::{
    CompareDocument, Compared, FEWEST_RUNS, Side, Unit, Verdict, document, values,
};
use linerate_analysis::experiment::experiment_of;
use linerate_analysis::experiment::sorted::{ExperimentRecords, sort};
use linerate_analysis::trial::figure::in_words;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::Response;
use linerate_store as store;

use crate::cli::RunGroup;
use crate::console::say::{Format, Say};

/// Runs `compare`. Exit code 11 on a regression, 12 if inconclusive.
pub(crate) fn run(before: &RunGroup, after: &RunGroup, margin: f64, say: &Say) -> Outcome<()> {
    check_distinct(before, after)?;
    let response = response_of(before)?;
    let (before, after) = (side(before, response)?, side(after, response)?);
    let Some(document) = document(before, after, response, margin) else {
        let why = format!(
            "the runs share no combination with {FEWEST_RUNS} runs on each side, or with \
             {FEWEST_RUNS} trials"
        );
        return Err(Stop::new(Code::Inconclusive, why));
    };
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.data(&text(&document))?;
    }
    match document.verdict {
        Verdict::NotWorse => Ok(()),
        Verdict::Worse => Err(Stop::new(Code::Regression, "regression")),
        Verdict::CannotTell => {
            let why = document.why.as_deref();
            let why = why.unwrap_or("the runs do not show whether there is a regression");
            let hint = match (document.unit, &document.why) {
                (Unit::Trial, _) => {
                    "compare at least three runs with three: `linerate compare A1,A2,A3 B1,B2,B3`"
                }
                (Unit::Run, None) => "use more runs on each side, or a larger `--margin`",
                (Unit::Run, Some(_)) => "`linerate lab show RUN` shows why it has no result",
            };
            Err(Stop::new(Code::Inconclusive, format!("inconclusive: {why}")).hint(hint))
        }
    }
}

/// A run that is named twice would look like two runs that do not differ.
fn check_distinct(before: &RunGroup, after: &RunGroup) -> Outcome<()> {
    let mut seen = BTreeSet::new();
    for folder in before.0.iter().chain(&after.0) {
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
        if !seen.insert(real) {
            let why = format!("cannot compare {}: it is named twice", folder.display());
            return Err(Stop::new(Code::Usage, why).hint("name each run once"));
        }
    }
    Ok(())
}

/// The first response of the first run: the one that decides.
fn response_of(group: &RunGroup) -> Outcome<Response> {
    let none = |run: &FilePath| {
        let why = format!("{} has no trial with a result", run.display());
        Stop::new(Code::Inconclusive, why)
    };
    let first = group.0.first().map_or(FilePath::new(""), PathBuf::as_path);
    of_records(first, |sorted| sorted.responses().first().copied())?.ok_or_else(|| none(first))
}

/// Reads the runs of a side, one at a time: only their figures stay in memory.
fn side(group: &RunGroup, response: Response) -> Outcome<Side> {
    let runs = group.0.iter();
    let runs = runs.map(|folder| of_records(folder, |sorted| values(sorted, response)));
    Ok(Side {
        name: group.to_string(),
        runs: runs.collect::<Outcome<_>>()?,
    })
}

/// Something of a stored run.
fn of_records<T>(folder: &FilePath, find: impl Fn(&ExperimentRecords<'_>) -> T) -> Outcome<T> {
    let stored = store::read(folder)?;
    experiment_of(&stored)?;
    let sorted = sort(&stored.records);
    let none = || Stop::new(Code::BadInput, "not records of an experiment");
    sorted.as_ref().map(find).ok_or_else(none)
}

fn text(document: &CompareDocument) -> String {
    let mut lines = vec![format!(
        "{} of {} vs {}; regressions below {:.1} % are ignored",
        document.response.word(),
        document.after,
        document.before,
        document.margin * 100.0
    )];
    lines.push(intervals(document));
    let named = document
        .cells
        .iter()
        .map(|cell| (cell.levels.join(", "), cell));
    let overall = document
        .overall
        .iter()
        .map(|all| ("geometric mean".to_owned(), all));
    for (name, cell) in named.chain(overall) {
        lines.push(format!("  {name}: {}", change(document.response, cell)));
    }
    for levels in &document.unmatched {
        lines.push(format!(
            "  {levels}: on one side only, too few runs or trials, or trials with 0"
        ));
    }
    lines.push(document.verdict.word().to_owned());
    lines.join("\n")
}

/// What an interval is computed from.
fn intervals(document: &CompareDocument) -> String {
    let (before, after) = (document.runs_before, document.runs_after);
    let error = document.error * 100.0;
    match document.unit {
        Unit::Run => format!(
            "one mean per run, {after} runs vs {before}; a verdict on all combinations is wrong \
             in at most {error:.0} % of comparisons"
        ),
        Unit::Trial => {
            "intervals between trials: they do not include drift between runs".to_owned()
        }
    }
}

fn change(response: Response, cell: &Compared) -> String {
    let percent = |low: f64, high: f64| format!("[{:+.1}, {:+.1}]", low * 100.0, high * 100.0);
    // A single combination needs no correction.
    let corrected = if cell.level_among_all > cell.level {
        format!(
            ", corrected {:.2} % {}",
            cell.level_among_all * 100.0,
            percent(cell.low_among_all, cell.high_among_all)
        )
    } else {
        String::new()
    };
    format!(
        "{} -> {}, {:+.1} %, {:.0} % CI {}{corrected}: {}",
        in_words(response, cell.before),
        in_words(response, cell.after),
        cell.relative * 100.0,
        cell.level * 100.0,
        percent(cell.low, cell.high),
        cell.verdict.word()
    )
}
