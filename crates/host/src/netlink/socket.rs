//! One netlink socket: a question out, its answers in. It stays in the network namespace in which it
//! was opened, whatever namespace its user's thread moves to later.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};

use super::error::Failure;
use super::message::{
    ACK, DONE, DUMP, DUMP_INTERRUPTED, ERROR, OVERRUN, REQUEST, Request, parse_messages,
    parse_outcome,
};
#[cfg(any(test, feature = "fuzz"))]
use super::script::Script;
use super::sys;

/// How often a dump is asked for before a table counts as never holding still.
const DUMP_TRIES: u32 = 64;

/// The kernel works a request off inside `send` and has its answer ready before that returns, so
/// this only keeps a kernel that loses an answer from holding us for ever.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// What the kernel fills at most per datagram of a dump (32 KiB), twice.
const DATAGRAM_BYTES: usize = 64 << 10;

/// An answer: a message's type and what follows its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) kind: u16,
    pub(super) body: Vec<u8>,
}

/// An open socket.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
    /// What answers in the kernel's place.
    #[cfg(any(test, feature = "fuzz"))]
    script: Option<Script>,
}

impl Connection {
    /// A socket for `protocol` in the network namespace of this thread.
    pub(super) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        // Connected to the kernel (port 0), it takes no message from another process.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME_MAX))?;
        // The kernel's words instead of a bare number, without the request's payload before them. A
        // kernel before 4.12 has none, and a number is enough to go on with.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            match sys::switch_on(socket.as_fd(), option) {
                Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
                switched => switched?,
            }
        }
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; DATAGRAM_BYTES],
            #[cfg(any(test, feature = "fuzz"))]
            script: None,
        })
    }

    /// One to which `script` answers.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn scripted(script: Script) -> io::Result<Self> {
        Ok(Self {
            socket: std::fs::File::open("/dev/null")?.into(),
            sequence: 0,
            buffer: Vec::new(),
            script: Some(script),
        })
    }

    /// Asks for one thing, or for one thing to be done; the answers that came before the
    /// acknowledgement.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Vec<Answer>, Failure> {
        let (answers, _) = self.exchange(request, REQUEST | ACK)?;
        Ok(answers)
    }

    /// Asks for everything there is, again when it changed meanwhile.
    pub(super) fn dump(&mut self, request: &Request) -> Result<Vec<Answer>, Failure> {
        for _ in 0..DUMP_TRIES {
            let (answers, interrupted) = self.exchange(request, REQUEST | DUMP)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(Failure::Unsteady)
    }

    fn exchange(&mut self, request: &Request, flags: u16) -> Result<(Vec<Answer>, bool), Failure> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.to_bytes(flags, self.sequence)?;
        #[cfg(any(test, feature = "fuzz"))]
        if let Some(script) = &mut self.script {
            return Ok((script.answers()?, false));
        }
        let sent = rustix::io::retry_on_intr(|| send(&self.socket, &bytes, SendFlags::empty()))?;
        if sent != bytes.len() {
            return Err(Failure::Malformed(
                "the kernel took only part of the request",
            ));
        }
        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let length = self.receive()?;
            for message in parse_messages(&self.buffer[..length])? {
                if message.sequence != self.sequence {
                    continue; // the rest of an exchange that was given up
                }
                interrupted |= message.flags & DUMP_INTERRUPTED != 0;
                match message.kind {
                    ERROR | DONE => {
                        return parse_outcome(&message).map(|()| (answers, interrupted));
                    }
                    OVERRUN => return Err(Failure::Malformed("part of it was lost")),
                    kind => answers.push(Answer {
                        kind,
                        body: message.body.to_vec(),
                    }),
                }
            }
        }
    }

    /// Receives one datagram whole: its length in the buffer, which grows when it must.
    fn receive(&mut self) -> Result<usize, Failure> {
        let look = RecvFlags::PEEK | RecvFlags::TRUNC;
        loop {
            let buffer = self.buffer.as_mut_slice();
            let (_, length) = rustix::io::retry_on_intr(|| recv(&self.socket, &mut *buffer, look))?;
            if length <= self.buffer.len() {
                break;
            }
            self.buffer.resize(length, 0);
        }
        let buffer = self.buffer.as_mut_slice();
        let (_, length) =
            rustix::io::retry_on_intr(|| recv(&self.socket, &mut *buffer, RecvFlags::TRUNC))?;
        if length > self.buffer.len() {
            return Err(Failure::Malformed("a datagram was cut off"));
        }
        Ok(length)
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
