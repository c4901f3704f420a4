//! Whether a named limit is the limit: short trials that differ from the measured one in one thing, and what each
//! limit predicts of them. A limit is proved when its prediction came true and every rival is refuted.
//!
//! The interventions change nothing on either host. docs/book/concepts/limits.md has the table of predictions.

mod intervention;
#[cfg(test)]
mod tests;

use std::fmt;

pub use intervention::{Effect, Intervention, applies_to, effect, plain};
use serde::{Deserialize, Serialize};

use super::LimitKind;
use crate::analysis::figures::{self, Figures, Turns};
use crate::analysis::{self, OneWay};
use crate::finding::Evidence;
use crate::sample::Sample;
use crate::threshold;
use crate::units::BitRate;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What was changed.
    pub intervention: Intervention,
    /// The rate of each round without it, and with it.
    pub rates: Vec<(BitRate, BitRate)>,
    /// The result.
    pub effect: Effect,
    /// Why it was not tried, or why its result is unclear.
    pub reason: Option<String>,
}

/// Limits that no intervention here distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Sender,
    SenderCpu,
    Window,
    Reader,
    ReceiverCpu,
    SharedCpu,
    Machine,
    Loss,
    PathRate,
    Control,
}

/// What a limit says about the rate with an intervention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prediction {
    /// It must be higher.
    Higher,
    /// It cannot be higher.
    NotHigher,
    /// It may be higher, which speaks for the limit; if it is not, that shows nothing.
    MayBeHigher,
    /// Nothing.
    Open,
}

impl Prediction {
    /// Whether `effect` supports the limit (`true`), refutes it, or shows nothing.
    fn of(self, effect: Effect) -> Option<bool> {
        match (self, effect) {
            (Self::Higher | Self::MayBeHigher, Effect::Higher)
            | (Self::NotHigher, Effect::NotHigher) => Some(true),
            (Self::Higher, Effect::NotHigher) | (Self::NotHigher, Effect::Higher) => Some(false),
            _ => None,
        }
    }
}

/// Every limit with its family and its predictions, in the order of [`Intervention::ALL`].
const PREDICTIONS: [(LimitKind, Family, [Prediction; 5]); 14] = {
    use LimitKind as L;
    use Prediction::{Higher as H, MayBeHigher as M, NotHigher as N, Open as O};
    [
        // flows, buffers, control, discarding reader, datagrams
        (L::Shaper, Family::PathRate, [N, N, O, N, N]),
        (L::Pcie, Family::PathRate, [N, N, O, N, N]),
        (L::Wire, Family::PathRate, [N, N, O, N, N]),
        (L::SharedCpu, Family::SharedCpu, [O, N, O, M, O]),
        (L::Machine, Family::Machine, [N, N, O, O, O]),
        (L::SenderCpu, Family::SenderCpu, [O, N, O, N, O]),
        (L::ReceiverCpu, Family::ReceiverCpu, [O, N, O, M, O]),
        (L::Loss, Family::Loss, [H, N, H, N, H]),
        (L::ReceiveWindow, Family::Window, [H, H, O, O, H]),
        (L::SendBuffer, Family::Window, [H, H, O, O, H]),
        (L::WindowRtt, Family::Window, [H, H, O, N, H]),
        // While a program sleeps, buffers and connections hold what it left.
        (L::SenderProgram, Family::Sender, [O, O, N, N, O]),
        (L::ReceiverProgram, Family::Reader, [O, O, N, O, O]),
        (L::CongestionControl, Family::Control, [H, N, O, N, H]),
    ]
};

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

/// Decides between `suggested`, the limits that the evidence of `sample` suggests (the best first), by what was tried.
pub fn decide(sample: &Sample, suggested: &[LimitKind], tried: &[Tried]) -> Verdict {
    let ways = analysis::ways(sample);
    let way = ways.first();
    let mut hypotheses: Vec<Hypothesis> = PREDICTIONS
        .iter()
        .map(|(what, _, predicted)| {
            let mut refuted_by: Vec<String> = Vec::new();
            let mut supported_by = Vec::new();
            let is_suggested = suggested.contains(what);
            for one in tried {
                match predicted[one.intervention.place()].of(one.effect) {
                    Some(true) => supported_by.push(one.intervention),
                    Some(false) => refuted_by.push(format!("{}: {}", one.intervention, one.effect)),
                    None => {}
                }
            }
            let contradicted = way.filter(|_| !is_suggested);
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
    let (what, status) = verdict(&hypotheses, tried);
    Verdict {
        what,
        status,
        hypotheses,
    }
}

fn verdict(hypotheses: &[Hypothesis], tried: &[Tried]) -> (LimitKind, Status) {
    let standing: Vec<&Hypothesis> = hypotheses.iter().filter(|one| one.stands()).collect();
    let Some(first) = standing.first() else {
        return (LimitKind::NotDetermined, Status::NotDetermined);
    };
    let alone = standing
        .iter()
        .all(|one| family(one.what) == family(first.what));
    // A rate that did not rise supports many; one that did, or a path that carries no more datagrams, is decisive.
    let decisive = first.supported_by.iter().any(|one| {
        let effect = tried.iter().find(|tried| tried.intervention == *one);
        effect.is_some_and(|tried| {
            tried.effect == Effect::Higher || tried.intervention == Intervention::Datagrams
        })
    });
    // Within a family the first trial decides, if it suggests one.
    let named = first.suggested || standing.len() == 1;
    match (alone && decisive, named) {
        (true, true) => (first.what, Status::Proved),
        (true, false) => (first.what, Status::Likely),
        (false, _) if first.suggested => (first.what, Status::Likely),
        (false, _) => (LimitKind::NotDetermined, Status::NotDetermined),
    }
}

fn family(what: LimitKind) -> Option<Family> {
    let found = PREDICTIONS.iter().find(|(kind, ..)| *kind == what);
    found.map(|(_, family, _)| *family)
}

/// What the trial itself says against a limit that it does not suggest.
fn contradicted_by(what: LimitKind, sample: &Sample, way: &OneWay<'_>) -> Option<String> {
    let figures = Figures::of(way, &sample.spec);
    let wanted = |turns: Turns| {
        let wanted = turns.wanted()?;
        (wanted < threshold::WHY_IDLE).then_some(wanted)
    };
    match what {
        LimitKind::SenderProgram => {
            let busy = figures
                .busy
                .filter(|busy| *busy >= threshold::CONGESTION_SHARE)?;
            Some(format!("data to send for {busy} of the time"))
        }
        LimitKind::ReceiverProgram => {
            if figures.sleeps_long(figures.receiver) == Some(false) {
                return Some("the reader sleeps no longer than a connection waits".to_owned());
            }
            let closed = figures.rwnd_limited;
            let closed = closed.filter(|share| *share < threshold::WHY_CLOSED)?;
            // BBR's pacing hides a closed window.
            let control = way.first_tcp()?.congestion_control.as_deref()?;
            (!control.starts_with("bbr"))
                .then(|| format!("limited by the receive window for {closed} of the time"))
        }
        LimitKind::SenderCpu => {
            let share = wanted(figures.sender)?;
            Some(format!(
                "the sending thread running or runnable for {share} of the time"
            ))
        }
        LimitKind::ReceiverCpu => {
            let share = wanted(figures.receiver)?;
            Some(format!(
                "the receiving thread running or runnable for {share} of the time"
            ))
        }
        LimitKind::SharedCpu => match crate::rules::shared_cpu(sample) {
            Ok(None) => Some("the ends do not share one CPU".to_owned()),
            Ok(Some(cpu)) => {
                let busy = figures::cpu_busy(way.sender, cpu)?;
                (busy < threshold::CPU_SHARE).then(|| format!("CPU {cpu} busy for {busy}"))
            }
            Err(_) => None,
        },
        LimitKind::Machine => {
            let busy = [way.sender, way.receiver].map(figures::machine_busy);
            let [Some(one), Some(other)] = busy else {
                return None;
            };
            let busy = if one > other { one } else { other };
            (busy < threshold::MACHINE_SHARE).then(|| format!("the CPUs busy for {busy}"))
        }
        LimitKind::Loss => {
            let lost = figures.lost.filter(|lost| lost.as_f64() <= 0.0)?;
            Some(format!("{lost} of the bytes lost"))
        }
        LimitKind::Wire | LimitKind::Pcie => Some("the rate is not at its ceiling".to_owned()),
        _ => None,
    }
}

/// What was tried, as evidence.
pub fn evidence(tried: &[Tried]) -> Vec<Evidence> {
    let shown = tried.iter().filter(|one| !one.rates.is_empty());
    shown
        .map(|one| {
            let rounds = one.rates.iter();
            let rounds = rounds.map(|(plain, with)| format!("{with} instead of {plain}"));
            let rounds: Vec<String> = rounds.collect();
            Evidence::new(
                format!("with {}", one.intervention),
                format!("{}: {}", one.effect, rounds.join(", ")),
                "trials of `--why`",
            )
        })
        .collect()
}
