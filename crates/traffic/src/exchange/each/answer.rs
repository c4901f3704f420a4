//! The end that answers, with a connection for each request.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use linerate_model::workload::Rr;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketFlags, acceptfrom_with, getsockname, listen, recv, send, sockopt,
};

use super::{address_of, companion_end, companion_ended, part, scratch};
use crate::TrafficError;
use crate::exchange::conversation::Fault;
use crate::exchange::end;
use crate::tcp::arrival::{bind_within, taken};
use crate::tcp::{Flow, socket};
use crate::trial::{Counter, DataThread, WorkResult};
use crate::waiting::{Event, Poller, prepare_socket};

/// Connections per thread beyond one for each flow. Other connections from the peer's address may
/// be among them; any beyond this limit are closed at once.
const GUESTS_MAX: usize = 1_024;
/// Connections that may wait to be accepted on a listener.
const BACKLOG: i32 = 128;

/// One flow.
struct Desk<'a> {
    companion: BorrowedFd<'a>,
    counter: &'a Counter,
    listener: OwnedFd,
    /// Who is served.
    peer: IpAddr,
    bytes: u64,
    /// Those of parts of requests and answers too.
    moved: u64,
    ended: bool,
}

/// A connection with what of its request and of its response is missing.
struct Guest {
    desk: usize,
    connection: OwnedFd,
    missing: u64,
    unsent: u64,
}

struct House<'a> {
    desks: Vec<Desk<'a>>,
    guests: Vec<Option<Guest>>,
    free: Vec<usize>,
    poller: Poller,
}

/// Tokens: of desk *i* the companion is 2i and the listener 2i + 1; guests come after them.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    rr: &Rr,
) -> Result<Option<WorkResult>, TrafficError> {
    let mut buffer = scratch(data_thread, rr)?;
    let mut house = House {
        desks: Vec::with_capacity(data_thread.flows.len()),
        guests: Vec::new(),
        free: Vec::new(),
        poller: Poller::new(data_thread.spec.waiting)?,
    };
    for (token, one) in (0..).step_by(2).zip(&data_thread.flows) {
        let desk = open_desk(data_thread, one.flow, one.counter)?;
        house.poller.add(desk.companion, token, EventFlags::IN)?;
        house
            .poller
            .add(&desk.listener, token + 1, EventFlags::IN)?;
        house.desks.push(desk);
    }
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    serve(data_thread, rr, &mut house, buffer.bytes())
        .map_err(|(index, fault)| fault.on(data_thread.flows[index], start.at, Instant::now()))?;
    let ended = Instant::now();
    let mut flows = Vec::with_capacity(house.desks.len());
    for (one, desk) in data_thread.flows.iter().zip(&house.desks) {
        flows.push(companion_end(desk.bytes, ended, start));
        end(data_thread, one, false, ended, start)?;
    }
    Ok(Some(WorkResult {
        flows,
        operations: None,
        memory_node: buffer.node(),
    }))
}

/// Listens next to a companion connection, and sends its other end the port.
fn open_desk<'a>(
    data_thread: &DataThread<'a>,
    flow: &'a Flow,
    counter: &'a Counter,
) -> Result<Desk<'a>, TrafficError> {
    let companion = flow.socket.as_fd();
    let mut local = address_of(getsockname(companion))?;
    local.set_port(0);
    let listener = socket::new(data_thread.spec, local)?;
    let failed = |errno| TrafficError::of_errno("listen for requests", errno);
    bind_within(&listener, local, flow.ports).map_err(|errno| match errno {
        Errno::ADDRINUSE => taken(local, flow.ports),
        _ => failed(errno),
    })?;
    listen(&listener, BACKLOG).map_err(failed)?;
    let port = address_of(getsockname(&listener))?.port();
    let told = send(companion, &port.to_be_bytes(), SendFlags::NOSIGNAL);
    told.map_err(|errno| TrafficError::of_errno("send the port number", errno))?;
    Ok(Desk {
        companion,
        counter,
        listener,
        peer: address_of(super::peer_of(companion))?.ip(),
        bytes: 0,
        moved: 0,
        ended: false,
    })
}

fn serve(
    data_thread: &DataThread<'_>,
    rr: &Rr,
    house: &mut House<'_>,
    memory: &mut [u8],
) -> Result<(), (usize, Fault)> {
    let desks = house.desks.len();
    let mut events: Vec<Event> = Vec::with_capacity(256);
    while !house.desks.iter().all(|desk| desk.ended) {
        let waited = house.poller.wait(&mut events, None);
        waited.map_err(|error| (0, error.into()))?;
        for event in &events {
            let token = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let (index, outcome) = match token.checked_sub(2 * desks) {
                Some(slot) => house.serve_guest(slot, rr, memory),
                None if token % 2 == 1 => {
                    (token / 2, house.admit(data_thread, token / 2, rr, memory))
                }
                None => (token / 2, house.look_at_companion(token / 2)),
            };
            outcome.map_err(|fault| (index, fault))?;
        }
    }
    Ok(())
}

impl House<'_> {
    fn look_at_companion(&mut self, index: usize) -> Result<(), Fault> {
        let desk = &mut self.desks[index];
        if !desk.ended && companion_ended(desk.companion)? {
            desk.ended = true;
            // Its end of file would be news again and again.
            self.poller.remove(desk.companion)?;
        }
        Ok(())
    }

    /// Accepts one connection, and serves it as far as possible.
    fn admit(
        &mut self,
        data_thread: &DataThread<'_>,
        index: usize,
        rr: &Rr,
        memory: &mut [u8],
    ) -> Result<(), Fault> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let desk = &self.desks[index];
        let (connection, from) = match acceptfrom_with(&desk.listener, flags) {
            Ok(accepted) => accepted,
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                return Err(Fault::Kernel("accept a request's connection", errno));
            }
            // No connection is pending any more, or it is gone already.
            Err(_) => return Ok(()),
        };
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let full = self.guests.len() - self.free.len() >= GUESTS_MAX + self.desks.len();
        if full || from.is_none_or(|from| from.ip() != desk.peer) {
            return Ok(());
        }
        sockopt::set_tcp_nodelay(&connection, true)
            .map_err(|errno| Fault::Kernel("make a connection ready", errno))?;
        prepare_socket(&connection, data_thread.spec.waiting)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.guests.push(None);
            self.guests.len() - 1
        });
        let token = (2 * self.desks.len() + slot) as u64;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.poller.add(&connection, token, flags)?;
        self.guests[slot] = Some(Guest {
            desk: index,
            connection,
            missing: rr.request_bytes.as_u64(),
            unsent: rr.response_bytes.as_u64(),
        });
        self.serve_guest(slot, rr, memory).1
    }

    fn serve_guest(
        &mut self,
        slot: usize,
        rr: &Rr,
        memory: &mut [u8],
    ) -> (usize, Result<(), Fault>) {
        let Some(guest) = self.guests.get_mut(slot).and_then(Option::as_mut) else {
            // It left in the same round of events.
            return (0, Ok(()));
        };
        let (index, had_answer) = (guest.desk, guest.unsent == 0);
        let before = guest.missing + guest.unsent;
        let stays = guest.advance(memory);
        let desk = &mut self.desks[index];
        if !had_answer && guest.unsent == 0 {
            desk.bytes += rr.request_bytes.as_u64() + rr.response_bytes.as_u64();
        }
        // The result counts whole answers; what is watched while the trial runs is what was moved.
        desk.moved += before - (guest.missing + guest.unsent);
        desk.counter.set_bytes(desk.moved);
        if !stays {
            self.guests[slot] = None;
            self.free.push(slot);
        }
        (index, Ok(()))
    }
}

impl Guest {
    /// Proceeds as far as possible without waiting; returns whether the connection is kept. A failure of
    /// one, which may be another program's, does not fail the trial: the requesting end counts missing answers.
    fn advance(&mut self, memory: &mut [u8]) -> bool {
        while self.missing > 0 {
            let into = part(memory, self.missing);
            match recv(&self.connection, into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((count, _)) => self.missing -= count as u64,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        while self.unsent > 0 {
            let how = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.connection, part(memory, self.unsent), how) {
                Ok(count) => self.unsent -= count as u64,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        // Only its end is expected: more, or an error, ends it too.
        let mut more = [0u8; 1];
        matches!(
            recv(&self.connection, &mut more, RecvFlags::DONTWAIT),
            Err(Errno::AGAIN | Errno::INTR)
        )
    }
}
