//! One connection of the client, and the state of the server's answer.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use linerate_model::workload::TrialSpec;
use rustix::io::Errno;
use rustix::net::{SendFlags, connect, send, sockopt};

use crate::TrafficError;
use crate::http::parse::response::Reader;
use crate::tcp::{marks, socket};
use crate::waiting::prepare_socket;

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is none: it waits to be opened (again).
    Closed,
    Connecting,
    /// No request is in flight.
    Idle,
    /// A request is in flight, with this much of it sent.
    Asking {
        sent: usize,
    },
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Option<OwnedFd>,
    pub(super) state: State,
    pub(super) reader: Reader,
    /// Whether it has brought an answer since it was opened.
    pub(super) has_answered: bool,
    /// When the request in flight should have begun, since the start.
    pub(super) intended_ns: u64,
    /// When it did.
    pub(super) sent_ns: u64,
    /// Ticks since the last request or response.
    pub(super) silent_ticks: u32,
    /// In open loop, the number of its next request.
    pub(super) next: u64,
}

impl Connection {
    pub(super) fn new(next: u64) -> Self {
        Self {
            socket: None,
            state: State::Closed,
            reader: Reader::default(),
            has_answered: false,
            intended_ns: 0,
            sent_ns: 0,
            silent_ticks: 0,
            next,
        }
    }

    /// Begins to connect. Whatever the network answers comes as an event on the socket.
    pub(super) fn open(
        &mut self,
        spec: &TrialSpec,
        address: SocketAddr,
    ) -> Result<&OwnedFd, OpenError> {
        let socket = socket::new(spec, address).map_err(OpenError::Own)?;
        marks::set(&spec.marks, &socket).map_err(OpenError::Own)?;
        let prepared = sockopt::set_tcp_nodelay(&socket, true)
            .map_err(|errno| TrafficError::of_errno("prepare a connection", errno))
            .and_then(|()| prepare_socket(&socket, spec.waiting));
        prepared.map_err(OpenError::Own)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(OpenError::Network(errno)),
        }
        self.state = State::Connecting;
        self.has_answered = false;
        self.silent_ticks = 0;
        self.reader = Reader::default();
        Ok(self.socket.insert(socket))
    }

    /// Whether the connection is established; an error if it failed.
    pub(super) fn is_open(&self) -> Result<bool, Errno> {
        let Some(socket) = &self.socket else {
            return Ok(false);
        };
        sockopt::socket_error(socket)??;
        Ok(true)
    }

    /// Sends what is left of `request`; whether all of it is out.
    pub(super) fn ask(&mut self, request: &[u8]) -> Result<bool, Errno> {
        let (Some(socket), State::Asking { sent }) = (&self.socket, self.state) else {
            return Ok(true);
        };
        match send(socket, &request[sent..], SendFlags::NOSIGNAL) {
            Ok(count) => {
                let sent = sent + count;
                self.state = State::Asking { sent };
                Ok(sent == request.len())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Closes it.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.state = State::Closed;
    }
}

/// Why a connection could not be begun.
#[derive(Debug)]
pub(super) enum OpenError {
    /// This end cannot.
    Own(TrafficError),
    /// An error of the network or the other end.
    Network(Errno),
}
