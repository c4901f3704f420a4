//! The list of stored runs, as `linerate runs` prints it (`schema/runs-1.json`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of the document's schema.
pub const SCHEMA: &str = "linerate.runs/1";

/// What `linerate runs --format json` prints: the stored runs of the state folder that match the filters, newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The folder of the runs.
    pub folder: String,
    /// The runs that were requested, the newest first.
    pub runs: Vec<Listed>,
    /// Runs that cannot be read, regardless of the filters.
    pub unreadable: Vec<Unreadable>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listed {
    /// The name of its folder.
    pub run: String,
    /// The command that created it.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["lab", "prove", "demo", "search", "measure", "qos", "failover"])))]
    pub kind: String,
    /// The title of an experiment; null for other runs.
    pub title: Option<String>,
    /// The result in a few words; null where there is none yet.
    pub headline: Option<String>,
    /// The start time: RFC 3339, UTC.
    pub created: String,
    /// The same, in seconds since 1970.
    pub created_unix_s: u64,
    /// The version of linerate that created it.
    pub linerate_version: String,
    /// The seed of the order of trials.
    pub seed: u64,
    /// The name of the peer on the command line.
    pub peer: String,
    /// The far address.
    pub address: String,
    /// The interface of this host on the path.
    pub local_nic: String,
    /// The peer's interface.
    pub remote_nic: String,
    /// Both hosts.
    pub hosts: Hosts,
    /// The other hosts that are levels of an experiment.
    pub others: Vec<OtherHost>,
    /// Trials.
    pub trials: u64,
    /// The number of trials of each workload.
    pub workloads: Counts,
    /// The number of trials with each flag.
    pub flags: Counts,
    /// Whether it ended, was stopped early, or was killed or is in progress.
    pub state: State,
    /// Why it was stopped; null if it was not.
    pub stopped: Option<String>,
    /// Whether its last record was incomplete and ignored.
    pub torn: bool,
}

impl Listed {
    /// The path of its data, then those to the other hosts that are levels: `db1:eth2 -> db2:eth2`, where `to` is the
    /// arrow. A block device has no other end: `db1:nvme0n1`.
    pub fn ways(&self, to: &str) -> String {
        let is_block = self.workloads.contains_key("block");
        if is_block && self.hosts.remote.hostname.is_none() {
            let here = self.hosts.local.hostname.as_deref().unwrap_or("?");
            return format!("{here}:{}", self.local_nic);
        }
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hosts {
    /// The one that linerate was started on.
    pub local: EndOfRun,
    /// The peer.
    pub remote: EndOfRun,
}

/// A host of a run; null where it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndOfRun {
    /// Its name.
    pub hostname: Option<String>,
    /// The release of its kernel.
    pub kernel_release: Option<String>,
}

/// A run that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherHost {
    /// Its name on the command line.
    pub peer: String,
    /// Its name; null where it is not known.
    pub hostname: Option<String>,
    /// The release of its kernel.
    pub kernel_release: Option<String>,
    /// The interface of this host on the path to it.
    pub local_nic: String,
    /// The peer's interface.
    pub remote_nic: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
