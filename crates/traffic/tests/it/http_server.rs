//! The server by itself, against clients made by hand: good ones, slow ones and hostile ones.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::units::Bytes;
use linerate_model::workload::Waiting;
use linerate_traffic::TrafficError;
use linerate_traffic::http::{SOURCE_BODY, Served, Server};

use crate::both_ends::{abort, connect_from};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: linerate.localhost\r\n\r\n";

fn open(address: SocketAddr, threads: u32, body: Bytes) -> Result<Server, TrafficError> {
    Server::open(address, threads, CpuSet::default(), body, Waiting::Blocking)
}

/// Runs `client` against a server, and ends the server.
pub(crate) fn with_server(threads: u32, body: Bytes, client: impl FnOnce(SocketAddr)) -> Served {
    let server = open((Ipv4Addr::LOCALHOST, 0).into(), threads, body).expect("a free port");
    with(server, client)
}

fn with(server: Server, client: impl FnOnce(SocketAddr)) -> Served {
    let address = server.address();
    let abort = abort();
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&abort));
        // The server must end also when the client's checks fail.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(address)));
        abort.trigger();
        let served = serving.join().expect("no panic").expect("it serves");
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).expect("it listens")
}

/// Sends `request` in one piece and reads to the end of the connection.
fn ask_last(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    // The connection of a refused client may be closed in the middle of its request.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("our own text")
}

#[test]
fn a_request_of_44_bytes_is_answered_by_151_wherever_it_is_split() {
    let served = with_server(1, SOURCE_BODY, |address| {
        let mut stream = connect(address);
        stream.set_nodelay(true).expect("TCP");
        let mut answer = [0u8; 151];
        for split in 0..REQUEST.len() {
            stream.write_all(&REQUEST[..split]).expect("open");
            stream.write_all(&REQUEST[split..]).expect("open");
            stream.read_exact(&mut answer).expect("an answer");
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\nContent-Length: 111\r\n\r\n"));
        }
    });
    assert_eq!(served.requests, 44);
    assert_eq!(served.bytes, Bytes::new(44 * 151));
    assert_eq!((served.connections, served.refused), (1, 0));
}

#[test]
fn a_thousand_pipelined_requests_have_a_thousand_answers() {
    let served = with_server(1, SOURCE_BODY, |address| {
        let mut stream = connect(address);
        stream.write_all(&REQUEST.repeat(1000)).expect("open");
        let mut answers = vec![0u8; 151 * 1000];
        stream.read_exact(&mut answers).expect("every answer");
        assert!(answers.chunks(151).all(|one| one == &answers[..151]));
    });
    assert_eq!(served.requests, 1000);
}

#[test]
fn a_client_that_asks_and_does_not_read_holds_up_nobody_and_gets_all_in_the_end() {
    let body = 1 << 20;
    with_server(1, Bytes::new(body), |address| {
        let mut greedy = connect(address);
        greedy.write_all(&REQUEST.repeat(40)).expect("open");
        let closing = b"GET / HTTP/1.0\r\n\r\n";
        let other = ask_last(address, closing);
        assert!(other.len() as u64 > body);
        greedy.write_all(closing).expect("open");
        let mut all = Vec::new();
        greedy.read_to_end(&mut all).expect("whole answers");
        let usual = 44 + body;
        assert_eq!(all.len() as u64, 40 * usual + other.len() as u64);
        let bodies_alike = all.chunks(usize::try_from(usual).expect("small")).take(40);
        assert!(
            bodies_alike.clone().all(|one| one == &all[..one.len()]),
            "one body for all"
        );
    });
}

#[test]
fn the_connection_ends_or_stays_as_the_client_asked() {
    with_server(1, Bytes::new(5), |address| {
        for (request, length) in [
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                Some("5"),
            ),
            (
                "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                None,
            ),
            ("GET / HTTP/1.0\r\n\r\n", Some("5")),
        ] {
            let answer = ask_last(address, request.as_bytes());
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(
                head.contains("Content-Length: 5") && head.contains("Connection: close"),
                "{head}"
            );
            assert_eq!(
                body.len(),
                if length.is_some() { 5 } else { 0 },
                "{request}"
            );
        }
        let kept = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n";
        let answer = ask_last(address, kept);
        assert_eq!(answer.matches("200 OK").count(), 2);
        assert!(answer.contains("Connection: keep-alive"));
    });
}

#[test]
fn what_is_no_request_is_refused_by_its_status_and_the_connection_ends() {
    let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 9_000]].concat();
    let flood = vec![b'G'; 1 << 19];
    let many = [REQUEST, b"\x16\x03\x01\x02\x00\x01"].concat();
    let cases: [(&[u8], &str); 8] = [
        (b"\x16\x03\x01\x02\x00\x01", "400"),
        (b"hello\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            "413",
        ),
        (&long, "431"),
        (&flood, "431"),
        (b"GET / HTTP/2.0\r\n", "505"),
    ];
    let served = with_server(2, SOURCE_BODY, |address| {
        for (request, status) in cases {
            let answer = ask_last(address, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{status}: {answer:?}"
            );
            assert!(answer.ends_with("Connection: close\r\n\r\n"), "{answer:?}");
        }
        let answers = ask_last(address, &many);
        assert!(answers.starts_with("HTTP/1.1 200 ") && answers.contains("HTTP/1.1 400 "));
    });
    assert_eq!((served.refused, served.requests), (9, 1));
}

#[test]
fn a_head_that_trickles_in_or_never_comes_is_given_up_after_its_time() {
    with_server(1, SOURCE_BODY, |address| {
        let mut silent = connect(address);
        let mut slow = connect(address);
        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("open");
        let mut answer = String::new();
        slow.read_to_string(&mut answer)
            .expect("it is closed in order");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
        let count = silent.read_to_string(&mut answer);
        assert_eq!(count.expect("it is closed in order"), 0);
    });
}

#[test]
fn slow_heads_from_one_address_do_not_keep_others_out() {
    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: ";
    let server = open((Ipv4Addr::LOCALHOST, 0).into(), 1, SOURCE_BODY).expect("a free port");
    let served = with(server.holding_at_most(40), |address| {
        let slow = || {
            let mut stream = connect(address);
            // One above the limit is closed at once, maybe before it has sent anything.
            let _ = stream.write_all(HEAD);
            stream
        };
        let held: Vec<TcpStream> = (0..30).map(|_| slow()).collect();
        for _ in 0..60 {
            let mut answer = Vec::new();
            // A reset is an end, too.
            let _ = slow().read_to_end(&mut answer);
            assert_eq!(answer, b"", "it was let in");
        }
        let mut other = connect_from([127, 0, 0, 2], address);
        other.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("open");
        let mut answer = String::new();
        other.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        // A place that is free again is the next one's.
        drop(held);
        let answer = ask_until_answered(address);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    });
    assert_eq!(served.requests, 2);
}

/// Asks until the server has seen that earlier clients have left.
fn ask_until_answered(address: SocketAddr) -> String {
    loop {
        let answer = ask_last(address, b"GET / HTTP/1.0\r\n\r\n");
        if !answer.is_empty() {
            return answer;
        }
    }
}

#[test]
fn hundreds_of_silent_and_broken_clients_do_not_keep_a_good_one_waiting() {
    let served = with_server(1, SOURCE_BODY, |address| {
        let held: Vec<TcpStream> = (0..200)
            .map(|number| {
                let mut stream = connect(address);
                let part = number % REQUEST.len();
                stream.write_all(&REQUEST[..part]).expect("open");
                if number % 3 == 0 {
                    stream.shutdown(Shutdown::Both).expect("open");
                }
                stream
            })
            .collect();
        let answer = ask_last(address, b"GET / HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 "));
        drop(held);
    });
    assert_eq!((served.connections, served.requests), (201, 1));
}

#[test]
fn several_threads_listen_on_one_port() {
    let served = with_server(3, SOURCE_BODY, |address| {
        for _ in 0..30 {
            assert!(ask_last(address, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
        }
    });
    assert_eq!((served.connections, served.requests), (30, 30));
}

#[test]
fn a_server_that_cannot_be_is_told_why() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = holder.local_addr().expect("bound");
    let outcome = open(taken, 1, SOURCE_BODY);
    assert!(matches!(outcome, Err(TrafficError::PortInUse { address }) if address == taken));
    let nobodys = "192.0.2.1:0".parse().expect("TEST-NET-1");
    let outcome = open(nobodys, 1, SOURCE_BODY);
    assert!(matches!(outcome, Err(TrafficError::NoSuchAddress { .. })));
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    assert!(matches!(
        open(local, 0, SOURCE_BODY),
        Err(TrafficError::Spec(_))
    ));
    let tebibyte = Bytes::new(1 << 40);
    assert!(matches!(
        open(local, 1, tebibyte),
        Err(TrafficError::Spec(_))
    ));
    let nowhere = CpuId(CpuSet::CPU_MAX);
    let server = Server::open(local, 2, CpuSet::one(nowhere), SOURCE_BODY, Waiting::Epoll);
    let outcome = server.expect("a free port").serve(&abort());
    assert!(
        matches!(outcome, Err(TrafficError::NoSuchCpu { cpu }) if cpu == nowhere),
        "{outcome:?}"
    );
}

#[test]
fn a_second_server_does_not_share_the_port_of_the_first() {
    let first = open((Ipv4Addr::LOCALHOST, 0).into(), 2, SOURCE_BODY).expect("a free port");
    let second = open(first.address(), 2, SOURCE_BODY);
    assert!(matches!(second, Err(TrafficError::PortInUse { .. })));
}
