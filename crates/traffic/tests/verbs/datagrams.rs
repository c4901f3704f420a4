//! Unreliable datagrams: what arrives is counted, and what is lost holds nobody up.

use linerate_model::protocol::FailureKind;
use linerate_model::sample::SideSample;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{Rdma, Service, TrialSpec, Verb, Waiting, Workload};
use linerate_verbs_fake::{Fake, Fault};

use super::{both, carry_out, check, is_real, rdma, spec, wrong};

#[test]
fn datagrams_are_sent_and_counted() {
    for latency in [false, true] {
        for data_check in [false, is_real()] {
            let mut spec = spec(Workload::Rdma(Rdma {
                latency,
                data_check,
                ..rdma(Verb::Send, &[2, 1_024])
            }));
            spec.verbs.get_or_insert_default().service = Service::Ud;
            let (near, far) = both(&spec);
            check(&spec, &near, &far);
        }
    }
}

/// Round trips of datagrams, so many beside that of the warm-up.
fn datagrams_to_and_fro(repetitions: u64, waiting: Waiting) -> TrialSpec {
    let mut spec = TrialSpec {
        waiting,
        duration_ns: Nanoseconds::from_millis(20_000),
        ..spec(Workload::Rdma(Rdma {
            latency: true,
            repetitions: Some(repetitions),
            ..rdma(Verb::Send, &[64])
        }))
    };
    spec.verbs.get_or_insert_default().service = Service::Ud;
    spec
}

#[test]
fn a_round_trip_of_a_lost_datagram_is_unanswered_and_the_next_one_is_made() {
    if is_real() {
        eprintln!("SKIP: a real device loses nothing on demand");
        return;
    }
    // Of five round trips the 7th datagram asks in the fourth, and the 6th answers in the third.
    for (lost, arrived) in [(7, 4), (6, 5)] {
        for waiting in [Waiting::Spin, Waiting::Blocking] {
            let device = Fake::install().device();
            device.set(Fault::LoseEvery, lost);
            let (near, far) = carry_out(&datagrams_to_and_fro(4, waiting), Some(&device));
            assert_eq!(device.alive(), [], "everything was given back");
            let (near, far) = (near.expect("no failure"), far.expect("no failure"));
            let count = |side: &SideSample| side.flows[0].datagrams.as_ref().map(|seen| seen.count);
            assert_eq!((count(&near), count(&far)), (Some(5), Some(arrived)));
            let operations = near.operations.expect("the asking end counts");
            assert_eq!((operations.completed, operations.unanswered), (3, 1));
            assert_eq!(operations.sizes[0].one_way.count(), 3);
        }
    }
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_datagram() {
    if is_real() {
        eprintln!("SKIP: a real device is not late on demand");
        return;
    }
    // Each way takes 1.2 s: the first answer comes while the third one is waited for.
    let spec = datagrams_to_and_fro(2, Waiting::Spin);
    let errors = wrong(&spec, Fault::DelayMicroseconds, 1_200_000).join("; ");
    assert!(
        errors.contains("none of 3 datagrams was answered"),
        "{errors}"
    );
}

#[test]
fn a_path_that_carries_no_datagram_is_a_time_out_soon_after_the_end() {
    if is_real() {
        eprintln!("SKIP: a real device loses nothing on demand");
        return;
    }
    let device = Fake::install().device();
    device.set(Fault::LoseEvery, 1);
    let spec = TrialSpec {
        flows: 3,
        threads: Some(1),
        duration_ns: Nanoseconds::from_millis(300),
        ..datagrams_to_and_fro(1_000, Waiting::Blocking)
    };
    let (near, _) = carry_out(&spec, Some(&device));
    let error = near.expect_err("nothing came");
    assert_eq!(error.kind(), FailureKind::TimeOut, "{error}");
    // The trial is over while the first one is waited for, and the other flows' are not sent any more.
    assert_eq!(device.messages(), 1);
}

#[test]
fn lost_datagrams_show_as_the_difference_of_both_counts() {
    if is_real() {
        eprintln!("SKIP: a real device loses nothing on demand");
        return;
    }
    let device = Fake::install().device();
    device.set(Fault::LoseEvery, 10);
    // No more than the receiver has room for before it takes the first one: what has no room is lost too.
    let mut spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(20_000),
        ..spec(Workload::Rdma(Rdma {
            repetitions: Some(200),
            ..rdma(Verb::Send, &[512])
        }))
    };
    spec.verbs.get_or_insert_default().service = Service::Ud;
    let (near, far) = carry_out(&spec, Some(&device));
    let (near, far) = (near.expect("no failure"), far.expect("no failure"));
    let count = |side: &SideSample| side.flows[0].datagrams.as_ref().map(|seen| seen.count);
    assert_eq!((count(&near), count(&far)), (Some(200), Some(180)));
}
