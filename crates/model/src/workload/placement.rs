//! The placement of a trial's threads and memory.

use serde::{Deserialize, Serialize};

use crate::ids::{CpuId, CpuSet};
use crate::memory_policy::MemoryPolicy;

/// The placement of both roles' threads and buffers. Thread *i* of a role runs on the *i*-th CPU of its set, modulo
/// its size; an empty set leaves the choice to the scheduler (within the inherited affinity). For request workloads
/// the sender is the requesting end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// CPUs of the sending threads.
    pub sender_cpus: CpuSet,
    /// CPUs of the receiving threads.
    pub receiver_cpus: CpuSet,
    /// Memory of the sending threads' buffers.
    #[serde(default)]
    pub sender_memory: MemoryPolicy,
    /// Memory of the receiving threads' buffers.
    #[serde(default)]
    pub receiver_memory: MemoryPolicy,
    /// Each thread runs on the CPU that receives its connection's packets (`SO_INCOMING_CPU`), and connections are
    /// chosen so that they use different CPUs as far as possible. Takes precedence over the CPU sets.
    #[serde(default)]
    pub by_receive_cpu: bool,
}

impl Placement {
    /// The CPU of thread `index` among `cpus`.
    pub fn cpu_of(cpus: &CpuSet, index: usize) -> Option<CpuId> {
        cpus.iter().nth(index.checked_rem(cpus.len())?)
    }
}
