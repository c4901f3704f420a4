//! New TCP connections at a fixed rate, from the end that connects: from the SYN until the connection is established.
//!
//! The other end listens on a port of its own and closes each connection at once; the port is announced on the companion
//! of the first flow. A stranger that connects is closed like any other.
//!
//! ```text
//! connecting end, sender        listening end, receiver
//!                         <--   PORT                        on the companion of the first flow
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_model::failover::{Departures, ProbeRecord, Recorder, Stamp};
use linerate_model::sample::Role;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{Probe, TrialSpec};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, connect, listen, sockopt};

use super::Plan;
use crate::TrafficError;
use crate::tcp::Side;
use crate::tcp::arrival::{bind_within, taken};
use crate::tcp::socket;
use crate::tcp::words::{WORDS_MAX, await_words, local_of, peer_of, tell, with_port};
use crate::trial::DataThread;
use crate::udp::monotonic_ns;
use crate::waiting::Poller;

const MAGIC: [u8; 4] = *b"LNRC";
/// Magic (4), port (2).
const PORT_BYTES: usize = 6;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
/// Connections that are accepted before the flows have their turn.
const ACCEPTED_IN_TURN: usize = 64;

/// Whether this thread is the one of its end that has to do with connections.
fn is_first(data_thread: &DataThread<'_>, probe: &Probe) -> bool {
    probe.connects_per_s > 0 && data_thread.index == 0
}

/// The listening end.
pub(super) struct Door(OwnedFd);

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Door {
    /// Listens, and announces the port; none at an end that does not listen.
    pub(super) fn prepare(
        data_thread: &DataThread<'_>,
        probe: &Probe,
    ) -> Result<Option<Self>, TrafficError> {
        let first = data_thread.flows.first().map(|one| one.flow);
        let listening = |flow: &&crate::tcp::Flow| flow.side == Side::Listening;
        let Some(flow) = first
            .filter(listening)
            .filter(|_| data_thread.role == Role::Receiver && is_first(data_thread, probe))
        else {
            return Ok(None);
        };
        let local = with_port(local_of(&flow.socket)?, 0);
        let socket = socket::new(&plain(), local)?;
        bind_within(&socket, local, flow.ports).map_err(|errno| match errno {
            Errno::ADDRINUSE => taken(local, flow.ports),
            _ => TrafficError::of_bind("bind a TCP socket", errno),
        })?;
        listen(&socket, BACKLOG)
            .map_err(|errno| TrafficError::of_errno("listen for connections", errno))?;
        let mut words = [0; PORT_BYTES];
        words[..4].copy_from_slice(&MAGIC);
        words[4..].copy_from_slice(&local_of(&socket)?.port().to_be_bytes());
        tell(flow, &words)?;
        Ok(Some(Self(socket)))
    }

    /// Closes what has connected.
    pub(super) fn accept(&self) {
        for _ in 0..ACCEPTED_IN_TURN {
            // A connection that is gone again, or a limit of this host: the next event shows what is left.
            if accept_with(&self.0, SocketFlags::CLOEXEC).is_err() {
                return;
            }
        }
    }
}

/// A socket without the trial's options: the connections carry nothing.
fn plain() -> TrialSpec {
    TrialSpec::default()
}

/// The connecting end.
pub(super) struct Opening {
    address: SocketAddr,
    interval: u64,
    due_ns: u64,
    /// None is begun after this time: it could not be answered before the trial ends.
    last_ns: u64,
    departures: Departures,
    recorder: Recorder,
    /// Those that are not established yet, by number, with the time of their SYN.
    pending: BTreeMap<u64, (OwnedFd, u64)>,
}

impl Opening {
    /// Reads the other end's port; none at an end that does not connect.
    pub(super) fn prepare(
        data_thread: &DataThread<'_>,
        probe: &Probe,
    ) -> Result<Option<Self>, TrafficError> {
        let first = data_thread.flows.first().map(|one| one.flow);
        let connecting = |flow: &&crate::tcp::Flow| flow.side == Side::Connecting;
        let Some(flow) = first
            .filter(connecting)
            .filter(|_| data_thread.role == Role::Sender && is_first(data_thread, probe))
        else {
            return Ok(None);
        };
        let abort = &data_thread.shared_state.abort;
        let words = await_words::<PORT_BYTES>(flow, Instant::now() + WORDS_MAX, abort)?;
        let port = u16::from_be_bytes([words[4], words[5]]);
        if words[..4] != MAGIC || port == 0 {
            return Err(TrafficError::PeerGarbled { flow: flow.number });
        }
        let interval = 1_000_000_000 / u64::from(probe.connects_per_s.max(1));
        let limit = data_thread.spec.duration_ns.as_u64() / interval.max(1) + 1_000;
        let runs_max = Probe::runs_max(1);
        let step = Nanoseconds::new(interval);
        Ok(Some(Self {
            address: with_port(peer_of(&flow.socket)?, port),
            interval: interval.max(1),
            due_ns: 0,
            last_ns: 0,
            departures: Departures::default(),
            recorder: Recorder::new(step, probe.late_ns, limit, runs_max),
            pending: BTreeMap::new(),
        }))
    }

    /// The trial begins, and ends at `end`.
    pub(super) fn begin(&mut self, begun: u64, end: u64, plan: &Plan) {
        self.due_ns = begun;
        self.last_ns = plan.last_answered(end);
    }

    /// Begins the connection that is due at `now`; when the next is.
    pub(super) fn turn(&mut self, now: u64, poller: &Poller) -> u64 {
        if now > self.last_ns {
            return u64::MAX;
        }
        if self.due_ns <= now {
            let missed = now.saturating_sub(self.due_ns) / self.interval;
            self.departures.skipped += missed;
            let passed = (missed + 1).saturating_mul(self.interval);
            self.due_ns = self.due_ns.saturating_add(passed);
            if self.pending.len() < Probe::PENDING_MAX as usize {
                self.open(poller);
            } else {
                self.departures.skipped += 1;
            }
        }
        self.due_ns
    }

    fn open(&mut self, poller: &Poller) {
        let number = self.departures.sent;
        // Without a descriptor, or memory, nothing was tried.
        let Ok(socket) = socket::new(&plain(), self.address) else {
            self.departures.skipped += 1;
            return;
        };
        // Closing resets it: neither end keeps it in TIME_WAIT.
        let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        let now = monotonic_ns();
        let at = Nanoseconds::new(now);
        let begun = connect(&socket, &self.address);
        self.departures.sent(at);
        match begun {
            Ok(()) => self.established(number, now),
            Err(Errno::INPROGRESS | Errno::INTR) => {
                if poller.add(&socket, number, EventFlags::OUT).is_ok() {
                    self.pending.insert(number, (socket, now));
                }
            }
            Err(errno) => self.departures.refused(errno.raw_os_error(), at),
        }
    }

    /// The connection with `number` was established at `now`, or failed.
    pub(super) fn answered(&mut self, number: u64, now: u64, poller: &Poller) {
        let Some((socket, _)) = self.pending.get(&number) else {
            return;
        };
        // The poller forgets what is closed; a failure here would only leave the event.
        let _ = poller.remove(socket);
        let outcome = sockopt::socket_error(socket);
        match outcome {
            Ok(Ok(())) => self.established(number, now),
            Ok(Err(errno)) | Err(errno) => {
                let at = Nanoseconds::new(now);
                self.departures.refused(errno.raw_os_error(), at);
            }
        }
        self.pending.remove(&number);
    }

    fn established(&mut self, number: u64, now: u64) {
        let sent = self.pending.get(&number).map_or(now, |(_, sent)| *sent);
        self.recorder.arrived(Stamp {
            number,
            sent_ns: Nanoseconds::new(sent),
            received_ns: Nanoseconds::new(now),
        });
    }

    pub(super) fn close(self) -> ProbeRecord {
        let mut arrivals = self.recorder.close();
        arrivals.one_clock = true;
        ProbeRecord {
            departures: Some(self.departures),
            arrivals: Some(arrivals),
            ..ProbeRecord::default()
        }
    }
}
