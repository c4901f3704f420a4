//! CPU time by kind: the `cpuN` lines of `/proc/stat` (proc_stat(5)), in clock ticks since boot.

use std::collections::BTreeMap;

/// The times of one CPU since boot, in clock ticks. Guest time is included in user time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    pub(crate) user: u64,
    pub(crate) nice: u64,
    pub(crate) system: u64,
    pub(crate) idle: u64,
    pub(crate) iowait: u64,
    pub(crate) irq: u64,
    pub(crate) softirq: u64,
    pub(crate) steal: u64,
}

/// The steal share of CPU time since boot, parts per million, from the line for all CPUs. Any steal at all gives at
/// least 1.
pub(crate) fn parse_steal(text: &str) -> Result<u32, String> {
    let mut lines = text.lines();
    let sum = lines.find_map(|line| line.strip_prefix("cpu "));
    let ticks = parse_ticks(sum.ok_or("no line for all CPUs")?.split_whitespace())?;
    // The following guest times are included in user time.
    let figures = ticks.get(..FIGURES).ok_or_else(|| {
        format!(
            "the line for all CPUs has {} fields, not {FIGURES}",
            ticks.len()
        )
    })?;
    let whole: u128 = figures.iter().copied().map(u128::from).sum();
    let steal = u128::from(figures[FIGURES - 1]);
    if steal == 0 {
        return Ok(0);
    }
    let ppm = (steal * 1_000_000 / whole).max(1);
    u32::try_from(ppm).map_err(|error| error.to_string())
}

/// The fields up to and including steal (Linux 2.6.11).
const FIGURES: usize = 8;

fn parse_ticks<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<u64>, String> {
    words
        .map(|word| word.parse().map_err(|error| format!("`{word}`: {error}")))
        .collect()
}

/// Reads the line of each CPU; the kernel lists online CPUs only.
pub(crate) fn parse_stat(text: &str) -> Result<BTreeMap<u32, CpuTicks>, String> {
    let mut cpus = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else {
            continue;
        };
        // The line without a number is the sum of all CPUs.
        if rest.starts_with(char::is_whitespace) {
            continue;
        }
        let mut words = rest.split_whitespace();
        let number = words.next().unwrap_or_default();
        let cpu = number
            .parse::<u32>()
            .map_err(|error| format!("CPU `{number}`: {error}"))?;
        let ticks = parse_ticks(words)?;
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            return Err(format!("CPU {cpu} has {} fields, not 8", ticks.len()));
        };
        cpus.insert(
            cpu,
            CpuTicks {
                user,
                nice,
                system,
                idle,
                iowait,
                irq,
                softirq,
                steal,
            },
        );
    }
    if cpus.is_empty() {
        return Err("no per-CPU line".to_owned());
    }
    Ok(cpus)
}

/// Context switches of all CPUs since boot.
pub(crate) fn parse_switches(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec("cpu[0-9]{0,3}( [0-9]{0,21}){0,10}|.{0,20}", 0..4)) {
            let text = lines.join("\n");
            let _ = (parse_stat(&text), parse_switches(&text), parse_steal(&text));
        }
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time_and_never_rounded_to_none() {
        assert_eq!(parse_steal("cpu  50 0 20 20 0 0 0 10 40 0\n"), Ok(100_000));
        assert_eq!(parse_steal("cpu  0 0 0 9000000000 0 0 0 1 0 0"), Ok(1));
        assert_eq!(parse_steal("cpu  0 0 0 0 0 0 0 0 0 0"), Ok(0));
        assert!(
            parse_steal("cpu  1 2 3 4").is_err(),
            "a kernel that counts none"
        );
        assert!(parse_steal("cpu0 1 2 3 4 5 6 7 8").is_err());
    }

    #[test]
    fn the_sum_and_other_lines_are_left_alone() {
        let text = "cpu  2 0 0 0 0 0 0 0\ncpu3 1 2 3 4 5 6 7 8 9 9\nintr 1 2\nctxt 4";
        let cpus = parse_stat(text).expect("one CPU");
        assert_eq!(cpus.len(), 1);
        assert_eq!(cpus[&3].steal, 8);
        assert_eq!(parse_switches(text), Some(4));
        assert_eq!(parse_switches("cpu 1"), None);
    }
}
