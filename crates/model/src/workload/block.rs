//! Reads of a block device of this host: the only workload without a second end.

use serde::{Deserialize, Serialize};

use super::{TrialSpec, Workload};
use crate::block::{Access, Area, BlockSpec, Pattern};
use crate::ids::CpuSet;
use crate::units::Bytes;

/// The options of `block` in an experiment or a proof. They only read: `--write` belongs to `measure block`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The device, `/dev/nvme0n1`.
    pub device: String,
    /// Where each block is.
    pub pattern: Pattern,
    /// The size of each operation.
    pub block_bytes: Bytes,
    /// Operations in flight per job.
    pub depth: u32,
    /// Whether completions are polled for (`IORING_SETUP_IOPOLL`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub polled: bool,
    /// The seed of the random offsets.
    pub seed: u64,
    /// The CPUs of each job's thread; an empty set is any.
    pub jobs: Vec<CpuSet>,
}

impl TrialSpec {
    /// What a trial of `block` does in an area of its device; none of another workload.
    pub fn block_spec(&self, area: Area) -> Option<BlockSpec> {
        let Workload::Block(block) = &self.workload else {
            return None;
        };
        Some(BlockSpec {
            access: Access::Read,
            pattern: block.pattern,
            block: block.block_bytes,
            depth: block.depth,
            polled: block.polled,
            seed: block.seed,
            duration_ns: self.duration_ns,
            area,
            jobs: block.jobs.clone(),
            memory: self.placement.receiver_memory.clone(),
        })
    }
}
