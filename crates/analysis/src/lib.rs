//! What the records of a run mean.
//!
//! `record` has what is stored; `trial` the figures of one trial, `proof` the document of `prove`, `experiment` the
//! definition and the judgement of a designed experiment, `nics` what several NICs move
//! alone and together, `qos` whether the limits of classes hold, `mesh` which of many hosts is slow, `progress` how far a run is, `run_list` the list of runs, `changes`
//! what differs between two of them.
//! `text` writes numbers, times and foreign text. Everything here can be recomputed from a stored run: no file, socket, clock
//! or random number generator is used.

#![forbid(unsafe_code)]

pub mod changes;
pub mod experiment;
pub mod failover;
pub mod failover_comparison;
pub mod made_up;
pub mod mesh;
pub mod nics;
pub mod progress;
pub mod proof;
pub mod qos;
pub mod record;
pub mod run_list;
pub mod text;
pub mod trial;
