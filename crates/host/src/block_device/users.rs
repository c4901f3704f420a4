//! What uses a device, or a part of it: the first thing that forbids to write to it.
//!
//! `holders` and `slaves` (Documentation/ABI/testing/sysfs-block-device and block/holder.c) connect a device with those
//! that are made of it: device mapper, MD, bcache. The disk of the root file system is never written to, on whichever of
//! its partitions. What is not known forbids it too.

use std::collections::BTreeSet;
use std::fmt;

use linerate_model::known::Known;

use super::mounts::{Mount, parse_mountinfo, parse_swaps};
use super::{BY_NUMBER, Device, disk_of};
use crate::attributes::{followed, last_name};
use crate::root::HostRoot;

const CLASS: &str = "sys/class/block";
/// Devices made of devices made of devices: deeper is a loop of links.
const DEPTH_MAX: u32 = 16;
/// File systems that are not on a disk of this host.
const DISKLESS: [&str; 10] = [
    "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "tmpfs", "ramfs", "rootfs",
];

/// Why a device is not written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InUse {
    /// The root file system is on this disk.
    RootDisk(String),
    /// It is not known where the root file system is.
    RootUnknown(String),
    /// A device of it is mounted.
    Mounted {
        /// The device.
        name: String,
        /// Where.
        at: String,
    },
    /// A device of it is a swap area.
    Swap(String),
    /// Another device is made of it.
    Held {
        /// The device.
        name: String,
        /// The other device.
        holder: String,
    },
    /// It has partitions.
    Partitions(String),
    /// The kernel refuses writes.
    ReadOnly(String),
    /// Its zones must be written in order (Documentation/ABI/stable/sysfs-block, `zoned`).
    Zoned(String),
    /// A fact is missing.
    Unknown(String),
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RootDisk(disk) => write!(f, "the root file system is on {disk}"),
            Self::RootUnknown(why) => {
                write!(f, "the disk of the root file system is not known: {why}")
            }
            Self::Mounted { name, at } => write!(f, "{name} is mounted on {at}"),
            Self::Swap(name) => write!(f, "{name} is a swap area in use"),
            Self::Held { name, holder } => write!(f, "{holder} is made of {name}"),
            Self::Partitions(names) => write!(f, "it has partitions: {names}"),
            Self::ReadOnly(name) => write!(f, "{name} is read-only"),
            Self::Zoned(kind) => write!(f, "it is a {kind} zoned device"),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// The first thing that forbids writes to `device`.
pub(super) fn first(root: &HostRoot, device: &Device) -> Option<InUse> {
    forbids(root, device).err()
}

fn forbids(root: &HostRoot, device: &Device) -> Result<(), InUse> {
    let read = |path: &str| match root.read(path) {
        Known::Value(text) => Ok(text),
        Known::Unknown(gap) => Err(InUse::Unknown(gap.to_string())),
    };
    let list = |path: &str| match root.list(path) {
        Known::Value(names) => Ok(names),
        Known::Unknown(gap) => Err(InUse::Unknown(gap.to_string())),
    };
    let mounts = parse_mountinfo(&read("proc/self/mountinfo")?);
    let below = below(root, &device.folder, 0)?;
    let of_root = root_disks(root, &mounts);
    let shared = of_root
        .as_ref()
        .ok()
        .and_then(|disks| below.intersection(disks).next());
    if let Some(disk) = shared {
        return Err(InUse::RootDisk(disk.clone()));
    }
    let is_disk = device.name == device.disk;
    let names = list(&device.folder)?;
    let is_partition = |name: &&String| root.exists(&format!("{}/{name}/partition", device.folder));
    let partitions: Vec<&String> = names.iter().filter(is_partition).collect();
    let swaps = swaps(root)?;
    let all = std::iter::once(&device.name).chain(partitions.iter().copied());
    for name in all {
        let mounted = mounts.iter().find(|mount| {
            device_of(root, mount)
                .is_ok_and(|folder| folder.as_deref().map(last_name) == Some(name))
        });
        if let Some(mount) = mounted {
            return Err(InUse::Mounted {
                name: name.clone(),
                at: mount.at.clone(),
            });
        }
        if swaps.contains(name) {
            return Err(InUse::Swap(name.clone()));
        }
        let holders = list(&format!("{CLASS}/{name}/holders"))?;
        if let Some(holder) = holders.first() {
            return Err(InUse::Held {
                name: name.clone(),
                holder: holder.clone(),
            });
        }
    }
    if is_disk && !partitions.is_empty() {
        let names: Vec<&str> = partitions.iter().map(|name| name.as_str()).collect();
        return Err(InUse::Partitions(names.join(", ")));
    }
    if read(&format!("{}/ro", device.folder))? != "0" {
        return Err(InUse::ReadOnly(device.name.clone()));
    }
    match root.read(&format!("sys/block/{}/queue/zoned", device.disk)) {
        Known::Value(zoned) if zoned != "none" => Err(InUse::Zoned(zoned)),
        // Kernels before 4.10 have no zoned devices. Last: what uses the device says more.
        _ => of_root.map(drop),
    }
}

/// The names of the devices that are swap areas. A kernel without swap has no such file.
fn swaps(root: &HostRoot) -> Result<BTreeSet<String>, InUse> {
    use linerate_model::known::Cause;
    let text = match root.read("proc/swaps") {
        Known::Value(text) => text,
        Known::Unknown(gap) if gap.cause == Cause::Absent => return Ok(BTreeSet::new()),
        Known::Unknown(gap) => return Err(InUse::Unknown(gap.to_string())),
    };
    let files = parse_swaps(&text);
    Ok(files
        .iter()
        .map(|file| last_name(&resolved(root, file)).to_owned())
        .collect())
}

/// The disks that the device with this directory is on, or is made of.
fn below(root: &HostRoot, folder: &str, depth: u32) -> Result<BTreeSet<String>, InUse> {
    if depth > DEPTH_MAX {
        return Err(InUse::Unknown(format!(
            "/{folder} is made of too many layers"
        )));
    }
    let disk = disk_of(root, folder);
    let mut all = BTreeSet::from([disk.clone()]);
    if let Known::Value(names) = root.list(&format!("{CLASS}/{disk}/slaves")) {
        for name in names {
            let folder = match followed(root, CLASS, &name) {
                Known::Value(folder) => folder,
                Known::Unknown(gap) => return Err(InUse::Unknown(gap.to_string())),
            };
            all.append(&mut below(root, &folder, depth + 1)?);
        }
    }
    Ok(all)
}

/// The disks that the root file system is on; none if it is not on a disk of this host.
fn root_disks(root: &HostRoot, mounts: &[Mount]) -> Result<BTreeSet<String>, InUse> {
    // A later mount on the same place covers the earlier one.
    let Some(mount) = mounts.iter().rfind(|mount| mount.at == "/") else {
        let why = "/proc/self/mountinfo does not list it".to_owned();
        return Err(InUse::RootUnknown(why));
    };
    if DISKLESS.contains(&mount.kind.as_str()) {
        return Ok(BTreeSet::new());
    }
    match device_of(root, mount) {
        Ok(Some(folder)) => below(root, &folder, 0),
        Ok(None) | Err(()) => Err(InUse::RootUnknown(format!(
            "it is {} of `{}`, which is no device here",
            mount.kind, mount.source
        ))),
    }
}

/// The directory in sysfs of the device that is mounted; none if it has no device, an error if the device is not found.
fn device_of(root: &HostRoot, mount: &Mount) -> Result<Option<String>, ()> {
    let (major, minor) = mount.number;
    if major != 0 {
        let folder = followed(root, BY_NUMBER, &format!("{major}:{minor}"));
        return folder.value().cloned().map(Some).ok_or(());
    }
    // Btrfs has a number of its own, and one of its devices as the source.
    if !mount.source.starts_with("/dev/") {
        return Ok(None);
    }
    let node = resolved(root, &mount.source);
    let folder = followed(root, CLASS, last_name(&node));
    folder.value().cloned().map(Some).ok_or(())
}

/// The node behind a link below `/dev` such as `/dev/mapper/vg-root`.
fn resolved(root: &HostRoot, path: &str) -> String {
    let relative = path.trim_start_matches('/');
    let folder = relative.rsplit_once('/').map_or("", |(folder, _)| folder);
    match root.link(relative) {
        Known::Value(target) => crate::attributes::joined(folder, &target),
        Known::Unknown(_) => relative.to_owned(),
    }
}
