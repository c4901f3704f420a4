//! linerate's data model and its checks: plain data and pure functions.
//!
//! No file, socket, clock or random number generator is used here, and there is no unsafe code; code that needs one
//! of them receives it as an argument. See `docs/ARCHITECTURE.md` for the other crates.

#![forbid(unsafe_code)]

pub mod activity;
pub mod analysis;
pub mod ber;
pub mod block;
pub mod buffers;
pub mod build;
pub mod ceiling;
pub mod end;
pub mod exit;
pub mod factor;
pub mod failover;
pub mod finding;
pub mod greeting;
pub mod guard;
pub mod host;
pub mod ids;
pub mod known;
pub mod lab;
pub mod latency;
pub mod launch;
pub mod limit;
pub mod memory_policy;
pub mod mesh;
pub mod pairing;
pub mod path;
pub mod peer_address;
pub mod pingpong;
pub mod plan;
pub mod ports;
pub mod propose;
pub mod protocol;
pub mod prove;
pub mod qos;
pub mod rules;
pub mod sample;
#[cfg(feature = "schema")]
mod schema;
pub mod setting;
pub mod shell;
pub mod status_opcode;
pub mod steady;
pub mod talk;
pub mod terms;
pub mod threshold;
pub mod trust;
pub mod units;
pub mod watch;
pub mod workload;
