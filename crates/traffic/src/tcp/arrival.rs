//! Where the data of a trial arrives at the listening end.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use linerate_model::greeting::GREETING_BYTES;
use linerate_model::ports::PortRange;
use linerate_model::protocol::Token;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, bind, recvmsg, send,
};

use crate::TrafficError;

/// Where the data of a trial may arrive at the listening end.
#[derive(Debug, Clone, Default)]
pub struct Arrival {
    /// The ports that sockets may listen on; `None` is any free one.
    pub ports: Option<PortRange>,
    /// Hands over the trial's connections, which arrive at another port; `None` if the trial listens itself.
    pub handed: Option<Arc<HandedOver>>,
}

/// Connections that another process accepts (`linerate agent --listen`): a socket of sequenced packets (unix(7)) on which this
/// process announces the token of a trial, and receives each connection that presents it, with its greeting.
#[derive(Debug)]
pub struct HandedOver(OwnedFd);

impl HandedOver {
    /// `socket` does not block.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    pub(super) fn announce(&self, token: Token) -> Result<(), TrafficError> {
        let announced = self.tell(1, token).map(|_| ());
        announced.map_err(|errno| {
            TrafficError::of_errno("announce a trial to the listening agent", errno)
        })
    }

    pub(super) fn withdraw(&self, token: Token) {
        // Nobody needs to know when the listener is gone.
        let _ = self.tell(0, token);
    }

    fn tell(&self, word: u8, token: Token) -> rustix::io::Result<usize> {
        send(
            &self.0,
            &[&[word][..], &token.0].concat(),
            SendFlags::NOSIGNAL,
        )
    }

    /// The next connection and its greeting.
    pub(super) fn next(&self) -> Result<(OwnedFd, [u8; GREETING_BYTES]), Errno> {
        let mut greeting = [0; GREETING_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut greeting)],
            &mut control,
            flags,
        )?;
        let socket = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match socket {
            Some(socket) if received.bytes == GREETING_BYTES => Ok((socket, greeting)),
            // The listener is gone; there will be no more.
            _ => Err(Errno::AGAIN),
        }
    }
}

impl AsFd for HandedOver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why nothing could be bound to `address`.
pub(crate) fn taken(address: SocketAddr, ports: Option<PortRange>) -> TrafficError {
    match ports.filter(|_| address.port() == 0) {
        Some(ports) => TrafficError::PortsTaken { ports },
        None => TrafficError::PortInUse { address },
    }
}

/// Binds a socket to `address`; without a port, to a free one of `ports`.
pub(crate) fn bind_within(
    socket: &OwnedFd,
    address: SocketAddr,
    ports: Option<PortRange>,
) -> rustix::io::Result<()> {
    let Some(ports) = ports.filter(|_| address.port() == 0) else {
        return bind(socket, &address);
    };
    let mut last = Errno::ADDRINUSE;
    for port in ports.all() {
        match bind(socket, &SocketAddr::new(address.ip(), port)) {
            Err(Errno::ADDRINUSE) => last = Errno::ADDRINUSE,
            bound => return bound,
        }
    }
    Err(last)
}
