//! Output, metrics, interrupts, the time of day, and random numbers.

pub(crate) mod clock;
pub mod interrupt;
pub mod metrics;
pub(crate) mod random;
pub mod say;
