//! The list of stored runs, as `linerate runs` prints it (`schema/runs-1.json`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of the document's schema.
pub const SCHEMA: &str = "linerate.runs/1";

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunsDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The folder of the runs.
    pub folder: String,
    /// The runs that were requested, the newest first.
    pub runs: Vec<Listed>,
    /// Those that cannot be read, whatever was requested.
    pub unreadable: Vec<Unreadable>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// The name of its folder.
    pub run: String,
    /// The command that made it: lab, prove, demo, search.
    pub kind: String,
    /// What an experiment is called.
    pub title: Option<String>,
    /// When it began (RFC 3339, UTC).
    pub created: String,
    /// The same, seconds since 1970.
    pub created_unix_s: u64,
    /// The linerate that made it.
    pub linerate_version: String,
    /// The seed of its order.
    pub seed: u64,
    /// How the peer was named.
    pub peer: String,
    /// The remote address.
    pub address: String,
    /// The interface that the data left by.
    pub local_nic: String,
    /// The resolved one.
    pub remote_nic: String,
    /// Both hosts.
    pub hosts: Hosts,
    /// The other hosts that are levels of an experiment.
    pub others: Vec<OtherHost>,
    /// Trials.
    pub trials: u64,
    /// The trials of each workload.
    pub workloads: Counts,
    /// The trials that carry each flag.
    pub flags: Counts,
    /// How it ended.
    pub state: State,
    /// Why it was stopped.
    pub stopped: Option<String>,
    /// Whether its last record was torn and left out.
    pub torn: bool,
}

impl Listed {
    /// The path of its data, then those to the other hosts that are levels: `db1:eth2 -> db2:eth2`, where `to` is the
    /// arrow.
    pub fn ways(&self, to: &str) -> String {
        let way = |local_nic: &str, host: &Option<String>, remote_nic: &str| {
            let name = |host: &Option<String>| host.clone().unwrap_or_else(|| "?".to_owned());
            let (here, there) = (name(&self.hosts.local.hostname), name(host));
            format!("{here}:{local_nic} {to} {there}:{remote_nic}")
        };
        let own = way(
            &self.local_nic,
            &self.hosts.remote.hostname,
            &self.remote_nic,
        );
        let others = self.others.iter();
        let others = others.map(|one| way(&one.local_nic, &one.hostname, &one.remote_nic));
        let all: Vec<String> = std::iter::once(own).chain(others).collect();
        all.join(", ")
    }
}

/// Both hosts of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hosts {
    /// The one that linerate was started on.
    pub local: EndOfRun,
    /// The peer.
    pub remote: EndOfRun,
}

/// A host of a run; null where it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndOfRun {
    /// Its name.
    pub hostname: Option<String>,
    /// The release of its kernel.
    pub kernel_release: Option<String>,
}

/// A run that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// The name of its folder.
    pub run: String,
    /// Why.
    pub why: String,
}

/// How often each of some words occurred.
pub type Counts = BTreeMap<String, u64>;

/// Another host that is a level of an experiment, and the path to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHost {
    /// How it was named.
    pub peer: String,
    /// Its name; null where it is not known.
    pub hostname: Option<String>,
    /// The release of its kernel.
    pub kernel_release: Option<String>,
    /// The interface that data to it left by.
    pub local_nic: String,
    /// The resolved one.
    pub remote_nic: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// By itself.
    Ended,
    /// Before its end, by a person or an error.
    Stopped,
    /// It was killed, or it still runs.
    Open,
}

impl State {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Stopped => "stopped",
            Self::Open => "open",
        }
    }
}
