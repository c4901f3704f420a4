//! The reverter as a process: how it is started before the first change, and what it does
//! (`linerate reverter`, which people need not know).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use linerate_host::apply::{Beside, Guard, Lock, close_inherited, stand_by};

use crate::crash;
use crate::exit::{Outcome, Stop};
use crate::say::Say;
use crate::station::{settle, this_machine};

/// The lock of this namespace, and the process that takes changes back should this one die. Both end with
/// it, after the transactions, which hold the way to the reverter.
#[derive(Debug)]
pub struct Armed {
    guard: Arc<Guard>,
    lock: Lock,
    process: Child,
    rights: Rights,
}

/// Capabilities, by the kernel's names.
pub type Rights = BTreeSet<&'static str>;

impl Armed {
    /// Starts a reverter for the journals below `state` that holds `rights`, and waits until it is ready.
    pub fn start(lock: Lock, state: &Path, rights: Rights) -> io::Result<Self> {
        let (own, theirs) = UnixStream::pair()?;
        // It keeps the lock as long as it is at work, also when this process is gone.
        let locked = lock.share()?.map_or_else(Stdio::null, Stdio::from);
        let mut command = Command::new("/proc/self/exe");
        command.arg("--state").arg(state).args([
            "reverter",
            "--of",
            &std::process::id().to_string(),
        ]);
        for right in &rights {
            command.args(["--hold", right]);
        }
        let mut process = command
            .stdin(OwnedFd::from(theirs))
            .stdout(locked)
            .spawn()?;
        match Guard::armed(own) {
            Ok(guard) => Ok(Self {
                guard: Arc::new(guard),
                lock,
                process,
                rights,
            }),
            Err(error) => {
                // Its channel is closed: it has nothing to do, or has ended already.
                let _ = process.wait();
                Err(error)
            }
        }
    }

    /// The way to the reverter.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// The capabilities that the reverter holds.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The reverter's number.
    pub fn process(&self) -> u32 {
        self.process.id()
    }
}

/// Waits for reverters that have nothing left to guard. Their channels must be closed.
pub fn disarm(armed: Armed) {
    let Armed {
        guard,
        lock,
        mut process,
        rights: _,
    } = armed;
    drop(guard);
    // It ends by itself now; a zombie would be all that is left of it otherwise.
    let _ = process.wait();
    drop(lock);
}

/// `linerate reverter --of PID --hold CAPABILITY`: serves the process at the other end of standard input.
pub fn run(parent: u32, rights: &[String], state: &Path, say: &Say) -> Outcome<()> {
    // Nothing was opened yet.
    close_inherited();
    // Ctrl-C and the end of the terminal are for the process that makes the changes.
    let _ = rustix::process::setsid();
    let faults = crash::faults(crash::Role::Reverter, None);
    let machine =
        this_machine(faults.clone()).map_err(|error| Stop::io("open this machine", error))?;
    let beside = Beside {
        guard: None,
        faults,
    };
    let channel = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Stop::io("keep the channel", error))?;
    let recovered = stand_by(channel.into(), parent, state, &machine, rights, &beside)
        .map_err(|error| Stop::io("stand by", error))?;
    for entry in settle(recovered)? {
        let (id, about) = (entry.id, entry.about);
        say.note(&format!("{id} was taken back by the reverter: {about}"));
    }
    Ok(())
}
