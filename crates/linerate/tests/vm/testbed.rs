//! `testbed rxe`: soft-RoCE made and taken away, also after a death amid the making.

use serde_json::json;

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
    // What the record tells of last when the maker dies: it is written before each step.
    for step in ["modules", "wire", "\"rxe-a\"", "\"rxe-b\""] {
        let linerate = Guest::command();
        guest.shell(&format!(
            "{linerate} testbed rxe pair >/run/pair 2>&1 & maker=$!
            until grep -q '{step}' {DISK}/state/testbed-rxe.json 2>/run/none; do kill -0 $maker; done
            kill -KILL $maker
            {linerate} testbed rxe remove --all"
        ));
        assert_eq!(guest.shell(SURROUNDINGS), before, "killed at {step}");
    }
}
