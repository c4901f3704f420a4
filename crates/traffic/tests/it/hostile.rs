//! What goes wrong: peers that die, hang or give up, and requests that this host cannot carry out.

use std::io::Write;
use std::net::TcpListener;
use std::thread;

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Placement, TrialSpec};
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::{Connected, Listening};

use crate::both_ends::{
    Outcome, TOKEN, abort, hang_guard, listen, read_byte, ready_peer, run_both, spec,
};

/// The listening end of `spec` against a hand-made peer of flow 0.
pub(crate) fn against_a_peer(
    spec: &TrialSpec,
    abort: &linerate_traffic::Abort,
    peer: impl FnOnce(std::net::TcpStream),
) -> Outcome {
    let (listening, address) = listen(spec);
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), abort)?.run(abort));
        peer(ready_peer(address, 0));
        far.join().expect("it does not panic")
    })
}

/// So long that a test which waits for it hangs visibly.
pub(crate) fn an_hour(direction: Direction) -> TrialSpec {
    TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(100),
        ..spec(1, direction)
    }
}

#[test]
fn a_sender_that_dies_in_mid_run_is_an_error_at_once() {
    let outcome = against_a_peer(&an_hour(Direction::Forward), &abort(), |mut peer| {
        assert_eq!(read_byte(&mut peer), Some(0x47));
        peer.write_all(&[1; 5000]).expect("it reads");
    });
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_receiver_that_dies_in_mid_run_is_an_error_at_once() {
    let outcome = against_a_peer(&an_hour(Direction::Reverse), &abort(), |mut peer| {
        peer.write_all(&[0x47]).expect("open");
        assert!(read_byte(&mut peer).is_some(), "payload flows");
    });
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_peer_that_leaves_before_the_start_is_an_error() {
    let outcome = against_a_peer(&an_hour(Direction::Reverse), &abort(), drop);
    assert!(
        matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_receiver_that_hangs_does_not_keep_a_blocked_sender() {
    let spec = TrialSpec {
        // More than both socket buffers can take, so that the very first `send` blocks.
        buffer_bytes: Bytes::mib(64),
        ..spec(1, Direction::Reverse)
    };
    let mut held = None;
    let outcome = against_a_peer(&spec, &abort(), |mut peer| {
        peer.write_all(&[0x47]).expect("open");
        held = Some(peer);
    });
    let record = outcome.expect("the sender's side is complete");
    let total = record.flows[0].total();
    assert!(total > Bytes::new(0) && total < Bytes::mib(64), "{total}");
    let mut received = 0u64;
    let mut peer = held.expect("it was handed out");
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = std::io::Read::read(&mut peer, &mut buffer) {
        received += count as u64;
    }
    assert_eq!(
        Bytes::new(received),
        total,
        "what the kernel took is what arrives"
    );
}

#[test]
fn a_sender_that_hangs_is_given_up_after_the_stated_time() {
    let mut held = None;
    let outcome = against_a_peer(&spec(1, Direction::Forward), &abort(), |peer| {
        held = Some(peer);
    });
    assert!(
        matches!(outcome, Err(TrafficError::Overdue { flow: 0, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_peer_that_never_starts_is_given_up_after_the_stated_time() {
    let mut held = None;
    let outcome = against_a_peer(&spec(1, Direction::Reverse), &abort(), |peer| {
        held = Some(peer);
    });
    assert!(
        matches!(outcome, Err(TrafficError::StartTimeOut { .. })),
        "{outcome:?}"
    );
}

#[test]
fn an_abort_ends_a_sender_in_mid_run_and_its_peer_notices() {
    let abort = abort();
    let outcome = against_a_peer(&an_hour(Direction::Reverse), &abort, |mut peer| {
        peer.write_all(&[0x47]).expect("open");
        assert!(read_byte(&mut peer).is_some(), "payload flows");
        abort.trigger();
        while read_byte(&mut peer).is_some() {}
    });
    assert!(matches!(outcome, Err(TrafficError::Aborted)), "{outcome:?}");
}

#[test]
fn an_abort_ends_a_receiver_in_mid_run_and_its_peer_notices() {
    let abort = abort();
    let outcome = against_a_peer(&an_hour(Direction::Forward), &abort, |mut peer| {
        assert_eq!(read_byte(&mut peer), Some(0x47));
        peer.write_all(&[1; 100]).expect("it reads");
        abort.trigger();
        while peer.write_all(&[1; 100]).is_ok() {}
    });
    assert!(matches!(outcome, Err(TrafficError::Aborted)), "{outcome:?}");
}

#[test]
fn when_one_end_gives_up_the_other_says_that_its_peer_closed() {
    let spec = an_hour(Direction::Bidirectional);
    let (listening, address) = listen(&spec);
    let (near_abort, far_abort) = (abort(), abort());
    let (near, far) = thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &far_abort)?.run(&far_abort));
        let near = Connected::connect(&spec, address, TOKEN, hang_guard(), &near_abort);
        near_abort.trigger();
        let near = near.and_then(|connected| connected.run(&near_abort));
        (near, far.join().expect("it does not panic"))
    });
    assert!(matches!(near, Err(TrafficError::Aborted)), "{near:?}");
    assert!(
        matches!(far, Err(TrafficError::PeerClosed { .. })),
        "{far:?}"
    );
}

#[test]
fn a_cpu_that_does_not_exist_is_named_and_the_peer_is_let_go() {
    let nowhere = CpuId(CpuSet::CPU_MAX);
    let (near, far) = run_both(&TrialSpec {
        placement: Placement {
            sender_cpus: CpuSet::one(nowhere),
            ..Placement::default()
        },
        ..an_hour(Direction::Forward)
    });
    assert!(
        matches!(near, Err(TrafficError::NoSuchCpu { cpu }) if cpu == nowhere),
        "{near:?}"
    );
    assert!(
        matches!(far, Err(TrafficError::PeerClosed { .. })),
        "{far:?}"
    );
}

#[test]
fn a_specification_out_of_its_limits_is_refused_by_both_ends() {
    let good = spec(1, Direction::Forward);
    let (_listening, address) = listen(&good);
    let hostile = [
        TrialSpec {
            flows: 0,
            ..good.clone()
        },
        TrialSpec {
            flows: u32::MAX,
            ..good.clone()
        },
        TrialSpec {
            buffer_bytes: Bytes::new(0),
            ..good.clone()
        },
        TrialSpec {
            buffer_bytes: Bytes::new(u64::MAX),
            ..good.clone()
        },
        TrialSpec {
            interval_ns: Nanoseconds::new(0),
            ..good.clone()
        },
        TrialSpec {
            duration_ns: Nanoseconds::new(u64::MAX),
            ..good.clone()
        },
        TrialSpec {
            flows: 1024,
            interval_ns: Nanoseconds::from_millis(1),
            ..an_hour(Direction::Forward)
        },
        TrialSpec {
            congestion_control: Some("a\0b".to_owned()),
            ..good.clone()
        },
    ];
    for spec in hostile {
        let opened = Listening::open(&spec, TOKEN, "127.0.0.1");
        assert!(matches!(opened, Err(TrafficError::Spec(_))), "{spec:?}");
        let connected = Connected::connect(&spec, address, TOKEN, hang_guard(), &abort());
        assert!(matches!(connected, Err(TrafficError::Spec(_))), "{spec:?}");
    }
}

#[test]
fn a_congestion_control_that_the_kernel_does_not_have_is_named() {
    let spec = TrialSpec {
        congestion_control: Some("nosuch".to_owned()),
        ..spec(1, Direction::Forward)
    };
    let outcome = Listening::open(&spec, TOKEN, "");
    assert!(
        matches!(&outcome, Err(TrafficError::CongestionControlMissing { name }) if name == "nosuch"),
        "{outcome:?}"
    );
}

#[test]
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn a_socket_buffer_that_the_kernel_cuts_is_an_error_and_not_a_smaller_trial() {
    let limit = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap_or_default();
    if !limit
        .trim()
        .parse::<u64>()
        .is_ok_and(|limit| limit < 1 << 30)
    {
        eprintln!("SKIP: net.core.wmem_max is not below 1 GiB here: {limit:?}");
        return;
    }
    let spec = TrialSpec {
        socket_buffer_bytes: Some(Bytes::mib(1024)),
        ..spec(1, Direction::Forward)
    };
    let outcome = Listening::open(&spec, TOKEN, "127.0.0.1");
    assert!(
        matches!(outcome, Err(TrafficError::SocketBuffer { .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("it is bound");
    let outcome = Listening::open(&spec(1, Direction::Forward), TOKEN, &address.to_string());
    assert!(
        matches!(outcome, Err(TrafficError::PortInUse { address: named }) if named == address),
        "{outcome:?}"
    );
}

#[test]
fn an_address_of_another_host_is_named() {
    // TEST-NET-1 (RFC 5737) is nobody's.
    let outcome = Listening::open(&spec(1, Direction::Forward), TOKEN, "192.0.2.1");
    assert!(
        matches!(outcome, Err(TrafficError::NoSuchAddress { .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    let spec = spec(1, Direction::Forward);
    let (listening, address) = listen(&spec);
    drop(listening);
    let outcome = Connected::connect(&spec, address, TOKEN, hang_guard(), &abort());
    assert!(
        matches!(outcome, Err(TrafficError::Refused { .. })),
        "{outcome:?}"
    );
}

#[test]
fn every_address_means_both_families() {
    let spec = spec(1, Direction::Forward);
    let listening = Listening::open(&spec, TOKEN, "").expect("a free port");
    let address = (std::net::Ipv4Addr::LOCALHOST, listening.port()).into();
    let (near, far) = crate::both_ends::run_against(&spec, listening, address, &abort());
    assert!(near.is_ok() && far.is_ok(), "{near:?} {far:?}");
}
