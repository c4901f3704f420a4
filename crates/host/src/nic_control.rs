//! What netlink tells and sets about a network interface, as two seams: reading (a live kernel or a
//! captured host) and writing (a live kernel, or a fake with planned faults).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use linerate_model::host::{
    Card, Channels, Coalesce, Dcb, Dispatch, Eee, Feature, Fec, LinkModes, NicKind, Pause, Qdisc,
    QueueCoalesce, QueueKind, Rings, Rss, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::setting::{Application, LinkSpeed, TrafficClasses};
use linerate_model::units::BitRate;
use serde::{Deserialize, Serialize};

use crate::rdma::{NoRdma, RdmaRead};

/// Why an interface has no map of a VLAN's.
pub(crate) const NO_VLAN: &str = "not a VLAN interface";

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
    /// How many rules nf_tables has in this network namespace.
    fn nft_rules(&self) -> Known<u64> {
        Known::not_asked("netfilter/rules".to_owned())
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
    /// What the port offers and runs at, without the rest of [`Self::wire`].
    fn link_modes(&self, nic: &NicName) -> Known<LinkModes> {
        self.wire(nic).modes
    }
    /// Flow control, without the rest of [`Self::wire`].
    fn pause(&self, nic: &NicName) -> Known<Pause> {
        self.wire(nic).pause
    }
    /// Energy-efficient Ethernet, without the rest.
    fn eee(&self, nic: &NicName) -> Known<Eee> {
        self.wire(nic).eee
    }
    /// Forward error correction, without the rest.
    fn fec(&self, nic: &NicName) -> Known<Fec> {
        self.wire(nic).fec
    }
    /// How long a super-packet may be, bytes, without the rest of [`Self::stack`].
    fn super_packet(&self, nic: &NicName, which: SuperPacket) -> Known<u32> {
        let stack = self.stack(nic);
        let bytes = match which {
            SuperPacket::Gso => stack.gso_max_bytes,
            SuperPacket::GsoIpv4 => stack.gso_ipv4_max_bytes,
            SuperPacket::Gro => stack.gro_max_bytes,
            SuperPacket::GroIpv4 => stack.gro_ipv4_max_bytes,
        };
        // The kernel tells them as numbers of 32 bits.
        bytes.map(|bytes| u32::try_from(bytes.as_u64()).unwrap_or(u32::MAX))
    }
    /// Receive-side scaling, without the rest of [`Self::dispatch`].
    fn rss(&self, nic: &NicName) -> Known<Rss> {
        self.dispatch(nic).rss
    }
    /// The key of the receive hash, which [`Self::dispatch`] leaves where it is.
    fn rss_key(&self, nic: &NicName) -> Known<Vec<u8>> {
        Known::not_asked(format!("nic/{nic}/rss/key"))
    }
    /// The driver's own flags, without the rest.
    fn private_flags(&self, nic: &NicName) -> Known<BTreeMap<String, bool>> {
        self.dispatch(nic).private_flags
    }
    /// Data centre bridging, without the rest of [`Self::shaping`].
    fn dcb(&self, nic: &NicName) -> Known<Dcb> {
        self.shaping(nic).dcb
    }
    /// The priority in the tag that a VLAN sends each socket priority with, without the rest of [`Self::stack`].
    fn vlan_egress(&self, nic: &NicName) -> Known<Vec<(u32, u32)>> {
        self.stack(nic).vlan.map_or_else(
            || Known::unknown(Cause::Absent, format!("nic/{nic}/vlan"), NO_VLAN),
            |vlan| vlan.egress,
        )
    }
    /// Interrupt moderation of one queue, without the rest.
    fn queue_coalesce(&self, nic: &NicName, queue: u32) -> Known<QueueCoalesce> {
        self.dispatch(nic).queue_coalesce.and_then(|all| {
            let own = all.into_iter().find(|own| own.queue == queue);
            let path = || format!("nic/{nic}/queue-coalesce/{queue}");
            own.map_or_else(
                || Known::unknown(Cause::Absent, path(), "no such queue"),
                Known::Value,
            )
        })
    }
    /// Whether the card splits headers from data, without the rest.
    fn tcp_data_split(&self, nic: &NicName) -> Known<String> {
        self.dispatch(nic).tcp_data_split
    }
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

/// How long a super-packet may be that the kernel makes or takes apart (`IFLA_GSO_MAX_SIZE` and its like).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuperPacket {
    /// Sent, over IPv6 and others; up to 64 KiB also over IPv4.
    Gso,
    /// Sent over IPv4.
    GsoIpv4,
    /// Received, over IPv6; up to 64 KiB also over IPv4.
    Gro,
    /// Received over IPv4.
    GroIpv4,
}

/// When an interrupt comes: one of what there is to say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moderation {
    /// Its delay, microseconds.
    Usecs(u32),
    /// So many frames end the delay.
    Frames(u32),
    /// Whether the driver adapts the delay.
    Adaptive(bool),
}

/// One value of an interface that is set by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicValue<'a> {
    /// Whether the driver adapts the transmit delay.
    AdaptiveTx(bool),
    /// Whether the card splits headers from data: `on`, `off`, `auto`.
    TcpDataSplit(&'a str),
    /// Whether both ends agree on a speed.
    Autoneg(bool),
    /// How the port comes to its speed.
    LinkSpeed(LinkSpeed),
    /// Whether pauses are negotiated with the other end.
    PauseAutoneg(bool),
    /// Whether frames that ask for a pause are obeyed.
    PauseRx(bool),
    /// Whether such frames are sent.
    PauseTx(bool),
    /// Energy-efficient Ethernet.
    Eee(bool),
    /// The forward error corrections that may be used, by the kernel's names; none for the driver's choice.
    Fec(Vec<&'a str>),
    /// A flag of the driver's own.
    PrivateFlag(&'a str, bool),
    /// The longest super-packet, bytes.
    SuperPacket(SuperPacket, u32),
    /// The receive queues of the hash's table, as often as it takes, and whether that is the kernel's default.
    RssTable(Vec<u32>, bool),
    /// The key of the receive hash.
    RssKey(Vec<u8>),
    /// What of a kind of flow is hashed: `tcp4`, in the letters of ethtool(8).
    RssFields(&'a str, &'a str),
    /// So many frames of one direction end the delay of their interrupt.
    Frames(QueueKind, u32),
    /// When one queue's interrupt comes, in one direction.
    QueueModeration(QueueKind, u32, Moderation),
    /// The priority in the tag that a VLAN sends each socket priority with; 0 for those that are not named.
    VlanEgress(BTreeMap<u32, u32>),
    /// The priorities that are paused rather than dropped, a bit each.
    Pfc(u8),
    /// How traffic classes are chosen and served.
    Ets(TrafficClasses),
    /// The most that each class may send; 0 for no limit.
    MaxRate([BitRate; 8]),
    /// Which priority the packets of applications get, all of them.
    Applications(BTreeSet<Application>),
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
    /// Sets one value.
    fn set_value(&self, nic: &NicName, value: &NicValue<'_>) -> io::Result<()>;
}
