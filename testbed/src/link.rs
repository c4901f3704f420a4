//! Joining two hosts by a virtual Ethernet pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use linerate_model::ids::NicName;

use crate::netns::Netns;

/// What makes links, over netlink in the calling thread's namespace.
pub trait LinkMaker {
    /// Makes a virtual Ethernet pair: `near` here, `far` in the namespace behind `far_netns`.
    fn create_veth(
        &self,
        near: &NicName,
        far: &NicName,
        far_netns: BorrowedFd<'_>,
    ) -> io::Result<()>;
    /// Brings an interface up.
    fn set_up(&self, nic: &NicName) -> io::Result<()>;
    /// Gives an interface an address with prefix length, `10.77.0.1/24`.
    fn add_address(&self, nic: &NicName, address: &str) -> io::Result<()>;
}

/// One end of a pair: which host, the interface's name there, and its address with prefix length.
pub type LinkEnd<'a> = (&'a Netns, &'a NicName, &'a str);

/// Joins two hosts by a virtual Ethernet pair, both ends up and with their addresses. `open` opens
/// a [`LinkMaker`] in the namespace of the thread that calls it.
pub fn join<L: LinkMaker>(
    near: LinkEnd<'_>,
    far: LinkEnd<'_>,
    open: impl Fn() -> io::Result<L> + Sync,
) -> io::Result<()> {
    let finish = |maker: &L, nic: &NicName, address: &str| {
        maker.add_address(nic, address)?;
        maker.set_up(nic)
    };
    near.0.inside(|| {
        let maker = open()?;
        maker.create_veth(near.1, far.1, far.0.as_fd())?;
        finish(&maker, near.1, near.2)
    })??;
    far.0.inside(|| finish(&open()?, far.1, far.2))?
}
