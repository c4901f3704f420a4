//! Finds what limited a trial, from evidence; "not determined" if the evidence is insufficient.
//!
//! TCP_INFO (include/uapi/linux/tcp.h: `tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`, the chronographs
//! of net/ipv4/tcp.c) reports what the sender waited for, but not why: a receive window is small because the buffer
//! is, or because the receiver is too slow to empty it. So the order is: hard bounds, then exhausted CPUs, then loss,
//! then what the sender waited for. docs/book/concepts/limits.md explains it with the commands to check it by hand.

mod cpus;
mod drops;
mod flows;
mod link;
mod verbs;
pub mod why;

use std::fmt;

use self::why::Status;
pub use drops::dropped;
use serde::{Deserialize, Serialize};

use crate::analysis::{self, Figures, OneWay};
use crate::ceiling::{Bound, Ceiling};
use crate::finding::{Context, Evidence, Outcome, Profile};
use crate::host::Host;
use crate::plan::End;
use crate::sample::{Sample, SideSample};
use crate::units::{BitRate, real};
use crate::workload::Workload;
use crate::{rules, threshold};

/// What limits a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// The sending program had nothing to send.
    SenderProgram,
    /// The CPU of the sending thread.
    SenderCpu,
    /// The send buffer.
    SendBuffer,
    /// The receive window of TCP, that is, the receive buffer.
    ReceiveWindow,
    /// The receive buffer of a UDP socket, which drops datagrams when it is full.
    ReceiveBuffer,
    /// A full window (of either buffer, or of the congestion control) that is below the path's BDP.
    WindowRtt,
    /// The receiving program did not read the available data.
    ReceiverProgram,
    /// The CPU of the receiving thread.
    ReceiverCpu,
    /// One CPU that both ends share.
    SharedCpu,
    /// All CPUs of the machine that both ends share.
    Machine,
    /// Lost packets.
    Loss,
    /// A shaper.
    Shaper,
    /// The PCIe link.
    Pcie,
    /// The link.
    Wire,
    /// The congestion control: its window or its pacing.
    CongestionControl,
    /// A link of the path that was down for a part of the trial.
    LinkDown,
    /// Not determined.
    NotDetermined,
}

impl LimitKind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::SenderProgram,
        Self::SenderCpu,
        Self::SendBuffer,
        Self::ReceiveWindow,
        Self::ReceiveBuffer,
        Self::WindowRtt,
        Self::ReceiverProgram,
        Self::ReceiverCpu,
        Self::SharedCpu,
        Self::Machine,
        Self::Loss,
        Self::Shaper,
        Self::Pcie,
        Self::Wire,
        Self::CongestionControl,
        Self::LinkDown,
        Self::NotDetermined,
    ];
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SenderProgram => "the sender's program",
            Self::SenderCpu => "the sender's CPU",
            Self::SendBuffer => "the send buffer",
            Self::ReceiveWindow => "the receive window",
            Self::ReceiveBuffer => "the receive buffer",
            Self::WindowRtt => "window / RTT",
            Self::ReceiverProgram => "the receiver's program",
            Self::ReceiverCpu => "the receiver's CPU",
            Self::SharedCpu => "one CPU shared by both ends",
            Self::Machine => "the CPUs of the machine that runs both ends",
            Self::Loss => "loss",
            Self::Shaper => "a shaper",
            Self::Pcie => "PCIe",
            Self::Wire => "the link",
            Self::CongestionControl => "the congestion control",
            Self::LinkDown => "link down",
            Self::NotDetermined => "not determined",
        })
    }
}

/// The named limit of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What limits.
    pub what: LimitKind,
    /// How certain that is; one trial alone proves nothing.
    #[serde(default)]
    pub status: Status,
    /// Every limit that the evidence suggests, the named one first.
    #[serde(default)]
    pub suggested: Vec<LimitKind>,
    /// The rule that finds the same fault; none if the limit is not a fault, or if no rule found it.
    pub rule: Option<String>,
    /// The evidence.
    pub evidence: Vec<Evidence>,
    /// The thresholds, as text.
    pub threshold: String,
}

/// The input for finding a limit.
#[derive(Clone, Copy)]
struct Trial<'a> {
    sample: &'a Sample,
    local: &'a Host,
    remote: &'a Host,
    ceilings: &'a [Ceiling],
    rate: BitRate,
}

/// Finds what limited `sample`, which reached `rate`, under `ceilings`.
pub fn name_limit(
    sample: &Sample,
    local: &Host,
    remote: &Host,
    ceilings: &[Ceiling],
    rate: BitRate,
) -> Limit {
    let trial = Trial {
        sample,
        local,
        remote,
        ceilings,
        rate,
    };
    let ways = analysis::ways(sample);
    let lost = || ways.iter().find_map(|way| by_lost_datagrams(&trial, way));
    let figures = || {
        ways.iter()
            .flat_map(|way| by_figures(&trial, way))
            .collect()
    };
    let over_verbs = sample.spec.verbs.is_some();
    let down = link::by_link(&trial, &ways).map(|named| trial.limit(named));
    let suggested: Vec<Limit> = if let Some(down) = down {
        vec![down]
    } else if over_verbs {
        verbs::name(&trial, &ways).into_iter().collect()
    } else if !matches!(sample.spec.workload, Workload::Udp(_)) {
        let figures: Vec<Limit> = figures();
        by_ceiling(&trial).into_iter().chain(figures).collect()
    } else if keeps_its_rate(&trial, &ways) {
        // A rate limit set for the trial is the limit, unless data was lost.
        lost().into_iter().collect()
    } else {
        // Datagram loss shows where the limit is, with more certainty than closeness to a ceiling.
        let figures: Vec<Limit> = figures();
        let bounds = lost().into_iter().chain(by_ceiling(&trial));
        bounds.chain(figures).collect()
    };
    let mut kinds: Vec<LimitKind> = Vec::new();
    for limit in &suggested {
        if !kinds.contains(&limit.what) {
            kinds.push(limit.what);
        }
    }
    if let Some(named) = suggested.into_iter().next() {
        return Limit {
            suggested: kinds,
            ..named
        };
    }
    Limit {
        what: LimitKind::NotDetermined,
        status: Status::NotDetermined,
        suggested: kinds,
        rule: None,
        evidence: ways
            .iter()
            .flat_map(|way| {
                if over_verbs {
                    verbs::evidence(&trial, way)
                } else {
                    Figures::of(way, &sample.spec).evidence()
                }
            })
            .collect(),
        threshold: "no figure exceeded its threshold".to_owned(),
    }
}

/// Whether datagrams had a rate limit, and reached it.
fn keeps_its_rate(trial: &Trial<'_>, ways: &[OneWay<'_>]) -> bool {
    let Workload::Udp(udp) = &trial.sample.spec.workload else {
        return false;
    };
    let flows: usize = ways.iter().map(|way| way.sender.senders().count()).sum();
    udp.rate_bit_per_s.is_some_and(|rate| {
        let asked = rate.as_f64() * real(flows as u64);
        trial.rate.as_f64() >= threshold::RATE_KEPT.as_f64() * asked
    })
}

impl Trial<'_> {
    fn host(&self, end: End) -> &Host {
        match end {
            End::Local => self.local,
            End::Remote => self.remote,
        }
    }

    fn side(&self, end: End) -> &SideSample {
        match end {
            End::Local => &self.sample.local,
            End::Remote => &self.sample.remote,
        }
    }

    fn limit(&self, named: Named) -> Limit {
        let Named {
            what,
            rule,
            evidence,
            threshold,
        } = named;
        let found = rule.filter(|(id, end)| self.finds(id, *end));
        Limit {
            what,
            status: Status::Likely,
            suggested: vec![what],
            rule: found.map(|(id, _)| id.to_owned()),
            evidence,
            threshold,
        }
    }

    /// Whether the rule `id` finds a fault at `end`. A limit refers to a rule only then: the send buffer may be the
    /// limit although it is as large as it should be.
    fn finds(&self, id: &str, end: End) -> bool {
        let (host, other) = match end {
            End::Local => (self.local, self.remote),
            End::Remote => (self.remote, self.local),
        };
        let context = Context {
            end,
            host,
            nic: None,
            other: Some(other),
            sample: Some(self.sample),
            watch: self.side(end).counters.value(),
            profile: Profile::Throughput,
            owns_shapers: false,
        };
        rules::find(id).is_some_and(|rule| {
            rules::judge(rule, &context)
                .iter()
                .any(|outcome| matches!(outcome, Outcome::Finding(_)))
        })
    }
}

/// A limit before its rule is looked up.
struct Named {
    what: LimitKind,
    rule: Option<(&'static str, End)>,
    evidence: Vec<Evidence>,
    threshold: String,
}

/// A bound that the rate has almost reached: the closest one.
fn by_ceiling(trial: &Trial<'_>) -> Option<Limit> {
    // A sum of two directions does not show which of them was limited by what.
    if analysis::ways(trial.sample).len() > 1 {
        return None;
    }
    let reached = trial.ceilings.iter().filter_map(|ceiling| {
        let (what, least, rule) = match ceiling.bound {
            Bound::Shaper => (
                LimitKind::Shaper,
                threshold::SHAPER_SHARE,
                Some("qdisc-shaper"),
            ),
            Bound::Ethernet | Bound::Infiniband | Bound::Bond | Bound::Roce | Bound::Iwarp => {
                (LimitKind::Wire, threshold::WIRE_SHARE, None)
            }
            // Of datagrams that kept their rate nothing is the limit.
            Bound::Requested if matches!(trial.sample.spec.workload, Workload::Udp(_)) => {
                return None;
            }
            Bound::Allowance | Bound::Requested => {
                (LimitKind::Shaper, threshold::SHAPER_SHARE, None)
            }
            Bound::Pcie => (
                LimitKind::Pcie,
                threshold::PCIE_SHARE,
                Some("pcie-link-degraded"),
            ),
            // These are upper bounds of a flow; TCP_INFO and CPU times show what it waited for.
            Bound::WindowRtt | Bound::Copy => return None,
        };
        let share = ceiling.share(trial.rate)?;
        (share >= least && share <= threshold::CEILING_WRONG_SHARE)
            .then_some((ceiling, share, what, least, rule))
    });
    let closest = reached.max_by(|one, other| one.1.as_f64().total_cmp(&other.1.as_f64()));
    let (ceiling, share, what, least, rule) = closest?;
    let mut evidence = vec![Evidence::new(
        format!("share of the ceiling ({})", ceiling.bound),
        format!("{} is {share} of {}", trial.rate, ceiling.bit_per_s),
        ceiling.reason.clone(),
    )];
    evidence.extend(ceiling.evidence.iter().cloned());
    Some(trial.limit(Named {
        what,
        rule: rule.zip(ceiling.end),
        evidence,
        threshold: format!("at least {least} of the {} ceiling", ceiling.bound),
    }))
}

/// Where datagrams were lost: they are not retransmitted, so the place of loss is the limit, however busy the CPUs
/// are.
fn by_lost_datagrams(trial: &Trial<'_>, way: &OneWay<'_>) -> Option<Limit> {
    let udp = matches!(trial.sample.spec.workload, Workload::Udp(_));
    let figures = Figures::of(way, &trial.sample.spec);
    let named = udp
        .then(|| flows::by_loss(trial, way, &figures))
        .flatten()?;
    Some(trial.limit(named))
}

/// What the evidence of one direction suggests, the best first.
fn by_figures(trial: &Trial<'_>, way: &OneWay<'_>) -> Vec<Limit> {
    let figures = Figures::of(way, &trial.sample.spec);
    let cpus = [
        cpus::by_shared_cpu(trial),
        cpus::by_threads(trial, way, &figures),
        cpus::by_machine(trial, way, &figures),
    ];
    // In workloads without bulk transfer, idle connections are normal and not a limit.
    let bulk = trial.sample.spec.workload.is_bulk();
    let flow = bulk.then(|| flows::by_flow(trial, way, &figures));
    let all = cpus.into_iter().flatten().chain(flow.into_iter().flatten());
    all.map(|named| trial.limit(named)).collect()
}

#[cfg(test)]
mod tests;
