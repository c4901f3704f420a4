//! The next hop that the kernel selects for a flow (`ip route get ADDRESS from ADDRESS ipproto udp sport N dport N`): with
//! ECMP the hash of its addresses and ports decides, by `fib_multipath_hash_policy`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use linerate_model::ids::NicName;

use super::error::Failure;
use super::link;
use super::message::Request;
use super::notification::{HopIndex, ROUTE_HEADER_BYTES, next_hop};
use super::socket::Connection;

/// `RTA_SRC`, `RTA_IP_PROTO`, `RTA_SPORT` and `RTA_DPORT` of `<linux/rtnetlink.h>` (Linux 4.18).
const SOURCE: u16 = 2;
const IP_PROTOCOL: u16 = 27;
const SOURCE_PORT: u16 = 28;
const DESTINATION_PORT: u16 = 29;
const UDP: u8 = 17;

/// Requests about the flows of this thread's network namespace.
#[derive(Debug)]
pub(crate) struct FlowRoutes {
    connection: Connection,
    names: BTreeMap<u32, NicName>,
}

impl FlowRoutes {
    /// Reads the names of the interfaces.
    pub(crate) fn open() -> io::Result<Self> {
        let mut connection = Connection::open(None)?;
        let links = link::identities(&mut connection)
            .map_err(|failure| failure.during("list", "network interfaces"))?;
        Ok(Self {
            connection,
            names: links.into_iter().map(|one| (one.index, one.name)).collect(),
        })
    }

    /// The next hop of datagrams from `local` to `peer`.
    pub(crate) fn next_hop(&mut self, local: SocketAddr, peer: SocketAddr) -> io::Result<HopIndex> {
        let read = self
            .connection
            .ask(&request(local, peer))
            .and_then(|answers| {
                let answer = answers.iter().find(|one| one.kind == libc::RTM_NEWROUTE);
                let answer = answer.ok_or(Failure::Malformed("the answer has no route"))?;
                next_hop(&answer.body)
            });
        read.map_err(|failure| failure.during("read the route to", peer))
    }

    /// The name of an interface.
    pub(crate) fn name(&self, interface: u32) -> Option<&NicName> {
        self.names.get(&interface)
    }
}

fn request(local: SocketAddr, peer: SocketAddr) -> Request {
    let octets = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(own) => (libc::AF_INET, own.octets().to_vec()),
        IpAddr::V6(own) => (libc::AF_INET6, own.octets().to_vec()),
    };
    let ((family, to), (_, from)) = (octets(peer.ip()), octets(local.ip()));
    let bits = |bytes: &[u8]| u8::try_from(bytes.len() * 8).expect("an address has 128 bits");
    let mut header = [0; ROUTE_HEADER_BYTES];
    header[0] = u8::try_from(family).expect("a byte (socket.h)");
    header[1] = bits(&to);
    header[2] = bits(&from);
    let mut request = Request::new(libc::RTM_GETROUTE, &header);
    request.put(libc::RTA_DST, &to);
    request.put(SOURCE, &from);
    request.put(IP_PROTOCOL, &[UDP]);
    request.put(SOURCE_PORT, &local.port().to_be_bytes());
    request.put(DESTINATION_PORT, &peer.port().to_be_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::Attributes;

    #[test]
    fn the_numbers_are_the_headers() {
        let ours = [
            ("RTA_SRC", SOURCE),
            ("RTA_IP_PROTO", IP_PROTOCOL),
            ("RTA_SPORT", SOURCE_PORT),
            ("RTA_DPORT", DESTINATION_PORT),
        ];
        crate::netlink::headers::compare("rtnetlink.h", &ours);
    }

    #[test]
    fn a_request_names_the_ports_in_network_order() {
        let local: SocketAddr = "[::ffff:10.0.0.1]:258".parse().expect("an address");
        let peer: SocketAddr = "10.0.0.2:4".parse().expect("an address");
        let body = request(local, peer).into_body();
        assert_eq!(body[..3], [2, 32, 32]);
        let attributes = Attributes::after(&body, ROUTE_HEADER_BYTES).expect("our own");
        assert_eq!(attributes.bytes(SOURCE), Some(&[10, 0, 0, 1][..]));
        assert_eq!(attributes.bytes(SOURCE_PORT), Some(&[1, 2][..]));
        assert_eq!(attributes.bytes(DESTINATION_PORT), Some(&[0, 4][..]));
    }

    #[test]
    fn a_flow_to_this_host_leaves_by_the_loopback() {
        let mut routes = FlowRoutes::open().expect("rtnetlink");
        let address: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        let hop = routes.next_hop(address, address).expect("a local route");
        let name = hop.interface.and_then(|index| routes.name(index));
        assert_eq!(name.map(ToString::to_string).as_deref(), Some("lo"));
        assert_eq!(hop.gateway, None);
    }
}
