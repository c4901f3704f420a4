//! `bench/block`: `measure block` against fio with the io_uring engine, on a loop device, in interleaved rounds.
//! README.md in `bench/` explains the output.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use linerate_bench_shared::ratios::{Better, Row, Trial, row, table};
use linerate_bench_shared::running::{is_on_path, kernel, tail};
use linerate_bench_shared::{Trouble, exit_code, linerate_file, load, shuffled};
use linerate_stats::{Random, Seed};
use serde_json::Value;

/// Compares `linerate measure block` with fio on a loop device
#[derive(Debug, Parser)]
#[command(name = "bench/block")]
struct Args {
    /// Rounds; each runs every program once in every case
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(3..=1_000))]
    rounds: u16,
    /// Quick run of 3 rounds; not a valid result
    #[arg(long)]
    quick: bool,
    /// Duration of each trial, such as `1s` or `300ms`
    #[arg(long, default_value = "1s")]
    time: String,
    /// Size of the device in MiB
    #[arg(long, default_value_t = 256)]
    size: usize,
    /// Folder of the device's file: a tmpfs keeps the disk out of the comparison
    #[arg(long, default_value = "/dev/shm", value_name = "FOLDER")]
    folder: PathBuf,
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seed of the order [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// The linerate to run [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
    /// Also write the table to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What all programs do.
#[derive(Debug, Clone, Copy)]
struct Case {
    sequential: bool,
    block_kib: u32,
    depth: u32,
    jobs: usize,
}

/// The programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Linerate,
    /// As it comes: a system call for each operation that it submits.
    Fio,
    /// Submits and completes in batches of up to the depth, as linerate does.
    FioBatched,
}

const PROGRAMS: [Program; 3] = [Program::Linerate, Program::Fio, Program::FioBatched];

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Linerate => "linerate",
            Self::Fio => "fio",
            Self::FioBatched => "fio, batched",
        }
    }
}

impl Case {
    fn name(self) -> String {
        format!(
            "{} read, {} KiB, depth {}, {} job{}",
            if self.sequential {
                "sequential"
            } else {
                "random"
            },
            self.block_kib,
            self.depth,
            self.jobs,
            if self.jobs == 1 { "" } else { "s" }
        )
    }
}

/// A loop device on a file that is removed with it.
struct LoopDevice {
    node: String,
    file: PathBuf,
}

impl LoopDevice {
    fn new(folder: &Path, mib: usize, seed: u64) -> Result<Self, Trouble> {
        let file = folder.join(format!("linerate-bench-block-{}", std::process::id()));
        // Not zero: holes are not read from anywhere.
        let mut random = Random::new(Seed(seed));
        let bytes: Vec<u8> = (0..(mib << 20) / 8)
            .flat_map(|_| random.next_u64().to_ne_bytes())
            .collect();
        fs::write(&file, bytes).map_err(|error| Trouble(format!("write the file: {error}")))?;
        let node = run("losetup", &["--find", "--show", &file.to_string_lossy()]);
        match node {
            Ok(node) => Ok(Self {
                node: node.trim().to_owned(),
                file,
            }),
            Err(trouble) => {
                let _ = fs::remove_file(&file);
                Err(trouble)
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(trouble) = run("losetup", &["--detach", &self.node]) {
            eprintln!("warning: cannot {trouble}");
        }
        let _ = fs::remove_file(&self.file);
    }
}

fn main() -> ExitCode {
    exit_code(bench(&Args::parse()))
}

fn bench(args: &Args) -> Result<bool, Trouble> {
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    if !is_on_path("fio") {
        return Err(Trouble(
            "run fio: it is not installed (package fio)".to_owned(),
        ));
    }
    let rounds = if args.quick { 3 } else { args.rounds };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = args.seed.unwrap_or(now.unwrap_or_default().as_secs());
    let device = LoopDevice::new(&args.folder, args.size, seed)?;
    let cases: Vec<Case> = (cases().into_iter())
        .filter(|case| {
            args.only
                .as_ref()
                .is_none_or(|only| case.name().contains(only))
        })
        .collect();
    let mut values = vec![vec![Vec::new(); PROGRAMS.len()]; cases.len()];
    // The first round brings caches, and does not count.
    for round in 0..=u64::from(rounds) {
        eprintln!("round {round} of {rounds}");
        for index in shuffled(cases.len(), seed, round) {
            let (case, values) = (cases[index], &mut values[index]);
            for program in shuffled(PROGRAMS.len(), seed ^ index as u64, round) {
                let value = measured(PROGRAMS[program], &linerate, case, &device.node, &args.time)?;
                if round > 0 {
                    values[program].push(value);
                }
            }
        }
    }
    let rows: Vec<Row> = cases
        .iter()
        .zip(&values)
        .flat_map(|(case, values)| rows(*case, values, seed))
        .collect();
    let text = format!(
        "{}\nLinux {}, {} CPUs, a loop device of {} MiB on a file in {}, {rounds} interleaved rounds of {}, seed {seed}, \
         load average {} at the end.\n",
        table(&rows),
        kernel(),
        cpus(),
        args.size,
        args.folder.display(),
        args.time,
        load()
    );
    println!("{text}");
    if let Some(file) = &args.out {
        fs::write(file, &text)
            .map_err(|error| Trouble(format!("write {}: {error}", file.display())))?;
    }
    Ok(!rows.iter().any(|row| row.at_least_as_good == Some(false)))
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cases() -> Vec<Case> {
    let case = |sequential, block_kib, depth, jobs| Case {
        sequential,
        block_kib,
        depth,
        jobs,
    };
    vec![
        case(false, 4, 1, 1),
        case(false, 4, 32, 1),
        case(false, 4, 32, cpus()),
        case(true, 128, 8, 1),
    ]
}

fn rows(case: Case, values: &[Vec<f64>], seed: u64) -> Vec<Row> {
    let trial = |value: &f64| Trial {
        value: *value,
        cost: None,
    };
    let (ours, others) = (&values[0], values.iter().zip(PROGRAMS).skip(1));
    others
        .filter_map(|(theirs, program)| {
            let pairs: Vec<(Trial, Trial)> = (ours.iter())
                .zip(theirs)
                .map(|(ours, theirs)| (trial(ours), trial(theirs)))
                .collect();
            let what = (case.name(), "IOPS", Better::More);
            row((&what.0, what.1, what.2), program.name(), &pairs, seed)
        })
        .collect()
}

/// Operations per second, as the program reports them.
fn measured(
    program: Program,
    linerate: &Path,
    case: Case,
    node: &str,
    time: &str,
) -> Result<f64, Trouble> {
    let (block, depth, jobs) = (case.block_kib, case.depth, case.jobs);
    let text = match program {
        Program::Linerate => {
            let pattern = if case.sequential {
                "sequential"
            } else {
                "random"
            };
            let words = format!(
                "--quiet --format json measure --no-store block {node} --pattern {pattern} --block-size {block}KiB --depth {depth} \
                 --jobs {jobs} --time {time}"
            );
            let words: Vec<&str> = words.split_whitespace().collect();
            run(&linerate.to_string_lossy(), &words)?
        }
        Program::Fio | Program::FioBatched => {
            let kind = if case.sequential { "read" } else { "randread" };
            let mut words = format!(
                "--name=bench --output-format=json --filename={node} --readonly --rw={kind} --bs={block}k \
                 --ioengine=io_uring --direct=1 --registerfiles=1 --fixedbufs=1 --norandommap=1 --iodepth={depth} \
                 --numjobs={jobs} --thread=1 --group_reporting=1 --time_based=1 --runtime={time}"
            );
            if case.sequential && jobs > 1 {
                words.push_str(" --offset_increment=50%");
            }
            if program == Program::FioBatched {
                words = format!(
                    "{words} --iodepth_batch_submit={depth} --iodepth_batch_complete_min=1 \
                     --iodepth_batch_complete_max={depth}"
                );
            }
            let words: Vec<&str> = words.split_whitespace().collect();
            run("fio", &words)?
        }
    };
    let wrong = || {
        Trouble(format!(
            "read the result of {}: {}",
            program.name(),
            tail(&text)
        ))
    };
    // fio may print notes above its document.
    let start = text.find('{').ok_or_else(wrong)?;
    let document: Value = serde_json::from_str(&text[start..]).map_err(|_| wrong())?;
    let value = match program {
        Program::Linerate => &document["total"]["ops_per_s"],
        Program::Fio | Program::FioBatched => &document["jobs"][0]["read"]["iops"],
    };
    value
        .as_f64()
        .filter(|value| *value > 0.0)
        .ok_or_else(wrong)
}

fn run(program: &str, words: &[&str]) -> Result<String, Trouble> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Trouble(format!("run {program}: {error}")))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Trouble(format!(
            "run {program} {}: {}",
            words.join(" "),
            tail(&errors)
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
