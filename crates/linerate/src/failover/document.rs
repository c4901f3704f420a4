//! What `failover --format json` prints.

use std::net::IpAddr;

use linerate_analysis::failover::timeline::{Mark, Timeline};
use linerate_analysis::failover::{FailoverPlan, SkippedWorkload};
use linerate_analysis::record::Header;
use linerate_model::end::End;
use linerate_model::failover::phase::Verdict;
use linerate_model::failover::{Trigger, repeated};
use linerate_model::ids::NicName;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Workload};
use linerate_runtime::cli::{FailoverBound, FailoverWorkload};
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
    pub(super) address: String,
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
    /// The number of trials that were asked for; null with `--until-event`.
    pub(super) repeats: Option<u32>,
    /// Whether it ended early (Ctrl-C, an error): then there are fewer trials than asked for, or the only one is cut short.
    pub(super) interrupted: bool,
    /// The workloads that were asked for and could not be measured.
    pub(super) skipped: Vec<SkippedWorkload>,
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
    /// Whether it ended before its time.
    pub(super) cut_short: bool,
    /// The commands that were run.
    pub(super) events: Vec<EventResult>,
    /// What an end could not record of its network, and why.
    pub(super) not_recorded: Vec<NotRecorded>,
    /// Each direction and workload.
    pub(super) parts: Vec<PartResult>,
    /// What happened meanwhile, in order: the commands, and what both hosts saw of their network.
    pub(super) marks: Vec<Mark>,
    /// The picture of the trial.
    #[serde(skip)]
    pub(super) timeline: Timeline,
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

/// What an end could not record of its network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NotRecorded {
    /// The end.
    pub(super) end: End,
    /// The interface of the kernel that it is read from.
    pub(super) path: String,
    /// Why it could not be.
    pub(super) reason: String,
}

/// A command that was run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EventResult {
    /// The end that ran it.
    pub(super) end: End,
    /// What it caused.
    pub(super) trigger: TriggerWord,
    /// The command.
    pub(super) command: String,
    /// When it was started (`CLOCK_MONOTONIC` of this host).
    pub(super) start_ns: Nanoseconds,
    /// How long it took.
    pub(super) took_ns: Nanoseconds,
    /// Its exit code.
    pub(super) exit_code: Option<i32>,
    /// The first 4 KiB of its output and errors.
    pub(super) output: String,
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
    /// Of `tcp`: retransmission timers and path MTUs. Null for other workloads, and if the sender's kernel does not report
    /// them.
    pub(super) tcp: Option<TcpResult>,
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
    /// The flows that the longest affected.
    pub(super) flows_affected: u32,
    /// The same by the next hop that the sender's kernel had selected for each flow when the trial began; null for other
    /// workloads than `udp`, and if it is not known (`not_recorded`).
    pub(super) by_next_hop: Option<Vec<HopResult>>,
    /// How long no flow got a packet through; null if there was always one that did.
    pub(super) all_flows_ns: Option<Nanoseconds>,
    /// It is known to within this time.
    pub(super) all_flows_within_ns: Option<Nanoseconds>,
    /// When the last packet before the first interruption was sent, since the command was started; null without a
    /// command or an interruption.
    pub(super) first_affected_ns: Option<i64>,
    /// When the packet was sent from which on all flows were back, since the command was started.
    pub(super) all_back_ns: Option<i64>,
    /// When the last packet of an interruption was sent, since the command was started, to within one step.
    pub(super) last_affected_ns: Option<i64>,
    /// Whether all flows were back at the end of the trial.
    pub(super) is_over: bool,
    /// The throughput dip: the smallest share of the flows that got packets through at the same time. Each flow sends at the
    /// same constant rate, so this is also the smallest share of the throughput; 1 without an interruption.
    pub(super) throughput_min_share: f64,
    /// The latency before and after.
    pub(super) latency: LatencyResult,
    /// What held up the traffic of the longest interruption, from the events of both hosts; null if there was none, and
    /// for other workloads than `udp`.
    pub(super) held_up: Option<Verdict>,
}

/// The flows of one next hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct HopResult {
    /// The sender's interface.
    pub(super) interface: Option<NicName>,
    /// The gateway; null if the peer is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// The flows that it carried.
    pub(super) flows: u32,
    /// Those of them that the longest interruption affected.
    pub(super) affected: u32,
}

/// The retransmission timers and path MTUs of the connections of a direction (`TCP_INFO`, whenever a message was sent).
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TcpResult {
    /// Of the timer that expired most often in a row; null if none expired.
    pub(super) backoff: Option<BackoffResult>,
    /// Each change of a connection's path MTU.
    pub(super) path_mtu_changes: Vec<MtuChange>,
}

/// A retransmission timer that had expired.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct BackoffResult {
    /// When it was read, by this host's clock.
    pub(super) at_ns: Nanoseconds,
    /// How often in a row it had expired.
    pub(super) expirations: u8,
    /// Its time-out then.
    pub(super) timeout_ns: Nanoseconds,
}

/// A path MTU that changed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MtuChange {
    /// The flow of the connection.
    pub(super) flow: u32,
    /// When it was read first, by this host's clock.
    pub(super) at_ns: Nanoseconds,
    /// Before.
    pub(super) from_bytes: Bytes,
    /// After.
    pub(super) to_bytes: Bytes,
}

/// Medians of the time from sending to receiving: of a packet one way, of a message on its connection one way, of a new
/// connection its handshake.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LatencyResult {
    /// Until the command was started, or without one until the first interruption; null if no packet of then was recorded,
    /// or the clocks of the two hosts could not be compared.
    pub(super) before_ns: Option<Nanoseconds>,
    /// From when all flows were back to the next command, or the end of the trial.
    pub(super) after_ns: Option<Nanoseconds>,
    /// Both are known to within this time, which does not change their difference: the difference of the two clocks.
    pub(super) within_ns: Option<Nanoseconds>,
    /// The packets that `before_ns` is the median of: some of all packets, spread evenly over the trial.
    pub(super) packets_before: u64,
    /// Those of `after_ns`.
    pub(super) packets_after: u64,
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

impl TriggerWord {
    /// As it is in documents.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Return => "return",
            Self::NoEvent => "no-event",
        }
    }
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
    /// Requests on established TCP connections, until their answer.
    Rr,
    /// RDMA writes on reliable connections, until they are acknowledged.
    Verbs,
}

impl WorkloadWord {
    /// As it is typed.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Connect => "connect",
            Self::Rr => "rr",
            Self::Verbs => "verbs",
        }
    }
}

impl From<FailoverWorkload> for WorkloadWord {
    fn from(workload: FailoverWorkload) -> Self {
        match workload {
            FailoverWorkload::Udp => Self::Udp,
            FailoverWorkload::Tcp => Self::Tcp,
            FailoverWorkload::Connect => Self::Connect,
            FailoverWorkload::Rr => Self::Rr,
            FailoverWorkload::Verbs => Self::Verbs,
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
    /// Of a run that goes on or is stored; `is_whole` if it was not ended early.
    pub(super) fn new(
        header: &Header,
        plan: &FailoverPlan,
        trials: Vec<TrialResult>,
        is_whole: bool,
    ) -> Self {
        let late = match &plan.spec.workload {
            Workload::Udp(udp) => udp.probe.as_ref().map(|probe| probe.late_ns),
            _ => None,
        };
        // They were checked when they were typed; a stored one may come from anywhere.
        let bounds = plan.require.iter();
        let bounds: Vec<FailoverBound> = bounds.filter_map(|text| text.parse().ok()).collect();
        Self {
            schema: "linerate.failover/1",
            peer: header.peer.clone(),
            address: header.address.clone(),
            interface: header.local_nic.clone(),
            interface_peer: header.remote_nic.clone(),
            flows: plan.spec.flows,
            step_ns: step_of(&plan.spec),
            late_after_ns: late.unwrap_or_default(),
            time_ns: plan.spec.duration_ns,
            repeats: plan.repeats,
            interrupted: !is_whole,
            skipped: plan.skipped.clone(),
            summary: summary(&trials),
            requirements: judged(&bounds, &trials),
            trials,
        }
    }

    /// The trial with the longest interruption of UDP, and its number from 1.
    pub(super) fn longest(&self) -> Option<(usize, &TrialResult)> {
        let length = |trial: &TrialResult| {
            let udp = |part: &&PartResult| part.workload == WorkloadWord::Udp;
            let parts = trial.parts.iter().filter(udp);
            parts.map(|part| part.gaps.longest_ns).max()
        };
        // Of several the first.
        let trials = self.trials.iter().enumerate().rev();
        let longest = trials.max_by_key(|(_, trial)| length(trial));
        let longest = longest.filter(|(_, trial)| trial.is_interrupted());
        longest.map(|(at, trial)| (at + 1, trial))
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
