//! What the machine did beside the trial: its CPUs over time, their frequency, and how far a profile saw.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::CpuTimes;
use crate::ids::CpuId;
use crate::units::Nanoseconds;

/// What the CPUs did from the step before until `at_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStep {
    /// The end of the step, since this end's start.
    pub at_ns: Nanoseconds,
    /// Every CPU that was not idle all the time, ascending, in the kernel's resolution of one tick.
    pub cpus: Vec<CpuTimes>,
}

/// The frequencies that one CPU was seen at while the trial ran (`cpufreq/scaling_cur_freq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFrequency {
    /// The CPU.
    pub cpu: CpuId,
    /// The lowest reading, kHz.
    pub lowest_khz: u64,
    /// The highest reading, kHz.
    pub highest_khz: u64,
    /// How many readings there were.
    pub readings: u32,
}

/// What a profile could see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileScope {
    /// Every CPU, kernel and programs.
    #[default]
    Machine,
    /// This process, and the kernel working for it in its own threads.
    Process,
    /// This process's own code.
    ProcessUser,
}

impl fmt::Display for ProfileScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "every CPU",
            Self::Process => "this process only, user and kernel",
            Self::ProcessUser => "this process only, user",
        })
    }
}
