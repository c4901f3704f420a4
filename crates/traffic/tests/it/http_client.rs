//! The client against servers made by hand: such as keep to HTTP in every way there is, and such as do not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use linerate_model::latency::Histogram;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{Direction, TrialSpec, Workload};
use linerate_traffic::TrafficError;
use linerate_traffic::http::{Target, load};

use crate::both_ends::{Outcome, abort};
use crate::http::{at_rate, check_operations, http_spec, operations};

fn target(address: SocketAddr) -> Target {
    Target {
        address,
        host: "far".to_owned(),
    }
}

/// Loads a server that gives every connection to `serve`.
fn load_from(spec: &TrialSpec, serve: impl Fn(TcpStream) + Sync) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.expect("a connection");
                let serve = &serve;
                scope.spawn(move || serve(stream));
            }
        });
        let outcome = load(spec, &target(address), &abort());
        over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(address).expect("it still listens"));
        outcome
    });
    if let Ok(side) = &outcome {
        check_operations(side, spec);
    }
    outcome
}

/// Reads one request; `None` when the client has closed.
fn hear(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return None,
        }
    }
    Some(request)
}

/// Answers every request with `text`; whether the client was still there is no matter.
fn answer_with(text: &str) -> impl Fn(TcpStream) + Sync {
    move |mut stream| {
        while hear(&mut stream).is_some() {
            let _ = stream.write_all(text.as_bytes());
        }
    }
}

/// Completed and failed.
fn counts(outcome: &Outcome) -> (u64, u64) {
    let asked = operations(outcome.as_ref().expect("it comes to its end"));
    (asked.completed, asked.failed)
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn the_request_is_as_short_as_http_allows() {
    let mut spec = http_spec(1, 1);
    if let Workload::Http(http) = &mut spec.workload {
        http.path = "/a?b".to_owned();
    }
    let outcome = load_from(&spec, |mut stream| {
        while let Some(request) = hear(&mut stream) {
            assert_eq!(request, b"GET /a?b HTTP/1.1\r\nHost: far\r\n\r\n");
            let _ = stream.write_all(HELLO.as_bytes());
        }
    });
    let (completed, failed) = counts(&outcome);
    assert!(completed > 0 && failed == 0);
}

#[test]
fn a_chunked_answer_that_comes_byte_by_byte_is_an_answer() {
    let text =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: u\r\n\r\n";
    let whole = AtomicU64::new(0);
    let outcome = load_from(&http_spec(2, 1), |mut stream| {
        stream.set_nodelay(true).expect("TCP");
        while hear(&mut stream).is_some() {
            let sent = text.bytes().all(|byte| stream.write_all(&[byte]).is_ok());
            whole.fetch_add(u64::from(sent), Ordering::Relaxed);
        }
    });
    let (completed, failed) = counts(&outcome);
    assert!(completed > 0 && completed <= whole.load(Ordering::Relaxed));
    assert_eq!(failed, 0);
}

#[test]
fn a_server_that_closes_after_each_answer_is_connected_to_again() {
    for text in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
    ] {
        let connections = AtomicU64::new(0);
        let outcome = load_from(&http_spec(2, 1), |mut stream| {
            connections.fetch_add(1, Ordering::Relaxed);
            if hear(&mut stream).is_some() {
                let _ = stream.write_all(text.as_bytes());
            }
        });
        let (completed, failed) = counts(&outcome);
        assert_eq!(failed, 0, "{text}");
        assert!(completed > 0 && connections.load(Ordering::Relaxed) >= completed);
    }
}

#[test]
fn a_status_of_400_and_above_is_a_failure_and_has_no_latency() {
    let outcome = load_from(
        &http_spec(2, 1),
        answer_with("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
    );
    let (completed, failed) = counts(&outcome);
    assert!(completed == 0 && failed > 0);
}

#[test]
fn what_is_no_whole_answer_is_a_failure() {
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    for text in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "",
        &huge,
    ] {
        let outcome = load_from(&http_spec(2, 1), |mut stream| {
            if hear(&mut stream).is_some() {
                let _ = stream.write_all(text.as_bytes());
            }
        });
        let (completed, failed) = counts(&outcome);
        assert!(
            completed == 0 && failed > 0,
            "{text:.60}: {completed}, {failed}"
        );
    }
}

#[test]
fn a_server_that_never_answers_is_no_success() {
    let outcome = load_from(&http_spec(3, 1), |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_eq!(counts(&outcome), (0, 0));
    assert_eq!(operations(&outcome.expect("it ends")).unanswered, 3);
}

#[test]
fn a_port_that_nobody_listens_on_is_an_error_at_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let outcome = load(&http_spec(2, 1), &target(address), &abort());
    assert!(
        matches!(outcome, Err(TrafficError::Refused { .. })),
        "{outcome:?}"
    );
}

#[test]
fn an_abort_ends_the_load_at_once() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(1_000),
        ..http_spec(2, 2)
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let abort = abort();
    let outcome = thread::scope(|scope| {
        let loading = scope.spawn(|| load(&spec, &target(address), &abort));
        let (mut stream, _) = listener.accept().expect("it connects");
        assert!(hear(&mut stream).is_some(), "it asks");
        abort.trigger();
        loading.join().expect("no panic")
    });
    assert!(matches!(outcome, Err(TrafficError::Aborted)), "{outcome:?}");
}

#[test]
fn an_ipv6_server_is_loaded_too() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        crate::http::skip("no IPv6 here");
        return;
    };
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let (target, path) = Target::parse(&format!("http://{address}/x")).expect("an address");
    assert_eq!((target.address, path.as_str()), (address, "/x"));
    let outcome = load(&http_spec(1, 1), &target, &abort());
    assert!(
        matches!(outcome, Err(TrafficError::Refused { .. })),
        "{outcome:?}"
    );
}

/// How many times are at least half of the stall.
fn long_ones(times: &Histogram) -> u64 {
    let half = 50_000_000;
    times
        .filled()
        .filter(|(ns, _)| *ns >= half)
        .map(|(_, count)| count)
        .sum()
}

/// Answers at once, and at the 20th request 100 ms late.
fn stall_once(asked: &AtomicU64) -> impl Fn(TcpStream) + Sync + '_ {
    |mut stream| {
        stream.set_nodelay(true).expect("TCP");
        while hear(&mut stream).is_some() {
            if asked.fetch_add(1, Ordering::Relaxed) == 20 {
                // tidy: time itself is the subject
                thread::sleep(Duration::from_millis(100));
            }
            let _ = stream.write_all(HELLO.as_bytes());
        }
    }
}

#[test]
fn open_loop_shows_a_stall_of_100_ms_that_closed_loop_hides() {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_000),
        direction: Direction::Forward,
        ..http_spec(1, 1)
    };
    let asked = AtomicU64::new(0);
    let closed = load_from(&spec, stall_once(&asked)).expect("it ends");
    let hidden = long_ones(&operations(&closed).latency);
    assert!(asked.load(Ordering::Relaxed) > 20, "it did not stall");

    let asked = AtomicU64::new(0);
    let open = load_from(&at_rate(spec, 500), stall_once(&asked)).expect("it ends");
    let open = operations(&open);
    let service = open.service.as_ref().expect("open loop");
    // In the first half of the stall 25 requests should have begun, and each waited for its end.
    let (shown, served) = (long_ones(&open.latency), long_ones(service));
    // On a busy machine a few others take long, too.
    assert!(
        shown >= 20 && shown > 2 * served && shown > 2 * hidden,
        "{shown} shown, {served} served, {hidden} in the closed loop"
    );
}

/// 500 requests a second for half a second, on one connection: 250 are due before the end.
fn half_a_second_at_500() -> TrialSpec {
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(500),
        direction: Direction::Forward,
        ..http_spec(1, 1)
    };
    at_rate(spec, 500)
}

#[test]
fn a_stall_that_lasts_beyond_the_end_is_latency_of_all_that_was_due_before_it() {
    let asked = AtomicU64::new(0);
    let outcome = load_from(&half_a_second_at_500(), |mut stream| {
        stream.set_nodelay(true).expect("TCP");
        while hear(&mut stream).is_some() {
            if asked.fetch_add(1, Ordering::Relaxed) == 200 {
                // tidy: time itself is the subject
                thread::sleep(Duration::from_millis(300));
            }
            let _ = stream.write_all(HELLO.as_bytes());
        }
    });
    let side = outcome.expect("it ends");
    let open = operations(&side);
    assert_eq!((open.completed + open.unanswered, open.failed), (250, 0));
    // The last of them was due 200 ms before the server went on.
    let late = long_ones(&open.latency) + open.unanswered;
    assert!(late >= 50, "{late} late ones");
}

#[test]
fn a_server_that_stalls_for_good_shortly_before_the_end_leaves_what_was_due_unanswered() {
    let asked = AtomicU64::new(0);
    let outcome = load_from(&half_a_second_at_500(), |mut stream| {
        while hear(&mut stream).is_some() && asked.fetch_add(1, Ordering::Relaxed) < 200 {
            let _ = stream.write_all(HELLO.as_bytes());
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let side = outcome.expect("it ends");
    let open = operations(&side);
    assert_eq!((open.completed + open.unanswered, open.failed), (250, 0));
    assert!(open.completed <= 200 && open.unanswered >= 50, "{open:?}");
}
