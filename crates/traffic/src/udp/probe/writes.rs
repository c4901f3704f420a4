//! RDMA writes on reliable connections (RC), one each interval whether or not the path works: what an application that uses
//! RDMA sees of an outage. The device retransmits by itself (InfiniBand Architecture Specification, 9.7.6.1.3); a write is
//! received when its completion says that the remote device has acknowledged it. A device that has retried without effect ends the
//! connection, and with it the writes.

use std::collections::VecDeque;

use linerate_model::failover::{Departures, ProbeRecord, Recorder, Stamp};
use linerate_model::sample::Role;
use linerate_model::units::Nanoseconds;
use linerate_verbs::{Access, Send, Status, Work};
use rustix::io::Errno;

use super::Plan;
use crate::TrafficError;
use crate::trial::DataThread;
use crate::udp::monotonic_ns;
use crate::verbs::{Needs, ThreadDevice, VerbsFlow};

/// What is written: as much as a message on a connection.
const WRITE_BYTES: usize = 16;
/// Writes that are in flight on a connection: for 10 ms between two and the longest that is late, and as much again.
const IN_FLIGHT_MAX: u32 = 2_048;

/// The connections of a data thread; the end that is written to only keeps them.
pub(super) struct Writes<'a> {
    device: ThreadDevice<'a>,
    lanes: Vec<Lane<'a>>,
    interval: u64,
    last_ns: u64,
}

struct Lane<'a> {
    flow: VerbsFlow<'a>,
    number: u32,
    due_ns: u64,
    departures: Departures,
    recorder: Recorder,
    /// The number and the time of each write that is in flight, in order: their completions are, too.
    pending: VecDeque<(u64, u64)>,
    is_broken: bool,
}

impl<'a> Writes<'a> {
    /// Connects the flows that have writes; none if this thread has no such flow. The other end does the same.
    pub(super) fn connect(
        data_thread: &DataThread<'a>,
        plan: &Plan,
    ) -> Result<Option<Self>, TrafficError> {
        let of_thread = data_thread.flows.iter();
        let flows = of_thread.filter(|one| plan.has_writes(one.flow.number));
        let flows: Vec<_> = flows.copied().collect();
        if flows.is_empty() {
            return Ok(None);
        }
        let needs = Needs {
            memory: WRITE_BYTES,
            sends: IN_FLIGHT_MAX,
            receives: 1,
            inline: 0,
            access: Access {
                remote_write: data_thread.role == Role::Receiver,
                ..Access::default()
            },
        };
        let (device, lanes) = ThreadDevice::open_for(data_thread, &flows, needs)?;
        let interval = plan.probe.message_ns.as_u64().max(1);
        let lane = |flow: VerbsFlow<'a>| Lane {
            number: plan.index(flow.one.flow.number),
            flow,
            due_ns: 0,
            departures: Departures::default(),
            recorder: plan.recorder(plan.probe.message_ns),
            pending: VecDeque::with_capacity(IN_FLIGHT_MAX as usize),
            is_broken: false,
        };
        Ok(Some(Self {
            device,
            lanes: lanes.into_iter().map(lane).collect(),
            interval,
            last_ns: 0,
        }))
    }

    /// The trial begins, and ends at `end`.
    pub(super) fn begin(&mut self, begun: u64, end: u64, plan: &Plan) {
        self.last_ns = plan.last_answered(end);
        for lane in &mut self.lanes {
            // The connections take turns.
            let turn =
                self.interval * u64::from(lane.number) / u64::from(plan.probe.write_flows.max(1));
            lane.due_ns = begun.saturating_add(turn);
        }
    }

    /// Takes what has completed, and writes what is due at `now`; when the next is.
    pub(super) fn turn(&mut self, now: u64) -> Result<u64, TrafficError> {
        self.take()?;
        if now > self.last_ns {
            return Ok(u64::MAX);
        }
        let mut next = u64::MAX;
        for (index, lane) in (0u64..).zip(&mut self.lanes) {
            next = next.min(lane.turn(index, now, self.interval));
        }
        Ok(next)
    }

    /// Takes completions: their id is the index of the connection.
    fn take(&mut self) -> Result<(), TrafficError> {
        loop {
            let count = self.device.taker.poll()?;
            let now = monotonic_ns();
            for index in 0..count {
                let completion = self.device.taker.taken(index);
                let lane = usize::try_from(completion.id()).ok();
                if let Some(lane) = lane.and_then(|lane| self.lanes.get_mut(lane)) {
                    lane.completed(completion.status(), now);
                }
            }
            if self.device.taker.has_taken_all(count) {
                return Ok(());
            }
        }
    }

    /// The record of each flow, by its number.
    pub(super) fn close(mut self) -> Vec<(u32, ProbeRecord)> {
        // What a device that has failed did not report is lost.
        let _ = self.take();
        let record = |lane: Lane<'_>| {
            let mut arrivals = lane.recorder.close();
            arrivals.one_clock = true;
            let record = ProbeRecord {
                departures: Some(lane.departures),
                arrivals: Some(arrivals),
                ..ProbeRecord::default()
            };
            (lane.flow.one.flow.number, record)
        };
        self.lanes.into_iter().map(record).collect()
    }
}

impl Lane<'_> {
    fn turn(&mut self, index: u64, now: u64, interval: u64) -> u64 {
        if self.is_broken {
            return u64::MAX;
        }
        if self.due_ns > now {
            return self.due_ns;
        }
        let missed = now.saturating_sub(self.due_ns) / interval;
        self.departures.skipped += missed;
        let passed = (missed + 1).saturating_mul(interval);
        self.due_ns = self.due_ns.saturating_add(passed);
        if self.pending.len() >= IN_FLIGHT_MAX as usize {
            self.departures.skipped += 1;
            return self.due_ns;
        }
        let sent = monotonic_ns();
        let posted = self.flow.pair.send(&Send {
            id: index,
            local: self.flow.region.slice(0..WRITE_BYTES),
            work: Work::Write(self.flow.far),
            signaled: true,
            inline: false,
        });
        let number = self.departures.sent;
        self.departures.sent(Nanoseconds::new(sent));
        match posted {
            Ok(()) => self.pending.push_back((number, sent)),
            Err(errno) => self.refuse(errno, sent),
        }
        self.due_ns
    }

    fn completed(&mut self, status: Result<(), Status>, now: u64) {
        let Some((number, sent)) = self.pending.pop_front() else {
            return;
        };
        match status {
            Ok(()) => {
                self.recorder.arrived(Stamp {
                    number,
                    sent_ns: Nanoseconds::new(sent),
                    received_ns: Nanoseconds::new(now),
                });
            }
            // The connection is gone: what happened to the path has ended it.
            Err(status) => {
                self.is_broken = true;
                let errno = match status {
                    Status::NoAnswer => Errno::TIMEDOUT,
                    Status::Flushed => Errno::CANCELED,
                    _ => Errno::IO,
                };
                self.refuse(errno, now);
            }
        }
    }

    fn refuse(&mut self, errno: Errno, now: u64) {
        let now = Nanoseconds::new(now);
        self.departures.refused(errno.raw_os_error(), now);
    }
}
