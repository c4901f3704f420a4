//! The `stream` workload: bulk transfer. A data thread allocates and touches its buffer (so that the pages
//! are on its own node: the kernel places them at first touch), waits at the gate, and from then on does
//! nothing but move payload and store a counter.

use std::time::{Duration, Instant};

use linerate_model::sample::Role;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::TrafficError;
use crate::buffer::Buffer;
use crate::trial::{FlowEnd, Found, Seat, SeatFlow, Start};

/// What runs on each data thread of a stream.
pub(crate) fn work(seat: &mut Seat<'_>) -> Result<Option<Found>, TrafficError> {
    let mut buffer = Buffer::new(seat.spec.buffer_bytes, seat.memory())?;
    let Some(start) = seat.ready()? else {
        return Ok(None);
    };
    let one = seat.flows[0];
    let (bytes, end) = match seat.role {
        Role::Sender => send_until_stopped(seat, one, buffer.bytes()),
        Role::Receiver => receive_until_end(one, buffer.bytes()),
    };
    let ended = Instant::now();
    let found = FlowEnd::of_tcp(one.flow, bytes, ended, start);
    if seat.role == Role::Sender {
        // The end of file is the receiver's sign to stop. It fails only when the connection is gone, and
        // then the receiver has noticed.
        let _ = shutdown(&one.flow.socket, Shutdown::Write);
    }
    judge(seat, one, end, ended, start)?;
    Ok(Some(Found {
        flows: vec![found],
        operations: None,
        memory_node: buffer.node(),
    }))
}

/// THE hot loop of a sender: one relaxed load, one system call, one relaxed store.
fn send_until_stopped(seat: &Seat<'_>, one: SeatFlow<'_>, buffer: &[u8]) -> (u64, Option<Errno>) {
    let mut bytes = 0u64;
    while !seat.board.is_stopped() {
        match send(&one.flow.socket, buffer, SendFlags::NOSIGNAL) {
            Ok(count) => {
                bytes += count as u64;
                one.counter.set_bytes(bytes);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (bytes, Some(errno)),
        }
    }
    (bytes, None)
}

/// THE hot loop of a receiver: one system call, one relaxed store.
fn receive_until_end(one: SeatFlow<'_>, buffer: &mut [u8]) -> (u64, Option<Errno>) {
    let mut bytes = 0u64;
    loop {
        match recv(&one.flow.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return (bytes, None),
            Ok((count, _)) => {
                bytes += count as u64;
                one.counter.set_bytes(bytes);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (bytes, Some(errno)),
        }
    }
}

/// Whether the loop ended as it should.
fn judge(
    seat: &Seat<'_>,
    one: SeatFlow<'_>,
    end: Option<Errno>,
    ended: Instant,
    start: Start,
) -> Result<(), TrafficError> {
    let duration = Duration::from(seat.spec.duration_ns);
    let closed = TrafficError::PeerClosed {
        flow: one.flow.number,
        after: ended.duration_since(start.at),
    };
    match (seat.role, end) {
        (Role::Sender, None) => Ok(()),
        // The write side is shut down by us when the time is over, to end a `send` that blocks.
        (Role::Sender, Some(Errno::PIPE)) if seat.board.is_stopped() => Ok(()),
        // The sender began after our GO, so its end comes after our duration; 1 % is far more
        // than two clocks differ.
        (Role::Receiver, None) if ended.duration_since(start.asked) >= duration.mul_f64(0.99) => {
            Ok(())
        }
        (Role::Receiver, None) | (_, Some(Errno::PIPE | Errno::CONNRESET)) => Err(closed),
        (_, Some(errno)) => Err(TrafficError::of_errno("move data", errno)),
    }
}
