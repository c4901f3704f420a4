//! Qdisc options: numbers as in the kernel's header, and parameters that read back as requested.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;
use crate::netlink::hexadecimal::to_hex;
use crate::netlink::qdisc::parts_of;
use crate::netlink::qdisc_entry::{HTB_CEIL64, HTB_INIT, HTB_PARAMETERS, HTB_RATE64};
use linerate_model::host::Qdisc;

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
            ("TCA_MQPRIO_MODE", mqprio::MODE),
            ("TCA_MQPRIO_SHAPER", mqprio::SHAPER),
            ("TCA_MQPRIO_MIN_RATE64", mqprio::MIN_RATES),
            ("TCA_MQPRIO_MAX_RATE64", mqprio::MAX_RATES),
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

#[test]
fn what_is_asked_for_is_told_in_the_same_words() {
    for asked in [
        "tbf rate 1gbit burst 128k limit 1m",
        "tbf rate 100gbit burst 10000k limit 100m",
        "htb default 10 rate 1gbit ceil 100gbit burst 128k cburst 2000k quantum 1514 prio 3",
        "htb default 30 r2q 5 \
         class 1 rate 10gbit ceil 10gbit burst 2000k cburst 2000k quantum 60000 prio 0 \
         class 10 parent 1 rate 50mbit ceil 50mbit burst 15k cburst 15k quantum 60000 prio 1 \
         leaf pfifo limit 100 \
         class 30 parent 1 rate 5gbit ceil 10gbit burst 1000k cburst 2000k quantum 60000 prio 0 \
         leaf bfifo limit 10m",
        "mqprio num_tc 2 map 0 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@0 1@3 hw 0",
        "mqprio num_tc 2 map 0 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@0 1@3 hw 1 mode channel \
         shaper bw_rlimit min_rate 0bit 1mbit max_rate 1gbit 100gbit \
         leaf 1 tbf rate 1gbit burst 128k limit 1m leaf 3 pfifo limit 9",
        "mq leaf 2 tbf rate 1gbit burst 128k limit 1m",
        "ets bands 4 strict 2 quanta 3000 1500 priomap 0 1 2 3",
        "fq limit 500 flow_limit 20 maxrate 10gbit buckets 2048 nopacing ce_threshold 4ms \
         timer_slack 10us horizon 2s horizon_cap",
        "fq_codel limit 100 flows 64 quantum 300 target 5ms interval 100ms memory_limit 4m noecn",
        "pfifo limit 7",
    ] {
        let qdisc_spec = QdiscSpec::parse(asked).expect(asked);
        let parts = parts_of(&Qdisc::asked(&qdisc_spec), 1 << 16).expect("in range");
        let options = options(&qdisc_spec).expect("in range");
        let told = words(qdisc_spec.kind(), 1 << 16, &options, &parts);
        assert_eq!(told.expect("our own"), asked);
    }
}

#[test]
fn what_words_do_not_tell_whole_has_none() {
    let told = |kind: &str, options: &[u8]| words(kind, 1 << 16, options, &[]).expect("whole");
    let of = |words: &str| {
        let qdisc_spec = QdiscSpec::parse(words).expect(words);
        options(&qdisc_spec).expect("in range")
    };
    let tbf = of("tbf rate 1gbit burst 128k limit 1m");
    assert_ne!(told("tbf", &tbf), "");
    for at in [2, 6, RATE_BYTES + RATE_AT] {
        // An overhead, a minimum packet size, a peak rate; after the attribute header.
        let mut strange = tbf.clone();
        strange[4 + at] = 1;
        assert_eq!(told("tbf", &strange), "", "{at}");
    }
    let mut modes = Request::new(0, &of("mqprio num_tc 1 map 0"));
    modes.put(mqprio::MODE, &[2, 0]);
    assert_eq!(told("mqprio", &modes.into_body()), "");
    assert_eq!(told("sfq", &[]), "");
    // A filter, and a leaf that words do not have.
    let htb = QdiscSpec::parse("htb class 1 rate 8mbit leaf pfifo limit 9").expect("words");
    let parts = parts_of(&Qdisc::asked(&htb), 1 << 16).expect("in range");
    let root = options(&htb).expect("in range");
    let with = |change: &dyn Fn(&mut QdiscPart)| {
        let mut parts = parts.clone();
        change(&mut parts[1]);
        words("htb", 1 << 16, &root, &parts).expect("whole")
    };
    assert_ne!(with(&|_| ()), "");
    assert_eq!(with(&|part| part.kind = "sfq".to_owned()), "");
    assert_eq!(with(&|part| part.is = QdiscPartIs::Filter), "");
    assert_eq!(with(&|part| part.parent = 0x2_0001), "");
}

#[test]
fn what_htb_counts_is_no_part_of_what_it_is() {
    let htb = QdiscSpec::parse("htb default 10 rate 1gbit").expect("words");
    let quiet = options(&htb).expect("in range");
    let mut busy = quiet.clone();
    busy[4 + 16] = 9; // `direct_pkts`
    assert_eq!(without_count(busy), quiet);
    // A dump has the version of the module, a request that of the interface.
    let mut dumped = quiet.clone();
    dumped[4..8].copy_from_slice(&0x3_0011u32.to_ne_bytes());
    assert_eq!(request_options(dumped), quiet);
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
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200), kind in 0usize..7, is_class: bool) {
        let kinds = ["tbf", "htb", "mqprio", "ets", "fq", "fq_codel", "codel"];
        let part = QdiscPart {
            is: if is_class { QdiscPartIs::Class } else { QdiscPartIs::Qdisc },
            kind: kinds[kind].to_owned(),
            handle: 0x1_0001,
            parent: 1 << 16,
            info: 0,
            chain: 0,
            options: to_hex(&body),
        };
        let _ = words(kinds[kind], 1 << 16, &body, std::slice::from_ref(&part));
        let _ = words(kinds[kind], 1 << 16, &body, &[]);
        let _ = (leaf(&part), class(1 << 16, &part), request_options(body.clone()));
        let _ = without_count(body.clone());
        let _ = asked_again(kinds[kind], body);
    }
}
