//! `linerate failover`: how long traffic is interrupted when a link, a switch or a router fails.
//!
//! Each trial sends probes in both directions for a fixed time. In it, `event` has the commands of the failure and of the
//! return run at either end, stamped with the clock of the probes. Each trial is stored (`crate::kept`), and everything that
//! is printed is computed from the trials, also of a stored run (`stored`): `judge` joins the records of both ends
//! (`missing`: later, if the failure has taken the control channel with it), `held_up` finds in their events what took the
//! time, `latency` how long packets took before and after, `next_hops` which flows it affected; `document` and `text` show all
//! trials together, `timeline` and `picture` one of them over time; `require` compares them with bounds, `compare` with those
//! of another run.

mod announce;
pub(crate) mod compare;
pub(crate) mod document;
mod event;
mod held_up;
mod judge;
mod latency;
mod missing;
mod next_hops;
mod picture;
mod require;
pub(crate) mod stored;
mod tcp;
mod text;
mod timeline;

use std::path::Path;
use std::time::Duration;

use document::{FailoverDocument, TrialResult};
use event::{Commands, Running};
use linerate_analysis::failover::{FailoverPlan, FailoverTrial, SkippedWorkload};
use linerate_analysis::record::{Header, Record, RunKind, SCHEMA};
use linerate_analysis::text::words::count;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::protocol::Token;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Answers, Direction, Probe, TrialSpec, Udp, Verbs, Workload};
use linerate_runtime::cli::{FailoverArgs, FailoverWorkload};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::{fresh_seed, fresh_token};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::conductor::TrialEnd;
use linerate_runtime::endpoint::ends::Ends as _;
use linerate_runtime::endpoint::trial::{Failing, PeerPath, cut_short, open_path};
use missing::{Half, Incomplete};

use crate::kept::Kept;

/// The payload of a probe: its header, and room to the smallest Ethernet frame's successor.
const PROBE_BYTES: Bytes = Bytes::new(64);
/// Packets per second of each flow, unless all flows of both directions are more than [`ALL_PER_S`].
const FLOW_PER_S: u32 = 300;
const ALL_PER_S: u32 = 20_000;
/// The TCP connections of each direction that carry messages, and how often.
const MESSAGE_FLOWS: u32 = 8;
const MESSAGE_EVERY: Nanoseconds = Nanoseconds::from_millis(10);
/// New connections per second.
const CONNECTS_PER_S: u32 = 50;
/// Points of the timeline of a flow, and of all flows of both directions.
const POINTS: u64 = 1_000;
const POINTS_IN_ALL: u64 = 500_000;
/// When a path that has failed between two trials is probed again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many repetitions a command of a failure has by default.
const REPEATS: u32 = 10;

/// What to do with a file that has one end's records of a run; none for any other file.
pub(crate) fn incomplete(file: &Path) -> Option<Stop> {
    // A FIFO would be waited for.
    file.is_file().then(|| Incomplete::read(file).ok())??;
    let shown = file.display();
    let why = format!("{shown} has the records of one end: those of the peer are missing");
    Some(Stop::new(Code::BadInput, why).hint(missing::how_to_join("PEER", file)))
}

/// Carries out `failover`.
pub(crate) fn run(args: &FailoverArgs, state: &Path, say: &Say) -> Outcome<()> {
    if let Some(file) = &args.join {
        return missing::join(args, file, state, say);
    }
    let interrupt = Interrupt::listen()?;
    let began_unix_s = now_unix_s();
    let path = open_path(&args.peer, state, &interrupt, say)?;
    let mut plan = plan(args);
    if args.workload.contains(&FailoverWorkload::Verbs) {
        plan.skipped.extend(add_writes(&mut plan.spec, &path));
    }
    let header = header(args, &path, began_unix_s)?;
    let first = stored::first((&path.local, &path.remote), &plan);
    let stored = (RunKind::Failover, header.clone());
    let kept = Kept::new(&args.store, (state, say), stored, first)?;
    announce::announce(args, &path, &plan.spec, trials_max(args), say);
    announce::warn_of_management_path(args, &path, say);
    let early = say.clone();
    interrupt.keep_what_was_measured(move || early.note("ending early; Ctrl-C again aborts"));
    let mut run = Run {
        args,
        path,
        header,
        plan,
        commands: Commands::new(args),
        trials: Vec::new(),
        results: Vec::new(),
        kept,
        is_incomplete: false,
        interrupt,
        state,
        say,
    };
    let ended = run.trials();
    run.end(ended)
}

/// A run while it goes on.
struct Run<'a> {
    args: &'a FailoverArgs,
    path: PeerPath,
    header: Header,
    plan: FailoverPlan,
    commands: Commands,
    /// The trials so far, and what each shows.
    trials: Vec<FailoverTrial>,
    results: Vec<TrialResult>,
    kept: Kept<'a>,
    /// Whether the peer's record of the last trial is missing.
    is_incomplete: bool,
    interrupt: Interrupt,
    state: &'a Path,
    say: &'a Say,
}

impl Run<'_> {
    /// Makes trial after trial until there are enough, one shows what was waited for, one fails, or it is to end early.
    fn trials(&mut self) -> Outcome<()> {
        let (until_event, most) = (self.args.until_event, trials_max(self.args));
        for number in 1..=most {
            let trial = match self.trial() {
                Err(stop) if until_event && !self.is_incomplete && is_of_the_path(&stop) => {
                    self.not_measured(&stop)?;
                    continue;
                }
                trial => trial?,
            };
            // One that was cut short is no repetition of the others, but the only one is all that there is.
            if trial.is_cut_short() && !self.trials.is_empty() {
                return Ok(());
            }
            let result = judge::judge(&trial);
            let is_enough = until_event && result.is_interrupted();
            let is_last = is_enough || number == most || self.interrupt.is_ending_early();
            if until_event && !is_enough {
                self.say.note(&format!("trial {number}: no interruption"));
            }
            // Until an event it may take days: what shows no interruption is not kept.
            if !until_event || is_last {
                self.keep(trial, result);
            }
            if !until_event && most > 1 {
                self.say.note(&format!("trial {number} of {most} done"));
            }
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    fn keep(&mut self, trial: FailoverTrial, result: TrialResult) {
        let stored = || Record::FailoverTrial(Box::new(trial.clone()));
        self.kept.add(stored);
        self.trials.push(trial);
        self.results.push(result);
    }

    /// The path has failed before a trial could begin: the next one may show the return, or another failure.
    fn not_measured(&mut self, stop: &Stop) -> Outcome<()> {
        let why = &stop.message;
        self.say.note(&format!(
            "the path failed between two trials, which is not measured: {why}"
        ));
        self.interrupt.comes_within(AGAIN);
        self.interrupt.check()?;
        if self.interrupt.is_ending_early() {
            return Err(Stop::interrupted());
        }
        // The failure may have taken the control channel, too.
        match self.path.reconnect(&self.args.peer, self.state) {
            Err(stop) if !is_of_the_path(&stop) => Err(stop),
            _ => Ok(()),
        }
    }

    /// One trial with its failure and its return.
    fn trial(&mut self) -> Outcome<FailoverTrial> {
        let (running, watch) = Running::start(&self.commands, &self.interrupt)?;
        let token = fresh_token()?;
        self.path.watch = Some(watch);
        self.path.failing = Some(Failing {
            commands: self.commands.remote().clone(),
            kept: None,
        });
        let result = self.path.run(&self.plan.spec, token);
        self.path.watch = None;
        let kept = self.path.failing.take().and_then(|one| one.kept);
        let is_whole = result.is_ok() || kept.is_some();
        // A trial that ends early does not wait for the command that causes the failure.
        let how = if is_whole && !self.interrupt.is_ending_early() {
            TrialEnd::Over
        } else {
            TrialEnd::Aborted
        };
        let (local, reported) = running.end(how)?;
        let mut sample = match (result, kept) {
            (Err(lost), Some(mut side)) => {
                side.commands.clone_from(&local);
                self.rejoin(token, side, &lost)?
            }
            (result, _) => {
                // The record of the peer has its commands, if there is one.
                let runs = result
                    .as_ref()
                    .map_or(&reported, |one| &one.remote.commands);
                if let Some(stop) = event::failure(&local, runs) {
                    return Err(stop);
                }
                result?
            }
        };
        sample.local.commands = local;
        match event::failure(&sample.local.commands, &sample.remote.commands) {
            Some(stop) => Err(stop),
            None => Ok(FailoverTrial::new(sample)),
        }
    }

    /// A trial whose peer was lost: fetches its record, or keeps that of this end.
    fn rejoin(&mut self, token: Token, local: Box<SideSample>, lost: &Stop) -> Outcome<Sample> {
        let Self { args, say, .. } = self;
        say.note(&format!(
            "the control connection was lost: {}",
            lost.message
        ));
        let half = Half {
            token,
            local,
            shared_kernel: self.path.shared_kernel(),
            flags: cut_short(self.interrupt.abort()),
        };
        let ends = (&self.interrupt, *say);
        let place = (*args, self.state);
        let fetched = missing::reconnect(&mut self.path, place, &self.plan.spec, token, ends);
        match fetched {
            Ok(remote) => Ok(half.joined(&self.plan.spec, remote)),
            Err(stop) => {
                let hosts = (&self.path.local, &self.path.remote);
                let run = (&self.header, &self.plan);
                let file = Incomplete::new(run, hosts, &self.trials, half).write(self.state)?;
                self.is_incomplete = true;
                let what = format!(
                    "the peer's record of trial {} is missing: {}; the record of this end is in {}",
                    self.trials.len() + 1,
                    stop.message,
                    file.display()
                );
                Err(Stop::new(stop.code, what).hint(missing::hint(&args.peer, &file)))
            }
        }
    }

    /// Prints and stores what the trials show, and leaves the peer.
    fn end(self, ended: Outcome<()>) -> Outcome<()> {
        let is_early = self.interrupt.is_ending_early();
        let stopped = match ended {
            Err(stop) if self.is_incomplete || stop.code == Code::RestoreIncomplete => Some(stop),
            _ if is_early => Some(Stop::interrupted()),
            ended => ended.err(),
        };
        // The second Ctrl-C: no result.
        let has_result = !self.results.is_empty() && !self.interrupt.asked();
        let printed = if has_result {
            let document =
                FailoverDocument::new(&self.header, &self.plan, self.results, stopped.is_none());
            let printed = print(&document, self.args, self.say);
            let result = Record::FailoverResult(text::headline(&document));
            self.kept.end(vec![result], stopped.as_ref());
            printed.map(|()| Some(document))
        } else {
            Ok(None)
        };
        let left = self.path.peer.leave_after_result(self.say);
        match (stopped, left) {
            // What the peer has not ended outranks why the run did.
            (Some(_), Err(left)) if left.code == Code::RestoreIncomplete => Err(left),
            (Some(stop), _) if stop.code == Code::Interrupted => match printed? {
                // There is a result: no error.
                Some(document) => {
                    let trials = count(document.trials.len(), "trial");
                    self.say
                        .note(&format!("interrupted: the result is that of {trials}"));
                    Err(stop.already_told())
                }
                None => Err(stop),
            },
            (Some(stop), _) => Err(stop),
            (None, left) => {
                left?;
                printed?.map_or(Ok(()), |one| require::outcome(&one.requirements))
            }
        }
    }
}

/// Prints what the trials show.
fn print(document: &FailoverDocument, args: &FailoverArgs, say: &Say) -> Outcome<()> {
    match say.format {
        Format::Json => say.json(document),
        _ => say.lines(&text::text(document, args.verbose)),
    }
}

/// Whether a trial ended because nothing crossed the path.
fn is_of_the_path(stop: &Stop) -> bool {
    matches!(stop.code, Code::PeerUnreachable | Code::TimeOut)
}

/// What was asked, as it is stored.
fn plan(args: &FailoverArgs) -> FailoverPlan {
    FailoverPlan {
        spec: spec(args),
        repeats: (!args.until_event).then(|| repeats(args)),
        cause: args.cause.clone(),
        restore: args.restore.clone(),
        cause_remote: args.cause_remote.clone(),
        restore_remote: args.restore_remote.clone(),
        require: args.require.iter().map(|one| one.text.clone()).collect(),
        skipped: Vec::new(),
    }
}

/// The header of its run.
fn header(args: &FailoverArgs, path: &PeerPath, created_unix_s: u64) -> Outcome<Header> {
    Ok(Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s,
        command: command_line(),
        // Nothing is in random order: it only makes the name of the run its own.
        seed: fresh_seed()?,
        trials: repeats(args),
        peer: args.peer.peer.to_string(),
        local_nic: path.local_nic.clone(),
        remote_nic: path.remote_nic.clone(),
        address: path.address.to_string(),
        copy_bit_per_s: None,
    })
}

/// The trials without `--until-event`.
fn repeats(args: &FailoverArgs) -> u32 {
    let has_cause = args.cause.is_some() || args.cause_remote.is_some();
    args.repeats.unwrap_or(if has_cause { REPEATS } else { 1 })
}

/// The trials, if no event ends them.
fn trials_max(args: &FailoverArgs) -> u32 {
    if args.until_event {
        args.repeats.unwrap_or(u32::MAX)
    } else {
        repeats(args)
    }
}

/// What each trial sends.
fn spec(args: &FailoverArgs) -> TrialSpec {
    let in_all = (ALL_PER_S / (2 * args.flows.max(1))).max(1);
    let per_s = args.rate.unwrap_or(FLOW_PER_S.min(in_all));
    let has = |workload| args.workload.contains(&workload);
    let probe = Probe {
        late_ns: args.late,
        message_flows: if has(FailoverWorkload::Tcp) || has(FailoverWorkload::Rr) {
            MESSAGE_FLOWS.min(args.flows)
        } else {
            0
        },
        message_ns: MESSAGE_EVERY,
        answers: match (has(FailoverWorkload::Tcp), has(FailoverWorkload::Rr)) {
            (_, false) => Answers::None,
            (true, true) => Answers::Also,
            (false, true) => Answers::Only,
        },
        write_flows: 0,
        verbs: None,
        connects_per_s: if has(FailoverWorkload::Connect) {
            CONNECTS_PER_S
        } else {
            0
        },
    };
    let points = (POINTS_IN_ALL / (2 * u64::from(args.flows.max(1)))).min(POINTS);
    let point = Nanoseconds::new(args.time.as_u64() / points.max(1));
    TrialSpec {
        workload: Workload::Udp(Udp::probing(PROBE_BYTES, per_s, probe)),
        flows: args.flows,
        direction: Direction::Bidirectional,
        duration_ns: args.time,
        interval_ns: point.max(Nanoseconds::from_millis(50)).min(args.time),
        threads: Some(1),
        events: true,
        ..TrialSpec::default()
    }
}

/// Adds RDMA writes where both ends have a device on the path.
fn add_writes(spec: &mut TrialSpec, path: &PeerPath) -> Option<SkippedWorkload> {
    let has_device = |host: &Host, nic: &NicName| {
        let mut ports = host.rdma.iter().flat_map(|device| &device.ports);
        ports.any(|port| port.netdev.value() == Some(nic))
    };
    let ends = [
        (&path.local, &path.local_nic, "here"),
        (&path.remote, &path.remote_nic, "at the peer"),
    ];
    for (host, nic, whose) in ends {
        if !has_device(host, nic) {
            return Some(SkippedWorkload {
                workload: "verbs".to_owned(),
                reason: format!("{nic} {whose} has no RDMA device"),
            });
        }
    }
    if let Workload::Udp(udp) = &mut spec.workload
        && let Some(probe) = &mut udp.probe
    {
        probe.write_flows = MESSAGE_FLOWS.min(spec.flows);
        probe.verbs = Some(Verbs::default());
    }
    None
}

/// The time between two packets of a flow.
fn step_of(spec: &TrialSpec) -> Nanoseconds {
    let step = match &spec.workload {
        Workload::Udp(udp) => udp.step(),
        _ => None,
    };
    step.unwrap_or_default()
}
