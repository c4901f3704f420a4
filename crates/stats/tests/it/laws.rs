//! Properties that hold for every input.

use linerate_stats::effect::{Effect, paired_relative};
use linerate_stats::summary::{median, median_interval, quantile};
use linerate_stats::{Seed, StatsError, warmup};
use proptest::prelude::*;

fn effect(pairs: &[(f64, f64)]) -> Effect {
    paired_relative(pairs, 0.95, Seed(1)).expect("rates are positive")
}

/// Rates from a slow serial line to a very fast link; the two of a pair differ up to tenfold.
///
/// Not by nine orders of magnitude in some pairs only: then an end of the interval is so close to -100 % that `ln_1p`
/// of it has no digits left to compare.
fn rates() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let pair = (1e3..1e12_f64, 0.1..10.0_f64).prop_map(|(rate, ratio)| (rate, rate * ratio));
    prop::collection::vec(pair, 3..12)
}

fn series() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1e12..1e12_f64, 0..80)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_interval_holds_the_estimate(pairs in rates()) {
        let effect = effect(&pairs);
        prop_assert!(effect.interval.contains(effect.relative), "{effect:?}");
        prop_assert!(effect.interval.low > -1.0 || effect.relative < -0.99);
        prop_assert!(effect.smallest_detectable >= 0.0);
        prop_assert_eq!(effect.pairs, pairs.len());
    }

    #[test]
    fn swapping_before_and_after_turns_the_effect_round(pairs in rates()) {
        let forth = effect(&pairs);
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let back = effect(&swapped);
        prop_assert!(near(forth.relative.ln_1p(), -back.relative.ln_1p()));
        prop_assert!(near(forth.interval.low.ln_1p(), -back.interval.high.ln_1p()));
        prop_assert!(near(forth.interval.high.ln_1p(), -back.interval.low.ln_1p()));
        prop_assert!(near(forth.smallest_detectable, back.smallest_detectable));
    }

    #[test]
    fn the_unit_of_the_rates_does_not_matter(pairs in rates(), unit in 1e-9..1e9_f64) {
        let scaled: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (a * unit, b * unit)).collect();
        let (one, other) = (effect(&pairs), effect(&scaled));
        prop_assert!(near(one.relative, other.relative));
        prop_assert!(near(one.interval.low.ln_1p(), other.interval.low.ln_1p()));
        prop_assert!(near(one.interval.high.ln_1p(), other.interval.high.ln_1p()));
    }

    #[test]
    fn the_order_of_the_pairs_does_not_matter_at_all(pairs in rates()) {
        let mut reversed = pairs.clone();
        reversed.reverse();
        prop_assert_eq!(effect(&pairs), effect(&reversed));
    }

    #[test]
    fn a_higher_level_gives_a_wider_interval(pairs in rates()) {
        let narrow = paired_relative(&pairs, 0.8, Seed(1)).expect("rates are positive").interval;
        let wide = paired_relative(&pairs, 0.95, Seed(1)).expect("rates are positive").interval;
        prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
    }

    #[test]
    fn the_bootstrap_seed_moves_the_interval_little(pairs in rates(), seed in any::<u64>()) {
        // With three or four pairs there are too few different resamples for a stable tail.
        prop_assume!(pairs.len() >= 5);
        let one = effect(&pairs);
        let other = paired_relative(&pairs, 0.95, Seed(seed)).expect("rates are positive");
        let width = |e: &Effect| e.interval.high.ln_1p() - e.interval.low.ln_1p();
        prop_assert_eq!(one.relative.to_bits(), other.relative.to_bits());
        prop_assert!((width(&one) / width(&other)).ln().abs() < 0.5);
    }

    #[test]
    fn quantiles_grow_with_their_probability(values in series(), p in 0.0..=1.0_f64, q in 0.0..=1.0_f64) {
        prop_assume!(!values.is_empty());
        let at = |probability| quantile(&values, probability).expect("the values are finite");
        prop_assert!(near(at(p.min(q)).min(at(p.max(q))), at(p.min(q))));
    }

    #[test]
    fn the_median_lies_in_its_interval(values in series(), level in 0.1..0.999_f64) {
        match median_interval(&values, level) {
            Ok(interval) => {
                let median = median(&values).expect("the values are finite");
                prop_assert!(interval.contains(median));
                prop_assert!(interval.level >= level - 1e-9);
            }
            Err(StatsError::TooFewValues { have, need }) => prop_assert!(have < need),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn no_more_than_half_a_series_is_warm_up(values in series()) {
        prop_assert!(warmup::cut(&values).first_kept <= values.len() / 2);
    }
}
