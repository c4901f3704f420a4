//! Everything that calls the libraries: each object of theirs has one owner here, which keeps alive what it
//! was made from and destroys it in the right order.

#![expect(
    unsafe_code,
    reason = "the one module of this crate that calls the libraries"
)]

pub mod abi;
mod address;
mod connection;
mod device;
mod load;
mod manager;
mod memory;
mod queue;
mod work;

pub use connection::{Calling, Connection, Listener, Request, device_of};
pub use device::{AsyncEvent, Device, DeviceAttributes, PortAttributes, device_names};
pub use manager::{Attributes, Patience, Step};
pub use memory::{Access, Memory, Region, Slice};
pub use queue::{
    AddressHandle, Completion, CompletionQueue, Event, Opcode, Path, ProtectionDomain, QueuePair,
    QueuePairNeeds,
};
pub use work::{Receive, Receives, Remote, Send, Sends, To, Work};

use rustix::io::Errno;

/// The error of the last call of this thread.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The result of a call that returns 0, an error number, or -1 and `errno`.
fn outcome(result: std::ffi::c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        -1 => Err(last_errno()),
        errno => Err(Errno::from_raw_os_error(errno.saturating_abs())),
    }
}
