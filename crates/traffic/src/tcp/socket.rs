//! Making data sockets, and waiting on them. Options follow socket(7) and tcp(7); those that shape
//! the handshake (the receive buffer decides the window scale) are set before it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_model::units::Bytes;
use linerate_model::workload::TrialSpec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::connect_error;
use crate::sys::set_option;
use crate::waiting::timespec;
use crate::{Abort, TrafficError};

/// How long the first answer of a port may take: a SYN is retransmitted after 1 and 3 s (tcp(7), RFC 6298), so a path that loses
/// packets has three chances.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(4);
/// How many connections are tried at a time: each takes a descriptor.
const CHECKED_AT_ONCE: usize = 64;

/// A TCP socket for `address` with the buffers and the congestion control of `spec`; its calls do not
/// block yet.
pub(crate) fn new(spec: &TrialSpec, address: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|errno| TrafficError::of_errno("make a socket", errno))?;
    configure(spec, &socket)?;
    Ok(socket)
}

/// Sets the buffers and the congestion control of `spec`. Of a connection that is made already, the window scale and the
/// segment size are negotiated: `TCP_MAXSEG` holds by what the connecting end has requested.
pub(super) fn configure(spec: &TrialSpec, socket: &OwnedFd) -> Result<(), TrafficError> {
    if let Some(size) = spec.socket_buffer_bytes {
        set_buffers(socket, size)?;
    }
    if let Some(name) = &spec.congestion_control {
        set_congestion_control(socket, name)?;
    }
    if let Some(mss) = spec.mss_bytes {
        let mss = u32::try_from(mss.as_u64()).unwrap_or(u32::MAX);
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, mss)
            .map_err(|errno| TrafficError::of_errno("set the segment size", errno))?;
    }
    if let Some(rate) = spec.pacing_bit_per_s {
        set_option(
            socket,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            rate.as_bit_per_s() / 8,
        )
        .map_err(|errno| TrafficError::of_errno("set the pacing rate", errno))?;
    }
    Ok(())
}

/// Sets both buffers, and fails if the kernel grants smaller ones.
pub(crate) fn set_buffers(socket: &OwnedFd, asked: Bytes) -> Result<(), TrafficError> {
    let failed = |errno| TrafficError::of_errno("set the socket buffers", errno);
    let size = usize::try_from(asked.as_u64()).unwrap_or(usize::MAX);
    sockopt::set_socket_send_buffer_size(socket, size).map_err(failed)?;
    sockopt::set_socket_recv_buffer_size(socket, size).map_err(failed)?;
    let given = [
        (
            sockopt::socket_send_buffer_size(socket),
            "net.core.wmem_max",
        ),
        (
            sockopt::socket_recv_buffer_size(socket),
            "net.core.rmem_max",
        ),
    ];
    for (kernel_size, sysctl) in given {
        // The kernel doubles the requested size for its own bookkeeping, and silently limits it to the sysctl:
        // the record of a trial with other buffers than specified would be wrong.
        let given = Bytes::new(kernel_size.map_err(failed)? as u64 / 2);
        if given < asked {
            return Err(TrafficError::SocketBuffer {
                asked,
                given,
                sysctl,
            });
        }
    }
    Ok(())
}

/// Sets the congestion control of a connection.
pub(crate) fn set_congestion_control(socket: &OwnedFd, name: &str) -> Result<(), TrafficError> {
    sockopt::set_tcp_congestion(socket, name).map_err(|errno| match errno {
        Errno::NOENT => TrafficError::CongestionControlMissing {
            name: name.to_owned(),
        },
        Errno::PERM => TrafficError::CongestionControlDenied {
            name: name.to_owned(),
        },
        _ => TrafficError::of_errno("set the congestion control", errno),
    })
}

/// What [`wait`] came back with.
#[allow(
    dead_code,
    reason = "for the few sockets of other workloads' companions"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A descriptor is ready, or the time has come: look.
    Look,
    /// The trial was given up.
    Aborted,
}

/// Waits until one of `waited` is ready, `until` has come, or `abort` is triggered. `ready` holds
/// afterwards, in the same order, whether each is ready. For few sockets: each call checks all.
#[allow(
    dead_code,
    reason = "for the few sockets of other workloads' companions"
)]
pub(crate) fn wait<'fd>(
    waited: impl IntoIterator<Item = (BorrowedFd<'fd>, PollFlags)>,
    until: Instant,
    abort: &'fd Abort,
    ready: &mut Vec<bool>,
) -> Result<Woken, TrafficError> {
    let mut fds = vec![PollFd::from_borrowed_fd(abort.as_fd(), PollFlags::IN)];
    fds.extend(
        waited
            .into_iter()
            .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)),
    );
    let left = timespec(until.saturating_duration_since(Instant::now()));
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(TrafficError::of_errno("wait for connections", errno)),
    }
    // After an interrupted poll the kernel has written nothing: every `revents` is still empty.
    ready.clear();
    ready.extend(fds[1..].iter().map(|fd| !fd.revents().is_empty()));
    if fds[0].revents().is_empty() {
        Ok(Woken::Look)
    } else {
        Ok(Woken::Aborted)
    }
}

/// Connects a TCP socket whose calls do not block; an answer may take `limit`.
pub(crate) fn finish_connect(
    socket: &OwnedFd,
    address: SocketAddr,
    limit: Duration,
    abort: &Abort,
) -> Result<(), TrafficError> {
    let begun = Instant::now();
    begin_connect(socket, address)?;
    await_connect(socket, address, begun, limit, abort)
}

fn begin_connect(socket: &OwnedFd, address: SocketAddr) -> Result<(), TrafficError> {
    match rustix::net::connect(socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        Err(errno) => Err(connect_error(address, errno, Instant::now())),
    }
}

/// Waits for the answer to a connection that was begun then.
fn await_connect(
    socket: &OwnedFd,
    address: SocketAddr,
    begun: Instant,
    limit: Duration,
    abort: &Abort,
) -> Result<(), TrafficError> {
    let until = begun + limit;
    let mut ready = Vec::new();
    loop {
        let woken = wait([(socket.as_fd(), PollFlags::OUT)], until, abort, &mut ready)?;
        if woken == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        if ready.first().copied().unwrap_or(false) {
            break;
        }
        if Instant::now() >= until {
            let waited = begun.elapsed();
            return Err(TrafficError::ConnectTimeOut { address, waited });
        }
    }
    let outcome = sockopt::socket_error(socket)
        .map_err(|errno| TrafficError::of_errno("read a socket's error", errno))?;
    outcome.map_err(|errno| connect_error(address, errno, begun))
}

/// Whether connections to each of `addresses` are answered: a packet filter that drops them is found before a trial, and not
/// by requests that never end.
pub(crate) fn check_reachable(
    spec: &TrialSpec,
    addresses: &[SocketAddr],
    abort: &Abort,
) -> Result<(), TrafficError> {
    let begun = Instant::now();
    for some in addresses.chunks(CHECKED_AT_ONCE) {
        let mut sockets = Vec::with_capacity(some.len());
        for &address in some {
            let socket = new(spec, address)?;
            // Nothing of it stays: no TIME_WAIT, and no connection that the other end would serve.
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
                .map_err(|errno| TrafficError::of_errno("make a socket", errno))?;
            begin_connect(&socket, address)?;
            sockets.push((socket, address));
        }
        for (socket, address) in &sockets {
            await_connect(socket, *address, begun, ANSWERS_WITHIN, abort)?;
        }
    }
    Ok(())
}
