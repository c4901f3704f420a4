//! `bench/diffusion`: the time step of `measure diffusion` with every vector extension of this processor, compared with
//! the time one core needs to read every cell once and write it once, in interleaved rounds. README.md in `bench/`
//! explains the output.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod table;

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use linerate_bench_shared::{Trouble, exit_code, load, shuffled};
use linerate_model::sample::Vectors;
use linerate_model::units::Bytes;
use linerate_model::workload::Diffusion;
use linerate_stats::summary::median;
use linerate_stats::{Random, Seed};
use linerate_traffic::copy::copy_bandwidth;
use linerate_traffic::cpu_time_of_this_thread;
use linerate_traffic::diffusion::{Stepper, available, cells_of, scale};

use crate::table::{Row, row, text};

/// The share of a round that each contestant works at least: a clock reading must not show in it.
const LEAST: Duration = Duration::from_millis(20);

/// The size of a cache line.
const ALIGNED: usize = 64;

/// Times steps of the heat equation and compares them with the memory bandwidth
#[derive(Debug, Parser)]
#[command(name = "bench/diffusion")]
struct Args {
    /// Rounds; each runs every contestant once
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(3..=1_000))]
    rounds: u16,
    /// Quick run of 3 rounds; not a valid result
    #[arg(long)]
    quick: bool,
    /// Buffers of the grids
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_values = ["256KiB", "1MiB", "4MiB", "64MiB", "1GiB"])]
    buffers: Vec<Bytes>,
    /// Seed of orders and values [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Also write the table to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is timed.
#[derive(Debug, Clone)]
enum Contestant {
    /// A time step.
    Step(Stepper),
    /// Every cell read once and written once where it is.
    Scale,
    /// Every cell read once and written once, to another grid, by memcpy.
    Copy,
}

impl Contestant {
    fn vectors(&self) -> Option<Vectors> {
        match self {
            Self::Step(stepper) => Some(stepper.vectors()),
            Self::Scale | Self::Copy => None,
        }
    }
}

/// Nanoseconds of each contestant in each round.
type Rounds = Vec<Vec<f64>>;

fn main() -> ExitCode {
    exit_code(bench(&Args::parse()))
}

fn bench(args: &Args) -> Result<bool, Trouble> {
    let rounds = if args.quick { 3 } else { args.rounds };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = args.seed.unwrap_or(now.unwrap_or_default().as_secs());
    stay_on_a_cpu()?;
    let copies = copy_bandwidth(None, Duration::from_millis(200))
        .map_err(|error| Trouble(format!("measure the memory: {error}")))?;
    let cache = largest_cache();
    let mut report = format!(
        "{}\none core, {rounds} interleaved rounds, seed {seed}, load average {}; largest cache {}; \
         memory to memory by memcpy, 128 MiB, by the wall clock: {:.2} GB/s copied\n\n",
        processor(),
        load(),
        cache.map_or_else(|| "unknown".to_owned(), |size| size.to_string()),
        copies.as_f64() / 8e9,
    );
    let mut rows: Vec<Row> = Vec::new();
    for &buffer in &args.buffers {
        eprintln!("{buffer}");
        rows.extend(case(buffer, cache, rounds, seed)?);
    }
    report.push_str(&text(&rows));
    println!("{report}");
    if let Some(file) = &args.out {
        fs::write(file, &report)
            .map_err(|error| Trouble(format!("write {}: {error}", file.display())))?;
    }
    Ok(!rows.iter().any(Row::misses))
}

/// One size of grid.
fn case(buffer: Bytes, cache: Option<Bytes>, rounds: u16, seed: u64) -> Result<Vec<Row>, Trouble> {
    let side = Diffusion::side_of(buffer);
    let size = usize::try_from(buffer.as_u64()).unwrap_or(usize::MAX);
    if side == 0 {
        return Err(Trouble(format!("have a grid in {buffer}: it takes 512 B")));
    }
    let (mut grid, mut other) = (filled(size, seed), filled(size, seed + 1));
    let (grid, other) = (aligned(&mut grid, size), aligned(&mut other, size));
    let mut contestants: Vec<Contestant> = (available().into_iter())
        .filter_map(|vectors| Stepper::with(side, vectors))
        .map(Contestant::Step)
        .collect();
    contestants.extend([Contestant::Scale, Contestant::Copy]);
    let mut times: Rounds = vec![Vec::new(); contestants.len()];
    // The first round brings pages and caches, and does not count.
    for round in 0..=u64::from(rounds) {
        for index in shuffled(contestants.len(), seed, round) {
            let took = time(&mut contestants[index], side, grid, other);
            if round > 0 {
                times[index].push(took);
            }
        }
    }
    let cells = cells_of(grid, side).map_or(0, |cells| cells.len());
    let is_beyond = cache.map(|cache| buffer > cache);
    let of = |index: usize| (contestants[index].vectors(), times[index].as_slice());
    let all: Vec<_> = (0..contestants.len()).map(of).collect();
    let (steps, bounds) = all.split_at(all.len() - 2);
    let [(_, scale), (_, copy)] = bounds else {
        return Err(Trouble("find the bounds again".to_owned()));
    };
    // Not the faster one of each round: that would be the luckier one.
    let middle = |times: &[f64]| median(times).unwrap_or(f64::INFINITY);
    let bound = if middle(scale) <= middle(copy) {
        scale
    } else {
        copy
    };
    let mut rows = Vec::new();
    for (vectors, own) in steps {
        let name = vectors.map_or_else(String::new, |vectors| format!("step, {vectors}"));
        let best = vectors == &available().last().copied();
        let target = is_beyond.filter(|_| best);
        rows.push(row(
            (side, buffer),
            &name,
            own,
            bound,
            cells,
            (target, seed),
        )?);
    }
    for (name, own) in [("scale in place", scale), ("memcpy", copy)] {
        rows.push(row((side, buffer), name, own, bound, cells, (None, seed))?);
    }
    Ok(rows)
}

/// Nanoseconds of one pass over the grid: CPU time of this thread, so that others on the machine show by the memory
/// that they use and not by the time that they take.
fn time(contestant: &mut Contestant, side: usize, grid: &mut [u8], other: &mut [u8]) -> f64 {
    let begun = Instant::now();
    let used = cpu_time_of_this_thread();
    let mut passes = 0_u32;
    while begun.elapsed() < LEAST || passes < 2 {
        match contestant {
            Contestant::Step(stepper) => stepper.step(black_box(&mut *grid)),
            // By what the compiler does not know to change nothing.
            Contestant::Scale => scale(black_box(&mut *grid), side, black_box(1.0)),
            Contestant::Copy => {
                let length = side * side * size_of::<f64>();
                other[..length].copy_from_slice(black_box(&grid[..length]));
                black_box(&mut *other);
            }
        }
        passes += 1;
    }
    let took = cpu_time_of_this_thread().saturating_sub(used);
    took.as_secs_f64() * 1e9 / f64::from(passes)
}

/// Heat of 0 to 1e4 in every cell: no zeroes, whose products are none, and no denormal numbers, which are slow.
fn filled(size: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(Seed(seed));
    let values: Vec<[u8; 8]> = (0..1 << 16)
        .map(|_| (random.unit() * Diffusion::HOT).to_le_bytes())
        .collect();
    let mut grid = vec![0; size + ALIGNED];
    for (cell, value) in grid.chunks_mut(8).zip(values.iter().cycle()) {
        cell.copy_from_slice(&value[..cell.len()]);
    }
    grid
}

/// The `size` bytes of it that begin on a cache line, as the buffers of a trial do.
fn aligned(grid: &mut [u8], size: usize) -> &mut [u8] {
    let start = grid.as_ptr().align_offset(ALIGNED).min(ALIGNED);
    &mut grid[start..][..size]
}

/// Where this thread is: all contestants work on one CPU.
fn stay_on_a_cpu() -> Result<(), Trouble> {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &cpus)
        .map_err(|errno| Trouble(format!("stay on one CPU: {errno}")))
}

/// The largest cache that the first CPU has a share of.
fn largest_cache() -> Option<Bytes> {
    let folder = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = folder.filter_map(|entry| {
        let text = fs::read_to_string(entry.ok()?.path().join("size")).ok()?;
        text.trim().parse::<Bytes>().ok()
    });
    sizes.max()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()));
    name.unwrap_or_else(|| "unknown processor".to_owned())
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
    fn scaling_by_one_changes_nothing_and_a_small_case_has_a_row_for_everybody() {
        let mut grid = filled(600, 3);
        let before = grid.clone();
        scale(&mut grid, 8, 1.0);
        assert_eq!(grid, before);
        let rows = case(Bytes::kib(4), Some(Bytes::kib(32)), 3, 1).expect("a small grid");
        assert_eq!(rows.len(), available().len() + 2);
        assert!(!rows.iter().any(Row::misses));
    }
}
