//! Interface relations and shaping, compared with what `ip(8)` and `tc(8)` create.

use std::collections::BTreeMap;

use linerate_host::nic_control::{NicRead, NicValue, NicWrite};
use linerate_model::known::{Cause, Known};
use linerate_model::units::{BitRate, Bytes};

use crate::lab::{in_lab, json, name, skip, tool};

/// Runs a line of `ip` or `tc`; false, with a skip, if this kernel lacks a feature.
fn made(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let output = std::process::Command::new(program).args(words).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            skip(&format!("`{line}`: {}", why.trim()));
            false
        }
        Err(error) => {
            skip(&format!("`{program}`: {error}"));
            false
        }
    }
}

#[test]
fn sizes_are_those_that_ip_prints() {
    in_lab(|lab| {
        let stack = lab.netlink.stack(&lab.nic);
        let Some(theirs) = json(&format!("ip -d -j link show dev {}", lab.nic)) else {
            return;
        };
        let number = |key: &str| theirs[0][key].as_u64();
        let bytes = |known: &Known<Bytes>| known.get().map(Bytes::as_u64);
        assert_eq!(bytes(&stack.gso_max_bytes), number("gso_max_size"));
        assert_eq!(bytes(&stack.gro_max_bytes), number("gro_max_size"));
        assert_eq!(bytes(&stack.tso_max_bytes), number("tso_max_size"));
        assert_eq!(stack.mtu_max.get().map(u64::from), number("max_mtu"));
        assert_eq!(
            stack.promiscuity.get().map(u64::from),
            number("promiscuity")
        );
        assert_eq!(stack.tx_queue_len.get().map(u64::from), number("txqlen"));
        assert_eq!(stack.xdp.value().map(String::as_str), Some("none"));
        assert_eq!(stack.virtual_functions, Known::Value(Vec::new()));
        assert_eq!(stack.upper, Known::Value(Vec::new()), "{:?}", stack.upper);
    });
}

#[test]
fn a_vlan_tells_its_number_and_its_priorities_and_stands_on_its_parent() {
    in_lab(|lab| {
        let line = "ip link add link near0 name vlan7 type vlan id 7 protocol 802.1ad \
                    egress-qos-map 0:3 6:6 ingress-qos-map 2:1";
        if !made(line) {
            return;
        }
        let vlan = lab.netlink.stack(&name("vlan7")).vlan.expect("a VLAN");
        assert_eq!(vlan.id, Known::Value(7));
        assert_eq!(vlan.protocol, Known::Value("802.1ad".to_owned()));
        assert_eq!(vlan.egress, Known::Value(vec![(0, 3), (6, 6)]));
        assert_eq!(vlan.ingress, Known::Value(vec![(2, 1)]));
        assert_eq!(
            lab.netlink.stack(&lab.nic).upper,
            Known::Value(vec![name("vlan7")])
        );
    });
}

#[test]
fn an_egress_map_becomes_what_is_wanted_whatever_it_was() {
    in_lab(|lab| {
        if !made("ip link add link near0 name vlan7 type vlan id 7 egress-qos-map 0:3 6:6") {
            return;
        }
        let vlan = name("vlan7");
        let before = BTreeMap::from([(0, 3), (6, 6)]);
        let other = BTreeMap::from([(6, 2), (17, 5)]);
        for wanted in [other, BTreeMap::new(), before] {
            let value = NicValue::VlanEgress(wanted.clone());
            lab.netlink
                .set_value(&vlan, &value)
                .expect("the kernel takes it");
            let now = lab.netlink.vlan_egress(&vlan);
            let now: BTreeMap<u32, u32> = now.value().expect("a VLAN").iter().copied().collect();
            assert_eq!(now, wanted);
        }
        let none = lab.netlink.vlan_egress(&lab.nic);
        assert_eq!(none.gap().map(|gap| gap.cause), Some(Cause::Absent));
    });
}

#[test]
fn a_tunnel_tells_its_ends() {
    in_lab(|lab| {
        let vxlan = "ip link add vx9 type vxlan id 9 dstport 4789 local 10.1.0.1 remote 10.1.0.2 \
                     dev near0 udpcsum";
        if made(vxlan) {
            let tunnel = lab.netlink.stack(&name("vx9")).tunnel.expect("a tunnel");
            assert_eq!((tunnel.id.get(), tunnel.port.get()), (Some(9), Some(4789)));
            assert_eq!(tunnel.local, Known::Value("10.1.0.1".to_owned()));
            assert_eq!(tunnel.remote, Known::Value("10.1.0.2".to_owned()));
            assert_eq!(tunnel.link, Known::Value(lab.nic.clone()));
            assert_eq!(tunnel.udp_checksum, Known::Value(true));
            assert_eq!(
                lab.netlink.stack(&lab.nic).upper,
                Known::Value(vec![name("vx9")])
            );
        }
        if made("ip link add gn type geneve id 8 remote fd00::2 noudp6zerocsumtx") {
            let tunnel = lab.netlink.stack(&name("gn")).tunnel.expect("a tunnel");
            assert_eq!(tunnel.remote, Known::Value("fd00::2".to_owned()));
            assert_eq!(tunnel.udp_checksum, Known::Value(true));
        }
        if made("ip link add g1 type gre local 10.1.0.1 remote 10.1.0.2 key 77 dev near0") {
            let tunnel = lab.netlink.stack(&name("g1")).tunnel.expect("a tunnel");
            assert_eq!(tunnel.id, Known::Value(77));
            assert_eq!(tunnel.link, Known::Value(lab.nic.clone()));
            assert_eq!(tunnel.port.gap().map(|gap| gap.cause), Some(Cause::Absent));
        }
    });
}

#[test]
fn a_bond_and_its_port_tell_their_state() {
    in_lab(|lab| {
        let line =
            "ip link add bond7 type bond mode active-backup miimon 100 xmit_hash_policy layer3+4";
        if !made(line) || !made("ip link set near0 down") || !made("ip link set near0 master bond7")
        {
            return;
        }
        let firmware = lab.netlink.card(&name("bond7")).firmware;
        assert!(firmware.gap().is_some(), "a bond has none: {firmware:?}");
        let bond = lab.netlink.stack(&name("bond7")).bond.expect("a bond");
        assert_eq!(bond.mode, Known::Value("active-backup".to_owned()));
        assert_eq!(bond.hash_policy, Known::Value("layer3+4".to_owned()));
        assert_eq!(bond.miimon_ms, Known::Value(100));
        assert_eq!(
            bond.partner_mac.gap().map(|gap| gap.cause),
            Some(Cause::Absent)
        );
        let stack = lab.netlink.stack(&lab.nic);
        let port = stack.bond_port.expect("a port");
        assert_eq!(port.bond, Known::Value(name("bond7")));
        assert!(port.state.value().is_some() && port.mii_status.value().is_some());
        assert_eq!(stack.upper, Known::Value(vec![name("bond7")]));
    });
}

#[test]
fn a_bridge_and_a_macvlan_tell_their_settings() {
    in_lab(|lab| {
        if made("ip link add br7 type bridge stp_state 1 vlan_filtering 1") {
            let bridge = lab.netlink.stack(&name("br7")).bridge.expect("a bridge");
            assert_eq!(bridge.stp, Known::Value(true));
            assert_eq!(bridge.vlan_filtering, Known::Value(true));
        }
        if made("ip link add link near0 name mv7 type macvlan mode vepa") {
            let mode = lab.netlink.stack(&name("mv7")).macvlan_mode;
            assert_eq!(mode, Some(Known::Value("vepa".to_owned())));
            // One parent carries macvlans or ipvlans, not both.
            lab.netlink.delete_link(&name("mv7")).expect("it was made");
        }
        if made("ip link add link near0 name ipv7 type ipvlan mode l3") {
            let mode = lab.netlink.stack(&name("ipv7")).macvlan_mode;
            assert_eq!(mode, Some(Known::Value("l3".to_owned())));
        }
    });
}

#[test]
fn a_tree_of_queueing_disciplines_is_read_with_its_classes_and_rates() {
    in_lab(|lab| {
        let shaping = lab.netlink.shaping(&lab.nic);
        let kinds = |tree: &Known<Vec<linerate_model::host::QdiscNode>>| -> Vec<String> {
            let tree = tree.value().expect("a tree");
            tree.iter().map(|node| node.kind.clone()).collect()
        };
        assert_eq!(kinds(&shaping.tree), ["noqueue"]);
        assert_eq!(shaping.dcb.gap().map(|gap| gap.cause), Some(Cause::Absent));
        for line in [
            "tc qdisc add dev near0 root handle 1: htb default 10",
            "tc class add dev near0 parent 1: classid 1:10 htb rate 50gbit ceil 100gbit",
            "tc class add dev near0 parent 1: classid 1:11 htb rate 5mbit",
            "tc qdisc add dev near0 parent 1:10 handle 2: tbf rate 10mbit burst 32k limit 100k",
        ] {
            if !made(line) {
                return;
            }
        }
        let shaping = lab.netlink.shaping(&lab.nic);
        assert_eq!(kinds(&shaping.tree), ["htb", "tbf"]);
        let tree = shaping.tree.value().expect("a tree");
        assert_eq!(tree[1].parent, 0x1_0010);
        assert_eq!(tree[1].rate_bit_per_s, Some(BitRate::from_mbit_per_s(10)));
        assert_eq!(tree[0].drops, Known::Value(0));
        assert_eq!(tree[0].offloaded, Known::Value(false));
        let classes = shaping.classes.value().expect("classes");
        let rates: Vec<_> = classes
            .iter()
            .map(|class| (class.handle, class.rate_bit_per_s, class.ceil_bit_per_s))
            .collect();
        let mbit = |rate| Some(BitRate::from_mbit_per_s(rate));
        assert_eq!(rates.len(), 2);
        assert!(
            rates.contains(&(0x1_0010, mbit(50_000), mbit(100_000))),
            "{rates:?}"
        );
        assert!(rates.contains(&(0x1_0011, mbit(5), mbit(5))), "{rates:?}");
        let counts = lab.netlink.counts(&lab.nic);
        assert!(counts.values.contains_key("qdisc/drops"), "{counts:?}");
    });
}

#[test]
fn rates_of_single_shapers_are_read() {
    in_lab(|lab| {
        for (options, rate) in [
            ("netem rate 30mbit", Some(30)),
            ("netem delay 1ms", None),
            ("cake bandwidth 20mbit", Some(20)),
            ("hfsc default 1", None),
        ] {
            if !made(&format!("tc qdisc replace dev near0 root {options}")) {
                continue;
            }
            let tree = lab.netlink.shaping(&lab.nic).tree;
            let root = &tree.value().expect("a tree")[0];
            assert_eq!(
                root.rate_bit_per_s,
                rate.map(BitRate::from_mbit_per_s),
                "{options}"
            );
            tool("tc qdisc del dev near0 root");
        }
    });
}

#[test]
fn polling_contexts_and_xdp_are_told_or_the_kernel_has_no_such_family() {
    in_lab(|lab| {
        let dispatch = lab.netlink.dispatch(&lab.nic);
        if let Some(gap) = dispatch.napis.gap() {
            assert_eq!(gap.cause, Cause::Absent, "{gap}");
            return skip("this kernel has no netdev family, or not its polling contexts");
        }
        let features = dispatch.xdp_features.value().expect("features");
        assert!(features.iter().any(|word| word == "basic"), "{features:?}");
        let card = lab.netlink.card(&lab.nic);
        assert_eq!(card.health.gap().map(|gap| gap.cause), Some(Cause::Absent));
    });
}

#[test]
fn a_tap_tells_what_ip_tells_of_it() {
    in_lab(|lab| {
        if !made("ip tuntap add tap7 mode tap user 7 vnet_hdr multi_queue") {
            return;
        }
        let tap = lab.netlink.stack(&name("tap7")).tun.expect("a tap");
        let Some(theirs) = json("ip -d -j link show dev tap7") else {
            return;
        };
        let theirs = &theirs[0]["linkinfo"]["info_data"];
        assert_eq!(
            tap.mode.value().map(String::as_str),
            theirs["type"].as_str()
        );
        assert_eq!(tap.owner, Known::Value(Some(7)));
        assert_eq!(tap.group, Known::Value(None));
        for (ours, key) in [
            (&tap.packet_information, "pi"),
            (&tap.vnet_header, "vnet_hdr"),
            (&tap.persistent, "persist"),
            (&tap.multi_queue, "multi_queue"),
        ] {
            assert_eq!(ours.get(), theirs[key].as_bool(), "{key}");
        }
        assert_eq!(tap.queues, Some(Known::Value(0)), "no program has it open");
    });
}

#[test]
fn nothing_is_told_of_an_unknown_interface() {
    in_lab(|lab| {
        let nobody = name("nobody0");
        let stack = lab.netlink.stack(&nobody);
        assert_eq!(
            stack.mtu_max.gap().map(|gap| gap.cause),
            Some(Cause::Absent)
        );
        assert!(lab.netlink.shaping(&nobody).tree.value().is_none());
        assert!(lab.netlink.dispatch(&nobody).napis.value().is_none());
        assert!(lab.netlink.counts(&nobody).values.is_empty());
    });
}
