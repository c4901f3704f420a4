//! One NIC on a synthetic host, and reading such a host twice: from a directory and from its own capture.

use std::collections::BTreeMap;

use linerate_host::capture::{CaptureOptions, record};
use linerate_host::nic_control::NicRead;
use linerate_host::read::read_host;
use linerate_host::root::HostRoot;
use linerate_model::build::assert_same;
use linerate_model::host::{
    Channels, Coalesce, Dispatch, Feature, Host, Napi, Nic, NicKind, Qdisc, Rings, Stack,
};
use linerate_model::ids::NicName;
use linerate_model::known::Known;

use super::made::Made;
use super::{FakeNics, nic};

/// A netlink reader with kinds and NAPI instances.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) others: FakeNics,
    pub(crate) kinds: Vec<(NicName, NicKind)>,
    pub(crate) napis: Vec<(NicName, Vec<Napi>)>,
    pub(crate) stacks: Vec<(NicName, Stack)>,
}

impl NicRead for Told {
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        let found = self.kinds.iter().find(|(own, _)| own == nic);
        found.map_or_else(|| self.others.kind(nic), |(_, kind)| Known::Value(*kind))
    }
    fn dispatch(&self, nic: &NicName) -> Dispatch {
        let napis = self.napis.iter().find(|(own, _)| own == nic);
        Dispatch {
            napis: napis.map_or_else(Known::default, |(_, napis)| Known::Value(napis.clone())),
            ..Dispatch::default()
        }
    }
    fn stack(&self, nic: &NicName) -> Stack {
        let stack = self.stacks.iter().find(|(own, _)| own == nic);
        stack.map_or_else(Stack::default, |(_, stack)| stack.clone())
    }
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        self.others.addresses(nic)
    }
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        self.others.features(nic)
    }
    fn rings(&self, nic: &NicName) -> Known<Rings> {
        self.others.rings(nic)
    }
    fn channels(&self, nic: &NicName) -> Known<Channels> {
        self.others.channels(nic)
    }
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        self.others.coalesce(nic)
    }
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        self.others.qdisc(nic)
    }
}

pub(crate) const BRIDGE: &str = "sys/devices/pci0000:80/0000:80:01.0";
pub(crate) const CARD: &str = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";

/// An interface at `real`, with the contents of some of its files.
pub(crate) fn interface(made: &mut Made, real: &str, files: &[(&str, &str)]) {
    let name = real.rsplit('/').next().expect("a name");
    made.link(
        &format!("sys/class/net/{name}"),
        &format!("../../{}", &real[4..]),
    )
    .file(&format!("{real}/type"), "1");
    for (file, text) in files {
        made.file(&format!("{real}/{file}"), *text);
    }
}

pub(crate) fn card(made: &mut Made, files: &[(&str, &str)]) {
    let real = format!("{CARD}/net/eth0");
    interface(made, &real, files);
    made.link(&format!("{real}/device"), "../../../0000:81:00.0");
}

/// The host as read from its directory, and as read from its capture: both must be equal.
pub(crate) fn read(made: &Made, nics: &dyn NicRead, binary: &[(String, Vec<u8>)]) -> Host {
    let folder = tempfile::tempdir().expect("a folder");
    made.write(folder.path());
    for (path, bytes) in binary {
        std::fs::write(folder.path().join(path), bytes).expect("a file");
    }
    let root = HostRoot::open(folder.path()).expect("the folder");
    let options = CaptureOptions {
        version: "0.1.0".to_owned(),
        pseudonyms: false,
    };
    let (host, archive) = record(&root, nics, &options);
    let captured = archive.into_captured();
    assert_same("replayed", &read_host(captured.root(), &captured), &host);
    host
}

pub(crate) fn the<'a>(host: &'a Host, name: &str) -> &'a Nic {
    host.nic(&nic(name)).expect("an interface")
}
