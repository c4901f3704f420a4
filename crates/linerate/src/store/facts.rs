//! Small facts of a stored run, as lists and tables show them.

use std::path::{Path, PathBuf};

use linerate_model::host::Host;
use linerate_model::sample::Flag;

use crate::moment::utc;

/// What is known of an end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EndFacts {
    /// The host's name.
    pub name: Option<String>,
    /// Its kernel's release.
    pub kernel: Option<String>,
}

impl EndFacts {
    /// Of a host as it was read.
    pub(crate) fn of(host: &Host) -> Self {
        Self {
            name: host.identity.hostname.value().cloned(),
            kernel: host.identity.kernel_release.value().cloned(),
        }
    }
}

/// A flag's word, as in the record.
pub(crate) fn flag_word(flag: Flag) -> String {
    match serde_json::to_value(flag) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// A new folder's name: when, what, and the seed, so that a list of runs sorts by time.
pub(crate) fn run_folder(state: &Path, what: &str, created_unix_s: u64, seed: u64) -> PathBuf {
    let stamp = utc(created_unix_s).replace([' ', ':'], "-");
    state
        .join("runs")
        .join(format!("{}-{what}-{seed}", stamp.trim_end_matches("-UTC")))
}
