//! The exchange with a kernel that does what real ones do rarely: a pair of datagram sockets, with the responses
//! queued at the other end.

use std::os::unix::net::UnixDatagram;

use super::*;

/// A connection to `kernel`, and `kernel`.
fn pair() -> (Connection, UnixDatagram) {
    let (ours, kernel) = UnixDatagram::pair().expect("two sockets");
    let connection = Connection {
        socket: ours.into(),
        sequence: 0,
        buffer: vec![0; 64],
        script: None,
    };
    (connection, kernel)
}

fn answer(kernel: &UnixDatagram, kind: u16, flags: u16, sequence: u32, body: &[u8]) {
    let bytes = Request::new(kind, body).to_bytes(flags, sequence);
    kernel.send(&bytes.expect("short")).expect("sent");
}

const NEW_LINK: u16 = libc::RTM_NEWLINK;
const ALL_WELL: [u8; 4] = [0; 4];

fn question() -> Request {
    Request::new(libc::RTM_GETLINK, &[0; 16])
}

#[test]
fn a_dump_that_was_interrupted_is_asked_for_again() {
    let (mut connection, kernel) = pair();
    answer(&kernel, NEW_LINK, DUMP_INTERRUPTED, 1, &[1; 4]);
    answer(&kernel, DONE, 0, 1, &ALL_WELL);
    answer(&kernel, NEW_LINK, 0, 2, &[2; 4]);
    answer(&kernel, DONE, 0, 2, &ALL_WELL);
    let answers = connection.dump(&question()).expect("the second was whole");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body, [2; 4]);
}

#[test]
fn a_table_that_never_holds_still_is_given_up() {
    let (mut connection, kernel) = pair();
    for sequence in 1..=DUMP_TRIES {
        answer(&kernel, DONE, DUMP_INTERRUPTED, sequence, &ALL_WELL);
    }
    let failure = connection.dump(&question()).expect_err("never whole");
    assert!(matches!(failure, Failure::Unsteady));
}

#[test]
fn answers_to_an_earlier_question_are_passed_over() {
    let (mut connection, kernel) = pair();
    connection.sequence = 6;
    answer(&kernel, NEW_LINK, 0, 6, &[6; 4]);
    answer(&kernel, ERROR, 0, 6, &ALL_WELL);
    answer(&kernel, NEW_LINK, 0, 7, &[7; 4]);
    answer(&kernel, ERROR, 0, 7, &ALL_WELL);
    let answers = connection.ask(&question()).expect("all well");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body, [7; 4]);
}

#[test]
fn a_datagram_larger_than_the_buffer_is_read_whole() {
    let (mut connection, kernel) = pair();
    let body = vec![9; 20_000];
    answer(&kernel, NEW_LINK, 0, 1, &body);
    answer(&kernel, ERROR, 0, 1, &ALL_WELL);
    let answers = connection.ask(&question()).expect("all well");
    assert_eq!(answers[0].body, body);
}

#[test]
fn lost_data_a_refusal_and_nonsense_are_failures() {
    let fail = |kind, body: &[u8]| {
        let (mut connection, kernel) = pair();
        answer(&kernel, kind, 0, 1, body);
        connection.ask(&question()).expect_err("a failure")
    };
    assert!(matches!(fail(OVERRUN, &[]), Failure::Malformed(_)));
    let refusal = (-libc::EPERM).to_ne_bytes();
    assert!(matches!(
        fail(ERROR, &refusal),
        Failure::Kernel {
            errno: libc::EPERM,
            ..
        }
    ));
    let (mut connection, kernel) = pair();
    kernel.send(&[3; 40]).expect("sent");
    assert!(connection.ask(&question()).is_err());
}
