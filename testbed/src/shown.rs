//! What tc(8) shows of settings, made comparable.

/// The counter that `tc -d qdisc` prints among the settings of HTB: packets that no class took, such as those of IPv6
/// neighbor discovery, at any time.
const COUNTER: &str = "direct_packets_stat";

/// `shown` with that counter at zero, so that two outputs are equal if the settings are.
pub fn without_counters(shown: &str) -> String {
    let mut pieces = shown.split(COUNTER);
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let number = |c: char| c.is_ascii_digit();
        let start = piece.find(number).unwrap_or(piece.len());
        let (between, rest) = piece.split_at(start);
        plain.extend([COUNTER, between, "0", rest.trim_start_matches(number)]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_zero_in_text_and_in_json_and_all_else_is_as_it_was() {
        for (shown, plain) in [
            ("", ""),
            ("qdisc mq 9: root\n", "qdisc mq 9: root\n"),
            (
                "qdisc htb 9: r2q 10 direct_packets_stat 17 ver 3.17 direct_qlen 1000\n",
                "qdisc htb 9: r2q 10 direct_packets_stat 0 ver 3.17 direct_qlen 1000\n",
            ),
            (
                r#"[{"direct_packets_stat":3,"direct_qlen":10},{"direct_packets_stat": 0}]"#,
                r#"[{"direct_packets_stat":0,"direct_qlen":10},{"direct_packets_stat": 0}]"#,
            ),
        ] {
            assert_eq!(without_counters(shown), plain);
        }
    }
}
