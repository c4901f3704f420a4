//! Where packets were dropped: compares the counters of both hosts with the loss that the connections report.
//!
//! A counter is evidence only if it increased, and decides only if its count may be at least half of the loss. A
//! qdisc drops whole packets of up to 64 KiB before segmentation (GSO), and counts each once; a NIC counts frames. A
//! count is converted to bytes by the maximum size of what it counts.

use super::{LimitKind, Trial};
use crate::analysis::OneWay;
use crate::analysis::figures::{self, Figures};
use crate::ceiling::{Bound, same_kernel};
use crate::finding::Evidence;
use crate::host::Host;
use crate::known::Known;
use crate::plan::End;
use crate::sample::{FlowRecord, Sample, SideSample};
use crate::threshold;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio, real};
use crate::watch::{Watch, total};
use crate::workload::{DatagramBatch, Workload};

/// The loss of one direction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lost {
    share: Ratio,
    bytes: u64,
    /// The maximum size of one counted drop.
    unit: Bytes,
    /// The minimum: a segment, or a datagram.
    least: Bytes,
    udp: bool,
    /// What a congestion control can carry with a loss below the threshold, if that explains the rate.
    leaves: Option<Evidence>,
}

impl Lost {
    /// The loss reported by the transport, or by the receiver of datagrams; `None` if it is not known, or too small
    /// to count as loss.
    pub(super) fn of(trial: &Trial<'_>, way: &OneWay<'_>, figures: &Figures) -> Option<Self> {
        let lost = match &trial.sample.spec.workload {
            Workload::Udp(udp) => {
                let of = |pick: fn(&FlowRecord) -> Option<u64>| {
                    let counts = way.receiver.receivers().map(pick);
                    counts.collect::<Option<Vec<u64>>>().map(total)
                };
                let lost = of(|flow| Some(flow.datagrams.as_ref()?.lost))?;
                let came = of(|flow| Some(flow.datagrams.as_ref()?.count))?;
                let sent = lost.saturating_add(came);
                Self {
                    share: Ratio::new(real(lost) / real(sent.max(1))),
                    bytes: lost.saturating_mul(udp.datagram_bytes.as_u64()),
                    unit: match udp.batch {
                        DatagramBatch::Gso => threshold::DROPPED_MAX,
                        _ => udp.datagram_bytes,
                    },
                    least: udp.datagram_bytes,
                    udp: true,
                    leaves: None,
                }
            }
            _ if figures.was_mostly_in_vain() => return None,
            _ => Self {
                share: figures.lost?,
                bytes: total(
                    (way.sender.senders())
                        .filter_map(|flow| flow.tcp.value())
                        .map(figures::lost),
                ),
                unit: threshold::DROPPED_MAX,
                least: way
                    .first_tcp()
                    .map_or(Bytes::new(0), |tcp| tcp.snd_mss_bytes),
                udp: false,
                leaves: left_by_loss(way, figures),
            },
        };
        (lost.share > threshold::LOSS_SHARE || lost.leaves.is_some()).then_some(lost)
    }

    /// What this loss leaves to the congestion control, if that is about the rate seen.
    pub(super) fn leaves(&self) -> Option<&Evidence> {
        self.leaves.as_ref()
    }

    /// Whether the drops at `place` may be a large enough part of the loss.
    fn explained_by(&self, place: &Place) -> bool {
        let most = real(place.most(self.unit));
        most >= threshold::EXPLAINED_SHARE.as_f64() * real(self.bytes)
    }

    /// Whether the drops at `place` are a large enough part of the loss, however small each is.
    fn surely_explained_by(&self, place: &Place) -> bool {
        let least = real(place.count.saturating_mul(self.least.as_u64()));
        least > 0.0 && least >= threshold::EXPLAINED_SHARE.as_f64() * real(self.bytes)
    }

    /// The place with the most drops, if any may be a large enough part of the loss.
    fn largest<'a>(&self, places: impl Iterator<Item = &'a Place>) -> Option<&'a Place> {
        let most = |place: &Place| place.most(self.unit);
        let explain = places.filter(|place| self.explained_by(place));
        // Of equal counts the first: it is more specific, and the others may include it.
        explain.reduce(|one, other| if most(other) > most(one) { other } else { one })
    }
}

/// The mean window in segments of a congestion control that takes loss for congestion, if the share `lost` is lost.
///
/// That of AIMD is sqrt(3/2) / sqrt(p) segments (M. Mathis et al., "The macroscopic behavior of the TCP congestion
/// avoidance algorithm", 1997), that of CUBIC at least the same and 1.054 (RTT / p)^(3/4) (RFC 9438, section 5.1), where
/// p is the share lost and the RTT in seconds.
pub(super) fn window_with_loss(control: &str, lost: f64, rtt: Nanoseconds) -> Option<f64> {
    let aimd = (1.5 / lost).sqrt();
    match control {
        "reno" => Some(aimd),
        "cubic" => Some(aimd.max(1.054 * (rtt.as_secs_f64() / lost).powf(0.75))),
        _ => None,
    }
}

/// The bytes per RTT that a congestion control that takes loss for congestion can carry with this loss.
pub(super) fn carried_with_loss(way: &OneWay<'_>, figures: &Figures) -> Option<f64> {
    let share = figures.lost?.as_f64();
    let rtt = figures.rtt?;
    // On a short path a lost segment is made up for before the window matters.
    if share <= 0.0 || rtt < threshold::PATH_RTT {
        return None;
    }
    let tcp = way.first_tcp()?;
    let segments = window_with_loss(tcp.congestion_control.as_deref()?, share, rtt)?;
    Some(segments * real(tcp.snd_mss_bytes.as_u64()))
}

/// What this loss leaves to the congestion control, if that is about what was seen or less.
fn left_by_loss(way: &OneWay<'_>, figures: &Figures) -> Option<Evidence> {
    let (rtt, seen) = (figures.rtt?, figures.per_round_trip?);
    let bytes = carried_with_loss(way, figures)?;
    if bytes > threshold::LOSS_FACTOR * real(seen.as_u64()) {
        return None;
    }
    let control = way.first_tcp()?.congestion_control.as_deref()?;
    let share = figures.lost?;
    let rate = |bytes: f64| BitRate::from_f64(bytes * 8.0 / rtt.as_secs_f64());
    let (carries, seen) = rate(bytes).zip(rate(real(seen.as_u64())))?;
    Some(Evidence::new(
        "what this loss leaves to a flow at this RTT",
        format!("{control} can carry {carries} with {share} lost and an RTT of {rtt}, seen {seen}"),
        "RFC 9438, section 5.1",
    ))
}

/// A place where a host drops packets, and its count.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    /// The end; `None` for the machine that runs both.
    end: Option<End>,
    what: String,
    count: u64,
    path: String,
    /// The limit of a path that drops packets here.
    kind: LimitKind,
    /// The maximum size of a frame, if frames are counted and not GSO packets.
    frame: Option<Bytes>,
}

impl Place {
    /// The maximum number of bytes dropped here, if a packet has at most `unit`.
    fn most(&self, unit: Bytes) -> u64 {
        let each = self.frame.map_or(unit, |frame| frame.min(unit));
        self.count.saturating_mul(each.as_u64())
    }
}

/// Where a sender drops packets.
const SENT: [&str; 2] = ["stat/tx_dropped", "stat/tx_fifo_errors"];
/// Drops by a qdisc.
const QUEUED: [&str; 1] = ["qdisc/drops"];
/// Drops in the receive path above the driver; softnet drops are counted here too.
const RECEIVED: [&str; 1] = ["stat/rx_dropped"];
/// Drops because the kernel did not refill or drain a ring in time.
const RINGS: [&str; 3] = [
    "stat/rx_missed_errors",
    "stat/rx_fifo_errors",
    "stat/rx_over_errors",
];
/// Drops because datagram sockets were full.
const UDP_SOCKETS: [&str; 1] = ["snmp/Udp/RcvbufErrors"];
/// Drops because connections' buffers were full.
const TCP_SOCKETS: [&str; 3] = [
    "netstat/TcpExt/TCPBacklogDrop",
    "netstat/TcpExt/TCPRcvQDrop",
    "netstat/TcpExt/RcvPruned",
];

/// The packets that both hosts dropped during a trial, for any destination; `None` if an end's counters were not
/// read.
pub fn dropped(sample: &Sample) -> Option<u64> {
    let of = |side: &SideSample| {
        let watch = side.counters.value()?;
        let interfaces = [&SENT[..], &QUEUED, &RECEIVED, &RINGS].concat();
        let is_drop = |rest: &str| {
            let name = rest.split_once('/').map(|(_, name)| name);
            name.is_some_and(|name| interfaces.contains(&name))
        };
        let dropped = watch.below("nic/");
        let dropped = dropped.filter(|(rest, ..)| is_drop(rest));
        let sockets = UDP_SOCKETS.iter().chain(&TCP_SOCKETS);
        let sockets = sockets.filter_map(|key| watch.grown(key).get());
        Some(total(dropped.map(|(_, count, _)| count).chain(sockets)))
    };
    Some(of(&sample.local)?.saturating_add(of(&sample.remote)?))
}

/// The packets that the sender's own host refused after their connection had passed them on: without its qdiscs', which
/// also refuse what exceeds a shaper's queue. The connection learns of that at once, slows down as for a loss, and counts
/// none (`tcp_enter_cwr` in net/ipv4/tcp_output.c).
pub(super) fn refused_by_own_host(sender: &SideSample) -> u64 {
    grown_of(sender, &SENT)
}

/// The packets that the sender's own qdiscs refused, in the same way.
pub(super) fn refused_by_own_qdiscs(sender: &SideSample) -> u64 {
    grown_of(sender, &QUEUED)
}

/// How often the sender's own qdiscs had a packet wait for their rate.
pub(super) fn waits_for_own_qdiscs(sender: &SideSample) -> u64 {
    grown_of(sender, &["qdisc/overlimits"])
}

/// How much the counters of interfaces grew whose keys end in one of `names`; 0 if they were not read.
fn grown_of(side: &SideSample, names: &[&str]) -> u64 {
    let Known::Value(watch) = &side.counters else {
        return 0;
    };
    let all = watch.below("nic/").filter(|(rest, ..)| {
        let name = rest.split_once('/').map(|(_, name)| name);
        name.is_some_and(|name| names.contains(&name))
    });
    total(all.map(|(_, count, _)| count))
}

/// The counters' explanation of a loss.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drops {
    /// The limit from the largest of them.
    pub(super) kind: LimitKind,
    pub(super) evidence: Vec<Evidence>,
}

impl Drops {
    pub(super) fn of(trial: &Trial<'_>, way: &OneWay<'_>, lost: &Lost) -> Self {
        let mut own = at_receiver(trial, way, lost);
        own.extend(at_sender(trial, way));
        let mut of_machine = by_reason(trial, way);
        for places in [&mut own, &mut of_machine] {
            places.retain(|place| place.count > 0);
        }
        let mut evidence = Vec::new();
        if lost.udp {
            let path = "sequence numbers of the datagrams";
            evidence.push(Evidence::new(
                "share of the datagrams lost",
                lost.share,
                path,
            ));
        }
        evidence.extend(own.iter().chain(&of_machine).map(|place| {
            let at = place.end.map_or_else(
                || "on the machine of both ends".to_owned(),
                |end| format!("at the {end} end"),
            );
            let what = format!("dropped {at}, {}", place.what);
            Evidence::new(what, place.count, place.path.clone())
        }));
        // The trial's own interfaces and sockets, if they surely explain it: a reason also counts what others on the machine
        // lose.
        let sure = own.iter().filter(|place| lost.surely_explained_by(place));
        let largest = lost.largest(sure);
        let largest = largest.or_else(|| lost.largest(own.iter().chain(&of_machine)));
        if largest.is_none() {
            evidence.push(unexplained(way, !(own.is_empty() && of_machine.is_empty())));
        }
        Self {
            kind: largest.map_or(LimitKind::Loss, |place| place.kind),
            evidence,
        }
    }
}

/// The text if no counter explains the loss.
fn unexplained(way: &OneWay<'_>, some_moved: bool) -> Evidence {
    let what = "drop location";
    let ends = [(way.from, way.sender), (way.from.other(), way.receiver)];
    for (end, side) in ends {
        if let Some((why, path)) = blind(side) {
            let words = format!("unknown: the drop counters of the {end} end are missing: {why}");
            return Evidence::new(what, words, path);
        }
    }
    let words = if some_moved {
        let share = threshold::EXPLAINED_SHARE;
        format!(
            "the drop counters of both hosts explain less than {share} of it: the path between them"
        )
    } else {
        "no drop counter that was read moved on either host: the path between them".to_owned()
    };
    let uncounted = ends.iter().find_map(|(end, side)| {
        let watch = side.counters.value()?;
        // Every kernel that has reasons has this one.
        let gap = watch.grown("drop/NETFILTER_DROP").gap().cloned()?;
        Some((end, gap.reason))
    });
    let words = match uncounted {
        Some((end, why)) => format!(
            "{words}, or a place that counts elsewhere (netfilter, ingress qdiscs: the drop reasons of the {end} end \
             are unknown: {why})"
        ),
        None => words,
    };
    Evidence::new(what, words, "the counters of both hosts")
}

/// The drop reasons, and what drops for them. Drops that another counter shows (softnet, sockets) are not counted by
/// their reason.
const REASONS: [(&str, &str); 6] = [
    ("NETFILTER_DROP", "netfilter"),
    ("TC_INGRESS", "an ingress filter or policer (tc)"),
    ("TC_EGRESS", "an egress filter or policer (tc)"),
    ("XDP", "an XDP program"),
    ("SOCKET_FILTER", "a socket's filter"),
    ("BPF_CGROUP_EGRESS", "a BPF program of a control group"),
];

/// The drops of each kernel by reason, for any destination. Where both ends run on one kernel, both count the same
/// drops.
fn by_reason(trial: &Trial<'_>, way: &OneWay<'_>) -> Vec<Place> {
    let receiver = (way.from.other(), way.receiver);
    let mut ends = vec![(Some(way.from), way.sender), (Some(receiver.0), receiver.1)];
    let mut told = Vec::new();
    if same_kernel(trial.local, trial.remote) {
        let counted = ends.iter().position(|(_, side)| {
            let watch = side.counters.value();
            watch.is_some_and(|watch| watch.grown("drop/NETFILTER_DROP").value().is_some())
        });
        ends = vec![(None, ends[counted.unwrap_or(0)].1)];
        told.extend([&way.sender.counters, &way.receiver.counters]);
    }
    let mut places = Vec::new();
    for (end, side) in ends {
        let Known::Value(watch) = &side.counters else {
            continue;
        };
        let mut add = |what: &str, reason: &str, count: u64| {
            places.push(Place {
                end,
                what: format!("{what} ({reason}, of the whole machine)"),
                count,
                path: watch.path(&format!("drop/{reason}")),
                kind: LimitKind::Loss,
                frame: None,
            });
        };
        for (reason, what) in REASONS {
            let count = watch.grown(&format!("drop/{reason}")).get();
            add(what, reason, count.unwrap_or(0));
        }
        // The qdiscs of the trial's interfaces count their own; what remains are others', such as of an ifb device.
        let all = watch.grown("drop/QDISC_DROP").get().unwrap_or(0);
        let watches: Vec<&Watch> = if told.is_empty() {
            vec![watch]
        } else {
            told.iter().filter_map(|watch| watch.value()).collect()
        };
        let own = watches.iter().map(|watch| {
            let counters = watch.below("nic/");
            let drops = counters.filter(|(rest, ..)| rest.ends_with("/qdisc/drops"));
            total(drops.map(|(_, count, _)| count))
        });
        let others = all.saturating_sub(total(own));
        add("qdiscs of other interfaces", "QDISC_DROP", others);
    }
    places
}

/// Why drops at this end would be missed, and which; `None` if they would be seen.
fn blind(side: &SideSample) -> Option<(String, String)> {
    let watch = match &side.counters {
        Known::Value(watch) => watch,
        Known::Unknown(gap) => return Some((gap.reason.clone(), gap.path.clone())),
    };
    // Unchanged counters may be missing in a record, but never these (`Watch::without_still`).
    let is_own = |key: &str, group: &str| {
        let mut words = key.split('/');
        words.next() == Some("nic") && words.nth(1) == Some(group)
    };
    let unread = watch.gaps.iter().find(|(key, _)| {
        let softnet = key.starts_with("cpu/") && key.ends_with("/softnet");
        softnet || is_own(key, "stat") || is_own(key, "qdisc")
    });
    if let Some((_, gap)) = unread {
        return Some((gap.reason.clone(), gap.path.clone()));
    }
    if watch.counters.keys().any(|key| is_own(key, "stat")) {
        return None;
    }
    let why = || ("no interface data".to_owned(), "/sys/class/net".to_owned());
    let gap = watch.gaps.get("nic");
    Some(gap.map_or_else(why, |gap| (gap.reason.clone(), gap.path.clone())))
}

/// The maximum frame size that the interface `nic` of `host` receives; `None` for one without a physical link, whose
/// packets may be of any size.
fn frame_of(host: &Host, nic: &str) -> Option<Bytes> {
    let nic = host.nic(&nic.parse().ok()?)?;
    let mtu = nic.mtu.get().filter(|_| nic.kind.has_wire())?;
    Some(Bytes::new(u64::from(mtu)))
}

/// Every counter of `watch` (of `host`) whose key ends in one of `names`, as a place of `end`.
fn of_interfaces(
    watch: &Watch,
    (end, host): (End, &Host),
    names: &[&str],
    words: &str,
    kind: LimitKind,
) -> Vec<Place> {
    let counters = watch.below("nic/").filter_map(|(rest, count, counter)| {
        let (nic, name) = rest.split_once('/')?;
        let name = names.iter().find(|one| **one == name)?;
        let short = name.rsplit('/').next().unwrap_or(name);
        Some(Place {
            end: Some(end),
            what: format!("{words} {nic} ({short})"),
            count,
            path: counter.path.clone(),
            kind,
            frame: frame_of(host, nic).filter(|_| name.starts_with("stat/rx_")),
        })
    });
    counters.collect()
}

fn at_sender(trial: &Trial<'_>, way: &OneWay<'_>) -> Vec<Place> {
    let Known::Value(watch) = &way.sender.counters else {
        return Vec::new();
    };
    // A qdisc behind a shaper overflows because of the shaper's rate.
    let shaped = (trial.ceilings.iter())
        .any(|ceiling| ceiling.bound == Bound::Shaper && ceiling.end == Some(way.from));
    let kind = if shaped {
        LimitKind::Shaper
    } else {
        LimitKind::Loss
    };
    let from = (way.from, trial.host(way.from));
    let queues = of_interfaces(watch, from, &QUEUED, "qdisc of", kind);
    let sent = of_interfaces(watch, from, &SENT, "sending on", LimitKind::Loss);
    queues.into_iter().chain(sent).collect()
}

fn at_receiver(trial: &Trial<'_>, way: &OneWay<'_>, lost: &Lost) -> Vec<Place> {
    let end = way.from.other();
    let there = (end, trial.host(end));
    let watch = way.receiver.counters.value();
    let mut places: Vec<Place> = sockets(way, end, lost, watch).into_iter().collect();
    let Some(watch) = watch else {
        return places;
    };
    let dropped = of_interfaces(watch, there, &RECEIVED, "receiving on", LimitKind::Loss);
    places.extend(softnet(
        watch,
        end,
        total(dropped.iter().map(|place| place.count)),
    ));
    places.extend(of_interfaces(
        watch,
        there,
        &RINGS,
        "ring of",
        LimitKind::Loss,
    ));
    places.extend(dropped);
    places
}

/// The receive buffers of sockets: for datagrams from the sockets' own counters if the kernel has them.
fn sockets(way: &OneWay<'_>, end: End, lost: &Lost, watch: Option<&Watch>) -> Option<Place> {
    let own = |flow: &FlowRecord| flow.datagrams.as_ref()?.socket_drops;
    let own: Option<Vec<u64>> = way.receiver.receivers().map(own).collect();
    let own = own.filter(|counts| lost.udp && !counts.is_empty());
    let (count, path) = if let Some(counts) = own {
        (total(counts), "SO_MEMINFO".to_owned())
    } else {
        let keys = if lost.udp {
            &UDP_SOCKETS[..]
        } else {
            &TCP_SOCKETS
        };
        let watch = watch?;
        let counts = keys.iter().filter_map(|key| watch.grown(key).get());
        (
            total(counts),
            keys.iter().map(|key| watch.path(key)).next()?,
        )
    };
    Some(Place {
        end: Some(end),
        what: "receive buffers of sockets".to_owned(),
        count,
        path,
        kind: if lost.udp {
            LimitKind::ReceiveBuffer
        } else {
            LimitKind::Loss
        },
        frame: None,
    })
}

/// The backlog queues between the NIC and the protocols, if a CPU did not process packets in time. They are
/// machine-wide; packets of an interface dropped there are also in that interface's `dropped`.
fn softnet(watch: &Watch, end: End, dropped: u64) -> Option<Place> {
    let each = watch.below("cpu/").filter_map(|(rest, count, counter)| {
        let cpu = rest.strip_suffix("/softnet/dropped")?;
        Some((cpu, count, counter))
    });
    let each: Vec<_> = each.collect();
    let (cpu, _, counter) = each.iter().max_by_key(|(_, count, _)| *count)?;
    Some(Place {
        end: Some(end),
        what: format!("softnet backlog, mostly of CPU {cpu}"),
        count: total(each.iter().map(|(_, count, _)| *count)).min(dropped),
        path: counter.path.clone(),
        kind: LimitKind::ReceiverCpu,
        frame: None,
    })
}

#[cfg(test)]
mod tests;
