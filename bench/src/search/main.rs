//! `bench/search`: does `tune search` find what an exhaustive search finds? A grid of settings of two network namespaces is
//! measured once, at every point; then searches begin at random points of its worse half, on their own hosts,
//! and each result is compared with the best point of the grid in interleaved pairs of measurements.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use linerate_bench_shared::running::tail;
use linerate_bench_shared::{StageArgs, Trouble, load, run_inside};
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use linerate_stats::{Random, Seed};
use linerate_testbed::{Netns, Stage, join};
use serde_json::Value;

/// The share of the best point's rate that a search is to reach.
const AIM: f64 = 0.95;
/// Points of the grid that are measured again, more often, before one is called the best.
const FINALISTS: usize = 4;
/// In the folder that the stage covers with its own tmpfs: it vanishes with the stage.
const STATE: &str = "/run/netns/.search";

/// Searches settings from random bad starts and compares the result with the best of an exhaustive grid
#[derive(Debug, Parser)]
#[command(name = "bench/search")]
struct Args {
    /// Number of searches
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    searches: u16,
    /// Time limit of each search, in seconds
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u64).range(30..=3_600))]
    budget: u64,
    /// Duration of each trial and grid measurement, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(100..=10_000))]
    time: u64,
    /// Pairs of measurements that compare a search's result with the grid's best
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(3..=100))]
    pairs: u16,
    #[command(flatten)]
    stage: StageArgs,
}

/// One setting of the grid: on which end, how it is set, and its values.
struct Axis {
    far: bool,
    how: How,
    values: &'static [&'static str],
}

/// How a setting is set.
#[derive(Clone, Copy)]
enum How {
    /// By ethtool(8).
    Feature(&'static str),
    /// By its file below /proc/sys.
    Sysctl(&'static str),
    /// The CPUs that take the packets of the first queue: `none` or `all`.
    Steering,
}

/// The varied settings: the search varies these, too, and more.
const GRID: [Axis; 6] = [
    Axis {
        far: false,
        how: How::Feature("tso"),
        values: &["on", "off"],
    },
    Axis {
        far: false,
        how: How::Feature("gso"),
        values: &["on", "off"],
    },
    Axis {
        far: true,
        how: How::Feature("gro"),
        values: &["on", "off"],
    },
    Axis {
        far: false,
        how: How::Sysctl("tcp_wmem"),
        values: &["4096 16384 16384", "4096 16384 4194304"],
    },
    Axis {
        far: true,
        how: How::Sysctl("tcp_rmem"),
        values: &[
            "4096 32768 32768",
            "4096 131072 6291456",
            "4096 131072 33554432",
        ],
    },
    Axis {
        far: true,
        how: How::Steering,
        values: &["none", "all"],
    },
];

impl Axis {
    fn name(&self) -> &'static str {
        match self.how {
            How::Feature(name) | How::Sysctl(name) => name,
            How::Steering => "rps_cpus",
        }
    }
}

/// The value of each axis, by its place.
type Point = Vec<usize>;

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

/// Two hosts.
struct Hosts {
    near: Netns,
    far: Netns,
}

impl Hosts {
    fn make(stage: &Stage, number: usize) -> Result<Self, Trouble> {
        let host = |end: &str| {
            let added = stage.add_host(&format!("{end}{number}"));
            added.map_err(|error| Trouble(error.to_string()))
        };
        let (near, far) = (host("near")?, host("far")?);
        let nic = |name: &str| name.parse().map_err(|error| Trouble(format!("{error}")));
        let (near_nic, far_nic) = (nic("near0")?, nic("far0")?);
        join(
            (&near, &near_nic, "10.81.0.1/24"),
            (&far, &far_nic, "10.81.0.2/24"),
        )
        .map_err(|error| Trouble(format!("join the hosts: {error}")))?;
        Ok(Self { near, far })
    }

    fn set(&self, point: &[usize]) -> Result<(), Trouble> {
        for (axis, value) in GRID.iter().zip(point) {
            let value = axis.values[*value];
            let (host, nic) = if axis.far {
                (&self.far, "far0")
            } else {
                (&self.near, "near0")
            };
            let (file, text) = match axis.how {
                How::Feature(name) => {
                    let words = format!("-K {nic} {name} {value}");
                    run_inside(host, "ethtool", &words).map_err(Trouble)?;
                    continue;
                }
                How::Sysctl(name) => (format!("/proc/sys/net/ipv4/{name}"), value.to_owned()),
                How::Steering => (
                    format!("/sys/class/net/{nic}/queues/rx-0/rps_cpus"),
                    if value == "all" {
                        all_cpus()
                    } else {
                        "0".to_owned()
                    },
                ),
            };
            write_inside(host, &file, &text)?;
        }
        Ok(())
    }

    /// What linerate prints as JSON on the near host.
    fn linerate(&self, linerate: &PathBuf, words: &[&str]) -> Result<Value, Trouble> {
        let mut command = Command::new(linerate);
        command.args(["--quiet", "--format", "json", "--state", STATE]);
        command.args(words).stdin(Stdio::null());
        let entered = self.near.enter_in_child(&mut command);
        entered.map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
        let output = command
            .output()
            .map_err(|error| Trouble(format!("start linerate: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Trouble(format!("{}: {}", words.join(" "), tail(&said))));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| Trouble(format!("understand what linerate printed: {error}")))
    }

    /// The rate of one measurement, bit/s.
    fn rate(&self, bench: &Bench<'_>) -> Result<f64, Trouble> {
        let peer = format!("netns:{}", self.far.name());
        let time = format!("{}ms", bench.args.time);
        let words = ["measure", "--no-store", "stream", &peer, "--time", &time];
        let document = self.linerate(&bench.linerate, &words)?;
        let rate = document["total"]["rate_bit_per_s"].as_f64();
        rate.ok_or_else(|| Trouble("read a rate".to_owned()))
    }
}

/// Writes a file of a host by a program that runs there: below `/sys` this process has its own host's files.
fn write_inside(host: &Netns, file: &str, text: &str) -> Result<(), Trouble> {
    let mut command = Command::new("sh");
    command.args(["-c", r#"printf %s "$1" > "$2""#, "sh", text, file]);
    command.stdin(Stdio::null());
    let trouble = |why: &str| Trouble(format!("write {file}: {why}"));
    host.enter_in_child(&mut command)
        .map_err(|error| trouble(&error.to_string()))?;
    let output = command
        .output()
        .map_err(|error| trouble(&error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(trouble(tail(&String::from_utf8_lossy(&output.stderr))))
    }
}

/// All CPUs of the machine as a mask.
fn all_cpus() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{:x}", (1_u64 << cpus.min(32)) - 1)
}

struct Bench<'a> {
    args: &'a Args,
    linerate: PathBuf,
    random: Random,
}

/// Where one search ended.
struct Ended {
    /// The rate that it began at, and the one where it ended.
    before: f64,
    after: f64,
    /// The rate at its end over that at the grid's best, with its interval.
    ratio: (f64, f64, f64),
    trials: u64,
    took: Duration,
}

fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let seed = args.stage.seed.unwrap_or_default();
    let points = every_point();
    eprintln!(
        "grid of {} points, then {} searches of {} s; about {} minutes; seed {seed}; load {}; Ctrl-C stops it",
        points.len(),
        args.searches,
        args.budget,
        (u64::from(args.searches) * (args.budget + 30) + points.len() as u64 * 2).div_ceil(60),
        load(),
    );
    let mut bench = Bench {
        args,
        linerate: args.stage.linerate()?,
        random: Random::new(Seed(seed)),
    };
    let hosts = Hosts::make(&stage, 0)?;
    let (best, worse) = bench.grid(&hosts, points)?;
    hosts.set(&best)?;
    println!("the grid's best: {}", in_words(&best));
    let mut ended = Vec::new();
    for number in 1..=args.searches {
        let chosen = bench.random.below(worse.len() as u64);
        let start = &worse[usize::try_from(chosen).unwrap_or(0)];
        let one = bench.search(&stage, number, start, &hosts)?;
        let (ratio, low, high) = one.ratio;
        println!(
            "{number:>3}: {:>6.2} -> {:>6.2} Gb/s, {:.2} [{:.2}, {:.2}] of the grid's best; {} trials, {:.0} s; from {}",
            one.before / 1e9,
            one.after / 1e9,
            ratio,
            low,
            high,
            one.trials,
            one.took.as_secs_f64(),
            in_words(start),
        );
        ended.push(one);
    }
    let ratios: Vec<f64> = ended.iter().map(|one| one.ratio.0).collect();
    let reached = ended.iter().filter(|one| one.ratio.2 >= AIM).count();
    let middle = median(&ratios).unwrap_or(f64::NAN);
    println!(
        "{reached} of {} searches are not significantly below {:.0} % of the grid's best; the median reaches {:.0} %",
        ended.len(),
        AIM * 100.0,
        middle * 100.0,
    );
    Ok(reached == ended.len() && middle >= AIM)
}

impl Bench<'_> {
    /// Measures every point; returns the best one, and the worse half.
    fn grid(
        &mut self,
        hosts: &Hosts,
        mut points: Vec<Point>,
    ) -> Result<(Point, Vec<Point>), Trouble> {
        self.random.shuffle(&mut points);
        let mut rated: Vec<(f64, Point)> = Vec::new();
        for point in points {
            hosts.set(&point)?;
            rated.push((hosts.rate(self)?, point));
        }
        rated.sort_by(|one, other| other.0.total_cmp(&one.0));
        // The best of many is partly luck: a few are measured again.
        let mut again: Vec<(Vec<f64>, Point)> = (rated.iter().take(FINALISTS))
            .map(|(_, point)| (Vec::new(), point.clone()))
            .collect();
        for _ in 0..5 {
            for (rates, point) in &mut again {
                hosts.set(point)?;
                rates.push(hosts.rate(self)?);
            }
        }
        let best = again.into_iter().max_by(|one, other| {
            let middle = |rates: &[f64]| median(rates).unwrap_or(0.0);
            middle(&one.0).total_cmp(&middle(&other.0))
        });
        let best = best.ok_or_else(|| Trouble("measure a grid without points".to_owned()))?;
        let worse = rated.split_off(rated.len() / 2);
        Ok((best.1, worse.into_iter().map(|(_, point)| point).collect()))
    }

    /// One search from `start`, compared with `best`, whose settings are the grid's best.
    fn search(
        &mut self,
        stage: &Stage,
        number: u16,
        start: &[usize],
        best: &Hosts,
    ) -> Result<Ended, Trouble> {
        let hosts = Hosts::make(stage, usize::from(number))?;
        hosts.set(start)?;
        let began = Instant::now();
        let peer = format!("netns:{}", hosts.far.name());
        let budget = format!("{}s", self.args.budget);
        let time = format!("{}ms", self.args.time);
        let seed = self.random.next_u64().to_string();
        let words = [
            "tune",
            "search",
            &peer,
            "--netns-only",
            "--budget",
            &budget,
            "--time",
            &time,
            "--seed",
            &seed,
        ];
        let document = hosts.linerate(&self.linerate, &words)?;
        let took = began.elapsed();
        let mut pairs = Vec::new();
        for _ in 0..self.args.pairs {
            let ours_first = self.random.below(2) == 0;
            let (one, other) = if ours_first {
                (&hosts, best)
            } else {
                (best, &hosts)
            };
            let rates = (one.rate(self)?, other.rate(self)?);
            pairs.push(if ours_first {
                (rates.1, rates.0)
            } else {
                rates
            });
        }
        let effect = paired_relative(&pairs, 0.95, Seed(1))
            .map_err(|error| Trouble(format!("compare: {error}")))?;
        let rate = |key: &str| document[key]["rate_bit_per_s"].as_f64().unwrap_or(f64::NAN);
        Ok(Ended {
            before: rate("before"),
            after: rate("after"),
            ratio: (
                1.0 + effect.relative,
                1.0 + effect.interval.low,
                1.0 + effect.interval.high,
            ),
            trials: document["search"]["trials"].as_u64().unwrap_or(0),
            took,
        })
    }
}

fn every_point() -> Vec<Point> {
    let mut points = vec![Point::new()];
    for axis in &GRID {
        points = (points.iter())
            .flat_map(|point| {
                (0..axis.values.len()).map(|value| {
                    let mut longer = point.clone();
                    longer.push(value);
                    longer
                })
            })
            .collect();
    }
    points
}

fn in_words(point: &[usize]) -> String {
    let words = GRID.iter().zip(point).map(|(axis, value)| {
        let value = axis.values[*value];
        format!("{} {value}", axis.name())
    });
    words.collect::<Vec<_>>().join(", ")
}
