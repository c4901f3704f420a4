//! Why a result cannot be computed.

use std::fmt;

/// Invalid data or arguments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatsError {
    /// Too few pairs for an effect.
    TooFewPairs {
        /// The number of pairs.
        have: usize,
        /// The minimum.
        need: usize,
    },
    /// A screening design without factors, or with too many.
    FactorsOutOfRange {
        /// The number of factors.
        have: usize,
        /// The maximum.
        most: usize,
    },
    /// Too few values for a summary.
    TooFewValues {
        /// The number of values.
        have: usize,
        /// The minimum.
        need: usize,
    },
    /// A rate was zero, negative, infinite or not a number, so a pair has no ratio.
    RateNotPositive {
        /// The index of the pair, from 0.
        pair: usize,
        /// The rate.
        rate: f64,
    },
    /// A value was infinite or not a number.
    NotFinite {
        /// The index of the value, from 0.
        index: usize,
    },
    /// A level was not strictly between 0 and 1.
    LevelOutOfRange {
        /// The level.
        level: f64,
    },
    /// The probability of a quantile was not between 0 and 1.
    ProbabilityOutOfRange {
        /// The probability.
        probability: f64,
    },
}

impl fmt::Display for StatsError {
    // Lower-case fragments that complete "cannot ...: ", as every error of linerate does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooFewPairs { have, need } => {
                write!(
                    f,
                    "{have} pairs of measurements cannot show an effect: at least {need} are \
                     required"
                )
            }
            Self::FactorsOutOfRange { have, most } => {
                write!(
                    f,
                    "{have} factors cannot be screened together: 1 to {most} can"
                )
            }
            Self::TooFewValues { have, need } => {
                write!(f, "{have} values are too few: at least {need} are required")
            }
            Self::RateNotPositive { pair, rate } => {
                write!(
                    f,
                    "pair {pair} holds the rate {rate}: a rate must be finite and above 0"
                )
            }
            Self::NotFinite { index } => {
                write!(f, "value {index} is infinite or not a number")
            }
            Self::LevelOutOfRange { level } => {
                write!(
                    f,
                    "{level} is not a confidence level: it must lie between 0 and 1, as 0.95"
                )
            }
            Self::ProbabilityOutOfRange { probability } => {
                write!(
                    f,
                    "{probability} is not a probability: it must lie from 0 to 1"
                )
            }
        }
    }
}

impl std::error::Error for StatsError {}

/// Rejects a level that is not strictly between 0 and 1, including NaN.
pub(crate) fn check_level(level: f64) -> Result<(), StatsError> {
    if level > 0.0 && level < 1.0 {
        Ok(())
    } else {
        Err(StatsError::LevelOutOfRange { level })
    }
}

/// Rejects fewer than `need` values, and values that are infinite or NaN.
pub(crate) fn check_values(values: &[f64], need: usize) -> Result<(), StatsError> {
    if values.len() < need {
        return Err(StatsError::TooFewValues {
            have: values.len(),
            need,
        });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(StatsError::NotFinite { index }),
        None => Ok(()),
    }
}
