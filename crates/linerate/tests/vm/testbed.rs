//! `testbed rxe`: soft-RoCE made and taken away, also after a death amid the making.

use serde_json::{Value, json};

use crate::guest::{DISK, Guest, entry};

/// What a removal must leave as it was.
const SURROUNDINGS: &str = "
ip -o link | cut -d: -f2
ip -4 rule
ip -4 route show table all
ls /sys/class/infiniband 2>/run/none || true
cut -d' ' -f1 /proc/modules | sort";

/// A wire's module stays when the wire is gone.
const PREPARE: &str = "modprobe veth";

pub(crate) fn a_pair_is_made_used_and_taken_away_without_a_trace(guest: &Guest) {
    guest.shell(PREPARE);
    let before = guest.shell(SURROUNDINGS);
    let pair = guest.linerate(&["testbed", "rxe", "pair"]);
    for (name, interface) in [("rxe-a", "lr-rxe-a"), ("rxe-b", "lr-rxe-b")] {
        let device = entry(&pair["devices"], "name", name);
        assert_eq!(device["interface"], interface);
        assert_eq!(device["state"], "ACTIVE");
    }
    // The connection manager finds both, by addresses; the bytes cross the wire.
    guest.shell(
        "rping -s -a 198.18.0.2 -C 3 & server=$!
        until rping -c -a 198.18.0.2 -C 3 2>/run/none; do kill -0 $server; done
        wait $server
        read -r packets </sys/class/infiniband/rxe-a/ports/1/hw_counters/sent_pkts
        [ $packets -gt 0 ]",
    );
    let removed = guest.linerate(&["testbed", "rxe", "remove", "rxe-b"]);
    assert_eq!(removed["removed"], json!(["rxe-b", "rxe-a"]));
    assert_eq!(removed["modules_left"], json!([]));
    assert_eq!(guest.shell(SURROUNDINGS), before);
}

pub(crate) fn a_device_of_others_keeps_the_module(guest: &Guest) {
    guest.shell("ip link set n0 up; ip link set n1 up");
    let made = guest.linerate(&["testbed", "rxe", "add", "n0", "--name", "mine"]);
    assert_eq!(entry(&made["devices"], "name", "mine")["state"], "ACTIVE");
    guest.shell("rdma link add other type rxe netdev n1");
    let taken = guest.run(&["bash", "-c", &(Guest::command() + " testbed rxe add n1")]);
    assert_eq!(taken.code, 23, "{}", taken.err);
    let removed = guest.linerate(&["testbed", "rxe", "remove", "--all"]);
    assert_eq!(removed["removed"], json!(["mine"]));
    let left = entry(&removed["modules_left"], "name", "rdma_rxe");
    assert_eq!(left["used_by"], json!(["other"]));
    guest.shell("rdma link delete other; modprobe -r rdma_rxe");
}

pub(crate) fn a_maker_that_was_killed_leaves_what_a_removal_takes_away(guest: &Guest) {
    guest.shell(PREPARE);
    let before = guest.shell(SURROUNDINGS);
    // The last step in the record when the maker dies: it is written before each step.
    for step in ["modules", "wire", "\"rxe-a\"", "\"rxe-b\""] {
        let linerate = Guest::command();
        guest.shell(&format!(
            "{linerate} testbed rxe pair >/run/pair 2>&1 & maker=$!
            until grep -q '{step}' {DISK}/state/testbed-rxe.json 2>/run/none; do kill -0 $maker; done
            kill -KILL $maker || wait $maker # it may be done by now
            {linerate} testbed rxe remove --all"
        ));
        assert_eq!(guest.shell(SURROUNDINGS), before, "killed at {step}");
    }
}

pub(crate) fn what_rdma_lacks_at_either_end_is_named_by_its_exit_code(guest: &Guest) {
    guest.linerate(&["testbed", "rxe", "pair"]);
    let linerate = Guest::command();
    let measure = "measure --no-store rdma-write --address 198.18.0.2 --time 1 --no-record";
    let no_library = "env LINERATE_LIBIBVERBS=/nonexistent";
    let program = linerate
        .split(' ')
        .next()
        .expect("a program")
        .trim_matches('\'');
    // The peer's lack is the peer's.
    let far = format!("exec:{no_library} {program} agent --stdio");
    let done = guest.run(&["bash", "-c", &format!("{linerate} {measure} '{far}'")]);
    assert_eq!(done.code, 22, "{}", done.err);
    assert!(
        done.err.contains("the peer exec:") && done.err.contains("cannot be loaded"),
        "{}",
        done.err
    );
    let done = guest.run(&[
        "bash",
        "-c",
        &format!("{no_library} {linerate} {measure} 'exec:{program} agent --stdio'"),
    ]);
    assert_eq!(done.code, 22, "{}", done.err);
    assert!(!done.err.contains("the peer exec:"), "{}", done.err);
    // A user who may not open the device.
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let done = guest.run(&[
        "bash",
        "-c",
        &format!(
            "chmod 600 /dev/infiniband/uverbs*; install -d -o 65534 /run/nobody
            {nobody} '{program}' --quiet --state /run/nobody {measure} local"
        ),
    ]);
    assert_eq!(done.code, 21, "{}", done.err);
    assert!(done.err.contains("/dev/infiniband"), "{}", done.err);
    guest.linerate(&["testbed", "rxe", "remove", "--all"]);
    let done = guest.run(&[
        "bash",
        "-c",
        &format!("{linerate} measure --no-store rdma-write local --time 1 --no-record"),
    ]);
    assert_eq!(done.code, 22, "{}", done.err);
    assert!(done.err.contains("linerate testbed rxe"), "{}", done.err);
}

pub(crate) fn a_lag_over_two_switches_outlives_a_member(guest: &Guest) {
    let surroundings = "ip -o link | cut -d: -f2; ip netns";
    let before = guest.shell(surroundings);
    let made = guest.linerate(&["testbed", "redundant", "add", "mlag"]);
    assert_eq!(made["network"]["spec"]["lag"], "bonding", "{made:#}");
    let measure = || {
        let words = ["measure", "--no-store", "rr", "netns:lr-server"];
        let more = ["--address", "10.205.1.20", "--time", "0.5"];
        guest.linerate_in("lr-client", &[&words[..], &more].concat());
    };
    measure();
    let faults = &made["network"]["faults"];
    for name in ["member-down", "second-member-down", "link-down"] {
        let fault = entry(faults, "name", name);
        guest.shell(fault["do"].as_str().expect("a command"));
        measure();
        guest.shell(fault["restore"].as_str().expect("a command"));
    }
    let removed = guest.linerate(&["testbed", "redundant", "remove"]);
    assert_eq!(removed["removed"], true);
    assert_eq!(guest.shell(surroundings), before);
}

/// What a fault of a redundant network interrupts from the client to the server.
#[track_caller]
fn interruption(guest: &Guest, made: &Value, name: &str, time: &str) -> Value {
    let fault = entry(&made["network"]["faults"], "name", name);
    let text = |key: &str| fault[key].as_str().expect("a command");
    let words = ["failover", "netns:lr-server", "--address", "10.205.1.20"];
    let probes = ["--flows", "16", "--rate", "100", "--workload", "udp"];
    let once = ["--time", time, "--repeats", "1"];
    let event = ["--do", text("do"), "--restore", text("restore")];
    let all = [&words[..], &probes, &once, &event].concat();
    let document = guest.linerate_in("lr-client", &all);
    let parts = document["trials"][0]["parts"].as_array().expect("a list");
    let forward = parts.iter().find(|part| part["direction"] == "forward");
    entry(
        &forward.expect("one each")["triggers"],
        "trigger",
        "failure",
    )
    .clone()
}

pub(crate) fn what_detects_the_failure_of_a_member_of_a_lag_is_named(guest: &Guest) {
    let made = guest.linerate(&["testbed", "redundant", "add", "mlag"]);
    let silent = interruption(guest, &made, "member-silent", "12s");
    let held_up = &silent["held_up"];
    assert_eq!(held_up["mechanism"], "lacp", "{silent:#}");
    assert_eq!(held_up["phase"], "detection", "{silent:#}");
    assert_eq!(
        held_up["expected"]["max_ns"], 3_000_000_000_u64,
        "{silent:#}"
    );
    // Only the flows of that member.
    let flows = silent["flows_affected"].as_u64().expect("a number");
    assert!((1..16).contains(&flows), "{silent:#}");
    guest.linerate(&["testbed", "redundant", "remove"]);
}

pub(crate) fn a_bond_without_miimon_does_not_use_its_backup(guest: &Guest) {
    let add = ["testbed", "redundant", "add", "active-backup", "--miimon"];
    let made = guest.linerate(&[&add[..], &["off"]].concat());
    let without = interruption(guest, &made, "member-down", "4s");
    // It ends when the failure does: the commands are half of the rest of the trial apart.
    let lost = without["gaps"]["longest_ns"].as_u64().expect("a number");
    assert!(lost >= 1_000_000_000, "{without:#}");
    let advice = without["held_up"]["advice"].as_str();
    assert!(
        advice.is_some_and(|text| text.contains("miimon")),
        "{without:#}"
    );
    guest.linerate(&["testbed", "redundant", "remove"]);
    let made = guest.linerate(&[&add[..], &["100ms"]].concat());
    let with = interruption(guest, &made, "member-down", "4s");
    assert!(with["gaps"]["longest_ns"].as_u64() < Some(lost), "{with:#}");
    let mechanism = with["held_up"]["mechanism"].as_str();
    assert!(
        with["lost"] == 0 || matches!(mechanism, Some("carrier" | "link-monitoring")),
        "{with:#}"
    );
    guest.linerate(&["testbed", "redundant", "remove"]);
}

pub(crate) fn a_program_that_was_not_changed_is_carried_by_rsocket(guest: &Guest) {
    guest.linerate(&["testbed", "rxe", "pair"]);
    // One end would wait for the other while that one reads it from the host.
    guest.read_ahead("/usr/lib/*/rsocket/librspreload.so*");
    let packets = "cat /sys/class/infiniband/rxe-a/ports/1/hw_counters/sent_pkts";
    let count = |text: String| text.trim().parse::<u64>().expect("a counter");
    let before = count(guest.shell(packets));
    let document = guest.linerate(&[
        "measure",
        "stream",
        "local",
        "--address",
        "198.18.0.2",
        "--preload",
        "rsocket",
        "--time",
        "1",
        "--flows",
        "2",
    ]);
    let carriers = document["carriers"].as_array().expect("two");
    assert_eq!(
        (&carriers[0]["carrier"], &carriers[1]["carrier"]),
        (&json!("tcp"), &json!("rsocket"))
    );
    assert!(
        carriers.iter().all(|one| one["bytes"].as_u64() > Some(0)),
        "{document:#}"
    );
    // Soft-RoCE's packets pass the interface too, and are not taken for the kernel's TCP.
    assert_eq!(
        (&carriers[0]["carried_by"], &carriers[1]["carried_by"]),
        (&json!("kernel"), &json!("rdma")),
        "{document:#}"
    );
    // At least the payload of RDMA packets of 1024 bytes.
    let least = carriers[1]["bytes"].as_u64().expect("a number") / 1_024;
    assert!(
        count(guest.shell(packets)) - before >= least,
        "{document:#}"
    );
    for words in [
        &["rr", "--time", "1"][..],
        &["pingpong", "--sizes", "0B,1B,64KiB", "--repetitions", "20"],
    ] {
        let common = ["local", "--address", "198.18.0.2", "--preload", "rsocket"];
        let document = guest.linerate(&[&["measure"], words, &common[..]].concat());
        for (carrier, by) in [(0, "kernel"), (1, "rdma")] {
            let carrier = &document["carriers"][carrier];
            assert_eq!(carrier["carried_by"], by, "{document:#}");
            assert!(carrier["operations"].as_u64() > Some(0), "{document:#}");
        }
    }
    guest.linerate(&["testbed", "rxe", "remove", "--all"]);
}
