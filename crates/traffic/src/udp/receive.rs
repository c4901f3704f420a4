//! The receiving end: reads what arrives, keeps the account, and waits for what is still in flight when
//! the sender has reported how much it sent.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_model::workload::{DatagramBatch, Udp, Waiting, Workload};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};

use super::account::Account;
use super::companion::{Link, Report, Reporter};
use super::header::Header;
use super::layout::Layout;
use super::{LOOK, datagram_bytes, flow_end, monotonic_ns};
use crate::TrafficError;
use crate::sys::{Message, Messages, set_option, socket_drops};
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow};
use crate::waiting::{Event, Poller};

/// What has not come so long after the sender's report and the datagram before it is lost.
const QUIET: Duration = Duration::from_millis(200);
/// At the latest so long after the report.
const DRAIN: Duration = Duration::from_secs(5);
/// A histogram of delays takes 75 KB: with more flows than this there are none.
const DELAY_FLOWS_MAX: u32 = 256;
/// Batches of one socket before the others have their turn.
const BATCHES_IN_TURN: u32 = 16;
/// Turns without a datagram before a spinning thread checks the companion.
const IDLE_TURNS: u32 = 1024;

/// How this end receives.
pub(super) fn layout(udp: &Udp, links: &[Link]) -> Result<Layout, TrafficError> {
    if udp.batch == DatagramBatch::Gso {
        for link in links {
            set_option(&link.socket, libc::SOL_UDP, libc::UDP_GRO, 1u32)
                .map_err(|errno| super::send::without("UDP_GRO", errno))?;
        }
    }
    Ok(Layout::receiving(udp.batch, datagram_bytes(udp)))
}

/// Receives on all flows of the data thread until every sender has reported its end and nothing more arrives.
pub(super) fn run(
    data_thread: &DataThread<'_>,
    links: Vec<Link>,
    layout: Layout,
    buffer: &mut [u8],
    start: Start,
) -> Result<Vec<FlowEnd>, TrafficError> {
    let mut receiver = Receiver::new(data_thread, links, layout, start);
    // One socket is asked itself; several are waited for together.
    match data_thread.spec.waiting {
        Waiting::Blocking if receiver.flows.len() == 1 => {
            let socket = &receiver.flows[0].link.socket;
            sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(LOOK))
                .map_err(|errno| TrafficError::of_errno("set the receive timeout", errno))?;
            receiver.receive_from_one(buffer, true)?;
        }
        Waiting::Spin if receiver.flows.len() == 1 => receiver.receive_from_one(buffer, false)?,
        _ => receiver.receive_from_many(buffer)?,
    }
    receiver.close()
}

/// One flow of a receiver.
struct Incoming<'a> {
    one: ThreadFlow<'a>,
    link: Link,
    account: Account,
    reporter: Reporter,
    /// The sender's report, and when it arrived.
    report: Option<(Report, u64)>,
    /// When a datagram came last.
    last_ns: u64,
    /// When everything was there, or what was missing was given up; since the start.
    ended: Option<Duration>,
}

/// All that a receiving thread has.
struct Receiver<'a> {
    data_thread: &'a DataThread<'a>,
    start: Start,
    flows: Vec<Incoming<'a>>,
    layout: Layout,
    messages: Messages,
}

impl<'a> Receiver<'a> {
    fn new(
        data_thread: &'a DataThread<'a>,
        links: Vec<Link>,
        layout: Layout,
        start: Start,
    ) -> Self {
        let few = data_thread.spec.flows <= DELAY_FLOWS_MAX;
        let planned_ns = data_thread.spec.duration_ns.as_u64();
        let flows = data_thread
            .flows
            .iter()
            .zip(links)
            .map(|(&one, link)| Incoming {
                one,
                account: Account::new(planned_ns, few && link.one_clock),
                link,
                reporter: Reporter::default(),
                report: None,
                last_ns: 0,
                ended: None,
            });
        Self {
            data_thread,
            start,
            flows: flows.collect(),
            layout,
            messages: Messages::new(),
        }
    }

    /// THE hot loop of one flow: per batch one system call, one read of the clock and one store.
    /// `waits` in the kernel, up to the socket's timeout, or polls.
    fn receive_from_one(&mut self, buffer: &mut [u8], waits: bool) -> Result<(), TrafficError> {
        let mut idle = 0;
        loop {
            if self.take_batch(0, buffer, waits)? {
                idle = 0;
                // Before its end a sender that sends has nothing to report.
                if !self.data_thread.shared_state.is_stopped() {
                    continue;
                }
            }
            idle += 1;
            if waits || idle >= IDLE_TURNS || self.data_thread.shared_state.is_stopped() {
                idle = 0;
                if self.listen(0)? && self.has_ended(0) {
                    return Ok(());
                }
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// THE hot loop of several flows, and of one that is waited for by epoll_wait(2).
    fn receive_from_many(&mut self, buffer: &mut [u8]) -> Result<(), TrafficError> {
        let poller = Poller::new(self.data_thread.spec.waiting)?;
        for (index, flow) in (0u64..).zip(&self.flows) {
            poller.add(&flow.link.socket, index * 2, EventFlags::IN)?;
            poller.add(&flow.one.flow.socket, index * 2 + 1, EventFlags::IN)?;
        }
        let mut events: Vec<Event> = Vec::with_capacity(64);
        let mut left = self.flows.len();
        let mut draining: Vec<usize> = Vec::new();
        while left > 0 {
            // Once a sender has reported its end, the awaited datagrams may never arrive.
            let limit = (!draining.is_empty()).then_some(LOOK);
            poller.wait(&mut events, limit)?;
            for event in &events {
                let token = event.data.u64();
                let index = usize::try_from(token / 2).unwrap_or(usize::MAX);
                if token % 2 == 0 {
                    for _ in 0..BATCHES_IN_TURN {
                        if !self.take_batch(index, buffer, false)? {
                            break;
                        }
                    }
                } else if self.listen(index)? {
                    poller.remove(&self.flows[index].one.flow.socket)?;
                    draining.push(index);
                }
            }
            draining.retain(|&index| {
                let ended = self.has_ended(index);
                if ended {
                    // What comes from now on came too late; without this it would keep us awake.
                    let _ = poller.remove(&self.flows[index].link.socket);
                    left -= 1;
                }
                !ended
            });
        }
        Ok(())
    }

    /// Takes what is there of flow `index`, up to a batch; whether there was something.
    #[inline]
    fn take_batch(
        &mut self,
        index: usize,
        buffer: &mut [u8],
        waits: bool,
    ) -> Result<bool, TrafficError> {
        let flow = &mut self.flows[index];
        let socket = flow.link.socket.as_fd();
        let layout = self.layout;
        let received = if layout.batch == DatagramBatch::Single {
            let flags = if waits {
                RecvFlags::empty()
            } else {
                RecvFlags::DONTWAIT
            };
            recv(socket, &mut *buffer, flags).map(|(length, _)| Batch::One(length))
        } else {
            let count = self.messages.receive(socket, buffer, layout.stride, waits);
            count.map(Batch::Messages)
        };
        let now = monotonic_ns();
        match received {
            Ok(Batch::One(length)) => {
                let segment = length;
                flow.take(&buffer[..length], Message { length, segment }, layout, now);
            }
            Ok(Batch::Messages(count)) => {
                for (at, place) in buffer.chunks_exact(layout.stride).take(count).enumerate() {
                    flow.take(place, self.messages.received(at), layout, now);
                }
            }
            // ECONNREFUSED: an answer to nothing that we sent.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => return Ok(false),
            Err(errno) => return Err(TrafficError::of_errno("receive datagrams", errno)),
        }
        let bytes = flow.account.count() * layout.datagram as u64;
        flow.one.counter.set_bytes(bytes);
        Ok(true)
    }

    /// Reads the companion of flow `index`; returns whether its sender has reported its end.
    fn listen(&mut self, index: usize) -> Result<bool, TrafficError> {
        let flow = &mut self.flows[index];
        if flow.report.is_some() {
            return Ok(true);
        }
        let after = self.start.at.elapsed();
        let Some(report) = flow.reporter.listen(flow.one.flow, after)? else {
            return Ok(false);
        };
        if !self.data_thread.is_time(self.start, Instant::now()) {
            return Err(TrafficError::PeerClosed {
                flow: flow.one.flow.number,
                after,
            });
        }
        flow.report = Some((report, monotonic_ns()));
        Ok(true)
    }

    /// Whether nothing more is expected on flow `index`, whose sender has reported its end.
    fn has_ended(&mut self, index: usize) -> bool {
        let flow = &mut self.flows[index];
        let Some((report, told_ns)) = flow.report else {
            return false;
        };
        let now = monotonic_ns();
        let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
        let all = flow.account.has_all(report.datagrams);
        let ended = all
            || since(flow.last_ns.max(told_ns)) >= QUIET
            || since(told_ns) >= DRAIN
            || self.data_thread.shared_state.has_failed();
        if ended {
            // The time that was waited for what is lost is no part of the flow's.
            let waited = if all {
                Duration::ZERO
            } else {
                since(flow.last_ns.max(told_ns))
            };
            let over = Instant::now().duration_since(self.start.at);
            flow.ended = Some(over.saturating_sub(waited));
        }
        ended
    }

    fn close(self) -> Result<Vec<FlowEnd>, TrafficError> {
        let step = match &self.data_thread.spec.workload {
            Workload::Udp(udp) => udp.step(),
            _ => None,
        };
        let mut ends = Vec::with_capacity(self.flows.len());
        for flow in self.flows {
            let (Some((report, _)), Some(at)) = (flow.report, flow.ended) else {
                continue;
            };
            let datagram = self.layout.datagram as u64;
            if report.datagrams.checked_mul(datagram) != Some(report.bytes) {
                let flow = flow.one.flow.number;
                return Err(TrafficError::PeerGarbled { flow });
            }
            let bytes = flow.account.count() * datagram;
            let since_start = self.start.at.elapsed().as_nanos();
            let start_ns =
                monotonic_ns().saturating_sub(u64::try_from(since_start).unwrap_or(u64::MAX));
            let mut datagrams = flow.account.close(report.datagrams, step, start_ns);
            datagrams.socket_drops = socket_drops(&flow.link.socket).ok().map(u64::from);
            datagrams.batch = Some(self.layout.batch);
            ends.push(flow_end(&flow.link, at, bytes, datagrams));
        }
        Ok(ends)
    }
}

/// What one system call received.
enum Batch {
    /// One datagram of this length.
    One(usize),
    /// So many messages.
    Messages(usize),
}

impl Incoming<'_> {
    /// Counts the datagrams of `message`, which begins at `place`; those of other senders are ignored.
    #[inline]
    fn take(&mut self, place: &[u8], message: Message, layout: Layout, now: u64) {
        let length = message.length.min(place.len());
        for datagram in place[..length].chunks(message.segment.max(1)) {
            let Some(header) = Header::read(datagram) else {
                continue;
            };
            if header.secret != self.link.secret || datagram.len() != layout.datagram {
                continue;
            }
            self.account.arrived(header.sequence, header.sent_ns, now);
            self.last_ns = now;
        }
    }
}
