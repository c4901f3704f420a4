//! `bench/mesh`: does `mesh` name the host, pair or switch that is slow, and nobody in a healthy mesh?

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cases;
mod trial;

use std::process::ExitCode;

use cases::{CASES, Case};
use clap::Parser;
use linerate_bench_shared::markdown::{head, row};
use linerate_bench_shared::results::Results;
use linerate_bench_shared::{StageArgs, TableArgs, Trouble, load};
use linerate_stats::share;
use linerate_testbed::Stage;
use trial::{Row, Runner};

/// Injects faults into meshes of namespaces, and counts how often `linerate mesh` names the right one
#[derive(Debug, Parser)]
#[command(name = "bench/mesh")]
struct Args {
    /// Trials of each fault; 0 with `--clean 0` and `--results FILE` only prints the table of what FILE has
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(0..=1000))]
    trials: u16,
    /// Trials without a fault
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=1000))]
    clean: u16,
    /// Duration of the trial of a pair
    #[arg(long, default_value = "500ms", value_name = "TIME")]
    time: String,
    /// Only the faults whose name contains TEXT, such as `send`
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Append each result to FILE, and do not repeat those that it has
    #[arg(long, value_name = "FILE")]
    results: Option<std::path::PathBuf>,
    #[command(flatten)]
    out: TableArgs,
    #[command(flatten)]
    stage: StageArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

/// Runs all; whether 38 of 40 runs of each fault are right, and 95 of 100 without one.
fn conduct(args: &Args) -> Result<bool, Trouble> {
    let _stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let runner = Runner {
        linerate: args.stage.linerate()?,
        time: args.time.clone(),
    };
    let mut results = Results::<Row>::open(args.results.as_deref())?;
    if let Some(row) = results.rows().iter().find(|row| row.time != args.time) {
        let why = format!(
            "continue results of `--time {}` with {}",
            row.time, args.time
        );
        return Err(Trouble(why));
    }
    let only = args.only.as_deref().unwrap_or_default();
    let wanted: Vec<&Case> = CASES
        .iter()
        .filter(|case| case.name().contains(only))
        .collect();
    // In turns, so that a run that is ended early has as many trials of each.
    for number in 0..args.trials.max(args.clean) {
        for case in &wanted {
            let is_known = |row: &Row| row.case == case.name() && row.number == number;
            if number >= trials(args, **case) || results.rows().iter().any(is_known) {
                continue;
            }
            let row = runner.trial(**case, number)?;
            eprintln!(
                "{} {number}: {} in {:.0} s: {}",
                row.case,
                if row.is_right { "right" } else { "WRONG" },
                row.seconds,
                row.named.join("; ")
            );
            results.push(row)?;
        }
    }
    args.out
        .show(&table(&wanted, results.rows()), results.rows())?;
    Ok(wanted.iter().all(|case| {
        let (right, all) = counts(**case, results.rows());
        right * 20 >= all * 19
    }))
}

fn trials(args: &Args, case: Case) -> u16 {
    if case == Case::Clean {
        args.clean
    } else {
        args.trials
    }
}

/// How many trials of a case are right, and how many there are.
fn counts(case: Case, rows: &[Row]) -> (usize, usize) {
    let of_case: Vec<&Row> = rows.iter().filter(|row| row.case == case.name()).collect();
    let right = of_case.iter().filter(|row| row.is_right).count();
    (right, of_case.len())
}

fn table(cases: &[&Case], rows: &[Row]) -> String {
    let mut text = head(&["injected", ">hosts", "named right if", ">right", ">95 % CI"]);
    for case in cases {
        let (right, all) = counts(**case, rows);
        text += &row([
            case.name().to_owned(),
            case.hosts().to_string(),
            case.rule().to_owned(),
            format!("{right} of {all}"),
            interval(right, all),
        ]);
    }
    text + &format!("\nload average at the end: {}\n", load())
}

/// The exact two-sided interval of a share (Clopper and Pearson, 1934).
fn interval(right: usize, all: usize) -> String {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (right, all) = (count(right), count(all));
    let [low, high] =
        [share::at_least, share::at_most].map(|bound| bound(right, all, 0.975) * 100.0);
    format!("{low:.1} to {high:.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_share_is_exact() {
        // The closed forms for none and all, and a table of the binomial distribution.
        assert_eq!(interval(0, 0), "0.0 to 100.0 %");
        assert_eq!(interval(40, 40), "91.2 to 100.0 %");
        assert_eq!(interval(38, 40), "83.1 to 99.4 %");
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
