//! Thousands of flows on one pair of threads, and the error for a limit of file descriptors that is too low.

use std::process::Command;
use std::thread;

use linerate_model::protocol::FailureKind;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Direction, ReceiveMode, SendMode, Stream, TrialSpec, Waiting, Workload,
};
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::{Connected, Listening};

use crate::both_ends::{TOKEN, abort, hang_guard, run_both, spec};
use crate::stream_modes::stream;

/// Set in the process that a test starts again under a lower limit.
const AGAIN: &str = "LINERATE_TEST_UNDER_A_LOW_LIMIT";

#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn skip(why: &str) {
    eprintln!("SKIP: {why}");
}

#[test]
fn two_thousand_flows_on_one_thread_pair_are_all_served() {
    for (send, receive) in [
        (SendMode::Write, ReceiveMode::Read),
        (SendMode::Uring, ReceiveMode::Uring),
    ] {
        let spec = TrialSpec {
            threads: Some(1),
            duration_ns: Nanoseconds::from_millis(3_000),
            interval_ns: Nanoseconds::from_millis(300),
            // Small ones: what is asked about is their number, not the memory of the kernel.
            socket_buffer_bytes: Some(Bytes::kib(16)),
            ..stream(send, receive, 2_000)
        };
        let (near, far) = match run_both(&spec) {
            (Ok(near), Ok(far)) => (near, far),
            (near, far) => {
                let failed = near.err().or(far.err()).expect("one of them");
                let lacking = matches!(
                    failed.kind(),
                    FailureKind::NotSupported | FailureKind::Permission | FailureKind::Resource
                );
                assert!(lacking, "{failed}");
                skip(&format!("2000 flows, {send} to {receive}: {failed}"));
                continue;
            }
        };
        assert_eq!((near.threads.len(), far.threads.len()), (1, 1));
        assert_eq!((near.flows.len(), far.flows.len()), (2_000, 2_000));
        for (here, there) in near.flows.iter().zip(&far.flows) {
            assert_eq!(here.total(), there.total(), "flow {}", here.flow);
            assert!(here.total() > Bytes::new(0), "flow {} starved", here.flow);
        }
    }
}

#[test]
fn a_thousand_flows_of_a_stated_amount_end_when_the_last_byte_is_there() {
    let spec = TrialSpec {
        threads: Some(2),
        duration_ns: Nanoseconds::from_millis(400_000),
        interval_ns: Nanoseconds::from_millis(1_000),
        workload: Workload::Stream(Stream {
            bytes: Some(Bytes::new(10_000_019)),
            ..Stream::default()
        }),
        ..spec(1_000, Direction::Bidirectional)
    };
    match run_both(&spec) {
        (Ok(near), Ok(far)) => {
            for side in [&near, &far] {
                let received: u64 = side.receivers().map(|flow| flow.total().as_u64()).sum();
                assert_eq!(received, 10_000_019);
            }
        }
        (near, far) => {
            let failed = near.err().or(far.err()).expect("one of them");
            assert_eq!(failed.kind(), FailureKind::Resource, "{failed}");
            skip(&format!("1000 flows each way: {failed}"));
        }
    }
}

#[test]
fn a_limit_of_files_that_is_too_low_says_what_is_needed_before_anything_is_opened() {
    if std::env::var_os(AGAIN).is_some() {
        let spec = TrialSpec {
            threads: Some(1),
            ..spec(1_000, Direction::Forward)
        };
        let nobody = (std::net::Ipv4Addr::LOCALHOST, 1).into();
        let opened = Listening::open(&spec, TOKEN, "127.0.0.1").map(drop);
        let connected = Connected::connect(&spec, nobody, TOKEN, hang_guard(), &abort()).map(drop);
        for outcome in [opened, connected] {
            let Err(error @ TrafficError::FileLimit { .. }) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(error.kind(), FailureKind::Resource);
            let said = error.to_string();
            assert!(
                said.contains("limit is 512") && said.contains("ulimit -n 1"),
                "{said}"
            );
        }
        return;
    }
    under(
        "ulimit -n 512",
        "a_limit_of_files_that_is_too_low_says_what_is_needed_before_anything_is_opened",
    );
}

#[test]
fn a_soft_limit_of_files_is_raised_as_far_as_needed() {
    if std::env::var_os(AGAIN).is_some() {
        let (near, far) = run_both(&TrialSpec {
            threads: Some(1),
            ..spec(300, Direction::Forward)
        });
        assert!(near.is_ok() && far.is_ok(), "{near:?} {far:?}");
        return;
    }
    under(
        "ulimit -Sn 256",
        "a_soft_limit_of_files_is_raised_as_far_as_needed",
    );
}

/// Runs the test `name` of this file again in a separate process, after `limit` in its shell.
fn under(limit: &str, name: &str) {
    let program = std::env::current_exe().expect("a test is a file");
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("{limit} && exec \"$0\" --exact \"$1\" --nocapture"),
        ])
        .arg(program)
        .arg(format!("stream_crowd::{name}"))
        .env(AGAIN, "1")
        .output()
        .expect("every system has a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "it ran: {said}");
}

#[test]
fn a_few_flows_that_spin_leave_room_for_each_other() {
    let spec = TrialSpec {
        threads: Some(1),
        waiting: Waiting::Spin,
        ..stream(SendMode::Write, ReceiveMode::Read, 16)
    };
    let (near, far) = thread::spawn(move || run_both(&spec))
        .join()
        .expect("no panic");
    let (near, far) = (near.expect("the near end"), far.expect("the far end"));
    for (here, there) in near.flows.iter().zip(&far.flows) {
        assert_eq!(here.total(), there.total(), "flow {}", here.flow);
    }
}
