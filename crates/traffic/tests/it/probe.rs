//! Probes between two ends of ours on the loopback, which loses nothing: what both record, compared with each other.

use linerate_model::failover::{ProbeRecord, outages};
use linerate_model::sample::{FlowRecord, Role, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Answers, Direction, Probe, TrialSpec, Udp, Workload};

use crate::both_ends::{run_both, spec as any_spec};

/// So long that no busy machine makes a packet late.
const LATE: Nanoseconds = Nanoseconds::from_millis(1_000);

fn spec(flows: u32) -> TrialSpec {
    let probe = Probe {
        late_ns: LATE,
        message_flows: 1,
        message_ns: Nanoseconds::from_millis(10),
        answers: Answers::Also,
        write_flows: 0,
        verbs: None,
        connects_per_s: 50,
    };
    TrialSpec {
        workload: Workload::Udp(Udp::probing(Bytes::new(64), 100, probe)),
        duration_ns: Nanoseconds::from_millis(1_400),
        threads: Some(1),
        ..any_spec(flows, Direction::Bidirectional)
    }
}

fn probe(flow: &FlowRecord) -> &ProbeRecord {
    let datagrams = flow.datagrams.as_ref().expect("this is the workload udp");
    datagrams.probe.as_deref().expect("a probe")
}

/// Checks a flow of which nothing was lost; how many packets there were.
fn whole(sender: &ProbeRecord, receiver: &ProbeRecord) -> u64 {
    assert_eq!(outages(Some(sender), receiver), []);
    let departures = sender.departures.as_ref().expect("the sender's");
    let arrivals = receiver.arrivals.as_ref().expect("the receiver's");
    assert_eq!(arrivals.received, departures.sent);
    let strange = (arrivals.duplicated, arrivals.reordered, arrivals.ignored);
    assert_eq!(strange, (0, 0, 0));
    assert!(arrivals.one_clock, "both ends are in one process");
    let fastest = arrivals.transit_min_ns.expect("packets arrived");
    assert!(fastest >= 0, "{fastest} ns: received before it was sent");
    departures.sent
}

#[test]
fn probes_messages_answers_and_connections_of_an_undisturbed_path_all_arrive() {
    let (near, far) = run_both(&spec(4));
    let (near, far) = (near.expect("the near end"), far.expect("the far end"));
    let of = |side: &SideSample, role: Role| -> Vec<FlowRecord> {
        let flows = side.flows.iter().filter(|flow| flow.role == role);
        flows.cloned().collect()
    };
    let mut messages = 0;
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (senders, receivers) = (of(from, Role::Sender), of(to, Role::Receiver));
        assert_eq!((senders.len(), receivers.len()), (4, 4));
        for (sender, receiver) in senders.iter().zip(&receivers) {
            assert_eq!(sender.flow, receiver.flow);
            let (sender, receiver) = (probe(sender), probe(receiver));
            assert!(whole(sender, receiver) > 0);
            if let Some(sent) = &sender.messages {
                let received = receiver.messages.as_deref().expect("messages");
                assert!(whole(sent, received) > 0);
                let answers = sender.answers.as_deref().expect("answers");
                assert!(whole(answers, answers) > 0);
                messages += 1;
            }
        }
    }
    assert_eq!(
        messages, 2,
        "one connection of each direction carries messages"
    );
    let connections: Vec<&ProbeRecord> = near
        .flows
        .iter()
        .filter_map(|flow| probe(flow).connections.as_deref())
        .collect();
    assert_eq!(connections.len(), 1);
    assert!(whole(connections[0], connections[0]) > 0);
}

#[test]
fn a_record_of_more_probes_than_the_trial_allows_is_refused() {
    let (near, _) = run_both(&spec(1));
    let mut near = near.expect("the near end");
    let spec = spec(1);
    assert_eq!(near.check(&spec), Ok(()));
    for flow in &mut near.flows {
        let record = flow.datagrams.as_mut().and_then(|one| one.probe.as_mut());
        let arrivals = record.and_then(|record| record.arrivals.as_mut());
        let Some(arrivals) = arrivals else { continue };
        let run = linerate_model::failover::NumberRun {
            first: 0,
            end: 1,
            kind: linerate_model::failover::RunKind::Missing,
            before: None,
            after: None,
            arrived: None,
            worst_ns: None,
        };
        arrivals.runs = vec![run; 100_000];
    }
    assert!(near.check(&spec).is_err());
}
