//! `bench/rdma`: compares the verbs in linerate with perftest and qperf, over two soft-RoCE devices in one guest
//! (`testbed/vm`), in interleaved rounds, one table of ratios. README.md in `bench/` explains the output.
//!
//! This program runs in the guest; the script `bench/rdma` boots it.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cases;

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use linerate_bench_shared::ratios::{self, Row, Trial};
use linerate_bench_shared::running::{busy_seconds, has_listener, is_on_path, kernel, tail, wait};
use linerate_bench_shared::{Trouble, exit_code, linerate_file, load, shuffled};

use crate::cases::{Case, Contestant};

/// So many rounds make up for those in which a program gave no figure.
const MADE_UP: usize = 3;
/// The fewest rounds that have an interval.
const ROUNDS_MIN: usize = 3;
/// How many times the messages a trial has beside another, so that the difference of their CPU time has no start and no end.
const LONGER: u32 = 3;
/// How long a client may take, in an emulated guest.
const LIMIT: Duration = Duration::from_secs(300);
/// Packets that a CPU's backlog holds: 16 reads of 1 MiB are answered by 16,384 at once, and the kernel's 1,000 would
/// lose most of them, so that a rate was that of a timer.
const BACKLOG: (&str, &str) = ("/proc/sys/net/core/netdev_max_backlog", "1000000");
/// How long a server may take until it listens.
const LISTENS: Duration = Duration::from_secs(20);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Compares RDMA in linerate with perftest and qperf: same devices, same work, one table of ratios
#[derive(Debug, Parser)]
#[command(name = "bench/rdma")]
struct Args {
    /// Rounds; each runs every case once with every program. Fewer than 9 are inconclusive
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(3..=1000))]
    rounds: u16,
    /// Quick run of 3 rounds; not a valid result
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Multiply the number of messages per trial by this
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,
    /// Trials of each program in a round, of which the fastest counts: by the host's time, who shares its cores can
    /// only slow one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    fastest_of: u8,
    /// CPU ratio within the trial: run each trial also with three times the messages, and divide the difference, so that
    /// starting and ending the programs does not count
    #[arg(long)]
    within: bool,
    /// Seed of the random order [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// The linerate to measure [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(conduct(&Args::parse()).map(|()| true))
}

/// The rounds of one case: of each contestant, its trial in each round that it came through.
struct Rounds {
    case: Case,
    /// The same with more messages, for the CPU time within a trial.
    longer: Option<Case>,
    trials: Vec<Vec<Option<Trial>>>,
}

/// The two devices, taken away at the end.
struct Pair(PathBuf);

impl Pair {
    fn make(linerate: PathBuf) -> Result<Self, Trouble> {
        testbed(&linerate, &["pair"])?;
        Ok(Self(linerate))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The guest ends soon after.
        let _ = testbed(&self.0, &["remove", "--all"]);
    }
}

fn testbed(linerate: &PathBuf, words: &[&str]) -> Result<(), Trouble> {
    let mut command = Command::new(linerate);
    command.args(["--quiet", "testbed", "rxe"]).args(words);
    let output = command
        .output()
        .map_err(|error| Trouble(format!("start {}: {error}", linerate.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Trouble(format!("set up soft-RoCE: {said}")))
}

fn conduct(args: &Args) -> Result<(), Trouble> {
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    let mut wanted = cases::all(&linerate, args.scale);
    let longer = if args.within {
        cases::all(&linerate, args.scale * LONGER)
    } else {
        Vec::new()
    };
    let names: Vec<String> = wanted.iter().map(|case| case.name.clone()).collect();
    wanted.retain(|case| case.name.contains(&args.only));
    if wanted.is_empty() {
        let (only, names) = (&args.only, names.join("; "));
        return Err(Trouble(format!(
            "find a case with `{only}` in its name; there are: {names}"
        )));
    }
    let _pair = Pair::make(linerate.clone())?;
    fs::write(BACKLOG.0, BACKLOG.1)
        .map_err(|error| Trouble(format!("write {}: {error}", BACKLOG.0)))?;
    let rounds = if args.quick {
        ROUNDS_MIN
    } else {
        args.rounds.into()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = args.seed.unwrap_or(now.unwrap_or_default().as_secs());
    let mut all: Vec<Rounds> = wanted
        .into_iter()
        .filter_map(present)
        .map(|case| Rounds {
            trials: vec![Vec::new(); case.contestants.len()],
            longer: longer
                .iter()
                .find(|longer| longer.name == case.name)
                .cloned()
                .and_then(present),
            case,
        })
        .collect();
    run_rounds(&mut all, rounds, seed, args);
    let rows: Vec<Row> = all.iter().flat_map(|one| rows_of(one, seed)).collect();
    if args.json {
        println!("{:#}", serde_json::json!(rows));
        return Ok(());
    }
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!(
        "{}\nLinux {}, {cpus} emulated CPUs, {}, {rounds} rounds, the fastest of {} trials, {} times the messages, CPU ratio \
         {}, seed {seed}, two soft-RoCE devices over veth, load average {} at the end.",
        ratios::table(&rows),
        kernel(),
        clock(),
        args.fastest_of,
        args.scale,
        if args.within {
            "within the trial"
        } else {
            "of the whole run"
        },
        load(),
    );
    Ok(())
}

/// Whose time the guest's is.
fn clock() -> &'static str {
    let started_with = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if started_with.contains("linerate.clock=counted") {
        "counted time"
    } else {
        "the host's time"
    }
}

impl Rounds {
    /// How many rounds linerate has with that peer that has the fewest.
    fn fewest_pairs(&self) -> usize {
        let Some((ours, peers)) = self.trials.split_first() else {
            return 0;
        };
        let pairs = |theirs: &Vec<Option<Trial>>| {
            let both = ours.iter().zip(theirs);
            both.filter(|(a, b)| a.is_some() && b.is_some()).count()
        };
        peers.iter().map(pairs).min().unwrap_or(0)
    }
}

/// Runs every round: every case in random order, and in each every trial of every program in random order. Cases in
/// which a program gave no figure get a few more rounds.
fn run_rounds(all: &mut [Rounds], rounds: usize, seed: u64, args: &Args) {
    for round in 0..rounds + MADE_UP {
        for index in shuffled(all.len(), seed, round as u64) {
            if round >= rounds && all[index].fewest_pairs() >= rounds {
                continue;
            }
            let Rounds {
                case,
                longer,
                trials,
            } = &mut all[index];
            let number = (round * 1_000 + index) as u64;
            let count = case.contestants.len();
            let mut fastest: Vec<Option<Trial>> = vec![None; count];
            // Each of them `args.fastest_of` times, in any order.
            for turn in shuffled(
                count * usize::from(args.fastest_of),
                seed ^ 0x00C0_FFEE,
                number,
            ) {
                let contestant = turn % count;
                let short = &case.contestants[contestant];
                let long = longer
                    .as_ref()
                    .map(|longer| &longer.contestants[contestant]);
                match costed(short, long, args.scale) {
                    Ok(trial) => {
                        let best = &mut fastest[contestant];
                        *best = Some(best.map_or(trial, |best| case.better.of(best, trial)));
                    }
                    Err(why) => eprintln!("{}: {why}", case.name),
                }
            }
            let told = |(one, trial): (&Contestant, &Option<Trial>)| match trial {
                Some(trial) => format!("{} {:.4}", one.name, trial.value),
                None => format!("{} -", one.name),
            };
            let told: Vec<String> = case.contestants.iter().zip(&fastest).map(told).collect();
            // A run that is cut short has shown its results so far.
            eprintln!("round {}: {}: {}", round + 1, case.name, told.join(", "));
            for (trials, fastest) in trials.iter_mut().zip(fastest) {
                trials.push(fastest);
            }
        }
    }
}

/// The case with the peers that are here; those that are not are named.
fn present(mut case: Case) -> Option<Case> {
    case.contestants.retain(|one| {
        let program = &one.program;
        let is_here = is_on_path(program);
        if !is_here {
            eprintln!(
                "SKIP: {}: {} ({program}: {})",
                case.name, one.name, one.from
            );
        }
        is_here
    });
    (case.contestants.len() > 1).then_some(case)
}

fn rows_of(rounds: &Rounds, seed: u64) -> Vec<Row> {
    let case = &rounds.case;
    let Some((ours, peers)) = rounds.trials.split_first() else {
        return Vec::new();
    };
    let about = (case.name.as_str(), case.unit, case.better);
    let rows = peers.iter().zip(&case.contestants[1..]);
    rows.filter_map(|(theirs, contestant)| {
        let both = ours.iter().zip(theirs);
        let pairs: Vec<(Trial, Trial)> = both.filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
        ratios::row(about, contestant.name, &pairs, seed)
    })
    .collect()
}

/// A trial, with the cost of a longer one less its own if there is one.
fn costed(short: &Contestant, long: Option<&Contestant>, scale: u32) -> Result<Trial, String> {
    let of_short = trial(short, scale)?;
    let (Some(long), Some(busy)) = (long, of_short.busy) else {
        return Ok(of_short.whole());
    };
    let of_long = trial(long, scale * LONGER)?;
    let cost = of_long
        .busy
        .map(|more| (more - busy) / (of_long.amount - of_short.amount));
    Ok(Trial {
        cost,
        ..of_short.whole()
    })
}

/// What a trial gave.
struct Measured {
    value: f64,
    /// Busy seconds of all CPUs, from before the client's start to after its end.
    busy: Option<f64>,
    /// Gigabytes, or millions of round trips.
    amount: f64,
}

impl Measured {
    /// With the cost of the whole run.
    fn whole(&self) -> Trial {
        Trial {
            value: self.value,
            cost: self.busy.map(|busy| busy / self.amount),
        }
    }
}

/// One trial; inside, why there is no figure.
fn trial(one: &Contestant, scale: u32) -> Result<Measured, String> {
    let server = match &one.server {
        None => None,
        Some((command, port)) => Some(serve(one.name, command, *port)?),
    };
    let outcome = measured(one, LIMIT * scale);
    if let Some(mut server) = server {
        let _ = server.kill();
        let _ = server.wait();
    }
    outcome
}

fn measured(one: &Contestant, limit: Duration) -> Result<Measured, String> {
    let before = busy_seconds();
    let mut client = start(&one.client, true)?;
    let printed = read(client.stdout.take());
    let said = read(client.stderr.take());
    let is_ended = wait(&client, limit);
    let busy = before.zip(busy_seconds()).map(|(from, to)| to - from);
    if !is_ended {
        let _ = client.kill();
    }
    let _ = client.wait();
    let [printed, said] = [printed, said].map(|reading| reading.join().unwrap_or_default());
    if !is_ended {
        return Err(format!("{} did not finish", one.name));
    }
    let value = (one.figure)(&printed, one.bytes)
        // perftest prints infinity if it cannot determine the frequency of its clock.
        .filter(|value| value.is_finite() && *value > 0.0)
        .ok_or_else(|| {
            let (printed, said) = (tail(&printed), tail(&said));
            format!("{} printed no figure: {printed}{said}", one.name)
        })?;
    Ok(Measured {
        value,
        busy,
        amount: one.work.amount(value),
    })
}

/// All of a stream, read while the program runs: it may be more than a pipe holds.
fn read(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What cannot be read is not understood either.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A server that listens. Looked up, not tried: some serve one connection only.
fn serve(name: &str, command: &[String], port: u16) -> Result<Child, String> {
    let mut server = start(command, false)?;
    let until = Instant::now() + LISTENS;
    loop {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
            .map(|file| fs::read_to_string(file).unwrap_or_default());
        if tables.iter().any(|table| has_listener(table, port)) {
            return Ok(server);
        }
        if wait(&server, LOOK) || Instant::now() > until {
            let _ = server.kill();
            let _ = server.wait();
            return Err(format!("the server of {name} does not listen on {port}"));
        }
    }
}

fn start(command: &[String], is_read: bool) -> Result<Child, String> {
    let (program, arguments) = command
        .split_first()
        .ok_or("a contestant without a command")?;
    let mut process = Command::new(program);
    process.args(arguments).stdin(Stdio::null());
    if is_read {
        process.stdout(Stdio::piped()).stderr(Stdio::piped());
    } else {
        process.stdout(Stdio::null()).stderr(Stdio::null());
    }
    process
        .spawn()
        .map_err(|error| format!("cannot start {program}: {error}"))
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
