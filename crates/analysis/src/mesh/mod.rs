//! Which host of a mesh is slow.
//!
//! `schedule` and `hosts_file` prepare a mesh. `gathered` collects what comes out of its flows, `screen` finds suspects by
//! a robust model of rows (senders) and columns (receivers) of log rates, and `judge` names those that new measurements with
//! other partners confirm. Only these new measurements count, so that the choice of suspects cannot raise the share of
//! false names, and the level is divided among all tests of suspects: of 100 meshes without a fault, at most 5 name
//! anything. Retransmissions are evidence of their own (`loss`). Failed flows and lost hosts are facts, counted and not averaged (`failures`). `incast` compares the victim of
//! an incast with and without it. `document` is `linerate.mesh/1`, `matrix` the table of a heat map, `require` the gates, and `simulated`
//! a mesh with known truth.

pub mod comparison;
mod document;
mod failures;
mod gathered;
mod hosts_file;
mod incast;
mod judge;
mod loss;
mod matrix;
mod require;
mod schedule;
mod screen;
pub mod simulated;

pub use document::{
    Clock, Difference, Effect, FailedResult, FindingOfHost, HostResult, HostVerdict, Loss,
    MESH_SCHEMA, MeshDocument, MeshSetup, Named, PairResult, PairsSummary, RateUnit, What,
};
pub use gathered::Gathered;
pub use hosts_file::hosts_of_text;
pub use incast::{IncastResult, RatioResult, VictimVerdict, incast};
pub use judge::{Cleared, Confirmed, NamedPart, Verdict, judge};
pub use loss::LossShare;
pub use matrix::{CellState, Matrix};
pub use require::{Figure, Requirement, RequirementResult, RequirementVerdict};
pub use schedule::mesh_schedule;
pub use screen::{RETEST_PARTNERS, Screening, Side, Suspect, screen};

/// A slowdown below this is not reported: hosts of one type differ by as much.
pub const TOLERANCE: f64 = 0.03;

#[cfg(test)]
mod tests;
