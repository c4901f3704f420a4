//! `failover`: black holes made by nftables, read from the probes and compared with the dropping rule's own counter.

use serde_json::Value;

use crate::fitting;
use crate::lab::{Lab, text};

/// Counters that outlive the rules, for each direction.
const TABLE: &str = "add table netdev hole
add counter netdev hole there
add counter netdev hole back
add chain netdev hole out { type filter hook egress device near0 priority 0 ; }
add chain netdev hole in { type filter hook ingress device near0 priority 0 ; }
";
const HEAL: &str = "flush chain netdev hole out\nflush chain netdev hole in\n";
/// Both directions, and TCP, which is not counted.
pub(crate) const BOTH: &str = "add rule netdev hole out meta l4proto udp counter name there drop
add rule netdev hole in meta l4proto udp counter name back drop
add rule netdev hole out meta l4proto tcp drop
add rule netdev hole in meta l4proto tcp drop
";
/// To the peer, and only the flows with every fourth port.
pub(crate) const QUARTER: &str =
    "add rule netdev hole out udp sport and 3 == 0 counter name there drop\n";

/// One short trial of probes alone.
const ONE_OF_UDP: [&str; 6] = ["--repeats", "1", "--time", "4s", "--workload", "udp"];

/// A lab whose kernel can drop what leaves an interface, with the files of its rules.
pub(crate) fn holed(hole: &str) -> Option<Lab> {
    let lab = Lab::new()?;
    for (name, rules) in [("table", TABLE), ("hole", hole), ("heal", HEAL)] {
        std::fs::write(lab.path(name), rules).expect("the lab's folder");
    }
    let mut nft = lab.on("near", "nft");
    nft.args(["-f", text(&lab.path("table"))]);
    let done = crate::job::run(nft);
    if done.code != Some(0) {
        eprintln!("SKIP: nftables cannot drop on egress here: {}", done.err);
        return None;
    }
    Some(lab)
}

pub(crate) fn rules(lab: &Lab, name: &str) -> String {
    format!("nft -f {}", text(&lab.path(name)))
}

pub(crate) fn dropped(lab: &Lab, counter: &str) -> u64 {
    let listed = lab.shell(
        "near",
        &format!("nft -j list counter netdev hole {counter}"),
    );
    let listed: Value = serde_json::from_str(&listed).expect("JSON of nft");
    let objects = listed["nftables"].as_array().expect("a list");
    let counter = objects
        .iter()
        .find_map(|one| one["counter"]["packets"].as_u64());
    counter.expect("a counter")
}

fn failover(lab: &Lab, options: &[&str]) -> Value {
    let words = [&["--format", "json", "failover", "netns:far"], options].concat();
    fitting(&lab.run(&words).expect_code(0).out)
}

pub(crate) fn part<'a>(document: &'a Value, direction: &str, workload: &str) -> &'a Value {
    let parts = document["trials"][0]["parts"].as_array().expect("a list");
    let part = parts
        .iter()
        .find(|part| part["direction"] == direction && part["workload"] == workload);
    part.unwrap_or_else(|| panic!("{direction} {workload}: {document:#}"))
}

pub(crate) fn trigger<'a>(part: &'a Value, trigger: &str) -> &'a Value {
    let triggers = part["triggers"].as_array().expect("a list");
    let found = triggers.iter().find(|one| one["trigger"] == trigger);
    found.unwrap_or_else(|| panic!("{trigger}: {part:#}"))
}

#[track_caller]
pub(crate) fn number(value: &Value) -> u64 {
    // A closure would be named as the place that panics.
    match value.as_u64() {
        Some(number) => number,
        None => panic!("{value} is no number"),
    }
}

/// How far a time may be off: one step, or the pause of a sender that did not run.
#[track_caller]
fn within(part: &Value) -> u64 {
    number(&part["step_ns"]).max(number(&part["hosts"]["longest_send_gap_ns"]))
}

/// What this machine has dropped between its interfaces and its sockets: one queue of a CPU serves all namespaces, those of
/// other tests, too (`/proc/net/softnet_stat`, second column).
pub(crate) fn backlog_drops() -> u64 {
    let stat = std::fs::read_to_string("/proc/net/softnet_stat").expect("proc is mounted");
    let second = stat.lines().map(|line| line.split_whitespace().nth(1));
    let count = |word: Option<&str>| word.and_then(|word| u64::from_str_radix(word, 16).ok());
    second.map(|word| count(word).expect("a count")).sum()
}

/// Lost but for what the receiver's own sockets dropped.
#[track_caller]
fn lost_on_the_path(part: &Value) -> u64 {
    number(&part["lost"]).saturating_sub(number(&part["hosts"]["socket_drops"]))
}

/// Exactly the packets that the rule dropped are lost, and at most those that the machine dropped since `before`.
#[track_caller]
pub(crate) fn assert_lost(part: &Value, dropped: u64, before: u64) {
    let most = dropped + (backlog_drops() - before);
    let lost = lost_on_the_path(part);
    assert!(
        (dropped..=most).contains(&lost),
        "{dropped} to {most}: {part:#}"
    );
}

/// The longest interruption of a failure is at least this long, to within what is known of it.
#[track_caller]
pub(crate) fn covers(part: &Value, least_ns: u64) {
    let read = number(&trigger(part, "failure")["gaps"]["longest_ns"]);
    assert!(read + within(part) >= least_ns, "{part:#}");
}

/// How long the black hole of a test is.
const HOLE_NS: u64 = 400_000_000;

#[test]
fn a_black_hole_is_read_in_both_directions_and_every_packet_that_it_dropped_is_counted() {
    let Some(lab) = holed(BOTH) else { return };
    let before = backlog_drops();
    let cause = format!(
        "{}; sleep 0.4; {}",
        rules(&lab, "hole"),
        rules(&lab, "heal")
    );
    let document = failover(
        &lab,
        &[
            "--do",
            &cause,
            "--repeats",
            "1",
            "--time",
            "3s",
            "-P",
            "16",
            "--rate",
            "100",
        ],
    );
    let took = number(&document["trials"][0]["events"][0]["took_ns"]);
    for (direction, counter) in [("forward", "there"), ("reverse", "back")] {
        let udp = part(&document, direction, "udp");
        assert_lost(udp, dropped(&lab, counter), before);
        let failure = trigger(udp, "failure");
        let affected = number(&failure["flows_affected"]);
        // A sender that did not run for the whole hole lost nothing in it.
        assert!(affected == 16 || within(udp) >= HOLE_NS, "{udp:#}");
        assert_eq!(failure["is_over"], true, "{udp:#}");
        covers(udp, HOLE_NS);
        let read = number(&failure["gaps"]["longest_ns"]);
        assert!(read <= took + within(udp), "{udp:#}");
        // TCP goes on later than the path, as its retransmissions back off.
        for workload in ["tcp", "rr"] {
            covers(part(&document, direction, workload), HOLE_NS);
        }
        let kernel = &part(&document, direction, "tcp")["tcp"];
        assert_eq!(kernel["path_mtu_changes"], serde_json::json!([]));
    }
    let shown = lab.run(&["report", "last"]).expect_code(0).out;
    let mut rows = shown.lines();
    let is_of_requests =
        |row: &str| row.starts_with("  to the peer rr ") && row.contains(['-', '+', '#']);
    assert!(rows.any(is_of_requests), "{shown}");
    let connect = part(&document, "forward", "connect");
    let late = number(&trigger(connect, "failure")["late"]);
    assert!(late > 0 || within(connect) >= HOLE_NS, "{connect:#}");
}

/// `far` forwards to another host, whose address it no longer knows for a while: it keeps the packets, and sends them when
/// ARP has found it (arp(7), `unres_qlen_bytes`).
const ROUTED: &str = "ip netns add beyond
ip -n far link add far1 type veth peer name beyond0 netns beyond
ip -n far address add 10.88.0.1/24 dev far1
ip -n beyond address add 10.88.0.2/24 dev beyond0
ip -n far link set far1 up
ip -n beyond link set lo up
ip -n beyond link set beyond0 up
ip -n near route add 10.88.0.0/24 via 10.77.0.2
ip -n beyond route add default via 10.88.0.1
ip netns exec far sh -ec 'echo 1 >/proc/sys/net/ipv4/ip_forward
cd /proc/sys/net/ipv4/neigh/far1
echo 10000000 >unres_qlen_bytes; echo 1000 >mcast_solicit; echo 20 >retrans_time_ms'";
/// Nothing comes back.
const BACK: &str = "add rule netdev hole in meta l4proto udp counter name back drop\n";
const HOLD: &str = "add table netdev held
add chain netdev held out { type filter hook egress device far1 priority 0 ; }
add rule netdev held out ether type arp drop
";

#[test]
fn packets_that_a_router_held_are_late_and_those_that_a_rule_dropped_are_lost() {
    let Some(lab) = holed(BACK) else { return };
    let before = backlog_drops();
    std::fs::write(lab.path("hold"), HOLD).expect("the lab's folder");
    let mut make = lab.outside("sh");
    make.args(["-ec", ROUTED]);
    crate::job::run(make).expect_code(0);
    let held = format!(
        "ip netns exec far sh -ec '{}; ip neigh del 10.88.0.2 dev far1; sleep 0.4; nft delete table netdev held'",
        rules(&lab, "hold")
    );
    let (hole, heal) = (rules(&lab, "hole"), rules(&lab, "heal"));
    let cause = format!("{hole}; {held}; {heal}");
    // What is let go at once must fit into the kernel's backlog of 1,000 packets (`netdev_max_backlog`).
    let flows = ["-P", "4", "--rate", "50", "--do", &cause];
    let words = ["--format", "json", "failover", "netns:beyond"];
    let path = ["--address", "10.88.0.2"];
    let done = lab.run(&[&words[..], &path, &flows, &ONE_OF_UDP].concat());
    let document = fitting(&done.expect_code(0).out);
    let there = part(&document, "forward", "udp");
    assert_lost(there, 0, before);
    // What was sent shortly before they were let go is not late.
    let least = HOLE_NS - number(&document["late_after_ns"]);
    covers(there, least);
    let failure = trigger(there, "failure");
    let took = number(&document["trials"][0]["events"][0]["took_ns"]);
    let read = number(&failure["gaps"]["longest_ns"]);
    assert!(read <= took + within(there), "{there:#}");
    if within(there) < least {
        assert_eq!(number(&failure["flows_affected"]), 4, "{there:#}");
        assert!(number(&failure["late"]) >= 4, "{there:#}");
    }
    let back = part(&document, "reverse", "udp");
    assert_lost(back, dropped(&lab, "back"), before);
    covers(back, HOLE_NS);
}

#[test]
fn the_back_off_of_a_retransmission_timer_is_read_from_the_kernel() {
    let Some(lab) = holed(BOTH) else { return };
    // A busy machine makes round trips, and with them the timer, longer than any fixed time. A kernel that drops its own
    // segments retries them without doubling the timer: only the peer's are of use.
    let backs_off = "ip netns exec far ss -Htin | grep -q 'backoff:'";
    let (hole, heal) = (rules(&lab, "hole"), rules(&lab, "heal"));
    let cause = format!("{hole}; until {backs_off}; do :; done; {heal}");
    let options = ["--repeats", "1", "--time", "8s", "--workload", "udp,tcp"];
    let document = failover(&lab, &[&["--do", &cause], &options[..]].concat());
    let tcp = part(&document, "reverse", "tcp");
    let timer = &tcp["tcp"]["backoff"];
    // The timer has doubled from 200 ms or more when it is seen, and is read whenever a message is to be sent.
    if within(tcp) < 400_000_000 {
        assert!(number(&timer["expirations"]) >= 1, "{tcp:#}");
        assert!(number(&timer["timeout_ns"]) >= 400_000_000, "{tcp:#}");
    }
}

#[test]
fn black_holes_from_5_ms_to_3600_ms_are_read_over_both_families() {
    let Some(lab) = holed(BOTH) else { return };
    lab.shell("near", "ip address add fd77::1/64 dev near0 nodad");
    lab.shell("far", "ip address add fd77::2/64 dev far0 nodad");
    let (hole, heal) = (rules(&lab, "hole"), rules(&lab, "heal"));
    let fixed = ["--repeats", "1", "--workload", "udp", "-P", "16"];
    let mut dropped_before = [0, 0];
    for (length_ms, path) in [
        (5_u32, &[][..]),
        (50, &["--address", "fd77::2"]),
        (500, &[]),
        (3_600, &["--address", "fd77::2"]),
    ] {
        let seconds = f64::from(length_ms) / 1e3;
        let cause = format!("{hole}; sleep {seconds}; {heal}");
        let time = format!("{}ms", 2_500 + length_ms);
        let own = ["--do", &cause, "--time", &time, "--rate", "200"];
        let backlog = backlog_drops();
        let document = failover(&lab, &[&fixed[..], &own, path].concat());
        let took = number(&document["trials"][0]["events"][0]["took_ns"]);
        for (before, (direction, counter)) in
            (dropped_before.iter_mut()).zip([("forward", "there"), ("reverse", "back")])
        {
            let udp = part(&document, direction, "udp");
            let dropped = dropped(&lab, counter);
            assert_lost(udp, dropped - *before, backlog);
            *before = dropped;
            let read = number(&trigger(udp, "failure")["gaps"]["longest_ns"]);
            let (least, around) = (u64::from(length_ms) * 1_000_000, within(udp));
            assert!(
                read + around >= least && read <= took + around,
                "{length_ms} ms: {udp:#}"
            );
        }
    }
}

#[test]
fn a_path_mtu_that_changes_is_recorded_with_its_time() {
    let Some(lab) = Lab::new() else { return };
    let cause = "ip route change 10.77.0.0/24 dev near0 src 10.77.0.1 mtu 1400";
    let words = [
        "--do",
        cause,
        "--time",
        "3s",
        "--repeats",
        "1",
        "--workload",
        "udp,tcp",
    ];
    let document = failover(&lab, &words);
    let began = number(&document["trials"][0]["events"][0]["start_ns"]);
    let changes = &part(&document, "forward", "tcp")["tcp"]["path_mtu_changes"];
    let changes = changes.as_array().expect("a list");
    assert_eq!(changes.len(), 8, "{changes:#?}");
    for change in changes {
        assert_eq!(number(&change["to_bytes"]), 1_400, "{change:#}");
        assert!(number(&change["at_ns"]) >= began, "{change:#}");
    }
    let reverse = &part(&document, "reverse", "tcp")["tcp"]["path_mtu_changes"];
    assert_eq!(reverse, &serde_json::json!([]));
}

#[test]
fn a_command_that_hangs_is_killed_and_the_return_is_run() {
    let Some(lab) = Lab::new() else { return };
    let mark = lab.path("restored");
    let restore = format!("touch {}", text(&mark));
    let words = ["failover", "netns:far", "--time", "2s", "--repeats", "1"];
    let own = ["--do", "sleep 1000", "--restore", &restore];
    let done = lab.run(&[&words[..], &own].concat());
    let err = &done.expect_code(30).err;
    assert!(err.contains("it did not end within 30.00 s"), "{err}");
    assert!(mark.exists(), "`--restore` was not run: {err}");
}

#[test]
fn failure_and_return_are_apart_and_a_part_of_the_flows_is_named_as_such() {
    let Some(lab) = holed(QUARTER) else { return };
    let before = backlog_drops();
    let (hole, heal) = (rules(&lab, "hole"), rules(&lab, "heal"));
    let once = ["--do", &hole, "--restore", &heal];
    let document = failover(&lab, &[&once[..], &ONE_OF_UDP].concat());
    let udp = part(&document, "forward", "udp");
    assert_lost(udp, dropped(&lab, "there"), before);
    let failure = trigger(udp, "failure");
    let affected = number(&failure["flows_affected"]);
    assert!((1..64).contains(&affected), "{udp:#}");
    assert!(failure["all_flows_ns"].is_null(), "{udp:#}");
    let events = &document["trials"][0]["events"];
    let time = |event: usize, key: &str| number(&events[event][key]);
    let least = time(1, "start_ns") - time(0, "start_ns") - time(0, "took_ns");
    let most = time(1, "start_ns") + time(1, "took_ns") - time(0, "start_ns");
    let (read, around) = (number(&failure["gaps"]["longest_ns"]), within(udp));
    assert!(read + around >= least && read <= most + around, "{udp:#}");
    let lost = |direction| {
        let udp = part(&document, direction, "udp");
        number(&trigger(udp, "return")["lost"])
    };
    let most = backlog_drops() - before;
    assert!(lost("forward") + lost("reverse") <= most, "{document:#}");
}

#[test]
fn without_a_fault_nothing_is_lost_late_or_duplicated() {
    let Some(lab) = Lab::new() else { return };
    let bounds = [
        "--require",
        "lost<=0",
        "--require",
        "duplicated<=0",
        "--require",
        "gap<20s",
    ];
    let few = [
        "--time", "1s", "-P", "4", "--rate", "50", "--late", "5s", "-v",
    ];
    let options = [&few[..], &bounds].concat();
    let before = backlog_drops();
    let done = lab.run(&[&["failover", "netns:far"], &options[..]].concat());
    if done.code == Some(11) && backlog_drops() > before {
        eprintln!("SKIP: this machine dropped packets before they reached a socket");
        return;
    }
    let out = &done.expect_code(0).out;
    assert!(
        out.contains("no event: no packet lost or late, resolution "),
        "{out}"
    );
    assert!(out.contains("gap<20s: kept"), "{out}");
}

#[test]
fn a_bound_that_a_failure_breaks_is_exit_code_11() {
    let Some(lab) = holed(QUARTER) else { return };
    let (hole, heal) = (rules(&lab, "hole"), rules(&lab, "heal"));
    let once = ["--do", &hole, "--restore", &heal];
    let bound = ["--require", "gap<50ms"];
    let words = ["failover", "netns:far"];
    // Long enough that no pause of the sender explains it.
    let mut long = ONE_OF_UDP;
    long[3] = "5s";
    let done = lab.run(&[&words[..], &once, &long, &bound].concat());
    assert!(done.expect_code(11).err.contains("violated: gap<50ms"));
}

#[test]
fn a_command_that_fails_is_reported_with_its_output_and_the_return_is_run() {
    let Some(lab) = Lab::new() else { return };
    let mark = lab.path("restored");
    let restore = format!("touch {}", text(&mark));
    let done = lab.run(&[
        "failover",
        "netns:far",
        "--do",
        "echo no such link >&2; exit 3",
        "--restore",
        &restore,
        "--time",
        "2s",
    ]);
    let err = &done.expect_code(30).err;
    assert!(err.contains("no such link"), "{err}");
    assert!(mark.exists(), "`--restore` was not run: {err}");
}
