//! The machine's root directory as a value: every read of a host goes through one, so that a captured host is read by
//! the same code as the live one.
//!
//! Paths are relative to the root (`sys/class/net`). In an unpacked directory links are resolved inside it
//! (`openat2(2)` with `RESOLVE_IN_ROOT`), so a captured absolute link cannot escape; the live root is `/` itself,
//! where plain `openat(2)` does the same and works before Linux 5.6 too.

pub(crate) mod limits;
mod log;
pub(crate) mod tree;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_model::known::{Cause, Gap, Known};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use self::limits::{Budget, Limit};
use self::log::Log;
use self::tree::{Entry, Missing, Tree};
use crate::hex::{from_hex, to_hex};

/// The maximum size of a file: `/proc/interrupts` with 1,024 CPUs and 4,096 interrupts is about 50 MiB.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// A sysfs attribute fits in a page, and so do nearly all other files.
const PAGE_BYTES: usize = 4096;

/// The maximum size of a file that should be small (an attribute, a process name).
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// The maximum size of a file of which a part is used.
const USED_BYTES_MAX: u64 = 4 << 20;

/// The maximum number of attempts to resolve a path if something was renamed meanwhile. Beside a program that does
/// nothing but rename, an attempt fails with a probability of at most 50 %, so this many never fail by chance; they
/// take some 10 ms.
const OPEN_ATTEMPTS_MAX: u32 = 10_000;

/// A machine's root folder, live or captured. It can only be read.
#[derive(Debug)]
pub struct HostRoot {
    source: Source,
    /// The remaining memory budget of a captured host's answers.
    budget: Option<Arc<Budget>>,
    /// The recorded reads, while a capture is being made.
    log: Option<Mutex<Log>>,
}

#[derive(Debug)]
enum Source {
    Live(Arc<OwnedFd>),
    Folder(Arc<OwnedFd>),
    Tree(Arc<Tree>),
}

/// The machine this program runs on. Only its holder can change settings; a captured host cannot create one.
#[derive(Debug)]
pub struct LiveHost {
    root: HostRoot,
}

impl HostRoot {
    /// The root directory `folder` of an unpacked captured host.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let root = Self::of(Source::Folder(open_folder(folder)?));
        // Before Linux 5.6 there is no openat2: report that now instead of as gaps everywhere.
        root.descend(".", OFlags::PATH)?;
        Ok(root)
    }

    /// A captured host in memory.
    pub(crate) fn in_memory(tree: Tree) -> Self {
        Self::of(Source::Tree(Arc::new(tree)))
    }

    fn of(source: Source) -> Self {
        let budget = match &source {
            Source::Live(_) => None,
            Source::Folder(_) | Source::Tree(_) => Some(Arc::default()),
        };
        Self {
            source,
            budget,
            log: None,
        }
    }

    /// The same root, recording every read.
    pub(crate) fn recording(&self) -> Self {
        let source = match &self.source {
            Source::Live(folder) => Source::Live(Arc::clone(folder)),
            Source::Folder(folder) => Source::Folder(Arc::clone(folder)),
            Source::Tree(tree) => Source::Tree(Arc::clone(tree)),
        };
        Self {
            source,
            budget: self.budget.clone(),
            log: Some(Mutex::new(Log::default())),
        }
    }

    /// The limit that a captured host exceeded. From then on nothing is read.
    pub(crate) fn broken_limit(&self) -> Option<Limit> {
        self.budget.as_ref()?.broken()
    }

    fn spend(&self, path: &str, of: impl FnOnce(&Budget) -> Result<(), Limit>) -> Result<(), Gap> {
        let spent = self.budget.as_deref().map_or(Ok(()), of);
        spent.map_err(|limit| Gap::new(Cause::NotAsked, absolute(path), limit.what))
    }

    /// The recorded reads.
    pub(crate) fn into_log(self) -> Log {
        self.log.map_or_else(Log::default, |log| {
            log.into_inner().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// The text of a file without trailing white space.
    pub fn read(&self, path: &str) -> Known<String> {
        let answer = match self.take(path, FILE_BYTES_MAX + 1) {
            Ok(text) if text.len() as u64 > FILE_BYTES_MAX => {
                Known::unknown(Cause::Unreadable, absolute(path), Entry::TOO_LONG)
            }
            Ok(text) => text_of(path, text),
            Err(gap) => Known::Unknown(gap),
        };
        self.note(path, &answer);
        answer
    }

    /// The first part of a file's text, at most `bytes` of it and cut at a line end: for files whose whole text is
    /// expensive and adds nothing (`/proc/cpuinfo`).
    pub fn read_start(&self, path: &str, bytes: u64) -> Known<String> {
        let answer = match self.take(path, bytes) {
            Ok(mut text) => {
                if text.len() as u64 == bytes {
                    let end = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
                    text.truncate(end);
                }
                text_of(path, text)
            }
            Err(gap) => Known::Unknown(gap),
        };
        self.note(path, &answer);
        answer
    }

    /// The text of a small file and its permission bits, from a single open.
    pub(crate) fn read_with_mode(&self, path: &str) -> (Known<String>, Option<u32>) {
        let (answer, mode) = match &self.source {
            Source::Tree(_) => (self.take(path, SMALL_BYTES_MAX), self.mode(path)),
            Source::Live(_) | Source::Folder(_) => match self.open_file(path) {
                Ok(fd) => {
                    let mode = rustix::fs::fstat(&fd).ok();
                    let mode = mode.map(|stat| stat.st_mode & 0o7777);
                    (taken(path, fd, SMALL_BYTES_MAX), mode)
                }
                Err(error) => (Err(gap(path, &error)), None),
            },
        };
        let answer = answer
            .and_then(|text| {
                self.spend(path, |left| left.spend(text.len()))
                    .map(|()| text)
            })
            .map_or_else(Known::Unknown, |text| text_of(path, text));
        self.note(path, &answer);
        (answer, mode)
    }

    /// The first `most` bytes of a binary file. A capture stores them in hexadecimal.
    pub(crate) fn read_bytes(&self, path: &str, most: u64) -> Known<Vec<u8>> {
        let taken = match &self.source {
            Source::Tree(tree) => match tree.read(path) {
                Ok(text) => from_hex(text).ok_or_else(|| {
                    let reason = "its contents are not in the capture";
                    Gap::new(Cause::Unreadable, absolute(path), reason)
                }),
                Err(missing) => Err(missing.gap(path)),
            },
            Source::Live(_) | Source::Folder(_) => self.take(path, most),
        };
        let answer = taken.map_or_else(Known::Unknown, Known::Value);
        if self.log.is_some() {
            self.note(path, &answer.clone().map(|bytes| to_hex(&bytes)));
        }
        answer
    }

    /// The result of `used` on a file's text, which is all that a capture stores of it, at this very path: for files
    /// written by people, and for their links to anywhere.
    pub(crate) fn read_used(&self, path: &str, used: impl FnOnce(&str) -> String) -> Known<String> {
        let answer = match self.take(path, USED_BYTES_MAX + 1) {
            Ok(text) if text.len() as u64 > USED_BYTES_MAX => {
                Known::unknown(Cause::Unreadable, absolute(path), "longer than 4 MiB")
            }
            Ok(text) => text_of(path, text).map(|text| used(&text).trim_end().to_owned()),
            Err(gap) => Known::Unknown(gap),
        };
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.used(self, path, &answer);
        }
        answer
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: &str) -> Known<Vec<String>> {
        let answer = self.list_unlogged(path);
        self.note_list(path, &answer);
        answer
    }

    /// The names in a directory of which a capture must not store all: the reader reports which with
    /// [`HostRoot::note_list`].
    pub(crate) fn list_unlogged(&self, path: &str) -> Known<Vec<String>> {
        let answer = match &self.source {
            Source::Tree(tree) => tree.list(path).map_err(|missing| missing.gap(path)),
            Source::Live(_) | Source::Folder(_) => {
                self.list_files(path).map_err(|error| gap(path, &error))
            }
        };
        answer
            .and_then(|names| {
                self.spend(path, |left| left.spend_names(path, &names))
                    .map(|()| names)
            })
            .map_or_else(Known::Unknown, Known::Value)
    }

    /// Records the entries of a directory, as far as a capture may contain them.
    pub(crate) fn note_list(&self, path: &str, answer: &Known<Vec<String>>) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.listed(self, path, answer);
        }
    }

    /// The text of a small file that a capture must not store unless [`HostRoot::note`] is called for it.
    pub(crate) fn read_unlogged(&self, path: &str) -> Known<String> {
        match self.take(path, SMALL_BYTES_MAX) {
            Ok(text) => text_of(path, text),
            Err(gap) => Known::Unknown(gap),
        }
    }

    /// The target of a symbolic link, unresolved.
    pub fn link(&self, path: &str) -> Known<String> {
        let answer = self.link_unlogged(path);
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.linked(self, path, &answer);
        }
        answer
    }

    /// The targets of the links in a directory, unresolved, by opening the directory once: for very large directories
    /// (`/proc/PID/fd`), which a capture does not contain. Other entries are left out.
    pub(crate) fn links_unlogged(&self, path: &str) -> Known<Vec<String>> {
        let (Source::Live(_) | Source::Folder(_)) = &self.source else {
            return self.list_unlogged(path).map(|names| {
                let links = names
                    .iter()
                    .map(|name| self.link_unlogged(&format!("{path}/{name}")));
                links.filter_map(|link| link.value().cloned()).collect()
            });
        };
        match self.link_files(path) {
            Ok(links) => Known::Value(links),
            Err(error) => Known::Unknown(gap(path, &error)),
        }
    }

    fn link_files(&self, path: &str) -> io::Result<Vec<String>> {
        let folder = self.descend(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut links = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder)? {
            // A name without a slash does not leave the directory.
            if let Ok(target) = rustix::fs::readlinkat(&folder, entry?.file_name(), Vec::new()) {
                links.push(target.to_string_lossy().into_owned());
            }
        }
        Ok(links)
    }

    /// Whether a path exists.
    pub fn exists(&self, path: &str) -> bool {
        match &self.source {
            Source::Tree(tree) => tree.has(path),
            Source::Live(_) | Source::Folder(_) => self.descend(path, OFlags::PATH).is_ok(),
        }
    }

    /// The machine's architecture. The kernel has a file for it since 6.1; before that only `uname(2)` reports it, on
    /// the live machine.
    pub(crate) fn architecture(&self) -> Known<String> {
        const FILE: &str = "proc/sys/kernel/arch";
        match (self.read(FILE), &self.source) {
            (Known::Unknown(gap), Source::Live(_)) if gap.cause == Cause::Absent => {
                let machine = rustix::system::uname();
                let answer = Known::Value(machine.machine().to_string_lossy().into_owned());
                self.note(FILE, &answer);
                answer
            }
            (answer, _) => answer,
        }
    }

    pub(crate) fn link_unlogged(&self, path: &str) -> Known<String> {
        let target = match &self.source {
            Source::Tree(tree) => tree.link(path).map_err(|missing| missing.gap(path)),
            Source::Live(_) | Source::Folder(_) => self
                .descend(path, OFlags::PATH | OFlags::NOFOLLOW)
                .and_then(|fd| {
                    // For an open file that is not a link, readlinkat returns ENOENT, which would count as absent;
                    // readlink(2) by name returns EINVAL.
                    rustix::fs::readlinkat(&fd, "", Vec::new())
                        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
                })
                .map(|target| target.to_string_lossy().into_owned())
                .map_err(|error| gap(path, &error)),
        };
        target
            .and_then(|target| {
                self.spend(path, |left| left.spend(target.len()))
                    .map(|()| target)
            })
            .map_or_else(Known::Unknown, Known::Value)
    }

    /// The permission bits of the target of `path`.
    pub(crate) fn mode(&self, path: &str) -> Option<u32> {
        match &self.source {
            Source::Tree(tree) => tree.mode(path),
            Source::Live(_) | Source::Folder(_) => {
                let fd = self.descend(path, OFlags::PATH).ok()?;
                Some(rustix::fs::fstat(&fd).ok()?.st_mode & 0o7777)
            }
        }
    }

    /// Records the result for a file.
    pub(crate) fn note(&self, path: &str, answer: &Known<String>) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.read(self, path, answer);
        }
    }

    fn take(&self, path: &str, bytes: u64) -> Result<Vec<u8>, Gap> {
        self.spend(path, |left| left.spend(0))?;
        let text = match &self.source {
            Source::Tree(tree) => {
                let text = tree.read(path).map_err(|missing| missing.gap(path))?;
                let end = usize::try_from(bytes).map_or(text.len(), |most| most.min(text.len()));
                self.spend(path, |left| left.spend(end))?;
                return Ok(text.as_bytes()[..end].to_vec());
            }
            Source::Live(_) | Source::Folder(_) => self
                .open_file(path)
                .map_err(|error| gap(path, &error))
                .and_then(|fd| taken(path, fd, bytes))?,
        };
        self.spend(path, |left| left.spend(text.len()))?;
        Ok(text)
    }

    /// Opens a file for reading, and never blocks on a FIFO. In an untrusted directory no device is opened, since
    /// that may have side effects.
    fn open_file(&self, path: &str) -> io::Result<OwnedFd> {
        let open = |flags| self.descend(path, flags);
        if let Source::Folder(_) = &self.source {
            require_file(&open(OFlags::PATH)?)?;
            let file = open(OFlags::RDONLY | OFlags::NONBLOCK)?;
            // The name may refer to something else by now.
            require_file(&file)?;
            return Ok(file);
        }
        open(OFlags::RDONLY | OFlags::NONBLOCK)
    }

    fn list_files(&self, path: &str) -> io::Result<Vec<String>> {
        let folder = self.descend(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn descend(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = match path.trim_start_matches('/') {
            "" => ".",
            path => path,
        };
        let flags = flags | OFlags::CLOEXEC;
        let open = || match &self.source {
            Source::Live(root) => rustix::fs::openat(root.as_ref(), path, flags, Mode::empty()),
            Source::Folder(root) => rustix::fs::openat2(
                root.as_ref(),
                path,
                flags,
                Mode::empty(),
                ResolveFlags::IN_ROOT,
            ),
            Source::Tree(_) => Err(Errno::ROFS),
        };
        // openat2(2): EAGAIN when a rename or mount anywhere on the machine coincides with the resolution of a `..`,
        // and "the caller may choose to retry". The same error from a lease on an untrusted file (fcntl(2),
        // F_SETLEASE) persists, so the number of attempts is limited.
        let mut attempts = 0..OPEN_ATTEMPTS_MAX;
        loop {
            match open() {
                Err(Errno::AGAIN | Errno::INTR) if attempts.next().is_some() => {}
                opened => return Ok(opened?),
            }
        }
    }
}

impl LiveHost {
    /// This machine.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            root: HostRoot::of(Source::Live(open_folder(Path::new("/"))?)),
        })
    }

    /// Its root, for reading.
    pub fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Writes a setting's file: the only writes of linerate below `/proc` and `/sys`.
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let fd = self.root.descend(path, OFlags::WRONLY | OFlags::TRUNC)?;
        File::from(fd).write_all(text.as_bytes())
    }

    /// Creates a directory below `/sys/kernel/config`, which creates a kernel object
    /// (Documentation/filesystems/configfs.rst).
    pub(crate) fn make_folder(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::mkdirat(&parent, name, Mode::from(0o755))?)
    }

    /// Removes such a directory.
    pub(crate) fn remove_folder(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    fn parent<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        let (parent, name) = path.rsplit_once('/').ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self
            .root
            .descend(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((parent, name))
    }
}

/// A directory passes: reading it returns the right error.
fn require_file(fd: &OwnedFd) -> io::Result<()> {
    match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
        FileType::RegularFile | FileType::Directory => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
    }
}

fn open_folder(folder: &Path) -> io::Result<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Arc::new(rustix::fs::openat(
        CWD,
        folder,
        flags,
        Mode::empty(),
    )?))
}

fn taken(path: &str, fd: OwnedFd, bytes: u64) -> Result<Vec<u8>, Gap> {
    let mut page = [0; PAGE_BYTES];
    let mut file = File::from(fd);
    let most = usize::try_from(bytes).map_or(PAGE_BYTES, |most| most.min(PAGE_BYTES));
    let first = loop {
        match file.read(page.get_mut(..most).unwrap_or_default()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            first => break first.map_err(|error| gap(path, &error))?,
        }
    };
    let mut text = page.get(..first).unwrap_or_default().to_vec();
    // Most files of a host are from these two places and are read in one piece: skipping the read that detects the
    // end of file saves a quarter of the time.
    let is_whole = first < most && (path.starts_with("sys/") || path.starts_with("proc/irq/"))
        || first == most && most as u64 == bytes;
    if !is_whole && first > 0 {
        file.take(bytes.saturating_sub(first as u64))
            .read_to_end(&mut text)
            .map_err(|error| gap(path, &error))?;
    }
    Ok(text)
}

fn text_of(path: &str, text: Vec<u8>) -> Known<String> {
    match String::from_utf8(text) {
        Ok(mut text) => {
            text.truncate(text.trim_end().len());
            Known::Value(text)
        }
        Err(_) => Known::unknown(Cause::Unreadable, absolute(path), Entry::NOT_TEXT),
    }
}

pub(crate) fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// The files that every kernel has, in every network namespace: one that is not there was not captured, or is hidden. As
/// absent it would mean that the checks which need it do not concern this host.
const IN_EVERY_KERNEL: [&str; 11] = [
    "proc/cmdline",
    "proc/interrupts",
    "proc/loadavg",
    "proc/meminfo",
    "proc/net/dev",
    "proc/net/netstat",
    "proc/net/snmp",
    "proc/net/softnet_stat",
    "proc/self/mounts",
    "proc/self/status",
    "proc/stat",
];
/// The reason for their gap.
pub(crate) const NOT_THERE: &str = "not there, although every kernel has it";

/// The gap for an operating system error.
pub(crate) fn gap(path: &str, error: &io::Error) -> Gap {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    if is_missing && IN_EVERY_KERNEL.contains(&path.trim_matches('/')) {
        return Gap::new(Cause::Unreadable, absolute(path), NOT_THERE);
    }
    let cause = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::Absent,
        io::ErrorKind::PermissionDenied => Cause::Denied,
        _ => Cause::Unreadable,
    };
    Gap::new(cause, absolute(path), error.to_string())
}

impl Missing {
    fn gap(self, path: &str) -> Gap {
        match self {
            Self::Os(error) => gap(path, &error),
            Self::Recorded(cause, reason) => Gap::new(cause, absolute(path), reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_file_that_every_kernel_has_is_never_said_to_be_absent() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = HostRoot::open(folder.path()).expect("a root");
        let cause = |path: &str| root.read(path).gap().expect("nothing is there").cause;
        assert_eq!(cause("proc/net/softnet_stat"), Cause::Unreadable);
        assert_eq!(cause("/proc/stat"), Cause::Unreadable);
        assert_eq!(cause("proc/net/vlan/config"), Cause::Absent);
        let sysctls = crate::procfs::sysctls::read_sysctls(&root);
        let cause = |name: &str| sysctls[name].gap().expect("nothing is there").cause;
        assert_eq!(cause("net.ipv4.tcp_rmem"), Cause::Unreadable);
        assert_eq!(cause("net.ipv4.tcp_shrink_window"), Cause::Absent);
    }

    #[test]
    fn a_captured_folder_is_read_in_full_while_files_are_renamed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("sys/devices/pci/eth0")).expect("a folder");
        fs::create_dir_all(path("sys/class/net")).expect("a folder");
        fs::write(path("sys/devices/pci/eth0/mtu"), "1500\n").expect("written");
        // As in sysfs: resolving `..` is what a rename disturbs.
        symlink("../../devices/pci/eth0", path("sys/class/net/eth0")).expect("a link");
        let root = HostRoot::open(folder.path()).expect("a root");
        let other = tempfile::tempdir().expect("a folder");
        let (one, two) = (other.path().join("one"), other.path().join("two"));
        fs::write(&one, "").expect("written");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    fs::rename(&one, &two)
                        .and_then(|()| fs::rename(&two, &one))
                        .expect("renamed");
                }
            });
            let unread = (0..20_000)
                .map(|_| root.read("sys/class/net/eth0/mtu"))
                .find(|read| read.value().map(String::as_str) != Some("1500"));
            done.store(true, Ordering::Relaxed);
            assert_eq!(unread, None);
        });
    }
}
