//! The simulated path compared with its own truth: other tests lean on it, so it must not lie.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec};
use linerate_traffic::simulated::SimulatedPath;

use crate::both_ends::{check_record, spec};

const BASE: BitRate = BitRate::from_mbit_per_s(20_000);

fn settings(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// All that the receivers of `side` got, over the duration.
fn rate(side: &SideSample, spec: &TrialSpec) -> f64 {
    let bytes: u64 = side.receivers().map(|flow| flow.total().as_u64()).sum();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let bits = (bytes * 8) as f64;
    bits / spec.duration_ns.as_secs_f64()
}

fn assert_near(measured: f64, truth: f64, tolerance: f64) {
    let error = (measured / truth - 1.0).abs();
    assert!(
        error <= tolerance,
        "measured {measured}, truth {truth}: off by {error}"
    );
}

#[test]
fn without_noise_a_trial_is_the_truth() {
    let path = SimulatedPath {
        factors: BTreeMap::from([("a".to_owned(), 0.5), ("b".to_owned(), 1.2)]),
        ..SimulatedPath::exact(1, BASE)
    };
    let spec = spec(4, Direction::Forward);
    for (names, truth) in [(&[][..], 1.0), (&["a"], 0.5), (&["a", "b", "none"], 0.6)] {
        let sample = path
            .trial(&spec, &settings(names), 0)
            .expect("a good specification");
        assert_near(rate(&sample.remote, &spec), BASE.as_f64() * truth, 1e-6);
        assert_near(
            path.true_rate(&settings(names)).as_f64(),
            BASE.as_f64() * truth,
            1e-9,
        );
    }
}

#[test]
fn a_shaper_hides_what_the_settings_do() {
    let path = SimulatedPath {
        factors: BTreeMap::from([("fast".to_owned(), 3.0)]),
        cap: Some(BitRate::from_mbit_per_s(5_000)),
        ..SimulatedPath::exact(1, BASE)
    };
    assert_eq!(
        path.true_rate(&settings(&["fast"])),
        path.true_rate(&settings(&[]))
    );
}

#[test]
fn the_mean_of_many_noisy_trials_is_the_truth_and_their_spread_is_as_stated() {
    let path = SimulatedPath {
        noise_sd: 0.05,
        reading_noise_sd: 0.1,
        ..SimulatedPath::exact(42, BASE)
    };
    let spec = spec(1, Direction::Forward);
    let rates: Vec<f64> = (0..4_000)
        .map(|trial| {
            let sample = path
                .trial(&spec, &settings(&[]), trial)
                .expect("a good specification");
            rate(&sample.remote, &spec)
        })
        .collect();
    let mean = rates.iter().sum::<f64>() / 4_000.0;
    // The standard error is 0.06 / sqrt(4000), about 0.1 %: four of them.
    assert_near(mean, BASE.as_f64(), 0.004);
    let variance = rates
        .iter()
        .map(|rate| (rate / mean - 1.0).powi(2))
        .sum::<f64>()
        / 3_999.0;
    // Twelve readings of 10 % each make 2.9 % of the mean, beside 5 % between trials: 5.8 %.
    assert_near(variance.sqrt(), 0.0577, 0.1);
}

#[test]
fn outliers_come_as_often_as_stated_and_drift_adds_up() {
    let path = SimulatedPath {
        outlier_probability: 0.2,
        outlier_factor: 0.5,
        ..SimulatedPath::exact(7, BASE)
    };
    let spec = spec(1, Direction::Reverse);
    let rate_of = |path: &SimulatedPath, trial| {
        let sample = path
            .trial(&spec, &settings(&[]), trial)
            .expect("a good specification");
        rate(&sample.local, &spec)
    };
    let outliers = (0..2_000)
        .filter(|&trial| rate_of(&path, trial) < BASE.as_f64() * 0.75)
        .count();
    // Binomial: 400 expected, standard deviation 18.
    assert!((320..480).contains(&outliers), "{outliers}");

    let drifting = SimulatedPath {
        drift_per_trial: -0.01,
        ..SimulatedPath::exact(7, BASE)
    };
    assert_near(rate_of(&drifting, 10), BASE.as_f64() * 0.9, 1e-6);
}

#[test]
fn after_the_slow_start_the_readings_rise_at_the_true_rate() {
    let path = SimulatedPath {
        ramp: Nanoseconds::from_millis(40),
        ..SimulatedPath::exact(3, BASE)
    };
    let spec = spec(1, Direction::Forward);
    let sample = path
        .trial(&spec, &settings(&[]), 0)
        .expect("a good specification");
    let flow = &sample.remote.flows[0];
    let step = |index: usize| flow.bytes[index].as_u64() - flow.bytes[index - 1].as_u64();
    for index in [5, 6, 11] {
        // 10 ms at 20 Gb/s; the counter holds whole bytes.
        assert!(step(index).abs_diff(25_000_000) <= 1, "{}", step(index));
    }
    assert!(step(1) < step(11) / 2, "the start is slow");
}

#[test]
fn a_simulated_sample_is_whole_and_the_same_every_time() {
    let path = SimulatedPath {
        noise_sd: 0.02,
        reading_noise_sd: 0.3,
        ..SimulatedPath::exact(9, BASE)
    };
    let spec = spec(3, Direction::Bidirectional);
    let make = |trial| -> Sample {
        path.trial(&spec, &settings(&[]), trial)
            .expect("a good specification")
    };
    let sample = make(5);
    assert_eq!(sample, make(5));
    assert_ne!(sample, make(6));
    assert_eq!(sample.local.flows.len(), 6);
    for (here, there) in sample.local.flows.iter().zip(&sample.remote.flows) {
        check_record(here, &spec);
        assert_eq!((here.flow, here.total()), (there.flow, there.total()));
        assert_ne!(here.role, there.role);
    }
}
