//! Connection tracking's counters: `/proc/net/stat/nf_conntrack` (net/netfilter/nf_conntrack_standalone.c):
//! a line of names, then for each CPU a line of hexadecimal numbers.

use std::collections::BTreeMap;

/// The current table size, repeated on every line.
const ENTRIES: &str = "entries";

/// The counters by name, summed over all CPUs.
pub(crate) fn parse_conntrack_stat(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let mut sums = BTreeMap::new();
    for line in lines {
        for (name, word) in names.iter().zip(line.split_whitespace()) {
            let number = u64::from_str_radix(word, 16);
            let number = number.map_err(|error| format!("`{word}`: {error}"))?;
            if *name != ENTRIES {
                let sum: &mut u64 = sums.entry((*name).to_owned()).or_default();
                *sum = sum.saturating_add(number);
            }
        }
    }
    if sums.is_empty() {
        return Err("no per-CPU line".to_owned());
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lines_of_all_cpus_are_one_sum() {
        let text = "entries  insert_failed drop early_drop\n00000010 00000001 0000000a 00000000\n\
                    00000010 00000002 00000001 00000000";
        let counters = parse_conntrack_stat(text).expect("two CPUs");
        assert_eq!((counters["insert_failed"], counters["drop"]), (3, 11));
        assert!(!counters.contains_key("entries"));
        assert!(parse_conntrack_stat("entries drop").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec("([a-f0-9]{0,18} ){0,4}|.{0,20}", 0..4)) {
            let _ = parse_conntrack_stat(&lines.join("\n"));
        }
    }
}
