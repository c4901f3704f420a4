//! The interruptions of redundant networks, fault by fault: `testbed redundant` makes each network, `failover` injects the
//! fault and measures. All in a mount namespace of its own, so that networks of the same names elsewhere are not touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linerate_bench_shared::markdown::{head, row};
use linerate_bench_shared::running::{kernel, tail};
use linerate_bench_shared::{Trouble, load};
use linerate_testbed::Stage;
use serde_json::Value;

use super::Args;
use super::cases::{CASES, Case};
use super::measured::{Interruption, Row, Trial, trials};
use linerate_bench_shared::results::Results;

/// What ends the daemons of a run that was killed: it outlives the stage.
const STATE: &str = "/var/tmp/linerate-bench-failover";
/// The exit code of `NotSupported`.
const NOT_SUPPORTED: i32 = 22;

/// Runs all; whether a wrong phase was named in at most 1 of 10 failures of each fault.
pub(super) fn conduct(args: &Args) -> Result<bool, Trouble> {
    let _stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let mut results = Results::<Row>::open(args.results.as_deref())?;
    let wanted = |case: &&Case| {
        let only = args.only.as_deref().unwrap_or_default();
        case.name().contains(only)
    };
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let missing: Vec<&Case> = cases
        .iter()
        .copied()
        .filter(|case| results.rows().iter().all(|row| row.name != case.name()))
        .collect();
    let mut is_whole = true;
    for of_network in missing.chunk_by(|one, other| one.network == other.network) {
        // One that fails does not end the others.
        if let Err(trouble) = measure(&linerate, of_network, args, &mut results) {
            eprintln!("error: cannot {trouble}");
            is_whole = false;
        }
    }
    let measured: Vec<(&Case, &Row)> = cases
        .iter()
        .filter_map(|case| {
            let mut rows = results.rows().iter();
            Some((*case, rows.find(|row| row.name == case.name())?))
        })
        .collect();
    args.out
        .show(&table(&measured, args.flows), results.rows())?;
    let is_right = measured
        .iter()
        .all(|(case, row)| Score::of(case, row).wrong * 10 <= row.trials.len());
    Ok(is_whole && is_right)
}

/// The faults of one network.
fn measure(
    linerate: &Path,
    cases: &[&Case],
    args: &Args,
    results: &mut Results<Row>,
) -> Result<(), Trouble> {
    let mut failed = Vec::new();
    let mut network: Option<Network> = None;
    for case in cases {
        if network.is_none() {
            network = Some(Network::add(linerate, case.network)?);
        }
        let Some(own) = &network else { continue };
        match own.measured(case, args) {
            Ok(row) => {
                eprintln!("{}: {}", row.name, in_short(&row));
                results.push(row)?;
            }
            Err(Trouble(why)) => {
                failed.push(why);
                // In an unknown state.
                network = None;
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Trouble(failed.join("; cannot ")))
    }
}

/// A network, removed when this is dropped.
struct Network {
    linerate: PathBuf,
    words: &'static str,
    document: Value,
    /// Why it cannot be made here.
    missing: Option<String>,
}

impl Network {
    fn add(linerate: &Path, words: &'static str) -> Result<Self, Trouble> {
        let mut network = Self {
            linerate: linerate.to_owned(),
            words,
            document: Value::Null,
            missing: None,
        };
        // What a run that was killed left.
        network.redundant("remove")?;
        let output = network.redundant(&format!("add {words}"))?;
        if output.status.code() == Some(NOT_SUPPORTED) {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            eprintln!("SKIP: {words}: {why}");
            network.missing = Some(why);
            return Ok(network);
        }
        network.document = document(&output, &format!("add {words}"))?["network"].take();
        Ok(network)
    }

    fn redundant(&self, words: &str) -> Result<Output, Trouble> {
        let mut command = Command::new(&self.linerate);
        command.args(["--state", STATE, "--format", "json"]);
        command.args(["testbed", "redundant"]);
        command.args(words.split_whitespace());
        run(command)
    }

    fn measured(&self, case: &Case, args: &Args) -> Result<Row, Trouble> {
        let row = |trials, skipped| Row {
            name: case.name(),
            trials,
            skipped,
            load: load(),
        };
        if let Some(why) = &self.missing {
            return Ok(row(Vec::new(), Some(why.clone())));
        }
        let faults = self.document["faults"].as_array().into_iter().flatten();
        let mut faults = faults.filter(|fault| fault["name"] == case.fault);
        let fault = faults
            .next()
            .ok_or_else(|| Trouble(format!("find the fault {} of {}", case.fault, case.network)))?;
        if let Some(package) = fault["missing"].as_str() {
            let why = format!("the Debian package {package} is missing");
            eprintln!("SKIP: {}: {why}", case.name());
            return Ok(row(Vec::new(), Some(why)));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let restore = [self.command(&text(&fault["restore"]))]
            .into_iter()
            .chain(case.settled(&text(&self.document["folder"])))
            .collect::<Vec<_>>()
            .join(" && ");
        let server = [0, 1].map(|family| text(&self.document["server"][family]));
        let [near, far] = case.ends();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", near]).arg(&self.linerate);
        command.args(["--state", STATE, "--format", "json", "failover"]);
        command.arg(format!("netns:{far}"));
        command.args(["--address", &case.address(server), "--time", case.time]);
        command.args(["--repeats", &args.repeats.to_string()]);
        command.args(["--flows", &args.flows.to_string()]);
        if let Some(rate) = args.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        command.args(["--do", &self.command(&text(&fault["do"]))]);
        command.args(["--restore", &restore]);
        let document = document(&run(command)?, &case.name())?;
        Ok(row(trials(&document), None))
    }

    /// A command of a fault, with this linerate; it names the state folder.
    fn command(&self, script: &str) -> String {
        script.strip_prefix("linerate ").map_or_else(
            || script.to_owned(),
            |words| format!("'{}' {words}", self.linerate.display()),
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        match self.redundant("remove") {
            Ok(output) if output.status.success() => {}
            Ok(output) => eprintln!(
                "error: cannot remove {}: {}",
                self.words,
                tail(&String::from_utf8_lossy(&output.stderr))
            ),
            Err(trouble) => eprintln!("error: cannot {trouble}"),
        }
    }
}

fn run(mut command: Command) -> Result<Output, Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null());
    command
        .output()
        .map_err(|error| Trouble(format!("run {program}: {error}")))
}

/// What a linerate printed.
fn document(output: &Output, what: &str) -> Result<Value, Trouble> {
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Trouble(format!("measure {what}: {}", tail(&errors))));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| {
        Trouble(format!(
            "read what linerate printed of {what}: {error}: {}",
            tail(&errors)
        ))
    })
}

/// Of how many failures the phase was named right, not determined, and named wrong.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    right: usize,
    not_determined: usize,
    wrong: usize,
}

impl Score {
    fn of(case: &Case, row: &Row) -> Self {
        let mut score = Self::default();
        for failure in row.trials.iter().map(|trial| &trial.failure) {
            let count = if is_right(case.right, failure) {
                &mut score.right
            } else if failure.phase == "not-determined" {
                &mut score.not_determined
            } else {
                &mut score.wrong
            };
            *count += 1;
        }
        score
    }
}

/// Whether the phase is among `right`; or it is TCP's back-off, after something that is, and established connections really
/// stalled longer than detection or convergence can have taken.
fn is_right(right: &[&str], failure: &Interruption) -> bool {
    let phase = failure.phase.as_str();
    if right.contains(&phase) {
        return true;
    }
    let Some(mechanism) = phase.strip_prefix("tcp-backoff") else {
        return false;
    };
    let waited = failure.tcp_ns.saturating_sub(failure.longest_ns);
    waited >= failure.longest_ns / 2 && right.iter().any(|right| right.ends_with(mechanism))
}

fn in_short(row: &Row) -> String {
    let failures: Vec<String> = row
        .trials
        .iter()
        .map(|trial| format!("{} ({})", ms(trial.failure.longest_ns), trial.failure.phase))
        .collect();
    row.skipped.clone().unwrap_or_else(|| failures.join(", "))
}

fn table(measured: &[(&Case, &Row)], flows: u32) -> String {
    let mut text = head(&[
        "network",
        "fault",
        "IP",
        ">failure: median, ms",
        ">max.",
        ">expected",
        ">flows",
        ">TCP stall: median, ms",
        ">max.",
        ">return: median, ms",
        ">max.",
        "phase of the failure",
        ">right",
        ">not determined",
        ">wrong",
    ]);
    for (case, row) in measured {
        text += &line(case, row);
    }
    let steps: Vec<u64> = all(measured, |trial| trial.step_ns);
    let gaps: Vec<u64> = all(measured, |trial| trial.send_gap_ns);
    let caption = format!(
        "\n{flows} flows in each direction, the worse direction of each failure. Known to within {} ms (one step), or the \
         sender's longest send gap: median {}, maximum {} ms. Other work ran on the machine meanwhile: load average {} at \
         the end. Linux {}.\n",
        ms(steps.last().copied().unwrap_or(0)),
        ms(middle(&gaps)),
        ms(gaps.last().copied().unwrap_or(0)),
        measured
            .last()
            .map_or("unknown", |(_, row)| row.load.as_str()),
        kernel()
    );
    text + &caption
}

fn all(measured: &[(&Case, &Row)], of: fn(&Trial) -> u64) -> Vec<u64> {
    let trials = measured.iter().flat_map(|(_, row)| &row.trials);
    sorted(trials.map(of))
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
}

/// The median of sorted values.
fn middle(values: &[u64]) -> u64 {
    let upper = values.get(values.len() / 2).copied().unwrap_or(0);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied();
    u64::midpoint(lower.unwrap_or(0), upper)
}

fn line(case: &Case, result: &Row) -> String {
    let family = if case.is_v6 { "6" } else { "4" };
    let start = [case.network, case.fault, family].map(str::to_owned);
    if let Some(why) = &result.skipped {
        let nothing = std::iter::repeat_n("-".to_owned(), 8);
        let end = [&format!("not measured: {why}"), "-", "-", "-"].map(str::to_owned);
        return row(start.into_iter().chain(nothing).chain(end));
    }
    let times = |of: fn(&Trial) -> u64| {
        let values = sorted(result.trials.iter().map(of));
        let max = values.last().copied().unwrap_or(0);
        [middle(&values), max].map(time)
    };
    let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
    for trial in &result.trials {
        *phases.entry(&trial.failure.phase).or_default() += 1;
    }
    let phases: Vec<String> = phases
        .iter()
        .map(|(phase, count)| format!("{phase} {count}"))
        .collect();
    let flows = result.trials.iter().map(|trial| trial.failure.flows).max();
    let score = Score::of(case, result);
    let [median, max] = times(|trial| trial.failure.longest_ns);
    let [tcp_median, tcp_max] = times(|trial| trial.failure.tcp_ns);
    let [back_median, back_max] = times(|trial| trial.back.longest_ns);
    row(start.into_iter().chain([
        median,
        max,
        expected(result.trials.iter().map(|trial| &trial.failure)),
        flows.unwrap_or(0).to_string(),
        tcp_median,
        tcp_max,
        back_median,
        back_max,
        phases.join(", "),
        score.right.to_string(),
        score.not_determined.to_string(),
        score.wrong.to_string(),
    ]))
}

/// What the timers that were seen or read let expect.
fn expected<'a>(all: impl Iterator<Item = &'a Interruption>) -> String {
    let ranges: Vec<[u64; 2]> = all.filter_map(|one| one.expected_ns).collect();
    let min = ranges.iter().map(|range| range[0]).min();
    let max = ranges.iter().map(|range| range[1]).max();
    match min.zip(max) {
        Some((min, max)) => format!("{} to {}", ms(min), ms(max)),
        None => "-".to_owned(),
    }
}

fn time(ns: u64) -> String {
    if ns == 0 { "none".to_owned() } else { ms(ns) }
}

/// Milliseconds with three figures.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ms(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms >= 100.0 {
        format!("{ms:.0}")
    } else if ms >= 10.0 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(longest_ns: u64, phase: &str) -> Trial {
        Trial {
            failure: Interruption {
                longest_ns,
                phase: phase.to_owned(),
                flows: 64,
                expected_ns: Some([longest_ns, 2 * longest_ns]),
                ..Interruption::default()
            },
            ..Trial::default()
        }
    }

    #[test]
    fn a_line_has_median_maximum_and_how_often_the_phase_is_right() {
        let result = Row {
            name: CASES[0].name(),
            trials: vec![
                trial(300_000_000, "detection vrrp"),
                trial(340_000_000, "detection vrrp"),
                trial(350_000_000, "not-determined"),
            ],
            skipped: None,
            load: String::new(),
        };
        assert_eq!(
            line(&CASES[0], &result),
            "| vrrp --advert 100ms | silent-router | 4 | 340 | 350 | 300 to 700 | 64 | none | none | none | none | \
             detection vrrp 2, not-determined 1 | 2 | 1 | 0 |\n"
        );
    }

    #[test]
    fn a_back_off_is_right_only_if_tcp_stalled_for_longer() {
        let mut failure = trial(100, "tcp-backoff vrrp").failure;
        failure.tcp_ns = 250;
        assert!(is_right(&["detection vrrp"], &failure));
        assert!(!is_right(&["detection routing"], &failure));
        failure.tcp_ns = 120;
        assert!(!is_right(&["detection vrrp"], &failure));
    }

    #[test]
    fn the_median_of_an_even_count_is_between_the_two() {
        assert_eq!(middle(&[1, 3, 5, 9]), 4);
        assert_eq!(middle(&[1, 3, 9]), 3);
        assert_eq!(middle(&[]), 0);
    }
}
