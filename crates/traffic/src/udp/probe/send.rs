//! The sending end: each flow's datagram in its turn, until the time is over.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use linerate_model::failover::{Departures, ProbeRecord};
use linerate_model::sample::Datagrams;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{DatagramBatch, Waiting};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::connections::Opening;
use super::messages::Outbox;
use super::writes::Writes;
use super::{Plan, boxed};
use crate::TrafficError;
use crate::tcp::info;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow};
use crate::udp::companion::Link;
use crate::udp::header::Header;
use crate::udp::{flow_end, monotonic_ns, nanoseconds_of};
use crate::waiting::{Event, Poller};

/// The event of the sign to stop, not of a connection.
const STOPPING: u64 = u64::MAX;
/// From here on the events of answers: that of the first flow is the first. No trial makes so many connections.
const ANSWERS: u64 = 1 << 62;

/// One flow of a sender.
struct Outgoing<'a> {
    one: ThreadFlow<'a>,
    link: Link,
    /// When its next datagram is due.
    due_ns: u64,
    departures: Departures,
    outbox: Option<Outbox<'a>>,
}

/// All that a sending thread has.
pub(super) struct Sender<'a> {
    data_thread: &'a DataThread<'a>,
    plan: Plan,
    flows: Vec<Outgoing<'a>>,
    connections: Option<Opening>,
    writes: Option<Writes<'a>>,
    poller: Poller,
    events: Vec<Event>,
    datagram: Vec<u8>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        data_thread: &'a DataThread<'a>,
        plan: Plan,
        links: Vec<Link>,
        (connections, writes): (Option<Opening>, Option<Writes<'a>>),
    ) -> Result<Self, TrafficError> {
        let poller = Poller::new(Waiting::Epoll)?;
        poller.add(&data_thread.shared_state.stopping, STOPPING, EventFlags::IN)?;
        let mut flows = Vec::with_capacity(links.len());
        for ((&one, link), token) in data_thread.flows.iter().zip(links).zip(ANSWERS..) {
            let outbox = plan
                .has_messages(one.flow.number)
                .then(|| Outbox::new(one.flow, &plan))
                .transpose()?;
            if outbox.as_ref().is_some_and(Outbox::has_requests) {
                poller.add(&one.flow.socket, token, EventFlags::IN)?;
            }
            flows.push(Outgoing {
                one,
                link,
                due_ns: 0,
                departures: Departures::default(),
                outbox,
            });
        }
        Ok(Self {
            data_thread,
            datagram: vec![0; plan.bytes],
            plan,
            flows,
            connections,
            writes,
            poller,
            events: Vec::with_capacity(64),
        })
    }

    /// THE hot loop: per datagram one read of the clock and one system call, and one sleep until the next is due.
    pub(super) fn run(&mut self, start: Start) -> Result<(), TrafficError> {
        // The default lets the kernel wake a sleeper 50 us late. A refusal makes the schedule coarser.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let begun = monotonic_ns();
        // The receiver's time is over when the trial's is, however late this thread began.
        let end = begun
            .saturating_add(self.plan.duration.as_u64())
            .saturating_sub(nanoseconds_of(start.at.elapsed()));
        let step = self.plan.step.as_u64();
        for flow in &mut self.flows {
            let turn = u128::from(self.plan.index(flow.one.flow.number)) * u128::from(step);
            let turn = turn / u128::from(self.plan.flows);
            flow.due_ns = begun.saturating_add(u64::try_from(turn).unwrap_or(step));
            if let Some(outbox) = &mut flow.outbox {
                outbox.begin(begun, self.plan.last_answered(end));
            }
        }
        if let Some(connections) = &mut self.connections {
            connections.begin(begun, end, &self.plan);
        }
        if let Some(writes) = &mut self.writes {
            writes.begin(begun, end, &self.plan);
        }
        while !self.data_thread.shared_state.is_stopped() {
            let mut next = end;
            for flow in &mut self.flows {
                let now = monotonic_ns();
                if now >= end {
                    return Ok(());
                }
                if flow.due_ns <= now {
                    flow.send(&mut self.datagram);
                    flow.skip_to(now, step);
                }
                next = next.min(flow.due_ns);
                if let Some(outbox) = &mut flow.outbox {
                    next = next.min(outbox.turn(now));
                }
            }
            let turned = monotonic_ns();
            if let Some(connections) = &mut self.connections {
                next = next.min(connections.turn(turned, &self.poller));
            }
            if let Some(writes) = &mut self.writes {
                next = next.min(writes.turn(turned)?);
            }
            let left = next.saturating_sub(monotonic_ns());
            self.poller
                .wait(&mut self.events, Some(Duration::from_nanos(left)))?;
            // A connection was established before the thread was to run again: that it ran later is its own delay.
            let now = monotonic_ns().min(next.max(turned));
            for index in 0..self.events.len() {
                let event = self.events[index];
                match event.data.u64() {
                    STOPPING => {}
                    token @ ANSWERS.. => self.hear(token - ANSWERS, now)?,
                    token => {
                        if let Some(connections) = &mut self.connections {
                            connections.answered(token, now, &self.poller);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the answers on the connection of a flow.
    fn hear(&mut self, flow: u64, now: u64) -> Result<(), TrafficError> {
        let index = usize::try_from(flow).unwrap_or(usize::MAX);
        // A connection that has ended stays readable.
        if let Some(flow) = self.flows.get_mut(index)
            && let Some(outbox) = &mut flow.outbox
            && !outbox.hear(now)
        {
            self.poller.remove(&flow.one.flow.socket)?;
        }
        Ok(())
    }

    pub(super) fn close(self, start: Start) -> Vec<FlowEnd> {
        let at = Instant::now().duration_since(start.at);
        let mut connections = self.connections.map(Opening::close);
        let writes = self.writes.map(Writes::close);
        let mut writes: BTreeMap<u32, ProbeRecord> = writes.into_iter().flatten().collect();
        let mut ends = Vec::with_capacity(self.flows.len());
        for flow in self.flows {
            let sent = flow.departures.sent;
            let bytes = sent * self.plan.bytes as u64;
            let (messages, answers) = flow.outbox.map(Outbox::close).unzip();
            let has_messages = messages.is_some();
            let record = ProbeRecord {
                departures: Some(flow.departures),
                messages: messages.map(boxed),
                answers: answers.flatten().map(boxed),
                writes: writes.remove(&flow.one.flow.number).map(boxed),
                connections: connections.take().map(boxed),
                ..ProbeRecord::default()
            };
            let datagrams = Datagrams {
                count: sent,
                batch: Some(DatagramBatch::Single),
                probe: Some(boxed(record)),
                ..Datagrams::default()
            };
            let mut end = flow_end(&flow.link, at, bytes, datagrams);
            if has_messages {
                end.tcp = info::read(&flow.one.flow.socket);
            }
            ends.push(end);
        }
        ends
    }
}

impl Outgoing<'_> {
    /// Sends the flow's next datagram.
    fn send(&mut self, datagram: &mut [u8]) {
        let sequence = self.departures.sent;
        let mut last = Ok(0);
        let mut now = monotonic_ns();
        // The first call may return an error that an earlier datagram has caused (ICMP), and then sends nothing.
        for _ in 0..2 {
            now = monotonic_ns();
            let header = Header {
                secret: self.link.secret,
                sequence,
                sent_ns: now,
            };
            header.write(datagram);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            last = send(&self.link.socket, datagram, flags);
            if last.is_ok() {
                break;
            }
        }
        let at = Nanoseconds::new(now);
        self.departures.sent(at);
        if let Err(errno) = last {
            self.departures.refused(Errno::raw_os_error(errno), at);
        }
        let bytes = self.departures.sent * datagram.len() as u64;
        self.one.counter.set_bytes(bytes);
    }

    /// The first planned time after `now`; those that were missed are skipped.
    fn skip_to(&mut self, now: u64, step: u64) {
        let missed = now.saturating_sub(self.due_ns) / step.max(1);
        self.departures.skipped += missed;
        self.due_ns = self
            .due_ns
            .saturating_add((missed + 1).saturating_mul(step.max(1)));
    }
}
