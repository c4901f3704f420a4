//! Machine data beside the trial: CPU times over time, CPU frequencies, and the scope of a profile.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::CpuTimes;
use crate::ids::CpuId;
use crate::units::Nanoseconds;

/// The CPU times from the previous interval to `at_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStep {
    /// The end of the interval, since this end's start.
    pub at_ns: Nanoseconds,
    /// Every CPU that was not idle all the time, ascending, with the kernel's resolution of one tick.
    pub cpus: Vec<CpuTimes>,
}

/// The frequencies of one CPU during the trial (`cpufreq/scaling_cur_freq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFrequency {
    /// The CPU.
    pub cpu: CpuId,
    /// The lowest reading, kHz.
    pub lowest_khz: u64,
    /// The highest reading, kHz.
    pub highest_khz: u64,
    /// The number of readings.
    pub readings: u32,
}

/// The scope of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileScope {
    /// All CPUs, kernel and user space.
    #[default]
    Machine,
    /// This process, and the softirqs on the CPUs that it ran on or that received packets.
    Trial,
    /// This process, and the kernel in its threads.
    Process,
    /// User space code of this process.
    ProcessUser,
}

impl fmt::Display for ProfileScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "every CPU",
            Self::Trial => "this process, and the softirqs on its CPUs",
            Self::Process => "this process only, user and kernel",
            Self::ProcessUser => "this process only, user",
        })
    }
}
