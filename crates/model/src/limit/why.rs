//! Whether a named limit is the limit: short trials that differ from the measured one in one thing, and what each
//! limit predicts of them. A limit is proved when its prediction came true and every rival is refuted.
//!
//! The interventions change nothing on either host. docs/book/concepts/limits.md has the table of predictions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::LimitKind;
use crate::analysis::figures::{self, Figures, Turns};
use crate::analysis::{self, OneWay};
use crate::buffers::{self, Buffer};
use crate::finding::Evidence;
use crate::host::Host;
use crate::path::PathView;
use crate::sample::Sample;
use crate::threshold;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio};
use crate::workload::{
    DatagramBatch, Direction, ReceiveMode, Stream, TrialSpec, Udp, Waiting, Workload,
};

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

/// How certain a named limit is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// An intervention did what it predicts, and every other limit is refuted.
    Proved,
    /// The evidence of one trial suggests it.
    Likely,
    /// There is no limit that the evidence suffices for.
    #[default]
    NotDetermined,
}

/// What became of a possible limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hypothesis {
    /// The limit.
    pub what: LimitKind,
    /// Whether the trial's own evidence suggests it.
    pub suggested: bool,
    /// What contradicts it; empty if nothing does.
    pub refuted_by: Vec<String>,
    /// The interventions that it predicted.
    pub supported_by: Vec<Intervention>,
}

impl Hypothesis {
    /// Whether nothing contradicts it.
    pub fn stands(&self) -> bool {
        self.refuted_by.is_empty()
    }
}

/// An intervention and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What was changed.
    pub intervention: Intervention,
    /// The rate of each round without it, and with it.
    pub rates: Vec<(BitRate, BitRate)>,
    /// The result.
    pub effect: Effect,
    /// Why it was not tried, or why its result is unclear.
    pub reason: Option<String>,
}

/// Limits that no intervention here tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Sender,
    SenderCpu,
    Window,
    Reader,
    ReceiverCpu,
    SharedCpu,
    Machine,
    Loss,
    PathRate,
    Control,
}

/// What a limit says about the rate with an intervention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prediction {
    /// It must be higher.
    Higher,
    /// It cannot be higher.
    NotHigher,
    /// It may be higher, which speaks for the limit; if it is not, that shows nothing.
    MayBeHigher,
    /// Nothing.
    Open,
}

impl Prediction {
    /// Whether `effect` supports the limit (`true`), refutes it, or shows nothing.
    fn of(self, effect: Effect) -> Option<bool> {
        match (self, effect) {
            (Self::Higher | Self::MayBeHigher, Effect::Higher)
            | (Self::NotHigher, Effect::NotHigher) => Some(true),
            (Self::Higher, Effect::NotHigher) | (Self::NotHigher, Effect::Higher) => Some(false),
            _ => None,
        }
    }
}

/// Every limit with its family and its predictions, in the order of [`Intervention::ALL`].
const PREDICTIONS: [(LimitKind, Family, [Prediction; 5]); 14] = {
    use LimitKind as L;
    use Prediction::{Higher as H, MayBeHigher as M, NotHigher as N, Open as O};
    [
        // flows, buffers, control, discarding reader, datagrams
        (L::Shaper, Family::PathRate, [N, N, O, N, N]),
        (L::Pcie, Family::PathRate, [N, N, O, N, N]),
        (L::Wire, Family::PathRate, [N, N, O, N, N]),
        (L::SharedCpu, Family::SharedCpu, [O, N, O, M, O]),
        (L::Machine, Family::Machine, [N, N, O, O, O]),
        (L::SenderCpu, Family::SenderCpu, [O, N, O, N, O]),
        (L::ReceiverCpu, Family::ReceiverCpu, [O, N, O, M, O]),
        (L::Loss, Family::Loss, [H, N, H, N, H]),
        (L::ReceiveWindow, Family::Window, [H, H, O, O, H]),
        (L::SendBuffer, Family::Window, [H, H, O, O, H]),
        (L::WindowRtt, Family::Window, [H, H, O, N, H]),
        // While a program sleeps, buffers and connections hold what it left.
        (L::SenderProgram, Family::Sender, [O, O, N, N, O]),
        (L::ReceiverProgram, Family::Reader, [O, O, N, O, O]),
        (L::CongestionControl, Family::Control, [H, N, O, N, H]),
    ]
};

impl Intervention {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::MoreFlows,
        Self::LargerBuffers,
        Self::OtherControl,
        Self::DiscardingReader,
        Self::Datagrams,
    ];

    /// Whether it moves more at once, for which there must be CPU time left.
    pub fn takes_more_cpu(self) -> bool {
        matches!(self, Self::MoreFlows | Self::Datagrams)
    }

    fn place(self) -> usize {
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

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proved => "proved",
            Self::Likely => "likely",
            Self::NotDetermined => "not determined",
        })
    }
}

const FLOWS_FACTOR: u32 = 4;
const DATAGRAMS_FACTOR: u64 = 2;
/// What is asked for where the hosts permit it.
const LARGE_BUFFER: Bytes = Bytes::mib(16);
/// Buffers of this multiple of those before are larger ones.
const LARGER_FACTOR: u64 = 2;

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
    let cap = |host: &Host, buffer: Buffer| {
        let text = host.sysctl(buffer.cap_sysctl());
        text.value()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let asked = cap(sender, Buffer::Send)
        .zip(cap(receiver, Buffer::Receive))
        .map(|(send, receive)| LARGE_BUFFER.min(Bytes::new(send.min(receive))))
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

/// BBR does not take loss for congestion; the others do.
fn other_control(measured: &Sample, path: PathView<'_>) -> Result<&'static str, String> {
    const KEY: &str = "net.ipv4.tcp_available_congestion_control";
    let (sender, _) = ends(measured.spec.direction, path);
    let ways = analysis::ways(measured);
    let used = ways.first().and_then(|way| {
        let tcp = way.sender.senders().next()?.tcp.value()?;
        tcp.congestion_control.clone()
    });
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
    let ways = analysis::ways(measured);
    let segment = ways.first().and_then(|way| {
        let tcp = way.sender.senders().next()?.tcp.value()?;
        Some(tcp.snd_mss_bytes)
    });
    segment
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

/// Whether a CPU may have held up a trial that moves more at once: then a rate that is not higher shows nothing.
pub fn used_up_a_cpu(sample: &Sample) -> bool {
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

/// The verdict over a trial's suggestions and the interventions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The limit.
    pub what: LimitKind,
    /// How certain it is.
    pub status: Status,
    /// All limits: those that stand first, then by what suggests them.
    pub hypotheses: Vec<Hypothesis>,
}

/// Decides between `suggested`, the limits that the evidence of `sample` suggests (the best first), by what was tried.
pub fn decide(sample: &Sample, suggested: &[LimitKind], tried: &[Tried]) -> Verdict {
    let ways = analysis::ways(sample);
    let way = ways.first();
    let mut hypotheses: Vec<Hypothesis> = PREDICTIONS
        .iter()
        .map(|(what, _, predicted)| {
            let mut refuted_by: Vec<String> = Vec::new();
            let mut supported_by = Vec::new();
            let is_suggested = suggested.contains(what);
            for one in tried {
                match predicted[one.intervention.place()].of(one.effect) {
                    Some(true) => supported_by.push(one.intervention),
                    Some(false) => refuted_by.push(format!("{}: {}", one.intervention, one.effect)),
                    None => {}
                }
            }
            let contradicted = way.filter(|_| !is_suggested);
            refuted_by.extend(contradicted.and_then(|way| contradicted_by(*what, sample, way)));
            Hypothesis {
                what: *what,
                suggested: is_suggested,
                refuted_by,
                supported_by,
            }
        })
        .collect();
    let order = |what: LimitKind| {
        let place = suggested.iter().position(|one| *one == what);
        place.unwrap_or(suggested.len())
    };
    hypotheses.sort_by_key(|one| (!one.stands(), order(one.what)));
    let (what, status) = verdict(&hypotheses, tried);
    Verdict {
        what,
        status,
        hypotheses,
    }
}

fn verdict(hypotheses: &[Hypothesis], tried: &[Tried]) -> (LimitKind, Status) {
    let standing: Vec<&Hypothesis> = hypotheses.iter().filter(|one| one.stands()).collect();
    let Some(first) = standing.first() else {
        return (LimitKind::NotDetermined, Status::NotDetermined);
    };
    let alone = standing
        .iter()
        .all(|one| family(one.what) == family(first.what));
    // A rate that did not rise supports many; one that did, or a path that carries no more datagrams, is decisive.
    let decisive = first.supported_by.iter().any(|one| {
        let effect = tried.iter().find(|tried| tried.intervention == *one);
        effect.is_some_and(|tried| {
            tried.effect == Effect::Higher || tried.intervention == Intervention::Datagrams
        })
    });
    match (alone && decisive, first.suggested) {
        (true, _) => (first.what, Status::Proved),
        (false, true) => (first.what, Status::Likely),
        (false, false) => (LimitKind::NotDetermined, Status::NotDetermined),
    }
}

fn family(what: LimitKind) -> Option<Family> {
    let found = PREDICTIONS.iter().find(|(kind, ..)| *kind == what);
    found.map(|(_, family, _)| *family)
}

/// What the trial itself says against a limit that it does not suggest.
fn contradicted_by(what: LimitKind, sample: &Sample, way: &OneWay<'_>) -> Option<String> {
    let figures = Figures::of(way, &sample.spec);
    let wanted = |turns: Turns| {
        let wanted = turns.wanted()?;
        (wanted < threshold::WHY_IDLE).then_some(wanted)
    };
    match what {
        LimitKind::SenderProgram => {
            let busy = figures
                .busy
                .filter(|busy| *busy >= threshold::CONGESTION_SHARE)?;
            Some(format!("data to send for {busy} of the time"))
        }
        LimitKind::ReceiverProgram => {
            if figures.sleeps_long(figures.receiver) == Some(false) {
                return Some("the reader sleeps no longer than a connection waits".to_owned());
            }
            let closed = figures.rwnd_limited;
            let closed = closed.filter(|share| *share < threshold::WHY_CLOSED)?;
            // BBR's pacing hides a closed window.
            let control = way.sender.senders().next()?.tcp.value()?;
            let control = control.congestion_control.as_deref()?;
            (!control.starts_with("bbr"))
                .then(|| format!("limited by the receive window for {closed} of the time"))
        }
        LimitKind::SenderCpu => {
            let share = wanted(figures.sender)?;
            Some(format!(
                "the sending thread running or runnable for {share} of the time"
            ))
        }
        LimitKind::ReceiverCpu => {
            let share = wanted(figures.receiver)?;
            Some(format!(
                "the receiving thread running or runnable for {share} of the time"
            ))
        }
        LimitKind::SharedCpu => match crate::rules::shared_cpu(sample) {
            Ok(None) => Some("the ends do not share one CPU".to_owned()),
            Ok(Some(cpu)) => {
                let busy = figures::cpu_busy(way.sender, cpu)?;
                (busy < threshold::CPU_SHARE).then(|| format!("CPU {cpu} busy for {busy}"))
            }
            Err(_) => None,
        },
        LimitKind::Machine => {
            let busy = [way.sender, way.receiver].map(figures::machine_busy);
            let [Some(one), Some(other)] = busy else {
                return None;
            };
            let busy = if one > other { one } else { other };
            (busy < threshold::MACHINE_SHARE).then(|| format!("the CPUs busy for {busy}"))
        }
        LimitKind::Loss => {
            let lost = figures.lost.filter(|lost| lost.as_f64() <= 0.0)?;
            Some(format!("{lost} of the bytes lost"))
        }
        _ => None,
    }
}

/// What was tried, as evidence.
pub fn evidence(tried: &[Tried]) -> Vec<Evidence> {
    let shown = tried.iter().filter(|one| !one.rates.is_empty());
    shown
        .map(|one| {
            let rounds = one.rates.iter();
            let rounds = rounds.map(|(plain, with)| format!("{with} instead of {plain}"));
            let rounds: Vec<String> = rounds.collect();
            Evidence::new(
                format!("with {}", one.intervention),
                format!("{}: {}", one.effect, rounds.join(", ")),
                "trials of `--why`",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, SampleBuilder};

    fn rate(mbit: u64) -> BitRate {
        BitRate::from_mbit_per_s(mbit)
    }

    fn tried(effects: &[(Intervention, Effect)]) -> Vec<Tried> {
        let one = |(intervention, effect): &(Intervention, Effect)| Tried {
            intervention: *intervention,
            rates: Vec::new(),
            effect: *effect,
            reason: None,
        };
        effects.iter().map(one).collect()
    }

    /// Half a gigabit a second whose threads are idle most of the time, always with data to send.
    fn held() -> SampleBuilder {
        build::sample().mbit(500).cpu_share(0.1, 0.1)
    }

    fn decided(
        sample: &SampleBuilder,
        suggested: &[LimitKind],
        effects: &[(Intervention, Effect)],
    ) -> (LimitKind, Status) {
        let verdict = decide(&sample.clone().build(), suggested, &tried(effects));
        (verdict.what, verdict.status)
    }

    use Effect::{Higher, NotHigher, Unclear};
    use Intervention::{Datagrams, DiscardingReader, LargerBuffers, MoreFlows, OtherControl};

    #[test]
    fn a_path_that_carries_no_more_by_any_means_is_a_shaper_that_no_fact_shows() {
        let effects = [
            (MoreFlows, NotHigher),
            (DiscardingReader, NotHigher),
            (Datagrams, NotHigher),
        ];
        assert_eq!(
            decided(&held(), &[LimitKind::ReceiverProgram], &effects),
            (LimitKind::ReceiverProgram, Status::Likely),
            "what the trial suggests is not refuted by what stays the same"
        );
        assert_eq!(
            decided(&held(), &[], &effects),
            (LimitKind::Shaper, Status::Proved)
        );
    }

    #[test]
    fn more_connections_and_larger_buffers_that_help_prove_the_suggested_window() {
        let effects = [
            (MoreFlows, Higher),
            (LargerBuffers, Higher),
            (Datagrams, Higher),
        ];
        for window in [LimitKind::SendBuffer, LimitKind::ReceiveWindow] {
            assert_eq!(
                decided(&held(), &[window], &effects),
                (window, Status::Proved)
            );
        }
        // Named wrongly, the interventions find it.
        let named = decided(&held(), &[LimitKind::CongestionControl], &effects);
        assert_eq!(named, (LimitKind::ReceiveWindow, Status::Proved));
    }

    #[test]
    fn another_congestion_control_that_helps_proves_loss_only_if_there_was_some() {
        let effects = [
            (MoreFlows, Higher),
            (LargerBuffers, NotHigher),
            (OtherControl, Higher),
        ];
        let lossy = held().tcp(|tcp| tcp.bytes_retransmitted = Bytes::new(50_000));
        let loss = decided(&lossy, &[LimitKind::Loss], &effects);
        assert_eq!(loss.0, LimitKind::Loss);
        let clean = decided(&held(), &[LimitKind::CongestionControl], &effects);
        assert_eq!(clean, (LimitKind::CongestionControl, Status::Proved));
    }

    #[test]
    fn a_reader_that_is_faster_without_copying_proves_the_receivers_cpu() {
        let busy = build::sample().gbit(20).cpu_share(0.5, 0.97);
        let effects = [
            (MoreFlows, NotHigher),
            (LargerBuffers, NotHigher),
            (DiscardingReader, Higher),
        ];
        let named = decided(&busy, &[LimitKind::ReceiverCpu], &effects);
        assert_eq!(named, (LimitKind::ReceiverCpu, Status::Proved));
    }

    #[test]
    fn without_a_clear_effect_a_suggestion_stays_likely_and_nothing_is_made_up() {
        let effects = Intervention::ALL.map(|one| (one, Unclear));
        assert_eq!(
            decided(&held(), &[LimitKind::SendBuffer], &effects),
            (LimitKind::SendBuffer, Status::Likely)
        );
        assert_eq!(
            decided(&held(), &[], &effects),
            (LimitKind::NotDetermined, Status::NotDetermined)
        );
    }

    #[test]
    fn every_round_must_show_the_same_and_more_than_the_noise() {
        let rounds = |all: &[(u64, u64)]| {
            let all = all.iter().map(|(plain, with)| (rate(*plain), rate(*with)));
            effect(&all.collect::<Vec<_>>())
        };
        assert_eq!(rounds(&[(100, 200), (105, 190)]), Higher);
        assert_eq!(rounds(&[(100, 50), (105, 60)]), NotHigher);
        assert_eq!(rounds(&[(100, 103), (105, 101)]), NotHigher);
        assert_eq!(rounds(&[(100, 200), (105, 110)]), Unclear);
        // The plain trials differ by a factor of two: a rise of a third is no effect.
        assert_eq!(rounds(&[(100, 130), (200, 270)]), Unclear);
        assert_eq!(rounds(&[(0, 10), (0, 10)]), Unclear);
        assert_eq!(rounds(&[]), Unclear);
    }

    #[test]
    fn interventions_that_cannot_show_anything_are_left_out_with_their_reason() {
        let host = |name: &str| {
            build::host()
                .sysctl("net.core.rmem_max", "212992")
                .sysctl("net.core.wmem_max", "212992")
                .sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic")
                .nic(name, build::NicBuilder::veth)
                .build()
        };
        let (near, far) = (host("near0"), host("far0"));
        let path = PathView {
            local: &near,
            remote: &far,
            local_nic: &near.nics[0].name,
            remote_nic: &far.nics[0].name,
            ipv6: false,
        };
        let sample = held().build();
        let each = Nanoseconds::from_millis(300);
        let trial = |one: Intervention| one.trial(&sample, rate(500), path, each);
        let reason = |one: Intervention| trial(one).expect_err("not possible");
        assert!(
            reason(LargerBuffers).contains("rmem_max"),
            "{}",
            reason(LargerBuffers)
        );
        assert!(
            reason(OtherControl).contains("bbr"),
            "{}",
            reason(OtherControl)
        );
        let more = trial(MoreFlows).expect("possible");
        assert_eq!((more.flows, more.duration_ns), (4, each));
        let Workload::Udp(udp) = trial(Datagrams).expect("possible").workload else {
            panic!("no datagrams");
        };
        assert_eq!(udp.rate_bit_per_s, Some(rate(1_000)));
    }
}
