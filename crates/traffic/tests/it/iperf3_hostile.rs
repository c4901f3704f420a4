//! Clients that mean no test: none of them holds up another one, and nothing of them stays.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use linerate_model::workload::Direction;
use linerate_traffic::TrafficError;
use linerate_traffic::iperf3::{Finished, measure};
use linerate_traffic::iperf3_protocol::{Frame, TalkError};

use crate::both_ends::{abort, connect_from, read_byte, spec};
use crate::iperf3::{loopback, next, with_server};

const COOKIE: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz2345672345\0";

/// A client that has presented its cookie and been requested its parameters.
fn greeted(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(COOKIE).expect("open");
    assert_eq!(read_byte(&mut stream), Some(9));
    stream
}

/// One that has sent `parameters`.
fn described(address: SocketAddr, parameters: &str) -> TcpStream {
    let mut stream = greeted(address);
    stream.write_all(&Frame::write(parameters)).expect("open");
    stream
}

/// All that the server still sends, until it closes.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut said);
    said
}

/// That the server still serves, and what became of the test before.
#[track_caller]
fn assert_still_serves(address: SocketAddr, finished: &mpsc::Receiver<Finished>) {
    measure(&spec(1, Direction::Forward), address, &abort()).expect("it still serves");
    next(finished).outcome.expect("it came to its end");
}

#[test]
fn garbage_instead_of_a_cookie_is_closed_without_a_word() {
    with_server(loopback(), |address, finished| {
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n\r\n\r\n"[..],
            &[0xFF; 37],
        ] {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(garbage).expect("open");
            assert_eq!(rest(stream), b"");
        }
        assert_still_serves(address, finished);
    });
}

#[test]
fn a_silent_stranger_is_closed_and_holds_up_nobody() {
    with_server(loopback(), |address, finished| {
        let mut silent = TcpStream::connect(address).expect("it listens");
        assert_still_serves(address, finished);
        assert_eq!(read_byte(&mut silent), None);
    });
}

#[test]
fn parameters_that_are_none_are_answered_with_an_error() {
    with_server(loopback(), |address, finished| {
        for parameters in [
            r#"{"tcp":true,"parallel":129}"#,
            r#"{"tcp":true,"parallel":-4}"#,
            r#"{"udp":true,"len":70000}"#,
            r#"{"tcp":true,"#,
            "[[[[[[",
            "",
        ] {
            let said = rest(described(address, parameters));
            assert_eq!((said.first(), said.len()), (Some(&0xFE), 9), "{parameters}");
            assert!(next(finished).outcome.is_err());
        }
        let mut long = greeted(address);
        long.write_all(&u32::MAX.to_be_bytes()).expect("open");
        assert_eq!(rest(long).first(), Some(&0xFE));
        assert!(next(finished).outcome.is_err());
        assert_still_serves(address, finished);
    });
}

#[test]
fn half_a_json_and_then_the_end_is_an_end() {
    with_server(loopback(), |address, finished| {
        let mut half = greeted(address);
        let frame = Frame::write(r#"{"tcp":true,"time":1}"#);
        half.write_all(&frame[..10]).expect("open");
        half.shutdown(Shutdown::Write).expect("open");
        rest(half);
        let outcome = next(finished).outcome;
        assert!(
            matches!(
                outcome,
                Err(TrafficError::Iperf3 {
                    source: TalkError::Closed { .. },
                    ..
                })
            ),
            "{outcome:?}"
        );
        assert_still_serves(address, finished);
    });
}

#[test]
fn a_client_that_leaves_or_says_nonsense_at_any_moment_ends_only_its_own_test() {
    const ONE: &str = r#"{"tcp":true,"time":3600,"parallel":1}"#;
    with_server(loopback(), |address, finished| {
        // Before its stream is open: it leaves, and it claims that the test has ended.
        for words in [&[][..], &[4], &[16], &[99]] {
            let mut control = described(address, ONE);
            assert_eq!(read_byte(&mut control), Some(10));
            control.write_all(words).expect("open");
            control.shutdown(Shutdown::Write).expect("open");
            rest(control);
            assert!(next(finished).outcome.is_err());
        }
        // While data moves.
        for words in [&[][..], &[12], &[9], &[77]] {
            let mut control = described(address, ONE);
            assert_eq!(read_byte(&mut control), Some(10));
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(COOKIE).expect("open");
            assert_eq!(read_byte(&mut control), Some(1));
            assert_eq!(read_byte(&mut control), Some(2));
            stream.write_all(&[1; 1000]).expect("open");
            control.write_all(words).expect("open");
            control.shutdown(Shutdown::Write).expect("open");
            rest(control);
            assert!(next(finished).outcome.is_err());
        }
        // After it: results that are none.
        let mut control = described(address, ONE);
        assert_eq!(read_byte(&mut control), Some(10));
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(COOKIE).expect("open");
        assert_eq!(
            [read_byte(&mut control), read_byte(&mut control)],
            [Some(1), Some(2)]
        );
        control.write_all(&[4]).expect("open");
        assert_eq!(read_byte(&mut control), Some(13));
        control
            .write_all(&Frame::write("{\"streams\":7}"))
            .expect("open");
        rest(control);
        assert!(next(finished).outcome.is_err());
        assert_still_serves(address, finished);
    });
}

#[test]
fn a_stream_too_many_and_one_of_nobodys_test_are_refused() {
    with_server(loopback(), |address, finished| {
        let mut control = described(address, r#"{"tcp":true,"time":3600,"parallel":1}"#);
        assert_eq!(read_byte(&mut control), Some(10));
        let open = || {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(COOKIE).expect("open");
            stream
        };
        let _first = open();
        assert_eq!(
            [read_byte(&mut control), read_byte(&mut control)],
            [Some(1), Some(2)]
        );
        assert_eq!(rest(open()), [0xFF]);
        drop(control);
        assert!(next(finished).outcome.is_err());
        assert_still_serves(address, finished);
    });
}

/// The first byte that the server sends to a client with a cookie of `number`, from 127.0.0.`client`.
fn first_word(address: SocketAddr, client: u8, number: usize) -> (TcpStream, Option<u8>) {
    let mut stream = connect_from([127, 0, 0, client], address);
    let mut cookie = *COOKIE;
    cookie[..4].copy_from_slice(format!("{number:04}").as_bytes());
    stream.write_all(&cookie).expect("open");
    let word = read_byte(&mut stream);
    (stream, word)
}

#[test]
fn more_tests_than_there_is_room_for_are_told_that_it_is_busy() {
    with_server(loopback(), |address, finished| {
        let mut held = Vec::new();
        for client in 1..=4 {
            // All at once: each is held for a few seconds only.
            let numbers = held.len()..held.len() + 16;
            let opened = thread::scope(|scope| {
                let open = |number| scope.spawn(move || first_word(address, client, number));
                let opening: Vec<_> = numbers.map(open).collect();
                let opened = opening
                    .into_iter()
                    .map(|one| one.join().expect("it does not panic"));
                opened.collect::<Vec<_>>()
            });
            for (stream, word) in opened {
                assert_eq!(word, Some(9), "{} are held", held.len());
                held.push(stream);
            }
            // Its share is taken, and the others have theirs.
            assert_eq!(first_word(address, client, 1_000).1, Some(0xFF));
        }
        assert_eq!(first_word(address, 5, 1_000).1, Some(0xFF), "65 tests");
        let refused = measure(&spec(1, Direction::Forward), address, &abort());
        assert!(
            matches!(
                refused,
                Err(TrafficError::Iperf3 {
                    source: TalkError::Busy,
                    ..
                })
            ),
            "{refused:?}"
        );
        let tests = held.len();
        drop(held);
        for _ in 0..tests {
            assert!(next(finished).outcome.is_err());
        }
        assert_still_serves(address, finished);
    });
}

#[test]
fn parameters_that_trickle_in_are_given_up_after_their_time() {
    with_server(loopback(), |address, finished| {
        let mut slow = greeted(address);
        slow.write_all(&[0, 0, 0]).expect("open");
        let said = rest(slow);
        assert_eq!((said.first(), said.len()), (Some(&0xFE), 9));
        let outcome = next(finished).outcome;
        assert!(
            matches!(
                outcome,
                Err(TrafficError::Iperf3 {
                    source: TalkError::Silent {
                        awaited: "its parameters",
                        ..
                    },
                    ..
                })
            ),
            "{outcome:?}"
        );
        assert_still_serves(address, finished);
    });
}

#[test]
fn datagrams_of_strangers_open_no_stream() {
    with_server(loopback(), |address, finished| {
        let stranger = UdpSocket::bind(loopback()).expect("a free port");
        stranger.connect(address).expect("a route");
        for datagram in [&b"9876"[..], b"", &[7; 1400]] {
            // Nobody there to refuse it.
            stranger.send(datagram).expect("a socket");
        }
        assert_still_serves(address, finished);
        stranger.set_nonblocking(true).expect("a socket");
        assert!(stranger.recv(&mut [0; 16]).is_err(), "nobody has answered");
    });
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    with_server(loopback(), |address, finished| {
        let mut held = std::collections::VecDeque::new();
        for number in 0..10_000 {
            // The kernel may refuse temporarily when its queue is full.
            if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                if number % 3 == 0 {
                    // It may have been thrown out.
                    let _ = stream.write_all(&COOKIE[..number % 37]);
                }
                held.push_back(stream);
            }
            if held.len() > 200 {
                held.pop_front();
            }
        }
        assert_still_serves(address, finished);
        drop(held);
        assert_still_serves(address, finished);
    });
}

/// A server that sends `words` and closes.
fn server_that_says(words: &'static [u8]) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(loopback()).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let serving = thread::spawn(move || {
        let (mut control, _) = listener.accept().expect("a client");
        let mut cookie = [0; 37];
        control.read_exact(&mut cookie).expect("a cookie");
        control.write_all(words).expect("open");
        control.shutdown(Shutdown::Write).expect("open");
        rest(control);
    });
    (address, serving)
}

#[test]
fn a_server_that_does_not_keep_to_the_protocol_is_an_error_that_says_what_it_did() {
    for (words, expected) in [
        (&[0xFF][..], "busy"),
        (&[], "busy"),
        (&[11], "interrupted"),
        (&[2], "TestRunning"),
        (&[77], "0x4d"),
        (&[9, 1], "TestStart"),
        (&[9], "closed"),
        (&[0xFE, 0, 0, 0, 205, 0, 0, 0, 9], "205"),
    ] {
        let (address, serving) = server_that_says(words);
        let outcome = measure(&spec(1, Direction::Forward), address, &abort());
        let error = outcome.expect_err("no server").to_string();
        assert!(error.contains(expected), "{words:?}: {error}");
        serving.join().expect("no panic");
    }
}
