//! `bench/map`: run time and memory of a whole `linerate map` process, compared with
//! `lstopo-no-graphics` on this machine, and on synthetic hosts of growing size. README.md next to it explains
//! the output.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod made;
mod run;
#[path = "../sys.rs"]
mod sys;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use linerate_stats::summary::median;

use crate::made::Size;
use crate::run::{BenchError, Process, interleaved};

/// Compares the run time of `linerate map` with lstopo, also on synthetic hosts of growing size
#[derive(Debug, Parser)]
#[command(name = "bench/map")]
struct Args {
    /// Runs per program
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u16).range(3..=10_000))]
    runs: u16,
    /// Quick run (7 runs, small hosts only); not a valid result
    #[arg(long)]
    quick: bool,
    /// Also synthetic hosts of 2x and 4x the size, to check that the time grows linearly
    #[arg(long, conflicts_with = "quick")]
    large: bool,
    /// Write the synthetic hosts here (about 500 MB while it runs, 2 GB with --large) [default: the
    /// temporary folder]
    #[arg(long)]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench/map: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program under test is built next to this one.
fn linerate() -> Result<PathBuf, BenchError> {
    let own =
        std::env::current_exe().map_err(|source| BenchError::new("find this program", source))?;
    Ok(own.with_file_name("linerate"))
}

fn bench(args: &Args) -> Result<(), BenchError> {
    let runs = if args.quick { 7 } else { args.runs };
    let linerate = linerate()?;
    println!("whole processes, {runs} interleaved runs of each; medians\n");
    here(&linerate, runs)?;
    println!();
    curve(&linerate, runs.min(15), args)
}

fn here(linerate: &Path, runs: u16) -> Result<(), BenchError> {
    let program = |name: &str, words: &[&str]| Process::new(name, linerate, words);
    let mut all = vec![
        program("linerate map", &["map"]),
        program("linerate map --format json", &["map", "--format", "json"]),
        program(
            "linerate doctor --watch 0",
            &["doctor", "--watch", "0", "--fail-on", "never"],
        ),
    ];
    match which("lstopo-no-graphics") {
        Some(lstopo) => all.push(Process::new(
            "lstopo-no-graphics --of console",
            &lstopo,
            &["--of", "console"],
        )),
        None => {
            println!(
                "lstopo-no-graphics is not installed (package hwloc-nox): nothing to compare with"
            );
        }
    }
    let taken = interleaved(&all, runs)?;
    println!(
        "{:<34} {:>9} {:>11} {:>8}",
        "on this machine", "ms", "peak MiB", "ratio"
    );
    let peer = taken.get(3).map(|all| median_ms(all));
    for (process, runs) in all.iter().zip(&taken) {
        let ms = median_ms(runs);
        let ratio = peer.map_or_else(|| "-".to_owned(), |peer| format!("{:.2}", ms / peer));
        println!(
            "{:<34} {ms:>9.2} {:>11.1} {ratio:>8}",
            process.name,
            peak_mib(runs)
        );
    }
    let (map, doctor) = (median_ms(&taken[0]), median_ms(&taken[2]));
    println!(
        "doctor --watch 0 takes {:+.1} % compared with map",
        (doctor / map - 1.0) * 100.0
    );
    Ok(())
}

fn curve(linerate: &Path, runs: u16, args: &Args) -> Result<(), BenchError> {
    let parent = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let parts: &[u32] = match (args.quick, args.large) {
        (true, _) => &[1, 2],
        (false, false) => &[1, 2, 4, 8, 16],
        (false, true) => &[1, 2, 4, 8, 16, 32, 64],
    };
    println!(
        "{:<46} {:>8} {:>8} {:>9} {:>9} {:>11}",
        "synthetic host", "json ms", "text ms", "doctor ms", "peak MiB", "us per CPU"
    );
    for part in parts {
        let size = Size::sixteenths(*part);
        let folder = made::Folder::make(&parent, size)
            .map_err(|source| BenchError::new("make a host", source))?;
        let from = folder.path().display().to_string();
        let json = ["map", "--format", "json", "--from", &from];
        let text = ["map", "--from", &from];
        let doctor = ["doctor", "--from", &from, "--fail-on", "never"];
        let all = [
            Process::new("map json", linerate, &json),
            Process::new("map text", linerate, &text),
            Process::new("doctor", linerate, &doctor),
        ];
        let taken = interleaved(&all, runs)?;
        let [json, text, doctor] = [0, 1, 2].map(|at| median_ms(&taken[at]));
        let peak = taken.iter().map(|runs| peak_mib(runs)).fold(0.0, f64::max);
        println!(
            "{:<46} {json:>8.2} {text:>8.2} {doctor:>9.2} {peak:>9.1} {:>11.1}",
            size.to_string(),
            json * 1000.0 / f64::from(size.cpus)
        );
    }
    Ok(())
}

fn median_ms(runs: &[run::Taken]) -> f64 {
    let times: Vec<f64> = runs.iter().map(|run| run.seconds * 1e3).collect();
    median(&times).unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "kibibytes of a small program")]
fn peak_mib(runs: &[run::Taken]) -> f64 {
    let most = runs.iter().map(|run| run.peak_kib).max().unwrap_or(0);
    most as f64 / 1024.0
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
