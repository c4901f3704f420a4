//! Where connections leave this host: an address of an interface, and the interface itself. The address alone
//! does not choose the interface: Linux routes by the destination (ip-rule(8)). `SO_BINDTODEVICE` does (socket(7)); since
//! Linux 5.7 it needs no privilege if the socket is not bound to another device.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use linerate_model::ids::NicName;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::TrafficError;
use crate::sys::set_option;

/// The length of an interface's name with its final NUL (include/uapi/linux/if.h).
const IFNAMSIZ: usize = 16;

/// The local end of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The local address.
    pub address: IpAddr,
    /// The interface, if the sockets are bound to it.
    pub device: Option<NicName>,
}

impl Source {
    /// Binds a socket that is not connected yet.
    pub(super) fn bind(&self, socket: &OwnedFd) -> Result<(), TrafficError> {
        if let Some(device) = &self.device {
            bind_to_device(socket, device).map_err(|errno| {
                TrafficError::of_errno("bind a socket to an interface (SO_BINDTODEVICE)", errno)
            })?;
        }
        // connect(2) chooses the port then: by the whole connection, not for this address alone (ip(7)).
        set_option(
            socket,
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            1_u32,
        )
        .and_then(|()| rustix::net::bind(socket, &SocketAddr::new(self.address, 0)))
        .map_err(|errno| TrafficError::of_errno("bind a socket to a local address", errno))
    }
}

/// Whether this process may bind a socket to `device`; false without the privilege that a kernel before 5.7 requires.
pub fn may_bind_to_device(device: &NicName) -> Result<bool, TrafficError> {
    let failed = |errno| TrafficError::of_errno("bind a socket to an interface", errno);
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).map_err(failed)?;
    match bind_to_device(&socket, device) {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => Ok(false),
        Err(errno) => Err(failed(errno)),
    }
}

fn bind_to_device(socket: impl AsFd, device: &NicName) -> Result<(), Errno> {
    let mut name = [0_u8; IFNAMSIZ];
    let text = device.as_str().as_bytes();
    // The last byte remains NUL.
    name[..IFNAMSIZ - 1]
        .get_mut(..text.len())
        .ok_or(Errno::NODEV)?
        .copy_from_slice(text);
    set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_bound_to_its_interface_and_address() {
        let lo: NicName = "lo".parse().expect("a name");
        if !may_bind_to_device(&lo).expect("there is a loopback") {
            return;
        }
        let source = Source {
            address: IpAddr::from([127, 0, 0, 1]),
            device: Some(lo),
        };
        let one = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        source.bind(&one).expect("the loopback has this address");
        let bound = rustix::net::getsockname(&one).expect("it is bound");
        let bound = SocketAddr::try_from(bound).expect("an address");
        assert_eq!(bound.ip(), source.address);
    }

    #[test]
    fn an_interface_that_does_not_exist_is_an_error() {
        let none: NicName = "none7".parse().expect("a name");
        assert!(may_bind_to_device(&none).is_err());
    }
}
