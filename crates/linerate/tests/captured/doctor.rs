//! `linerate doctor --from`: the document, the exit code, and the words.

use std::collections::BTreeMap;

use linerate_model::rules::RULES;
use serde_json::Value;

use super::archives::{HEALTHY, names, place};
use super::documents::document;
use super::program::on;

const ILL: &str = "two-socket-remote-irqs-narrow-pcie";

fn doctor(name: &str, more: &[&str]) -> super::program::Ended {
    let words: Vec<&str> = ["doctor"].iter().chain(more).copied().collect();
    on(&place(name), &words)
}

#[test]
fn every_captured_host_gets_a_document_in_every_profile() {
    for name in names() {
        for profile in [
            "throughput",
            "latency",
            "forwarding",
            "rdma",
            "storage",
            "mixed",
            "measurement",
        ] {
            let ended = doctor(&name, &["--role", profile, "--format", "json"]);
            let expected = if HEALTHY.contains(&name.as_str()) {
                0
            } else {
                10
            };
            let said = document(&ended.with_code(expected));
            assert_eq!(said["profile"], profile);
            assert_eq!(said["watched_s"], Value::Null);
            assert_eq!(said["rules"], RULES.len());
            for unsure in said["undetermined"].as_array().expect("a list") {
                let missing = unsure["missing"].as_array().expect("a list");
                assert!(!missing.is_empty(), "{name}: {unsure}");
            }
        }
    }
}

#[test]
fn the_document_says_what_is_wrong_worst_first() {
    let said = document(&doctor(ILL, &["--format", "json"]).with_code(10));
    let findings = said["findings"].as_array().expect("a list");
    let field = |name: &str| -> Vec<&str> {
        let all = findings.iter().map(|one| one[name].as_str());
        all.map(Option::unwrap_or_default).collect()
    };
    assert_eq!(field("rule"), ["pcie-link-degraded", "irq-remote-numa"]);
    assert_eq!(field("severity"), ["crit", "warn"]);
    assert_eq!(field("subject"), ["nic/eth2", "nic/eth2"]);
    let remedies = findings[1]["remedies"].as_array().expect("a list");
    let words: Vec<(&Value, &Value, &Value, &Value)> = remedies
        .iter()
        .map(|one| (&one["setting"], &one["from"], &one["to"], &one["class"]))
        .collect();
    assert_eq!(words.len(), 4);
    let (setting, from, to, class) = words[3];
    assert_eq!(setting, "nic/eth2/queue/rx-3/irq-cpus");
    assert_eq!((from, to, class), (&"3".into(), &"7".into(), &"R1".into()));
}

#[test]
fn the_exit_code_follows_the_severity_that_was_asked_for() {
    let codes = |name: &str| {
        ["never", "crit", "warn", "note"].map(|limit| doctor(name, &["--fail-on", limit]).code)
    };
    assert_eq!(codes(ILL), [Some(0), Some(10), Some(10), Some(10)]);
    // bbr on the captured machine is a note.
    let noted = [Some(0), Some(0), Some(0), Some(10)];
    assert_eq!(codes("vm-two-cpus"), noted);
    assert_eq!(codes("two-socket-healthy"), [Some(0); 4]);
    assert_eq!(
        doctor(ILL, &["lo"]).code,
        Some(0),
        "nothing is wrong with lo"
    );
    assert_eq!(doctor(ILL, &["--fail-on", "bad"]).code, Some(2));
}

#[test]
fn the_words_name_the_evidence_and_what_is_not_known_when_asked() {
    let said = doctor(ILL, &["-v"]).with_code(10);
    for part in [
        "crit  nic/eth2  pcie-link-degraded",
        "[/proc/irq/60/effective_affinity_list]",
        "current_link_width]",
        "fix [R1, no effect on traffic]: nic/eth2/queue/rx-0/irq-cpus: 0 -> 4",
    ] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
    let short = doctor("vm-virtio", &[]).with_code(0);
    assert!(short.contains("no findings ("), "{short}");
    assert!(short.contains("checks skipped"), "{short}");
    let long = doctor("vm-virtio", &["-v"]).with_code(0);
    for rule in ["pcie-aer", "rss-table-uneven"] {
        let names = |line: &str| line.contains("skipped") && line.contains(rule);
        assert!(long.lines().any(names), "{long}");
    }
}

/// Static Analysis Results Interchange Format 2.1.0 (OASIS), by its structure.
#[test]
fn sarif_names_rules_that_exist_and_a_level_for_each_result() {
    for name in names() {
        let ended = doctor(&name, &["--format", "sarif", "--fail-on", "never"]);
        let said: Value = serde_json::from_str(&ended.with_code(0)).expect("JSON");
        assert_eq!(said["version"], "2.1.0");
        let runs = said["runs"].as_array().expect("a list");
        assert_eq!(runs.len(), 1);
        let driver = &runs[0]["tool"]["driver"];
        assert_eq!(driver["name"], "linerate");
        let rules: Vec<&str> = driver["rules"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|rule| rule["id"].as_str())
            .collect();
        assert_eq!(rules.len(), RULES.len());
        for result in runs[0]["results"].as_array().expect("a list") {
            let rule = result["ruleId"].as_str().expect("an id");
            assert!(rules.contains(&rule), "{rule}");
            let (kind, level) = (result["kind"].as_str(), result["level"].as_str());
            // A level other than none is for failures only (3.27.10).
            let allowed = match kind {
                Some("fail") => ["error", "warning", "note"].contains(&level.unwrap_or_default()),
                Some("open") => level == Some("none"),
                _ => false,
            };
            assert!(allowed, "{name}: {result}");
            let text = result["message"]["text"].as_str();
            assert!(text.is_some_and(|text| !text.is_empty()), "{result}");
            let place = &result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"];
            assert!(place.is_string(), "{result}");
        }
    }
    let ended = doctor(ILL, &["--format", "sarif"]);
    let said: Value = serde_json::from_str(&ended.with_code(10)).expect("JSON");
    let first = &said["runs"][0]["results"][0];
    assert_eq!(first["ruleId"], "pcie-link-degraded");
    assert_eq!(first["level"], "error");
}

#[test]
fn junit_is_well_formed_and_counts_what_it_holds() {
    for name in names() {
        let ended = doctor(&name, &["--format", "junit", "--fail-on", "never"]);
        let text = ended.with_code(0);
        let counts = well_formed(&text);
        let of = |element: &str| counts.get(element).copied().unwrap_or(0);
        let suite = text
            .lines()
            .find(|line| line.starts_with("<testsuite "))
            .expect("a suite");
        for (attribute, element) in [
            ("tests", "testcase"),
            ("failures", "failure"),
            ("skipped", "skipped"),
        ] {
            let told = format!("{attribute}=\"{}\"", of(element));
            assert!(suite.contains(&told), "{name}: {told} in {suite}");
        }
        assert!(of("testcase") >= RULES.len(), "{name}");
    }
    let ill = doctor(ILL, &["--format", "junit"]).with_code(10);
    assert_eq!(well_formed(&ill).get("failure"), Some(&2));
}

/// Holds `text` against what makes XML well-formed, as far as our own needs it (a declaration, elements,
/// attributes, escaped text), and counts the elements by name.
fn well_formed(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut open: Vec<String> = Vec::new();
    let body = text
        .strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
        .expect("a declaration");
    for (at, part) in body.split('<').enumerate() {
        let content = if at == 0 {
            part
        } else {
            let (tag, content) = part.split_once('>').expect("a tag ends");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "tags are nested");
            } else {
                let (tag, is_empty) = match tag.strip_suffix('/') {
                    Some(tag) => (tag, true),
                    None => (tag, false),
                };
                let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
                assert!(is_name(name), "{name}");
                has_attributes(attributes);
                *counts.entry(name.to_owned()).or_default() += 1;
                if !is_empty {
                    open.push(name.to_owned());
                }
            }
            content
        };
        is_escaped(content);
        assert!(!open.is_empty() || content.trim().is_empty(), "{content}");
    }
    assert_eq!(open, [""; 0], "every element is closed");
    counts
}

/// `name="value"` with spaces between.
fn has_attributes(text: &str) {
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("an attribute has a value");
        assert!(is_name(name), "{name}");
        let (value, after) = after.split_once('"').expect("a value ends");
        is_escaped(value);
        rest = after.trim_start_matches(' ');
    }
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '-';
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(letter)
}

/// No bare `&`, and no character that XML 1.0 does not allow.
fn is_escaped(text: &str) {
    for part in text.split('&').skip(1) {
        let entity = part.split_once(';').map(|(name, _)| name);
        let known = ["amp", "lt", "gt", "quot", "apos"];
        assert!(entity.is_some_and(|name| known.contains(&name)), "&{part}");
    }
    let allowed = |c: char| !c.is_control() || "\t\n\r".contains(c);
    assert!(text.chars().all(allowed), "{text:?}");
}
