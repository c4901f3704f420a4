//! Control messages between the two ends of a flow over its connection when the payload uses another path: a
//! *companion*. All numbers are big endian. The peer has proved the token; its messages are
//! validated all the same.

use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, getpeername, getsockname, recv, send};
use rustix::rand::{GetRandomFlags, getrandom};

use super::Flow;
use super::socket::{Woken, wait};
use crate::{Abort, TrafficError};

/// How long the ends wait for each other's messages before the start.
pub(crate) const WORDS_MAX: Duration = Duration::from_secs(10);

/// The address that `socket` is bound to.
pub(crate) fn local_of(socket: &OwnedFd) -> Result<SocketAddr, TrafficError> {
    let name = getsockname(socket).and_then(SocketAddr::try_from);
    name.map_err(|errno| TrafficError::of_errno("read the address of a connection", errno))
}

/// The address that `socket` is connected to.
pub(crate) fn peer_of(socket: &OwnedFd) -> Result<SocketAddr, TrafficError> {
    let name = getpeername(socket).and_then(|name| name.ok_or(Errno::NOTCONN));
    let name = name.and_then(SocketAddr::try_from);
    name.map_err(|errno| TrafficError::of_errno("read the address of a connection", errno))
}

/// `address` with another port. One that is IPv4 in truth becomes that: the listening end's socket takes
/// both families.
pub(crate) fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => {
            SocketAddrV6::new(*v6.ip(), port, 0, v6.scope_id()).into()
        }
        other => (other.ip().to_canonical(), port).into(),
    }
}

/// An unguessable number.
pub(crate) fn random() -> Result<u64, TrafficError> {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err(TrafficError::of_errno("read a random number", Errno::IO)),
        Err(errno) => Err(TrafficError::of_errno("read a random number", errno)),
    }
}

/// The big-endian number of eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// Sends it on the companion of `flow`.
pub(crate) fn tell(flow: &Flow, words: &[u8]) -> Result<(), TrafficError> {
    // So few bytes fit into an empty send buffer; a connection that does not take them is gone.
    match send(&flow.socket, words, SendFlags::NOSIGNAL) {
        Ok(count) if count == words.len() => Ok(()),
        _ => Err(TrafficError::PeerClosed {
            flow: flow.number,
            after: Duration::ZERO,
        }),
    }
}

/// Waits for the message of the remote end of `flow`, until `deadline`.
pub(crate) fn await_words<const N: usize>(
    flow: &Flow,
    deadline: Instant,
    abort: &Abort,
) -> Result<[u8; N], TrafficError> {
    let mut heard = PartialMessage::<N>::default();
    let mut ready = Vec::new();
    loop {
        match heard.hear(flow) {
            Word::Whole(bytes) => return Ok(bytes),
            Word::Closed => {
                return Err(TrafficError::PeerClosed {
                    flow: flow.number,
                    after: Duration::ZERO,
                });
            }
            Word::Partial => {}
        }
        if Instant::now() >= deadline {
            return Err(TrafficError::StartTimeOut { waited: WORDS_MAX });
        }
        let waited = [(flow.socket.as_fd(), PollFlags::IN)];
        if wait(waited, deadline, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
    }
}

/// Waits for the next message of the remote end of `flow`, as long as the trial has not been ended; `None` when it
/// ended its side instead.
pub(crate) fn next_words<const N: usize>(
    flow: &Flow,
    abort: &Abort,
) -> Result<Option<[u8; N]>, TrafficError> {
    let mut heard = PartialMessage::<N>::default();
    let mut ready = Vec::new();
    loop {
        match heard.hear(flow) {
            Word::Whole(bytes) => return Ok(Some(bytes)),
            Word::Closed => return Ok(None),
            Word::Partial => {}
        }
        // Who watches over the trial ends the connection when it takes too long.
        let until = Instant::now() + WORDS_MAX;
        let waited = [(flow.socket.as_fd(), PollFlags::IN)];
        if wait(waited, until, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
    }
}

/// The received part of a message of `N` bytes.
#[derive(Debug)]
pub(crate) struct PartialMessage<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Default for PartialMessage<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            filled: 0,
        }
    }
}

/// How far a word has come.
pub(crate) enum Word<const N: usize> {
    Partial,
    Whole([u8; N]),
    Closed,
}

impl<const N: usize> PartialMessage<N> {
    /// Reads what is there, and nothing beyond the word: what follows is another's.
    pub(crate) fn hear(&mut self, flow: &Flow) -> Word<N> {
        while self.filled < N {
            let rest = &mut self.bytes[self.filled..];
            match recv(&flow.socket, rest, RecvFlags::DONTWAIT) {
                Ok((count @ 1.., _)) => self.filled += count,
                Err(Errno::AGAIN) => return Word::Partial,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return Word::Closed,
            }
        }
        Word::Whole(self.bytes)
    }
}

/// Checks that a companion on which no data is expected is silent.
pub(crate) fn check_silence(flow: &Flow, after: Duration) -> Result<(), TrafficError> {
    let mut heard = [0];
    match recv(&flow.socket, &mut heard, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Ok((1.., _)) => Err(TrafficError::PeerGarbled { flow: flow.number }),
        Ok(_) | Err(_) => Err(TrafficError::PeerClosed {
            flow: flow.number,
            after,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_in_ipv6_clothes_is_ipv4() {
        let dressed: SocketAddr = "[::ffff:127.0.0.1]:5".parse().expect("an address");
        let plain: SocketAddr = "127.0.0.1:7".parse().expect("an address");
        assert_eq!(with_port(dressed, 7), plain);
        let scoped: SocketAddr = "[fe80::1%3]:5".parse().expect("an address");
        assert_eq!(with_port(scoped, 5), scoped);
    }
}
