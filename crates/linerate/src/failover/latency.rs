//! The latency before and after an interruption, from the transit times that the receivers recorded.

use linerate_model::failover::{Joined, Transit, Trigger, TriggerTimes};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;
use linerate_runtime::cli::FailoverWorkload;

use super::document::{ClockResult, LatencyResult};
use super::judge::Part;

/// The latency of a part before and after the interruptions of a trigger.
pub(super) fn latency(
    part: &Part<'_>,
    (clock, times): (&ClockResult, &TriggerTimes),
    joined: &Joined,
    trigger: Trigger,
) -> LatencyResult {
    let Some((before, after)) = spans(joined, trigger, times) else {
        return LatencyResult::default();
    };
    // A round trip is timed by one clock; of a packet one way, each end stamps its own time.
    let is_round_trip = matches!(
        part.workload,
        FailoverWorkload::Connect | FailoverWorkload::Rr | FailoverWorkload::Verbs
    );
    let is_one_clock = clock.is_shared || is_round_trip;
    let ahead = match (part.direction, clock.offset_ns) {
        _ if is_one_clock => Some(0),
        (Direction::Forward, offset) => offset,
        (_, offset) => offset.map(i64::saturating_neg),
    };
    let offset = part.sender_offset(clock);
    let arrivals = part.pairs.iter();
    let arrivals = arrivals.filter_map(|pair| pair.receiver.arrivals.as_ref());
    let (mut of_before, mut of_after) = (Vec::new(), Vec::new());
    for Transit(sent, took) in arrivals.flat_map(|one| &one.transits) {
        let sent = sent.as_u64().saturating_add_signed(offset);
        if before.contains(sent) {
            of_before.push(*took);
        } else if after.contains(sent) {
            of_after.push(*took);
        }
    }
    let (packets_before, packets_after) = (of_before.len() as u64, of_after.len() as u64);
    let on_one_clock = |took: i64| took.saturating_add(ahead?).try_into().ok();
    LatencyResult {
        before_ns: middle(of_before)
            .and_then(on_one_clock)
            .map(Nanoseconds::new),
        after_ns: middle(of_after)
            .and_then(on_one_clock)
            .map(Nanoseconds::new),
        within_ns: if is_one_clock {
            Some(Nanoseconds::new(0))
        } else {
            clock.within_ns
        },
        packets_before,
        packets_after,
    }
}

/// Send times on the clock of the events, from the first on and before the second.
struct Span(u64, u64);

impl Span {
    fn contains(&self, time: u64) -> bool {
        (self.0..self.1).contains(&time)
    }
}

/// The times before and after the interruptions of a trigger; none without an event or an interruption.
fn spans(joined: &Joined, trigger: Trigger, times: &TriggerTimes) -> Option<(Span, Span)> {
    let first = joined.of(trigger).map(|one| one.from_ns).min();
    let last = |trigger| joined.of(trigger).map(|one| one.to_ns).max();
    let time = |at: Nanoseconds| at.as_u64();
    let (began, until) = match trigger {
        Trigger::Failure => (times.failure_ns?, times.return_ns.map_or(u64::MAX, time)),
        Trigger::Return => (times.return_ns?, u64::MAX),
        Trigger::NoEvent => (first?, times.failure_ns.map_or(u64::MAX, time)),
    };
    let back = last(trigger).map_or(time(began), time).max(time(began));
    // An interruption that only the return ends has no time between it and the return.
    let until = if back < until { until } else { u64::MAX };
    let from = match trigger {
        // After the failure's own interruption.
        Trigger::Return => last(Trigger::Failure).or(times.failure_ns).map_or(0, time),
        _ => 0,
    };
    Some((Span(from, time(began)), Span(back, until)))
}

/// The median of `values`, the lower of two in the middle.
fn middle(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    let middle = values.len().checked_sub(1)? / 2;
    values.get(middle).copied()
}
