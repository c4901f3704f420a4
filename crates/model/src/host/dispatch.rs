//! How a NIC's packets are spread over queues and CPUs, and what shapes them: RSS, NAPI, queue
//! disciplines, traffic classes (Documentation/networking/scaling.rst, napi.rst;
//! Documentation/netlink/specs/{netdev,ethtool}.yaml; dcb(8)).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::QueueKind;
use crate::ids::{CpuSet, IrqNumber};
use crate::known::Known;
use crate::units::{BitRate, Bytes};

/// The spreading of packets over queues and CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Dispatch {
    /// The receive hash and its table.
    pub rss: Known<Rss>,
    /// The polling contexts.
    pub napis: Known<Vec<Napi>>,
    /// The private flags of the driver.
    pub private_flags: Known<BTreeMap<String, bool>>,
    /// The tunnel ports that the card knows.
    pub tunnel_ports: Known<Vec<TunnelPort>>,
    /// How long an empty poll defers, nanoseconds (`gro_flush_timeout`).
    pub gro_flush_timeout_ns: Known<u64>,
    /// After how many empty polls interrupts come back (`napi_defer_hard_irqs`).
    pub defer_hard_irqs: Known<u32>,
    /// Whether polling runs in threads of its own.
    pub threaded: Known<bool>,
    /// Whether the card splits headers from data: `on`, `off`, `auto`.
    pub tcp_data_split: Known<String>,
    /// Interrupt moderation of each queue, where the driver has it: receive and transmit microseconds.
    pub queue_coalesce: Known<Vec<QueueCoalesce>>,
    /// What XDP the driver can do (`basic`, `redirect`, `xsk-zerocopy` ...).
    pub xdp_features: Known<Vec<String>>,
}

/// Receive-side scaling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rss {
    /// How many queues stand in the table, entry by entry.
    pub table: Known<Vec<u32>>,
    /// `toeplitz`, `xor`, `crc32`.
    pub function: Known<String>,
    /// Length of the key in bytes; the key itself is not kept.
    pub key_bytes: Known<u32>,
    /// Whether both directions of a flow are made to hash alike (`symmetric-xor`).
    pub symmetric: Known<bool>,
    /// What is hashed of each kind of flow: `tcp4` -> `sdfn` (source, destination address; source,
    /// destination port), as `ethtool -n DEV rx-flow-hash` names them.
    pub fields: Known<BTreeMap<String, String>>,
}

/// A polling context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Napi {
    /// Its id.
    pub id: u32,
    /// Its interrupt.
    pub irq: Known<IrqNumber>,
    /// Its thread, when it has one.
    pub thread: Known<u32>,
    /// The CPUs on which that thread may run.
    pub thread_cpus: Known<CpuSet>,
    /// Its receive queues.
    pub rx_queues: Vec<u32>,
    /// Its transmit queues.
    pub tx_queues: Vec<u32>,
    /// Its own `gro_flush_timeout`, nanoseconds.
    pub gro_flush_timeout_ns: Known<u64>,
    /// Its own `defer-hard-irqs`.
    pub defer_hard_irqs: Known<u32>,
    /// How long a program's polling keeps its interrupt off, nanoseconds.
    pub irq_suspend_timeout_ns: Known<u64>,
}

/// A UDP port for which the card parses tunnels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPort {
    /// The port.
    pub port: u32,
    /// `vxlan`, `geneve`, `vxlan-gpe`.
    pub kind: String,
}

/// Interrupt moderation of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCoalesce {
    /// The queue.
    pub queue: u32,
    /// Receive, microseconds.
    pub rx_usecs: Known<u32>,
    /// Transmit, microseconds.
    pub tx_usecs: Known<u32>,
    /// Whether the receive delay is adapted.
    pub adaptive_rx: Known<bool>,
    /// Whether the transmit delay is adapted.
    #[serde(default)]
    pub adaptive_tx: Known<bool>,
    /// So many frames received end the delay.
    #[serde(default)]
    pub rx_frames: Known<u32>,
    /// So many frames sent.
    #[serde(default)]
    pub tx_frames: Known<u32>,
}

impl QueueCoalesce {
    /// The delay of one direction.
    pub fn usecs(&self, kind: QueueKind) -> &Known<u32> {
        match kind {
            QueueKind::Rx => &self.rx_usecs,
            QueueKind::Tx => &self.tx_usecs,
        }
    }

    /// So many frames of one direction end the delay.
    pub fn frames(&self, kind: QueueKind) -> &Known<u32> {
        match kind {
            QueueKind::Rx => &self.rx_frames,
            QueueKind::Tx => &self.tx_frames,
        }
    }

    /// Whether the delay of one direction is adapted.
    pub fn adaptive(&self, kind: QueueKind) -> &Known<bool> {
        match kind {
            QueueKind::Rx => &self.adaptive_rx,
            QueueKind::Tx => &self.adaptive_tx,
        }
    }
}

/// Queueing disciplines and traffic classes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Shaping {
    /// Every queueing discipline, the root first.
    pub tree: Known<Vec<QdiscNode>>,
    /// The classes of classful ones with their rates.
    pub classes: Known<Vec<QdiscClass>>,
    /// Data centre bridging.
    pub dcb: Known<Dcb>,
}

/// One queueing discipline of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscNode {
    /// `mq`, `fq` ...
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// What it hangs on: 0xffff_ffff is the root, else `major:minor`.
    pub parent: u32,
    /// The rate it lets pass, of shapers.
    pub rate_bit_per_s: Option<BitRate>,
    /// Packets dropped since it was made.
    pub drops: Known<u64>,
    /// Packets put back.
    pub requeues: Known<u64>,
    /// How often it held packets back.
    pub overlimits: Known<u64>,
    /// Whether hardware does its work.
    pub offloaded: Known<bool>,
}

/// A class of a classful queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscClass {
    /// `htb`, `hfsc`, `drr` ...
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// What it hangs on.
    pub parent: u32,
    /// The rate it is given.
    pub rate_bit_per_s: Option<BitRate>,
    /// The rate it may reach.
    pub ceil_bit_per_s: Option<BitRate>,
}

/// Data centre bridging (IEEE 802.1Qaz, 802.1Qbb; `RTM_GETDCB`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Dcb {
    /// The traffic class of each priority.
    pub priority_class: Known<Vec<u32>>,
    /// Share of each class, per cent.
    pub class_bandwidth: Known<Vec<u32>>,
    /// How each class is served: `strict`, `ets`, `vendor` ...
    pub class_algorithm: Known<Vec<String>>,
    /// The most each class may send; 0 entries are no limit.
    pub class_max_bit_per_s: Known<Vec<BitRate>>,
    /// The priorities that are paused rather than dropped (bit n is priority n).
    pub pfc_enabled: Known<u32>,
    /// The peer's, as DCBX told.
    pub peer_pfc_enabled: Known<u32>,
    /// The peer's share of each class, as DCBX told.
    pub peer_class_bandwidth: Known<Vec<u32>>,
    /// Whether this end takes the peer's settings.
    pub willing: Known<bool>,
    /// Who runs DCBX: `host`, `firmware`; and which standard.
    pub dcbx: Known<Vec<String>>,
    /// The application table: selector (`ethertype`, `dscp`, `stream-port` ...), protocol, priority.
    pub app: Known<Vec<(String, u32, u32)>>,
    /// By what a received packet's priority is told: `pcp`, `dscp`, in order.
    pub trust: Known<Vec<String>>,
    /// The receive buffer of each priority, and its size.
    pub buffer_bytes: Known<Vec<Bytes>>,
}

/// The card itself: driver, firmware, health (`ETHTOOL_GDRVINFO`, devlink, hwmon).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Card {
    /// The driver's own name, also of virtual interfaces.
    pub driver: Known<String>,
    /// The driver's version.
    pub driver_version: Known<String>,
    /// The firmware that runs.
    pub firmware: Known<String>,
    /// The firmware that will run after a reset, where it differs.
    pub firmware_stored: Known<BTreeMap<String, String>>,
    /// The board's id.
    pub board: Known<String>,
    /// Each health reporter with its state and its number of errors and recoveries.
    pub health: Known<Vec<HealthReporter>>,
    /// Temperatures, by label, in thousandths of a degree Celsius, with the limit where it is told.
    pub temperatures: Known<Vec<Temperature>>,
}

/// A devlink health reporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReporter {
    /// `fw`, `fw_fatal`, `tx`, `rx` ...
    pub name: String,
    /// `healthy` or `error`.
    pub state: Known<String>,
    /// Errors since the driver was loaded.
    pub errors: Known<u64>,
    /// Recoveries since then.
    pub recoveries: Known<u64>,
}

/// A temperature of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temperature {
    /// Its label.
    pub label: String,
    /// Thousandths of a degree Celsius.
    pub value_mc: Known<i32>,
    /// Above which it is critical.
    pub critical_mc: Known<i32>,
}
