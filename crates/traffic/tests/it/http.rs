//! Trials of `http` between two ends: what both record, compared with each other.

use linerate_model::sample::{Operations, Role, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Http, TrialSpec, Waiting, Workload};
use linerate_traffic::TrafficError;
use linerate_traffic::http::SOURCE_BODY;
use linerate_traffic::tcp::Connected;

use crate::both_ends::{TOKEN, abort, check_record, hang_guard, listen, read_byte, run_both};

/// `flows` connections on `threads` threads, closed loop, for a short time.
pub(crate) fn http_spec(flows: u32, threads: u32) -> TrialSpec {
    TrialSpec {
        workload: Workload::Http(Http {
            path: "/".to_owned(),
            body_bytes: SOURCE_BODY,
            rate_per_s: None,
            server: None,
        }),
        threads: Some(threads),
        duration_ns: Nanoseconds::from_millis(250),
        ..crate::both_ends::spec(flows, Direction::Forward)
    }
}

/// The same at a rate.
pub(crate) fn at_rate(mut spec: TrialSpec, rate: u64) -> TrialSpec {
    if let Workload::Http(http) = &mut spec.workload {
        http.rate_per_s = Some(rate);
    }
    spec
}

fn with_body(mut spec: TrialSpec, body: Bytes) -> TrialSpec {
    if let Workload::Http(http) = &mut spec.workload {
        http.body_bytes = body;
    }
    spec
}

pub(crate) fn operations(side: &SideSample) -> &Operations {
    side.operations
        .as_ref()
        .expect("the end that asks has them")
}

/// What must hold of every client's record.
pub(crate) fn check_operations(side: &SideSample, spec: &TrialSpec) {
    let asked = operations(side);
    assert_eq!(asked.latency.count(), asked.completed);
    assert_eq!(asked.per_thread.len(), spec.threads() as usize);
    assert_eq!(asked.per_thread.iter().sum::<u64>(), asked.completed);
    assert!(
        asked
            .steps
            .windows(2)
            .all(|two| two[0].at_ns < two[1].at_ns && two[0].completed <= two[1].completed)
    );
    let last = asked.steps.last().expect("at least the end");
    assert_eq!(last.completed, asked.completed);
    side.check(spec).expect("a record of this trial");
}

/// Runs both ends, and gives the client's and the server's record.
fn run(spec: &TrialSpec, answer: u64) -> (SideSample, SideSample) {
    let (near, far) = run_both(spec);
    let (near, far) = (near.expect("the near end"), far.expect("the far end"));
    let (client, server) = match spec.direction {
        Direction::Reverse => (far, near),
        _ => (near, far),
    };
    check_operations(&client, spec);
    let asked = operations(&client);
    assert_eq!(asked.failed, 0);
    assert!(asked.completed > 0, "something was answered");
    for flow in client.flows.iter().chain(&server.flows) {
        check_record(flow, spec);
    }
    if spec.direction != Direction::Bidirectional {
        let received = asked.received_bytes.as_u64();
        assert!(
            received >= asked.completed * answer,
            "{received} of {}",
            asked.completed
        );
        for (there, here) in server.flows.iter().zip(&client.flows) {
            assert_eq!((there.role, here.role), (Role::Receiver, Role::Sender));
            assert!(there.total() >= here.total(), "what was received was sent");
        }
    }
    (client, server)
}

#[test]
fn ten_connections_on_two_threads_are_answered_with_the_sources_151_bytes() {
    let spec = http_spec(10, 2);
    let (client, server) = run(&spec, 151);
    assert_eq!((client.flows.len(), server.flows.len()), (2, 2));
    assert_eq!((client.threads.len(), server.threads.len()), (2, 2));
    assert!(server.operations.is_none());
    let asked = operations(&client);
    assert_eq!(asked.received_bytes.as_u64() % 151, 0, "whole answers only");
    assert!(
        asked.service.is_none(),
        "closed loop has one kind of latency"
    );
}

#[test]
fn the_peer_asks_in_reverse() {
    run(
        &TrialSpec {
            direction: Direction::Reverse,
            ..http_spec(3, 2)
        },
        151,
    );
}

#[test]
fn both_ends_ask_at_once() {
    let spec = TrialSpec {
        direction: Direction::Bidirectional,
        ..http_spec(3, 1)
    };
    let (near, far) = run_both(&spec);
    for side in [near.expect("near"), far.expect("far")] {
        check_operations(&side, &spec);
        assert_eq!((operations(&side).failed, side.flows.len()), (0, 2));
    }
}

#[test]
fn bodies_of_nothing_and_of_megabytes_arrive_whole() {
    for (body, head) in [(0u64, 38), (3 << 20, 44)] {
        run(&with_body(http_spec(2, 1), Bytes::new(body)), body + head);
    }
}

#[test]
fn open_loop_never_asks_more_than_its_rate() {
    let spec = at_rate(http_spec(7, 2), 2_000);
    let (client, _) = run(&spec, 151);
    let asked = operations(&client);
    let seconds = client.elapsed_ns.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let completed = asked.completed as f64;
    assert!(
        completed <= 2_000.0 * seconds + 2.0,
        "{completed} in {seconds} s"
    );
    let service = asked
        .service
        .as_ref()
        .expect("open loop has both kinds of latency");
    assert_eq!(service.count(), asked.completed);
    assert!(
        service.max() <= asked.latency.max(),
        "late never looks early"
    );
}

#[test]
fn a_thread_may_spin_or_poll_its_device() {
    run(
        &TrialSpec {
            waiting: Waiting::Spin,
            ..http_spec(2, 1)
        },
        151,
    );
    if !rustix::process::geteuid().is_root() {
        skip("SO_BUSY_POLL above the sysctl needs CAP_NET_ADMIN");
        return;
    }
    run(
        &TrialSpec {
            waiting: Waiting::BusyPoll(20),
            ..http_spec(2, 1)
        },
        151,
    );
}

#[test]
fn a_way_of_waiting_that_http_does_not_have_is_named() {
    let (near, _) = run_both(&TrialSpec {
        waiting: Waiting::UringSqpoll,
        ..http_spec(1, 1)
    });
    let error = near.expect_err("refused").to_string();
    assert!(
        error.contains("uring-sqpoll") && error.contains("busy-poll"),
        "{error}"
    );
}

#[test]
fn more_connections_than_are_made_before_the_start_are_all_served() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(1_000),
        ..http_spec(1_500, 1)
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if limit.is_some_and(|limit| limit < 4_096) {
        skip(&format!(
            "3,000 sockets need more file descriptors than {limit:?}"
        ));
        return;
    }
    run(&spec, 151);
}

#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
pub(crate) fn skip(why: &str) {
    eprintln!("SKIP: {why}");
}

#[test]
fn a_server_that_dies_ends_its_client_and_the_other_way_round() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(100),
        ..http_spec(2, 1)
    };
    for client_dies in [true, false] {
        let (listening, address) = listen(&spec);
        let (near_abort, far_abort) = (abort(), abort());
        std::thread::scope(|scope| {
            let far = scope.spawn(|| listening.accept(hang_guard(), &far_abort)?.run(&far_abort));
            let near = Connected::connect(&spec, address, TOKEN, hang_guard(), &near_abort);
            let near = near.expect("every connection is accepted");
            let near = scope.spawn(|| near.run(&near_abort));
            let (dies, lives) = if client_dies {
                near_abort.trigger();
                (near, far)
            } else {
                far_abort.trigger();
                (far, near)
            };
            let dies = dies.join().expect("no panic");
            let lives = lives.join().expect("no panic");
            assert!(matches!(dies, Err(TrafficError::Aborted)), "{dies:?}");
            assert!(lives.is_err(), "{lives:?}");
        });
    }
}

#[test]
fn a_peer_that_never_tells_its_port_is_given_up() {
    let spec = TrialSpec {
        direction: Direction::Reverse,
        ..http_spec(1, 1)
    };
    let (listening, address) = listen(&spec);
    let abort = abort();
    let outcome = std::thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
        let mut peer = crate::both_ends::hand_made_peer(address, 0);
        abort.trigger();
        while read_byte(&mut peer).is_some() {}
        far.join().expect("no panic")
    });
    assert!(matches!(outcome, Err(TrafficError::Aborted)), "{outcome:?}");
}

#[test]
fn a_client_that_leaves_early_is_told_from_one_that_has_done() {
    let spec = http_spec(1, 1);
    let (listening, address) = listen(&spec);
    let abort = abort();
    let outcome = std::thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
        let mut peer = crate::both_ends::hand_made_peer(address, 0);
        assert!(
            read_byte(&mut peer).is_some() && read_byte(&mut peer).is_some(),
            "a port"
        );
        std::io::Write::write_all(&mut peer, &[0x52]).expect("open");
        assert_eq!(
            (read_byte(&mut peer), read_byte(&mut peer)),
            (Some(0x52), Some(0x47))
        );
        drop(peer);
        far.join().expect("no panic")
    });
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "{outcome:?}"
    );
}
