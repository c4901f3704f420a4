//! Files of classes, and how classes share a line.

use super::*;
use crate::build;
use crate::host::{Qdisc, QdiscPart, QdiscPartIs};
use crate::known::Known;

fn written(text: &str) -> QosFile {
    serde_json::from_str(text).expect("a file")
}

/// Three VLANs: two with a limit, one without.
fn three_vlans() -> Qos {
    written(
        r#"{"qos": {"interface": "eth1"}, "class": [
            {"name": "low", "vlan": 10, "address": "12.0.10.2/24", "limit": "1gbit", "priority": 1},
            {"name": "middle", "vlan": 11, "address": ["12.0.11.2/24", "2001:db8::2/64"], "limit": "5gbit", "priority": 2},
            {"name": "high", "vlan": 12, "limit": "none", "priority": 3}
        ]}"#,
    )
    .read()
    .expect("classes")
}

fn rates(qos: &Qos, line: &str) -> Vec<(String, String)> {
    let line = line.parse().expect("a rate");
    let rates = shared(qos, line).expect("they fit");
    let words = |rate: &Guaranteed| (rate.rate.to_string(), rate.ceil.to_string());
    rates.iter().map(words).collect()
}

fn why(text: &str) -> String {
    written(text).read().expect_err("it is wrong").to_string()
}

fn one(class: &str) -> String {
    format!(r#"{{"qos": {{"interface": "eth1"}}, "class": [{class}]}}"#)
}

#[test]
fn a_file_of_three_vlans_has_four_classes() {
    let qos = three_vlans();
    let names: Vec<&str> = qos
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!(names, ["low", "middle", "high", "rest"]);
    assert_eq!(qos.classes[0].selector, Selector::Vlan);
    assert_eq!(qos.classes[3].selector, Selector::Rest);
    let vlan = qos.classes[1].vlan.as_ref().expect("a VLAN");
    assert_eq!(vlan.device.as_str(), "eth1.11");
    assert_eq!(vlan.addresses.len(), 2);
}

#[test]
fn limits_that_fit_into_the_line_are_guaranteed_and_the_rest_is_divided() {
    let gb = |rate: &str, ceil: &str| (format!("{rate} Gb/s"), format!("{ceil} Gb/s"));
    assert_eq!(
        rates(&three_vlans(), "40Gb/s"),
        [
            gb("1.00", "1.00"),
            gb("5.00", "5.00"),
            gb("17.00", "40.00"),
            gb("17.00", "40.00"),
        ]
    );
}

#[test]
fn limits_above_the_line_in_sum_are_cut_to_fair_parts() {
    let all = shared(&three_vlans(), "8Gb/s".parse().expect("a rate")).expect("they fit");
    let sum: u64 = all.iter().map(|one| one.rate.as_bit_per_s()).sum();
    assert!(sum <= 8_000_000_000, "{all:?}");
    assert_eq!(all[0].rate, all[0].ceil);
    assert!(all[1].rate < all[1].ceil);
}

#[test]
fn a_limit_above_the_line_and_guarantees_above_it_are_refused() {
    let error = |class: &str| {
        let qos = written(&one(class)).read().expect("a class");
        shared(&qos, "1Gb/s".parse().expect("a rate"))
            .expect_err("too much")
            .to_string()
    };
    assert_eq!(
        error(r#"{"name": "a", "mark": 1, "limit": "2gbit"}"#),
        "class `a`: its limit of 2.00 Gb/s is above the line's 1.00 Gb/s; `none` is no limit"
    );
    assert_eq!(
        error(r#"{"name": "a", "mark": 1, "limit": "100mbit", "guarantee": "200mbit"}"#),
        "class `a`: its guarantee of 200.0 Mb/s is above its limit of 100.0 Mb/s"
    );
    let two = r#"{"name": "a", "mark": 1, "guarantee": "60%"}, {"name": "b", "mark": 2, "guarantee": "60 %"}"#;
    assert_eq!(
        error(two),
        "the guarantees sum to 1.20 Gb/s, above the line's 1.00 Gb/s"
    );
}

#[test]
fn what_is_wrong_with_a_class_is_named() {
    for (class, expected) in [
        (
            r#"{"name": "a", "vlan": 4095}"#,
            "class `a`: a VLAN ID is 1 to 4094",
        ),
        (
            r#"{"name": "a", "vlan": 0}"#,
            "class `a`: a VLAN ID is 1 to 4094",
        ),
        (
            r#"{"name": "a", "priority": 8}"#,
            "class `a`: a priority is 0 to 7",
        ),
        (
            r#"{"name": "a", "mark": 1, "limit": "0"}"#,
            "class `a`: its limit `0` is not a rate: use `1gbit`, `5 %` or `none`",
        ),
        (
            r#"{"name": "a", "mark": 1, "limit": "0 %"}"#,
            "class `a`: its limit is 0: a class that may send nothing is a firewall's",
        ),
        (
            r#"{"name": "a", "mark": 1, "dscp": "af21"}"#,
            "class `a`: one of `vlan` (with `priority` for its PCP), `priority`, `dscp`, `ports` and `mark` selects its traffic",
        ),
        (
            r#"{"name": "a", "dscp": "af99"}"#,
            "class `a`: a DSCP is 0 to 63, or a name such as `af21`, `ef`, `cs1`",
        ),
        (
            r#"{"name": "a", "vlan": 10, "address": "12.0.10.2"}"#,
            "class `a`: `12.0.10.2` is not an address with prefix length, such as 192.0.2.1/24",
        ),
        (
            r#"{"name": "a", "mark": 1, "address": "12.0.10.2/24"}"#,
            "class `a`: `device` and `address` are those of a `vlan`",
        ),
        (
            r#"{"name": "a b", "mark": 1}"#,
            "class `a b`: its name may have 1 to 32 letters, digits, `-` and `_`",
        ),
        (
            r#"{"name": "a", "vlan": 10, "priority": 1}, {"name": "b", "vlan": 11, "priority": 1}"#,
            "classes `a` and `b` have the same priority 1",
        ),
        (
            r#"{"name": "a", "vlan": 10}, {"name": "b", "vlan": 10, "device": "b"}"#,
            "classes `a` and `b` have the same VLAN 10",
        ),
        (
            r#"{"name": "a"}, {"name": "b"}"#,
            "classes `a` and `b` have the same traffic: everything that no other class selects",
        ),
    ] {
        assert_eq!(why(&one(class)), expected);
    }
    assert_eq!(
        why(&one("")),
        "there is no class: add a table [[class]] with a name and a limit"
    );
}

#[test]
fn a_code_point_has_a_name_or_a_number() {
    for (word, dscp) in [("af21", 18), ("EF", 46), ("18", 18), ("cs0", 0), ("63", 63)] {
        assert_eq!(parse_dscp(word), Some(dscp), "{word}");
    }
    assert_eq!(dscp_word(18), "af21");
    assert_eq!(dscp_word(63), "63");
    for word in ["64", "-1", "af", ""] {
        assert_eq!(parse_dscp(word), None, "{word}");
    }
}

#[test]
fn filters_of_tc_are_named_with_each_of_their_kinds_once() {
    let with = |kinds: &'static [&'static str]| {
        let part = |kind: &&str| QdiscPart {
            is: QdiscPartIs::Filter,
            kind: (*kind).to_owned(),
            handle: 1,
            parent: 0x1_0000,
            info: 0,
            chain: 0,
            options: String::new(),
        };
        let class = QdiscPart {
            is: QdiscPartIs::Class,
            ..part(&"htb")
        };
        let mut htb = Qdisc::plain("htb");
        htb.below = kinds.iter().map(part).chain([class]).collect();
        let host = build::host().nic("eth1", |nic| nic.with(|nic| nic.qdisc = Known::Value(htb)));
        let host = host.build();
        unread_filters(&host.nics[0])
    };
    assert_eq!(with(&[]), None);
    assert_eq!(
        with(&["u32", "flower", "u32"]).as_deref(),
        Some(
            "eth1 has filters of tc(8) (flower, u32), which are not read: they can select another class for a packet"
        )
    );
}
