//! Connects two hosts by a veth pair, and by a VXLAN over it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use linerate_host::netlink::Netlink;
use linerate_model::ids::NicName;

use crate::netns::Netns;

/// One end of a pair: the host, its interface name there, and its address with prefix length.
pub type LinkEnd<'a> = (&'a Netns, &'a NicName, &'a str);

/// The VNI of the VXLAN: any will do between two isolated hosts.
const VXLAN: u32 = 77;

/// Connects two hosts by a veth pair, both ends up and with their addresses.
pub fn join(near: LinkEnd<'_>, far: LinkEnd<'_>) -> io::Result<()> {
    let finish = |netlink: &Netlink, nic: &NicName, address: &str| {
        netlink.add_address(nic, address)?;
        netlink.set_up(nic)
    };
    near.0.inside(|| {
        let netlink = Netlink::open()?;
        netlink.create_veth(near.1, far.1, Some(far.0.as_fd()))?;
        finish(&netlink, near.1, near.2)
    })??;
    far.0.inside(|| finish(&Netlink::open()?, far.1, far.2))?
}

/// One end of a VXLAN: the host, the underlying interface with its address, and the inner address with prefix length.
#[derive(Debug, Clone, Copy)]
pub struct TunnelEnd<'a> {
    /// The host.
    pub host: &'a Netns,
    /// The underlying interface.
    pub over: &'a NicName,
    /// Its address.
    pub outer: Ipv4Addr,
    /// The inner address.
    pub inner: &'a str,
}

/// Connects two hosts by a VXLAN, the interface `name` on both, up and with its addresses.
pub fn tunnel(name: &NicName, near: TunnelEnd<'_>, far: TunnelEnd<'_>) -> io::Result<()> {
    for (end, other) in [(near, far), (far, near)] {
        end.host.inside(|| {
            let netlink = Netlink::open()?;
            netlink.create_vxlan(name, VXLAN, end.over, end.outer, other.outer)?;
            netlink.add_address(name, end.inner)?;
            netlink.set_up(name)
        })??;
    }
    Ok(())
}
