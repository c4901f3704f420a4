//! Captured hosts: one host's files and netlink answers in one reviewable text, and reading it back
//! by the same readers as a live host.
//!
//! What is captured is what the readers ask for and nothing else: a capture is one reading with every
//! answer written down, refusals included.

mod answers;
mod archive;
mod error;
mod open;
mod parser;
mod pseudonym;
pub(crate) mod record;
mod tarball;
pub(crate) mod tree;

pub use answers::NicAnswers;
pub use archive::Archive;
pub use error::CaptureError;
use linerate_model::host::Host;
pub use open::Captured;

use crate::nic_control::NicRead;
use crate::procfs::identity;
use crate::read::read_host;
use crate::root::HostRoot;
use crate::sysfs::nodes;
use answers::CapturedNics;
use pseudonym::Pseudonyms;
use tree::{Entry, Tree};

/// How a host is captured.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// The version of linerate, for the archive's head.
    pub version: String,
    /// Whether addresses, the host's name and everything else that tells whose machine it is is
    /// replaced by pseudonyms: equal ones for equal things, so that relations survive.
    pub pseudonyms: bool,
}

/// Captures a host.
pub fn capture(root: &HostRoot, nics: &dyn NicRead, options: &CaptureOptions) -> Archive {
    record(root, nics, options).1
}

/// Captures a host and gives what was read of it in the same pass.
pub fn record(root: &HostRoot, nics: &dyn NicRead, options: &CaptureOptions) -> (Host, Archive) {
    let recording = root.recording();
    let host = read_host(&recording, nics);
    let answers = host
        .nics
        .iter()
        .map(|nic| (nic.name.clone(), NicAnswers::ask(nics, &nic.name)))
        .collect();
    let archive = Archive {
        version: options.version.clone(),
        pseudonyms: options.pseudonyms,
        tree: without_idle_lines(&recording.into_log().into_tree()),
        nics: CapturedNics(answers),
    };
    let archive = if options.pseudonyms {
        Pseudonyms::of(&archive).applied(archive)
    } else {
        archive
    };
    (host, archive)
}

/// The kernel's configuration has thousands of lines of which the readers use a handful, a node's
/// `meminfo` moves from one second to the next, and `/proc/cpuinfo` may hold a serial number.
fn without_idle_lines(tree: &Tree) -> Tree {
    let mut shorter = tree.clone();
    for (path, entry) in tree.iter() {
        let Entry::File { mode, text } = entry else {
            continue;
        };
        let text = match path.as_str() {
            "proc/cpuinfo" => identity::used_cpuinfo_lines(text),
            path if path.starts_with("sys/devices/system/node/") && path.ends_with("/meminfo") => {
                nodes::used_memory_lines(text)
            }
            path if path.starts_with("boot/config-") => identity::used_config_lines(text),
            _ => continue,
        };
        shorter.put(path, Entry::File { mode: *mode, text });
    }
    shorter
}
