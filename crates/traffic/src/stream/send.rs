//! The methods of moving payload into the kernel by a system call.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_model::sample::Copies;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::{Errno, write};
use rustix::net::{SendFlags, send};
use rustix::param::page_size;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use rustix::process::{Resource, Rlimit, getrlimit};

use super::drive::TransferMode;
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::sys::zerocopy::{
    allow_zerocopy, block_sigpipe, lend_pages, next_notification, send_zerocopy,
};
use crate::trial::{DataThread, SharedState};
use crate::waiting::timespec;

/// The part of `buffer` for one call that may move `most` bytes.
#[inline]
fn part(buffer: &[u8], most: u64) -> &[u8] {
    &buffer[..part_length(buffer, most)]
}

/// How much that is.
#[inline]
pub(super) fn part_length(buffer: &[u8], most: u64) -> usize {
    buffer
        .len()
        .min(usize::try_from(most).unwrap_or(usize::MAX))
}

/// send(2): the kernel copies.
pub(super) struct Write {
    buffer: Buffer,
}

impl Write {
    pub(super) fn new(buffer: Buffer) -> Self {
        Self { buffer }
    }
}

impl TransferMode for Write {
    const SENDS: bool = true;
    const BLOCKS: bool = true;

    #[inline]
    fn step(&mut self, _: usize, socket: &OwnedFd, most: u64) -> Result<usize, Errno> {
        send(
            socket,
            part(self.buffer.payload(), most),
            SendFlags::NOSIGNAL,
        )
    }

    fn is_short(&self, moved: usize, most: u64) -> bool {
        moved < part(self.buffer.payload(), most).len()
    }
}

/// `MSG_ZEROCOPY`. The buffer never changes, so that nothing has to wait for the kernel to be done with it;
/// what is outstanding is bounded by the socket's send buffer and by `net.core.optmem_max`.
pub(super) struct Zerocopy<'a> {
    buffer: Buffer,
    shared_state: &'a SharedState,
    lanes: Vec<Outstanding>,
    /// Until when the ends of all lanes wait for the kernel's notifications.
    settled: Option<Instant>,
}

/// The zero-copy sends of one lane.
#[derive(Debug, Clone, Copy, Default)]
struct Outstanding {
    sent: u64,
    heard: u64,
    copied: u64,
}

/// Sends between two reads of the error queue: the kernel merges adjacent notifications, so
/// one read takes many.
const HEAR_EVERY: u64 = 32;
/// How long the end of a trial waits for the kernel's notifications.
const HEAR_MAX: Duration = Duration::from_millis(100);

impl<'a> Zerocopy<'a> {
    pub(super) fn new(data_thread: &DataThread<'a>, buffer: Buffer) -> Result<Self, TrafficError> {
        for one in &data_thread.flows {
            allow_zerocopy(&one.flow.socket).map_err(|errno| {
                TrafficError::refused("send by `zerocopy` (SO_ZEROCOPY, Linux 4.14)", errno)
            })?;
        }
        Ok(Self {
            buffer,
            shared_state: data_thread.shared_state,
            lanes: vec![Outstanding::default(); data_thread.flows.len()],
            settled: None,
        })
    }

    /// Drains the error queue; returns how many sends were reported.
    fn drain(&mut self, lane: usize, socket: &OwnedFd) -> u64 {
        let lane = &mut self.lanes[lane];
        let before = lane.heard;
        while let Ok(heard) = next_notification(socket) {
            lane.heard += u64::from(heard.sends);
            if heard.copied {
                lane.copied += u64::from(heard.sends);
            }
        }
        lane.heard - before
    }

    /// Waits until the error queue holds something, `limit` is over, or (when it was not before) the trial
    /// is stopped.
    fn wait(&self, socket: &OwnedFd, limit: Duration) {
        let interest = if self.shared_state.is_stopped() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds = [
            PollFd::new(socket, PollFlags::empty()),
            PollFd::from_borrowed_fd(self.shared_state.stopping.as_fd(), interest),
        ];
        // An interrupted or failed poll only means that we look once more.
        let _ = poll(&mut fds, Some(&timespec(limit)));
    }
}

/// Whether a send of that size can never lock its pages: the kernel counts two more than it fills
/// (`mm_account_pinned_pages` of net/core/skbuff.c).
fn is_beyond_locked(payload: usize, limit: Rlimit) -> bool {
    let page = page_size();
    let pages = payload / page + 2;
    limit
        .current
        .is_some_and(|limit| limit / (page as u64) < pages as u64)
}

impl TransferMode for Zerocopy<'_> {
    const SENDS: bool = true;
    const BLOCKS: bool = true;

    fn step(&mut self, lane: usize, socket: &OwnedFd, most: u64) -> Result<usize, Errno> {
        match send_zerocopy(socket, part(self.buffer.payload(), most)) {
            Ok(count) => {
                self.lanes[lane].sent += 1;
                if self.lanes[lane].sent.is_multiple_of(HEAR_EVERY) {
                    self.drain(lane, socket);
                }
                Ok(count)
            }
            // No space for a further notification (optmem_max) until some are taken, or no more pages that this
            // user may lock until some are released.
            Err(Errno::NOBUFS) => {
                let payload = part(self.buffer.payload(), most).len();
                match self.drain(lane, socket) {
                    0 if is_beyond_locked(payload, getrlimit(Resource::Memlock)) => {
                        return Err(Errno::NOBUFS);
                    }
                    0 if self.lanes.len() > 1 => return Err(Errno::AGAIN),
                    0 => self.wait(socket, HEAR_MAX),
                    _ => {}
                }
                Err(Errno::INTR)
            }
            Err(errno) => Err(errno),
        }
    }

    fn is_short(&self, moved: usize, most: u64) -> bool {
        moved < part(self.buffer.payload(), most).len()
    }

    fn hear(&mut self, lane: usize, socket: &OwnedFd) {
        self.drain(lane, socket);
    }

    fn settle(&mut self, lane: usize, socket: &OwnedFd) -> Option<Copies> {
        let until = *(self.settled).get_or_insert_with(|| Instant::now() + HEAR_MAX);
        self.drain(lane, socket);
        while self.lanes[lane].heard < self.lanes[lane].sent {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wait(socket, left);
            if self.drain(lane, socket) == 0 {
                // The connection hung up and has no notifications: poll would return at once.
                break;
            }
        }
        let Outstanding { heard, copied, .. } = self.lanes[lane];
        Some(Copies {
            zerocopy_sends: heard,
            copied_after_all: copied,
            ..Copies::default()
        })
    }
}

/// sendfile(2) from a memory file: the pages go into the socket as they are.
pub(super) struct Sendfile {
    file: OwnedFd,
    size: usize,
    at: u64,
}

impl Sendfile {
    pub(super) fn new(buffer: &Buffer) -> Result<Self, TrafficError> {
        let failed = |errno| TrafficError::refused("send by `sendfile` (memfd_create)", errno);
        block_sigpipe();
        let file = memfd_create("linerate-payload", MemfdFlags::CLOEXEC).map_err(failed)?;
        let mut rest = buffer.payload();
        while !rest.is_empty() {
            let written = write(&file, rest).map_err(failed)?;
            rest = &rest[written..];
        }
        Ok(Self {
            file,
            size: buffer.payload().len(),
            at: 0,
        })
    }
}

impl TransferMode for Sendfile {
    const SENDS: bool = true;
    const BLOCKS: bool = true;

    #[inline]
    fn step(&mut self, _: usize, socket: &OwnedFd, most: u64) -> Result<usize, Errno> {
        if self.at >= self.size as u64 {
            self.at = 0;
        }
        let left = (self.size as u64 - self.at).min(most);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        sendfile(socket, &self.file, Some(&mut self.at), left)
    }
}

/// splice(2) through a pipe that the buffer's pages are lent to (vmsplice(2)).
pub(super) struct Splice {
    buffer: Buffer,
    reader: OwnedFd,
    writer: OwnedFd,
    /// What is in the pipe.
    held: usize,
}

impl Splice {
    pub(super) fn new(buffer: Buffer) -> Result<Self, TrafficError> {
        let failed = |errno| TrafficError::refused("send by `splice` (pipe)", errno);
        block_sigpipe();
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        // The kernel may refuse more than its default (64 KiB): then the buffer is sent in several pieces.
        let _ = fcntl_setpipe_size(&writer, buffer.payload().len());
        Ok(Self {
            buffer,
            reader,
            writer,
            held: 0,
        })
    }
}

impl TransferMode for Splice {
    const SENDS: bool = true;
    const BLOCKS: bool = true;

    #[inline]
    fn step(&mut self, _: usize, socket: &OwnedFd, most: u64) -> Result<usize, Errno> {
        if self.held == 0 {
            self.held = lend_pages(&self.writer, self.buffer.payload())?;
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.held);
        let moved = splice(&self.reader, None, socket, None, most, SpliceFlags::MOVE)?;
        self.held -= moved;
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_that_needs_more_locked_pages_than_the_limit_has_can_never_be_made() {
        let limit = |pages: u64| Rlimit {
            current: Some(pages * page_size() as u64),
            maximum: None,
        };
        assert!(is_beyond_locked(page_size(), limit(2)));
        assert!(!is_beyond_locked(page_size(), limit(3)));
        assert!(is_beyond_locked(1, limit(1)));
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        assert!(!is_beyond_locked(1 << 30, none));
    }
}
