//! Ctrl-C and its kin: the first one asks the work to end and roll everything back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Stop::io("listen for signals", error))?;
        let told = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    told.ask();
                }
            })
            .map_err(|error| Stop::io("start a thread", error))?;
        Ok(interrupt)
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
