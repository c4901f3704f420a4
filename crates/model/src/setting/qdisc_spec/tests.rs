//! Qdiscs to text and back.

use proptest::prelude::*;

use super::params::Unit;
use super::*;

#[test]
fn the_words_of_tc_are_understood_and_told_shortly() {
    for (words, told) in [
        (
            "tbf rate 1gbit burst 128kb latency 50ms",
            Some("tbf rate 1gbit burst 128k latency 50ms"),
        ),
        (
            "tbf rate 1000mbit burst 131072 latency 50ms",
            Some("tbf rate 1gbit burst 128k latency 50ms"),
        ),
        (
            "tbf limit 1514b burst 1m rate 2.5gbit",
            Some("tbf rate 2500mbit burst 1m limit 1514"),
        ),
        // The kernel takes it: the ceiling holds.
        (
            "htb default 10 rate 2gbit ceil 1gbit",
            Some("htb default 10 rate 2gbit ceil 1gbit"),
        ),
        (
            "htb default 0x10 rate 500mbit",
            Some("htb default 10 rate 500mbit ceil 500mbit"),
        ),
        (
            "htb rate 1gbit ceil 2gbit burst 15k default a prio 1",
            Some("htb default a rate 1gbit ceil 2gbit burst 15k prio 1"),
        ),
        (
            "mqprio num_tc 2 map 1 0 queues 1@0 3@1 hw 0",
            Some("mqprio num_tc 2 map 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 3@1 hw 0"),
        ),
        (
            "mqprio num_tc 1 map 0",
            Some("mqprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 hw 1"),
        ),
        (
            "ets strict 1 quanta 3k 1500",
            Some("ets bands 3 strict 1 quanta 3072 1500"),
        ),
        ("ets bands 2 priomap 0 1", Some("ets bands 2 priomap 0 1")),
        (
            "fq maxrate 1gbit nopacing flow_limit 200",
            Some("fq flow_limit 200 maxrate 1gbit nopacing"),
        ),
        (
            "fq_codel target 1500us ecn limit 1000",
            Some("fq_codel limit 1000 target 1500us ecn"),
        ),
    ] {
        let parsed = QdiscSpec::parse(words).map(|one| one.to_string());
        assert_eq!(parsed.as_deref(), told, "{words}");
    }
}

#[test]
fn a_hierarchy_is_one_line() {
    for (words, told) in [
        ("pfifo", Some("pfifo")),
        ("bfifo limit 10kb", Some("bfifo limit 10k")),
        (
            "htb default 30 class 30 parent 0x1 ceil 10gbit rate 5gbit leaf fq_codel \
             class 1 rate 10gbit class 10 parent 1 rate 50mbit burst 15k quantum 60000 prio 1 \
             leaf pfifo limit 100",
            Some(
                "htb default 30 class 1 rate 10gbit ceil 10gbit \
                 class 10 parent 1 rate 50mbit ceil 50mbit burst 15k quantum 60000 prio 1 \
                 leaf pfifo limit 100 class 30 parent 1 rate 5gbit ceil 10gbit leaf fq_codel",
            ),
        ),
        (
            "htb class a rate 1gbit",
            Some("htb class a rate 1gbit ceil 1gbit"),
        ),
        (
            "htb default a class a rate 1gbit",
            Some("htb default a rate 1gbit ceil 1gbit"),
        ),
        (
            "mq leaf a fq leaf 1 tbf rate 1gbit burst 128k limit 1m",
            Some("mq leaf 1 tbf rate 1gbit burst 128k limit 1m leaf a fq"),
        ),
        (
            "mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 1 mode channel shaper bw_rlimit \
             max_rate 1gbit 5gbit min_rate 0bit 1gbit leaf 2 fq_codel limit 9",
            Some(
                "mqprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 1 \
                 mode channel shaper bw_rlimit min_rate 0bit 1gbit max_rate 1gbit 5gbit \
                 leaf 2 fq_codel limit 9",
            ),
        ),
    ] {
        let parsed = QdiscSpec::parse(words).map(|one| one.to_string());
        assert_eq!(parsed.as_deref(), told, "{words}");
    }
}

#[test]
fn what_the_kernel_could_not_keep_is_refused() {
    for wrong in [
        "",
        "tbf",
        "tbf rate 1gbit burst 128k",
        "tbf rate 1gbit burst 128k latency 50",
        "tbf rate 1 burst 128k limit 1m",
        "tbf rate 12bit burst 128k limit 1m",
        "tbf rate 1gbit rate 1gbit burst 128k limit 1m",
        "tbf rate 1gbit burst 5g limit 1m",
        "tbf rate 100gbit burst 128k latency 1s",
        "tbf rate 1gbit burst 128k limit",
        "tbf rate 1.5bit burst 128k limit 1m",
        "tbf rate 8bit burst 1g limit 1m",
        "htb default 10",
        "htb default 0 rate 1gbit",
        "htb rate 1gbit",
        "htb default 10 rate 1gbit burst",
        "mqprio num_tc 2 map 2 queues 1@0 1@1",
        "mqprio num_tc 2 map 0 1 queues 1@0",
        "mqprio num_tc 2 map 0 1 hw 0",
        "mqprio num_tc 17 map 0",
        "mqprio map 0",
        "mqprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        "ets",
        "ets bands 1 strict 2",
        "ets bands 17",
        "ets bands 2 quanta 0",
        "ets bands 2 priomap 2",
        "fq buckets 1000",
        "fq maxrate 40gbit",
        "fq flow_limit",
        "fq fast",
        "fq_codel target 5",
        "noqueue limit 1",
        "netem delay 1ms",
        "mq",
        "mq leaf 0 fq",
        "mq leaf 1 fq leaf 1 fq",
        "mq leaf 1 ets bands 2",
        "mq leaf 1",
        "fq leaf 1 fq",
        "pfifo limit 10k",
        "htb default 10 class 1 rate 1gbit",
        "htb default 1 class 1 rate 1gbit class 2 parent 1 rate 1gbit",
        "htb class 1 rate 1gbit class 1 rate 1gbit",
        "htb class 0 rate 1gbit",
        "htb class 1 parent 2 rate 1gbit",
        "htb class 1 parent 1 rate 1gbit",
        "htb class 1 parent 2 rate 1gbit class 2 parent 1 rate 1gbit",
        "htb class 1 rate 1gbit leaf fq class 2 parent 1 rate 1gbit",
        "htb class 1 rate 1gbit leaf netem",
        "htb class 1 rate 1gbit default 1",
        "htb rate 1gbit class 1 rate 1gbit",
        "htb class 10000 rate 1gbit",
        "mqprio num_tc 1 map 0 queues 1@0 hw 0 mode channel",
        "mqprio num_tc 1 map 0 hw 1 mode channel max_rate 1gbit",
        "mqprio num_tc 1 map 0 hw 1 shaper bw_rlimit max_rate 1gbit 2gbit",
        "mqprio num_tc 1 map 0 hw 2",
    ] {
        assert_eq!(QdiscSpec::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn what_is_named_must_be_found_as_exactly_as_the_kernel_keeps_it() {
    let one = |words: &str| QdiscSpec::parse(words).expect(words);
    for (asked, found, is_met) in [
        (
            "tbf rate 1gbit burst 128k latency 50ms",
            "tbf rate 1gbit burst 131070b limit 6381072b",
            true,
        ),
        (
            "tbf rate 1gbit burst 128k latency 50ms",
            "tbf rate 1gbit burst 130k limit 6381072b",
            false,
        ),
        (
            "htb default 10 rate 1gbit",
            "htb default 10 rate 1gbit ceil 1gbit burst 1600b cburst 1600b quantum 200000b prio 0",
            true,
        ),
        (
            "htb default 10 rate 1gbit quantum 1514",
            "htb default 10 rate 1gbit ceil 1gbit burst 1600b cburst 1600b quantum 200000b prio 0",
            false,
        ),
        (
            "htb default 10 rate 1gbit burst 15k",
            "htb default 10 rate 1gbit ceil 1gbit burst 1600b cburst 1600b quantum 200000b prio 0",
            false,
        ),
        (
            "ets strict 1 quanta 3000",
            "ets bands 2 strict 1 quanta 3000 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
            true,
        ),
        (
            "ets strict 1 quanta 3000 priomap 0",
            "ets bands 2 strict 1 quanta 3000 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
            false,
        ),
        (
            "fq_codel target 5ms",
            "fq_codel limit 10240 target 4999us interval 99999us ecn",
            true,
        ),
        ("fq_codel target 6ms", "fq_codel target 4999us", false),
        ("fq_codel noecn", "fq_codel target 4999us ecn", false),
        ("fq", "fq limit 10000", true),
        ("fq limit 1", "fq limit 10000", false),
        ("fq", "fq_codel", false),
    ] {
        assert_eq!(
            one(asked).is_met_by(&one(found)),
            is_met,
            "{asked} / {found}"
        );
    }
}

#[test]
fn a_hierarchy_is_met_by_one_with_the_same_classes_and_leaves() {
    let one = |words: &str| QdiscSpec::parse(words).expect(words);
    for (asked, found, is_met) in [
        ("pfifo", "pfifo limit 1000", true),
        ("pfifo limit 9", "pfifo limit 1000", false),
        ("mq leaf 1 fq", "mq leaf 1 fq limit 10000", true),
        ("mq leaf 1 fq", "mq leaf 1 fq leaf 2 fq", false),
        ("mq leaf 1 fq", "mq leaf 2 fq", false),
        (
            "htb class 1 rate 1gbit class 2 parent 1 rate 8mbit leaf pfifo",
            "htb class 1 rate 1gbit burst 1600 cburst 1600 quantum 9 prio 0 \
             class 2 parent 1 rate 8mbit leaf pfifo limit 1000",
            true,
        ),
        (
            "htb class 1 rate 1gbit class 2 parent 1 rate 8mbit",
            "htb class 1 rate 1gbit class 2 parent 1 rate 8mbit leaf pfifo limit 1000",
            false,
        ),
        (
            "htb class 1 rate 1gbit class 2 parent 1 rate 8mbit",
            "htb class 1 rate 1gbit class 2 rate 8mbit",
            false,
        ),
        (
            "htb class 1 rate 1gbit",
            "htb class 1 rate 1gbit class 2 parent 1 rate 8mbit",
            false,
        ),
        (
            "mqprio num_tc 1 map 0 hw 1 shaper bw_rlimit max_rate 1gbit",
            "mqprio num_tc 1 map 0 queues 1@0 hw 1 mode dcb shaper bw_rlimit max_rate 1gbit",
            true,
        ),
        (
            "mqprio num_tc 1 map 0 hw 1 shaper bw_rlimit max_rate 1gbit",
            "mqprio num_tc 1 map 0 queues 1@0 hw 1 shaper bw_rlimit max_rate 2gbit",
            false,
        ),
    ] {
        assert_eq!(
            one(asked).is_met_by(&one(found)),
            is_met,
            "{asked} / {found}"
        );
    }
}

#[test]
fn what_is_left_of_a_replacement_is_of_the_old_or_the_new_one() {
    let one = |words: &str| QdiscSpec::parse_part(words).expect(words);
    let old =
        one("htb default a class 1 rate 1gbit class a parent 1 rate 8mbit leaf pfifo limit 9");
    let new = one("htb default b class 1 rate 1gbit class b parent 1 rate 80mbit leaf fq");
    let wholes = [old, new];
    for (found, is_left) in [
        ("htb default b", true),
        ("htb default a class 1 rate 1gbit", true),
        (
            "htb default b class 1 rate 1gbit class b parent 1 rate 80mbit",
            true,
        ),
        (
            "htb default a class a parent 1 rate 8mbit class b parent 1 rate 80mbit",
            true,
        ),
        ("htb default c", false),
        ("htb default b class 1 rate 2gbit", false),
        ("htb default b class 3 rate 1gbit", false),
        (
            "htb default b class b parent 1 rate 80mbit leaf pfifo",
            false,
        ),
        ("fq", false),
    ] {
        assert_eq!(one(found).is_made_of(&wholes), is_left, "{found}");
    }
}

fn any_rate() -> impl Strategy<Value = BitRate> {
    (1u64..50_000_000_000).prop_map(|bytes| BitRate::from_bit_per_s(bytes * 8))
}

fn any_named(known: &'static [(&'static str, Unit)]) -> impl Strategy<Value = Named> {
    let number = |(name, unit): &(&'static str, Unit)| {
        let (name, unit) = (*name, *unit);
        let number = match unit {
            Unit::Power => (0u32..18).prop_map(|log| 1 << log).boxed(),
            Unit::Switch(_) => (0u32..2).boxed(),
            Unit::Rate => (1..u32::MAX).boxed(),
            _ => any::<u32>().boxed(),
        };
        proptest::option::of(number).prop_map(move |number| number.map(|number| (name, number)))
    };
    let all: Vec<_> = known.iter().map(number).collect();
    all.prop_map(|all| all.into_iter().flatten().collect())
}

fn any_tbf() -> impl Strategy<Value = QdiscSpec> {
    let waiting = prop_oneof![
        any::<u32>().prop_map(Waiting::Limit),
        (0u32..100).prop_map(Waiting::LatencyUs),
    ];
    (any_rate(), 0u32..1_000, waiting)
        .prop_map(|(rate, burst, queue)| QdiscSpec::Tbf(Tbf { rate, burst, queue }))
}

fn any_leaf() -> impl Strategy<Value = QdiscSpec> {
    prop_oneof![
        any_tbf(),
        any_named(FQ).prop_map(QdiscSpec::Fq),
        any_named(FQ_CODEL).prop_map(QdiscSpec::FqCodel),
        any_named(PFIFO).prop_map(QdiscSpec::Pfifo),
        any_named(BFIFO).prop_map(QdiscSpec::Bfifo),
    ]
}

/// Some of these are refused: classes with leaves and children, deep ones.
fn any_htb() -> impl Strategy<Value = QdiscSpec> {
    let class = (
        any_rate(),
        any_rate(),
        0u32..9,
        any::<proptest::sample::Index>(),
        proptest::option::of(any_leaf().prop_map(Box::new)),
    );
    let classes = proptest::collection::vec((1u16.., class), 1..6);
    (classes, 1u32..50, any::<bool>()).prop_map(|(all, rate_to_quantum, has_default)| {
        let mut classes = BTreeMap::new();
        for (minor, (one, other, prio, above, leaf)) in all {
            let parents: Vec<u16> = [0].into_iter().chain(classes.keys().copied()).collect();
            let parent = *above.get(&parents);
            let class = HtbClass {
                parent: if parent == minor { 0 } else { parent },
                rate: one.min(other),
                ceil: one.max(other),
                named: Named::from([("burst", 9), ("cburst", 10 + prio), ("prio", prio)]),
                leaf,
            };
            classes.entry(minor).or_insert(class);
        }
        let default = classes.keys().next_back().copied();
        QdiscSpec::Htb(Htb {
            default: default.filter(|_| has_default).unwrap_or(0),
            rate_to_quantum,
            classes,
        })
    })
}

fn any_mqprio() -> impl Strategy<Value = QdiscSpec> {
    let rates = || proptest::collection::vec(any_rate(), 0..2);
    let leaves = || proptest::collection::btree_map(1u16.., any_leaf(), 0..3);
    (1u8..17).prop_flat_map(move |classes| {
        let map = proptest::array::uniform16(0..classes);
        let queues = proptest::collection::vec(any::<(u16, u16)>(), usize::from(classes));
        let modes = (proptest::option::of(0u16..2), rates(), rates());
        (map, queues, any::<[bool; 2]>(), modes, leaves()).prop_map(
            move |(map, queues, [hw, named], (mode, min_rates, max_rates), leaves)| {
                let extra = |rates| if hw { rates } else { Vec::new() };
                let (min_rates, max_rates) = (extra(min_rates), extra(max_rates));
                let has_rates = !min_rates.is_empty() || !max_rates.is_empty();
                QdiscSpec::Mqprio(Mqprio {
                    map,
                    queues: if named || !hw { queues } else { Vec::new() },
                    classes,
                    in_hardware: hw,
                    mode: mode.filter(|_| hw),
                    shaper: has_rates.then_some(1),
                    min_rates,
                    max_rates,
                    leaves,
                })
            },
        )
    })
}

fn any_discipline() -> impl Strategy<Value = QdiscSpec> {
    let ets = (0u8..8, proptest::collection::vec(1u32.., 0..8), 0u8..2).prop_flat_map(
        |(strict, quanta, more)| {
            let named = strict + u8::try_from(quanta.len()).expect("eight at most");
            let bands = (named + more).max(1);
            proptest::collection::vec(0..bands, 0..17).prop_map(move |map| {
                QdiscSpec::Ets(Ets {
                    bands,
                    strict,
                    quanta: quanta.clone(),
                    map,
                })
            })
        },
    );
    let leaves = proptest::collection::btree_map(1u16.., any_leaf(), 1..4);
    prop_oneof![
        any_htb(),
        any_mqprio(),
        ets,
        leaves.prop_map(QdiscSpec::Mq),
        any_leaf(),
    ]
}

/// At a few bytes per second a burst lasts longer than the kernel's range.
fn burst_fits(spec: &QdiscSpec) -> bool {
    let mut leaves = spec.leaves().into_iter().flatten();
    let fit = leaves.all(|(_, leaf)| burst_fits(leaf));
    fit && match spec {
        QdiscSpec::Tbf(tbf) => burst_ticks(tbf.burst, tbf.rate).is_some(),
        QdiscSpec::Htb(htb) => {
            let mut classes = htb.classes.values();
            htb.is_possible() && classes.all(|class| class.leaf.as_deref().is_none_or(burst_fits))
        }
        _ => true,
    }
}

proptest! {
    #[test]
    fn a_discipline_is_what_its_words_tell(qdisc_spec in any_discipline()) {
        prop_assume!(burst_fits(&qdisc_spec));
        let words = qdisc_spec.to_string();
        let again = QdiscSpec::parse(&words);
        prop_assert_eq!(again.as_ref(), Some(&qdisc_spec), "{}", words);
        prop_assert!(qdisc_spec.is_met_by(&qdisc_spec));
        prop_assert!(qdisc_spec.is_made_of(std::slice::from_ref(&qdisc_spec)));
    }

    #[test]
    fn a_burst_is_as_many_ticks_when_it_is_asked_for_again(
        ticks in 0u32..1 << 28,
        rate in 125_000_000u64..400_000_000_000,
    ) {
        let rate = BitRate::from_bit_per_s(rate / 8 * 8);
        if let Some(bytes) = burst_bytes(ticks, rate) {
            prop_assert_eq!(burst_ticks(bytes, rate), Some(ticks));
        }
    }

    #[test]
    fn no_words_panic(words in "(tbf|htb|mqprio|mq|ets|fq|fq_codel|pfifo)( class [0-9]| leaf [0-9a-z]{1,5}| parent [0-9]| [a-z_]{1,9}| [0-9.@]{1,5}[a-z]{0,4}){0,6}") {
        let _ = QdiscSpec::parse(&words);
    }
}
