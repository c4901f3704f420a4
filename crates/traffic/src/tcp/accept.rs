//! The listening end: accepts the connections of one trial and no others.
//!
//! Others may connect (a port scanner, a health check, another trial): each connection has
//! [`TOKEN_MILLIS_MAX`] to present its greeting; all pending ones are waited for together, so a
//! silent one delays no other, and it is not counted when it is closed. The cost of a connection
//! does not depend on their number (epoll), or ten thousand would delay each other past that time.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_model::greeting::{GREETING_BYTES, read};
use linerate_model::protocol::{TOKEN_MILLIS_MAX, Token};
use linerate_model::workload::{TrialSpec, Waiting};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketFlags, accept_with, getsockname, listen, recv, send, sockopt,
};

use super::arrival::bind_within;
use super::{ACCEPTED, Arrival, Connected, Flow, HandedOver, Side, files, select, socket};
use crate::waiting::{Event, Poller};
use crate::{Abort, TrafficError};

/// How many connections that have not greeted are held beyond those expected. While that many are
/// there, no further one is accepted; each leaves within a second.
const STRANGERS_MAX: usize = 64;

/// A port that waits for the data connections of one trial.
#[derive(Debug)]
pub struct Listening {
    spec: TrialSpec,
    token: Token,
    arrival: Arrival,
    door: Door,
}

/// Where the connections come from.
#[derive(Debug)]
enum Door {
    /// They arrive at a port of this trial.
    Port { socket: OwnedFd, port: u16 },
    /// Another process accepts them.
    Handed(Announced),
}

/// A trial whose connections another process hands over, until it is dropped.
#[derive(Debug)]
struct Announced {
    handed: Arc<HandedOver>,
    token: Token,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.handed.withdraw(self.token);
    }
}

impl Door {
    /// The next connection, with what was read of its greeting already.
    fn next(&self) -> Result<Pending, Errno> {
        match self {
            Self::Port { socket, .. } => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = accept_with(socket, flags)?;
                Ok(Pending {
                    socket,
                    greeting: [0; GREETING_BYTES],
                    filled: 0,
                })
            }
            Self::Handed(announced) => {
                let (socket, greeting) = announced.handed.next()?;
                Ok(Pending {
                    socket,
                    greeting,
                    filled: GREETING_BYTES,
                })
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Port { socket, .. } => socket.as_fd(),
            Self::Handed(announced) => announced.handed.as_fd(),
        }
    }
}

/// A connection that has not presented its greeting yet.
#[derive(Debug)]
struct Pending {
    socket: OwnedFd,
    greeting: [u8; GREETING_BYTES],
    filled: usize,
}

/// The state of a pending connection.
enum Progress {
    Waiting,
    Greeted(u32),
    Refused,
}

impl Listening {
    /// Listens for the data connections of `spec`, which will present `token`.
    ///
    /// `bind_to` is an IP address, one with a port (`10.0.0.1:5201`, `[::1]:5201`), or empty for every
    /// address; without a port the kernel chooses a free one.
    pub fn open(spec: &TrialSpec, token: Token, bind_to: &str) -> Result<Self, TrafficError> {
        Self::open_at(spec, token, bind_to, &Arrival::default())
    }

    /// The same where the data may arrive only as `arrival` says.
    pub fn open_at(
        spec: &TrialSpec,
        token: Token,
        bind_to: &str,
        arrival: &Arrival,
    ) -> Result<Self, TrafficError> {
        spec.check()?;
        files::make_room(spec)?;
        let door = match &arrival.handed {
            Some(handed) => {
                // What this kernel does not grant is an error before the other end connects.
                drop(socket::new(spec, (Ipv4Addr::LOCALHOST, 0).into())?);
                handed.announce(token)?;
                Door::Handed(Announced {
                    handed: Arc::clone(handed),
                    token,
                })
            }
            None => port(spec, bind_to, arrival)?,
        };
        Ok(Self {
            spec: spec.clone(),
            token,
            arrival: arrival.clone(),
            door,
        })
    }

    /// The TCP port; 0 if another process accepts the connections.
    pub fn port(&self) -> u16 {
        match self.door {
            Door::Port { port, .. } => port,
            Door::Handed(_) => 0,
        }
    }

    /// Accepts exactly the connections of the trial, until `deadline`; stops listening then.
    pub fn accept(self, deadline: Instant, abort: &Abort) -> Result<Connected, TrafficError> {
        let begun = Instant::now();
        let expected = select::candidates(&self.spec) as usize;
        let mut crowd = Crowd::new(&self.door, &self.spec, abort, expected)?;
        while crowd.arrived < expected {
            let now = Instant::now();
            if now >= deadline {
                return Err(TrafficError::AcceptTimeOut {
                    arrived: crowd.arrived,
                    expected,
                    waited: now - begun,
                    port: self.port(),
                });
            }
            let until = crowd
                .drop_late(now)
                .map_or(deadline, |late| late.min(deadline));
            crowd.look(self.token, until.saturating_duration_since(now))?;
        }
        let greeted = crowd.greeted;
        self.into_connected(greeted, deadline, abort)
    }

    fn into_connected(
        self,
        greeted: Vec<Option<OwnedFd>>,
        deadline: Instant,
        abort: &Abort,
    ) -> Result<Connected, TrafficError> {
        let sockets = greeted.into_iter().flatten().collect();
        let flows = select::answer(&self.spec, sockets, deadline, abort)?
            .into_iter()
            .map(|kept| {
                let flow = Flow::new(&self.spec, Side::Listening, kept)?;
                let ports = self.arrival.ports;
                Ok(Flow { ports, ..flow })
            })
            .collect::<Result<_, TrafficError>>()?;
        Ok(Connected {
            spec: self.spec,
            flows,
        })
    }
}

/// The event of the trial that was given up.
const ABORT: u64 = 0;
/// The event of a connection that waits to be accepted.
const ARRIVAL: u64 = 1;
/// The first event of a pending connection.
const FIRST: u64 = 2;
/// Events taken from the kernel at a time.
const EVENTS: usize = 256;

/// Everybody who has connected.
struct Crowd<'a> {
    door: &'a Door,
    spec: &'a TrialSpec,
    poller: Poller,
    events: Vec<Event>,
    /// By the number of their events.
    pending: HashMap<u64, Pending>,
    /// When each must have greeted, in the order they came, those that have gone included.
    late: VecDeque<(Instant, u64)>,
    next: u64,
    /// How many may be pending.
    most: usize,
    /// Whether new connections are accepted: not while the table is full.
    open: bool,
    greeted: Vec<Option<OwnedFd>>,
    arrived: usize,
}

impl<'a> Crowd<'a> {
    fn new(
        door: &'a Door,
        spec: &'a TrialSpec,
        abort: &Abort,
        expected: usize,
    ) -> Result<Self, TrafficError> {
        let poller = Poller::new(Waiting::Blocking)?;
        poller.add(abort, ABORT, EventFlags::IN)?;
        poller.add(door, ARRIVAL, EventFlags::IN)?;
        let mut greeted: Vec<Option<OwnedFd>> = Vec::new();
        greeted.resize_with(expected, || None);
        Ok(Self {
            door,
            spec,
            poller,
            events: Vec::with_capacity(EVENTS),
            pending: HashMap::new(),
            late: VecDeque::new(),
            next: FIRST,
            most: expected + STRANGERS_MAX,
            open: true,
            greeted,
            arrived: 0,
        })
    }

    /// Closes those whose time is over at `now`; when the next one's is.
    fn drop_late(&mut self, now: Instant) -> Option<Instant> {
        while let Some(&(until, number)) = self.late.front() {
            if until > now && self.pending.contains_key(&number) {
                return Some(until);
            }
            self.pending.remove(&number);
            self.late.pop_front();
        }
        None
    }

    /// Waits for events, at most `limit`, and continues with every connection that has one.
    fn look(&mut self, token: Token, limit: Duration) -> Result<(), TrafficError> {
        let room = self.pending.len() < self.most;
        if room != self.open {
            let interest = if room {
                EventFlags::IN
            } else {
                EventFlags::empty()
            };
            self.poller.modify(self.door, ARRIVAL, interest)?;
            self.open = room;
        }
        let mut events = std::mem::take(&mut self.events);
        self.poller.wait(&mut events, Some(limit))?;
        for event in &events {
            match event.data.u64() {
                ABORT => return Err(TrafficError::Aborted),
                ARRIVAL => self.accept_waiting(token)?,
                number => self.advance(number, token)?,
            }
        }
        self.events = events;
        Ok(())
    }

    /// Continues with a pending connection.
    fn advance(&mut self, number: u64, token: Token) -> Result<(), TrafficError> {
        let Some(one) = self.pending.get_mut(&number) else {
            return Ok(());
        };
        let progress = one.advance(token);
        if matches!(progress, Progress::Waiting) {
            return Ok(());
        }
        // Closing it ends its events too; one that is kept must not wake us again.
        let one = self.pending.remove(&number);
        if let (Progress::Greeted(flow), Some(one)) = (progress, one) {
            self.poller.remove(&one.socket)?;
            self.take(flow, one.socket);
        }
        Ok(())
    }

    /// Takes the connections that wait in the kernel's queue, as far as there is capacity.
    fn accept_waiting(&mut self, token: Token) -> Result<(), TrafficError> {
        while self.pending.len() < self.most {
            match self.door.next() {
                Ok(one) if one.filled == GREETING_BYTES => {
                    if let Some(flow) = read(&one.greeting, token) {
                        socket::configure(self.spec, &one.socket)?;
                        self.take(flow, one.socket);
                    }
                }
                Ok(one) => {
                    let until = Instant::now() + Duration::from_millis(TOKEN_MILLIS_MAX);
                    self.poller.add(&one.socket, self.next, EventFlags::IN)?;
                    self.late.push_back((until, self.next));
                    self.pending.insert(self.next, one);
                    self.next += 1;
                }
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    return Err(TrafficError::of_errno("accept a data connection", errno));
                }
                // Nothing is pending any more; or an error of the connection itself (it was reset, its
                // network is gone), which accept(2) hands out here and which is no concern of the
                // others: back to waiting.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Keeps `socket` as flow `flow` and notifies the other end, if that flow is still missing.
    fn take(&mut self, flow: u32, socket: OwnedFd) {
        let Some(place @ None) = self.greeted.get_mut(flow as usize) else {
            return;
        };
        if send(&socket, &[ACCEPTED], SendFlags::NOSIGNAL) == Ok(1) {
            *place = Some(socket);
            self.arrived += 1;
        }
    }
}

impl Pending {
    /// Reads the received part of the greeting.
    fn advance(&mut self, token: Token) -> Progress {
        match recv(
            &self.socket,
            &mut self.greeting[self.filled..],
            RecvFlags::DONTWAIT,
        ) {
            Ok((0, _)) => Progress::Refused,
            Ok((count, _)) => {
                self.filled += count;
                if self.filled < GREETING_BYTES {
                    return Progress::Waiting;
                }
                read(&self.greeting, token).map_or(Progress::Refused, Progress::Greeted)
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Waiting,
            Err(_) => Progress::Refused,
        }
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, TrafficError> {
    let with_port = text.parse::<SocketAddr>();
    with_port
        .or_else(|_| text.parse::<IpAddr>().map(|address| (address, 0).into()))
        .map_err(|_| TrafficError::BindAddress {
            given: text.to_owned(),
        })
}

/// Listens at a port of this trial.
fn port(spec: &TrialSpec, bind_to: &str, arrival: &Arrival) -> Result<Door, TrafficError> {
    let bound = |address| bound(spec, address, arrival);
    let socket = if bind_to.is_empty() {
        // One IPv6 socket takes both families; a kernel booted without IPv6 has only the other.
        bound((Ipv6Addr::UNSPECIFIED, 0).into())
            .or_else(|_| bound((Ipv4Addr::UNSPECIFIED, 0).into()))?
    } else {
        bound(parse_address(bind_to)?)?
    };
    let backlog = i32::try_from(select::candidates(spec))
        .unwrap_or(i32::MAX)
        .saturating_add(64);
    listen(&socket, backlog).map_err(|errno| TrafficError::of_errno("listen", errno))?;
    let port = getsockname(&socket)
        .and_then(SocketAddr::try_from)
        .map_err(|errno| TrafficError::of_errno("read the port listened on", errno))?
        .port();
    Ok(Door::Port { socket, port })
}

fn bound(
    spec: &TrialSpec,
    address: SocketAddr,
    arrival: &Arrival,
) -> Result<OwnedFd, TrafficError> {
    let socket = socket::new(spec, address)?;
    let failed = |errno| TrafficError::of_errno("prepare the listening socket", errno);
    // Without it a port stays taken for a minute after a trial whose sender listened (TIME_WAIT).
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, false).map_err(failed)?;
    }
    bind_within(&socket, address, arrival.ports).map_err(|errno| match errno {
        Errno::ADDRINUSE => TrafficError::PortInUse { address },
        Errno::ADDRNOTAVAIL => TrafficError::NoSuchAddress { address },
        _ => TrafficError::of_bind("bind the data port", errno),
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_a_port() {
        for (text, port) in [
            ("127.0.0.1", 0),
            ("::1", 0),
            ("10.0.0.1:5201", 5201),
            ("[::1]:5201", 5201),
        ] {
            assert_eq!(
                parse_address(text).map(|a| a.port()).ok(),
                Some(port),
                "{text}"
            );
        }
        for text in ["far", "10.0.0.1:99999", "10.0.0", " "] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
