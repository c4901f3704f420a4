//! The commands of the failure and of the return: which end runs them when, and what became of them on the clock of this
//! host. What was caused is always ended: the command of the return runs also when the trial fails, or Ctrl-C ends it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_model::end::End;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::{CommandEnd, CommandRun, TrialCommands, Trigger, TriggerTimes};
use linerate_model::units::Nanoseconds;
use linerate_runtime::cli::FailoverArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::endpoint::conductor::{Conductor, TrialEnd};
use linerate_runtime::endpoint::watch::Watch;

/// How long the path is observed before the failure, at most.
const LEAD_MAX: Duration = Duration::from_secs(2);
/// How often the running trial reports that it runs.
const REPORTS: Duration = Duration::from_millis(100);

/// The commands of each trial.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    local: TrialCommands,
    remote: TrialCommands,
}

impl Commands {
    pub(super) fn new(args: &FailoverArgs) -> Self {
        let time = Duration::from(args.time);
        let cause_after = (time / 5).min(LEAD_MAX);
        let restore_after = cause_after + time.saturating_sub(cause_after) / 2;
        let commands = |cause: &Option<String>, restore: &Option<String>| TrialCommands {
            cause: cause.clone(),
            restore: restore.clone(),
            cause_after_ns: cause_after.into(),
            restore_after_ns: restore_after.into(),
        };
        Self {
            local: commands(&args.cause, &args.restore),
            remote: commands(&args.cause_remote, &args.restore_remote),
        }
    }

    /// Those of the peer.
    pub(super) fn remote(&self) -> &TrialCommands {
        &self.remote
    }
}

/// The commands of a trial that runs.
pub(super) struct Running {
    conductor: Option<Conductor>,
    remote: Arc<Mutex<Vec<CommandRun>>>,
}

impl Running {
    /// Prepares the commands of this end, and what has to be passed on of the trial. A failure that cannot be caused aborts
    /// the trial: nothing that it would show belongs to it.
    pub(super) fn start(commands: &Commands, interrupt: &Interrupt) -> Outcome<(Self, Watch)> {
        let abort = interrupt.abort().clone();
        let judge = move |run: &CommandRun| {
            if run.trigger == Trigger::Failure && run.has_failed() {
                abort.trigger();
            }
        };
        let conductor = (!commands.local.is_empty())
            .then(|| Conductor::start(&commands.local, judge.clone()))
            .transpose()?;
        let began = conductor.as_ref().map(Conductor::began);
        let remote = Arc::<Mutex<Vec<CommandRun>>>::default();
        let heard = Arc::clone(&remote);
        let watch = Watch::new(REPORTS, move |_, _| {
            if let Some(began) = &began {
                began.signal();
            }
        });
        let watch = watch.with_commands(move |run| {
            judge(&run);
            let mut runs = heard.lock().unwrap_or_else(PoisonError::into_inner);
            runs.push(run);
        });
        Ok((Self { conductor, remote }, watch))
    }

    /// The trial has ended: waits until what this end has caused is ended. Returns what this end has run, and what the peer
    /// has reported so far.
    pub(super) fn end(self, how: TrialEnd) -> Outcome<(Vec<CommandRun>, Vec<CommandRun>)> {
        let local = self.conductor.map(|conductor| conductor.end(how));
        let local = local.transpose()?.unwrap_or_default();
        let mut remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((local, std::mem::take(&mut *remote)))
    }
}

/// A command that was run.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// The end that ran it.
    pub(super) end: End,
    pub(super) trigger: Trigger,
    pub(super) command: String,
    /// When it was started, by `CLOCK_MONOTONIC` of this host.
    pub(super) start_ns: Nanoseconds,
    /// When it ended.
    pub(super) end_ns: Nanoseconds,
    /// None if it was killed.
    pub(super) exit_code: Option<i32>,
    pub(super) output: String,
}

/// The commands that were run in a trial.
#[derive(Debug, Clone, Default)]
pub(super) struct Events(Vec<Event>);

impl Events {
    /// Those of both ends; `offset_ns` is how far this host's clock is ahead of the peer's. Without it the peer's have no
    /// place among the packets.
    pub(super) fn new(local: &[CommandRun], remote: &[CommandRun], offset_ns: Option<i64>) -> Self {
        let local = local.iter().map(|run| event(End::Local, run, 0));
        let remote = remote
            .iter()
            .filter_map(|run| Some(event(End::Remote, run, offset_ns?)));
        let mut all: Vec<Event> = local.chain(remote).collect();
        all.sort_by_key(|event| event.start_ns);
        Self(all)
    }

    pub(super) fn all(&self) -> &[Event] {
        &self.0
    }

    pub(super) fn triggers(&self) -> TriggerTimes {
        let start = |trigger| {
            let event = self.0.iter().find(|event| event.trigger == trigger);
            event.map(|event| event.start_ns)
        };
        TriggerTimes {
            failure_ns: start(Trigger::Failure),
            return_ns: start(Trigger::Return),
        }
    }
}

fn event(end: End, run: &CommandRun, offset_ns: i64) -> Event {
    let here = |time: Nanoseconds| Nanoseconds::new(time.as_u64().saturating_add_signed(offset_ns));
    Event {
        end,
        trigger: run.trigger,
        command: run.command.clone(),
        start_ns: here(run.start_ns),
        end_ns: here(run.end_ns),
        exit_code: match run.end {
            CommandEnd::Exited(code) => Some(code),
            _ => None,
        },
        output: run.output.clone(),
    }
}

/// The command that failed; that of the return if both did.
pub(super) fn failure(local: &[CommandRun], remote: &[CommandRun]) -> Option<Stop> {
    let ends = [(local, "here"), (remote, "at the peer")];
    let all = ends
        .into_iter()
        .flat_map(|(runs, whose)| runs.iter().map(move |run| (run, whose)));
    let failed = all.filter_map(|(run, whose)| Some((run.trigger, whose, run.failure()?)));
    let (trigger, whose, why) = failed.max_by_key(|(trigger, ..)| *trigger)?;
    let code = match trigger {
        Trigger::Return => Code::RestoreIncomplete,
        _ => Code::FailedRestored,
    };
    let stop = Stop::new(
        code,
        if whose == "here" {
            why
        } else {
            format!("{whose}: {why}")
        },
    );
    Some(stop.hint(format!(
        "run the command by hand, {whose}: it must end by itself, with exit code 0"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(trigger: Trigger, code: i32) -> CommandRun {
        CommandRun {
            trigger,
            command: "step".to_owned(),
            start_ns: Nanoseconds::new(1_000),
            end_ns: Nanoseconds::new(2_000),
            end: CommandEnd::Exited(code),
            output: String::new(),
        }
    }

    #[test]
    fn commands_of_the_peer_are_placed_on_this_hosts_clock_or_nowhere() {
        let (cause, back) = (run(Trigger::Failure, 0), run(Trigger::Return, 0));
        let events = Events::new(
            std::slice::from_ref(&back),
            std::slice::from_ref(&cause),
            Some(-400),
        );
        let times = events.triggers();
        assert_eq!(times.failure_ns, Some(Nanoseconds::new(600)));
        assert_eq!(times.return_ns, Some(Nanoseconds::new(1_000)));
        assert_eq!(events.all().len(), 2);
        assert!(Events::new(&[], &[cause], None).all().is_empty());
    }

    #[test]
    fn a_failure_that_is_not_ended_outranks_one_that_could_not_be_caused() {
        let cause = run(Trigger::Failure, 1);
        let stop = failure(std::slice::from_ref(&cause), &[]).expect("it failed");
        assert_eq!(stop.code, Code::FailedRestored);
        let stop = failure(&[cause], &[run(Trigger::Return, 1)]).expect("both failed");
        assert_eq!(stop.code, Code::RestoreIncomplete);
        assert!(
            stop.message.starts_with("at the peer: "),
            "{}",
            stop.message
        );
        assert!(failure(&[], &[run(Trigger::Return, 0)]).is_none());
    }
}
