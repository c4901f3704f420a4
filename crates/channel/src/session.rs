//! A session: a process of its own for each caller, with the caller's frames at its standard streams.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_model::exit::Code;
use linerate_model::pairing::PublicKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::frame::Kind;
use crate::passing::{Passing, send_terms};
use crate::pump::{Link, LinkEnd, Passed, Sink, Source, pump};

/// How long the process of a caller that is gone may take to roll back and end. Its reverter does what it leaves.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// The same if the connection was lost: a trial whose record is kept goes on to its end.
const GOES_ON_MAX: Duration = Duration::from_secs(3_600);
/// How long the last frames may take to be sent.
const FAREWELL: Duration = Duration::from_secs(5);

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its key.
    pub key: PublicKey,
    /// Its address.
    pub address: IpAddr,
    /// The address of this host that it has connected to.
    pub reached: IpAddr,
}

/// How the process of a session is started.
pub trait AgentProcess: Send + Sync {
    /// The command, and what its process is sent first.
    fn command(&self, caller: &Caller) -> io::Result<(Command, Vec<u8>)>;
}

/// A process that serves a caller.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
}

impl Started {
    /// Its process, to be sent a signal to.
    pub(crate) fn process(&self) -> io::Result<OwnedFd> {
        let pid = Pid::from_child(&self.child);
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }
}

/// Starts the process of a session. It ends with the thread that calls this.
pub(crate) fn start(agent: &dyn AgentProcess, caller: &Caller) -> io::Result<(Started, Passing)> {
    let (mut command, terms) = agent.command(caller)?;
    let (input, theirs) = UnixStream::pair()?;
    let (passing, its) = Passing::pair()?;
    command
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    drop(command);
    let input = OwnedFd::from(input);
    let prepared = send_terms(&input, &terms, &its).and_then(|()| {
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((OwnedFd::from(output), OwnedFd::from(errors)))
    });
    match prepared {
        Ok((output, errors)) => {
            let started = Started {
                child,
                input,
                output,
                errors,
            };
            Ok((started, passing))
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Serves a caller until its process has ended. The caller has been answered.
pub(crate) fn serve(mut link: Link, started: Started) {
    let Started {
        mut child,
        input,
        output,
        errors,
    } = started;
    let streams = || -> io::Result<_> {
        Ok((
            Source::new(output, Kind::Output, None)?,
            Source::new(errors, Kind::Errors, None)?,
            Sink::new(input, Kind::Input, Some(Kind::InputEnd))?,
        ))
    };
    let passed = match streams() {
        Ok((output, errors, input)) => pump(&mut link, &mut [output, errors], &mut [input]),
        Err(error) => Err(LinkEnd::Broken(error.to_string())),
    };
    // Its standard input is closed by now: it rolls back what is not committed, and ends.
    let limit = match passed {
        Ok(Passed::Drained) => ENDS_WITHIN,
        _ => GOES_ON_MAX,
    };
    let code = end(&mut child, limit);
    if passed == Ok(Passed::Drained) {
        link.queue(Kind::Exit, &[code]);
        link.finish(Instant::now() + FAREWELL);
    }
}

/// Waits for the end of a process, and its exit code.
fn end(child: &mut Child, limit: Duration) -> u8 {
    if !has_ended_within(child, limit) {
        let _ = child.kill();
    }
    let status = child.wait().ok().and_then(|status| status.code());
    let killed = i32::from(Code::RestoreIncomplete.number());
    u8::try_from(status.unwrap_or(killed)).unwrap_or(u8::MAX)
}

fn has_ended_within(child: &Child, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let Ok(running) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return true;
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(&mut [PollFd::new(&running, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            // A signal.
            Err(_) => {}
        }
    }
}

/// The addresses of a connection's two ends: the other's, and this one's.
pub(crate) fn addresses(socket: &TcpStream) -> io::Result<(IpAddr, IpAddr)> {
    let peer = socket.peer_addr()?.ip().to_canonical();
    let own = socket.local_addr()?.ip().to_canonical();
    Ok((peer, own))
}
