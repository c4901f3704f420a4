//! What held up the traffic of an interruption, from the events that both ends recorded.

use linerate_model::end::End;
use linerate_model::failover::phase::{At, Incident, Interruption, Timer, Trace, Verdict, judge};
use linerate_model::failover::{Joined, Trigger, TriggerTimes};
use linerate_model::sample::Sample;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;

use super::document::ClockResult;

/// The events of a trial on the axis of this host's monotonic clock.
pub(super) struct Evidence<'a> {
    traces: Vec<Trace<'a>>,
    /// The time-outs of the routing protocols of both ends.
    timers: Vec<Timer>,
    /// How exactly the two clocks are compared.
    within: Nanoseconds,
    times: &'a TriggerTimes,
}

impl<'a> Evidence<'a> {
    pub(super) fn of(sample: &'a Sample, clock: &ClockResult, times: &'a TriggerTimes) -> Self {
        let local = sample.local.events.as_deref();
        let remote = sample.remote.events.as_deref();
        // Events of a host whose clock could not be compared have no place on the axis.
        let sides = [
            (End::Local, local, Some(0)),
            (End::Remote, remote, clock.offset_ns),
        ];
        let traces = sides.into_iter().filter_map(|(end, events, offset_ns)| {
            Some(Trace {
                end,
                events: events?,
                offset_ns: offset_ns?,
            })
        });
        let timers = [local, remote].into_iter().flatten();
        Self {
            timers: timers.flat_map(|events| events.timers.clone()).collect(),
            traces: traces.collect(),
            within: clock.within_ns.unwrap_or_default(),
            times,
        }
    }

    /// What held up the traffic of the longest interruption that `trigger` caused in a direction; none if it caused none.
    /// `tcp` are the interruptions of established connections in that direction.
    pub(super) fn verdict(
        &self,
        direction: Direction,
        (path, tcp): (&Joined, Option<&Joined>),
        trigger: Trigger,
        step: Nanoseconds,
    ) -> Option<Verdict> {
        let longest = path.longest(trigger)?;
        let stalls = tcp.into_iter().flat_map(|tcp| tcp.of(trigger));
        let (caused, restored) = match trigger {
            Trigger::Failure => (self.times.failure_ns, self.times.return_ns),
            Trigger::Return => (self.times.return_ns, None),
            Trigger::NoEvent => (None, None),
        };
        let incident = Incident {
            sender: match direction {
                Direction::Reverse => End::Remote,
                _ => End::Local,
            },
            outage: Some(Interruption {
                begin: at(longest.from_ns),
                end: at(longest.to_ns),
            }),
            resolution: Nanoseconds::new(step.as_u64().saturating_add(self.within.as_u64())),
            tcp_stall: stalls.map(|one| one.longest_ns).max(),
            caused: caused.map(at),
            restored: restored.map(at),
            timers: &self.timers,
            traces: &self.traces,
        };
        Some(judge(&incident))
    }
}

fn at(time: Nanoseconds) -> At {
    At(i64::try_from(time.as_u64()).unwrap_or(i64::MAX))
}
