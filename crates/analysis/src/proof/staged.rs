//! The trials of one remedy, and their result: its effect on the rate, and on the guards, which must not get worse.

use std::collections::BTreeMap;

use linerate_model::guard;
use linerate_model::prove::{EffectDocument, Guard, GuardDocument};
use linerate_model::sample::Sample;
use linerate_model::units::BitRate;
use linerate_stats::staged::{Decision, Stage, StagedEffect, TOGETHER, look, staged_relative};
use linerate_stats::summary::median;

use crate::record::Record;
use crate::trial::{NOT_TO_BE_TRUSTED, is_disturbed, rate_of};

/// Each end of a guard's interval misses with this probability. Guards are not part of the stated error: one that
/// seems worse can only keep a remedy from being kept.
const GUARD_TAIL: f64 = 0.025;
/// The trials of one remedy, or of several that were left out together.
#[derive(Debug, Default)]
pub struct FixTrials<'a> {
    /// The chance, at most, that it is kept although it has no effect.
    level: f64,
    stages: Vec<StageTrials<'a>>,
    /// Trials that another one stands for.
    pub repeated: Vec<&'a Sample>,
}

#[derive(Debug, Default)]
struct StageTrials<'a> {
    without: Vec<&'a Sample>,
    with: Vec<&'a Sample>,
}

/// What the trials so far say about a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is above zero, and no guard is worse.
    Helps,
    /// The interval is above zero, but a guard is worse.
    Dear,
    /// The interval is below zero.
    Slows,
    /// No effect was shown, and none is expected from more trials, or there are no more.
    Nothing,
    /// Another stage may decide.
    Open,
}

impl FixTrials<'_> {
    /// The rates of the trials without the remedy and with all, stage after stage, in the order they were made. A trial
    /// that moved nothing has the rate 0.
    pub fn rates(&self) -> (Vec<f64>, Vec<f64>) {
        let without = self.stages.iter().flat_map(|stage| &stage.without);
        let with = self.stages.iter().flat_map(|stage| &stage.with);
        (
            without.map(|sample| rate(sample)).collect(),
            with.map(|sample| rate(sample)).collect(),
        )
    }

    /// The effect of the remedy on the rate; none if there are too few trials for its level.
    pub fn effect(&self) -> Option<EffectDocument> {
        let stages = self.of_rates();
        Some(document(&look(&stages, self.level).0?, &stages))
    }

    /// The effect of several remedies that were left out together.
    pub fn together(&self) -> Option<EffectDocument> {
        let stages = self.of_rates();
        Some(document(&staged_relative(&stages, TOGETHER).ok()?, &stages))
    }

    fn of_rates(&self) -> Vec<Stage> {
        // One that moved nothing is slower than all others, and 0 has no logarithm.
        self.figures(|sample| Some(rate(sample).max(1.0)))
    }

    /// A figure of the trials that have it.
    fn figures(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<Stage> {
        let of = |samples: &[&Sample]| -> Vec<f64> {
            samples.iter().filter_map(|sample| figure(sample)).collect()
        };
        let stages = self.stages.iter();
        let stage = |stage: &StageTrials<'_>| Stage {
            without: of(&stage.without),
            with: of(&stage.with),
        };
        stages.map(stage).collect()
    }

    /// The effect of the remedy on all guards, as far as the trials show it.
    pub fn guards(&self) -> Vec<GuardDocument> {
        let gain = self.effect().map_or(0.0, |effect| effect.low);
        let of = |guard: Guard| {
            let stages = self.figures(|sample| guard::figure(guard, sample));
            let effect = document(&staged_relative(&stages, GUARD_TAIL).ok()?, &stages);
            let with: Vec<f64> = stages.into_iter().flat_map(|stage| stage.with).collect();
            let worse = guard::is_worse(guard, effect.low, median(&with).ok()?, gain);
            Some(GuardDocument {
                guard,
                effect,
                worse,
            })
        };
        Guard::ALL.into_iter().filter_map(of).collect()
    }

    /// What to do about the remedy, where the guards in `accepted` may get worse.
    pub fn verdict(&self, accepted: &[Guard]) -> Verdict {
        match look(&self.of_rates(), self.level).1 {
            Decision::Faster if self.worse(accepted).is_empty() => Verdict::Helps,
            Decision::Faster => Verdict::Dear,
            Decision::Slower => Verdict::Slows,
            Decision::Nothing => Verdict::Nothing,
            Decision::Open => Verdict::Open,
        }
    }

    /// The guards that got worse, without those that may.
    pub fn worse(&self, accepted: &[Guard]) -> Vec<GuardDocument> {
        let mut worse = self.guards();
        worse.retain(|one| one.worse && !accepted.contains(&one.guard));
        worse
    }

    /// A note on trials that were repeated, and on those that did not improve by that.
    pub(super) fn note(&self) -> Option<String> {
        if self.repeated.is_empty() {
            return None;
        }
        let flags = NOT_TO_BE_TRUSTED.iter().filter(|(flag, _)| {
            let mut samples = self.repeated.iter();
            samples.any(|sample| sample.flags.contains(flag))
        });
        let why: Vec<&str> = flags.map(|(_, words)| *words).collect();
        let used = self.stages.iter();
        let used = used.flat_map(|stage| stage.without.iter().chain(&stage.with));
        let disturbed = used.filter(|sample| is_disturbed(sample)).count();
        let made = trials_in_words(self.repeated.len());
        let again = format!("{made} repeated ({})", why.join(", "));
        Some(match disturbed {
            0 => again,
            some => format!(
                "{again}; {} used although still flagged",
                trials_in_words(some)
            ),
        })
    }
}

fn document(effect: &StagedEffect, stages: &[Stage]) -> EffectDocument {
    let trials = |arm: fn(&Stage) -> &Vec<f64>| stages.iter().map(|one| arm(one).len()).sum();
    EffectDocument {
        relative: effect.relative,
        low: effect.interval.low,
        high: effect.interval.high,
        level: effect.interval.level,
        trials_without: trials(|stage| &stage.without),
        trials_with: trials(|stage| &stage.with),
        smallest_detectable: effect.smallest_detectable,
    }
}

fn rate(sample: &Sample) -> f64 {
    rate_of(sample).map_or(0.0, BitRate::as_f64)
}

fn trials_in_words(count: usize) -> String {
    match count {
        1 => "1 trial was".to_owned(),
        more => format!("{more} trials were"),
    }
}

/// The stages of a run, as far as they were made.
#[derive(Debug, Default)]
pub struct Stages<'a> {
    levels: BTreeMap<usize, f64>,
    /// The trials by stage and place: what each was made without.
    places: BTreeMap<(usize, usize), (&'a [usize], &'a Sample)>,
    repeated: Vec<((usize, &'a [usize]), &'a Sample)>,
}

impl<'a> Stages<'a> {
    /// Those of a run's records.
    pub fn of(records: &'a [Record]) -> Self {
        let mut stages = Self::default();
        for record in records {
            stages.add(record);
        }
        stages
    }

    pub(super) fn add(&mut self, record: &'a Record) {
        match record {
            Record::Remedy { remedy, level, .. } => {
                self.levels.insert(*remedy, *level);
            }
            Record::Staged {
                stage,
                place,
                without,
                sample,
            } => {
                let before = (self.places).insert((*stage, *place), (without, sample));
                let repeated = before.map(|(_, sample)| ((*stage, without.as_slice()), sample));
                self.repeated.extend(repeated);
            }
            _ => {}
        }
    }

    /// The trials of one remedy.
    pub fn of_remedy(&self, remedy: usize) -> FixTrials<'a> {
        self.without(&[remedy])
    }

    /// The trials without exactly these remedies, and those with all of the same stages.
    pub fn without(&self, remedies: &[usize]) -> FixTrials<'a> {
        let mut by_stage: BTreeMap<usize, StageTrials<'a>> = BTreeMap::new();
        for ((stage, _), (without, sample)) in &self.places {
            let trials = by_stage.entry(*stage).or_default();
            if *without == remedies {
                trials.without.push(sample);
            } else if without.is_empty() {
                trials.with.push(sample);
            }
        }
        by_stage.retain(|_, trials| !trials.without.is_empty());
        let repeated = self.repeated.iter().filter(|((stage, without), _)| {
            by_stage.contains_key(stage) && (without.is_empty() || *without == remedies)
        });
        let level = |remedy| self.levels.get(remedy).copied().unwrap_or(0.0);
        FixTrials {
            level: remedies.iter().map(level).sum(),
            repeated: repeated.map(|(_, sample)| *sample).collect(),
            stages: by_stage.into_values().collect(),
        }
    }

    /// The sets of several remedies that were left out together.
    pub(super) fn groups(&self) -> Vec<&'a [usize]> {
        let mut groups: Vec<&[usize]> = self.places.values().map(|(without, _)| *without).collect();
        groups.retain(|without| without.len() > 1);
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}
