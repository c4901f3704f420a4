//! Per-CPU counts of NIC queue interrupts: `/sys/kernel/irq/N/per_cpu_count`
//! (Documentation/ABI/testing/sysfs-kernel-irq), or else `/proc/interrupts`.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::Host;
use linerate_model::ids::CpuSet;
use linerate_model::known::{Cause, Known};

use super::{Interrupts, Reading};
use crate::attributes::{cpu_list, parsed};
use crate::root::{HostRoot, absolute};

const SYSFS: &str = "sys/kernel/irq";
const TABLE: &str = "proc/interrupts";
const POSSIBLE: &str = "sys/devices/system/cpu/possible";

/// The queues of eight NICs with 256 queues each.
const IRQS_MAX: usize = 2_048;

pub(super) fn read(root: &HostRoot, host: &Host, reading: &mut Reading) {
    let queues = host.nics.iter().flat_map(|nic| &nic.queues);
    let of_queues = queues.filter_map(|queue| queue.irq.get());
    let napis = host
        .nics
        .iter()
        .filter_map(|nic| nic.dispatch.napis.value());
    let of_napis = napis.flatten().filter_map(|napi| napi.irq.get());
    let irqs: BTreeSet<u32> = of_queues.chain(of_napis).map(|irq| irq.0).collect();
    read_numbers(root, &irqs, reading);
}

/// Reads the counts of each of `irqs`.
pub(crate) fn read_numbers(root: &HostRoot, irqs: &BTreeSet<u32>, reading: &mut Reading) {
    let irqs: Vec<u32> = irqs.iter().copied().take(IRQS_MAX).collect();
    if irqs.is_empty() {
        return;
    }
    // A count for each possible CPU, in their order.
    let possible = cpu_list(root, POSSIBLE).value().cloned();
    let mut missing = BTreeSet::new();
    for irq in irqs {
        let path = format!("{SYSFS}/{irq}/per_cpu_count");
        match parsed(root, &path, |text| parse_counts(text, possible.as_ref())) {
            Known::Value(cpus) => {
                let path = absolute(&path);
                reading.interrupts.insert(irq, Interrupts { path, cpus });
            }
            Known::Unknown(gap) if gap.cause == Cause::Absent => {
                missing.insert(irq);
            }
            Known::Unknown(gap) => reading.miss(format!("irq/{irq}"), gap),
        }
    }
    if !missing.is_empty() {
        read_table(root, &missing, reading);
    }
}

fn read_table(root: &HostRoot, irqs: &BTreeSet<u32>, reading: &mut Reading) {
    let table = root.read(TABLE).map(|text| parse_table(&text, irqs));
    match table {
        Known::Value(table) => {
            for (irq, cpus) in table {
                let path = absolute(TABLE);
                reading.interrupts.insert(irq, Interrupts { path, cpus });
            }
        }
        Known::Unknown(gap) => reading.miss("irq".to_owned(), gap),
    }
}

/// `0,119,0,4`, a number for each CPU of `possible`, or from 0 when those are not known.
pub(crate) fn parse_counts(
    text: &str,
    possible: Option<&CpuSet>,
) -> Result<BTreeMap<u32, u64>, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let cpus: Vec<u32> = match possible {
        Some(cpus) if cpus.len() == words.len() => cpus.iter().map(|cpu| cpu.0).collect(),
        Some(cpus) => return Err(format!("{} numbers for {} CPUs", words.len(), cpus.len())),
        None => (0..=CpuSet::CPU_MAX).take(words.len()).collect(),
    };
    let mut counts = BTreeMap::new();
    for (cpu, word) in cpus.into_iter().zip(words) {
        let count: u64 = word.parse().map_err(|error| format!("`{word}`: {error}"))?;
        if count > 0 {
            counts.insert(cpu, count);
        }
    }
    Ok(counts)
}

/// The lines of `irqs` in `/proc/interrupts`, whose header has the CPUs of the columns.
pub(crate) fn parse_table(text: &str, irqs: &BTreeSet<u32>) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let cpus: Vec<u32> = head
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect();
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number
            .trim()
            .parse()
            .ok()
            .filter(|irq| irqs.contains(irq))?;
        let counts = cpus.iter().zip(rest.split_whitespace());
        let counts: Option<BTreeMap<u32, u64>> = counts
            .map(|(cpu, word)| Some((*cpu, word.parse().ok()?)))
            .collect();
        let mut counts = counts?;
        counts.retain(|_, count| *count > 0);
        Some((number, counts))
    };
    lines.filter_map(line).collect()
}
