//! Marks of the packets of a socket (socket(7), ip(7), ipv6(7)).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use linerate_model::workload::Marks;
use rustix::io::Errno;
use rustix::net::getsockname;

use crate::TrafficError;
use crate::sys::set_option;

/// Sets the marks of a socket. The DSCP first, since the kernel derives the priority from it (`rt_tos2priority`).
pub(crate) fn set(marks: &Marks, socket: &OwnedFd) -> Result<(), TrafficError> {
    if let Some(dscp) = marks.dscp {
        set_dscp(socket, dscp)
            .map_err(|errno| TrafficError::of_errno("set the DSCP of a socket", errno))?;
    }
    let options = [
        (libc::SO_PRIORITY, marks.priority, "set SO_PRIORITY"),
        (libc::SO_MARK, marks.mark, "set SO_MARK"),
    ];
    for (name, value, doing) in options {
        let Some(value) = value else { continue };
        set_option(socket, libc::SOL_SOCKET, name, value).map_err(|errno| match errno {
            Errno::PERM => TrafficError::NotPermitted {
                what: format!("{doing} to {value}"),
                why: "it needs CAP_NET_ADMIN".to_owned(),
            },
            _ => TrafficError::of_errno(doing, errno),
        })?;
    }
    Ok(())
}

/// Both families of an IPv6 socket whose packets are IPv4.
fn set_dscp(socket: &OwnedFd, dscp: u8) -> Result<(), Errno> {
    let traffic_class = libc::c_int::from(dscp) << 2;
    let local = SocketAddr::try_from(getsockname(socket)?)?;
    if local.is_ipv6() {
        let name = libc::IPV6_TCLASS;
        set_option(socket, libc::IPPROTO_IPV6, name, traffic_class)?;
    }
    let is_mapped = matches!(local.ip(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if local.is_ipv4() || is_mapped {
        set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, traffic_class)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::sys::get_option;

    fn socket(address: &str) -> OwnedFd {
        UdpSocket::bind(address).expect(address).into()
    }

    fn value(socket: &OwnedFd, level: libc::c_int, name: libc::c_int) -> u32 {
        get_option(socket, level, name).expect("a value")
    }

    #[test]
    fn a_priority_holds_beside_a_dscp_that_would_change_it() {
        let socket = socket("127.0.0.1:0");
        let marks = Marks {
            priority: Some(3),
            dscp: Some(18),
            ..Marks::default()
        };
        set(&marks, &socket).expect("no right is needed");
        assert_eq!(value(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY), 3);
        assert_eq!(value(&socket, libc::IPPROTO_IP, libc::IP_TOS), 18 << 2);
    }

    #[test]
    fn the_dscp_of_an_ipv6_socket_is_its_traffic_class() {
        let socket = socket("[::1]:0");
        let marks = Marks {
            dscp: Some(46),
            ..Marks::default()
        };
        set(&marks, &socket).expect("no right is needed");
        let class = value(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
        assert_eq!(class, 46 << 2);
    }

    #[test]
    fn no_marks_change_nothing() {
        let socket = socket("127.0.0.1:0");
        let before = value(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY);
        set(&Marks::default(), &socket).expect("nothing to set");
        let after = value(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY);
        assert_eq!(before, after);
    }
}
