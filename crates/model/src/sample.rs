//! The raw record of a trial. Only counters and times stand here; every rate, share and verdict is
//! computed from them, so that a stored run can be judged again.

mod grid;
mod machine;

use serde::{Deserialize, Serialize};

pub use grid::{Checksum, GridPicture, GridRecord, Vectors};
pub use machine::{CpuFrequency, CpuStep, ProfileScope};

use crate::ids::{CpuId, CpuSet, NicName, NodeId};
use crate::known::{Cause, Gap, Known};
use crate::latency::Histogram;
use crate::units::{BitRate, Bytes, Nanoseconds};
use crate::watch::Watch;
use crate::workload::{DatagramBatch, TrialSpec};

/// Everything recorded in one trial on both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// What was moved and where the threads ran.
    pub spec: TrialSpec,
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
    /// One record for each data thread at this end, and after them those of the kernel's polling threads.
    #[serde(default)]
    pub threads: Vec<ThreadRecord>,
    /// What was asked and answered, at the end that asks (`rr`, `pingpong`, `http`, `transfer`, `diffusion`).
    #[serde(default)]
    pub operations: Option<Operations>,
    /// What the machine's counters did between start and stop: interfaces, softnet, netstat, qdiscs,
    /// interrupts per CPU, context switches, page faults.
    #[serde(default)]
    pub counters: Known<Watch>,
    /// Where this end's CPUs spent the time.
    #[serde(default)]
    pub profile: Known<Profile>,
    /// The interface that carries the address of this end's data connections.
    #[serde(default)]
    pub interface: Option<NicName>,
}

/// One data thread, or a thread of the kernel that works for one: where it was told to run, where it ran, and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRecord {
    /// Its number at this end.
    pub thread: u32,
    /// Set when it is no thread of ours but one of the kernel's, which takes the submissions of a ring of
    /// that data thread (io_uring's `SQPOLL`): its CPU time is this end's too.
    #[serde(default)]
    pub polls_for: Option<u32>,
    /// What it did.
    pub role: Role,
    /// The CPU that it was pinned to, when it was.
    pub pinned_to: Option<CpuId>,
    /// The CPUs that it was seen on, ascending.
    pub seen_on: Vec<CpuId>,
    /// How often it was found on another CPU than the time before. At least so many migrations.
    pub moves_seen: u32,
    /// The node that its buffer is on (move_pages(2) of its first page, when it ended).
    pub memory_node: Known<NodeId>,
    /// User time.
    pub user_ns: Nanoseconds,
    /// System time.
    pub system_ns: Nanoseconds,
    /// Times it gave the CPU up (`ru_nvcsw`).
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it (`ru_nivcsw`).
    pub involuntary_switches: u64,
    /// Time in which it could have run and had to wait for a CPU (`/proc/thread-self/schedstat`, second
    /// number).
    #[serde(default)]
    pub waited_for_cpu_ns: Known<Nanoseconds>,
    /// Page faults that needed no disk (`ru_minflt`).
    pub minor_faults: u64,
    /// Page faults that did (`ru_majflt`).
    pub major_faults: u64,
}

/// What the end that asks counted and timed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Operations {
    /// Operations that came to their end between start and stop.
    pub completed: u64,
    /// Operations that failed: a wrong answer, a broken connection.
    pub failed: u64,
    /// Operations that were under way at the end, or in open loop due before it, and not answered when the
    /// time to catch up was over, a second later; of datagrams that are timed one at a time, those without an
    /// answer within a second. They have no latency.
    #[serde(default)]
    pub unanswered: u64,
    /// Their times: round trips of `rr` and `http`, whole cycles of `transfer` and `diffusion`. In open loop from the
    /// intended start, so that a stall counts for everything that had to wait (no coordinated omission).
    pub latency: Histogram,
    /// In open loop, the times from when each was really sent: what a closed loop would have said.
    pub service: Option<Histogram>,
    /// How many had been completed at each reading, since the start; ascending in time.
    pub steps: Vec<Step>,
    /// How many each thread completed.
    pub per_thread: Vec<u64>,
    /// `http`: bytes that came, heads included.
    #[serde(default)]
    pub received_bytes: Bytes,
    /// `pingpong`: each size.
    pub sizes: Vec<SizeRecord>,
}

/// A count at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Since the start.
    pub at_ns: Nanoseconds,
    /// Completed until then.
    pub completed: u64,
}

/// One size of `pingpong`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRecord {
    /// The message.
    pub bytes: Bytes,
    /// Round trips made.
    pub repetitions: u64,
    /// The time that all of them took together.
    pub elapsed_ns: Nanoseconds,
    /// Half of each round trip. Of `rdma-*` in latency mode the time of one operation; of its rates empty.
    pub one_way: Histogram,
    /// `rdma-*`: the highest rate over eight times as many messages as the queue pairs hold, of fewer that of all; of
    /// several threads none, as theirs were not reached at the same moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bit_per_s: Option<BitRate>,
    /// `rdma-*`, rates: the shortest time of one message alone on an idle queue pair, before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_ns: Option<Nanoseconds>,
}

/// Where CPUs spent the time, by sampling (perf_event_open(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// What made the samples: `cycles`, or `cpu-clock` where there is no hardware counter.
    pub event: String,
    /// All samples, on all CPUs, idle ones left out.
    pub samples: u64,
    /// Samples that the kernel lost.
    pub lost: u64,
    /// The hottest symbols, the hottest first.
    pub symbols: Vec<Hot>,
    /// What it could see.
    #[serde(default)]
    pub scope: ProfileScope,
    /// Why it could not see more, or name what it saw.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// One symbol of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// The symbol, or the address where none is known.
    pub symbol: String,
    /// The kernel, a module (`[ixgbe]`) or a program's file.
    pub place: String,
    /// Whether it ran in the kernel.
    pub kernel: bool,
    /// Its samples.
    pub samples: u64,
}

/// How payload really got into and out of the kernel on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Copies {
    /// Sends that asked for no copy and whose completion was heard.
    pub zerocopy_sends: u64,
    /// Of them, those that the kernel copied all the same (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub copied_after_all: u64,
    /// Bytes that were mapped, not copied, on receive.
    pub mapped_bytes: Bytes,
}

/// The datagrams of one end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Datagrams {
    /// Sent, at the sender; arrived, duplicates included, at the receiver.
    pub count: u64,
    /// At the receiver: sent (it is told after the end) and never arrived.
    pub lost: u64,
    /// At the receiver: arrived after one that was sent later.
    pub reordered: u64,
    /// At the receiver: arrived again.
    pub duplicated: u64,
    /// At the receiver: the smoothed difference of transit times (RFC 3550, 6.4.1).
    pub jitter_ns: Nanoseconds,
    /// At the receiver: one-way delay, where both ends have one clock; else empty.
    pub delay: Option<Histogram>,
    /// At the receiver: what its socket dropped, mostly because its buffer was full (`SO_MEMINFO`); of
    /// datagrams that the kernel joined (`UDP_GRO`), each joined packet counts once. Empty where the
    /// kernel does not tell.
    #[serde(default)]
    pub socket_drops: Option<u64>,
    /// How they really got into or out of the kernel: datagrams that do not fit the path's MTU are not
    /// cut by `UDP_SEGMENT`.
    #[serde(default)]
    pub batch: Option<DatagramBatch>,
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
    /// The thread that served it, in [`SideSample::threads`]; it may have served others too.
    #[serde(default)]
    pub thread: u32,
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
    /// The NAPI that received them (`SO_INCOMING_NAPI_ID`).
    #[serde(default)]
    pub incoming_napi: Known<u32>,
    /// User time of the thread; of one that served several flows, an equal part.
    pub user_ns: Nanoseconds,
    /// System time of the thread; of one that served several flows, an equal part.
    pub system_ns: Nanoseconds,
    /// The kernel's account of the connection when it ended.
    pub tcp: Known<TcpInfo>,
    /// How payload crossed into the kernel, when copies were to be avoided.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// `udp`.
    #[serde(default)]
    pub datagrams: Option<Datagrams>,
    /// At the sender of a stream: what had been sent when the far end had everything. `tcp` is of the moment
    /// when its thread ended, with the last bytes still in the send buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// What carried it, when that were verbs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<VerbsRecord>,
    /// `diffusion`: the grid that this end held last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<GridRecord>,
}

/// One end of a queue pair: what was chosen, and what its thread did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerbsRecord {
    /// The device.
    pub device: String,
    /// Its port.
    pub port: u8,
    /// The index of the GID; none on InfiniBand within a subnet.
    pub gid_index: Option<u32>,
    /// The GID, `::ffff:10.0.0.1`.
    pub gid: Option<String>,
    /// What it is: `RoCE v2`, `IB/RoCE v1`.
    pub gid_kind: Option<String>,
    /// The queue pair's number.
    pub queue_pair: u32,
    /// The path MTU; none of iWARP, whose TCP cuts its messages.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Work requests that it had under way at most.
    #[serde(default)]
    pub depth: u32,
    /// The largest message that travelled in its work request.
    pub inline_bytes: Bytes,
    /// One work request in so many was signalled.
    pub moderation: u32,
    /// Memory that was registered for it; what several share counts at each.
    pub registered_bytes: Bytes,
    /// Completions that were taken.
    pub completions: u64,
    /// How often the completion queue was asked ...
    pub polls: u64,
    /// ... and had nothing.
    pub polls_empty: u64,
    /// How often the thread slept until the device told of a completion.
    pub sleeps: u64,
    /// How often the thread that posts found nothing under way any more; empty where it does not count.
    #[serde(default)]
    pub ran_dry: Option<u64>,
}

/// The bytes of a connection whose far end has everything that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Drained {
    /// Bytes sent, retransmissions included (`tcpi_bytes_sent`).
    pub bytes_sent: Bytes,
    /// Bytes sent again (`tcpi_bytes_retrans`).
    pub bytes_retransmitted: Bytes,
}

/// The part of `struct tcp_info` (include/uapi/linux/tcp.h) that names limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// Whether ECN was agreed on.
    #[serde(default)]
    pub ecn: Option<bool>,
    /// Packets that arrived with congestion marked, as the peer echoed them.
    #[serde(default)]
    pub delivered_ce: Option<u64>,
    /// The number of segments by which the path is known to reorder.
    #[serde(default)]
    pub reordering: Option<u32>,
    /// Reorderings seen (Linux 4.19).
    #[serde(default)]
    pub reordering_seen: Option<u64>,
    /// Payload of a full segment received.
    #[serde(default)]
    pub rcv_mss_bytes: Option<Bytes>,
    /// Segments that arrived twice, as the peer reported them (`tcpi_dsack_dups`): sent again in vain.
    #[serde(default)]
    pub duplicate_segments: Option<u64>,
    /// The receiver's own estimate of the round-trip time.
    #[serde(default)]
    pub rcv_rtt_ns: Option<Nanoseconds>,
    /// What the receiver's autotuning found that the program reads in a round trip.
    #[serde(default)]
    pub rcv_space_bytes: Option<Bytes>,
    /// Bytes that are acknowledged and wait to be read or were read (`tcpi_bytes_received`).
    #[serde(default)]
    pub bytes_received: Option<Bytes>,
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
    /// The same step by step, ascending in time, to stand beside what was moved over time.
    #[serde(default)]
    pub series: Vec<CpuStep>,
    /// The frequencies that CPUs were seen at.
    #[serde(default)]
    pub frequency: Known<Vec<CpuFrequency>>,
    /// CPU time that the record itself took at this end: the readings of the threads' counters, of the
    /// machine's before and after, and of the CPUs meanwhile.
    #[serde(default)]
    pub recording_ns: Known<Nanoseconds>,
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
    /// A thread that was told where to run was found elsewhere, or moved. (One that was left to the
    /// scheduler may move: its record says so, and no flag.)
    Migrated,
    /// A buffer was not on the node that was asked for.
    MemoryElsewhere,
    /// The kernel copied what was to be sent or received without a copy.
    CopiedAfterAll,
    /// The frequency of a CPU that worked moved by more than 5 % during the trial, or was in turbo: rates of
    /// few and of many cores do not compare.
    FrequencyMoved,
    /// A CPU that worked spent more than 10 % of the time in states that take more than 10 us to leave:
    /// more load may look faster.
    DeepSleep,
    /// Others sent or received on this interface more than 5 % of what the trial did.
    OtherTraffic,
    /// The load generator made less than 99 % of the rate that was asked for.
    RateNotKept,
    /// The far end is not linerate and cannot tell some of the figures.
    ForeignPeer,
    /// The kernel's thread that took a ring's submissions (io_uring's `SQPOLL`) could not be read: more CPU
    /// time was used than is said.
    PollingUncounted,
    /// The two ends of a pair do not hold the same grid: memory, a device or something on the way changed it.
    GridsDiffer,
}

impl SideSample {
    /// How long this end began operations: what comes after the trial's planned end is only waited for.
    pub fn began_for(&self, spec: &TrialSpec) -> Nanoseconds {
        self.elapsed_ns.min(spec.duration_ns)
    }

    /// An end that is not ours, and tells nothing of itself.
    pub fn unheard(who: &str) -> Self {
        let path = "the remote end";
        let reason = || format!("{who} does not report it");
        Self {
            flows: Vec::new(),
            cpu: CpuRecord {
                threads_user_ns: Nanoseconds::default(),
                threads_system_ns: Nanoseconds::default(),
                machine: Known::unknown(Cause::NotSaid, path, reason()),
                series: Vec::new(),
                frequency: Known::unknown(Cause::NotSaid, path, reason()),
                recording_ns: Known::unknown(Cause::NotSaid, path, reason()),
            },
            elapsed_ns: Nanoseconds::default(),
            threads: Vec::new(),
            operations: None,
            counters: Known::unknown(Cause::NotSaid, path, reason()),
            profile: Known::unknown(Cause::NotSaid, path, reason()),
            interface: None,
        }
    }

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
    pub fn check(&self, spec: &TrialSpec) -> Result<(), TooMuch> {
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
        // A data thread may have a polling thread of the kernel beside it, or one for each flow.
        most("threads", self.threads.len(), 2 * flows.max(1_024))?;
        if let Some(operations) = &self.operations {
            most("steps", operations.steps.len(), readings)?;
            most(
                "counts of threads",
                operations.per_thread.len(),
                flows.max(1_024),
            )?;
            most("sizes", operations.sizes.len(), 256)?;
        }
        let symbols = self
            .profile
            .value()
            .map_or(0, |profile| profile.symbols.len());
        most("symbols", symbols, 10_000)?;
        let counters = self
            .counters
            .value()
            .map_or(0, |watch| watch.counters.len());
        most("counters", counters, 1_000_000)?;
        let steps = &self.cpu.series;
        most("steps of the CPUs", steps.len(), readings)?;
        let cpus = steps.iter().map(|step| step.cpus.len()).max().unwrap_or(0);
        most("CPUs of a step", cpus, CpuSet::CPU_MAX as usize + 1)?;
        let frequencies = self.cpu.frequency.value().map_or(0, Vec::len);
        most("frequencies", frequencies, CpuSet::CPU_MAX as usize + 1)?;
        self.flows.iter().try_for_each(|flow| {
            most("readings of a flow", flow.at_ns.len(), readings)?;
            most("counts of a flow", flow.bytes.len(), readings)?;
            let mut amounts = flow.grid.iter().flat_map(GridRecord::amounts);
            amounts.try_for_each(|(what, given, allowed)| most(what, given, allowed))
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
