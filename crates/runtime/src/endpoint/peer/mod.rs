//! The peer of a measurement: the connection to its agent. `start` starts its
//! agent, `push` copies this program there first, `stderr` keeps its standard error, `failure` finds the cause in it,
//! `printable` makes its text safe to print.
//!
//! Control always goes through the standard streams of a child process (ssh, a shell command, or this
//! program in another namespace): whoever may start that child may talk to the agent.

mod failure;
mod input;
mod printable;
mod push;
mod start;
mod stderr;

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::COMMAND_TIME_MAX;
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::End;
use linerate_model::protocol::{AgentAddress, Failure, PROTOCOL, Reply, Request, record_bytes_max};
use linerate_model::talk::{Lines, answer};

pub use self::failure::FarError;
use self::failure::{cause_of_ssh, how_it_ended, stop_of_channel};
use self::input::Input;
pub use self::printable::printable;
use self::printable::printable_json;
use self::start::{agent_command, cannot_start};
pub use self::start::{program_command, spawn_piped};
pub use self::stderr::FarStderr;
use crate::console::clock::now_unix_s;
use crate::console::interrupt::Interrupt;
use crate::console::say::Say;
use crate::endpoint::watch::Watch;

/// How long the remote end may take to greet: a person may have to type a password.
const GREETING: Duration = Duration::from_secs(60);
/// From when on waiting is noticed.
const NOTICED: Duration = Duration::from_millis(500);
/// How long the remote end may take over anything that is not a trial.
const WORK: Duration = Duration::from_secs(30);
/// How long a remote end that cannot have changed anything may take to exit.
const EXIT_MAX: Duration = Duration::from_secs(5);
/// How long the remote end may take to roll back and exit.
pub const FAREWELL: Duration = Duration::from_secs(20);
/// Replies that may be queued. A remote end answers one request at a time; one that floods is
/// throttled, and fills no memory.
const REPLIES_WAITING_MAX: usize = 1;

/// A running agent at the remote end.
#[derive(Debug)]
pub struct Peer {
    /// How it was named.
    pub address: PeerAddress,
    /// Its addresses.
    pub addresses: Vec<AgentAddress>,
    /// The address of its host that a listening agent was reached at.
    pub reached: Option<IpAddr>,
    /// Whether its owner permits no changes of settings.
    pub changes_forbidden: bool,
    /// Whether it was asked to change anything, and may: only then there may be something to roll back.
    may_have_changed: bool,
    /// Whether it was asked to run commands, and may still end the failure that they caused.
    runs_commands: bool,
    /// Its version of linerate.
    pub version: String,
    child: Child,
    input: Input,
    replies: Receiver<Incoming>,
    /// Maximum length of the answer to the last request.
    answer_bytes_max: Arc<AtomicUsize>,
    /// Maximum length of the record of the trial that was prepared last.
    record_bytes_max: usize,
    stderr: FarStderr,
    /// Receives the progress of the running trial at the remote end.
    reports: Arc<Mutex<Option<Watch>>>,
    interrupt: Interrupt,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came from the remote end.
#[derive(Debug)]
enum Incoming {
    Reply(Box<Reply>),
    Garbled(String),
    Closed,
}

impl Peer {
    /// Starts the agent and greets it. `state` is where an agent on this machine keeps its journals; `say` prints what a person
    /// waits for.
    pub fn start(
        address: &PeerAddress,
        push: bool,
        state: &Path,
        interrupt: &Interrupt,
        say: Option<&Say>,
    ) -> Outcome<Self> {
        Ok(Self::start_within(
            address, push, state, interrupt, say, GREETING,
        )?)
    }

    /// The same with another time for the greeting; a refusal by the remote end keeps its kind.
    pub fn start_within(
        address: &PeerAddress,
        push: bool,
        state: &Path,
        interrupt: &Interrupt,
        say: Option<&Say>,
        greeting: Duration,
    ) -> Result<Self, FarError> {
        pair_if_asked(address, state, say)?;
        let mut command = agent_command(address, push, state, interrupt)?;
        linerate_testbed::shield_from_interrupts(&mut command);
        let mut child = spawn_piped(&mut command).map_err(|error| cannot_start(address, error))?;
        let input = Input::of(child.stdin.take());
        let (heard, replies) = mpsc::sync_channel(REPLIES_WAITING_MAX);
        // Nothing is requested yet: what arrives now is no answer, and short.
        let answer_bytes_max = Arc::new(AtomicUsize::new(64 << 10));
        let reports = Arc::<Mutex<Option<Watch>>>::default();
        if let Some(output) = child.stdout.take() {
            let bytes_max = Arc::clone(&answer_bytes_max);
            let (abort, reports) = (interrupt.abort().clone(), Arc::clone(&reports));
            let beside = move |reply: &Reply| {
                match reply {
                    Reply::Ending => abort.end_early(),
                    Reply::Progress(progress) => {
                        if let Some(watch) = &*lock(&reports) {
                            watch.tell(End::Remote, *progress);
                        }
                    }
                    Reply::Ran(run) => {
                        if let Some(watch) = &*lock(&reports) {
                            watch.ran((**run).clone());
                        }
                    }
                    _ => return false,
                }
                true
            };
            std::thread::spawn(move || listen(output, &heard, &bytes_max, beside));
        }
        let stderr = FarStderr::read(child.stderr.take());
        let mut peer = Self {
            address: address.clone(),
            addresses: Vec::new(),
            reached: None,
            changes_forbidden: false,
            may_have_changed: false,
            runs_commands: false,
            version: String::new(),
            child,
            input,
            replies,
            answer_bytes_max,
            record_bytes_max: 0,
            stderr,
            reports,
            interrupt: interrupt.clone(),
        };
        let hello = Request::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        peer.send(&hello)?;
        if let Reply::Hello {
            addresses,
            version,
            reached,
            changes_forbidden,
            ..
        } = peer.greeted(&hello, say, greeting)?
        {
            peer.addresses = addresses;
            peer.reached = reached;
            peer.changes_forbidden = changes_forbidden;
            peer.version = version;
        }
        Ok(peer)
    }

    /// Waits for the answer to `hello`; when that takes long, prints what for.
    fn greeted(
        &mut self,
        hello: &Request,
        say: Option<&Say>,
        limit: Duration,
    ) -> Result<Reply, FarError> {
        match self.answer_to(hello, NOTICED.min(limit)) {
            Err(FarError::Stop(stop)) if stop.code == Code::TimeOut && limit > NOTICED => {
                if let Some(say) = say {
                    say.note(&format!("connecting to {}...", self.address));
                }
                self.answer_to(hello, limit)
            }
            heard => heard,
        }
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Outcome<Reply> {
        self.ask_within(request, WORK)
    }

    fn ask_within(&mut self, request: &Request, limit: Duration) -> Outcome<Reply> {
        self.send(request)?;
        self.hear(request, limit)
    }

    /// Sends a request whose answer [`Peer::hear`] takes later.
    pub fn send(&mut self, request: &Request) -> Outcome<()> {
        self.send_within(request, WORK)
    }

    /// The same; one that is not read within `limit` ends the connection.
    pub(super) fn send_within(&mut self, request: &Request, limit: Duration) -> Outcome<()> {
        if let Request::Connect { spec, .. } = request {
            self.record_bytes_max = record_bytes_max(spec);
        }
        if let Request::Prepare { spec, commands, .. } = request {
            self.record_bytes_max = record_bytes_max(spec);
            self.runs_commands |= commands.is_some();
        }
        self.may_have_changed |= !self.changes_forbidden
            && matches!(
                request,
                Request::Apply { .. } | Request::Lease { .. } | Request::TakeBack { .. }
            );
        let bytes_max = request.answer_bytes_max(self.record_bytes_max);
        self.answer_bytes_max.store(bytes_max, Ordering::SeqCst);
        let written = self.input.write(request, limit)?;
        written.map_err(|error| {
            if error.kind() == ErrorKind::TimedOut {
                self.kill();
                let within = limit.as_secs();
                let why = format!("{} took no request within {within} s", self.address);
                return Stop::new(Code::PeerUnreachable, why);
            }
            self.gone()
        })
    }

    /// Passes the progress of running trials at the remote end to `watch` from now on.
    pub(super) fn report_to(&self, watch: Option<&Watch>) {
        *lock(&self.reports) = watch.cloned();
    }

    /// How the running trial is ended early: the remote end first, whose confirmation ends this one.
    pub(super) fn early_end(&self) -> impl FnOnce() + Send + 'static + use<> {
        let (input, abort) = (self.input.clone(), self.interrupt.abort().clone());
        move || {
            // The end of its data may arrive before its confirmation.
            abort.expect_early_end();
            // The trial of an agent that is gone fails by itself.
            let _ = input.write(&Request::EndEarly, WORK);
        }
    }

    /// Waits for the answer to `asked`.
    pub fn hear(&mut self, asked: &Request, limit: Duration) -> Outcome<Reply> {
        Ok(self.answer_to(asked, limit)?)
    }

    /// The same; a failure at the remote end keeps its kind.
    pub(super) fn answer_to(
        &mut self,
        asked: &Request,
        limit: Duration,
    ) -> Result<Reply, FarError> {
        let deadline = Instant::now() + limit;
        loop {
            // A short interval, so that Ctrl-C is handled while the remote end works.
            let beat =
                Duration::from_millis(100).min(deadline.saturating_duration_since(Instant::now()));
            match self.replies.recv_timeout(beat) {
                Ok(Incoming::Reply(reply)) => {
                    return answer(asked, *reply).map_err(|failure| self.says(failure));
                }
                Ok(Incoming::Garbled(why)) => {
                    let stop = Stop::new(
                        Code::PeerUnreachable,
                        format!("{} sent an invalid response: {why}", self.address),
                    );
                    let hint = "make the remote shell print nothing for non-interactive commands";
                    return Err(stop.hint(hint).into());
                }
                Ok(Incoming::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone().into());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(self.no_answer_within(limit).into());
                }
                Err(RecvTimeoutError::Timeout) => self.interrupt.check()?,
            }
        }
    }

    /// A failure at the remote end.
    fn says(&self, mut failure: Failure) -> FarError {
        failure.message = format!("the peer {} reports: {}", self.address, failure.message);
        FarError::Failure(failure)
    }

    /// Aborts the trial at the remote end, whatever state it is in. One that does not answer is disconnected: its late answer
    /// would be taken for that of the next request.
    pub fn abort_trial(&mut self) -> Outcome<()> {
        self.abort_trial_within(WORK)
    }

    /// The same with a shorter time for the answer.
    pub(super) fn abort_trial_within(&mut self, limit: Duration) -> Outcome<()> {
        self.send_within(&Request::Abort, limit)?;
        let deadline = Instant::now() + limit;
        loop {
            match self
                .replies
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(Incoming::Reply(reply)) if matches!(*reply, Reply::Aborted) => return Ok(()),
                // The end of the aborted trial may have been in flight.
                Ok(Incoming::Reply(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.input.close();
                    self.kill();
                    return Err(Stop {
                        code: Code::PeerUnreachable,
                        ..self.no_answer_within(limit)
                    });
                }
                _ => return Err(self.gone()),
            }
        }
    }

    /// Sends a request and waits for the answer even while Ctrl-C is pending: what was begun at the remote end must be
    /// known to be done or not, and what is undone must be undone.
    pub fn see_through(&mut self, request: &Request) -> Outcome<Reply> {
        self.send(request)?;
        match self.replies.recv_timeout(WORK) {
            Ok(Incoming::Reply(reply)) => {
                let reply = answer(request, *reply)?;
                // It has decided, and has nothing left to roll back.
                if matches!(request, Request::Commit | Request::TakeBack { .. }) {
                    self.may_have_changed = false;
                }
                Ok(reply)
            }
            Err(RecvTimeoutError::Timeout) => Err(self.no_answer_within(WORK)),
            _ => Err(self.gone()),
        }
    }

    /// Sends the goodbye, and waits until the remote end has restored what was not committed.
    pub fn leave(mut self) -> Outcome<()> {
        let _ = self.send(&Request::Bye);
        self.end()
    }

    /// The same after all is done: a remote end that is lost by then, and has nothing to roll back, is a note.
    pub fn leave_after_result(self, say: &Say) -> Outcome<()> {
        match self.leave() {
            Err(stop) if stop.code == Code::PeerUnreachable => {
                say.note(&format!("done, but {}", stop.message));
                Ok(())
            }
            left => left,
        }
    }

    /// Does not wait for a remote end that is lost.
    pub fn abandon(mut self) {
        self.runs_commands = false;
        self.may_have_changed = false;
        self.input.close();
        self.kill();
    }

    fn end(&mut self) -> Outcome<()> {
        self.input.close();
        let limit = if self.runs_commands {
            FAREWELL + Duration::from(COMMAND_TIME_MAX)
        } else if self.may_have_changed {
            FAREWELL
        } else {
            EXIT_MAX
        };
        let deadline = Instant::now() + limit;
        // The reader ends when the remote end closes its side: no polling needed until then.
        let closed = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left) {
                Ok(Incoming::Closed) | Err(RecvTimeoutError::Disconnected) => break true,
                // A peer that keeps sending instead of exiting is not listened to forever.
                Ok(_) if !left.is_zero() => {}
                Ok(_) | Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        let status = closed
            .then(|| end_within(&mut self.child, FAREWELL))
            .flatten();
        let Some(status) = status else {
            self.kill();
            let within = limit.as_secs();
            return Err(self.unconfirmed(&format!("did not exit within {within} s and was killed")));
        };
        match status.code() {
            Some(0) => Ok(()),
            Some(code)
                if code == i32::from(Code::RestoreIncomplete.number()) && self.runs_commands =>
            {
                let (peer, why) = (&self.address, self.stderr.text());
                let what = format!("{peer} could not end the failure: {why}");
                Err(Stop::new(Code::RestoreIncomplete, what))
            }
            Some(code) if code == i32::from(Code::RestoreIncomplete.number()) => Err(Stop::new(
                Code::RestoreIncomplete,
                format!(
                    "{} could not roll back all changes: {}",
                    self.address,
                    self.stderr.text()
                ),
            )
            .hint("run `linerate tune recover` there")),
            _ => {
                let said = self.stderr.text();
                let separator = if said.is_empty() { "" } else { ": " };
                let how = format!("was lost before it confirmed its end{separator}{said}");
                Err(self.unconfirmed(&how))
            }
        }
    }

    /// The remote end has not exited as it should.
    fn unconfirmed(&self, how: &str) -> Stop {
        let what = format!("{} {how}", self.address);
        if self.runs_commands {
            let what = format!("{what}: the failure that it caused may not be ended");
            Stop::new(Code::RestoreIncomplete, what)
                .hint("run the command of `--restore-remote` there by hand")
        } else if self.may_have_changed {
            let what = format!("{what}: its changes may not be rolled back");
            Stop::new(Code::RestoreIncomplete, what).hint("run `linerate tune recover` there")
        } else {
            Stop::new(Code::PeerUnreachable, what)
        }
    }

    fn kill(&mut self) {
        // It fails when the child is gone already, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn no_answer_within(&self, limit: Duration) -> Stop {
        let within = limit.as_secs();
        let why = format!("{} did not answer within {within} s", self.address);
        Stop::new(Code::TimeOut, why)
    }

    /// The remote end has disconnected: returns what it printed last, and what to do.
    fn gone(&mut self) -> Stop {
        self.input.close();
        let status = end_within(&mut self.child, FAREWELL);
        if status.is_none() {
            self.kill();
        }
        let words = self.stderr.text();
        let said = if words.is_empty() {
            String::new()
        } else {
            format!(": {words}")
        };
        let code = status.and_then(|status| status.code());
        if let (PeerAddress::Ssh { .. }, Some(127)) = (&self.address, code) {
            return Stop::new(
                Code::PeerUnreachable,
                format!("no `linerate` in PATH on {}{said}", self.address),
            )
            .hint("use `--push` to copy this program there");
        }
        if let (PeerAddress::Ssh { destination, .. }, Some(255)) = (&self.address, code) {
            return Stop::new(
                Code::PeerUnreachable,
                format!("cannot reach {}{said}", self.address),
            )
            .hint(format!(
                "{}`ssh {destination}` must work without linerate; without ssh, run `linerate agent \
                 --listen` there; a peer is {}",
                cause_of_ssh(&words),
                PeerAddress::FORMS
            ));
        }
        if let (PeerAddress::Tls { .. }, Some(code)) = (&self.address, code)
            && let Some(stop) = stop_of_channel(code, &words)
        {
            return stop;
        }
        if code == Some(i32::from(Code::RestoreIncomplete.number())) && !self.may_have_changed {
            let what = format!(
                "the agent's process at {} was killed or could not go on; nothing was changed there{said}",
                self.address
            );
            return Stop::new(Code::PeerUnreachable, what);
        }
        let has_answered = !self.version.is_empty();
        let how = match status {
            None => "closed its output without exiting".to_owned(),
            Some(status) => how_it_ended(status, &self.address, has_answered),
        };
        let stop = Stop::new(
            Code::PeerUnreachable,
            format!("the agent at {} {how}{said}", self.address),
        );
        match (&self.address, has_answered) {
            (PeerAddress::Exec(_), false) => stop.hint(format!(
                "the command must run `linerate agent --stdio` at the peer; a peer is {}",
                PeerAddress::FORMS
            )),
            _ => stop,
        }
    }
}

/// Pairs with a listening agent that is named by its pairing line.
fn pair_if_asked(address: &PeerAddress, state: &Path, say: Option<&Say>) -> Outcome<()> {
    if let PeerAddress::Tls {
        pairing: Some(pairing),
        ..
    } = address
    {
        let is_new = linerate_channel::client::pair(state, pairing, now_unix_s())?;
        if let Some(say) = say.filter(|_| is_new) {
            say.note(&format!(
                "paired with {address}; this is its name from now on"
            ));
        }
    }
    Ok(())
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The exit status of a program at the remote end that has closed its output or was asked to end; `None` when it still
/// runs after `limit`. It may be rolling back.
pub fn end_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let running = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
        let left = Timespec::try_from(left).ok()?;
        // Woken by its exit, by a signal or by the timeout: the loop finds out which.
        let _ = poll(&mut [PollFd::new(&running, PollFlags::IN)], Some(&left));
    }
}

/// Hands on what the remote end sends; `beside` takes what is not an answer in the order of the requests.
fn listen(
    mut output: impl Read,
    heard: &SyncSender<Incoming>,
    bytes_max: &AtomicUsize,
    beside: impl Fn(&Reply) -> bool,
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let count = match output.read(&mut buffer) {
            Ok(count) if count > 0 => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            _ => break,
        };
        let bytes_max = |_: &[u8]| bytes_max.load(Ordering::SeqCst);
        if let Err(error) = lines.push(&buffer[..count], bytes_max) {
            let _ = heard.send(Incoming::Garbled(error.to_string()));
            break;
        }
        while let Some(line) = lines.next_line() {
            let message = match reply_from(&line) {
                Ok(reply) if beside(&reply) => continue,
                Ok(reply) => Incoming::Reply(Box::new(reply)),
                Err(error) => {
                    let start: String = String::from_utf8_lossy(&line).chars().take(60).collect();
                    Incoming::Garbled(printable(&format!("{error} in `{start}`")))
                }
            };
            if heard.send(message).is_err() {
                return;
            }
        }
    }
    let _ = heard.send(Incoming::Closed);
}

/// Reads a reply, straight into its type: in a form for any JSON `[0,0,...]` would take 16 times its length.
pub fn reply_from(line: &[u8]) -> Result<Reply, serde_json::Error> {
    // All large documents are read from text: a second kind of reader would compile their code twice.
    let text = String::from_utf8(printable_json(line)).map_err(serde::de::Error::custom)?;
    serde_json::from_str(&text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// The replies of a remote end that writes `output` while an answer of `bytes_max` is awaited.
    fn heard(output: impl Read, bytes_max: usize) -> Vec<Incoming> {
        let (tell, heard) = mpsc::sync_channel(16);
        listen(output, &tell, &AtomicUsize::new(bytes_max), |_| false);
        drop(tell);
        heard.iter().collect()
    }

    #[test]
    fn a_reply_has_no_control_characters() {
        let line = br#"{"failed":{"kind":"other","message":"\u001b[2Jno \u009b1m\tway\n"}}"#;
        let Ok(Reply::Failed(failure)) = reply_from(line) else {
            panic!("a failure");
        };
        assert_eq!(failure.message, "\u{fffd}[2Jno \u{fffd}1m\tway\n");
    }

    #[test]
    fn an_answer_may_be_as_long_as_its_question_allows_and_no_longer() {
        let short = b"\"applied\"\n".as_slice();
        let long = std::io::repeat(b' ').take(300_000);
        let all = heard(short.chain(long).chain(short), 1 << 20);
        let [Incoming::Reply(_), Incoming::Reply(_), Incoming::Closed] = &all[..] else {
            panic!("{all:?}")
        };
        let all = heard(short.chain(std::io::repeat(b' ')), 100_000);
        let [Incoming::Reply(_), Incoming::Garbled(why), Incoming::Closed] = &all[..] else {
            panic!("{all:?}")
        };
        assert!(why.contains("longer than 100000 bytes"), "{why}");
    }
}
