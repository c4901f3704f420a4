//! Locks: one for each network namespace, and one for the machine-wide settings (flock(2)). A lock ends with the last
//! process that holds it; a process started by the holder (the remote end of a session on the same machine) works
//! under the holder's lock.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation::NonBlockingLockExclusive;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::clock::Boottime;
use super::identity::{IdentityError, NetnsIdentity, Owner, ProcessStat, is_root_of_the_machine};
use crate::private_folder::{self, PrivateFolder};
use crate::trust::Untrusted;

/// The directory of locks for users who may write there: one for all state directories.
const FOLDER: &str = "/run/linerate";
/// How long a reverter or a recovery may take to roll back the changes of a process that has ended.
pub const REVERTING: Duration = Duration::from_secs(30);
/// The polling interval: flock(2) either blocks without a timeout or not at all.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The scope of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The settings of one network namespace.
    Netns,
    /// Machine-wide settings.
    Machine,
}

/// The holder of a lock, from its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    owner: Owner,
    /// When its changes are rolled back, nanoseconds since boot.
    deadline_ns: Option<u64>,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{}", busy(*.pid, *.left))]
    Held {
        /// The process, if known.
        pid: Option<u32>,
        /// The time until its changes are rolled back, unless they are confirmed.
        left: Option<Duration>,
    },
    /// Its holder has ended, and the rollback is not complete.
    #[error(
        "the changes of process {pid} are still being rolled back after {} s: the reverter that \
         holds {path} may hang",
        REVERTING.as_secs()
    )]
    Reverting {
        /// The process that has ended.
        pid: u32,
        /// The lock's file.
        path: PathBuf,
    },
    /// The reverter cannot hold it too.
    #[error("cannot pass the lock to the reverter process: {0}; nothing was changed")]
    NotShared(#[source] io::Error),
    /// No lock file can be created.
    #[error("cannot lock {path} next to the undo journal: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The identity of this process or its namespace could not be determined.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

fn busy(pid: Option<u32>, left: Option<Duration>) -> String {
    let who = pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    );
    let until = left.map_or_else(String::new, |left| {
        format!("; unless confirmed, it rolls back in {} s", left.as_secs())
    });
    format!("{who} is changing settings here{until}")
}

/// A lock, or the right to work under the lock of a parent process.
#[derive(Debug)]
pub struct Lock {
    /// None under another process's lock.
    file: Option<File>,
    path: PathBuf,
}

impl Lock {
    /// Acquires the lock of `scope`; `state` is used if `/run` is not writable.
    pub fn take(scope: Scope, state: &Path) -> Result<Self, LockError> {
        Self::take_within(scope, state, Duration::ZERO)
    }

    /// The same, and waits that long for another process that works under it.
    pub fn take_within(scope: Scope, state: &Path, patience: Duration) -> Result<Self, LockError> {
        let name = match scope {
            Scope::Netns => format!("netns-{}.lock", NetnsIdentity::current()?.inode),
            Scope::Machine => "machine.lock".to_owned(),
        };
        loop {
            let path = folder(state)?.join(&name);
            if let Some(lock) = Self::take_file(path, patience)? {
                return Ok(lock);
            }
        }
    }

    /// Acquires the lock at `path`; none if the file was removed meanwhile.
    pub(super) fn take_file(path: PathBuf, patience: Duration) -> Result<Option<Self>, LockError> {
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let file = match private_folder::open(&path, OFlags::RDWR | OFlags::CREATE) {
            // The directory was removed with its last lock.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let mut locked = rustix::fs::flock(&file, NonBlockingLockExclusive);
        let holder = match locked {
            Err(rustix::io::Errno::WOULDBLOCK) => read(&file),
            _ => None,
        };
        if let Some(holder) = holder {
            if is_ancestor(&holder.owner) {
                return Ok(Some(Self { file: None, path }));
            }
            if holder.owner.is_alive() {
                locked = lock_until(&file, Boottime::now().plus(patience));
            } else {
                // Its reverter rolls everything back, which does not take long.
                let until = Boottime::now().plus(REVERTING);
                locked = lock_until(&file, until);
                if locked == Err(rustix::io::Errno::WOULDBLOCK) {
                    let pid = holder.owner.pid;
                    return Err(LockError::Reverting { pid, path });
                }
            }
        }
        match locked {
            Ok(()) => {
                let own = file.metadata().map_err(failed)?.ino();
                if !fs::metadata(&path).is_ok_and(|named| named.ino() == own) {
                    return Ok(None);
                }
                let file = Some(file);
                let lock = Self { file, path };
                lock.say(None)?;
                Ok(Some(lock))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let deadline = holder.and_then(|holder| holder.deadline_ns);
                let now = Boottime::now().since_boot();
                Err(LockError::Held {
                    pid: holder.map(|holder| holder.owner.pid),
                    left: deadline.map(|at| Duration::from_nanos(at).saturating_sub(now)),
                })
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Stores the deadline for other processes to read.
    pub fn say(&self, deadline: Option<Boottime>) -> Result<(), LockError> {
        let Some(mut file) = self.file.as_ref() else {
            return Ok(());
        };
        let holder = Holder {
            owner: Owner::current()?,
            deadline_ns: deadline
                .map(|at| u64::try_from(at.since_boot().as_nanos()).unwrap_or(u64::MAX)),
        };
        let told = serde_json::to_string(&holder).map_err(io::Error::from);
        let write = |told: String| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(told.as_bytes())
        };
        told.and_then(write).map_err(|source| LockError::Io {
            path: self.path.clone(),
            source,
        })
    }

    /// The locked file, to be shared with another process: the lock ends with the last of both. None under another's
    /// lock.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(File::as_fd)
    }

    /// Leaves the lock to a process that shares it and may continue.
    pub fn leave(mut self) {
        self.file = None;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only now that no one shares it (the reverter is awaited): whoever creates the file again has the lock
        // alone. A leftover file is reused.
        if self.file.is_some() && fs::remove_file(&self.path).is_ok() {
            let _ = fs::remove_dir(FOLDER);
        }
    }
}

/// Waits for the lock until the deadline; tries at least once.
#[expect(
    clippy::disallowed_methods,
    reason = "flock(2) has no limit, and nothing tells that a lock is free"
)]
pub(super) fn lock_until(file: &File, until: Boottime) -> rustix::io::Result<()> {
    loop {
        let locked = rustix::fs::flock(file, NonBlockingLockExclusive);
        if locked != Err(rustix::io::Errno::WOULDBLOCK) || until.remaining().is_zero() {
            return locked;
        }
        thread::sleep(ASK_EVERY);
    }
}

fn read(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn folder(state: &Path) -> Result<PathBuf, LockError> {
    folder_of(Path::new(FOLDER), state)
}

/// `shared`, or `state` if this user cannot use it. For root, a shared directory that others can replace is an error:
/// a second linerate would not see the lock.
fn folder_of(shared: &Path, state: &Path) -> Result<PathBuf, LockError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| LockError::Io { path, source }
    };
    match PrivateFolder::make(shared) {
        Ok(_) => return Ok(shared.to_owned()),
        Err(error) if is_root_of_the_machine() && Untrusted::of(&error).is_some() => {
            return Err(io(shared)(error));
        }
        Err(_) => {}
    }
    PrivateFolder::make(state).map_err(io(state))?;
    Ok(state.to_owned())
}

/// Whether `owner` is an ancestor of this process.
fn is_ancestor(owner: &Owner) -> bool {
    let mut pid = std::process::id();
    while let Some(parent) = parent_of(pid) {
        if parent == owner.pid {
            return owner.is_alive();
        }
        pid = parent;
    }
    false
}

/// The parent of a process; none for PID 1.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = ProcessStat::parse(&stat)?.parent;
    (parent != 0).then_some(parent)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    #[test]
    fn this_process_was_started_by_its_parent_and_not_by_itself() {
        let parent = parent_of(std::process::id()).expect("a test has a parent");
        let stat = fs::read_to_string(format!("/proc/{parent}/stat")).expect("alive");
        let start_ticks = ProcessStat::parse(&stat).expect("a stat line").start_ticks;
        assert!(is_ancestor(&Owner {
            pid: parent,
            start_ticks
        }));
        assert!(!is_ancestor(&Owner::current().expect("this process")));
    }

    #[test]
    #[expect(
        clippy::print_stderr,
        reason = "a test that cannot run says so where the runner counts it"
    )]
    fn root_takes_no_lock_in_a_shared_folder_that_others_may_replace() {
        if !is_root_of_the_machine() {
            eprintln!("SKIP: only the machine's root has the shared folder");
            return;
        }
        let all = tempfile::tempdir().expect("a folder");
        let (shared, state) = (all.path().join("shared"), all.path().join("state"));
        assert_eq!(folder_of(&shared, &state).ok().as_ref(), Some(&shared));
        let set_mode = |mode| fs::set_permissions(&shared, fs::Permissions::from_mode(mode));
        set_mode(0o777).expect("our own");
        let refused = folder_of(&shared, &state).expect_err("others may write");
        assert!(refused.to_string().contains("mode 0777"), "{refused}");
        set_mode(0o700).expect("our own");
        chown(&shared, Some(1), None).expect("given away");
        let refused = folder_of(&shared, &state).expect_err("another user's");
        assert!(refused.to_string().contains("uid 1"), "{refused}");
        fs::remove_dir(&shared).expect("empty");
        symlink(all.path(), &shared).expect("a link");
        lchown(&shared, Some(1), None).expect("given away");
        let refused = folder_of(&shared, &state).expect_err("another user's link");
        assert!(refused.to_string().contains("uid 1"), "{refused}");
        assert!(!state.exists());
    }

    #[test]
    fn a_lock_is_no_link_to_another_file() {
        let all = tempfile::tempdir().expect("a folder");
        let victim = all.path().join("victim");
        fs::write(&victim, "text").expect("written");
        symlink(&victim, all.path().join("machine.lock")).expect("a link");
        let refused =
            Lock::take_file(all.path().join("machine.lock"), Duration::ZERO).expect_err("a link");
        assert!(
            refused.to_string().contains("not a regular file"),
            "{refused}"
        );
        assert_eq!(fs::read(&victim).expect("untouched"), b"text");
    }

    #[test]
    fn a_lock_that_another_process_holds_is_refused_at_once_or_waited_for() {
        let all = tempfile::tempdir().expect("a folder");
        let take = |patience| Lock::take_file(all.path().join("machine.lock"), patience);
        let held = take(Duration::ZERO).expect("free").expect("there");
        let refused = take(Duration::ZERO).expect_err("held");
        assert!(matches!(refused, LockError::Held { .. }), "{refused}");
        thread::scope(|scope| {
            // None: its file was removed with the lock, so the next attempt creates it again.
            let waited = scope.spawn(|| take(REVERTING).expect("free in time"));
            drop(held);
            drop(waited.join().expect("no panic"));
        });
        assert!(take(Duration::ZERO).expect("free").is_some());
    }

    #[test]
    fn who_is_at_work_and_how_long_is_said() {
        assert_eq!(
            busy(Some(7), Some(Duration::from_millis(12_900))),
            "process 7 is changing settings here; unless confirmed, it rolls back in 12 s"
        );
        assert_eq!(
            busy(None, None),
            "another process is changing settings here"
        );
    }
}
