//! The picture of a trial, from the outages of its flows and the events of both hosts.

use linerate_analysis::failover::timeline::{
    Lane, Mark, MarkKind, Span, SpanKind, Timeline, gathered,
};
use linerate_model::end::End;
use linerate_model::failover::events::{BfdSession, Change, HostEvents, VrrpSeries};
use linerate_model::failover::{FlowOutages, Joined, Trigger};
use linerate_model::sample::Sample;
use linerate_model::units::Nanoseconds;

use super::document::{ClockResult, WorkloadWord};
use super::event::Events;
use super::judge::Part;

/// The picture of a trial, of which `parts` are the outages by this host's clock.
pub(super) fn timeline<'a>(
    (sample, events): (&Sample, &Events),
    clock: &ClockResult,
    parts: impl Iterator<Item = (&'a Part<'a>, &'a (Vec<FlowOutages>, Joined))> + Clone,
) -> Timeline {
    let length_ns = sample.spec.duration_ns;
    let origin = origin(clock, parts.clone().map(|(part, _)| part));
    let lanes = parts.map(|(part, (flows, _))| Lane {
        direction: part.direction,
        workload: WorkloadWord::from(part.workload).word(),
        flows: flows.iter().map(|flow| spans(flow, origin)).collect(),
    });
    Timeline {
        lanes: lanes.collect(),
        marks: gathered(marks((sample, events), clock, origin, length_ns), length_ns),
        length_ns,
    }
}

/// When the first packet was sent, by this host's clock.
fn origin<'a>(clock: &ClockResult, parts: impl Iterator<Item = &'a Part<'a>>) -> Nanoseconds {
    let firsts = parts.flat_map(|part| {
        let offset = part.sender_offset(clock);
        let senders = part.pairs.iter().filter_map(|pair| pair.sender);
        senders.filter_map(move |sender| {
            let first = sender.departures.as_ref()?.first_ns?;
            Some(first.as_u64().saturating_add_signed(offset))
        })
    });
    Nanoseconds::new(firsts.min().unwrap_or_default())
}

fn since(origin: Nanoseconds, time: Nanoseconds) -> Nanoseconds {
    Nanoseconds::new(time.as_u64().saturating_sub(origin.as_u64()))
}

fn spans(flow: &FlowOutages, origin: Nanoseconds) -> Vec<Span> {
    let outages = flow.outages.iter();
    let spans = outages.map(|outage| Span {
        from_ns: since(origin, outage.from_ns),
        to_ns: since(origin, outage.to_ns),
        kind: if outage.lost > 0 {
            SpanKind::Lost
        } else {
            SpanKind::Late
        },
    });
    spans.collect()
}

/// The commands, and what each host saw, as far as its clock could be compared.
fn marks(
    (sample, events): (&Sample, &Events),
    clock: &ClockResult,
    origin: Nanoseconds,
    length: Nanoseconds,
) -> Vec<Mark> {
    let mut all = Vec::new();
    for command in events.all() {
        let (kind, word) = match command.trigger {
            Trigger::Return => (MarkKind::Return, "return"),
            _ => (MarkKind::Failure, "failure"),
        };
        let whose = match command.end {
            End::Local => "",
            End::Remote => " at the peer",
        };
        for (at, verb) in [(command.start_ns, "started"), (command.end_ns, "ended")] {
            all.push(Mark {
                at_ns: since(origin, at),
                kind,
                end: None,
                what: format!("{word}{whose}: `{}` {verb}", command.command),
                count: 1,
            });
        }
    }
    let ends = [
        (End::Local, &sample.local.events, Some(0)),
        (End::Remote, &sample.remote.events, clock.offset_ns),
    ];
    for (end, events, offset) in ends {
        let (Some(events), Some(offset)) = (events.as_deref(), offset) else {
            continue;
        };
        for (at, kind, what) in seen(events) {
            let at = at.as_u64().saturating_add_signed(offset);
            // A change before the trial is none of the trial's.
            let at = at.checked_sub(origin.as_u64());
            if let Some(at) = at.filter(|at| *at <= length.as_u64()) {
                all.push(Mark {
                    at_ns: Nanoseconds::new(at),
                    kind,
                    end: Some(end),
                    what,
                    count: 1,
                });
            }
        }
    }
    all
}

/// What a host saw, with its own time.
fn seen(events: &HostEvents) -> Vec<(Nanoseconds, MarkKind, String)> {
    let changes = events.events.iter().filter_map(|event| {
        let (kind, what) = in_words(&event.change, events)?;
        Some((event.at_ns, kind, what))
    });
    let mut all: Vec<_> = changes.collect();
    for (at, new) in events.vrrp.iter().enumerate() {
        let same = |one: &&VrrpSeries| {
            (&one.nic, one.router_id, one.source.is_ipv4())
                == (&new.nic, new.router_id, new.source.is_ipv4())
        };
        let earlier = events.vrrp[..at].iter().rfind(same);
        if earlier.is_some_and(|old| old.source != new.source) {
            let (source, id) = (new.source, new.router_id);
            let what = format!("{source} advertises VRRP virtual router {id}");
            all.push((new.first_ns, MarkKind::Vrrp, what));
        }
    }
    all
}

fn in_words(change: &Change, events: &HostEvents) -> Option<(MarkKind, String)> {
    Some(match change {
        Change::Link(link) => {
            // Other interfaces come and go with containers.
            if !events.nics.is_empty() && !events.nics.contains(&link.nic) {
                return None;
            }
            let state = if link.carries() {
                "carrier"
            } else {
                "no carrier"
            };
            (MarkKind::Carrier, format!("{}: {state}", link.nic))
        }
        Change::BondMember(member) => {
            let state = if member.carries() {
                "carries traffic"
            } else {
                "carries no traffic"
            };
            let (bond, nic) = (&member.bond, &member.nic);
            (MarkKind::BondMember, format!("{bond}: {nic} {state}"))
        }
        Change::Route(route) => {
            let verb = if route.removed { "removed" } else { "changed" };
            let (protocol, to) = (&route.protocol, &route.destination);
            (MarkKind::Routes, format!("{protocol} route to {to} {verb}"))
        }
        Change::NextHop(object) => {
            let verb = if object.removed { "removed" } else { "changed" };
            (MarkKind::Routes, format!("nexthop {} {verb}", object.id))
        }
        Change::Bucket { group, .. } => (
            MarkKind::Routes,
            format!("buckets of nexthop group {group} moved"),
        ),
        Change::Bfd(session) => (MarkKind::Bfd, bfd_session(session)),
        Change::Neighbor {
            address,
            state,
            removed,
            ..
        } => {
            let state = if *removed { "removed" } else { state };
            (MarkKind::Neighbor, format!("neighbor {address}: {state}"))
        }
        Change::Arp {
            address,
            mac,
            gratuitous: true,
            ..
        } => (
            MarkKind::Gateway,
            format!("gratuitous ARP: {address} is at {mac}"),
        ),
        Change::NeighborAdvertisement {
            address,
            mac,
            solicited: false,
            ..
        } => (
            MarkKind::Gateway,
            format!("unsolicited neighbor advertisement: {address} is at {mac}"),
        ),
        Change::Address { .. } | Change::Arp { .. } | Change::NeighborAdvertisement { .. } => {
            return None;
        }
    })
}

/// A session, its state and why.
fn bfd_session(session: &BfdSession) -> String {
    let dev = session.nic.iter().map(|nic| format!(" on {nic}"));
    let dev: String = dev.collect();
    let why = match session.diagnostic.as_str() {
        "" | "ok" => String::new(),
        why => format!(" ({why})"),
    };
    format!("BFD {}{dev}: {}{why}", session.peer, session.state)
}
