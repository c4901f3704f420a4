//! The result of a run in a few words.

use linerate_analysis::record::Record;
use linerate_analysis::trial::figure::{figure, in_words, own_response};
use linerate_model::sample::Sample;

/// What the records so far say about the result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Headline {
    /// Before any change.
    before: Option<String>,
    /// With every kept remedy.
    after: Option<String>,
    kept: usize,
    /// The best of several results: how good it is, and its words.
    best: Option<(f64, String)>,
    results: usize,
}

impl Headline {
    /// Takes in the next record.
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::Before(sample) if self.before.is_none() => self.before = result(sample),
            Record::After(sample) if self.after.is_none() => self.after = result(sample),
            Record::Decided { kept: true, .. } => self.kept += 1,
            Record::Explored {
                sample: Some(sample),
                ..
            } => {
                let response = own_response(sample);
                if let Some(value) = figure(response, sample) {
                    let words = in_words(response, value);
                    self.see(gain(value, response.more_is_better()), words);
                }
            }
            Record::Measured(measured) => {
                let words = match &measured.label {
                    Some(label) => format!("{label}: {}", measured.headline()),
                    None => measured.headline(),
                };
                let value = measured.median();
                let gain = value.map(|value| gain(value, measured.response.more_is_better()));
                self.see(gain.unwrap_or(f64::NEG_INFINITY), words);
            }
            _ => {}
        }
    }

    fn see(&mut self, gain: f64, words: String) {
        self.results += 1;
        if self.best.as_ref().is_none_or(|(best, _)| gain > *best) {
            self.best = Some((gain, words));
        }
    }

    /// The result; none if there is none yet.
    pub(super) fn in_words(&self) -> Option<String> {
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let fixes = if self.kept == 1 { "fix" } else { "fixes" };
            return Some(format!("{before} -> {after}, {} {fixes} kept", self.kept));
        }
        let best = self.best.as_ref().map(|(_, words)| words);
        match (best, self.results) {
            (Some(words), 1) => Some(words.clone()),
            (Some(words), of) => Some(format!("{words} (best of {of})")),
            (None, _) => self.before.clone(),
        }
    }
}

fn result(sample: &Sample) -> Option<String> {
    let response = own_response(sample);
    Some(in_words(response, figure(response, sample)?))
}

/// How good a figure is.
fn gain(value: f64, more_is_better: bool) -> f64 {
    if more_is_better { value } else { -value }
}
