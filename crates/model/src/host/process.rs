//! What the kernel allows the process that reads the host, and with it every measurement that it makes: the CPUs
//! (proc_pid_status(5)) and the CPU time (Documentation/admin-guide/cgroup-v2.rst, "CPU";
//! Documentation/scheduler/sched-bwc.rst).

use serde::{Deserialize, Serialize};

use crate::ids::CpuSet;
use crate::known::Known;

/// The limits of linerate's own process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Process {
    /// The CPUs on which it may run (`Cpus_allowed_list`): its affinity, within its cpuset.
    pub cpus_allowed: Known<CpuSet>,
    /// The CPU quotas of its control group and of those above it; empty if there is none.
    pub cpu_quotas: Known<Vec<CpuQuota>>,
}

/// A limit of the CPU time of a control group (`cpu.max`, or `cpu.cfs_quota_us` and `cpu.cfs_period_us`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuQuota {
    /// How many levels the group is above that of the process; 0 is its own.
    pub above: u32,
    /// The CPU time that its processes get in a period, summed over CPUs.
    pub quota_us: u64,
    /// The period.
    pub period_us: u64,
    /// The periods in which its processes ran, since the group was created.
    pub nr_periods: Known<u64>,
    /// Those in which they were stopped because the quota was used up.
    pub nr_throttled: Known<u64>,
    /// The file with the quota.
    pub path: String,
}
