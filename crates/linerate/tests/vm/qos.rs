//! `qos` with what network namespaces of a common host lack: VLANs, bonds, traffic classes of queues. Report 000's three
//! VLANs with its IDs and priorities, at a hundredth of their rates.

use serde_json::Value;

use crate::cards;
use crate::guest::{DISK, Done, Guest, entry};
use crate::schema::fitting;

/// What `apply` may touch, as other programs print it, without what counts or ages.
fn seen(guest: &Guest, nics: &str) -> String {
    guest.shell(&format!(
        "for nic in {nics}; do
            tc -j -d qdisc show dev $nic; tc -j -d class show dev $nic; tc -j -d filter show dev $nic
        done
        ip -j -d link; ip -j addr; nft -j list ruleset"
    ))
}

/// The link has a carrier, and its own IPv6 address is known to be unique.
const SETTLED: &str = "until [ \"$(cat /sys/class/net/n0/carrier)\" = 1 ]; do :; done
        while ip -6 addr show dev n0 | grep -q tentative; do sleep 0.1; done";

/// The report's file for an interface; without `mechanism`, linerate chooses it.
fn file(guest: &Guest, interface: &str, mechanism: Option<&str>) {
    let mechanism = mechanism.map_or_else(String::new, |word| format!("mechanism = \"{word}\""));
    guest.shell(&format!(
        "cat >/run/classes.toml <<'END'
[qos]
interface = \"{interface}\"
{mechanism}

[[class]]
name = \"low\"
vlan = 10
address = \"12.0.10.2/24\"
limit = \"10mbit\"
priority = 1

[[class]]
name = \"middle\"
vlan = 20
address = \"12.0.20.2/24\"
limit = \"50mbit\"
priority = 3

[[class]]
name = \"high\"
vlan = 30
address = \"12.0.30.2/24\"
limit = \"none\"
priority = 5
END"
    ));
}

/// Where it is.
const FILE: &str = "/run/classes.toml";

fn write(guest: &Guest, mechanism: &str) {
    file(guest, "n0", Some(mechanism));
    guest.shell(&format!("ip link set n0 up\n{SETTLED}"));
}

fn qos(guest: &Guest, words: &[&str]) -> Done {
    let command = Guest::command();
    let done = guest.run(&["bash", "-c", &format!("{command} qos {}", words.join(" "))]);
    assert_eq!(done.code, 0, "{words:?}: {}{}", done.out, done.err);
    done
}

/// With a deadline that does not pass: the clock leaps while programs are read from the host.
fn apply(guest: &Guest, file: &str) -> Done {
    qos(
        guest,
        &["apply", file, "--no-confirm", "--deadline", "36000"],
    )
}

pub(crate) fn three_vlans_are_made_limited_and_taken_away_to_the_byte(guest: &Guest) {
    for mechanism in ["htb", "mqprio"] {
        write(guest, mechanism);
        let before = seen(guest, "n0 n1");
        apply(guest, "/run/classes.toml");
        let maps = guest.shell("ip -d link show n0.20; ip addr show n0.20");
        assert!(maps.contains("vlan protocol 802.1Q id 20"), "{maps}");
        assert!(maps.contains("0:3 1:3"), "{maps}");
        assert!(maps.contains("12.0.20.2/24"), "{maps}");
        let qdiscs = guest.shell("tc qdisc show dev n0");
        assert!(qdiscs.contains(mechanism), "{qdiscs}");
        // Each class's frames pass it.
        let class = match mechanism {
            "htb" => "tc -s class show dev n0 | grep -A 1 'class htb 1:10 '",
            _ => "tc -s qdisc show dev n0 | grep -A 1 'qdisc tbf'",
        };
        guest.shell(
            "for id in 10 20; do
                ip neigh replace 12.0.$id.1 lladdr 52:54:00:00:00:01 dev n0.$id
                for number in 1 2 3 4 5; do echo x >/dev/udp/12.0.$id.1/9; done
            done",
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
        assert_eq!(seen(guest, "n0 n1"), before, "{mechanism}");
    }
    guest.shell("ip link set n0 down");
}

/// One VLAN with one class, of which a boot is quick.
fn small_file(guest: &Guest) {
    guest.shell(
        "cat >/run/classes.toml <<'END'
[qos]
interface = \"n0\"
mechanism = \"htb\"

[[class]]
name = \"low\"
vlan = 10
address = \"12.0.10.2/24\"
limit = \"10mbit\"
priority = 1
END",
    );
}

/// Three boots; `bench/crash --boots 10` makes ten.
pub(crate) fn what_persists_is_made_at_each_boot_and_undone_for_good(guest: &Guest) {
    guest.power_cut();
    small_file(guest);
    guest.shell(&format!("ip link set n0 up\n{SETTLED}"));
    let before = seen(guest, "n0 n1");
    guest.shell(&format!("mkdir -p {DISK}/etc/systemd/system"));
    let etc = format!("{DISK}/etc");
    apply(guest, FILE);
    let held = || {
        guest.shell(
            "tc -d class show dev n0 | grep htb; nft -j list ruleset; ip -d link show n0.10 | sed 1d
            ip addr show n0.10 | grep 'inet '",
        )
    };
    let with = held();
    qos(guest, &["persist", "--etc", &etc, "--deadline", "36000"]);
    for boot in 0..3 {
        guest.power_cut();
        guest.shell(&format!("ip link set n0 up; {SETTLED}"));
        let done = guest.run(&["bash", "-c", &format!("exec {etc}/linerate/boot")]);
        assert_eq!(done.code, 0, "boot {boot}: {}", done.err);
        assert_eq!(held(), with, "boot {boot}");
    }
    qos(guest, &["undo"]);
    assert_eq!(seen(guest, "n0 n1"), before);
    let gone = guest.shell(&format!("ls {etc}/linerate 2>/dev/null || true"));
    assert_eq!(gone, "");
    guest.shell("ip link set n0 down");
}

/// Of an apply that is killed (SIGKILL), alone or with its reverter, all is there or nothing.
pub(crate) fn an_apply_that_is_killed_at_a_step_is_rolled_back_whole(guest: &Guest) {
    /// Spread over all steps, with the last ones: those of the commit.
    const KILLS: u32 = 4;
    write(guest, "htb");
    let before = seen(guest, "n0 n1");
    let apply = format!(
        "{} qos apply {FILE} --no-confirm --deadline 36000",
        Guest::command()
    );
    let steps = guest.shell(&format!(
        "LINERATE_COUNT_STEPS=maker:/run/steps {apply} >&2; cat /run/steps"
    ));
    qos(guest, &["undo"]);
    assert_eq!(seen(guest, "n0 n1"), before);
    let steps: u32 = steps.trim().parse().expect("a number of steps");
    let mut old = 0;
    for kill in 1..=KILLS {
        let step = kill * steps / KILLS;
        for victim in ["self", "both"] {
            // `cat` ends with the last one who could write to it: the reverter.
            let killed = guest.shell(&format!(
                "{{ LINERATE_CRASH=maker:{step}:{victim} {apply} || echo code $?; }} 2>&1 | cat"
            ));
            assert!(killed.contains("code 137"), "step {step}: {killed}");
            guest.linerate(&["tune", "recover"]);
            if seen(guest, "n0 n1") == before {
                old += 1;
                continue;
            }
            let status = qos(guest, &["status"]).out;
            assert!(
                status.contains("the host has all of the file"),
                "{victim} at step {step} of {steps}: {status}"
            );
            qos(guest, &["undo"]);
            assert_eq!(seen(guest, "n0 n1"), before, "{victim} at step {step}");
        }
    }
    // Only the last steps are after the commit.
    assert!(old >= KILLS, "{old} of {} were rolled back", 2 * KILLS);
    guest.shell("ip link set n0 down");
}

/// Runs `qos verify` with few and short trials; 200 ms read 102 % of a limit that holds in 1 s.
fn verify(guest: &Guest, peer: &str) -> (Done, Value) {
    verify_with(guest, peer, "--time 1s --flows 2")
}

/// Runs `qos verify` with the fewest rounds.
fn verify_with(guest: &Guest, peer: &str, words: &str) -> (Done, Value) {
    let command = Guest::command();
    let done = guest.run(&[
        "bash",
        "-c",
        &format!("{command} --format json qos verify {FILE} {peer} --rounds 3 {words}"),
    ]);
    assert!(matches!(done.code, 0 | 11 | 12), "{}{}", done.out, done.err);
    let document = fitting(&done.out);
    (done, document)
}

fn class<'a>(document: &'a Value, name: &str) -> &'a Value {
    let classes = document["directions"][0]["classes"].as_array();
    let mut classes = classes.expect("a list").iter();
    let found = classes.find(|class| class["class"] == name);
    found.unwrap_or_else(|| panic!("class {name}: {document:#}"))
}

/// No class fails, and a limit that holds is within 1 %. A host that is busy may leave one unjudged.
#[track_caller]
fn assert_holds(done: &Done, document: &Value) {
    assert_ne!(done.code, 11, "{}\n{document:#}", done.err);
    for class in document["directions"][0]["classes"]
        .as_array()
        .expect("a list")
    {
        let share = class["share_of_limit"]["median"].as_f64();
        if let (Some(share), "holds") = (share, class["verdict"].as_str().expect("a word")) {
            assert!((share - 1.0).abs() <= 0.01, "{class:#}");
        }
    }
}

/// The report's VLANs at the other end of a link, in namespace `far`.
fn far_vlans(guest: &Guest, port: &str) {
    guest.shell(&format!(
        "for id in 10 20 30; do
            ip -n far link add link {port} name {port}.$id type vlan id $id
            ip -n far addr add 12.0.$id.1/24 dev {port}.$id
            ip -n far link set {port}.$id up
        done"
    ));
}

/// A bond of two veths, and at their other ends a bridge or another bond with LACP.
fn bonds(guest: &Guest, mode: &str) {
    let (near, far) = if mode == "active-backup" {
        (String::new(), "bridge".to_owned())
    } else {
        let lacp = "lacp_rate fast xmit_hash_policy layer3+4".to_owned();
        (lacp.clone(), format!("bond mode {mode} miimon 50 {lacp}"))
    };
    guest.shell(&format!(
        "ip netns add far
        ip link add b0 type bond mode {mode} miimon 50 {near}; ip -n far link add br0 type {far}
        for near in 0 2; do
            port=$((near + 1))
            ip link add f$near numtxqueues 4 numrxqueues 4 type veth peer name f$port netns far \
                numtxqueues 4 numrxqueues 4
            ip link set f$near master b0; ip -n far link set f$port master br0
            ip link set f$near up; ip -n far link set f$port up
        done
        ip link set b0 up; ip -n far link set br0 up
        until [ {mode} = active-backup ] || [ \"$(cat /sys/class/net/b0/bonding/ad_num_ports)\" = 2 ]; do
            sleep 0.1
        done
        until [ {mode} = active-backup ] || [ $(grep -c 'port state: 63' /proc/net/bonding/b0) = 4 ]; do
            sleep 0.1
        done
        until ip -6 addr show dev b0 | grep -q 'scope link'; do sleep 0.1; done
        while ip -6 addr show dev b0 | grep -q tentative; do sleep 0.1; done"
    ));
    far_vlans(guest, "br0");
}

pub(crate) fn limits_hold_on_bonds_and_a_port_without_one_and_a_forgotten_map_are_named(
    guest: &Guest,
) {
    for (mode, mechanism, holders) in [
        ("active-backup", "mqprio", "f0 f2"),
        ("802.3ad", "htb", "b0"),
    ] {
        bonds(guest, mode);
        file(guest, "b0", None);
        // One class has few trials.
        guest.shell("sed -i -e '5,10d' -e '18,$d' /run/classes.toml");
        let nics = "b0 f0 f2";
        let before = seen(guest, nics);
        let made = apply(guest, "/run/classes.toml").out;
        for nic in holders.split(' ') {
            let limits = format!("nic/{nic}/qdisc: noqueue -> {mechanism} ");
            assert!(made.contains(&limits), "{made}");
        }
        let (done, document) = verify(guest, "netns:far");
        assert_holds(&done, &document);
        if mode == "active-backup" {
            // The port that does not send.
            guest.shell("tc qdisc del dev f2 root; ip link set b0.20 type vlan egress-qos-map 0:0");
            let (done, document) = verify(guest, "netns:far");
            assert_eq!(done.code, 11, "{document:#}");
            let reasons = class(&document, "middle")["reasons"].to_string();
            for reason in [
                "f2 has no token bucket of 50.00 Mb/s, so nothing limits it to that there",
                "the egress map of b0.20 does not map socket priority 0 to 3: its frames leave with PCP 0, not 3",
            ] {
                assert!(reasons.contains(reason), "{reasons}");
            }
            apply(guest, "/run/classes.toml");
        }
        qos(guest, &["undo"]);
        guest.shell("ip neigh flush all");
        assert_eq!(seen(guest, nics), before, "{mode}");
        guest.shell("ip link del b0; ip link del f0; ip link del f2; ip netns del far");
    }
}

/// A port with a queue for each class, whose other end in namespace `far` has the same VLANs.
fn port(guest: &Guest) {
    guest.shell(
        "ip netns add far
        ip link add e0 numtxqueues 4 numrxqueues 4 type veth peer name e1 netns far \
            numtxqueues 4 numrxqueues 4
        ip link set e0 up; ip -n far link set e1 up
        while ip -6 addr show dev e0 | grep -q tentative; do sleep 0.1; done",
    );
    far_vlans(guest, "e1");
}

/// 16 flows of each class, as in the report. Trials are short and the machine is emulated: a limit must be there, and each class
/// have its own traffic.
#[track_caller]
fn assert_limited(document: &Value) {
    assert_eq!(document["flows"], 16);
    for (name, limit) in [("low", 10e6), ("middle", 50e6)] {
        let class = class(document, name);
        assert_eq!(class["limit_bit_per_s"], limit);
        for part in ["alone_bit_per_s", "together_bit_per_s"] {
            let rate = class[part]["median"].as_f64().expect("a rate");
            // Without a limit it is that of class `high`, many times as much.
            assert!(rate > 0.0 && rate < 2.0 * limit, "{document:#}");
        }
    }
    let high = class(document, "high")["alone_bit_per_s"]["median"].as_f64();
    assert!(high > Some(100e6), "{document:#}");
    for class in document["directions"][0]["classes"]
        .as_array()
        .expect("a list")
    {
        assert_eq!(class["others"].as_array().map(Vec::len), Some(2));
        let reasons = class["reasons"].to_string();
        for wrong in ["passes", "no token bucket", "egress map"] {
            assert!(!reasons.contains(wrong), "{class:#}");
        }
    }
}

pub(crate) fn the_reports_file_is_planned_made_verified_and_undone_to_the_byte(guest: &Guest) {
    let default = guest.shell("sysctl -n net.core.default_qdisc");
    // Queues without a limit have the kernel's default qdisc, classes of htb have fq_codel.
    for (mechanism, leaf) in [
        ("htb", "fq_codel"),
        ("mqprio", "fq"),
        ("mqprio", "fq_codel"),
    ] {
        guest.shell(&format!(
            "modprobe sch_{leaf}; sysctl -q net.core.default_qdisc={leaf}"
        ));
        port(guest);
        file(guest, "e0", Some(mechanism));
        let before = seen(guest, "e0");
        let plan = qos(guest, &["plan", FILE]).out;
        assert!(plan.starts_with(&format!("e0: {mechanism} ")), "{plan}");
        apply(guest, FILE);
        let qdiscs = guest.shell("tc qdisc show dev e0");
        assert!(qdiscs.contains(&format!("qdisc {leaf} ")), "{qdiscs}");
        // 24 trials of up to 48 flows take minutes of an emulated CPU; those on bonds verify mqprio.
        if mechanism == "htb" {
            let (_, document) = verify_with(guest, "netns:far", "--time 200ms --flows 16");
            assert_limited(&document);
        }
        guest.shell("ip neigh flush all");
        qos(guest, &["undo"]);
        assert_eq!(seen(guest, "e0"), before, "{mechanism} with {leaf}");
        guest.shell("ip link del e0; ip netns del far");
    }
    guest.shell(&format!("sysctl -q net.core.default_qdisc={default}"));
}

/// systemd-networkd without the rest of systemd; with a writable /sys it waits for udev.
fn beside_networkd(guest: &Guest, script: &str) -> String {
    guest.shell(&format!(
        "unshare -m sh -c 'mount -o remount,bind,ro /sys; SYSTEMD_LOG_TARGET=console exec {NETWORKD}' >/run/networkd.log 2>&1 &
        trap 'kill $!; wait $! || true; cat /run/networkd.log >&2' EXIT
        {script}"
    ))
}

const NETWORKD: &str = "/lib/systemd/systemd-networkd";

/// systemd.netdev(5) asks for pairs whose first number is not below the second one; the program does not.
pub(crate) fn networkd_makes_vlans_with_whole_egress_maps_of_the_printed_lines(guest: &Guest) {
    if guest.run(&["test", "-x", NETWORKD]).code != 0 {
        println!("SKIP: there is no {NETWORKD}");
        return;
    }
    write(guest, "htb");
    guest.shell(
        "mkdir -p /etc/systemd/network /run/systemd
        printf '[Match]\nName=n0\n[Network]\nKeepConfiguration=yes\nLinkLocalAddressing=no\n' \
            >/etc/systemd/network/10-n0.network",
    );
    let command = Guest::command();
    let planned = beside_networkd(
        guest,
        &format!(
            "until grep -qs ^NETWORK_FILE=/etc/systemd/network/10-n0.network /run/systemd/netif/links/*; do
                sleep 0.1
            done
            {command} --format json qos plan /run/classes.toml"
        ),
    );
    let planned = fitting(&planned);
    let files = planned["managers"][0]["files"].as_array();
    for file in files.expect("files of networkd") {
        let path = file["path"].as_str().expect("a path");
        let lines = file["lines"].as_array().expect("a list").iter();
        let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
        guest.shell(&format!("cat >>{path} <<'END'\n{}\nEND", lines.join("\n")));
    }
    let shown = beside_networkd(
        guest,
        "for id in 10 20 30; do
            until ip addr show n0.$id 2>/dev/null | grep -q 12.0.$id.2/24; do sleep 0.1; done
        done
        ip -j -d link show type vlan",
    );
    let shown: Value = serde_json::from_str(&shown).expect("JSON of ip(8)");
    for (id, pcp) in [(10, 1), (20, 3), (30, 5)] {
        let vlan = entry(&shown, "ifname", format!("n0.{id}"));
        let data = &vlan["linkinfo"]["info_data"];
        assert_eq!(data["id"], id);
        let map = data["egress_qos"].as_array().expect("a map").iter();
        let mut map: Vec<(u64, u64)> = map
            .filter_map(|pair| Some((pair["from"].as_u64()?, pair["to"].as_u64()?)))
            .collect();
        map.sort_unstable();
        let whole: Vec<(u64, u64)> = (0..16).map(|from| (from, pcp)).collect();
        assert_eq!(map, whole, "{vlan:#}");
    }
    guest.shell(
        "for id in 10 20 30; do ip link del n0.$id; done
        rm -r /etc/systemd/network/*n0* /run/systemd/netif; ip link set n0 down",
    );
}

/// fake0's data center bridging, as dcb(8) prints it.
const CLASSES: &str = "for what in pfc ets maxrate app; do dcb $what show dev fake0; done
    cat /sys/module/fakenic/parameters/maxrate_kbit";

pub(crate) fn a_nic_with_traffic_classes_holds_the_limits_itself(guest: &Guest) {
    if !cards::is_there(guest) {
        return;
    }
    file(guest, "fake0", None);
    guest.shell("while ip -6 addr show dev fake0 | grep -q tentative; do sleep 0.1; done");
    let all = || guest.shell(CLASSES) + &seen(guest, "fake0");
    let before = all();
    let plan = qos(guest, &["plan", "/run/classes.toml"]).out;
    assert!(
        plan.starts_with("fake0: dcb (the NIC limits its traffic classes itself)"),
        "{plan}"
    );
    apply(guest, "/run/classes.toml");
    let made = guest.shell(CLASSES);
    assert!(made.contains("prio-tc 0:0 1:1 2:0 3:2 4:0 5:3"), "{made}");
    // What 1542 bytes on the wire carry for a frame of 1514.
    assert!(made.contains("0,10184,50924,0,0,0,0,0"), "{made}");
    // Frames of each VLAN leave with its priority.
    guest.shell(
        "for id in 10 20 30; do
            ip neigh replace 12.0.$id.1 lladdr 52:54:00:00:00:01 dev fake0.$id
            echo x >/dev/udp/12.0.$id.1/9
        done",
    );
    let counters = guest.shell("ethtool -S fake0");
    for priority in [1, 3, 5] {
        let counter = format!("tx_prio{priority}_bytes: ");
        let counted = counters
            .lines()
            .find_map(|line| line.trim().strip_prefix(&counter));
        assert_ne!(counted.expect("a counter"), "0", "{counters}");
    }
    // A guarantee is a share of ETS.
    guest.shell(
        "sed -i 's/limit = \"none\"/limit = \"5gbit\"\\nguarantee = \"1gbit\"/' /run/classes.toml",
    );
    apply(guest, "/run/classes.toml");
    let made = guest.shell(CLASSES);
    assert!(
        made.contains("3:ets") && made.contains("0,10184,50924,5092470,0"),
        "{made}"
    );
    qos(guest, &["undo"]);
    guest.shell("ip neigh flush all");
    assert_eq!(all(), before);
}

pub(crate) fn a_nic_limits_the_queues_of_each_class_if_the_file_names_that(guest: &Guest) {
    if !cards::is_there(guest) {
        return;
    }
    let file = |classes: &str| {
        guest.shell(&format!(
            "printf '%s\\n' '[qos]' 'interface = \"fake0\"' 'mechanism = \"mqprio-offload\"' {classes} >{FILE}"
        ));
    };
    let classes = "'[[class]]' 'name = \"low\"' 'mark = 7' 'limit = \"10mbit\"' '[[class]]' 'name = \"middle\"' 'priority = 3' \
                   'limit = \"50mbit\"'";
    file(classes);
    let rates = "cat /sys/module/fakenic/parameters/class_maxrate";
    let all = || guest.shell(rates) + &seen(guest, "fake0");
    let before = all();
    let made = apply(guest, FILE).out;
    assert!(
        made.contains("hw 1 mode channel shaper bw_rlimit"),
        "{made}"
    );
    // Bytes per second; the rest has no limit.
    let limits = guest.shell(rates);
    assert!(limits.starts_with("0,1250000,6250000,0"), "{limits}");
    let made = guest.shell("tc qdisc show dev fake0");
    assert!(made.contains("mode:channel"), "{made}");
    // The queue of a class is chosen by its priority, and by the rule that gives a mark one.
    guest.shell(
        "ip addr add 12.0.99.2/24 dev fake0 && ip neigh replace 12.0.99.1 lladdr 52:54:00:00:00:01 dev fake0
        echo x >/dev/udp/12.0.99.1/9",
    );
    let classes_of = guest.shell("tc -s class show dev fake0");
    assert!(classes_of.contains("class mqprio"), "{classes_of}");
    guest.shell("ip addr del 12.0.99.2/24 dev fake0; ip neigh flush all");
    let imported = qos(guest, &["import", "fake0"]).out;
    let mechanism = "mechanism = \"mqprio-offload\"";
    assert!(imported.contains(mechanism), "{imported}");
    let map = guest.shell(&format!("{} map fake0", Guest::command()));
    assert!(map.contains("10.00 Mb/s"), "{map}");
    qos(guest, &["undo"]);
    assert_eq!(all(), before);
    // What a driver refuses is named, and nothing is left.
    file(&format!("{classes} 'guarantee = \"20mbit\"'"));
    let words = format!("{} qos apply {FILE} --no-confirm", Guest::command());
    let refused = guest.run(&["bash", "-c", &words]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(refused.err.contains("nic/fake0/qdisc"), "{}", refused.err);
    assert_eq!(all(), before);
}
