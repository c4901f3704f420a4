//! The control connection: bytes in and out, every one of them with a time limit, and none of them waited
//! for once the test is given up.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socket_with, sockopt,
};

use crate::iperf3_protocol::{ClientTalk, Frame, State, TalkError};
use crate::tcp::socket::{Woken, finish_connect, wait};
use crate::{Abort, TrafficError};

/// How long an answer may take.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// One end of a control connection; its calls never block by themselves.
#[derive(Debug)]
pub(super) struct Line<'a> {
    socket: OwnedFd,
    pub(super) address: SocketAddr,
    abort: &'a Abort,
}

impl<'a> Line<'a> {
    /// A connection that is there.
    pub(super) fn of(socket: OwnedFd, address: SocketAddr, abort: &'a Abort) -> Self {
        // Each word must go at once; without it they only come later.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        Self {
            socket,
            address,
            abort,
        }
    }

    /// A data connection that has not sent its cookie yet.
    pub(super) fn of_stream(socket: OwnedFd, address: SocketAddr, abort: &'a Abort) -> Self {
        Self {
            socket,
            address,
            abort,
        }
    }

    /// Its socket.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Aborts the test.
    pub(super) fn abort(&self) -> &'a Abort {
        self.abort
    }

    /// Connects to a server.
    pub(super) fn connect(address: SocketAddr, abort: &'a Abort) -> Result<Self, TrafficError> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|errno| TrafficError::of_errno("make a socket", errno))?;
        finish_connect(&socket, address, ANSWER_MAX, abort)?;
        Ok(Self::of(socket, address, abort))
    }

    /// An error of the talk on this connection.
    pub(super) fn wrong(&self, source: TalkError) -> TrafficError {
        TrafficError::Iperf3 {
            address: self.address,
            source,
        }
    }

    fn sleep(&self, flags: PollFlags, until: Instant) -> Result<(), TrafficError> {
        let mut ready = Vec::new();
        match wait(
            [(self.socket.as_fd(), flags)],
            until,
            self.abort,
            &mut ready,
        )? {
            Woken::Aborted => Err(TrafficError::Aborted),
            Woken::Look => Ok(()),
        }
    }

    /// Reads `bytes.len()` bytes, and no more.
    pub(super) fn read(
        &self,
        bytes: &mut [u8],
        awaited: &'static str,
        limit: Duration,
    ) -> Result<(), TrafficError> {
        let until = Instant::now() + limit;
        let mut filled = 0;
        while filled < bytes.len() {
            let left = until.saturating_duration_since(Instant::now());
            match self.read_some(&mut bytes[filled..], awaited, left)? {
                0 => return Err(self.wrong(TalkError::Closed { awaited })),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Reads what comes next, at least a byte; of UDP a datagram, which may be empty.
    pub(super) fn read_some(
        &self,
        bytes: &mut [u8],
        awaited: &'static str,
        limit: Duration,
    ) -> Result<usize, TrafficError> {
        let until = Instant::now() + limit;
        loop {
            match recv(&self.socket, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::AGAIN | Errno::INTR) => {
                    if Instant::now() >= until {
                        let waited = limit;
                        return Err(self.wrong(TalkError::Silent { awaited, waited }));
                    }
                    self.sleep(PollFlags::IN, until)?;
                }
                Err(_) => return Err(self.wrong(TalkError::Closed { awaited })),
            }
        }
    }

    /// Reads one byte.
    pub(super) fn read_byte(
        &self,
        awaited: &'static str,
        limit: Duration,
    ) -> Result<u8, TrafficError> {
        let mut byte = [0];
        self.read(&mut byte, awaited, limit)?;
        Ok(byte[0])
    }

    /// Reads JSON behind its length.
    pub(super) fn read_frame(
        &self,
        most: usize,
        awaited: &'static str,
        limit: Duration,
    ) -> Result<Vec<u8>, TrafficError> {
        let until = Instant::now() + limit;
        let mut frame = Frame::new(most);
        let mut piece = Vec::new();
        while frame.wanted() > 0 {
            piece.resize(frame.wanted(), 0);
            let left = until.saturating_duration_since(Instant::now());
            self.read(&mut piece, awaited, left)?;
            frame.push(&piece).map_err(|error| self.wrong(error))?;
        }
        Ok(frame.into_body())
    }

    /// Sends `bytes`.
    pub(super) fn write(
        &self,
        mut bytes: &[u8],
        awaited: &'static str,
    ) -> Result<(), TrafficError> {
        let until = Instant::now() + ANSWER_MAX;
        while !bytes.is_empty() {
            match send(
                &self.socket,
                bytes,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN | Errno::INTR) => {
                    if Instant::now() >= until {
                        let waited = ANSWER_MAX;
                        return Err(self.wrong(TalkError::Silent { awaited, waited }));
                    }
                    self.sleep(PollFlags::OUT, until)?;
                }
                Err(_) => return Err(self.wrong(TalkError::Closed { awaited })),
            }
        }
        Ok(())
    }

    /// Sends the state of the test.
    pub(super) fn say(&self, state: State) -> Result<(), TrafficError> {
        self.write(&[state.byte()], "room in the connection")
    }

    /// Reports the failure of this end, as a server does.
    pub(super) fn say_failed(&self, number: i32) -> Result<(), TrafficError> {
        let mut bytes = [State::ServerError.byte(); 9];
        bytes[1..5].copy_from_slice(&number.to_be_bytes());
        bytes[5..].copy_from_slice(&[0; 4]);
        self.write(&bytes, "room in the connection")
    }

    /// Sends JSON behind its length.
    pub(super) fn write_json(&self, json: &str) -> Result<(), TrafficError> {
        self.write(&Frame::write(json), "room in the connection")
    }

    /// The server's error after [`State::ServerError`].
    pub(super) fn read_failure(&self) -> TrafficError {
        let mut numbers = [0; 8];
        match self.read(&mut numbers, "the number of its failure", ANSWER_MAX) {
            Ok(()) => self.wrong(ClientTalk::failure(numbers)),
            Err(error) => error,
        }
    }

    /// Sends nothing more, and reads what still arrives until the other end closes, for at most a second: with
    /// unread bytes the close would become a reset, and the other end might lose what we sent last.
    pub(super) fn leave(&self) {
        // It fails when the connection is gone.
        let _ = shutdown(&self.socket, Shutdown::Write);
        let until = Instant::now() + Duration::from_secs(1);
        let mut rest = [0; 256];
        loop {
            match recv(&self.socket, &mut rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return,
                Err(Errno::AGAIN | Errno::INTR) => {
                    if Instant::now() >= until || self.sleep(PollFlags::IN, until).is_err() {
                        return;
                    }
                }
                Ok(_) if Instant::now() < until => {}
                _ => return,
            }
        }
    }
}

impl AsFd for Line<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
