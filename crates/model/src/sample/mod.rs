//! The raw record of a trial. It holds only counters and times; every rate, share and verdict is computed from them,
//! so that a stored run can be analyzed again.

mod datagrams;
mod grid;
mod machine;

pub use datagrams::{DatagramGaps, Datagrams, OnTime};
pub use grid::{Checksum, Film, GridPicture, GridRecord, Vectors};
pub use machine::{CpuFrequency, CpuStep, ProfileScope};
use serde::{Deserialize, Serialize};

use crate::failover::events::{EVENTS_MAX, HostEvents};
use crate::failover::{COMMANDS_MAX, CommandRun};
use crate::failover::{ERRORS_MAX, RUNS_MAX};
use crate::ids::{CpuId, CpuSet, NicName, NodeId};
use crate::known::{Cause, Gap, Known};
use crate::latency::Histogram;
use crate::units::{BitRate, Bytes, Nanoseconds};
use crate::watch::Watch;
use crate::workload::TrialSpec;

/// Everything recorded in one trial on both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The workload and placement.
    pub spec: TrialSpec,
    /// The record of the host that linerate was started on.
    pub local: SideSample,
    /// The peer's record.
    pub remote: SideSample,
    /// Whether both ends ran on one kernel, so that machine-wide counters are shared.
    pub shared_kernel: bool,
    /// Reasons to doubt the trial.
    pub flags: Vec<Flag>,
}

/// The record of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideSample {
    /// One record for each connection at this end, in flow order.
    pub flows: Vec<FlowRecord>,
    /// CPU time between start and stop.
    pub cpu: CpuRecord,
    /// The duration of the transfer at this end, by its own monotonic clock.
    pub elapsed_ns: Nanoseconds,
    /// One record for each data thread at this end, followed by those of the kernel's polling threads.
    #[serde(default)]
    pub threads: Vec<ThreadRecord>,
    /// Request counts and latencies, at the requesting end (`rr`, `pingpong`, `http`, `transfer`, `diffusion`).
    #[serde(default)]
    pub operations: Option<Operations>,
    /// The increase of the machine's counters between start and stop: interfaces, softnet, netstat, qdiscs,
    /// interrupts per CPU, context switches, page faults.
    #[serde(default)]
    pub counters: Known<Watch>,
    /// A CPU profile of this end.
    #[serde(default)]
    pub profile: Known<Profile>,
    /// The interface with the address of this end's data connections.
    #[serde(default)]
    pub interface: Option<NicName>,
    /// What happened to this end's network, if that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Box<HostEvents>>,
    /// The commands that this end ran in the trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRun>,
}

/// A data thread, or a kernel thread that works for one: where it should run, where it ran, and its CPU time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadRecord {
    /// Its number at this end.
    pub thread: u32,
    /// Set if it is not our thread but a kernel thread that polls the submission queue of that data thread's ring
    /// (io_uring `SQPOLL`): its CPU time belongs to this end too.
    #[serde(default)]
    pub polls_for: Option<u32>,
    /// Its role.
    pub role: Role,
    /// The CPU that it was pinned to, if any.
    pub pinned_to: Option<CpuId>,
    /// The CPUs that it was seen on, ascending.
    pub seen_on: Vec<CpuId>,
    /// How often it was seen on another CPU than before: a lower bound of the migrations.
    pub moves_seen: u32,
    /// The node that its buffer is on (move_pages(2) of its first page, when it ended).
    pub memory_node: Known<NodeId>,
    /// User time.
    pub user_ns: Nanoseconds,
    /// System time.
    pub system_ns: Nanoseconds,
    /// Voluntary context switches (`ru_nvcsw`).
    pub voluntary_switches: u64,
    /// Involuntary context switches (`ru_nivcsw`).
    pub involuntary_switches: u64,
    /// Time spent runnable, waiting for a CPU (`/proc/thread-self/schedstat`, second number).
    #[serde(default)]
    pub waited_for_cpu_ns: Known<Nanoseconds>,
    /// Minor page faults (`ru_minflt`).
    pub minor_faults: u64,
    /// Major page faults (`ru_majflt`).
    pub major_faults: u64,
}

/// The operations of the requesting end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Operations {
    /// Operations completed between start and stop.
    pub completed: u64,
    /// Failed operations: a wrong response, a broken connection.
    pub failed: u64,
    /// Operations that were in flight at the end (in open loop also those due before it) and not completed within the
    /// grace time of one second; for datagrams that are timed one at a time, those without a response within a
    /// second. They have no latency.
    #[serde(default)]
    pub unanswered: u64,
    /// Latencies: round trips of `rr` and `http`, whole cycles of `transfer` and `diffusion`. In open loop they count
    /// from the intended start, so that a stall affects every operation that had to wait (no coordinated omission).
    pub latency: Histogram,
    /// In open loop, latencies from the actual send time: what a closed loop would report.
    pub service: Option<Histogram>,
    /// Completed operations at each reading, since the start; ascending in time.
    pub steps: Vec<Step>,
    /// Completed operations of each thread.
    pub per_thread: Vec<u64>,
    /// For each thread, what it had completed at each of `steps` but the last; none of many threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps_of_threads: Vec<Vec<u64>>,
    /// `http`: bytes received, including headers.
    #[serde(default)]
    pub received_bytes: Bytes,
    /// `pingpong`: each size.
    pub sizes: Vec<SizeRecord>,
}

/// A count at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Since the start.
    pub at_ns: Nanoseconds,
    /// Completed so far.
    pub completed: u64,
}

/// One size of `pingpong`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRecord {
    /// The message size.
    pub bytes: Bytes,
    /// The number of round trips.
    pub repetitions: u64,
    /// Their total time.
    pub elapsed_ns: Nanoseconds,
    /// Half of each round trip. For `rdma-*` in latency mode, the time of one operation; empty in rate mode.
    pub one_way: Histogram,
    /// `rdma-*`: the peak rate over eight times the depth in messages, or over all messages if there are fewer; none
    /// with several threads, as their peaks do not coincide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bit_per_s: Option<BitRate>,
    /// `rdma-*` in rate mode: the minimum time of a single message on an idle queue pair, before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_ns: Option<Nanoseconds>,
}

/// Where CPUs spent their time, by sampling (perf_event_open(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The sampling event: `cycles`, or `cpu-clock` without a hardware counter.
    pub event: String,
    /// Samples per second of busy CPU time; an earlier linerate did not record it.
    #[serde(default)]
    pub hz: Option<u32>,
    /// The number of samples within the scope, without idle ones.
    pub samples: u64,
    /// The number of samples outside the scope, without idle ones: other processes, and softirqs on other CPUs.
    #[serde(default)]
    pub elsewhere: u64,
    /// Samples that the kernel lost.
    pub lost: u64,
    /// The hottest symbols, hottest first.
    pub symbols: Vec<Hot>,
    /// The scope of the profile.
    #[serde(default)]
    pub scope: ProfileScope,
    /// Why the scope is limited, or symbols are missing.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// One symbol of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// The symbol, or the address where none is known.
    pub symbol: String,
    /// The kernel, a module (`[ixgbe]`) or a program file.
    pub place: String,
    /// Whether it is kernel code.
    pub kernel: bool,
    /// Its number of samples.
    pub samples: u64,
}

/// How payload was actually transferred to and from the kernel on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Copies {
    /// Zero-copy sends with a completion notification.
    pub zerocopy_sends: u64,
    /// Of them, those that the kernel copied anyway (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub copied_after_all: u64,
    /// Bytes that were mapped, not copied, on receive.
    pub mapped_bytes: Bytes,
}

/// Whether an end of a connection sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The role of this end.
    pub role: Role,
    /// The index of its thread in [`SideSample::threads`]; a thread may serve several connections.
    #[serde(default)]
    pub thread: u32,
    /// When the byte counter was read, since this end's start; strictly ascending.
    pub at_ns: Vec<Nanoseconds>,
    /// The bytes passed to or from the kernel at those times; never decreasing.
    pub bytes: Vec<Bytes>,
    /// The CPU that the thread was pinned to, if any.
    pub pinned_to: Option<CpuId>,
    /// The CPU that the thread last ran on.
    pub last_cpu: Known<CpuId>,
    /// The CPU on which the kernel received this connection's packets (`SO_INCOMING_CPU`).
    pub incoming_cpu: Known<CpuId>,
    /// The NAPI that received them (`SO_INCOMING_NAPI_ID`).
    #[serde(default)]
    pub incoming_napi: Known<u32>,
    /// User time of the thread, divided equally among its flows.
    pub user_ns: Nanoseconds,
    /// System time of the thread, divided equally among its flows.
    pub system_ns: Nanoseconds,
    /// The kernel's TCP_INFO at the end.
    pub tcp: Known<TcpInfo>,
    /// How payload was passed to the kernel, if zero-copy was requested.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// `udp`.
    #[serde(default)]
    pub datagrams: Option<Datagrams>,
    /// At the sender of a stream: the bytes sent when the peer had received everything. `tcp` is read when the
    /// sending thread ends, with the last bytes still in the send buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// The queue pair, for verbs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<VerbsRecord>,
    /// `diffusion`: this end's last grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<GridRecord>,
}

/// One end of a queue pair: its parameters, and its thread's counters.
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
    /// The GID type: `RoCE v2`, `IB/RoCE v1`.
    pub gid_kind: Option<String>,
    /// The queue pair number.
    pub queue_pair: u32,
    /// The path MTU; none for iWARP, where TCP segments the messages.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// The depth: maximum work requests in flight.
    #[serde(default)]
    pub depth: u32,
    /// The maximum inline size.
    pub inline_bytes: Bytes,
    /// Signaling: one signaled work request in this many.
    pub moderation: u32,
    /// Memory registered for it; shared memory counts at each queue pair.
    pub registered_bytes: Bytes,
    /// Completions polled.
    pub completions: u64,
    /// The number of completion queue polls ...
    pub polls: u64,
    /// ... and of empty ones.
    pub polls_empty: u64,
    /// How often the thread slept until a completion event.
    pub sleeps: u64,
    /// How often the posting thread found nothing in flight; empty if not counted.
    #[serde(default)]
    pub ran_dry: Option<u64>,
}

/// The bytes of a connection after the peer has received everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Drained {
    /// Bytes sent, retransmissions included (`tcpi_bytes_sent`).
    pub bytes_sent: Bytes,
    /// Bytes retransmitted (`tcpi_bytes_retrans`).
    pub bytes_retransmitted: Bytes,
}

/// The fields of `struct tcp_info` (include/uapi/linux/tcp.h) that identify limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpInfo {
    /// Smoothed RTT.
    pub rtt_ns: Nanoseconds,
    /// Minimum RTT.
    pub rtt_min_ns: Nanoseconds,
    /// Send MSS.
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
    /// Bytes retransmitted.
    pub bytes_retransmitted: Bytes,
    /// Segments sent.
    pub segments_out: u64,
    /// Segments retransmitted over the connection's life.
    pub retransmits: u32,
    /// The kernel's latest delivery rate estimate.
    pub delivery_rate_bit_per_s: BitRate,
    /// The send window granted by the peer (absent on old kernels).
    pub snd_wnd_bytes: Option<Bytes>,
    /// The congestion control in use (`TCP_CONGESTION`).
    pub congestion_control: Option<String>,
    /// Whether TCP timestamps were negotiated (12 bytes of every segment).
    pub timestamps: bool,
    /// Whether ECN was negotiated.
    #[serde(default)]
    pub ecn: Option<bool>,
    /// Packets with ECN CE marks, as echoed by the peer.
    #[serde(default)]
    pub delivered_ce: Option<u64>,
    /// The reordering metric in segments (`tcpi_reordering`).
    #[serde(default)]
    pub reordering: Option<u32>,
    /// Reordering events (Linux 4.19).
    #[serde(default)]
    pub reordering_seen: Option<u64>,
    /// Receive MSS.
    #[serde(default)]
    pub rcv_mss_bytes: Option<Bytes>,
    /// Duplicate segments reported by the peer (`tcpi_dsack_dups`): unnecessary retransmissions.
    #[serde(default)]
    pub duplicate_segments: Option<u64>,
    /// The receiver's RTT estimate.
    #[serde(default)]
    pub rcv_rtt_ns: Option<Nanoseconds>,
    /// The receiver autotuning's estimate of data read per RTT (`tcpi_rcv_space`).
    #[serde(default)]
    pub rcv_space_bytes: Option<Bytes>,
    /// Bytes received and acknowledged, read or not (`tcpi_bytes_received`).
    #[serde(default)]
    pub bytes_received: Option<Bytes>,
}

/// CPU time on one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// User time of linerate's data threads.
    pub threads_user_ns: Nanoseconds,
    /// System time of linerate's data threads (including softirqs in their context if the kernel accounts by ticks).
    pub threads_system_ns: Nanoseconds,
    /// Machine-wide time by kind, per CPU; belongs to both ends when they share a kernel.
    pub machine: Known<Vec<CpuTimes>>,
    /// The same per interval, ascending in time, for comparison with the transferred bytes over time.
    #[serde(default)]
    pub series: Vec<CpuStep>,
    /// The frequencies of the CPUs.
    #[serde(default)]
    pub frequency: Known<Vec<CpuFrequency>>,
    /// CPU time used for recording at this end: reading the threads' counters, the machine's before and after, and
    /// the CPUs in between.
    #[serde(default)]
    pub recording_ns: Known<Nanoseconds>,
}

/// The times of one CPU between start and stop (`/proc/stat`).
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
    /// Time in softirqs.
    pub softirq_ns: Nanoseconds,
    /// Steal time.
    pub steal_ns: Nanoseconds,
    /// Idle time, including iowait.
    pub idle_ns: Nanoseconds,
}

/// Why a trial is doubtful, or how its values must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// Both ends ran on one kernel: softirq time and machine counters are shared.
    SharedKernel,
    /// The kernel accounts CPU time by ticks, not exactly.
    TickAccounting,
    /// Steal above 2 % of the CPU time.
    Steal,
    /// The measured rate is above the computed ceiling.
    CeilingWrong,
    /// The two ends' byte counts disagree by more than what was in flight.
    CountsDisagree,
    /// The rate never settled within the trial.
    NotSettled,
    /// The trial ended early.
    CutShort,
    /// A pinned thread was seen on another CPU, or migrated. (An unpinned thread may migrate: its record shows it,
    /// without a flag.)
    Migrated,
    /// A buffer was not on the requested node.
    MemoryElsewhere,
    /// The kernel copied data that was to be sent or received with zero-copy.
    CopiedAfterAll,
    /// The frequency of a busy CPU varied by more than 5 % during the trial, or was in the turbo range: rates with
    /// few and with many busy cores are not comparable.
    FrequencyMoved,
    /// A busy CPU spent more than 10 % of the time in idle states with an exit latency above 10 us: more load may
    /// appear faster.
    DeepSleep,
    /// Other traffic on this interface was more than 5 % of the trial's.
    OtherTraffic,
    /// Other programs used more than 10 % of the time of the CPUs that worked for the trial.
    OtherLoad,
    /// The load generator reached less than 99 % of the requested rate.
    RateNotKept,
    /// The peer is not linerate and does not report all values.
    ForeignPeer,
    /// The kernel thread that polls a ring's submission queue (io_uring `SQPOLL`) could not be read: the CPU time is
    /// higher than reported.
    PollingUncounted,
    /// The two ends of a pair have different grids: memory, a device or the path changed data.
    GridsDiffer,
    /// The flows of one direction share the path unequally: Jain's index of their rates is below 0.8.
    UnequalFlows,
    /// `--nic`: the interface that the connections were bound to, or the peer's that has their address, counted less than
    /// half of the payload: it went over another one.
    BytesOnAnotherInterface,
}

impl SideSample {
    /// How long this end started operations: after the trial's planned end it only waits for completions.
    pub fn began_for(&self, spec: &TrialSpec) -> Nanoseconds {
        self.elapsed_ns.min(spec.duration_ns)
    }

    /// The record of a peer that is not linerate.
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
            events: None,
            commands: Vec::new(),
        }
    }

    /// The records of the connections on which this end received.
    pub fn receivers(&self) -> impl Iterator<Item = &FlowRecord> {
        self.flows.iter().filter(|flow| flow.role == Role::Receiver)
    }

    /// The records of the connections on which this end sent.
    pub fn senders(&self) -> impl Iterator<Item = &FlowRecord> {
        self.flows.iter().filter(|flow| flow.role == Role::Sender)
    }
}

/// A record that cannot belong to the requested trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the record holds {given} {what}, and the trial allows {most}")]
pub struct TooMuch {
    what: &'static str,
    given: usize,
    most: usize,
}

impl SideSample {
    /// Whether this can be an end's record of a trial of `spec`: a peer or a stored run may contain anything, and the
    /// analysis works with every flow at every reading's time.
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
        // A data thread may have a kernel polling thread, or one per flow.
        most("threads", self.threads.len(), 2 * flows.max(1_024))?;
        if let Some(operations) = &self.operations {
            most("steps", operations.steps.len(), readings)?;
            most(
                "counts of threads",
                operations.per_thread.len(),
                flows.max(1_024),
            )?;
            let counts = operations.steps_of_threads.iter().map(Vec::len);
            most(
                "steps of the threads",
                operations.steps_of_threads.len(),
                flows.max(1_024),
            )?;
            most("steps of a thread", counts.max().unwrap_or(0), readings)?;
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
        if let Some(events) = &self.events {
            let checked = events.check();
            checked.map_err(|_| TooMuch {
                what: "events",
                given: events.events.len(),
                most: EVENTS_MAX,
            })?;
        }
        most("commands", self.commands.len(), COMMANDS_MAX)?;
        let long = self.commands.iter().filter(|run| !run.is_sized());
        most("commands of more than their limit", long.count(), 0)?;
        self.flows.iter().try_for_each(|flow| {
            most("readings of a flow", flow.at_ns.len(), readings)?;
            most("counts of a flow", flow.bytes.len(), readings)?;
            let probe = flow.datagrams.as_ref().and_then(|one| one.probe.as_deref());
            if let Some(probe) = probe {
                let (runs, errors) = probe.amounts();
                most("runs of a flow", runs, RUNS_MAX)?;
                most("errors of a flow", errors, ERRORS_MAX)?;
            }
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
