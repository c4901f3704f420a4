//! The end of a stream after its threads': what they handed to the kernel last is still in flight.

use std::time::{Duration, Instant};

use linerate_model::known::Known;
use linerate_model::sample::{Drained, Role, SideSample};
use linerate_model::workload::Waiting;
use rustix::event::epoll::EventFlags;
use rustix::net::{Shutdown, shutdown, sockopt};

use super::{Flow, info};
use crate::waiting::{Event, Poller};
use crate::{Abort, TrafficError};

/// How long a remote end may take to confirm that it has everything. If the path needs longer than this to drain
/// its buffers, the note is omitted.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// Events taken from the kernel at a time.
const EVENTS: usize = 256;
/// The event of the trial that was given up, not of a connection.
const ABORT: u64 = u64::MAX;

/// Confirms to the remote senders that everything arrived, waits until the remote receivers confirm the same, and
/// notes what had been sent by then. If a remote end does not confirm, its flows have no note.
pub(super) fn settle(flows: &[Flow], side: &mut SideSample, abort: &Abort) {
    let receivers = flows.iter().filter(|flow| flow.role == Role::Receiver);
    // Of one that was ended early, more may still come.
    for flow in receivers.filter(|flow| info::has_ended(&flow.socket)) {
        // It fails when the connection is gone, and then the remote end knows.
        let _ = shutdown(&flow.socket, Shutdown::Write);
    }
    let senders = flows.iter().filter(|flow| flow.role == Role::Sender);
    let senders: Vec<&Flow> = senders.collect();
    // What cannot be waited for is not noted.
    let _ = await_ends(&senders, abort, |flow| {
        let tcp = info::read(&flow.socket);
        // They are in the order of their numbers.
        let at = (side.flows).binary_search_by_key(&flow.number, |record| record.flow);
        let record = at.ok().and_then(|at| side.flows.get_mut(at));
        if let (Some(record), Some(tcp)) = (record, tcp.value()) {
            if let Known::Value(at_stop) = &mut record.tcp {
                // At the stop a part of what the peer counted was not sent yet.
                at_stop.bytes_sent = tcp.bytes_sent;
                at_stop.bytes_retransmitted = tcp.bytes_retransmitted;
            }
            record.drained = Some(Drained {
                bytes_sent: tcp.bytes_sent,
                bytes_retransmitted: tcp.bytes_retransmitted,
            });
        }
    });
}

/// Calls `ended` for each of `senders` whose remote end has ended its direction, too.
fn await_ends(
    senders: &[&Flow],
    abort: &Abort,
    mut ended: impl FnMut(&Flow),
) -> Result<(), TrafficError> {
    let deadline = Instant::now() + SETTLE_MAX;
    let poller = Poller::new(Waiting::Blocking)?;
    poller.add(abort, ABORT, EventFlags::IN)?;
    for (flow, number) in senders.iter().zip(0..) {
        // Edge-triggered: pending notifications of zero-copy sends would keep us awake.
        poller.add(&flow.socket, number, EventFlags::RDHUP | EventFlags::ET)?;
    }
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let mut open = senders.len();
    while open > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        poller.wait(&mut events, Some(left))?;
        for event in &events {
            let (flags, token) = (event.flags, event.data.u64());
            let Some(flow) = usize::try_from(token).ok().and_then(|at| senders.get(at)) else {
                return Ok(());
            };
            if flags.intersects(EventFlags::RDHUP | EventFlags::HUP) {
                poller.remove(&flow.socket)?;
                open -= 1;
                // One that was reset ended without having everything.
                if let Ok(Ok(())) = sockopt::socket_error(&flow.socket) {
                    ended(flow);
                }
            }
        }
    }
    Ok(())
}
