//! `bench/limits`: does linerate name the bottleneck of a stream? Each bottleneck is injected in network namespaces
//! with random parameters and under random conditions, the injector verifies that it binds, and then `linerate measure
//! stream` runs, to which it is not disclosed. docs/book/concepts/limits.md explains the table.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod conditions;
mod data;
mod hosts;
mod programs;
mod simulated;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
pub(crate) use linerate_bench_shared::Trouble;
use linerate_bench_shared::{StageArgs, exit_code, shuffled};
use linerate_model::sample::{Sample, SideSample};
use linerate_stats::{Random, Seed};
use linerate_testbed::Stage;

use crate::conditions::Balance;
use crate::data::{Data, End, HeldBy, Kind};
use crate::hosts::{Measured, TestHosts, Trial, words};
use crate::programs::ProgramArgs;
use crate::table::{Table, Verdict};

/// The injected bottleneck is in effect when the rate falls to at most this share of that without it.
const HELD_SHARE: f64 = 0.8;
/// An injected bottleneck of CPUs is in effect when our own threads run for at least this share of what those have.
const FILLED_SHARE: f64 = 0.7;
/// A trial is disturbed if threads waited for a CPU for more than this share although nothing of that kind was
/// injected, ...
const WAITED_MAX: f64 = 0.15;
/// ... and programs of others used more than this share of the machine.
const FOREIGN_MAX: f64 = 0.1;
/// How often a disturbed trial is made again.
const ATTEMPTS: usize = 3;
/// Simulated trials of each kind.
const SIMULATED: usize = 20;

/// Injects bottlenecks with random parameters, under random conditions, and counts how often linerate names them
#[derive(Debug, Parser)]
#[command(name = "bench/limits")]
struct Args {
    /// Trials over all kinds, in rounds of one per kind
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trials: u32,
    /// Only these kinds, for example `loss,tbf` [default: all]
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Only the blind half: kinds whose author had not read how linerate decides
    #[arg(long)]
    blind: bool,
    /// Duration of each measurement, in milliseconds
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u64).range(500..=60_000))]
    time: u64,
    /// Have linerate prove what it names by interventions (`measure stream --why`)
    #[arg(long)]
    why: bool,
    /// Only check that each bottleneck binds: print the rates, and not what linerate names
    #[arg(long)]
    binds: bool,
    /// Keep the JSON document of every trial in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Also write the tables to this Markdown file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.program.run() {
        Some(result) => exit_code(result),
        None => args.stage.exit_code(|| conduct(&args)),
    }
}

/// The kinds that were asked for.
fn wanted(data: &Data, args: &Args) -> Result<Vec<Kind>, Trouble> {
    let all = || data.kinds.iter().filter(|kind| kind.blind || !args.blind);
    let named = |name: &str| all().find(|kind| kind.name == name);
    if let Some(name) = args.kinds.iter().find(|name| named(name).is_none()) {
        let names: Vec<&str> = all().map(|kind| kind.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Trouble(format!(
            "inject `{name}`: no such kind; choose from {names}"
        )));
    }
    let wanted = |kind: &&Kind| args.kinds.is_empty() || args.kinds.contains(&kind.name);
    Ok(all().filter(wanted).cloned().collect())
}

/// Injects and measures; whether the aims are reached.
fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    go_first();
    let data = data::read()?;
    let kinds = wanted(&data, args)?;
    let seed = args.stage.seed.unwrap_or_default();
    let each = args.time + 1_200 + if args.why { 5_000 } else { 0 };
    eprintln!(
        "{} trials of {} kinds, about {} minutes; seed {seed}; in network namespaces that end with this command; \
         Ctrl-C stops it",
        args.trials,
        kinds.len(),
        (u64::from(args.trials) * each / 1_000).div_ceil(60)
    );
    let start = Instant::now();
    let mut bench = Bench {
        stage,
        linerate: args.stage.linerate()?,
        data: &data,
        args,
        random: Random::new(Seed(seed)),
        hosts: 0,
        references: BTreeMap::new(),
    };
    let table = bench.run_all(&kinds, seed);
    if args.binds {
        return Ok(true);
    }
    let mut text = format!(
        "{}\n{}",
        table.confusion(
            "Injected in network namespaces; columns: the reported bottleneck",
            &kinds
        ),
        table.score(&kinds)
    );
    let mut reached = table.reaches_the_aims(&kinds);
    if args.kinds.is_empty() && !args.blind {
        let kinds = simulated::kinds();
        let mut simulated = Table::default();
        for kind in &kinds {
            for _ in 0..SIMULATED {
                simulated.add(kind, simulated::run(kind, &mut bench.random));
            }
        }
        text.push('\n');
        text += &simulated.confusion("Simulated hosts and samples only", &kinds);
        text.push('\n');
        text += &simulated.score(&kinds);
        reached &= simulated.reaches_the_aims(&kinds);
    }
    println!("{text}");
    eprintln!("{} s", start.elapsed().as_secs());
    if let Some(file) = &args.out {
        fs::write(file, &text)
            .map_err(|error| Trouble(format!("write {}: {error}", file.display())))?;
    }
    Ok(reached)
}

/// Has others on the machine take only what ours leave. Where it is refused, the trials that they disturb are made
/// again, and counted apart in the end.
fn go_first() {
    let _ = rustix::process::nice(-20);
    // Where sessions are scheduled as groups (autogroup of sched(7)), niceness counts within one only.
    if rustix::process::setsid().is_ok() {
        let _ = fs::write("/proc/self/autogroup", "-20");
    }
}

struct Bench<'a> {
    stage: Stage,
    linerate: PathBuf,
    data: &'a Data,
    args: &'a Args,
    random: Random,
    hosts: usize,
    references: BTreeMap<String, f64>,
}

impl Bench<'_> {
    fn run_all(&mut self, kinds: &[Kind], seed: u64) -> Table {
        let mut balance = Balance::default();
        let mut table = Table::default();
        // In rounds over all kinds, so that an hour in which the machine is busy meets all alike.
        let rounds = 0..u64::from(self.args.trials);
        let order = rounds.flat_map(|round| shuffled(kinds.len(), seed, round));
        for (number, index) in (1..=self.args.trials).zip(order) {
            let kind = &kinds[index];
            let conditions = balance.next(&kind.name, kind.conditions(), &mut self.random);
            let values = self.data.draw(kind, &conditions, &mut self.random);
            let trial = Trial {
                kind,
                values,
                injected: true,
            };
            table.add(kind, self.run(&trial, number));
        }
        table
    }

    /// The verdict of one trial, which is also printed.
    fn run(&mut self, trial: &Trial<'_>, number: u32) -> Verdict {
        let (verdict, figures) = self.attempt(trial, number).unwrap_or_else(|trouble| {
            let figures = format!("cannot {trouble}");
            (Verdict::Failed, figures)
        });
        let mark = match &verdict {
            Verdict::Named { .. } if self.args.binds => "binds".to_owned(),
            Verdict::Named { what, proved } => {
                let proved = if *proved { ", proved" } else { "" };
                match trial.kind.is_right(what) {
                    Some(true) => format!("right: {what}{proved}"),
                    Some(false) => format!("WRONG: {what}{proved}"),
                    None => "not determined".to_owned(),
                }
            }
            Verdict::NotHeld => "not held".to_owned(),
            Verdict::Disturbed => "disturbed".to_owned(),
            Verdict::Failed => "FAILED".to_owned(),
        };
        eprintln!(
            "{number:>4} {:<22} {mark}  ({}; {figures})",
            trial.kind.name,
            words(&trial.values)
        );
        verdict
    }

    fn attempt(&mut self, trial: &Trial<'_>, number: u32) -> Result<(Verdict, String), Trouble> {
        let mut figures = String::new();
        for _ in 0..ATTEMPTS {
            let measured = self.measure(trial, self.args.why)?;
            let waited = waited_share(trial.kind, &measured.sample);
            if waited > WAITED_MAX && measured.foreign > FOREIGN_MAX {
                figures = format!(
                    "threads waited for a CPU {:.0} %, others used {:.0} % of the machine",
                    waited * 100.0,
                    measured.foreign * 100.0
                );
                continue;
            }
            let (held, why) = self.held(trial, &measured)?;
            figures = format!("{:.3} Gb/s, {why}", measured.bit_per_s / 1e9);
            self.keep(trial.kind, number, &measured)?;
            let verdict = if held {
                Verdict::Named {
                    what: measured.named,
                    proved: measured.proved,
                }
            } else {
                Verdict::NotHeld
            };
            return Ok((verdict, figures));
        }
        Ok((Verdict::Disturbed, figures))
    }

    fn measure(&mut self, trial: &Trial<'_>, why: bool) -> Result<Measured, Trouble> {
        self.hosts += 1;
        let seed = self.random.next_u64();
        let with = (self.linerate.as_path(), self.data);
        TestHosts::set(&self.stage, self.hosts, with, trial, seed)?
            .measure(Duration::from_millis(self.args.time), why)
    }

    /// Whether the injected bottleneck binds, and the figures that show it.
    fn held(&mut self, trial: &Trial<'_>, measured: &Measured) -> Result<(bool, String), Trouble> {
        if trial.kind.held_by == HeldBy::Cpus {
            let filled = filled_share(trial, &measured.sample);
            let why = format!("our threads use {:.0} % of the CPUs", filled * 100.0);
            return Ok((filled >= FILLED_SHARE, why));
        }
        let reference = trial.reference();
        let key = reference_key(&reference);
        let binds = |without: &f64| measured.bit_per_s <= HELD_SHARE * without;
        // One that was measured while the machine was busy must not reject a bottleneck.
        let without = match self.references.get(&key).copied().filter(binds) {
            Some(known) => known,
            None => self.measure(&reference, false)?.bit_per_s,
        };
        self.references.insert(key, without);
        Ok((binds(&without), format!("{:.3} without", without / 1e9)))
    }

    fn keep(&self, kind: &Kind, number: u32, measured: &Measured) -> Result<(), Trouble> {
        let Some(folder) = &self.args.keep else {
            return Ok(());
        };
        let file = folder.join(format!("{number}-{}.json", kind.name));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, &measured.document))
            .map_err(|error| Trouble(format!("write {}: {error}", file.display())))
    }
}

/// What the rate without the bottleneck depends on: trials that agree in it share a reference.
fn reference_key(reference: &Trial<'_>) -> String {
    let values = ["cc", "rtt", "flows", "load", "place"].map(|name| reference.value(name));
    let kind = reference.kind;
    let (router, small) = (kind.router, kind.relay.impairs());
    format!("{values:?} {router} {small} {:?}", kind.waits)
}

/// The CPUs that this program may use.
pub(crate) fn cpus() -> f64 {
    std::thread::available_parallelism()
        .map_or(1, std::num::NonZero::get)
        .to_f64()
}

fn sides(sample: &Sample) -> [&SideSample; 2] {
    [&sample.local, &sample.remote]
}

/// The share of the time that the threads of an end waited for a CPU for which nothing of that kind was injected; the
/// larger one.
fn waited_share(kind: &Kind, sample: &Sample) -> f64 {
    let side = |side: &SideSample| {
        let threads = side.threads.iter();
        let waited = threads.filter_map(|thread| thread.waited_for_cpu_ns.value());
        let waited: f64 = waited.map(|time| time.as_secs_f64()).sum();
        waited / side.elapsed_ns.as_secs_f64() / side.threads.len().max(1).to_f64()
    };
    let ends = [End::Near, End::Far].into_iter().zip(sides(sample));
    ends.filter(|(end, _)| !kind.waits.contains(end))
        .map(|(_, sample)| side(sample))
        .fold(0.0, f64::max)
}

/// How much of the CPUs that ours may run on they took.
fn filled_share(trial: &Trial<'_>, sample: &Sample) -> f64 {
    let place = trial.value("place").trim_start_matches("--place ");
    let cpus = match place.split_once(':') {
        Some((from, to)) if from == to => 1.0,
        Some(_) => 2.0,
        None => cpus(),
    };
    let side = |side: &SideSample| {
        let own = side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64();
        own / side.elapsed_ns.as_secs_f64()
    };
    sides(sample).map(side).iter().sum::<f64>() / cpus
}

trait ToF64 {
    fn to_f64(self) -> f64;
}

impl ToF64 for usize {
    #[expect(clippy::cast_precision_loss, reason = "counts of threads and CPUs")]
    fn to_f64(self) -> f64 {
        self as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let data = data::read().expect("the data beside this crate");
        let args = Args::parse_from(["bench/limits", "--kinds", "loss,tbf"]);
        let names = wanted(&data, &args).expect("both exist");
        let names: Vec<&str> = names.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["tbf", "loss"]);
        let args = Args::parse_from(["bench/limits", "--blind"]);
        assert!(
            wanted(&data, &args)
                .expect("all")
                .iter()
                .all(|kind| kind.blind)
        );
        let args = Args::parse_from(["bench/limits", "--blind", "--kinds", "tbf"]);
        assert!(
            wanted(&data, &args).is_err(),
            "tbf is not in the blind half"
        );
    }
}
