//! What comes out of each flow of a round, and of each host. The raw sample of a flow is stored beside it.

use serde::{Deserialize, Serialize};

use super::{HostIndex, Role, Step};
use crate::units::Nanoseconds;

/// The result of one direction of a flow. A bidirectional flow has two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observation {
    /// The number of its round.
    pub round: u32,
    /// The direction of its round: whether the other direction ran at the same time.
    pub step: Step,
    /// The sending host; of request workloads, the requesting one.
    pub from: HostIndex,
    /// The receiving host.
    pub to: HostIndex,
    /// What the flow was for.
    pub role: Role,
    /// What came out.
    pub outcome: Outcome,
}

/// What came out of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// It was measured. A rate of 0 counts as a failure of kind `stalled`.
    Measured {
        /// Bit/s; of request workloads, requests per second.
        rate: f64,
        /// The 99th percentile of its latency, if the workload measures one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latency_ns_p99: Option<Nanoseconds>,
        /// What TCP retransmitted; none of RDMA, and if the kernel did not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retransmits: Option<Retransmits>,
    },
    /// It failed: both hosts took part, and no data or not all of it arrived.
    Failed {
        /// How.
        failure: Failure,
        /// The error, with what and why.
        cause: String,
    },
    /// It was not tried: a host was gone, the run ended before.
    NotTried {
        /// Why.
        cause: String,
    },
}

/// The segments of the sending host's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Retransmits {
    /// Segments sent (`tcpi_segs_out`).
    pub segments: u32,
    /// Of them retransmitted (`tcpi_total_retrans`), without those that the receiver had already (`tcpi_dsack_dups`).
    pub retransmitted: u32,
}

/// How a flow failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The data connection was not established.
    Connect,
    /// It was established, and no or next to no data arrived: a black hole for large packets is one cause.
    Stalled,
    /// It broke during the trial.
    Broken,
    /// It did not end before its deadline.
    Deadline,
}

/// At which stage a host was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It never joined.
    Join,
    /// It was refused: another version, another configuration.
    Refused,
    /// It joined, and was lost in a round.
    Round,
}

/// Whether a host took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum HostState {
    /// From its joining to the end of the run.
    Joined,
    /// Control of it was not established, or was lost.
    Unreached {
        /// When.
        stage: Stage,
        /// The round in which it was lost; null before the first one.
        round: Option<u32>,
        /// The error, with what and why.
        cause: String,
    },
}
