//! Operations for a testbed: veth pairs, tunnel ends, addresses, shapers (`ip-link(8)`, `ip-address(8)`,
//! `tc-tbf(8)`).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use linerate_model::ids::NicName;
use linerate_model::setting::QdiscSpec;
use linerate_model::setting::qdisc_spec::{Tbf, Waiting};
use linerate_model::units::{BitRate, Bytes};

use super::error::Failure;
use super::link::{self, link_header};
use super::message::{CREATE, EXCLUSIVE, REPLACE, Request};
use super::{Netlink, kinds, lock, qdisc, qdisc_options};

/// `VETH_INFO_PEER` of `<linux/veth.h>`.
const VETH_PEER: u16 = 1;
/// The port of VXLAN (RFC 7348, section 5); the kernel's default is an older one.
const VXLAN_UDP_PORT: u16 = 4789;

impl Netlink {
    /// Creates a veth pair: `name` here, `peer` in the network namespace `peer_netns` (`None`: here, too).
    pub fn create_veth(
        &self,
        name: &NicName,
        peer: &NicName,
        peer_netns: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let netns = peer_netns.map(|netns| netns.as_raw_fd().cast_unsigned());
        lock(&self.route)
            .ask(&new_veth(name, peer, netns))
            .map(drop)
            .map_err(|failure| failure.during("make the veth pair", format!("{name}, {peer}")))
    }

    /// Creates one end of a VXLAN between two hosts: network `id` over the interface `over`, from its address `local`
    /// to `remote`, on the IANA port. Its MTU leaves space for the outer headers.
    pub fn create_vxlan(
        &self,
        name: &NicName,
        id: u32,
        over: &NicName,
        local: Ipv4Addr,
        remote: Ipv4Addr,
    ) -> io::Result<()> {
        self.on_link("make a VXLAN over", over, |over| {
            Ok(new_vxlan(name, id, over, local, remote))
        })
    }

    /// Sets an interface up.
    pub fn set_up(&self, nic: &NicName) -> io::Result<()> {
        let up = libc::IFF_UP.cast_unsigned();
        self.on_link("set up", nic, |index| {
            Ok(Request::new(libc::RTM_SETLINK, &link_header(index, up, up)))
        })
    }

    /// Gives an interface an address with prefix length, `10.0.0.1/24` or `fd00::1/64`.
    pub fn add_address(&self, nic: &NicName, address: &str) -> io::Result<()> {
        self.on_link("add an address to", nic, |index| {
            new_address(index, address)
        })
    }

    /// Deletes an interface (and with a veth its peer).
    pub fn delete_link(&self, nic: &NicName) -> io::Result<()> {
        self.on_link("delete", nic, |index| {
            Ok(Request::new(libc::RTM_DELLINK, &link_header(index, 0, 0)))
        })
    }

    /// Adds a token bucket filter as an interface's root qdisc with `rate`, `burst` and the queue limit `limit`.
    /// `handle` as in [`linerate_model::host::Qdisc`].
    pub fn add_tbf(
        &self,
        nic: &NicName,
        rate: BitRate,
        burst: Bytes,
        limit: Bytes,
        handle: u32,
    ) -> io::Result<()> {
        self.on_link("put a shaper on", nic, |index| {
            let options = tbf_options(rate, burst, limit)?;
            Ok(qdisc::new_root(
                index,
                handle,
                "tbf",
                &options,
                CREATE | REPLACE,
            ))
        })
    }

    fn on_link(
        &self,
        doing: &'static str,
        nic: &NicName,
        request: impl FnOnce(u32) -> Result<Request, Failure>,
    ) -> io::Result<()> {
        let mut route = lock(&self.route);
        link::read(&mut route, nic)
            .and_then(|link| request(link.index))
            .and_then(|request| route.ask(&request))
            .map(drop)
            .map_err(|failure| failure.during(doing, nic))
    }
}

fn new_veth(name: &NicName, peer: &NicName, netns: Option<u32>) -> Request {
    let mut request =
        Request::new(libc::RTM_NEWLINK, &link_header(0, 0, 0)).with_flags(CREATE | EXCLUSIVE);
    request.put_text(libc::IFLA_IFNAME, name.as_str());
    request.nest(libc::IFLA_LINKINFO, |info| {
        info.put_text(libc::IFLA_INFO_KIND, "veth");
        info.nest(libc::IFLA_INFO_DATA, |data| {
            data.nest(VETH_PEER, |other| {
                other.put_fixed(&link_header(0, 0, 0));
                other.put_text(libc::IFLA_IFNAME, peer.as_str());
                if let Some(netns) = netns {
                    other.put_u32(libc::IFLA_NET_NS_FD, netns);
                }
            });
        });
    });
    request
}

fn new_vxlan(name: &NicName, id: u32, over: u32, local: Ipv4Addr, remote: Ipv4Addr) -> Request {
    let mut request =
        Request::new(libc::RTM_NEWLINK, &link_header(0, 0, 0)).with_flags(CREATE | EXCLUSIVE);
    request.put_text(libc::IFLA_IFNAME, name.as_str());
    request.nest(libc::IFLA_LINKINFO, |info| {
        info.put_text(libc::IFLA_INFO_KIND, "vxlan");
        info.nest(libc::IFLA_INFO_DATA, |data| {
            data.put_u32(kinds::VXLAN_ID, id);
            data.put_u32(kinds::VXLAN_LINK, over);
            data.put(kinds::VXLAN_LOCAL, &local.octets());
            data.put(kinds::VXLAN_GROUP, &remote.octets());
            data.put(kinds::VXLAN_PORT, &VXLAN_UDP_PORT.to_be_bytes());
        });
    });
    request
}

fn new_address(index: u32, text: &str) -> Result<Request, Failure> {
    let wrong = || {
        Failure::BadInput(format!(
            "`{text}` is not an address with prefix length, for example `10.0.0.1/24`"
        ))
    };
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
    let (family, octets, prefix_max, flags) = match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec(), 32, 0),
        // Without duplicate address detection: there are no other hosts, and until it ends (a second or two) the
        // address could not be used.
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec(), 128, libc::IFA_F_NODAD),
    };
    let family = u8::try_from(family).map_err(|_| wrong())?;
    let flags = u8::try_from(flags).map_err(|_| wrong())?;
    if prefix > prefix_max {
        return Err(wrong());
    }
    let mut header = vec![family, prefix, flags, libc::RT_SCOPE_UNIVERSE];
    header.extend_from_slice(&index.to_ne_bytes());
    let mut request = Request::new(libc::RTM_NEWADDR, &header).with_flags(CREATE | EXCLUSIVE);
    request.put(libc::IFA_LOCAL, &octets);
    request.put(libc::IFA_ADDRESS, &octets);
    Ok(request)
}

/// `TCA_OPTIONS` of a token bucket filter.
fn tbf_options(rate: BitRate, burst: Bytes, limit: Bytes) -> Result<Vec<u8>, Failure> {
    let wrong = |what: &str| Failure::BadInput(format!("the shaper's {what} is out of range"));
    let burst = u32::try_from(burst.as_u64()).map_err(|_| wrong("burst"))?;
    let limit = u32::try_from(limit.as_u64()).map_err(|_| wrong("limit"))?;
    let queue = Waiting::Limit(limit);
    qdisc_options::options(&QdiscSpec::Tbf(Tbf { rate, burst, queue }))
}

#[cfg(test)]
mod tests;
