//! A grid that goes to a peer and back over TCP: the same grid at both ends, and the one that it should be.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use linerate_model::sample::{Checksum, GridRecord, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Diffusion, Direction, TrialSpec, Waiting, Workload};
use linerate_traffic::TrafficError;
use linerate_traffic::diffusion::{Stepper, checksum, fill};

use crate::both_ends::{abort, hang_guard, listen, read_byte, ready_peer, run_both, spec};

/// A grid of 32 x 32, and some bytes that are no cell.
const SIZE: u64 = 8_300;

fn diffusion(repetitions: Option<u64>) -> Diffusion {
    Diffusion {
        bytes: Bytes::new(SIZE),
        repetitions,
        work: true,
        data_check: false,
        pictures: false,
    }
}

fn trial(diffusion: Diffusion, flows: u32) -> TrialSpec {
    let fixed = diffusion.repetitions.is_some();
    let short = spec(flows, Direction::Forward);
    TrialSpec {
        workload: Workload::Diffusion(diffusion),
        threads: Some(1),
        duration_ns: if fixed {
            Nanoseconds::from_millis(3_600_000)
        } else {
            short.duration_ns
        },
        interval_ns: if fixed {
            Nanoseconds::from_millis(10_000)
        } else {
            short.interval_ns
        },
        ..short
    }
}

/// The grid as it should be after `steps` steps, in its buffer.
fn expected(bytes: u64, steps: u64) -> Checksum {
    let mut buffer = vec![0; usize::try_from(bytes).expect("a small one")];
    let side = Diffusion::side_of(Bytes::new(bytes));
    fill(&mut buffer, side);
    let mut stepper = Stepper::new(side);
    (0..steps).for_each(|_| stepper.step(&mut buffer));
    checksum(&buffer)
}

fn both(spec: &TrialSpec) -> (SideSample, SideSample) {
    spec.check().expect("a trial that both ends take");
    let (near, far) = run_both(spec);
    (near.expect("the near end"), far.expect("the far end"))
}

fn grids(side: &SideSample) -> Vec<&GridRecord> {
    let grids = side.flows.iter().map(|flow| flow.grid.as_ref());
    grids.map(|grid| grid.expect("its end tells")).collect()
}

#[test]
fn both_ends_of_every_pair_hold_the_grid_that_it_should_be() {
    for (flows, threads) in [(1, 1), (3, 1), (3, 3)] {
        let spec = TrialSpec {
            threads: Some(threads),
            ..trial(diffusion(Some(40)), flows)
        };
        let (near, far) = both(&spec);
        let expected = expected(SIZE, 40);
        for (asked, answered) in grids(&near).into_iter().zip(grids(&far)) {
            assert_eq!((asked.repetitions, answered.repetitions), (40, 40));
            assert_eq!((asked.checksum, answered.checksum), (expected, expected));
            assert!(asked.vectors.is_none() && answered.vectors.is_some());
            assert!(asked.work_ns.as_u64() > 0 && answered.work_ns.as_u64() > 0);
        }
        assert_eq!(grids(&far).len(), flows as usize);
    }
}

#[test]
fn a_trial_of_a_stated_time_ends_with_the_same_grid_at_both_ends_in_every_way_of_waiting() {
    for waiting in [Waiting::Blocking, Waiting::Epoll, Waiting::Spin] {
        let spec = TrialSpec {
            waiting,
            ..trial(diffusion(None), 2)
        };
        let (near, far) = both(&spec);
        for (asked, answered) in grids(&near).into_iter().zip(grids(&far)) {
            assert!(asked.repetitions > 0, "{waiting}");
            assert_eq!(asked.repetitions, answered.repetitions, "{waiting}");
            assert_eq!(asked.checksum, answered.checksum, "{waiting}");
            assert_eq!(
                asked.checksum,
                expected(SIZE, asked.repetitions),
                "{waiting}"
            );
        }
    }
}

#[test]
fn without_work_the_grid_comes_back_as_it_went() {
    let idle = Diffusion {
        work: false,
        data_check: true,
        ..diffusion(Some(5))
    };
    let (near, far) = both(&trial(idle, 1));
    for grid in grids(&near).into_iter().chain(grids(&far)) {
        assert_eq!(grid.checksum, expected(SIZE, 0));
        assert_eq!((grid.work_ns.as_u64(), grid.vectors), (0, None));
    }
}

#[test]
fn every_byte_is_compared_with_a_plain_step_when_that_is_asked_for() {
    let checked = Diffusion {
        data_check: true,
        ..diffusion(Some(25))
    };
    let (near, _) = both(&trial(checked, 2));
    assert!(grids(&near).iter().all(|grid| grid.repetitions == 25));
}

#[test]
fn pictures_are_taken_of_the_first_grid_after_100_and_10000_repetitions_and_at_the_end() {
    let drawn = |repetitions| Diffusion {
        bytes: Diffusion::BYTES_MIN,
        pictures: true,
        ..diffusion(Some(repetitions))
    };
    for (repetitions, taken) in [
        (7, &[7][..]),
        (100, &[100]),
        (10_001, &[100, 10_000, 10_001]),
    ] {
        let (near, far) = both(&trial(drawn(repetitions), 2));
        let [first, second] = grids(&near)[..] else {
            panic!("two pairs");
        };
        let after: Vec<u64> = first.pictures.iter().map(|one| one.repetitions).collect();
        assert_eq!(after, taken);
        assert!(second.pictures.is_empty());
        assert!(grids(&far).iter().all(|grid| grid.pictures.is_empty()));
        let picture = &first.pictures[0];
        assert_eq!((picture.side, picture.blocks), (8, 8));
        let cells: Vec<f64> = picture.cells().collect();
        assert!(cells[4] > cells[1] && cells[0] == 0.0, "{cells:?}");
    }
}

#[test]
fn a_grid_that_the_peer_steps_wrongly_is_named_when_every_byte_is_compared() {
    let checked = Diffusion {
        data_check: true,
        ..diffusion(None)
    };
    let spec = TrialSpec {
        direction: Direction::Reverse,
        ..trial(checked, 1)
    };
    let outcome = against(&spec, |mut stream| {
        let mut announced = [0; 8];
        stream.read_exact(&mut announced).expect("a cycle");
        assert_eq!(announced, SIZE.to_be_bytes());
        let mut buffer = vec![0; usize::try_from(SIZE).expect("a small one")];
        stream.read_exact(&mut buffer).expect("the grid");
        // It comes back without a step.
        stream.write_all(&[0; 8]).expect("it listens");
        stream.write_all(&buffer).expect("it listens");
        while read_byte(&mut stream).is_some() {}
    });
    assert!(
        matches!(
            outcome,
            Err(TrafficError::WrongByte {
                flow: 0,
                repetition: 0,
                ..
            })
        ),
        "{outcome:?}"
    );
}

#[test]
fn a_grid_that_changes_on_its_last_way_back_leaves_two_different_ones() {
    let spec = TrialSpec {
        direction: Direction::Reverse,
        ..trial(diffusion(Some(1)), 1)
    };
    let outcome = against(&spec, |mut stream| {
        let mut word = [0; 8];
        stream.read_exact(&mut word).expect("a cycle");
        let mut buffer = vec![0; usize::try_from(SIZE).expect("a small one")];
        stream.read_exact(&mut buffer).expect("the grid");
        let side = Diffusion::side_of(Bytes::new(SIZE));
        Stepper::new(side).step(&mut buffer);
        buffer[4_000] ^= 1;
        stream.write_all(&[0; 8]).expect("it listens");
        stream.write_all(&buffer).expect("it listens");
        while read_byte(&mut stream).is_some() {}
    });
    let near = outcome.expect("nothing was compared");
    assert_ne!(grids(&near)[0].checksum, expected(SIZE, 1));
}

/// The end of ours asks, the hand-made one answers.
fn against(spec: &TrialSpec, peer: impl FnOnce(TcpStream)) -> Result<SideSample, TrafficError> {
    let (listening, address) = listen(spec);
    let abort = abort();
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
        let mut stream = ready_peer(address, 0);
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(b"G").expect("open");
        peer(stream);
        far.join().expect("it does not panic")
    })
}
