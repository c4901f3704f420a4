//! `bench/failover`: does `failover` read interruptions of known length, count each packet that was dropped, and find none
//! where there are none? With `--table`: the interruptions of redundant networks, fault by fault.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cases;
mod copies;
mod measured;
mod plant;
mod table;
mod truth;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use linerate_bench_shared::{StageArgs, TableArgs};

/// Injects interruptions of 0, 5, 50, 500 and 3,600 ms, and compares what `failover` reads with what was injected
#[derive(Debug, Parser)]
#[command(name = "bench/failover")]
struct Args {
    /// Trials of each length, or of `--copies`
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1000))]
    trials: u16,
    /// Trials without an interruption
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clean: u16,
    /// Instead, measure the faults of redundant networks (keepalived, FRR, Open vSwitch), as a table
    #[arg(long)]
    table: bool,
    /// Instead, let a relay send packets twice and change their order, and compare the counts (`--trials` of 2 s)
    #[arg(long, conflicts_with = "table")]
    copies: bool,
    /// Failures of each fault (with --table)
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: u16,
    /// Only the faults whose name contains TEXT, such as `vrrp` or `dead-router` (with --table)
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Flows of each direction (with --table); fewer in an emulated guest
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    flows: u32,
    /// Packets a second of each flow and direction (with --table) [default: as of `linerate failover`]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: Option<u32>,
    /// Append each result to FILE, and do not repeat those that it has
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    #[command(flatten)]
    out: TableArgs,
    #[command(flatten)]
    stage: StageArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| {
        if args.table {
            table::conduct(&args)
        } else if args.copies {
            copies::conduct(&args)
        } else {
            truth::conduct(&args)
        }
    })
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
