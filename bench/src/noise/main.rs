//! `bench/noise`: how the rates of successive trials scatter on a real machine. Each series is the results of
//! `linerate measure --until-ci`, with a precision that is never reached, on a path through loopback or between two
//! network namespaces, quiet or beside work that starts and stops. `crates/stats/tests/it` replays the series.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use linerate_bench_shared::running::tail;
use linerate_bench_shared::{StageArgs, Trouble, load, two_hosts};
use linerate_stats::{Random, Seed};
use linerate_testbed::{Netns, Stage};
use serde_json::Value;

/// In the folder that the stage covers with its own tmpfs: it vanishes with the stage.
const STATE: &str = "/run/netns/.noise";
/// Shorter series show nothing slow.
const TRIALS_MIN: usize = 200;

/// A path, the load beside it, and the arguments of the trial.
struct Series {
    name: &'static str,
    measure: &'static str,
    beside_work: bool,
}

const SERIES: [Series; 4] = [
    Series {
        name: "loopback",
        measure: "stream local",
        beside_work: false,
    },
    Series {
        name: "loopback-beside-work",
        measure: "stream local",
        beside_work: true,
    },
    Series {
        name: "veth",
        measure: "stream netns:far",
        beside_work: false,
    },
    Series {
        name: "veth-beside-work",
        measure: "stream netns:far",
        beside_work: true,
    },
];

/// Records the rates of successive trials, quiet and beside other work
#[derive(Debug, Parser)]
#[command(name = "bench/noise")]
struct Args {
    /// The folder for one file of rates per series
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Duration of each trial, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    time: u64,
    /// Duration of each series, in seconds
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    series: u64,
    #[command(flatten)]
    stage: StageArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let (near, _far) = two_hosts(&stage, ["10.84.0.1/24", "10.84.0.2/24"])?;
    let file =
        |what: &Path, error: &std::io::Error| Trouble(format!("write {}: {error}", what.display()));
    fs::create_dir_all(STATE).map_err(|error| file(Path::new(STATE), &error))?;
    fs::create_dir_all(&args.out).map_err(|error| file(&args.out, &error))?;
    let seed = args.stage.seed.unwrap_or_default();
    eprintln!(
        "{} series of {} s; seed {seed}; Ctrl-C stops it",
        SERIES.len(),
        args.series
    );
    for series in &SERIES {
        let before = load();
        let record = || record(series, args, &linerate, &near);
        let rates = beside(series.beside_work, seed, record)?;
        if rates.len() < TRIALS_MIN {
            let made = rates.len();
            return Err(Trouble(format!(
                "use {}: {made} trials, at least {TRIALS_MIN} are needed (`--series`)",
                series.name
            )));
        }
        let path = args.out.join(series.name).with_extension("txt");
        let text = text(series, args, &rates, &before);
        fs::write(&path, text).map_err(|error| file(&path, &error))?;
        eprintln!("{}: {} trials", series.name, rates.len());
    }
    Ok(true)
}

/// Runs `record` beside threads that compute for a random time and then rest for one: as many as the machine has CPUs.
fn beside(
    is_wanted: bool,
    seed: u64,
    record: impl FnOnce() -> Result<Vec<f64>, Trouble>,
) -> Result<Vec<f64>, Trouble> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = if is_wanted { threads } else { 0 };
    thread::scope(|scope| {
        let mut working = Vec::new();
        for number in 0..threads {
            let (is_wanted, end) = mpsc::channel();
            working.push(is_wanted);
            scope.spawn(move || work(seed.wrapping_add(number as u64), &end));
        }
        let recorded = record();
        drop(working);
        recorded
    })
}

/// Computes and rests by turns, each for 0.05 to 3 s, until the other end of the channel is gone.
fn work(seed: u64, end: &Receiver<()>) {
    let mut random = Random::new(Seed(seed));
    loop {
        let length = |random: &mut Random| {
            Duration::from_secs_f64(0.05 * (60.0_f64.ln() * random.unit()).exp())
        };
        let until = Instant::now() + length(&mut random);
        while Instant::now() < until {
            black_box(random.next_u64());
        }
        if end.recv_timeout(length(&mut random)) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// The rates of a series, bit/s.
fn record(
    series: &Series,
    args: &Args,
    linerate: &Path,
    near: &Netns,
) -> Result<Vec<f64>, Trouble> {
    let mut command = Command::new(linerate);
    command
        .args([
            "--quiet",
            "--format",
            "json",
            "--state",
            STATE,
            "measure",
            "--no-store",
        ])
        .args(series.measure.split(' '))
        .args(options(args))
        .stdin(Stdio::null());
    let entered = near.enter_in_child(&mut command);
    entered.map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let output = command
        .output()
        .map_err(|error| Trouble(format!("start linerate: {error}")))?;
    // Its exit code is 12: the precision is never reached.
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        Trouble(format!("record {}: {}", series.name, tail(&said)))
    })?;
    let results = document["repeats"]["results"].as_array();
    let results = results.ok_or_else(|| Trouble(format!("read the rates of {}", series.name)))?;
    Ok(results.iter().filter_map(Value::as_f64).collect())
}

/// The options of each measurement.
fn options(args: &Args) -> Vec<String> {
    let words = [
        format!("--time={}ms", args.time),
        "--until-ci=0.01%".to_owned(),
        format!("--max-time={}s", args.series),
    ];
    words.to_vec()
}

/// The file of a series: how it was recorded, and one rate a line.
fn text(series: &Series, args: &Args, rates: &[f64], load_before: &str) -> String {
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    let beside = if series.beside_work {
        format!(", beside {cpus} threads that compute and rest for 0.05 to 3 s each")
    } else {
        String::new()
    };
    let mut text = format!(
        "# bench/noise: linerate measure {} {}{beside}\n# {cpus} CPUs, load before {load_before}; the rate of each \
         trial in Mb/s\n",
        series.measure,
        options(args).join(" "),
    );
    for rate in rates {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:.0}", rate / 1e6);
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }
}
