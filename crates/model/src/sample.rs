//! The raw record of a trial. Only counters and times stand here; every rate, share and verdict is
//! computed from them, so that a stored run can be judged again.

use serde::{Deserialize, Serialize};

use crate::ids::CpuId;
use crate::known::Known;
use crate::units::{BitRate, Bytes, Nanoseconds};
use crate::workload::StreamSpec;

/// Everything recorded in one trial on both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// What was moved and where the threads ran.
    pub spec: StreamSpec,
    /// What the host that linerate was started on recorded.
    pub local: SideSample,
    /// What the peer recorded.
    pub remote: SideSample,
    /// Whether both ends ran on one kernel, so that machine-wide counters are shared.
    pub shared_kernel: bool,
    /// Why the trial may not be trusted.
    pub flags: Vec<Flag>,
}

/// What one end recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideSample {
    /// One record for each connection at this end, in flow order.
    pub flows: Vec<FlowRecord>,
    /// CPU time between start and stop.
    pub cpu: CpuRecord,
    /// How long this end moved bytes, by its own monotonic clock.
    pub elapsed_ns: Nanoseconds,
}

/// Whether an end of a connection sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

/// One end of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// The number of the connection; equal on both ends.
    pub flow: u32,
    /// What this end did.
    pub role: Role,
    /// When the byte counter was read, since this end's start; strictly ascending.
    pub at_ns: Vec<Nanoseconds>,
    /// What the counter of bytes handed to or by the kernel held at those times; never falls.
    pub bytes: Vec<Bytes>,
    /// The CPU that the thread was pinned to, when it was.
    pub pinned_to: Option<CpuId>,
    /// The CPU that the thread was on when it ended.
    pub last_cpu: Known<CpuId>,
    /// The CPU on which the kernel received this connection's packets (`SO_INCOMING_CPU`).
    pub incoming_cpu: Known<CpuId>,
    /// User time of the thread.
    pub user_ns: Nanoseconds,
    /// System time of the thread.
    pub system_ns: Nanoseconds,
    /// The kernel's account of the connection when it ended.
    pub tcp: Known<TcpInfo>,
}

/// The part of `struct tcp_info` (include/uapi/linux/tcp.h) that names limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt_ns: Nanoseconds,
    /// Smallest round-trip time seen.
    pub rtt_min_ns: Nanoseconds,
    /// Payload of a full segment sent.
    pub snd_mss_bytes: Bytes,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Time during which data was outstanding or unsent.
    pub busy_ns: Nanoseconds,
    /// Of it, limited by the receive window.
    pub rwnd_limited_ns: Nanoseconds,
    /// Of it, limited by the send buffer.
    pub sndbuf_limited_ns: Nanoseconds,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: Bytes,
    /// Bytes sent again.
    pub bytes_retransmitted: Bytes,
    /// Segments sent.
    pub segments_out: u64,
    /// Segments sent again over the connection's life.
    pub retransmits: u32,
    /// The delivery rate that the kernel estimated last.
    pub delivery_rate_bit_per_s: BitRate,
    /// The send window that the peer grants (absent on old kernels).
    pub snd_wnd_bytes: Option<Bytes>,
    /// The congestion control that ran (`TCP_CONGESTION`).
    pub congestion_control: Option<String>,
    /// Whether TCP timestamps were agreed on (12 bytes of every segment).
    pub timestamps: bool,
}

/// CPU time on one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// User time of linerate's data threads.
    pub threads_user_ns: Nanoseconds,
    /// System time of linerate's data threads (softirq work done in their context included where the
    /// kernel accounts by ticks).
    pub threads_system_ns: Nanoseconds,
    /// Machine-wide time by kind, per CPU; belongs to both ends when they share a kernel.
    pub machine: Known<Vec<CpuTimes>>,
}

/// What one CPU did between start and stop (`/proc/stat`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// The CPU.
    pub cpu: CpuId,
    /// User time, nice included.
    pub user_ns: Nanoseconds,
    /// System time.
    pub system_ns: Nanoseconds,
    /// Time in hard interrupts.
    pub irq_ns: Nanoseconds,
    /// Time in soft interrupts.
    pub softirq_ns: Nanoseconds,
    /// Time that the hypervisor gave to others.
    pub steal_ns: Nanoseconds,
    /// Idle time, waiting for I/O included.
    pub idle_ns: Nanoseconds,
}

/// Why a trial may not be trusted, or how its figures must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// Both ends ran on one kernel: softirq time and machine counters are shared.
    SharedKernel,
    /// The kernel accounts CPU time by ticks, not exactly.
    TickAccounting,
    /// The hypervisor took more than 2 % of the CPU time.
    Steal,
    /// The measured rate is above the computed ceiling.
    CeilingWrong,
    /// The two ends' byte counts disagree by more than what was in flight.
    CountsDisagree,
    /// The rate never settled within the trial.
    NotSettled,
    /// The trial ended before its time.
    CutShort,
}

impl SideSample {
    /// The records of the connections that this end received on.
    pub fn receivers(&self) -> impl Iterator<Item = &FlowRecord> {
        self.flows.iter().filter(|flow| flow.role == Role::Receiver)
    }

    /// The records of the connections that this end sent on.
    pub fn senders(&self) -> impl Iterator<Item = &FlowRecord> {
        self.flows.iter().filter(|flow| flow.role == Role::Sender)
    }
}

/// An end's record that cannot be of the trial that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the record holds {given} {what}, and the trial allows {most}")]
pub struct TooMuch {
    what: &'static str,
    given: usize,
    most: usize,
}

impl SideSample {
    /// Whether this can be an end's record of a trial of `spec`: a far end, or a stored run, may claim
    /// anything, and what judges it works with every flow at every reading's time.
    pub fn check(&self, spec: &StreamSpec) -> Result<(), TooMuch> {
        // Both directions; and some readings while the socket buffers drain after the planned end.
        let flows = 2 * spec.flows as usize;
        let planned = spec.duration_ns.as_u64() / spec.interval_ns.as_u64().max(1);
        let readings = usize::try_from(planned)
            .unwrap_or(usize::MAX)
            .saturating_add(1_024);
        let most = |what, given, most| {
            if given > most {
                Err(TooMuch { what, given, most })
            } else {
                Ok(())
            }
        };
        most("flows", self.flows.len(), flows)?;
        self.flows.iter().try_for_each(|flow| {
            most("readings of a flow", flow.at_ns.len(), readings)?;
            most("counts of a flow", flow.bytes.len(), readings)
        })
    }
}

impl FlowRecord {
    /// All bytes of this end.
    pub fn total(&self) -> Bytes {
        self.bytes.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn a_record_of_more_than_was_asked_for_is_refused() {
        let sample = build::sample().flows(2).build();
        assert_eq!(sample.remote.check(&sample.spec), Ok(()));
        let mut flood = sample.remote.clone();
        flood.flows = vec![flood.flows[0].clone(); 5];
        assert!(flood.check(&sample.spec).is_err());
        let mut long = sample.remote.clone();
        long.flows[1].at_ns = vec![Nanoseconds::new(1); 10_000_000];
        assert!(long.check(&sample.spec).is_err());
    }
}
