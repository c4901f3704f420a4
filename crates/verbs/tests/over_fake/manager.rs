//! Connections by the connection manager. What it has given out is counted for the whole process, so these tests
//! take turns.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_verbs::{
    Access, Calling, Connection, Listener, Opcode, Patience, Send, Sends, Step, VerbsError, Work,
};
use linerate_verbs_fake::{Fake, FakeDevice, Fault};

use crate::ends::{End, Plan, device};

/// Reads and atomics under way.
const READS: (u8, u8) = (1, 1);

/// A test's turn, with what ends its waiting: long after anything takes, or when it drops the other end.
struct Turn {
    _alone: MutexGuard<'static, ()>,
    stop: UnixStream,
    stops: UnixStream,
}

impl Turn {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (stop, stops) = UnixStream::pair().expect("sockets");
        Self {
            _alone: alone,
            stop,
            stops,
        }
    }

    fn patience(&self) -> Patience<'_> {
        Patience {
            until: Instant::now() + Duration::from_secs(300),
            stop: self.stop.as_fd(),
        }
    }
}

fn at(fake: &FakeDevice, port: u16) -> SocketAddr {
    SocketAddr::new(fake.address(), port)
}

fn calling(fake: &FakeDevice, port: u16, turn: &Turn) -> Result<Calling, VerbsError> {
    Calling::new(at(fake, 0), at(fake, port), 0x20, turn.patience())
}

/// Calls with an end, up to the connection.
fn call(
    mut calling: Calling,
    end: &End,
    private: &[u8],
    turn: &Turn,
) -> Result<Connection, VerbsError> {
    let access = Plan::default().access;
    let follow = |calling: &Calling, step| {
        let attributes = calling.attributes(step, access)?;
        end.queue_pair.follow(&attributes)
    };
    follow(&calling, Step::Initialize)?;
    let wanted = calling.call(end.queue_pair.number(), private, READS, turn.patience())?;
    follow(&calling, Step::Receive)?;
    follow(&calling, Step::Send)?;
    calling.establish(wanted)
}

/// Accepts the next call with an end.
fn accept(listener: &Listener, end: &End, turn: &Turn) -> (Vec<u8>, Connection) {
    let request = listener.next_request(turn.patience()).expect("a request");
    let access = Plan::default().access;
    for step in [Step::Initialize, Step::Receive, Step::Send] {
        let mut attributes = request.attributes(step, access).expect("attributes");
        attributes.mtu = Some(512);
        end.queue_pair.follow(&attributes).expect("a state");
    }
    let private = request.private().to_vec();
    let number = end.queue_pair.number();
    let accepted = request.accept(number, READS, turn.patience());
    (private, accepted.expect("a connection"))
}

#[test]
fn a_call_is_accepted_and_its_queue_pairs_are_joined() {
    let turn = Turn::new();
    let (fake, device) = device();
    let listener = Listener::new(at(&fake, 0)).expect("a listener");
    let port = listener.port();
    assert_ne!(port, 0);
    let far = End::new(&device, Plan::default());
    std::thread::scope(|scope| {
        // Everything of an end stays in its thread, so the listening one reports where its memory is.
        let (tell, told) = std::sync::mpsc::channel();
        let (fake, turn, device) = (&fake, &turn, device.clone());
        let caller = scope.spawn(move || {
            let near = End::new(&device, Plan::default());
            let way = calling(fake, port, turn).expect("a way");
            assert_eq!(way.device().as_deref(), Some(fake.name()));
            let first = way.attributes(Step::Initialize, Access::default());
            assert_eq!(first.expect("attributes").port(), 1);
            let refused = way.attributes(Step::Receive, Access::default());
            assert!(refused.is_err(), "there is no far end yet");
            let connection = call(way, &near, b"who I am", turn).expect("a connection");
            let target = told.recv().expect("where it writes");
            near.region.write(0, b"connected");
            let mut sends = Sends::new(&[Send {
                id: 6,
                local: near.region.slice(0..9),
                work: Work::Write(target),
                signaled: true,
                inline: false,
            }]);
            sends.post(&near.queue_pair, 0, 1).expect("a post");
            assert_eq!(near.end(), (6, Ok(Opcode::Sent)));
            drop(sends);
            drop((connection, near));
        });
        let (private, connection) = accept(&listener, &far, turn);
        assert!(private.starts_with(b"who I am"), "{private:?}");
        tell.send(far.region.remote(8)).expect("it waits");
        caller.join().expect("the caller");
        let mut came = [0; 9];
        far.region.read(8, &mut came);
        assert_eq!(&came, b"connected");
        drop(connection);
    });
    drop((listener, far, device));
    assert_eq!(Fake::install().manager_alive(), 0);
    assert_eq!(fake.alive(), []);
}

/// The error of a call that failed.
fn refused<T>(result: Result<T, VerbsError>) -> String {
    result.err().expect("it is refused").to_string()
}

#[test]
fn where_nobody_listens_and_where_no_device_is_are_told_apart() {
    let turn = Turn::new();
    let (fake, device) = device();
    let end = End::new(&device, Plan::default());
    let way = calling(&fake, 9, &turn).expect("a way");
    let said = refused(call(way, &end, b"", &turn));
    assert!(said.contains("cannot connect to the remote end"), "{said}");
    assert!(said.contains("RDMA_CM_EVENT_REJECTED (reason 8)"), "{said}");

    let nowhere: SocketAddr = "192.0.2.1:9".parse().expect("an address");
    let said = refused(Calling::new(at(&fake, 0), nowhere, 0, turn.patience()));
    assert!(said.contains("cannot resolve the remote address"), "{said}");
    assert!(said.contains("No route to host"), "{said}");
    for said in [
        refused(Calling::new(nowhere, at(&fake, 9), 0, turn.patience())),
        refused(Listener::new(nowhere)),
    ] {
        assert!(
            said.contains("no RDMA device carries this address"),
            "{said}"
        );
    }
    let listener = Listener::new(at(&fake, 0)).expect("a listener");
    let said = refused(Listener::new(at(&fake, listener.port())));
    assert!(said.contains("cannot listen at this address"), "{said}");
    drop(listener);
    assert_eq!(Fake::install().manager_alive(), 0);
}

#[test]
fn a_port_that_tcp_has_already_is_passed_over_and_one_that_was_asked_for_is_not() {
    let turn = Turn::new();
    let (fake, device) = device();
    fake.set(Fault::PortsTaken, 3);
    let listener = Listener::new(at(&fake, 0)).expect("the fourth port is free");
    let port = listener.port();
    fake.set(Fault::PortsTaken, 3);
    let far = End::new(&device, Plan::default());
    std::thread::scope(|scope| {
        let (fake, turn, device) = (&fake, &turn, device.clone());
        let caller = scope.spawn(move || {
            let near = End::new(&device, Plan::default());
            let way = calling(fake, port, turn).expect("a way");
            drop(call(way, &near, b"at last", turn).expect("the fourth port is free"));
        });
        let (private, _connection) = accept(&listener, &far, turn);
        assert!(private.starts_with(b"at last"), "{private:?}");
        caller.join().expect("the caller");
    });
    fake.set(Fault::PortsTaken, u64::MAX);
    let end = End::new(&device, Plan::default());
    let way = calling(&fake, port, &turn).expect("a way");
    for said in [
        refused(call(way, &end, b"", &turn)),
        refused(Listener::new(at(&fake, 0))),
    ] {
        assert!(said.contains("the port is in use"), "{said}");
    }
    fake.set(Fault::PortsTaken, 1);
    let said = refused(Listener::new(at(&fake, 7)));
    assert!(said.contains("the port is in use"), "{said}");
    drop((listener, far, end, device));
    assert_eq!(Fake::install().manager_alive(), 0);
}

#[test]
fn a_request_that_is_dropped_is_rejected() {
    let turn = Turn::new();
    let (fake, device) = device();
    let listener = Listener::new(at(&fake, 0)).expect("a listener");
    let port = listener.port();
    std::thread::scope(|scope| {
        let (fake, turn) = (&fake, &turn);
        let caller = scope.spawn(move || {
            let end = End::new(&device, Plan::default());
            let way = calling(fake, port, turn).expect("a way");
            refused(call(way, &end, b"", turn))
        });
        let request = listener.next_request(turn.patience()).expect("a request");
        assert_eq!(request.device().as_deref(), Some(fake.name()));
        assert_eq!(request.reads_asked(), 1);
        drop(request);
        let said = caller.join().expect("it was told");
        assert!(
            said.contains("RDMA_CM_EVENT_REJECTED (reason 28)"),
            "{said}"
        );
    });
    drop(listener);
    assert_eq!(Fake::install().manager_alive(), 0);
}

#[test]
fn waiting_ends_with_its_time_and_with_the_trial() {
    let turn = Turn::new();
    let (fake, _device) = device();
    let listener = Listener::new(at(&fake, 0)).expect("a listener");
    let over = Patience {
        until: Instant::now(),
        ..turn.patience()
    };
    let said = refused(listener.next_request(over));
    assert!(said.contains("timed out"), "{said}");
    let patience = Patience {
        until: Instant::now() + Duration::from_secs(300),
        stop: turn.stop.as_fd(),
    };
    turn.stops
        .shutdown(std::net::Shutdown::Both)
        .expect("an end");
    let said = refused(listener.next_request(patience));
    assert!(said.contains("the trial was aborted"), "{said}");
    drop(listener);
    assert_eq!(Fake::install().manager_alive(), 0);
}

#[test]
fn what_came_for_a_connection_that_is_gone_is_not_taken_for_another_one() {
    let turn = Turn::new();
    let (fake, device) = device();
    let listener = Listener::new(at(&fake, 0)).expect("a listener");
    let port = listener.port();
    std::thread::scope(|scope| {
        let (fake, turn) = (&fake, &turn);
        let far_device = device.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let caller = scope.spawn(move || {
            for _ in 0..20 {
                let end = End::new(&far_device, Plan::default());
                let way = calling(fake, port, turn).expect("a way");
                drop(call(way, &end, b"", turn).expect("a connection"));
                // Notified of the end before the next call comes.
                tell.send(()).expect("it waits");
            }
        });
        let mut before = None;
        for _ in 0..20 {
            let end = End::new(&device, Plan::default());
            let (_, connection) = accept(&listener, &end, turn);
            told.recv().expect("it ended");
            // The one before goes only now: what came for it was read while this one was waited for.
            before = Some((connection, end));
        }
        drop(before);
        caller.join().expect("the caller");
    });
    drop(listener);
    assert_eq!(Fake::install().manager_alive(), 0);
}

#[test]
fn a_call_that_was_read_and_not_taken_ends_with_the_listener() {
    let turn = Turn::new();
    let (fake, device) = device();
    let listener = Listener::new(at(&fake, 0)).expect("a listener");
    let port = listener.port();
    std::thread::scope(|scope| {
        let (fake, turn, first, second) = (&fake, &turn, device.clone(), device.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let taken = scope.spawn(move || {
            let end = End::new(&first, Plan::default());
            let mut way = calling(fake, port, turn).expect("a way");
            let number = end.queue_pair.number();
            let answered = way.call(number, b"", READS, turn.patience());
            assert_eq!(answered, Ok(true));
            // Established only when the other call is there: a channel and two identifiers for each, with the
            // listener's two, and nothing else while everybody waits.
            told.recv().expect("a way");
            while Fake::install().manager_alive() < 8 {
                std::thread::yield_now();
            }
            drop(way.establish(true).expect("a connection"));
        });
        let request = listener.next_request(turn.patience()).expect("a request");
        let untaken = scope.spawn(move || {
            let end = End::new(&second, Plan::default());
            let way = calling(fake, port, turn).expect("a way");
            tell.send(()).expect("it waits");
            refused(call(way, &end, b"", turn))
        });
        let end = End::new(&device, Plan::default());
        let connection = request.accept(end.queue_pair.number(), READS, turn.patience());
        drop(connection.expect("a connection"));
        drop(listener);
        taken.join().expect("the first caller");
        let said = untaken.join().expect("it was told");
        assert!(said.contains("RDMA_CM_EVENT_REJECTED"), "{said}");
    });
    assert_eq!(Fake::install().manager_alive(), 0);
}
