//! PCI Express: links up to the root and the function's own settings
//! (Documentation/ABI/testing/sysfs-bus-pci; drivers/pci/pci.c).

use serde::{Deserialize, Serialize};

use crate::ids::{CpuSet, NodeId, PciAddress};
use crate::known::Known;
use crate::units::{BitRate, Bytes, TransferRate};

/// How a device's NUMA node was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeSource {
    /// The firmware says so (`numa_node`).
    Firmware,
    /// The machine has one node only.
    OnlyNode,
    /// The firmware says -1; the CPUs that it names as close (`local_cpulist`) are those of one node.
    LocalCpus(CpuSet),
    /// The firmware says -1; the bridge above says which.
    UpstreamBridge(PciAddress),
}

/// What the places that know a device's node say, when they do not agree or the firmware is silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// What `numa_node` says; unknown for -1.
    pub firmware: Known<NodeId>,
    /// The nodes whose CPUs `local_cpulist` names.
    pub local_cpus: Known<Vec<NodeId>>,
    /// What the nearest bridge above with a node says.
    pub bridge: Known<(PciAddress, NodeId)>,
}

/// A PCIe link, with the kernel's own figures for what passes (`PCIE_SPEED2MBS_ENC`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// The current transfer rate of the device's own link.
    pub transfer_mt_per_s: Known<TransferRate>,
    /// The current width of the device's own link in lanes.
    pub width: Known<u32>,
    /// What the narrowest link between the device and the root lets pass.
    pub available_bit_per_s: Known<BitRate>,
    /// The function whose link is the narrowest.
    pub limited_by: Known<PciAddress>,
    /// What the device itself could do.
    pub capable_bit_per_s: Known<BitRate>,
    /// Every link from the device to the root.
    pub links: Vec<PcieHop>,
}

/// One link on the way from a device to the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieHop {
    /// The function at the lower end of the link.
    pub address: PciAddress,
    /// Its current transfer rate.
    pub transfer_mt_per_s: Known<TransferRate>,
    /// Its current width in lanes.
    pub width: Known<u32>,
    /// The transfer rate it is capable of.
    pub transfer_max_mt_per_s: Known<TransferRate>,
    /// The width it is capable of, in lanes.
    pub width_max: Known<u32>,
    /// What its configuration space says; root may read it, others see its first 64 bytes.
    #[serde(default)]
    pub control: Known<PcieControl>,
    /// The sysfs folder these came from.
    pub path: String,
}

/// The PCIe capability's device control (PCI Express Base Specification, 7.5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieControl {
    /// Largest payload of a packet it sends.
    pub max_payload_bytes: Bytes,
    /// Largest payload it could take.
    pub max_payload_supported_bytes: Bytes,
    /// Largest read it asks for.
    pub max_read_request_bytes: Bytes,
    /// Whether it may set the relaxed-ordering bit.
    pub relaxed_ordering: bool,
    /// Whether its access control services redirect peer-to-peer requests or completions to the root
    /// (bridges only; none where it has no such capability).
    pub acs_redirect: Option<bool>,
}

/// A PCI function's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PciFunction {
    /// `0x15b3` and so on.
    pub vendor: Known<String>,
    /// The device id.
    pub device: Known<String>,
    /// The class code, `0x020000` for Ethernet.
    pub class: Known<String>,
    /// The power-saving link states that are enabled (`l0s_aspm`, `l1_aspm`, `l1_1_aspm`, `clkpm` ...);
    /// unknown where the kernel controls none.
    pub aspm: Known<Vec<String>>,
    /// `DMA`, `DMA-FQ`, `identity`, `blocked` ...; unknown without an IOMMU.
    pub iommu_type: Known<String>,
    /// The physical function of a virtual one.
    pub physical_function: Known<PciAddress>,
    /// How many virtual functions it has.
    pub virtual_functions: Known<u32>,
    /// How many it could have.
    pub virtual_functions_max: Known<u32>,
    /// `D0`, `D3hot` ...
    pub power_state: Known<String>,
}
