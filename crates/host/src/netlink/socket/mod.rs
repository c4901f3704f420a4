//! One netlink socket: sends a request, receives its responses. It stays in the network namespace in which it was
//! opened, even if its user's thread moves to another.

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

/// The maximum number of attempts at a dump before it counts as unsteady.
const DUMP_TRIES: u32 = 64;

/// The kernel handles a request inside `send` and has its response ready before that returns, so this timeout only
/// applies if a response is lost.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Twice the kernel's maximum datagram size of a dump (32 KiB).
const DATAGRAM_BYTES: usize = 64 << 10;

/// A response: a message's type and what follows its header.
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
    /// A script that answers in the kernel's place.
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
        // Connected to the kernel (port 0), it receives no messages from other processes.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME_MAX))?;
        // Request messages in addition to error numbers, without the request's payload. A kernel before 4.12 has
        // none, and the number is sufficient.
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

    /// One that `script` answers.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn scripted(script: Script) -> io::Result<Self> {
        Ok(Self {
            socket: std::fs::File::open("/dev/null")?.into(),
            sequence: 0,
            buffer: Vec::new(),
            script: Some(script),
        })
    }

    /// Sends a request for one object or operation; returns the responses before the acknowledgement.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Vec<Answer>, Failure> {
        let (answers, _) = self.exchange(request, REQUEST | ACK)?;
        Ok(answers)
    }

    /// Sends a dump request, again if the table changed meanwhile.
    pub(super) fn dump(&mut self, request: &Request) -> Result<Vec<Answer>, Failure> {
        for _ in 0..DUMP_TRIES {
            let (answers, interrupted) = self.exchange(request, REQUEST | DUMP)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(Failure::Unsteady)
    }

    /// Sends `changes` as one transaction between `begin` and `end`, and waits for the acknowledgement of each.
    pub(super) fn batch(
        &mut self,
        begin: &Request,
        changes: &[Request],
        end: &Request,
    ) -> Result<(), Failure> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = begin.to_bytes(REQUEST, first)?;
        for change in changes {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(change.to_bytes(REQUEST | ACK, self.sequence)?);
        }
        bytes.extend(end.to_bytes(REQUEST, self.sequence)?);
        #[cfg(any(test, feature = "fuzz"))]
        if let Some(script) = &mut self.script {
            return script.answers().map(|_| ());
        }
        let sent = rustix::io::retry_on_intr(|| send(&self.socket, &bytes, SendFlags::empty()))?;
        if sent != bytes.len() {
            return Err(Failure::Malformed(
                "the kernel took only part of the request",
            ));
        }
        let mut missing = changes.len();
        while missing > 0 {
            let length = self.receive()?;
            for message in parse_messages(&self.buffer[..length])? {
                let since = message.sequence.wrapping_sub(first);
                if message.kind != ERROR || since as usize >= changes.len() {
                    continue; // the rest of an exchange that was given up
                }
                parse_outcome(&message)?;
                missing = missing.saturating_sub(1);
            }
        }
        Ok(())
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

    /// Receives one complete datagram: its length in the buffer, which grows if necessary.
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
mod tests;
