//! What a trial does differently from the measured one, and how its rate compares.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::effect::{self, Effect, Round, TrialFigures};
use crate::analysis;
use crate::analysis::figures;
use crate::buffers::{self, Buffer};
use crate::host::Host;
use crate::ids::{CpuId, CpuSet};
use crate::path::PathView;
use crate::sample::{Role, Sample, TcpInfo};
use crate::threshold;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio, real};
use crate::workload::{
    DatagramBatch, Direction, ReceiveMode, SendMode, TrialSpec, Udp, Waiting, Workload,
};

const FLOWS_FACTOR: u32 = 4;
pub(super) const DATAGRAMS_FACTOR: f64 = 2.0;
const PACED_SHARE: f64 = 0.7;
/// Smaller segments would cost mostly CPU time.
const SEGMENT_LEAST: Bytes = Bytes::new(256);
/// A CPU that is busy for less than this share has room for a thread.
const IDLE_SHARE: Ratio = Ratio::new(0.5);
/// What is asked for where the hosts permit it.
const LARGE_BUFFER: Bytes = Bytes::mib(16);
/// Buffers of this multiple of those before are larger ones.
const LARGER_FACTOR: u64 = 2;

/// One thing that a trial does differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Intervention {
    /// Four times as many connections.
    MoreFlows,
    /// Larger socket buffers on both ends.
    LargerBuffers,
    /// Socket buffers of half the size on both ends.
    SmallerBuffers,
    /// A congestion control that reacts to loss in another way.
    OtherControl,
    /// A reader that discards the data without copying it.
    DiscardingReader,
    /// A sender that passes pages of a file instead of copying (sendfile(2)).
    Sendfile,
    /// The sending threads on idle CPUs.
    OtherSenderCpu,
    /// The receiving threads on idle CPUs.
    OtherReceiverCpu,
    /// Segments of half the size.
    HalfSegments,
    /// Paced at 70 % of the rate: this compares losses, not rates.
    Paced,
    /// Data in the other direction.
    OtherDirection,
    /// Datagrams at twice the rate.
    Datagrams,
}

impl Intervention {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::MoreFlows,
        Self::LargerBuffers,
        Self::SmallerBuffers,
        Self::OtherControl,
        Self::DiscardingReader,
        Self::Sendfile,
        Self::OtherSenderCpu,
        Self::OtherReceiverCpu,
        Self::HalfSegments,
        Self::Paced,
        Self::OtherDirection,
        Self::Datagrams,
    ];

    /// Whether rates show its effect; otherwise the losses.
    pub fn compares_rates(self) -> bool {
        self != Self::Paced
    }

    /// Whether it changes socket buffers.
    pub(super) fn is_of_buffers(self) -> bool {
        matches!(self, Self::LargerBuffers | Self::SmallerBuffers)
    }

    /// The effect that `rounds` show beside the trial that was `measured`.
    pub fn effect(self, rounds: &[Round], measured: TrialFigures) -> Effect {
        if self.compares_rates() {
            effect::on_rate(rounds)
        } else {
            effect::on_loss(rounds, measured)
        }
    }

    /// Why a rate that is not higher shows nothing, after the trial `sample` with this intervention, which reached `rate`.
    pub fn obstacle(self, sample: &Sample, rate: BitRate) -> Option<&'static str> {
        // These move more at once, for which there must be CPU time left. Of datagrams that were lost on the path enough
        // were sent.
        let moves_more = match self {
            Self::MoreFlows => true,
            Self::Datagrams => !TrialFigures::of(sample, rate).overflowed(),
            _ => false,
        };
        match () {
            () if moves_more && effect::used_up_a_cpu(sample) => Some("it used up a CPU"),
            () if dropped_by_receiver(sample) => Some("the receiver's host dropped datagrams"),
            () if all_arrived(&sample.spec, rate) => {
                Some("every datagram arrived: the path may carry more")
            }
            () => None,
        }
    }

    pub(super) fn place(self) -> usize {
        self as usize
    }

    /// The trial with this intervention in place of the measured one, or why there can be none. A trial of `each`.
    pub fn trial(
        self,
        measured: &Sample,
        rate: BitRate,
        path: PathView<'_>,
        each: Nanoseconds,
    ) -> Result<TrialSpec, String> {
        let mut spec = plain(&measured.spec, each);
        let Workload::Stream(stream) = &mut spec.workload else {
            return Err("only a stream has interventions".to_owned());
        };
        match self {
            Self::MoreFlows => {
                spec.flows = more_flows(spec.flows)?;
                // The threads stay one for each connection, so that they may use more CPUs.
                (spec.threads, spec.threads_remote) = (None, None);
            }
            Self::LargerBuffers => spec.socket_buffer_bytes = Some(larger_buffers(&spec, path)?),
            Self::SmallerBuffers => spec.socket_buffer_bytes = Some(smaller_buffers(&spec, path)?),
            Self::OtherControl => spec.congestion_control = Some(other_control(measured, path)?),
            Self::DiscardingReader if stream.receive == ReceiveMode::Trunc => {
                return Err("the reader discards the data already".to_owned());
            }
            Self::DiscardingReader => stream.receive = ReceiveMode::Trunc,
            Self::Sendfile if stream.send != SendMode::Write => {
                return Err("the sender does not copy already".to_owned());
            }
            Self::Sendfile => stream.send = SendMode::Sendfile,
            Self::OtherSenderCpu => {
                spec.placement.sender_cpus = idle_cpus(measured, Role::Sender)?;
            }
            Self::OtherReceiverCpu => {
                spec.placement.receiver_cpus = idle_cpus(measured, Role::Receiver)?;
            }
            Self::HalfSegments => spec.mss_bytes = Some(half_segment(measured)?),
            Self::Paced => {
                let lost = TrialFigures::of(measured, rate)
                    .segments
                    .map(|(_, lost)| lost);
                if lost.is_some_and(|lost| lost <= 0.0) {
                    return Err("no segment was lost".to_owned());
                }
                spec.pacing_bit_per_s = Some(per_flow(rate, PACED_SHARE, spec.flows));
            }
            Self::OtherDirection => reverse(&mut spec),
            Self::Datagrams => {
                spec.workload = Workload::Udp(Udp {
                    // What a TCP segment of this path had room for.
                    datagram_bytes: segment(measured)?,
                    rate_bit_per_s: Some(per_flow(rate, DATAGRAMS_FACTOR, spec.flows)),
                    batch: DatagramBatch::Gso,
                    probe: None,
                });
                spec.socket_buffer_bytes = None;
                spec.congestion_control = None;
                spec.mss_bytes = None;
                (spec.waiting, spec.waiting_remote) = (Waiting::default(), None);
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MoreFlows => "four times the connections",
            Self::LargerBuffers => "larger socket buffers",
            Self::OtherControl => "another congestion control",
            Self::SmallerBuffers => "socket buffers of half the size",
            Self::DiscardingReader => "a reader that discards without copying",
            Self::Sendfile => "a sender that does not copy",
            Self::OtherSenderCpu => "the sender on another CPU",
            Self::OtherReceiverCpu => "the receiver on another CPU",
            Self::HalfSegments => "segments of half the size",
            Self::Paced => "pacing at 70 % of the rate",
            Self::OtherDirection => "data in the other direction",
            Self::Datagrams => "datagrams at twice the rate",
        })
    }
}

/// The measured trial, as short as `each` and without what only recording needs.
pub fn plain(measured: &TrialSpec, each: Nanoseconds) -> TrialSpec {
    let mut spec = measured.clone();
    if let Workload::Stream(stream) = &mut spec.workload {
        stream.bytes = None;
        stream.data_check = false;
    }
    spec.duration_ns = each;
    spec.interval_ns = Nanoseconds::new((each.as_u64() / 20).max(1_000_000));
    spec.profile_hz = None;
    // Their rates are compared after their own warm-up.
    spec.omit_ns = None;
    spec.unrecorded = false;
    spec
}

/// Whether interventions can tell anything about a trial: a stream over TCP in one direction, without a rate of its own.
pub fn applies_to(spec: &TrialSpec) -> Result<(), &'static str> {
    match () {
        () if !matches!(spec.workload, Workload::Stream(_)) || spec.verbs.is_some() => {
            Err("it is for streams over TCP")
        }
        () if spec.direction == Direction::Bidirectional => {
            Err("it is for one direction at a time")
        }
        () if spec.pacing_bit_per_s.is_some() => Err("the trial's own pacing is the limit"),
        () => Ok(()),
    }
}

/// Both ends in the order of the data.
fn ends(direction: Direction, path: PathView<'_>) -> (&Host, &Host) {
    match direction {
        Direction::Reverse => (path.remote, path.local),
        _ => (path.local, path.remote),
    }
}

fn more_flows(flows: u32) -> Result<u32, String> {
    let more = flows.saturating_mul(FLOWS_FACTOR);
    if more > TrialSpec::FLOWS_MAX / 10 {
        return Err(format!("{flows} connections are many already"));
    }
    Ok(more)
}

/// Each host keeps its CPUs and its memory.
fn reverse(spec: &mut TrialSpec) {
    spec.direction = match spec.direction {
        Direction::Reverse => Direction::Forward,
        _ => Direction::Reverse,
    };
    let placement = &mut spec.placement;
    std::mem::swap(&mut placement.sender_cpus, &mut placement.receiver_cpus);
    std::mem::swap(&mut placement.sender_memory, &mut placement.receiver_memory);
}

/// The largest size that both ends grant in full, if the buffers are larger with it.
fn larger_buffers(plain: &TrialSpec, path: PathView<'_>) -> Result<Bytes, String> {
    let (sender, receiver) = ends(plain.direction, path);
    let asked = buffers::cap(sender, Buffer::Send)
        .zip(buffers::cap(receiver, Buffer::Receive))
        .map(|(send, receive)| LARGE_BUFFER.min(send).min(receive))
        .ok_or("net.core.wmem_max or rmem_max is not known")?;
    let smallest = |asked: Option<Bytes>| {
        let send = buffers::largest(sender, Buffer::Send, asked).get()?;
        let receive = buffers::largest(receiver, Buffer::Receive, asked).get()?;
        Some(send.min(receive))
    };
    let (before, after) = smallest(plain.socket_buffer_bytes)
        .zip(smallest(Some(asked)))
        .ok_or("the limits of the buffers are not known")?;
    if after.as_u64() < before.as_u64().saturating_mul(LARGER_FACTOR) {
        return Err(format!(
            "net.core.wmem_max and rmem_max permit {after} at most, and the connection may have {before} already"
        ));
    }
    Ok(asked)
}

/// Half of the smaller buffer that a connection has at its largest, if both ends grant it.
fn smaller_buffers(plain: &TrialSpec, path: PathView<'_>) -> Result<Bytes, String> {
    /// A quarter of what is in use must be more than the kernel's least buffer.
    const LEAST: Bytes = Bytes::new(2_304);
    let (sender, receiver) = ends(plain.direction, path);
    let (send, receive) = buffers::largest(sender, Buffer::Send, plain.socket_buffer_bytes)
        .get()
        .zip(buffers::largest(receiver, Buffer::Receive, plain.socket_buffer_bytes).get())
        .ok_or("the limits of the buffers are not known")?;
    // The kernel doubles what is asked for.
    let in_use = send.min(receive);
    let asked = Bytes::new(in_use.as_u64() / 4);
    let caps = buffers::cap(sender, Buffer::Send).zip(buffers::cap(receiver, Buffer::Receive));
    match caps {
        None => Err("net.core.wmem_max or rmem_max is not known".to_owned()),
        Some((send, receive)) if send.min(receive) < asked => Err(format!(
            "net.core.wmem_max and rmem_max permit less than half of the {in_use} in use"
        )),
        Some(_) if asked < LEAST => Err(format!("{in_use} are small already")),
        Some(_) => Ok(asked),
    }
}

fn first_tcp(measured: &Sample) -> Option<&TcpInfo> {
    analysis::ways(measured).first()?.first_tcp()
}

/// BBR does not take loss for congestion; the others do, so that they show nothing after it.
fn other_control(measured: &Sample, path: PathView<'_>) -> Result<String, String> {
    const KEY: &str = "net.ipv4.tcp_available_congestion_control";
    let (sender, _) = ends(measured.spec.direction, path);
    let used = first_tcp(measured).and_then(|tcp| tcp.congestion_control.as_deref());
    let used = used.ok_or("the congestion control in use is not known")?;
    let other = "bbr";
    if used.starts_with(other) {
        return Err(format!(
            "{used} is the one that does not take loss for congestion"
        ));
    }
    let available = sender.sysctl(KEY);
    let available = available.value().map_or("", String::as_str);
    if available.split_whitespace().any(|one| one == other) {
        Ok(other.to_owned())
    } else {
        Err(format!(
            "{other} is not among those that are loaded ({KEY})"
        ))
    }
}

fn segment(measured: &Sample) -> Result<Bytes, String> {
    first_tcp(measured)
        .map(|tcp| tcp.snd_mss_bytes)
        .filter(|segment| segment.as_u64() >= 64)
        .ok_or_else(|| "the segment size is not known".to_owned())
}

fn half_segment(measured: &Sample) -> Result<Bytes, String> {
    let half = Bytes::new(segment(measured)?.as_u64() / 2);
    if half < SEGMENT_LEAST {
        return Err(format!("half a segment is {half} only"));
    }
    Ok(half)
}

/// This share of `rate` for each of some flows.
fn per_flow(rate: BitRate, share: f64, flows: u32) -> BitRate {
    let each = rate.as_f64() * share / f64::from(flows.max(1));
    BitRate::from_bit_per_s(figures::whole(each).max(1))
}

/// CPUs that were mostly idle, as many as the threads of `role` are pinned to and none of these.
fn idle_cpus(measured: &Sample, role: Role) -> Result<CpuSet, String> {
    let ways = analysis::ways(measured);
    let way = ways.first().ok_or("there is no data")?;
    let side = match role {
        Role::Sender => way.sender,
        Role::Receiver => way.receiver,
    };
    let flows = side.flows.iter().filter(|flow| flow.role == role);
    let pinned: BTreeSet<CpuId> = flows.filter_map(|flow| flow.pinned_to).collect();
    if pinned.is_empty() {
        return Err("its threads may run on any CPU already".to_owned());
    }
    let times = side
        .cpu
        .machine
        .value()
        .ok_or("the CPUs' times are not known")?;
    let mut idle: Vec<(Ratio, CpuId)> = times
        .iter()
        .filter(|times| !pinned.contains(&times.cpu))
        .filter_map(|times| Some((figures::cpu_busy(side, times.cpu)?, times.cpu)))
        .filter(|(busy, _)| *busy < IDLE_SHARE)
        .collect();
    idle.sort_by(|one, other| one.0.as_f64().total_cmp(&other.0.as_f64()));
    if idle.is_empty() {
        return Err(format!(
            "no other CPU was idle for {IDLE_SHARE} of the time"
        ));
    }
    Ok(idle
        .iter()
        .take(pinned.len())
        .map(|(_, cpu)| *cpu)
        .collect())
}

/// Whether the receiver's host may have dropped most of the datagrams that were lost: its sockets, or a CPU that did not
/// take them from its backlog, whose packets the kernel cuts later.
fn dropped_by_receiver(sample: &Sample) -> bool {
    let Workload::Udp(udp) = &sample.spec.workload else {
        return false;
    };
    let ways = analysis::ways(sample);
    ways.iter().map(|way| way.receiver).any(|side| {
        let datagrams = || side.flows.iter().filter_map(|flow| flow.datagrams.as_ref());
        let sockets: u64 = datagrams().filter_map(|all| all.socket_drops).sum();
        let lost: u64 = datagrams().map(|all| all.lost).sum();
        let watch = side.counters.value().into_iter();
        let backlogs = watch.flat_map(|watch| watch.below("cpu/"));
        let backlogs = backlogs.filter(|(key, ..)| key.ends_with("/softnet/dropped"));
        let packets: u64 = backlogs.map(|(_, count, _)| count).sum();
        let in_packet = threshold::DROPPED_MAX.as_u64() / udp.datagram_bytes.as_u64().max(1);
        let dropped = real(sockets.saturating_add(packets.saturating_mul(in_packet)));
        dropped > 0.0 && dropped >= threshold::EXPLAINED_SHARE.as_f64() * real(lost)
    })
}

/// Whether all datagrams arrived, at the rate that was asked for.
fn all_arrived(spec: &TrialSpec, rate: BitRate) -> bool {
    let Workload::Udp(udp) = &spec.workload else {
        return false;
    };
    let asked = udp.rate_bit_per_s.map_or(0.0, BitRate::as_f64) * f64::from(spec.flows);
    rate.as_f64() >= threshold::WHY_ARRIVED.as_f64() * asked
}
