//! Stores a verification as a run while it goes on: what was asked, each trial, the result of each class.

use std::path::Path;

use linerate_analysis::qos::Verdict;
use linerate_analysis::qos::verification::{Arm, ArmTrial, Kind, Verification};
use linerate_analysis::record::{Header, Measurement, Record, RunKind};
use linerate_analysis::text::words::count;
use linerate_analysis::trial::figure::{Figures, own_response};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::workload::Direction;
use linerate_runtime::cli::StoreArgs;
use linerate_runtime::console::say::Say;
use linerate_store::measured::{create, make_room};
use linerate_store::{Log as _, Run};

use super::document::QosDocument;
use super::judged::{Judged, sample_of};

/// A run that is written from its first trial on. A store that cannot be written never fails a verification.
pub(super) struct Kept<'a> {
    args: &'a StoreArgs,
    state: &'a Path,
    say: &'a Say,
    /// What the run begins with, until it has begun.
    header: Option<(Header, Vec<Record>)>,
    run: Option<Run>,
}

impl<'a> Kept<'a> {
    /// Nothing is written before the first trial.
    pub(super) fn new(
        args: &'a StoreArgs,
        (state, say): (&'a Path, &'a Say),
        header: Header,
        first: Vec<Record>,
    ) -> Outcome<Self> {
        if let Some(name) = &args.name
            && state.join("runs").join(name).exists()
        {
            let why = format!("there is a run `{name}` already");
            return Err(Stop::new(Code::BadInput, why).hint("choose another name"));
        }
        Ok(Self {
            args,
            state,
            say,
            header: (!args.no_store).then_some((header, first)),
            run: None,
        })
    }

    /// The trials of an arm.
    pub(super) fn add(&mut self, trial: &ArmTrial) {
        if let Some((header, first)) = self.header.take() {
            let name = self.args.name.as_deref();
            match create(self.state, RunKind::Qos, name, &header) {
                Ok(run) => self.run = Some(run),
                Err(stop) => self.report(&stop),
            }
            for record in first {
                self.write(record);
            }
        }
        self.write(Record::QosTrial(Box::new(trial.clone())));
    }

    /// The result, and how the verification ended.
    pub(super) fn end(
        mut self,
        judged: &Judged<'_>,
        document: &QosDocument,
        stopped: Option<&Stop>,
    ) {
        for result in results(judged) {
            self.write(Record::Measured(Box::new(result)));
        }
        self.write(Record::QosVerdict(headline(document)));
        if let Some(stop) = stopped {
            self.write(Record::Stopped(stop.to_string()));
        }
        self.write(Record::Ended {
            restored: true,
            kept: false,
        });
        let Some(run) = self.run.take() else { return };
        let folder = run.folder().to_owned();
        drop(run);
        if let Some(removed) = make_room(self.state, &folder, self.args.store_limit) {
            self.say.note(&format!(
                "the stored measurements exceed {}: the oldest are removed from now on ({removed} now); `--name` keeps one \
                 for good, `--store-limit` sets another limit",
                self.args.store_limit
            ));
        }
        if let Some(name) = &self.args.name {
            self.say.note(&format!("stored as `{name}`"));
        }
    }

    fn write(&mut self, record: Record) {
        let written = self.run.as_mut().map_or(Ok(()), |run| run.add(record));
        if let Err(stop) = written {
            // What is there already is a run that was stopped.
            self.run = None;
            self.report(&stop);
        }
    }

    fn report(&self, stop: &Stop) {
        let why = stop.to_string();
        let lines: Vec<&str> = why.lines().map(str::trim).collect();
        self.say
            .note(&format!("the result is not stored: {}", lines.join("; ")));
    }
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
