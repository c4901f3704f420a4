//! Who guards changes beside the process that makes them: reverters that are stopped in mid-work, whose locks stay
//! theirs and for whom nobody waits without end, and a timer of systemd for the case that both are killed.

use crate::guest::{AWAKE, DISK, Guest};

/// One setting that all namespaces share.
const SHARED: &str = "printf '[settings]\\n\"sysctl/vm.swappiness\" = 10\\n' >/run/ten.toml
    printf '[settings]\\n\"sysctl/vm.swappiness\" = 20\\n' >/run/twenty.toml";

/// Seconds that do not pass: the clock leaps while programs are read from the host.
const LONG: &str = "36000";

// Loops that poll a state sleep in between: the clock of an idle guest leaps, a busy guest's hardly moves.

/// The guest's first process becomes systemd. There is no way back but another boot.
pub(crate) const SYSTEMD: &str =
    "until [ \"$(systemctl is-active basic.target)\" = active ]; do sleep 0.1; done";

/// The timers of linerate's that systemd has.
const TIMERS: &str = "systemctl list-units --all --plain --no-legend 'linerate-recover-*.timer'";

/// A shell's lines that leave an `apply` of /run/ten.toml waiting for a decision; `before` comes before its command. Its
/// number is $maker, its stopped reverter's $reverter.
fn waiting(before: &str, deadline: &str) -> String {
    let command = Guest::command();
    format!(
        "rm -rf {DISK}/state/txn
        {before} {command} tune apply --deadline {deadline} --from /run/ten.toml >/run/ten.log 2>&1 &
        maker=$!
        until ls {DISK}/state/txn/*/control >/dev/null 2>&1; do kill -0 $maker || {{ cat /run/ten.log >&2; exit 1; }}; done
        reverter=$(pgrep -P $maker); kill -STOP $reverter"
    )
}

pub(crate) fn what_namespaces_share_is_locked_until_a_killed_makers_reverter_is_done(
    guest: &Guest,
) {
    let swappiness = || guest.shell("sysctl -n vm.swappiness");
    let before = swappiness();
    guest.shell(SHARED);
    guest.shell("ip netns add one; ip netns add two");
    guest.shell(&format!(
        "{}; kill -KILL $maker; echo $reverter >/run/reverter",
        waiting("ip netns exec one", LONG)
    ));
    assert_eq!(swappiness(), "10\n");
    // The state folder of another user, who knows nothing of the journal.
    let other = format!(
        "ip netns exec two {} --quiet --state /run/other tune",
        Guest::PROGRAM
    );
    let apply = format!("{other} apply --no-confirm --deadline 36000 --from /run/twenty.toml");
    let refused = guest.run(&["bash", "-c", &apply]);
    assert_eq!(refused.code, 41, "{refused:#?}");
    assert!(
        refused.err.contains("still being rolled back"),
        "{refused:#?}"
    );
    assert_eq!(swappiness(), "10\n", "nothing was built on it");

    guest.shell("kill -CONT $(cat /run/reverter); tail --pid=$(cat /run/reverter) -f /dev/null");
    assert_eq!(swappiness(), before);
    guest.shell(&apply);
    assert_eq!(swappiness(), "20\n");
    guest.shell(&format!("{other} undo"));
    assert_eq!(swappiness(), before);
    guest.linerate(&["tune", "recover"]);
    guest.shell("ip netns del one; ip netns del two");
}

pub(crate) fn a_reverter_that_does_not_end_is_named_and_left_alone_with_its_lock(guest: &Guest) {
    let swappiness = || guest.shell("sysctl -n vm.swappiness");
    let before = swappiness();
    guest.shell(SHARED);
    let command = Guest::command();
    let said = guest.shell(&format!(
        "{}; echo $reverter >/run/reverter; {command} tune confirm >/dev/null; wait $maker; cat /run/ten.log",
        waiting("", LONG)
    ));
    assert!(said.contains("did not exit within 10 s"), "{said}");
    let reverter = guest.shell("cat /run/reverter");
    assert!(
        said.contains(&format!("kill -KILL {}", reverter.trim())),
        "{said}"
    );
    // It may be putting something back: nobody changes anything beside it.
    let undo = guest.run(&["bash", "-c", &format!("{command} tune undo")]);
    assert_eq!(undo.code, 41, "{undo:#?}");
    assert_eq!(swappiness(), "10\n");
    guest.shell("kill -CONT $(cat /run/reverter); tail --pid=$(cat /run/reverter) -f /dev/null");
    assert_eq!(swappiness(), "10\n", "it was confirmed");
    guest.linerate(&["tune", "undo"]);
    assert_eq!(swappiness(), before);
}

pub(crate) fn with_both_killed_systemd_takes_everything_back_shortly_after_the_deadline(
    guest: &Guest,
) {
    let swappiness = || guest.shell("sysctl -n vm.swappiness");
    let before = swappiness();
    guest.shell(SHARED);
    guest.shell("touch /run/systemd-next");
    guest.shell(SYSTEMD);
    assert_eq!(guest.shell(TIMERS), "");
    // Read from the host once: linerate gives it 5 s.
    guest.shell("systemd-run --quiet --collect --unit warm --on-active=36000s true; systemctl stop warm.timer");
    // What is decided needs nobody any more.
    let command = Guest::command();
    let apply = format!("{AWAKE}{}", waiting("", "200"));
    let said = guest.shell(&format!(
        "{apply}; kill -CONT $reverter; {TIMERS}; {command} tune confirm >/dev/null; wait $maker; echo; {TIMERS}"
    ));
    let (waits, decided) = said.split_once("\n\n").expect("two answers");
    assert!(waits.contains("linerate-recover-"), "{said}");
    assert_eq!(decided, "", "{said}");
    guest.linerate(&["tune", "undo"]);
    assert_eq!(swappiness(), before);

    guest.shell(&format!("{apply}; kill -KILL $reverter $maker"));
    assert_eq!(swappiness(), "10\n", "nobody was left to take it back");
    guest.shell(&format!(
        "until [ $(sysctl -n vm.swappiness) = {} ]; do sleep 10; done",
        before.trim()
    ));
    guest.shell(&format!("while [ -n \"$({TIMERS})\" ]; do sleep 1; done"));
    let status = guest.linerate(&["tune", "status"]);
    assert_eq!(status["transactions"], serde_json::json!([]), "{status:#}");

    // Where the reverter did its work, there is nothing to do, and nothing is done.
    guest.shell(&format!(
        "{apply}; kill -CONT $reverter; kill -KILL $maker; tail --pid=$reverter -f /dev/null"
    ));
    assert_eq!(swappiness(), before);
    guest.shell("sysctl -q vm.swappiness=33");
    guest.shell(&format!("while [ -n \"$({TIMERS})\" ]; do sleep 10; done"));
    assert_eq!(swappiness(), "33\n", "somebody else's");
    guest.shell(&format!("sysctl -q vm.swappiness={before}"));
}
