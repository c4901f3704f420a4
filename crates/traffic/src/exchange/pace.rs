//! When requests begin and how long they took: what `rr` over lasting connections and with a connection
//! for each request have in common.

use std::collections::VecDeque;
use std::time::Instant;

use linerate_model::sample::Operations;

use super::schedule::Schedule;
use crate::trial::Board;

/// A request under way.
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
    board: &'a Board,
    /// `None` is closed loop: the end of one is the start of the next.
    schedule: Option<Schedule>,
    /// The first request of the schedule that has not begun.
    next: u64,
    depth: usize,
    under_way: VecDeque<Begun>,
    now: Instant,
}

impl<'a> Pace<'a> {
    /// At most `depth` requests at a time.
    pub(super) fn new(board: &'a Board, depth: u32) -> Self {
        let depth = depth as usize;
        Self {
            board,
            schedule: None,
            next: 0,
            depth,
            under_way: VecDeque::with_capacity(depth),
            now: Instant::now(),
        }
    }

    /// The trial starts.
    pub(super) fn start(&mut self, schedule: Option<Schedule>) {
        self.schedule = schedule;
        self.now = Instant::now();
    }

    /// How many requests begin now.
    #[inline]
    pub(super) fn begin(&mut self) -> u64 {
        let free = self.depth - self.under_way.len();
        if free == 0 || self.board.is_stopped() {
            return 0;
        }
        let Some(schedule) = self.schedule else {
            let begun = Begun {
                intended: self.now,
                sent: self.now,
            };
            (0..free).for_each(|_| self.under_way.push_back(begun));
            return free as u64;
        };
        let sent = Instant::now();
        let before = self.next;
        while self.under_way.len() < self.depth {
            let intended = schedule.at(self.next);
            if intended > sent {
                break;
            }
            self.under_way.push_back(Begun { intended, sent });
            self.next += 1;
        }
        self.next - before
    }

    /// When the next request shall begin; `None` when an answer must come first, and after the stop.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        let schedule = self.schedule.as_ref()?;
        let waits = self.under_way.len() == self.depth || self.board.is_stopped();
        (!waits).then(|| schedule.at(self.next))
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
        true
    }

    /// Whether no request is under way.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether no request is under way and none will begin.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_idle() && self.board.is_stopped()
    }
}
