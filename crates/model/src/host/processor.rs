//! CPUs, their power management and isolation, NUMA nodes and memory policy
//! (Documentation/ABI/testing/sysfs-devices-system-cpu, sysfs-devices-node; Documentation/admin-guide/pm).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{CpuId, CpuSet, NodeId};
use crate::known::Known;
use crate::units::Bytes;

/// A logical CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// Whether it is online.
    pub online: Known<bool>,
    /// Its NUMA node.
    pub node: Known<NodeId>,
    /// Its physical package (socket).
    pub package: Known<u32>,
    /// Its die within the package.
    #[serde(default)]
    pub die: Known<u32>,
    /// Its core within the package.
    pub core: Known<u32>,
    /// The CPUs of the same core, itself included.
    pub siblings: Known<CpuSet>,
    /// The CPUs that share its last-level cache, itself included.
    #[serde(default)]
    pub last_level_cache: Known<CpuSet>,
    /// Its kind on a hybrid processor.
    #[serde(default)]
    pub kind: Known<CpuKind>,
    /// The cpufreq governor.
    pub governor: Known<String>,
}

/// The core types of a hybrid processor (`/sys/devices/cpu_core`, `cpu_atom`; `cpu_capacity` on Arm).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CpuKind {
    /// All cores of this machine are of one type.
    Uniform,
    /// A performance core.
    Performance,
    /// An efficiency core.
    Efficiency,
}

/// Frequency and idle state management.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Power {
    /// cpufreq policies: groups of CPUs that change frequency together.
    pub frequency: Known<Vec<FrequencyPolicy>>,
    /// Whether turbo (boost) is allowed.
    pub turbo: Known<bool>,
    /// `active`, `passive`, `guided` or `off` of `intel_pstate` or `amd_pstate`.
    pub pstate_mode: Known<String>,
    /// `max_perf_pct` of `intel_pstate`: the share of the highest performance level that CPUs may use, per cent.
    #[serde(default)]
    pub pstate_max_percent: Known<u32>,
    /// Whether simultaneous multithreading is in use: `on`, `off`, `forceoff`, `notsupported` ...
    pub smt: Known<String>,
    /// The cpuidle driver; `none` without one.
    pub idle_driver: Known<String>,
    /// The idle states, the shallowest first.
    pub idle_states: Known<Vec<IdleState>>,
    /// The wake-up latency limit requested through `/dev/cpu_dma_latency`, in microseconds; 2000000000 is none.
    pub latency_limit_us: Known<u32>,
}

/// CPUs that change frequency together (`/sys/devices/system/cpu/cpufreq/policyN`; `cpuN/cpufreq` on older kernels).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrequencyPolicy {
    /// Its number: that of its first CPU when it was created; null on kernels that have it only below its CPUs.
    #[serde(default)]
    pub number: Known<u32>,
    /// Its CPUs.
    pub cpus: Known<CpuSet>,
    /// `intel_pstate`, `acpi-cpufreq` ...
    pub driver: Known<String>,
    /// `performance`, `powersave`, `schedutil` ...
    pub governor: Known<String>,
    /// The energy-performance preference: `performance`, `balance_performance` ...
    pub energy_preference: Known<String>,
    /// The minimum frequency, kHz (`scaling_min_freq`).
    pub min_khz: Known<u64>,
    /// The maximum frequency, kHz (`scaling_max_freq`).
    pub max_khz: Known<u64>,
    /// The hardware's maximum frequency, kHz (`cpuinfo_max_freq`).
    pub hardware_max_khz: Known<u64>,
    /// The base frequency, without turbo, kHz.
    pub base_khz: Known<u64>,
    /// The highest frequency that the driver can be set to, kHz (the first of `scaling_available_frequencies`); boost is
    /// above it.
    #[serde(default)]
    pub available_max_khz: Known<u64>,
    /// The highest performance level of its first CPU, with boost (`acpi_cppc/highest_perf`, no unit).
    #[serde(default)]
    pub highest_perf: Known<u64>,
    /// The performance level of its first CPU that is sustained without boost (`acpi_cppc/nominal_perf`, same scale).
    #[serde(default)]
    pub nominal_perf: Known<u64>,
}

/// One idle state (`cpuidle/stateN`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleState {
    /// `POLL`, `C1`, `C6` ...
    pub name: String,
    /// Exit latency, microseconds.
    pub exit_latency_us: Known<u32>,
    /// The CPUs on which it is disabled.
    pub disabled_on: Known<CpuSet>,
}

/// Isolated CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Isolation {
    /// Excluded from scheduler load balancing (`isolcpus=`).
    pub isolated: Known<CpuSet>,
    /// Without a scheduling tick while one task runs (`nohz_full=`).
    pub nohz_full: Known<CpuSet>,
    /// Present but offline.
    pub offline: Known<CpuSet>,
    /// The default affinity of new interrupts (`/proc/irq/default_smp_affinity`).
    pub default_irq_cpus: Known<CpuSet>,
    /// The CPUs of unbound workqueues (`/sys/devices/virtual/workqueue/cpumask`).
    pub workqueue_cpus: Known<CpuSet>,
}

/// Clocks, mitigations and memory policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Kernel {
    /// The current clocksource: `tsc`, `kvm-clock`, `hpet` ...
    pub clocksource: Known<String>,
    /// The available clocksources.
    pub clocksources: Known<Vec<String>>,
    /// Each vulnerability with the kernel's mitigation.
    pub mitigations: Known<BTreeMap<String, String>>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub transparent_hugepages: Known<String>,
    /// THP defrag: `always`, `defer`, `madvise` ...
    pub transparent_hugepages_defrag: Known<String>,
    /// The hypervisor's name when this is a guest (`hypervisor` flag and DMI); `none` on bare metal.
    pub hypervisor: Known<String>,
    /// Steal time: CPU time since boot that the hypervisor gave to others, parts per million; 1 also for less than one,
    /// and 0 only if the kernel counts none (on bare metal, or if the hypervisor does not report it).
    pub steal_ppm: Known<u32>,
    /// Memory that a process may lock, `Max locked memory` of `/proc/self/limits` (soft); absent for no limit.
    pub locked_memory: Known<Limit>,
    /// The ASPM policy: `default`, `performance`, `powersave` ...
    pub aspm_policy: Known<String>,
    /// Pages of TCP socket buffers in this namespace (`mem` of `/proc/net/sockstat`), limited by `tcp_mem`.
    pub tcp_memory_pages: Known<u64>,
    /// Pages of UDP socket buffers, limited by `udp_mem`.
    pub udp_memory_pages: Known<u64>,
}

/// A resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// No limit.
    Unlimited,
    /// This many bytes.
    Bytes(Bytes),
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its CPUs (none for a memory-only node).
    pub cpus: Known<CpuSet>,
    /// Its memory (0 for a node with CPUs only).
    pub memory_bytes: Known<Bytes>,
    /// Its distance to every online node, in the order of node numbers (10 is itself).
    pub distances: Known<Vec<u32>>,
    /// Free memory.
    #[serde(default)]
    pub memory_free_bytes: Known<Bytes>,
    /// Huge pages reserved on this node, by size.
    #[serde(default)]
    pub hugepages: Known<Vec<HugePages>>,
}

/// Huge pages of one size on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HugePages {
    /// The size of one page.
    pub page_bytes: Bytes,
    /// How many are reserved.
    pub total: Known<u64>,
    /// How many of them are free.
    pub free: Known<u64>,
}
