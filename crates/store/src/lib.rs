//! Stored runs: everything that linerate keeps of its measurements, below one folder.
//!
//! `run` writes and reads one run, `follow` one that is still growing, `earlier` the runs that are levels of an
//! experiment; `runs` lists all runs, with an index in SQLite; `export` writes their trials as one table.

#![forbid(unsafe_code)]

pub mod earlier;
pub mod export;
pub mod follow;
pub mod made_up;
mod run;
pub mod runs;

pub use self::run::*;
