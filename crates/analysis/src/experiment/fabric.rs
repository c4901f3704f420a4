//! The table of a fabric, as reports print it: for each path, transport or setting the latency of the smallest message
//! and the rate of the largest, with the rate's share of what the path carries as payload (net) and of what its link
//! signals (gross).

use linerate_model::lab::{Experiment, Response, Unit};
use linerate_model::units::Bytes;
use serde::Serialize;

use super::bound::Bounds;
use super::document::ResponseDocument;
use super::judge::ResolvedDesign;
use super::sorted::ExperimentRecords;
use crate::trial::figure::in_words;

/// Latency and rate of each combination of the other factors.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FabricDocument {
    /// The other factors.
    pub factors: Vec<String>,
    /// The message size of the latency.
    pub small: String,
    /// The message size of the rate.
    pub large: String,
    /// Each combination of the other factors.
    pub rows: Vec<FabricRow>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FabricRow {
    /// The levels of the other factors.
    pub levels: Vec<String>,
    /// The latency of the small message, seconds; null if it was not measured.
    pub latency_s: Option<f64>,
    /// The rate of the large message; null if it was not measured.
    pub rate_bit_per_s: Option<f64>,
    /// The rate as a share of what the path carries as payload; null if no bound of the path is known.
    pub of_net: Option<f64>,
    /// The rate as a share of what the slower end's link signals; null if that is not known.
    pub of_gross: Option<f64>,
}

impl FabricDocument {
    /// The head of the table, and its rows.
    pub fn table(&self) -> Vec<Vec<String>> {
        let figures = [
            format!("latency at {}", self.small),
            format!("rate at {}", self.large),
            "of net".to_owned(),
            "of gross".to_owned(),
        ];
        let head = self.factors.iter().cloned().chain(figures).collect();
        let rows = self.rows.iter().map(FabricRow::cells);
        std::iter::once(head).chain(rows).collect()
    }
}

impl FabricRow {
    fn cells(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        // As the benchmarks of the field print it.
        let mib = |rate: f64| format!("{:.1} MiB/s", rate / 8.0 / f64::from(1u32 << 20));
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let figures = [
            or_dash(self.latency_s.map(|time| in_words(Response::Mean, time))),
            or_dash(self.rate_bit_per_s.map(mib)),
            or_dash(self.of_net.map(percent)),
            or_dash(self.of_gross.map(percent)),
        ];
        self.levels.iter().cloned().chain(figures).collect()
    }
}

/// None of an experiment that does not vary the size of messages, or measures only one of latency and rate.
pub(super) fn document(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    responses: &[ResponseDocument],
    bounds: Option<&Bounds<'_>>,
) -> Option<FabricDocument> {
    let experiment = sorted.experiment;
    let factors = experiment.factors.iter();
    let size = factors
        .clone()
        .position(|factor| factor.option.as_deref() == Some("sizes"))?;
    let (small, large) = ends_of(experiment, size, &laid.kept[size])?;
    let of = |fits: fn(Response) -> bool| responses.iter().find(|one| fits(one.response));
    let latency = of(|response| response.unit() == Unit::S)?;
    let rate = of(|response| response == Response::Rate)?;
    let mut rows = Vec::new();
    for (at, cell) in laid.cells.iter().enumerate() {
        if cell[size] != large {
            continue;
        }
        let mut with_small = cell.clone();
        with_small[size] = small;
        let small_at = laid.cells.iter().position(|one| *one == with_small);
        let reached = &rate.cells[at];
        let gross = bounds.and_then(|bounds| bounds.link(cell, &sorted.samples(cell)));
        let mut levels = experiment.level_names(cell);
        levels.remove(size);
        rows.push(FabricRow {
            levels,
            latency_s: small_at.and_then(|at| latency.cells[at].mean),
            rate_bit_per_s: reached.mean,
            of_net: reached.ceiling.as_ref().and_then(|ceiling| ceiling.share),
            of_gross: (reached.mean.zip(gross)).map(|(mean, link)| mean / link.as_f64()),
        });
    }
    let name = |level: usize| Some(experiment.factors[size].level(level)?.name);
    Some(FabricDocument {
        factors: factors
            .enumerate()
            .filter(|(at, _)| *at != size)
            .map(|(_, factor)| factor.name().to_owned())
            .collect(),
        small: name(small)?,
        large: name(large)?,
        rows,
    })
}

/// The measured levels with the smallest and the largest message.
fn ends_of(experiment: &Experiment, size: usize, kept: &[usize]) -> Option<(usize, usize)> {
    let bytes = |level: &usize| {
        let name = experiment.factors[size].level(*level)?.name;
        Some((name.parse::<Bytes>().ok()?, *level))
    };
    let mut sizes: Vec<(Bytes, usize)> = kept.iter().filter_map(bytes).collect();
    sizes.sort_unstable();
    let (first, last) = (sizes.first()?, sizes.last()?);
    (first.0 != last.0).then_some((first.1, last.1))
}
