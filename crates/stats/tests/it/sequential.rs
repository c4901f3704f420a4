//! Trials repeated until the interval is narrow, with a known truth: how often the interval then misses it. The median
//! of a series of trials, and ratios within rounds in random order.

use linerate_stats::effect::paired_relative;
use linerate_stats::sequential::{
    FIRST_LOOK, Look, is_look, level_at_look, look, next_look, number_of_looks,
};
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

/// Rounds of one trial of each mode, in random order; every mode but the first is truly faster by `effect`. The trials
/// have the noise of one series after another, so those of a round are like each other.
struct Rounds {
    noise: Noise,
    correlation: f64,
    modes: usize,
    effect: f64,
    first_look: usize,
}

impl Rounds {
    /// The rates of each round, by mode.
    fn rates(&self, rounds: usize, random: &mut Random) -> Vec<Vec<f64>> {
        let factors = (self.noise).series(rounds * self.modes, self.correlation, random);
        let each = factors.chunks(self.modes).map(|factors| {
            let mut order: Vec<usize> = (0..self.modes).collect();
            random.shuffle(&mut order);
            let mut rates = vec![0.0; self.modes];
            for (mode, factor) in order.into_iter().zip(factors) {
                let faster = if mode == 0 { 1.0 } else { 1.0 + self.effect };
                rates[mode] = 40e9 * factor * faster;
            }
            rates
        });
        each.collect()
    }

    /// After how many rounds every ratio is within `asked`, and whether the interval of the first one misses the truth.
    fn until(&self, rates: &[Vec<f64>], asked: f64) -> Option<(usize, bool)> {
        let looks = (1..=rates.len()).filter(|n| is_look(self.first_look, *n));
        let mut stopped = looks.filter_map(|n| {
            let level = level_at_look(0.95, number_of_looks(self.first_look, n));
            let effect = |mode: usize| {
                let pairs: Vec<(f64, f64)> = rates[..n]
                    .iter()
                    .map(|rates| (rates[0], rates[mode]))
                    .collect();
                paired_relative(&pairs, level, Seed(1)).expect("rates are positive")
            };
            let is_narrow = (1..self.modes).map(effect).all(|effect| {
                (effect.interval.high - effect.interval.low) / 2.0
                    <= asked * (1.0 + effect.relative)
            });
            if !is_narrow {
                return None;
            }
            // Equal ratios have an interval of no width, exact but for rounding.
            let interval = effect(1).interval;
            let is_missed = self.effect < interval.low - 1e-9 || interval.high + 1e-9 < self.effect;
            Some((n, is_missed))
        });
        stopped.next()
    }
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "some hundred series")]
fn ratios_within_rounds_stop_with_an_interval_that_holds() {
    const SERIES: usize = 150;
    const ROUNDS: usize = 14;
    for noise in Noise::ALL {
        for (correlation, modes, first_look) in [(0.0, 2, 3), (0.7, 2, 5), (0.7, 4, 5)] {
            let world = Rounds {
                noise,
                correlation,
                modes,
                effect: 0.1,
                first_look,
            };
            for asked in [0.1, 0.04] {
                let mut random = Random::new(Seed(0x5e_0e_18));
                let (mut missed, mut rounds) = (0, Vec::new());
                for _ in 0..SERIES {
                    let rates = world.rates(ROUNDS, &mut random);
                    let stopped = world.until(&rates, asked);
                    missed += usize::from(stopped.is_some_and(|(_, is_missed)| is_missed));
                    rounds.push(stopped.map_or(ROUNDS, |(n, _)| n));
                }
                rounds.sort_unstable();
                assert!(
                    missed as f64 <= most_misses(SERIES, 0.05),
                    "{noise:?}, correlation {correlation}, {modes} modes, within {asked}: {missed} of \
                     {SERIES} intervals miss the ratio, after {} rounds",
                    rounds[SERIES / 2]
                );
            }
        }
    }
}
