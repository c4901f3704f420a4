//! Interfaces, functions and RDMA devices of synthetic hosts, where each value has its own source file.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

mod common;

use common::cards::{BRIDGE, CARD, Told, card, interface, read, the};
use common::made::Made;
use common::{FakeNics, nic};
use linerate_model::host::{Gid, NicKind, NodeSource, Stack};
use linerate_model::ids::NodeId;
use linerate_model::known::{Cause, Known};
use linerate_model::units::{BitRate, Bytes, TransferRate};

fn nodes(made: &mut Made) {
    for (node, cpus) in [(0, "0-3"), (1, "4-7")] {
        let file = format!("sys/devices/system/node/node{node}/cpulist");
        made.file(&file, cpus);
    }
}

fn text(known: &Known<String>) -> Option<&str> {
    known.value().map(String::as_str)
}

#[test]
fn a_functions_own_settings_are_read() {
    let mut made = Made::default();
    nodes(&mut made);
    card(
        &mut made,
        &[
            ("gro_flush_timeout", "20000"),
            ("napi_defer_hard_irqs", "2"),
            ("threaded", "1"),
        ],
    );
    for (file, text) in [
        ("vendor", "0x15b3"),
        ("device", "0x1017"),
        ("class", "0x020000"),
        ("link/l0s_aspm", "0"),
        ("link/l1_aspm", "1"),
        ("link/clkpm", "1"),
        ("iommu_group/type", "DMA-FQ"),
        ("sriov_numvfs", "2"),
        ("sriov_totalvfs", "8"),
        ("power_state", "D0"),
        ("numa_node", "1"),
        ("local_cpulist", "0-3"),
        ("hwmon/hwmon3/temp1_input", "61000"),
        ("hwmon/hwmon3/temp1_crit", "105000"),
        ("hwmon/hwmon3/temp1_label", "asic"),
    ] {
        made.file(&format!("{CARD}/{file}"), text);
    }
    made.link(
        &format!("{CARD}/driver"),
        "../../../../bus/pci/drivers/mlx5_core",
    );
    let host = read(&made, &FakeNics::default(), &[]);
    let eth0 = the(&host, "eth0");
    let pci = eth0.pci.value().expect("a function");
    assert_eq!(text(&pci.vendor), Some("0x15b3"));
    assert_eq!(text(&pci.iommu_type), Some("DMA-FQ"));
    assert_eq!(text(&pci.power_state), Some("D0"));
    let aspm = pci.aspm.value().expect("the kernel controls the link");
    assert_eq!(aspm.join(" "), "l1_aspm clkpm");
    assert_eq!(pci.virtual_functions, Known::Value(2));
    assert_eq!(pci.virtual_functions_max, Known::Value(8));
    assert_eq!(
        pci.physical_function.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
    assert_eq!(text(&eth0.card.driver), Some("mlx5_core"));
    let temperature = &eth0.card.temperatures.value().expect("a monitor")[0];
    assert_eq!(temperature.label, "asic");
    assert_eq!(temperature.value_mc, Known::Value(61_000));
    assert_eq!(temperature.critical_mc, Known::Value(105_000));
    assert_eq!(eth0.dispatch.gro_flush_timeout_ns, Known::Value(20_000));
    assert_eq!(eth0.dispatch.defer_hard_irqs, Known::Value(2));
    assert_eq!(eth0.dispatch.threaded, Known::Value(true));
    assert_eq!(eth0.numa_node_source, Known::Value(NodeSource::Firmware));
    let report = eth0.numa_node_report.value().expect("a report");
    assert_eq!(
        report.local_cpus,
        Known::Value(vec![NodeId(0)]),
        "they disagree"
    );
}

#[test]
fn a_card_of_which_the_firmware_says_nothing_is_where_its_bridge_is() {
    let mut made = Made::default();
    nodes(&mut made);
    card(&mut made, &[]);
    made.file(&format!("{CARD}/numa_node"), "-1")
        .file(&format!("{CARD}/local_cpulist"), "0-7")
        .file(&format!("{BRIDGE}/numa_node"), "-1")
        .file(&format!("{BRIDGE}/local_cpulist"), "4-7");
    let host = read(&made, &FakeNics::default(), &[]);
    let eth0 = the(&host, "eth0");
    assert_eq!(eth0.numa_node, Known::Value(NodeId(1)));
    let bridge = "0000:80:01.0".parse().expect("an address");
    assert_eq!(
        eth0.numa_node_source,
        Known::Value(NodeSource::UpstreamBridge(bridge))
    );
    let report = eth0.numa_node_report.value().expect("a report");
    assert_eq!(
        report.firmware.gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
}

/// PCI config space with a PCI Express capability: 8 GT/s and 4 lanes of 16 GT/s and 16, payload 256 of 512 bytes,
/// read requests of 512, relaxed ordering; ACS of a bridge.
fn space(is_bridge: bool) -> Vec<u8> {
    let mut space = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xb3, 0x15, 0x17, 0x10, 0x06, 0x04, 0x10, 0x00]);
    put(0x0e, &[u8::from(is_bridge)]);
    put(0x34, &[0x60]);
    put(0x60, &[0x10, 0x00, 0x02, 0x00, 0x02, 0x80, 0x00, 0x10]);
    put(0x68, &[0x30, 0x29, 0x00, 0x00, 0x04, 0x01, 0x40, 0x00]);
    put(0x70, &[0x00, 0x00, 0x43, 0x10]);
    put(0x100, &[0x0d, 0x00, 0x01, 0x00, 0x1f, 0x00, 0x04, 0x00]);
    space
}

#[test]
fn an_old_kernels_link_is_read_from_the_configuration_space() {
    let mut made = Made::default();
    card(&mut made, &[]);
    made.file(&format!("{BRIDGE}/current_link_speed"), "2.5 GT/s PCIe");
    let config = |folder: &str, bytes: Vec<u8>| (format!("{folder}/config"), bytes);
    let all = [config(CARD, space(false)), config(BRIDGE, space(true))];
    let host = read(&made, &FakeNics::default(), &all);
    let pcie = the(&host, "eth0").pcie.value().expect("a function").clone();
    assert_eq!(
        pcie.transfer_mt_per_s,
        Known::Value(TransferRate::from_mt_per_s(8000))
    );
    assert_eq!(pcie.width, Known::Value(4));
    assert_eq!(
        pcie.capable_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(252_048))
    );
    let control = pcie.links[0].control.get().expect("its control");
    assert_eq!(control.max_payload_bytes, Bytes::new(256));
    assert_eq!(control.max_payload_supported_bytes, Bytes::new(512));
    assert_eq!(control.max_read_request_bytes, Bytes::new(512));
    assert!(control.relaxed_ordering);
    assert_eq!(control.acs_redirect, None, "it is no bridge");
    let bridge = &pcie.links[1];
    assert_eq!(
        bridge.control.get().expect("its control").acs_redirect,
        Some(true)
    );
    let rate = TransferRate::from_mt_per_s(2500);
    assert_eq!(
        bridge.transfer_mt_per_s,
        Known::Value(rate),
        "a file goes before"
    );

    let short = [config(CARD, space(false)[..64].to_vec())];
    let host = read(&made, &FakeNics::default(), &short);
    let pcie = the(&host, "eth0").pcie.value().expect("a function").clone();
    let gap = pcie.links[0].control.gap().expect("64 bytes do not tell");
    assert_eq!(gap.cause, Cause::Denied);
    assert!(gap.reason.contains("root"), "{gap}");
    assert_eq!(pcie.width.gap().map(|gap| gap.cause), Some(Cause::Denied));
}

#[test]
fn a_bond_its_ports_and_what_stands_on_it_are_read() {
    let mut made = Made::default();
    let at = |name: &str| format!("sys/devices/virtual/net/{name}");
    interface(
        &mut made,
        &at("bond0"),
        &[
            ("bonding/mode", "802.3ad 4"),
            ("bonding/xmit_hash_policy", "layer3+4 1"),
            ("bonding/active_slave", ""),
            ("bonding/miimon", "100"),
            ("bonding/lacp_rate", "slow 0"),
            ("bonding/ad_partner_mac", ""),
            ("bonding/ad_aggregator", "1"),
            ("bonding/ad_num_ports", "2"),
            ("tx_queue_len", "1000"),
        ],
    );
    made.link(&format!("{}/upper_bond0.7", at("bond0")), "../bond0.7");
    card(
        &mut made,
        &[
            ("bonding_slave/state", "active"),
            ("bonding_slave/mii_status", "up"),
            ("bonding_slave/ad_aggregator_id", "N/A"),
            ("bonding_slave/link_failure_count", "3"),
        ],
    );
    made.link(
        &format!("{CARD}/net/eth0/master"),
        "../../../../../virtual/net/bond0",
    );
    interface(&mut made, &at("bond0.7"), &[("uevent", "DEVTYPE=vlan")]);
    made.file(
        "proc/net/vlan/bond0.7",
        "bond0.7  VID: 7\t REORDER_HDR: 1  dev->priv_flags: 1021\n     total frames received   9\n\
         Device: bond0\nINGRESS priority mappings: 0:0  1:0\n EGRESS priority mappings: 0:3 ",
    );
    let host = read(&made, &FakeNics::default(), &[]);
    let bond = the(&host, "bond0");
    assert_eq!(bond.stack.upper, Known::Value(vec![nic("bond0.7")]));
    assert_eq!(bond.stack.tx_queue_len, Known::Value(1000));
    let own = bond.stack.bond.as_ref().expect("a bond");
    assert_eq!(text(&own.mode), Some("802.3ad"));
    assert_eq!(text(&own.hash_policy), Some("layer3+4"));
    assert_eq!(own.miimon_ms, Known::Value(100));
    assert_eq!(own.aggregator_ports, Known::Value(2));
    assert_eq!(
        own.partner_mac.gap().map(|gap| gap.cause),
        Some(Cause::Denied)
    );
    let port = the(&host, "eth0").stack.bond_port.as_ref().expect("a port");
    assert_eq!(port.bond, Known::Value(nic("bond0")));
    assert_eq!(text(&port.state), Some("active"));
    assert_eq!(port.link_failures, Known::Value(3));
    assert_eq!(
        port.aggregator.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
    let vlan = the(&host, "bond0.7").stack.vlan.as_ref().expect("a VLAN");
    assert_eq!(vlan.id, Known::Value(7));
    assert_eq!(vlan.egress, Known::Value(vec![(0, 3)]));
    assert_eq!(vlan.ingress, Known::Value(vec![]));
    assert!(bond.stack.vlan.is_none() && bond.stack.bridge.is_none());
}

#[test]
fn what_an_interface_stands_on_is_unknown_if_its_directory_cannot_be_listed() {
    let mut made = Made::default();
    made.link("sys/class/net/eth9", "eth9");
    let host = read(&made, &FakeNics::default(), &[]);
    let lost = the(&host, "eth9");
    let path = lost.lower.gap().map(|gap| gap.path.as_str());
    assert_eq!(path, Some("/sys/class/net/eth9"), "{:?}", lost.lower);
    assert_eq!(lost.stack.upper.gap(), lost.lower.gap());
}

#[test]
fn a_bridge_and_the_ports_of_a_team_are_read() {
    let mut made = Made::default();
    let at = |name: &str| format!("sys/devices/virtual/net/{name}");
    let bridge = [
        ("bridge/stp_state", "0"),
        ("bridge/vlan_filtering", "1"),
        ("bridge/nf_call_iptables", "0"),
    ];
    interface(&mut made, &at("br0"), &bridge);
    made.file("proc/sys/net/bridge/bridge-nf-call-iptables", "1");
    interface(&mut made, &at("team0"), &[]);
    card(&mut made, &[]);
    made.link(&format!("{CARD}/net/eth0/upper_team0"), "../x");
    let told = Told {
        kinds: vec![(nic("team0"), NicKind::Team)],
        ..Told::default()
    };
    let host = read(&made, &told, &[]);
    let own = the(&host, "br0").stack.bridge.as_ref().expect("a bridge");
    assert_eq!(own.stp, Known::Value(false));
    assert_eq!(own.vlan_filtering, Known::Value(true));
    assert_eq!(
        own.calls_iptables,
        Known::Value(true),
        "the host says so for all"
    );
    let port = the(&host, "eth0").stack.bond_port.as_ref().expect("a port");
    assert_eq!(port.bond, Known::Value(nic("team0")));
}

#[test]
fn what_netlink_says_goes_before_what_files_say() {
    let mut made = Made::default();
    card(&mut made, &[("tx_queue_len", "1000"), ("threaded", "1")]);
    let told = Told {
        stacks: vec![(
            nic("eth0"),
            Stack {
                tx_queue_len: Known::Value(500),
                ..Stack::default()
            },
        )],
        ..Told::default()
    };
    let host = read(&made, &told, &[]);
    assert_eq!(the(&host, "eth0").stack.tx_queue_len, Known::Value(500));
    assert_eq!(the(&host, "eth0").dispatch.threaded, Known::Value(true));
}

#[test]
fn an_rdma_ports_identifiers_and_state_are_read() {
    let mut made = Made::default();
    card(&mut made, &[]);
    let device = format!("{CARD}/infiniband/mlx5_0");
    made.link(
        "sys/class/infiniband/mlx5_0",
        &format!("../../{}", &device[4..]),
    );
    let port = "ports/1";
    for (file, text) in [
        ("fw_ver", "16.35.2000"),
        ("board_id", "MT_0000000012"),
        ("node_type", "1: CA"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/phys_state", "5: LinkUp"),
        ("ports/1/rate", "100 Gb/sec (4X EDR)"),
        ("ports/1/sm_lid", "0x0"),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/gids/0", "fe80:0000:0000:0000:0202:c9ff:fe0b:4d01"),
        ("ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a14:1e01"),
        ("ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("ports/1/gid_attrs/types/0", "IB/RoCE v1"),
        ("ports/1/gid_attrs/types/1", "RoCE v2"),
        ("ports/1/gid_attrs/ndevs/0", "eth0"),
        ("ports/1/gid_attrs/ndevs/1", "eth0"),
    ] {
        made.file(&format!("{device}/{file}"), text);
    }
    let mode = format!("sys/kernel/config/rdma_cm/mlx5_0/{port}/default_roce_mode");
    made.file(&mode, "RoCE v2");
    let host = read(&made, &FakeNics::default(), &[]);
    let mlx5 = &host.rdma[0];
    assert_eq!(text(&mlx5.firmware), Some("16.35.2000"));
    assert_eq!(text(&mlx5.node_type), Some("CA"));
    assert!(mlx5.pcie.value().is_some() && mlx5.limits.value().is_none());
    let port = &mlx5.ports[0];
    assert_eq!(text(&port.physical_state), Some("LinkUp"));
    assert_eq!(
        (port.width.get(), text(&port.speed)),
        (Some(4), Some("EDR"))
    );
    assert_eq!(text(&port.default_gid_type), Some("RoCE v2"));
    assert_eq!(
        port.subnet_manager_lid.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
    let gid = |index, gid: &str, kind: &str| Gid {
        index,
        gid: gid.to_owned(),
        kind: Known::Value(kind.to_owned()),
        netdev: Known::Value(nic("eth0")),
    };
    assert_eq!(
        port.gids,
        Known::Value(vec![
            gid(0, "fe80:0000:0000:0000:0202:c9ff:fe0b:4d01", "IB/RoCE v1"),
            gid(1, "0000:0000:0000:0000:0000:ffff:0a14:1e01", "RoCE v2"),
        ])
    );
    assert_eq!(the(&host, "eth0").rdma, Known::Value("mlx5_0".to_owned()));
}

#[test]
fn the_files_of_a_tap_tell_what_netlink_was_not_asked() {
    let mut made = Made::default();
    interface(&mut made, "sys/devices/virtual/net/tap0", &[]);
    for (file, text) in [("tun_flags", "0x5902"), ("owner", "-1"), ("group", "107")] {
        made.file(&format!("sys/devices/virtual/net/tap0/{file}"), text);
    }
    let host = read(&made, &FakeNics::default(), &[]);
    let tap0 = the(&host, "tap0");
    assert_eq!(tap0.kind, NicKind::Tun);
    let tap = tap0.stack.tun.as_ref().expect("a tap");
    assert_eq!(text(&tap.mode), Some("tap"));
    assert_eq!(
        (tap.owner.get(), tap.group.get()),
        (Some(None), Some(Some(107)))
    );
    assert_eq!(
        (tap.packet_information.get(), tap.vnet_header.get()),
        (Some(false), Some(true))
    );
    assert_eq!(
        (tap.persistent.get(), tap.multi_queue.get()),
        (Some(true), Some(true))
    );
    let queues = tap.queues.as_ref().and_then(|queues| queues.gap());
    assert_eq!(queues.map(|gap| gap.cause), Some(Cause::NotAsked));
}
