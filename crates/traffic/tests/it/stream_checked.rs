//! Streams whose every byte is compared where it arrives.

use std::io::{Read, Write};
use std::sync::Mutex;

use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, SendMode, Stream, TrialSpec, Waiting, Workload};
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::Listening;

use crate::both_ends::{Outcome, TOKEN, against_peers, read_byte, run_both, spec, wrong_byte};
use crate::exchange::is_there;

const GO: u8 = 0x47;

const WAYS: [Waiting; 4] = [
    Waiting::Blocking,
    Waiting::Epoll,
    Waiting::Spin,
    Waiting::BusyPoll(50),
];

/// Flows that share a thread, with a buffer that no word fills; without an amount as long as a trial here lasts, with
/// one as long as it takes.
fn compared(direction: Direction, waiting: Waiting, flows: u32, bytes: Option<u64>) -> TrialSpec {
    let (duration, interval) = if bytes.is_some() {
        (3_600_000, 100_000)
    } else {
        (60, 10)
    };
    TrialSpec {
        workload: Workload::Stream(Stream {
            bytes: bytes.map(Bytes::new),
            data_check: true,
            ..Stream::default()
        }),
        waiting,
        threads: Some(1),
        duration_ns: Nanoseconds::from_millis(duration),
        interval_ns: Nanoseconds::from_millis(interval),
        buffer_bytes: Bytes::new(if flows == 1 { 32_771 } else { 1_003 }),
        ..spec(flows, direction)
    }
}

/// What each flow carried, if both ends report the same; `None` with a message on stderr, if the kernel lacks the mode.
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn carried(what: &str, outcomes: (Outcome, Outcome)) -> Option<Vec<u64>> {
    match outcomes {
        (Err(error @ TrafficError::NotSupported { .. }), _)
        | (_, Err(error @ TrafficError::NotSupported { .. })) => {
            eprintln!("SKIP: {what}: {error}");
            None
        }
        (Ok(near), Ok(far)) => {
            let totals = |side: &linerate_model::sample::SideSample| -> Vec<u64> {
                let flows = side.flows.iter();
                flows.map(|flow| flow.total().as_u64()).collect()
            };
            assert_eq!(totals(&near), totals(&far), "{what}");
            Some(totals(&near))
        }
        (near, far) => panic!("{what}: {near:?} {far:?}"),
    }
}

#[test]
fn every_byte_is_the_right_one_in_every_way_of_waiting_and_both_directions() {
    // On a busy machine a trial of 60 ms may end before its threads ran; not all of them.
    let mut moved = 0;
    for waiting in WAYS {
        for direction in [
            Direction::Forward,
            Direction::Reverse,
            Direction::Bidirectional,
        ] {
            for flows in [1, 3] {
                let what = format!("{flows} flows {direction:?} waiting by {waiting}");
                let spec = compared(direction, waiting, flows, None);
                let totals = carried(&what, run_both(&spec)).unwrap_or_default();
                moved += totals.iter().sum::<u64>();
            }
        }
    }
    assert!(moved > 0);
}

#[test]
fn a_stated_amount_is_compared_to_its_last_byte() {
    for waiting in WAYS {
        for flows in [1, 3] {
            let what = format!("{flows} flows waiting by {waiting}");
            let spec = compared(Direction::Forward, waiting, flows, Some(1_000_003));
            if let Some(totals) = carried(&what, run_both(&spec)) {
                assert_eq!(totals.iter().sum::<u64>(), 1_000_003, "{what}");
            }
        }
    }
}

/// The first `length` bytes of each of two flows that an end of ours sends.
fn told(length: usize) -> Vec<Vec<u8>> {
    let all = Some(2 * length as u64);
    let spec = compared(Direction::Reverse, Waiting::Blocking, 2, all);
    let told = Mutex::new(vec![Vec::new(); 2]);
    let outcome = against_peers(&spec, |flow, mut peer| {
        peer.write_all(&[GO]).expect("open");
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).expect("it sends");
        told.lock().expect("nobody panics")[flow as usize] = bytes;
    });
    outcome.expect("all of it was taken");
    let told = told.into_inner().expect("nobody panicked");
    assert!(told.iter().all(|bytes| bytes.len() == length));
    assert_ne!(told[0], told[1], "each flow has its own content");
    told
}

#[test]
fn a_byte_that_arrives_changed_is_named_with_its_flow_and_its_place() {
    let told = told(40_000);
    for waiting in WAYS.into_iter().filter(|way| is_there(*way)) {
        for flows in [1, 2] {
            let spec = TrialSpec {
                duration_ns: Nanoseconds::from_millis(3_600_000),
                interval_ns: Nanoseconds::from_millis(100_000),
                ..compared(Direction::Forward, waiting, flows, None)
            };
            let outcome = against_peers(&spec, |flow, mut peer| {
                assert_eq!(read_byte(&mut peer), Some(GO));
                let mut bytes = told[flow as usize].clone();
                bytes[33_333] ^= u8::from(flow + 1 == flows) << 5;
                for part in bytes.chunks(777) {
                    if peer.write_all(part).is_err() {
                        return;
                    }
                }
                while read_byte(&mut peer).is_some() {}
            });
            let right = (flows - 1, 0, 33_333, 1 << 5);
            assert_eq!(wrong_byte(outcome), right, "{waiting}");
        }
    }
}

#[test]
fn a_byte_too_few_is_found() {
    let told = told(40_000);
    let spec = compared(Direction::Forward, Waiting::Blocking, 1, Some(1 << 40));
    let outcome = against_peers(&spec, |_, mut peer| {
        assert_eq!(read_byte(&mut peer), Some(GO));
        let mut bytes = told[0].clone();
        bytes.remove(20_000);
        let _ = peer.write_all(&bytes);
        while read_byte(&mut peer).is_some() {}
    });
    let (flow, _, at, _) = wrong_byte(outcome);
    assert_eq!(flow, 0);
    // The byte after it may happen to be the same one.
    assert!((20_000..20_008).contains(&at), "{at}");
}

#[test]
fn what_cannot_be_compared_is_refused_before_the_start() {
    let mut spec = compared(Direction::Forward, Waiting::Blocking, 1, None);
    if let Workload::Stream(stream) = &mut spec.workload {
        stream.send = SendMode::Sendfile;
    }
    let refused = Listening::open(&spec, TOKEN, "127.0.0.1").map(|_| ());
    assert!(matches!(refused, Err(TrafficError::Spec(_))), "{refused:?}");
}
