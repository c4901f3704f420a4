//! Records what the readers read of a host and the results, so that a capture contains exactly that: the readers are
//! its allow-list.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::known::{Cause, Gap, Known};

use super::HostRoot;
use super::limits::check_path;
use super::tree::{Entry, Tree, real_path};

/// The recorded results of a root.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Whether a real path is a link, as far as it was checked.
    links: BTreeMap<String, Option<String>>,
    entries: BTreeMap<String, Entry>,
}

impl Log {
    /// A file was read.
    pub(crate) fn read(&mut self, root: &HostRoot, path: &str, answer: &Known<String>) {
        let entry = match answer {
            Known::Value(text) => Entry::File {
                mode: root.mode(path).unwrap_or(0o444),
                text: text.as_str().into(),
            },
            Known::Unknown(gap) => gap_entry(gap),
        };
        self.put(root, path, true, entry);
    }

    /// A part of a file was used. It is stored under the requested path, as a plain file.
    pub(crate) fn used(&mut self, root: &HostRoot, path: &str, answer: &Known<String>) {
        let entry = match answer {
            Known::Value(text) => Entry::File {
                mode: 0o444,
                text: text.as_str().into(),
            },
            Known::Unknown(gap) => gap_entry(gap),
        };
        self.put(root, path, false, entry);
    }

    /// A directory was listed.
    pub(crate) fn listed(&mut self, root: &HostRoot, path: &str, answer: &Known<Vec<String>>) {
        let entry = match answer {
            Known::Value(names) => Entry::Folder {
                mode: root.mode(path).unwrap_or(0o755),
                names: names.iter().cloned().collect::<BTreeSet<_>>(),
            },
            Known::Unknown(gap) => gap_entry(gap),
        };
        self.put(root, path, true, entry);
    }

    /// A link was read. Other entries need no record here: they have their own.
    pub(crate) fn linked(&mut self, root: &HostRoot, path: &str, answer: &Known<String>) {
        let entry = match answer {
            Known::Value(target) => Entry::Link {
                target: target.clone(),
            },
            Known::Unknown(gap) if gap.cause == Cause::Absent => gap_entry(gap),
            Known::Unknown(_) => return,
        };
        self.put(root, path, false, entry);
    }

    /// The results as the files of an archive.
    pub(crate) fn into_tree(self) -> Tree {
        let mut tree = Tree::new(false);
        for (path, target) in self.links {
            if let Some(target) = target {
                tree.put(&path, Entry::Link { target });
            }
        }
        // Directories first: their names already show which files are absent.
        let (folders, others): (Vec<_>, Vec<_>) = self
            .entries
            .into_iter()
            .partition(|(_, entry)| matches!(entry, Entry::Folder { .. }));
        for (path, entry) in folders {
            tree.put(&path, entry);
        }
        for (path, entry) in others {
            let is_known_to_be_absent = entry == Entry::absent()
                && matches!(tree.link(&path), Err(missing) if missing.is_absent());
            if !is_known_to_be_absent {
                tree.put(&path, entry);
            }
        }
        tree
    }

    fn put(&mut self, root: &HostRoot, path: &str, last_too: bool, entry: Entry) {
        let links = &mut self.links;
        let real = real_path(path, last_too, |path| {
            if let Some(known) = links.get(path) {
                return known.clone();
            }
            let target = match root.link_unlogged(path) {
                Known::Value(target) => Some(target),
                Known::Unknown(_) => None,
            };
            links.insert(path.to_owned(), target.clone());
            target
        });
        // A path through a loop of links has no real path; its links represent it. A path above the length limit is
        // dropped.
        if let Some(real) = real.filter(|real| check_path(real).is_ok()) {
            self.entries.entry(real).or_insert(entry);
        }
    }
}

fn gap_entry(gap: &Gap) -> Entry {
    Entry::Gap {
        cause: gap.cause,
        reason: gap.reason.clone(),
    }
}
