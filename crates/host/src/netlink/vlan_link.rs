//! VLAN devices over rtnetlink (`<linux/if_link.h>`, `<linux/if_vlan.h>`, ip-link(8)): created, removed, and what would be
//! lost with one.

use linerate_model::ids::NicName;
use linerate_model::setting::{FLAGS_DEFAULT, FLAGS_KNOWN, VlanLink};

use super::error::Failure;
use super::link::{self, LINK_HEADER_BYTES};
use super::message::{Attributes, CREATE, EXCLUSIVE, Request, u16_at, u32_at};
use super::qdisc_entry::Entry;
use super::socket::Connection;
use super::{kinds, static_addresses};

const VLAN: &str = "vlan";
/// `IFLA_VLAN_FLAGS`: `struct ifla_vlan_flags`.
const VLAN_FLAGS: u16 = 2;
/// `ETH_P_8021AD`.
const SERVICE: u16 = 0x88a8;
/// `IFLA_IFALIAS`, `IFLA_LINK_NETNSID`, `IFLA_PROP_LIST`.
const ALIAS: u16 = 20;
const LINK_NETNSID: u16 = 37;
const OTHER_NAMES: u16 = 52;
/// `TC_H_INGRESS`: the parent of `ingress` and `clsact`.
const INGRESS: u32 = 0xffff_fff1;
/// `RTPROT_KERNEL` and `RTPROT_RA`: routes that the kernel adds.
const OF_KERNEL: u8 = 2;
const OF_ROUTER: u8 = 9;
/// `NUD_PERMANENT`; `NTF_SELF` and others have no effect here.
const PERMANENT_NEIGHBOR: u16 = 0x80;
/// `struct ndmsg`.
const NEIGHBOR_HEADER_BYTES: usize = 12;
/// `struct rtmsg`.
const ROUTE_HEADER_BYTES: usize = 12;

/// The VLAN device called `nic`; none if there is no such interface.
pub(super) fn read(
    connection: &mut Connection,
    nic: &NicName,
) -> Result<Option<VlanLink>, Failure> {
    let answer = match link::ask(connection, nic, |_| ()) {
        Err(Failure::Kernel { errno, .. }) if errno == libc::ENODEV => return Ok(None),
        answer => answer?,
    };
    let Some((parent, link)) = parse(&answer)? else {
        return Err(Failure::NotA("VLAN device"));
    };
    let all = link::identities(connection)?;
    let parent = all.into_iter().find(|one| one.index == parent);
    let parent = parent.ok_or(Failure::NotA("VLAN device of this network namespace"))?;
    Ok(Some(VlanLink {
        parent: parent.name,
        ..link
    }))
}

/// The index of the parent and the device, whose parent is a placeholder; none of another kind.
fn parse(body: &[u8]) -> Result<Option<(u32, VlanLink)>, Failure> {
    let attributes = Attributes::after(body, LINK_HEADER_BYTES)?;
    let info = attributes.nest(libc::IFLA_LINKINFO)?;
    if info.text(libc::IFLA_INFO_KIND)?.as_deref() != Some(VLAN) {
        return Ok(None);
    }
    let data = info.nest(libc::IFLA_INFO_DATA)?;
    let short = |kind| data.bytes(kind).map(|bytes| u16_at(bytes, 0)).transpose();
    let flags = data.bytes(VLAN_FLAGS).map(|bytes| u32_at(bytes, 0));
    let name = attributes.text(libc::IFLA_IFNAME)?.unwrap_or_default();
    let own = name
        .parse()
        .map_err(|_| Failure::Malformed("an interface's name"))?;
    let parent = attributes.u32(libc::IFLA_LINK)?;
    let is_elsewhere = attributes.bytes(LINK_NETNSID).is_some();
    Ok(Some((
        parent.filter(|_| !is_elsewhere).unwrap_or(0),
        VlanLink {
            parent: own,
            id: short(kinds::VLAN_ID)?.unwrap_or(0),
            is_service: short(kinds::VLAN_PROTOCOL)?.map(u16::from_be) == Some(SERVICE),
            flags: flags.transpose()?.unwrap_or(FLAGS_DEFAULT),
        },
    )))
}

/// Creates the device, with the index `index` if that is free, or removes it.
pub(super) fn set(
    connection: &mut Connection,
    nic: &NicName,
    wanted: Option<&VlanLink>,
    index: Option<u32>,
) -> Result<(), Failure> {
    let now = read(connection, nic)?;
    if now.as_ref() == wanted {
        return Ok(());
    }
    if now.is_some() {
        remove(connection, nic)?;
    }
    let Some(wanted) = wanted else {
        return Ok(());
    };
    let all = link::identities(connection)?;
    let free = index.filter(|index| all.iter().all(|one| one.index != *index));
    let parent = link::read(connection, &wanted.parent)?.index;
    match connection.ask(&new_link(nic, wanted, parent, free.unwrap_or(0))) {
        // `rtnl_newlink`, without the kind.
        Err(Failure::Kernel { errno, .. }) if errno == libc::EOPNOTSUPP => Err(Failure::NoVlan),
        done => done.map(drop),
    }
}

fn new_link(nic: &NicName, wanted: &VlanLink, parent: u32, index: u32) -> Request {
    let mut request = Request::new(libc::RTM_NEWLINK, &link::link_header(index, 0, 0))
        .with_flags(CREATE | EXCLUSIVE);
    request.put_text(libc::IFLA_IFNAME, nic.as_str());
    request.put_u32(libc::IFLA_LINK, parent);
    request.nest(libc::IFLA_LINKINFO, |info| {
        info.put_text(libc::IFLA_INFO_KIND, VLAN);
        info.nest(libc::IFLA_INFO_DATA, |data| {
            data.put(kinds::VLAN_ID, &wanted.id.to_ne_bytes());
            if wanted.is_service {
                data.put(kinds::VLAN_PROTOCOL, &SERVICE.to_be_bytes());
            }
            if wanted.flags != FLAGS_DEFAULT {
                let flags = [wanted.flags, FLAGS_KNOWN].map(u32::to_ne_bytes);
                data.put(VLAN_FLAGS, &flags.concat());
            }
        });
    });
    request
}

/// Removes the device, unless others would go with it.
fn remove(connection: &mut Connection, nic: &NicName) -> Result<(), Failure> {
    let index = link::read(connection, nic)?.index;
    let stacked = stacked_on(connection, nic, index)?;
    if let Some(why) = stacked {
        return Err(Failure::NotRestorable(why));
    }
    let request = Request::new(libc::RTM_DELLINK, &link::link_header(index, 0, 0));
    connection.ask(&request).map(drop)
}

/// The interfaces that go with it, or that it belongs to.
fn stacked_on(
    connection: &mut Connection,
    nic: &NicName,
    index: u32,
) -> Result<Option<String>, Failure> {
    let list = Request::new(libc::RTM_GETLINK, &link::link_header(0, 0, 0));
    for answer in connection.dump(&list)? {
        let attributes = Attributes::after(&answer.body, LINK_HEADER_BYTES)?;
        let name = attributes.text(libc::IFLA_IFNAME)?.unwrap_or_default();
        let is_own = u32_at(&answer.body, 4)? == index;
        let master = attributes.u32(libc::IFLA_MASTER)?;
        if is_own && master.is_some() {
            return Ok(Some(format!("{nic} is a port of another interface")));
        }
        let below = [attributes.u32(libc::IFLA_LINK)?, master];
        let is_here = attributes.bytes(LINK_NETNSID).is_none();
        if !is_own && is_here && below.contains(&Some(index)) {
            return Ok(Some(format!("{name} is on {nic}")));
        }
    }
    Ok(None)
}

/// What could not be restored if the device were removed; none if all could.
pub(super) fn lost_with(
    connection: &mut Connection,
    nic: &NicName,
) -> Result<Option<String>, Failure> {
    let own = link::ask(connection, nic, |_| ())?;
    let index = u32_at(&own, 4)?;
    if let Some(why) = stacked_on(connection, nic, index)? {
        return Ok(Some(why));
    }
    if let Some(why) = own_state(connection, nic, &own)? {
        return Ok(Some(why));
    }
    for address in static_addresses::all(connection, nic, index)? {
        let text = &address.address;
        if address.is_dynamic || (address.is_static && address.flags != 0) {
            return Ok(Some(format!("{nic} has the dynamic address {text}")));
        }
    }
    let qdiscs = connection.dump(&Request::new(
        libc::RTM_GETQDISC,
        &super::qdisc::header(index, 0, 0),
    ))?;
    for answer in qdiscs {
        let entry = Entry::parse(&answer.body)?;
        if entry.interface == index && entry.parent == INGRESS {
            return Ok(Some(format!("{nic} has the qdisc `{}`", entry.kind)));
        }
    }
    let neighbors = connection.dump(&Request::new(
        libc::RTM_GETNEIGH,
        &[0; NEIGHBOR_HEADER_BYTES],
    ))?;
    for answer in neighbors {
        let is_own = u32_at(&answer.body, 4)? == index;
        if is_own && u16_at(&answer.body, 8)? & PERMANENT_NEIGHBOR != 0 {
            return Ok(Some(format!("{nic} has permanent neighbor entries")));
        }
    }
    lost_routes(connection, nic)
}

/// What the device has itself that a new one would not have.
fn own_state(
    connection: &mut Connection,
    nic: &NicName,
    own: &[u8],
) -> Result<Option<String>, Failure> {
    let attributes = Attributes::after(own, LINK_HEADER_BYTES)?;
    let info = attributes.nest(libc::IFLA_LINKINFO)?;
    let data = info.nest(libc::IFLA_INFO_DATA)?;
    for (is_there, what) in [
        (data.bytes(kinds::VLAN_INGRESS).is_some(), "an ingress map"),
        (attributes.bytes(ALIAS).is_some(), "an alias"),
        (attributes.bytes(OTHER_NAMES).is_some(), "alternative names"),
    ] {
        if is_there {
            return Ok(Some(format!("{nic} has {what}")));
        }
    }
    let parent = attributes.u32(libc::IFLA_LINK)?;
    let all = connection.dump(&Request::new(
        libc::RTM_GETLINK,
        &link::link_header(0, 0, 0),
    ))?;
    for answer in all {
        if Some(u32_at(&answer.body, 4)?) == parent {
            let below = Attributes::after(&answer.body, LINK_HEADER_BYTES)?;
            let mac = |of: &Attributes<'_>| of.bytes(libc::IFLA_ADDRESS).map(<[u8]>::to_vec);
            if mac(&below) != mac(&attributes) {
                return Ok(Some(format!(
                    "{nic} has another MAC address than its parent"
                )));
            }
        }
    }
    Ok(None)
}

/// The routes over `nic` that the kernel does not add by itself: they are lost when it goes down.
pub(super) fn lost_routes(
    connection: &mut Connection,
    nic: &NicName,
) -> Result<Option<String>, Failure> {
    let index = link::read(connection, nic)?.index;
    let routes = connection.dump(&Request::new(libc::RTM_GETROUTE, &[0; ROUTE_HEADER_BYTES]))?;
    for answer in routes {
        let [family, _, _, _, _, protocol, ..] = answer.body[..] else {
            return Err(Failure::Malformed("a route is truncated"));
        };
        let attributes = Attributes::after(&answer.body, ROUTE_HEADER_BYTES)?;
        let is_own = attributes.u32(libc::RTA_OIF)? == Some(index)
            || attributes
                .bytes(libc::RTA_MULTIPATH)
                .is_some_and(|hops| is_hop(hops, index));
        if is_own && ![OF_KERNEL, OF_ROUTER].contains(&protocol) {
            let version = if i32::from(family) == libc::AF_INET6 {
                6
            } else {
                4
            };
            return Ok(Some(format!(
                "{nic} has IPv{version} routes besides those of its addresses"
            )));
        }
    }
    Ok(None)
}

/// Whether a next hop (`struct rtnexthop`) is over the interface.
fn is_hop(mut hops: &[u8], index: u32) -> bool {
    while let (Ok(length), Ok(own)) = (u16_at(hops, 0), u32_at(hops, 4)) {
        if own == index {
            return true;
        }
        let next = usize::from(length).next_multiple_of(4).max(8);
        hops = hops.get(next..).unwrap_or_default();
    }
    false
}

/// Whether the interface is up.
pub(super) fn is_up(connection: &mut Connection, nic: &NicName) -> Result<bool, Failure> {
    let answer = link::ask(connection, nic, |_| ())?;
    Ok(u32_at(&answer, 8)? & libc::IFF_UP.cast_unsigned() != 0)
}

/// Sets it up or down.
pub(super) fn set_up(connection: &mut Connection, nic: &NicName, up: bool) -> Result<(), Failure> {
    let index = link::read(connection, nic)?.index;
    let flag = libc::IFF_UP.cast_unsigned();
    let header = link::link_header(index, if up { flag } else { 0 }, flag);
    let request = Request::new(libc::RTM_SETLINK, &header);
    connection.ask(&request).map(drop)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_numbers_are_the_headers() {
        crate::netlink::headers::compare(
            "if_link.h",
            &[
                ("IFLA_VLAN_FLAGS", VLAN_FLAGS),
                ("IFLA_IFALIAS", ALIAS),
                ("IFLA_LINK_NETNSID", LINK_NETNSID),
                ("IFLA_PROP_LIST", OTHER_NAMES),
            ],
        );
    }

    #[test]
    fn a_device_is_read_as_it_is_requested() {
        let nic: NicName = "v10".parse().expect("a name");
        for text in ["eth1 id 10", "eth1 id 4094 protocol 802.1ad gvrp on"] {
            let wanted = VlanLink::parse(text).expect("a device");
            let body = new_link(&nic, &wanted, 7, 0).into_body();
            let (parent, read) = parse(&body).expect("our own").expect("a VLAN device");
            assert_eq!(parent, 7);
            assert_eq!(
                VlanLink {
                    parent: wanted.parent.clone(),
                    ..read
                },
                wanted
            );
        }
    }

    #[test]
    fn a_next_hop_is_found_in_any_place() {
        let hop = |index: u32| [&[8, 0, 0, 0][..], &index.to_ne_bytes()].concat();
        let hops = [hop(3), hop(7)].concat();
        assert!(is_hop(&hops, 7) && is_hop(&hops, 3) && !is_hop(&hops, 8));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..100)) {
            let _ = parse(&body);
            let _ = is_hop(&body, 1);
        }
    }
}
