//! Payload that crosses into and out of the kernel without a copy
//! (Documentation/networking/msg_zerocopy.rst, tcp(7), vmsplice(2)).

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::{last_errno, set_option};

/// `SO_EE_ORIGIN_ZEROCOPY` (include/uapi/linux/errqueue.h).
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED`.
const CODE_COPIED: u8 = 1;

/// One notification of the error queue about zero-copy sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SendsHeard {
    /// How many are done with: the kernel joins those that stand side by side.
    pub(crate) sends: u32,
    /// Whether it copied them all the same.
    pub(crate) copied: bool,
}

/// Allows `MSG_ZEROCOPY` on a socket (Linux 4.14).
pub(crate) fn allow_zerocopy(socket: impl AsFd) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1u32)
}

/// Sends without a copy if the kernel can. The pages of `payload` are the kernel's to read until its
/// notification, also after this call: memory that is never written again.
pub(crate) fn send_zerocopy(socket: impl AsFd, payload: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel only reads `payload`, and holds its pages itself for as long as it needs them; the
    // descriptor is borrowed for the whole call.
    let sent = unsafe {
        libc::send(
            socket.as_fd().as_raw_fd(),
            payload.as_ptr().cast(),
            payload.len(),
            libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| last_errno())
}

/// Space for one control message with an extended error and the address of its origin.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Takes the next notification off the socket's error queue; it never blocks, and is `AGAIN` when the
/// queue is empty.
pub(crate) fn next_notification(socket: impl AsFd) -> Result<SendsHeard, Errno> {
    let mut control = Control([0; 128]);
    // SAFETY: all-zero is a valid msghdr: no name, no data, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the kernel writes at most `msg_controllen` bytes of control and the header itself, both of
    // which live for the whole call; the descriptor is borrowed.
    let result = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE,
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    // SAFETY: `message` is as the kernel left it, and its control is still there.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok(SendsHeard::default());
    }
    // SAFETY: the kernel writes whole control messages: the header is within the control.
    let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
    if !matches!(
        (level, kind),
        (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
    ) {
        return Ok(SendsHeard::default());
    }
    // SAFETY: the data of a message of this kind begins with a whole sock_extended_err, which may stand at
    // any address; any bit pattern is a valid one.
    let error: libc::sock_extended_err =
        unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
    if error.ee_origin != ORIGIN_ZEROCOPY {
        return Ok(SendsHeard::default());
    }
    Ok(SendsHeard {
        // The range of numbers is inclusive, and wraps.
        sends: error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1),
        copied: error.ee_code & CODE_COPIED != 0,
    })
}

/// Blocks the signal that sendfile(2) and splice(2) raise on a connection that is shut down (they have no
/// `MSG_NOSIGNAL`) in the calling thread. It stays pending and ends with the thread.
pub(crate) fn block_sigpipe() {
    // SAFETY: the set lives on the stack and is emptied before it is used; the calls cannot fail with a
    // valid signal number, and change this thread's mask only.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Puts the pages of `buffer` into a pipe without a copy, as many as fit. They must not be
/// written while anybody may read them.
pub(crate) fn lend_pages(pipe: impl AsFd, buffer: &[u8]) -> Result<usize, Errno> {
    let piece = libc::iovec {
        iov_base: buffer.as_ptr().cast_mut().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: without SPLICE_F_GIFT the kernel only reads the pages, and holds them itself for as long as
    // they are in the pipe or in flight; the vector lives for the whole call.
    let moved = unsafe {
        libc::vmsplice(
            pipe.as_fd().as_raw_fd(),
            &raw const piece,
            1,
            libc::SPLICE_F_NONBLOCK,
        )
    };
    usize::try_from(moved).map_err(|_| last_errno())
}

/// Addresses into which the kernel maps whole pages of received payload (`TCP_ZEROCOPY_RECEIVE`, Linux
/// 4.18): one window serves all sockets of a thread, in turn. Nothing reads the payload.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    start: *mut libc::c_void,
    length: usize,
}

// SAFETY: the window is a range of addresses that this value alone owns; any thread may use or unmap it.
unsafe impl Send for ReceiveWindow {}

/// The result of one receive through a [`ReceiveWindow`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Bytes that were mapped.
    pub(crate) whole_pages: usize,
    /// Bytes that were copied with them, because they were less than a page.
    pub(crate) copied: usize,
    /// Bytes that come next and cannot be mapped: to be read with a copy.
    pub(crate) unmappable: usize,
}

/// `struct tcp_zerocopy_receive` (include/uapi/linux/tcp.h). Older kernels take the shorter forms of it and
/// leave the rest alone.
#[repr(C)]
#[derive(Default)]
struct ZerocopyReceive {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
    copybuf_address: u64,
    copybuf_len: i32,
    flags: u32,
    msg_control: u64,
    msg_controllen: u64,
    msg_flags: u32,
    reserved: u32,
}

const TCP_ZEROCOPY_RECEIVE: libc::c_int = 35;

impl ReceiveWindow {
    /// `length` bytes (whole pages) for sockets like `socket`.
    pub(crate) fn new(socket: impl AsFd, length: usize) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                socket.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, length })
    }

    /// Has the kernel map what waits in `socket`, in place of what was mapped before; `rest` takes what
    /// does not fill a page.
    pub(crate) fn receive(&self, socket: impl AsFd, rest: &mut [u8]) -> Result<Mapped, Errno> {
        let mut asked = ZerocopyReceive {
            address: self.start.addr() as u64,
            length: u32::try_from(self.length).unwrap_or(u32::MAX),
            copybuf_address: rest.as_mut_ptr().addr() as u64,
            copybuf_len: i32::try_from(rest.len()).unwrap_or(i32::MAX),
            ..ZerocopyReceive::default()
        };
        // The kernel writes through the address.
        let _ = rest.as_mut_ptr().expose_provenance();
        let mut length =
            libc::socklen_t::try_from(size_of::<ZerocopyReceive>()).map_err(|_| Errno::INVAL)?;
        // SAFETY: the window is ours and read by nobody, so its pages may be replaced; the kernel writes at
        // most `copybuf_len` bytes to `rest`, which is borrowed, and `length` bytes to the structure.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                TCP_ZEROCOPY_RECEIVE,
                (&raw mut asked).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(last_errno());
        }
        if asked.err != 0 {
            return Err(Errno::from_raw_os_error(asked.err.abs()));
        }
        Ok(Mapped {
            whole_pages: asked.length as usize,
            copied: usize::try_from(asked.copybuf_len).unwrap_or(0),
            unmappable: asked.recv_skip_hint as usize,
        })
    }
}

impl Drop for ReceiveWindow {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing borrows it.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
