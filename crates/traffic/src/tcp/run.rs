//! A trial from the start to its record: starts the data threads, agrees with the peer on the start,
//! lets the control thread watch, and puts together what all of them found.

use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::Known;
use linerate_model::sample::{CpuRecord, FlowRecord, Role, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::Placement;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::control::{Control, Readings, leave_data_cpus};
use super::flow::{Board, Counter, Ending, Task, Verdict};
use super::greeting::{GO, READY};
use super::socket::{Woken, wait};
use super::{Connected, Flow};
use crate::{Abort, TrafficError};

/// How long the ends wait for each other's start.
const START_MAX: Duration = Duration::from_secs(10);

/// Enough for a data thread, which calls nothing deep; a thousand of them should not ask for 2 GiB.
const STACK_BYTES: usize = 256 * 1024;

impl Connected {
    /// Moves bytes for the duration and records it. The peer must run its end within 10 s, and this
    /// end comes back at the latest 10 s after the duration, also when the peer vanished. An abort ends
    /// it at once: the connections are shut down under the threads.
    ///
    /// The record holds what this crate can see: `cpu.machine` is the caller's to fill.
    pub fn run(self, abort: &Abort) -> Result<SideSample, TrafficError> {
        let cpus: Vec<Option<CpuId>> = self.flows.iter().map(|flow| self.cpu_of(flow)).collect();
        let mut counters: Vec<Counter> = Vec::new();
        counters.resize_with(self.flows.len(), Counter::default);
        let board = Board::new()?;
        let control = Control::new(&self.spec, &self.flows, &counters, &board, abort)?;
        let data_cpus: CpuSet = cpus.iter().flatten().copied().collect();
        let buffer_bytes = usize::try_from(self.spec.buffer_bytes.as_u64()).unwrap_or(usize::MAX);
        let tasks = self.flows.iter().zip(&counters).zip(&cpus);
        let tasks = tasks.map(|((flow, counter), &cpu)| Task {
            flow,
            cpu,
            counter,
            board: &board,
            buffer_bytes,
            duration: self.spec.duration_ns.into(),
        });

        let (readings, endings) = thread::scope(|scope| {
            let threads = start_data_threads(scope, tasks, &board);
            board.wait_for(threads.len());
            let watch = || {
                leave_data_cpus(&data_cpus);
                match self.start(&board, abort) {
                    Ok(start) => control.run(start),
                    Err(error) => {
                        board.fail(error);
                        board.decide(Verdict::Leave);
                        Vec::new()
                    }
                }
            };
            let builder = thread::Builder::new().name("linerate-watch".to_owned());
            let readings = match builder.spawn_scoped(scope, watch) {
                Ok(watching) => watching.join().unwrap_or_else(|panic| {
                    // The data threads must not be left running unwatched while this one unwinds.
                    board.decide(Verdict::Leave);
                    self.flows.iter().for_each(end_both_ways);
                    resume_unwind(panic)
                }),
                Err(source) => {
                    board.fail(TrafficError::OutOfThreads { source });
                    board.decide(Verdict::Leave);
                    Vec::new()
                }
            };
            let endings: Vec<Option<Ending>> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect();
            (readings, endings)
        });
        if let Some(error) = board.failure.into_inner() {
            return Err(error);
        }
        Ok(self.record(&cpus, readings, endings))
    }

    /// The CPU of a flow's thread: thread *i* of its role at this end is flow *i* of its direction.
    fn cpu_of(&self, flow: &Flow) -> Option<CpuId> {
        let cpus = match flow.role {
            Role::Sender => &self.spec.placement.sender_cpus,
            Role::Receiver => &self.spec.placement.receiver_cpus,
        };
        Placement::cpu_of(cpus, (flow.number % self.spec.flows) as usize)
    }

    /// Agrees with the peer on the start and opens the gate.
    fn start(&self, board: &Board, abort: &Abort) -> Result<Instant, TrafficError> {
        if board.failure.get().is_some() || abort.is_triggered() {
            // A failure that is on the board already goes before this one.
            return Err(TrafficError::Aborted);
        }
        let deadline = Instant::now() + START_MAX;
        self.flows.iter().try_for_each(|flow| say(flow, READY))?;
        await_word(READY, self.flows.iter().collect(), deadline, abort)?;

        let receivers = || self.flows.iter().filter(|flow| flow.role == Role::Receiver);
        let senders: Vec<&Flow> = (self.flows.iter())
            .filter(|flow| flow.role == Role::Sender)
            .collect();
        let asked = Instant::now();
        if senders.is_empty() {
            // Nothing can arrive before the clock of this end runs.
            board.decide(Verdict::Start {
                start: asked,
                asked,
            });
            if let Err(error) = receivers().try_for_each(|flow| say(flow, GO)) {
                board.fail(error);
            }
            return Ok(asked);
        }
        receivers().try_for_each(|flow| say(flow, GO))?;
        await_word(GO, senders, deadline, abort)?;
        let start = Instant::now();
        board.decide(Verdict::Start { start, asked });
        Ok(start)
    }

    fn record(
        &self,
        cpus: &[Option<CpuId>],
        readings: Vec<Readings>,
        endings: Vec<Option<Ending>>,
    ) -> SideSample {
        let ended = self.flows.iter().zip(cpus).zip(readings).zip(endings);
        let flows: Vec<FlowRecord> = ended
            .filter_map(|(((flow, &pinned_to), readings), ending)| {
                let ending = ending?;
                let readings = readings.end_with(ending.at.into(), Bytes::new(ending.bytes));
                Some(FlowRecord {
                    flow: flow.number,
                    role: flow.role,
                    at_ns: readings.at,
                    bytes: readings.bytes,
                    pinned_to,
                    last_cpu: ending.last_cpu,
                    incoming_cpu: ending.incoming_cpu,
                    user_ns: ending.time.user,
                    system_ns: ending.time.system,
                    tcp: ending.tcp,
                })
            })
            .collect();
        SideSample {
            cpu: cpu_of_threads(&flows),
            elapsed_ns: elapsed(&flows),
            flows,
        }
    }
}

/// Starts a thread for each task; those that could be started when the board holds a failure.
fn start_data_threads<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    tasks: impl Iterator<Item = Task<'env>>,
    board: &Board,
) -> Vec<ScopedJoinHandle<'scope, Option<Ending>>> {
    let mut threads = Vec::new();
    for task in tasks {
        let name = format!("linerate-{}", task.flow.number);
        let builder = thread::Builder::new().name(name).stack_size(STACK_BYTES);
        match builder.spawn_scoped(scope, move || task.run()) {
            Ok(thread) => threads.push(thread),
            Err(source) => {
                board.fail(TrafficError::OutOfThreads { source });
                break;
            }
        }
    }
    threads
}

fn closed_before_start(flow: &Flow) -> TrafficError {
    TrafficError::PeerClosed {
        flow: flow.number,
        after: Duration::ZERO,
    }
}

fn say(flow: &Flow, word: u8) -> Result<(), TrafficError> {
    match send(&flow.socket, &[word], SendFlags::NOSIGNAL) {
        Ok(1) => Ok(()),
        _ => Err(closed_before_start(flow)),
    }
}

/// Waits until the peer has said `word` on each of `silent`.
fn await_word(
    word: u8,
    mut silent: Vec<&Flow>,
    deadline: Instant,
    abort: &Abort,
) -> Result<(), TrafficError> {
    let mut ready = Vec::new();
    while !silent.is_empty() {
        if Instant::now() >= deadline {
            return Err(TrafficError::StartTimeOut { waited: START_MAX });
        }
        let waited = silent
            .iter()
            .map(|flow| (flow.socket.as_fd(), PollFlags::IN));
        if wait(waited, deadline, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        let mut still_silent = Vec::new();
        for flow in silent {
            let mut heard = [0u8; 1];
            match recv(&flow.socket, &mut heard, RecvFlags::DONTWAIT) {
                Ok((1, _)) if heard == [word] => {}
                Err(Errno::AGAIN | Errno::INTR) => still_silent.push(flow),
                _ => return Err(closed_before_start(flow)),
            }
        }
        silent = still_silent;
    }
    Ok(())
}

/// Ends a connection at once, also under a call that blocks on it.
pub(super) fn end_both_ways(flow: &Flow) {
    // It fails when the connection is gone already.
    let _ = shutdown(&flow.socket, Shutdown::Both);
}

/// The CPU time of all data threads together; the machine's is not this crate's to read.
pub(crate) fn cpu_of_threads(flows: &[FlowRecord]) -> CpuRecord {
    let sum = |time: fn(&FlowRecord) -> Nanoseconds| {
        Nanoseconds::new(flows.iter().map(|flow| time(flow).as_u64()).sum())
    };
    CpuRecord {
        threads_user_ns: sum(|flow| flow.user_ns),
        threads_system_ns: sum(|flow| flow.system_ns),
        machine: Known::not_asked("/proc/stat"),
    }
}

/// From the start to the end of the last flow.
pub(crate) fn elapsed(flows: &[FlowRecord]) -> Nanoseconds {
    let last = flows.iter().filter_map(|flow| flow.at_ns.last()).max();
    last.copied().unwrap_or_default()
}
