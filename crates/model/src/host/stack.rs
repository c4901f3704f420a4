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
    /// Its upper interfaces.
    pub upper: Vec<NicName>,
    /// A bond's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// A team's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<Team>,
    /// Its role in the bond or team above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_port: Option<BondPort>,
    /// A VLAN's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// A tunnel's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// A bridge's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Bridge>,
    /// A TUN or TAP interface's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tun: Option<Tun>,
    /// The mode of a macvlan or ipvlan: `bridge`, `private`, `l2` ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvlan_mode: Option<Known<String>>,
    /// `datagram` or `connected`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipoib_mode: Option<Known<String>>,
    /// The largest MTU its driver allows.
    pub mtu_max: Known<u32>,
    /// `gso_max_size`: the largest GSO packet, IPv6 and others.
    pub gso_max_bytes: Known<Bytes>,
    /// `gso_ipv4_max_size`: the largest GSO packet, IPv4.
    pub gso_ipv4_max_bytes: Known<Bytes>,
    /// `gro_max_size`: the largest GRO packet.
    pub gro_max_bytes: Known<Bytes>,
    /// `gro_ipv4_max_size`.
    pub gro_ipv4_max_bytes: Known<Bytes>,
    /// `tso_max_size`: the largest packet that its hardware segments.
    pub tso_max_bytes: Known<Bytes>,
    /// Length of its transmit queue in packets.
    pub tx_queue_len: Known<u32>,
    /// How an XDP program is attached: `none`, `native`, `generic`, `offloaded`.
    pub xdp: Known<String>,
    /// The count of promiscuous mode users.
    pub promiscuity: Known<u32>,
    /// Its virtual functions, as the host's administrator set them.
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
    /// The active slave, of modes that have one.
    pub active_slave: Known<NicName>,
    /// The link monitoring interval (`miimon`), milliseconds.
    pub miimon_ms: Known<u32>,
    /// `slow` or `fast`.
    pub lacp_rate: Known<String>,
    /// The partner's MAC address; all zero without an LACP partner.
    pub partner_mac: Known<String>,
    /// The active aggregator.
    pub aggregator: Known<u32>,
    /// How many ports the active aggregator has.
    pub aggregator_ports: Known<u32>,
}

/// A team, as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Team {
    /// `activebackup`, `roundrobin`, `loadbalance` (also below teamd's LACP), `broadcast`, `random`.
    pub mode: Known<String>,
    /// The active port, in modes that have one.
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
    /// `active` or `backup`; of a team also `disabled`.
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
    /// The owner, who may open it without CAP_NET_ADMIN; `None` if not set.
    pub owner: Known<Option<u32>>,
    /// The group that may; `None` if not set.
    pub group: Known<Option<u32>>,
    /// Whether packets have four bytes of flags and protocol in front (no `IFF_NO_PI`).
    pub packet_information: Known<bool>,
    /// Whether packets have a virtio_net header (`IFF_VNET_HDR`): without it the CPU does checksums and segmentation.
    pub vnet_header: Known<bool>,
    /// Whether it is persistent (`TUNSETPERSIST`).
    pub persistent: Known<bool>,
    /// Whether programs may open more than one queue.
    pub multi_queue: Known<bool>,
    /// The number of open queues of a multiqueue device; `None` for a single queue.
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
    /// The maximum transmit rate; unknown if there is no limit.
    pub max_bit_per_s: Known<BitRate>,
    /// The minimum transmit rate.
    pub min_bit_per_s: Known<BitRate>,
    /// `auto`, `enable`, `disable`.
    pub link_state: Known<String>,
    /// Whether spoof checking is on.
    pub spoof_check: Known<bool>,
    /// Whether it is trusted.
    pub trusted: Known<bool>,
    /// Its VLAN; 0 is none.
    pub vlan: Known<u32>,
}
