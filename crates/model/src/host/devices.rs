//! RDMA and block devices (Documentation/ABI/stable/sysfs-class-infiniband, sysfs-block).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pci::{NodeSource, PcieLink};
use crate::ids::{CpuSet, NicName, NodeId, PciAddress};
use crate::known::Known;
use crate::units::{BitRate, Bytes};

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RdmaDevice {
    /// Its name, `mlx5_0`.
    pub name: String,
    /// Its ports.
    pub ports: Vec<RdmaPort>,
    /// The NUMA node of its function.
    pub numa_node: Known<NodeId>,
    /// The source of that node.
    #[serde(default)]
    pub numa_node_source: Known<NodeSource>,
    /// Its PCI function.
    pub pci_address: Known<PciAddress>,
    /// Its PCIe link.
    #[serde(default)]
    pub pcie: Known<PcieLink>,
    /// Its firmware.
    #[serde(default)]
    pub firmware: Known<String>,
    /// The board ID.
    #[serde(default)]
    pub board: Known<String>,
    /// `CA`, `switch`, `RNIC` ...
    #[serde(default)]
    pub node_type: Known<String>,
    /// Its limits by the names of `struct ib_device_attr` (`max_qp`, `max_mr_size` ...).
    #[serde(default)]
    pub limits: Known<BTreeMap<String, u64>>,
    /// How network namespaces share RDMA devices: `shared` or `exclusive`.
    #[serde(default)]
    pub netns_mode: Known<String>,
}

impl RdmaDevice {
    /// Whether it uses iWARP (RDMA over TCP): then it has neither a path MTU nor service levels.
    pub fn is_iwarp(&self) -> bool {
        (self.node_type.value()).is_some_and(|kind| kind.contains("RNIC"))
    }
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RdmaPort {
    /// Its number, from 1.
    pub port: u32,
    /// `ACTIVE`, `DOWN` ...
    pub state: Known<String>,
    /// `LinkUp`, `Polling`, `Disabled` ...
    #[serde(default)]
    pub physical_state: Known<String>,
    /// Its rate as the kernel reports it (signaling rate for InfiniBand).
    pub rate_bit_per_s: Known<BitRate>,
    /// Its width in lanes.
    #[serde(default)]
    pub width: Known<u32>,
    /// The speed's name, `QDR`, `EDR` ...
    #[serde(default)]
    pub speed: Known<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Known<String>,
    /// The network interface of the same port.
    pub netdev: Known<NicName>,
    /// The MTU in use, bytes.
    #[serde(default)]
    pub mtu_active: Known<Bytes>,
    /// The largest MTU, bytes.
    #[serde(default)]
    pub mtu_max: Known<Bytes>,
    /// Its limits by the names of `struct ib_port_attr` (`max_msg_sz`, `gid_tbl_len` ...).
    #[serde(default)]
    pub limits: Known<BTreeMap<String, u64>>,
    /// Its GIDs that are set.
    #[serde(default)]
    pub gids: Known<Vec<Gid>>,
    /// The GID type that the connection manager uses by default.
    #[serde(default)]
    pub default_gid_type: Known<String>,
    /// The subnet manager's LID; 0 is none. InfiniBand only.
    #[serde(default)]
    pub subnet_manager_lid: Known<u32>,
}

/// A global identifier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gid {
    /// Its index.
    pub index: u32,
    /// The identifier.
    pub gid: String,
    /// `IB/RoCE v1`, `RoCE v2`.
    pub kind: Known<String>,
    /// The network interface it belongs to.
    pub netdev: Known<NicName>,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockDevice {
    /// Its name, `nvme0n1`.
    pub name: String,
    /// The NUMA node of its device.
    pub numa_node: Known<NodeId>,
    /// The active I/O scheduler.
    pub scheduler: Known<String>,
    /// The available I/O schedulers.
    #[serde(default)]
    pub schedulers: Known<Vec<String>>,
    /// How many hardware queues it has.
    pub hardware_queues: Known<u32>,
    /// The CPUs of each hardware queue.
    #[serde(default)]
    pub queue_cpus: Known<Vec<CpuSet>>,
    /// `rq_affinity`: completions run 0 on any CPU, 1 in the group, 2 on the submitting CPU.
    #[serde(default)]
    pub rq_affinity: Known<u32>,
    /// `nomerges`: 0 all merges, 1 simple merges, 2 none.
    #[serde(default)]
    pub nomerges: Known<u32>,
    /// `nr_requests`: the maximum number of queued requests.
    #[serde(default)]
    pub nr_requests: Known<u32>,
    /// Whether it is a rotating disk.
    #[serde(default)]
    pub rotational: Known<bool>,
    /// Its size.
    #[serde(default)]
    pub size_bytes: Known<Bytes>,
    /// `nvme`, `scsi`, `virtio`, `loop`, `dm` ...
    #[serde(default)]
    pub transport: Known<String>,
    /// NVMe over fabrics: `tcp`, `rdma`, `pcie`, `fc`.
    #[serde(default)]
    pub nvme_transport: Known<String>,
    /// The I/O policy of a multipath subsystem: `numa`, `round-robin`, `queue-depth`.
    #[serde(default)]
    pub io_policy: Known<String>,
    /// Its live paths and the node of each.
    #[serde(default)]
    pub paths: Known<Vec<NvmePath>>,
}

/// One path of an NVMe subsystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NvmePath {
    /// Its controller, `nvme0`.
    pub controller: String,
    /// `live`, `connecting` ...
    pub state: Known<String>,
    /// `tcp`, `rdma`, `pcie` ...
    pub transport: Known<String>,
    /// Its node.
    pub numa_node: Known<NodeId>,
    /// Its I/O queues: `queue_count` without the admin queue.
    #[serde(default)]
    pub io_queues: Known<u32>,
}
