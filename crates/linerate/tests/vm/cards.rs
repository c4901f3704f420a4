//! Settings that no igb has: the key of a receive hash, on virtio's card (n2), and what no card that QEMU emulates
//! takes, on an interface that only remembers it (`testbed/vm/fakenic.c`): there the requests, the kernel's own code
//! and what other programs read back are real, the card is not.

use serde_json::json;

use crate::guest::Guest;

/// Creates fake0; prints nothing if the guest has no such module.
const FAKE: &str = "modprobe -n fakenic 2>/dev/null || exit 0
    [ -e /sys/class/net/fake0 ] || modprobe fakenic
    ip link set fake0 up; echo up";
/// Its settings, as other programs print them.
const TOLD: &str = "ethtool --show-eee fake0
ethtool --show-fec fake0
ethtool -c fake0
for queue in 0 1 2 3; do ethtool -Q fake0 queue_mask $((1 << queue)) --show-coalesce; done
ethtool fake0
for what in pfc ets maxrate app; do echo $what; dcb $what show dev fake0; done
cat /sys/module/fakenic/parameters/maxrate_kbit";

/// Whether there is fake0; where not, the test is a skip.
pub(crate) fn is_there(guest: &Guest) -> bool {
    let there = !guest.shell(FAKE).is_empty();
    if !there {
        println!(
            "SKIP: the guest has no fake0: its module could not be made (gcc, make and the kernel's headers are needed)"
        );
    }
    there
}

/// Lines with one blank between words.
fn lines(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

fn plan(guest: &Guest, settings: &str) {
    guest.shell(&format!("cat >{PLAN} <<'END'\n[settings]\n{settings}\nEND"));
}

/// The file of the plan.
const PLAN: &str = "/run/card.toml";

/// Applies the plan, checks for lines that other programs shall print then and did not before, and rolls it
/// back.
#[track_caller]
fn set_and_put_back(guest: &Guest, told: &str, count: usize, shown: &[&str]) {
    let told = || lines(&guest.shell(told));
    let before = told();
    let applied = guest.apply(PLAN);
    let changes = applied["changes"].as_array().map(Vec::len);
    assert_eq!(changes, Some(count), "{applied:#}");
    let after = told();
    for line in shown {
        assert!(after.iter().any(|one| one == line), "{line}: {after:#?}");
        assert!(!before.iter().any(|one| one == line), "{line}: {before:#?}");
    }
    let again = guest.linerate(&["tune", "plan", "--from", "/run/card.toml"]);
    assert_eq!(again["changes"], json!([]));
    guest.linerate(&["tune", "undo"]);
    assert_eq!(told(), before);
}

pub(crate) fn the_key_and_the_fields_of_a_receive_hash_are_set_read_back_and_undone(guest: &Guest) {
    guest.shell("ip link set n2 up");
    // The one that Microsoft verifies receive hashes with ("Verifying the RSS Hash Calculation").
    let key = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa";
    plan(
        guest,
        &format!("\"nic/n2/rss/key\" = \"{key}\"\n\"nic/n2/rss/fields/tcp4\" = \"sd\""),
    );
    let told = "ethtool -x n2; ethtool -n n2 rx-flow-hash tcp4; ethtool -n n2 rx-flow-hash udp4";
    let ports = "L4 bytes 0 & 1 [TCP/UDP src port]";
    let count = |text: &str| text.matches(ports).count();
    assert_eq!(
        count(&guest.shell(told)),
        2,
        "both kinds are hashed by ports"
    );
    set_and_put_back(guest, told, 2, &[key]);
    guest.apply(PLAN);
    assert_eq!(count(&guest.shell(told)), 1, "TCP's ports are left out");
    guest.linerate(&["tune", "undo"]);
    // A key of another length than the card's is refused, and nothing stays.
    let before = guest.shell(told);
    plan(guest, "\"nic/n2/rss/key\" = \"6d:5a:56:da\"");
    let refused = guest.run(&["bash", "-c", &Guest::command_to_apply(PLAN)]);
    assert_eq!(refused.code, 30, "{refused:#?}");
    assert_eq!(guest.shell(told), before);
}

pub(crate) fn what_no_emulated_card_takes_is_set_read_back_and_undone(guest: &Guest) {
    if !is_there(guest) {
        return;
    }
    plan(
        guest,
        "\"nic/fake0/eee\" = true
\"nic/fake0/fec\" = \"BASER\"
\"nic/fake0/coalesce/adaptive-tx\" = true
\"nic/fake0/coalesce/rx-frames\" = 40
\"nic/fake0/coalesce/tx-frames\" = 50
\"nic/fake0/queue/rx-1/rx-usecs\" = 20
\"nic/fake0/queue/tx-2/tx-usecs\" = 30
\"nic/fake0/queue/rx-3/rx-frames\" = 41
\"nic/fake0/queue/tx-1/tx-frames\" = 51
\"nic/fake0/queue/rx-2/adaptive-rx\" = true
\"nic/fake0/link/speed\" = \"10000 full\"
\"nic/fake0/dcb/pfc\" = \"3 4\"
\"nic/fake0/dcb/ets\" = \"prio-tc 0:0 1:0 2:0 3:1 4:1 5:0 6:0 7:2 tc-bw 0:40 1:60 2:0 3:0 4:0 5:0 6:0 7:0 tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict\"
\"nic/fake0/dcb/maxrate\" = \"10gbit 5gbit\"
\"nic/fake0/dcb/app\" = \"ethtype-prio 0x8915:3 dscp-prio 26:3\"",
    );
    let shown = [
        "EEE status: enabled - inactive",
        "Supported/Configured FEC encodings: BaseR",
        "Adaptive RX: off TX: on",
        "rx-usecs: 20",
        "tx-usecs: 30",
        "rx-frames: 40",
        "tx-frames: 50",
        "rx-frames: 41",
        "tx-frames: 51",
        "Adaptive RX: on TX: on",
        "Speed: 10000Mb/s",
        "Auto-negotiation: off",
        "prio-pfc 0:off 1:off 2:off 3:on 4:on 5:off 6:off 7:off",
        "tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict",
        "prio-tc 0:0 1:0 2:0 3:1 4:1 5:0 6:0 7:2",
        "tc-bw 0:40 1:60 2:0 3:0 4:0 5:0 6:0 7:0",
        // The values given to the NIC, kbit/s: the iproute2 of 2023 shows them as bytes/s.
        "10000000,5000000,0,0,0,0,0,0",
        "ethtype-prio 8915:3",
        "dscp-prio AF31:3",
    ];
    set_and_put_back(guest, TOLD, 15, &shown);
}

pub(crate) fn delays_of_single_queues_come_back_after_one_for_all(guest: &Guest) {
    if !is_there(guest) {
        return;
    }
    guest.shell(
        "for queue in 0 1 2 3; do
            ethtool -Q fake0 queue_mask $((1 << queue)) --coalesce rx-usecs $((5 + queue)) tx-usecs $((50 + queue))
        done",
    );
    plan(guest, "\"nic/fake0/coalesce/rx-usecs\" = 100");
    set_and_put_back(guest, TOLD, 1, &["rx-usecs: 100"]);
}

pub(crate) fn shares_that_a_card_refuses_are_told_and_nothing_stays(guest: &Guest) {
    if !is_there(guest) {
        return;
    }
    let before = guest.shell(TOLD);
    // Of two classes with a share each, 40 and 50 per cent.
    plan(
        guest,
        "\"nic/fake0/dcb/pfc\" = \"3\"
\"nic/fake0/dcb/ets\" = \"prio-tc 0:0 1:1 2:0 3:0 4:0 5:0 6:0 7:0 tc-bw 0:40 1:50 2:0 3:0 4:0 5:0 6:0 7:0 tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict\"",
    );
    let refused = guest.run(&["bash", "-c", &Guest::command_to_apply(PLAN)]);
    assert_eq!(refused.code, 30, "{refused:#?}");
    assert!(refused.err.contains("Invalid argument"), "{refused:#?}");
    assert_eq!(guest.shell(TOLD), before);
}

/// Both who could take changes back are killed at each step of the writer.
pub(crate) fn a_card_whose_changes_are_cut_short_at_any_step_is_old_or_new(guest: &Guest) {
    if !is_there(guest) {
        return;
    }
    plan(
        guest,
        "\"nic/fake0/queue/rx-1/rx-usecs\" = 20
\"nic/fake0/dcb/app\" = \"ethtype-prio 0x8915:3 dscp-prio 26:3\"",
    );
    let told =
        || guest.shell("ethtool -Q fake0 queue_mask 2 --show-coalesce; dcb app show dev fake0");
    let before = told();
    guest.apply(PLAN);
    let after = told();
    assert_ne!(after, before);
    guest.linerate(&["tune", "undo"]);
    assert_eq!(told(), before);
    let apply = Guest::command_to_apply(PLAN);
    let mut steps = 0;
    loop {
        steps += 1;
        let killed = format!("LINERATE_CRASH=maker:{steps}:both exec {apply}");
        let done = guest.run(&["bash", "-c", &killed]);
        guest.linerate(&["tune", "recover"]);
        let now = told();
        if now == after {
            guest.linerate(&["tune", "undo"]);
            assert_eq!(told(), before, "killed at step {steps}: {done:#?}");
        } else {
            assert_eq!(now, before, "killed at step {steps}: {done:#?}");
        }
        if done.code == 0 {
            break;
        }
    }
    assert!(steps > 15, "two changes have more steps than {steps}");
}
