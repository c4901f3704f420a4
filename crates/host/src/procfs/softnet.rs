//! The softirq packet processing counters: `/proc/net/softnet_stat` (net/core/net-procfs.c, `softnet_seq_show`).
//! Hexadecimal, one line for each online CPU; the number of columns depends on the kernel, and since 5.10 column 13
//! is the CPU's number.

use linerate_model::ids::CpuId;
use linerate_model::known::{Cause, Known};

/// The columns of every kernel version.
const COLUMNS_MIN: usize = 9;
/// The column numbers.
const PROCESSED: usize = 0;
const DROPPED: usize = 1;
const TIME_SQUEEZE: usize = 2;
const RECEIVED_RPS: usize = 9;
const FLOW_LIMIT: usize = 10;
const CPU: usize = 12;

/// One CPU's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftnetLine {
    /// The CPU; older kernels do not print it.
    pub cpu: Known<CpuId>,
    /// Packets processed. The counters have 32 bits and wrap.
    pub processed: u32,
    /// Packets dropped because the backlog was full.
    pub dropped: u32,
    /// `time_squeeze`: rounds that ended by budget or time with work left.
    pub time_squeeze: u32,
    /// `received_rps`: wake-ups for packets that RPS assigned to this CPU.
    pub received_rps: Known<u32>,
    /// Packets dropped by the flow limit.
    pub flow_limit: Known<u32>,
}

/// Reads every line.
pub(crate) fn parse_softnet(text: &str) -> Result<Vec<SoftnetLine>, String> {
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<SoftnetLine, String> {
    let columns: Vec<u32> = line
        .split_whitespace()
        .map(|word| u32::from_str_radix(word, 16).map_err(|error| format!("`{word}`: {error}")))
        .collect::<Result<_, _>>()?;
    if columns.len() < COLUMNS_MIN {
        return Err(format!(
            "a line has {} columns, every kernel writes at least {COLUMNS_MIN}",
            columns.len()
        ));
    }
    let column = |index: usize| match columns.get(index) {
        Some(value) => Known::Value(*value),
        None => Known::unknown(
            Cause::Absent,
            "/proc/net/softnet_stat",
            format!("this kernel writes {} columns", columns.len()),
        ),
    };
    Ok(SoftnetLine {
        cpu: column(CPU).map(CpuId),
        processed: columns[PROCESSED],
        dropped: columns[DROPPED],
        time_squeeze: columns[TIME_SQUEEZE],
        received_rps: column(RECEIVED_RPS),
        flow_limit: column(FLOW_LIMIT),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn old_kernels_do_not_say_the_cpu() {
        let old = "00000010 00000002 00000001 0 0 0 0 0 00000000 00000003";
        let lines = parse_softnet(old).expect("ten columns");
        assert_eq!(
            (lines[0].processed, lines[0].dropped, lines[0].time_squeeze),
            (16, 2, 1)
        );
        assert_eq!(lines[0].received_rps, Known::Value(3));
        assert_eq!(lines[0].cpu.gap().map(|gap| gap.cause), Some(Cause::Absent));
    }

    #[test]
    fn new_kernels_say_the_cpu_in_the_thirteenth_column() {
        let new = "1 0 0 0 0 0 0 0 0 0 0 0 0000000e 0 0";
        assert_eq!(
            parse_softnet(new).expect("fifteen")[0].cpu,
            Known::Value(CpuId(14))
        );
    }

    #[test]
    fn a_line_that_is_too_short_is_refused() {
        assert!(parse_softnet("00015c73 00020e76 F0000769 00000000").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9a-f]{1,9} ){0,16}|.{0,40}") {
            let _ = parse_softnet(&text);
        }
    }
}
