//! `qos` with what network namespaces of a common host lack: VLANs, bonds and traffic classes of queues. Report 000's three
//! VLANs, at a hundredth of their rates.

use crate::guest::{DISK, Done, Guest};

/// What `apply` may touch, as other programs print it, without what counts or ages.
const SEEN: &str = "for nic in n0 n1; do
        tc -j -d qdisc show dev $nic; tc -j -d class show dev $nic; tc -j -d filter show dev $nic
    done
    ip -j -d link; ip -j addr; nft -j list ruleset";

/// The link has a carrier, and its own IPv6 address is known to be unique.
const SETTLED: &str = "until [ \"$(cat /sys/class/net/n0/carrier)\" = 1 ]; do :; done
        while ip -6 addr show dev n0 | grep -q tentative; do sleep 0.1; done";

/// The report's file.
fn write(guest: &Guest, mechanism: &str) {
    guest.shell(&format!(
        "cat >/run/classes.toml <<'END'
[qos]
interface = \"n0\"
mechanism = \"{mechanism}\"

[[class]]
name = \"low\"
vlan = 10
address = \"12.0.10.2/24\"
limit = \"10mbit\"
priority = 1

[[class]]
name = \"middle\"
vlan = 11
address = \"12.0.11.2/24\"
limit = \"50mbit\"
priority = 2

[[class]]
name = \"high\"
vlan = 12
address = \"12.0.12.2/24\"
limit = \"none\"
priority = 3
END
        ip link set n0 up
        {SETTLED}"
    ));
}

fn qos(guest: &Guest, words: &[&str]) -> Done {
    let command = Guest::command();
    let done = guest.run(&["bash", "-c", &format!("{command} qos {}", words.join(" "))]);
    assert_eq!(done.code, 0, "{words:?}: {}{}", done.out, done.err);
    done
}

fn seen(guest: &Guest) -> String {
    guest.shell(SEEN)
}

pub(crate) fn three_vlans_are_made_limited_and_taken_away_to_the_byte(guest: &Guest) {
    for mechanism in ["htb", "mqprio"] {
        write(guest, mechanism);
        let before = seen(guest);
        qos(guest, &["apply", "/run/classes.toml", "--no-confirm"]);
        let maps = guest.shell("ip -d link show n0.11; ip addr show n0.11");
        assert!(maps.contains("vlan protocol 802.1Q id 11"), "{maps}");
        assert!(maps.contains("0:2 1:2"), "{maps}");
        assert!(maps.contains("12.0.11.2/24"), "{maps}");
        let qdiscs = guest.shell("tc qdisc show dev n0");
        assert!(qdiscs.contains(mechanism), "{qdiscs}");
        // Each class's frames pass it.
        let class = match mechanism {
            "htb" => "tc -s class show dev n0 | grep -A 1 'class htb 1:10 '",
            _ => "tc -s qdisc show dev n0 | grep -A 1 'qdisc tbf'",
        };
        guest.shell(
            "arp() { ip neigh replace 12.0.10.1 lladdr 52:54:00:00:00:01 dev n0.10; }; arp
            for number in 1 2 3 4 5; do echo x >/dev/udp/12.0.10.1/9; done",
        );
        let sent = guest.shell(class);
        assert!(
            sent.contains("Sent ") && !sent.contains("Sent 0 bytes"),
            "{sent}"
        );
        let status = qos(guest, &["status"]).out;
        assert!(status.contains("the host has all of the file"), "{status}");
        guest.shell("ip neigh flush all");
        qos(guest, &["undo"]);
        assert_eq!(seen(guest), before, "{mechanism}");
    }
    guest.shell("ip link set n0 down");
}

pub(crate) fn what_persists_is_made_at_each_boot_and_undone_for_good(guest: &Guest) {
    guest.power_cut();
    write(guest, "htb");
    let before = seen(guest);
    guest.shell(&format!("mkdir -p {DISK}/etc/systemd/system"));
    let etc = format!("{DISK}/etc");
    qos(guest, &["apply", "/run/classes.toml", "--no-confirm"]);
    let held = || {
        guest.shell(
            "tc -d class show dev n0 | grep htb; nft -j list ruleset; ip -d link show n0.10 | sed 1d",
        )
    };
    let with = held();
    qos(guest, &["persist", "--etc", &etc]);
    for boot in 0..2 {
        guest.power_cut();
        guest.shell(&format!("ip link set n0 up; {SETTLED}"));
        let done = guest.run(&["bash", "-c", &format!("exec {etc}/linerate/boot")]);
        assert_eq!(done.code, 0, "boot {boot}: {}", done.err);
        assert_eq!(held(), with, "boot {boot}");
    }
    qos(guest, &["undo"]);
    assert_eq!(seen(guest), before);
    let gone = guest.shell(&format!("ls {etc}/linerate 2>/dev/null || true"));
    assert_eq!(gone, "");
    guest.shell("ip link set n0 down");
}
