//! How a trial is reached from outside: aborted, ended early with what it measured so far, and asked what it has done. A
//! handle that any thread, or a signal handler, can trigger.
//!
//! Eventfds (eventfd(2)) rather than flags alone, because the threads that must notice sleep in
//! `poll`; and writing one is async-signal-safe (signal-safety(7)), which a condition variable is not.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_model::protocol::Progress;
use rustix::event::{EventfdFlags, eventfd};

use crate::TrafficError;

/// Aborts whatever waits on it; clones trigger the same one, and it stays triggered.
#[derive(Debug, Clone)]
pub struct Abort(Arc<Events>);

#[derive(Debug)]
struct Events {
    abort: OwnedFd,
    /// Readable once the trial is to end early.
    ending: OwnedFd,
    is_ending: AtomicBool,
    reports: Mutex<Reports>,
}

/// Receives the progress of a trial, and how often.
#[derive(Default)]
struct Reports(Option<(Duration, Report)>);

type Report = Box<dyn Fn(Progress) + Send>;

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = self.0.as_ref().map(|(every, _)| every);
        f.debug_tuple("Reports").field(&every).finish()
    }
}

impl Abort {
    /// An abort that is not triggered.
    pub fn new() -> Result<Self, TrafficError> {
        Ok(Self(Arc::new(Events {
            abort: new_event()?,
            ending: new_event()?,
            is_ending: AtomicBool::new(false),
            reports: Mutex::default(),
        })))
    }

    /// Aborts, now and permanently.
    pub fn trigger(&self) {
        signal(&self.0.abort);
    }

    /// Ends the running trial as if its time was over. The other end must expect it: it would take the end of its data
    /// for a failure.
    pub fn end_early(&self) {
        self.expect_early_end();
        signal(&self.0.ending);
    }

    /// The other end may end before the time is over.
    pub fn expect_early_end(&self) {
        self.0.is_ending.store(true, Ordering::SeqCst);
    }

    /// Whether the trial ends, or ended, before its time.
    pub fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::SeqCst)
    }

    /// Has the trials from now on report their progress. `to` is called by the thread that watches a trial: it must not
    /// block.
    pub fn report(&self, every: Duration, to: impl Fn(Progress) + Send + 'static) {
        self.reports().0 = Some((every, Box::new(to)));
    }

    /// How often a trial reports.
    pub(crate) fn reports_every(&self) -> Option<Duration> {
        self.reports().0.as_ref().map(|(every, _)| *every)
    }

    /// Reports.
    pub(crate) fn tell(&self, progress: Progress) {
        if let Some((_, to)) = &self.reports().0 {
            to(progress);
        }
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.0
            .reports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable once the trial is to end early.
    pub(crate) fn ending(&self) -> BorrowedFd<'_> {
        self.0.ending.as_fd()
    }

    /// Whether it was triggered.
    pub fn is_triggered(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(
            &self.0.abort,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::event::Timespec::default();
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(ready) if ready > 0)
    }
}

impl AsFd for Abort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.abort.as_fd()
    }
}

/// An eventfd that never blocks.
pub(crate) fn new_event() -> Result<OwnedFd, TrafficError> {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|errno| TrafficError::of_errno("make an eventfd", errno))
}

/// Adds one to an eventfd, which wakes the threads that poll it.
pub(crate) fn signal(event: impl AsFd) {
    // It can only fail when the counter is at 2^64 - 2, and then its readers are awake already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Takes the count of an eventfd: how often it was signaled since the last time.
pub(crate) fn take_signals(event: impl AsFd) -> u64 {
    let mut count = [0u8; 8];
    match rustix::io::read(event, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_stays_triggered_and_is_shared_by_its_clones() {
        let abort = Abort::new().expect("an eventfd");
        assert!(!abort.is_triggered());
        abort.clone().trigger();
        assert!(abort.is_triggered());
        assert!(abort.is_triggered());
    }

    #[test]
    fn an_early_end_is_no_abort() {
        let abort = Abort::new().expect("eventfds");
        assert!(!abort.is_ending());
        abort.expect_early_end();
        assert!(abort.is_ending());
        abort.clone().end_early();
        assert!(abort.is_ending() && !abort.is_triggered());
    }

    #[test]
    fn signals_are_counted_and_taken_once() {
        let event = new_event().expect("an eventfd");
        signal(&event);
        signal(&event);
        assert_eq!(take_signals(&event), 2);
        assert_eq!(take_signals(&event), 0);
    }
}
