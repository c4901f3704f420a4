//! The promises of linerate-stats, held through its public face: laws for every input, and simulated
//! experiments whose truth is known.

mod laws;
mod noise;
mod refusals;
mod truth;
