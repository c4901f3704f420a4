//! Memory stall and page fault counters: `/proc/vmstat` (proc_vmstat(5)), one name and number per line. Most lines
//! are sizes and are skipped.

use std::collections::BTreeMap;

/// The prefixes of the counters that are read.
const TAKEN: [&str; 13] = [
    "allocstall",
    "compact_fail",
    "compact_stall",
    "numa_foreign",
    "numa_miss",
    "numa_pages_migrated",
    "oom_kill",
    "pgfault",
    "pgmajfault",
    "pgscan_",
    "pgsteal_",
    "pswpin",
    "pswpout",
];

/// The counters by name.
pub(crate) fn parse_vmstat(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let taken = text
        .lines()
        .filter(|line| TAKEN.iter().any(|name| line.starts_with(name)));
    taken
        .map(|line| {
            let (name, number) = line.split_once(' ').unwrap_or((line, ""));
            let number = number.trim().parse();
            let number = number.map_err(|error| format!("`{name}`: {error}"))?;
            Ok((name.to_owned(), number))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stalls_are_taken_and_sizes_are_not() {
        let text = "nr_free_pages 1431344\nallocstall_normal 12\npgscan_direct 0\n";
        let counters = parse_vmstat(text).expect("counters");
        assert_eq!(counters.len(), 2);
        assert_eq!(counters["allocstall_normal"], 12);
        assert!(parse_vmstat("oom_kill x").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(allocstall|pgscan_)?[a-z ]{0,9}[0-9]{0,22}|.{0,30}") {
            let _ = parse_vmstat(&text);
        }
    }
}
