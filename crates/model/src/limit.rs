//! What limited a trial, by evidence; and "not determined" when the evidence does not say.
//!
//! TCP_INFO (include/uapi/linux/tcp.h: `tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`,
//! chronographs of net/ipv4/tcp.c) says what the sender waited for, but not why: a receive window is
//! small because the buffer is, or because the receiver is too slow to empty it. So bounds that nothing
//! passes are asked first, then CPUs that are used up, then what the sender waited for.

mod figures;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use figures::Figures;

use crate::analysis::{self, Way};
use crate::ceiling::{Bound, Ceiling};
use crate::finding::{Evidence, Outcome, Profile, Scene};
use crate::host::Host;
use crate::plan::End;
use crate::rules;
use crate::sample::Sample;
use crate::units::{BitRate, Ratio};

/// Every threshold by which a limit is named, in one place; each is printed beside the value.
pub mod threshold {
    use crate::units::Ratio;

    /// A rate of at least this share of a shaper's ceiling is held by the shaper.
    pub const SHAPER_SHARE: Ratio = Ratio::new(0.85);
    /// A rate of at least this share of what a link's frames carry has filled the link.
    pub const WIRE_SHARE: Ratio = Ratio::new(0.90);
    /// A rate of at least this share of the PCIe bandwidth has filled it: packet headers and descriptors
    /// take the rest.
    pub const PCIE_SHARE: Ratio = Ratio::new(0.80);
    /// Above this share a ceiling is wrong and explains nothing (a shaper's burst may pass it a little).
    pub const CEILING_WRONG_SHARE: Ratio = Ratio::new(1.05);
    /// A thread, or a CPU, that is busy for at least this share of the time is used up.
    pub const CPU_SHARE: Ratio = Ratio::new(0.90);
    /// All CPUs of a machine busy together for at least this share are used up.
    pub const MACHINE_SHARE: Ratio = Ratio::new(0.95);
    /// A flow that waited for a buffer or window for more than this share of its busy time is limited by
    /// it (research/rules.md rule 58).
    pub const LIMITED_SHARE: Ratio = Ratio::new(0.20);
    /// More than this share of bytes sent again is loss (rule 58: 0.1 % within a site).
    pub const LOSS_SHARE: Ratio = Ratio::new(0.001);
    /// A flow that had data to send for less than this share of the time waited for its program, ...
    pub const PROGRAM_SHARE: Ratio = Ratio::new(0.80);
    /// ... if that program was on a CPU for less than this share: one that computes all the time is slow,
    /// not lazy.
    pub const PROGRAM_CPU_SHARE: Ratio = Ratio::new(0.50);
    /// A machine busier than this may have kept a thread waiting for a CPU: then neither the program nor
    /// the congestion control is blamed.
    pub const CROWDED_SHARE: Ratio = Ratio::new(0.90);
    /// A flow that had data to send for at least this share of the time, and waited for nothing else,
    /// waited for its congestion control.
    pub const CONGESTION_SHARE: Ratio = Ratio::new(0.95);
}

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
    /// The receive window, and so the receive buffer.
    ReceiveWindow,
    /// A window (of either buffer, or of the congestion control) that is full on the way: it is smaller
    /// than what the path's own round trip holds.
    WindowRtt,
    /// The receiving program did not read what was there.
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
    /// The figures do not say.
    NotDetermined,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SenderProgram => "the sender's program",
            Self::SenderCpu => "the sender's CPU",
            Self::SendBuffer => "the send buffer",
            Self::ReceiveWindow => "the receive window",
            Self::WindowRtt => "the window over the round trip",
            Self::ReceiverProgram => "the receiver's program",
            Self::ReceiverCpu => "the receiver's CPU",
            Self::SharedCpu => "one CPU that both ends share",
            Self::Machine => "the CPUs of the machine that both ends share",
            Self::Loss => "loss",
            Self::Shaper => "a shaper",
            Self::Pcie => "PCIe",
            Self::Wire => "the wire",
            Self::CongestionControl => "the congestion control",
            Self::NotDetermined => "not determined",
        })
    }
}

/// The named limit of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What limits.
    pub what: LimitKind,
    /// The rule that finds the same thing wrong; none when the limit is no fault, or when no rule found
    /// it.
    pub rule: Option<String>,
    /// The figures that say so.
    pub evidence: Vec<Evidence>,
    /// What they were held against, in words.
    pub threshold: String,
}

/// What is known of a trial when its limit is asked for.
#[derive(Clone, Copy)]
struct Trial<'a> {
    sample: &'a Sample,
    local: &'a Host,
    remote: &'a Host,
    ceilings: &'a [Ceiling],
    rate: BitRate,
}

/// Names what limited `sample`, which made `rate`, under `ceilings`.
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
    let named = by_ceiling(&trial).or_else(|| ways.iter().find_map(|way| by_figures(&trial, way)));
    named.unwrap_or_else(|| Limit {
        what: LimitKind::NotDetermined,
        rule: None,
        evidence: ways
            .iter()
            .flat_map(|way| Figures::of(way).evidence())
            .collect(),
        threshold: "no figure passed its threshold".to_owned(),
    })
}

impl Trial<'_> {
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
            rule: found.map(|(id, _)| id.to_owned()),
            evidence,
            threshold,
        }
    }

    /// Whether the rule `id` finds something wrong at `end`. A limit points to a rule only then: the send
    /// buffer may limit although it is as large as it should be.
    fn finds(&self, id: &str, end: End) -> bool {
        let (host, other) = match end {
            End::Local => (self.local, self.remote),
            End::Remote => (self.remote, self.local),
        };
        let scene = Scene {
            end,
            host,
            nic: None,
            other: Some(other),
            sample: Some(self.sample),
            watch: None,
            profile: Profile::Throughput,
            owns_shapers: false,
        };
        rules::find(id).is_some_and(|rule| {
            rules::judge(rule, &scene)
                .iter()
                .any(|outcome| matches!(outcome, Outcome::Finding(_)))
        })
    }
}

/// A limit before its rule is asked.
struct Named {
    what: LimitKind,
    rule: Option<(&'static str, End)>,
    evidence: Vec<Evidence>,
    threshold: String,
}

/// A bound that the rate has all but reached: the one it came closest to.
fn by_ceiling(trial: &Trial<'_>) -> Option<Limit> {
    // A sum of two directions says nothing about which of them was held by what.
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
            Bound::Ethernet | Bound::Infiniband | Bound::Bond | Bound::Roce => {
                (LimitKind::Wire, threshold::WIRE_SHARE, None)
            }
            Bound::Allowance => (LimitKind::Shaper, threshold::SHAPER_SHARE, None),
            Bound::Pcie => (
                LimitKind::Pcie,
                threshold::PCIE_SHARE,
                Some("pcie-link-degraded"),
            ),
            // These say what a flow may do at most; what it waited for, TCP_INFO and CPU times tell.
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

/// What one direction's own figures say.
fn by_figures(trial: &Trial<'_>, way: &Way<'_>) -> Option<Limit> {
    let figures = Figures::of(way);
    let named = by_shared_cpu(trial)
        .or_else(|| by_wait(way, &figures))
        .or_else(|| by_cpu(trial, way, &figures))
        .or_else(|| by_flow(way, &figures))?;
    Some(trial.limit(named))
}

fn by_shared_cpu(trial: &Trial<'_>) -> Option<Named> {
    let cpu = rules::shared_cpu(trial.sample).ok()??;
    let busy = figures::cpu_busy(&trial.sample.local, cpu)?;
    (busy >= threshold::CPU_SHARE).then(|| Named {
        what: LimitKind::SharedCpu,
        rule: Some(("endpoints-share-cpu", End::Local)),
        evidence: vec![
            Evidence::new("CPU of all threads of both ends", cpu, "the trial"),
            Evidence::new(format!("busy share of CPU {cpu}"), busy, "/proc/stat"),
        ],
        threshold: format!("at least {} of the CPU's time", threshold::CPU_SHARE),
    })
}

/// What the sender waited for, unless the end that should have supplied it had no CPU time left.
fn by_wait(way: &Way<'_>, figures: &Figures) -> Option<Named> {
    let over = |share: Option<Ratio>| share.filter(|share| *share > threshold::LIMITED_SHARE);
    let used_up = |share: Option<Ratio>| share.is_some_and(|share| share >= threshold::CPU_SHARE);
    let buffer = over(figures.sndbuf_limited).filter(|_| !used_up(figures.sender_cpu));
    let window = over(figures.rwnd_limited).filter(|_| !used_up(figures.receiver_cpu));
    let (what, end) = match (buffer, window) {
        (None, None) => return None,
        (Some(buffer), window) if window.is_none_or(|window| buffer >= window) => {
            (LimitKind::SendBuffer, way.from)
        }
        _ => (LimitKind::ReceiveWindow, other_end(way.from)),
    };
    Some(Named {
        what,
        rule: Some(("tcp-buffer-below-bdp", end)),
        evidence: figures.evidence(),
        threshold: format!(
            "more than {} of the busy time, and that end's threads below {} of a CPU",
            threshold::LIMITED_SHARE,
            threshold::CPU_SHARE
        ),
    })
}

fn other_end(end: End) -> End {
    match end {
        End::Local => End::Remote,
        End::Remote => End::Local,
    }
}

fn by_cpu(trial: &Trial<'_>, way: &Way<'_>, figures: &Figures) -> Option<Named> {
    let used_up = |share: Option<Ratio>, least: Ratio| share.filter(|share| *share >= least);
    let sender = used_up(figures.sender_cpu, threshold::CPU_SHARE);
    let receiver = used_up(figures.receiver_cpu, threshold::CPU_SHARE);
    // Where both are used up, a sender that waits for the window has time left in truth.
    let waits = figures
        .rwnd_limited
        .is_some_and(|share| share > threshold::LIMITED_SHARE);
    let what = match (sender, receiver) {
        (Some(sender), Some(receiver)) if waits || receiver > sender => LimitKind::ReceiverCpu,
        (Some(_), _) => LimitKind::SenderCpu,
        (None, Some(_)) => LimitKind::ReceiverCpu,
        (None, None) => return by_machine(trial, way),
    };
    Some(Named {
        what,
        rule: None,
        evidence: figures.evidence(),
        threshold: format!(
            "a thread on a CPU for at least {} of the time",
            threshold::CPU_SHARE
        ),
    })
}

/// Threads that are not used up by themselves may run where interrupts, or many threads, take the rest.
fn by_machine(trial: &Trial<'_>, way: &Way<'_>) -> Option<Named> {
    let sides = [
        (way.sender, LimitKind::SenderCpu),
        (way.receiver, LimitKind::ReceiverCpu),
    ];
    let pinned = sides.iter().find_map(|(side, what)| {
        let (cpu, busy) = figures::busiest_pinned_cpu(side)?;
        let evidence = Evidence::new(
            format!("busy share of CPU {cpu}, which a thread is pinned to"),
            busy,
            "/proc/stat",
        );
        (busy >= threshold::MACHINE_SHARE).then_some((*what, evidence))
    });
    let whole = || {
        sides.iter().find_map(|(side, what)| {
            let busy = figures::machine_busy(side)?;
            let what = if trial.sample.shared_kernel {
                LimitKind::Machine
            } else {
                *what
            };
            let evidence = Evidence::new("busy share of all CPUs", busy, "/proc/stat");
            (busy >= threshold::MACHINE_SHARE).then_some((what, evidence))
        })
    };
    let (what, evidence) = pinned.or_else(whole)?;
    Some(Named {
        what,
        rule: None,
        evidence: vec![evidence],
        threshold: format!("at least {} busy", threshold::MACHINE_SHARE),
    })
}

/// What is left: lost packets, a program with nothing to send, or a congestion control that holds back.
fn by_flow(way: &Way<'_>, figures: &Figures) -> Option<Named> {
    let named = |what, rule, threshold| {
        Some(Named {
            what,
            rule,
            evidence: figures.evidence(),
            threshold,
        })
    };
    if figures
        .retransmitted
        .is_some_and(|share| share > threshold::LOSS_SHARE)
    {
        let words = format!(
            "more than {} of the bytes sent again",
            threshold::LOSS_SHARE
        );
        return named(LimitKind::Loss, None, words);
    }
    let crowded = [way.sender, way.receiver]
        .into_iter()
        .any(|side| figures::machine_busy(side).is_none_or(|busy| busy > threshold::CROWDED_SHARE));
    if crowded {
        return None;
    }
    let busy = figures.busy?;
    let idle_program = figures
        .sender_cpu
        .is_some_and(|share| share < threshold::PROGRAM_CPU_SHARE);
    if busy < threshold::PROGRAM_SHARE && idle_program {
        let words = format!(
            "data to send for less than {} of the time",
            threshold::PROGRAM_SHARE
        );
        return named(LimitKind::SenderProgram, None, words);
    }
    // To say that nothing else held the flow back, everything else must be known.
    let waited_for_nothing = [figures.rwnd_limited, figures.sndbuf_limited]
        .iter()
        .all(|share| share.is_some_and(|share| share <= threshold::LIMITED_SHARE));
    let cpus_known = figures.sender_cpu.is_some() && figures.receiver_cpu.is_some();
    if busy >= threshold::CONGESTION_SHARE && waited_for_nothing && cpus_known {
        let words = format!(
            "data to send for at least {} of the time, and no buffer, window or CPU used up",
            threshold::CONGESTION_SHARE
        );
        let rule = Some(("tcp-cc-qdisc", way.from));
        return named(LimitKind::CongestionControl, rule, words);
    }
    None
}

#[cfg(test)]
mod tests;
