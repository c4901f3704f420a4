//! Goodput of iWARP (RDMA over TCP). A message is sent in framed units (FPDU) with a length field of 2 bytes, the
//! DDP/RDMAP header, padding to a multiple of 4, and a CRC of 4 bytes (RFC 5044, section 4); an RNIC puts one FPDU
//! into each TCP segment. The header has 14 bytes if it is tagged (writes and read responses), otherwise 18 (RFC
//! 5040, section 4.1; RFC 5041, section 4).

use super::{Bound, Ceiling, payload, scaled, tcp_headers};
use crate::known::{Cause, Known};
use crate::units::BitRate;

/// The length field and the CRC of an FPDU. Markers are not counted: they are only used if both ends request them.
const FRAMING_BYTES: u64 = 2 + 4;
/// The maximum size of an FPDU, header and payload: its length field has 16 bits.
const UNIT_MAX: u64 = u16::MAX as u64;

/// The properties of an Ethernet link that decide how much iWARP payload its frames carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IwarpPath {
    /// The speed of the link, one direction.
    pub speed: BitRate,
    /// The interface's MTU.
    pub mtu: u32,
    /// TCP options of each segment in bytes.
    pub options_bytes: u32,
    /// Whether it uses IPv6.
    pub ipv6: bool,
    /// How many VLAN tags each frame carries.
    pub vlan_tags: u32,
    /// Whether the messages are tagged: writes and read responses.
    pub is_tagged: bool,
    /// Whether the kernel's TCP segments the stream (siw): then an FPDU may span segments.
    pub is_software: bool,
}

/// iWARP goodput over Ethernet: for messages of this size, or for long messages.
pub fn iwarp(path: &IwarpPath, message: Option<u64>) -> Known<Ceiling> {
    let headers = tcp_headers(path.ipv6);
    let header = if path.is_tagged { 14 } else { 18 };
    payload(path.mtu, headers, path.options_bytes).and_then(|segment| {
        let unit = if path.is_software {
            UNIT_MAX
        } else {
            (segment / 4 * 4).saturating_sub(FRAMING_BYTES)
        };
        let each = match unit.checked_sub(header) {
            Some(bytes) if bytes > 0 => bytes,
            _ => {
                let mtu = path.mtu;
                let why = format!("an MTU of {mtu} is too small for an iWARP FPDU and its headers");
                return Known::unknown(Cause::Unreadable, "mtu", why);
            }
        };
        // Several short messages share a segment.
        let bytes = message.map_or(each, |bytes| bytes.max(1));
        let units = bytes.div_ceil(each);
        let framed = units
            .saturating_mul(FRAMING_BYTES + header)
            .saturating_add(bytes.checked_next_multiple_of(4).unwrap_or(bytes));
        let wire = u64::from(path.mtu) + 38 + u64::from(path.vlan_tags) * 4;
        // Whole segments for an RNIC, parts of the stream if the kernel segments it.
        let filled = if message.is_none() && !path.is_software {
            segment
        } else {
            framed
        };
        let bound = scaled(scaled(path.speed, segment, wire), bytes, filled);
        let tagged = match path.vlan_tags {
            0 => String::new(),
            tags => format!(" + {tags} x 4 VLAN"),
        };
        let speed = path.speed;
        let mtu = path.mtu;
        let options = match path.options_bytes {
            0 => String::new(),
            bytes => format!(" - {bytes} TCP options"),
        };
        let reason = format!(
            "{speed} x ({mtu} - {headers}{options}) / ({mtu} + 14 + 4 + 8 + 12{tagged}) x {bytes}/{filled} = {speed} \
             x {segment}/{wire} x {bytes}/{filled} = {bound}: iWARP payload, {units} x (2 length + {header} header + \
             4 checksum) beside it, in TCP over the frame on the wire"
        );
        Known::Value(Ceiling::new(Bound::Iwarp, bound, reason))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: IwarpPath = IwarpPath {
        speed: BitRate::from_bit_per_s(40_000_000_000),
        mtu: 1_500,
        options_bytes: 0,
        ipv6: false,
        vlan_tags: 0,
        is_tagged: true,
        is_software: false,
    };

    fn bound(path: &IwarpPath, message: Option<u64>) -> Ceiling {
        iwarp(path, message).value().expect("a bound").clone()
    }

    #[test]
    fn a_device_puts_one_unit_into_each_segment() {
        // 1460 bytes of TCP payload: 6 for FPDU framing and 14 for the tagged header.
        let tagged = bound(&PATH, None);
        assert_eq!(tagged.bit_per_s.as_bit_per_s(), 37_451_235_370);
        assert!(tagged.reason.contains("1440/1460"), "{}", tagged.reason);
        let untagged = IwarpPath {
            is_tagged: false,
            ..PATH
        };
        assert!(bound(&untagged, None).reason.contains("1436/1460"));
    }

    #[test]
    fn a_unit_of_the_kernels_own_tcp_spans_segments() {
        let software = IwarpPath {
            is_software: true,
            ..PATH
        };
        assert!(bound(&software, None).bit_per_s > bound(&PATH, None).bit_per_s);
        // Never above TCP goodput.
        let tcp = scaled(PATH.speed, 1_460, 1_538);
        assert!(bound(&software, None).bit_per_s < tcp);
    }

    #[test]
    fn short_messages_carry_less_and_long_ones_nearly_as_much() {
        let of = |bytes| bound(&PATH, Some(bytes)).bit_per_s;
        assert!(of(8) < of(64) && of(64) < of(1_440) && of(1_441) < of(1_440));
        assert_eq!(of(1_440), bound(&PATH, None).bit_per_s);
        let _ = of(u64::MAX);
    }

    #[test]
    fn an_mtu_without_room_is_a_gap() {
        for mtu in [0, 40, 60, 63] {
            let none = IwarpPath { mtu, ..PATH };
            assert!(iwarp(&none, None).gap().is_some(), "{mtu}");
        }
    }
}
