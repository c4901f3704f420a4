//! The `udp` workload: datagrams in one direction, with an account of losses, duplicates and reordering.
//!
//! Each flow has a TCP connection, its *companion*, that has presented the trial's token:
//!
//! ```text
//! both ends: bind a UDP socket to the companion's local address
//! HELLO (port, the flow's secret, which clock)   <->            then each connects to the other's port
//! READY, GO                                                     as for every workload
//! datagrams (secret, sequence, send time)        --> receiver   for the duration
//! REPORT (datagrams, bytes)                      --> receiver   which then waits for what is still out
//! ```
//!
//! A connected UDP socket accepts datagrams of its peer only; a datagram that another host sent before it was
//! connected, or with a forged address, lacks the secret that only the two ends know.

mod account;
mod companion;
mod gaps;
mod header;
mod layout;
pub(crate) mod probe;
mod receive;
mod schedule;
mod send;

use std::net::SocketAddr;
use std::time::Duration;

use companion::Link;
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{Datagrams, Role};
use linerate_model::units::Bytes;
use linerate_model::workload::{Udp, Waiting, Workload};
use rustix::time::{ClockId, clock_gettime};

use crate::TrafficError;
use crate::buffer::Buffer;
use crate::tcp::info;
use crate::trial::{DataThread, FlowEnd, WorkResult};

/// The addresses of a flow's UDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowAddresses {
    /// The number of the flow.
    pub flow: u32,
    /// This end's.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

/// How long a thread that waits in the kernel may be unaware that its companion fell silent.
const LOOK: Duration = Duration::from_millis(20);

/// What runs on each data thread.
pub(crate) fn work(data_thread: &mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> {
    let Workload::Udp(udp) = &data_thread.spec.workload else {
        return Err(TrafficError::NotBuilt);
    };
    let links = companion::open(data_thread)?;
    let layout = match data_thread.role {
        Role::Sender => send::layout(udp, &links)?,
        Role::Receiver => receive::layout(udp, &links)?,
    };
    let mut buffer = Buffer::new(
        Bytes::new(layout.buffer_bytes() as u64),
        data_thread.memory(),
    )?;
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let flows = match data_thread.role {
        Role::Sender => send::run(data_thread, udp, links, layout, buffer.bytes(), start)?,
        Role::Receiver => receive::run(data_thread, links, layout, buffer.bytes(), start)?,
    };
    Ok(Some(WorkResult {
        flows,
        operations: None,
        memory_node: buffer.node(),
    }))
}

/// How a thread of this workload can wait; io_uring is not among it.
fn check_waiting(waiting: Waiting) -> Result<(), TrafficError> {
    match waiting {
        Waiting::Blocking | Waiting::Epoll | Waiting::Spin | Waiting::BusyPoll(_) => Ok(()),
        Waiting::Uring | Waiting::UringSqpoll => Err(TrafficError::not_supported(
            format!("wait `{waiting}` in the workload udp"),
            "it sends and receives in batches without io_uring; choose blocking, epoll, spin or busy-poll",
        )),
    }
}

/// The size of a datagram of this trial.
fn datagram_bytes(udp: &Udp) -> usize {
    usize::try_from(udp.datagram_bytes.as_u64()).unwrap_or(usize::MAX)
}

/// The record of a flow that moved `bytes` until `at`.
fn flow_end(link: &Link, at: Duration, bytes: u64, datagrams: Datagrams) -> FlowEnd {
    FlowEnd {
        at,
        bytes,
        incoming_cpu: info::incoming_cpu(&link.socket),
        incoming_napi: info::incoming_napi(&link.socket),
        tcp: Known::unknown(
            Cause::Absent,
            "getsockopt(TCP_INFO)",
            "UDP has no such account",
        ),
        datagrams: Some(datagrams),
        ..FlowEnd::default()
    }
}

/// `time` in nanoseconds.
fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `CLOCK_MONOTONIC` in nanoseconds: one clock for all programs on a kernel.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}
