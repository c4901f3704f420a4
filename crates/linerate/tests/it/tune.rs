//! `tune`: settings of a namespace planned, applied, taken back, each seen by sysctl and ethtool.

use serde_json::Value;

use crate::fitting;
use crate::lab::{Lab, assert_same, text};

const PLAN: &str = "[settings]
\"sysctl/net.ipv4.tcp_rmem\" = \"4096 131072 7000000\"
\"sysctl/net.ipv4.tcp_sack\" = 0
\"nic/near0/feature/gro\" = OTHER_GRO
";

/// A plan that changes two sysctls and one feature, whatever the feature is now.
fn plan(lab: &Lab) -> std::path::PathBuf {
    let features = lab.shell("near", "ethtool -k near0");
    let on = features.contains("generic-receive-offload: on");
    let file = lab.path("plan.toml");
    let other = if on { "\"off\"" } else { "\"on\"" };
    std::fs::write(&file, PLAN.replace("OTHER_GRO", other)).expect("the lab's folder");
    file
}

#[track_caller]
fn json(lab: &Lab, arguments: &[&str]) -> Value {
    let done = lab
        .run(&[&["--format", "json", "tune"], arguments].concat())
        .expect_code(0);
    fitting(&done.out)
}

#[test]
fn a_plan_is_shown_applied_once_and_taken_back() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    let file = text(&file);
    let before = lab.dump();

    let planned = json(&lab, &["plan", "--from", file]);
    assert_eq!(
        planned["changes"].as_array().map(Vec::len),
        Some(3),
        "{planned:#}"
    );
    assert_same(&lab, &before, "after `tune plan`");

    json(&lab, &["apply", "--no-confirm", "--from", file]);
    let rmem = lab.shell("near", "sysctl -n net.ipv4.tcp_rmem net.ipv4.tcp_sack");
    let words: Vec<&str> = rmem.split_whitespace().collect();
    assert_eq!(words, ["4096", "131072", "7000000", "0"]);
    let after = lab.dump();
    assert_ne!(after, before);

    let again = json(&lab, &["apply", "--no-confirm", "--from", file]);
    assert_eq!(
        again["changes"].as_array().map(Vec::len),
        Some(0),
        "{again:#}"
    );
    assert_same(&lab, &after, "after the second `tune apply`");
    let status = json(&lab, &["status"]);
    let transactions = status["transactions"].as_array().expect("a list");
    assert_eq!(transactions.len(), 1, "{status:#}");
    assert_eq!(transactions[0]["state"], "applied");

    // What is committed is nobody's to recover.
    json(&lab, &["recover"]);
    assert_same(&lab, &after, "after `tune recover`");

    json(&lab, &["undo"]);
    assert_same(&lab, &before, "after `tune undo`");
    let status = json(&lab, &["status"]);
    assert!(!status.to_string().contains("applied"), "{status:#}");
    json(&lab, &["undo"]);
    assert_same(&lab, &before, "after a second `tune undo`");
}

#[test]
fn undo_leaves_alone_what_somebody_else_has_set_since() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    json(&lab, &["apply", "--no-confirm", "--from", text(&file)]);
    lab.shell("near", "sysctl -qw net.ipv4.tcp_rmem='4096 131072 8000000'");
    let done = lab.run(&["tune", "undo"]).expect_code(0);
    assert!(done.out.contains("tcp_rmem"), "{}", done.out);
    let rmem = lab.shell("near", "sysctl -n net.ipv4.tcp_rmem");
    assert!(rmem.contains("8000000"), "{rmem}");
    assert_eq!(lab.shell("near", "sysctl -n net.ipv4.tcp_sack").trim(), "1");
}

#[test]
fn a_transaction_is_undone_by_its_name_only_when_there_is_one() {
    let Some(lab) = Lab::new() else { return };
    let done = lab
        .run(&["tune", "undo", "no-such-transaction"])
        .expect_code(23);
    assert!(done.err.contains("no applied transaction"), "{}", done.err);
}

#[test]
fn a_value_that_the_kernel_refuses_leaves_nothing_half_done() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = lab.path("refused.toml");
    let plan = "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n\
        \"sysctl/net.ipv4.tcp_congestion_control\" = \"nosuchcc\"\n";
    std::fs::write(&file, plan).expect("the lab's folder");
    let done = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    assert!(
        matches!(done.code, Some(21 | 22 | 23 | 30)),
        "{:?} {}",
        done.code,
        done.err
    );
    assert!(done.err.contains("tcp_congestion_control"), "{}", done.err);
    assert_same(&lab, &before, "after a refused `tune apply`");
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(
        !status.contains("applied") && !status.contains("open"),
        "{status}"
    );
}
