//! Probes: `udp` over a path that may fail while the trial runs.
//!
//! Before the start both ends agree by the companions as for every trial of `udp`; from then on nothing depends on the
//! other end. The sender sends by its schedule until the time is over, and counts what the kernel refuses. The receiver
//! records what arrives until its own time is over, and a little longer for what is still in flight. No report is
//! exchanged: each end has its own record, and the two are joined afterwards.
//!
//! A sender that did not run in time skips what it has missed instead of sending it in one burst, which its own or the
//! receiver's buffer might drop: its longest send gap is recorded.
//!
//! Beside the datagrams the companions of some flows may carry messages (`messages`) and their answers (`answers`), RDMA writes
//! cross beside them (`writes`), and the end that connects may open
//! new connections (`connections`).

mod answers;
mod connections;
mod messages;
mod receive;
mod send;
mod writes;

use linerate_model::failover::{ProbeRecord, Recorder};
use linerate_model::sample::Role;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Answers, Probe, Udp, Workload};

use super::{FlowAddresses, companion, datagram_bytes};
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::trial::{DataThread, WorkResult};

/// How long before the end the last connection is begun, and the last request sent, beyond what is late.
const ANSWERED_NS: u64 = 100_000_000;

/// What runs on each data thread; `on_flow` is called with each flow that it sends.
pub(crate) fn work(
    data_thread: &mut DataThread<'_>,
    on_flow: &dyn Fn(FlowAddresses),
) -> Result<Option<WorkResult>, TrafficError> {
    let Workload::Udp(udp) = &data_thread.spec.workload else {
        return Err(TrafficError::NotBuilt);
    };
    let Some(probe) = &udp.probe else {
        return Err(TrafficError::NotBuilt);
    };
    let links = companion::open(data_thread)?;
    let plan = Plan::new(data_thread, udp, probe);
    let flows = match data_thread.role {
        Role::Sender => {
            for (own, link) in data_thread.flows.iter().zip(&links) {
                on_flow(link.addresses(own.flow.number)?);
            }
            let writes = writes::Writes::connect(data_thread, &plan)?;
            let connections = connections::Opening::prepare(data_thread, probe)?;
            let Some(start) = data_thread.ready()? else {
                return Ok(None);
            };
            let mut sender = send::Sender::new(data_thread, plan, links, (connections, writes))?;
            sender.run(start)?;
            sender.close(start)
        }
        Role::Receiver => {
            // They last until the trial is over: what is written needs nothing of this thread.
            let _writes = writes::Writes::connect(data_thread, &plan)?;
            let door = connections::Door::prepare(data_thread, probe)?;
            let layout = receive::prepare(&plan, &links)?;
            let size = Bytes::new(layout.buffer_bytes() as u64);
            let mut buffer = Buffer::new(size, data_thread.memory())?;
            let Some(start) = data_thread.ready()? else {
                return Ok(None);
            };
            let mut receiver = receive::Receiver::new(data_thread, plan, links, (layout, door))?;
            receiver.run(buffer.bytes())?;
            receiver.close(start)
        }
    };
    Ok(Some(WorkResult {
        flows,
        ..WorkResult::default()
    }))
}

/// What all flows of a thread have in common.
#[derive(Debug, Clone)]
struct Plan {
    probe: Probe,
    /// The size of a datagram.
    bytes: usize,
    /// The time between two datagrams of a flow.
    step: Nanoseconds,
    duration: Nanoseconds,
    /// The number of flows in each direction.
    flows: u32,
}

impl Plan {
    fn new(data_thread: &DataThread<'_>, udp: &Udp, probe: &Probe) -> Self {
        Self {
            probe: probe.clone(),
            bytes: datagram_bytes(udp),
            // The check of the trial has refused one without a rate.
            step: udp.step().unwrap_or(Nanoseconds::from_millis(1)),
            duration: data_thread.spec.duration_ns,
            flows: data_thread.spec.flows.max(1),
        }
    }

    /// The place of flow `number` among those of its direction.
    fn index(&self, number: u32) -> u32 {
        number % self.flows
    }

    /// The last time at which a question may be asked that is answered before `end`.
    fn last_answered(&self, end: u64) -> u64 {
        let answered = self.probe.late_ns.as_u64().saturating_add(ANSWERED_NS);
        end.saturating_sub(answered)
    }

    /// Whether flow `number` also has a reliable connection over RDMA verbs.
    fn has_writes(&self, number: u32) -> bool {
        self.index(number) < self.probe.write_flows
    }

    /// Whether messages are answered.
    fn has_answers(&self) -> bool {
        self.probe.answers != Answers::None
    }

    /// Whether the companion of flow `number` carries messages.
    fn has_messages(&self, number: u32) -> bool {
        self.index(number) < self.probe.message_flows
    }

    /// The recorder of packets that are sent one each `step`.
    fn recorder(&self, step: Nanoseconds) -> Recorder {
        // Twice what the plan sends: no clock is that wrong.
        let limit = 2 * self.duration.as_u64() / step.as_u64().max(1) + 1_000;
        let runs_max = Probe::runs_max(self.flows);
        Recorder::new(step, self.probe.late_ns, limit, runs_max)
    }
}

/// The record of one part of a flow.
fn boxed(record: ProbeRecord) -> Box<ProbeRecord> {
    Box::new(record)
}
