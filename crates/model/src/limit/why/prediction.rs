//! What each limit says about each intervention, and which interventions distinguish limits.

use super::{Effect, Intervention};
use crate::limit::LimitKind;

/// Limits that no intervention here distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Sender,
    SenderCpu,
    Window,
    Reader,
    ReceiverCpu,
    SharedCpu,
    Machine,
    /// The congestion window, whatever holds it down.
    Control,
    PathRate,
}

/// What a limit says about the rate with an intervention; about the loss, of a paced one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prediction {
    /// It must be higher.
    Higher,
    /// It cannot be higher.
    NotHigher,
    /// It may be higher, which speaks for the limit; if it is not, that shows nothing.
    MayBeHigher,
    /// It must be lower.
    Lower,
    /// It cannot be lower.
    NotLower,
    /// It may be lower, which speaks for the limit; if it is not, that shows nothing.
    MayBeLower,
    /// Nothing.
    Open,
}

impl Prediction {
    /// Whether `effect` supports the limit (`true`), refutes it, or shows nothing.
    pub(super) fn of(self, effect: Effect) -> Option<bool> {
        match self {
            Self::Higher => effect.is_higher(),
            Self::NotHigher => effect.is_higher().map(|higher| !higher),
            Self::MayBeHigher => effect.is_higher().filter(|higher| *higher),
            Self::Lower => effect.is_lower(),
            Self::NotLower => effect.is_lower().map(|lower| !lower),
            Self::MayBeLower => effect.is_lower().filter(|lower| *lower),
            Self::Open => None,
        }
    }

    /// How well a trial distinguishes this limit from one that predicts `other`: every outcome refutes one of them (2), or
    /// some outcome refutes only one of them (1).
    fn separates(self, other: Self) -> u32 {
        const EFFECTS: [Effect; 3] = [Effect::Higher, Effect::Unchanged, Effect::Lower];
        let refuted = |prediction: Self, effect| prediction.of(effect) == Some(false);
        let both = EFFECTS.map(|effect| (refuted(self, effect), refuted(other, effect)));
        match () {
            () if both.iter().all(|(one, other)| *one || *other) => 2,
            () if both.iter().any(|(one, other)| one != other) => 1,
            () => 0,
        }
    }

    /// Whether it says that something changes.
    fn is_of_a_change(self) -> bool {
        matches!(
            self,
            Self::Higher | Self::MayBeHigher | Self::Lower | Self::MayBeLower
        )
    }
}

/// Every limit with its family and its predictions, in the order of [`Intervention::ALL`].
pub(super) const PREDICTIONS: [Row; 14] = {
    use LimitKind as L;
    use Prediction::{
        Higher as H, Lower as Lo, MayBeHigher as Mh, MayBeLower as Ml, NotHigher as Nh,
        NotLower as Nl, Open as O,
    };
    [
        // more flows, larger and smaller buffers, other control, discarding reader, sendfile, the sender and the
        // receiver on another CPU, half segments, paced (loss), other direction, datagrams
        (
            L::Shaper,
            Family::PathRate,
            [Nh, Nh, O, O, Nh, Nh, Nh, Nh, Nl, Lo, O, Nh],
        ),
        (
            L::Pcie,
            Family::PathRate,
            [Nh, Nh, O, O, Nh, Nh, Nh, Nh, Nl, Lo, Nh, Nh],
        ),
        (
            L::Wire,
            Family::PathRate,
            [Nh, Nh, O, O, Nh, Nh, Nh, Nh, Nl, Lo, Nh, Nh],
        ),
        (
            L::SharedCpu,
            Family::SharedCpu,
            [O, Nh, O, O, Mh, Mh, Mh, Mh, O, O, O, O],
        ),
        (
            L::Machine,
            Family::Machine,
            [O, Nh, O, O, Mh, Mh, Nh, Nh, O, O, O, O],
        ),
        // Where the ends share a kernel, one end's copies are on the other's CPU too.
        (
            L::SenderCpu,
            Family::SenderCpu,
            [O, Nh, O, O, O, Mh, Mh, O, O, O, O, O],
        ),
        (
            L::ReceiverCpu,
            Family::ReceiverCpu,
            [O, Nh, O, O, Mh, O, O, Mh, O, O, O, O],
        ),
        (
            L::Loss,
            Family::Control,
            [H, Nh, O, H, Nh, Nh, Nh, Nh, Ml, Nl, O, H],
        ),
        (
            L::ReceiveWindow,
            Family::Window,
            [H, H, Lo, O, O, O, O, O, Nl, O, O, H],
        ),
        (
            L::SendBuffer,
            Family::Window,
            [H, H, Lo, O, O, O, O, O, Nl, O, O, H],
        ),
        (
            L::WindowRtt,
            Family::Window,
            [H, H, Lo, O, Nh, Nh, Nh, Nh, Nl, O, O, H],
        ),
        // While a program sleeps, buffers and connections hold what it left.
        (
            L::SenderProgram,
            Family::Sender,
            [O, O, O, Nh, Nh, Nh, Nh, Nh, O, O, O, O],
        ),
        (
            L::ReceiverProgram,
            Family::Reader,
            [O, O, Ml, Nh, O, O, O, O, O, O, O, O],
        ),
        (
            L::CongestionControl,
            Family::Control,
            [H, Nh, O, O, Nh, Nh, Nh, Nh, Ml, O, O, H],
        ),
    ]
};

type Row = (LimitKind, Family, [Prediction; Intervention::ALL.len()]);

fn row(what: LimitKind) -> Option<&'static Row> {
    PREDICTIONS.iter().find(|(kind, ..)| *kind == what)
}

pub(super) fn family(what: LimitKind) -> Option<Family> {
    row(what).map(|(_, family, _)| *family)
}

/// Whether `intervention`, if it does what the limit `what` says, speaks for it: a rate that does not rise supports many
/// limits, but one that changes, or a path that carries no more datagrams, few.
pub(super) fn is_decisive(what: LimitKind, intervention: Intervention, is_suggested: bool) -> bool {
    row(what).is_some_and(|(_, family, predicted)| match intervention {
        // A buffer that is made small enough limits every connection.
        Intervention::SmallerBuffers => false,
        // What is lost at any rate is not lost because there is too much.
        Intervention::Datagrams | Intervention::Paced => {
            predicted[intervention.place()] != Prediction::Open
        }
        // The trial has shown at which rate that is.
        Intervention::MoreFlows if *family == Family::PathRate => is_suggested,
        _ => predicted[intervention.place()].is_of_a_change(),
    })
}

/// Whether no limit of another family says of `intervention` that it must do what the limit `what` says: more connections
/// and datagrams are faster below many limits, larger buffers below few.
pub(super) fn only_predicted_by(what: LimitKind, intervention: Intervention) -> bool {
    row(what).is_some_and(|(_, family, predicted)| {
        let prediction = predicted[intervention.place()];
        let others = PREDICTIONS.iter().filter(|(_, other, _)| other != family);
        matches!(prediction, Prediction::Higher | Prediction::Lower)
            && others
                .into_iter()
                .all(|(.., other)| other[intervention.place()] != prediction)
    })
}

/// Two limits of different families, and how well the chosen interventions distinguish them.
struct Pair {
    predictions: [&'static [Prediction; Intervention::ALL.len()]; 2],
    weight: u32,
    separated: u32,
}

impl Pair {
    fn separated_by(&self, intervention: Intervention) -> u32 {
        let [one, other] = self
            .predictions
            .map(|predicted| predicted[intervention.place()]);
        one.separates(other)
    }

    /// What `intervention` adds.
    fn gain(&self, intervention: Intervention) -> u32 {
        let more = self.separated_by(intervention);
        more.saturating_sub(self.separated) * self.weight
    }
}

/// The interventions of `candidates` that distinguish most of the limits `standing`, at most `count`, the best first.
/// What distinguishes `leader`, the limit that the evidence suggests, from a rival or supports it counts more.
pub fn choose(
    standing: &[LimitKind],
    leader: Option<LimitKind>,
    candidates: &[Intervention],
    count: usize,
) -> Vec<Intervention> {
    const LEADERS_WEIGHT: u32 = 3;
    let leader = leader.filter(|what| standing.contains(what));
    // One of each family.
    let mut rows: Vec<&Row> = Vec::new();
    for row in leader.iter().chain(standing).filter_map(|what| row(*what)) {
        if rows.iter().all(|other| other.1 != row.1) {
            rows.push(row);
        }
    }
    let mut pairs = Vec::new();
    for (at, one) in rows.iter().enumerate() {
        for other in rows.iter().skip(at + 1) {
            let is_leaders = leader == Some(one.0) || leader == Some(other.0);
            pairs.push(Pair {
                predictions: [&one.2, &other.2],
                weight: if is_leaders { LEADERS_WEIGHT } else { 1 },
                separated: 0,
            });
        }
    }
    // Where the trial suggests nothing, it may be the path; where nothing is left to distinguish, something has to speak
    // for what is left.
    let alone = || rows.first().map(|row| row.0).filter(|_| pairs.is_empty());
    let path = || {
        standing
            .contains(&LimitKind::Shaper)
            .then_some(LimitKind::Shaper)
    };
    let foremost = leader.or_else(alone).or_else(path);
    let mut chosen: Vec<Intervention> = Vec::new();
    while chosen.len() < count {
        let telling = |one| foremost.is_some_and(|what| is_decisive(what, one, leader.is_some()));
        let is_enough = chosen.iter().any(|one| telling(*one));
        let gain = |one: Intervention| -> u32 {
            let apart: u32 = pairs.iter().map(|pair| pair.gain(one)).sum();
            apart + LEADERS_WEIGHT * u32::from(telling(one) && !is_enough)
        };
        let left = candidates.iter().filter(|one| !chosen.contains(one));
        // Of equal ones the first, which costs least.
        let best = left.rev().max_by_key(|one| gain(**one)).copied();
        let Some(best) = best.filter(|one| gain(*one) > 0) else {
            break;
        };
        for pair in &mut pairs {
            pair.separated = pair.separated.max(pair.separated_by(best));
        }
        chosen.push(best);
    }
    chosen
}
