//! The documents that need no captured host: rules, plans, and a measurement over the loopback.

use linerate_model::rules::RULES;

use super::documents::document;
use super::program::linerate;

#[test]
fn every_rule_explains_itself() {
    for rule in RULES {
        let said = document(&linerate(&["explain", rule.id, "--format", "json"]).with_code(0));
        assert_eq!(said["id"], rule.id);
        let page = linerate(&["explain", rule.id]).with_code(0);
        assert!(page.starts_with(&format!("# {}\n", rule.id)), "{page:.60}");
    }
    assert_eq!(linerate(&["explain", "no-such-rule"]).code, Some(23));
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
        assert_eq!(said["latency_ns"], serde_json::Value::Null);
        let flags = said["flags"].as_array().expect("a list");
        assert!(flags.contains(&"shared-kernel".into()), "{flags:?}");
    }
}
