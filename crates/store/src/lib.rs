//! Stored runs: everything that linerate keeps of its measurements, below one folder.
//!
//! `run` writes and reads one run, `follow` one that is still growing, `earlier` the runs that are levels of an
//! experiment; `named` finds a run by what a person types, `measured` keeps every `measure` within a limit; `runs` lists
//! all runs, with an index in SQLite; `export` writes their trials as one table.

#![forbid(unsafe_code)]

pub mod earlier;
pub mod export;
pub mod follow;
pub mod made_up;
pub mod measured;
pub mod named;
mod run;
pub mod runs;

#[cfg(feature = "fuzz")]
pub use self::run::parse_records;
pub use self::run::{
    Log, Place, Records, Run, RunLines, Trace, cannot_write, is_being_written, kind_of, line_of,
    read, read_header, read_keeping, read_own, run_folder, with_checksum, write_page, write_whole,
};
