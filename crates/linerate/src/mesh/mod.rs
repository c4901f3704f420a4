//! `linerate mesh`: which of N hosts is slow, and how it differs from the others.
//!
//! This process is the root: it starts an agent on each host (`members`), runs the rounds of the pattern between them
//! (`rounds`), measures suspects again with new partners, and has `linerate_analysis::mesh` judge the observations. It moves no
//! data itself. `hosts` reads who takes part, `launched` joins the processes of a launcher, `outcome` turns samples into observations, `kept` stores
//! them here, `for_ranks` at the ranks, `judged` computes the result from what is stored, also of a stored run, or of several that ranks
//! have kept (`stored`).

pub(crate) mod compare;
mod for_ranks;
mod hosts;
mod judged;
mod kept;
mod launched;
mod members;
mod outcome;
mod rounds;
pub(crate) mod stored;

use std::path::Path;
use std::time::{Duration, Instant};

use linerate_analysis::record::{Header, MeshAsked, SCHEMA};
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::mesh::{Pattern, Schedule, ScheduleOptions, Shuffle, schedule};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Pingpong, Rdma, Rr, Stream, TrialSpec, Verb, Verbs, Waiting, Workload,
};
use linerate_runtime::cli::{MeshArgs, MeshWorkload};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::remote_pairs::RoundLimits;
use linerate_stats::{Random, Seed};

use self::judged::Judged;
use self::kept::Kept;
use self::members::{Candidate, Members, Reach};
use self::rounds::{Ended, Rounds};

/// What a round takes besides its trial: connecting, and the records of both ends.
const BETWEEN_ROUNDS: Nanoseconds = Nanoseconds::from_millis(300);

/// The size of a message, over TCP there and back or by RDMA.
const MESSAGE: Bytes = Bytes::kib(64);

/// Carries out `mesh`.
pub(crate) fn run(args: &MeshArgs, state: &Path, say: &Say) -> Outcome<u8> {
    let interrupt = Interrupt::listen()?;
    if args.hosts.is_none() && args.peers.is_empty() {
        return launched::run(args, (state, say), &interrupt);
    }
    let listed = hosts::listed(args)?;
    let candidates = listed.into_iter().map(|one| Candidate {
        host: one.host,
        reach: Reach::Start(one.peer),
    });
    conduct(args, candidates.collect(), (state, say), &interrupt)
}

/// Measures these hosts.
fn conduct(
    args: &MeshArgs,
    candidates: Vec<Candidate>,
    (state, say): (&Path, &Say),
    interrupt: &Interrupt,
) -> Outcome<u8> {
    let mesh_hosts: Vec<_> = candidates.iter().map(|one| one.host.clone()).collect();
    let peers = candidates.iter().map(peer_in_words).collect();
    let pattern = hosts::pattern(args, &mesh_hosts)?;
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let mut random = Random::new(Seed(seed));
    let options = ScheduleOptions {
        steps: hosts::steps(args),
        repeats: args.repeats,
    };
    let rounds = schedule(&pattern, &mesh_hosts, &options, &mut |all| {
        random.shuffle(all);
    })
    .map_err(|error| Stop::new(Code::BadInput, error.to_string()))?;
    let asked = MeshAsked {
        hosts: mesh_hosts,
        peers,
        pattern,
        steps: options.steps.clone(),
        repeats: args.repeats,
        spec: spec(args)?,
        require: args.require.iter().map(ToString::to_string).collect(),
    };
    announce(args, &asked, &rounds, seed, say);
    let began = Instant::now();
    let header = header(&asked, seed);
    let mut kept = Kept::new(&args.store, (state, say), header, asked.clone())?;
    let mut members = Members::join(candidates, args, state, interrupt)?;
    members.refuse_duplicates()?;
    kept.joined(&mut members);
    let mut conduct = Rounds {
        members: &mut members,
        asked: &asked,
        kept: &mut kept,
        limits: RoundLimits {
            prepare: args.round_timeout.into(),
            grace: args.round_timeout.into(),
        },
        deadline: args.deadline.map(|limit| began + Duration::from(limit)),
        interrupt,
        say,
        done: 0,
        is_retest: false,
    };
    let mut ended = conduct.run(&rounds);
    if ended == Ended::Done && !args.no_retest {
        ended = retest(args, &options, &mut conduct, &mut |all| random.shuffle(all))?;
    }
    let judged = Judged::of(&asked, conduct.kept.evidence(), seed, ended.cause());
    judged.print(args.verbose, say)?;
    let published = judged.publish(args.metrics_file.as_deref(), say);
    let code = judged.code();
    let rounds = kept.evidence().rounds();
    let for_ranks = kept.end(judged.headline(), ended.cause());
    members.leave(for_ranks, interrupt.asked());
    published?;
    if let Some(cause) = ended.cause() {
        say.note(&format!(
            "{cause}: the result is that of {}",
            count(rounds, "round")
        ));
    }
    Ok(code.number())
}

/// How a host is reached, for the record.
fn peer_in_words(candidate: &Candidate) -> String {
    match &candidate.reach {
        Reach::Start(peer) => peer.to_string(),
        Reach::Opened(sessions, _) => {
            let first = sessions.first();
            first.map(|one| one.address.to_string()).unwrap_or_default()
        }
        Reach::Missing(_) => String::new(),
    }
}

/// Measures suspects again, with new partners, before they are named.
fn retest(
    args: &MeshArgs,
    options: &ScheduleOptions,
    conduct: &mut Rounds<'_, '_>,
    shuffle: Shuffle<'_>,
) -> Outcome<Ended> {
    // Each of an incast's flows has its own role.
    if matches!(conduct.asked.pattern, Pattern::Incast(_)) {
        return Ok(Ended::Done);
    }
    let Some(suspects) = conduct.kept.evidence().suspects(conduct.asked) else {
        return Ok(Ended::Done);
    };
    let pattern = Pattern::Suspects(suspects);
    let rounds = schedule(&pattern, &conduct.asked.hosts, options, shuffle)
        .map_err(|error| Stop::new(Code::Bug, "cannot schedule a retest").because(error))?;
    conduct.say.note(&format!(
        "measuring suspects again with other partners: {}, about {}",
        count(rounds.len(), "round"),
        seconds_in_words(rounds.duration(args.time, BETWEEN_ROUNDS))
    ));
    conduct.is_retest = true;
    Ok(conduct.run(&rounds))
}

/// What each pair runs.
fn spec(args: &MeshArgs) -> Outcome<TrialSpec> {
    let rdma = |verb| {
        Workload::Rdma(Rdma {
            verb,
            latency: false,
            sizes: vec![MESSAGE],
            repetitions: None,
            data_check: false,
        })
    };
    let workload = match args.workload {
        MeshWorkload::Stream => Workload::Stream(Stream::default()),
        MeshWorkload::Rr => Workload::Rr(Rr {
            request_bytes: Bytes::new(1),
            response_bytes: Bytes::new(1),
            depth: 1,
            connect_each: false,
            rate_per_s: None,
        }),
        // One size, until the time is over: the maximum takes hours.
        MeshWorkload::Pingpong => Workload::Pingpong(Pingpong {
            sizes: vec![MESSAGE],
            repetitions: 10_000_000,
            volume_bytes: Bytes::new(u64::MAX),
            data_check: false,
        }),
        MeshWorkload::RdmaWrite => rdma(Verb::Write),
        MeshWorkload::RdmaRead => rdma(Verb::Read),
        MeshWorkload::RdmaSend => rdma(Verb::Send),
    };
    let is_rdma = matches!(workload, Workload::Rdma(_));
    let spec = TrialSpec {
        workload,
        flows: args.flows,
        duration_ns: args.time,
        // Twenty readings show where the rate settles.
        interval_ns: Nanoseconds::new((args.time.as_u64() / 20).max(1_000_000)).min(args.time),
        verbs: is_rdma.then(Verbs::default),
        waiting: if is_rdma {
            Waiting::Spin
        } else {
            Waiting::default()
        },
        ..TrialSpec::default()
    };
    spec.check()
        .map_err(|error| Stop::new(Code::Usage, error.to_string()))?;
    Ok(spec)
}

fn header(asked: &MeshAsked, seed: u64) -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s: now_unix_s(),
        command: command_line(),
        seed,
        trials: asked.repeats,
        peer: count(asked.hosts.len(), "host"),
        local_nic: NicName::unheard(),
        remote_nic: NicName::unheard(),
        address: String::new(),
        copy_bit_per_s: None,
    }
}

/// Prints what will happen, and how long it takes.
fn announce(args: &MeshArgs, asked: &MeshAsked, rounds: &Schedule, seed: u64, say: &Say) {
    let time = rounds.duration(args.time, BETWEEN_ROUNDS);
    say.note(&format!(
        "mesh of {}: {} ({}), {} of {}, about {}; seed {seed}; Ctrl-C ends it with what was measured",
        count(asked.hosts.len(), "host"),
        asked.pattern,
        asked.spec.workload.name(),
        count(rounds.len(), "round"),
        seconds_in_words(args.time),
        seconds_in_words(time),
    ));
}
