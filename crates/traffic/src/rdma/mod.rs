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

use linerate_model::known::{Cause, Known};
use linerate_model::sample::{Datagrams, Operations, Role};
use linerate_model::workload::{Service, Workload};
use rustix::net::{Shutdown, shutdown};

use crate::TrafficError;
use crate::stream::{share, stream_of};
use crate::trial::{FlowEnd, Found, Seat, Start};
use crate::verbs::{Lane, Station};
use job::Job;

/// What runs on each data thread of `rdma-*`.
pub(crate) fn work(seat: &mut Seat<'_>) -> Result<Option<Found>, TrafficError> {
    let Workload::Rdma(rdma) = &seat.spec.workload else {
        return Err(TrafficError::NotBuilt);
    };
    let job = Job::of_rdma(seat.spec, rdma)?;
    carry(seat, &job)
}

/// What runs on each data thread of a stream over verbs.
pub(crate) fn stream(seat: &mut Seat<'_>) -> Result<Option<Found>, TrafficError> {
    let stream = &stream_of(seat.spec);
    let shares = seat.flows.iter().map(|one| share(*one, seat.spec, stream));
    let job = Job::of_stream(seat.spec, stream, shares.collect())?;
    carry(seat, &job)
}

fn carry(seat: &mut Seat<'_>, job: &Job) -> Result<Option<Found>, TrafficError> {
    let (mut station, lanes) = Station::open(seat, job.needs())?;
    job.check(&station, &lanes)?;
    let told = match seat.role {
        Role::Sender => {
            let Some(start) = seat.ready()? else {
                return Ok(None);
            };
            let told = match (job.data_check, job.latency) {
                (true, false) => checked::send(seat, &mut station, &lanes, job, start)?,
                (_, true) => latency::ask(seat, &mut station, &lanes, job, start)?,
                (false, false) => rate::send(seat, &mut station, &lanes, job, start)?,
            };
            turns::end(seat)?;
            told
        }
        Role::Receiver => match (job.data_check, job.latency) {
            (true, false) => checked::receive(seat, &mut station, &lanes, job)?,
            (_, true) => latency::answer(seat, &mut station, &lanes, job)?,
            (false, false) => passive::receive(seat, &mut station, &lanes, job)?,
        },
    };
    Ok(told.map(|told| found(seat, &station, &lanes, job, told)))
}

/// What a thread did over verbs.
#[derive(Debug)]
struct Told {
    start: Start,
    /// Of each lane.
    flows: Vec<Moved>,
    operations: Option<Operations>,
}

/// What a lane moved.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    bytes: u64,
    messages: u64,
    ran_dry: Option<u64>,
}

/// The record of a thread, whose connections end here.
fn found(
    seat: &Seat<'_>,
    station: &Station<'_>,
    lanes: &[Lane<'_>],
    job: &Job,
    told: Told,
) -> Found {
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
            station.taker.note(&mut record);
        }
        let datagrams = (job.service == Service::Ud).then(|| Datagrams {
            count: moved.messages,
            ..Datagrams::default()
        });
        flows.push(FlowEnd {
            tcp: Known::unknown(Cause::Absent, "TCP_INFO", reason),
            datagrams,
            verbs: Some(record),
            is_blind: seat.role == Role::Receiver && job.is_one_sided(),
            ..FlowEnd::of_companion(moved.bytes, ended, told.start, reason)
        });
        if seat.role == Role::Sender {
            // It fails only when the connection is gone, and then the other end has noticed.
            let _ = shutdown(&lane.one.flow.socket, Shutdown::Write);
        }
    }
    Found {
        flows,
        operations: told.operations,
        memory_node: lanes.first().map(Lane::node).unwrap_or_default(),
    }
}
