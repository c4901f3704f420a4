//! `linerate conductor`: runs the commands of a trial. It reads them, and then the trial's course, from lines on its standard
//! input, and prints a line for each command that has ended, stamped with the clock of the probes. The command that causes
//! the failure is ended with its process group when the trial is aborted or the input ends without the trial being over
//! (the process that started this one was killed); the command of the return is run in any case.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::{
    COMMAND_BYTES_MAX, COMMAND_OUTPUT_MAX, COMMAND_TIME_MAX, CommandEnd, CommandRun, TrialCommands,
    Trigger,
};
use linerate_traffic::monotonic_now;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use super::Line;

/// What it waits for.
#[derive(Debug)]
enum Sign {
    Line(Line),
    /// The process that started this one is gone, or has nothing more to send.
    Closed,
    /// The command has ended.
    Ended(io::Result<ExitStatus>),
}

/// How far the trial has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    Prepared,
    Runs,
    Over,
    Aborted,
}

/// `linerate conductor`.
pub fn run() -> Outcome<()> {
    let mut input = io::stdin().lock();
    let mut job = String::new();
    // Two commands, each of whose bytes JSON may write as six.
    let job_max = 12 * COMMAND_BYTES_MAX as u64 + 4_096;
    (&mut input)
        .take(job_max)
        .read_line(&mut job)
        .map_err(|error| Stop::io("read the commands of the trial", error))?;
    drop(input);
    let commands: TrialCommands = serde_json::from_str(&job).map_err(|error| {
        Stop::new(Code::BadInput, "cannot read the commands of the trial").because(error)
    })?;
    let (signs, heard) = mpsc::channel();
    let lines = signs.clone();
    std::thread::Builder::new()
        .name("lines".to_owned())
        .spawn(move || read_lines(&lines))
        .map_err(|error| Stop::io("start a thread", error))?;
    let report = |run: &CommandRun| {
        if let Ok(mut line) = serde_json::to_vec(run) {
            line.push(b'\n');
            // Nobody reads what is run after the process that started this one was killed.
            let mut out = io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    };
    Stage::new(signs, heard).conduct(&commands, report);
    Ok(())
}

fn read_lines(signs: &Sender<Sign>) {
    let lines = io::stdin().lock().lines().map_while(Result::ok);
    for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
        let _ = signs.send(Sign::Line(line));
    }
    let _ = signs.send(Sign::Closed);
}

/// The trial as it is seen from here.
struct Stage {
    signs: Sender<Sign>,
    heard: Receiver<Sign>,
    course: Course,
}

impl Stage {
    fn new(signs: Sender<Sign>, heard: Receiver<Sign>) -> Self {
        Self {
            signs,
            heard,
            course: Course::Prepared,
        }
    }

    /// Runs `commands` in their time, that of the return also when the trial ends before.
    fn conduct(mut self, commands: &TrialCommands, report: impl Fn(&CommandRun)) {
        while self.course == Course::Prepared {
            self.wait(None);
        }
        if self.course > Course::Runs {
            return;
        }
        let began = Instant::now();
        self.passes(began + commands.cause_after_ns.into());
        if let Some(cause) = &commands.cause {
            if self.course > Course::Runs {
                return;
            }
            let run = self.run(Trigger::Failure, cause);
            report(&run);
            if run.has_failed() {
                // Nothing that the trial would show belongs to the failure.
                self.course = Course::Aborted;
            }
        }
        self.passes(began + commands.restore_after_ns.into());
        if let Some(restore) = &commands.restore {
            report(&self.run(Trigger::Return, restore));
        }
    }

    /// Waits until `until` while the trial runs.
    fn passes(&mut self, until: Instant) {
        while self.course == Course::Runs && Instant::now() < until {
            self.wait(Some(until));
        }
    }

    /// Waits for a sign; returns that of a command.
    fn wait(&mut self, until: Option<Instant>) -> Option<io::Result<ExitStatus>> {
        let sign = match until {
            // This end of the channel has a sender itself: there is always one more sign to come.
            None => self
                .heard
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.heard.recv_timeout(left)
            }
        };
        match sign {
            Ok(Sign::Ended(status)) => return Some(status),
            Ok(Sign::Line(Line::Began)) => self.course = self.course.max(Course::Runs),
            Ok(Sign::Line(Line::Over)) => self.course = self.course.max(Course::Over),
            Ok(Sign::Line(Line::Aborted)) => self.course = Course::Aborted,
            // After the trial is over nothing more is sent.
            Ok(Sign::Closed) if self.course < Course::Over => self.course = Course::Aborted,
            Ok(Sign::Closed) | Err(_) => {}
        }
        None
    }

    /// Runs a command and waits until it ends.
    fn run(&mut self, trigger: Trigger, command: &str) -> CommandRun {
        let start_ns = monotonic_now();
        let mut output = None;
        let end = match started(command) {
            Ok((child, file)) => {
                output = Some(file);
                self.end_of(child, trigger)
            }
            Err(error) => CommandEnd::NotStarted(error.to_string()),
        };
        CommandRun {
            trigger,
            command: command.to_owned(),
            start_ns,
            end_ns: monotonic_now(),
            end,
            output: output.as_mut().map(shown).unwrap_or_default(),
        }
    }

    fn end_of(&mut self, mut child: Child, trigger: Trigger) -> CommandEnd {
        let group = Pid::from_child(&child);
        let until = Instant::now() + Duration::from(COMMAND_TIME_MAX);
        let signs = self.signs.clone();
        let waiting = std::thread::Builder::new()
            .name("command".to_owned())
            .spawn(move || signs.send(Sign::Ended(child.wait())));
        // It may end right now: then there is nothing left to end.
        let kill = || {
            let _ = kill_process_group(group, Signal::KILL);
        };
        if let Err(error) = waiting {
            kill();
            return CommandEnd::NotStarted(error.to_string());
        }
        let mut early = None;
        loop {
            let limit = early.is_none().then_some(until);
            match self.wait(limit) {
                Some(status) => return early.unwrap_or_else(|| ended(status)),
                None if early.is_some() => {}
                None if trigger == Trigger::Failure && self.course == Course::Aborted => {
                    early = Some(CommandEnd::Aborted);
                    kill();
                }
                None if Instant::now() >= until => {
                    early = Some(CommandEnd::TimedOut);
                    kill();
                }
                None => {}
            }
        }
    }
}

/// The shell of a command, in a process group of its own, and the file of its output.
fn started(command: &str) -> io::Result<(Child, File)> {
    // A file and no pipe: a program that stays in the background may keep it.
    let output = File::from(memfd_create("linerate-command", MemfdFlags::CLOEXEC)?);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0);
    linerate_testbed::tie_to_parent(&mut shell);
    Ok((shell.spawn()?, output))
}

fn ended(status: io::Result<ExitStatus>) -> CommandEnd {
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => CommandEnd::Exited(code),
        Ok((_, Some(signal))) => CommandEnd::Killed(signal),
        Ok(_) => CommandEnd::NotStarted("it ended in an unknown way".to_owned()),
        Err(error) => CommandEnd::NotStarted(format!("cannot wait for it: {error}")),
    }
}

/// The start of the output, without control characters.
fn shown(output: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is not shown.
    let _ = output.seek(SeekFrom::Start(0));
    let _ = output
        .take(COMMAND_OUTPUT_MAX as u64)
        .read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use linerate_model::units::Nanoseconds;

    use super::*;

    const NOW: Nanoseconds = Nanoseconds::new(0);
    const NEVER: Nanoseconds = Nanoseconds::from_millis(1_000_000_000);

    /// What is run of `commands` in a trial that takes this course; the signs are there from the start.
    fn conducted(
        (cause, restore): (Option<&str>, Option<&str>),
        (cause_after_ns, restore_after_ns): (Nanoseconds, Nanoseconds),
        course: &[Option<Line>],
    ) -> Vec<(Trigger, CommandEnd, String)> {
        let commands = TrialCommands {
            cause: cause.map(str::to_owned),
            restore: restore.map(str::to_owned),
            cause_after_ns,
            restore_after_ns,
        };
        let (signs, heard) = mpsc::channel();
        for line in course {
            let sign = line.map_or(Sign::Closed, Sign::Line);
            signs.send(sign).expect("it is heard");
        }
        let all = RefCell::new(Vec::new());
        Stage::new(signs, heard).conduct(&commands, |run| {
            let run = (run.trigger, run.end.clone(), run.output.clone());
            all.borrow_mut().push(run);
        });
        all.into_inner()
    }

    const DONE: CommandEnd = CommandEnd::Exited(0);
    const BEGAN: Option<Line> = Some(Line::Began);
    const OVER: Option<Line> = Some(Line::Over);
    const CLOSED: Option<Line> = None;

    #[test]
    fn a_failure_is_ended_when_the_trial_is_over_before_its_return_is_due() {
        let both = (Some("echo one"), Some("echo two"));
        let runs = conducted(both, (NOW, NEVER), &[BEGAN, OVER, CLOSED]);
        let failure = (Trigger::Failure, DONE, "one".to_owned());
        let back = (Trigger::Return, DONE, "two".to_owned());
        assert_eq!(runs, [failure, back]);
    }

    #[test]
    fn a_failure_is_not_caused_in_a_trial_that_is_over_or_never_began() {
        let both = (Some("echo one"), Some("echo two"));
        assert_eq!(conducted(both, (NOW, NOW), &[OVER]), []);
        assert_eq!(conducted(both, (NOW, NOW), &[CLOSED]), []);
        assert_eq!(conducted(both, (NEVER, NEVER), &[BEGAN, OVER, CLOSED]), []);
    }

    #[test]
    fn a_failure_of_the_other_end_is_ended_from_here() {
        let restore = (None, Some("echo two"));
        let runs = conducted(restore, (NOW, NEVER), &[BEGAN, OVER, CLOSED]);
        assert_eq!(runs, [(Trigger::Return, DONE, "two".to_owned())]);
    }

    #[test]
    fn a_command_that_fails_is_reported_with_its_output_and_ended_at_once() {
        let both = (Some("echo no such link >&2; exit 3"), Some("true"));
        let runs = conducted(both, (NOW, NEVER), &[BEGAN]);
        let failure = (
            Trigger::Failure,
            CommandEnd::Exited(3),
            "no such link".to_owned(),
        );
        assert_eq!(runs, [failure, (Trigger::Return, DONE, String::new())]);
    }

    #[test]
    fn a_command_is_killed_with_its_children_when_the_process_that_started_it_is_gone() {
        let both = (Some("sleep 1000 | cat"), Some("true"));
        let runs = conducted(both, (NOW, NEVER), &[BEGAN, CLOSED]);
        let failure = (Trigger::Failure, CommandEnd::Aborted, String::new());
        assert_eq!(runs, [failure, (Trigger::Return, DONE, String::new())]);
    }

    #[test]
    fn a_background_process_of_a_command_is_not_waited_for() {
        let cause = (Some("sleep 1000 & echo $!"), None);
        let runs = conducted(cause, (NOW, NOW), &[BEGAN, OVER, CLOSED]);
        let [(_, DONE, pid)] = &runs[..] else {
            panic!("{runs:?}")
        };
        let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a process");
        rustix::process::kill_process(pid, Signal::KILL).expect("it still runs");
    }
}
