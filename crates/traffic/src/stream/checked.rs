//! send(2) and recv(2) of a stream with every byte compared on arrival. The content encodes the
//! position in the flow, so that corrupted, lost or duplicate bytes, or those of another flow, are detected.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::drive::TransferMode;
use super::send::part_length;
use crate::buffer::Buffer;
use crate::trial::DataThread;
use crate::{TrafficError, content};

/// How far a lane has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    flow: u32,
    offset: u64,
}

/// The beginnings of all lanes of a thread.
pub(super) fn places(data_thread: &DataThread<'_>) -> Vec<Place> {
    let flows = data_thread.flows.iter().map(|one| one.flow.number);
    flows.map(|flow| Place { flow, offset: 0 }).collect()
}

/// send(2), of what is made for each call.
pub(super) struct Write {
    /// Of each lane.
    places: Vec<Place>,
    buffer: Buffer,
    /// What the buffer has: nothing is made again for a call that the socket was not ready for.
    ready: Option<(Place, usize)>,
}

impl Write {
    pub(super) fn new(places: Vec<Place>, buffer: Buffer) -> Self {
        Self {
            places,
            buffer,
            ready: None,
        }
    }
}

impl TransferMode for Write {
    const SENDS: bool = true;
    const BLOCKS: bool = true;

    fn step(&mut self, lane: usize, socket: &OwnedFd, most: u64) -> Result<usize, Errno> {
        let place = &mut self.places[lane];
        let length = part_length(self.buffer.payload(), most);
        let part = &mut self.buffer.bytes()[..length];
        if self.ready != Some((*place, length)) {
            content::fill_at(part, place.flow, place.offset);
            self.ready = Some((*place, length));
        }
        let count = send(socket, part, SendFlags::NOSIGNAL)?;
        place.offset += count as u64;
        Ok(count)
    }

    fn is_short(&self, moved: usize, most: u64) -> bool {
        moved < part_length(self.buffer.payload(), most)
    }
}

/// recv(2), and a check of every byte.
pub(super) struct Read {
    /// Of each lane.
    places: Vec<Place>,
    buffer: Buffer,
    /// What was wrong.
    wrong: Option<TrafficError>,
}

impl Read {
    pub(super) fn new(places: Vec<Place>, buffer: Buffer) -> Self {
        Self {
            places,
            buffer,
            wrong: None,
        }
    }
}

impl TransferMode for Read {
    const SENDS: bool = false;
    const BLOCKS: bool = true;

    fn step(&mut self, lane: usize, socket: &OwnedFd, _: u64) -> Result<usize, Errno> {
        let place = &mut self.places[lane];
        let buffer = self.buffer.bytes();
        let (count, _) = recv(socket, &mut *buffer, RecvFlags::empty())?;
        let Place { flow, offset } = *place;
        content::compare_at(&buffer[..count], flow, offset).map_err(|wrong| {
            self.wrong = Some(wrong.on_stream(flow, offset));
            Errno::BADMSG
        })?;
        place.offset += count as u64;
        Ok(count)
    }

    fn is_short(&self, moved: usize, _: u64) -> bool {
        moved < self.buffer.payload().len()
    }

    fn fault(&mut self) -> Option<TrafficError> {
        self.wrong.take()
    }
}
