//! What netlink tells and sets about a network interface, as two seams: reading (a live kernel or a
//! captured host) and writing (a live kernel, or a fake with planned faults).

use std::collections::BTreeMap;
use std::io;

use linerate_model::host::{
    Card, Channels, Coalesce, Dispatch, Feature, NicKind, Qdisc, Rings, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Gap, Known};
use serde::{Deserialize, Serialize};

use crate::rdma::{NoRdma, RdmaRead};

/// Counters of one interface that have no file, by their keys below `nic/NAME/`
/// ([`linerate_model::watch::Watch`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NicCounts {
    /// Each counter's value and the request that it was read by.
    pub values: BTreeMap<String, (u64, String)>,
    /// What could not be read, by the first part of the keys (`fec`, `driver`).
    pub gaps: BTreeMap<String, Gap>,
}

/// Reads what has no file. The groups that a reader does not know stay "not asked".
pub trait NicRead {
    /// Driver, firmware, health.
    fn card(&self, _nic: &NicName) -> Card {
        Card::default()
    }
    /// The port and what is plugged into it.
    fn wire(&self, _nic: &NicName) -> Wire {
        Wire::default()
    }
    /// What it is among the other interfaces.
    fn stack(&self, _nic: &NicName) -> Stack {
        Stack::default()
    }
    /// How its packets are spread over queues and CPUs.
    fn dispatch(&self, _nic: &NicName) -> Dispatch {
        Dispatch::default()
    }
    /// What shapes its packets.
    fn shaping(&self, _nic: &NicName) -> Shaping {
        Shaping::default()
    }
    /// Who tells of the RDMA devices of the same host.
    fn rdma(&self) -> &dyn RdmaRead {
        &NoRdma
    }
    /// Its counters as they stand.
    fn counts(&self, _nic: &NicName) -> NicCounts {
        NicCounts::default()
    }
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
