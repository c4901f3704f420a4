//! The raw record of a probe flow. All times are those of the monotonic clock of the host that took them.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanoseconds};

/// The maximum number of runs of lost or late numbers that a receiver records for one flow.
pub const RUNS_MAX: usize = 512;

/// The maximum number of packets whose time from sending to receiving a receiver records for one flow.
pub const TRANSITS_MAX: usize = 64;

/// The maximum number of different errors that a sender records for one flow.
pub const ERRORS_MAX: usize = 16;

/// The maximum number of path MTUs that a sender records for one connection.
pub const PATH_MTUS_MAX: usize = 16;

/// The MTU of the kernel's `blackhole_netdev` (`ETH_MIN_MTU`): routes that were replaced belong to it until the connections
/// that used them have looked for the new one. It is no MTU of a path.
const MTU_OF_REPLACED_ROUTE: Bytes = Bytes::new(68);

/// Both ends of a probe flow: each end fills in its own part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProbeRecord {
    /// At the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departures: Option<Departures>,
    /// At the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// The messages on the flow's TCP connection, of the trials that have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Box<ProbeRecord>>,
    /// The answers to those messages, at the end that sent the messages. A number is one request, sent when it was sent and
    /// received when its answer was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Box<ProbeRecord>>,
    /// The RDMA writes on the flow's reliable connection, at the end that posts them. A number is one write, sent when it was
    /// posted and received when the remote device had acknowledged it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Box<ProbeRecord>>,
    /// The new connections of the trial, at the end that made them: with the record of its first flow. A number is one
    /// connection, sent when it was begun and received when it was established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Box<ProbeRecord>>,
}

impl ProbeRecord {
    /// The largest number of runs and of errors in any part of it.
    pub(crate) fn amounts(&self) -> (usize, usize) {
        // Of the two lists of arrivals the longer one: the limit of transit times is smaller.
        let longer = |one: &Arrivals| one.runs.len().max(one.transits.len());
        let mut runs = self.arrivals.as_ref().map_or(0, longer);
        let of_sender = |one: &Departures| {
            let mtus = one.tcp.as_ref().map_or(0, |tcp| tcp.path_mtus.len());
            one.errors.len().max(mtus)
        };
        let mut errors = self.departures.as_ref().map_or(0, of_sender);
        let parts = [
            &self.messages,
            &self.answers,
            &self.writes,
            &self.connections,
        ];
        for part in parts.into_iter().flatten() {
            let (its_runs, its_errors) = part.amounts();
            runs = runs.max(its_runs);
            errors = errors.max(its_errors);
        }
        (runs, errors)
    }
}

impl Departures {
    /// The next packet was sent at `now`, or refused by the kernel.
    pub fn sent(&mut self, now: Nanoseconds) {
        self.sent += 1;
        self.first_ns.get_or_insert(now);
        if let Some(last) = self.last_ns.replace(now) {
            let gap = SendGap {
                from_ns: last,
                to_ns: now,
            };
            if self
                .longest_gap
                .is_none_or(|longest| longest.length() < gap.length())
            {
                self.longest_gap = Some(gap);
            }
        }
    }

    /// The kernel refused the packet that counted last.
    pub fn refused(&mut self, errno: i32, now: Nanoseconds) {
        if let Some(error) = self.errors.iter_mut().find(|error| error.errno == errno) {
            error.count += 1;
            error.last_ns = now;
        } else if self.errors.len() < ERRORS_MAX {
            self.errors.push(SendError {
                errno,
                count: 1,
                first_ns: now,
                last_ns: now,
            });
        }
    }
}

/// What the sender of a flow did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Departures {
    /// The packets handed to the kernel, numbered from 0; those that it refused count, too.
    pub sent: u64,
    /// When the first was sent.
    pub first_ns: Option<Nanoseconds>,
    /// When the last was sent.
    pub last_ns: Option<Nanoseconds>,
    /// The planned times at which nothing was sent because the thread did not run, or the connection took nothing.
    pub skipped: u64,
    /// The longest time between two packets.
    pub longest_gap: Option<SendGap>,
    /// The packets that the kernel refused, by error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<SendError>,
    /// Of messages on a TCP connection: what the kernel reported of it whenever one was sent (`TCP_INFO`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpTrack>,
}

/// What changed about a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpTrack {
    /// The retransmission timer when it had expired most often in a row; empty if it never had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The path MTU, and each that it changed to; at most [`PATH_MTUS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_mtus: Vec<PathMtu>,
}

/// A retransmission timer that has expired (RFC 6298, section 5.5: each time it is doubled).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// When it was read.
    pub at_ns: Nanoseconds,
    /// How often in a row it had expired.
    pub expirations: u8,
    /// Its time-out.
    pub timeout_ns: Nanoseconds,
}

/// A path MTU of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtu {
    /// When it was read first.
    pub at_ns: Nanoseconds,
    /// Its size.
    pub bytes: Bytes,
}

impl TcpTrack {
    /// The state of the connection at a time.
    pub fn saw(&mut self, now: Backoff, path_mtu: Bytes) {
        let most = self.backoff.map_or(0, |backoff| backoff.expirations);
        if now.expirations > most {
            self.backoff = Some(now);
        }
        if path_mtu == MTU_OF_REPLACED_ROUTE {
            return;
        }
        let known = self.path_mtus.last().map(|mtu| mtu.bytes);
        if known != Some(path_mtu) && self.path_mtus.len() < PATH_MTUS_MAX {
            self.path_mtus.push(PathMtu {
                at_ns: now.at_ns,
                bytes: path_mtu,
            });
        }
    }
}

/// The time between two packets of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendGap {
    /// When the one before it was sent.
    pub from_ns: Nanoseconds,
    /// When the next one was.
    pub to_ns: Nanoseconds,
}

impl SendGap {
    /// Its length.
    pub fn length(self) -> Nanoseconds {
        Nanoseconds::new(self.to_ns.as_u64().saturating_sub(self.from_ns.as_u64()))
    }
}

/// The packets of a sender that failed with one error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendError {
    /// The errno's number.
    pub errno: i32,
    /// How many.
    pub count: u64,
    /// When the first failed.
    pub first_ns: Nanoseconds,
    /// When the last did.
    pub last_ns: Nanoseconds,
}

/// What the receiver of a flow saw.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Arrivals {
    /// Packets received, duplicates included.
    pub received: u64,
    /// Those that had arrived before.
    pub duplicated: u64,
    /// Those that arrived after one with a higher number.
    pub reordered: u64,
    /// Those that arrived late.
    pub late: u64,
    /// One more than the highest number received.
    pub next: u64,
    /// The packet with the highest number that arrived on time.
    pub last: Option<Stamp>,
    /// The shortest time from sending to receiving, by the two hosts' own clocks: with different clocks it includes
    /// their difference and may be negative.
    pub transit_min_ns: Option<i64>,
    /// Lost or late numbers below `next`, ascending.
    pub runs: Vec<NumberRun>,
    /// Lost or late numbers beyond the limit of recorded runs: only counted.
    pub unrecorded: u64,
    /// Packets with the flow's secret that cannot be of this trial.
    pub ignored: u64,
    /// Packets that the receiver's own socket dropped because its buffer was full; empty if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_drops: Option<u64>,
    /// Whether both ends read one clock.
    #[serde(default)]
    pub one_clock: bool,
    /// Stalls: pauses between the arrivals of two consecutive numbers.
    pub stall: Stall,
    /// The transit times of some of the packets, spread evenly over the trial, late ones included; at most
    /// [`TRANSITS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transits: Vec<Transit>,
}

/// When a packet was sent by the sender's clock, and its time from sending to receiving by the two hosts' own clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit(pub Nanoseconds, pub i64);

/// A packet: its number, and when it was sent and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Its number.
    pub number: u64,
    /// By the sender's clock.
    pub sent_ns: Nanoseconds,
    /// By the receiver's clock.
    pub received_ns: Nanoseconds,
}

/// Whether the numbers of a run arrived at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// They did not arrive.
    Missing,
    /// They arrived, but late.
    Late,
}

/// Consecutive numbers that were lost or late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberRun {
    /// The first number.
    pub first: u64,
    /// One more than the last.
    pub end: u64,
    /// Whether they arrived.
    pub kind: RunKind,
    /// The number before the run, if that arrived on time. Of runs that follow one another, the first has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Stamp>,
    /// The number after the run, if that arrived on time. Of runs that follow one another, the last has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Stamp>,
    /// Of late ones: the first that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<Stamp>,
    /// Of late ones: the most that one took beyond the shortest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_ns: Option<Nanoseconds>,
}

/// Pauses between the arrivals of consecutive numbers of which none was lost or late: a host did not send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stall {
    /// How many were longer than [`Stall::LEAST`] beyond the time between two packets.
    pub count: u64,
    /// The longest time between two such arrivals.
    pub longest_ns: Nanoseconds,
    /// When it ended, by the receiver's clock.
    pub at_ns: Nanoseconds,
}

impl Stall {
    /// Shorter pauses are how an idle host schedules.
    pub const LEAST: Nanoseconds = Nanoseconds::from_millis(10);
}
