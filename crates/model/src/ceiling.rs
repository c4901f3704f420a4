//! Ceilings: computed upper bounds of a path's TCP goodput, each with its arithmetic.
//!
//! A ceiling must never be below what is possible: where a fact is not known, the more generous
//! assumption is taken and said. Facts from IEEE 802.3 (framing), RFC 9293 and RFC 7323 (headers),
//! `PCIE_SPEED2MBS_ENC` and `pcie_bandwidth_available` in drivers/pci (PCIe), the InfiniBand
//! Architecture Specification vol. 2 (encoding), and net/core/dev.c and net/sched (shapers).

mod infiniband;
mod path;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use infiniband::{InfinibandSpeed, infiniband};
pub(crate) use path::same_kernel;
pub use path::{PathCeilings, PathFacts, UnknownCeiling, ceilings_of_path};

use crate::finding::Evidence;
use crate::host::PcieLink;
use crate::known::{Cause, Known};
use crate::plan::End;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio, TransferRate};

/// What bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A shaper's rate.
    Shaper,
    /// The frames of an Ethernet link.
    Ethernet,
    /// The encoding of an InfiniBand link.
    Infiniband,
    /// The narrowest PCIe link.
    Pcie,
    /// The window that a round trip lets pass.
    WindowRtt,
    /// The copies between program and kernel.
    Copy,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shaper => "shaper",
            Self::Ethernet => "Ethernet framing",
            Self::Infiniband => "InfiniBand encoding",
            Self::Pcie => "PCIe",
            Self::WindowRtt => "window / round trip",
            Self::Copy => "memory copy",
        })
    }
}

/// An upper bound of a path's rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// What bounds.
    pub bound: Bound,
    /// The bound.
    pub bit_per_s: BitRate,
    /// The arithmetic, in words and numbers.
    pub reason: String,
    /// The end whose hardware or setting it is, when it is one end's.
    pub end: Option<End>,
    /// What of that end it is, `nic/eth2`.
    pub subject: Option<String>,
    /// The values it was computed from.
    pub evidence: Vec<Evidence>,
}

impl Ceiling {
    fn new(bound: Bound, bit_per_s: BitRate, reason: String) -> Self {
        Self {
            bound,
            bit_per_s,
            reason,
            end: None,
            subject: None,
            evidence: Vec::new(),
        }
    }

    /// The share of this ceiling that `rate` reaches; `None` for a ceiling of nothing. Above 1 the
    /// ceiling is wrong, and the caller flags the trial so.
    pub fn share(&self, rate: BitRate) -> Option<Ratio> {
        share(rate, self.bit_per_s)
    }
}

/// What share of `whole` is `rate`.
pub fn share(rate: BitRate, whole: BitRate) -> Option<Ratio> {
    (whole.as_bit_per_s() > 0).then(|| Ratio::new(rate.as_f64() / whole.as_f64()))
}

/// The ways of an Ethernet link that decide how much TCP payload its frames carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthernetPath {
    /// The speed of the link, one direction.
    pub speed: BitRate,
    /// The MTU in bytes (of the VXLAN interface, when there is one).
    pub mtu: u32,
    /// Whether every segment carries TCP timestamps (12 bytes with padding).
    pub timestamps: bool,
    /// Whether the packets are IPv6 (40 bytes of header instead of 20).
    pub ipv6: bool,
    /// How many VLAN tags each frame carries (4 bytes each).
    pub vlan_tags: u32,
    /// Whether the packets travel in VXLAN (50 bytes: Ethernet, IPv4, UDP, VXLAN).
    pub vxlan: bool,
}

impl EthernetPath {
    /// A link of `speed` and `mtu` that carries IPv4 with TCP timestamps and nothing else.
    pub fn plain(speed: BitRate, mtu: u32) -> Self {
        Self {
            speed,
            mtu,
            timestamps: true,
            ipv6: false,
            vlan_tags: 0,
            vxlan: false,
        }
    }
}

/// Goodput of TCP over Ethernet: payload of a full frame over what the frame takes on the wire, header
/// 14, FCS 4, preamble 8 and gap 12 bytes included.
pub fn ethernet(path: &EthernetPath) -> Known<Ceiling> {
    let headers = if path.ipv6 { 60 } else { 40 };
    let options = if path.timestamps { 12 } else { 0 };
    let tags = u64::from(path.vlan_tags);
    let tunnel = if path.vxlan { 50 } else { 0 };
    let wire = u64::from(path.mtu) + 38 + tags * 4 + tunnel;
    let tagged = match tags {
        0 => String::new(),
        tags => format!(" + {tags} x 4 VLAN"),
    };
    let tunnelled = if path.vxlan { " + 50 VXLAN" } else { "" };
    payload(path.mtu, headers, options).map(|payload| {
        let bound = scaled(path.speed, payload, wire);
        let options = match options {
            0 => String::new(),
            bytes => format!(" - {bytes} timestamps"),
        };
        let reason = format!(
            "{} x ({mtu} - {headers}{options}) / ({mtu} + 14 + 4 + 8 + 12{tagged}{tunnelled}) = {} x {payload}/{wire} = {bound}: \
             TCP payload over the frame on the wire",
            path.speed,
            path.speed,
            mtu = path.mtu,
        );
        Ceiling::new(Bound::Ethernet, bound, reason)
    })
}

/// Goodput of TCP through a shaper (TBF, HTB) of `rate`: it counts the frame with its Ethernet header,
/// without preamble, gap and FCS.
///
/// Segmentation offload does not change the ratio: for a GSO packet `qdisc_pkt_len_init`
/// (net/core/dev.c) adds the headers of every segment but the first to the length that the shaper
/// counts, as if it had been cut already; a packet longer than TBF's burst is really cut, by
/// `tbf_segment`. The bucket may let one burst pass on top, which counts only in the first instants of a
/// trial. `overhead` and `linklayer` options lower the goodput further and are not counted.
pub fn shaper(rate: BitRate, mtu: u32, timestamps: bool) -> Known<Ceiling> {
    let options = if timestamps { 12 } else { 0 };
    let frame = u64::from(mtu) + 14;
    payload(mtu, 40, options).map(|payload| {
        let bound = scaled(rate, payload, frame);
        let reason = format!(
            "{rate} x {payload}/{frame} = {bound}: a shaper counts the frame without preamble and FCS"
        );
        Ceiling::new(Bound::Shaper, bound, reason)
    })
}

/// What the kernel reckons for one PCIe lane, encoding taken off (`PCIE_SPEED2MBS_ENC`); `None` for a
/// transfer rate it does not know.
pub fn pcie_lane(rate: TransferRate) -> Option<BitRate> {
    let mbit = match rate.as_mt_per_s() {
        2_500 => 2_000,
        5_000 => 4_000,
        8_000 => 7_876,
        16_000 => 15_753,
        32_000 => 31_507,
        64_000 => 64_000,
        _ => return None,
    };
    Some(BitRate::from_mbit_per_s(mbit))
}

/// Header with 64-bit addresses (16), sequence and framing (4) and LCRC (4) of a PCIe packet; flow
/// control and descriptors take more, so this is the least.
const TLP_OVERHEAD_BYTES: u64 = 24;

/// What the narrowest PCIe link between a device and its root lets pass. With `max_payload` (MaxPayload,
/// bytes) the headers of PCIe packets are taken off too.
pub fn pcie(link: &PcieLink, max_payload: Option<u32>) -> Known<Ceiling> {
    let narrowest = match link.limited_by.get() {
        Some(address) => format!(", limited by the link at {address}"),
        None => String::new(),
    };
    link.available_bit_per_s.clone().map(|available| {
        let (bound, payload) = match max_payload {
            Some(size) if size > 0 => {
                let bytes = u64::from(size);
                let bound = scaled(available, bytes, bytes + TLP_OVERHEAD_BYTES);
                (
                    bound,
                    format!(
                        " x {bytes}/({bytes} + {TLP_OVERHEAD_BYTES}) of PCIe packets = {bound}"
                    ),
                )
            }
            _ => (available, String::new()),
        };
        let reason = format!(
            "{} available PCIe bandwidth{narrowest}{payload}",
            gigabits(available)
        );
        let hop = link
            .links
            .iter()
            .find(|hop| Some(hop.address) == link.limited_by.get());
        let mut ceiling = Ceiling::new(Bound::Pcie, bound, reason);
        ceiling.evidence = hop
            .map(|hop| {
                Evidence::new(
                    format!("narrowest link, at {}", hop.address),
                    link_words(hop.transfer_mt_per_s.get(), hop.width.get()),
                    hop.path.clone(),
                )
            })
            .into_iter()
            .collect();
        ceiling
    })
}

/// A PCIe link in the kernel's words, `8.0 GT/s x8`.
pub(crate) fn link_words(rate: Option<TransferRate>, width: Option<u32>) -> String {
    let rate = rate.map_or_else(|| "? GT/s".to_owned(), |rate| rate.to_string());
    let width = width.map_or_else(|| "?".to_owned(), |width| width.to_string());
    format!("{rate} x{width}")
}

/// `flows` connections cannot send more than one window each in a round trip.
///
/// As `window` the caller gives the whole buffer: the kernel uses about half of it for payload at first
/// (`tcp_adv_win_scale` 1, fixed before Linux 6.6) and since 6.6 measures the share (`scaling_ratio`),
/// which comes close to all of it with large receive offload. Only the whole is an upper bound.
pub fn window_rtt(window: Bytes, rtt: Nanoseconds, flows: u32) -> Known<Ceiling> {
    let Some(one) = BitRate::of(window, rtt) else {
        return Known::unknown(
            Cause::Unreadable,
            "TCP_INFO tcpi_min_rtt",
            "a round trip of no time bounds nothing",
        );
    };
    let bound = scaled(one, u64::from(flows), 1);
    let reason = format!("{flows} x {window} / {rtt} = {bound}: a window each in a round trip");
    Known::Value(Ceiling::new(Bound::WindowRtt, bound, reason))
}

/// Every byte is copied once into the sender's kernel and once out of the receiver's, each by the
/// flow's own thread; `bandwidth` is what one thread copied when it was measured with buffers of the
/// size the workload uses. With `shared_cpus` both ends share that many CPUs, which bounds both copies
/// together.
pub fn copy(bandwidth: BitRate, flows: u32, shared_cpus: Option<u32>) -> Ceiling {
    let by_flows = scaled(bandwidth, u64::from(flows), 1);
    let by_cpus = shared_cpus
        .filter(|cpus| *cpus > 0)
        .map(|cpus| (cpus, scaled(bandwidth, u64::from(cpus), 2)));
    match by_cpus {
        Some((cpus, bound)) if bound < by_flows => Ceiling::new(
            Bound::Copy,
            bound,
            format!(
                "{cpus} CPUs x {bandwidth} / 2 copies of each byte = {bound}: both ends share the CPUs"
            ),
        ),
        _ => Ceiling::new(
            Bound::Copy,
            by_flows,
            format!(
                "{flows} x {bandwidth} = {by_flows}: each flow's thread copies every byte once"
            ),
        ),
    }
}

fn payload(mtu: u32, headers: u32, options: u32) -> Known<u64> {
    match mtu.checked_sub(headers + options) {
        Some(bytes) if bytes > 0 => Known::Value(u64::from(bytes)),
        _ => Known::unknown(
            Cause::Unreadable,
            "mtu",
            format!(
                "an MTU of {mtu} holds no TCP payload beside {} bytes of headers",
                headers + options
            ),
        ),
    }
}

/// `rate` x `part` / `whole`, exact and saturating; `whole` is never 0 here, and if it were, nothing
/// would be bounded.
fn scaled(rate: BitRate, part: u64, whole: u64) -> BitRate {
    let exact = u128::from(rate.as_bit_per_s()) * u128::from(part);
    let exact = exact.checked_div(u128::from(whole)).unwrap_or(u128::MAX);
    BitRate::from_bit_per_s(u64::try_from(exact).unwrap_or(u64::MAX))
}

/// The kernel prints PCIe bandwidth with three digits.
pub(crate) fn gigabits(rate: BitRate) -> String {
    format!("{:.3} Gb/s", rate.as_f64() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    const G40: BitRate = BitRate::from_mbit_per_s(40_000);

    fn ethernet_gbit(path: EthernetPath) -> String {
        ethernet(&path)
            .value()
            .expect("a bound")
            .bit_per_s
            .to_string()
    }

    #[test]
    fn forty_gigabit_ethernet_carries_what_the_report_found() {
        let plain = EthernetPath::plain(G40, 1500);
        let bare = EthernetPath {
            timestamps: false,
            ..plain
        };
        assert_eq!(ethernet_gbit(plain), "37.66 Gb/s");
        assert_eq!(ethernet_gbit(bare), "37.97 Gb/s");
        let bound = ethernet(&bare).value().expect("a bound").clone();
        assert!(bound.reason.contains("1460/1538"), "{}", bound.reason);
        let reached = bound.share(BitRate::from_mbit_per_s(37_900)).expect("some");
        assert_eq!(reached.to_string(), "99.8 %");
    }

    #[test]
    fn rdma_at_forty_gigabit_reached_ninety_two_percent_of_the_line() {
        let rate = BitRate::from_mbit_per_s(4_613 * 8);
        let reached = share(rate, G40).expect("some").as_f64();
        assert!((reached - 0.922).abs() < 0.001, "{reached}");
    }

    #[test]
    fn tags_tunnels_and_long_headers_each_take_their_bytes() {
        let plain = EthernetPath::plain(G40, 1500);
        let payload_over_wire = |path: EthernetPath, share: &str| {
            let reason = ethernet(&path).value().expect("a bound").reason.clone();
            assert!(reason.contains(share), "{reason}");
        };
        payload_over_wire(
            EthernetPath {
                ipv6: true,
                ..plain
            },
            "1428/1538",
        );
        payload_over_wire(
            EthernetPath {
                vlan_tags: 2,
                ..plain
            },
            "1448/1546",
        );
        payload_over_wire(
            EthernetPath {
                vxlan: true,
                mtu: 1450,
                ..plain
            },
            "1398/1538",
        );
        payload_over_wire(EthernetPath { mtu: 9000, ..plain }, "8948/9038");
    }

    #[test]
    fn an_mtu_without_room_for_payload_is_a_gap_and_no_panic() {
        for mtu in [0, 40, 52] {
            assert!(ethernet(&EthernetPath::plain(G40, mtu)).gap().is_some());
            assert!(shaper(G40, mtu, true).gap().is_some());
        }
        let huge = EthernetPath {
            vlan_tags: u32::MAX,
            ..EthernetPath::plain(BitRate::from_bit_per_s(u64::MAX), u32::MAX)
        };
        assert!(ethernet(&huge).value().is_some());
    }

    #[test]
    fn pcie_gen3_x8_is_what_the_kernel_says() {
        let link = build::pcie_link((8_000, 8), (8_000, 16));
        let bound = pcie(&link, None).value().expect("a bound").clone();
        assert_eq!(bound.bit_per_s, BitRate::from_mbit_per_s(63_008));
        assert!(
            bound.reason.contains("63.008 Gb/s") && bound.reason.contains("0000:16:00.0"),
            "{}",
            bound.reason
        );
        let with_headers = pcie(&link, Some(256)).value().expect("a bound").bit_per_s;
        assert_eq!(with_headers.to_string(), "57.61 Gb/s");
        assert_eq!(pcie_lane(TransferRate::from_mt_per_s(7)), None);
    }

    #[test]
    fn a_shaper_counts_the_frame_without_preamble_and_fcs() {
        let bound = shaper(BitRate::from_mbit_per_s(5_000), 1500, true);
        let bound = bound.value().expect("a bound");
        assert_eq!(bound.bit_per_s.to_string(), "4.78 Gb/s");
        assert!(bound.reason.contains("1448/1514"), "{}", bound.reason);
    }

    #[test]
    fn a_window_of_six_mebibytes_passes_fifty_gigabit_at_one_millisecond() {
        let bound = |rtt| {
            window_rtt(Bytes::mib(6), rtt, 1)
                .value()
                .map(|c| c.bit_per_s.to_string())
        };
        assert_eq!(
            bound(Nanoseconds::from_millis(1)),
            Some("50.33 Gb/s".to_owned())
        );
        assert_eq!(
            bound(Nanoseconds::from_millis(100)),
            Some("503.3 Mb/s".to_owned())
        );
        assert_eq!(bound(Nanoseconds::new(0)), None);
    }

    #[test]
    fn both_ends_on_two_cpus_copy_each_byte_twice() {
        let one = BitRate::from_mbit_per_s(80_000);
        assert_eq!(copy(one, 1, None).bit_per_s, one);
        assert_eq!(copy(one, 4, Some(2)).bit_per_s, one);
        assert_eq!(
            copy(one, 2, Some(64)).bit_per_s,
            BitRate::from_mbit_per_s(160_000)
        );
    }
}
