//! Maps of priorities and traffic classes as text, in dcb(8) syntax where it exists.

use std::collections::BTreeMap;

use super::qdisc_spec::units::{RATES, parse_scaled, scaled};
use crate::host::Dcb;
use crate::known::Known;
use crate::units::BitRate;

/// The highest priority that a VLAN tag holds (IEEE 802.1Q, 3 bits).
const PCP_MAX: u32 = 7;

/// A VLAN's egress map, the PCP of each socket priority, `0:1 3:3`. Mappings to 0 are left out: the kernel never
/// removes a mapping, and one to 0 is equivalent (`vlan_dev_set_egress_priority`).
pub fn egress_words(map: &BTreeMap<u32, u32>) -> String {
    let told = map.iter().filter(|(_, pcp)| **pcp != 0);
    let words: Vec<String> = told.map(|(from, pcp)| format!("{from}:{pcp}")).collect();
    words.join(" ")
}

/// Parses the text of [`egress_words`]; each priority at most once.
pub fn parse_egress(words: &str) -> Option<BTreeMap<u32, u32>> {
    let mut map = BTreeMap::new();
    for word in words.split_whitespace() {
        let (from, pcp) = word.split_once(':')?;
        let pcp = pcp.parse().ok().filter(|pcp| *pcp <= PCP_MAX)?;
        if map.insert(from.parse().ok()?, pcp).is_some() {
            return None;
        }
    }
    map.retain(|_, pcp| *pcp != 0);
    Some(map)
}

/// The number of priorities and of traffic classes (IEEE 802.1Q).
const CLASSES: usize = 8;

/// The priorities whose bits are set, `3 4`.
pub fn priority_words(mask: u32) -> String {
    let set = (0..CLASSES).filter(|priority| mask >> priority & 1 == 1);
    let words: Vec<String> = set.map(|priority| priority.to_string()).collect();
    words.join(" ")
}

/// Parses the text of [`priority_words`].
pub fn parse_priorities(words: &str) -> Option<u8> {
    words.split_whitespace().try_fold(0, |mask, word| {
        let priority: u32 = word.parse().ok()?;
        ((priority as usize) < CLASSES).then(|| mask | 1 << priority)
    })
}

/// Enhanced transmission selection (ETS): the mapping and scheduling of traffic classes (IEEE 802.1Q).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficClasses {
    /// The class of each priority.
    pub of_priority: [u8; CLASSES],
    /// The bandwidth share of each class, per cent.
    pub share: [u8; CLASSES],
    /// The transmission selection algorithm of each class, by the kernel's numbers (`IEEE_8021QAZ_TSA_*`).
    pub served: [u8; CLASSES],
}

/// The algorithms and their numbers.
const SERVED: [(&str, u8); 4] = [
    ("strict", 0),
    ("credit-based", 1),
    ("ets", 2),
    ("vendor", 255),
];
/// An algorithm without a name.
const SERVED_OTHER: &str = "reserved-";

/// The number of an algorithm.
fn served_number(word: &str) -> Option<u8> {
    let known = SERVED.iter().find(|(name, _)| *name == word);
    known.map_or_else(
        || word.strip_prefix(SERVED_OTHER)?.parse().ok(),
        |(_, number)| Some(*number),
    )
}

/// Its name.
fn served_word(number: u8) -> String {
    let known = SERVED.iter().find(|(_, own)| *own == number);
    known.map_or_else(
        || format!("{SERVED_OTHER}{number}"),
        |(name, _)| (*name).to_owned(),
    )
}

/// The ETS settings of a NIC, as text of [`class_words`].
pub fn classes_of(dcb: &Dcb) -> Known<String> {
    let words = |name: &str, all: &[String]| {
        let words: Vec<String> = (0..)
            .zip(all)
            .map(|(at, word): (u32, _)| format!("{at}:{word}"))
            .collect();
        format!("{name} {}", words.join(" "))
    };
    let text = |all: &Vec<u32>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    dcb.priority_class.clone().and_then(|class| {
        dcb.class_bandwidth.clone().and_then(|share| {
            dcb.class_algorithm.clone().map(|served| {
                let served: Vec<String> =
                    served.iter().map(|word| word.replace(' ', "-")).collect();
                let parts = [
                    words("prio-tc", &text(&class)),
                    words("tc-bw", &text(&share)),
                    words("tc-tsa", &served),
                ];
                parts.join(" ")
            })
        })
    })
}

/// Traffic classes in dcb(8) syntax, all of them: `prio-tc 0:0 1:1 ... tc-bw 0:50 1:50 ... tc-tsa 0:ets 1:ets ...`.
pub fn class_words(classes: &TrafficClasses) -> String {
    let part = |name: &str, words: [String; CLASSES]| {
        let words: Vec<String> = (0..CLASSES)
            .zip(words)
            .map(|(at, word)| format!("{at}:{word}"))
            .collect();
        format!("{name} {}", words.join(" "))
    };
    let parts = [
        part(
            "prio-tc",
            classes.of_priority.map(|class| class.to_string()),
        ),
        part("tc-bw", classes.share.map(|share| share.to_string())),
        part("tc-tsa", classes.served.map(served_word)),
    ];
    parts.join(" ")
}

/// Parses the text of [`class_words`], in which every class must be named, since a part would leave the others undefined; or
/// classes one by one, `tc 0 prio 0 1 2 4 5 6 ets 40; tc 1 prio 3 ets 60; tc 2 prio 7 strict`.
pub fn parse_classes(words: &str) -> Option<TrafficClasses> {
    if words.split_whitespace().next() == Some("tc") {
        return parse_one_by_one(words);
    }
    let mut found: [[Option<u8>; CLASSES]; 3] = Default::default();
    let mut part = None;
    for word in words.split_whitespace() {
        match word {
            "prio-tc" => part = Some(0),
            "tc-bw" => part = Some(1),
            "tc-tsa" => part = Some(2),
            pair => {
                let (at, word) = pair.split_once(':')?;
                let value = match part? {
                    0 => word
                        .parse()
                        .ok()
                        .filter(|class| usize::from(*class) < CLASSES)?,
                    1 => word.parse().ok().filter(|share| *share <= 100)?,
                    _ => served_number(word)?,
                };
                let at: usize = at.parse().ok()?;
                let slot = found.get_mut(part?)?.get_mut(at)?;
                if slot.replace(value).is_some() {
                    return None;
                }
            }
        }
    }
    let [of_priority, share, served] = found;
    Some(TrafficClasses {
        of_priority: whole(of_priority)?,
        share: whole(share)?,
        served: whole(served)?,
    })
}

/// Each class with its priorities and its algorithm; every priority has one class, and a class that is not named has none.
fn parse_one_by_one(words: &str) -> Option<TrafficClasses> {
    let mut of_priority = [None; CLASSES];
    let mut share = [0; CLASSES];
    let mut served = [0; CLASSES];
    let mut named = [false; CLASSES];
    for one in words.split(';') {
        let mut words = one.split_whitespace();
        if words.next() != Some("tc") {
            return None;
        }
        let class: u8 = words.next()?.parse().ok()?;
        let at = usize::from(class);
        let is_named = named.get_mut(at)?;
        if std::mem::replace(is_named, true) || words.next() != Some("prio") {
            return None;
        }
        let mut words = words.peekable();
        while let Some(priority) = words.peek().and_then(|word| word.parse::<usize>().ok()) {
            words.next();
            let slot: &mut Option<u8> = of_priority.get_mut(priority)?;
            if slot.replace(class).is_some() {
                return None;
            }
        }
        let how = words.next()?;
        *served.get_mut(at)? = served_number(how)?;
        if how == "ets" {
            let own = words.next()?.parse().ok().filter(|share| *share <= 100)?;
            *share.get_mut(at)? = own;
        }
        if words.next().is_some() {
            return None;
        }
    }
    Some(TrafficClasses {
        of_priority: whole(of_priority)?,
        share,
        served,
    })
}

fn whole(all: [Option<u8>; CLASSES]) -> Option<[u8; CLASSES]> {
    let named: Option<Vec<u8>> = all.into_iter().collect();
    named?.try_into().ok()
}

/// A class without a limit.
const NO_LIMIT: &str = "none";

/// The rate limit of each class, `1gbit none 5gbit`; the classes without a limit after the last one with one are left
/// out.
pub fn rate_words(rates: &[BitRate]) -> String {
    let last = rates.iter().rposition(|rate| rate.as_bit_per_s() > 0);
    let limited = last.map_or(&[][..], |last| &rates[..=last]);
    let words: Vec<String> = limited
        .iter()
        .map(|rate| match rate.as_bit_per_s() {
            0 => NO_LIMIT.to_owned(),
            rate => scaled(rate, RATES),
        })
        .collect();
    words.join(" ")
}

/// Parses the text of [`rate_words`], or classes with bit/s, `0:10000000000`; the kernel's unit is kbit/s.
pub fn parse_rates(words: &str) -> Option<[BitRate; CLASSES]> {
    const STEP: u64 = 1_000;
    let mut rates = [BitRate::from_bit_per_s(0); CLASSES];
    let mut named = [false; CLASSES];
    let is_by_class = words.contains(':');
    for (place, word) in words.split_whitespace().enumerate() {
        let (class, rate) = match word.split_once(':') {
            Some((class, rate)) => (class.parse().ok()?, rate.parse().ok()?),
            None if is_by_class => return None,
            None if word == NO_LIMIT => (place, 0),
            None => (place, parse_scaled(word, RATES)?),
        };
        let named = named.get_mut(class)?;
        if !rate.is_multiple_of(STEP) || *named {
            return None;
        }
        *named = true;
        *rates.get_mut(class)? = BitRate::from_bit_per_s(rate);
    }
    Some(rates)
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mapping_to_0_is_none() {
        let map = parse_egress("3:3 0:0 1:5").expect("a map");
        assert_eq!(egress_words(&map), "1:5 3:3");
        assert_eq!(parse_egress(""), Some(BTreeMap::new()));
        for wrong in ["1", "1:8", "1:1 1:2", "x:1", "-1:1", "1:"] {
            assert_eq!(parse_egress(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn priorities_are_told_by_their_numbers() {
        assert_eq!(priority_words(0b1_1000), "3 4");
        assert_eq!(parse_priorities("4 3"), Some(0b1_1000));
        assert_eq!(parse_priorities(""), Some(0));
        for wrong in ["8", "x", "-1", "3,4"] {
            assert_eq!(parse_priorities(wrong), None, "{wrong}");
        }
    }

    const CLASS_WORDS: &str = "prio-tc 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:2 \
        tc-bw 0:40 1:60 2:0 3:0 4:0 5:0 6:0 7:0 \
        tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:vendor 7:reserved-9";

    #[test]
    fn classes_are_named_all_or_not_at_all() {
        let classes = parse_classes(CLASS_WORDS).expect("all are named");
        assert_eq!(classes.of_priority, [0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(classes.served, [2, 2, 0, 0, 0, 0, 255, 9]);
        assert_eq!(class_words(&classes), CLASS_WORDS);
        for (part, other) in [
            (" 7:2", ""),
            (" 7:2", " 7:8"),
            (" 7:2", " 8:2"),
            (" 7:2", " 7:2 7:2"),
            ("1:60", "1:160"),
            ("vendor", "best"),
            ("prio-tc ", ""),
        ] {
            let wrong = CLASS_WORDS.replace(part, other);
            assert_eq!(parse_classes(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn classes_are_also_written_one_by_one() {
        let words = "tc 0 prio 0 1 2 4 5 6 ets 40; tc 1 prio 3 ets 60; tc 2 prio 7 strict";
        let classes = parse_classes(words).expect("every priority has a class");
        assert_eq!(classes.of_priority, [0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(classes.share, [40, 60, 0, 0, 0, 0, 0, 0]);
        assert_eq!(classes.served, [2, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_classes(&class_words(&classes)), Some(classes));
        for (part, other) in [
            ("prio 3", "prio"),
            ("prio 3", "prio 7"),
            ("prio 3", "prio 8"),
            ("tc 1", "tc 0"),
            ("tc 1", "tc 8"),
            ("ets 60", "ets 160"),
            ("ets 60", "ets"),
            ("strict", "best"),
            ("strict", "strict 5"),
            ("strict", "strict;"),
            ("tc 2 ", ""),
        ] {
            let wrong = words.replace(part, other);
            assert_eq!(parse_classes(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_known_of_a_card_is_told_in_the_words_that_set_it() {
        let all = |numbers: [u32; 8]| Known::Value(numbers.to_vec());
        let served = [
            "ets",
            "ets",
            "strict",
            "strict",
            "strict",
            "strict",
            "vendor",
            "reserved 9",
        ];
        let dcb = Dcb {
            priority_class: all([0, 0, 0, 1, 0, 0, 0, 2]),
            class_bandwidth: all([40, 60, 0, 0, 0, 0, 0, 0]),
            class_algorithm: Known::Value(served.map(str::to_owned).to_vec()),
            ..Dcb::default()
        };
        assert_eq!(classes_of(&dcb), Known::Value(CLASS_WORDS.to_owned()));
        let part = Dcb {
            class_bandwidth: Known::not_asked("tc-bw"),
            ..dcb
        };
        assert!(classes_of(&part).gap().is_some());
    }

    #[test]
    fn a_class_without_a_limit_is_not_named() {
        for (words, printed) in [
            ("1:10000000000 0:0", "none 10gbit"),
            ("1gbit 5gbit none", "1gbit 5gbit"),
            ("1.5gbit none 8kbit", "1500mbit none 8kbit"),
            ("none", ""),
            ("", ""),
        ] {
            let rates = parse_rates(words).expect(words);
            assert_eq!(rate_words(&rates), printed);
        }
        for wrong in [
            "8:1000",
            "0:1",
            "0:1000 0:1000",
            "0:0 0:1000",
            "0",
            "0:10Gbit",
            "0:1000 1gbit",
            "1bit",
            "none none none none none none none none none",
        ] {
            assert_eq!(parse_rates(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_map_is_what_its_words_tell(map in btree_map(any::<u32>(), 1u32..8, 0..20)) {
            prop_assert_eq!(parse_egress(&egress_words(&map)), Some(map));
        }

        #[test]
        fn classes_are_what_their_words_tell(
            of_priority in any::<[u8; 8]>(),
            share in any::<[u8; 8]>(),
            served in any::<[u8; 8]>(),
        ) {
            let of_priority = of_priority.map(|class| class % 8);
            let share = share.map(|share| share % 101);
            let classes = TrafficClasses { of_priority, share, served };
            prop_assert_eq!(parse_classes(&class_words(&classes)), Some(classes));
        }

        #[test]
        fn limits_are_what_their_words_tell(kbit in any::<[Option<u32>; 8]>()) {
            let rates = kbit.map(|kbit| BitRate::from_bit_per_s(u64::from(kbit.unwrap_or(0)) * 1_000));
            prop_assert_eq!(parse_rates(&rate_words(&rates)), Some(rates));
        }

        #[test]
        fn no_words_panic(words in "[0-9: a-z-]{0,20}") {
            let _ = parse_egress(&words);
            let _ = parse_priorities(&words);
            let _ = parse_classes(&words);
            let _ = parse_rates(&words);
        }
    }
}
