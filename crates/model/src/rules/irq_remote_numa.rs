//! `irq-remote-numa`: interrupts of the NIC are handled on a remote NUMA node. Sources:
//! Documentation/networking/scaling.rst and Documentation/core-api/irq/irq-affinity.rst; `effective_affinity_list` is
//! where an interrupt is delivered, `smp_affinity_list` only the configured affinity.

use super::spreading::{
    all_in_use, brief, cpu_gaps, device_file, irq_gaps, is_managed, kept_apart, local_cpus, spread,
    taken, used,
};
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NodeSource};
use crate::ids::CpuSet;
use crate::known::{Gap, Known};
use crate::setting::Class;
use crate::units::Ratio;

pub(super) const RULE: Rule = Rule {
    id: "irq-remote-numa",
    number: 2,
    status: Status::Implemented,
    title: "interrupts of the NIC are handled on a remote NUMA node",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "more than 5 % of the NIC's queue interrupts on CPUs that are not local to it",
    effect: "Ceph throughput +10-20 % with explicit affinity (chef-bcpc #2115); 1720 -> 2065 MB/s with the \
             memory thread on the local socket (Sci. Prog. 2018, 4120561)",
    source: "Documentation/networking/scaling.rst; Documentation/core-api/irq/irq-affinity.rst; \
             bloomberg/chef-bcpc#2115",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot and after every link reset or channel change; ban the IRQs in irqbalance",
    contested: None,
    page: include_str!("../../../../docs/rules/irq-remote-numa.md"),
    check,
};

const REMOTE_SHARE: Ratio = Ratio::new(0.05);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    // On one node every CPU is local.
    if context.host.nodes.len() == 1 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let queues = all_in_use(nic);
    let all = taken(&queues);
    let mut missing: Vec<Gap> = Vec::new();
    if all.is_empty() {
        // A device without interrupts of its own (USB) has none that could be remote.
        missing = irq_gaps(&queues);
        if missing.is_empty() {
            return None;
        }
    }
    let near = local_cpus(context.host, nic);
    // A device on a bus without NUMA nodes (USB, virtio-mmio) has no local CPUs.
    if near.gap().is_some_and(|gap| !gap.leaves_a_question()) {
        return None;
    }
    missing.extend(near.gap().cloned());
    let (local, path) = match near {
        Known::Value(near) if missing.is_empty() => near,
        _ => return Some(undetermined(rule, context, subject(nic), missing)),
    };
    // A memory-only node has no CPU to prefer.
    if local.is_empty() {
        return None;
    }
    let remote: Vec<_> = all
        .iter()
        .copied()
        .filter(|taken| taken.cpus.is_disjoint(&local))
        .collect();
    if share(remote.len(), all.len()) <= REMOTE_SHARE.as_f64() {
        let missing = cpu_gaps(&queues);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    let managed = remote
        .iter()
        .filter(|taken| is_managed(context.host, taken.irq))
        .count();
    let mut evidence = vec![Evidence::new("CPUs local to the NIC", &local, path)];
    evidence.extend(how_the_node_was_found(nic));
    evidence.extend(remote.iter().map(|taken| taken.evidence(context.host)));
    let homes = &without_apart(context, &local);
    Some(found(
        rule,
        context,
        Draft {
            // Managed interrupts are spread by the kernel over all CPUs, and cannot be moved.
            severity: if managed == remote.len() {
                Severity::Note
            } else {
                Severity::Warn
            },
            subject: subject(nic),
            summary: format!(
                "{} of {} queue interrupts of {} are handled on a remote NUMA node: {}",
                remote.len(),
                all.len(),
                nic.name,
                advice(managed, remote.len(), homes)
            ),
            evidence,
            remedies: spread(context, nic, &remote, homes, &used(&all)),
        },
    ))
}

/// The local CPUs, without isolated ones if others remain.
fn without_apart(context: &Context<'_>, local: &CpuSet) -> CpuSet {
    let homes = local.minus(&kept_apart(context.host));
    if homes.is_empty() {
        local.clone()
    } else {
        homes
    }
}

fn advice(managed: usize, remote: usize, homes: &CpuSet) -> String {
    match managed {
        0 => format!("move them to CPUs {}", brief(homes)),
        _ if managed == remote => {
            "they are managed by the kernel; use no more queues than the local node has CPUs"
                .to_owned()
        }
        _ => format!(
            "move them to CPUs {} ({managed} are managed by the kernel)",
            brief(homes)
        ),
    }
}

/// If the firmware does not set the node, the finding states how it was inferred.
fn how_the_node_was_found(nic: &Nic) -> Option<Evidence> {
    let node = nic.numa_node.get()?;
    let how = match nic.numa_node_source.value()? {
        NodeSource::LocalCpus(cpus) => {
            let path = device_file(nic, "local_cpulist");
            return Some(Evidence::new(
                format!("NUMA node {node} of the NIC, inferred from local_cpulist"),
                cpus,
                path,
            ));
        }
        NodeSource::UpstreamBridge(bridge) => bridge,
        NodeSource::Firmware | NodeSource::OnlyNode => return None,
    };
    Some(Evidence::new(
        format!("NUMA node of the NIC, inferred from its upstream bridge {how}"),
        node,
        format!("/sys/bus/pci/devices/{how}/numa_node"),
    ))
}

#[expect(clippy::cast_precision_loss, reason = "a NIC has few interrupts")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, missing, remedies, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("the first queues on the other node", || {
            World::of(server(&[0, 6, 1]))
        })],
        silent: &[("all on the card's node", || World::of(server(&[6, 7, 8])))],
        undetermined: &[("the firmware says -1", || {
            let mut host = server(&[0]);
            host.nics[0].numa_node = Known::unknown(Cause::NotSaid, "numa_node", "-1");
            World::of(host)
        })],
    };

    fn server(cpus: &[u32]) -> Host {
        build::host()
            .nodes(2, 6)
            .nic("eth2", |nic| nic.gbit(40).node(1).queues(cpus))
            .build()
    }

    #[test]
    fn remote_interrupts_are_spread_over_free_local_cpus_and_moved_once() {
        let host = server(&[0, 6, 1]);
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            [
                "nic/eth2/queue/rx-0/irq-cpus: 0 -> 7",
                "nic/eth2/queue/rx-2/irq-cpus: 1 -> 8"
            ]
        );
        assert!(said.summary.contains("2 of 3"), "{}", said.summary);
    }

    #[test]
    fn more_interrupts_than_local_cpus_go_round() {
        let host = server(&[0; 8]);
        let said = finding(ID, &context(&host));
        let to: Vec<String> = said
            .remedies
            .iter()
            .map(|remedy| remedy.change.to.to_string())
            .collect();
        assert_eq!(to, ["6", "7", "8", "9", "10", "11", "6", "7"]);
    }

    #[test]
    fn local_interrupts_one_node_and_a_few_strays_are_no_fault() {
        assert!(silent(ID, &context(&server(&[6, 7, 8]))));
        let one_node = build::host().nic("eth0", |nic| nic).build();
        assert!(silent(ID, &context(&one_node)));
        let mut many = vec![6; 24];
        many.push(0);
        assert!(silent(ID, &context(&server(&many))));
    }

    #[test]
    fn a_nic_without_a_node_and_an_interrupt_without_a_place_are_not_passed() {
        let mut host = server(&[0]);
        host.nics[0].numa_node =
            Known::unknown(Cause::NotSaid, "device/numa_node", "the firmware says -1");
        assert_eq!(missing(ID, &context(&host))[0].cause, Cause::NotSaid);
        let mut host = server(&[0]);
        for queue in &mut host.nics[0].queues {
            queue.cpus = Known::not_asked("effective_affinity_list");
        }
        assert_eq!(
            missing(ID, &context(&host))[0].path,
            "effective_affinity_list"
        );
        let mut host = server(&[0]);
        for queue in &mut host.nics[0].queues {
            queue.irq = Known::not_asked("napi-get");
        }
        assert_eq!(missing(ID, &context(&host))[0].path, "napi-get");
    }

    #[test]
    fn a_node_that_was_inferred_is_judged_by_its_own_cpus() {
        let mut host = server(&[0, 6]);
        let bridge = "0000:16:00.0".parse().expect("an address");
        host.nics[0].numa_node_source = Known::Value(NodeSource::UpstreamBridge(bridge));
        host.nics[0].local_cpus = Known::Value("0-11".parse().expect("all CPUs"));
        let said = finding(ID, &context(&host));
        assert!(said.summary.contains("1 of 2"), "{}", said.summary);
        let path = "/sys/bus/pci/devices/0000:16:00.0/numa_node";
        assert!(said.evidence.iter().any(|one| one.path == path));
    }

    #[test]
    fn what_the_kernel_places_is_a_note_without_remedy() {
        let mut host = server(&[0, 6]);
        for irq in &mut host.irqs {
            irq.managed = Known::Value(true);
        }
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), Vec::<String>::new());
    }

    #[test]
    fn one_interrupt_without_a_place_is_not_passed() {
        let mut host = server(&[6, 7]);
        host.nics[0].queues[1].cpus = Known::unknown(Cause::Absent, "irq 101", "no such file");
        assert_eq!(missing(ID, &context(&host))[0].path, "irq 101");
    }
}
