//! `prove` against faults injected with `ethtool`, `tc` and `sysctl`: proposed, tried, kept or restored.

use serde_json::Value;

use crate::fitting;
use crate::job::Done;
use crate::lab::{Lab, assert_same, text};

/// Segmentation switched off, where this kernel lets it be.
pub(crate) const NO_SEGMENTATION: &str = "ethtool -K near0 tso off gso off";
/// A shaper far below anything else: its removal shows on the busiest machine.
const SHAPER: &str = "tc qdisc add dev near0 root tbf rate 10mbit burst 64kb latency 400ms";

/// Proves with few, short trials and returns the document.
#[track_caller]
fn prove(lab: &Lab, run: &str, more: &[&str]) -> (Value, Done) {
    let run = lab.path(run);
    let fixed = [
        "--format",
        "json",
        "prove",
        "netns:far",
        "--trials",
        "3",
        "--time",
        "0.2",
        "--seed",
        "7",
        "--out",
        text(&run),
    ];
    let done = lab.run(&[&fixed, more].concat()).expect_code(0);
    (fitting(&done.out), done)
}

/// The changes that were tried for `rule`, as their setting keys.
fn tried(document: &Value, rule: &str) -> Vec<String> {
    let remedies = document["remedies"].as_array().expect("remedies").iter();
    remedies
        .filter(|remedy| remedy["rule"] == rule)
        .flat_map(|remedy| remedy["changes"].as_array().expect("changes"))
        .map(|change| {
            change["change"]["setting"]
                .as_str()
                .expect("a key")
                .to_owned()
        })
        .collect()
}

fn remedy<'a>(document: &'a Value, rule: &str) -> &'a Value {
    let mut remedies = document["remedies"].as_array().expect("remedies").iter();
    let found = remedies.find(|remedy| remedy["rule"] == rule);
    found.unwrap_or_else(|| panic!("{rule} was not tried: {:#}", document["remedies"]))
}

#[test]
fn segmentation_switched_off_is_found_tried_and_put_back() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", NO_SEGMENTATION);
    let before = lab.dump();
    let (document, done) = prove(&lab, "run", &["--undo"]);
    assert_eq!(document["restored"], true);
    let keys = tried(&document, "tx-segmentation-or-csum-off");
    for feature in ["tx-tcp-segmentation", "tx-generic-segmentation"] {
        let key = format!("nic/near0/feature/{feature}");
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    let effect = &remedy(&document, "tx-segmentation-or-csum-off")["effect"];
    // Three in each stage; what is in doubt has a second and a third one.
    let without = effect["trials_without"].as_u64();
    assert!(matches!(without, Some(3 | 6 | 9)), "{effect:#}");
    assert!(effect["low"].as_f64() <= effect["relative"].as_f64());
    assert!(effect["relative"].as_f64() <= effect["high"].as_f64());
    assert_same(&lab, &before, "after `prove --undo`");
    // It did what it announced, and the stored run shows the same again.
    assert!(done.err.contains("7 trials of"), "{}", done.err);
    let report = lab.run(&["--format", "json", "report", text(&lab.path("run"))]);
    let again = fitting(&report.expect_code(0).out);
    for key in ["before", "after", "remedies", "restored", "found"] {
        assert_eq!(again[key], document[key], "{key}");
    }
}

#[test]
fn a_remedy_that_helps_stays_and_tune_undo_takes_it_back() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", SHAPER);
    let before = lab.dump();
    let (document, _) = prove(&lab, "run", &["--allow-shaper-removal"]);
    let shaper = remedy(&document, "qdisc-shaper");
    assert_eq!(shaper["kept"], true, "{shaper:#}");
    assert!(shaper["effect"]["low"].as_f64() > Some(0.0), "{shaper:#}");
    let found = document["found"].as_array().expect("rules");
    assert!(found.contains(&Value::from("qdisc-shaper")), "{found:?}");
    assert_eq!(document["restored"], true, "but for what was kept");
    let kept = lab.shell("near", "tc qdisc show dev near0");
    assert!(!kept.contains("tbf"), "{kept}");
    // The newest first, one call each, until nothing is applied.
    for _ in document["remedies"].as_array().expect("remedies") {
        lab.run(&["tune", "undo"]).expect_code(0);
    }
    assert_same(&lab, &before, "after `tune undo`");
}

#[test]
fn a_shaper_that_is_not_ours_is_named_and_left_alone() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", SHAPER);
    let before = lab.dump();
    let (document, _) = prove(&lab, "run", &["--undo"]);
    assert_eq!(tried(&document, "qdisc-shaper"), Vec::<String>::new());
    let reason = document["ceiling"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("10.0"), "{reason}");
    assert_same(&lab, &before, "after `prove --undo`");
}

#[test]
fn what_only_both_ends_together_mend_is_tried_on_both() {
    for lab in Lab::for_each_channel() {
        lab.shell("near", "sysctl -qw net.ipv4.tcp_wmem='4096 16384 16384'");
        lab.shell("far", "sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384'");
        let before = lab.dump();
        let (document, _) = prove(&lab, "run", &["--undo"]);
        let changes = remedy(&document, "tcp-buffer-below-bdp")["changes"].clone();
        let ends: Vec<&Value> = changes
            .as_array()
            .expect("changes")
            .iter()
            .map(|change| &change["end"])
            .collect();
        assert!(ends.contains(&&Value::from("local")), "{changes:#}");
        assert!(ends.contains(&&Value::from("remote")), "{changes:#}");
        assert_same(&lab, &before, "after `prove --undo`");
    }
}

/// A plan of which the first change helps and the last one cannot.
fn given(lab: &Lab) -> String {
    let file = lab.path("given.toml");
    let plan = "[settings]\n\"nic/near0/qdisc\" = \"noqueue\"\n\"sysctl/net.ipv4.tcp_ecn\" = 1\n\
                [peer.settings]\n\"sysctl/net.ipv4.tcp_ecn\" = 1\n";
    std::fs::write(&file, plan).expect("the lab's folder");
    text(&file).to_owned()
}

#[test]
fn changes_of_a_plan_are_weighed_like_the_rules_remedies() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", SHAPER);
    let before = lab.dump();
    let file = given(&lab);
    let asked = ["--allow-shaper-removal", "--undo", "--from", &file];
    let (document, _) = prove(&lab, "run", &asked);
    let weighed = document["remedies"].as_array().expect("remedies");
    let last = |setting: &str| {
        let found = weighed.iter().rfind(|remedy| remedy["setting"] == setting);
        found.unwrap_or_else(|| panic!("{setting} was not weighed: {weighed:#?}"))
    };
    assert_eq!(last("nic/near0/qdisc")["kept"], true);
    let ecn = last("sysctl/net.ipv4.tcp_ecn");
    assert_eq!(ecn["changes"].as_array().map(Vec::len), Some(2), "{ecn:#}");
    let found = document["found"].as_array().expect("rules");
    assert!(!found.contains(&Value::from("given")), "{found:?}");
    assert_same(&lab, &before, "after `--undo`");
}

#[test]
fn apply_with_a_peer_to_prove_it_by_undoes_what_does_not_help() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = lab.path("own.toml");
    // Far slower than the busiest machine.
    let plan = "[settings]\n\"nic/near0/qdisc\" = \"tbf rate 2mbit burst 64k latency 20ms\"\n";
    std::fs::write(&file, plan).expect("a plan");
    // Its own default: trials of a second, three without each.
    let apply = [
        "--format",
        "json",
        "tune",
        "apply",
        "--from",
        text(&file),
        "--prove",
        "netns:far",
    ];
    let done = lab.run(&apply).expect_code(0);
    let remedy = &fitting(&done.out)["remedies"][0];
    assert_eq!(remedy["kept"], false, "{remedy:#}");
    assert_same(&lab, &before, "nothing helped");
    for more in ["--no-confirm", "--persist"] {
        lab.run(&[&apply[2..], &[more]].concat()).expect_code(2);
    }
}

#[test]
fn a_search_finds_what_was_switched_off_and_what_it_keeps_can_be_taken_back() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", NO_SEGMENTATION);
    let before = lab.dump();
    let run = lab.path("run");
    let search = |more: &[&str]| {
        let fixed = [
            "--format",
            "json",
            "tune",
            "search",
            "netns:far",
            "--netns-only",
        ];
        let fixed = [
            &fixed[..],
            &["--trials", "3", "--time", "0.1", "--seed", "7"],
        ]
        .concat();
        lab.run(&[&fixed[..], more].concat())
    };
    let done = search(&["--budget", "40", "--undo", "--out", text(&run)]);
    if done.code == Some(2) && done.err.contains("cannot search in") {
        eprintln!("SKIP: a trial takes too long on this machine: {}", done.err);
        return;
    }
    let done = done.expect_code(0);
    let document = fitting(&done.out);
    let factors = document["search"]["factors"].as_array().expect("factors");
    let name = |factor: &Value| factor["name"].as_str().expect("a name").to_owned();
    let names: Vec<String> = factors.iter().map(name).collect();
    for wanted in [
        "local nic/near0/feature/tx-tcp-segmentation",
        "remote sysctl/net.ipv4.tcp_rmem",
    ] {
        assert!(names.contains(&wanted.to_owned()), "{names:?}");
    }
    assert!(document["search"]["trials"].as_u64() > Some(10));
    assert_eq!(document["restored"], true);
    assert_same(&lab, &before, "after a search with `--undo`");
    let short = search(&["--budget", "2"]).expect_code(2);
    assert!(short.err.contains("--budget"), "{}", short.err);
    assert_same(&lab, &before, "after a search that had no time");
}

#[test]
fn remedies_can_be_weighed_by_requests_whose_slowest_are_a_guard() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", NO_SEGMENTATION);
    let before = lab.dump();
    let (document, _) = prove(&lab, "run", &["--undo", "--rr"]);
    let weighed = document["remedies"].as_array().expect("remedies");
    let guards = weighed
        .iter()
        .filter_map(|remedy| remedy["guards"].as_array());
    let names: Vec<&Value> = guards.flatten().map(|guard| &guard["guard"]).collect();
    assert!(names.contains(&&Value::from("p99")), "{weighed:#?}");
    assert!(document["before"]["rate_bit_per_s"].as_f64() > Some(0.0));
    assert_same(&lab, &before, "after `prove --undo`");
}
