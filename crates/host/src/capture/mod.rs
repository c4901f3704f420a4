//! Captured hosts: a host's files and netlink data in one reviewable text file, and reading it with the same readers
//! as a live host.
//!
//! A capture contains exactly what the readers read: it is one run of the readers with every result stored, including
//! errors.

pub(crate) mod answers;
mod archive;
mod error;
mod open;
mod parser;
pub(crate) mod pseudonym;
pub(crate) mod tarball;

pub use answers::NicAnswers;
pub use archive::Archive;
pub use error::CaptureError;
use linerate_model::host::Host;
pub use open::Captured;

use crate::hex::{from_hex, to_hex};
use crate::nic_control::NicRead;
use crate::procfs::{identity, vlan};
use crate::rdma::RdmaAnswers;
use crate::read::read_host;
use crate::root::HostRoot;
use crate::root::tree::{Entry, Tree};
use crate::sysfs::rdma::ask_device;
use crate::sysfs::{config_space, gids, nodes};
use crate::watch::read_counters;
use answers::{CapturedNics, CapturedRdma};
use pseudonym::Pseudonyms;

/// The options of a capture.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// The version of linerate, for the archive's header.
    pub version: String,
    /// Whether addresses, the host name and everything else that identifies the machine is replaced by pseudonyms:
    /// equal ones for equal values, so that relations are preserved.
    pub pseudonyms: bool,
}

/// Captures a host.
pub fn capture(root: &HostRoot, nics: &dyn NicRead, options: &CaptureOptions) -> Archive {
    record(root, nics, options).1
}

/// Captures a host and returns what was read in the same pass.
pub fn record(root: &HostRoot, nics: &dyn NicRead, options: &CaptureOptions) -> (Host, Archive) {
    let recording = root.recording();
    let host = read_host(&recording, nics);
    // Their files are stored with the others, so that two captures show the increase between them.
    let _ = read_counters(&recording, nics, &host);
    let answers = host
        .nics
        .iter()
        .map(|nic| (nic.name.clone(), NicAnswers::ask(nics, &nic.name)))
        .collect();
    let rdma = host
        .rdma
        .iter()
        .filter_map(|device| {
            let ports: Vec<u32> = device.ports.iter().map(|port| port.port).collect();
            let answers = ask_device(&recording, nics.rdma(), &device.name, &ports);
            let told = answers != RdmaAnswers::not_asked(&device.name, &ports);
            told.then(|| (device.name.clone(), answers))
        })
        .collect();
    let archive = Archive {
        version: options.version.clone(),
        pseudonyms: options.pseudonyms,
        tree: without_idle_lines(&recording.into_log().into_tree()),
        nics: CapturedNics(answers),
        rdma: CapturedRdma(rdma),
    };
    let archive = if options.pseudonyms {
        Pseudonyms::of(&archive).applied(archive)
    } else {
        archive
    };
    (host, archive)
}

/// The kernel's configuration has thousands of lines of which the readers use a handful, a node's `meminfo` and a
/// VLAN's counters change every second, and `/proc/cpuinfo` and PCI config space may contain a serial number. Most
/// entries of a GID table are empty.
fn without_idle_lines(tree: &Tree) -> Tree {
    let mut shorter = Tree::new(false);
    for (path, entry) in tree.iter() {
        let entry = match entry {
            Entry::File { text, .. } if gids::folder_of(path).is_some() && !gids::is_set(text) => {
                continue;
            }
            Entry::File { mode, text } => Entry::File {
                mode: *mode,
                text: used_text(path, text).into(),
            },
            Entry::Folder { mode, names } if path.ends_with("/gids") => Entry::Folder {
                mode: *mode,
                names: names
                    .iter()
                    .filter(|name| is_set_in(tree, path, name))
                    .cloned()
                    .collect(),
            },
            entry => entry.clone(),
        };
        shorter.put(path, entry);
    }
    shorter
}

/// The part of a file's text that the readers use.
fn used_text(path: &str, text: &str) -> String {
    if path == "proc/cpuinfo" {
        identity::used_cpuinfo_lines(text)
    } else if path.starts_with("sys/devices/system/node/") && path.ends_with("/meminfo") {
        nodes::used_memory_lines(text)
    } else if path.starts_with("boot/config-") {
        identity::used_config_lines(text)
    } else if path.starts_with("sys/devices/") && path.ends_with("/config") {
        match from_hex(text) {
            Some(space) => to_hex(&config_space::used_bytes(&space)),
            None => text.to_owned(),
        }
    } else if path.contains("/net/vlan/") {
        vlan::used_vlan_lines(text)
    } else {
        text.to_owned()
    }
}

/// Whether the GID called `name` in `folder` is stored. Of a table that the kernel reports in one answer, the unset ones
/// were not read.
fn is_set_in(tree: &Tree, folder: &str, name: &str) -> bool {
    let path = format!("{folder}/{name}");
    match tree.get(&path) {
        Some(Entry::File { text, .. }) => gids::folder_of(&path).is_none() || gids::is_set(text),
        Some(_) => true,
        None => gids::folder_of(&path).is_none(),
    }
}
