//! Whether the limits of classes of traffic hold, from rounds of trials: each class alone, all at once, and each beside the
//! round trips of the others.
//!
//! A rate is outside its limit only if its whole 95 % CI is (of fewer than six rounds, if each round is). A class that is below its limit although nothing waits in it is
//! bound by something else (its sender, the path): that is not judged.

mod judge;
pub mod series;
pub mod verification;

use linerate_stats::summary::{median, median_interval};
use serde::Serialize;

pub use judge::judge;

use crate::trial::LEVEL;

/// A class as it should be, and what may be wrong if it is not.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedClass {
    /// Its name.
    pub name: String,
    /// What it may send, as the file counts bytes; none for no limit.
    pub limit_bit_per_s: Option<f64>,
    /// What it must get while all send; none where the line's rate is not known and the file does not guarantee any.
    pub guarantee_bit_per_s: Option<f64>,
    /// What to check if its traffic passes another class.
    pub check: String,
    /// What the configuration shows to be wrong already.
    pub wrong: Vec<String>,
    /// What the configuration has in place of the limit, for the reason of a rate that is outside.
    pub configured: Option<String>,
}

/// One class in one trial in which it sent as much as it could.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Streamed {
    /// Its rate as the file counts bytes.
    pub rate_bit_per_s: Option<f64>,
    /// Its rate over the whole counted time, including that in which nothing waited.
    pub mean_bit_per_s: Option<f64>,
    /// What its receivers got of payload.
    pub payload_bit_per_s: Option<f64>,
    /// How much one packet of the largest size adds to the rate in the counted time: it is known no better.
    pub step_bit_per_s: f64,
    /// The share of the time in which packets waited in the class; none if that is not known.
    pub waiting_share: Option<f64>,
    /// The 75th percentile of its rate in short intervals.
    pub upper_bit_per_s: Option<f64>,
    /// How long its packets waited.
    pub delay_s: Option<f64>,
    /// Jain's index of its flows.
    pub fairness: Option<f64>,
    /// Whether a CPU bound it.
    pub is_cpu_bound: bool,
    /// Where most of its bytes passed, if not through its own class.
    pub strayed: Option<Strayed>,
}

/// Bytes that passed another class.
#[derive(Debug, Clone, PartialEq)]
pub struct Strayed {
    /// In words: `class rest (1:30)`, `no class of eth1`.
    pub into: String,
    /// The number of that class among those of the file.
    pub class: Option<usize>,
}

/// The round trips of one class in one trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probed {
    /// The median.
    pub p50_s: f64,
    /// The 99th percentile.
    pub p99_s: f64,
    /// Round trips per second.
    pub per_s: f64,
}

/// A round of one direction. What was not tried before the end is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Round {
    /// Each class while only it sends.
    pub alone: Vec<Option<Streamed>>,
    /// Each class while all send.
    pub together: Vec<Option<Streamed>>,
    /// The round trips of each class while none sends.
    pub quiet: Vec<Option<Probed>>,
    /// For each class that sends, the round trips of the others.
    pub beside: Vec<Vec<Option<Probed>>>,
}

impl Round {
    /// Class `at` while only it sends; none if that was not tried.
    pub fn alone(&self, at: usize) -> Option<&Streamed> {
        self.alone.get(at)?.as_ref()
    }

    /// Class `at` while all send; none if that was not tried.
    pub fn together(&self, at: usize) -> Option<&Streamed> {
        self.together.get(at)?.as_ref()
    }
}

/// A median of the rounds with its 95 % CI.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The lower end of its 95 % CI; null with fewer than six rounds.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The lowest and the highest of the rounds.
    #[serde(skip)]
    range: (f64, f64),
}

impl Figure {
    /// Of some values; none without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = median(values).ok()?;
        let interval = median_interval(values, LEVEL).ok();
        Some(Self {
            median,
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            range: values.iter().fold((median, median), |(low, high), value| {
                (low.min(*value), high.max(*value))
            }),
        })
    }

    /// The 95 % CI; without one, all that was measured.
    fn ends(&self) -> (f64, f64) {
        (
            self.low.unwrap_or(self.range.0),
            self.high.unwrap_or(self.range.1),
        )
    }

    fn over(&self, whole: f64) -> Self {
        Self {
            median: self.median / whole,
            low: self.low.map(|low| low / whole),
            high: self.high.map(|high| high / whole),
            range: (self.range.0 / whole, self.range.1 / whole),
        }
    }
}

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Holds,
    /// The verification ended before it was tried.
    NotTried,
    /// The trials cannot show it.
    CannotTell,
    /// It does not.
    Fails,
}

/// What was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Whether its traffic passes its own class.
    Class,
    /// Whether the configuration is the same on all interfaces that hold the limit.
    Configuration,
    /// Its rate while only it sends.
    Alone,
    /// Its rate while all send.
    Together,
    /// Its round trips while another class sends.
    Isolation,
}

/// Why a class does not hold, or why that is not known.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// What was judged.
    pub check: Check,
    /// How.
    pub verdict: Verdict,
    /// In words.
    pub what: String,
}

/// The round trips of a class while another one sends.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Beside {
    /// The class whose round trips these are.
    pub class: String,
    /// Its median round trip while no class sends.
    pub p50_before_s: f64,
    /// Its median round trip meanwhile.
    pub p50_after_s: f64,
    /// The 99th percentile while no class sends.
    pub p99_before_s: f64,
    /// The 99th percentile meanwhile.
    pub p99_after_s: f64,
    /// Its round trips per second while no class sends.
    pub per_s_before: f64,
    /// Its round trips per second meanwhile.
    pub per_s_after: f64,
}

/// What the rounds show of a class.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassResult {
    /// The class.
    pub class: String,
    /// What it may send; null for no limit. All rates but `payload` count bytes as `limit_of` says.
    pub limit_bit_per_s: Option<f64>,
    /// What it must get while all send.
    pub guarantee_bit_per_s: Option<f64>,
    /// Its rate while only it sends.
    pub alone_bit_per_s: Option<Figure>,
    /// The payload that its receivers got meanwhile.
    pub payload_bit_per_s: Option<Figure>,
    /// Its rate while all send.
    pub together_bit_per_s: Option<Figure>,
    /// Its rate alone as a share of its limit; null for no limit.
    pub share_of_limit: Option<Figure>,
    /// The share of the time alone in which packets waited in its class; null where that is not counted.
    pub waiting_share: Option<f64>,
    /// Jain's index of its flows while only it sends: 1 if all are equal, 1/count if one has everything.
    pub fairness: Option<f64>,
    /// The round trips of the others while it sends.
    pub others: Vec<Beside>,
    /// The worst of the reasons; `holds` without any.
    pub verdict: Verdict,
    /// Why it does not hold, or why that is not known.
    pub reasons: Vec<Reason>,
}

/// The verdict over all.
pub fn overall<'a>(classes: impl IntoIterator<Item = &'a ClassResult>) -> Verdict {
    let verdicts = classes.into_iter().map(|class| class.verdict);
    verdicts.max().unwrap_or(Verdict::CannotTell)
}

#[cfg(test)]
mod tests;
