//! What a measurement over RDMA verbs reports in addition: its sizes, its queue pairs and the
//! counters of their ports.

pub(super) mod text;

use linerate_analysis::trial::operations::{askers, real};
use linerate_model::latency::Histogram;
use linerate_model::plan::End;
use linerate_model::sample::{FlowRecord, Operations, Role, Sample, SideSample, VerbsRecord};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Connect, Rdma, Service, Workload};
use serde::Serialize;

use super::document::{DatagramCounts, Latency, MessageFigures, SizeFigures};

/// What only `rdma-*` has, of a sample of it.
pub(super) fn rdma(sample: &Sample) -> Option<&Rdma> {
    match &sample.spec.workload {
        Workload::Rdma(rdma) => Some(rdma),
        _ => None,
    }
}

/// One size, of all ends that post it.
#[derive(Debug, Clone)]
pub(super) struct Size {
    pub(super) bytes: Bytes,
    pub(super) repetitions: u64,
    /// Histograms of latency; empty of rates.
    pub(super) latency: Histogram,
    pub(super) per_s: Option<f64>,
    pub(super) peak: Option<BitRate>,
    pub(super) alone: Option<Nanoseconds>,
    pub(super) elapsed: Nanoseconds,
}

impl Size {
    /// The rate of its payload, in bit/s.
    pub(super) fn rate(&self) -> Option<f64> {
        Some(self.per_s? * real(self.bytes.as_u64()) * 8.0)
    }
}

/// The sizes in their order; where both ends post, what they did together.
pub(super) fn sizes(sample: &Sample) -> Vec<Size> {
    let mut all: Vec<Size> = Vec::new();
    let records = askers(sample).flat_map(|(_, operations): (_, &Operations)| &operations.sizes);
    for record in records {
        let seconds = record.elapsed_ns.as_secs_f64();
        let per_s = (seconds > 0.0).then(|| real(record.repetitions) / seconds);
        let one = Size {
            bytes: record.bytes,
            repetitions: record.repetitions,
            latency: record.one_way.clone(),
            per_s,
            peak: record.peak_bit_per_s,
            alone: record.alone_ns,
            elapsed: record.elapsed_ns,
        };
        match all.iter_mut().find(|size| size.bytes == one.bytes) {
            None => all.push(one),
            Some(both) => {
                both.repetitions += one.repetitions;
                both.latency.add(&one.latency);
                both.per_s = both.per_s.zip(one.per_s).map(|(one, other)| one + other);
                both.peak = both.peak.zip(one.peak).map(|(one, other)| {
                    let sum = one.as_bit_per_s().saturating_add(other.as_bit_per_s());
                    BitRate::from_bit_per_s(sum)
                });
                both.alone = both.alone.min(one.alone);
                both.elapsed = both.elapsed.max(one.elapsed);
            }
        }
    }
    all
}

/// The histogram of a latency trial of one size.
pub(super) fn latency(sample: &Sample) -> Option<Histogram> {
    rdma(sample).filter(|rdma| rdma.latency)?;
    match &sizes(sample)[..] {
        [only] if only.latency.count() > 0 => Some(only.latency.clone()),
        _ => None,
    }
}

pub(super) fn mode(rdma: &Rdma) -> &'static str {
    if rdma.latency { "latency" } else { "rate" }
}

/// The sizes as the document has them.
pub(super) fn size_figures(sample: &Sample, rdma: &Rdma) -> Vec<SizeFigures> {
    let figures = sizes(sample).into_iter().map(|size| SizeFigures {
        bytes: size.bytes,
        repetitions: size.repetitions,
        latency_ns: (size.latency.count() > 0).then(|| Latency::of(&size.latency)),
        // One message at a time yields a latency, and no rate.
        rate_bit_per_s: size.rate().filter(|_| !rdma.latency),
        of_verbs: Some(MessageFigures {
            peak_bit_per_s: size.peak.map(BitRate::as_f64),
            messages_per_s: size.per_s,
            alone_ns: size.alone,
            seconds: size.elapsed.as_secs_f64(),
        }),
    });
    figures.collect()
}

/// Over RDMA verbs: parameters and counters of the queue pairs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct VerbsFigures<'a> {
    /// Reliable connection (RC), or unreliable datagram (UD).
    service: Service,
    /// Whether the ends exchanged their GIDs over linerate's control connection, or the connection manager did.
    connect: Connect,
    traffic_class: u8,
    service_level: u8,
    /// The requested acknowledgment timeout: packets are retransmitted after 4.096 us x 2^n.
    ack_timeout: Option<u8>,
    huge_pages: bool,
    on_demand: bool,
    relaxed_ordering: bool,
    local: Option<EndQueuePairs<'a>>,
    remote: Option<EndQueuePairs<'a>>,
}

impl<'a> VerbsFigures<'a> {
    pub(super) fn of(sample: &'a Sample) -> Option<Self> {
        let verbs = sample.spec.verbs.as_ref()?;
        Some(Self {
            service: verbs.service,
            connect: verbs.connect,
            traffic_class: verbs.traffic_class,
            service_level: verbs.service_level,
            ack_timeout: verbs.ack_timeout,
            huge_pages: verbs.memory.huge_pages,
            on_demand: verbs.memory.on_demand,
            relaxed_ordering: verbs.memory.relaxed_ordering,
            local: EndQueuePairs::of(&sample.local),
            remote: EndQueuePairs::of(&sample.remote),
        })
    }
}

/// The queue pairs of one end; null for an end that does not report any. Counts are over all of them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EndQueuePairs<'a> {
    device: &'a str,
    port: u8,
    /// None on InfiniBand within a subnet.
    gid_index: Option<u32>,
    gid: Option<&'a str>,
    /// `RoCE v2`, `IB/RoCE v1`.
    gid_kind: Option<&'a str>,
    /// The path MTU, bytes; null for iWARP, whose messages TCP segments.
    mtu: Option<u32>,
    /// Maximum work requests in flight, on each.
    depth: u32,
    /// The largest message that was sent inline in its work request.
    inline_bytes: Bytes,
    /// Every Nth work request was signaled.
    moderation: u32,
    registered_bytes: Bytes,
    queue_pairs: Vec<u32>,
    /// Completions at this end; a passive end has none.
    completions: u64,
    /// The number of polls of the completion queues.
    polls: u64,
    /// The number of empty polls.
    polls_empty: u64,
    /// How often a thread slept until a completion event.
    sleeps: u64,
    /// How often a posting thread found its queue pair empty.
    ran_dry: Option<u64>,
}

impl<'a> EndQueuePairs<'a> {
    fn of(side: &'a SideSample) -> Option<Self> {
        let one = records(side).next()?;
        let sum = |pick: fn(&VerbsRecord) -> u64| {
            let counts = records(side).map(pick);
            counts.fold(0, u64::saturating_add)
        };
        Some(Self {
            device: &one.device,
            port: one.port,
            gid_index: one.gid_index,
            gid: one.gid.as_deref(),
            gid_kind: one.gid_kind.as_deref(),
            mtu: one.mtu,
            depth: one.depth,
            inline_bytes: one.inline_bytes,
            moderation: one.moderation,
            registered_bytes: one.registered_bytes,
            queue_pairs: records(side).map(|record| record.queue_pair).collect(),
            completions: sum(|record| record.completions),
            polls: sum(|record| record.polls),
            polls_empty: sum(|record| record.polls_empty),
            sleeps: sum(|record| record.sleeps),
            ran_dry: posting(side)
                .try_fold(0_u64, |all, one| Some(all.saturating_add(one.ran_dry?))),
        })
    }
}

/// The records of an end's queue pairs.
pub(super) fn records(side: &SideSample) -> impl Iterator<Item = &VerbsRecord> {
    side.flows.iter().filter_map(|flow| flow.verbs.as_ref())
}

fn posting(side: &SideSample) -> impl Iterator<Item = &VerbsRecord> {
    let senders = side.flows.iter().filter(|flow| flow.role == Role::Sender);
    senders.filter_map(|flow| flow.verbs.as_ref())
}

/// A counter of an RDMA port that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PortCounterGrowth<'a> {
    /// `mlx5_0/1`.
    pub(super) port: String,
    /// The driver's own name.
    #[serde(rename = "counter")]
    pub(super) name: &'a str,
    /// Data in octets.
    pub(super) grew: u64,
    pub(super) path: &'a str,
}

/// The counters of this end's RDMA ports that moved; `None` where they were not read.
pub(super) fn moved(side: &SideSample) -> Option<Vec<PortCounterGrowth<'_>>> {
    let watch = side.counters.value()?;
    let all = watch.below("rdma/").filter_map(|(rest, grew, counter)| {
        let mut words = rest.splitn(4, '/');
        let (device, port, _, name) = (words.next()?, words.next()?, words.next()?, words.next()?);
        Some(PortCounterGrowth {
            port: format!("{device}/{port}"),
            name,
            grew,
            path: &counter.path,
        })
    });
    Some(all.filter(|one| one.grew > 0).collect())
}

/// The datagrams of a trial of UD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Datagrams {
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Datagrams {
    pub(super) fn of(sample: &Sample) -> Option<Self> {
        let verbs = sample.spec.verbs.as_ref()?;
        if verbs.service != Service::Ud {
            return None;
        }
        let count = |role: Role| {
            let flows = [&sample.local, &sample.remote]
                .into_iter()
                .flat_map(|side| &side.flows);
            let counts = flows.filter(move |flow| flow.role == role);
            counts
                .map(|flow: &FlowRecord| Some(flow.datagrams.as_ref()?.count))
                .sum::<Option<u64>>()
        };
        Some(Self {
            sent: count(Role::Sender)?,
            received: count(Role::Receiver)?,
        })
    }

    pub(super) fn lost(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    pub(super) fn counts(self) -> DatagramCounts {
        DatagramCounts {
            sent: Some(self.sent),
            received: self.received,
            lost: self.lost(),
            lost_share: (self.sent > 0).then(|| real(self.lost()) / real(self.sent)),
            // The order of arrival is not checked.
            reordered: None,
            duplicated: None,
            jitter_ns: None,
            delay_ns: None,
            received_per_s: None,
            gaps: None,
        }
    }
}

/// The name of an end, for people.
pub(super) fn sides(sample: &Sample) -> [(End, &SideSample); 2] {
    [(End::Local, &sample.local), (End::Remote, &sample.remote)]
}

#[cfg(test)]
mod tests;
