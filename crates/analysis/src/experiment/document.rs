//! The document of an experiment (`schema/lab-1.json`).

use std::collections::BTreeMap;

use linerate_model::lab::Response;
use linerate_model::prove::CeilingDocument;
use linerate_model::sample::Flag;
use serde::Serialize;

use super::fabric::FabricDocument;
use super::flows::FlowsDocument;
use super::sorted::PeerRecord;
use super::times::TimesDocument;
use crate::text::words::Effect;

/// The name of the document's schema.
pub const SCHEMA: &str = "linerate.lab/1";
/// What `linerate lab run`, `resume` and `show --format json` print: an experiment, analyzed from its raw records.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LabDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What it is called.
    pub title: String,
    /// What it is to answer.
    pub question: String,
    /// The folder of the run.
    pub run: Option<String>,
    /// The page, if one was written.
    pub report: Option<String>,
    /// Whether it completed.
    pub complete: bool,
    /// Why it stopped early.
    pub stopped: Option<String>,
    /// Whether every setting is restored; null if that is not known.
    pub restored: Option<bool>,
    /// The seed of the order.
    pub seed: u64,
    /// How it was laid out.
    pub design: DesignDocument,
    /// The factors.
    pub factors: Vec<FactorDocument>,
    /// The other hosts that are levels.
    pub peers: Vec<PeerDocument>,
    /// The server that the trials loaded; null for linerate's own.
    pub server: Option<ServerDocument>,
    /// The responses; the first one decides.
    pub responses: Vec<ResponseDocument>,
    /// What one level of a factor takes longer than the other; null if the experiment does not request it.
    pub difference: Option<DifferenceDocument>,
    /// Latency of the smallest message and rate of the largest; null if the experiment does not measure both.
    pub fabric: Option<FabricDocument>,
    /// The rate of each flow in each combination; null if no combination is a stream of several flows.
    pub flows: Option<FlowsDocument>,
    /// Real, user and system seconds of a client and a server; null if no combination is of `diffusion`.
    pub times: Option<TimesDocument>,
    /// Published figures, and the results of this run for the same combinations. The hardware differs.
    pub published: Vec<PublishedDocument>,
    /// In the order in which they ran; a repeated trial replaces the first. Trials of an earlier run are in that run.
    pub trials: Vec<TrialDocument>,
}

/// The layout.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DesignDocument {
    /// Which.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["full", "one-at-a-time", "screening", "fraction"])))]
    pub kind: &'static str,
    /// Combinations.
    pub cells: usize,
    /// Blocks that were begun.
    pub blocks: usize,
    /// What the reader must know to interpret the effects, as text: what the design confounds, which level is an earlier
    /// run that was not interleaved, and which optional setting a host does not have.
    pub confounding: Vec<String>,
}

/// A server that is not linerate's own.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerDocument {
    /// Its URL.
    pub url: String,
    /// The shell command that starts it for each trial; null if it was running.
    pub command: Option<String>,
    /// Where it runs: on this host, at the peer, or on a host that linerate does not run on.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["here", "peer", "elsewhere"])))]
    pub at: &'static str,
    /// Its hits over time, for each combination.
    pub hits: Vec<HitsDocument>,
}

/// The completed requests of a combination over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HitsDocument {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// The trials that the means are of.
    pub trials: usize,
    /// The width of a step: 5 s; of trials below 20 s, a twelfth of the trial.
    pub step_s: f64,
    /// Requests per second in each step, from the start of the trial: the arithmetic mean over the trials.
    pub per_s: Vec<f64>,
    /// Requests per second of whole trials: the arithmetic mean.
    pub mean_per_s: f64,
}

/// A factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FactorDocument {
    /// Its name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<LevelDocument>,
}

/// A level.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LevelDocument {
    /// Its name.
    pub name: String,
    /// Why it is not available here.
    pub skipped: Option<String>,
    /// The other host of this level; null for the experiment's peer.
    pub peer: Option<String>,
    /// The folder of the earlier run of this level; null if it was measured in this run.
    pub run: Option<String>,
}

/// Another host that is a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerDocument {
    /// Its name on the command line.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedDocument {
    /// Who measured, with what and on what.
    pub source: String,
    /// What it is, if no response defines it.
    pub what: Option<String>,
    /// The response that it is compared with.
    pub response: Option<Response>,
    /// Whether it is compared with the difference, and not with a response.
    pub difference: bool,
    /// The part of the case that is not a factor.
    pub case: Option<String>,
    /// Factors with the levels of the combination.
    pub at: BTreeMap<String, String>,
    /// As published.
    pub figure: String,
    /// Its minimum, in the response's unit.
    pub low: f64,
    /// Its maximum; equal to `low` if one number was published.
    pub high: f64,
    /// The unit of `low` and `high`: that of the response, or of the difference.
    pub unit: &'static str,
    /// The same of this run; null where there is none.
    pub yours: Option<YoursDocument>,
    /// Why this run has no value.
    pub why: Option<String>,
    /// What the source did differently.
    pub note: Option<String>,
}

/// The value of this run for a published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct YoursDocument {
    /// The names of the combination's levels.
    pub levels: Vec<String>,
    /// The mean of the combination in the unit of the response; or the difference.
    pub mean: f64,
    /// The trials that have it; for a difference, two per block.
    pub trials: usize,
    /// The mean over `high`.
    pub ratio_low: f64,
    /// The mean over `low`.
    pub ratio_high: f64,
}

/// All results for one figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResponseDocument {
    /// Its word.
    pub response: Response,
    /// The unit of means and values.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["bit_per_s", "per_s", "s_per_gb", "us_per_op", "s"])))]
    pub unit: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
    /// For `mean` in `cells`: arithmetic for a part of another figure (user or system time), which may be 0 and adds up
    /// to it.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["geometric", "arithmetic"])))]
    pub kind_of_mean: &'static str,
    /// The table of means.
    pub cells: Vec<CellDocument>,
    /// The effects that were requested.
    pub effects: Vec<EffectDocument>,
    /// The number of effects that are left out although the response was measured, and why: there is no relative change
    /// from 0. Null if there are none.
    pub left_out: Option<String>,
    /// What drifted over the blocks, relative change for each block; null with fewer than three.
    pub drift: Option<DriftDocument>,
    /// Indexes into `trials`; they are kept in the figures.
    pub outliers: Vec<usize>,
}

/// A combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellDocument {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// Trials that have the figure.
    pub trials: usize,
    /// Geometric or arithmetic, see `kind_of_mean`.
    pub mean: Option<f64>,
    /// The smallest.
    pub least: Option<f64>,
    /// The largest.
    pub most: Option<f64>,
    /// For a rate, the ceiling of the path with the settings of this combination; null if no bound is known.
    pub ceiling: Option<CeilingDocument>,
    /// Why there is no value.
    pub why: Option<String>,
}

/// What one level of a factor takes longer than the other, for each combination of the other factors.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceDocument {
    /// The factor.
    pub factor: String,
    /// The level whose time is reported.
    pub of: String,
    /// The level whose time is subtracted.
    pub less: String,
    /// Wall-clock seconds per 10^9 bytes of all flows together.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["s_per_gb"])))]
    pub unit: &'static str,
    /// The confidence level of the intervals.
    pub level: f64,
    /// Each combination.
    pub cells: Vec<DifferenceCell>,
}

/// The difference of a combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceCell {
    /// The names of the levels of the combination with `of`; the other combination has `less` instead.
    pub levels: Vec<String>,
    /// Its mean time over the blocks that have both.
    pub of: Option<f64>,
    /// The mean time of the other combination.
    pub less: Option<f64>,
    /// The mean of the differences within blocks; null with fewer than three.
    pub difference: Option<f64>,
    /// Its confidence interval.
    pub low: Option<f64>,
    /// Its confidence interval.
    pub high: Option<f64>,
    /// Blocks that have both.
    pub blocks: usize,
    /// Why there is no value.
    pub why: Option<String>,
}

/// An effect: what a level does against the first one, or what two do together beyond what each does alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EffectDocument {
    /// `a`, or `a*b` for an interaction.
    pub effect: String,
    /// The levels.
    pub levels: Vec<String>,
    /// The levels that they are compared with.
    pub against: Vec<String>,
    /// The levels at which the effect was estimated, of factors that are kept apart: `size 4B`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    /// Relative change; for an interaction, what both factors do together beyond their separate effects.
    pub relative: f64,
    /// Its interval.
    pub low: f64,
    /// Its interval.
    pub high: f64,
    /// The confidence level of the interval.
    pub level: f64,
    /// Blocks that have it.
    pub blocks: usize,
    /// The minimum detectable effect: the smallest relative increase that would have been detected in four of five
    /// experiments.
    pub smallest_detectable: f64,
    /// Whether the interval excludes zero.
    pub shown: bool,
    /// Whether it still excludes zero after correction for all effects of this response (Bonferroni).
    pub shown_among_all: bool,
    /// Whether both sides were measured in the same blocks; for an earlier run they were not, and time may be the
    /// cause.
    pub interleaved: bool,
}

impl Effect for EffectDocument {
    fn relative(&self) -> [f64; 3] {
        [self.relative, self.low, self.high]
    }

    fn smallest_detectable(&self) -> f64 {
        self.smallest_detectable
    }
}

impl CellDocument {
    /// The share of the ceiling in words; a mean clearly above it means that the ceiling is wrong.
    pub fn share_in_words(&self) -> Option<String> {
        let ceiling = self.ceiling.as_ref()?;
        let share = ceiling.share?;
        Some(if ceiling.is_wrong() {
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

    /// The effect by its factors and levels: `flows 12 vs 1`, `step jumbo vs buffers at size 4B`.
    pub fn in_words(&self) -> String {
        let levels = self.levels.iter().zip(&self.against);
        let names = self.effect.split('*').zip(levels);
        let each: Vec<String> = names
            .map(|(name, (level, against))| format!("{name} {level} vs {against}"))
            .collect();
        let at = match &self.at[..] {
            [] => String::new(),
            at => format!(" at {}", at.join(", ")),
        };
        each.join(" x ") + &at
    }
}

/// How a figure moved with time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DriftDocument {
    /// Median of the changes from block to block (P. K. Sen, 1968).
    pub relative_per_block: f64,
    /// Whether the means of the blocks are monotonic.
    pub steady: bool,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDocument {
    /// Its block.
    pub block: u32,
    /// Its place in the order.
    pub order: usize,
    /// The names of its levels.
    pub levels: Vec<String>,
    /// Values by response.
    pub values: BTreeMap<&'static str, f64>,
    /// What must be known to trust it.
    pub flags: Vec<Flag>,
    /// Whether the trial does not measure what it should.
    pub doubtful: bool,
    /// Why there is none.
    pub why: Option<String>,
}
