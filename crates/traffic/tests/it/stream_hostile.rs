//! Peers that vanish or stall, in every way of moving payload: an error at once, or the stated time.

use std::io::{Read, Write};
use std::thread;

use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Direction, ReceiveMode, SendMode, Stream, TrialSpec, Waiting, Workload,
};
use linerate_traffic::TrafficError;

use crate::both_ends::{Outcome, abort, hang_guard, listen, read_byte, ready_peer, spec};
use crate::hostile::{against_a_peer, an_hour};
use crate::stream_modes::{RECEIVES, SENDS};

/// Every way of sending, each also as one of two flows of a thread.
fn sending(mut base: TrialSpec) -> Vec<TrialSpec> {
    base.direction = Direction::Reverse;
    let ways = SENDS.map(|send| Stream {
        send,
        ..Stream::default()
    });
    in_all_ways(&base, &ways)
}

/// Every way of receiving, likewise.
fn receiving(mut base: TrialSpec) -> Vec<TrialSpec> {
    base.direction = Direction::Forward;
    let ways = RECEIVES.map(|receive| Stream {
        receive,
        ..Stream::default()
    });
    in_all_ways(&base, &ways)
}

fn in_all_ways(base: &TrialSpec, ways: &[Stream]) -> Vec<TrialSpec> {
    let plain = [Waiting::Spin, Waiting::Epoll, Waiting::Uring].map(|waiting| TrialSpec {
        waiting,
        ..base.clone()
    });
    let each = ways.iter().map(|stream| TrialSpec {
        workload: Workload::Stream(stream.clone()),
        ..base.clone()
    });
    each.chain(plain).collect()
}

fn name(spec: &TrialSpec) -> String {
    let (workload, waiting, direction) = (&spec.workload, spec.waiting, spec.direction);
    format!("{workload:?} {direction:?} waiting by {waiting}")
}

/// Whether this kernel lacks the mode, or other programs of this user hold the memory that it may lock: then the
/// test is skipped with a message.
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn is_lacking(spec: &TrialSpec, outcome: &Outcome) -> bool {
    let lacking = matches!(
        outcome,
        Err(TrafficError::NotSupported { .. }
            | TrafficError::NotPermitted { .. }
            | TrafficError::LockedMemory { .. })
    );
    if lacking {
        eprintln!("SKIP: {}: {outcome:?}", name(spec));
    }
    lacking
}

/// Panics unless the trial ended because the peer of `flow` went away, or could not be made here.
#[track_caller]
fn assert_gone(spec: &TrialSpec, outcome: &Outcome, flow: u32) {
    let gone = matches!(outcome, Err(TrafficError::PeerClosed { flow: of, .. }) if *of == flow);
    assert!(
        is_lacking(spec, outcome) || gone,
        "{}: {outcome:?}",
        name(spec)
    );
}

#[test]
fn a_receiver_that_vanishes_ends_every_way_of_sending_at_once() {
    for spec in sending(an_hour(Direction::Reverse)) {
        let outcome = against_a_peer(&spec, &abort(), |mut peer| {
            peer.write_all(&[0x47]).expect("open");
            assert!(read_byte(&mut peer).is_some(), "payload flows");
        });
        assert_gone(&spec, &outcome, 0);
    }
}

#[test]
fn a_sender_that_vanishes_ends_every_way_of_receiving_at_once() {
    for spec in receiving(an_hour(Direction::Forward)) {
        let outcome = against_a_peer(&spec, &abort(), |mut peer| {
            assert_eq!(read_byte(&mut peer), Some(0x47));
            peer.write_all(&[1; 5000]).expect("it reads");
        });
        assert_gone(&spec, &outcome, 0);
    }
}

#[test]
fn a_receiver_that_stalls_keeps_no_way_of_sending_and_gets_what_was_counted() {
    for spec in sending(spec(1, Direction::Reverse)) {
        let mut held = None;
        let outcome = against_a_peer(&spec, &abort(), |mut peer| {
            peer.write_all(&[0x47]).expect("open");
            held = Some(peer);
        });
        if is_lacking(&spec, &outcome) {
            continue;
        }
        let record = outcome.unwrap_or_else(|error| panic!("{}: {error}", name(&spec)));
        let mut peer = held.expect("it was handed out");
        let mut received = 0u64;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = peer.read(&mut buffer) {
            received += count as u64;
        }
        let total = record.flows[0].total();
        assert!(total > Bytes::new(0), "{}", name(&spec));
        assert_eq!(Bytes::new(received), total, "{}", name(&spec));
    }
}

#[test]
fn a_sender_that_stalls_is_given_up_after_the_stated_time_in_every_way_of_receiving() {
    // Side by side: each of them waits the whole stated time.
    thread::scope(|scope| {
        for spec in receiving(spec(1, Direction::Forward)) {
            scope.spawn(move || {
                let mut held = None;
                let outcome = against_a_peer(&spec, &abort(), |peer| held = Some(peer));
                assert!(
                    is_lacking(&spec, &outcome)
                        || matches!(outcome, Err(TrafficError::Overdue { flow: 0, .. })),
                    "{}: {outcome:?}",
                    name(&spec)
                );
            });
        }
    });
}

#[test]
fn one_of_two_flows_of_a_thread_that_vanishes_is_named() {
    for (send, receive) in [
        (SendMode::Write, ReceiveMode::Read),
        (SendMode::Uring, ReceiveMode::Uring),
    ] {
        for direction in [Direction::Forward, Direction::Reverse] {
            let spec = TrialSpec {
                flows: 2,
                threads: Some(1),
                workload: Workload::Stream(Stream {
                    send,
                    receive,
                    bytes: None,
                    data_check: false,
                }),
                ..an_hour(direction)
            };
            let (listening, address) = listen(&spec);
            let abort = abort();
            let outcome = thread::scope(|scope| {
                let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
                // READY comes only when both are there.
                let stays = scope.spawn(move || ready_peer(address, 0));
                let mut leaves = ready_peer(address, 1);
                let mut stays = stays.join().expect("it is ready");
                if direction == Direction::Reverse {
                    stays.write_all(&[0x47]).expect("open");
                    leaves.write_all(&[0x47]).expect("open");
                    assert!(read_byte(&mut leaves).is_some(), "payload flows");
                } else {
                    assert_eq!(read_byte(&mut leaves), Some(0x47));
                }
                drop(leaves);
                let outcome = far.join().expect("it does not panic");
                drop(stays);
                outcome
            });
            assert_gone(&spec, &outcome, 1);
        }
    }
}

#[test]
fn a_peer_that_sends_less_or_more_than_the_amount_is_an_error() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        workload: Workload::Stream(Stream {
            bytes: Some(Bytes::new(1_000)),
            ..Stream::default()
        }),
        ..an_hour(Direction::Forward)
    };
    for (sent, more) in [(999, false), (1_001, true)] {
        let outcome = against_a_peer(&spec, &abort(), |mut peer| {
            assert_eq!(read_byte(&mut peer), Some(0x47));
            peer.write_all(&vec![1; sent]).expect("it reads");
        });
        match outcome {
            Err(TrafficError::Amount { given, .. }) if more => {
                assert_eq!(given, Bytes::new(1_001));
            }
            Err(TrafficError::PeerClosed { .. }) if !more => {}
            other => panic!("{sent} bytes: {other:?}"),
        }
    }
}
