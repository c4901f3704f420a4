//! Where the threads and the memory of a trial are put.

use serde::{Deserialize, Serialize};

use crate::ids::{CpuId, CpuSet, NodeId};

/// Where the threads and the buffers of both roles are. Thread *i* of a role runs on the *i*-th CPU of
/// its set, modulo its size; an empty set leaves the choice to the scheduler (within what the process
/// inherited). In an exchange of requests the sender is the end that asks.
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
    /// Each thread runs on the CPU that the kernel receives its connection's packets on
    /// (`SO_INCOMING_CPU`), and connections are chosen so that no two share such a CPU as far as that is
    /// possible. Goes before the CPU sets.
    #[serde(default)]
    pub by_receive_cpu: bool,
}

impl Placement {
    /// The CPU of thread `index` among `cpus`.
    pub fn cpu_of(cpus: &CpuSet, index: usize) -> Option<CpuId> {
        cpus.iter().nth(index.checked_rem(cpus.len())?)
    }
}

/// On which NUMA nodes the pages of a buffer are, as set_mempolicy(2) and numactl(8) have it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// The kernel's default: the node of the CPU that touches a page first, which is the thread's own.
    #[default]
    Default,
    /// `MPOL_LOCAL`: the node of the thread's CPU, whatever policy the process inherited.
    Local,
    /// `MPOL_BIND`: these nodes only.
    Bind(Vec<NodeId>),
    /// `MPOL_INTERLEAVE`: page by page over these nodes.
    Interleave(Vec<NodeId>),
    /// `MPOL_PREFERRED`: this node while it has room.
    Preferred(NodeId),
}
