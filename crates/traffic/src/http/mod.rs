//! HTTP/1.1 under load: a server that any client may load, and a client that loads any server.
//!
//! * [`Server`] on its own, for wrk, curl and others; or as the receiving end of a trial.
//! * [`load`] against any server that speaks HTTP/1.1; or as the sending end of a trial.
//! * Another program as the server at the receiving end of a trial (`other`).
//!
//! A trial of two ends has one companion connection per thread of the end that has more of them: the server's
//! thread sends its port on each of its own, and the client's thread closes it when the time is over.

mod alarm;
mod client;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod other;
mod parse;
mod server;
mod target;

use std::time::Instant;

use linerate_model::sample::{Role, SideSample};
use linerate_model::units::Bytes;
use linerate_model::workload::{Http, TrialSpec, Waiting, Workload};
pub use parse::request::{HEAD_MAX, Refusal, RequestTarget, read_request};
pub use server::{Served, Server};
pub use target::Target;

use crate::trial::{self, DataThread, FlowEnd, Start, WorkResult};
use crate::{Abort, TrafficError};

/// The body that makes the server's answer 151 bytes in all, head included: what the sources' server sent for
/// a request of 44 bytes. (`GET /` of a trial is 44 bytes: the name it asks for, `linerate.localhost`, has
/// the length of the sources' own.)
pub const SOURCE_BODY: Bytes = Bytes::new(111);

/// Enough for a thread that calls nothing deep.
const STACK_BYTES: usize = 256 * 1024;

/// What runs on each data thread of a trial of two ends.
pub(crate) fn work(data_thread: &mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> {
    check_waiting(data_thread.spec.waiting)?;
    let http = of(data_thread.spec)?;
    match data_thread.role {
        Role::Sender => client::work_with_peer(data_thread, http),
        Role::Receiver => match &http.server {
            Some(server) => other::work(data_thread, server),
            None => server::work(data_thread, http),
        },
    }
}

/// Loads the server at `target` with `spec.flows` connections on `spec.threads()` threads, for
/// `spec.duration_ns`: in closed loop, each connection's next request when the last is answered; or in open
/// loop at `rate_per_s`, each at its intended time, from which its latency counts.
///
/// The path is the workload's. Comes back with the first error when a connection cannot be made at the start;
/// later ones are counted as failed, as are answers of status 400 and above, answers that are no HTTP, and
/// those that stand still for ten seconds. What is under way at the end, or was due before it, is awaited
/// for a second, and what is not answered by then is counted as such.
pub fn load(spec: &TrialSpec, target: &Target, abort: &Abort) -> Result<SideSample, TrafficError> {
    spec.check()?;
    check_waiting(spec.waiting)?;
    let http = of(spec)?;
    crate::tcp::make_room(spec)?;
    let work = |data_thread: &mut DataThread<'_>| client::work_alone(data_thread, http, target);
    trial::carry_out_alone(spec, Role::Sender, &work, abort)
}

fn of(spec: &TrialSpec) -> Result<&Http, TrafficError> {
    match &spec.workload {
        Workload::Http(http) => Ok(http),
        _ => Err(TrafficError::NotBuilt),
    }
}

/// Only what an epoll instance can do.
fn check_waiting(waiting: Waiting) -> Result<(), TrafficError> {
    match waiting {
        Waiting::Uring | Waiting::UringSqpoll => Err(TrafficError::Waiting {
            waiting,
            workload: "http",
        }),
        _ => Ok(()),
    }
}

/// The records of a thread's companions: the first has the bytes of all its connections.
fn companion_ends(companions: usize, bytes: u64, ended: Instant, start: Start) -> Vec<FlowEnd> {
    let reason = "an http flow is all connections of a thread, each with its own TCP counters";
    let bytes = std::iter::once(bytes).chain(std::iter::repeat(0));
    bytes
        .take(companions)
        .map(|bytes| FlowEnd::of_companion(bytes, ended, start, reason))
        .collect()
}
