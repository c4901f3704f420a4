//! What linerate has to say, and what it takes from its user and the kernel: messages, interrupts, the time, random numbers.

pub(crate) mod clock;
pub mod interrupt;
pub(crate) mod random;
pub mod say;
