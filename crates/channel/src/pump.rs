//! An encrypted connection, and passing its frames on to the standard streams of a process.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustls::Connection;

use crate::frame::{Decoder, Frame, Kind, PAYLOAD_BYTES_MAX, encode};

/// With this much to send, nothing more is read from the process: a slow peer holds it up, and fills no memory.
const OUTGOING_MAX: usize = 64 << 10;
/// With this much to pass to the process, nothing more is read from the peer.
const INCOMING_MAX: usize = 256 << 10;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// The other end closed it.
    Closed,
    /// It broke, or the other end sent what is no frame.
    Broken(String),
}

/// An encrypted connection whose calls do not block.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) tls: Connection,
    pub(crate) socket: TcpStream,
    decoder: Decoder,
    /// Frames that are not encrypted yet.
    outgoing: Vec<u8>,
    is_writable: bool,
}

impl Link {
    pub(crate) fn new(tls: impl Into<Connection>, socket: TcpStream) -> Self {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(OUTGOING_MAX));
        Self {
            tls,
            socket,
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            is_writable: true,
        }
    }

    /// Queues a frame.
    pub(crate) fn queue(&mut self, kind: Kind, payload: &[u8]) {
        if !self.is_writable {
            return;
        }
        encode(kind, payload, &mut self.outgoing);
    }

    pub(crate) fn has_to_write(&self) -> bool {
        self.is_writable && (!self.outgoing.is_empty() || self.tls.wants_write())
    }

    /// Nothing more can be sent; the other end may still have something to say.
    fn stop_writing(&mut self) {
        self.is_writable = false;
        self.outgoing.clear();
    }

    /// Sends what the connection takes now.
    pub(crate) fn write_some(&mut self) -> Result<(), LinkEnd> {
        while self.is_writable {
            if !self.outgoing.is_empty() && !self.tls.is_handshaking() {
                let taken = self.tls.writer().write(&self.outgoing).map_err(broken)?;
                self.outgoing.drain(..taken);
            }
            if !self.tls.wants_write() {
                return Ok(());
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Takes bytes that were read from the connection elsewhere.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), LinkEnd> {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).map_err(broken)?;
            self.decrypt()?;
        }
        Ok(())
    }

    /// Reads what has arrived.
    pub(crate) fn read_some(&mut self) -> Result<(), LinkEnd> {
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => Err(LinkEnd::Closed),
            Ok(_) => self.decrypt(),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(broken(error)),
        }
    }

    fn decrypt(&mut self) -> Result<(), LinkEnd> {
        if let Err(error) = self.tls.process_new_packets() {
            // The alert that says why; whether it arrives changes nothing here.
            let _ = self.tls.write_tls(&mut self.socket);
            return Err(LinkEnd::Broken(error.to_string()));
        }
        let mut plain = [0; 4096];
        loop {
            match self.tls.reader().read(&mut plain) {
                // The closing alert; an end without it is an error below.
                Ok(0) => return Err(LinkEnd::Closed),
                Ok(count) => self.decoder.push(&plain[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(broken(error)),
            }
        }
    }

    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, LinkEnd> {
        let frame = self.decoder.next_frame();
        frame.map_err(|error| LinkEnd::Broken(error.to_string()))
    }

    /// Waits for a frame; `None` when there is none until `deadline`.
    pub(crate) fn await_frame(&mut self, deadline: Instant) -> Result<Option<Frame>, LinkEnd> {
        loop {
            self.write_some()?;
            if let Some(frame) = self.next_frame()? {
                return Ok(Some(frame));
            }
            if !self.wait(deadline)? {
                return Ok(None);
            }
            // A frame may come together with the end.
            let read = self.read_some();
            if let Some(frame) = self.next_frame()? {
                return Ok(Some(frame));
            }
            read?;
        }
    }

    /// Sends everything, and the closing alert; gives up at `deadline`.
    pub(crate) fn finish(&mut self, deadline: Instant) {
        let mut is_closing = false;
        loop {
            if self.outgoing.is_empty() && !is_closing {
                self.tls.send_close_notify();
                is_closing = true;
            }
            let is_over = self.write_some().is_err() || !self.is_writable;
            if is_over || (is_closing && !self.tls.wants_write()) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else {
                return;
            };
            let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
            if matches!(poll(&mut fds, Some(&left)), Ok(0)) {
                return;
            }
        }
    }

    /// Waits until the connection can go on; false at `deadline`.
    fn wait(&self, deadline: Instant) -> Result<bool, LinkEnd> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec::try_from(left)
            .map_err(io::Error::other)
            .map_err(broken)?;
        let mut fds = [PollFd::new(&self.socket, self.interest(true))];
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(broken(errno)),
        }
    }

    pub(crate) fn interest(&self, reads: bool) -> PollFlags {
        let read = if reads {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let write = if self.has_to_write() {
            PollFlags::OUT
        } else {
            PollFlags::empty()
        };
        read | write
    }
}

fn broken(error: impl Into<io::Error>) -> LinkEnd {
    let error = error.into();
    // The other end closed it without reading all.
    if error.kind() == io::ErrorKind::ConnectionReset {
        return LinkEnd::Closed;
    }
    LinkEnd::Broken(error.to_string())
}

/// A stream of the process that is read.
#[derive(Debug)]
pub(crate) struct Source {
    file: Option<OwnedFd>,
    kind: Kind,
    /// The frame that its end becomes.
    end: Option<Kind>,
}

/// A stream of the process that is written to.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Option<OwnedFd>,
    kind: Kind,
    /// The frame that ends it.
    end: Option<Kind>,
    waiting: Vec<u8>,
    is_ending: bool,
}

impl Source {
    pub(crate) fn new(file: OwnedFd, kind: Kind, end: Option<Kind>) -> io::Result<Self> {
        never_blocks(&file)?;
        Ok(Self {
            file: Some(file),
            kind,
            end,
        })
    }

    fn read_into(&mut self, link: &mut Link) {
        let mut buffer = [0; PAYLOAD_BYTES_MAX];
        let Some(file) = &self.file else { return };
        match rustix::io::read(file, &mut buffer) {
            Ok(count) if count > 0 => link.queue(self.kind, &buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                self.file = None;
                if let Some(end) = self.end {
                    link.queue(end, &[]);
                }
            }
        }
    }
}

impl Sink {
    pub(crate) fn new(file: OwnedFd, kind: Kind, end: Option<Kind>) -> io::Result<Self> {
        never_blocks(&file)?;
        Ok(Self {
            file: Some(file),
            kind,
            end,
            waiting: Vec::new(),
            is_ending: false,
        })
    }

    fn write_some(&mut self) {
        while let Some(file) = &self.file {
            if self.waiting.is_empty() {
                if self.is_ending {
                    self.file = None;
                }
                return;
            }
            match rustix::io::write(file, &self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // The process is gone: what it would have read is of no use.
                Err(_) => self.file = None,
            }
        }
        self.waiting.clear();
    }
}

/// The description is shared with nobody else: pipes and sockets of our own child or parent.
fn never_blocks(file: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags | OFlags::NONBLOCK)?)
}

/// How passing frames on ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The process at the other end has ended with this exit code.
    Exit(u8),
    /// The process here has closed all its output.
    Drained,
}

/// Passes bytes between a connection and the streams of a process, until one of them ends.
pub(crate) fn pump(
    link: &mut Link,
    sources: &mut [Source],
    sinks: &mut [Sink],
) -> Result<Passed, LinkEnd> {
    let mut exit = None;
    let mut unwritable = None;
    loop {
        // What the other end sent before it closed still counts: a failure to write is no end of reading.
        if let Err(end) = link.write_some() {
            link.stop_writing();
            unwritable = unwritable.or(Some(end));
        }
        while let Some(frame) = link.next_frame()? {
            exit = exit.or(deliver(&frame, sinks)?);
        }
        for sink in &mut *sinks {
            sink.write_some();
        }
        let is_written = sinks.iter().all(|sink| sink.waiting.is_empty());
        if let (Some(code), true) = (exit, is_written) {
            return Ok(Passed::Exit(code));
        }
        let is_source = !sources.is_empty() && sources.iter().all(|source| source.end.is_none());
        if is_source && sources.iter().all(|source| source.file.is_none()) {
            return Ok(Passed::Drained);
        }
        let (is_readable, readable) = wait(link, sources, sinks, exit.is_none()).map_err(broken)?;
        if is_readable {
            let read = link.read_some();
            if read.is_err() {
                while let Some(frame) = link.next_frame()? {
                    exit = exit.or(deliver(&frame, sinks)?);
                }
                if exit.is_none() {
                    sinks.iter_mut().for_each(Sink::write_some);
                    // The first failure is the cause.
                    return Err(unwritable.unwrap_or(read.err().unwrap_or(LinkEnd::Closed)));
                }
            }
        }
        for (source, is_readable) in sources.iter_mut().zip(readable) {
            if is_readable {
                source.read_into(link);
            }
        }
    }
}

/// Hands a frame to its stream; the exit code, if it is that.
fn deliver(frame: &Frame, sinks: &mut [Sink]) -> Result<Option<u8>, LinkEnd> {
    if let (Kind::Exit, [code]) = (frame.kind, &frame.payload[..]) {
        return Ok(Some(*code));
    }
    for sink in sinks {
        if sink.end == Some(frame.kind) {
            sink.is_ending = true;
            return Ok(None);
        }
        if sink.kind == frame.kind {
            if sink.file.is_some() && !sink.is_ending {
                sink.waiting.extend_from_slice(&frame.payload);
            }
            return Ok(None);
        }
    }
    Err(LinkEnd::Broken(format!(
        "unexpected frame {:?}",
        frame.kind
    )))
}

/// Waits for anything to do; whether the connection, and which sources, have something to read.
fn wait(
    link: &Link,
    sources: &[Source],
    sinks: &[Sink],
    reads: bool,
) -> rustix::io::Result<(bool, Vec<bool>)> {
    let waiting: usize = sinks.iter().map(|sink| sink.waiting.len()).sum();
    let interest = link.interest(reads && waiting < INCOMING_MAX);
    let mut fds = vec![PollFd::new(&link.socket, interest)];
    let takes = link.outgoing.len() < OUTGOING_MAX;
    let polled: Vec<bool> = (sources.iter())
        .map(|source| takes && source.file.is_some())
        .collect();
    for (source, is_polled) in sources.iter().zip(&polled) {
        if let (Some(file), true) = (&source.file, is_polled) {
            fds.push(PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN));
        }
    }
    for sink in sinks.iter().filter(|sink| !sink.waiting.is_empty()) {
        if let Some(file) = &sink.file {
            fds.push(PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT));
        }
    }
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    let mut seen = fds.iter().map(|fd| !fd.revents().is_empty());
    let is_readable = seen.next().unwrap_or(false);
    let readable = (polled.into_iter())
        .map(|is_polled| is_polled && seen.next().unwrap_or(false))
        .collect();
    Ok((is_readable, readable))
}
