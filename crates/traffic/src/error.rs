//! Errors of the traffic engine: the operation, its object, the cause, and what to do.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_model::block::BlockSpecError;
use linerate_model::ids::CpuId;
use linerate_model::ports::PortRange;
use linerate_model::protocol::{Failure, FailureKind};
use linerate_model::units::Bytes;
use linerate_model::workload::{SpecError, Waiting};
use linerate_verbs::{Status, VerbsError};
use rustix::io::Errno;

/// Why a trial could not be prepared or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The specification is outside its limits.
    #[error("cannot carry out this trial: {0}")]
    Spec(#[from] SpecError),
    /// The address to listen on is not valid.
    #[error(
        "cannot listen on `{given}`: expected an IP address, with a port if it must be a certain \
         one, such as `10.0.0.1` or `[::1]:5201`"
    )]
    BindAddress {
        /// The text as it was given.
        given: String,
    },
    /// The address is not one of this host's.
    #[error("cannot listen on {address}: this host (or network namespace) has no such address")]
    NoSuchAddress {
        /// The address.
        address: SocketAddr,
    },
    /// Another program listens on this port.
    #[error(
        "cannot listen on {address}: the port is in use; end the program that holds it (`ss -ltnp`) \
         or let linerate choose the port"
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
    },
    /// Every port of the permitted range is taken.
    #[error(
        "cannot listen: no free port in {ports} (`--data-ports` of the agent); one is needed for each flow or thread"
    )]
    PortsTaken {
        /// The range.
        ports: PortRange,
    },
    /// The peer's kernel reported that nothing is listening.
    #[error("cannot connect to {address}: connection refused; nothing is listening there")]
    Refused {
        /// The address.
        address: SocketAddr,
    },
    /// No answer, or not all connections arrived in time.
    #[error(
        "cannot connect to {address}: no answer within {waited_s:.1} s; a firewall may drop the data \
         port, or the peer cannot be reached at this address", waited_s = .waited.as_secs_f64()
    )]
    ConnectTimeOut {
        /// The address.
        address: SocketAddr,
        /// How long was waited.
        waited: Duration,
    },
    /// No route, or the network rejected the connection.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The listener closed the connection instead of accepting it.
    #[error(
        "cannot start the data connections: {address} refused the token; another trial or another \
         program listens there, or the peer gave up"
    )]
    TokenRefused {
        /// The address.
        address: SocketAddr,
    },
    /// The connections did not all arrive.
    #[error(
        "{arrived} of {expected} data connections arrived within {waited_s:.1} s; a firewall may drop \
         the data port {port}", waited_s = .waited.as_secs_f64()
    )]
    AcceptTimeOut {
        /// How many arrived.
        arrived: usize,
        /// How many were expected.
        expected: usize,
        /// How long was waited.
        waited: Duration,
        /// The port listened on.
        port: u16,
    },
    /// No datagram arrives at the peer.
    #[error(
        "no datagram has reached {address} within {waited_s:.1} s; a firewall may drop UDP port {}", .address.port(), waited_s = .waited.as_secs_f64()
    )]
    NoDatagrams {
        /// Where they were sent.
        address: SocketAddr,
        /// How long was waited.
        waited: Duration,
    },
    /// The peer connected but did not start.
    #[error("the peer did not start the trial within {waited_s:.1} s", waited_s = .waited.as_secs_f64())]
    StartTimeOut {
        /// How long was waited.
        waited: Duration,
    },
    /// The connection ended before its time.
    #[error(
        "the peer closed the connection of flow {flow} early, {after:.3?} after the start; it was \
         interrupted or died"
    )]
    PeerClosed {
        /// The flow.
        flow: u32,
        /// When, since this end's start.
        after: Duration,
    },
    /// The peer sent an invalid answer.
    #[error(
        "cannot {doing}: unexpected answer from the peer; both ends must run the same version of linerate"
    )]
    Misunderstood {
        /// What was being done.
        doing: &'static str,
    },
    /// Data was still outstanding long after the end.
    #[error(
        "flow {flow} was still open {grace_s:.1} s after the end of the trial: the peer vanished, or the \
         path needs longer than that to drain the socket buffers (use smaller ones)", grace_s = .grace.as_secs_f64()
    )]
    Overdue {
        /// The flow.
        flow: u32,
        /// How long was waited after the end.
        grace: Duration,
    },
    /// The peer transferred a different amount than the trial requires.
    #[error("flow {flow} received {given}, expected {expected}: the peer runs a different trial")]
    Amount {
        /// The flow.
        flow: u32,
        /// The expected amount.
        expected: Bytes,
        /// What arrived.
        given: Bytes,
    },
    /// The peer's kernel, or a firewall, sent datagrams back.
    #[error(
        "the datagrams of flow {flow} were refused {after:.3?} after the start (ICMP port \
         unreachable): a firewall between the hosts rejects UDP, or the peer closed its socket"
    )]
    DatagramsRefused {
        /// The flow.
        flow: u32,
        /// When, since this end's start.
        after: Duration,
    },
    /// The remote end violates linerate's protocol.
    #[error(
        "unexpected data from the peer on the connection of flow {flow}: the remote end is another \
         program or another version of linerate"
    )]
    PeerGarbled {
        /// The flow.
        flow: u32,
    },
    /// This kernel does not support the request, or not this combination.
    #[error("cannot {what}: {why}")]
    NotSupported {
        /// The request.
        what: String,
        /// Why it is not there.
        why: String,
    },
    /// This kernel supports it, but does not permit it for this user.
    #[error("cannot {what}: {why}")]
    NotPermitted {
        /// The request.
        what: String,
        /// Who forbids it.
        why: String,
    },
    /// The limit of file descriptors is below the number of connections.
    #[error(
        "cannot open these data connections: {needed} file descriptors are needed and the limit is \
         {limit}; raise it (`ulimit -n {needed}` in the shell that starts linerate, LimitNOFILE= of a \
         service) or use fewer flows"
    )]
    FileLimit {
        /// How many this process needs.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The peer violated the workload's protocol.
    #[error(
        "the peer sent {what} on flow {flow}: it is not linerate, it is another version, or the data was \
         corrupted in transit"
    )]
    Unasked {
        /// The flow.
        flow: u32,
        /// What came.
        what: &'static str,
    },
    /// A received byte differs from the one sent.
    #[error(
        "byte {at} of repetition {repetition} of flow {flow} arrived as {found:#04x} but was sent as \
         {expected:#04x}: data was corrupted in memory, by a device or in transit"
    )]
    WrongByte {
        /// The flow.
        flow: u32,
        /// Which buffer, from 0.
        repetition: u64,
        /// Where in the buffer, from 0.
        at: u64,
        /// What was sent.
        expected: u8,
        /// What arrived.
        found: u8,
    },
    /// The address of the server to load is invalid.
    #[error("cannot load `{given}`: {why}; expected a URL such as `http://10.0.0.1:8080/path`")]
    Target {
        /// The text as it was given.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name of the server to load cannot be resolved.
    #[error("cannot find the address of `{host}`: {source}")]
    Lookup {
        /// The name.
        host: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// The workload does not support this waiting mode.
    #[error(
        "cannot wait by `{waiting}` in `{workload}`: use `blocking`, `epoll`, `spin` or `busy-poll`"
    )]
    Waiting {
        /// How it was to wait.
        waiting: Waiting,
        /// The workload.
        workload: &'static str,
    },
    /// A remote end that speaks iperf3's protocol refused, or violated the protocol.
    #[error("iperf3 at {address}: {source}")]
    Iperf3 {
        /// Its address.
        address: SocketAddr,
        /// What was wrong.
        source: crate::iperf3_protocol::TalkError,
    },
    /// RDMA is not available, or was refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A work request failed.
    #[error("cannot {doing} on flow {flow} over {device}: {status}")]
    WorkRequest {
        /// What was being done.
        doing: &'static str,
        /// The flow.
        flow: u32,
        /// The device of this end.
        device: String,
        /// How it ended.
        status: Status,
    },
    /// A work request could not be posted.
    #[error("cannot post a work request on {device}: {errno}")]
    Post {
        /// The device of this end.
        device: String,
        /// The reason.
        errno: Errno,
    },
    /// A device reported an event during a trial.
    #[error("the RDMA device {device} reported an event during the trial: {what}")]
    DeviceEvent {
        /// The device of this end.
        device: String,
        /// The library's text.
        what: String,
    },
    /// Not one of the datagrams was answered.
    #[error(
        "none of {sent} datagrams was answered within {waited_s:.1} s: the path drops them (a firewall on \
         UDP port 4791, a wrong GID or VLAN) or takes longer than that", waited_s = .waited.as_secs_f64()
    )]
    NoneAnswered {
        /// How many went.
        sent: u64,
        /// How long the answer to each was waited for.
        waited: Duration,
    },
    /// The workload is not implemented yet.
    #[error("this workload is not implemented yet")]
    NotBuilt,
    /// The trial was aborted from outside.
    #[error("the trial was aborted")]
    Aborted,
    /// The thread cannot run there.
    #[error(
        "cannot run a thread on CPU {cpu}: it does not exist, is offline, or is outside this \
         process's cpuset (`taskset -p` and /proc/self/status say which are allowed)"
    )]
    NoSuchCpu {
        /// The CPU.
        cpu: CpuId,
    },
    /// The kernel does not have this congestion control.
    #[error(
        "the congestion control `{name}` is not available: \
         /proc/sys/net/ipv4/tcp_available_congestion_control lists those that are; its module may \
         have to be loaded"
    )]
    CongestionControlMissing {
        /// Its name.
        name: String,
    },
    /// The kernel supports it, but does not permit it for this user.
    #[error(
        "the congestion control `{name}` is not permitted without CAP_NET_ADMIN: \
         /proc/sys/net/ipv4/tcp_allowed_congestion_control lists those that are"
    )]
    CongestionControlDenied {
        /// Its name.
        name: String,
    },
    /// The kernel granted a smaller socket buffer than requested.
    #[error(
        "cannot set a socket buffer of {asked}: the kernel granted {given}; raise {sysctl} or use a smaller one"
    )]
    SocketBuffer {
        /// The requested size.
        asked: Bytes,
        /// What the kernel gave.
        given: Bytes,
        /// The sysctl that limits it.
        sysctl: &'static str,
    },
    /// A block device failed an operation.
    #[error("cannot {doing} {block} at byte {offset} of the device: {why}")]
    BlockOperation {
        /// `read` or `write`.
        doing: &'static str,
        /// The size of the operation.
        block: Bytes,
        /// Where.
        offset: u64,
        /// The kernel's reason, or how much of it was done.
        why: String,
    },
    /// The trial of a block device is outside its limits.
    #[error("cannot measure the device: {0}")]
    BlockSpec(#[from] BlockSpecError),
    /// Over the limit of locked memory, against which the kernel counts rings and registered buffers.
    #[error(
        "cannot {doing}: over the limit of locked memory, which all programs of a user share; raise it \
         (`ulimit -l`), or use fewer flows, smaller buffers or a smaller depth"
    )]
    LockedMemory {
        /// What was being done.
        doing: &'static str,
    },
    /// Out of file descriptors.
    #[error("cannot {doing}: out of file descriptors; raise the limit (`ulimit -n`)")]
    OutOfFiles {
        /// What was being done.
        doing: &'static str,
    },
    /// Out of memory.
    #[error("cannot {doing}: out of memory; use fewer flows or smaller buffers")]
    OutOfMemory {
        /// What was being done.
        doing: &'static str,
    },
    /// No thread could be started.
    #[error("cannot start a data thread: {source}; the process limit may be reached (`ulimit -u`)")]
    OutOfThreads {
        /// The kernel's reason.
        source: io::Error,
    },
    /// Any other answer of the kernel.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// What was being done.
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl TrafficError {
    /// This kernel cannot `what`, because `why`.
    pub(crate) fn not_supported(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::NotSupported {
            what: what.into(),
            why: why.into(),
        }
    }

    /// The error for `errno` while `doing`; cases that a user can fix have their own variants.
    pub(crate) fn of_errno(doing: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE => Self::OutOfFiles { doing },
            Errno::NOMEM | Errno::NOBUFS => Self::OutOfMemory { doing },
            _ => Self::Kernel {
                doing,
                source: errno.into(),
            },
        }
    }

    /// The error for `errno` while binding a port. The kernel reserves the low ones (ip(7), `ip_unprivileged_port_start`).
    pub(crate) fn of_bind(doing: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::ACCESS => Self::NotPermitted {
                what: doing.to_owned(),
                why: "a port below net.ipv4.ip_unprivileged_port_start needs CAP_NET_BIND_SERVICE"
                    .to_owned(),
            },
            _ => Self::of_errno(doing, errno),
        }
    }

    /// The error of the kernel's refusal to `what`, which needs something that not every kernel has.
    pub(crate) fn refused(what: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::NOPROTOOPT
            | Errno::INVAL
            | Errno::NODEV
            | Errno::NOTTY => Self::NotSupported {
                what: what.to_owned(),
                why: format!("this kernel does not support it ({errno})"),
            },
            Errno::PERM | Errno::ACCESS => Self::NotPermitted {
                what: what.to_owned(),
                why: format!("this system does not permit it ({errno})"),
            },
            _ => Self::of_errno(what, errno),
        }
    }

    /// The error of the kernel's refusal to set up an io_uring or to register something with it (io_uring_setup(2),
    /// io_uring_register(2)): without CAP_IPC_LOCK what it maps is locked memory.
    pub(crate) fn of_io_uring(doing: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NOMEM => Self::LockedMemory { doing },
            _ => Self::refused(doing, errno),
        }
    }

    /// The kind of failure, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Iperf3 { source, .. } => source.kind(),
            Self::Verbs(error) => kind_of_verbs(error),
            Self::Spec(_)
            | Self::BlockSpec(_)
            | Self::BindAddress { .. }
            | Self::Target { .. }
            | Self::NoSuchAddress { .. }
            | Self::NoSuchCpu { .. } => FailureKind::BadInput,
            Self::PortInUse { .. }
            | Self::PortsTaken { .. }
            | Self::FileLimit { .. }
            | Self::LockedMemory { .. }
            | Self::OutOfFiles { .. }
            | Self::OutOfMemory { .. }
            | Self::Post { .. }
            | Self::DeviceEvent { .. }
            | Self::OutOfThreads { .. } => FailureKind::Resource,
            Self::ConnectTimeOut { .. }
            | Self::AcceptTimeOut { .. }
            | Self::NoDatagrams { .. }
            | Self::StartTimeOut { .. }
            | Self::Overdue { .. }
            | Self::NoneAnswered { .. }
            | Self::WorkRequest {
                status: Status::NoAnswer,
                ..
            } => FailureKind::TimeOut,
            Self::NotBuilt
            | Self::Waiting { .. }
            | Self::NotSupported { .. }
            | Self::CongestionControlMissing { .. }
            | Self::SocketBuffer { .. } => FailureKind::NotSupported,
            Self::CongestionControlDenied { .. } | Self::NotPermitted { .. } => {
                FailureKind::Permission
            }
            Self::Refused { .. } | Self::Unreachable { .. } | Self::Lookup { .. } => {
                FailureKind::Unreachable
            }
            Self::TokenRefused { .. }
            | Self::Misunderstood { .. }
            | Self::Amount { .. }
            | Self::Unasked { .. }
            | Self::WrongByte { .. }
            | Self::PeerGarbled { .. }
            | Self::DatagramsRefused { .. }
            | Self::BlockOperation { .. }
            | Self::WorkRequest { .. }
            | Self::Kernel { .. } => FailureKind::Other,
            Self::PeerClosed { .. } | Self::Aborted => FailureKind::Broken,
        }
    }
}

/// As sent to the other end and shown to a person.
impl From<&TrafficError> for Failure {
    fn from(error: &TrafficError) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

fn kind_of_verbs(error: &VerbsError) -> FailureKind {
    match error {
        VerbsError::LibraryMissing { .. }
        | VerbsError::StaticBuild { .. }
        | VerbsError::FunctionMissing { .. }
        | VerbsError::NoDevice
        | VerbsError::ModuleMissing { .. }
        | VerbsError::ProviderMissing { .. }
        | VerbsError::NodeMissing { .. }
        | VerbsError::NotSupported { .. } => FailureKind::NotSupported,
        VerbsError::NoSuchDevice { .. } => FailureKind::BadInput,
        _ if error.is_permission() => FailureKind::Permission,
        _ if error.is_resource() => FailureKind::Resource,
        VerbsError::Refused { .. } | VerbsError::Manager { .. } => FailureKind::Other,
    }
}
