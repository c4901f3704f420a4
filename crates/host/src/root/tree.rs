//! The files of a captured host, in memory: directories, links, texts, and gaps.
//!
//! Links are followed only inside the tree, at most as many as the kernel follows (path_resolution(7)).

use std::collections::btree_map::{self, BTreeMap};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use linerate_model::known::Cause;

/// The maximum number of links in a path before `ELOOP` (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file's text without trailing white space; hard links share it.
    File { mode: u32, text: Arc<str> },
    /// A directory with its names.
    Folder { mode: u32, names: BTreeSet<String> },
    /// A symbolic link.
    Link { target: String },
    /// A path that was read without success.
    Gap { cause: Cause, reason: String },
}

impl Entry {
    /// The reason of the gap for a binary file.
    pub(crate) const NOT_TEXT: &'static str = "not UTF-8 text";
    /// The reason of the gap for a file of more than `FILE_BYTES_MAX`.
    pub(crate) const TOO_LONG: &'static str = "longer than 64 MiB";

    /// The gap for a missing file.
    pub(crate) fn absent() -> Self {
        Self::Gap {
            cause: Cause::Absent,
            reason: os_error(libc::ENOENT).to_string(),
        }
    }

    fn folder() -> Self {
        Self::Folder {
            mode: 0o755,
            names: BTreeSet::new(),
        }
    }

    /// The memory of this entry alone. A text shared by hard links is counted with the first of them.
    fn bytes(&self) -> usize {
        match self {
            Self::File { text, .. } if Arc::strong_count(text) > 1 => 0,
            Self::File { text, .. } => text.len(),
            Self::Folder { names, .. } => names.iter().map(|name| name_bytes(name)).sum(),
            Self::Link { target } => target.len(),
            Self::Gap { reason, .. } => reason.len(),
        }
    }
}

/// The maximum allocator overhead of a text.
const ALLOCATION_BYTES: usize = 32;

/// The maximum memory of a name in a directory: nodes of a `BTreeSet` are half full if names are inserted in order.
pub(crate) fn name_bytes(name: &str) -> usize {
    2 * size_of::<String>() + ALLOCATION_BYTES + name.len()
}

/// The maximum memory of a path with its entry, without what the entry points to.
fn path_bytes(path: &str) -> usize {
    name_bytes(path) + 2 * size_of::<Entry>() + ALLOCATION_BYTES
}

/// Why a lookup fails.
#[derive(Debug)]
pub(crate) enum Missing {
    /// As the kernel would fail.
    Os(io::Error),
    /// As recorded.
    Recorded(Cause, String),
}

impl Missing {
    /// Whether the path is known to be absent.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Os(error) if error.raw_os_error() == Some(libc::ENOENT))
    }
}

/// Files by their real path, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
    /// Whether the tree contains everything that the host had: then a missing path is absent. Otherwise it was not
    /// read when the host was captured.
    complete: bool,
}

impl Tree {
    /// A tree without files.
    pub(crate) fn new(complete: bool) -> Self {
        Self {
            entries: BTreeMap::new(),
            complete,
        }
    }

    /// Every entry by its path, in order.
    pub(crate) fn iter(&self) -> btree_map::Iter<'_, String, Entry> {
        self.entries.iter()
    }

    /// The number of entries, including implicit directories.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at the real path `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Sets `entry` at the real path `path`. In a complete tree the parent directories are created. Returns an upper
    /// bound of the memory used.
    pub(crate) fn put(&mut self, path: &str, entry: Entry) -> usize {
        let path = path.trim_matches('/');
        let mut bytes = path_bytes(path) + entry.bytes();
        let is_there = !matches!(
            &entry,
            Entry::Gap {
                cause: Cause::Absent,
                ..
            }
        );
        match (self.entries.get_mut(path), entry) {
            // The directory was created for one of its entries.
            (Some(Entry::Folder { names, .. }), Entry::Folder { names: more, .. }) => {
                names.extend(more);
            }
            (_, entry) => {
                self.entries.insert(path.to_owned(), entry);
            }
        }
        if !self.complete || !is_there {
            return bytes;
        }
        let mut child = path;
        while let Some((folder, name)) = split(child) {
            let above = self.entries.entry(folder.to_owned()).or_insert_with(|| {
                bytes += path_bytes(folder);
                Entry::folder()
            });
            if let Entry::Folder { names, .. } = above {
                if !names.insert(name.to_owned()) {
                    break;
                }
                bytes += name_bytes(name);
            }
            child = folder;
        }
        bytes
    }

    /// Changes the entry at `path`, resolving links: another text, or nothing. Updates the parent directory's names.
    pub(crate) fn edit(&mut self, path: &str, text: Option<&str>) {
        let real = self
            .real_path(path, true)
            .unwrap_or_else(|| path.to_owned());
        let entry = match text {
            None => Entry::absent(),
            Some(text) => Entry::File {
                mode: self.mode(&real).unwrap_or(0o644),
                text: text.trim_end().into(),
            },
        };
        self.put(&real, entry);
        match text {
            Some(_) => self.name_above(&real),
            None => {
                if let Some((folder, name)) = split(&real)
                    && let Some(Entry::Folder { names, .. }) = self.entries.get_mut(folder)
                {
                    names.remove(name);
                }
            }
        }
    }

    /// Puts a symbolic link at the real path `path`. Updates the parent directory's names.
    pub(crate) fn put_link(&mut self, path: &str, target: &str) {
        let path = path.trim_matches('/');
        let target = target.to_owned();
        self.put(path, Entry::Link { target });
        self.name_above(path);
    }

    /// Puts an empty directory at the real path `path`, if it has no entry.
    pub(crate) fn put_folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if self.get(path).is_none_or(|entry| *entry == Entry::absent()) {
            self.put(path, Entry::folder());
            self.name_above(path);
        }
    }

    /// Adds `real` to the names of its parent directories. Those recorded as absent are created; directories that
    /// were not listed are left as they are.
    fn name_above(&mut self, real: &str) {
        let (mut child, mut unlisted) = (real, Vec::new());
        while let Some((folder, name)) = split(child) {
            match self.entries.get_mut(folder) {
                None => unlisted.push((folder.to_owned(), name.to_owned())),
                Some(Entry::Folder { names, .. }) => {
                    if names.insert(name.to_owned()) {
                        self.put_folders(unlisted);
                    }
                    return;
                }
                Some(entry) if *entry == Entry::absent() => {
                    *entry = Entry::Folder {
                        mode: 0o755,
                        names: BTreeSet::from([name.to_owned()]),
                    };
                    self.put_folders(std::mem::take(&mut unlisted));
                }
                Some(_) => return,
            }
            child = folder;
        }
    }

    fn put_folders(&mut self, folders: Vec<(String, String)>) {
        for (folder, name) in folders {
            let names = BTreeSet::from([name]);
            self.entries
                .insert(folder, Entry::Folder { mode: 0o755, names });
        }
    }

    /// The same files seen from `folder` as the root.
    pub(crate) fn below(self, folder: &str) -> Self {
        let folder = folder.trim_matches('/');
        let mut below = Self::new(self.complete);
        for (path, entry) in self.entries {
            let inside = match folder {
                "" => Some(path.as_str()),
                folder if path == folder => Some(""),
                folder => path
                    .strip_prefix(folder)
                    .and_then(|rest| rest.strip_prefix('/')),
            };
            if let Some(inside) = inside {
                below.entries.insert(inside.to_owned(), entry);
            }
        }
        below
    }

    /// The real path of `path`, with all links resolved, including the last component if `last_too`.
    pub(crate) fn real_path(&self, path: &str, last_too: bool) -> Option<String> {
        real_path(path, last_too, |path| match self.entries.get(path) {
            Some(Entry::Link { target }) => Some(target.clone()),
            _ => None,
        })
    }

    pub(crate) fn read(&self, path: &str) -> Result<&str, Missing> {
        match self.find(path, true)? {
            Entry::File { text, .. } => Ok(text),
            Entry::Folder { .. } => Err(Missing::Os(os_error(libc::EISDIR))),
            Entry::Link { .. } => Err(Missing::Os(os_error(libc::ELOOP))),
            Entry::Gap { cause, reason } => Err(Missing::Recorded(*cause, reason.clone())),
        }
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, Missing> {
        match self.find(path, true)? {
            Entry::Folder { names, .. } => Ok(names.iter().cloned().collect()),
            Entry::File { .. } | Entry::Link { .. } => Err(Missing::Os(os_error(libc::ENOTDIR))),
            Entry::Gap { cause, reason } => Err(Missing::Recorded(*cause, reason.clone())),
        }
    }

    pub(crate) fn link(&self, path: &str) -> Result<String, Missing> {
        match self.find(path, false) {
            Ok(Entry::Link { target }) => Ok(target.clone()),
            Ok(Entry::Gap { cause, reason }) if *cause == Cause::Absent => {
                Err(Missing::Recorded(*cause, reason.clone()))
            }
            Ok(_) => Err(Missing::Os(os_error(libc::EINVAL))),
            Err(missing) => Err(missing),
        }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        match self.find(path, true) {
            Ok(Entry::Gap { cause, .. }) => *cause != Cause::Absent,
            Ok(_) => true,
            Err(_) => false,
        }
    }

    pub(crate) fn mode(&self, path: &str) -> Option<u32> {
        match self.find(path, true).ok()? {
            Entry::File { mode, .. } | Entry::Folder { mode, .. } => Some(*mode),
            Entry::Link { .. } | Entry::Gap { .. } => None,
        }
    }

    fn find(&self, path: &str, last_too: bool) -> Result<&Entry, Missing> {
        let real = self
            .real_path(path, last_too)
            .ok_or_else(|| Missing::Os(os_error(libc::ELOOP)))?;
        self.entries.get(&real).ok_or_else(|| self.missing(&real))
    }

    /// Why there is no entry at the real path `real`: the nearest known parent directory decides.
    fn missing(&self, real: &str) -> Missing {
        let absent = || Missing::Os(os_error(libc::ENOENT));
        let mut child = real;
        while let Some((folder, name)) = split(child) {
            match self.entries.get(folder) {
                Some(Entry::File { .. }) => return Missing::Os(os_error(libc::ENOTDIR)),
                Some(Entry::Folder { names, .. }) if !names.contains(name) => return absent(),
                Some(Entry::Gap { cause, .. }) if *cause == Cause::Absent => return absent(),
                Some(_) => break,
                None if folder.is_empty() => break,
                None => child = folder,
            }
        }
        if self.complete {
            return absent();
        }
        Missing::Recorded(
            Cause::NotAsked,
            "not in the archive: capture the host again with this version of linerate".to_owned(),
        )
    }
}

/// The directory and the last name of a path; the root has neither.
fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/') {
        Some(parts) => Some(parts),
        None if path.is_empty() => None,
        None => Some(("", path)),
    }
}

/// Resolves every link in `path`, and the last component if `last_too`; `None` if there are too many. `..` at the
/// root stays there.
pub(crate) fn real_path(
    path: &str,
    last_too: bool,
    mut link: impl FnMut(&str) -> Option<String>,
) -> Option<String> {
    let mut ahead: VecDeque<String> = path.split('/').map(str::to_owned).collect();
    let mut real = String::new();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                real.truncate(real.rfind('/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let folder_end = real.len();
        if !real.is_empty() {
            real.push('/');
        }
        real.push_str(&name);
        let is_last = ahead.iter().all(String::is_empty);
        if is_last && !last_too {
            break;
        }
        if let Some(target) = link(&real) {
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            let from_root = target.starts_with('/');
            real.truncate(if from_root { 0 } else { folder_end });
            for name in target.rsplit('/') {
                ahead.push_front(name.to_owned());
            }
        }
    }
    Some(real)
}

pub(crate) fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(text: &str) -> Entry {
        Entry::File {
            mode: 0o644,
            text: text.into(),
        }
    }

    fn link(target: &str) -> Entry {
        Entry::Link {
            target: target.to_owned(),
        }
    }

    #[test]
    fn links_are_followed_inside_the_tree_only() {
        let mut tree = Tree::new(true);
        tree.put("sys/devices/card/net/eth0/mtu", file("1500"));
        tree.put("sys/class/net/eth0", link("../../devices/card/net/eth0"));
        tree.put(
            "sys/class/net/up",
            link("../../../../../../sys/devices/card/net/eth0"),
        );
        tree.put("sys/class/net/abs", link("/sys/devices/card/net/eth0"));
        for name in ["eth0", "up", "abs"] {
            let path = format!("sys/class/net/{name}/mtu");
            assert_eq!(tree.read(&path).ok(), Some("1500"), "{name}");
        }
        assert_eq!(
            tree.list("/sys/class/net").ok().map(|names| names.len()),
            Some(3)
        );
    }

    #[test]
    fn a_circle_of_links_ends_as_the_kernel_ends_it() {
        let mut tree = Tree::new(true);
        tree.put("a", link("b"));
        tree.put("b", link("a"));
        let Err(Missing::Os(error)) = tree.read("a/x") else {
            panic!("a circle has no end");
        };
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn what_an_archive_does_not_hold_is_absent_only_where_its_folder_says_so() {
        let mut tree = Tree::new(false);
        tree.put(
            "sys/class",
            Entry::Folder {
                mode: 0o755,
                names: BTreeSet::from(["net".to_owned()]),
            },
        );
        assert!(matches!(
            tree.read("sys/class/infiniband/x"),
            Err(Missing::Os(_))
        ));
        assert!(matches!(
            tree.read("sys/class/net/eth0/mtu"),
            Err(Missing::Recorded(Cause::NotAsked, _))
        ));
        assert!(matches!(
            tree.read("proc/cpuinfo"),
            Err(Missing::Recorded(Cause::NotAsked, _))
        ));
    }

    proptest! {
        #[test]
        fn no_path_or_link_panics_a_tree(
            entries in proptest::collection::vec(("[a-c./]{0,6}", "[a-c./]{0,8}"), 0..12),
            path in "[a-c./]{0,12}",
        ) {
            let mut tree = Tree::new(true);
            for (at, target) in &entries {
                tree.put(at, link(target));
            }
            let _ = (tree.read(&path).is_ok(), tree.list(&path).is_ok(), tree.link(&path).is_ok());
        }
    }
}
