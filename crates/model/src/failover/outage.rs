//! The outages of one flow, from the records of its two ends.

use super::record::{NumberRun, ProbeRecord, RunKind};
use crate::units::Nanoseconds;

/// An outage of one flow, in the sender's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When the last packet before it that arrived on time was sent; of a flow on which none had arrived, the first packet.
    pub from_ns: Nanoseconds,
    /// When the first packet after it that arrived on time was sent; of one that did not end, the last packet.
    pub to_ns: Nanoseconds,
    /// Whether a packet arrived on time after it.
    pub has_ended: bool,
    /// Numbers that did not arrive.
    pub lost: u64,
    /// Numbers that arrived late.
    pub late: u64,
    /// When the first late number arrived, on the sender's clock less the flow's shortest transit time.
    pub resumed_ns: Option<Nanoseconds>,
    /// The most that a late number took beyond the shortest time.
    pub worst_ns: Option<Nanoseconds>,
}

impl Outage {
    /// The longest that it can have been: from the send time before it to the one after it.
    pub fn upper(&self) -> Nanoseconds {
        Nanoseconds::new(self.to_ns.as_u64().saturating_sub(self.from_ns.as_u64()))
    }

    /// Its length, in the middle of what is possible: it began within a step after `from_ns` and ended within one before
    /// `to_ns`, so it is known to within one step.
    pub fn length(&self, step: Nanoseconds) -> Nanoseconds {
        Nanoseconds::new(self.upper().as_u64().saturating_sub(step.as_u64()))
    }
}

/// The outages of the flow with these two records (`sender` has the departures, `receiver` the arrivals), ascending.
/// Where the sender's record is missing, numbers after the last that arrived are not known to have been sent.
pub fn outages(sender: Option<&ProbeRecord>, receiver: &ProbeRecord) -> Vec<Outage> {
    let departures = sender.and_then(|record| record.departures.as_ref());
    let Some(arrivals) = &receiver.arrivals else {
        return Vec::new();
    };
    let sent = departures.map_or(arrivals.next, |departures| departures.sent);
    let first_ns = departures.and_then(|departures| departures.first_ns);
    let last_ns = departures.and_then(|departures| departures.last_ns);
    let transit = arrivals.transit_min_ns.unwrap_or(0);
    let mut runs = arrivals.runs.clone();
    // What was sent after the highest number that arrived. A record whose newest runs were dropped cannot place it.
    if sent > arrivals.next && arrivals.unrecorded == 0 {
        let continues = runs.last().is_some_and(|run| run.end == arrivals.next);
        runs.push(NumberRun {
            first: arrivals.next,
            end: sent,
            kind: RunKind::Missing,
            before: if continues { None } else { arrivals.last },
            after: None,
            arrived: None,
            worst_ns: None,
        });
    }
    let mut all = Vec::new();
    for group in runs.chunk_by(|one, next| one.end == next.first) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let count = |kind: RunKind| -> u64 {
            let of_kind = group.iter().filter(|run| run.kind == kind);
            of_kind.map(|run| run.end.saturating_sub(run.first)).sum()
        };
        let from = first.before.map(|stamp| stamp.sent_ns).or(first_ns);
        let after = last.after.map(|stamp| stamp.sent_ns);
        let known = from.or(after).or(last_ns).unwrap_or_default();
        let arrived = group.iter().filter_map(|run| run.arrived);
        let resumed = arrived.map(|stamp| stamp.received_ns).min();
        all.push(Outage {
            from_ns: from.unwrap_or(known),
            to_ns: after.or(last_ns).unwrap_or(known).max(known),
            has_ended: after.is_some(),
            lost: count(RunKind::Missing),
            late: count(RunKind::Late),
            resumed_ns: resumed.map(|at| shifted(at, transit.saturating_neg())),
            worst_ns: group.iter().filter_map(|run| run.worst_ns).max(),
        });
    }
    all
}

/// `at`, on a clock that is `by` ahead.
pub(super) fn shifted(at: Nanoseconds, by: i64) -> Nanoseconds {
    Nanoseconds::new(at.as_u64().saturating_add_signed(by))
}
