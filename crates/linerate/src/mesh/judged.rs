//! The result of a mesh, computed from its records: the same of a run that goes on and of a stored one.

use linerate_analysis::mesh::{
    Clock, Gathered, HostVerdict, MeshDocument, MeshSetup, Named, RateUnit, What, screen,
};
use linerate_analysis::record::{MeshAsked, MeshClock, Record};
use linerate_analysis::text::words::count;
use linerate_analysis::trial::figure::in_words;
use linerate_model::exit::{Code, Outcome};
use linerate_model::lab::Response;
use linerate_model::mesh::{HostState, Retest};
use linerate_runtime::console::say::{Format, Say};

/// What the result is computed from.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    states: Vec<HostState>,
    clocks: Vec<Option<MeshClock>>,
    first: Gathered,
    retest: Option<Gathered>,
    rounds: usize,
}

impl Evidence {
    /// Takes in the next record.
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::MeshHost(member) => {
                self.states.push(member.state.clone());
                self.clocks.push(member.clock);
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
    is_bulk: bool,
    clocks: Vec<Option<MeshClock>>,
}

impl Judged {
    pub(super) fn of(
        asked: &MeshAsked,
        evidence: &Evidence,
        seed: u64,
        stopped: Option<String>,
    ) -> Self {
        let is_bulk = asked.spec.workload.is_bulk();
        let clock = |clock: &Option<MeshClock>| {
            clock.map(|clock| Clock {
                offset_ns: clock.unix_ns,
                within_ns: clock.within_ns,
            })
        };
        let setup = MeshSetup {
            pattern: asked.pattern.to_string(),
            workload: asked.spec.workload.name().to_owned(),
            unit: if is_bulk {
                RateUnit::BitPerSecond
            } else {
                RateUnit::PerSecond
            },
            time_ns: asked.spec.duration_ns,
            seed,
            rounds: evidence.rounds,
            stopped,
            clocks: evidence.clocks.iter().map(clock).collect(),
            requirements: Vec::new(),
        };
        let retest = evidence.retest.as_ref();
        let document = MeshDocument::of(
            setup,
            &asked.hosts,
            &evidence.states,
            &evidence.first,
            retest,
        );
        Self {
            document,
            is_bulk,
            clocks: evidence.clocks.clone(),
        }
    }

    /// Prints the result.
    pub(super) fn print(&self, is_verbose: bool, say: &Say) -> Outcome<()> {
        if say.format == Format::Json {
            return say.json(&self.document);
        }
        say.lines(&self.text(is_verbose))
    }

    fn text(&self, is_verbose: bool) -> String {
        let document = &self.document;
        let shown = |rate: Option<f64>| match rate {
            None => "-".to_owned(),
            Some(rate) if self.is_bulk => in_words(Response::Rate, rate),
            Some(rate) => in_words(Response::Operations, rate),
        };
        let mut lines = vec![self.headline()];
        let summary = &document.summary;
        lines.push(format!(
            "median of all pairs {}, lowest {}",
            shown(summary.median),
            shown(summary.min)
        ));
        lines.extend(document.named.iter().map(named_in_words));
        let widest = document
            .hosts
            .iter()
            .map(|one| one.host.name.chars().count());
        let width = widest.max().unwrap_or(0).clamp(4, 40);
        lines.push(format!(
            "\n{:width$}  {:>8}  {:>8}",
            "host", "sends", "receives"
        ));
        for (host, clock) in document.hosts.iter().zip(&self.clocks) {
            let percent = |effect: Option<linerate_analysis::mesh::Effect>| {
                effect.map_or_else(|| "-".to_owned(), |one| percent(one.relative))
            };
            let mut notes = vec![
                match host.state {
                    HostVerdict::Ok => "ok",
                    HostVerdict::Named => "named",
                    HostVerdict::Unreached => "unreached",
                    HostVerdict::NotTried => "not tried",
                }
                .to_owned(),
            ];
            notes.extend(host.cause.clone());
            if host.failed > 0 {
                notes.push(format!("{} failed", count(host.failed as usize, "flow")));
            }
            if let (true, Some(clock)) = (is_verbose, clock) {
                notes.push(clock_in_words(*clock));
            }
            let (sends, receives) = (percent(host.send), percent(host.receive));
            let name = &host.host.name;
            lines.push(format!(
                "{name:width$}  {sends:>8}  {receives:>8}  {}",
                notes.join(": ")
            ));
        }
        lines.extend(
            document
                .cleared
                .iter()
                .map(|one| format!("cleared by the retest: {one}")),
        );
        lines.extend(
            document
                .open
                .iter()
                .map(|one| format!("not retested: {one}")),
        );
        lines.join("\n")
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

    /// The exit code: a run that was stopped is partial, whatever it names.
    pub(super) fn code(&self) -> Code {
        if self.document.stopped.is_some() {
            Code::Inconclusive
        } else if !self.document.named.is_empty() {
            Code::Findings
        } else if self.document.is_complete() {
            Code::Done
        } else {
            Code::Inconclusive
        }
    }
}

/// What is named, with its effect.
fn named_in_words(named: &Named) -> String {
    let host = named.host.as_deref().unwrap_or_default();
    let to = named.to.as_deref().unwrap_or_default();
    let group = named
        .group
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let what = match named.what {
        What::HostSend => format!("{host} sends slower"),
        What::HostReceive => format!("{host} receives slower"),
        What::AdapterSend => format!("the NIC {host} sends slower"),
        What::AdapterReceive => format!("the NIC {host} receives slower"),
        What::Direction => format!("{host} to {to} is slower"),
        What::Pair => format!("between {host} and {to} both directions are slower"),
        What::GroupSend => format!("{group} sends slower"),
        What::GroupReceive => format!("{group} receives slower"),
    };
    match (&named.effect, named.failure) {
        (Some(effect), _) => format!(
            "{what}: {} [{}, {}], {}",
            percent(effect.relative),
            percent(effect.low),
            percent(effect.high),
            count(named.results, "result")
        ),
        (None, _) => format!(
            "{what}: data does not arrive ({})",
            count(named.results, "flow")
        ),
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// How far a clock is ahead.
fn clock_in_words(clock: MeshClock) -> String {
    let ms = |ns: i64| {
        #[expect(clippy::cast_precision_loss, reason = "shown in milliseconds")]
        let ms = ns as f64 / 1e6;
        format!("{ms:+.3} ms")
    };
    format!(
        "clock {} (monotonic {}) within {}",
        ms(clock.unix_ns),
        ms(clock.monotonic_ns),
        clock.within_ns
    )
}
