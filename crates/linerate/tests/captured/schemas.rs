//! The documents that need no captured host: rules, plans, and a measurement over the loopback.

use linerate_model::rules::RULES;
use serde_json::Value;

use super::documents::{document, fits};
use super::program::linerate;

#[test]
fn every_rule_explains_itself() {
    for rule in RULES {
        let said = document(&linerate(&["explain", rule.id, "--format", "json"]).with_code(0));
        assert_eq!(said["id"], rule.id);
        assert_eq!(said["number"], rule.number);
        assert_eq!(
            said["contested"],
            rule.contested.map_or(Value::Null, Value::from)
        );
        let page = linerate(&["explain", rule.id]).with_code(0);
        assert!(page.starts_with(&format!("# {}\n", rule.id)), "{page:.60}");
    }
    assert_eq!(linerate(&["explain", "no-such-rule"]).code, Some(23));
}

#[test]
fn the_list_of_rules_holds_the_whole_catalogue_and_our_own() {
    let said = document(&linerate(&["explain", "rules", "--format", "json"]).with_code(0));
    let listed = said["rules"].as_array().expect("a list");
    let ids: Vec<&str> = listed.iter().filter_map(|one| one["id"].as_str()).collect();
    for rule in RULES {
        assert!(ids.contains(&rule.id), "{} is not listed", rule.id);
    }
    let numbers: Vec<u64> = listed
        .iter()
        .filter_map(|one| one["number"].as_u64())
        .collect();
    assert_eq!(numbers, (1..=80).collect::<Vec<u64>>());
    assert_eq!(listed.len(), RULES.len());
    let text = linerate(&["explain", "rules"]).with_code(0);
    assert_eq!(text.lines().count(), listed.len());
}

#[test]
fn a_page_as_json_is_the_page_as_text() {
    for topic in ["settings", "exit-codes"] {
        let said = document(&linerate(&["explain", topic, "--format", "json"]).with_code(0));
        assert_eq!(said["topic"], topic);
        let page = linerate(&["explain", topic]).with_code(0);
        let told = said["page"].as_str().expect("a text");
        assert_eq!(told.trim_end(), page.trim_end());
    }
}

/// Reads this machine and changes nothing of it.
#[test]
fn a_plan_and_the_list_of_transactions_fit_their_schema() {
    let plan = document(&linerate(&["tune", "plan", "--format", "json"]).with_code(0));
    assert_eq!(plan["action"], "plan");
    let status = document(&linerate(&["tune", "status", "--format", "json"]).with_code(0));
    assert_eq!(status["transactions"], serde_json::json!([]));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plan.toml");
    std::fs::write(&file, "[settings]\n\"nic/lo/mtu\" = 1279\n").expect("a plan");
    let file = file.to_str().expect("a path in UTF-8");
    let plan =
        document(&linerate(&["tune", "plan", "--from", file, "--format", "json"]).with_code(0));
    assert_eq!(plan["changes"][0]["setting"], "nic/lo/mtu");
    assert_eq!(plan["changes"][0]["to"], 1279);
}

#[test]
fn a_measurement_fits_its_schema_in_every_direction() {
    for direction in [
        &[][..],
        &["--reverse"],
        &["--bidir"],
        &["--flows", "2", "--place", "0:0"],
    ] {
        let words = [
            "measure",
            "stream",
            "local",
            "--address",
            "127.0.0.1",
            "--time",
            "0.2",
            "--format",
            "json",
        ];
        let all: Vec<&str> = words.iter().chain(direction).copied().collect();
        let said = document(&linerate(&all).with_code(0));
        assert!(
            said["total"]["bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0),
            "{direction:?}"
        );
        assert_eq!(said["latency_ns"], Value::Null);
        let flags = said["flags"].as_array().expect("a list");
        assert!(flags.contains(&"shared-kernel".into()), "{flags:?}");
    }
}

#[test]
fn a_measurement_of_every_workload_fits_its_schema() {
    for words in [
        &["stream", "--receive", "trunc", "--send", "zerocopy"][..],
        &[
            "stream",
            "--flows",
            "3",
            "--threads",
            "2",
            "--bytes",
            "10MiB",
        ],
        &["rr", "--rate", "100", "--flows", "2"],
        &["rr", "--until-ci", "50%"],
        &["stream", "--flows", "2", "--data-check"],
        &["pingpong", "--sizes", "0B,4B,4MiB", "--repetitions", "20"],
        &["pingpong", "--sizes", "0B,4KiB", "--data-check"],
        &["transfer", "--repetitions", "5", "--data-check"],
        &[
            "diffusion",
            "--buffer",
            "64KiB",
            "--repetitions",
            "20",
            "--pairs",
            "2",
            "--data-check",
        ],
        &["diffusion", "--buffer", "64KiB", "--no-compute"],
        &[
            "diffusion",
            "--buffer",
            "4KiB",
            "--repetitions",
            "3",
            "--overhead",
            "6",
            "--seed",
            "1",
        ],
        &["udp", "--rate", "1Mbit/s"],
        &["http", "--connections", "2"],
    ] {
        let rest = ["--address", "127.0.0.1", "--format", "json"];
        let mut all = vec!["measure", words[0], "local"];
        all.extend(&words[1..]);
        all.extend(rest);
        if words[0] != "pingpong" && !words.contains(&"--repetitions") {
            all.extend(["--time", "0.2"]);
        }
        let said = document(&linerate(&all).with_code(0));
        assert_eq!(said["workload"], words[0]);
        let flags = said["flags"].as_array().expect("a list");
        assert!(!flags.contains(&"cut-short".into()), "{words:?}: {flags:?}");
    }
}

#[test]
fn the_experiments_that_come_with_linerate_and_their_list_fit_their_schemas() {
    let list = document(&linerate(&["lab", "list", "--format", "json"]).with_code(0));
    let names: Vec<&str> = list["experiments"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
    let files = std::fs::read_dir(folder).expect("the repository").flatten();
    let mut number = 0;
    for file in files {
        let name = file.path();
        let stem = name
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("UTF-8");
        assert!(names.contains(&stem), "{stem} is not listed");
        let text = std::fs::read_to_string(&name).expect("a file");
        let experiment: toml::Value = toml::from_str(&text).expect("TOML");
        let mut experiment = serde_json::to_value(experiment).expect("JSON");
        experiment["schema"] = "linerate.experiment/1".into();
        fits(&experiment);
        number += 1;
    }
    assert_eq!(number, names.len());
}
