//! The kind-specific data of interfaces: the `IFLA_INFO_DATA` and `IFLA_INFO_SLAVE_DATA` of bonds, VLANs, tunnels,
//! bridges, macvlans, IPoIB, TUN and TAP (`<linux/if_link.h>`, `<linux/if_tunnel.h>`; named as in the kernel's
//! documents and sysfs: bonding.rst, ipoib.rst, vxlan.rst, ip-link(8)).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_model::host::{Bond, BondPort, Bridge, Tun, Tunnel, Vlan};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use super::error::Failure;
use super::response::{ResponseAttributes, numbers};

pub(super) const BOND_MODE: u16 = 1;
pub(super) const BOND_ACTIVE_SLAVE: u16 = 2;
pub(super) const BOND_MIIMON: u16 = 3;
pub(super) const BOND_ARP_INTERVAL: u16 = 7;
pub(super) const BOND_HASH_POLICY: u16 = 14;
pub(super) const BOND_LACP_RATE: u16 = 21;
pub(super) const BOND_AD_SELECT: u16 = 22;
pub(super) const BOND_AD_INFO: u16 = 23;
pub(super) const AD_INFO_AGGREGATOR: u16 = 1;
pub(super) const AD_INFO_PORTS: u16 = 2;
pub(super) const AD_INFO_PARTNER: u16 = 5;
pub(super) const PORT_STATE: u16 = 1;
pub(super) const PORT_MII_STATUS: u16 = 2;
pub(super) const PORT_LINK_FAILURES: u16 = 3;
pub(super) const PORT_AGGREGATOR: u16 = 6;

pub(super) const VLAN_ID: u16 = 1;
pub(super) const VLAN_EGRESS: u16 = 3;
pub(super) const VLAN_INGRESS: u16 = 4;
pub(super) const VLAN_PROTOCOL: u16 = 5;
pub(super) const VLAN_QOS_MAPPING: u16 = 1;

pub(super) const VXLAN_ID: u16 = 1;
pub(super) const VXLAN_GROUP: u16 = 2;
pub(super) const VXLAN_LINK: u16 = 3;
pub(super) const VXLAN_LOCAL: u16 = 4;
pub(super) const VXLAN_PORT: u16 = 15;
pub(super) const VXLAN_GROUP6: u16 = 16;
pub(super) const VXLAN_LOCAL6: u16 = 17;
pub(super) const VXLAN_UDP_CHECKSUM: u16 = 18;
pub(super) const VXLAN_UDP_ZERO_CHECKSUM6: u16 = 19;

pub(super) const GENEVE_ID: u16 = 1;
pub(super) const GENEVE_REMOTE: u16 = 2;
pub(super) const GENEVE_PORT: u16 = 5;
pub(super) const GENEVE_REMOTE6: u16 = 7;
pub(super) const GENEVE_UDP_CHECKSUM: u16 = 8;
pub(super) const GENEVE_UDP_ZERO_CHECKSUM6: u16 = 9;

pub(super) const GRE_LINK: u16 = 1;
pub(super) const GRE_OUT_FLAGS: u16 = 3;
pub(super) const GRE_OUT_KEY: u16 = 5;
pub(super) const GRE_LOCAL: u16 = 6;
pub(super) const GRE_REMOTE: u16 = 7;
pub(super) const GRE_ENCAP_TYPE: u16 = 14;
pub(super) const GRE_ENCAP_FLAGS: u16 = 15;
pub(super) const GRE_ENCAP_PORT: u16 = 17;
/// `GRE_KEY` of `<linux/if_tunnel.h>`: the tunnel has a key.
const GRE_KEY: u16 = 0x2000;

pub(super) const IP_LINK: u16 = 1;
pub(super) const IP_LOCAL: u16 = 2;
pub(super) const IP_REMOTE: u16 = 3;
pub(super) const IP_ENCAP_TYPE: u16 = 15;
pub(super) const IP_ENCAP_FLAGS: u16 = 16;
pub(super) const IP_ENCAP_PORT: u16 = 18;
/// `TUNNEL_ENCAP_FLAG_CSUM`: the outer UDP header has a checksum.
const ENCAP_FLAG_CHECKSUM: u16 = 1;

pub(super) const BRIDGE_STP: u16 = 5;
pub(super) const BRIDGE_VLAN_FILTERING: u16 = 7;
pub(super) const BRIDGE_CALLS_IPTABLES: u16 = 36;

pub(super) const MACVLAN_MODE: u16 = 1;
pub(super) const IPVLAN_MODE: u16 = 1;
pub(super) const IPOIB_MODE: u16 = 2;

pub(super) const TUN_OWNER: u16 = 1;
pub(super) const TUN_GROUP: u16 = 2;
pub(super) const TUN_TYPE: u16 = 3;
pub(super) const TUN_PACKET_INFORMATION: u16 = 4;
pub(super) const TUN_VNET_HEADER: u16 = 5;
pub(super) const TUN_PERSIST: u16 = 6;
pub(super) const TUN_MULTI_QUEUE: u16 = 7;
pub(super) const TUN_QUEUES: u16 = 8;

/// The names of the interfaces of this namespace, by index.
pub(super) type Names = BTreeMap<u32, NicName>;

/// The interface with an index; index 0 is none.
pub(super) fn named(
    said: &ResponseAttributes<'_>,
    names: &Names,
    index: Known<u32>,
    what: &str,
) -> Known<NicName> {
    index.and_then(|index| match (index, names.get(&index)) {
        (0, _) => said.missing(Cause::Absent, what, "none set"),
        (_, Some(name)) => Known::Value(name.clone()),
        (_, None) => {
            let why = format!("interface {index} is not in this network namespace");
            said.missing(Cause::NotSaid, what, &why)
        }
    })
}

pub(super) fn bond(data: &ResponseAttributes<'_>, names: &Names) -> Bond {
    const MODES: [&str; 7] = [
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    ];
    const POLICIES: [&str; 6] = [
        "layer2",
        "layer3+4",
        "layer2+3",
        "encap2+3",
        "encap3+4",
        "vlan+srcmac",
    ];
    let word = |kind, what: &str, words: &[&str]| data.word(data.u8(kind, what), what, words);
    let aggregate = data.nest(BOND_AD_INFO, "ad-info");
    let active = data.u32(BOND_ACTIVE_SLAVE, "active-slave");
    Bond {
        mode: word(BOND_MODE, "mode", &MODES),
        hash_policy: word(BOND_HASH_POLICY, "xmit-hash-policy", &POLICIES),
        active_slave: named(data, names, active, "active-slave"),
        miimon_ms: data.u32(BOND_MIIMON, "miimon"),
        arp_interval_ms: data.u32(BOND_ARP_INTERVAL, "arp-interval"),
        ad_select: word(
            BOND_AD_SELECT,
            "ad-select",
            &["stable", "bandwidth", "count"],
        ),
        lacp_rate: word(BOND_LACP_RATE, "lacp-rate", &["slow", "fast"]),
        partner_mac: aggregate.fact("partner-mac", |attributes| {
            attributes.bytes(AD_INFO_PARTNER).map(mac).transpose()
        }),
        aggregator: aggregate
            .u16(AD_INFO_AGGREGATOR, "aggregator")
            .map(u32::from),
        aggregator_ports: aggregate.u16(AD_INFO_PORTS, "ports").map(u32::from),
    }
}

pub(super) fn bond_port(data: &ResponseAttributes<'_>, bond: Known<NicName>) -> BondPort {
    const MII: [&str; 4] = ["up", "going down", "down", "going back"];
    let word = |kind, what: &str, words: &[&str]| data.word(data.u8(kind, what), what, words);
    BondPort {
        bond,
        state: word(PORT_STATE, "state", &["active", "backup"]),
        mii_status: word(PORT_MII_STATUS, "mii-status", &MII),
        aggregator: data.u16(PORT_AGGREGATOR, "aggregator").map(u32::from),
        link_failures: data.u32(PORT_LINK_FAILURES, "link-failures").map(u64::from),
    }
}

pub(super) fn vlan(data: &ResponseAttributes<'_>) -> Vlan {
    let protocol = data.u16_of_network(VLAN_PROTOCOL, "protocol");
    Vlan {
        id: data.u16(VLAN_ID, "id").map(u32::from),
        protocol: protocol.map(|number| match number {
            0x8100 => "802.1Q".to_owned(),
            0x88a8 => "802.1ad".to_owned(),
            other => format!("{other:#06x}"),
        }),
        egress: priorities(data, VLAN_EGRESS, "egress-qos"),
        ingress: priorities(data, VLAN_INGRESS, "ingress-qos"),
    }
}

/// A map of priorities; the kernel sends only entries that differ from the default, and nothing if none does.
fn priorities(data: &ResponseAttributes<'_>, kind: u16, what: &str) -> Known<Vec<(u32, u32)>> {
    data.fact(what, |attributes| {
        let nest = attributes.nest(kind)?;
        let pairs = nest.iter().filter(|(own, _)| *own == VLAN_QOS_MAPPING);
        pairs
            .map(|(_, pair)| numbers::<2>(pair).map(|[from, to]| (from, to)))
            .collect::<Result<_, _>>()
            .map(Some)
    })
}

/// A tunnel's settings by the name of its kind; `None` for a kind that is not a tunnel.
pub(super) fn tunnel(kind: &str, data: &ResponseAttributes<'_>, names: &Names) -> Option<Tunnel> {
    let mut tunnel = match kind {
        "vxlan" => vxlan(data, names),
        "geneve" => geneve(data),
        "gre" | "gretap" | "erspan" | "ip6gre" | "ip6gretap" | "ip6erspan" => gre(data, names),
        "ipip" | "sit" | "ip6tnl" => ip_in_ip(data, names),
        "bareudp" | "wireguard" | "gtp" | "vti" | "vti6" | "xfrm" => Tunnel::default(),
        _ => return None,
    };
    tunnel.kind = Known::Value(kind.to_owned());
    Some(tunnel)
}

fn vxlan(data: &ResponseAttributes<'_>, names: &Names) -> Tunnel {
    let over_6 = data.has(VXLAN_GROUP6) || data.has(VXLAN_LOCAL6);
    Tunnel {
        kind: Known::default(),
        id: data.u32(VXLAN_ID, "id"),
        port: data.u16_of_network(VXLAN_PORT, "port").map(u32::from),
        local: address(data, &[VXLAN_LOCAL, VXLAN_LOCAL6], "local"),
        remote: address(data, &[VXLAN_GROUP, VXLAN_GROUP6], "remote"),
        link: named(data, names, data.u32(VXLAN_LINK, "link"), "link"),
        udp_checksum: if over_6 {
            data.u8(VXLAN_UDP_ZERO_CHECKSUM6, "udp-zero-csum6-tx")
                .map(|off| off == 0)
        } else {
            data.u8(VXLAN_UDP_CHECKSUM, "udp-csum").map(|on| on != 0)
        },
    }
}

fn geneve(data: &ResponseAttributes<'_>) -> Tunnel {
    Tunnel {
        kind: Known::default(),
        id: data.u32(GENEVE_ID, "id"),
        port: data.u16_of_network(GENEVE_PORT, "port").map(u32::from),
        local: data.missing(Cause::Absent, "local", "the route chooses the address"),
        remote: address(data, &[GENEVE_REMOTE, GENEVE_REMOTE6], "remote"),
        link: data.missing(Cause::Absent, "link", "the route chooses the interface"),
        udp_checksum: if data.has(GENEVE_REMOTE6) {
            data.u8(GENEVE_UDP_ZERO_CHECKSUM6, "udp-zero-csum6-tx")
                .map(|off| off == 0)
        } else {
            data.u8(GENEVE_UDP_CHECKSUM, "udp-csum").map(|on| on != 0)
        },
    }
}

fn gre(data: &ResponseAttributes<'_>, names: &Names) -> Tunnel {
    let flags = data.u16_of_network(GRE_OUT_FLAGS, "oflags");
    let encap = [GRE_ENCAP_TYPE, GRE_ENCAP_PORT, GRE_ENCAP_FLAGS];
    let (port, udp_checksum) = encapsulation(data, encap);
    Tunnel {
        kind: Known::default(),
        id: if flags.get().is_some_and(|flags| flags & GRE_KEY == 0) {
            data.missing(Cause::Absent, "okey", "the tunnel has no key")
        } else {
            data.u32(GRE_OUT_KEY, "okey").map(u32::from_be)
        },
        port,
        local: address(data, &[GRE_LOCAL], "local"),
        remote: address(data, &[GRE_REMOTE], "remote"),
        link: named(data, names, data.u32(GRE_LINK, "link"), "link"),
        udp_checksum,
    }
}

fn ip_in_ip(data: &ResponseAttributes<'_>, names: &Names) -> Tunnel {
    let encap = [IP_ENCAP_TYPE, IP_ENCAP_PORT, IP_ENCAP_FLAGS];
    let (port, udp_checksum) = encapsulation(data, encap);
    Tunnel {
        kind: Known::default(),
        id: data.missing(Cause::Absent, "id", "tunnels of this type have no ID"),
        port,
        local: address(data, &[IP_LOCAL], "local"),
        remote: address(data, &[IP_REMOTE], "remote"),
        link: named(data, names, data.u32(IP_LINK, "link"), "link"),
        udp_checksum,
    }
}

/// The UDP encapsulation of a GRE or IP tunnel (foo-over-UDP): its port and its checksum.
fn encapsulation(
    data: &ResponseAttributes<'_>,
    [kind, port, flags]: [u16; 3],
) -> (Known<u32>, Known<bool>) {
    let wrapped = data.u16(kind, "encap-type");
    if wrapped.get().is_none_or(|kind| kind == 0) {
        let why = "the tunnel has no UDP encapsulation";
        return (
            data.missing(Cause::Absent, "port", why),
            data.missing(Cause::Absent, "udp-csum", why),
        );
    }
    (
        data.u16_of_network(port, "encap-dport").map(u32::from),
        data.u16(flags, "encap-flags")
            .map(|flags| flags & ENCAP_FLAG_CHECKSUM != 0),
    )
}

/// The first of `kinds` that is an address; all zero is "any", which counts as not set.
fn address(data: &ResponseAttributes<'_>, kinds: &[u16], what: &str) -> Known<String> {
    let said = data.fact(what, |attributes| {
        let first = kinds.iter().find_map(|kind| attributes.bytes(*kind));
        first.map(ip).transpose()
    });
    said.and_then(|text| match text.as_str() {
        "0.0.0.0" | "::" => data.missing(Cause::Absent, what, "any address"),
        _ => Known::Value(text),
    })
}

fn ip(bytes: &[u8]) -> Result<String, Failure> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Ok(Ipv4Addr::from(octets).to_string());
    }
    let octets = <[u8; 16]>::try_from(bytes)
        .map_err(|_| Failure::Malformed("an IP address has neither 4 nor 16 bytes"))?;
    Ok(Ipv6Addr::from(octets).to_string())
}

fn mac(bytes: &[u8]) -> Result<String, Failure> {
    let octets = <[u8; 6]>::try_from(bytes)
        .map_err(|_| Failure::Malformed("an Ethernet address does not have 6 bytes"))?;
    Ok(octets.map(|octet| format!("{octet:02x}")).join(":"))
}

pub(super) fn bridge(data: &ResponseAttributes<'_>) -> Bridge {
    let own = data.u8(BRIDGE_CALLS_IPTABLES, "nf-call-iptables");
    Bridge {
        stp: data.u32(BRIDGE_STP, "stp").map(|state| state != 0),
        vlan_filtering: data
            .u8(BRIDGE_VLAN_FILTERING, "vlan-filtering")
            .map(|on| on != 0),
        calls_iptables: own.and_then(|on| match on {
            0 => data.missing(
                Cause::NotAsked,
                "nf-call-iptables",
                "not per bridge: net.bridge.bridge-nf-call-iptables applies to all bridges",
            ),
            _ => Known::Value(true),
        }),
    }
}

/// The mode of a macvlan or ipvlan.
pub(super) fn macvlan_mode(kind: &str, data: &ResponseAttributes<'_>) -> Known<String> {
    if kind.starts_with("ipv") {
        let mode = data.u16(IPVLAN_MODE, "mode");
        let mode = mode.map(|mode| u8::try_from(mode).unwrap_or(u8::MAX));
        return data.word(mode, "mode", &["l2", "l3", "l3s"]);
    }
    // A bit each (`enum macvlan_mode`).
    data.u32(MACVLAN_MODE, "mode").and_then(|mode| {
        let words = ["private", "vepa", "bridge", "passthru", "source"];
        let bit = u8::try_from(mode.trailing_zeros()).unwrap_or(u8::MAX);
        data.word(Known::Value(bit), "mode", &words)
    })
}

/// The mode of an IPoIB interface.
pub(super) fn ipoib_mode(data: &ResponseAttributes<'_>) -> Known<String> {
    let mode = data.u16(IPOIB_MODE, "mode");
    let mode = mode.map(|mode| u8::try_from(mode).unwrap_or(u8::MAX));
    data.word(mode, "mode", &["datagram", "connected"])
}

/// Bit 0 of the flags that begin the hardware address of an IPoIB interface: it supports connected mode over RC (RFC 4755, 3.1).
/// The kernel sets it if its driver does (`ipoib_cm_dev_init`); enhanced IPoIB (mlx5) has datagram mode only.
const IPOIB_FLAG_RC: u8 = 0x80;

/// Whether an IPoIB interface supports connected mode.
pub(super) fn ipoib_connected(said: &ResponseAttributes<'_>) -> Known<bool> {
    said.fact("address", |attributes| {
        let address = attributes.bytes(libc::IFLA_ADDRESS);
        Ok(address.and_then(|bytes| Some(bytes.first()? & IPOIB_FLAG_RC != 0)))
    })
}

/// A TUN or TAP interface, whose data exist since Linux 4.17.
pub(super) fn tun(data: &ResponseAttributes<'_>) -> Tun {
    let flag = |kind, what: &str| data.u8(kind, what).map(|on| on != 0);
    let mode = data.u8(TUN_TYPE, "type");
    // The kernel sends owner and group only if they are set.
    let who = |kind, what: &str| {
        mode.clone()
            .and_then(|_| data.fact(what, |attributes| Ok(Some(attributes.u32(kind)?))))
    };
    let multi_queue = flag(TUN_MULTI_QUEUE, "multi-queue");
    Tun {
        owner: who(TUN_OWNER, "owner"),
        group: who(TUN_GROUP, "group"),
        packet_information: flag(TUN_PACKET_INFORMATION, "pi"),
        vnet_header: flag(TUN_VNET_HEADER, "vnet-hdr"),
        persistent: flag(TUN_PERSIST, "persist"),
        queues: (multi_queue.get() != Some(false)).then(|| data.u32(TUN_QUEUES, "num-queues")),
        multi_queue,
        mode: data.word(mode, "type", &["", "tun", "tap"]),
    }
}
