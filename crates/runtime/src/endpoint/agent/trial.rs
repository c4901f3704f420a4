//! A trial at the remote end, in a thread of its own: its data, the commands that belong to it, and its record.

use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use linerate_model::failover::{CommandRun, Trigger};
use linerate_model::protocol::{Failure, FailureKind, Reply, START_AHEAD_MAX};
use linerate_model::sample::SideSample;
use linerate_model::units::Nanoseconds;
use linerate_traffic::Abort;
use linerate_traffic::tcp::Connected;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::ClockId;

use crate::console::say::warn;
use crate::endpoint::conductor::{Conductor, TrialEnd};
use crate::endpoint::kept::Reserved;
use crate::endpoint::record::record_side;

/// A trial between its preparation and its end.
pub(super) struct Trial {
    pub(super) number: u64,
    pub(super) abort: Abort,
    pub(super) start: Sender<Option<Nanoseconds>>,
    /// The outcome, if it arrived before it was requested.
    pub(super) early: Option<Result<Box<SideSample>, Failure>>,
    pub(super) started: bool,
    /// Whether it goes on without the controller.
    pub(super) keeps: bool,
    pub(super) thread: TrialThread,
}

/// Returns why the failure that it caused is not ended, if it is not.
pub(super) type TrialThread = JoinHandle<Option<String>>;

/// Delivers when a trial starts: now, or at a time of `CLOCK_MONOTONIC`.
pub(super) type TrialStart = Receiver<Option<Nanoseconds>>;

/// What the thread of a trial does, with the number of the trial.
pub(super) trait TrialRun:
    FnOnce(u64, &Abort, &TrialStart) -> Option<String> + Send + 'static
{
}

impl<T: FnOnce(u64, &Abort, &TrialStart) -> Option<String> + Send + 'static> TrialRun for T {}

/// What belongs to a trial beside its data.
#[derive(Default)]
pub(super) struct Aside {
    pub(super) conductor: Option<Conductor>,
    pub(super) reserved: Option<Reserved>,
}

/// The trial with its commands, from its data connections on; and why the failure that it caused is not ended, if it is not.
pub(super) fn run_trial(
    open: impl FnOnce() -> Result<Connected, Failure>,
    abort: &Abort,
    start: &TrialStart,
    aside: Aside,
) -> (Result<Box<SideSample>, Failure>, Option<String>) {
    let Aside {
        conductor,
        mut reserved,
    } = aside;
    let mut result = transferred(open, abort, start);
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
    open: impl FnOnce() -> Result<Connected, Failure>,
    abort: &Abort,
    start: &TrialStart,
) -> Result<Box<SideSample>, Failure> {
    let connected = open()?;
    let aborted = || Failure {
        kind: FailureKind::Other,
        message: "the trial was aborted".to_owned(),
    };
    let at = start.recv().map_err(|_| aborted())?;
    if at.is_some_and(|at| is_aborted_before(abort, at)) {
        return Err(aborted());
    }
    let spec = connected.spec().clone();
    record_side(connected, &spec, abort).map(Box::new)
}

/// Waits until `at` on the monotonic clock, at most [`START_AHEAD_MAX`]; whether the trial was aborted before.
fn is_aborted_before(abort: &Abort, at: Nanoseconds) -> bool {
    let last = now(ClockId::Monotonic).as_u64() + START_AHEAD_MAX.as_u64();
    let at = at.as_u64().min(last);
    loop {
        let left = at.saturating_sub(now(ClockId::Monotonic).as_u64());
        let wait = Timespec::try_from(Duration::from_nanos(left)).unwrap_or_default();
        // A signal may cut the wait short.
        match poll(&mut [PollFd::new(abort, PollFlags::IN)], Some(&wait)) {
            Ok(ready) if ready > 0 => return true,
            _ if left == 0 => return false,
            _ => {}
        }
    }
}

/// The clocks of this host.
pub(super) fn clock() -> Reply {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Reply::Clock {
        monotonic_ns: now(ClockId::Monotonic),
        unix_ns: unix.unwrap_or_default().into(),
    }
}

fn now(clock: ClockId) -> Nanoseconds {
    let now = rustix::time::clock_gettime(clock);
    Duration::try_from(now).unwrap_or_default().into()
}

pub(super) fn no_changes() -> Failure {
    Failure {
        kind: FailureKind::Permission,
        message: "the agent's owner permits no changes of settings: it was started without \
                  `--allow-changes`"
            .to_owned(),
    }
}

pub(super) fn no_connections() -> Failure {
    Failure {
        kind: FailureKind::Permission,
        message: "a listening agent measures with its controller only, not with other agents"
            .to_owned(),
    }
}

pub(super) fn no_commands() -> Failure {
    Failure {
        kind: FailureKind::Permission,
        message: "the agent's owner permits no commands: it was started without \
                  `--allow-commands`"
            .to_owned(),
    }
}

pub(super) fn no_run() -> Failure {
    Failure {
        kind: FailureKind::Permission,
        message: "this agent stores no run: it is not a rank of a mesh, or has `--no-store`"
            .to_owned(),
    }
}

pub(super) fn too_fast() -> Failure {
    Failure {
        kind: FailureKind::Permission,
        message: "the trial exceeded the maximum rate that the agent's owner permits, and was \
                  aborted"
            .to_owned(),
    }
}
