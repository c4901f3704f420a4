//! The document of an experiment (`schema/lab-1.json`).

use std::collections::BTreeMap;

use linerate_model::lab::Response;
use linerate_model::sample::Flag;
use serde::Serialize;

/// The name of the document's schema.
pub const SCHEMA: &str = "linerate.lab/1";
/// What an experiment says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabDocument {
    pub(super) schema: &'static str,
    /// What it is called.
    pub title: String,
    /// What it is to answer.
    pub question: String,
    /// The folder of its run.
    pub run: Option<String>,
    /// Its page, where one was written.
    pub report: Option<String>,
    /// Whether it came to its end.
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
    /// What is judged, the first one first.
    pub responses: Vec<ResponseDocument>,
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
}

/// All that is said of one figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResponseDocument {
    /// Its word.
    pub response: Response,
    /// The unit of means and values.
    pub unit: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
    /// The table of means.
    pub cells: Vec<CellDocument>,
    /// The effects that were asked for.
    pub effects: Vec<EffectDocument>,
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
    /// Trials that tell the figure.
    pub trials: usize,
    /// Their geometric mean; null where there is none.
    pub mean: Option<f64>,
    /// The smallest.
    pub least: Option<f64>,
    /// The largest.
    pub most: Option<f64>,
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
    /// Those that they are held against.
    pub against: Vec<String>,
    /// The relative change.
    pub relative: f64,
    /// Its interval.
    pub low: f64,
    /// Its interval.
    pub high: f64,
    /// The level of the interval.
    pub level: f64,
    /// Blocks that tell it.
    pub blocks: usize,
    /// The smallest relative rise that would have been seen four times in five.
    pub smallest_detectable: f64,
    /// Whether the interval excludes zero.
    pub shown: bool,
    /// Whether it still would if every effect of this figure were to be right at once (C. E. Bonferroni's inequality).
    pub shown_among_all: bool,
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
    /// What may be said of it, where more of the figure is better or not.
    pub fn verdict(&self, more_is_better: bool) -> &'static str {
        match (self.shown, self.shown_among_all) {
            (true, true) if (self.relative > 0.0) == more_is_better => "better",
            (true, true) => "worse",
            (true, false) => "shown alone, not among all",
            _ => "no difference shown",
        }
    }

    /// The effect by its factors and levels: `flows 12 against 1`.
    pub fn in_words(&self) -> String {
        let levels = self.levels.iter().zip(&self.against);
        let names = self.effect.split('*').zip(levels);
        let each: Vec<String> = names
            .map(|(name, (level, against))| format!("{name} {level} against {against}"))
            .collect();
        each.join(", together with ")
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
