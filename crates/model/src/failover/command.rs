//! The commands of the failure and of the return: what an end is to run in a trial, and what became of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Trigger;
use crate::units::Nanoseconds;

/// How long a command may take.
pub const COMMAND_TIME_MAX: Nanoseconds = Nanoseconds::from_millis(30_000);
/// How much of its output is kept.
pub const COMMAND_OUTPUT_MAX: usize = 4_096;
/// The maximum length of a command.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;
/// The commands of a trial at one end: that of the failure and that of the return.
pub(crate) const COMMANDS_MAX: usize = 2;

/// The commands that one end runs in a trial.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialCommands {
    /// Causes the failure.
    #[serde(default)]
    pub cause: Option<String>,
    /// Ends it.
    #[serde(default)]
    pub restore: Option<String>,
    /// When `cause` is started, since the start of the trial.
    pub cause_after_ns: Nanoseconds,
    /// When `restore` is started, since the start of the trial.
    pub restore_after_ns: Nanoseconds,
}

impl TrialCommands {
    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.cause.is_none() && self.restore.is_none()
    }

    /// Why they cannot be run; `None` if they can.
    pub fn refusal(&self) -> Option<String> {
        let all = self.cause.iter().chain(&self.restore);
        let long = all.map(String::len).find(|len| *len > COMMAND_BYTES_MAX)?;
        Some(format!(
            "a command of {long} bytes; the maximum is {COMMAND_BYTES_MAX}"
        ))
    }
}

/// A command that was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRun {
    /// What it causes.
    pub trigger: Trigger,
    /// The command.
    pub command: String,
    /// When it was started, by `CLOCK_MONOTONIC` of the host that ran it.
    pub start_ns: Nanoseconds,
    /// When it ended.
    pub end_ns: Nanoseconds,
    /// How it ended.
    pub end: CommandEnd,
    /// The start of its output and errors, without control characters.
    #[serde(default)]
    pub output: String,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandEnd {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It took longer than [`COMMAND_TIME_MAX`], and was killed.
    TimedOut,
    /// The trial was aborted while it ran, and it was killed.
    Aborted,
    /// It could not be started.
    NotStarted(String),
}

impl CommandRun {
    /// How long it took.
    pub fn took(&self) -> Nanoseconds {
        let took = self.end_ns.as_u64().saturating_sub(self.start_ns.as_u64());
        Nanoseconds::new(took)
    }

    /// Whether it failed by itself.
    pub fn has_failed(&self) -> bool {
        !matches!(self.end, CommandEnd::Exited(0) | CommandEnd::Aborted)
    }

    /// Why it failed: how it ended, and its output.
    pub fn failure(&self) -> Option<String> {
        self.has_failed().then(|| {
            let (command, end) = (&self.command, &self.end);
            if self.output.is_empty() {
                format!("cannot run `{command}`: {end}, without output")
            } else {
                format!("cannot run `{command}`: {end}: {}", self.output)
            }
        })
    }

    /// Whether an end can have sent it.
    pub(crate) fn is_sized(&self) -> bool {
        // A replacement character takes three bytes.
        self.command.len() <= COMMAND_BYTES_MAX && self.output.len() <= 3 * COMMAND_OUTPUT_MAX
    }
}

impl fmt::Display for CommandEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "it ended with exit code {code}"),
            Self::Killed(signal) => write!(f, "it was killed by signal {signal}"),
            Self::TimedOut => write!(f, "it did not end within {COMMAND_TIME_MAX}"),
            Self::Aborted => f.write_str("it was killed because the trial was aborted"),
            Self::NotStarted(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(end: CommandEnd, output: &str) -> CommandRun {
        CommandRun {
            trigger: Trigger::Failure,
            command: "fail".to_owned(),
            start_ns: Nanoseconds::new(5),
            end_ns: Nanoseconds::new(7),
            end,
            output: output.to_owned(),
        }
    }

    #[test]
    fn a_command_fails_by_itself_and_not_by_an_abort() {
        assert_eq!(run(CommandEnd::Exited(0), "x").failure(), None);
        assert_eq!(run(CommandEnd::Aborted, "x").failure(), None);
        let why = run(CommandEnd::Exited(3), "no such link").failure();
        let expected = "cannot run `fail`: it ended with exit code 3: no such link";
        assert_eq!(why.as_deref(), Some(expected));
        let why = run(CommandEnd::TimedOut, "").failure();
        let expected = "cannot run `fail`: it did not end within 30.00 s, without output";
        assert_eq!(why.as_deref(), Some(expected));
    }

    #[test]
    fn a_command_that_is_too_long_is_refused() {
        let of = |len: usize| TrialCommands {
            restore: Some("x".repeat(len)),
            ..TrialCommands::default()
        };
        assert_eq!(of(COMMAND_BYTES_MAX).refusal(), None);
        assert!(of(COMMAND_BYTES_MAX + 1).refusal().is_some());
    }
}
