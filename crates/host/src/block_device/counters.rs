//! The counters of a device while it is measured: `stat` and `inflight` of sysfs (Documentation/block/stat.rst,
//! Documentation/ABI/stable/sysfs-block), its interrupts, and its PCIe link.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};
use linerate_model::units::BitRate;

use super::Device;
use crate::attributes::{cpu_list, numbered, parsed};
use crate::procfs::interrupts::read_some;
use crate::root::{HostRoot, absolute};
use crate::sysfs::pci::{Functions, function_above};
use crate::watch::{Reading, interrupts};

/// A reading of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads and writes that completed.
    pub operations: u64,
    /// The time of all requests together, ms.
    pub request_ms: u64,
}

/// The interrupts of a device: of each, its number, its name, its CPUs, and the count on each CPU.
pub type Interrupts = Vec<(u32, String, CpuSet, BTreeMap<CpuId, u64>)>;

/// The narrowest PCIe link between a device and the root.
pub type Pcie = Known<BitRate>;

/// Reads and writes that have completed, and their time: fields 1, 4, 5 and 8 of the file (Documentation/block/stat.rst).
pub(super) fn parse_stat(text: &str) -> Result<Counters, String> {
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    let numbers = numbers.map_err(|error: std::num::ParseIntError| error.to_string())?;
    match numbers.as_slice() {
        [reads, _, _, read_ms, writes, _, _, write_ms, ..] => Ok(Counters {
            operations: reads.saturating_add(*writes),
            request_ms: read_ms.saturating_add(*write_ms),
        }),
        _ => Err("expected at least eight numbers".to_owned()),
    }
}

/// Reads and writes that the driver has: `       1        0`.
pub(super) fn parse_inflight(text: &str) -> Result<u64, String> {
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    match numbers.as_deref() {
        Ok([reads, writes]) => Ok(reads.saturating_add(*writes)),
        Ok(_) => Err("expected two numbers".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Device {
    /// The operations of the device so far.
    pub fn counters(&self, root: &HostRoot) -> Known<Counters> {
        parsed(root, &format!("{}/stat", self.folder), parse_stat)
    }

    /// The requests that the driver has now.
    pub fn in_flight(&self, root: &HostRoot) -> Known<u64> {
        parsed(root, &format!("{}/inflight", self.folder), parse_inflight)
    }

    /// The bandwidth of the narrowest PCIe link between it and the root.
    pub fn pcie(&self, root: &HostRoot) -> Pcie {
        match function_above(&self.folder) {
            Some((function, _)) => {
                Functions::new(root, &[])
                    .link(&function)
                    .available_bit_per_s
            }
            None => Known::unknown(
                Cause::Absent,
                absolute(&self.folder),
                "not on a PCI function",
            ),
        }
    }

    /// The CPUs local to its PCI function.
    pub fn local_cpus(&self, root: &HostRoot) -> Known<CpuSet> {
        match function_above(&self.folder) {
            Some((function, _)) => cpu_list(root, &format!("{function}/local_cpulist")),
            None => Known::unknown(
                Cause::Absent,
                absolute(&self.folder),
                "not on a PCI function",
            ),
        }
    }

    /// The counts of the interrupts of its PCI function so far; empty if it has none.
    pub fn interrupts(&self, root: &HostRoot) -> Interrupts {
        let Some((function, _)) = function_above(&self.folder) else {
            return Vec::new();
        };
        let Known::Value(names) = root.list(&format!("{function}/msi_irqs")) else {
            return Vec::new();
        };
        let numbers = numbered(&names, "");
        let mut reading = Reading::default();
        let wanted: BTreeSet<u32> = numbers.iter().copied().collect();
        interrupts::read_numbers(root, &wanted, &mut reading);
        let irqs = read_some(root, &numbers).into_iter();
        let counted = irqs.filter_map(|irq| {
            let number = irq.number.0;
            let counts = &reading.interrupts.get(&number)?.cpus;
            let name = irq.actions.value().map(|names| names.join(","));
            let cpus = irq.effective.value().cloned().unwrap_or_default();
            let counts = counts.iter().map(|(cpu, count)| (CpuId(*cpu), *count));
            Some((number, name.unwrap_or_default(), cpus, counts.collect()))
        });
        counted.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_writes_are_added_and_the_time_of_both() {
        let text = "  9  1 72 30   4 0 32 12  1  40  42 0 0 0 0 0 0\n";
        let counters = parse_stat(text).expect(text);
        assert_eq!((counters.operations, counters.request_ms), (13, 42));
        assert!(parse_stat("1 2 3").is_err());
        assert_eq!(parse_inflight("       3        4\n"), Ok(7));
        assert!(parse_inflight("3").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9 ]|\\PC){0,60}") {
            let _ = (parse_stat(&text), parse_inflight(&text));
        }
    }
}
