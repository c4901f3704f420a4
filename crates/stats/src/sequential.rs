//! Trials that are repeated until their result is precise: when to look at it, and intervals that allow for repeated
//! looks.
//!
//! Whatever is repeated is looked at rarely, at geometrically growing numbers ([`is_look`]). The interval of an effect
//! within blocks has a higher level at each look ([`level_at_look`]). That of the median of a series ([`look`]) allows
//! for correlated trials, too:
//!
//! Trials that follow each other are correlated, so n of them are worth fewer independent ones. The interval is that of
//! order statistics (as [`median_interval`](crate::summary::median_interval)), with n divided by (1 + r) / (1 - r), the
//! variance inflation of a first-order autoregressive series with correlation r (G. V. Bayley and J. M. Hammersley,
//! "The effective number of independent observations in an autocorrelated time series", JRSS Suppl. 8, 1946).
//!
//! Stopping when an interval is narrow selects, from rates with several modes, the moments at which most trials were
//! in one mode. So there are few looks, at geometrically growing numbers of trials, and a second, wider interval that
//! holds at all looks together. Where that one is much wider, there is a gap beside the median, and it is the result.
//! The constants were chosen by simulation; `tests/it/sequential.rs` verifies that at most 7 % miss the median with
//! correlations up to 0.7. The limits: 15 % with two speeds and 0.8, and 25 % of series whose lag-1 correlation hides a
//! slow change (autoregressive with 0.9, half of the variance, below independent noise).

use crate::distribution::student_critical;
use crate::error::{StatsError, check_values};
use crate::summary::{count, mean_of, quantile_of_sorted, sorted};

/// With fewer values even the smallest and the largest do not enclose the median of independent values with 95 %.
pub const FEWEST: usize = 6;
/// The first look that can end the repeating. A rate with two modes and a correlation of 0.7 stays in one mode for
/// this long in 4.6 % of all series, which no method can notice.
pub const FIRST_LOOK: usize = 20;

/// Half the width of the interval at a look, in standard deviations of a rank.
const NARROW: Width = Width {
    deviations: 2.0,
    margin: 0.3,
};
/// The interval that holds at all looks together.
const JOINT: Width = Width {
    deviations: 4.0,
    margin: 0.7,
};
/// Without a gap beside the median the joint interval is at most about this much wider.
const GAP: f64 = 4.0;
/// One tail of the share of series without a trend in which one is reported: 1 % of independent values, and up to 4 % of
/// short series (20 to 60 values) with a correlation of 0.7.
const TREND_TAIL: f64 = 0.005;

struct Width {
    deviations: f64,
    /// Added to the correlation, in standard errors: a short series underestimates it.
    margin: f64,
}

/// What a series of values shows about the median of their distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// The median of the values.
    pub median: f64,
    /// The 95 % interval; if it is not `valid`, the smallest value.
    pub low: f64,
    /// Its upper end; if it is not `valid`, the largest value.
    pub high: f64,
    /// Whether there are enough values for an interval.
    pub is_valid: bool,
    /// The wider interval that holds at all looks together: for a series that ends because of where its interval lies.
    pub joint: Option<(f64, f64)>,
    /// The correlation of successive values, corrected for its bias; none with fewer than [`FIRST_LOOK`] values.
    pub correlation: Option<f64>,
    /// The number of independent values with the same information; none with fewer than [`FIRST_LOOK`] values.
    pub effective: Option<f64>,
    /// The change from the first to the last value according to a linear trend; none if it is not significant.
    pub drift: Option<f64>,
}

/// The number of values at the look after the one at `n`: a third more.
pub fn next_look(n: usize) -> usize {
    n + n.div_ceil(3)
}

/// The number of values at each look, from the `first` one on.
fn looks(first: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(first.max(1)), |n| Some(next_look(*n)))
}

/// Whether a series with its first look at `first` values is looked at when it has `n`.
pub fn is_look(first: usize, n: usize) -> bool {
    looks(first).take_while(|at| *at <= n).last() == Some(n)
}

/// How many looks have been made when a series is looked at with `n` values: the planned ones before, and this one.
pub fn number_of_looks(first: usize, n: usize) -> usize {
    looks(first).take_while(|at| *at < n).count() + 1
}

/// The level of the interval of an effect at a look, so that the intervals of all looks, however many follow, miss the
/// effect with a probability of at most 1 - `level` together: look k has the share 1 / (k (k + 1)) of it, and these add
/// up to 1 (Bonferroni's inequality).
///
/// For differences within blocks in random order. The order makes them uncorrelated from block to block, whatever the
/// noise of trials is like, so other than a series of trials ([`look`]) they need no effective number.
pub fn level_at_look(level: f64, look: usize) -> f64 {
    let look = count(look.max(1));
    1.0 - (1.0 - level) / (look * (look + 1.0))
}

/// The median of `values` in their order of time, of at least [`FEWEST`].
pub fn look(values: &[f64]) -> Result<Look, StatsError> {
    check_values(values, FEWEST)?;
    let order = sorted(values);
    let n = values.len();
    let mut look = Look {
        median: quantile_of_sorted(&order, 0.5),
        low: order[0],
        high: order[n - 1],
        is_valid: false,
        joint: None,
        correlation: None,
        effective: None,
        drift: None,
    };
    if n < FIRST_LOOK {
        return Ok(look);
    }
    let ranks = ranks(values, &order);
    // Values show modes far apart, ranks the correlation of values with outliers.
    let correlation = unbiased(lag_one(values).max(lag_one(&ranks)), n);
    let (narrow, effective) = NARROW.ranks(correlation, n);
    let (joint, _) = JOINT.ranks(correlation, n);
    look.correlation = Some(correlation);
    look.effective = Some(effective);
    look.drift = drift(values, &ranks);
    if let Some(below) = narrow {
        (look.low, look.high) = (order[below], order[n - 1 - below]);
        look.is_valid = true;
    }
    look.joint = joint.map(|below| (order[below], order[n - 1 - below]));
    let (low, high) = look.joint.unwrap_or((order[0], order[n - 1]));
    if high - low > GAP * (look.high - look.low) {
        (look.low, look.high, look.is_valid) = (low, high, joint.is_some());
    }
    Ok(look)
}

impl Width {
    /// How many values lie below the interval, and as many above it; none if there are too few for an interval. With
    /// the effective number of values.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and half the number of values"
    )]
    fn ranks(&self, correlation: f64, n: usize) -> (Option<usize>, f64) {
        let n = count(n);
        let correlation = correlation + self.margin / n.sqrt();
        let inflation = inflation(correlation);
        let rank = (n - self.deviations * (n * inflation).sqrt()) / 2.0;
        ((rank >= 1.0).then(|| rank as usize - 1), n / inflation)
    }
}

/// How much larger correlation makes the variance of a mean; never smaller.
fn inflation(correlation: f64) -> f64 {
    let correlation = correlation.clamp(0.0, 0.99);
    (1.0 + correlation) / (1.0 - correlation)
}

/// Values closer together than this share of them differ only by rounding.
const NO_SPREAD: f64 = 1e-12;

/// The correlation of each value with the next; 0 if all are equal.
fn lag_one(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let products: f64 = (values.windows(2))
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    if squares > count(values.len()) * (NO_SPREAD * mean).powi(2) {
        products / squares
    } else {
        0.0
    }
}

/// A correlation without its bias, -(1 + 3 r) / n (F. H. C. Marriott and J. A. Pope, "Bias in the estimation of
/// autocorrelations", Biometrika 41, 1954).
fn unbiased(correlation: f64, n: usize) -> f64 {
    (correlation + (1.0 + 3.0 * correlation) / count(n)).min(1.0)
}

/// The rank of each value, equal ones with the mean of theirs.
fn ranks(values: &[f64], order: &[f64]) -> Vec<f64> {
    (values.iter())
        .map(|value| {
            let below = order.partition_point(|other| other < value);
            let up_to = order.partition_point(|other| other <= value);
            f64::midpoint(count(below), count(up_to))
        })
        .collect()
}

/// The change from the first to the last value by the line through the values, if the trend of their ranks is
/// significant with the correlation that remains around it.
fn drift(values: &[f64], ranks: &[f64]) -> Option<f64> {
    let n = count(values.len());
    let (slope, rest) = trend(ranks);
    let squares: f64 = rest.iter().map(|value| value * value).sum();
    // The line takes up correlation, too: two biases (mean and slope) instead of one.
    let correlation = unbiased(unbiased(lag_one(&rest), rest.len()), rest.len());
    let inflation = inflation(correlation + JOINT.margin / n.sqrt());
    let freedom = (n / inflation - 2.0).max(1.0);
    let spread = n * (n * n - 1.0) / 12.0;
    let error = (squares / freedom / spread).sqrt();
    (slope.abs() > student_critical(TREND_TAIL, freedom) * error)
        .then(|| trend(values).0 * (n - 1.0))
}

/// The slope of the least-squares line over the index, and what remains around it.
fn trend(values: &[f64]) -> (f64, Vec<f64>) {
    let (n, mean) = (count(values.len()), mean_of(values));
    let at = |index: usize| count(index) - (n - 1.0) / 2.0;
    let each = || values.iter().enumerate();
    let products: f64 = each()
        .map(|(index, value)| at(index) * (value - mean))
        .sum();
    let slope = products / (n * (n * n - 1.0) / 12.0);
    let rest = each().map(|(index, value)| value - mean - slope * at(index));
    (slope, rest.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alternating(n: u32) -> Vec<f64> {
        (0..n).map(|index| 100.0 + f64::from(index % 2)).collect()
    }

    #[test]
    fn few_values_have_a_range_and_no_interval() {
        assert_eq!(
            look(&[1.0; 5]),
            Err(StatsError::TooFewValues { have: 5, need: 6 })
        );
        let few = look(&[3.0, 1.0, 2.0, 5.0, 4.0, 6.0]).expect("six values");
        assert_eq!((few.low, few.median, few.high), (1.0, 3.5, 6.0));
        assert!(!few.is_valid && few.correlation.is_none() && few.effective.is_none());
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        // The mean of 20 times 0.6 is not 0.6.
        for value in [7.0, 0.6, 0.0] {
            let equal = look(&[value; FIRST_LOOK]).expect("enough values");
            assert!(equal.is_valid && equal.drift.is_none(), "{equal:?}");
            assert_eq!((equal.low, equal.high), (value, value));
        }
    }

    #[test]
    fn negative_correlation_never_makes_the_interval_narrower() {
        let look = look(&alternating(40)).expect("enough values");
        assert!(look.correlation < Some(-0.9), "{look:?}");
        assert_eq!(look.effective, Some(40.0));
    }

    #[test]
    fn values_that_rise_all_the_time_drift_by_their_range() {
        let rising: Vec<f64> = (0..30).map(f64::from).collect();
        let drift = look(&rising)
            .expect("enough values")
            .drift
            .expect("a trend");
        assert!((drift - 29.0).abs() < 1e-9, "{drift}");
    }

    #[test]
    fn a_correlated_series_is_worth_fewer_values() {
        let steps: Vec<f64> = (0..40).map(|index| f64::from(index / 5 % 2)).collect();
        let look = look(&steps).expect("enough values");
        assert!(look.correlation > Some(0.5), "{look:?}");
        assert!(look.effective < Some(13.0), "{look:?}");
    }

    #[test]
    fn looks_grow_by_a_third() {
        let planned: Vec<usize> = looks(FIRST_LOOK).take(6).collect();
        assert_eq!(planned, [20, 27, 36, 48, 64, 86]);
        let at: Vec<usize> = (0..40).filter(|n| is_look(5, *n)).collect();
        assert_eq!(at, [5, 7, 10, 14, 19, 26, 35]);
        assert_eq!(
            [5, 7, 8, 10, 11].map(|n| number_of_looks(5, n)),
            [1, 2, 3, 3, 4]
        );
    }

    #[test]
    fn the_levels_of_all_looks_add_up_to_the_stated_one() {
        let missed: f64 = (1..100_000)
            .map(|look| 1.0 - level_at_look(0.95, look))
            .sum();
        assert!((0.049_9..0.05).contains(&missed), "{missed}");
    }
}
