//! Joining two hosts by a virtual Ethernet pair.

use std::io;
use std::os::fd::AsFd;

use linerate_host::netlink::Netlink;
use linerate_model::ids::NicName;

use crate::netns::Netns;

/// One end of a pair: which host, the interface's name there, and its address with prefix length.
pub type LinkEnd<'a> = (&'a Netns, &'a NicName, &'a str);

/// Joins two hosts by a virtual Ethernet pair, both ends up and with their addresses.
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
