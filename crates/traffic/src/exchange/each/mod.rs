//! `rr` with a connection for each request.
//!
//! ```text
//! answering end, on the companion: the port (2 bytes)   -->   asking end      before both are ready
//! for each request: connect, request --> , <-- response, reset
//! ```
//!
//! A connection's time is that of its handshake, its request and its response. The asking end then resets
//! it (`SO_LINGER` of 0): a regular end would leave a `TIME_WAIT` behind for each, and the ports would be
//! used up after some 28,000 of them. Only connections from the companion's own peer are served.

mod answer;
mod ask;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use linerate_model::sample::Role;
use linerate_model::units::Bytes;
use linerate_model::workload::{Rr, Waiting};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, getpeername, recv};

use super::conversation::Fault;
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::trial::{DataThread, FlowEnd, Start, WorkResult};

/// Bytes of the port on the companion.
const PORT_BYTES: usize = 2;
/// Maximum bytes per call.
const CALL_MAX: u64 = 256 * 1024;
/// The token of the sign to stop.
const STOP: u64 = u64::MAX;

/// What runs on each data thread.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    rr: &Rr,
) -> Result<Option<WorkResult>, TrafficError> {
    if matches!(
        data_thread.spec.waiting,
        Waiting::Uring | Waiting::UringSqpoll
    ) {
        return Err(TrafficError::not_supported(
            "use io_uring with a connection for each request",
            "it is not built; choose blocking, epoll, spin or busy-poll",
        ));
    }
    match data_thread.role {
        Role::Sender => ask::work(data_thread, rr),
        Role::Receiver => answer::work(data_thread, rr),
    }
}

/// Memory for messages whose content means nothing.
fn scratch(data_thread: &DataThread<'_>, rr: &Rr) -> Result<Buffer, TrafficError> {
    let largest = rr.request_bytes.max(rr.response_bytes).as_u64();
    Buffer::new(Bytes::new(largest.min(CALL_MAX)), data_thread.memory())
}

/// What of `missing` bytes one call can take.
fn part(memory: &mut [u8], missing: u64) -> &mut [u8] {
    let most = memory.len();
    let length = usize::try_from(missing).map_or(most, |missing| missing.min(most));
    &mut memory[..length]
}

/// The end of a flow that used a separate connection for each request.
fn companion_end(bytes: u64, ended: Instant, start: Start) -> FlowEnd {
    let reason = "each request has its own connection, which is closed";
    FlowEnd::of_companion(bytes, ended, start, reason)
}

/// Whether a companion has ended; any data on it is unexpected.
fn companion_ended(companion: BorrowedFd<'_>) -> Result<bool, Fault> {
    let mut heard = [0u8; 1];
    match recv(companion, &mut heard, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Ok(true),
        Ok(_) => Err(Fault::Unasked("data on a companion connection")),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(Fault::of(errno)),
    }
}

/// The other end of a companion connection.
fn peer_of(companion: BorrowedFd<'_>) -> rustix::io::Result<SocketAddrAny> {
    getpeername(companion)?.ok_or(Errno::NOTCONN)
}

/// An end of a companion connection.
fn address_of(found: rustix::io::Result<SocketAddrAny>) -> Result<SocketAddr, TrafficError> {
    found
        .and_then(SocketAddr::try_from)
        .map_err(|errno| TrafficError::of_errno("read a connection's address", errno))
}
