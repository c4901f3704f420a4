//! A mesh of the hosts that a launcher has started this program on: rank 0 is the root, unless `mesh -- LAUNCHER` is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::launch::{self, Launched, Rendezvous};
use linerate_model::mesh::MeshHost;
use linerate_model::peer_address::PeerAddress;
use linerate_runtime::cli::MeshArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::host_source::host_from;
use linerate_runtime::endpoint::launch::{
    Gate, Gathered, Keep, MeshFolder, forget_line, pairing_line, this_process, work,
};
use linerate_runtime::endpoint::peer::end_within;
use rustix::process::{Pid, Signal, kill_process};

use super::members::{Candidate, Reach};

/// How long the ranks may take to end their sessions when the mesh is over.
const SESSIONS_END: Duration = Duration::from_secs(20);
/// How long a launcher may take to end when its processes have ended.
const LAUNCHER_ENDS: Duration = Duration::from_secs(10);

/// Takes part in a mesh, as the root or as another rank.
pub(super) fn run(args: &MeshArgs, place: (&Path, &Say), interrupt: &Interrupt) -> Outcome<u8> {
    let (state, say) = place;
    if let (Some(size), false) = (args.size, args.launcher.is_empty()) {
        return with_launcher(args, size, place, interrupt);
    }
    let process = this_process()?.ok_or_else(|| {
        Stop::new(Code::BadInput, "a mesh needs at least 2 hosts, and there are none").hint(
            "name them, give a file with `--hosts FILE`, or start `linerate mesh` on each host by srun or mpirun",
        )
    })?;
    let folder = MeshFolder::make(state)?;
    let limit = Duration::from(args.join_timeout);
    let gives_up = |time| interrupt.comes_within(time);
    if !is_root(&process) {
        let line = pairing_line(&process.rendezvous, None, limit, &gives_up)?;
        let keep = (!args.store.no_store).then_some(Keep {
            state,
            limit: args.store.store_limit,
        });
        work(folder.path(), &line, keep, interrupt)?;
        return Ok(Code::Done.number());
    }
    let others = process.size - 1;
    let gate = Gate::open(folder.path(), others, limit)?;
    pairing_line(&process.rendezvous, Some(gate.pairing()), limit, &gives_up)?;
    say.note(&format!(
        "rank 0 of {}, by {}: waiting for the others for at most {} s",
        process.size,
        process.launcher,
        limit.as_secs()
    ));
    let gathered = gate.gather(others as usize, limit, interrupt, &mut || None);
    forget_line(&process.rendezvous);
    let mut candidates = candidates(gathered?, others as usize, limit);
    let own = host_from(None)?;
    candidates.insert(
        0,
        Candidate {
            host: MeshHost::named(
                own.identity
                    .hostname
                    .value()
                    .map_or("root", |name| name.as_str()),
            ),
            reach: Reach::Start(PeerAddress::Local),
        },
    );
    name_each(&mut candidates);
    let result = super::conduct(args, candidates, place, interrupt);
    gate.wait_for_ends(SESSIONS_END, interrupt);
    result
}

/// Rank 0 waits for the others, unless all of them join a root that was there before.
fn is_root(process: &Launched) -> bool {
    process.rank == Some(0) && !matches!(process.rendezvous, Rendezvous::Line(_))
}

/// Starts a launcher, and waits for what it starts.
fn with_launcher(
    args: &MeshArgs,
    size: u32,
    (state, say): (&Path, &Say),
    interrupt: &Interrupt,
) -> Outcome<u8> {
    let folder = MeshFolder::make(state)?;
    let limit = Duration::from(args.join_timeout);
    let gate = Gate::open(folder.path(), size, limit)?;
    let [program, words @ ..] = &args.launcher[..] else {
        return Err(Stop::new(Code::Usage, "no launcher is given"));
    };
    let mut command = Command::new(program);
    // Standard output is the result's.
    command
        .args(words)
        .env(launch::ROOT, gate.pairing().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    linerate_testbed::tie_to_parent(&mut command);
    let mut launcher = command.spawn().map_err(|error| {
        Stop::new(
            Code::NotSupported,
            format!("cannot start the launcher `{program}`"),
        )
        .because(error)
    })?;
    say.note(&format!(
        "waiting for {size} ranks for at most {} s",
        limit.as_secs()
    ));
    let mut has_ended = || {
        let status = launcher.try_wait().ok()??;
        let why =
            format!("the launcher `{program}` ended before all {size} ranks had joined: {status}");
        let stop = Stop::new(Code::PeerUnreachable, why);
        Some(stop.hint("it must run until its processes end, and start `linerate mesh` on each host; its own messages are above"))
    };
    let gathered = gate.gather(size as usize, limit, interrupt, &mut has_ended);
    let result = gathered.and_then(|gathered| {
        let mut candidates = candidates(gathered, size as usize, limit);
        name_each(&mut candidates);
        super::conduct(args, candidates, (state, say), interrupt)
    });
    end(&mut launcher, result.is_err() || interrupt.asked());
    result
}

/// Ends the launcher: its processes end with their sessions, and then it does, too. SIGTERM lets one that does not clean up.
fn end(launcher: &mut Child, is_hurried: bool) {
    if !is_hurried && end_within(launcher, LAUNCHER_ENDS).is_some() {
        return;
    }
    if matches!(launcher.try_wait(), Ok(None)) {
        // It fails when the launcher ends meanwhile.
        let _ = kill_process(Pid::from_child(launcher), Signal::TERM);
    }
    if end_within(launcher, LAUNCHER_ENDS).is_none() {
        let _ = launcher.kill();
        let _ = launcher.wait();
    }
}

/// Who has joined, and a place for each one that has not.
fn candidates(gathered: Gathered, expected: usize, limit: Duration) -> Vec<Candidate> {
    let Gathered { arrived, refused } = gathered;
    let missing = expected.saturating_sub(arrived.len() + refused.len());
    let joined = arrived.into_iter().map(|one| {
        let hostname = one.facts.identity.hostname.value().map(String::as_str);
        Candidate {
            host: MeshHost::named(hostname.map_or_else(|| one.address.to_string(), str::to_owned)),
            reach: Reach::Opened(one.sessions, one.facts),
        }
    });
    let mut all: Vec<Candidate> = joined.collect();
    all.extend(refused.into_iter().map(|(address, cause)| Candidate {
        host: MeshHost::named(address.to_string()),
        reach: Reach::Missing(cause),
    }));
    all.extend((0..missing).map(|_| Candidate {
        host: MeshHost::named("(missing)"),
        reach: Reach::Missing(format!("it did not join within {} s", limit.as_secs())),
    }));
    all
}

/// Hosts of one name get a number.
fn name_each(candidates: &mut [Candidate]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for one in candidates.iter() {
        *counts.entry(one.host.name.clone()).or_default() += 1;
    }
    let mut given: BTreeMap<String, usize> = BTreeMap::new();
    for one in candidates {
        let name = &mut one.host.name;
        if counts.get(name).is_some_and(|count| *count > 1) {
            let number = given.entry(name.clone()).or_default();
            *number += 1;
            *name = format!("{name}#{number}");
        }
    }
}
