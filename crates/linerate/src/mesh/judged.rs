//! The result of a mesh, computed from its records: the same of a run that goes on and of a stored one.

use std::collections::BTreeSet;
use std::path::Path;

use linerate_analysis::mesh::{
    Clock, Gathered, HostVerdict, Matrix, MeshDocument, MeshSetup, RateUnit, Requirement,
    RequirementVerdict, screen,
};
use linerate_analysis::record::{MeshAsked, MeshClock, Record};
use linerate_analysis::text::words::count;
use linerate_model::end::End;
use linerate_model::exit::{Code, Outcome};
use linerate_model::finding::{Context, Finding, Profile};
use linerate_model::host::Host;
use linerate_model::mesh::{HostIndex, HostState, Retest};
use linerate_model::rules;
use linerate_report::mesh::{HostFacts, add_differences, mesh_page, mesh_text};
use linerate_report::metrics::mesh_metrics;
use linerate_runtime::console::say::{Format, Say};

use crate::metrics::{MetricsOutput, provenance};

/// What the result is computed from.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    states: Vec<HostState>,
    clocks: Vec<Option<MeshClock>>,
    facts: Vec<Option<Box<Host>>>,
    first: Gathered,
    retest: Option<Gathered>,
    rounds: usize,
}

impl Evidence {
    /// Takes in the next record.
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::MeshHost(member) => {
                let at = member.host.position();
                self.expect(at + 1);
                self.states[at] = member.state.clone();
                self.clocks[at] = member.clock;
                self.facts[at].clone_from(&member.facts);
            }
            Record::MeshLost { host, state } => {
                if let Some(known) = self.states.get_mut(host.position()) {
                    *known = state.clone();
                }
            }
            Record::MeshFlow(flow) => {
                let part = if flow.is_retest {
                    self.retest.get_or_insert_default()
                } else {
                    &mut self.first
                };
                for observation in &flow.observations {
                    part.add(observation);
                }
                self.rounds = self.rounds.max(flow.round as usize + 1);
            }
            _ => {}
        }
    }

    /// The mesh has this many hosts. Those without a record of their own count as joined.
    pub(super) fn expect(&mut self, hosts: usize) {
        if self.states.len() < hosts {
            self.states.resize(hosts, HostState::Joined);
            self.clocks.resize(hosts, None);
            self.facts.resize(hosts, None);
        }
    }

    /// How many hosts have joined, without these.
    pub(super) fn joined(&self, without: &BTreeSet<HostIndex>) -> usize {
        let is_in = |state: &HostState| match state {
            HostState::Joined => true,
            HostState::Unreached { round, .. } => round.is_some(),
        };
        let all = self.states.iter().enumerate();
        all.filter(|(at, state)| is_in(state) && !without.contains(&HostIndex::at(*at)))
            .count()
    }

    /// What was measured before a retest.
    pub(super) fn first(&self) -> &Gathered {
        &self.first
    }

    /// The facts of a host, if it has joined.
    pub(super) fn facts(&self, position: usize) -> Option<&Host> {
        self.facts.get(position)?.as_deref()
    }

    /// How many hosts have joined or not.
    pub(super) fn hosts(&self) -> usize {
        self.states.len()
    }

    /// How many rounds were run.
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    /// What should be measured again before it is named; none if there is no suspect.
    pub(super) fn suspects(&self, asked: &MeshAsked) -> Option<Retest> {
        let is_lost: Vec<bool> = self
            .states
            .iter()
            .map(|state| *state != HostState::Joined)
            .collect();
        screen(&asked.hosts, &is_lost, &self.first).retest()
    }
}

/// The result.
pub(super) struct Judged {
    document: MeshDocument,
    matrix: Matrix,
    clocks: Vec<Option<MeshClock>>,
}

impl Judged {
    pub(super) fn of(
        asked: &MeshAsked,
        evidence: &Evidence,
        seed: u64,
        stopped: Option<String>,
    ) -> Self {
        let clock = |clock: &Option<MeshClock>| {
            clock.map(|clock| Clock {
                offset_ns: clock.unix_ns,
                within_ns: clock.within_ns,
            })
        };
        let setup = MeshSetup {
            pattern: asked.pattern.to_string(),
            workload: asked.spec.workload.name().to_owned(),
            unit: if asked.spec.workload.is_bulk() {
                RateUnit::BitPerSecond
            } else {
                RateUnit::PerSecond
            },
            time_ns: asked.spec.duration_ns,
            seed,
            rounds: evidence.rounds,
            stopped,
            clocks: evidence.clocks.iter().map(clock).collect(),
            requirements: requirements(asked),
        };
        let retest = evidence.retest.as_ref();
        let (states, first) = (&evidence.states, &evidence.first);
        let mut document = MeshDocument::of(setup, &asked.hosts, states, first, retest);
        // The facts of thousands of hosts are compared only if one of them is named.
        if !document.named.is_empty() {
            differences(&mut document, asked, &evidence.facts);
        }
        Self {
            document,
            matrix: Matrix::of(&asked.hosts, states, first),
            clocks: evidence.clocks.clone(),
        }
    }

    /// Prints the result.
    pub(super) fn print(&self, is_verbose: bool, say: &Say) -> Outcome<()> {
        match say.format {
            Format::Json => return say.json(&self.document),
            // See `publish`.
            Format::OpenMetrics => return Ok(()),
            Format::Text => {}
        }
        let mut lines = vec![mesh_text(&self.document, &self.matrix)];
        if is_verbose {
            lines.push(String::new());
            let hosts = self.document.hosts.iter().zip(&self.clocks);
            lines.extend(hosts.map(|(host, clock)| {
                let clock = clock.map_or_else(|| "clock not known".to_owned(), clock_in_words);
                format!("{}: {clock}", host.host.name)
            }));
        }
        say.lines(&lines.join("\n"))
    }

    /// Prints the metrics if they are the format of the result, and writes their file.
    pub(super) fn publish(&self, file: Option<&Path>, say: &Say) -> Outcome<()> {
        let is_whole = self.document.stopped.is_none();
        MetricsOutput::to(file).publish(say, is_whole, || {
            Ok(mesh_metrics(&self.document, &provenance()))
        })
    }

    /// The result as a page.
    pub(super) fn page(&self, version: &str) -> String {
        mesh_page(&self.document, &self.matrix, version)
    }

    /// How many hosts it is about.
    pub(super) fn hosts(&self) -> usize {
        self.document.hosts.len()
    }

    /// The result in a few words.
    pub(super) fn headline(&self) -> String {
        let document = &self.document;
        let all = count(document.hosts.len(), "host");
        let ok = document.count(HostVerdict::Ok);
        let mut words = format!("{ok} of {all} ok");
        for (state, word) in [
            (HostVerdict::Named, "named"),
            (HostVerdict::Unreached, "unreached"),
            (HostVerdict::NotTried, "not tried"),
        ] {
            let number = document.count(state);
            if number > 0 {
                words = format!("{words}, {number} {word}");
            }
        }
        words
    }

    /// The exit code: a run that was stopped is partial, whatever it names; bounds decide alone.
    pub(super) fn code(&self) -> Code {
        let bounds = &self.document.requirements;
        let any = |verdict| bounds.iter().any(|bound| bound.verdict == verdict);
        if any(RequirementVerdict::Broken) {
            Code::Regression
        } else if self.document.stopped.is_some() || any(RequirementVerdict::CannotTell) {
            Code::Inconclusive
        } else if !bounds.is_empty() {
            Code::Done
        } else if !self.document.named.is_empty() {
            Code::Findings
        } else if self.document.is_complete() {
            Code::Done
        } else {
            Code::Inconclusive
        }
    }
}

/// The bounds of `--require`. They were checked before they were stored; a stored run may come from anyone.
fn requirements(asked: &MeshAsked) -> Vec<Requirement> {
    let bounds = asked.require.iter();
    bounds.filter_map(|text| text.parse().ok()).collect()
}

/// Adds how the facts and findings of named hosts differ from those of most others.
fn differences(document: &mut MeshDocument, asked: &MeshAsked, facts: &[Option<Box<Host>>]) {
    let known = asked.hosts.iter().zip(facts);
    let known: Vec<(&str, &Host, Vec<Finding>)> = known
        .filter_map(|(host, facts)| {
            let facts = facts.as_deref()?;
            Some((host.name.as_str(), facts, findings(facts)))
        })
        .collect();
    let hosts: Vec<HostFacts<'_>> = known
        .iter()
        .map(|(name, host, findings)| HostFacts {
            name,
            host,
            findings,
        })
        .collect();
    add_differences(document, &hosts);
}

/// What `doctor` finds on a host.
fn findings(host: &Host) -> Vec<Finding> {
    let diagnosis = rules::diagnose(&Context {
        end: End::Local,
        host,
        nic: None,
        other: None,
        sample: None,
        watch: None,
        profile: Profile::Throughput,
        owns_shapers: false,
    });
    diagnosis.findings
}

/// How far a clock is ahead.
fn clock_in_words(clock: MeshClock) -> String {
    let ahead = |ns: i64| {
        #[expect(clippy::cast_precision_loss, reason = "shown in milliseconds")]
        let ms = ns as f64 / 1e6;
        if ms.abs() < 1e3 {
            format!("{ms:+.3} ms")
        } else {
            format!("{:+.3} s", ms / 1e3)
        }
    };
    format!(
        "clock {} (monotonic {}) within {}",
        ahead(clock.unix_ns),
        ahead(clock.monotonic_ns),
        clock.within_ns
    )
}
