//! The data thread: one end of one connection. It pins itself, allocates and touches its buffer (so
//! that the pages are on its own node: the kernel places them at first touch), parks at the gate, and
//! from then on does nothing but `send` or `recv` and store a counter.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::Known;
use linerate_model::sample::{Role, TcpInfo};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::{Flow, info};
use crate::TrafficError;
use crate::abort::{new_event, signal};
use crate::sys::{ThreadTime, pin_thread, thread_time};

/// What one data thread writes while it runs, alone in its cache line: 128 bytes, because x86 fetches
/// lines in pairs and other machines have lines of that size.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counter {
    pub(super) bytes: AtomicU64,
    pub(super) done: AtomicBool,
}

/// What all threads of one end share.
#[derive(Debug)]
pub(super) struct Board {
    /// Read before every `send`, written once; alone in its cache line.
    stop: Aligned<AtomicBool>,
    /// Signalled by each thread that ends.
    pub(super) finished: OwnedFd,
    /// The first thing that went wrong; what follows from it is not its own story.
    pub(super) failure: OnceLock<TrafficError>,
    gate: Mutex<Gate>,
    moved: Condvar,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Aligned<T>(T);

/// Where threads wait for the start.
#[derive(Debug, Default)]
struct Gate {
    arrived: usize,
    verdict: Option<Verdict>,
}

/// What the threads at the gate are told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    /// Move bytes.
    Start {
        /// The zero of this end's times.
        start: Instant,
        /// When the peer's senders were told that they may begin.
        asked: Instant,
    },
    /// There will be no trial.
    Leave,
}

impl Board {
    pub(super) fn new() -> Result<Self, TrafficError> {
        Ok(Self {
            stop: Aligned::default(),
            finished: new_event()?,
            failure: OnceLock::new(),
            gate: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    /// Asks the senders to stop.
    pub(super) fn stop(&self) {
        self.stop.0.store(true, Ordering::Relaxed);
    }

    /// Records why the trial fails, unless something failed before.
    pub(super) fn fail(&self, error: TrafficError) {
        let _ = self.failure.set(error);
    }

    fn gate(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is ready, or has failed: either way nobody needs to wait for it.
    fn arrive(&self) {
        self.gate().arrived += 1;
        self.moved.notify_all();
    }

    /// Waits until `threads` threads have arrived.
    pub(super) fn wait_for(&self, threads: usize) {
        let mut gate = self.gate();
        while gate.arrived < threads {
            gate = self
                .moved
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts the waiting threads, or sends them home.
    pub(super) fn decide(&self, verdict: Verdict) {
        self.gate().verdict = Some(verdict);
        self.moved.notify_all();
    }

    fn wait_for_verdict(&self) -> Verdict {
        let mut gate = self.gate();
        loop {
            if let Some(verdict) = gate.verdict {
                return verdict;
            }
            gate = self
                .moved
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a data thread has to do.
#[derive(Debug)]
pub(super) struct Task<'a> {
    pub(super) flow: &'a Flow,
    pub(super) cpu: Option<CpuId>,
    pub(super) counter: &'a Counter,
    pub(super) board: &'a Board,
    pub(super) buffer_bytes: usize,
    pub(super) duration: Duration,
}

/// What a data thread found at its end.
#[derive(Debug)]
pub(super) struct Ending {
    /// Since the start.
    pub(super) at: Duration,
    pub(super) bytes: u64,
    pub(super) time: ThreadTime,
    pub(super) last_cpu: Known<CpuId>,
    pub(super) incoming_cpu: Known<CpuId>,
    pub(super) tcp: Known<TcpInfo>,
}

/// Tells the board of a thread's steps, also when it unwinds: a thread that nobody hears of again
/// would be waited for without end.
struct Presence<'a> {
    task: &'a Task<'a>,
    arrived: bool,
}

impl Presence<'_> {
    fn arrive(&mut self) {
        if !std::mem::replace(&mut self.arrived, true) {
            self.task.board.arrive();
        }
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.arrive();
        self.task.counter.done.store(true, Ordering::Release);
        signal(&self.task.board.finished);
    }
}

impl Task<'_> {
    /// The life of the thread; `None` when it failed (the board holds why) or never started.
    pub(super) fn run(&self) -> Option<Ending> {
        let mut presence = Presence {
            task: self,
            arrived: false,
        };
        let result = self.pass_through(&mut presence);
        result
            .map_err(|error| self.board.fail(error))
            .ok()
            .flatten()
    }

    fn pass_through(&self, presence: &mut Presence<'_>) -> Result<Option<Ending>, TrafficError> {
        if let Some(cpu) = self.cpu {
            pin_thread(&CpuSet::one(cpu)).map_err(|errno| match errno {
                Errno::INVAL => TrafficError::NoSuchCpu { cpu },
                _ => TrafficError::of_errno("pin a data thread", errno),
            })?;
        }
        let mut memory = Vec::new();
        let buffer = touched_buffer(&mut memory, self.buffer_bytes)?;
        presence.arrive();
        let Verdict::Start { start, asked } = self.board.wait_for_verdict() else {
            return Ok(None);
        };

        let used_before = cpu_time()?;
        let (bytes, end) = match self.flow.role {
            Role::Sender => self.send_until_stopped(buffer),
            Role::Receiver => self.receive_until_end(buffer),
        };
        let ended = Instant::now();
        let at = ended.duration_since(start);
        let time = cpu_time()?.since(used_before);
        let tcp = info::read(&self.flow.socket);
        if self.flow.role == Role::Sender {
            // The end of file is the receiver's sign to stop. It fails only when the connection is
            // gone, and then the receiver has noticed.
            let _ = shutdown(&self.flow.socket, Shutdown::Write);
        }
        self.judge(end, at, ended.duration_since(asked))?;
        Ok(Some(Ending {
            at,
            bytes,
            time,
            last_cpu: last_cpu(),
            incoming_cpu: info::incoming_cpu(&self.flow.socket),
            tcp,
        }))
    }

    /// THE hot loop of a sender: one relaxed load, one system call, one relaxed store.
    fn send_until_stopped(&self, buffer: &[u8]) -> (u64, Option<Errno>) {
        let mut bytes = 0u64;
        while !self.board.stop.0.load(Ordering::Relaxed) {
            match send(&self.flow.socket, buffer, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    bytes += count as u64;
                    self.counter.bytes.store(bytes, Ordering::Relaxed);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return (bytes, Some(errno)),
            }
        }
        (bytes, None)
    }

    /// THE hot loop of a receiver: one system call, one relaxed store.
    fn receive_until_end(&self, buffer: &mut [u8]) -> (u64, Option<Errno>) {
        let mut bytes = 0u64;
        loop {
            match recv(&self.flow.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return (bytes, None),
                Ok((count, _)) => {
                    bytes += count as u64;
                    self.counter.bytes.store(bytes, Ordering::Relaxed);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return (bytes, Some(errno)),
            }
        }
    }

    /// Whether the loop ended as it should, `at` since the start and `since_asked` since GO.
    fn judge(
        &self,
        end: Option<Errno>,
        at: Duration,
        since_asked: Duration,
    ) -> Result<(), TrafficError> {
        let closed = TrafficError::PeerClosed {
            flow: self.flow.number,
            after: at,
        };
        match (self.flow.role, end) {
            (Role::Sender, None) => Ok(()),
            // The write side is shut down by us when the time is over, to end a `send` that blocks.
            (Role::Sender, Some(Errno::PIPE)) if self.board.stop.0.load(Ordering::Relaxed) => {
                Ok(())
            }
            // The sender began after our GO, so its end comes after our duration; 1 % is far more
            // than two clocks differ.
            (Role::Receiver, None) if since_asked >= self.duration.mul_f64(0.99) => Ok(()),
            (Role::Receiver, None) | (_, Some(Errno::PIPE | Errno::CONNRESET)) => Err(closed),
            (_, Some(errno)) => Err(TrafficError::of_errno("move data", errno)),
        }
    }
}

fn cpu_time() -> Result<ThreadTime, TrafficError> {
    thread_time().map_err(|errno| TrafficError::of_errno("read a thread's CPU time", errno))
}

fn last_cpu() -> Known<CpuId> {
    match u32::try_from(rustix::thread::sched_getcpu()) {
        Ok(cpu) => Known::Value(CpuId(cpu)),
        Err(_) => Known::unknown(
            linerate_model::known::Cause::Unreadable,
            "getcpu(2)",
            "the kernel's answer is not a CPU number",
        ),
    }
}

/// A buffer that starts on a page and whose every page is there. Its content does not repeat within a
/// page's reach, so that nothing on the way can profit from compressing it.
fn touched_buffer(memory: &mut Vec<u8>, size: usize) -> Result<&mut [u8], TrafficError> {
    const PAGE: usize = 4096;
    let full = |_| TrafficError::OutOfMemory {
        doing: "allocate a data thread's buffer",
    };
    memory.try_reserve_exact(size + PAGE).map_err(full)?;
    memory.resize(size + PAGE, 0);
    let offset = memory.as_ptr().align_offset(PAGE).min(PAGE);
    let buffer = &mut memory[offset..offset + size];
    // xorshift64 (Marsaglia 2003, "Xorshift RNGs").
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for chunk in buffer.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_ne_bytes()[..chunk.len()]);
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_two_threads_never_share_a_cache_line() {
        let counters = [Counter::default(), Counter::default()];
        let distance = (&raw const counters[1]).addr() - (&raw const counters[0]).addr();
        assert_eq!(distance, 128);
    }

    #[test]
    fn a_buffer_of_any_size_starts_on_a_page() {
        for size in [1, 7, 4096, 128 * 1024 + 3] {
            let mut memory = Vec::new();
            let buffer = touched_buffer(&mut memory, size).expect("memory");
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % 4096), (size, 0));
        }
    }

    #[test]
    fn a_buffer_larger_than_memory_is_refused() {
        let mut memory = Vec::new();
        let size = isize::MAX as usize - 8192;
        assert!(matches!(
            touched_buffer(&mut memory, size),
            Err(TrafficError::OutOfMemory { .. })
        ));
    }
}
