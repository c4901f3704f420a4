//! Many datagrams in one system call: sendmmsg(2) and recvmmsg(2), with the segment size from
//! `UDP_GRO` (udp(7)).

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::{last_errno, set_option};

/// Maximum messages per call: the kernel's own limit is `UIO_MAXIOV`, 1024.
pub(crate) const MESSAGES_MAX: usize = 64;

/// Space for the two expected control messages, `UDP_GRO` with its number and `SCM_TIMESTAMPNS` with its time.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Control([u8; 64]);

/// The tables that the two calls need, allocated once. They hold addresses only while a call runs.
pub(crate) struct Messages {
    headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
    controls: Vec<Control>,
}

/// What one message of a receive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its bytes, from the start of its place on.
    pub(crate) length: usize,
    /// The size of each datagram in it but the last, which may be shorter.
    pub(crate) segment: usize,
}

impl Messages {
    /// Tables for up to [`MESSAGES_MAX`] messages.
    pub(crate) fn new() -> Self {
        // SAFETY: all zeros is a valid mmsghdr: no name, no parts, no control message, no flags.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let part = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            headers: vec![header; MESSAGES_MAX],
            parts: vec![part; MESSAGES_MAX],
            controls: vec![Control([0; 64]); MESSAGES_MAX],
        }
    }

    /// Sends `data` in messages of `stride` bytes, the last one perhaps shorter, at most
    /// [`MESSAGES_MAX`] of them, and returns how many the kernel took. `waits` when the socket's buffer is
    /// full.
    pub(crate) fn send(
        &mut self,
        socket: impl AsFd,
        data: &[u8],
        stride: usize,
        waits: bool,
    ) -> Result<usize, Errno> {
        let mut count = 0;
        let tables = self.headers.iter_mut().zip(&mut self.parts);
        for ((header, part), message) in tables.zip(data.chunks(stride)) {
            // The kernel only reads what it sends.
            part.iov_base = message.as_ptr().cast_mut().cast();
            part.iov_len = message.len();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = std::ptr::null_mut();
            header.msg_hdr.msg_controllen = 0;
            count += 1;
        }
        let flags = if waits { 0 } else { libc::MSG_DONTWAIT } | libc::MSG_NOSIGNAL;
        // SAFETY: the first `count` headers were filled just now; each points to one part, which
        // describes a slice of `data`; table and data live for the whole call, and the descriptor is
        // borrowed. The kernel writes nothing but `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                flags as _,
            )
        };
        usize::try_from(sent).map_err(|_| last_errno())
    }

    /// Receives messages into places of `stride` bytes of `into`, as many as are there and have a place,
    /// and returns their number. `waits` for the first one, up to the socket's timeout.
    pub(crate) fn receive(
        &mut self,
        socket: impl AsFd,
        into: &mut [u8],
        stride: usize,
        waits: bool,
    ) -> Result<usize, Errno> {
        let mut count = 0;
        let tables = self.headers.iter_mut().zip(&mut self.parts);
        let tables = tables.zip(&mut self.controls);
        for (((header, part), control), place) in tables.zip(into.chunks_exact_mut(stride)) {
            part.iov_base = place.as_mut_ptr().cast();
            part.iov_len = place.len();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = (&raw mut *control).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
            count += 1;
        }
        let flags = if waits {
            libc::MSG_WAITFORONE
        } else {
            libc::MSG_DONTWAIT
        };
        // SAFETY: the first `count` headers were filled just now; each points to one part, which
        // describes an exclusive slice of `into`, and to its own control buffer of the stated size; all of
        // them live for the whole call, and the descriptor is borrowed. No time-out is passed.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| last_errno())
    }

    /// When the kernel received message `index` of the last receive, in nanoseconds of `CLOCK_REALTIME`; none unless the
    /// socket asks for it ([`receive_stamps`]).
    pub(crate) fn stamp(&self, index: usize) -> Option<u64> {
        let header = &self.headers[index].msg_hdr;
        let control = control_message(header, (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS))?;
        // SAFETY: the data of this control message is one timespec (net/core/scm.c, put_cmsg; socket(7)).
        let time: libc::timespec = unsafe {
            libc::CMSG_DATA(control)
                .cast::<libc::timespec>()
                .read_unaligned()
        };
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let nanoseconds = u64::try_from(time.tv_nsec).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
    }

    /// Message `index` of the last receive, which must be below the number that it returned.
    pub(crate) fn received(&self, index: usize) -> Message {
        let header = &self.headers[index];
        let length = header.msg_len as usize;
        Message {
            length,
            segment: segment_size(&header.msg_hdr).unwrap_or(length),
        }
    }
}

/// Has the kernel stamp what `socket` receives (`SO_TIMESTAMPNS`, socket(7)).
pub(crate) fn receive_stamps(socket: impl AsFd) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1u32)
}

/// Sets the receive buffer of `socket` to `bytes`, or as close to it as this process may: above `net.core.rmem_max`
/// only with `CAP_NET_ADMIN`.
pub(crate) fn force_receive_buffer(socket: impl AsFd, bytes: u64) -> Result<(), Errno> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let socket = socket.as_fd();
    match set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes) {
        Err(Errno::PERM) => set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes),
        other => other,
    }
}

/// The number of the control message `UDP_GRO`, when there is one.
fn segment_size(header: &libc::msghdr) -> Option<usize> {
    let control = control_message(header, (libc::SOL_UDP, libc::UDP_GRO))?;
    // SAFETY: the data of this control message is one int (net/ipv4/udp.c, udp_cmsg_recv).
    let size: libc::c_int = unsafe {
        libc::CMSG_DATA(control)
            .cast::<libc::c_int>()
            .read_unaligned()
    };
    usize::try_from(size).ok().filter(|&size| size > 0)
}

/// The first control message of this level and type, when there is one.
fn control_message(
    header: &libc::msghdr,
    wanted: (libc::c_int, libc::c_int),
) -> Option<*const libc::cmsghdr> {
    // SAFETY: the header is one that recvmmsg(2) filled: its control buffer is in our table, aligned for a
    // control message, and `msg_controllen` is what the kernel wrote into it.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: not null, so it points to a whole control message within the buffer.
        let (level, kind) = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        if (level, kind) == wanted {
            return Some(control);
        }
        // SAFETY: both come from the same filled header.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    None
}

/// What the socket dropped because its receive buffer was full, or for a wrong checksum (`SO_MEMINFO`,
/// Linux 4.12).
pub(crate) fn socket_drops(socket: impl AsFd) -> Result<u32, Errno> {
    /// `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` of include/uapi/linux/sock_diag.h.
    const VARIABLES: usize = 9;
    const DROPS: usize = 8;
    let mut values = [0u32; VARIABLES];
    let mut length = libc::socklen_t::try_from(size_of_val(&values)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `length` bytes into the array and the new length into `length`; any
    // bit pattern is a valid u32, and the descriptor is borrowed for the whole call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    if (length as usize) < size_of_val(&values) {
        return Err(Errno::NOPROTOOPT);
    }
    Ok(values[DROPS])
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let bound = || UdpSocket::bind("127.0.0.1:0").expect("the loopback");
        let (one, other) = (bound(), bound());
        one.connect(other.local_addr().expect("bound"))
            .expect("the loopback");
        (one, other)
    }

    #[test]
    fn messages_arrive_as_they_were_cut() {
        let (sender, receiver) = pair();
        let data: Vec<u8> = (0..250).collect();
        let mut messages = Messages::new();
        assert_eq!(messages.send(&sender, &data, 100, false), Ok(3));
        let mut places = vec![0; 8 * 128];
        assert_eq!(messages.receive(&receiver, &mut places, 128, true), Ok(3));
        for (index, part) in data.chunks(100).enumerate() {
            let length = part.len();
            assert_eq!(
                messages.received(index),
                Message {
                    length,
                    segment: length
                }
            );
            assert_eq!(&places[index * 128..][..length], part);
        }
        assert_eq!(
            messages.receive(&receiver, &mut places, 128, false),
            Err(Errno::AGAIN)
        );
    }

    #[test]
    fn a_full_receive_buffer_is_counted_as_drops() {
        let (sender, receiver) = pair();
        assert_eq!(socket_drops(&receiver), Ok(0));
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 1).expect("the least");
        let data = vec![0; 64 * 1000];
        let sent = Messages::new().send(&sender, &data, 1000, true);
        assert_eq!(sent, Ok(64));
        let drops = socket_drops(&receiver).expect("this kernel tells");
        assert!((1..=64).contains(&drops), "{drops}");
    }
}
