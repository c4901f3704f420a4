//! What the tests of real connections share: a specification, both ends over the loopback in one
//! process, a hand-made peer that speaks the data connections' few words, and the checks that hold for
//! every record.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::protocol::Token;
use linerate_model::sample::{FlowRecord, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Placement, TrialSpec};
use linerate_traffic::tcp::{Connected, Listening};
use linerate_traffic::{Abort, TrafficError};

/// The token of the trials here.
pub(crate) const TOKEN: Token = Token([0x5A; 16]);

/// Only against a test that hangs: nothing here is expected to come near it.
pub(crate) fn hang_guard() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

pub(crate) fn abort() -> Abort {
    Abort::new().expect("an eventfd")
}

pub(crate) fn spec(flows: u32, direction: Direction) -> TrialSpec {
    TrialSpec {
        flows,
        direction,
        // A thread without a CPU for as long as that moves nothing.
        duration_ns: Nanoseconds::from_millis(300),
        interval_ns: Nanoseconds::from_millis(10),
        buffer_bytes: Bytes::kib(32),
        socket_buffer_bytes: None,
        congestion_control: None,
        placement: Placement::default(),
        ..TrialSpec::default()
    }
}

pub(crate) fn listen(spec: &TrialSpec) -> (Listening, SocketAddr) {
    let listening = Listening::open(spec, TOKEN, "127.0.0.1").expect("a free port");
    let address = (Ipv4Addr::LOCALHOST, listening.port()).into();
    (listening, address)
}

pub(crate) type Outcome = Result<SideSample, TrafficError>;

/// Runs both ends; (connecting end, listening end).
pub(crate) fn run_both(spec: &TrialSpec) -> (Outcome, Outcome) {
    let (listening, address) = listen(spec);
    let abort = abort();
    run_against(spec, listening, address, &abort)
}

pub(crate) fn run_against(
    spec: &TrialSpec,
    listening: Listening,
    address: SocketAddr,
    abort: &Abort,
) -> (Outcome, Outcome) {
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), abort)?.run(abort));
        let near = Connected::connect(spec, address, TOKEN, hang_guard(), abort)
            .and_then(|connected| connected.run(abort));
        (near, far.join().expect("the listening end does not panic"))
    })
}

/// What must hold for every record of a trial that came to its end.
pub(crate) fn check_record(flow: &FlowRecord, spec: &TrialSpec) {
    let number = flow.flow;
    assert_eq!(flow.at_ns.len(), flow.bytes.len(), "flow {number}");
    assert!(
        flow.at_ns.windows(2).all(|two| two[0] < two[1]),
        "flow {number}: times are strictly ascending: {:?}",
        flow.at_ns
    );
    assert!(
        flow.bytes.windows(2).all(|two| two[0] <= two[1]),
        "flow {number}: the counter never falls: {:?}",
        flow.bytes
    );
    let end = flow.at_ns.last().expect("at least the end is recorded");
    // The clocks of the two ends of a bidirectional trial start at slightly different times.
    if spec.direction != Direction::Bidirectional {
        assert!(*end >= spec.duration_ns, "flow {number} ended at {end}");
    }
}

/// A peer made by hand: a plain stream that has presented `flow` and was accepted.
pub(crate) fn hand_made_peer(address: SocketAddr, flow: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    let mut greeting = b"LNRT\0\0\0\x01".to_vec();
    greeting.extend(TOKEN.0);
    greeting.extend(flow.to_be_bytes());
    stream.write_all(&greeting).expect("an open connection");
    assert_eq!(
        read_byte(&mut stream),
        Some(0x06),
        "the greeting is accepted"
    );
    stream
}

/// A hand-made peer whose threads, and whose opposite's, are ready.
pub(crate) fn ready_peer(address: SocketAddr, flow: u32) -> TcpStream {
    let mut stream = hand_made_peer(address, flow);
    stream.write_all(&[0x52]).expect("an open connection");
    assert_eq!(read_byte(&mut stream), Some(0x52), "the other end is ready");
    stream
}

/// The listening end of `spec` against a hand-made peer of each flow, each on its own thread.
pub(crate) fn against_peers(spec: &TrialSpec, peer: impl Fn(u32, TcpStream) + Sync) -> Outcome {
    let (listening, address) = listen(spec);
    let (abort, peer) = (abort(), &peer);
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
        for flow in 0..spec.flows {
            scope.spawn(move || {
                let stream = ready_peer(address, flow);
                stream.set_nodelay(true).expect("a socket");
                peer(flow, stream);
            });
        }
        far.join().expect("it does not panic")
    })
}

/// The next byte, or `None` at the end of the connection.
pub(crate) fn read_byte(stream: &mut TcpStream) -> Option<u8> {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(1) => Some(byte[0]),
        _ => None,
    }
}

/// The fields of a wrong-byte error: its flow, its repetition, its place, and which bits differ.
pub(crate) fn wrong_byte(outcome: Outcome) -> (u32, u64, u64, u8) {
    match outcome {
        Err(TrafficError::WrongByte {
            flow,
            repetition,
            at,
            expected,
            found,
        }) => (flow, repetition, at, expected ^ found),
        outcome => panic!("no wrong byte: {outcome:?}"),
    }
}

/// A connection from an address of this host, such as one of 127.0.0.0/8.
pub(crate) fn connect_from(own: [u8; 4], address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((own, 0))).expect("an address of this host");
    connect(&socket, &address).expect("it listens");
    socket.into()
}
