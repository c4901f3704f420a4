//! The document that `prove` and `demo` print and store: the rates before and after, the ceiling, the findings, every
//! remedy with its effect, and whether the rollback was complete.

use serde::{Deserialize, Deserializer, Serialize};

use crate::finding::Finding;
use crate::limit::why::Status;
use crate::plan::{Change, End};

/// The schema name of [`ProveDocument`].
pub const SCHEMA: &str = "linerate.prove/1";

/// What `linerate prove --format json` and `linerate demo --format json` print.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProveDocument {
    /// The name of its schema.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: String,
    /// The rate before any change.
    pub before: Rate,
    /// The rate with every kept remedy.
    pub after: Rate,
    /// Of a block device, the bytes of each operation: IOPS are a rate over 8 times this. Null for a path.
    #[serde(default)]
    pub operation_bytes: Option<u64>,
    /// The lowest computed bound, and the share of it that was reached in the end.
    pub ceiling: CeilingDocument,
    /// What limited the path before any change.
    pub limit: LimitDocument,
    /// What limits the path with every kept remedy; null if the run ended before that was measured.
    #[serde(default)]
    pub limit_after: Option<LimitDocument>,
    /// What the rules found.
    pub findings: Vec<Finding>,
    /// Every test of a remedy, in order; then those that were not tested.
    pub remedies: Vec<RemedyResult>,
    /// Share of the busier host's CPU time that neither linerate's threads nor interrupts had, median of the trials
    /// before and after; null if not known.
    #[serde(default)]
    pub cpu_other_work: Option<f64>,
    /// Whether both hosts have their baseline settings (true also if kept remedies were meant to be kept).
    pub restored: bool,
    /// Whether kept remedies stay applied after the run. For text only.
    #[serde(skip)]
    pub keeps: bool,
    /// The rules of the faults that the demo injected; empty outside the demo.
    pub planted: Vec<String>,
    /// The rules whose remedy's CI is above zero, and the rule of the limit.
    pub found: Vec<String>,
    /// The screening of a search before any remedy was tested; null without a search.
    #[serde(default)]
    pub search: Option<SearchDocument>,
    /// The seed of the trial order and of the intervals.
    pub seed: u64,
    /// The run's directory.
    pub run: Option<String>,
    /// The page.
    pub report: Option<String>,
}

/// A measured rate with its interval. Without a trial (an interrupted run) its values are NaN, which JSON writes as
/// null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// Median of the trials.
    #[serde(deserialize_with = "number_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub rate_bit_per_s: f64,
    /// Lower end of the interval of the median.
    #[serde(deserialize_with = "number_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub low_bit_per_s: f64,
    /// Upper end of the interval of the median.
    #[serde(deserialize_with = "number_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub high_bit_per_s: f64,
    /// Number of trials.
    pub trials: usize,
    /// CPU seconds per gigabyte (10^9 bytes) of linerate's threads on both ends.
    pub cpu_s_per_gb: Option<f64>,
}

/// NaN is written as null, and read back as NaN.
fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// A ceiling as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CeilingDocument {
    /// The bound; null when none could be computed.
    pub bit_per_s: Option<f64>,
    /// The measured share of it.
    pub share: Option<f64>,
    /// By how much a share may exceed 1 although the bound is right (clocks, bursts).
    #[serde(default)]
    pub tolerance: f64,
    /// Its arithmetic in words.
    pub reason: String,
}

impl CeilingDocument {
    /// Whether more was measured than is possible: the bound is wrong.
    pub fn is_wrong(&self) -> bool {
        self.share.is_some_and(|share| share > 1.0 + self.tolerance)
    }
}

/// A limit as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitDocument {
    /// What limits, or `not determined`.
    pub what: String,
    /// How certain that is; `prove` tests fixes, not limits, so it is likely at best.
    #[serde(default)]
    pub status: Status,
    /// The evidence.
    pub evidence: Vec<crate::finding::Evidence>,
}

impl LimitDocument {
    /// The limit, and how certain it is.
    pub fn in_words(&self) -> String {
        self.status.qualified(&self.what)
    }
}

/// One remedy and its experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemedyResult {
    /// The rule that proposed it.
    pub rule: String,
    /// The end of the first change.
    pub end: End,
    /// The setting of the first change.
    pub setting: String,
    /// Its value before.
    pub from: String,
    /// Its value with the remedy.
    pub to: String,
    /// Every change of the remedy (more than one when both ends must change together).
    pub changes: Vec<EndChange>,
    /// The relative effect on the rate.
    pub effect: Option<EffectDocument>,
    /// Its effect on the guards.
    #[serde(default)]
    pub guards: Vec<GuardDocument>,
    /// Whether it was kept: its CI is above zero, and no guard (except those given up) is worse.
    pub kept: bool,
    /// Whether it was tested again later, after another limit was removed: this test is not the final one.
    #[serde(default)]
    pub tried_again: bool,
    /// Why there is no effect, or another remark.
    pub note: Option<String>,
    /// The rules of the remedies that were in place in both arms, so that no other limit masked this one.
    #[serde(default)]
    pub beside: Vec<String>,
    /// The rates of the trials without it, bit/s, in the order they were made; 0 where nothing moved.
    pub without_bit_per_s: Vec<f64>,
    /// The rates of the trials with all fixes of the same stages.
    pub with_bit_per_s: Vec<f64>,
}

/// Guards: what must not get worse while the rate improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Guard {
    /// The 99th percentile of the request latency.
    P99,
    /// CPU seconds of linerate's threads on both ends per gigabyte.
    Cpu,
    /// The share of the packets that both hosts dropped.
    Drops,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Self; 3] = [Self::P99, Self::Cpu, Self::Drops];

    /// A description.
    pub fn words(self) -> &'static str {
        match self {
            Self::P99 => "p99 latency",
            Self::Cpu => "CPU per byte",
            Self::Drops => "drops per packet",
        }
    }
}

/// A guard, and what a remedy did to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuardDocument {
    /// What must not get worse.
    pub guard: Guard,
    /// The relative change; a higher value is worse.
    pub effect: EffectDocument,
    /// Whether it is worse by more than its noise: the CI is above zero, by more than clock resolution (for CPU per
    /// byte, by more than the rate gained; for drops, enough were dropped to count as loss).
    pub worse: bool,
}

/// The screening of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchDocument {
    /// The factors.
    pub factors: Vec<FactorDocument>,
    /// Trials of the screening design.
    pub screening_trials: usize,
    /// All trials of the search before any remedy was tested.
    pub trials: usize,
}

/// A factor of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FactorDocument {
    /// Its name: the end and its settings.
    pub name: String,
    /// Its levels, the first is the baseline.
    pub levels: Vec<String>,
    /// The mean relative difference between the screening trials that changed it and the others; null if there were
    /// too few. It is confounded with a part of every interaction of two other factors.
    pub effect: Option<f64>,
    /// Whether it is larger than expected by chance.
    pub shows: bool,
}

/// A change and the end it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndChange {
    /// Which end.
    pub end: End,
    /// The change.
    pub change: Change,
}

/// A relative effect with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EffectDocument {
    /// The relative difference: 0.4 is 40 % faster.
    pub relative: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The level of the interval: as high as all fixes together need, so that the chance that any fix without effect is
    /// kept is at most 5 %.
    pub level: f64,
    /// Number of trials without the fix.
    pub trials_without: usize,
    /// Number of trials with all fixes of the same stages.
    pub trials_with: usize,
    /// The minimum detectable effect of these trials.
    pub smallest_detectable: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_was_never_measured_is_null_and_reads_back() {
        let rate = Rate {
            rate_bit_per_s: f64::NAN,
            low_bit_per_s: f64::NAN,
            high_bit_per_s: f64::NAN,
            trials: 0,
            cpu_s_per_gb: None,
        };
        let text = serde_json::to_string(&rate).expect("a rate is plain data");
        assert!(text.contains("\"rate_bit_per_s\":null"), "{text}");
        let back: Rate = serde_json::from_str(&text).expect("what was written");
        assert!(back.rate_bit_per_s.is_nan() && back.high_bit_per_s.is_nan());
    }
}
