//! A rank that joins the root of a mesh: agents, each controlled over a connection to the root; and the process that passes a
//! session on at the root.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use linerate_channel::client;
use linerate_channel::passing::receive_terms;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::pairing::Pairing;
use linerate_model::units::Bytes;

use crate::console::clock::now_unix_s;
use crate::console::interrupt::Interrupt;
use crate::endpoint::peer::end_within;

/// Sessions of each rank: so many flows it can have at the same time.
pub(super) const SESSIONS: usize = 2;

/// How long an agent may take to end after its channel.
const AGENT_ENDS: Duration = Duration::from_secs(5);

/// Bytes that are copied at once: the size of a pipe.
const COPIED: usize = 65_536;

/// Where the agents of a rank store a run of their own, and the limit of all runs without a name there.
#[derive(Debug, Clone, Copy)]
pub struct Keep<'a> {
    /// The state folder.
    pub state: &'a Path,
    /// The limit.
    pub limit: Bytes,
}

/// Joins the root at `pairing` with agents of this host, and serves until the root ends them. `state` has the keys of the mesh.
pub fn work(
    state: &Path,
    pairing: &Pairing,
    keep: Option<Keep<'_>>,
    interrupt: &Interrupt,
) -> Outcome<()> {
    client::pair(state, pairing, now_unix_s()).map_err(|error| {
        let stop = Stop::from(error);
        match stop.code {
            // The hint for a listening agent would not help here.
            Code::PermissionMissing => stop.hint(
                "each rank joins once, with the pairing line of the mesh that runs now: start the root and all ranks together",
            ),
            _ => stop,
        }
    })?;
    let mut running = Vec::new();
    for _ in 0..SESSIONS {
        running.push(Serving::start(state, pairing, keep)?);
    }
    for serving in &mut running {
        serving.wait(interrupt)?;
    }
    Ok(())
}

/// An agent, and the channel that controls it.
struct Serving {
    agent: Child,
    channel: Child,
}

impl Serving {
    fn start(state: &Path, pairing: &Pairing, keep: Option<Keep<'_>>) -> Outcome<Self> {
        let program = || {
            let mut command = Command::new("/proc/self/exe");
            command.arg("--state").arg(state);
            linerate_testbed::tie_to_parent(&mut command);
            // Ctrl-C is the root's affair.
            linerate_testbed::shield_from_interrupts(&mut command);
            command
        };
        let cannot = |error| Stop::io("start an agent", error);
        let mut command = program();
        command
            .args(["agent", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(keep) = keep {
            command.arg("--keep").arg(keep.state);
            // Without the suffix that would round it.
            command.args(["--keep-limit", &format!("{}B", keep.limit.as_u64())]);
        }
        let mut agent = command.spawn().map_err(cannot)?;
        let (to, from) = (agent.stdin.take(), agent.stdout.take());
        let (Some(to), Some(from)) = (to, from) else {
            return Err(Stop::new(Code::Bug, "a piped stream of a child is missing"));
        };
        let mut command = program();
        command
            .arg("channel")
            .arg(pairing.at.to_string())
            .stdin(from)
            .stdout(to);
        let channel = command.spawn().map_err(cannot)?;
        Ok(Self { agent, channel })
    }

    /// Waits until the root has ended the session.
    fn wait(&mut self, interrupt: &Interrupt) -> Outcome<()> {
        let ended = loop {
            let status = self.channel.try_wait();
            match status.map_err(|error| Stop::io("wait for the connection to the root", error))? {
                Some(status) => break status,
                None if interrupt.comes_within(super::FILE_EVERY) => {
                    self.end();
                    return Err(Stop::interrupted());
                }
                None => {}
            }
        };
        self.end();
        if ended.success() {
            return Ok(());
        }
        let why = "the connection to the root of the mesh was lost";
        Err(Stop::new(Code::PeerUnreachable, why))
    }

    /// Ends the channel; the agent then ends by itself, once it has stored what it was sent.
    fn end(&mut self) {
        // It fails when the child is gone already, which is the goal.
        let _ = self.channel.kill();
        let _ = self.channel.wait();
        if end_within(&mut self.agent, AGENT_ENDS).is_none() {
            let _ = self.agent.kill();
            let _ = self.agent.wait();
        }
    }
}

/// `linerate relay`: copies standard input to the named pipe `to`, and the named pipe `from` to standard output, until both end.
pub fn relay(to: &Path, from: &Path, has_terms: bool) -> Outcome<()> {
    if has_terms {
        receive_terms(io::stdin().as_fd())
            .map_err(|error| Stop::io("read the terms of this session", error))?;
    }
    let target = to.to_owned();
    // Opening a pipe waits for its other end: each direction in a thread of its own.
    let sends = thread::spawn(move || -> io::Result<()> {
        let mut pipe = OpenOptions::new().write(true).open(target)?;
        copy(&mut stream(&io::stdin())?, &mut pipe)
    });
    let mut pipe =
        File::open(from).map_err(|error| Stop::io("open the pipe of a session", error))?;
    let copied = stream(&io::stdout()).and_then(|mut out| copy(&mut pipe, &mut out));
    // The root has closed the session: what is still sent to it has no reader.
    drop(sends);
    copied.map_err(|error| Stop::io("pass a session on", error))
}

/// Copies until the end, each part as soon as it is read.
///
/// `io::copy` would call splice(2), which locks a pipe while it waits for the socket's next bytes: the pipe's reader would not
/// get those that are there.
fn copy(from: &mut File, to: &mut File) -> io::Result<()> {
    let mut part = vec![0; COPIED];
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&part[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Without the buffers of `io::stdin` and `io::stdout`, which would hold half a line back.
fn stream(of: &impl AsFd) -> io::Result<File> {
    of.as_fd().try_clone_to_owned().map(File::from)
}
