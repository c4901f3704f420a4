//! `linerate doctor --from`: the document, the exit code, and the words.

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
            let ended = doctor(&name, &["--profile", profile, "--format", "json"]);
            let expected = if HEALTHY.contains(&name.as_str()) {
                0
            } else {
                10
            };
            let said = document(&ended.with_code(expected));
            assert_eq!(said["profile"], profile);
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
        "remedy [R1]: nic/eth2/queue/rx-0/irq-cpus: 0 -> 4",
    ] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
    let short = doctor("vm-virtio", &[]).with_code(0);
    assert!(short.contains("no findings"), "{short}");
    assert!(short.contains("1 judgement not made"), "{short}");
    let long = doctor("vm-virtio", &["-v"]).with_code(0);
    assert!(
        long.contains("pcie-link-degraded: not determined"),
        "{long}"
    );
}
