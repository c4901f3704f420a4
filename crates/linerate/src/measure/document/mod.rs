//! What `measure --format json` prints (schema `linerate.sample/1`), derived from the raw record. Everything in
//! it but `raw` can be recomputed from `raw`.

mod parts;

use std::collections::BTreeMap;

use linerate_analysis::trial::operations::{ThreadRates, thread_rates};
use linerate_model::analysis::{RatePoint, rate_series};
use linerate_model::pingpong::Judgement;
use linerate_model::plan::End;
use linerate_model::sample::{Flag, Sample, ThreadRecord};
use linerate_model::workload::{Direction, Workload};
use linerate_report::Nulled;
pub(super) use parts::{
    BothEnds, DatagramCounts, EndCost, EndPlacement, HostLine, Latency, MessageFigures,
    SizeFigures, placement,
};
use parts::{Flow, LowestBound, NamedLimit, Steps, Total, pingpong_sizes};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::diffusion::{DiffusionFigures, Overhead};
use super::measured::{Measured, corrected_latency, datagrams, whole_latency};
use super::over_time::Interval;
use super::repeat::Repeats;
use super::require::Judged;
use super::spread::{FLOWS_LISTED, FlowSpread};
use super::verbs::{self, PortCounterGrowth, VerbsFigures};

/// What `linerate measure WORKLOAD PEER --format json` prints: the trial, its cost, its ceiling and its limit.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MeasureDocument<'a> {
    schema: &'static str,
    /// `stream`, `rr`, `pingpong`, `http`, `transfer`, `diffusion`, `udp` or `rdma-*`.
    workload: &'static str,
    /// `tcp`, `udp` or `verbs`.
    transport: &'static str,
    /// forward: from here to the peer.
    direction: Direction,
    placement: BothEnds<Option<EndPlacement>>,
    /// The planned duration.
    seconds: f64,
    /// Whether Ctrl-C or SIGTERM ended the measurement early. The figures are those of the time until then, or of the
    /// trials before.
    pub(super) interrupted: bool,
    total: Total,
    repeats: Option<&'a Repeats>,
    /// With `--require`: each bound as requested, the median of all trials with its 95 % CI, and the verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requirements: Vec<Judged>,
    /// Each flow; with more than 64 flows none, unless `--per-flow` is given.
    #[cfg_attr(test, schemars(with = "Vec<Flow<'a>>"))]
    flows: Flows<'a>,
    /// Of several flows: how their rates differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_spread: Option<FlowSpread>,
    /// Of each operation: in open loop from its planned time, in closed loop from when it was sent; null for a bulk
    /// transfer.
    latency_ns: Option<Latency>,
    /// In open loop: from when each request was actually sent, as a closed loop would have measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_latency_ns: Option<Latency>,
    /// In closed loop: `latency_ns` with the requests that were not sent while others waited, as wrk prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrected_latency_ns: Option<Latency>,
    /// The operations per second of single threads, over the intervals between readings: wrk's `Req/Sec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_ops_per_s: Option<ThreadRates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Steps>,
    /// With `--interval`: the mean of each interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals: Option<Vec<Interval>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams: Option<DatagramCounts>,
    /// For `pingpong` and `rdma-*`: each size.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<Vec<SizeFigures>>,
    /// For `pingpong`: the fit latency = a + bytes x b over all sizes, the figures at 4 B and 4 MiB, sizes that deviate
    /// from the fit, and what the slope within one frame implies about store-and-forward hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    fit: Option<Nulled<&'a Judgement>>,
    /// For `rdma-*`: `rate` (as many messages in flight as the depth permits), or `latency` (one at a time).
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbs: Option<VerbsFigures<'a>>,
    /// Over RDMA verbs: the counters of both ends' ports that moved; null where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_counters: Option<BothEnds<Option<Vec<PortCounterGrowth<'a>>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diffusion: Option<DiffusionFigures>,
    /// With `diffusion --overhead`: the cost of the work. The rest of the document is the trial with the work whose
    /// time is nearest to the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<&'a Overhead>,
    pub(super) cpu: BothEnds<Option<EndCost>>,
    ceiling: LowestBound<'a>,
    limit: NamedLimit<'a>,
    /// Why the trial may not be reliable, or how to interpret its figures.
    flags: &'a [Flag],
    hosts: BothEnds<Option<HostLine<'a>>>,
    /// Each data thread: its pinning, the CPUs that it ran on, and its CPU time.
    threads: BothEnds<Nulled<&'a [ThreadRecord]>>,
    /// What a foreign remote end reported about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    foreign: Option<&'a Value>,
    /// The raw record of the trial, with every counter of both ends; null with more than 64 flows, unless `--per-flow` is
    /// given.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    raw: Option<&'a Sample>,
}

/// Builds the document.
pub(super) fn document<'a>(
    measured: &'a Measured<'_>,
    repeats: Option<&'a Repeats>,
) -> MeasureDocument<'a> {
    let sample = &measured.sample;
    let spec = &sample.spec;
    let latency = whole_latency(sample, |operations| Some(&operations.latency));
    let service = whole_latency(sample, |operations| operations.service.as_ref());
    let pingpong = matches!(spec.workload, Workload::Pingpong(_));
    let rdma = verbs::rdma(sample);
    let flows = Flows::of(measured);
    MeasureDocument {
        schema: "linerate.sample/1",
        workload: spec.workload.name(),
        transport: spec.transport(),
        direction: spec.direction,
        placement: placement(spec),
        seconds: spec.duration_ns.as_secs_f64(),
        interrupted: false,
        total: Total::of(measured),
        repeats,
        requirements: Vec::new(),
        flow_spread: FlowSpread::of(measured),
        latency_ns: latency
            .or_else(|| verbs::latency(sample))
            .as_ref()
            .map(Latency::of),
        service_latency_ns: service.as_ref().map(Latency::of),
        corrected_latency_ns: corrected_latency(sample).as_ref().map(Latency::of),
        thread_ops_per_s: thread_rates(sample),
        steps: Steps::of(sample),
        intervals: (measured.interval).map(|every| Interval::all(measured, every)),
        datagrams: verbs::Datagrams::of(sample)
            .filter(|_| rdma.is_some())
            .map(verbs::Datagrams::counts)
            .or_else(|| {
                let (sent, received) = datagrams(measured)?;
                let seconds = sample.local.elapsed_ns.as_secs_f64();
                Some(DatagramCounts::of(sent, &received).over(seconds))
            }),
        sizes: match rdma {
            Some(rdma) => Some(verbs::size_figures(sample, rdma)),
            None => pingpong.then(|| pingpong_sizes(sample)),
        },
        fit: measured.judgement.as_ref().map(Nulled),
        mode: rdma.map(verbs::mode),
        verbs: VerbsFigures::of(sample),
        rdma_counters: spec.verbs.is_some().then(|| BothEnds {
            local: verbs::moved(&sample.local),
            remote: verbs::moved(&sample.remote),
        }),
        diffusion: DiffusionFigures::of(sample),
        overhead: measured.overhead.as_ref(),
        cpu: BothEnds {
            local: EndCost::of(sample, End::Local),
            remote: EndCost::of(sample, End::Remote),
        },
        ceiling: LowestBound::of(measured),
        limit: NamedLimit::of(measured),
        flags: &sample.flags,
        hosts: BothEnds {
            local: measured.ends.map(|ends| HostLine::from(ends.local)),
            remote: measured.ends.map(|ends| HostLine::from(ends.remote)),
        },
        threads: BothEnds {
            local: Nulled(&sample.local.threads),
            remote: Nulled(&sample.remote.threads),
        },
        foreign: measured.foreign.as_ref(),
        raw: flows.lists_all.then_some(sample),
        flows,
    }
}

/// The document without flows, threads and the raw record, which a summary does not need: they are megabytes.
pub(super) fn without_flows<'a>(
    measured: &'a Measured<'_>,
    repeats: Option<&'a Repeats>,
    interrupted: bool,
) -> MeasureDocument<'a> {
    let whole = document(measured, repeats);
    MeasureDocument {
        interrupted,
        flows: Flows {
            measured,
            lists_all: false,
        },
        threads: BothEnds {
            local: Nulled(&[]),
            remote: Nulled(&[]),
        },
        raw: None,
        ..whole
    }
}

/// The flows, each built when it is written: ten thousand of them would take half a gigabyte.
#[derive(Debug)]
struct Flows<'a> {
    measured: &'a Measured<'a>,
    lists_all: bool,
}

impl<'a> Flows<'a> {
    fn of(measured: &'a Measured<'_>) -> Self {
        let spec = &measured.sample.spec;
        let directions = if spec.direction == Direction::Bidirectional {
            2
        } else {
            1
        };
        let lists_all = measured.per_flow || spec.flows as usize * directions <= FLOWS_LISTED;
        Self {
            measured,
            lists_all,
        }
    }
}

impl Serialize for Flows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.lists_all {
            return serializer.collect_seq(std::iter::empty::<Flow<'_>>());
        }
        let measured = self.measured;
        let all = rate_series(&measured.sample).flows;
        let series: BTreeMap<(u32, End), &[RatePoint]> = all
            .iter()
            .map(|series| ((series.flow, series.from), series.points.as_slice()))
            .collect();
        serializer.collect_seq(measured.flows().into_iter().map(|flow| {
            let number = flow.2.or(flow.1).map_or(0, |known| known.flow);
            let points = series.get(&(number, flow.0)).copied();
            Flow::of(measured, flow, points.unwrap_or_default())
        }))
    }
}
