//! How a NIC's packets are spread over queues and CPUs, and how they are shaped: RSS, NAPI, qdiscs, traffic classes
//! (Documentation/networking/scaling.rst, napi.rst; Documentation/netlink/specs/{netdev,ethtool}.yaml; dcb(8)).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::QueueKind;
use crate::ids::{CpuSet, IrqNumber};
use crate::known::Known;
use crate::units::{BitRate, Bytes};

/// The distribution of packets over queues and CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Dispatch {
    /// The RSS hash and its indirection table.
    pub rss: Known<Rss>,
    /// The NAPI instances.
    pub napis: Known<Vec<Napi>>,
    /// The private flags of the driver.
    pub private_flags: Known<BTreeMap<String, bool>>,
    /// The tunnel ports that the NIC offloads.
    pub tunnel_ports: Known<Vec<TunnelPort>>,
    /// How long an empty poll defers interrupts, nanoseconds (`gro_flush_timeout`).
    pub gro_flush_timeout_ns: Known<u64>,
    /// The number of empty polls before interrupts are enabled again (`napi_defer_hard_irqs`).
    pub defer_hard_irqs: Known<u32>,
    /// Whether NAPI is threaded.
    pub threaded: Known<bool>,
    /// Whether the NIC splits headers from data: `on`, `off`, `auto`.
    pub tcp_data_split: Known<String>,
    /// Per-queue interrupt coalescing, if the driver has it.
    pub queue_coalesce: Known<Vec<QueueCoalesce>>,
    /// The XDP features of the driver (`basic`, `redirect`, `xsk-zerocopy` ...).
    pub xdp_features: Known<Vec<String>>,
}

/// Receive-side scaling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rss {
    /// The indirection table: the queue of each entry.
    pub table: Known<Vec<u32>>,
    /// `toeplitz`, `xor`, `crc32`.
    pub function: Known<String>,
    /// Length of the hash key in bytes; the key itself is not stored.
    pub key_bytes: Known<u32>,
    /// Whether both directions of a flow get the same hash (`symmetric-xor`).
    pub symmetric: Known<bool>,
    /// The hash fields of each flow type: `tcp4` -> `sdfn` (source, destination address; source, destination port),
    /// as in `ethtool -n DEV rx-flow-hash`.
    pub fields: Known<BTreeMap<String, String>>,
}

/// A NAPI instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Napi {
    /// Its ID.
    pub id: u32,
    /// Its interrupt.
    pub irq: Known<IrqNumber>,
    /// Its thread, if it has one.
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
    /// How long a program's busy polling keeps its interrupt off (`irq-suspend-timeout`), nanoseconds.
    pub irq_suspend_timeout_ns: Known<u64>,
}

/// A UDP port whose tunnel traffic the NIC parses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TunnelPort {
    /// The port.
    pub port: u32,
    /// `vxlan`, `geneve`, `vxlan-gpe`.
    pub kind: String,
}

/// Interrupt coalescing of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueCoalesce {
    /// The queue.
    pub queue: u32,
    /// `rx-usecs`: delay of a receive interrupt in microseconds.
    pub rx_usecs: Known<u32>,
    /// `tx-usecs`: delay of a transmit interrupt in microseconds.
    pub tx_usecs: Known<u32>,
    /// Whether the receive delay is adaptive.
    pub adaptive_rx: Known<bool>,
    /// Whether the transmit delay is adaptive.
    #[serde(default)]
    pub adaptive_tx: Known<bool>,
    /// `rx-frames`: packets received before an interrupt fires.
    #[serde(default)]
    pub rx_frames: Known<u32>,
    /// `tx-frames`: packets sent before an interrupt fires.
    #[serde(default)]
    pub tx_frames: Known<u32>,
}

impl QueueCoalesce {
    /// The delay of one direction, microseconds.
    pub fn usecs(&self, kind: QueueKind) -> &Known<u32> {
        match kind {
            QueueKind::Rx => &self.rx_usecs,
            QueueKind::Tx => &self.tx_usecs,
        }
    }

    /// The frame count of one direction.
    pub fn frames(&self, kind: QueueKind) -> &Known<u32> {
        match kind {
            QueueKind::Rx => &self.rx_frames,
            QueueKind::Tx => &self.tx_frames,
        }
    }

    /// Whether the delay of one direction is adaptive.
    pub fn adaptive(&self, kind: QueueKind) -> &Known<bool> {
        match kind {
            QueueKind::Rx => &self.adaptive_rx,
            QueueKind::Tx => &self.adaptive_tx,
        }
    }
}

/// Qdiscs and traffic classes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Shaping {
    /// Every qdisc, the root first.
    pub tree: Known<Vec<QdiscNode>>,
    /// The classes of classful qdiscs with their rates.
    pub classes: Known<Vec<QdiscClass>>,
    /// Data center bridging.
    pub dcb: Known<Dcb>,
    /// Which packets linerate's own nf_tables table gives which class; read only beside classes.
    pub class_rules: Known<Vec<ClassSelector>>,
}

/// Packets that a rule gives a class; the first one that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassSelector {
    /// `priority 1`, `vlan 10`, `dscp af21`, `port 5001`, `mark 1`.
    pub packets: String,
    /// The class in the format of `handle`; below 65536 a priority, whose class `mqprio` chooses.
    pub class: u32,
}

/// A traffic class of an `mqprio`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrafficClass {
    /// The socket priorities of its packets.
    pub priorities: Vec<u32>,
    /// Its first TX queue.
    pub first_queue: u32,
    /// The number of its TX queues.
    pub queues: u32,
    /// Its limit in the NIC.
    pub max_bit_per_s: Option<BitRate>,
}

/// One qdisc of a hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QdiscNode {
    /// `mq`, `fq` ...
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// Its parent: 4294967295 is the root, otherwise `major:minor` in the format of `handle`.
    pub parent: u32,
    /// The rate of a shaper.
    pub rate_bit_per_s: Option<BitRate>,
    /// Packets dropped since it was created.
    pub drops: Known<u64>,
    /// Packets requeued.
    pub requeues: Known<u64>,
    /// How often it was over its limit.
    pub overlimits: Known<u64>,
    /// Whether it is offloaded to hardware.
    pub offloaded: Known<bool>,
    /// The class of packets that nothing selects, if it is an `htb`; without one they pass it without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_class: Option<u32>,
    /// Its traffic classes, if it is an `mqprio`.
    #[serde(default)]
    pub traffic_classes: Vec<TrafficClass>,
}

/// A class of a classful qdisc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QdiscClass {
    /// `htb`, `hfsc`, `drr` ...
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// Its parent.
    pub parent: u32,
    /// Its guaranteed rate.
    pub rate_bit_per_s: Option<BitRate>,
    /// Its maximum rate.
    pub ceil_bit_per_s: Option<BitRate>,
}

/// Data center bridging (IEEE 802.1Qaz, 802.1Qbb; `RTM_GETDCB`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Dcb {
    /// The traffic class of each priority.
    pub priority_class: Known<Vec<u32>>,
    /// Bandwidth share of each class, per cent.
    pub class_bandwidth: Known<Vec<u32>>,
    /// The transmission selection algorithm of each class: `strict`, `ets`, `vendor` ...
    pub class_algorithm: Known<Vec<String>>,
    /// The rate limit of each class; 0 is no limit.
    pub class_max_bit_per_s: Known<Vec<BitRate>>,
    /// The priorities with PFC (bit n is priority n).
    pub pfc_enabled: Known<u32>,
    /// The peer's priorities with PFC, from DCBX.
    pub peer_pfc_enabled: Known<u32>,
    /// The peer's bandwidth share of each class, from DCBX.
    pub peer_class_bandwidth: Known<Vec<u32>>,
    /// Whether this end accepts the peer's settings (willing).
    pub willing: Known<bool>,
    /// Where DCBX runs: `host`, `firmware`; and which version.
    pub dcbx: Known<Vec<String>>,
    /// The application table: selector (`ethertype`, `dscp`, `stream-port` ...), protocol, priority.
    pub app: Known<Vec<(String, u32, u32)>>,
    /// What determines the priority of a received packet: `pcp`, `dscp`, in order.
    pub trust: Known<Vec<String>>,
    /// The receive buffer of each priority, and its size.
    pub buffer_bytes: Known<Vec<Bytes>>,
}

/// The NIC itself: driver, firmware, health (`ETHTOOL_GDRVINFO`, devlink, hwmon).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Card {
    /// The driver's name, also for virtual interfaces.
    pub driver: Known<String>,
    /// The driver's version.
    pub driver_version: Known<String>,
    /// The running firmware.
    pub firmware: Known<String>,
    /// The firmware that will run after a reset, if it differs.
    pub firmware_stored: Known<BTreeMap<String, String>>,
    /// The board ID.
    pub board: Known<String>,
    /// The parameter-set ID (PSID): the board variant that a firmware image is built for (`fw.psid`; NVIDIA NICs only).
    pub psid: Known<String>,
    /// Every version that devlink reports.
    pub versions: Known<Vec<FirmwareVersion>>,
    /// What the port runs as: `Ethernet`, `InfiniBand`, `auto`.
    pub port_type: Known<String>,
    /// What a port that can run as either was set to.
    pub port_type_desired: Known<String>,
    /// Each health reporter with its state and its number of errors and recoveries.
    pub health: Known<Vec<HealthReporter>>,
    /// Temperatures, by label, in thousandths of a degree Celsius, with the critical limit if reported.
    pub temperatures: Known<Vec<Temperature>>,
}

/// A version that a NIC reports (Documentation/networking/devlink/devlink-info.rst).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirmwareVersion {
    /// `fw.version`, `fw.bundle_id`, `board.id` ...
    pub name: String,
    /// Whether it is fixed, running or stored.
    pub state: VersionState,
    /// The version.
    pub version: String,
}

/// The state of a [`FirmwareVersion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    /// Of the hardware.
    Fixed,
    /// In use.
    Running,
    /// In the flash: in use after a reset.
    Stored,
}

/// A devlink health reporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// A temperature of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Temperature {
    /// Its label.
    pub label: String,
    /// Thousandths of a degree Celsius.
    pub value_mc: Known<i32>,
    /// The critical limit.
    pub critical_mc: Known<i32>,
}
