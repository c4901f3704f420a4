//! One job: a thread with a ring of its own that keeps `depth` operations in flight.
//!
//! Between start and stop it does nothing but a system call that submits a batch and waits for a completion, one reading
//! of the clock, and the histogram. The latency of an operation counts from the reading before its batch was submitted to
//! the reading after its completion was returned, so depth = rate x mean latency holds exactly (Little's law).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use linerate_model::block::{Access, BlockSpec, JobRecord};
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::latency::Histogram;
use linerate_model::units::{Bytes, Nanoseconds};
use rustix::io::Errno;

use super::offsets::Offsets;
use crate::buffer::Buffer;
use crate::sys::{BlockRing, NotThere, allowed_cpus, pin_thread, thread_use};
use crate::{Abort, TrafficError};

/// A job that is ready to start.
#[derive(Debug)]
pub(super) struct Job<'a> {
    spec: &'a BlockSpec,
    cpus: CpuSet,
    ring: BlockRing,
    offsets: Offsets,
    /// When the operation of each slot was submitted, since the start, and its offset.
    slots: Vec<(u64, u64)>,
    /// Slots without an operation.
    free: Vec<u32>,
    latency: Histogram,
    /// Operations by the number of the CPU that submitted them.
    by_cpu: Vec<u64>,
}

/// What the jobs of a trial share with the thread that watches them.
#[derive(Debug)]
pub(super) struct Shared {
    /// Whether to submit nothing more.
    pub(super) stop: AtomicBool,
    /// The operations of each job so far.
    pub(super) done: Vec<Counter>,
}

/// A counter in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counter(pub(super) AtomicU64);

impl<'a> Job<'a> {
    /// Pins the calling thread, and makes its ring and buffers.
    pub(super) fn prepare(
        device: BorrowedFd<'_>,
        spec: &'a BlockSpec,
        index: usize,
        abort: &Abort,
    ) -> Result<Self, TrafficError> {
        let cpus = spec.jobs.get(index).cloned().unwrap_or_default();
        if let Some(first) = cpus.first() {
            pin_thread(&cpus).map_err(|errno| match errno {
                Errno::INVAL => TrafficError::NoSuchCpu { cpu: first },
                _ => TrafficError::of_errno("pin a thread", errno),
            })?;
        }
        let size = Bytes::new(spec.block.as_u64() * u64::from(spec.depth));
        let memory = Buffer::new(size, &spec.memory)?.into_mapping();
        let block = u32::try_from(spec.block.as_u64()).unwrap_or(u32::MAX);
        let shape = (spec.depth, block);
        let mut ring =
            BlockRing::new(device, spec.access, shape, spec.polled, memory).map_err(no_ring)?;
        if !spec.polled {
            ring.watch(abort.as_fd()).map_err(no_ring)?;
        }
        let allowed = allowed_cpus().unwrap_or_default();
        let cpus_max = allowed
            .iter()
            .last()
            .map_or(0, |CpuId(last)| last as usize + 1);
        let depth = spec.depth as usize;
        Ok(Self {
            spec,
            cpus,
            ring,
            offsets: Offsets::of(spec, index),
            slots: vec![(0, 0); depth],
            free: (0..spec.depth).collect(),
            latency: Histogram::default(),
            by_cpu: vec![0; cpus_max],
        })
    }

    /// Keeps the operations in flight until the time is over or `shared` stops, then waits for those in flight.
    pub(super) fn run(
        mut self,
        shared: &Shared,
        count: &AtomicU64,
    ) -> Result<JobRecord, TrafficError> {
        let used = |errno| TrafficError::of_errno("read the CPU time of a thread", errno);
        let before = thread_use().map_err(used)?;
        let begun = Instant::now();
        let limit = self.spec.duration_ns.as_u64();
        let (mut now, mut operations, mut system_calls) = (0, 0, 0);
        let mut stopped = shared.stop.load(Ordering::Relaxed);
        while !stopped {
            self.submit(now)?;
            self.wait()?;
            system_calls += 1;
            now = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.reap(Some(now))?;
            operations += self.free.len() as u64;
            count.store(operations, Ordering::Relaxed);
            stopped = now >= limit || shared.stop.load(Ordering::Relaxed);
        }
        let used = thread_use().map_err(used)?.since(before);
        // The watch of the abort is not counted.
        while self.ring.in_flight() > 0 {
            self.wait()?;
            self.reap(None)?;
        }
        Ok(JobRecord {
            buffer_node: self.ring.node(),
            cpus: self.cpus,
            operations,
            elapsed_ns: Nanoseconds::new(now),
            user_ns: used.user,
            system_ns: used.system,
            waited_ns: used.waited_for_cpu,
            latency: self.latency,
            by_cpu: counted(&self.by_cpu),
            system_calls,
            switches: [used.voluntary_switches, used.involuntary_switches],
            faults: [used.minor_faults, used.major_faults],
        })
    }

    /// Queues an operation for each free slot.
    #[inline]
    fn submit(&mut self, now: u64) -> Result<(), TrafficError> {
        if let Some(of_cpu) = self.by_cpu.get_mut(rustix::thread::sched_getcpu()) {
            *of_cpu += self.free.len() as u64;
        }
        while let Some(slot) = self.free.pop() {
            let offset = self.offsets.next();
            if let Some(own) = self.slots.get_mut(slot as usize) {
                *own = (now, offset);
            }
            self.ring.queue(slot, offset).map_err(kernel)?;
        }
        Ok(())
    }

    #[inline]
    fn wait(&self) -> Result<(), TrafficError> {
        self.ring.submit_and_wait().map_err(kernel)
    }

    /// Frees the slots of completed operations; at a time `now`, with their latencies.
    #[inline]
    fn reap(&mut self, now: Option<u64>) -> Result<(), TrafficError> {
        let Self {
            ring,
            slots,
            free,
            latency,
            spec,
            ..
        } = self;
        let block = spec.block.as_u64();
        let mut failed = None;
        let aborted = ring.completed(|slot, result| {
            let (since, offset) = slots.get(slot as usize).copied().unwrap_or_default();
            if let Some(now) = now {
                latency.record(Nanoseconds::new(now.saturating_sub(since)));
            }
            free.push(slot);
            if result.map(u64::from) != Ok(block) {
                failed = Some((offset, result));
            }
        });
        match failed {
            Some((offset, result)) => Err(operation_failed(spec, offset, result)),
            None if aborted => Err(TrafficError::Aborted),
            None => Ok(()),
        }
    }
}

fn counted(by_cpu: &[u64]) -> Vec<(CpuId, u64)> {
    let numbered = (0..).map(CpuId).zip(by_cpu.iter().copied());
    numbered.filter(|(_, count)| *count > 0).collect()
}

fn kernel(error: NotThere) -> TrafficError {
    TrafficError::of_errno(error.doing, error.errno)
}

#[cold]
fn operation_failed(spec: &BlockSpec, offset: u64, result: Result<u32, Errno>) -> TrafficError {
    let why = match result {
        Ok(bytes) => format!("only {} were transferred", Bytes::new(bytes.into())),
        Err(Errno::OPNOTSUPP) if spec.polled => {
            "it does not support polled I/O; leave out `--poll`".to_owned()
        }
        Err(errno) => errno.to_string(),
    };
    TrafficError::BlockOperation {
        doing: match spec.access {
            Access::Read => "read",
            Access::Write => "write",
        },
        block: spec.block,
        offset,
        why,
    }
}

/// Why there is no ring (io_uring_setup(2), io_uring_register(2)).
fn no_ring(error: NotThere) -> TrafficError {
    match (error.errno, error.doing) {
        (Errno::NOSYS, _) => TrafficError::not_supported(
            "measure a block device",
            "this kernel has no io_uring (CONFIG_IO_URING, Linux 5.6)",
        ),
        (Errno::PERM | Errno::ACCESS, doing) => TrafficError::NotPermitted {
            what: doing.to_owned(),
            why: "the sysctl kernel.io_uring_disabled or a seccomp filter forbids it".to_owned(),
        },
        (errno, doing) => TrafficError::of_io_uring(doing, errno),
    }
}
