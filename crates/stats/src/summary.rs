//! Summary statistics of a handful of values: center, spread, quantiles, and a confidence interval of the median.

use crate::Interval;
use crate::distribution::ln_gamma;
use crate::error::{StatsError, check_level, check_values};

/// The arithmetic mean.
pub fn mean(values: &[f64]) -> Result<f64, StatsError> {
    check_values(values, 1)?;
    Ok(mean_of(values))
}

/// The sample standard deviation (divisor n - 1), of at least two values.
pub fn standard_deviation(values: &[f64]) -> Result<f64, StatsError> {
    check_values(values, 2)?;
    Ok(deviation_of(values))
}

/// The median; for an even number of values, the mean of the two in the middle.
pub fn median(values: &[f64]) -> Result<f64, StatsError> {
    quantile(values, 0.5)
}

/// The quantile for `probability`.
///
/// Definition 7 of R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", The American Statistician
/// 50(4), 1996: linear between the order statistics, with the smallest value at 0 and the largest at 1. It is the
/// default of R, NumPy and most tools.
pub fn quantile(values: &[f64], probability: f64) -> Result<f64, StatsError> {
    check_values(values, 1)?;
    if !(0.0..=1.0).contains(&probability) {
        return Err(StatsError::ProbabilityOutOfRange { probability });
    }
    Ok(quantile_of_sorted(&sorted(values), probability))
}

/// The narrowest interval between two order statistics, equally far from both ends of the sorted values, that
/// contains the median of their distribution with at least the confidence `level`.
///
/// Assumes only that the values are independent: the k-th smallest and k-th largest enclose the median unless fewer
/// than k values are on one side of it, which has a binomial probability (W. R. Thompson, Annals of Mathematical
/// Statistics 7(3), 1936; H. A. David and H. N. Nagaraja, "Order Statistics", 3rd ed., 2003, section 7.1).
///
/// The interval has the level it reaches, which is at least the requested one. Even the smallest and the largest of
/// five values enclose the median only 93.75 % of the time, so five values have no interval at 95 %: the error then
/// contains the number of values needed (six).
pub fn median_interval(values: &[f64], level: f64) -> Result<Interval, StatsError> {
    check_level(level)?;
    check_values(values, 0)?;
    let mut rank = None;
    // Probability that at most `below` of n coins show heads, added up from the smallest term.
    let mut tail = 0.0;
    for below in 0..values.len() / 2 {
        tail += coin_probability(values.len(), below);
        // The slack is rounding of the sum only: 1 - 2/2^5 must satisfy a level of 0.9375.
        if 1.0 - 2.0 * tail < level - 1e-12 {
            break;
        }
        rank = Some((below, 1.0 - 2.0 * tail));
    }
    let Some((below, reached)) = rank else {
        let need = values_for_median(level);
        return Err(StatsError::TooFewValues {
            have: values.len(),
            need,
        });
    };
    let sorted = sorted(values);
    Ok(Interval {
        low: sorted[below],
        high: sorted[sorted.len() - 1 - below],
        level: reached,
    })
}

/// The number of values whose smallest and largest enclose the median at `level`: 1 - 2^(1-n) must reach it.
fn values_for_median(level: f64) -> usize {
    let mut need = 2;
    let mut outside = 0.5;
    while 1.0 - outside < level - 1e-12 {
        outside /= 2.0;
        need += 1;
    }
    need
}

/// The probability of exactly `heads` heads in `n` tosses of a fair coin, through logarithms so that
/// thousands of tosses do not underflow before they are added.
fn coin_probability(n: usize, heads: usize) -> f64 {
    let (n, heads) = (count(n), count(heads));
    let ways = ln_gamma(n + 1.0) - ln_gamma(heads + 1.0) - ln_gamma(n - heads + 1.0);
    (ways - n * std::f64::consts::LN_2).exp()
}

/// The mean of validated values.
pub(crate) fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values.len())
}

/// The sample standard deviation of two or more validated values, in two passes: the one-pass formula loses all
/// precision if the spread is small relative to the mean, as it is for rates.
pub(crate) fn deviation_of(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / count(values.len() - 1)).sqrt()
}

/// A sorted copy of values validated to be finite.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Hyndman and Fan's definition 7 on values already sorted; see [`quantile`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the position lies between 0 and the number of values"
)]
pub(crate) fn quantile_of_sorted(sorted: &[f64], probability: f64) -> f64 {
    let position = probability * count(sorted.len() - 1);
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let share = position - position.floor();
    sorted[below] * (1.0 - share) + sorted[above] * share
}

/// A count as `f64`.
#[expect(
    clippy::cast_precision_loss,
    reason = "no one holds 2^53 measurements in memory"
)]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Random, Seed};

    const FIVE: [f64; 5] = [9.0, 2.0, 4.0, 4.0, 5.0];

    fn near(got: Result<f64, StatsError>, want: f64) {
        let got = got.expect("the values are good");
        assert!(
            (got - want).abs() < 1e-12 * want.abs().max(1.0),
            "{got} is not {want}"
        );
    }

    #[test]
    fn mean_and_deviation_are_those_done_by_hand() {
        near(mean(&FIVE), 4.8);
        // Squared distances: 17.64 + 7.84 + 0.64 + 0.64 + 0.04 = 26.8; 26.8 / 4 = 6.7.
        near(standard_deviation(&FIVE), 6.7_f64.sqrt());
    }

    #[test]
    fn deviation_survives_a_large_mean() {
        near(standard_deviation(&[1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]), 1.0);
    }

    #[test]
    fn median_is_the_middle_or_between_the_two_middle_ones() {
        near(median(&FIVE), 4.0);
        near(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        near(median(&[7.0]), 7.0);
    }

    #[test]
    fn quantiles_are_those_of_definition_seven() {
        // R: quantile(c(1, 2, 4, 8), c(0, 0.1, 0.25, 0.5, 0.9, 1), type = 7).
        let values = [8.0, 1.0, 4.0, 2.0];
        for (probability, want) in [
            (0.0, 1.0),
            (0.1, 1.3),
            (0.25, 1.75),
            (0.5, 3.0),
            (0.9, 6.8),
            (1.0, 8.0),
        ] {
            near(quantile(&values, probability), want);
        }
    }

    #[test]
    fn too_few_values_are_refused_with_the_number_it_takes() {
        assert_eq!(
            mean(&[]),
            Err(StatsError::TooFewValues { have: 0, need: 1 })
        );
        assert_eq!(
            median(&[]),
            Err(StatsError::TooFewValues { have: 0, need: 1 })
        );
        assert_eq!(
            standard_deviation(&[1.0]),
            Err(StatsError::TooFewValues { have: 1, need: 2 })
        );
    }

    #[test]
    fn values_that_are_no_numbers_are_refused_by_position() {
        assert_eq!(
            mean(&[1.0, f64::NAN]),
            Err(StatsError::NotFinite { index: 1 })
        );
        assert_eq!(
            median(&[f64::INFINITY]),
            Err(StatsError::NotFinite { index: 0 })
        );
    }

    #[test]
    fn a_probability_outside_zero_to_one_is_refused() {
        for probability in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(
                quantile(&FIVE, probability),
                Err(StatsError::ProbabilityOutOfRange { .. })
            ));
        }
    }

    #[test]
    fn median_interval_is_that_of_the_tables() {
        // Ranks and levels as tabled for the sign test: n = 6: 1..6 at 96.875 %; n = 10: 2..9 at
        // 97.85 %; n = 20: 6..15 at 95.86 %.
        for (n, rank, level) in [
            (6, 1, 0.96875),
            (10, 2, 0.978_515_625),
            (20, 6, 0.958_610_534_667),
        ] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval(&values, 0.95).expect("enough values");
            near(Ok(interval.low), f64::from(rank));
            near(Ok(interval.high), f64::from(n + 1 - rank));
            near(Ok((interval.level * 1e12).round() / 1e12), level);
        }
    }

    #[test]
    fn median_interval_says_how_many_values_it_takes() {
        assert_eq!(
            median_interval(&FIVE, 0.95),
            Err(StatsError::TooFewValues { have: 5, need: 6 })
        );
        assert!(median_interval(&FIVE, 0.9375).is_ok());
        assert_eq!(
            median_interval(&[], 0.5),
            Err(StatsError::TooFewValues { have: 0, need: 2 })
        );
        assert_eq!(
            median_interval(&[1.0, 2.0], 0.999),
            Err(StatsError::TooFewValues { have: 2, need: 11 })
        );
    }

    #[test]
    fn median_interval_holds_the_median_as_often_as_it_says() {
        let mut random = Random::new(Seed(11));
        for n in [6, 10, 25] {
            let mut held = 0;
            let mut level = 0.0;
            for _ in 0..4_000 {
                // Skewed on purpose: the median of an exponential is ln 2.
                let values: Vec<f64> = (0..n).map(|_| -(1.0 - random.unit()).ln()).collect();
                let interval = median_interval(&values, 0.95).expect("enough values");
                held += usize::from(interval.contains(std::f64::consts::LN_2));
                level = interval.level;
            }
            let rate = count(held) / 4_000.0;
            // Four standard deviations of a share of about 0.96 in 4000.
            assert!(
                (rate - level).abs() < 0.0125,
                "n = {n}: {rate} against {level}"
            );
        }
    }

    #[test]
    fn median_interval_of_many_values_is_narrow_and_finite() {
        let values: Vec<f64> = (1..=5_000).map(f64::from).collect();
        let interval = median_interval(&values, 0.95).expect("enough values");
        // Normal approximation: 2500.5 -+ 1.96 * sqrt(5000) / 2 = 69.3.
        assert!((interval.low - 2_431.0).abs() <= 1.0, "{interval:?}");
        assert!((interval.high - 2_570.0).abs() <= 1.0, "{interval:?}");
    }

    #[test]
    fn a_level_outside_zero_to_one_is_refused() {
        for level in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(matches!(
                median_interval(&FIVE, level),
                Err(StatsError::LevelOutOfRange { .. })
            ));
        }
    }
}
