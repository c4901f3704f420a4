//! One end of ours against a peer made by hand: one that is late by known times, one that stalls, and
//! those that break the rules.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Pingpong, Rr, Transfer, TrialSpec, Waiting, Workload};
use linerate_traffic::TrafficError;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::both_ends::{
    Outcome, abort, against_peers, hand_made_peer, hang_guard, listen, read_byte, ready_peer, spec,
    wrong_byte,
};
use crate::exchange::{WAYS, is_there, rr};

const GO: u8 = 0x47;

fn against(spec: &TrialSpec, peer: impl FnOnce(SocketAddr)) -> Outcome {
    let (listening, address) = listen(spec);
    let abort = abort();
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
        peer(address);
        far.join().expect("it does not panic")
    })
}

/// The end of ours asks, the hand-made one answers.
fn asking(workload: Workload, peer: impl FnOnce(TcpStream)) -> Outcome {
    let spec = TrialSpec {
        workload,
        ..spec(1, Direction::Reverse)
    };
    against(&spec, |address| {
        let mut stream = ready_peer(address, 0);
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(&[GO]).expect("open");
        peer(stream);
    })
}

/// The end of ours answers, the hand-made one asks.
fn answering(workload: Workload, peer: impl FnOnce(TcpStream)) -> Outcome {
    let spec = TrialSpec {
        workload,
        ..spec(1, Direction::Forward)
    };
    against(&spec, |address| {
        let mut stream = ready_peer(address, 0);
        stream.set_nodelay(true).expect("a socket");
        assert_eq!(read_byte(&mut stream), Some(GO));
        peer(stream);
    })
}

/// The next message, `None` at the end.
fn hear(stream: &mut TcpStream, size: usize) -> Option<Vec<u8>> {
    let mut message = vec![0; size];
    stream.read_exact(&mut message).ok().map(|()| message)
}

fn operations(outcome: Outcome) -> Operations {
    let record: SideSample = outcome.expect("the peer keeps the rules");
    record.operations.expect("it asked")
}

fn pass_time(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// What a peer saw of each request: when it had been read, and when its answer was about to be written.
type Seen = Vec<(Instant, Instant)>;

/// Answers every request after the next of `delays`, over and over.
fn answer_late(stream: &mut TcpStream, delays: &[u64]) -> Seen {
    let mut seen = Seen::new();
    for delay in delays.iter().cycle() {
        let Some(_) = hear(stream, 16) else { break };
        let read = Instant::now();
        pass_time(Duration::from_micros(*delay));
        seen.push((read, Instant::now()));
        stream.write_all(&[0; 32]).expect("it listens");
    }
    seen
}

#[test]
fn percentiles_agree_with_a_direct_record_of_every_operation() {
    let mut seen = Seen::new();
    let operations = operations(asking(Workload::Rr(rr(16, 32)), |mut stream| {
        seen = answer_late(&mut stream, &[20, 50, 300, 20, 1_000, 20, 40, 3_000]);
    }));
    assert_eq!(operations.completed, seen.len() as u64);
    // A request took at least the time from its arrival to its answer, and at most the time from the
    // answer before (which began it) to the arrival of the next (which its end began).
    let mut least: Vec<Duration> = seen.iter().map(|(read, answer)| *answer - *read).collect();
    let mut most: Vec<Duration> = seen
        .windows(3)
        .map(|three| three[2].0 - three[0].1)
        .collect();
    least.sort_unstable();
    most.sort_unstable();
    // The first and the last have no such upper bound: each may stand anywhere in the order.
    for percent in [10u8, 25, 50, 75, 90, 99] {
        let quantile = f64::from(percent) / 100.0;
        let said: Duration = operations.latency.quantile(quantile).expect("times").into();
        let rank = (seen.len() * usize::from(percent)).div_ceil(100).max(1) - 1;
        let low = least[rank].mul_f64(0.996);
        assert!(said >= low, "p{percent}: {said:?} is below {low:?}");
        if let Some(high) = most.get(rank) {
            let high = high.mul_f64(1.004);
            assert!(said <= high, "p{percent}: {said:?} is above {high:?}");
        }
    }
}

/// How many times are at least half the stall.
fn slow(histogram: &Histogram) -> u64 {
    let half = Nanoseconds::from_millis(50).as_u64();
    let slow = histogram.filled().filter(|(ns, _)| *ns >= half);
    slow.map(|(_, count)| count).sum()
}

/// Answers every request at once but this one, which it keeps for 100 ms.
fn stall_at(stalled: u32) -> impl FnOnce(TcpStream) {
    move |mut stream| {
        for number in 0.. {
            if hear(&mut stream, 16).is_none() {
                break;
            }
            if number == stalled {
                pass_time(Duration::from_millis(100));
            }
            stream.write_all(&[0; 32]).expect("it listens");
        }
    }
}

#[test]
fn open_loop_shows_a_stall_that_closed_loop_hides() {
    let paced = Rr {
        rate_per_s: Some(2_000),
        ..rr(16, 32)
    };
    let closed = operations(asking(Workload::Rr(rr(16, 32)), stall_at(10)));
    assert!(closed.service.is_none());
    // On a busy machine the trial may end before the request that stalls.
    assert!(closed.completed <= 10 || slow(&closed.latency) >= 1);
    // From 5 ms on, 2000 a second for the first half of the stall waited for the other half. From 75 ms
    // on, the stall outlasts the trial's 120 ms, and the 90 that were due by then waited all the same.
    for (stalled, at_least) in [(10, 95), (150, 85)] {
        let open = operations(asking(Workload::Rr(paced.clone()), stall_at(stalled)));
        let service = open.service.expect("open loop has both");
        // What is not answered within a second after the trial has waited even longer.
        let waited = slow(&open.latency) + open.unanswered;
        assert!(waited >= at_least, "{waited}");
        assert!(slow(&service) * 10 <= waited, "{}", slow(&service));
        assert!(slow(&closed.latency) * 10 <= waited);
    }
}

#[test]
fn so_many_requests_are_under_way_as_the_depth_says() {
    let deep = Rr {
        depth: 8,
        ..rr(16, 32)
    };
    let mut answered = 0;
    let operations = operations(asking(Workload::Rr(deep), |mut stream| {
        // None is answered before all eight are there.
        while hear(&mut stream, 8 * 16).is_some() {
            stream.write_all(&[0; 8 * 32]).expect("it listens");
            answered += 8;
        }
    }));
    assert_eq!(operations.completed, answered);
}

#[test]
fn a_peer_that_vanishes_in_mid_exchange_is_named_at_once() {
    let outcome = asking(Workload::Rr(rr(16, 32)), |mut stream| {
        assert!(hear(&mut stream, 16).is_some());
        stream.write_all(&[0; 31]).expect("it listens");
    });
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "{outcome:?}"
    );
    let outcome = answering(Workload::Rr(rr(16, 32)), |mut stream| {
        stream.write_all(&[0; 15]).expect("it listens");
    });
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "{outcome:?}"
    );
}

#[test]
fn an_asker_that_ends_before_the_time_is_named() {
    let hour = |workload| TrialSpec {
        workload,
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(100_000),
        ..spec(1, Direction::Forward)
    };
    let pingpong = Pingpong {
        sizes: vec![Bytes::new(16)],
        repetitions: 3,
        volume_bytes: Pingpong::imb_volume(),
        data_check: false,
    };
    for workload in [Workload::Rr(rr(16, 16)), Workload::Pingpong(pingpong)] {
        let outcome = against(&hour(workload), |address| {
            let mut stream = ready_peer(address, 0);
            assert_eq!(read_byte(&mut stream), Some(GO));
            stream.write_all(&[0; 16]).expect("it listens");
            assert!(hear(&mut stream, 16).is_some());
        });
        assert!(
            matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_peer_that_stalls_for_good_is_given_up_after_the_stated_time() {
    let mut held = None;
    let outcome = asking(Workload::Rr(rr(16, 32)), |stream| held = Some(stream));
    assert!(
        matches!(outcome, Err(TrafficError::Overdue { flow: 0, .. })),
        "{outcome:?}"
    );
}

#[test]
fn what_nobody_asked_for_is_an_error() {
    let outcome = asking(Workload::Rr(rr(16, 32)), |mut stream| {
        assert!(hear(&mut stream, 16).is_some());
        stream.write_all(&[0xA5; 100]).expect("it listens");
        while read_byte(&mut stream).is_some() {}
    });
    assert!(
        matches!(outcome, Err(TrafficError::Unasked { flow: 0, .. })),
        "{outcome:?}"
    );
    let announces_too_much = |mut stream: TcpStream| {
        stream.write_all(&u64::MAX.to_be_bytes()).expect("open");
        while read_byte(&mut stream).is_some() {}
    };
    let outcome = answering(transfer(), announces_too_much);
    assert!(
        matches!(outcome, Err(TrafficError::Unasked { flow: 0, .. })),
        "{outcome:?}"
    );
}

const SIZE: usize = 1_003;

fn transfer() -> Workload {
    Workload::Transfer(Transfer {
        bytes: Bytes::new(SIZE as u64),
        repetitions: None,
        data_check: true,
    })
}

#[test]
fn a_byte_that_comes_back_flipped_is_named() {
    let outcome = asking(transfer(), |mut stream| {
        for repetition in 0..4 {
            let announced = hear(&mut stream, 8).expect("a cycle");
            assert_eq!(announced, (SIZE as u64).to_be_bytes());
            let mut buffer = hear(&mut stream, SIZE).expect("the buffer");
            buffer[777] ^= u8::from(repetition == 3) << 5;
            stream.write_all(&[0; 8]).expect("it listens");
            stream.write_all(&buffer).expect("it listens");
            assert_eq!(read_byte(&mut stream), Some(0x44));
        }
        while read_byte(&mut stream).is_some() {}
    });
    assert_eq!(wrong_byte(outcome), (0, 3, 777, 1 << 5));
}

#[test]
fn a_buffer_that_arrives_changed_is_named_by_the_answering_end() {
    let outcome = answering(transfer(), |mut stream| {
        stream
            .write_all(&(SIZE as u64).to_be_bytes())
            .expect("it listens");
        stream.write_all(&[0; SIZE]).expect("it listens");
        while read_byte(&mut stream).is_some() {}
    });
    assert_eq!(wrong_byte(outcome).1, 0);
}

/// Messages of one size, every byte compared, of flows that share a thread.
fn compared(direction: Direction, waiting: Waiting, flows: u32) -> TrialSpec {
    TrialSpec {
        workload: Workload::Pingpong(Pingpong {
            sizes: vec![Bytes::new(SIZE as u64)],
            repetitions: 1_000,
            volume_bytes: Pingpong::imb_volume(),
            data_check: true,
        }),
        waiting,
        threads: Some(1),
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(100_000),
        ..spec(flows, direction)
    }
}

#[test]
fn a_byte_of_a_message_that_comes_back_flipped_is_named_in_every_way_of_waiting() {
    for waiting in WAYS.into_iter().filter(|way| is_there(*way)) {
        for flows in [1, 2] {
            let spec = compared(Direction::Reverse, waiting, flows);
            let outcome = against_peers(&spec, |flow, mut stream| {
                stream.write_all(&[GO]).expect("open");
                for trip in 0.. {
                    let Some(mut message) = hear(&mut stream, SIZE) else {
                        return;
                    };
                    message[777] ^= u8::from(flow + 1 == flows && trip == 3) << 5;
                    // In parts, which may come one by one.
                    for part in message.chunks(400) {
                        if stream.write_all(part).is_err() {
                            return;
                        }
                    }
                }
            });
            assert_eq!(
                wrong_byte(outcome),
                (flows - 1, 3, 777, 1 << 5),
                "{waiting}"
            );
        }
    }
}

#[test]
fn a_message_that_is_the_one_before_once_more_is_not_the_right_one() {
    let spec = compared(Direction::Reverse, Waiting::Blocking, 1);
    let outcome = against_peers(&spec, |_, mut stream| {
        stream.write_all(&[GO]).expect("open");
        let first = hear(&mut stream, SIZE).expect("a message");
        stream.write_all(&first).expect("it listens");
        assert!(hear(&mut stream, SIZE).is_some_and(|second| second != first));
        stream.write_all(&first).expect("it listens");
        while read_byte(&mut stream).is_some() {}
    });
    assert_eq!(wrong_byte(outcome).1, 1);
}

#[test]
fn a_message_that_arrives_changed_is_named_by_the_answering_end_in_every_way_of_waiting() {
    let mut told = Vec::new();
    let spec = compared(Direction::Reverse, Waiting::Blocking, 1);
    let outcome = asking(spec.workload, |mut stream| {
        for _ in 0..4 {
            let message = hear(&mut stream, SIZE).expect("a message");
            stream.write_all(&message).expect("it listens");
            told.push(message);
        }
    });
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "what comes back as it went is right: {outcome:?}"
    );
    for waiting in WAYS.into_iter().filter(|way| is_there(*way)) {
        let spec = compared(Direction::Forward, waiting, 1);
        let outcome = against_peers(&spec, |_, mut stream| {
            assert_eq!(read_byte(&mut stream), Some(GO));
            for (trip, message) in told.iter().enumerate() {
                let mut message = message.clone();
                message[777] ^= u8::from(trip == 3) << 5;
                stream.write_all(&message).expect("it listens");
                let answer = hear(&mut stream, SIZE);
                assert!(trip == 3 || answer == Some(message), "the very bytes");
            }
            while read_byte(&mut stream).is_some() {}
        });
        assert_eq!(wrong_byte(outcome), (0, 3, 777, 1 << 5), "{waiting}");
    }
}

/// A connection to `port` from an address of the loopback network.
fn connect_from(address: Ipv4Addr, port: u16) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddrV4::new(address, 0)).expect("an address of this host");
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("somebody listens");
    socket.into()
}

#[test]
fn of_those_who_connect_for_each_request_only_the_peer_is_served() {
    let each = Rr {
        connect_each: true,
        ..rr(16, 32)
    };
    let spec = TrialSpec {
        workload: Workload::Rr(each),
        ..spec(1, Direction::Forward)
    };
    let outcome = against(&spec, |address| {
        let mut companion = hand_made_peer(address, 0);
        let port = hear(&mut companion, 2).expect("the port");
        let port = u16::from_be_bytes([port[0], port[1]]);
        companion.write_all(&[0x52]).expect("open");
        assert_eq!(read_byte(&mut companion), Some(0x52));
        assert_eq!(read_byte(&mut companion), Some(GO));
        let begun = Instant::now();

        let mut stranger = connect_from(Ipv4Addr::new(127, 0, 0, 2), port);
        let _ = stranger.write_all(&[0; 16]);
        assert_eq!(read_byte(&mut stranger), None, "a stranger is not served");

        let mut silent = connect_from(Ipv4Addr::LOCALHOST, port);
        for _ in 0..3 {
            let mut guest = connect_from(Ipv4Addr::LOCALHOST, port);
            guest.write_all(&[0; 16]).expect("it listens");
            assert!(hear(&mut guest, 32).is_some(), "the peer is served");
        }
        silent.write_all(&[0; 16]).expect("it listens");
        assert!(hear(&mut silent, 32).is_some(), "and late ones too");
        // An end before the duration would be a peer that vanished.
        // tidy: time itself is the subject
        thread::sleep(Duration::from(spec.duration_ns).saturating_sub(begun.elapsed()));
    });
    let record = outcome.expect("the peer kept its word");
    assert_eq!(record.flows[0].total(), Bytes::new(4 * (16 + 32)));
}
