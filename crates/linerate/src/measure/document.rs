//! What `measure --format json` prints (schema `linerate.sample/1`), derived from the raw record. Everything in
//! it but `raw` can be recomputed from `raw`.

use std::collections::BTreeMap;

use linerate_analysis::trial::operations::{askers, exchanged_rate, ops_per_s, real};
use linerate_analysis::trial::{first_kept, rate_of, settling_flag};
use linerate_model::analysis::{RatePoint, cost_of_local, cost_of_remote, rate_series};
use linerate_model::ceiling::{Ceiling, PathCeilings, PathFacts, ceilings_of_path, share};
use linerate_model::host::Host;
use linerate_model::ids::CpuSet;
use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::limit::{Limit, LimitKind, name_limit};
use linerate_model::path::PathView;
use linerate_model::pingpong::{self, Judgement};
use linerate_model::plan::End;
use linerate_model::sample::{
    Datagrams, Flag, FlowRecord, Operations, Role, Sample, SideSample, Step, ThreadRecord,
};
use linerate_model::trust::flags;
use linerate_model::units::{BitRate, Nanoseconds, Ratio};
use linerate_model::workload::{Direction, MemoryPolicy, TrialSpec, Workload};
use linerate_report::nulled;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::diffusion::{self, Overhead};
use super::repeat::Repeats;
use super::require::Judged;
use super::verbs;
use crate::endpoint::trial::PeerPath;

/// A measurement and the facts about its path.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    pub(super) sample: Sample,
    pub(super) ends: Option<PathView<'a>>,
    pub(super) rate: Option<BitRate>,
    pub(super) ceilings: PathCeilings,
    pub(super) limit: Option<Limit>,
    /// The combined result for the sizes of a ping-pong.
    pub(super) judgement: Option<Judgement>,
    /// The overhead of `diffusion`'s work.
    pub(super) overhead: Option<Overhead>,
    /// What a foreign program at the remote end reported about itself.
    pub(super) foreign: Option<Value>,
}

impl<'a> Measured<'a> {
    /// A trial over a path with linerate at both ends.
    pub(super) fn over_path(path: &'a PeerPath, sample: Sample, copy: Option<BitRate>) -> Self {
        Self::between(path.view(), sample, copy)
    }

    /// A trial between two linerate ends.
    pub(super) fn between(ends: PathView<'a>, mut sample: Sample, copy: Option<BitRate>) -> Self {
        let bulk = sample.spec.workload.is_bulk();
        let rate = if bulk {
            rate_of(&sample)
        } else {
            exchanged_rate(&sample)
        };
        let facts = PathFacts {
            local: ends.local,
            local_nic: ends.local_nic,
            remote: ends.remote,
            remote_nic: ends.remote_nic,
            flows: sample.spec.flows,
            direction: sample.spec.direction,
            ipv6: ends.ipv6,
            datagram_bytes: match &sample.spec.workload {
                Workload::Udp(udp) => u32::try_from(udp.datagram_bytes.as_u64()).ok(),
                _ => None,
            },
            copy_bandwidth: copy,
            sample: Some(&sample),
        };
        // The rate of an exchange is that of both directions in turn: no bound of one direction applies to it.
        let ceilings = if bulk {
            ceilings_of_path(&facts)
        } else {
            PathCeilings::default()
        };
        let stream = matches!(
            sample.spec.workload,
            Workload::Stream(_) | Workload::Rdma(_)
        );
        let limit = rate
            // If there are several sizes, each has its own.
            .filter(|_| bulk && !sample.spec.workload.is_sweep())
            .map(|rate| name_limit(&sample, ends.local, ends.remote, &ceilings.ceilings, rate))
            // Datagrams at a requested rate, without loss: there is no bottleneck to determine.
            .filter(|limit| stream || limit.what != LimitKind::NotDetermined);
        let mut all = flags(&sample, ends.local, ends.remote, ceilings.lowest(), rate);
        if bulk && !sample.spec.workload.ends_by_itself() && !sample.spec.workload.is_sweep() {
            all.extend(settling_flag(&sample));
        }
        sample.flags = all;
        Self {
            judgement: judgement(&ends, &sample),
            ends: Some(ends),
            sample,
            rate,
            ceilings,
            limit,
            overhead: None,
            foreign: None,
        }
    }

    /// A trial whose remote end is not linerate: nothing is known about its host, so there is no bound of the path either.
    pub(super) fn foreign(mut sample: Sample, told: Value) -> Self {
        let rate = sample
            .spec
            .workload
            .is_bulk()
            .then(|| whole_rate(&sample))
            .flatten();
        if !sample.flags.contains(&Flag::ForeignPeer) {
            sample.flags.push(Flag::ForeignPeer);
        }
        Self {
            rate,
            sample,
            ends: None,
            ceilings: PathCeilings::default(),
            limit: None,
            judgement: None,
            overhead: None,
            foreign: Some(told),
        }
    }

    /// The lowest bound.
    pub(super) fn ceiling(&self) -> Option<&Ceiling> {
        self.ceilings.lowest()
    }

    /// The share of the lowest bound that was reached; none for several sizes, where each has its own.
    pub(super) fn reached(&self) -> Option<Ratio> {
        if self.sample.spec.workload.is_sweep() {
            return None;
        }
        share(self.rate?, self.ceiling()?.bit_per_s)
    }

    /// Which end's count of a connection is that of the arrived bytes: the receiver's, and for one-sided verbs the
    /// sender's.
    pub(super) fn counted<'f>(
        &self,
        sender: Option<&'f FlowRecord>,
        receiver: Option<&'f FlowRecord>,
    ) -> Option<&'f FlowRecord> {
        if self.sample.spec.workload.is_one_sided() {
            sender.or(receiver)
        } else {
            receiver.or(sender)
        }
    }

    /// The connections, each with the records of both ends: (sender's end, sender, receiver).
    pub(super) fn flows(&self) -> Vec<(End, Option<&FlowRecord>, Option<&FlowRecord>)> {
        let sides = [
            (End::Local, &self.sample.local),
            (End::Remote, &self.sample.remote),
        ];
        let of = |role: Role| {
            sides.iter().flat_map(move |(end, side)| {
                let flows = side.flows.iter().filter(move |flow| flow.role == role);
                flows.map(move |flow| (*end, flow))
            })
        };
        let mut pairs: Vec<(End, Option<&FlowRecord>, Option<&FlowRecord>)> = of(Role::Sender)
            .map(|(end, sender)| {
                let other = of(Role::Receiver)
                    .find(|(other, flow)| *other != end && flow.flow == sender.flow);
                (end, Some(sender), other.map(|(_, flow)| flow))
            })
            .collect();
        // A foreign remote end reports nothing about its flows: ours may be the receiving one.
        let alone = of(Role::Receiver).filter(|(end, flow)| {
            !of(Role::Sender).any(|(other, sender)| other != *end && sender.flow == flow.flow)
        });
        let alone: Vec<_> = alone
            .map(|(end, flow)| (other_end(end), None, Some(flow)))
            .collect();
        pairs.extend(alone);
        pairs.sort_by_key(|(_, sender, receiver)| sender.or(*receiver).map(|flow| flow.flow));
        pairs
    }
}

/// The rate of whole trials, as the receivers counted: a foreign program reports one sum for each.
pub(super) fn whole_rate(sample: &Sample) -> Option<BitRate> {
    let sides = [&sample.local, &sample.remote];
    let rates: Vec<BitRate> = sides
        .into_iter()
        .flat_map(SideSample::receivers)
        .filter_map(|flow| BitRate::of(flow.total(), *flow.at_ns.last()?))
        .collect();
    let sum = rates.iter().map(|rate| rate.as_bit_per_s());
    (!rates.is_empty()).then(|| BitRate::from_bit_per_s(sum.fold(0, u64::saturating_add)))
}

/// The combined result for the sizes of a ping-pong, over the link that the path uses.
fn judgement(ends: &PathView<'_>, sample: &Sample) -> Option<Judgement> {
    if !matches!(sample.spec.workload, Workload::Pingpong(_)) {
        return None;
    }
    let (_, operations) = askers(sample).next()?;
    let nic = ends.local.nic(ends.local_nic);
    let wire = nic.filter(|nic| nic.kind.has_wire());
    let link = wire.and_then(|nic| nic.link_bit_per_s.get());
    pingpong::judge(&pingpong::points(operations), link)
}

fn other_end(end: End) -> End {
    match end {
        End::Local => End::Remote,
        End::Remote => End::Local,
    }
}

/// The document.
#[derive(Debug, Serialize)]
pub(super) struct MeasureDocument<'a> {
    schema: &'static str,
    workload: &'static str,
    transport: &'static str,
    direction: Direction,
    placement: BothEnds<Option<EndPlacement>>,
    seconds: f64,
    total: Value,
    repeats: Option<Value>,
    /// Only with `--require`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requirements: Vec<Judged>,
    flows: Flows<'a>,
    latency_ns: Value,
    #[serde(skip_serializing_if = "Map::is_empty", flatten)]
    of_workload: Map<String, Value>,
    pub(super) cpu: Value,
    ceiling: Value,
    pub(super) limit: Value,
    flags: Value,
    hosts: BothEnds<Option<HostLine<'a>>>,
    threads: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign: Option<Value>,
    raw: &'a Sample,
}

/// Builds the document.
pub(super) fn document<'a>(
    measured: &'a Measured<'_>,
    repeats: Option<&Repeats>,
) -> MeasureDocument<'a> {
    let sample = &measured.sample;
    let spec = &sample.spec;
    let latency = whole_latency(sample, |operations| Some(&operations.latency));
    let latency = latency.or_else(|| verbs::latency(sample));
    MeasureDocument {
        schema: "linerate.sample/1",
        workload: spec.workload.name(),
        transport: spec.transport(),
        direction: spec.direction,
        placement: placement(spec),
        seconds: spec.duration_ns.as_secs_f64(),
        total: total(measured),
        repeats: repeats.map(|repeats| json!(repeats)),
        requirements: Vec::new(),
        flows: Flows(measured),
        latency_ns: latency.as_ref().map_or(Value::Null, latency_value),
        of_workload: of_workload(measured),
        cpu: json!({
            "local": cost(measured, End::Local),
            "remote": cost(measured, End::Remote),
        }),
        ceiling: json!({
            "bit_per_s": measured.ceiling().map(|ceiling| ceiling.bit_per_s.as_f64()),
            "share": measured.reached().map(Ratio::as_f64),
            "reason": measured.ceiling().map_or("no bound can be computed", |one| &one.reason),
        }),
        limit: json!({
            "what": measured.limit.as_ref().map_or("not determined".to_owned(), |l| l.what.to_string()),
            "rule": measured.limit.as_ref().and_then(|l| l.rule.clone()),
            "evidence": measured.limit.as_ref().map(|l| l.evidence.clone()).unwrap_or_default(),
        }),
        flags: json!(sample.flags),
        hosts: BothEnds {
            local: measured.ends.map(|ends| HostLine::from(ends.local)),
            remote: measured.ends.map(|ends| HostLine::from(ends.remote)),
        },
        threads: json!({
            "local": nulled(&sample.local.threads),
            "remote": nulled(&sample.remote.threads),
        }),
        foreign: measured.foreign.clone(),
        raw: sample,
    }
}

/// A part of a document for each end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct BothEnds<T> {
    pub(super) local: T,
    pub(super) remote: T,
}

/// Placement of this end's threads and buffers; null if the kernel chose.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EndPlacement {
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
pub(super) fn placement(spec: &TrialSpec) -> BothEnds<Option<EndPlacement>> {
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

fn total(measured: &Measured<'_>) -> Value {
    let sample = &measured.sample;
    let bytes: u64 = if sample.spec.workload.is_bulk() {
        measured
            .flows()
            .iter()
            .filter_map(|(_, sender, receiver)| measured.counted(*sender, *receiver))
            .map(|flow| flow.total().as_u64())
            .fold(0, u64::saturating_add)
    } else {
        askers(sample)
            .map(|(side, operations)| {
                let flows = side
                    .senders()
                    .map(|flow| flow.total().as_u64())
                    .fold(0, u64::saturating_add);
                flows.max(operations.received_bytes.as_u64())
            })
            .fold(0, u64::saturating_add)
    };
    let bulk = sample.spec.workload.is_bulk() && measured.ends.is_some();
    let warmup = bulk.then(|| warmup(sample)).flatten();
    json!({
        "rate_bit_per_s": measured.rate.map(BitRate::as_f64),
        "bytes": bytes,
        "ops_per_s": ops_per_s(sample),
        "operations": askers(sample).map(|(_, operations)| operations.completed).reduce(|a, b| a + b),
        "failed": askers(sample).map(|(_, operations)| operations.failed).reduce(|a, b| a + b),
        "unanswered": askers(sample).map(|(_, operations)| operations.unanswered).reduce(|a, b| a + b),
        "warmup_s": warmup.unwrap_or(0.0),
    })
}

/// The warm-up of a bulk trial that its rate excludes, in seconds.
pub(super) fn warmup(sample: &Sample) -> Option<f64> {
    let last = first_kept(sample).checked_sub(1)?;
    let point = *rate_series(sample).total.get(last)?;
    Some(point.at_ns.as_secs_f64())
}

/// The flows, each built when it is written: ten thousand of them as values would take half a gigabyte.
#[derive(Debug)]
struct Flows<'a>(&'a Measured<'a>);

impl Serialize for Flows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = rate_series(&self.0.sample).flows;
        let series: BTreeMap<(u32, End), &[RatePoint]> = all
            .iter()
            .map(|series| ((series.flow, series.from), series.points.as_slice()))
            .collect();
        serializer.collect_seq(self.0.flows().iter().map(|flow| {
            let known = flow.2.or(flow.1).map_or(0, |known| known.flow);
            flow_value(
                self.0.counted(flow.1, flow.2),
                flow,
                series.get(&(known, flow.0)).copied().unwrap_or_default(),
            )
        }))
    }
}

/// One flow: the sender's end, and the records of both ends.
fn flow_value(
    known: Option<&FlowRecord>,
    (from, sender, receiver): &(End, Option<&FlowRecord>, Option<&FlowRecord>),
    points: &[RatePoint],
) -> Value {
    let number = known.map_or(0, |flow| flow.flow);
    let mean = known.and_then(|flow| BitRate::of(flow.total(), *flow.at_ns.last()?));
    let mut value = json!({
        "flow": number,
        "from": from,
        "bytes": known.map(|flow| flow.total().as_u64()),
        "rate_bit_per_s": mean.map(BitRate::as_f64),
        "series": {
            "at_s": points.iter().map(|p| p.at_ns.as_secs_f64()).collect::<Vec<_>>(),
            "rate_bit_per_s": points.iter().map(|p| p.bit_per_s.as_f64()).collect::<Vec<_>>(),
        },
        "sender_cpu": sender.and_then(|f| f.last_cpu.get()),
        "receiver_cpu": receiver.and_then(|f| f.last_cpu.get()),
        "incoming_cpu": receiver.and_then(|f| f.incoming_cpu.get()),
        "incoming_napi": receiver.and_then(|f| f.incoming_napi.get()),
        "tcp": sender.map(|f| nulled(&f.tcp)),
    });
    let mut add = |name: &str, part: Option<Value>| {
        if let (Some(part), Some(object)) = (part, value.as_object_mut()) {
            object.insert(name.to_owned(), part);
        }
    };
    add(
        "send_copies",
        sender.and_then(|f| f.copies).map(|c| json!(c)),
    );
    add(
        "receive_copies",
        receiver.and_then(|f| f.copies).map(|c| json!(c)),
    );
    let of_sockets = |flow: &&FlowRecord| flow.verbs.is_none();
    let datagrams =
        |flow: Option<&FlowRecord>| flow.filter(of_sockets).and_then(|f| f.datagrams.clone());
    if let Some(received) = datagrams(*receiver) {
        let sent = datagrams(*sender).map(|sent| sent.count);
        add("datagrams", Some(datagrams_value(sent, &received)));
    }
    value
}

/// The keys that only some workloads have.
fn of_workload(measured: &Measured<'_>) -> Map<String, Value> {
    let sample = &measured.sample;
    let mut keys = Map::new();
    let mut add = |name: &str, value: Value| {
        keys.insert(name.to_owned(), value);
    };
    if let Some(service) = whole_latency(sample, |operations| operations.service.as_ref()) {
        add("service_latency_ns", latency_value(&service));
    }
    let steps = steps(sample);
    if !steps.is_empty() {
        add(
            "steps",
            json!({
                "at_s": steps.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
                "ops_per_s": steps.iter().map(|(_, rate)| *rate).collect::<Vec<_>>(),
            }),
        );
    }
    if let Some(all) = datagrams(measured) {
        let received: u64 = all.1.count;
        let seconds = sample.local.elapsed_ns.as_secs_f64();
        let mut value = datagrams_value(all.0, &all.1);
        if seconds > 0.0 {
            value["received_per_s"] = json!(real(received) / seconds);
        }
        add("datagrams", value);
    }
    if matches!(sample.spec.workload, Workload::Pingpong(_)) {
        let sizes = askers(sample).flat_map(|(_, operations)| &operations.sizes);
        let sizes: Vec<Value> = sizes
            .map(|size| {
                let rate = size
                    .one_way
                    .mean_ns()
                    .filter(|ns| *ns > 0.0)
                    .map(|ns| real(size.bytes.as_u64()) * 8e9 / ns);
                json!({
                    "bytes": size.bytes,
                    "repetitions": size.repetitions,
                    "latency_ns": latency_value(&size.one_way),
                    "rate_bit_per_s": rate,
                })
            })
            .collect();
        add("sizes", json!(sizes));
        if let Some(judgement) = &measured.judgement {
            add("fit", nulled(judgement));
        }
    }
    keys.extend(diffusion::keys(sample, measured.overhead.as_ref()));
    keys.extend(verbs::keys(sample));
    keys
}

/// The completed operations of each step, as (end of the step in seconds, operations a second).
pub(super) fn steps(sample: &Sample) -> Vec<(f64, f64)> {
    let Some((_, operations)) = askers(sample).next() else {
        return Vec::new();
    };
    let begin = Step {
        at_ns: Nanoseconds::new(0),
        completed: 0,
    };
    let starts = std::iter::once(&begin).chain(&operations.steps);
    // After the planned end only operations in flight complete.
    let whole = sample.spec.interval_ns.as_secs_f64() / 2.0;
    starts
        .zip(&operations.steps)
        .filter_map(|(before, after)| {
            let span = after.at_ns.as_secs_f64() - before.at_ns.as_secs_f64();
            let done = after.completed.saturating_sub(before.completed);
            (span >= whole).then(|| (after.at_ns.as_secs_f64(), real(done) / span))
        })
        .collect()
}

/// The combined histogram of all requesting ends.
pub(super) fn whole_latency(
    sample: &Sample,
    pick: impl Fn(&Operations) -> Option<&Histogram>,
) -> Option<Histogram> {
    let mut whole: Option<Histogram> = None;
    for (_, operations) in askers(sample) {
        if let Some(one) = pick(operations) {
            whole.get_or_insert_default().add(one);
        }
    }
    whole.filter(|histogram| histogram.count() > 0)
}

/// The datagrams of all flows: how many were sent, if known, and what arrived.
pub(super) fn datagrams(measured: &Measured<'_>) -> Option<(Option<u64>, Datagrams)> {
    let mut sum: Option<(Option<u64>, Datagrams)> = None;
    if measured.sample.spec.verbs.is_some() {
        // With verbs their order was not checked: `verbs::Datagrams`.
        return None;
    }
    for (_, sender, receiver) in measured.flows() {
        let Some(received) = receiver.and_then(|flow| flow.datagrams.as_ref()) else {
            continue;
        };
        let sent = sender.and_then(|flow| Some(flow.datagrams.as_ref()?.count));
        let (all_sent, all) = sum.get_or_insert_with(|| (Some(0), Datagrams::default()));
        *all_sent = all_sent
            .zip(sent)
            .map(|(all, one): (u64, u64)| all.saturating_add(one));
        all.count = all.count.saturating_add(received.count);
        all.lost = all.lost.saturating_add(received.lost);
        all.reordered = all.reordered.saturating_add(received.reordered);
        all.duplicated = all.duplicated.saturating_add(received.duplicated);
        all.jitter_ns = all.jitter_ns.max(received.jitter_ns);
        if let Some(delay) = &received.delay {
            all.delay.get_or_insert_default().add(delay);
        }
    }
    sum
}

fn datagrams_value(sent: Option<u64>, received: &Datagrams) -> Value {
    let arrived = received.count.saturating_sub(received.duplicated);
    let expected = received.lost.saturating_add(arrived);
    json!({
        "sent": sent,
        "received": received.count,
        "lost": received.lost,
        "lost_share": (expected > 0).then(|| real(received.lost) / real(expected)),
        "reordered": received.reordered,
        "duplicated": received.duplicated,
        "jitter_ns": received.jitter_ns,
        "delay_ns": received.delay.as_ref().map(latency_value),
    })
}

/// The figures of a histogram, all in nanoseconds.
pub(super) fn latency_value(histogram: &Histogram) -> Value {
    json!({
        "min": histogram.min(),
        "mean": histogram.mean_ns(),
        "stddev": histogram.stddev_ns(),
        "p50": histogram.quantile(0.5),
        "p90": histogram.quantile(0.9),
        "p99": histogram.quantile(0.99),
        "p999": histogram.quantile(0.999),
        "max": histogram.max(),
        "count": histogram.count(),
        "within_stddev": histogram.within_one_stddev(),
    })
}

/// The cost of one end. A foreign end cannot report it.
fn cost(measured: &Measured<'_>, end: End) -> Value {
    let sample = &measured.sample;
    let (cost, side) = match end {
        End::Local => (cost_of_local(sample), &sample.local),
        End::Remote => (cost_of_remote(sample), &sample.remote),
    };
    if side.threads.is_empty() {
        return Value::Null;
    }
    let mut value = nulled(&cost);
    let operations: u64 = askers(sample)
        .map(|(_, operations)| operations.completed)
        .fold(0, u64::saturating_add);
    if operations > 0 {
        value["s_per_operation"] = json!((cost.user_s + cost.system_s) / real(operations));
    }
    let sum = |pick: fn(&ThreadRecord) -> u64| {
        let counts = side.threads.iter().map(pick);
        counts.fold(0, u64::saturating_add)
    };
    value["voluntary_switches"] = json!(sum(|thread| thread.voluntary_switches));
    value["involuntary_switches"] = json!(sum(|thread| thread.involuntary_switches));
    value["page_faults"] = json!(sum(|thread| thread
        .minor_faults
        .saturating_add(thread.major_faults)));
    value["recording_s"] = json!(side.cpu.recording_ns.get().map(Nanoseconds::as_secs_f64));
    value
}

/// A host, in short.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct HostLine<'a> {
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
