//! Settings of a NIC with a driver of its own, and what is left of them after a power cut.

use serde_json::json;

use crate::guest::{DISK, Guest};

/// A plan, and the words in which `ethtool` tells what it changes.
const PLAN: &str = "cat >/run/plan.toml <<'END'
[settings]
\"nic/n0/ring/rx\" = 512
\"nic/n0/coalesce/rx-usecs\" = 64
END";
const TOLD: &str = "ethtool -g n0 | sed -n '/^Current/,$ s/^RX:[[:space:]]*/ring /p'
    ethtool -c n0 | sed -n 's/^rx-usecs:[[:space:]]*/usecs /p'";

pub(crate) fn rings_and_coalescing_are_set_read_back_and_undone(guest: &Guest) {
    guest.shell(PLAN);
    let before = guest.shell(TOLD);
    assert_ne!(before, "ring 512\nusecs 64\n");

    let applied = guest.linerate(&["tune", "apply", "--from", "/run/plan.toml"]);
    assert_eq!(
        applied["changes"].as_array().map(Vec::len),
        Some(2),
        "{applied:#}"
    );
    assert_eq!(guest.shell(TOLD), "ring 512\nusecs 64\n");
    let again = guest.linerate(&["tune", "plan", "--from", "/run/plan.toml"]);
    assert_eq!(again["changes"], json!([]));

    guest.linerate(&["tune", "undo"]);
    assert_eq!(guest.shell(TOLD), before);
    let status = guest.linerate(&["tune", "status"]);
    assert!(!status.to_string().contains("applied"), "{status:#}");
}

pub(crate) fn a_power_cut_amid_changes_leaves_nothing_to_mend(guest: &Guest) {
    let before = guest.shell(TOLD);
    guest.shell(PLAN);
    // Changes are made and taken back without end; the power goes at any moment after the first.
    let linerate = Guest::command();
    guest.shell(&format!(
        "cat >/run/changes <<'END'
while {linerate} tune apply --from /run/plan.toml && touch /run/changed && {linerate} tune undo; do :; done
END
        bash /run/changes >{DISK}/changes.log 2>&1 &
        until [ -e /run/changed ]; do kill -0 $! || {{ cat {DISK}/changes.log >&2; exit 1; }}; done
        find {DISK}/state/txn -type f | grep -q ."
    ));
    guest.power_cut();
    // The disk has outlived it, with a journal of the boot before.
    guest.shell(&format!("find {DISK}/state/txn -type f | grep -q ."));
    guest.linerate(&["tune", "recover"]);
    let status = guest.linerate(&["tune", "status"]);
    assert_eq!(status["transactions"], json!([]), "{status:#}");
    assert_eq!(guest.shell(TOLD), before);
    // And the next change finds the place free.
    guest.shell(PLAN);
    guest.linerate(&["tune", "apply", "--from", "/run/plan.toml"]);
    assert_eq!(guest.shell(TOLD), "ring 512\nusecs 64\n");
}
