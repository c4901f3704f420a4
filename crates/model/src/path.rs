//! The path between two hosts, as far as it determines how trials are laid out.

use crate::host::Host;
use crate::ids::NicName;

/// What determines how the trials of a path can be laid out: both hosts, and the interfaces of the data.
#[derive(Debug, Clone, Copy)]
pub struct PathView<'a> {
    /// This host.
    pub local: &'a Host,
    /// The remote host.
    pub remote: &'a Host,
    /// The interface that the data is sent from.
    pub local_nic: &'a NicName,
    /// The interface that has the remote address.
    pub remote_nic: &'a NicName,
    /// Whether the remote address is an IPv6 one.
    pub ipv6: bool,
}
