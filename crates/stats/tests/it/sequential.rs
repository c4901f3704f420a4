//! Trials repeated until the interval is narrow, with a known median: how often the interval then misses it.

use linerate_stats::sequential::{FIRST_LOOK, Look, look, next_look};
use linerate_stats::{Random, Seed};

use crate::noise::{Noise, most_misses};

const SERIES: usize = 1_000;
const MOST_TRIALS: usize = 300;
const CORRELATIONS: [f64; 4] = [0.0, 0.3, 0.5, 0.7];

/// Looks until the interval is within `asked` of the median, and gives the number of trials.
fn until(values: &[f64], asked: f64) -> Option<(usize, Look)> {
    let mut n = FIRST_LOOK;
    while n <= values.len() {
        let look = look(&values[..n]).expect("enough values");
        if look.is_valid && (look.high - look.low) / 2.0 <= asked * look.median {
            return Some((n, look));
        }
        n = next_look(n);
    }
    None
}

/// How many of the series stop with an interval without the truth, and the median number of trials.
fn misses(noise: Noise, correlation: f64, asked: f64) -> (usize, usize) {
    let mut random = Random::new(Seed(0x5e_0e_17));
    let mut missed = 0;
    let mut trials = Vec::new();
    for _ in 0..SERIES {
        let values = noise.series(MOST_TRIALS, correlation, &mut random);
        let stopped = until(&values, asked);
        trials.push(stopped.map_or(MOST_TRIALS, |(n, _)| n));
        let truth = noise.median();
        missed +=
            usize::from(stopped.is_some_and(|(_, look)| truth < look.low || look.high < truth));
    }
    trials.sort_unstable();
    (missed, trials[SERIES / 2])
}

#[expect(clippy::cast_precision_loss, reason = "a thousand series")]
fn check(noise: Noise) {
    for correlation in CORRELATIONS {
        for asked in [0.08, 0.03, 0.01] {
            let (missed, trials) = misses(noise, correlation, asked);
            assert!(
                missed as f64 <= most_misses(SERIES, 0.05),
                "{noise:?}, correlation {correlation}, within {asked}: {missed} of {SERIES} \
                 intervals miss the median, after {trials} trials"
            );
        }
    }
}

#[test]
fn normal_trials_stop_with_an_interval_that_holds() {
    check(Noise::Normal(0.02));
}

#[test]
fn trials_with_dips_stop_with_an_interval_that_holds() {
    check(Noise::Dips(0.05));
}

#[test]
fn trials_with_a_noisy_neighbor_stop_with_an_interval_that_holds() {
    check(Noise::HalfSpeed(0.05));
}

#[test]
fn trials_with_two_speeds_stop_with_an_interval_that_holds() {
    check(Noise::TwoSpeeds);
}

#[test]
fn a_steady_rate_stops_at_the_first_look() {
    assert_eq!(misses(Noise::Normal(0.02), 0.0, 0.03).1, FIRST_LOOK);
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a thousand series")]
fn trials_without_a_trend_seldom_drift() {
    let mut random = Random::new(Seed(0xd1_1f));
    for noise in Noise::ALL {
        for correlation in CORRELATIONS {
            for n in [FIRST_LOOK, 60, 200] {
                let drifting = (0..SERIES)
                    .map(|_| noise.series(n, correlation, &mut random))
                    .filter(|values| look(values).expect("enough").drift.is_some())
                    .count();
                let is_hard = n <= 60 && correlation >= 0.5;
                let stated = if is_hard { 0.04 } else { 0.01 };
                assert!(
                    drifting as f64 <= most_misses(SERIES, stated),
                    "{noise:?}, correlation {correlation}: {drifting} of {SERIES} drift"
                );
            }
        }
    }
}

#[test]
fn a_trend_beyond_the_noise_is_reported_with_its_size() {
    let mut random = Random::new(Seed(0xd1_1f));
    let mut found = 0;
    for _ in 0..SERIES {
        let mut values = Noise::Normal(0.02).series(40, 0.3, &mut random);
        for (index, value) in (0_u32..).zip(&mut values) {
            *value += 0.1 * f64::from(index) / 39.0;
        }
        let drift = look(&values).expect("enough").drift;
        found += usize::from(drift.is_some_and(|drift| (drift - 0.1).abs() < 0.05));
    }
    assert!(found >= SERIES * 9 / 10, "{found} of {SERIES}");
}
