//! rtnetlink's notifications about links, addresses, neighbors, routes and nexthops, and the same messages as responses
//! (`rtnetlink(7)`, `<linux/rtnetlink.h>`, `<linux/if_link.h>`, `<linux/neighbour.h>`, `<linux/nexthop.h>`). Pure: what
//! the indexes of interfaces mean is the recorder's to know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_model::failover::events::HOPS_MAX;
use linerate_model::ids::NicName;

use super::error::Failure;
use super::kinds::{PORT_AGGREGATOR, PORT_MII_STATUS, PORT_STATE};
use super::link::{ADDRESS_HEADER_BYTES, LINK_HEADER_BYTES, parse_address};
use super::message::{Attributes, Message, u16_at, u32_at};
use super::response::byte;

/// `struct ndmsg`, `struct rtmsg`, `struct rtnexthop` and `struct nhmsg`.
const NEIGHBOR_HEADER_BYTES: usize = 12;
pub(super) const ROUTE_HEADER_BYTES: usize = 12;
const HOP_HEADER_BYTES: usize = 8;
const NEXTHOP_HEADER_BYTES: usize = 8;

/// `RTM_NEWNEXTHOP` ... of `<linux/rtnetlink.h>`.
const NEW_NEXTHOP: u16 = 104;
const DELETE_NEXTHOP: u16 = 105;
const NEW_BUCKET: u16 = 116;

/// `IFF_LOWER_UP` of `<linux/if.h>`: the carrier, for kernels that do not send `IFLA_CARRIER`.
const LOWER_UP: u32 = 1 << 16;
/// `IFF_UP`.
const UP: u32 = 1;
/// `IFLA_INFO_SLAVE_KIND`, `_DATA` of `<linux/if_link.h>`.
const INFO_SLAVE_KIND: u16 = 4;
const INFO_SLAVE_DATA: u16 = 5;
/// `IFLA_BOND_SLAVE_AD_ACTOR_OPER_PORT_STATE`, `_PARTNER_OPER_PORT_STATE`.
const PORT_ACTOR_STATE: u16 = 7;
const PORT_PARTNER_STATE: u16 = 8;
/// `IFLA_LINK`, `_MASTER`, `_OPERSTATE`, `_LINK_NETNSID`, `_CARRIER`.
const LOWER: u16 = 5;
const LOWER_NAMESPACE: u16 = 37;
const MASTER: u16 = 10;
const OPERSTATE: u16 = 16;
const CARRIER: u16 = 33;
/// `NDA_DST`, `NDA_LLADDR`.
const NEIGHBOR_ADDRESS: u16 = 1;
const NEIGHBOR_MAC: u16 = 2;
/// `RTA_DST`, `_OIF`, `_GATEWAY`, `_PRIORITY`, `_MULTIPATH`, `_TABLE`, `_VIA`, `_NH_ID`.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
const METRIC: u16 = 6;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;
const VIA: u16 = 18;
const NEXTHOP_ID: u16 = 30;
/// `RTM_F_CLONED`: an entry of a cache, no route.
const CLONED: u32 = 0x200;
/// `RTNH_F_DEAD | RTNH_F_LINKDOWN`.
const UNUSABLE: u8 = 1 | 16;
/// `RTN_UNICAST`, `RTN_BLACKHOLE`, `RTN_UNREACHABLE`, `RTN_PROHIBIT`: routes that decide where packets of others go.
const TYPES: [u8; 4] = [1, 6, 7, 8];
/// `NHA_ID`, `_GROUP`, `_GROUP_TYPE`, `_OIF`, `_GATEWAY`, `_RES_BUCKET`; `NHA_RES_BUCKET_INDEX`, `_NH_ID`.
const OBJECT_ID: u16 = 1;
const OBJECT_GROUP: u16 = 2;
const OBJECT_GROUP_TYPE: u16 = 3;
const OBJECT_INTERFACE: u16 = 5;
const OBJECT_GATEWAY: u16 = 6;
const OBJECT_BUCKET: u16 = 13;
const BUCKET_INDEX: u16 = 1;
const BUCKET_NEXTHOP: u16 = 3;
/// `NEXTHOP_GRP_TYPE_RES`; `struct nexthop_grp`.
const RESILIENT: u16 = 1;
const MEMBER_BYTES: usize = 8;

/// A change that the kernel reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notification {
    Link(LinkChange),
    Address {
        interface: u32,
        address: String,
        removed: bool,
    },
    Neighbor {
        interface: u32,
        address: IpAddr,
        /// `NUD_*`.
        state: u16,
        mac: Option<Vec<u8>>,
        removed: bool,
    },
    Route(RouteChange),
    NextHop {
        id: u32,
        hop: Option<HopIndex>,
        members: Vec<u32>,
        resilient: bool,
        removed: bool,
    },
    Bucket {
        group: u32,
        bucket: u16,
        next_hop: u32,
    },
}

/// The state of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkChange {
    pub(crate) interface: u32,
    /// None if linerate does not accept the name.
    pub(crate) name: Option<NicName>,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    /// `IF_OPER_*`.
    pub(crate) operstate: u8,
    pub(crate) removed: bool,
    /// The bond or team above it, or the bridge.
    pub(crate) master: Option<u32>,
    /// The interface below it, of a VLAN or macvlan; the other end of a veth pair.
    pub(crate) lower: Option<u32>,
    pub(crate) member: Option<MemberState>,
}

/// `IFLA_BOND_SLAVE_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberState {
    pub(crate) state: u8,
    pub(crate) mii_status: u8,
    pub(crate) aggregator: Option<u16>,
    pub(crate) actor: Option<u8>,
    pub(crate) partner: Option<u16>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteChange {
    /// The destination, all zero for the default route; its family is that of the route.
    pub(crate) destination: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) table: u32,
    pub(crate) protocol: u8,
    pub(crate) metric: Option<u32>,
    pub(crate) next_hop_id: Option<u32>,
    pub(crate) hops: Vec<HopIndex>,
    pub(crate) removed: bool,
}

/// A next hop, by the index of its interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HopIndex {
    pub(crate) interface: Option<u32>,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) dead: bool,
}

/// The change that a message reports; `None` if it is of another kind.
pub(super) fn parse(message: &Message<'_>) -> Result<Option<Notification>, Failure> {
    parse_body(message.kind, message.body)
}

/// The same of a message's type and body.
pub(super) fn parse_body(kind: u16, body: &[u8]) -> Result<Option<Notification>, Failure> {
    match kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => link(body, kind == libc::RTM_DELLINK),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => {
            if body.len() < ADDRESS_HEADER_BYTES {
                return Err(Failure::Malformed("an address is truncated"));
            }
            let parsed = parse_address(body)?;
            Ok(parsed.map(|(interface, address)| Notification::Address {
                interface,
                address,
                removed: kind == libc::RTM_DELADDR,
            }))
        }
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => neighbor(body, kind == libc::RTM_DELNEIGH),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            let parsed = route(body, kind == libc::RTM_DELROUTE)?;
            Ok(parsed.map(Notification::Route))
        }
        NEW_NEXTHOP | DELETE_NEXTHOP => object(body, kind == DELETE_NEXTHOP),
        NEW_BUCKET => bucket(body),
        _ => Ok(None),
    }
}

fn link(body: &[u8], removed: bool) -> Result<Option<Notification>, Failure> {
    let flags = u32_at(body, 8)?;
    // Ports of bridges are reported again, by another family.
    if i32::from(body[0]) != libc::AF_UNSPEC {
        return Ok(None);
    }
    let attributes = Attributes::after(body, LINK_HEADER_BYTES)?;
    let name = attributes.text(libc::IFLA_IFNAME)?;
    let info = attributes.nest(libc::IFLA_LINKINFO)?;
    let member = match info.text(INFO_SLAVE_KIND)?.as_deref() {
        Some("bond") => {
            let data = info.nest(INFO_SLAVE_DATA)?;
            Some(MemberState {
                state: byte(&data, PORT_STATE)?.unwrap_or(0),
                mii_status: byte(&data, PORT_MII_STATUS)?.unwrap_or(0),
                aggregator: data.u16(PORT_AGGREGATOR)?,
                actor: byte(&data, PORT_ACTOR_STATE)?,
                partner: data.u16(PORT_PARTNER_STATE)?,
            })
        }
        _ => None,
    };
    Ok(Some(Notification::Link(LinkChange {
        interface: u32_at(body, 4)?,
        name: name.and_then(|name| name.parse().ok()),
        up: flags & UP != 0,
        carrier: byte(&attributes, CARRIER)?.map_or(flags & LOWER_UP != 0, |carrier| carrier != 0),
        operstate: byte(&attributes, OPERSTATE)?.unwrap_or(0),
        removed,
        master: attributes.u32(MASTER)?,
        lower: attributes
            .u32(LOWER)?
            .filter(|_| !is_elsewhere(&attributes)),
        member,
    })))
}

/// Whether `IFLA_LINK` is an index of another network namespace.
fn is_elsewhere(attributes: &Attributes<'_>) -> bool {
    attributes.bytes(LOWER_NAMESPACE).is_some()
}

fn neighbor(body: &[u8], removed: bool) -> Result<Option<Notification>, Failure> {
    let (interface, state) = (u32_at(body, 4)?, u16_at(body, 8)?);
    let attributes = Attributes::after(body, NEIGHBOR_HEADER_BYTES)?;
    let address = attributes.bytes(NEIGHBOR_ADDRESS);
    let address = address.and_then(|bytes| address_of(body[0], bytes));
    let mac = attributes.bytes(NEIGHBOR_MAC);
    Ok(address.map(|address| Notification::Neighbor {
        interface,
        address,
        state,
        mac: mac.map(<[u8]>::to_vec),
        removed,
    }))
}

/// A route of a message; `None` for what is not one: entries of caches, and the host's own addresses.
pub(super) fn route(body: &[u8], removed: bool) -> Result<Option<RouteChange>, Failure> {
    let [family, prefix, _, _, table, protocol, _, kind] = *body
        .first_chunk()
        .ok_or(Failure::Malformed("a route is truncated"))?;
    let flags = u32_at(body, 8)?;
    let any: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    if flags & CLONED != 0 || !TYPES.contains(&kind) {
        return Ok(None);
    }
    let attributes = Attributes::after(body, ROUTE_HEADER_BYTES)?;
    let destination = match attributes.bytes(DESTINATION) {
        Some(bytes) => address_of(family, bytes).ok_or(Failure::Malformed(
            "a destination does not have the length of its family",
        ))?,
        None => any,
    };
    let mut hops = Vec::new();
    if let Some(list) = attributes.bytes(MULTIPATH) {
        hops = hops_of(family, list)?;
    } else if kind == TYPES[0] {
        let low = flags.to_ne_bytes();
        let flags = if cfg!(target_endian = "little") {
            low[0]
        } else {
            low[3]
        };
        hops.push(hop(family, &attributes, attributes.u32(INTERFACE)?, flags));
    }
    Ok(Some(RouteChange {
        destination,
        prefix,
        table: attributes.u32(TABLE)?.unwrap_or(u32::from(table)),
        protocol,
        metric: attributes.u32(METRIC)?,
        next_hop_id: attributes.u32(NEXTHOP_ID)?,
        hops,
        removed,
    }))
}

/// The one next hop of the answer to a request that names a flow.
pub(super) fn next_hop(body: &[u8]) -> Result<HopIndex, Failure> {
    let family = *body
        .first()
        .ok_or(Failure::Malformed("a route is truncated"))?;
    let attributes = Attributes::after(body, ROUTE_HEADER_BYTES)?;
    Ok(hop(family, &attributes, attributes.u32(INTERFACE)?, 0))
}

/// `RTA_MULTIPATH`: a `struct rtnexthop` and its attributes for each next hop.
fn hops_of(family: u8, mut list: &[u8]) -> Result<Vec<HopIndex>, Failure> {
    let mut hops = Vec::new();
    while list.len() >= HOP_HEADER_BYTES && hops.len() < HOPS_MAX {
        let length = usize::from(u16_at(list, 0)?);
        let own = list
            .get(HOP_HEADER_BYTES..length)
            .ok_or(Failure::Malformed("a next hop is truncated"))?;
        let attributes = Attributes::parse(own)?;
        hops.push(hop(family, &attributes, Some(u32_at(list, 4)?), list[2]));
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(hops)
}

fn hop(family: u8, attributes: &Attributes<'_>, interface: Option<u32>, flags: u8) -> HopIndex {
    let gateway = attributes.bytes(GATEWAY);
    let gateway = gateway.and_then(|bytes| address_of(family, bytes));
    // `struct rtvia`: a gateway of another family.
    let via = || {
        let via = attributes.bytes(VIA)?;
        let family = u16_at(via, 0).ok()?;
        address_of(u8::try_from(family).ok()?, via.get(2..)?)
    };
    HopIndex {
        interface,
        gateway: gateway.or_else(via),
        dead: flags & UNUSABLE != 0,
    }
}

fn object(body: &[u8], removed: bool) -> Result<Option<Notification>, Failure> {
    let flags = u32_at(body, 4)?;
    let attributes = Attributes::after(body, NEXTHOP_HEADER_BYTES)?;
    let Some(id) = attributes.u32(OBJECT_ID)? else {
        return Ok(None);
    };
    let group = attributes.bytes(OBJECT_GROUP);
    let members = group.map(|group| {
        let members = group.chunks_exact(MEMBER_BYTES).take(HOPS_MAX);
        members.map(|member| u32_at(member, 0)).collect()
    });
    let hop = group.is_none().then(|| {
        let interface = attributes.u32(OBJECT_INTERFACE);
        let gateway = attributes.bytes(OBJECT_GATEWAY);
        interface.map(|interface| HopIndex {
            interface,
            gateway: gateway.and_then(|bytes| address_of(body[0], bytes)),
            dead: flags & u32::from(UNUSABLE) != 0,
        })
    });
    Ok(Some(Notification::NextHop {
        id,
        hop: hop.transpose()?,
        members: members.transpose()?.unwrap_or_default(),
        resilient: attributes.u16(OBJECT_GROUP_TYPE)? == Some(RESILIENT),
        removed,
    }))
}

fn bucket(body: &[u8]) -> Result<Option<Notification>, Failure> {
    let attributes = Attributes::after(body, NEXTHOP_HEADER_BYTES)?;
    let own = attributes.nest(OBJECT_BUCKET)?;
    let all = (
        attributes.u32(OBJECT_ID)?,
        own.u16(BUCKET_INDEX)?,
        own.u32(BUCKET_NEXTHOP)?,
    );
    let (Some(group), Some(bucket), Some(next_hop)) = all else {
        return Ok(None);
    };
    Ok(Some(Notification::Bucket {
        group,
        bucket,
        next_hop,
    }))
}

/// An address of the family `family`, if it has its length.
fn address_of(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::message::Request;
    use super::*;

    #[test]
    fn the_numbers_are_the_headers() {
        let of = |file, ours: &[(&str, u16)]| crate::netlink::headers::compare(file, ours);
        of(
            "rtnetlink.h",
            &[
                ("RTM_NEWNEXTHOP", NEW_NEXTHOP),
                ("RTM_DELNEXTHOP", DELETE_NEXTHOP),
                ("RTM_NEWNEXTHOPBUCKET", NEW_BUCKET),
                ("RTA_DST", DESTINATION),
                ("RTA_OIF", INTERFACE),
                ("RTA_GATEWAY", GATEWAY),
                ("RTA_PRIORITY", METRIC),
                ("RTA_MULTIPATH", MULTIPATH),
                ("RTA_TABLE", TABLE),
                ("RTA_VIA", VIA),
                ("RTA_NH_ID", NEXTHOP_ID),
            ],
        );
        of(
            "nexthop.h",
            &[
                ("NHA_ID", OBJECT_ID),
                ("NHA_GROUP", OBJECT_GROUP),
                ("NHA_GROUP_TYPE", OBJECT_GROUP_TYPE),
                ("NHA_OIF", OBJECT_INTERFACE),
                ("NHA_GATEWAY", OBJECT_GATEWAY),
                ("NHA_RES_BUCKET", OBJECT_BUCKET),
                ("NHA_RES_BUCKET_INDEX", BUCKET_INDEX),
                ("NHA_RES_BUCKET_NH_ID", BUCKET_NEXTHOP),
            ],
        );
        of(
            "if_link.h",
            &[
                ("IFLA_LINK", LOWER),
                ("IFLA_LINK_NETNSID", LOWER_NAMESPACE),
                ("IFLA_MASTER", MASTER),
                ("IFLA_OPERSTATE", OPERSTATE),
                ("IFLA_CARRIER", CARRIER),
                ("IFLA_INFO_SLAVE_KIND", INFO_SLAVE_KIND),
                ("IFLA_INFO_SLAVE_DATA", INFO_SLAVE_DATA),
                ("IFLA_BOND_SLAVE_AD_ACTOR_OPER_PORT_STATE", PORT_ACTOR_STATE),
                (
                    "IFLA_BOND_SLAVE_AD_PARTNER_OPER_PORT_STATE",
                    PORT_PARTNER_STATE,
                ),
            ],
        );
        of(
            "neighbour.h",
            &[("NDA_DST", NEIGHBOR_ADDRESS), ("NDA_LLADDR", NEIGHBOR_MAC)],
        );
    }

    #[test]
    fn a_route_over_two_next_hops_is_read_with_both() {
        let header = [2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0];
        let mut request = Request::new(libc::RTM_NEWROUTE, &header);
        request.put(DESTINATION, &[10, 2, 0, 0]);
        let mut list = Vec::new();
        for (flags, last) in [(0u8, 1u8), (1, 2)] {
            list.extend(16u16.to_ne_bytes());
            list.extend([flags, 0]);
            list.extend(7u32.to_ne_bytes());
            list.extend(8u16.to_ne_bytes());
            list.extend(GATEWAY.to_ne_bytes());
            list.extend([10, 1, 0, last]);
        }
        request.put(MULTIPATH, &list);
        let body = request.into_body();
        let read = route(&body, false).expect("our own").expect("a route");
        assert_eq!(read.destination, IpAddr::from([10, 2, 0, 0]));
        assert_eq!((read.prefix, read.table, read.protocol), (24, 254, 186));
        let hops: Vec<_> = read
            .hops
            .iter()
            .map(|hop| (hop.gateway, hop.dead))
            .collect();
        let gateway = |last| Some(IpAddr::from([10, 1, 0, last]));
        assert_eq!(hops, [(gateway(1), false), (gateway(2), true)]);
        // A truncated list is no shorter list.
        assert!(hops_of(2, &list[..list.len() - 1]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(kind in 16u16..120, body in vec(any::<u8>(), 0..120)) {
            let _ = parse_body(kind, &body);
        }

        #[test]
        fn no_attributes_panic(kind in 16u16..120, header in vec(any::<u8>(), 8..20), all in vec((0u16..34, vec(any::<u8>(), 0..24)), 0..8)) {
            let mut request = Request::new(kind, &header);
            for (own, payload) in &all {
                request.put(*own, payload);
            }
            let body = request.into_body();
            for kind in [16, 20, 24, 28, 104, 116] {
                let _ = parse_body(kind, &body);
            }
        }
    }
}
