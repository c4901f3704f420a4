//! Designed experiments, without running them.
//!
//! `definition` reads the file of an experiment, `resolve` makes of a combination of levels the trials and settings
//! it stands for, `judge` makes of the record what is printed as JSON. `earlier` the runs that are levels, `published`
//! what others measured, `difference` what one level takes longer than another.

mod bound;
pub(crate) mod definition;
pub(crate) mod difference;
mod document;
pub mod earlier;
pub mod judge;
pub(crate) mod published;
pub mod resolve;
mod sorted;

use linerate_model::lab::Experiment;

use crate::exit::{Code, Outcome, Stop};
use crate::store::{Record, StoredRun};

/// The experiment of a run.
pub(crate) fn experiment_of(stored: &StoredRun) -> Outcome<(&Experiment, bool)> {
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
        Stop::new(Code::BadInput, why).hint("`linerate report` shows runs of `prove` and `demo`")
    })
}
