//! The RDMA and block devices of the map.

use std::collections::BTreeMap;

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::host::{BlockDevice, RdmaDevice, RdmaPort};
use linerate_model::known::Known;

use super::text::{Branch, is_unreported, show, show_with};

pub(super) fn rdma_branch(device: &RdmaDevice) -> Branch {
    let firmware = match device.firmware.value() {
        Some(firmware) => format!(", firmware {}", visible(firmware)),
        None => String::new(),
    };
    // Soft-RoCE and siw devices have no PCI function.
    let place = if is_absent(&device.pci_address) {
        "software device (no PCI function)".to_owned()
    } else {
        format!(
            "{}, PCIe {}",
            node_text(&device.numa_node),
            show(&device.pci_address)
        )
    };
    Branch {
        text: format!("RDMA {}: {place}{firmware}", visible(&device.name)),
        below: device.ports.iter().map(port_branch).collect(),
    }
}

fn port_branch(port: &RdmaPort) -> Branch {
    let link = match (port.width.get(), port.speed.value()) {
        (Some(width), Some(speed)) => format!(" ({width}X {})", visible(speed)),
        _ => String::new(),
    };
    let mtu = match port.mtu_active.get() {
        Some(mtu) => format!(", MTU {} (max {})", mtu.as_u64(), show(&port.mtu_max)),
        None => String::new(),
    };
    let gids = match port.gids.value() {
        Some(gids) if !gids.is_empty() => {
            let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
            for gid in gids {
                *kinds.entry(gid_word(&gid.kind)).or_default() += 1;
            }
            let words: Vec<String> = kinds.iter().map(|(kind, n)| count(*n, kind)).collect();
            format!(", {}", words.join(" and "))
        }
        _ => String::new(),
    };
    let physical = port.physical_state.value();
    let physical = physical.map_or_else(String::new, |state| format!(" ({})", visible(state)));
    let netdev = match port.netdev.value() {
        Some(netdev) => format!("interface {}", visible(netdev.as_str())),
        None if is_absent(&port.netdev) => "no interface".to_owned(),
        None => format!("interface {}", show(&port.netdev)),
    };
    Branch::leaf(format!(
        "port {}: {}{physical}, {}{link}, {}, {netdev}{mtu}{gids}",
        port.port,
        show(&port.state),
        show(&port.rate_bit_per_s),
        show(&port.link_layer),
    ))
}

/// Each disk, and of loop, RAM and the like only how many there are.
pub(super) fn block_branches(devices: &[BlockDevice]) -> Vec<Branch> {
    const MADE_UP: [&str; 5] = ["loop", "ram", "zram", "nbd", "fd"];
    let made_up = |device: &BlockDevice| {
        let stem = device.name.trim_end_matches(|c: char| c.is_ascii_digit());
        MADE_UP.into_iter().find(|name| *name == stem)
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for device in devices {
        match made_up(device) {
            Some(name) => *counts.entry(name).or_default() += 1,
            None => all.push(block_branch(device)),
        }
    }
    if !counts.is_empty() {
        let words: Vec<String> = counts
            .into_iter()
            .map(|(name, n)| count(n, &format!("{name} device")))
            .collect();
        all.push(Branch::leaf(format!("and {}", words.join(", "))));
    }
    all
}

fn block_branch(device: &BlockDevice) -> Branch {
    let mut text = format!("block {}", visible(&device.name));
    if let Some(transport) = device.transport.value() {
        text += &format!(" ({})", visible(transport));
    }
    if let Some(size) = device.size_bytes.value() {
        text += &format!(", {size}");
    }
    let mut parts = Vec::new();
    // A device of the mapper has no place; a kernel before blk-mq no hardware queues.
    if !is_absent(&device.numa_node) {
        parts.push(node_text(&device.numa_node));
    }
    if !is_absent(&device.scheduler) {
        parts.push(format!("scheduler {}", show(&device.scheduler)));
    }
    if !is_absent(&device.hardware_queues) {
        parts.push(show_with(&device.hardware_queues, |n| {
            count(usize::try_from(*n).unwrap_or(usize::MAX), "hardware queue")
        }));
    }
    if !parts.is_empty() {
        text += &format!(": {}", parts.join(", "));
    }
    Branch::leaf(text)
}

/// `RoCE v2 GID`; old kernels name no kind.
fn gid_word(kind: &Known<String>) -> String {
    if is_absent(kind) {
        "GID".to_owned()
    } else {
        format!("{} GID", show(kind))
    }
}

/// The node of a device.
fn node_text<T: ToString>(node: &Known<T>) -> String {
    if is_unreported(node) {
        "NUMA node unknown".to_owned()
    } else {
        format!("NUMA node {}", show(node))
    }
}

/// Whether the kernel has no such thing here, which a picture need not mention.
fn is_absent<T>(fact: &Known<T>) -> bool {
    fact.gap().is_some_and(|gap| !gap.leaves_a_question())
}
