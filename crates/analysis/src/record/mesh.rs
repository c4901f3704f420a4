//! What a run of `mesh` stores: what was asked, who joined, and what came out of each flow. The result is computed from these.

use linerate_model::host::Host;
use linerate_model::mesh::{Flow, HostIndex, HostState, MeshHost, Observation, Pattern, Step};
use linerate_model::sample::Sample;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use serde::{Deserialize, Serialize};

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshAsked {
    /// The hosts.
    pub hosts: Vec<MeshHost>,
    /// How each of them was reached.
    pub peers: Vec<String>,
    /// Which of them measured with each other.
    pub pattern: Pattern,
    /// The directions, one round each.
    pub steps: Vec<Step>,
    /// How often everything was to be measured.
    pub repeats: u32,
    /// What each pair ran, in its forward direction.
    pub spec: TrialSpec,
    /// The bounds of `--require`, as they were written.
    #[serde(default)]
    pub require: Vec<String>,
}

/// A host before the first round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshMember {
    /// Which.
    pub host: HostIndex,
    /// Whether it joined.
    pub state: HostState,
    /// Its clocks; null if it did not join.
    pub clock: Option<MeshClock>,
    /// What it reads of itself; null if it did not join.
    pub facts: Option<Box<Host>>,
}

/// The clocks of a host, compared with those of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeshClock {
    /// How far its monotonic clock is ahead.
    pub monotonic_ns: i64,
    /// How far its time of day is ahead.
    pub unix_ns: i64,
    /// Both are known to within this time.
    pub within_ns: Nanoseconds,
}

/// What came out of a flow of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshFlow {
    /// The round, from 0 through the whole run.
    pub round: u32,
    /// Its direction.
    pub step: Step,
    /// The flow.
    pub flow: Flow,
    /// Whether the round is one of those that measure suspects again.
    #[serde(default)]
    pub is_retest: bool,
    /// The start of the round, by the monotonic clock of the root; null if the flow was not tried.
    pub start_ns: Option<Nanoseconds>,
    /// The result of each direction.
    pub observations: Vec<Observation>,
    /// The raw counters of both hosts; null if there are none, or too many to store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Box<Sample>>,
}
