//! Qdisc options: numbers as in the kernel's header, and parameters that read back as requested.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;
use crate::netlink::qdisc_entry::ROOT;

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_header() {
    let number = |table: &[(&str, u16)], word: &str| {
        let found = table.iter().find(|(name, _)| *name == word);
        found.expect("a word of the table").1
    };
    let (fq, codel) = (|word| number(&FQ, word), |word| number(&FQ_CODEL, word));
    compare(
        "pkt_sched.h",
        &[
            ("TCA_TBF_PARMS", TBF_PARAMETERS),
            ("TCA_TBF_RATE64", TBF_RATE64),
            ("TCA_TBF_BURST", TBF_BURST),
            ("TCA_HTB_PARMS", HTB_PARAMETERS),
            ("TCA_HTB_INIT", HTB_INIT),
            ("TCA_HTB_RATE64", HTB_RATE64),
            ("TCA_HTB_CEIL64", HTB_CEIL64),
            ("TCA_HTB_OFFLOAD", HTB_OFFLOAD),
            ("TCA_MQPRIO_MODE", MQPRIO_MORE[0]),
            ("TCA_MQPRIO_SHAPER", MQPRIO_MORE[1]),
            ("TCA_MQPRIO_MIN_RATE64", MQPRIO_MORE[2]),
            ("TCA_MQPRIO_MAX_RATE64", MQPRIO_MORE[3]),
            ("TCA_ETS_NBANDS", ETS_BANDS),
            ("TCA_ETS_NSTRICT", ETS_STRICT),
            ("TCA_ETS_QUANTA", ETS_QUANTA),
            ("TCA_ETS_QUANTA_BAND", ETS_QUANTA_BAND),
            ("TCA_ETS_PRIOMAP", ETS_MAP),
            ("TCA_ETS_PRIOMAP_BAND", ETS_MAP_BAND),
            ("TCA_FQ_PLIMIT", fq("limit")),
            ("TCA_FQ_FLOW_PLIMIT", fq("flow_limit")),
            ("TCA_FQ_QUANTUM", fq("quantum")),
            ("TCA_FQ_INITIAL_QUANTUM", fq("initial_quantum")),
            ("TCA_FQ_RATE_ENABLE", fq("pacing")),
            ("TCA_FQ_FLOW_MAX_RATE", fq("maxrate")),
            ("TCA_FQ_BUCKETS_LOG", fq("buckets")),
            ("TCA_FQ_ORPHAN_MASK", fq("orphan_mask")),
            ("TCA_FQ_LOW_RATE_THRESHOLD", fq("low_rate_threshold")),
            ("TCA_FQ_CE_THRESHOLD", fq("ce_threshold")),
            ("TCA_FQ_TIMER_SLACK", fq("timer_slack")),
            ("TCA_FQ_HORIZON", fq("horizon")),
            ("TCA_FQ_HORIZON_DROP", FQ_HORIZON_DROP),
            ("TCA_FQ_CODEL_TARGET", codel("target")),
            ("TCA_FQ_CODEL_LIMIT", codel("limit")),
            ("TCA_FQ_CODEL_INTERVAL", codel("interval")),
            ("TCA_FQ_CODEL_ECN", codel("ecn")),
            ("TCA_FQ_CODEL_FLOWS", codel("flows")),
            ("TCA_FQ_CODEL_QUANTUM", codel("quantum")),
            ("TCA_FQ_CODEL_CE_THRESHOLD", codel("ce_threshold")),
            ("TCA_FQ_CODEL_DROP_BATCH_SIZE", codel("drop_batch")),
            ("TCA_FQ_CODEL_MEMORY_LIMIT", codel("memory_limit")),
            ("TCA_CODEL_TARGET", CODEL_TIMES[0]),
            ("TCA_CODEL_INTERVAL", CODEL_TIMES[1]),
            ("TCA_CODEL_CE_THRESHOLD", CODEL_TIMES[2]),
        ],
    );
}

fn entry(kind: &str, handle: u32, options: Vec<u8>) -> Entry {
    Entry::made_up(kind, handle, ROOT, options)
}

#[test]
fn what_is_asked_for_is_told_in_the_same_words() {
    for asked in [
        "tbf rate 1gbit burst 128k limit 1m",
        "tbf rate 100gbit burst 10000k limit 100m",
        "htb default 10 rate 1gbit ceil 100gbit burst 128k cburst 2000k quantum 1514 prio 3",
        "mqprio num_tc 2 map 0 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@0 1@3 hw 0",
        "ets bands 4 strict 2 quanta 3000 1500 priomap 0 1 2 3",
        "fq limit 500 flow_limit 20 maxrate 10gbit buckets 2048 nopacing ce_threshold 4ms \
         timer_slack 10us horizon 2s horizon_cap",
        "fq_codel limit 100 flows 64 quantum 300 target 5ms interval 100ms memory_limit 4m noecn",
    ] {
        let qdisc_spec = QdiscSpec::parse(asked).expect(asked);
        let root = entry(
            qdisc_spec.kind(),
            0x1_0000,
            options(&qdisc_spec).expect("in range"),
        );
        let classes = match &qdisc_spec {
            QdiscSpec::Htb(htb) => {
                let options = class_options(htb).expect("in range");
                vec![entry("htb", 0x1_0000 | u32::from(htb.default), options)]
            }
            _ => Vec::new(),
        };
        assert_eq!(words(&root, &classes).expect("our own"), asked);
    }
}

#[test]
fn what_words_do_not_tell_whole_has_none() {
    let told = |kind: &str, options: Vec<u8>| words(&entry(kind, 1 << 16, options), &[]);
    let of = |words: &str| {
        let qdisc_spec = QdiscSpec::parse(words).expect(words);
        options(&qdisc_spec).expect("in range")
    };
    let tbf = of("tbf rate 1gbit burst 128k limit 1m");
    assert_ne!(told("tbf", tbf.clone()).expect("whole"), "");
    for at in [2, 6, RATE_BYTES + RATE_AT] {
        // An overhead, a minimum packet size, a peak rate; after the attribute header.
        let mut strange = tbf.clone();
        strange[4 + at] = 1;
        assert_eq!(told("tbf", strange).expect("whole"), "", "{at}");
    }
    let mut modes = Request::new(0, &of("mqprio num_tc 1 map 0"));
    modes.put(MQPRIO_MORE[0], &[1, 0]);
    assert_eq!(told("mqprio", modes.into_body()).expect("whole"), "");
    assert_eq!(told("sfq", Vec::new()).expect("none"), "");
}

#[test]
fn what_htb_counts_is_no_part_of_what_it_is() {
    let htb = QdiscSpec::parse("htb default 10 rate 1gbit").expect("words");
    let quiet = options(&htb).expect("in range");
    let mut busy = quiet.clone();
    busy[4 + HTB_DIRECT_AT] = 9;
    assert_eq!(without_count(busy), quiet);
}

/// How the kernel stores a time, and what it dumps (`codel_time_to_us`).
fn told_again(us: u32) -> u32 {
    let kept = (u64::from(us) * 1_000) >> 10;
    u32::try_from((kept << 10) / 1_000).expect("shorter than it was")
}

proptest! {
    #[test]
    fn a_time_that_codel_tells_is_told_again_when_it_is_asked_for_again(us in 0u32..4_000_000_000) {
        let told = told_again(us);
        for (kind, attribute) in [("fq_codel", FQ_CODEL_TIMES[1]), ("codel", CODEL_TIMES[1])] {
            let mut options = Request::new(0, &[]);
            options.put_u32(2, 77).put_u32(attribute, told);
            let again = asked_again(kind, options.into_body());
            let again = Attributes::parse(&again).expect("our own");
            prop_assert_eq!(again.u32(2).expect("a number"), Some(77));
            let asked = again.u32(attribute).expect("a number").expect("the time");
            prop_assert_eq!(told_again(asked), told);
        }
    }

    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200), kind in 0usize..7) {
        let kinds = ["tbf", "htb", "mqprio", "ets", "fq", "fq_codel", "codel"];
        let root = entry(kinds[kind], 1 << 16, body.clone());
        let _ = words(&root, std::slice::from_ref(&root));
        let _ = words(&root, &[]);
        let _ = without_count(body.clone());
        let _ = asked_again(kinds[kind], body);
    }
}
