//! The minimum detectable effect of an experiment with a given spread: the power of a t test, inverted.
//!
//! If pairs scatter with standard deviation s about a true shift d, the statistic of n pairs follows
//! the noncentral t distribution with n - 1 degrees of freedom and noncentrality d * sqrt(n) / s.
//! (J. Cohen, "Statistical power analysis for the behavioral sciences", 2nd ed., 1988, chapter 2; for
//! the effect size found from the power, H. S. Bloom, "Minimum detectable effects", Evaluation
//! Review 19(5), 1995, whose sum of two t quantiles is the approximation of what is exact here.)

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::distribution::{ln_gamma, normal_cdf, student_critical};
use crate::error::{StatsError, check_level};
use crate::summary::count;

/// Panels of Simpson's rule. Doubling them moves no result of the tests in its sixth digit.
const PANELS: usize = 96;

/// The maximum number of blocks.
const BLOCKS_MAX: usize = 10_000;

/// The minimum detectable relative increase of an experiment with this many blocks (its interval at `level` is above
/// zero) with power `power`, if the log ratios of the blocks have standard deviation `spread`.
///
/// For planning: `spread` is used as the true one. After an experiment, use the spread of its own pairs
/// ([`crate::effect::Effect::smallest_detectable`]).
pub fn detectable(spread: f64, blocks: usize, level: f64, power: f64) -> Result<f64, StatsError> {
    check_level(level)?;
    check_level(power)?;
    if blocks < 2 {
        return Err(StatsError::TooFewValues {
            have: blocks,
            need: 2,
        });
    }
    if !spread.is_finite() || spread < 0.0 {
        return Err(StatsError::NotFinite { index: 0 });
    }
    let freedom = count(blocks - 1);
    let critical = student_critical((1.0 - level) / 2.0, freedom);
    let needed = noncentrality(critical, freedom, power);
    Ok((needed * spread / count(blocks).sqrt()).exp_m1())
}

/// The minimum number of blocks, at least `fewest`, to detect an increase of `relative`; none if ten thousand are not
/// enough.
pub fn blocks_for(
    relative: f64,
    spread: f64,
    fewest: usize,
    level: f64,
    power: f64,
) -> Result<Option<usize>, StatsError> {
    let does = |blocks| detectable(spread, blocks, level, power).map(|seen| seen <= relative);
    let (mut low, mut high) = (fewest.max(2), fewest.max(2));
    while !does(high)? {
        if high >= BLOCKS_MAX {
            return Ok(None);
        }
        low = high + 1;
        high = (high * 2).min(BLOCKS_MAX);
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        if does(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(Some(high))
}

/// The smallest noncentrality at which T exceeds `critical` with probability `power`, where T is noncentral t with
/// `freedom` degrees of freedom. Not |T|: finding an increase where there is a decrease is no success.
pub(crate) fn noncentrality(critical: f64, freedom: f64, power: f64) -> f64 {
    let spread = SpreadDensity::new(freedom);
    let mut high = critical.max(1.0);
    while spread.power(critical, high) < power && high.is_finite() {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Each halving gains a factor of two; 25 of them, more than the integral is good for.
    for _ in 0..25 {
        let middle = f64::midpoint(low, high);
        if spread.power(critical, middle) < power {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The same for a shift in observed standard deviations: the power is averaged over how far the observed spread may be
/// from the true one. Used as if it were the true one, a spread of five pairs gives a power of 62 to 72 % where 80 % is
/// wanted.
pub(crate) fn noncentrality_of_observed(critical: f64, freedom: f64, power: f64) -> f64 {
    // Welch's test has other degrees of freedom for each data set: rounded down, few are ever computed.
    noncentrality(critical, freedom, power) * inflation(freedom.floor().max(1.0), power)
}

/// By how much the uncertainty of the observed spread raises the noncentrality of Student's test at 95 %.
fn inflation(freedom: f64, power: f64) -> f64 {
    static KNOWN: Mutex<BTreeMap<(u64, u64), f64>> = Mutex::new(BTreeMap::new());
    let key = (freedom.to_bits(), power.to_bits());
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return *known;
    }
    let critical = student_critical(0.025, freedom);
    let spread = SpreadDensity::new(freedom);
    let averaged = |needed: f64| -> f64 {
        let nodes = spread.nodes.iter();
        nodes
            .map(|&(u, weight)| weight * spread.power(critical, needed * u))
            .sum()
    };
    let known = noncentrality(critical, freedom, power);
    let (mut low, mut high) = (known, known * 2.0);
    while averaged(high) < power && high.is_finite() {
        high *= 2.0;
    }
    for _ in 0..20 {
        let middle = f64::midpoint(low, high);
        if averaged(middle) < power {
            low = middle;
        } else {
            high = middle;
        }
    }
    let inflation = high / known;
    lock().insert(key, inflation);
    inflation
}

/// The density of (observed spread / true spread), sampled at the nodes of Simpson's rule and multiplied by its
/// weights. It does not depend on the shift, so it is computed once.
struct SpreadDensity {
    nodes: Vec<(f64, f64)>,
}

impl SpreadDensity {
    /// The ratio is chi distributed with `freedom` degrees of freedom, divided by their root.
    fn new(freedom: f64) -> Self {
        // The ratio has a standard deviation of about 1/sqrt(2 freedom), and what lies six of them
        // away a probability of about 1e-8.
        let reach = 6.0 / (2.0 * freedom).sqrt();
        let start = (1.0 - reach).max(0.0);
        let step = (1.0 + reach - start) / count(PANELS);
        let half = freedom / 2.0;
        let scale = std::f64::consts::LN_2 + half * half.ln() - ln_gamma(half);
        let density = |u: f64| {
            if u > 0.0 {
                (scale + (freedom - 1.0) * u.ln() - half * u * u).exp()
            } else {
                0.0
            }
        };
        let nodes = (0..=PANELS)
            .map(|node| {
                let u = start + step * count(node);
                let weight = match node {
                    0 | PANELS => 1.0,
                    odd if odd % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                (u, density(u) * weight * step / 3.0)
            })
            .collect();
        Self { nodes }
    }

    /// The probability that the statistic exceeds `critical`.
    fn power(&self, critical: f64, noncentrality: f64) -> f64 {
        self.nodes
            .iter()
            .map(|&(u, weight)| weight * normal_cdf(noncentrality - critical * u))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::student_critical;

    #[test]
    fn noncentralities_are_those_computed_at_high_precision() {
        // mpmath, 20 digits: the same integral by adaptive quadrature, solved for a power of 0.8.
        for (probability, freedom, want) in [
            (0.975, 2.0, 5.653_489_266_4),
            (0.975, 4.0, 3.761_060_261_0),
            (0.975, 7.0, 3.269_762_149_4),
            (0.975, 9.0, 3.149_635_678_3),
            (0.95, 4.0, 3.039_750_965_8),
            (0.995, 4.0, 5.878_564_042_0),
            (0.975, 29.0, 2.898_746_295_1),
        ] {
            let got = noncentrality(student_critical(1.0 - probability, freedom), freedom, 0.8);
            assert!(
                (got / want - 1.0).abs() < 1e-6,
                "{probability} {freedom}: {got}, not {want}"
            );
        }
    }

    #[test]
    fn many_pairs_need_the_noncentrality_of_a_normal_test() {
        // 1.959964 + 0.841621, the textbook's 2.8.
        let got = noncentrality(student_critical(0.025, 1e5), 1e5, 0.8);
        assert!((got - 2.801_6).abs() < 1e-3, "{got}");
    }

    #[test]
    fn as_many_blocks_as_are_said_to_do_are_needed() {
        // G*Power 3.1, t test of matched pairs, effect size 0.5, two tails, power 0.8: 34 pairs.
        let relative = (0.5_f64 * 0.02).exp_m1();
        assert_eq!(blocks_for(relative, 0.02, 3, 0.95, 0.8), Ok(Some(34)));
        let seen = |blocks| detectable(0.02, blocks, 0.95, 0.8).expect("sound");
        assert!(seen(34) <= relative && seen(33) > relative);
        assert_eq!(blocks_for(1e-6, 0.5, 3, 0.95, 0.8), Ok(None));
        assert_eq!(blocks_for(0.5, 0.0, 3, 0.95, 0.8), Ok(Some(3)));
        assert!(detectable(0.1, 1, 0.95, 0.8).is_err());
        assert!(detectable(f64::NAN, 5, 0.95, 0.8).is_err());
    }

    #[test]
    fn to_exceed_zero_half_the_time_needs_no_shift() {
        assert!(noncentrality(0.0, 4.0, 0.5) < 1e-6);
    }
}
