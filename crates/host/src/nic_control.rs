//! The netlink settings of a network interface, as two traits: reading (a live kernel or a captured host) and writing
//! (a live kernel, or a fake with planned faults).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use linerate_model::host::{
    Card, Channels, Coalesce, Dcb, Dispatch, Eee, Feature, Fec, LinkModes, NicKind, Pause, Qdisc,
    QueueCoalesce, QueueKind, Rings, Routing, Rss, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::setting::numbers::link;
use linerate_model::setting::{
    Application, ClassRule, EthtoolRequest, LinkSpeed, StaticAddress, TrafficClasses, VlanLink,
};
use linerate_model::units::BitRate;
use serde::{Deserialize, Serialize};

use crate::rdma::{NoRdma, RdmaRead};

/// Why an interface has no VLAN egress map.
pub(crate) const NO_VLAN: &str = "not a VLAN interface";

/// Counters of one interface that are not in files, by their keys below `nic/NAME/`
/// ([`linerate_model::watch::Watch`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NicCounts {
    /// Each counter's value and its request.
    pub values: BTreeMap<String, (u64, String)>,
    /// Gaps, by the first part of the keys (`fec`, `driver`).
    pub gaps: BTreeMap<String, Gap>,
}

/// Reads data that is not in files. Groups that a reader does not support stay "not asked".
pub trait NicRead {
    /// Driver, firmware, health.
    fn card(&self, _nic: &NicName) -> Card {
        Card::default()
    }
    /// The port and the module in it.
    fn wire(&self, _nic: &NicName) -> Wire {
        Wire::default()
    }
    /// Its relations to other interfaces.
    fn stack(&self, _nic: &NicName) -> Stack {
        Stack::default()
    }
    /// RSS, NAPI and queue settings.
    fn dispatch(&self, _nic: &NicName) -> Dispatch {
        Dispatch::default()
    }
    /// Its qdiscs, traffic classes and DCB.
    fn shaping(&self, _nic: &NicName) -> Shaping {
        Shaping::default()
    }
    /// The reader of the same host's RDMA devices.
    fn rdma(&self) -> &dyn RdmaRead {
        &NoRdma
    }
    /// The number of nf_tables rules in this network namespace.
    fn nft_rules(&self) -> Known<u64> {
        Known::not_asked("netfilter/rules".to_owned())
    }
    /// Whether a table of linerate's own makes the kernel track connections in this network namespace.
    fn tracks_connections(&self) -> Known<bool> {
        Known::not_asked("netfilter/tables".to_owned())
    }
    /// Routes and nexthop groups of this network namespace, without the timers of neighbors.
    fn routing(&self) -> Routing {
        Routing::default()
    }
    /// Its counters.
    fn counts(&self, _nic: &NicName) -> NicCounts {
        NicCounts::default()
    }
    /// The link kind from rtnetlink (`IFLA_INFO_KIND`); unknown if there is none.
    fn kind(&self, nic: &NicName) -> Known<NicKind>;
    /// Addresses with prefix length, in the kernel's order.
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>>;
    /// Offload features by the kernel's own names.
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>>;
    /// Ring sizes.
    fn rings(&self, nic: &NicName) -> Known<Rings>;
    /// Queue counts.
    fn channels(&self, nic: &NicName) -> Known<Channels>;
    /// Interrupt coalescing.
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce>;
    /// The root qdisc.
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc>;
    /// The VLAN device of that name; none if there is no such interface.
    fn vlan_link(&self, nic: &NicName) -> Known<Option<VlanLink>> {
        Known::not_asked(format!("nic/{nic}/vlan/link"))
    }
    /// Whether it is administratively up.
    fn is_up(&self, nic: &NicName) -> Known<bool> {
        Known::not_asked(format!("nic/{nic}/up"))
    }
    /// Its static global addresses.
    fn static_addresses(&self, nic: &NicName) -> Known<Vec<StaticAddress>> {
        Known::not_asked(format!("nic/{nic}/addresses"))
    }
    /// Which packets linerate's own table sends to which class.
    fn class_rules(&self, nic: &NicName) -> Known<Vec<ClassRule>> {
        Known::not_asked(format!("nic/{nic}/class-rules"))
    }
    /// What could not be restored after the interface lost this; none if all could.
    fn lost_without(&self, _nic: &NicName, _what: Loss) -> Known<Option<String>> {
        Known::Value(None)
    }
    /// Link modes and speed, without the rest of [`Self::wire`].
    fn link_modes(&self, nic: &NicName) -> Known<LinkModes> {
        self.wire(nic).modes
    }
    /// Pause parameters, without the rest of [`Self::wire`].
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
    /// One 32-bit attribute of the link, without the rest of [`Self::stack`]; none if this reader has no links.
    fn link_number(&self, _nic: &NicName, _attribute: u16) -> Option<Known<u32>> {
        None
    }
    /// RSS, without the rest of [`Self::dispatch`].
    fn rss(&self, nic: &NicName) -> Known<Rss> {
        self.dispatch(nic).rss
    }
    /// The RSS hash key, which [`Self::dispatch`] does not read.
    fn rss_key(&self, nic: &NicName) -> Known<Vec<u8>> {
        Known::not_asked(format!("nic/{nic}/rss/key"))
    }
    /// The driver's private flags, without the rest.
    fn private_flags(&self, nic: &NicName) -> Known<BTreeMap<String, bool>> {
        self.dispatch(nic).private_flags
    }
    /// DCB, without the rest of [`Self::shaping`].
    fn dcb(&self, nic: &NicName) -> Known<Dcb> {
        self.shaping(nic).dcb
    }
    /// A VLAN's egress map, without the rest of [`Self::stack`].
    fn vlan_egress(&self, nic: &NicName) -> Known<Vec<(u32, u32)>> {
        self.stack(nic).vlan.map_or_else(
            || Known::unknown(Cause::Absent, format!("nic/{nic}/vlan"), NO_VLAN),
            |vlan| vlan.egress,
        )
    }
    /// The interrupt coalescing of one queue, without the rest.
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
    /// Whether the NIC splits headers from data, without the rest.
    fn tcp_data_split(&self, nic: &NicName) -> Known<String> {
        self.dispatch(nic).tcp_data_split
    }
}

/// The value of one netlink attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// One byte, 0 or 1.
    Switch(bool),
    /// 32 bits.
    Number(u32),
}

/// What an interface loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It is removed.
    Device,
    /// It goes down.
    Routes,
}

/// One interrupt coalescing parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moderation {
    /// `usecs`.
    Usecs(u32),
    /// `frames`.
    Frames(u32),
    /// Whether the delay is adaptive.
    Adaptive(bool),
}

/// One value of an interface that is set by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicValue<'a> {
    /// One attribute of an ethtool request, by its number ([`linerate_model::setting::numbers::ethtool`]).
    Ethtool(EthtoolRequest, u16, Scalar),
    /// One attribute of the link, by its number ([`linerate_model::setting::numbers::link`]).
    Link(u16, u32),
    /// One offload feature, by the kernel's name; an error if the result is not as requested.
    Feature(&'a str, bool),
    /// The root qdisc: exactly this one (same handle, same options). `noqueue` on a virtual device deletes the current
    /// one.
    Qdisc(&'a Qdisc),
    /// Whether the NIC splits headers from data: `on`, `off`, `auto`.
    TcpDataSplit(&'a str),
    /// Autonegotiation with the advertised modes, or a forced speed.
    LinkSpeed(LinkSpeed),
    /// The configured FEC modes, by the kernel's names; empty for `auto`.
    Fec(Vec<&'a str>),
    /// A private flag of the driver.
    PrivateFlag(&'a str, bool),
    /// The receive queues of the RSS indirection table, repeated to its size, and whether that is the kernel's
    /// default.
    RssTable(Vec<u32>, bool),
    /// The RSS hash key.
    RssKey(Vec<u8>),
    /// The hash fields of a flow type: `tcp4`, in ethtool(8) letters.
    RssFields(&'a str, &'a str),
    /// A coalescing parameter of one queue, in one direction.
    QueueModeration(QueueKind, u32, Moderation),
    /// A VLAN device, with this index if it is free; or none.
    VlanLink(Option<VlanLink>, Option<u32>),
    /// Whether it is administratively up.
    Up(bool),
    /// Its static global addresses.
    Addresses(Vec<StaticAddress>),
    /// Which packets go to which class of its root qdisc.
    ClassRules(Vec<ClassRule>),
    /// A VLAN's egress map: the PCP of each socket priority; 0 for those not named.
    VlanEgress(BTreeMap<u32, u32>),
    /// The priorities with PFC, as a bit mask.
    Pfc(u8),
    /// ETS: mapping and scheduling of traffic classes.
    Ets(TrafficClasses),
    /// The rate limit of each class; 0 is no limit.
    MaxRate([BitRate; 8]),
    /// The whole application priority table.
    Applications(BTreeSet<Application>),
}

/// Writes settings that are not in files. Errors contain the kernel's own explanation (extended ack) if there is one.
pub trait NicWrite: NicRead {
    /// Sets one value.
    fn set_value(&self, nic: &NicName, value: &NicValue<'_>) -> io::Result<()>;
    /// Adds or removes the table that makes the kernel track connections.
    fn track_connections(&self, _on: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Sets the MTU.
    fn set_mtu(&self, nic: &NicName, mtu: u32) -> io::Result<()> {
        self.set_value(nic, &NicValue::Link(link::MTU, mtu))
    }
    /// Sets one offload feature.
    fn set_feature(&self, nic: &NicName, feature: &str, on: bool) -> io::Result<()> {
        self.set_value(nic, &NicValue::Feature(feature, on))
    }
    /// Sets the root qdisc.
    fn set_qdisc(&self, nic: &NicName, qdisc: &Qdisc) -> io::Result<()> {
        self.set_value(nic, &NicValue::Qdisc(qdisc))
    }
}
