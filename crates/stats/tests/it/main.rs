//! The guarantees of linerate-stats, tested through its public API: properties for every input, and simulated
//! experiments with a known truth.

mod laws;
mod noise;
mod refusals;
mod sequential;
mod staged;
mod truth;
