//! The static global addresses of an interface over rtnetlink (`<linux/if_addr.h>`, ip-address(8)): those that somebody
//! set and that do not expire. Dynamic and link-local ones are neither read nor changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_model::ids::NicName;
use linerate_model::setting::StaticAddress;

use super::error::Failure;
use super::link;
use super::message::{Attributes, CREATE, EXCLUSIVE, Request, u32_at};
use super::socket::Connection;

/// `struct ifaddrmsg`.
const HEADER_BYTES: usize = 8;
/// `IFA_ADDRESS`, `_LOCAL`, `_LABEL`, `_BROADCAST`, `_FLAGS`, `_RT_PRIORITY`.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const LABEL: u16 = 3;
const BROADCAST: u16 = 4;
const FLAGS: u16 = 8;
const METRIC: u16 = 9;
/// `IFA_F_PERMANENT`, `_SECONDARY` (IPv4), `_TENTATIVE`, `_NOPREFIXROUTE`, `_DADFAILED`.
const PERMANENT: u32 = 0x80;
const SECONDARY: u32 = 0x01;
const TENTATIVE: u32 = 0x40;
const DAD_FAILED: u32 = 0x08;
const NO_PREFIX_ROUTE: u32 = 0x200;
/// `IFA_F_NODAD`: without duplicate address detection.
const NO_DAD: u32 = 0x02;

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) address: StaticAddress,
    /// Whether somebody set it, it does not expire, and it is valid beyond the link.
    pub(super) is_static: bool,
    /// Whether it expires: an address from a router or a DHCP client.
    pub(super) is_dynamic: bool,
    /// Flags that a request would not give it.
    pub(super) flags: u32,
}

/// The static addresses of `nic`, IPv4 first, as the kernel lists them.
pub(super) fn read(
    connection: &mut Connection,
    nic: &NicName,
) -> Result<Vec<StaticAddress>, Failure> {
    let index = link::read(connection, nic)?.index;
    let found = all(connection, nic, index)?.into_iter();
    let found = found.filter(|one| one.is_static);
    Ok(found.map(|one| one.address).collect())
}

/// Every address of the interface `index`.
pub(super) fn all(
    connection: &mut Connection,
    nic: &NicName,
    index: u32,
) -> Result<Vec<Found>, Failure> {
    let answers = connection.dump(&Request::new(libc::RTM_GETADDR, &[0; HEADER_BYTES]))?;
    let mut found = Vec::new();
    for answer in answers {
        if answer.kind == libc::RTM_NEWADDR && u32_at(&answer.body, 4)? == index {
            found.extend(parse(&answer.body, nic)?);
        }
    }
    Ok(found)
}

fn address_of(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// An address of a dump; none of a family without addresses.
fn parse(body: &[u8], nic: &NicName) -> Result<Option<Found>, Failure> {
    let [family, prefix, flags, scope] = *body
        .first_chunk()
        .ok_or(Failure::Malformed("an address is truncated"))?;
    let attributes = Attributes::after(body, HEADER_BYTES)?;
    let flags = attributes.u32(FLAGS)?.unwrap_or(flags.into());
    let of = |kind| {
        let bytes = attributes.bytes(kind);
        bytes.and_then(|bytes| address_of(family, bytes))
    };
    let Some(address) = of(LOCAL).or_else(|| of(ADDRESS)) else {
        return Ok(None);
    };
    let broadcast = match of(BROADCAST) {
        Some(IpAddr::V4(broadcast)) => Some(broadcast),
        _ => None,
    };
    let address = StaticAddress {
        address,
        prefix,
        peer: of(ADDRESS).filter(|peer| *peer != address),
        broadcast,
        label: attributes
            .text(LABEL)?
            .filter(|label| label != nic.as_str()),
        metric: attributes.u32(METRIC)?.unwrap_or(0),
        no_prefix_route: flags & NO_PREFIX_ROUTE != 0,
        no_dad: flags & NO_DAD != 0,
    };
    let is_global = scope == libc::RT_SCOPE_UNIVERSE;
    Ok(Some(Found {
        is_static: is_global && flags & PERMANENT != 0,
        is_dynamic: is_global && flags & PERMANENT == 0,
        flags: flags & !(PERMANENT | SECONDARY | TENTATIVE | DAD_FAILED | NO_PREFIX_ROUTE | NO_DAD),
        address,
    }))
}

/// Gives `nic` these static addresses: adds and removes only those that differ. The first address of an IPv4 subnet is
/// the source of what is sent there, so a subnet with another first one is set again as a whole.
pub(super) fn set(
    connection: &mut Connection,
    nic: &NicName,
    wanted: &[StaticAddress],
) -> Result<(), Failure> {
    let index = link::read(connection, nic)?.index;
    let now = read(connection, nic)?;
    // Without `promote_secondaries` the kernel removes the other addresses of a subnet with the first one.
    for one in superfluous(&now, wanted) {
        match connection.ask(&request(index, &one, false)?) {
            Err(Failure::Kernel { errno, .. }) if errno == libc::EADDRNOTAVAIL => {}
            done => drop(done?),
        }
    }
    let now = read(connection, nic)?;
    for one in wanted {
        if !now.iter().any(|own| one.is_met_by(own)) {
            connection.ask(&request(index, one, true)?)?;
        }
    }
    Ok(())
}

/// The addresses of `now` that are not wanted, or come again in another order.
fn superfluous(now: &[StaticAddress], wanted: &[StaticAddress]) -> Vec<StaticAddress> {
    let goes = |own: &StaticAddress| {
        let stays = wanted.iter().any(|one| one.is_met_by(own));
        let first_of = |all: &[StaticAddress]| {
            let mut all = all.iter().filter(|one| subnet(one) == subnet(own));
            all.next().map(|one| one.address)
        };
        !stays || (own.address.is_ipv4() && first_of(now) != first_of(wanted))
    };
    now.iter().filter(|own| goes(own)).cloned().collect()
}

/// The network of an IPv4 address, and its prefix length; of another one the address itself.
fn subnet(one: &StaticAddress) -> (u32, u8, IpAddr) {
    match one.peer.unwrap_or(one.address) {
        IpAddr::V4(v4) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(one.prefix.min(32)))
                .unwrap_or(0);
            let none = Ipv4Addr::UNSPECIFIED.into();
            (u32::from(v4) & mask, one.prefix, none)
        }
        v6 @ IpAddr::V6(_) => (0, one.prefix, v6),
    }
}

/// The request that adds or removes an address.
fn request(index: u32, one: &StaticAddress, is_new: bool) -> Result<Request, Failure> {
    let (family, bytes) = match one.address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let family = u8::try_from(family).map_err(|_| Failure::Malformed("a family"))?;
    let mut header = vec![family, one.prefix, 0, libc::RT_SCOPE_UNIVERSE];
    header.extend_from_slice(&index.to_ne_bytes());
    let (kind, flags) = if is_new {
        (libc::RTM_NEWADDR, CREATE | EXCLUSIVE)
    } else {
        (libc::RTM_DELADDR, 0)
    };
    let mut request = Request::new(kind, &header).with_flags(flags);
    request.put(LOCAL, &bytes);
    match one.peer {
        Some(IpAddr::V4(peer)) => request.put(ADDRESS, &peer.octets()),
        Some(IpAddr::V6(peer)) => request.put(ADDRESS, &peer.octets()),
        None => request.put(ADDRESS, &bytes),
    };
    if let Some(label) = &one.label {
        request.put_text(LABEL, label);
    }
    if is_new {
        if let Some(broadcast) = one.broadcast {
            request.put(BROADCAST, &broadcast.octets());
        }
        if one.metric != 0 {
            request.put_u32(METRIC, one.metric);
        }
        let mut flags = 0;
        for (is_set, flag) in [(one.no_prefix_route, NO_PREFIX_ROUTE), (one.no_dad, NO_DAD)] {
            if is_set {
                flags |= flag;
            }
        }
        if flags != 0 {
            request.put_u32(FLAGS, flags);
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use linerate_model::setting::{address_words, parse_addresses};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_numbers_are_the_headers() {
        crate::netlink::headers::compare(
            "if_addr.h",
            &[
                ("IFA_ADDRESS", ADDRESS),
                ("IFA_LOCAL", LOCAL),
                ("IFA_LABEL", LABEL),
                ("IFA_BROADCAST", BROADCAST),
                ("IFA_FLAGS", FLAGS),
                ("IFA_RT_PRIORITY", METRIC),
            ],
        );
    }

    #[test]
    fn an_address_is_read_as_it_is_requested() {
        let nic: NicName = "eth1".parse().expect("a name");
        let text = "10.0.0.1/24 broadcast 10.0.0.255 label eth1:1 metric 5 10.0.1.1/32 peer 10.0.1.2 \
            2001:db8::1/64 noprefixroute";
        let addresses = parse_addresses(text).expect("addresses");
        let read = addresses.iter().map(|one| {
            let mut body = request(7, one, true).expect("our own").into_body();
            body[2] |= 0x80; // IFA_F_PERMANENT
            let mut all = parse(&body, &nic).expect("our own").expect("an address");
            // `IFA_FLAGS` of the request stands for those of the kernel.
            all.address.no_prefix_route |= one.no_prefix_route;
            all.address
        });
        assert_eq!(address_words(&read.collect::<Vec<_>>()), text);
    }

    #[test]
    fn only_what_differs_is_removed_unless_the_first_of_a_subnet_changes() {
        let gone = |now: &str, wanted: &str| {
            let list = |text| parse_addresses(text).expect("addresses");
            address_words(&superfluous(&list(now), &list(wanted)))
        };
        let now = "10.0.0.1/24 10.0.0.2/24 10.0.1.1/24 2001:db8::1/64 2001:db8::2/64";
        assert_eq!(gone(now, now), "");
        assert_eq!(
            gone(now, "10.0.0.1/24 10.0.1.1/24 2001:db8::2/64"),
            "10.0.0.2/24 2001:db8::1/64"
        );
        assert_eq!(gone("10.0.0.2/24 10.0.1.1/24", now), "10.0.0.2/24");
        assert_eq!(gone(now, ""), now);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..100)) {
            let nic: NicName = "eth1".parse().expect("a name");
            let _ = parse(&body, &nic);
        }
    }
}
