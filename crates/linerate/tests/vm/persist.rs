//! Persistent settings across reboots, and power cuts at every point.

use serde_json::Value;

use crate::guest::{DISK, Guest};

/// Where the boot files go: the guest's own `/etc` does not outlive its power.
fn etc() -> String {
    format!("{DISK}/etc")
}

/// A plan, and what `ethtool` and `sysctl` print about it.
const PLAN: &str = "cat >/run/kept.toml <<'END'
[settings]
\"nic/n0/ring/rx\" = 512
\"sysctl/net.ipv4.tcp_sack\" = 0
END";
const TOLD: &str = "ethtool -g n0 | sed -n '/^Current/,$ s/^RX:[[:space:]]*/ring /p'
    sysctl -n net.ipv4.tcp_sack";
const NEW: &str = "ring 512\n0\n";

/// Everything that is kept, and the files by which a boot makes it.
fn kept_files(guest: &Guest) -> String {
    guest.shell(&format!(
        "cd {DISK}; for folder in etc state/boot; do
            [ ! -e $folder ] || find $folder -printf '%M %p %l\\n' | sort
            [ ! -e $folder ] || find $folder -type f -exec cat {{}} +
        done"
    ))
}

/// Applies the plan, unless it is applied.
fn apply(guest: &Guest) -> String {
    guest.shell(&format!("mkdir -p {}/systemd/system", etc()));
    guest.shell(PLAN);
    guest.apply("/run/kept.toml");
    let status = guest.linerate(&["tune", "status"]);
    let newest = status["transactions"].as_array().and_then(|all| all.last());
    let id = newest.and_then(|one| one["id"].as_str());
    id.expect("one is applied").to_owned()
}

fn persist(guest: &Guest, more: &[&str]) -> Value {
    guest.linerate(&[&["tune", "persist", "--etc", &etc()], more].concat())
}

/// What the boot's own script does, as the unit runs it.
fn boot(guest: &Guest) -> crate::guest::Done {
    guest.run(&["bash", "-c", &format!("exec {}/linerate/boot", etc())])
}

/// As a machine on which nothing was ever kept.
fn forget_all(guest: &Guest) {
    guest.linerate(&["tune", "persist", "--remove"]);
    guest.linerate(&["tune", "recover"]);
    let script = format!(
        "{} tune undo; rm -rf {DISK}/state {}; sync",
        Guest::command(),
        etc()
    );
    guest.shell(&script);
}

pub(crate) fn of_changes_of_two_hosts_the_other_half_is_named(guest: &Guest) {
    guest.shell(&format!(
        "mkdir -p {}/systemd/system
        ip netns add far
        ip link add near0 type veth peer name far0 netns far
        ip address add 10.66.0.1/24 dev near0
        ip -n far address add 10.66.0.2/24 dev far0
        ip link set near0 up
        ip -n far link set far0 up
        until grep -q 1 /sys/class/net/near0/carrier; do :; done
        cat >/run/pair.toml <<'END'
[settings]
\"sysctl/net.ipv4.tcp_sack\" = 0
[peer.settings]
\"sysctl/net.ipv4.tcp_sack\" = 0
END",
        etc()
    ));
    let apply = ["tune", "apply", "--from", "/run/pair.toml"];
    // The clock leaps while programs are read from the host.
    let peer = ["--peer", "netns:far", "--deadline", "36000"];
    guest.linerate(&[&apply[..], &peer].concat());
    let halves = |done: &Value| -> Vec<(String, String)> {
        let all = done["transactions"].as_array().cloned();
        let word = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
        let all = all.expect("a list").into_iter();
        all.map(|one| (word(&one, "state"), word(&one, "about")))
            .collect()
    };
    let kept = halves(&persist(guest, &[]));
    assert_eq!(
        (kept[0].0.as_str(), kept[1].0.as_str()),
        ("kept", "not persistent")
    );
    let there = &kept[1].1;
    assert!(there.contains("on netns:far"), "{there}");
    assert!(there.contains("run `linerate tune persist "), "{there}");
    let removed = halves(&guest.linerate(&["tune", "persist", "--remove"]));
    assert!(removed[1].1.contains("--remove"), "{removed:?}");
    guest.linerate(&["tune", "undo"]);
    forget_all(guest);
    guest.shell("ip netns del far");
}

pub(crate) fn what_is_kept_is_made_again_at_boot_and_undone_for_good(guest: &Guest) {
    guest.power_cut();
    let fresh = guest.shell(TOLD);
    assert_ne!(fresh, NEW);
    let id = apply(guest);
    let before = kept_files(guest);
    let kept = persist(guest, &[]);
    assert_eq!(kept["transactions"][0]["id"], id.as_str());
    let status = guest.linerate(&["tune", "status"]);
    assert_eq!(status["transactions"][0]["kept"], true, "{status:#}");

    guest.power_cut();
    assert_eq!(guest.shell(TOLD), fresh, "the power took what was set");
    let status = guest.linerate(&["tune", "status"]);
    assert_eq!(status["transactions"][0]["state"], "kept", "{status:#}");
    let done = boot(guest);
    assert_eq!(done.code, 0, "{done:#?}");
    assert_eq!(guest.shell(TOLD), NEW);
    let status = guest.linerate(&["tune", "status"]);
    let one = &status["transactions"][0];
    assert_eq!(one["id"], id.as_str(), "{status:#}");
    assert_eq!(one["state"], "applied", "{status:#}");
    assert_eq!(one["kept"], true, "{status:#}");
    // Once more changes nothing.
    assert_eq!(boot(guest).code, 0);
    let again = guest.linerate(&["tune", "status"]);
    assert_eq!(again, status);

    guest.linerate(&["tune", "undo", &id]);
    assert_eq!(guest.shell(TOLD), fresh);
    assert_eq!(kept_files(guest), before);
    let status = guest.linerate(&["tune", "status"]);
    assert_eq!(status["transactions"], serde_json::json!([]), "{status:#}");
    forget_all(guest);
}

pub(crate) fn a_boot_that_leaves_the_machine_worse_off_takes_it_back_and_is_not_tried_again(
    guest: &Guest,
) {
    let id = apply(guest);
    let before = guest.shell(&format!("{} tune undo >&2; {TOLD}", Guest::command()));
    let id = {
        let again = apply(guest);
        assert_ne!(again, id);
        again
    };
    // A process listens, as long as the setting is the old one.
    let listen = format!(
        "{} agent --http 127.0.0.1:7777 >/dev/null 2>&1 & echo $! >/run/listener
        until ss -Hltn | grep -q 127.0.0.1:7777; do :; done",
        Guest::command()
    );
    guest.shell(&listen);
    // The listener goes at the change; the deadline leaves room for leaps of the guest's clock.
    persist(
        guest,
        &["--probe", "127.0.0.1:7777", "--deadline", "30", &id],
    );
    guest.shell("kill $(cat /run/listener)");
    guest.power_cut();
    guest.shell(&listen);
    guest.shell(
        // Without a fork between the write and the kill: both come before the boot's next check.
        "(while read -r on </proc/sys/net/ipv4/tcp_sack && [ $on != 0 ]; do :; done
        kill $(cat /run/listener)) >/dev/null 2>&1 &",
    );
    let done = boot(guest);
    assert_eq!(done.code, 30, "{done:#?}");
    assert!(
        done.err.contains("127.0.0.1:7777 is unreachable"),
        "{done:#?}"
    );
    assert_eq!(guest.shell(TOLD), before);
    let status = guest.linerate(&["tune", "status"]).to_string();
    assert!(status.contains("disabled at boot"), "{status}");

    guest.shell(&listen);
    let done = boot(guest);
    assert_eq!(done.code, 30, "{done:#?}");
    assert_eq!(guest.shell(TOLD), before);
    // Kept once more it is tried once more; now the listener stays.
    persist(guest, &["--probe", "127.0.0.1:7777", &id]);
    let done = boot(guest);
    assert_eq!(done.code, 0, "{done:#?}");
    assert_eq!(guest.shell(TOLD), NEW);
    guest.shell("kill $(cat /run/listener)");
    forget_all(guest);
    assert_eq!(guest.shell(TOLD), before);
}

pub(crate) fn a_machine_that_goes_down_twice_at_its_boots_changes_boots_without_them(
    guest: &Guest,
) {
    let id = apply(guest);
    persist(guest, &[]);
    let fresh = {
        guest.power_cut();
        guest.shell(TOLD)
    };
    for _ in 0..2 {
        // At a write to the kernel, whichever it is.
        let crash = format!("LINERATE_CRASH=maker:12:power exec {}/linerate/boot", etc());
        let died = guest.run(&["bash", "-c", &crash]);
        assert_eq!(died.code, 255, "{died:#?}");
        guest.power_cut();
        assert_eq!(guest.shell(TOLD), fresh);
    }
    let done = boot(guest);
    assert_eq!(done.code, 30, "{done:#?}");
    assert!(done.err.contains("2 boots in a row ended"), "{done:#?}");
    assert_eq!(guest.shell(TOLD), fresh);
    guest.linerate(&["tune", "undo", &id]);
    forget_all(guest);
}

pub(crate) fn what_is_kept_at_once_is_undone_with_every_trace(guest: &Guest) {
    let traces = || {
        guest.shell(
            "for folder in /etc/linerate /etc/systemd/system; do
                [ ! -e $folder ] || find $folder -name '*linerate*' -o -name boot
            done",
        )
    };
    guest.shell("mkdir -p /etc/systemd/system; ip link set n0 up");
    guest.shell(
        "for irq in $(ls /sys/class/net/n0/device/msi_irqs); do echo 1 >/proc/irq/$irq/smp_affinity; done",
    );
    guest.shell(PLAN);
    let before = traces();
    for command in [
        &["tune", "affinity", "n0", "--persist"][..],
        &[
            "tune",
            "apply",
            "--no-confirm",
            "--deadline",
            "36000",
            "--persist",
            "--from",
            "/run/kept.toml",
        ],
    ] {
        guest.linerate(command);
        let said = traces();
        assert!(said.contains("/etc/linerate/boot"), "{said}");
        assert!(
            said.contains("multi-user.target.wants/linerate.service"),
            "{said}"
        );
        let status = guest.linerate(&["tune", "status"]);
        let all = status["transactions"].as_array().expect("a list");
        assert!(all.iter().any(|one| one["kept"] == true), "{status:#}");
        guest.linerate(&["tune", "undo"]);
        assert_eq!(traces(), before);
    }
    forget_all(guest);
}

pub(crate) fn what_cannot_be_kept_is_said_and_nothing_is_left(guest: &Guest) {
    forget_all(guest);
    let command = Guest::command();
    let run = |script: &str| guest.run(&["bash", "-c", script]);
    guest.shell(&format!("mkdir -p {}/systemd/system", etc()));
    let before = kept_files(guest);
    let none = run(&format!("{command} tune persist --etc {}", etc()));
    assert_eq!(none.code, 23, "{none:#?}");
    let none = run(&format!("{command} tune persist --remove no-such"));
    assert_eq!(none.code, 23, "{none:#?}");
    assert_eq!(kept_files(guest), before);

    apply(guest);
    let before = kept_files(guest);
    let lost = run(&format!(
        "{command} tune persist --etc {} --probe 127.0.0.1:9",
        etc()
    ));
    assert_eq!(lost.code, 20, "{lost:#?}");
    let foreign = run(&format!(
        "echo '[Unit]' >{0}/systemd/system/linerate.service
        {command} tune persist --etc {0}; code=$?; rm {0}/systemd/system/linerate.service; exit $code",
        etc()
    ));
    assert_eq!(foreign.code, 23, "{foreign:#?}");
    assert!(
        foreign.err.contains("not written by linerate"),
        "{foreign:#?}"
    );
    let full = run(&format!(
        "mkdir -p /run/full; mount -t tmpfs -o mode=755,nr_inodes=1 full /run/full
        {command} tune persist --etc /run/full; code=$?; umount /run/full; exit $code"
    ));
    assert_eq!(full.code, 41, "{full:#?}");
    let elsewhere = run(&format!(
        "ip netns add elsewhere
        ip netns exec elsewhere {command} tune apply --no-confirm --deadline 36000 --from /dev/stdin <<<'settings.\"sysctl/net.ipv4.tcp_sack\" = 0'
        ip netns exec elsewhere {command} tune persist --etc {}; code=$?
        ip netns exec elsewhere {command} tune undo; ip netns del elsewhere; exit $code",
        etc()
    ));
    assert_eq!(elsewhere.code, 22, "{elsewhere:#?}");
    let of_this_boot = run(&format!(
        "echo 'settings.\"irq/8/cpus\" = \"1\"' >/run/irq.toml
        {command} tune apply --no-confirm --deadline 36000 --from /run/irq.toml
        {command} tune persist --etc {}; code=$?
        {command} tune undo; exit $code",
        etc()
    ));
    assert_eq!(of_this_boot.code, 23, "{of_this_boot:#?}");
    assert!(
        of_this_boot.err.contains("interrupt numbers change"),
        "{of_this_boot:#?}"
    );
    assert_eq!(kept_files(guest), before);
    forget_all(guest);
}
