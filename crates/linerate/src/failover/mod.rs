//! `linerate failover`: how long traffic is interrupted when a link, a switch or a router fails.
//!
//! Each trial sends probes in both directions for a fixed time. In it, `event` runs the commands of the failure and of the
//! return and stamps them with the clock of the probes. Each trial is stored (`crate::kept`), and everything that is printed
//! is computed from the trials, also of a stored run (`stored`): `judge` joins the records of both ends, `held_up` finds in
//! their events what took the time, `latency` how long packets took before and after; `document` and `text` show all trials
//! together, `timeline` and `picture` one of them over time; `require` compares them with bounds, `compare` with those of
//! another run.

pub(crate) mod compare;
pub(crate) mod document;
mod event;
mod held_up;
mod judge;
mod latency;
mod picture;
mod require;
pub(crate) mod stored;
mod text;
mod timeline;

use std::path::Path;
use std::time::Duration;

use document::{FailoverDocument, TrialResult};
use event::{Commands, Conductor, Events};
use linerate_analysis::failover::{FailoverPlan, FailoverTrial, RanCommand};
use linerate_analysis::record::{Header, Record, RunKind, SCHEMA};
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Probe, TrialSpec, Udp, Workload};
use linerate_runtime::cli::{FailoverArgs, FailoverWorkload};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::{fresh_seed, fresh_token};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::trial::{PeerPath, open_path};
use linerate_runtime::endpoint::watch::Watch;

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
/// How often the running trial reports that it runs.
const REPORTS: Duration = Duration::from_millis(100);
/// Points of the timeline of a flow, and of all flows of both directions.
const POINTS: u64 = 1_000;
const POINTS_IN_ALL: u64 = 500_000;
/// How many repetitions a command of a failure has by default.
const REPEATS: u32 = 10;

/// Carries out `failover`.
pub(crate) fn run(args: &FailoverArgs, state: &Path, say: &Say) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let began_unix_s = now_unix_s();
    let mut path = open_path(&args.peer, state, &interrupt, say)?;
    let plan = plan(args);
    let header = header(args, &path, began_unix_s)?;
    let first = stored::first(&path, &plan);
    let run = (RunKind::Failover, header.clone());
    let mut kept = Kept::new(&args.store, (state, say), run, first)?;
    announce(args, &path, &plan.spec, repeats(args), say);
    let early = say.clone();
    interrupt.keep_what_was_measured(move || early.note("ending early; Ctrl-C again aborts"));
    let mut trials = Vec::new();
    let ended = trials_of(
        args,
        &plan,
        (&mut path, &interrupt),
        &mut |trial, result| {
            kept.add(|| Record::FailoverTrial(Box::new(trial)));
            trials.push(result);
            if repeats(args) > 1 {
                say.note(&format!("trial {} of {} done", trials.len(), repeats(args)));
            }
        },
    );
    // The second Ctrl-C: no result.
    interrupt.check()?;
    let is_early = interrupt.is_ending_early();
    let stopped = match ended {
        _ if is_early => Some(Stop::interrupted()),
        ended => ended.err(),
    };
    if trials.is_empty() {
        return stopped.map_or(Ok(()), Err);
    }
    let document = FailoverDocument::new(&header, &plan, trials, stopped.is_none());
    match say.format {
        Format::Json => say.json(&document)?,
        _ => say.lines(&text::text(&document, args.verbose))?,
    }
    let result = Record::FailoverResult(text::headline(&document));
    kept.end(vec![result], stopped.as_ref());
    if is_early {
        let trials = count(document.trials.len(), "trial");
        // There is a result: no error.
        say.note(&format!("interrupted: the result is that of {trials}"));
        return Err(Stop::interrupted().already_told());
    }
    stopped.map_or(Ok(()), Err)?;
    path.peer.leave_after_result(say)?;
    require::outcome(&document.requirements)
}

/// Makes trial after trial until there are enough, one shows what was waited for, or it is to end early.
fn trials_of(
    args: &FailoverArgs,
    plan: &FailoverPlan,
    (path, interrupt): (&mut PeerPath, &Interrupt),
    done: &mut dyn FnMut(FailoverTrial, TrialResult),
) -> Outcome<()> {
    let commands = Commands::new(args.cause.clone(), args.restore.clone(), args.time);
    let mut made = 0;
    while plan.repeats.is_none_or(|repeats| made < repeats) {
        let trial = trial(path, &plan.spec, &commands, interrupt)?;
        // One that was cut short is no repetition of the others, but the only one is all that there is.
        if trial.is_cut_short() && made > 0 {
            return Ok(());
        }
        let result = judge::judge(&trial);
        let is_enough = plan.repeats.is_none() && result.is_interrupted();
        done(trial, result);
        made += 1;
        if is_enough || interrupt.is_ending_early() {
            return Ok(());
        }
    }
    Ok(())
}

/// What was asked, as it is stored.
fn plan(args: &FailoverArgs) -> FailoverPlan {
    FailoverPlan {
        spec: spec(args),
        repeats: (!args.until_event).then(|| repeats(args)),
        cause: args.cause.clone(),
        restore: args.restore.clone(),
        require: args.require.iter().map(|one| one.text.clone()).collect(),
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

fn repeats(args: &FailoverArgs) -> u32 {
    let default = if args.cause.is_some() { REPEATS } else { 1 };
    args.repeats.unwrap_or(default)
}

/// What each trial sends.
fn spec(args: &FailoverArgs) -> TrialSpec {
    let in_all = (ALL_PER_S / (2 * args.flows.max(1))).max(1);
    let per_s = args.rate.unwrap_or(FLOW_PER_S.min(in_all));
    let has = |workload| args.workload.contains(&workload);
    let probe = Probe {
        late_ns: args.late,
        message_flows: if has(FailoverWorkload::Tcp) {
            MESSAGE_FLOWS.min(args.flows)
        } else {
            0
        },
        message_ns: MESSAGE_EVERY,
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

/// Says what will happen, and how long it takes.
fn announce(args: &FailoverArgs, path: &PeerPath, spec: &TrialSpec, repeats: u32, say: &Say) {
    let total = Nanoseconds::new(args.time.as_u64().saturating_mul(repeats.into()));
    let step = step_of(spec);
    let length = match repeats {
        _ if args.until_event => format!(
            "in trials of {} until one shows an interruption (between two trials nothing is sent)",
            seconds_in_words(args.time)
        ),
        1 => format!("for {}", seconds_in_words(args.time)),
        _ => format!(
            "{} of {}, {} in all",
            count(repeats as usize, "trial"),
            seconds_in_words(args.time),
            seconds_in_words(total)
        ),
    };
    let restore = match (&args.cause, &args.restore) {
        (Some(_), None) => "; without --restore the failure is not ended",
        (Some(_), Some(_)) => "; Ctrl-C runs --restore and ends early",
        _ => "; Ctrl-C ends early",
    };
    say.note(&format!(
        "probing {} to {} ({}) in both directions, {} with a packet every {step}, {length}{restore}",
        path.local_nic,
        path.address,
        args.peer.peer,
        count(spec.flows as usize, "flow"),
    ));
}

/// The time between two packets of a flow.
fn step_of(spec: &TrialSpec) -> Nanoseconds {
    let step = match &spec.workload {
        Workload::Udp(udp) => udp.step(),
        _ => None,
    };
    step.unwrap_or_default()
}

/// One trial with its failure and its return.
fn trial(
    path: &mut PeerPath,
    spec: &TrialSpec,
    commands: &Commands,
    interrupt: &Interrupt,
) -> Outcome<FailoverTrial> {
    let conductor = Conductor::start(commands, interrupt)?;
    let began = conductor.began();
    path.watch = Some(Watch::new(REPORTS, move |_, _| began.signal()));
    let sample = path.run(spec, fresh_token()?);
    path.watch = None;
    let events = conductor.end();
    if let Some(stop) = events.failure() {
        return Err(stop);
    }
    let sample = sample.map_err(|stop| without_path(stop, &events))?;
    Ok(FailoverTrial::new(sample, ran(&events)))
}

/// The commands that were run, as they are stored.
fn ran(events: &Events) -> Vec<RanCommand> {
    let events = events.all().iter();
    let commands = events.map(|event| RanCommand {
        trigger: event.trigger,
        command: event.command.clone(),
        start_ns: event.start_ns,
        end_ns: event.end_ns,
    });
    commands.collect()
}

/// A trial whose remote end was not heard again says what is missing.
fn without_path(stop: Stop, events: &Events) -> Stop {
    let is_lost = matches!(stop.code, Code::PeerUnreachable | Code::TimeOut);
    if events.all().is_empty() || !is_lost {
        return stop;
    }
    stop.hint(
        "the record of the remote end is missing: reach the peer over a path that does not fail with the one that is \
         measured",
    )
}
