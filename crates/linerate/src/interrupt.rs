//! Ctrl-C and its kin: the first one asks the work to end and put everything back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linerate_traffic::abort::Abort;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Outcome, Stop};

/// Whether the work shall end.
#[derive(Debug, Clone)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    abort: Abort,
}

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP from now on.
    pub fn listen() -> Outcome<Self> {
        let interrupt = Self { asked: Arc::default(), abort: Abort::default() };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Stop::io("listen for signals", error))?;
        let told = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    told.asked.store(true, Ordering::SeqCst);
                    told.abort.trigger();
                }
            })
            .map_err(|error| Stop::io("start a thread", error))?;
        Ok(interrupt)
    }

    /// Ends the work here when it was asked to.
    pub fn check(&self) -> Outcome<()> {
        if self.asked() { Err(Stop::interrupted()) } else { Ok(()) }
    }

    /// Whether the work shall end.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// What a running trial listens to.
    pub fn abort(&self) -> &Abort {
        &self.abort
    }
}
