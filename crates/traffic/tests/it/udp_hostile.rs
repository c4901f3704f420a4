//! Datagrams with a hand-made peer: datagrams of other senders, and failures.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::sample::{Datagrams, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{DatagramBatch, Direction, TrialSpec, Waiting};
use linerate_traffic::{Abort, TrafficError};

use crate::both_ends::{Outcome, abort, hand_made_peer, hang_guard, listen, read_byte};
use crate::udp::{BATCHES, spec};

const DATAGRAM: usize = 100;

/// The other end of flow 0, made by hand: its companion, and its UDP socket.
struct Peer {
    companion: TcpStream,
    socket: UdpSocket,
    /// Where linerate's socket is.
    port: u16,
    secret: [u8; 8],
}

impl Peer {
    /// A peer that has received linerate's HELLO and has not sent its own.
    fn listen(mut companion: TcpStream) -> Self {
        let mut hello = [0; 22];
        companion.read_exact(&mut hello).expect("a HELLO");
        assert_eq!(&hello[..4], b"LNRU");
        Self {
            companion,
            socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"),
            port: u16::from_be_bytes([hello[4], hello[5]]),
            secret: hello[6..14].try_into().expect("eight bytes"),
        }
    }

    /// Sends HELLO, with a secret of sevens, and READY.
    fn answer(&mut self) {
        let mut hello = b"LNRU".to_vec();
        let own = self.socket.local_addr().expect("it is bound");
        hello.extend(own.port().to_be_bytes());
        hello.extend([7; 8]);
        hello.extend([0; 8]);
        self.companion.write_all(&hello).expect("open");
        self.socket
            .connect((Ipv4Addr::LOCALHOST, self.port))
            .expect("the loopback");
        self.meet();
        self.companion.write_all(&[0x52]).expect("open");
        assert_eq!(read_byte(&mut self.companion), Some(0x52), "READY");
    }

    /// Shows linerate's socket where this one is.
    fn meet(&mut self) {
        self.send(b"LNRP\x07\x07\x07\x07\x07\x07\x07\x07");
        let mut heard = [0; 4];
        self.companion.read_exact(&mut heard).expect("an answer");
        assert_eq!(&heard, b"HERE");
    }

    /// Datagram `sequence` of the flow.
    fn datagram(&self, sequence: u64) -> Vec<u8> {
        let mut datagram = self.secret.to_vec();
        datagram.extend(sequence.to_be_bytes());
        datagram.extend((sequence * 1000).to_be_bytes());
        datagram.resize(DATAGRAM, 0);
        datagram
    }

    fn send(&self, datagram: &[u8]) {
        self.socket
            .send(datagram)
            .expect("linerate's socket is open");
    }

    fn report(&mut self, datagrams: u64) {
        let mut report = b"SENT".to_vec();
        report.extend(datagrams.to_be_bytes());
        report.extend((datagrams * DATAGRAM as u64).to_be_bytes());
        self.companion.write_all(&report).expect("open");
    }
}

fn trial(direction: Direction, batch: DatagramBatch) -> TrialSpec {
    spec((1, direction), DATAGRAM as u64, None, batch)
}

/// So long that a test which waits for it hangs visibly.
fn an_hour(direction: Direction, waiting: Waiting) -> TrialSpec {
    TrialSpec {
        duration_ns: Nanoseconds::from_millis(3_600_000),
        interval_ns: Nanoseconds::from_millis(100),
        waiting,
        ..trial(direction, DatagramBatch::Gso)
    }
}

/// The listening end of `spec` against a hand-made peer.
fn against(spec: &TrialSpec, abort: &Abort, peer: impl FnOnce(Peer)) -> Outcome {
    let (listening, address) = listen(spec);
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), abort)?.run(abort));
        peer(Peer::listen(hand_made_peer(address, 0)));
        far.join().expect("it does not panic")
    })
}

/// A receiver against a peer that does `sends` and reports `count` datagrams after the duration.
fn received(spec: &TrialSpec, count: u64, sends: impl FnOnce(&Peer)) -> Datagrams {
    let outcome = against(spec, &abort(), |mut peer| {
        peer.answer();
        assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
        let begun = Instant::now();
        sends(&peer);
        // A report before the duration would be of a peer that was stopped.
        // tidy: time itself is the subject
        thread::sleep(Duration::from(spec.duration_ns).saturating_sub(begun.elapsed()));
        peer.report(count);
        assert_eq!(read_byte(&mut peer.companion), None, "and that is all");
    });
    account(&outcome.expect("the peer kept its word"))
}

fn account(record: &SideSample) -> Datagrams {
    let flow = record.flows[0].clone();
    let datagrams = flow.datagrams.clone().expect("this is the workload udp");
    assert_eq!(flow.total().as_u64(), datagrams.count * DATAGRAM as u64);
    datagrams
}

#[test]
fn lost_reordered_and_doubled_datagrams_are_told_apart() {
    for batch in BATCHES {
        let record = received(&trial(Direction::Forward, batch), 10, |peer| {
            for sequence in [0, 1, 1, 3, 2, 7, 0] {
                peer.send(&peer.datagram(sequence));
            }
        });
        assert_eq!(
            (
                record.count,
                record.lost,
                record.reordered,
                record.duplicated
            ),
            (7, 5, 1, 2)
        );
        assert_eq!(
            record.delay, None,
            "the peer did not say which clock it has"
        );
        assert_eq!(record.socket_drops, Some(0));
    }
}

#[test]
fn what_strangers_send_never_counts() {
    for batch in BATCHES {
        let spec = trial(Direction::Forward, batch);
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let outcome = against(&spec, &abort(), |mut peer| {
            // linerate's socket is bound and not connected yet: this is queued there.
            stranger
                .connect((Ipv4Addr::LOCALHOST, peer.port))
                .expect("the loopback");
            stranger.send(&[0; DATAGRAM]).expect("the loopback");
            stranger.send(&[]).expect("the loopback");
            peer.answer();
            assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
            let begun = Instant::now();
            // From elsewhere, even with the secret: the kernel refuses it now.
            for _ in 0..5 {
                // Refused datagrams come back as errors of the next send.
                let _ = stranger.send(&peer.datagram(0));
            }
            // From the right port, but not of this flow, or of no length of this trial.
            peer.send(&[7; DATAGRAM]);
            peer.send(&peer.datagram(1)[..DATAGRAM - 1]);
            peer.send(&peer.datagram(2)[..23]);
            peer.send(&[]);
            let mut long = peer.datagram(3);
            long.push(0);
            peer.send(&long);
            peer.send(&peer.datagram(4));
            // tidy: time itself is the subject
            thread::sleep(Duration::from(spec.duration_ns).saturating_sub(begun.elapsed()));
            peer.report(5);
            assert_eq!(read_byte(&mut peer.companion), None, "and that is all");
        });
        let record = account(&outcome.expect("the peer kept its word"));
        assert_eq!((record.count, record.lost), (1, 4), "{batch}");
    }
}

#[test]
fn what_comes_after_the_report_is_waited_for() {
    let spec = trial(Direction::Forward, DatagramBatch::Gso);
    let outcome = against(&spec, &abort(), |mut peer| {
        peer.answer();
        assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
        // tidy: time itself is the subject
        thread::sleep(Duration::from(spec.duration_ns));
        peer.report(2);
        peer.send(&peer.datagram(1));
        peer.send(&peer.datagram(0));
        assert_eq!(read_byte(&mut peer.companion), None, "and that is all");
    });
    let record = account(&outcome.expect("the peer kept its word"));
    assert_eq!((record.count, record.lost, record.reordered), (2, 0, 1));
}

#[test]
fn a_sender_counts_what_it_sent_and_reports_it() {
    let rate = BitRate::from_bit_per_s(DATAGRAM as u64 * 8 * 200);
    for batch in BATCHES {
        let spec = spec((1, Direction::Reverse), DATAGRAM as u64, Some(rate), batch);
        let mut heard = (0, Vec::new());
        let outcome = against(&spec, &abort(), |mut peer| {
            peer.answer();
            peer.companion.write_all(&[0x47]).expect("open");
            let mut report = [0; 20];
            peer.companion.read_exact(&mut report).expect("a REPORT");
            peer.socket.set_nonblocking(true).expect("plain");
            let mut datagram = [0; 2 * DATAGRAM];
            let mut sequence = 0u64;
            while let Ok(length) = peer.socket.recv(&mut datagram) {
                assert_eq!((length, &datagram[..8]), (DATAGRAM, &[7; 8][..]));
                assert_eq!(datagram[8..16], sequence.to_be_bytes());
                sequence += 1;
            }
            heard = (sequence, report.to_vec());
        });
        let record = account(&outcome.expect("the peer read all"));
        let mut report = b"SENT".to_vec();
        report.extend(record.count.to_be_bytes());
        report.extend((record.count * DATAGRAM as u64).to_be_bytes());
        assert_eq!(heard, (record.count, report));
    }
}

/// The ways of waiting that need no right.
const WAITINGS: [Waiting; 3] = [Waiting::Blocking, Waiting::Epoll, Waiting::Spin];

#[test]
fn a_sender_that_dies_in_mid_run_is_an_error_at_once() {
    for waiting in WAITINGS {
        let spec = an_hour(Direction::Forward, waiting);
        let outcome = against(&spec, &abort(), |mut peer| {
            peer.answer();
            assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
            peer.send(&peer.datagram(0));
        });
        let closed = matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. }));
        assert!(closed, "{waiting}: {outcome:?}");
    }
}

#[test]
fn a_sender_that_stops_early_is_an_error_too() {
    let spec = an_hour(Direction::Forward, Waiting::Blocking);
    let outcome = against(&spec, &abort(), |mut peer| {
        peer.answer();
        assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
        peer.report(0);
        assert_eq!(read_byte(&mut peer.companion), None, "given up");
    });
    let closed = matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. }));
    assert!(closed, "{outcome:?}");
}

#[test]
fn a_receiver_that_dies_in_mid_run_is_an_error_at_once() {
    for waiting in WAITINGS {
        for rate in [None, Some(BitRate::from_bit_per_s(1))] {
            let spec = TrialSpec {
                workload: spec(
                    (1, Direction::Reverse),
                    DATAGRAM as u64,
                    rate,
                    DatagramBatch::Gso,
                )
                .workload,
                ..an_hour(Direction::Reverse, waiting)
            };
            let outcome = against(&spec, &abort(), |mut peer| {
                peer.answer();
                peer.companion.write_all(&[0x47]).expect("open");
                let mut datagram = [0; DATAGRAM];
                peer.socket.recv(&mut datagram).expect("the first one");
            });
            let closed = matches!(outcome, Err(TrafficError::PeerClosed { flow: 0, .. }));
            assert!(closed, "{waiting}: {outcome:?}");
        }
    }
}

#[test]
fn a_closed_port_is_told_from_a_peer_that_died() {
    let spec = an_hour(Direction::Reverse, Waiting::Blocking);
    let outcome = against(&spec, &abort(), |mut peer| {
        peer.answer();
        drop(peer.socket);
        peer.companion.write_all(&[0x47]).expect("open");
        assert_eq!(read_byte(&mut peer.companion), None, "given up");
    });
    let refused = matches!(outcome, Err(TrafficError::DatagramsRefused { flow: 0, .. }));
    assert!(refused, "{outcome:?}");
}

#[test]
fn garbage_on_a_companion_is_an_error_at_any_time() {
    let garbage = |mut companion: TcpStream| {
        companion
            .write_all(b"GET / HTTP/1.1\r\nHost: far\r\n\r\n")
            .expect("open");
        // Until it is closed, by an end of file or a reset.
        let mut rest = Vec::new();
        let _ = companion.read_to_end(&mut rest);
    };
    for (direction, waiting) in [
        (Direction::Forward, Waiting::Epoll),
        (Direction::Reverse, Waiting::Epoll),
        (Direction::Forward, Waiting::Blocking),
        (Direction::Reverse, Waiting::Blocking),
    ] {
        let spec = an_hour(direction, waiting);
        let at_hello = against(&spec, &abort(), |peer| garbage(peer.companion));
        let in_mid_run = against(&spec, &abort(), |mut peer| {
            peer.answer();
            if direction == Direction::Reverse {
                peer.companion.write_all(&[0x47]).expect("open");
            } else {
                assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
            }
            garbage(peer.companion.try_clone().expect("a descriptor"));
        });
        for outcome in [at_hello, in_mid_run] {
            let garbled = matches!(outcome, Err(TrafficError::PeerGarbled { flow: 0 }));
            assert!(garbled, "{direction:?}: {outcome:?}");
        }
    }
}

#[test]
fn a_report_that_contradicts_itself_is_refused() {
    let spec = trial(Direction::Forward, DatagramBatch::Gso);
    let outcome = against(&spec, &abort(), |mut peer| {
        peer.answer();
        assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
        // tidy: time itself is the subject
        thread::sleep(Duration::from(spec.duration_ns));
        let mut report = b"SENT".to_vec();
        report.extend([0xFF; 16]);
        peer.companion.write_all(&report).expect("open");
        assert_eq!(read_byte(&mut peer.companion), None, "given up");
    });
    let garbled = matches!(outcome, Err(TrafficError::PeerGarbled { flow: 0 }));
    assert!(garbled, "{outcome:?}");
}

#[test]
fn an_abort_ends_both_roles_at_any_time() {
    for direction in [Direction::Forward, Direction::Reverse] {
        for waiting in WAITINGS {
            let spec = an_hour(direction, waiting);
            let before_hello = abort();
            let early = against(&spec, &before_hello, |mut peer| {
                before_hello.trigger();
                while read_byte(&mut peer.companion).is_some() {}
            });
            let in_mid_run = abort();
            let late = against(&spec, &in_mid_run, |mut peer| {
                peer.answer();
                if direction == Direction::Reverse {
                    peer.companion.write_all(&[0x47]).expect("open");
                } else {
                    assert_eq!(read_byte(&mut peer.companion), Some(0x47), "GO");
                }
                in_mid_run.trigger();
                while read_byte(&mut peer.companion).is_some() {}
            });
            for outcome in [early, late] {
                let aborted = matches!(outcome, Err(TrafficError::Aborted));
                assert!(aborted, "{direction:?} {waiting}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_sender_that_never_reports_is_given_up_after_the_stated_time() {
    let mut held = None;
    let spec = trial(Direction::Forward, DatagramBatch::Gso);
    let outcome = against(&spec, &abort(), |mut peer| {
        peer.answer();
        held = Some(peer);
    });
    let overdue = matches!(outcome, Err(TrafficError::Overdue { flow: 0, .. }));
    assert!(overdue, "{outcome:?}");
}
