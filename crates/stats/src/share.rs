//! Bounds of a share, from a count of independent trials: exact, so they hold for few trials and for shares near 0 or 1
//! (C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
//! Biometrika 26(4), 1934).

use crate::distribution::incomplete_beta;

/// The one-sided lower bound of the share, at confidence `level`, if `of` of `all` trials had the outcome.
pub fn at_least(of: u32, all: u32, level: f64) -> f64 {
    1.0 - at_most(all.saturating_sub(of), all, level)
}

/// The one-sided upper bound of the share, at confidence `level`, if `of` of `all` trials had the outcome.
pub fn at_most(of: u32, all: u32, level: f64) -> f64 {
    if of >= all {
        return 1.0;
    }
    let (successes, failures) = (f64::from(of) + 1.0, f64::from(all - of));
    // The share at which `of` or fewer have the probability 1 - `level`: a quantile of the beta distribution, whose
    // function rises. 60 halvings exhaust the digits of an f64.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if incomplete_beta(middle, 1.0 - middle, successes, failures) < level {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9, "{got} is not {want}");
    }

    #[test]
    fn bounds_without_an_outcome_are_those_of_the_closed_form() {
        near(at_most(0, 150, 0.95), 1.0 - 0.05f64.powf(1.0 / 150.0));
        near(at_least(20, 20, 0.95), 0.05f64.powf(1.0 / 20.0));
        near(at_least(0, 20, 0.95), 0.0);
        near(at_most(20, 20, 0.95), 1.0);
        near(at_most(0, 0, 0.95), 1.0);
        near(at_least(0, 0, 0.95), 0.0);
    }

    #[test]
    fn the_binomial_probability_at_the_bound_is_the_error_rate() {
        for (of, all) in [(1u32, 10u32), (3, 60), (40, 60), (59, 60)] {
            let share = at_most(of, all, 0.95);
            let mut term = (1.0 - share).powi(i32::try_from(all).expect("small"));
            let mut sum = term;
            for k in 1..=of {
                term *= f64::from(all - k + 1) / f64::from(k) * share / (1.0 - share);
                sum += term;
            }
            near(sum, 0.05);
        }
    }
}
