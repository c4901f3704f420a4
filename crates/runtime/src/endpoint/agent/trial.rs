//! A trial at the remote end, in a thread of its own: its data, the commands that belong to it, and its record.

use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_model::failover::{CommandRun, Trigger};
use linerate_model::protocol::{Failure, FailureKind};
use linerate_model::sample::SideSample;
use linerate_traffic::Abort;
use linerate_traffic::tcp::Listening;

use crate::console::say::warn;
use crate::endpoint::conductor::{Conductor, TrialEnd};
use crate::endpoint::kept::Reserved;
use crate::endpoint::record::record_side;

/// How long the data connections of a prepared trial may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(15);

/// A trial between its preparation and its end.
pub(super) struct Trial {
    pub(super) number: u64,
    pub(super) abort: Abort,
    pub(super) start: Sender<()>,
    /// The outcome, if it arrived before it was requested.
    pub(super) early: Option<Result<Box<SideSample>, Failure>>,
    pub(super) started: bool,
    /// Whether it goes on without the controller.
    pub(super) keeps: bool,
    pub(super) thread: TrialThread,
}

/// Returns why the failure that it caused is not ended, if it is not.
pub(super) type TrialThread = JoinHandle<Option<String>>;

/// What belongs to a trial beside its data.
#[derive(Default)]
pub(super) struct Aside {
    pub(super) conductor: Option<Conductor>,
    pub(super) reserved: Option<Reserved>,
}

/// The trial with its commands; and why the failure that it caused is not ended, if it is not.
pub(super) fn run_trial(
    listening: Listening,
    abort: &Abort,
    start: &Receiver<()>,
    aside: Aside,
) -> (Result<Box<SideSample>, Failure>, Option<String>) {
    let Aside {
        conductor,
        mut reserved,
    } = aside;
    let mut result = transferred(listening, abort, start);
    // A trial that ends early does not wait for the command that causes the failure.
    let how = if result.is_ok() && !abort.is_ending() {
        TrialEnd::Over
    } else {
        TrialEnd::Aborted
    };
    let mut left = None;
    match conductor.map(|conductor| conductor.end(how)) {
        None => {}
        Some(Ok(runs)) => {
            let back = runs.iter().find(|run| run.trigger == Trigger::Return);
            left = back.and_then(CommandRun::failure);
            if let Ok(side) = &mut result {
                side.commands = runs;
            }
        }
        Some(Err(stop)) => left = Some(stop.to_string()),
    }
    if let (Ok(side), Some(reserved)) = (&result, &mut reserved)
        && let Err(error) = reserved.write(side)
    {
        warn(&format!("cannot keep the record of the trial: {error}"));
    }
    (result, left)
}

fn transferred(
    listening: Listening,
    abort: &Abort,
    start: &Receiver<()>,
) -> Result<Box<SideSample>, Failure> {
    let connected = listening
        .accept(Instant::now() + ARRIVAL, abort)
        .map_err(|error| Failure::from(&error))?;
    if start.recv().is_err() {
        return Err(Failure {
            kind: FailureKind::Other,
            message: "the trial was aborted".to_owned(),
        });
    }
    let spec = connected.spec().clone();
    record_side(connected, &spec, abort).map(Box::new)
}
