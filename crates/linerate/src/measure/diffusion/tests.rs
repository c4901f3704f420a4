//! Documents and texts of made samples, compared with the schema that people read them by.

use linerate_model::build;
use linerate_model::path::PathView;
use linerate_model::protocol::Failure;
use linerate_model::sample::{GridPicture, GridRecord, Operations, Vectors};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Diffusion, Workload};
use linerate_traffic::TrafficError;
use serde_json::{Value, json};

use super::super::fitting::told_and_fitting;
use super::*;

/// A trial of two pairs, 10,000 repetitions of 1 MiB in two seconds, each end with its own grid.
fn sample(work: bool) -> Sample {
    let mut sample = build::sample().flows(2).build();
    sample.spec.workload = Workload::Diffusion(Diffusion {
        bytes: Bytes::mib(1),
        repetitions: Some(10_000),
        work,
        data_check: false,
        pictures: true,
    });
    for flow in 0..2 {
        let grid = |worked: u64, vectors| GridRecord {
            repetitions: 10_000,
            checksum: Checksum(0xABC),
            work_ns: Nanoseconds::from_millis(worked),
            vectors,
            pictures: Vec::new(),
        };
        sample.local.flows[flow].grid = Some(grid(10, None));
        sample.remote.flows[flow].grid = Some(grid(400, Some(Vectors::Avx512)));
    }
    sample.local.operations = Some(Operations {
        completed: 20_000,
        ..Operations::default()
    });
    sample
}

/// The document, and the text.
fn shown(sample: Sample, overhead: Option<Overhead>) -> (Value, String) {
    let (near, far) = build::veth_pair();
    let ends = PathView {
        local: &near,
        remote: &far,
        local_nic: &near.nics[0].name,
        remote_nic: &far.nics[0].name,
        ipv6: false,
    };
    let measured = Measured {
        overhead,
        ..Measured::between(ends, sample, None)
    };
    told_and_fitting(&measured)
}

#[test]
fn the_aggregate_is_twice_the_bytes_of_all_pairs_over_the_askers_time() {
    let (value, text) = shown(sample(true), None);
    let found = &value["diffusion"];
    // 2 x 1 MiB x 10,000 x 2 pairs in 2 s.
    assert_eq!(found["aggregate_gb_per_s"], json!(20.97152));
    assert_eq!(value["total"]["rate_bit_per_s"], json!(167_772_160_000.0));
    assert_eq!((&found["side"], &found["pairs"]), (&json!(360), &json!(2)));
    assert_eq!(found["remote"]["work_s"], json!(0.8));
    assert_eq!(found["remote"]["vectors"], json!("avx512"));
    assert_eq!(found["local"]["vectors"], Value::Null);
    assert_eq!(found["same_grid"], json!(true));
    assert_eq!(
        found["local"]["checksums"],
        json!(["0000000000000abc", "0000000000000abc"])
    );
    for words in [
        "grid      360 x 360 doubles in 1 MiB, 10000 round trips, one step each",
        "aggregate 20.972 GB/s   (2 x 20.972 GB of all pairs / 2.000 s)",
        "sum of 2 pairs; real: until the last ended",
        "same grid yes, on both ends of every pair: 0000000000000abc",
        "(avx512)",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
}

#[test]
fn grids_that_differ_are_said_and_flagged() {
    let mut other = sample(true);
    if let Some(grid) = &mut other.remote.flows[1].grid {
        grid.checksum = Checksum(1);
    }
    let (value, text) = shown(other, None);
    assert_eq!(value["diffusion"]["same_grid"], json!(false));
    let flags = value["flags"].as_array().expect("flags");
    assert!(flags.contains(&json!(Flag::GridsDiffer)), "{flags:?}");
    assert!(text.contains("same grid NO"), "{text}");
}

#[test]
fn grids_that_differ_end_the_command_as_a_changed_byte_does() {
    let mut other = sample(true);
    assert!(judge(&other).is_ok());
    other.flags = vec![Flag::SharedKernel, Flag::GridsDiffer];
    let stop = judge(&other).expect_err("a failure");
    let byte = TrafficError::WrongByte {
        flow: 0,
        repetition: 0,
        at: 0,
        expected: 1,
        found: 2,
    };
    let changed: Stop = Failure::from(&byte).into();
    assert_eq!(stop.code, changed.code);
}

#[test]
fn an_end_that_tells_no_checksum_leaves_it_unknown() {
    let mut silent = sample(true);
    silent
        .remote
        .flows
        .iter_mut()
        .for_each(|flow| flow.grid = None);
    let (value, text) = shown(silent, None);
    assert_eq!(value["diffusion"]["same_grid"], Value::Null);
    assert!(text.contains("same grid unknown"), "{text}");
}

#[test]
fn pictures_are_the_first_grids_and_in_the_document() {
    let mut drawn = sample(true);
    if let Some(grid) = &mut drawn.local.flows[0].grid {
        grid.pictures = vec![GridPicture {
            repetitions: 100,
            side: 8,
            blocks: 2,
            means: vec![0, 150, 250, 0],
            section: vec![1.5_f64.to_bits(), 2.5_f64.to_bits()],
        }];
    }
    let (value, _) = shown(drawn, None);
    let value = &value["diffusion"]["pictures"][0];
    assert_eq!(value["means"], json!([[0.0, 1.5], [2.5, 0.0]]));
    assert_eq!(value["section"], json!([1.5, 2.5]));
}

/// A trial of a comparison, counted from 1. What drifts is in both trials of a pair, and drops out: the work takes 0.5 s.
fn compared(spec: &TrialSpec, number: u32) -> Sample {
    let work = matches!(&spec.workload, Workload::Diffusion(one) if one.work);
    let drift = f64::from((number - 1) / 2) * 0.25;
    let mut trial = sample(work);
    let ended = Nanoseconds::from_millis(millis(if work { 1.5 } else { 1.0 } + drift));
    for flow in trial.local.flows.iter_mut().chain(&mut trial.remote.flows) {
        flow.at_ns = vec![ended];
        flow.bytes = vec![Bytes::mib(1)];
    }
    trial
}

#[test]
fn an_interrupt_keeps_the_whole_pairs_before_it_and_of_a_first_one_its_first_trial() {
    let spec = sample(true).spec;
    // Ctrl-C during trial `last`.
    let run = |last: u32| {
        let reached = std::cell::Cell::new(0);
        let trial = |spec: &TrialSpec, number| {
            reached.set(number);
            let mut trial = compared(spec, number);
            if number == last {
                trial.flags.push(Flag::CutShort);
            }
            Ok(trial)
        };
        let ends_early = || reached.get() == last;
        let (sample, overhead) =
            overhead::measure(&spec, 7, Some(3), trial, ends_early).expect("trials that succeed");
        assert_eq!(reached.get(), last);
        (sample, overhead)
    };
    for (last, pairs) in [(7, 3), (8, 3), (13, 6)] {
        let (sample, overhead) = run(last);
        assert!(!sample.flags.contains(&Flag::CutShort));
        let (value, text) = shown(sample, overhead);
        let overhead = &value["overhead"];
        assert_eq!(overhead["pairs"], json!(pairs));
        assert_eq!(overhead["real_s"]["difference"], json!(0.5));
        let has_interval = pairs >= 6;
        assert_eq!(overhead["real_s"]["low"].is_null(), !has_interval);
        assert_eq!(text.contains("500.00 ms [?, ?]"), !has_interval, "{text}");
    }
    for (last, is_part) in [(1, true), (2, false)] {
        let (sample, overhead) = run(last);
        assert_eq!(overhead, None);
        assert_eq!(sample.flags.contains(&Flag::CutShort), is_part);
    }
}

#[test]
fn the_overhead_is_the_median_of_the_differences_within_pairs() {
    let mut worked = 0;
    let spec = sample(true).spec;
    let trial = |spec: &TrialSpec, number| {
        worked += u32::from(matches!(&spec.workload, Workload::Diffusion(one) if one.work));
        Ok(compared(spec, number))
    };
    let (nearest, overhead) =
        overhead::measure(&spec, 7, Some(3), trial, || false).expect("fourteen trials");
    assert_eq!(worked, 7);
    assert_eq!(figures(&nearest).map(|one| one.real_s), Some(2.25));
    let (value, text) = shown(nearest, overhead);
    let real = &value["overhead"]["real_s"];
    for key in ["difference", "low", "high"] {
        assert_eq!(real[key], json!(0.5), "{real}");
    }
    assert_eq!(
        (&real["with"], &real["without"]),
        (&json!(2.25), &json!(1.75))
    );
    assert!(
        text.contains("overhead  of the computation, 7 pairs"),
        "{text}"
    );
    assert!(text.contains("500.00 ms [500.00 ms, 500.00 ms]"), "{text}");
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's time of some seconds"
)]
fn millis(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}
