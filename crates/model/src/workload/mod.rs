//! The workload of a trial and the placement of its threads. Declarative and plain; `linerate-traffic` runs it.

mod block;
mod check;
mod diffusion;
mod marks;
mod placement;
mod probe;
mod verbs;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use block::Block;
pub use check::SpecError;
pub use diffusion::Diffusion;
pub use marks::Marks;
pub use placement::Placement;
pub use probe::{Answers, Probe};

pub use crate::memory_policy::MemoryPolicy;
pub use verbs::{Connect, DeviceChoice, Rdma, Registration, Service, Verb, Verbs};

use crate::end::End;
use crate::units::{BitRate, Bytes, Nanoseconds};

/// The direction of the data, seen from the host that linerate was started on. For request workloads the sender is
/// the requesting end: with `Reverse` the peer sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From this host to the peer.
    Forward,
    /// From the peer to this host.
    Reverse,
    /// Both at once: `flows` flows in each direction.
    Bidirectional,
}

/// One trial: the options common to every workload, and the workload itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialSpec {
    /// What is moved.
    #[serde(default)]
    pub workload: Workload,
    /// Connections (pairs, of `transfer` and `diffusion`) in each direction that carries data.
    pub flows: u32,
    /// The direction of the data.
    pub direction: Direction,
    /// The duration of the transfer, including warm-up. A workload with a fixed amount (`bytes`, `repetitions`) ends
    /// when that is done, and at the latest after this time.
    pub duration_ns: Nanoseconds,
    /// This much of the start is excluded from the rate, besides the warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omit_ns: Option<Nanoseconds>,
    /// The interval between counter readings.
    pub interval_ns: Nanoseconds,
    /// The size of each `send` and `recv` of bulk data.
    pub buffer_bytes: Bytes,
    /// `SO_SNDBUF`/`SO_RCVBUF`; `None` leaves the kernel's autotuning on.
    pub socket_buffer_bytes: Option<Bytes>,
    /// The congestion control of these connections; `None` is the host's default.
    pub congestion_control: Option<String>,
    /// The placement of threads and buffers.
    pub placement: Placement,
    /// Data threads of each role at this end; the flows are distributed round-robin. `None` is one thread for each
    /// flow, up to the limit of [`TrialSpec::threads`].
    #[serde(default)]
    pub threads: Option<u32>,
    /// The same at the other end; `None` is as many as at this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_remote: Option<u32>,
    /// How a thread of this end waits for its sockets.
    #[serde(default)]
    pub waiting: Waiting,
    /// How a thread of the other end does; `None` is as at this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_remote: Option<Waiting>,
    /// `TCP_MAXSEG`.
    #[serde(default)]
    pub mss_bytes: Option<Bytes>,
    /// `SO_MAX_PACING_RATE` of each flow.
    #[serde(default)]
    pub pacing_bit_per_s: Option<BitRate>,
    /// The marks of its packets.
    #[serde(default, skip_serializing_if = "Marks::is_none")]
    pub marks: Marks,
    /// The sampling rate per CPU and second for a profile of both ends; `None` is no profile.
    #[serde(default)]
    pub profile_hz: Option<u32>,
    /// Both ends transfer and count bytes but do not read their machines' counters: used to measure the cost of
    /// recording.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrecorded: bool,
    /// Both ends record what happens to their network during the trial: links, bonds, routes, neighbors, VRRP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events: bool,
    /// The payload goes over RDMA verbs instead of sockets; always set for the workloads that measure verbs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<Verbs>,
}

impl Default for TrialSpec {
    /// A stream of one flow forward for ten seconds, with defaults for everything else.
    fn default() -> Self {
        Self {
            workload: Workload::default(),
            flows: 1,
            direction: Direction::Forward,
            duration_ns: Nanoseconds::from_millis(10_000),
            interval_ns: Nanoseconds::from_millis(100),
            buffer_bytes: Bytes::kib(128),
            socket_buffer_bytes: None,
            congestion_control: None,
            placement: Placement::default(),
            threads: None,
            threads_remote: None,
            waiting: Waiting::default(),
            waiting_remote: None,
            mss_bytes: None,
            pacing_bit_per_s: None,
            marks: Marks::default(),
            profile_hz: None,
            omit_ns: None,
            unrecorded: false,
            events: false,
            verbs: None,
        }
    }
}

impl TrialSpec {
    /// The maximum number of flows of a trial.
    pub const FLOWS_MAX: u32 = 10_000;
    /// The maximum number of data threads of a role at one end.
    pub const THREADS_MAX: u32 = 1_024;

    /// The data threads of each role at this end.
    pub fn threads(&self) -> u32 {
        self.up_to_flows(self.threads)
    }

    /// The data threads of each role at the other end.
    pub fn threads_remote(&self) -> u32 {
        self.up_to_flows(self.threads_remote.or(self.threads))
    }

    fn up_to_flows(&self, threads: Option<u32>) -> u32 {
        let most = self.flows.min(Self::THREADS_MAX);
        threads.unwrap_or(most).clamp(1, most.max(1))
    }

    /// How the data threads of `end` wait, in the spec of the local end.
    pub fn waiting_at(&self, end: End) -> Waiting {
        match end {
            End::Local => self.waiting,
            End::Remote => self.waiting_remote.unwrap_or(self.waiting),
        }
    }

    /// The trial as the other end runs it: its threads and how they wait are what this end calls remote.
    #[must_use]
    pub fn at_other_end(&self) -> Self {
        Self {
            threads: self.threads_remote.or(self.threads),
            threads_remote: self.threads_remote.and(self.threads),
            waiting: self.waiting_remote.unwrap_or(self.waiting),
            waiting_remote: self.waiting_remote.map(|_| self.waiting),
            ..self.clone()
        }
    }

    /// Whether the remote end connects to this one: it sends the requests, by connections of its own.
    pub fn remote_connects(&self) -> bool {
        let has_own = match &self.workload {
            Workload::Rr(rr) => rr.connect_each,
            Workload::Http(_) => true,
            _ => false,
        };
        has_own && self.direction != Direction::Forward
    }

    /// The transport that carries the payload.
    pub fn transport(&self) -> &'static str {
        match (&self.verbs, &self.workload) {
            (Some(_), _) => "verbs",
            (None, Workload::Block(_)) => "io_uring",
            (None, Workload::Udp(_)) => "udp",
            (None, _) => "tcp",
        }
    }
}

/// The workload, with its own options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Bulk TCP.
    Stream(Stream),
    /// Requests and responses.
    Rr(Rr),
    /// Ping-pong messages, over a sweep of sizes.
    Pingpong(Pingpong),
    /// HTTP/1.1.
    Http(Http),
    /// Announce, fetch, go, return, done (source 001): a buffer transferred both ways.
    Transfer(Transfer),
    /// The same with a step of the heat equation in between (source 001).
    Diffusion(Diffusion),
    /// Datagrams.
    Udp(Udp),
    /// RDMA verbs.
    Rdma(Rdma),
    /// Reads of a block device, without a second end.
    Block(Block),
}

impl Default for Workload {
    fn default() -> Self {
        Self::Stream(Stream::default())
    }
}

impl Workload {
    /// Its name on the command line and in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stream(_) => "stream",
            Self::Rr(_) => "rr",
            Self::Pingpong(_) => "pingpong",
            Self::Http(_) => "http",
            Self::Transfer(_) => "transfer",
            Self::Diffusion(_) => "diffusion",
            Self::Udp(_) => "udp",
            Self::Rdma(rdma) => rdma.verb.workload(),
            Self::Block(_) => "block",
        }
    }

    /// Whether it has a fixed amount, so that the trial's duration is only a limit.
    pub fn ends_by_itself(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.bytes.is_some(),
            Self::Transfer(transfer) => transfer.repetitions.is_some(),
            Self::Diffusion(diffusion) => diffusion.repetitions.is_some(),
            Self::Rdma(rdma) => rdma.repetitions.is_some(),
            Self::Pingpong(_) => true,
            Self::Rr(_) | Self::Http(_) | Self::Udp(_) | Self::Block(_) => false,
        }
    }

    /// Whether only the posting end knows what arrived: the other end's memory is read and written without its
    /// program.
    pub fn is_one_sided(&self) -> bool {
        matches!(self, Self::Rdma(rdma) if rdma.verb != Verb::Send)
    }

    /// Whether it runs on one host alone: no peer is asked for it.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Block(_))
    }

    /// Whether its rate changes by design, from one size to the next.
    pub fn is_sweep(&self) -> bool {
        matches!(self, Self::Rdma(rdma) if rdma.sizes.len() > 1)
    }

    /// Whether it is a one-way bulk transfer, so that a rate and its limit are the result.
    pub fn is_bulk(&self) -> bool {
        match self {
            Self::Stream(_) | Self::Udp(_) => true,
            Self::Rdma(rdma) => !rdma.latency,
            _ => false,
        }
    }
}

/// The options of `stream`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// How payload is passed to the kernel.
    #[serde(default)]
    pub send: SendMode,
    /// How payload is read from the kernel.
    #[serde(default)]
    pub receive: ReceiveMode,
    /// The total amount of all flows of a direction; `None` is no limit.
    #[serde(default)]
    pub bytes: Option<Bytes>,
    /// Every received byte is verified; the cost is included in the rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub data_check: bool,
}

/// The options of `rr`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rr {
    /// The size of a request.
    pub request_bytes: Bytes,
    /// The size of a response.
    pub response_bytes: Bytes,
    /// Requests in flight on each connection.
    pub depth: u32,
    /// A new connection for each request.
    pub connect_each: bool,
    /// Open loop: requests start at this total rate of all flows, independent of the responses, and latency counts
    /// from the intended start. `None` is closed loop.
    pub rate_per_s: Option<u64>,
}

/// The options of `pingpong`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pingpong {
    /// The message sizes, in order.
    pub sizes: Vec<Bytes>,
    /// The repetitions for small sizes; fewer for large ones, as in IMB: at most `volume_bytes` per size, at least 10
    /// times.
    pub repetitions: u32,
    /// The maximum number of bytes per size, in each direction.
    #[serde(default = "Pingpong::imb_volume")]
    pub volume_bytes: Bytes,
    /// Every round trip has different content, and both ends verify every byte.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub data_check: bool,
}

impl Pingpong {
    /// The message sizes of IMB-MPI1 PingPong: 0, and the powers of two to 4 MiB.
    pub fn imb_sizes() -> Vec<Bytes> {
        std::iter::once(Bytes::new(0))
            .chain((0..=22).map(|power| Bytes::new(1 << power)))
            .collect()
    }

    /// The maximum number of bytes per size in IMB-MPI1.
    pub const fn imb_volume() -> Bytes {
        Bytes::mib(40)
    }

    /// The repetitions of a message of `size`.
    pub fn repetitions_of(&self, size: Bytes) -> u32 {
        let by_volume = self.volume_bytes.as_u64() / size.as_u64().max(1);
        let by_volume = u32::try_from(by_volume).unwrap_or(u32::MAX).max(10);
        self.repetitions.min(by_volume)
    }
}

/// The options of `http`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The requested path.
    pub path: String,
    /// The size of a response's body (of our own server).
    pub body_bytes: Bytes,
    /// Open loop: requests start at this total rate of all connections. `None` is closed loop.
    pub rate_per_s: Option<u64>,
    /// Another program answers the requests, at the address of the receiving end; `None` is linerate's own server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<OtherServer>,
}

/// An HTTP server that is not linerate's own. The requesting end connects to no other address than that of the other
/// end, so that nobody can point an agent at a third host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherServer {
    /// The port that it listens on.
    pub port: u16,
    /// The `Host` of the requests.
    pub host: String,
}

/// The options of `transfer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The size of the buffer that is transferred both ways.
    pub bytes: Bytes,
    /// The repetitions; `None` is no limit.
    pub repetitions: Option<u64>,
    /// Both ends verify every byte; the cost is not included in the times.
    pub data_check: bool,
}

/// The options of `udp`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// The payload of a datagram, including linerate's header (24 bytes).
    pub datagram_bytes: Bytes,
    /// The rate of each flow; `None` is unlimited.
    pub rate_bit_per_s: Option<BitRate>,
    /// How datagrams are passed to and from the kernel.
    pub batch: DatagramBatch,
    /// They are probes of a path that may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// How payload is passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SendMode {
    /// send(2): the kernel copies.
    #[default]
    Write,
    /// `MSG_ZEROCOPY` (Documentation/networking/msg_zerocopy.rst).
    Zerocopy,
    /// sendfile(2) from a memory file.
    Sendfile,
    /// splice(2) through a pipe that holds pages of the buffer (vmsplice).
    Splice,
    /// io_uring's send.
    Uring,
    /// io_uring's zero-copy send from a registered buffer.
    UringZerocopy,
}

/// How payload is read from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMode {
    /// recv(2): the kernel copies.
    #[default]
    Read,
    /// `MSG_TRUNC`: the kernel discards the payload without a copy (tcp(7)); an upper bound for receiving.
    Trunc,
    /// `TCP_ZEROCOPY_RECEIVE`: whole pages are mapped, the rest is copied.
    Zerocopy,
    /// io_uring's multishot receive into provided buffers.
    Uring,
}

/// How a data thread waits for its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// One connection per thread: blocking calls. Several: epoll_wait(2) without a timeout.
    #[default]
    Blocking,
    /// epoll_wait(2) without a timeout, also for a single connection.
    Epoll,
    /// Busy polling: never sleeps (epoll_wait with a timeout of 0, or nonblocking calls on the socket).
    Spin,
    /// The kernel busy-polls the device's queue for this many microseconds before sleeping (`SO_BUSY_POLL`,
    /// `SO_PREFER_BUSY_POLL`, and `EPIOCSPARAMS` of the epoll instance if the kernel has it).
    BusyPoll(u32),
    /// io_uring_enter(2).
    Uring,
    /// io_uring with a kernel thread that polls the submission queue (`IORING_SETUP_SQPOLL`).
    UringSqpoll,
}

/// How datagrams are passed to and from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DatagramBatch {
    /// One system call for each datagram.
    Single,
    /// sendmmsg(2) and recvmmsg(2).
    Mmsg,
    /// `UDP_SEGMENT` and `UDP_GRO` in sendmmsg(2) and recvmmsg(2): the kernel segments and coalesces.
    #[default]
    Gso,
}

macro_rules! words {
    ($kind:ty: $($value:pat => $word:literal),+ $(,)?) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $word),+ })
            }
        }
    };
}

words!(SendMode:
    Self::Write => "write", Self::Zerocopy => "zerocopy", Self::Sendfile => "sendfile",
    Self::Splice => "splice", Self::Uring => "uring", Self::UringZerocopy => "uring-zerocopy",
);
words!(ReceiveMode:
    Self::Read => "read", Self::Trunc => "trunc", Self::Zerocopy => "zerocopy", Self::Uring => "uring",
);
words!(DatagramBatch:
    Self::Single => "single", Self::Mmsg => "mmsg", Self::Gso => "gso",
);

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocking => f.write_str("blocking"),
            Self::Epoll => f.write_str("epoll"),
            Self::Spin => f.write_str("spin"),
            Self::BusyPoll(micros) => write!(f, "busy-poll:{micros}"),
            Self::Uring => f.write_str("uring"),
            Self::UringSqpoll => f.write_str("uring-sqpoll"),
        }
    }
}
