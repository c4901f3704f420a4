//! From the records of a trial to its interruptions, for each direction and workload.

use std::collections::BTreeMap;

use linerate_analysis::failover::FailoverTrial;
use linerate_model::end::End;
use linerate_model::failover::{
    Cluster, Departures, FlowOutages, Joined, ProbeRecord, SendError, SendGap, Trigger,
    TriggerTimes, interrupted_at_once, joined, outages,
};
use linerate_model::sample::{FlowRecord, Role, Sample, SideSample};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{Answers, Direction, Probe, TrialSpec, Workload};
use linerate_runtime::cli::FailoverWorkload;
use rustix::io::Errno;

use super::document::{
    ClockResult, Errors, EventResult, Gaps, HostResult, LatencyResult, NotRecorded, PartResult,
    TrialResult, TriggerResult, WorkloadWord,
};
use super::event::{Event, Events};
use super::held_up::Evidence;
use super::latency::latency;
use super::next_hops;
use super::step_of;
use super::tcp;
use super::timeline::timeline;

/// A flow with the record of its sender and that of its receiver.
pub(super) struct Pair<'a> {
    pub(super) flow: u32,
    pub(super) sender: Option<&'a ProbeRecord>,
    pub(super) receiver: &'a ProbeRecord,
}

/// All flows of one direction and workload.
pub(super) struct Part<'a> {
    pub(super) direction: Direction,
    pub(super) workload: FailoverWorkload,
    pub(super) step: Nanoseconds,
    pub(super) pairs: Vec<Pair<'a>>,
}

/// What a trial shows.
pub(super) fn judge(trial: &FailoverTrial) -> TrialResult {
    let sample = &trial.sample;
    let forward = sides(&sample.local, &sample.remote);
    let reverse = sides(&sample.remote, &sample.local);
    let clock = clock(&forward, &reverse);
    let commands = (&sample.local.commands, &sample.remote.commands);
    let events = Events::new(commands.0, commands.1, clock.offset_ns);
    let times = events.triggers();
    let evidence = Evidence::of(sample, &clock, &times);
    let parts = all_parts(&sample.spec, forward, reverse);
    let joined: Vec<(Vec<FlowOutages>, Joined)> = parts
        .iter()
        .map(|part| joined_of(part, &clock, &times))
        .collect();
    let tcp = |direction| {
        let mut all = parts.iter().zip(&joined);
        let own = all.find(|(part, _)| {
            (part.direction, part.workload) == (direction, FailoverWorkload::Tcp)
        });
        own.map(|(_, (_, joined))| joined)
    };
    let result = |(part, (flows, joined)): (&Part<'_>, &(Vec<FlowOutages>, Joined))| {
        let of_trigger = |trigger| {
            let held_up = (part.workload == FailoverWorkload::Udp)
                .then(|| {
                    let tcp = tcp(part.direction);
                    evidence.verdict(part.direction, (joined, tcp), trigger, part.step)
                })
                .flatten();
            let at_once = interrupted_at_once(flows, part.step, &times, trigger);
            TriggerResult {
                held_up,
                by_next_hop: next_hops::of_part(part, sample, flows, joined.longest(trigger)),
                throughput_min_share: share_left(at_once, flows.len()),
                latency: latency(part, (&clock, &times), joined, trigger),
                ..trigger_result(trigger, joined, event_of(trigger, &times), part.step)
            }
        };
        let mut all = Vec::new();
        if times.failure_ns.is_some() {
            all.push(of_trigger(Trigger::Failure));
        }
        if times.return_ns.is_some() {
            all.push(of_trigger(Trigger::Return));
        }
        // Without an event all of it is no event's; beside one, only what there is.
        if times.failure_ns.is_none() || joined.of(Trigger::NoEvent).next().is_some() {
            all.push(of_trigger(Trigger::NoEvent));
        }
        part_result(part, flows, &clock, all)
    };
    let results = parts.iter().zip(&joined).map(result).collect();
    let timeline = timeline((sample, &events), &clock, parts.iter().zip(&joined));
    TrialResult {
        cut_short: trial.is_cut_short(),
        clock,
        events: events.all().iter().map(event_result).collect(),
        not_recorded: not_recorded(sample),
        parts: results,
        marks: timeline.marks.clone(),
        timeline,
    }
}

/// The share of `flows` that is left when `interrupted` of them are.
fn share_left(interrupted: usize, flows: usize) -> f64 {
    let real = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if flows == 0 {
        return 1.0;
    }
    1.0 - real(interrupted.min(flows)) / real(flows)
}

/// The outages of each flow of a part by this host's clock, and those of all of them together.
fn joined_of(
    part: &Part<'_>,
    clock: &ClockResult,
    times: &TriggerTimes,
) -> (Vec<FlowOutages>, Joined) {
    let offset = part.sender_offset(clock);
    let flows = part.pairs.iter();
    let flows = flows.map(|pair| outages_of(pair, part.workload).on_clock(offset));
    let flows: Vec<FlowOutages> = flows.collect();
    let joined = joined(&flows, part.step, times);
    (flows, joined)
}

impl Part<'_> {
    /// How far this host's clock, which is that of the events, is ahead of the senders'.
    pub(super) fn sender_offset(&self, clock: &ClockResult) -> i64 {
        match self.direction {
            Direction::Forward => 0,
            _ => clock.offset_ns.unwrap_or(0),
        }
    }
}

fn not_recorded(sample: &Sample) -> Vec<NotRecorded> {
    let ends = [(End::Local, &sample.local), (End::Remote, &sample.remote)];
    let all = ends.into_iter().flat_map(|(end, side)| {
        let gaps = side.events.iter().flat_map(|events| &events.gaps);
        gaps.map(move |gap| NotRecorded {
            end,
            path: gap.path.clone(),
            reason: gap.reason.clone(),
        })
    });
    all.collect()
}

fn event_of(trigger: Trigger, times: &TriggerTimes) -> Option<Nanoseconds> {
    match trigger {
        Trigger::Failure => times.failure_ns,
        Trigger::Return => times.return_ns,
        Trigger::NoEvent => None,
    }
}

fn event_result(event: &Event) -> EventResult {
    let took = event
        .end_ns
        .as_u64()
        .saturating_sub(event.start_ns.as_u64());
    EventResult {
        end: event.end,
        trigger: event.trigger.into(),
        command: event.command.clone(),
        start_ns: event.start_ns,
        took_ns: Nanoseconds::new(took),
        exit_code: event.exit_code,
        output: event.output.clone(),
    }
}

/// The flows that `from` sends to `to`.
fn sides<'a>(from: &'a SideSample, to: &'a SideSample) -> Vec<Pair<'a>> {
    let probe = |flow: &'a FlowRecord| flow.datagrams.as_ref()?.probe.as_deref();
    let mut senders: BTreeMap<u32, &ProbeRecord> = from
        .senders()
        .filter_map(|flow| Some((flow.flow, probe(flow)?)))
        .collect();
    to.flows
        .iter()
        .filter(|flow| flow.role == Role::Receiver)
        .filter_map(|flow| {
            Some(Pair {
                flow: flow.flow,
                sender: senders.remove(&flow.flow),
                receiver: probe(flow)?,
            })
        })
        .collect()
}

/// Each direction by each workload that the trial had.
fn all_parts<'a>(
    spec: &TrialSpec,
    forward: Vec<Pair<'a>>,
    reverse: Vec<Pair<'a>>,
) -> Vec<Part<'a>> {
    let probe = match &spec.workload {
        Workload::Udp(udp) => udp.probe.as_ref(),
        _ => None,
    };
    let Some(probe) = probe else {
        return Vec::new();
    };
    let connections = connections(&forward, probe);
    let mut all = Vec::new();
    for (direction, pairs) in [(Direction::Forward, forward), (Direction::Reverse, reverse)] {
        let messages: Vec<Pair<'a>> = pairs
            .iter()
            .filter_map(|pair| {
                Some(Pair {
                    flow: pair.flow,
                    sender: pair.sender.and_then(|sender| sender.messages.as_deref()),
                    receiver: pair.receiver.messages.as_deref()?,
                })
            })
            .collect();
        let answers = beside(&pairs, |sender| sender.answers.as_deref());
        let writes = beside(&pairs, |sender| sender.writes.as_deref());
        let step = step_of(spec);
        let has_messages = probe.message_flows > 0;
        let writes = (probe.write_flows > 0).then_some(writes);
        let messages = (has_messages && probe.answers != Answers::Only).then_some(messages);
        let answers = (has_messages && probe.answers != Answers::None).then_some(answers);
        for (workload, step, pairs) in [
            (FailoverWorkload::Udp, step, Some(pairs)),
            (FailoverWorkload::Tcp, probe.message_ns, messages),
            (FailoverWorkload::Rr, probe.message_ns, answers),
            (FailoverWorkload::Verbs, probe.message_ns, writes),
        ] {
            all.extend(pairs.map(|pairs| Part {
                direction,
                workload,
                step,
                pairs,
            }));
        }
    }
    all.extend(connections);
    all
}

/// What the senders record of both ends.
fn beside<'a>(
    pairs: &[Pair<'a>],
    of: impl Fn(&'a ProbeRecord) -> Option<&'a ProbeRecord>,
) -> Vec<Pair<'a>> {
    let all = pairs.iter().filter_map(|pair| {
        let record = of(pair.sender?)?;
        Some(Pair {
            flow: pair.flow,
            sender: Some(record),
            receiver: record,
        })
    });
    all.collect()
}

/// The new connections: the end that made them has both records.
fn connections<'a>(forward: &[Pair<'a>], probe: &Probe) -> Option<Part<'a>> {
    let record = forward
        .iter()
        .find_map(|pair| pair.sender?.connections.as_deref())?;
    Some(Part {
        direction: Direction::Forward,
        workload: FailoverWorkload::Connect,
        step: Nanoseconds::new(1_000_000_000 / u64::from(probe.connects_per_s.max(1))),
        pairs: vec![Pair {
            flow: 0,
            sender: Some(record),
            receiver: record,
        }],
    })
}

fn outages_of(pair: &Pair<'_>, workload: FailoverWorkload) -> FlowOutages {
    let mut outages = outages(pair.sender, pair.receiver);
    let in_order = [
        FailoverWorkload::Tcp,
        FailoverWorkload::Rr,
        FailoverWorkload::Verbs,
    ];
    if in_order.contains(&workload) {
        // A message waits for those before it: the stall ends when the first late one arrives, and those that were sent
        // shortly before took less than what is late.
        for outage in &mut outages {
            outage.to_ns = outage.to_ns.max(outage.resumed_ns.unwrap_or_default());
        }
    }
    FlowOutages {
        flow: pair.flow,
        outages,
    }
}

/// How far this host's clock is ahead of the peer's: half of the difference between the fastest packets of the two
/// directions, known to within half of their sum (RFC 5905, section 8, of the fastest exchange).
fn clock(forward: &[Pair<'_>], reverse: &[Pair<'_>]) -> ClockResult {
    let arrivals = |pairs: &[Pair<'_>]| -> (Option<i64>, bool) {
        let all = pairs
            .iter()
            .filter_map(|pair| pair.receiver.arrivals.as_ref());
        let fastest = all.clone().filter_map(|one| one.transit_min_ns).min();
        (
            fastest,
            all.clone().count() > 0 && all.into_iter().all(|one| one.one_clock),
        )
    };
    let ((there, one_clock), (back, _)) = (arrivals(forward), arrivals(reverse));
    if one_clock {
        return ClockResult {
            is_shared: true,
            offset_ns: Some(0),
            within_ns: Some(Nanoseconds::new(0)),
        };
    }
    let both = there.zip(back);
    let within = both.map(|(there, back)| there.saturating_add(back).unsigned_abs() / 2);
    ClockResult {
        is_shared: false,
        offset_ns: both.map(|(there, back)| back.saturating_sub(there) / 2),
        within_ns: within.map(Nanoseconds::new),
    }
}

/// The interruptions of one trigger.
fn trigger_result(
    trigger: Trigger,
    joined: &Joined,
    event: Option<Nanoseconds>,
    step: Nanoseconds,
) -> TriggerResult {
    let clusters: Vec<&Cluster> = joined.of(trigger).collect();
    let longest = joined.longest(trigger);
    let total: u64 = clusters
        .iter()
        .map(|one| {
            let between = one.to_ns.as_u64().saturating_sub(one.from_ns.as_u64());
            between.saturating_sub(step.as_u64())
        })
        .sum();
    let since = |time: Nanoseconds| -> Option<i64> {
        let (time, event) = (i64::try_from(time.as_u64()), i64::try_from(event?.as_u64()));
        Some(time.ok()?.saturating_sub(event.ok()?))
    };
    let common = clusters.iter().filter_map(|one| one.common).max();
    TriggerResult {
        trigger: trigger.into(),
        gaps: Gaps {
            count: clusters.len() as u64,
            longest_ns: longest.map(|one| one.longest_ns).unwrap_or_default(),
            total_ns: Nanoseconds::new(total),
        },
        lost: clusters.iter().map(|one| one.lost).sum(),
        late: clusters.iter().map(|one| one.late).sum(),
        flows_affected: longest.map_or(0, |one| one.flows),
        by_next_hop: None,
        all_flows_ns: common.map(|(length, _)| length),
        all_flows_within_ns: common.map(|(_, within)| within),
        first_affected_ns: clusters.first().and_then(|one| since(one.from_ns)),
        all_back_ns: clusters.last().and_then(|one| since(one.to_ns)),
        last_affected_ns: clusters.last().and_then(|one| {
            let last = if one.has_ended { step.as_u64() } else { 0 };
            let last = one.to_ns.as_u64().saturating_sub(last);
            since(Nanoseconds::new(last))
        }),
        is_over: clusters.iter().all(|one| one.has_ended),
        throughput_min_share: 1.0,
        latency: LatencyResult::default(),
        held_up: None,
    }
}

/// The whole trial of one direction and workload.
fn part_result(
    part: &Part<'_>,
    flows: &[FlowOutages],
    clock: &ClockResult,
    triggers: Vec<TriggerResult>,
) -> PartResult {
    let arrivals = || {
        let all = part.pairs.iter();
        all.filter_map(|pair| pair.receiver.arrivals.as_ref())
    };
    let departures = || {
        let all = part.pairs.iter().filter_map(|pair| pair.sender);
        all.filter_map(|sender| sender.departures.as_ref())
    };
    let outages = || flows.iter().flat_map(|flow| &flow.outages);
    let gaps = Gaps {
        count: triggers.iter().map(|trigger| trigger.gaps.count).sum(),
        longest_ns: triggers
            .iter()
            .map(|trigger| trigger.gaps.longest_ns)
            .max()
            .unwrap_or_default(),
        total_ns: Nanoseconds::new(
            triggers
                .iter()
                .map(|trigger| trigger.gaps.total_ns.as_u64())
                .sum(),
        ),
    };
    let longest_gap = departures().filter_map(|one| one.longest_gap);
    let stalls = arrivals().map(|one| one.stall);
    let drops: Option<u64> = arrivals().map(|one| one.socket_drops).sum();
    PartResult {
        direction: part.direction,
        workload: WorkloadWord::from(part.workload),
        flows: u32::try_from(part.pairs.len()).unwrap_or(u32::MAX),
        step_ns: part.step,
        sent: departures().map(|one| one.sent).sum(),
        received: arrivals().map(|one| one.received).sum(),
        gaps,
        lost: outages().map(|one| one.lost).sum(),
        late: outages().map(|one| one.late).sum(),
        duplicated: arrivals().map(|one| one.duplicated).sum(),
        reordered: arrivals().map(|one| one.reordered).sum(),
        unrecorded: arrivals().map(|one| one.unrecorded).sum(),
        triggers,
        hosts: HostResult {
            longest_send_gap_ns: longest_gap.map(SendGap::length).max(),
            skipped: departures().map(|one| one.skipped).sum(),
            longest_stall_ns: stalls.clone().map(|one| one.longest_ns).max(),
            stalls: stalls.map(|one| one.count).max().unwrap_or(0),
            socket_drops: drops,
            ignored: arrivals().map(|one| one.ignored).sum(),
            send_errors: errors(departures()),
        },
        tcp: tcp::of_part(part, clock),
    }
}

/// The packets that the sender's kernel refused, by the error's name.
fn errors<'a>(all: impl Iterator<Item = &'a Departures>) -> Vec<Errors> {
    let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
    for SendError { errno, count, .. } in all.flat_map(|one| &one.errors) {
        *counts.entry(*errno).or_default() += count;
    }
    counts
        .into_iter()
        .map(|(errno, count)| Errors {
            error: std::io::Error::from(Errno::from_raw_os_error(errno)).to_string(),
            count,
        })
        .collect()
}
