//! Connections chosen by their receive CPU, over the loopback of this machine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use linerate_model::sample::SideSample;
use linerate_model::units::Bytes;
use linerate_model::workload::{Direction, Http, Placement, TrialSpec, Workload};
use linerate_traffic::TrafficError;

use crate::both_ends::{abort, hand_made_peer, hang_guard, listen, run_both, spec};

fn by_receive_cpu(flows: u32, direction: Direction) -> TrialSpec {
    TrialSpec {
        placement: Placement {
            by_receive_cpu: true,
            ..Placement::default()
        },
        ..spec(flows, direction)
    }
}

#[track_caller]
fn assert_ran_where_it_was_put(side: &SideSample) {
    for thread in &side.threads {
        let cpu = thread
            .pinned_to
            .expect("the kernel says where packets arrive");
        assert_eq!((&thread.seen_on[..], thread.moves_seen), (&[cpu][..], 0));
    }
}

#[test]
fn every_thread_runs_where_its_connection_was_received() {
    for direction in [Direction::Forward, Direction::Bidirectional] {
        let spec = by_receive_cpu(3, direction);
        let (near, far) = run_both(&spec);
        let (near, far) = (near.expect("the near end"), far.expect("the far end"));
        assert_eq!(near.flows.len(), far.flows.len());
        for (index, (here, there)) in near.flows.iter().zip(&far.flows).enumerate() {
            assert_eq!((here.flow as usize, there.flow as usize), (index, index));
            assert_ne!(here.role, there.role, "both ends chose the same connection");
            assert_eq!(here.total(), there.total());
        }
        assert_ran_where_it_was_put(&near);
        assert_ran_where_it_was_put(&far);
    }
}

/// The offer on one candidate.
fn read_word(stream: &mut TcpStream) -> [u8; 5] {
    let mut word = [0; 5];
    stream.read_exact(&mut word).expect("a word");
    word
}

/// The listening end's error for a peer that answers the candidates with `verdicts`.
fn answered(verdicts: impl Fn(u8) -> [u8; 5]) -> TrafficError {
    let spec = by_receive_cpu(1, Direction::Forward);
    let (listening, address) = listen(&spec);
    let abort = abort();
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort));
        // One flow, and 19 to choose from.
        let mut streams: Vec<_> = (0..20).map(|flow| hand_made_peer(address, flow)).collect();
        for (number, stream) in (0u8..).zip(&mut streams) {
            assert_eq!(read_word(stream)[0], b'O');
            stream.write_all(&verdicts(number)).expect("it listens");
        }
        let outcome = far.join().expect("it does not panic");
        outcome.expect_err("the choice is wrong")
    })
}

#[test]
fn a_peer_that_keeps_too_many_too_few_or_none_of_ours_is_refused() {
    let keep_all = |_| [b'K', 0, 0, 0, 0];
    let keep_none = |_| [b'D', 0, 0, 0, 0];
    let keep_another = |number| match number {
        0 => [b'K', 0, 0, 0, 7],
        _ => [b'D', 0, 0, 0, 0],
    };
    let nonsense = |_| *b"PRI *";
    let numbered = |number| [b'K', 0, 0, 0, number];
    let wrong = [
        answered(keep_none),
        answered(keep_another),
        answered(nonsense),
        answered(numbered),
    ];
    for error in wrong {
        assert!(
            matches!(error, TrafficError::Misunderstood { .. }),
            "{error}"
        );
    }
    let error = answered(keep_all);
    assert!(
        matches!(error, TrafficError::Misunderstood { .. }),
        "{error}"
    );
}

#[test]
fn connections_that_do_not_carry_the_payload_cannot_be_chosen() {
    let spec = TrialSpec {
        workload: Workload::Http(Http {
            path: "/".to_owned(),
            body_bytes: Bytes::new(0),
            rate_per_s: None,
            server: None,
        }),
        ..by_receive_cpu(1, Direction::Forward)
    };
    let error = spec.check().expect_err("http makes its own connections");
    assert!(error.to_string().contains("stream, rr"), "{error}");
}
