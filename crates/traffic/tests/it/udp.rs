//! Datagrams between two ends of ours: what both record, compared with each other.

use std::net::Ipv6Addr;

use linerate_model::sample::{Datagrams, FlowRecord, SideSample};
use linerate_model::units::{BitRate, Bytes};
use linerate_model::workload::{DatagramBatch, Direction, TrialSpec, Udp, Waiting, Workload};
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::{Connected, Listening};

use crate::both_ends::{
    TOKEN, abort, check_record, hang_guard, listen, run_against, run_both, spec as any_spec,
};

pub(crate) const BATCHES: [DatagramBatch; 3] = [
    DatagramBatch::Single,
    DatagramBatch::Mmsg,
    DatagramBatch::Gso,
];

/// A trial of datagrams of `datagram_bytes`, `rate` of each flow.
pub(crate) fn spec(
    (flows, direction): (u32, Direction),
    datagram_bytes: u64,
    rate: Option<BitRate>,
    batch: DatagramBatch,
) -> TrialSpec {
    TrialSpec {
        workload: Workload::Udp(Udp {
            datagram_bytes: Bytes::new(datagram_bytes),
            rate_bit_per_s: rate,
            batch,
            probe: None,
        }),
        ..any_spec(flows, direction)
    }
}

/// Some 30 datagrams of 1000 bytes in the time of a trial: the minimum receive buffer holds all of them.
fn slow(flows: u32, direction: Direction, batch: DatagramBatch) -> TrialSpec {
    let rate = BitRate::from_mbit_per_s(2);
    spec((flows, direction), 1000, Some(rate), batch)
}

fn datagrams(flow: &FlowRecord) -> &Datagrams {
    flow.datagrams.as_ref().expect("this is the workload udp")
}

/// Checks what holds for every trial of datagrams, whatever was lost.
fn check(spec: &TrialSpec, (near, far): (SideSample, SideSample)) -> Vec<(FlowRecord, FlowRecord)> {
    let Workload::Udp(udp) = &spec.workload else {
        panic!("this is the workload udp")
    };
    let all = near.flows.into_iter().chain(far.flows);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        all.partition(|flow| flow.role == linerate_model::sample::Role::Sender);
    let by_number = |mut flows: Vec<FlowRecord>| {
        flows.sort_by_key(|flow| flow.flow);
        flows
    };
    let pairs: Vec<_> = by_number(senders)
        .into_iter()
        .zip(by_number(receivers))
        .collect();
    assert!(!pairs.is_empty());
    for (sender, receiver) in &pairs {
        assert_eq!(sender.flow, receiver.flow);
        for flow in [sender, receiver] {
            check_record(flow, spec);
            let count = datagrams(flow).count;
            assert_eq!(flow.total().as_u64(), count * udp.datagram_bytes.as_u64());
            assert_eq!(datagrams(flow).batch, Some(udp.batch));
            assert!(flow.tcp.value().is_none(), "UDP has no account of TCP");
        }
        let (sent, came) = (datagrams(sender), datagrams(receiver));
        assert_eq!(sent.count, came.count - came.duplicated + came.lost);
        assert!(came.socket_drops.is_some(), "this kernel tells");
    }
    // Not each of them: on a busy machine a thread may get no CPU in the time of so short a trial.
    assert!(
        pairs
            .iter()
            .any(|(_, receiver)| datagrams(receiver).count > 0)
    );
    pairs
}

/// Checks that nothing was lost, moved or doubled, and that no sender was ahead of its schedule.
fn check_whole(spec: &TrialSpec, both: (SideSample, SideSample)) {
    for (sender, receiver) in check(spec, both) {
        let (sent, came) = (datagrams(&sender), datagrams(&receiver));
        assert_eq!(
            (came.count, came.lost, came.reordered, came.duplicated),
            (sent.count, 0, 0, 0)
        );
        let end = sender.at_ns.last().expect("the end is recorded");
        let planned = 2e6 * end.as_secs_f64() / 8000.0;
        assert!(u32::try_from(sent.count).is_ok_and(|sent| f64::from(sent) <= planned + 1.0));
        // Both ends are on one host, and in one time namespace.
        let delay = came.delay.as_ref().expect("one clock");
        assert!(delay.count() <= came.count);
    }
}

fn both(spec: &TrialSpec) -> (SideSample, SideSample) {
    let (near, far) = run_both(spec);
    (near.expect("the near end"), far.expect("the far end"))
}

#[test]
fn every_datagram_of_a_slow_flow_arrives_however_it_is_batched() {
    for batch in BATCHES {
        for direction in [Direction::Forward, Direction::Reverse] {
            let spec = slow(1, direction, batch);
            check_whole(&spec, both(&spec));
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn every_datagram_arrives_over_ipv6_too() {
    for batch in BATCHES {
        let spec = slow(2, Direction::Forward, batch);
        let listening = match Listening::open(&spec, TOKEN, "::1") {
            Ok(listening) => listening,
            Err(error @ TrafficError::NoSuchAddress { .. }) => {
                eprintln!("SKIP: no IPv6 here: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let address = (Ipv6Addr::LOCALHOST, listening.port()).into();
        let (near, far) = run_against(&spec, listening, address, &abort());
        let both = (near.expect("the near end"), far.expect("the far end"));
        check_whole(&spec, both);
    }
}

#[test]
fn datagrams_go_both_ways_at_once_and_each_way_has_its_account() {
    let spec = slow(3, Direction::Bidirectional, DatagramBatch::Gso);
    let both = both(&spec);
    assert_eq!((both.0.flows.len(), both.1.flows.len()), (6, 6));
    check_whole(&spec, both);
}

#[test]
fn every_way_of_waiting_serves_one_flow_and_several_on_a_thread() {
    for waiting in [Waiting::Blocking, Waiting::Epoll, Waiting::Spin] {
        for (flows, threads) in [(1, 1), (5, 2)] {
            let spec = TrialSpec {
                waiting,
                threads: Some(threads),
                ..slow(flows, Direction::Forward, DatagramBatch::Mmsg)
            };
            check_whole(&spec, both(&spec));
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn busy_polling_serves_them_where_this_user_may() {
    let spec = TrialSpec {
        waiting: Waiting::BusyPoll(20),
        ..slow(2, Direction::Forward, DatagramBatch::Gso)
    };
    match run_both(&spec) {
        (Err(TrafficError::Kernel { source, .. }), _)
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            eprintln!("SKIP: SO_BUSY_POLL needs CAP_NET_ADMIN here: {source}");
        }
        (near, far) => check_whole(
            &spec,
            (near.expect("the near end"), far.expect("the far end")),
        ),
    }
}

#[test]
fn as_fast_as_it_goes_what_did_not_arrive_is_counted_as_lost() {
    for batch in BATCHES {
        for (flows, size) in [(1, 1448), (3, 24), (1, 65_507)] {
            let spec = TrialSpec {
                threads: Some(1),
                ..spec((flows, Direction::Forward), size, None, batch)
            };
            for (_, receiver) in check(&spec, both(&spec)) {
                // The loopback neither reorders nor doubles.
                let came = datagrams(&receiver);
                assert_eq!((came.reordered, came.duplicated), (0, 0));
            }
        }
    }
}

#[test]
fn more_flows_than_delays_are_kept_for_are_counted_all_the_same() {
    let spec = TrialSpec {
        threads: Some(2),
        ..spec(
            (300, Direction::Forward),
            100,
            Some(BitRate::from_bit_per_s(50_000)),
            DatagramBatch::Mmsg,
        )
    };
    let pairs = check(&spec, both(&spec));
    assert_eq!(pairs.len(), 300);
    assert!(
        pairs
            .iter()
            .all(|(_, receiver)| datagrams(receiver).delay.is_none())
    );
}

#[test]
fn io_uring_is_refused_by_its_name() {
    for waiting in [Waiting::Uring, Waiting::UringSqpoll] {
        let (near, far) = run_both(&TrialSpec {
            waiting,
            ..slow(1, Direction::Forward, DatagramBatch::Gso)
        });
        for end in [near, far] {
            let error = end.expect_err("it is not built");
            let named =
                matches!(&error, TrafficError::NotSupported { what, .. } if what.contains("uring"));
            let gone = matches!(error, TrafficError::PeerClosed { .. });
            assert!(named || gone, "{error}");
        }
    }
}

#[test]
fn a_flow_without_a_rate_or_a_datagram_without_a_header_is_refused() {
    let good = slow(1, Direction::Forward, DatagramBatch::Gso);
    let (_listening, address) = listen(&good);
    let hostile = [
        spec((1, Direction::Forward), 23, None, DatagramBatch::Gso),
        spec((1, Direction::Forward), 65_508, None, DatagramBatch::Gso),
        spec(
            (1, Direction::Forward),
            100,
            Some(BitRate::default()),
            DatagramBatch::Gso,
        ),
    ];
    for spec in hostile {
        let outcome = Connected::connect(&spec, address, TOKEN, hang_guard(), &abort());
        assert!(matches!(outcome, Err(TrafficError::Spec(_))), "{outcome:?}");
    }
}
