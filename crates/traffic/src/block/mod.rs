//! Reads and writes of a block device by io_uring(7): IOPS, latency, and the CPU time of the threads.
//!
//! Each job is a thread with a ring, a registered buffer and the registered device. The caller opens the device: with
//! `O_DIRECT`, or the page cache is measured (open(2)). Random offsets come from the printed seed; sequential jobs read
//! adjacent parts of the area. The thread that calls [`measure`] takes readings meanwhile, and ends the trial.

mod job;
mod offsets;
mod side;

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::block::{BlockSample, BlockSpec, JobRecord};
use linerate_model::units::{Bytes, Nanoseconds};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::job::{Counter, Job, Shared};
pub use self::side::{read, recorded};
use crate::{Abort, TrafficError};

/// The number of readings in a trial, if they are not too close or too far apart.
const READINGS: u64 = 20;
const READING_MIN: Duration = Duration::from_millis(1);
const READING_MAX: Duration = Duration::from_millis(100);

/// When the caller may read counters of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Every job is ready, and none has started.
    Start,
    /// During the trial.
    Reading,
    /// The time is over; operations may still be in flight.
    End,
}

/// Runs one trial on `device`. `at` is called by this thread, which does no I/O.
pub fn measure(
    device: BorrowedFd<'_>,
    spec: &BlockSpec,
    logical: Bytes,
    abort: &Abort,
    at: &mut dyn FnMut(Moment),
) -> Result<BlockSample, TrafficError> {
    spec.check(logical)?;
    let shared = Shared {
        stop: AtomicBool::new(false),
        done: spec.jobs.iter().map(|_| Counter::default()).collect(),
    };
    // Released when every job is prepared.
    let gate = RwLock::new(());
    let (prepared, all_prepared) = mpsc::channel();
    thread::scope(|scope| {
        let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::new();
        let mut failed = None;
        for (index, counter) in shared.done.iter().enumerate() {
            let (gate, shared, prepared) = (&gate, &shared, prepared.clone());
            let job = move || -> Result<JobRecord, TrafficError> {
                let job = Job::prepare(device, spec, index, abort)?;
                // The receiver is gone if another thread could not be started.
                let _ = prepared.send(());
                drop(prepared);
                drop(gate.read());
                let record = job.run(shared, &counter.0);
                if record.is_err() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                record
            };
            match thread::Builder::new()
                .name(format!("job-{index}"))
                .spawn_scoped(scope, job)
            {
                Ok(thread) => threads.push(thread),
                Err(source) => failed = Some(TrafficError::OutOfThreads { source }),
            }
        }
        drop(prepared);
        // Ends when every thread has reported it, or has failed and dropped its end of the channel.
        let ready = all_prepared.iter().count();
        let is_ready = ready == spec.jobs.len();
        if is_ready {
            at(Moment::Start);
        } else {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let start = Instant::now();
        drop(closed);
        let readings = if is_ready {
            watch(spec, &shared, abort, start, at)
        } else {
            Vec::new()
        };
        let elapsed = start.elapsed();
        shared.stop.store(true, Ordering::Relaxed);
        if is_ready {
            at(Moment::End);
        }
        let mut jobs = Vec::with_capacity(threads.len());
        for thread in threads {
            match thread.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                Ok(job) => jobs.push(job),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None if abort.is_triggered() => Err(TrafficError::Aborted),
            None => Ok(BlockSample {
                jobs,
                elapsed_ns: Nanoseconds::from(elapsed),
                readings,
                cut_short: elapsed < Duration::from(spec.duration_ns),
            }),
        }
    })
}

/// Reads the counters until the time is over, or the trial ends earlier.
fn watch(
    spec: &BlockSpec,
    shared: &Shared,
    abort: &Abort,
    start: Instant,
    at: &mut dyn FnMut(Moment),
) -> Vec<(Nanoseconds, u64)> {
    let whole = Duration::from(spec.duration_ns);
    let every = Duration::from_nanos(spec.duration_ns.as_u64() / READINGS);
    let every = every.clamp(READING_MIN, READING_MAX);
    let mut readings = Vec::new();
    let mut next = every;
    loop {
        let now = start.elapsed();
        if now >= whole || shared.stop.load(Ordering::Relaxed) {
            return readings;
        }
        let wait = next.min(whole).saturating_sub(now);
        let limit = Timespec::try_from(wait).unwrap_or_default();
        let ending = abort.ending();
        let mut events = [
            PollFd::from_borrowed_fd(abort.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(ending, PollFlags::IN),
        ];
        // A signal may cut the wait short: then the loop looks around a little early.
        if matches!(poll(&mut events, Some(&limit)), Ok(count) if count > 0) {
            return readings;
        }
        let now = start.elapsed();
        if now >= next {
            let sum = |all: u64, counter: &Counter| all + counter.0.load(Ordering::Relaxed);
            readings.push((Nanoseconds::from(now), shared.done.iter().fold(0, sum)));
            at(Moment::Reading);
            next = now + every;
        }
    }
}

#[cfg(test)]
mod tests;
