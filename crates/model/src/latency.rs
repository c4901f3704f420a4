//! A latency histogram with a bounded relative error: log-linear buckets, as in Gil Tene's HdrHistogram. Recording is
//! a shift, an add and a store, so a data thread can afford it for every operation.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::Nanoseconds;

/// Each power of two is divided into this many equal buckets, so the relative error is at most 1/256 (0.4 %), half of
/// that if a bucket's middle is reported.
const CUTS_LOG2: u32 = 8;
const CUTS: u64 = 1 << CUTS_LOG2;
/// Times above 2^42 ns (73 minutes) count as that.
const VALUE_MAX: u64 = 1 << 42;
const BUCKETS: usize = index_of(VALUE_MAX) + 1;

/// The bucket of `value`: below 2 x [`CUTS`] every value has its own.
const fn index_of(value: u64) -> usize {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    let shift = (value | CUTS).ilog2() - CUTS_LOG2;
    // Row 0 holds the values below 2 x CUTS; each row after it has CUTS buckets.
    #[expect(clippy::cast_possible_truncation, reason = "some ten thousand at most")]
    let index = (shift as u64 * CUTS + (value >> shift)) as usize;
    index
}

/// The lowest value of bucket `index`, and how many it has.
const fn range_of(index: usize) -> (u64, u64) {
    let row = (index as u64 / CUTS).saturating_sub(1);
    ((index as u64 - row * CUTS) << row, 1 << row)
}

/// The middle of bucket `index`.
const fn middle_of(index: usize) -> u64 {
    let (low, width) = range_of(index);
    low + width / 2
}

/// The count of each time.
#[derive(Clone)]
pub struct Histogram {
    /// The buckets from `first` on: all of them while recording, only the non-empty range after reading, since a
    /// stored run has thousands of histograms.
    buckets: Vec<u64>,
    first: usize,
    count: u64,
    /// Exact, for the mean.
    sum_ns: u128,
    /// Exact.
    min_ns: u64,
    /// Exact.
    max_ns: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min_ns", &self.min_ns)
            .field("max_ns", &self.max_ns)
            .finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            ..Self::empty()
        }
    }
}

impl Histogram {
    /// An empty histogram without buckets.
    fn empty() -> Self {
        Self {
            buckets: Vec::new(),
            first: 0,
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Records one time.
    #[inline]
    pub fn record(&mut self, time: Nanoseconds) {
        let ns = time.as_u64();
        *self.bucket_of(ns) += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    #[inline]
    fn bucket_of(&mut self, ns: u64) -> &mut u64 {
        let index = index_of(ns);
        if self.buckets.get(index.wrapping_sub(self.first)).is_none() {
            self.widen(index, index);
        }
        &mut self.buckets[index - self.first]
    }

    /// The times with those of the requests that a closed loop did not send while it waited: for each time that is
    /// `expected` or more above `expected`, also the time less `expected`, less 2 x `expected` and so on (Gil Tene's
    /// correction for coordinated omission, as wrk applies it).
    #[must_use]
    pub fn corrected(&self, expected: Nanoseconds) -> Self {
        let mut all = self.clone();
        let step = expected.as_u64().max(1);
        for (middle, count) in self.filled() {
            let ns = middle.clamp(self.min_ns, self.max_ns);
            let mut skipped = 1;
            // Many missed requests fall into one bucket: each bucket is filled once.
            while let Some(time) = ns.checked_sub(step.saturating_mul(skipped))
                && time > step
            {
                let lowest = range_of(index_of(time)).0.max(step + 1);
                let last = (ns - lowest) / step;
                let added = count.saturating_mul(last - skipped + 1);
                let bucket = all.bucket_of(time);
                *bucket = bucket.saturating_add(added);
                all.count = all.count.saturating_add(added);
                all.sum_ns = all
                    .sum_ns
                    .saturating_add(u128::from(time) * u128::from(added));
                all.min_ns = all.min_ns.min(time);
                skipped = last + 1;
            }
        }
        all
    }

    /// Merges another histogram.
    pub fn add(&mut self, other: &Self) {
        if let Some(last) = other.buckets.len().checked_sub(1) {
            self.widen(other.first, other.first + last);
            let from = other.first - self.first;
            for (own, theirs) in self.buckets[from..].iter_mut().zip(&other.buckets) {
                *own = own.saturating_add(*theirs);
            }
        }
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Extends the range to the buckets from `first` to `last`.
    #[cold]
    fn widen(&mut self, first: usize, last: usize) {
        if self.buckets.is_empty() {
            self.first = first;
        }
        let missing = self.first.saturating_sub(first);
        self.buckets.splice(..0, std::iter::repeat_n(0, missing));
        self.first -= missing;
        let length = (last + 1 - self.first).max(self.buckets.len());
        self.buckets.resize(length, 0);
    }

    /// The number of recorded times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact minimum; `None` if empty.
    pub fn min(&self) -> Option<Nanoseconds> {
        (self.count > 0).then(|| Nanoseconds::new(self.min_ns))
    }

    /// The exact maximum; `None` if empty.
    pub fn max(&self) -> Option<Nanoseconds> {
        (self.count > 0).then(|| Nanoseconds::new(self.max_ns))
    }

    /// The exact mean in nanoseconds; `None` if empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| real128(self.sum_ns) / real(self.count))
    }

    /// The standard deviation in nanoseconds, from the buckets' middles; `None` if empty.
    pub fn stddev_ns(&self) -> Option<f64> {
        let mean = self.mean_ns()?;
        let squares: f64 = self
            .filled()
            .map(|(ns, count)| real(count) * (real(ns) - mean).powi(2))
            .sum();
        Some((squares / real(self.count)).sqrt())
    }

    /// The quantile `quantile` (0 to 1); `None` if empty. The ends are exact, between them the error is at most 0.2
    /// %.
    pub fn quantile(&self, quantile: f64) -> Option<Nanoseconds> {
        let rank = (quantile.clamp(0.0, 1.0) * real(self.count))
            .ceil()
            .max(1.0);
        let mut below = 0u64;
        for (ns, count) in self.filled() {
            below += count;
            if real(below) >= rank {
                return Some(Nanoseconds::new(ns.clamp(self.min_ns, self.max_ns)));
            }
        }
        self.max()
    }

    /// The share of the times within one standard deviation of the mean, as wrk prints it.
    pub fn within_one_stddev(&self) -> Option<f64> {
        let (mean, deviation) = (self.mean_ns()?, self.stddev_ns()?);
        let within: u64 = self
            .filled()
            .filter(|(ns, _)| (real(*ns) - mean).abs() <= deviation)
            .map(|(_, count)| count)
            .sum();
        Some(real(within) / real(self.count))
    }

    /// Every non-empty bucket: its middle in nanoseconds, and its count.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        self.numbered()
            .map(|(index, count)| (middle_of(index), count))
    }

    /// Every non-empty bucket: its index, and its count.
    fn numbered(&self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..)
            .zip(self.buckets.iter().copied())
            .filter(|(_, count)| *count > 0)
    }
}

/// Compares the recorded times, regardless of the allocated range.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let scalars = |of: &Self| (of.count, of.sum_ns, of.min_ns, of.max_ns);
        scalars(self) == scalars(other) && self.numbered().eq(other.numbered())
    }
}

impl Eq for Histogram {}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
fn real(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
fn real128(value: u128) -> f64 {
    value as f64
}

/// The stored form: the non-empty buckets, as pairs of index and count.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Buckets per power of two: a record with another layout is rejected.
    cuts: u64,
    count: u64,
    sum_ns: String,
    min_ns: u64,
    max_ns: u64,
    buckets: Vec<(u32, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets = self
            .numbered()
            .map(|(index, count)| (u32::try_from(index).unwrap_or(u32::MAX), count));
        Stored {
            cuts: CUTS,
            count: self.count,
            // JSON numbers have 53 bits elsewhere, but not here.
            sum_ns: self.sum_ns.to_string(),
            min_ns: if self.count == 0 { 0 } else { self.min_ns },
            max_ns: self.max_ns,
            buckets: buckets.collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let stored = Stored::deserialize(deserializer)?;
        if stored.cuts != CUTS {
            return Err(D::Error::custom(format!(
                "a histogram of {} buckets in each power of two: this program has {CUTS}",
                stored.cuts
            )));
        }
        let numbers = || stored.buckets.iter().map(|(index, _)| *index as usize);
        let (first, end) = match (numbers().min(), numbers().max()) {
            (Some(first), Some(last)) if last < BUCKETS => (first, last + 1),
            (None, None) => (0, 0),
            _ => return Err(D::Error::custom("a bucket beyond the last")),
        };
        let mut histogram = Self {
            buckets: vec![0; end - first],
            first,
            ..Self::empty()
        };
        let mut count = 0u64;
        for (index, in_bucket) in stored.buckets {
            histogram.buckets[index as usize - first] = in_bucket;
            count = count
                .checked_add(in_bucket)
                .ok_or_else(|| D::Error::custom("counter overflow"))?;
        }
        if count != stored.count || (count > 0 && stored.min_ns > stored.max_ns) {
            return Err(D::Error::custom("a histogram that contradicts itself"));
        }
        histogram.count = count;
        histogram.sum_ns = stored.sum_ns.parse().map_err(D::Error::custom)?;
        histogram.min_ns = if count == 0 { u64::MAX } else { stored.min_ns };
        histogram.max_ns = stored.max_ns;
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for &ns in times {
            histogram.record(Nanoseconds::new(ns));
        }
        histogram
    }

    #[test]
    fn a_stall_counts_for_the_requests_that_it_kept_from_being_sent() {
        let mut seen = Histogram::default();
        (0..9_990).for_each(|_| seen.record(Nanoseconds::from_micros(100)));
        (0..10).for_each(|_| seen.record(Nanoseconds::from_millis(200)));
        let all = seen.corrected(Nanoseconds::from_micros(100));
        // 200 ms, 199.9 ms, ... 0.2 ms for each of the ten; a bucket is at most 0.4 % wide.
        assert_eq!(all.count(), 9_990 + 10 * 1_999);
        let ms = |histogram: &Histogram, quantile| {
            histogram.quantile(quantile).expect("times").as_u64() / 1_000_000
        };
        assert_eq!((ms(&seen, 0.99), ms(&seen, 0.9995)), (0, 200));
        assert!((196..=198).contains(&ms(&all, 0.99)), "{}", ms(&all, 0.99));
        assert_eq!(all.max(), seen.max());
        assert_eq!(seen.corrected(Nanoseconds::from_millis(200)), seen);
        assert_eq!(
            Histogram::default().corrected(Nanoseconds::new(0)).count(),
            0
        );
    }

    #[test]
    fn a_correction_of_the_longest_time_by_the_shortest_ends_soon() {
        let mut seen = Histogram::default();
        seen.record(Nanoseconds::new(u64::MAX));
        let all = seen.corrected(Nanoseconds::new(0));
        assert!(all.count() > 1 << 40, "{}", all.count());
    }

    #[test]
    fn small_times_are_exact() {
        for ns in 0..2 * CUTS {
            assert_eq!(middle_of(index_of(ns)), ns);
        }
    }

    #[test]
    fn nothing_has_no_figures() {
        let nothing = Histogram::default();
        assert_eq!((nothing.mean_ns(), nothing.quantile(0.5)), (None, None));
        assert_eq!(nothing.within_one_stddev(), None);
    }

    #[test]
    fn two_thirds_of_a_plain_row_are_within_one_deviation() {
        let times: Vec<u64> = (0..=1000).collect();
        let share = of(&times).within_one_stddev().expect("times");
        assert!((0.57..0.58).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn every_bucket_holds_its_values_to_half_a_percent(ns in 0..VALUE_MAX) {
            let middle = middle_of(index_of(ns));
            prop_assert!(middle.abs_diff(ns) * 500 <= ns, "{ns} became {middle}");
        }

        #[test]
        fn quantiles_agree_with_a_record_of_every_time(
            mut times in proptest::collection::vec(0u64..10_000_000_000, 1..400),
            quantile in 0.0..=1.0f64,
        ) {
            let histogram = of(&times);
            times.sort_unstable();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
            let rank = (quantile * real(times.len() as u64)).ceil().max(1.0) as usize;
            let truth = times[rank - 1];
            let said = histogram.quantile(quantile).expect("times").as_u64();
            prop_assert!(said.abs_diff(truth) * 250 <= truth.max(1), "{said} for {truth}");
        }

        #[test]
        fn what_was_read_takes_more_times_and_adds_like_any_other(
            stored in proptest::collection::vec(any::<u64>(), 0..20),
            more in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            let read = |times: &[u64]| -> Histogram {
                let text = serde_json::to_string(&of(times)).expect("plain data");
                serde_json::from_str(&text).expect("own text")
            };
            let whole = of(&[stored.clone(), more.clone()].concat());
            let mut recorded = read(&stored);
            for &ns in &more {
                recorded.record(Nanoseconds::new(ns));
            }
            prop_assert_eq!(&recorded, &whole);
            let mut added = read(&stored);
            added.add(&read(&more));
            prop_assert_eq!(&added, &whole);
        }

        #[test]
        fn what_is_stored_reads_back(times in proptest::collection::vec(any::<u64>(), 0..50)) {
            let histogram = of(&times);
            let text = serde_json::to_string(&histogram).expect("plain data");
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).expect("own text"), histogram);
        }
    }
}
