//! Qdiscs to text and back.

use proptest::prelude::*;

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
        "htb default 10 rate 2gbit ceil 1gbit",
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

fn any_discipline() -> impl Strategy<Value = QdiscSpec> {
    let waiting = prop_oneof![
        any::<u32>().prop_map(Waiting::Limit),
        (0u32..100).prop_map(Waiting::LatencyUs),
    ];
    let tbf = (any_rate(), 0u32..1_000, waiting)
        .prop_map(|(rate, burst, queue)| QdiscSpec::Tbf(Tbf { rate, burst, queue }));
    let htb = (any_rate(), any_rate(), 1u16.., 1u32..50, 0u32..9).prop_map(
        |(one, other, default, rate_to_quantum, prio)| {
            QdiscSpec::Htb(Htb {
                default,
                rate_to_quantum,
                rate: one.min(other),
                ceil: one.max(other),
                class: Named::from([("burst", 9), ("cburst", 10 + prio), ("prio", prio)]),
            })
        },
    );
    let mqprio = (1u8..17).prop_flat_map(|classes| {
        let map = proptest::array::uniform16(0..classes);
        let queues = proptest::collection::vec(any::<(u16, u16)>(), usize::from(classes));
        (map, queues, any::<bool>(), any::<bool>()).prop_map(move |(map, queues, hw, named)| {
            QdiscSpec::Mqprio(Mqprio {
                map,
                queues: if named || !hw { queues } else { Vec::new() },
                classes,
                in_hardware: hw,
            })
        })
    });
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
    prop_oneof![
        tbf,
        htb,
        mqprio,
        ets,
        any_named(FQ).prop_map(QdiscSpec::Fq),
        any_named(FQ_CODEL).prop_map(QdiscSpec::FqCodel),
    ]
}

proptest! {
    #[test]
    fn a_discipline_is_what_its_words_tell(qdisc_spec in any_discipline()) {
        // At a few bytes per second a burst lasts longer than the kernel's range.
        let burst_fits = match &qdisc_spec {
            QdiscSpec::Tbf(tbf) => burst_ticks(tbf.burst, tbf.rate).is_some(),
            QdiscSpec::Htb(htb) => burst_ticks(htb.burst("cburst"), htb.rate).is_some(),
            _ => true,
        };
        prop_assume!(burst_fits);
        let words = qdisc_spec.to_string();
        let again = QdiscSpec::parse(&words);
        prop_assert_eq!(again.as_ref(), Some(&qdisc_spec), "{}", words);
        prop_assert!(qdisc_spec.is_met_by(&qdisc_spec));
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
    fn no_words_panic(words in "(tbf|htb|mqprio|ets|fq|fq_codel)( [a-z_]{1,9}| [0-9.@]{1,5}[a-z]{0,4}){0,6}") {
        let _ = QdiscSpec::parse(&words);
    }
}
