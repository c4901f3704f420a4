//! How trials with an intervention compare with those without it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::figures::{Figures, Turns};
use crate::analysis::{self, figures};
use crate::limit::drops::refused_by_own_host;
use crate::sample::{FlowRecord, Sample};
use crate::threshold;
use crate::units::{BitRate, Ratio, real};
use crate::workload::Workload;

/// The figures of one trial that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrialFigures {
    /// The rate.
    pub rate: BitRate,
    /// The segments or datagrams that were sent, and how many of them were lost.
    pub segments: Option<(f64, f64)>,
}

impl TrialFigures {
    /// The figures of `sample`, which reached `rate`.
    pub fn of(sample: &Sample, rate: BitRate) -> Self {
        let ways = analysis::ways(sample);
        let segments = ways.first().and_then(|way| {
            let sum = |each: Option<Vec<(f64, f64)>>| {
                let each = each.filter(|all| !all.is_empty())?;
                let add = |all: (f64, f64), one: (f64, f64)| (all.0 + one.0, all.1 + one.1);
                Some(each.into_iter().fold((0.0, 0.0), add))
            };
            if matches!(sample.spec.workload, Workload::Udp(_)) {
                return sum(way.receiver.receivers().map(datagrams).collect());
            }
            let refused = real(refused_by_own_host(way.sender));
            let (sent, lost) = sum(way.sender.senders().map(segments).collect())?;
            Some((sent + refused, lost + refused))
        });
        Self { rate, segments }
    }

    /// Whether the path lost so much of what was sent that it carries no more.
    pub(super) fn overflowed(self) -> bool {
        self.segments
            .is_some_and(|(sent, lost)| lost > (1.0 - threshold::WHY_ARRIVED.as_f64()) * sent)
    }
}

fn segments(flow: &FlowRecord) -> Option<(f64, f64)> {
    let tcp = flow.tcp.value()?;
    let segment = real(tcp.snd_mss_bytes.as_u64().max(1));
    let lost = real(figures::lost(tcp)) / segment;
    Some((real(tcp.bytes_sent.as_u64()) / segment, lost))
}

fn datagrams(flow: &FlowRecord) -> Option<(f64, f64)> {
    let all = flow.datagrams.as_ref()?;
    let arrived = all.count.saturating_sub(all.duplicated);
    Some((real(arrived.saturating_add(all.lost)), real(all.lost)))
}

/// A trial without the intervention, and one with it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Without it.
    pub without: TrialFigures,
    /// With it.
    pub with: TrialFigures,
}

/// How trials with an intervention compare with those without it: their rates, or, of a paced trial, their losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Higher.
    Higher,
    /// Neither higher nor lower.
    Unchanged,
    /// Lower.
    Lower,
    /// Not higher; whether it is lower is unclear.
    NotHigher,
    /// Not lower; whether it is higher is unclear.
    NotLower,
    /// Too noisy to say, or a CPU was used up by the intervention itself.
    Unclear,
}

impl Effect {
    /// Whether it is higher, if that is clear.
    pub fn is_higher(self) -> Option<bool> {
        match self {
            Self::Higher => Some(true),
            Self::Unchanged | Self::Lower | Self::NotHigher => Some(false),
            Self::NotLower | Self::Unclear => None,
        }
    }

    /// Whether it is lower, if that is clear.
    pub fn is_lower(self) -> Option<bool> {
        match self {
            Self::Lower => Some(true),
            Self::Unchanged | Self::Higher | Self::NotLower => Some(false),
            Self::NotHigher | Self::Unclear => None,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Higher => "higher",
            Self::Unchanged => "unchanged",
            Self::Lower => "lower",
            Self::NotHigher => "not higher",
            Self::NotLower => "not lower",
            Self::Unclear => "unclear",
        })
    }
}

/// Whether the short trials without an intervention reached about the rate that was measured. Where a connection still
/// speeds up, or has not lost anything yet, they show nothing.
pub(super) fn is_like_the_measured(rounds: &[Round], measured: BitRate) -> bool {
    rounds.iter().all(|round| {
        let ratio = round.without.rate.as_f64() / measured.as_f64();
        (1.0 / threshold::WHY_LIKE..=threshold::WHY_LIKE).contains(&ratio)
    })
}

/// Whether every trial with the intervention was also faster than the measured one.
pub(super) fn is_above(rounds: &[Round], measured: BitRate) -> bool {
    let least = measured.as_f64() * threshold::WHY_CHANGE;
    rounds.iter().all(|round| round.with.rate.as_f64() >= least)
}

/// The effect on the rate. Every round must show the same.
pub(super) fn on_rate(rounds: &[Round]) -> Effect {
    let plain = || rounds.iter().map(|round| round.without.rate.as_f64());
    let (least, most) = (
        plain().fold(f64::INFINITY, f64::min),
        plain().fold(0.0, f64::max),
    );
    if least <= 0.0 || rounds.is_empty() {
        return Effect::Unclear;
    }
    let noise = most / least;
    let all = |fits: &dyn Fn(f64) -> bool| {
        let ratio = |round: &Round| round.with.rate.as_f64() / round.without.rate.as_f64();
        rounds.iter().map(ratio).all(fits)
    };
    let change = threshold::WHY_CHANGE * noise;
    let same = threshold::WHY_SAME * noise;
    let is_quiet = noise <= threshold::WHY_NOISE;
    let (not_higher, not_lower) = (
        is_quiet && all(&|ratio| ratio <= same),
        is_quiet && all(&|ratio| ratio >= 1.0 / same),
    );
    match () {
        () if all(&|ratio| ratio >= change) => Effect::Higher,
        () if all(&|ratio| ratio <= 1.0 / change) => Effect::Lower,
        () if not_higher && not_lower => Effect::Unchanged,
        () if not_higher => Effect::NotHigher,
        () if not_lower => Effect::NotLower,
        () => Effect::Unclear,
    }
}

/// The effect on the share of segments that are lost, over all rounds. The share without it is the smaller of that in
/// the plain trials and in the measured one: a connection that starts may lose far more than later.
pub(super) fn on_loss(rounds: &[Round], measured: TrialFigures) -> Effect {
    let sum = |pick: fn(&Round) -> TrialFigures| -> Option<(f64, f64)> {
        rounds.iter().try_fold((0.0, 0.0), |(sent, lost), round| {
            let (more, of_it) = pick(round).segments?;
            Some((sent + more, lost + of_it))
        })
    };
    let share = |(sent, lost): (f64, f64)| (sent > 0.0).then(|| lost / sent);
    let plain = sum(|round| round.without).and_then(share);
    let before = plain.zip(measured.segments.and_then(share));
    let Some((with, (plain, before))) = sum(|round| round.with).zip(before) else {
        return Effect::Unclear;
    };
    let expected = with.0 * plain.min(before);
    match () {
        () if expected < threshold::WHY_LOST_LEAST => Effect::Unclear,
        // Without selective acknowledgments a connection sends far more again than was lost: what is left may be all of it.
        () if with.1 <= expected * threshold::WHY_LOSS_GONE.as_f64()
            && with.1 <= with.0 * threshold::WHY_LOSS_NONE.as_f64() =>
        {
            Effect::Lower
        }
        () if with.1 >= expected * threshold::WHY_LOSS_STAYS.as_f64() => Effect::NotLower,
        () => Effect::Unclear,
    }
}

/// The share of segments lost, for a line.
pub(super) fn loss_in_words(seen: TrialFigures) -> String {
    match seen.segments {
        Some((sent, lost)) if sent > 0.0 => format!("{lost:.0} of {sent:.0} segments lost"),
        _ => "loss not known".to_owned(),
    }
}

/// Whether a CPU may have held up a trial.
pub(super) fn used_up_a_cpu(sample: &Sample) -> bool {
    analysis::ways(sample).iter().any(|way| {
        let figures = Figures::of(way, &sample.spec);
        let threads = [figures.sender, figures.receiver];
        let wanted = |turns: Turns| turns.wanted().map_or(1.0, Ratio::as_f64);
        let waited = |turns: Turns| turns.waited.map_or(1.0, Ratio::as_f64);
        let is_crowded =
            figures::machine_busy(way.sender).is_none_or(|busy| busy > threshold::CROWDED_SHARE);
        threads.into_iter().any(|turns| {
            wanted(turns) >= threshold::WHY_BUSY.as_f64()
                || is_crowded && waited(turns) >= threshold::WHY_WAITED.as_f64()
        })
    })
}
