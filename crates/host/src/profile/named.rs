//! The symbols of samples, and which samples belong to the trial: those of this process, and on its CPUs those of
//! softirqs, which run on an idle CPU or in a kernel thread. A softirq that interrupted another process is counted as that
//! process's: a sample does not show its context.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Gap, Known};
use linerate_model::sample::Hot;

use super::Place;
use super::symbols::{Programs, Symbols, demangled, read_kernel};
use crate::root::HostRoot;

/// The number of hottest symbols reported.
const HOTTEST: usize = 50;
/// The names of kernel threads that run softirqs: `ksoftirqd/N`, and of threaded NAPI `napi/NIC-N`.
const SOFTIRQ_THREADS: [&str; 2] = ["ksoftirqd/", "napi/"];

/// The symbols of an idle CPU. An interrupt on an idle CPU is work, and counted.
const IDLE: [&str; 17] = [
    "acpi_idle_do_entry",
    "acpi_safe_halt",
    "arch_cpu_idle",
    "cpu_do_idle",
    "cpu_idle_poll",
    "cpu_startup_entry",
    "cpuidle_enter",
    "cpuidle_enter_state",
    "cpuidle_idle_call",
    "default_idle",
    "default_idle_call",
    "do_idle",
    "intel_idle",
    "mwait_idle",
    "native_safe_halt",
    "poll_idle",
    "pv_native_safe_halt",
];

/// What belongs to the trial.
#[derive(Debug)]
pub(super) struct Scope {
    process: u32,
    /// Threads that run softirqs.
    softirqs: BTreeSet<u32>,
    cpus: CpuSet,
}

impl Scope {
    /// Of this process, whose CPUs are those that it was sampled on, and those that received packets.
    pub(super) fn of(
        root: &HostRoot,
        process: u32,
        at: &HashMap<Place, u64>,
        receiving: &CpuSet,
    ) -> Self {
        let own = at.keys().filter(|(_, of, ..)| *of == process);
        let own = own.map(|(.., cpu)| *cpu);
        let others: BTreeSet<u32> = (at.keys())
            .filter(|(kernel, of, ..)| *kernel && *of != 0 && *of != process)
            .map(|(_, of, ..)| *of)
            .collect();
        let runs_softirqs = |thread: &u32| {
            let name = root.read(&format!("proc/{thread}/comm"));
            name.value()
                .is_some_and(|name| SOFTIRQ_THREADS.iter().any(|one| name.starts_with(one)))
        };
        Self {
            process,
            softirqs: others.into_iter().filter(runs_softirqs).collect(),
            cpus: own.chain(receiving.iter()).collect(),
        }
    }

    fn has(&self, &(kernel, process, _, cpu): &Place) -> bool {
        let softirq = process == 0 || self.softirqs.contains(&process);
        process == self.process || kernel && softirq && self.has_cpu(cpu)
    }

    fn has_cpu(&self, cpu: CpuId) -> bool {
        self.cpus.contains(cpu)
    }
}

/// Samples with their symbols.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// The number of samples without idle ones.
    pub(super) samples: u64,
    /// The number of samples that do not belong to the trial.
    pub(super) elsewhere: u64,
    /// The hottest symbols.
    pub(super) symbols: Vec<Hot>,
}

/// Resolves the symbols of the samples within `scope`; of all without one.
pub(super) fn name_all(
    root: &HostRoot,
    at: &HashMap<Place, u64>,
    scope: Option<&Scope>,
    gaps: &mut Vec<Gap>,
) -> Named {
    let kernel = if at.keys().any(|(kernel, ..)| *kernel) {
        read_kernel(root)
    } else {
        Known::Value(Symbols::default())
    };
    if let Known::Unknown(gap) = &kernel {
        gaps.push(Gap {
            reason: format!(
                "{}; what CPUs did whose own task was idle is left out for it",
                gap.reason
            ),
            ..gap.clone()
        });
    }
    let mut programs = Programs::default();
    let mut elsewhere = 0;
    let mut named: BTreeMap<(bool, String, String), u64> = BTreeMap::new();
    for (place, &count) in at {
        let &(in_kernel, process, address, _) = place;
        let in_scope = scope.is_none_or(|scope| scope.has(place));
        if in_kernel {
            let Some((symbol, place)) = name_in_kernel(&kernel, process == 0, address) else {
                continue;
            };
            if in_scope {
                *named.entry((true, symbol, place)).or_insert(0) += count;
            }
        } else if in_scope {
            let (symbol, file) = programs.name(root, process, address);
            let symbol = symbol.unwrap_or_else(|| format!("{address:#x}"));
            *named.entry((false, symbol, file)).or_insert(0) += count;
        }
        if !in_scope {
            elsewhere += count;
        }
    }
    let samples = named.values().sum();
    let mut symbols: Vec<Hot> = named
        .into_iter()
        .map(|((kernel, symbol, place), samples)| Hot {
            symbol,
            place,
            kernel,
            samples,
        })
        .collect();
    symbols.sort_by(|a, b| {
        b.samples
            .cmp(&a.samples)
            .then_with(|| a.symbol.cmp(&b.symbol))
    });
    symbols.truncate(HOTTEST);
    Named {
        samples,
        elsewhere,
        symbols,
    }
}

/// The symbol and module of a kernel address; nothing for an idle one.
fn name_in_kernel(
    kernel: &Known<Symbols>,
    idle_task: bool,
    address: u64,
) -> Option<(String, String)> {
    let unnamed = || (format!("{address:#x}"), "kernel".to_owned());
    let Known::Value(symbols) = kernel else {
        return (!idle_task).then(unnamed);
    };
    let Some(name) = symbols.name_at(address) else {
        return Some(unnamed());
    };
    let (name, module) = name.split_once('\t').unwrap_or((name, "kernel"));
    // Compiler-generated parts of a function have its name and a suffix.
    let own = name.split('.').next().unwrap_or(name);
    (!IDLE.contains(&own)).then(|| (demangled(name), module.to_owned()))
}
