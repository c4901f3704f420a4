//! A listening socket that this process was started with (sd_listen_fds(3)).

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::net::sockopt;

/// The first descriptor that a service manager passes.
const FIRST: i32 = 3;

/// An open descriptor that a launcher has passed to this process under this number, such as that of `PMI_FD`. Call it once.
#[expect(
    clippy::disallowed_methods,
    reason = "a descriptor of this process itself, without using it"
)]
pub fn inherited_stream(number: i32) -> io::Result<File> {
    // 0 to 2 are the standard streams, which have their own handles.
    let path = format!("/proc/self/fd/{number}");
    if number <= 2 || std::fs::symlink_metadata(path).is_err() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the descriptor is open, and the launcher's contract gives it to this process, in which nothing else knows its
    // number; it is taken once.
    let stream = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(stream.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
    Ok(File::from(stream))
}

/// The listening TCP socket that a service manager has passed to this process; `None` if it has not. Call it once, before
/// anything else takes descriptors.
#[expect(
    clippy::disallowed_methods,
    reason = "the protocol of sd_listen_fds(3) is environment variables"
)]
pub fn inherited_listener() -> io::Result<Option<TcpListener>> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u32>().ok())
    };
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => return Ok(None),
        Some(1) => {}
        Some(count) => {
            let why = format!("the service manager has passed {count} sockets, expected 1");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    // SAFETY: LISTEN_PID names this process, so that descriptor 3 is open and nobody else's (sd_listen_fds(3)); it is taken
    // once.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    let is_listening = sockopt::socket_acceptconn(&socket).unwrap_or(false);
    if !is_listening || socket.as_raw_fd() != FIRST {
        let why = "the service manager has passed something else than a listening socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    rustix::io::fcntl_setfd(socket.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
    Ok(Some(TcpListener::from(socket)))
}
