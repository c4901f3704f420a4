//! The client: each thread has its own epoll instance and connections. An operation takes one send(2)
//! and one recv(2), and one read of the clock.

mod connection;
mod loader;
mod schedule;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_model::workload::Http;
use loader::Loader;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, Shutdown, getpeername, recv, shutdown};

use super::{Target, companion_ends};
use crate::TrafficError;
use crate::tcp::socket::{Woken, wait};
use crate::tcp::words::with_port;
use crate::trial::{DataThread, ThreadFlow, WorkResult};

/// The name that a trial's own server is asked by; its length makes the request the sources' 44 bytes.
const OWN_NAME: &str = "linerate.localhost";

/// How long the server's thread may take to send its port.
const PORT_MAX: Duration = Duration::from_secs(10);

/// What runs on a thread of a client whose server is the other end of the trial.
pub(super) fn work_with_peer(
    data_thread: &mut DataThread<'_>,
    http: &Http,
) -> Result<Option<WorkResult>, TrafficError> {
    let companions: Vec<ThreadFlow<'_>> = data_thread.flows.clone();
    let addresses = companions.iter().map(|one| hear_address(data_thread, *one));
    let addresses: Vec<SocketAddr> = addresses.collect::<Result<_, _>>()?;
    let host = http.server.as_ref().map_or(OWN_NAME, |other| &other.host);
    let request = request(http, host);
    let mut loader = Loader::new(data_thread, addresses, &request, http.rate_per_s)?;
    loader.watch(&companions)?;
    loader.open_first(data_thread)?;
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let result = loader.run(data_thread, start);
    let ended = Instant::now();
    // The end of file is the server's sign to end. It fails only when the connection is gone.
    for companion in &companions {
        let _ = shutdown(&companion.flow.socket, Shutdown::Write);
    }
    result?;
    let bytes = loader.bytes();
    Ok(Some(WorkResult {
        flows: companion_ends(companions.len(), bytes, ended, start),
        memory_node: loader.memory_node(),
        operations: Some(loader.into_operations()),
    }))
}

/// What runs on a thread of a client whose server is anybody's.
pub(super) fn work_alone(
    data_thread: &mut DataThread<'_>,
    http: &Http,
    target: &Target,
) -> Result<Option<WorkResult>, TrafficError> {
    let request = request(http, &target.host);
    let mut loader = Loader::new(data_thread, vec![target.address], &request, http.rate_per_s)?;
    loader.open_first(data_thread)?;
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    loader.run(data_thread, start)?;
    Ok(Some(WorkResult {
        flows: Vec::new(),
        memory_node: loader.memory_node(),
        operations: Some(loader.into_operations()),
    }))
}

/// As short as HTTP/1.1 allows.
fn request(http: &Http, host: &str) -> Vec<u8> {
    format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", http.path).into_bytes()
}

/// Where the server's thread at the other end of `companion` listens.
fn hear_address(
    data_thread: &DataThread<'_>,
    companion: ThreadFlow<'_>,
) -> Result<SocketAddr, TrafficError> {
    let socket = &companion.flow.socket;
    let failed = |errno| TrafficError::of_errno("read a companion's address", errno);
    let mut port = [0u8; 2];
    let mut filled = 0;
    let deadline = Instant::now() + PORT_MAX;
    let mut ready = Vec::new();
    while filled < port.len() {
        if Instant::now() >= deadline {
            return Err(TrafficError::StartTimeOut { waited: PORT_MAX });
        }
        let waited = [(socket.as_fd(), PollFlags::IN)];
        if wait(
            waited,
            deadline,
            &data_thread.shared_state.abort,
            &mut ready,
        )? == Woken::Aborted
        {
            return Err(TrafficError::Aborted);
        }
        match recv(socket, &mut port[filled..], RecvFlags::DONTWAIT) {
            Ok((count @ 1.., _)) => filled += count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Ok((0, _)) | Err(_) => return Err(gone(companion, Duration::ZERO)),
        }
    }
    let peer = getpeername(socket)
        .map_err(failed)?
        .and_then(|peer| SocketAddr::try_from(peer).ok());
    let peer = peer.ok_or_else(|| gone(companion, Duration::ZERO))?;
    Ok(with_port(peer, u16::from_be_bytes(port)))
}

/// The other end of the trial is gone.
fn gone(companion: ThreadFlow<'_>, after: Duration) -> TrafficError {
    TrafficError::PeerClosed {
        flow: companion.flow.number,
        after,
    }
}
