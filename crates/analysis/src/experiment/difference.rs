//! What one level of a factor takes longer than the other: real seconds for each GB moved, one less the other within the
//! same block, for each combination of the other factors. What drifts from block to block is in both.

use std::collections::BTreeSet;

use linerate_model::lab::{Cell, Difference, DifferencePlaces, Response};
use linerate_stats::Seed;
use linerate_stats::effect::mean_with_interval;
use linerate_stats::summary::mean;

use super::document::{DifferenceCell, DifferenceDocument};
use super::judge::{BLOCKS_OF_EFFECTS, ResolvedDesign};
use super::sorted::ExperimentRecords;
use crate::text::words::count;
use crate::trial::LEVEL;

/// The differences; none where the experiment asks for none.
pub fn document(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    seed: u64,
) -> Option<DifferenceDocument> {
    let experiment = sorted.experiment;
    let places = experiment.difference_places()?;
    let factor = &experiment.factors[places.factor];
    let level = |place| factor.level(place).unwrap_or_default().name;
    let earlier = sorted.earlier_cells();
    let mut seen: BTreeSet<Cell> = BTreeSet::new();
    let with = laid.cells.iter().chain(&earlier).map(|cell| {
        let mut with = cell.clone();
        with[places.factor] = places.of;
        with
    });
    let cells = with.filter(|cell| seen.insert(cell.clone()));
    Some(DifferenceDocument {
        factor: factor.name().to_owned(),
        of: level(places.of),
        less: level(places.less),
        unit: Difference::UNIT,
        level: LEVEL,
        cells: cells.map(|cell| one(sorted, places, &cell, seed)).collect(),
    })
}

/// Seconds for each GB, of all flows together.
fn time(sorted: &ExperimentRecords<'_>, block: u32, cell: &[usize]) -> Option<f64> {
    let rate = sorted.value(Response::Rate, block, cell)?;
    Some(8e9 / rate)
}

fn one(
    sorted: &ExperimentRecords<'_>,
    places: DifferencePlaces,
    with: &Cell,
    seed: u64,
) -> DifferenceCell {
    let mut without = with.clone();
    without[places.factor] = places.less;
    let blocks = sorted.blocks_of_cell(with).into_iter();
    let pairs: Vec<(f64, f64)> = blocks
        .filter_map(|block| Some((time(sorted, block, with)?, time(sorted, block, &without)?)))
        .collect();
    let times = |pick: fn(&(f64, f64)) -> f64| -> Vec<f64> { pairs.iter().map(pick).collect() };
    let differences = times(|(with, without)| with - without);
    let found = mean_with_interval(&differences, sorted.level(), Seed(seed)).ok();
    let why = || {
        let missing = [with, &without]
            .into_iter()
            .find_map(|cell| gap(sorted, cell));
        missing.unwrap_or_else(|| {
            format!(
                "{} with both: at least {BLOCKS_OF_EFFECTS} are required",
                count(pairs.len(), "block")
            )
        })
    };
    DifferenceCell {
        levels: sorted.experiment.level_names(with),
        of: mean(&times(|(with, _)| *with)).ok(),
        less: mean(&times(|(_, without)| *without)).ok(),
        difference: found.map(|found| found.mean),
        low: found.map(|found| found.interval.low),
        high: found.map(|found| found.interval.high),
        blocks: pairs.len(),
        why: found.is_none().then(why),
    }
}

/// Why there are no times of a combination at all; none where there are some.
fn gap(sorted: &ExperimentRecords<'_>, cell: &Cell) -> Option<String> {
    if !sorted.values(Response::Rate, cell).is_empty() {
        return None;
    }
    let experiment = sorted.experiment;
    let skipped = sorted
        .left
        .iter()
        .find(|(factor, level, _)| cell[*factor] == *level);
    if let Some((factor, level, why)) = skipped {
        let factor = &experiment.factors[*factor];
        let level = factor.level(*level).unwrap_or_default().name;
        return Some(format!("{} {level} was skipped: {why}", factor.name()));
    }
    let names = experiment.level_names(cell).join(", ");
    let blocks = sorted.blocks_of_cell(cell).into_iter();
    let made: Vec<_> = blocks
        .filter_map(|block| sorted.cells.get(&(block, cell.as_slice())))
        .collect();
    let why = made.iter().find_map(|made| made.why);
    Some(match (why, made.is_empty()) {
        (Some(why), _) => format!("{names}: {why}"),
        (None, true) => format!("{names} has no trials"),
        (None, false) => format!("no trial of {names} has a rate"),
    })
}

/// A description of it.
pub fn in_words(found: &DifferenceDocument) -> String {
    let DifferenceDocument {
        factor, of, less, ..
    } = found;
    format!(
        "difference: {factor} {of} minus {factor} {less}, wall-clock seconds per GB moved by all \
         flows, paired within blocks"
    )
}
