//! Maps of priorities, in words.

use std::collections::BTreeMap;

/// The highest priority that a VLAN tag holds (IEEE 802.1Q, 3 bits).
const PCP_MAX: u32 = 7;

/// Which priority in the tag each socket priority is sent with, `0:1 3:3`. One that is sent with 0 is not told: the
/// kernel never takes a mapping away, and one to 0 is as good as none (`vlan_dev_set_egress_priority`).
pub fn egress_words(map: &BTreeMap<u32, u32>) -> String {
    let told = map.iter().filter(|(_, pcp)| **pcp != 0);
    let words: Vec<String> = told.map(|(from, pcp)| format!("{from}:{pcp}")).collect();
    words.join(" ")
}

/// The map of which [`egress_words`] tells; each priority but once.
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

    proptest! {
        #[test]
        fn a_map_is_what_its_words_tell(map in btree_map(any::<u32>(), 1u32..8, 0..20)) {
            prop_assert_eq!(parse_egress(&egress_words(&map)), Some(map));
        }

        #[test]
        fn no_words_panic(words in "[0-9: a-z-]{0,20}") {
            let _ = parse_egress(&words);
        }
    }
}
