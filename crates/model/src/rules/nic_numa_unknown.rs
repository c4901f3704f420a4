//! `nic-numa-unknown`: the firmware does not report the NIC's NUMA node. Facts from
//! Documentation/ABI/testing/sysfs-bus-pci (`numa_node`).

use super::spreading::device_file;
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NodeReport, NodeSource};
use crate::ids::NodeId;
use crate::known::{Cause, Known};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "nic-numa-unknown",
    number: 1,
    status: Status::Implemented,
    title: "the firmware does not report the NIC's NUMA node",
    severity: Severity::Note,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "numa_node is -1, or the upstream bridge has another node, on a machine with more than one node",
    effect: "none by itself: locality rules and tools have to guess, usually node 0",
    source: "Documentation/ABI/testing/sysfs-bus-pci (numa_node); hwloc NEWS, a BIOS that reports the \
             wrong node",
    fix: Fix::Advised(&[Class::R1]),
    persist: "a firmware update; a systemd unit that writes numa_node at boot (taints the kernel)",
    contested: None,
    page: include_str!("../../../../docs/rules/nic-numa-unknown.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    // With one node there is nothing to infer.
    if context.host.nodes.len() < 2 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let said = |summary: String, evidence: Vec<Evidence>| {
        let evidence = evidence.into_iter().chain([nodes(context)]).collect();
        Some(found(
            rule,
            context,
            Draft {
                severity: Severity::Note,
                subject: subject(nic),
                summary,
                evidence,
                remedies: Vec::new(),
            },
        ))
    };
    let node = match &nic.numa_node {
        Known::Value(node) => *node,
        // Not on a bus with NUMA nodes (USB, virtio-mmio).
        Known::Unknown(gap) if !gap.leaves_a_question() => return None,
        Known::Unknown(gap) if gap.cause == Cause::NotSaid => {
            let summary = format!(
                "the firmware does not report which of {} NUMA nodes {} is on: measure from each node",
                context.host.nodes.len(),
                nic.name
            );
            return said(summary, vec![minus_one(nic)]);
        }
        Known::Unknown(gap) => {
            return Some(undetermined(rule, context, subject(nic), vec![gap.clone()]));
        }
    };
    if let Some(source) = inferred(nic) {
        let summary = format!(
            "the firmware does not report the NUMA node of {}: linerate infers node {node}, other tools assume \
             0",
            nic.name
        );
        return said(summary, vec![minus_one(nic), source]);
    }
    let (other, evidence) = contradiction(nic, nic.numa_node_report.value()?)?;
    let summary = format!(
        "the firmware reports {} on node {node} and its upstream bridge on node {other}: measure from both",
        nic.name
    );
    said(summary, evidence)
}

fn nodes(context: &Context<'_>) -> Evidence {
    Evidence::new(
        "NUMA nodes",
        context.host.nodes.len(),
        "/sys/devices/system/node/online",
    )
}

fn minus_one(nic: &Nic) -> Evidence {
    Evidence::new("NUMA node of the NIC", "-1", device_file(nic, "numa_node"))
}

/// How the node was inferred, if the firmware did not set it.
fn inferred(nic: &Nic) -> Option<Evidence> {
    match nic.numa_node_source.value()? {
        NodeSource::Firmware | NodeSource::OnlyNode => None,
        NodeSource::LocalCpus(cpus) => Some(Evidence::new(
            "CPUs local to the NIC",
            cpus,
            device_file(nic, "local_cpulist"),
        )),
        NodeSource::UpstreamBridge(bridge) => Some(Evidence::new(
            "NUMA node of the upstream bridge",
            nic.numa_node.get()?,
            format!("/sys/bus/pci/devices/{bridge}/numa_node"),
        )),
    }
}

/// The node of the bridge above, if it differs from the firmware's.
fn contradiction(nic: &Nic, report: &NodeReport) -> Option<(NodeId, Vec<Evidence>)> {
    let firmware = report.firmware.get()?;
    let (bridge, other) = report.bridge.get()?;
    (other != firmware).then(|| {
        let evidence = vec![
            Evidence::new(
                "NUMA node of the NIC",
                firmware,
                device_file(nic, "numa_node"),
            ),
            Evidence::new(
                "NUMA node of the upstream bridge",
                other,
                format!("/sys/bus/pci/devices/{bridge}/numa_node"),
            ),
        ];
        (other, evidence)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("the firmware says -1", || {
                World::of(server(2, |nic| {
                    nic.numa_node = Known::unknown(Cause::NotSaid, "numa_node", "-1");
                }))
            }),
            ("-1, and the close CPUs tell the node", || {
                World::of(server(2, |nic| {
                    let cpus = "0-3".parse().expect("a list");
                    nic.numa_node_source = Known::Value(NodeSource::LocalCpus(cpus));
                }))
            }),
        ],
        silent: &[
            ("the firmware says it", || World::of(server(2, |_| ()))),
            ("-1 on the only node", || {
                World::of(server(1, |nic| {
                    nic.numa_node_source = Known::Value(NodeSource::OnlyNode);
                }))
            }),
            ("a device on no such bus", || {
                World::of(server(2, |nic| {
                    nic.numa_node = Known::unknown(Cause::Absent, "numa_node", "virtio-mmio");
                }))
            }),
        ],
        undetermined: &[("it may not be read", || {
            World::of(server(2, |nic| {
                nic.numa_node = Known::unknown(Cause::Denied, "numa_node", "denied");
            }))
        })],
    };

    fn server(nodes: u32, change: fn(&mut Nic)) -> Host {
        build::host()
            .nodes(nodes, 4)
            .nic("eth2", |nic| nic.with(change))
            .build()
    }

    #[test]
    fn a_bridge_on_another_node_is_named() {
        let host = server(2, |nic| {
            if let Known::Value(report) = &mut nic.numa_node_report {
                let bridge = "0000:16:00.0".parse().expect("an address");
                report.bridge = Known::Value((bridge, NodeId(1)));
            }
        });
        let said = finding(ID, &context(&host));
        assert!(said.summary.contains("on node 1"), "{}", said.summary);
    }

    #[test]
    fn a_pair_without_a_device_has_no_node() {
        let host = build::host()
            .nodes(2, 2)
            .nic("far0", build::NicBuilder::veth)
            .build();
        assert!(silent(ID, &context(&host)));
    }
}
