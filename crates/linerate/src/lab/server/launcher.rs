//! `linerate launcher`: the process above a server that is started for a trial. It reads its job from a line on its
//! standard input, places itself as the server should run, starts it, and reports in lines on its standard output. When
//! its input ends, whatever ended linerate, it stops the server and every process that the server started: it is their
//! subreaper (PR_SET_CHILD_SUBREAPER of prctl(2)), so that one that detaches from its parent remains below it. Should
//! the launcher itself be killed, the server is too (PR_SET_PDEATHSIG).

use std::io::{self, BufRead};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use linerate_host::processes::descendants;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::CpuSet;
use linerate_model::workload::MemoryPolicy;
use linerate_runtime::console::say::Say;
use linerate_traffic::place::place_this_thread;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a server may take to end after SIGTERM, before SIGKILL.
pub(super) const TERM: Duration = Duration::from_secs(5);
/// How long the kernel may take to end it after SIGKILL.
pub(super) const KILL: Duration = Duration::from_secs(5);
/// How often processes that were forked meanwhile are looked for.
const AGAIN: Duration = Duration::from_millis(50);

/// What to start, and where.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    /// For `/bin/sh -c`.
    pub(super) command: String,
    /// An empty set leaves the CPUs to the scheduler.
    pub(super) cpus: CpuSet,
    pub(super) memory: MemoryPolicy,
}

/// A line of the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LauncherReport {
    /// The server's process was started.
    Started(u32),
    /// This host does not have these CPUs or this memory policy.
    NotPlaced(String),
    /// The shell was not started.
    NotStarted(String),
    /// No process of the server is left. The status is that of the command.
    Ended(Ending),
    /// These processes outlive SIGKILL.
    Survives(Vec<u32>),
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Ending {
    /// Its exit status, if it exited.
    pub(super) code: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
}

/// What the launcher waits for.
enum Event {
    /// The input ended, or a signal asks for the end.
    Stop,
    /// No process is left.
    AllEnded(Ending),
}

/// Carries out `launcher`.
pub(crate) fn run(say: &Say) -> Outcome<()> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Stop::io("read the job", error))?;
    let job: Job = serde_json::from_str(&line)
        .map_err(|error| Stop::new(Code::BadInput, "invalid job for a launcher").because(error))?;
    set_child_subreaper(Some(getpid()))
        .map_err(|errno| Stop::io("become the subreaper of the server", errno.into()))?;
    let (events, event) = mpsc::channel();
    stop_on_signals(events.clone())?;
    stop_at_end_of_input(events.clone())?;
    // Of this thread, which starts the server: its children inherit both.
    if let Err(error) = place_this_thread(&job.cpus, &job.memory) {
        return say.json_line(&LauncherReport::NotPlaced(error.to_string()));
    }
    let server = match start(&job.command) {
        Ok(server) => server,
        Err(error) => return say.json_line(&LauncherReport::NotStarted(error.to_string())),
    };
    // linerate may be gone already: its server must be stopped all the same.
    let _ = say.json_line(&LauncherReport::Started(server));
    reap(server, events).inspect_err(|_| send_to_all(Signal::KILL))?;
    say.json_line(&outcome(&event))
}

/// Starts the command in a process group of its own. It dies with this thread.
fn start(text: &str) -> io::Result<u32> {
    let output = || io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", text])
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .process_group(0);
    linerate_testbed::tie_to_parent(&mut command);
    Ok(command.spawn()?.id())
}

/// SIGTERM and its kin stop the server first. Its own signals are reset by execve(2).
fn stop_on_signals(events: Sender<Event>) -> Outcome<()> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Stop::io("listen for signals", error))?;
    in_a_thread("signals", move || {
        for _ in signals.forever() {
            let _ = events.send(Event::Stop);
        }
    })
}

fn stop_at_end_of_input(events: Sender<Event>) -> Outcome<()> {
    in_a_thread("input", move || {
        let mut rest = String::new();
        // Nothing but its end is expected; an error is an end.
        while io::stdin()
            .read_line(&mut rest)
            .is_ok_and(|count| count > 0)
        {
            rest.clear();
        }
        let _ = events.send(Event::Stop);
    })
}

/// Waits for every process below this one, until none is left.
fn reap(server: u32, events: Sender<Event>) -> Outcome<()> {
    in_a_thread("reaper", move || {
        let mut ending = Ending::default();
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_nonzero().get()) == Ok(server) {
                        ending = Ending {
                            code: status.exit_status(),
                            signal: status.terminating_signal(),
                        };
                    }
                }
                Ok(None) | Err(Errno::INTR) => {}
                // ECHILD: there is none.
                Err(_) => {
                    let _ = events.send(Event::AllEnded(ending));
                    return;
                }
            }
        }
    })
}

fn in_a_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Outcome<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    let thread = thread.map(drop);
    thread.map_err(|error| Stop::io("start a thread", error))
}

/// Waits for the server's end, or brings it about.
fn outcome(event: &Receiver<Event>) -> LauncherReport {
    if let Ok(Event::AllEnded(ending)) = event.recv() {
        return LauncherReport::Ended(ending);
    }
    send_to_all(Signal::TERM);
    if let Some(ending) = all_end_within(TERM, event) {
        return LauncherReport::Ended(ending);
    }
    let deadline = Instant::now() + KILL;
    loop {
        send_to_all(Signal::KILL);
        if let Some(ending) = all_end_within(AGAIN, event) {
            return LauncherReport::Ended(ending);
        }
        if Instant::now() >= deadline {
            return LauncherReport::Survives(descendants(std::process::id()).unwrap_or_default());
        }
    }
}

fn all_end_within(time: Duration, event: &Receiver<Event>) -> Option<Ending> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match event.recv_timeout(left) {
            Ok(Event::AllEnded(ending)) => return Some(ending),
            Ok(Event::Stop) => {}
            Err(_) => return None,
        }
    }
}

/// Signals every process below this one.
fn send_to_all(signal: Signal) {
    for pid in descendants(std::process::id()).unwrap_or_default() {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended meanwhile. Its number is not free before this process has waited for it.
            let _ = kill_process(pid, signal);
        }
    }
}
