//! `bench/limits`: does linerate name the bottleneck of a stream? Each bottleneck is injected in network namespaces
//! with random parameters, the injector verifies that it binds, and then `linerate measure stream` runs, to which
//! it is not disclosed. docs/book/concepts/limits.md explains the table.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod hosts;
mod kinds;
mod simulated;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
pub(crate) use linerate_bench_shared::Trouble;
use linerate_bench_shared::{StageArgs, exit_code};
use linerate_model::sample::{Sample, SideSample};
use linerate_stats::{Random, Seed};
use linerate_testbed::Stage;

use crate::hosts::{Measured, TestHosts};
use crate::kinds::{InjectedLimit, Kind};
use crate::table::{Table, Verdict, is_right};

/// The injected bottleneck is in effect when the rate falls to at most this share of that without it.
const HELD_SHARE: f64 = 0.8;
/// An injected bottleneck of CPUs is in effect when our own threads run for at least this share of what those have.
const FILLED_SHARE: f64 = 0.7;
/// Threads that waited for a CPU for more than this share, if nothing of that kind was injected, were
/// disturbed by others.
const WAITED_MAX: f64 = 0.15;
/// How often a disturbed run is made again.
const ATTEMPTS: usize = 3;

/// Injects each bottleneck with random parameters and counts how often linerate names it
#[derive(Debug, Parser)]
#[command(name = "bench/limits")]
struct Args {
    /// Runs per kind
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    runs: u16,
    /// Only these kinds, for example `loss,tbf` [default: all]
    #[arg(long, value_delimiter = ',', value_parser = kind_of)]
    kinds: Vec<Kind>,
    /// Duration of each measurement, in milliseconds
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u64).range(500..=60_000))]
    time: u64,
    /// Have linerate prove what it names by interventions (`measure stream --why`)
    #[arg(long)]
    why: bool,
    /// Keep the JSON document of every run in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    stage: StageArgs,
    /// Internal: a program that computes on this CPU
    #[arg(long, hide = true)]
    spin_on: Option<u32>,
}

fn kind_of(text: &str) -> Result<Kind, String> {
    let mut kinds = Kind::LIVE.into_iter().chain(Kind::SIMULATED);
    kinds.find(|kind| kind.name() == text).ok_or_else(|| {
        let all = Kind::LIVE.into_iter().chain(Kind::SIMULATED);
        let names: Vec<&str> = all.map(Kind::name).collect();
        format!("no such kind; choose from {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.spin_on {
        Some(cpu) => exit_code(spin_on(cpu)),
        None => args.stage.exit_code(|| conduct(&args)),
    }
}

/// A program that computes on `cpu` and nowhere else, until it is killed.
fn spin_on(cpu: u32) -> Result<bool, Trouble> {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &cpus)
        .map_err(|error| Trouble(format!("run on CPU {cpu}: {error}")))?;
    loop {
        std::hint::spin_loop();
    }
}

/// Plants and asks; whether the aims are reached.
fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    go_first();
    let wanted = |kind: &Kind| args.kinds.is_empty() || args.kinds.contains(kind);
    let live: Vec<Kind> = Kind::LIVE.into_iter().filter(wanted).collect();
    let made: Vec<Kind> = Kind::SIMULATED.into_iter().filter(wanted).collect();
    let seed = args.stage.seed.unwrap_or_default();
    let why = if args.why { 6_000 } else { 0 };
    let each = (2 * (args.time + 1_000) + why) * u64::from(args.runs);
    eprintln!(
        "{} kinds, {} runs of each, about {} minutes; seed {seed}; in network namespaces that end with \
         this command; Ctrl-C stops it",
        live.len() + made.len(),
        args.runs,
        (live.len() as u64 * each / 1_000).div_ceil(60)
    );
    let mut bench = Bench {
        stage,
        linerate: args.stage.linerate()?,
        args,
        random: Random::new(Seed(seed)),
        hosts: 0,
        unplanted: BTreeMap::new(),
        table: Table::default(),
    };
    // In rounds over all kinds, so that an hour in which the machine is busy meets all alike.
    for round in 0..args.runs {
        for kind in &live {
            bench.run(*kind, round)?;
        }
        for kind in &made {
            let verdict = simulated::run(*kind, &mut bench.random);
            bench.table.add(*kind, verdict);
        }
    }
    let title = "injected in network namespaces; columns: the reported bottleneck";
    let mut reached = true;
    if !live.is_empty() {
        println!("{}", bench.table.text(title, &live));
        reached &= bench.table.tally(&live).reaches_the_aims();
    }
    if !made.is_empty() {
        println!(
            "{}",
            bench.table.text("simulated hosts and samples only:", &made)
        );
        reached &= bench.table.tally(&made).reaches_the_aims();
    }
    Ok(reached)
}

/// Has others on the machine take only what ours leave. Where it is refused, the runs that they disturb are
/// made again, and counted apart in the end.
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
    args: &'a Args,
    random: Random,
    hosts: usize,
    unplanted: BTreeMap<String, f64>,
    table: Table,
}

impl Bench<'_> {
    fn run(&mut self, kind: Kind, round: u16) -> Result<(), Trouble> {
        let plant = InjectedLimit::draw(kind, &mut self.random);
        let mut verdict = Verdict::Disturbed;
        let mut words = String::new();
        for _ in 0..ATTEMPTS {
            let measured = self.measure(&plant, self.args.why)?;
            let waited = waited_share(kind, &measured.sample);
            if waited > WAITED_MAX {
                words = format!("threads waited for a CPU {:.0} %", waited * 100.0);
                continue;
            }
            let (held, why) = self.held(&plant, &measured)?;
            words = format!("{:.3} Gb/s, {why}", measured.bit_per_s / 1e9);
            self.keep(kind, round, &measured)?;
            verdict = if held {
                Verdict::Named {
                    what: measured.named,
                    proved: measured.proved,
                }
            } else {
                Verdict::NotHeld
            };
            break;
        }
        let mark = match &verdict {
            Verdict::Named { what, proved } => {
                let proved = if *proved { ", proved" } else { "" };
                match is_right(kind, what) {
                    Some(true) => format!("right: {what}{proved}"),
                    Some(false) => format!("WRONG: {what}{proved}"),
                    None => "not determined".to_owned(),
                }
            }
            Verdict::NotHeld => "not held".to_owned(),
            Verdict::Disturbed => "disturbed".to_owned(),
        };
        eprintln!(
            "{:>3} {:<18} {mark}  ({}; {words})",
            round + 1,
            kind.name(),
            plant.words()
        );
        self.table.add(kind, verdict);
        Ok(())
    }

    fn measure(&mut self, plant: &InjectedLimit, why: bool) -> Result<Measured, Trouble> {
        self.hosts += 1;
        let hosts = TestHosts::set(&self.stage, self.hosts, plant, self.random.next_u64())?;
        hosts.measure(
            &self.linerate,
            plant,
            Duration::from_millis(self.args.time),
            why,
        )
    }

    /// Whether the injected bottleneck binds, and the figures that show it.
    fn held(
        &mut self,
        plant: &InjectedLimit,
        measured: &Measured,
    ) -> Result<(bool, String), Trouble> {
        if plant.kind.fills_cpus() {
            let filled = filled_share(plant, &measured.sample);
            let why = format!("our threads use {:.0} % of the CPUs", filled * 100.0);
            return Ok((filled >= FILLED_SHARE, why));
        }
        let without = self.unplanted(&plant.unplanted())?;
        let held = measured.bit_per_s <= HELD_SHARE * without;
        Ok((held, format!("{:.3} without", without / 1e9)))
    }

    /// The rate without the injected bottleneck. A plain path is measured once for each place and congestion
    /// control, a path with a delay each time.
    fn unplanted(&mut self, plant: &InjectedLimit) -> Result<f64, Trouble> {
        let key = format!("{} {}", plant.words(), plant.kind.is_of_cpus());
        if let Some(rate) = self.unplanted.get(&key) {
            return Ok(*rate);
        }
        let rate = self.measure(plant, false)?.bit_per_s;
        self.unplanted.insert(key, rate);
        Ok(rate)
    }

    fn keep(&self, kind: Kind, round: u16, measured: &Measured) -> Result<(), Trouble> {
        let Some(folder) = &self.args.keep else {
            return Ok(());
        };
        let file = folder.join(format!("{}-{}.json", kind.name(), round + 1));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, &measured.document))
            .map_err(|error| Trouble(format!("write {}: {error}", file.display())))
    }
}

fn sides(sample: &Sample) -> [&SideSample; 2] {
    [&sample.local, &sample.remote]
}

/// The share of the time that the threads of an end waited for a CPU for which nothing of that kind was
/// injected; the larger one.
fn waited_share(kind: Kind, sample: &Sample) -> f64 {
    let side = |side: &SideSample| {
        let threads = side.threads.iter();
        let waited = threads.filter_map(|thread| thread.waited_for_cpu_ns.value());
        let waited: f64 = waited.map(|time| time.as_secs_f64()).sum();
        waited / side.elapsed_ns.as_secs_f64() / side.threads.len().max(1).to_f64()
    };
    let [near, far] = sides(sample).map(side);
    match kind {
        Kind::SharedCpu | Kind::Machine => 0.0,
        Kind::BusySender => far,
        Kind::BusyReceiver => near,
        _ => near.max(far),
    }
}

/// How much of the CPUs that ours may run on they took.
fn filled_share(plant: &InjectedLimit, sample: &Sample) -> f64 {
    let cpus = match plant.place {
        Some((from, to)) if from == to => 1,
        Some(_) => 2,
        None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    let side = |side: &SideSample| {
        let own = side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64();
        own / side.elapsed_ns.as_secs_f64()
    };
    sides(sample).map(side).iter().sum::<f64>() / cpus.to_f64()
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
        let args = Args::parse_from(["bench/limits", "--kinds", "loss,tbf"]);
        assert_eq!(args.kinds, [Kind::Loss, Kind::Tbf]);
        assert!(Args::try_parse_from(["bench/limits", "--kinds", "luck"]).is_err());
    }
}
