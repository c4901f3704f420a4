//! The verbs themselves: `rdma-write`, `rdma-read`, `rdma-send`, `rdma-atomic`, their rates and their latency.
//! Also what carries a `stream` over verbs, which is messages of one size, sent.
//!
//! The sender posts the requests that are measured, whatever the direction of their payload; the receiver answers
//! or, for one-sided verbs, sleeps while its device does. Sizes go in turn, and the ends agree on each by
//! control messages on the companion of the thread's first flow ([`turns`]):
//!
//! ```text
//! sender                                receiver
//!   ALONE, TURN {size}  -->   posts receives
//!                       <--   READY
//!   (messages)
//!   DONE {messages}     -->   takes what is in flight
//!                       <--   ACK
//!   ... the next turn, at last END
//! ```
//!
//! * [`rate`]: as many messages in flight as the depth allows.
//! * [`latency`]: one at a time.
//! * [`checked`]: rounds of messages, every byte compared.

mod checked;
mod credit;
mod job;
mod latency;
mod passive;
mod peak;
mod rate;
mod turns;
mod written;

use std::time::Instant;

use job::Job;
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{Datagrams, Operations, Role};
use linerate_model::workload::{Service, Workload};
use rustix::net::{Shutdown, shutdown};

use crate::TrafficError;
use crate::stream::{share, stream_of};
use crate::trial::{DataThread, FlowEnd, Start, WorkResult};
use crate::verbs::{ThreadDevice, VerbsFlow};

/// What runs on each data thread of `rdma-*`.
pub(crate) fn work(data_thread: &mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> {
    let Workload::Rdma(rdma) = &data_thread.spec.workload else {
        return Err(TrafficError::NotBuilt);
    };
    let job = Job::of_rdma(data_thread.spec, rdma)?;
    carry(data_thread, &job)
}

/// What runs on each data thread of a stream over verbs.
pub(crate) fn stream(data_thread: &mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> {
    let stream = &stream_of(data_thread.spec);
    let shares = data_thread
        .flows
        .iter()
        .map(|one| share(*one, data_thread.spec, stream));
    let job = Job::of_stream(data_thread.spec, stream, shares.collect())?;
    carry(data_thread, &job)
}

fn carry(data_thread: &mut DataThread<'_>, job: &Job) -> Result<Option<WorkResult>, TrafficError> {
    let (mut thread_device, lanes) = ThreadDevice::open(data_thread, job.needs())?;
    job.check(&thread_device, &lanes)?;
    let told = match data_thread.role {
        Role::Sender => {
            let Some(start) = data_thread.ready()? else {
                return Ok(None);
            };
            let told = match (job.data_check, job.latency) {
                (true, false) => {
                    checked::send(data_thread, &mut thread_device, &lanes, job, start)?
                }
                (_, true) => latency::ask(data_thread, &mut thread_device, &lanes, job, start)?,
                (false, false) => rate::send(data_thread, &mut thread_device, &lanes, job, start)?,
            };
            turns::end(data_thread)?;
            told
        }
        Role::Receiver => match (job.data_check, job.latency) {
            (true, false) => checked::receive(data_thread, &mut thread_device, &lanes, job)?,
            (_, true) => latency::answer(data_thread, &mut thread_device, &lanes, job)?,
            (false, false) => passive::receive(data_thread, &mut thread_device, &lanes, job)?,
        },
    };
    Ok(told.map(|told| found(data_thread, &thread_device, &lanes, job, told)))
}

/// What a thread did over verbs.
#[derive(Debug)]
struct ThreadOutcome {
    start: Start,
    /// Of each lane.
    flows: Vec<FlowTotals>,
    operations: Option<Operations>,
}

/// What a lane moved.
#[derive(Debug, Clone, Copy, Default)]
struct FlowTotals {
    bytes: u64,
    messages: u64,
    ran_dry: Option<u64>,
}

/// The record of a thread, whose connections end here.
fn found(
    data_thread: &DataThread<'_>,
    thread_device: &ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    told: ThreadOutcome,
) -> WorkResult {
    let ended = Instant::now();
    let mut flows = Vec::with_capacity(lanes.len());
    for (index, (lane, moved)) in lanes.iter().zip(told.flows).enumerate() {
        let reason = "the payload is sent over verbs";
        let mut record = lane.record();
        record.depth = job.depth_told();
        record.moderation = job.moderation_told();
        record.inline_bytes = job.inline_told(lane);
        record.ran_dry = moved.ran_dry;
        if index == 0 {
            // One queue serves all lanes of a thread.
            thread_device.taker.note(&mut record);
        }
        let datagrams = (job.service == Service::Ud).then(|| Datagrams {
            count: moved.messages,
            ..Datagrams::default()
        });
        flows.push(FlowEnd {
            tcp: Known::unknown(Cause::Absent, "TCP_INFO", reason),
            datagrams,
            verbs: Some(record),
            is_blind: data_thread.role == Role::Receiver && job.is_one_sided(),
            ..FlowEnd::of_companion(moved.bytes, ended, told.start, reason)
        });
        if data_thread.role == Role::Sender {
            // It fails only when the connection is gone, and then the other end has noticed.
            let _ = shutdown(&lane.one.flow.socket, Shutdown::Write);
        }
    }
    WorkResult {
        flows,
        operations: told.operations,
        memory_node: lanes.first().map(VerbsFlow::node).unwrap_or_default(),
    }
}
