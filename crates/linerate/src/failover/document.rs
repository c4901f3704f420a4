//! What `failover --format json` prints.

use std::net::IpAddr;

use linerate_model::failover::phase::Verdict;
use linerate_model::failover::{Trigger, repeated};
use linerate_model::ids::NicName;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{Direction, TrialSpec};
use linerate_runtime::cli::{FailoverArgs, FailoverWorkload};
use linerate_runtime::endpoint::trial::PeerPath;
use serde::Serialize;

use super::require::{RequirementResult, judged};
use super::step_of;

/// What `linerate failover PEER --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FailoverDocument {
    schema: &'static str,
    /// The peer as it was named.
    pub(super) peer: String,
    /// Its address.
    pub(super) address: IpAddr,
    /// The interface that the probes are sent from.
    pub(super) interface: NicName,
    /// The peer's interface.
    pub(super) interface_peer: NicName,
    /// Flows of probes in each direction.
    pub(super) flows: u32,
    /// The time between two packets of a flow: an interruption of one flow is known to within this time.
    pub(super) step_ns: Nanoseconds,
    /// A packet that takes this much longer than the fastest of its flow is late.
    pub(super) late_after_ns: Nanoseconds,
    /// The duration of a trial.
    pub(super) time_ns: Nanoseconds,
    /// Each trial.
    pub(super) trials: Vec<TrialResult>,
    /// All trials together: one for each trigger, direction and workload.
    pub(super) summary: Vec<Summary>,
    /// Whether the bounds of `--require` hold.
    pub(super) requirements: Vec<RequirementResult>,
}

/// One trial.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TrialResult {
    /// The difference between the two hosts' clocks.
    pub(super) clock: ClockResult,
    /// The commands that were run.
    pub(super) events: Vec<EventResult>,
    /// Each direction and workload.
    pub(super) parts: Vec<PartResult>,
}

/// The difference between the two hosts' clocks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ClockResult {
    /// Whether both ends read one clock.
    pub(super) is_shared: bool,
    /// How far this host's monotonic clock is ahead of the peer's; null if no packet arrived in one direction.
    pub(super) offset_ns: Option<i64>,
    /// It is known to within this time.
    pub(super) within_ns: Option<Nanoseconds>,
}

/// A command that was run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EventResult {
    /// What it caused.
    pub(super) trigger: TriggerWord,
    /// The command.
    pub(super) command: String,
    /// When it was started (`CLOCK_MONOTONIC` of this host).
    pub(super) start_ns: Nanoseconds,
    /// How long it took.
    pub(super) took_ns: Nanoseconds,
}

/// One direction and workload of a trial.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PartResult {
    /// forward: from here to the peer.
    pub(super) direction: Direction,
    /// What crossed the path.
    pub(super) workload: WorkloadWord,
    /// Its flows, or connections.
    pub(super) flows: u32,
    /// The time between two packets of a flow.
    pub(super) step_ns: Nanoseconds,
    /// Packets, messages or connections sent.
    pub(super) sent: u64,
    /// Those received, duplicates included.
    pub(super) received: u64,
    /// The interruptions of the whole trial.
    pub(super) gaps: Gaps,
    /// Lost.
    pub(super) lost: u64,
    /// Late.
    pub(super) late: u64,
    /// Received again.
    pub(super) duplicated: u64,
    /// Received after one that was sent later.
    pub(super) reordered: u64,
    /// Lost or late ones that are in no interruption, because there were too many interruptions to record.
    pub(super) unrecorded: u64,
    /// Each trigger.
    pub(super) triggers: Vec<TriggerResult>,
    /// What the two hosts themselves held up or refused.
    pub(super) hosts: HostResult,
}

/// Interruptions: times in which packets of at least one flow were lost or late.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Gaps {
    /// How many.
    pub(super) count: u64,
    /// The longest of a single flow, to within one step.
    pub(super) longest_ns: Nanoseconds,
    /// The time in which at least one flow was interrupted.
    pub(super) total_ns: Nanoseconds,
}

/// The interruptions of one trigger.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TriggerResult {
    /// What they belong to.
    pub(super) trigger: TriggerWord,
    /// The interruptions.
    pub(super) gaps: Gaps,
    /// Lost in them.
    pub(super) lost: u64,
    /// Late in them.
    pub(super) late: u64,
    /// The flows that the largest affected.
    pub(super) flows_affected: u32,
    /// How long no flow got a packet through; null if there was always one that did.
    pub(super) all_flows_ns: Option<Nanoseconds>,
    /// It is known to within this time.
    pub(super) all_flows_within_ns: Option<Nanoseconds>,
    /// When the last packet before the first interruption was sent, since the command was started; null without a
    /// command or an interruption.
    pub(super) first_affected_ns: Option<i64>,
    /// When the packet was sent from which on all flows were back, since the command was started.
    pub(super) all_back_ns: Option<i64>,
    /// Whether all flows were back at the end of the trial.
    pub(super) is_over: bool,
    /// What held up the traffic of the longest interruption, from the events of both hosts; null if there was none, and
    /// for other workloads than `udp`.
    pub(super) held_up: Option<Verdict>,
}

/// What the two hosts themselves held up: no interruption of the path, but the limit of what is known of one.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct HostResult {
    /// The longest time in which the sender sent nothing on a flow; an interruption within it is only known to within it.
    pub(super) longest_send_gap_ns: Option<Nanoseconds>,
    /// Planned times at which nothing was sent because the sender did not run.
    pub(super) skipped: u64,
    /// The longest pause between two arrivals without a packet lost or late.
    pub(super) longest_stall_ns: Option<Nanoseconds>,
    /// Such pauses of more than 10 ms of a flow.
    pub(super) stalls: u64,
    /// Packets that the receivers' own sockets dropped; they are among the lost ones. Null if unknown.
    pub(super) socket_drops: Option<u64>,
    /// Packets that were not of this trial.
    pub(super) ignored: u64,
    /// Packets that the sender's kernel refused; they are among the lost ones.
    pub(super) send_errors: Vec<Errors>,
}

/// Packets that failed with one error.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Errors {
    /// The error.
    pub(super) error: String,
    /// How many.
    pub(super) count: u64,
}

/// What an interruption belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum TriggerWord {
    /// The failure (`--do`).
    Failure,
    /// The return (`--restore`).
    Return,
    /// No command.
    NoEvent,
}

impl From<Trigger> for TriggerWord {
    fn from(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Failure => Self::Failure,
            Trigger::Return => Self::Return,
            Trigger::NoEvent => Self::NoEvent,
        }
    }
}

/// What crossed the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum WorkloadWord {
    /// Numbered datagrams.
    Udp,
    /// Messages on established TCP connections.
    Tcp,
    /// New TCP connections.
    Connect,
}

impl From<FailoverWorkload> for WorkloadWord {
    fn from(workload: FailoverWorkload) -> Self {
        match workload {
            FailoverWorkload::Udp => Self::Udp,
            FailoverWorkload::Tcp => Self::Tcp,
            FailoverWorkload::Connect => Self::Connect,
        }
    }
}

/// The longest interruption of each trial, summarized.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Summary {
    /// The trigger.
    pub(super) trigger: TriggerWord,
    /// The direction.
    pub(super) direction: Direction,
    /// The workload.
    pub(super) workload: WorkloadWord,
    /// The number of trials.
    pub(super) trials: u64,
    /// The median of the longest interruptions.
    pub(super) median_ns: Nanoseconds,
    /// The maximum.
    pub(super) max_ns: Nanoseconds,
    /// With 95 % confidence at least this share of failures is not longer than the maximum.
    pub(super) share_at_least: f64,
    /// Trials in which not all flows were back at the end: their interruptions are longer than shown.
    pub(super) not_over: u64,
}

impl TrialResult {
    /// Whether anything was lost or late.
    pub(super) fn is_interrupted(&self) -> bool {
        self.parts.iter().any(|part| part.gaps.count > 0)
    }
}

impl FailoverDocument {
    pub(super) fn new(
        args: &FailoverArgs,
        path: &PeerPath,
        spec: &TrialSpec,
        trials: Vec<TrialResult>,
    ) -> Self {
        Self {
            schema: "linerate.failover/1",
            peer: args.peer.peer.to_string(),
            address: path.address,
            interface: path.local_nic.clone(),
            interface_peer: path.remote_nic.clone(),
            flows: spec.flows,
            step_ns: step_of(spec),
            late_after_ns: args.late,
            time_ns: args.time,
            summary: summary(&trials),
            requirements: judged(&args.require, &trials),
            trials,
        }
    }
}

/// One row for each trigger, direction and workload that any trial has.
fn summary(trials: &[TrialResult]) -> Vec<Summary> {
    let mut rows = Vec::new();
    for trigger in [
        TriggerWord::Failure,
        TriggerWord::Return,
        TriggerWord::NoEvent,
    ] {
        let parts = trials.first().map_or(&[][..], |trial| &trial.parts);
        for part in parts {
            let key = (part.direction, part.workload);
            let of = trials
                .iter()
                .flat_map(|trial| &trial.parts)
                .filter(|part| (part.direction, part.workload) == key)
                .flat_map(|part| &part.triggers)
                .filter(|one| one.trigger == trigger);
            let longest: Vec<Nanoseconds> = of.clone().map(|one| one.gaps.longest_ns).collect();
            let Some(repeated) = repeated(&longest) else {
                continue;
            };
            rows.push(Summary {
                trigger,
                direction: part.direction,
                workload: part.workload,
                trials: repeated.count as u64,
                median_ns: repeated.median_ns,
                max_ns: repeated.max_ns,
                share_at_least: repeated.share,
                not_over: of.filter(|one| !one.is_over).count() as u64,
            });
        }
    }
    rows
}
