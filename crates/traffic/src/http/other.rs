//! The receiving end of a trial whose requests another program answers on this host: nginx, a web application. The data
//! threads send that program's port over their companions instead of their own, and wait for the end. What the program
//! sends cannot be counted here.

use std::time::{Duration, Instant};

use linerate_model::known::{Cause, Known};
use linerate_model::workload::OtherServer;
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::companion_ends;
use crate::TrafficError;
use crate::tcp::socket::{Woken, wait};
use crate::trial::{DataThread, FlowEnd, ThreadFlow, WorkResult};

/// How long one wait lasts that only an event should end.
const A_WHILE: Duration = Duration::from_secs(60);

/// What runs on a data thread: it takes no part in the transfer.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    server: &OtherServer,
) -> Result<Option<WorkResult>, TrafficError> {
    let companions = data_thread.flows.clone();
    for companion in &companions {
        let port = server.port.to_be_bytes();
        let sent = send(&companion.flow.socket, &port, SendFlags::NOSIGNAL);
        if sent != Ok(2) {
            return Err(gone(companion, Duration::ZERO));
        }
    }
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    // Each thread of the client closes its companion when the time is over.
    for companion in &companions {
        wait_for_end(data_thread, companion)?;
    }
    let ended = Instant::now();
    if let Some(first) = companions.first()
        && !data_thread.is_time(start, ended)
    {
        return Err(gone(first, ended.duration_since(start.at)));
    }
    let blind = |end| FlowEnd {
        is_blind: true,
        ..end
    };
    let ends = companion_ends(companions.len(), 0, ended, start);
    let why = "another program has the server's memory";
    Ok(Some(WorkResult {
        flows: ends.into_iter().map(blind).collect(),
        operations: None,
        memory_node: Known::unknown(Cause::NotAsked, "move_pages(2)", why),
    }))
}

/// Waits until the other end closes a companion. It sends nothing on it.
fn wait_for_end(
    data_thread: &DataThread<'_>,
    companion: &ThreadFlow<'_>,
) -> Result<(), TrafficError> {
    let socket = &companion.flow.socket;
    let mut ready = Vec::new();
    loop {
        let waited = [(socket.as_fd(), PollFlags::IN)];
        let abort = &data_thread.shared_state.abort;
        if wait(waited, Instant::now() + A_WHILE, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        match recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A reset ends it like an end of file: whether it came too early is the caller's question.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

/// The other end of the trial is gone.
fn gone(companion: &ThreadFlow<'_>, after: Duration) -> TrafficError {
    TrafficError::PeerClosed {
        flow: companion.flow.number,
        after,
    }
}
