//! The host: what the kernel reports about one machine's data path, read once, as plain data. Only types and small
//! pure functions are here; `linerate-host` does the reading.

mod devices;
mod dispatch;
mod pci;
mod process;
mod processor;
mod rdma;
mod routing;
mod software;
mod stack;
mod wire;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::devices::{BlockDevice, Gid, NvmePath, RdmaDevice, RdmaPort};
pub use self::dispatch::{
    Card, ClassSelector, Dcb, Dispatch, FirmwareVersion, HealthReporter, Napi, QdiscClass,
    QdiscNode, QueueCoalesce, Rss, Shaping, Temperature, TrafficClass, TunnelPort, VersionState,
};
pub use self::pci::{
    NodeReport, NodeSource, PciFunction, PciNames, PcieControl, PcieHop, PcieLink,
};
pub use self::process::{CpuQuota, Process};
pub use self::processor::{
    Cpu, CpuKind, FrequencyPolicy, HugePages, IdleState, Isolation, Kernel, Limit, Node, Power,
};
pub use self::routing::{
    GroupMember, NeighborTimers, NexthopGroup, ResilientGroup, Route, RouteHop, Routing,
};
pub use self::software::{Conntrack, NfsMount, Owner, SocketOwner, Software, SysctlLine, Tap};
pub use self::stack::{Bond, BondPort, Bridge, Stack, Team, Tun, Tunnel, VirtualFunction, Vlan};
pub use self::wire::{
    Eee, Fec, LinkModes, LinkState, Module, ModuleLane, Pause, Timestamping, Wire, mode_speed,
};
use crate::ids::{CpuId, CpuSet, IrqNumber, NicName, NodeId, PciAddress};
use crate::known::{Cause, Gap, Known};
use crate::shell;
use crate::units::BitRate;

/// One machine (seen from one network namespace), read once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Which machine and kernel this is.
    pub identity: Identity,
    /// The CPUs, by number.
    pub cpus: Vec<Cpu>,
    /// Frequency scaling and idle states.
    #[serde(default)]
    pub power: Power,
    /// Isolated CPUs.
    #[serde(default)]
    pub isolation: Isolation,
    /// The kernel's clocks, mitigations and memory policy.
    #[serde(default)]
    pub kernel: Kernel,
    /// What the kernel allows linerate's own process.
    #[serde(default)]
    pub process: Process,
    /// The NUMA nodes, by number.
    pub nodes: Vec<Node>,
    /// The network interfaces, by index.
    pub nics: Vec<Nic>,
    /// The interrupts, by number.
    pub irqs: Vec<Irq>,
    /// RDMA devices, by name.
    pub rdma: Vec<RdmaDevice>,
    /// Block devices, by name.
    pub block: Vec<BlockDevice>,
    /// Sysctls used by rules and settings, by their dotted name, as the kernel prints them.
    pub sysctls: BTreeMap<String, Known<String>>,
    /// Programs and kernel subsystems that affect the data path.
    #[serde(default)]
    pub software: Software,
    /// Default routes, routes with several next hops, nexthop groups.
    #[serde(default)]
    pub routing: Routing,
    /// Gaps that have no field of their own.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub gaps: Vec<Gap>,
}

impl Host {
    /// A host of which nothing is known, as `who` runs there and does not report it.
    pub fn unheard(who: &str) -> Self {
        fn unknown<T>(who: &str) -> Known<T> {
            let reason = format!("{who} does not report it");
            Known::unknown(Cause::NotSaid, "the remote end", reason)
        }
        Self {
            identity: Identity {
                hostname: unknown(who),
                kernel_release: unknown(who),
                architecture: unknown(who),
                boot_id: unknown(who),
                command_line: unknown(who),
                cpu_model: unknown(who),
                irq_time_accounting: unknown(who),
            },
            cpus: Vec::new(),
            power: Power::default(),
            isolation: Isolation::default(),
            kernel: Kernel::default(),
            process: Process::default(),
            nodes: Vec::new(),
            nics: Vec::new(),
            irqs: Vec::new(),
            rdma: Vec::new(),
            block: Vec::new(),
            sysctls: BTreeMap::new(),
            software: Software::default(),
            routing: Routing::default(),
            gaps: Vec::new(),
        }
    }
}

/// Which machine, kernel and namespace was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Identity {
    /// The host's name.
    pub hostname: Known<String>,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: Known<String>,
    /// The machine's architecture, as `uname -m` prints it.
    pub architecture: Known<String>,
    /// Changes at every boot; equal on both ends means one kernel (two namespaces of one machine).
    pub boot_id: Known<String>,
    /// The kernel's command line.
    pub command_line: Known<String>,
    /// The CPU model as `/proc/cpuinfo` names it.
    pub cpu_model: Known<String>,
    /// Whether the kernel accounts interrupt time exactly (`CONFIG_IRQ_TIME_ACCOUNTING`) or by ticks.
    pub irq_time_accounting: Known<bool>,
}

/// What kind of interface a [`Nic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    /// A function of a bus device (PCI, virtio, USB ...).
    Physical,
    /// A virtual function of an SR-IOV card.
    Virtual,
    /// One end of a virtual Ethernet pair.
    Veth,
    /// A bridge.
    Bridge,
    /// A bond.
    Bond,
    /// A team.
    Team,
    /// A VLAN on another interface.
    Vlan,
    /// A VXLAN or Geneve tunnel end.
    Tunnel,
    /// A macvlan or ipvlan.
    Macvlan,
    /// A TUN or TAP device.
    Tun,
    /// IP over InfiniBand.
    Ipoib,
    /// The loopback.
    Loopback,
    /// Anything else the kernel can make.
    Other,
}

impl NicKind {
    /// Whether `speed` is that of a physical link. A veth reports 10 Gb/s but is limited by memory bandwidth.
    pub fn has_wire(self) -> bool {
        matches!(self, Self::Physical | Self::Virtual | Self::Ipoib)
    }
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nic {
    /// Its name.
    pub name: NicName,
    /// Its index in this namespace.
    pub index: Known<u32>,
    /// The kind of interface.
    pub kind: NicKind,
    /// Its kernel driver.
    pub driver: Known<String>,
    /// Its PCI function.
    pub pci_address: Known<PciAddress>,
    /// The NUMA node of its device.
    pub numa_node: Known<NodeId>,
    /// The source of that node.
    #[serde(default)]
    pub numa_node_source: Known<NodeSource>,
    /// The values of all sources of the node.
    #[serde(default)]
    pub numa_node_report: Known<NodeReport>,
    /// The CPUs local to its device.
    pub local_cpus: Known<CpuSet>,
    /// The speed of its link, one direction.
    pub link_bit_per_s: Known<BitRate>,
    /// Its MTU in bytes.
    pub mtu: Known<u32>,
    /// `up`, `down`, `lowerlayerdown` ... (RFC 2863, as `operstate` prints it).
    pub operstate: Known<String>,
    /// Its addresses with prefix length, `10.0.0.1/24`, in the kernel's order.
    pub addresses: Known<Vec<String>>,
    /// Its PCIe link and the narrowest link up to the root port.
    pub pcie: Known<PcieLink>,
    /// Settings of its PCI function.
    #[serde(default)]
    pub pci: Known<PciFunction>,
    /// Driver, firmware, health.
    #[serde(default)]
    pub card: Card,
    /// The port and its transceiver or cable.
    #[serde(default)]
    pub wire: Wire,
    /// Its relations to other interfaces.
    #[serde(default)]
    pub stack: Stack,
    /// RSS, NAPI and queue settings.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// Its qdiscs, traffic classes and DCB.
    #[serde(default)]
    pub shaping: Shaping,
    /// Its queues as sysfs lists them, receive queues first.
    pub queues: Vec<Queue>,
    /// Offload features by the kernel's own name (`tx-tcp-segmentation`).
    pub features: Known<BTreeMap<String, Feature>>,
    /// Ring sizes.
    pub rings: Known<Rings>,
    /// Queue counts.
    pub channels: Known<Channels>,
    /// Interrupt coalescing.
    pub coalesce: Known<Coalesce>,
    /// The root qdisc.
    pub qdisc: Known<Qdisc>,
    /// The lower interfaces (a VLAN's parent, a bond's slaves, a bridge's ports).
    pub lower: Known<Vec<NicName>>,
    /// The RDMA device of the same function.
    pub rdma: Known<String>,
}

/// The direction of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// A queue of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queue {
    /// Its number within its direction.
    pub index: u32,
    /// Its direction.
    pub kind: QueueKind,
    /// Its interrupt.
    pub irq: Known<IrqNumber>,
    /// The CPUs its interrupt is actually delivered to (`effective_affinity_list`).
    pub cpus: Known<CpuSet>,
    /// RPS: the CPUs that process its packets; empty is off. Rx only.
    pub rps_cpus: Known<CpuSet>,
    /// RFS: entries of its flow table; 0 is off. Rx only.
    pub rps_flow_cnt: Known<u64>,
    /// XPS: the CPUs that use it. Tx only.
    pub xps_cpus: Known<CpuSet>,
    /// XPS by receive queue: the receive queues whose connections use it. Tx only.
    #[serde(default)]
    pub xps_rxqs: Known<Vec<u32>>,
    /// The rate limit that the NIC enforces (`tx_maxrate`); 0 is no limit. Tx only.
    #[serde(default)]
    pub max_bit_per_s: Known<BitRate>,
    /// The transmit timeouts since the interface was created (`tx_timeout`). Tx only.
    #[serde(default)]
    pub tx_timeout: Known<u64>,
    /// The NAPI instance that serves it (`napi-id` of netdev netlink).
    #[serde(default)]
    pub napi: Known<u32>,
}

/// An offload feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feature {
    /// Whether it is enabled.
    pub active: bool,
    /// Whether a user may change it.
    pub changeable: bool,
}

/// Ring sizes in descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rings {
    /// Receive ring.
    pub rx: Known<u32>,
    /// Maximum receive ring.
    pub rx_max: Known<u32>,
    /// Transmit ring.
    pub tx: Known<u32>,
    /// Maximum transmit ring.
    pub tx_max: Known<u32>,
}

/// Numbers of queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Channels {
    /// Receive-only queues.
    pub rx: Known<u32>,
    /// Transmit-only queues.
    pub tx: Known<u32>,
    /// Combined queues.
    pub combined: Known<u32>,
    /// Maximum of receive-only queues.
    pub rx_max: Known<u32>,
    /// Maximum of transmit-only queues.
    pub tx_max: Known<u32>,
    /// Maximum of combined queues.
    pub combined_max: Known<u32>,
}

/// Interrupt coalescing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coalesce {
    /// `rx-usecs`: delay of a receive interrupt in microseconds.
    pub rx_usecs: Known<u32>,
    /// `tx-usecs`: delay of a transmit interrupt in microseconds.
    pub tx_usecs: Known<u32>,
    /// Whether the driver adapts the receive delay (adaptive-rx).
    pub adaptive_rx: Known<bool>,
    /// Whether the driver adapts the transmit delay (adaptive-tx).
    pub adaptive_tx: Known<bool>,
    /// `rx-frames`: an interrupt fires after this many received frames, even before the delay ends.
    #[serde(default)]
    pub rx_frames: Known<u32>,
    /// `tx-frames`: packets sent before an interrupt fires.
    #[serde(default)]
    pub tx_frames: Known<u32>,
}

/// A root qdisc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Qdisc {
    /// `noqueue`, `mq`, `fq_codel`, `tbf` ...
    pub kind: String,
    /// Its handle, `8001:0` as 2147549184; 0 for none.
    pub handle: u32,
    /// The rate of a shaper; null for a qdisc that does not shape, and with a gap for a shaper whose rate was not read.
    pub rate_bit_per_s: Option<BitRate>,
    /// The kernel's parameters (`TCA_OPTIONS`) in hexadecimal: written back by a restore.
    pub options: String,
    /// Its kind and parameters in the syntax of tc(8); absent if linerate cannot express it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
    /// The classes, qdiscs and filters below it that somebody made: created again by a restore, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<QdiscPart>,
}

/// A class, a qdisc or a filter below a root qdisc, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QdiscPart {
    /// What it is.
    pub is: QdiscPartIs,
    /// `htb`, `pfifo`, `u32` ...
    pub kind: String,
    /// Its handle; of a filter as its kind counts.
    pub handle: u32,
    /// The class or qdisc that it is attached to.
    pub parent: u32,
    /// The priority (upper 16 bits) and the EtherType of a filter (`tcm_info`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub info: u32,
    /// The chain of a filter.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain: u32,
    /// The kernel's parameters (`TCA_OPTIONS`) in hexadecimal, without counters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
}

/// What is below a qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QdiscPartIs {
    /// A class.
    Class,
    /// A qdisc.
    Qdisc,
    /// A filter, or a hash table of filters.
    Filter,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Irq {
    /// Its number.
    pub number: IrqNumber,
    /// The names of its actions.
    pub actions: Known<Vec<String>>,
    /// The configured affinity (`smp_affinity_list`).
    pub requested: Known<CpuSet>,
    /// The effective affinity.
    pub effective: Known<CpuSet>,
    /// Whether the kernel manages its affinity and users cannot change it (its affinity file has mode 0444).
    #[serde(default)]
    pub managed: Known<bool>,
    /// The NUMA node of its irqchip (`/proc/irq/N/node`).
    #[serde(default)]
    pub node: Known<NodeId>,
}

impl Host {
    /// The interface called `name`.
    pub fn nic(&self, name: &NicName) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == *name)
    }

    /// The interface that carries `address` (without prefix length).
    pub fn nic_with_address(&self, address: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| {
            nic.addresses
                .value()
                .is_some_and(|all| all.iter().any(|own| own.split('/').next() == Some(address)))
        })
    }

    /// The CPU with this number. Readers return CPUs in order; only other hosts need the linear search.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        let at = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok();
        at.and_then(|at| self.cpus.get(at))
            .or_else(|| self.cpus.iter().find(|cpu| cpu.id == id))
    }

    /// The interrupt with this number; the same lookup as for CPUs.
    pub fn irq(&self, number: IrqNumber) -> Option<&Irq> {
        let at = self.irqs.binary_search_by_key(&number, |irq| irq.number);
        at.ok()
            .and_then(|at| self.irqs.get(at))
            .or_else(|| self.irqs.iter().find(|irq| irq.number == number))
    }

    /// The CPUs that are online, if that is known for every one.
    pub fn online_cpus(&self) -> CpuSet {
        self.cpus
            .iter()
            .filter(|cpu| cpu.online.get() == Some(true))
            .map(|cpu| cpu.id)
            .collect()
    }

    /// A sysctl's text, or why it is not known.
    pub fn sysctl(&self, name: &str) -> Known<String> {
        self.sysctls
            .get(name)
            .cloned()
            .unwrap_or_else(|| Known::not_asked(format!("/proc/sys/{}", name.replace('.', "/"))))
    }
}

impl Nic {
    /// The lower interfaces; none if they could not be listed.
    pub fn lower(&self) -> &[NicName] {
        self.lower.value().map_or(&[], Vec::as_slice)
    }

    /// The upper interfaces; none if they could not be listed.
    pub fn upper(&self) -> &[NicName] {
        self.stack.upper.value().map_or(&[], Vec::as_slice)
    }
}

impl Qdisc {
    /// Whether its kind delays packets to enforce a rate.
    pub fn shapes(&self) -> bool {
        matches!(self.kind.as_str(), "tbf" | "htb" | "hfsc" | "cbq" | "cake")
            || self.rate_bit_per_s.is_some()
    }

    /// The kinds of the filters below it, each once, in alphabetical order: all are of other programs, as linerate makes none.
    pub fn filter_kinds(&self) -> Vec<&str> {
        let filters = self.below.iter();
        let filters = filters.filter(|part| part.is == QdiscPartIs::Filter);
        let mut kinds: Vec<&str> = filters.map(|part| part.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Why a shaper's rate is not known: it is in its classes or in options that are not read.
    pub fn rate_gap(&self, nic: &NicName) -> Gap {
        Gap::new(
            Cause::NotAsked,
            format!("tc class show dev {}", shell::quoted(nic.as_str())),
            format!(
                "the rate of {} is set in its classes, which are not read",
                self.kind
            ),
        )
    }
}
