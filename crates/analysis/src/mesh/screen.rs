//! Finds suspects: hosts, pairs and groups that look slow in the first part of a mesh, and what to measure again.
//!
//! Nothing is named here, so the thresholds are loose: a false suspect costs a few more rounds.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::mesh::{Group, GroupKind, HostIndex, MeshHost, Retest};
use linerate_stats::summary::median;
use linerate_stats::two_way::{Cell, MEDIAN_VARIANCE, TwoWay, inflation, take_median};

use super::TOLERANCE;
use super::failures::{failed_pairs, failing_hosts};
use super::gathered::{Entry, Gathered};
use super::loss::Usual;

/// How many partners each suspect gets.
pub const RETEST_PARTNERS: u32 = 10;
/// How slow a suspected host is, in standard errors.
const HOST_Z: f64 = 2.5;
/// How slow a suspected pair is, in standard deviations, where there are few pairs.
const PAIR_Z: f64 = 2.25;
/// There are at most as many suspected pairs as a fourth of the hosts, and in all.
const HOSTS_PER_PAIR: usize = 4;
const PAIRS_MAX: usize = 64;
/// So many hosts without a suspicion are a reference for the others.
const HEALTHY_MIN: usize = 3;
/// One suspect among this many other hosts is too few to fit the model without it.
const REFIT_FROM: usize = 40;
/// Fewer hosts cannot show which of them is slow.
pub(super) const HOSTS_MIN: usize = 4;
/// The members of smaller groups are judged alone.
const MEMBERS_MIN: usize = 3;
/// This share of a group is slow if the group is.
pub(super) const OF_GROUP: f64 = 0.75;
/// Where residuals are clipped for the correlation in time, in standard deviations.
const CLIP: f64 = 3.0;
/// Fewer values of a host show no correlation in time.
const SERIES_MIN: usize = 5;

/// The side of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// As the sender.
    Send,
    /// As the receiver.
    Receive,
}

/// What may be slow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// A host on one side.
    Host(HostIndex, Side),
    /// One direction between two hosts.
    Pair(HostIndex, HostIndex),
    /// Most members of a group, on one side.
    Group(Group, Vec<HostIndex>, Side),
    /// A host that retransmits what it sends, or to which others retransmit.
    Loss(HostIndex, Side),
    /// A host from which, or to which, most flows fail.
    FailingHost(HostIndex, Side),
    /// One direction between two hosts, which failed.
    FailedPair(HostIndex, HostIndex),
}

/// What the first part of a mesh shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Screening {
    /// The model of log rates. The effects are relative to the hosts that are no suspects.
    pub(super) fit: TwoWay,
    /// How many results each host has as the sender and as the receiver.
    pub(super) counts: [Vec<u32>; 2],
    /// How much a residual resembles the one before it.
    pub(super) lag_one: f64,
    /// What most hosts retransmit; none if it is not known of enough.
    pub(super) usual_loss: Option<Usual>,
    /// The suspects.
    pub suspects: Vec<Suspect>,
    /// Pairs with a suspect that met.
    met: Vec<(HostIndex, HostIndex)>,
    gone: Vec<HostIndex>,
}

pub(super) fn cells(entries: &[Entry]) -> Vec<Cell> {
    let cell = |entry: &Entry| Cell {
        row: entry.from.into(),
        column: entry.to.into(),
        value: entry.log_rate,
    };
    entries.iter().map(cell).collect()
}

/// The suspects of a mesh. `is_lost` has a value for each host.
pub fn screen(hosts: &[MeshHost], is_lost: &[bool], gathered: &Gathered) -> Screening {
    let cells = cells(gathered.judged());
    let fit = TwoWay::fit(hosts.len(), hosts.len(), &cells);
    let mut counts = [vec![0_u32; hosts.len()], vec![0_u32; hosts.len()]];
    for cell in &cells {
        counts[0][cell.row as usize] += 1;
        counts[1][cell.column as usize] += 1;
    }
    let lag_one = fit
        .scale
        .map_or(0.0, |scale| lag_one(&fit, &cells, scale, &counts));
    let mut screening = Screening {
        fit,
        counts,
        lag_one,
        usual_loss: None,
        suspects: Vec::new(),
        met: Vec::new(),
        gone: (0..hosts.len())
            .filter(|host| is_lost[*host])
            .map(HostIndex::at)
            .collect(),
    };
    let there = is_lost.iter().filter(|lost| !**lost).count();
    if there >= HOSTS_MIN {
        let groups = slow_groups(&screening.fit, hosts, is_lost, &cells);
        screening.suspect_hosts(is_lost, there, groups);
        screening.suspect_pairs(&cells, is_lost, hosts.len());
        screening.suspect_losses(is_lost, there, gathered);
    }
    let failed = failed_pairs(gathered, is_lost);
    let failing = failing_hosts(gathered, &failed);
    for (host, side) in failing.keys() {
        screening.suspects.push(Suspect::FailingHost(*host, *side));
    }
    for (from, to) in failed.keys() {
        let is_explained = failing.contains_key(&(*from, Side::Send))
            || failing.contains_key(&(*to, Side::Receive));
        if !is_explained {
            screening.suspects.push(Suspect::FailedPair(*from, *to));
        }
    }
    let mut wanted = vec![false; hosts.len()];
    let ends = screening.pairs();
    let ends = ends.iter().flat_map(|(from, to)| [*from, *to]);
    for host in screening.hosts().into_iter().chain(ends) {
        wanted[host.position()] = true;
    }
    screening.met = gathered.met(|host| wanted[usize::from(host)]);
    screening.refit(&cells, is_lost);
    screening
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Send, Self::Receive];

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Send => 0,
            Self::Receive => 1,
        }
    }
}

impl Screening {
    /// The effect of a host on the logarithm of rates.
    pub(super) fn effect(&self, host: HostIndex, side: Side) -> Option<f64> {
        match side {
            Side::Send => self.fit.rows[host.position()],
            Side::Receive => self.fit.columns[host.position()],
        }
    }

    /// The variance of the effect of a host.
    pub(super) fn variance(&self, host: HostIndex, side: Side) -> Option<f64> {
        let count = self.counts[side.index()][host.position()];
        let scale = self.fit.scale?;
        let inflated = inflation(self.lag_one, count as usize);
        (count > 0).then(|| MEDIAN_VARIANCE * inflated * scale.powi(2) / f64::from(count))
    }

    /// How many standard errors a host is slow.
    fn slowness(&self, host: HostIndex, side: Side) -> Option<f64> {
        let effect = self.effect(host, side)?;
        if effect.exp_m1() > -TOLERANCE {
            return None;
        }
        // Without an estimate of the noise anything slow is a suspect.
        let slowness = self
            .variance(host, side)
            .map_or(f64::MAX, |variance| -effect / variance.sqrt());
        (slowness > HOST_Z).then_some(slowness)
    }

    /// The slowest hosts and groups, and no more than half of the hosts: the others are their partners.
    fn suspect_hosts(&mut self, is_lost: &[bool], there: usize, groups: Vec<(f64, Suspect)>) {
        let all = (0..is_lost.len()).filter(|host| !is_lost[*host]);
        let mut found: Vec<(f64, Suspect)> = all
            .flat_map(|host| Side::ALL.map(|side| (HostIndex::at(host), side)))
            .filter_map(|(host, side)| {
                self.slowness(host, side)?;
                Some((self.effect(host, side)?, Suspect::Host(host, side)))
            })
            .collect();
        found.extend(groups);
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut hosts = BTreeSet::new();
        for (_, suspect) in found {
            let mut with_it = hosts.clone();
            match &suspect {
                Suspect::Group(_, members, _) => with_it.extend(members.iter().copied()),
                Suspect::Host(host, _) => {
                    with_it.insert(*host);
                }
                _ => {}
            }
            if with_it.len() <= there / 2 {
                hosts = with_it;
                self.suspects.push(suspect);
            }
        }
    }

    /// Pairs that are slower than their two hosts explain.
    fn suspect_pairs(&mut self, cells: &[Cell], is_lost: &[bool], hosts: usize) {
        let most = (hosts / HOSTS_PER_PAIR).clamp(1, PAIRS_MAX);
        let scale = self.fit.scale.unwrap_or(0.0);
        let mut slow: BTreeMap<(u32, u32), (f64, u32)> = BTreeMap::new();
        for cell in cells {
            if is_lost[cell.row as usize] || is_lost[cell.column as usize] {
                continue;
            }
            let residual = self.fit.residual(cell);
            if residual.exp_m1() < -TOLERANCE && residual < -PAIR_Z * scale {
                let sum = slow.entry((cell.row, cell.column)).or_default();
                *sum = (sum.0 + residual, sum.1 + 1);
            }
            // The worst are enough: noise makes a share of all pairs slow, which are millions.
            if slow.len() > 64 * PAIRS_MAX {
                let mut all: Vec<f64> = slow.values().map(|(sum, _)| *sum).collect();
                all.sort_by(f64::total_cmp);
                let limit = all[PAIRS_MAX];
                slow.retain(|_, (sum, _)| *sum <= limit);
            }
        }
        let mut slow: Vec<_> = slow.into_iter().collect();
        slow.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let pairs = slow.into_iter().take(most);
        self.suspects
            .extend(pairs.map(|((from, to), _)| Suspect::Pair(HostIndex(from), HostIndex(to))));
    }

    /// Hosts that retransmit more than most, as long as half of the hosts are no suspects.
    fn suspect_losses(&mut self, is_lost: &[bool], there: usize, gathered: &Gathered) {
        let Some((suspects, usual)) = gathered.losses.suspects(gathered.judged()) else {
            return;
        };
        self.usual_loss = Some(usual);
        let mut hosts = self.hosts();
        for (host, side) in suspects {
            let is_new = !hosts.contains(&host);
            if is_lost[host.position()] || is_new && hosts.len() >= there / 2 {
                continue;
            }
            hosts.insert(host);
            self.suspects.push(Suspect::Loss(host, side));
        }
    }

    /// Every host that is a suspect itself, and each as a member of a group.
    fn hosts(&self) -> BTreeSet<HostIndex> {
        let mut hosts = BTreeSet::new();
        for suspect in &self.suspects {
            match suspect {
                Suspect::Host(host, _) | Suspect::Loss(host, _) | Suspect::FailingHost(host, _) => {
                    hosts.insert(*host);
                }
                Suspect::Group(_, members, _) => hosts.extend(members),
                Suspect::Pair(..) | Suspect::FailedPair(..) => {}
            }
        }
        hosts
    }

    /// Every pair that is a suspect itself, the lower host first.
    fn pairs(&self) -> BTreeSet<(HostIndex, HostIndex)> {
        let pairs = self.suspects.iter().filter_map(|suspect| match suspect {
            Suspect::Pair(from, to) | Suspect::FailedPair(from, to) => {
                Some((*from.min(to), *from.max(to)))
            }
            _ => None,
        });
        pairs.collect()
    }

    /// Whether a directed pair is without any suspect.
    pub(super) fn references(&self) -> impl Fn(u32, u32) -> bool + use<> {
        let (hosts, pairs) = (self.hosts(), self.pairs());
        move |from, to| {
            let (from, to) = (HostIndex(from), HostIndex(to));
            let is_suspect = hosts.contains(&from) || hosts.contains(&to);
            !is_suspect && !pairs.contains(&(from.min(to), from.max(to)))
        }
    }

    /// Fits the model to the hosts that are no suspects, and relates the suspects to it: half of a mesh may be slow, and
    /// what is slow with each of several slow hosts must not count for the others.
    fn refit(&mut self, cells: &[Cell], is_lost: &[bool]) {
        let suspects = self.hosts();
        let is_healthy =
            |host: u32| !is_lost[host as usize] && !suspects.contains(&HostIndex(host));
        let healthy = (0_u32..)
            .take(is_lost.len())
            .filter(|host| is_healthy(*host))
            .count();
        // A few suspects among many hosts do not move a median.
        if suspects.len() * REFIT_FROM < healthy || healthy < HEALTHY_MIN {
            return;
        }
        let own = cells
            .iter()
            .filter(|cell| is_healthy(cell.row) && is_healthy(cell.column));
        let own: Vec<Cell> = own.copied().collect();
        let hosts = is_lost.len();
        let fit = TwoWay::fit(hosts, hosts, &own);
        let mut of_suspects: BTreeMap<(u32, Side), Vec<f64>> = BTreeMap::new();
        for cell in cells {
            let rest = fit.residual(cell);
            match (is_healthy(cell.row), is_healthy(cell.column)) {
                (false, true) => of_suspects
                    .entry((cell.row, Side::Send))
                    .or_default()
                    .push(rest),
                (true, false) => {
                    let key = (cell.column, Side::Receive);
                    of_suspects.entry(key).or_default().push(rest);
                }
                _ => {}
            }
        }
        let (scale, freedom) = (self.fit.scale, self.fit.freedom);
        self.fit = TwoWay {
            scale,
            freedom,
            ..fit
        };
        for ((host, side), rest) in of_suspects {
            let effects = match side {
                Side::Send => &mut self.fit.rows,
                Side::Receive => &mut self.fit.columns,
            };
            effects[host as usize] = median(&rest).ok();
        }
    }

    /// What to measure again; none if there is no suspect.
    pub fn retest(&self) -> Option<Retest> {
        if self.suspects.is_empty() {
            return None;
        }
        Some(Retest {
            hosts: self.hosts().into_iter().collect(),
            pairs: self.pairs().into_iter().collect(),
            partners: RETEST_PARTNERS,
            known: self.met.clone(),
            without: self.gone.clone(),
        })
    }
}

/// Groups whose members are slow with hosts outside, compared with pairs that are all outside: a group may be half of the
/// mesh.
fn slow_groups(
    fit: &TwoWay,
    hosts: &[MeshHost],
    is_lost: &[bool],
    cells: &[Cell],
) -> Vec<(f64, Suspect)> {
    let there = is_lost.iter().filter(|lost| !**lost).count();
    let mut found = Vec::new();
    for kind in [GroupKind::Switch, GroupKind::Rack, GroupKind::Rail] {
        let mut groups: BTreeMap<&str, Vec<HostIndex>> = BTreeMap::new();
        for (position, host) in hosts.iter().enumerate() {
            if let (Some(name), false) = (host.group(kind), is_lost[position]) {
                groups
                    .entry(name)
                    .or_default()
                    .push(HostIndex::at(position));
            }
        }
        groups.retain(|_, members| members.len() >= MEMBERS_MIN && members.len() * 2 <= there);
        if groups.is_empty() {
            continue;
        }
        let crossing = crossing(&groups, hosts.len(), cells);
        for (name, members) in &groups {
            for side in Side::ALL {
                // A few members do not move the center of the whole mesh.
                let outside = if members.len() * 4 < there {
                    fit.center
                } else {
                    outside(members, cells).unwrap_or(fit.center)
                };
                let own = members.iter().filter_map(|host| {
                    let own = median(&crossing[side.index()][host.position()]).ok()?;
                    Some(own - outside)
                });
                let own: Vec<f64> = own.collect();
                let slow = own.iter().filter(|own| own.exp_m1() < -TOLERANCE).count();
                if let (true, Ok(effect)) = (is_most(slow, members.len()), median(&own)) {
                    let name = (*name).to_owned();
                    let group = Group { kind, name };
                    found.push((effect, Suspect::Group(group, members.clone(), side)));
                }
            }
        }
    }
    found
}

/// The values of each member of a group with hosts outside of it.
fn crossing(
    groups: &BTreeMap<&str, Vec<HostIndex>>,
    hosts: usize,
    cells: &[Cell],
) -> [Vec<Vec<f64>>; 2] {
    let mut group_of: Vec<Option<usize>> = vec![None; hosts];
    for (number, members) in groups.values().enumerate() {
        for host in members {
            group_of[host.position()] = Some(number);
        }
    }
    let mut values = [vec![Vec::new(); hosts], vec![Vec::new(); hosts]];
    for cell in cells {
        let (from, to) = (group_of[cell.row as usize], group_of[cell.column as usize]);
        if from == to {
            continue;
        }
        let value = f64::from(cell.value);
        if from.is_some() {
            values[Side::Send.index()][cell.row as usize].push(value);
        }
        if to.is_some() {
            values[Side::Receive.index()][cell.column as usize].push(value);
        }
    }
    values
}

/// The median of pairs with neither host in a group.
fn outside(members: &[HostIndex], cells: &[Cell]) -> Option<f64> {
    let is_member: BTreeSet<u32> = members.iter().map(|host| host.0).collect();
    let values = cells
        .iter()
        .filter(|cell| !is_member.contains(&cell.row) && !is_member.contains(&cell.column))
        .map(|cell| f64::from(cell.value));
    take_median(&mut values.collect::<Vec<_>>())
}

#[expect(clippy::cast_precision_loss, reason = "at most HOSTS_MAX")]
pub(super) fn is_most(some: usize, all: usize) -> bool {
    some as f64 >= OF_GROUP * all as f64
}

/// The correlation of a host's residuals with those before them, of all hosts together: the larger one of senders and
/// receivers.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn lag_one(fit: &TwoWay, cells: &[Cell], scale: f64, counts: &[Vec<u32>; 2]) -> f64 {
    let of_side = |line: &dyn Fn(&Cell) -> u32, counts: &[u32]| {
        let lines = counts.iter().filter(|count| **count > 0).count();
        if lines == 0 || cells.len() < lines * SERIES_MIN {
            return 0.0;
        }
        let mut before: Vec<Option<f64>> = vec![None; counts.len()];
        let (mut products, mut squares) = (0.0, 0.0);
        for cell in cells {
            let residual = fit.residual(cell).clamp(-CLIP * scale, CLIP * scale);
            let last = before[line(cell) as usize].replace(residual);
            products += last.unwrap_or(0.0) * residual;
            squares += residual * residual;
        }
        if squares <= 0.0 {
            return 0.0;
        }
        // Subtracting the center of each line makes its residuals repel each other.
        products / squares + lines as f64 / cells.len() as f64
    };
    let senders = of_side(&|cell| cell.row, &counts[0]);
    let receivers = of_side(&|cell| cell.column, &counts[1]);
    senders.max(receivers).max(0.0)
}
