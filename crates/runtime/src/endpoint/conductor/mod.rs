//! The commands of the failure and of the return of a trial, at either end. A process of their own (`process`) runs them:
//! it outlives the one that started it for as long as it takes to end what was caused, whatever ends that one.

pub mod process;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::{CommandRun, TrialCommands};
use serde::{Deserialize, Serialize};

/// A line to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// The trial runs.
    Began,
    /// The trial is over: what was caused is ended.
    Over,
    /// The same, at once: the command that causes the failure is killed.
    Aborted,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialEnd {
    /// Its time is over.
    Over,
    /// It was aborted, or failed.
    Aborted,
}

/// Runs the commands of a trial.
#[derive(Debug)]
pub struct Conductor {
    child: Child,
    lines: Lines,
    reader: JoinHandle<Vec<CommandRun>>,
    restore: Option<String>,
}

/// The standard input of the process.
#[derive(Debug, Clone)]
struct Lines {
    input: Arc<Mutex<Option<ChildStdin>>>,
    has_begun: Arc<AtomicBool>,
}

impl Lines {
    fn send(&self, line: Line) {
        let Ok(mut text) = serde_json::to_vec(&line) else {
            return;
        };
        text.push(b'\n');
        if let Some(input) = &mut *lock(&self.input) {
            // A process that is gone is noticed when it is waited for.
            let _ = input.write_all(&text).and_then(|()| input.flush());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports that the trial runs.
#[derive(Debug, Clone)]
pub struct Began(Lines);

impl Began {
    /// It may be called any number of times.
    pub fn signal(&self) {
        if !self.0.has_begun.swap(true, Ordering::SeqCst) {
            self.0.send(Line::Began);
        }
    }
}

impl Conductor {
    /// Prepares `commands`; the first one waits until the trial runs. `ran` is called by another thread for each that has
    /// ended.
    pub fn start(
        commands: &TrialCommands,
        ran: impl Fn(&CommandRun) + Send + 'static,
    ) -> Outcome<Self> {
        let failed = |error| Stop::io("start the process that runs the commands", error);
        // A group of its own: Ctrl-C reaches the group of a terminal's job, and the failure must be ended nevertheless.
        let mut child = Command::new("/proc/self/exe")
            .arg("conductor")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let lines = Lines {
            input: Arc::new(Mutex::new(child.stdin.take())),
            has_begun: Arc::default(),
        };
        let mut job = serde_json::to_vec(commands).map_err(|error| failed(error.into()))?;
        job.push(b'\n');
        if let Some(input) = &mut *lock(&lines.input) {
            input.write_all(&job).map_err(failed)?;
        }
        let output = child.stdout.take();
        let reader = std::thread::Builder::new()
            .name("commands".to_owned())
            .spawn(move || {
                let lines = output
                    .into_iter()
                    .flat_map(|out| BufReader::new(out).lines());
                let runs = lines.map_while(Result::ok);
                let runs = runs.filter_map(|line| serde_json::from_str(&line).ok());
                runs.inspect(|run| ran(run)).collect()
            })
            .map_err(failed)?;
        Ok(Self {
            child,
            lines,
            reader,
            restore: commands.restore.clone(),
        })
    }

    /// What reports that the trial runs.
    pub fn began(&self) -> Began {
        Began(self.lines.clone())
    }

    /// The trial has ended: waits until what was caused is ended, and returns what was run.
    pub fn end(mut self, how: TrialEnd) -> Outcome<Vec<CommandRun>> {
        self.lines.send(match how {
            TrialEnd::Over => Line::Over,
            TrialEnd::Aborted => Line::Aborted,
        });
        *lock(&self.lines.input) = None;
        let runs = self.reader.join();
        let runs = runs.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match self.child.wait() {
            Ok(status) if status.success() => Ok(runs),
            status => {
                let how = status.map_or_else(|error| error.to_string(), |one| one.to_string());
                let what = format!("the process that runs the commands of the trial ended: {how}");
                let stop = Stop::new(Code::RestoreIncomplete, what);
                Err(match &self.restore {
                    Some(restore) => stop.hint(format!("run `{restore}` by hand")),
                    None => stop,
                })
            }
        }
    }
}
