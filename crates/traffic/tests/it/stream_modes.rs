//! The ways payload gets into and out of the kernel, the ways of waiting, several flows a thread, and a
//! stated amount: both ends count the same bytes, whatever carries them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_model::sample::{FlowRecord, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Direction, ReceiveMode, SendMode, Stream, TrialSpec, Waiting, Workload,
};
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::Listening;

use crate::both_ends::{Outcome, TOKEN, abort, check_record, run_against, run_both, spec};

pub(crate) const SENDS: [SendMode; 6] = [
    SendMode::Write,
    SendMode::Zerocopy,
    SendMode::Sendfile,
    SendMode::Splice,
    SendMode::Uring,
    SendMode::UringZerocopy,
];

pub(crate) const RECEIVES: [ReceiveMode; 4] = [
    ReceiveMode::Read,
    ReceiveMode::Trunc,
    ReceiveMode::Zerocopy,
    ReceiveMode::Uring,
];

pub(crate) fn stream(send: SendMode, receive: ReceiveMode, flows: u32) -> TrialSpec {
    TrialSpec {
        workload: Workload::Stream(Stream {
            send,
            receive,
            bytes: None,
            data_check: false,
        }),
        // So long that something moves in each of them on a busy machine, too.
        duration_ns: Nanoseconds::from_millis(250),
        ..spec(flows, Direction::Forward)
    }
}

/// The same, of a stated amount.
fn amount(mut spec: TrialSpec, bytes: u64) -> TrialSpec {
    if let Workload::Stream(stream) = &mut spec.workload {
        stream.bytes = Some(Bytes::new(bytes));
    }
    // So long that a trial which does not end by itself hangs visibly.
    spec.duration_ns = Nanoseconds::from_millis(3_600_000);
    spec.interval_ns = Nanoseconds::from_millis(100);
    spec
}

/// Both ends' records; `None` with a message on stderr, if this kernel lacks or forbids the mode, or if other
/// programs of this user hold the memory that it may lock.
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn there(what: &str, (near, far): (Outcome, Outcome)) -> Option<(SideSample, SideSample)> {
    let lacking = |outcome: &Outcome| {
        matches!(
            outcome,
            Err(TrafficError::NotSupported { .. }
                | TrafficError::NotPermitted { .. }
                | TrafficError::LockedMemory { .. })
        )
    };
    if lacking(&near) || lacking(&far) {
        eprintln!("SKIP: {what}: {near:?} {far:?}");
        return None;
    }
    match (near, far) {
        (Ok(near), Ok(far)) => Some((near, far)),
        (near, far) => panic!("{what}: {near:?} {far:?}"),
    }
}

fn check(what: &str, spec: &TrialSpec, near: &SideSample, far: &SideSample) {
    assert_eq!(near.flows.len(), far.flows.len(), "{what}");
    for (here, there) in near.flows.iter().zip(&far.flows) {
        assert_eq!(here.flow, there.flow, "{what}");
        assert_eq!(here.total(), there.total(), "{what}, flow {}", here.flow);
        if !matches!(&spec.workload, Workload::Stream(stream) if stream.bytes.is_some()) {
            check_record(here, spec);
            check_record(there, spec);
        }
    }
    let moved: u64 = near.flows.iter().map(|flow| flow.total().as_u64()).sum();
    assert!(moved > 0, "{what}");
}

fn run_over(address: IpAddr, spec: &TrialSpec) -> (Outcome, Outcome) {
    let listening = Listening::open(spec, TOKEN, &address.to_string()).expect("a free port");
    let port = listening.port();
    run_against(spec, listening, (address, port).into(), &abort())
}

fn every_pair_over(address: IpAddr) {
    for send in SENDS {
        for receive in RECEIVES {
            let what = format!("{send} to {receive} over {address}");
            let spec = stream(send, receive, 1);
            let Some((near, far)) = there(&what, run_over(address, &spec)) else {
                continue;
            };
            check(&what, &spec, &near, &far);
            let copies = near.flows[0].copies;
            match send {
                SendMode::Zerocopy | SendMode::UringZerocopy => {
                    let copies = copies.unwrap_or_else(|| panic!("{what}: its copies are told"));
                    // The loopback hands the sender's pages to a receiver, and so copies them first.
                    assert!(copies.zerocopy_sends > 0, "{what}: {copies:?}");
                    assert_eq!(copies.copied_after_all, copies.zerocopy_sends, "{what}");
                }
                _ => assert_eq!(copies, None, "{what}"),
            }
            if let (ReceiveMode::Zerocopy, Some(copies)) = (receive, far.flows[0].copies) {
                assert!(copies.mapped_bytes <= far.flows[0].total(), "{what}");
            }
        }
    }
}

#[test]
fn every_way_of_sending_reaches_every_way_of_receiving_over_ipv4() {
    every_pair_over(Ipv4Addr::LOCALHOST.into());
}

#[test]
fn every_way_of_sending_reaches_every_way_of_receiving_over_ipv6() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        skip("no IPv6 loopback here");
        return;
    }
    every_pair_over(Ipv6Addr::LOCALHOST.into());
}

#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn skip(why: &str) {
    eprintln!("SKIP: {why}");
}

#[test]
fn three_flows_on_two_threads_are_all_served_in_every_way() {
    let modes = SENDS.iter().zip(RECEIVES.iter().cycle());
    for (&send, &receive) in modes {
        let what = format!("3 flows on 2 threads, {send} to {receive}");
        let spec = TrialSpec {
            threads: Some(2),
            ..stream(send, receive, 3)
        };
        let Some((near, far)) = there(&what, run_both(&spec)) else {
            continue;
        };
        check(&what, &spec, &near, &far);
        assert_eq!((near.threads.len(), far.threads.len()), (2, 2), "{what}");
        let served: Vec<u32> = near.flows.iter().map(|flow| flow.thread).collect();
        assert_eq!(served, [0, 1, 0], "{what}");
    }
}

#[test]
fn flows_of_one_thread_get_equal_turns() {
    let spec = TrialSpec {
        threads: Some(1),
        duration_ns: Nanoseconds::from_millis(400),
        ..stream(SendMode::Write, ReceiveMode::Read, 8)
    };
    let (near, far) = there("8 flows on 1 thread", run_both(&spec)).expect("every kernel");
    check("8 flows on 1 thread", &spec, &near, &far);
    let least = far.flows.iter().map(FlowRecord::total).min();
    assert!(least > Some(Bytes::new(0)), "no flow starves: {least:?}");
}

#[test]
fn every_way_of_waiting_moves_the_same_bytes_at_both_ends() {
    let ways = [
        Waiting::Blocking,
        Waiting::Epoll,
        Waiting::Spin,
        Waiting::BusyPoll(50),
        Waiting::Uring,
        Waiting::UringSqpoll,
    ];
    for waiting in ways {
        for (flows, threads) in [(1, 1), (5, 2)] {
            let what = format!("waiting by {waiting}, {flows} flows");
            let spec = TrialSpec {
                waiting,
                threads: Some(threads),
                ..stream(SendMode::Write, ReceiveMode::Read, flows)
            };
            if let Some((near, far)) = there(&what, run_both(&spec)) {
                check(&what, &spec, &near, &far);
            }
        }
    }
}

/// Whether the kernel reports its polling threads by numbers of another PID namespace, with a message on stderr.
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn in_pid_namespace() -> bool {
    let outside = std::path::Path::new("pid:[4026531836]");
    let inside = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own != outside);
    if inside {
        eprintln!("SKIP: in a PID namespace the kernel's polling threads are not told apart");
    }
    inside
}

#[test]
fn the_kernels_polling_thread_is_in_the_account_of_cpu_time() {
    let rr = Workload::Rr(crate::exchange::rr(1_000, 1_000));
    let transfer = Workload::Transfer(linerate_model::workload::Transfer {
        bytes: Bytes::kib(64),
        repetitions: None,
        data_check: false,
    });
    for workload in [Workload::Stream(Stream::default()), rr, transfer] {
        let spec = TrialSpec {
            waiting: Waiting::UringSqpoll,
            threads: Some(2),
            workload,
            ..stream(SendMode::Write, ReceiveMode::Read, 2)
        };
        let what = format!("{} by SQPOLL", spec.workload.name());
        let Some((near, far)) = there(&what, run_both(&spec)) else {
            continue;
        };
        if in_pid_namespace() {
            return;
        }
        for side in [near, far] {
            let polled: Vec<_> = side.threads.iter().map(|one| one.polls_for).collect();
            assert_eq!(polled, [None, None, Some(0), Some(1)], "{what}");
            let numbers: Vec<u32> = side.threads.iter().map(|one| one.thread).collect();
            assert_eq!(numbers, [0, 1, 2, 3], "{what}");
            let system = |threads: &[linerate_model::sample::ThreadRecord]| -> u64 {
                threads.iter().map(|one| one.system_ns.as_u64()).sum()
            };
            // It took the submissions, and that took time.
            assert!(system(&side.threads[2..]) > 0, "{what}");
            let all = side.cpu.threads_system_ns.as_u64();
            assert_eq!(all, system(&side.threads), "{what}");
        }
    }
}

#[test]
fn io_uring_itself_can_spin_and_busy_poll() {
    for waiting in [Waiting::Spin, Waiting::BusyPoll(50), Waiting::UringSqpoll] {
        for send in [SendMode::Uring, SendMode::UringZerocopy] {
            let what = format!("{send} waiting by {waiting}");
            let spec = TrialSpec {
                waiting,
                ..stream(send, ReceiveMode::Uring, 2)
            };
            if let Some((near, far)) = there(&what, run_both(&spec)) {
                check(&what, &spec, &near, &far);
            }
        }
    }
}

#[test]
fn a_stated_amount_is_moved_exactly_and_ends_the_trial() {
    for (send, receive) in SENDS
        .iter()
        .flat_map(|&send| RECEIVES.map(|receive| (send, receive)))
    {
        for (flows, threads, bytes) in [(1, 1, 5_000_001), (3, 2, 1_000_000), (3, 1, 2)] {
            let what = format!("{bytes} bytes in {flows} flows, {send} to {receive}");
            let spec = TrialSpec {
                threads: Some(threads),
                ..amount(stream(send, receive, flows), bytes)
            };
            let Some((near, far)) = there(&what, run_both(&spec)) else {
                continue;
            };
            check(&what, &spec, &near, &far);
            let totals: Vec<u64> = far.flows.iter().map(|flow| flow.total().as_u64()).collect();
            assert_eq!(totals.iter().sum::<u64>(), bytes, "{what}: {totals:?}");
            assert!(
                totals.is_sorted_by(|a, b| a >= b) && totals[0] - totals[totals.len() - 1] <= 1,
                "{what}: shared out evenly, the rest to the first: {totals:?}"
            );
        }
    }
}

#[test]
fn an_amount_that_the_time_does_not_allow_is_cut_and_both_ends_agree() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(60),
        interval_ns: Nanoseconds::from_millis(10),
        ..amount(stream(SendMode::Write, ReceiveMode::Read, 2), 1 << 50)
    };
    let (near, far) = there("a pebibyte", run_both(&spec)).expect("every kernel");
    check("a pebibyte", &spec, &near, &far);
}

#[test]
fn ways_that_contradict_each_other_are_refused_before_the_start() {
    let contradictions = [
        (SendMode::Splice, ReceiveMode::Uring, Waiting::Uring),
        (SendMode::Uring, ReceiveMode::Uring, Waiting::Epoll),
    ];
    for (send, receive, waiting) in contradictions {
        let (near, far) = run_both(&TrialSpec {
            waiting,
            ..stream(send, receive, 1)
        });
        let Err(error @ TrafficError::NotSupported { .. }) = near else {
            panic!("{near:?}");
        };
        assert!(error.to_string().contains(&format!("`{send}`")), "{error}");
        assert!(far.is_err(), "{far:?}");
    }
}
