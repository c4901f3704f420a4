//! The result of a run in a few words.

use linerate_analysis::record::Record;
use linerate_analysis::trial::figure::{figure, in_words, median_in_words, own_response};
use linerate_model::lab::Response;
use linerate_model::sample::Sample;

/// What the records so far say about the result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Headline {
    /// Of the trials before any change.
    before: Option<Figures>,
    /// Of those with every kept remedy.
    after: Option<Figures>,
    kept: usize,
    /// The best of several results: how good it is, and its words.
    best: Option<(f64, String)>,
    results: usize,
    /// The verdict of `qos verify`, or the result of `failover`.
    verdict: Option<String>,
}

impl Headline {
    /// Takes in the next record.
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::Before(sample) => add(&mut self.before, sample),
            Record::After(sample) => add(&mut self.after, sample),
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
            Record::QosVerdict(words)
            | Record::FailoverResult(words)
            | Record::MeshVerdict(words) => {
                self.verdict = Some(words.clone());
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
        if self.verdict.is_some() {
            return self.verdict.clone();
        }
        let before = self.before.as_ref().and_then(Figures::in_words);
        let after = self.after.as_ref().and_then(Figures::in_words);
        if let (Some(before), Some(after)) = (&before, &after) {
            let fixes = if self.kept == 1 { "fix" } else { "fixes" };
            return Some(format!("{before} -> {after}, {} {fixes} kept", self.kept));
        }
        let best = self.best.as_ref().map(|(_, words)| words);
        match (best, self.results) {
            (Some(words), 1) => Some(words.clone()),
            (Some(words), of) => Some(format!("{words} (best of {of})")),
            (None, _) => before,
        }
    }
}

/// The figures of a set of trials.
#[derive(Debug, Clone, PartialEq)]
struct Figures {
    response: Response,
    values: Vec<f64>,
}

impl Figures {
    /// Their median, as the verdict of the run has it.
    fn in_words(&self) -> Option<String> {
        median_in_words(self.response, &self.values)
    }
}

fn add(figures: &mut Option<Figures>, sample: &Sample) {
    let figures = figures.get_or_insert_with(|| Figures {
        response: own_response(sample),
        values: Vec::new(),
    });
    figures.values.extend(figure(figures.response, sample));
}

/// How good a figure is.
fn gain(value: f64, more_is_better: bool) -> f64 {
    if more_is_better { value } else { -value }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn the_headline_of_a_proof_has_the_medians_of_its_verdict() {
        let trial = |gbit| Box::new(build::sample().gbit(gbit).build());
        let mut headline = Headline::default();
        for gbit in [1, 3, 2] {
            headline.add(&Record::Before(trial(gbit)));
        }
        for gbit in [9, 30, 20] {
            headline.add(&Record::After(trial(gbit)));
        }
        let words = headline.in_words().expect("a result");
        assert_eq!(words, "2.00 Gb/s -> 20.00 Gb/s, 0 fixes kept");
    }
}
