//! Earlier runs that are levels of an experiment.

use std::path::Path;

use linerate_analysis::experiment::earlier::record;
use linerate_analysis::record::Record;
use linerate_model::exit::Outcome;
use linerate_model::lab::Experiment;

use crate::read;

/// The earlier runs that are levels of an experiment and not in `records` yet, read and found to fit it.
pub fn missing(experiment: &Experiment, records: &[Record]) -> Outcome<Vec<Record>> {
    let Some(factor) = experiment.factor_of_runs() else {
        return Ok(Vec::new());
    };
    let is_held = |level: usize| {
        let of = |record: &Record| matches!(record, Record::Earlier(one) if one.level == level);
        records.iter().any(of)
    };
    let runs = experiment.factors[factor].runs();
    runs.filter(|(level, _)| !is_held(*level))
        .map(|(level, folder)| {
            let stored = read(Path::new(folder))?;
            record(experiment, (factor, level), &stored)
        })
        .collect()
}
