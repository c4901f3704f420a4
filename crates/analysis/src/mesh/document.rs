//! `linerate.mesh/1`.

use linerate_model::mesh::{Failure, Group, HostIndex, HostState, MeshHost, Stage};
use linerate_model::units::Nanoseconds;
use linerate_stats::Interval;
use linerate_stats::summary::median;
use serde::Serialize;
use serde_json::Value;

use super::failures::failed_pairs;
use super::judge::{Confirmed, NamedPart, Verdict};
use super::loss::LossShare;
use super::require::{Requirement, RequirementResult, judged};
use super::screen::{HOSTS_MIN, cells};
use super::{Gathered, IncastResult, Screening, Side, Suspect, incast, judge, screen};

/// The schema of the document.
pub const MESH_SCHEMA: &str = "linerate.mesh/1";
/// The number of hosts up to which the document has every pair.
const PAIRS_UP_TO: usize = 64;

/// What was asked for, and how the run went.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshSetup {
    /// The pattern.
    pub pattern: String,
    /// What each pair ran.
    pub workload: String,
    /// The unit of its rates.
    pub unit: RateUnit,
    /// The duration of a trial.
    pub time_ns: Nanoseconds,
    /// The seed of the random order.
    pub seed: u64,
    /// How many rounds were run, the retest included.
    pub rounds: usize,
    /// Why the run ended early.
    pub stopped: Option<String>,
    /// The clock of each host.
    pub clocks: Vec<Option<Clock>>,
    /// The bounds of `--require`.
    pub requirements: Vec<Requirement>,
}

/// The unit of rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RateUnit {
    /// Payload.
    #[serde(rename = "bit/s")]
    BitPerSecond,
    /// Requests or messages.
    #[serde(rename = "1/s")]
    PerSecond,
}

/// What `linerate mesh --format json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeshDocument {
    schema: &'static str,
    /// Which hosts measured with each other.
    pub pattern: String,
    /// What each pair ran.
    pub workload: String,
    /// The unit of the rates.
    pub unit: RateUnit,
    /// The duration of a trial.
    pub time_ns: Nanoseconds,
    /// The seed of the random order.
    pub seed: u64,
    /// How many rounds were run, those of the retest included.
    pub rounds: usize,
    /// Why the run ended early; null if it did not.
    pub stopped: Option<String>,
    /// Each host.
    pub hosts: Vec<HostResult>,
    /// What is slow or fails, the worst first: confirmed by measurements with other partners.
    pub named: Vec<Named>,
    /// Suspects that the retest did not confirm, in words.
    pub cleared: Vec<String>,
    /// Suspects that were not measured again, or not often enough, in words.
    pub open: Vec<String>,
    /// All directed pairs, summarized.
    pub summary: PairsSummary,
    /// Each directed pair; null for more than 64 hosts.
    pub pairs: Option<Vec<PairResult>>,
    /// Directed pairs between reached hosts of which a flow failed.
    pub failed: Vec<FailedResult>,
    /// The relative standard deviation of one rate, besides the effects of hosts; null if too little was measured.
    pub noise: Option<f64>,
    /// The smallest slowdown of a host that a retest would have confirmed (minimum detectable effect); null if not known.
    pub detectable: Option<f64>,
    /// The victim of an incast; null for other patterns.
    pub incast: Option<IncastResult>,
    /// Whether the bounds of `--require` hold.
    pub requirements: Vec<RequirementResult>,
}

/// The result of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostVerdict {
    /// It took part to the end, and nothing about it is slow.
    Ok,
    /// It is slow, or belongs to what is.
    Named,
    /// It did not join, or was lost.
    Unreached,
    /// It was not measured, or not enough to judge it.
    NotTried,
}

/// The clock of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clock {
    /// How far it is ahead of that of the host which controls the mesh.
    pub offset_ns: i64,
    /// It is known to within this time.
    pub within_ns: Nanoseconds,
}

/// A host of a mesh.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostResult {
    /// The host.
    #[serde(flatten)]
    pub host: MeshHost,
    /// Its result.
    pub state: HostVerdict,
    /// Why it was not reached or not tried, or what it is named for; null for one that is ok.
    pub cause: Option<String>,
    /// Its rate as the sender, relative to most hosts; null if not measured.
    pub send: Option<Effect>,
    /// The same as the receiver.
    pub receive: Option<Effect>,
    /// How many rates it was measured by, as the sender and as the receiver.
    pub measured: u32,
    /// Its flows that failed.
    pub failed: u32,
    /// Its clock; null if not known.
    pub clock: Option<Clock>,
}

/// A relative change with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    /// The change: -0.15 is 15 % less than most.
    pub relative: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The confidence level; that of named ones holds for all of them together.
    pub level: f64,
}

impl Effect {
    pub(super) fn of((effect, interval): (f64, Interval)) -> Self {
        Self {
            relative: effect.exp_m1(),
            low: interval.low.exp_m1(),
            high: interval.high.exp_m1(),
            level: interval.level,
        }
    }
}

/// A share of retransmitted segments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// The share of the segments between this host and its partners.
    pub share: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The confidence level; it holds for all that is named together.
    pub level: f64,
    /// The share of most hosts.
    pub most: f64,
}

impl Loss {
    fn of(loss: LossShare) -> Self {
        let LossShare {
            share,
            low,
            high,
            level,
            most,
        } = loss;
        Self {
            share,
            low,
            high,
            level,
            most,
        }
    }
}

/// What is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A host as the sender.
    HostSend,
    /// A host as the receiver.
    HostReceive,
    /// One NIC of a host as the sender; another NIC of it is not slow.
    AdapterSend,
    /// One NIC of a host as the receiver; another NIC of it is not slow.
    AdapterReceive,
    /// One direction between two hosts.
    Direction,
    /// Both directions between two hosts.
    Pair,
    /// A switch, rack or rail, from its hosts to others.
    GroupSend,
    /// A switch, rack or rail, from others to its hosts.
    GroupReceive,
    /// A host whose segments are retransmitted when it sends; its rate is not lower.
    LossSend,
    /// A host to which segments are retransmitted; its rate is not lower.
    LossReceive,
}

/// What is named, with the evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    /// The host; of a pair the sender; null for a group.
    pub host: Option<String>,
    /// What about it.
    pub what: What,
    /// The receiver of a pair; null for anything else.
    pub to: Option<String>,
    /// The group; null for anything else.
    pub group: Option<Group>,
    /// The members of the group.
    pub members: Vec<String>,
    /// The change of the rate in the retest; null if data does not arrive, or if only segments are lost.
    pub effect: Option<Effect>,
    /// The segments retransmitted in the retest; null if they are not more than those of most hosts.
    pub loss: Option<Loss>,
    /// How flows fail; null if they do not.
    pub failure: Option<Failure>,
    /// The change of the rate before the retest; null if not known.
    pub first: Option<f64>,
    /// How many results of the retest show it.
    pub results: usize,
    /// Facts of the host that most other hosts have otherwise.
    pub differs: Vec<Difference>,
    /// Findings of `doctor` that most other hosts do not have.
    pub findings: Vec<FindingOfHost>,
}

/// A fact of a host that most others have otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// The fact, as in `map --why`.
    pub key: String,
    /// Its value on this host; null if it has no such fact.
    pub value: Option<Value>,
    /// The value on most hosts; null if they have no such fact.
    pub most: Option<Value>,
    /// How many hosts have that.
    pub hosts: usize,
}

/// A finding of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingOfHost {
    /// The rule.
    pub rule: String,
    /// What it is about.
    pub subject: String,
    /// What was found.
    pub summary: String,
    /// How many other hosts have it.
    pub hosts: usize,
}

/// All directed pairs of a mesh.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairsSummary {
    /// Rates that were measured with one direction at a time.
    pub measured: usize,
    /// Flows that failed.
    pub failed: usize,
    /// Directions that were never tried.
    pub not_tried: usize,
    /// The lowest rate; null without any.
    pub min: Option<f64>,
    /// The 5th percentile.
    pub p5: Option<f64>,
    /// The median.
    pub median: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The highest.
    pub max: Option<f64>,
    /// The median with both directions at once; null if that was not measured.
    pub together_median: Option<f64>,
}

/// One directed pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairResult {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The rate, of several the median.
    pub rate: f64,
    /// The rate relative to what its two hosts let expect.
    pub relative: f64,
}

/// A directed pair of which flows failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedResult {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// How it failed.
    pub failure: Option<Failure>,
    /// How often.
    pub failed: u32,
    /// How often it was measured.
    pub measured: u32,
}

impl MeshDocument {
    /// The document of a mesh; with what differs about named hosts left empty.
    pub fn of(
        setup: MeshSetup,
        hosts: &[MeshHost],
        states: &[HostState],
        first: &Gathered,
        retest: Option<&Gathered>,
    ) -> Self {
        let is_lost: Vec<bool> = states
            .iter()
            .map(|state| *state != HostState::Joined)
            .collect();
        let screening = screen(hosts, &is_lost, first);
        let verdict = judge(&screening, first, retest, &is_lost);
        let mesh = Mesh {
            hosts,
            states,
            is_lost,
            first,
            screening,
            verdict,
        };
        let named: Vec<Named> = mesh
            .verdict
            .named
            .iter()
            .map(|one| mesh.named(one))
            .collect();
        let cleared = mesh.verdict.cleared.iter();
        let cleared = cleared.map(|one| mesh.in_words(&one.suspect)).collect();
        let open: Vec<String> = mesh
            .verdict
            .open
            .iter()
            .map(|suspect| mesh.in_words(suspect))
            .collect();
        let results = (0..hosts.len()).map(|host| mesh.host(host, &setup.clocks));
        let hosts: Vec<HostResult> = results.collect();
        let summary = mesh.summary();
        Self {
            schema: MESH_SCHEMA,
            requirements: judged(&setup.requirements, &hosts, &named, &summary),
            pattern: setup.pattern,
            workload: setup.workload,
            unit: setup.unit,
            time_ns: setup.time_ns,
            seed: setup.seed,
            rounds: setup.rounds,
            stopped: setup.stopped,
            hosts,
            named,
            cleared,
            open,
            summary,
            pairs: mesh.pairs(),
            failed: mesh.failed(),
            noise: mesh.verdict.noise.map(f64::exp_m1),
            detectable: mesh.verdict.detectable,
            incast: incast(first, mesh.hosts, setup.seed),
        }
    }

    /// How many hosts have this result.
    pub fn count(&self, state: HostVerdict) -> usize {
        let own = self.hosts.iter().filter(|host| host.state == state);
        own.count()
    }

    /// Whether every host was judged, and nothing is left open.
    pub fn is_complete(&self) -> bool {
        let is_judged =
            |host: &HostResult| matches!(host.state, HostVerdict::Ok | HostVerdict::Named);
        self.stopped.is_none() && self.open.is_empty() && self.hosts.iter().all(is_judged)
    }
}

/// What a document is made of.
struct Mesh<'a> {
    hosts: &'a [MeshHost],
    states: &'a [HostState],
    is_lost: Vec<bool>,
    first: &'a Gathered,
    screening: Screening,
    verdict: Verdict,
}

impl Mesh<'_> {
    fn name(&self, host: HostIndex) -> String {
        self.hosts[host.position()].name.clone()
    }

    fn in_words(&self, suspect: &Suspect) -> String {
        match suspect {
            Suspect::Host(host, Side::Send) => format!("{} sends less", self.name(*host)),
            Suspect::Host(host, Side::Receive) => format!("{} receives less", self.name(*host)),
            Suspect::Pair(from, to) => {
                format!("{} to {} is slow", self.name(*from), self.name(*to))
            }
            Suspect::Group(group, _, Side::Send) => format!("{group} sends less"),
            Suspect::Group(group, _, Side::Receive) => format!("{group} receives less"),
            Suspect::Loss(host, Side::Send) => {
                format!("segments from {} are lost", self.name(*host))
            }
            Suspect::Loss(host, Side::Receive) => {
                format!("segments to {} are lost", self.name(*host))
            }
            Suspect::FailingHost(host, Side::Send) => {
                format!("flows from {} fail", self.name(*host))
            }
            Suspect::FailingHost(host, Side::Receive) => {
                format!("flows to {} fail", self.name(*host))
            }
            Suspect::FailedPair(from, to) => {
                format!("{} to {} fails", self.name(*from), self.name(*to))
            }
        }
    }

    /// Whether another NIC of the same host takes part and is not named for this side.
    fn is_adapter(&self, host: HostIndex, side: Side) -> bool {
        let own = &self.hosts[host.position()];
        let machine = |host: &MeshHost| {
            let nic = host.nic.as_ref()?;
            let name = host.name.strip_suffix(nic.as_str())?.strip_suffix('/')?;
            Some(name.to_owned())
        };
        let Some(name) = machine(own) else {
            return false;
        };
        let is_named = |index: usize| {
            let part = NamedPart::Host(HostIndex::at(index), side);
            self.verdict.named.iter().any(|one| one.part == part)
        };
        let mut others = self.hosts.iter().enumerate();
        others.any(|(index, other)| {
            index != host.position()
                && machine(other).as_ref() == Some(&name)
                && !self.is_lost[index]
                && !is_named(index)
        })
    }

    fn named(&self, one: &Confirmed) -> Named {
        let (host, what, to, group) = match &one.part {
            NamedPart::Host(host, side) => {
                let what = match (side, self.is_adapter(*host, *side)) {
                    (Side::Send, false) => What::HostSend,
                    (Side::Receive, false) => What::HostReceive,
                    (Side::Send, true) => What::AdapterSend,
                    (Side::Receive, true) => What::AdapterReceive,
                };
                (Some(*host), what, None, None)
            }
            NamedPart::Loss(host, Side::Send) => (Some(*host), What::LossSend, None, None),
            NamedPart::Loss(host, Side::Receive) => (Some(*host), What::LossReceive, None, None),
            NamedPart::Direction(from, to) => (Some(*from), What::Direction, Some(*to), None),
            NamedPart::Pair(from, to) => (Some(*from), What::Pair, Some(*to), None),
            NamedPart::Group(group, members, side) => {
                let what = match side {
                    Side::Send => What::GroupSend,
                    Side::Receive => What::GroupReceive,
                };
                (None, what, None, Some((group, members)))
            }
        };
        let members = group.iter().flat_map(|(_, members)| members.iter());
        Named {
            host: host.map(|host| self.name(host)),
            what,
            to: to.map(|host| self.name(host)),
            members: members.map(|host| self.name(*host)).collect(),
            group: group.map(|(group, _)| group.clone()),
            effect: one.effect.map(Effect::of),
            loss: one.loss.map(Loss::of),
            failure: one.failure,
            first: one.first.map(f64::exp_m1),
            results: one.results,
            differs: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn host(&self, position: usize, clocks: &[Option<Clock>]) -> HostResult {
        let index = HostIndex::at(position);
        let [sent, received] = [0, 1].map(|side| self.screening.counts[side][position]);
        let flows = self.first.failed.iter();
        let failed = flows.filter(|flow| flow.from == index || flow.to == index);
        let failed = u32::try_from(failed.count()).unwrap_or(u32::MAX);
        let (state, cause) = self.state(index, sent.min(received), failed);
        let effect = |side: usize| {
            let effects = &self.verdict.effects[side];
            effects.get(position).copied().flatten().map(Effect::of)
        };
        HostResult {
            host: self.hosts[position].clone(),
            state,
            cause,
            send: effect(0),
            receive: effect(1),
            measured: sent + received,
            failed,
            clock: clocks.get(position).copied().flatten(),
        }
    }

    fn state(&self, host: HostIndex, measured: u32, failed: u32) -> (HostVerdict, Option<String>) {
        if let HostState::Unreached {
            stage,
            round,
            cause,
        } = &self.states[host.position()]
        {
            let when = match (stage, round) {
                (Stage::Join, _) => "did not join".to_owned(),
                (Stage::Refused, _) => "refused".to_owned(),
                (Stage::Round, None) => "lost before the first round".to_owned(),
                (Stage::Round, Some(round)) => format!("lost in round {}", round + 1),
            };
            return (HostVerdict::Unreached, Some(format!("{when}: {cause}")));
        }
        let is_about = |part: &NamedPart| match part {
            NamedPart::Host(own, _) | NamedPart::Loss(own, _) => *own == host,
            NamedPart::Direction(from, to) | NamedPart::Pair(from, to) => {
                *from == host || *to == host
            }
            NamedPart::Group(_, members, _) => members.contains(&host),
        };
        let named = self.verdict.named.iter().filter(|one| is_about(&one.part));
        let causes: Vec<String> = named.map(|one| self.part_in_words(&one.part)).collect();
        if !causes.is_empty() {
            return (HostVerdict::Named, Some(causes.join("; ")));
        }
        let not_tried = |cause: String| (HostVerdict::NotTried, Some(cause));
        let is_suspect = |suspect: &&Suspect| match suspect {
            Suspect::Host(own, _) | Suspect::Loss(own, _) | Suspect::FailingHost(own, _) => {
                *own == host
            }
            Suspect::Pair(from, to) | Suspect::FailedPair(from, to) => *from == host || *to == host,
            Suspect::Group(_, members, _) => members.contains(&host),
        };
        if let Some(open) = self.verdict.open.iter().find(is_suspect) {
            return not_tried(format!("suspected, not retested: {}", self.in_words(open)));
        }
        if measured == 0 && failed == 0 {
            let cause = self.first.cause_not_tried(host);
            return not_tried(cause.unwrap_or("no round measured it").to_owned());
        }
        let reached = self.is_lost.iter().filter(|lost| !**lost).count();
        if reached < HOSTS_MIN {
            return not_tried(format!(
                "{reached} hosts cannot show which of them is slow: at least {HOSTS_MIN} are needed"
            ));
        }
        (HostVerdict::Ok, None)
    }

    fn part_in_words(&self, part: &NamedPart) -> String {
        match part {
            NamedPart::Host(_, Side::Send) => "sends less".to_owned(),
            NamedPart::Host(_, Side::Receive) => "receives less".to_owned(),
            NamedPart::Loss(_, Side::Send) => "what it sends is lost".to_owned(),
            NamedPart::Loss(_, Side::Receive) => "what it receives is lost".to_owned(),
            NamedPart::Direction(from, to) => {
                format!("{} to {}", self.name(*from), self.name(*to))
            }
            NamedPart::Pair(one, other) => {
                format!("between {} and {}", self.name(*one), self.name(*other))
            }
            NamedPart::Group(group, _, Side::Send) => format!("{group} sends less"),
            NamedPart::Group(group, _, Side::Receive) => format!("{group} receives less"),
        }
    }

    fn summary(&self) -> PairsSummary {
        let logs = |entries: &[super::gathered::Entry]| -> Vec<f32> {
            entries.iter().map(|entry| entry.log_rate).collect()
        };
        let mut apart = logs(self.first.judged());
        // Selected, not sorted: a mesh has millions.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index between 0 and the last"
        )]
        let mut at = |probability: f64| {
            let last = apart.len().checked_sub(1)?;
            let rank = (probability * last as f64).round() as usize;
            let (_, log, _) = apart.select_nth_unstable_by(rank, f32::total_cmp);
            Some(f64::from(*log).exp())
        };
        let together = logs(self.first.both_ways());
        let together: Vec<f64> = together.into_iter().map(f64::from).collect();
        PairsSummary {
            measured: self.first.judged().len(),
            failed: self.first.failed.len(),
            not_tried: self.first.not_tried(),
            min: at(0.0),
            p5: at(0.05),
            median: at(0.5),
            p95: at(0.95),
            max: at(1.0),
            together_median: median(&together).ok().map(f64::exp),
        }
    }

    fn pairs(&self) -> Option<Vec<PairResult>> {
        if self.hosts.len() > PAIRS_UP_TO {
            return None;
        }
        let mut pairs = std::collections::BTreeMap::<_, Vec<f64>>::new();
        for cell in cells(self.first.judged()) {
            let key = (HostIndex(cell.row), HostIndex(cell.column));
            pairs.entry(key).or_default().push(f64::from(cell.value));
        }
        let result = |((from, to), logs): ((HostIndex, HostIndex), Vec<f64>)| {
            let log = median(&logs).ok()?;
            let expected = self.screening.fit.center
                + self.screening.effect(from, Side::Send).unwrap_or(0.0)
                + self.screening.effect(to, Side::Receive).unwrap_or(0.0);
            Some(PairResult {
                from: self.name(from),
                to: self.name(to),
                rate: log.exp(),
                relative: (log - expected).exp_m1(),
            })
        };
        Some(pairs.into_iter().filter_map(result).collect())
    }

    fn failed(&self) -> Vec<FailedResult> {
        let failed = failed_pairs(self.first, &self.is_lost);
        let result =
            |((from, to), tries): ((HostIndex, HostIndex), super::failures::Tries)| FailedResult {
                from: self.name(from),
                to: self.name(to),
                failure: tries.failure,
                failed: tries.failed,
                measured: tries.measured,
            };
        failed.into_iter().map(result).collect()
    }
}
