//! `irq-remote-numa`: a queue's interrupt runs on another node than its card. Facts from
//! Documentation/networking/scaling.rst and Documentation/core-api/irq/irq-affinity.rst;
//! `effective_affinity_list` says where an interrupt really goes, `smp_affinity_list` only what was asked.

use std::collections::{BTreeMap, BTreeSet};

use super::{ALWAYS, Said, each_nic, found, remedy, subject, undetermined};
use crate::finding::{Evidence, Outcome, Remedy, Rule, Scene, Severity, Stage};
use crate::host::{Nic, Queue};
use crate::ids::{CpuId, CpuSet, IrqNumber};
use crate::known::{Gap, Known};
use crate::setting::{NicKnob, SettingKey, Value};
use crate::units::Ratio;

pub(super) const RULE: Rule = Rule {
    id: "irq-remote-numa",
    number: 2,
    title: "interrupts of the card are taken by CPUs of another node",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    threshold: "more than 5 % of the card's queue interrupts on CPUs that are not local to it",
    effect: "10-20 % in Ceph from explicit affinity (chef-bcpc #2115); 2065 -> 1720 MB/s with the memory \
             thread on the other socket (Sci. Prog. 2018, 4120561)",
    source: "Documentation/networking/scaling.rst; research/rules.md rule 2",
    persist: "a unit that runs at boot and after every link reset or channel change; and tell irqbalance",
    contested: None,
    page: include_str!("../../../../docs/rules/irq-remote-numa.md"),
    check,
};

const REMOTE_SHARE: Ratio = Ratio::new(0.05);

fn check(rule: &Rule, scene: &Scene<'_>) -> Vec<Outcome> {
    // On one node every CPU is local.
    if scene.host.nodes.len() == 1 {
        return Vec::new();
    }
    each_nic(rule, scene, |nic| check_nic(rule, scene, nic))
}

fn check_nic(rule: &Rule, scene: &Scene<'_>, nic: &Nic) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let mut missing: Vec<Gap> = Vec::new();
    missing.extend(nic.numa_node.gap().cloned());
    missing.extend(nic.local_cpus.gap().cloned());
    let queues = one_for_each_irq(nic);
    if queues.is_empty() {
        missing.extend(
            nic.queues
                .iter()
                .filter_map(|queue| queue.irq.gap().cloned())
                .take(1),
        );
    }
    missing.extend(
        queues
            .values()
            .filter_map(|queue| queue.cpus.gap().cloned()),
    );
    let local = match &nic.local_cpus {
        Known::Value(local) if missing.is_empty() => local.and(&scene.host.online_cpus()),
        _ if missing.is_empty() => return None,
        _ => return Some(undetermined(rule, scene, subject(nic), missing)),
    };
    let goes_to = |queue: &Queue| queue.cpus.value().cloned().unwrap_or_default();
    let remote: Vec<(&IrqNumber, &&Queue)> = queues
        .iter()
        .filter(|(_, queue)| goes_to(queue).is_disjoint(&local))
        .collect();
    if remote.is_empty() || share(remote.len(), queues.len()) <= REMOTE_SHARE.as_f64() {
        return None;
    }
    let mut evidence = vec![Evidence::new(
        "CPUs local to the card",
        &local,
        format!("/sys/class/net/{}/device/local_cpulist", nic.name),
    )];
    evidence.extend(remote.iter().map(|(irq, queue)| {
        Evidence::new(
            format!("CPUs of interrupt {irq} ({})", queue_name(queue)),
            goes_to(queue),
            format!("/proc/irq/{irq}/effective_affinity_list"),
        )
    }));
    let taken: Vec<CpuSet> = queues.values().map(|queue| goes_to(queue)).collect();
    Some(found(
        rule,
        scene,
        Said {
            severity: Severity::Warn,
            subject: subject(nic),
            summary: format!(
                "{} of {} interrupts of {} go to another node: move them to CPUs {local}",
                remote.len(),
                queues.len(),
                nic.name
            ),
            evidence,
            remedies: spread(scene, nic, &remote, &local, &taken),
        },
    ))
}

/// A receive and a transmit queue often share one interrupt; it is judged and moved once.
fn one_for_each_irq(nic: &Nic) -> BTreeMap<IrqNumber, &Queue> {
    let mut queues = BTreeMap::new();
    for queue in &nic.queues {
        if let Some(irq) = queue.irq.get() {
            queues.entry(irq).or_insert(queue);
        }
    }
    queues
}

/// One local CPU for each remote interrupt: those that no queue of the card uses yet first, then round
/// robin.
fn spread(
    scene: &Scene<'_>,
    nic: &Nic,
    remote: &[(&IrqNumber, &&Queue)],
    local: &CpuSet,
    taken: &[CpuSet],
) -> Vec<Remedy> {
    let used: BTreeSet<CpuId> = taken.iter().flat_map(CpuSet::iter).collect();
    let free = local.iter().filter(|cpu| !used.contains(cpu));
    let busy = local.iter().filter(|cpu| used.contains(cpu));
    let order: Vec<CpuId> = free.chain(busy).collect();
    remote
        .iter()
        .zip(order.iter().cycle())
        .filter_map(|((_, queue), cpu)| {
            let knob = NicKnob::IrqCpus(queue.kind, queue.index);
            let to = Value::Text(CpuSet::one(*cpu).to_string());
            remedy(scene, SettingKey::Nic(nic.name.clone(), knob), to)
        })
        .collect()
}

fn queue_name(queue: &Queue) -> String {
    let kind = match queue.kind {
        crate::host::QueueKind::Rx => "rx",
        crate::host::QueueKind::Tx => "tx",
    };
    format!("{kind}-{}", queue.index)
}

#[expect(clippy::cast_precision_loss, reason = "interrupts of a card are few")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, missing, remedies, scene, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("the first queues on the other node", || World::of(server(&[0, 6, 1])))],
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
        let said = finding(ID, &scene(&host));
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
        let said = finding(ID, &scene(&host));
        let to: Vec<String> = said
            .remedies
            .iter()
            .map(|remedy| remedy.change.to.to_string())
            .collect();
        assert_eq!(to, ["6", "7", "8", "9", "10", "11", "6", "7"]);
    }

    #[test]
    fn local_interrupts_one_node_and_a_few_strays_are_no_fault() {
        assert!(silent(ID, &scene(&server(&[6, 7, 8]))));
        let one_node = build::host().nic("eth0", |nic| nic).build();
        assert!(silent(ID, &scene(&one_node)));
        let mut many = vec![6; 24];
        many.push(0);
        assert!(silent(ID, &scene(&server(&many))));
    }

    #[test]
    fn a_card_without_a_node_and_an_interrupt_without_a_place_are_not_passed() {
        let mut host = server(&[0]);
        host.nics[0].numa_node =
            Known::unknown(Cause::NotSaid, "device/numa_node", "the firmware says -1");
        assert_eq!(missing(ID, &scene(&host))[0].cause, Cause::NotSaid);
        let mut host = server(&[0]);
        for queue in &mut host.nics[0].queues {
            queue.cpus = Known::not_asked("effective_affinity_list");
        }
        assert_eq!(
            missing(ID, &scene(&host))[0].path,
            "effective_affinity_list"
        );
        let mut host = server(&[0]);
        for queue in &mut host.nics[0].queues {
            queue.irq = Known::not_asked("napi-get");
        }
        assert_eq!(missing(ID, &scene(&host))[0].path, "napi-get");
    }
}
