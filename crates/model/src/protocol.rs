//! What the two ends of linerate say to each other, as data; who may say what when is `talk`'s. Every
//! message is one line of JSON; every limit is stated here.
//!
//! ```text
//! controller                         agent
//!   Hello{protocol, version}   -->
//!                              <--   Hello{protocol, version, addresses}
//!   ReadHost                   -->
//!                              <--   Host(..)
//!   ReadSettings(keys)         -->
//!                              <--   Settings(values)
//!   Apply{plan} / Undo / Commit-->
//!                              <--   Applied / Undone / Committed
//!   Lease{plan, seconds}       -->                (undone after so long, too)
//!                              <--   Leased{id}
//!   TakeBack{id}               -->                (what was committed earlier)
//!                              <--   Undone
//!   Prepare{spec, token, bind} -->
//!                              <--   Prepared{port}
//!   (data connections)
//!   Start                      -->
//!                              <--   Done(SideSample)
//!   Abort (of a trial)         -->
//!                              <--   Aborted
//!   Bye, or end of stream      -->   (everything not committed is undone)
//! ```

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::host::Host;
use crate::ids::NicName;
use crate::known::Known;
use crate::plan::Plan;
use crate::sample::SideSample;
use crate::setting::{SettingKey, Value};
use crate::workload::TrialSpec;

/// The version of this protocol. Both ends must speak the same one.
pub const PROTOCOL: u32 = 3;

/// The most settings that are asked for at once: four for each of 4,096 queues.
pub const SETTINGS_MAX: usize = 16_384;

/// The longest line either end reads.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// The longest request with a plan: three times what a plan of [`SETTINGS_MAX`] changes takes.
const PLAN_BYTES_MAX: usize = 16 << 20;
/// The longest request with keys or with a trial.
const LIST_BYTES_MAX: usize = 4 << 20;
/// The longest request of any other kind.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The longest description of a host: one of 1,024 CPUs and 4,096 interrupts takes about 2 MiB.
const HOST_BYTES_MAX: usize = 16 << 20;
/// The longest answer that is a confirmation or a failure.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The longest value of a setting: the kernel's own text ends at a page.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// The longest record of a trial without its flows: counters, CPU times, latencies, a profile.
const RECORD_BYTES_MAX: usize = 16 << 20;
/// The longest record of one flow without its readings.
const FLOW_BYTES_MAX: usize = 64 << 10;
/// The longest reading of a flow: two numbers of at most 20 digits.
const READING_BYTES_MAX: usize = 42;

/// How long the request may be whose line begins with `start`.
pub fn request_bytes_max(start: &[u8]) -> usize {
    let start = &start[..start.len().min(64)];
    match start.split(|&byte| byte == b'"').nth(1) {
        Some(b"apply" | b"lease") => PLAN_BYTES_MAX,
        Some(b"read-settings" | b"prepare") => LIST_BYTES_MAX,
        _ => REQUEST_BYTES_MAX,
    }
}

/// How long the record of a trial of `spec` may be.
pub fn record_bytes_max(spec: &TrialSpec) -> usize {
    let flows = usize::try_from(spec.flows).unwrap_or(usize::MAX);
    let readings = usize::try_from(spec.readings()).unwrap_or(usize::MAX);
    flows
        .saturating_mul(FLOW_BYTES_MAX)
        .saturating_add(readings.saturating_mul(READING_BYTES_MAX))
        .saturating_add(RECORD_BYTES_MAX)
        .min(LINE_BYTES_MAX)
}

impl Request {
    /// How long its answer may be, where `record_bytes_max` is that of the trial that is prepared.
    pub fn answer_bytes_max(&self, record_bytes_max: usize) -> usize {
        match self {
            Self::ReadHost => HOST_BYTES_MAX,
            Self::ReadSettings(keys) => keys
                .len()
                .saturating_mul(VALUE_BYTES_MAX)
                .saturating_add(ANSWER_BYTES_MAX)
                .min(LINE_BYTES_MAX),
            // The record of a trial that is given up may be on its way.
            Self::Start | Self::Abort => record_bytes_max,
            _ => ANSWER_BYTES_MAX,
        }
    }
}

/// Reads at most [`SETTINGS_MAX`] items, and keeps no more.
fn settings<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Items<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {SETTINGS_MAX} settings")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                if all.len() == SETTINGS_MAX {
                    return Err(A::Error::custom(format_args!(
                        "more than {SETTINGS_MAX} settings at once"
                    )));
                }
                all.push(item);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Items(PhantomData))
}

/// How long a data connection may take to present its token.
pub const TOKEN_MILLIS_MAX: u64 = 1_000;

/// What a data connection presents before its first byte of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub [u8; 16]);

/// From the controller to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The first message.
    Hello {
        /// The protocol the controller speaks.
        protocol: u32,
        /// The controller's version of linerate.
        version: String,
    },
    /// Read the host.
    ReadHost,
    /// Read settings, also such as a host's map does not hold.
    ReadSettings(#[serde(deserialize_with = "settings")] Vec<SettingKey>),
    /// Apply a plan, journalled; undone when the stream ends.
    Apply {
        /// The changes.
        plan: Plan,
        /// Whether the interface that the agent's ssh connection comes in by may be disturbed for a moment.
        #[serde(default)]
        include_way_in: bool,
    },
    /// Undo the newest plan that is still applied.
    Undo,
    /// Keep what is applied: forget how to undo it.
    Commit,
    /// Apply a plan, journalled; undone when the stream ends, and after so many seconds also if nobody hears that.
    Lease {
        /// The changes.
        plan: Plan,
        /// Whether the interface that the agent's ssh connection comes in by may be disturbed for a moment.
        include_way_in: bool,
        /// When it is undone unless it was committed.
        seconds: u32,
    },
    /// Undo a transaction that was committed in this boot; one that is not applied needs nothing.
    TakeBack {
        /// Its name.
        id: String,
    },
    /// Make ready for a trial: listen for the data connections.
    Prepare {
        /// What will be moved.
        spec: Box<TrialSpec>,
        /// What each data connection presents.
        token: Token,
        /// The address to listen on; empty is every address.
        bind: String,
    },
    /// Begin to move bytes; answered when the trial is over.
    Start,
    /// Give up the trial that was prepared or runs.
    Abort,
    /// The last message.
    Bye,
}

/// From the agent to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The answer to [`Request::Hello`].
    Hello {
        /// The protocol the agent speaks.
        protocol: u32,
        /// The agent's version of linerate.
        version: String,
        /// The addresses that the controller may try for data, best first.
        addresses: Vec<AgentAddress>,
    },
    /// The answer to [`Request::ReadHost`].
    Host(Box<Host>),
    /// The answer to [`Request::ReadSettings`], in its order.
    Settings(#[serde(deserialize_with = "settings")] Vec<Known<Value>>),
    /// The plan is applied and read back.
    Applied,
    /// The leased plan is applied and read back.
    Leased {
        /// The name of its transaction.
        id: String,
    },
    /// The plan that was meant is undone and read back.
    Undone,
    /// What was applied stays.
    Committed,
    /// The agent listens for data connections on this port.
    Prepared {
        /// The TCP port.
        port: u16,
    },
    /// The trial is over.
    Done(Box<SideSample>),
    /// The trial was given up.
    Aborted,
    /// The request failed; the agent is as it was before it.
    Failed(Failure),
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
    /// What kind of failure it was: decides the exit code.
    pub kind: FailureKind,
    /// What failed, on what, why, and what to do.
    pub message: String,
}

/// Kinds of failure, one for each documented exit code that a far end can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The message does not fit the state of the talk, or its content is out of range.
    BadInput,
    /// Another version of the protocol.
    Version,
    /// A capability is missing.
    Permission,
    /// This kernel or device cannot do it.
    NotSupported,
    /// No port, memory, file or space was left.
    Resource,
    /// It took longer than its limit.
    TimeOut,
    /// A change failed, and everything was put back.
    Restored,
    /// A change failed, and not everything could be put back.
    RestoreIncomplete,
    /// Anything else.
    Other,
    /// The connection to the other end broke: mostly what a failure there has left here.
    Broken,
}
