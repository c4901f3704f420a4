//! What a trial does differently from the measured one, and how its rate compares.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis;
use crate::analysis::figures::{self, Figures, Turns};
use crate::buffers::{self, Buffer};
use crate::host::Host;
use crate::path::PathView;
use crate::sample::{Sample, TcpInfo};
use crate::threshold;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio};
use crate::workload::{
    DatagramBatch, Direction, ReceiveMode, Stream, TrialSpec, Udp, Waiting, Workload,
};

const FLOWS_FACTOR: u32 = 4;
const DATAGRAMS_FACTOR: u64 = 2;
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
    /// A congestion control that reacts to loss in another way.
    OtherControl,
    /// A reader that discards the data without copying it.
    DiscardingReader,
    /// Datagrams at twice the rate.
    Datagrams,
}

/// How a trial with an intervention compares with those without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The rate rose; of datagrams: more arrived than the rate of the plain trials.
    Higher,
    /// The rate did not rise.
    NotHigher,
    /// Too noisy to say, or a CPU was used up by the intervention itself.
    Unclear,
}

impl Intervention {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::MoreFlows,
        Self::LargerBuffers,
        Self::OtherControl,
        Self::DiscardingReader,
        Self::Datagrams,
    ];

    /// Why a rate that is not higher shows nothing, after the trial `sample` with this intervention, which reached `rate`.
    pub fn obstacle(self, sample: &Sample, rate: BitRate) -> Option<&'static str> {
        // These move more at once, for which there must be CPU time left.
        let moves_more = matches!(self, Self::MoreFlows | Self::Datagrams);
        match () {
            () if moves_more && used_up_a_cpu(sample) => Some("it used up a CPU"),
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
        let plain = plain(&measured.spec, each);
        let Workload::Stream(stream) = &plain.workload else {
            return Err("only a stream has interventions".to_owned());
        };
        let spec = match self {
            Self::MoreFlows => {
                let flows = plain.flows.saturating_mul(FLOWS_FACTOR);
                if flows > TrialSpec::FLOWS_MAX / 10 {
                    return Err(format!("{} connections are many already", plain.flows));
                }
                // The threads stay one for each connection, so that they may use more CPUs.
                TrialSpec {
                    flows,
                    threads: None,
                    ..plain
                }
            }
            Self::LargerBuffers => {
                let size = larger_buffers(&plain, path)?;
                TrialSpec {
                    socket_buffer_bytes: Some(size),
                    ..plain
                }
            }
            Self::OtherControl => {
                let control = other_control(measured, path)?;
                TrialSpec {
                    congestion_control: Some(control.to_owned()),
                    ..plain
                }
            }
            Self::DiscardingReader => {
                if stream.receive == ReceiveMode::Trunc {
                    return Err("the reader discards the data already".to_owned());
                }
                let workload = Workload::Stream(Stream {
                    receive: ReceiveMode::Trunc,
                    ..stream.clone()
                });
                TrialSpec { workload, ..plain }
            }
            Self::Datagrams => {
                let flows = u64::from(plain.flows.max(1));
                let each = rate.as_bit_per_s().saturating_mul(DATAGRAMS_FACTOR) / flows;
                TrialSpec {
                    workload: Workload::Udp(Udp {
                        datagram_bytes: datagram(measured)?,
                        rate_bit_per_s: Some(BitRate::from_bit_per_s(each.max(1))),
                        batch: DatagramBatch::Gso,
                    }),
                    socket_buffer_bytes: None,
                    congestion_control: None,
                    mss_bytes: None,
                    pacing_bit_per_s: None,
                    waiting: Waiting::default(),
                    ..plain
                }
            }
        };
        Ok(spec)
    }
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MoreFlows => "four times the connections",
            Self::LargerBuffers => "larger socket buffers",
            Self::OtherControl => "another congestion control",
            Self::DiscardingReader => "a reader that discards without copying",
            Self::Datagrams => "datagrams at twice the rate",
        })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Higher => "higher",
            Self::NotHigher => "not higher",
            Self::Unclear => "unclear",
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

fn first_tcp(measured: &Sample) -> Option<&TcpInfo> {
    analysis::ways(measured).first()?.first_tcp()
}

/// BBR does not take loss for congestion; the others do.
fn other_control(measured: &Sample, path: PathView<'_>) -> Result<&'static str, String> {
    const KEY: &str = "net.ipv4.tcp_available_congestion_control";
    let (sender, _) = ends(measured.spec.direction, path);
    let used = first_tcp(measured).and_then(|tcp| tcp.congestion_control.as_deref());
    let used = used.ok_or("the congestion control in use is not known")?;
    let other = if used.starts_with("bbr") {
        "cubic"
    } else {
        "bbr"
    };
    let available = sender.sysctl(KEY);
    let available = available.value().map_or("", String::as_str);
    if available.split_whitespace().any(|one| one == other) {
        Ok(other)
    } else {
        Err(format!(
            "{other} is not among those that are loaded ({KEY})"
        ))
    }
}

/// The payload of a datagram that a TCP segment of this path had room for.
fn datagram(measured: &Sample) -> Result<Bytes, String> {
    first_tcp(measured)
        .map(|tcp| tcp.snd_mss_bytes)
        .filter(|segment| segment.as_u64() >= 64)
        .ok_or_else(|| "the segment size is not known".to_owned())
}

/// The effect of an intervention, from rounds of one trial without and one with it. Every round must show the same.
pub fn effect(rates: &[(BitRate, BitRate)]) -> Effect {
    let plain = || rates.iter().map(|(plain, _)| plain.as_f64());
    let (least, most) = (
        plain().fold(f64::INFINITY, f64::min),
        plain().fold(0.0, f64::max),
    );
    if least <= 0.0 || rates.is_empty() {
        return Effect::Unclear;
    }
    let noise = most / least;
    let of = |(plain, with): &(BitRate, BitRate)| {
        let ratio = with.as_f64() / plain.as_f64();
        match () {
            () if ratio >= threshold::WHY_CHANGE * noise => Effect::Higher,
            () if noise <= threshold::WHY_NOISE && ratio <= threshold::WHY_SAME * noise => {
                Effect::NotHigher
            }
            () => Effect::Unclear,
        }
    };
    let first = of(&rates[0]);
    let agreed = rates.iter().all(|round| of(round) == first);
    if agreed { first } else { Effect::Unclear }
}

/// Whether a CPU may have held up a trial.
fn used_up_a_cpu(sample: &Sample) -> bool {
    analysis::ways(sample).iter().any(|way| {
        let figures = Figures::of(way, &sample.spec);
        let busy = |turns: Turns| {
            let wanted = turns.wanted().map_or(1.0, Ratio::as_f64);
            wanted >= threshold::WHY_BUSY.as_f64()
        };
        busy(figures.sender)
            || busy(figures.receiver)
            || figures::machine_busy(way.sender).is_none_or(|busy| busy > threshold::CROWDED_SHARE)
    })
}

/// Whether the path carried all datagrams that were to be sent.
fn all_arrived(spec: &TrialSpec, rate: BitRate) -> bool {
    let Workload::Udp(udp) = &spec.workload else {
        return false;
    };
    let asked = udp.rate_bit_per_s.map_or(0.0, BitRate::as_f64) * f64::from(spec.flows);
    rate.as_f64() >= threshold::WHY_ARRIVED.as_f64() * asked
}
