//! A trial from the start to its record, whatever its workload: distributes the connections among data
//! threads, agrees with the peer on the start, lets the control thread monitor it, and combines what all
//! of them recorded. A workload is one function that runs on each data thread (see [`DataThread`]).
//!
//! ```text
//! Connected --> data threads (the workload's function) --WorkResult--> SideSample
//!                        |  counters ^ stop                                 ^
//!                        v           |                                      |
//!                      control thread: periodic readings, the end ----------+
//! ```

mod control;
mod data_thread;
mod far;
mod polling;
mod record;
mod shared_state;
mod start;

use std::panic::resume_unwind;
use std::thread::{self, Scope};

pub(crate) use control::end_both_ways;
use control::{Control, Watched, leave_data_cpus};
pub(crate) use data_thread::{DataThread, FlowEnd, ThreadFlow, WorkResult};
pub(crate) use far::FarEnd;
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::Known;
use linerate_model::sample::{Role, SideSample};
use linerate_model::workload::{Placement, TrialSpec};
pub use record::cpu_time_of_this_thread;
pub(crate) use record::{cpu_of_threads, elapsed};
use shared_state::Verdict;
pub(crate) use shared_state::{Counter, LatencyReport, SharedState, Start};

use crate::sys::ThreadUse;
use crate::tcp::{Flow, per_direction};
use crate::{Abort, TrafficError};

/// Enough for a data thread, whose calls are shallow; a thousand of them should not request 2 GiB.
const STACK_BYTES: usize = 256 * 1024;

/// The function of each data thread; none if the trial never started.
pub(crate) type Work<'a> =
    dyn Fn(&mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> + Sync + 'a;

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

/// The result of one thread.
#[derive(Debug)]
struct ThreadResult {
    found: WorkResult,
    used: ThreadUse,
    last_cpu: Known<CpuId>,
    /// CPU time of the kernel threads that took its rings' submissions.
    polled: Vec<polling::Poller>,
}

/// Runs a trial on `flows` and records it. The peer must run its end within 10 s, and this end
/// returns at the latest 10 s after the duration, also when the peer vanished. An abort ends it at
/// once: the connections are shut down under the threads.
///
/// The record contains what this crate can see: the caller adds the machine's counters.
pub(crate) fn carry_out(
    spec: &TrialSpec,
    flows: &[Flow],
    work: &Work<'_>,
    abort: &Abort,
) -> Result<SideSample, TrafficError> {
    let plans = plans(spec, flows);
    carry_out_plans(spec, flows, &plans, &start::Ours, work, abort)
}

/// The same with a remote end that is not ours: `far` agrees with it on the start and the end.
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

/// The same without a linerate peer: this end alone, `spec.threads()` threads of role `role`.
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
    let shared_state = SharedState::new(abort)?;
    let own = own_counters(plans);
    let control = Control::new(
        spec,
        flows,
        (plans, own.clone()),
        &counters,
        &shared_state,
        far,
        abort,
    )?;
    let data_cpus: CpuSet = plans.iter().filter_map(|plan| plan.cpu).collect();
    let data_threads = (0u32..).zip(plans).zip(&own).map(|((thread, plan), &own)| {
        let served = plan.flows.iter().map(|&index| ThreadFlow {
            flow: &flows[index],
            counter: &counters[index],
        });
        let place = (thread, plan.index);
        let served = served.collect();
        DataThread::new(
            place,
            plan.role,
            plan.cpu,
            spec,
            &shared_state,
            served,
            &counters[own],
        )
    });

    let (watched, left) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for data_thread in data_threads {
            let name = format!("linerate-{}", data_thread.thread);
            let builder = thread::Builder::new().name(name).stack_size(STACK_BYTES);
            match builder.spawn_scoped(scope, || live(data_thread, work)) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    shared_state.fail(TrafficError::OutOfThreads { source });
                    break;
                }
            }
        }
        let started = threads.len();
        shared_state.wait_for(started);
        let watched = watch(
            scope,
            control,
            started,
            (flows, far),
            (&shared_state, abort),
            &data_cpus,
        );
        let left: Vec<Option<ThreadResult>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        (watched, left)
    });
    if let Some(error) = shared_state.failure.into_inner() {
        return Err(error);
    }
    Ok(record::record(flows, plans, watched, left))
}

/// Starts the trial and monitors it until its `threads` have ended, in a separate thread that is kept
/// off the data threads' CPUs.
fn watch<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    control: Control<'env>,
    threads: usize,
    (flows, far): (&'env [Flow], &'env dyn FarEnd),
    (shared_state, abort): (&'env SharedState, &'env Abort),
    data_cpus: &'env CpuSet,
) -> Watched {
    let watch = move || {
        leave_data_cpus(data_cpus);
        let started = shared_state
            .may_start(abort)
            .and_then(|()| far.start(flows, shared_state, abort));
        match started {
            Ok(start) => control.run(start.at, threads),
            Err(error) => {
                // The gate may be open already: a remote end that disconnects right then must not leave data
                // threads running without supervision.
                shared_state.fail(error);
                shared_state.stop();
                flows.iter().for_each(end_both_ways);
                shared_state.decide(Verdict::Leave);
                Watched::default()
            }
        }
    };
    let builder = thread::Builder::new().name("linerate-watch".to_owned());
    match builder.spawn_scoped(scope, watch) {
        Ok(watching) => watching.join().unwrap_or_else(|panic| {
            // The data threads must not keep running unsupervised while this one unwinds.
            shared_state.decide(Verdict::Leave);
            shared_state.stop();
            flows.iter().for_each(end_both_ways);
            resume_unwind(panic)
        }),
        Err(source) => {
            shared_state.fail(TrafficError::OutOfThreads { source });
            shared_state.decide(Verdict::Leave);
            Watched::default()
        }
    }
}

/// The main function of a data thread; none if it failed (the shared state has the error) or never started.
fn live(mut data_thread: DataThread<'_>, work: &Work<'_>) -> Option<ThreadResult> {
    let shared_state = data_thread.shared_state;
    let lived = data_thread.pin().and_then(|()| {
        let Some(found) = work(&mut data_thread)? else {
            return Ok(None);
        };
        Ok(Some(ThreadResult {
            found,
            used: data_thread.used()?,
            last_cpu: data_thread::current_cpu(),
            polled: std::mem::take(&mut data_thread.polled),
        }))
    });
    lived
        .map_err(|error| shared_state.fail(error))
        .ok()
        .flatten()
}

/// Distributes the flows: flow *i* of a role belongs to thread *i* modulo their number.
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
            // If placed by receive CPU, a thread runs where its first flow arrives.
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
