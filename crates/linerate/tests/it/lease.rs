//! `tune apply --peer`: changes of two hosts, both or neither.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::fitting;
use crate::job::{Done, run};
use crate::lab::{Lab, assert_same, text};

const PLAN: &str = "[settings]
\"nic/near0/mtu\" = 9000
\"sysctl/net.ipv4.tcp_sack\" = 0
[peer.settings]
\"nic/far0/mtu\" = 9000
\"sysctl/net.ipv4.tcp_sack\" = 0
";

fn plan(lab: &Lab) -> String {
    let file = lab.path("both.toml");
    std::fs::write(&file, PLAN).expect("the lab's folder");
    text(&file).to_owned()
}

/// The agent on `far`, with an environment variable, started by a script that may inspect the host first.
fn agent(lab: &Lab, look: &str, variable: &str) -> String {
    let (linerate, state) = (crate::LINERATE, lab.state());
    let state = text(&state);
    format!(
        "exec:ip netns exec far sh -c '{look} exec env -u LINERATE_CRASH {variable} {linerate} --state {state} agent --stdio'"
    )
}

#[test]
fn both_hosts_change_together_and_are_taken_back_together() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    let apply = [
        "--format",
        "json",
        "tune",
        "apply",
        "--peer",
        "netns:far",
        "--from",
        &file,
    ];
    let applied = lab.run(&apply).expect_code(0);
    let document = fitting(&applied.out);
    let number = |key: &str| document[key].as_array().map(Vec::len);
    assert_eq!(
        (number("changes"), number("peer_changes")),
        (Some(2), Some(2))
    );
    let mtu = "cat /sys/class/net/*0/mtu; sysctl -n net.ipv4.tcp_sack";
    assert_eq!(lab.shell("near", mtu), "9000\n0\n");
    assert_eq!(lab.shell("far", mtu), "9000\n0\n");
    lab.run(&["tune", "recover"]).expect_code(0);
    assert_eq!(
        lab.shell("far", mtu),
        "9000\n0\n",
        "what stands is left alone"
    );
    let again = lab.run(&apply).expect_code(0);
    assert_eq!(fitting(&again.out)["changes"], Value::Array(Vec::new()));
    // What is newest in this folder is what near did last: both keep their journals there.
    let ours = newest_of_near(&lab);
    lab.run(&["tune", "undo", &ours]).expect_code(0);
    assert_same(&lab, &before, "after `tune undo`");
}

/// The transaction of `near` that is noted with one of `far`.
fn newest_of_near(lab: &Lab) -> String {
    let pairs = lab.state().join("pairs");
    let mut names = std::fs::read_dir(pairs).expect("a pair is noted");
    let name = names.next().expect("a pair is noted").expect("its name");
    let name = name.path();
    let name = name.file_stem().and_then(|name| name.to_str());
    name.expect("a name").to_owned()
}

#[test]
fn a_change_that_cuts_the_way_to_the_peer_is_taken_back_on_both() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    let apply = |peer: &str, deadline: &str| {
        lab.run(&[
            "tune",
            "apply",
            "--from",
            &file,
            "--deadline",
            deadline,
            "--peer",
            peer,
        ])
    };
    // Whoever comes in once the host is changed is turned away, or never answered.
    let refuses = agent(
        &lab,
        "[ $(sysctl -n net.ipv4.tcp_sack) = 1 ] || exit 1;",
        "",
    );
    let refused = apply(&refuses, "60").expect_code(20);
    assert!(
        refused.err.contains("both ends were rolled back"),
        "{}",
        refused.err
    );
    assert_same(&lab, &before, "after a way that was cut");
    let hangs = agent(
        &lab,
        "[ $(sysctl -n net.ipv4.tcp_sack) = 1 ] || exec cat >/dev/null;",
        "",
    );
    let late = apply(&hangs, "10");
    // On a busy machine the reverter may come first.
    let by_reverter = late.signal == Some(9) && late.err.contains("rolled back by the reverter");
    if !by_reverter {
        let late = late.expect_code(40);
        assert!(late.err.contains("before the deadline"), "{}", late.err);
    }
    assert_same(&lab, &before, "after a way that hangs");
}

#[test]
fn an_undo_whose_far_half_cannot_be_reached_changes_nothing() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    let gate = lab.path("closed");
    let look = format!("[ ! -e {} ] || exit 1;", text(&gate));
    let peer = agent(&lab, &look, "");
    lab.run(&["tune", "apply", "--from", &file, "--peer", &peer])
        .expect_code(0);
    let changed = lab.dump();
    let ours = newest_of_near(&lab);
    std::fs::write(&gate, "").expect("the lab's folder");
    let undo = ["tune", "undo", &ours, "--peer", &peer];
    let refused = lab.run(&undo).expect_code(20);
    assert!(
        refused.err.contains("nothing was changed"),
        "{}",
        refused.err
    );
    assert_same(&lab, &changed, "the far end is away");
    std::fs::remove_file(&gate).expect("it was there");
    let unnamed = lab.run(&undo[..3]).expect_code(2);
    let again = format!("tune undo {ours} --peer 'exec:");
    assert!(unnamed.err.contains(&again), "{}", unnamed.err);
    assert!(unnamed.err.contains("nothing was changed"));
    assert_same(&lab, &changed, "a command that a file names is not started");
    lab.run(&undo).expect_code(0);
    assert_same(&lab, &before, "after `tune undo`");
}

/// Kills a maker at every step, on this end or on the far one, and recovers: old or new, and the same on both.
#[test]
fn whichever_end_is_killed_at_whatever_step_both_are_old_or_both_are_new() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    let before = lab.dump();
    let apply = |near: &str, far: &str| -> Done {
        let peer = agent(&lab, "", far);
        let mut command = lab.linerate(&["tune", "apply", "--from", &file, "--peer", &peer]);
        command.env("LINERATE_CRASH", near);
        run(command)
    };
    let undo = |far: &str| {
        let (ours, peer) = (newest_of_near(&lab), agent(&lab, "", far));
        lab.run(&["tune", "undo", &ours, "--peer", &peer])
            .expect_code(0);
    };
    apply("", "").expect_code(0);
    let after = lab.dump();
    undo("");
    assert_same(&lab, &before, "undone");
    for far in [false, true] {
        let mut steps = 0;
        loop {
            steps += 1;
            let crash = format!("maker:{steps}:both");
            let at_peer = if far {
                format!("LINERATE_CRASH={crash}")
            } else {
                String::new()
            };
            let done = apply(if far { "" } else { &crash }, &at_peer);
            let where_ = format!("far {far}, step {steps}: {}", done.err);
            lab.run(&["tune", "recover", "--peer", &agent(&lab, "", &at_peer)])
                .expect_code(0);
            let now = lab.dump();
            if now == after {
                undo(&at_peer);
                assert_same(&lab, &before, &where_);
                if done.code == Some(0) {
                    break;
                }
            } else {
                assert_eq!(now, before, "{where_}");
            }
        }
        assert!(steps > 15, "two changes have more steps than {steps}");
    }
}

/// A note in the state folder of which the far half is at a command; and that command, which leaves a trace.
pub(crate) fn note_of_a_command(state: &Path) -> (PathBuf, String) {
    let trace = state.join("started");
    let peer = format!("exec:touch {}; exit 3", text(&trace));
    // No process has this number (proc(5), pid_max).
    let maker = json!({ "pid": 1 << 23, "start_ticks": 1 });
    let note =
        json!({ "peer": peer, "ours": "1", "theirs": "2", "maker": maker, "undoing": false });
    std::fs::create_dir(state.join("pairs")).expect("a folder");
    std::fs::write(state.join("pairs/1.json"), note.to_string()).expect("written");
    (trace, peer)
}

#[test]
fn a_command_that_only_a_file_names_is_not_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, peer) = note_of_a_command(folder.path());
    let linerate = |words: &[&str]| {
        let mut command = Command::new(crate::LINERATE);
        command.arg("--state").arg(folder.path()).args(words);
        run(command)
    };
    let recovered = linerate(&["tune", "recover"]).expect_code(31);
    let again = format!("tune recover --peer '{peer}'");
    assert!(recovered.err.contains(&again), "{}", recovered.err);
    // A command that begins with a recovery, and changes nothing.
    let sack = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").expect("a sysctl");
    let plan = folder.path().join("plan.toml");
    let settings = format!("[settings]\n\"sysctl/net.ipv4.tcp_sack\" = {sack}");
    std::fs::write(&plan, settings).expect("written");
    let applied = linerate(&["tune", "apply", "--from", text(&plan)]).expect_code(0);
    assert!(applied.err.contains(&again), "{}", applied.err);
    let other = linerate(&["tune", "recover", "--peer", "exec:true"]).expect_code(31);
    assert!(other.err.contains(&again), "{}", other.err);
    assert!(!trace.exists(), "the command was started");
    assert!(folder.path().join("pairs/1.json").exists());
    // Named by the person, it is.
    linerate(&["tune", "recover", "--peer", &peer]).expect_code(31);
    assert!(trace.exists());
}

#[test]
fn a_note_that_others_may_write_or_that_is_a_link_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, peer) = note_of_a_command(folder.path());
    let note = folder.path().join("pairs/1.json");
    let recover = || {
        let mut command = Command::new(crate::LINERATE);
        command.arg("--state").arg(folder.path());
        command.args(["tune", "recover", "--peer", &peer]);
        let done = run(command);
        assert!(!matches!(done.code, Some(0 | 31)), "{done:?}");
        assert!(!trace.exists(), "{done:?}");
        done.err
    };
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    };
    set_mode(&note, 0o666);
    assert!(recover().contains("mode 0666"));
    set_mode(&note, 0o600);
    set_mode(&folder.path().join("pairs"), 0o777);
    assert!(recover().contains("mode 0777"));
    set_mode(&folder.path().join("pairs"), 0o755);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::rename(&note, &elsewhere).expect("our own");
    std::os::unix::fs::symlink(&elsewhere, &note).expect("a link");
    assert!(recover().contains("not a regular file"));
}
