//! Ceilings: computed upper bounds of a path's TCP goodput, each with its arithmetic.
//!
//! A ceiling must never be below what is possible: if a value is unknown, the more generous assumption is used and
//! stated. Sources: IEEE 802.3 (framing), RFC 9293 and RFC 7323 (headers), `PCIE_SPEED2MBS_ENC` and
//! `pcie_bandwidth_available` in drivers/pci (PCIe), the InfiniBand Architecture Specification vol. 2 (encoding), and
//! net/core/dev.c and net/sched (shapers).

mod infiniband;
mod iwarp;
mod path;
mod rdma;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use infiniband::{InfinibandSpeed, infiniband};
pub use iwarp::{IwarpPath, iwarp};
pub(crate) use path::same_kernel;
pub use path::{
    Packets, PathCeilings, PathFacts, UnknownCeiling, ceilings_of_nic, ceilings_of_path,
};
pub use rdma::{
    Message, Roce, RocePath, infiniband_of_messages, infiniband_payload, roce, roce_of_messages,
};

use crate::finding::Evidence;
use crate::host::PcieLink;
use crate::known::{Cause, Known};
use crate::plan::End;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio, TransferRate};

/// The kind of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A shaper's rate.
    Shaper,
    /// The frames of an Ethernet link.
    Ethernet,
    /// The links of a bond that the flows can use.
    Bond,
    /// The packets of RDMA over Converged Ethernet.
    Roce,
    /// The segments of iWARP, RDMA over TCP.
    Iwarp,
    /// The encoding of an InfiniBand link.
    Infiniband,
    /// The narrowest PCIe link.
    Pcie,
    /// The window per RTT.
    WindowRtt,
    /// The copies between user space and kernel.
    Copy,
    /// The bandwidth limit of a virtual machine's provider.
    Allowance,
    /// The rate that the trial asked for.
    Requested,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shaper => "shaper",
            Self::Ethernet => "Ethernet framing",
            Self::Bond => "bond",
            Self::Roce => "RoCE packets",
            Self::Iwarp => "iWARP segments",
            Self::Infiniband => "InfiniBand encoding",
            Self::Pcie => "PCIe",
            Self::WindowRtt => "window / round trip",
            Self::Copy => "memory copy",
            Self::Allowance => "provider's allowance",
            Self::Requested => "requested rate",
        })
    }
}

/// An upper bound of a path's rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ceiling {
    /// The kind of the bound.
    pub bound: Bound,
    /// The bound.
    pub bit_per_s: BitRate,
    /// Its arithmetic as text.
    pub reason: String,
    /// The end whose hardware or setting it is; null for figures from the command line.
    pub end: Option<End>,
    /// The subject on that end: nic/eth2.
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

    /// The share of this ceiling that `rate` reaches; `None` for a ceiling of 0.
    pub fn share(&self, rate: BitRate) -> Option<Ratio> {
        share(rate, self.bit_per_s)
    }
}

impl Bound {
    /// By how much a rate can exceed this bound although the bound is right, as a share of it, and why.
    pub fn tolerance(self) -> (Ratio, &'static str) {
        let (share, why) = match self {
            Self::Ethernet | Self::Bond | Self::Roce | Self::Iwarp | Self::Infiniband => (
                0.000_2,
                "the clocks of the link and of the host may each be off by 100 ppm (IEEE 802.3)",
            ),
            Self::Pcie => (
                0.000_6,
                "the reference clock of PCIe may be off by 300 ppm, as may the host's",
            ),
            Self::Shaper => (
                0.003,
                "a shaper computes in ticks and may send its burst on top of its rate",
            ),
            Self::WindowRtt => (0.02, "the round trip is measured, by its shortest"),
            Self::Copy => (0.1, "the copy bandwidth is measured, in short samples"),
            Self::Allowance => (0.01, "a provider enforces its limit over seconds"),
            Self::Requested => (
                0.01,
                "the host sends in bursts, the last of which may count as a whole",
            ),
        };
        (Ratio::new(share), why)
    }
}

/// `rate` as a share of `whole`.
pub fn share(rate: BitRate, whole: BitRate) -> Option<Ratio> {
    (whole.as_bit_per_s() > 0).then(|| Ratio::new(rate.as_f64() / whole.as_f64()))
}

/// A tunnel that adds outer headers to each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tunnel {
    /// RFC 7348: inner Ethernet 14, VXLAN 8, UDP 8.
    Vxlan,
    /// RFC 8926 without options: inner Ethernet 14, Geneve 8, UDP 8.
    Geneve,
    /// RFC 2784 without key: 4.
    Gre,
    /// RFC 2003: nothing but the outer IP header.
    Ipip,
}

impl Tunnel {
    /// The bytes it adds to a packet, including the outer IP header.
    fn bytes(self, outer_ipv6: bool) -> u32 {
        let outer = if outer_ipv6 { 40 } else { 20 };
        outer
            + match self {
                Self::Vxlan | Self::Geneve => 30,
                Self::Gre => 4,
                Self::Ipip => 0,
            }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "VXLAN",
            Self::Geneve => "Geneve",
            Self::Gre => "GRE",
            Self::Ipip => "IP in IP",
        }
    }
}

/// The properties of an Ethernet link that decide how much TCP payload its frames carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthernetPath {
    /// The speed of the link, one direction.
    pub speed: BitRate,
    /// The MTU in bytes (of the tunnel's interface, when there is one).
    pub mtu: u32,
    /// The TCP options of every segment in bytes: 12 with timestamps (RFC 7323, padded), else 0.
    pub options_bytes: u32,
    /// Whether the packets are IPv6 (40 bytes of header instead of 20).
    pub ipv6: bool,
    /// How many VLAN tags each frame carries (4 bytes each).
    pub vlan_tags: u32,
    /// The tunnel that the packets travel in.
    pub tunnel: Option<Tunnel>,
    /// Whether the tunnel's outer packets are IPv6.
    pub outer_ipv6: bool,
    /// UDP datagrams with this payload size instead of full TCP segments.
    #[serde(default)]
    pub datagram_bytes: Option<u32>,
}

/// The size of the TCP timestamps option in every segment: 10 bytes and 2 of padding (RFC 7323).
pub const TIMESTAMPS_BYTES: u32 = 12;

impl EthernetPath {
    /// A link of `speed` and `mtu` that carries IPv4 with TCP timestamps and nothing else.
    pub fn plain(speed: BitRate, mtu: u32) -> Self {
        Self {
            speed,
            mtu,
            options_bytes: TIMESTAMPS_BYTES,
            ipv6: false,
            vlan_tags: 0,
            tunnel: None,
            outer_ipv6: false,
            datagram_bytes: None,
        }
    }
}

/// TCP goodput over Ethernet: the payload of a full frame divided by its size on the wire, including header 14, FCS
/// 4, preamble 8 and inter-frame gap 12 bytes.
pub fn ethernet(path: &EthernetPath) -> Known<Ceiling> {
    let headers = tcp_headers(path.ipv6);
    let tags = u64::from(path.vlan_tags);
    let tunnel = path
        .tunnel
        .map(|tunnel| (tunnel, tunnel.bytes(path.outer_ipv6)));
    let tunnel_bytes = tunnel.map_or(0, |(_, bytes)| u64::from(bytes));
    if let Some(datagram) = path.datagram_bytes {
        let each = 38 + tags * 4 + tunnel_bytes;
        return datagrams(path.speed, path.mtu, datagram, path.ipv6, each).map(|(bound, sum)| {
            let reason = format!("{sum}: UDP payload over its frames on the wire");
            Ceiling::new(Bound::Ethernet, bound, reason)
        });
    }
    let wire = u64::from(path.mtu) + 38 + tags * 4 + tunnel_bytes;
    let tagged = match tags {
        0 => String::new(),
        tags => format!(" + {tags} x 4 VLAN"),
    };
    let tunnelled = match tunnel {
        Some((tunnel, bytes)) => format!(" + {bytes} {}", tunnel.name()),
        None => String::new(),
    };
    payload(path.mtu, headers, path.options_bytes).map(|payload| {
        let bound = scaled(path.speed, payload, wire);
        let options = match path.options_bytes {
            0 => String::new(),
            TIMESTAMPS_BYTES => format!(" - {TIMESTAMPS_BYTES} timestamps"),
            bytes => format!(" - {bytes} TCP options"),
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

/// Goodput of datagrams with `datagram` bytes of payload at `rate` if every packet has `each` bytes of overhead, and
/// its arithmetic. A datagram above the MTU is fragmented (RFC 791, RFC 8200 section 4.5): all fragments but the last
/// carry a multiple of 8 bytes.
fn datagrams(
    rate: BitRate,
    mtu: u32,
    datagram: u32,
    ipv6: bool,
    each: u64,
) -> Known<(BitRate, String)> {
    const UDP: u64 = 8;
    let (header, fragment_header) = if ipv6 { (40, 8) } else { (20, 0) };
    let whole = u64::from(datagram) + UDP;
    let room = u64::from(mtu).saturating_sub(header);
    let (packets, header) = if whole <= room {
        (1, header)
    } else {
        let part = room.saturating_sub(fragment_header) / 8 * 8;
        if part == 0 {
            return Known::unknown(
                Cause::Unreadable,
                "MTU",
                format!("an MTU of {mtu} is too small for a fragment"),
            );
        }
        (whole.div_ceil(part), header + fragment_header)
    };
    let wire = whole + packets * (header + each);
    let bound = scaled(rate, u64::from(datagram), wire);
    let fragments = match packets {
        1 => String::new(),
        packets => format!(" in {packets} fragments"),
    };
    let sum = format!(
        "{rate} x {datagram} / ({datagram} + {UDP} + {packets} x ({header} + {each}){fragments}) = {bound}"
    );
    Known::Value((bound, sum))
}

/// The headers of IP and TCP without options.
fn tcp_headers(ipv6: bool) -> u32 {
    if ipv6 { 60 } else { 40 }
}

/// The bandwidth of a bond for `flows` flows: the hash assigns each flow to one link, so one flow gets one link, and
/// n flows get the n fastest links at best (Documentation/networking/bonding.rst, "xmit_hash_policy"). `None` for a
/// bond without links.
pub fn bond(links: &[Ceiling], flows: u32) -> Option<Ceiling> {
    let mut fastest: Vec<&Ceiling> = links.iter().collect();
    fastest.sort_by_key(|link| std::cmp::Reverse(link.bit_per_s));
    let used = fastest
        .iter()
        .take(usize::try_from(flows.max(1)).unwrap_or(usize::MAX));
    let rates: Vec<BitRate> = used.map(|link| link.bit_per_s).collect();
    let sum = rates
        .iter()
        .fold(0u64, |sum, rate| sum.saturating_add(rate.as_bit_per_s()));
    let bound = BitRate::from_bit_per_s(sum);
    let words: Vec<String> = rates.iter().map(ToString::to_string).collect();
    let first = fastest.first()?;
    let sum = match words.as_slice() {
        [_] => String::new(),
        _ => format!("{} = ", words.join(" + ")),
    };
    let used = if flows == 1 {
        "1 flow uses 1".to_owned()
    } else {
        format!("{flows} flows use {} at best", rates.len())
    };
    let reason = format!(
        "{sum}{bound}: {used} of {} links, one per flow; each link: {}",
        links.len(),
        first.reason
    );
    let mut ceiling = Ceiling::new(Bound::Bond, bound, reason);
    ceiling.evidence = links
        .iter()
        .flat_map(|link| link.evidence.clone())
        .collect();
    Some(ceiling)
}

/// The bandwidth limits of a virtual machine's provider: for all flows together, and per flow.
pub fn allowance(of_all: BitRate, of_flow: Option<BitRate>, flows: u32) -> Ceiling {
    let by_flows = of_flow.map(|one| (one, scaled(one, u64::from(flows), 1)));
    match by_flows {
        Some((one, bound)) if bound < of_all => Ceiling::new(
            Bound::Allowance,
            bound,
            format!("{flows} x {one} = {bound}: the provider's allowance for each flow"),
        ),
        _ => Ceiling::new(
            Bound::Allowance,
            of_all,
            format!("{of_all}: the provider's allowance for the machine"),
        ),
    }
}

/// The rate that a trial asked for, `each` of `flows`.
fn requested(each: BitRate, flows: u32) -> Ceiling {
    let bound = scaled(each, u64::from(flows), 1);
    let reason = format!("{flows} x {each} = {bound}: the rate that was asked for");
    Ceiling::new(Bound::Requested, bound, reason)
}

/// Goodput of TCP through a shaper (TBF, HTB) of `rate`: the shaper counts the frame with its Ethernet header,
/// without preamble, gap and FCS.
///
/// Segmentation offload does not change the ratio: for a GSO packet `qdisc_pkt_len_init` (net/core/dev.c) adds the
/// headers of every segment but the first to the length that the shaper counts, as if the packet had been segmented
/// already; a packet longer than TBF's burst is segmented by `tbf_segment`. The bucket may pass one additional burst,
/// which matters only at the start of a trial. The options `overhead` and `linklayer` lower the goodput further and
/// are not counted.
pub fn shaper(rate: BitRate, mtu: u32, options_bytes: u32, ipv6: bool) -> Known<Ceiling> {
    let frame = u64::from(mtu) + 14;
    payload(mtu, tcp_headers(ipv6), options_bytes).map(|payload| {
        let bound = scaled(rate, payload, frame);
        let reason = format!(
            "{rate} x {payload}/{frame} = {bound}: a shaper counts the frame without preamble and FCS"
        );
        Ceiling::new(Bound::Shaper, bound, reason)
    })
}

/// The same for UDP datagrams with this payload size.
pub fn shaper_of_datagrams(rate: BitRate, mtu: u32, datagram: u32, ipv6: bool) -> Known<Ceiling> {
    datagrams(rate, mtu, datagram, ipv6, 14).map(|(bound, sum)| {
        let reason = format!("{sum}: a shaper counts the frame without preamble and FCS");
        Ceiling::new(Bound::Shaper, bound, reason)
    })
}

/// The kernel's bandwidth for one PCIe lane without encoding overhead (`PCIE_SPEED2MBS_ENC`); `None` for an unknown
/// transfer rate.
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

/// TLP overhead: header with 64-bit addresses (16), sequence and framing (4) and LCRC (4). Flow control and
/// descriptors add to it, so this is a lower bound.
const TLP_OVERHEAD_BYTES: u64 = 24;

/// The bandwidth of the narrowest PCIe link between a device and its root port. With `max_payload` (MaxPayload,
/// bytes), TLP headers are subtracted too.
pub fn pcie(link: &PcieLink, max_payload: Option<u32>) -> Known<Ceiling> {
    let narrowest = match link.limited_by.get() {
        Some(address) => format!(", limited by the link at {address}"),
        None => String::new(),
    };
    link.available_bit_per_s.clone().map(|available| {
        let (bound, payload) = pcie_payload(available, max_payload);
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

/// The transfer rate of a PCIe generation, 1 to 6.
pub fn pcie_generation(generation: u32) -> Option<TransferRate> {
    let rate = match generation {
        1 => 2_500,
        2 => 5_000,
        3 => 8_000,
        4 => 16_000,
        5 => 32_000,
        6 => 64_000,
        _ => return None,
    };
    Some(TransferRate::from_mt_per_s(rate))
}

/// The bandwidth of a PCIe link with `width` lanes at `rate`; with `max_payload`, TLP headers are subtracted.
pub fn pcie_of(rate: TransferRate, width: u32, max_payload: Option<u32>) -> Known<Ceiling> {
    let Some(lane) = pcie_lane(rate) else {
        let reason = format!("unknown lane rate {rate}");
        return Known::unknown(Cause::Unreadable, "PCIE_SPEED2MBS_ENC", reason);
    };
    let available = scaled(lane, u64::from(width), 1);
    let (bound, packets) = pcie_payload(available, max_payload);
    let reason = format!(
        "{} = {width} lanes x {} at {rate}{packets}",
        gigabits(available),
        gigabits(lane)
    );
    Known::Value(Ceiling::new(Bound::Pcie, bound, reason))
}

/// The payload share of a PCIe link's TLPs, and its arithmetic.
fn pcie_payload(available: BitRate, max_payload: Option<u32>) -> (BitRate, String) {
    match max_payload {
        Some(size) if size > 0 => {
            let bytes = u64::from(size);
            let bound = scaled(available, bytes, bytes + TLP_OVERHEAD_BYTES);
            let words =
                format!(" x {bytes}/({bytes} + {TLP_OVERHEAD_BYTES}) of PCIe packets = {bound}");
            (bound, words)
        }
        _ => (available, String::new()),
    }
}

/// A PCIe link as the kernel prints it, `8.0 GT/s x8`.
pub(crate) fn link_words(rate: Option<TransferRate>, width: Option<u32>) -> String {
    let rate = rate.map_or_else(|| "? GT/s".to_owned(), |rate| rate.to_string());
    let width = width.map_or_else(|| "?".to_owned(), |width| width.to_string());
    format!("{rate} x{width}")
}

/// `flows` connections cannot send more than one window each per RTT.
///
/// The caller passes the whole buffer as `window`: the kernel uses about half of it for payload at first
/// (`tcp_adv_win_scale` 1, fixed before Linux 6.6) and since 6.6 measures the share (`scaling_ratio`), which comes
/// close to 1 with large receive offload. Only the whole buffer is an upper bound.
pub fn window_rtt(window: Bytes, rtt: Nanoseconds, flows: u32) -> Known<Ceiling> {
    let Some(one) = BitRate::of(window, rtt) else {
        return Known::unknown(
            Cause::Unreadable,
            "TCP_INFO tcpi_min_rtt",
            "an RTT of 0 gives no bound",
        );
    };
    let bound = scaled(one, u64::from(flows), 1);
    let reason = format!("{flows} x {window} / {rtt} = {bound}: one window per flow per RTT");
    Known::Value(Ceiling::new(Bound::WindowRtt, bound, reason))
}

/// Every byte is copied once into the sender's kernel and once out of the receiver's, each by the flow's own thread;
/// `bandwidth` is the measured copy rate of one thread with buffers of the workload's size. With `shared_cpus` both
/// ends share that many CPUs, which bounds both copies together.
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
    let taken = headers.saturating_add(options);
    match mtu.checked_sub(taken) {
        Some(bytes) if bytes > 0 => Known::Value(u64::from(bytes)),
        _ => Known::unknown(
            Cause::Unreadable,
            "mtu",
            format!("an MTU of {mtu} has no room for TCP payload after {taken} bytes of headers"),
        ),
    }
}

/// `rate` x `part` / `whole`, exact and saturating. `whole` is never 0 here; if it were, there would be no bound.
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
mod tests;
