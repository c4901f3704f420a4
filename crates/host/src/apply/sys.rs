//! The system calls of `apply` that need unsafe code: entering a network namespace, reading its cookie, locking
//! memory, closing inherited descriptors. Sources: setns(2), unshare(2), mount(2), `SO_NETNS_COOKIE` in
//! include/uapi/asm-generic/socket.h (Linux 5.14).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The cookie of this thread's network namespace: unlike its inode, not reused within a boot.
pub(super) fn netns_cookie() -> io::Result<u64> {
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut cookie = 0u64;
    let mut size: libc::socklen_t = 8;
    // SAFETY: `cookie` and `size` live past the call, and `size` is the size of `cookie` in bytes.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    };
    checked(answer)?;
    Ok(cookie)
}

/// Locks the current memory of this process, including its program, so that it is not paged out (mlockall(2)).
pub(super) fn lock_memory() -> io::Result<()> {
    // SAFETY: mlockall takes no pointer.
    checked(unsafe { libc::mlockall(libc::MCL_CURRENT) })
}

/// Closes every descriptor from `first` on (close_range(2), Linux 5.9). Only for a process that has opened none of
/// them itself.
pub(super) fn close_from(first: libc::c_uint) -> io::Result<()> {
    // SAFETY: close_range takes no pointer; that nothing here owns one of the descriptors is the caller's to see to.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Moves this thread into the network namespace behind `netns`.
pub(super) fn enter_netns(netns: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns reads no memory of ours; the descriptor is open for the length of the borrow.
    checked(unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Gives this thread its own mount namespace in which `/sys` shows its network namespace. A sysfs shows the namespace
/// it was mounted in, not the reader's.
pub(super) fn mount_own_sysfs() -> io::Result<()> {
    // SAFETY: unshare reads no memory of ours. The calling thread alone leaves the shared table.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let mount = |source: &std::ffi::CStr, target: &std::ffi::CStr, flags| {
        // SAFETY: both strings end in NUL and outlive the call; type is one of them, data is none.
        checked(unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                source.as_ptr(),
                flags,
                std::ptr::null(),
            )
        })
    };
    mount(c"none", c"/", libc::MS_REC | libc::MS_SLAVE)?;
    mount(c"sysfs", c"/sys", 0)
}
