//! The captured hosts under `fixtures/hosts`, and how a test changes one line of one of them.

use std::fs;
use std::path::PathBuf;

use linerate_host::capture::{Archive, NicAnswers};
use linerate_host::read::read_host;
use linerate_model::host::Host;
use linerate_model::ids::NicName;

/// Hosts with nothing wrong: no profile may find more than a note on them.
pub(crate) const HEALTHY: [&str; 10] = [
    "two-socket-healthy",
    "veth-pair-far",
    "veth-pair-near",
    "vm-bond-backup",
    "vm-bridge-vxlan",
    "vm-router",
    "vm-two-cpus",
    "vm-two-nodes-igb",
    "vm-virtio",
    "vm-vlan-roce",
];

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The path of a fixture's archive.
pub(crate) fn place(name: &str) -> PathBuf {
    repository(&format!("fixtures/hosts/{name}.lrcap"))
}

/// The names of all fixtures, by name.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(repository("fixtures/hosts"))
        .expect("the folder of fixtures")
        .filter_map(|entry| {
            let name = entry.expect("an entry").file_name().into_string().ok()?;
            name.strip_suffix(".lrcap").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// The archives of real machines.
pub(crate) fn corpus() -> Vec<PathBuf> {
    let found = std::env::var_os("LINERATE_CORPUS")
        .map(PathBuf::from)
        .into_iter()
        .chain(["../shared/corpus", "../../shared/corpus"].map(repository))
        .map(|folder| folder.join("hosts"))
        .find(|folder| folder.is_dir());
    let Some(folder) = found else {
        eprintln!("SKIP: no corpus of real machines: set LINERATE_CORPUS to its folder");
        return Vec::new();
    };
    let mut hosts: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    hosts.sort();
    hosts
}

/// The archive of a fixture.
pub(crate) fn archive(name: &str) -> Archive {
    let text = fs::read(place(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    Archive::parse(text.as_slice()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// An archive as the program reads it.
pub(crate) fn host(archive: Archive) -> Host {
    let captured = archive.into_captured();
    read_host(captured.root(), &captured)
}

/// One line that is other than it was captured.
#[derive(Clone, Copy)]
pub(crate) enum Edit {
    /// A file's text; `None` takes the file away.
    File(&'static str, Option<&'static str>),
    /// The netlink answers about one interface.
    Nic(&'static str, fn(&mut NicAnswers)),
}

impl Edit {
    /// `archive` with this line changed.
    pub(crate) fn applied(self, archive: Archive) -> Archive {
        match self {
            Self::File(path, text) => archive.edited(path, text),
            Self::Nic(nic, change) => {
                let nic: NicName = nic.parse().expect("a case names an interface well");
                let mut answers = archive.nic(&nic).expect("a captured interface").clone();
                change(&mut answers);
                archive.with_nic(nic, answers)
            }
        }
    }
}

#[test]
fn every_captured_host_comes_with_a_page_that_says_where_it_is_from() {
    let names = names();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let page = repository(&format!("fixtures/hosts/{name}.md"));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.starts_with(&format!("# {name}\n")), "{name}");
    }
}

#[test]
fn a_real_machines_capture_tells_nothing_of_whose_it_is() {
    for name in ["veth-pair-far", "veth-pair-near", "vm-two-cpus"] {
        let text = fs::read_to_string(place(name)).expect("the archive");
        assert!(text.contains("\npseudonyms yes\n"), "{name}");
        let host = host(archive(name));
        let said = |known: &linerate_model::known::Known<String>| {
            known.value().cloned().unwrap_or_default()
        };
        assert!(said(&host.identity.hostname).starts_with("host-"), "{name}");
        let boot_id = said(&host.identity.boot_id);
        assert!(
            boot_id.starts_with("00000000-0000-4000-8"),
            "{name}: {boot_id}"
        );
        let release = said(&host.identity.kernel_release);
        let is_plain = release.chars().all(|c| c.is_ascii_digit() || c == '.');
        assert!(is_plain, "{name}: {release} names who built the kernel");
        for word in said(&host.identity.command_line).split_whitespace() {
            let key = word.split('=').next().unwrap_or_default();
            assert!(
                ["mitigations", "quiet", "panic"].contains(&key),
                "{name}: {word}"
            );
        }
    }
}
