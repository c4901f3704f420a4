//! The responses of a trial.

use serde::{Deserialize, Serialize};

use super::words;

/// A response: a value of a trial that is analyzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// Bits per second, after the warm-up.
    Rate,
    /// Operations per second.
    Operations,
    /// CPU seconds per GB, both ends.
    Cpu,
    /// CPU seconds per GB of this host.
    CpuLocal,
    /// CPU seconds per GB of the peer.
    CpuPeer,
    /// The user time in `cpu-local`.
    UserLocal,
    /// The system time in `cpu-local`.
    SystemLocal,
    /// The user time in `cpu-peer`.
    UserPeer,
    /// The system time in `cpu-peer`.
    SystemPeer,
    /// CPU microseconds per operation, both ends.
    CpuOp,
    /// CPU microseconds per operation of this host.
    CpuOpLocal,
    /// CPU microseconds per operation of the peer.
    CpuOpPeer,
    /// The mean time of an operation, seconds (`pingpong` and RDMA latency: one way).
    Mean,
    /// The median time of an operation.
    P50,
    /// The 99th percentile.
    P99,
}

/// The unit of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    BitPerS,
    /// Operations per second.
    PerS,
    /// CPU seconds per GB.
    SPerGb,
    /// CPU microseconds per operation.
    UsPerOp,
    /// Seconds.
    S,
}

impl Unit {
    /// Its suffix in a key.
    pub fn word(self) -> &'static str {
        match self {
            Self::BitPerS => "bit_per_s",
            Self::PerS => "per_s",
            Self::SPerGb => "s_per_gb",
            Self::UsPerOp => "us_per_op",
            Self::S => "s",
        }
    }
}

impl Response {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Rate,
        Self::Operations,
        Self::Cpu,
        Self::CpuLocal,
        Self::CpuPeer,
        Self::UserLocal,
        Self::SystemLocal,
        Self::UserPeer,
        Self::SystemPeer,
        Self::CpuOp,
        Self::CpuOpLocal,
        Self::CpuOpPeer,
        Self::Mean,
        Self::P50,
        Self::P99,
    ];

    /// Its name in a file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Operations => "operations",
            Self::Cpu => "cpu",
            Self::CpuLocal => "cpu-local",
            Self::CpuPeer => "cpu-peer",
            Self::UserLocal => "user-local",
            Self::SystemLocal => "system-local",
            Self::UserPeer => "user-peer",
            Self::SystemPeer => "system-peer",
            Self::CpuOp => "cpu-op",
            Self::CpuOpLocal => "cpu-op-local",
            Self::CpuOpPeer => "cpu-op-peer",
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P99 => "p99",
        }
    }

    /// Its unit.
    pub fn unit(self) -> Unit {
        match self {
            Self::Rate => Unit::BitPerS,
            Self::Operations => Unit::PerS,
            Self::Cpu
            | Self::CpuLocal
            | Self::CpuPeer
            | Self::UserLocal
            | Self::SystemLocal
            | Self::UserPeer
            | Self::SystemPeer => Unit::SPerGb,
            Self::CpuOp | Self::CpuOpLocal | Self::CpuOpPeer => Unit::UsPerOp,
            Self::Mean | Self::P50 | Self::P99 => Unit::S,
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Rate | Self::Operations)
    }

    /// Whether it is a component of another response. A component may be 0, which has no geometric mean and no
    /// relative change: its means are arithmetic.
    pub fn is_part(self) -> bool {
        matches!(
            self,
            Self::UserLocal | Self::SystemLocal | Self::UserPeer | Self::SystemPeer
        )
    }
}

/// The responses, the first one first; none if the workload's own result is used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "words::OneOrMore")]
pub struct Responses(pub Vec<Response>);
