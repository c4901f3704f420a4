//! Relations between interfaces (rtnetlink; `/sys/class/net/*/bonding`, `bridge`; `/proc/net/vlan`;
//! Documentation/networking/bonding.rst, ipoib.rst, vxlan.rst).

use serde::{Deserialize, Serialize};

use crate::ids::NicName;
use crate::known::Known;
use crate::units::{BitRate, Bytes};

/// An interface's relations to others. What does not apply to its kind is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Stack {
    /// The upper interfaces.
    pub upper: Known<Vec<NicName>>,
    /// Settings of a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Settings of a team.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<Team>,
    /// Its role in a bond or team above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_port: Option<BondPort>,
    /// Settings of a VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// Settings of a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// Settings of a bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Bridge>,
    /// Of a port of a bridge: `forwarding`, `blocking`, `disabled` ... (the spanning tree protocol).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_port_state: Option<Known<String>>,
    /// Settings of a TUN or TAP interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tun: Option<Tun>,
    /// The mode of a macvlan or ipvlan: `bridge`, `private`, `l2` ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvlan_mode: Option<Known<String>>,
    /// `datagram` or `connected`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipoib_mode: Option<Known<String>>,
    /// Whether an IPoIB interface supports connected mode: the RC flag of its hardware address (RFC 4755, 3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipoib_connected: Option<Known<bool>>,
    /// The largest MTU its driver allows.
    pub mtu_max: Known<u32>,
    /// `gso_max_size`: the largest GSO packet, IPv6 and others.
    pub gso_max_bytes: Known<Bytes>,
    /// `gso_ipv4_max_size`: the largest GSO packet, IPv4.
    pub gso_ipv4_max_bytes: Known<Bytes>,
    /// `gro_max_size`: the largest GRO packet.
    pub gro_max_bytes: Known<Bytes>,
    /// `gro_ipv4_max_size`: the largest GRO packet, IPv4.
    pub gro_ipv4_max_bytes: Known<Bytes>,
    /// `tso_max_size`: the largest packet that its hardware segments.
    pub tso_max_bytes: Known<Bytes>,
    /// Length of its transmit queue in packets.
    pub tx_queue_len: Known<u32>,
    /// How an XDP program is attached: `none`, `native`, `generic`, `offloaded`.
    pub xdp: Known<String>,
    /// The number of users that enabled promiscuous mode.
    pub promiscuity: Known<u32>,
    /// Its VFs, as configured by the host's administrator.
    pub virtual_functions: Known<Vec<VirtualFunction>>,
}

/// A bond.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Bond {
    /// `802.3ad`, `active-backup`, `balance-xor` ...
    pub mode: Known<String>,
    /// `layer2`, `layer3+4`, `encap3+4` ...
    pub hash_policy: Known<String>,
    /// The active slave, in modes that have one.
    pub active_slave: Known<NicName>,
    /// The link monitoring interval (`miimon`), milliseconds.
    pub miimon_ms: Known<u32>,
    /// The interval of link monitoring by ARP (`arp_interval`), milliseconds; 0 without it.
    pub arp_interval_ms: Known<u32>,
    /// How the active aggregator is selected: `stable`, `bandwidth`, `count`.
    pub ad_select: Known<String>,
    /// `slow` or `fast`.
    pub lacp_rate: Known<String>,
    /// The partner's MAC address; all zero without an LACP partner.
    pub partner_mac: Known<String>,
    /// The active aggregator.
    pub aggregator: Known<u32>,
    /// The number of ports of the active aggregator.
    pub aggregator_ports: Known<u32>,
}

/// A team, as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Team {
    /// `activebackup`, `roundrobin`, `loadbalance` (also for teamd's LACP), `broadcast`, `random`.
    pub mode: Known<String>,
    /// The active port, in the mode that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_port: Option<Known<NicName>>,
}

/// An interface's role in a bond or team.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BondPort {
    /// The bond or team.
    pub bond: Known<NicName>,
    /// `active` or `backup`; for a team also `disabled`.
    pub state: Known<String>,
    /// `up`, `down`, `going down` ...
    pub mii_status: Known<String>,
    /// Its aggregator.
    pub aggregator: Known<u32>,
    /// Its link failure count.
    pub link_failures: Known<u64>,
}

/// A VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Vlan {
    /// Its VLAN ID.
    pub id: Known<u32>,
    /// `802.1Q` or `802.1ad`.
    pub protocol: Known<String>,
    /// Egress map: socket priority to VLAN priority.
    pub egress: Known<Vec<(u32, u32)>>,
    /// Ingress map: VLAN priority to socket priority.
    pub ingress: Known<Vec<(u32, u32)>>,
}

/// A tunnel end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tunnel {
    /// `vxlan`, `geneve`, `gre`, `ipip` ...
    pub kind: Known<String>,
    /// The network identifier (VNI or key).
    pub id: Known<u32>,
    /// The destination UDP port.
    pub port: Known<u32>,
    /// The local address.
    pub local: Known<String>,
    /// The remote address.
    pub remote: Known<String>,
    /// The underlying interface.
    pub link: Known<NicName>,
    /// Whether it computes the outer UDP checksum on transmit.
    pub udp_checksum: Known<bool>,
}

/// A bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Bridge {
    /// Whether it runs the spanning tree protocol.
    pub stp: Known<bool>,
    /// Whether it filters VLANs.
    pub vlan_filtering: Known<bool>,
    /// Whether packets pass netfilter's IP hooks (`nf_call_iptables` of this bridge or the host).
    pub calls_iptables: Known<bool>,
}

/// A TUN or TAP interface (`/dev/net/tun`) of a virtual machine, a VPN or a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tun {
    /// `tun` (packets) or `tap` (Ethernet frames).
    pub mode: Known<String>,
    /// The user who may open it without CAP_NET_ADMIN; null without an entry in `gaps` means none.
    pub owner: Known<Option<u32>>,
    /// The group that may open it; null without an entry in `gaps` means none.
    pub group: Known<Option<u32>>,
    /// Whether a header of four bytes with flags and protocol precedes each packet (`IFF_NO_PI` not set).
    pub packet_information: Known<bool>,
    /// Whether an offload header (vnet_hdr) precedes each packet: without it, the CPU computes checksums and segments
    /// packets.
    pub vnet_header: Known<bool>,
    /// Whether it is persistent (`TUNSETPERSIST`).
    pub persistent: Known<bool>,
    /// Whether programs may open more than one queue.
    pub multi_queue: Known<bool>,
    /// The number of open queues; only with several queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<Known<u32>>,
}

/// One virtual function of an SR-IOV card (`IFLA_VF_INFO`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VirtualFunction {
    /// Its number.
    pub index: u32,
    /// Maximum transmit rate; null for no limit.
    pub max_bit_per_s: Known<BitRate>,
    /// Minimum guaranteed rate.
    pub min_bit_per_s: Known<BitRate>,
    /// `auto`, `enable`, `disable`.
    pub link_state: Known<String>,
    /// Whether spoof checking of its address is on.
    pub spoof_check: Known<bool>,
    /// Whether it is trusted to change its own settings.
    pub trusted: Known<bool>,
    /// Its VLAN; 0 is none.
    pub vlan: Known<u32>,
}
