//! What is kept of `measure`.

use linerate_model::lab::Response;
use linerate_model::sample::Sample;
use linerate_stats::summary::median;
use serde::{Deserialize, Serialize};

use crate::trial::figure::{Figures, in_words};

/// A result of `measure`. A repeated measurement may have a thousand trials of megabytes each: all figures are kept, and
/// the raw counters of one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Which of several results it is, such as a mode of `--ladder`; null for the only one.
    pub label: Option<String>,
    /// The name of the workload.
    pub workload: String,
    /// The figure that is the result.
    pub response: Response,
    /// The figures of every whole trial.
    pub figures: Figures,
    /// One trial: of repeated ones that nearest to the median, of a ladder the first; null if it has no raw counters, or
    /// too many of them.
    pub sample: Option<Sample>,
    /// The named limit with its status, in words; null if none was named.
    pub limit: Option<String>,
    /// What a foreign program at the remote end reported about itself; null if the remote end is linerate.
    pub foreign: Option<serde_json::Value>,
}

impl Measurement {
    /// The median of the result; none if no trial reported it.
    pub fn median(&self) -> Option<f64> {
        median(self.figures.of(self.response)).ok()
    }

    /// The result for a list: the median, and what limits it.
    pub fn headline(&self) -> String {
        let result = match self.median() {
            Some(value) => in_words(self.response, value),
            None => "no result".to_owned(),
        };
        match &self.limit {
            Some(limit) => format!("{result}, {limit}"),
            None => result,
        }
    }
}
