//! Goodput of RDMA: RoCE v1 and v2 over Ethernet, and InfiniBand packets (InfiniBand Architecture Specification,
//! volume 1, chapters 5 and 7 and annexes A16 and A17).
//!
//! Counts the middle packets of a long message: base transport header and payload. The first packet of a write has 16
//! more bytes (RETH), so messages as long as the path MTU reach a little less.

use serde::{Deserialize, Serialize};

use super::{Bound, Ceiling, InfinibandSpeed, infiniband, scaled};
use crate::known::{Cause, Known};
use crate::units::BitRate;

/// Base transport header and invariant checksum.
const TRANSPORT_BYTES: u64 = 12 + 4;

/// The version of RDMA over Converged Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Roce {
    /// On Ethernet itself, with a global route header of 40 bytes.
    V1,
    /// In UDP: an IP header of 20 or 40 bytes and 8 of UDP.
    V2,
}

/// The properties of an Ethernet link that decide how much RDMA payload its frames carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RocePath {
    /// The speed of the link, one direction.
    pub speed: BitRate,
    /// The RDMA path MTU, payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub rdma_mtu: u32,
    /// The version.
    pub version: Roce,
    /// Whether version 2 uses IPv6.
    pub ipv6: bool,
    /// How many VLAN tags each frame carries.
    pub vlan_tags: u32,
}

/// One message, segmented into packets of the path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Its payload.
    pub bytes: u64,
    /// The extra header bytes of its first packet, after the base transport header.
    pub beside: u64,
}

impl Message {
    /// RDMA extended transport header of a write.
    pub const WRITE: u64 = 16;
    /// Acknowledge extended transport header of a read's response.
    pub const READ_RESPONSE: u64 = 4;
    /// Atomic extended transport header, of which 8 bytes are the operand.
    pub const ATOMIC: u64 = 28 - 8;
    /// Datagram extended transport header.
    pub const DATAGRAM: u64 = 8;

    /// Its size on a wire where packets have `each` bytes of overhead, and its number of packets.
    fn on_wire(self, mtu: u32, each: u64) -> (u64, u64) {
        let packets = self.bytes.div_ceil(mtu.into()).max(1);
        // Payload is padded to a multiple of 4.
        let payload = self.bytes.checked_next_multiple_of(4).unwrap_or(self.bytes);
        let headers = packets.saturating_mul(each).saturating_add(self.beside);
        (payload.saturating_add(headers), packets)
    }
}

/// RDMA goodput over Ethernet: a packet's payload divided by the frame's size on the wire.
pub fn roce(path: &RocePath) -> Known<Ceiling> {
    roce_of_messages(path, None)
}

/// The same for messages of one size; without a size, for the middle packets of a long message.
pub fn roce_of_messages(path: &RocePath, message: Option<Message>) -> Known<Ceiling> {
    if !valid_mtu(path.rdma_mtu) {
        return wrong_mtu(path.rdma_mtu);
    }
    let (headers, words) = match (path.version, path.ipv6) {
        (Roce::V1, _) => (40, "40 GRH"),
        (Roce::V2, false) => (28, "20 IPv4 + 8 UDP"),
        (Roce::V2, true) => (48, "40 IPv6 + 8 UDP"),
    };
    let tags = u64::from(path.vlan_tags) * 4;
    let each = headers + TRANSPORT_BYTES + 38 + tags;
    let tagged = match path.vlan_tags {
        0 => String::new(),
        tags => format!(" + {tags} x 4 VLAN"),
    };
    let words = format!("12 BTH + 4 ICRC + {words} + 14 + 4 + 8 + 12{tagged}");
    let (bound, sum) = cut(path.speed, path.rdma_mtu, each, &words, message);
    let reason = format!("{sum}: RDMA payload over the frame on the wire");
    Known::Value(Ceiling::new(Bound::Roce, bound, reason))
}

/// The payload share of packets with `each` bytes of overhead, and its arithmetic.
fn cut(
    speed: BitRate,
    mtu: u32,
    each: u64,
    words: &str,
    message: Option<Message>,
) -> (BitRate, String) {
    let Some(message) = message else {
        let payload = u64::from(mtu);
        let wire = payload + each;
        let bound = scaled(speed, payload, wire);
        let sum = format!(
            "{speed} x {payload} / ({payload} + {words}) = {speed} x {payload}/{wire} = {bound}"
        );
        return (bound, sum);
    };
    let (wire, packets) = message.on_wire(mtu, each);
    let bound = scaled(speed, message.bytes, wire);
    let more = match message.beside {
        0 => String::new(),
        bytes => format!(" + {bytes} of the message"),
    };
    let sum = format!(
        "{speed} x {} / ({} + {packets} x ({words}){more}) = {speed} x {}/{wire} = {bound}",
        message.bytes, message.bytes, message.bytes
    );
    (bound, sum)
}

/// RDMA goodput over InfiniBand within a subnet: the link's data rate, less local route header 8, base transport
/// header 12 and CRCs 4 and 2 of each packet.
pub fn infiniband_payload(speed: InfinibandSpeed, lanes: u32, rdma_mtu: u32) -> Known<Ceiling> {
    infiniband_of_messages(speed, lanes, rdma_mtu, None)
}

/// The same for messages of one size.
pub fn infiniband_of_messages(
    speed: InfinibandSpeed,
    lanes: u32,
    rdma_mtu: u32,
    message: Option<Message>,
) -> Known<Ceiling> {
    if !valid_mtu(rdma_mtu) {
        return wrong_mtu(rdma_mtu);
    }
    let link = infiniband(speed, lanes);
    let each = 8 + TRANSPORT_BYTES + 2;
    let words = "8 LRH + 12 BTH + 4 ICRC + 2 VCRC";
    let (bound, sum) = cut(link.bit_per_s, rdma_mtu, each, words, message);
    let reason = format!("{sum}: RDMA payload; {}", link.reason);
    Known::Value(Ceiling::new(Bound::Infiniband, bound, reason))
}

fn valid_mtu(bytes: u32) -> bool {
    matches!(bytes, 256 | 512 | 1024 | 2048 | 4096)
}

fn wrong_mtu(bytes: u32) -> Known<Ceiling> {
    let reason = format!("an RDMA MTU is 256, 512, 1024, 2048 or 4096 bytes, not {bytes}");
    Known::unknown(Cause::Unreadable, "RDMA MTU", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(version: Roce) -> RocePath {
        RocePath {
            speed: BitRate::from_mbit_per_s(40_000),
            rdma_mtu: 4096,
            version,
            ipv6: false,
            vlan_tags: 0,
        }
    }

    #[test]
    fn long_packets_carry_nearly_all_and_short_ones_less() {
        let rate = |path: &RocePath| roce(path).value().map(|c| c.bit_per_s.to_string());
        assert_eq!(rate(&path(Roce::V2)).as_deref(), Some("39.21 Gb/s"));
        assert_eq!(rate(&path(Roce::V1)).as_deref(), Some("39.10 Gb/s"));
        let small = RocePath {
            rdma_mtu: 1024,
            ..path(Roce::V2)
        };
        assert_eq!(rate(&small).as_deref(), Some("37.03 Gb/s"));
        let reason = roce(&small).value().expect("a bound").reason.clone();
        assert!(reason.contains("1024/1106"), "{reason}");
    }

    #[test]
    fn the_reports_forty_gigabit_rdma_lies_below_its_ceiling() {
        let bound = roce(&path(Roce::V2)).value().expect("a bound").clone();
        let reached = bound
            .share(BitRate::from_mbit_per_s(4_613 * 8))
            .expect("some");
        assert_eq!(reached.to_string(), "94.1 %");
    }

    #[test]
    fn infiniband_packets_take_their_headers_too() {
        let bound = infiniband_payload(InfinibandSpeed::Qdr, 4, 2048);
        let bound = bound.value().expect("a bound");
        assert_eq!(bound.bit_per_s.to_string(), "31.60 Gb/s");
        assert!(bound.reason.contains("32.00 Gb/s"), "{}", bound.reason);
    }

    #[test]
    fn small_messages_carry_less_than_full_packets_and_long_ones_nearly_as_much() {
        let of = |bytes| {
            let message = Message {
                bytes,
                beside: Message::WRITE,
            };
            let bound = roce_of_messages(&path(Roce::V2), Some(message));
            bound.value().expect("a bound").clone()
        };
        // 2 bytes are padded to 4; 82 bytes of packet overhead and 16 of the write.
        let least = of(2);
        assert!(least.reason.contains("2/102"), "{}", least.reason);
        assert_eq!(of(65_536).bit_per_s.to_string(), "39.21 Gb/s");
        assert!(
            of(65_536).reason.contains("16 x (12 BTH"),
            "{}",
            of(65_536).reason
        );
        let _ = of(u64::MAX);
    }

    #[test]
    fn an_mtu_that_rdma_does_not_know_is_a_gap() {
        for bytes in [0, 1500, 4097, u32::MAX] {
            let wrong = RocePath {
                rdma_mtu: bytes,
                ..path(Roce::V2)
            };
            assert!(roce(&wrong).gap().is_some());
            assert!(
                infiniband_payload(InfinibandSpeed::Edr, 4, bytes)
                    .gap()
                    .is_some()
            );
        }
    }
}
