//! CPUs: `/sys/devices/system/cpu` (Documentation/ABI/stable/sysfs-devices-system-cpu,
//! Documentation/admin-guide/cputopology.rst, Documentation/admin-guide/pm/cpufreq.rst).
//!
//! Properties shared by several CPUs are read from one of them: a list of CPUs shows which others they apply to.

use std::collections::BTreeMap;

use linerate_model::host::{Cpu, FrequencyPolicy, Node};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::{Cause, Gap, Known};

use super::caches::Caches;
use super::kinds::read_kinds;
use super::nodes::node_of;
use crate::attributes::{
    cpu_list, cpu_mask, number_or_minus_one, numbered, or_if_absent, understood,
};
use crate::parallel;
use crate::root::HostRoot;

pub(crate) const FOLDER: &str = "sys/devices/system/cpu";

/// Every CPU with a directory in sysfs, and whether it is online.
pub(crate) type Listed = Vec<(CpuId, Known<bool>)>;

/// Lists the CPUs, including offline ones.
pub(crate) fn list_cpus(root: &HostRoot, gaps: &mut Vec<Gap>) -> Listed {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    let online = cpu_list(root, &format!("{FOLDER}/online"));
    let is_online = |id: CpuId| {
        let listed = match &online {
            Known::Value(online) => Known::Value(online.contains(id)),
            Known::Unknown(gap) => Known::Unknown(gap.clone()),
        };
        or_if_absent(listed, || {
            let path = format!("{FOLDER}/cpu{id}/online");
            root.read(&path)
                .and_then(|text| understood(&path, &text, parse_online))
        })
    };
    numbered(&names, "cpu")
        .into_iter()
        .map(|id| (CpuId(id), is_online(CpuId(id))))
        .collect()
}

/// The CPUs that are not known to be offline.
pub(crate) fn usable(listed: &Listed) -> Vec<CpuId> {
    let usable = listed
        .iter()
        .filter(|(_, online)| online.get() != Some(false));
    usable.map(|(id, _)| *id).collect()
}

/// Reads every CPU that is listed.
pub(crate) fn read_cpus(
    root: &HostRoot,
    listed: Listed,
    frequency: &Known<Vec<FrequencyPolicy>>,
    nodes: &[Node],
) -> Vec<Cpu> {
    let usable = usable(&listed);
    let cores = parallel::each(&usable, |id| read_core(root, *id));
    let mut cores: BTreeMap<_, _> = usable.iter().copied().zip(cores).collect();
    let mut kinds = read_kinds(root, &usable, frequency);
    let mut reader = Reader {
        root,
        packages: KnownByCpu::default(),
        dies: KnownByCpu::default(),
        siblings: KnownByCpu::default(),
        caches: Caches::default(),
        governors: Governors::of(root, usable.first().copied(), frequency),
    };
    listed
        .into_iter()
        .map(|(id, online)| {
            let node = node_of(id, nodes);
            if online.get() == Some(false) {
                return offline(id, online, node);
            }
            let kind = kinds.remove(&id).unwrap_or_default();
            let core = cores.remove(&id).unwrap_or_default();
            Cpu {
                kind,
                core,
                ..reader.read(id, online, node)
            }
        })
        .collect()
}

/// Read for each CPU: on some processors, SMT siblings differ in their core number (AMD's modules of two cores).
fn read_core(root: &HostRoot, id: CpuId) -> Known<u32> {
    let path = format!("{FOLDER}/cpu{id}/topology/core_id");
    number_or_minus_one(root, &path, "the firmware does not report cores")
}

/// Known results, by CPU.
#[derive(Debug)]
struct KnownByCpu<T>(BTreeMap<CpuId, T>);

impl<T> Default for KnownByCpu<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone> KnownByCpu<T> {
    /// The result for `cpu`: known before, or read now and then applied to `others` too. A gap applies only to its
    /// own CPU, because it names its file.
    fn of(
        &mut self,
        cpu: CpuId,
        read: impl FnOnce() -> Known<T>,
        others: impl FnOnce(&T) -> Option<CpuSet>,
    ) -> Known<T> {
        if let Some(told) = self.0.get(&cpu) {
            return Known::Value(told.clone());
        }
        let answer = read();
        if let Known::Value(value) = &answer
            && let Some(others) = others(value)
            && others.contains(cpu)
        {
            for other in others.iter() {
                self.0.entry(other).or_insert_with(|| value.clone());
            }
        }
        answer
    }
}

struct Reader<'a> {
    root: &'a HostRoot,
    packages: KnownByCpu<u32>,
    dies: KnownByCpu<u32>,
    siblings: KnownByCpu<CpuSet>,
    caches: Caches,
    governors: Governors,
}

impl Reader<'_> {
    fn read(&mut self, id: CpuId, online: Known<bool>, node: Known<NodeId>) -> Cpu {
        let root = self.root;
        let topology = format!("{FOLDER}/cpu{id}/topology");
        let id_of =
            |file: &str, why: &str| number_or_minus_one(root, &format!("{topology}/{file}"), why);
        let siblings = (self.siblings).of(
            id,
            || read_siblings(root, &topology),
            |set| Some(set.clone()),
        );
        let of_core = || siblings.value().cloned();
        let of = |lists: &[&str]| {
            let lists = lists.iter();
            let mut found = lists.map(|list| cpu_list(root, &format!("{topology}/{list}")));
            found.find_map(|list| list.value().cloned())
        };
        Cpu {
            id,
            online,
            node,
            package: self.packages.of(
                id,
                || {
                    id_of(
                        "physical_package_id",
                        "the firmware does not report packages",
                    )
                },
                |_| of(&["package_cpus_list", "core_siblings_list"]).or_else(of_core),
            ),
            die: self.dies.of(
                id,
                || id_of("die_id", "the firmware does not report dies"),
                |_| of(&["die_cpus_list"]).or_else(of_core),
            ),
            core: Known::default(),
            last_level_cache: self.caches.of(root, id),
            kind: Known::default(),
            governor: (self.governors.of_cpu(id)).unwrap_or_else(|| root.read(&governor_path(id))),
            siblings,
        }
    }
}

/// The governors by CPU.
enum Governors {
    /// From the cpufreq policies.
    Reported(BTreeMap<CpuId, Known<String>>),
    /// No cpufreq: the reason, which is the same for each CPU.
    None(Gap),
    /// Read for each CPU, if the policies cannot be listed.
    OfEach,
}

impl Governors {
    fn of(root: &HostRoot, first: Option<CpuId>, frequency: &Known<Vec<FrequencyPolicy>>) -> Self {
        if let Known::Value(policies) = frequency {
            let mut told = BTreeMap::new();
            for policy in policies {
                let cpus = policy.cpus.value().into_iter().flat_map(CpuSet::iter);
                told.extend(cpus.map(|cpu| (cpu, policy.governor.clone())));
            }
            return Self::Reported(told);
        }
        match first.map(|first| root.read(&governor_path(first))) {
            Some(Known::Unknown(gap)) if gap.cause == Cause::Absent => Self::None(gap),
            _ => Self::OfEach,
        }
    }

    fn of_cpu(&self, cpu: CpuId) -> Option<Known<String>> {
        match self {
            Self::Reported(told) => told.get(&cpu).cloned(),
            Self::None(gap) => Some(Known::unknown(
                gap.cause,
                format!("/{}", governor_path(cpu)),
                gap.reason.clone(),
            )),
            Self::OfEach => None,
        }
    }
}

fn governor_path(cpu: CpuId) -> String {
    format!("{FOLDER}/cpu{cpu}/cpufreq/scaling_governor")
}

/// The kernel removes topology and cpufreq of an offline CPU.
fn offline(id: CpuId, online: Known<bool>, node: Known<NodeId>) -> Cpu {
    fn gone<T>(path: String) -> Known<T> {
        Known::unknown(Cause::Absent, path, "the CPU is offline")
    }
    let folder = format!("/{FOLDER}/cpu{id}");
    let topology = format!("{folder}/topology");
    Cpu {
        id,
        online,
        node,
        package: gone(format!("{topology}/physical_package_id")),
        die: gone(format!("{topology}/die_id")),
        core: gone(format!("{topology}/core_id")),
        siblings: gone(format!("{topology}/core_cpus_list")),
        last_level_cache: gone(format!("{folder}/cache")),
        kind: gone(folder.clone()),
        governor: gone(format!("{folder}/cpufreq/scaling_governor")),
    }
}

/// `core_cpus_list` exists since 5.3, `thread_siblings_list` since 2.6.30, masks are older.
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
