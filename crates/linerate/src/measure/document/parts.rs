//! The parts of a measurement's document: what each is, and how it follows from the record.

use linerate_analysis::trial::operations::{askers, ops_per_s, real, received_per_s};
use linerate_model::analysis::{RatePoint, SideCost, cost_of_local, cost_of_remote};
use linerate_model::finding::Evidence;
use linerate_model::host::Host;
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::limit::why::{Effect, Intervention, Status, TrialFigures, Tried};
use linerate_model::plan::End;
use linerate_model::sample::{
    Copies, DatagramGaps, Datagrams, FlowRecord, Operations, Sample, TcpInfo, ThreadRecord,
};
use linerate_model::units::{BitRate, Bytes, Nanoseconds, Ratio};
use linerate_model::workload::{Direction, MemoryPolicy, TrialSpec};
use linerate_report::Nulled;
use serde::Serialize;

use super::super::measured::{Measured, steps, warmup};
use super::super::spread::mean_rate;

/// A part of a document for each end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct BothEnds<T> {
    pub(in crate::measure) local: T,
    pub(in crate::measure) remote: T,
}

/// Placement of this end's threads and buffers; null if the kernel chose.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct EndPlacement {
    /// A CPU set in the kernel's list form: 0-5,12.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_cpus: Option<CpuSet>,
    /// A CPU set in the kernel's list form: 0-5,12.
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_cpus: Option<CpuSet>,
    /// The policy of the sending threads' buffers: a word, or an object with nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_memory: Option<MemoryPolicy>,
    /// The same for the receiving threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_memory: Option<MemoryPolicy>,
    /// Each thread ran on the CPU that received its connection's packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_receive_cpu: Option<bool>,
}

/// Where each end's threads and buffers were placed; null is the scheduler's choice.
pub(in crate::measure) fn placement(spec: &TrialSpec) -> BothEnds<Option<EndPlacement>> {
    let place = &spec.placement;
    let end = |sends: bool, receives: bool| {
        let cpus = |is_used: bool, cpus: &CpuSet| {
            let is_chosen = is_used && !cpus.is_empty();
            is_chosen.then(|| cpus.clone())
        };
        let memory = |is_used: bool, policy: &MemoryPolicy| {
            let is_chosen = is_used && *policy != MemoryPolicy::Default;
            is_chosen.then(|| policy.clone())
        };
        let chosen = EndPlacement {
            sender_cpus: cpus(sends, &place.sender_cpus),
            receiver_cpus: cpus(receives, &place.receiver_cpus),
            sender_memory: memory(sends, &place.sender_memory),
            receiver_memory: memory(receives, &place.receiver_memory),
            by_receive_cpu: place.by_receive_cpu.then_some(true),
        };
        (chosen != EndPlacement::default()).then_some(chosen)
    };
    let both = spec.direction == Direction::Bidirectional;
    let forward = spec.direction == Direction::Forward;
    BothEnds {
        local: end(both || forward, both || !forward),
        remote: end(both || !forward, both || forward),
    }
}

/// The result over all connections.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Total {
    /// The rate after the warm-up.
    rate_bit_per_s: Option<f64>,
    bytes: u64,
    /// Operations per second, for request-response workloads.
    ops_per_s: Option<f64>,
    /// `http`: what the client received per second, heads included.
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes_per_s: Option<f64>,
    /// Completed operations.
    operations: Option<u64>,
    /// Operations that failed.
    failed: Option<u64>,
    /// Operations in flight at the end, or in open loop due before it, that were not completed in time.
    unanswered: Option<u64>,
    /// The seconds at the beginning that the rate excludes.
    warmup_s: f64,
}

impl Total {
    pub(super) fn of(measured: &Measured<'_>) -> Self {
        let sample = &measured.sample;
        let bulk = sample.spec.workload.is_bulk();
        let sum = |pick: fn(&Operations) -> u64| {
            let counts = askers(sample).map(|(_, operations)| pick(operations));
            counts.reduce(u64::saturating_add)
        };
        Self {
            rate_bit_per_s: measured.rate.map(BitRate::as_f64),
            bytes: if bulk {
                counted_bytes(measured)
            } else {
                exchanged_bytes(sample)
            },
            ops_per_s: ops_per_s(sample),
            received_bytes_per_s: received_per_s(sample),
            operations: sum(|operations| operations.completed),
            failed: sum(|operations| operations.failed),
            unanswered: sum(|operations| operations.unanswered),
            warmup_s: (bulk && measured.ends.is_some())
                .then(|| warmup(sample))
                .flatten()
                .unwrap_or(0.0),
        }
    }
}

fn counted_bytes(measured: &Measured<'_>) -> u64 {
    let flows = measured.flows();
    let bytes = flows.iter().filter_map(|(_, sender, receiver)| {
        let counted = measured.counted(*sender, *receiver)?;
        Some(counted.total().as_u64())
    });
    bytes.fold(0, u64::saturating_add)
}

fn exchanged_bytes(sample: &Sample) -> u64 {
    let bytes = askers(sample).map(|(side, operations)| {
        let flows = side.senders().map(|flow| flow.total().as_u64());
        let sent = flows.fold(0, u64::saturating_add);
        sent.max(operations.received_bytes.as_u64())
    });
    bytes.fold(0, u64::saturating_add)
}

/// A rate over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RateSeries {
    /// The end of each interval, seconds since the start.
    at_s: Vec<f64>,
    /// The mean rate within each interval.
    rate_bit_per_s: Vec<f64>,
}

/// One connection.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Flow<'a> {
    #[serde(rename = "flow")]
    number: u32,
    /// The end that sends.
    from: End,
    bytes: Option<u64>,
    /// The mean over the whole trial.
    rate_bit_per_s: Option<f64>,
    series: RateSeries,
    sender_cpu: Option<CpuId>,
    receiver_cpu: Option<CpuId>,
    /// The CPU on which the kernel received its packets (SO_INCOMING_CPU).
    incoming_cpu: Option<CpuId>,
    /// The NAPI that received them (SO_INCOMING_NAPI_ID).
    incoming_napi: Option<u32>,
    /// The kernel's TCP_INFO at the sending end.
    tcp: Option<Nulled<&'a Known<TcpInfo>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_copies: Option<Copies>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receive_copies: Option<Copies>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams: Option<DatagramCounts>,
}

impl<'a> Flow<'a> {
    pub(super) fn of(
        measured: &'a Measured<'_>,
        (from, sender, receiver): (End, Option<&'a FlowRecord>, Option<&'a FlowRecord>),
        points: &[RatePoint],
    ) -> Self {
        let counted = measured.counted(sender, receiver);
        let mean = counted.and_then(mean_rate);
        let of_sockets = |flow: &&FlowRecord| flow.verbs.is_none();
        let datagrams = |flow: Option<&'a FlowRecord>| flow.filter(of_sockets)?.datagrams.as_ref();
        Self {
            number: counted.map_or(0, |flow| flow.flow),
            from,
            bytes: counted.map(|flow| flow.total().as_u64()),
            rate_bit_per_s: mean.map(BitRate::as_f64),
            series: RateSeries {
                at_s: points
                    .iter()
                    .map(|point| point.at_ns.as_secs_f64())
                    .collect(),
                rate_bit_per_s: points
                    .iter()
                    .map(|point| point.bit_per_s.as_f64())
                    .collect(),
            },
            sender_cpu: sender.and_then(|flow| flow.last_cpu.get()),
            receiver_cpu: receiver.and_then(|flow| flow.last_cpu.get()),
            incoming_cpu: receiver.and_then(|flow| flow.incoming_cpu.get()),
            incoming_napi: receiver.and_then(|flow| flow.incoming_napi.get()),
            tcp: sender.map(|flow| Nulled(&flow.tcp)),
            send_copies: sender.and_then(|flow| flow.copies),
            receive_copies: receiver.and_then(|flow| flow.copies),
            datagrams: datagrams(receiver).map(|received| {
                let sent = datagrams(sender).map(|sent| sent.count);
                DatagramCounts::of(sent, received)
            }),
        }
    }
}

/// Datagrams, and what became of them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct DatagramCounts {
    pub(in crate::measure) sent: Option<u64>,
    pub(in crate::measure) received: u64,
    pub(in crate::measure) lost: u64,
    pub(in crate::measure) lost_share: Option<f64>,
    /// Null over verbs, where the order of arrival is not checked.
    pub(in crate::measure) reordered: Option<u64>,
    /// Null over verbs.
    pub(in crate::measure) duplicated: Option<u64>,
    /// RFC 3550, 6.4.1; for several flows the largest.
    pub(in crate::measure) jitter_ns: Option<Nanoseconds>,
    /// One-way delay; null unless both ends share a clock.
    pub(in crate::measure) delay_ns: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::measure) received_per_s: Option<f64>,
    /// Runs of lost datagrams of a flow; of several flows their number together and the longest of all. Null over verbs, and
    /// if another program received them.
    pub(in crate::measure) gaps: Option<DatagramGaps>,
}

impl DatagramCounts {
    pub(super) fn of(sent: Option<u64>, received: &Datagrams) -> Self {
        let arrived = received.count.saturating_sub(received.duplicated);
        let expected = received.lost.saturating_add(arrived);
        Self {
            sent,
            received: received.count,
            lost: received.lost,
            lost_share: (expected > 0).then(|| real(received.lost) / real(expected)),
            reordered: Some(received.reordered),
            duplicated: Some(received.duplicated),
            jitter_ns: Some(received.jitter_ns),
            delay_ns: received.delay.as_ref().map(Latency::of),
            received_per_s: None,
            gaps: received.gaps,
        }
    }

    pub(super) fn over(mut self, seconds: f64) -> Self {
        self.received_per_s = (seconds > 0.0).then(|| real(self.received) / seconds);
        self
    }
}

/// The figures of a histogram, in nanoseconds.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct Latency {
    min: Option<Nanoseconds>,
    mean: Option<f64>,
    stddev: Option<f64>,
    p50: Option<Nanoseconds>,
    p90: Option<Nanoseconds>,
    p99: Option<Nanoseconds>,
    p999: Option<Nanoseconds>,
    max: Option<Nanoseconds>,
    count: u64,
    /// The share within one standard deviation of the mean.
    within_stddev: Option<f64>,
}

impl Latency {
    pub(in crate::measure) fn of(histogram: &Histogram) -> Self {
        Self {
            min: histogram.min(),
            mean: histogram.mean_ns(),
            stddev: histogram.stddev_ns(),
            p50: histogram.quantile(0.5),
            p90: histogram.quantile(0.9),
            p99: histogram.quantile(0.99),
            p999: histogram.quantile(0.999),
            max: histogram.max(),
            count: histogram.count(),
            within_stddev: histogram.within_one_stddev(),
        }
    }
}

/// Operations over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Steps {
    at_s: Vec<f64>,
    ops_per_s: Vec<f64>,
}

impl Steps {
    pub(super) fn of(sample: &Sample) -> Option<Self> {
        let (at_s, ops_per_s): (Vec<f64>, Vec<f64>) = steps(sample).into_iter().unzip();
        (!at_s.is_empty()).then_some(Self { at_s, ops_per_s })
    }
}

/// One size. `latency_ns` is one way: for `pingpong`, `rdma-write` and `rdma-send` half of each round trip; for
/// `rdma-read` and `rdma-atomic` the whole operation; null for rates.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct SizeFigures {
    pub(in crate::measure) bytes: Bytes,
    pub(in crate::measure) repetitions: u64,
    pub(in crate::measure) latency_ns: Option<Latency>,
    pub(in crate::measure) rate_bit_per_s: Option<f64>,
    #[serde(flatten)]
    pub(in crate::measure) of_verbs: Option<MessageFigures>,
}

/// What only a size of `rdma-*` has.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct MessageFigures {
    /// For `rdma-*` rates: the highest rate over eight times as many messages as the queue pairs hold (or over all,
    /// if fewer); both ends together; null with several threads.
    #[cfg_attr(test, schemars(extend("nullable" = true)))]
    pub(in crate::measure) peak_bit_per_s: Option<f64>,
    /// For `rdma-*`: messages, round trips or operations per second.
    #[cfg_attr(test, schemars(extend("nullable" = true)))]
    pub(in crate::measure) messages_per_s: Option<f64>,
    /// For `rdma-*` rates: the shortest time of a single message on an idle queue pair.
    #[cfg_attr(test, schemars(extend("nullable" = true)))]
    pub(in crate::measure) alone_ns: Option<Nanoseconds>,
    /// For `rdma-*`: from the first post to the last completion.
    pub(in crate::measure) seconds: f64,
}

/// The sizes of a ping-pong.
pub(super) fn pingpong_sizes(sample: &Sample) -> Vec<SizeFigures> {
    let sizes = askers(sample).flat_map(|(_, operations)| &operations.sizes);
    let sizes = sizes.map(|size| {
        let mean = size.one_way.mean_ns().filter(|ns| *ns > 0.0);
        SizeFigures {
            bytes: size.bytes,
            repetitions: size.repetitions,
            latency_ns: Some(Latency::of(&size.one_way)),
            rate_bit_per_s: mean.map(|ns| real(size.bytes.as_u64()) * 8e9 / ns),
            of_verbs: None,
        }
    });
    sizes.collect()
}

/// CPU seconds by kind; null if this end does not report them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct EndCost {
    #[serde(flatten)]
    pub(in crate::measure) cost: Nulled<SideCost>,
    /// User and system seconds of the data threads per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::measure) s_per_operation: Option<f64>,
    voluntary_switches: u64,
    involuntary_switches: u64,
    page_faults: u64,
    /// CPU seconds of recording at this end.
    recording_s: Option<f64>,
}

impl EndCost {
    /// A foreign end cannot report it.
    pub(super) fn of(sample: &Sample, end: End) -> Option<Self> {
        let (cost, side) = match end {
            End::Local => (cost_of_local(sample), &sample.local),
            End::Remote => (cost_of_remote(sample), &sample.remote),
        };
        let operations = askers(sample).map(|(_, operations)| operations.completed);
        let operations = operations.fold(0, u64::saturating_add);
        let each = (cost.user_s + cost.system_s) / real(operations);
        let sum = |pick: fn(&ThreadRecord) -> u64| {
            let counts = side.threads.iter().map(pick);
            counts.fold(0, u64::saturating_add)
        };
        (!side.threads.is_empty()).then(|| Self {
            cost: Nulled(cost),
            s_per_operation: (operations > 0).then_some(each),
            voluntary_switches: sum(|thread| thread.voluntary_switches),
            involuntary_switches: sum(|thread| thread.involuntary_switches),
            page_faults: sum(|thread| thread.minor_faults.saturating_add(thread.major_faults)),
            recording_s: side.cpu.recording_ns.get().map(Nanoseconds::as_secs_f64),
        })
    }
}

/// The lowest computed bound; null where none could be computed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LowestBound<'a> {
    bit_per_s: Option<f64>,
    /// The share of it that was reached.
    share: Option<f64>,
    reason: &'a str,
}

impl<'a> LowestBound<'a> {
    pub(super) fn of(measured: &'a Measured<'_>) -> Self {
        let lowest = measured.ceiling();
        Self {
            bit_per_s: lowest.map(|ceiling| ceiling.bit_per_s.as_f64()),
            share: measured.reached().map(Ratio::as_f64),
            reason: lowest.map_or("no bound can be computed", |one| &one.reason),
        }
    }
}

/// What limited the rate.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NamedLimit<'a> {
    /// The bottleneck of the path, or: not determined.
    what: String,
    /// Whether interventions proved it (`--why`), or one trial's evidence suggests it.
    status: Status,
    /// The rule for the same problem.
    rule: Option<&'a str>,
    evidence: &'a [Evidence],
    /// Every limit that the evidence suggests, those that stand first; with `--why` every limit there is, and what
    /// refuted it.
    hypotheses: Vec<PossibleLimit<'a>>,
    /// With `--why`: the trials that differed in one thing.
    interventions: Vec<TriedIntervention<'a>>,
}

/// A limit that was considered.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PossibleLimit<'a> {
    what: String,
    /// Whether the evidence of the trial suggests it.
    suggested: bool,
    /// What contradicts it; empty if nothing does.
    refuted_by: &'a [String],
    /// The interventions whose effect it predicted.
    supported_by: &'a [Intervention],
}

/// A trial that differed in one thing.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TriedIntervention<'a> {
    intervention: Intervention,
    effect: Effect,
    /// The rate of each round without it, in bit/s.
    without_bit_per_s: Vec<f64>,
    /// The rate of each round with it, in bit/s.
    with_bit_per_s: Vec<f64>,
    /// The share of segments or datagrams lost in each round without it; null where it is not known.
    without_lost_ratio: Vec<Option<f64>>,
    /// The share of segments or datagrams lost in each round with it; null where it is not known.
    with_lost_ratio: Vec<Option<f64>>,
    /// Why it was not tried, or why its effect is unclear.
    reason: Option<&'a str>,
}

impl<'a> From<&'a Tried> for TriedIntervention<'a> {
    fn from(tried: &'a Tried) -> Self {
        let rate = |seen: TrialFigures| seen.rate.as_f64();
        let lost = |seen: TrialFigures| {
            let (sent, lost) = seen.segments?;
            (sent > 0.0).then(|| lost / sent)
        };
        let rounds = || tried.rounds.iter();
        Self {
            intervention: tried.intervention,
            effect: tried.effect,
            without_bit_per_s: rounds().map(|round| rate(round.without)).collect(),
            with_bit_per_s: rounds().map(|round| rate(round.with)).collect(),
            without_lost_ratio: rounds().map(|round| lost(round.without)).collect(),
            with_lost_ratio: rounds().map(|round| lost(round.with)).collect(),
            reason: tried.reason.as_deref(),
        }
    }
}

impl<'a> NamedLimit<'a> {
    pub(super) fn of(measured: &'a Measured<'_>) -> Self {
        let limit = measured.limit.as_ref();
        Self {
            what: limit.map_or_else(|| "not determined".to_owned(), |one| one.what.to_string()),
            status: limit.map_or(Status::NotDetermined, |one| one.status),
            rule: limit.and_then(|one| one.rule.as_deref()),
            evidence: limit.map_or(&[], |one| one.evidence.as_slice()),
            hypotheses: hypotheses(measured),
            interventions: measured
                .why
                .iter()
                .flat_map(|why| &why.tried)
                .map(Into::into)
                .collect(),
        }
    }
}

fn hypotheses<'a>(measured: &'a Measured<'_>) -> Vec<PossibleLimit<'a>> {
    if let Some(why) = &measured.why {
        let all = why.verdict.hypotheses.iter();
        return all
            .map(|one| PossibleLimit {
                what: one.what.to_string(),
                suggested: one.suggested,
                refuted_by: &one.refuted_by,
                supported_by: &one.supported_by,
            })
            .collect();
    }
    let suggested = measured.limit.iter().flat_map(|limit| &limit.suggested);
    suggested
        .map(|what| PossibleLimit {
            what: what.to_string(),
            suggested: true,
            refuted_by: &[],
            supported_by: &[],
        })
        .collect()
}

/// A host, in short.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::measure) struct HostLine<'a> {
    hostname: Option<&'a str>,
    kernel_release: Option<&'a str>,
    cpu_model: Option<&'a str>,
    boot_id: Option<&'a str>,
}

impl<'a> From<&'a Host> for HostLine<'a> {
    fn from(host: &'a Host) -> Self {
        let identity = &host.identity;
        let text = |known: &'a Known<String>| known.value().map(String::as_str);
        Self {
            hostname: text(&identity.hostname),
            kernel_release: text(&identity.kernel_release),
            cpu_model: text(&identity.cpu_model),
            boot_id: text(&identity.boot_id),
        }
    }
}
