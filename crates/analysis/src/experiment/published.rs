//! Published figures, compared with those of a run.

use linerate_model::lab::{Amount, Cell, Published, PublishedFigure, Response};

use super::bound::Bounds;
use super::document::{DifferenceDocument, PublishedDocument, YoursDocument};
use super::judge::{ResolvedDesign, without_factors};
use super::sorted::ExperimentRecords;
use crate::trial::figure::{in_words, mean, s_per_gb_in_words};

/// The note on the ratio to a published figure.
pub const OTHER_HARDWARE: &str = "The published figures come from other hardware and other \
    programs: a ratio shows the distance between figures, not which one is good.";

/// Every published figure with the one of the same combination.
pub(super) fn documents(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    difference: Option<&DifferenceDocument>,
    bounds: Option<&Bounds<'_>>,
) -> Vec<PublishedDocument> {
    let of = |published: &Published| {
        let figures = published.figures.iter();
        let documents = figures
            .filter_map(|figure| document((sorted, bounds), laid, difference, published, figure));
        documents.collect::<Vec<_>>()
    };
    sorted.experiment.published.iter().flat_map(of).collect()
}

fn document(
    (sorted, bounds): (&ExperimentRecords<'_>, Option<&Bounds<'_>>),
    laid: &ResolvedDesign,
    difference: Option<&DifferenceDocument>,
    published: &Published,
    figure: &PublishedFigure,
) -> Option<PublishedDocument> {
    let amount = figure.amount()?;
    let cell = || cell((sorted, bounds), laid, published, figure);
    let own = match (published.response, published.difference) {
        (Some(response), _) => cell().and_then(|cell| own(sorted, response, &cell, amount)),
        (None, true) => cell().and_then(|cell| {
            let levels = sorted.experiment.level_names(&cell);
            own_difference(difference, levels, amount)
        }),
        (None, false) => Err("not a figure of this run".to_owned()),
    };
    let at = figure.at.iter();
    let (yours, why) = match own {
        Ok(yours) => (Some(yours), None),
        Err(why) => (None, Some(why)),
    };
    Some(PublishedDocument {
        source: published.source.clone(),
        what: published.what.clone(),
        response: published.response,
        difference: published.difference,
        case: figure.case.clone(),
        at: at
            .map(|(name, level)| (name.clone(), level.to_string()))
            .collect(),
        figure: figure.in_words(),
        low: amount.low,
        high: amount.high,
        unit: amount.unit,
        yours,
        why,
        note: published.note.clone(),
    })
}

/// The combination that a published figure is of: a factor that it does not name is at its first level, that of a
/// difference at the one whose time it is.
fn cell(
    (sorted, bounds): (&ExperimentRecords<'_>, Option<&Bounds<'_>>),
    laid: &ResolvedDesign,
    published: &Published,
    figure: &PublishedFigure,
) -> Result<Cell, String> {
    if figure.at.is_empty() {
        return Err("no matching combination".to_owned());
    }
    let difference = sorted.experiment.difference_places();
    let difference = difference.filter(|_| published.difference);
    let mut cell = without_factors(sorted.experiment);
    for (at, factor) in sorted.experiment.factors.iter().enumerate() {
        if let Some(places) = difference.filter(|places| places.factor == at) {
            cell[at] = places.of;
            continue;
        }
        let Some(level) = figure.at.get(factor.name()) else {
            cell[at] = laid.kept[at].first().copied().unwrap_or(cell[at]);
            continue;
        };
        let level = level.to_string();
        let names = factor.level_names();
        let place = names.iter().position(|name| *name == level);
        let place = place.ok_or_else(|| format!("this run has no {} {level}", factor.name()))?;
        let skipped = sorted.left.iter().find(|(f, l, _)| (*f, *l) == (at, place));
        if let Some((_, _, why)) = skipped {
            return Err(format!("{} {level} was skipped: {why}", factor.name()));
        }
        // What was published is a level with all of its settings.
        if let Some(setting) = bounds.and_then(|bounds| bounds.went_without(at, place)) {
            return Err(format!("{} {level} went without {setting}", factor.name()));
        }
        cell[at] = place;
    }
    if difference.is_some() || laid.cells.contains(&cell) {
        Ok(cell)
    } else {
        Err("the design has no such combination".to_owned())
    }
}

fn own(
    sorted: &ExperimentRecords<'_>,
    response: Response,
    cell: &Cell,
    published: Amount,
) -> Result<YoursDocument, String> {
    let values = sorted.values(response, cell);
    let mean = mean(response, &values);
    let mean = mean.ok_or_else(|| format!("no trial reports its {}", response.word()))?;
    let levels = sorted.experiment.level_names(cell);
    Ok(yours(levels, mean, values.len(), published))
}

fn own_difference(
    difference: Option<&DifferenceDocument>,
    levels: Vec<String>,
    published: Amount,
) -> Result<YoursDocument, String> {
    let mut cells = difference.into_iter().flat_map(|one| &one.cells);
    let cell = cells.find(|cell| cell.levels == levels);
    let cell = cell.ok_or("the design has no such combination")?;
    let mean = cell.difference.ok_or_else(|| cell.why.clone());
    let mean = mean.map_err(|why| why.unwrap_or_else(|| "it is unknown".to_owned()))?;
    Ok(yours(levels, mean, 2 * cell.blocks, published))
}

fn yours(levels: Vec<String>, mean: f64, trials: usize, published: Amount) -> YoursDocument {
    // For a negative difference the larger published figure is the nearer one.
    let ratios = [mean / published.high, mean / published.low];
    YoursDocument {
        levels,
        mean,
        trials,
        ratio_low: ratios[0].min(ratios[1]),
        ratio_high: ratios[0].max(ratios[1]),
    }
}

/// What the sources of published figures did differently, of those that `of` selects: each note once.
pub fn notes(all: &[PublishedDocument], of: impl Fn(&PublishedDocument) -> bool) -> Vec<&str> {
    let mut notes: Vec<&str> = Vec::new();
    for note in all
        .iter()
        .filter(|one| of(one))
        .filter_map(|one| one.note.as_deref())
    {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

impl PublishedDocument {
    /// What it describes: levels, and the part that no factor defines.
    pub fn of_in_words(&self) -> String {
        let levels = self
            .at
            .iter()
            .map(|(name, level)| format!("{name} {level}"));
        let words: Vec<String> = self.case.iter().cloned().chain(levels).collect();
        words.join(", ")
    }

    /// The word of what it is compared with.
    pub fn held_against(&self) -> Option<&'static str> {
        let response = self.response.map(Response::word);
        response.or(self.difference.then_some("difference"))
    }

    /// What kind of figure it is.
    pub fn what_in_words(&self) -> String {
        let words: Vec<&str> = (self.held_against().into_iter())
            .chain(self.what.as_deref())
            .collect();
        words.join(", ")
    }

    /// One's own figure, or why there is none, and the ratio.
    pub fn yours_in_words(&self) -> (String, String) {
        let Some(yours) = &self.yours else {
            return (self.why.clone().unwrap_or_default(), String::new());
        };
        let own = match self.response {
            Some(response) => in_words(response, yours.mean),
            None => s_per_gb_in_words(yours.mean),
        };
        let (low, high) = (yours.ratio_low, yours.ratio_high);
        // Equal where one number was published, but for the last digit.
        let ratio = if (high - low).abs() <= 1e-9 * high.abs() {
            format!("{low:.2}x")
        } else {
            format!("{low:.2}x to {high:.2}x")
        };
        (own, ratio)
    }
}
