//! Qdiscs and classes: numbers as in the kernel's headers, hand-written responses.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_headers() {
    compare(
        "pkt_sched.h",
        &[
            ("TCA_HTB_PARMS", HTB_PARAMETERS),
            ("TCA_HTB_RATE64", HTB_RATE64),
            ("TCA_HTB_CEIL64", HTB_CEIL64),
            ("TCA_HFSC_RSC", HFSC_REAL_TIME),
            ("TCA_HFSC_FSC", HFSC_FAIR),
            ("TCA_HFSC_USC", HFSC_UPPER),
            ("TCA_CAKE_BASE_RATE64", CAKE_RATE64),
            ("TCA_NETEM_RATE", NETEM_RATE),
            ("TCA_NETEM_RATE64", NETEM_RATE64),
        ],
    );
    compare("gen_stats.h", &[("TCA_STATS_QUEUE", STATS_QUEUE)]);
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A qdisc or class of interface 2 as in a dump.
fn listed(kind: &str, handle: u32, parent: u32, options: &[u8], queue: &[u32]) -> Vec<u8> {
    let mut request = Request::new(0, &qdisc::header(2, handle, parent));
    request.put_text(libc::TCA_KIND, kind);
    request.put(libc::TCA_OPTIONS, options);
    request.nest(libc::TCA_STATS2, |stats| {
        stats.put(STATS_QUEUE, &words(queue));
    });
    request.put(libc::TCA_HW_OFFLOAD, &[0]);
    request.into_body()
}

fn nic() -> NicName {
    "eth0".parse().expect("a name")
}

fn tables(qdiscs: Vec<Vec<u8>>, classes: Vec<Vec<u8>>) -> Tables {
    Tables {
        qdiscs,
        classes,
        root: Some("noqueue".to_owned()),
    }
}

#[test]
fn a_tree_begins_with_its_root_and_counts() {
    let tables = tables(
        vec![
            listed("fq", 0, 2, &[], &[0, 0, 1, 0, 0]),
            listed("mq", 0, ROOT, &[], &[0, 0, 7, 2, 9]),
            listed("fq", 0, 1, &[], &[0, 0, 6, 2, 9]),
            listed("clsact", 0xffff_0000, 0xffff_fff1, &[], &[0, 0, 4, 0, 0]),
        ],
        vec![listed("mq", 1, ROOT, &[], &[0; 5])],
    );
    let tree = tables.tree(&nic());
    let tree = tree.value().expect("a tree");
    assert_eq!((tree[0].kind.as_str(), tree.len()), ("mq", 4));
    assert_eq!(tree[0].drops, Known::Value(7));
    assert_eq!(
        tables.classes(&nic()),
        Known::Value(Vec::new()),
        "only queues"
    );
    let mut counts = NicCounts::default();
    put_counts(tree, &nic(), &mut counts);
    let count = |name: &str| counts.values[&format!("qdisc/{name}")].0;
    assert_eq!(count("drops"), 11, "the root's and those on the way in");
    assert_eq!(count("requeues"), 2);
    assert_eq!(count("overlimits"), 9, "not twice");
}

#[test]
fn a_built_in_root_is_told_though_no_dump_lists_it() {
    let tree = tables(Vec::new(), Vec::new()).tree(&nic());
    let root = &tree.value().expect("a tree")[0];
    assert_eq!((root.kind.as_str(), root.parent), ("noqueue", ROOT));
    assert_eq!(root.drops.gap().map(|gap| gap.cause), Some(Cause::NotSaid));
}

#[test]
fn rates_are_those_of_their_structures() {
    let of = |kind: &str, options: Vec<u8>| {
        let entry = Entry::parse(&listed(kind, 1 << 16, ROOT, &options, &[0; 5]));
        rate_of(&entry.expect("our own"), &[]).expect("our own")
    };
    let mbit = |rate| Some(BitRate::from_mbit_per_s(rate));
    let mut cake = Request::new(0, &[]);
    cake.put(CAKE_RATE64, &1_000_000_u64.to_ne_bytes());
    assert_eq!(of("cake", cake.into_body()), mbit(8));
    let mut endless = Request::new(0, &[]);
    endless.put(CAKE_RATE64, &0_u64.to_ne_bytes());
    assert_eq!(of("cake", endless.into_body()), None);
    let mut netem = Request::new(0, &[0; NETEM_HEADER_BYTES]);
    netem.put(NETEM_RATE, &words(&[u32::MAX, 0, 0, 0]));
    netem.put(NETEM_RATE64, &12_500_000_000_u64.to_ne_bytes());
    assert_eq!(of("netem", netem.into_body()), mbit(100_000));
    assert_eq!(of("fq", Vec::new()), None);
}

#[test]
fn classes_have_the_rate_they_are_given_and_the_one_they_may_reach() {
    let mut htb = Request::new(0, &[]);
    // `struct tc_htb_opt`: rate and ceiling, each with its rate in the last of three words.
    htb.put(
        HTB_PARAMETERS,
        &words(&[0, 0, 125_000, 0, 0, u32::MAX, 0, 0, 0, 0, 0]),
    );
    htb.put(HTB_CEIL64, &12_500_000_000_u64.to_ne_bytes());
    let mut hfsc = Request::new(0, &[]);
    hfsc.put(HFSC_FAIR, &words(&[0, 0, 250_000]));
    hfsc.put(HFSC_UPPER, &words(&[9, 9, 500_000]));
    let tables = tables(
        Vec::new(),
        vec![
            listed("htb", 0x1_0010, 0x1_0001, &htb.into_body(), &[0; 5]),
            listed("hfsc", 0x2_0010, 0x2_0001, &hfsc.into_body(), &[0; 5]),
            listed("drr", 0x3_0010, 0x3_0000, &[], &[0; 5]),
        ],
    );
    let classes = tables.classes(&nic());
    let rates: Vec<_> = classes
        .value()
        .expect("classes")
        .iter()
        .map(|class| {
            (
                class.kind.as_str(),
                class.rate_bit_per_s,
                class.ceil_bit_per_s,
            )
        })
        .collect();
    let mbit = |rate| Some(BitRate::from_mbit_per_s(rate));
    assert_eq!(
        rates,
        [
            ("htb", mbit(1), mbit(100_000)),
            ("hfsc", mbit(2), mbit(4)),
            ("drr", None, None)
        ]
    );
}

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..160), kind in 0usize..5) {
        let _ = (parse_node(&body, &[], "p").is_ok(), parse_class(&body).is_ok());
        let kinds = ["tbf", "htb", "cake", "netem", "hfsc"];
        let made = listed(kinds[kind], 1, ROOT, &body, &[1]);
        let entry = Entry::parse(&made).expect("our own");
        let _ = (rate_of(&entry, std::slice::from_ref(&entry)).is_ok(), class_rates(&entry).is_ok());
        let tables = tables(vec![made.clone(), body.clone()], vec![made, body]);
        let _ = (tables.tree(&nic()), tables.classes(&nic()));
    }
}
