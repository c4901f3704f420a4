//! Hierarchies of qdiscs, compared with `tc(8)`: made from words, changed in place, and restored with their handles and
//! filters after something else took their place.

use std::io;

use linerate_host::nic_control::{NicRead, NicWrite};
use linerate_model::host::Qdisc;
use linerate_model::setting::{QdiscSpec, Value};

use crate::lab::{Lab, in_lab, tool};

/// A hierarchy requested in tc(8) syntax.
fn asked(words: &str) -> Qdisc {
    Qdisc::asked(&QdiscSpec::parse(words).expect(words))
}

/// What tc(8) prints of qdiscs, classes and the filters of each qdisc and class, in its order.
fn shown(lab: &Lab) -> Option<Vec<String>> {
    let nic = &lab.nic;
    let mut all = vec![tool(&format!("tc -j -d qdisc show dev {nic}"))?];
    all.push(tool(&format!("tc -j -d class show dev {nic}"))?);
    let entries: serde_json::Value = serde_json::from_str(&all[0]).expect("JSON");
    let qdiscs = entries.as_array().expect("a list").iter();
    let mut parents: Vec<String> = qdiscs
        .filter_map(|qdisc| qdisc["handle"].as_str().map(str::to_owned))
        .collect();
    let classes = tool(&format!("tc class show dev {nic}"))?;
    parents.extend(
        classes
            .lines()
            .filter_map(|line| line.split(' ').nth(2).map(str::to_owned)),
    );
    for parent in parents {
        let filters = format!("tc -j -d filter show dev {nic} parent {parent}");
        all.push(format!("{parent} {}", tool(&filters).unwrap_or_default()));
    }
    Some(all)
}

/// Runs tc(8) commands on the interface `DEV`; false if tc or the kernel cannot.
fn tc(lab: &Lab, commands: &[&str]) -> bool {
    commands
        .iter()
        .all(|one| tool(&format!("tc {}", one.replace("DEV", lab.nic.as_str()))).is_some())
}

fn root(lab: &Lab) -> Qdisc {
    let root = lab.netlink.qdisc(&lab.nic);
    root.value().expect("a root").clone()
}

fn set(lab: &Lab, wanted: &Qdisc) {
    let done = lab.netlink.set_qdisc(&lab.nic, wanted);
    done.unwrap_or_else(|error| panic!("{}: {error}", wanted.words));
}

const CLASSES: &str = "htb default 30 \
    class 1 rate 10gbit burst 1250000 cburst 1250000 quantum 60000 \
    class 10 parent 1 rate 50mbit ceil 50mbit burst 25000 cburst 25000 quantum 60000 prio 1 \
    leaf pfifo limit 100 \
    class 30 parent 1 rate 5gbit ceil 10gbit burst 625000 cburst 1250000 quantum 60000 leaf bfifo limit 10m";

#[test]
fn a_hierarchy_asked_for_in_words_is_the_one_tc_makes_of_them() {
    in_lab(|lab| {
        let plain = root(lab);
        let wanted = asked(CLASSES);
        set(lab, &wanted);
        let made = root(lab);
        assert!(Value::Qdisc(wanted.clone()).is_met_by(&Value::Qdisc(made.clone())));
        let told = QdiscSpec::parse(&made.words).expect("words");
        assert!(wanted.qdisc_spec().expect("words").is_met_by(&told));
        let Some(ours) = shown(lab) else { return };
        set(lab, &plain);
        assert_eq!(root(lab), plain);
        // Leaves get the next free handles.
        let major = made.handle >> 16;
        let handles: Vec<String> = made
            .below
            .iter()
            .filter(|part| part.kind.ends_with("fifo"))
            .map(|part| format!("{:x}:", part.handle >> 16))
            .collect();
        let of = |text: &str| {
            text.replace("R:", &format!("{major:x}:"))
                .replace("P:", &handles[0])
                .replace("B:", &handles[1])
        };
        let commands = [
            "qdisc add dev DEV root handle R: htb default 30",
            "class add dev DEV parent R: classid R:1 htb rate 10gbit burst 1250000 cburst 1250000 quantum 60000",
            "class add dev DEV parent R:1 classid R:10 htb rate 50mbit ceil 50mbit burst 25000 cburst 25000 quantum 60000 prio 1",
            "class add dev DEV parent R:1 classid R:30 htb rate 5gbit ceil 10gbit burst 625000 cburst 1250000 quantum 60000",
            "qdisc add dev DEV parent R:10 handle P: pfifo limit 100",
            "qdisc add dev DEV parent R:30 handle B: bfifo limit 10m",
        ];
        let commands: Vec<String> = commands.iter().map(|one| of(one)).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        assert!(tc(lab, &commands));
        assert_eq!(shown(lab).expect("tc is here"), ours);
        assert_eq!(root(lab), made);
        // What was read is set again, and in place of something else.
        set(lab, &made);
        set(lab, &asked("tbf rate 1gbit burst 128k limit 1m"));
        set(lab, &made);
        assert_eq!(root(lab), made);
        assert_eq!(shown(lab).expect("tc is here"), ours);
    });
}

#[test]
fn only_what_differs_is_changed_below_the_same_root() {
    in_lab(|lab| {
        set(lab, &asked(CLASSES));
        let before = root(lab);
        let handle_below = |root: &Qdisc, minor: u32| {
            let mut parts = root.below.iter();
            let leaf =
                parts.find(|part| part.kind.ends_with("fifo") && part.parent & 0xffff == minor);
            leaf.map(|leaf| leaf.handle)
        };
        // Another rate: the root and both leaves stay.
        let faster = CLASSES.replace("rate 50mbit ceil 50mbit", "rate 80mbit ceil 90mbit");
        set(lab, &asked(&faster));
        let now = root(lab);
        assert!(Value::Qdisc(asked(&faster)).is_met_by(&Value::Qdisc(now.clone())));
        assert_eq!(now.handle, before.handle);
        for minor in [0x10, 0x30] {
            assert_eq!(handle_below(&now, minor), handle_below(&before, minor));
        }
        // Another leaf, a class that goes and one that comes: the other leaf stays.
        let other = "htb default 30 \
            class 1 rate 10gbit burst 1250000 cburst 1250000 quantum 60000 \
            class 30 parent 1 rate 5gbit ceil 10gbit burst 625000 cburst 1250000 quantum 60000 leaf bfifo limit 10m \
            class 40 parent 1 rate 8mbit leaf tbf rate 8mbit burst 15k limit 30k";
        set(lab, &asked(other));
        let now = root(lab);
        assert!(Value::Qdisc(asked(other)).is_met_by(&Value::Qdisc(now.clone())));
        assert_eq!(handle_below(&now, 0x30), handle_below(&before, 0x30));
        // Back to exactly what it was, handles too.
        set(lab, &before);
        assert_eq!(root(lab), before);
        // Another default: a new root.
        let moved = CLASSES.replace("default 30", "default 10");
        set(lab, &asked(&moved));
        assert!(Value::Qdisc(asked(&moved)).is_met_by(&Value::Qdisc(root(lab))));
        set(lab, &before);
        assert_eq!(root(lab), before);
    });
}

/// Hierarchies of tc(8)'s users.
const FOREIGN: [&[&str]; 7] = [
    &[
        "qdisc add dev DEV root handle 1: htb default 30 r2q 20 direct_qlen 77",
        "class add dev DEV parent 1: classid 1:1 htb rate 10gbit quantum 60000",
        "class add dev DEV parent 1:1 classid 1:10 htb rate 50mbit overhead 24 mpu 64 linklayer atm burst 15k",
        "class add dev DEV parent 1:1 classid 1:30 htb rate 5gbit ceil 9gbit quantum 60000",
        "class add dev DEV parent 1:30 classid 1:31 htb rate 5gbit quantum 60000 prio 3",
        "qdisc add dev DEV parent 1:10 handle 77: pfifo limit 100",
        "filter add dev DEV parent 1: protocol ip prio 1 u32 match ip tos 0x88 0xfc flowid 1:10",
        "filter add dev DEV parent 1: protocol ip prio 1 u32 match ip dport 5001 0xffff match ip protocol 6 0xff flowid 1:31",
        "filter add dev DEV parent 1: protocol ipv6 prio 2 u32 match ip6 priority 0x88 0xfc flowid 1:10",
        "filter add dev DEV parent 1: protocol all prio 3 u32 match mark 7 0xff flowid 1:31",
        "filter add dev DEV parent 1:1 protocol ip prio 9 u32 match u32 0 0 flowid 1:30",
    ],
    // Hash tables that filters lead to.
    &[
        "qdisc add dev DEV root handle a: htb",
        "class add dev DEV parent a: classid a:1 htb rate 1gbit quantum 60000",
        "filter add dev DEV parent a: prio 5 handle 2: protocol ip u32 divisor 256",
        "filter add dev DEV parent a: prio 5 handle 3: protocol ip u32 divisor 1",
        "filter add dev DEV protocol ip parent a: prio 5 u32 ht 2:7b: match ip src 10.0.0.123 flowid a:1",
        "filter add dev DEV protocol ip parent a: prio 5 u32 ht 2:7c: match ip src 10.0.0.124 flowid a:1",
        "filter add dev DEV protocol ip parent a: prio 5 u32 ht 800:: match ip src 10.0.0.0/24 hashkey mask 0x000000ff at 12 link 2:",
    ],
    // A hierarchy in a hierarchy.
    &[
        "qdisc add dev DEV root handle 1: htb default 1",
        "class add dev DEV parent 1: classid 1:1 htb rate 1gbit quantum 60000",
        "qdisc add dev DEV parent 1:1 handle 2: htb default 7",
        "class add dev DEV parent 2: classid 2:7 htb rate 10mbit quantum 2000",
        "class add dev DEV parent 2: classid 2:8 htb rate 20mbit quantum 2000",
        "qdisc add dev DEV parent 2:8 handle 3: tbf rate 1mbit burst 15k limit 30k",
        "filter add dev DEV parent 2: protocol ip prio 1 u32 match ip tos 0x88 0xfc flowid 2:8",
    ],
    &[
        "qdisc add dev DEV root handle 1: tbf rate 1gbit burst 64k limit 1m",
        "qdisc add dev DEV parent 1:1 handle 2: pfifo limit 7",
    ],
    &["qdisc add dev DEV root handle 5: htb default 10"],
    &[
        "qdisc add dev DEV root handle 1: mq",
        "qdisc add dev DEV parent 1:1 handle 8: tbf rate 1gbit burst 64k limit 1m",
        "qdisc add dev DEV parent 8:1 handle 9: bfifo limit 12345",
    ],
    // A root whose tables were emptied.
    &[
        "qdisc add dev DEV root handle 1: htb",
        "class add dev DEV parent 1: classid 1:1 htb rate 1gbit quantum 60000",
        "filter add dev DEV parent 1: prio 1 handle 1: protocol ip u32 divisor 1",
    ],
];

#[test]
fn a_hierarchy_made_by_tc_is_restored_with_its_handles_and_filters() {
    in_lab(|lab| {
        let plain = root(lab);
        for commands in FOREIGN {
            if tool("tc -V").is_none() {
                return;
            }
            assert!(tc(lab, commands), "{commands:?}");
            let before = shown(lab).expect("tc is here");
            let theirs = root(lab);
            for other in [
                plain.clone(),
                asked("tbf rate 1gbit burst 128k limit 1m"),
                asked(CLASSES),
                Qdisc::plain("pfifo"),
            ] {
                set(lab, &other);
                assert_ne!(root(lab), theirs);
                set(lab, &theirs);
                assert_eq!(root(lab), theirs, "{commands:?}");
                assert_eq!(shown(lab).expect("tc is here"), before, "{commands:?}");
            }
            set(lab, &plain);
        }
    });
}

#[test]
fn what_an_interrupted_change_leaves_is_recognized_and_completed() {
    in_lab(|lab| {
        let plain = root(lab);
        for commands in FOREIGN {
            if !tc(lab, commands) {
                return;
            }
            let (theirs, before) = (root(lab), shown(lab));
            let ours = asked(CLASSES);
            for made in 0..commands.len() {
                set(lab, &plain);
                assert!(tc(lab, &commands[..made]));
                let found = root(lab);
                let is_left = found.handle == 0 || found.is_made_of([&theirs, &ours]);
                assert!(is_left, "{made} of {commands:?}: {found:?}");
                set(lab, &theirs);
                assert_eq!(shown(lab), before, "{made} of {commands:?}");
            }
            set(lab, &plain);
        }
    });
}

#[test]
fn what_could_not_be_restored_is_refused_with_the_reason() {
    const HTB: &str = "qdisc add dev DEV root handle 1: htb default 10";
    const CLASS: &str = "class add dev DEV parent 1: classid 1:10 htb rate 1gbit quantum 1514";
    in_lab(|lab| {
        let plain = root(lab);
        for (commands, why) in [
            (
                &[
                    HTB,
                    CLASS,
                    "filter add dev DEV parent 1: protocol ip prio 1 u32 match u32 0 0 action mirred egress redirect dev lo",
                ][..],
                "has a filter `u32` with an action",
            ),
            (
                &["qdisc add dev DEV root handle 1: stab overhead 9 linklayer atm pfifo limit 7"],
                "the root `pfifo` 1: has a size table",
            ),
            (
                &[
                    HTB,
                    CLASS,
                    "filter add dev DEV parent 1: prio 1 protocol ip u32 match u32 0 0 flowid 1:10",
                    "filter add dev DEV parent 1: prio 2 protocol ip u32 match u32 0 0 flowid 1:10",
                    "filter del dev DEV parent 1: prio 1",
                ],
                "has `u32` filters whose root hash table was replaced",
            ),
        ] {
            if !tc(lab, commands) {
                return;
            }
            let before = shown(lab);
            for wanted in [plain.clone(), asked(CLASSES)] {
                let error = lab.netlink.set_qdisc(&lab.nic, &wanted);
                let error = error.expect_err("something would be lost");
                assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains(why), "{error}");
            }
            assert_eq!(shown(lab), before);
            assert!(tc(lab, &["qdisc del dev DEV root"]));
        }
    });
}
