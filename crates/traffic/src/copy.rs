//! How fast one core copies memory: the ceiling of a path that has no wire.
//!
//! Between two hosts on one kernel (veth) every byte of payload is copied twice, by `send` into the
//! kernel's pages and by `recv` out of them, so a flow cannot be faster than the copy of the slower of
//! the two cores. What is returned is payload copied per second, each byte counted once; the model of
//! the ceiling divides by the copies that one core makes.
//!
//! Two working sets, because they bound different things. Two buffers of 128 MiB, more than one core's
//! share of most caches: what a payload makes that really comes from memory ([`copy_bandwidth`]). Two of
//! 128 KiB: what it makes in cache ([`cached_copy_bandwidth`]). A benchmark's one send buffer and the
//! few MiB in flight do stay in cache, so only the second is a bound that no flow passes: over the
//! loopback with both ends on one core 46 Gb/s were seen where memory gave 64 Gb/s for one copy.
//!
//! The method: whole buffers are copied by `memcpy` (which chooses its own stores, as the kernel's copy
//! does; non-temporal stores are not forced), timed separately, and the median taken.

use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use rustix::io::Errno;

use crate::TrafficError;
use crate::sys::pin_thread;

/// Each of the two buffers, shared out among the CPUs that copy at once.
const MEMORY_BUFFER: Bytes = Bytes::mib(128);

/// Fits with its copy into the second cache level of any server core.
const CACHED_BUFFER: Bytes = Bytes::kib(128);

/// A median of fewer repetitions is not meaningful.
const REPEATS_MIN: usize = 5;

/// What one core (`cpu`, or where the scheduler puts us) copies from memory to memory. The timed part
/// takes `budget`, or five copies if that is longer; making the buffers takes about 0.1 s more.
pub fn copy_bandwidth(cpu: Option<CpuId>, budget: Duration) -> Result<BitRate, TrafficError> {
    measure(&[cpu], MEMORY_BUFFER, budget)
}

/// What one core copies when source and destination stay in its cache, as the buffers of a flow may.
pub fn cached_copy_bandwidth(
    cpu: Option<CpuId>,
    budget: Duration,
) -> Result<BitRate, TrafficError> {
    measure(&[cpu], CACHED_BUFFER, budget)
}

/// What all of `cpus` copy from memory to memory at the same time, together.
pub fn copy_bandwidth_of_all(cpus: &CpuSet, budget: Duration) -> Result<BitRate, TrafficError> {
    let cpus: Vec<Option<CpuId>> = cpus.iter().map(Some).collect();
    let share = MEMORY_BUFFER.as_u64() / cpus.len().max(1) as u64;
    measure(&cpus, Bytes::new(share.max(Bytes::mib(4).as_u64())), budget)
}

/// The sum of the medians of one thread on each of `cpus`, all copying at once.
fn measure(
    cpus: &[Option<CpuId>],
    buffer: Bytes,
    budget: Duration,
) -> Result<BitRate, TrafficError> {
    // Separate threads, so that the caller's affinity does not change. They start to copy when the gate
    // is released, which is after all of them are prepared.
    let gate = RwLock::new(());
    let (prepared, all_prepared) = mpsc::channel();
    thread::scope(|scope| {
        let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::new();
        for &cpu in cpus {
            let (gate, prepared) = (&gate, prepared.clone());
            let copy_here = move || -> Result<u64, TrafficError> {
                let (from, mut to) = prepare(cpu, buffer)?;
                // The receiver is gone if another thread could not be started.
                let _ = prepared.send(());
                drop(prepared);
                drop(gate.read());
                Ok(median_rate(&from, &mut to, budget).as_bit_per_s())
            };
            let thread = thread::Builder::new()
                .spawn_scoped(scope, copy_here)
                .map_err(|source| TrafficError::OutOfThreads { source })?;
            threads.push(thread);
        }
        drop(prepared);
        // Ends when every thread has reported it, or has failed and dropped its end of the channel.
        while all_prepared.recv().is_ok() {}
        drop(closed);
        let mut sum = 0;
        for thread in threads {
            sum += thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(BitRate::from_bit_per_s(sum))
    })
}

/// Moves to `cpu` and allocates both buffers there, every page touched (on its own node, by first touch).
fn prepare(cpu: Option<CpuId>, size: Bytes) -> Result<(Vec<u8>, Vec<u8>), TrafficError> {
    if let Some(cpu) = cpu {
        pin_thread(&CpuSet::one(cpu)).map_err(|errno| match errno {
            Errno::INVAL => TrafficError::NoSuchCpu { cpu },
            _ => TrafficError::of_errno("pin a thread", errno),
        })?;
    }
    let filled = |byte: u8| -> Result<Vec<u8>, TrafficError> {
        let size = usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(size)
            .map_err(|_| TrafficError::OutOfMemory {
                doing: "allocate the buffers of the copy measurement",
            })?;
        // Not 0: zeroed memory may be one page of the kernel seen many times.
        buffer.resize(size, byte);
        Ok(buffer)
    };
    Ok((filled(1)?, filled(2)?))
}

/// The median rate of copying `from` to `to`.
fn median_rate(from: &[u8], to: &mut [u8], budget: Duration) -> BitRate {
    // A clock reading (25 ns) must not show in what it times: a small buffer is copied many times.
    let rounds = (Bytes::mib(4).as_u64() / from.len().max(1) as u64).max(1);
    let copied = Bytes::new(from.len() as u64 * rounds);
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < REPEATS_MIN || begun.elapsed() < budget {
        let before = Instant::now();
        for _ in 0..rounds {
            black_box(&mut *to).copy_from_slice(black_box(from));
        }
        times.push(Nanoseconds::from(before.elapsed()));
    }
    times.sort_unstable();
    BitRate::of(copied, times[times.len() / 2]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_copies_at_a_rate_that_a_core_can_have() {
        let rate = copy_bandwidth(None, Duration::from_millis(20)).expect("memory");
        let cached = cached_copy_bandwidth(None, Duration::from_millis(20)).expect("memory");
        // From a slow emulator to several times the fastest cache there is.
        let plausible = BitRate::from_mbit_per_s(100)..BitRate::from_mbit_per_s(20_000_000);
        assert!(plausible.contains(&rate), "{rate}");
        assert!(plausible.contains(&cached), "{cached}");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_and_not_a_rate() {
        let cpus: CpuSet = [CpuId(CpuSet::CPU_MAX), CpuId(CpuSet::CPU_MAX - 1)]
            .into_iter()
            .collect();
        assert!(matches!(
            copy_bandwidth_of_all(&cpus, Duration::ZERO),
            Err(TrafficError::NoSuchCpu { .. })
        ));
    }
}
