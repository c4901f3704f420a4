//! Small messages on an established TCP connection, one each interval whether or not the path works: what an
//! application sees of an outage, with TCP's retransmission back-off. A message has its number (8 bytes) and its send time
//! (8), big endian.

use linerate_model::failover::{Departures, ProbeRecord, Recorder, Stamp};
use linerate_model::units::Nanoseconds;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::Plan;
use super::answers::{Requests, Responses};
use crate::TrafficError;
use crate::tcp::Flow;
use crate::tcp::info::timer_and_mtu;
use crate::tcp::words::number;
use crate::udp::monotonic_ns;

pub(super) const MESSAGE_BYTES: usize = 16;
/// Messages that are read in one call.
pub(super) const AT_ONCE: usize = 256;

/// The sending end of a connection.
pub(super) struct Outbox<'a> {
    flow: &'a Flow,
    interval: u64,
    /// The connections take turns.
    turn: u64,
    due_ns: u64,
    departures: Departures,
    /// The rest of a message of which the kernel took only a part.
    rest: Vec<u8>,
    is_broken: bool,
    requests: Option<Requests>,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(flow: &'a Flow, plan: &Plan) -> Result<Self, TrafficError> {
        // Each message leaves at once (RFC 896 would keep it back until the one before is acknowledged).
        sockopt::set_tcp_nodelay(&flow.socket, true)
            .map_err(|errno| TrafficError::of_errno("set TCP_NODELAY", errno))?;
        let interval = plan.probe.message_ns.as_u64().max(1);
        let index = u64::from(plan.index(flow.number));
        Ok(Self {
            flow,
            interval,
            turn: interval * index / u64::from(plan.probe.message_flows.max(1)),
            due_ns: 0,
            departures: Departures::default(),
            rest: Vec::with_capacity(MESSAGE_BYTES),
            is_broken: false,
            requests: plan.has_answers().then(|| Requests::new(plan)),
        })
    }

    pub(super) fn begin(&mut self, begun: u64, last_ns: u64) {
        self.due_ns = begun.saturating_add(self.turn);
        if let Some(requests) = &mut self.requests {
            requests.begin(last_ns);
        }
    }

    /// Sends what is due at `now`; when the next is.
    pub(super) fn turn(&mut self, now: u64) -> u64 {
        if self.is_broken {
            return u64::MAX;
        }
        if self.due_ns > now {
            return self.due_ns;
        }
        let missed = now.saturating_sub(self.due_ns) / self.interval;
        self.departures.skipped += missed;
        let passed = (missed + 1).saturating_mul(self.interval);
        self.due_ns = self.due_ns.saturating_add(passed);
        self.send();
        self.due_ns
    }

    fn send(&mut self) {
        self.track();
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            self.rest = rest.get(self.put(&rest)..).unwrap_or_default().to_vec();
        }
        if !self.rest.is_empty() || self.is_broken {
            self.departures.skipped += 1;
            return;
        }
        let now = monotonic_ns();
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(&self.departures.sent.to_be_bytes());
        message[8..].copy_from_slice(&now.to_be_bytes());
        match self.put(&message) {
            // A full send buffer: the message does not exist.
            0 => self.departures.skipped += 1,
            count => {
                self.rest.extend_from_slice(&message[count..]);
                let now = Nanoseconds::new(now);
                self.departures.sent(now);
                if let Some(requests) = &mut self.requests {
                    requests.sent(now);
                }
            }
        }
    }

    /// Records the retransmission timer and the path MTU, also while the kernel takes nothing.
    fn track(&mut self) {
        let now = Nanoseconds::new(monotonic_ns());
        if let Some((timer, mtu)) = timer_and_mtu(&self.flow.socket, now) {
            self.departures.tcp.get_or_insert_default().saw(timer, mtu);
        }
    }

    /// How many bytes the kernel took.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(&self.flow.socket, bytes, flags) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => {
                // The connection is gone: what happened to the path has ended it.
                self.is_broken = true;
                let now = Nanoseconds::new(monotonic_ns());
                self.departures.refused(errno.raw_os_error(), now);
                0
            }
        }
    }

    /// Whether answers are expected.
    pub(super) fn has_requests(&self) -> bool {
        self.requests.is_some()
    }

    /// Records the answers that have arrived by `now`; whether more can.
    pub(super) fn hear(&mut self, now: u64) -> bool {
        let requests = self.requests.as_mut();
        requests.is_some_and(|requests| requests.hear(self.flow, now))
    }

    /// The record of the messages, and that of their answers.
    pub(super) fn close(self) -> (ProbeRecord, Option<ProbeRecord>) {
        let messages = ProbeRecord {
            departures: Some(self.departures),
            ..ProbeRecord::default()
        };
        (messages, self.requests.map(Requests::close))
    }
}

/// The receiving end of a connection.
pub(super) struct Inbox<'a> {
    flow: &'a Flow,
    recorder: Recorder,
    bytes: [u8; MESSAGE_BYTES * AT_ONCE],
    filled: usize,
    responses: Option<Responses>,
}

impl<'a> Inbox<'a> {
    pub(super) fn new(flow: &'a Flow, plan: &Plan) -> Result<Self, TrafficError> {
        let responses = plan.has_answers().then(|| Responses::new(flow));
        Ok(Self {
            flow,
            recorder: plan.recorder(plan.probe.message_ns),
            bytes: [0; MESSAGE_BYTES * AT_ONCE],
            filled: 0,
            responses: responses.transpose()?,
        })
    }

    /// Records what has arrived; whether the connection still exists. The thread was `stalled` for so long before it ran:
    /// TCP has no time of each message.
    pub(super) fn hear(&mut self, stalled: u64) -> bool {
        loop {
            let room = &mut self.bytes[self.filled..];
            let count = match recv(&self.flow.socket, room, RecvFlags::DONTWAIT) {
                Ok((count @ 1.., _)) => count,
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Ok(_) | Err(_) => return false,
            };
            let now = monotonic_ns();
            self.filled += count;
            let (messages, _) = self.bytes[..self.filled].as_chunks::<MESSAGE_BYTES>();
            for message in messages {
                let sent = number(&message[8..]);
                // One that was sent during the stall took no less than the fastest.
                let fastest = self.recorder.arrivals().transit_min_ns;
                let least = fastest.map_or(now, |fastest| sent.saturating_add_signed(fastest));
                let received = now.saturating_sub(stalled).max(least.min(now));
                self.recorder.arrived(Stamp {
                    number: number(&message[..8]),
                    sent_ns: Nanoseconds::new(sent),
                    received_ns: Nanoseconds::new(received),
                });
            }
            let whole = self.filled / MESSAGE_BYTES * MESSAGE_BYTES;
            if let Some(responses) = &mut self.responses {
                responses.answer(self.flow, &self.bytes[..whole]);
            }
            self.bytes.copy_within(whole..self.filled, 0);
            self.filled -= whole;
        }
    }

    pub(super) fn close(self, one_clock: bool) -> ProbeRecord {
        let mut arrivals = self.recorder.close();
        arrivals.one_clock = one_clock;
        ProbeRecord {
            arrivals: Some(arrivals),
            ..ProbeRecord::default()
        }
    }
}
