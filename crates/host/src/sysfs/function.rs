//! A PCI function's own settings (Documentation/ABI/testing/sysfs-bus-pci, sysfs-kernel-iommu_groups;
//! Documentation/PCI/sysfs-pci.rst).

use linerate_model::host::PciFunction;
use linerate_model::ids::PciAddress;
use linerate_model::known::Known;

use super::pci_ids;
use crate::attributes::{last_name, number, understood};
use crate::root::{HostRoot, absolute};

/// The link power states that a user can toggle.
const LINK_STATES: [&str; 7] = [
    "l0s_aspm",
    "l1_aspm",
    "l1_1_aspm",
    "l1_2_aspm",
    "l1_1_pcipm",
    "l1_2_pcipm",
    "clkpm",
];

/// Reads the settings of the function in `folder`.
pub(crate) fn read_function(root: &HostRoot, folder: &str) -> PciFunction {
    let text = |name: &str| root.read(&format!("{folder}/{name}"));
    PciFunction {
        vendor: text("vendor"),
        device: text("device"),
        subsystem_vendor: text("subsystem_vendor"),
        subsystem_device: text("subsystem_device"),
        // Filled for all interfaces together: see `sysfs::pci_ids`.
        names: Known::not_asked(absolute(pci_ids::PLACES[0])),
        class: text("class"),
        aspm: read_link_states(root, &format!("{folder}/link")),
        iommu_type: text("iommu_group/type"),
        physical_function: read_physical(root, &format!("{folder}/physfn")),
        virtual_functions: number(root, &format!("{folder}/sriov_numvfs")),
        virtual_functions_max: number(root, &format!("{folder}/sriov_totalvfs")),
        power_state: text("power_state"),
    }
}

/// The enabled link power states. The directory exists if the kernel controls ASPM (since 5.5), with a file for each
/// state that both ends of the link support.
fn read_link_states(root: &HostRoot, folder: &str) -> Known<Vec<String>> {
    let offered = match root.list(folder) {
        Known::Value(offered) => offered,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let mut enabled = Vec::new();
    for state in LINK_STATES {
        if !offered.iter().any(|name| name == state) {
            continue;
        }
        match number::<u32>(root, &format!("{folder}/{state}")) {
            Known::Value(0) => {}
            Known::Value(_) => enabled.push(state.to_owned()),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    Known::Value(enabled)
}

fn read_physical(root: &HostRoot, path: &str) -> Known<PciAddress> {
    root.link(path)
        .and_then(|target| understood(path, last_name(&target), str::parse::<PciAddress>))
}
