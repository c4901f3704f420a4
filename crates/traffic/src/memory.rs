//! What the CPUs of one NUMA node make of the memory of another: bandwidth of reading, writing and
//! copying, by one core and by all, and the latency of a load. The matrix of vendors' tables.
//!
//! * Memory is bound to its node by mbind(2) with `MPOL_BIND` and looked for with move_pages(2) after it
//!   was touched, so that what is measured is where it was meant to be.
//! * Latency is a chain of loads, each telling the next one's place, through a random cycle over all
//!   cache lines of a buffer larger than caches are: no prefetcher guesses it and no two loads overlap.
//!   Huge pages are requested, so that it is the memory that is timed and not the page walk.
//! * Bandwidth counts each byte of payload once, as STREAM's copy counts half: a copy reads and writes.

use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};

use crate::sys::{NodeBuffer, pin_thread};
use crate::{Abort, TrafficError};

/// Beyond what one core can hold in its caches, on nearly every machine.
const LATENCY_BUFFER: Bytes = Bytes::mib(256);
/// Shared out among the cores that work at once.
const BANDWIDTH_BUFFER: Bytes = Bytes::mib(256);
/// Each core works on at least so much.
const BANDWIDTH_BUFFER_MIN: Bytes = Bytes::mib(16);
const LINE_BYTES: usize = 64;
/// Loads between two reads of the clock.
const LOADS: u32 = 1 << 16;
const PASSES_MIN: usize = 3;

/// The bandwidth of some cores to one node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// Reading.
    pub read: BitRate,
    /// Writing, with the stores that `memset` chooses.
    pub write: BitRate,
    /// Copying within that node, each byte counted once.
    pub copy: BitRate,
}

/// One cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// The time of one load that depends on the one before it, nanoseconds.
    pub latency_ns: f64,
    /// By one core.
    pub one_core: Bandwidth,
    /// By one thread on each core.
    pub all_cores: Bandwidth,
}

/// Measures one cell: `cores` (one CPU of each core of a node) against the memory of `memory`. Takes
/// seven times `budget`, and the making of the buffers.
pub fn measure_cell(
    cores: &CpuSet,
    memory: NodeId,
    budget: Duration,
    abort: &Abort,
) -> Result<Cell, TrafficError> {
    let first = cores.first().map_or_else(CpuSet::empty, CpuSet::one);
    Ok(Cell {
        latency_ns: latency(&first, memory, budget, abort)?,
        one_core: bandwidth(&first, memory, budget, abort)?,
        all_cores: bandwidth(cores, memory, budget, abort)?,
    })
}

fn pin(cpus: &CpuSet) -> Result<(), TrafficError> {
    pin_thread(cpus).map_err(|errno| match (errno, cpus.first()) {
        (rustix::io::Errno::INVAL, Some(cpu)) => TrafficError::NoSuchCpu { cpu },
        _ => TrafficError::of_errno("pin a thread", errno),
    })
}

fn buffer(size: Bytes, memory: NodeId) -> Result<NodeBuffer, TrafficError> {
    NodeBuffer::new(size, memory)
        .map_err(|errno| TrafficError::of_errno("place memory on a node", errno))
}

fn in_a_thread<T: Send>(
    work: impl FnOnce() -> Result<T, TrafficError> + Send,
) -> Result<T, TrafficError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, work)
            .map_err(|source| TrafficError::OutOfThreads { source })?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn check(abort: &Abort) -> Result<(), TrafficError> {
    if abort.is_triggered() {
        return Err(TrafficError::Aborted);
    }
    Ok(())
}

/// The median time of a dependent load.
fn latency(
    cpus: &CpuSet,
    memory: NodeId,
    budget: Duration,
    abort: &Abort,
) -> Result<f64, TrafficError> {
    in_a_thread(|| {
        pin(cpus)?;
        let mut memory = buffer(LATENCY_BUFFER, memory)?;
        let words = memory.words();
        chain(words);
        let begun = Instant::now();
        let mut times = Vec::new();
        let mut at = 0;
        while times.len() < PASSES_MIN || begun.elapsed() < budget {
            check(abort)?;
            let before = Instant::now();
            at = follow(words, at, LOADS);
            times.push(before.elapsed());
        }
        black_box(at);
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(median.as_secs_f64() * 1e9 / f64::from(LOADS))
    })
}

/// Writes into the first word of each cache line where the next one of a random cycle begins: Sattolo's
/// shuffle, which makes one cycle of all of them.
fn chain(words: &mut [u64]) {
    let step = LINE_BYTES / size_of::<u64>();
    let lines = words.len() / step;
    let mut order: Vec<u32> = (0..u32::try_from(lines).unwrap_or(u32::MAX)).collect();
    // xorshift64 (Marsaglia, 2003) with a fixed seed: the order must only be without pattern.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % last as u64).unwrap_or(0);
        order.swap(last, other);
    }
    for (&line, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
        if let Some(word) = words.get_mut(line as usize * step) {
            *word = u64::from(next) * step as u64;
        }
    }
}

fn follow(words: &[u64], mut at: usize, loads: u32) -> usize {
    for _ in 0..loads {
        at = words
            .get(at)
            .map_or(0, |next| usize::try_from(*next).unwrap_or(0));
    }
    at
}

/// Reads, writes and copies with one thread on each of `cores`, all at once.
fn bandwidth(
    cores: &CpuSet,
    memory: NodeId,
    budget: Duration,
    abort: &Abort,
) -> Result<Bandwidth, TrafficError> {
    let threads = cores.len().max(1);
    let share = BANDWIDTH_BUFFER.as_u64() / threads as u64;
    let size = Bytes::new(share.max(BANDWIDTH_BUFFER_MIN.as_u64()));
    // All begin each pass together; one that fails before must not leave the others waiting, so that
    // memory is made first and threads with memory only meet.
    let gate = &Barrier::new(threads);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for cpu in cores.iter() {
            let work = move || one_thread(cpu, size, memory, budget, abort, gate);
            let thread = thread::Builder::new()
                .spawn_scoped(scope, work)
                .map_err(|source| TrafficError::OutOfThreads { source });
            match thread {
                Ok(thread) => running.push(thread),
                // Those that run wait at the gate for this one: fill its place.
                Err(error) => {
                    for _ in running.len()..threads {
                        scope.spawn(move || meet(gate));
                    }
                    return Err(error);
                }
            }
        }
        let mut sum = [0u64; 3];
        let mut failed = None;
        for thread in running {
            match thread.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                Ok(rates) => {
                    for (sum, rate) in sum.iter_mut().zip(rates) {
                        *sum = sum.saturating_add(rate.as_bit_per_s());
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        let [read, write, copy] = sum.map(BitRate::from_bit_per_s);
        match failed {
            Some(error) => Err(error),
            None => Ok(Bandwidth { read, write, copy }),
        }
    })
}

/// The three times that the threads of a measurement meet.
const MEETINGS: usize = 3;

fn meet(gate: &Barrier) {
    for _ in 0..MEETINGS {
        gate.wait();
    }
}

fn one_thread(
    cpu: CpuId,
    size: Bytes,
    memory: NodeId,
    budget: Duration,
    abort: &Abort,
    gate: &Barrier,
) -> Result<[BitRate; 3], TrafficError> {
    let prepared =
        pin(&CpuSet::one(cpu)).and_then(|()| Ok((buffer(size, memory)?, buffer(size, memory)?)));
    let (mut from, mut to) = match prepared {
        Ok(buffers) => buffers,
        Err(error) => {
            meet(gate);
            return Err(error);
        }
    };
    let passes = |work: &mut dyn FnMut()| {
        gate.wait();
        median_rate(size, budget, abort, work)
    };
    let read = passes(&mut || {
        black_box(sum(from.words()));
    });
    let write = passes(&mut || to.words().fill(black_box(7)));
    let copy = passes(&mut || to.words().copy_from_slice(black_box(from.words())));
    check(abort)?;
    Ok([read, write, copy])
}

/// Four sums side by side, so that loads do not wait for an addition.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 4];
    for four in words.chunks_exact(4) {
        for (sum, word) in sums.iter_mut().zip(four) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

fn median_rate(size: Bytes, budget: Duration, abort: &Abort, work: &mut dyn FnMut()) -> BitRate {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < PASSES_MIN || (begun.elapsed() < budget && !abort.is_triggered()) {
        let before = Instant::now();
        work();
        times.push(Nanoseconds::from(before.elapsed()));
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    BitRate::of(size, median).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_once_before_it_comes_back() {
        let mut words = vec![0u64; 8 * 1000];
        chain(&mut words);
        let mut seen = std::collections::BTreeSet::new();
        let mut at = 0;
        for _ in 0..1000 {
            assert!(seen.insert(at), "{at} was seen before");
            at = follow(&words, at, 1);
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn this_machines_own_node_has_latency_and_bandwidth() {
        let cpus = crate::sys::allowed_cpus().expect("the kernel says");
        let node = NodeId(0);
        let abort = Abort::new().expect("an event");
        let cell = measure_cell(&cpus, node, Duration::from_millis(1), &abort).expect("a cell");
        assert!(cell.latency_ns > 0.5, "{cell:?}");
        for rate in [cell.one_core.read, cell.one_core.write, cell.all_cores.copy] {
            assert!(rate > BitRate::from_mbit_per_s(100), "{cell:?}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_and_nobody_waits() {
        let cpus = crate::sys::allowed_cpus().expect("the kernel says");
        let abort = Abort::new().expect("an event");
        let cell = measure_cell(&cpus, NodeId(1023), Duration::from_millis(1), &abort);
        assert!(cell.is_err(), "{cell:?}");
    }
}
