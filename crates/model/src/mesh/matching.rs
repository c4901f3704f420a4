//! The pairs of a round. All pairs are arranged by the circle method, as in a round-robin tournament (E. Lucas,
//! "Récréations mathématiques", volume 2, 1883): one host stays, the others move on by one place in each round.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::schedule::{Flow, Role, Shuffle};
use super::{GroupKind, HostIndex, Incast, MeshHost, PatternError, Retest};

/// Two hosts; in the forward direction the first one sends.
pub(super) type Pair = (HostIndex, HostIndex);

/// The number of rounds in which all pairs meet: with an odd number one host rests in each round.
pub(super) const fn circle_len(hosts: usize) -> usize {
    match hosts {
        0 | 1 => 0,
        _ if hosts.is_multiple_of(2) => hosts - 1,
        _ => hosts,
    }
}

/// The number of rounds of `quick`: log2 of the number of hosts, and at least as many as make a median, if the hosts suffice.
pub(super) fn quick_len(hosts: usize) -> usize {
    let log = hosts.next_power_of_two().trailing_zeros() as usize;
    log.max(5).min(circle_len(hosts))
}

/// Round `round` of the circle method. The positions of a pair sum to `round` modulo the number of those that move, so
/// the pairs of two rounds differ, and each round is a perfect matching.
pub(super) fn circle(order: &[HostIndex], round: usize) -> Vec<Pair> {
    let count = order.len();
    let moving = circle_len(count);
    let mut pairs = Vec::with_capacity(count / 2);
    for position in 0..moving {
        let other = (round + moving - position) % moving;
        let (low, high) = match position.cmp(&other) {
            Ordering::Less => (position, other),
            // It meets the one that stays; with an odd number there is none.
            Ordering::Equal if moving < count => (position, moving),
            Ordering::Equal | Ordering::Greater => continue,
        };
        // Alternating the order lets each host send first about as often as it receives first.
        let pair = if (low + high + round / 2).is_multiple_of(2) {
            (order[low], order[high])
        } else {
            (order[high], order[low])
        };
        pairs.push(pair);
    }
    pairs
}

/// Each host with the next one of the list.
pub(super) fn ring(order: &[HostIndex]) -> Vec<Pair> {
    if let [first, second] = order {
        return vec![(*first, *second)];
    }
    let next = order.iter().cycle().skip(1);
    order.iter().copied().zip(next.copied()).collect()
}

/// Each host with the root, one after another.
pub(super) fn to_root(
    order: &[HostIndex],
    root: HostIndex,
    shuffle: Shuffle<'_>,
) -> Result<Vec<Vec<Pair>>, PatternError> {
    check_host(order.len(), root)?;
    let mut others: Vec<HostIndex> = order.iter().copied().filter(|one| *one != root).collect();
    shuffle(&mut others);
    Ok(others
        .into_iter()
        .map(|other| vec![(other, root)])
        .collect())
}

fn check_host(there: usize, host: HostIndex) -> Result<(), PatternError> {
    if host.position() < there {
        Ok(())
    } else {
        Err(PatternError::NoHost { host, there })
    }
}

/// Two halves of the hosts: whole switches, or racks, where they are known and two halves of at least a quarter of the
/// hosts can be made of them; else the first and the second half of the list. Each half is in random order.
pub(super) fn halves(hosts: &[MeshHost], shuffle: Shuffle<'_>) -> (Vec<HostIndex>, Vec<HostIndex>) {
    let kinds = [GroupKind::Switch, GroupKind::Rack];
    let grouped = kinds.into_iter().find_map(|kind| {
        let groups = groups(hosts, kind);
        let known: usize = groups.iter().map(Vec::len).sum();
        if known < hosts.len() {
            return None;
        }
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for group in groups {
            let smaller = if right.len() < left.len() {
                &mut right
            } else {
                &mut left
            };
            smaller.extend(group);
        }
        (left.len().min(right.len()) * 4 >= hosts.len()).then_some((left, right))
    });
    let (mut left, mut right) = grouped.unwrap_or_else(|| {
        let all = (0..hosts.len()).map(HostIndex::at);
        all.partition(|host| host.position() < hosts.len().div_ceil(2))
    });
    shuffle(&mut left);
    shuffle(&mut right);
    (left, right)
}

/// Each host of the smaller half with one of the other.
pub(super) fn across((left, right): &(Vec<HostIndex>, Vec<HostIndex>)) -> Vec<Pair> {
    let pairs = left.iter().copied().zip(right.iter().copied());
    pairs.collect()
}

/// The hosts of each group of a kind, the largest first.
fn groups(hosts: &[MeshHost], kind: GroupKind) -> Vec<Vec<HostIndex>> {
    let mut groups: BTreeMap<&str, Vec<HostIndex>> = BTreeMap::new();
    for (position, host) in hosts.iter().enumerate() {
        if let Some(name) = host.group(kind) {
            groups
                .entry(name)
                .or_default()
                .push(HostIndex::at(position));
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// All pairs within each group, all groups at once.
pub(super) fn within_groups(
    hosts: &[MeshHost],
    kind: GroupKind,
    shuffle: Shuffle<'_>,
) -> Result<Vec<Vec<Pair>>, PatternError> {
    let mut groups = groups(hosts, kind);
    groups.retain(|group| group.len() > 1);
    for group in &mut groups {
        shuffle(group);
    }
    let longest = groups.iter().map(|group| circle_len(group.len())).max();
    let longest = longest.ok_or(PatternError::NoGroup(kind))?;
    let round = |round: usize| {
        let meeting = groups
            .iter()
            .filter(|group| round < circle_len(group.len()));
        meeting.flat_map(|group| circle(group, round)).collect()
    };
    Ok((0..longest).map(round).collect())
}

/// The victim alone, and the victim during the incast, in random order.
pub(super) fn incast(
    mut order: Vec<HostIndex>,
    incast: &Incast,
    shuffle: Shuffle<'_>,
) -> Result<Vec<Vec<Flow>>, PatternError> {
    let there = order.len();
    if incast.senders == 0 {
        return Err(PatternError::NoSender);
    }
    let needed = incast.senders as usize + 3;
    if there < needed {
        return Err(PatternError::TooFew {
            pattern: format!("incast {}:1", incast.senders),
            needed,
            there,
        });
    }
    let mut chosen: Vec<HostIndex> = incast.receiver.into_iter().collect();
    chosen.extend(incast.victim.into_iter().flat_map(|(from, to)| [from, to]));
    for host in &chosen {
        check_host(there, *host)?;
    }
    if chosen.iter().collect::<BTreeSet<_>>().len() < chosen.len() {
        return Err(PatternError::Roles);
    }
    order.retain(|host| !chosen.contains(host));
    shuffle(&mut order);
    let mut free = order.into_iter();
    let mut take = || free.next().expect("there are enough hosts, as was checked");
    let receiver = incast.receiver.unwrap_or_else(&mut take);
    let (from, to) = incast.victim.unwrap_or_else(|| (take(), take()));
    let flow = |from, to, role| Flow {
        from,
        to,
        is_bidirectional: false,
        role,
    };
    let alone = vec![flow(from, to, Role::VictimAlone)];
    let mut congested = vec![flow(from, to, Role::VictimCongested)];
    congested.extend((0..incast.senders).map(|_| flow(take(), receiver, Role::Congesting)));
    let mut coin = [HostIndex(0), HostIndex(1)];
    shuffle(&mut coin);
    Ok(if coin[0] == HostIndex(0) {
        vec![alone, congested]
    } else {
        vec![congested, alone]
    })
}

/// Each suspect with new partners that are not suspects, each suspected pair again, and the other hosts in pairs as a
/// reference under the same load.
pub(super) fn retest(
    mut order: Vec<HostIndex>,
    retest: &Retest,
    shuffle: Shuffle<'_>,
) -> Result<Vec<Vec<Pair>>, PatternError> {
    let there = order.len();
    let gone: BTreeSet<HostIndex> = retest.without.iter().copied().collect();
    let is_there = |host: &HostIndex| !gone.contains(host);
    let ends = || retest.pairs.iter().flat_map(|(from, to)| [*from, *to]);
    for host in retest.hosts.iter().copied().chain(ends()) {
        check_host(there, host)?;
    }
    order.retain(is_there);
    let of_ends = ends().map(|host| (host, retest.partners.div_ceil(2)));
    let of_hosts = retest.hosts.iter().map(|host| (*host, retest.partners));
    let pairs = retest.pairs.iter();
    let mut plan = RetestPlan {
        wanted: of_ends
            .chain(of_hosts)
            .filter(|(host, _)| is_there(host))
            .collect(),
        pairs: pairs
            .filter(|(from, to)| is_there(from) && is_there(to))
            .map(|pair| (*pair, retest.partners))
            .collect(),
        met: retest.known.iter().map(|(a, b)| sorted(*a, *b)).collect(),
        suspects: retest.hosts.iter().copied().collect(),
        order,
    };
    let mut rounds = Vec::new();
    loop {
        shuffle(&mut plan.order);
        let round = plan.round();
        if round.is_empty() {
            return Ok(rounds);
        }
        rounds.push(round);
    }
}

fn sorted(a: HostIndex, b: HostIndex) -> Pair {
    (a.min(b), a.max(b))
}

/// What remains of a retest.
struct RetestPlan {
    /// How many partners each suspect, and each host of a suspected pair, still gets.
    wanted: BTreeMap<HostIndex, u32>,
    /// How often each suspected pair is still measured.
    pairs: BTreeMap<Pair, u32>,
    /// Pairs that met before, the lower host first.
    met: BTreeSet<Pair>,
    suspects: BTreeSet<HostIndex>,
    /// The hosts that are there, in random order.
    order: Vec<HostIndex>,
}

impl RetestPlan {
    /// The pairs of the next round; none if nothing is left to do.
    fn round(&mut self) -> Vec<Pair> {
        let mut busy = BTreeSet::new();
        let mut round = Vec::new();
        for (pair, left) in &mut self.pairs {
            if *left > 0 && !busy.contains(&pair.0) && !busy.contains(&pair.1) {
                *left -= 1;
                busy.extend([pair.0, pair.1]);
                round.push(*pair);
            }
        }
        let in_order: Vec<HostIndex> = self.order.clone();
        for suspect in in_order {
            if busy.contains(&suspect) || self.wanted.get(&suspect).is_none_or(|left| *left == 0) {
                continue;
            }
            let Some(partner) = self.partner(suspect, &busy) else {
                continue;
            };
            if let Some(left) = self.wanted.get_mut(&suspect) {
                *left -= 1;
            }
            self.met.insert(sorted(suspect, partner));
            busy.extend([suspect, partner]);
            round.push((suspect, partner));
        }
        if round.is_empty() {
            return round;
        }
        let is_idle = |host: &&HostIndex| !busy.contains(*host) && !self.suspects.contains(*host);
        let mut idle = self.order.iter().filter(is_idle);
        while let (Some(first), Some(second)) = (idle.next(), idle.next()) {
            round.push((*first, *second));
        }
        round
    }

    /// A free host that is neither a suspect nor the other host of a suspected pair: one that it has not met if there is one at all, even if it must wait for it.
    fn partner(&self, suspect: HostIndex, busy: &BTreeSet<HostIndex>) -> Option<HostIndex> {
        let is_pair = |host: HostIndex| {
            self.pairs.contains_key(&(suspect, host)) || self.pairs.contains_key(&(host, suspect))
        };
        let is_other = |host: &&HostIndex| {
            **host != suspect && !self.suspects.contains(*host) && !is_pair(**host)
        };
        let healthy = || self.order.iter().filter(is_other);
        let is_new = |host: &&HostIndex| !self.met.contains(&sorted(suspect, **host));
        let is_free = |host: &&HostIndex| !busy.contains(*host);
        let found = if healthy().any(|host| is_new(&host)) {
            healthy().filter(is_new).find(is_free)
        } else {
            healthy().find(is_free)
        };
        found.copied()
    }
}
