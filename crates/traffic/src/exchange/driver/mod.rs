//! Runs the conversations of a thread in the trial's waiting mode.
//!
//! One connection: the calls themselves block, or are asked again and again. Several, or `epoll`: one
//! epoll instance. `uring`: one ring with a send and a receive under way on each connection. In every way
//! an operation costs a send and a receive, and what the waiting itself needs.

mod agenda;
mod polled;
mod ringed;
mod verbs;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use agenda::Agenda;
use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::units::Bytes;
use linerate_model::workload::Waiting;
use polled::Polled;
use ringed::Ringed;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use verbs::Lines;

use super::conversation::{Conversation, Fault};
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::sys::ExchangeRing;
use crate::tcp::Flow;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow};
use crate::waiting::{Event, Poller, timespec};

/// The token of the sign to stop.
const STOP: u64 = u64::MAX;
/// Events taken at a time.
const EVENTS: usize = 512;

/// A thread's connections, its memory, and its waiting mode.
pub(super) struct Driver<'a> {
    sockets: Vec<BorrowedFd<'a>>,
    stopping: BorrowedFd<'a>,
    manner: Manner<'a>,
}

enum Manner<'a> {
    /// The calls of the one connection wait.
    Blocking(Buffer),
    /// The one connection is asked until it has something.
    Spinning(Buffer),
    Polling(Buffer, Poller, Vec<Event>),
    Ring(Box<ExchangeRing>),
    Verbs(Box<Lines<'a>>),
}

/// A conversation that failed: which of them, and how.
pub(super) type Failed = (usize, Fault);

impl<'a> Driver<'a> {
    /// Makes everything ready for `flows`, with `memory` bytes to send from and receive into.
    pub(super) fn new(
        data_thread: &DataThread<'a>,
        flows: &[ThreadFlow<'a>],
        memory: Bytes,
    ) -> Result<Self, TrafficError> {
        let sockets: Vec<BorrowedFd<'a>> =
            flows.iter().map(|one| one.flow.socket.as_fd()).collect();
        let stopping = data_thread.shared_state.stopping.as_fd();
        if data_thread.spec.verbs.is_some() {
            let lines = Lines::open(data_thread, memory)?;
            return Ok(Self {
                sockets,
                stopping,
                manner: Manner::Verbs(Box::new(lines)),
            });
        }
        let buffer = Buffer::new(memory, data_thread.memory())?;
        let alone = sockets.len() == 1;
        let manner = match data_thread.spec.waiting {
            Waiting::Blocking | Waiting::BusyPoll(_) if alone => Manner::Blocking(buffer),
            Waiting::Spin if alone => Manner::Spinning(buffer),
            Waiting::Uring | Waiting::UringSqpoll => {
                let polled = data_thread.spec.waiting == Waiting::UringSqpoll;
                let mut ring = ExchangeRing::new(sockets.len(), polled, buffer.into_mapping())?;
                ring.watch(STOP, stopping)?;
                Manner::Ring(Box::new(ring))
            }
            waiting => {
                let poller = Poller::new(waiting)?;
                for (token, socket) in (0..).zip(&sockets) {
                    poller.add(socket, token, EventFlags::IN)?;
                }
                poller.add(stopping, STOP, EventFlags::IN | EventFlags::ONESHOT)?;
                let events = Vec::with_capacity(EVENTS.min(sockets.len() + 1));
                Manner::Polling(buffer, poller, events)
            }
        };
        Ok(Self {
            sockets,
            stopping,
            manner,
        })
    }

    /// The memory, between conversations. That of verbs is the device's as long as receives are posted: conversations
    /// copy to and from it.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        match &mut self.manner {
            Manner::Blocking(buffer) | Manner::Spinning(buffer) | Manner::Polling(buffer, ..) => {
                buffer.bytes()
            }
            Manner::Ring(ring) => ring.memory(),
            Manner::Verbs(_) => &mut [],
        }
    }

    /// The node that it is on.
    pub(super) fn node(&self) -> Known<NodeId> {
        match &self.manner {
            Manner::Blocking(buffer) | Manner::Spinning(buffer) | Manner::Polling(buffer, ..) => {
                buffer.node()
            }
            Manner::Ring(ring) => ring.node(),
            Manner::Verbs(lines) => lines.node(),
        }
    }

    /// Carries the conversations, one for each connection, to their end.
    pub(super) fn run<C: Conversation>(
        &mut self,
        conversations: &mut [C],
        ledger: &mut C::Ledger,
    ) -> Result<(), Failed> {
        let sockets = &self.sockets;
        match &mut self.manner {
            Manner::Blocking(buffer) => {
                let (socket, memory) = (sockets[0], buffer.bytes());
                block(socket, self.stopping, memory, &mut conversations[0], ledger)
                    .map_err(|fault| (0, fault))
            }
            Manner::Spinning(buffer) => {
                spin(sockets[0], buffer.bytes(), &mut conversations[0], ledger)
                    .map_err(|fault| (0, fault))
            }
            Manner::Polling(buffer, poller, events) => {
                Polled::new(sockets, buffer.bytes(), poller).run(conversations, ledger, events)
            }
            Manner::Ring(ring) => Ringed::new(sockets, ring).run(conversations, ledger),
            Manner::Verbs(lines) => lines.run(conversations, ledger),
        }
    }

    /// The end of flow `index`, which moved `bytes`.
    pub(super) fn end_of(
        &self,
        index: usize,
        flow: &Flow,
        bytes: u64,
        ended: Instant,
        start: Start,
    ) -> FlowEnd {
        match &self.manner {
            Manner::Verbs(lines) => lines.end_of(index, bytes, ended, start),
            _ => FlowEnd::of_tcp(flow, bytes, ended, start),
        }
    }
}

/// THE hot loop of one connection whose calls block: a send, a receive.
fn block<C: Conversation>(
    socket: BorrowedFd<'_>,
    stopping: BorrowedFd<'_>,
    memory: &mut [u8],
    one: &mut C,
    ledger: &mut C::Ledger,
) -> Result<(), Fault> {
    let mut how = SendFlags::NOSIGNAL;
    if one.is_duplex() {
        how |= SendFlags::DONTWAIT;
    }
    let whole = if one.takes_whole() {
        RecvFlags::WAITALL
    } else {
        RecvFlags::empty()
    };
    loop {
        let clear = push(socket, memory, one, how)?;
        if one.is_over() {
            return Ok(());
        }
        let due = one.due();
        if clear && due.is_none() {
            pull(socket, memory, one, ledger, whole)?;
        } else {
            sleep(socket, stopping, !clear, due)?;
            pull(socket, memory, one, ledger, RecvFlags::DONTWAIT)?;
        }
    }
}

/// THE hot loop of one connection that is polled.
fn spin<C: Conversation>(
    socket: BorrowedFd<'_>,
    memory: &mut [u8],
    one: &mut C,
    ledger: &mut C::Ledger,
) -> Result<(), Fault> {
    let how = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        push(socket, memory, one, how)?;
        if one.is_over() {
            return Ok(());
        }
        pull(socket, memory, one, ledger, RecvFlags::DONTWAIT)?;
    }
}

/// Sends what there is; whether all of it went.
fn push<C: Conversation>(
    socket: BorrowedFd<'_>,
    memory: &mut [u8],
    one: &mut C,
    how: SendFlags,
) -> Result<bool, Fault> {
    one.attend(memory)?;
    loop {
        let range = one.to_send();
        if range.is_empty() {
            one.attend(memory)?;
            return Ok(true);
        }
        match send(socket, &memory[range], how) {
            Ok(count) => one.sent(count),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Fault::of(errno)),
        }
    }
}

/// Receives once.
fn pull<C: Conversation>(
    socket: BorrowedFd<'_>,
    memory: &mut [u8],
    one: &mut C,
    ledger: &mut C::Ledger,
    how: RecvFlags,
) -> Result<(), Fault> {
    let range = one.to_receive();
    if range.is_empty() {
        return Ok(());
    }
    match recv(socket, &mut memory[range], how) {
        Ok((0, _)) => one.peer_ended(),
        Ok((count, _)) => one.received(count, ledger),
        Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(errno) => Err(Fault::of(errno)),
    }
}

/// Sleeps until the socket has news, something is due, or the trial stops.
fn sleep(
    socket: BorrowedFd<'_>,
    stopping: BorrowedFd<'_>,
    writes: bool,
    due: Option<Instant>,
) -> Result<(), Fault> {
    let mut interest = PollFlags::IN;
    interest.set(PollFlags::OUT, writes);
    // The sign to stop stays readable: only what has a next time needs it.
    let sign = if due.is_some() {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    let mut fds = [
        PollFd::from_borrowed_fd(socket, interest),
        PollFd::from_borrowed_fd(stopping, sign),
    ];
    let limit = due.map(|due| timespec(due.saturating_duration_since(Instant::now())));
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Fault::Kernel("wait for a connection", errno)),
    }
}
