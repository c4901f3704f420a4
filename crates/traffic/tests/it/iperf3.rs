//! Our own two ends of iperf3's protocol against each other: the counts of both, and the server's reports.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use linerate_model::sample::{Flag, FlowRecord, Role, SideSample};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{
    DatagramBatch, Direction, ReceiveMode, SendMode, Stream, TrialSpec, Udp, Workload,
};
use linerate_traffic::iperf3::{Finished, Foreign, Iperf3Server, measure};
use linerate_traffic::iperf3_protocol::TalkError;
use linerate_traffic::{Abort, TrafficError};

use crate::both_ends::{abort, spec};

/// Stops a server when the test ends, also when it fails.
struct Stop<'a>(&'a Abort);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

/// Runs `test` with a server of ours; the server's reports about its clients arrive over the channel.
pub(crate) fn with_server<T>(
    bind: SocketAddr,
    test: impl FnOnce(SocketAddr, &mpsc::Receiver<Finished>) -> T,
) -> T {
    let server = Iperf3Server::open(bind).expect("a free port");
    let address = server.address();
    let abort = abort();
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(&abort, move |one| {
                // Nobody listens any more when the test has failed.
                let _ = done.send(one);
            })
        });
        let stop = Stop(&abort);
        let result = test(address, &finished);
        drop(stop);
        serving.join().expect("no panic").expect("it serves");
        result
    })
}

pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The next test that the server has finished.
pub(crate) fn next(finished: &mpsc::Receiver<Finished>) -> Finished {
    finished
        .recv_timeout(Duration::from_secs(60))
        .expect("the test ends")
}

fn totals(side: &SideSample) -> Vec<u64> {
    side.flows
        .iter()
        .map(|flow| flow.total().as_u64())
        .collect()
}

fn run(spec: &TrialSpec) -> (Foreign, Finished) {
    with_server(loopback(), |address, finished| {
        let foreign = measure(spec, address, &abort()).expect("it measures");
        (foreign, next(finished))
    })
}

/// Every byte that one end sent has arrived at the other, and each has received the other's results.
fn assert_agrees(foreign: &Foreign, finished: &Finished) {
    finished.outcome.as_ref().expect("it came to its end");
    let far = finished.local.as_ref().expect("a record");
    assert_eq!(totals(&foreign.local), totals(far));
    let told: Vec<u64> = foreign
        .server
        .streams
        .iter()
        .map(|s| s.bytes.as_u64())
        .collect();
    assert_eq!(told, totals(far));
    assert!(totals(far).iter().any(|&bytes| bytes > 0));
}

pub(crate) fn udp(rate: Option<BitRate>) -> Workload {
    Workload::Udp(Udp {
        datagram_bytes: Bytes::new(1_000),
        rate_bit_per_s: rate,
        batch: DatagramBatch::Single,
        probe: None,
    })
}

#[test]
fn both_ends_count_the_same_bytes_in_every_direction() {
    for direction in [
        Direction::Forward,
        Direction::Reverse,
        Direction::Bidirectional,
    ] {
        for flows in [1, 4] {
            let (foreign, finished) = run(&spec(flows, direction));
            assert_agrees(&foreign, &finished);
        }
    }
}

#[test]
fn an_amount_is_sent_to_the_byte() {
    let amount = Bytes::new(1_000_003);
    let spec = TrialSpec {
        workload: Workload::Stream(Stream {
            bytes: Some(amount),
            ..Stream::default()
        }),
        duration_ns: Nanoseconds::from_millis(60_000),
        ..spec(3, Direction::Forward)
    };
    let (foreign, finished) = run(&spec);
    assert_agrees(&foreign, &finished);
    assert_eq!(totals(&foreign.local).iter().sum::<u64>(), amount.as_u64());
}

#[test]
fn an_amount_that_arrives_ends_the_test_before_its_time() {
    let spec = TrialSpec {
        workload: Workload::Stream(Stream {
            bytes: Some(Bytes::kib(64)),
            receive: ReceiveMode::Trunc,
            ..Stream::default()
        }),
        duration_ns: Nanoseconds::from_millis(60_000),
        ..spec(1, Direction::Reverse)
    };
    let (foreign, finished) = run(&spec);
    assert_agrees(&foreign, &finished);
    assert!(foreign.local.elapsed_ns < spec.duration_ns);
}

#[test]
fn datagrams_are_counted_at_both_ends_in_every_direction() {
    for direction in [
        Direction::Forward,
        Direction::Reverse,
        Direction::Bidirectional,
    ] {
        let spec = TrialSpec {
            // So few that a receiver's buffer holds all of them: none is lost however busy the machine is.
            workload: udp(Some(BitRate::from_mbit_per_s(2))),
            ..spec(2, direction)
        };
        let (foreign, finished) = run(&spec);
        finished.outcome.as_ref().expect("it came to its end");
        let far = finished.local.as_ref().expect("a record");
        // Not each of them: a thread may get no CPU in so short a trial.
        let moved = |flow: &FlowRecord| flow.datagrams.as_ref().is_some_and(|all| all.count > 0);
        assert!(foreign.local.flows.iter().any(moved), "{direction:?}");
        for (here, there) in foreign.local.flows.iter().zip(&far.flows) {
            let told = here.datagrams.as_ref().expect("datagrams");
            let there = there.datagrams.as_ref().expect("datagrams");
            assert_eq!((told.lost, there.lost), (0, 0), "flow {}", here.flow);
            assert_eq!(told.count * 1_000, here.total().as_u64());
            match here.role {
                Role::Sender => assert_eq!(told.count, there.count, "flow {}", here.flow),
                // The server sends until it receives the end, which this end decides.
                Role::Receiver => assert!(told.count <= there.count, "flow {}", here.flow),
            }
        }
    }
}

#[test]
fn it_works_over_ipv6_and_over_a_port_of_both_families() {
    for (bind, to) in [
        (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST.into()),
        (
            Ipv6Addr::UNSPECIFIED,
            std::net::IpAddr::from(Ipv4Addr::LOCALHOST),
        ),
    ] {
        for workload in [Workload::default(), udp(Some(BitRate::from_mbit_per_s(8)))] {
            let spec = TrialSpec {
                workload,
                ..spec(2, Direction::Bidirectional)
            };
            with_server((bind, 0).into(), |address, finished| {
                let address = (to, address.port()).into();
                measure(&spec, address, &abort()).expect("it measures");
                next(finished).outcome.expect("it came to its end");
            });
        }
    }
}

#[test]
fn what_the_server_told_becomes_a_record_that_says_what_it_does_not_know() {
    let spec = spec(2, Direction::Forward);
    let (foreign, _) = run(&spec);
    let sample = foreign.sample(&spec);
    assert_eq!(sample.flags, [Flag::ForeignPeer]);
    assert_eq!(totals(&sample.remote), totals(&foreign.local));
    assert!(sample.remote.flows[0].tcp.gap().is_some());
    assert_eq!(sample.remote.receivers().count(), 2);
    assert!(
        foreign.readings[0].len() > 1,
        "the kernel was asked at each reading"
    );
    assert_eq!(foreign.connections.len(), 2);
}

#[test]
fn what_cannot_be_had_with_iperf3_is_an_error_that_says_so() {
    let nobody = (Ipv4Addr::LOCALHOST, 1).into();
    let sendfile = Workload::Stream(Stream {
        send: SendMode::Sendfile,
        ..Stream::default()
    });
    for spec in [
        TrialSpec {
            workload: sendfile,
            ..TrialSpec::default()
        },
        TrialSpec {
            flows: 129,
            ..TrialSpec::default()
        },
        TrialSpec {
            buffer_bytes: Bytes::mib(2),
            ..TrialSpec::default()
        },
    ] {
        let outcome = measure(&spec, nobody, &abort());
        let refused = matches!(
            outcome,
            Err(TrafficError::Iperf3 {
                source: TalkError::NotSupported { .. } | TalkError::Limit { .. },
                ..
            })
        );
        assert!(refused, "{outcome:?}");
    }
    let outcome = measure(&TrialSpec::default(), nobody, &abort());
    assert!(
        matches!(outcome, Err(TrafficError::Refused { .. })),
        "{outcome:?}"
    );
}

#[test]
fn eight_clients_at_once_are_all_served() {
    with_server(loopback(), |address, finished| {
        thread::scope(|scope| {
            for number in 0..8u32 {
                scope.spawn(move || {
                    let workload = if number % 2 == 0 {
                        Workload::default()
                    } else {
                        udp(Some(BitRate::from_mbit_per_s(4)))
                    };
                    let spec = TrialSpec {
                        workload,
                        ..spec(1 + number % 3, Direction::Bidirectional)
                    };
                    let foreign = measure(&spec, address, &abort()).expect("it measures");
                    assert_eq!(foreign.server.streams.len(), 2 * spec.flows as usize);
                });
            }
        });
        for _ in 0..8 {
            next(finished).outcome.expect("it came to its end");
        }
    });
}

#[test]
fn an_abort_at_either_end_ends_both_at_once() {
    let long = TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(1_000),
        ..spec(2, Direction::Bidirectional)
    };
    // The client's.
    with_server(loopback(), |address, finished| {
        let given_up = abort();
        thread::scope(|scope| {
            let client = scope.spawn(|| measure(&long, address, &given_up));
            given_up.trigger();
            let outcome = client.join().expect("no panic");
            assert!(matches!(outcome, Err(TrafficError::Aborted)), "{outcome:?}");
        });
        // It may have been aborted before the server noticed it.
        drop(finished.recv_timeout(Duration::from_millis(1)));
    });
    // The server's.
    let server = Iperf3Server::open(loopback()).expect("a free port");
    let (address, stop) = (server.address(), abort());
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&stop, |_| {}));
        let client = scope.spawn(|| measure(&long, address, &abort()));
        stop.trigger();
        serving.join().expect("no panic").expect("it served");
        let outcome = client.join().expect("no panic");
        assert!(outcome.is_err(), "{outcome:?}");
    });
}
