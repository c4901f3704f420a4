//! The list of the runs in a folder, the newest first.
//!
//! `summary` computes a run's list entry and `headline` its result, `index` caches it.

mod headline;
mod index;
mod summary;

#[cfg(test)]
mod tests;

use std::path::Path;

use linerate_analysis::record::RunKind;
use linerate_analysis::run_list::{RunsDocument, SCHEMA};
use linerate_model::exit::Outcome;

use self::index::Index;
pub use self::index::is_index;

/// Which runs are requested; what is `None` lets all pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The name of a host at either end, or of one that is a level.
    pub host: Option<String>,
    /// An interface of either end, or of the path to a host that is a level.
    pub nic: Option<String>,
    /// A workload that some trial has.
    pub workload: Option<String>,
    /// How the peer, or a host that is a level, was named.
    pub peer: Option<String>,
    /// When they began at the earliest, seconds since 1970 (UTC).
    pub since: Option<u64>,
    /// The word of a flag that some trial carries.
    pub flag: Option<String>,
    /// The command that made them.
    pub kind: Option<RunKind>,
}

/// The list of the runs in a folder, which need not be there yet; `note` takes what a person should know of the index.
pub fn document(
    folder: &Path,
    filter: &Filter,
    anew: bool,
    note: &dyn Fn(&str),
) -> Outcome<RunsDocument> {
    let empty = RunsDocument {
        schema: SCHEMA,
        folder: folder.display().to_string(),
        runs: Vec::new(),
        unreadable: Vec::new(),
    };
    if !folder.exists() {
        return Ok(empty);
    }
    let index = Index::open(folder, anew, note)?.refresh(note)?;
    Ok(RunsDocument {
        runs: index.list(filter)?,
        unreadable: index.unreadable()?,
        ..empty
    })
}
