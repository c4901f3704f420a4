//! The outages of all flows of one direction and workload together: how many interruptions there were, how many flows
//! each affected, and when all flows were back; by the event that triggered them.

use serde::{Deserialize, Serialize};

use super::outage::{Outage, shifted};
use crate::units::Nanoseconds;

/// The outages of one flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowOutages {
    /// The number of the flow.
    pub flow: u32,
    /// Ascending.
    pub outages: Vec<Outage>,
}

/// When the event of a trial began and ended, by the clock of the host that linerate was started on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerTimes {
    /// When the command of the failure was started.
    pub failure_ns: Option<Nanoseconds>,
    /// When the command of the return was started.
    pub return_ns: Option<Nanoseconds>,
}

/// What an interruption belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// It ended before the failure, or there was no command.
    NoEvent,
    /// The failure.
    Failure,
    /// The return.
    Return,
}

impl TriggerTimes {
    /// The trigger of an interruption; one that began before the return belongs to the failure, however long it lasts.
    fn of(&self, from: Nanoseconds, to: Nanoseconds, step: Nanoseconds) -> Trigger {
        let within_a_step = Nanoseconds::new(from.as_u64().saturating_add(step.as_u64()));
        let is_after = |event: Option<Nanoseconds>, time| event.is_some_and(|event| time >= event);
        if is_after(self.return_ns, within_a_step) {
            Trigger::Return
        } else if is_after(self.failure_ns, to) {
            Trigger::Failure
        } else {
            Trigger::NoEvent
        }
    }
}

/// An interruption: outages of flows that overlap in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// What it belongs to.
    pub trigger: Trigger,
    /// When the last packet before the first outage was sent, by the clock of the events.
    pub from_ns: Nanoseconds,
    /// When the first packet was sent after which all flows were back; the last packet if they were not.
    pub to_ns: Nanoseconds,
    /// The flows that it affected.
    pub flows: u32,
    /// The longest outage of a single flow.
    pub longest_ns: Nanoseconds,
    /// How long no flow got a packet through, with its step; none if it did not affect all flows at once.
    pub common: Option<(Nanoseconds, Nanoseconds)>,
    /// Packets lost in it.
    pub lost: u64,
    /// Packets late in it.
    pub late: u64,
    /// Whether all flows were back at the end.
    pub has_ended: bool,
}

/// All interruptions of one direction and workload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Joined {
    /// Ascending.
    pub clusters: Vec<Cluster>,
}

impl Joined {
    /// Those of one trigger.
    pub fn of(&self, trigger: Trigger) -> impl Iterator<Item = &Cluster> {
        self.clusters
            .iter()
            .filter(move |cluster| cluster.trigger == trigger)
    }

    /// The one of a trigger in which a flow was interrupted for longest; what is said of "the longest interruption" is said
    /// of this one.
    pub fn longest(&self, trigger: Trigger) -> Option<&Cluster> {
        self.of(trigger)
            .max_by_key(|cluster| (cluster.longest_ns, cluster.flows))
    }
}

impl FlowOutages {
    /// The same on a clock that is `offset_ns` ahead.
    #[must_use]
    pub fn on_clock(&self, offset_ns: i64) -> Self {
        let outages = self.outages.iter();
        Self {
            flow: self.flow,
            outages: outages.map(|outage| on_clock(*outage, offset_ns)).collect(),
        }
    }
}

/// The highest number of flows that were interrupted at the same time by the outages of one trigger.
pub fn interrupted_at_once(
    flows: &[FlowOutages],
    step: Nanoseconds,
    triggers: &TriggerTimes,
    trigger: Trigger,
) -> usize {
    // Each began within a step after `from_ns` and ended within one before `to_ns`.
    let half = step.as_u64() / 2;
    let mut edges: Vec<(u64, bool)> = Vec::new();
    for outage in flows.iter().flat_map(|flow| &flow.outages) {
        if triggers.of(outage.from_ns, outage.to_ns, step) == trigger {
            let begin = outage
                .from_ns
                .as_u64()
                .saturating_add(half)
                .min(u64::MAX - 1);
            let end = outage.to_ns.as_u64().saturating_sub(half).max(begin + 1);
            edges.extend([(begin, true), (end, false)]);
        }
    }
    // Of two at the same time, the end first.
    edges.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in edges {
        now = if begins {
            now + 1
        } else {
            now.saturating_sub(1)
        };
        most = most.max(now);
    }
    most
}

/// Joins the outages of `flows`, which send one packet each `step`, by the clock of the events.
pub fn joined(flows: &[FlowOutages], step: Nanoseconds, triggers: &TriggerTimes) -> Joined {
    let mut all: Vec<(Outage, u32)> = flows
        .iter()
        .flat_map(|flow| flow.outages.iter().map(|outage| (*outage, flow.flow)))
        .collect();
    all.sort_by_key(|(outage, _)| outage.from_ns);
    let mut clusters = Vec::new();
    let mut rest = all.as_slice();
    while let Some((first, _)) = rest.first() {
        let mut to = first.to_ns;
        let mut trigger = triggers.of(first.from_ns, to, step);
        let mut count = 1;
        for (outage, _) in &rest[1..] {
            // Outages of the failure and of the return may touch within a step.
            let next = triggers.of(outage.from_ns, outage.to_ns, step);
            if outage.from_ns > to || next != trigger {
                break;
            }
            to = to.max(outage.to_ns);
            trigger = next;
            count += 1;
        }
        let (own, others) = rest.split_at(count);
        clusters.push(cluster(own, flows.len(), step, trigger));
        rest = others;
    }
    Joined { clusters }
}

/// The outage, on a clock that is `offset_ns` ahead.
fn on_clock(outage: Outage, offset_ns: i64) -> Outage {
    Outage {
        from_ns: shifted(outage.from_ns, offset_ns),
        to_ns: shifted(outage.to_ns, offset_ns),
        resumed_ns: outage.resumed_ns.map(|at| shifted(at, offset_ns)),
        ..outage
    }
}

/// `own` is not empty.
fn cluster(own: &[(Outage, u32)], flows: usize, step: Nanoseconds, trigger: Trigger) -> Cluster {
    let outages = || own.iter().map(|(outage, _)| outage);
    let time = |times: Option<Nanoseconds>| times.unwrap_or_default();
    let mut affected: Vec<u32> = own.iter().map(|(_, flow)| *flow).collect();
    affected.sort_unstable();
    affected.dedup();
    let all_affected = affected.len() == flows;
    Cluster {
        trigger,
        from_ns: time(outages().map(|outage| outage.from_ns).min()),
        to_ns: time(outages().map(|outage| outage.to_ns).max()),
        flows: u32::try_from(affected.len()).unwrap_or(u32::MAX),
        longest_ns: time(outages().map(|outage| outage.length(step)).max()),
        common: all_affected.then(|| common(own, flows, step)).flatten(),
        lost: outages().map(|outage| outage.lost).sum(),
        late: outages().map(|outage| outage.late).sum(),
        has_ended: outages().all(|outage| outage.has_ended),
    }
}

/// How long no flow got a packet through: from the last packet of any flow before its longest outage to the first of any
/// flow after it. The flows take turns, so this is finer than what one of them sees.
fn common(
    own: &[(Outage, u32)],
    flows: usize,
    step: Nanoseconds,
) -> Option<(Nanoseconds, Nanoseconds)> {
    let mut longest: std::collections::BTreeMap<u32, Outage> = std::collections::BTreeMap::new();
    for (outage, flow) in own {
        let entry = longest.entry(*flow).or_insert(*outage);
        if outage.upper() > entry.upper() {
            *entry = *outage;
        }
    }
    let from = longest.values().map(|outage| outage.from_ns).max()?;
    let to = longest.values().map(|outage| outage.to_ns).min()?;
    let turn = step.as_u64() / u64::try_from(flows.max(1)).unwrap_or(1);
    let length = to.as_u64().checked_sub(from.as_u64())?;
    Some((
        Nanoseconds::new(length.saturating_sub(turn)),
        Nanoseconds::new(turn.max(1)),
    ))
}
