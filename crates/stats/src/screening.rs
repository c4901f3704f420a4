//! Which of many factors matter, from few trials: a design in which every factor is changed in half of the trials,
//! and every two factors together in a quarter of them.
//!
//! R. L. Plackett, J. P. Burman, "The design of optimum multifactorial experiments", Biometrika 33(4), 1946, in
//! the construction of R. E. A. C. Paley, "On orthogonal matrices", Journal of Mathematics and Physics 12, 1933.
//! Each effect is confounded with a part of every interaction of two others: it shows which factor deserves more
//! trials, not its exact effect.

use crate::distribution::student_critical;
use crate::error::{StatsError, check_level, check_values};
use crate::summary::{count, quantile_of_sorted};

/// The maximum number of factors of a design: a screening of more would take too long.
pub const FACTORS_MAX: usize = 126;

/// The trials of a design for this many factors, each with a flag per factor: whether it is changed. The last trial
/// changes nothing. This is the standard order: shuffle it.
pub fn plackett_burman(factors: usize) -> Result<Vec<Vec<bool>>, StatsError> {
    if !(1..=FACTORS_MAX).contains(&factors) {
        return Err(StatsError::FactorsOutOfRange {
            have: factors,
            most: FACTORS_MAX,
        });
    }
    let mut orders = (factors.max(3)..=FACTORS_MAX + 1).filter(|number| number % 4 == 3);
    let order = orders.find(|number| is_prime(*number));
    let order = order.unwrap_or(FACTORS_MAX + 1);
    let mut changed = vec![false; order];
    for root in 0..order {
        changed[root * root % order] = true;
    }
    let mut trials: Vec<Vec<bool>> = (0..order)
        .map(|shift| {
            (0..factors)
                .map(|factor| changed[(factor + order - shift) % order])
                .collect()
        })
        .collect();
    trials.push(vec![false; factors]);
    Ok(trials)
}

fn is_prime(number: usize) -> bool {
    (2..number).all(|divisor| !number.is_multiple_of(divisor))
}

/// The effects of a design's factors on the values of its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Screened {
    /// For each factor the mean of the trials that changed it, less that of the others.
    pub effects: Vec<f64>,
    /// The threshold for effects that may be due to chance at the requested level.
    pub margin: f64,
}

/// The effects from `values`, one for each trial of `trials`.
///
/// Without repeats the noise is estimated from the effects themselves: most factors have none, and the middle of the
/// effects is noise (R. V. Lenth, "Quick and easy analysis of unreplicated factorials", Technometrics 31(4), 1989).
/// If most factors have an effect, the noise is overestimated, and fewer are reported.
pub fn screened(trials: &[Vec<bool>], values: &[f64], level: f64) -> Result<Screened, StatsError> {
    check_level(level)?;
    check_values(values, trials.len().max(4))?;
    let factors = trials.iter().map(Vec::len).min().unwrap_or(0);
    let effect = |factor: usize| {
        let mean_where = |changed: bool| {
            let mut values = trials.iter().zip(values);
            let (sum, number) = values
                .by_ref()
                .fold((0.0, 0), |(sum, number), (trial, value)| {
                    if trial[factor] == changed {
                        (sum + value, number + 1)
                    } else {
                        (sum, number)
                    }
                });
            sum / count(number.max(1))
        };
        mean_where(true) - mean_where(false)
    };
    let effects: Vec<f64> = (0..factors).map(effect).collect();
    let middle_of = |mut sizes: Vec<f64>| {
        sizes.sort_by(f64::total_cmp);
        if sizes.is_empty() {
            0.0
        } else {
            quantile_of_sorted(&sizes, 0.5)
        }
    };
    let sizes = || effects.iter().map(|effect| effect.abs());
    let first = 1.5 * middle_of(sizes().collect());
    let error = 1.5 * middle_of(sizes().filter(|size| *size < 2.5 * first).collect());
    let freedom = (count(factors) / 3.0).max(1.0);
    let margin = error * student_critical((1.0 - level) / 2.0, freedom);
    Ok(Screened { effects, margin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Random, Seed};

    #[test]
    fn the_design_for_eleven_factors_is_the_published_one() {
        let trials = plackett_burman(11).expect("eleven factors");
        let row: String = trials[0]
            .iter()
            .map(|changed| if *changed { '+' } else { '-' })
            .collect();
        // Plackett and Burman's first row for 12 trials, rotated by one position.
        assert_eq!(row, "++-+++---+-");
        assert_eq!(trials.len(), 12);
    }

    #[test]
    fn every_factor_is_changed_in_half_of_the_trials_and_every_two_in_a_quarter() {
        for factors in 1..=FACTORS_MAX {
            let trials = plackett_burman(factors).expect("so many factors");
            let number = trials.len();
            assert!(number.is_multiple_of(4) && number > factors);
            for one in 0..factors {
                let changed = trials.iter().filter(|trial| trial[one]).count();
                assert_eq!(changed * 2, number, "{factors} {one}");
                for other in 0..one {
                    let both = trials.iter().filter(|trial| trial[one] && trial[other]);
                    assert_eq!(both.count() * 4, number, "{factors} {one} {other}");
                }
            }
            assert!(
                trials
                    .last()
                    .expect("trials")
                    .iter()
                    .all(|changed| !changed)
            );
        }
        assert!(plackett_burman(0).is_err() && plackett_burman(127).is_err());
    }

    #[test]
    fn planted_effects_are_found_and_idle_factors_are_seldom_claimed() {
        let (mut found, mut claimed) = (0, 0);
        for seed in 0..200 {
            let mut random = Random::new(Seed(seed));
            let trials = plackett_burman(19).expect("nineteen factors");
            let mut value = |trial: &Vec<bool>| {
                let on = |factor: usize| f64::from(u8::from(trial[factor]));
                1.0 * on(2) - 0.8 * on(11) + 0.2 * random.normal()
            };
            let values: Vec<f64> = trials.iter().map(&mut value).collect();
            let screened = screened(&trials, &values, 0.95).expect("finite values");
            for (factor, effect) in screened.effects.iter().enumerate() {
                let says = effect.abs() > screened.margin;
                match factor {
                    2 | 11 => found += i32::from(says),
                    _ => claimed += i32::from(says),
                }
            }
        }
        assert!(found >= 390, "{found} of 400 planted effects");
        assert!(claimed <= 200 * 17 / 10, "{claimed} of 3400 idle factors");
    }

    #[test]
    fn values_without_any_difference_show_no_effect() {
        let trials = plackett_burman(3).expect("three factors");
        let screened = screened(&trials, &[5.0; 4], 0.95).expect("finite values");
        assert_eq!(screened.effects, [0.0; 3]);
        assert!(screened.margin.abs() < 1e-12);
    }
}
