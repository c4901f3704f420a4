//! Ctrl-C and its kin: the first one asks the work to end and roll everything back; a measurement ends early instead,
//! with what it measured so far, and the second one aborts it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_traffic::Abort;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Whether the work must stop.
#[derive(Debug, Clone)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    abort: Abort,
    early: Arc<Mutex<EarlyEnd>>,
}

/// How a measurement ends early.
#[derive(Default)]
struct EarlyEnd {
    /// What reports the first signal, if it ends the measurement early.
    tell: Option<Arc<dyn Fn() + Send + Sync>>,
    is_asked: bool,
    /// What ends each trial that runs, by its number.
    ends: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
    /// The number of the next one.
    next: u64,
}

impl fmt::Debug for EarlyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyEnd")
            .field("is_wanted", &self.tell.is_some())
            .field("is_asked", &self.is_asked)
            .finish_non_exhaustive()
    }
}

/// A trial runs that can end early.
#[derive(Debug)]
pub struct EndsEarly<'a>(&'a Interrupt, u64);

impl Drop for EndsEarly<'_> {
    fn drop(&mut self) {
        self.0.early().ends.remove(&self.1);
    }
}

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP from now on.
    pub fn listen() -> Outcome<Self> {
        let abort = Abort::new().map_err(|error| {
            Stop::new(Code::Resource, "cannot prepare for Ctrl-C").because(error)
        })?;
        let interrupt = Self {
            asked: Arc::default(),
            abort,
            early: Arc::default(),
        };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Stop::io("listen for signals", error))?;
        let told = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if !told.ends_early() {
                        told.ask();
                    }
                }
            })
            .map_err(|error| Stop::io("start a thread", error))?;
        Ok(interrupt)
    }

    /// From now on the first signal ends the measurement early, and calls `tell`.
    pub fn keep_what_was_measured(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.early().tell = Some(Arc::new(tell));
    }

    /// `end` ends a trial that runs now, when the measurement is to end early. It may run at once. Several trials may
    /// run at a time.
    pub fn during_trial(&self, end: impl FnOnce() + Send + 'static) -> EndsEarly<'_> {
        let mut early = self.early();
        let number = early.next;
        early.next += 1;
        if early.is_asked {
            drop(early);
            end();
        } else {
            early.ends.insert(number, Box::new(end));
        }
        EndsEarly(self, number)
    }

    /// Whether the measurement was asked to end early.
    pub fn is_ending_early(&self) -> bool {
        self.early().is_asked
    }

    /// Ends the measurement early, if it can still be; whether it is.
    fn ends_early(&self) -> bool {
        let mut early = self.early();
        let Some(tell) = early.tell.clone().filter(|_| !early.is_asked) else {
            return false;
        };
        early.is_asked = true;
        let ends = std::mem::take(&mut early.ends);
        drop(early);
        tell();
        for end in ends.into_values() {
            end();
        }
        true
    }

    fn early(&self) -> MutexGuard<'_, EarlyEnd> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the work here when it was asked to.
    pub fn check(&self) -> Outcome<()> {
        if self.asked() {
            Err(Stop::interrupted())
        } else {
            Ok(())
        }
    }

    /// Whether the work must stop.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.abort.trigger();
    }

    /// Waits until the work must stop, or for so long; returns whether it must.
    pub fn comes_within(&self, time: Duration) -> bool {
        let limit = Timespec::try_from(time).unwrap_or_default();
        // A signal may cut the wait short: then the caller looks around a little early.
        let _ = poll(&mut [PollFd::new(&self.abort, PollFlags::IN)], Some(&limit));
        self.asked()
    }

    /// What a running trial listens to.
    pub fn abort(&self) -> &Abort {
        &self.abort
    }
}

/// Passes an interrupt that reached this process on to a child, as long as it lives.
#[derive(Debug)]
pub struct Forward {
    handle: signal_hook::iterator::Handle,
}

impl Forward {
    /// Passes SIGINT, SIGTERM and SIGHUP on to `child` as SIGINT; each process handles a second one,
    /// which a terminal sends to all of them, as the same wish.
    pub fn to(child: Option<rustix::process::Pid>) -> Outcome<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Stop::io("listen for signals", error))?;
        let handle = signals.handle();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if let Some(child) = child {
                        // A child that is gone has nothing left to end.
                        let _ = rustix::process::kill_process(child, rustix::process::Signal::INT);
                    }
                }
            })
            .map_err(|error| Stop::io("start a thread", error))?;
        Ok(Self { handle })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.handle.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn an_early_end_ends_every_trial_that_runs_and_none_that_is_over() {
        let interrupt = Interrupt::listen().expect("signals can be listened to");
        interrupt.keep_what_was_measured(|| ());
        let ended = Arc::new(AtomicUsize::new(0));
        let end = |of: usize| {
            let ended = Arc::clone(&ended);
            move || {
                ended.fetch_add(of, Ordering::SeqCst);
            }
        };
        let first = interrupt.during_trial(end(1));
        let second = interrupt.during_trial(end(10));
        drop(interrupt.during_trial(end(100)));
        assert!(interrupt.ends_early());
        assert_eq!(ended.load(Ordering::SeqCst), 11);
        // One that begins now ends at once.
        let third = interrupt.during_trial(end(1_000));
        assert_eq!(ended.load(Ordering::SeqCst), 1_011);
        drop((first, second, third));
        assert!(!interrupt.ends_early(), "the second signal aborts");
    }
}
