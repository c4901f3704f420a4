//! `bench/stream`: `linerate measure stream` beside iperf3, in the same two network namespaces, in
//! interleaved pairs. README.md beside it says how to read the result.
//!
//! Two processes: what the person started, and tied to it the stage in which the namespaces live. A
//! Ctrl-C ends both; the namespaces end with them, and nothing is left to clean up.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cases;
mod environment;
mod figures;
mod iperf3;
mod linerate;
mod scene;
mod table;
mod trial;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use linerate_testbed::{Stage, tie_to_parent};

use crate::cases::{Case, Pins, Program, Turn};
use crate::environment::Environment;
use crate::figures::{CasePairs, PAIRS_MIN, Pair};
use crate::scene::{Scene, find_iperf3};
use crate::table::Comparison;
use crate::trial::BenchError;
use crate::work::Work;

/// Start and end of a trial's processes, for the estimate that is printed first.
const OVERHEAD: Duration = Duration::from_millis(900);
/// The kernel's largest explicit socket buffer where nobody raised it (`net.core.wmem_max`, socket(7)).
const SOCKET_BUFFER: u64 = 212_992;

/// `linerate measure stream` beside iperf3: same namespaces, same work, one table of ratios
#[derive(Debug, Parser)]
#[command(name = "bench/stream")]
struct Args {
    /// Pairs of each case; fewer than 9 do not decide who is as fast
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(3..=1000))]
    pairs: u16,
    /// 3 pairs of each case: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only cases that have this in their name, such as `1 flow` or `pinned fixed`
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds of each trial
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    time: u32,
    /// The congestion control of both hosts [default: the kernel's]
    #[arg(long)]
    cc: Option<String>,
    /// The size of each send and receive, bytes
    #[arg(long, default_value_t = 128 * 1024)]
    buffer: u64,
    /// The explicit socket buffers of the `fixed` cases, bytes
    #[arg(long, default_value_t = SOCKET_BUFFER)]
    socket_buffer: u64,
    /// The CPUs of the pinned cases [default: the first two allowed]
    #[arg(long, value_name = "SENDER:RECEIVER", value_parser = pins_of)]
    place: Option<Pins>,
    /// What the order is drawn from [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Keep everything recorded in this file (JSON), written after every round
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// Print the table of a kept file again, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    show: Option<PathBuf>,
    /// The linerate to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
    /// Be the process that holds the namespaces
    #[arg(long, hide = true)]
    stage: bool,
}

fn pins_of(text: &str) -> Result<Pins, String> {
    let numbers = text.split_once(':').map(|(a, b)| (a.parse(), b.parse()));
    match numbers {
        Some((Ok(sender), Ok(receiver))) => Ok(Pins { sender, receiver }),
        _ => Err("two CPU numbers with a colon between them, such as 0:1".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match (&args.show, args.stage) {
        (Some(file), _) => show(file, &args),
        (None, true) => conduct(&args),
        (None, false) => return start(&args),
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
fn start(args: &Args) -> ExitCode {
    let run = || -> Result<ExitCode, BenchError> {
        find_iperf3()?; // before anything is made
        let own =
            std::env::current_exe().map_err(BenchError::io("find this program's own file"))?;
        let mut stage = Command::new(own);
        stage.args(std::env::args_os().skip(1));
        stage.arg("--stage");
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
    };
    run().unwrap_or_else(|error| {
        eprintln!("error: cannot {error}");
        ExitCode::FAILURE
    })
}

fn show(file: &Path, args: &Args) -> Result<(), BenchError> {
    let named = file.display();
    let text = fs::read_to_string(file).map_err(BenchError::io(format!("read {named}")))?;
    let comparison = Comparison::parse(&text).map_err(|what| BenchError::Unreadable {
        program: "an earlier comparison",
        what: format!("{named}: {what}"),
    })?;
    print_result(&comparison, args)
}

/// The stage: makes the two hosts and runs every pair.
fn conduct(args: &Args) -> Result<(), BenchError> {
    // First of all, while this process has one thread.
    let stage = Stage::enter()?;
    let linerate = linerate_file(args)?;
    let allowed = allowed_cpus()?;
    let scene = Scene::set(&stage, &linerate)?;
    let mut comparison = Comparison {
        seed: args.seed.unwrap_or_default(),
        environment: Environment::read(&linerate, &find_iperf3()?, allowed.len()),
        work: Work {
            seconds: args.time,
            warmup_s: f64::from(args.time) / 4.0,
            buffer_bytes: args.buffer,
            congestion_control: scene.congestion_control(args.cc.as_deref())?,
        },
        cases: wanted_cases(args, &allowed)?,
    };
    let pairs = if args.quick {
        PAIRS_MIN
    } else {
        args.pairs.into()
    };
    announce(&comparison, pairs);
    let result = run_rounds(&scene, &mut comparison, pairs, args);
    // What was measured before something failed is worth its table.
    print_result(&comparison, args)?;
    result
}

fn run_rounds(
    scene: &Scene,
    comparison: &mut Comparison,
    rounds: usize,
    args: &Args,
) -> Result<(), BenchError> {
    let order = cases::order(comparison.cases.len(), rounds, comparison.seed);
    for (done, round) in order.iter().enumerate() {
        for turn in round {
            let CasePairs { case, pairs } = &mut comparison.cases[turn.case];
            pairs.push(run_pair(scene, *turn, case, &comparison.work)?);
        }
        let load = environment::load();
        eprintln!(
            "round {} of {rounds} done, load average {}",
            done + 1,
            load.as_deref().unwrap_or("not known")
        );
        comparison.environment.load_after = load;
        keep(comparison, args)?;
    }
    Ok(())
}

fn linerate_file(args: &Args) -> Result<PathBuf, BenchError> {
    let beside = || -> Result<PathBuf, BenchError> {
        let own =
            std::env::current_exe().map_err(BenchError::io("find this program's own file"))?;
        Ok(own.with_file_name(linerate::NAME))
    };
    let path = args.linerate.clone().map_or_else(beside, Ok)?;
    if path.is_file() {
        Ok(path)
    } else {
        Err(BenchError::NoLinerate { path })
    }
}

fn allowed_cpus() -> Result<Vec<u32>, BenchError> {
    let cpus = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| BenchError::io("ask for the allowed CPUs")(errno.into()))?;
    let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..most).filter(|cpu| cpus.is_set(*cpu as usize)).collect())
}

fn wanted_cases(args: &Args, allowed: &[u32]) -> Result<Vec<CasePairs>, BenchError> {
    let first_two = || match allowed {
        [sender, receiver, ..] => Some(Pins {
            sender: *sender,
            receiver: *receiver,
        }),
        _ => None,
    };
    let pins = args.place.or_else(first_two);
    if pins.is_none() {
        eprintln!("SKIP: the pinned cases need two CPUs");
    }
    let cases: Vec<CasePairs> = cases::all(pins, args.socket_buffer)
        .into_iter()
        .filter(|case| case.name().contains(&args.only))
        .map(|case| CasePairs {
            case,
            pairs: Vec::new(),
        })
        .collect();
    if cases.is_empty() {
        let only = args.only.clone();
        return Err(BenchError::NoCase { only });
    }
    Ok(cases)
}

/// Says what will happen and for how long.
fn announce(comparison: &Comparison, pairs: usize) {
    let trials = comparison.cases.len() * pairs * 2;
    let each = Duration::from_secs(comparison.work.seconds.into()) + OVERHEAD;
    let all = each * u32::try_from(trials).unwrap_or(u32::MAX);
    eprintln!(
        "{} cases, {pairs} pairs each, about {} minutes; seed {}; in two network namespaces that end \
         with this command; Ctrl-C stops it",
        comparison.cases.len(),
        all.as_secs().div_ceil(60),
        comparison.seed
    );
}

fn run_pair(scene: &Scene, turn: Turn, case: &Case, work: &Work) -> Result<Pair, BenchError> {
    let run = |program| scene.run(program, case, work);
    let (linerate, iperf3) = match turn.first {
        Program::Linerate => {
            let linerate = run(Program::Linerate)?;
            (linerate, run(Program::Iperf3)?)
        }
        Program::Iperf3 => {
            let iperf3 = run(Program::Iperf3)?;
            (run(Program::Linerate)?, iperf3)
        }
    };
    Ok(Pair {
        first: turn.first,
        linerate,
        iperf3,
    })
}

fn document(comparison: &Comparison) -> Result<String, BenchError> {
    Ok(format!("{:#}\n", comparison.json()?))
}

fn keep(comparison: &Comparison, args: &Args) -> Result<(), BenchError> {
    let Some(file) = &args.out else { return Ok(()) };
    fs::write(file, document(comparison)?)
        .map_err(BenchError::io(format!("write {}", file.display())))
}

fn print_result(comparison: &Comparison, args: &Args) -> Result<(), BenchError> {
    if args.json {
        print!("{}", document(comparison)?);
    } else {
        print!("{}", comparison.text()?);
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

    #[test]
    fn a_place_is_two_cpus() {
        let pins = pins_of("3:7").expect("two numbers");
        assert_eq!((pins.sender, pins.receiver), (3, 7));
        for text in ["", "3", "3:", "a:b", "3:7:9"] {
            assert!(pins_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_that_no_case_has_is_refused() {
        let args = Args::parse_from(["bench/stream", "--only", "5 flows"]);
        assert!(matches!(
            wanted_cases(&args, &[0, 1]),
            Err(BenchError::NoCase { .. })
        ));
        let args = Args::parse_from(["bench/stream", "--only", "pinned fixed"]);
        assert_eq!(wanted_cases(&args, &[4, 6]).expect("four cases").len(), 4);
    }
}
