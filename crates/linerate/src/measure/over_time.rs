//! The course of a measurement over time.

use linerate_analysis::trial::operations::real;
use linerate_model::analysis::rate_series;
use linerate_model::sample::{CpuTimes, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::Workload;
use serde::Serialize;

use super::measured::{Measured, steps, warmup};
use super::text::{per_second, rate};

/// Maximum width of a bar picture of steps.
const STEPS_SHOWN: usize = 60;
/// Maximum CPUs shown over time.
const CPUS_SHOWN: usize = 16;

/// Rates over time as bars, at most `most`; each is the mean of those it represents.
fn bars(rates: &[f64], most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |rate: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 7"
        )]
        let height = (rate / most.max(f64::MIN_POSITIVE) * 7.0)
            .round()
            .clamp(0.0, 7.0) as usize;
        BARS[height]
    };
    let each = rates.len().div_ceil(STEPS_SHOWN).max(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / real(chunk.len() as u64);
    rates.chunks(each).map(|chunk| bar(mean(chunk))).collect()
}

fn extremes(rates: &[f64]) -> (f64, f64) {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    (least, most)
}

/// A time in seconds and the rate up to it.
type Point = (f64, f64);

/// The rates or operations per second up to each time of a sample, and how one is printed.
fn course(measured: &Measured<'_>) -> (Vec<Point>, fn(f64) -> String) {
    let sample = &measured.sample;
    if matches!(sample.spec.workload, Workload::Pingpong(_)) {
        return (Vec::new(), per_second);
    }
    if !sample.spec.workload.is_bulk() {
        return (steps(sample), |value| {
            format!("{} per second", per_second(value))
        });
    }
    let total = rate_series(sample).total;
    let points = total
        .iter()
        .map(|point| (point.at_ns.as_secs_f64(), point.bit_per_s.as_f64()));
    (points.collect(), |value| rate(BitRate::from_f64(value)))
}

/// The least and the largest of the readings over the time that the rate is of.
pub(super) fn range(measured: &Measured<'_>) -> Option<String> {
    let (points, figure) = course(measured);
    // A foreign server's rate is that of the whole trial.
    let is_whole = measured.foreign.is_some();
    let start = warmup(&measured.sample)
        .filter(|_| !is_whole)
        .unwrap_or(0.0);
    let kept = points.iter().filter(|(end, _)| *end > start);
    let rates: Vec<f64> = kept.map(|(_, rate)| *rate).collect();
    let (least, most) = extremes(&rates);
    (rates.len() >= 2).then(|| format!("readings {} to {}", figure(least), figure(most)))
}

/// The rate or the operations per second of an interval.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(clippy::struct_field_names, reason = "keys have their units")]
pub(super) struct Interval {
    from_s: f64,
    to_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bit_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_per_s: Option<f64>,
}

impl Interval {
    /// Those of width `every`.
    pub(super) fn all(measured: &Measured<'_>, every: Nanoseconds) -> Vec<Self> {
        let is_bulk = measured.sample.spec.workload.is_bulk();
        let rows = joined(&course(measured).0, every).into_iter();
        let intervals = rows.map(|(from_s, to_s, value)| Self {
            from_s,
            to_s,
            rate_bit_per_s: is_bulk.then_some(value),
            ops_per_s: (!is_bulk).then_some(value),
        });
        intervals.collect()
    }
}

/// The rate of each interval that was asked for.
pub(super) fn intervals(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let (points, figure) = course(measured);
    let width = measured.interval.filter(|_| points.len() >= 2);
    for (from, to, value) in width.map_or_else(Vec::new, |width| joined(&points, width)) {
        lines.push(interval_in_words(from, to, &figure(value)));
    }
}

/// A line for the interval between two times in seconds.
pub(super) fn interval_in_words(from: f64, to: f64, figure: &str) -> String {
    format!("          {from:6.2} - {to:6.2} s  {figure}")
}

/// The course over time: rates or operations, and the CPUs' activity.
pub(super) fn picture(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let sample = &measured.sample;
    let (points, figure) = course(measured);
    if points.len() < 2 {
        return;
    }
    let rates: Vec<f64> = points.iter().map(|(_, rate)| *rate).collect();
    let (least, most) = extremes(&rates);
    let bars = bars(&rates, most);
    lines.push(format!(
        "over time {bars}  {} to {}",
        figure(least),
        figure(most)
    ));
    intervals(lines, measured);
    cpus_over_time(lines, "local", &sample.local);
    // With one kernel the other end's CPUs are the same.
    if !sample.shared_kernel {
        cpus_over_time(lines, "remote", &sample.remote);
    }
}

/// The mean value of each interval of `width`, as (from, to, value), of values up to a time; edges are at the nearest
/// time. A last one that is shorter than half belongs to the one before.
fn joined(points: &[Point], width: Nanoseconds) -> Vec<(f64, f64, f64)> {
    let width = width.as_secs_f64();
    let end = points.last().map_or(0.0, |(end, _)| *end);
    let mut joined: Vec<(f64, f64, f64)> = Vec::new();
    let mut before = 0.0;
    // Where the current interval ends.
    let mut edge = width;
    for &(to, value) in points {
        let is_next = f64::midpoint(before, to) >= edge && end - before >= width / 2.0;
        match joined.last_mut() {
            Some((from, until, mean)) if !is_next => {
                *mean = (*mean * (*until - *from) + value * (to - before)) / (to - *from);
                *until = to;
            }
            _ => {
                joined.push((before, to, value));
                while f64::midpoint(before, to) >= edge {
                    edge += width;
                }
            }
        }
        before = to;
    }
    joined
}

/// How busy each CPU of one end was, step by step, and with what.
fn cpus_over_time(lines: &mut Vec<String>, end: &str, side: &SideSample) {
    let series = &side.cpu.series;
    let Some(first) = series.first().filter(|_| series.len() >= 2) else {
        return;
    };
    for (index, cpu) in first.cpus.iter().enumerate().take(CPUS_SHOWN) {
        let steps: Vec<&CpuTimes> = series
            .iter()
            .filter_map(|step| step.cpus.get(index))
            .filter(|times| times.cpu == cpu.cpu)
            .collect();
        let share = |kind: fn(&CpuTimes) -> Nanoseconds| {
            let part: f64 = steps.iter().map(|times| kind(times).as_secs_f64()).sum();
            let whole: f64 = steps.iter().map(|times| times.total().as_secs_f64()).sum();
            part * 100.0 / whole.max(f64::MIN_POSITIVE)
        };
        let busy: Vec<f64> = steps
            .iter()
            .map(|times| {
                times.busy().as_secs_f64() / times.total().as_secs_f64().max(f64::MIN_POSITIVE)
            })
            .collect();
        lines.push(format!(
            "          {end} CPU {:<4} {}  user {:.0} %, system {:.0} %, softirq {:.0} %",
            cpu.cpu,
            bars(&busy, 1.0),
            share(|times| times.user_ns),
            share(|times| times.system_ns),
            share(|times| times.softirq_ns),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_intervals_end_at_the_nearest_reading_and_a_sliver_belongs_to_the_one_before() {
        let points = [(0.5, 2.0), (0.98, 4.0), (1.5, 6.0), (2.02, 6.0), (2.1, 1.0)];
        let second = Nanoseconds::from_millis(1_000);
        let rows = joined(&points, second);
        let edges: Vec<(f64, f64)> = rows.iter().map(|(from, to, _)| (*from, *to)).collect();
        assert_eq!(edges, [(0.0, 0.98), (0.98, 2.1)]);
        let sum: f64 = rows.iter().map(|(from, to, mean)| (to - from) * mean).sum();
        let all = 0.5 * 2.0 + 0.48 * 4.0 + 1.04 * 6.0 + 0.08;
        assert!((sum - all).abs() < 1e-9, "{rows:?}");
        // Readings that are rarer than the intervals are all shown.
        assert_eq!(
            joined(&points, Nanoseconds::from_millis(1)).len(),
            points.len()
        );
    }
}
