//! Which device carries a trial that names none, and the behavior of devices other than RoCE. All devices of a
//! process can be chosen, and other tests add theirs: each of these tests is a separate process, this
//! program again with one test.

use std::process::Command;
use std::sync::PoisonError;

use linerate_model::protocol::FailureKind;
use linerate_model::sample::SideSample;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Connect, Direction, Rdma, Rr, Service, Stream, Transfer, TrialSpec, Verb, Verbs, Waiting,
    Workload,
};
use linerate_verbs_fake::{Fake, Fault, Link};

use super::{
    Outcome, TURN, VERBS, carry_out_at, check, compared_pingpong, diffusion, is_real, rdma,
    sizes_of, spec, succeeded,
};

/// Set in a child only.
const ALONE: &str = "LINERATE_TEST_ALONE";

/// Every device has it, and the first one is found there. What connects within this host comes from it.
const FIRST: &str = "127.0.0.1";
/// That of `fake1` alone.
const SECOND: &str = "127.0.0.2";
/// No device has it.
const NOBODY: &str = "127.0.0.99";

/// Runs the test of this name alone, with the devices in `words` (`LINERATE_VERBS_FAKE`).
#[track_caller]
fn alone(name: &str, words: &str, test: impl FnOnce(Fake)) {
    if is_real() {
        eprintln!("SKIP: a real device has one link");
        return;
    }
    if std::env::var_os(ALONE).is_some() {
        test(Fake::install());
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let program = std::env::current_exe().expect("a running program has a file");
    let output = Command::new(program)
        .args(["--exact", &format!("choice::{name}"), "--nocapture"])
        .env(ALONE, "1")
        .env("LINERATE_VERBS_FAKE", words)
        .output()
        .expect("this program runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}{errors}");
}

/// A trial has released everything of the devices (no test has more than two) and of the connection manager.
#[track_caller]
fn given_back() {
    let fake = Fake::install();
    let left = [0, 1].map(|number| fake.numbered(number).alive());
    assert_eq!((left, fake.manager_alive()), ([vec![], vec![]], 0));
}

/// A trial over what the address leads to, where both ends must come to their end.
#[track_caller]
fn both_at(address: &str, spec: &TrialSpec) -> (SideSample, SideSample) {
    let outcome = carry_out_at(address, spec);
    given_back();
    let (near, far) = succeeded(spec, outcome);
    if spec.direction == Direction::Forward {
        check(spec, &near, &far);
    }
    (near, far)
}

/// The devices that carried a trial, with the index of the GID at each end.
#[track_caller]
fn carriers((near, far): &(SideSample, SideSample)) -> [(&str, Option<u32>); 2] {
    [near, far].map(|side| {
        let record = side.flows[0].verbs.as_ref().expect("what carried it");
        (record.device.as_str(), record.gid_index)
    })
}

/// What goes wrong at either end.
#[track_caller]
fn wrong_at(address: &str, spec: &TrialSpec) -> Vec<(FailureKind, String)> {
    let (near, far): (Outcome, Outcome) = carry_out_at(address, spec);
    given_back();
    let errors = [near, far].into_iter().filter_map(Result::err);
    errors
        .map(|error| (error.kind(), error.to_string()))
        .collect()
}

/// A short trial of one verb.
fn plain(verb: Verb) -> TrialSpec {
    TrialSpec {
        duration_ns: Nanoseconds::from_millis(300),
        ..spec(Workload::Rdma(rdma(verb, &sizes_of(verb)[..1])))
    }
}

/// The same, changed.
fn with(spec: TrialSpec, change: impl FnOnce(&mut Verbs)) -> TrialSpec {
    let mut spec = spec;
    change(spec.verbs.get_or_insert_default());
    spec
}

/// Rate and latency of a verb, with every byte compared.
fn compared(verb: Verb) -> [TrialSpec; 2] {
    [false, true].map(|latency| {
        spec(Workload::Rdma(Rdma {
            latency,
            data_check: true,
            ..rdma(verb, sizes_of(verb))
        }))
    })
}

#[test]
fn infiniband_is_chosen_by_its_address_and_carries_every_byte() {
    let name = "infiniband_is_chosen_by_its_address_and_carries_every_byte";
    alone(name, "infiniband,devices=2", |_| {
        for connect in [Connect::Gid, Connect::Cm] {
            for spec in VERBS.into_iter().flat_map(compared) {
                let spec = with(spec, |verbs| verbs.connect = connect);
                let sides = both_at(SECOND, &spec);
                assert_eq!(carriers(&sides), [("fake0", None), ("fake1", None)]);
            }
        }
    });
}

#[test]
fn infiniband_carries_datagrams_within_its_subnet_and_by_a_gid() {
    let name = "infiniband_carries_datagrams_within_its_subnet_and_by_a_gid";
    alone(name, "infiniband,devices=2", |_| {
        for index in [None, Some(0)] {
            for (verb, service) in [
                (Verb::Send, Service::Ud),
                (Verb::Send, Service::Rc),
                (Verb::Read, Service::Rc),
            ] {
                let spec = with(plain(verb), |verbs| {
                    verbs.service = service;
                    verbs.local.gid_index = index;
                    verbs.remote.gid_index = index;
                });
                let sides = both_at(SECOND, &spec);
                assert_eq!(carriers(&sides), [("fake0", index), ("fake1", index)]);
                let (_, far) = sides;
                if service == Service::Ud {
                    let datagrams = far.flows[0].datagrams.as_ref();
                    assert!(datagrams.is_some_and(|seen| seen.count > 0));
                }
            }
        }
        let one_end = with(plain(Verb::Send), |verbs| verbs.local.gid_index = Some(0));
        let errors = wrong_at(SECOND, &one_end);
        let is_said = |(kind, said): &(FailureKind, String)| {
            *kind == FailureKind::NotSupported && said.contains("`--gid-index-remote` go together")
        };
        assert!(errors.iter().any(is_said), "{errors:?}");
    });
}

#[test]
fn infiniband_that_an_address_does_not_lead_to_is_the_last_to_be_chosen() {
    let name = "infiniband_that_an_address_does_not_lead_to_is_the_last_to_be_chosen";
    alone(name, "infiniband,devices=1", |fake| {
        let roce = fake.device_of(Link::Roce);
        let sides = both_at(SECOND, &plain(Verb::Write));
        let [near, far] = carriers(&sides).map(|(device, _)| device);
        assert_eq!([near, far], ["fake1"; 2], "its GIDs are the addresses");
        roce.set(Fault::OpenDenied, 1);
        let errors = wrong_at(SECOND, &plain(Verb::Write));
        let is_said = |(kind, said): &(FailureKind, String)| {
            *kind == FailureKind::Permission && said.contains("fake1")
        };
        assert!(errors.iter().any(is_said), "it is not guessed: {errors:?}");
        let named = with(plain(Verb::Write), |verbs| {
            verbs.local.device = Some("fake0".to_owned());
            verbs.remote.device = Some("fake0".to_owned());
        });
        let sides = both_at(NOBODY, &named);
        assert_eq!(carriers(&sides), [("fake0", None); 2]);
    });
}

#[test]
fn iwarp_is_chosen_by_its_address_and_carries_every_byte_of_every_verb_that_it_has() {
    let name = "iwarp_is_chosen_by_its_address_and_carries_every_byte_of_every_verb_that_it_has";
    alone(name, "iwarp,devices=2", |_| {
        for verb in [Verb::Write, Verb::Read, Verb::Send] {
            for spec in compared(verb) {
                let sides = both_at(SECOND, &spec);
                assert_eq!(carriers(&sides), [("fake0", None), ("fake1", None)]);
                let record = sides.0.flows[0].verbs.as_ref();
                assert_eq!(
                    record.and_then(|record| record.mtu),
                    None,
                    "TCP has its own"
                );
            }
            for waiting in [Waiting::Spin, Waiting::Blocking] {
                let spec = TrialSpec {
                    waiting,
                    ..plain(verb)
                };
                both_at(SECOND, &spec);
            }
        }
    });
}

#[test]
fn several_queue_pairs_of_iwarp_are_told_apart_in_both_directions() {
    let name = "several_queue_pairs_of_iwarp_are_told_apart_in_both_directions";
    alone(name, "iwarp,devices=2", |_| {
        let ways = [
            (Direction::Forward, 4),
            (Direction::Reverse, 4),
            (Direction::Bidirectional, 8),
        ];
        for (direction, sending) in ways {
            let spec = TrialSpec {
                flows: 4,
                threads: Some(2),
                direction,
                ..plain(Verb::Write)
            };
            let (near, far) = both_at(SECOND, &spec);
            assert_eq!(near.senders().count() + far.senders().count(), sending);
        }
    });
}

#[test]
fn a_message_of_iwarp_is_sent_when_there_is_room_for_it() {
    let name = "a_message_of_iwarp_is_sent_when_there_is_room_for_it";
    alone(name, "iwarp,devices=2", |_| {
        // With a depth of 7 credits are returned in twos, and the last messages are not a whole batch.
        for (depth, flows) in [(1, 1), (7, 3), (128, 2)] {
            let stream = Workload::Stream(Stream {
                bytes: Some(Bytes::new(3_000_001)),
                ..Stream::default()
            });
            // What one size leaves in flight is reported during the next one.
            let sizes = Workload::Rdma(Rdma {
                repetitions: Some(500),
                ..rdma(Verb::Send, sizes_of(Verb::Send))
            });
            let sends = [sizes, stream];
            for (workload, waiting) in sends.into_iter().zip([Waiting::Spin, Waiting::Blocking]) {
                let spec = TrialSpec {
                    flows,
                    waiting,
                    direction: Direction::Bidirectional,
                    buffer_bytes: Bytes::new(1_000),
                    duration_ns: Nanoseconds::from_millis(20_000),
                    ..with(spec(workload), |verbs| verbs.depth = depth)
                };
                both_at(SECOND, &spec);
            }
        }
    });
}

#[test]
fn every_workload_goes_over_iwarp() {
    alone("every_workload_goes_over_iwarp", "iwarp,devices=2", |_| {
        let workloads = [
            compared_pingpong(),
            diffusion(10, true),
            Workload::Stream(Stream {
                bytes: Some(Bytes::new(1_000_001)),
                data_check: true,
                ..Stream::default()
            }),
            Workload::Transfer(Transfer {
                bytes: Bytes::new(100_001),
                repetitions: Some(5),
                data_check: true,
            }),
        ];
        for workload in workloads {
            for waiting in [Waiting::Spin, Waiting::Blocking] {
                let spec = TrialSpec {
                    waiting,
                    buffer_bytes: Bytes::kib(8),
                    duration_ns: Nanoseconds::from_millis(20_000),
                    ..spec(workload.clone())
                };
                let sides = both_at(SECOND, &spec);
                assert_eq!(carriers(&sides), [("fake0", None), ("fake1", None)]);
            }
        }
        let asked = spec(Workload::Rr(Rr {
            request_bytes: Bytes::new(100),
            response_bytes: Bytes::new(3_000),
            depth: 4,
            connect_each: false,
            rate_per_s: None,
        }));
        both_at(SECOND, &asked);
    });
}

#[test]
fn what_iwarp_does_not_have_is_refused() {
    alone(
        "what_iwarp_does_not_have_is_refused",
        "iwarp,devices=2",
        |_| {
            let write = || plain(Verb::Write);
            let by_index = |verbs: &mut Verbs| {
                verbs.local.gid_index = Some(0);
                verbs.remote.gid_index = Some(0);
            };
            for spec in [
                with(plain(Verb::Send), |verbs| verbs.service = Service::Ud),
                with(write(), |verbs| verbs.mtu = Some(512)),
                with(write(), |verbs| verbs.service_level = 3),
                with(write(), by_index),
                plain(Verb::Atomic),
            ] {
                let errors = wrong_at(FIRST, &spec);
                let mut kinds = errors.iter().map(|(kind, _)| *kind);
                let is_refused = kinds.any(|kind| kind == FailureKind::NotSupported);
                assert!(is_refused, "{:?}: {errors:?}", spec.verbs);
            }
        },
    );
}

#[test]
fn a_device_that_cannot_be_opened_hides_no_other() {
    let name = "a_device_that_cannot_be_opened_hides_no_other";
    alone(name, "devices=2", |fake| {
        let [broken, well] = [0, 1].map(|number| fake.numbered(number));
        for fault in [Fault::OpenDenied, Fault::NodeMissing, Fault::Gone] {
            broken.set(fault, 1);
            let sides = both_at(SECOND, &plain(Verb::Write));
            let [near, far] = carriers(&sides).map(|(device, _)| device);
            assert_eq!([near, far], ["fake1"; 2], "{fault:?}");
            broken.set(fault, 0);
        }
        for device in [broken, well] {
            device.set(Fault::OpenDenied, 1);
        }
        let errors = wrong_at(SECOND, &plain(Verb::Write));
        let is_said = |(kind, said): &(FailureKind, String)| {
            *kind == FailureKind::Permission && said.contains("fake0")
        };
        assert!(errors.iter().any(is_said), "{errors:?}");
    });
}

#[test]
fn roce_without_gids_is_refused_with_where_to_look() {
    let name = "roce_without_gids_is_refused_with_where_to_look";
    alone(name, "no-gids,devices=2", |_| {
        for connect in [Connect::Gid, Connect::Cm] {
            let spec = with(plain(Verb::Write), |verbs| verbs.connect = connect);
            let errors = wrong_at(SECOND, &spec);
            for (address, end) in [(FIRST, "near"), (SECOND, "far")] {
                let says = format!("no port of fake0, fake1 has the GID of {address} ");
                let is_it = |(kind, said): &(FailureKind, String)| {
                    *kind == FailureKind::NotSupported && said.contains(&says)
                };
                assert!(errors.iter().any(is_it), "{end}: {errors:?}");
            }
        }
    });
}
