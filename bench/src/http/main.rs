//! `bench/http`: linerate's client beside wrk under the same nginx, and its server beside nginx under the
//! same wrk, in interleaved pairs over the loopback and over a veth pair. README.md beside it says how to
//! read the result.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod figures;
mod scene;
#[path = "../trial.rs"]
#[expect(dead_code, reason = "bench/stream uses more of it")]
mod trial;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use linerate_stats::{Random, Seed};
use linerate_testbed::{Stage, tie_to_parent};
use serde_json::json;

use crate::figures::{Case, PAIRS_MIN, Part, Path, figures, table};
use crate::scene::{Scene, missing};
use crate::trial::BenchError;

/// linerate's HTTP client and server beside wrk and nginx: same hosts, same CPUs, one table of ratios
#[derive(Debug, Parser)]
#[command(name = "bench/http")]
struct Args {
    /// Pairs of each case; fewer than 9 do not decide who is as fast
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(3..=1000))]
    pairs: u16,
    /// 3 pairs of each case: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only cases that have this in their name, such as `client` or `server loopback`
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds of each trial
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    time: u32,
    /// Connections of every client
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// The body of every answer, bytes
    #[arg(long, default_value_t = 111)]
    body: u32,
    /// What the order is drawn from [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Print a JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// The program to measure: `serve ADDRESS THREADS BODY CPUS` and `load URL CONNECTIONS THREADS SECONDS -
    /// CPUS` [default: the example beside this program]
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
    /// Be the process that holds the namespaces
    #[arg(long, hide = true)]
    stage: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.stage {
        conduct(&args)
    } else {
        start(&args)
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: cannot {error}");
        ExitCode::FAILURE
    })
}

/// What the person started: runs itself again as the stage.
fn start(args: &Args) -> Result<ExitCode, BenchError> {
    if let Some((name, package)) = missing() {
        println!("SKIP: there is no `{name}` here: it is the Debian package `{package}`");
        return Ok(ExitCode::SUCCESS);
    }
    let own = std::env::current_exe().map_err(BenchError::io("find this program's own file"))?;
    let mut stage = Command::new(own);
    stage.args(std::env::args_os().skip(1)).arg("--stage");
    if args.seed.is_none() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        stage.args(["--seed", &now.as_secs().to_string()]);
    }
    tie_to_parent(&mut stage);
    let status = stage.status().map_err(BenchError::io("start the stage"))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The stage: makes the two hosts and runs every pair.
fn conduct(args: &Args) -> Result<ExitCode, BenchError> {
    // First of all, while this process has one thread.
    let stage = Stage::enter()?;
    let cpus = allowed_cpus()?;
    let mut cases = cases(args, &cpus)?;
    let pairs = if args.quick {
        PAIRS_MIN
    } else {
        args.pairs.into()
    };
    let seed = args.seed.unwrap_or_default();
    let linerate = linerate_file(args)?;
    eprintln!(
        "{} cases, {pairs} pairs each, about {} minutes; seed {seed}; load average {}",
        cases.len(),
        (cases.len() * pairs * 2 * (args.time as usize + 1)).div_ceil(60),
        load(),
    );
    let mut scenes = Vec::new();
    let mut random = Random::new(Seed(seed));
    for round in 1..=pairs {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        random.shuffle(&mut order);
        for place in order {
            let case = &mut cases[place];
            let threads = case.threads;
            if !scenes.iter().any(|(of, _)| *of == threads) {
                let servers = cpus_of_servers(&cpus, threads);
                scenes.push((
                    threads,
                    Scene::set(&stage, &linerate, threads, &servers, args.body)?,
                ));
            }
            let scene = scenes
                .iter()
                .find(|(of, _)| *of == threads)
                .map(|(_, scene)| scene);
            let Some(scene) = scene else { continue };
            let asked = scene::Asked {
                connections: args.connections,
                seconds: args.time,
                threads,
                cpus: cpus_of_clients(&cpus, threads),
            };
            let ours_first = random.below(2) == 0;
            let mut results = [0.0; 2];
            for ours in [ours_first, !ours_first] {
                results[usize::from(ours)] = match (case.part, ours) {
                    (Part::Client, true) => scene.load_by_linerate(case.path, &asked)?,
                    (Part::Client | Part::Server, false) => {
                        scene.load_by_wrk(case.path, false, &asked)?
                    }
                    (Part::Server, true) => scene.load_by_wrk(case.path, true, &asked)?,
                };
            }
            case.pairs.push((results[0], results[1]));
        }
        eprintln!("round {round} of {pairs} done, load average {}", load());
    }
    let found = figures(&cases, seed)?;
    if args.json {
        let document = json!({
            "schema": "linerate.bench-http/1", "seed": seed, "seconds": args.time,
            "connections": args.connections, "body_bytes": args.body,
            "figures": found, "record": cases,
        });
        println!("{document:#}");
    } else {
        print!("{}", table(&found));
    }
    Ok(ExitCode::SUCCESS)
}

/// Client and server, over the loopback and a veth pair, with one thread; with two where there are four CPUs.
fn cases(args: &Args, cpus: &[u32]) -> Result<Vec<Case>, BenchError> {
    let threads: &[u32] = if cpus.len() >= 4 { &[1, 2] } else { &[1] };
    let mut all = Vec::new();
    for &threads in threads {
        for part in [Part::Client, Part::Server] {
            for path in [Path::Loopback, Path::Veth] {
                all.push(Case {
                    part,
                    path,
                    threads,
                    pairs: Vec::new(),
                });
            }
        }
    }
    all.retain(|case| case.name().contains(&args.only));
    if all.is_empty() {
        let only = args.only.clone();
        return Err(BenchError::NoCase { only });
    }
    if threads.len() == 1 {
        eprintln!("SKIP: two threads at each end need four CPUs");
    }
    Ok(all)
}

/// The servers' CPUs come first, the clients' after them: on one CPU both share it.
fn cpus_of_servers(cpus: &[u32], threads: u32) -> Vec<u32> {
    cpus.iter().copied().take(threads as usize).collect()
}

fn cpus_of_clients(cpus: &[u32], threads: u32) -> Vec<u32> {
    let after: Vec<u32> = cpus
        .iter()
        .copied()
        .skip(threads as usize)
        .take(threads as usize)
        .collect();
    if after.is_empty() {
        cpus.to_vec()
    } else {
        after
    }
}

fn allowed_cpus() -> Result<Vec<u32>, BenchError> {
    let cpus = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| BenchError::io("ask for the allowed CPUs")(errno.into()))?;
    let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..most).filter(|cpu| cpus.is_set(*cpu as usize)).collect())
}

fn linerate_file(args: &Args) -> Result<PathBuf, BenchError> {
    let beside = || -> Result<PathBuf, BenchError> {
        let own =
            std::env::current_exe().map_err(BenchError::io("find this program's own file"))?;
        Ok(own.with_file_name("examples").join("http"))
    };
    let path = args.linerate.clone().map_or_else(beside, Ok)?;
    if path.is_file() {
        Ok(path)
    } else {
        Err(BenchError::NoLinerate { path })
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace()
        .next()
        .unwrap_or("not known")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn clients_and_servers_have_cpus_of_their_own_where_there_are_enough() {
        assert_eq!(cpus_of_servers(&[0, 1, 2, 3], 2), [0, 1]);
        assert_eq!(cpus_of_clients(&[0, 1, 2, 3], 2), [2, 3]);
        assert_eq!(cpus_of_clients(&[5], 1), [5]);
    }

    #[test]
    fn a_name_that_no_case_has_is_refused() {
        let args = Args::parse_from(["bench/http", "--only", "3 threads"]);
        assert!(matches!(
            cases(&args, &[0, 1, 2, 3]),
            Err(BenchError::NoCase { .. })
        ));
        let args = Args::parse_from(["bench/http", "--only", "client"]);
        assert_eq!(cases(&args, &[0, 1, 2, 3]).expect("four").len(), 4);
    }
}
