//! Passes on the progress of a running trial at both ends, and how often each end reports it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use linerate_model::failover::CommandRun;
use linerate_model::plan::End;
use linerate_model::protocol::Progress;
use linerate_traffic::Abort;

/// The progress of running trials.
#[derive(Clone)]
pub struct Watch {
    every: Duration,
    tell: Arc<dyn Fn(End, Progress) + Send + Sync>,
    ran: Arc<dyn Fn(CommandRun) + Send + Sync>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Each end reports `every` so often. `tell` must not block: it is called by the thread that watches the trial.
    pub fn new(every: Duration, tell: impl Fn(End, Progress) + Send + Sync + 'static) -> Self {
        let tell = Arc::new(tell);
        let ran = Arc::new(|_| ());
        Self { every, tell, ran }
    }

    /// `ran` gets the commands of the remote end that have ended; it must not block either.
    #[must_use]
    pub fn with_commands(self, ran: impl Fn(CommandRun) + Send + Sync + 'static) -> Self {
        let ran = Arc::new(ran);
        Self { ran, ..self }
    }

    /// Passes on how a command of the remote end has ended.
    pub(super) fn ran(&self, run: CommandRun) {
        (self.ran)(run);
    }

    /// How often each end reports.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Passes a report on.
    pub fn tell(&self, end: End, progress: Progress) {
        (self.tell)(end, progress);
    }

    /// Has this end of the trials that `abort` reaches report.
    pub fn this_end(&self, abort: &Abort) {
        let watch = self.clone();
        abort.report(self.every, move |progress| watch.tell(End::Local, progress));
    }
}
