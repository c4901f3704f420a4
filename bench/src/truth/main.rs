//! `bench/truth`: are linerate's figures correct, and what does measuring cost? Each claim is compared with
//! an independent reference: a shaper's rate, the counts of sockets and interfaces, a record of every
//! operation, an injected stall, the same trial unrecorded. README.md in `bench/` explains the output.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cost;
mod counts;
mod gate;
mod hosts;
mod line;
mod memory;
mod percentiles;
mod shaper;
mod stall;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
pub(crate) use linerate_bench_shared::Trouble;
use linerate_bench_shared::{StageArgs, TableArgs, load};
use linerate_testbed::Stage;

use crate::hosts::Bench;
use crate::line::{Line, Verdict};

/// Validates linerate's figures against independent references and measures its overhead
#[derive(Debug, Parser)]
#[command(name = "bench/truth")]
struct Args {
    /// Only these parts [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Pairs of trials, with and without recording
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(3..=1000))]
    pairs: u16,
    /// Measurements with a requirement that lies exactly on their limit
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(20..=1000))]
    verdicts: u16,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    stage: StageArgs,
}

/// A part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The rate through a shaper of known rate.
    Shaper,
    /// The bytes that programs, sockets and interfaces count.
    Counts,
    /// Percentiles compared with a record of every operation.
    Percentiles,
    /// An injected stall, in open and in closed loop.
    Stall,
    /// What recording costs.
    Cost,
    /// 10,000 connections, and an agent that waits.
    Memory,
    /// `--require` with a bound that the true value lies on.
    Gate,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

/// Runs every part; whether nothing was found untrue.
fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let seed = args.stage.seed.unwrap_or_default();
    let bench = Bench::new(stage, linerate, seed, (args.pairs, args.verdicts))?;
    let all = Part::value_variants().iter().copied();
    let parts: Vec<Part> = all
        .filter(|part| args.only.is_empty() || args.only.contains(part))
        .collect();
    eprintln!(
        "{} parts, about seven minutes for all; seed {seed}; load average {}; namespaces end with this \
         command; Ctrl-C stops it",
        parts.len(),
        load()
    );
    let mut lines = Vec::new();
    for part in parts {
        let found = run(part, &bench);
        for line in &found {
            eprintln!("{line}");
        }
        lines.extend(found);
    }
    let text = format!(
        "{}\n{}; seed {seed}, load average {} at the end\n",
        line::table(&lines),
        line::tally(&lines),
        load()
    );
    args.table.show(&text, &lines)?;
    Ok(lines.iter().all(|line| line.verdict != Verdict::No))
}

/// A part that cannot be run is a line that reports it: no proof of anything.
fn run(part: Part, bench: &Bench) -> Vec<Line> {
    let mut lines = Vec::new();
    let outcome = match part {
        Part::Shaper => shaper::run(bench, &mut lines),
        Part::Counts => counts::run(bench, &mut lines),
        Part::Percentiles => percentiles::run(bench, &mut lines),
        Part::Stall => stall::run(bench, &mut lines),
        Part::Cost => cost::run(bench, &mut lines),
        Part::Memory => memory::run(bench, &mut lines),
        Part::Gate => gate::run(bench, &mut lines),
    };
    if let Err(trouble) = outcome {
        let name = part
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned());
        lines.push(Line {
            what: name,
            figures: format!("cannot {trouble}"),
            limit: "it runs".to_owned(),
            verdict: Verdict::Undecided,
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let args = Args::parse_from(["bench/truth", "--only", "shaper,memory"]);
        assert_eq!(args.only, [Part::Shaper, Part::Memory]);
    }
}
