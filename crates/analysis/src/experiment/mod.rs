//! Designed experiments, without running them.
//!
//! `definition` reads the file of an experiment, `resolve` turns a combination of levels into settings,
//! `judge` turns the record into the JSON document. `earlier` has the runs that are levels, `published`
//! other people's measurements, `difference` the extra time of one level over another, `compare` the change between
//! runs, `same` whether two experiments mean the same.

mod bound;
pub mod compare;
pub mod definition;
pub mod difference;
pub mod document;
pub mod earlier;
pub mod fabric;
pub mod flows;
pub mod hits;
pub mod host_settings;
mod idle_states;
pub mod judge;
pub mod published;
pub mod resolve;
mod same;
pub mod sorted;
pub mod times;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::Experiment;

use crate::record::{Record, StoredRun};

/// The experiment of a run, and whether its settings may disrupt the management path.
pub fn experiment_of(stored: &StoredRun) -> Outcome<(&Experiment, bool)> {
    let lab = stored.records.iter().find_map(|record| match record {
        Record::Lab {
            experiment,
            include_way_in,
            ..
        } => Some((&**experiment, *include_way_in)),
        _ => None,
    });
    lab.ok_or_else(|| {
        let why = format!("{} is not a run of an experiment", stored.folder.display());
        Stop::new(Code::BadInput, why).hint("`linerate report` shows runs of other commands")
    })
}
