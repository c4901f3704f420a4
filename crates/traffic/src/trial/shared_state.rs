//! What all threads of one end share: the gate where they wait for the start, the sign to stop, the
//! first failure; and the counters that each of them keeps.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use linerate_model::latency::Histogram;

use crate::TrafficError;
use crate::abort::{Abort, new_event, signal};

/// What a data thread writes for one flow while it runs, alone in its cache line: 128 bytes, because x86
/// fetches lines in pairs and other machines have lines of that size.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counter {
    bytes: AtomicU64,
    operations: AtomicU64,
    cpu: AtomicU32,
    done: AtomicBool,
}

/// No CPU was noted.
const NOWHERE: u32 = u32::MAX;

impl Default for Counter {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            cpu: AtomicU32::new(NOWHERE),
            done: AtomicBool::new(false),
        }
    }
}

impl Counter {
    /// Publishes the current number of bytes, and where the thread runs. Only the flow's own thread may.
    #[inline]
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.note_cpu();
    }

    /// Publishes the current number of operations, and where the thread runs. Only the flow's own thread
    /// may.
    #[inline]
    pub(crate) fn set_operations(&self, operations: u64) {
        self.operations.store(operations, Ordering::Relaxed);
        self.note_cpu();
    }

    /// Publishes both at once, for workloads that count both in every turn. Only the flow's own thread may.
    #[inline]
    pub(crate) fn set_both(&self, bytes: u64, operations: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.set_operations(operations);
    }

    /// Costs a load: the kernel keeps the number in the thread's own memory (rseq(2)).
    #[inline]
    fn note_cpu(&self) {
        let cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(NOWHERE);
        self.cpu.store(cpu, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// The flow's thread has ended.
    pub(super) fn set_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Where the thread was when it counted last.
    pub(crate) fn cpu(&self) -> Option<u32> {
        Some(self.cpu.load(Ordering::Relaxed)).filter(|&cpu| cpu != NOWHERE)
    }
}

/// What all threads of one end share.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Read before or after every operation, written once and once for each report; alone in their cache line.
    signs: Aligned<Signs>,
    /// The latencies of all threads that have seen the last request for them.
    latency: Mutex<Histogram>,
    /// Readable from the stop on: for threads that sleep in poll or epoll.
    pub(crate) stopping: OwnedFd,
    /// Readable when the trial was given up: for threads that wait before the start.
    pub(crate) abort: Abort,
    /// Signalled by each thread that ends.
    pub(super) finished: OwnedFd,
    /// The first failure; those that follow from it are not recorded.
    pub(super) failure: OnceLock<TrafficError>,
    gate: Mutex<Gate>,
    moved: Condvar,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Aligned<T>(T);

#[derive(Debug, Default)]
struct Signs {
    stop: AtomicBool,
    /// How often the latencies were asked for.
    asked: AtomicU32,
}

/// What passes the latencies of a data thread on while the trial runs.
#[derive(Debug)]
pub(crate) struct LatencyReport<'a> {
    shared_state: &'a SharedState,
    seen: Cell<u32>,
}

impl<'a> LatencyReport<'a> {
    pub(crate) fn new(shared_state: &'a SharedState) -> Self {
        let seen = Cell::new(0);
        Self { shared_state, seen }
    }

    /// Passes the thread's `latency` on if that was asked for since the last time; else it is a load and a comparison.
    #[inline]
    pub(crate) fn offer(&self, latency: &Histogram) {
        let asked = self.shared_state.signs.0.asked.load(Ordering::Relaxed);
        if self.seen.replace(asked) != asked {
            self.shared_state.latency().add(latency);
        }
    }
}

/// Where threads wait for the start.
#[derive(Debug, Default)]
struct Gate {
    arrived: usize,
    verdict: Option<Verdict>,
}

/// When the trial began at this end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The zero of this end's times.
    pub(crate) at: Instant,
    /// When the peer's senders were allowed to start.
    pub(crate) asked: Instant,
}

/// What the threads at the gate receive.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    /// Move bytes.
    Start(Start),
    /// There will be no trial.
    Leave,
}

impl SharedState {
    pub(super) fn new(abort: &Abort) -> Result<Self, TrafficError> {
        Ok(Self {
            signs: Aligned::default(),
            latency: Mutex::default(),
            stopping: new_event()?,
            abort: abort.clone(),
            finished: new_event()?,
            failure: OnceLock::new(),
            gate: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    /// Whether the threads that start operations must start no further one.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.signs.0.stop.load(Ordering::Relaxed)
    }

    /// Asks them to.
    pub(crate) fn stop(&self) {
        self.signs.0.stop.store(true, Ordering::Relaxed);
        signal(&self.stopping);
    }

    /// The latencies that the threads have passed on, and asks for the next ones.
    pub(super) fn take_latency(&self) -> Histogram {
        let latency = std::mem::take(&mut *self.latency());
        self.signs.0.asked.fetch_add(1, Ordering::Relaxed);
        latency
    }

    fn latency(&self) -> MutexGuard<'_, Histogram> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records why the trial fails, unless something failed before.
    pub(crate) fn fail(&self, error: TrafficError) {
        let _ = self.failure.set(error);
    }

    /// Whether the trial has failed or was given up: nothing more is worth waiting for.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Whether there is a trial to start. An earlier failure takes precedence over the one that is
    /// given here.
    pub(super) fn may_start(&self, abort: &Abort) -> Result<(), TrafficError> {
        if self.has_failed() || abort.is_triggered() {
            return Err(TrafficError::Aborted);
        }
        Ok(())
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is ready, or has failed: in both cases it need not be waited for.
    pub(super) fn arrive(&self) {
        self.gate().arrived += 1;
        self.moved.notify_all();
    }

    /// A thread has ended.
    pub(super) fn leave(&self) {
        signal(&self.finished);
    }

    /// Waits until `threads` threads have arrived.
    pub(super) fn wait_for(&self, threads: usize) {
        let mut gate = self.gate();
        while gate.arrived < threads {
            gate = self
                .moved
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts the waiting threads, or sends them home.
    pub(super) fn decide(&self, verdict: Verdict) {
        self.gate().verdict = Some(verdict);
        self.moved.notify_all();
    }

    /// Starts the waiting threads.
    pub(crate) fn open_gate(&self, start: Start) {
        self.decide(Verdict::Start(start));
    }

    pub(super) fn wait_for_verdict(&self) -> Verdict {
        let mut gate = self.gate();
        loop {
            if let Some(verdict) = gate.verdict {
                return verdict;
            }
            gate = self
                .moved
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::units::Nanoseconds;

    use super::*;

    #[test]
    fn a_thread_passes_its_latencies_on_once_for_each_request() {
        let abort = Abort::new().expect("eventfds");
        let shared_state = SharedState::new(&abort).expect("eventfds");
        let report = LatencyReport::new(&shared_state);
        let mut latency = Histogram::default();
        latency.record(Nanoseconds::new(100));
        report.offer(&latency);
        assert_eq!(shared_state.take_latency().count(), 0, "nobody had asked");
        report.offer(&latency);
        report.offer(&latency);
        LatencyReport::new(&shared_state).offer(&latency);
        assert_eq!(shared_state.take_latency().count(), 2, "two threads");
    }

    #[test]
    fn counters_of_two_threads_never_share_a_cache_line() {
        let counters = [Counter::default(), Counter::default()];
        let distance = (&raw const counters[1]).addr() - (&raw const counters[0]).addr();
        assert_eq!(distance, 128);
    }
}
