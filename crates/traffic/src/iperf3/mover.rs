//! What the data threads of a test with iperf3 do. TCP's payload has no header, so the loops are those of
//! `stream`, with a rate or an amount where one was requested.

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use linerate_model::sample::Role;
use linerate_model::units::BitRate;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::TrafficError;
use crate::buffer::Buffer;
use crate::iperf3_protocol::Omitted;
use crate::sys::{TCP_INFO_BYTES_MAX, tcp_info};
use crate::tcp::info::word;
use crate::trial::{DataThread, FlowEnd, SharedState, Start, ThreadFlow, WorkResult};
use crate::waiting::timespec;

/// What the data threads need in addition to the trial's specification.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// The rate of each flow that sends.
    pub(super) rate: Option<BitRate>,
    /// The amount that all sending flows send together.
    pub(super) amount: Option<u64>,
    /// Receivers have the kernel throw the payload away.
    pub(super) truncate: bool,
    /// UDP: packet numbers have 64 bits.
    pub(super) wide: bool,
    /// A sender ends when the remote end's kernel has everything: what it then reads is the whole.
    pub(super) settle: bool,
    /// The time at the beginning that does not count.
    pub(super) omit: Duration,
    /// UDP: what each flow has lost so far, and its jitter.
    pub(super) progress: Vec<Progress>,
    /// UDP: what each flow had when that was over.
    pub(super) omitted: Mutex<Vec<(u32, Omitted)>>,
}

/// What the thread of a UDP flow that receives writes while it runs, alone in its cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Progress {
    pub(super) packets: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) jitter_ns: AtomicU64,
}

impl Orders {
    /// Storage for what `flows` flows write while they run.
    pub(super) fn progress_of(flows: u32) -> Vec<Progress> {
        (0..flows).map(|_| Progress::default()).collect()
    }

    /// The amount that flow `number` of `flows` sends: the shares differ by a byte at most.
    fn share(&self, number: u32, flows: u32) -> Option<u64> {
        let (amount, flows) = (self.amount?, u64::from(flows.max(1)));
        let number = u64::from(number) % flows;
        Some(amount / flows + u64::from(number < amount % flows))
    }
}

/// What runs on each data thread of a TCP test.
pub(super) fn tcp(
    data_thread: &mut DataThread<'_>,
    orders: &Orders,
) -> Result<Option<WorkResult>, TrafficError> {
    let mut buffer = Buffer::new(data_thread.spec.buffer_bytes, data_thread.memory())?;
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let one = data_thread.flows[0];
    let share = orders.share(one.flow.number, data_thread.spec.flows);
    let (bytes, end) = match data_thread.role {
        Role::Receiver => receive(one, buffer.bytes(), orders.truncate),
        Role::Sender if orders.rate.is_none() && share.is_none() => {
            send_until_stopped(data_thread.shared_state, one, buffer.bytes())
        }
        Role::Sender => {
            let pace = orders.rate.map(|rate| Pace::new(rate, start.at));
            send_some(data_thread.shared_state, one, buffer.bytes(), pace, share)
        }
    };
    let ended = Instant::now();
    let found = FlowEnd::of_tcp(one.flow, bytes, ended, start);
    if data_thread.role == Role::Sender {
        // It fails only when the connection is gone.
        let _ = shutdown(&one.flow.socket, Shutdown::Write);
        if orders.settle {
            settle(data_thread.shared_state, one);
        }
    }
    match end {
        None => {}
        // The other end has closed, or we have shut down, what is at its end anyway.
        Some(Errno::PIPE | Errno::CONNRESET) if data_thread.shared_state.is_stopped() => {}
        Some(Errno::PIPE | Errno::CONNRESET) => {
            return Err(TrafficError::PeerClosed {
                flow: one.flow.number,
                after: ended.duration_since(start.at),
            });
        }
        Some(errno) => return Err(TrafficError::of_errno("move data", errno)),
    }
    Ok(Some(WorkResult {
        flows: vec![found],
        operations: None,
        memory_node: buffer.node(),
    }))
}

/// How long a sender waits for the last acknowledgements.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// Waits until the remote end's kernel has acknowledged everything, the end of file included. The kernel
/// wakes no thread for that: it is called a thousand times a second.
fn settle(shared_state: &SharedState, one: ThreadFlow<'_>) {
    let until = Instant::now() + SETTLE_MAX;
    while !is_acknowledged(&one.flow.socket) && !shared_state.has_failed() && Instant::now() < until
    {
        let _ = poll(&mut [], Some(&timespec(Duration::from_millis(1))));
    }
}

/// Whether nothing is in flight or waits to be sent; also for a connection that the kernel reports nothing about.
fn is_acknowledged(socket: impl AsFd) -> bool {
    /// In `struct tcp_info`: segments in flight.
    const UNACKED: usize = 24;
    /// Bytes that were never sent.
    const NOTSENT: usize = 144;
    let mut raw = [0; TCP_INFO_BYTES_MAX];
    match tcp_info(socket, &mut raw) {
        Ok(length) => {
            let figure = |at| word(&raw[..length], at).unwrap_or(0);
            figure(UNACKED) == 0 && figure(NOTSENT) == 0
        }
        Err(_) => true,
    }
}

/// The hot loop of a sender: one relaxed load, one system call, one relaxed store.
fn send_until_stopped(
    shared_state: &SharedState,
    one: ThreadFlow<'_>,
    buffer: &[u8],
) -> (u64, Option<Errno>) {
    let mut bytes = 0u64;
    while !shared_state.is_stopped() {
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

/// The same at a rate, or up to an amount.
fn send_some(
    shared_state: &SharedState,
    one: ThreadFlow<'_>,
    buffer: &[u8],
    pace: Option<Pace>,
    share: Option<u64>,
) -> (u64, Option<Errno>) {
    let mut bytes = 0u64;
    let most = share.unwrap_or(u64::MAX);
    while bytes < most && !shared_state.is_stopped() {
        if pace.is_some_and(|pace| !pace.wait(bytes, shared_state)) {
            continue;
        }
        let left = usize::try_from(most - bytes).unwrap_or(usize::MAX);
        let piece = &buffer[..buffer.len().min(left)];
        match send(&one.flow.socket, piece, SendFlags::NOSIGNAL) {
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

/// The hot loop of a receiver: one system call, one relaxed store. With MSG_TRUNC the kernel counts and
/// copies nothing (tcp(7)).
fn receive(one: ThreadFlow<'_>, buffer: &mut [u8], truncate: bool) -> (u64, Option<Errno>) {
    let mut bytes = 0u64;
    let flags = if truncate {
        RecvFlags::TRUNC
    } else {
        RecvFlags::empty()
    };
    loop {
        match recv(&one.flow.socket, &mut *buffer, flags) {
            Ok((_, 0)) => return (bytes, None),
            Ok((_, count)) => {
                bytes += count as u64;
                one.counter.set_bytes(bytes);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (bytes, Some(errno)),
        }
    }
}

/// A rate that is kept on average: what could not be sent in time is sent later, as fast as possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    ns_per_byte: f64,
    begun: Instant,
}

impl Pace {
    pub(super) fn new(rate: BitRate, begun: Instant) -> Self {
        Self {
            ns_per_byte: 8e9 / rate.as_f64().max(1.0),
            begun,
        }
    }

    /// When the byte after `bytes` may go.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a time of the test, far within 64 bits; a float's error is far below a datagram's time"
    )]
    fn due(self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * self.ns_per_byte) as u64)
    }

    /// Sleeps until the byte after `bytes` may go; false when it was woken before, because the test ends.
    pub(super) fn wait(self, bytes: u64, shared_state: &SharedState) -> bool {
        let early = self.due(bytes).checked_sub(self.begun.elapsed());
        let Some(early) = early.filter(|early| !early.is_zero()) else {
            return true;
        };
        let mut fds = [PollFd::from_borrowed_fd(
            shared_state.stopping.as_fd(),
            PollFlags::IN,
        )];
        // An interrupted poll only means that we look once more.
        matches!(poll(&mut fds, Some(&timespec(early))), Ok(0))
    }
}

/// Since the start of the test at this end.
pub(super) fn since(start: Start) -> Duration {
    start.at.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_an_amount_make_it_up() {
        let orders = Orders {
            amount: Some(1_000_003),
            ..Orders::default()
        };
        let shares = (0..7).filter_map(|number| orders.share(number, 7));
        assert_eq!(shares.sum::<u64>(), 1_000_003);
    }

    #[test]
    fn a_rate_gives_each_byte_its_time() {
        let pace = Pace::new(BitRate::from_mbit_per_s(8), Instant::now());
        assert_eq!(pace.due(1_000_000), Duration::from_secs(1));
    }
}
