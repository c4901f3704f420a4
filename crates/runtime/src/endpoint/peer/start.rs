//! The commands that start an agent, or this program, at a peer.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use linerate_host::trust::find_program;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::peer_address::PeerAddress;
use linerate_testbed::{Netns, NetnsError};

use super::push::push as push_program;
use crate::console::interrupt::Interrupt;

/// What runs at the remote end.
const AGENT: [&str; 2] = ["agent", "--stdio"];

/// What starts the agent of a peer.
pub(super) fn agent_command(
    address: &PeerAddress,
    push: bool,
    state: &Path,
    interrupt: &Interrupt,
) -> Outcome<Command> {
    if let PeerAddress::Exec(text) = address {
        if push {
            return Err(push_is_for_ssh());
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]);
        return Ok(command);
    }
    program_command(address, push, state, &AGENT, interrupt)
}

/// Starts a program that ends with this process, all its streams piped.
pub fn spawn_piped(command: &mut Command) -> io::Result<Child> {
    linerate_testbed::tie_to_parent(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// This program at a peer, with `words`; an `exec:` peer has no other command than its agent's.
pub fn program_command(
    address: &PeerAddress,
    push: bool,
    state: &Path,
    words: &[&str],
    interrupt: &Interrupt,
) -> Outcome<Command> {
    if push && !matches!(address, PeerAddress::Ssh { .. }) {
        return Err(push_is_for_ssh());
    }
    let own = || {
        std::env::current_exe().map_err(|error| Stop::io("find the path of this program", error))
    };
    match address {
        PeerAddress::Local => {
            let mut command = Command::new(own()?);
            command.arg("--state").arg(state).args(words);
            Ok(command)
        }
        PeerAddress::Exec(_) => Err(Stop::new(
            Code::NotSupported,
            "an `exec:` peer can only run the agent",
        )),
        PeerAddress::Netns(name) => {
            let namespace = open_namespace(name)?;
            let mut command = Command::new(own()?);
            command.arg("--state").arg(state).args(words);
            namespace
                .enter_in_child(&mut command)
                .map_err(|error| Stop::io(format!("enter the namespace `{name}`"), error))?;
            Ok(command)
        }
        PeerAddress::Tls { at, .. } if words == AGENT => {
            let mut command = Command::new(own()?);
            command
                .arg("--state")
                .arg(state)
                .arg("channel")
                .arg(at.to_string());
            Ok(command)
        }
        PeerAddress::Tls { .. } => Err(Stop::new(
            Code::NotSupported,
            "a listening agent runs no other program",
        )
        .hint("use an `ssh://` peer")),
        PeerAddress::Ssh { destination, port } => {
            let program = if push {
                push_program(destination, *port, interrupt)?
            } else {
                "linerate".to_owned()
            };
            let mut command = ssh(destination, *port)?;
            command.arg(format!("{program} {}", words.join(" ")));
            Ok(command)
        }
    }
}

fn push_is_for_ssh() -> Stop {
    Stop::new(Code::Usage, "`--push` works with ssh peers only")
}

pub(super) fn ssh(destination: &str, port: Option<u16>) -> Outcome<Command> {
    let program = find_program("ssh", "").map_err(|error| match error.kind() {
        ErrorKind::NotFound => Stop::new(
            Code::NotSupported,
            "cannot start `ssh`: it is not installed",
        )
        .hint(format!(
            "install openssh-client, or use another peer: {}",
            PeerAddress::FORMS
        )),
        _ => Stop::new(Code::BadInput, "cannot start `ssh` as root")
            .because(error)
            .hint("remove that directory from PATH"),
    })?;
    let mut command = Command::new(program);
    // As for a listening agent: a firewall that drops packets is reported within 5 s.
    command.args([
        "-T",
        "-o",
        "ConnectTimeout=4",
        "-o",
        "ServerAliveInterval=5",
    ]);
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    command.args(["--", destination]);
    Ok(command)
}

/// The stop for an agent that could not be started.
pub(super) fn cannot_start(address: &PeerAddress, error: io::Error) -> Stop {
    let denied = error.kind() == ErrorKind::PermissionDenied;
    let stop = Stop::io(format!("start the agent at {address}"), error);
    match address {
        PeerAddress::Netns(_) if denied => {
            stop.hint("run it as root: entering a network namespace needs CAP_SYS_ADMIN")
        }
        _ => stop,
    }
}

/// Opens a namespace for a peer `netns:NAME`.
fn open_namespace(name: &str) -> Outcome<Netns> {
    linerate_testbed::netns::open(name).map_err(|error| match error {
        NetnsError::Name { .. } => Stop::new(Code::Usage, error.to_string()),
        NetnsError::Open { ref source, .. } => {
            let code = match source.kind() {
                ErrorKind::PermissionDenied => Code::PermissionMissing,
                _ => Code::PeerUnreachable,
            };
            Stop::new(code, error.to_string()).hint(format!(
                "`ip netns list` lists the namespaces; a peer is {}",
                PeerAddress::FORMS
            ))
        }
    })
}
