//! The statistics of linerate: numbers in, numbers out.
//!
//! No I/O, no clock, no dependency; randomness only from a [`Seed`] in the arguments. Each method cites its source,
//! and simulations in the tests verify the stated coverage and error rates. Units are the caller's: the functions
//! here take plain `f64`.
//!
//! - [`effect`]: the effect of a change on a rate, from interleaved pairs, with an interval.
//! - [`staged`]: which of several changes to keep, with one error rate for all of them.
//! - [`shift`]: how much longer times became, from their order only.
//! - [`share`]: exact bounds of a share from a count.
//! - [`summary`]: center, spread and quantiles of a handful of values.
//! - [`sequential`]: the median of trials that are repeated until it is precise.
//! - [`warmup`]: how much of the start of a series to drop.
//! - [`power`]: minimum detectable effects, and the number of blocks needed.
//! - [`screening`]: which of many factors matter, from few trials.
//! - [`surrogate`]: a Gaussian process over settings, and the next trial to run.
//! - [`two_way`]: rows and columns of a table that are off, from medians.
//! - [`Random`]: reproducible random numbers, also for the order of an experiment.

#![forbid(unsafe_code)]

mod distribution;
pub mod effect;
mod error;
mod interval;
pub mod power;
mod random;
pub mod screening;
pub mod sequential;
pub mod share;
pub mod shift;
pub mod staged;
pub mod summary;
pub mod surrogate;
pub mod two_way;
pub mod warmup;

pub use error::StatsError;
pub use interval::Interval;
pub use random::{Random, Seed};
