//! Where the pages of a buffer lie.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// The NUMA policy for the pages of a buffer, as in set_mempolicy(2) and numactl(8).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// The kernel's default: the node of the CPU that touches a page first, that is, the thread's own.
    #[default]
    Default,
    /// `MPOL_LOCAL`: the node of the thread's CPU, whatever policy the process inherited.
    Local,
    /// `MPOL_BIND`: these nodes only.
    Bind(Vec<NodeId>),
    /// `MPOL_INTERLEAVE`: round-robin over these nodes, page by page.
    Interleave(Vec<NodeId>),
    /// `MPOL_PREFERRED`: this node while it has free memory.
    Preferred(NodeId),
}
