//! `bench/page`: an experiment of many trials is written by the store's own writer, and its page is made by `linerate
//! report` and opened in Chromium: how long each takes, how much memory, and how large the page is.

#![expect(
    clippy::print_stdout,
    reason = "a developer's tool that talks to its terminal"
)]

mod made;
#[path = "../sys.rs"]
mod sys;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use linerate_bench_shared::{Trouble, exit_code, linerate_file, load};
use linerate_stats::summary::median;

use crate::made::Traffic;

/// What a page of 5,000 trials may take.
const SECONDS_TO_MAKE: f64 = 5.0;
const MIB_TO_MAKE: f64 = 300.0;
const MEGABYTES: f64 = 10.0;
const SECONDS_TO_OPEN: f64 = 3.0;

/// Synthesizes a run with many trials and measures how long its report takes to write and open
#[derive(Debug, Parser)]
#[command(name = "bench/page")]
struct Args {
    /// Minimum number of trials
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(150..=200_000))]
    trials: u32,
    /// Request/response trials with a latency histogram each, instead of streams
    #[arg(long)]
    requests: bool,
    /// CPUs per host (their counters are most of a record)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=256))]
    cpus: u32,
    /// Number of times the page is written and opened
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    times: u16,
    /// Write the run to this folder and keep it [default: a temporary folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The linerate to run [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
    /// Internal: the process that writes the run
    #[arg(long, hide = true)]
    write: bool,
}

impl Args {
    fn traffic(&self) -> Traffic {
        if self.requests {
            Traffic::Requests
        } else {
            Traffic::Streams
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.folder {
        Some(folder) if args.write => {
            made::store(folder, args.traffic(), args.trials, args.cpus).map(|()| true)
        }
        _ => bench(&args),
    })
}

/// Whether everything is within its bound.
fn bench(args: &Args) -> Result<bool, Trouble> {
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    let own = std::env::temp_dir().join(format!("linerate-bench-page-{}", std::process::id()));
    let folder = args.folder.clone().unwrap_or_else(|| own.clone());
    let result = measure(args, &linerate, &folder);
    if args.folder.is_none() {
        let _ = fs::remove_dir_all(&own);
    }
    result
}

fn measure(args: &Args, linerate: &Path, folder: &Path) -> Result<bool, Trouble> {
    let begun = Instant::now();
    write(args, folder)?;
    println!(
        "{} trials of {} between hosts of {} CPUs, {:.0} MB of records, written in {:.1} s; load {}\n",
        made::whole_blocks(args.trials),
        if args.requests { "requests" } else { "streams" },
        args.cpus,
        size(&folder.join("records.jsonl"))?,
        begun.elapsed().as_secs_f64(),
        load()
    );
    println!("{:<34} {:>9} {:>9}  met", "", "median", "limit");
    let mut all_within = true;
    let mut tell = |what: &str, found: f64, most: f64, unit: &str| {
        let within = found <= most;
        all_within &= within;
        println!(
            "{what:<34} {:>9} {:>9}  {}",
            format!("{found:.2} {unit}"),
            format!("{most} {unit}"),
            if within { "yes" } else { "no" }
        );
    };
    let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..args.times {
        let (time, peak) = make(linerate, folder)?;
        seconds.push(time);
        peaks.push(peak);
    }
    let page = folder.join("report.html");
    tell(
        "`linerate report`: time",
        middle(&seconds),
        SECONDS_TO_MAKE,
        "s",
    );
    tell(
        "`linerate report`: peak memory",
        middle(&peaks),
        MIB_TO_MAKE,
        "MiB",
    );
    tell("page size", size(&page)?, MEGABYTES, "MB");
    match open(&page, args.times)? {
        Ok(seconds) => tell(
            "Chromium: time to render all charts",
            seconds,
            SECONDS_TO_OPEN,
            "s",
        ),
        Err(why) => println!("SKIP: cannot open the page: {why}"),
    }
    Ok(all_within)
}

/// Writes the run in a separate process: the peak memory that the kernel reports for a child starts with what its parent
/// had when it was started (exec_mmap in fs/exec.c), and the writer of a run has it in memory.
fn write(args: &Args, folder: &Path) -> Result<(), Trouble> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Trouble(format!("find this program's own file: {error}")))?;
    let status = Command::new(own)
        .args(["--write", "--trials", &args.trials.to_string()])
        .args(["--cpus", &args.cpus.to_string(), "--folder"])
        .arg(folder)
        .args(args.requests.then_some("--requests"))
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Trouble(format!("write the run: {status}"))),
        Err(error) => Err(Trouble(format!("start the writer: {error}"))),
    }
}

fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}

/// Megabytes.
#[expect(clippy::cast_precision_loss, reason = "a file's size")]
fn size(file: &Path) -> Result<f64, Trouble> {
    let found = fs::metadata(file);
    found
        .map(|found| found.len() as f64 / 1e6)
        .map_err(|error| Trouble(format!("find {}: {error}", file.display())))
}

/// The whole process: seconds, and its peak memory, MiB.
#[expect(clippy::cast_precision_loss, reason = "kibibytes of one program")]
fn make(linerate: &Path, folder: &Path) -> Result<(f64, f64), Trouble> {
    let cannot = |what: &str| Trouble(format!("{what} linerate report {}", folder.display()));
    let begun = Instant::now();
    let child = Command::new(linerate)
        .args(["--quiet", "report"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| Trouble(format!("start {}: {error}", linerate.display())))?;
    match sys::wait(child) {
        Ok((true, peak_kib)) => Ok((begun.elapsed().as_secs_f64(), peak_kib as f64 / 1024.0)),
        Ok((false, _)) => Err(cannot("run")),
        Err(error) => Err(Trouble(format!("wait for linerate: {error}"))),
    }
}

/// The median of the seconds until a page is rendered, or why it was not opened.
fn open(page: &Path, times: u16) -> Result<Result<f64, String>, Trouble> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/test/opening.mjs");
    let output = Command::new("node")
        .arg(&script)
        .arg(page)
        .arg(times.to_string())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return Ok(Err(format!("node: {error}"))),
    };
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if let Some(why) = said.strip_prefix("SKIP: ") {
        return Ok(Err(why.to_owned()));
    }
    let seconds = String::from_utf8_lossy(&output.stdout).trim().parse();
    match seconds {
        Ok(seconds) if output.status.success() => Ok(Ok(seconds)),
        _ => Err(Trouble(format!("open the page: {said}"))),
    }
}
