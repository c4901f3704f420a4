//! Which bound several NICs share, from evidence. In this order: a PCIe link or an interface whose computed bound they reach
//! together, busy CPUs, an interface that passes no more of all together than of one alone, packets that only the network
//! loses. Otherwise "not determined", with what was checked. The thresholds are those of `model::threshold`.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::ceiling::{Bound, Ceiling, Packets, ceilings_of_nic, pcie_of};
use linerate_model::finding::Evidence;
use linerate_model::host::{Host, Nic};
use linerate_model::ids::{CpuId, NicName, PciAddress};
use linerate_model::known::Known;
use linerate_model::plan::End;
use linerate_model::threshold;
use linerate_model::units::{BitRate, Ratio};
use linerate_model::workload::Direction;
use serde::Serialize;

use super::load::Load;
use super::{Figures, Verdict};
use crate::trial::operations::real;

/// An interface without a known bound that passes at most this multiple of what one NIC moves alone is the bound.
const SATURATED: f64 = 1.10;
/// Loss is that of a shared link if it is this multiple of the loss of each NIC alone.
const LOSS_GROWTH: f64 = 3.0;
/// Interfaces below interfaces are followed this far; an untrusted host may contain a loop.
const DEPTH_MAX: usize = 8;

/// What NICs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SharedKind {
    /// A PCIe link.
    Pcie,
    /// An interface: a parent of several, or the peer's only one; its shaper or its link.
    Interface,
    /// CPUs.
    Cpu,
    /// The network between the hosts: a switch, or a link between switches.
    Network,
    /// The memory bandwidth.
    Memory,
    /// Not determined.
    NotDetermined,
}

/// What a check has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The NICs share it and reach its bound together.
    Reached,
    /// They share it, and together move no more than one alone, or lose packets only together: it is the bound if nothing else
    /// is.
    Likely,
    /// They share it and do not reach its bound.
    NotReached,
    /// They do not share it.
    NotShared,
    /// A value that this needs is not known.
    Unknown,
}

/// A bound that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// The kind of bound.
    pub what: SharedKind,
    /// Which end it belongs to; null for the network.
    pub end: Option<End>,
    /// What was found.
    pub answer: Answer,
    /// The same as text.
    pub says: String,
    /// The values.
    pub evidence: Vec<Evidence>,
}

impl Check {
    fn new(what: SharedKind, end: End, answer: Answer, says: impl Into<String>) -> Self {
        Self {
            what,
            end: Some(end),
            answer,
            says: says.into(),
            evidence: Vec::new(),
        }
    }

    fn with(mut self, evidence: Vec<Evidence>) -> Self {
        self.evidence = evidence;
        self
    }
}

/// The shared bound, and everything that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SharedBound {
    /// The bound.
    pub what: SharedKind,
    /// The end that it belongs to; null for the network, and if it was not determined.
    pub end: Option<End>,
    /// The same as text, with the figures that name it.
    pub says: String,
    /// The values that name it.
    pub evidence: Vec<Evidence>,
    /// Each check.
    pub checked: Vec<Check>,
}

/// The paths that were measured.
#[derive(Debug, Clone, Copy)]
pub struct Paths<'a> {
    /// This host.
    pub local: &'a Host,
    /// The peer's host.
    pub remote: &'a Host,
    /// The interfaces that carry each path, of this host and of the peer.
    pub nics: &'a [(NicName, NicName)],
    /// The ends where another interface carries a path, and it is not known which.
    pub diverted: &'a [End],
    /// The direction of the data.
    pub direction: Direction,
    /// The rates.
    pub figures: &'a Figures,
    /// The load of each round's trials alone.
    pub alone: &'a [Load],
    /// The load of all together, in each round.
    pub together: &'a [Load],
}

/// The shared bound; none if the NICs do not move significantly less together than alone.
pub fn shared_bound(paths: &Paths<'_>) -> Option<SharedBound> {
    if paths.figures.interaction.verdict() != Verdict::Less {
        return None;
    }
    let mut checked = Vec::new();
    for end in [End::Local, End::Remote] {
        checked.push(pcie(paths, end));
        checked.push(interfaces(paths, end));
        let one_kernel = paths.together.iter().any(|load| load.shared_kernel);
        if end == End::Local || !one_kernel {
            checked.push(cpus(paths, end));
        }
    }
    checked.push(network(paths));
    checked.push(Check::new(
        SharedKind::Memory,
        End::Local,
        Answer::Unknown,
        "memory bandwidth: not measured here (`linerate map --memory`)",
    ));
    let found = [Answer::Reached, Answer::Likely]
        .into_iter()
        .find_map(|answer| checked.iter().find(|check| check.answer == answer));
    let (what, end, says, evidence) = match found {
        Some(check) => (
            check.what,
            check.end,
            check.says.clone(),
            check.evidence.clone(),
        ),
        None => (
            SharedKind::NotDetermined,
            None,
            "not determined".to_owned(),
            Vec::new(),
        ),
    };
    Some(SharedBound {
        what,
        end,
        says,
        evidence,
        checked,
    })
}

/// Some of the NICs, by their numbers.
type Group = BTreeSet<usize>;

impl Paths<'_> {
    fn host(&self, end: End) -> &Host {
        match end {
            End::Local => self.local,
            End::Remote => self.remote,
        }
    }

    /// The interfaces of the paths at an end, with the numbers of their NICs.
    fn interfaces(&self, end: End) -> impl Iterator<Item = (usize, &Nic)> {
        let host = self.host(end);
        self.nics
            .iter()
            .enumerate()
            .filter_map(move |(number, ends)| {
                let name = match end {
                    End::Local => &ends.0,
                    End::Remote => &ends.1,
                };
                Some((number, host.nic(name)?))
            })
    }

    /// The rate of a group while all are used.
    fn together(&self, group: &Group) -> f64 {
        self.rates(group)
            .map(|nic| nic.together.rate_bit_per_s)
            .sum()
    }

    /// The highest rate that one of a group has alone.
    fn best_alone(&self, group: &Group) -> f64 {
        let alone = self.rates(group).map(|nic| nic.alone.rate_bit_per_s);
        alone.fold(0.0, f64::max)
    }

    fn rates<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a super::NicFigures> {
        let all = self.figures.nics.iter().enumerate();
        all.filter(|(number, _)| group.contains(number))
            .map(|(_, nic)| nic)
    }

    /// Whether the data leaves the host at this end.
    fn sends(&self, end: End) -> bool {
        match self.direction {
            Direction::Forward => end == End::Local,
            Direction::Reverse => end == End::Remote,
            Direction::Bidirectional => true,
        }
    }
}

fn words(rate: f64) -> String {
    BitRate::from_f64(rate).map_or_else(|| "?".to_owned(), |rate| rate.to_string())
}

fn of_end(end: End) -> &'static str {
    match end {
        End::Local => "this host's",
        End::Remote => "the peer's",
    }
}

/// The share of a bound that a rate reaches, and whether it is the limit. The sum of two directions is no rate of either.
fn reached(paths: &Paths<'_>, ceiling: &Ceiling, rate: f64) -> Option<(Ratio, bool)> {
    let least = match ceiling.bound {
        Bound::Shaper => threshold::SHAPER_SHARE,
        Bound::Pcie => threshold::PCIE_SHARE,
        _ => threshold::WIRE_SHARE,
    };
    let share = ceiling.share(BitRate::from_f64(rate)?)?;
    let is_one_way = paths.direction != Direction::Bidirectional;
    Some((
        share,
        is_one_way && share >= least && share <= threshold::CEILING_WRONG_SHARE,
    ))
}

/// A bound that a group reaches or not, as a check.
fn compared(
    paths: &Paths<'_>,
    (what, end): (SharedKind, End),
    subject: &str,
    ceiling: &Ceiling,
    group: &Group,
) -> Check {
    let rate = paths.together(group);
    let Some((share, is_reached)) = reached(paths, ceiling, rate) else {
        let says = format!("{subject}: its bound is 0");
        return Check::new(what, end, Answer::Unknown, says);
    };
    let says = format!(
        "{subject}: together {} is {share} of its {} ({})",
        words(rate),
        ceiling.bit_per_s,
        ceiling.bound
    );
    let mut evidence = vec![Evidence::new(
        format!("share of the bound ({})", ceiling.bound),
        format!("{} is {share} of {}", words(rate), ceiling.bit_per_s),
        ceiling.reason.clone(),
    )];
    evidence.extend(ceiling.evidence.iter().cloned());
    let answer = if is_reached {
        Answer::Reached
    } else {
        Answer::NotReached
    };
    Check::new(what, end, answer, says).with(evidence)
}

/// The check that says most: what is reached, then what is likely, then what is not known.
fn foremost(checks: Vec<Check>) -> Option<Check> {
    let order = |check: &Check| match check.answer {
        Answer::Reached => 0,
        Answer::Likely => 1,
        Answer::Unknown => 2,
        Answer::NotReached => 3,
        Answer::NotShared => 4,
    };
    checks.into_iter().min_by_key(order)
}

/// The PCIe links that several NICs share. Functions of one device are on one link.
fn pcie(paths: &Paths<'_>, end: End) -> Check {
    let kind = (SharedKind::Pcie, end);
    let mut hops: BTreeMap<PciAddress, (Group, Option<Ceiling>)> = BTreeMap::new();
    let mut unknown = Vec::new();
    for (number, nic) in paths.interfaces(end) {
        let link = match &nic.pcie {
            Known::Value(link) => link,
            Known::Unknown(_) => {
                if nic.pci_address.value().is_some() {
                    unknown.push(nic.name.to_string());
                }
                continue;
            }
        };
        for hop in &link.links {
            let of_device = PciAddress {
                function: 0,
                ..hop.address
            };
            let bound = hop.transfer_mt_per_s.get().zip(hop.width.get());
            let bound = bound.and_then(|(rate, width)| pcie_of(rate, width, None).value().cloned());
            let entry = hops.entry(of_device).or_default();
            entry.0.insert(number);
            entry.1 = entry.1.take().or(bound);
        }
    }
    let shared = hops.into_iter().filter(|(_, (group, _))| group.len() > 1);
    let checks = shared.map(|(address, (group, ceiling))| {
        let subject = format!("{} PCIe link at {address}", of_end(end));
        if let Some(ceiling) = ceiling {
            return compared(paths, kind, &subject, &ceiling, &group);
        }
        let says = format!("{subject}: its bandwidth is not known");
        Check::new(kind.0, end, Answer::Unknown, says)
    });
    foremost(checks.collect()).unwrap_or_else(|| {
        let whose = of_end(end);
        if unknown.is_empty() {
            let says = format!("{whose} PCIe links: none in common");
            Check::new(kind.0, end, Answer::NotShared, says)
        } else {
            let says = format!("{whose} PCIe links: not known of {}", unknown.join(", "));
            Check::new(kind.0, end, Answer::Unknown, says)
        }
    })
}

/// An interface and all that are below it.
fn with_lower<'a>(host: &'a Host, top: &'a Nic) -> Vec<&'a Nic> {
    let mut all = vec![top];
    let mut level = vec![top];
    for _ in 0..DEPTH_MAX {
        let lower = level.iter().flat_map(|nic| nic.lower());
        let lower: Vec<&Nic> = lower.filter_map(|name| host.nic(name)).collect();
        level = lower
            .into_iter()
            .filter(|nic| !all.iter().any(|seen| seen.name == nic.name))
            .collect();
        all.extend(&level);
    }
    all
}

/// The interfaces that several paths use at an end: a parent of several (VLAN, macvlan, bond), or the same one.
fn interfaces(paths: &Paths<'_>, end: End) -> Check {
    if paths.diverted.contains(&end) {
        let says = format!(
            "{} interfaces: the payload went over others than those with the addresses",
            of_end(end)
        );
        return Check::new(SharedKind::Interface, end, Answer::Unknown, says);
    }
    let host = paths.host(end);
    let mut users: BTreeMap<&NicName, Group> = BTreeMap::new();
    for (number, nic) in paths.interfaces(end) {
        for one in with_lower(host, nic) {
            users.entry(&one.name).or_default().insert(number);
        }
    }
    users.retain(|_, group| group.len() > 1);
    let checks = users
        .iter()
        .filter_map(|(name, group)| Some(interface(paths, end, host.nic(name)?, group)));
    foremost(checks.collect()).unwrap_or_else(|| {
        let says = format!("{} interfaces: none in common", of_end(end));
        Check::new(SharedKind::Interface, end, Answer::NotShared, says)
    })
}

/// One interface that several paths use.
fn interface(paths: &Paths<'_>, end: End, nic: &Nic, group: &Group) -> Check {
    let kind = (SharedKind::Interface, end);
    let subject = format!("{} {}, which the paths share", of_end(end), nic.name);
    let bounds = ceilings_of_nic(paths.host(end), nic, plain_packets(group));
    // Only what leaves an interface is shaped.
    let bounds = bounds
        .ceilings
        .iter()
        .filter(|bound| bound.bound != Bound::Shaper || paths.sends(end));
    let compared = bounds.map(|bound| compared(paths, kind, &subject, bound, group));
    match foremost(compared.collect()) {
        Some(check) if check.answer == Answer::Reached => check,
        known => saturated(paths, kind, &subject, group)
            .or(known)
            .unwrap_or_else(|| {
                let says = format!("{subject}: its bound is not known");
                Check::new(kind.0, end, Answer::Unknown, says)
            }),
    }
}

/// Full segments without options: the bound is rather too high than too low.
fn plain_packets(group: &Group) -> Packets {
    Packets {
        mtu: None,
        options_bytes: 0,
        ipv6: false,
        vlan_tags: 0,
        tunnel: None,
        outer_ipv6: false,
        flows: u32::try_from(group.len()).unwrap_or(u32::MAX),
        datagram_bytes: None,
    }
}

/// An interface that passes no more of all together than of one alone.
fn saturated(
    paths: &Paths<'_>,
    (what, end): (SharedKind, End),
    subject: &str,
    group: &Group,
) -> Option<Check> {
    let (together, alone) = (paths.together(group), paths.best_alone(group));
    (together <= SATURATED * alone).then(|| {
        let says = format!(
            "{subject}: together {}, one alone {}",
            words(together),
            words(alone)
        );
        Check::new(what, end, Answer::Likely, says).with(vec![
            Evidence::new("all together", words(together), "the trials together"),
            Evidence::new("the fastest one alone", words(alone), "the trials alone"),
        ])
    })
}

/// The CPUs of an end: all of them, or one that serves several NICs.
fn cpus(paths: &Paths<'_>, end: End) -> Check {
    let whose = of_end(end);
    let of = |load: &Load| load.cpus(end).busy;
    let Some(busy) = mean_of(paths.together.iter().map(of)) else {
        let says = format!("{whose} CPUs: their load is not known");
        return Check::new(SharedKind::Cpu, end, Answer::Unknown, says);
    };
    let busy_share = Ratio::new(busy);
    let others = mean_of(paths.together.iter().map(|load| load.cpus(end).others));
    let others = Ratio::new(others.unwrap_or_default());
    if others >= threshold::OTHER_WORK {
        let says = format!("{whose} CPUs: other programs had {others} of their time");
        return Check::new(SharedKind::Cpu, end, Answer::Unknown, says);
    }
    let evidence = |what: String, share: Ratio| vec![Evidence::new(what, share, "/proc/stat")];
    if busy_share >= threshold::MACHINE_SHARE {
        let says = format!("{whose} CPUs: {busy_share} busy together");
        let shown = evidence("busy share of all CPUs together".to_owned(), busy_share);
        return Check::new(SharedKind::Cpu, end, Answer::Reached, says).with(shown);
    }
    let busiest = shared_cpus(paths, end)
        .into_iter()
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let single = busiest.map(|(cpu, share)| (cpu, Ratio::new(share)));
    if let Some((cpu, share)) = single.filter(|(_, share)| *share >= threshold::CPU_SHARE) {
        let says = format!("{whose} CPU {cpu}, which serves several NICs: {share} busy together");
        let shown = evidence(format!("busy share of CPU {cpu} together"), share);
        return Check::new(SharedKind::Cpu, end, Answer::Reached, says).with(shown);
    }
    let says = match single {
        Some((cpu, share)) => {
            format!("{whose} CPUs: {busy_share} busy together, CPU {cpu} of several NICs {share}")
        }
        None => format!("{whose} CPUs: {busy_share} busy together, none serves several NICs"),
    };
    let shown = evidence("busy share of all CPUs together".to_owned(), busy_share);
    Check::new(SharedKind::Cpu, end, Answer::NotReached, says).with(shown)
}

/// The CPUs that serve several NICs in at least half of the rounds, with their mean busy share in those.
fn shared_cpus(paths: &Paths<'_>, end: End) -> Vec<(CpuId, f64)> {
    let mut all: BTreeMap<CpuId, Vec<f64>> = BTreeMap::new();
    for load in paths.together {
        for (cpu, (busy, nics)) in &load.cpus(end).serving {
            if nics.len() > 1 {
                all.entry(*cpu).or_default().push(*busy);
            }
        }
    }
    all.into_iter()
        .filter(|(_, rounds)| 2 * rounds.len() >= paths.together.len())
        .filter_map(|(cpu, rounds)| Some((cpu, mean_of(rounds.into_iter().map(Some))?)))
        .collect()
}

/// The mean of values that are all known.
fn mean_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Option<Vec<f64>> = values.collect();
    let all = all.filter(|all| !all.is_empty())?;
    Some(all.iter().sum::<f64>() / real(all.len() as u64))
}

/// The network between the hosts, which loses packets only when all are used, while no host drops any.
fn network(paths: &Paths<'_>) -> Check {
    let check = |answer, says: String| Check {
        what: SharedKind::Network,
        end: None,
        answer,
        says,
        evidence: Vec::new(),
    };
    let lost = |loads: &[Load]| mean_of(loads.iter().map(|load| load.lost));
    let (Some(together), Some(alone)) = (lost(paths.together), lost(paths.alone)) else {
        let says = "network: a flow does not report its loss".to_owned();
        return check(Answer::Unknown, says);
    };
    let dropped: Option<u64> = paths.together.iter().map(|load| load.dropped).sum();
    let says = format!(
        "network: {} lost together, {} alone; the hosts dropped {}",
        Ratio::new(together),
        Ratio::new(alone),
        match dropped {
            Some(0) => "none".to_owned(),
            Some(packets) => format!("{packets} packets"),
            None => "an unknown number".to_owned(),
        }
    );
    let grows = together >= threshold::LOSS_SHARE.as_f64() && together >= LOSS_GROWTH * alone;
    let answer = match dropped {
        Some(0) if grows => Answer::Likely,
        None if grows => Answer::Unknown,
        _ => Answer::NotReached,
    };
    check(answer, says).with(vec![
        Evidence::new("lost together", Ratio::new(together), "TCP_INFO"),
        Evidence::new("lost alone", Ratio::new(alone), "TCP_INFO"),
    ])
}

#[cfg(test)]
mod tests;
