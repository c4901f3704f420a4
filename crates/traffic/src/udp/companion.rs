//! Control messages between the two ends of a flow over its companion connection, and the UDP sockets that
//! they set up. All numbers are big endian. The peer has proved the token; its messages
//! are validated all the same.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use linerate_model::sample::Role;
use linerate_model::workload::TrialSpec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::check_waiting;
use crate::TrafficError;
use crate::sys::set_option;
use crate::tcp::Flow;
use crate::tcp::socket::set_buffers;
use crate::tcp::words::{
    PartialMessage, WORDS_MAX, Word, await_words, local_of, number, peer_of, random, tell,
    with_port,
};
use crate::trial::DataThread;
use crate::waiting::prepare_socket;

const HELLO_MAGIC: [u8; 4] = *b"LNRU";
/// Magic (4), port (2), secret (8), clock (8).
const HELLO_BYTES: usize = 22;
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
        let socket = bound(data_thread.spec, local)?;
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
    flows
        .zip(own)
        .map(|(flow, (socket, own))| {
            let theirs = await_hello(flow, data_thread, deadline)?;
            let peer = with_port(peer_of(&flow.socket)?, theirs.port);
            connect(&socket, &peer)
                .map_err(|errno| TrafficError::of_errno("connect a UDP socket", errno))?;
            Ok(Link {
                socket,
                is_ipv6: peer.is_ipv6(),
                secret: match flow.role {
                    Role::Receiver => own.secret,
                    Role::Sender => theirs.secret,
                },
                one_clock: clock != 0 && clock == theirs.clock,
            })
        })
        .collect()
}

fn bound(spec: &TrialSpec, local: SocketAddr) -> Result<OwnedFd, TrafficError> {
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
    bind(&socket, &local).map_err(|errno| TrafficError::of_errno("bind a UDP socket", errno))?;
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
