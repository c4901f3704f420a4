//! The design of an experiment: the order of its trials.
//!
//! A remedy is tested with pairs of trials, one without and one with it, close together in time, so that slow drift
//! of the machine (heat, other guests) affects both alike. The order within each pair is random, so that an order
//! effect cannot be mistaken for an effect of the remedy. This is the randomized paired design (Box, Hunter & Hunter,
//! Statistics for Experimenters, ch. 3).

use serde::{Deserialize, Serialize};

/// The configuration of a trial of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Baseline.
    Without,
    /// With the remedy.
    With,
}

/// Why a design was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// Too few pairs for a meaningful interval.
    #[error("{pairs} pairs are too few to test a fix: use at least {least}")]
    TooFew {
        /// The requested pairs.
        pairs: u32,
        /// The minimum.
        least: u32,
    },
    /// Too many pairs.
    #[error("cannot run {pairs} pairs: the maximum is {most}")]
    TooMany {
        /// The requested pairs.
        pairs: u32,
        /// The maximum.
        most: u32,
    },
}

/// Interleaved pairs of trials, in an order given by a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedDesign")]
pub struct PairedDesign {
    pairs: u32,
    seed: u64,
}

/// A design in serialized form, before it is checked.
#[derive(Deserialize)]
struct UncheckedDesign {
    pairs: u32,
    seed: u64,
}

impl TryFrom<UncheckedDesign> for PairedDesign {
    type Error = DesignError;
    fn try_from(asked: UncheckedDesign) -> Result<Self, DesignError> {
        Self::new(asked.pairs, asked.seed)
    }
}

impl PairedDesign {
    /// The minimum number of pairs: with two, a remedy without effect wins both one time in four.
    pub const PAIRS_MIN: u32 = 3;
    /// The maximum number of pairs.
    pub const PAIRS_MAX: u32 = 10_000;

    /// A design of `pairs` pairs; `seed` is printed and stored, so that the order can be reproduced.
    pub fn new(pairs: u32, seed: u64) -> Result<Self, DesignError> {
        match pairs {
            0..Self::PAIRS_MIN => Err(DesignError::TooFew {
                pairs,
                least: Self::PAIRS_MIN,
            }),
            Self::PAIRS_MIN..=Self::PAIRS_MAX => Ok(Self { pairs, seed }),
            _ => Err(DesignError::TooMany {
                pairs,
                most: Self::PAIRS_MAX,
            }),
        }
    }

    /// The number of pairs.
    pub fn pairs(self) -> u32 {
        self.pairs
    }

    /// The seed of the order.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// The trials in the order they are run, two for each pair. `draw(n)` returns a number below `n` from a generator
    /// started with [`PairedDesign::seed`].
    pub fn order(self, draw: &mut dyn FnMut(u64) -> u64) -> Vec<Arm> {
        (0..self.pairs)
            .flat_map(|_| match draw(2) {
                0 => [Arm::Without, Arm::With],
                _ => [Arm::With, Arm::Without],
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Arm::{With, Without};
    use super::*;

    #[test]
    fn fewer_than_three_pairs_are_refused_with_the_number_that_would_do() {
        for pairs in 0..3 {
            let error = PairedDesign::new(pairs, 1).expect_err("too few");
            assert!(error.to_string().contains("at least 3"), "{error}");
        }
        assert!(PairedDesign::new(3, 1).is_ok());
        assert!(PairedDesign::new(10_001, 1).is_err());
    }

    #[test]
    fn a_stored_design_is_checked_when_it_is_read() {
        assert!(serde_json::from_str::<PairedDesign>(r#"{"pairs":2,"seed":1}"#).is_err());
        assert!(serde_json::from_str::<PairedDesign>(r#"{"pairs":5,"seed":1}"#).is_ok());
    }

    #[test]
    fn the_draw_decides_which_comes_first() {
        let mut draws = [0, 1, 1].into_iter();
        let design = PairedDesign::new(3, 1).expect("three pairs");
        let order = design.order(&mut |bound| {
            assert_eq!(bound, 2);
            draws.next().expect("one draw a pair")
        });
        assert_eq!(order, [Without, With, With, Without, With, Without]);
    }

    proptest! {
        #[test]
        fn every_pair_holds_both_arms(pairs in 3u32..200, draws in any::<u64>()) {
            let design = PairedDesign::new(pairs, draws).expect("enough pairs");
            let mut state = draws;
            let order = design.order(&mut |bound| {
                state = state.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                state % bound
            });
            prop_assert_eq!(order.len(), pairs as usize * 2);
            for pair in order.chunks(2) {
                prop_assert_ne!(pair[0], pair[1]);
            }
        }
    }
}
