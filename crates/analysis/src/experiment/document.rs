//! The document of an experiment (`schema/lab-1.json`).

use std::collections::BTreeMap;

use linerate_model::lab::Response;
use linerate_model::prove::CeilingDocument;
use linerate_model::sample::Flag;
use serde::Serialize;

use super::sorted::PeerRecord;

/// The name of the document's schema.
pub const SCHEMA: &str = "linerate.lab/1";
/// The result of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What it is called.
    pub title: String,
    /// What it is to answer.
    pub question: String,
    /// The folder of its run.
    pub run: Option<String>,
    /// Its page, where one was written.
    pub report: Option<String>,
    /// Whether it completed.
    pub complete: bool,
    /// Why it was stopped.
    pub stopped: Option<String>,
    /// Whether every setting is as it was found; null where that is not known.
    pub restored: Option<bool>,
    /// The seed of the order.
    pub seed: u64,
    /// How it was laid out.
    pub design: DesignDocument,
    /// The factors.
    pub factors: Vec<FactorDocument>,
    /// The other hosts that are levels.
    pub peers: Vec<PeerDocument>,
    /// The analyzed figures, the first one first.
    pub responses: Vec<ResponseDocument>,
    /// What one level of a factor takes longer than the other; null where none is requested.
    pub difference: Option<DifferenceDocument>,
    /// Published figures, with the same of this run.
    pub published: Vec<PublishedDocument>,
    /// Every trial, in the order they were made.
    pub trials: Vec<TrialDocument>,
}

/// The layout.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DesignDocument {
    /// Which.
    pub kind: &'static str,
    /// Combinations.
    pub cells: usize,
    /// Blocks that were begun.
    pub blocks: usize,
    /// What it mixes up.
    pub confounding: Vec<String>,
}

/// A factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FactorDocument {
    /// Its name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<LevelDocument>,
}

/// A level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelDocument {
    /// Its name.
    pub name: String,
    /// Why it was left out; null where it was tried.
    pub skipped: Option<String>,
    /// The other host that it is; null where it is the experiment's peer.
    pub peer: Option<String>,
    /// The folder of the earlier run that it is; null where it was measured in this one.
    pub run: Option<String>,
}

/// Another host that is a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerDocument {
    /// How it was named.
    pub peer: String,
    /// Its name; null where it is not known.
    pub host: Option<String>,
    /// The release of its kernel.
    pub kernel: Option<String>,
    /// Its CPUs.
    pub cpu_model: Option<String>,
    /// The interface that data to it leaves by.
    pub local_nic: String,
    /// The interface that carries its address.
    pub remote_nic: String,
}

impl PeerDocument {
    /// Of a host as its record has it.
    pub fn of(record: &PeerRecord<'_>) -> Self {
        let identity = &record.host.identity;
        Self {
            peer: record.at.to_owned(),
            host: identity.hostname.value().cloned(),
            kernel: identity.kernel_release.value().cloned(),
            cpu_model: identity.cpu_model.value().cloned(),
            local_nic: record.local_nic.to_string(),
            remote_nic: record.remote_nic.to_string(),
        }
    }
}

/// A figure that others published, and the same of this run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedDocument {
    /// Who measured, with what and on what.
    pub source: String,
    /// What it is, if no response defines it.
    pub what: Option<String>,
    /// The response that it is compared with.
    pub response: Option<Response>,
    /// Whether it is compared with the difference.
    pub difference: bool,
    /// The part of the case that no factor defines.
    pub case: Option<String>,
    /// The levels that it names.
    pub at: BTreeMap<String, String>,
    /// As it was published.
    pub figure: String,
    /// Its minimum, in the response's unit.
    pub low: f64,
    /// Its maximum.
    pub high: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// The same of this run; null where there is none.
    pub yours: Option<YoursDocument>,
    /// Why there is none.
    pub why: Option<String>,
}

/// The value of this run for a published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct YoursDocument {
    /// The names of the combination's levels.
    pub levels: Vec<String>,
    /// The mean of its trials, or of the differences within blocks.
    pub mean: f64,
    /// Trials that have it.
    pub trials: usize,
    /// Its ratio to the published maximum.
    pub ratio_low: f64,
    /// Its ratio to the published minimum.
    pub ratio_high: f64,
}

/// All results for one figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResponseDocument {
    /// Its word.
    pub response: Response,
    /// The unit of means and values.
    pub unit: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
    /// `geometric`; of a part of another figure, which may be 0, `arithmetic`.
    pub kind_of_mean: &'static str,
    /// The table of means.
    pub cells: Vec<CellDocument>,
    /// The effects that were requested.
    pub effects: Vec<EffectDocument>,
    /// How many effects cannot be computed although the figure was measured, and why.
    pub left_out: Option<String>,
    /// What drifted over the blocks, relative change for each block; null with fewer than three.
    pub drift: Option<DriftDocument>,
    /// Places, in `trials`, of those that lie far from what their combination and block make expect.
    pub outliers: Vec<usize>,
}

/// A combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellDocument {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// Trials that have the figure.
    pub trials: usize,
    /// Their mean; null where there is none.
    pub mean: Option<f64>,
    /// The smallest.
    pub least: Option<f64>,
    /// The largest.
    pub most: Option<f64>,
    /// For a rate, its ceiling, and the mean as a share of it; null if no bound is known.
    pub ceiling: Option<CeilingDocument>,
    /// Why there is none.
    pub why: Option<String>,
}

/// What one level of a factor takes longer than the other, for each combination of the other factors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferenceDocument {
    /// The factor.
    pub factor: String,
    /// The level whose time it is.
    pub of: String,
    /// The level whose time is taken off.
    pub less: String,
    /// The unit of all times.
    pub unit: &'static str,
    /// The level of the intervals.
    pub level: f64,
    /// Each combination.
    pub cells: Vec<DifferenceCell>,
}

/// The difference of a combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferenceCell {
    /// The names of the levels of the combination with `of`; the other one has `less` in its place.
    pub levels: Vec<String>,
    /// The mean time of the one over the blocks that have both.
    pub of: Option<f64>,
    /// That of the other.
    pub less: Option<f64>,
    /// The mean of the blocks' differences; null where there is none.
    pub difference: Option<f64>,
    /// Its interval.
    pub low: Option<f64>,
    /// Its interval.
    pub high: Option<f64>,
    /// Blocks that have both.
    pub blocks: usize,
    /// Why there is none.
    pub why: Option<String>,
}

/// An effect: what a level does against the first one, or what two do together beyond what each does alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectDocument {
    /// Its name: `a`, `a*b`.
    pub effect: String,
    /// The levels.
    pub levels: Vec<String>,
    /// Those that they are compared with.
    pub against: Vec<String>,
    /// The relative change.
    pub relative: f64,
    /// Its interval.
    pub low: f64,
    /// Its interval.
    pub high: f64,
    /// The level of the interval.
    pub level: f64,
    /// Blocks that have it.
    pub blocks: usize,
    /// The minimum detectable effect: the smallest relative rise that is detected four times in five.
    pub smallest_detectable: f64,
    /// Whether the interval excludes zero.
    pub shown: bool,
    /// Whether it still would if every effect of this figure were to be right at once (C. E. Bonferroni's inequality).
    pub shown_among_all: bool,
    /// Whether both sides were measured in the same blocks, in random order. Where they were not, time may be the cause.
    pub interleaved: bool,
}

impl CellDocument {
    /// The share of the ceiling in words; a mean above it means that the ceiling is wrong.
    pub fn share_in_words(&self) -> Option<String> {
        let share = self.ceiling.as_ref()?.share?;
        Some(if share > 1.0 {
            "above it: the ceiling is wrong".to_owned()
        } else if share < 0.000_5 {
            "under 0.1 %".to_owned()
        } else {
            format!("{:.1} %", share * 100.0)
        })
    }
}

impl LabDocument {
    /// The flags of the trials, each with how many have it.
    pub fn flags(&self) -> Vec<(Flag, usize)> {
        let mut counts: Vec<(Flag, usize)> = Vec::new();
        for flag in self.trials.iter().flat_map(|trial| &trial.flags) {
            match counts.iter_mut().find(|(known, _)| known == flag) {
                Some((_, count)) => *count += 1,
                None => counts.push((*flag, 1)),
            }
        }
        counts
    }
}

impl EffectDocument {
    /// The verdict in words, depending on whether more of the figure is better.
    pub fn verdict(&self, more_is_better: bool) -> &'static str {
        let is_better = (self.relative > 0.0) == more_is_better;
        match (self.shown, self.shown_among_all, self.interleaved) {
            (true, true, true) if is_better => "better",
            (true, true, true) => "worse",
            (true, true, false) if is_better => "better, by this or by other changes over time",
            (true, true, false) => "worse, by this or by other changes over time",
            (true, false, _) => "significant alone, not after correction",
            _ => "not significant",
        }
    }

    /// The effect by its factors and levels: `flows 12 vs 1`.
    pub fn in_words(&self) -> String {
        let levels = self.levels.iter().zip(&self.against);
        let names = self.effect.split('*').zip(levels);
        let each: Vec<String> = names
            .map(|(name, (level, against))| format!("{name} {level} vs {against}"))
            .collect();
        each.join(" x ")
    }
}

/// How a figure moved with time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriftDocument {
    /// Relative change from each block to the next, in the middle of all pairs of blocks (P. K. Sen, 1968).
    pub relative_per_block: f64,
    /// Whether all blocks stand in order: every later one above, or every later one below.
    pub steady: bool,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialDocument {
    /// Its block.
    pub block: u32,
    /// Its place in the order.
    pub order: usize,
    /// The names of its levels.
    pub levels: Vec<String>,
    /// Its figures, by word.
    pub values: BTreeMap<&'static str, f64>,
    /// What must be known to trust it.
    pub flags: Vec<Flag>,
    /// Whether it is no measurement of what it was to measure.
    pub doubtful: bool,
    /// Why there is none.
    pub why: Option<String>,
}
