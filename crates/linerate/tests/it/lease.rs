//! `tune apply --peer`: changes of two hosts, both or neither.

use serde_json::Value;

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

/// The agent on `far`, with a variable of its own, started by a script that may look at the host first.
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
        refused.err.contains("both ends are as they were"),
        "{}",
        refused.err
    );
    assert_same(&lab, &before, "after a way that was cut");
    let hangs = agent(
        &lab,
        "until [ $(sysctl -n net.ipv4.tcp_sack) = 1 ]; do :; done;",
        "",
    );
    let late = apply(&hangs, "5").expect_code(40);
    assert!(late.err.contains("before the deadline"), "{}", late.err);
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
    let refused = lab.run(&["tune", "undo", &ours]).expect_code(20);
    assert!(
        refused.err.contains("nothing was changed"),
        "{}",
        refused.err
    );
    assert_same(&lab, &changed, "the far end is away");
    std::fs::remove_file(&gate).expect("it was there");
    lab.run(&["tune", "undo", &ours]).expect_code(0);
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
    apply("", "").expect_code(0);
    let after = lab.dump();
    lab.run(&["tune", "undo", &newest_of_near(&lab)])
        .expect_code(0);
    assert_same(&lab, &before, "undone");
    for far in [false, true] {
        let mut steps = 0;
        loop {
            steps += 1;
            let crash = format!("maker:{steps}:both");
            let done = if far {
                apply("", &format!("LINERATE_CRASH={crash}"))
            } else {
                apply(&crash, "")
            };
            let where_ = format!("far {far}, step {steps}: {}", done.err);
            lab.run(&["tune", "recover"]).expect_code(0);
            let now = lab.dump();
            if now == after {
                lab.run(&["tune", "undo", &newest_of_near(&lab)])
                    .expect_code(0);
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
