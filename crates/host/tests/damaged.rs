//! A whole host with files damaged in every possible way: reading it gives gaps, never a panic or an endless loop,
//! and the result can be checked in every role.

#![expect(
    clippy::disallowed_methods,
    reason = "a test reads its own environment"
)]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use common::made::{two_socket, virtual_machine};
use linerate_host::capture::{Archive, CaptureOptions, capture};
use linerate_host::nic_control::NicRead;
use linerate_host::read::read_host;
use linerate_host::root::HostRoot;
use linerate_host::watch::read_counters;
use linerate_model::ceiling::{Packets, ceilings_of_nic};
use linerate_model::finding::{Context, Profile};
use linerate_model::plan::End;
use linerate_model::rules::diagnose;
use linerate_model::units::Nanoseconds;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

const PROFILES: [Profile; 7] = [
    Profile::Throughput,
    Profile::Latency,
    Profile::Forwarding,
    Profile::Rdma,
    Profile::Storage,
    Profile::Mixed,
    Profile::Measurement,
];

/// The damage to one file, link or directory.
#[derive(Debug, Clone)]
enum Damage {
    Bytes(Vec<u8>),
    Text(String),
    Huge(&'static str),
    Gone,
    Denied,
    Folder,
    /// A link to itself.
    Circle,
    /// A link to its parent directory, so that a path can be followed forever.
    Above,
    /// A pipe without a writer.
    Pipe,
}

fn damage() -> impl Strategy<Value = Damage> {
    let huge = [
        "9",
        "9 ",
        "9\n",
        "0-1,",
        "a b c\n",
        "CPU0 ",
        "7: 1 1 x\n",
        "ff,",
    ];
    let word = "[0-9]{1,20}|-1|[a-z:=]{1,9}|0-4294967295|18446744073709551615";
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Damage::Bytes),
        vec(word, 0..12).prop_map(|words| Damage::Text(words.join(" "))),
        vec(word, 0..12).prop_map(|words| Damage::Text(words.join("\n"))),
        proptest::sample::select(huge.to_vec()).prop_map(Damage::Huge),
        Just(Damage::Gone),
        Just(Damage::Denied),
        Just(Damage::Folder),
        Just(Damage::Circle),
        Just(Damage::Above),
        Just(Damage::Pipe),
    ]
}

impl Damage {
    fn put(&self, path: &Path) {
        if let Self::Denied = self {
            if !path.is_symlink() && path.exists() {
                fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("its mode");
            }
            return;
        }
        let is_folder = path.is_dir() && !path.is_symlink();
        let removed = if is_folder {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        if removed.is_err() {
            return; // Its directory was damaged before.
        }
        let name = path.file_name().unwrap_or_default();
        match self {
            Self::Bytes(bytes) => fs::write(path, bytes),
            Self::Text(text) => fs::write(path, text),
            Self::Huge(piece) => fs::write(path, piece.repeat(300_000 / piece.len())),
            Self::Gone | Self::Denied => Ok(()),
            Self::Folder => fs::create_dir(path),
            Self::Circle => symlink(name, path),
            Self::Above => symlink("..", path),
            Self::Pipe => {
                mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).map_err(std::io::Error::from)
            }
        }
        .expect("a broken file");
    }
}

/// Everything below `folder`, sorted.
fn below(folder: &Path, all: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("one").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            below(&path, all);
        }
        all.push(path);
    }
}

fn read_and_judge(root: &HostRoot, nics: &dyn NicRead) {
    let host = read_host(root, nics);
    let before = read_counters(root, nics, &host);
    let watch = before.since(&before, Nanoseconds::from_millis(1000));
    for profile in PROFILES {
        let _ = diagnose(&Context {
            end: End::Local,
            host: &host,
            nic: None,
            other: Some(&host),
            sample: None,
            watch: Some(&watch),
            profile,
            owns_shapers: true,
        });
    }
    for nic in &host.nics {
        let packets = Packets {
            mtu: None,
            options_bytes: 12,
            ipv6: false,
            vlan_tags: 0,
            tunnel: None,
            outer_ipv6: false,
            flows: 1,
            datagram_bytes: None,
        };
        let _ = ceilings_of_nic(&host, nic, packets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_host_broken_in_any_places_is_read_judged_and_captured(
        is_machine in any::<bool>(),
        broken in vec((any::<prop::sample::Index>(), damage()), 1..40),
    ) {
        let made = if is_machine { two_socket(false) } else { virtual_machine() };
        let folder = tempfile::tempdir().expect("a folder");
        made.write(folder.path());
        let mut all = Vec::new();
        below(folder.path(), &mut all);
        for (place, damage) in &broken {
            damage.put(&all[place.index(all.len())]);
        }
        let root = HostRoot::open(folder.path()).expect("the folder itself is whole");
        read_and_judge(&root, &made.nics);
        let options = CaptureOptions { version: "0".to_owned(), pseudonyms: true };
        let text = capture(&root, &made.nics, &options).to_text();
        let archive = Archive::parse(text.as_bytes()).expect("our own text");
        let captured = archive.into_captured();
        read_and_judge(captured.root(), &captured);
    }
}
