//! Interfaces and their addresses over rtnetlink (`rtnetlink(7)`, `<linux/if_link.h>`,
//! `<linux/if_addr.h>`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_model::host::NicKind;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use serde::{Deserialize, Serialize};

use super::error::Failure;
use super::message::{Attributes, Request, u16_at, u32_at};
use super::socket::{Answer, Connection};

/// `struct ifinfomsg`.
pub(super) const LINK_HEADER_BYTES: usize = 16;
/// `struct ifaddrmsg`.
pub(super) const ADDRESS_HEADER_BYTES: usize = 8;

/// `ARPHRD_LOOPBACK` and `ARPHRD_INFINIBAND` of `<linux/if_arp.h>`: the type of an interface without a link kind.
const HARDWARE_LOOPBACK: u16 = 772;
const HARDWARE_INFINIBAND: u16 = 32;

/// `IFLA_PERM_ADDRESS` of `<linux/if_link.h>`, since Linux 5.6.
const IFLA_PERM_ADDRESS: u16 = 54;

/// rtnetlink's description of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    /// Its kind, if the kernel reports one.
    pub(super) kind: Option<NicKind>,
    /// The kind of its root qdisc, including the built-in ones that a dump leaves out.
    pub(super) qdisc: Option<String>,
}

/// The header of a message about the interface `index` (0: the one named by attribute).
pub(super) fn link_header(index: u32, flags: u32, change: u32) -> [u8; LINK_HEADER_BYTES] {
    let mut header = [0; LINK_HEADER_BYTES];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

/// The interface called `nic`.
pub(super) fn read(connection: &mut Connection, nic: &NicName) -> Result<Link, Failure> {
    parse(&ask(connection, nic, |_| ())?)
}

/// The kernel's response about the interface called `nic`, for a request with the attributes from `fill`.
pub(super) fn ask(
    connection: &mut Connection,
    nic: &NicName,
    fill: impl FnOnce(&mut Request),
) -> Result<Vec<u8>, Failure> {
    let mut request = Request::new(libc::RTM_GETLINK, &link_header(0, 0, 0));
    request.put_text(libc::IFLA_IFNAME, nic.as_str());
    fill(&mut request);
    let answers = connection.ask(&request)?;
    answers
        .into_iter()
        .find(|answer| answer.kind == libc::RTM_NEWLINK)
        .map(|answer| answer.body)
        .ok_or(Failure::Malformed("no message before the end of the dump"))
}

/// One 32-bit attribute of an interface.
pub(super) fn number(
    connection: &mut Connection,
    nic: &NicName,
    attribute: u16,
) -> Result<Known<u32>, Failure> {
    let answer = ask(connection, nic, |_| ())?;
    let attributes = Attributes::after(&answer, LINK_HEADER_BYTES)?;
    let path = || format!("netlink/route/{nic}/link/{attribute}");
    Ok(match attributes.u32(attribute)? {
        Some(number) => Known::Value(number),
        None => Known::unknown(Cause::Absent, path(), "this kernel has no such attribute"),
    })
}

/// Sets one 32-bit attribute of the interface `index`.
pub(super) fn set_number(
    connection: &mut Connection,
    index: u32,
    attribute: u16,
    number: u32,
) -> Result<(), Failure> {
    let mut request = Request::new(libc::RTM_SETLINK, &link_header(index, 0, 0));
    request.put_u32(attribute, number);
    connection.ask(&request).map(drop)
}

/// The identity of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: NicName,
    /// Its permanent MAC address, or the current one if it has no permanent one; none if that is all zero.
    pub address: Option<String>,
    /// The link kind from rtnetlink (`veth`); none for a physical device.
    pub kind: Option<String>,
}

/// All interfaces with their identities.
pub(super) fn identities(connection: &mut Connection) -> Result<Vec<Interface>, Failure> {
    let answers = connection.dump(&Request::new(libc::RTM_GETLINK, &link_header(0, 0, 0)))?;
    let links = answers.iter().filter(|one| one.kind == libc::RTM_NEWLINK);
    let identities = links.map(|one| parse_identity(&one.body));
    // No setting can belong to a name that linerate does not accept.
    identities.filter_map(Result::transpose).collect()
}

/// A MAC address as `ip link` prints it.
fn colon_separated(bytes: &[u8]) -> String {
    let pairs = bytes.iter().map(|byte| format!("{byte:02x}"));
    pairs.collect::<Vec<_>>().join(":")
}

fn parse_identity(body: &[u8]) -> Result<Option<Interface>, Failure> {
    let attributes = Attributes::after(body, LINK_HEADER_BYTES)?;
    let name = attributes.text(libc::IFLA_IFNAME)?;
    let Some(name) = name.and_then(|name| name.parse().ok()) else {
        return Ok(None);
    };
    // A bond gives its ports the same address, but their permanent ones differ; a virtual device has none.
    let address = attributes
        .bytes(IFLA_PERM_ADDRESS)
        .or_else(|| attributes.bytes(libc::IFLA_ADDRESS))
        .filter(|bytes| bytes.iter().any(|byte| *byte != 0));
    let info = attributes.nest(libc::IFLA_LINKINFO)?;
    Ok(Some(Interface {
        index: u32_at(body, 4)?,
        name,
        address: address.map(colon_separated),
        kind: info.text(libc::IFLA_INFO_KIND)?,
    }))
}

/// The addresses of the interface `index`, IPv4 first, as the kernel lists them.
pub(super) fn addresses(connection: &mut Connection, index: u32) -> Result<Vec<String>, Failure> {
    let answers = connection.dump(&Request::new(libc::RTM_GETADDR, &[0; ADDRESS_HEADER_BYTES]))?;
    let mut addresses = Vec::new();
    for Answer { kind, body } in &answers {
        if *kind != libc::RTM_NEWADDR {
            continue;
        }
        if let Some((own, address)) = parse_address(body)?
            && own == index
        {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn parse(body: &[u8]) -> Result<Link, Failure> {
    let attributes = Attributes::after(body, LINK_HEADER_BYTES)?;
    let info = attributes.nest(libc::IFLA_LINKINFO)?;
    let kind = match info.text(libc::IFLA_INFO_KIND)? {
        Some(name) => Some(kind_of(&name)),
        None => match u16_at(body, 2)? {
            HARDWARE_LOOPBACK => Some(NicKind::Loopback),
            HARDWARE_INFINIBAND => Some(NicKind::Ipoib),
            _ => None,
        },
    };
    Ok(Link {
        index: u32_at(body, 4)?,
        kind,
        qdisc: attributes.text(libc::IFLA_QDISC)?,
    })
}

fn kind_of(name: &str) -> NicKind {
    match name {
        "veth" => NicKind::Veth,
        "bridge" => NicKind::Bridge,
        "bond" => NicKind::Bond,
        "vlan" => NicKind::Vlan,
        "vxlan" | "geneve" | "gretap" | "erspan" | "ip6gretap" | "ip6erspan" => NicKind::Tunnel,
        "macvlan" | "macvtap" | "ipvlan" | "ipvtap" => NicKind::Macvlan,
        "tun" => NicKind::Tun,
        "ipoib" => NicKind::Ipoib,
        _ => NicKind::Other,
    }
}

/// An address with its prefix length and its interface; `None` for an address family without any.
pub(super) fn parse_address(body: &[u8]) -> Result<Option<(u32, String)>, Failure> {
    let [family, prefix, _, _] = *body
        .first_chunk()
        .ok_or(Failure::Malformed("an address is truncated"))?;
    let index = u32_at(body, 4)?;
    let attributes = Attributes::after(body, ADDRESS_HEADER_BYTES)?;
    // On a point-to-point link `IFA_ADDRESS` is the peer's and `IFA_LOCAL` ours.
    let own = attributes
        .bytes(libc::IFA_LOCAL)
        .or_else(|| attributes.bytes(libc::IFA_ADDRESS));
    let wrong = || Failure::Malformed("an address does not have the length of its family");
    let address: Option<IpAddr> = match (i32::from(family), own) {
        (libc::AF_INET, Some(bytes)) => {
            let octets: [u8; 4] = bytes.try_into().map_err(|_| wrong())?;
            Some(Ipv4Addr::from(octets).into())
        }
        (libc::AF_INET6, Some(bytes)) => {
            let octets: [u8; 16] = bytes.try_into().map_err(|_| wrong())?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    };
    Ok(address.map(|address| (index, format!("{address}/{prefix}"))))
}

#[cfg(test)]
mod tests;
