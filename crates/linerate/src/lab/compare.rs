//! `linerate compare`: what changed from some runs of an experiment to others, combination by combination.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path as FilePath, PathBuf};

use linerate_analysis::experiment::compare::{
    CompareDocument, Compared, FEWEST_RUNS, Side, Unit, Verdict, difference, document, values,
};
use linerate_analysis::experiment::experiment_of;
use linerate_analysis::experiment::sorted::{ExperimentRecords, sort};
use linerate_analysis::trial::figure::in_words;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Experiment, Response};
use linerate_store as store;

use crate::cli::RunGroup;
use crate::console::say::{Format, Say};

/// Runs `compare`. Exit code 11 on a regression, 12 if inconclusive.
pub(crate) fn run(before: &RunGroup, after: &RunGroup, margin: f64, say: &Say) -> Outcome<()> {
    check_distinct(before, after)?;
    let baseline = Baseline::of(before)?;
    let response = baseline.response;
    let (before, after) = (baseline.side(before)?, baseline.side(after)?);
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

/// The first run: every other one must be of the same experiment.
struct Baseline<'a> {
    folder: &'a FilePath,
    experiment: Experiment,
    /// Its first response: the one that decides.
    response: Response,
}

impl<'a> Baseline<'a> {
    fn of(group: &'a RunGroup) -> Outcome<Self> {
        let folder = group.0.first().map_or(FilePath::new(""), PathBuf::as_path);
        let (experiment, response) = of_records(folder, |sorted| {
            let response = sorted.responses().first().copied();
            (sorted.experiment.clone(), response)
        })?;
        let none = || {
            let why = format!("{} has no trial with a result", folder.display());
            Stop::new(Code::Inconclusive, why)
        };
        Ok(Self {
            folder,
            experiment,
            response: response.ok_or_else(none)?,
        })
    }

    /// Reads the runs of a side, one at a time: only their figures stay in memory.
    fn side(&self, group: &RunGroup) -> Outcome<Side> {
        let runs = group.0.iter().map(|folder| {
            let found = of_records(folder, |sorted| {
                let difference = difference(&self.experiment, sorted);
                difference.map_or_else(|| Ok(values(sorted, self.response)), Err)
            })?;
            found.map_err(|why| self.refused(folder, &why))
        });
        Ok(Side {
            name: group.to_string(),
            runs: runs.collect::<Outcome<_>>()?,
        })
    }

    fn refused(&self, folder: &FilePath, why: &str) -> Stop {
        let (run, baseline) = (folder.display(), self.folder.display());
        let why = format!("cannot compare {run} with {baseline}: {why}");
        Stop::new(Code::BadInput, why).hint("make all runs with the same experiment file")
    }
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
