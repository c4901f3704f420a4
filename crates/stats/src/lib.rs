//! The numbers behind linerate's verdicts: numbers in, numbers out.
//!
//! No I/O, no clock, no dependency; randomness only from a [`Seed`] in the arguments. Each method
//! names its source where it is written, and each promise about how often an answer is right is held
//! by a simulation in the tests. Units are the caller's: the functions here see plain `f64`.
//!
//! - [`effect`]: what a change did to a rate, from interleaved pairs, with an interval.
//! - [`summary`]: centre, spread and quantiles of a handful of values.
//! - [`warmup`]: how much of the start of a series to drop.
//! - [`power`]: what an experiment could see, and how many blocks it takes.
//! - [`screening`]: which of many factors matter, from few trials.
//! - [`surrogate`]: a guess at a surface over settings, and where to try next.
//! - [`Random`]: random numbers that can be repeated, also for the order of an experiment.

#![forbid(unsafe_code)]

mod distribution;
pub mod effect;
mod error;
mod interval;
pub mod power;
mod random;
pub mod screening;
pub mod summary;
pub mod surrogate;
pub mod warmup;

pub use error::StatsError;
pub use interval::Interval;
pub use random::{Random, Seed};
