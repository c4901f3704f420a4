//! The real program on a real kernel: two hosts in network namespaces, faults injected with other tools,
//! and other tools' output for what was found and restored.
//!
//! Run as root and as an ordinary user alike (`cargo xtask test` does both). What this machine lacks is
//! a `SKIP:` line with its reason.

#![expect(
    clippy::print_stderr,
    reason = "a test that cannot run reports it where the runner counts it"
)]

mod agent;
mod bad_input;
mod bare;
mod block;
mod classes;
mod completions;
mod demo;
mod drops;
mod early_end;
mod events;
mod experiment;
mod failover;
mod failover_remote;
mod failover_runs;
mod full_disk;
mod gaps;
mod gate;
mod guard;
mod help;
mod hold;
mod interfaces;
mod iperf3;
mod job;
mod lab;
mod ladder;
mod lease;
mod live;
mod mesh;
mod mesh_engines;
mod mesh_launch;
mod metrics;
mod nics;
mod no_rdma;
mod own_hosts;
mod packaging;
mod peers;
mod preload;
mod prove;
mod push;
mod qos;
mod qos_verify;
mod redundant;
mod restore;
mod schema;
mod serve;
mod server;
mod stored;
mod strangers;
mod stream;
mod testbed;
mod tls;
mod tune;
mod unreachable;
mod untrusted;
mod watch;
mod why;
mod workloads;

use schema::{assert_fits, fitting};

/// The program under test.
const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");
