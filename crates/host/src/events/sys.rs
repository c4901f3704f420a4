//! Packet sockets (`packet(7)`): opening one with a classic BPF filter, joining link-layer multicast groups, and
//! receiving with the kernel's time stamp (`SO_TIMESTAMPNS`, socket(7)).
#![allow(
    unsafe_code,
    reason = "packet sockets, their filters and time stamps have no safe wrapper in rustix"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The most link-layer address bytes of `struct sockaddr_ll`.
const MAC_BYTES_MAX: usize = 8;
/// The length of the control message's data with a time stamp.
#[expect(clippy::cast_possible_truncation, reason = "16 bytes")]
const STAMP_LENGTH: u32 = size_of::<libc::timespec>() as u32;

/// An instruction of a filter: code, jumps if true and if false, and the constant.
pub(super) type Instruction = (u16, u8, u8, u32);

/// A received packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Received {
    /// Its length in the buffer.
    pub(super) length: usize,
    /// The index of the interface.
    pub(super) interface: u32,
    /// The sender's link-layer address.
    pub(super) mac: Vec<u8>,
    /// Whether this host sent it itself (`PACKET_OUTGOING`).
    pub(super) is_own: bool,
    /// When the kernel received it, by `CLOCK_REALTIME`.
    pub(super) at: Option<Duration>,
}

/// A socket that receives the packets of `protocol` (`ETH_P_*`) from every interface of this thread's network namespace
/// that pass `filter`, without their link-layer headers. Needs CAP_NET_RAW.
pub(super) fn open(protocol: u16, filter: &[Instruction]) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers. Protocol 0 receives nothing before `bind`.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut instructions: Vec<libc::sock_filter> = filter
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `filter` points to `len` instructions, which live until the call returns.
    unsafe { set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)? };
    let on: libc::c_int = 1;
    // SAFETY: an int, which is read only.
    unsafe { set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)? };
    // SAFETY: `sockaddr_ll` is plain data, for which zero is a value of every field.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).expect("17 (socket.h)");
    address.sll_protocol = protocol.to_be();
    // SAFETY: the pointer and the length describe `address`, which is only read.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            length_of(&address),
        )
    };
    if result == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the interface receive frames to the multicast address `group` for as long as the socket is open.
pub(super) fn join(socket: &OwnedFd, interface: u32, group: [u8; 6]) -> io::Result<()> {
    let mut address = [0; MAC_BYTES_MAX];
    address[..group.len()].copy_from_slice(&group);
    let request = libc::packet_mreq {
        mr_ifindex: i32::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?,
        mr_type: u16::try_from(libc::PACKET_MR_MULTICAST).expect("0 (if_packet.h)"),
        mr_alen: 6,
        mr_address: address,
    };
    // SAFETY: a `struct packet_mreq`, which is read only.
    unsafe {
        set(
            socket,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &request,
        )
    }
}

/// How many packets the kernel dropped because the socket's buffer was full, since the last call.
pub(super) fn drops(socket: &OwnedFd) -> io::Result<u32> {
    let mut counts = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = length_of(&counts);
    // SAFETY: the pointers describe `counts` and `length`, which live until the call returns; the kernel writes no more
    // than `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counts).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(counts.tp_drops)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Receives one packet; `WouldBlock` if there is none.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    // SAFETY: both are plain data, for which zero is a value of every field.
    let (mut address, mut header): (libc::sockaddr_ll, libc::msghdr) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // Aligned like `struct cmsghdr`, with room for one time stamp and more.
    let mut control = [0u64; 16];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = length_of(&address);
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    let length = loop {
        // SAFETY: every pointer in `header` describes memory that lives until the call returns, with its length.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
        if let Ok(length) = usize::try_from(length) {
            break length;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let mac = usize::from(address.sll_halen).min(MAC_BYTES_MAX);
    Ok(Received {
        length: length.min(buffer.len()),
        interface: u32::try_from(address.sll_ifindex).unwrap_or(0),
        mac: address.sll_addr[..mac].to_vec(),
        is_own: address.sll_pkttype == libc::PACKET_OUTGOING,
        at: stamp(&header),
    })
}

/// The time stamp among the control messages.
fn stamp(header: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled in `header`, whose control buffer is alive and aligned; the macros step only
    // within it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: a header that the macros return lies completely within the control buffer.
        let message = unsafe { next.read() };
        let is_stamp =
            message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_TIMESTAMPNS;
        // SAFETY: no pointers: the length of a message with a `timespec`.
        let whole = unsafe { libc::CMSG_LEN(STAMP_LENGTH) };
        if is_stamp && message.cmsg_len as usize >= whole as usize {
            // SAFETY: the message is long enough for a `timespec`, which need not be aligned.
            let time: libc::timespec = unsafe {
                libc::CMSG_DATA(next)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            let seconds = u64::try_from(time.tv_sec).ok()?;
            let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
            return Some(Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds.into()));
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    None
}

fn length_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).expect("a structure of some bytes")
}

/// setsockopt(2).
///
/// # Safety
/// `value` is what the kernel expects for the option, and every pointer in it is valid.
unsafe fn set<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which is only read; the rest is the caller's promise.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            length_of(value),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
