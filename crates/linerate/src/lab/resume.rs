//! `lab resume`: the same experiment between the same ends, from where its record stops.
//!
//! Commands that only the run names are not executed, neither those of peers nor that of a server: the run could be
//! anybody's.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use linerate_analysis::experiment::experiment_of;
use linerate_analysis::experiment::judge;
use linerate_analysis::experiment::resolve::Resolver;
use linerate_analysis::record::{Header, Record, StoredRun};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Experiment, ServerAt};
use linerate_model::peer_address::PeerAddress;
use linerate_model::shell::{quoted, quoted_path};
use linerate_runtime::cli::{LabStep, PeerArgs, ReachArgs};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::recover::recover_first;
use linerate_store::earlier::missing;
use linerate_store::{self as store, Log, Run};

use super::paths::LabPaths;
use super::session::{RunOptions, Session};
use super::{PAGE, between_own_hosts, device, levels, on_stage, others_of, resolver, server, show};

/// `lab resume`: the same experiment between the same ends, from where its record stops.
pub(super) fn resume(
    folder: &FilePath,
    named: (&[PeerAddress], Option<&str>),
    step: Option<LabStep>,
    state: &FilePath,
    say: &Say,
) -> Outcome<()> {
    let stored = store::read_own(folder)?;
    let (experiment, include_way_in) = experiment_of(&stored)?;
    if !experiment.is_local() {
        check_named(folder, &stored.header, experiment, named)?;
    }
    if step == Some(LabStep::Stage) {
        return on_stage(experiment, None, say);
    }
    if judge::is_whole(&stored.records) {
        say.note("the run is complete");
        return show(folder, None, say);
    }
    if has_own_hosts(&stored) && step.is_none() {
        return between_own_hosts(&Interrupt::listen()?, say);
    }
    let missing = missing(experiment, &stored.records)?;
    let mut run = Run::resume(folder)?;
    let header = &stored.header;
    let interrupt = Interrupt::listen()?;
    recover_first(state, say)?;
    if experiment.is_local() {
        let rest = (&mut run, missing);
        return resume_on_device(&stored, rest, include_way_in, &interrupt, state, say);
    }
    let wrong = |error: String| Stop::new(Code::BadInput, format!("the run's peer: {error}"));
    let reach = ReachArgs {
        address: header.address.parse().ok(),
        ..ReachArgs::default()
    };
    let peer = PeerArgs::reached(&header.peer.parse().map_err(wrong)?, reach);
    let others = others_of(experiment, false)?;
    let beside = experiment.beside.len();
    let mut paths = LabPaths::open(&peer, &others, beside, state, &interrupt, say)?;
    if include_way_in {
        paths.include_way_in();
    }
    if let Some(server) = &experiment.server {
        // Its address must still be that of an end.
        let server = server::placed(server.clone(), paths.home())?;
        paths.load(Some(&server));
    }
    let path = paths.home();
    if (&path.local_nic, &path.remote_nic) != (&header.local_nic, &header.remote_nic) {
        let why = format!(
            "the run used {} to {}, but the path is now from {} to {}",
            header.local_nic, header.remote_nic, path.local_nic, path.remote_nic
        );
        return Err(Stop::new(Code::NotSupported, why).hint("start a new run"));
    }
    let resolver = resolver(experiment.clone(), &paths);
    go_on((&mut paths, &resolver), (&mut run, missing), &stored, say)?;
    paths.leave()?;
    show(folder, Some(&folder.join(PAGE)), say)
}

/// The same on block devices of this host.
fn resume_on_device(
    stored: &StoredRun,
    (run, missing): (&mut Run, Vec<Record>),
    includes_way_in: bool,
    interrupt: &Interrupt,
    state: &FilePath,
    say: &Say,
) -> Outcome<()> {
    let (experiment, _) = experiment_of(stored)?;
    let (mut ends, resolver) = device::open(experiment.clone(), includes_way_in, interrupt, state)?;
    go_on((&mut ends, &resolver), (run, missing), stored, say)?;
    show(&stored.folder, Some(&stored.folder.join(PAGE)), say)
}

/// Runs the remaining trials.
fn go_on(
    (ends, resolver): (&mut dyn Ends, &Resolver),
    (run, missing): (&mut Run, Vec<Record>),
    stored: &StoredRun,
    say: &Say,
) -> Outcome<()> {
    let (folder, header) = (&stored.folder, &stored.header);
    let asked = RunOptions {
        seed: header.seed,
        anyway: true,
    };
    let done = judge::trials_made(&stored.records);
    say.note(&format!(
        "{} continues after {done} trials",
        folder.display()
    ));
    run.add(Record::Resumed {
        unix_s: now_unix_s(),
    })?;
    missing
        .into_iter()
        .try_for_each(|earlier| run.add(earlier))?;
    Session::new(ends, run, resolver, asked, say)
        .run()
        .map_err(|stop| resumable(stop, folder, header, &resolver.experiment))
}

/// Whether an experiment makes its own two hosts.
fn has_own_hosts(stored: &StoredRun) -> bool {
    let is_own = |record: &Record| {
        matches!(
            record,
            Record::Lab {
                own_hosts: true,
                ..
            }
        )
    };
    stored.records.iter().any(is_own)
}

/// The stop of a run that can be resumed.
pub(super) fn resumable(
    stop: Stop,
    folder: &FilePath,
    header: &Header,
    experiment: &Experiment,
) -> Stop {
    let goes_on = matches!(
        stop.code,
        Code::Interrupted | Code::PeerUnreachable | Code::TimeOut | Code::Resource
    );
    if !goes_on || stop.hint.is_some() || is_elsewhere(experiment) {
        return stop;
    }
    let command = resume_command(folder, header, experiment);
    stop.hint(format!("continue with `{command}`"))
}

/// Whether the trials load a server on a host that linerate does not run on.
fn is_elsewhere(experiment: &Experiment) -> bool {
    let server = experiment.server.as_ref();
    server.is_some_and(|server| server.at == ServerAt::Elsewhere)
}

/// The command that resumes a run, with the peers and the server's command, which must be named.
pub(super) fn resume_command(
    folder: &FilePath,
    header: &Header,
    experiment: &Experiment,
) -> String {
    let commands = peers_of(header, experiment).filter(|peer| peer.starts_with("exec:"));
    let words = std::iter::once(quoted_path(folder)).chain(commands.map(|peer| quoted(&peer)));
    let mut words: Vec<String> = words.collect();
    let server = experiment.server.as_ref();
    if let Some(command) = server.and_then(|server| server.command.as_ref()) {
        words.push(format!("--server {}", quoted(command)));
    }
    format!("linerate lab resume {}", words.join(" "))
}

/// The peer of a run and the other hosts that are levels, each once, as the run names them.
fn peers_of(header: &Header, experiment: &Experiment) -> impl Iterator<Item = String> {
    let others = levels(experiment).filter_map(|level| level.peer.at);
    let all: BTreeSet<String> = others.chain([header.peer.clone()]).collect();
    all.into_iter()
}

/// Refuses to start a command that only the run names, and a peer that is not one of the run's.
fn check_named(
    folder: &FilePath,
    header: &Header,
    experiment: &Experiment,
    (named, server): (&[PeerAddress], Option<&str>),
) -> Outcome<()> {
    if is_elsewhere(experiment) {
        let why = "cannot resume a run that loads a server on another host";
        return Err(Stop::new(Code::NotSupported, why).hint("start a new run"));
    }
    let of_run = experiment.server.as_ref();
    let of_run = of_run.and_then(|server| server.command.as_deref());
    if of_run != server {
        let command = resume_command(folder, header, experiment);
        let (why, hint) = match (of_run, server) {
            (Some(_), None) => (
                "commands from stored runs are not executed",
                format!("if you trust it: `{command}`"),
            ),
            _ => ("the run has another", format!("resume with `{command}`")),
        };
        let text = of_run.or(server).unwrap_or_default();
        let why = format!("cannot start the server `{text}`: {why}");
        return Err(Stop::new(Code::Usage, why).hint(hint));
    }
    let address = |text: String| {
        let parsed = text.parse::<PeerAddress>();
        parsed
            .map_err(|error| Stop::new(Code::BadInput, format!("the run's peer `{text}`: {error}")))
    };
    let of_run = peers_of(header, experiment).map(address);
    let of_run: Vec<PeerAddress> = of_run.collect::<Outcome<_>>()?;
    if let Some(other) = named.iter().find(|peer| !of_run.contains(peer)) {
        let names: Vec<String> = of_run.iter().map(ToString::to_string).collect();
        let why = format!(
            "cannot resume with the peer {other}: the run's are {}",
            names.join(", ")
        );
        return Err(Stop::new(Code::Usage, why));
    }
    let is_unnamed =
        |peer: &&PeerAddress| matches!(peer, PeerAddress::Exec(_)) && !named.contains(peer);
    if let Some(unnamed) = of_run.iter().find(is_unnamed) {
        let why = format!("cannot start `{unnamed}`: commands from stored runs are not executed");
        let command = resume_command(folder, header, experiment);
        return Err(Stop::new(Code::Usage, why).hint(format!("if you trust it: `{command}`")));
    }
    Ok(())
}
