//! Runs the rounds of a schedule: takes the sessions of both hosts of each flow, has them measure, and stores what comes out.

use std::time::{Duration, Instant};

use linerate_analysis::record::{MeshAsked, MeshFlow};
use linerate_analysis::text::words::count;
use linerate_model::end::End;
use linerate_model::exit::Outcome;
use linerate_model::mesh::{
    Failure, Flow, HostIndex, HostState, Outcome as FlowOutcome, Role, Round, Schedule,
};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{Direction, Stream, TrialSpec, Workload};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::remote_pairs::{
    FlowResult, RemoteFlow, RemoteHost, RoundLimits, address_between, run_round,
};

use super::for_ranks::ForRanks;
use super::kept::Kept;
use super::members::Members;
use super::outcome::{both, observations};

/// How the rounds ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// All were run.
    Done,
    /// A signal came.
    Interrupted,
    /// The deadline of the run came.
    Deadline,
    /// Fewer than two hosts are left.
    Alone,
}

impl Ended {
    /// Why the result is partial; none if it is whole.
    pub(super) fn cause(self) -> Option<String> {
        let why = match self {
            Self::Done => return None,
            Self::Interrupted => "interrupted",
            Self::Deadline => "the deadline of the run has passed",
            Self::Alone => "fewer than two hosts are reached",
        };
        Some(why.to_owned())
    }
}

/// Runs rounds.
pub(super) struct Rounds<'a, 'k> {
    pub(super) members: &'a mut Members,
    pub(super) asked: &'a MeshAsked,
    pub(super) kept: &'a mut Kept<'k>,
    pub(super) limits: RoundLimits,
    pub(super) deadline: Option<Instant>,
    pub(super) interrupt: &'a Interrupt,
    pub(super) say: &'a Say,
    /// The rounds of earlier schedules: numbers go on.
    pub(super) done: u32,
    /// Whether suspects are measured again.
    pub(super) is_retest: bool,
}

/// A flow with the sessions of its two hosts.
struct Running {
    flow: Flow,
    from: RemoteHost,
    to: RemoteHost,
    address: std::net::IpAddr,
    shared_kernel: bool,
}

impl Rounds<'_, '_> {
    /// Runs the rounds of a schedule.
    pub(super) fn run(&mut self, schedule: &Schedule) -> Ended {
        let progress = self.say.progress(schedule.len() as u64, "rounds");
        for round in schedule.rounds() {
            if self.interrupt.asked() {
                return Ended::Interrupted;
            }
            let trial = self.asked.spec.duration_ns.into();
            if self
                .deadline
                .is_some_and(|deadline| Instant::now() + trial > deadline)
            {
                return Ended::Deadline;
            }
            let mut joined = self
                .members
                .all
                .iter()
                .filter(|one| one.state == HostState::Joined);
            if joined.nth(1).is_none() {
                return Ended::Alone;
            }
            let round = Round {
                number: self.done,
                ..round
            };
            self.done += 1;
            self.round(&round);
            progress.step(&count(round.flows.len(), "flow"));
        }
        if self.interrupt.asked() {
            return Ended::Interrupted;
        }
        Ended::Done
    }

    fn round(&mut self, round: &Round) {
        let mut running = Vec::new();
        for flow in &round.flows {
            match self.take(flow) {
                Ok(flow) => running.push(flow),
                Err(outcome) => self.keep(round, flow, None, both(round, flow, outcome), None),
            }
        }
        let specs: Vec<TrialSpec> = running.iter().map(|one| self.spec(&one.flow)).collect();
        let flows = running
            .iter_mut()
            .zip(&specs)
            .map(|(one, spec)| RemoteFlow {
                from: &mut one.from,
                to: &mut one.to,
                address: one.address,
                spec,
                shared_kernel: one.shared_kernel,
            });
        let (start, results) = run_round(flows.collect(), self.limits);
        for (running, result) in running.into_iter().zip(results) {
            self.end(round, running, start, result);
        }
    }

    /// The sessions of a flow, and the address between its hosts.
    fn take(&mut self, flow: &Flow) -> Result<Running, FlowOutcome> {
        let not_tried = |cause| FlowOutcome::NotTried { cause };
        for host in [flow.from, flow.to] {
            if let Some(cause) = self.members.why_absent(host) {
                return Err(not_tried(cause));
            }
        }
        let (from, to) = (self.members.get(flow.from), self.members.get(flow.to));
        let nic = self.asked.hosts[flow.to.position()].nic.as_ref();
        let nic = nic.map(linerate_model::ids::NicName::as_str);
        let address = address_between(&from.addresses, &to.addresses, nic).ok_or_else(|| {
            FlowOutcome::Failed {
                failure: Failure::Connect,
                cause: match nic {
                    Some(nic) => {
                        format!("the receiver's {nic} has no address that the sender can use")
                    }
                    None => "the hosts have no address of the same family".to_owned(),
                },
            }
        })?;
        let shared_kernel = from.boot.is_some() && from.boot == to.boot;
        let from = self.members.take(flow.from).map_err(not_tried)?;
        match self.members.take(flow.to) {
            Ok(to) => Ok(Running {
                flow: *flow,
                from,
                to,
                address,
                shared_kernel,
            }),
            Err(cause) => {
                self.members.give_back(flow.from, from);
                Err(not_tried(cause))
            }
        }
    }

    fn spec(&self, flow: &Flow) -> TrialSpec {
        let asked = &self.asked.spec;
        // Requests congest nothing.
        let is_filler = flow.role == Role::Congesting && !asked.workload.is_bulk();
        let workload = if is_filler {
            Workload::Stream(Stream::default())
        } else {
            asked.workload.clone()
        };
        TrialSpec {
            workload,
            direction: if flow.is_bidirectional {
                Direction::Bidirectional
            } else {
                Direction::Forward
            },
            ..asked.clone()
        }
    }

    /// Stores the result of a flow, and keeps the sessions that still can be used.
    fn end(&mut self, round: &Round, running: Running, start: Nanoseconds, result: FlowResult) {
        let Running { flow, from, to, .. } = running;
        let mut answering = Vec::new();
        for (end, host, session) in [(End::Local, flow.from, from), (End::Remote, flow.to, to)] {
            let lost = result.as_ref().err().and_then(|failure| {
                let mut lost = failure.lost.iter();
                lost.find(|(which, _)| *which == end)
            });
            match lost {
                None => answering.push((host, session)),
                Some((_, cause)) => self.lost(round, host, cause),
            }
        }
        let observed = observations(round, &flow, &result);
        let is_interrupted = (result.as_ref().err()).is_some_and(|failure| failure.is_interrupted);
        self.keep(round, &flow, Some(start), observed, result.ok());
        for (host, mut session) in answering {
            // The agents of an interrupted flow are still at it.
            let passed = if is_interrupted {
                Ok(())
            } else {
                pass(
                    self.kept.for_ranks(),
                    host,
                    &mut session,
                    self.limits.prepare,
                )
            };
            match passed {
                Ok(()) => self.members.give_back(host, session),
                Err(stop) => self.lost(round, host, &stop.message),
            }
        }
    }

    /// A host does not answer any more.
    fn lost(&mut self, round: &Round, host: HostIndex, cause: &str) {
        let name = &self.asked.hosts[host.position()].name;
        self.say.note(&format!("{name} is lost: {cause}"));
        self.members.lose(host, round.number, cause);
        self.kept.lost(host, &self.members.get(host).state);
    }

    fn keep(
        &mut self,
        round: &Round,
        flow: &Flow,
        start_ns: Option<Nanoseconds>,
        observations: Vec<linerate_model::mesh::Observation>,
        sample: Option<Box<linerate_model::sample::Sample>>,
    ) {
        self.kept.flow(MeshFlow {
            round: round.number,
            step: round.step,
            flow: *flow,
            is_retest: self.is_retest,
            start_ns,
            observations,
            sample,
        });
    }
}

/// Sends a rank what its own run lacks.
pub(super) fn pass(
    for_ranks: &mut ForRanks,
    host: HostIndex,
    session: &mut RemoteHost,
    limit: Duration,
) -> Outcome<()> {
    let Some(count) = session.kept() else {
        return Ok(());
    };
    match for_ranks.take(host, count) {
        Some((lines, count)) => session.keep(lines, count, limit),
        None => Ok(()),
    }
}
