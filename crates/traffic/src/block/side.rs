//! A trial as an end of a path records it, so that experiments and proofs analyze a block device by the same code as a
//! network: the device is what the data comes from, and the jobs are the threads that receive it.

use std::os::fd::BorrowedFd;

use linerate_model::block::{Area, BlockSample, JobRecord};
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{FlowRecord, Operations, Role, SideSample, Step, ThreadRecord};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::TrialSpec;

use super::measure;
use crate::trial::cpu_of_threads;
use crate::{Abort, TrafficError};

/// Runs a trial of `block` on an open device with this logical block size.
pub fn read(
    spec: &TrialSpec,
    device: BorrowedFd<'_>,
    (area, logical): (Area, Bytes),
    abort: &Abort,
) -> Result<SideSample, TrafficError> {
    spec.check()?;
    let block = spec.block_spec(area).ok_or(TrafficError::NotBuilt)?;
    let sample = measure(device, &block, logical, abort, &mut |_| ())?;
    Ok(recorded(&sample, block.block))
}

/// A trial as the end of a path that receives.
pub fn recorded(sample: &BlockSample, block: Bytes) -> SideSample {
    let completed = sample.operations();
    let steps = steps(sample, completed);
    let threads: Vec<ThreadRecord> = (0u32..).zip(&sample.jobs).map(thread).collect();
    let cpu = cpu_of_threads(&threads);
    let flow = FlowRecord {
        flow: 0,
        role: Role::Receiver,
        thread: 0,
        at_ns: steps.iter().map(|step| step.at_ns).collect(),
        bytes: (steps.iter())
            .map(|step| Bytes::new(step.completed.saturating_mul(block.as_u64())))
            .collect(),
        pinned_to: None,
        last_cpu: not_asked("the jobs have one each"),
        incoming_cpu: not_asked("a block device has no socket"),
        incoming_napi: not_asked("a block device has no socket"),
        user_ns: cpu.threads_user_ns,
        system_ns: cpu.threads_system_ns,
        tcp: not_asked("a block device has no socket"),
        copies: None,
        datagrams: None,
        drained: None,
        verbs: None,
        grid: None,
    };
    SideSample {
        flows: vec![flow],
        elapsed_ns: sample.elapsed_ns,
        operations: Some(Operations {
            completed,
            latency: sample.latency(),
            steps,
            per_thread: sample.jobs.iter().map(|job| job.operations).collect(),
            ..Operations::default()
        }),
        threads,
        cpu,
        counters: Known::default(),
        profile: Known::default(),
        interface: None,
        events: None,
        commands: Vec::new(),
    }
}

/// The readings, and the end.
fn steps(sample: &BlockSample, completed: u64) -> Vec<Step> {
    let end = (sample.elapsed_ns, completed);
    let readings = sample.readings.iter().copied();
    let earlier = readings.filter(|(at, _)| *at < sample.elapsed_ns);
    earlier
        .chain([end])
        .map(|(at_ns, completed)| Step { at_ns, completed })
        .collect()
}

fn thread((thread, job): (u32, &JobRecord)) -> ThreadRecord {
    let only = (job.cpus.first()).filter(|_| job.cpus.len() == 1);
    ThreadRecord {
        thread,
        polls_for: None,
        role: Role::Receiver,
        pinned_to: only,
        seen_on: job.by_cpu.iter().map(|(cpu, _)| *cpu).collect(),
        moves_seen: 0,
        memory_node: job.buffer_node.clone(),
        user_ns: job.user_ns,
        system_ns: job.system_ns,
        voluntary_switches: job.switches[0],
        involuntary_switches: job.switches[1],
        waited_for_cpu_ns: waited(job.waited_ns),
        minor_faults: job.faults[0],
        major_faults: job.faults[1],
    }
}

fn waited(time: Option<Nanoseconds>) -> Known<Nanoseconds> {
    let unknown = || {
        let why = "the kernel keeps no such account";
        Known::unknown(Cause::Absent, "/proc/thread-self/schedstat", why)
    };
    time.map_or_else(unknown, Known::Value)
}

fn not_asked<T>(why: &str) -> Known<T> {
    Known::unknown(Cause::Inapplicable, "a block device", why)
}
