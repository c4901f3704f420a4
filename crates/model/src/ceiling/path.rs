//! The ceilings of a whole path, from what is known of both hosts and of a trial between them.

use serde::{Deserialize, Serialize};

use super::{Bound, Ceiling, EthernetPath, copy, ethernet, pcie, shaper, window_rtt};
use crate::analysis::{self, Way};
use crate::buffers::{self, Buffer};
use crate::finding::Evidence;
use crate::host::{Host, Nic, NicKind};
use crate::ids::NicName;
use crate::known::{Cause, Gap, Known};
use crate::plan::End;
use crate::sample::Sample;
use crate::units::{BitRate, Bytes};
use crate::workload::Direction;

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
    /// Which way the bytes go.
    pub direction: Direction,
    /// What one thread copies, when that was measured.
    pub copy_bandwidth: Option<BitRate>,
    /// A trial over the path: gives the round-trip time and whether timestamps are on.
    pub sample: Option<&'a Sample>,
}

/// The ceilings of a path, lowest first, and those that could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathCeilings {
    /// The bounds, lowest first.
    pub ceilings: Vec<Ceiling>,
    /// The bounds that exist but lack a fact.
    pub undetermined: Vec<UnknownCeiling>,
}

/// A ceiling that could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCeiling {
    /// What would bound.
    pub bound: Bound,
    /// Where.
    pub end: Option<End>,
    /// What of that end, `nic/eth2`.
    pub subject: Option<String>,
    /// The fact that is missing.
    pub missing: Gap,
}

impl PathCeilings {
    /// The lowest bound: *the* ceiling.
    pub fn lowest(&self) -> Option<&Ceiling> {
        self.ceilings.first()
    }

    fn add(&mut self, bound: Bound, at: Option<(End, &Nic)>, ceiling: Known<Ceiling>) {
        let end = at.map(|(end, _)| end);
        let subject = at.map(|(_, nic)| format!("nic/{}", nic.name));
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

/// One end of one direction.
#[derive(Clone, Copy)]
struct Side<'a> {
    end: End,
    host: &'a Host,
    nic: &'a NicName,
}

/// Every ceiling of the path that can be computed. In both directions at once the rate is the sum of
/// both, so the bound is the sum of the lowest bounds of each.
pub fn ceilings_of_path(path: &PathFacts<'_>) -> PathCeilings {
    let local = Side {
        end: End::Local,
        host: path.local,
        nic: path.local_nic,
    };
    let remote = Side {
        end: End::Remote,
        host: path.remote,
        nic: path.remote_nic,
    };
    let mut all = match path.direction {
        Direction::Forward => one_way(path, local, remote),
        Direction::Reverse => one_way(path, remote, local),
        Direction::Bidirectional => {
            both_ways(&one_way(path, local, remote), &one_way(path, remote, local))
        }
    };
    if let Some(bandwidth) = path.copy_bandwidth {
        let ways = if path.direction == Direction::Bidirectional {
            2
        } else {
            1
        };
        let shared = same_kernel(path.local, path.remote)
            .then(|| u32::try_from(path.local.online_cpus().len()).unwrap_or(u32::MAX));
        let flows = path.flows.saturating_mul(ways);
        all.add(Bound::Copy, None, copy(bandwidth, flows, shared).into());
    }
    all.ceilings.sort_by_key(|ceiling| ceiling.bit_per_s);
    all
}

/// Whether two hosts are namespaces of one kernel; unknown boot ids are not equal.
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
    // A direction without a bound leaves the sum without one.
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
    let mut all = PathCeilings::default();
    let timestamps = timestamps(path);
    for side in [sender, receiver] {
        let Some(top) = side.host.nic(side.nic) else {
            all.undetermined.push(UnknownCeiling {
                bound: Bound::Ethernet,
                end: Some(side.end),
                subject: Some(format!("nic/{}", side.nic)),
                missing: Gap::new(
                    Cause::Absent,
                    format!("/sys/class/net/{}", side.nic),
                    "the host has no such interface",
                ),
            });
            continue;
        };
        let chain = chain(side.host, top);
        wire_bounds(&mut all, side.end, &chain, timestamps);
        if side.end == sender.end {
            // Only what leaves is shaped: the qdiscs of the receiving end see acknowledgements.
            for nic in &chain {
                if let Some(bound) = shaper_bound(nic, top, timestamps) {
                    all.add(Bound::Shaper, Some((side.end, nic)), bound);
                }
            }
        }
    }
    let window = window_bound(path, sender, receiver);
    all.add(Bound::WindowRtt, None, window);
    all
}

/// Whether segments carry timestamps: as a trial saw it, else if both ends would agree on them. Where
/// that is not known they count as off, which only makes the bound more generous.
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

/// The interface and what it stands on, down to the first that does not stand on exactly one other. A
/// hostile capture may close a circle, so the depth is limited.
fn chain<'a>(host: &'a Host, top: &'a Nic) -> Vec<&'a Nic> {
    const DEPTH_MAX: usize = 8;
    let mut chain = vec![top];
    while chain.len() < DEPTH_MAX {
        let nic = chain[chain.len() - 1];
        let stands = matches!(nic.kind, NicKind::Vlan | NicKind::Macvlan | NicKind::Tunnel);
        match (stands, nic.lower.as_slice()) {
            (true, [lower]) => match host.nic(lower) {
                Some(lower) => chain.push(lower),
                None => break,
            },
            _ => break,
        }
    }
    chain
}

fn wire_bounds(all: &mut PathCeilings, end: End, chain: &[&Nic], timestamps: bool) {
    let (top, nic) = (chain[0], chain[chain.len() - 1]);
    let at = Some((end, nic));
    match nic.kind {
        // A path through these has no wire at this end.
        NicKind::Veth | NicKind::Loopback | NicKind::Tun => return,
        NicKind::Bridge
        | NicKind::Bond
        | NicKind::Team
        | NicKind::Vlan
        | NicKind::Tunnel
        | NicKind::Macvlan
        | NicKind::Other => {
            let gap = Known::unknown(
                Cause::NotAsked,
                format!("/sys/class/net/{}", nic.name),
                "which link below it carries the flow is not known",
            );
            all.add(Bound::Ethernet, at, gap);
            return;
        }
        NicKind::Ipoib => {
            let bound = nic.link_bit_per_s.clone().map(|speed| {
                let reason =
                    format!("{speed}: the rate of the InfiniBand link, headers not counted");
                Ceiling::new(Bound::Infiniband, speed, reason)
            });
            all.add(Bound::Infiniband, at, bound);
        }
        NicKind::Physical | NicKind::Virtual => {
            let count = |kind| chain.iter().filter(|nic| nic.kind == kind).count();
            let bound = nic.link_bit_per_s.clone().and_then(|speed| {
                top.mtu.clone().and_then(|mtu| {
                    ethernet(&EthernetPath {
                        speed,
                        mtu,
                        timestamps,
                        ipv6: false,
                        vlan_tags: u32::try_from(count(NicKind::Vlan)).unwrap_or(u32::MAX),
                        vxlan: count(NicKind::Tunnel) > 0,
                    })
                })
            });
            let bound = bound.map(|mut ceiling| {
                ceiling.evidence = vec![
                    known_evidence("link speed", &nic.link_bit_per_s, sys(nic, "speed")),
                    known_evidence("MTU in bytes", &top.mtu, sys(top, "mtu")),
                ];
                ceiling
            });
            all.add(Bound::Ethernet, at, bound);
        }
    }
    // A function that is not on PCI (virtio-mmio, USB) has no PCIe link to ask for.
    if nic.pci_address.value().is_some() {
        all.add(
            Bound::Pcie,
            at,
            nic.pcie.clone().and_then(|link| pcie(&link, None)),
        );
    }
}

fn sys(nic: &Nic, file: &str) -> String {
    format!("/sys/class/net/{}/{file}", nic.name)
}

fn known_evidence<T: std::fmt::Display>(what: &str, value: &Known<T>, path: String) -> Evidence {
    match value {
        Known::Value(value) => Evidence::new(what, value, path),
        Known::Unknown(gap) => Evidence::new(what, format!("not known: {gap}"), path),
    }
}

/// The bound of the root qdisc of `nic`, when it shapes.
fn shaper_bound(nic: &Nic, top: &Nic, timestamps: bool) -> Option<Known<Ceiling>> {
    let qdisc = match &nic.qdisc {
        Known::Value(qdisc) if qdisc.shapes() => qdisc,
        Known::Value(_) => return None,
        Known::Unknown(gap) => return Some(Known::Unknown(gap.clone())),
    };
    let Some(rate) = qdisc.rate_bit_per_s else {
        return Some(Known::Unknown(qdisc.rate_gap(&nic.name)));
    };
    let bound = top
        .mtu
        .clone()
        .and_then(|mtu| shaper(rate, mtu, timestamps));
    Some(bound.map(|mut ceiling| {
        ceiling.evidence = vec![Evidence::new(
            format!("rate of the root qdisc {}", qdisc.kind),
            rate,
            format!("tc qdisc show dev {}", nic.name),
        )];
        ceiling
    }))
}

/// The kernel looks whether the send buffer has room, then queues a packet of up to 64 KiB: the buffer
/// may be passed by that much.
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
        .and_then(|way| Way::rtt_min(&way))
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
mod tests {
    use super::*;
    use crate::build::{self, NicBuilder};

    fn facts<'a>(local: &'a Host, remote: &'a Host, sample: Option<&'a Sample>) -> PathFacts<'a> {
        PathFacts {
            local,
            local_nic: &local.nics[0].name,
            remote,
            remote_nic: &remote.nics[0].name,
            flows: 1,
            direction: Direction::Forward,
            copy_bandwidth: None,
            sample,
        }
    }

    fn bounds(all: &PathCeilings) -> Vec<(Bound, String)> {
        let words = |ceiling: &Ceiling| (ceiling.bound, ceiling.bit_per_s.to_string());
        all.ceilings.iter().map(words).collect()
    }

    #[test]
    fn a_veth_has_no_wire_and_is_bounded_by_window_and_copies_only() {
        let (near, far) = build::veth_pair();
        let sample = build::sample().build();
        let path = PathFacts {
            copy_bandwidth: Some(BitRate::from_mbit_per_s(60_000)),
            ..facts(&near, &far, Some(&sample))
        };
        let all = ceilings_of_path(&path);
        // (4 MiB + 64 KiB) x 8 / 40 us; both ends copy on two shared CPUs.
        let wanted = [
            (Bound::Copy, "60.00 Gb/s".to_owned()),
            (Bound::WindowRtt, "852.0 Gb/s".to_owned()),
        ];
        assert_eq!(bounds(&all), wanted);
        assert_eq!(all.undetermined, []);
        assert_eq!(all.lowest().map(|c| c.bound), Some(Bound::Copy));
    }

    #[test]
    fn without_a_trial_the_window_is_undetermined_and_not_unbounded() {
        let (near, far) = build::veth_pair();
        let all = ceilings_of_path(&facts(&near, &far, None));
        assert_eq!(bounds(&all), []);
        assert_eq!(all.undetermined[0].bound, Bound::WindowRtt);
        assert_eq!(all.undetermined[0].missing.cause, Cause::NotAsked);
    }

    #[test]
    fn the_slower_of_two_cards_and_the_narrow_link_are_found_with_their_ends() {
        let card = |gbit, pcie| {
            build::host()
                .nic("eth2", |nic| {
                    nic.gbit(gbit).pcie(build::pcie_link(pcie, (8_000, 16)))
                })
                .build()
        };
        let (local, remote) = (card(100, (8_000, 8)), card(40, (8_000, 16)));
        let all = ceilings_of_path(&facts(&local, &remote, None));
        let ends: Vec<_> = all.ceilings.iter().map(|c| (c.bound, c.end)).collect();
        assert_eq!(
            ends,
            [
                (Bound::Ethernet, Some(End::Remote)),
                (Bound::Pcie, Some(End::Local)),
                (Bound::Ethernet, Some(End::Local)),
                (Bound::Pcie, Some(End::Remote)),
            ]
        );
        assert_eq!(
            all.lowest().map(|c| c.bit_per_s.to_string()),
            Some("37.66 Gb/s".to_owned())
        );
        assert_eq!(all.ceilings[0].subject.as_deref(), Some("nic/eth2"));
    }

    #[test]
    fn timestamps_count_only_when_both_ends_agree_on_them() {
        let card = || build::host().nic("eth2", |nic| nic.gbit(40));
        let with = card().build();
        let without = card().sysctl("net.ipv4.tcp_timestamps", "0").build();
        let lowest = |a, b| {
            ceilings_of_path(&facts(a, b, None))
                .lowest()
                .map(|c| c.bit_per_s)
        };
        assert_eq!(
            lowest(&with, &with).map(|b| b.to_string()),
            Some("37.66 Gb/s".to_owned())
        );
        assert_eq!(
            lowest(&with, &without).map(|b| b.to_string()),
            Some("37.97 Gb/s".to_owned())
        );
    }

    #[test]
    fn only_the_sending_ends_shaper_bounds() {
        let shaped = build::host()
            .nic("near0", |nic| nic.veth().qdisc(build::tbf(5_000)))
            .build();
        let (_, far) = build::veth_pair();
        let forward = facts(&shaped, &far, None);
        assert_eq!(
            bounds(&ceilings_of_path(&forward)),
            [(Bound::Shaper, "4.78 Gb/s".to_owned())]
        );
        let reverse = PathFacts {
            direction: Direction::Reverse,
            ..forward
        };
        assert_eq!(bounds(&ceilings_of_path(&reverse)), []);
    }

    #[test]
    fn both_directions_add_up_only_when_both_are_bounded() {
        let shaped = |name: &str, mbit| {
            build::host()
                .nic(name, |nic| nic.veth().qdisc(build::tbf(mbit)))
                .build()
        };
        let (near, far) = (shaped("near0", 5_000), shaped("far0", 2_000));
        let both = |far| PathFacts {
            direction: Direction::Bidirectional,
            ..facts(&near, far, None)
        };
        assert_eq!(
            bounds(&ceilings_of_path(&both(&far))),
            [(Bound::Shaper, "6.69 Gb/s".to_owned())]
        );
        let (_, free) = build::veth_pair();
        assert_eq!(bounds(&ceilings_of_path(&both(&free))), []);
    }

    #[test]
    fn a_vlan_stands_on_its_wire_and_a_circle_ends() {
        let mut host = build::host()
            .nic("vlan10", |nic| {
                nic.with(|nic| {
                    nic.kind = NicKind::Vlan;
                    nic.lower = vec!["eth2".parse().expect("a name")];
                })
            })
            .nic("eth2", |nic| nic.gbit(40))
            .build();
        let all = ceilings_of_path(&facts(&host, &host, None));
        let lowest = all.lowest().expect("a bound");
        assert!(lowest.reason.contains("1448/1542"), "{}", lowest.reason);
        assert_eq!(lowest.subject.as_deref(), Some("nic/eth2"));
        host.nics[0].lower = vec![host.nics[0].name.clone()];
        let circle = ceilings_of_path(&facts(&host, &host, None));
        assert!(
            circle
                .undetermined
                .iter()
                .any(|u| u.bound == Bound::Ethernet)
        );
    }

    #[test]
    fn an_unknown_speed_qdisc_or_interface_leaves_its_bound_undetermined() {
        let host = build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.link_bit_per_s = Known::unknown(Cause::NotSaid, "speed", "it says -1");
                    nic.qdisc = Known::not_asked("RTM_GETQDISC");
                })
            })
            .build();
        let (_, far) = build::veth_pair();
        let all = ceilings_of_path(&facts(&host, &far, None));
        let unknown: Vec<Bound> = all.undetermined.iter().map(|u| u.bound).collect();
        assert_eq!(unknown, [Bound::Ethernet, Bound::Shaper, Bound::WindowRtt]);
        let gone = "eth9".parse().expect("a name");
        let path = PathFacts {
            remote_nic: &gone,
            ..facts(&host, &far, None)
        };
        let all = ceilings_of_path(&path);
        assert!(
            all.undetermined
                .iter()
                .any(|u| u.subject.as_deref() == Some("nic/eth9"))
        );
    }

    #[test]
    fn a_program_that_sets_its_buffers_is_bounded_by_them() {
        let near = build::host().nic("near0", NicBuilder::veth).build();
        let mut sample = build::sample().build();
        sample.spec.socket_buffer_bytes = Some(Bytes::kib(64));
        let all = ceilings_of_path(&facts(&near, &near, Some(&sample)));
        // Twice 64 KiB to receive, x 8 / 40 us.
        assert_eq!(bounds(&all), [(Bound::WindowRtt, "26.21 Gb/s".to_owned())]);
    }
}
