//! What a trial moves, and where its threads run. Declarative and plain; `linerate-traffic` carries
//! it out.

use serde::{Deserialize, Serialize};

use crate::ids::{CpuId, CpuSet};
use crate::units::{Bytes, Nanoseconds};

/// Which way the bytes go, seen from the host that linerate was started on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From here to the peer.
    Forward,
    /// From the peer to here.
    Reverse,
    /// Both at once: `flows` flows each way.
    Bidirectional,
}

/// Where the threads of one end run. Thread *i* runs on the *i*-th CPU of the set, modulo its size; an
/// empty set leaves the choice to the scheduler (within what the process inherited).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// CPUs of the sending threads.
    pub sender_cpus: CpuSet,
    /// CPUs of the receiving threads.
    pub receiver_cpus: CpuSet,
}

impl Placement {
    /// The CPU of thread `index` among `cpus`.
    pub fn cpu_of(cpus: &CpuSet, index: usize) -> Option<CpuId> {
        cpus.iter().nth(index.checked_rem(cpus.len())?)
    }
}

/// A bulk TCP transfer: `flows` connections, one thread each on both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Connections in each direction that carries data.
    pub flows: u32,
    /// Which way the bytes go.
    pub direction: Direction,
    /// How long the transfer lasts, warm-up included.
    pub duration_ns: Nanoseconds,
    /// How often the byte counters are read.
    pub interval_ns: Nanoseconds,
    /// The size of each `send` and `recv`.
    pub buffer_bytes: Bytes,
    /// `SO_SNDBUF`/`SO_RCVBUF`; `None` leaves the kernel's autotuning on.
    pub socket_buffer_bytes: Option<Bytes>,
    /// The congestion control of these connections; `None` is the host's default.
    pub congestion_control: Option<String>,
    /// Where the threads run.
    pub placement: Placement,
}

/// A limit of [`StreamSpec`] that was passed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {given}: allowed is {allowed}")]
pub struct SpecError {
    /// The field.
    pub what: &'static str,
    /// What it was.
    pub given: String,
    /// What it may be.
    pub allowed: &'static str,
}

impl StreamSpec {
    /// The most flows of one trial.
    pub const FLOWS_MAX: u32 = 1024;

    /// Whether both ends could carry it out; the agent checks what a controller asks of it.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |what, given: String, allowed| {
            Err(SpecError {
                what,
                given,
                allowed,
            })
        };
        if !(1..=Self::FLOWS_MAX).contains(&self.flows) {
            return wrong("the number of flows", self.flows.to_string(), "1 to 1024");
        }
        let seconds = self.duration_ns.as_secs_f64();
        if !(0.05..=86_400.0).contains(&seconds) {
            return wrong(
                "the duration",
                self.duration_ns.to_string(),
                "50 ms to 24 h",
            );
        }
        if self.interval_ns < Nanoseconds::from_millis(1) || self.interval_ns > self.duration_ns {
            return wrong(
                "the interval",
                self.interval_ns.to_string(),
                "1 ms to the duration",
            );
        }
        // Bounds the memory of the readings, and keeps a record within the protocol's longest line.
        let intervals = self.duration_ns.as_u64() / self.interval_ns.as_u64();
        if intervals.saturating_mul(u64::from(self.flows)) > 1_000_000 {
            return wrong(
                "the interval",
                self.interval_ns.to_string(),
                "at most a million a trial, of all flows together",
            );
        }
        if !(1..=1 << 30).contains(&self.buffer_bytes.as_u64()) {
            return wrong("the buffer", self.buffer_bytes.to_string(), "1 B to 1 GiB");
        }
        if self
            .buffer_bytes
            .as_u64()
            .saturating_mul(u64::from(self.flows))
            > 8 << 30
        {
            return wrong(
                "the buffers of all flows",
                self.buffer_bytes.to_string(),
                "8 GiB together",
            );
        }
        if self
            .socket_buffer_bytes
            .is_some_and(|size| size.as_u64() > 1 << 30)
        {
            return wrong(
                "the socket buffer",
                format!("{:?}", self.socket_buffer_bytes),
                "up to 1 GiB",
            );
        }
        if let Some(name) = &self.congestion_control
            && (name.is_empty() || name.len() > 15 || !name.bytes().all(|b| b.is_ascii_graphic()))
        {
            return wrong(
                "the congestion control",
                name.clone(),
                "a name of 1 to 15 characters",
            );
        }
        Ok(())
    }
}
