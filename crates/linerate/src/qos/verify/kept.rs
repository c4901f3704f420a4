//! What a run of a verification begins and ends with: what was asked, and the result of each class.

use linerate_analysis::qos::Verdict;
use linerate_analysis::qos::verification::{Arm, Kind, Verification};
use linerate_analysis::record::{Measurement, Record};
use linerate_analysis::text::words::count;
use linerate_analysis::trial::figure::{Figures, own_response};
use linerate_model::workload::Direction;

use super::document::QosDocument;
use super::judged::{Judged, sample_of};

/// What stands behind the trials: the result of each class, and the verdict.
pub(super) fn last(judged: &Judged<'_>, document: &QosDocument) -> Vec<Record> {
    let results = results(judged).into_iter();
    let mut all: Vec<Record> = results
        .map(|result| Record::Measured(Box::new(result)))
        .collect();
    all.push(Record::QosVerdict(headline(document)));
    all
}

/// The verdict in a few words.
fn headline(document: &QosDocument) -> String {
    let of = |verdict: Verdict| document.all().filter(move |one| one.verdict == verdict);
    let all = document.all().count();
    let holds = of(Verdict::Holds).count();
    let mut words = format!("{holds} of {} hold", count(all, "class"));
    let failing: Vec<&str> = of(Verdict::Fails).map(|one| one.class.as_str()).collect();
    if !failing.is_empty() {
        words = format!("{words}; not {}", failing.join(", "));
    }
    words
}

/// What each class sent alone and while all send, so that runs can be compared.
fn results(judged: &Judged<'_>) -> Vec<Measurement> {
    let mut results = Vec::new();
    for direction in &judged.asked.directions {
        for (at, name) in judged.asked.classes.iter().enumerate() {
            for (kind, word) in [(Kind::Alone(at), "alone"), (Kind::Together, "together")] {
                let arm = Arm {
                    kind,
                    direction: *direction,
                };
                let from = match direction {
                    Direction::Reverse => ", from the peer",
                    _ => "",
                };
                let trials = judged.trials.iter().filter(|trial| trial.arm == arm);
                let samples: Vec<_> = trials.filter_map(|trial| sample_of(trial, at)).collect();
                let Some(first) = samples.first() else {
                    continue;
                };
                let mut figures = Figures::default();
                for sample in &samples {
                    figures.add(sample);
                }
                results.push(Measurement {
                    label: Some(format!("{name} {word}{from}")),
                    workload: first.spec.workload.name().to_owned(),
                    response: own_response(first),
                    figures,
                    sample: None,
                    limit: None,
                    foreign: None,
                });
            }
        }
    }
    results
}

/// The records before the first trial.
pub(super) fn first(judged: &Judged<'_>) -> Vec<Record> {
    let asked: &Verification = judged.asked;
    vec![
        Record::Hosts {
            local: Box::new(judged.local.clone()),
            remote: Box::new(judged.remote.clone()),
        },
        Record::Qos(Box::new(asked.clone())),
    ]
}
