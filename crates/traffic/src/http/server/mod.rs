//! The server: each thread has its own listening socket, epoll instance and connections, so that
//! threads share nothing. A request takes one recv(2) and one send(2).
//!
//! It answers GET and HEAD of any path with a body of the requested size, keeps connections, and accepts
//! pipelined requests. Anything else is refused with the matching status (400, 405, 408, 413,
//! 431, 505), and the connection is closed. Answers have no `Date`: they are built once, before the first request.

mod answers;
mod connection;
mod worker;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::ports::PortRange;
use linerate_model::units::Bytes;
use linerate_model::workload::{Http, MemoryPolicy, Placement, TrialSpec, Waiting, Workload};
use rustix::io::Errno;
use rustix::net::{SendFlags, getpeername, getsockname, listen, send, sockopt};
use worker::Worker;

use super::{STACK_BYTES, companion_ends};
use crate::abort::{new_event, signal};
use crate::sys::pin_thread;
use crate::tcp::arrival::{bind_within, taken};
use crate::tcp::socket;
use crate::trial::{Counter, DataThread, WorkResult};
use crate::waiting::prepare_socket;
use crate::{Abort, TrafficError};

/// Connections that may wait to be accepted; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 16_384;

/// A server that anybody may load: wrk, curl, linerate.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listeners: Vec<OwnedFd>,
    cpus: CpuSet,
    body: Bytes,
    waiting: Waiting,
    /// Connections that all threads together hold at once.
    places: usize,
}

/// What a server has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests refused, those that came too slowly among them, and connections of an address that held its share
    /// of them.
    pub refused: u64,
    /// Bytes sent, heads included.
    pub bytes: Bytes,
}

impl Server {
    /// Listens on `address` (port 0: a free one) with `threads` threads, thread *i* on the *i*-th of `cpus`
    /// modulo their number. Every answer has a body of `body_bytes`; [`super::SOURCE_BODY`] makes it 151
    /// bytes in all.
    ///
    /// The threads listen on one port by `SO_REUSEPORT`, so a program of the same user may share it.
    pub fn open(
        address: SocketAddr,
        threads: u32,
        cpus: CpuSet,
        body_bytes: Bytes,
        waiting: Waiting,
    ) -> Result<Self, TrafficError> {
        let spec = TrialSpec {
            workload: Workload::Http(Http {
                path: "/".to_owned(),
                body_bytes,
                rate_per_s: None,
                server: None,
            }),
            threads: Some(threads),
            waiting,
            ..TrialSpec::default()
        };
        spec.check()?;
        super::check_waiting(waiting)?;
        // Without the option: a port that another program holds must not be shared with it.
        drop(listening(&spec, address, None, false)?);
        let first = listening(&spec, address, None, true)?;
        let address = local_address(&first)?;
        let mut listeners = vec![first];
        for _ in 1..threads {
            listeners.push(listening(&spec, address, None, true)?);
        }
        Ok(Self {
            address,
            listeners,
            cpus,
            body: body_bytes,
            waiting,
            places: crate::tcp::room_for_clients()?,
        })
    }

    /// Holds at most `connections` at once, when that is fewer than the limit of file descriptors allows. One address
    /// (of IPv6 one /64 network) gets three quarters of them at most.
    #[must_use]
    pub fn holding_at_most(mut self, connections: usize) -> Self {
        self.places = self.places.min(connections);
        self
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `abort` is triggered.
    pub fn serve(self, abort: &Abort) -> Result<Served, TrafficError> {
        let Self {
            listeners,
            cpus,
            body,
            waiting,
            places,
            ..
        } = self;
        let places = (places / listeners.len()).max(1);
        // One that fails takes the others with it: half a server would be measured as a whole one.
        let failed = new_event()?;
        let work = |listener: OwnedFd, cpu: Option<CpuId>| -> Result<Served, TrafficError> {
            if let Some(cpu) = cpu {
                pin_thread(&CpuSet::one(cpu)).map_err(|errno| match errno {
                    Errno::INVAL => TrafficError::NoSuchCpu { cpu },
                    _ => TrafficError::of_errno("pin a thread", errno),
                })?;
            }
            let mut worker = Worker::new(listener, None, body, &MemoryPolicy::Default, waiting)?
                .shared_out(places);
            worker.serve(&[abort, &failed], 1, &Counter::default())?;
            Ok(worker.served())
        };
        let work = |listener, cpu| work(listener, cpu).inspect_err(|_| signal(&failed));
        thread::scope(|scope| {
            let mut threads = Vec::new();
            let mut outcome = Ok(Served::default());
            for (index, listener) in listeners.into_iter().enumerate() {
                let cpu = Placement::cpu_of(&cpus, index);
                let builder = thread::Builder::new().name(format!("linerate-http-{index}"));
                match builder
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || work(listener, cpu))
                {
                    Ok(thread) => threads.push(thread),
                    Err(source) => {
                        signal(&failed);
                        outcome = Err(TrafficError::OutOfThreads { source });
                        break;
                    }
                }
            }
            for thread in threads {
                let one = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and_then(|sum| one.map(|one| sum.and(one)));
            }
            outcome
        })
    }
}

impl Served {
    fn and(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            requests: self.requests + other.requests,
            refused: self.refused + other.refused,
            bytes: Bytes::new(self.bytes.as_u64() + other.bytes.as_u64()),
        }
    }
}

/// Runs on a thread of a trial's server: it has its own port for the client's thread at the other end of
/// its companion, so that the connections are distributed evenly among the threads and not by a hash.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    http: &Http,
) -> Result<Option<WorkResult>, TrafficError> {
    let companions = data_thread.flows.clone();
    let first = companions[0];
    let socket = &first.flow.socket;
    let failed = |errno| TrafficError::of_errno("read a companion's address", errno);
    let mut address = local_address(socket)?;
    let peer = getpeername(socket)
        .map_err(failed)?
        .and_then(|peer| SocketAddr::try_from(peer).ok())
        .map(|peer| peer.ip());
    address.set_port(0);
    let ports = first.flow.ports;
    let listener = listening(data_thread.spec, address, ports, false)?;
    let port = local_address(&listener)?.port();
    let mut worker = Worker::new(
        listener,
        peer,
        http.body_bytes,
        data_thread.memory(),
        data_thread.spec.waiting,
    )?;
    for companion in &companions {
        let sent = send(
            &companion.flow.socket,
            &port.to_be_bytes(),
            SendFlags::NOSIGNAL,
        );
        if sent != Ok(2) {
            return Err(TrafficError::PeerClosed {
                flow: companion.flow.number,
                after: Duration::ZERO,
            });
        }
    }
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let ends: Vec<&dyn AsFd> = (companions.iter())
        .map(|companion| &companion.flow.socket as &dyn AsFd)
        .collect();
    // The last thread of the client to close its companion ends the trial here.
    worker.serve(&ends, ends.len(), first.counter)?;
    let ended = Instant::now();
    if !data_thread.is_time(start, ended) {
        return Err(TrafficError::PeerClosed {
            flow: first.flow.number,
            after: ended.duration_since(start.at),
        });
    }
    let served = worker.served();
    Ok(Some(WorkResult {
        flows: companion_ends(companions.len(), served.bytes.as_u64(), ended, start),
        operations: None,
        memory_node: worker.memory().node(),
    }))
}

fn local_address(socket: &OwnedFd) -> Result<SocketAddr, TrafficError> {
    getsockname(socket)
        .and_then(SocketAddr::try_from)
        .map_err(|errno| TrafficError::of_errno("read a socket's address", errno))
}

/// A listening socket; what it accepts has its options (tcp(7)).
fn listening(
    spec: &TrialSpec,
    address: SocketAddr,
    ports: Option<PortRange>,
    shared: bool,
) -> Result<OwnedFd, TrafficError> {
    let socket = socket::new(spec, address)?;
    let failed = |errno| TrafficError::of_errno("prepare the listening socket", errno);
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    sockopt::set_socket_reuseport(&socket, shared).map_err(failed)?;
    sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false).map_err(failed)?;
    }
    prepare_socket(&socket, spec.waiting)?;
    bind_within(&socket, address, ports).map_err(|errno| match errno {
        Errno::ADDRINUSE => taken(address, ports),
        Errno::ADDRNOTAVAIL => TrafficError::NoSuchAddress { address },
        _ => TrafficError::of_bind("bind the HTTP port", errno),
    })?;
    listen(&socket, BACKLOG).map_err(|errno| match errno {
        Errno::ADDRINUSE => TrafficError::PortInUse { address },
        _ => TrafficError::of_errno("listen", errno),
    })?;
    Ok(socket)
}
