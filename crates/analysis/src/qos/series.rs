//! The rate that a class of a qdisc holds, from readings of its counters while it sends.
//!
//! Only intervals in which packets wait at both ends count: a sender that waits for a CPU leaves the class empty, and then
//! its rate says nothing about its limit.

use linerate_model::units::Nanoseconds;
use linerate_stats::summary::{mean, quantile};
use serde::{Deserialize, Serialize};

use crate::trial::operations::real;

/// A share of the fastest interval above which a class sends its load, not the handshakes of its connections.
const BEGUN: f64 = 0.1;

/// Readings of a short stretch, and the fewest stretches of which a percentile is taken.
const STRETCH: usize = 8;
const STRETCHES_MIN: usize = 3;

/// One reading of a class's counters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassReading {
    /// Since any fixed time.
    pub at_ns: Nanoseconds,
    /// Bytes of frames sent.
    pub bytes: u64,
    /// Frames sent.
    pub packets: u64,
    /// Bytes that wait.
    pub backlog_bytes: u64,
}

/// What a class sent after its warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassSeries {
    /// Bytes of frames per second while packets wait; if they never do, over the whole counted time.
    pub bytes_per_s: f64,
    /// The same over the whole counted time.
    pub mean_bytes_per_s: f64,
    /// The 75th percentile of the rate in stretches of eight readings in which packets wait: a timer or a CPU that is late lowers
    /// some of them, a wrong limit all. None of fewer than three.
    pub upper_bytes_per_s: Option<f64>,
    /// Frames for each byte.
    pub packets_per_byte: f64,
    /// The share of the counted time in which packets wait.
    pub waiting_share: f64,
    /// How long a packet waits: the mean backlog over the rate.
    pub delay_s: f64,
}

/// The difference of two readings.
struct Step {
    from_s: f64,
    seconds: f64,
    bytes: f64,
    packets: f64,
    waits: bool,
}

fn seconds_between(from: Nanoseconds, to: Nanoseconds) -> f64 {
    to.as_secs_f64() - from.as_secs_f64()
}

fn steps(readings: &[ClassReading]) -> Vec<Step> {
    let pairs = readings.windows(2).filter_map(|pair| {
        let seconds = seconds_between(pair[0].at_ns, pair[1].at_ns);
        let bytes = pair[1].bytes.checked_sub(pair[0].bytes)?;
        let packets = pair[1].packets.checked_sub(pair[0].packets)?;
        (seconds > 0.0).then(|| Step {
            from_s: pair[0].at_ns.as_secs_f64(),
            seconds,
            bytes: real(bytes),
            packets: real(packets),
            waits: pair[0].backlog_bytes > 0 && pair[1].backlog_bytes > 0,
        })
    });
    pairs.collect()
}

/// What a class sent from `warm_up_s` after its first load on, for at most `counted_s`; none if it sent nothing then.
pub fn class_series(
    readings: &[ClassReading],
    warm_up_s: f64,
    counted_s: f64,
) -> Option<ClassSeries> {
    let all = steps(readings);
    let fastest = all.iter().map(|step| step.bytes / step.seconds);
    let fastest = fastest.fold(0.0, f64::max);
    let begun = all
        .iter()
        .find(|step| step.bytes > 0.0 && step.bytes / step.seconds >= fastest * BEGUN)?
        .from_s;
    let from = begun + warm_up_s;
    let is_counted = |at: f64| at >= from && at < from + counted_s;
    let counted: Vec<&Step> = all.iter().filter(|step| is_counted(step.from_s)).collect();
    let sum =
        |steps: &[&Step], of: fn(&Step) -> f64| steps.iter().map(|step| of(step)).sum::<f64>();
    let waiting: Vec<&Step> = counted.iter().copied().filter(|step| step.waits).collect();
    let (bytes, seconds) = (
        sum(&counted, |step| step.bytes),
        sum(&counted, |step| step.seconds),
    );
    let full_seconds = sum(&waiting, |step| step.seconds);
    if bytes <= 0.0 || seconds <= 0.0 {
        return None;
    }
    let mean_bytes_per_s = bytes / seconds;
    let readings: Vec<&ClassReading> = readings
        .iter()
        .filter(|reading| is_counted(reading.at_ns.as_secs_f64()))
        .collect();
    let bytes_per_s = slope(&readings).unwrap_or(mean_bytes_per_s);
    let waiting_readings = readings.split(|reading| reading.backlog_bytes == 0);
    let short = waiting_readings.flat_map(|stretch| stretch.chunks_exact(STRETCH));
    let short: Vec<f64> = short.filter_map(slope).collect();
    let upper = quantile(&short, 0.75).ok();
    let backlogs = readings.iter().map(|reading| real(reading.backlog_bytes));
    let backlogs: Vec<f64> = backlogs.collect();
    Some(ClassSeries {
        bytes_per_s,
        mean_bytes_per_s,
        upper_bytes_per_s: upper.filter(|_| short.len() >= STRETCHES_MIN),
        packets_per_byte: sum(&counted, |step| step.packets) / bytes,
        waiting_share: full_seconds / seconds,
        delay_s: mean(&backlogs).unwrap_or(0.0) / bytes_per_s,
    })
}

/// The common slope of the bytes over time in each stretch of readings in which packets wait, by least squares. A class sends
/// packets of up to 64 KiB at once, so that the difference of two readings may miss one or have one too many; of many
/// readings that cancels.
fn slope(readings: &[&ClassReading]) -> Option<f64> {
    let (mut products, mut squares) = (0.0, 0.0);
    for stretch in readings.split(|reading| reading.backlog_bytes == 0) {
        let times: Vec<f64> = stretch
            .iter()
            .map(|reading| reading.at_ns.as_secs_f64())
            .collect();
        let first = stretch.first().map_or(0, |reading| reading.bytes);
        let grown = |reading: &&ClassReading| real(reading.bytes.saturating_sub(first));
        let bytes: Vec<f64> = stretch.iter().map(grown).collect();
        let (Ok(middle), Ok(center)) = (mean(&times), mean(&bytes)) else {
            continue;
        };
        for (time, bytes) in times.iter().zip(&bytes) {
            products += (time - middle) * (bytes - center);
            squares += (time - middle) * (time - middle);
        }
    }
    (squares > 0.0 && products > 0.0).then(|| products / squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings every 20 ms of a class that sends 1 MB/s in frames of 1000 bytes, and nothing in the steps of `idle`.
    fn readings(idle: std::ops::Range<u32>) -> Vec<ClassReading> {
        let mut bytes = 0;
        (0..200_u32)
            .map(|number| {
                let is_idle = idle.contains(&number);
                if number > 10 && !is_idle {
                    bytes += 20_000;
                }
                ClassReading {
                    at_ns: Nanoseconds::from_millis(u64::from(number) * 20),
                    bytes,
                    packets: bytes / 1_000,
                    backlog_bytes: if is_idle || number < 10 { 0 } else { 10_000 },
                }
            })
            .collect()
    }

    #[test]
    fn the_rate_of_a_class_is_that_of_the_time_in_which_packets_wait() {
        let whole = class_series(&readings(0..0), 1.0, 2.0).expect("it sends");
        assert!((whole.bytes_per_s - 1e6).abs() < 1.0, "{whole:?}");
        assert!((whole.waiting_share - 1.0).abs() < 1e-9, "{whole:?}");
        assert!((whole.packets_per_byte - 1e-3).abs() < 1e-9, "{whole:?}");
        assert!((whole.delay_s - 0.01).abs() < 1e-6, "{whole:?}");
        let starved = class_series(&readings(80..120), 1.0, 2.0).expect("it sends");
        assert!((starved.bytes_per_s - 1e6).abs() < 1.0, "{starved:?}");
        assert!(starved.mean_bytes_per_s < 0.7e6, "{starved:?}");
        assert!(starved.waiting_share < 0.7, "{starved:?}");
        let upper = starved.upper_bytes_per_s.expect("stretches");
        assert!((upper - 1e6).abs() < 1.0, "{starved:?}");
    }

    #[test]
    fn a_class_that_sends_nothing_has_no_rate() {
        assert_eq!(class_series(&[], 1.0, 2.0), None);
        assert_eq!(class_series(&readings(0..200), 1.0, 2.0), None);
    }
}
