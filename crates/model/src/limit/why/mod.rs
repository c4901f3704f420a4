//! Whether a named limit is the limit: short trials that differ from the measured one in one thing, and what each
//! limit predicts of them. A limit is proved when its prediction came true and every rival is refuted.
//!
//! The interventions change nothing on either host. docs/book/concepts/limits.md has the table of predictions.

mod contradiction;
mod effect;
mod intervention;
mod prediction;
#[cfg(test)]
mod tests;

use std::fmt;

use contradiction::{
    contradicted_by, is_window_full, loss_explains_rate, loss_too_small, loss_without_effect,
};
pub use effect::{Effect, Round, TrialFigures};
use effect::{is_above, is_like_the_measured};
pub use intervention::{Intervention, applies_to, plain};
pub use prediction::choose;
use prediction::{Family, PREDICTIONS, family, is_decisive, only_predicted_by};
use serde::{Deserialize, Serialize};

use super::{Limit, LimitKind};
use crate::analysis;
use crate::finding::Evidence;
use crate::sample::Sample;
use crate::threshold;
use crate::units::{BitRate, Ratio};

/// The source of evidence that interventions gave.
pub const INTERVENTIONS: &str = "trials of `--why`";

/// How certain a named limit is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// An intervention did what it predicts, and every other limit is refuted.
    Proved,
    /// The evidence of one trial suggests it.
    Likely,
    /// There is no limit that the evidence suffices for.
    #[default]
    NotDetermined,
}

impl Status {
    /// A limit's name with how certain it is: `loss, likely`.
    pub fn qualified(self, what: &str) -> String {
        match self {
            Self::NotDetermined => what.to_owned(),
            status => format!("{what}, {status}"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proved => "proved",
            Self::Likely => "likely",
            Self::NotDetermined => "not determined",
        })
    }
}

/// What became of a possible limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hypothesis {
    /// The limit.
    pub what: LimitKind,
    /// Whether the trial's own evidence suggests it.
    pub suggested: bool,
    /// What contradicts it; empty if nothing does.
    pub refuted_by: Vec<String>,
    /// The interventions that it predicted.
    pub supported_by: Vec<Intervention>,
}

impl Hypothesis {
    /// Whether nothing contradicts it.
    pub fn stands(&self) -> bool {
        self.refuted_by.is_empty()
    }
}

/// An intervention and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// What was changed.
    pub intervention: Intervention,
    /// Trials without it and with it, in turn.
    pub rounds: Vec<Round>,
    /// Why a rate that is not higher shows nothing, if a trial met such a thing.
    pub obstacle: Option<String>,
    /// The result.
    pub effect: Effect,
    /// Why it was not tried, or why its result is unclear.
    pub reason: Option<String>,
}

/// The verdict over a trial's suggestions and the interventions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The limit.
    pub what: LimitKind,
    /// How certain it is.
    pub status: Status,
    /// All limits: those that stand first, then by what suggests them.
    pub hypotheses: Vec<Hypothesis>,
}

impl Verdict {
    /// The limit that a trial suggests as interventions leave it.
    pub fn limit(&self, tried: &[Tried], of_trial: Limit) -> Limit {
        let is_same = of_trial.what == self.what;
        let mut shown = evidence(tried);
        if is_same {
            shown.extend(of_trial.evidence);
        }
        Limit {
            what: self.what,
            status: self.status,
            rule: of_trial.rule.filter(|_| is_same),
            evidence: shown,
            ..of_trial
        }
    }

    /// The limits that nothing contradicts.
    pub fn standing(&self) -> Vec<LimitKind> {
        let standing = self.hypotheses.iter().filter(|one| one.stands());
        standing.map(|one| one.what).collect()
    }
}

/// Decides between `suggested`, the limits that the evidence of `sample` suggests (the best first), by what was tried.
pub fn decide(sample: &Sample, suggested: &[LimitKind], tried: &[Tried]) -> Verdict {
    let ways = analysis::ways(sample);
    let way = ways.first();
    let capacity = path_capacity(tried);
    let is_full = way.is_some_and(|way| is_window_full(sample, way));
    let mut hypotheses: Vec<Hypothesis> = PREDICTIONS
        .iter()
        .map(|(what, family, predicted)| {
            let mut refuted_by: Vec<String> = Vec::new();
            let mut supported_by = Vec::new();
            let is_suggested = suggested.contains(what);
            // A window that something else than the buffer keeps small: a route, a connection without window scaling.
            let is_window = matches!(what, LimitKind::ReceiveWindow | LimitKind::WindowRtt);
            for one in tried {
                let effect = capacity.map_or(one.effect, |most| one.effect_below(most, *family));
                match predicted[one.intervention.place()].of(effect) {
                    Some(true) => supported_by.push(one.intervention),
                    Some(false) if is_full && one.intervention.is_of_buffers() && is_window => {}
                    // Nothing here is relieved by smaller buffers. That they are faster shows that the window follows the
                    // buffer in another way, as where a router rewrites its scale.
                    Some(false)
                        if one.intervention == Intervention::SmallerBuffers
                            && effect == Effect::Higher
                            && is_window
                            && is_suggested => {}
                    Some(false) => refuted_by.push(format!("{}: {}", one.intervention, effect)),
                    None => {}
                }
            }
            // Of one CPU that both ends share, each end's is a part.
            let is_part = matches!(what, LimitKind::SenderCpu | LimitKind::ReceiverCpu)
                && suggested.contains(&LimitKind::SharedCpu);
            if *what == LimitKind::Loss {
                let elsewhere = loss_without_effect(sample, tried);
                let paced = || way.and_then(|way| loss_too_small(sample, way, tried));
                refuted_by.extend(elsewhere.or_else(paced));
            }
            let contradicted = way.filter(|_| !is_suggested || is_part);
            refuted_by.extend(contradicted.and_then(|way| contradicted_by(*what, sample, way)));
            Hypothesis {
                what: *what,
                suggested: is_suggested,
                refuted_by,
                supported_by,
            }
        })
        .collect();
    let order = |what: LimitKind| {
        let place = suggested.iter().position(|one| *one == what);
        place.unwrap_or(suggested.len())
    };
    hypotheses.sort_by_key(|one| (!one.stands(), order(one.what)));
    let loss_explains_rate = way.is_some_and(|way| loss_explains_rate(sample, way));
    let (what, status) = verdict(&hypotheses, loss_explains_rate);
    Verdict {
        what,
        status,
        hypotheses,
    }
}

/// What the path carried of datagrams that were too many for it. A connection that loses what exceeds a policer's rate
/// stays below that rate, and several come closer to it.
fn path_capacity(tried: &[Tried]) -> Option<BitRate> {
    tried.iter().find_map(Tried::path_capacity)
}

impl Tried {
    /// Judges what its rounds show about the trial that was `measured`.
    pub fn judge(&mut self, measured: TrialFigures) {
        if self.reason.is_some() {
            return;
        }
        if let Some(effect) = self.beside_capacity(measured) {
            self.effect = effect;
            let reason = "far fewer datagrams arrived than the connection carried";
            self.reason = (effect == Effect::Unclear).then(|| reason.to_owned());
            return;
        }
        self.effect = self.intervention.effect(&self.rounds, measured);
        let is_higher = self
            .effect
            .is_higher()
            .filter(|_| self.intervention.compares_rates());
        let reason = match () {
            () if is_higher == Some(true) && is_above(&self.rounds, measured.rate) => None,
            () if is_like_the_measured(&self.rounds, measured.rate) => self
                .obstacle
                .as_deref()
                .filter(|_| is_higher == Some(false)),
            // A loss that stays at a lower rate is not one of too high a rate.
            () if !self.intervention.compares_rates() && self.effect == Effect::NotLower => None,
            () => Some("the short trials without it reached another rate than the measured one"),
        };
        if let Some(reason) = reason.map(ToOwned::to_owned) {
            self.effect = Effect::Unclear;
            self.reason = Some(reason);
        } else if is_higher == Some(true) && self.crowds_out(measured) {
            self.effect = Effect::NotLower;
        }
    }

    /// What the path carried of datagrams, if all trials had too many for it.
    fn path_capacity(&self) -> Option<BitRate> {
        let rounds = self.rounds.iter();
        let is_full = self.intervention == Intervention::Datagrams
            && rounds.clone().all(|round| round.with.overflowed());
        rounds
            .map(|round| round.with.rate)
            .max()
            .filter(|_| is_full)
    }

    /// The effect of datagrams of which the path dropped some. If it carried no more than about the rate that was
    /// measured, nothing else held that back; below a policer a connection that loses may get half of it only, but so
    /// it may where the path loses at random. Where it carried far fewer than the connection, there were too many packets.
    fn beside_capacity(&self, measured: TrialFigures) -> Option<Effect> {
        let most = self.path_capacity()?.as_f64();
        let is_of = |rate: BitRate, share: Ratio| rate.as_f64() >= share.as_f64() * most;
        let has_lost = measured.segments.is_some_and(|(_, lost)| lost > 0.0);
        let mut plain = self.rounds.iter().map(|round| round.without.rate);
        let is_steady = !has_lost || plain.all(|rate| is_of(rate, threshold::WHY_POLICED));
        match () {
            () if most < threshold::WHY_CARRIED.as_f64() * measured.rate.as_f64() => {
                Some(Effect::Unclear)
            }
            () if !is_steady => None,
            () if is_of(measured.rate, threshold::WHY_CARRIED) => Some(Effect::NotHigher),
            () if has_lost && is_of(measured.rate, threshold::WHY_POLICED) => {
                Some(Effect::NotLower)
            }
            () => None,
        }
    }

    /// Whether datagrams were more than the path carries, so that they may have taken the place of others' packets, which
    /// a connection leaves to them.
    fn crowds_out(&self, measured: TrialFigures) -> bool {
        let all = threshold::WHY_ARRIVED.as_f64() * intervention::DATAGRAMS_FACTOR;
        let least = measured.rate.as_f64() * all;
        let mut rates = self.rounds.iter().map(|round| round.with.rate.as_f64());
        self.intervention == Intervention::Datagrams && rates.any(|rate| rate < least)
    }

    /// Its effect beside `most`, what the path carries, for the limits of `family`: a rate up to that is not above the
    /// path's.
    fn effect_below(&self, most: BitRate, family: Family) -> Effect {
        let most = most.as_f64() * threshold::WHY_SAME;
        let mut rates = self.rounds.iter().map(|round| round.with.rate.as_f64());
        let is_below = family == Family::PathRate
            && self.intervention.compares_rates()
            && rates.len() > 0
            && rates.all(|rate| rate <= most);
        match self.effect {
            Effect::Higher | Effect::NotLower | Effect::Unclear if is_below => Effect::NotHigher,
            effect => effect,
        }
    }
}

impl Hypothesis {
    /// The interventions that speak for it and that few others predicted, or else all that speak for it.
    pub fn deciding(&self) -> Vec<Intervention> {
        let all = self.supported_by.iter().copied();
        let few: Vec<Intervention> = (all.clone())
            .filter(|one| is_decisive(self.what, *one, self.suggested))
            .collect();
        if few.is_empty() { all.collect() } else { few }
    }

    /// How much speaks for it: the trial's own evidence, and what it said of interventions.
    fn weight(&self) -> usize {
        const SUGGESTED: usize = 2;
        self.supported_by.len() + if self.suggested { SUGGESTED } else { 0 }
    }

    /// Whether something speaks for it that few others predicted.
    fn has_decisive_support(&self) -> bool {
        let decides = |one: &Intervention| is_decisive(self.what, *one, self.suggested);
        self.supported_by.iter().any(decides)
    }
}

/// The verdict. Where a rival stands that the evidence suggests as much, there is none: a name that is wrong costs more
/// than none.
fn verdict(hypotheses: &[Hypothesis], loss_explains_rate: bool) -> (LimitKind, Status) {
    const NONE: (LimitKind, Status) = (LimitKind::NotDetermined, Status::NotDetermined);
    let standing: Vec<&Hypothesis> = hypotheses.iter().filter(|one| one.stands()).collect();
    let Some(first) = standing.first() else {
        return NONE;
    };
    let is_shown = |one: &Hypothesis| {
        let resists = [Intervention::Paced, Intervention::OtherControl];
        one.what != LimitKind::Loss
            || loss_explains_rate
            || resists.iter().any(|what| one.supported_by.contains(what))
    };
    let own = family(first.what);
    if standing.iter().all(|one| family(one.what) == own) {
        // Within a family the first trial decides, if it suggests one.
        let has_decisive_support = standing.iter().any(|one| one.has_decisive_support());
        // Below a policer a connection also loses, and is faster with anything that minds loss less.
        let loss_stays = first.supported_by.contains(&Intervention::Paced);
        let has_decisive_support =
            has_decisive_support && (first.what != LimitKind::Loss || loss_stays);
        let is_own = |one: &&Hypothesis| {
            let mut seen = one.supported_by.iter();
            seen.any(|intervention| only_predicted_by(one.what, *intervention))
        };
        return match (has_decisive_support, first.suggested) {
            (true, true) => (first.what, Status::Proved),
            (true, false) if standing.len() == 1 => (first.what, Status::Proved),
            (true, false) if standing.iter().any(is_own) => (first.what, Status::Likely),
            (false, true) if is_shown(first) => (first.what, Status::Likely),
            _ => NONE,
        };
    }
    // What said most of what came true; of equal ones the first that the trial suggests.
    let best = standing.iter().rev().max_by_key(|one| one.weight());
    let is_alone = |best: &Hypothesis| {
        let own = family(best.what);
        let rivals = || standing.iter().filter(|one| family(one.what) != own);
        let has_equal = !best.has_decisive_support() && rivals().any(|one| one.suggested);
        let is_policed =
            best.what == LimitKind::Loss && rivals().any(|one| one.what == LimitKind::Shaper);
        !has_equal && !is_policed
    };
    best.filter(|one| one.suggested && is_alone(one) && is_shown(one))
        .map_or(NONE, |one| (one.what, Status::Likely))
}

/// What was tried, as evidence.
fn evidence(tried: &[Tried]) -> Vec<Evidence> {
    let shown = tried.iter().filter(|one| !one.rounds.is_empty());
    shown
        .map(|one| {
            let of = |seen: TrialFigures| {
                if one.intervention.compares_rates() {
                    seen.rate.to_string()
                } else {
                    effect::loss_in_words(seen)
                }
            };
            let rounds = one.rounds.iter();
            let rounds =
                rounds.map(|round| format!("{} instead of {}", of(round.with), of(round.without)));
            let rounds: Vec<String> = rounds.collect();
            Evidence::new(
                format!("with {}", one.intervention),
                format!("{}: {}", one.effect, rounds.join(", ")),
                INTERVENTIONS,
            )
        })
        .collect()
}
