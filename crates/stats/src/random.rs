//! A small random number generator, so that a run can be reproduced from its printed seed.
//!
//! xoshiro256++ 1.0, filled from the seed by SplitMix64, as its authors advise (D. Blackman, S. Vigna,
//! "Scrambled linear pseudorandom number generators", ACM TOMS 47(4), 2021; reference code at
//! <https://prng.di.unimi.it>). Written here rather than imported because a seed printed in a report
//! must give the same order of trials in every later release: the sequence is part of our contract,
//! and golden tests hold it. Not for secrets.

/// The seed of a run's random choices. Equal seeds give equal choices, on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

/// A stream of random numbers that depends only on its [`Seed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream for `seed`.
    pub fn new(seed: Seed) -> Self {
        let mut filler = seed.0;
        // SplitMix64 never gives four zeros in a row, the one state xoshiro cannot leave.
        Self {
            state: std::array::from_fn(|_| split_mix(&mut filler)),
        }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A whole number from 0 to `n` - 1, each equally likely.
    ///
    /// The remainder of a division favors small numbers; this multiplies and rejects instead (D. Lemire, "Fast random
    /// integer generation in an interval", ACM TOMACS 29(1), 2019).
    ///
    /// Panics if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below 0 to choose");
        loop {
            let (high, low) = halves(u128::from(self.next_u64()) * u128::from(n));
            // 2^64 mod n values must be rejected. That is at most n - 1, so the division that computes it is seldom
            // needed.
            if low >= n || low >= n.wrapping_neg() % n {
                return high;
            }
        }
    }

    /// A number in [0, 1), a multiple of 2^-53.
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits fit the mantissa of an f64 exactly"
    )]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Shuffles `items`, each order equally likely (Fisher and Yates; R. Durstenfeld, "Algorithm 235: Random
    /// permutation", CACM 7(7), 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.index(last + 1);
            items.swap(last, chosen);
        }
    }

    /// A standard normal number (mean 0, variance 1), by the polar method (G. Marsaglia, T. A. Bray,
    /// "A convenient method for generating normal variables", SIAM Review 6(3), 1964).
    pub fn normal(&mut self) -> f64 {
        // The method gives two numbers at a time. The second is dropped: keeping it would make the next call depend
        // on additional state.
        loop {
            let x = 2.0 * self.unit() - 1.0;
            let y = 2.0 * self.unit() - 1.0;
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// A random index into `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("no machine has memory for 2^64 items");
        usize::try_from(self.below(len)).expect("a number below a usize is a usize")
    }
}

/// One step of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014), with the constants of S. Vigna's reference code.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The upper and the lower 64 bits of a product.
#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the lower half is the purpose"
)]
fn halves(product: u128) -> (u64, u64) {
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_the_published_sequence() {
        // The sequence for seed 1234567 quoted with the reference code (Rosetta Code,
        // "Pseudo-random numbers/Splitmix64").
        let mut state = 1_234_567;
        let got: [u64; 5] = std::array::from_fn(|_| split_mix(&mut state));
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(got, published);
    }

    #[test]
    fn xoshiro_gives_the_published_sequence() {
        // From the reference code with state 1, 2, 3, 4 (also the test of the crate rand_xoshiro).
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let got: [u64; 6] = std::array::from_fn(|_| random.next_u64());
        let published = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ];
        assert_eq!(got, published);
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_other_seeds_do_not() {
        let stream = |seed| {
            let mut random = Random::new(Seed(seed));
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
        assert_ne!(stream(0), [0, 0]);
    }

    #[test]
    fn below_gives_every_number_equally_often() {
        let mut random = Random::new(Seed(1));
        let mut seen = [0_u32; 6];
        for _ in 0..60_000 {
            seen[random.index(6)] += 1;
        }
        // Standard deviation of each count is 91; 500 is beyond five of them.
        assert!(seen.iter().all(|&n| n.abs_diff(10_000) < 500), "{seen:?}");
    }

    #[test]
    fn below_is_fair_where_a_remainder_would_not_be() {
        // With n = 3 * 2^62, a remainder would give the lowest third half of all values.
        let mut random = Random::new(Seed(2));
        let lowest = (0..30_000)
            .filter(|_| random.below(3 << 62) < 1 << 62)
            .count();
        assert!(lowest.abs_diff(10_000) < 450, "{lowest}");
    }

    #[test]
    fn below_one_is_zero() {
        let mut random = Random::new(Seed(3));
        assert!((0..100).all(|_| random.below(1) == 0));
    }

    #[test]
    #[should_panic(expected = "no number below 0")]
    fn below_zero_is_refused() {
        Random::new(Seed(3)).below(0);
    }

    #[test]
    fn unit_fills_the_unit_interval() {
        let mut random = Random::new(Seed(4));
        let draws: Vec<f64> = (0..100_000).map(|_| random.unit()).collect();
        assert!(draws.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = draws.iter().sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn normal_has_the_moments_of_a_normal() {
        let mut random = Random::new(Seed(5));
        let draws: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let moment = |power| draws.iter().map(|x: &f64| x.powi(power)).sum::<f64>() / 1e5;
        assert!(moment(1).abs() < 0.02, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.03, "variance {}", moment(2));
        assert!(moment(3).abs() < 0.06, "skewness {}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.2, "kurtosis {}", moment(4));
    }

    #[test]
    fn shuffle_keeps_the_items_and_reaches_every_order() {
        let mut random = Random::new(Seed(6));
        let mut orders = std::collections::BTreeMap::<[u8; 3], u32>::new();
        for _ in 0..6_000 {
            let mut items = [1, 2, 3];
            random.shuffle(&mut items);
            *orders.entry(items).or_default() += 1;
        }
        assert_eq!(orders.len(), 6);
        assert!(
            orders.values().all(|&n| n.abs_diff(1_000) < 150),
            "{orders:?}"
        );
    }

    #[test]
    fn shuffling_nothing_or_one_thing_changes_nothing() {
        let mut random = Random::new(Seed(6));
        random.shuffle::<u8>(&mut []);
        let mut one = [9];
        random.shuffle(&mut one);
        assert_eq!(one, [9]);
    }
}
