//! One thread of the client: the loop that sends requests, reads answers and measures.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::sample::Operations;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::TrialSpec;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::connection::{Connection, OpenError, State};
use super::schedule::{Part, Schedule};
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::catch_up::CATCH_UP_MAX;
use crate::http::alarm::Alarm;
use crate::http::parse::response::Response;
use crate::tcp::connect_error;
use crate::tcp::socket::ANSWERS_WITHIN;
use crate::trial::{DataThread, LatencyReport, Start, ThreadFlow};
use crate::waiting::{Event, Poller};

/// The token of an event; a smaller number is a connection's index.
const WAKE: u64 = u64::MAX;
const TICK: u64 = u64::MAX - 1;
const DUE: u64 = u64::MAX - 2;
const COMPANION: u64 = u64::MAX - 3;
const ABORT: u64 = u64::MAX - 4;

/// Events per epoll call.
const EVENTS: usize = 512;
/// Connections that are opened before the start; the others follow, as the server accepts them.
const OPEN_FIRST: usize = 1024;
/// Connections opened before the established ones have their turn.
const OPENS_A_TURN: usize = 64;
/// How long the first connections may take in all.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often overdue answers are checked, and connections retried.
const TICK_EVERY: Duration = Duration::from_millis(100);
/// Ticks without progress of an answer: ten seconds.
const SILENT_TICKS_MAX: u32 = 100;
/// Minimum read buffer; a larger buffer of the specification takes precedence.
const BUFFER_LEAST: Bytes = Bytes::kib(16);
/// Shorter waits than this are spun: sleeping and waking takes as long.
const SPIN_BELOW_NS: u64 = 20_000;

/// Requests begun, and how many of them were answered or have failed.
#[derive(Debug, Default)]
struct Account {
    begun: u64,
    settled: u64,
    /// Once the time is over, how many must be settled, and until when since the start.
    owed: Option<(u64, u64)>,
}

#[derive(Debug)]
pub(super) struct Loader<'a> {
    spec: &'a TrialSpec,
    /// Where the server's threads listen: the connections are distributed over them round-robin.
    addresses: Vec<SocketAddr>,
    request: &'a [u8],
    poller: Poller,
    tick: Alarm,
    due: Alarm,
    /// The time that `due` is set to, since the start.
    due_ns: u64,
    buffer: Buffer,
    connections: Vec<Connection>,
    /// Indices of connections that are to be opened now.
    to_open: Vec<usize>,
    /// And of those that failed just now, and are retried later.
    later: Vec<usize>,
    /// In open loop, with the number of the next request that is not due yet.
    schedule: Option<(Schedule, u64)>,
    start: Instant,
    /// No request that is due later begins; since the start.
    end_ns: u64,
    account: Account,
    companion: Option<ThreadFlow<'a>>,
    counter: &'a crate::trial::Counter,
    done: Operations,
    bytes: u64,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        data_thread: &DataThread<'a>,
        addresses: Vec<SocketAddr>,
        request: &'a [u8],
        rate_per_s: Option<u64>,
    ) -> Result<Self, TrafficError> {
        let spec = data_thread.spec;
        let (flows, threads) = (spec.flows, spec.threads());
        let own = flows / threads + u32::from(data_thread.index < flows % threads);
        let part = Part {
            own: own.into(),
            all: flows.into(),
            index: data_thread.index.into(),
        };
        let poller = Poller::new(spec.waiting)?;
        let tick = Alarm::every(TICK_EVERY)?;
        let due = Alarm::new()?;
        poller.add(&tick, TICK, EventFlags::IN)?;
        poller.add(&due, DUE, EventFlags::IN)?;
        poller.add(&data_thread.shared_state.stopping, WAKE, EventFlags::IN)?;
        poller.add(&data_thread.shared_state.abort, ABORT, EventFlags::IN)?;
        let buffer = Buffer::new(spec.buffer_bytes.max(BUFFER_LEAST), data_thread.memory())?;
        let connections: Vec<Connection> = (0..own.into()).map(Connection::new).collect();
        Ok(Self {
            spec,
            addresses,
            request,
            poller,
            tick,
            due,
            due_ns: u64::MAX,
            buffer,
            to_open: (0..connections.len()).rev().collect(),
            later: Vec::new(),
            connections,
            schedule: rate_per_s.map(|rate| (Schedule::new(rate, part), 0)),
            start: Instant::now(),
            end_ns: spec.duration_ns.as_u64(),
            account: Account::default(),
            companion: None,
            counter: data_thread.counter,
            done: Operations {
                service: rate_per_s.map(|_| Histogram::default()),
                ..Operations::default()
            },
            bytes: 0,
        })
    }

    /// Detects when the other end of the trial is gone.
    pub(super) fn watch(&mut self, companions: &[ThreadFlow<'a>]) -> Result<(), TrafficError> {
        for companion in companions {
            // READY and GO are read elsewhere: only the end is waited for.
            self.poller
                .add(&companion.flow.socket, COMPANION, EventFlags::RDHUP)?;
        }
        self.companion = companions.first().copied();
        Ok(())
    }

    /// Where the connection at `place` goes.
    fn address_of(&self, place: usize) -> SocketAddr {
        self.addresses[place % self.addresses.len()]
    }

    /// Opens the first connections, before the start. A failure is the trial's error.
    pub(super) fn open_first(&mut self, data_thread: &DataThread<'_>) -> Result<(), TrafficError> {
        let begun = Instant::now();
        let mut missing = 0;
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while missing < OPEN_FIRST
            && let Some(place) = self.to_open.pop()
        {
            let address = self.address_of(place);
            let failed = |errno| connect_error(address, errno, begun);
            match self.connections[place].open(self.spec, address) {
                Ok(socket) => self.poller.add(socket, place as u64, EventFlags::OUT)?,
                Err(OpenError::Own(error)) => return Err(error),
                Err(OpenError::Network(errno)) => return Err(failed(errno)),
            }
            missing += 1;
        }
        let mut is_answered = false;
        while missing > 0 {
            // A server that answers may be slow to accept a thousand.
            let limit = if is_answered {
                CONNECT_MAX
            } else {
                ANSWERS_WITHIN
            };
            if begun.elapsed() >= limit {
                return Err(TrafficError::ConnectTimeOut {
                    address: self.addresses[0],
                    waited: begun.elapsed(),
                });
            }
            // The tick wakes it for the deadline.
            self.poller.wait(&mut events, None)?;
            for event in &events {
                match event.data.u64() {
                    ABORT => return Err(TrafficError::Aborted),
                    TICK => drop(self.tick.take()),
                    COMPANION | WAKE => return Err(self.gone()),
                    DUE => {}
                    token => {
                        let place = place_of(token);
                        let address = self.address_of(place);
                        let one = &mut self.connections[place];
                        one.is_open()
                            .map_err(|errno| connect_error(address, errno, begun))?;
                        one.state = State::Idle;
                        is_answered = true;
                        if let Some(socket) = &one.socket {
                            self.poller.modify(socket, token, EventFlags::IN)?;
                        }
                        missing -= 1;
                    }
                }
            }
        }
        debug_assert!(!data_thread.shared_state.is_stopped());
        Ok(())
    }

    fn gone(&self) -> TrafficError {
        let after = self.start.elapsed();
        self.companion.map_or(TrafficError::Aborted, |companion| {
            super::gone(companion, after)
        })
    }

    /// Sends requests until the time is over, and waits for what was due before.
    pub(super) fn run(
        &mut self,
        data_thread: &DataThread<'_>,
        start: Start,
    ) -> Result<(), TrafficError> {
        self.start = start.at;
        if self.schedule.is_none() {
            let now_ns = self.now_ns();
            for place in 0..self.connections.len() {
                self.ask_next(place, now_ns)?;
            }
        }
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let report = LatencyReport::new(data_thread.shared_state);
        while !self.is_over(data_thread)? {
            report.offer(&self.done.latency);
            let spins = self.ask_what_is_due()? || !self.to_open.is_empty();
            let limit = spins.then_some(Duration::ZERO);
            self.poller.wait(&mut events, limit)?;
            for event in &events {
                match event.data.u64() {
                    WAKE => {} // it was stopped
                    ABORT => return Err(TrafficError::Aborted),
                    COMPANION => return Err(self.gone()),
                    TICK => self.look_after(),
                    DUE => {
                        self.due.take();
                        self.due_ns = u64::MAX;
                    }
                    token => self.advance(place_of(token), event.flags)?,
                }
            }
            self.open_some()?;
        }
        let owed = self.account.owed.map_or(0, |(owed, _)| owed);
        self.done.unanswered = owed.saturating_sub(self.account.settled);
        Ok(())
    }

    /// Whether the time is over, and what was due before is settled or too late.
    fn is_over(&mut self, data_thread: &DataThread<'_>) -> Result<bool, TrafficError> {
        if !data_thread.shared_state.is_stopped() {
            return Ok(false);
        }
        let now_ns = self.now_ns();
        if let Some((owed, until_ns)) = self.account.owed {
            let settled = self.account.settled >= owed || now_ns >= until_ns;
            return Ok(settled || data_thread.shared_state.has_failed());
        }
        // It stays readable, and the loop continues.
        self.poller.remove(&data_thread.shared_state.stopping)?;
        self.end_ns = self.end_ns.min(now_ns);
        let owed = match &self.schedule {
            Some((schedule, _)) => schedule.due_before_ns(self.end_ns),
            None => self.account.begun,
        };
        let until_ns = now_ns.saturating_add(nanoseconds(CATCH_UP_MAX));
        self.account.owed = Some((owed, until_ns));
        self.due.once_in(CATCH_UP_MAX)?;
        self.due_ns = until_ns;
        Ok(self.account.settled >= owed || data_thread.shared_state.has_failed())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn memory_node(&self) -> Known<NodeId> {
        self.buffer.node()
    }

    pub(super) fn into_operations(self) -> Operations {
        Operations {
            received_bytes: Bytes::new(self.bytes),
            ..self.done
        }
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// Begins the requests that are due, and sets the timer for the next; returns whether that is so near that
    /// sleeping is not worth it.
    fn ask_what_is_due(&mut self) -> Result<bool, TrafficError> {
        let Some((schedule, mut number)) = self.schedule else {
            return Ok(false);
        };
        let now_ns = self.now_ns();
        let last_ns = now_ns.min(self.end_ns.saturating_sub(1));
        while schedule.at_ns(number) <= last_ns {
            let place = place_of(schedule.connection(number));
            let one = &self.connections[place];
            // A busy or disconnected one catches up as soon as it can.
            if one.state == State::Idle && one.next == number {
                self.ask_next(place, now_ns)?;
            }
            number += 1;
        }
        self.schedule = Some((schedule, number));
        let next_ns = schedule.at_ns(number);
        if next_ns >= self.end_ns {
            return Ok(false);
        }
        let left_ns = next_ns.saturating_sub(self.now_ns());
        if left_ns < SPIN_BELOW_NS {
            return Ok(true);
        }
        if self.due_ns != next_ns {
            // Wakes a little early, and spins for the rest.
            let left = Duration::from_nanos(left_ns - SPIN_BELOW_NS / 2);
            self.due.once_in(left)?;
            self.due_ns = next_ns;
        }
        Ok(false)
    }

    /// Begins the connection's next request, unless it is not due yet, or the time is over.
    fn ask_next(&mut self, place: usize, now_ns: u64) -> Result<(), TrafficError> {
        let one = &mut self.connections[place];
        if one.state != State::Idle {
            return Ok(());
        }
        one.intended_ns = now_ns;
        if let Some((schedule, _)) = &self.schedule {
            let intended_ns = schedule.at_ns(one.next);
            if intended_ns > now_ns || intended_ns >= self.end_ns {
                return Ok(());
            }
            one.intended_ns = intended_ns;
            one.next = schedule.after(one.next);
        } else if self.account.owed.is_some() {
            return Ok(());
        }
        self.account.begun += 1;
        one.sent_ns = now_ns;
        one.silent_ticks = 0;
        one.state = State::Asking { sent: 0 };
        self.ask(place)
    }

    fn ask(&mut self, place: usize) -> Result<(), TrafficError> {
        let one = &mut self.connections[place];
        match one.ask(self.request) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let Some(socket) = &one.socket else {
                    return Ok(());
                };
                let both = EventFlags::IN | EventFlags::OUT;
                self.poller.modify(socket, place as u64, both)
            }
            Err(_) => {
                self.broke(place);
                Ok(())
            }
        }
    }

    /// Continues with a connection after an event. THE hot path: one read, and the next request.
    fn advance(&mut self, place: usize, flags: EventFlags) -> Result<(), TrafficError> {
        let one = &mut self.connections[place];
        let sent = match one.state {
            State::Closed => return Ok(()),
            State::Connecting => return self.connected(place),
            State::Idle => self.request.len(),
            State::Asking { sent } => sent,
        };
        if sent < self.request.len() && flags.contains(EventFlags::OUT) {
            if let Some(socket) = &one.socket {
                self.poller.modify(socket, place as u64, EventFlags::IN)?;
            }
            self.ask(place)?;
            return Ok(());
        }
        let Some(socket) = &one.socket else {
            return Ok(());
        };
        match recv(socket, self.buffer.bytes(), RecvFlags::empty()) {
            Ok((0, _)) => {
                if let Some(response) = one.reader.close() {
                    return self.answered(place, response);
                }
                self.broke(place);
            }
            Ok((count, _)) => return self.take(place, count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.broke(place),
        }
        Ok(())
    }

    /// Takes the bytes that were read.
    fn take(&mut self, place: usize, count: usize) -> Result<(), TrafficError> {
        self.bytes += count as u64;
        let one = &mut self.connections[place];
        one.silent_ticks = 0;
        // An answer without a request, or one longer than announced: the connection is permanently out of step.
        let response = if matches!(one.state, State::Asking { .. }) {
            one.reader.push(&self.buffer.bytes()[..count])
        } else {
            Err(crate::http::parse::response::BadResponse)
        };
        match response {
            Ok(None) => Ok(()),
            Ok(Some(response)) if response.used == count => self.answered(place, response),
            Ok(Some(_)) | Err(_) => {
                self.broke(place);
                Ok(())
            }
        }
    }

    fn answered(&mut self, place: usize, response: Response) -> Result<(), TrafficError> {
        let now_ns = self.now_ns();
        let one = &mut self.connections[place];
        one.state = State::Idle;
        one.has_answered = true;
        self.account.settled += 1;
        if response.status >= 400 {
            self.done.failed += 1;
        } else {
            let since = |then_ns: u64| Nanoseconds::new(now_ns.saturating_sub(then_ns));
            self.done.completed += 1;
            self.done.latency.record(since(one.intended_ns));
            if let Some(service) = &mut self.done.service {
                service.record(since(one.sent_ns));
            }
            self.counter.set_operations(self.done.completed);
            self.counter.set_bytes(self.bytes);
        }
        if response.keep {
            return self.ask_next(place, now_ns);
        }
        one.close();
        self.to_open.push(place);
        Ok(())
    }

    /// The connection is gone, or no longer usable.
    fn broke(&mut self, place: usize) {
        let one = &mut self.connections[place];
        if matches!(one.state, State::Asking { .. } | State::Connecting) {
            self.done.failed += 1;
        }
        self.account.settled += u64::from(matches!(one.state, State::Asking { .. }));
        // A server that accepts connections and answers none is retried with a pause.
        let again = if one.has_answered {
            &mut self.to_open
        } else {
            &mut self.later
        };
        again.push(place);
        one.close();
    }

    fn connected(&mut self, place: usize) -> Result<(), TrafficError> {
        let one = &mut self.connections[place];
        if let (Ok(true), Some(socket)) = (one.is_open(), &one.socket) {
            self.poller.modify(socket, place as u64, EventFlags::IN)?;
            one.state = State::Idle;
            let now_ns = self.now_ns();
            return self.ask_next(place, now_ns);
        }
        self.broke(place);
        Ok(())
    }

    fn open_some(&mut self) -> Result<(), TrafficError> {
        for _ in 0..OPENS_A_TURN {
            let Some(place) = self.to_open.pop() else {
                return Ok(());
            };
            let address = self.address_of(place);
            match self.connections[place].open(self.spec, address) {
                Ok(socket) => self
                    .poller
                    .add(socket.as_fd(), place as u64, EventFlags::OUT)?,
                Err(OpenError::Own(error)) => return Err(error),
                Err(OpenError::Network(_)) => {
                    self.done.failed += 1;
                    self.later.push(place);
                }
            }
        }
        Ok(())
    }

    /// Once per tick: gives up overdue answers, and retries what failed.
    fn look_after(&mut self) {
        self.tick.take();
        self.to_open.append(&mut self.later);
        for place in 0..self.connections.len() {
            let one = &mut self.connections[place];
            one.silent_ticks += 1;
            let waits = matches!(one.state, State::Asking { .. } | State::Connecting);
            if waits && one.silent_ticks > SILENT_TICKS_MAX {
                self.broke(place);
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn place_of(token: u64) -> usize {
    usize::try_from(token).unwrap_or(usize::MAX)
}
