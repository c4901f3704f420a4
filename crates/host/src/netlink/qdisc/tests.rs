//! Qdiscs as described by a real kernel, and which of them may be replaced.

use proptest::collection::vec;
use proptest::prelude::*;

use linerate_model::setting::QdiscSpec;
use linerate_model::units::BitRate;

use super::*;
use crate::netlink::message::Attributes;
use crate::netlink::qdisc_entry::{HTB_DEFAULT_CLASS_AT, HTB_INIT, HTB_PARAMETERS, HTB_RATE64};

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200)) {
        let _ = tbf_rate(&body);
        if let Ok(entry) = Entry::parse(&body) {
            let root = Entry { options: body.clone(), ..entry.clone() };
            let _ = htb_rate(&root, std::slice::from_ref(&entry));
            for kind in ["u32", "flower"] {
                let filter = Entry { kind: kind.to_owned(), ..entry.clone() };
                let filters = [filter.clone(), filter];
                let _ = (filters::lost(&filters), filters::parts(&filters));
                let _ = filters::request_options(kind, 8, &body);
            }
            let _ = hierarchy::class_parts(0, &[entry]);
        }
    }

    #[test]
    fn hexadecimal_reads_back_as_it_was_written(bytes in vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(from_hex(&to_hex(&bytes)).expect("our own"), bytes);
    }

    #[test]
    fn no_text_panics_the_hexadecimal_reader(text in ".{0,20}") {
        let _ = from_hex(&text);
    }
}

/// An `htb` 1: whose unclassified packets go to class `default`.
fn htb(default: u32) -> Entry {
    let mut init = [0; 20];
    init[HTB_DEFAULT_CLASS_AT..HTB_DEFAULT_CLASS_AT + 4].copy_from_slice(&default.to_ne_bytes());
    let mut options = Request::new(0, &[]);
    options.put(HTB_INIT, &init);
    Entry::made_up("htb", 0x1_0000, ROOT, options.into_body())
}

/// A class of it with a rate in Mb/s.
fn class(minor: u32, parent: u32, mbit: u64) -> Entry {
    let mut options = Request::new(0, &[]);
    options.put(HTB_PARAMETERS, &[0; 44]);
    options.put(HTB_RATE64, &(mbit * 125_000).to_ne_bytes());
    Entry::made_up("htb", 0x1_0000 | minor, parent, options.into_body())
}

#[test]
fn classes_below_one_top_class_have_its_rate_only_if_none_can_pass_it() {
    let rate = |default, classes: &[Entry]| htb_rate(&htb(default), classes).expect("our own");
    let below = |first, second| {
        let leaf = |minor, mbit| class(minor, 0x1_0001, mbit);
        [class(1, ROOT, 100), leaf(0x10, first), leaf(0x20, second)]
    };
    let whole = Some(BitRate::from_mbit_per_s(100));
    assert_eq!(rate(0x20, &below(60, 40)), whole);
    assert_eq!(rate(0x20, &below(60, 50)), None, "their rates sum to more");
    assert_eq!(rate(0, &below(60, 40)), None, "unclassified packets pass");
    assert_eq!(rate(1, &below(60, 40)), None, "the top class holds none");
    let mut deep = below(60, 40).to_vec();
    deep.push(class(0x30, 0x1_0020, 90));
    assert_eq!(rate(0x10, &deep), None, "a third level");
    let mut two = below(60, 40).to_vec();
    two.push(class(2, ROOT, 10));
    assert_eq!(rate(0x20, &two), None, "two top classes");
}

fn entry(kind: &str, handle: u32, parent: u32) -> Entry {
    Entry::made_up(kind, handle, parent, Vec::new())
}

#[test]
fn only_what_its_options_describe_may_be_replaced() {
    let lost = |kind: &str| hierarchy::lost_with(&entry(kind, 0x1_0000, ROOT), &[], true);
    for kind in ["tbf", "noqueue", "mq", "mqprio", "prio", "htb"] {
        assert_eq!(lost(kind), None, "{kind}");
    }
    for kind in ["red", "netem", "hfsc", "unheard-of"] {
        assert!(lost(kind).is_some(), "{kind}");
    }
    let sized = Entry {
        has_size_table: true,
        ..entry("tbf", 0x1_0000, ROOT)
    };
    assert!(hierarchy::lost_with(&sized, &[], true).is_some());
    let mut offloaded = Request::new(0, &[]);
    offloaded.put(qdisc_options::HTB_OFFLOAD, &[]);
    let class = Entry::made_up("htb", 0x1_0001, ROOT, offloaded.into_body());
    assert!(hierarchy::lost_with(&htb(1), &[class], true).is_some());
    let child = entry("netem", 0x2_0000, 0x1_0001);
    let why = hierarchy::lost_with(&child, &[], false).expect("not restorable");
    assert!(why.starts_with("has a child `netem` 2:"), "{why}");
}

#[test]
fn a_class_is_made_after_the_class_above_it() {
    let all = [
        class(0x30, 0x1_0001, 1),
        class(0x5, 0x1_0030, 1),
        class(1, ROOT, 1),
    ];
    let parts = hierarchy::class_parts(0x1_0000, &all);
    let order: Vec<(u32, u32)> = parts.iter().map(|one| (one.handle, one.parent)).collect();
    assert_eq!(
        order,
        [
            (0x1_0001, 0x1_0000),
            (0x1_0030, 0x1_0001),
            (0x1_0005, 0x1_0030)
        ]
    );
}

/// A qdisc as it is read after it was made from `words`.
fn made(words: &str, handle: u32) -> Qdisc {
    let spec = QdiscSpec::parse(words).expect(words);
    let asked = Qdisc::asked(&spec);
    Qdisc {
        handle,
        options: to_hex(&qdisc_options::options(&spec).expect("in range")),
        below: parts_of(&asked, handle).expect("in range"),
        ..asked
    }
}

#[test]
fn below_the_same_root_only_what_differs_is_changed() {
    let between = |now: &str, wanted: &str| {
        let wanted = Qdisc::asked(&QdiscSpec::parse(wanted).expect(wanted));
        let steps = difference::between(&made(now, 0x1_0000), &wanted).expect("our own");
        steps.map(|steps| {
            let words = steps.iter().map(|step| match step {
                difference::Step::Remove(part) => format!("-{:x}", part.handle | part.parent),
                difference::Step::Change(part) => format!("~{:x}", part.handle),
                difference::Step::Make(part) => format!("+{:x}", part.handle | part.parent),
            });
            words.collect::<Vec<_>>().join(" ")
        })
    };
    let now = "htb default a class 1 rate 1gbit class a parent 1 rate 8mbit leaf pfifo limit 9 \
               class b parent 1 rate 16mbit";
    let told = |wanted: &str| between(now, wanted).expect("the same root");
    assert_eq!(told(now), "");
    assert_eq!(told(&now.replace("8mbit", "80mbit")), "~1000a");
    assert_eq!(told(&now.replace("limit 9", "limit 8")), "-1000a +1000a");
    assert_eq!(told(&now.replace("leaf pfifo limit 9", "")), "-1000a");
    assert_eq!(told(now.split(" class b").next().expect("words")), "-1000b");
    let below = told(&format!("{now} class 40 parent b rate 8mbit"));
    assert_eq!(below, "+1004b");
    // A class below another one, another default, another kind: a new root.
    for wanted in [
        now.replace("class b parent 1", "class b"),
        now.replace("default a", "default b"),
        "fq".to_owned(),
    ] {
        assert_eq!(between(now, &wanted), None, "{wanted}");
    }
    assert_eq!(
        between("mq leaf 1 pfifo limit 9", "mq leaf 2 pfifo limit 9").as_deref(),
        Some("-10001 +10002")
    );
}

mod filters_of_a_root {
    use super::*;

    fn filter(kind: &str, handle: u32, info: u32, attributes: &[(u16, &[u8])]) -> Entry {
        let mut options = Request::new(0, &[]);
        for (attribute, bytes) in attributes {
            options.put(*attribute, bytes);
        }
        Entry {
            info,
            ..Entry::made_up(kind, handle, 0x1_0000, options.into_body())
        }
    }

    /// `TCA_U32_DIVISOR` makes it a hash table.
    fn table(handle: u32, info: u32) -> Entry {
        filter("u32", handle, info, &[(4, &[1, 0, 0, 0])])
    }

    #[test]
    fn hash_tables_are_made_before_filters_and_roots_by_the_kernel() {
        let (first, second) = (0x2_0008, 0x1_0008);
        let listed = [
            // The second priority that was made is listed first.
            filter("u32", 0, second, &[]),
            table(0x8010_0000, second),
            filter("u32", 0x8010_0800, second, &[(1, &[9, 0, 1, 0])]),
            filter("u32", 0, first, &[]),
            table(0x20_0000, first),
            filter("u32", 0x20_0800, first, &[(1, &[9, 0, 1, 0])]),
            table(0x10_0000, first),
            table(0x8000_0000, first),
            filter("u32", 0x8000_0800, first, &[(3, &[0, 0, 16, 0])]),
        ];
        assert_eq!(filters::lost(&listed), None);
        let order: Vec<u32> = filters::parts(&listed)
            .iter()
            .map(|one| one.handle)
            .collect();
        assert_eq!(
            order,
            [0x10_0000, 0x20_0000, 0x20_0800, 0x8000_0800, 0x8010_0800]
        );
        // The first priority was removed and made again.
        let gap = &listed[..3];
        assert!(filters::lost(gap).is_some());
    }

    #[test]
    fn counters_are_no_part_of_a_filter_and_an_action_or_another_kind_is_not_restored() {
        let counted = filter("u32", 0x8000_0800, 1, &[(9, &[7; 8]), (1, &[9, 0, 1, 0])]);
        let quiet = filter("u32", 0x8000_0800, 1, &[(1, &[9, 0, 1, 0])]);
        let one = std::slice::from_ref;
        assert_eq!(filters::parts(one(&counted)), filters::parts(one(&quiet)));
        for (kind, actions) in [
            ("u32", &[6, 7][..]),
            ("fw", &[2, 4]),
            ("basic", &[3, 4]),
            ("flower", &[3]),
            ("matchall", &[2]),
        ] {
            let plain = filter(kind, 1, 1, &[(1, &[0; 4])]);
            assert_eq!(filters::lost(one(&plain)), None, "{kind}");
            for action in actions {
                let acting = filter(kind, 1, 1, &[(*action, &[0; 4])]);
                let why = filters::lost(one(&acting)).expect(kind);
                assert!(why.ends_with("with an action"), "{why}");
            }
        }
        assert!(filters::lost(&[filter("bpf", 1, 1, &[])]).is_some());
        // A fw filter without options is its priority alone.
        let alone = filter("fw", 0, 1, &[]);
        assert_eq!(filters::parts(one(&alone)).len(), 1);
        // What only a driver reports is not requested.
        let told = filter("flower", 1, 1, &[(22, &8u32.to_ne_bytes())]);
        let all = u32::from(3u16.to_be());
        assert!(filters::request_options("flower", all, &told.options).is_empty());
        // The protocol of a tag is that of the filter.
        let vlan = u32::from(0x8100u16.to_be());
        let inner = filter("flower", 1, vlan, &[(8, &[8, 0]), (23, &[10, 0])]);
        let again = filters::request_options("flower", vlan, &inner.options);
        let again = Attributes::parse(&again).expect("our own");
        assert_eq!(again.bytes(8), Some(&[0x81, 0][..]));
        assert_eq!(again.iter().count(), 2);
    }

    #[test]
    fn the_attributes_have_the_numbers_of_the_kernels_header() {
        crate::netlink::headers::compare(
            "pkt_cls.h",
            &[
                ("TCA_U32_DIVISOR", 4),
                ("TCA_U32_POLICE", 6),
                ("TCA_U32_ACT", 7),
                ("TCA_U32_PCNT", 9),
                ("TCA_U32_MARK", 10),
                ("TCA_U32_FLAGS", 11),
                ("TCA_FW_POLICE", 2),
                ("TCA_FW_ACT", 4),
                ("TCA_BASIC_ACT", 3),
                ("TCA_BASIC_POLICE", 4),
                ("TCA_BASIC_PCNT", 5),
                ("TCA_FLOWER_ACT", 3),
                ("TCA_FLOWER_KEY_ETH_TYPE", 8),
                ("TCA_FLOWER_FLAGS", 22),
                ("TCA_FLOWER_IN_HW_COUNT", 86),
                ("TCA_MATCHALL_ACT", 2),
                ("TCA_MATCHALL_FLAGS", 3),
                ("TCA_MATCHALL_PCNT", 4),
            ],
        );
    }
}

#[cfg(target_endian = "little")]
mod captured {
    use super::*;
    use crate::netlink::captured::answers;

    fn entries_in(hex: &str) -> Vec<Entry> {
        answers(hex)
            .iter()
            .map(|answer| Entry::parse(&answer.body).expect("the kernel's own"))
            .collect()
    }

    #[test]
    fn a_kernels_shaper_is_read_and_asked_for_again_with_the_same_bytes() {
        let answer = &answers(include_str!("../captured/qdisc-tbf.hex"))[0];
        let shaper = Entry::parse(&answer.body).expect("the kernel's own");
        assert_eq!(
            (shaper.kind.as_str(), shaper.handle, shaper.parent),
            ("tbf", 0x8001_0000, ROOT)
        );
        let rate = tbf_rate(&shaper.options).expect("a rate");
        assert_eq!(rate, Some(BitRate::from_mbit_per_s(100)));

        let again = new_root(2, shaper.handle, "tbf", &shaper.options, CREATE | REPLACE);
        let body = again.into_body();
        // The header without its last field (a reference count in a response), the kind, the options.
        assert_eq!(body[..16], answer.body[..16]);
        assert_eq!(body[20..], answer.body[20..body.len()]);
    }

    #[test]
    fn an_htb_is_told_in_words_with_all_of_its_classes() {
        let root = &entries_in(include_str!("../captured/qdisc-htb.hex"))[0];
        let one = entries_in(include_str!("../captured/classes-htb-one.hex"));
        let two = entries_in(include_str!("../captured/classes-htb-two.hex"));
        let words = |classes: &[Entry]| {
            let parts = hierarchy::class_parts(root.handle, classes);
            qdisc_options::words("htb", root.handle, &root.options, &parts)
                .expect("the kernel's own")
        };
        let told = words(&one);
        assert!(told.contains("rate 50mbit ceil 50mbit"), "{told}");
        let again = QdiscSpec::parse(&told).expect("our own words");
        assert_eq!(again.to_string(), told);
        assert!(told.starts_with(&words(&[])), "half of it: {}", words(&[]));
        let again = QdiscSpec::parse(&words(&two)).expect("our own words");
        assert_eq!(again.to_string(), words(&two));
        assert_eq!(words(&two).matches(" class ").count(), 2);
    }

    #[test]
    fn only_the_single_default_class_of_htb_has_the_interfaces_rate() {
        let root = &entries_in(include_str!("../captured/qdisc-htb.hex"))[0];
        let one = entries_in(include_str!("../captured/classes-htb-one.hex"));
        let two = entries_in(include_str!("../captured/classes-htb-two.hex"));
        assert_eq!((root.kind.as_str(), one.len(), two.len()), ("htb", 1, 2));
        let rate = |classes: &[Entry]| htb_rate(root, classes).expect("the kernel's own");
        assert_eq!(rate(&one), Some(BitRate::from_mbit_per_s(50)));
        assert_eq!(rate(&two), None);
        assert_eq!(rate(&two[..1]), None, "not the default class");
        assert_eq!(rate(&[]), None);
    }
}
