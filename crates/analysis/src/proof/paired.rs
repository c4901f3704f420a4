//! The trials of one remedy's experiment, and their result: its effect on the rate, and on the guards, which must not
//! get worse.

use std::collections::BTreeMap;

use linerate_model::guard;
use linerate_model::prove::{EffectDocument, Guard, GuardDocument};
use linerate_model::sample::Sample;
use linerate_model::units::BitRate;
use linerate_stats::Seed;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;

use crate::record::{Arm, Record};
use crate::trial::{LEVEL, NOT_TO_BE_TRUSTED, is_doubtful, rate_of, stalled};

/// The trials of one remedy's experiment.
#[derive(Debug, Default)]
pub struct PairedTrials<'a> {
    pairs: BTreeMap<u32, Pair<'a>>,
    /// Trials that another one of the same pair and arm has taken the place of.
    pub set_aside: Vec<&'a Sample>,
}

#[derive(Debug, Default)]
struct Pair<'a> {
    without: Option<&'a Sample>,
    with: Option<&'a Sample>,
}

impl<'a> PairedTrials<'a> {
    pub(super) fn add(&mut self, pair: u32, arm: Arm, sample: &'a Sample) {
        let pair = self.pairs.entry(pair).or_default();
        let place = match arm {
            Arm::Without => &mut pair.without,
            Arm::With => &mut pair.with,
        };
        self.set_aside.extend(place.replace(sample));
    }

    /// The rates of the whole pairs, (without, with), in the order they were made. A pair whose trial
    /// without the remedy stalled has no ratio, and omitting it is to the remedy's disadvantage; one that
    /// stalled with it is kept, and then no effect can be computed.
    pub fn rates(&self) -> Vec<(f64, f64)> {
        let rate = |sample: Option<&Sample>| rate_of(sample?).map(BitRate::as_f64);
        let pairs = self.pairs.values();
        pairs
            .filter_map(|pair| Some((rate(pair.without)?, rate(pair.with)?)))
            .filter(|(without, _)| *without > 0.0)
            .collect()
    }

    /// The effect of the remedy, as far as the pairs show it.
    pub fn effect(&self, seed: u64) -> Option<EffectDocument> {
        effect_of_pairs(&self.rates(), seed)
    }

    /// The effect of the remedy on all guards, as far as the pairs show it.
    pub fn guards(&self, seed: u64) -> Vec<GuardDocument> {
        let gain = self.effect(seed).map_or(0.0, |effect| effect.low);
        let of = |guard: Guard| {
            let figure = |sample: Option<&Sample>| guard::figure(guard, sample?);
            let whole = |pair: &Pair<'_>| Some((figure(pair.without)?, figure(pair.with)?));
            let pairs: Vec<(f64, f64)> = self.pairs.values().filter_map(whole).collect();
            let effect = effect_of_pairs(&pairs, seed)?;
            let with: Vec<f64> = pairs.iter().map(|(_, with)| *with).collect();
            let worse = guard::is_worse(guard, effect.low, median(&with).ok()?, gain);
            Some(GuardDocument {
                guard,
                effect,
                worse,
            })
        };
        Guard::ALL.into_iter().filter_map(of).collect()
    }

    /// A note on trials that were repeated, and on those that did not improve by that.
    pub(super) fn note(&self) -> Option<String> {
        if self.set_aside.is_empty() {
            return None;
        }
        let flags = NOT_TO_BE_TRUSTED.iter().filter(|(flag, _)| {
            let mut samples = self.set_aside.iter();
            samples.any(|sample| sample.flags.contains(flag))
        });
        let mut why: Vec<&str> = flags.map(|(_, words)| *words).collect();
        if self.set_aside.iter().any(|sample| stalled(sample)) {
            why.push("no data moved");
        }
        let used = self
            .pairs
            .values()
            .flat_map(|pair| [pair.without, pair.with]);
        let doubtful = used.flatten().filter(|sample| is_doubtful(sample)).count();
        let made = trials_in_words(self.set_aside.len());
        let again = format!("{made} repeated ({})", why.join(", "));
        Some(match doubtful {
            0 => again,
            some => format!(
                "{again}; {} used although still flagged",
                trials_in_words(some)
            ),
        })
    }
}

fn trials_in_words(count: usize) -> String {
    match count {
        1 => "1 trial was".to_owned(),
        more => format!("{more} trials were"),
    }
}

/// The pairs of one remedy.
pub fn paired_trials(records: &[Record], remedy: usize) -> PairedTrials<'_> {
    let mut trials = PairedTrials::default();
    for record in records {
        if let Record::Paired {
            remedy: of,
            pair,
            arm,
            sample,
        } = record
            && *of == remedy
        {
            trials.add(*pair, *arm, sample);
        }
    }
    trials
}

pub(super) fn effect_of_pairs(pairs: &[(f64, f64)], seed: u64) -> Option<EffectDocument> {
    let effect = paired_relative(pairs, LEVEL, Seed(seed)).ok()?;
    Some(EffectDocument {
        relative: effect.relative,
        low: effect.interval.low,
        high: effect.interval.high,
        level: effect.interval.level,
        pairs: effect.pairs,
        smallest_detectable: effect.smallest_detectable,
    })
}
