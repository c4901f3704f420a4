//! `bench/planted`: the score of the doctor. Known faults are injected into captured hosts and live network
//! namespaces; recall is the share that it finds, precision the share of its warnings that are right. The faults
//! are data (`bench/planted.d`); README.md next to it explains the output.

#![expect(
    clippy::print_stdout,
    reason = "a developer's tool that talks to its terminal"
)]

mod adapters;
mod data;
mod fields;
mod live;
mod score;
mod shapes;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
pub(crate) use linerate_bench_shared::Trouble;
use linerate_bench_shared::exit_code;
use linerate_testbed::{Stage, tie_to_parent};

use crate::data::{Fault, Plants};
use crate::score::{Score, ask};
use crate::shapes::{Shape, WatchedHost, look, still};

/// Injects known faults into captured and live hosts and prints recall and precision of each rule
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug, Parser)]
#[command(name = "bench/planted")]
struct Args {
    /// Exit with 1 if recall is below this
    #[arg(long, default_value_t = 0.95)]
    min_recall: f64,
    /// Exit with 1 if precision is below this
    #[arg(long, default_value_t = 0.95)]
    min_precision: f64,
    /// Only faults whose rule or shape contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Only the faults of authors who had not read the rules
    #[arg(long)]
    fresh: bool,
    /// Skip the faults in network namespaces
    #[arg(long)]
    no_live: bool,
    /// The folder with the faults [default: bench/planted.d]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Write the capture of every fault to this folder, and check nothing
    #[arg(long, value_name = "FOLDER")]
    captures: Option<PathBuf>,
    /// Internal: the process that holds the namespaces
    #[arg(long, hide = true)]
    stage: bool,
    /// Internal: the process in a namespace
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.inside {
        live::inside().map(|()| true)
    } else if args.stage || args.no_live || args.captures.is_some() {
        bench(&args)
    } else {
        restart_as_stage()
    };
    exit_code(result)
}

/// The namespaces belong to a separate child and vanish with it.
fn restart_as_stage() -> Result<bool, Trouble> {
    let trouble = |error: std::io::Error| Trouble(format!("start the stage: {error}"));
    let mut stage = Command::new(std::env::current_exe().map_err(trouble)?);
    stage.args(std::env::args_os().skip(1)).arg("--stage");
    tie_to_parent(&mut stage);
    Ok(stage.status().map_err(trouble)?.success())
}

/// Whether the figures reach what was requested.
fn bench(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = args.stage.then(Stage::enter);
    let mut plants = data::read(args.data.as_deref())?;
    plants.faults.retain(|fault| {
        let is_named = fault.rule.contains(&args.only) || fault.shape.contains(&args.only);
        is_named && (fault.fresh || !args.fresh)
    });
    let is_whole = args.only.is_empty() && !args.fresh;
    plants
        .live
        .retain(|live| is_whole || plants.faults.iter().any(|fault| fault.shape == live.name));
    let (mut score, mut say) = (Score::default(), Vec::new());
    let shapes = shapes::all(&plants, &mut say)?;
    if let Some(folder) = &args.captures {
        return shapes::write(folder, &plants, &shapes).map(|()| true);
    }
    on_captures(&plants, &shapes, &mut score, &mut say)?;
    match stage {
        None => say.push("SKIP: the faults in network namespaces (--no-live)".to_owned()),
        Some(Err(error)) => say.push(format!("SKIP: the faults in network namespaces: {error}")),
        Some(Ok(stage)) => live::run(&stage, &plants, &mut score, &mut say)?,
    }
    for line in say.iter().chain(&score.stated).chain(&score.complaints) {
        println!("{line}");
    }
    let (table, recall, precision) = score.table();
    println!("\n{table}");
    println!(
        "recall {:.1} %, precision {:.1} %",
        recall * 100.0,
        precision * 100.0
    );
    Ok(recall >= args.min_recall && precision >= args.min_precision)
}

fn on_captures(
    plants: &Plants,
    shapes: &std::collections::BTreeMap<String, Shape>,
    score: &mut Score,
    say: &mut Vec<String>,
) -> Result<(), Trouble> {
    for (name, shape) in shapes.iter().filter(|(_, shape)| shape.is_real) {
        let seen = look(&shape.archive, &data::Edits::default(), 0)?;
        score.take_healthy(name, &seen, &plants.stated, shape.is_fresh);
    }
    let is_live = |fault: &&Fault| plants.live.iter().any(|live| live.name == fault.shape);
    for fault in plants.faults.iter().filter(|fault| !is_live(fault)) {
        let Some(shape) = shapes.get(&fault.shape) else {
            say.push(format!("SKIP: {}: no shape {}", fault.what, fault.shape));
            continue;
        };
        let named = |Trouble(why)| Trouble(format!("inject `{}`: {why}", fault.what));
        let other = match &fault.other {
            None => None,
            Some(name) => match shapes.get(name) {
                Some(shape) => Some(look(&shape.archive, &data::Edits::default(), 0)?),
                None => return Err(named(Trouble(format!("find the shape {name}")))),
            },
        };
        let other = other.as_ref().map(|seen: &WatchedHost| &seen.host);
        let before = look(&shape.archive, &still(&fault.edits), fault.seconds).map_err(named)?;
        let after = look(&shape.archive, &fault.edits, fault.seconds).map_err(named)?;
        score.take(
            fault,
            &ask(&before, other, fault.profile),
            &ask(&after, other, fault.profile),
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
