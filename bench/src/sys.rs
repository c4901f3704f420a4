//! Waiting for a child and learning how much memory it had: wait4(2) has no safe wrapper.

#![expect(unsafe_code, reason = "the one module of this crate that calls libc")]

use std::io;
use std::mem::MaybeUninit;
use std::process::Child;

/// Waits for `child`: whether it ended with 0, and its peak memory, KiB.
pub(crate) fn wait(child: Child) -> io::Result<(bool, u64)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status: libc::c_int = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: `pid` is our own child, which nobody else waits for (the handle is ours and is dropped
        // unused); both places are valid for the one value that the kernel writes into each.
        let ended = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if ended == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    drop(child);
    // SAFETY: zeroed is a valid value of this struct of integers, and the kernel wrote over it.
    let usage = unsafe { usage.assume_init() };
    let peak = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Ok((
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        peak,
    ))
}
