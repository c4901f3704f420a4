//! System calls without a safe wrapper in `rustix`: netlink socket options (`netlink(7)`, "Socket options") and
//! ethtool's ioctl (`netdevice(7)`), with the memory that the kernel writes to.
#![allow(
    unsafe_code,
    reason = "netlink socket options and SIOCETHTOOL have no safe wrapper in rustix"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use linerate_model::ids::NicName;

/// Turns on one of the options `NETLINK_*` of level `SOL_NETLINK`.
pub(super) fn switch_on(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).expect("an int is 4 bytes");
    // SAFETY: the descriptor is open for the length of the call, and the pointer and the length
    // describe `on`, which lives until the call returns and is only read.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Memory for ethtool's ioctls, followed by a guard page. For lists the kernel determines the length again and writes
/// that much, whatever size it was given; a list that grew meanwhile then fails with EFAULT instead of overwriting
/// other memory.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    room: usize,
    whole: usize,
}

// SAFETY: the mapping is this value's alone, and is reached only through its borrows.
unsafe impl Send for Memory {}

impl Memory {
    /// Zeroed memory of at least `room` bytes; pages are allocated once they are touched.
    pub(super) fn new(room: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let room = room.next_multiple_of(page);
        let whole = room + page;
        // SAFETY: a new private mapping wherever the kernel likes touches no memory that is in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { start, room, whole };
        // SAFETY: the range is the beginning of the mapping just made.
        let opened = unsafe {
            libc::mprotect(
                memory.start.as_ptr().cast(),
                room,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if opened == 0 {
            Ok(memory)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `room` bytes from `start` are mapped readable and initialised (zero, or what was
        // written since) for as long as `self` lives, and the borrow keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.room) }
    }

    /// The bytes, mutable.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and writable; `&mut self` makes this the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.room) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping that `new` made, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.whole) };
    }
}

/// `SIOCETHTOOL`: the kernel reads the command at the start of `memory` and writes its response there.
pub(super) fn ethtool(
    socket: BorrowedFd<'_>,
    nic: &NicName,
    memory: &mut Memory,
) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data, for which zero is a value of every field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = nic.as_str().as_bytes();
    // A name that fills the field would have no NUL.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_data = memory.start.as_ptr().cast();
    // SAFETY: the descriptor is open for the length of the call; `request` lives until it returns; what
    // `ifru_data` points to is mapped writable, borrowed for us alone, and followed by a page that may
    // not be written, at which the kernel stops with EFAULT.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
