//! The rate of each flow in each combination with its sum and fairness, as iperf prints them: whether many flows are equal
//! does not show in the sum.

use std::collections::BTreeMap;

use linerate_model::plan::End;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::trust::fairness;
use linerate_model::units::BitRate;
use linerate_model::workload::Workload;
use linerate_stats::summary::{mean, median};
use serde::Serialize;

use super::judge::ResolvedDesign;
use super::sorted::ExperimentRecords;

/// Combinations with more flows are not listed flow by flow.
const FLOWS_MAX: usize = 64;

/// The flows of each combination of a stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowsDocument {
    /// Each combination with at most 64 flows.
    pub cells: Vec<FlowsOfCell>,
}

/// The flows of one combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowsOfCell {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// The mean rate of each flow over the trials, from the start to its end.
    pub flows: Vec<FlowRate>,
    /// Their sum.
    pub sum_bit_per_s: f64,
    /// Jain's fairness index, the median of the trials: 1 if all flows are equal, 1/count if one has everything; null for
    /// a single flow.
    pub fairness: Option<f64>,
}

/// The rate of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowRate {
    /// Its number.
    pub flow: u32,
    /// The end that sends.
    pub from: End,
    /// The mean.
    pub rate_bit_per_s: f64,
}

/// None where no combination is a stream of several flows.
pub(super) fn document(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
) -> Option<FlowsDocument> {
    let cells = laid.cells.iter().filter_map(|cell| {
        let samples = sorted.samples(cell);
        let streams = samples
            .iter()
            .filter(|one| matches!(one.spec.workload, Workload::Stream(_)));
        let streams: Vec<&Sample> = streams.copied().collect();
        of_cell(&streams, sorted.experiment.level_names(cell))
    });
    let cells: Vec<FlowsOfCell> = cells.collect();
    let several = cells.iter().any(|cell| cell.flows.len() > 1);
    several.then_some(FlowsDocument { cells })
}

fn of_cell(samples: &[&Sample], levels: Vec<String>) -> Option<FlowsOfCell> {
    let mut rates: BTreeMap<(End, u32), Vec<f64>> = BTreeMap::new();
    let mut indices = Vec::new();
    for sample in samples {
        let of_trial = rates_of(sample);
        let values: Vec<f64> = of_trial.iter().map(|(_, rate)| *rate).collect();
        indices.extend(fairness(&values));
        for (flow, rate) in of_trial {
            rates.entry(flow).or_default().push(rate);
        }
    }
    if rates.is_empty() || rates.len() > FLOWS_MAX {
        return None;
    }
    let one = |((from, flow), rates): ((End, u32), Vec<f64>)| {
        let rate_bit_per_s = mean(&rates).ok()?;
        Some(FlowRate {
            flow,
            from,
            rate_bit_per_s,
        })
    };
    let flows: Vec<FlowRate> = rates.into_iter().filter_map(one).collect();
    Some(FlowsOfCell {
        levels,
        sum_bit_per_s: flows.iter().map(|flow| flow.rate_bit_per_s).sum(),
        flows,
        fairness: median(&indices).ok(),
    })
}

/// The flows of a trial by the end that sends, as their receivers counted them.
fn rates_of(sample: &Sample) -> Vec<((End, u32), f64)> {
    let of = |receiving: &SideSample, from: End| -> Vec<((End, u32), f64)> {
        let rate = |flow: &linerate_model::sample::FlowRecord| {
            let rate = BitRate::of(flow.total(), *flow.at_ns.last()?)?;
            Some(((from, flow.flow), rate.as_f64()))
        };
        receiving.receivers().filter_map(rate).collect()
    };
    let there = of(&sample.remote, End::Local);
    let here = of(&sample.local, End::Remote);
    there.into_iter().chain(here).collect()
}

impl FlowsDocument {
    /// A row for each flow, a column for each combination, then the sum and the fairness.
    pub fn table(&self) -> Vec<Vec<String>> {
        let names = self.cells.iter().map(|cell| cell.levels.join(", "));
        let head = std::iter::once("flow".to_owned()).chain(names).collect();
        let longest = self.cells.iter().max_by_key(|cell| cell.flows.len());
        let flows = longest.map_or(&[][..], |cell| &cell.flows);
        let rate = |rate: f64| BitRate::from_f64(rate).map(|rate| rate.to_string());
        let row = |name: String, of: &dyn Fn(&FlowsOfCell) -> Option<String>| {
            let cells = self
                .cells
                .iter()
                .map(|cell| of(cell).unwrap_or_else(|| "-".to_owned()));
            std::iter::once(name).chain(cells).collect::<Vec<String>>()
        };
        let both = flows.iter().any(|flow| flow.from == End::Remote)
            && flows.iter().any(|flow| flow.from == End::Local);
        let each = flows.iter().map(|flow| {
            let name = if both {
                format!("{} {}", flow.from, flow.flow)
            } else {
                flow.flow.to_string()
            };
            row(name, &|cell| {
                let same = |one: &&FlowRate| (one.from, one.flow) == (flow.from, flow.flow);
                rate(cell.flows.iter().find(same)?.rate_bit_per_s)
            })
        });
        let sum = row("SUM".to_owned(), &|cell| rate(cell.sum_bit_per_s));
        let fairness = row("fairness".to_owned(), &|cell| {
            Some(format!("{:.3}", cell.fairness?))
        });
        std::iter::once(head)
            .chain(each)
            .chain([sum, fairness])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn each_flow_has_its_rate_and_the_sum_and_fairness_stand_below() {
        let sample = build::sample().flows(2).gbit(10).build();
        let cell = of_cell(&[&sample, &sample], vec!["two".to_owned()]).expect("flows");
        assert_eq!(cell.flows.len(), 2);
        let sum: f64 = cell.flows.iter().map(|flow| flow.rate_bit_per_s).sum();
        assert!((cell.sum_bit_per_s - sum).abs() < 1.0);
        assert!(cell.fairness.is_some_and(|index| index > 0.99));
        let one = of_cell(&[&build::sample().gbit(10).build()], vec!["one".to_owned()]);
        let document = FlowsDocument {
            cells: vec![one.expect("a flow"), cell],
        };
        let table = document.table();
        assert_eq!(table[0], ["flow", "one", "two"]);
        assert_eq!(table.len(), 5);
        // The single flow has no second one, and no fairness.
        assert_eq!((table[2][1].as_str(), table[4][1].as_str()), ("-", "-"));
    }
}
