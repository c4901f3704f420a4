//! Stacks of interfaces and queueing disciplines of this kernel, and streams over paths that netem spoils.

use serde_json::json;

use crate::guest::{Guest, entry};

const STACK: &str = "
ip link set n0 up; ip link set n1 up
ip link add link n0 name n0.100 type vlan id 100 egress-qos-map 0:1 3:3
modprobe bonding max_bonds=0
for bond in a b; do ip link add bond-$bond type bond mode 802.3ad miimon 100 lacp_rate fast; done
for port in 0 1; do
    ip link add a$port type veth peer name b$port
    for bond in a b; do ip link set $bond$port master bond-$bond; done
done
for nic in bond-a bond-b a0 a1 b0 b1; do ip link set $nic up; done
tc qdisc add dev n1 root handle 1: htb default 10
tc class add dev n1 parent 1: classid 1:10 htb rate 100mbit
tc qdisc add dev n1 parent 1:10 handle 10: netem delay 5ms loss 1%
until grep -q \"Partner Mac Address: $(cat /sys/class/net/bond-b/address)\" /proc/net/bonding/bond-a; do :; done
";

pub(crate) fn vlans_bonds_and_shaping_are_in_the_map(guest: &Guest) {
    guest.shell(STACK);
    let host = guest.map();
    let nic = |name: &str| entry(&host["nics"], "name", name);

    let vlan = nic("n0.100");
    assert_eq!(vlan["lower"], json!(["n0"]));
    assert_eq!(vlan["stack"]["vlan"]["id"], 100);
    assert_eq!(vlan["stack"]["vlan"]["egress"], json!([[0, 1], [3, 3]]));

    let bond = nic("bond-a");
    assert_eq!(bond["lower"], json!(["a0", "a1"]));
    assert_eq!(bond["stack"]["bond"]["mode"], "802.3ad");
    assert_eq!(nic("a1")["stack"]["bond_port"]["bond"], "bond-a");

    let shaping = &nic("n1")["shaping"];
    assert_eq!(
        entry(&shaping["tree"], "kind", "htb")["rate_bit_per_s"],
        100_000_000
    );
    let class = &entry(&shaping["classes"], "kind", "htb")["handle"];
    assert_eq!(&entry(&shaping["tree"], "kind", "netem")["parent"], class);

    guest.shell(
        "ip link del n0.100; ip link del bond-a; ip link del bond-b; tc qdisc del dev n1 root",
    );
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
    assert_eq!(limit["what"], "the window over the round trip", "{limit:#}");
    assert_eq!(limit["rule"], "tcp-buffer-below-bdp");
    // All of the buffer in each round trip is the most that can be.
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
