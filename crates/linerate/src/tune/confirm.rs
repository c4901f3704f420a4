//! Who may confirm changes: a user who connected after the last of them. The process that made the
//! changes listens on a socket next to its journal, and asks the kernel which process is at the other end.

use std::fs;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_host::apply::Boottime;
use linerate_host::management::{Session, session_of};
use linerate_host::private_folder::PrivateFolder;
use linerate_host::root::LiveHost;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::console::interrupt::Interrupt;
use rustix::event::{PollFd, PollFlags, poll};

/// The socket's name next to the journal.
const SOCKET: &str = "control";
/// The answer when a request is granted and carried out.
const DONE: &str = "done";
/// How long the other end may take over its one line.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time until a request is carried out.
const CARRIED_OUT: Duration = Duration::from_secs(60);
/// Interval between checks for Ctrl-C.
const BEAT: Duration = Duration::from_millis(100);

/// The decision about changes that were made.
#[derive(Debug)]
pub(crate) enum Decision {
    /// They are kept; the asker may wait for the result.
    Confirmed(Option<Asker>),
    /// A user wants them rolled back, and may wait for the result.
    Refused(Option<Asker>),
    /// No decision arrived in time.
    Late,
    /// This process has to exit.
    Interrupted,
}

/// A process that decided, and waits for the result.
#[derive(Debug)]
pub(crate) struct Asker(UnixStream);

/// Requests to the process that made the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfirmRequest {
    /// Keep them.
    Confirm,
    /// Roll them back.
    Undo,
}

impl ConfirmRequest {
    const fn word(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Undo => "undo",
        }
    }
}

/// The socket for decisions.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    live: LiveHost,
}

impl Control {
    /// Listens next to the journal in `folder`.
    pub(crate) fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join(SOCKET);
        let failed = |error| Stop::io(format!("listen on {}", path.display()), error);
        let listener = by_short_name(folder, UnixListener::bind).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let live = LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
        Ok(Self {
            listener,
            path,
            live,
        })
    }

    /// Whether the user can answer on this process's terminal: not over ssh, where an answer proves nothing about new
    /// connections, and not from the background.
    pub(crate) fn is_on_console(&self) -> bool {
        let over_ssh = session_of(self.live.root(), std::process::id()).is_some()
            || ["SSH_CONNECTION", "SSH_TTY"]
                .iter()
                .any(|name| std::env::var_os(name).is_some());
        let stdin = std::io::stdin();
        let in_background = rustix::termios::tcgetpgrp(&stdin)
            .is_ok_and(|group| group != rustix::process::getpgrp());
        let is_seen = stdin.is_terminal() && std::io::stderr().is_terminal();
        is_seen && !over_ssh && !in_background
    }

    /// Waits for a decision about changes, the last of which was made at `applied`: from another process, or typed at
    /// the `keyboard`.
    pub(crate) fn wait(
        &self,
        applied: Boottime,
        until: Boottime,
        interrupt: &Interrupt,
        mut keyboard: Option<BorrowedFd<'_>>,
    ) -> Decision {
        let started_from = session_of(self.live.root(), std::process::id());
        while !until.remaining().is_zero() {
            if interrupt.asked() {
                return Decision::Interrupted;
            }
            let beat = BEAT.min(until.remaining());
            let beat = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: beat.subsec_nanos().into(),
            };
            let mut sources = vec![PollFd::new(&self.listener, PollFlags::IN)];
            sources.extend(
                keyboard
                    .as_ref()
                    .map(|from| PollFd::new(from, PollFlags::IN)),
            );
            // A signal ends the wait, and the loop looks for what it means.
            let _ = poll(&mut sources, Some(&beat));
            let is_typed = sources
                .get(1)
                .is_some_and(|keys| !keys.revents().is_empty());
            if let Some(from) = keyboard.filter(|_| is_typed) {
                match typed(from) {
                    Some(true) => return Decision::Confirmed(None),
                    Some(false) => return Decision::Refused(None),
                    // The terminal is gone; a second shell may still confirm.
                    None => keyboard = None,
                }
            }
            let Ok((stream, _)) = self.listener.accept() else {
                continue;
            };
            let Some(wish) = hear(&stream) else {
                continue;
            };
            let asker = Asker(stream);
            match (self.may(&asker, wish, applied, started_from), wish) {
                (Ok(()), ConfirmRequest::Confirm) => return Decision::Confirmed(Some(asker)),
                (Ok(()), ConfirmRequest::Undo) => return Decision::Refused(Some(asker)),
                (refused, _) => asker.hears(&refused),
            }
        }
        Decision::Late
    }

    /// Whether `asker` may have the wish.
    fn may(
        &self,
        asker: &Asker,
        wish: ConfirmRequest,
        applied: Boottime,
        started_from: Option<Session>,
    ) -> Outcome<()> {
        let refuse = |why: &str| {
            Err(Stop::new(
                Code::PermissionMissing,
                format!("cannot {}: {why}", wish.word()),
            ))
        };
        let who = rustix::net::sockopt::socket_peercred(&asker.0)
            .map_err(|error| Stop::io("identify the caller", error.into()))?;
        if !who.uid.is_root() && who.uid != rustix::process::geteuid() {
            return refuse("another user made the changes");
        }
        let pid = u32::try_from(who.pid.as_raw_nonzero().get()).unwrap_or_default();
        match (wish, session_of(self.live.root(), pid)) {
            (ConfirmRequest::Undo, _) => Ok(()),
            (ConfirmRequest::Confirm, Some(session)) if session.began > applied => Ok(()),
            (ConfirmRequest::Confirm, Some(_)) => refuse(
                "this ssh connection is older than the last change and does not prove that a new \
                 one works; confirm over a new ssh connection",
            ),
            // The console, or a program of this machine: so were the changes made.
            (ConfirmRequest::Confirm, None) if started_from.is_none() => Ok(()),
            (ConfirmRequest::Confirm, None) => {
                refuse("the changes were made over ssh; confirm over a new ssh connection")
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // With the journal's folder it may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

/// A socket's path may have 107 bytes (unix(7)); a state folder may have more. The folder must be this user's alone, so
/// that no other user can have put a socket there.
fn by_short_name<T>(
    folder: &Path,
    open: impl FnOnce(PathBuf) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let folder = PrivateFolder::open(folder)?;
    open(PathBuf::from(format!(
        "/proc/self/fd/{}/{SOCKET}",
        folder.as_file().as_raw_fd()
    )))
}

/// The answer in a line of the terminal; anything but yes is no.
fn typed(from: BorrowedFd<'_>) -> Option<bool> {
    let mut line = [0; 64];
    match rustix::io::read(from, &mut line) {
        Ok(0) | Err(_) => None,
        Ok(length) => {
            let answer = String::from_utf8_lossy(&line[..length])
                .trim()
                .to_lowercase();
            Some(matches!(answer.as_str(), "y" | "yes"))
        }
    }
}

fn hear(stream: &UnixStream) -> Option<ConfirmRequest> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(64)).read_line(&mut line).ok()?;
    [ConfirmRequest::Confirm, ConfirmRequest::Undo]
        .into_iter()
        .find(|wish| wish.word() == line.trim_end())
}

impl Asker {
    /// Sends the result. A process that has disconnected has made its decision all the same.
    pub(crate) fn hears(mut self, result: &Outcome<()>) {
        let reply = match result {
            Ok(()) => DONE.to_owned(),
            Err(stop) => stop.to_string(),
        };
        let _ = self.0.write_all(reply.as_bytes());
    }
}

/// Sends the decision to the process that keeps the transaction in `folder` open.
pub(crate) fn tell(folder: &Path, wish: ConfirmRequest) -> Outcome<()> {
    let gone = || {
        Stop::new(Code::BadInput, "no process is waiting for its confirmation")
            .hint("`linerate tune status` shows its state")
    };
    let stream = by_short_name(folder, UnixStream::connect).map_err(|_| gone())?;
    let talk = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(CARRIED_OUT))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        (&stream).write_all(format!("{}\n", wish.word()).as_bytes())?;
        let mut reply = String::new();
        (&stream).take(4096).read_to_string(&mut reply)?;
        Ok(reply)
    };
    let reply =
        talk().map_err(|error| Stop::io("talk to the process that made the changes", error))?;
    match reply.as_str() {
        DONE => Ok(()),
        "" => Err(gone()),
        why => Err(Stop::new(Code::PermissionMissing, why)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The decision when this is typed, and then the terminal is closed.
    fn decided(text: &str, seconds: u64) -> Decision {
        let folder = tempfile::tempdir().expect("a folder");
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(folder.path(), private).expect("our own");
        let control = Control::open(folder.path()).expect("a socket");
        let (keyboard, mut user) = std::io::pipe().expect("a pipe");
        user.write_all(text.as_bytes()).expect("room for a line");
        drop(user);
        let until = Boottime::now().plus(Duration::from_secs(seconds));
        let interrupt = Interrupt::listen().expect("signals");
        control.wait(Boottime::now(), until, &interrupt, Some(keyboard.as_fd()))
    }

    #[test]
    fn only_yes_at_the_console_keeps_the_changes() {
        for yes in ["y\n", "Y\n", " yes \n"] {
            assert!(
                matches!(decided(yes, 600), Decision::Confirmed(None)),
                "{yes}"
            );
        }
        for no in ["n\n", "\n", "yy\n", "maybe\n"] {
            assert!(matches!(decided(no, 600), Decision::Refused(None)), "{no}");
        }
    }

    #[test]
    fn a_closed_terminal_is_no_answer() {
        assert!(matches!(decided("", 0), Decision::Late));
        assert!(matches!(decided("", 1), Decision::Late));
    }
}
