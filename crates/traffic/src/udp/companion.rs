//! Control messages between the two ends of a flow over its companion connection, and the UDP sockets that
//! they set up. All numbers are big endian. The peer has proved the token; its messages
//! are validated all the same.
//!
//! ```text
//! connecting end                      listening end
//!   HELLO(port, secret)         <->   HELLO(port, secret)    on the companion
//!   PROBE(own secret)           -->                          a datagram, until it is heard
//!                               <--   HEARD                  on the companion
//! ```
//!
//! The listening end sends to where the probe came from: address translation on the path has changed the port that the
//! connecting end knows of, and lets datagrams in only after one has gone out. A probe that is never heard is a firewall
//! that drops UDP, and known before the trial begins.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_model::sample::Role;
use linerate_model::workload::TrialSpec;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recvfrom, send,
    socket_with, sockopt,
};

use super::{FlowAddresses, check_waiting};
use crate::sys::set_option;
use crate::tcp::arrival::{bind_within, taken};
use crate::tcp::marks;
use crate::tcp::socket::{Woken, set_buffers, wait};
use crate::tcp::words::{
    PartialMessage, WORDS_MAX, Word, await_words, local_of, number, peer_of, random, tell,
    with_port,
};
use crate::tcp::{Flow, Side};
use crate::trial::DataThread;
use crate::waiting::prepare_socket;
use crate::{Abort, TrafficError};

const HELLO_MAGIC: [u8; 4] = *b"LNRU";
/// Magic (4), port (2), secret (8), clock (8).
const HELLO_BYTES: usize = 22;
const PROBE_MAGIC: [u8; 4] = *b"LNRP";
/// Magic (4), the secret of the connecting end (8).
const PROBE_BYTES: usize = 12;
/// The probe of the flow has arrived.
const HEARD: [u8; 4] = *b"HERE";
/// How long a probe is waited for before the next one is sent.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// How many datagrams of strangers are read before the deadline is looked at.
const STRANGERS_AT_ONCE: u32 = 64;
/// How long probes may go unheard.
const PROBES_MAX: Duration = Duration::from_secs(4);
const REPORT_MAGIC: [u8; 4] = *b"SENT";
/// Magic (4), datagrams (8), bytes (8).
const REPORT_BYTES: usize = 20;

/// The UDP socket of one flow, connected to that of the peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    pub(super) is_ipv6: bool,
    /// What every datagram of the flow begins with: the receiving end drew it.
    pub(super) secret: u64,
    /// Whether both ends read one monotonic clock.
    pub(super) one_clock: bool,
}

impl Link {
    /// The addresses of the flow `number`, which is this.
    pub(super) fn addresses(&self, number: u32) -> Result<FlowAddresses, TrafficError> {
        Ok(FlowAddresses {
            flow: number,
            local: local_of(&self.socket)?,
            peer: peer_of(&self.socket)?,
        })
    }
}

/// The hello of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hello {
    port: u16,
    secret: u64,
    /// Equal at both ends when they read one clock; 0 where that is not known.
    clock: u64,
}

/// The report of a sender that has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
}

/// Makes the UDP sockets of all flows of the data thread and connects them to the peer's.
pub(super) fn open(data_thread: &DataThread<'_>) -> Result<Vec<Link>, TrafficError> {
    check_waiting(data_thread.spec.waiting)?;
    let clock = clock_identity();
    let mut own = Vec::with_capacity(data_thread.flows.len());
    // First all send, then all receive: the ends may serve the flows in another order.
    for one in &data_thread.flows {
        let local = with_port(local_of(&one.flow.socket)?, 0);
        let socket = bound(data_thread.spec, local, one.flow)?;
        let hello = Hello {
            port: local_of(&socket)?.port(),
            secret: random()?,
            clock,
        };
        tell(one.flow, &hello.bytes())?;
        own.push((socket, hello));
    }
    let deadline = Instant::now() + WORDS_MAX;
    let flows = data_thread.flows.iter().map(|one| one.flow);
    let mut ends = Vec::with_capacity(own.len());
    for (flow, (socket, own)) in flows.zip(own) {
        let theirs = await_hello(flow, data_thread, deadline)?;
        ends.push(FlowEnds {
            flow,
            socket,
            own,
            theirs,
        });
    }
    let abort = &data_thread.shared_state.abort;
    match data_thread.flows.first().map(|one| one.flow.side) {
        Some(Side::Connecting) => probe(&ends, abort)?,
        Some(Side::Listening) => answer_probes(&ends, deadline, abort)?,
        None => {}
    }
    let link = |one: FlowEnds<'_>| {
        Ok(Link {
            is_ipv6: local_of(&one.socket)?.is_ipv6(),
            socket: one.socket,
            secret: match one.flow.role {
                Role::Receiver => one.own.secret,
                Role::Sender => one.theirs.secret,
            },
            one_clock: clock != 0 && clock == one.theirs.clock,
        })
    };
    ends.into_iter().map(link).collect()
}

/// Both ends of a flow, before its socket is connected.
struct FlowEnds<'a> {
    flow: &'a Flow,
    socket: OwnedFd,
    own: Hello,
    theirs: Hello,
}

fn connected(socket: &OwnedFd, peer: SocketAddr) -> Result<(), TrafficError> {
    connect(socket, &peer).map_err(|errno| TrafficError::of_errno("connect a UDP socket", errno))
}

/// Every datagram fails where it is sent.
pub(super) fn filtered_here() -> TrafficError {
    TrafficError::NotPermitted {
        what: "send datagrams".to_owned(),
        why: "a packet filter of this host drops them (EPERM): see `nft list ruleset`".to_owned(),
    }
}

/// The connecting end: sends datagrams until the other end has heard one of each flow.
fn probe(ends: &[FlowEnds<'_>], abort: &Abort) -> Result<(), TrafficError> {
    let begun = Instant::now();
    let mut heard: Vec<PartialMessage<4>> = Vec::new();
    heard.resize_with(ends.len(), PartialMessage::default);
    for one in ends {
        connected(
            &one.socket,
            with_port(peer_of(&one.flow.socket)?, one.theirs.port),
        )?;
    }
    let mut unheard: Vec<usize> = (0..ends.len()).collect();
    let mut ready = Vec::new();
    let mut again = begun;
    let mut is_filtered = false;
    while let Some(&first) = unheard.first() {
        let now = Instant::now();
        if now >= begun + PROBES_MAX && is_filtered {
            return Err(filtered_here());
        }
        if now >= begun + PROBES_MAX {
            let address = with_port(peer_of(&ends[first].flow.socket)?, ends[first].theirs.port);
            return Err(TrafficError::NoDatagrams {
                address,
                waited: begun.elapsed(),
            });
        }
        if now >= again {
            for &index in &unheard {
                // A refusal (ICMP) of an earlier one, or a full queue: the next one may arrive.
                let probe = ends[index].own.probe();
                let sent = send(&ends[index].socket, &probe, SendFlags::DONTWAIT);
                is_filtered = sent == Err(Errno::PERM);
            }
            again = now + PROBE_EVERY;
        }
        let companions = unheard
            .iter()
            .map(|&index| (ends[index].flow.socket.as_fd(), PollFlags::IN));
        if wait(companions, again, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        let mut left = Vec::with_capacity(unheard.len());
        for (index, is_ready) in unheard.into_iter().zip(&ready) {
            let flow = ends[index].flow;
            match is_ready.then(|| heard[index].hear(flow)) {
                None | Some(Word::Partial) => left.push(index),
                Some(Word::Whole(HEARD)) => {}
                Some(Word::Whole(_)) => {
                    return Err(TrafficError::PeerGarbled { flow: flow.number });
                }
                Some(Word::Closed) => {
                    return Err(TrafficError::PeerClosed {
                        flow: flow.number,
                        after: Duration::ZERO,
                    });
                }
            }
        }
        unheard = left;
    }
    Ok(())
}

/// The listening end: connects each flow to where its probe came from.
fn answer_probes(
    ends: &[FlowEnds<'_>],
    deadline: Instant,
    abort: &Abort,
) -> Result<(), TrafficError> {
    for one in ends {
        let from = peer_of(&one.flow.socket)?.ip().to_canonical();
        let source = await_probe(one, from, deadline, abort)?;
        connected(&one.socket, source)?;
        tell(one.flow, &HEARD)?;
    }
    Ok(())
}

fn await_probe(
    one: &FlowEnds<'_>,
    from: IpAddr,
    deadline: Instant,
    abort: &Abort,
) -> Result<SocketAddr, TrafficError> {
    let expected = one.theirs.probe();
    let mut ready = Vec::new();
    let mut strangers = 0_u32;
    loop {
        let mut datagram = [0; PROBE_BYTES + 1];
        match recvfrom(&one.socket, &mut datagram, RecvFlags::DONTWAIT) {
            Ok((count, _, source)) => {
                let source = source.and_then(|source| SocketAddr::try_from(source).ok());
                if let Some(source) = source
                    && datagram[..count] == expected
                    && source.ip().to_canonical() == from
                {
                    return Ok(source);
                }
                // A stranger's: a flood of them must not outlast the deadline.
                strangers += 1;
                if !u32::is_multiple_of(strangers, STRANGERS_AT_ONCE) {
                    continue;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(TrafficError::of_errno("receive a datagram", errno)),
        }
        if Instant::now() >= deadline {
            return Err(TrafficError::StartTimeOut { waited: WORDS_MAX });
        }
        // The companion, too: an end that gives up closes it.
        let waited = [
            (one.socket.as_fd(), PollFlags::IN),
            (one.flow.socket.as_fd(), PollFlags::RDHUP),
        ];
        match wait(waited, deadline, abort, &mut ready)? {
            Woken::Aborted => return Err(TrafficError::Aborted),
            Woken::Look if ready.get(1) == Some(&true) => {
                return Err(TrafficError::PeerClosed {
                    flow: one.flow.number,
                    after: Duration::ZERO,
                });
            }
            Woken::Look => {}
        }
    }
}

fn bound(spec: &TrialSpec, local: SocketAddr, flow: &Flow) -> Result<OwnedFd, TrafficError> {
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| TrafficError::of_errno("make a UDP socket", errno))?;
    if let Some(size) = spec.socket_buffer_bytes {
        set_buffers(&socket, size)?;
    }
    prepare_socket(&socket, spec.waiting)?;
    if let Some(rate) = spec.pacing_bit_per_s {
        let bytes_per_s = rate.as_bit_per_s() / 8;
        set_option(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            bytes_per_s,
        )
        .map_err(|errno| TrafficError::of_errno("set the pacing rate", errno))?;
    }
    let local = match (flow.side, spec.marks.udp_port) {
        // Each is connected to another port of the other end before it sends.
        (Side::Connecting, Some(port)) => {
            sockopt::set_socket_reuseport(&socket, true)
                .map_err(|errno| TrafficError::of_errno("share a UDP port", errno))?;
            with_port(local, port)
        }
        _ => local,
    };
    bind_within(&socket, local, flow.ports).map_err(|errno| match errno {
        Errno::ADDRINUSE => taken(local, flow.ports),
        _ => TrafficError::of_bind("bind a UDP socket", errno),
    })?;
    if flow.role == Role::Sender {
        marks::set(&spec.marks, &socket)?;
    }
    Ok(socket)
}

/// Identifies a monotonic clock: the boot, and the time namespace, which may shift it
/// (`time_namespaces(7)`). Only a digest leaves the host. 0 where either cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "which clock the send times are of belongs to them; nobody else could supply it"
)]
fn clock_identity() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/time");
    let (Ok(boot), Ok(namespace)) = (boot, namespace) else {
        return 0;
    };
    let text = boot.into_iter();
    digest(text.chain(namespace.into_os_string().into_encoded_bytes()))
}

/// FNV-1a (Fowler, Noll, Vo), never 0.
fn digest(bytes: impl Iterator<Item = u8>) -> u64 {
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    hash.max(1)
}

impl Hello {
    fn bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&HELLO_MAGIC);
        bytes[4..6].copy_from_slice(&self.port.to_be_bytes());
        bytes[6..14].copy_from_slice(&self.secret.to_be_bytes());
        bytes[14..].copy_from_slice(&self.clock.to_be_bytes());
        bytes
    }

    /// The datagram that shows the way to this end.
    fn probe(self) -> [u8; PROBE_BYTES] {
        let mut bytes = [0; PROBE_BYTES];
        bytes[..4].copy_from_slice(&PROBE_MAGIC);
        bytes[4..].copy_from_slice(&self.secret.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let hello = Self {
            port: u16::from_be_bytes([bytes[4], bytes[5]]),
            secret: number(&bytes[6..14]),
            clock: number(&bytes[14..]),
        };
        (bytes[..4] == HELLO_MAGIC && hello.port != 0).then_some(hello)
    }
}

impl Report {
    fn bytes(self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        bytes[..4].copy_from_slice(&REPORT_MAGIC);
        bytes[4..12].copy_from_slice(&self.datagrams.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8; REPORT_BYTES]) -> Option<Self> {
        (bytes[..4] == REPORT_MAGIC).then(|| Self {
            datagrams: number(&bytes[4..12]),
            bytes: number(&bytes[12..]),
        })
    }

    /// Sends it on the companion of `flow`.
    pub(super) fn tell(self, flow: &Flow) -> Result<(), TrafficError> {
        tell(flow, &self.bytes())
    }
}

fn await_hello(
    flow: &Flow,
    data_thread: &DataThread<'_>,
    deadline: Instant,
) -> Result<Hello, TrafficError> {
    let bytes = await_words::<HELLO_BYTES>(flow, deadline, &data_thread.shared_state.abort)?;
    Hello::read(&bytes).ok_or(TrafficError::PeerGarbled { flow: flow.number })
}

/// A sender's companion after the start, as its receiver listens to it.
#[derive(Debug, Default)]
pub(super) struct Reporter(PartialMessage<REPORT_BYTES>);

impl Reporter {
    /// The report, when it is whole. `after` is the time since the start.
    pub(super) fn listen(
        &mut self,
        flow: &Flow,
        after: Duration,
    ) -> Result<Option<Report>, TrafficError> {
        let flow_number = flow.number;
        match self.0.hear(flow) {
            Word::Partial => Ok(None),
            Word::Whole(bytes) => Report::read(&bytes)
                .map(Some)
                .ok_or(TrafficError::PeerGarbled { flow: flow_number }),
            Word::Closed => Err(TrafficError::PeerClosed {
                flow: flow_number,
                after,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_as_they_were_written() {
        let hello = Hello {
            port: 40_000,
            secret: u64::MAX - 7,
            clock: 1,
        };
        assert_eq!(Hello::read(&hello.bytes()), Some(hello));
        let report = Report {
            datagrams: 1 << 40,
            bytes: 1 << 50,
        };
        assert_eq!(Report::read(&report.bytes()), Some(report));
    }

    #[test]
    fn other_words_are_refused() {
        let hello = Hello {
            port: 0,
            secret: 1,
            clock: 1,
        };
        assert_eq!(Hello::read(&hello.bytes()), None, "no port");
        assert_eq!(Hello::read(&[0x52; HELLO_BYTES]), None);
        assert_eq!(Report::read(&[0; REPORT_BYTES]), None);
    }

    #[test]
    fn a_clock_is_its_own_and_no_other() {
        assert_eq!(clock_identity(), clock_identity());
        assert_ne!(
            digest(b"one".iter().copied()),
            digest(b"two".iter().copied())
        );
    }
}
