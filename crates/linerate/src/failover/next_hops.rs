//! The flows that an interruption affected, by their next hop.

use std::collections::BTreeSet;

use linerate_model::failover::events::HostEvents;
use linerate_model::failover::{Cluster, FlowOutages};
use linerate_model::sample::Sample;
use linerate_model::workload::Direction;
use linerate_runtime::cli::FailoverWorkload;

use super::document::HopResult;
use super::judge::Part;

/// The flows that an interruption affected in a part of a trial, by next hop; only datagrams have theirs recorded.
pub(super) fn of_part(
    part: &Part<'_>,
    sample: &Sample,
    flows: &[FlowOutages],
    interruption: Option<&Cluster>,
) -> Option<Vec<HopResult>> {
    let sender = match part.direction {
        Direction::Reverse => &sample.remote,
        _ => &sample.local,
    };
    (part.workload == FailoverWorkload::Udp)
        .then(|| by_next_hop(sender.events.as_deref(), flows, interruption))
        .flatten()
}

/// How many flows of each next hop of the sender an interruption affected; none if no next hop is known.
fn by_next_hop(
    sender: Option<&HostEvents>,
    flows: &[FlowOutages],
    interruption: Option<&Cluster>,
) -> Option<Vec<HopResult>> {
    let hops = sender.map(|events| &events.flow_hops)?;
    let affected: BTreeSet<u32> = interruption
        .into_iter()
        .flat_map(|one| {
            let is_in = |flow: &&FlowOutages| {
                let mut outages = flow.outages.iter();
                outages.any(|own| own.from_ns <= one.to_ns && own.to_ns >= one.from_ns)
            };
            flows.iter().filter(is_in).map(|flow| flow.flow)
        })
        .collect();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let results = hops.iter().map(|own| HopResult {
        interface: own.hop.nic.clone(),
        gateway: own.hop.gateway,
        flows: count(own.flows.len()),
        affected: count(
            own.flows
                .iter()
                .filter(|flow| affected.contains(flow))
                .count(),
        ),
    });
    (!hops.is_empty()).then(|| results.collect())
}

/// In words: `37 of 37 flows via 10.205.1.2 dev eth0, 0 of 27 via ...`; none of a single next hop.
pub(super) fn in_words(hops: &[HopResult]) -> Option<String> {
    let words = hops.iter().map(|hop| {
        let mut text = format!("{} of {}", hop.affected, hop.flows);
        if let Some(gateway) = hop.gateway {
            text = format!("{text} via {gateway}");
        }
        match &hop.interface {
            Some(nic) => format!("{text} dev {nic}"),
            None => text,
        }
    });
    (hops.len() > 1).then(|| words.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use linerate_model::failover::events::{Hop, HopFlows};
    use linerate_model::failover::{Outage, Trigger};
    use linerate_model::units::Nanoseconds;

    use super::*;

    fn cluster(from: u64, to: u64, flows: u32) -> Cluster {
        Cluster {
            trigger: Trigger::Failure,
            from_ns: Nanoseconds::new(from),
            to_ns: Nanoseconds::new(to),
            flows,
            longest_ns: Nanoseconds::new(to - from),
            common: None,
            lost: 1,
            late: 0,
            has_ended: true,
        }
    }

    fn flow(flow: u32, outages: &[(u64, u64)]) -> FlowOutages {
        let outage = |&(from, to): &(u64, u64)| Outage {
            from_ns: Nanoseconds::new(from),
            to_ns: Nanoseconds::new(to),
            has_ended: true,
            lost: 1,
            late: 0,
            resumed_ns: None,
            worst_ns: None,
        };
        FlowOutages {
            flow,
            outages: outages.iter().map(outage).collect(),
        }
    }

    fn hop(last: u8, flows: &[u32]) -> HopFlows {
        HopFlows {
            hop: Hop {
                nic: "eth0".parse().ok(),
                gateway: Some([10, 0, 0, last].into()),
                dead: false,
            },
            flows: flows.to_vec(),
        }
    }

    #[test]
    fn flows_of_an_interruption_are_counted_by_their_next_hop() {
        let events = HostEvents {
            flow_hops: vec![hop(1, &[0, 2]), hop(2, &[1, 3])],
            ..HostEvents::default()
        };
        // The short interruption of flow 3 is another one.
        let flows = [
            flow(0, &[(10, 20)]),
            flow(1, &[]),
            flow(2, &[(15, 25)]),
            flow(3, &[(50, 52)]),
        ];
        let found = by_next_hop(Some(&events), &flows, Some(&cluster(10, 25, 2)));
        let found = found.expect("two next hops");
        assert_eq!(
            in_words(&found).as_deref(),
            Some("2 of 2 via 10.0.0.1 dev eth0, 0 of 2 via 10.0.0.2 dev eth0")
        );
    }

    #[test]
    fn without_a_known_next_hop_nothing_is_counted_and_a_single_one_needs_no_words() {
        let flows = [flow(0, &[(10, 20)])];
        let interruption = cluster(10, 20, 1);
        let none = by_next_hop(Some(&HostEvents::default()), &flows, Some(&interruption));
        let unknown = by_next_hop(None, &flows, Some(&interruption));
        assert_eq!((none, unknown), (None, None));
        let events = HostEvents {
            flow_hops: vec![hop(1, &[0])],
            ..HostEvents::default()
        };
        let one = by_next_hop(Some(&events), &flows, Some(&interruption)).expect("a next hop");
        assert_eq!((one[0].affected, in_words(&one)), (1, None));
    }
}
