//! What a captured host may take. A captured host comes from anybody, and what a few bytes of it stand for
//! has no bound of its own: each limit here is far above what a host of 1,024 CPUs has.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tree::{Entry, Tree};

/// The longest path and the longest target of a link: what the kernel takes (`PATH_MAX` less its end).
const PATH_BYTES_MAX: usize = 4095;
/// The most folders that lie in each other. In sysfs each bridge before a PCI device is one: about 30.
const DEPTH_MAX: usize = 128;
/// The most files, folders and links: a host of 1,024 CPUs has about 200,000 that are worth keeping.
const ENTRIES_MAX: usize = 1 << 20;
/// The most memory that the files of a captured host take, in which nothing is counted twice.
pub(crate) const MEMORY_BYTES_MAX: usize = 256 << 20;
/// The most bytes of JSON for one interface or device.
pub(crate) const ANSWERS_BYTES_MAX: usize = 8 << 20;
/// How many bytes of memory a byte of JSON becomes at most, in round numbers (`"",` is an empty `String`).
const MEMORY_OF_JSON: usize = 8;

/// A limit that a captured host does not keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// What is too large, as the subject of a sentence.
    pub(crate) what: &'static str,
    /// The most that is read.
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

/// Whether a captured host may hold something at `path`.
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

    /// Puts `entry` at `path`, unless that breaks a limit.
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

    /// Counts the memory of an interface's or device's answers, which come as JSON.
    pub(crate) fn take_json(&mut self, json: &str) -> Result<(), Limit> {
        self.take(json.len() * MEMORY_OF_JSON)
    }

    /// Whether so many bytes more still fit: for what is read piece by piece before it is put.
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

/// The most memory that the answers to all questions about a captured host take: links make an interface of
/// each name and a queue of each name of each interface, so a small archive may stand for any number.
/// The whole of 1,024 CPUs, 16 NICs of 64 queues and 4,096 interrupts comes to 30 MB beside `/proc/interrupts`.
const ANSWERS_MEMORY_MAX: u64 = 256 << 20;
/// The memory that what is known of one file takes, its path and the reason of its gap included.
const ANSWER_BYTES: u64 = 512;
/// The most names in one folder: each interface takes about 20 KiB, however little is known of it.
const NAMES_MAX: usize = 16 << 10;
/// The folder of which that does not hold: processes are many, and hardly anything is read of them.
const PROCESSES: &str = "proc";

/// What the questions about a captured host may still take. Once that is spent nothing is answered any more,
/// and who asked has to refuse the host ([`Budget::broken`]).
#[derive(Debug, Default)]
pub(crate) struct Budget {
    spent: AtomicU64,
    broken: OnceLock<Limit>,
}

impl Budget {
    /// The limit that was broken.
    pub(crate) fn broken(&self) -> Option<Limit> {
        self.broken.get().copied()
    }

    /// Counts one answer of so many bytes.
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

    /// Counts a folder's names.
    pub(crate) fn spend_names(&self, folder: &str, names: &[String]) -> Result<(), Limit> {
        if names.len() > NAMES_MAX && folder.trim_matches('/') != PROCESSES {
            let limit = Limit::of("the number of files in one folder", NAMES_MAX);
            let _ = self.broken.set(limit);
        }
        self.spend(names.iter().map(String::len).sum())
    }
}
