//! PCI Express: links up to the root and the function's own settings
//! (Documentation/ABI/testing/sysfs-bus-pci; drivers/pci/pci.c).

use serde::{Deserialize, Serialize};

use crate::ids::{CpuSet, NodeId, PciAddress};
use crate::known::Known;
use crate::units::{BitRate, Bytes, TransferRate};

/// How a device's NUMA node was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NodeSource {
    /// Set by the firmware (`numa_node`).
    Firmware,
    /// The machine has only one node.
    OnlyNode,
    /// The firmware reports -1; the CPUs in `local_cpulist` all belong to one node.
    LocalCpus(CpuSet),
    /// The firmware reports -1; the bridge above names the node.
    UpstreamBridge(PciAddress),
}

/// The node according to each source, if they disagree or the firmware does not set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeReport {
    /// The value of `numa_node`; null for -1.
    pub firmware: Known<NodeId>,
    /// The nodes of the CPUs in `local_cpulist`.
    pub local_cpus: Known<Vec<NodeId>>,
    /// The node of the nearest bridge above that has one.
    pub bridge: Known<(PciAddress, NodeId)>,
}

/// A PCIe link, with the kernel's bandwidth figures (`PCIE_SPEED2MBS_ENC`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieLink {
    /// The current transfer rate of the device's own link.
    pub transfer_mt_per_s: Known<TransferRate>,
    /// The current width of the device's own link in lanes.
    pub width: Known<u32>,
    /// The bandwidth of the narrowest link between the device and the root port.
    pub available_bit_per_s: Known<BitRate>,
    /// The function with the narrowest link.
    pub limited_by: Known<PciAddress>,
    /// The maximum of the device itself.
    pub capable_bit_per_s: Known<BitRate>,
    /// Every link from the device to the root.
    pub links: Vec<PcieHop>,
}

/// One link between a device and the root port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieHop {
    /// The function at the lower end of the link.
    pub address: PciAddress,
    /// Its current transfer rate.
    pub transfer_mt_per_s: Known<TransferRate>,
    /// Its current width in lanes.
    pub width: Known<u32>,
    /// Its maximum transfer rate.
    pub transfer_max_mt_per_s: Known<TransferRate>,
    /// Its maximum width in lanes.
    pub width_max: Known<u32>,
    /// Its device control from PCI config space; only root can read it, others see the first 64 bytes.
    #[serde(default)]
    pub control: Known<PcieControl>,
    /// The sysfs folder of these values.
    pub path: String,
}

/// The PCIe capability's device control (PCI Express Base Specification, 7.5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieControl {
    /// Maximum payload size of its packets.
    pub max_payload_bytes: Bytes,
    /// Maximum payload size that it supports.
    pub max_payload_supported_bytes: Bytes,
    /// Maximum read request size.
    pub max_read_request_bytes: Bytes,
    /// Whether it may set the relaxed-ordering bit.
    pub relaxed_ordering: bool,
    /// Whether its access control services redirect peer-to-peer requests or completions to the root (bridges only;
    /// null if it does not have that capability).
    pub acs_redirect: Option<bool>,
}

/// Names of a PCI function from the database of IDs (`pci.ids`; <https://pci-ids.ucw.cz>).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PciNames {
    /// The vendor of the device.
    pub vendor: Known<String>,
    /// The device.
    pub device: Known<String>,
    /// The board.
    pub subsystem: Known<String>,
}

/// A PCI function's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PciFunction {
    /// `0x15b3` and so on.
    pub vendor: Known<String>,
    /// The device ID.
    pub device: Known<String>,
    /// The vendor ID of the board (Documentation/PCI/sysfs-pci.rst).
    pub subsystem_vendor: Known<String>,
    /// The device ID of the board.
    pub subsystem_device: Known<String>,
    /// The names of these IDs.
    pub names: Known<PciNames>,
    /// The class code, `0x020000` for Ethernet.
    pub class: Known<String>,
    /// The power-saving link states that are enabled (`l0s_aspm`, `l1_aspm`, `l1_1_aspm`, `clkpm` ...); null if the
    /// kernel controls none.
    pub aspm: Known<Vec<String>>,
    /// `DMA`, `DMA-FQ`, `identity`, `blocked` ...; null without an IOMMU.
    pub iommu_type: Known<String>,
    /// The physical function of a VF.
    pub physical_function: Known<PciAddress>,
    /// The number of VFs.
    pub virtual_functions: Known<u32>,
    /// The maximum number of VFs.
    pub virtual_functions_max: Known<u32>,
    /// `D0`, `D3hot` ...
    pub power_state: Known<String>,
}
