//! A measurement of a block device: what is read or written, what each job recorded, and what limited the rate.
//!
//! The limits of a request are those of io_uring (io_uring_setup(2), io_uring_register(2)) and of `O_DIRECT` (open(2)).

pub mod limit;
pub mod signature;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{CpuId, CpuSet, NodeId};
use crate::known::Known;
use crate::latency::Histogram;
use crate::memory_policy::MemoryPolicy;
use crate::units::{Bytes, Nanoseconds};

/// The maximum number of entries of a submission queue (io_uring/io_uring.h, `IORING_MAX_ENTRIES`).
pub const DEPTH_MAX: u32 = 32_768;
/// The maximum size of a registered buffer (io_uring_register(2)); a job has one.
pub const JOB_BUFFER_MAX: Bytes = Bytes::mib(1_024);
/// More threads would only compete for CPUs.
pub const JOBS_MAX: usize = 1_024;

/// Where the next block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Anywhere in the area, each block equally likely.
    Random,
    /// After the previous one; each job has its own part of the area.
    Sequential,
}

/// What is done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read.
    Read,
    /// Written.
    Write,
}

impl Access {
    /// `reads` or `writes`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
        }
    }
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Its first byte.
    pub start: Bytes,
    /// Its size.
    pub length: Bytes,
}

/// One timed trial on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSpec {
    /// Read or write.
    pub access: Access,
    /// Where.
    pub pattern: Pattern,
    /// The size of each operation.
    pub block: Bytes,
    /// Operations in flight per job.
    pub depth: u32,
    /// Whether completions are polled for (`IORING_SETUP_IOPOLL`) instead of interrupting.
    pub polled: bool,
    /// The seed of the random offsets.
    pub seed: u64,
    /// How long operations are started.
    pub duration_ns: Nanoseconds,
    /// The area that is used.
    pub area: Area,
    /// The CPUs of each job's thread; an empty set is any.
    pub jobs: Vec<CpuSet>,
    /// Where the buffers are.
    pub memory: MemoryPolicy,
}

/// Why a trial cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockSpecError {
    /// No job, or too many.
    #[error("the number of jobs must be 1 to {JOBS_MAX}, not {0}")]
    Jobs(usize),
    /// No operation in flight, or more than a ring has.
    #[error("the depth must be 1 to {DEPTH_MAX} (the entries of an io_uring), not {0}")]
    Depth(u32),
    /// Not a multiple of the device's logical block size.
    #[error("the block size must be a multiple of {logical}, the logical block size, not {block}")]
    Block {
        /// What was requested.
        block: Bytes,
        /// What the device has.
        logical: Bytes,
    },
    /// Larger than a registered buffer.
    #[error("depth x block size must be at most {JOB_BUFFER_MAX} per job, not {0}")]
    Buffer(Bytes),
    /// Smaller than a block per job.
    #[error("the device has {area} to use, which is less than a block of {block} for each job")]
    Area {
        /// What it has.
        area: Bytes,
        /// The block size.
        block: Bytes,
    },
}

impl BlockSpec {
    /// The blocks of the area.
    pub fn blocks(&self) -> u64 {
        let blocks = self.area.length.as_u64();
        blocks.checked_div(self.block.as_u64()).unwrap_or(0)
    }

    /// The operations in flight of all jobs.
    pub fn in_flight(&self) -> u64 {
        u64::from(self.depth) * self.jobs.len() as u64
    }

    /// Checks it against the limits of io_uring, and the `logical` block size of the device.
    pub fn check(&self, logical: Bytes) -> Result<(), BlockSpecError> {
        if !(1..=JOBS_MAX).contains(&self.jobs.len()) {
            return Err(BlockSpecError::Jobs(self.jobs.len()));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return Err(BlockSpecError::Depth(self.depth));
        }
        let block = self.block;
        let is_multiple = block.as_u64().checked_rem(logical.as_u64()) == Some(0);
        if block.as_u64() == 0 || !is_multiple {
            return Err(BlockSpecError::Block { block, logical });
        }
        let buffer = block.as_u64().saturating_mul(u64::from(self.depth));
        if buffer > JOB_BUFFER_MAX.as_u64() {
            return Err(BlockSpecError::Buffer(Bytes::new(buffer)));
        }
        if self.blocks() < self.jobs.len() as u64 {
            let area = self.area.length;
            return Err(BlockSpecError::Area { area, block });
        }
        Ok(())
    }
}

/// What one job did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// The CPUs that it was pinned to; empty: none.
    pub cpus: CpuSet,
    /// Operations that completed within the time.
    pub operations: u64,
    /// From its first submission to its last completion within the time.
    pub elapsed_ns: Nanoseconds,
    /// CPU time of its thread.
    pub user_ns: Nanoseconds,
    /// CPU time of its thread in the kernel.
    pub system_ns: Nanoseconds,
    /// How long the thread was ready to run and had no CPU; none if the kernel does not report it.
    pub waited_ns: Option<Nanoseconds>,
    /// From the system call that submitted an operation to the one that returned its completion.
    pub latency: Histogram,
    /// Operations by the CPU that submitted them.
    pub by_cpu: Vec<(CpuId, u64)>,
    /// System calls that submitted and waited.
    pub system_calls: u64,
    /// Voluntary and involuntary context switches of the thread.
    pub switches: [u64; 2],
    /// Its minor and major page faults.
    pub faults: [u64; 2],
    /// The node of its buffers.
    pub buffer_node: Known<NodeId>,
}

/// What one trial recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSample {
    /// Each job.
    pub jobs: Vec<JobRecord>,
    /// From the common start to the end of the time.
    pub elapsed_ns: Nanoseconds,
    /// The operations of all jobs at points in time since the start.
    pub readings: Vec<(Nanoseconds, u64)>,
    /// Whether it ended before its time.
    pub cut_short: bool,
}

impl BlockSample {
    /// The operations of all jobs.
    pub fn operations(&self) -> u64 {
        self.jobs.iter().map(|job| job.operations).sum()
    }

    /// Operations per second: the sum over the jobs, each over its own time.
    pub fn ops_per_s(&self) -> Option<f64> {
        let rate = |job: &JobRecord| {
            let seconds = job.elapsed_ns.as_secs_f64();
            (seconds > 0.0).then(|| real(job.operations) / seconds)
        };
        let rates: Vec<f64> = self.jobs.iter().filter_map(rate).collect();
        (!rates.is_empty()).then(|| rates.iter().sum())
    }

    /// The latencies of all jobs.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.jobs.iter().for_each(|job| all.add(&job.latency));
        all
    }

    /// The share of the time that each job's thread used a CPU.
    pub fn cpu_shares(&self) -> Vec<f64> {
        let share = |job: &JobRecord| {
            let used = job.user_ns.as_secs_f64() + job.system_ns.as_secs_f64();
            used / job.elapsed_ns.as_secs_f64().max(f64::MIN_POSITIVE)
        };
        self.jobs.iter().map(share).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
pub(crate) fn real(value: u64) -> f64 {
    value as f64
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> BlockSpec {
        BlockSpec {
            access: Access::Read,
            pattern: Pattern::Random,
            block: Bytes::kib(4),
            depth: 32,
            polled: false,
            seed: 1,
            duration_ns: Nanoseconds::from_millis(10),
            area: Area {
                start: Bytes::new(0),
                length: Bytes::mib(1),
            },
            jobs: vec![CpuSet::empty(); 2],
            memory: MemoryPolicy::Default,
        }
    }

    #[test]
    fn a_request_outside_the_limits_of_io_uring_or_of_the_device_is_refused() {
        let logical = Bytes::new(512);
        assert_eq!(spec().check(logical), Ok(()));
        let refused = |change: fn(&mut BlockSpec)| {
            let mut spec = spec();
            change(&mut spec);
            spec.check(logical).expect_err("outside").to_string()
        };
        assert!(refused(|spec| spec.jobs.clear()).contains("jobs"));
        assert!(refused(|spec| spec.depth = 0).contains("depth"));
        assert!(refused(|spec| spec.depth = 40_000).contains("32768"));
        assert!(refused(|spec| spec.block = Bytes::new(0)).contains("multiple of 512 B"));
        assert!(refused(|spec| spec.block = Bytes::new(513)).contains("multiple of 512 B"));
        assert!(refused(|spec| spec.block = Bytes::mib(64)).contains("1 GiB"));
        assert!(refused(|spec| spec.area.length = Bytes::kib(4)).contains("each job"));
        assert!(spec().check(Bytes::new(0)).is_err());
    }
}
