//! The ceilings of a whole path, from both hosts and a trial between them.

mod verbs;

use serde::{Deserialize, Serialize};

use super::{
    Bound, Ceiling, EthernetPath, InfinibandSpeed, TIMESTAMPS_BYTES, Tunnel, bond, copy, ethernet,
    infiniband, pcie, requested, shaper, shaper_of_datagrams, window_rtt,
};
use crate::analysis::{self, OneWay};
use crate::buffers::{self, Buffer};
use crate::finding::Evidence;
use crate::host::{Host, Nic, NicKind};
use crate::ids::NicName;
use crate::known::{Cause, Gap, Known};
use crate::plan::End;
use crate::sample::{Sample, SideSample};
use crate::shell;
use crate::units::{BitRate, Bytes};
use crate::workload::{Direction, Workload};

/// What is known of a path.
#[derive(Debug, Clone, Copy)]
pub struct PathFacts<'a> {
    /// The host that linerate was started on.
    pub local: &'a Host,
    /// Its interface on the path.
    pub local_nic: &'a NicName,
    /// The peer's host.
    pub remote: &'a Host,
    /// Its interface on the path.
    pub remote_nic: &'a NicName,
    /// Connections in each direction that carries data.
    pub flows: u32,
    /// The direction of the data.
    pub direction: Direction,
    /// Whether the flows use IPv6.
    pub ipv6: bool,
    /// UDP datagrams with this payload size instead of TCP.
    pub datagram_bytes: Option<u32>,
    /// The measured copy rate of one thread.
    pub copy_bandwidth: Option<BitRate>,
    /// A trial over the path: provides the RTT and whether timestamps are on.
    pub sample: Option<&'a Sample>,
}

/// The ceilings of a path, lowest first, and those that could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathCeilings {
    /// The bounds, lowest first.
    pub ceilings: Vec<Ceiling>,
    /// The bounds that lack a value.
    pub undetermined: Vec<UnknownCeiling>,
}

/// A ceiling that could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCeiling {
    /// The kind of the bound.
    pub bound: Bound,
    /// The end it belongs to.
    pub end: Option<End>,
    /// The subject at that end, `nic/eth2`.
    pub subject: Option<String>,
    /// The missing value.
    pub missing: Gap,
}

impl PathCeilings {
    /// The lowest bound: the ceiling of the path.
    pub fn lowest(&self) -> Option<&Ceiling> {
        self.ceilings.first()
    }

    /// Adds the bounds of an end, with the subject `nic/eth2` or `rdma/mlx5_0`.
    fn add(&mut self, bound: Bound, at: Option<(End, &str)>, ceiling: Known<Ceiling>) {
        let end = at.map(|(end, _)| end);
        let subject = at.map(|(_, subject)| subject.to_owned());
        match ceiling {
            Known::Value(ceiling) => self.ceilings.push(Ceiling {
                end,
                subject,
                ..ceiling
            }),
            Known::Unknown(missing) => self.undetermined.push(UnknownCeiling {
                bound,
                end,
                subject,
                missing,
            }),
        }
    }
}

/// Per-packet overhead, and the number of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packets {
    /// Their MTU, instead of the interface's.
    pub mtu: Option<u32>,
    /// TCP options of every segment, bytes.
    pub options_bytes: u32,
    /// Whether they are IPv6.
    pub ipv6: bool,
    /// VLAN tags in addition to those of the host's own interfaces.
    pub vlan_tags: u32,
    /// A tunnel in addition to those of the host's own interfaces.
    pub tunnel: Option<Tunnel>,
    /// Whether that tunnel's outer packets are IPv6.
    pub outer_ipv6: bool,
    /// Connections.
    pub flows: u32,
    /// UDP datagrams with this payload size instead of full TCP segments.
    pub datagram_bytes: Option<u32>,
}

impl Packets {
    /// The MTU for packets sent by `top`, and its source.
    fn mtu_of(&self, top: &Nic) -> (Known<u32>, String) {
        match self.mtu {
            Some(mtu) => (Known::Value(mtu), "given".to_owned()),
            None => (top.mtu.clone(), sys(top, "mtu")),
        }
    }
}

/// The ceilings of one interface of one host, independent of the other end.
pub fn ceilings_of_nic(host: &Host, nic: &Nic, packets: Packets) -> PathCeilings {
    let mut all = PathCeilings::default();
    let chain = chain(host, nic);
    wire_bounds(&mut all, host, End::Local, &chain, packets);
    for lower in &chain {
        if let Some(bound) = shaper_bound(lower, nic, packets) {
            all.add(Bound::Shaper, Some((End::Local, &subject(lower))), bound);
        }
    }
    all.ceilings.sort_by_key(|ceiling| ceiling.bit_per_s);
    all
}

/// One end of one direction.
#[derive(Clone, Copy)]
struct Side<'a> {
    end: End,
    host: &'a Host,
    nic: &'a NicName,
}

fn ends<'a>(path: &PathFacts<'a>) -> [Side<'a>; 2] {
    [
        Side {
            end: End::Local,
            host: path.local,
            nic: path.local_nic,
        },
        Side {
            end: End::Remote,
            host: path.remote,
            nic: path.remote_nic,
        },
    ]
}

fn side_of(sample: &Sample, end: End) -> &SideSample {
    match end {
        End::Local => &sample.local,
        End::Remote => &sample.remote,
    }
}

/// Every ceiling of the path that can be computed. A bidirectional rate is the sum of both directions, so the bound
/// is the sum of the lowest bound of each.
pub fn ceilings_of_path(path: &PathFacts<'_>) -> PathCeilings {
    let [local, remote] = ends(path);
    let mut all = match path.direction {
        Direction::Forward => one_way(path, local, remote),
        Direction::Reverse => one_way(path, remote, local),
        Direction::Bidirectional => {
            both_ways(&one_way(path, local, remote), &one_way(path, remote, local))
        }
    };
    let ways = if path.direction == Direction::Bidirectional {
        2
    } else {
        1
    };
    let asked = path.sample.and_then(|sample| match &sample.spec.workload {
        Workload::Udp(udp) => udp.rate_bit_per_s,
        _ => sample.spec.pacing_bit_per_s,
    });
    let asked = asked.map(|each| requested(each, path.flows.saturating_mul(ways)));
    all.ceilings.extend(asked);
    if let Some(bandwidth) = path.copy_bandwidth.filter(|_| verbs::copies(path)) {
        let shared = same_kernel(path.local, path.remote)
            .then(|| u32::try_from(path.local.online_cpus().len()).unwrap_or(u32::MAX));
        let flows = path.flows.saturating_mul(ways);
        all.add(Bound::Copy, None, copy(bandwidth, flows, shared).into());
    }
    all.ceilings.sort_by_key(|ceiling| ceiling.bit_per_s);
    all
}

/// Whether two hosts are network namespaces of one kernel; unknown boot IDs are not equal.
pub(crate) fn same_kernel(one: &Host, other: &Host) -> bool {
    let id = one.identity.boot_id.value();
    id.is_some() && id == other.identity.boot_id.value()
}

fn both_ways(forward: &PathCeilings, reverse: &PathCeilings) -> PathCeilings {
    let lowest = |all: &PathCeilings| all.ceilings.iter().min_by_key(|c| c.bit_per_s).cloned();
    let mut both = PathCeilings {
        undetermined: forward.undetermined.clone(),
        ..PathCeilings::default()
    };
    for unknown in &reverse.undetermined {
        if !both.undetermined.contains(unknown) {
            both.undetermined.push(unknown.clone());
        }
    }
    // If one direction has no bound, the sum has none.
    if let (Some(there), Some(back)) = (lowest(forward), lowest(reverse)) {
        let sum = there
            .bit_per_s
            .as_bit_per_s()
            .saturating_add(back.bit_per_s.as_bit_per_s());
        both.ceilings.push(Ceiling {
            bit_per_s: BitRate::from_bit_per_s(sum),
            reason: format!("there: {}; back: {}", there.reason, back.reason),
            evidence: there.evidence.into_iter().chain(back.evidence).collect(),
            ..there
        });
    }
    both
}

fn one_way(path: &PathFacts<'_>, sender: Side<'_>, receiver: Side<'_>) -> PathCeilings {
    if let Some(all) = verbs::one_way(path, sender, receiver) {
        return all;
    }
    let mut all = PathCeilings::default();
    let packets = Packets {
        mtu: None,
        options_bytes: if timestamps(path) {
            TIMESTAMPS_BYTES
        } else {
            0
        },
        ipv6: path.ipv6,
        vlan_tags: 0,
        tunnel: None,
        outer_ipv6: false,
        flows: path.flows,
        datagram_bytes: path.datagram_bytes,
    };
    for side in [sender, receiver] {
        let Some(top) = side.host.nic(side.nic) else {
            all.undetermined.push(UnknownCeiling {
                bound: Bound::Ethernet,
                end: Some(side.end),
                subject: Some(format!("nic/{}", side.nic)),
                missing: Gap::new(
                    Cause::Absent,
                    format!("/sys/class/net/{}", side.nic),
                    "no such interface",
                ),
            });
            continue;
        };
        let chain = chain(side.host, top);
        wire_bounds(&mut all, side.host, side.end, &chain, packets);
        if side.end == sender.end {
            // Only egress is shaped: the qdiscs of the receiving end see ACKs.
            for nic in &chain {
                if let Some(bound) = shaper_bound(nic, top, packets) {
                    all.add(Bound::Shaper, Some((side.end, &subject(nic))), bound);
                }
            }
        }
    }
    // Datagrams do not wait for a window.
    if path.datagram_bytes.is_none() {
        let window = window_bound(path, sender, receiver);
        all.add(Bound::WindowRtt, None, window);
    }
    all
}

/// Whether segments carry timestamps: as seen in a trial, otherwise whether both ends would negotiate them. If that
/// is unknown they count as off, which makes the bound more generous.
fn timestamps(path: &PathFacts<'_>) -> bool {
    let seen = path.sample.and_then(|sample| {
        let flows = sample.local.flows.iter().chain(&sample.remote.flows);
        flows
            .filter_map(|flow| flow.tcp.value())
            .map(|tcp| tcp.timestamps)
            .next()
    });
    let asked = |host: &Host| {
        host.sysctl("net.ipv4.tcp_timestamps")
            .value()
            .is_some_and(|text| text.trim() != "0")
    };
    seen.unwrap_or_else(|| asked(path.local) && asked(path.remote))
}

/// The interface and its lower interfaces, down to the first one where it is not known which lower link carries the
/// flow. An untrusted capture may contain a loop, so the depth is limited.
fn chain<'a>(host: &'a Host, top: &'a Nic) -> Vec<&'a Nic> {
    const DEPTH_MAX: usize = 8;
    let mut chain = vec![top];
    while chain.len() < DEPTH_MAX {
        let nic = chain[chain.len() - 1];
        let below = nic.lower().iter().filter_map(|name| host.nic(name));
        let mut below: Box<dyn Iterator<Item = &Nic>> = match nic.kind {
            NicKind::Vlan | NicKind::Macvlan | NicKind::Tunnel => Box::new(below),
            // Traffic that leaves through a bridge uses a port with a physical link.
            NicKind::Bridge => Box::new(below.filter(|port| leads_out(port))),
            // One link carries all traffic while the others are standby.
            NicKind::Bond => match active_slave(nic) {
                Some(active) => Box::new(below.filter(move |slave| slave.name == active)),
                None => break,
            },
            _ => break,
        };
        match (below.next(), below.next()) {
            (Some(only), None) => chain.push(only),
            _ => break,
        }
    }
    chain
}

fn leads_out(port: &Nic) -> bool {
    port.kind.has_wire() || matches!(port.kind, NicKind::Bond | NicKind::Vlan | NicKind::Tunnel)
}

/// The active slave of a bond in a mode that uses only one.
fn active_slave(nic: &Nic) -> Option<NicName> {
    let bond = nic.stack.bond.as_ref()?;
    let single = bond
        .mode
        .value()
        .is_some_and(|mode| mode.starts_with("active-backup"));
    single.then(|| bond.active_slave.value().cloned()).flatten()
}

/// The frame layout at a chain's lowest interface, including what the upper interfaces add.
fn frames(chain: &[&Nic], wire: &Nic, packets: Packets) -> Known<Ceiling> {
    let top = chain[0];
    let count = |kind| chain.iter().filter(|nic| nic.kind == kind).count();
    let own_tunnel = chain
        .iter()
        .find(|nic| nic.kind == NicKind::Tunnel)
        .map(|nic| {
            let kind = nic
                .stack
                .tunnel
                .as_ref()
                .and_then(|tunnel| tunnel.kind.value());
            match kind.map(String::as_str) {
                Some("geneve") => Tunnel::Geneve,
                Some("gre" | "gretap" | "ip6gre" | "ip6gretap") => Tunnel::Gre,
                Some("ipip" | "ip6tnl" | "sit") => Tunnel::Ipip,
                _ => Tunnel::Vxlan,
            }
        });
    let vlans = u32::try_from(count(NicKind::Vlan)).unwrap_or(u32::MAX);
    let (mtu, mtu_from) = packets.mtu_of(top);
    let bound = wire.link_bit_per_s.clone().and_then(|speed| {
        mtu.clone().and_then(|mtu| {
            ethernet(&EthernetPath {
                speed,
                mtu,
                options_bytes: packets.options_bytes,
                ipv6: packets.ipv6,
                vlan_tags: packets.vlan_tags.saturating_add(vlans),
                tunnel: own_tunnel.or(packets.tunnel),
                outer_ipv6: own_tunnel.is_none() && packets.outer_ipv6,
                datagram_bytes: packets.datagram_bytes,
            })
        })
    });
    bound.map(|mut ceiling| {
        ceiling.evidence = vec![
            known_evidence("link speed", &wire.link_bit_per_s, sys(wire, "speed")),
            known_evidence("MTU in bytes", &mtu, mtu_from),
        ];
        ceiling
    })
}

/// The bound of a bond in a mode where all links carry traffic: that of the links that are up.
fn bond_bound(host: &Host, chain: &[&Nic], nic: &Nic, packets: Packets) -> Known<Ceiling> {
    of_links(host, nic, packets.flows, |link| {
        frames(chain, link, packets)
    })
}

/// The bandwidth of the links of the bond `nic` for `flows` flows, with the bound `of_link` for each link.
fn of_links(
    host: &Host,
    nic: &Nic,
    flows: u32,
    of_link: impl Fn(&Nic) -> Known<Ceiling>,
) -> Known<Ceiling> {
    let mut links = Vec::new();
    for slave in nic.lower().iter().filter_map(|name| host.nic(name)) {
        if slave.operstate.value().is_some_and(|state| state == "down") {
            continue;
        }
        match of_link(slave) {
            Known::Value(link) => links.push(link),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    match bond(&links, flows) {
        Some(bound) => Known::Value(bound),
        None => Known::unknown(
            Cause::NotSaid,
            sys(nic, "lower_*"),
            "no link of the bond is up",
        ),
    }
}

/// The bound of an IPoIB interface: the encoding of its port's link as reported by the RDMA device, otherwise the
/// interface's speed. Headers are not counted.
fn infiniband_bound(host: &Host, nic: &Nic) -> Known<Ceiling> {
    let ports = host.rdma.iter().flat_map(|device| &device.ports);
    let port = ports
        .into_iter()
        .find(|port| port.netdev.value() == Some(&nic.name));
    let named = port.and_then(|port| {
        let speed: InfinibandSpeed = port.speed.value()?.parse().ok()?;
        Some(infiniband(speed, port.width.get()?))
    });
    match named {
        Some(bound) => Known::Value(bound),
        None => nic.link_bit_per_s.clone().map(|speed| {
            let reason = format!(
                "{speed}: the rate of the InfiniBand link, without header \
                overhead"
            );
            Ceiling::new(Bound::Infiniband, speed, reason)
        }),
    }
}

fn wire_bounds(all: &mut PathCeilings, host: &Host, end: End, chain: &[&Nic], packets: Packets) {
    let nic = chain[chain.len() - 1];
    let subject = subject(nic);
    let at = Some((end, subject.as_str()));
    match nic.kind {
        // A path through these has no physical link at this end.
        NicKind::Veth | NicKind::Loopback | NicKind::Tun => return,
        NicKind::Bond | NicKind::Team => {
            all.add(Bound::Bond, at, bond_bound(host, chain, nic, packets));
            return;
        }
        NicKind::Bridge | NicKind::Vlan | NicKind::Tunnel | NicKind::Macvlan | NicKind::Other => {
            let gap = Known::unknown(
                Cause::NotAsked,
                format!("/sys/class/net/{}", nic.name),
                "the underlying link that carries the flow is unknown",
            );
            all.add(Bound::Ethernet, at, gap);
            return;
        }
        NicKind::Ipoib => all.add(Bound::Infiniband, at, infiniband_bound(host, nic)),
        NicKind::Physical | NicKind::Virtual => {
            all.add(Bound::Ethernet, at, frames(chain, nic, packets));
        }
    }
    // A device that is not on PCI (virtio-mmio, USB) has no PCIe link.
    if nic.pci_address.value().is_some() {
        all.add(
            Bound::Pcie,
            at,
            nic.pcie.clone().and_then(|link| pcie(&link, None)),
        );
    }
}

fn subject(nic: &Nic) -> String {
    format!("nic/{}", nic.name)
}

fn sys(nic: &Nic, file: &str) -> String {
    format!("/sys/class/net/{}/{file}", nic.name)
}

fn known_evidence<T: std::fmt::Display>(what: &str, value: &Known<T>, path: String) -> Evidence {
    match value {
        Known::Value(value) => Evidence::new(what, value, path),
        Known::Unknown(gap) => Evidence::new(what, format!("unknown: {gap}"), path),
    }
}

/// The bound of the root qdisc of `nic`, if it is a shaper.
fn shaper_bound(nic: &Nic, top: &Nic, packets: Packets) -> Option<Known<Ceiling>> {
    let qdisc = match &nic.qdisc {
        Known::Value(qdisc) if qdisc.shapes() => qdisc,
        Known::Value(_) => return None,
        Known::Unknown(gap) => return Some(Known::Unknown(gap.clone())),
    };
    let Some(rate) = qdisc.rate_bit_per_s else {
        return Some(Known::Unknown(qdisc.rate_gap(&nic.name)));
    };
    let (mtu, _) = packets.mtu_of(top);
    let bound = mtu.and_then(|mtu| match packets.datagram_bytes {
        Some(datagram) => shaper_of_datagrams(rate, mtu, datagram, packets.ipv6),
        None => shaper(rate, mtu, packets.options_bytes, packets.ipv6),
    });
    Some(bound.map(|mut ceiling| {
        ceiling.evidence = vec![Evidence::new(
            format!("rate of the root qdisc {}", qdisc.kind),
            rate,
            format!("tc qdisc show dev {}", shell::quoted(nic.name.as_str())),
        )];
        ceiling
    }))
}

/// The kernel checks for free space in the send buffer, then queues a packet of up to 64 KiB: the buffer may be
/// exceeded by that much.
const SEND_OVERSHOOT: Bytes = Bytes::kib(64);

fn window_bound(path: &PathFacts<'_>, sender: Side<'_>, receiver: Side<'_>) -> Known<Ceiling> {
    let no_rtt = || {
        Known::unknown(
            Cause::NotAsked,
            "TCP_INFO tcpi_min_rtt",
            "no trial measured the round-trip time of this direction",
        )
    };
    let Some(sample) = path.sample else {
        return no_rtt();
    };
    let Some(rtt) = analysis::ways(sample)
        .into_iter()
        .find(|way| way.from == sender.end)
        .and_then(|way| OneWay::rtt_min(&way))
    else {
        return no_rtt();
    };
    let asked = sample.spec.socket_buffer_bytes;
    let sent = buffers::largest(sender.host, Buffer::Send, asked);
    let received = buffers::largest(receiver.host, Buffer::Receive, asked);
    sent.and_then(|sent| {
        let sent = Bytes::new(sent.as_u64().saturating_add(SEND_OVERSHOOT.as_u64()));
        received.and_then(|received| {
            let (window, narrower) = if sent < received {
                (sent, Buffer::Send)
            } else {
                (received, Buffer::Receive)
            };
            window_rtt(window, rtt, path.flows).map(|mut ceiling| {
                ceiling.evidence = vec![
                    Evidence::new(
                        format!("largest {narrower}"),
                        window,
                        buffers::path(narrower.sysctl()),
                    ),
                    Evidence::new("smallest round-trip time", rtt, "TCP_INFO tcpi_min_rtt"),
                ];
                ceiling
            })
        })
    })
}

#[cfg(test)]
mod tests;
