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

use serde::{Deserialize, Serialize};

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

/// The longest line either end reads: a host of 1,024 CPUs and 4,096 interrupts takes about 2 MiB.
pub const LINE_BYTES_MAX: usize = 64 << 20;

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
    ReadSettings(Vec<SettingKey>),
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
    Settings(Vec<Known<Value>>),
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
