//! RDMA verbs as a transport, and the workload that measures the verbs themselves (InfiniBand Architecture
//! Specification, volume 1, chapters 9 and 10; ibv_post_send(3)).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// How the queue pairs of a trial are made. What is `None` is chosen by each end for its own device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verbs {
    /// The transport service of the queue pairs.
    #[serde(default)]
    pub service: Service,
    /// How the two ends of a queue pair find each other.
    #[serde(default)]
    pub connect: Connect,
    /// Work requests under way on each queue pair.
    #[serde(default = "Verbs::default_depth")]
    pub depth: u32,
    /// Messages up to this size travel in the work request itself; `None` is what suits the device.
    #[serde(default)]
    pub inline_bytes: Option<Bytes>,
    /// One work request in so many is signalled: the others complete unseen.
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
    /// How long an acknowledgement is waited for before a packet is sent again: 4.096 us x 2^N, where N is 1 to 31;
    /// `None` is 14, or what the connection manager takes.
    #[serde(default)]
    pub ack_timeout: Option<u8>,
    /// The device of the end that linerate was started on.
    #[serde(default)]
    pub local: DeviceChoice,
    /// The peer's.
    #[serde(default)]
    pub remote: DeviceChoice,
    /// How the memory is registered.
    #[serde(default)]
    pub memory: Registration,
}

impl Verbs {
    /// What perftest has under way (`DEF_TX_BW`).
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
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable datagram: messages of one packet, which may be lost.
    Ud,
}

/// How the two ends of a queue pair find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connect {
    /// Both tell their GID, queue pair and packet number over the trial's own connection.
    #[default]
    Gid,
    /// The RDMA connection manager (rdma_cm(7)); iWARP knows no other.
    Cm,
}

/// Which device of an end; what is `None` follows from the address that the data goes to.
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

/// How memory is made and registered (ibv_reg_mr(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// Of huge pages.
    #[serde(default)]
    pub huge_pages: bool,
    /// Not pinned: the device asks for pages as it needs them (`IBV_ACCESS_ON_DEMAND`).
    #[serde(default)]
    pub on_demand: bool,
    /// PCIe may reorder the device's writes (`IBV_ACCESS_RELAXED_ORDERING`).
    #[serde(default)]
    pub relaxed_ordering: bool,
}

/// What only `rdma-write`, `rdma-read`, `rdma-send` and `rdma-atomic` have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rdma {
    /// The verb.
    pub verb: Verb,
    /// One message at a time and its time, instead of as many as the depth allows and their rate.
    pub latency: bool,
    /// The sizes, each in turn for an equal part of the time.
    pub sizes: Vec<Bytes>,
    /// How often each size goes; `None` is as often as its time allows.
    pub repetitions: Option<u64>,
    /// Every byte is compared where it arrives.
    pub data_check: bool,
}

impl Rdma {
    /// The sizes of a whole sweep, as perftest's `-a` has them: the powers of two from 2 B to 8 MiB.
    pub fn sweep_sizes() -> Vec<Bytes> {
        (1..=23).map(|power| Bytes::new(1 << power)).collect()
    }
}

/// What a work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Writes the far end's memory.
    Write,
    /// Reads it.
    Read,
    /// Sends a message that the far end has made room for.
    Send,
    /// Adds to 8 bytes of the far end's memory, and fetches what was there.
    Atomic,
}

impl Verb {
    /// The size of an atomic operation.
    pub const ATOMIC_BYTES: Bytes = Bytes::new(8);

    /// The workload of this verb, on the command line and in documents.
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
