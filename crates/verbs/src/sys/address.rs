//! Addresses as the socket calls have them, which rdma_cm takes.

use std::net::SocketAddr;

/// An address as the socket calls have it.
pub(super) struct RawAddress(libc::sockaddr_storage);

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("families are small numbers")
}

impl RawAddress {
    pub(super) fn new(address: SocketAddr) -> Self {
        // SAFETY: all zeroes are an address of no family.
        let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        match address {
            SocketAddr::V4(address) => {
                let own = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*address.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage has room and alignment for every address.
                unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(own) };
            }
            SocketAddr::V6(address) => {
                let own = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut raw).cast::<libc::sockaddr_in6>().write(own) };
            }
        }
        Self(raw)
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}
