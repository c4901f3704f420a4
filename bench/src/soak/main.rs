//! `bench/soak`: thousands of short trials against one listening agent, with strangers, killed controllers and refused ones
//! in between. After each step the agent's memory, descriptors, threads and files are recorded; the result is how much they
//! have grown. A record that is there already is continued.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a developer's tool that talks to its terminal"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "trials are spread over an hour, and a controller is killed some time after its start: time is the subject"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use linerate_bench_shared::running::{tail, wait};
use linerate_bench_shared::{StageArgs, Trouble, two_hosts};
use linerate_stats::{Random, Seed};
use linerate_testbed::{Netns, Stage};
use serde::{Deserialize, Serialize};

/// In the folder that the stage covers with its own tmpfs: the state folders of both ends.
const NEAR_STATE: &str = "/run/netns/.near";
const FAR_STATE: &str = "/run/netns/.far";
const ADDRESS: &str = "10.84.0.2";
const PEER: &str = "tls://10.84.0.2:5210";
/// Growth is counted from here on: caches and pools have been filled.
const SETTLED: usize = 20;
/// The median of this many readings does not follow a single one.
const READINGS_MIN: usize = 5;
/// What a listener may have grown by in all that time, in KiB: the granularity of its allocator's arenas.
const MEMORY_GROWTH_MAX: i64 = 1_024;
/// How many steps of every kind there are, in a hundred.
const STRANGERS: usize = 4;
const KILLED: usize = 2;
const REFUSED: usize = 2;
/// How long an agent may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The trials, by turns in random order.
const TRIALS: [&str; 10] = [
    "stream",
    "stream --reverse",
    "stream --bidir --flows 3",
    "rr",
    "rr --reconnect",
    "http",
    "udp --rate 5Mb/s",
    "udp --rate 5Mb/s --reverse",
    "pingpong --sizes 4KiB --repetitions 20",
    "transfer --bytes 100KiB --repetitions 5",
];

/// Thousands of short trials against one listening agent, and what they leave behind
#[derive(Debug, Parser)]
#[command(name = "bench/soak")]
struct Args {
    /// The folder of the record; one that is there already is continued
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Trials
    #[arg(long, default_value_t = 5_000)]
    trials: usize,
    /// The minimum duration of all trials, in minutes: they are spread over it
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Duration of each trial, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    time: u64,
    #[command(flatten)]
    stage: StageArgs,
}

/// What a listener has, after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    /// Which run of this program made it: each has a listener of its own.
    run: usize,
    /// Seconds since the start of the run.
    at_s: u64,
    memory_kib: i64,
    descriptors: usize,
    threads: usize,
    disk_bytes: u64,
    /// Whether the trial ended as it should have.
    is_right: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let (near, far) = two_hosts(&stage, ["10.84.0.1/24", "10.84.0.2/24"])?;
    for folder in [NEAR_STATE, FAR_STATE] {
        fs::create_dir_all(folder).map_err(|error| Trouble(format!("create {folder}: {error}")))?;
    }
    let record = Record::open(&args.out)?;
    let seed = args.stage.seed.unwrap_or_default();
    let done = record.steps.len();
    eprintln!(
        "{} trials in at least {} min, {done} of them recorded already; seed {seed}; Ctrl-C stops it",
        args.trials, args.minutes
    );
    let ends = Ends {
        linerate: &linerate,
        near: &near,
        far: &far,
    };
    let steps = ends.soak(args, seed, record)?;
    let report = Report::of(&steps);
    print!("{}", report.text());
    Ok(report.is_good())
}

/// The record of all runs, a line for each step.
struct Record {
    file: File,
    steps: Vec<Step>,
}

impl Record {
    fn open(folder: &Path) -> Result<Self, Trouble> {
        let path = folder.join("soak.jsonl");
        let failed =
            |error: &dyn std::fmt::Display| Trouble(format!("use {}: {error}", path.display()));
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&error)),
        };
        // A last line without its end was being written when the machine stopped.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let steps = whole
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>();
        let steps = steps.map_err(|error| failed(&error))?;
        fs::write(&path, whole).map_err(|error| failed(&error))?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(|error| failed(&error))?;
        Ok(Self { file, steps })
    }

    fn push(&mut self, step: Step) -> Result<(), Trouble> {
        let line = serde_json::to_string(&step)
            .map_err(|error| Trouble(format!("write a step: {error}")))?;
        writeln!(self.file, "{line}").map_err(|error| Trouble(format!("write a step: {error}")))?;
        self.steps.push(step);
        Ok(())
    }
}

struct Ends<'a> {
    linerate: &'a Path,
    near: &'a Netns,
    far: &'a Netns,
}

/// A listening agent; it ends with this.
struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if !wait(&self.0, PATIENCE) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

impl Ends<'_> {
    fn soak(&self, args: &Args, seed: u64, mut record: Record) -> Result<Vec<Step>, Trouble> {
        let left = args.trials.saturating_sub(record.steps.len());
        if left == 0 {
            return Ok(record.steps);
        }
        let run = record.steps.last().map_or(0, |step| step.run + 1);
        let listener = self.listen()?;
        let mut random = Random::new(Seed(seed));
        let begun = Instant::now();
        let all = Duration::from_secs(60 * args.minutes);
        for number in 0..left {
            // Spread over the time: at once, it would be a load test.
            let due = all.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX))
                / u32::try_from(args.trials.max(1)).unwrap_or(u32::MAX);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            let is_right = self.step(args, &mut random, &listener)?;
            let step = Step {
                run,
                at_s: begun.elapsed().as_secs(),
                is_right,
                ..figures(&listener)?
            };
            record.push(step)?;
            if (number + 1) % 100 == 0 {
                eprintln!(
                    "{:6} trials, {} KiB, {} descriptors",
                    record.steps.len(),
                    step.memory_kib,
                    step.descriptors
                );
            }
        }
        Ok(record.steps)
    }

    /// Starts a listening agent and pairs with it.
    fn listen(&self) -> Result<Listener, Trouble> {
        let failed = |error: &dyn std::fmt::Display| Trouble(format!("start the agent: {error}"));
        let mut command = self.linerate(self.far, FAR_STATE)?;
        command.args(["agent", "--listen", "--advertise", ADDRESS]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        linerate_testbed::tie_to_parent(&mut command);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let out = child.stdout.take().ok_or_else(|| failed(&"no output"))?;
        let listener = Listener(child);
        let mut line = String::new();
        BufReader::new(out)
            .read_line(&mut line)
            .map_err(|error| failed(&error))?;
        let mut pair = self.linerate(self.near, NEAR_STATE)?;
        // One of an earlier run has another key.
        pair.args(["peers", "forget", "10.84.0.2:5210"])
            .stderr(Stdio::null());
        let _ = pair.status();
        let mut pair = self.linerate(self.near, NEAR_STATE)?;
        pair.args(["peers", "pair", line.trim()]);
        let paired = pair.output().map_err(|error| failed(&error))?;
        if !paired.status.success() {
            return Err(failed(&tail(&String::from_utf8_lossy(&paired.stderr))));
        }
        Ok(listener)
    }

    fn linerate(&self, host: &Netns, state: &str) -> Result<Command, Trouble> {
        let mut command = Command::new(self.linerate);
        command
            .args(["--quiet", "--state", state])
            .stdin(Stdio::null());
        let entered = host.enter_in_child(&mut command);
        entered.map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
        Ok(command)
    }

    /// One trial, or what else happens to an agent; whether it ended as it should have.
    fn step(&self, args: &Args, random: &mut Random, listener: &Listener) -> Result<bool, Trouble> {
        let kind = random.index(100);
        if kind < STRANGERS {
            return self.strangers();
        }
        let is_refused = (STRANGERS + KILLED..STRANGERS + KILLED + REFUSED).contains(&kind);
        let trial = if is_refused {
            "stream --cc no-such-control"
        } else {
            TRIALS[random.index(TRIALS.len())]
        };
        let mut command = self.linerate(self.near, NEAR_STATE)?;
        command
            .args(["measure", "--no-store"])
            .args(trial.split(' '));
        command.args([PEER, "--time", &format!("{}ms", args.time)]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let failed = |error| Trouble(format!("start linerate: {error}"));
        if (STRANGERS..STRANGERS + KILLED).contains(&kind) {
            let mut child = command.spawn().map_err(failed)?;
            thread::sleep(Duration::from_millis(random.below(200)));
            let _ = child.kill();
            let _ = child.wait();
            return waits_for_sessions(listener);
        }
        let done = command.output().map_err(failed)?;
        let is_right = done.status.success() != is_refused;
        if !is_right {
            eprintln!(
                "{trial}: {}: {}",
                done.status,
                tail(&String::from_utf8_lossy(&done.stderr))
            );
        }
        Ok(is_right && waits_for_sessions(listener)?)
    }

    /// Connections that prove nothing: garbage, the start of a handshake, and nothing at all.
    fn strangers(&self) -> Result<bool, Trouble> {
        let run = || {
            for bytes in [
                &b"GET / HTTP/1.1\r\n\r\n"[..],
                &[0x16, 3, 1, 2, 0, 1],
                b"LNRT",
                b"",
            ] {
                for _ in 0..10 {
                    if let Ok(mut stream) = TcpStream::connect((ADDRESS, 5210)) {
                        let _ = stream.write_all(bytes);
                    }
                }
            }
        };
        let entered = self.near.inside(run);
        entered.map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
        Ok(true)
    }
}

/// A session ends when its caller has gone, not before: waits until no process of one is left.
fn waits_for_sessions(listener: &Listener) -> Result<bool, Trouble> {
    let until = Instant::now() + PATIENCE;
    let children = format!("/proc/{0}/task", listener.0.id());
    while Instant::now() < until {
        let tasks = fs::read_dir(&children)
            .map_err(|error| Trouble(format!("read {children}: {error}")))?;
        let is_alone = tasks.flatten().all(|task| {
            fs::read_to_string(task.path().join("children"))
                .unwrap_or_default()
                .trim()
                .is_empty()
        });
        if is_alone {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(false)
}

/// What a listener has now.
fn figures(listener: &Listener) -> Result<Step, Trouble> {
    let folder = format!("/proc/{}", listener.0.id());
    let gone = |error| Trouble(format!("read {folder}, the agent's process: {error}"));
    let status = fs::read_to_string(format!("{folder}/status")).map_err(gone)?;
    let number = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<i64>().ok())
            .ok_or_else(|| Trouble(format!("find {key} in {folder}/status")))
    };
    Ok(Step {
        run: 0,
        at_s: 0,
        // Its own memory: the kernel drops pages of its file when memory is short, which would hide a growth.
        memory_kib: number("RssAnon:")? + number("VmSwap:")?,
        descriptors: fs::read_dir(format!("{folder}/fd")).map_err(gone)?.count(),
        threads: usize::try_from(number("Threads:")?).unwrap_or(0),
        disk_bytes: size_of(Path::new(FAR_STATE)),
        is_right: true,
    })
}

/// The bytes of all files in a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// How much a listener has grown.
struct Report {
    trials: usize,
    seconds: u64,
    wrong: usize,
    /// The largest of all runs.
    memory_kib: i64,
    descriptors: i64,
    threads: i64,
    disk_bytes: i64,
}

impl Report {
    fn of(steps: &[Step]) -> Self {
        let mut report = Self {
            trials: steps.len(),
            seconds: 0,
            wrong: steps.iter().filter(|step| !step.is_right).count(),
            memory_kib: 0,
            descriptors: 0,
            threads: 0,
            disk_bytes: 0,
        };
        for run in steps.chunk_by(|one, next| one.run == next.run) {
            report.seconds += run.last().map_or(0, |step| step.at_s);
            let settled = &run[SETTLED.min(run.len() / 2)..];
            let grown = |figure: fn(&Step) -> i64| growth(settled, figure);
            report.memory_kib = report.memory_kib.max(grown(|step| step.memory_kib));
            report.descriptors = report
                .descriptors
                .max(grown(|step| step.descriptors.cast_signed() as i64));
            report.threads = report
                .threads
                .max(grown(|step| step.threads.cast_signed() as i64));
            report.disk_bytes = report
                .disk_bytes
                .max(grown(|step| step.disk_bytes.cast_signed()));
        }
        report
    }

    fn is_good(&self) -> bool {
        self.wrong == 0
            && self.memory_kib <= MEMORY_GROWTH_MAX
            && [self.descriptors, self.threads, self.disk_bytes]
                .iter()
                .all(|grown| *grown <= 0)
    }

    fn text(&self) -> String {
        format!(
            "{} trials in {} s, {} of them wrong; the agent has grown by {} KiB of memory, {} descriptors, {} threads, \
             {} bytes of disk\n",
            self.trials,
            self.seconds,
            self.wrong,
            self.memory_kib,
            self.descriptors,
            self.threads,
            self.disk_bytes
        )
    }
}

/// From the median of the first tenth to that of the last.
fn growth(steps: &[Step], figure: fn(&Step) -> i64) -> i64 {
    // A thread that is about to end is in a single reading.
    let tenth = (steps.len() / 10).max(READINGS_MIN).min(steps.len());
    let median = |steps: &[Step]| {
        let mut all: Vec<i64> = steps.iter().map(figure).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    };
    median(&steps[steps.len() - tenth..]) - median(&steps[..tenth])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_grows_is_found_in_each_run_and_an_outlier_is_not_growth() {
        let step = |run, memory_kib| Step {
            run,
            at_s: 0,
            memory_kib,
            descriptors: 9,
            threads: 2,
            disk_bytes: 700,
            is_right: true,
        };
        let flat: Vec<Step> = (0..200)
            .map(|number| step(0, if number == 150 { 9_000 } else { 5_000 }))
            .collect();
        assert!(Report::of(&flat).is_good());
        // Another run starts lower: that is no growth of either.
        let two: Vec<Step> = flat
            .iter()
            .copied()
            .chain((0..200).map(|_| step(1, 4_000)))
            .collect();
        assert!(Report::of(&two).is_good());
        let leaking: Vec<Step> = flat
            .iter()
            .copied()
            .chain((0..200).map(|number| step(1, 4_000 + 10 * number)))
            .collect();
        assert!(Report::of(&leaking).memory_kib > MEMORY_GROWTH_MAX);
        let wrong = Step {
            is_right: false,
            ..flat[0]
        };
        assert!(!Report::of(&[wrong]).is_good());
    }
}
