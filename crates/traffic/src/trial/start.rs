//! How the two ends agree on the start: READY from both when all their threads are, then GO from the
//! receiving end when its clock runs.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_model::sample::Role;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::FarEnd;
use super::board::{Board, Start};
use crate::tcp::Flow;
use crate::tcp::greeting::{GO, READY};
use crate::tcp::socket::{Woken, wait};
use crate::{Abort, TrafficError};

/// How long the ends wait for each other's start.
const START_MAX: Duration = Duration::from_secs(10);

/// A far end of our own kind.
#[derive(Debug)]
pub(super) struct Ours;

impl FarEnd for Ours {
    fn start(&self, flows: &[Flow], board: &Board, abort: &Abort) -> Result<Start, TrafficError> {
        start(flows, board, abort)
    }
}

/// Agrees with the peer on the start and opens the gate. Without connections this end is alone and starts
/// at once.
fn start(flows: &[Flow], board: &Board, abort: &Abort) -> Result<Start, TrafficError> {
    let deadline = Instant::now() + START_MAX;
    flows.iter().try_for_each(|flow| say(flow, READY))?;
    await_word(READY, flows.iter().collect(), deadline, abort)?;

    let receivers = || flows.iter().filter(|flow| flow.role == Role::Receiver);
    let senders: Vec<&Flow> = (flows.iter())
        .filter(|flow| flow.role == Role::Sender)
        .collect();
    let asked = Instant::now();
    if senders.is_empty() {
        // Nothing can arrive before the clock of this end runs.
        let start = Start { at: asked, asked };
        board.open_gate(start);
        if let Err(error) = receivers().try_for_each(|flow| say(flow, GO)) {
            board.fail(error);
        }
        return Ok(start);
    }
    receivers().try_for_each(|flow| say(flow, GO))?;
    await_word(GO, senders, deadline, abort)?;
    let start = Start {
        at: Instant::now(),
        asked,
    };
    board.open_gate(start);
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

/// Waits until the peer has said `word` on each of `silent`.
fn await_word(
    word: u8,
    mut silent: Vec<&Flow>,
    deadline: Instant,
    abort: &Abort,
) -> Result<(), TrafficError> {
    let mut ready = Vec::new();
    while !silent.is_empty() {
        if Instant::now() >= deadline {
            return Err(TrafficError::StartTimeOut { waited: START_MAX });
        }
        let waited = silent
            .iter()
            .map(|flow| (flow.socket.as_fd(), PollFlags::IN));
        if wait(waited, deadline, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        let mut still_silent = Vec::new();
        for flow in silent {
            let mut heard = [0u8; 1];
            match recv(&flow.socket, &mut heard, RecvFlags::DONTWAIT) {
                Ok((1, _)) if heard == [word] => {}
                Err(Errno::AGAIN | Errno::INTR) => still_silent.push(flow),
                _ => return Err(closed_before_start(flow)),
            }
        }
        silent = still_silent;
    }
    Ok(())
}
