//! The limits of a captured host. A captured host is untrusted, and a few bytes of it may expand without bound: each
//! limit here is far above the size of a host with 1,024 CPUs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tree::{Entry, Tree};

/// The maximum length of a path and of a link's target: the kernel's limit (`PATH_MAX` without its NUL).
const PATH_BYTES_MAX: usize = 4095;
/// The maximum nesting of directories. In sysfs each bridge above a PCI device is one: about 30.
const DEPTH_MAX: usize = 128;
/// The maximum number of files, directories and links: a host with 1,024 CPUs has about 200,000 that are used.
const ENTRIES_MAX: usize = 1 << 20;
/// The maximum memory for the files of a captured host, without sharing.
pub(crate) const MEMORY_BYTES_MAX: usize = 256 << 20;
/// The maximum size of the JSON for one interface or device.
pub(crate) const ANSWERS_BYTES_MAX: usize = 8 << 20;
/// The memory that a byte of JSON takes at most, in round numbers (`"",` is an empty `String`).
const MEMORY_OF_JSON: usize = 8;

/// A limit that a captured host exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The quantity, as the subject of a sentence.
    pub(crate) what: &'static str,
    /// The maximum.
    pub(crate) most: u64,
}

impl Limit {
    pub(crate) const fn of(what: &'static str, most: usize) -> Self {
        Self {
            what,
            most: most as u64,
        }
    }

    const PATH: Self = Self::of("the length of a path in bytes", PATH_BYTES_MAX);
    const TARGET: Self = Self::of("the length of a link's target in bytes", PATH_BYTES_MAX);
    const DEPTH: Self = Self::of("the depth of a path in folders", DEPTH_MAX);
    const ENTRIES: Self = Self::of("the number of files, folders and links", ENTRIES_MAX);
    pub(crate) const MEMORY: Self = Self::of("the memory for its files in bytes", MEMORY_BYTES_MAX);
}

/// Whether a captured host may contain `path`.
pub(crate) fn check_path(path: &str) -> Result<(), Limit> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Limit::PATH);
    }
    if path.split('/').count() > DEPTH_MAX {
        return Err(Limit::DEPTH);
    }
    Ok(())
}

/// The files of a captured host while they are read, within the limits.
#[derive(Debug)]
pub(crate) struct Filling {
    tree: Tree,
    bytes: usize,
}

impl Filling {
    pub(crate) fn new(tree: Tree) -> Self {
        Self { tree, bytes: 0 }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn into_tree(self) -> Tree {
        self.tree
    }

    /// Adds `entry` at `path`, unless that exceeds a limit.
    pub(crate) fn put(&mut self, path: &str, entry: Entry) -> Result<(), Limit> {
        check_path(path)?;
        if matches!(&entry, Entry::Link { target } if target.len() > PATH_BYTES_MAX) {
            return Err(Limit::TARGET);
        }
        let bytes = self.tree.put(path, entry);
        if self.tree.len() > ENTRIES_MAX {
            return Err(Limit::ENTRIES);
        }
        self.take(bytes)
    }

    /// Counts the memory of an interface's or device's data, which is JSON.
    pub(crate) fn take_json(&mut self, json: &str) -> Result<(), Limit> {
        self.take(json.len() * MEMORY_OF_JSON)
    }

    /// Whether this many more bytes fit: for data that is read in pieces before it is added.
    pub(crate) fn fits(&self, bytes: usize) -> Result<(), Limit> {
        if self.bytes.saturating_add(bytes) > MEMORY_BYTES_MAX {
            return Err(Limit::MEMORY);
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Limit> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.fits(0)
    }
}

/// The maximum memory for all data read from a captured host: links can turn each name into an interface and each
/// name of an interface into a queue, so a small archive may expand to any number. A complete host with 1,024 CPUs,
/// 16 NICs of 64 queues and 4,096 interrupts takes 30 MB, without `/proc/interrupts`.
const ANSWERS_MEMORY_MAX: u64 = 256 << 20;
/// The memory for the result of one file, including its path and the reason of its gap.
const ANSWER_BYTES: u64 = 512;
/// The maximum number of names in one directory: each interface takes about 20 KiB, even without data.
const NAMES_MAX: usize = 16 << 10;
/// The directory without that limit: there are many processes, and little is read of them.
const PROCESSES: &str = "proc";

/// The remaining memory budget of a captured host's data. Once it is spent nothing more is read, and the caller has
/// to reject the host ([`Budget::broken`]).
#[derive(Debug, Default)]
pub(crate) struct Budget {
    spent: AtomicU64,
    broken: OnceLock<Limit>,
}

impl Budget {
    /// The limit that was exceeded.
    pub(crate) fn broken(&self) -> Option<Limit> {
        self.broken.get().copied()
    }

    /// Counts one result of this many bytes.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Limit> {
        let cost = ANSWER_BYTES + bytes as u64;
        let spent = self.spent.fetch_add(cost, Ordering::Relaxed);
        if spent.saturating_add(cost) > ANSWERS_MEMORY_MAX {
            let limit = Limit {
                what: "the memory for what is read of it in bytes",
                most: ANSWERS_MEMORY_MAX,
            };
            let _ = self.broken.set(limit);
        }
        self.broken().map_or(Ok(()), Err)
    }

    /// Counts a directory's names.
    pub(crate) fn spend_names(&self, folder: &str, names: &[String]) -> Result<(), Limit> {
        if names.len() > NAMES_MAX && folder.trim_matches('/') != PROCESSES {
            let limit = Limit::of("the number of files in one folder", NAMES_MAX);
            let _ = self.broken.set(limit);
        }
        self.spend(names.iter().map(String::len).sum())
    }
}
