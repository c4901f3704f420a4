//! The protocol of two ends on one connection, independent of how a thread waits for it: a
//! workload is a [`Conversation`], and the [`super::driver`] runs any number of them.

use std::ops::Range;
use std::time::Instant;

use linerate_verbs::Region;
use rustix::io::Errno;

use crate::TrafficError;
use crate::sys::{ExchangeRing, Mapping, NotThere};
use crate::trial::ThreadFlow;

/// The memory of a thread, or of a line over verbs, as a conversation sees it. It is copied from and to, and
/// never lent: the kernel or a device may hold other places of it.
pub(super) trait Memory {
    /// Copies from its byte `at` and behind.
    fn read(&self, at: usize, into: &mut [u8]);

    /// Copies `bytes` to its byte `at` and behind.
    fn write(&mut self, at: usize, bytes: &[u8]);
}

impl Memory for [u8] {
    fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[at..at + into.len()]);
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Memory for ExchangeRing {
    fn read(&self, at: usize, into: &mut [u8]) {
        ExchangeRing::read(self, at, into);
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        ExchangeRing::write(self, at, bytes);
    }
}

impl Memory for Region<Mapping> {
    fn read(&self, at: usize, into: &mut [u8]) {
        Region::read(self, at, into);
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Region::write(self, at, bytes);
    }
}

/// One end of one connection. Ranges are places in the thread's memory ([`super::driver::Driver::memory`]).
pub(super) trait Conversation {
    /// What all conversations of a thread note together.
    type Ledger;

    /// What to send now; empty if nothing.
    fn to_send(&mut self) -> Range<usize>;

    /// The first `count` bytes of it were taken by the kernel.
    fn sent(&mut self, count: usize);

    /// Where the next bytes may be put; empty when none are expected.
    fn to_receive(&self) -> Range<usize>;

    /// Handles what arrived and prepares what is to be sent: called before a driver asks what to send, and again
    /// when it has sent what it could. Over verbs `memory` is the line's whole region, whose second half receives
    /// the messages.
    #[inline]
    fn attend<M: Memory + ?Sized>(&mut self, _memory: &mut M) -> Result<(), Fault> {
        Ok(())
    }

    /// So many bytes came.
    fn received(&mut self, count: usize, ledger: &mut Self::Ledger) -> Result<(), Fault>;

    /// The other end sends no more.
    fn peer_ended(&mut self) -> Result<(), Fault> {
        Err(Fault::Closed)
    }

    /// Whether nothing is left to be sent or received. Asked after [`Conversation::to_send`].
    fn is_over(&self) -> bool;

    /// When it has something to send although nothing came.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Whether it sends while the other end may be sending too: then a send must never block, or both
    /// ends could wait for each other with full socket buffers.
    fn is_duplex(&self) -> bool {
        false
    }

    /// Whether what it receives is a whole message that nothing can be done with before its end.
    fn takes_whole(&self) -> bool {
        false
    }
}

/// What can go wrong in a conversation.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection ended.
    Closed,
    /// The kernel's answer.
    Kernel(&'static str, Errno),
    /// The other end sent something that was not requested.
    Unasked(&'static str),
    /// This end cannot wait, or fails itself.
    Own(TrafficError),
}

impl Fault {
    /// What `errno` of a send or a receive means.
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            _ => Self::Kernel("move data", errno),
        }
    }

    /// The trial's error, met on `one` at `now`, the trial having begun at `start`.
    pub(super) fn on(self, one: ThreadFlow<'_>, start: Instant, now: Instant) -> TrafficError {
        let flow = one.flow.number;
        match self {
            Self::Closed => TrafficError::PeerClosed {
                flow,
                after: now.duration_since(start),
            },
            Self::Kernel(doing, errno) => TrafficError::of_errno(doing, errno),
            Self::Unasked(what) => TrafficError::Unasked { flow, what },
            Self::Own(error) => error,
        }
    }
}

impl From<TrafficError> for Fault {
    fn from(error: TrafficError) -> Self {
        Self::Own(error)
    }
}

impl From<NotThere> for TrafficError {
    fn from(missing: NotThere) -> Self {
        match missing.errno {
            Errno::NOSYS | Errno::PERM | Errno::ACCESS => Self::not_supported(
                "use io_uring",
                "the kernel has none, or forbids it here (kernel.io_uring_disabled, a seccomp \
                      filter): choose another way of waiting",
            ),
            Errno::NOMEM => Self::of_io_uring(missing.doing, missing.errno),
            errno => Self::of_errno(missing.doing, errno),
        }
    }
}
