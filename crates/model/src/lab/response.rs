//! What of a trial can be judged.

use serde::{Deserialize, Serialize};

use super::words;

/// A figure of a trial that can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// Bits a second, after the warm-up.
    Rate,
    /// Operations a second.
    Operations,
    /// CPU seconds for each GB, of both ends.
    Cpu,
    /// The same of this host's part alone.
    CpuLocal,
    /// The same of the peer's part alone.
    CpuPeer,
    /// Of `cpu-local` what was user time.
    UserLocal,
    /// Of `cpu-local` what was system time.
    SystemLocal,
    /// Of `cpu-peer` what was user time.
    UserPeer,
    /// Of `cpu-peer` what was system time.
    SystemPeer,
    /// CPU microseconds for each operation, of both ends.
    CpuOp,
    /// The same of this host's part alone.
    CpuOpLocal,
    /// The same of the peer's part alone.
    CpuOpPeer,
    /// The mean time of an operation, seconds (`pingpong` and RDMA's latency: one way).
    Mean,
    /// The median of it.
    P50,
    /// The 99th percentile of it.
    P99,
}

/// What figures are told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bits a second.
    BitPerS,
    /// Operations a second.
    PerS,
    /// CPU seconds for each GB.
    SPerGb,
    /// CPU microseconds for each operation.
    UsPerOp,
    /// Seconds.
    S,
}

impl Unit {
    /// Its word, as it stands at the end of a key.
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

    /// Its word in a file.
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

    /// The unit of its figures.
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

    /// Whether it is a part of another figure. A part may be 0, of which there is no geometric mean and no relative
    /// change: its means are arithmetic.
    pub fn is_part(self) -> bool {
        matches!(
            self,
            Self::UserLocal | Self::SystemLocal | Self::UserPeer | Self::SystemPeer
        )
    }
}

/// What is judged, the first one first; none where the workload's own result is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "words::OneOrMore")]
pub struct Responses(pub Vec<Response>);
