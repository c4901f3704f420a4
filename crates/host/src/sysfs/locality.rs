//! The NUMA node of a PCI function, and its source. `numa_node` is from the firmware's tables (ACPI `_PXM`) and -1 if
//! they have no entry; then `local_cpulist`, which the kernel derives from the bus, and the bridges above may show it
//! (Documentation/ABI/testing/sysfs-bus-pci).

use linerate_model::host::{Node, NodeReport, NodeSource};
use linerate_model::ids::{CpuSet, NodeId, PciAddress};
use linerate_model::known::{Cause, Gap, Known};

use super::pci::{functions_to_root, read_local_cpus};
use crate::attributes::understood;
use crate::root::{HostRoot, absolute};

/// A function's node.
#[derive(Debug, Clone)]
pub(crate) struct Locality {
    /// The best known node.
    pub(crate) node: Known<NodeId>,
    /// How it was found.
    pub(crate) source: Known<NodeSource>,
    /// The node according to each source.
    pub(crate) report: Known<NodeReport>,
}

/// A function's own locality files.
#[derive(Debug, Clone)]
pub(crate) struct LocalityFiles {
    pub(crate) firmware: Known<NodeId>,
    pub(crate) local_cpus: Known<CpuSet>,
}

impl Locality {
    /// The locality of something that is not on a PCI function.
    pub(crate) fn unknown(gap: &Gap) -> Self {
        Self {
            node: Known::Unknown(gap.clone()),
            source: Known::Unknown(gap.clone()),
            report: Known::Unknown(gap.clone()),
        }
    }
}

/// The locality files of the function in `folder`.
pub(crate) fn read_said(root: &HostRoot, folder: &str) -> LocalityFiles {
    let path = format!("{folder}/numa_node");
    LocalityFiles {
        firmware: root.read(&path).and_then(|text| match text.trim() {
            "-1" => Known::unknown(
                Cause::NotSaid,
                absolute(&path),
                "-1: not set by the firmware",
            ),
            text => understood(&path, text, str::parse::<u32>).map(NodeId),
        }),
        local_cpus: read_local_cpus(root, folder),
    }
}

/// The locality of the function in `folder`; `said` reads it and each bridge above.
pub(crate) fn locate(
    folder: &str,
    nodes: &[Node],
    mut said: impl FnMut(&str) -> LocalityFiles,
) -> Locality {
    let own = said(folder);
    let bridges = functions_to_root(folder);
    let bridge = bridges.into_iter().skip(1).find_map(|(folder, address)| {
        let said = said(&folder);
        let node = said.firmware.get().or_else(|| said.node_of_cpus(nodes))?;
        Some((address, node))
    });
    let (node, source) = if let Some((node, source)) = best(&own, bridge, nodes) {
        (Known::Value(node), Known::Value(source))
    } else {
        let gap = silence(folder, &own, nodes);
        (Known::Unknown(gap.clone()), Known::Unknown(gap))
    };
    let report = NodeReport {
        local_cpus: own.local_cpus.clone().map(|cpus| touched(&cpus, nodes)),
        bridge: bridge.map_or_else(
            || {
                Known::unknown(
                    Cause::NotSaid,
                    absolute(folder),
                    "no upstream bridge shows it",
                )
            },
            Known::Value,
        ),
        firmware: own.firmware,
    };
    Locality {
        node,
        source,
        report: Known::Value(report),
    }
}

fn best(
    own: &LocalityFiles,
    bridge: Option<(PciAddress, NodeId)>,
    nodes: &[Node],
) -> Option<(NodeId, NodeSource)> {
    match &own.firmware {
        Known::Value(node) => return Some((*node, NodeSource::Firmware)),
        // An invalid text is not the same as -1.
        Known::Unknown(gap) if !matches!(gap.cause, Cause::NotSaid | Cause::Absent) => return None,
        Known::Unknown(_) => {}
    }
    match nodes {
        // A kernel without NUMA: every node is local.
        [] => return None,
        [only] => return Some((only.id, NodeSource::OnlyNode)),
        _ => {}
    }
    if let (Some(node), Known::Value(cpus)) = (own.node_of_cpus(nodes), &own.local_cpus) {
        return Some((node, NodeSource::LocalCpus(cpus.clone())));
    }
    let (address, node) = bridge?;
    Some((node, NodeSource::UpstreamBridge(address)))
}

impl LocalityFiles {
    /// The node of the local CPUs, if they belong to one node.
    fn node_of_cpus(&self, nodes: &[Node]) -> Option<NodeId> {
        match touched(self.local_cpus.value()?, nodes).as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

fn touched(cpus: &CpuSet, nodes: &[Node]) -> Vec<NodeId> {
    nodes
        .iter()
        .filter(|node| node.cpus.value().is_some_and(|own| !own.is_disjoint(cpus)))
        .map(|node| node.id)
        .collect()
}

/// Why the node is unknown: the result of each source.
fn silence(folder: &str, own: &LocalityFiles, nodes: &[Node]) -> Gap {
    let gap = match &own.firmware {
        Known::Unknown(gap) if gap.cause == Cause::NotSaid => gap,
        Known::Unknown(gap) => return gap.clone(),
        Known::Value(_) => return Gap::new(Cause::NotSaid, absolute(folder), "not said"),
    };
    if nodes.is_empty() {
        let reason = "-1, and the kernel shows no NUMA nodes";
        return Gap::new(Cause::NotSaid, gap.path.as_str(), reason);
    }
    let hint = match &own.local_cpus {
        Known::Unknown(_) => "local_cpulist does not show it either".to_owned(),
        Known::Value(cpus) => {
            let touched = touched(cpus, nodes);
            let names: Vec<String> = touched.iter().map(ToString::to_string).collect();
            match names.as_slice() {
                [] => "local_cpulist has no CPU of any node".to_owned(),
                names => format!("local_cpulist {cpus} spans nodes {}", names.join(", ")),
            }
        }
    };
    let reason = format!(
        "-1, the firmware sets none of the {} nodes; {hint}; no upstream bridge shows it",
        nodes.len()
    );
    Gap::new(Cause::NotSaid, gap.path.as_str(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";

    fn nodes() -> Vec<Node> {
        let node = |id, cpus: &str| Node {
            id: NodeId(id),
            cpus: Known::Value(cpus.parse().expect("CPUs")),
            memory_bytes: Known::default(),
            memory_free_bytes: Known::default(),
            hugepages: Known::default(),
            distances: Known::default(),
        };
        vec![node(0, "0-3"), node(1, "4-7")]
    }

    /// The values of the device and of the bridge above it: a node, or `None` for -1, and CPUs.
    fn located(
        device: (Option<u32>, &str),
        bridge: (Option<u32>, &str),
        nodes: &[Node],
    ) -> Locality {
        locate(DEVICE, nodes, |folder| {
            let (node, cpus) = if folder == DEVICE { device } else { bridge };
            LocalityFiles {
                firmware: node.map_or_else(
                    || Known::unknown(Cause::NotSaid, "/numa_node", "-1"),
                    |node| Known::Value(NodeId(node)),
                ),
                local_cpus: Known::Value(cpus.parse().expect("CPUs")),
            }
        })
    }

    #[test]
    fn the_firmware_is_believed_first_and_what_contradicts_it_is_reported() {
        let found = located((Some(1), "0-3"), (Some(0), "0-3"), &nodes());
        assert_eq!(found.node, Known::Value(NodeId(1)));
        assert_eq!(found.source, Known::Value(NodeSource::Firmware));
        let report = found.report.value().expect("a report");
        assert_eq!(report.local_cpus, Known::Value(vec![NodeId(0)]));
        assert_eq!(
            report.bridge.value().map(|(_, node)| *node),
            Some(NodeId(0))
        );
    }

    #[test]
    fn where_the_firmware_is_silent_close_cpus_of_one_node_tell() {
        let found = located((None, "4-7"), (Some(0), "0-3"), &nodes());
        assert_eq!(found.node, Known::Value(NodeId(1)));
        let cpus = "4-7".parse().expect("CPUs");
        assert_eq!(found.source, Known::Value(NodeSource::LocalCpus(cpus)));
    }

    #[test]
    fn where_these_are_silent_too_the_nearest_bridge_tells() {
        for bridge in [(Some(1), "0-7"), (None, "4-7")] {
            let found = located((None, "0-7"), bridge, &nodes());
            assert_eq!(found.node, Known::Value(NodeId(1)));
            let address = "0000:80:01.0".parse().expect("an address");
            assert_eq!(
                found.source,
                Known::Value(NodeSource::UpstreamBridge(address))
            );
        }
    }

    #[test]
    fn where_all_are_silent_the_gap_says_what_each_says_and_one_node_needs_no_word() {
        let found = located((None, "0-7"), (None, "0-7"), &nodes());
        let gap = found.node.gap().expect("nobody says");
        assert_eq!(gap.cause, Cause::NotSaid);
        assert!(
            gap.reason
                .contains("0-7 spans nodes 0, 1; no upstream bridge"),
            "{gap}"
        );
        let found = located((None, "0-7"), (None, "0-7"), &nodes()[..1]);
        assert_eq!(found.source, Known::Value(NodeSource::OnlyNode));
        assert!(
            located((None, "0-7"), (None, "0-7"), &[])
                .node
                .gap()
                .is_some()
        );
    }
}
