//! The methods of moving payload out of the kernel by a system call.

use std::os::fd::OwnedFd;

use linerate_model::sample::Copies;
use linerate_model::units::Bytes;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::drive::TransferMode;
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::sys::zerocopy::{self, ReceiveWindow};
use crate::trial::DataThread;

/// recv(2): the kernel copies or discards. Each call takes what is there: waiting for a full buffer
/// (`MSG_WAITALL`, `SO_RCVLOWAT`) and huge pages for it gained neither rate nor CPU time when measured over
/// loopback, and a low-water mark would grow the receive buffer that the trial is to leave alone.
pub(super) struct Read {
    buffer: Buffer,
    flags: RecvFlags,
}

impl Read {
    pub(super) fn copying(buffer: Buffer) -> Self {
        Self {
            buffer,
            flags: RecvFlags::empty(),
        }
    }

    /// `MSG_TRUNC` has TCP drop what it would have copied (tcp(7)).
    pub(super) fn truncating(buffer: Buffer) -> Self {
        Self {
            buffer,
            flags: RecvFlags::TRUNC,
        }
    }
}

impl TransferMode for Read {
    const SENDS: bool = false;
    const BLOCKS: bool = true;

    #[inline]
    fn step(&mut self, _: usize, socket: &OwnedFd, _: u64) -> Result<usize, Errno> {
        recv(socket, self.buffer.bytes(), self.flags).map(|(_, count)| count)
    }

    fn is_short(&self, moved: usize, _: u64) -> bool {
        moved < self.buffer.payload().len()
    }
}

/// `TCP_ZEROCOPY_RECEIVE`: whole pages are mapped, the rest is copied.
pub(super) struct Mapped {
    buffer: Buffer,
    window: ReceiveWindow,
    /// Bytes that were mapped, of each lane.
    counts: Vec<u64>,
}

/// What the kernel maps at a time is a multiple of any page size.
const WINDOW_UNIT: usize = 64 * 1024;
/// Storage for what does not fill a page. Not more: what fits in here altogether the kernel copies, however
/// many whole pages it has.
const REST: usize = 4_095;

impl Mapped {
    pub(super) fn new(data_thread: &DataThread<'_>, buffer: Buffer) -> Result<Self, TrafficError> {
        let failed = |errno| {
            TrafficError::refused(
                "receive by `zerocopy` (TCP_ZEROCOPY_RECEIVE, Linux 4.18)",
                errno,
            )
        };
        let socket = &data_thread.flows[0].flow.socket;
        let length = buffer.payload().len().next_multiple_of(WINDOW_UNIT);
        let window = ReceiveWindow::new(socket, length).map_err(failed)?;
        // Only READY can be pending there now: less than a page without space for it, so nothing is taken.
        window.receive(socket, &mut []).map_err(failed)?;
        Ok(Self {
            buffer,
            window,
            counts: vec![0; data_thread.flows.len()],
        })
    }
}

impl TransferMode for Mapped {
    const SENDS: bool = false;
    const BLOCKS: bool = false;

    fn step(&mut self, lane: usize, socket: &OwnedFd, _: u64) -> Result<usize, Errno> {
        let buffer = self.buffer.bytes();
        let room = buffer.len().min(REST);
        let got = match self.window.receive(socket, &mut buffer[..room]) {
            // The kernel's word for the end of file here.
            Err(Errno::IO) => zerocopy::Mapped::default(),
            got => got?,
        };
        self.counts[lane] += got.whole_pages as u64;
        let moved = got.whole_pages + got.copied;
        if got.unmappable == 0 && moved > 0 {
            return Ok(moved);
        }
        // What cannot be mapped; or, when nothing came at all, the end of file or AGAIN.
        let most = got.unmappable.clamp(1, buffer.len());
        match recv(socket, &mut buffer[..most], RecvFlags::DONTWAIT) {
            Ok((_, count)) => Ok(moved + count),
            Err(_) if moved > 0 => Ok(moved),
            Err(errno) => Err(errno),
        }
    }

    fn settle(&mut self, lane: usize, _: &OwnedFd) -> Option<Copies> {
        Some(Copies {
            mapped_bytes: Bytes::new(self.counts[lane]),
            ..Copies::default()
        })
    }
}
