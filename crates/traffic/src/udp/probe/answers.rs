//! Requests and answers on the connections of the messages: the receiver of a message sends it back, and its sender records
//! when the answer arrives. The next request does not wait for the answer (open loop); one that is answered late, or not at
//! all, has missed its deadline.

use linerate_model::failover::{Departures, ProbeRecord, Recorder, Stamp};
use linerate_model::units::Nanoseconds;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::Plan;
use super::messages::{AT_ONCE, MESSAGE_BYTES};
use crate::TrafficError;
use crate::tcp::Flow;
use crate::tcp::words::number;

/// Answers that wait for room in the send buffer; more are not sent.
const WAITING_MAX: usize = 1 << 20;

/// The requesting end of a connection.
pub(super) struct Requests {
    /// A later message is none: it could not be answered before the trial ends.
    last_ns: u64,
    departures: Departures,
    recorder: Recorder,
    bytes: [u8; MESSAGE_BYTES * AT_ONCE],
    filled: usize,
}

impl Requests {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            last_ns: 0,
            departures: Departures::default(),
            recorder: plan.recorder(plan.probe.message_ns),
            bytes: [0; MESSAGE_BYTES * AT_ONCE],
            filled: 0,
        }
    }

    pub(super) fn begin(&mut self, last_ns: u64) {
        self.last_ns = last_ns;
    }

    /// The next message was sent at `now`.
    pub(super) fn sent(&mut self, now: Nanoseconds) {
        if now.as_u64() <= self.last_ns {
            self.departures.sent(now);
        }
    }

    /// Records the answers that have arrived by `now`; whether more can.
    pub(super) fn hear(&mut self, flow: &Flow, now: u64) -> bool {
        loop {
            let room = &mut self.bytes[self.filled..];
            match recv(&flow.socket, room, RecvFlags::DONTWAIT) {
                Ok((count @ 1.., _)) => self.filled += count,
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Ok(_) | Err(_) => return false,
            }
            let (answers, _) = self.bytes[..self.filled].as_chunks::<MESSAGE_BYTES>();
            for answer in answers {
                let sent = number(&answer[8..]);
                if sent <= self.last_ns {
                    self.recorder.arrived(Stamp {
                        number: number(&answer[..8]),
                        sent_ns: Nanoseconds::new(sent),
                        received_ns: Nanoseconds::new(now.max(sent)),
                    });
                }
            }
            let whole = self.filled / MESSAGE_BYTES * MESSAGE_BYTES;
            self.bytes.copy_within(whole..self.filled, 0);
            self.filled -= whole;
        }
    }

    pub(super) fn close(self) -> ProbeRecord {
        let mut arrivals = self.recorder.close();
        arrivals.one_clock = true;
        ProbeRecord {
            departures: Some(self.departures),
            arrivals: Some(arrivals),
            ..ProbeRecord::default()
        }
    }
}

/// The answering end of a connection.
pub(super) struct Responses {
    waiting: Vec<u8>,
}

impl Responses {
    pub(super) fn new(flow: &Flow) -> Result<Self, TrafficError> {
        sockopt::set_tcp_nodelay(&flow.socket, true)
            .map_err(|errno| TrafficError::of_errno("set TCP_NODELAY", errno))?;
        Ok(Self {
            waiting: Vec::with_capacity(MESSAGE_BYTES * AT_ONCE),
        })
    }

    /// Sends `messages` back. What the connection does not take now waits for the next message.
    pub(super) fn answer(&mut self, flow: &Flow, messages: &[u8]) {
        if self.waiting.len() + messages.len() <= WAITING_MAX {
            self.waiting.extend_from_slice(messages);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while !self.waiting.is_empty() {
            match send(&flow.socket, &self.waiting, flags) {
                Ok(count) => {
                    self.waiting.drain(..count);
                }
                // A connection that is gone shows as such where it is read.
                Err(_) => return,
            }
        }
    }
}
