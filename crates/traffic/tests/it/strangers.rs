//! Connections that do not belong to the trial: they are not counted and hold up nobody.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use linerate_model::protocol::Token;
use linerate_model::workload::Direction;
use linerate_traffic::TrafficError;
use linerate_traffic::tcp::Connected;

use crate::both_ends::{TOKEN, abort, hang_guard, listen, read_byte, run_against, spec};

#[test]
fn silent_strangers_do_not_block_a_trial() {
    let spec = spec(2, Direction::Forward);
    let (listening, address) = listen(&spec);
    let strangers: Vec<TcpStream> = (0..5)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    let (near, far) = run_against(&spec, listening, address, &abort());
    let (near, far) = (near.expect("the near end"), far.expect("the far end"));
    assert_eq!(near.flows[1].total(), far.flows[1].total());
    drop(strangers);
}

#[test]
fn a_stranger_is_closed_within_its_second_and_learns_nothing() {
    let spec = spec(1, Direction::Forward);
    let (listening, address) = listen(&spec);
    let abort = abort();
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort));
        let mut silent = TcpStream::connect(address).expect("it listens");
        let mut noisy = TcpStream::connect(address).expect("it listens");
        noisy
            .write_all(b"GET / HTTP/1.1\r\nHost: far\r\n\r\n")
            .expect("open");
        assert_eq!(read_byte(&mut noisy), None, "closed without a word");
        assert_eq!(read_byte(&mut silent), None, "closed without a word");
        abort.trigger();
        assert!(matches!(
            far.join().expect("no panic"),
            Err(TrafficError::Aborted)
        ));
    });
}

#[test]
fn a_wrong_token_is_refused_and_the_trial_goes_on_without_it() {
    let spec = spec(1, Direction::Forward);
    let (listening, address) = listen(&spec);
    let abort = abort();
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort));
        let wrong = Token([1; 16]);
        let refused = Connected::connect(&spec, address, wrong, hang_guard(), &abort);
        assert!(
            matches!(refused, Err(TrafficError::TokenRefused { .. })),
            "{refused:?}"
        );
        Connected::connect(&spec, address, TOKEN, hang_guard(), &abort).expect("the right one");
        far.join().expect("no panic").expect("one right connection");
    });
}

#[test]
fn a_flow_number_out_of_range_or_taken_is_refused() {
    let spec = spec(1, Direction::Forward);
    let (listening, address) = listen(&spec);
    let abort = abort();
    let more = crate::both_ends::spec(3, Direction::Forward);
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort));
        let refused = Connected::connect(&more, address, TOKEN, hang_guard(), &abort);
        assert!(
            matches!(refused, Err(TrafficError::TokenRefused { .. })),
            "{refused:?}"
        );
        far.join()
            .expect("no panic")
            .expect("its flow 0 was what the trial waits for");
    });
}

#[test]
fn connections_that_never_come_are_a_time_out_that_says_how_many_came() {
    let (listening, _) = listen(&spec(4, Direction::Forward));
    let outcome = listening.accept(Instant::now(), &abort());
    assert!(
        matches!(
            outcome,
            Err(TrafficError::AcceptTimeOut {
                arrived: 0,
                expected: 4,
                ..
            })
        ),
        "{outcome:?}"
    );
}
