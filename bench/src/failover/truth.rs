//! Interruptions of known length, and what `failover` reads of them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::markdown::{head, row};
use linerate_bench_shared::running::tail;
use linerate_bench_shared::{Trouble, load, pause, two_hosts};
use linerate_stats::{Random, Seed};
use linerate_testbed::{Netns, Stage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Args;
use super::plant::{Bounds, Hole, Kind, LENGTHS_MS, prepare};
use linerate_bench_shared::results::Results;

/// In the folder that the stage covers with its own tmpfs: it vanishes with it.
const STATE: &str = "/run/netns/.failover";
/// Packets after which the probes surely run: far more than both ends exchange before.
const RUNNING: u64 = 2_000;
/// A trial whose probes do not run by then has failed.
const START_MAX: Duration = Duration::from_secs(30);

/// What was injected in one trial, and what was read of each direction that it affected.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    hole: Hole,
    bounds: Bounds,
    read_ns: Vec<u64>,
    /// How far a time may be off: a step, or the longest time in which the sender did not run.
    within_ns: u64,
    /// The time between two packets of a flow; 0 if it was not recorded.
    #[serde(default)]
    step_ns: u64,
    /// What is wrong; empty if it was read right.
    wrong: Vec<String>,
}

impl Found {
    /// The largest distance of a length that was read from what the injection bounds.
    fn error(&self) -> u64 {
        let read = self.read_ns.iter();
        read.map(|read| outside(*read, &self.bounds))
            .max()
            .unwrap_or(0)
    }
}

/// Runs all; whether 38 of 40 of each length are right, and all without an interruption.
pub(super) fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let seed = args.stage.seed.unwrap_or_default();
    let (near, far) = two_hosts(&stage, ["10.82.0.1/24", "10.82.0.2/24"])?;
    let mut random = Random::new(Seed(seed));
    let mut results = Results::<Found>::open(args.results.as_deref())?;
    let mut all = Vec::new();
    for length in LENGTHS_MS {
        // A quarter of them with the carrier.
        let by_carrier = if length == 0 { 0 } else { args.trials / 4 };
        let silent = if length == 0 { args.clean } else { args.trials } - by_carrier;
        for (kind, count) in [(Kind::Silent, silent), (Kind::Carrier, by_carrier)] {
            let is_own = |one: &&Found| (one.hole.length_ms, one.hole.kind) == (length, kind);
            let done = results.rows().iter().filter(is_own).count();
            all.extend((done..count.into()).map(|_| Hole::seeded(length, kind, &mut random)));
        }
    }
    random.shuffle(&mut all);
    for hole in all {
        prepare(&near)?;
        let one = trial((&near, &far), &linerate, hole, &mut random)?;
        if !one.wrong.is_empty() {
            eprintln!("{:?}: {}", one.hole, one.wrong.join("; "));
        }
        results.push(one)?;
    }
    report(args, results.rows(), seed)
}

/// Shows how many of each length were read right; whether enough were.
fn report(args: &Args, found: &[Found], seed: u64) -> Result<bool, Trouble> {
    let mut text = head(&[
        ">ms injected",
        ">read right",
        ">by carrier",
        ">within one step",
        ">largest error, ms",
        ">largest allowed, ms",
    ]);
    let mut is_good = true;
    for length in LENGTHS_MS {
        let own: Vec<&Found> = found
            .iter()
            .filter(|one| one.hole.length_ms == length)
            .collect();
        let right = own.iter().filter(|one| one.wrong.is_empty()).count();
        let by_carrier = own.iter().filter(|one| one.hole.kind == Kind::Carrier);
        let right_by_carrier = by_carrier.clone().filter(|one| one.wrong.is_empty());
        let in_a_step = |one: &&&Found| one.wrong.is_empty() && one.error() <= one.step_ns;
        is_good &= if length == 0 {
            right == own.len()
        } else {
            right * 20 >= own.len() * 19
        };
        let largest = |of: &dyn Fn(&Found) -> u64| own.iter().map(|one| of(one)).max();
        let error = largest(&Found::error);
        text += &row([
            length.to_string(),
            format!("{right} of {}", own.len()),
            format!("{} of {}", right_by_carrier.count(), by_carrier.count()),
            format!("{} of {}", own.iter().filter(in_a_step).count(), own.len()),
            milliseconds(error),
            milliseconds(largest(&|one| one.within_ns)),
        ]);
    }
    let closing = format!(
        "\nThe error is the distance from what the commands of the injection bound. Seed {seed} (of the trials after the last \
         restart), load average {} at the end\n",
        load()
    );
    text.push_str(&closing);
    args.out.show(&text, found)?;
    Ok(is_good)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn milliseconds(time: Option<u64>) -> String {
    time.map_or_else(
        || "-".to_owned(),
        |time| format!("{:.2}", time as f64 / 1e6),
    )
}

/// How far a length is from what was injected.
fn outside(read: u64, bounds: &Bounds) -> u64 {
    let below = bounds.min_ns.saturating_sub(read);
    below.max(read.saturating_sub(bounds.max_ns))
}

/// Processes that compute until they are dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Self, Trouble> {
        let one = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
        };
        let all = (0..count).map(|_| one()).collect::<Result<Vec<_>, _>>();
        all.map(Self)
            .map_err(|error| Trouble(format!("start a busy loop: {error}")))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It ends with this process at the latest.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn trial(
    hosts: (&Netns, &Netns),
    linerate: &Path,
    hole: Hole,
    random: &mut Random,
) -> Result<Found, Trouble> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let _busy = Busy::start(if hole.beside_load { cpus } else { 0 })?;
    let time = format!("{}ms", 2_500 + hole.length_ms);
    let mut command = Command::new(linerate);
    command.args([
        "--state",
        STATE,
        "--format",
        "json",
        "failover",
        "netns:far",
    ]);
    command.args(["--time", &time, "--workload", "udp"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    hosts
        .0
        .enter_in_child(&mut command)
        .map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let child = command
        .spawn()
        .map_err(|error| Trouble(format!("run linerate: {error}")))?;
    until_it_sends(child.id())?;
    pause(Duration::from_millis(200 + random.below(500)));
    let bounds = hole.inject(hosts)?;
    let output = child
        .wait_with_output()
        .map_err(|error| Trouble(format!("wait for linerate: {error}")))?;
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        Trouble(format!(
            "read what linerate printed: {error}: {}",
            tail(&said)
        ))
    })?;
    Ok(judged(hole, bounds, &document))
}

/// Waits until the probes run: by the packets that the interface of the process's namespace sent.
fn until_it_sends(pid: u32) -> Result<(), Trouble> {
    let sent = || {
        let table = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
        sent_packets(&table, "near0")
    };
    let until = Instant::now() + START_MAX;
    let first = sent().unwrap_or(0);
    while sent().unwrap_or(0) < first + RUNNING {
        if Instant::now() > until {
            return Err(Trouble("wait for the probes: none were sent".to_owned()));
        }
        pause(Duration::from_millis(5));
    }
    Ok(())
}

/// The tenth figure of an interface's line (/proc/net/dev).
fn sent_packets(table: &str, interface: &str) -> Option<u64> {
    let mut lines = table.lines();
    let line = lines.find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
    line.split_whitespace().nth(9)?.parse().ok()
}

/// Compares what was read with what was injected.
fn judged(hole: Hole, bounds: Bounds, document: &Value) -> Found {
    let mut found = Found {
        hole,
        bounds,
        read_ns: Vec::new(),
        within_ns: 0,
        step_ns: 0,
        wrong: Vec::new(),
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    for (at, direction) in ["forward", "reverse"].into_iter().enumerate() {
        let parts = document["trials"][0]["parts"].as_array();
        let mut parts = parts.into_iter().flatten();
        let Some(part) = parts.find(|part| part["direction"] == direction) else {
            found
                .wrong
                .push(format!("{direction}: not in the document"));
            continue;
        };
        let within = number(&part["step_ns"]).max(number(&part["hosts"]["longest_send_gap_ns"]));
        let gaps = &part["gaps"];
        let (count, read) = (number(&gaps["count"]), number(&gaps["longest_ns"]));
        let lost = number(&part["lost"]).saturating_sub(number(&part["hosts"]["socket_drops"]));
        found.within_ns = found.within_ns.max(within);
        found.step_ns = found.step_ns.max(number(&part["step_ns"]));
        if let Some(dropped) = bounds.dropped
            && dropped[at] != lost
        {
            found
                .wrong
                .push(format!("{direction}: {lost} lost, {} dropped", dropped[at]));
        }
        if !hole.directions[at] {
            if count > 0 {
                found.wrong.push(format!(
                    "{direction}: {count} interruptions of up to {read} ns, none injected"
                ));
            }
            continue;
        }
        found.read_ns.push(read);
        if outside(read, &bounds) > within {
            found.wrong.push(format!(
                "{direction}: {read} ns read, {} to {} ns injected, within {within} ns",
                bounds.min_ns, bounds.max_ns
            ));
        }
        if hole.kind == Kind::Silent && count != 1 {
            found
                .wrong
                .push(format!("{direction}: {count} interruptions instead of one"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_packets_are_those_of_the_interface() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n near0: 10 20 0 0 0 0 0 0 30 40 0 0 0 0 0 0\n";
        assert_eq!(sent_packets(table, "near0"), Some(40));
        assert_eq!(sent_packets(table, "near"), None);
    }

    #[test]
    fn a_length_within_the_injection_has_no_error() {
        let bounds = Bounds {
            min_ns: 50,
            max_ns: 60,
            dropped: None,
        };
        assert_eq!(
            [49, 50, 60, 61].map(|read| outside(read, &bounds)),
            [1, 0, 0, 1]
        );
    }
}
