//! A server that is started for a trial and stopped after it, as linerate sees it; the `launcher` is the process above
//! it. The port must be free before, so that what answers is the started server.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_host::processes::{CpuUse, cpu_use_below};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::endpoint::peer::FarStderr;

use super::launcher::{Ending, Job, KILL, LauncherReport, TERM};

/// How long the launcher may take to start the command.
const STARTS: Duration = Duration::from_secs(10);
/// How long the server may take to listen: a large application reads its data first.
const LISTENS: Duration = Duration::from_secs(60);
/// How long one connection may take to show whether the server listens.
const CONNECT: Duration = Duration::from_secs(1);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(20);
/// How much longer than its own limits the launcher may take.
const GRACE: Duration = Duration::from_secs(10);

/// A server that runs.
#[derive(Debug)]
pub(super) struct ServerProcess {
    launcher: Child,
    /// Its end stops the server.
    input: Option<ChildStdin>,
    reports: Receiver<LauncherReport>,
    output: FarStderr,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts the command, and waits until the address accepts connections.
    pub(super) fn start(job: &Job, address: SocketAddr, interrupt: &Interrupt) -> Outcome<Self> {
        if is_listening(address) {
            let why = format!(
                "cannot start the server: another program already listens on {address}, and would \
                 be measured instead"
            );
            let hint = "stop it, or use another port in the command and in `--url`";
            return Err(Stop::new(Code::Resource, why).hint(hint));
        }
        let server = Self::launch(job, address)?;
        let ready = server.is_started().and_then(|()| server.listens(interrupt));
        match ready {
            Ok(()) => Ok(server),
            Err(stop) => {
                // Why it did not start, unless something is left of it.
                match server.stop() {
                    Err(left) => Err(left.after(&stop.message)),
                    Ok(()) => Err(stop),
                }
            }
        }
    }

    fn launch(job: &Job, address: SocketAddr) -> Outcome<Self> {
        let failed = |error| Stop::io("start the launcher of the server", error);
        // Ctrl-C is for this process, which stops the server.
        let mut launcher = Command::new("/proc/self/exe")
            .arg("launcher")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let reports = launcher.stdout.take().map(read_reports);
        let mut server = Self {
            input: launcher.stdin.take(),
            output: FarStderr::read(launcher.stderr.take()),
            launcher,
            reports: reports.unwrap_or_else(|| mpsc::channel().1),
            address,
        };
        let line = serde_json::to_string(job).map_err(io::Error::other);
        let written = line.and_then(|line| match &mut server.input {
            Some(input) => writeln!(input, "{line}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        });
        written.map_err(failed)?;
        Ok(server)
    }

    fn is_started(&self) -> Outcome<()> {
        match self.reports.recv_timeout(STARTS) {
            Ok(LauncherReport::Started(_)) => Ok(()),
            Ok(LauncherReport::NotPlaced(why)) => {
                let why = format!("cannot place the server: {why}");
                Err(Stop::new(Code::NotSupported, why))
            }
            Ok(LauncherReport::NotStarted(why)) => {
                let why = format!("cannot start the server: {why}");
                Err(Stop::new(Code::Resource, why))
            }
            _ => {
                let text = self.output.text();
                let why = format!("cannot start the server: its launcher ended: {text}");
                Err(Stop::new(Code::FailedRestored, why))
            }
        }
    }

    /// Waits until the server accepts connections.
    fn listens(&self, interrupt: &Interrupt) -> Outcome<()> {
        let deadline = Instant::now() + LISTENS;
        while !is_listening(self.address) {
            if let Some(ended) = self.ended() {
                let why = format!(
                    "cannot start the server: before it listened on {}, it {ended}",
                    self.address
                );
                return Err(Stop::new(Code::FailedRestored, why));
            }
            if interrupt.comes_within(AGAIN) {
                return Err(Stop::interrupted());
            }
            if Instant::now() >= deadline {
                let why = format!(
                    "the server does not listen on {} within {} s of its start",
                    self.address,
                    LISTENS.as_secs()
                );
                let hint = "the address and the port of `--url` must be those of the server";
                return Err(Stop::new(Code::TimeOut, why).hint(hint));
            }
        }
        Ok(())
    }

    /// How the server ended, if it ended by itself: `exited with status 1: ...`.
    pub(super) fn ended(&self) -> Option<String> {
        let ending = match self.reports.try_recv() {
            Err(mpsc::TryRecvError::Empty) => return None,
            Ok(LauncherReport::Ended(ending)) => ending,
            // The launcher was killed, and its server with it.
            _ => Ending::default(),
        };
        Some(ending_in_words(ending, &self.output.text()))
    }

    /// The CPU time of all its processes since its start.
    pub(super) fn cpu_use(&self) -> io::Result<CpuUse> {
        cpu_use_below(self.launcher.id())
    }

    /// Stops the server and all processes that it started.
    pub(super) fn stop(mut self) -> Outcome<()> {
        self.end()
    }

    fn end(&mut self) -> Outcome<()> {
        let Some(input) = self.input.take() else {
            return Ok(());
        };
        drop(input);
        let outcome = match self.reports.recv_timeout(TERM + KILL + GRACE) {
            Ok(LauncherReport::Survives(pids)) => Err(survives(&pids)),
            Err(RecvTimeoutError::Timeout) => Err(survives(&[self.launcher.id()])),
            // Without a report there is no server, or it was waited for before.
            _ => Ok(()),
        };
        if outcome.is_ok() {
            let ended = self.launcher.wait();
            ended.map_err(|error| Stop::io("wait for the launcher of the server", error))?;
        }
        outcome
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // After a panic, too. What is left was reported where it could be.
        let _ = self.end();
    }
}

fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, CONNECT).is_ok()
}

fn read_reports(stream: ChildStdout) -> Receiver<LauncherReport> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for report in lines.map_while(|line| serde_json::from_str(&line).ok()) {
            if send.send(report).is_err() {
                return;
            }
        }
    });
    receive
}

/// Processes that linerate could not end.
fn survives(pids: &[u32]) -> Stop {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let pids = pids.join(", ");
    let why = format!("cannot stop the server: process {pids} outlives SIGKILL");
    let hint = "it hangs in the kernel: see `/proc/PID/stack`";
    Stop::new(Code::TimeOut, why).hint(hint)
}

/// How a server ended that should not have, with its own words.
fn ending_in_words(ending: Ending, output: &str) -> String {
    let how = match (ending.code, ending.signal) {
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        (Some(code), None) => format!("exited with status {code}"),
        (None, None) => "was killed".to_owned(),
    };
    if output.is_empty() {
        format!("{how} and printed nothing")
    } else {
        format!("{how}: {output}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_has_its_status_and_the_words_of_the_server() {
        let exited = Ending {
            code: Some(127),
            signal: None,
        };
        let words = ending_in_words(exited, "sh: 1: nginxx: not found");
        assert_eq!(words, "exited with status 127: sh: 1: nginxx: not found");
        let killed = Ending {
            code: None,
            signal: Some(9),
        };
        let words = ending_in_words(killed, "");
        assert_eq!(words, "was ended by signal 9 and printed nothing");
    }

    #[test]
    fn a_server_that_survives_is_named_by_its_process() {
        let stop = survives(&[12, 345]);
        assert_eq!(stop.code, Code::TimeOut);
        assert!(stop.message.contains("process 12, 345"), "{stop}");
    }
}
