//! `transfer` and `diffusion`: a buffer there and back, as source 001 moves it: announce, fetch, go, return,
//! done.
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
//! the other end's memory) and what is done with it ([`Compute`]: nothing, or a step of the heat equation).
//! If a thread has several pairs, each runs a cycle in turn.

mod grids;
mod tcp;
mod verbs;

use std::time::{Duration, Instant};

use grids::Grids;
use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::sample::{GridRecord, Operations, Role};
use linerate_model::units::Bytes;
use linerate_model::workload::{Diffusion, Transfer};
use tcp::{TcpAnswering, TcpAsking};

use super::conversation::Fault;
use super::{await_far_ends, end};
use crate::tcp::Flow;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow, WorkResult};
use crate::{TrafficError, content};

/// What all pairs of a trial have in common.
#[derive(Debug, Clone, Copy)]
struct Journey {
    /// The size of the buffer.
    bytes: Bytes,
    /// The number of cycles; `None` is as many as the time allows.
    repetitions: Option<u64>,
    /// It returns to where it came from, not to a separate place.
    over: bool,
}

/// One end of a pair.
trait Travel {
    /// Bytes in both directions together.
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
    /// The outgoing buffer; if it comes back in place, also the incoming one.
    fn outgoing(&mut self) -> &mut [u8];

    /// The buffer that went, and the one that came back; the latter has nothing where it came back over the
    /// former.
    fn both(&mut self) -> (&mut [u8], &[u8]);

    /// Announces that the outgoing buffer is ready, and what the other end needs to fetch it.
    fn announce(&mut self) -> Result<(), Fault>;

    /// Waits until the other end has it; returns the time that it spent comparing.
    fn await_go(&mut self) -> Result<Duration, Fault>;

    /// Waits until the buffer is back.
    fn take_back(&mut self) -> Result<(), Fault>;

    /// Confirms it.
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

    /// Confirms arrival, with the time spent comparing.
    fn go(&mut self, comparing: Duration) -> Result<(), Fault>;

    /// Puts it back.
    fn put_back(&mut self) -> Result<(), Fault>;

    /// Waits until the other end confirms that it has it.
    fn await_done(&mut self) -> Result<(), Fault>;
}

/// What is done with the buffers of a thread's pairs, each identified by its index.
trait Compute {
    /// Before the trial starts, at the asking end.
    fn begin(&mut self, _index: usize, _one: ThreadFlow<'_>, _buffer: &mut [u8]) {}

    /// Before each cycle, at the asking end: makes the outgoing buffer ready.
    fn prepare(&mut self, index: usize, one: ThreadFlow<'_>, buffer: &mut [u8], repetition: u64);

    /// Called after each cycle at the requesting end: checks what came back.
    fn judge(
        &mut self,
        index: usize,
        one: ThreadFlow<'_>,
        pair: &mut impl Asking,
        repetition: u64,
    ) -> Result<(), TrafficError>;

    /// Between fetch and return, at the answering end; how much of the time went into comparing.
    fn work(
        &mut self,
        index: usize,
        one: ThreadFlow<'_>,
        buffer: &mut [u8],
        repetition: u64,
    ) -> Result<Duration, TrafficError>;

    /// Called at the end: what there is to report about the last buffer of this end.
    fn leave(&mut self, _index: usize, _buffer: &mut [u8]) -> Option<GridRecord> {
        None
    }
}

/// What comes back is what went.
#[derive(Debug, Clone, Copy)]
struct Unchanged {
    /// Every repetition has other content, and every byte is compared at both ends.
    is_compared: bool,
}

impl Compute for Unchanged {
    fn prepare(&mut self, _index: usize, one: ThreadFlow<'_>, buffer: &mut [u8], repetition: u64) {
        if self.is_compared {
            content::fill(buffer, one.flow.number, repetition);
        }
    }

    fn judge(
        &mut self,
        _index: usize,
        one: ThreadFlow<'_>,
        pair: &mut impl Asking,
        repetition: u64,
    ) -> Result<(), TrafficError> {
        if !self.is_compared {
            return Ok(());
        }
        let (sent, back) = pair.both();
        content::compare_copies(sent, back).map_err(|found| found.on(one.flow.number, repetition))
    }

    fn work(
        &mut self,
        _index: usize,
        one: ThreadFlow<'_>,
        buffer: &mut [u8],
        repetition: u64,
    ) -> Result<Duration, TrafficError> {
        if !self.is_compared {
            return Ok(Duration::ZERO);
        }
        let begun = Instant::now();
        content::compare_filled(buffer, one.flow.number, repetition)
            .map_err(|found| found.on(one.flow.number, repetition))?;
        Ok(begun.elapsed())
    }
}

/// What runs on each data thread of `transfer`.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    transfer: &Transfer,
) -> Result<Option<WorkResult>, TrafficError> {
    let journey = Journey {
        bytes: transfer.bytes,
        repetitions: transfer.repetitions,
        over: false,
    };
    let is_compared = transfer.data_check;
    travel(data_thread, journey, &mut Unchanged { is_compared })
}

/// What runs on each data thread of `diffusion`.
pub(super) fn diffuse(
    data_thread: &mut DataThread<'_>,
    diffusion: &Diffusion,
) -> Result<Option<WorkResult>, TrafficError> {
    let journey = Journey {
        bytes: diffusion.bytes,
        repetitions: diffusion.repetitions,
        over: true,
    };
    let mut grids = Grids::new(data_thread, diffusion);
    travel(data_thread, journey, &mut grids)
}

/// Connects the pairs, and has them make their cycles.
fn travel(
    data_thread: &mut DataThread<'_>,
    journey: Journey,
    compute: &mut impl Compute,
) -> Result<Option<WorkResult>, TrafficError> {
    if data_thread.spec.verbs.is_some() {
        let pairs = verbs::open(data_thread, journey)?;
        return match data_thread.role {
            Role::Sender => all_ask(data_thread, journey, pairs, compute),
            Role::Receiver => all_answer(data_thread, journey, pairs, compute),
        };
    }
    let flows = data_thread.flows.clone();
    let flows = flows.iter();
    match data_thread.role {
        Role::Sender => {
            let pairs = flows.map(|one| TcpAsking::new(data_thread, *one, journey));
            let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
            all_ask(data_thread, journey, pairs, compute)
        }
        Role::Receiver => {
            let pairs = flows.map(|one| TcpAnswering::new(data_thread, *one, journey));
            let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
            all_answer(data_thread, journey, pairs, compute)
        }
    }
}

fn all_ask(
    data_thread: &mut DataThread<'_>,
    journey: Journey,
    mut pairs: Vec<impl Asking>,
    compute: &mut impl Compute,
) -> Result<Option<WorkResult>, TrafficError> {
    for (index, (one, pair)) in data_thread.flows.iter().zip(&mut pairs).enumerate() {
        compute.begin(index, *one, pair.outgoing());
    }
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let operations = ask(data_thread, journey, &mut pairs, compute, start)?;
    let mut found = found(data_thread, &pairs, Some(operations), true, start)?;
    for (index, (end, pair)) in found.flows.iter_mut().zip(&mut pairs).enumerate() {
        end.grid = compute.leave(index, pair.outgoing());
    }
    Ok(Some(found))
}

fn all_answer(
    data_thread: &mut DataThread<'_>,
    journey: Journey,
    mut pairs: Vec<impl Answering>,
    compute: &mut impl Compute,
) -> Result<Option<WorkResult>, TrafficError> {
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let cycles = answer(data_thread, &mut pairs, compute, start)?;
    let complete = journey.repetitions == Some(cycles);
    let mut found = found(data_thread, &pairs, None, complete, start)?;
    for (index, (end, pair)) in found.flows.iter_mut().zip(&mut pairs).enumerate() {
        end.grid = compute.leave(index, pair.fetched());
    }
    Ok(Some(found))
}

fn found(
    data_thread: &mut DataThread<'_>,
    pairs: &[impl Travel],
    operations: Option<Operations>,
    complete: bool,
    start: Start,
) -> Result<WorkResult, TrafficError> {
    let ended = Instant::now();
    data_thread.see_pollers();
    let mut flows = Vec::with_capacity(pairs.len());
    for (one, pair) in data_thread.flows.iter().zip(pairs) {
        flows.push(pair.end(one.flow, ended, start));
        end(data_thread, one, complete, ended, start)?;
    }
    await_far_ends(data_thread);
    Ok(WorkResult {
        flows,
        operations,
        memory_node: pairs.first().map(Travel::node).unwrap_or_default(),
    })
}

/// The requesting end's cycles, of all its pairs in turn. What is done before and after is not in their times.
fn ask(
    data_thread: &DataThread<'_>,
    journey: Journey,
    pairs: &mut [impl Asking],
    compute: &mut impl Compute,
    start: Start,
) -> Result<Operations, TrafficError> {
    let mut operations = Operations::default();
    let repetitions = journey.repetitions.unwrap_or(u64::MAX);
    for repetition in 0..repetitions {
        // Only here: the other end serves the pairs in turn, so all of them complete the same number of cycles.
        if data_thread.shared_state.is_stopped() {
            break;
        }
        for (index, (one, pair)) in data_thread.flows.iter().zip(pairs.iter_mut()).enumerate() {
            compute.prepare(index, *one, pair.outgoing(), repetition);
            let took = cycle(pair).map_err(|fault| fault.on(*one, start.at, Instant::now()))?;
            operations.latency.record(took.into());
            operations.completed += 1;
            one.counter.set_operations(repetition + 1);
            compute.judge(index, *one, pair, repetition)?;
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
    data_thread: &DataThread<'_>,
    pairs: &mut [impl Answering],
    compute: &mut impl Compute,
    start: Start,
) -> Result<u64, TrafficError> {
    for repetition in 0.. {
        for (index, (one, pair)) in data_thread.flows.iter().zip(pairs.iter_mut()).enumerate() {
            let failed = |fault: Fault| fault.on(*one, start.at, Instant::now());
            if !pair.hear().map_err(failed)? {
                return Ok(repetition);
            }
            pair.fetch().map_err(failed)?;
            let comparing = compute.work(index, *one, pair.fetched(), repetition)?;
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
