//! A device: its transport, its addresses, its faults.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_verbs::Gid;
use linerate_verbs::sys::abi::{
    Gid16, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_NODE_RNIC, ibv_ah_attr, ibv_device,
    ibv_gid_entry,
};

use super::number::{GID_TYPE_IB, NODE_CA, TRANSPORT_IB, TRANSPORT_IWARP};
use crate::{Fault, Link};

pub(super) struct Device {
    /// The object given out, which is never freed: lists name it.
    pub(super) address: usize,
    pub(super) link: Link,
    /// Where the connection manager finds it.
    addresses: Vec<IpAddr>,
    pub(super) gids: Vec<ibv_gid_entry>,
    /// Its address within the InfiniBand subnet; 0 on others.
    pub(super) lid: u16,
    pub(super) faults: [u64; Fault::ALL.len()],
    pub(super) messages: u64,
    pub(super) datagrams: u64,
    pub(super) alive: [u64; 8],
    pub(super) pinned: u64,
}

impl Device {
    pub(super) fn new(number: u32, link: Link) -> Self {
        let (node_type, transport_type) = match link {
            Link::Iwarp => (IBV_NODE_RNIC, TRANSPORT_IWARP),
            _ => (NODE_CA, TRANSPORT_IB),
        };
        let mut raw = ibv_device {
            ops: [std::ptr::null_mut(); 2],
            node_type,
            transport_type,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        for (own, byte) in raw.name.iter_mut().zip(format!("fake{number}").bytes()) {
            *own = c_char::from_ne_bytes([byte]);
        }
        let addresses = addresses(number);
        let lid = u16::try_from(number).expect("few devices") + FIRST_LID;
        Self {
            address: Box::into_raw(Box::new(raw)).expose_provenance(),
            link,
            gids: gid_table(number, link, &addresses),
            addresses,
            lid: if link == Link::Infiniband { lid } else { 0 },
            faults: [0; Fault::ALL.len()],
            messages: 0,
            datagrams: 0,
            alive: [0; 8],
            pinned: 0,
        }
    }

    pub(super) fn fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault(fault) != 0
    }

    /// Whether queue pairs and datagrams of this device can use that source address.
    pub(super) fn takes(&self, way: &ibv_ah_attr) -> bool {
        let has_gid = way.is_global != 0 && usize::from(way.grh.sgid_index) < self.gids.len();
        let is_way = match self.link {
            Link::Roce | Link::RoceWithoutGids => has_gid,
            Link::Infiniband => way.dlid != 0 && (has_gid || way.is_global == 0),
            Link::Iwarp => false,
        };
        is_way && way.port_num == 1
    }

    /// Whether that destination is this device.
    pub(super) fn is_at(&self, way: &ibv_ah_attr) -> bool {
        let is_its = |entry: &ibv_gid_entry| entry.gid.0 == way.grh.dgid.0;
        let by_gid = way.is_global != 0 && self.gids.iter().any(is_its);
        match self.link {
            Link::Infiniband => way.dlid == self.lid && (by_gid || way.is_global == 0),
            _ => by_gid,
        }
    }

    /// Whether the connection manager finds it at that address: the index of the GID that it goes by, 0 where it goes
    /// by none. RoCE is found by its GIDs alone.
    pub(super) fn index_at(&self, address: IpAddr) -> Option<u8> {
        if matches!(self.link, Link::Infiniband | Link::Iwarp) {
            return self.addresses.contains(&address).then_some(0);
        }
        let gid = Gid::of(address).0;
        let is_it =
            |entry: &ibv_gid_entry| entry.gid.0 == gid && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
        let index = self.gids.iter().position(is_it)?;
        Some(u8::try_from(index).expect("few"))
    }
}

/// That of `fake0`; the subnet manager has the one before.
const FIRST_LID: u16 = SUBNET_MANAGER + 1;
pub(super) const SUBNET_MANAGER: u16 = 1;

/// The address that only one device has, in addition to those that all have.
pub(crate) fn own_address(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + number).into()
}

fn addresses(number: u32) -> Vec<IpAddr> {
    let mut addresses = vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
    if number > 0 {
        addresses.push(own_address(number));
    }
    addresses
}

/// The GIDs of a device, as the kernel makes them: of RoCE each address in both forms; of InfiniBand the subnet's
/// prefix with its own number; of iWARP its hardware address.
fn gid_table(number: u32, link: Link, addresses: &[IpAddr]) -> Vec<ibv_gid_entry> {
    let mut one = [0; 16];
    let gids: Vec<([u8; 16], u32)> = match link {
        Link::Roce => {
            let forms = [IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2];
            let both = |address: &IpAddr| forms.map(|form| (Gid::of(*address).0, form));
            addresses.iter().flat_map(both).collect()
        }
        Link::RoceWithoutGids => Vec::new(),
        Link::Infiniband => {
            one[..2].copy_from_slice(&[0xfe, 0x80]);
            one[12..].copy_from_slice(&(number + 1).to_be_bytes());
            vec![(one, GID_TYPE_IB)]
        }
        Link::Iwarp => {
            // One that is administered locally.
            one[0] = 2;
            one[2..6].copy_from_slice(&number.to_be_bytes());
            vec![(one, GID_TYPE_IB)]
        }
    };
    (0..)
        .zip(gids)
        .map(|(gid_index, (gid, gid_type))| ibv_gid_entry {
            gid: Gid16(gid),
            gid_index,
            port_num: 1,
            gid_type,
            // That of the loopback; InfiniBand has an interface over it, not under it.
            ndev_ifindex: u32::from(link != Link::Infiniband),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use linerate_verbs::sys::abi::ibv_global_route;

    use super::*;

    fn within_subnet(dlid: u16) -> ibv_ah_attr {
        ibv_ah_attr {
            dlid,
            port_num: 1,
            ..ibv_ah_attr::default()
        }
    }

    fn by_gid(far: &Device, index: u8, dlid: u16) -> ibv_ah_attr {
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: far.gids[0].gid,
                sgid_index: index,
                ..ibv_global_route::default()
            },
            is_global: 1,
            ..within_subnet(dlid)
        }
    }

    #[test]
    fn infiniband_is_reached_by_its_lid_and_where_a_gid_is_given_by_that_too() {
        let [near, far] = [0, 1].map(|number| Device::new(number, Link::Infiniband));
        assert_eq!((near.lid, far.lid), (2, 3));
        let way = within_subnet(far.lid);
        assert!(near.takes(&way) && far.is_at(&way) && !near.is_at(&way));
        let way = by_gid(&far, 0, far.lid);
        assert!(near.takes(&way) && far.is_at(&way));
        assert!(!far.is_at(&by_gid(&near, 0, far.lid)));
        assert!(!far.is_at(&by_gid(&far, 0, near.lid)));
        assert!(!near.takes(&within_subnet(0)));
        assert!(!near.takes(&by_gid(&far, 1, far.lid)));
    }

    #[test]
    fn roce_wants_a_gid_of_its_own_and_iwarp_takes_no_way_at_all() {
        let roce = Device::new(0, Link::Roce);
        assert!(!roce.takes(&within_subnet(2)) && !roce.is_at(&within_subnet(0)));
        assert!(roce.takes(&by_gid(&roce, 0, 0)) && roce.is_at(&by_gid(&roce, 0, 0)));
        for link in [Link::RoceWithoutGids, Link::Iwarp] {
            let device = Device::new(0, link);
            assert!(!device.takes(&by_gid(&roce, 0, 0)) && !device.takes(&within_subnet(2)));
        }
    }

    #[test]
    fn every_link_but_roce_without_gids_is_found_by_its_address() {
        let index = |link, address| Device::new(5, link).index_at(address);
        let own = own_address(5);
        assert_eq!(index(Link::Roce, own), Some(5));
        assert_eq!(index(Link::RoceWithoutGids, own), None);
        assert_eq!(index(Link::Infiniband, own), Some(0));
        assert_eq!(index(Link::Iwarp, own), Some(0));
        assert_eq!(index(Link::Iwarp, own_address(6)), None);
    }
}
