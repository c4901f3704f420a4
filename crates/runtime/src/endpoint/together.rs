//! Trials over several paths at once: each has its own session with the peer and its own thread, and all start when the
//! data connections of the last one are there.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::sample::Sample;
use linerate_model::workload::TrialSpec;

use crate::console::random::fresh_token;
use crate::endpoint::trial::PeerPath;

/// The common start of some trials.
#[derive(Debug, Default)]
struct Start {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The trials that are not ready.
    missing: usize,
    /// Whether one of them will never be.
    is_off: bool,
}

impl Start {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one trial among those that start together. Dropped without [`Place::wait`], none of them starts.
#[derive(Debug)]
pub(super) struct Place {
    start: Arc<Start>,
    is_ready: bool,
}

impl Place {
    /// The places of `number` trials.
    fn of(number: usize) -> Vec<Self> {
        let start = Arc::new(Start::default());
        start.state().missing = number;
        let place = || Self {
            start: Arc::clone(&start),
            is_ready: false,
        };
        (0..number).map(|_| place()).collect()
    }

    /// Waits until all trials are ready; false if one of them will not be.
    pub(super) fn wait(mut self) -> bool {
        self.is_ready = true;
        let mut state = self.start.state();
        state.missing = state.missing.saturating_sub(1);
        self.start.changed.notify_all();
        while state.missing > 0 && !state.is_off {
            let woken = self.start.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_off
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_ready {
            self.start.state().is_off = true;
            self.start.changed.notify_all();
        }
    }
}

/// The error of a trial that was not started because another one failed: of several errors it explains the least.
pub(super) fn gave_up() -> Stop {
    Stop::new(
        Code::PeerUnreachable,
        "the trial was not started: one that was to start with it failed",
    )
}

/// Runs one trial over each of `paths`, all at the same time; the samples are in the order of the paths.
pub fn run_together(paths: Vec<(&mut PeerPath, &TrialSpec)>) -> Outcome<Vec<Sample>> {
    let places = Place::of(paths.len());
    let mut tokens = Vec::with_capacity(paths.len());
    for _ in &paths {
        tokens.push(fresh_token()?);
    }
    let outcomes: Vec<Outcome<Sample>> = thread::scope(|scope| {
        let all = paths.into_iter().zip(places).zip(tokens);
        let running: Vec<_> = all
            .map(|(((path, spec), place), token)| {
                let mut side = path.data_side();
                side.start_with(place);
                thread::Builder::new()
                    .name("linerate-path".to_owned())
                    .spawn_scoped(scope, move || side.run(spec, token))
            })
            .collect();
        running
            .into_iter()
            .map(|one| match one.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => Err(Stop::io("start a thread", error)),
            })
            .collect()
    });
    // The error of the trial that failed, not of those that waited for it.
    let not_started = gave_up().message;
    let mut first: Option<Stop> = None;
    let mut samples = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        match outcome {
            Ok(sample) => samples.push(sample),
            Err(stop) => {
                if first.as_ref().is_none_or(|one| one.message == not_started) {
                    first = Some(stop);
                }
            }
        }
    }
    first.map_or(Ok(samples), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_start_when_the_last_one_is_ready() {
        let places = Place::of(3);
        let started = thread::scope(|scope| {
            let all: Vec<_> = places
                .into_iter()
                .map(|place| scope.spawn(|| place.wait()))
                .collect();
            all.into_iter().all(|one| one.join().expect("no panic"))
        });
        assert!(started);
    }

    #[test]
    fn a_trial_that_is_never_ready_releases_those_that_wait() {
        let mut places = Place::of(2);
        let (failed, waits) = (places.pop(), places.pop().expect("two"));
        let started = thread::scope(|scope| {
            let waiting = scope.spawn(|| waits.wait());
            drop(failed);
            waiting.join().expect("no panic")
        });
        assert!(!started);
    }
}
