//! How interfaces stand on each other (rtnetlink; `/sys/class/net/*/bonding`, `bridge`;
//! `/proc/net/vlan`; Documentation/networking/bonding.rst, ipoib.rst, vxlan.rst).

use serde::{Deserialize, Serialize};

use crate::ids::NicName;
use crate::known::Known;
use crate::units::{BitRate, Bytes};

/// What an interface is among the others. What its kind does not have is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// The interfaces that stand on it.
    pub upper: Vec<NicName>,
    /// A bond's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// A team's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<Team>,
    /// Its part in a bond or team that stands on it.
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
    /// Largest super-packet it sends: IPv6 and others.
    pub gso_max_bytes: Known<Bytes>,
    /// Largest super-packet it sends: IPv4.
    pub gso_ipv4_max_bytes: Known<Bytes>,
    /// Largest super-packet it makes of what it receives.
    pub gro_max_bytes: Known<Bytes>,
    /// The same for IPv4.
    pub gro_ipv4_max_bytes: Known<Bytes>,
    /// Largest super-packet that its hardware segments.
    pub tso_max_bytes: Known<Bytes>,
    /// Length of its transmit queue in packets.
    pub tx_queue_len: Known<u32>,
    /// How an XDP program is attached: `none`, `native`, `generic`, `offloaded`.
    pub xdp: Known<String>,
    /// How many users asked for all packets.
    pub promiscuity: Known<u32>,
    /// Its virtual functions, as the host's administrator set them.
    pub virtual_functions: Known<Vec<VirtualFunction>>,
}

/// A bond.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bond {
    /// `802.3ad`, `active-backup`, `balance-xor` ...
    pub mode: Known<String>,
    /// `layer2`, `layer3+4`, `encap3+4` ...
    pub hash_policy: Known<String>,
    /// The active slave, of modes that have one.
    pub active_slave: Known<NicName>,
    /// How often the link is looked at, milliseconds.
    pub miimon_ms: Known<u32>,
    /// `slow` or `fast`.
    pub lacp_rate: Known<String>,
    /// The partner's address; all zero when no partner speaks LACP.
    pub partner_mac: Known<String>,
    /// The active aggregator.
    pub aggregator: Known<u32>,
    /// How many ports the active aggregator has.
    pub aggregator_ports: Known<u32>,
}

/// A team, as far as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Team {
    /// `activebackup`, `roundrobin`, `loadbalance` (also below teamd's LACP), `broadcast`, `random`.
    pub mode: Known<String>,
    /// The port that carries, of the mode that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_port: Option<Known<NicName>>,
}

/// One interface's part in a bond or team.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// How often its link failed.
    pub link_failures: Known<u64>,
}

/// A VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Vlan {
    /// Its number.
    pub id: Known<u32>,
    /// `802.1Q` or `802.1ad`.
    pub protocol: Known<String>,
    /// Socket priority to VLAN priority of what is sent.
    pub egress: Known<Vec<(u32, u32)>>,
    /// VLAN priority to socket priority of what is received.
    pub ingress: Known<Vec<(u32, u32)>>,
}

/// A tunnel end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tunnel {
    /// `vxlan`, `geneve`, `gre`, `ipip` ...
    pub kind: Known<String>,
    /// The network's number.
    pub id: Known<u32>,
    /// The UDP port it sends to.
    pub port: Known<u32>,
    /// Its own address.
    pub local: Known<String>,
    /// The far end's address.
    pub remote: Known<String>,
    /// The interface it sends by.
    pub link: Known<NicName>,
    /// Whether it puts a checksum on the outer UDP that it sends.
    pub udp_checksum: Known<bool>,
}

/// A bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bridge {
    /// Whether it runs the spanning tree protocol.
    pub stp: Known<bool>,
    /// Whether it filters VLANs.
    pub vlan_filtering: Known<bool>,
    /// Whether packets pass through netfilter's IP hooks (`nf_call_iptables` of this bridge or the host).
    pub calls_iptables: Known<bool>,
}

/// An interface whose far end is a program (`/dev/net/tun`): of a virtual machine, a VPN, a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tun {
    /// `tun` (packets) or `tap` (Ethernet frames).
    pub mode: Known<String>,
    /// The user who may open it without being the administrator of the network; `None` for nobody.
    pub owner: Known<Option<u32>>,
    /// The group that may; `None` for none.
    pub group: Known<Option<u32>>,
    /// Whether four bytes of flags and protocol stand before each packet.
    pub packet_information: Known<bool>,
    /// Whether a header of offloads stands before each packet: without it checksums and segments are
    /// made by the CPU.
    pub vnet_header: Known<bool>,
    /// Whether it outlives the program that made it.
    pub persistent: Known<bool>,
    /// Whether programs may open more than one queue of it.
    pub multi_queue: Known<bool>,
    /// How many queues are open now, of one with several; `None` for one that has a single queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<Known<u32>>,
}

/// One virtual function of an SR-IOV card (`IFLA_VF_INFO`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtualFunction {
    /// Its number.
    pub index: u32,
    /// Most that it may send; unknown for no limit.
    pub max_bit_per_s: Known<BitRate>,
    /// Least that it is given.
    pub min_bit_per_s: Known<BitRate>,
    /// `auto`, `enable`, `disable`.
    pub link_state: Known<String>,
    /// Whether its address is held.
    pub spoof_check: Known<bool>,
    /// Whether it may change its own settings.
    pub trusted: Known<bool>,
    /// Its VLAN; 0 is none.
    pub vlan: Known<u32>,
}
