//! The receiving end: records every datagram, with the time at which the kernel received it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_model::failover::{ProbeRecord, Recorder, Stamp};
use linerate_model::sample::Datagrams;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{DatagramBatch, Waiting};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::connections::Door;
use super::messages::Inbox;
use super::{Plan, boxed};
use crate::TrafficError;
use crate::sys::{Messages, force_receive_buffer, receive_stamps, socket_drops};
use crate::tcp::info;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow};
use crate::udp::companion::Link;
use crate::udp::header::Header;
use crate::udp::layout::Layout;
use crate::udp::{flow_end, monotonic_ns, nanoseconds_of};
use crate::waiting::{Event, Poller};

/// How long a receiver waits after its end and the last packet, beyond what is late: the sender may have begun later.
const LINGER: Duration = Duration::from_millis(500);
/// At the latest so long after its end.
const LINGER_MAX: Duration = Duration::from_secs(5);
/// A receiver that does not run for this long loses nothing.
const STALL_MAX: Duration = Duration::from_secs(1);
/// What the kernel accounts for a small datagram in a receive buffer (`skb->truesize`).
const TRUE_SIZE: u64 = 1_024;
/// Batches of one socket before the others have their turn.
const BATCHES_IN_TURN: u32 = 4;
/// The tokens of what is no flow.
const STOPPING: u64 = u64::MAX;
const DOOR: u64 = u64::MAX - 1;
/// How far apart two clocks may be read, and how often that is tried.
const CLOCK_APART_NS: u64 = 20_000;
const CLOCK_TRIES: u32 = 4;
/// A time of the kernel's that is older than this is that of a clock that was set.
const AGE_MAX_NS: u64 = 60_000_000_000;

/// One flow of a receiver.
struct Incoming<'a> {
    one: ThreadFlow<'a>,
    link: Link,
    recorder: Recorder,
    inbox: Option<Inbox<'a>>,
}

/// Makes the sockets of `links` ready to receive.
pub(super) fn prepare(plan: &Plan, links: &[Link]) -> Result<Layout, TrafficError> {
    let in_stall = nanoseconds_of(STALL_MAX) / plan.step.as_u64().max(1);
    let room = in_stall.saturating_mul(TRUE_SIZE).clamp(1 << 16, 1 << 25);
    for link in links {
        receive_stamps(&link.socket)
            .map_err(|errno| TrafficError::of_errno("set SO_TIMESTAMPNS", errno))?;
        // As much as this process may: what the socket drops is counted and shown.
        let _ = force_receive_buffer(&link.socket, room);
    }
    Ok(Layout::receiving(DatagramBatch::Mmsg, plan.bytes))
}

/// All that a receiving thread has.
pub(super) struct Receiver<'a> {
    data_thread: &'a DataThread<'a>,
    plan: Plan,
    flows: Vec<Incoming<'a>>,
    door: Option<Door>,
    layout: Layout,
    messages: Messages,
    poller: Poller,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        data_thread: &'a DataThread<'a>,
        plan: Plan,
        links: Vec<Link>,
        (layout, door): (Layout, Option<Door>),
    ) -> Result<Self, TrafficError> {
        let poller = Poller::new(Waiting::Epoll)?;
        poller.add(&data_thread.shared_state.stopping, STOPPING, EventFlags::IN)?;
        if let Some(door) = &door {
            poller.add(door, DOOR, EventFlags::IN)?;
        }
        let mut flows = Vec::with_capacity(links.len());
        for (index, (&one, link)) in (0u64..).zip(data_thread.flows.iter().zip(links)) {
            poller.add(&link.socket, index * 2, EventFlags::IN)?;
            let inbox = plan
                .has_messages(one.flow.number)
                .then(|| Inbox::new(one.flow, &plan))
                .transpose()?;
            if inbox.is_some() {
                poller.add(&one.flow.socket, index * 2 + 1, EventFlags::IN)?;
            }
            flows.push(Incoming {
                one,
                link,
                recorder: plan.recorder(plan.step),
                inbox,
            });
        }
        Ok(Self {
            layout,
            data_thread,
            plan,
            flows,
            door,
            messages: Messages::new(),
            poller,
        })
    }

    /// THE hot loop: per batch one system call and two reads of clocks.
    pub(super) fn run(&mut self, buffer: &mut [u8]) -> Result<(), TrafficError> {
        let linger = LINGER + Duration::from(self.plan.probe.late_ns);
        let mut events: Vec<Event> = Vec::with_capacity(2 * self.flows.len() + 2);
        let mut stopped: Option<Instant> = None;
        let mut last = Instant::now();
        loop {
            if stopped.is_none() && self.data_thread.shared_state.is_stopped() {
                stopped = Some(Instant::now());
                self.poller
                    .remove(&self.data_thread.shared_state.stopping)?;
            }
            let left = stopped.map(|stopped| {
                let end = (stopped.max(last) + linger).min(stopped + LINGER_MAX);
                end.saturating_duration_since(Instant::now())
            });
            if self.data_thread.shared_state.has_failed() {
                return Ok(());
            }
            // The last time for what came while this thread did not run.
            let is_last = left.is_some_and(|left| left.is_zero());
            self.poller.wait(&mut events, left)?;
            // The datagrams first: their age shows for how long this thread has not run.
            let mut stalled = 0;
            for event in &events {
                match event.data.u64() {
                    STOPPING => {}
                    DOOR => {
                        if let Some(door) = &self.door {
                            door.accept();
                        }
                    }
                    token if token % 2 == 0 => {
                        stalled = self.take(token, buffer).max(stalled);
                        last = Instant::now();
                    }
                    _ => {}
                }
            }
            for event in &events {
                let token = event.data.u64();
                if token < DOOR && token % 2 == 1 {
                    self.hear(token, stalled)?;
                }
            }
            let is_overdue = stopped.is_some_and(|stopped| stopped.elapsed() >= 2 * LINGER_MAX);
            if is_last && (events.is_empty() || is_overdue) {
                return Ok(());
            }
        }
    }

    /// Takes the messages of the connection with `token`.
    fn hear(&mut self, token: u64, stalled: u64) -> Result<(), TrafficError> {
        let index = usize::try_from(token / 2).unwrap_or(usize::MAX);
        // A connection that has ended stays readable.
        if let Some(flow) = self.flows.get_mut(index)
            && let Some(inbox) = &mut flow.inbox
            && !inbox.hear(stalled)
        {
            self.poller.remove(&flow.one.flow.socket)?;
        }
        Ok(())
    }

    /// Takes what is there of the socket with `token`; the age of the oldest datagram.
    fn take(&mut self, token: u64, buffer: &mut [u8]) -> u64 {
        let index = usize::try_from(token / 2).unwrap_or(usize::MAX);
        let mut oldest = 0;
        let Some(flow) = self.flows.get_mut(index) else {
            return oldest;
        };
        for _ in 0..BATCHES_IN_TURN {
            let socket = flow.link.socket.as_fd();
            let stride = self.layout.stride;
            let count = match self.messages.receive(socket, buffer, stride, false) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => return oldest,
                // An ICMP error that an own datagram, or nobody's, has caused: the socket goes on.
                Err(_) => continue,
            };
            let (clock, now) = both_clocks();
            for (at, place) in buffer.chunks_exact(stride).take(count).enumerate() {
                let received = received_at(self.messages.stamp(at), clock, now);
                oldest = now.saturating_sub(received).max(oldest);
                flow.count(
                    place,
                    self.messages.received(at).length,
                    &self.plan,
                    received,
                );
            }
            if count < self.layout.messages {
                return oldest;
            }
        }
        oldest
    }

    pub(super) fn close(self, start: Start) -> Vec<FlowEnd> {
        let at = Instant::now().duration_since(start.at);
        let mut ends = Vec::with_capacity(self.flows.len());
        for flow in self.flows {
            let mut arrivals = flow.recorder.close();
            let drops = socket_drops(&flow.link.socket).ok().map(u64::from);
            arrivals.socket_drops = drops;
            arrivals.one_clock = flow.link.one_clock;
            let distinct = arrivals.received - arrivals.duplicated;
            let datagrams = Datagrams {
                count: arrivals.received,
                // Of those that it knows were sent; the sender's record has the rest.
                lost: arrivals.next.saturating_sub(distinct),
                reordered: arrivals.reordered,
                duplicated: arrivals.duplicated,
                socket_drops: drops,
                batch: Some(DatagramBatch::Single),
                probe: None,
                ..Datagrams::default()
            };
            let bytes = arrivals.received * self.plan.bytes as u64;
            let is_tcp = flow.inbox.is_some();
            let one_clock = flow.link.one_clock;
            let record = ProbeRecord {
                arrivals: Some(arrivals),
                messages: flow.inbox.map(|inbox| boxed(inbox.close(one_clock))),
                ..ProbeRecord::default()
            };
            let datagrams = Datagrams {
                probe: Some(boxed(record)),
                ..datagrams
            };
            let mut end = flow_end(&flow.link, at, bytes, datagrams);
            if is_tcp {
                end.tcp = info::read(&flow.one.flow.socket);
            }
            ends.push(end);
        }
        ends
    }
}

impl Incoming<'_> {
    /// Counts one datagram; what the peer did not send is ignored.
    fn count(&mut self, place: &[u8], length: usize, plan: &Plan, received: u64) {
        let header = Header::read(&place[..length.min(place.len())]);
        let Some(header) = header.filter(|header| header.secret == self.link.secret) else {
            self.recorder.ignore();
            return;
        };
        if length != plan.bytes {
            self.recorder.ignore();
            return;
        }
        self.recorder.arrived(Stamp {
            number: header.sequence,
            sent_ns: Nanoseconds::new(header.sent_ns),
            received_ns: Nanoseconds::new(received),
        });
        let bytes = self.recorder.arrivals().received * plan.bytes as u64;
        self.one.counter.set_bytes(bytes);
    }
}

/// When the kernel received a datagram, on the monotonic clock: its time is that of the clock of the day, which is now
/// `clock`. Without one, when it was read.
fn received_at(stamp: Option<u64>, clock: u64, now: u64) -> u64 {
    let age = stamp.and_then(|stamp| clock.checked_sub(stamp));
    let age = age.filter(|age| *age <= AGE_MAX_NS);
    now.saturating_sub(age.unwrap_or(0))
}

/// The clock of the day and the monotonic one, read at the same time: a thread that loses its CPU between the two reads
/// tries again.
fn both_clocks() -> (u64, u64) {
    let mut before = monotonic_ns();
    for _ in 0..CLOCK_TRIES {
        let clock = nanoseconds_of_time(clock_gettime(ClockId::Realtime));
        let now = monotonic_ns();
        if now.saturating_sub(before) <= CLOCK_APART_NS {
            return (clock, now);
        }
        before = now;
    }
    (
        nanoseconds_of_time(clock_gettime(ClockId::Realtime)),
        monotonic_ns(),
    )
}

fn nanoseconds_of_time(time: rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_time_is_taken_over_unless_the_clock_was_set() {
        assert_eq!(received_at(Some(900), 1_000, 5_000), 4_900);
        assert_eq!(received_at(None, 1_000, 5_000), 5_000);
        assert_eq!(received_at(Some(2_000), 1_000, 5_000), 5_000);
        assert_eq!(received_at(Some(0), 2 * AGE_MAX_NS, 5_000), 5_000);
    }
}
