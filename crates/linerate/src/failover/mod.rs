//! `linerate failover`: how long traffic is interrupted when a link, a switch or a router fails.
//!
//! Each trial sends probes in both directions for a fixed time. In it, `event` runs the commands of the failure and of the
//! return and stamps them with the clock of the probes; `judge` joins the records of both ends, `held_up` finds in their events what took the time; `document` and `text` show
//! all trials together, `require` compares them with bounds.

pub(crate) mod document;
mod event;
mod held_up;
mod judge;
mod require;
mod text;

use std::path::Path;
use std::time::Duration;

use document::{FailoverDocument, TrialResult};
use event::{Commands, Conductor};
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Probe, TrialSpec, Udp, Workload};
use linerate_runtime::cli::{FailoverArgs, FailoverWorkload};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::trial::{PeerPath, open_path};
use linerate_runtime::endpoint::watch::Watch;

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
    let spec = spec(args);
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(&args.peer, state, &interrupt, say)?;
    let commands = Commands::new(args.cause.clone(), args.restore.clone(), args.time);
    let repeats = repeats(args);
    announce(args, &path, &spec, repeats, say);
    let mut trials = Vec::new();
    let mut ended = Ok(());
    while args.until_event || trials.len() < repeats as usize {
        match trial(&mut path, &spec, &commands, &interrupt) {
            Ok(trial) => trials.push(trial),
            Err(stop) => {
                ended = Err(stop);
                break;
            }
        }
        if args.until_event && trials.last().is_some_and(TrialResult::is_interrupted) {
            break;
        }
        if repeats > 1 {
            say.note(&format!("trial {} of {repeats} done", trials.len()));
        }
    }
    if trials.is_empty() {
        return ended;
    }
    let document = FailoverDocument::new(args, &path, &spec, trials);
    match say.format {
        Format::Json => say.json(&document)?,
        _ => say.lines(&text::text(&document, args.verbose))?,
    }
    ended?;
    path.peer.leave_after_result(say)?;
    require::outcome(&document.requirements)
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
        (Some(_), Some(_)) => "; Ctrl-C stops and runs --restore",
        _ => "; Ctrl-C stops without a result",
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
) -> Outcome<TrialResult> {
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
    Ok(judge::judge(&sample, spec, &events))
}

/// A trial whose remote end was not heard again says what is missing.
fn without_path(stop: Stop, events: &event::Events) -> Stop {
    let is_lost = matches!(stop.code, Code::PeerUnreachable | Code::TimeOut);
    if events.all().is_empty() || !is_lost {
        return stop;
    }
    stop.hint(
        "the record of the remote end is missing: reach the peer over a path that does not fail with the one that is \
         measured",
    )
}
