//! The remote end: a thin loop round [`AgentTalk`] that turns its actions into calls on the host and on
//! the traffic engine. When the controller disconnects, whatever is not committed is undone; a trial whose record is kept
//! goes on to its end.

mod own_run;
mod progress;
mod trial;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linerate_channel::passing::receive_terms;
use linerate_host::apply::Boottime;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::{CommandRun, TrialCommands};
use linerate_model::plan::Plan;
use linerate_model::protocol::{Failure, FailureKind, PROTOCOL, Reply, Token, request_bytes_max};
use linerate_model::sample::SideSample;
use linerate_model::talk::{AgentAction, AgentTalk, Lines};
use linerate_model::terms::{RateBudget, SessionTerms};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use linerate_traffic::Abort;
use linerate_traffic::http::Server;
use linerate_traffic::tcp::{Arrival, Connected, HandedOver, Listening};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::own_run::OwnRun;
use self::progress::Watch;
use self::trial::{
    Aside, Trial, TrialRun, TrialThread, clock, no_changes, no_commands, no_connections, no_run,
    run_trial, too_fast,
};
use crate::cli::AgentArgs;
use crate::console::interrupt::Interrupt;
use crate::console::say::{Say, warn};
use crate::endpoint::conductor::Conductor;
use crate::endpoint::kept::{self, Reserved};
use crate::endpoint::listen;
use crate::endpoint::local::LocalEndpoint;
use crate::endpoint::place::allowed_here;
use crate::endpoint::transactions;

/// How long the data connections of a prepared trial may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(15);

/// How long the data connections to another agent may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the agent of a controller that was killed may take to notice it and to end.
const ORPHANED: Duration = Duration::from_secs(10);

/// Requests that may be queued while one is carried out: a controller that floods is throttled.
const REQUESTS_WAITING_MAX: usize = 1;

/// What the loop waits for.
enum Event {
    Line(Vec<u8>),
    Garbled(String),
    Closed,
    /// By a signal.
    Terminated,
    /// What is sent when it is there.
    Reply(Box<Reply>),
    /// By its number.
    TrialOver(u64, Result<Box<SideSample>, Failure>),
    /// The connections to another agent are open, or why not; by the number of the trial.
    Connected(u64, Result<(), Failure>),
}

/// `linerate agent`.
pub fn run(args: &AgentArgs, state: &Path, say: &Say) -> Outcome<()> {
    match (args.iperf3, args.http, args.listen) {
        (Some(address), ..) => crate::endpoint::iperf3::serve(address, &Interrupt::listen()?, say),
        (_, Some(address), _) => serve_http(args, address, say),
        (.., Some(address)) => listen::run(&args.listening, address, state, say),
        _ if args.session => serve_session(state),
        _ => {
            let own_run = args.keep.as_ref();
            let own_run = own_run.map(|folder| OwnRun::new(folder.clone(), args.keep_limit));
            serve(state, None, Arrival::default(), own_run)
        }
    }
}

/// Serves a controller of a listening agent.
fn serve_session(state: &Path) -> Outcome<()> {
    let (terms, passing) = receive_terms(std::io::stdin().as_fd())
        .map_err(|error| Stop::io("read the terms of this session", error))?;
    let terms: SessionTerms = serde_json::from_slice(&terms).map_err(|error| {
        Stop::new(Code::Bug, "cannot read the terms of this session").because(error)
    })?;
    let arrival = Arrival {
        ports: terms.ports,
        handed: Some(Arc::new(HandedOver::new(passing))),
    };
    serve(state, Some(terms), arrival, None)
}

/// Serves HTTP to anyone who reaches `address`, until it is interrupted.
fn serve_http(args: &AgentArgs, address: SocketAddr, say: &Say) -> Outcome<()> {
    let cpus = allowed_here();
    let threads = args
        .threads
        .unwrap_or_else(|| u32::try_from(cpus.len()).unwrap_or(1).max(1));
    let failed = |error| Stop::from(Failure::from(&error));
    let interrupt = Interrupt::listen()?;
    let server = Server::open(address, threads, cpus, args.body, args.wait).map_err(failed)?;
    say.note(&format!(
        "serving HTTP on {} with {threads} thread{}, bodies of {}; no authentication; Ctrl-C \
         stops it",
        server.address(),
        if threads == 1 { "" } else { "s" },
        args.body
    ));
    let served = server.serve(interrupt.abort()).map_err(failed)?;
    say.data(&format!(
        "{} requests on {} connections answered, {} refused, {} sent",
        served.requests, served.connections, served.refused, served.bytes
    ))
}

/// Serves one controller on standard input and output.
fn serve(
    state: &Path,
    terms: Option<SessionTerms>,
    arrival: Arrival,
    own_run: Option<OwnRun>,
) -> Outcome<()> {
    let mut endpoint = LocalEndpoint::open(state)?;
    if let Some(terms) = &terms {
        endpoint.reached_through(terms.listener_pid);
    }
    let (events, heard) = mpsc::sync_channel(REQUESTS_WAITING_MAX);
    end_on_signals(events.clone())?;
    let lines = events.clone();
    std::thread::spawn(move || read_lines(std::io::stdin(), &lines));
    let limit = (terms.as_ref()).and_then(|terms| terms.limits.rate_bit_per_s);
    let budget = limit.map(|limit| Arc::new(Mutex::new(RateBudget::of(limit))));
    let mut agent = Agent {
        endpoint,
        terms,
        arrival,
        state: state.to_owned(),
        talk: AgentTalk::new(env!("CARGO_PKG_VERSION")),
        own_run,
        trial: None,
        ending: Vec::new(),
        is_alone: false,
        next: 0,
        budget,
        events,
    };
    let served = agent.serve(heard);
    agent.abort_trial();
    let restored = agent.endpoint.undo_all();
    if let Some(own_run) = agent.own_run.take() {
        own_run.end();
    }
    let joined = agent.ending.into_iter().filter_map(|thread| {
        let joined = thread.join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let left: Vec<String> = joined.collect();
    restored.map_err(|failure| Stop::new(Code::RestoreIncomplete, failure.message))?;
    if !left.is_empty() {
        return Err(Stop::new(Code::RestoreIncomplete, left.join("; ")));
    }
    served
}

/// SIGTERM and SIGHUP end the talk as the controller's good-bye does. SIGINT is the controller's affair:
/// a terminal sends it to both, and the controller still needs this end to roll back.
fn end_on_signals(events: SyncSender<Event>) -> Outcome<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Stop::io("listen for signals", error))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // A session that was lost may be all that SIGHUP means.
            let event = match signal {
                SIGINT => continue,
                SIGHUP => Event::Closed,
                _ => Event::Terminated,
            };
            let _ = events.send(event);
        }
    });
    Ok(())
}

struct Agent {
    endpoint: LocalEndpoint,
    /// Of a session of a listening agent.
    terms: Option<SessionTerms>,
    arrival: Arrival,
    /// Where its journals are.
    state: PathBuf,
    talk: AgentTalk,
    /// Of a rank of a mesh, unless nothing is to be stored.
    own_run: Option<OwnRun>,
    trial: Option<Trial>,
    /// Trials that are over or aborted, and may still end what they caused.
    ending: Vec<TrialThread>,
    /// Whether the controller is gone, and the trial goes on without it.
    is_alone: bool,
    /// The number of the next trial: an aborted one may still report its end.
    next: u64,
    /// What the trials of this session may still move; `None` without a maximum rate.
    budget: Option<Arc<Mutex<RateBudget>>>,
    events: SyncSender<Event>,
}

impl Agent {
    /// Takes the channel, so that nothing waits for its reader afterwards.
    fn serve(&mut self, heard: Receiver<Event>) -> Outcome<()> {
        for event in heard {
            let reply = match event {
                Event::Terminated => return Ok(()),
                Event::Closed => {
                    self.is_alone = true;
                    None
                }
                Event::Garbled(why) => return Err(Stop::new(Code::BadInput, why)),
                Event::Reply(reply) => Some(*reply),
                Event::TrialOver(number, result) => self.trial_over(number, result),
                Event::Connected(number, result) => self.connected(number, result),
                Event::Line(line) => match self.talk.on_line(&line) {
                    AgentAction::Close => return Ok(()),
                    action => self.act(action),
                },
            };
            if let Some(reply) = reply
                && !self.is_alone
            {
                self.is_alone = !say(&reply)?;
            }
            let goes_on = |trial: &Trial| trial.started && trial.keeps;
            if self.is_alone && !self.trial.as_ref().is_some_and(goes_on) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Carries out an action; `None` when its reply comes later.
    fn act(&mut self, action: AgentAction) -> Option<Reply> {
        let done = match action {
            AgentAction::Apply { .. }
            | AgentAction::Lease { .. }
            | AgentAction::TakeBack { .. }
                if self.terms.as_ref().is_some_and(|terms| !terms.changes) =>
            {
                Err(no_changes())
            }
            AgentAction::Close => return None,
            AgentAction::Greet => Ok(self.hello()),
            AgentAction::ReadClock => Ok(clock()),
            AgentAction::ReadHost => Ok(self.read_host()),
            AgentAction::ReadSettings(keys) => {
                let values = keys.iter().map(|key| self.endpoint.read_setting(key));
                Ok(Reply::Settings(values.collect()))
            }
            AgentAction::Apply {
                plan,
                include_way_in,
            } => {
                self.endpoint.disturb_way_in(include_way_in);
                // Others may follow.
                self.endpoint.expect_any();
                self.endpoint.apply(&plan).map(|()| Reply::Applied)
            }
            AgentAction::Lease {
                plan,
                include_way_in,
                seconds,
            } => self.lease(&plan, include_way_in, seconds),
            AgentAction::TakeBack { id } => self.take_back(&id),
            AgentAction::Undo => self.endpoint.undo().map(|()| Reply::Undone),
            AgentAction::Commit => self.endpoint.commit().map(|()| Reply::Committed),
            AgentAction::Prepare {
                spec,
                token,
                bind,
                report_ns,
                commands,
                keep,
            } => {
                let commands = commands.map(|one| *one).unwrap_or_default();
                self.prepare(&spec, token, &bind, report_ns, (&commands, keep))
            }
            AgentAction::Fetch(token) => {
                self.fetch(token);
                return None;
            }
            AgentAction::Discard(token) => {
                kept::discard(&self.state, token).map(|()| Reply::Discarded)
            }
            AgentAction::Keep(records) => self.keep(&records),
            AgentAction::Connect {
                spec,
                token,
                target,
            } => match self.connect(spec, token, target) {
                Ok(()) => return None,
                Err(failure) => Err(failure),
            },
            AgentAction::Start(at) => return self.start(at),
            AgentAction::EndEarly => Ok(self.end_early()),
            AgentAction::Abort => {
                self.abort_trial();
                Ok(Reply::Aborted)
            }
            AgentAction::Refuse(failure) => Err(failure),
        };
        Some(done.unwrap_or_else(Reply::Failed))
    }

    /// Adds records to the own run of a rank.
    fn keep(&mut self, records: &[String]) -> Result<Reply, Failure> {
        let own_run = self.own_run.as_mut().ok_or_else(no_run)?;
        let added = own_run.add(records);
        added.inspect_err(|failure| warn(&failure.message))?;
        Ok(Reply::Kept)
    }

    fn read_host(&mut self) -> Reply {
        let host = self.endpoint.read_host();
        if let Some(own_run) = &mut self.own_run {
            own_run.know(&host);
        }
        Reply::Host(Box::new(host))
    }

    fn hello(&self) -> Reply {
        Reply::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: self.endpoint.addresses(),
            reached: self.terms.as_ref().map(|terms| terms.reached),
            changes_forbidden: self.terms.as_ref().is_some_and(|terms| !terms.changes),
        }
    }

    fn end_early(&self) -> Reply {
        if let Some(trial) = &self.trial {
            trial.abort.end_early();
        }
        Reply::Ending
    }

    /// Aborts the trial, which ends what it caused.
    fn abort_trial(&mut self) {
        if let Some(trial) = self.trial.take() {
            trial.abort.trigger();
            self.ending.push(trial.thread);
        }
    }

    /// Sends the record of an earlier trial, which may still run.
    fn fetch(&self, token: Token) {
        let (events, state) = (self.events.clone(), self.state.clone());
        std::thread::spawn(move || {
            let fetched = kept::fetch(&state, token);
            let reply = fetched.map_or_else(Reply::Failed, |side| Reply::Done(Box::new(side)));
            let _ = events.send(Event::Reply(Box::new(reply)));
        });
    }

    fn lease(&mut self, plan: &Plan, include_way_in: bool, seconds: u32) -> Result<Reply, Failure> {
        let time = Duration::from_secs(seconds.into());
        self.endpoint.allow_until(Boottime::now().plus(time));
        self.endpoint.disturb_way_in(include_way_in);
        self.endpoint.apply(plan)?;
        let id = self.endpoint.open_id().unwrap_or_default();
        Ok(Reply::Leased { id })
    }

    fn take_back(&mut self, id: &str) -> Result<Reply, Failure> {
        let failed = |stop: Stop| Failure {
            kind: match stop.code {
                Code::Resource => FailureKind::Resource,
                Code::PermissionMissing => FailureKind::Permission,
                _ => FailureKind::RestoreIncomplete,
            },
            message: stop.message,
        };
        if transactions::is_applied(&self.state, id).map_err(failed)? {
            transactions::undo_committed_within(&self.state, Some(id), ORPHANED).map_err(failed)?;
        }
        Ok(Reply::Undone)
    }

    fn prepare(
        &mut self,
        spec: &TrialSpec,
        token: Token,
        bind: &str,
        report: Option<Nanoseconds>,
        (commands, keep): (&TrialCommands, bool),
    ) -> Result<Reply, Failure> {
        let limits = self.terms.as_ref().map(|terms| &terms.limits);
        let may_run = self.terms.as_ref().is_none_or(|terms| terms.commands);
        let prepared = limits
            .map_or(Ok(()), |limits| limits.check(spec))
            .and_then(|()| {
                if !may_run && !commands.is_empty() {
                    return Err(no_commands());
                }
                let paced = TrialSpec {
                    pacing_bit_per_s: limits
                        .and_then(|limits| limits.pacing(spec))
                        .or(spec.pacing_bit_per_s),
                    ..spec.clone()
                };
                let (listening, abort) = Listening::open_at(&paced, token, bind, &self.arrival)
                    .and_then(|listening| Ok((listening, Abort::new()?)))
                    .map_err(|error| Failure::from(&error))?;
                let aside = Aside {
                    conductor: self.conductor(commands)?,
                    reserved: keep.then(|| self.reserve(token)).flatten(),
                };
                Ok((listening, abort, aside))
            });
        let (listening, abort, aside) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                self.talk.on_trial_over();
                return Err(failure);
            }
        };
        let began = aside.conductor.as_ref().map(Conductor::began);
        let watch = Watch {
            events: self.events.clone(),
            report,
            budget: self.budget.clone(),
            began,
            // One counter has both directions of what is not a bulk transfer.
            directions: if spec.workload.is_bulk() { 1 } else { 2 },
        };
        let exceeds = watch.begin(&abort);
        let keeps = aside.reserved.is_some();
        let port = listening.port();
        let state = self.state.clone();
        let events = self.events.clone();
        self.begin(abort, keeps, move |number, abort, started| {
            let accept = || {
                let accepted = listening.accept(Instant::now() + ARRIVAL, abort);
                accepted.map_err(|error| Failure::from(&error))
            };
            let (result, left) = run_trial(accept, abort, started, aside);
            if result.is_err() && keeps {
                // What cannot be removed is empty.
                let _ = kept::discard(&state, token);
            }
            if exceeds.load(Ordering::SeqCst) {
                let _ = events.send(Event::TrialOver(number, Err(too_fast())));
            } else if !abort.is_triggered() {
                // The result of an aborted trial is discarded.
                let _ = events.send(Event::TrialOver(number, result));
            }
            left
        });
        Ok(Reply::Prepared { port })
    }

    /// Runs a trial in a thread of its own.
    fn begin(&mut self, abort: Abort, keeps: bool, run: impl TrialRun) {
        let (start, started) = mpsc::channel();
        let number = self.next;
        self.next += 1;
        let heard = abort.clone();
        let thread = std::thread::spawn(move || run(number, &heard, &started));
        self.trial = Some(Trial {
            number,
            abort,
            start,
            early: None,
            started: false,
            keeps,
            thread,
        });
    }

    /// Opens the data connections of a trial with another agent.
    fn connect(
        &mut self,
        spec: Box<TrialSpec>,
        token: Token,
        target: SocketAddr,
    ) -> Result<(), Failure> {
        let begun = if self.terms.is_some() {
            Err(no_connections())
        } else {
            Abort::new().map_err(|error| Failure::from(&error))
        };
        let abort = begun.inspect_err(|_| self.talk.on_trial_over())?;
        let events = self.events.clone();
        self.begin(abort, false, move |number, abort, started| {
            let connect = || {
                let deadline = Instant::now() + CONNECT;
                let connected = Connected::connect(&spec, target, token, deadline, abort)
                    .map_err(|error| Failure::from(&error));
                let is_open = connected.as_ref().map(drop).map_err(Failure::clone);
                let _ = events.send(Event::Connected(number, is_open));
                connected
            };
            let (result, left) = run_trial(connect, abort, started, Aside::default());
            // After a failure to connect, this trial is not the current one any more.
            if !abort.is_triggered() {
                let _ = events.send(Event::TrialOver(number, result));
            }
            left
        });
        Ok(())
    }

    fn connected(&mut self, number: u64, result: Result<(), Failure>) -> Option<Reply> {
        // An aborted trial has its answer.
        self.trial.as_ref().filter(|trial| trial.number == number)?;
        match result {
            Ok(()) => Some(Reply::Connected),
            Err(failure) => {
                if let Some(trial) = self.trial.take() {
                    self.ending.push(trial.thread);
                }
                self.talk.on_trial_over();
                Some(Reply::Failed(failure))
            }
        }
    }

    /// The process that runs the commands of a trial; none without commands.
    fn conductor(&self, commands: &TrialCommands) -> Result<Option<Conductor>, Failure> {
        if commands.is_empty() {
            return Ok(None);
        }
        let (ended, runs) = mpsc::channel();
        let events = self.events.clone();
        // A thread of its own: what reads the commands' ends must not wait for the controller.
        std::thread::spawn(move || {
            for run in runs {
                if events
                    .send(Event::Reply(Box::new(Reply::Ran(run))))
                    .is_err()
                {
                    return;
                }
            }
        });
        let ran = move |run: &CommandRun| {
            let _ = ended.send(Box::new(run.clone()));
        };
        Conductor::start(commands, ran)
            .map(Some)
            .map_err(|stop| Failure {
                kind: FailureKind::Resource,
                message: stop.to_string(),
            })
    }

    /// The place of the record of a trial; without one the record is only sent.
    fn reserve(&self, token: Token) -> Option<Reserved> {
        Reserved::new(&self.state, token)
            .map_err(|failure| warn(&failure.message))
            .ok()
    }

    fn start(&mut self, at: Option<Nanoseconds>) -> Option<Reply> {
        let trial = self.trial.as_mut()?;
        trial.started = true;
        // The thread is gone when the connections never came; then its reason is here already.
        let _ = trial.start.send(at);
        let early = trial.early.take()?;
        let number = trial.number;
        self.trial_over(number, early)
    }

    fn trial_over(
        &mut self,
        number: u64,
        result: Result<Box<SideSample>, Failure>,
    ) -> Option<Reply> {
        let trial = self.trial.as_mut().filter(|trial| trial.number == number)?;
        if !trial.started {
            trial.early = Some(result);
            return None;
        }
        if let Some(trial) = self.trial.take() {
            self.ending.push(trial.thread);
        }
        self.talk.on_trial_over();
        Some(result.map_or_else(Reply::Failed, Reply::Done))
    }
}

/// Writes one reply; false when the controller is gone.
fn say(reply: &Reply) -> Outcome<bool> {
    let mut line = serde_json::to_vec(reply)
        .map_err(|error| Stop::new(Code::Bug, "cannot write a reply").because(error))?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(&line).and_then(|()| out.flush()).is_ok())
}

fn read_lines(mut input: impl Read, events: &SyncSender<Event>) {
    let mut lines = Lines::default();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let count = match input.read(&mut buffer) {
            Ok(count) if count > 0 => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            _ => break,
        };
        if let Err(error) = lines.push(&buffer[..count], request_bytes_max) {
            let _ = events.send(Event::Garbled(error.to_string()));
            return;
        }
        while let Some(line) = lines.next_line() {
            if events.send(Event::Line(line)).is_err() {
                return;
            }
        }
    }
    let _ = events.send(Event::Closed);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A controller that sends without end and never reads: one request at each reading, which is counted.
    struct Flood(Arc<AtomicUsize>);

    impl Read for Flood {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let line = b"\"read-host\"\n";
            buffer[..line.len()].copy_from_slice(line);
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(line.len())
        }
    }

    #[test]
    fn a_controller_that_floods_is_read_no_faster_than_it_is_served() {
        let sent = Arc::new(AtomicUsize::new(0));
        let (events, heard) = mpsc::sync_channel(REQUESTS_WAITING_MAX);
        let flood = Flood(Arc::clone(&sent));
        let reader = std::thread::spawn(move || read_lines(flood, &events));
        for served in 1..=20_000 {
            assert!(matches!(heard.recv(), Ok(Event::Line(_))));
            let read = sent.load(Ordering::SeqCst);
            // One waits, one is at the queue's door, and one may have been taken since it was counted.
            let most = served + REQUESTS_WAITING_MAX + 2;
            assert!(read <= most, "{read} read, {served} served");
        }
        drop(heard);
        reader.join().expect("it ends with its listener");
    }
}
