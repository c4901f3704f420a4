//! From what every thread found, and what the control thread read, to the record of this end.

use std::time::Duration;

use linerate_model::ids::CpuId;
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{CpuRecord, FlowRecord, Operations, SideSample, ThreadRecord};
use linerate_model::units::{Bytes, Nanoseconds};
use rustix::time::{ClockId, clock_gettime};

use super::control::{Readings, Watched};
use super::polling::Poller;
use super::{FlowEnd, Plan, ThreadResult};
use crate::sys::ThreadUse;
use crate::tcp::Flow;

/// The record of this end.
pub(super) fn record(
    flows: &[Flow],
    plans: &[Plan],
    mut watched: Watched,
    left: Vec<Option<ThreadResult>>,
) -> SideSample {
    let (mut threads, mut pollers) = (Vec::new(), Vec::new());
    let mut records: Vec<FlowRecord> = Vec::new();
    let mut operations: Option<Operations> = None;
    let mut asking: Vec<usize> = Vec::new();
    for ((thread, plan), left) in (0u32..).zip(plans).zip(left) {
        let Some(ThreadResult {
            found,
            used,
            last_cpu,
            polled,
        }) = left
        else {
            continue;
        };
        let (seen_on, moves_seen) = watched.whereabouts(thread as usize, &last_cpu);
        let ran = (thread, plan, &used, &last_cpu);
        for (&index, end) in plan.flows.iter().zip(found.flows) {
            let readings = readings(watched.take_readings(index), &end);
            records.push(flow_record(flows[index].number, ran, readings, end));
        }
        if let Some(found) = found.operations {
            asking.push(thread as usize);
            add_operations(operations.get_or_insert_default(), found);
        }
        threads.push(ThreadRecord {
            seen_on,
            moves_seen,
            memory_node: found.memory_node,
            ..thread_record(thread, plan, used)
        });
        let polled = polled.iter();
        pollers.extend(polled.map(|poller| poller_record(thread, plan, poller)));
    }
    let pollers = (0u32..).skip(plans.len()).zip(pollers);
    threads.extend(pollers.map(|(thread, poller)| ThreadRecord { thread, ..poller }));
    records.sort_by_key(|record| record.flow);
    if let Some(operations) = &mut operations {
        let asks = |thread: usize| asking.contains(&thread);
        (operations.steps, operations.steps_of_threads) =
            watched.take_steps(operations.completed, asks);
    }
    SideSample {
        cpu: CpuRecord {
            recording_ns: watched.reading().map_or_else(Known::default, Known::Value),
            ..cpu_of_threads(&threads)
        },
        elapsed_ns: elapsed(&records).max(watched.ended_at()),
        flows: records,
        threads,
        operations,
        counters: Known::default(),
        profile: Known::default(),
        interface: None,
        events: None,
        commands: Vec::new(),
    }
}

/// The record of a flow; its thread's times are shared evenly by the flows of the thread.
fn flow_record(
    flow: u32,
    (thread, plan, used, last_cpu): (u32, &Plan, &ThreadUse, &Known<CpuId>),
    readings: Readings,
    end: FlowEnd,
) -> FlowRecord {
    let part =
        |time: Nanoseconds| Nanoseconds::new(time.as_u64() / (plan.flows.len().max(1) as u64));
    FlowRecord {
        flow,
        role: plan.role,
        thread,
        at_ns: readings.at,
        bytes: readings.bytes,
        pinned_to: plan.cpu,
        last_cpu: last_cpu.clone(),
        incoming_cpu: end.incoming_cpu,
        incoming_napi: end.incoming_napi,
        user_ns: part(used.user),
        system_ns: part(used.system),
        tcp: end.tcp,
        copies: end.copies,
        datagrams: end.datagrams,
        drained: None,
        verbs: end.verbs,
        grid: end.grid,
    }
}

/// The readings of a flow, which end with its own; none of one that sees nothing of what moves.
fn readings(readings: Readings, end: &FlowEnd) -> Readings {
    if end.is_blind {
        return Readings::default();
    }
    readings.end_with(end.at.into(), Bytes::new(end.bytes))
}

/// What a thread took; where it ran is the caller's to fill.
fn thread_record(thread: u32, plan: &Plan, used: ThreadUse) -> ThreadRecord {
    let no_account = || {
        let why = "the kernel keeps no such account";
        Known::unknown(Cause::Absent, "/proc/thread-self/schedstat", why)
    };
    ThreadRecord {
        thread,
        polls_for: None,
        role: plan.role,
        pinned_to: plan.cpu,
        seen_on: Vec::new(),
        moves_seen: 0,
        memory_node: Known::default(),
        user_ns: used.user,
        system_ns: used.system,
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        waited_for_cpu_ns: used.waited_for_cpu.map_or_else(no_account, Known::Value),
        minor_faults: used.minor_faults,
        major_faults: used.major_faults,
    }
}

/// What a thread of the kernel took that polled a ring of data thread `thread`.
fn poller_record(thread: u32, plan: &Plan, poller: &Poller) -> ThreadRecord {
    let why = "it has no buffer of its own";
    ThreadRecord {
        polls_for: Some(thread),
        pinned_to: None,
        seen_on: poller.cpu.into_iter().collect(),
        memory_node: Known::unknown(Cause::NotAsked, "move_pages(2)", why),
        ..thread_record(thread, plan, poller.used)
    }
}

/// Adds what one thread counted and timed.
fn add_operations(sum: &mut Operations, found: Operations) {
    sum.per_thread.push(found.completed);
    sum.completed += found.completed;
    sum.failed += found.failed;
    sum.unanswered += found.unanswered;
    sum.received_bytes = Bytes::new(sum.received_bytes.as_u64() + found.received_bytes.as_u64());
    sum.latency.add(&found.latency);
    if let Some(service) = &found.service {
        sum.service.get_or_insert_default().add(service);
    }
    for size in found.sizes {
        match sum.sizes.iter_mut().find(|one| one.bytes == size.bytes) {
            None => sum.sizes.push(size),
            Some(one) => {
                one.repetitions += size.repetitions;
                one.elapsed_ns = one.elapsed_ns.max(size.elapsed_ns);
                one.one_way.add(&size.one_way);
                // The peaks of two threads did not coincide.
                one.peak_bit_per_s = None;
                let alone = one.alone_ns.into_iter().chain(size.alone_ns);
                one.alone_ns = alone.min();
            }
        }
    }
}

/// The CPU time of all data threads together; the machine's is not this crate's to read.
pub(crate) fn cpu_of_threads(threads: &[ThreadRecord]) -> CpuRecord {
    let sum = |time: fn(&ThreadRecord) -> Nanoseconds| {
        Nanoseconds::new(threads.iter().map(|thread| time(thread).as_u64()).sum())
    };
    CpuRecord {
        threads_user_ns: sum(|thread| thread.user_ns),
        threads_system_ns: sum(|thread| thread.system_ns),
        machine: Known::not_asked("/proc/stat"),
        series: Vec::new(),
        frequency: Known::default(),
        recording_ns: Known::default(),
    }
}

/// CPU time that the calling thread has used so far.
pub fn cpu_time_of_this_thread() -> Duration {
    // It counts up from 0, so the conversion has nothing to refuse.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// CPU time that this process has used so far.
pub(super) fn cpu_time_of_this_process() -> Duration {
    // It counts up from 0, so the conversion has nothing to refuse.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// From the start to the end of the last flow.
pub(crate) fn elapsed(flows: &[FlowRecord]) -> Nanoseconds {
    let last = flows.iter().filter_map(|flow| flow.at_ns.last()).max();
    last.copied().unwrap_or_default()
}
