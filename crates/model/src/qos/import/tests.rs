//! Import is the inverse of a plan: what a plan of the imported file makes is what is there.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::build::{self, NicBuilder};
use crate::host::{Bond, BondPort, Dcb, NicKind, Qdisc, Vlan};
use crate::known::Known;
use crate::qos::{Qos, QosClass, QosPlan, plan};
use crate::setting::parse_class_rules;

/// A host, and what its interfaces hold.
#[derive(Debug, Clone, PartialEq)]
struct Made {
    host: Host,
    held: BTreeMap<NicName, Held>,
}

fn name(text: &str) -> NicName {
    text.parse().expect("a name")
}

fn change(host: &mut Host, nic: &NicName, change: impl FnOnce(&mut Nic)) {
    let nic = host.nics.iter_mut().find(|one| one.name == *nic);
    change(nic.expect("an interface"));
}

fn vlan(nic: NicBuilder, port: &str, id: u32, egress: Vec<(u32, u32)>) -> NicBuilder {
    let port = name(port);
    nic.with(move |nic| {
        nic.kind = NicKind::Vlan;
        nic.lower = vec![port].into();
        nic.addresses = Known::Value(Vec::new());
        nic.stack.vlan = Some(Vlan {
            id: Known::Value(id),
            egress: Known::Value(egress),
            ..Vlan::default()
        });
    })
}

/// `0:1 1:1` as numbers.
fn pairs(text: &str) -> Vec<(u32, u64)> {
    let pair = |word: &str| {
        let (at, value) = word.split_once(':').expect("a pair");
        (at.parse().expect("a number"), value.parse().expect("one"))
    };
    text.split_whitespace().map(pair).collect()
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("32 bits")
}

fn set_dcb(nic: &mut Nic, key: &str, value: &str) {
    let Known::Value(dcb) = &mut nic.shaping.dcb else {
        panic!("data center bridging");
    };
    if key == "dcb/maxrate" {
        let mut rates = vec![BitRate::from_bit_per_s(0); 8];
        for (class, rate) in pairs(value) {
            rates[class as usize] = BitRate::from_bit_per_s(rate);
        }
        dcb.class_max_bit_per_s = Known::Value(rates);
        return;
    }
    let value = value.strip_prefix("prio-tc ").expect("a map");
    let (map, rest) = value.split_once(" tc-bw ").expect("shares");
    let (shares, services) = rest.split_once(" tc-tsa ").expect("services");
    let second = |text: &str| {
        pairs(text)
            .into_iter()
            .map(|(_, value)| small(value))
            .collect()
    };
    dcb.priority_class = Known::Value(second(map));
    dcb.class_bandwidth = Known::Value(second(shares));
    let services = services.split_whitespace();
    let word = |pair: &str| pair.split_once(':').expect("a pair").1.to_owned();
    dcb.class_algorithm = Known::Value(services.map(word).collect());
}

impl Made {
    fn of(host: &Host) -> Self {
        Self {
            host: host.clone(),
            held: BTreeMap::new(),
        }
    }

    /// What is there once a plan is made.
    fn with(&self, plan: &QosPlan) -> Self {
        let mut made = self.clone();
        for setting in &plan.settings {
            let value = setting.value.as_str();
            let rest = setting.key.strip_prefix("nic/").expect("an interface");
            let (nic, key) = rest.split_once('/').expect("a setting");
            let nic = name(nic);
            match key {
                "vlan/link" => made.make_vlan(&nic, value),
                "up" => {}
                "addresses" => change(&mut made.host, &nic, |nic| {
                    let all = value.split_whitespace().map(ToOwned::to_owned);
                    nic.addresses = Known::Value(all.collect());
                }),
                "vlan/egress" => change(&mut made.host, &nic, |nic| {
                    let all = pairs(value).into_iter();
                    let all = all.map(|(from, to)| (from, small(to))).collect();
                    nic.stack.vlan.as_mut().expect("a VLAN").egress = Known::Value(all);
                }),
                "dcb/ets" | "dcb/maxrate" => {
                    change(&mut made.host, &nic, |nic| set_dcb(nic, key, value));
                }
                "qdisc" => {
                    let qdisc = QdiscSpec::parse(value).expect("a qdisc");
                    made.held.entry(nic).or_default().qdisc = Some(qdisc);
                }
                "class-rules" => {
                    let rules = parse_class_rules(value).expect("rules");
                    made.held.entry(nic).or_default().rules = rules;
                }
                other => panic!("{other} is not made here"),
            }
        }
        made
    }

    fn make_vlan(&mut self, device: &NicName, value: &str) {
        if self.host.nic(device).is_some() {
            return;
        }
        let (port, id) = value.split_once(" id ").expect("a VLAN");
        let id = id.parse().expect("a number");
        let with = |nic| vlan(nic, port, id, Vec::new());
        let one = build::host().nic(device.as_str(), with).build();
        self.host.nics.extend(one.nics);
    }

    fn imported(&self, interface: &str) -> (QosFile, Vec<String>) {
        let held = |nic: &NicName| self.held.get(nic).cloned().unwrap_or_default();
        imported(&self.host, &name(interface), held).expect("a port")
    }

    fn plan(&self, qos: &Qos) -> QosPlan {
        plan(qos, &self.host, |_| true).unwrap_or_else(|error| panic!("{error}: {qos:#?}"))
    }
}

fn dcb(nic: NicBuilder) -> NicBuilder {
    nic.with(|nic| {
        nic.shaping.dcb = Known::Value(Dcb {
            priority_class: Known::Value(vec![0; 8]),
            class_bandwidth: Known::Value(vec![0; 8]),
            class_algorithm: Known::Value(vec!["strict".to_owned(); 8]),
            class_max_bit_per_s: Known::Value(vec![BitRate::from_bit_per_s(0); 8]),
            ..Dcb::default()
        });
    })
}

/// A port with everything, and a bond of two such ports.
fn host(gbit: u64, mode: &str) -> Host {
    let port = |nic: NicBuilder| dcb(nic.gbit(gbit).queues(&[0; 16]));
    let of_bond = |nic: NicBuilder| {
        port(nic).with(|nic| {
            nic.stack.bond_port = Some(BondPort {
                bond: Known::Value(name("bond0")),
                ..BondPort::default()
            });
        })
    };
    let bond = build::host()
        .nic("eth1", port)
        .nic("bond0", |nic| {
            nic.gbit(gbit).with(|nic| {
                nic.kind = NicKind::Bond;
                nic.stack.bond = Some(Bond {
                    mode: Known::Value(mode.to_owned()),
                    ..Bond::default()
                });
            })
        })
        .nic("eth2", of_bond)
        .nic("eth3", of_bond);
    bond.build()
}

fn file(text: &str) -> Qos {
    let file: QosFile = serde_json::from_str(text).expect("a file");
    file.read().expect("classes")
}

/// Without the names of the classes, of which an interface knows nothing.
fn unnamed(file: &QosFile) -> QosFile {
    let mut file = file.clone();
    for class in &mut file.classes {
        class.name.clear();
    }
    file
}

/// Makes a file on a host; the import of what is there then makes nothing else.
fn assert_imported_is_there(host: &Host, asked: &Qos) {
    let made = Made::of(host);
    let made = made.with(&made.plan(asked));
    let interface = asked.interface.as_str();
    let (found, _) = made.imported(interface);
    let read = found
        .read()
        .unwrap_or_else(|error| panic!("{error}: {found:#?}"));
    let again = made.with(&made.plan(&read));
    assert_eq!(again.held, made.held, "{found:#?}");
    assert_eq!(again.host, made.host, "{found:#?}");
    assert_eq!(again.imported(interface).0, found);
}

#[test]
fn what_a_plan_makes_is_imported_with_the_same_traffic_limits_and_guarantees() {
    let asked = file(
        r#"{"qos": {"interface": "eth1", "mechanism": "htb"}, "class": [
        {"name": "priority1", "priority": 1, "limit": "50mbit"},
        {"name": "dscp-af21", "dscp": "af21", "limit": "400mbit", "guarantee": "100mbit"},
        {"name": "ports-30", "ports": [5001, 5002], "limit": "1gbit"},
        {"name": "mark7", "mark": 7, "limit": "2gbit", "guarantee": "1gbit"},
        {"name": "rest", "limit": "5gbit"}]}"#,
    );
    let made = Made::of(&host(40, "802.3ad"));
    let made = made.with(&made.plan(&asked));
    let (found, notes) = made.imported("eth1");
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(found.read().expect("classes"), asked);
}

/// What is written of each class but its name.
fn words(file: &QosFile) -> Vec<String> {
    let of = |class: &WrittenClass| {
        let vlan = class.vlan.map(|id| format!("vlan {id} "));
        let pcp = class.priority.map(|own| format!("priority {own} "));
        let least = class.guarantee.as_ref().map(|own| format!(" ({own})"));
        [vlan, pcp, Some(class.limit.clone()), least]
            .into_iter()
            .flatten()
            .collect()
    };
    file.classes.iter().map(of).collect()
}

#[test]
fn each_mechanism_of_a_port_and_of_a_bond_is_imported_as_it_is() {
    let vlans = r#"{"name": "low", "vlan": 10, "address": "12.0.10.2/24", "limit": "1gbit", "priority": 1},
        {"name": "middle", "vlan": 11, "limit": "5gbit", "priority": 2},
        {"name": "high", "vlan": 12, "priority": 3}"#;
    let priorities = r#"{"name": "a", "priority": 1, "limit": "1gbit"}, {"name": "b", "priority": 5},
        {"name": "rest", "limit": "2gbit"}"#;
    let guarantees = r#"{"name": "a", "priority": 1, "guarantee": "50 %"}, {"name": "b", "priority": 0, "limit": "1gbit"},
        {"name": "c", "vlan": 9, "priority": 4, "guarantee": "20 %", "limit": "20gbit"}"#;
    let marks = r#"{"name": "a", "mark": 1, "limit": "1gbit"}, {"name": "b", "dscp": 18},
        {"name": "c", "ports": [1, 2], "limit": "3gbit"}, {"name": "d", "priority": 0, "limit": "4gbit"}"#;
    for (mechanism, classes) in [
        ("dcb", vlans),
        ("dcb", priorities),
        ("dcb", guarantees),
        ("mqprio", vlans),
        ("mqprio", priorities),
        ("mqprio", marks),
        ("mqprio-offload", vlans),
        ("mqprio-offload", priorities),
        ("mqprio-offload", guarantees),
        ("mqprio-offload", marks),
        ("htb", vlans),
        ("htb", priorities),
        ("htb", guarantees),
        ("htb", marks),
    ] {
        for (interface, mode) in [
            ("eth1", "802.3ad"),
            ("bond0", "active-backup"),
            ("bond0", "802.3ad"),
        ] {
            let on_bond = interface == "bond0" && mode == "802.3ad";
            if on_bond && mechanism != "htb" {
                continue;
            }
            let text = format!(
                r#"{{"qos": {{"interface": "{interface}", "mechanism": "{mechanism}"}}, "class": [{classes}]}}"#
            );
            assert_imported_is_there(&host(40, mode), &file(&text));
        }
    }
}

#[test]
fn a_guarantee_above_its_limit_and_a_qdisc_above_traffic_classes_are_noted() {
    let mut made = Made::of(&host(40, "802.3ad"));
    let words = "htb default 3 class 1 rate 10gbit class 2 parent 1 rate 2gbit ceil 1gbit class 3 parent 1 rate 1gbit";
    let qdisc = QdiscSpec::parse(words).expect("a qdisc");
    let held = made.held.entry(name("eth1")).or_default();
    held.qdisc = Some(qdisc);
    held.rules = parse_class_rules("mark 7 -> 1:2").expect("a rule");
    let (found, notes) = made.imported("eth1");
    let why = "a guarantee of 2.00 Gb/s is more than its limit of 1.00 Gb/s: the limit applies";
    assert!(notes.iter().any(|note| note.contains(why)), "{notes:#?}");
    made.plan(&found.read().expect("a file that fits"));
    // The NIC's own classes, below the qdisc, are what is imported.
    let classes = r#"{"name": "a", "priority": 1, "limit": "1gbit"}, {"name": "b", "priority": 5}"#;
    let asked = file(&format!(
        r#"{{"qos": {{"interface": "eth1", "mechanism": "dcb"}}, "class": [{classes}]}}"#
    ));
    let mut both = made.with(&made.plan(&asked));
    change(&mut both.host, &name("eth1"), |nic| {
        nic.qdisc = Known::Value(Qdisc {
            kind: "htb".to_owned(),
            ..build::tbf(1)
        });
    });
    let (_, notes) = both.imported("eth1");
    let why =
        "eth1 also has an htb qdisc, through which packets pass before the NIC's traffic classes";
    assert!(notes.iter().any(|note| note.contains(why)), "{notes:#?}");
}

/// A host with traffic classes that somebody else made.
fn with_classes(host: &Host, nics: &[&str], ets: &str, rates: &str) -> Host {
    let mut host = host.clone();
    for nic in nics {
        change(&mut host, &name(nic), |nic| {
            set_dcb(nic, "dcb/ets", ets);
            set_dcb(nic, "dcb/maxrate", rates);
        });
    }
    host
}

/// The map, the shares and the services of an ETS setting.
fn ets(map: [u32; 8], shares: [u32; 8], service: &str) -> String {
    let list = |all: [u32; 8]| {
        let all = all.iter().enumerate();
        let all: Vec<String> = all.map(|(at, one)| format!("{at}:{one}")).collect();
        all.join(" ")
    };
    let services: Vec<String> = (0..8).map(|at| format!("{at}:{service}")).collect();
    let (map, shares) = (list(map), list(shares));
    format!("prio-tc {map} tc-bw {shares} tc-tsa {}", services.join(" "))
}

/// Imports what is there, and makes it: the import of that is the same file.
fn import_of(host: &Host, interface: &str) -> (Vec<String>, String) {
    let made = Made::of(host);
    let (found, notes) = made.imported(interface);
    let read = found
        .read()
        .unwrap_or_else(|error| panic!("{error}: {found:#?}"));
    let again = made.with(&made.plan(&read));
    let (second, _) = again.imported(interface);
    if found.qos.mechanism.is_some() {
        assert_eq!(unnamed(&second), unnamed(&found));
    } else {
        // The plan chose one.
        let read = second.read().expect("classes");
        let third = again.with(&again.plan(&read)).imported(interface).0;
        assert_eq!(third, second);
    }
    (words(&found), notes.join("\n"))
}

const SERVED: [u32; 8] = [0; 8];

#[test]
fn traffic_classes_without_vlans_are_imported_by_priority() {
    let map = [0, 0, 1, 1, 2, 2, 3, 3];
    let report = with_classes(
        &host(40, ""),
        &["eth1"],
        &ets(map, SERVED, "strict"),
        "0:1000000000 1:5000000000",
    );
    let (found, notes) = import_of(&report, "eth1");
    assert_eq!(
        found,
        [
            "priority 2 5gbit",
            "priority 3 5gbit",
            "priority 4 none",
            "priority 5 none",
            "priority 6 none",
            "priority 7 none",
            "1gbit"
        ]
    );
    assert!(
        notes.contains("traffic class 1 has the priorities 2, 3 together"),
        "{notes}"
    );
    let shares = ets([0, 1, 2, 0, 0, 0, 0, 0], [20, 30, 50, 0, 0, 0, 0, 0], "ets");
    let shared = with_classes(&host(40, ""), &["eth1"], &shares, "2:4000000000");
    let (found, notes) = import_of(&shared, "eth1");
    // No more than its limit of 10 % of the line.
    assert_eq!(found, ["priority 1 none (30 %)", "priority 2 4gbit (10 %)"]);
    assert_eq!(notes, "");
    let alone = with_classes(&host(40, ""), &["eth1"], &shares, "");
    assert_eq!(
        import_of(&alone, "eth1").0,
        ["priority 1 none (30 %)", "priority 2 none (50 %)"]
    );
    let above = ets([0, 1, 0, 0, 0, 0, 0, 0], SERVED, "strict");
    let above = with_classes(
        &host(40, ""),
        &["eth1"],
        &above,
        "0:1000000000 1:50000000000",
    );
    let (found, notes) = import_of(&above, "eth1");
    assert_eq!(found, ["priority 1 none", "1gbit"]);
    assert!(
        notes.contains("a limit of 50.00 Gb/s does not fit a line of 40.00 Gb/s"),
        "{notes}"
    );
}

#[test]
fn vlans_with_one_pcp_are_imported_as_a_file_that_can_be_read() {
    let whole = |pcp: u32| (0..16).map(|from| (from, pcp)).collect::<Vec<_>>();
    let mut with = host(40, "");
    for (id, egress) in [
        (10, whole(3)),
        (11, whole(3)),
        (12, Vec::new()),
        (13, Vec::new()),
    ] {
        let nic = |nic: NicBuilder| vlan(nic, "eth1", id, egress);
        with.nics
            .extend(build::host().nic(&format!("eth1.{id}"), nic).build().nics);
    }
    let (found, notes) = import_of(&with, "eth1");
    assert_eq!(
        found,
        [
            "vlan 10 none",
            "vlan 11 none",
            "vlan 12 none",
            "vlan 13 none"
        ]
    );
    assert!(
        notes.contains("the classes vlan10, vlan11 have priority 3"),
        "{notes}"
    );
    let map = ets([0, 0, 0, 1, 0, 0, 0, 0], SERVED, "strict");
    let limited = with_classes(&with, &["eth1"], &map, "1:1000000000");
    let (found, notes) = import_of(&limited, "eth1");
    assert_eq!(found, ["priority 3 1gbit"]);
    assert!(
        notes.contains("without a class in the file: eth1.10, eth1.11, eth1.12, eth1.13"),
        "{notes}"
    );
}

#[test]
fn limits_on_the_ports_of_a_bond_are_imported() {
    let map = ets([0, 1, 0, 0, 0, 0, 0, 0], SERVED, "strict");
    for (mode, nics, note) in [
        ("active-backup", &["eth2", "eth3"][..], ""),
        (
            "active-backup",
            &["eth3"],
            "the file has the limits of eth3; other ports of bond0 have others: eth2",
        ),
        (
            "802.3ad",
            &["eth2", "eth3"],
            "the limits are those of each port of the bond",
        ),
    ] {
        let made = with_classes(&host(40, mode), nics, &map, "1:1000000000");
        let (found, notes) = import_of(&made, "bond0");
        assert_eq!(found, ["priority 1 1gbit"], "{mode}");
        assert!(
            notes.contains(note) && notes.is_empty() == note.is_empty(),
            "{mode}: {notes}"
        );
    }
}

#[derive(Debug, Clone)]
struct Wish {
    selector: String,
    limit: Option<u64>,
    guarantee: Option<u64>,
}

/// Classes with different selectors.
fn any_wishes() -> impl Strategy<Value = Vec<Wish>> {
    let part = || proptest::option::of(prop_oneof![1_u64..=40, 41_u64..=10_000]);
    let one = (0_u8..5, part(), part());
    proptest::collection::vec(one, 1..=7).prop_map(|all| {
        let wish = |(at, (kind, limit, guarantee)): (usize, (u8, Option<u64>, Option<u64>))| {
            let selector = match kind {
                0 | 1 => format!(r#", "priority": {at}"#),
                2 => format!(r#", "vlan": {}, "priority": {at}"#, at + 10),
                3 => format!(r#", "mark": {at}"#),
                _ => format!(r#", "ports": [{}, {}]"#, at + 1, at + 101),
            };
            Wish {
                selector,
                limit,
                guarantee: guarantee.map(|part| part / 7 + 1),
            }
        };
        all.into_iter().enumerate().map(wish).collect()
    })
}

proptest! {
    #[test]
    fn every_file_that_can_be_planned_is_imported_as_it_was_made(
        wishes in any_wishes(),
        rest in proptest::option::of(1_u64..=10_000),
        mechanism in prop_oneof![Just("dcb"), Just("mqprio"), Just("htb")],
        bond in any::<bool>(),
        gbit in 1_u64..=400,
    ) {
        let percent = |parts: u64| format!("{}.{:02} %", parts / 100, parts % 100);
        let mut classes: Vec<String> = wishes.iter().enumerate().map(|(at, wish)| {
            let limit = wish.limit.map_or("none".to_owned(), percent);
            let guarantee = wish.guarantee.filter(|_| mechanism != "mqprio");
            let guarantee = guarantee.map(|parts| format!(r#", "guarantee": "{}""#, percent(parts)));
            format!(r#"{{"name": "c{at}", "limit": "{limit}"{}{}}}"#, wish.selector, guarantee.unwrap_or_default())
        }).collect();
        classes.extend(rest.map(|parts| format!(r#"{{"name": "others", "limit": "{}"}}"#, percent(parts))));
        let (interface, mode) = if bond { ("bond0", "active-backup") } else { ("eth1", "") };
        let asked = file(&format!(
            r#"{{"qos": {{"interface": "{interface}", "mechanism": "{mechanism}"}}, "class": [{}]}}"#,
            classes.join(",")
        ));
        let host = host(gbit, mode);
        // A map of priorities alone limits nothing; the tests of a plan have files that are refused.
        let is_limited = |class: &QosClass| class.limit.is_some() || class.guarantee.is_some();
        let is_limited = asked.classes.iter().any(is_limited);
        if is_limited && plan(&asked, &host, |_| true).is_ok() {
            assert_imported_is_there(&host, &asked);
        }
    }
}
