//! When requests begin and how long they took: what `rr` over lasting connections and with a connection
//! for each request have in common.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use linerate_model::sample::Operations;

use super::schedule::Schedule;
use crate::catch_up::{CATCH_UP_MAX, due_before};
use crate::trial::{LatencyReport, SharedState};

/// Beyond the end of every trial.
const NEVER: Duration = Duration::from_secs(86_400);

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct Begun {
    /// When it should have begun.
    intended: Instant,
    /// When it did.
    sent: Instant,
}

/// The pace of one flow's requests.
#[derive(Debug)]
pub(super) struct Pace<'a> {
    shared_state: &'a SharedState,
    /// That of its thread.
    report: Rc<LatencyReport<'a>>,
    /// `None` is closed loop: the end of one is the start of the next.
    schedule: Option<Schedule>,
    /// The end of the schedule.
    end: Instant,
    /// It was too far behind to make up for it.
    gave_up: bool,
    /// The first request of the schedule that has not begun.
    next: u64,
    depth: usize,
    under_way: VecDeque<Begun>,
    now: Instant,
}

impl<'a> Pace<'a> {
    /// At most `depth` requests at a time.
    pub(super) fn new(
        shared_state: &'a SharedState,
        report: Rc<LatencyReport<'a>>,
        depth: u32,
    ) -> Self {
        let (depth, now) = (depth as usize, Instant::now());
        Self {
            shared_state,
            report,
            schedule: None,
            end: now,
            gave_up: false,
            next: 0,
            depth,
            under_way: VecDeque::with_capacity(depth),
            now,
        }
    }

    /// The trial starts; `schedule` ends at `end`.
    pub(super) fn start(&mut self, schedule: Option<Schedule>, end: Instant) {
        self.schedule = schedule;
        self.end = end;
        self.now = Instant::now();
    }

    /// How many requests begin now.
    #[inline]
    pub(super) fn begin(&mut self) -> u64 {
        let free = self.depth - self.under_way.len();
        if self.schedule.is_some() && self.shared_state.is_stopped() {
            // Ended early: what was not due by now is none of the schedule's.
            self.end = self.end.min(Instant::now());
        }
        if free == 0 {
            return 0;
        }
        let Some(schedule) = self.schedule else {
            if self.shared_state.is_stopped() {
                return 0;
            }
            let begun = Begun {
                intended: self.now,
                sent: self.now,
            };
            (0..free).for_each(|_| self.under_way.push_back(begun));
            return free as u64;
        };
        let sent = Instant::now();
        let last = sent.min(self.end);
        self.gave_up |= sent > self.end + CATCH_UP_MAX;
        if self.gave_up {
            return 0;
        }
        let before = self.next;
        while self.under_way.len() < self.depth {
            let intended = schedule.at(self.next);
            if intended > last || intended >= self.end {
                break;
            }
            self.under_way.push_back(Begun { intended, sent });
            self.next += 1;
        }
        self.next - before
    }

    /// When the next request of the schedule is due; `None` when there is none.
    fn next_intended(&self) -> Option<Instant> {
        let intended = self.schedule.as_ref()?.at(self.next);
        (intended < self.end && !self.gave_up).then_some(intended)
    }

    /// When the next request is due; `None` when an answer must come first, and in closed loop. After
    /// the last request of the schedule a time that is never reached: only the sign to stop is waited for.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        if self.under_way.len() == self.depth {
            return None;
        }
        let waits_for_stop =
            self.schedule.is_some() && self.is_idle() && !self.shared_state.is_stopped();
        self.next_intended()
            .or_else(|| waits_for_stop.then(|| self.end + NEVER))
    }

    /// `count` requests, the oldest first, were answered now; `false` when there were fewer.
    #[inline]
    pub(super) fn complete(&mut self, count: u64, operations: &mut Operations) -> bool {
        self.now = Instant::now();
        for _ in 0..count {
            let Some(begun) = self.under_way.pop_front() else {
                return false;
            };
            let since = |begun: Instant| self.now.saturating_duration_since(begun).into();
            operations.latency.record(since(begun.intended));
            if let Some(service) = &mut operations.service {
                service.record(since(begun.sent));
            }
        }
        operations.completed += count;
        self.report.offer(&operations.latency);
        true
    }

    /// Whether no request is in flight.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// How many requests were due before the end and never begun; to be asked when it is over.
    pub(super) fn left_behind(&self) -> u64 {
        self.schedule.map_or(0, |schedule| {
            due_before(&self.end, |number| schedule.at(number)).saturating_sub(self.next)
        })
    }

    /// Whether no request is in flight and none will begin.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_idle() && self.shared_state.is_stopped() && self.next_intended().is_none()
    }
}
