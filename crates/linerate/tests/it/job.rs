//! A running program: its output, how it ends, and which of its processes are still there. It waits for
//! events (pidfds, ends of pipes); the only clock is a guard against hanging forever.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Longer than anything here takes on a busy machine: past it, something hangs.
pub(crate) const HANGS: Duration = Duration::from_secs(600);

/// The variable by which the family of a job is known: every process hands it on to its children.
const MARK: &str = "LINERATE_IT_JOB";

/// How a program ended, and its output.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Done {
    /// Panics unless the program ended with `code`.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "signal {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.signal,
            self.out,
            self.err
        );
        self
    }
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Job {
    mark: String,
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    /// Each line of its standard error, as it comes.
    lines: Receiver<String>,
}

impl Job {
    /// Starts it with nothing on its standard input.
    pub(crate) fn start(mut command: Command) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{MARK}={}-{count}", std::process::id());
        let (name, value) = mark.split_once('=').expect("it was just written");
        command
            .env(name, value)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let out = read_to_end(child.stdout.take().expect("piped"));
        let (err, lines) = read_lines(child.stderr.take().expect("piped"));
        Self {
            mark,
            child,
            out,
            err,
            lines,
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        ends_within(&self.ending(), Duration::ZERO)
    }

    /// Waits for a line of its standard error that is `wanted`.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, wanted: impl Fn(&str) -> bool) {
        loop {
            let line = self.lines.recv_timeout(HANGS);
            if wanted(&line.expect("it ended, or hangs, without this line")) {
                return;
            }
        }
    }

    /// Sends a signal to it alone.
    pub(crate) fn send(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).expect("our own child, not waited for yet");
    }

    /// A descriptor that becomes readable when the program ends.
    pub(crate) fn ending(&self) -> OwnedFd {
        pidfd_open(pid(self.child.id()), PidfdFlags::empty()).expect("our own child")
    }

    /// Every process of its family that lives, with its command line.
    pub(crate) fn family(&self) -> Vec<(Pid, String)> {
        let processes = fs::read_dir("/proc").expect("proc is mounted").flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_family = |number: &u32| {
            fs::read(format!("/proc/{number}/environ")).is_ok_and(|all| {
                all.split(|&byte| byte == 0)
                    .any(|one| one == self.mark.as_bytes())
            })
        };
        let words = |number: u32| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            (
                pid(number),
                String::from_utf8_lossy(&line).replace('\0', " "),
            )
        };
        numbers.filter(is_family).map(words).collect()
    }

    /// Waits for its end, and for everybody who could still write to its output.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        if !ends_within(&self.ending(), HANGS) {
            let family = self.family();
            let _ = self.child.kill();
            panic!("it hangs: {family:?}");
        }
        let status = self.child.wait().expect("our own child");
        let said = |stream: &Receiver<String>| {
            stream
                .recv_timeout(HANGS)
                .unwrap_or_else(|_| panic!("somebody outlives it: {:?}", self.family()))
        };
        Done {
            code: status.code(),
            signal: status.signal(),
            out: said(&self.out),
            err: said(&self.err),
        }
    }

    /// Kills it (SIGKILL, it alone) and waits until none of its family lives.
    #[track_caller]
    pub(crate) fn kill(self) -> Done {
        let before = self.family();
        let ends: Vec<OwnedFd> = before
            .iter()
            .filter_map(|(pid, _)| pidfd_open(*pid, PidfdFlags::empty()).ok())
            .collect();
        self.send(Signal::KILL);
        for end in &ends {
            assert!(ends_within(end, HANGS), "outlives a SIGKILL: {before:?}");
        }
        // One that was forked between the look and the kill is its parent's, which is gone.
        while let Some((late, words)) = self.family().into_iter().next() {
            let Ok(end) = pidfd_open(late, PidfdFlags::empty()) else {
                continue;
            };
            assert!(ends_within(&end, HANGS), "outlives a SIGKILL: {words}");
        }
        self.end()
    }
}

fn pid(number: u32) -> Pid {
    let number = i32::try_from(number).expect("process numbers are small");
    Pid::from_raw(number).expect("not 0")
}

fn read_to_end(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        let _ = stream.read_to_end(&mut bytes);
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

/// The same, and each line as it comes.
fn read_lines(stream: impl Read + Send + 'static) -> (Receiver<String>, Receiver<String>) {
    let (send, receive) = mpsc::channel();
    let (each, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut all, mut stream) = (Vec::new(), BufReader::new(stream));
        let mut from = 0;
        // What came before an error is what there is.
        while stream
            .read_until(b'\n', &mut all)
            .is_ok_and(|count| count > 0)
        {
            let line = String::from_utf8_lossy(&all[from..]).into_owned();
            from = all.len();
            let _ = each.send(line);
        }
        let _ = send.send(String::from_utf8_lossy(&all).into_owned());
    });
    (receive, lines)
}

/// Whether the process of this pidfd ends in time.
pub(crate) fn ends_within(pidfd: &OwnedFd, time: Duration) -> bool {
    let limit = Timespec::try_from(time).expect("a few minutes");
    let mut wait = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut wait, Some(&limit)).expect("nothing interrupts") > 0
}

/// Runs a program to its end.
#[track_caller]
pub(crate) fn run(command: Command) -> Done {
    Job::start(command).end()
}

/// Copies a program. A process of its own does it: while this one has the copy open for writing, whatever another thread
/// starts may have it open too for a moment, and then it cannot be run (`ETXTBSY`).
#[track_caller]
pub(crate) fn install(program: &str, to: &Path) {
    let mut command = Command::new("cp");
    command.arg(program).arg(to);
    run(command).expect_code(0);
}

/// Writes a script that can be run, by a process of its own for the same reason.
#[track_caller]
pub(crate) fn script(file: &Path, lines: &str) {
    const WRITE: &str = r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
    let mut command = Command::new("sh");
    command.args(["-c", WRITE]).arg(file).arg(lines);
    run(command).expect_code(0);
}

/// The program under test, outside of any lab.
pub(crate) fn linerate(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::LINERATE);
    command.args(arguments);
    command
}
