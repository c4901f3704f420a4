//! Global identifiers: what they are, and which one carries the data to a peer (InfiniBand Architecture
//! Specification, volume 1, 4.1.1; annex A17 for RoCE v2).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// 128 bits, written as an IPv6 address is. Of RoCE v2 it is the address of the interface, IPv4 mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of RoCE for an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }

    /// Whether it is made of the interface's hardware address only: it reaches no further than the link.
    pub fn is_link_local(self) -> bool {
        self.0[..2] == [0xfe, 0x80]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.0))
    }
}

/// What a GID is used by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GidKind {
    /// InfiniBand.
    Infiniband,
    /// RoCE v1: Ethernet alone, within one link.
    RoceV1,
    /// RoCE v2: in UDP, routable.
    RoceV2,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Infiniband => "IB",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// One entry of a port's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// The port, from 1.
    pub port: u8,
    /// Its index there.
    pub index: u32,
    /// The identifier.
    pub gid: Gid,
    /// What it is used by.
    pub kind: GidKind,
    /// The index of its network interface; 0 without one.
    pub interface: u32,
}

/// The entry that data from `address` takes: that address, RoCE v2 before v1. `None` when no entry is it.
pub fn entry_of(entries: &[GidEntry], address: IpAddr) -> Option<GidEntry> {
    let wanted = Gid::of(address);
    let mut found: Vec<&GidEntry> = entries.iter().filter(|entry| entry.gid == wanted).collect();
    found.sort_by_key(|entry| (entry.kind != GidKind::RoceV2, entry.port, entry.index));
    found.first().map(|entry| **entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, address: &str, kind: GidKind) -> GidEntry {
        GidEntry {
            port: 1,
            index,
            gid: Gid::of(address.parse().expect("an address")),
            kind,
            interface: 2,
        }
    }

    #[test]
    fn the_gid_of_the_address_is_taken_in_its_routable_form() {
        let table = [
            entry(0, "fe80::1", GidKind::RoceV1),
            entry(1, "fe80::1", GidKind::RoceV2),
            entry(2, "10.9.0.1", GidKind::RoceV1),
            entry(3, "10.9.0.1", GidKind::RoceV2),
        ];
        let of = |address: &str| entry_of(&table, address.parse().expect("an address"));
        assert_eq!(of("10.9.0.1"), Some(table[3]));
        assert_eq!(of("fe80::1"), Some(table[1]));
        assert_eq!(of("10.9.0.2"), None);
        assert!(table[0].gid.is_link_local() && !table[3].gid.is_link_local());
        assert_eq!(table[3].gid.to_string(), "::ffff:10.9.0.1");
    }
}
