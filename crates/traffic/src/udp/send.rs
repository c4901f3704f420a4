//! The sending end: batches of datagrams, as fast as the kernel accepts them or on schedule.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_model::sample::Datagrams;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{DatagramBatch, Udp, Waiting};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};

use super::companion::{Link, Report, filtered_here};
use super::header::Header;
use super::layout::Layout;
use super::schedule::Schedule;
use super::{LOOK, datagram_bytes, flow_end, monotonic_ns};
use crate::TrafficError;
use crate::sys::{Messages, set_option};
use crate::tcp::words::check_silence;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow};
use crate::waiting::{Event, Poller, timespec};

/// How long a companion has to end after the peer's kernel refused a datagram: a program that dies closes
/// its sockets one after the other.
const LAST_WORD: Duration = Duration::from_millis(200);
/// The headers below the payload of a datagram.
const IPV4_HEADERS: usize = 20 + 8;
const IPV6_HEADERS: usize = 40 + 8;
/// Calls of one message each after one that took fewer than it was given. sendmmsg(2) drops the error of any
/// message but the first; the following call then returns it.
const CAREFUL_CALLS: u32 = 2;
/// The token of the stop event; the others are two for each flow.
const STOPPING: u64 = u64::MAX;

/// How this end sends: as asked, but datagrams that do not fit the path's MTU are not cut by
/// `UDP_SEGMENT`; IP fragments them.
pub(super) fn layout(udp: &Udp, links: &[Link]) -> Result<Layout, TrafficError> {
    let datagram = datagram_bytes(udp);
    let layout = Layout::sending(udp.batch, datagram);
    if !links.iter().all(|link| fits(link, datagram)) {
        return whole(links, layout);
    }
    if udp.batch == DatagramBatch::Gso {
        let size = u32::try_from(datagram).unwrap_or(u32::MAX);
        for link in links {
            set_option(&link.socket, libc::SOL_UDP, libc::UDP_SEGMENT, size)
                .map_err(|errno| without("UDP_SEGMENT", errno))?;
        }
    }
    Ok(layout)
}

/// The error of a kernel that cannot cut or join datagrams.
pub(super) fn without(option: &'static str, errno: Errno) -> TrafficError {
    match errno {
        Errno::NOPROTOOPT => TrafficError::not_supported(
            format!("use the batch `gso` ({option})"),
            "this kernel does not support it: UDP_SEGMENT came with Linux 4.18, UDP_GRO with 5.0; use \
             the batch mmsg or single",
        ),
        _ => TrafficError::of_errno("enable UDP GSO or GRO", errno),
    }
}

/// Whether a datagram fits into one packet, as far as the kernel knows the path.
fn fits(link: &Link, datagram: usize) -> bool {
    let (mtu, headers) = if link.is_ipv6 {
        (sockopt::ipv6_mtu(&link.socket), IPV6_HEADERS)
    } else {
        (sockopt::ip_mtu(&link.socket), IPV4_HEADERS)
    };
    mtu.is_ok_and(|mtu| datagram + headers <= mtu as usize)
}

/// Has the kernel accept datagrams as they are and IP fragment them.
fn whole(links: &[Link], layout: Layout) -> Result<Layout, TrafficError> {
    let failed = |errno| TrafficError::of_errno("allow IP fragmentation of datagrams", errno);
    for link in links {
        if layout.batch == DatagramBatch::Gso {
            // A kernel without the option cuts nothing in the first place.
            let _ = set_option(&link.socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0u32);
        }
        if link.is_ipv6 {
            let dont = sockopt::Ipv6PathMtuDiscovery::DONT;
            sockopt::set_ipv6_mtu_discover(&link.socket, dont).map_err(failed)?;
        } else {
            let dont = sockopt::Ipv4PathMtuDiscovery::DONT;
            sockopt::set_ip_mtu_discover(&link.socket, dont).map_err(failed)?;
        }
    }
    Ok(match layout.batch {
        DatagramBatch::Gso => Layout::sending(DatagramBatch::Mmsg, layout.datagram),
        DatagramBatch::Single | DatagramBatch::Mmsg => layout,
    })
}

/// Sends on all flows of the data thread until it is stopped, and reports the amount to their receivers.
pub(super) fn run(
    data_thread: &DataThread<'_>,
    udp: &Udp,
    links: Vec<Link>,
    layout: Layout,
    buffer: &mut [u8],
    start: Start,
) -> Result<Vec<FlowEnd>, TrafficError> {
    // The default lets the kernel wake a sleeper 50 us late, which is several datagrams. A refusal makes
    // the schedule coarser, and no datagram less.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut sender = Sender::new(data_thread, udp, links, layout, start)?;
    sender.send_until_stopped(buffer)?;
    sender.close()
}

/// After so many drops before the first message passes, linerate assumes that the packet filter blocks all of them.
const FILTERED_MAX: u32 = 64;

/// One flow of a sender.
struct Outgoing<'a> {
    one: ThreadFlow<'a>,
    link: Link,
    schedule: Option<Schedule>,
    sent: u64,
    /// The number of messages that a packet filter of this host dropped, until the first one passes; then none.
    filtered: Option<u32>,
    /// So many of the next calls send one message.
    careful: u32,
    /// The socket's buffer was full, and the poller reports when it is not.
    is_full: bool,
}

/// All that a sending thread has.
struct Sender<'a> {
    data_thread: &'a DataThread<'a>,
    start: Start,
    flows: Vec<Outgoing<'a>>,
    layout: Layout,
    /// Whether datagrams are fragmented.
    is_whole: bool,
    messages: Messages,
    poller: Poller,
    events: Vec<Event>,
    /// Whether a `send` waits in the kernel until there is space.
    blocks: bool,
}

/// What became of a batch.
enum Took {
    /// So many datagrams were sent.
    Datagrams(u64),
    /// The buffer was full.
    Nothing,
}

impl<'a> Sender<'a> {
    fn new(
        data_thread: &'a DataThread<'a>,
        udp: &Udp,
        links: Vec<Link>,
        layout: Layout,
        start: Start,
    ) -> Result<Self, TrafficError> {
        let poller = Poller::new(data_thread.spec.waiting)?;
        poller.add(&data_thread.shared_state.stopping, STOPPING, EventFlags::IN)?;
        let blocks = data_thread.spec.waiting == Waiting::Blocking && links.len() == 1;
        let mut flows = Vec::with_capacity(links.len());
        for (index, (&one, link)) in (0u64..).zip(data_thread.flows.iter().zip(links)) {
            poller.add(&one.flow.socket, companion_token(index), EventFlags::IN)?;
            if blocks {
                sockopt::set_socket_timeout(&link.socket, sockopt::Timeout::Send, Some(LOOK))
                    .map_err(|errno| TrafficError::of_errno("set the send timeout", errno))?;
            }
            // Of a bidirectional trial the second half of the numbers goes back.
            let number = one.flow.number % data_thread.spec.flows.max(1);
            let schedule = udp.rate_bit_per_s.map(|rate| {
                Schedule::new(udp.datagram_bytes, rate, number, data_thread.spec.flows)
            });
            flows.push(Outgoing {
                one,
                link,
                schedule,
                sent: 0,
                filtered: Some(0),
                careful: 0,
                is_full: false,
            });
        }
        let datagram = datagram_bytes(udp);
        Ok(Self {
            data_thread,
            start,
            is_whole: !flows.iter().all(|flow| fits(&flow.link, datagram)),
            flows,
            layout,
            messages: Messages::new(),
            poller,
            events: Vec::with_capacity(64),
            blocks,
        })
    }

    /// THE hot loop: per batch one read of the clock, one system call and one store.
    fn send_until_stopped(&mut self, buffer: &mut [u8]) -> Result<(), TrafficError> {
        let begun = monotonic_ns();
        let look = u64::try_from(LOOK.as_nanos()).unwrap_or(u64::MAX);
        let mut next_look = begun + look;
        // However late the sign to stop comes, nothing is sent whose time is the end or after it.
        let last = self.data_thread.spec.duration_ns.as_u64().saturating_sub(1);
        loop {
            let mut next_due = next_look;
            let mut has_sent = false;
            for index in 0..self.flows.len() {
                if self.data_thread.shared_state.is_stopped() {
                    return Ok(());
                }
                let flow = &self.flows[index];
                if flow.is_full {
                    continue;
                }
                let now = monotonic_ns();
                let due = flow.schedule.map_or(u64::MAX, |schedule| {
                    schedule
                        .due(Nanoseconds::new((now - begun).min(last)))
                        .saturating_sub(flow.sent)
                });
                if due == 0 {
                    let time = flow.schedule.map(|schedule| schedule.time_of(flow.sent));
                    let time = time.map_or(0, Nanoseconds::as_u64);
                    if time <= last {
                        next_due = next_due.min(begun.saturating_add(time));
                    }
                    continue;
                }
                has_sent = true;
                match self.send_batch(index, due, now, buffer)? {
                    Took::Datagrams(count) => self.count(index, count),
                    // The time-out of a `send` that waits: look whether it is all over.
                    Took::Nothing
                        if self.blocks || self.data_thread.spec.waiting == Waiting::Spin => {}
                    Took::Nothing => self.await_room(index)?,
                }
            }
            let now = monotonic_ns();
            if now >= next_look || (!has_sent && self.data_thread.spec.waiting != Waiting::Spin) {
                next_look = now + look;
                let until = if has_sent { now } else { next_due };
                self.wait(Duration::from_nanos(until.saturating_sub(now)))?;
            }
        }
    }

    #[inline]
    fn count(&mut self, index: usize, count: u64) {
        let flow = &mut self.flows[index];
        flow.sent += count;
        let bytes = flow.sent * self.layout.datagram as u64;
        flow.one.counter.set_bytes(bytes);
    }

    /// Sends up to `due` datagrams of flow `index`.
    fn send_batch(
        &mut self,
        index: usize,
        due: u64,
        now: u64,
        buffer: &mut [u8],
    ) -> Result<Took, TrafficError> {
        let flow = &mut self.flows[index];
        let layout = self.layout;
        let in_message = layout.stride / layout.datagram;
        let room = if flow.careful > 0 {
            flow.careful -= 1;
            in_message as u64
        } else {
            layout.datagrams()
        };
        let most = usize::try_from(due.min(room)).unwrap_or(usize::MAX);
        let data = &mut buffer[..most * layout.datagram];
        for (sequence, datagram) in (flow.sent..).zip(data.chunks_exact_mut(layout.datagram)) {
            let header = Header {
                secret: flow.link.secret,
                sequence,
                sent_ns: now,
            };
            header.write(datagram);
        }
        let socket = flow.link.socket.as_fd();
        let sent = if layout.batch == DatagramBatch::Single {
            let mut flags = SendFlags::NOSIGNAL;
            flags.set(SendFlags::DONTWAIT, !self.blocks);
            send(socket, &*data, flags).map(|_| 1)
        } else {
            let messages = self.messages.send(socket, data, layout.stride, self.blocks);
            // Only the last message may hold fewer than the others.
            messages.map(|count| (count * in_message).min(most))
        };
        if sent.is_ok_and(|count| count < most) {
            flow.careful = CAREFUL_CALLS;
        }
        if sent.is_ok_and(|count| count > 0) {
            flow.filtered = None;
        }
        match sent {
            Ok(count) => Ok(Took::Datagrams(count as u64)),
            // ENOBUFS: the interface's queue is full (send(2)).
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(Took::Nothing),
            // A packet filter of this host dropped the message: lost like one that the path drops.
            Err(Errno::PERM) if flow.filtered.is_none_or(|count| count < FILTERED_MAX) => {
                flow.filtered = flow.filtered.map(|count| count + 1);
                Ok(Took::Datagrams(in_message.min(most) as u64))
            }
            Err(Errno::PERM) => Err(filtered_here()),
            Err(errno) => self.refused(index, errno).map(|()| Took::Nothing),
        }
    }

    /// Finds out what an error of a `send` means; nothing when it can go on.
    fn refused(&mut self, index: usize, errno: Errno) -> Result<(), TrafficError> {
        let cuts = self.layout.batch == DatagramBatch::Gso;
        match errno {
            // The path's MTU has become smaller. (EINVAL: of a cut, before Linux 6.)
            Errno::MSGSIZE | Errno::INVAL
                if !self.is_whole && (cuts || errno == Errno::MSGSIZE) =>
            {
                self.is_whole = true;
                let before = self.layout;
                for flow in &self.flows {
                    self.layout = whole(std::slice::from_ref(&flow.link), before)?;
                }
                Ok(())
            }
            Errno::IO if cuts => Err(TrafficError::not_supported(
                "use the batch `gso` (UDP_SEGMENT)",
                "the interface computes no checksums (`tx-checksumming`), or IPsec is on the path; use \
                 the batch mmsg or single",
            )),
            Errno::CONNREFUSED => {
                let flow = self.flows[index].one.flow;
                let mut last_word = [PollFd::new(&flow.socket, PollFlags::IN)];
                // A failed or interrupted poll only means that we check at once.
                let _ = poll(&mut last_word, Some(&timespec(LAST_WORD)));
                let after = self.start.at.elapsed();
                check_silence(flow, after)?;
                Err(TrafficError::DatagramsRefused {
                    flow: flow.number,
                    after,
                })
            }
            _ => Err(TrafficError::of_errno("send datagrams", errno)),
        }
    }

    /// Skips a flow until its socket has space.
    fn await_room(&mut self, index: usize) -> Result<(), TrafficError> {
        let flow = &mut self.flows[index];
        flow.is_full = true;
        self.poller
            .add(&flow.link.socket, room_token(index as u64), EventFlags::OUT)
    }

    /// Sleeps at most `time`, less when something happens, and sees to that.
    fn wait(&mut self, time: Duration) -> Result<(), TrafficError> {
        if !time.is_zero() {
            let mut happened = [PollFd::new(&self.poller, PollFlags::IN)];
            // An interrupted or failed poll only means that we look once more.
            let _ = poll(&mut happened, Some(&timespec(time)));
        }
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let token = event.data.u64();
            if token == STOPPING || self.data_thread.shared_state.is_stopped() {
                // Errors of the companions from now on may be of our own making.
                return Ok(());
            }
            let index = usize::try_from(token / 2).unwrap_or(usize::MAX);
            let flow = &mut self.flows[index];
            if token == companion_token(token / 2) {
                check_silence(flow.one.flow, self.start.at.elapsed())?;
            } else {
                flow.is_full = false;
                self.poller.remove(&flow.link.socket)?;
            }
        }
        self.events = events;
        Ok(())
    }

    fn close(self) -> Result<Vec<FlowEnd>, TrafficError> {
        let at = Instant::now().duration_since(self.start.at);
        let mut ends = Vec::with_capacity(self.flows.len());
        for flow in self.flows {
            let bytes = flow.sent * self.layout.datagram as u64;
            let report = Report {
                datagrams: flow.sent,
                bytes,
            };
            report
                .tell(flow.one.flow)
                .map_err(|_| TrafficError::PeerClosed {
                    flow: flow.one.flow.number,
                    after: at,
                })?;
            let datagrams = Datagrams {
                count: flow.sent,
                batch: Some(self.layout.batch),
                ..Datagrams::default()
            };
            ends.push(flow_end(&flow.link, at, bytes, datagrams));
        }
        Ok(ends)
    }
}

fn companion_token(index: u64) -> u64 {
    index * 2
}

fn room_token(index: u64) -> u64 {
    index * 2 + 1
}
