//! Output, interrupts, the time of day, and random numbers.

pub mod clock;
pub mod command_line;
pub mod interrupt;
pub mod random;
pub mod say;
