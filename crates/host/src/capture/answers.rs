//! The netlink data of each interface, which is not in files: stored in an archive beside the files.

use std::collections::BTreeMap;

use linerate_model::host::{
    Card, Channels, Coalesce, Dispatch, Feature, NicKind, Qdisc, Rings, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use serde::{Deserialize, Serialize};

use crate::nic_control::{NicCounts, NicRead};
use crate::rdma::{Node, RdmaAnswers, RdmaRead};

/// The results of a [`NicRead`] for one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicAnswers {
    /// [`NicRead::kind`].
    pub kind: Known<NicKind>,
    /// [`NicRead::addresses`].
    pub addresses: Known<Vec<String>>,
    /// [`NicRead::features`].
    pub features: Known<BTreeMap<String, Feature>>,
    /// [`NicRead::rings`].
    pub rings: Known<Rings>,
    /// [`NicRead::channels`].
    pub channels: Known<Channels>,
    /// [`NicRead::coalesce`].
    pub coalesce: Known<Coalesce>,
    /// [`NicRead::qdisc`].
    pub qdisc: Known<Qdisc>,
    /// [`NicRead::card`].
    #[serde(default)]
    pub card: Card,
    /// [`NicRead::wire`].
    #[serde(default)]
    pub wire: Wire,
    /// [`NicRead::stack`].
    #[serde(default)]
    pub stack: Stack,
    /// [`NicRead::dispatch`].
    #[serde(default)]
    pub dispatch: Dispatch,
    /// [`NicRead::shaping`].
    #[serde(default)]
    pub shaping: Shaping,
    /// [`NicRead::counts`].
    #[serde(default)]
    pub counts: NicCounts,
}

impl NicAnswers {
    /// Reads everything about `nic`.
    pub fn ask(nics: &dyn NicRead, nic: &NicName) -> Self {
        Self {
            kind: nics.kind(nic),
            addresses: nics.addresses(nic),
            features: nics.features(nic),
            rings: nics.rings(nic),
            channels: nics.channels(nic),
            coalesce: nics.coalesce(nic),
            qdisc: nics.qdisc(nic),
            card: nics.card(nic),
            wire: nics.wire(nic),
            stack: nics.stack(nic),
            dispatch: nics.dispatch(nic),
            shaping: nics.shaping(nic),
            counts: nics.counts(nic),
        }
    }

    /// The results for an interface whose netlink data were not captured.
    pub fn not_asked(nic: &NicName) -> Self {
        Self {
            kind: not_asked(nic, "kind"),
            addresses: not_asked(nic, "addresses"),
            features: not_asked(nic, "features"),
            rings: not_asked(nic, "rings"),
            channels: not_asked(nic, "channels"),
            coalesce: not_asked(nic, "coalesce"),
            qdisc: not_asked(nic, "qdisc"),
            card: Card::default(),
            wire: Wire::default(),
            stack: Stack::default(),
            dispatch: Dispatch::default(),
            shaping: Shaping::default(),
            counts: NicCounts::default(),
        }
    }
}

/// Captured results, by interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CapturedNics(pub(crate) BTreeMap<NicName, NicAnswers>);

/// Captured results, by RDMA device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CapturedRdma(pub(crate) BTreeMap<String, RdmaAnswers>);

impl RdmaRead for CapturedRdma {
    fn rdma_device(&self, name: &str, ports: &[u32], _node: &Known<Node>) -> RdmaAnswers {
        let answers = self.0.get(name).cloned();
        answers.unwrap_or_else(|| RdmaAnswers::not_asked(name, ports))
    }

    fn rdma_counts(&self, device: &str, port: u32) -> Known<BTreeMap<String, u64>> {
        let ports = self.0.get(device).map(|answers| &answers.ports);
        match ports.and_then(|ports| ports.get(&port)) {
            Some(port) => port.counts.clone(),
            None => Known::not_asked(format!("netlink/rdma/{device}/{port}/counters")),
        }
    }
}

impl CapturedNics {
    fn answer<T: Clone>(
        &self,
        nic: &NicName,
        what: &str,
        of: impl Fn(&NicAnswers) -> &Known<T>,
    ) -> Known<T> {
        self.0
            .get(nic)
            .map_or_else(|| not_asked(nic, what), |answers| of(answers).clone())
    }
}

impl CapturedNics {
    fn group<T: Clone + Default>(&self, nic: &NicName, of: impl Fn(&NicAnswers) -> &T) -> T {
        self.0
            .get(nic)
            .map_or_else(T::default, |answers| of(answers).clone())
    }
}

fn not_asked<T>(nic: &NicName, what: &str) -> Known<T> {
    Known::not_asked(format!("netlink: {what} of {nic}"))
}

impl NicRead for CapturedNics {
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        self.answer(nic, "kind", |a| &a.kind)
    }
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        self.answer(nic, "addresses", |a| &a.addresses)
    }
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        self.answer(nic, "features", |a| &a.features)
    }
    fn rings(&self, nic: &NicName) -> Known<Rings> {
        self.answer(nic, "rings", |a| &a.rings)
    }
    fn channels(&self, nic: &NicName) -> Known<Channels> {
        self.answer(nic, "channels", |a| &a.channels)
    }
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        self.answer(nic, "coalesce", |a| &a.coalesce)
    }
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        self.answer(nic, "qdisc", |a| &a.qdisc)
    }
    fn card(&self, nic: &NicName) -> Card {
        self.group(nic, |a| &a.card)
    }
    fn wire(&self, nic: &NicName) -> Wire {
        self.group(nic, |a| &a.wire)
    }
    fn stack(&self, nic: &NicName) -> Stack {
        self.group(nic, |a| &a.stack)
    }
    fn dispatch(&self, nic: &NicName) -> Dispatch {
        self.group(nic, |a| &a.dispatch)
    }
    fn shaping(&self, nic: &NicName) -> Shaping {
        self.group(nic, |a| &a.shaping)
    }
    fn counts(&self, nic: &NicName) -> NicCounts {
        self.group(nic, |a| &a.counts)
    }
}
