//! Watches a trial while it runs: reports its progress to the controller, and aborts it when it exceeds the maximum rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_model::protocol::{Progress, Reply};
use linerate_model::terms::RateBudget;
use linerate_model::units::Nanoseconds;
use linerate_traffic::Abort;

use super::Event;
use crate::endpoint::conductor::Began;

/// A controller cannot ask for more frequent reports than this.
const REPORT_MIN: Duration = Duration::from_millis(10);

/// How often a trial with a maximum rate, or with commands, is checked.
const CHECKED: Duration = Duration::from_millis(100);

/// What a trial is watched for.
pub(super) struct Watch {
    pub(super) events: SyncSender<Event>,
    /// How often it reports its progress; none is never.
    pub(super) report: Option<Nanoseconds>,
    /// What it may move; none without a maximum rate.
    pub(super) budget: Option<Arc<Mutex<RateBudget>>>,
    /// Signals that its commands may begin.
    pub(super) began: Option<Began>,
    /// How many directions its counter adds up.
    pub(super) directions: u64,
}

impl Watch {
    /// Begins with the trial of `abort`. The result becomes true when it exceeds the maximum rate.
    pub(super) fn begin(self, abort: &Abort) -> Arc<AtomicBool> {
        let exceeds = Arc::<AtomicBool>::default();
        let reports = (self.report).map(|every| Duration::from(every).max(REPORT_MIN));
        let is_checked = self.budget.is_some() || self.began.is_some();
        let checked = is_checked.then_some(CHECKED);
        let Some(every) = reports.into_iter().chain(checked).min() else {
            return exceeds;
        };
        let (found, aborted) = (Arc::clone(&exceeds), abort.clone());
        let last = Mutex::new((0, Nanoseconds::new(0)));
        let due = AtomicU64::new(0);
        abort.report(every, move |progress| {
            if let Some(began) = &self.began {
                began.signal();
            }
            if !self.is_within_budget(progress, &last) {
                found.store(true, Ordering::SeqCst);
                aborted.trigger();
            }
            if let Some(every) = reports {
                self.report(progress, every, &due);
            }
        });
        exceeds
    }

    /// Takes what was moved since `last` from the budget.
    fn is_within_budget(&self, progress: Progress, last: &Mutex<(u64, Nanoseconds)>) -> bool {
        let Some(budget) = &self.budget else {
            return true;
        };
        let moved = progress.sent_bytes.max(progress.received_bytes);
        let mut last = lock(last);
        let elapsed = progress.at_ns.as_u64().saturating_sub(last.1.as_u64());
        let bytes = moved.saturating_sub(last.0);
        *last = (moved, progress.at_ns);
        lock(budget).take(bytes, Nanoseconds::new(elapsed), self.directions)
    }

    /// Reports the progress if it is due.
    fn report(&self, progress: Progress, every: Duration, due: &AtomicU64) {
        let at = progress.at_ns.as_u64();
        if at < due.load(Ordering::Relaxed) {
            return;
        }
        let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        // A tenth early is on time: the checks in between are not aligned to the reports.
        due.store(at.saturating_add(every / 10 * 9), Ordering::Relaxed);
        // A report that finds the queue full is omitted: it must not hold up the trial.
        let reply = Box::new(Reply::Progress(progress));
        let _ = self.events.try_send(Event::Reply(reply));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
