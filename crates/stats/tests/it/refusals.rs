//! Rejected inputs with their messages, and results that are known exactly.

use linerate_stats::effect::{mean_with_interval, paired_relative};
use linerate_stats::{Seed, StatsError};

const PAIRS: [(f64, f64); 3] = [(1.0, 1.1), (2.0, 2.1), (3.0, 3.5)];

fn refused(pairs: &[(f64, f64)], level: f64) -> String {
    paired_relative(pairs, level, Seed(1))
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn fewer_than_three_pairs_are_refused() {
    assert_eq!(
        refused(&PAIRS[..2], 0.95),
        "2 pairs of measurements cannot show an effect: at least 3 are required"
    );
    assert_eq!(
        paired_relative(&[], 0.95, Seed(1)),
        Err(StatsError::TooFewPairs { have: 0, need: 3 })
    );
}

#[test]
fn a_rate_that_is_no_positive_number_is_refused_by_pair() {
    for (rate, shown) in [
        (0.0, "0"),
        (-1.0, "-1"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
    ] {
        let expected = format!("pair 1 holds the rate {shown}: a rate must be finite and above 0");
        assert_eq!(refused(&[PAIRS[0], (rate, 1.0), PAIRS[2]], 0.95), expected);
        assert_eq!(refused(&[PAIRS[0], (1.0, rate), PAIRS[2]], 0.95), expected);
    }
}

#[test]
fn a_level_that_is_no_level_is_refused() {
    assert_eq!(
        refused(&PAIRS, 95.0),
        "95 is not a confidence level: it must lie between 0 and 1, as 0.95"
    );
    for level in [0.0, 1.0, -0.5, f64::NAN] {
        refused(&PAIRS, level);
    }
}

#[test]
fn the_highest_and_lowest_levels_there_are_still_get_an_answer() {
    for level in [f64::MIN_POSITIVE, 1.0 - f64::EPSILON / 2.0] {
        let effect = paired_relative(&PAIRS, level, Seed(1)).expect("a level between 0 and 1");
        assert!(effect.interval.contains(effect.relative), "{effect:?}");
    }
}

#[test]
fn the_estimate_is_the_geometric_mean_of_the_ratios() {
    // Ratios 1, 2 and 4: their geometric mean is 2, an effect of +100 %.
    let effect = paired_relative(&[(5.0, 5.0), (1.0, 2.0), (1.0, 4.0)], 0.95, Seed(1))
        .expect("rates are positive");
    assert!((effect.relative - 1.0).abs() < 1e-12, "{effect:?}");
}

#[test]
fn the_interval_is_never_narrower_than_students() {
    // Log ratios -ln 2, 0, ln 2: deviation ln 2, error ln 2 / sqrt 3, t(2) at 97.5 % 4.302653.
    let effect = paired_relative(&[(2.0, 1.0), (1.0, 1.0), (1.0, 2.0)], 0.95, Seed(1))
        .expect("rates are positive");
    let half_width = 4.302_652_73 * std::f64::consts::LN_2 / 3.0_f64.sqrt();
    assert!(
        effect.interval.low.ln_1p() <= -half_width + 1e-6,
        "{effect:?}"
    );
    assert!(
        effect.interval.high.ln_1p() >= half_width - 1e-6,
        "{effect:?}"
    );
}

#[test]
fn pairs_without_spread_give_a_point_and_say_so() {
    let effect = paired_relative(&[(1.0, 1.1), (10.0, 11.0), (3.0, 3.3)], 0.95, Seed(1))
        .expect("rates are positive");
    assert!(effect.interval.contains(effect.relative) && (effect.relative - 0.1).abs() < 1e-9);
    assert!(effect.method.contains("no variance"), "{}", effect.method);
}

#[test]
fn extreme_rates_neither_overflow_nor_panic() {
    let (tiny, huge) = (f64::MIN_POSITIVE, f64::MAX);
    let effect = paired_relative(&[(tiny, huge), (huge, tiny), (1.0, 1.0)], 0.95, Seed(1))
        .expect("rates are positive");
    assert!(
        !effect.relative.is_nan() && effect.interval.contains(0.0),
        "{effect:?}"
    );
}

#[test]
fn a_mean_takes_three_finite_values_of_any_sign_and_equal_ones_are_a_point() {
    let of = |values: &[f64]| mean_with_interval(values, 0.95, Seed(1));
    assert_eq!(
        of(&[1.0, 2.0]),
        Err(StatsError::TooFewValues { have: 2, need: 3 })
    );
    assert_eq!(
        of(&[1.0, f64::NAN, 2.0]),
        Err(StatsError::NotFinite { index: 1 })
    );
    let equal = of(&[0.0; 3]).expect("three values");
    assert_eq!((equal.interval.low, equal.interval.high), (0.0, 0.0));
    let mixed = of(&[-1.0, 0.0, 4.0, 1.0]).expect("four values");
    assert!((mixed.mean - 1.0).abs() < 1e-12 && mixed.values == 4);
    // Student's own, of a standard error of 1.0801: 3.1824 times.
    assert!(mixed.interval.low <= 1.0 - 3.437 && mixed.interval.high >= 1.0 + 3.437);
}
