//! The core types of a hybrid processor. x86 has a PMU device for each type (`/sys/devices/cpu_core/cpus`,
//! arch/x86/events/intel/core.c), Arm and RISC-V a capacity for each CPU (`cpuN/cpu_capacity`,
//! Documentation/scheduler/sched-capacity.rst). A guest or a copy without either may still show cores with different
//! base frequencies.

use std::collections::BTreeMap;

use linerate_model::host::{CpuKind, FrequencyPolicy};
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};

use super::cpus::FOLDER;
use crate::attributes::{cpu_list, number};
use crate::parallel;
use crate::root::{HostRoot, absolute};

const LARGE: &str = "sys/devices/cpu_core/cpus";
/// `cpu_lowpower` is the low-power island of newer Intel processors.
const SMALL: [&str; 2] = ["sys/devices/cpu_atom/cpus", "sys/devices/cpu_lowpower/cpus"];

/// The type of each of `cpus`.
pub(crate) fn read_kinds(
    root: &HostRoot,
    cpus: &[CpuId],
    frequency: &Known<Vec<FrequencyPolicy>>,
) -> BTreeMap<CpuId, Known<CpuKind>> {
    let large = cpu_list(root, LARGE);
    let absent = matches!(&large, Known::Unknown(gap) if gap.cause == Cause::Absent);
    if !absent {
        let small = match &large {
            Known::Value(_) => SMALL.map(|path| cpu_list(root, path)).to_vec(),
            Known::Unknown(_) => Vec::new(),
        };
        let kind = |cpu: &CpuId| (*cpu, of_devices(*cpu, &large, &small));
        return cpus.iter().map(kind).collect();
    }
    by_capacity(root, cpus).unwrap_or_else(|| {
        let by_cpu = base_frequencies(frequency);
        let range = range(&by_cpu);
        let kind = |cpu: &CpuId| (*cpu, Known::Value(by_size(by_cpu.get(cpu), range)));
        cpus.iter().map(kind).collect()
    })
}

fn of_devices(cpu: CpuId, large: &Known<CpuSet>, small: &[Known<CpuSet>]) -> Known<CpuKind> {
    match large {
        Known::Unknown(gap) => Known::Unknown(gap.clone()),
        Known::Value(large) if large.contains(cpu) => Known::Value(CpuKind::Performance),
        Known::Value(_) => {
            let mut known = small.iter().filter_map(Known::value);
            if known.any(|small| small.contains(cpu)) {
                return Known::Value(CpuKind::Efficiency);
            }
            let reason = format!("CPU {cpu} is not in any core type's list");
            Known::unknown(Cause::NotSaid, absolute(LARGE), reason)
        }
    }
}

/// By capacity, if the architecture has it; otherwise `None`.
fn by_capacity(root: &HostRoot, cpus: &[CpuId]) -> Option<BTreeMap<CpuId, Known<CpuKind>>> {
    let read = |cpu: &CpuId| number::<u64>(root, &format!("{FOLDER}/cpu{cpu}/cpu_capacity"));
    let first = read(cpus.first()?);
    if matches!(&first, Known::Unknown(gap) if gap.cause == Cause::Absent) {
        return None;
    }
    let rest = parallel::each(cpus.get(1..).unwrap_or_default(), read);
    let capacities: Vec<Known<u64>> = std::iter::once(first).chain(rest).collect();
    let known: BTreeMap<CpuId, u64> = cpus
        .iter()
        .zip(&capacities)
        .filter_map(|(cpu, capacity)| Some((*cpu, capacity.get()?)))
        .collect();
    let range = range(&known);
    let kind = |(cpu, capacity): (&CpuId, Known<u64>)| {
        (*cpu, capacity.map(|own| by_size(Some(&own), range)))
    };
    Some(cpus.iter().zip(capacities).map(kind).collect())
}

fn base_frequencies(frequency: &Known<Vec<FrequencyPolicy>>) -> BTreeMap<CpuId, u64> {
    let policies = frequency.value().into_iter().flatten();
    let known = policies.filter_map(|policy| Some((policy.cpus.value()?, policy.base_khz.get()?)));
    known
        .flat_map(|(cpus, khz)| cpus.iter().map(move |cpu| (cpu, khz)))
        .collect()
}

fn range(sizes: &BTreeMap<CpuId, u64>) -> (Option<u64>, Option<u64>) {
    let sizes = || sizes.values().copied();
    (sizes().min(), sizes().max())
}

/// The largest are the performance cores, unless all are equal.
fn by_size(own: Option<&u64>, (least, most): (Option<u64>, Option<u64>)) -> CpuKind {
    if least == most || own.is_none() {
        CpuKind::Uniform
    } else if own.copied() == most {
        CpuKind::Performance
    } else {
        CpuKind::Efficiency
    }
}
