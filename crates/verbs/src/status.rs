//! How a request ended that did not succeed (`enum ibv_wc_status`, ibv_poll_cq(3)).

use std::ffi::c_int;
use std::fmt;

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// It was given up because an earlier one failed or the queue pair was ended.
    Flushed,
    /// A message was longer than the memory for it.
    LocalLength,
    /// A local operation error of this end's device.
    LocalOperation,
    /// The memory of this end is not registered for it.
    LocalProtection,
    /// The remote end refused access: a wrong key, an address outside its region, or a missing right.
    RemoteAccess,
    /// The remote end failed to execute it.
    RemoteOperation,
    /// The remote end rejects the request as invalid, such as a message too long.
    RemoteRequest,
    /// The remote end does not answer.
    NoAnswer,
    /// The remote end has no receives posted.
    ReceiverNotReady,
    /// Something else, by its number.
    Other(u32),
}

impl Status {
    pub(crate) fn of(number: c_int) -> Self {
        match number {
            1 => Self::LocalLength,
            2 => Self::LocalOperation,
            4 | 8 => Self::LocalProtection,
            5 => Self::Flushed,
            9 => Self::RemoteRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 | 20 => Self::NoAnswer,
            13 => Self::ReceiverNotReady,
            other => Self::Other(u32::try_from(other).unwrap_or(u32::MAX)),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flushed => f.write_str("flushed after an earlier failure"),
            Self::LocalLength => f.write_str("a message was longer than its buffer"),
            Self::LocalOperation => f.write_str(
                "local operation error: its interface is down, there is no route to the remote end, or the \
                 device is out of memory",
            ),
            Self::LocalProtection => f.write_str("the local memory is not registered for this \
                access"),
            Self::RemoteAccess => f.write_str(
                "remote access error: wrong key, address out of range, or missing permission",
            ),
            Self::RemoteOperation => f.write_str("remote operation error"),
            Self::RemoteRequest => f.write_str("remote invalid request error"),
            Self::NoAnswer => f.write_str(
                "retry count exceeded: the remote end is gone, its port is down, or the path does \
                 not carry RDMA (a firewall on UDP port 4791, a wrong GID or VLAN, an MTU too \
                 small)",
            ),
            Self::ReceiverNotReady => f.write_str("RNR retry count exceeded: the remote end \
                posted no receives"),
            Self::Other(number) => write!(f, "status {number} of ibv_poll_cq(3)"),
        }
    }
}
