//! The end that asks, with a connection for each request.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use linerate_model::sample::Operations;
use linerate_model::workload::{Rr, TrialSpec};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, connect, recv, send, sockopt};

use super::{PORT_BYTES, STOP, address_of, companion_end, companion_ended, part, scratch};
use crate::TrafficError;
use crate::exchange::conversation::Fault;
use crate::exchange::pace::Pace;
use crate::exchange::rr::new_operations;
use crate::exchange::schedule::Schedule;
use crate::exchange::{end, flow_places, prepare_timer};
use crate::tcp::words::with_port;
use crate::tcp::{marks, socket};
use crate::trial::{Counter, DataThread, LatencyReport, Start, WorkResult};
use crate::waiting::{Event, Poller, prepare_socket, timespec};

/// How long the port is waited for, as long as for the start of a trial.
const PORT_MAX: Duration = Duration::from_secs(10);

/// One flow: at most one connection at a time.
struct Caller<'a> {
    spec: &'a TrialSpec,
    companion: BorrowedFd<'a>,
    counter: &'a Counter,
    address: SocketAddr,
    pace: Pace<'a>,
    /// The connection, and what of the request and of the response is missing.
    call: Option<(OwnedFd, u64, u64)>,
    bytes: u64,
    answered: u64,
}

/// What all flows of the thread use.
struct Shared<'a> {
    rr: &'a Rr,
    poller: &'a Poller,
    memory: &'a mut [u8],
    operations: &'a mut Operations,
}

pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    rr: &Rr,
) -> Result<Option<WorkResult>, TrafficError> {
    prepare_timer(rr.rate_per_s)?;
    let mut buffer = scratch(data_thread, rr)?;
    let poller = Poller::new(data_thread.spec.waiting)?;
    let report = Rc::new(LatencyReport::new(data_thread.shared_state));
    let mut callers = Vec::with_capacity(data_thread.flows.len());
    for (token, one) in (0..).step_by(2).zip(&data_thread.flows) {
        let companion = one.flow.socket.as_fd();
        let peer = address_of(super::peer_of(companion))?;
        let address = with_port(peer, hear_port(companion, one.flow.number)?);
        poller.add(companion, token, EventFlags::IN)?;
        callers.push(Caller {
            spec: data_thread.spec,
            companion,
            counter: one.counter,
            address,
            pace: Pace::new(data_thread.shared_state, Rc::clone(&report), rr.depth),
            call: None,
            bytes: 0,
            answered: 0,
        });
    }
    let addresses: Vec<_> = callers.iter().map(|caller| caller.address).collect();
    let abort = &data_thread.shared_state.abort;
    socket::check_reachable(data_thread.spec, &addresses, abort)?;
    poller.add(
        &data_thread.shared_state.stopping,
        STOP,
        EventFlags::IN | EventFlags::ONESHOT,
    )?;
    let mut operations = new_operations(rr);
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let shared = Shared {
        rr,
        poller: &poller,
        memory: buffer.bytes(),
        operations: &mut operations,
    };
    call_until_stopped(data_thread, &mut callers, shared, start)
        .map_err(|(index, fault)| fault.on(data_thread.flows[index], start.at, Instant::now()))?;
    let ended = Instant::now();
    let mut flows = Vec::with_capacity(callers.len());
    for (one, caller) in data_thread.flows.iter().zip(&callers) {
        flows.push(companion_end(caller.bytes, ended, start));
        operations.unanswered += caller.pace.left_behind();
        end(data_thread, one, true, ended, start)?;
    }
    Ok(Some(WorkResult {
        flows,
        operations: Some(operations),
        memory_node: buffer.node(),
    }))
}

/// The port that the answering end listens on for this flow.
fn hear_port(companion: BorrowedFd<'_>, flow: u32) -> Result<u16, TrafficError> {
    let until = Instant::now() + PORT_MAX;
    let mut port = [0u8; PORT_BYTES];
    let mut filled = 0;
    while filled < PORT_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TrafficError::StartTimeOut { waited: PORT_MAX });
        }
        let mut fds = [PollFd::from_borrowed_fd(companion, PollFlags::IN)];
        // An interrupted or failed poll only means that we look once more.
        let _ = poll(&mut fds, Some(&timespec(left)));
        match recv(companion, &mut port[filled..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                return Err(TrafficError::PeerClosed {
                    flow,
                    after: Duration::ZERO,
                });
            }
            Ok((count, _)) => filled += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(TrafficError::of_errno("receive the port number", errno)),
        }
    }
    Ok(u16::from_be_bytes(port))
}

fn call_until_stopped(
    data_thread: &DataThread<'_>,
    callers: &mut [Caller<'_>],
    mut shared: Shared<'_>,
    start: Start,
) -> Result<(), (usize, Fault)> {
    let mut events: Vec<Event> = Vec::with_capacity(2 * callers.len() + 1);
    let end = start.at + Duration::from(data_thread.spec.duration_ns);
    for (index, caller) in callers.iter_mut().enumerate() {
        let (flow, flows) = flow_places(data_thread.spec, &data_thread.flows[index]);
        let schedule = shared.rr.rate_per_s;
        let schedule = schedule.map(|rate| Schedule::new(start.at, rate, flow, flows));
        caller.pace.start(schedule, end);
        caller
            .advance(index, &mut shared)
            .map_err(|fault| (index, fault))?;
    }
    while !callers.iter().all(|caller| caller.pace.is_over()) {
        let due = callers.iter().filter_map(|caller| caller.pace.due()).min();
        let limit = due.map(|due| due.saturating_duration_since(Instant::now()));
        let waited = shared.poller.wait(&mut events, limit);
        waited.map_err(|error| (0, error.into()))?;
        for event in &events {
            let token = event.data.u64();
            let index = usize::try_from(token / 2).unwrap_or(usize::MAX);
            let Some(caller) = callers.get_mut(index) else {
                continue;
            };
            let went = if token % 2 == 1 {
                caller.advance(index, &mut shared)
            } else {
                caller.look_at_companion()
            };
            went.map_err(|fault| (index, fault))?;
        }
        if due.is_some() {
            for (index, caller) in callers.iter_mut().enumerate() {
                caller
                    .advance(index, &mut shared)
                    .map_err(|fault| (index, fault))?;
            }
        }
    }
    Ok(())
}

impl Caller<'_> {
    fn look_at_companion(&self) -> Result<(), Fault> {
        match companion_ended(self.companion) {
            Ok(true) => Err(Fault::Closed),
            other => other.map(|_| ()),
        }
    }

    /// Proceeds as far as possible without waiting: to the end of a call, and to the next.
    fn advance(&mut self, index: usize, shared: &mut Shared<'_>) -> Result<(), Fault> {
        loop {
            let Some((connection, unsent, missing)) = &mut self.call else {
                if self.pace.begin() == 0 {
                    return Ok(());
                }
                let connection = self.open(index, shared.poller)?;
                let request = shared.rr.request_bytes.as_u64();
                self.call = Some((connection, request, shared.rr.response_bytes.as_u64()));
                continue;
            };
            if *unsent > 0 {
                let how = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                match send(&*connection, part(shared.memory, *unsent), how) {
                    Ok(count) => *unsent -= count as u64,
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(Fault::Kernel("call the answering end", errno)),
                }
                continue;
            }
            let into = part(shared.memory, *missing);
            match recv(&*connection, into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Fault::Closed),
                Ok((count, _)) => *missing -= count as u64,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Fault::of(errno)),
            }
            if *missing == 0 {
                self.call = None;
                self.note(shared);
            }
        }
    }

    fn note(&mut self, shared: &mut Shared<'_>) {
        self.pace.complete(1, shared.operations);
        self.answered += 1;
        self.bytes += shared.rr.request_bytes.as_u64() + shared.rr.response_bytes.as_u64();
        self.counter.set_both(self.bytes, self.answered);
    }

    fn open(&self, index: usize, poller: &Poller) -> Result<OwnedFd, Fault> {
        let connection = socket::new(self.spec, self.address)?;
        marks::set(&self.spec.marks, &connection)?;
        let failed = |errno| Fault::Kernel("make a connection for a request", errno);
        sockopt::set_tcp_nodelay(&connection, true).map_err(failed)?;
        sockopt::set_socket_linger(&connection, Some(Duration::ZERO)).map_err(failed)?;
        prepare_socket(&connection, self.spec.waiting)?;
        match connect(&connection, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(Errno::CONNREFUSED) => {
                let address = self.address;
                return Err(Fault::Own(TrafficError::Refused { address }));
            }
            Err(errno) => return Err(Fault::Kernel("connect for a request", errno)),
        }
        let token = 2 * index as u64 + 1;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        poller.add(&connection, token, flags)?;
        Ok(connection)
    }
}
