//! What happened in a run: its records, as they are stored.

mod facts;
mod kind;
mod measurement;
mod mesh;

use std::net::IpAddr;
use std::path::PathBuf;

use linerate_model::factor::Factor;
use linerate_model::finding::Diagnosis;
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::Experiment;
use linerate_model::limit::why::Tried;
use linerate_model::mesh::{HostIndex, HostState};
use linerate_model::prove::EndChange;
use linerate_model::sample::Sample;
use linerate_model::setting::Class;
use serde::{Deserialize, Serialize};

use crate::failover::{FailoverPlan, FailoverTrial};
use crate::qos::verification::{ArmTrial, Verification};

pub use self::facts::{EndFacts, flag_word};
pub use self::kind::RunKind;
pub use self::measurement::Measurement;
pub use self::mesh::{MeshAsked, MeshClock, MeshFlow, MeshMember};

/// The name of the header's schema.
pub const SCHEMA: &str = "linerate.run/1";

/// `run.json` in a run's folder. Its records are next to it in `records.jsonl`, append-only, one record with checksum
/// per line; every figure can be recomputed from them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of linerate that wrote it.
    pub version: String,
    /// The start time: seconds since 1970, UTC.
    pub created_unix_s: u64,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The seed of the order of trials and of the intervals.
    pub seed: u64,
    /// The fewest trials of each arm: without each fix in a stage of `prove`, blocks in `lab`.
    #[serde(alias = "pairs")]
    pub trials: u32,
    /// The name of the peer on the command line.
    pub peer: String,
    /// The interface of this host on the path.
    pub local_nic: NicName,
    /// The interface that carries the far address.
    pub remote_nic: NicName,
    /// The far address.
    pub address: String,
    /// Memory copy bandwidth of one core; null if it was not measured, as on a path with a wire.
    pub copy_bit_per_s: Option<u64>,
}

impl Header {
    /// Whether data uses IPv6 to a remote address of the run: the peer's own if no other is known.
    pub fn is_ipv6(&self, other: Option<IpAddr>) -> bool {
        other.map_or_else(|| self.address.contains(':'), |other| other.is_ipv6())
    }
}

/// A run as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// Its folder.
    pub folder: PathBuf,
    /// Its header.
    pub header: Header,
    /// Its records.
    pub records: Vec<Record>,
    /// Whether its last line was torn and left out.
    pub torn: bool,
}

/// An earlier run that is a level of a factor: all its analyzed data, so that this run does not depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// The factor, counted from 0.
    pub factor: usize,
    /// The level, counted from 0.
    pub level: usize,
    /// Its folder, as the experiment names it.
    pub run: String,
    /// Its header.
    pub header: Header,
    /// The host that linerate was started on then.
    pub local: Box<Host>,
    /// The peer then.
    pub remote: Box<Host>,
    /// Its trials.
    pub trials: Vec<EarlierTrial>,
}

/// A trial of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlierTrial {
    /// Its block there, from 0.
    pub block: u32,
    /// The level of each factor of the experiment that it is a level of, from 0.
    pub levels: Vec<usize>,
    /// The analyzed trial.
    pub sample: Sample,
}

/// What happened, in the order it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Both hosts before anything was done.
    Hosts {
        /// The host that linerate was started on.
        local: Box<Host>,
        /// The peer.
        remote: Box<Host>,
    },
    /// A trial before any change.
    Before(Box<Sample>),
    /// Short trials that show what limits the path, each with one thing changed.
    Interventions {
        /// Whether that was at the end, with the remedies that were kept.
        after: bool,
        /// What was tried.
        tried: Vec<Tried>,
    },
    /// The diagnosis of both ends, based on the trial before it.
    Diagnosis(Box<Diagnosis>),
    /// A remedy that is tested from now on; the number is its place in the run.
    Remedy {
        /// Its number, from 0.
        remedy: usize,
        /// The rule that proposed it.
        rule: String,
        /// What it changes.
        changes: Vec<EndChange>,
        /// The chance, at most, that it is kept although it has no effect.
        level: f64,
        /// The rules of the remedies that were in place in both arms of its first stage.
        #[serde(default)]
        beside: Vec<String>,
    },
    /// What a search may vary.
    Factors(Vec<Factor>),
    /// A trial of a search.
    Explored {
        /// The level of each factor, counted from 0.
        levels: Vec<usize>,
        /// Whether it is one of the screening design's, in which each factor is changed in half of the trials.
        screening: bool,
        /// The trial; none where those levels could not be made together.
        sample: Option<Box<Sample>>,
    },
    /// A trial between two rounds, as input of the rules.
    Between(Box<Sample>),
    /// A trial of a stage, in which all remedies of a round are tested together. A second one at the same place was
    /// made because of the first one's flags, and stands for it.
    Staged {
        /// The stage, from 0, through all rounds.
        stage: usize,
        /// Its place in the order of the stage, from 0.
        place: usize,
        /// The remedies that it is made without; none: with all that are tested in the stage.
        without: Vec<usize>,
        /// The trial.
        sample: Box<Sample>,
    },
    /// What was decided about a remedy.
    Decided {
        /// The remedy.
        remedy: usize,
        /// Whether it is kept.
        kept: bool,
        /// Why it could not be tried, when it could not.
        note: Option<String>,
    },
    /// An experiment that begins.
    Lab {
        /// What was requested.
        experiment: Box<Experiment>,
        /// Whether settings may be changed that disrupt the management path.
        include_way_in: bool,
        /// Whether it makes its own two hosts, which vanish whenever it stops.
        #[serde(default)]
        own_hosts: bool,
    },
    /// Another host that is a level of a factor, before anything was done.
    Peer {
        /// How it was named.
        at: String,
        /// The interface that data to it leaves by.
        local_nic: NicName,
        /// The interface that carries its address.
        remote_nic: NicName,
        /// That address; earlier runs do not contain it.
        #[serde(default)]
        address: Option<IpAddr>,
        /// The host.
        host: Box<Host>,
    },
    /// An earlier run that is a level of a factor, with its trials.
    Earlier(Box<Earlier>),
    /// A level that is unavailable here.
    LeftOut {
        /// The factor, counted from 0.
        factor: usize,
        /// The level, counted from 0.
        level: usize,
        /// Why.
        why: String,
    },
    /// A trial of the first combination before the experiment, to see how trials scatter here.
    Pilot(Box<Sample>),
    /// The trials of one combination in one block; none if it is unavailable. A second one of the same block and
    /// combination was made because of the first one's flags, and takes its place.
    Cell {
        /// The block, from 0.
        block: u32,
        /// The level of each factor, from 0.
        levels: Vec<usize>,
        /// The analyzed trial, then those that ran at the same time.
        samples: Vec<Sample>,
        /// Why there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A run that was resumed after it was stopped or killed.
    Resumed {
        /// When, seconds since 1970 (UTC).
        unix_s: u64,
    },
    /// A remedy that is advice only, because a change of it is of a class above what linerate does alone.
    HeldBack {
        /// The rule that proposed it.
        rule: String,
        /// What it would change.
        changes: Vec<EndChange>,
        /// The class of the change that is hardest to roll back.
        class: Class,
    },
    /// A trial with every kept remedy.
    After(Box<Sample>),
    /// A result of `measure`, or of a class of `qos verify`.
    Measured(Box<Measurement>),
    /// What `qos verify` was asked.
    Qos(Box<Verification>),
    /// The trials of `qos verify` that ran at the same time.
    QosTrial(Box<ArmTrial>),
    /// The verdict of `qos verify` in words, for lists.
    QosVerdict(String),
    /// What `failover` was asked.
    Failover(Box<FailoverPlan>),
    /// A trial of `failover`.
    FailoverTrial(Box<FailoverTrial>),
    /// The result of `failover` in words, for lists.
    FailoverResult(String),
    /// What `mesh` was asked.
    Mesh(Box<MeshAsked>),
    /// The run is that of one rank of a mesh: of the flows of this host.
    MeshRank(HostIndex),
    /// A host of a mesh, before the first round.
    MeshHost(Box<MeshMember>),
    /// What came out of a flow of a mesh.
    MeshFlow(Box<MeshFlow>),
    /// A host of a mesh that was lost in a round.
    MeshLost {
        /// Which.
        host: HostIndex,
        /// When, and why.
        state: HostState,
    },
    /// The verdict of `mesh` in words, for lists.
    MeshVerdict(String),
    /// What was restored at the end.
    Ended {
        /// Whether both hosts equal their baseline.
        restored: bool,
        /// Whether what helped was to be kept.
        kept: bool,
    },
    /// The injected faults of the demo: rule ids.
    Planted(Vec<String>),
    /// Why the run stopped before its end.
    Stopped(String),
}
