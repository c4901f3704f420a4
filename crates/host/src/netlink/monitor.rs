//! A socket that receives rtnetlink's notifications (`netlink(7)`, multicast groups), and the requests with which a
//! recorder starts: all links, one link, and the route to an address.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

use super::error::Failure;
use super::link::link_header;
use super::message::{OVERRUN, Request, parse_messages};
use super::notification::{
    Notification, ROUTE_HEADER_BYTES, RouteChange, parse, parse_body, route,
};
use super::socket::Connection;

/// The groups `RTNLGRP_LINK`, `_NEIGH`, `_IPV4_IFADDR`, `_IPV4_ROUTE`, `_IPV6_IFADDR`, `_IPV6_ROUTE` and `_NEXTHOP` of
/// `<linux/rtnetlink.h>`, as bits.
const GROUPS: u32 =
    1 | 1 << (3 - 1) | 1 << (5 - 1) | 1 << (7 - 1) | 1 << (9 - 1) | 1 << (11 - 1) | 1 << (32 - 1);

/// Enough for thousands of notifications, if `net.core.rmem_max` permits.
const BUFFER_BYTES: usize = 4 << 20;
/// The kernel's notifications are at most a page or two.
const DATAGRAM_BYTES: usize = 64 << 10;
/// `RTM_F_FIB_MATCH`: the route itself, with all its next hops (Linux 4.13).
const FIB_MATCH: u32 = 0x2000;

/// The result of one reading of the socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Notifications, in order, and how many could not be parsed.
    Changes(Vec<Notification>, usize),
    /// The kernel dropped some: the socket's buffer was full.
    Lost,
    /// Nothing is left for now.
    Nothing,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: OwnedFd,
    buffer: Vec<u8>,
    requests: Connection,
}

impl Monitor {
    /// Receives from now on, in the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            socket,
            buffer: vec![0; DATAGRAM_BYTES],
            requests: Connection::open(None)?,
        })
    }

    /// For poll(2).
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads one datagram.
    pub(crate) fn hear(&mut self) -> io::Result<Heard> {
        let received = rustix::io::retry_on_intr(|| {
            recvfrom(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC)
        });
        let (length, from) = match received {
            Ok((_, length, from)) => (length, from),
            Err(Errno::AGAIN) => return Ok(Heard::Nothing),
            Err(Errno::NOBUFS) => return Ok(Heard::Lost),
            Err(error) => return Err(error.into()),
        };
        // Any process may send to this socket; the kernel's port is 0.
        let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        if from.is_none_or(|from| from.pid() != 0) {
            return Ok(Heard::Changes(Vec::new(), 0));
        }
        let Some(datagram) = self.buffer.get(..length) else {
            return Ok(Heard::Lost);
        };
        Ok(changes(datagram))
    }

    /// The states of all interfaces.
    pub(crate) fn links(&mut self) -> io::Result<Vec<Notification>> {
        let request = Request::new(libc::RTM_GETLINK, &link_header(0, 0, 0));
        let listed = self.requests.dump(&request).and_then(|answers| {
            let all = answers.iter().map(|one| parse_body(one.kind, &one.body));
            all.filter_map(Result::transpose).collect()
        });
        listed.map_err(|failure: Failure| failure.during("list", "network interfaces"))
    }

    /// The state of an interface.
    pub(crate) fn link(&mut self, interface: u32) -> io::Result<Option<Notification>> {
        let request = Request::new(libc::RTM_GETLINK, &link_header(interface, 0, 0));
        let read = self.requests.ask(&request).and_then(|answers| {
            let mut all = answers.iter().map(|one| parse_body(one.kind, &one.body));
            all.find_map(Result::transpose).transpose()
        });
        read.map_err(|failure| failure.during("read", format!("interface {interface}")))
    }

    /// The route to `address`, with all its next hops.
    pub(crate) fn route_to(&mut self, address: IpAddr) -> io::Result<Option<RouteChange>> {
        let (family, bits, bytes) = match address {
            IpAddr::V4(own) => (libc::AF_INET, 32, own.octets().to_vec()),
            IpAddr::V6(own) => (libc::AF_INET6, 128, own.octets().to_vec()),
        };
        let mut header = [0; ROUTE_HEADER_BYTES];
        header[0] = u8::try_from(family).expect("a byte (socket.h)");
        header[1] = bits;
        header[8..].copy_from_slice(&FIB_MATCH.to_ne_bytes());
        let mut request = Request::new(libc::RTM_GETROUTE, &header);
        request.put(libc::RTA_DST, &bytes);
        let read = self.requests.ask(&request).and_then(|answers| {
            let mut all = answers.iter().map(|one| route(&one.body, false));
            all.find_map(Result::transpose).transpose()
        });
        read.map_err(|failure| failure.during("read the route to", address))
    }
}

fn changes(datagram: &[u8]) -> Heard {
    let Ok(messages) = parse_messages(datagram) else {
        return Heard::Changes(Vec::new(), 1);
    };
    let (mut all, mut wrong) = (Vec::new(), 0);
    for message in messages {
        if message.kind == OVERRUN {
            return Heard::Lost;
        }
        match parse(&message) {
            Ok(change) => all.extend(change),
            Err(_) => wrong += 1,
        }
    }
    Heard::Changes(all, wrong)
}

/// Parses `datagram` as notifications, for the fuzz targets.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn parse_notifications(datagram: &[u8]) -> Vec<Notification> {
    match changes(datagram) {
        Heard::Changes(all, _) => all,
        Heard::Lost | Heard::Nothing => Vec::new(),
    }
}
