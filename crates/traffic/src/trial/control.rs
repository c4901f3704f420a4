//! The control thread: reads every flow's counter at a fixed interval, and ends the trial: on time,
//! when it is aborted, when a flow fails, or when the peer vanished.
//!
//! It sleeps in ppoll(2) between readings. It ends the data threads' blocking calls by shutting their
//! sockets down (shutdown(2) wakes them), so that they need neither a timeout nor their own clock.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::Known;
use linerate_model::protocol::Progress;
use linerate_model::sample::{Role, Step};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown};

use super::record::cpu_time_of_this_process;
use super::shared_state::{Counter, SharedState};
use super::{FarEnd, Plan, cpu_time_of_this_thread};
use crate::abort::take_signals;
use crate::sys::{allowed_cpus, pin_thread};
use crate::tcp::{Flow, info};
use crate::waiting::timespec;
use crate::{Abort, TrafficError};

/// How long after the end of a trial its receivers wait for what is still in flight.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long the receivers of a timed stream wait for the end of file of a connection that has carried data: one that
/// loses much backs off for longer (RFC 6298, section 5.5), and what it still has in flight does not count.
const DRAIN_TIMED: Duration = Duration::from_secs(2);

/// The retransmits of more flows than this are not asked for while a trial runs: each takes a system call.
const ASKED_MAX: usize = 256;

/// Readings beyond the duration: those of the receivers while the socket buffers drain.
const READINGS_SPARE: usize = 32;

/// The maximum number of threads whose operations are recorded over time, thread by thread.
const THREADS_FOLLOWED: usize = 64;

/// The readings of one counter.
#[derive(Debug, Default)]
pub(super) struct Readings {
    pub(super) at: Vec<Nanoseconds>,
    pub(super) bytes: Vec<Bytes>,
}

/// Everything that the control thread read.
#[derive(Debug, Default)]
pub(super) struct Watched {
    flows: Vec<Readings>,
    steps: Vec<Step>,
    /// What each thread had completed at each step, step by step; none where there is no room for them.
    thread_counts: Vec<u64>,
    /// For each thread's own counter: the CPUs seen, in order of time, each change once.
    cpus: Vec<Vec<u32>>,
    ended_at: Nanoseconds,
    /// CPU time that watching took until the trial was ended.
    reading: Option<Duration>,
}

impl Watched {
    pub(super) fn take_readings(&mut self, flow: usize) -> Readings {
        self.flows
            .get_mut(flow)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// The steps; the last one is at the end, with the threads' own counts. For each of the threads that `asks`, what it
    /// had completed at each step before.
    pub(super) fn take_steps(
        &mut self,
        completed: u64,
        asks: impl Fn(usize) -> bool,
    ) -> (Vec<Step>, Vec<Vec<u64>>) {
        let mut steps = std::mem::take(&mut self.steps);
        steps.retain(|step| step.at_ns < self.ended_at);
        let all = self.cpus.len();
        let rows = self.thread_counts.chunks_exact(all.max(1));
        let of = |thread: usize| {
            rows.clone()
                .take(steps.len())
                .map(|row| row[thread])
                .collect()
        };
        let threads = (0..all).filter(|thread| !self.thread_counts.is_empty() && asks(*thread));
        let of_threads = threads.map(of).collect();
        steps.push(Step {
            at_ns: self.ended_at,
            completed,
        });
        (steps, of_threads)
    }

    /// The CPUs that a thread was seen on, and how often it had moved.
    pub(super) fn whereabouts(&self, thread: usize, last: &Known<CpuId>) -> (Vec<CpuId>, u32) {
        let seen = self.cpus.get(thread).map_or(&[][..], Vec::as_slice);
        let last = last.get().map(|cpu| cpu.0);
        let moved_last = matches!((seen.last(), last), (Some(&before), Some(now)) if before != now);
        let moves = seen.len().saturating_sub(1) + usize::from(moved_last);
        let all: BTreeSet<u32> = seen.iter().copied().chain(last).collect();
        let moves = u32::try_from(moves).unwrap_or(u32::MAX);
        (all.into_iter().map(CpuId).collect(), moves)
    }

    /// CPU time of this thread for its readings; none for a trial that never started.
    pub(super) fn reading(&self) -> Option<Nanoseconds> {
        self.reading.map(Nanoseconds::from)
    }

    /// When the last thread had ended, since the start.
    pub(super) fn ended_at(&self) -> Nanoseconds {
        self.ended_at
    }
}

/// When this end reports its progress.
struct Reports {
    every: Duration,
    last: Duration,
    next: Duration,
    cpu_before: Duration,
}

impl Reports {
    /// From the start on; none if nobody asked for them.
    fn begin(abort: &Abort) -> Option<Self> {
        let every = abort.reports_every()?;
        Some(Self {
            every,
            last: Duration::ZERO,
            next: every,
            cpu_before: cpu_time_of_this_process(),
        })
    }
}

/// The control thread's view of the trial.
pub(super) struct Control<'a> {
    spec: &'a TrialSpec,
    flows: &'a [Flow],
    counters: &'a [Counter],
    shared_state: &'a SharedState,
    far: &'a dyn FarEnd,
    abort: &'a Abort,
    duration: Duration,
    interval: Duration,
    plans: &'a [Plan],
    /// The index of each thread's own counter.
    own: Vec<usize>,
    watched: Watched,
}

impl<'a> Control<'a> {
    /// Allocates everything that the control thread will need.
    pub(super) fn new(
        spec: &'a TrialSpec,
        flows: &'a [Flow],
        (plans, own): (&'a [Plan], Vec<usize>),
        counters: &'a [Counter],
        shared_state: &'a SharedState,
        far: &'a dyn FarEnd,
        abort: &'a Abort,
    ) -> Result<Self, TrafficError> {
        let beats = spec.duration_ns.as_u64() / spec.interval_ns.as_u64().max(1);
        let most = usize::try_from(beats)
            .unwrap_or(usize::MAX)
            .saturating_add(READINGS_SPARE);
        let readings = flows
            .iter()
            .map(|_| Readings::with_room_for(most))
            .collect::<Result<_, _>>()?;
        let mut steps = Vec::new();
        steps.try_reserve_exact(most).map_err(out_of_memory)?;
        let mut thread_counts = Vec::new();
        if !spec.workload.is_bulk() && plans.len() <= THREADS_FOLLOWED {
            thread_counts
                .try_reserve_exact(most.saturating_mul(plans.len()))
                .map_err(out_of_memory)?;
        }
        Ok(Self {
            spec,
            flows,
            counters,
            shared_state,
            far,
            abort,
            duration: spec.duration_ns.into(),
            interval: spec.interval_ns.into(),
            watched: Watched {
                flows: readings,
                steps,
                thread_counts,
                cpus: vec![Vec::new(); own.len()],
                ended_at: Nanoseconds::default(),
                reading: None,
            },
            plans,
            own,
        })
    }

    /// Monitors the trial until every data thread has ended.
    pub(super) fn run(mut self, start: Instant, threads: usize) -> Watched {
        let begun = cpu_time_of_this_thread();
        let reading = || cpu_time_of_this_thread().saturating_sub(begun);
        let mut next_beat = self.interval;
        let mut reports = Reports::begin(self.abort);
        let mut over = false;
        // When sending was ended, whether the remote end knows, and whether receiving was ended, too.
        let mut stopped: Option<Duration> = None;
        let mut told = false;
        let mut ended = false;
        let mut torn_down = false;
        let mut finished = 0;
        while finished < threads as u64 {
            let now = start.elapsed();
            if now >= next_beat {
                self.read_counters(start);
                over |= self.ask(self.far.beat(now, self.flows, self.counters));
                next_beat = beat_after(now, self.interval);
            }
            let stops = stopped.is_none() && (over || now >= self.duration);
            self.report_when_due(&mut reports, now, stops);
            if stops {
                stopped = Some(now);
                self.watched.reading = Some(reading());
                self.end_sending();
            }
            if !told && stopped.is_some() && self.senders_have_ended() {
                told = true;
                self.far.stopped();
            }
            let patience = stopped.zip(self.patience()).filter(|_| !ended);
            let patience = patience.map(|(stopped, patience)| stopped + patience);
            if patience.is_some_and(|end| now >= end) {
                ended = true;
                self.end_receiving();
            }
            let limit = stopped.unwrap_or(self.duration) + DRAIN_MAX;
            if !torn_down && now >= limit {
                self.shared_state.fail(self.overdue());
            }
            if !torn_down && self.shared_state.failure.get().is_some() {
                torn_down = true;
                self.tear_down();
            }
            let next_event = match (stopped, torn_down) {
                (None, false) => self.duration,
                (Some(_), false) => patience.filter(|_| !ended).unwrap_or(limit),
                (_, true) => now + DRAIN_MAX,
            };
            let next_report = reports.as_ref().map_or(next_beat, |reports| reports.next);
            let next = next_event.min(next_beat).min(next_report);
            let left = next.saturating_sub(start.elapsed());
            over |= self.sleep(left, torn_down, stopped.is_some());
            finished += take_signals(&self.shared_state.finished);
        }
        if !told {
            self.far.stopped();
        }
        self.watched.reading.get_or_insert_with(reading);
        self.watched.ended_at = start.elapsed().into();
        self.watched
    }

    /// Sleeps until a thread ends, the trial is aborted or to end early, the remote end sends something, or `time` has
    /// passed; returns whether sending shall end now. During teardown the abort and a remote end that left
    /// stay readable and would keep us awake, as does the early end of a trial that is stopped.
    fn sleep(&self, time: Duration, torn_down: bool, stopped: bool) -> bool {
        let unless = |ignored: bool| {
            if ignored {
                PollFlags::empty()
            } else {
                PollFlags::IN
            }
        };
        let voice = self.far.voice().filter(|_| !torn_down);
        let mut fds = [
            PollFd::new(&self.shared_state.finished, PollFlags::IN),
            PollFd::new(self.abort, unless(torn_down)),
            match voice {
                Some(voice) => PollFd::from_borrowed_fd(voice, PollFlags::IN),
                None => PollFd::new(self.abort, PollFlags::empty()),
            },
            PollFd::from_borrowed_fd(self.abort.ending(), unless(stopped || torn_down)),
        ];
        // An interrupted or failed poll only means that we check once more.
        let _ = poll(&mut fds, Some(&timespec(time)));
        if fds[1].revents().contains(PollFlags::IN) {
            self.shared_state.fail(TrafficError::Aborted);
        }
        let speaks = voice.is_some() && !fds[2].revents().is_empty();
        let asked = speaks && self.ask(self.far.hear());
        asked || fds[3].revents().contains(PollFlags::IN)
    }

    /// What the remote end requests; its failure is the trial's.
    fn ask(&self, outcome: Result<bool, TrafficError>) -> bool {
        outcome.unwrap_or_else(|error| {
            self.shared_state.fail(error);
            false
        })
    }

    fn read_counters(&mut self, start: Instant) {
        let watched = &mut self.watched;
        for (readings, counter) in watched.flows.iter_mut().zip(self.counters) {
            // The space was reserved, and a reading beyond it would allocate: the end of each flow is
            // recorded by its own thread in any case.
            if readings.at.len() < readings.at.capacity() {
                readings.at.push(start.elapsed().into());
                readings.bytes.push(Bytes::new(counter.bytes()));
            }
        }
        if !self.spec.workload.is_bulk() && watched.steps.len() < watched.steps.capacity() {
            watched.steps.push(Step {
                at_ns: start.elapsed().into(),
                completed: self.counters.iter().map(Counter::operations).sum(),
            });
            if watched.thread_counts.capacity() > 0 {
                let count = |(plan, &own): (&Plan, &usize)| match &plan.flows[..] {
                    [] => self.counters[own].operations(),
                    flows => flows.iter().map(|&at| self.counters[at].operations()).sum(),
                };
                let counts = self.plans.iter().zip(&self.own).map(count);
                watched.thread_counts.extend(counts);
            }
        }
        for (seen, &own) in watched.cpus.iter_mut().zip(&self.own) {
            if let Some(cpu) = self.counters[own].cpu()
                && seen.last() != Some(&cpu)
            {
                seen.push(cpu);
            }
        }
    }

    /// Reports at the times for it, and for the last time when the trial `stops`.
    fn report_when_due(&self, reports: &mut Option<Reports>, now: Duration, stops: bool) {
        let Some(due) = reports else { return };
        // A last interval of less than half would be noise.
        if now >= due.next || (stops && now.saturating_sub(due.last) >= due.every / 2) {
            self.report(now, due.cpu_before);
            due.last = now;
            due.next = beat_after(now, due.every);
        }
        if stops {
            *reports = None;
        }
    }

    /// Reports what this end has done by `now`.
    fn report(&self, now: Duration, cpu_before: Duration) {
        let of = |role: Role| {
            let flows = self.flows.iter().zip(self.counters);
            flows.filter(move |(flow, _)| flow.role == role)
        };
        let bytes = |role| of(role).map(|(_, counter)| counter.bytes()).sum();
        // The flows of the others are companions, which carry none of the payload.
        let is_tcp = match &self.spec.workload {
            Workload::Udp(_) | Workload::Http(_) | Workload::Rdma(_) => false,
            Workload::Rr(rr) => !rr.connect_each,
            _ => self.spec.verbs.is_none(),
        };
        let may_ask = is_tcp && (1..=ASKED_MAX).contains(&of(Role::Sender).count());
        let retransmits = may_ask.then(|| {
            let senders = of(Role::Sender).map(|(flow, _)| info::read(&flow.socket));
            senders
                .filter_map(|info| Some(u64::from(info.value()?.retransmits)))
                .sum()
        });
        self.abort.tell(Progress {
            at_ns: now.into(),
            sent_bytes: bytes(Role::Sender),
            received_bytes: bytes(Role::Receiver),
            operations: self.counters.iter().map(Counter::operations).sum(),
            retransmits,
            p99_ns: self.shared_state.take_latency().quantile(0.99),
            cpu_ns: cpu_time_of_this_process().saturating_sub(cpu_before).into(),
        });
    }

    /// Ends the threads that begin operations. A stream's sender may be in a `send` that blocks: the
    /// kernel returns what it had taken of that buffer, sends everything it took, and then the end of
    /// file. The others return from what they wait for, and check.
    fn end_sending(&self) {
        self.shared_state.stop();
        if self.spec.verbs.is_some() || !matches!(self.spec.workload, Workload::Stream(_)) {
            return;
        }
        for flow in self.flows.iter().filter(|flow| flow.role == Role::Sender) {
            // It fails when the connection is gone, which its thread reports.
            let _ = shutdown(&flow.socket, Shutdown::Write);
        }
    }

    /// How long the receivers wait for the end of file after the end of sending, unless they must have all of it.
    fn patience(&self) -> Option<Duration> {
        let is_timed = match &self.spec.workload {
            Workload::Stream(stream) => stream.bytes.is_none() && !stream.data_check,
            _ => false,
        };
        let timed = || (is_timed && self.spec.verbs.is_none()).then_some(DRAIN_TIMED);
        self.far.patience().or_else(timed)
    }

    /// Ends the receivers: they get what the kernel has for them, and then the end of file. A connection from a linerate
    /// peer that has carried nothing at all is left to fail at the limit.
    fn end_receiving(&self) {
        let may_be_silent = self.far.patience().is_some();
        let flows = self.flows.iter().zip(self.counters);
        for (flow, counter) in flows.filter(|(flow, _)| flow.role == Role::Receiver) {
            if may_be_silent || counter.bytes() > 0 {
                // It fails when the connection is gone, which its thread reports.
                let _ = shutdown(&flow.socket, Shutdown::Read);
            }
        }
    }

    fn senders_have_ended(&self) -> bool {
        let mut flows = self.flows.iter().zip(self.counters);
        flows.all(|(flow, counter)| flow.role != Role::Sender || counter.is_done())
    }

    fn tear_down(&self) {
        self.shared_state.stop();
        self.flows.iter().for_each(end_both_ways);
    }

    fn overdue(&self) -> TrafficError {
        let late = self
            .flows
            .iter()
            .zip(self.counters)
            .find(|(_, counter)| !counter.is_done());
        TrafficError::Overdue {
            flow: late.map_or(0, |(flow, _)| flow.number),
            grace: DRAIN_MAX,
        }
    }
}

/// Ends a connection at once, also under a call that blocks on it.
pub(crate) fn end_both_ways(flow: &Flow) {
    // It fails when the connection is gone already.
    let _ = shutdown(&flow.socket, Shutdown::Both);
}

fn out_of_memory(_: std::collections::TryReserveError) -> TrafficError {
    TrafficError::OutOfMemory {
        doing: "allocate the readings of a flow",
    }
}

impl Readings {
    fn with_room_for(count: usize) -> Result<Self, TrafficError> {
        let mut readings = Self::default();
        readings
            .at
            .try_reserve_exact(count)
            .map_err(out_of_memory)?;
        readings
            .bytes
            .try_reserve_exact(count)
            .map_err(out_of_memory)?;
        Ok(readings)
    }

    /// Ends with what the flow's own thread counted, in place of readings made after its end.
    pub(super) fn end_with(mut self, at: Nanoseconds, bytes: Bytes) -> Self {
        let before = self.at.partition_point(|&reading| reading < at);
        self.at.truncate(before);
        self.bytes.truncate(before);
        self.at.push(at);
        self.bytes.push(bytes);
        self
    }
}

/// The first reading that is at least half an interval after `now`: one that was late is followed by no sliver. Readings
/// that were missed are skipped.
fn beat_after(now: Duration, interval: Duration) -> Duration {
    let interval_ns = interval.as_nanos().max(1);
    let earliest = now.as_nanos() + (interval_ns / 2).max(1);
    let beat = earliest.div_ceil(interval_ns).saturating_mul(interval_ns);
    Duration::from_nanos(u64::try_from(beat).unwrap_or(u64::MAX))
}

/// Moves the calling thread off the data threads' CPUs where others are allowed: reading the counters
/// must not take time from what they count.
pub(super) fn leave_data_cpus(data: &CpuSet) {
    let Ok(allowed) = allowed_cpus() else { return };
    let others = allowed.minus(data);
    if !data.is_empty() && !others.is_empty() {
        // A refusal only means that we stay where we are.
        let _ = pin_thread(&others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_that_were_slept_through_are_left_out() {
        let ms = Duration::from_millis;
        assert_eq!(beat_after(ms(10), ms(10)), ms(20));
        assert_eq!(beat_after(ms(54), ms(10)), ms(60));
        assert_eq!(beat_after(ms(57), ms(10)), ms(70));
    }

    #[test]
    fn the_last_reading_is_the_threads_own_and_times_stay_ascending() {
        let readings = Readings {
            at: [10, 20, 30].map(Nanoseconds::new).to_vec(),
            bytes: [1, 2, 3].map(Bytes::new).to_vec(),
        };
        let ended = readings.end_with(Nanoseconds::new(20), Bytes::new(3));
        assert_eq!(ended.at, [10, 20].map(Nanoseconds::new));
        assert_eq!(ended.bytes, [1, 3].map(Bytes::new));
    }
}
