//! `bench/peers`: compares linerate with iperf3, iperf2, neper, qperf, sockperf, Open MPI, wrk and nginx: same two
//! network namespaces, same work, in interleaved rounds, one table of ratios. README.md in `bench/` explains
//! the output.
//!
//! Two processes: the one that the user started, and tied to it the stage that holds the namespaces. A Ctrl-C
//! ends both; the namespaces end with them.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cases;
mod contest;
mod figures;
mod mpi;
mod own;

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use linerate_bench_shared::ratios::{self, Row, Trial};
use linerate_bench_shared::running::{is_on_path, kernel};
use linerate_bench_shared::{StageArgs, TableArgs, Trouble, load, shuffled};
use linerate_testbed::Stage;

use crate::cases::{Case, Contestant};
use crate::contest::HostPair;

/// The fewest rounds that have an interval.
const ROUNDS_MIN: usize = 3;

/// Compares linerate with its peers: same namespaces, same work, one table of ratios
#[derive(Debug, Parser)]
#[command(name = "bench/peers")]
struct Args {
    /// Rounds; each runs every case once with every program. Fewer than 9 are inconclusive
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(3..=1000))]
    rounds: u16,
    /// Quick run of 3 rounds; not a valid result
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Duration of each trial, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    time: u32,
    /// Compare linerate with itself instead: buffer sizes with the default, the live line with `--quiet`
    #[arg(long)]
    own: bool,
    /// Over one host's loopback instead of two hosts joined by veth
    #[arg(long)]
    loopback: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    stage: StageArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args).map(|()| true))
}

/// The rounds of one case: of each contestant, its trial in each round that it came through.
struct Rounds {
    case: Case,
    trials: Vec<Vec<Option<Trial>>>,
}

/// The stage: makes the hosts and runs every round.
fn conduct(args: &Args) -> Result<(), Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let hosts = HostPair::set(&stage, args.loopback)?;
    let mut place = hosts.place(linerate, args.time);
    let rounds = if args.quick {
        ROUNDS_MIN
    } else {
        args.rounds.into()
    };
    let seed = args.stage.seed.unwrap_or_default();
    let cases = if args.own {
        own::all(&place)
    } else {
        place.mpi = mpi::prepare(&place, args.loopback);
        fs::write(
            place.state.join("nginx.conf"),
            cases::nginx_configuration(&place),
        )
        .map_err(|error| Trouble(format!("write nginx's configuration: {error}")))?;
        cases::all(&place)
    };
    let mut all: Vec<Rounds> = cases
        .into_iter()
        .filter(|case| case.name.contains(&args.only))
        .filter_map(present)
        .map(|case| Rounds {
            trials: vec![Vec::new(); case.contestants.len()],
            case,
        })
        .collect();
    let trials: usize = all.iter().map(|one| one.case.contestants.len()).sum();
    eprintln!(
        "{} cases, {rounds} rounds, about {} minutes; seed {seed}; namespaces end with this command; \
         Ctrl-C stops it",
        all.len(),
        (trials * rounds * (args.time as usize + 1)).div_ceil(60)
    );
    run_rounds(&hosts, &mut all, rounds, seed, args.time);
    let rows: Vec<Row> = all.iter().flat_map(|one| rows_of(one, seed)).collect();
    let text = format!(
        "{}\nLinux {}, {}, {} rounds of {} s, seed {seed}, over {}, load average {} at the end.\n",
        ratios::table(&rows),
        kernel(),
        hosts.cpus(),
        rounds,
        args.time,
        if args.loopback {
            "the loopback"
        } else {
            "veth"
        },
        load(),
    );
    args.table.show(&text, &rows)?;
    Ok(())
}

/// Runs every round: every case in random order, and in each every program in random order.
fn run_rounds(hosts: &HostPair, all: &mut [Rounds], rounds: usize, seed: u64, seconds: u32) {
    for round in 0..rounds {
        for index in shuffled(all.len(), seed, round as u64) {
            let Rounds { case, trials } = &mut all[index];
            let order = shuffled(
                case.contestants.len(),
                seed ^ 0x00C0_FFEE,
                (round * 1_000 + index) as u64,
            );
            for contestant in order {
                let outcome = hosts.trial(&case.contestants[contestant], seconds);
                if let Err(problem) = &outcome {
                    eprintln!("{}: {problem}", case.name);
                }
                trials[contestant].push(outcome.ok());
            }
        }
        eprintln!(
            "round {} of {rounds} done, load average {}",
            round + 1,
            load()
        );
    }
}

/// The case with the peers that are here; those that are not are named.
fn present(mut case: Case) -> Option<Case> {
    let missing = |one: &Contestant| {
        let mut needed = one.programs().map(str::to_owned);
        needed.find(|program| !is_on_path(program))
    };
    case.contestants.retain(|one| match missing(one) {
        Some(program) => {
            eprintln!(
                "SKIP: {}: {} ({program} is not installed: {})",
                case.name, one.name, one.from
            );
            false
        }
        None => true,
    });
    (case.contestants.len() > 1).then_some(case)
}

fn rows_of(rounds: &Rounds, seed: u64) -> Vec<Row> {
    let case = &rounds.case;
    let (ours, peers) = rounds.trials.split_first().unwrap_or((&EMPTY, &[]));
    let about = (case.name.as_str(), case.unit, case.better);
    peers
        .iter()
        .zip(&case.contestants[1..])
        .filter_map(|(theirs, contestant)| {
            let pairs: Vec<(Trial, Trial)> = ours
                .iter()
                .zip(theirs)
                .filter_map(|(ours, theirs)| Some(((*ours)?, (*theirs)?)))
                .collect();
            ratios::row(about, contestant.name, &pairs, seed)
        })
        .collect()
}

static EMPTY: Vec<Option<Trial>> = Vec::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
