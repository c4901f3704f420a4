//! Makes a receiver's record of a flow, packet by packet, in bounded memory.
//!
//! Every number below the highest one that is in no run has arrived on time, so no table of arrivals is needed: a second
//! copy is a number that is in no run, or in a run of late ones.

use super::record::{Arrivals, NumberRun, RunKind, Stall, Stamp, TRANSITS_MAX, Transit};
use crate::units::Nanoseconds;

/// What became of a packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrived on time, perhaps after a higher number.
    OnTime,
    /// It arrived late.
    Late,
    /// It had arrived before.
    Duplicate,
    /// It cannot be of this trial.
    Ignored,
}

/// Records the arrivals of one flow.
#[derive(Debug, Clone)]
pub struct Recorder {
    arrivals: Arrivals,
    /// A packet that takes this much longer than the fastest is late.
    late_ns: u64,
    /// The planned time between two packets.
    step_ns: u64,
    /// No trial sends this number.
    limit: u64,
    /// How many runs are recorded.
    runs_max: usize,
    /// Every number that is a multiple of this has its transit time recorded.
    stride: u64,
    /// The last run ends below `next`, or with it and nothing has arrived on time since.
    is_open: bool,
}

impl Recorder {
    /// An empty one. A packet is late if it takes `late` longer than the fastest one of the flow; numbers from `limit` on
    /// are ignored, and no more than `runs_max` runs are recorded.
    pub fn new(step: Nanoseconds, late: Nanoseconds, limit: u64, runs_max: usize) -> Self {
        Self {
            arrivals: Arrivals {
                transits: Vec::with_capacity(TRANSITS_MAX),
                ..Arrivals::default()
            },
            late_ns: late.as_u64(),
            step_ns: step.as_u64(),
            limit,
            runs_max,
            stride: 1,
            is_open: false,
        }
    }

    /// What was recorded so far.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// A packet that cannot be of this trial.
    pub fn ignore(&mut self) {
        self.arrivals.ignored += 1;
    }

    /// The record.
    pub fn close(self) -> Arrivals {
        self.arrivals
    }

    /// Takes in the packet `stamp`.
    #[inline]
    pub fn arrived(&mut self, stamp: Stamp) -> Fate {
        if stamp.number >= self.limit {
            self.arrivals.ignored += 1;
            return Fate::Ignored;
        }
        self.arrivals.received += 1;
        let sent_ns = stamp.sent_ns.as_u64();
        let transit = stamp.received_ns.as_u64().wrapping_sub(sent_ns);
        let transit = transit.cast_signed();
        let fastest = self.arrivals.transit_min_ns.unwrap_or(transit).min(transit);
        self.arrivals.transit_min_ns = Some(fastest);
        if stamp.number.is_multiple_of(self.stride) && stamp.number >= self.arrivals.next {
            self.record_transit(stamp, transit);
        }
        let excess = transit.abs_diff(fastest);
        let is_late = excess > self.late_ns;
        if stamp.number >= self.arrivals.next {
            self.advance(stamp, is_late.then_some(excess))
        } else {
            self.fill(stamp, is_late.then_some(excess))
        }
    }

    /// Records a transit time; when there are too many, every other number is enough from now on.
    fn record_transit(&mut self, stamp: Stamp, transit: i64) {
        let transits = &mut self.arrivals.transits;
        if transits.len() >= TRANSITS_MAX {
            self.stride *= 2;
            let mut at = 0;
            transits.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            if !stamp.number.is_multiple_of(self.stride) {
                return;
            }
        }
        transits.push(Transit(stamp.sent_ns, transit));
    }

    /// A number that is higher than all before.
    #[inline]
    fn advance(&mut self, stamp: Stamp, late: Option<u64>) -> Fate {
        let next = self.arrivals.next;
        let is_next = stamp.number == next;
        self.arrivals.next = stamp.number.saturating_add(1);
        if !is_next {
            self.push(missing(next, stamp.number));
        }
        if let Some(excess) = late {
            self.arrivals.late += 1;
            self.late(stamp, excess);
            return Fate::Late;
        }
        if self.is_open {
            self.is_open = false;
            if let Some(run) = self.arrivals.runs.last_mut()
                && run.end == stamp.number
            {
                run.after = Some(stamp);
            }
        } else if let Some(last) = self.arrivals.last
            && last.number + 1 == stamp.number
        {
            self.pause(last, stamp);
        }
        self.arrivals.last = Some(stamp);
        Fate::OnTime
    }

    /// Two consecutive numbers arrived on time.
    #[inline]
    fn pause(&mut self, last: Stamp, stamp: Stamp) {
        let between = stamp.received_ns.as_u64();
        let between = between.saturating_sub(last.received_ns.as_u64());
        if between > self.step_ns.saturating_add(Stall::LEAST.as_u64()) {
            let stall = &mut self.arrivals.stall;
            stall.count += 1;
            if between > stall.longest_ns.as_u64() {
                stall.longest_ns = Nanoseconds::new(between);
                stall.at_ns = stamp.received_ns;
            }
        }
    }

    /// A late number that is higher than all before.
    fn late(&mut self, stamp: Stamp, excess: u64) {
        let runs = &mut self.arrivals.runs;
        if self.is_open
            && let Some(run) = runs.last_mut()
            && run.kind == RunKind::Late
            && run.end == stamp.number
        {
            extend(run, stamp, excess);
            run.end += 1;
            return;
        }
        self.push(late_run(stamp, excess));
    }

    /// Appends a run of the highest numbers.
    fn push(&mut self, mut run: NumberRun) {
        if self.arrivals.runs.len() >= self.runs_max {
            self.arrivals.unrecorded += run.end - run.first;
            // The run before ends here: no later packet bounds it.
            self.is_open = false;
            return;
        }
        if !self.is_open {
            run.before = self.arrivals.last;
        }
        self.is_open = true;
        self.arrivals.runs.push(run);
    }

    /// A number below the highest one.
    fn fill(&mut self, stamp: Stamp, late: Option<u64>) -> Fate {
        let number = stamp.number;
        let runs = &self.arrivals.runs;
        let at = runs.partition_point(|run| run.end <= number);
        let is_missing = runs
            .get(at)
            .is_some_and(|run| run.first <= number && run.kind == RunKind::Missing);
        if !is_missing {
            self.arrivals.duplicated += 1;
            return Fate::Duplicate;
        }
        self.arrivals.reordered += 1;
        if let Some(excess) = late {
            self.arrivals.late += 1;
            self.fill_late(at, stamp, excess);
            return Fate::Late;
        }
        self.fill_on_time(at, stamp);
        if self
            .arrivals
            .last
            .is_none_or(|last| last.number < stamp.number)
        {
            self.arrivals.last = Some(stamp);
        }
        Fate::OnTime
    }

    /// Number `stamp` of the missing run `at` arrived on time: the run ends before it, and what is left begins after it.
    fn fill_on_time(&mut self, at: usize, stamp: Stamp) {
        let runs = &mut self.arrivals.runs;
        let run = runs[at].clone();
        let (number, next) = (stamp.number, stamp.number + 1);
        let left = (run.first < number).then(|| NumberRun {
            end: number,
            after: Some(stamp),
            ..run.clone()
        });
        let right = (next < run.end).then(|| NumberRun {
            first: next,
            before: Some(stamp),
            ..run.clone()
        });
        // What followed without a number between them is bounded by it now.
        if left.is_none()
            && let Some(before) = at.checked_sub(1).and_then(|before| runs.get_mut(before))
            && before.end == number
        {
            before.after = Some(stamp);
        }
        if right.is_none()
            && let Some(after) = runs.get_mut(at + 1)
            && after.first == next
        {
            after.before = Some(stamp);
        }
        let is_last = at + 1 == runs.len();
        if is_last && right.is_none() {
            self.is_open = false;
        }
        self.replace(at, [left, right, None]);
    }

    /// Number `stamp` of the missing run `at` arrived late: it is part of the same outage.
    fn fill_late(&mut self, at: usize, stamp: Stamp, excess: u64) {
        let runs = &mut self.arrivals.runs;
        let number = stamp.number;
        // Mostly they arrive in order, each after the one before it.
        if runs[at].first == number
            && at > 0
            && runs[at - 1].kind == RunKind::Late
            && runs[at - 1].end == number
            && runs[at - 1].after.is_none()
            && runs[at].before.is_none()
        {
            extend(&mut runs[at - 1], stamp, excess);
            runs[at - 1].end += 1;
            if runs[at].end == number + 1 {
                runs[at - 1].after = runs[at].after;
                runs.remove(at);
            } else {
                runs[at].first += 1;
            }
            return;
        }
        let run = runs[at].clone();
        let left = (run.first < number).then(|| NumberRun {
            end: number,
            after: None,
            ..run.clone()
        });
        let right = (number + 1 < run.end).then(|| NumberRun {
            first: number + 1,
            before: None,
            ..run.clone()
        });
        let middle = NumberRun {
            before: if left.is_none() { run.before } else { None },
            after: if right.is_none() { run.after } else { None },
            ..late_run(stamp, excess)
        };
        self.replace(at, [left, Some(middle), right]);
    }

    /// Puts the parts of run `at` in its place.
    fn replace(&mut self, at: usize, parts: [Option<NumberRun>; 3]) {
        self.arrivals
            .runs
            .splice(at..=at, parts.into_iter().flatten());
        // A record with too many runs drops the newest, and counts their numbers.
        while self.arrivals.runs.len() > self.runs_max {
            if let Some(run) = self.arrivals.runs.pop() {
                self.arrivals.unrecorded += run.end - run.first;
                self.is_open = false;
            }
        }
    }
}

fn missing(first: u64, end: u64) -> NumberRun {
    NumberRun {
        first,
        end,
        kind: RunKind::Missing,
        before: None,
        after: None,
        arrived: None,
        worst_ns: None,
    }
}

fn late_run(stamp: Stamp, excess: u64) -> NumberRun {
    NumberRun {
        kind: RunKind::Late,
        arrived: Some(stamp),
        worst_ns: Some(Nanoseconds::new(excess)),
        ..missing(stamp.number, stamp.number + 1)
    }
}

/// One more number of a run of late ones.
fn extend(run: &mut NumberRun, stamp: Stamp, excess: u64) {
    run.worst_ns = run.worst_ns.max(Some(Nanoseconds::new(excess)));
    if run
        .arrived
        .is_none_or(|first| stamp.received_ns < first.received_ns)
    {
        run.arrived = Some(stamp);
    }
}
