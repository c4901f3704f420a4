//! The hot path: moves bytes between two hosts and records what happened.
//!
//! * [`block`]: reads and writes of a block device.
//! * [`tcp`]: the connections of a trial, and the trial on them.
//! * [`http`]: a server and a client of HTTP/1.1.
//! * [`iperf3`]: an iperf3 peer, as a server or as clients; [`iperf3_protocol`]: its protocol.
//! * [`copy`]: the memory copy rate of one core, the ceiling of a path that has no wire.
//! * [`diffusion`]: a step of the heat equation, the computation between two transfers of a grid.
//! * [`mover`]: a stream by the plainest calls, for libraries that intercept those.
//! * [`memory`]: the memory bandwidth from each node's CPUs to each node's memory.
//! * [`place`]: the CPUs and the memory policy of a program that is started for a trial.
//! * [`simulated`]: a path whose true rate is known, to validate what reads the samples.
//!
//! Nothing here reads or changes the host: where threads run is data in the
//! specification, and the machine's counters are up to the caller. Between start and stop a data thread
//! only calls the kernel to transfer or to wait, and stores one counter: it does not allocate, lock or log.

mod abort;
pub mod block;
mod buffer;
mod catch_up;
mod content;
pub mod copy;
pub mod diffusion;
mod error;
mod exchange;
pub mod http;
pub mod iperf3;
pub mod iperf3_protocol;
pub mod memory;
pub mod mover;
pub mod place;
mod rdma;
pub mod simulated;
mod source;
mod stream;
mod sys;
pub mod tcp;
mod trial;
mod udp;
mod verbs;
mod waiting;
mod workloads;

pub use abort::Abort;
pub use error::TrafficError;
pub use sys::{inherited_listener, inherited_stream};
pub use trial::cpu_time_of_this_thread;
pub use udp::FlowAddresses;

/// The time of the clock that probes are stamped with, `CLOCK_MONOTONIC`: for what happens beside a trial.
pub fn monotonic_now() -> linerate_model::units::Nanoseconds {
    linerate_model::units::Nanoseconds::new(udp::monotonic_ns())
}
