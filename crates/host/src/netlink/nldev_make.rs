//! Software RDMA devices on an Ethernet interface, created and deleted over RDMA netlink (`rdma-link(8)`,
//! `<rdma/rdma_netlink.h>`).

use std::io;

use linerate_model::ids::NicName;

use super::error::Failure;
use super::message::{Attributes, Request};
use super::nldev::{
    CLIENT, DEV_INDEX, DEV_NAME, GET, NDEV_NAME, PORT_GET, PORT_INDEX, open_socket,
};
use super::socket::Connection;

pub(super) const NEW_LINK: u16 = 3;
pub(super) const DELETE_LINK: u16 = 4;
pub(super) const LINK_TYPE: u16 = 65;

/// An RDMA device of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaLink {
    /// Its name, `rxe0`.
    pub name: String,
    /// The interface of its first port, if it has one.
    pub nic: Option<NicName>,
    index: u32,
}

/// The RDMA devices of one network namespace, for creating and deleting. Opening may make the kernel load its RDMA
/// core, so reading uses another type.
#[derive(Debug)]
pub struct RdmaLinks(Connection);

impl RdmaLinks {
    /// A socket in the network namespace of this thread. An error of the kind `Unsupported` means that this kernel
    /// has no RDMA.
    pub fn open() -> io::Result<Self> {
        open_socket().map(Self).map_err(|error| {
            if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) {
                let why = "this kernel has no RDMA (CONFIG_INFINIBAND)";
                io::Error::new(io::ErrorKind::Unsupported, why)
            } else {
                error
            }
        })
    }

    /// The devices, as the kernel lists them.
    pub fn list(&mut self) -> io::Result<Vec<RdmaLink>> {
        let all = |connection: &mut Connection| {
            let mut links = parse_devices(connection)?;
            for link in &mut links {
                link.nic = interface(connection, link.index)?;
            }
            Ok(links)
        };
        all(&mut self.0).map_err(|failure: Failure| failure.during("list", "the RDMA devices"))
    }

    /// Creates the soft-RoCE device `name` on the interface `nic`. Needs CAP_NET_ADMIN, and the module rdma_rxe.
    pub fn add_rxe(&mut self, name: &str, nic: &NicName) -> io::Result<()> {
        self.0
            .ask(&new_rxe(name, nic))
            .map(drop)
            .map_err(|failure| {
                failure.during("make the soft-RoCE device", format!("{name} on {nic}"))
            })
    }

    /// Deletes a device that was created by such a request; the kernel refuses any other. Needs CAP_NET_ADMIN.
    pub fn delete(&mut self, link: &RdmaLink) -> io::Result<()> {
        let mut request = Request::new(CLIENT | DELETE_LINK, &[]);
        request.put_u32(DEV_INDEX, link.index);
        self.0
            .ask(&request)
            .map(drop)
            .map_err(|failure| failure.during("delete the RDMA device", &link.name))
    }
}

fn new_rxe(name: &str, nic: &NicName) -> Request {
    let mut request = Request::new(CLIENT | NEW_LINK, &[]);
    request.put_text(DEV_NAME, name);
    request.put_text(LINK_TYPE, "rxe");
    request.put_text(NDEV_NAME, nic.as_str());
    request
}

fn parse_devices(connection: &mut Connection) -> Result<Vec<RdmaLink>, Failure> {
    let mut links = Vec::new();
    for answer in connection.dump(&Request::new(CLIENT | GET, &[]))? {
        let attributes = Attributes::parse(&answer.body)?;
        if let (Some(name), Some(index)) = (attributes.text(DEV_NAME)?, attributes.u32(DEV_INDEX)?)
        {
            links.push(RdmaLink {
                name,
                nic: None,
                index,
            });
        }
    }
    Ok(links)
}

fn interface(connection: &mut Connection, index: u32) -> Result<Option<NicName>, Failure> {
    let mut request = Request::new(CLIENT | PORT_GET, &[]);
    request.put_u32(DEV_INDEX, index).put_u32(PORT_INDEX, 1);
    let answers = connection.ask(&request)?;
    let name = answers
        .first()
        .map(|answer| Attributes::parse(&answer.body)?.text(NDEV_NAME))
        .transpose()?;
    Ok(name.flatten().and_then(|name| name.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_headers() {
        let ours = [
            ("RDMA_NLDEV_CMD_NEWLINK", NEW_LINK),
            ("RDMA_NLDEV_CMD_DELLINK", DELETE_LINK),
            ("RDMA_NLDEV_ATTR_LINK_TYPE", LINK_TYPE),
        ];
        crate::netlink::headers::compare("../rdma/rdma_netlink.h", &ours);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_request_names_device_type_and_interface() {
        let nic = "eth0".parse().expect("a name");
        let bytes = new_rxe("rxe0", &nic).to_bytes(5, 1).expect("short");
        let expected = "30000000 0314 0500 01000000 00000000\
             0900 0200 7278653000 000000 0800 4100 72786500 0900 3300 6574683000 000000";
        let expected = crate::netlink::captured::bytes(expected);
        // The total length comes first.
        assert_eq!(bytes[4..], expected[4..]);
        assert_eq!(usize::from(bytes[0]), bytes.len());
    }
}
