//! `transfer`: a buffer there and back, as source 001 moves it: announce, fetch, go, return, done.
//!
//! ```text
//! asking end                                answering end
//!   announce {size}, the buffer      -->      fetches all of it
//!                                             works on it
//!                                    <--    go {time spent comparing}
//!   takes the buffer back            <--    puts it back
//!   done                             -->
//! ```
//!
//! Two seams: how the buffer travels ([`Asking`], [`Answering`]: over TCP, or by verbs that read and write
//! the other end's memory) and what is done with it between fetch and return ([`Compute`]; here nothing).
//! Of several pairs on one thread each makes a cycle in turn.

mod tcp;
mod verbs;

use std::time::{Duration, Instant};

use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::sample::{Operations, Role};
use linerate_model::workload::Transfer;

use super::conversation::Fault;
use super::end;
use crate::tcp::Flow;
use crate::trial::{FlowEnd, Found, Seat, Start};
use crate::{TrafficError, content};
use tcp::{TcpAnswering, TcpAsking};

/// One end of a pair.
trait Travel {
    /// Bytes moved, both ways together.
    fn bytes(&self) -> u64;

    /// The node of its memory.
    fn node(&self) -> Known<NodeId>;

    /// The end of its flow.
    fn end(&self, flow: &Flow, ended: Instant, start: Start) -> FlowEnd {
        FlowEnd::of_tcp(flow, self.bytes(), ended, start)
    }
}

/// How the asking end's buffer travels.
trait Asking: Travel {
    /// The buffer that goes there.
    fn outgoing(&mut self) -> &mut [u8];

    /// The buffer that went, and the one that came back.
    fn both(&mut self) -> (&mut [u8], &[u8]);

    /// Says that the outgoing buffer is ready, and what the other end needs to fetch it.
    fn announce(&mut self) -> Result<(), Fault>;

    /// Waits until the other end has it; the time that it spent comparing.
    fn await_go(&mut self) -> Result<Duration, Fault>;

    /// Waits until the buffer is back.
    fn take_back(&mut self) -> Result<(), Fault>;

    /// Says that it is.
    fn done(&mut self) -> Result<(), Fault>;
}

/// How the answering end fetches the buffer and puts it back.
trait Answering: Travel {
    /// Waits for an announcement; `false` when there will be none.
    fn hear(&mut self) -> Result<bool, Fault>;

    /// Fetches what was announced.
    fn fetch(&mut self) -> Result<(), Fault>;

    /// What was fetched.
    fn fetched(&mut self) -> &mut [u8];

    /// Says that it is there, and how much time went into comparing.
    fn go(&mut self, comparing: Duration) -> Result<(), Fault>;

    /// Puts it back.
    fn put_back(&mut self) -> Result<(), Fault>;

    /// Waits until the other end says that it has it.
    fn await_done(&mut self) -> Result<(), Fault>;
}

/// The work on a buffer between fetch and return.
trait Compute {
    /// Works on the buffer of repetition `repetition`. The same at both ends: with the data check the
    /// asking end works on its own copy and compares.
    fn work(&mut self, buffer: &mut [u8], repetition: u64);
}

/// No work: what comes back is what went.
#[derive(Debug, Default)]
struct Unchanged;

impl Compute for Unchanged {
    fn work(&mut self, _buffer: &mut [u8], _repetition: u64) {}
}

/// What runs on each data thread.
pub(super) fn work(
    seat: &mut Seat<'_>,
    transfer: &Transfer,
) -> Result<Option<Found>, TrafficError> {
    if seat.spec.verbs.is_some() {
        let pairs = verbs::open(seat, transfer.bytes)?;
        return match seat.role {
            Role::Sender => all_ask(seat, transfer, pairs),
            Role::Receiver => all_answer(seat, transfer, pairs),
        };
    }
    let flows = seat.flows.clone();
    let flows = flows.iter();
    match seat.role {
        Role::Sender => {
            let pairs = flows.map(|one| TcpAsking::new(seat, *one, transfer.bytes));
            let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
            all_ask(seat, transfer, pairs)
        }
        Role::Receiver => {
            let pairs = flows.map(|one| TcpAnswering::new(seat, *one, transfer.bytes));
            let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
            all_answer(seat, transfer, pairs)
        }
    }
}

fn all_ask(
    seat: &mut Seat<'_>,
    transfer: &Transfer,
    mut pairs: Vec<impl Asking>,
) -> Result<Option<Found>, TrafficError> {
    let Some(start) = seat.ready()? else {
        return Ok(None);
    };
    let operations = ask(seat, transfer, &mut pairs, &mut Unchanged, start)?;
    found(seat, &pairs, Some(operations), true, start).map(Some)
}

fn all_answer(
    seat: &mut Seat<'_>,
    transfer: &Transfer,
    mut pairs: Vec<impl Answering>,
) -> Result<Option<Found>, TrafficError> {
    let Some(start) = seat.ready()? else {
        return Ok(None);
    };
    let cycles = answer(seat, transfer, &mut pairs, &mut Unchanged, start)?;
    let complete = transfer.repetitions == Some(cycles);
    found(seat, &pairs, None, complete, start).map(Some)
}

fn found(
    seat: &mut Seat<'_>,
    pairs: &[impl Travel],
    operations: Option<Operations>,
    complete: bool,
    start: Start,
) -> Result<Found, TrafficError> {
    let ended = Instant::now();
    seat.see_pollers();
    let mut flows = Vec::with_capacity(pairs.len());
    for (one, pair) in seat.flows.iter().zip(pairs) {
        flows.push(pair.end(one.flow, ended, start));
        end(seat, one, complete, ended, start)?;
    }
    Ok(Found {
        flows,
        operations,
        memory_node: pairs.first().map(Travel::node).unwrap_or_default(),
    })
}

/// The asking end's cycles, of all its pairs in turn. Filling and comparing are not in their times.
fn ask(
    seat: &Seat<'_>,
    transfer: &Transfer,
    pairs: &mut [impl Asking],
    compute: &mut impl Compute,
    start: Start,
) -> Result<Operations, TrafficError> {
    let mut operations = Operations::default();
    let repetitions = transfer.repetitions.unwrap_or(u64::MAX);
    for repetition in 0..repetitions {
        // Only here: the other end serves the pairs in turn, so all of them make equally many cycles.
        if seat.board.is_stopped() {
            break;
        }
        for (one, pair) in seat.flows.iter().zip(pairs.iter_mut()) {
            if transfer.data_check {
                content::fill(pair.outgoing(), one.flow.number, repetition);
            }
            let took = cycle(pair).map_err(|fault| fault.on(*one, start.at, Instant::now()))?;
            operations.latency.record(took.into());
            operations.completed += 1;
            one.counter.set_operations(repetition + 1);
            if transfer.data_check {
                let (sent, back) = pair.both();
                compute.work(sent, repetition);
                content::compare_copies(sent, back)
                    .map_err(|found| found.on(one.flow.number, repetition))?;
            }
        }
    }
    Ok(operations)
}

/// One cycle, and the time it took without the comparing at the other end.
fn cycle(pair: &mut impl Asking) -> Result<Duration, Fault> {
    let begun = Instant::now();
    pair.announce()?;
    let comparing = pair.await_go()?;
    pair.take_back()?;
    pair.done()?;
    Ok(begun.elapsed().saturating_sub(comparing))
}

/// The answering end's cycles, until the asking end ends; how many each pair made.
fn answer(
    seat: &Seat<'_>,
    transfer: &Transfer,
    pairs: &mut [impl Answering],
    compute: &mut impl Compute,
    start: Start,
) -> Result<u64, TrafficError> {
    for repetition in 0.. {
        for (one, pair) in seat.flows.iter().zip(pairs.iter_mut()) {
            let failed = |fault: Fault| fault.on(*one, start.at, Instant::now());
            if !pair.hear().map_err(failed)? {
                return Ok(repetition);
            }
            pair.fetch().map_err(failed)?;
            let mut comparing = Duration::ZERO;
            if transfer.data_check {
                let begun = Instant::now();
                content::compare_filled(pair.fetched(), one.flow.number, repetition)
                    .map_err(|found| found.on(one.flow.number, repetition))?;
                comparing = begun.elapsed();
            }
            compute.work(pair.fetched(), repetition);
            answer_back(pair, comparing).map_err(failed)?;
        }
    }
    Ok(u64::MAX)
}

fn answer_back(pair: &mut impl Answering, comparing: Duration) -> Result<(), Fault> {
    pair.go(comparing)?;
    pair.put_back()?;
    pair.await_done()
}
