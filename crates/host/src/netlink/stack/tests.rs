//! Interface relations: numbers as in the kernel's headers, responses written by hand in the kernel's form.

use proptest::collection::vec;
use proptest::prelude::*;

use super::kinds::*;
use super::*;
use crate::netlink::headers::compare;

const IPOIB: &str = "ipoib";

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_header() {
    compare(
        "if_link.h",
        &[
            ("IFLA_MTU", numbers::MTU),
            ("IFLA_PROMISCUITY", PROMISCUITY),
            ("IFLA_NUM_VF", NUMBER_OF_VF),
            ("IFLA_VFINFO_LIST", VF_LIST),
            ("IFLA_EXT_MASK", EXT_MASK),
            ("IFLA_LINK_NETNSID", LINK_NETNSID),
            ("IFLA_GSO_MAX_SIZE", numbers::GSO_MAX_SIZE),
            ("IFLA_XDP", XDP),
            ("IFLA_MAX_MTU", MAX_MTU),
            ("IFLA_GRO_MAX_SIZE", numbers::GRO_MAX_SIZE),
            ("IFLA_TSO_MAX_SIZE", TSO_MAX),
            ("IFLA_GSO_IPV4_MAX_SIZE", numbers::GSO_IPV4_MAX_SIZE),
            ("IFLA_GRO_IPV4_MAX_SIZE", numbers::GRO_IPV4_MAX_SIZE),
            ("IFLA_INFO_DATA", INFO_DATA),
            ("IFLA_INFO_SLAVE_KIND", INFO_PORT_KIND),
            ("IFLA_INFO_SLAVE_DATA", INFO_PORT_DATA),
            ("IFLA_XDP_ATTACHED", XDP_ATTACHED),
            ("IFLA_VF_INFO", VF_INFO),
            ("IFLA_VF_MAC", VF_MAC),
            ("IFLA_VF_VLAN", VF_VLAN),
            ("IFLA_VF_TX_RATE", VF_TX_RATE),
            ("IFLA_VF_SPOOFCHK", VF_SPOOF_CHECK),
            ("IFLA_VF_LINK_STATE", VF_LINK_STATE),
            ("IFLA_VF_RATE", VF_RATE),
            ("IFLA_VF_TRUST", VF_TRUST),
        ],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of numbers")]
fn the_kinds_have_the_numbers_of_the_kernels_headers() {
    compare(
        "if_link.h",
        &[
            ("IFLA_BOND_MODE", BOND_MODE),
            ("IFLA_BOND_ACTIVE_SLAVE", BOND_ACTIVE_SLAVE),
            ("IFLA_BOND_MIIMON", BOND_MIIMON),
            ("IFLA_BOND_ARP_INTERVAL", BOND_ARP_INTERVAL),
            ("IFLA_BOND_AD_SELECT", BOND_AD_SELECT),
            ("IFLA_BOND_XMIT_HASH_POLICY", BOND_HASH_POLICY),
            ("IFLA_BOND_AD_LACP_RATE", BOND_LACP_RATE),
            ("IFLA_BOND_AD_INFO", BOND_AD_INFO),
            ("IFLA_BOND_AD_INFO_AGGREGATOR", AD_INFO_AGGREGATOR),
            ("IFLA_BOND_AD_INFO_NUM_PORTS", AD_INFO_PORTS),
            ("IFLA_BOND_AD_INFO_PARTNER_MAC", AD_INFO_PARTNER),
            ("IFLA_BOND_SLAVE_STATE", PORT_STATE),
            ("IFLA_BOND_SLAVE_MII_STATUS", PORT_MII_STATUS),
            ("IFLA_BOND_SLAVE_LINK_FAILURE_COUNT", PORT_LINK_FAILURES),
            ("IFLA_BOND_SLAVE_AD_AGGREGATOR_ID", PORT_AGGREGATOR),
            ("IFLA_VLAN_ID", VLAN_ID),
            ("IFLA_VLAN_EGRESS_QOS", VLAN_EGRESS),
            ("IFLA_VLAN_INGRESS_QOS", VLAN_INGRESS),
            ("IFLA_VLAN_PROTOCOL", VLAN_PROTOCOL),
            ("IFLA_VLAN_QOS_MAPPING", VLAN_QOS_MAPPING),
            ("IFLA_VXLAN_ID", VXLAN_ID),
            ("IFLA_VXLAN_GROUP", VXLAN_GROUP),
            ("IFLA_VXLAN_LINK", VXLAN_LINK),
            ("IFLA_VXLAN_LOCAL", VXLAN_LOCAL),
            ("IFLA_VXLAN_PORT", VXLAN_PORT),
            ("IFLA_VXLAN_GROUP6", VXLAN_GROUP6),
            ("IFLA_VXLAN_LOCAL6", VXLAN_LOCAL6),
            ("IFLA_VXLAN_UDP_CSUM", VXLAN_UDP_CHECKSUM),
            ("IFLA_VXLAN_UDP_ZERO_CSUM6_TX", VXLAN_UDP_ZERO_CHECKSUM6),
            ("IFLA_GENEVE_ID", GENEVE_ID),
            ("IFLA_GENEVE_REMOTE", GENEVE_REMOTE),
            ("IFLA_GENEVE_PORT", GENEVE_PORT),
            ("IFLA_GENEVE_REMOTE6", GENEVE_REMOTE6),
            ("IFLA_GENEVE_UDP_CSUM", GENEVE_UDP_CHECKSUM),
            ("IFLA_GENEVE_UDP_ZERO_CSUM6_TX", GENEVE_UDP_ZERO_CHECKSUM6),
            ("IFLA_BR_STP_STATE", BRIDGE_STP),
            ("IFLA_BR_VLAN_FILTERING", BRIDGE_VLAN_FILTERING),
            ("IFLA_BR_NF_CALL_IPTABLES", BRIDGE_CALLS_IPTABLES),
            ("IFLA_MACVLAN_MODE", MACVLAN_MODE),
            ("IFLA_IPVLAN_MODE", IPVLAN_MODE),
            ("IFLA_IPOIB_MODE", IPOIB_MODE),
            ("IFLA_TUN_OWNER", TUN_OWNER),
            ("IFLA_TUN_GROUP", TUN_GROUP),
            ("IFLA_TUN_TYPE", TUN_TYPE),
            ("IFLA_TUN_PI", TUN_PACKET_INFORMATION),
            ("IFLA_TUN_VNET_HDR", TUN_VNET_HEADER),
            ("IFLA_TUN_PERSIST", TUN_PERSIST),
            ("IFLA_TUN_MULTI_QUEUE", TUN_MULTI_QUEUE),
            ("IFLA_TUN_NUM_QUEUES", TUN_QUEUES),
        ],
    );
    compare(
        "if_tunnel.h",
        &[
            ("IFLA_GRE_LINK", GRE_LINK),
            ("IFLA_GRE_OFLAGS", GRE_OUT_FLAGS),
            ("IFLA_GRE_OKEY", GRE_OUT_KEY),
            ("IFLA_GRE_LOCAL", GRE_LOCAL),
            ("IFLA_GRE_REMOTE", GRE_REMOTE),
            ("IFLA_GRE_ENCAP_TYPE", GRE_ENCAP_TYPE),
            ("IFLA_GRE_ENCAP_FLAGS", GRE_ENCAP_FLAGS),
            ("IFLA_GRE_ENCAP_DPORT", GRE_ENCAP_PORT),
            ("IFLA_IPTUN_LINK", IP_LINK),
            ("IFLA_IPTUN_LOCAL", IP_LOCAL),
            ("IFLA_IPTUN_REMOTE", IP_REMOTE),
            ("IFLA_IPTUN_ENCAP_TYPE", IP_ENCAP_TYPE),
            ("IFLA_IPTUN_ENCAP_FLAGS", IP_ENCAP_FLAGS),
            ("IFLA_IPTUN_ENCAP_DPORT", IP_ENCAP_PORT),
        ],
    );
}

fn row(index: u32, name: &str, link: Option<u32>) -> Row {
    Row {
        index,
        name: name.parse().expect("a name"),
        link,
    }
}

/// A response about interface 4 of `kind`, with the data from `fill`.
fn answers(kind: &str, fill: impl FnOnce(&mut Request)) -> Answers {
    let mut own = Request::new(0, &link::link_header(4, 0, 0));
    own.put_u32(libc::IFLA_MASTER, 7);
    own.nest(libc::IFLA_LINKINFO, |info| {
        info.put_text(libc::IFLA_INFO_KIND, kind);
        info.nest(INFO_DATA, fill);
    });
    Answers {
        own: own.into_body(),
        with_vf: Err(Failure::Malformed("not asked")),
        all: vec![
            row(2, "eth2", None),
            row(4, "own", None),
            row(7, "bond7", None),
            row(9, "on-it", Some(4)),
            row(8, "on-it-too", Some(4)),
        ],
    }
}

fn known(text: &str) -> Known<String> {
    Known::Value(text.to_owned())
}

#[test]
fn a_bond_tells_its_partner_and_its_aggregator() {
    let bond = answers("bond", |data| {
        data.put(BOND_MODE, &[4]).put(BOND_HASH_POLICY, &[1]);
        data.put_u32(BOND_ACTIVE_SLAVE, 2).put(BOND_LACP_RATE, &[1]);
        data.nest(BOND_AD_INFO, |info| {
            info.put(AD_INFO_AGGREGATOR, &3u16.to_ne_bytes());
            info.put(AD_INFO_PORTS, &2u16.to_ne_bytes());
            info.put(AD_INFO_PARTNER, &[0, 1, 2, 0xab, 4, 5]);
        });
    });
    let stack = bond.stack("p");
    let bond = stack.bond.expect("a bond");
    assert_eq!(bond.mode, known("802.3ad"));
    assert_eq!(bond.hash_policy, known("layer3+4"));
    assert_eq!(bond.active_slave.value().map(NicName::as_str), Some("eth2"));
    assert_eq!(bond.lacp_rate, known("fast"));
    assert_eq!(bond.partner_mac, known("00:01:02:ab:04:05"));
    assert_eq!(
        (bond.aggregator.get(), bond.aggregator_ports.get()),
        (Some(3), Some(2))
    );
    assert_eq!(
        bond.miimon_ms.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
    let upper: Vec<&str> = stack
        .upper
        .value()
        .into_iter()
        .flatten()
        .map(NicName::as_str)
        .collect();
    assert_eq!(upper, ["bond7", "on-it-too", "on-it"], "by index");
}

#[test]
fn a_port_of_a_bond_tells_its_part_in_it() {
    let mut own = Request::new(0, &link::link_header(4, 0, 0));
    own.put_u32(libc::IFLA_MASTER, 7);
    own.nest(libc::IFLA_LINKINFO, |info| {
        info.put_text(INFO_PORT_KIND, "bond");
        info.nest(INFO_PORT_DATA, |port| {
            port.put(PORT_STATE, &[1]).put(PORT_MII_STATUS, &[2]);
            port.put_u32(PORT_LINK_FAILURES, 5);
            port.put(PORT_AGGREGATOR, &9u16.to_ne_bytes());
        });
    });
    let answers = Answers {
        own: own.into_body(),
        ..answers("", |_| ())
    };
    let port = answers.stack("p").bond_port.expect("a port");
    assert_eq!(port.bond.value().map(NicName::as_str), Some("bond7"));
    assert_eq!(
        (port.state, port.mii_status),
        (known("backup"), known("down"))
    );
    assert_eq!(
        (port.aggregator.get(), port.link_failures.get()),
        (Some(9), Some(5))
    );
}

#[test]
fn a_mapping_that_is_not_wanted_any_more_is_overwritten_by_one_to_0() {
    let wanted = BTreeMap::from([(1, 5), (3, 4)]);
    let request = new_egress(7, &[(0, 1), (3, 3)], &wanted);
    let nic = "eth0.100".parse().expect("a name");
    let body = request.into_body();
    assert_eq!(u32_at(&body, 4).expect("whole"), 7);
    let told = egress_of(&body, &nic);
    assert_eq!(told, Known::Value(vec![(0, 0), (1, 5), (3, 4)]));
    let bond = answers("bond", |_| ()).own;
    let gap = egress_of(&bond, &nic).gap().map(|gap| gap.reason.clone());
    assert_eq!(gap.as_deref(), Some(NO_VLAN));
}

#[test]
fn vlans_bridges_and_modes_are_told_in_the_kernels_words() {
    let vlan = answers("vlan", |data| {
        data.put(VLAN_ID, &100u16.to_ne_bytes());
        data.put(VLAN_PROTOCOL, &0x8100u16.to_be_bytes());
        data.nest(VLAN_EGRESS, |map| {
            map.put(VLAN_QOS_MAPPING, &[0, 0, 0, 0, 0, 0, 0, 0]);
        });
    });
    let vlan = vlan.stack("p").vlan.expect("a VLAN");
    assert_eq!((vlan.id.get(), vlan.protocol), (Some(100), known("802.1Q")));
    assert_eq!(vlan.egress, Known::Value(vec![(0, 0)]));
    assert_eq!(
        vlan.ingress,
        Known::Value(Vec::new()),
        "nothing sent is the plain map"
    );

    let calls = |on: u8| {
        let bridge = answers("bridge", |data| {
            data.put_u32(BRIDGE_STP, 0).put(BRIDGE_VLAN_FILTERING, &[1]);
            data.put(BRIDGE_CALLS_IPTABLES, &[on]);
        });
        bridge.stack("p").bridge.expect("a bridge")
    };
    assert_eq!(
        (calls(1).stp, calls(1).vlan_filtering),
        (false.into(), true.into())
    );
    assert_eq!(calls(1).calls_iptables, Known::Value(true));
    let gap = calls(0).calls_iptables;
    assert_eq!(
        gap.gap().map(|gap| gap.cause),
        Some(Cause::NotAsked),
        "the host may"
    );

    let ipoib = answers(IPOIB, |data| {
        data.put(IPOIB_MODE, &1u16.to_ne_bytes());
    });
    assert_eq!(ipoib.stack("p").ipoib_mode, Some(known("connected")));
    let with_address = |flags: u8| {
        let mut answers = answers(IPOIB, |_| {});
        let mut own = Request::new(0, &answers.own[..LINK_HEADER_BYTES]);
        let mut address = [0x11; 20];
        address[0] = flags;
        own.put(libc::IFLA_ADDRESS, &address);
        own.nest(libc::IFLA_LINKINFO, |info| {
            info.put_text(libc::IFLA_INFO_KIND, IPOIB);
        });
        answers.own = own.into_body();
        answers.stack("p").ipoib_connected
    };
    // mlx4 and qib; enhanced IPoIB of mlx5.
    assert_eq!(with_address(0x80), Some(Known::Value(true)));
    assert_eq!(with_address(0), Some(Known::Value(false)));
    let macvlan = answers("macvtap", |data| {
        data.put_u32(MACVLAN_MODE, 4);
    });
    assert_eq!(macvlan.stack("p").macvlan_mode, Some(known("bridge")));
}

#[test]
fn tunnels_tell_their_ends() {
    let vxlan = answers("vxlan", |data| {
        data.put_u32(VXLAN_ID, 42).put_u32(VXLAN_LINK, 2);
        data.put(VXLAN_PORT, &4789u16.to_be_bytes());
        data.put(
            VXLAN_GROUP6,
            &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        );
        data.put(VXLAN_UDP_ZERO_CHECKSUM6, &[1]);
    });
    let tunnel = vxlan.stack("p").tunnel.expect("a tunnel");
    assert_eq!((tunnel.id.get(), tunnel.port.get()), (Some(42), Some(4789)));
    assert_eq!(tunnel.remote, known("fd00::1"));
    assert_eq!(tunnel.udp_checksum, Known::Value(false));
    assert_eq!(tunnel.link.value().map(NicName::as_str), Some("eth2"));

    let gre = answers("gretap", |data| {
        data.put_u32(GRE_LINK, 0)
            .put(GRE_OUT_FLAGS, &0x2000u16.to_be_bytes());
        data.put(GRE_OUT_KEY, &77u32.to_be_bytes());
        data.put(GRE_LOCAL, &[0; 4]).put(GRE_REMOTE, &[10, 0, 0, 2]);
        data.put(GRE_ENCAP_TYPE, &1u16.to_ne_bytes());
        data.put(GRE_ENCAP_PORT, &5555u16.to_be_bytes());
        data.put(GRE_ENCAP_FLAGS, &1u16.to_ne_bytes());
    });
    let tunnel = gre.stack("p").tunnel.expect("a tunnel");
    assert_eq!((tunnel.id.get(), tunnel.port.get()), (Some(77), Some(5555)));
    assert_eq!(tunnel.remote, known("10.0.0.2"));
    assert!(tunnel.local.value().is_none() && tunnel.link.value().is_none());
    assert_eq!(tunnel.udp_checksum, Known::Value(true));
    assert!(answers("dummy", |_| ()).stack("p").tunnel.is_none());
}

#[test]
fn a_tap_tells_whose_it_is_and_what_stands_before_its_packets() {
    let tap = answers("tun", |data| {
        data.put(TUN_TYPE, &[2]).put_u32(TUN_OWNER, 1000);
        data.put(TUN_PACKET_INFORMATION, &[0]);
        data.put(TUN_VNET_HEADER, &[1]).put(TUN_PERSIST, &[0]);
        data.put(TUN_MULTI_QUEUE, &[1]).put_u32(TUN_QUEUES, 4);
    });
    let tap = tap.stack("p").tun.expect("a tap");
    assert_eq!(tap.mode, known("tap"));
    assert_eq!(tap.owner, Known::Value(Some(1000)));
    assert_eq!(tap.group, Known::Value(None), "not sent is none");
    assert_eq!(
        (tap.packet_information, tap.vnet_header, tap.persistent),
        (false.into(), true.into(), false.into())
    );
    assert_eq!(tap.queues, Some(Known::Value(4)));

    let single = answers("tun", |data| {
        data.put(TUN_TYPE, &[1]).put(TUN_MULTI_QUEUE, &[0]);
    });
    let single = single.stack("p").tun.expect("a tun");
    assert_eq!((single.mode, single.queues), (known("tun"), None));

    let of_old = answers("tun", |_| ()).stack("p").tun.expect("a tun");
    assert!(of_old.mode.gap().is_some() && of_old.owner.gap().is_some());
    assert!(of_old.queues.is_some_and(|queues| queues.gap().is_some()));
}

/// A response with virtual functions, as from `rtnl_fill_vfinfo`.
fn with_vfs(number: u32, listed: u32) -> Vec<u8> {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
    let mut own = Request::new(0, &link::link_header(4, 0, 0));
    own.put_u32(NUMBER_OF_VF, number);
    own.nest(VF_LIST, |list| {
        for vf in 0..listed {
            list.nest(VF_INFO, |info| {
                info.put(VF_MAC, &[words(&[vf]), vec![0; 32]].concat());
                info.put(VF_VLAN, &words(&[vf, 100, 3]));
                info.put(VF_RATE, &words(&[vf, 0, 1_000]));
                info.put(VF_SPOOF_CHECK, &words(&[vf, 1]));
                info.put(VF_LINK_STATE, &words(&[vf, 2]));
                info.put(VF_TRUST, &words(&[vf, u32::MAX]));
            });
        }
    });
    own.into_body()
}

#[test]
fn virtual_functions_tell_what_was_set_for_them() {
    let functions = virtual_functions(&with_vfs(2, 2), "p");
    let functions = functions.value().expect("two");
    assert_eq!(functions.len(), 2);
    let second = &functions[1];
    assert_eq!((second.index, second.vlan.get()), (1, Some(100)));
    assert_eq!(
        second.max_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(1_000))
    );
    assert_eq!(
        second.min_bit_per_s.gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
    assert_eq!(second.link_state, known("disable"));
    assert_eq!(second.spoof_check, Known::Value(true));
    assert_eq!(
        second.trusted.gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
}

#[test]
fn a_list_of_virtual_functions_that_the_kernel_cut_short_is_not_taken_for_whole() {
    let cut = virtual_functions(&with_vfs(3, 2), "p");
    assert_eq!(cut.gap().map(|gap| gap.cause), Some(Cause::Unreadable));
    let none = Request::new(0, &link::link_header(4, 0, 0)).into_body();
    assert_eq!(virtual_functions(&none, "p"), Known::Value(Vec::new()));
}

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200), kind in 0usize..10) {
        let _ = parse_row(&body);
        let _ = virtual_functions(&body, "p");
        let _ = parse_vf(&body, "p");
        let all = Answers { own: body.clone(), with_vf: Ok(body.clone()), all: Vec::new() };
        let _ = all.stack("p");
        let kinds = ["bond", "vlan", "bridge", IPOIB, "macvlan", "vxlan", "geneve", "gre", "sit", "tun"];
        let of_kind = answers(kinds[kind], |data| {
            data.put_fixed(&body);
        });
        let _ = of_kind.stack("p");
    }
}
