//! How much longer or shorter times became: the shift between two independent samples, in their own unit.
//!
//! Ratios ([`crate::effect`]) suit rates. Times such as those of an interruption may be 0, are bounded by timers rather than
//! normal, and may be longer than was observed; only their order is used. The estimate is the median of all differences
//! between a value after and one before (J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals
//! of Mathematical Statistics 34(2), 1963), the interval lies between two of these differences, chosen by the distribution of
//! the rank sum (H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than
//! the other", Annals of Mathematical Statistics 18(1), 1947; M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric
//! Statistical Methods", 3rd ed., 2014, section 4.3). It is exact for values without ties and conservative with them, and
//! assumes that the values are independent and that the change shifts their distribution.

use crate::distribution::student_critical;
use crate::error::{StatsError, check_level};
use crate::summary::count;

/// Products of the numbers of values up to this use the exact distribution.
const EXACT: usize = 10_000;
/// Student's t with so many degrees of freedom is normal.
const NORMAL: f64 = 1e9;

/// The shift from one sample to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The Hodges-Lehmann estimate; none if too many values are longer than was observed.
    pub estimate: Option<f64>,
    /// The lower end of its interval; minus infinity if the values do not bound it.
    pub low: f64,
    /// The upper end; infinity if the values do not bound it.
    pub high: f64,
    /// The confidence that the interval reaches, at least the requested one.
    pub level: f64,
}

/// The shift from `before` to `after` with an interval of at least the confidence `level`. A value of infinity is one that is
/// longer than was observed.
pub fn shift(before: &[f64], after: &[f64], level: f64) -> Result<Shift, StatsError> {
    check_level(level)?;
    check(before)?;
    check(after)?;
    let tail = (1.0 - level) / 2.0;
    let (sizes, pairs) = ((before.len(), after.len()), before.len() * after.len());
    let Some((rank, outside)) = critical_rank(sizes, tail) else {
        return Err(StatsError::TooFewValues {
            have: before.len().min(after.len()),
            need: fewest(tail),
        });
    };
    // Two values that are longer than was observed differ by anything.
    let lowest = differences(before, after, f64::NEG_INFINITY);
    let highest = differences(before, after, f64::INFINITY);
    let middle = |all: &[f64]| f64::midpoint(all[(pairs - 1) / 2], all[pairs / 2]);
    let (one, other) = (middle(&lowest), middle(&highest));
    Ok(Shift {
        estimate: (one.is_finite() && one.to_bits() == other.to_bits()).then_some(one),
        low: lowest[rank],
        high: highest[pairs - 1 - rank],
        level: 1.0 - 2.0 * outside,
    })
}

fn check(values: &[f64]) -> Result<(), StatsError> {
    let is_bad = |value: &f64| value.is_nan() || *value == f64::NEG_INFINITY;
    match values.iter().position(is_bad) {
        Some(index) => Err(StatsError::NotFinite { index }),
        None => Ok(()),
    }
}

/// All differences, ascending.
fn differences(before: &[f64], after: &[f64], of_unbounded: f64) -> Vec<f64> {
    let mut all = Vec::with_capacity(before.len() * after.len());
    for later in after {
        for earlier in before {
            let is_unknown = later.is_infinite() && earlier.is_infinite();
            all.push(if is_unknown {
                of_unbounded
            } else {
                later - earlier
            });
        }
    }
    all.sort_by(f64::total_cmp);
    all
}

/// The place, from 0, of the difference that is the lower end of an interval with at most `tail` below it, and the
/// probability that the shift is below; none if even the smallest difference leaves more.
fn critical_rank((before, after): (usize, usize), tail: f64) -> Option<(usize, f64)> {
    let pairs = before * after;
    if pairs == 0 {
        return None;
    }
    if pairs > EXACT {
        let variance = count(pairs) * count(before + after + 1) / 12.0;
        let below = student_critical(tail, NORMAL) * variance.sqrt();
        let rank = (count(pairs) / 2.0 - below).floor() - 1.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between 0 and the number of pairs"
        )]
        return (rank >= 0.0).then_some((rank as usize, tail));
    }
    let mut below = 0.0;
    let mut found = None;
    for (rank, probability) in rank_sum(before, after).into_iter().enumerate() {
        below += probability;
        // The slack is rounding of the sum only: 1/20 must satisfy a tail of 0.05.
        if below > tail + 1e-12 {
            break;
        }
        found = Some((rank, below));
    }
    found
}

/// The probability of each value of Mann and Whitney's U for samples of one distribution: the coefficients of the Gaussian
/// binomial, built factor by factor.
fn rank_sum(before: usize, after: usize) -> Vec<f64> {
    let pairs = before * after;
    let mut ways = vec![0.0; pairs + 1];
    ways[0] = 1.0;
    for part in 1..=before {
        // Times (1 - q^(after + part)), then divided by (1 - q^part); scaled, so that the coefficients stay probabilities.
        for power in (after + part..=pairs).rev() {
            ways[power] -= ways[power - after - part];
        }
        for power in part..=pairs {
            ways[power] += ways[power - part];
        }
        let scale = count(part) / count(after + part);
        for way in &mut ways {
            *way *= scale;
        }
    }
    ways
}

/// The number of values on each side from which on an interval exists.
fn fewest(tail: f64) -> usize {
    (1..=64)
        .find(|size| critical_rank((*size, *size), tail).is_some())
        .unwrap_or(64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Random, Seed};

    #[test]
    fn the_distribution_of_the_rank_sum_is_that_of_the_tables() {
        // Mann and Whitney's table I: P(U <= 0) = 1/20 for 3 and 3; P(U <= 2) = 4/70 for 4 and 4; P(U <= 4) = 0.0159 for 5, 7.
        let below = |before, after, most: usize| {
            let all = rank_sum(before, after);
            all[..=most].iter().sum::<f64>()
        };
        assert!((below(3, 3, 0) - 0.05).abs() < 1e-12);
        assert!((below(4, 4, 2) - 4.0 / 70.0).abs() < 1e-12);
        assert!((below(5, 7, 4) - 12.0 / 792.0).abs() < 1e-12);
        let all: f64 = rank_sum(60, 100).iter().sum();
        assert!((all - 1.0).abs() < 1e-6, "{all}");
    }

    #[test]
    fn the_interval_of_three_values_on_each_side_exists_at_90_percent_and_of_two_does_not() {
        let three = shift(&[0.0, 1.0, 2.0], &[10.0, 11.0, 12.0], 0.9).expect("an interval");
        assert_eq!((three.low, three.high), (8.0, 12.0));
        assert_eq!(three.estimate, Some(10.0));
        let two = shift(&[0.0, 1.0], &[10.0, 11.0], 0.9).expect_err("too few");
        assert_eq!(two, StatsError::TooFewValues { have: 2, need: 3 });
    }

    #[test]
    fn zeros_on_both_sides_are_no_shift() {
        let none = shift(&[0.0; 10], &[0.0; 10], 0.95).expect("an interval");
        assert_eq!((none.estimate, none.low, none.high), (Some(0.0), 0.0, 0.0));
    }

    #[test]
    fn a_value_that_was_longer_than_observed_bounds_the_shift_from_below_only() {
        let after = [5.0, f64::INFINITY, f64::INFINITY];
        let shifted = shift(&[1.0, 2.0, 3.0], &after, 0.9).expect("an interval");
        assert_eq!((shifted.low, shifted.high), (2.0, f64::INFINITY));
        assert_eq!(shifted.estimate, None);
        let both = [f64::INFINITY; 3];
        let unknown = shift(&both, &both, 0.9).expect("an interval");
        assert_eq!(
            (unknown.low, unknown.high),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
    }

    #[test]
    fn the_interval_contains_the_true_shift_as_often_as_it_states() {
        let mut random = Random::new(Seed(28));
        for (size, level) in [(5, 0.9), (10, 0.95), (120, 0.95)] {
            let repetitions = 1_000;
            let mut hits = 0;
            for _ in 0..repetitions {
                // A timer: evenly spread between two and three intervals.
                let mut draw = |shift: f64| -> Vec<f64> {
                    (0..size).map(|_| 2.0 + random.unit() + shift).collect()
                };
                let (before, after) = (draw(0.0), draw(0.25));
                let found = shift(&before, &after, level).expect("an interval");
                hits += usize::from(found.low <= 0.25 && 0.25 <= found.high);
            }
            let share = count(hits) / count(repetitions);
            // Three standard errors of 1,000 repetitions.
            assert!(share > level - 0.03, "{size} values: {share}");
        }
    }
}
