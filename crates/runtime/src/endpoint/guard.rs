//! The reverter as its maker sees it: how its process is started before the first change, and the locks that both
//! hold. What the process does is in `reverter`.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linerate_host::apply::{Boottime, Guard, Lock, LockError, Scope};

/// How long a reverter that has nothing left to guard may take to end.
const ENDING: Duration = Duration::from_secs(10);

/// How much earlier than the reverter this process acts at the deadline: the reverter kills it.
pub const EARLIER: Duration = Duration::from_secs(1);

/// What is locked while changes are made: this namespace, and from the first change on that all namespaces share the
/// machine.
#[derive(Debug)]
pub struct Locks {
    netns: Lock,
    machine: Option<Lock>,
}

impl Locks {
    /// Locks this namespace; what is done is rolled back at `deadline`.
    pub fn take(state: &Path, deadline: Option<Boottime>) -> Result<Self, LockError> {
        let netns = Lock::take(Scope::Netns, state)?;
        netns.say(deadline)?;
        let machine = None;
        Ok(Self { netns, machine })
    }

    fn all(&self) -> impl Iterator<Item = &Lock> {
        std::iter::once(&self.netns).chain(&self.machine)
    }

    /// Leaves them to a reverter that does not end.
    fn leave(self) {
        self.netns.leave();
        if let Some(machine) = self.machine {
            machine.leave();
        }
    }
}

/// The process that takes changes back should this one die, and the locks that both hold. They go with the later of
/// the two.
#[derive(Debug)]
pub struct Armed {
    guard: Arc<Guard>,
    locks: Locks,
    process: Child,
    rights: Rights,
}

/// Capabilities, by the kernel's names.
pub type Rights = BTreeSet<&'static str>;

/// A reverter that has nothing left to guard, and does not end.
#[derive(Debug, thiserror::Error)]
#[error(
    "the reverter process {pid} did not exit within {} s: it may be stopped or hang in the kernel \
     (see /proc/{pid}/stack). It holds the settings lock until it exits; `kill -KILL {pid}` ends \
     it",
    ENDING.as_secs()
)]
pub struct Lingers {
    pid: u32,
}

impl Armed {
    /// Starts a reverter for the journals below `state` that holds `locks` and `rights`, and waits until it is ready.
    pub fn start(locks: Locks, state: &Path, rights: Rights) -> io::Result<Self> {
        let (own, theirs) = UnixStream::pair()?;
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
            .stdout(Stdio::null())
            .spawn()?;
        let armed = Guard::armed(own).and_then(|guard| {
            locks.all().try_for_each(|lock| guard.hold(lock))?;
            Ok(guard)
        });
        match armed {
            Ok(guard) => Ok(Self {
                guard: Arc::new(guard),
                locks,
                process,
                rights,
            }),
            Err(error) => {
                // Nothing was changed yet: it has nothing to do.
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }

    /// Locks what all namespaces share, too.
    pub fn lock_machine(
        &mut self,
        state: &Path,
        deadline: Option<Boottime>,
    ) -> Result<(), LockError> {
        if self.locks.machine.is_some() {
            return Ok(());
        }
        let lock = Lock::take(Scope::Machine, state)?;
        lock.say(deadline)?;
        self.guard.hold(&lock).map_err(LockError::NotShared)?;
        self.locks.machine = Some(lock);
        Ok(())
    }

    /// The channel to the reverter.
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

    /// Waits for the reverter, which has nothing left to guard, and returns the locks. One that does not exit keeps
    /// them: it may still be restoring what could not be restored before.
    pub fn disarm(self) -> Result<Locks, Lingers> {
        let Self {
            guard,
            locks,
            mut process,
            rights: _,
        } = self;
        if guard.dismiss(ENDING).is_err() {
            locks.leave();
            return Err(Lingers { pid: process.id() });
        }
        // A zombie would be all that is left of it otherwise.
        let _ = process.wait();
        Ok(locks)
    }
}
