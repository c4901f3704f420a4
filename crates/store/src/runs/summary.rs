//! A run's list entry, computed record by record.

use std::path::Path;

use linerate_analysis::record::{EndFacts, Header, Measurement, Record, RunKind, flag_word};
use linerate_analysis::run_list::{Counts, OtherHost, State};
use linerate_model::exit::Outcome;
use linerate_model::sample::Sample;

use super::headline::Headline;
use crate::{Records, read_header};

/// A run in a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    /// The command that made it.
    pub kind: RunKind,
    /// What an experiment is called.
    pub title: Option<String>,
    /// Its result.
    headline: Headline,
    /// Its header.
    pub header: Header,
    /// The host that linerate was started on.
    pub local: EndFacts,
    /// The peer.
    pub remote: EndFacts,
    /// The other hosts that are levels of an experiment.
    pub others: Vec<OtherHost>,
    /// Trials.
    pub trials: u64,
    /// The trials of each workload.
    pub workloads: Counts,
    /// The trials that carry each flag.
    pub flags: Counts,
    /// How it ended.
    pub state: State,
    /// Why it was stopped.
    pub stopped: Option<String>,
    /// Whether its last record was torn and left out.
    pub torn: bool,
}

/// Reads a run.
pub(super) fn summary_of(folder: &Path) -> Outcome<Summary> {
    let header = read_header(folder)?;
    let mut summary = Summary {
        kind: RunKind::of_folder(folder, &header),
        title: None,
        headline: Headline::default(),
        header,
        local: EndFacts::default(),
        remote: EndFacts::default(),
        others: Vec::new(),
        trials: 0,
        workloads: Counts::new(),
        flags: Counts::new(),
        state: State::Open,
        stopped: None,
        torn: false,
    };
    let mut records = Records::open(folder)?;
    for record in &mut records {
        summary.add(&record?);
    }
    summary.torn = records.torn();
    Ok(summary)
}

impl Summary {
    /// The result in a few words: that of an experiment is its title, as it answers several questions.
    pub(super) fn headline(&self) -> Option<String> {
        self.headline.in_words().or_else(|| self.title.clone())
    }

    fn add(&mut self, record: &Record) {
        self.kind = self.kind.and(record);
        self.headline.add(record);
        match record {
            Record::Hosts { local, remote } => {
                self.local = EndFacts::of(local);
                self.remote = EndFacts::of(remote);
            }
            Record::Peer {
                at,
                local_nic,
                remote_nic,
                host,
                ..
            } => {
                let EndFacts { name, kernel } = EndFacts::of(host);
                self.others.push(OtherHost {
                    peer: at.clone(),
                    hostname: name,
                    kernel_release: kernel,
                    local_nic: local_nic.to_string(),
                    remote_nic: remote_nic.to_string(),
                });
            }
            Record::Lab { experiment, .. } => self.title = Some(experiment.title.clone()),
            Record::Before(sample)
            | Record::Between(sample)
            | Record::After(sample)
            | Record::Pilot(sample)
            | Record::Staged { sample, .. }
            | Record::Explored {
                sample: Some(sample),
                ..
            } => self.count(sample),
            Record::Cell { samples, .. } => samples.iter().for_each(|sample| self.count(sample)),
            // Its trials were counted one by one.
            Record::Measured(_) if self.kind == RunKind::Qos => {}
            Record::Measured(measured) => self.measured(measured),
            Record::MeshFlow(flow) => flow.sample.iter().for_each(|sample| self.count(sample)),
            Record::QosTrial(trial) => {
                let samples = trial.samples.iter();
                samples.for_each(|(_, sample)| self.count(sample));
            }
            Record::FailoverTrial(trial) => self.count(&trial.sample),
            Record::Stopped(why) => {
                self.state = State::Stopped;
                self.stopped = Some(why.clone());
            }
            Record::Resumed { .. } => {
                self.state = State::Open;
                self.stopped = None;
            }
            // After a stop it only reports what was restored.
            Record::Ended { .. } if self.stopped.is_none() => self.state = State::Ended,
            _ => {}
        }
    }

    /// All trials of a result, of which the record may have the raw counters of one.
    fn measured(&mut self, measured: &Measurement) {
        let trials = measured.figures.of(measured.response).len().max(1) as u64;
        self.trials += trials;
        let workload = measured.workload.clone();
        *self.workloads.entry(workload).or_default() += trials;
        for flag in measured.sample.iter().flat_map(|sample| &sample.flags) {
            *self.flags.entry(flag_word(*flag)).or_default() += 1;
        }
    }

    fn count(&mut self, sample: &Sample) {
        self.trials += 1;
        let workload = sample.spec.workload.name().to_owned();
        *self.workloads.entry(workload).or_default() += 1;
        for flag in &sample.flags {
            *self.flags.entry(flag_word(*flag)).or_default() += 1;
        }
    }
}
