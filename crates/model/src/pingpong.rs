//! Analyzes a sweep of message sizes: the fit *time = latency + bytes / bandwidth*, outliers, and whether the path
//! stores and forwards frames.

use std::fmt;

use serde::Serialize;

use crate::known::{Cause, Known};
use crate::latency::Histogram;
use crate::sample::Operations;
use crate::units::{BitRate, Bytes, real};

/// A size whose bandwidth is lower by this share than its neighbors' trend is a dip: several times the spread between
/// repeated runs of one size.
pub const DIP_SHARE: f64 = 0.2;
/// And by this many standard errors: in sweeps of pure noise, 2 in 1,000 show a dip.
const DIP_ERRORS: f64 = 4.0;

/// The message size that latency is reported for.
pub const SMALL: Bytes = Bytes::new(4);
/// The message size that bandwidth is reported for.
pub const LARGE: Bytes = Bytes::mib(4);

/// The payload of one frame at an MTU of 1500 with TCP timestamps: messages up to here fit into one frame.
pub const FRAME_PAYLOAD: Bytes = Bytes::new(1448);

/// A size and the one-way time of a message, half of a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// The message size.
    pub bytes: Bytes,
    /// The time one way, in nanoseconds.
    pub one_way_ns: f64,
}

impl Point {
    /// The payload rate; none without payload.
    pub fn rate(&self) -> Option<BitRate> {
        BitRate::from_f64(real(self.bytes.as_u64()) * 8e9 / self.one_way_ns)
            .filter(|_| self.bytes > Bytes::new(0))
    }
}

/// The points of a record: the mean time of each size, as IMB prints it; ascending in size.
pub fn points(operations: &Operations) -> Vec<Point> {
    points_by(operations, Histogram::mean_ns)
}

/// The same by the median time.
pub fn medians(operations: &Operations) -> Vec<Point> {
    points_by(operations, |times| {
        Some(real(times.quantile(0.5)?.as_u64()))
    })
}

fn points_by(operations: &Operations, time_ns: impl Fn(&Histogram) -> Option<f64>) -> Vec<Point> {
    let mut points: Vec<Point> = (operations.sizes.iter())
        .filter_map(|size| {
            Some(Point {
                bytes: size.bytes,
                one_way_ns: time_ns(&size.one_way).filter(|ns| *ns > 0.0)?,
            })
        })
        .collect();
    points.sort_by_key(|point| point.bytes);
    points
}

/// A fitted line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// The time of a message without payload, in nanoseconds.
    pub latency_ns: f64,
    /// The time per byte, in nanoseconds.
    pub ns_per_byte: f64,
    /// Its standard error; not known for two points, which every line fits.
    pub ns_per_byte_error: Option<f64>,
}

impl Line {
    /// The line with the smallest sum of squared *relative* residuals: times of 5 us and of 5 ms have about the same
    /// relative precision, and an unweighted fit would be dominated by the large ones. `None` for fewer than two
    /// sizes.
    pub fn through(points: &[Point]) -> Option<Self> {
        let rows = || {
            let valid = points.iter().filter(|point| point.one_way_ns > 0.0);
            valid.map(|point| {
                let weight = point.one_way_ns.powi(-2);
                (weight, real(point.bytes.as_u64()), point.one_way_ns)
            })
        };
        let weights: f64 = rows().map(|(w, ..)| w).sum();
        let mean_x = rows().map(|(w, x, _)| w * x).sum::<f64>() / weights;
        let mean_y = rows().map(|(w, _, y)| w * y).sum::<f64>() / weights;
        let spread: f64 = rows().map(|(w, x, _)| w * (x - mean_x).powi(2)).sum();
        if spread.is_nan() || spread <= 0.0 {
            return None;
        }
        let together = rows().map(|(w, x, y)| w * (x - mean_x) * (y - mean_y));
        let slope = together.sum::<f64>() / spread;
        let latency_ns = mean_y - slope * mean_x;
        let residuals = rows().map(|(w, x, y)| w * (y - latency_ns - slope * x).powi(2));
        let left: f64 = residuals.sum();
        let freedom = rows().count().saturating_sub(2) as u64;
        let error = (freedom > 0).then(|| (left / real(freedom) / spread).sqrt());
        Some(Self {
            latency_ns,
            ns_per_byte: slope,
            ns_per_byte_error: error,
        })
    }

    /// The slope as a rate; none if the cost per byte is not measurable.
    pub fn rate(&self) -> Option<BitRate> {
        (self.ns_per_byte > 0.0)
            .then(|| BitRate::from_f64(8.0 / (self.ns_per_byte * 1e-9)))
            .flatten()
    }
}

/// A size that is slower than its neighbors' trend.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dip {
    /// The message size.
    pub bytes: Bytes,
    /// Its rate.
    pub rate: BitRate,
    /// The rate expected from its neighbors.
    pub expected: BitRate,
}

/// The sizes whose rate is clearly below the trend of smaller and larger ones, with a fast larger one. A rate that
/// only decreases, as when messages no longer fit a cache, is not a dip. `points` should be medians: the mean of one size is
/// moved by a single stall.
///
/// The rate of *a + bytes / b* is concave in logarithms: it is never below its own chord, nor above the line through two
/// neighbors on one side. A point that is above both is a wild one, and predicts nothing. How much rates scatter is estimated
/// from the second differences of all sizes, by their median, which a few dips do not move.
pub fn dips(points: &[Point]) -> Vec<Dip> {
    let rated: Vec<LogPoint> = (points.iter())
        .filter_map(|point| {
            let rate = point.rate()?.as_f64();
            Some(LogPoint {
                size: real(point.bytes.as_u64()).ln(),
                rate: rate.ln(),
                bytes: point.bytes,
            })
        })
        .collect();
    let tame: Vec<LogPoint> = (0..rated.len()).map(|index| tamed(&rated, index)).collect();
    let fastest = |among: &[LogPoint]| {
        let by_rate = |a: &&LogPoint, b: &&LogPoint| a.rate.total_cmp(&b.rate);
        among.iter().max_by(by_rate).copied()
    };
    let clearly = -(1.0 - DIP_SHARE).ln();
    let clearly = clearly.max(DIP_ERRORS * chord_error(&rated));
    let mut dips = Vec::new();
    for (index, point) in rated.iter().enumerate() {
        let (before, after) = (&tame[..index], &tame[index + 1..]);
        let (Some(left), Some(right)) = (before.last(), after.first()) else {
            continue;
        };
        let (Some(fast_left), Some(fast_right)) = (fastest(before), fastest(after)) else {
            continue;
        };
        // The fastest ones on both sides: a dip may span several sizes.
        let near = point.predicted_by(left, right);
        let expected = near.max(point.predicted_by(&fast_left, &fast_right));
        if point.rate < expected - clearly
            && point.rate < fast_right.rate - clearly
            && let (Some(rate), Some(expected)) = (
                BitRate::from_f64(point.rate.exp()),
                BitRate::from_f64(expected.exp()),
            )
        {
            dips.push(Dip {
                bytes: point.bytes,
                rate,
                expected,
            });
        }
    }
    dips
}

/// A size and its rate, as logarithms.
#[derive(Debug, Clone, Copy)]
struct LogPoint {
    size: f64,
    rate: f64,
    bytes: Bytes,
}

impl LogPoint {
    /// The logarithm of the rate on the line through two others.
    fn predicted_by(&self, one: &Self, other: &Self) -> f64 {
        one.rate + (other.rate - one.rate) * (self.size - one.size) / (other.size - one.size)
    }
}

/// The point, or where its neighbors predict it if it is far above them.
fn tamed(points: &[LogPoint], index: usize) -> LogPoint {
    let point = points[index];
    let neighbors = match index {
        0 => points.get(1).zip(points.get(2)),
        index if index + 1 == points.len() => {
            (index >= 2).then(|| (&points[index - 1], &points[index - 2]))
        }
        index => points.get(index - 1).zip(points.get(index + 1)),
    };
    let Some((one, other)) = neighbors else {
        return point;
    };
    let expected = point.predicted_by(one, other);
    let is_wild = point.rate > expected - (1.0 - DIP_SHARE).ln();
    LogPoint {
        rate: if is_wild { expected } else { point.rate },
        ..point
    }
}

/// The standard error of a point's distance from the chord of its neighbors.
fn chord_error(points: &[LogPoint]) -> f64 {
    let distances = points.windows(3).map(|three| {
        let [left, point, right] = three else {
            return 0.0;
        };
        (point.rate - point.predicted_by(left, right)).abs()
    });
    let mut distances: Vec<f64> = distances.collect();
    distances.sort_by(f64::total_cmp);
    // The median of absolute values of a normal distribution is 0.6745 standard deviations.
    distances
        .get(distances.len() / 2)
        .map_or(0.0, |middle| middle / 0.6745)
}

/// How often each byte of a frame is serialized on the path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hops {
    /// The time per byte within one frame, divided by the link's time per byte.
    pub times: f64,
    /// The conclusion.
    pub verdict: HopsVerdict,
}

/// What the growth of latency within a frame shows about the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HopsVerdict {
    /// A frame is serialized once: a cable, or cut-through switches.
    CutThrough,
    /// At most this many store-and-forward switches.
    StoreAndForward(u32),
}

impl fmt::Display for Hops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times;
        match self.verdict {
            HopsVerdict::CutThrough => write!(
                f,
                "within a frame each byte adds {times:.1} times the link's byte time: no \
                 store-and-forward hop on the path (cut-through, or a cable)"
            ),
            HopsVerdict::StoreAndForward(most) => write!(
                f,
                "within a frame each byte adds {times:.1} times the link's byte time: at most \
                 {most} store-and-forward hop(s) on the path; includes both hosts' copies, so \
                 fewer if they are slow"
            ),
        }
    }
}

/// Estimates the number of store-and-forward hops from messages of at most one frame. Larger messages do not show it:
/// their frames are pipelined through every hop in either mode.
pub fn hops(points: &[Point], link: Option<BitRate>) -> Known<Hops> {
    const WHAT: &str = "store-and-forward hops";
    let Some(link) = link.filter(|link| link.as_bit_per_s() > 0) else {
        let reason = "the link speed is unknown";
        return Known::unknown(Cause::NotSaid, WHAT, reason);
    };
    let of_a_frame: Vec<Point> = (points.iter().copied())
        .filter(|point| point.bytes <= FRAME_PAYLOAD)
        .collect();
    let line = Line::through(&of_a_frame);
    let Some((line, error)) = line.and_then(|line| Some((line, line.ns_per_byte_error?))) else {
        let reason = "fewer than three sizes fit in a frame";
        return Known::unknown(Cause::NotSaid, WHAT, reason);
    };
    let byte_ns = 8e9 / link.as_f64();
    let times = line.ns_per_byte / byte_ns;
    let verdict = |times: f64| match (times - 1.0).round() {
        beyond if beyond < 1.0 => HopsVerdict::CutThrough,
        beyond => HopsVerdict::StoreAndForward(whole(beyond)),
    };
    // Two standard errors to either side.
    let doubt = 2.0 * error / byte_ns;
    if verdict(times - doubt) != verdict(times + doubt) {
        let reason = format!(
            "a byte adds {times:.1} +- {doubt:.1} times the link's byte time: use more repetitions"
        );
        return Known::unknown(Cause::NotSaid, WHAT, reason);
    }
    Known::Value(Hops {
        times,
        verdict: verdict(times),
    })
}

/// A count that is already a whole number, saturating.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped before"
)]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, 1e6) as u32
}

/// The results of a sweep of sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Judgement {
    /// The fit over all sizes.
    pub line: Line,
    /// The point that latency is reported for, if it was measured.
    pub small: Option<Point>,
    /// The point that bandwidth is reported for, if it was measured.
    pub large: Option<Point>,
    /// The dips.
    pub dips: Vec<Dip>,
    /// Store-and-forward against cut-through.
    pub hops: Known<Hops>,
}

/// Analyzes a sweep over a link of this speed; `None` for fewer than two sizes. Means are what is reported, medians show dips.
pub fn judge(points: &[Point], medians: &[Point], link: Option<BitRate>) -> Option<Judgement> {
    let at = |bytes: Bytes| points.iter().copied().find(|point| point.bytes == bytes);
    Some(Judgement {
        line: Line::through(points)?,
        small: at(SMALL),
        large: at(LARGE),
        dips: dips(medians),
        hops: hops(points, link),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::Pingpong;

    /// IMB's sizes over a path with this latency and bandwidth.
    fn row(latency_us: f64, mib_per_s: f64) -> Vec<Point> {
        let ns_per_byte = 1e9 / (mib_per_s * 1_048_576.0);
        let time = |bytes: Bytes| latency_us * 1e3 + real(bytes.as_u64()) * ns_per_byte;
        let sizes = Pingpong::imb_sizes().into_iter();
        let points = sizes.map(|bytes| Point {
            bytes,
            one_way_ns: time(bytes),
        });
        points.collect()
    }

    fn judged(points: &[Point]) -> Option<Judgement> {
        judge(points, points, None)
    }

    /// The fabrics of source 003: latency in us at 4 B, bandwidth in MiB/s at 4 MiB.
    const FABRICS: [(f64, f64); 7] = [
        (24.5, 112.0),
        (7.8, 1126.0),
        (1.9, 4300.0),
        (1.4, 4613.0),
        (1.5, 3400.0),
        (1.4, 5300.0),
        (0.86, 6000.0),
    ];

    #[test]
    fn the_two_numbers_of_every_fabric_of_the_field_report_come_back() {
        for (latency, bandwidth) in FABRICS {
            let judged = judged(&row(latency, bandwidth)).expect("24 sizes");
            assert!((judged.line.latency_ns / (latency * 1e3) - 1.0).abs() < 1e-6);
            assert!((judged.line.ns_per_byte * bandwidth * 1_048_576.0 / 1e9 - 1.0).abs() < 1e-6);
            let small = judged.small.expect("4 B").one_way_ns / 1e3;
            assert!((small / latency - 1.0).abs() < 0.01, "{small}");
            let large = judged.large.and_then(|point| point.rate()).expect("4 MiB");
            let reached = large.as_f64() / 8.0 / 1_048_576.0 / bandwidth;
            assert!((0.97..=1.0).contains(&reached), "{reached}");
            assert_eq!(judged.dips, []);
        }
    }

    /// 40G TCP of source 003 as installed: "dips in bandwidth for messages of 256K-1M".
    #[test]
    fn the_dips_of_the_field_report_are_named_and_no_other_size() {
        let mut points = row(7.8, 1126.0);
        for point in &mut points {
            if (Bytes::kib(256)..=Bytes::mib(1)).contains(&point.bytes) {
                point.one_way_ns *= 1.7;
            }
        }
        let found: Vec<Bytes> = dips(&points).iter().map(|dip| dip.bytes).collect();
        assert_eq!(found, [Bytes::kib(256), Bytes::kib(512), Bytes::mib(1)]);
    }

    /// Rates multiplied by what each size is multiplied by.
    fn scattered(points: &[Point], factors: impl IntoIterator<Item = f64>) -> Vec<Point> {
        let scaled = points.iter().zip(factors).map(|(point, factor)| Point {
            one_way_ns: point.one_way_ns / factor,
            ..*point
        });
        scaled.collect()
    }

    #[test]
    fn a_single_wild_point_is_no_dip_and_makes_none_of_its_neighbors() {
        let quiet = row(7.8, 1126.0);
        let rows = quiet.len();
        for wild in 0..rows {
            let fast = |at| if at == wild { 2.0 } else { 1.0 };
            let found = dips(&scattered(&quiet, (0..rows).map(fast)));
            assert_eq!(found, [], "size {wild} twice as fast");
        }
        // Of rates that scatter, the slowest is no dip; a fall to a third is.
        let noise = |at: usize| [0.8, 1.15, 0.95, 1.25, 0.85, 1.05, 1.2][at % 7];
        assert_eq!(dips(&scattered(&quiet, (0..rows).map(noise))), []);
        let at = quiet
            .iter()
            .position(|point| point.bytes == Bytes::kib(512));
        let at = at.expect("one of IMB's sizes");
        let small_noise = |at: usize| 1.0 + (noise(at) - 1.0) / 4.0;
        let fall = |size: usize| small_noise(size) * if size == at { 1804.0 / 5430.0 } else { 1.0 };
        let found = dips(&scattered(&quiet, (0..rows).map(fall)));
        let found: Vec<Bytes> = found.iter().map(|dip| dip.bytes).collect();
        assert_eq!(found, [Bytes::kib(512)]);
    }

    #[test]
    fn a_rate_that_only_falls_off_is_no_dip() {
        let mut points = row(7.8, 5000.0);
        for point in &mut points {
            if point.bytes >= Bytes::kib(512) {
                point.one_way_ns *= 2.0;
            }
        }
        assert_eq!(dips(&points), []);
    }

    #[test]
    fn each_hop_that_stores_a_frame_adds_the_links_time_for_it() {
        let link = BitRate::from_mbit_per_s(1_000);
        for (times, verdict) in [
            (1.0, HopsVerdict::CutThrough),
            (2.0, HopsVerdict::StoreAndForward(1)),
            (4.0, HopsVerdict::StoreAndForward(3)),
        ] {
            // 8 ns a byte at 1 Gb/s, which is 125 MB/s.
            let found = hops(&row(24.5, 125.0 / times), Some(link));
            let found = found.get().expect("a plain row");
            assert_eq!(found.verdict, verdict, "{found}");
        }
    }

    #[test]
    fn without_the_links_speed_or_with_noise_nothing_is_said_of_hops() {
        assert!(hops(&row(24.5, 112.0), None).gap().is_some());
        let mut noisy = row(24.5, 112.0);
        for (index, point) in noisy.iter_mut().enumerate() {
            point.one_way_ns *= if index % 2 == 0 { 0.8 } else { 1.2 };
        }
        let link = BitRate::from_mbit_per_s(1_000);
        assert!(hops(&noisy, Some(link)).gap().is_some());
    }

    #[test]
    fn too_few_sizes_have_no_line() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(judged(&row(1.0, 1.0)[..1]), None);
        let twice = [row(1.0, 1.0)[3]; 2];
        assert_eq!(Line::through(&twice), None);
    }

    proptest! {
        #[test]
        fn the_line_of_a_straight_row_is_the_row(
            latency in 0.5..1_000.0f64,
            bandwidth in 10.0..50_000.0f64,
        ) {
            let line = Line::through(&row(latency, bandwidth)).expect("24 sizes");
            prop_assert!((line.latency_ns / (latency * 1e3) - 1.0).abs() < 1e-6);
            prop_assert!((line.ns_per_byte * bandwidth * 1_048_576.0 / 1e9 - 1.0).abs() < 1e-6);
            prop_assert_eq!(dips(&row(latency, bandwidth)), []);
        }

        #[test]
        fn a_few_percent_of_noise_move_both_figures_by_no_more(
            noise in proptest::collection::vec(-0.03..0.03f64, 24),
        ) {
            let mut points = row(7.8, 1126.0);
            for (point, noise) in points.iter_mut().zip(noise) {
                point.one_way_ns *= 1.0 + noise;
            }
            let line = Line::through(&points).expect("24 sizes");
            prop_assert!((line.latency_ns / 7.8e3 - 1.0).abs() < 0.05);
            prop_assert!((line.ns_per_byte * 1.126 - 1.0).abs() < 0.08);
            prop_assert_eq!(dips(&points), []);
        }
    }
}
