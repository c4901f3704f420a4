//! Qdiscs as described by a real kernel, and which of them may be replaced.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200)) {
        let _ = tbf_rate(&body);
        if let Ok(entry) = Entry::parse(&body) {
            let root = Entry { options: body.clone(), ..entry.clone() };
            let _ = htb_rate(&root, &[entry]);
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
fn only_a_root_that_its_options_describe_may_be_replaced() {
    let root = |kind: &str, handle| entry(kind, handle, ROOT);
    // The kernel's default, with its own children.
    let lost_with_root = |qdiscs: &[Entry]| lost_with_root(qdiscs, &[]);
    assert_eq!(lost_with_root(&[root("mq", 0), entry("fq", 0, 1)]), None);
    assert_eq!(lost_with_root(&[root("tbf", 0x8001_0000)]), None);
    assert_eq!(lost_with_root(&[root("noqueue", 0x8001_0000)]), None);
    // The kernel gives each queue of `mq` and `mqprio` a default qdisc.
    for kind in ["mq", "mqprio"] {
        let queue = |handle| entry("fq_codel", handle, 0x8001_0001);
        let root = || root(kind, 0x8001_0000);
        assert_eq!(lost_with_root(&[root(), queue(0)]), None);
        assert!(lost_with_root(&[root(), queue(0x2_0000)]).is_some());
    }
    for kind in ["htb", "prio", "red", "netem", "unheard-of"] {
        assert!(lost_with_root(&[root(kind, 0x1_0000)]).is_some(), "{kind}");
    }
    let child = entry("pfifo", 0x2_0000, 0x1_0001);
    assert!(lost_with_root(&[root("tbf", 0x1_0000), child.clone()]).is_some());
    // An ingress qdisc is attached to the interface, not to the root.
    let ingress = entry("ingress", 0xffff_0000, 0xffff_fff1);
    assert_eq!(lost_with_root(&[root("tbf", 0x1_0000), ingress]), None);
    let sized = Entry {
        has_size_table: true,
        ..root("tbf", 0x1_0000)
    };
    assert!(lost_with_root(&[sized]).is_some());
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
    fn an_htb_with_one_class_is_told_in_words_and_may_be_replaced() {
        let root = &entries_in(include_str!("../captured/qdisc-htb.hex"))[0];
        let one = entries_in(include_str!("../captured/classes-htb-one.hex"));
        let two = entries_in(include_str!("../captured/classes-htb-two.hex"));
        let words =
            |classes: &[Entry]| qdisc_options::words(root, classes).expect("the kernel's own");
        let told = words(&one);
        assert!(told.contains("rate 50mbit ceil 50mbit"), "{told}");
        let again = QdiscSpec::parse(&told).expect("our own words");
        assert_eq!(again.to_string(), told);
        assert!(told.starts_with(&words(&[])), "half of it: {}", words(&[]));
        assert_eq!(words(&two), "");
        let lost = |classes: &[Entry]| lost_with_root(std::slice::from_ref(root), classes);
        assert_eq!((lost(&one), lost(&[])), (None, None));
        assert!(lost(&two).is_some());
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
