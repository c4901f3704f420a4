//! The routes that decide over redundancy, and nexthop groups, of a network namespace (`rtnetlink(7)`,
//! `<linux/nexthop.h>`), with the link-layer addresses of their gateways.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linerate_model::host::{GroupMember, NexthopGroup, ResilientGroup, Route, RouteHop, Routing};
use linerate_model::ids::NicName;
use linerate_model::known::Known;

use super::error::Failure;
use super::known;
use super::link;
use super::message::{Attributes, Request};
use super::names::{mac_text, protocol_name};
use super::notification::{HopIndex, Notification, RouteChange, parse_body, route};
use super::socket::Connection;

/// `struct rtmsg`, `struct ndmsg` and `struct nhmsg`: zero for everything.
const ROUTE_HEADER: [u8; 12] = [0; 12];
const NEIGHBOR_HEADER: [u8; 12] = [0; 12];
const NEXTHOP_HEADER: [u8; 8] = [0; 8];
/// `RTM_GETNEXTHOP` of `<linux/rtnetlink.h>`.
const GET_NEXTHOP: u16 = 106;
/// `NHA_RES_GROUP` and its attributes; the timers are in `clock_t`, hundredths of a second (`USER_HZ`).
const RESILIENT: u16 = 12;
const BUCKETS: u16 = 1;
const IDLE_TIMER: u16 = 2;
const UNBALANCED_TIMER: u16 = 3;
const UNBALANCED_TIME: u16 = 4;
const CLOCK_MS: u64 = 10;
/// `NUD_FAILED` and `NUD_INCOMPLETE`: an entry without an answer.
const UNANSWERED: u16 = 0x20 | 0x01;

/// A nexthop object, and the table of a resilient group.
struct Object {
    hop: Option<HopIndex>,
    members: Vec<u32>,
    resilient: Option<ResilientGroup>,
}

/// What the numbers of the kernel's messages stand for.
struct Names {
    nics: BTreeMap<u32, NicName>,
    macs: BTreeMap<(u32, IpAddr), String>,
}

/// Reads both; what the kernel does not answer is a gap.
pub(super) fn read(connection: &mut Connection) -> Routing {
    const NO_ROUTES: &str = "the kernel does not list routes";
    const NO_OBJECTS: &str = "this kernel has no nexthop objects (Linux 5.3 or later)";
    let path = |what| format!("netlink/route/{what}");
    let names = known(names(connection), path("links"), NO_ROUTES);
    let objects = known(objects(connection), path("nexthops"), NO_OBJECTS);
    let names = match names {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            return Routing {
                routes: Known::Unknown(gap.clone()),
                groups: Known::Unknown(gap),
                neighbor_timers: Vec::new(),
            };
        }
    };
    let routes = routes(connection, &names, objects.value());
    Routing {
        routes: known(routes, path("routes"), NO_ROUTES),
        groups: objects.map(|objects| groups(&names, &objects)),
        neighbor_timers: Vec::new(),
    }
}

fn names(connection: &mut Connection) -> Result<Names, Failure> {
    let nics = link::identities(connection)?;
    let neighbors = connection.dump(&Request::new(libc::RTM_GETNEIGH, &NEIGHBOR_HEADER))?;
    let mut macs = BTreeMap::new();
    for answer in neighbors {
        if let Some(Notification::Neighbor {
            interface,
            address,
            state,
            mac: Some(mac),
            ..
        }) = parse_body(answer.kind, &answer.body)?
            && state & UNANSWERED == 0
        {
            macs.insert((interface, address), mac_text(&mac));
        }
    }
    Ok(Names {
        nics: nics.into_iter().map(|nic| (nic.index, nic.name)).collect(),
        macs,
    })
}

impl Names {
    fn hop(&self, hop: &HopIndex) -> RouteHop {
        let of = |address: IpAddr| Some(self.macs.get(&(hop.interface?, address))?.clone());
        RouteHop {
            nic: hop
                .interface
                .and_then(|index| self.nics.get(&index).cloned()),
            gateway: hop.gateway,
            mac: hop.gateway.and_then(of),
            is_dead: hop.dead,
        }
    }
}

fn objects(connection: &mut Connection) -> Result<BTreeMap<u32, Object>, Failure> {
    let mut all = BTreeMap::new();
    for answer in connection.dump(&Request::new(GET_NEXTHOP, &NEXTHOP_HEADER))? {
        if let Some(Notification::NextHop {
            id, hop, members, ..
        }) = parse_body(answer.kind, &answer.body)?
        {
            let resilient = table(&answer.body)?;
            let object = Object {
                hop,
                members,
                resilient,
            };
            all.insert(id, object);
        }
    }
    Ok(all)
}

/// The table of a resilient group; none of another nexthop.
fn table(body: &[u8]) -> Result<Option<ResilientGroup>, Failure> {
    let attributes = Attributes::after(body, NEXTHOP_HEADER.len())?;
    if attributes.bytes(RESILIENT).is_none() {
        return Ok(None);
    }
    let table = attributes.nest(RESILIENT)?;
    let timer = |attribute| -> Result<u64, Failure> {
        Ok(u64::from(table.u32(attribute)?.unwrap_or(0)) * CLOCK_MS)
    };
    Ok(Some(ResilientGroup {
        buckets: table.u16(BUCKETS)?.unwrap_or(0).into(),
        idle_timer_ms: timer(IDLE_TIMER)?,
        unbalanced_timer_ms: timer(UNBALANCED_TIMER)?,
        unbalanced_ms: table.u64(UNBALANCED_TIME)?.unwrap_or(0) * CLOCK_MS,
    }))
}

fn groups(names: &Names, objects: &BTreeMap<u32, Object>) -> Vec<NexthopGroup> {
    let all = objects
        .iter()
        .filter(|(_, object)| !object.members.is_empty());
    all.map(|(id, object)| NexthopGroup {
        id: *id,
        members: members(names, objects, object),
        resilient: object.resilient,
    })
    .collect()
}

fn members(names: &Names, objects: &BTreeMap<u32, Object>, group: &Object) -> Vec<GroupMember> {
    let hop = |id: &u32| objects.get(id)?.hop.as_ref().map(|hop| names.hop(hop));
    group
        .members
        .iter()
        .map(|id| GroupMember {
            id: *id,
            hop: hop(id).unwrap_or_default(),
        })
        .collect()
}

/// The default routes of the main table and those with several next hops.
fn routes(
    connection: &mut Connection,
    names: &Names,
    objects: Option<&BTreeMap<u32, Object>>,
) -> Result<Vec<Route>, Failure> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut header = ROUTE_HEADER;
        header[0] = u8::try_from(family).expect("a byte (socket.h)");
        for answer in connection.dump(&Request::new(libc::RTM_GETROUTE, &header))? {
            if let Some(own) = route(&answer.body, false)?
                && own.table == u32::from(libc::RT_TABLE_MAIN)
            {
                all.extend(of_interest(&own, names, objects));
            }
        }
    }
    Ok(all)
}

fn of_interest(
    own: &RouteChange,
    names: &Names,
    objects: Option<&BTreeMap<u32, Object>>,
) -> Option<Route> {
    let mut hops: Vec<RouteHop> = own.hops.iter().map(|hop| names.hop(hop)).collect();
    // Without `nexthop_compat_mode` a route has only the id of its nexthop.
    let object = own
        .next_hop_id
        .and_then(|id| objects?.get(&id).zip(objects));
    if let Some((group, objects)) = object
        && hops.len() < group.members.len()
    {
        let members = members(names, objects, group);
        hops = members.into_iter().map(|member| member.hop).collect();
    }
    (own.prefix == 0 || hops.len() >= 2).then(|| Route {
        destination: format!("{}/{}", own.destination, own.prefix),
        protocol: protocol_name(own.protocol),
        metric: own.metric,
        nexthop: own.next_hop_id,
        hops,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_headers() {
        let ours = [
            ("NHA_RES_GROUP", RESILIENT),
            ("NHA_RES_GROUP_BUCKETS", BUCKETS),
            ("NHA_RES_GROUP_IDLE_TIMER", IDLE_TIMER),
            ("NHA_RES_GROUP_UNBALANCED_TIMER", UNBALANCED_TIMER),
            ("NHA_RES_GROUP_UNBALANCED_TIME", UNBALANCED_TIME),
        ];
        crate::netlink::headers::compare("nexthop.h", &ours);
        crate::netlink::headers::compare("rtnetlink.h", &[("RTM_GETNEXTHOP", GET_NEXTHOP)]);
    }

    #[test]
    fn the_timers_of_a_resilient_group_are_in_hundredths_of_a_second() {
        let mut table = Request::new(0, &[]);
        table.put(BUCKETS, &32u16.to_ne_bytes());
        table.put_u32(IDLE_TIMER, 12_000);
        table.put_u32(UNBALANCED_TIMER, 0);
        let mut request = Request::new(GET_NEXTHOP, &NEXTHOP_HEADER);
        request.put(RESILIENT, &table.into_body());
        let read = super::table(&request.into_body()).expect("our own");
        let read = read.expect("a resilient group");
        assert_eq!((read.buckets, read.idle_timer_ms), (32, 120_000));
        assert_eq!((read.unbalanced_timer_ms, read.unbalanced_ms), (0, 0));
        let plain = Request::new(GET_NEXTHOP, &NEXTHOP_HEADER).into_body();
        assert_eq!(super::table(&plain).expect("our own"), None);
    }

    #[test]
    fn only_default_routes_and_those_with_several_next_hops_are_kept() {
        let names = Names {
            nics: BTreeMap::from([(7, "eth0".parse().expect("a name"))]),
            macs: BTreeMap::from([(
                (7, IpAddr::from([10, 0, 0, 1])),
                "00:00:5e:00:01:33".to_owned(),
            )]),
        };
        let hop = |last| HopIndex {
            interface: Some(7),
            gateway: Some(IpAddr::from([10, 0, 0, last])),
            dead: false,
        };
        let mut own = RouteChange {
            destination: IpAddr::from([10, 9, 0, 0]),
            prefix: 16,
            table: 254,
            protocol: 4,
            metric: None,
            next_hop_id: None,
            hops: vec![hop(1)],
            removed: false,
        };
        assert_eq!(of_interest(&own, &names, None), None);
        own.prefix = 0;
        let kept = of_interest(&own, &names, None).expect("a default route");
        assert_eq!(kept.hops[0].mac.as_deref(), Some("00:00:5e:00:01:33"));
        assert_eq!(kept.protocol, "static");
        own.prefix = 16;
        own.hops.push(hop(2));
        assert_eq!(of_interest(&own, &names, None).expect("kept").hops.len(), 2);
    }

    #[test]
    fn a_route_with_an_id_only_has_the_hops_of_its_group() {
        let names = Names {
            nics: BTreeMap::new(),
            macs: BTreeMap::new(),
        };
        let object = |members: Vec<u32>| Object {
            hop: members.is_empty().then_some(HopIndex {
                interface: Some(1),
                gateway: None,
                dead: false,
            }),
            members,
            resilient: None,
        };
        let objects = BTreeMap::from([
            (1, object(Vec::new())),
            (2, object(Vec::new())),
            (10, object(vec![1, 2])),
        ]);
        let own = RouteChange {
            destination: IpAddr::from([10, 9, 0, 0]),
            prefix: 16,
            table: 254,
            protocol: 4,
            metric: None,
            next_hop_id: Some(10),
            hops: Vec::new(),
            removed: false,
        };
        let kept = of_interest(&own, &names, Some(&objects)).expect("two next hops");
        assert_eq!(kept.hops.len(), 2);
        assert_eq!(groups(&names, &objects)[0].members.len(), 2);
    }
}
