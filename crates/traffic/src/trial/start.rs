//! How the two ends agree on the start: READY from both when all their threads are, then GO from the
//! receiving end when its clock runs.

use std::time::{Duration, Instant};

use linerate_model::sample::Role;
use linerate_model::workload::Waiting;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::FarEnd;
use super::shared_state::{SharedState, Start};
use crate::tcp::Flow;
use crate::tcp::{GO, READY};
use crate::waiting::{Event, Poller};
use crate::{Abort, TrafficError};

/// How long the ends wait for each other's start.
const START_MAX: Duration = Duration::from_secs(10);

/// A remote end of our own kind.
#[derive(Debug)]
pub(super) struct Ours;

impl FarEnd for Ours {
    fn start(
        &self,
        flows: &[Flow],
        shared_state: &SharedState,
        abort: &Abort,
    ) -> Result<Start, TrafficError> {
        start(flows, shared_state, abort)
    }
}

/// Agrees with the peer on the start and opens the gate. Without connections this end is alone and starts
/// at once.
fn start(flows: &[Flow], shared_state: &SharedState, abort: &Abort) -> Result<Start, TrafficError> {
    let deadline = Instant::now() + START_MAX;
    flows.iter().try_for_each(|flow| say(flow, READY))?;
    let all: Vec<&Flow> = flows.iter().collect();
    await_word(READY, &all, deadline, abort)?;

    let receivers = || flows.iter().filter(|flow| flow.role == Role::Receiver);
    let senders: Vec<&Flow> = (flows.iter())
        .filter(|flow| flow.role == Role::Sender)
        .collect();
    let asked = Instant::now();
    if senders.is_empty() {
        // Nothing can arrive before the clock of this end runs.
        let start = Start { at: asked, asked };
        shared_state.open_gate(start);
        if let Err(error) = receivers().try_for_each(|flow| say(flow, GO)) {
            shared_state.fail(error);
        }
        return Ok(start);
    }
    receivers().try_for_each(|flow| say(flow, GO))?;
    await_word(GO, &senders, deadline, abort)?;
    let start = Start {
        at: Instant::now(),
        asked,
    };
    shared_state.open_gate(start);
    Ok(start)
}

fn closed_before_start(flow: &Flow) -> TrafficError {
    TrafficError::PeerClosed {
        flow: flow.number,
        after: Duration::ZERO,
    }
}

fn say(flow: &Flow, word: u8) -> Result<(), TrafficError> {
    match send(&flow.socket, &[word], SendFlags::NOSIGNAL) {
        Ok(1) => Ok(()),
        _ => Err(closed_before_start(flow)),
    }
}

/// Events taken from the kernel at a time.
const EVENTS: usize = 256;
/// The event of the trial that was given up, not of a connection.
const ABORT: u64 = u64::MAX;

/// Waits until the peer has sent `word` on each of `silent`.
fn await_word(
    word: u8,
    silent: &[&Flow],
    deadline: Instant,
    abort: &Abort,
) -> Result<(), TrafficError> {
    let poller = Poller::new(Waiting::Blocking)?;
    poller.add(abort, ABORT, EventFlags::IN)?;
    for (flow, number) in silent.iter().zip(0..) {
        poller.add(&flow.socket, number, EventFlags::IN)?;
    }
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let mut heard_of = 0;
    while heard_of < silent.len() {
        let now = Instant::now();
        if now >= deadline {
            return Err(TrafficError::StartTimeOut { waited: START_MAX });
        }
        poller.wait(&mut events, Some(deadline - now))?;
        for event in &events {
            let index = usize::try_from(event.data.u64()).ok();
            let Some(flow) = index.and_then(|index| silent.get(index)) else {
                return Err(TrafficError::Aborted);
            };
            let mut heard = [0u8; 1];
            match recv(&flow.socket, &mut heard, RecvFlags::DONTWAIT) {
                Ok((1, _)) if heard == [word] => {
                    // Further messages are not read here.
                    poller.remove(&flow.socket)?;
                    heard_of += 1;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                _ => return Err(closed_before_start(flow)),
            }
        }
    }
    Ok(())
}
