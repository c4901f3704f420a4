//! RDMA devices for tests.

use std::collections::BTreeMap;

use crate::host::{Gid, RdmaDevice, RdmaPort};
use crate::ids::{NicName, NodeId};
use crate::known::{Cause, Known};
use crate::units::{BitRate, Bytes};

fn text(word: &str) -> Known<String> {
    Known::Value(word.to_owned())
}

/// A healthy InfiniBand device of one port, EDR, without an interface.
pub fn infiniband(name: &str) -> RdmaDevice {
    let port = RdmaPort {
        port: 1,
        state: text("ACTIVE"),
        physical_state: text("LinkUp"),
        rate_bit_per_s: Known::Value(BitRate::from_mbit_per_s(100_000)),
        width: Known::Value(4),
        speed: text("EDR"),
        link_layer: text("InfiniBand"),
        netdev: Known::unknown(Cause::Absent, "netdev", "it has none"),
        mtu_active: Known::Value(Bytes::new(4096)),
        mtu_max: Known::Value(Bytes::new(4096)),
        limits: Known::default(),
        gids: Known::Value(Vec::new()),
        default_gid_type: Known::unknown(Cause::Absent, "default_roce_mode", "not RoCE"),
        subnet_manager_lid: Known::Value(1),
    };
    RdmaDevice {
        name: name.to_owned(),
        ports: vec![port],
        numa_node: Known::Value(NodeId(0)),
        numa_node_source: Known::default(),
        pci_address: Known::unknown(Cause::Absent, "device", "made up"),
        pcie: Known::default(),
        firmware: text("16.35.2000"),
        board: text("MT_0000000011"),
        node_type: text("CA"),
        limits: Known::Value(BTreeMap::new()),
        netns_mode: text("shared"),
    }
}

/// A healthy iWARP device of one port on the interface `nic`.
pub fn iwarp(name: &str, nic: &str) -> RdmaDevice {
    let mut device = roce(name, nic);
    device.node_type = text("RNIC");
    device.ports[0].gids = Known::Value(Vec::new());
    device
}

/// A healthy RoCE device of one port on the interface `nic`.
pub fn roce(name: &str, nic: &str) -> RdmaDevice {
    let nic: NicName = nic.parse().expect("a test names its interfaces well");
    let mut device = infiniband(name);
    let port = &mut device.ports[0];
    port.link_layer = text("Ethernet");
    port.netdev = Known::Value(nic.clone());
    port.default_gid_type = text("RoCE v2");
    port.subnet_manager_lid = Known::Value(0);
    let gid = |index: u32, gid: &str, kind: &str| Gid {
        index,
        gid: gid.to_owned(),
        kind: text(kind),
        netdev: Known::Value(nic.clone()),
    };
    let mapped = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    let local = "fe80:0000:0000:0000:0000:00ff:fe00:0001";
    port.gids = Known::Value(vec![
        gid(0, local, "IB/RoCE v1"),
        gid(1, local, "RoCE v2"),
        gid(2, mapped, "IB/RoCE v1"),
        gid(3, mapped, "RoCE v2"),
    ]);
    device
}
