//! Namespaces for a child process of a test, entered between fork and exec.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn put(path: &CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends in NUL and outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    checked(fd)?;
    // SAFETY: the pointer and the length are those of one slice.
    let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    let result = if written < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    };
    // SAFETY: the descriptor was opened above and is used nowhere else.
    unsafe { libc::close(fd) };
    result
}

/// The command will run in a new user and network namespace, as root there.
pub(super) fn in_new_namespaces(command: &mut Command) {
    let uid_map = format!("0 {} 1", rustix::process::geteuid().as_raw());
    let gid_map = format!("0 {} 1", rustix::process::getegid().as_raw());
    let enter = move || {
        // SAFETY: unshare reads no memory of ours.
        checked(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })?;
        put(c"/proc/self/setgroups", b"deny")?;
        put(c"/proc/self/uid_map", uid_map.as_bytes())?;
        put(c"/proc/self/gid_map", gid_map.as_bytes())
    };
    // SAFETY: the closure makes system calls only, with memory prepared before the fork.
    unsafe { command.pre_exec(enter) };
}

/// The command will run in these namespaces.
pub(super) fn in_namespaces(command: &mut Command, user: &File, net: &File) {
    let (user, net) = (user.as_raw_fd(), net.as_raw_fd());
    let enter = move || {
        // SAFETY: setns reads no memory of ours; the caller keeps both files open until the spawn.
        checked(unsafe { libc::setns(user, libc::CLONE_NEWUSER) })?;
        // SAFETY: as above.
        checked(unsafe { libc::setns(net, libc::CLONE_NEWNET) })
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(enter) };
}
