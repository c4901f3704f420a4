//! `xps-misaligned`: XPS is missing, or does not match the CPU of the queue's interrupt. Facts from
//! Documentation/networking/scaling.rst, "XPS: Transmit Packet Steering".

use super::spreading::{few, in_use, irq_gaps, needed, queue_file, queue_name};
use super::{ALWAYS, Draft, each_nic, found, remedy, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, Queue, QueueKind};
use crate::ids::CpuSet;
use crate::known::Gap;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "xps-misaligned",
    number: 14,
    status: Status::Implemented,
    title: "XPS is missing, or does not match the CPU of the queue's interrupt",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "several transmit queues, none with xps_cpus or xps_rxqs; or the CPU of a queue's interrupt is \
                not in its xps_cpus",
    effect: "less lock contention, and completions on the sending CPU; no general figure",
    source: "Documentation/networking/scaling.rst; Documentation/ABI/testing/sysfs-class-net-queues",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot and after every channel change, which clears it",
    contested: None,
    page: include_str!("../../../../docs/rules/xps-misaligned.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.online_cpus().len() < 2 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let queues = in_use(nic, QueueKind::Tx);
    if !nic.kind.has_wire() || queues.len() < 2 {
        return None;
    }
    let steered: Vec<(&Queue, &CpuSet)> = queues
        .iter()
        .filter_map(|queue| Some((*queue, queue.xps_cpus.value()?)))
        .collect();
    if steered.is_empty() {
        let missing: Vec<Gap> = queues
            .iter()
            .filter_map(|queue| needed(queue.xps_cpus.gap()?))
            .take(1)
            .collect();
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    let by_receive_queue = |queue: &&Queue| queue.xps_rxqs.value().is_some_and(|q| !q.is_empty());
    if queues.iter().any(by_receive_queue) {
        return None;
    }
    // If the interrupts are unknown (wireless NICs, IPoIB), XPS cannot be aligned.
    if queues.iter().all(|queue| queue.cpus.value().is_none()) {
        let missing = irq_gaps(&queues);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    if steered.iter().all(|(_, cpus)| cpus.is_empty()) {
        let summary = format!(
            "none of the {} transmit queues of {} has xps_cpus: set it to the CPU of the queue's interrupt",
            queues.len(),
            nic.name
        );
        return Some(found(rule, context, said(context, nic, &steered, summary)));
    }
    let away: Vec<(&Queue, &CpuSet)> = steered
        .iter()
        .filter(|(queue, cpus)| {
            let takes = queue.cpus.value().filter(|takes| !takes.is_empty());
            !cpus.is_empty() && takes.is_some_and(|takes| takes.is_disjoint(cpus))
        })
        .copied()
        .collect();
    if away.is_empty() {
        return None;
    }
    let names: Vec<String> = away.iter().map(|(queue, _)| queue_name(queue)).collect();
    let summary = format!(
        "xps_cpus of {} of {} does not include the CPU of their interrupts: set it to the CPU of the queue's \
         interrupt",
        few(&names),
        nic.name
    );
    Some(found(rule, context, said(context, nic, &away, summary)))
}

fn said(context: &Context<'_>, nic: &Nic, queues: &[(&Queue, &CpuSet)], summary: String) -> Draft {
    let evidence = queues.iter().flat_map(|(queue, cpus)| {
        let name = queue_name(queue);
        let none = if cpus.is_empty() {
            "none".to_owned()
        } else {
            cpus.to_string()
        };
        let file = queue_file(nic, queue, "xps_cpus");
        let irq = queue.irq.get().zip(queue.cpus.value()).map(|(irq, takes)| {
            Evidence::new(
                format!("CPUs of interrupt {irq} ({name})"),
                takes,
                format!("/proc/irq/{irq}/effective_affinity_list"),
            )
        });
        let own = Evidence::new(format!("xps_cpus of {name}"), none, file);
        [Some(own), irq].into_iter().flatten()
    });
    Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary,
        evidence: evidence.collect(),
        remedies: queues
            .iter()
            .filter_map(|(queue, _)| align(context, nic, queue))
            .collect(),
    }
}

fn align(context: &Context<'_>, nic: &Nic, queue: &Queue) -> Option<Remedy> {
    let takes = queue.cpus.value().filter(|cpus| !cpus.is_empty())?;
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::XpsCpus(queue.index));
    remedy(context, key, Value::Text(takes.to_string()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("no queue has CPUs", || World::of(server(&["", ""]))),
            ("each has the other's", || World::of(server(&["1", "0"]))),
        ],
        silent: &[
            ("each has that of its interrupt", || {
                World::of(server(&["0", "1"]))
            }),
            ("steered by receive queue", || {
                let mut host = server(&["", ""]);
                for queue in &mut host.nics[0].queues {
                    queue.xps_rxqs = Known::Value(vec![queue.index]);
                }
                World::of(host)
            }),
            ("one queue", || {
                World::of(build::host().nic("eth2", |nic| nic).build())
            }),
            ("a kernel without it", || {
                let mut host = server(&["", ""]);
                for queue in &mut host.nics[0].queues {
                    queue.xps_cpus = Known::unknown(Cause::Absent, "xps_cpus", "no such file");
                }
                World::of(host)
            }),
        ],
        undetermined: &[
            ("it may not be read", || {
                let mut host = server(&["", ""]);
                for queue in &mut host.nics[0].queues {
                    queue.xps_cpus = Known::unknown(Cause::Denied, "xps_cpus", "denied");
                }
                World::of(host)
            }),
            ("nobody knows where unsteered queues are served", || {
                let mut host = server(&["", ""]);
                for queue in &mut host.nics[0].queues {
                    queue.irq = Known::unknown(Cause::NotSaid, "device/msi_irqs", "no name tells");
                    queue.cpus = queue.irq.clone().and_then(|_| Known::not_asked(""));
                }
                World::of(host)
            }),
            ("IRQs unknown", || {
                let mut host = server(&["1", "0"]);
                for queue in &mut host.nics[0].queues {
                    queue.irq = Known::not_asked("device/msi_irqs");
                    queue.cpus = Known::not_asked("device/msi_irqs");
                }
                World::of(host)
            }),
        ],
    };

    /// Two queues whose interrupts go to CPUs 0 and 1, and the XPS CPUs of each.
    fn server(xps: &[&str]) -> Host {
        build::host()
            .nic("eth2", |nic| {
                nic.queues(&[0, 1]).with(|nic| {
                    let tx = nic.queues.iter_mut().filter(|q| q.kind == QueueKind::Tx);
                    for (queue, cpus) in tx.zip(xps) {
                        queue.xps_cpus = Known::Value(cpus.parse().expect("a list"));
                    }
                })
            })
            .build()
    }

    #[test]
    fn each_queue_is_given_the_cpu_of_its_interrupt() {
        let said = finding(ID, &context(&server(&["1", "0"])));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            remedies(&said),
            [
                "nic/eth2/queue/tx-0/xps-cpus: 1 -> 0",
                "nic/eth2/queue/tx-1/xps-cpus: 0 -> 1"
            ]
        );
    }
}
