//! `bench/udp`: datagrams of one flow as fast as they go, by linerate's engine and by iperf3, in the same
//! network namespaces, in interleaved pairs. Only what the receiving program got counts. README.md beside
//! it says how to read the result.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

#[path = "../environment.rs"]
mod environment;
mod run;
#[path = "../trial.rs"]
#[expect(dead_code, reason = "bench/stream uses the rest of it")]
mod trial;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use linerate_stats::{Random, Seed};
use linerate_testbed::{Stage, tie_to_parent};

use crate::environment::Environment;
use crate::run::{Path, Scene, find_iperf3};
use crate::trial::BenchError;

/// The aim: so many times the packets that iperf3 receives.
const AIM: f64 = 1.5;
const LEVEL: f64 = 0.95;

/// Datagrams as fast as they go, beside iperf3: packets received per second, one table of ratios
#[derive(Debug, Parser)]
#[command(name = "bench/udp")]
struct Args {
    /// Pairs of each case; fewer than 9 decide nothing
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(3..=1000))]
    pairs: u16,
    /// Seconds of each trial
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    time: u32,
    /// The payload of a datagram, bytes
    #[arg(long, default_value_t = 1448, value_parser = clap::value_parser!(u32).range(24..=65_507))]
    size: u32,
    /// Socket buffers of both programs, KiB; 0 leaves them to the kernel
    #[arg(long, default_value_t = 0)]
    buffer: u32,
    /// Only cases that have this in their name, such as `veth` or `gso`
    #[arg(long, default_value = "")]
    only: String,
    /// What the order is drawn from [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Be the process that holds the namespaces
    #[arg(long, hide = true)]
    stage: bool,
}

/// A path and a way to batch, and packets received per second: iperf3's and linerate's of each pair.
struct Case {
    path: Path,
    batch: &'static str,
    pairs: Vec<(f64, f64)>,
}

impl Case {
    fn name(&self) -> String {
        format!("{} {}", self.path.name(), self.batch)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.stage {
        conduct(&args)
    } else {
        start(&args)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the person started: runs itself again as the stage.
fn start(args: &Args) -> Result<(), BenchError> {
    if let Err(error) = find_iperf3() {
        println!("SKIP: cannot {error}; there is no peer to compare with");
        return Ok(());
    }
    let own = std::env::current_exe().map_err(BenchError::io("find this program's own file"))?;
    let mut stage = Command::new(own);
    stage.args(std::env::args_os().skip(1)).arg("--stage");
    if args.seed.is_none() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs();
        stage.args(["--seed", &seconds.to_string()]);
    }
    tie_to_parent(&mut stage);
    let status = stage.status().map_err(BenchError::io("start the stage"))?;
    if status.success() {
        return Ok(());
    }
    Err(BenchError::Failed {
        program: "the stage",
        status: status.to_string(),
        said: String::new(),
    })
}

/// The program under test: built beside this one.
fn engine() -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe().map_err(BenchError::io("find this program's own file"))?;
    let path = own.with_file_name("examples").join("udp");
    if path.is_file() {
        Ok(path)
    } else {
        Err(BenchError::NoLinerate { path })
    }
}

/// The stage: makes the two hosts and runs every pair.
fn conduct(args: &Args) -> Result<(), BenchError> {
    // First of all, while this process has one thread.
    let stage = Stage::enter()?;
    let seed = args.seed.unwrap_or_default();
    let scene = Scene::set(&stage, engine()?, find_iperf3()?)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut environment = Environment::read(&scene.engine, &scene.iperf3, cpus);
    environment.linerate = Some("linerate, this tree".to_owned());
    let mut cases: Vec<Case> = [Path::Loopback, Path::Veth]
        .into_iter()
        .flat_map(|path| ["gso", "mmsg", "single"].map(|batch| (path, batch)))
        .map(|(path, batch)| Case {
            path,
            batch,
            pairs: Vec::new(),
        })
        .filter(|case| case.name().contains(&args.only))
        .collect();
    let mut random = Random::new(Seed(seed));
    for round in 1..=args.pairs {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        for last in (1..order.len()).rev() {
            let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(0);
            order.swap(last, other);
        }
        for index in order {
            let first = random.below(2) == 0;
            let pair = run_pair(&scene, &cases[index], args, first)?;
            cases[index].pairs.push(pair);
        }
        environment.load_after = environment::load();
        let load = environment.load_after.as_deref().unwrap_or("not known");
        eprintln!("round {round} of {} done, load average {load}", args.pairs);
    }
    println!(
        "{}\nseed {seed}; {} s a trial",
        environment.text(),
        args.time
    );
    print_table(&cases, args, seed)
}

/// Packets per second of iperf3 and of linerate, `first` says whether linerate begins.
fn run_pair(
    scene: &Scene,
    case: &Case,
    args: &Args,
    first: bool,
) -> Result<(f64, f64), BenchError> {
    let linerate = || scene.linerate(case.path, case.batch, args.time, args.size, args.buffer);
    let iperf3 = || scene.iperf3(case.path, args.time, args.size, args.buffer);
    if first {
        let own = linerate()?;
        Ok((iperf3()?, own))
    } else {
        let theirs = iperf3()?;
        Ok((theirs, linerate()?))
    }
}

fn print_table(cases: &[Case], args: &Args, seed: u64) -> Result<(), BenchError> {
    println!(
        "datagrams of {} bytes, packets received per second\n\n\
         {:<18} {:>5} {:>11} {:>11} {:>7} {:>17} {:>9}",
        args.size, "case", "pairs", "linerate", "iperf3", "ratio", "95 % of the mean", "1.5 times"
    );
    for case in cases {
        let column =
            |of: fn(&(f64, f64)) -> f64| median(&case.pairs.iter().map(of).collect::<Vec<f64>>());
        let ratio = column(|(theirs, own)| own / theirs)?;
        let effect = paired_relative(&case.pairs, LEVEL, Seed(seed))?;
        let (low, high) = (1.0 + effect.interval.low, 1.0 + effect.interval.high);
        let verdict = match (case.pairs.len() >= 9, ratio >= AIM && high >= AIM) {
            (false, _) => "too few",
            (true, true) => "yes",
            (true, false) => "no",
        };
        println!(
            "{:<18} {:>5} {:>11.0} {:>11.0} {:>7.2} {:>17} {:>9}",
            case.name(),
            case.pairs.len(),
            column(|(_, own)| *own)?,
            column(|(theirs, _)| *theirs)?,
            ratio,
            format!("{low:.2} to {high:.2}"),
            verdict
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
