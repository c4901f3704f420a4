//! Shared by the tests of captured hosts: the corpus, a fake netlink reader, and synthetic hosts.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod cards;
pub(crate) mod made;

use std::collections::BTreeMap;
use std::path::PathBuf;

use linerate_host::capture::NicAnswers;
use linerate_host::nic_control::NicRead;
use linerate_model::host::{Channels, Coalesce, Feature, NicKind, Qdisc, Rings};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

/// A file or folder of the corpus of real machines, which is not part of the repository.
pub(crate) fn corpus(name: &str) -> Option<PathBuf> {
    let crate_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let beside = ["../../../shared/corpus", "../../../../shared/corpus"];
    let found = std::env::var_os("LINERATE_CORPUS")
        .map(PathBuf::from)
        .into_iter()
        .chain(beside.iter().map(|path| crate_folder.join(path)))
        .map(|folder| folder.join(name))
        .find(|path| path.exists());
    if found.is_none() {
        skip(&format!(
            "no {name}: set LINERATE_CORPUS to the folder of the corpus"
        ));
    }
    found
}

/// Prints on stderr that a test cannot run here.
#[expect(clippy::print_stderr, reason = "a skip is said, never passed over")]
pub(crate) fn skip(reason: &str) {
    eprintln!("SKIP: {reason}");
}

/// A netlink reader that returns the given data, and reports everything else as absent.
#[derive(Debug, Default)]
pub(crate) struct FakeNics(pub(crate) BTreeMap<NicName, NicAnswers>);

impl FakeNics {
    fn answer<T: Clone>(&self, nic: &NicName, of: impl Fn(&NicAnswers) -> &Known<T>) -> Known<T> {
        match self.0.get(nic) {
            Some(answers) => of(answers).clone(),
            None => Known::unknown(Cause::Absent, format!("netlink: {nic}"), "not offered"),
        }
    }
}

impl NicRead for FakeNics {
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        self.answer(nic, |a| &a.kind)
    }
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        self.answer(nic, |a| &a.addresses)
    }
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        self.answer(nic, |a| &a.features)
    }
    fn rings(&self, nic: &NicName) -> Known<Rings> {
        self.answer(nic, |a| &a.rings)
    }
    fn channels(&self, nic: &NicName) -> Known<Channels> {
        self.answer(nic, |a| &a.channels)
    }
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        self.answer(nic, |a| &a.coalesce)
    }
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        self.answer(nic, |a| &a.qdisc)
    }
}

pub(crate) fn nic(name: &str) -> NicName {
    name.parse().expect("a name of an interface")
}
