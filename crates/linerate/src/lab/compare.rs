//! `linerate compare`: what changed from one run of an experiment to another, combination by combination.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use linerate_analysis::experiment::sorted::{ExperimentRecords, sort};
use linerate_analysis::trial::LEVEL;
use linerate_analysis::trial::figure::{figure, in_words, mean};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Cell, Response};
use linerate_stats::effect::unpaired_relative;
use linerate_store as store;
use serde::Serialize;

use crate::console::say::{Format, Say};

/// What `linerate compare RUN RUN --format json` prints: the changes from one run of an experiment to another.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CompareDocument {
    schema: &'static str,
    before: String,
    after: String,
    response: Response,
    more_is_better: bool,
    /// Regressions smaller than this share are ignored.
    margin: f64,
    /// The worst verdict of all combinations.
    verdict: Verdict,
    cells: Vec<Compared>,
    /// Combinations that only one of the runs has, or with too few trials.
    unmatched: Vec<String>,
}

/// A combination in both runs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Compared {
    levels: Vec<String>,
    before: f64,
    after: f64,
    relative: f64,
    low: f64,
    high: f64,
    level: f64,
    smallest_detectable: f64,
    verdict: Verdict,
}

/// The verdict on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// It is no worse than by the margin.
    NotWorse,
    /// It may be worse by more than the margin, or not.
    CannotTell,
    /// It is worse.
    Worse,
}

impl Verdict {
    /// `low` and `high` are of a change for which more is better.
    fn of(low: f64, high: f64, margin: f64) -> Self {
        if high < 0.0 && low < -margin {
            Self::Worse
        } else if low >= -margin {
            Self::NotWorse
        } else {
            Self::CannotTell
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::NotWorse => "not worse",
            Self::CannotTell => "inconclusive",
            Self::Worse => "worse",
        }
    }
}

/// Runs `compare`. Exit code 11 on a regression, 12 if inconclusive.
pub(crate) fn run(before: &FilePath, after: &FilePath, margin: f64, say: &Say) -> Outcome<()> {
    let stored = [store::read(before)?, store::read(after)?];
    for run in &stored {
        linerate_analysis::experiment::experiment_of(run)?;
    }
    let sorted = |run: usize| sort(&stored[run].records);
    let (Some(old), Some(new)) = (sorted(0), sorted(1)) else {
        return Err(Stop::new(Code::BadInput, "not records of an experiment"));
    };
    let response = old.responses().first().copied().ok_or_else(|| {
        let why = format!("{} has no trial with a result", before.display());
        Stop::new(Code::Inconclusive, why)
    })?;
    let (cells, unmatched) = compared(&old, &new, response, margin);
    let verdict = cells.iter().map(|cell| cell.verdict).max();
    let Some(verdict) = verdict else {
        let why = "the two runs share no combination with at least three trials each";
        return Err(Stop::new(Code::Inconclusive, why));
    };
    let document = CompareDocument {
        schema: "linerate.compare/1",
        before: before.display().to_string(),
        after: after.display().to_string(),
        response,
        more_is_better: response.more_is_better(),
        margin,
        verdict,
        cells,
        unmatched,
    };
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.data(&text(&document))?;
    }
    match verdict {
        Verdict::NotWorse => Ok(()),
        Verdict::CannotTell => Err(Stop::new(
            Code::Inconclusive,
            "inconclusive: the runs do not show whether there is a regression",
        )
        .hint("use more repeats, longer trials, or a larger `--margin`")),
        Verdict::Worse => Err(Stop::new(Code::Regression, "regression")),
    }
}

/// The values of each combination, by the names of its levels.
fn values(sorted: &ExperimentRecords<'_>, response: Response) -> BTreeMap<Vec<String>, Vec<f64>> {
    let mut values: BTreeMap<Vec<String>, Vec<f64>> = BTreeMap::new();
    for ((_, cell), made) in &sorted.cells {
        let cell: Cell = cell.to_vec();
        let value = made
            .samples
            .first()
            .and_then(|sample| figure(response, sample));
        let names = sorted.experiment.level_names(&cell);
        values.entry(names).or_default().extend(value);
    }
    values
}

fn compared(
    old: &ExperimentRecords<'_>,
    new: &ExperimentRecords<'_>,
    response: Response,
    margin: f64,
) -> (Vec<Compared>, Vec<String>) {
    let (old, new) = (values(old, response), values(new, response));
    let mut compared = Vec::new();
    let mut unmatched = Vec::new();
    for (levels, before) in &old {
        let change = new.get(levels).and_then(|after| {
            let change = unpaired_relative(before, after, LEVEL).ok()?;
            Some((after, change))
        });
        let Some((after, change)) = change else {
            unmatched.push(levels.join(", "));
            continue;
        };
        let (low, high) = (change.interval.low, change.interval.high);
        let verdict = if response.more_is_better() {
            Verdict::of(low, high, margin)
        } else {
            // Less is better: the change of one over the figure.
            Verdict::of(1.0 / (1.0 + high) - 1.0, 1.0 / (1.0 + low) - 1.0, margin)
        };
        compared.push(Compared {
            levels: levels.clone(),
            before: middle(response, before),
            after: middle(response, after),
            relative: change.relative,
            low,
            high,
            level: LEVEL,
            smallest_detectable: change.smallest_detectable,
            verdict,
        });
    }
    unmatched.extend(
        new.keys()
            .filter(|levels| !old.contains_key(*levels))
            .map(|levels| levels.join(", ")),
    );
    (compared, unmatched)
}

fn middle(response: Response, values: &[f64]) -> f64 {
    mean(response, values).unwrap_or(f64::NAN)
}

fn text(document: &CompareDocument) -> String {
    let mut lines = vec![format!(
        "{} of {} vs {}; regressions below {:.1} % are ignored",
        document.response.word(),
        document.after,
        document.before,
        document.margin * 100.0
    )];
    for cell in &document.cells {
        lines.push(format!(
            "  {}: {} -> {}, {:+.1} % [{:+.1}, {:+.1}]: {}",
            cell.levels.join(", "),
            in_words(document.response, cell.before),
            in_words(document.response, cell.after),
            cell.relative * 100.0,
            cell.low * 100.0,
            cell.high * 100.0,
            cell.verdict.word()
        ));
    }
    for levels in &document.unmatched {
        lines.push(format!(
            "  {levels}: in one of the runs only, too few trials, or trials with 0"
        ));
    }
    lines.push(document.verdict.word().to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_the_interval_and_the_margin() {
        assert_eq!(Verdict::of(-0.01, 0.02, 0.05), Verdict::NotWorse);
        assert_eq!(Verdict::of(-0.04, -0.01, 0.05), Verdict::NotWorse);
        assert_eq!(Verdict::of(-0.2, 0.1, 0.05), Verdict::CannotTell);
        assert_eq!(Verdict::of(-0.2, -0.01, 0.05), Verdict::Worse);
    }
}
