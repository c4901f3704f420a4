//! The messages between the two ends of linerate, as data; `talk` implements their order. Every message is one line
//! of JSON; every limit is defined here.
//!
//! ```text
//! controller                         agent
//!   Hello{protocol, version}   -->
//!                              <--   Hello{protocol, version, addresses}
//!   ReadHost                   -->
//!                              <--   Host(..)
//!   ReadClock                  -->
//!                              <--   Clock{monotonic, unix}
//!   ReadSettings(keys)         -->
//!                              <--   Settings(values)
//!   Apply{plan} / Undo / Commit-->
//!                              <--   Applied / Undone / Committed
//!   Lease{plan, seconds}       -->                (undone after so long, too)
//!                              <--   Leased{id}
//!   TakeBack{id}               -->                (what was committed earlier)
//!                              <--   Undone
//!   Prepare{spec, token, bind} -->                (and the commands that the agent runs in the trial)
//!                              <--   Prepared{port}
//!   (data connections)
//!   Connect{spec, token, target} -->              (in place of Prepare: the other end of the trial is another agent)
//!                              <--   Connected
//!   Start / StartAt{at}        -->
//!                              <--   Progress(..)           (as often as Prepare asked)
//!                              <--   Ran(..)                (each command that has ended)
//!                              <--   Done(SideSample)
//!   EndEarly (of a trial)      -->                (Start is answered soon, too)
//!                              <--   Ending
//!   Abort (of a trial)         -->
//!                              <--   Aborted
//!   Fetch{token}               -->                (a trial whose record was kept: `Prepare{keep}`)
//!                              <--   Done(SideSample)
//!   Discard{token}             -->
//!                              <--   Discarded
//!   Keep(records)              -->                (what concerns this host, for the run that its agent writes)
//!                              <--   Kept
//!   Bye, or end of stream      -->   (everything not committed is undone; a trial that keeps its record goes on)
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::failover::{CommandRun, TrialCommands};
use crate::host::Host;
use crate::ids::NicName;
use crate::known::Known;
use crate::plan::Plan;
use crate::sample::SideSample;
use crate::setting::{SettingKey, Value};
use crate::units::Nanoseconds;
use crate::workload::{Probe, TrialSpec, Workload};

/// The version of this protocol. Both ends must use the same one.
pub const PROTOCOL: u32 = 7;

/// The maximum number of settings in a request: four for each of 4,096 queues.
pub const SETTINGS_MAX: usize = 16_384;

/// The maximum length of a line.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// The maximum length of a request with a plan: three times the size of a plan with [`SETTINGS_MAX`] changes.
const PLAN_BYTES_MAX: usize = 16 << 20;
/// The maximum length of a request with keys, a trial or records.
const LIST_BYTES_MAX: usize = 4 << 20;
/// The maximum length of any other request.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The maximum length of a host's description: one with 1,024 CPUs and 4,096 interrupts takes about 2 MiB.
const HOST_BYTES_MAX: usize = 16 << 20;
/// The maximum length of a response that is a confirmation or a failure.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The maximum length of a setting's value: the kernel's own text is at most a page.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// The maximum length of a trial's record without its flows: counters, CPU times, latencies, a profile.
const RECORD_BYTES_MAX: usize = 16 << 20;
/// The maximum length of one flow's record without its readings.
const FLOW_BYTES_MAX: usize = 64 << 10;
/// The maximum length of a reading of a flow: two numbers of at most 20 digits.
const READING_BYTES_MAX: usize = 42;

/// The maximum length of the request whose line begins with `start`.
pub fn request_bytes_max(start: &[u8]) -> usize {
    let start = &start[..start.len().min(64)];
    match start.split(|&byte| byte == b'"').nth(1) {
        Some(b"apply" | b"lease") => PLAN_BYTES_MAX,
        Some(b"read-settings" | b"prepare" | b"connect" | b"keep") => LIST_BYTES_MAX,
        _ => REQUEST_BYTES_MAX,
    }
}

/// The maximum length of the record of a trial of `spec`.
pub fn record_bytes_max(spec: &TrialSpec) -> usize {
    let flows = usize::try_from(spec.flows).unwrap_or(usize::MAX);
    let readings = usize::try_from(spec.readings()).unwrap_or(usize::MAX);
    let probes = match &spec.workload {
        Workload::Udp(udp) if udp.probe.is_some() => Probe::record_bytes_max(spec.flows),
        _ => 0,
    };
    flows
        .saturating_mul(FLOW_BYTES_MAX)
        .saturating_add(probes)
        .saturating_add(readings.saturating_mul(READING_BYTES_MAX))
        .saturating_add(RECORD_BYTES_MAX)
        .min(LINE_BYTES_MAX)
}

impl Request {
    /// The maximum length of its response, where `record_bytes_max` is that of the prepared trial.
    pub fn answer_bytes_max(&self, record_bytes_max: usize) -> usize {
        match self {
            Self::ReadHost => HOST_BYTES_MAX,
            Self::ReadSettings(keys) => keys
                .len()
                .saturating_mul(VALUE_BYTES_MAX)
                .saturating_add(ANSWER_BYTES_MAX)
                .min(LINE_BYTES_MAX),
            // The record of an aborted trial may already be in flight.
            Self::Start | Self::StartAt { .. } | Self::Abort => record_bytes_max,
            Self::Fetch { .. } => LINE_BYTES_MAX,
            _ => ANSWER_BYTES_MAX,
        }
    }
}

/// Deserializes at most [`SETTINGS_MAX`] items, and stores no more.
fn settings<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Items<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {SETTINGS_MAX} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                if all.len() == SETTINGS_MAX {
                    return Err(A::Error::custom(format_args!(
                        "more than {SETTINGS_MAX} items at once"
                    )));
                }
                all.push(item);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Items(PhantomData))
}

/// How far ahead [`Request::StartAt`] may be.
pub const START_AHEAD_MAX: Nanoseconds = Nanoseconds::from_millis(60_000);

/// The timeout for a data connection to present its token.
pub const TOKEN_MILLIS_MAX: u64 = 1_000;

/// What a data connection sends before its first byte of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub [u8; 16]);

/// From the controller to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The first message.
    Hello {
        /// The controller's protocol version.
        protocol: u32,
        /// The controller's version of linerate.
        version: String,
    },
    /// Read the host.
    ReadHost,
    /// Read the clocks.
    ReadClock,
    /// Read settings, including those that the host's description does not contain.
    ReadSettings(#[serde(deserialize_with = "settings")] Vec<SettingKey>),
    /// Apply a plan, journaled; undone when the stream ends.
    Apply {
        /// The changes.
        plan: Plan,
        /// Whether the management path (the interface of the agent's ssh connection) may be disrupted briefly.
        #[serde(default)]
        include_way_in: bool,
    },
    /// Undo the newest plan that is still applied.
    Undo,
    /// Commit: keep what is applied and drop the undo journal.
    Commit,
    /// Apply a plan, journaled; undone when the stream ends, and after a timeout even if the end goes unnoticed.
    Lease {
        /// The changes.
        plan: Plan,
        /// Whether the management path (the interface of the agent's ssh connection) may be disrupted briefly.
        include_way_in: bool,
        /// The time after which it is undone unless it was committed.
        seconds: u32,
    },
    /// Undo a transaction that was committed in this boot; no effect if it is not applied.
    TakeBack {
        /// Its name.
        id: String,
    },
    /// Prepare a trial: listen for the data connections.
    Prepare {
        /// The trial.
        spec: Box<TrialSpec>,
        /// The token of each data connection.
        token: Token,
        /// The address to listen on; empty is every address.
        bind: String,
        /// How often [`Reply::Progress`] is sent while it runs; `None` is never.
        #[serde(default)]
        report_ns: Option<Nanoseconds>,
        /// The commands that the agent's end runs in it.
        #[serde(default)]
        commands: Option<Box<TrialCommands>>,
        /// Keep the record of the agent's end in its state folder until [`Request::Discard`]; the trial then goes on when
        /// the stream ends.
        #[serde(default)]
        keep: bool,
    },
    /// Prepare the connecting end of a trial whose listening end is another agent: open the data connections.
    Connect {
        /// The trial, as the connecting end runs it.
        spec: Box<TrialSpec>,
        /// The token of each data connection.
        token: Token,
        /// Where the other agent listens.
        target: SocketAddr,
    },
    /// Start the transfer; answered when the trial is over.
    Start,
    /// The same at a given time, so that trials between other hosts start together.
    StartAt {
        /// On the agent's `CLOCK_MONOTONIC`. A time in the past is now.
        at_ns: Nanoseconds,
    },
    /// End the running trial as if its time was over; what was measured is the answer to [`Request::Start`].
    EndEarly,
    /// Abort the prepared or running trial.
    Abort,
    /// The record of an earlier trial, kept by its token; waits until that trial is over.
    Fetch {
        /// The token of its data connections.
        token: Token,
    },
    /// Remove a record that was kept; no effect if there is none.
    Discard {
        /// The token of its data connections.
        token: Token,
    },
    /// Add records to the run that a rank of a mesh writes of its own.
    Keep(#[serde(deserialize_with = "settings")] Vec<String>),
    /// The last message.
    Bye,
}

/// From the agent to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The response to [`Request::Hello`].
    Hello {
        /// The agent's protocol version.
        protocol: u32,
        /// The agent's version of linerate.
        version: String,
        /// The addresses that the controller may use for data, best first.
        addresses: Vec<AgentAddress>,
        /// The address of the agent's host that the controller has reached; `None` if the agent does not listen itself.
        #[serde(default)]
        reached: Option<IpAddr>,
        /// Whether the agent's owner permits no changes of settings.
        #[serde(default)]
        changes_forbidden: bool,
    },
    /// The response to [`Request::ReadHost`].
    Host(Box<Host>),
    /// The response to [`Request::ReadClock`].
    Clock {
        /// `CLOCK_MONOTONIC`.
        monotonic_ns: Nanoseconds,
        /// `CLOCK_REALTIME`.
        unix_ns: Nanoseconds,
    },
    /// The response to [`Request::ReadSettings`], in its order.
    Settings(#[serde(deserialize_with = "settings")] Vec<Known<Value>>),
    /// The plan is applied and read back.
    Applied,
    /// The leased plan is applied and read back.
    Leased {
        /// The name of its transaction.
        id: String,
    },
    /// The requested plan is undone and read back.
    Undone,
    /// The applied changes are kept.
    Committed,
    /// The agent listens for data connections on this port.
    Prepared {
        /// The TCP port; 0 is the one that the controller has reached the agent at.
        port: u16,
    },
    /// The data connections to the other agent are open.
    Connected,
    /// What this end has done so far. It is not in the order of the other responses.
    Progress(Progress),
    /// A command of the running trial has ended. It is not in the order of the other responses.
    Ran(Box<CommandRun>),
    /// The trial is over.
    Done(Box<SideSample>),
    /// The running trial, if there is one, ends early. It is not in the order of the other responses.
    Ending,
    /// The trial was aborted.
    Aborted,
    /// The record is no longer kept.
    Discarded,
    /// The records are on disk.
    Kept,
    /// The request failed; the agent's state is unchanged.
    Failed(Failure),
}

/// What one end of a running trial has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Since the start of this end.
    pub at_ns: Nanoseconds,
    /// By the flows that send.
    pub sent_bytes: u64,
    /// By the flows that receive.
    pub received_bytes: u64,
    /// Operations that were completed; only an end that requests counts them.
    pub operations: u64,
    /// Segments that were retransmitted; `None` if no flow of TCP sends here, or if there are too many to ask.
    pub retransmits: Option<u64>,
    /// The 99th percentile of the latency.
    pub p99_ns: Option<Nanoseconds>,
    /// CPU time of this end's process.
    pub cpu_ns: Nanoseconds,
}

/// An address of the agent's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAddress {
    /// The interface that carries it.
    pub nic: NicName,
    /// The address with its prefix length.
    pub address: String,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure; it decides the exit code.
    pub kind: FailureKind,
    /// What failed, on what, why, and what to do.
    pub message: String,
}

/// Kinds of failure, one for each documented exit code that a peer can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The message does not fit the state of the protocol, or a value is out of range.
    BadInput,
    /// Another version of the protocol.
    Version,
    /// A capability is missing.
    Permission,
    /// This kernel or device cannot do it.
    NotSupported,
    /// No port, memory, file or space was left.
    Resource,
    /// Nothing answers at an address, or a name has none.
    Unreachable,
    /// A timeout.
    TimeOut,
    /// A change failed, and everything was rolled back.
    Restored,
    /// A change failed, and the rollback was incomplete.
    RestoreIncomplete,
    /// Anything else.
    Other,
    /// The connection to the other end broke, mostly because of a failure there.
    Broken,
}
