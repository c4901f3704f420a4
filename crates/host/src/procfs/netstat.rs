//! TCP's and IP's own counters: `/proc/net/netstat` and, of the same form, `/proc/net/snmp`
//! (Documentation/networking/snmp_counter.rst): for each group a line of names and a line of numbers.

use std::collections::BTreeMap;

/// Values in these files that are not counters: settings and gauges (RFC 4022, RFC 4293).
const NO_COUNTERS: [&str; 7] = [
    "Ip/Forwarding",
    "Ip/DefaultTTL",
    "Tcp/RtoAlgorithm",
    "Tcp/RtoMin",
    "Tcp/RtoMax",
    "Tcp/MaxConn",
    "Tcp/CurrEstab",
];

/// The counters by group and name, `TcpExt/ListenDrops`.
pub(crate) fn parse_netstat(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let group = |line: &str| {
            let split = line.split_once(':');
            split.map(|(group, rest)| (group.to_owned(), rest.to_owned()))
        };
        let wrong = || {
            format!(
                "`{}` is not a pair of lines",
                names.chars().take(20).collect::<String>()
            )
        };
        let (group_of_names, names) = group(names).ok_or_else(wrong)?;
        let (group_of_numbers, numbers) = group(numbers).ok_or_else(wrong)?;
        if group_of_names != group_of_numbers {
            return Err(format!(
                "{group_of_names} is followed by {group_of_numbers}"
            ));
        }
        for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
            let key = format!("{group_of_names}/{name}");
            // A few are -1 for "no limit".
            if let (false, Ok(number)) = (NO_COUNTERS.contains(&key.as_str()), number.parse()) {
                counters.insert(key, number);
            }
        }
    }
    if counters.is_empty() {
        return Err("no counter".to_owned());
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_numbers_are_paired_group_by_group() {
        let text = "TcpExt: SyncookiesSent ListenDrops\nTcpExt: 3 18446744073709551615\n\
                    IpExt: InOctets\nIpExt: 5\n";
        let counters = parse_netstat(text).expect("two groups");
        assert_eq!(counters["TcpExt/ListenDrops"], u64::MAX);
        assert_eq!(counters["IpExt/InOctets"], 5);
        let snmp = "Tcp: RtoMin MaxConn CurrEstab OutSegs\nTcp: 200 -1 4 77";
        let counters = parse_netstat(snmp).expect("one group");
        assert_eq!(
            counters.into_iter().collect::<Vec<_>>(),
            [("Tcp/OutSegs".to_owned(), 77)]
        );
        assert!(parse_netstat("Tcp: A\nUdp: 1").is_err());
        assert!(parse_netstat("").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec("(Tcp|Udp)?:?( [A-Z0-9-]{0,21}){0,3}|.{0,20}", 0..6)) {
            let _ = parse_netstat(&lines.join("\n"));
        }
    }
}
