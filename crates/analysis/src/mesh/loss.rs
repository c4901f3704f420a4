//! Hosts whose flows retransmit more than those of most hosts: evidence of its own, because at a short RTT some loss does
//! not lower the rate.
//!
//! Counts have a variance that grows with them, so their square roots are compared (M. S. Bartlett, "The use of
//! transformations", Biometrics 3, 1947). A host's value on one side is the mean of the lowest three fourths of its flows:
//! one bad pair or one burst names no host. Retransmissions come in bursts, so how much these values scatter is taken
//! from all hosts, and is never less than that of Poisson counts.

use std::collections::BTreeMap;

use linerate_model::mesh::{HostIndex, Retransmits};
use linerate_stats::summary::median;
use linerate_stats::two_way::{MEDIAN_VARIANCE, Spread, scatter, shift};

use super::gathered::Entry;
use super::screen::Side;

/// A share of retransmitted segments that is not above that of most hosts by this much is not reported.
const TOLERANCE: f64 = 0.001;
/// How far a suspect is from the others, in standard errors.
const SUSPECT_Z: f64 = 2.5;
/// Hosts that are this far do not count for what is usual.
const ODD_Z: f64 = 1.5;
/// Fewer segments in a flow cannot show the tolerance.
const SEGMENTS_MIN: u32 = 200;
/// Fewer flows of a host show nothing.
const FLOWS_MIN: u32 = 3;
/// Fewer flows between hosts that are no suspects show no change since the first part.
const REFERENCES_MIN: u32 = 5;
/// The variance of the square root of a Poisson count.
const POISSON: f64 = 0.25;
/// Added to a count before its root is taken, so that small counts have this variance, too (F. J. Anscombe, "The
/// transformation of Poisson, binomial and negative-binomial data", Biometrika 35, 1948).
const ANSCOMBE: f64 = 0.375;

/// A share of retransmitted segments with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossShare {
    /// That of the host's flows.
    pub share: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The confidence level of the interval.
    pub level: f64,
    /// That of most hosts.
    pub most: f64,
}

/// A flow with at least one retransmission.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lossy {
    from: u16,
    to: u16,
    retransmits: Retransmits,
}

/// The retransmissions of a part of a mesh.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Losses {
    /// Most flows have none, and are only counted.
    some: Vec<Lossy>,
    /// The flows of each host as the sender and as the receiver.
    flows: [Vec<u32>; 2],
    segments: u64,
}

/// The value of a host on one side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OfHost {
    root: f64,
    flows: u32,
}

/// What most hosts show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usual {
    /// The root of the count of a host.
    root: f64,
    /// The standard deviation of that of one flow, as the hosts' values show it.
    scale: f64,
    freedom: f64,
    /// The segments of a flow.
    segments: f64,
}

impl Usual {
    fn share(self, root: f64) -> f64 {
        ((root.max(0.0).powi(2) - ANSCOMBE) / self.segments).max(0.0)
    }

    /// The standard error of the value of a host.
    fn error(self, flows: u32) -> f64 {
        (MEDIAN_VARIANCE / f64::from(flows)).sqrt() * self.scale
    }
}

impl Losses {
    pub(super) fn add(&mut self, from: HostIndex, to: HostIndex, retransmits: Retransmits) {
        if retransmits.segments < SEGMENTS_MIN {
            return;
        }
        for (flows, host) in self.flows.iter_mut().zip([from, to]) {
            if flows.len() <= host.position() {
                flows.resize(host.position() + 1, 0);
            }
            flows[host.position()] += 1;
        }
        self.segments += u64::from(retransmits.segments);
        if retransmits.retransmitted > 0 {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "positions are below HOSTS_MAX"
            )]
            self.some.push(Lossy {
                from: from.0 as u16,
                to: to.0 as u16,
                retransmits,
            });
        }
    }

    fn count(&self) -> u64 {
        self.flows[0].iter().map(|flows| u64::from(*flows)).sum()
    }

    /// The segments of a flow; none without a flow.
    fn segments(&self) -> Option<f64> {
        let flows = self.count();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 segments")]
        let segments = self.segments as f64 / flows as f64;
        (flows > 0).then_some(segments)
    }

    /// The values of the hosts with enough flows. Counts are those of a flow with this number of segments.
    fn hosts(&self, segments: f64) -> BTreeMap<(HostIndex, Side), OfHost> {
        let mut roots = self
            .flows
            .each_ref()
            .map(|hosts| vec![Vec::new(); hosts.len()]);
        for flow in &self.some {
            let root = root(flow.retransmits, segments);
            for (roots, host) in roots.iter_mut().zip([flow.from, flow.to]) {
                roots[usize::from(host)].push(root);
            }
        }
        let sides = Side::ALL.into_iter().zip(&self.flows);
        let all = sides.flat_map(|(side, flows)| {
            let flows = flows.iter().enumerate();
            flows.map(move |(host, flows)| ((HostIndex::at(host), side), *flows))
        });
        let enough = all.filter(|(_, flows)| *flows >= FLOWS_MIN);
        let value = |(key, flows): ((HostIndex, Side), u32)| {
            let (host, side): (HostIndex, Side) = key;
            let mut own = std::mem::take(&mut roots[side.index()][host.position()]);
            own.sort_by(f64::total_cmp);
            let root = lowest_mean(&own, flows);
            (key, OfHost { root, flows })
        };
        enough.map(value).collect()
    }

    /// What most hosts show; none with fewer than four values.
    fn usual(&self) -> Option<Usual> {
        let segments = self.segments()?;
        let hosts = self.hosts(segments);
        let roots: Vec<f64> = hosts.values().map(|host| host.root).collect();
        let flows: Vec<f64> = hosts.values().map(|host| f64::from(host.flows)).collect();
        let (scatter, freedom) = scatter(&roots)?;
        let of_flow = scatter * (median(&flows).ok()? / MEDIAN_VARIANCE).sqrt();
        (roots.len() >= 4).then_some(Usual {
            root: median(&roots).ok()?,
            scale: of_flow.max(POISSON.sqrt()),
            freedom,
            segments,
        })
    }

    /// The hosts that retransmit clearly more than most, the worst first, and what is usual without them: the partners of a
    /// host that loses segments must not look as if they scattered.
    pub(super) fn suspects(&self, entries: &[Entry]) -> Option<(Vec<(HostIndex, Side)>, Usual)> {
        let all = self.usual()?;
        let mut odd = vec![false; self.flows.iter().map(Vec::len).max().unwrap_or(0)];
        let most = odd.len() / 2;
        for (host, _) in self.far(all, ODD_Z).into_iter().take(most) {
            odd[host.position()] = true;
        }
        let usual = self.without(&odd, entries).usual().unwrap_or(all);
        Some((self.far(usual, SUSPECT_Z), usual))
    }

    /// What is left without the flows of some hosts.
    fn without(&self, is_odd: &[bool], entries: &[Entry]) -> Self {
        let is_odd = |host: u16| is_odd.get(usize::from(host)).copied().unwrap_or(false);
        let some = self.some.iter();
        let some = some.filter(|flow| !is_odd(flow.from) && !is_odd(flow.to));
        let mut left = Self {
            some: some.copied().collect(),
            flows: self.flows.each_ref().map(|hosts| vec![0; hosts.len()]),
            segments: 0,
        };
        let of_each = self.segments / self.count().max(1);
        for entry in entries {
            if is_odd(entry.from) || is_odd(entry.to) {
                continue;
            }
            for (flows, host) in left.flows.iter_mut().zip([entry.from, entry.to]) {
                if let Some(flows) = flows.get_mut(usize::from(host)) {
                    *flows += 1;
                }
            }
            left.segments += of_each;
        }
        left
    }

    /// The hosts that retransmit more than most by this many standard errors, the worst first.
    fn far(&self, usual: Usual, errors: f64) -> Vec<(HostIndex, Side)> {
        let mut found: Vec<((HostIndex, Side), f64)> = self
            .hosts(usual.segments)
            .into_iter()
            .filter(|(_, host)| {
                let more = usual.share(host.root) - usual.share(usual.root);
                let distance = host.root - usual.root;
                more > TOLERANCE && distance > errors * usual.error(host.flows)
            })
            .map(|(key, host)| (key, host.root))
            .collect();
        found.sort_by(|one, other| other.1.total_cmp(&one.1));
        found.into_iter().map(|(key, _)| key).collect()
    }

    /// The share of a host in a retest, and by how many flows. None if it has not enough.
    pub(super) fn retested(
        &self,
        usual: Usual,
        (host, side): (HostIndex, Side),
        level: f64,
    ) -> Option<(LossShare, usize)> {
        let own = *self.hosts(usual.segments).get(&(host, side))?;
        let spread = Spread {
            scale: 0.0,
            freedom: usual.freedom,
            inflation: 1.0,
            common: usual.error(own.flows).powi(2),
        };
        let (_, interval) = shift(&[own.root], spread, level)?;
        let share = LossShare {
            share: usual.share(own.root),
            low: usual.share(interval.low),
            high: usual.share(interval.high),
            level,
            most: usual.share(usual.root),
        };
        Some((share, own.flows as usize))
    }

    /// What is usual in this part, by its flows between hosts that are no suspects: never less than in the first part.
    pub(super) fn now(
        &self,
        usual: Usual,
        references: u32,
        is_reference: impl Fn(u32, u32) -> bool,
    ) -> Usual {
        if references < REFERENCES_MIN {
            return usual;
        }
        let some = self.some.iter();
        let some = some.filter(|flow| is_reference(flow.from.into(), flow.to.into()));
        let mut roots: Vec<f64> = some
            .map(|flow| root(flow.retransmits, usual.segments))
            .collect();
        roots.sort_by(f64::total_cmp);
        Usual {
            root: usual.root.max(lowest_mean(&roots, references)),
            ..usual
        }
    }
}

impl LossShare {
    /// Whether it is above that of most hosts at the level of its interval.
    pub(super) fn is_higher(self) -> bool {
        self.low > self.most + TOLERANCE
    }
}

/// The root of a count, scaled to a flow of this number of segments.
fn root(retransmits: Retransmits, segments: f64) -> f64 {
    let share = f64::from(retransmits.retransmitted) / f64::from(retransmits.segments.max(1));
    (share * segments + ANSCOMBE).sqrt()
}

/// The mean of the lowest three fourths of this number of roots, of which these, sorted, are not those of 0.
fn lowest_mean(some: &[f64], all: u32) -> f64 {
    let counted = (all * 3).div_ceil(4).max(1);
    let zeros = all.saturating_sub(u32::try_from(some.len()).unwrap_or(u32::MAX));
    let from_zeros = zeros.min(counted);
    let sum: f64 = some.iter().take((counted - from_zeros) as usize).sum();
    (sum + f64::from(from_zeros) * ANSCOMBE.sqrt()) / f64::from(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(hosts: u32, count: impl Fn(u32, u32) -> u32) -> (Losses, Vec<Entry>) {
        let mut losses = Losses::default();
        let mut entries = Vec::new();
        for from in 0..hosts {
            for to in (0..hosts).filter(|to| *to != from) {
                let retransmits = Retransmits {
                    segments: 1_000,
                    retransmitted: count(from, to),
                };
                losses.add(HostIndex(from), HostIndex(to), retransmits);
                entries.push(Entry {
                    from: u16::try_from(from).expect("a small mesh"),
                    to: u16::try_from(to).expect("a small mesh"),
                    round: 0,
                    log_rate: 0.0,
                });
            }
        }
        (losses, entries)
    }

    #[test]
    fn a_host_that_loses_what_it_sends_is_the_only_suspect_and_its_share_is_that_of_its_flows() {
        let (losses, entries) = losses(8, |from, _| if from == 3 { 5 } else { 0 });
        let (suspects, usual) = losses.suspects(&entries).expect("hosts");
        let key = (HostIndex(3), Side::Send);
        assert_eq!(suspects, [key]);
        let (share, flows) = losses.retested(usual, key, 0.99).expect("flows");
        assert!((share.share - 0.005).abs() < 1e-9, "{share:?}");
        assert!(
            share.is_higher() && share.high > 0.005 && flows == 7,
            "{share:?}"
        );
    }

    #[test]
    fn one_pair_with_many_retransmissions_makes_neither_of_its_hosts_a_suspect() {
        let (losses, entries) = losses(8, |from, to| if (from, to) == (1, 2) { 900 } else { 0 });
        assert_eq!(losses.suspects(&entries).expect("hosts").0, []);
    }

    #[test]
    fn what_all_hosts_have_in_common_is_no_suspicion() {
        let (losses, entries) = losses(8, |from, to| 20 + (from * 7 + to * 3) % 5);
        assert_eq!(losses.suspects(&entries).expect("hosts").0, []);
    }

    #[test]
    fn more_retransmissions_of_everybody_in_the_retest_raise_what_is_usual() {
        let (first, entries) = losses(8, |from, _| if from == 3 { 5 } else { 0 });
        let (_, usual) = first.suspects(&entries).expect("hosts");
        let (retest, _) = losses(8, |_, _| 5);
        let now = retest.now(usual, 42, |from, to| from != 3 && to != 3);
        let (share, _) = retest
            .retested(now, (HostIndex(3), Side::Send), 0.99)
            .expect("flows");
        assert!(!share.is_higher(), "{share:?}");
    }

    #[test]
    fn flows_of_few_segments_count_for_nothing() {
        let mut losses = Losses::default();
        let retransmits = Retransmits {
            segments: 20,
            retransmitted: 10,
        };
        losses.add(HostIndex(0), HostIndex(1), retransmits);
        assert_eq!(losses.usual(), None);
    }
}
