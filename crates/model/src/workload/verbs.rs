//! RDMA verbs as a transport, and the workload that measures the verbs themselves (InfiniBand Architecture
//! Specification, volume 1, chapters 9 and 10; ibv_post_send(3)).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// How the queue pairs of a trial are created. Each end chooses a value for its own device where an option is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verbs {
    /// The transport service of the queue pairs.
    #[serde(default)]
    pub service: Service,
    /// How the two ends of a queue pair connect.
    #[serde(default)]
    pub connect: Connect,
    /// The depth: work requests in flight on each queue pair.
    #[serde(default = "Verbs::default_depth")]
    pub depth: u32,
    /// Messages up to this size are sent inline; `None` is a default for the device.
    #[serde(default)]
    pub inline_bytes: Option<Bytes>,
    /// Signaling: one work request in this many is signaled.
    #[serde(default)]
    pub moderation: Option<u32>,
    /// The path MTU: 256, 512, 1024, 2048 or 4096 bytes; `None` is the smaller one of both ports.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// The traffic class of the global route header (RoCE v2: DSCP and ECN bits).
    #[serde(default)]
    pub traffic_class: u8,
    /// The service level (InfiniBand), or the priority (RoCE).
    #[serde(default)]
    pub service_level: u8,
    /// The ACK timeout before a packet is retransmitted: 4.096 us x 2^N, where N is 1 to 31; `None` is 14, or the
    /// connection manager's default.
    #[serde(default)]
    pub ack_timeout: Option<u8>,
    /// The device of the host that linerate was started on.
    #[serde(default)]
    pub local: DeviceChoice,
    /// The peer's device.
    #[serde(default)]
    pub remote: DeviceChoice,
    /// How the memory is registered.
    #[serde(default)]
    pub memory: Registration,
}

impl Verbs {
    /// perftest's default depth (`DEF_TX_BW`).
    pub const fn default_depth() -> u32 {
        128
    }
}

impl Default for Verbs {
    fn default() -> Self {
        Self {
            service: Service::default(),
            connect: Connect::default(),
            depth: Self::default_depth(),
            inline_bytes: None,
            moderation: None,
            mtu: None,
            traffic_class: 0,
            service_level: 0,
            ack_timeout: None,
            local: DeviceChoice::default(),
            remote: DeviceChoice::default(),
            memory: Registration::default(),
        }
    }
}

/// The transport service of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable datagram: messages of one packet, which may be lost.
    Ud,
}

/// How the two ends of a queue pair connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Connect {
    /// Both exchange their GID, queue pair number and packet sequence number over the trial's own connection.
    #[default]
    Gid,
    /// The RDMA connection manager (rdma_cm(7)); required for iWARP.
    Cm,
}

/// The device of an end; the default follows from the data address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceChoice {
    /// Its name, `mlx5_0`.
    #[serde(default)]
    pub device: Option<String>,
    /// The port, from 1.
    #[serde(default)]
    pub port: Option<u8>,
    /// The index of the GID.
    #[serde(default)]
    pub gid_index: Option<u32>,
}

/// How memory is allocated and registered (ibv_reg_mr(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// In huge pages.
    #[serde(default)]
    pub huge_pages: bool,
    /// Not pinned: the device faults pages in as needed (`IBV_ACCESS_ON_DEMAND`).
    #[serde(default)]
    pub on_demand: bool,
    /// PCIe relaxed ordering for the device's writes (`IBV_ACCESS_RELAXED_ORDERING`).
    #[serde(default)]
    pub relaxed_ordering: bool,
}

/// The options of `rdma-write`, `rdma-read`, `rdma-send` and `rdma-atomic`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rdma {
    /// The verb.
    pub verb: Verb,
    /// Latency mode: one message at a time, instead of as many as the depth allows.
    pub latency: bool,
    /// The message sizes, each for an equal part of the time.
    pub sizes: Vec<Bytes>,
    /// The repetitions of each size; `None` is no limit within its time.
    pub repetitions: Option<u64>,
    /// Every received byte is verified.
    pub data_check: bool,
}

impl Rdma {
    /// The sizes of a full sweep, as with perftest's `-a`: the powers of two from 2 B to 8 MiB.
    pub fn sweep_sizes() -> Vec<Bytes> {
        (1..=23).map(|power| Bytes::new(1 << power)).collect()
    }
}

/// The operation of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Writes to the peer's memory.
    Write,
    /// Reads from the peer's memory.
    Read,
    /// Sends a message for which the peer has posted a receive.
    Send,
    /// Fetch-and-add on 8 bytes of the peer's memory.
    Atomic,
}

impl Verb {
    /// The size of an atomic operation.
    pub const ATOMIC_BYTES: Bytes = Bytes::new(8);

    /// The workload's name on the command line and in documents.
    pub fn workload(self) -> &'static str {
        match self {
            Self::Write => "rdma-write",
            Self::Read => "rdma-read",
            Self::Send => "rdma-send",
            Self::Atomic => "rdma-atomic",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Ud => "UD",
        })
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gid => "gid",
            Self::Cm => "cm",
        })
    }
}
