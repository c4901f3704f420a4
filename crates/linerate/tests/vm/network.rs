//! Stacks of interfaces and qdiscs of this kernel, and streams over paths that netem spoils.

use serde_json::json;

use crate::guest::{APPLY, Guest, entry, finding};

/// Two hosts with a bond each, whose ports are joined; a VLAN and a tunnel on one of them.
const STACKS: &str = "
modprobe bonding max_bonds=0
for host in near far; do ip netns add $host; ip -n $host link add bond type bond mode 802.3ad miimon 100 lacp_rate fast; done
for port in 0 1; do
    ip -n near link add p$port type veth peer name p$port netns far
    for host in near far; do ip -n $host link set p$port master bond; ip -n $host link set p$port up; done
done
for host in near far; do ip -n $host link set bond up; done
ip -n near address add 10.79.0.1/24 dev bond
ip -n near link add link bond name bond.100 up type vlan id 100 egress-qos-map 0:1 3:3 ingress-qos-map 5:2
ip -n near link add vx type vxlan id 42 dev bond local 10.79.0.1 remote 10.79.0.2 dstport 4789
ip -n near link set vx up
far=$(ip netns exec far cat /sys/class/net/bond/address)
until ip netns exec near grep -q \"Partner Mac Address: $far\" /proc/net/bonding/bond; do sleep 0.1; done
";

pub(crate) fn vlans_bonds_and_tunnels_are_in_the_map(guest: &Guest) {
    guest.shell(STACKS);
    let map = guest.linerate_in("near", &["map"]);
    let host = &map["host"];
    let nic = |name: &str| entry(&host["nics"], "name", name);

    let vlan = nic("bond.100");
    assert_eq!(vlan["lower"], json!(["bond"]));
    assert_eq!(vlan["stack"]["vlan"]["id"], 100);
    assert_eq!(vlan["stack"]["vlan"]["egress"], json!([[0, 1], [3, 3]]));
    assert_eq!(vlan["stack"]["vlan"]["ingress"], json!([[5, 2]]));

    // What sent packets are tagged with is changed, and restored with the mappings that went; and by what a bond
    // chooses their port.
    let findings = guest.findings_in("near");
    let found = finding(&findings, "lag-hash-imbalance", "nic/bond");
    assert_eq!(found["severity"], "warn");
    for (key, value, look, before, after) in [
        (
            "vlan/egress",
            "3:5 6:6",
            "ip -n near -d link show bond.100 | grep -o 'egress-qos-map {[^}]*}'",
            "egress-qos-map { 0:1 3:3 }",
            "egress-qos-map { 3:5 6:6 }",
        ),
        (
            "bond/hash-policy",
            "layer3+4",
            "ip netns exec near cat /sys/class/net/bond/bonding/xmit_hash_policy",
            "layer2 0",
            "layer3+4 1",
        ),
    ] {
        let nic = if key.starts_with("vlan") {
            "bond.100"
        } else {
            "bond"
        };
        guest.shell(&format!(
            "printf '[settings]\\n\"nic/{nic}/{key}\" = \"{value}\"\\n' >/run/stack.toml"
        ));
        assert_eq!(guest.shell(look).trim(), before);
        guest.linerate_in("near", &[&APPLY[..], &["/run/stack.toml"]].concat());
        assert_eq!(guest.shell(look).trim(), after);
        guest.linerate_in("near", &["tune", "undo"]);
        assert_eq!(guest.shell(look).trim(), before);
    }

    let bond = nic("bond");
    assert_eq!(bond["lower"], json!(["p0", "p1"]));
    assert_eq!(bond["stack"]["bond"]["mode"], "802.3ad");
    assert_eq!(bond["stack"]["bond"]["lacp_rate"], "fast");
    let partner = guest.shell("ip netns exec far cat /sys/class/net/bond/address");
    assert_eq!(bond["stack"]["bond"]["partner_mac"], partner.trim());
    assert_eq!(nic("p1")["stack"]["bond_port"]["bond"], "bond");

    let tunnel = nic("vx");
    assert_eq!(tunnel["lower"], json!(["bond"]));
    for (what, value) in [
        ("kind", json!("vxlan")),
        ("id", json!(42)),
        ("port", json!(4789)),
        ("remote", json!("10.79.0.2")),
    ] {
        assert_eq!(tunnel["stack"]["tunnel"][what], value, "{tunnel:#}");
    }

    // The way below the tunnel gets narrower than what it takes.
    guest.shell("ip -n near link set bond mtu 1450");
    let findings = guest.findings_in("near");
    let found = finding(&findings, "mtu-mismatch", "nic/vx");
    assert_eq!(found["severity"], "crit");
    guest.shell("ip netns del near; ip netns del far");
}

pub(crate) fn a_bond_tells_the_port_that_took_over(guest: &Guest) {
    guest.shell(
        "modprobe bonding max_bonds=0
        ip link add pair type bond mode active-backup miimon 100
        for port in 0 1; do
            ip link add p$port type veth peer name q$port
            ip link set p$port master pair; ip link set p$port up; ip link set q$port up
        done
        ip link set pair up
        active() { until grep -qx $1 /sys/class/net/pair/bonding/active_slave; do sleep 0.1; done; }
        active p0
        ip link set q0 down
        active p1",
    );
    let host = guest.map();
    let nic = |name: &str| entry(&host["nics"], "name", name);
    assert_eq!(nic("pair")["stack"]["bond"]["mode"], "active-backup");
    assert_eq!(nic("pair")["stack"]["bond"]["active_slave"], "p1");
    let lost = &nic("p0")["stack"]["bond_port"];
    assert_eq!(
        (&lost["state"], &lost["mii_status"], &lost["link_failures"]),
        (&json!("backup"), &json!("down"), &json!(1))
    );
    guest.shell("ip link del pair; ip link del p0; ip link del p1");
}

pub(crate) fn queueing_disciplines_are_in_the_map_and_judged(guest: &Guest) {
    guest.shell(
        "for nic in n0 n1; do ip link set $nic up; done
        tc qdisc add dev n0 root handle 100: mqprio num_tc 2 map 0 0 0 1 queues 2@0 2@2 hw 0
        tc qdisc replace dev n0 parent 100:1 handle 10: ets bands 4 strict 2 quanta 3000 1500
        tc qdisc add dev n1 root handle 1: htb default 10
        tc class add dev n1 parent 1: classid 1:10 htb rate 100mbit
        tc qdisc add dev n1 parent 1:10 handle 10: netem delay 5ms loss 1%",
    );
    let host = guest.map();
    let shaping = |name: &str| &entry(&host["nics"], "name", name)["shaping"];

    let (tree, classes) = (&shaping("n0")["tree"], &shaping("n0")["classes"]);
    let queue = entry(tree, "kind", "mqprio")["handle"]
        .as_u64()
        .expect("a handle")
        + 1;
    assert_eq!(entry(tree, "kind", "ets")["parent"], queue);
    let is_band = |class: &&serde_json::Value| class["kind"] == "ets";
    let bands = classes.as_array().expect("classes").iter().filter(is_band);
    assert_eq!(bands.count(), 4);

    let (tree, classes) = (&shaping("n1")["tree"], &shaping("n1")["classes"]);
    assert_eq!(entry(tree, "kind", "htb")["rate_bit_per_s"], 100_000_000);
    let class = &entry(classes, "kind", "htb")["handle"];
    assert_eq!(&entry(tree, "kind", "netem")["parent"], class);

    let findings = guest.findings();
    let found = finding(&findings, "qdisc-shaper", "nic/n1");
    assert!(
        found["summary"].to_string().contains("100.0 Mb/s"),
        "{found:#}"
    );
    guest.shell("for nic in n0 n1; do tc qdisc del dev $nic root; done");
}

/// Two hosts on this kernel, and a round trip of 40 ms between them: rates far below what emulated CPUs
/// can do, also on a busy machine.
const PATH: &str = "
for host in near far; do ip netns del $host 2>/dev/null || true; ip netns add $host; done
ip -n near link add near0 type veth peer name far0 netns far
ip -n near address add 10.77.0.1/24 dev near0
ip -n far address add 10.77.0.2/24 dev far0
for host in near far; do
    ip -n $host link set lo up; ip -n $host link set $host'0' up
    tc -n $host qdisc add dev $host'0' root netem delay 20ms limit 10000
done
";
const NO_PATH: &str = "ip netns del near; ip netns del far";

pub(crate) fn loss_on_the_way_is_named(guest: &Guest) {
    guest.shell(PATH);
    guest.shell("tc -n near qdisc change dev near0 root netem delay 20ms limit 10000 loss 3%");
    let measured = measure(guest);
    assert_eq!(measured["limit"]["what"], "loss", "{:#}", measured["limit"]);
    guest.shell(NO_PATH);
}

pub(crate) fn a_window_below_what_the_round_trip_holds_is_named(guest: &Guest) {
    guest.shell(PATH);
    guest.shell("ip netns exec far sysctl -qw net.ipv4.tcp_rmem='4096 65536 65536'");
    let measured = measure(guest);
    let limit = &measured["limit"];
    assert_eq!(limit["what"], "window / RTT", "{limit:#}");
    assert_eq!(limit["rule"], "tcp-buffer-below-bdp");
    // The whole buffer in each round trip is the maximum.
    let rate = measured["total"]["rate_bit_per_s"]
        .as_f64()
        .expect("a rate");
    assert!(rate > 0.0 && rate < 65_536.0 * 8.0 / 0.040, "{rate} bit/s");
    guest.shell(NO_PATH);
}

#[track_caller]
fn measure(guest: &Guest) -> serde_json::Value {
    guest.linerate_in("near", &["measure", "stream", "netns:far", "--time", "3"])
}
