//! The commands that take one step. They produce data; `linerate_report` formats it.
//!
//! `check` is what `linerate` does without a command, `memory` is the matrix of `map --memory`, `watched` a host with its
//! counters read twice, `settings_page` what `explain settings` prints, `words` what `explain` knows of experiments, `serve`
//! the pages of all runs for a browser on this machine.

pub(crate) mod capture;
pub(crate) mod ceiling;
pub(crate) mod check;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod manual;
pub(crate) mod map;
mod memory;
pub(crate) mod mesh_testbed;
pub(crate) mod nic;
pub(crate) mod pairings;
pub(crate) mod redundant;
pub(crate) mod report;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod settings_page;
pub(crate) mod testbed;
mod watched;
mod words;
