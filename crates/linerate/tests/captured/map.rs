//! `linerate map --from`: all four forms of every captured host.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use linerate_host::capture::NicAnswers;
use linerate_model::host::Qdisc;
use linerate_model::known::Known;
use serde_json::Value;

use super::archives::{Edit, archive, names, place, repository};
use super::documents::{document, nulls};
use super::program::{linerate, on};

/// All four forms of a host's map: none may fail, and each must be valid.
pub(crate) fn every_form_of(from: &Path) -> Value {
    let name = from.display();
    let text = on(from, &["map"]).with_code(0);
    assert!(!text.trim().is_empty(), "{name}");
    let dot = on(from, &["map", "--format", "dot"]).with_code(0);
    assert!(dot.starts_with("graph host {"), "{name}: {dot:.80}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count(), "{name}");
    let svg = on(from, &["map", "--format", "svg"]).with_code(0);
    assert!(svg.trim_start().starts_with("<svg"), "{name}: {svg:.80}");
    assert!(svg.trim_end().ends_with("</svg>"), "{name}");
    let map = document(&on(from, &["map", "--format", "json"]).with_code(0));
    each_null_has_its_gap(&map);
    map
}

/// The keys for which null means that there is none.
const ANSWERS: [&str; 5] = [
    "/ceil_bit_per_s",
    "/acs_redirect",
    "/detail",
    "/tun/owner",
    "/tun/group",
];

/// Every null belongs to one gap, or to an inapplicable fact, and every field of a gap to one null, except for those that are
/// answers: a qdisc that does not shape has no rate.
fn each_null_has_its_gap(map: &Value) {
    let fields: BTreeSet<String> = map["gaps"]
        .as_array()
        .expect("a list")
        .iter()
        .flat_map(|gap| gap["fields"].as_array().expect("a list"))
        .filter_map(|field| field.as_str().map(str::to_owned))
        .collect();
    let places = map["inapplicable"].as_array().expect("a list").iter();
    let cannot_be: BTreeSet<String> = places
        .map(|place| place.as_str().expect("a pointer").to_owned())
        .collect();
    assert!(fields.is_disjoint(&cannot_be), "both a gap and none");
    let fields: BTreeSet<String> = fields.union(&cannot_be).cloned().collect();
    let is_answer = |pointer: &str| {
        let qdisc = pointer.strip_suffix("/rate_bit_per_s");
        let kind = qdisc.and_then(|at| map["host"].pointer(at)?["kind"].as_str());
        kind.is_some_and(|kind| !["tbf", "htb", "hfsc", "cbq", "cake"].contains(&kind))
            || ANSWERS.iter().any(|end| pointer.ends_with(end))
    };
    let nulls: BTreeSet<String> = nulls(&map["host"])
        .into_iter()
        .filter(|pointer| !is_answer(pointer))
        .collect();
    let unexplained: Vec<&String> = nulls.difference(&fields).collect();
    assert!(
        unexplained.is_empty(),
        "nulls without a gap: {unexplained:?}"
    );
    let misplaced: Vec<&String> = fields.difference(&nulls).collect();
    assert!(misplaced.is_empty(), "gaps without a null: {misplaced:?}");
}

#[test]
fn every_captured_host_maps_in_every_form_and_each_null_has_its_gap() {
    for name in names() {
        let map = every_form_of(&place(&name));
        assert!(
            map["host"]["nics"]
                .as_array()
                .is_some_and(|all| all.len() > 1),
            "{name}"
        );
    }
}

#[test]
fn the_map_of_every_captured_host_is_the_one_that_was_reviewed() {
    for name in names() {
        let text = on(&place(&name), &["map"]).with_code(0);
        let kept = repository(&format!("fixtures/map/{name}.txt"));
        if std::env::var_os("LINERATE_BLESS").is_some() {
            fs::create_dir_all(repository("fixtures/map")).expect("the folder");
            fs::write(&kept, &text).expect("the snapshot");
        }
        let wanted = fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            wanted == text,
            "{name} maps differently; LINERATE_BLESS=1 keeps this instead:\n{text}"
        );
    }
    let kept = fs::read_dir(repository("fixtures/map")).expect("the snapshots");
    assert_eq!(kept.count(), names().len(), "a snapshot of no host");
}

fn written(edit: Edit) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("host.lrcap");
    let text = edit.applied(archive("veth-pair-near")).to_text();
    fs::write(&place, text).expect("the archive");
    (folder, place)
}

#[test]
fn a_shaper_whose_rate_was_not_read_has_a_gap_for_it() {
    let (_folder, place) = written(Edit::Nic("near0", |nic: &mut NicAnswers| {
        nic.qdisc = Known::Value(Qdisc::plain("htb"));
    }));
    let map = every_form_of(&place);
    let gaps = map["gaps"].as_array().expect("a list");
    let gap = gaps.iter().find(|gap| {
        let field = gap["fields"][0].as_str().unwrap_or_default();
        field.ends_with("/qdisc/rate_bit_per_s")
    });
    assert_eq!(gap.expect("a gap")["path"], "tc class show dev near0");
}

#[test]
fn a_map_of_one_interface_shows_that_one() {
    let healthy = place("two-socket-healthy");
    let map = document(&on(&healthy, &["map", "eth2", "--format", "json"]).with_code(0));
    let nics = map["host"]["nics"].as_array().expect("a list");
    assert_eq!(nics.len(), 1);
    assert_eq!(nics[0]["name"], "eth2");
    assert_eq!(nics[0]["local_cpus"], "4-7");
    assert_eq!(nics[0]["pcie"]["available_bit_per_s"], 252_048_000_000_u64);
    let wrong = on(&healthy, &["map", "eth9"]);
    assert_eq!(wrong.code, Some(23));
    assert!(wrong.err.contains("eth2"), "{}", wrong.err);
}

#[test]
fn every_fact_of_a_captured_host_names_the_place_it_comes_from() {
    for name in names() {
        let said = document(&on(&place(&name), &["map", "--why", "--format", "json"]).with_code(0));
        let facts = said["facts"].as_array().expect("a list");
        assert!(facts.len() > 100, "{name}: {}", facts.len());
        for fact in facts {
            let is_known = fact["gap"].is_null();
            assert!(is_known || fact["value"].is_null(), "{name}: {fact}");
        }
        let text = on(&place(&name), &["map", "--why"]).with_code(0);
        assert_eq!(text.lines().count(), facts.len(), "{name}");
    }
    let healthy = place("two-socket-healthy");
    let text = on(&healthy, &["map", "--why"]).with_code(0);
    let line = "nics/eth2/mtu = 9000  [/sys/class/net/eth2/mtu]";
    assert!(text.lines().any(|own| own == line), "{text}");
    assert_eq!(
        on(&healthy, &["map", "--why", "--format", "dot"]).code,
        Some(2)
    );
}

#[test]
fn a_diff_names_each_fact_that_is_other_and_no_more() {
    let diff = |one: &str, other: &str| {
        let (one, other) = (place(one), place(other));
        let words = [one.to_str(), other.to_str()].map(|place| place.expect("a path in UTF-8"));
        let json = linerate(&["map", "--diff", words[0], words[1], "--format", "json"]);
        let text = linerate(&["map", "--diff", words[0], words[1]]).with_code(0);
        (document(&json.with_code(0)), text)
    };
    let (same, words) = diff("two-socket-healthy", "two-socket-healthy");
    assert_eq!(same["changes"], serde_json::json!([]));
    assert_eq!(words.trim(), "no differences");
    let (said, words) = diff("two-socket-healthy", "two-socket-remote-irqs-narrow-pcie");
    let changes = said["changes"].as_array().expect("a list");
    let of = |key: &str| changes.iter().find(|one| one["key"] == key);
    let width = of("nics/eth2/queues/rx-0/cpus").expect("its interrupt moved");
    assert_eq!(
        (&width["from"]["value"], &width["to"]["value"]),
        (&"4".into(), &"0".into())
    );
    assert_eq!(words.lines().count(), changes.len());
    assert!(of("nics/eth2/mtu").is_none(), "the MTU is the same");
    // An interface of one host only has one side.
    let (said, _) = diff("two-socket-healthy", "vm-virtio");
    let changes = said["changes"].as_array().expect("a list");
    let gone = changes.iter().find(|one| one["key"] == "nics/eth2/mtu");
    assert_eq!(gone.expect("eth2 is of one host")["to"], Value::Null);
}

#[test]
fn an_archive_that_is_cut_short_or_none_at_all_is_bad_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("cut.lrcap");
    let whole = fs::read(place("vm-virtio")).expect("an archive");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("its half");
    let text = folder.path().join("text");
    fs::write(&text, "hello").expect("a text");
    for place in [cut, text, folder.path().join("nowhere")] {
        for command in ["map", "doctor"] {
            let ended = on(&place, &[command]);
            assert_eq!(ended.code, Some(23), "{place:?}: {}", ended.err);
            assert_eq!(ended.out, "");
        }
    }
    assert_eq!(linerate(&["map", "--from"]).code, Some(2));
}
