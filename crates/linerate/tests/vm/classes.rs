//! Traffic classes on a kernel with VLANs, every qdisc and every kind of filter: VLAN devices made and removed, hierarchies
//! with leaves, and those of others restored.

use crate::guest::{Done, Guest};

/// Applies settings, given as `key = value` lines of a plan file.
fn apply(guest: &Guest, netns: &str, settings: &str) -> Done {
    let linerate = Guest::command();
    let script = format!(
        "cat >/run/classes.toml <<'END'\n[settings]\n{settings}\nEND\n\
        ip netns exec {netns} {linerate} tune apply --no-confirm --deadline 36000 --from /run/classes.toml"
    );
    guest.run(&["bash", "-c", &script])
}

fn undo(guest: &Guest, netns: &str) {
    let linerate = Guest::command();
    guest.shell(&format!("ip netns exec {netns} {linerate} tune undo"));
}

/// A host with a virtual Ethernet interface of eight queues.
const HOST: &str = "ip netns add classes; ip netns add other
ip -n classes link add eth1 numtxqueues 8 numrxqueues 8 type veth peer name eth2 netns other numtxqueues 8 numrxqueues 8
ip netns exec classes sysctl -qw net.ipv6.conf.eth1.accept_dad=0 net.ipv6.conf.default.accept_dad=0
ip -n classes link set eth1 up; ip -n other link set eth2 up";
const GONE: &str = "ip netns del classes; ip netns del other";

/// What ip(8) and tc(8) print of a VLAN device.
const LOOK: &str = "ip -n classes -j -d link; ip -n classes -j -d addr; ip -n classes -j route
tc -n classes -j -d qdisc; ip netns exec classes sysctl -a 2>/dev/null | grep '[.]v20[.]' || true";

pub(crate) fn vlan_devices_are_made_and_removed_and_undone_whole(guest: &Guest) {
    guest.shell(HOST);
    let look = || guest.shell(LOOK);
    let before = look();
    let made = apply(
        guest,
        "classes",
        "\"nic/v10/vlan/link\" = \"eth1 id 10\"\n\"nic/v10/up\" = true\n\
        \"nic/v10/addresses\" = \"12.0.10.2/24 2001:db8::1/64\"\n\"nic/v10/vlan/egress\" = \"0:1 3:3\"\n\
        \"nic/v10/qdisc\" = \"htb default 10 class 1 rate 1gbit quantum 9000 class 10 parent 1 rate 50mbit leaf fq_codel\"",
    );
    assert_eq!(made.code, 0, "{made:#?}");
    let now = look();
    for part in [
        "\"id\":10",
        "12.0.10.2",
        "2001:db8::1",
        "\"from\":3,\"to\":3",
        "fq_codel",
    ] {
        assert!(now.contains(part), "{part}: {now}");
    }
    undo(guest, "classes");
    assert_eq!(look(), before);

    // Somebody else's device, with what it has.
    guest.shell(
        "ip -n classes link add link eth1 name v20 type vlan id 20 gvrp on egress-qos-map 1:1 6:5
        ip -n classes link set v20 mtu 1400 up
        ip -n classes addr add 12.0.20.2/24 brd + dev v20; ip -n classes addr add 2001:db8:20::1/64 dev v20 nodad
        ip netns exec classes sysctl -qw net.ipv4.conf.v20.rp_filter=2 net.ipv6.conf.v20.accept_ra=0
        tc -n classes qdisc add dev v20 root handle 7: fq limit 500",
    );
    let before = look();
    let removal = "\"nic/v20/vlan/link\" = \"none\"";
    let gone = apply(guest, "classes", removal);
    assert_eq!(gone.code, 0, "{gone:#?}");
    assert!(!guest.shell("ip -n classes link").contains("v20"));
    undo(guest, "classes");
    assert_eq!(look(), before);
    for (there, clear, why) in [
        (
            "ip -n classes link add link v20 name m20 type macvlan",
            "ip -n classes link del m20",
            "m20 is on v20",
        ),
        (
            "ip -n classes route add 198.51.100.0/24 via 12.0.20.9",
            "ip -n classes route del 198.51.100.0/24",
            "IPv4 routes",
        ),
        (
            "ip -n classes link set v20 alias one",
            "ip -n classes link set v20 alias ''",
            "an alias",
        ),
        (
            "ip -n classes neigh add 12.0.20.7 lladdr 02:00:00:00:00:07 dev v20",
            "ip -n classes neigh del 12.0.20.7 dev v20",
            "permanent neighbor",
        ),
    ] {
        guest.shell(there);
        let before = look();
        let refused = apply(guest, "classes", removal);
        assert_eq!(refused.code, 22, "{there}: {refused:#?}");
        assert!(refused.err.contains(why), "{refused:#?}");
        assert_eq!(look(), before);
        guest.shell(clear);
    }
    guest.shell(GONE);
}

pub(crate) fn leaves_of_queues_and_classes_are_made_and_undone(guest: &Guest) {
    guest.shell(HOST);
    let told = || {
        guest.shell(
            "(tc -n classes -d qdisc show dev eth1; tc -n classes -d class show dev eth1) | sed 's/ [89a-f][0-9a-f]*:/ H:/g'",
        )
    };
    let before = told();
    for (words, shown) in [
        (
            "mqprio num_tc 3 map 0 1 2 queues 1@0 1@1 2@2 hw 0 leaf 1 tbf rate 1gbit burst 128k latency 50ms leaf 3 fq limit 500",
            "limit 500p",
        ),
        (
            "mq leaf 1 fq_codel limit 77 leaf 8 fq maxrate 1gbit",
            "limit 77p",
        ),
        (
            "htb default 30 class 1 rate 10gbit quantum 60000 class 10 parent 1 rate 50mbit leaf fq limit 55 \
            class 30 parent 1 rate 5gbit ceil 10gbit quantum 60000 leaf fq_codel limit 66 target 7ms",
            "limit 66p",
        ),
    ] {
        let settings = format!("\"nic/eth1/qdisc\" = \"{words}\"");
        let made = apply(guest, "classes", &settings);
        assert_eq!(made.code, 0, "{words}: {made:#?}");
        assert!(told().contains(shown), "{words}: {}", told());
        let again = apply(guest, "classes", &settings);
        assert_eq!(again.out, "no changes\n", "{words}: {again:#?}");
        undo(guest, "classes");
        assert_eq!(told(), before, "{words}");
    }
    // This driver has no classes of its own.
    let refused = apply(
        guest,
        "classes",
        "\"nic/eth1/qdisc\" = \"mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 1 mode channel shaper bw_rlimit max_rate 1gbit 5gbit\"",
    );
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert_eq!(told(), before);
    guest.shell(GONE);
}

/// Hierarchies with filters of each kind.
const FOREIGN: [&str; 3] = [
    "tc qdisc add dev eth1 root handle 1: htb default 30
    tc class add dev eth1 parent 1: classid 1:10 htb rate 50mbit
    tc class add dev eth1 parent 1: classid 1:30 htb rate 500mbit quantum 9000
    tc qdisc add dev eth1 parent 1:10 handle 10: sfq perturb 10
    tc filter add dev eth1 parent 1: protocol ip prio 1 handle 7 fw classid 1:10
    tc filter add dev eth1 parent 1: protocol ip prio 2 handle 0x8/0xff fw classid 1:30
    tc filter add dev eth1 parent 1: protocol ip prio 3 basic match 'meta(priority eq 5)' classid 1:10
    tc filter add dev eth1 parent 1: protocol ip prio 4 flower ip_proto tcp dst_port 5001 classid 1:10
    tc filter add dev eth1 parent 1: protocol 802.1Q prio 5 flower vlan_id 10 classid 1:30
    tc filter add dev eth1 parent 1: protocol ipv6 prio 6 flower src_ip 2001:db8::/32 skip_hw classid 1:30
    tc filter add dev eth1 parent 1: protocol ip prio 7 u32 match ip tos 0x88 0xfc flowid 1:10
    tc filter add dev eth1 parent 1: prio 9 matchall classid 1:30",
    "tc qdisc add dev eth1 root handle 5: prio bands 4 priomap 0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3
    tc qdisc add dev eth1 parent 5:2 handle 52: tbf rate 10mbit burst 16k limit 64k
    tc qdisc add dev eth1 parent 5:3 handle 53: fq_codel limit 33
    tc filter add dev eth1 parent 5: protocol ip prio 1 flower ip_proto udp dst_port 53 classid 5:1",
    "tc qdisc add dev eth1 root handle 100: mqprio num_tc 2 map 0 0 0 1 queues 2@0 2@2 hw 0
    tc qdisc replace dev eth1 parent 100:1 handle 11: ets bands 4 strict 2 quanta 3000 1500
    tc qdisc replace dev eth1 parent 100:3 handle 13: fq limit 313",
];

pub(crate) fn hierarchies_of_others_are_restored_with_filters_of_each_kind(guest: &Guest) {
    guest.shell(HOST);
    let look = "tc -j -d qdisc show dev eth1; tc -j -d class show dev eth1
        for parent in 1: 5: 100: 10: 11:; do tc -j -d filter show dev eth1 parent $parent 2>/dev/null || true; done";
    let told = || guest.shell(&format!("ip netns exec classes bash -c '{look}'"));
    for there in FOREIGN {
        let script = there.replace('\'', "\"");
        guest.shell(&format!("ip netns exec classes bash -ec '{script}'"));
        let before = told();
        for words in ["pfifo limit 9", "htb default 2 class 2 rate 1gbit leaf fq"] {
            let made = apply(
                guest,
                "classes",
                &format!("\"nic/eth1/qdisc\" = \"{words}\""),
            );
            assert_eq!(made.code, 0, "{there}: {made:#?}");
            assert_ne!(told(), before);
            undo(guest, "classes");
            assert_eq!(told(), before, "{there}");
        }
        guest.shell("tc -n classes qdisc del dev eth1 root");
    }
    for there in [
        "tc qdisc add dev eth1 root handle 1: htb; tc filter add dev eth1 parent 1: prio 1 matchall action gact drop",
        "tc qdisc add dev eth1 root handle 1: htb; tc class add dev eth1 parent 1: classid 1:1 htb rate 1gbit
        tc qdisc add dev eth1 parent 1:1 netem delay 1ms",
    ] {
        guest.shell(&format!("ip netns exec classes bash -ec '{there}'"));
        let before = told();
        let refused = apply(guest, "classes", "\"nic/eth1/qdisc\" = \"pfifo limit 9\"");
        assert_eq!(refused.code, 22, "{there}: {refused:#?}");
        assert_eq!(told(), before);
        guest.shell("tc -n classes qdisc del dev eth1 root");
    }
    guest.shell(GONE);
}
