//! Names those suspects that the retest confirms, by what it measured alone.

use std::collections::BTreeMap;

use linerate_model::mesh::{Failure, Group, HostIndex};
use linerate_stats::Interval;
use linerate_stats::summary::median;
use linerate_stats::two_way::{MEDIAN_VARIANCE, Spread, inflation, scatter, shift};

use super::TOLERANCE;
use super::failures::{FailedPairs, Tries, failed_pairs, failing_hosts};
use super::gathered::Gathered;
use super::loss::{LossShare, Losses, Usual};
use super::screen::{Screening, Side, Suspect, cells, is_most};

/// The share of meshes without a fault in which anything may be named is 5 %; the tests are approximate, so they share a
/// little less.
const ERROR: f64 = 0.04;
/// The level of the intervals that are shown of hosts which are not named.
const LEVEL: f64 = 0.95;
/// The drift since the first part is not known from fewer pairs without a suspect.
const REFERENCES_MIN: usize = 5;
/// Fewer new results confirm nothing.
const VALUES_MIN: usize = 3;

/// What a name is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedPart {
    /// A host on one side.
    Host(HostIndex, Side),
    /// One direction between two hosts.
    Direction(HostIndex, HostIndex),
    /// Both directions between two hosts.
    Pair(HostIndex, HostIndex),
    /// A group on one side, with its members.
    Group(Group, Vec<HostIndex>, Side),
    /// What a host sends is lost, or what it should receive.
    Loss(HostIndex, Side),
}

/// A suspect that was confirmed.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirmed {
    /// What.
    pub part: NamedPart,
    /// The change of the rate with its simultaneous interval, on the scale of logarithms; none if data does not arrive.
    pub effect: Option<(f64, Interval)>,
    /// The share of its segments that are retransmitted, if it is higher than that of most hosts.
    pub loss: Option<LossShare>,
    /// How flows fail, if they do.
    pub failure: Option<Failure>,
    /// The change of the rate in the first part.
    pub first: Option<f64>,
    /// How many results of the retest show it.
    pub results: usize,
}

/// A suspect that the retest did not confirm.
#[derive(Debug, Clone, PartialEq)]
pub struct Cleared {
    /// The suspect.
    pub suspect: Suspect,
    /// What the retest shows, on the scale of logarithms; none without enough results.
    pub effect: Option<(f64, Interval)>,
    /// How many results it has.
    pub results: usize,
}

/// What a mesh shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What is slow or fails, the worst first.
    pub named: Vec<Confirmed>,
    /// Suspects that are not.
    pub cleared: Vec<Cleared>,
    /// Suspects that were not measured again, or not often enough.
    pub open: Vec<Suspect>,
    /// The standard deviation of the logarithm of one rate; none if too little was measured.
    pub noise: Option<f64>,
    /// The smallest slowdown of a host that a retest would have confirmed; none if that is not known.
    pub detectable: Option<f64>,
    /// The effect of each host on each side, on the scale of logarithms, with its interval.
    pub effects: [Vec<Option<(f64, Interval)>>; 2],
}

/// The verdict on a mesh. Without a retest every suspect stays open.
pub fn judge(
    screening: &Screening,
    first: &Gathered,
    retest: Option<&Gathered>,
    is_lost: &[bool],
) -> Verdict {
    let none = Gathered::default();
    let retest = retest.unwrap_or(&none);
    let data = Retested::of(screening, retest, is_lost);
    let mut verdict = Verdict {
        named: Vec::new(),
        cleared: Vec::new(),
        open: Vec::new(),
        noise: screening.fit.scale,
        detectable: data.detectable(),
        effects: Side::ALL.map(|side| effects(screening, side)),
    };
    for suspect in &screening.suspects {
        match suspect {
            Suspect::FailingHost(..) | Suspect::FailedPair(..) => {
                data.judge_failure(suspect, first, &mut verdict);
            }
            Suspect::Loss(host, side) => data.judge_loss(*host, *side, &mut verdict),
            _ => data.judge_slow(suspect, &mut verdict),
        }
    }
    Retested::keep_the_simplest(&mut verdict);
    Retested::join_losses(&mut verdict);
    verdict
        .named
        .sort_by(|a, b| severity(a).total_cmp(&severity(b)));
    verdict
}

/// Failures first, then by size; loss that does not lower the rate comes last.
fn severity(one: &Confirmed) -> f64 {
    let without = if one.failure.is_some() { f64::MIN } else { 0.0 };
    one.effect.map_or(without, |(effect, _)| effect)
}

/// The effects of the hosts with intervals for each alone.
fn effects(screening: &Screening, side: Side) -> Vec<Option<(f64, Interval)>> {
    let unit = Spread {
        scale: 0.0,
        freedom: screening.fit.freedom,
        inflation: 1.0,
        common: 1.0,
    };
    let Some((_, wide)) = shift(&[0.0], unit, LEVEL) else {
        return Vec::new();
    };
    let all = 0..screening.counts[0].len();
    let effect = |host: usize| {
        let host = HostIndex::at(host);
        let effect = screening.effect(host, side)?;
        let error = screening.variance(host, side)?.sqrt();
        let interval = Interval {
            low: effect + wide.low * error,
            high: effect + wide.high * error,
            level: LEVEL,
        };
        Some((effect, interval))
    };
    all.map(effect).collect()
}

/// The results of a retest, relative to what the first part lets expect.
struct Retested<'a> {
    screening: &'a Screening,
    /// Of each directed pair: what is left of the logarithms of its rates after the center, without the hosts' effects.
    rest: BTreeMap<(HostIndex, HostIndex), Vec<f64>>,
    failed: FailedPairs,
    failing: BTreeMap<(HostIndex, Side), (usize, usize)>,
    spread: Option<Spread>,
    losses: &'a Losses,
    usual_loss: Option<Usual>,
    /// The error of each test.
    error: f64,
}

impl<'a> Retested<'a> {
    fn of(screening: &'a Screening, retest: &'a Gathered, is_lost: &[bool]) -> Self {
        let fit = &screening.fit;
        let cells = cells(retest.judged());
        let is_reference = screening.references();
        let references = cells
            .iter()
            .filter(|cell| is_reference(cell.row, cell.column));
        let references: Vec<f64> = references.map(|cell| fit.residual(cell)).collect();
        let drift = if references.len() < REFERENCES_MIN {
            0.0
        } else {
            median(&references).unwrap_or(0.0)
        };
        let mut rest: BTreeMap<(HostIndex, HostIndex), Vec<f64>> = BTreeMap::new();
        for cell in &cells {
            let pair = (HostIndex(cell.row), HostIndex(cell.column));
            let value = f64::from(cell.value) - fit.center - drift;
            rest.entry(pair).or_default().push(value);
        }
        let failed = failed_pairs(retest, is_lost);
        #[expect(clippy::cast_precision_loss, reason = "a few tests")]
        let tests = screening.suspects.len().max(1) as f64;
        Self {
            spread: spread(screening, &references),
            failing: failing_hosts(retest, &failed),
            losses: &retest.losses,
            usual_loss: screening.usual_loss.map(|usual| {
                let known = u32::try_from(references.len()).unwrap_or(u32::MAX);
                retest.losses.now(usual, known, &is_reference)
            }),
            screening,
            rest,
            failed,
            error: ERROR / tests,
        }
    }

    /// The new results of a host, without the effects of its partners. Pairs that are suspects themselves do not count.
    fn of_host(&self, host: HostIndex, side: Side) -> Vec<f64> {
        let mut values = Vec::new();
        for ((from, to), rest) in &self.rest {
            let (own, partner, other) = match side {
                Side::Send => (*from, *to, Side::Receive),
                Side::Receive => (*to, *from, Side::Send),
            };
            let is_suspect = || {
                let suspects = &self.screening.suspects;
                suspects.contains(&Suspect::Pair(*from, *to))
            };
            if own == host && !is_suspect() {
                let partner = self.screening.effect(partner, other).unwrap_or(0.0);
                values.extend(rest.iter().map(|rest| rest - partner));
            }
        }
        values
    }

    /// The effect of a host from both parts, for what is expected of its pairs.
    fn refined(&self, host: HostIndex, side: Side) -> (f64, f64) {
        let new = self.of_host(host, side);
        let (first, of_first) = (
            self.screening.effect(host, side).unwrap_or(0.0),
            f64::from(self.screening.counts[side.index()][host.position()]),
        );
        #[expect(clippy::cast_precision_loss, reason = "a few results")]
        let of_new = new.len() as f64;
        let all = (of_first + of_new).max(1.0);
        let scale = self.screening.fit.scale.unwrap_or(0.0);
        let effect = (first * of_first + median(&new).unwrap_or(0.0) * of_new) / all;
        (effect, MEDIAN_VARIANCE * scale.powi(2) / all)
    }

    /// The median of results and its interval, at the level of each test.
    fn test(&self, values: &[f64], common: f64) -> Option<(f64, Interval)> {
        if values.len() < VALUES_MIN {
            return None;
        }
        let spread = Spread {
            inflation: inflation(self.screening.lag_one, values.len()),
            common,
            ..self.spread?
        };
        shift(values, spread, 1.0 - 2.0 * self.error)
    }

    /// The same of a group, of which each value is the median of a member.
    fn test_group(&self, members: &[Vec<f64>]) -> Option<(f64, Interval)> {
        let fewest = members.iter().map(Vec::len).min()?;
        let medians = members.iter().filter_map(|values| median(values).ok());
        let medians: Vec<f64> = medians.collect();
        if fewest < VALUES_MIN || medians.len() < VALUES_MIN {
            return None;
        }
        let spread = self.spread?;
        let inflated = inflation(self.screening.lag_one, fewest);
        #[expect(clippy::cast_precision_loss, reason = "a few results")]
        let of_median = MEDIAN_VARIANCE * inflated / fewest as f64;
        let spread = Spread {
            scale: spread.scale * of_median.sqrt(),
            ..spread
        };
        shift(&medians, spread, 1.0 - 2.0 * self.error)
    }

    fn result_of(&self, suspect: &Suspect) -> (Option<(f64, Interval)>, usize) {
        match suspect {
            Suspect::Host(host, side) => {
                let values = self.of_host(*host, *side);
                (self.test(&values, 0.0), values.len())
            }
            Suspect::Pair(from, to) => {
                let (sender, of_sender) = self.refined(*from, Side::Send);
                let (receiver, of_receiver) = self.refined(*to, Side::Receive);
                let rest = self.rest.get(&(*from, *to)).map_or(&[][..], Vec::as_slice);
                let values: Vec<f64> = rest.iter().map(|rest| rest - sender - receiver).collect();
                (self.test(&values, of_sender + of_receiver), values.len())
            }
            Suspect::Group(_, members, side) => {
                let of = members.iter().map(|host| self.of_host(*host, *side));
                let of: Vec<Vec<f64>> = of.collect();
                (self.test_group(&of), of.iter().map(Vec::len).sum())
            }
            _ => (None, 0),
        }
    }

    fn first_of(&self, suspect: &Suspect) -> Option<f64> {
        match suspect {
            Suspect::Host(host, side) => self.screening.effect(*host, *side),
            Suspect::Group(_, members, side) => {
                let effects = members
                    .iter()
                    .filter_map(|host| self.screening.effect(*host, *side));
                median(&effects.collect::<Vec<_>>()).ok()
            }
            _ => None,
        }
    }

    fn judge_slow(&self, suspect: &Suspect, verdict: &mut Verdict) {
        let (effect, results) = self.result_of(suspect);
        let Some((size, interval)) = effect else {
            verdict.open.push(suspect.clone());
            return;
        };
        if interval.high.exp_m1() >= -TOLERANCE || !self.is_shared(suspect, size) {
            verdict.cleared.push(Cleared {
                suspect: suspect.clone(),
                effect,
                results,
            });
            return;
        }
        let part = match suspect.clone() {
            Suspect::Host(host, side) => NamedPart::Host(host, side),
            Suspect::Pair(from, to) => NamedPart::Direction(from, to),
            Suspect::Group(group, members, side) => NamedPart::Group(group, members, side),
            _ => return,
        };
        verdict.named.push(Confirmed {
            part,
            effect,
            loss: None,
            failure: None,
            first: self.first_of(suspect),
            results,
        });
    }

    /// Whether most members of a group are slow; true of anything else.
    fn is_shared(&self, suspect: &Suspect, effect: f64) -> bool {
        let Suspect::Group(_, members, side) = suspect else {
            return true;
        };
        let is_slow = |host: &&HostIndex| {
            median(&self.of_host(**host, *side)).is_ok_and(|own| own < effect / 2.0)
        };
        is_most(members.iter().filter(is_slow).count(), members.len())
    }

    fn judge_failure(&self, suspect: &Suspect, first: &Gathered, verdict: &mut Verdict) {
        let (part, failure, results, is_tried) = match suspect {
            Suspect::FailingHost(host, side) => {
                let found = self.failing.get(&(*host, *side));
                let failure = first.failed.iter().find_map(|flow| {
                    let own = if *side == Side::Send {
                        flow.from
                    } else {
                        flow.to
                    };
                    (own == *host).then_some(flow.failure)
                });
                let is_tried = found.is_some() || self.of_host(*host, *side).len() >= VALUES_MIN;
                let part = NamedPart::Host(*host, *side);
                (
                    part,
                    found.and(failure),
                    found.map_or(0, |found| found.0),
                    is_tried,
                )
            }
            Suspect::FailedPair(from, to) => {
                let pair = (*from, *to);
                let tries = self.failed.get(&pair).copied();
                let measured = self.rest.get(&pair).map_or(0, Vec::len);
                let is_tried = tries.is_some() || measured > 0;
                let tries = tries.filter(|tries: &Tries| tries.fails());
                let failure = tries.and_then(|tries| tries.failure);
                let results = tries.map_or(0, |tries| tries.failed as usize);
                (NamedPart::Direction(*from, *to), failure, results, is_tried)
            }
            _ => return,
        };
        if !is_tried {
            verdict.open.push(suspect.clone());
        } else if failure.is_some() {
            verdict.named.push(Confirmed {
                part,
                effect: None,
                loss: None,
                failure,
                first: None,
                results,
            });
        } else {
            verdict.cleared.push(Cleared {
                suspect: suspect.clone(),
                effect: None,
                results,
            });
        }
    }

    fn judge_loss(&self, host: HostIndex, side: Side, verdict: &mut Verdict) {
        let level = 1.0 - 2.0 * self.error;
        let suspect = Suspect::Loss(host, side);
        let retested = self
            .usual_loss
            .and_then(|usual| self.losses.retested(usual, (host, side), level));
        let Some((loss, results)) = retested else {
            verdict.open.push(suspect);
            return;
        };
        if loss.is_higher() {
            verdict.named.push(Confirmed {
                part: NamedPart::Loss(host, side),
                effect: None,
                loss: Some(loss),
                failure: None,
                first: None,
                results,
            });
        } else {
            verdict.cleared.push(Cleared {
                suspect,
                effect: None,
                results,
            });
        }
    }

    /// What is slow on one side may be so because of the loss there: one name has both. A slow group has its own reasons for
    /// what its members lose.
    fn join_losses(verdict: &mut Verdict) {
        let losses = verdict
            .named
            .extract_if(.., |one| matches!(one.part, NamedPart::Loss(..)));
        for loss in losses.collect::<Vec<_>>() {
            let NamedPart::Loss(host, side) = loss.part else {
                continue;
            };
            let is_same = |one: &&mut Confirmed| match &one.part {
                NamedPart::Host(own, of) => (*own, *of) == (host, side),
                NamedPart::Group(_, members, of) => *of == side && members.contains(&host),
                _ => false,
            };
            match verdict.named.iter_mut().find(is_same) {
                Some(one) if matches!(one.part, NamedPart::Host(..)) => one.loss = loss.loss,
                Some(_) => {}
                None => verdict.named.push(loss),
            }
        }
    }

    /// A group stands for those of its members that are as slow as the group, a host for its pairs, and a pair for its two
    /// directions.
    fn keep_the_simplest(verdict: &mut Verdict) {
        let groups: Vec<Confirmed> = verdict
            .named
            .iter()
            .filter(|one| matches!(one.part, NamedPart::Group(..)))
            .cloned()
            .collect();
        verdict.named.retain(|one| {
            let NamedPart::Host(host, side) = &one.part else {
                return true;
            };
            !groups
                .iter()
                .any(|group| match (&group.part, group.effect, one.effect) {
                    (NamedPart::Group(_, members, of), Some((size, _)), Some((_, own))) => {
                        of == side
                            && members.contains(host)
                            && own.high >= size + (-TOLERANCE).ln_1p()
                    }
                    _ => false,
                })
        });
        let hosts: Vec<NamedPart> = verdict.named.iter().map(|one| one.part.clone()).collect();
        verdict.named.retain(|one| {
            // What scatters at a slow host scatters with each of its partners.
            let NamedPart::Direction(from, to) = one.part else {
                return true;
            };
            one.failure.is_some()
                || !hosts.contains(&NamedPart::Host(from, Side::Send))
                    && !hosts.contains(&NamedPart::Host(to, Side::Receive))
        });
        let directions: Vec<(HostIndex, HostIndex)> = verdict
            .named
            .iter()
            .filter_map(|one| match one.part {
                NamedPart::Direction(from, to) => Some((from, to)),
                _ => None,
            })
            .collect();
        verdict.named.retain_mut(|one| {
            let NamedPart::Direction(from, to) = one.part else {
                return true;
            };
            if !directions.contains(&(to, from)) {
                return true;
            }
            one.part = NamedPart::Pair(from, to);
            from < to
        });
    }

    /// The smallest slowdown of a host that a retest with as many partners confirms half of the time, were this host the
    /// only suspect.
    fn detectable(&self) -> Option<f64> {
        let count = super::RETEST_PARTNERS as usize;
        let spread = Spread {
            inflation: inflation(self.screening.lag_one, count),
            ..self.spread?
        };
        let (_, interval) = shift(&vec![0.0; count], spread, 1.0 - 2.0 * ERROR)?;
        Some(-(interval.low + (-TOLERANCE).ln_1p()).exp_m1())
    }
}

/// How one new result scatters: as in the first part or as the references of the retest do, whichever is more, and with the
/// uncertainty of the partner's effect.
fn spread(screening: &Screening, references: &[f64]) -> Option<Spread> {
    let mut spread: Option<(f64, f64)> = screening
        .fit
        .scale
        .map(|scale| (scale, screening.fit.freedom));
    if references.len() >= REFERENCES_MIN
        && let Some((scale, freedom)) = scatter(references)
        && spread.is_none_or(|(first, _)| scale > first)
    {
        spread = Some((scale, freedom));
    }
    let (scale, freedom) = spread?;
    let [senders, receivers] = &screening.counts;
    let known = senders.iter().chain(receivers).filter(|count| **count > 0);
    let fewest = f64::from(known.min().copied().unwrap_or(1));
    Some(Spread {
        scale: scale * (1.0 + MEDIAN_VARIANCE / fewest).sqrt(),
        freedom,
        inflation: 1.0,
        common: 0.0,
    })
}
