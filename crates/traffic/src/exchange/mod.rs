//! Request/response workloads: `rr`, `pingpong`, `transfer`, `diffusion`. The sender requests, the receiver answers.
//!
//! A [`conversation`] is the protocol; the [`driver`] decides how a thread waits. The requesting end
//! decides when it is over, and signals it by end of file; the answering end serves until then. The
//! bytes of a flow are those of both directions, so that both ends count the same.

mod conversation;
mod driver;
mod each;
mod pace;
mod pingpong;
mod rr;
mod schedule;
mod transfer;

use std::num::NonZeroU64;
use std::time::Instant;

use conversation::Conversation;
use driver::Driver;
use linerate_model::sample::{Operations, Role};
use linerate_model::workload::{TrialSpec, Workload};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown, sockopt};

use crate::TrafficError;
use crate::tcp::per_direction;
use crate::tcp::words::WORDS_MAX;
use crate::trial::{DataThread, Start, ThreadFlow, WorkResult};
use crate::waiting::{prepare_socket, timespec};

/// What runs on each data thread.
pub(crate) fn work(data_thread: &mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> {
    for one in &data_thread.flows {
        // A message must not wait for the acknowledgement of the one before (RFC 896).
        sockopt::set_tcp_nodelay(&one.flow.socket, true)
            .map_err(|errno| TrafficError::of_errno("make a data connection ready", errno))?;
        prepare_socket(&one.flow.socket, data_thread.spec.waiting)?;
    }
    match &data_thread.spec.workload {
        Workload::Rr(rr) if rr.connect_each => each::work(data_thread, rr),
        Workload::Rr(rr) => rr::work(data_thread, rr),
        Workload::Pingpong(pingpong) => pingpong::work(data_thread, pingpong),
        Workload::Transfer(transfer) => transfer::work(data_thread, transfer),
        Workload::Diffusion(diffusion) => transfer::diffuse(data_thread, diffusion),
        _ => Err(TrafficError::NotBuilt),
    }
}

/// A conversation that is one flow of a trial.
trait Talk: Conversation {
    /// The trial starts.
    fn start(&mut self, _start: Start) {}

    /// Bytes in both directions together.
    fn bytes(&self) -> u64;

    /// Whether a fixed amount is done, so that an end before the time is no surprise.
    fn is_complete(&self) -> bool {
        false
    }

    /// It is over: counts the unfinished operations.
    fn settle(&self, _ledger: &mut Self::Ledger) {}

    /// What a thread noted for the record.
    fn operations(_ledger: Self::Ledger) -> Option<Operations> {
        None
    }
}

/// Carries the conversations of a data thread's flows out, from the gate to what was found.
fn converse<C: Talk>(
    data_thread: &mut DataThread<'_>,
    mut driver: Driver<'_>,
    mut conversations: Vec<C>,
    mut ledger: C::Ledger,
) -> Result<Option<WorkResult>, TrafficError> {
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    for one in &mut conversations {
        one.start(start);
    }
    let outcome = driver.run(&mut conversations, &mut ledger);
    let ended = Instant::now();
    data_thread.see_pollers();
    if let Err((index, fault)) = outcome {
        return Err(fault.on(data_thread.flows[index], start.at, ended));
    }
    let mut flows = Vec::with_capacity(conversations.len());
    for (index, (one, conversation)) in data_thread.flows.iter().zip(&conversations).enumerate() {
        flows.push(driver.end_of(index, one.flow, conversation.bytes(), ended, start));
        conversation.settle(&mut ledger);
        end(data_thread, one, conversation.is_complete(), ended, start)?;
    }
    await_far_ends(data_thread);
    Ok(Some(WorkResult {
        flows,
        operations: C::operations(ledger),
        memory_node: driver.node(),
    }))
}

/// Ends a flow: the requesting end reports it, the answering one checks whether it was time.
fn end(
    data_thread: &DataThread<'_>,
    one: &ThreadFlow<'_>,
    complete: bool,
    ended: Instant,
    start: Start,
) -> Result<(), TrafficError> {
    if data_thread.role == Role::Sender || data_thread.spec.verbs.is_some() {
        // It fails only when the connection is gone, and then the other end has noticed.
        let _ = shutdown(&one.flow.socket, Shutdown::Write);
    }
    if data_thread.role == Role::Sender {
        return Ok(());
    }
    if complete || data_thread.is_time(start, ended) {
        return Ok(());
    }
    Err(TrafficError::PeerClosed {
        flow: one.flow.number,
        after: ended.duration_since(start.at),
    })
}

/// Over verbs the requesting end stays until the answering one has ended too: destroying an iWARP queue pair also ends
/// that of the other end, and waiting for messages there would fail.
fn await_far_ends(data_thread: &DataThread<'_>) {
    if data_thread.spec.verbs.is_none() || data_thread.role == Role::Receiver {
        return;
    }
    let until = Instant::now() + WORDS_MAX;
    for one in &data_thread.flows {
        let mut fds = [
            PollFd::new(&one.flow.socket, PollFlags::IN),
            PollFd::new(&data_thread.shared_state.abort, PollFlags::IN),
        ];
        // An end that does not stop in time reports the reason itself.
        let left = timespec(until.saturating_duration_since(Instant::now()));
        let _ = poll(&mut fds, Some(&left));
    }
}

/// The number of a flow in its direction, and how many there are.
fn flow_places(spec: &TrialSpec, one: &ThreadFlow<'_>) -> (u32, u32) {
    let flows = per_direction(spec);
    (one.flow.number % flows, flows)
}

/// Has the calling thread's timers expire when they are due, and not up to 50 us later (`PR_SET_TIMERSLACK`):
/// in open loop the lateness would be latency of our own making.
fn prepare_timer(rate_per_s: Option<u64>) -> Result<(), TrafficError> {
    if rate_per_s.is_none() {
        return Ok(());
    }
    rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))
        .map_err(|errno| TrafficError::of_errno("set a thread's timer slack", errno))
}
