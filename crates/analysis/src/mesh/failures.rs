//! Flows that failed: which hosts and pairs they are about.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::mesh::{Failure, HostIndex};

use super::Side;
use super::gathered::Gathered;

/// A host has too few partners to distinguish it from a pair.
const PARTNERS_MIN: usize = 3;

/// How often a directed pair was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tries {
    pub(super) failed: u32,
    pub(super) measured: u32,
    /// How it failed most recently.
    pub(super) failure: Option<Failure>,
}

impl Tries {
    pub(super) fn fails(self) -> bool {
        self.failed > self.measured
    }
}

/// The tries of each directed pair of which any failed, between hosts that took part to the end.
pub(super) type FailedPairs = BTreeMap<(HostIndex, HostIndex), Tries>;

/// The pairs that failed at least once. What fails with a lost host is a consequence.
pub(super) fn failed_pairs(gathered: &Gathered, is_lost: &[bool]) -> FailedPairs {
    let mut pairs = FailedPairs::new();
    for flow in &gathered.failed {
        if is_lost[flow.from.position()] || is_lost[flow.to.position()] {
            continue;
        }
        let tries = pairs.entry((flow.from, flow.to)).or_default();
        tries.failed += 1;
        tries.failure = Some(flow.failure);
    }
    if pairs.is_empty() {
        return pairs;
    }
    for entry in gathered.judged().iter().chain(gathered.both_ways()) {
        let pair = (HostIndex(entry.from.into()), HostIndex(entry.to.into()));
        if let Some(tries) = pairs.get_mut(&pair) {
            tries.measured += 1;
        }
    }
    pairs
}

/// The hosts most of whose partners get no data from them, or send none to them, with how many of how many.
pub(super) fn failing_hosts(
    gathered: &Gathered,
    pairs: &FailedPairs,
) -> BTreeMap<(HostIndex, Side), (usize, usize)> {
    let mut failing: BTreeMap<(HostIndex, Side), BTreeSet<HostIndex>> = BTreeMap::new();
    for ((from, to), tries) in pairs {
        if tries.fails() {
            failing.entry((*from, Side::Send)).or_default().insert(*to);
            failing
                .entry((*to, Side::Receive))
                .or_default()
                .insert(*from);
        }
    }
    // One partner is a pair's matter.
    failing.retain(|_, partners| partners.len() > 1);
    let mut tried = failing.clone();
    if !tried.is_empty() {
        for entry in gathered.judged() {
            let (from, to) = (HostIndex(entry.from.into()), HostIndex(entry.to.into()));
            for (key, partner) in [((from, Side::Send), to), ((to, Side::Receive), from)] {
                if let Some(tried) = tried.get_mut(&key) {
                    tried.insert(partner);
                }
            }
        }
    }
    let counts = failing.into_iter().map(|(key, partners)| {
        let tried = tried.get(&key).map_or(0, BTreeSet::len);
        (key, (partners.len(), tried))
    });
    counts
        .filter(|(_, (failing, tried))| *tried >= PARTNERS_MIN && failing * 2 > *tried)
        .collect()
}
