//! The machine's root folder as a value: every read of a host goes through one, so that a captured
//! host is read by the same code as the live one.
//!
//! Paths are relative to the root (`sys/class/net`); links are resolved inside it
//! (`openat2(2)` with `RESOLVE_IN_ROOT`), so a captured absolute link cannot lead out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use linerate_model::known::{Cause, Known};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// The longest file a reader takes in: `/proc/interrupts` of 1,024 CPUs and 4,096 interrupts is
/// about 50 MiB.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// A machine's root folder, live or captured. It can only be read.
#[derive(Debug)]
pub struct HostRoot {
    folder: OwnedFd,
}

/// The machine this program runs on. Only its holder can change settings; a captured host has no way
/// to make one.
#[derive(Debug)]
pub struct LiveHost {
    root: HostRoot,
}

impl HostRoot {
    /// The root `folder` of a captured host, unpacked.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            folder: rustix::fs::openat(CWD, folder, flags, Mode::empty())?,
        })
    }

    fn descend(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = path.trim_start_matches('/');
        let flags = flags | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(
            &self.folder,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )?)
    }

    /// The text of a file without the white space at its end.
    pub fn read(&self, path: &str) -> Known<String> {
        let mut text = Vec::new();
        let read = self
            .descend(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .and_then(|fd| {
                File::from(fd)
                    .take(FILE_BYTES_MAX + 1)
                    .read_to_end(&mut text)
            });
        match read {
            Err(error) => Known::Unknown(gap(path, &error)),
            Ok(_) if text.len() as u64 > FILE_BYTES_MAX => {
                Known::unknown(Cause::Unreadable, absolute(path), "longer than 64 MiB")
            }
            Ok(_) => match String::from_utf8(text) {
                Ok(text) => Known::Value(text.trim_end().to_owned()),
                Err(_) => Known::unknown(Cause::Unreadable, absolute(path), "not UTF-8 text"),
            },
        }
    }

    /// The names in a folder, sorted.
    pub fn list(&self, path: &str) -> Known<Vec<String>> {
        let names = || -> io::Result<Vec<String>> {
            let folder = self.descend(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&folder)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        names().map_or_else(|error| Known::Unknown(gap(path, &error)), Known::Value)
    }

    /// Where a symbolic link points, as it is written.
    pub fn link(&self, path: &str) -> Known<String> {
        let target = self
            .descend(path, OFlags::PATH | OFlags::NOFOLLOW)
            .and_then(|fd| Ok(rustix::fs::readlinkat(&fd, "", Vec::new())?));
        match target {
            Ok(target) => Known::Value(target.to_string_lossy().into_owned()),
            Err(error) => Known::Unknown(gap(path, &error)),
        }
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.descend(path, OFlags::PATH).is_ok()
    }
}

impl LiveHost {
    /// This machine.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            root: HostRoot::open(Path::new("/"))?,
        })
    }

    /// Its root, for reading.
    pub fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Writes a setting's file. The only way that linerate writes below `/proc` and `/sys`.
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let fd = self.root.descend(path, OFlags::WRONLY | OFlags::TRUNC)?;
        File::from(fd).write_all(text.as_bytes())
    }
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// The gap that an error of the operating system leaves.
pub(crate) fn gap(path: &str, error: &io::Error) -> linerate_model::known::Gap {
    let cause = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::Absent,
        io::ErrorKind::PermissionDenied => Cause::Denied,
        _ => Cause::Unreadable,
    };
    linerate_model::known::Gap::new(cause, absolute(path), error.to_string())
}
