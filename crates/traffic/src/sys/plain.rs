//! The C library's own socket calls, by their plain names: `rustix` asks the kernel without that library, so a
//! library that is loaded before it (`LD_PRELOAD`, librspreload of rsocket(7)) would never see those. A type of
//! socket with flags in it, `accept4`, epoll and io_uring are not taken over either, so none of them is here.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use linerate_model::known::{Cause, Known};

use super::{TCP_INFO_BYTES_MAX, tcp_info};

/// A stream socket.
#[derive(Debug)]
pub(crate) struct Plain(OwnedFd);

/// An address as the calls want it.
enum Raw {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Raw {
    fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(libc::sockaddr_in {
                sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("2 (socket.h)"),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::sa_family_t::try_from(libc::AF_INET6).expect("10 (socket.h)"),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    fn any(like: SocketAddr) -> Self {
        Self::new(match like {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        })
    }

    fn place(&mut self) -> (*mut libc::sockaddr, libc::socklen_t) {
        let length = |bytes: usize| libc::socklen_t::try_from(bytes).expect("tens of bytes");
        match self {
            Self::V4(v4) => ((&raw mut *v4).cast(), length(size_of_val(v4))),
            Self::V6(v6) => ((&raw mut *v6).cast(), length(size_of_val(v6))),
        }
    }

    fn port(&self) -> u16 {
        u16::from_be(match self {
            Self::V4(v4) => v4.sin_port,
            Self::V6(v6) => v6.sin6_port,
        })
    }
}

fn done(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Again while a signal comes between.
fn amount(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(bytes);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl Plain {
    fn new(like: SocketAddr) -> io::Result<Self> {
        let family = if like.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        // SAFETY: three numbers.
        let number = done(unsafe { libc::socket(family, libc::SOCK_STREAM, 0) })?;
        // SAFETY: the call returned a new descriptor, which nothing else closes.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// One that listens on `address`, and its port.
    pub(crate) fn listen(address: SocketAddr, backlog: i32) -> io::Result<(Self, u16)> {
        let socket = Self::new(address)?;
        let number = socket.0.as_raw_fd();
        let mut raw = Raw::new(address);
        let (place, length) = raw.place();
        // SAFETY: `place` is an address of `length` bytes that lives to the end of this function.
        done(unsafe { libc::bind(number, place, length) })?;
        // SAFETY: two numbers.
        done(unsafe { libc::listen(number, backlog) })?;
        let mut own = Raw::any(address);
        let (place, mut length) = own.place();
        // SAFETY: at most `length` bytes are written to `place`, where there are so many.
        done(unsafe { libc::getsockname(number, place, &raw mut length) })?;
        Ok((socket, own.port()))
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> io::Result<Self> {
        // SAFETY: no address is requested.
        let result = unsafe {
            libc::accept(
                self.0.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        let number = done(result)?;
        // SAFETY: the call returned a new descriptor, which nothing else closes.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// A connection to `address`.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::new(address)?;
        let mut raw = Raw::new(address);
        let (place, length) = raw.place();
        // SAFETY: `place` is an address of `length` bytes that lives to the end of this function.
        done(unsafe { libc::connect(socket.0.as_raw_fd(), place, length) })?;
        Ok(socket)
    }

    /// Sends a part of `bytes`: how many.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let number = self.0.as_raw_fd();
        // SAFETY: at most `bytes.len()` bytes are read from `bytes`.
        amount(|| unsafe {
            libc::send(
                number,
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
            )
        })
    }

    /// Receives into `bytes`: how many, 0 at the end.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let number = self.0.as_raw_fd();
        // SAFETY: at most `bytes.len()` bytes are written to `bytes`.
        amount(|| unsafe { libc::recv(number, bytes.as_mut_ptr().cast(), bytes.len(), 0) })
    }

    /// Shuts down the sending direction.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        // SAFETY: two numbers.
        done(unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_WR) }).map(drop)
    }

    /// Sends small messages at once (`TCP_NODELAY`). A library without Nagle's algorithm may refuse the option; the
    /// kernel's TCP does not.
    pub(crate) fn send_at_once(&self) -> io::Result<()> {
        let on: libc::c_int = 1;
        let length = libc::socklen_t::try_from(size_of_val(&on)).expect("4 bytes");
        // SAFETY: `length` bytes are read from `on`, which lives to the end of this function.
        let result = done(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_NODELAY,
                (&raw const on).cast(),
                length,
            )
        });
        match result {
            Err(error) if self.kernel_bytes().is_some() => Err(error),
            _ => Ok(()),
        }
    }

    /// What the kernel's own TCP carried of it in both directions, as its `struct tcp_info` counts; none if that
    /// does not carry it: nothing else has an account of that kind. A library that keeps an unused kernel socket open
    /// (libvma) has an account of 0 bytes.
    pub(crate) fn kernel_bytes(&self) -> Option<Known<u64>> {
        /// `tcpi_bytes_acked` and `tcpi_bytes_received` (include/uapi/linux/tcp.h, Linux 4.1).
        const COUNTS: [usize; 2] = [120, 128];
        // SAFETY: the descriptor is open as long as `self`.
        let socket = unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) };
        let mut raw = [0; TCP_INFO_BYTES_MAX];
        let known = tcp_info(socket, &mut raw).ok().filter(|known| *known > 0)?;
        let count = |at: usize| {
            let bytes = raw.get(..known)?.get(at..at + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let sum = COUNTS
            .into_iter()
            .map(count)
            .try_fold(0, |sum: u64, part| Some(sum.saturating_add(part?)));
        Some(sum.map_or_else(
            || {
                let why = format!("this tcp_info has {known} bytes and no byte counts");
                Known::unknown(Cause::Absent, "getsockopt(TCP_INFO)", why)
            },
            Known::Value,
        ))
    }
}
