//! Packets that show who serves a gateway's address: ARP (RFC 826), neighbor advertisements (RFC 4861, 4.4) and VRRP
//! advertisements of versions 2 and 3 (RFC 3768, 5.1; RFC 5798, 5.2). Pure parsers of what follows the link-layer
//! header. Checksums are not verified: the kernel does not verify them either before it passes a packet to a tap.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_model::units::Nanoseconds;

/// `IPPROTO_VRRP`, `IPPROTO_ICMPV6`.
const VRRP: u8 = 112;
const ICMP6: u8 = 58;
/// `ND_NEIGHBOR_ADVERT`; `ND_OPT_TARGET_LINKADDR`.
const ADVERTISEMENT: u8 = 136;
const TARGET_ADDRESS: u8 = 2;
/// VRRP and neighbor discovery are valid only from the same link: no router has decremented the TTL or hop limit.
const HOPS_OF_LINK: u8 = 255;
const IP6_HEADER_BYTES: usize = 40;
const IP4_HEADER_BYTES_MIN: usize = 20;

/// What a packet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    Arp {
        sender: IpAddr,
        mac: Vec<u8>,
        reply: bool,
        gratuitous: bool,
    },
    Advertisement {
        target: IpAddr,
        mac: Option<Vec<u8>>,
        solicited: bool,
        overrides: bool,
    },
    Vrrp(Vrrp),
}

/// A VRRP advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vrrp {
    pub(crate) version: u8,
    pub(crate) source: IpAddr,
    pub(crate) router_id: u8,
    pub(crate) priority: u8,
    pub(crate) interval: Nanoseconds,
    pub(crate) address: Option<IpAddr>,
}

/// An ARP packet for IPv4.
pub(crate) fn parse_arp(bytes: &[u8]) -> Option<Packet> {
    let [
        _,
        _,
        protocol_high,
        protocol_low,
        mac_length,
        address_length,
        0,
        operation,
    ] = *bytes.first_chunk::<8>()?
    else {
        return None;
    };
    if [protocol_high, protocol_low, address_length] != [8, 0, 4] || !matches!(operation, 1 | 2) {
        return None;
    }
    let mac_length = usize::from(mac_length);
    let rest = bytes.get(8..)?;
    let mac = rest.get(..mac_length)?;
    let sender: [u8; 4] = *rest.get(mac_length..)?.first_chunk()?;
    let target: [u8; 4] = *rest.get(2 * mac_length + 4..)?.first_chunk()?;
    Some(Packet::Arp {
        sender: sender.into(),
        mac: mac.to_vec(),
        reply: operation == 2,
        // RFC 5227, 3; RFC 2002, 4.6: a request or a reply whose two protocol addresses are equal.
        gratuitous: sender == target,
    })
}

/// An IPv4 packet: VRRP, or none.
pub(crate) fn parse_ip4(bytes: &[u8]) -> Option<Packet> {
    let header: &[u8; IP4_HEADER_BYTES_MIN] = bytes.first_chunk()?;
    let length = usize::from(header[0] & 15) * 4;
    // Of a fragment only the first has the header, and no advertisement is as long as that.
    let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
    if header[0] >> 4 != 4 || header[9] != VRRP || header[8] != HOPS_OF_LINK || is_fragment {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let payload = bytes.get(length.max(IP4_HEADER_BYTES_MIN)..total.min(bytes.len()))?;
    let source = Ipv4Addr::from([header[12], header[13], header[14], header[15]]);
    parse_vrrp(source.into(), payload)
}

/// An IPv6 packet without extension headers: VRRP, a neighbor advertisement, or none.
pub(crate) fn parse_ip6(bytes: &[u8]) -> Option<Packet> {
    let header: &[u8; IP6_HEADER_BYTES] = bytes.first_chunk()?;
    if header[0] >> 4 != 6 || header[7] != HOPS_OF_LINK {
        return None;
    }
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = (IP6_HEADER_BYTES + payload).min(bytes.len());
    let payload = bytes.get(IP6_HEADER_BYTES..end)?;
    let source: [u8; 16] = *header.get(8..)?.first_chunk()?;
    match header[6] {
        VRRP => parse_vrrp(Ipv6Addr::from(source).into(), payload),
        ICMP6 => parse_advertisement(payload),
        _ => None,
    }
}

fn parse_advertisement(bytes: &[u8]) -> Option<Packet> {
    let [ADVERTISEMENT, 0, _, _, flags, _, _, _] = *bytes.first_chunk::<8>()? else {
        return None;
    };
    let target: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
    Some(Packet::Advertisement {
        target: target.into(),
        mac: target_mac(bytes.get(24..).unwrap_or_default()),
        solicited: flags & 0x40 != 0,
        overrides: flags & 0x20 != 0,
    })
}

/// The option with the target's link-layer address; options are counted in units of 8 bytes.
fn target_mac(mut options: &[u8]) -> Option<Vec<u8>> {
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        if length == 0 {
            return None;
        }
        if kind == TARGET_ADDRESS {
            return options.get(2..length).map(<[u8]>::to_vec);
        }
        options = options.get(length..)?;
    }
    None
}

fn parse_vrrp(source: IpAddr, bytes: &[u8]) -> Option<Packet> {
    let [kind, router_id, priority, count, high, low, _, _] = *bytes.first_chunk::<8>()?;
    // Type 1 is the only one.
    let (version, interval) = match (kind >> 4, kind & 15) {
        // Authentication type, then seconds.
        (2, 1) => (2, Nanoseconds::from_millis(u64::from(low) * 1_000)),
        // Twelve bits of hundredths of a second.
        (3, 1) => {
            let centiseconds = u64::from(u16::from_be_bytes([high & 15, low]));
            (3, Nanoseconds::from_millis(centiseconds * 10))
        }
        _ => return None,
    };
    let addresses = bytes.get(8..)?;
    let address = match source {
        _ if count == 0 => None,
        IpAddr::V4(_) => addresses.first_chunk::<4>().map(|own| IpAddr::from(*own)),
        IpAddr::V6(_) => addresses.first_chunk::<16>().map(|own| IpAddr::from(*own)),
    };
    if router_id == 0 || interval == Nanoseconds::new(0) {
        return None;
    }
    Some(Packet::Vrrp(Vrrp {
        version,
        source,
        router_id,
        priority,
        interval,
        address,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn ip4(ttl: u8, payload: &[u8]) -> Vec<u8> {
        let total = u16::try_from(20 + payload.len())
            .expect("short")
            .to_be_bytes();
        let mut bytes = vec![0x45, 0xc0, total[0], total[1], 0, 1, 0, 0, ttl, VRRP, 0, 0];
        bytes.extend([10, 205, 1, 2, 224, 0, 0, 18]);
        bytes.extend(payload);
        bytes
    }

    fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
        let mut bytes = vec![0x60, 0, 0, 0, length[0], length[1], next, 255];
        bytes.extend(Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, 2]).octets());
        bytes.extend(Ipv6Addr::from([0xff02, 0, 0, 0, 0, 0, 0, 0x12]).octets());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn advertisements_of_both_versions_are_read_with_their_intervals() {
        // keepalived: version 3, VRID 51, priority 150, 10 hundredths of a second.
        let third = [0x31, 51, 150, 1, 0, 10, 0xaa, 0xbb, 10, 205, 1, 1];
        let Some(Packet::Vrrp(read)) = parse_ip4(&ip4(255, &third)) else {
            panic!("an advertisement")
        };
        assert_eq!((read.version, read.router_id, read.priority), (3, 51, 150));
        assert_eq!(read.interval, Nanoseconds::from_millis(100));
        assert_eq!(read.address, Some(IpAddr::from([10, 205, 1, 1])));
        // Version 2: authentication type 1, 1 s.
        let second = [
            0x21, 51, 100, 1, 1, 1, 0, 0, 10, 205, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let Some(Packet::Vrrp(read)) = parse_ip4(&ip4(255, &second)) else {
            panic!("an advertisement")
        };
        assert_eq!(
            (read.version, read.interval),
            (2, Nanoseconds::from_millis(1_000))
        );
        // From another network, or of an interval of 0: ignored.
        assert_eq!(parse_ip4(&ip4(254, &third)), None);
        let endless = [0x31, 51, 150, 0, 0, 0, 0, 0];
        assert_eq!(parse_ip4(&ip4(255, &endless)), None);
    }

    #[test]
    fn ipv6_has_advertisements_of_neighbors_and_of_virtual_routers() {
        let address = Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0x51, 0x53]);
        let mut vrrp = vec![0x31, 53, 100, 1, 0, 100, 0, 0];
        vrrp.extend(address.octets());
        let Some(Packet::Vrrp(read)) = parse_ip6(&ip6(VRRP, &vrrp)) else {
            panic!("an advertisement")
        };
        assert_eq!(read.address, Some(address.into()));
        let mut neighbor = vec![136, 0, 0, 0, 0xa0, 0, 0, 0];
        neighbor.extend(address.octets());
        neighbor.extend([14, 1, 0, 0, 0, 0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 9]);
        assert_eq!(
            parse_ip6(&ip6(ICMP6, &neighbor)),
            Some(Packet::Advertisement {
                target: address.into(),
                mac: Some(vec![2, 0, 0, 0, 0, 9]),
                solicited: false,
                overrides: true,
            })
        );
        // An option of length 0 ends the options.
        neighbor[25] = 0;
        let Some(Packet::Advertisement { mac, .. }) = parse_ip6(&ip6(ICMP6, &neighbor)) else {
            panic!("an advertisement")
        };
        assert_eq!(mac, None);
    }

    #[test]
    fn a_gratuitous_arp_has_two_equal_addresses() {
        let arp = |operation: u8, target: u8| {
            let mut bytes = vec![
                0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
            ];
            bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, target]);
            parse_arp(&bytes)
        };
        let read = |reply, gratuitous| {
            Some(Packet::Arp {
                sender: IpAddr::from([10, 0, 0, 1]),
                mac: vec![2, 0, 0, 0, 0, 1],
                reply,
                gratuitous,
            })
        };
        assert_eq!(arp(1, 1), read(false, true));
        assert_eq!(arp(2, 7), read(true, false));
        assert_eq!(arp(3, 7), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in vec(any::<u8>(), 0..120)) {
            let _ = (parse_arp(&bytes), parse_ip4(&bytes), parse_ip6(&bytes));
        }

        #[test]
        fn no_payload_panics(next in prop_oneof![Just(VRRP), Just(ICMP6)], payload in vec(any::<u8>(), 0..80)) {
            let _ = (parse_ip4(&ip4(255, &payload)), parse_ip6(&ip6(next, &payload)));
        }
    }
}
