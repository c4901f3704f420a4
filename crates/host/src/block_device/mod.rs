//! One block device, to be measured: found by its name or path, opened, and its counters
//! (Documentation/ABI/stable/sysfs-block, Documentation/block/stat.rst, Documentation/admin-guide/devices.rst).
//!
//! A device is opened for writing only with `O_EXCL`: the kernel then refuses it while a file system, swap, device mapper,
//! MD, or anything else has it or one of its partitions (open(2), block/bdev.c). [`InUse`] names what that is.

mod counters;
mod mounts;
mod users;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use linerate_model::block::Area;
use linerate_model::block::signature::{self, HEAD, TAIL};
use linerate_model::known::Known;
use linerate_model::units::Bytes;
use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open, stat};
use rustix::io::Errno;

pub use self::counters::{Counters, Interrupts, Pcie};
pub use self::users::InUse;
use crate::attributes::{followed, last_name, number, parsed};
use crate::root::HostRoot;
use crate::sysfs::block::parse_size;

const BY_NUMBER: &str = "sys/dev/block";

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its node below `/dev`.
    pub path: PathBuf,
    /// The kernel's name, `nvme0n1p1`.
    pub name: String,
    /// The disk that a partition is on; the same name for a disk.
    pub disk: String,
    /// Its size.
    pub size: Bytes,
    /// The unit of its operations.
    pub logical_block: Bytes,
    number: (u32, u32),
    /// Its directory in sysfs.
    folder: String,
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No such file.
    #[error("cannot find the block device `{0}`: no such file")]
    Missing(PathBuf),
    /// Another kind of file.
    #[error("cannot measure `{path}`: it is {kind}, not a block device")]
    NotBlock {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It has no size.
    #[error(
        "cannot measure `{0}`: its size is 0 (an empty drive, or a loop device without a file)"
    )]
    Empty(PathBuf),
    /// Missing permission.
    #[error("cannot open `{0}`: permission denied")]
    Denied(PathBuf),
    /// Something has it, and the kernel does not say what.
    #[error(
        "cannot open `{0}` exclusively: a file system, another device or another program has it"
    )]
    Busy(PathBuf),
    /// It has no direct I/O.
    #[error("cannot open `{0}` with O_DIRECT: the device does not support it")]
    NoDirect(PathBuf),
    /// The node was replaced.
    #[error("cannot open `{0}`: it became another device meanwhile")]
    Replaced(PathBuf),
    /// It is not blank.
    #[error("cannot write to `{path}`: it is not blank: {what}")]
    NotBlank {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// It has no room between the areas that are inspected.
    #[error(
        "cannot write to `{path}`: it has {size}; the first {HEAD} and the last {TAIL} are never written"
    )]
    Small {
        /// The path.
        path: PathBuf,
        /// Its size.
        size: Bytes,
    },
    /// It is in use.
    #[error("cannot write to `{path}`: {why}")]
    InUse {
        /// The path.
        path: PathBuf,
        /// By what.
        why: InUse,
    },
    /// A fact is missing without which it cannot be measured.
    #[error("cannot measure `{path}`: {why}")]
    Unknown {
        /// The path.
        path: PathBuf,
        /// What could not be read.
        why: String,
    },
    /// Any other answer of the kernel.
    #[error("cannot {doing} `{path}`: {errno}")]
    Kernel {
        /// What was being done.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's reason.
        errno: Errno,
    },
}

/// Finds the device that `text` names: `/dev/nvme0n1`, a link to it, or `nvme0n1`.
pub fn find(root: &HostRoot, text: &Path) -> Result<Device, DeviceError> {
    // The kernel's names have `!` where the node has a directory: `cciss!c0d0` is /dev/cciss/c0d0.
    let path = match text.to_str().filter(|text| !text.contains('/')) {
        Some(name) => Path::new("/dev").join(name.replace('!', "/")),
        None => text.to_owned(),
    };
    let found = stat(&path).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => DeviceError::Missing(path.clone()),
        Errno::ACCESS | Errno::PERM => DeviceError::Denied(path.clone()),
        errno => kernel("find", &path, errno),
    })?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind != FileType::BlockDevice {
        let kind = in_words(kind);
        return Err(DeviceError::NotBlock { path, kind });
    }
    describe(root, path, (major(found.st_rdev), minor(found.st_rdev)))
}

/// The device of this number.
fn describe(root: &HostRoot, path: PathBuf, number: (u32, u32)) -> Result<Device, DeviceError> {
    let unknown = |path: &Path, why: String| DeviceError::Unknown {
        path: path.to_owned(),
        why,
    };
    let id = format!("{}:{}", number.0, number.1);
    let folder = known(followed(root, BY_NUMBER, &id)).map_err(|why| unknown(&path, why))?;
    let name = last_name(&folder).to_owned();
    let disk = disk_of(root, &folder);
    let size = parsed(root, &format!("{folder}/size"), parse_size);
    let size = known(size).map_err(|why| unknown(&path, why))?;
    if size.as_u64() == 0 {
        return Err(DeviceError::Empty(path));
    }
    let logical = format!("sys/block/{disk}/queue/logical_block_size");
    let logical =
        known(crate::attributes::number(root, &logical)).map_err(|why| unknown(&path, why))?;
    Ok(Device {
        path,
        name,
        disk,
        size,
        logical_block: Bytes::new(logical),
        number,
        folder,
    })
}

/// The name of the disk whose directory, or whose partition's, this is.
fn disk_of(root: &HostRoot, folder: &str) -> String {
    let above = folder.rsplit_once('/').map(|(above, _)| above);
    match above.filter(|_| root.exists(&format!("{folder}/partition"))) {
        Some(above) => last_name(above).to_owned(),
        None => last_name(folder).to_owned(),
    }
}

fn known<T>(value: Known<T>) -> Result<T, String> {
    match value {
        Known::Value(value) => Ok(value),
        Known::Unknown(gap) => Err(gap.to_string()),
    }
}

fn in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "another kind of file",
    }
}

fn kernel(doing: &'static str, path: &Path, errno: Errno) -> DeviceError {
    DeviceError::Kernel {
        doing,
        path: path.to_owned(),
        errno,
    }
}

impl Device {
    /// Opens it for direct reads.
    pub fn open_to_read(&self) -> Result<OwnedFd, DeviceError> {
        self.open(OFlags::RDONLY | OFlags::DIRECT)
    }

    /// Opens it exclusively for direct writes, after every check: nothing uses it, it is not on the disk of the root file
    /// system, and it is blank.
    pub fn open_to_write(&self, root: &HostRoot) -> Result<(OwnedFd, Area), DeviceError> {
        self.check_unused(root)?;
        let device = self.open(OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL)?;
        // From here on nothing can begin to use it; what did so before the exclusive open is found now.
        self.check_unused(root)?;
        let area = self.check_blank()?;
        Ok((device, area))
    }

    /// Whether it is the same device, however it was named.
    pub fn is(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// All of it.
    pub fn whole(&self) -> Area {
        Area {
            start: Bytes::new(0),
            length: self.size,
        }
    }

    fn check_unused(&self, root: &HostRoot) -> Result<(), DeviceError> {
        match users::first(root, self) {
            Some(why) => Err(DeviceError::InUse {
                path: self.path.clone(),
                why,
            }),
            None => Ok(()),
        }
    }

    /// The area that may be written: between the two whose bytes are all zero.
    fn check_blank(&self) -> Result<Area, DeviceError> {
        let kept = HEAD.as_u64() + TAIL.as_u64();
        let Some(length) = self
            .size
            .as_u64()
            .checked_sub(kept)
            .filter(|left| *left > 0)
        else {
            return Err(DeviceError::Small {
                path: self.path.clone(),
                size: self.size,
            });
        };
        // Through the page cache: what is read must not depend on how the buffer is aligned.
        let device = File::from(self.open(OFlags::RDONLY)?);
        let read = |area: Bytes, offset: u64| {
            let mut bytes = vec![0; usize::try_from(area.as_u64()).unwrap_or(0)];
            match device.read_exact_at(&mut bytes, offset) {
                Ok(()) => Ok(bytes),
                Err(error) => {
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    Err(kernel("read", &self.path, errno))
                }
            }
        };
        let head = read(HEAD, 0)?;
        let tail = read(TAIL, self.size.as_u64() - TAIL.as_u64())?;
        match signature::found(&head, &tail) {
            Some(what) => Err(DeviceError::NotBlank {
                path: self.path.clone(),
                what,
            }),
            None => Ok(Area {
                start: HEAD,
                length: Bytes::new(length),
            }),
        }
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, DeviceError> {
        let path = &self.path;
        let flags = flags | OFlags::CLOEXEC;
        let device = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => DeviceError::Denied(path.clone()),
            Errno::BUSY => DeviceError::Busy(path.clone()),
            Errno::INVAL if flags.contains(OFlags::DIRECT) => DeviceError::NoDirect(path.clone()),
            Errno::NOENT => DeviceError::Missing(path.clone()),
            errno => kernel("open", path, errno),
        })?;
        let now = fstat(&device).map_err(|errno| kernel("open", path, errno))?;
        let is_block = FileType::from_raw_mode(now.st_mode) == FileType::BlockDevice;
        if !is_block || (major(now.st_rdev), minor(now.st_rdev)) != self.number {
            return Err(DeviceError::Replaced(path.clone()));
        }
        Ok(device)
    }

    /// Why it has no polled queues; none if it has.
    pub fn why_not_polled(&self, root: &HostRoot) -> Option<String> {
        let file = format!("sys/block/{}/queue/io_poll", self.disk);
        match number::<u32>(root, &file) {
            Known::Value(0) => {}
            Known::Value(_) => return None,
            Known::Unknown(gap) => return Some(gap.to_string()),
        }
        // The drivers with polled queues (drivers/nvme/host/pci.c, drivers/block/{virtio_blk,null_blk}).
        let module = [
            ("nvme", "nvme"),
            ("vd", "virtio_blk"),
            ("nullb", "null_blk"),
        ]
        .iter()
        .find(|(start, _)| self.disk.starts_with(start))
        .map(|(_, module)| *module);
        Some(match module {
            Some(module) => {
                let parameter = format!("sys/module/{module}/parameters/poll_queues");
                let queues = number::<u32>(root, &parameter).get();
                let queues = queues.map_or_else(String::new, |queues| format!(" (now {queues})"));
                format!(
                    "/{file} is 0: load {module} with the parameter poll_queues=N{queues}, for example \
                     `{module}.poll_queues=2` on the kernel's command line"
                )
            }
            None => format!(
                "/{file} is 0: the driver of {} has no polled queues",
                self.disk
            ),
        })
    }
}

#[cfg(test)]
mod tests;
