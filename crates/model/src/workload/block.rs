//! Reads of a block device of this host: the only workload without a second end.

use serde::{Deserialize, Serialize};

use super::{Direction, Placement, TrialSpec, Workload};
use crate::block::{Access, Area, BlockSpec, Pattern};
use crate::ids::CpuSet;
use crate::units::{Bytes, Nanoseconds};

/// The options of `block`. Experiments and proofs only read: `--write` belongs to `measure block`.
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
    /// Whether the blocks were written; only in a stored measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// The seed of the random offsets.
    pub seed: u64,
    /// The CPUs of each job's thread; an empty set is any.
    pub jobs: Vec<CpuSet>,
}

/// The readings of a trial, as of other workloads.
const READINGS: u64 = 20;

impl TrialSpec {
    /// The trial on a device as other workloads describe theirs: the data comes from the device, and the jobs receive it.
    pub fn of_block(device: &str, spec: &BlockSpec) -> Self {
        let interval = spec.duration_ns.as_u64() / READINGS;
        Self {
            flows: u32::try_from(spec.jobs.len()).unwrap_or(u32::MAX),
            direction: Direction::Reverse,
            duration_ns: spec.duration_ns,
            interval_ns: Nanoseconds::new(interval.clamp(1_000_000, 100_000_000)),
            placement: Placement {
                receiver_cpus: spec.jobs.iter().flat_map(CpuSet::iter).collect(),
                receiver_memory: spec.memory.clone(),
                ..Placement::default()
            },
            workload: Workload::Block(Block {
                device: device.to_owned(),
                pattern: spec.pattern,
                block_bytes: spec.block,
                depth: spec.depth,
                polled: spec.polled,
                written: spec.access == Access::Write,
                seed: spec.seed,
                jobs: spec.jobs.clone(),
            }),
            ..Self::default()
        }
    }

    /// What a trial of `block` reads in an area of its device; none of another workload, and of a write: what is stored
    /// is never a reason to write.
    pub fn block_spec(&self, area: Area) -> Option<BlockSpec> {
        let Workload::Block(block) = &self.workload else {
            return None;
        };
        if block.written {
            return None;
        }
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
