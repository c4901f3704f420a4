//! `bench/qos`: does `qos verify` find wrong set-ups of classes, name the class, and report none in correct ones?

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod bond;
mod plant;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use linerate_bench_shared::{StageArgs, TableArgs, Trouble, load, two_hosts};
use linerate_stats::{Random, Seed};
use linerate_testbed::{Netns, Stage};
use plant::{Planted, Wrong, file};
use serde::Serialize;
use serde_json::Value;

/// In the folder that the stage covers with its own tmpfs: it vanishes with it.
const STATE: &str = "/run/netns/.qos";

/// Plants wrong set-ups of classes and correct ones, and counts the right verdicts of `qos verify`
#[derive(Debug, Parser)]
#[command(name = "bench/qos")]
struct Args {
    /// Wrong set-ups, and as many correct ones
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1000))]
    trials: u16,
    /// Rounds of each verification
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=100))]
    rounds: u16,
    /// VLANs on a bond, of which a port lacks its limit or a VLAN its priority; needs a kernel with both (`testbed/vm`)
    #[arg(long)]
    bond: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    stage: StageArgs,
}

/// What one verification found.
#[derive(Debug, Serialize)]
struct Found {
    planted: Wrong,
    class: Option<&'static str>,
    code: Option<i32>,
    is_right: bool,
    /// The classes that fail, with their reasons.
    fails: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

/// Runs all; whether enough verdicts are right, and none of a correct set-up is `fails`.
fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let seed = args.stage.seed.unwrap_or_default();
    let (near, far) = two_hosts(&stage, ["10.81.0.1/24", "10.81.0.2/24"])?;
    let text = if args.bond {
        bond::make(&near, &far)?;
        bond::file()
    } else {
        file()
    };
    let written = fs::create_dir_all(STATE).and_then(|()| fs::write(format!("{STATE}/file"), text));
    written.map_err(|error| Trouble(format!("write the file of classes: {error}")))?;
    let mut random = Random::new(Seed(seed));
    let mut all: Vec<Planted> = (0..args.trials).map(|_| Planted::clean()).collect();
    all.extend((0..args.trials).map(|_| {
        if args.bond {
            Planted::seeded_of_bond(&mut random)
        } else {
            Planted::seeded(&mut random)
        }
    }));
    random.shuffle(&mut all);
    let mut found = Vec::with_capacity(all.len());
    for planted in all {
        if args.bond {
            bond::forget(&near, &linerate, STATE, (planted.wrong, planted.class))?;
        } else {
            planted.make(&near)?;
        }
        let one = verify(&near, &linerate, args.rounds, &planted)?;
        eprintln!(
            "{:?} {}: exit code {:?}, {}: {}",
            one.planted,
            one.class.unwrap_or("-"),
            one.code,
            if one.is_right { "right" } else { "wrong" },
            one.fails.join("; ")
        );
        found.push(one);
    }
    let is_clean = |one: &&Found| one.planted == Wrong::Clean;
    let clean: Vec<&Found> = found.iter().filter(is_clean).collect();
    let wrong: Vec<&Found> = found.iter().filter(|one| !is_clean(one)).collect();
    let right = wrong.iter().filter(|one| one.is_right).count();
    let false_ones = clean.iter().filter(|one| !one.is_right).count();
    let unsure = clean.iter().filter(|one| one.code == Some(12)).count();
    let text = format!(
        "wrong set-ups named with class and reason: {right} of {}\n\
         correct set-ups reported as wrong: {false_ones} of {} ({unsure} not judged)\n\
         seed {seed}, load average {} at the end\n",
        wrong.len(),
        clean.len(),
        load()
    );
    args.table.show(&text, &found)?;
    // 38 of 40.
    Ok(right * 20 >= wrong.len() * 19 && false_ones == 0)
}

fn verify(near: &Netns, linerate: &Path, rounds: u16, planted: &Planted) -> Result<Found, Trouble> {
    let mut command = Command::new(linerate);
    let rounds = rounds.to_string();
    command.args(["--state", STATE, "--format", "json", "qos", "verify"]);
    command.args([&format!("{STATE}/file"), "netns:far", "--time", "1s"]);
    command.args(["--flows", "4", "--rounds", &rounds]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    near.enter_in_child(&mut command)
        .map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let output = command
        .output()
        .map_err(|error| Trouble(format!("run linerate: {error}")))?;
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        Trouble(format!(
            "read what linerate printed: {error}: {}",
            said.trim()
        ))
    })?;
    let classes = document["directions"][0]["classes"].as_array();
    let failing: Vec<&Value> = classes
        .into_iter()
        .flatten()
        .filter(|class| class["verdict"] == "fails")
        .collect();
    let by_check = |class: &&Value| {
        let reasons = class["reasons"].as_array();
        let mut reasons = reasons.into_iter().flatten();
        reasons.any(|reason| reason["check"] == planted.check())
    };
    let is_named = |class: &&Value| planted.class().is_none_or(|own| class["class"] == own);
    let code = output.status.code();
    let is_right = if planted.wrong == Wrong::Clean {
        matches!(code, Some(0 | 12)) && failing.is_empty()
    } else {
        code == Some(11) && failing.iter().all(is_named) && failing.iter().any(by_check)
    };
    Ok(Found {
        planted: planted.wrong,
        class: planted.class(),
        code,
        is_right,
        fails: failing
            .iter()
            .map(|class| format!("{}: {}", class["class"], class["reasons"]))
            .collect(),
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
