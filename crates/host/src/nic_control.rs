//! What netlink tells and sets about a network interface, as two seams: reading (a live kernel or a
//! captured host) and writing (a live kernel, or a fake with planned faults).

use std::collections::BTreeMap;
use std::io;

use linerate_model::host::{Channels, Coalesce, Feature, NicKind, Qdisc, Rings};
use linerate_model::ids::NicName;
use linerate_model::known::Known;

/// Reads what has no file: offload features, rings, channels, coalescing, qdisc, addresses, kind.
pub trait NicRead {
    /// The link kind that rtnetlink names (`IFLA_INFO_KIND`); unknown when it names none.
    fn kind(&self, nic: &NicName) -> Known<NicKind>;
    /// Addresses with prefix length, in the kernel's order.
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>>;
    /// Offload features by the kernel's own names.
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>>;
    /// Ring sizes.
    fn rings(&self, nic: &NicName) -> Known<Rings>;
    /// Queue counts.
    fn channels(&self, nic: &NicName) -> Known<Channels>;
    /// Interrupt moderation.
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce>;
    /// The root queueing discipline.
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc>;
}

/// A count in a netlink request that changes one of several: the others are left as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// Receive.
    pub rx: Option<u32>,
    /// Transmit.
    pub tx: Option<u32>,
    /// Combined (channels only).
    pub combined: Option<u32>,
}

/// Sets what has no file. Errors carry the kernel's own explanation (extended ack) when it gives one.
pub trait NicWrite: NicRead {
    /// Switches one offload feature; an error when the kernel did not do what was asked.
    fn set_feature(&self, nic: &NicName, feature: &str, on: bool) -> io::Result<()>;
    /// Sets ring sizes.
    fn set_rings(&self, nic: &NicName, rings: Pair) -> io::Result<()>;
    /// Sets queue counts.
    fn set_channels(&self, nic: &NicName, channels: Pair) -> io::Result<()>;
    /// Sets interrupt moderation.
    fn set_coalesce(
        &self,
        nic: &NicName,
        rx_usecs: Option<u32>,
        tx_usecs: Option<u32>,
        adaptive_rx: Option<bool>,
    ) -> io::Result<()>;
    /// Sets the MTU.
    fn set_mtu(&self, nic: &NicName, mtu: u32) -> io::Result<()>;
    /// Replaces the root queueing discipline by exactly this one (same handle, same options);
    /// `noqueue` on a virtual device deletes what is there.
    fn set_qdisc(&self, nic: &NicName, qdisc: &Qdisc) -> io::Result<()>;
}
