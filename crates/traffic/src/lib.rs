//! The hot path: moves bytes between two hosts and records what happened.
//!
//! * [`tcp`]: the connections of a trial, and the trial on them.
//! * [`http`]: a server and a client of HTTP/1.1.
//! * [`iperf3`]: the other end may be iperf3, as a server or as clients; [`iperf3_protocol`]: what is said then.
//! * [`copy`]: what one core's memory copy makes, the ceiling of a path that has no wire.
//! * [`diffusion`]: a step of the heat equation, the work between two journeys of a grid.
//! * [`mover`]: a stream by the plainest calls, for libraries that take those over.
//! * [`memory`]: what each node's CPUs make of each node's memory.
//! * [`simulated`]: a path whose true rate is known, for proving what reads the samples.
//!
//! Nothing here knows how a host is read or changed: where threads run arrives as data in the
//! specification, and counters of the machine are the caller's. Between start and stop a data thread
//! only calls the kernel to move or to wait, and stores one counter: it allocates, locks and logs nothing.

mod abort;
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
pub use trial::cpu_time_of_this_thread;
