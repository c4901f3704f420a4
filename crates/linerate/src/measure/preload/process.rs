//! A mover as seen from the process that measures: it is started at either end, gets its order, reports, and is
//! ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::peer_address::PeerAddress;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::endpoint::peer::{
    FAREWELL, FarStderr, end_within, program_command, spawn_piped,
};
use linerate_traffic::mover::{Carried, Order};

use super::Ends;
use super::mover::{MoverReport, Role, Task};

/// How often Ctrl-C is listened for.
const BEAT: Duration = Duration::from_millis(100);

/// A mover that runs. It ends with its standard input.
pub(super) struct Mover {
    name: String,
    child: Child,
    input: Option<Arc<ChildStdin>>,
    said: Receiver<String>,
    stderr: FarStderr,
}

impl Mover {
    pub(super) fn start(
        ends: &Ends<'_>,
        at: &PeerAddress,
        address: SocketAddr,
        role: Role,
        order: &Order,
    ) -> Outcome<Self> {
        let library = ends.preload.map(ToString::to_string);
        let mut words = vec!["--quiet", "mover"];
        if let Some(library) = &library {
            words.extend(["--preload", library]);
        }
        let push = ends.push && matches!(at, PeerAddress::Ssh { .. });
        let mut command = program_command(at, push, ends.state, &words, ends.interrupt)?;
        linerate_testbed::shield_from_interrupts(&mut command);
        let mut child = spawn_piped(&mut command)
            .map_err(|error| Stop::io(format!("start a mover at {at}"), error))?;
        let task = Task {
            address,
            role,
            order: order.clone(),
        };
        let mut line = serde_json::to_vec(&task)
            .map_err(|error| Stop::new(Code::Bug, "cannot write a task").because(error))?;
        line.push(b'\n');
        let said = listen(child.stdout.take());
        let stderr = FarStderr::read(child.stderr.take());
        let input = child.stdin.take().map(Arc::new);
        if let Some(input) = &input {
            // If it has ended, the reason is reported below.
            let _ = input.as_ref().write_all(&line);
        }
        let name = match role {
            Role::Receives => format!("the peer {at} reports: "),
            Role::Sends => String::new(),
        };
        Ok(Self {
            name,
            child,
            input,
            said,
            stderr,
        })
    }

    /// How it is made to stop sending.
    pub(super) fn early_end(&self) -> impl FnOnce() + Send + 'static + use<> {
        let input = self.input.as_ref().map(Arc::downgrade);
        move || {
            if let Some(input) = input.and_then(|input| input.upgrade()) {
                // One that has ended sends nothing.
                let _ = input.as_ref().write_all(b"end\n");
            }
        }
    }

    /// Its next message.
    pub(super) fn hear(&mut self, limit: Duration, interrupt: &Interrupt) -> Outcome<MoverReport> {
        let deadline = Instant::now() + limit;
        loop {
            match self.said.recv_timeout(BEAT) {
                Ok(line) => return serde_json::from_str(&line).map_err(|_| self.nonsense()),
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    interrupt.check()?;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let why = format!("{}nothing within {} s", self.name, limit.as_secs());
                    return Err(Stop::new(Code::TimeOut, why));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(self.failure().unwrap_or_else(|| self.nonsense()));
                }
            }
        }
    }

    pub(super) fn carried(&mut self, limit: Duration, interrupt: &Interrupt) -> Outcome<Carried> {
        match self.hear(limit, interrupt)? {
            MoverReport::Carried(carried) => Ok(carried),
            MoverReport::Listens(_) => Err(self.nonsense()),
        }
    }

    /// Why it exited, in its own words and with its own code; none when it succeeded.
    fn failure(&mut self) -> Option<Stop> {
        // It may still run: with its input it ends.
        self.input = None;
        let status = end_within(&mut self.child, FAREWELL)?;
        if let Some(signal) = status.signal() {
            let why = format!("{}the mover was killed by signal {signal}", self.name);
            let stop = Stop::new(Code::FailedRestored, why);
            let text = self.stderr.text();
            return Some(match text.trim() {
                "" => stop,
                text => stop.because(std::io::Error::other(text.to_owned())),
            });
        }
        let number = status.code();
        let code = Code::ALL
            .into_iter()
            .find(|code| number == Some(code.number().into()))
            .unwrap_or(Code::FailedRestored);
        let text = self.stderr.text();
        (code != Code::Done && !text.is_empty()).then(|| {
            let (before, own) = own_words(&text);
            let (own, hint) = match own.split_once("\n\nhint: ") {
                Some((own, hint)) => (own, Some(hint)),
                None => (own, None),
            };
            let stop = Stop::new(code, format!("{}{own}", self.name));
            let stop = match hint {
                Some(hint) => stop.hint(hint),
                None => stop,
            };
            if before.is_empty() {
                return stop;
            }
            stop.because(std::io::Error::other(before.to_owned()))
        })
    }

    pub(super) fn nonsense(&self) -> Stop {
        let why = format!(
            "{}an invalid message: both ends must run the same version of linerate",
            self.name
        );
        Stop::new(Code::PeerUnreachable, why)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error that a mover printed, and what its dynamic linker and its library printed before.
fn own_words(text: &str) -> (&str, &str) {
    const ERROR: &str = "error: ";
    if let Some(own) = text.strip_prefix(ERROR) {
        return ("", own);
    }
    match text.split_once(&format!("\n{ERROR}")) {
        Some((before, own)) => (before.trim(), own),
        None => ("", text),
    }
}

/// A mover that prints more is none of ours: a histogram of times has up to 400 KiB, and there is one for each size.
const LINES_BYTES_MAX: u64 = 64 << 20;

/// The lines of a stream, read in a separate thread.
fn listen(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, lines) = mpsc::channel();
    if let Some(stream) = stream {
        std::thread::spawn(move || {
            for line in BufReader::new(stream.take(LINES_BYTES_MAX)).lines() {
                let Ok(line) = line else { break };
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_linker_prints_before_the_error_of_a_mover_is_its_cause() {
        for (text, before, own) in [
            ("error: cannot listen", "", "cannot listen"),
            (
                "ld.so: ignored.\nerror: not loaded",
                "ld.so: ignored.",
                "not loaded",
            ),
            ("killed", "", "killed"),
        ] {
            assert_eq!(own_words(text), (before, own));
        }
    }
}
