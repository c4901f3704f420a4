//! CPUs: `/sys/devices/system/cpu` (Documentation/ABI/stable/sysfs-devices-system-cpu,
//! Documentation/admin-guide/cputopology.rst, Documentation/admin-guide/pm/cpufreq.rst).

use linerate_model::host::{Cpu, Node};
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Gap, Known};

use super::nodes::node_of;
use super::{cpu_list, cpu_mask, number_or_minus_one, numbered, or_if_absent, understood};
use crate::root::HostRoot;

const FOLDER: &str = "sys/devices/system/cpu";

/// Reads every CPU that the kernel has a folder for, offline ones too.
pub fn read_cpus(root: &HostRoot, nodes: &[Node], gaps: &mut Vec<Gap>) -> Vec<Cpu> {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    let online = cpu_list(root, &format!("{FOLDER}/online"));
    numbered(&names, "cpu")
        .into_iter()
        .map(|id| read_cpu(root, CpuId(id), &online, nodes))
        .collect()
}

fn read_cpu(root: &HostRoot, id: CpuId, online: &Known<CpuSet>, nodes: &[Node]) -> Cpu {
    let folder = format!("{FOLDER}/cpu{id}");
    let online = or_if_absent(online.clone().map(|set| set.contains(id)), || {
        let path = format!("{folder}/online");
        root.read(&path)
            .and_then(|text| understood(&path, &text, parse_online))
    });
    if online.get() == Some(false) {
        return offline(id, &folder, online, nodes);
    }
    let topology = format!("{folder}/topology");
    Cpu {
        die: Known::default(),
        last_level_cache: Known::default(),
        kind: Known::default(),
        id,
        online,
        node: node_of(id, nodes),
        package: number_or_minus_one(
            root,
            &format!("{topology}/physical_package_id"),
            "the firmware does not describe packages",
        ),
        core: number_or_minus_one(
            root,
            &format!("{topology}/core_id"),
            "the firmware does not describe cores",
        ),
        siblings: read_siblings(root, &topology),
        governor: root.read(&format!("{folder}/cpufreq/scaling_governor")),
    }
}

/// The kernel takes the topology and the frequency of an offline CPU away.
fn offline(id: CpuId, folder: &str, online: Known<bool>, nodes: &[Node]) -> Cpu {
    fn gone<T>(path: String) -> Known<T> {
        Known::unknown(Cause::Absent, path, "the CPU is offline")
    }
    let topology = format!("/{folder}/topology");
    Cpu {
        die: Known::default(),
        last_level_cache: Known::default(),
        kind: Known::default(),
        id,
        online,
        node: node_of(id, nodes),
        package: gone(format!("{topology}/physical_package_id")),
        core: gone(format!("{topology}/core_id")),
        siblings: gone(format!("{topology}/core_cpus_list")),
        governor: gone(format!("/{folder}/cpufreq/scaling_governor")),
    }
}

/// `core_cpus_list` is the name since 5.3, `thread_siblings_list` since 2.6.30, masks are older still.
fn read_siblings(root: &HostRoot, topology: &str) -> Known<CpuSet> {
    or_if_absent(
        cpu_list(root, &format!("{topology}/core_cpus_list")),
        || {
            or_if_absent(
                cpu_list(root, &format!("{topology}/thread_siblings_list")),
                || cpu_mask(root, &format!("{topology}/thread_siblings")),
            )
        },
    )
}

/// `1` or `0`.
pub fn parse_online(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("expected `0` or `1`"),
    }
}
