//! One thread of the server: its listening socket, its connections, and the loop around them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use linerate_model::units::Bytes;
use linerate_model::workload::{MemoryPolicy, TrialSpec, Waiting};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::Served;
use super::answers::Answers;
use super::connection::{Connection, FIRST_S, IDLE_S, Next, READ_BYTES, Shared};
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::http::alarm::Alarm;
use crate::source::{Shares, Source};
use crate::trial::Counter;
use crate::waiting::{Event, Poller};

/// What an event is about; a smaller number is a connection's place.
const LISTENER: u64 = u64::MAX;
const CLOCK: u64 = u64::MAX - 1;
/// The first of what ends the service; the others follow below it.
const END: u64 = u64::MAX - 2;
const END_LAST: u64 = END - TrialSpec::THREADS_MAX as u64;

/// Events of one look.
const EVENTS: usize = 512;
/// Connections accepted before the others have their turn.
const ACCEPTS: usize = 64;

#[derive(Debug)]
pub(super) struct Worker {
    listener: OwnedFd,
    /// The only address that may connect; `None` is everybody.
    only: Option<IpAddr>,
    poller: Poller,
    clock: Alarm,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    shared: Shared,
    accepted: u64,
    /// Connections that may be held at once.
    places: usize,
    /// What each source holds of them; in a trial, with one client, all.
    shares: Option<Shares>,
    /// No slot or file descriptor is left: nothing is accepted until one is.
    full: bool,
}

impl Worker {
    pub(super) fn new(
        listener: OwnedFd,
        only: Option<IpAddr>,
        body: Bytes,
        policy: &MemoryPolicy,
        waiting: Waiting,
    ) -> Result<Self, TrafficError> {
        let poller = Poller::new(waiting)?;
        let clock = Alarm::every(Duration::from_secs(1))?;
        poller.add(&listener, LISTENER, EventFlags::IN)?;
        poller.add(&clock, CLOCK, EventFlags::IN)?;
        Ok(Self {
            listener,
            only,
            poller,
            clock,
            connections: Vec::new(),
            free: Vec::new(),
            shared: Shared {
                answers: Answers::new(body, policy)?,
                buffer: vec![0; READ_BYTES],
                now_s: 0,
                first_s: IDLE_S,
                bytes: 0,
                requests: 0,
                refused: 0,
            },
            accepted: 0,
            places: usize::MAX,
            shares: None,
            full: false,
        })
    }

    /// For anybody's clients: holds at most `places` connections, and of one source three quarters of them. Whatever
    /// that one does, others are served.
    pub(super) fn shared_out(mut self, places: usize) -> Self {
        self.shared.first_s = FIRST_S;
        self.places = places;
        self.shares = Some(Shares::new(places.div_ceil(4).saturating_mul(3)));
        self
    }

    /// Serves until `enough` of `ends` are readable.
    pub(super) fn serve(
        &mut self,
        ends: &[&dyn AsFd],
        mut enough: usize,
        counter: &Counter,
    ) -> Result<(), TrafficError> {
        for (token, end) in (END_LAST..=END).rev().zip(ends) {
            self.poller.add(end.as_fd(), token, EventFlags::IN)?;
        }
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            self.poller.wait(&mut events, None)?;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    CLOCK => self.tick()?,
                    token @ END_LAST..=END => {
                        enough -= 1;
                        if enough == 0 {
                            return Ok(());
                        }
                        let index = usize::try_from(END - token).unwrap_or(usize::MAX);
                        self.poller.remove(ends[index].as_fd())?;
                    }
                    place => self.advance(usize::try_from(place).unwrap_or(usize::MAX))?,
                }
            }
            if !events.is_empty() {
                counter.set_bytes(self.shared.bytes);
            }
        }
    }

    pub(super) fn served(&self) -> Served {
        Served {
            connections: self.accepted,
            requests: self.shared.requests,
            refused: self.shared.refused,
            bytes: Bytes::new(self.shared.bytes),
        }
    }

    /// The memory that bodies are sent from.
    pub(super) fn memory(&self) -> &Buffer {
        self.shared.answers.memory()
    }

    /// THE hot path: one reading, one sending.
    fn advance(&mut self, place: usize) -> Result<(), TrafficError> {
        let Some(Some(connection)) = self.connections.get_mut(place) else {
            return Ok(()); // it was closed by an event just before
        };
        let next = connection.advance(&mut self.shared);
        self.follow(place, next)
    }

    /// Watches what a connection waits for now.
    fn follow(&mut self, place: usize, next: Next) -> Result<(), TrafficError> {
        let Some(Some(connection)) = self.connections.get_mut(place) else {
            return Ok(());
        };
        if next == connection.watched {
            return Ok(());
        }
        let flags = match next {
            Next::Read => EventFlags::IN,
            Next::Write => EventFlags::OUT,
            Next::Close => {
                if let Some(shares) = &mut self.shares {
                    shares.give(connection.source);
                }
                self.connections[place] = None;
                self.free.push(place);
                return self.accept_again();
            }
        };
        connection.watched = next;
        self.poller.modify(&connection.socket, place as u64, flags)
    }

    fn accept(&mut self) -> Result<(), TrafficError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS {
            if self.connections.len() - self.free.len() >= self.places {
                return self.rest();
            }
            match acceptfrom_with(&self.listener, flags) {
                Ok((socket, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    // One without an address is gone already.
                    let Some(from) = from.map(|from| from.ip()) else {
                        continue;
                    };
                    if self.only.is_none_or(|only| from == only) {
                        self.take(socket, from.into())?;
                    }
                }
                // Tried again when a connection has ended, or a second later.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    return self.rest();
                }
                // Nothing is pending; or an error of the connection itself, which accept(2) returns here.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Accepts nothing until there is a free slot.
    fn rest(&mut self) -> Result<(), TrafficError> {
        self.full = true;
        self.poller
            .modify(&self.listener, LISTENER, EventFlags::empty())
    }

    fn take(&mut self, socket: OwnedFd, source: Source) -> Result<(), TrafficError> {
        if let Some(shares) = &mut self.shares
            && !shares.take(source)
        {
            // Closed with the socket.
            self.shared.refused += 1;
            return Ok(());
        }
        let connection = Connection::new(socket, source, self.shared.now_s);
        let place = self.free.pop().unwrap_or(self.connections.len());
        if let Err(error) = self
            .poller
            .add(&connection.socket, place as u64, EventFlags::IN)
        {
            // The kernel's limit of watches: this client is turned away, the others are kept.
            if matches!(error, TrafficError::OutOfMemory { .. }) || is_full(&error) {
                if let Some(shares) = &mut self.shares {
                    shares.give(source);
                }
                self.free.push(place);
                if place == self.connections.len() {
                    self.connections.push(None);
                }
                return Ok(());
            }
            return Err(error);
        }
        self.accepted += 1;
        if place == self.connections.len() {
            self.connections.push(Some(connection));
        } else {
            self.connections[place] = Some(connection);
        }
        Ok(())
    }

    fn accept_again(&mut self) -> Result<(), TrafficError> {
        if !std::mem::take(&mut self.full) {
            return Ok(());
        }
        self.poller.modify(&self.listener, LISTENER, EventFlags::IN)
    }

    /// Once a second: closes connections whose time is over.
    fn tick(&mut self) -> Result<(), TrafficError> {
        let passed = u32::try_from(self.clock.take()).unwrap_or(u32::MAX);
        self.shared.now_s = self.shared.now_s.saturating_add(passed);
        for place in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[place] {
                let next = connection.tick(&mut self.shared);
                self.follow(place, next)?;
            }
        }
        self.accept_again()
    }
}

/// `ENOSPC`: fs.epoll.max_user_watches (epoll(7)).
fn is_full(error: &TrafficError) -> bool {
    matches!(error, TrafficError::Kernel { source, .. } if source.raw_os_error() == Some(libc::ENOSPC))
}
