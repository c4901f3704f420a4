//! Messages to and fro between two ends of ours: every way of waiting, what both ends count, every
//! variation of the workloads.

use std::net::{Ipv6Addr, SocketAddr};

use linerate_model::sample::{Operations, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Pingpong, Rr, Transfer, TrialSpec, Waiting, Workload};
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::Listening;

use crate::both_ends::{Outcome, TOKEN, abort, run_against, run_both, spec};

pub(crate) const WAYS: [Waiting; 6] = [
    Waiting::Blocking,
    Waiting::Epoll,
    Waiting::Spin,
    Waiting::BusyPoll(20),
    Waiting::Uring,
    Waiting::UringSqpoll,
];

pub(crate) fn rr(request: u64, response: u64) -> Rr {
    Rr {
        request_bytes: Bytes::new(request),
        response_bytes: Bytes::new(response),
        depth: 1,
        connect_each: false,
        rate_per_s: None,
    }
}

/// `flows` flows on one thread at each end.
fn exchange(workload: Workload, waiting: Waiting, flows: u32) -> TrialSpec {
    TrialSpec {
        workload,
        waiting,
        threads: Some(1),
        ..spec(flows, Direction::Forward)
    }
}

fn rr_spec(rr: Rr, waiting: Waiting, flows: u32) -> TrialSpec {
    exchange(Workload::Rr(rr), waiting, flows)
}

/// Both records, or `None` with a message, if this machine does not support the waiting mode.
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn both(spec: &TrialSpec, outcomes: (Outcome, Outcome)) -> Option<(SideSample, SideSample)> {
    match outcomes {
        (Err(error @ TrafficError::NotSupported { .. }), _)
        | (_, Err(error @ TrafficError::NotSupported { .. })) => {
            eprintln!("SKIP: {} here: {error}", spec.waiting);
            None
        }
        (near, far) => Some((near.expect("the near end"), far.expect("the far end"))),
    }
}

fn asked(side: &SideSample) -> &Operations {
    side.operations.as_ref().expect("the end that asks")
}

/// Runs `spec` and checks what must hold for every exchange; (asking end, answering end).
fn run(spec: &TrialSpec) -> Option<(SideSample, SideSample)> {
    let (near, far) = both(spec, run_both(spec))?;
    check(&near, &far);
    Some((near, far))
}

/// Whether this machine supports the waiting mode; if not, a message is printed.
pub(crate) fn is_there(waiting: Waiting) -> bool {
    run(&rr_spec(rr(1, 1), waiting, 1)).is_some()
}

fn check(near: &SideSample, far: &SideSample) {
    assert_eq!(near.flows.len(), far.flows.len());
    for (here, there) in near.flows.iter().zip(&far.flows) {
        assert_eq!(here.total(), there.total(), "flow {}", here.flow);
    }
    for operations in near.operations.iter().chain(&far.operations) {
        assert!(operations.completed > 0, "something was exchanged");
        let of_threads: u64 = operations.per_thread.iter().sum();
        assert_eq!(of_threads, operations.completed);
        let steps = &operations.steps;
        let last = steps.last().expect("the end is a step");
        assert_eq!(last.completed, operations.completed);
        let ascends = |two: &[linerate_model::sample::Step]| two[0].completed <= two[1].completed;
        assert!(steps.windows(2).all(ascends), "{steps:?}");
    }
}

fn total(side: &SideSample) -> u64 {
    side.flows.iter().map(|flow| flow.total().as_u64()).sum()
}

#[test]
fn requests_and_responses_count_the_same_at_both_ends_in_every_way_of_waiting() {
    for waiting in WAYS {
        for flows in [1, 3] {
            let spec = rr_spec(rr(64, 151), waiting, flows);
            let Some((near, far)) = run(&spec) else {
                continue;
            };
            let operations = asked(&near);
            assert_eq!(operations.latency.count(), operations.completed);
            assert_eq!(total(&near), operations.completed * (64 + 151), "{waiting}");
            assert!(operations.service.is_none() && far.operations.is_none());
        }
    }
}

#[test]
fn two_hundred_connections_share_a_thread() {
    for waiting in [Waiting::Blocking, Waiting::Spin, Waiting::Uring] {
        let paced = Rr {
            rate_per_s: Some(20_000),
            ..rr(100, 100)
        };
        for rr in [rr(100, 100), paced] {
            let Some((near, _)) = run(&rr_spec(rr, waiting, 200)) else {
                continue;
            };
            assert_eq!(total(&near), asked(&near).completed * 200, "{waiting}");
        }
    }
}

#[test]
fn messages_larger_than_a_call_and_than_the_socket_buffers_arrive_whole() {
    for waiting in WAYS {
        let spec = rr_spec(rr(3_000_001, 700_003), waiting, 2);
        let Some((near, _)) = run(&spec) else {
            continue;
        };
        assert_eq!(
            total(&near),
            asked(&near).completed * 3_700_004,
            "{waiting}"
        );
    }
}

#[test]
fn pipelined_messages_that_fill_both_socket_buffers_block_nobody() {
    for waiting in WAYS {
        let deep = Rr {
            depth: 64,
            ..rr(300_000, 300_000)
        };
        let Some((near, _)) = run(&rr_spec(deep, waiting, 1)) else {
            continue;
        };
        assert_eq!(total(&near), asked(&near).completed * 600_000, "{waiting}");
    }
}

#[test]
fn an_open_loop_keeps_to_its_schedule_in_every_way_of_waiting() {
    for waiting in WAYS {
        for (flows, connect_each) in [(1, false), (3, false), (3, true)] {
            let paced = Rr {
                rate_per_s: Some(500),
                connect_each,
                ..rr(64, 64)
            };
            let spec = TrialSpec {
                duration_ns: Nanoseconds::from_millis(120),
                ..rr_spec(paced, waiting, flows)
            };
            let Some((near, _)) = run(&spec) else {
                continue;
            };
            let operations = asked(&near);
            // Requests 0 to 59 are due within 120 ms, none after is made, and none is forgotten.
            assert_eq!(operations.completed + operations.unanswered, 60);
            let service = operations.service.as_ref().expect("open loop has both");
            assert_eq!(service.count(), operations.latency.count());
            assert!(service.max() <= operations.latency.max());
        }
    }
}

#[test]
fn a_connection_for_each_request_counts_the_same_at_both_ends() {
    for waiting in &WAYS[..4] {
        for flows in [1, 3] {
            let each = Rr {
                connect_each: true,
                ..rr(44, 151)
            };
            let spec = rr_spec(each, *waiting, flows);
            let (near, _) = run(&spec).expect("nothing special is needed");
            assert_eq!(total(&near), asked(&near).completed * (44 + 151));
        }
    }
}

#[test]
fn a_connection_for_each_request_is_not_there_with_io_uring_and_says_so() {
    let each = Rr {
        connect_each: true,
        ..rr(1, 1)
    };
    let (near, far) = run_both(&rr_spec(each, Waiting::Uring, 1));
    assert!(
        matches!(near, Err(TrafficError::NotSupported { .. })),
        "{near:?}"
    );
    assert!(far.is_err());
}

#[test]
fn several_threads_share_the_flows_and_both_directions_ask() {
    let spec = TrialSpec {
        threads: Some(2),
        direction: Direction::Bidirectional,
        ..rr_spec(rr(1, 1), Waiting::Blocking, 5)
    };
    let (near, far) = run(&spec).expect("nothing special is needed");
    assert_eq!(near.flows.len(), 10);
    for side in [&near, &far] {
        assert_eq!(asked(side).per_thread.len(), 2);
    }
}

fn pingpong(sizes: &[Bytes], repetitions: u32) -> Pingpong {
    Pingpong {
        sizes: sizes.to_vec(),
        repetitions,
        volume_bytes: Pingpong::imb_volume(),
        data_check: true,
    }
}

/// A trial that ends by its repetitions, not by time.
fn by_count(pingpong: Pingpong, waiting: Waiting, flows: u32) -> TrialSpec {
    TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(10_000),
        ..exchange(Workload::Pingpong(pingpong), waiting, flows)
    }
}

#[test]
fn a_message_of_every_size_of_imb_goes_there_and_back_in_every_way_of_waiting() {
    for waiting in WAYS {
        for flows in [1, 2] {
            let pingpong = Pingpong {
                data_check: false,
                ..pingpong(&Pingpong::imb_sizes(), 4)
            };
            let Some((near, _)) = run(&by_count(pingpong, waiting, flows)) else {
                continue;
            };
            let sizes = &asked(&near).sizes;
            assert_eq!(sizes.len(), 24);
            for (record, size) in sizes.iter().zip(Pingpong::imb_sizes()) {
                let trips = u64::from(flows) * 4;
                assert_eq!((record.bytes, record.repetitions), (size, trips));
                assert_eq!(record.one_way.count(), trips);
                assert!(record.elapsed_ns.as_u64() > 0);
            }
            // A message without payload is a header of 8 bytes; one round trip of each does not count.
            let once: u64 = Pingpong::imb_sizes().iter().map(|size| size.as_u64()).sum();
            assert_eq!(total(&near), u64::from(flows) * 2 * (4 + 1) * (once + 8));
        }
    }
}

#[test]
fn every_byte_of_a_pingpong_is_compared_in_every_way_of_waiting() {
    let sizes = [0, 1, 13, 4_099, 3_000_001].map(Bytes::new);
    for waiting in WAYS {
        for flows in [1, 3] {
            let spec = by_count(pingpong(&sizes, 5), waiting, flows);
            let Some((near, _)) = run(&spec) else {
                continue;
            };
            let counts = asked(&near).sizes.iter().map(|size| size.repetitions);
            assert!(counts.eq([u64::from(flows) * 5; 5]), "{waiting}");
            let once: u64 = sizes.iter().map(|size| size.as_u64()).sum();
            assert_eq!(total(&near), u64::from(flows) * 2 * (5 + 1) * (once + 8));
        }
    }
}

#[test]
fn every_byte_of_a_pingpong_is_compared_where_both_ends_ask() {
    let pingpong = pingpong(&[1, 30_001].map(Bytes::new), 20);
    let spec = TrialSpec {
        direction: Direction::Bidirectional,
        ..by_count(pingpong, Waiting::Blocking, 2)
    };
    let (near, far) = run(&spec).expect("nothing special is needed");
    for side in [&near, &far] {
        assert_eq!(asked(side).completed, 2 * 2 * 20);
    }
}

#[test]
fn sizes_that_the_time_does_not_reach_are_absent() {
    let pingpong = Pingpong {
        data_check: false,
        ..pingpong(&[Bytes::new(1), Bytes::mib(1)], 10_000_000)
    };
    let spec = exchange(Workload::Pingpong(pingpong), Waiting::Blocking, 1);
    let (near, _) = run(&spec).expect("nothing special is needed");
    let sizes = &asked(&near).sizes;
    assert_eq!(sizes.len(), 1);
    assert_eq!(sizes[0].bytes, Bytes::new(1));
}

fn transfer(bytes: u64, repetitions: Option<u64>) -> Workload {
    Workload::Transfer(Transfer {
        bytes: Bytes::new(bytes),
        repetitions,
        data_check: true,
    })
}

#[test]
fn a_buffer_goes_there_and_back_unchanged_in_every_way_of_waiting() {
    for waiting in WAYS {
        for flows in [1, 3] {
            let spec = exchange(transfer(300_003, None), waiting, flows);
            let Some((near, far)) = run(&spec) else {
                continue;
            };
            let operations = asked(&near);
            assert_eq!(operations.latency.count(), operations.completed);
            // The size and the go are 8 bytes each, `done` is one.
            let cycle = 2 * 300_003 + 8 + 8 + 1;
            assert_eq!(total(&far), operations.completed * cycle, "{waiting}");
        }
    }
}

#[test]
fn a_stated_number_of_transfers_ends_before_the_time() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(10_000),
        ..exchange(transfer(4096, Some(7)), Waiting::Blocking, 3)
    };
    let (near, _) = run(&spec).expect("nothing special is needed");
    assert_eq!(asked(&near).completed, 3 * 7);
}

#[test]
fn every_exchange_works_over_ipv6() {
    let each = Rr {
        connect_each: true,
        ..rr(1, 1)
    };
    let pingpong = Pingpong {
        sizes: vec![Bytes::new(0), Bytes::kib(64)],
        repetitions: 10,
        volume_bytes: Pingpong::imb_volume(),
        data_check: false,
    };
    for workload in [
        Workload::Rr(rr(1, 1)),
        Workload::Rr(each),
        Workload::Pingpong(pingpong),
        transfer(1_000, Some(3)),
    ] {
        let spec = exchange(workload, Waiting::Blocking, 1);
        let listening = Listening::open(&spec, TOKEN, "::1").expect("a free port");
        let address: SocketAddr = (Ipv6Addr::LOCALHOST, listening.port()).into();
        let (near, far) = run_against(&spec, listening, address, &abort());
        check(&near.expect("the near end"), &far.expect("the far end"));
    }
}
