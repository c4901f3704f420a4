//! The one system call that `rustix` has no safe form of: the switches of a netlink socket
//! (`netlink(7)`, "Socket options").
#![allow(
    unsafe_code,
    reason = "netlink socket options have no safe wrapper in rustix"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Turns on one of the switches `NETLINK_*` of level `SOL_NETLINK`.
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
