//! The CPUs that share a last-level cache: `cpuN/cache/indexM` (Documentation/ABI/testing/sysfs-devices-system-cpu).

use std::collections::BTreeMap;

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};

use super::cpus::FOLDER;
use crate::attributes::{cpu_list, cpu_mask, number, numbered, or_if_absent};
use crate::root::{HostRoot, absolute};

/// More CPUs than share any real cache; limits the memory for an untrusted host.
const SHARERS_MAX: usize = 1024;

/// The last-level caches found so far.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    /// The CPUs of a cache, by each of them.
    told: BTreeMap<CpuId, CpuSet>,
    /// The index of the last level, by the set of indexes: CPUs of one type have the same.
    last: BTreeMap<Vec<u32>, Known<u32>>,
}

impl Caches {
    /// The CPUs that share the last-level cache of `cpu`.
    pub(crate) fn of(&mut self, root: &HostRoot, cpu: CpuId) -> Known<CpuSet> {
        if let Some(told) = self.told.get(&cpu) {
            return Known::Value(told.clone());
        }
        let folder = format!("{FOLDER}/cpu{cpu}/cache");
        let indexes = match root.list(&folder) {
            Known::Value(names) => numbered(&names, "index"),
            Known::Unknown(gap) => return Known::Unknown(gap),
        };
        let last = self
            .last
            .entry(indexes)
            .or_insert_with_key(|indexes| last_level(root, &folder, indexes));
        let index = match last {
            Known::Value(index) => format!("{folder}/index{index}"),
            Known::Unknown(gap) => return Known::Unknown(gap.clone()),
        };
        // The list exists since 2.6.30.
        let sharers = or_if_absent(cpu_list(root, &format!("{index}/shared_cpu_list")), || {
            cpu_mask(root, &format!("{index}/shared_cpu_map"))
        });
        if let Known::Value(sharers) = &sharers {
            if sharers.len() > SHARERS_MAX {
                let reason = format!("{} CPUs share it, which no cache allows", sharers.len());
                return Known::unknown(Cause::Unreadable, absolute(&index), reason);
            }
            if sharers.contains(cpu) {
                for other in sharers.iter() {
                    self.told.entry(other).or_insert_with(|| sharers.clone());
                }
            }
        }
        sharers
    }
}

/// The index of the highest level data cache.
fn last_level(root: &HostRoot, folder: &str, indexes: &[u32]) -> Known<u32> {
    let mut highest: Option<(u32, u32)> = None;
    for index in indexes {
        let kind = match root.read(&format!("{folder}/index{index}/type")) {
            Known::Value(kind) => kind,
            Known::Unknown(gap) => return Known::Unknown(gap),
        };
        if kind == "Instruction" {
            continue;
        }
        match number::<u32>(root, &format!("{folder}/index{index}/level")) {
            Known::Value(level) => highest = highest.max(Some((level, *index))),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    match highest {
        Some((_, index)) => Known::Value(index),
        None => Known::unknown(
            Cause::NotSaid,
            absolute(folder),
            "the kernel lists no data cache",
        ),
    }
}
