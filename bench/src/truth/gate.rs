//! A gate exactly on its limit: how often does `--require` pass or fail there, where both are wrong?
//!
//! The limit is the median of all trials of all measurements, which nobody knows before the last one. So every measurement is
//! judged by its own interval after the last one, with linerate's rule: all of it on one side of the limit is a pass or a fail.

use linerate_bench_shared::run_inside;
use linerate_stats::summary::median;

use crate::Trouble;
use crate::hosts::{Bench, Interval, NEAR_NIC};
use crate::line::{Line, Verdict, real};

/// Its rate and its bucket: trials through it differ by how much of the bucket each of them found full.
const SHAPER: &str = "root tbf rate 100mbit burst 32kb latency 20ms";
/// What the measurements require: about the shaper's payload rate. It decides nothing here.
const BOUND: &str = "rate>=95Mb/s";
/// The share of wrong verdicts that is promised at most.
const WRONG_MAX: f64 = 0.05;

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    let hosts = bench.hosts()?;
    let words = format!("qdisc add dev {NEAR_NIC} {SHAPER}");
    run_inside(&hosts.near, "tc", &words).map_err(Trouble)?;
    let measure = format!("stream {} --time 0.1 --require {BOUND}", hosts.peer());
    let mut intervals: Vec<Interval> = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..bench.verdicts {
        let measured = hosts.measure(&measure)?;
        intervals.extend(measured.requirements);
        rates.extend(measured.repeats.map_or_else(Vec::new, |all| all.results));
    }
    let limit = median(&rates).map_err(|error| Trouble(error.to_string()))?;
    let is_decided = |one: &&Interval| one.valid && (one.low >= limit || one.high < limit);
    let wrong = intervals.iter().filter(is_decided).count() as u64;
    let share = real(wrong) / real(intervals.len().max(1) as u64);
    lines.push(Line::new(
        "a gate exactly on its limit",
        format!(
            "{wrong} of {} verdicts pass or fail ({:.1} %), {} trials with a median of {:.2} Mb/s",
            intervals.len(),
            share * 100.0,
            rates.len(),
            limit / 1e6
        ),
        format!("at most {:.0} %", WRONG_MAX * 100.0),
        Verdict::of(share <= WRONG_MAX),
    ));
    Ok(())
}
