//! Small facts of a stored run, as lists and tables show them.

use linerate_model::host::Host;
use linerate_model::sample::Flag;

/// What is known of an end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndFacts {
    /// The host's name.
    pub name: Option<String>,
    /// Its kernel's release.
    pub kernel: Option<String>,
}

impl EndFacts {
    /// Of a host as it was read.
    pub fn of(host: &Host) -> Self {
        Self {
            name: host.identity.hostname.value().cloned(),
            kernel: host.identity.kernel_release.value().cloned(),
        }
    }
}

/// A flag's word, as in the record.
pub fn flag_word(flag: Flag) -> String {
    match serde_json::to_value(flag) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
