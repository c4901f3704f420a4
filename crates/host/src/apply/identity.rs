//! The owner and place of a transaction: the boot, the network namespace and the process.
//!
//! Sources: `/proc/sys/kernel/random/boot_id` (random(4)); namespaces(7) for namespace inodes, which are reused after
//! a namespace ends, hence the additional cookie; `/proc/PID/stat` field 22, starttime (proc_pid_stat(5)), which
//! distinguishes a process from a later one with the same number.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sys;

/// A network namespace of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsIdentity {
    /// The inode of its file in nsfs, as `/proc/PID/ns/net` names it.
    pub inode: u64,
    /// Its cookie, which is not reused in this boot; none before Linux 5.14.
    pub cookie: Option<u64>,
}

/// A process of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// The identity of this process or machine could not be determined, so no transaction can begin.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell {what} from {path}: {source}")]
pub struct IdentityError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn failed(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> IdentityError {
    let path = PathBuf::from(path);
    move |source| IdentityError { what, path, source }
}

impl NetnsIdentity {
    /// The namespace of this thread.
    pub fn current() -> Result<Self, IdentityError> {
        const PATH: &str = "/proc/thread-self/ns/net";
        let inode = fs::metadata(PATH)
            .map_err(failed("the network namespace", PATH))?
            .ino();
        Ok(Self {
            inode,
            // Without the option, the inode is sufficient as long as the namespace exists.
            cookie: sys::netns_cookie().ok(),
        })
    }

    /// Whether both are the same namespace.
    pub fn is(&self, other: &Self) -> bool {
        match (self.cookie, other.cookie) {
            (Some(own), Some(others)) => own == others,
            _ => self.inode == other.inode,
        }
    }
}

impl Owner {
    /// This process.
    pub fn current() -> Result<Self, IdentityError> {
        const PATH: &str = "/proc/self/stat";
        let stat = fs::read_to_string(PATH).map_err(failed("when this process started", PATH))?;
        let stat = ProcessStat::parse(&stat).ok_or_else(|| {
            failed("when this process started", PATH)(io::Error::from(io::ErrorKind::InvalidData))
        })?;
        Ok(Self {
            pid: std::process::id(),
            start_ticks: stat.start_ticks,
        })
    }

    /// Whether the process still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok();
        stat.as_deref()
            .and_then(ProcessStat::parse)
            .is_some_and(|stat| stat.start_ticks == self.start_ticks && !"ZXx".contains(stat.state))
    }
}

/// The identifying fields of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessStat<'text> {
    /// The program's name, cut to 15 bytes.
    pub(crate) name: &'text str,
    /// `R`, `S`, `Z` and so on.
    pub(crate) state: char,
    /// Its parent process; 0 for the first one, and if the parent is not visible.
    pub(crate) parent: u32,
    /// When it was started, in clock ticks since the boot.
    pub(crate) start_ticks: u64,
}

impl<'text> ProcessStat<'text> {
    /// The name is in parentheses and may contain anything, including parentheses and spaces: it ends at the last
    /// one.
    pub(crate) fn parse(stat: &'text str) -> Option<Self> {
        let (before, fields) = stat.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // starttime is field 22; what comes next here is field 5.
        let start_ticks = fields.nth(22 - 5)?.parse().ok()?;
        Some(Self {
            name,
            state,
            parent,
            start_ticks,
        })
    }
}

/// Whether this thread is in the initial network namespace, that of PID 1. False if it may not be read.
pub fn is_first_netns() -> bool {
    let inode = |path: &str| fs::metadata(path).map(|data| (data.dev(), data.ino()));
    match (inode("/proc/1/ns/net"), inode("/proc/thread-self/ns/net")) {
        (Ok(first), Ok(own)) => first == own,
        _ => false,
    }
}

/// The boot ID.
pub fn boot_id() -> Result<String, IdentityError> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).map_err(failed("this boot", PATH))?;
    Ok(text.trim().to_owned())
}

/// What a search for a namespace found.
#[derive(Debug)]
pub(super) enum Search {
    /// An open file of it.
    Found(File),
    /// It no longer exists.
    Gone,
    /// Not found, but some processes could not be inspected.
    Hidden {
        /// The number of those processes.
        processes: usize,
    },
}

/// Searches for a namespace among the named ones, those that threads are in, and those with a name in another mount
/// namespace (a testbed's). One that is held only by an open descriptor or a socket is not found: nothing that could
/// be measured is in it.
pub(super) fn search(netns: &NetnsIdentity) -> Search {
    let (places, mut hidden) = netns_files();
    for path in places {
        let found = fs::metadata(&path).is_ok_and(|data| data.ino() == netns.inode);
        match found.then(|| File::open(&path)) {
            Some(Ok(file)) if is_behind(&file, netns) => return Search::Found(file),
            Some(Err(error)) => hidden.consider(&path, &error),
            Some(Ok(_)) | None => {}
        }
    }
    match hidden.processes {
        0 => Search::Gone,
        processes => Search::Hidden { processes },
    }
}

/// Calls `look` in every network namespace but this thread's, until it finds something; returns how many processes
/// could not be inspected, whose namespaces may be missing. PID 1's namespace is included only with `with_first`.
pub(super) fn in_other_netns<T: Send>(
    with_first: bool,
    look: impl Fn() -> Option<T> + Sync,
) -> (Option<T>, usize) {
    let (mut places, mut hidden) = netns_files();
    if with_first {
        places.insert(0, PathBuf::from("/proc/1/ns/net"));
    }
    let own = NetnsIdentity::current().map(|own| own.inode);
    let mut seen: BTreeSet<u64> = own.into_iter().collect();
    for path in places {
        let inside = || -> io::Result<Option<T>> {
            sys::enter_netns(File::open(&path)?.as_fd())?;
            Ok(look())
        };
        let looked = match fs::metadata(&path).map(|data| seen.insert(data.ino())) {
            Ok(false) => continue,
            // In a thread, so that the caller's namespace does not change.
            Ok(true) => std::thread::scope(|scope| scope.spawn(inside).join()),
            Err(error) => Ok(Err(error)),
        };
        match looked {
            Ok(Ok(Some(found))) => return (Some(found), hidden.processes),
            Ok(Err(error)) => hidden.consider(&path, &error),
            Ok(Ok(None)) | Err(_) => {}
        }
    }
    (None, hidden.processes)
}

/// The files of network namespaces, and the processes that could not be inspected.
fn netns_files() -> (Vec<PathBuf>, Hidden) {
    let mut hidden = Hidden::default();
    let mut mounts_seen = BTreeSet::new();
    let mut places = named_in(Path::new("/"));
    // Without PID 1, which may be hidden even from root and is in this system's initial namespace: no search is
    // needed for it.
    let is_process = |name: &String| name != "1" && name.bytes().all(|b| b.is_ascii_digit());
    for pid in names("/proc").filter(is_process) {
        let process = Path::new("/proc").join(pid);
        match fs::metadata(process.join("ns/mnt")) {
            Ok(mounts) if mounts_seen.insert(mounts.ino()) => {
                places.extend(named_in(&process.join("root")));
            }
            Ok(_) => {}
            Err(error) => hidden.consider(&process, &error),
        }
        let threads = names(process.join("task"));
        places.extend(threads.map(|thread| process.join("task").join(thread).join("ns/net")));
    }
    (places, hidden)
}

fn named_in(root: &Path) -> Vec<PathBuf> {
    let folder = root.join("run/netns");
    names(&folder).map(|name| folder.join(name)).collect()
}

/// Processes that could not be inspected and might be in the namespace.
#[derive(Default)]
struct Hidden {
    processes: usize,
}

impl Hidden {
    fn consider(&mut self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::PermissionDenied {
            // It ended between the two reads.
            return;
        }
        // An ordinary user's changes are in namespaces that the user created, where only root can put other users'
        // processes: only the user's own hidden processes matter.
        let own = rustix::process::geteuid().as_raw();
        let uid = fs::metadata(path).map(|data| data.uid());
        if is_root_of_the_machine() || uid.is_ok_and(|uid| uid == own) {
            self.processes += 1;
        }
    }
}

/// Whether this is real root and not the root of a user namespace.
pub(super) fn is_root_of_the_machine() -> bool {
    !is_in_user_namespace() && rustix::process::geteuid().is_root()
}

/// Whether this process is in a non-initial user namespace (user_namespaces(7)).
pub(crate) fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether the namespace behind `file` is `netns` and not a later one with the same inode. Without permission to
/// enter it, only the inode is compared.
fn is_behind(file: &File, netns: &NetnsIdentity) -> bool {
    let look = || {
        sys::enter_netns(file.as_fd()).ok()?;
        NetnsIdentity::current().ok()
    };
    std::thread::scope(|scope| scope.spawn(look).join())
        .ok()
        .flatten()
        .is_none_or(|found| found.is(netns))
}

fn names(folder: impl AsRef<Path>) -> impl Iterator<Item = String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_named_like_a_stat_line_does_not_confuse_the_start_time() {
        let tail = (4..=21)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let stat = format!("7 (a) R 1) S {tail} 4711 0 0");
        let parsed = ProcessStat {
            name: "a) R 1",
            state: 'S',
            parent: 4,
            start_ticks: 4711,
        };
        assert_eq!(ProcessStat::parse(&stat), Some(parsed));
        assert_eq!(ProcessStat::parse("7 (a"), None);
        assert_eq!(ProcessStat::parse("7 (a) S 1 2"), None);
    }

    #[test]
    fn this_process_is_alive_and_another_of_its_number_is_not() {
        let owner = Owner::current().expect("this process");
        assert!(owner.is_alive());
        let earlier = Owner {
            start_ticks: owner.start_ticks + 1,
            ..owner
        };
        assert!(!earlier.is_alive());
    }

    #[test]
    fn this_namespace_is_found_by_its_identity() {
        let here = NetnsIdentity::current().expect("this namespace");
        assert!(here.is(&here));
        assert!(matches!(search(&here), Search::Found(_)));
    }
}
