//! CPU time by kind: the `cpuN` lines of `/proc/stat` (proc_stat(5)), in clock ticks since boot.

use std::collections::BTreeMap;

/// What one CPU has done since boot, in clock ticks. Guest time is within user time.
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

/// Reads the line of each CPU; the kernel lists online CPUs only.
pub(crate) fn parse_stat(text: &str) -> Result<BTreeMap<u32, CpuTicks>, String> {
    let mut cpus = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else {
            continue;
        };
        // The line without a number is their sum.
        if rest.starts_with(char::is_whitespace) {
            continue;
        }
        let mut words = rest.split_whitespace();
        let number = words.next().unwrap_or_default();
        let cpu = number
            .parse::<u32>()
            .map_err(|error| format!("CPU `{number}`: {error}"))?;
        let ticks: Vec<u64> = words
            .map(|word| word.parse().map_err(|error| format!("`{word}`: {error}")))
            .collect::<Result<_, _>>()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            return Err(format!("CPU {cpu} has {} figures, not 8", ticks.len()));
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
        return Err("no line of a CPU".to_owned());
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
            let _ = (parse_stat(&text), parse_switches(&text));
        }
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
