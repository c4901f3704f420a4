//! The commands of the failure and of the return: run beside the trial by a thread of their own, stamped with the clock of
//! the probes. What was caused is always ended: the command of the return runs also when the trial fails, or Ctrl-C ends
//! it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::Trigger;
use linerate_model::units::Nanoseconds;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_traffic::{Abort, monotonic_now};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a command may take.
const COMMAND_MAX: Duration = Duration::from_secs(30);
/// What is shown of its output.
const OUTPUT_MAX: u64 = 4_096;
/// How long the path is observed before the failure, at most.
const LEAD_MAX: Duration = Duration::from_secs(2);

/// The commands of each trial.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    cause: Option<String>,
    restore: Option<String>,
    /// After the start of the trial.
    cause_after: Duration,
    restore_after: Duration,
}

impl Commands {
    /// In a trial of `time`.
    pub(super) fn new(cause: Option<String>, restore: Option<String>, time: Nanoseconds) -> Self {
        let time = Duration::from(time);
        let cause_after = (time / 5).min(LEAD_MAX);
        Self {
            cause,
            restore,
            cause_after,
            restore_after: cause_after + time.saturating_sub(cause_after) / 2,
        }
    }
}

/// A command that was run.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) trigger: Trigger,
    pub(super) command: String,
    /// When it was started, by `CLOCK_MONOTONIC`.
    pub(super) start_ns: Nanoseconds,
    /// When it ended.
    pub(super) end_ns: Nanoseconds,
    failure: Option<String>,
}

/// The commands that were run in a trial.
#[derive(Debug, Clone, Default)]
pub(super) struct Events(Vec<Event>);

impl Events {
    pub(super) fn all(&self) -> &[Event] {
        &self.0
    }

    /// The command that failed; that of the return if both did.
    pub(super) fn failure(&self) -> Option<Stop> {
        let failed = |event: &&Event| event.failure.is_some();
        let event = self.0.iter().rev().find(failed)?;
        let code = match event.trigger {
            Trigger::Return => Code::RestoreIncomplete,
            _ => Code::FailedRestored,
        };
        Some(
            Stop::new(code, event.failure.clone().unwrap_or_default())
                .hint("run the command by hand: it must end by itself, with exit code 0"),
        )
    }
}

/// What the thread of the commands waits for.
enum Sign {
    /// The trial runs.
    Began,
    /// The trial is over.
    Over,
}

/// Reports that the trial runs.
#[derive(Debug, Clone)]
pub(super) struct Began(SyncSender<Sign>);

impl Began {
    /// It may be called any number of times, and never blocks.
    pub(super) fn signal(&self) {
        // A full channel holds an earlier sign; a closed one belongs to a trial that is over.
        let _ = self.0.try_send(Sign::Began);
    }
}

/// The thread that runs the commands of a trial.
pub(super) struct Conductor {
    signs: SyncSender<Sign>,
    over: mpsc::Sender<()>,
    thread: JoinHandle<Events>,
}

impl Conductor {
    pub(super) fn start(commands: &Commands, interrupt: &Interrupt) -> Outcome<Self> {
        let (signs, heard) = mpsc::sync_channel(1);
        let (over, is_over) = mpsc::channel();
        let (commands, abort) = (commands.clone(), interrupt.abort().clone());
        let thread = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || conduct(&commands, &heard, &is_over, &abort))
            .map_err(|error| Stop::io("start a thread", error))?;
        Ok(Self {
            signs,
            over,
            thread,
        })
    }

    pub(super) fn began(&self) -> Began {
        Began(self.signs.clone())
    }

    /// The trial is over: waits until what was caused is ended.
    pub(super) fn end(self) -> Events {
        let Self {
            signs,
            over,
            thread,
        } = self;
        drop(over);
        // A thread that still waits for the start learns that there is none; one that does not, needs no sign.
        let _ = signs.try_send(Sign::Over);
        drop(signs);
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Runs the commands in their time, the return's also when the trial is over before.
fn conduct(
    commands: &Commands,
    heard: &Receiver<Sign>,
    is_over: &Receiver<()>,
    abort: &Abort,
) -> Events {
    let mut events = Events::default();
    if !matches!(heard.recv(), Ok(Sign::Began)) {
        return events;
    }
    let began = Instant::now();
    let Some(cause) = &commands.cause else {
        return events;
    };
    if !passes(is_over, began + commands.cause_after) {
        return events;
    }
    events.0.push(carried_out(Trigger::Failure, cause));
    if events.failure().is_some() {
        // Nothing that the trial would show belongs to the failure.
        abort.trigger();
    } else {
        passes(is_over, began + commands.restore_after);
    }
    if let Some(restore) = &commands.restore {
        events.0.push(carried_out(Trigger::Return, restore));
    }
    events
}

/// Waits until `until`; whether the trial still runs.
fn passes(is_over: &Receiver<()>, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    is_over.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
}

/// Runs `command` and waits until it ends, at most [`COMMAND_MAX`].
fn carried_out(trigger: Trigger, command: &str) -> Event {
    let start_ns = monotonic_now();
    let outcome = output_of(command, COMMAND_MAX);
    Event {
        trigger,
        command: command.to_owned(),
        start_ns,
        end_ns: monotonic_now(),
        failure: outcome
            .err()
            .map(|why| format!("cannot run `{command}`: {why}")),
    }
}

fn output_of(command: &str, limit: Duration) -> Result<(), String> {
    let why = |error: std::io::Error| error.to_string();
    // A file and no pipe: a program that stays in the background may keep it.
    let output = memfd_create("linerate-event", MemfdFlags::CLOEXEC);
    let mut output = File::from(output.map_err(|errno| why(errno.into()))?);
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(why)?)
        .stderr(output.try_clone().map_err(why)?)
        .process_group(0)
        .spawn()
        .map_err(why)?;
    let group = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    let waiting = std::thread::Builder::new()
        .name("event".to_owned())
        .spawn(move || ended.send(child.wait()))
        .map_err(why)?;
    let status = if let Ok(status) = end.recv_timeout(limit) {
        Ok(status.map_err(why)?)
    } else {
        // It may end right now: then there is nothing left to end.
        let _ = kill_process_group(group, Signal::KILL);
        Err(format!("it did not end within {} s", limit.as_secs()))
    };
    // The thread ends with the child.
    let _ = waiting.join();
    let status = status.and_then(succeeded);
    status.map_err(|why| {
        let text = shown(&mut output);
        if text.is_empty() {
            format!("{why}, without output")
        } else {
            format!("{why}: {text}")
        }
    })
}

fn succeeded(status: ExitStatus) -> Result<(), String> {
    if status.success() {
        return Ok(());
    }
    Err(status.to_string())
}

/// The start of the output, without control characters.
fn shown(output: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is not shown.
    let _ = output.seek(SeekFrom::Start(0));
    let _ = output.take(OUTPUT_MAX).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_reported_with_its_output() {
        assert_eq!(output_of("true", COMMAND_MAX), Ok(()));
        let why = output_of("echo no such link >&2; exit 3", COMMAND_MAX).expect_err("it fails");
        assert!(
            why.contains('3') && why.ends_with(": no such link"),
            "{why}"
        );
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let why = output_of("echo waiting; sleep 1000 | cat", Duration::from_millis(300));
        let why = why.expect_err("it hangs");
        assert!(why.contains("did not end within"), "{why}");
    }

    #[test]
    fn a_background_process_of_a_command_is_not_waited_for() {
        let begun = output_of("sleep 5 & exit 0", COMMAND_MAX);
        assert_eq!(begun, Ok(()));
    }
}
