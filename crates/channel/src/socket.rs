//! The TCP connection below: how it is made, and how a dead one is noticed.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use linerate_model::pairing::HostPort;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::ChannelError;

/// How long all addresses of a name may take to answer.
const CONNECT: Duration = Duration::from_secs(4);
/// Data that is not acknowledged for this long ends the connection (tcp(7), `TCP_USER_TIMEOUT`), and so does silence:
/// what was changed at the far end is rolled back then.
const DEAD_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 2;

/// How many connections may wait to be accepted; the kernel limits it to `net.core.somaxconn`. A trial opens hundreds at once.
const BACKLOG: i32 = 4_096;

/// Listens at an address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Prepares a connection: its calls do not block, small messages are sent at once, a dead peer is noticed.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    let dead = u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, dead)?;
    Ok(())
}

/// Connects to an agent, by the first of its addresses that answers.
pub(crate) fn connect(at: &HostPort) -> Result<TcpStream, ChannelError> {
    let resolve = |source| ChannelError::Resolve {
        host: at.host.clone(),
        source,
    };
    let addresses: Vec<SocketAddr> = (at.host.as_str(), at.port)
        .to_socket_addrs()
        .map_err(resolve)?
        .collect();
    let begun = Instant::now();
    let mut last = resolve(io::Error::other("it has no address"));
    for (index, &address) in addresses.iter().enumerate() {
        let others = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let share = CONNECT.saturating_sub(begun.elapsed()) / others;
        let connected = TcpStream::connect_timeout(&address, share.max(Duration::from_millis(100)))
            .and_then(|socket| prepare(&socket).map(|()| socket));
        last = match connected {
            Ok(socket) => return Ok(socket),
            Err(error) => failed(at, address, begun, error),
        };
    }
    Err(last)
}

fn failed(at: &HostPort, address: SocketAddr, begun: Instant, source: io::Error) -> ChannelError {
    let at = at.clone();
    match source.kind() {
        io::ErrorKind::ConnectionRefused => ChannelError::PortClosed { at, address },
        io::ErrorKind::TimedOut => ChannelError::NoAnswer {
            at,
            address,
            waited: begun.elapsed(),
        },
        _ => ChannelError::Connect {
            at,
            address,
            source,
        },
    }
}
