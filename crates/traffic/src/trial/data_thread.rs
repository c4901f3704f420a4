//! What a workload's thread has: its flows, its counters, the gate, and the account of what it took.

use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{
    Copies, Datagrams, GridRecord, Operations, Role, TcpInfo, VerbsRecord,
};
use linerate_model::workload::{MemoryPolicy, TrialSpec, Waiting};
use rustix::io::Errno;

use super::polling::{self, Poller};
use super::shared_state::{Counter, SharedState, Start, Verdict};
use crate::TrafficError;
use crate::sys::{ThreadUse, pin_thread, thread_use};
use crate::tcp::{Flow, info};

/// One connection and the counter of what moves on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadFlow<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) counter: &'a Counter,
}

/// A data thread's part of the trial. A workload's function prepares everything (buffers, further
/// sockets), calls [`DataThread::ready`], and transfers data until it is stopped.
#[derive(Debug)]
pub(crate) struct DataThread<'a> {
    /// Its number at this end.
    pub(crate) thread: u32,
    /// Its number among the threads of its role.
    pub(crate) index: u32,
    pub(crate) role: Role,
    pub(crate) cpu: Option<CpuId>,
    pub(crate) spec: &'a TrialSpec,
    pub(crate) shared_state: &'a SharedState,
    /// The connections it serves.
    pub(crate) flows: Vec<ThreadFlow<'a>>,
    /// Its own counter: that of its first flow, for what is not counted by flow.
    pub(crate) counter: &'a Counter,
    arrived: bool,
    used_before: ThreadUse,
    /// The kernel's threads of its rings, as they were at the start ...
    pollers: Vec<Poller>,
    /// ... and what they have used since.
    pub(super) polled: Vec<Poller>,
}

/// What a workload's thread found at its end.
#[derive(Debug, Default)]
pub(crate) struct WorkResult {
    /// One for each of the thread's flows, in their order.
    pub(crate) flows: Vec<FlowEnd>,
    /// What the end that asks counted and timed.
    pub(crate) operations: Option<Operations>,
    /// The node of its buffer.
    pub(crate) memory_node: Known<NodeId>,
}

/// One flow at its end.
#[derive(Debug, Default)]
pub(crate) struct FlowEnd {
    /// Since the start.
    pub(crate) at: Duration,
    pub(crate) bytes: u64,
    pub(crate) incoming_cpu: Known<CpuId>,
    pub(crate) incoming_napi: Known<u32>,
    pub(crate) tcp: Known<TcpInfo>,
    pub(crate) copies: Option<Copies>,
    pub(crate) datagrams: Option<Datagrams>,
    pub(crate) verbs: Option<VerbsRecord>,
    pub(crate) grid: Option<GridRecord>,
    /// Nothing of what moved could be seen at this end: no count is not a count of 0.
    pub(crate) is_blind: bool,
}

impl FlowEnd {
    /// The end of a TCP flow that moved `bytes`: what the kernel reports of it now.
    pub(crate) fn of_tcp(flow: &Flow, bytes: u64, ended: Instant, start: Start) -> Self {
        Self {
            at: ended.duration_since(start.at),
            bytes,
            incoming_cpu: info::incoming_cpu(&flow.socket),
            incoming_napi: info::incoming_napi(&flow.socket),
            tcp: info::read(&flow.socket),
            copies: None,
            datagrams: None,
            verbs: None,
            grid: None,
            is_blind: false,
        }
    }
}

impl FlowEnd {
    /// The end of a flow whose bytes used other connections than its own, and why the kernel's counters
    /// of its own connection do not describe them.
    pub(crate) fn of_companion(
        bytes: u64,
        ended: Instant,
        start: Start,
        reason: &'static str,
    ) -> Self {
        Self {
            at: ended.duration_since(start.at),
            bytes,
            incoming_cpu: Known::unknown(Cause::NotAsked, "SO_INCOMING_CPU", reason),
            incoming_napi: Known::unknown(Cause::NotAsked, "SO_INCOMING_NAPI_ID", reason),
            tcp: Known::unknown(Cause::NotAsked, "TCP_INFO", reason),
            copies: None,
            datagrams: None,
            verbs: None,
            grid: None,
            is_blind: false,
        }
    }
}

impl<'a> DataThread<'a> {
    pub(super) fn new(
        (thread, index): (u32, u32),
        role: Role,
        cpu: Option<CpuId>,
        spec: &'a TrialSpec,
        shared_state: &'a SharedState,
        flows: Vec<ThreadFlow<'a>>,
        counter: &'a Counter,
    ) -> Self {
        Self {
            thread,
            index,
            role,
            cpu,
            spec,
            shared_state,
            flows,
            counter,
            arrived: false,
            used_before: ThreadUse::default(),
            pollers: Vec::new(),
            polled: Vec::new(),
        }
    }

    /// The policy of its buffers' memory.
    pub(crate) fn memory(&self) -> &'a MemoryPolicy {
        match self.role {
            Role::Sender => &self.spec.placement.sender_memory,
            Role::Receiver => &self.spec.placement.receiver_memory,
        }
    }

    pub(super) fn pin(&self) -> Result<(), TrafficError> {
        let Some(cpu) = self.cpu else { return Ok(()) };
        pin_thread(&CpuSet::one(cpu)).map_err(|errno| match errno {
            Errno::INVAL => TrafficError::NoSuchCpu { cpu },
            _ => TrafficError::of_errno("pin a data thread", errno),
        })
    }

    fn arrive(&mut self) {
        if !std::mem::replace(&mut self.arrived, true) {
            self.shared_state.arrive();
        }
    }

    /// Signals that this thread is ready and waits for the start; `None` when there will be no trial.
    pub(crate) fn ready(&mut self) -> Result<Option<Start>, TrafficError> {
        // Looked for before the start: there are as many tasks as all threads and their rings have.
        let polling = if self.spec.waiting == Waiting::UringSqpoll {
            polling::of_this_thread()
        } else {
            Vec::new()
        };
        self.arrive();
        let verdict = self.shared_state.wait_for_verdict();
        self.pollers = polling.into_iter().filter_map(Poller::of).collect();
        self.used_before = usage()?;
        Ok(match verdict {
            Verdict::Start(start) => Some(start),
            Verdict::Leave => None,
        })
    }

    /// Whether the remote end may have ended by `now`, because the time is over or the trial ends early. It began after
    /// our GO, so its end comes after our duration; 1 % is far more than two clocks differ.
    pub(crate) fn is_time(&self, start: Start, now: Instant) -> bool {
        let planned = Duration::from(self.spec.duration_ns).mul_f64(0.99);
        now.duration_since(start.asked) >= planned || self.shared_state.abort.is_ending()
    }

    /// Reads what the kernel's threads of this thread's rings used since the start; for as long as the rings
    /// are there, so are they.
    pub(crate) fn see_pollers(&mut self) {
        self.polled = self.pollers.iter().filter_map(Poller::since).collect();
    }

    /// What the thread used since the start.
    pub(super) fn used(&self) -> Result<ThreadUse, TrafficError> {
        Ok(usage()?.since(self.used_before))
    }
}

/// Also when it unwinds: a thread that never reports would be waited for forever.
impl Drop for DataThread<'_> {
    fn drop(&mut self) {
        self.arrive();
        self.flows.iter().for_each(|one| one.counter.set_done());
        self.shared_state.leave();
    }
}

fn usage() -> Result<ThreadUse, TrafficError> {
    thread_use().map_err(|errno| TrafficError::of_errno("read a thread's CPU time", errno))
}

/// The CPU that the calling thread is on.
pub(super) fn current_cpu() -> Known<CpuId> {
    match u32::try_from(rustix::thread::sched_getcpu()) {
        Ok(cpu) => Known::Value(CpuId(cpu)),
        Err(_) => Known::unknown(
            Cause::Unreadable,
            "getcpu(2)",
            "the kernel's answer is not a CPU number",
        ),
    }
}
