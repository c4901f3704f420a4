//! A trial from the start to its record, whatever its workload: shares the connections out among data
//! threads, agrees with the peer on the start, lets the control thread watch, and puts together what all
//! of them found. A workload is one function that runs on each data thread (see [`Seat`]).
//!
//! ```text
//! Connected --seats--> data threads (the workload's function) --Found--> SideSample
//!                        |  counters ^ stop                                 ^
//!                        v           |                                      |
//!                      control thread: readings at a steady beat, the end --+
//! ```

mod board;
mod control;
mod far;
mod seat;
mod start;

use std::panic::resume_unwind;
use std::thread;

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{CpuRecord, FlowRecord, Operations, Role, SideSample, ThreadRecord};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Placement, TrialSpec};

use board::Verdict;
pub(crate) use board::{Board, Counter, Start};
pub(crate) use control::end_both_ways;
use control::{Control, Watched, leave_data_cpus};
pub(crate) use far::FarEnd;
pub(crate) use seat::{FlowEnd, Found, Seat, SeatFlow};

use crate::sys::ThreadUse;
use crate::tcp::{Flow, per_direction};
use crate::{Abort, TrafficError};

/// Enough for a data thread, which calls nothing deep; a thousand of them should not ask for 2 GiB.
const STACK_BYTES: usize = 256 * 1024;

/// What runs on each data thread; nothing found when the trial never started.
pub(crate) type Work<'a> = dyn Fn(&mut Seat<'_>) -> Result<Option<Found>, TrafficError> + Sync + 'a;

/// One thread's share of the trial.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    role: Role,
    /// Its number among the threads of its role.
    index: u32,
    cpu: Option<CpuId>,
    /// Indices of its flows.
    flows: Vec<usize>,
}

/// What one thread left behind.
#[derive(Debug)]
struct Left {
    found: Found,
    used: ThreadUse,
    last_cpu: Known<CpuId>,
}

/// Carries out a trial on `flows` and records it. The peer must run its end within 10 s, and this end
/// comes back at the latest 10 s after the duration, also when the peer vanished. An abort ends it at
/// once: the connections are shut down under the threads.
///
/// The record holds what this crate can see: the machine's counters are the caller's to fill.
pub(crate) fn carry_out(
    spec: &TrialSpec,
    flows: &[Flow],
    work: &Work<'_>,
    abort: &Abort,
) -> Result<SideSample, TrafficError> {
    let plans = plans(spec, flows);
    carry_out_plans(spec, flows, &plans, &start::Ours, work, abort)
}

/// The same with a far end that is not ours: `far` agrees with it on the start and the end.
pub(crate) fn carry_out_with(
    spec: &TrialSpec,
    flows: &[Flow],
    far: &dyn FarEnd,
    work: &Work<'_>,
    abort: &Abort,
) -> Result<SideSample, TrafficError> {
    let plans = plans(spec, flows);
    carry_out_plans(spec, flows, &plans, far, work, abort)
}

/// The same without a peer of ours: this end alone, `spec.threads()` threads of role `role`.
pub(crate) fn carry_out_alone(
    spec: &TrialSpec,
    role: Role,
    work: &Work<'_>,
    abort: &Abort,
) -> Result<SideSample, TrafficError> {
    let plan = |index| Plan {
        role,
        index,
        cpu: cpu_of(spec, role, index),
        flows: Vec::new(),
    };
    let plans: Vec<Plan> = (0..spec.threads()).map(plan).collect();
    carry_out_plans(spec, &[], &plans, &start::Ours, work, abort)
}

/// The index of each thread's own counter: that of its first flow.
fn own_counters(plans: &[Plan]) -> Vec<usize> {
    plans
        .iter()
        .enumerate()
        .map(|(thread, plan)| plan.flows.first().copied().unwrap_or(thread))
        .collect()
}

fn carry_out_plans(
    spec: &TrialSpec,
    flows: &[Flow],
    plans: &[Plan],
    far: &dyn FarEnd,
    work: &Work<'_>,
    abort: &Abort,
) -> Result<SideSample, TrafficError> {
    // A thread without a flow still counts its operations somewhere.
    let mut counters: Vec<Counter> = Vec::new();
    counters.resize_with(flows.len().max(plans.len()), Counter::default);
    let board = Board::new(abort)?;
    let own = own_counters(plans);
    let control = Control::new(spec, flows, own.clone(), &counters, &board, far, abort)?;
    let data_cpus: CpuSet = plans.iter().filter_map(|plan| plan.cpu).collect();
    let seats = (0u32..).zip(plans).zip(&own).map(|((thread, plan), &own)| {
        let served = plan.flows.iter().map(|&index| SeatFlow {
            flow: &flows[index],
            counter: &counters[index],
        });
        let place = (thread, plan.index);
        let served = served.collect();
        Seat::new(
            place,
            plan.role,
            plan.cpu,
            spec,
            &board,
            served,
            &counters[own],
        )
    });

    let (watched, left) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for seat in seats {
            let name = format!("linerate-{}", seat.thread);
            let builder = thread::Builder::new().name(name).stack_size(STACK_BYTES);
            match builder.spawn_scoped(scope, || live(seat, work)) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    board.fail(TrafficError::OutOfThreads { source });
                    break;
                }
            }
        }
        let started = threads.len();
        board.wait_for(started);
        let (board, data_cpus) = (&board, &data_cpus);
        let watch = move || {
            leave_data_cpus(data_cpus);
            match board
                .may_start(abort)
                .and_then(|()| far.start(flows, board, abort))
            {
                Ok(start) => control.run(start.at, started),
                Err(error) => {
                    board.fail(error);
                    board.decide(Verdict::Leave);
                    Watched::default()
                }
            }
        };
        let builder = thread::Builder::new().name("linerate-watch".to_owned());
        let watched = match builder.spawn_scoped(scope, watch) {
            Ok(watching) => watching.join().unwrap_or_else(|panic| {
                // The data threads must not be left running unwatched while this one unwinds.
                board.decide(Verdict::Leave);
                board.stop();
                flows.iter().for_each(end_both_ways);
                resume_unwind(panic)
            }),
            Err(source) => {
                board.fail(TrafficError::OutOfThreads { source });
                board.decide(Verdict::Leave);
                Watched::default()
            }
        };
        let left: Vec<Option<Left>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        (watched, left)
    });
    if let Some(error) = board.failure.into_inner() {
        return Err(error);
    }
    Ok(record(flows, plans, watched, left))
}

/// The life of a data thread; nothing when it failed (the board holds why) or never started.
fn live(mut seat: Seat<'_>, work: &Work<'_>) -> Option<Left> {
    let board = seat.board;
    let lived = seat.pin().and_then(|()| {
        let Some(found) = work(&mut seat)? else {
            return Ok(None);
        };
        Ok(Some(Left {
            found,
            used: seat.used()?,
            last_cpu: seat::current_cpu(),
        }))
    });
    lived.map_err(|error| board.fail(error)).ok().flatten()
}

/// Shares the flows out: flow *i* of a role goes to thread *i* modulo their number.
fn plans(spec: &TrialSpec, flows: &[Flow]) -> Vec<Plan> {
    let threads = spec.threads().min(per_direction(spec));
    let mut plans: Vec<Plan> = Vec::new();
    for role in [Role::Sender, Role::Receiver] {
        if !flows.iter().any(|flow| flow.role == role) {
            continue;
        }
        plans.extend((0..threads).map(|index| {
            let served: Vec<usize> = (0..flows.len())
                .filter(|&at| {
                    let flow = &flows[at];
                    flow.role == role && flow.number % per_direction(spec) % threads == index
                })
                .collect();
            // Chosen by receive CPU, a thread runs where its first flow arrives.
            let received_on = served.first().and_then(|&first| flows[first].cpu);
            Plan {
                role,
                index,
                cpu: received_on.or_else(|| cpu_of(spec, role, index)),
                flows: served,
            }
        }));
    }
    plans
}

fn cpu_of(spec: &TrialSpec, role: Role, index: u32) -> Option<CpuId> {
    let cpus = match role {
        Role::Sender => &spec.placement.sender_cpus,
        Role::Receiver => &spec.placement.receiver_cpus,
    };
    Placement::cpu_of(cpus, index as usize)
}

fn record(
    flows: &[Flow],
    plans: &[Plan],
    mut watched: Watched,
    left: Vec<Option<Left>>,
) -> SideSample {
    let mut threads = Vec::new();
    let mut records: Vec<FlowRecord> = Vec::new();
    let mut operations: Option<Operations> = None;
    for ((thread, plan), left) in (0u32..).zip(plans).zip(left) {
        let Some(Left {
            found,
            used,
            last_cpu,
        }) = left
        else {
            continue;
        };
        let (seen_on, moves_seen) = watched.whereabouts(thread as usize, &last_cpu);
        let part =
            |time: Nanoseconds| Nanoseconds::new(time.as_u64() / (plan.flows.len().max(1) as u64));
        for (&index, end) in plan.flows.iter().zip(found.flows) {
            let readings = watched
                .take_readings(index)
                .end_with(end.at.into(), Bytes::new(end.bytes));
            records.push(FlowRecord {
                flow: flows[index].number,
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
            });
        }
        if let Some(found) = found.operations {
            add_operations(operations.get_or_insert_default(), found);
        }
        threads.push(ThreadRecord {
            thread,
            role: plan.role,
            pinned_to: plan.cpu,
            seen_on,
            moves_seen,
            memory_node: found.memory_node,
            user_ns: used.user,
            system_ns: used.system,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            waited_for_cpu_ns: used.waited_for_cpu.map_or_else(
                || {
                    let why = "the kernel keeps no such account";
                    Known::unknown(Cause::Absent, "/proc/thread-self/schedstat", why)
                },
                Known::Value,
            ),
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
        });
    }
    records.sort_by_key(|record| record.flow);
    if let Some(operations) = &mut operations {
        operations.steps = watched.take_steps(operations.completed);
    }
    SideSample {
        cpu: cpu_of_threads(&threads),
        elapsed_ns: elapsed(&records).max(watched.ended_at()),
        flows: records,
        threads,
        operations,
        counters: Known::default(),
        profile: Known::default(),
        interface: None,
    }
}

/// Adds what one thread counted and timed.
fn add_operations(sum: &mut Operations, found: Operations) {
    sum.per_thread.push(found.completed);
    sum.completed += found.completed;
    sum.failed += found.failed;
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
    }
}

/// From the start to the end of the last flow.
pub(crate) fn elapsed(flows: &[FlowRecord]) -> Nanoseconds {
    let last = flows.iter().filter_map(|flow| flow.at_ns.last()).max();
    last.copied().unwrap_or_default()
}
