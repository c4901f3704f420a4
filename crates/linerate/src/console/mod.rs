//! Output, interrupts, the time of day, and random numbers.

pub(crate) mod clock;
pub mod interrupt;
pub(crate) mod random;
pub mod say;
