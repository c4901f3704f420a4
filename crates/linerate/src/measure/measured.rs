//! A measurement: a trial, the facts about its path, and what follows from both.

use std::collections::BTreeMap;

use linerate_analysis::trial::operations::exchanged_rate;
use linerate_analysis::trial::operations::{askers, real};
use linerate_analysis::trial::{first_kept, rate_of, settling_flag};
use linerate_model::analysis::rate_series;
use linerate_model::ceiling::{Ceiling, PathCeilings, PathFacts, ceilings_of_path, share};
use linerate_model::latency::Histogram;
use linerate_model::limit::{Limit, LimitKind, name_limit};
use linerate_model::path::PathView;
use linerate_model::pingpong::{self, Judgement};
use linerate_model::plan::End;
use linerate_model::sample::{
    Datagrams, Flag, FlowRecord, Operations, Role, Sample, SideSample, Step,
};
use linerate_model::trust::flags;
use linerate_model::units::{BitRate, Nanoseconds, Ratio};
use linerate_model::workload::Workload;
use linerate_runtime::cli::UntilArgs;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::trial::PeerPath;
use linerate_runtime::endpoint::why::Why;
use serde_json::Value;

use super::diffusion::Overhead;

/// A measurement and the facts about its path.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    pub(super) sample: Sample,
    pub(super) ends: Option<PathView<'a>>,
    pub(super) rate: Option<BitRate>,
    pub(super) ceilings: PathCeilings,
    pub(super) limit: Option<Limit>,
    /// The interval whose rates are reported, if any.
    pub(super) interval: Option<Nanoseconds>,
    /// Whether a document lists every flow, however many there are.
    pub(super) per_flow: bool,
    /// What interventions showed about the limit.
    pub(super) why: Option<Why>,
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
        let ceilings = ceilings(ends, &sample, copy);
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
            // One that was stored has it already.
            let flag = settling_flag(&sample);
            all.extend(flag.filter(|flag| !all.contains(flag)));
            // A trial that is stored shows them in the same order.
            all.sort_unstable();
        }
        sample.flags = all;
        Self {
            judgement: judgement(&ends, &sample),
            ends: Some(ends),
            sample,
            rate,
            ceilings,
            limit,
            interval: None,
            per_flow: false,
            why: None,
            overhead: None,
            foreign: None,
        }
    }

    /// The same with the limit that interventions leave.
    pub(super) fn because(mut self, why: Option<Why>) -> Self {
        if let Some(found) = &why {
            self.limit = self
                .limit
                .map(|limit| found.verdict.limit(&found.tried, limit));
        }
        self.why = why;
        self
    }

    /// The same, reporting the rate of each `interval`, and each flow if that is requested.
    pub(super) fn every(self, interval: Option<Nanoseconds>, until: &UntilArgs) -> Self {
        Self {
            interval,
            per_flow: until.per_flow,
            ..self
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
            interval: None,
            per_flow: false,
            why: None,
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
        let mut receivers: BTreeMap<(End, u32), &FlowRecord> = of(Role::Receiver)
            .map(|(end, flow)| ((end, flow.flow), flow))
            .collect();
        let mut pairs: Vec<(End, Option<&FlowRecord>, Option<&FlowRecord>)> = of(Role::Sender)
            .map(|(end, sender)| {
                let receiver = receivers.remove(&(end.other(), sender.flow));
                (end, Some(sender), receiver)
            })
            .collect();
        // A foreign remote end reports nothing about its flows: ours may be the receiving one.
        let alone = receivers.into_iter();
        pairs.extend(alone.map(|((end, _), flow)| (end.other(), None, Some(flow))));
        pairs.sort_by_key(|(_, sender, receiver)| sender.or(*receiver).map(|flow| flow.flow));
        pairs
    }
}

/// The bounds of a trial over a path. The rate of an exchange is that of both directions in turn: no bound of one
/// direction applies to it.
pub(super) fn ceilings(ends: PathView<'_>, sample: &Sample, copy: Option<BitRate>) -> PathCeilings {
    if !sample.spec.workload.is_bulk() {
        return PathCeilings::default();
    }
    ceilings_of_path(&PathFacts {
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
        sample: Some(sample),
    })
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
    let (means, medians) = (pingpong::points(operations), pingpong::medians(operations));
    pingpong::judge(&means, &medians, link)
}

/// The warm-up of a bulk trial that its rate excludes, in seconds.
pub(super) fn warmup(sample: &Sample) -> Option<f64> {
    let last = first_kept(sample).checked_sub(1)?;
    let point = *rate_series(sample).total.get(last)?;
    Some(point.at_ns.as_secs_f64())
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

/// In closed loop, the latency with the requests that each connection did not send while it waited, as wrk prints it:
/// one is expected in each mean time of a request.
pub(super) fn corrected_latency(sample: &Sample) -> Option<Histogram> {
    let depth = match &sample.spec.workload {
        Workload::Rr(rr) => u64::from(rr.depth),
        Workload::Http(_) => 1,
        _ => return None,
    };
    let mut whole: Option<Histogram> = None;
    for (side, operations) in askers(sample) {
        if operations.service.is_some() {
            return None;
        }
        // The flows of `http` are companions, one for each thread: its connections are those of the spec.
        let waiting = u64::from(sample.spec.flows).saturating_mul(depth);
        let expected = side
            .elapsed_ns
            .as_u64()
            .saturating_mul(waiting)
            .checked_div(operations.completed)?;
        let corrected = operations.latency.corrected(Nanoseconds::new(expected));
        whole.get_or_insert_default().add(&corrected);
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
        all.gaps = match (all.gaps, received.gaps) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
        if let Some(delay) = &received.delay {
            all.delay.get_or_insert_default().add(delay);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn the_flags_of_a_trial_are_in_one_order_when_measured_and_when_stored() {
        let (near, far) = build::veth_pair();
        let ends = PathView {
            local: &near,
            remote: &far,
            local_nic: &near.nics[0].name,
            remote_nic: &far.nics[0].name,
            ipv6: false,
        };
        let mut sample = build::sample().build();
        sample.spec.duration_ns = Nanoseconds::from_millis(200);
        sample.flags = vec![Flag::OtherLoad];
        let measured = Measured::between(ends, sample, None).sample;
        assert!(measured.flags.contains(&Flag::NotSettled), "{measured:?}");
        let stored = Measured::between(ends, measured.clone(), None).sample;
        assert_eq!(measured.flags, stored.flags);
    }
}
