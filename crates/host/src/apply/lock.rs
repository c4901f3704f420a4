//! One at a time: a lock for each network namespace, and one for what all namespaces of the machine share
//! (flock(2)). It goes with the last process that holds it; a process that was started by the holder (the
//! far end of a session on the same machine) works under the holder's.

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

/// Where locks are, for whoever may write there: one folder for all state folders.
const FOLDER: &str = "/run/linerate";
/// How long a reverter, or a recovery, may take to put back what a process changed that has ended.
pub const REVERTING: Duration = Duration::from_secs(30);
/// How often it is asked whether it is done: flock(2) waits without end or not at all.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The settings of this network namespace.
    Netns,
    /// The settings that all namespaces share.
    Machine,
}

/// Who holds a lock, as its file tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    owner: Owner,
    /// When what it does is taken back, nanoseconds since the boot.
    deadline_ns: Option<u64>,
}

/// Why a lock was not got.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else holds it.
    #[error("{}", busy(*.pid, *.left))]
    Held {
        /// The process, where it can be told.
        pid: Option<u32>,
        /// How long until its changes are taken back, unless they are confirmed.
        left: Option<Duration>,
    },
    /// Whoever held it has ended, and what it changed is not yet put back.
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
    /// The process that takes changes back cannot hold it too.
    #[error("cannot pass the lock to the reverter process: {0}; nothing was changed")]
    NotShared(#[source] io::Error),
    /// There is no place for it.
    #[error("cannot lock {path} next to the undo journal: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// This process or its namespace could not be described.
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

/// A lock, or the right to work under that of a process that started this one.
#[derive(Debug)]
pub struct Lock {
    /// None under another process's lock.
    file: Option<File>,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of `scope`; `state` is where it is kept when nothing may be written to `/run`.
    pub fn take(scope: Scope, state: &Path) -> Result<Self, LockError> {
        let name = match scope {
            Scope::Netns => format!("netns-{}.lock", NetnsIdentity::current()?.inode),
            Scope::Machine => "machine.lock".to_owned(),
        };
        loop {
            let path = folder(state)?.join(&name);
            if let Some(lock) = Self::take_file(path)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock at `path`; none when the name was taken away meanwhile.
    pub(super) fn take_file(path: PathBuf) -> Result<Option<Self>, LockError> {
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let file = match private_folder::open(&path, OFlags::RDWR | OFlags::CREATE) {
            // The folder went with the last lock in it.
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
            if !holder.owner.is_alive() {
                // Its reverter takes everything back, and is soon done.
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

    /// Tells those who ask when this is over.
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

    /// What is locked, for another process to hold it too: it goes with the last of both. None under another's lock.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(File::as_fd)
    }

    /// Leaves it to a process that holds it too and may go on.
    pub fn leave(mut self) {
        self.file = None;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only now, as nobody shares it any more (a reverter is waited for): whoever makes the name anew has the
        // lock alone. What stays is taken again.
        if self.file.is_some() && fs::remove_file(&self.path).is_ok() {
            let _ = fs::remove_dir(FOLDER);
        }
    }
}

/// Waits for the lock, at most until then; it is asked for once at least.
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

/// `shared`, or `state` where this user cannot use it. What root finds in its own place, and others may replace, is an
/// error: a second linerate would not see the lock.
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

/// Whether `owner` started this process, or one that did.
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

/// The parent of a process; none of the first one.
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
        let refused = Lock::take_file(all.path().join("machine.lock")).expect_err("a link");
        assert!(
            refused.to_string().contains("not a regular file"),
            "{refused}"
        );
        assert_eq!(fs::read(&victim).expect("untouched"), b"text");
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
