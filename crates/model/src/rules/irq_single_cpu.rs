//! `irq-single-cpu`: all receive queues of the NIC interrupt one CPU. Facts from
//! Documentation/networking/scaling.rst, "RSS IRQ Configuration".

use std::collections::BTreeMap;

use super::facts::if_read;
use super::spreading::{
    Taken, brief, homes, in_use, irq_counts, irq_gaps, percent, share, softirq_evidence,
    softirq_share, spread, taken, used,
};
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NicKind, QueueKind};
use crate::ids::{CpuId, CpuSet};
use crate::setting::Class;
use crate::watch::{Watch, total};

pub(super) const RULE: Rule = Rule {
    id: "irq-single-cpu",
    number: 4,
    status: Status::Implemented,
    title: "all receive queues of the NIC interrupt one CPU",
    severity: Severity::Crit,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "two or more receive queues, all interrupting one CPU of several (warn); 90 % of the interrupts \
                of two or more queues on a CPU with more than 60 % softirq (crit)",
    effect: "a hard ceiling: the NIC receives no more than one core can (redpanda#10444)",
    source: "Documentation/networking/scaling.rst; Documentation/core-api/irq/irq-affinity.rst; \
             redpanda-data/redpanda#10444; systemd/systemd#40195",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot and after every link reset or channel change; ban the IRQs in irqbalance",
    contested: None,
    page: include_str!("../../../../docs/rules/irq-single-cpu.md"),
    check,
};

/// Above this share of a NIC's interrupts, one CPU handles all.
const ON_ONE: f64 = 0.9;

/// Above this softirq share a CPU is close to saturation.
const BUSY: f64 = 0.6;

/// A queue with less than this share of the interrupts is not active.
const ACTIVE: f64 = 0.1;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.online_cpus().len() < 2 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if let Some(said) = without_msi(context, nic) {
        return Some(found(rule, context, said));
    }
    let queues = in_use(nic, QueueKind::Rx);
    if !nic.kind.has_wire() || queues.len() < 2 {
        return None;
    }
    let all = taken(&queues);
    if all.is_empty() {
        let missing = irq_gaps(&queues);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    // A NIC with one interrupt for all queues has nothing to spread.
    if all.len() < 2 {
        return None;
    }
    let measured = context.watch.and_then(|watch| busiest(watch, &all));
    let same = used(&all);
    let (severity, cpu, counts) = match (measured, same.first()) {
        (Some((cpu, evidence)), _) => (Severity::Crit, cpu, evidence),
        (None, Some(cpu)) if same.len() == 1 => (Severity::Warn, cpu, Vec::new()),
        _ => return None,
    };
    let homes = homes(context.host, nic);
    let moved: Vec<Taken<'_>> = all
        .iter()
        .copied()
        .filter(|taken| *taken.cpus == CpuSet::one(cpu))
        .skip(1)
        .collect();
    let evidence = counts
        .into_iter()
        .chain(all.iter().map(|taken| taken.evidence(context.host)))
        .collect();
    Some(found(
        rule,
        context,
        Draft {
            severity,
            subject: subject(nic),
            summary: format!(
                "CPU {cpu} handles the interrupts of {} receive queues of {}: spread them over CPUs {}",
                moved.len() + 1,
                nic.name,
                brief(&homes)
            ),
            evidence,
            remedies: spread(context, nic, &moved, &homes, &CpuSet::one(cpu)),
        },
    ))
}

/// Documentation/admin-guide/kernel-parameters.txt, `pci=nomsi`: without message-signaled interrupts a NIC has one
/// interrupt, shared with other devices, and so one queue.
fn without_msi(context: &Context<'_>, nic: &Nic) -> Option<Draft> {
    let line = if_read(&context.host.identity.command_line)?;
    let is_off = |word: &&str| {
        let options = word.strip_prefix("pci=");
        options.is_some_and(|options| options.split(',').any(|option| option == "nomsi"))
    };
    let word = line.split_whitespace().find(is_off)?;
    let on_pci = nic.kind == NicKind::Physical && nic.pci_address.get().is_some();
    on_pci.then(|| Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{word} on the kernel command line leaves {} one interrupt and one queue: remove it",
            nic.name
        ),
        evidence: vec![Evidence::new("kernel command line", word, "/proc/cmdline")],
        remedies: Vec::new(),
    })
}

/// The busy CPU that handled nearly all interrupts of several queues.
fn busiest(watch: &Watch, all: &[Taken<'_>]) -> Option<(CpuId, Vec<Evidence>)> {
    let counts: Vec<BTreeMap<CpuId, u64>> = all
        .iter()
        .map(|taken| irq_counts(watch, taken.irq))
        .collect();
    let whole = total(counts.iter().flat_map(BTreeMap::values).copied());
    let of = |cpu: &CpuId| total(counts.iter().filter_map(|count| count.get(cpu).copied()));
    let cpu = *counts
        .iter()
        .flat_map(BTreeMap::keys)
        .max_by_key(|cpu| of(cpu))?;
    let part = share(of(&cpu), whole);
    let active = counts
        .iter()
        .filter(|count| share(count.get(&cpu).copied().unwrap_or(0), whole) >= ACTIVE)
        .count();
    let softirq = softirq_share(watch, cpu).get()?;
    (part >= ON_ONE && active >= 2 && softirq > BUSY).then(|| {
        let counted = Evidence::new(
            format!("NIC interrupts handled by CPU {cpu}"),
            percent(part),
            "/sys/kernel/irq/*/per_cpu_count",
        );
        (cpu, vec![counted, softirq_evidence(watch, cpu, softirq)])
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("four queues on CPU 0", || World::of(server(&[0, 0, 0, 0]))),
            ("and the CPU is busy with them", busy),
            ("pci=nomsi", || {
                let mut host = server(&[0, 1]);
                host.identity.command_line = Known::Value("ro pci=noaer,nomsi".to_owned());
                World::of(host)
            }),
        ],
        silent: &[
            ("two queues, each on its own CPU", || {
                World::of(server(&[0, 1]))
            }),
            ("one queue", || World::of(server(&[0]))),
            ("a pair without interrupts", || {
                World::of(build::veth_pair().0)
            }),
        ],
        undetermined: &[("IRQs unknown", || {
            let mut host = server(&[0, 0]);
            for queue in &mut host.nics[0].queues {
                queue.irq = Known::not_asked("device/msi_irqs");
            }
            World::of(host)
        })],
    };

    fn server(cpus: &[u32]) -> Host {
        build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| nic.queues(cpus))
            .build()
    }

    fn busy() -> World {
        World::of(server(&[0, 0, 0, 0])).watched(|watch| {
            watch
                .grew("irq/100/cpu/0", 5000)
                .grew("irq/101/cpu/0", 4000)
                .softirq(0, 0.7)
        })
    }

    #[test]
    fn the_first_stays_and_the_others_go_to_free_cpus() {
        let said = finding(ID, &context(&server(&[0, 0, 0, 0])));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            [
                "nic/eth2/queue/rx-1/irq-cpus: 0 -> 1",
                "nic/eth2/queue/rx-2/irq-cpus: 0 -> 2",
                "nic/eth2/queue/rx-3/irq-cpus: 0 -> 3"
            ]
        );
    }

    #[test]
    fn a_busy_cpu_makes_it_critical_and_one_flow_does_not() {
        assert_eq!(finding(ID, &busy().context()).severity, Severity::Crit);
        let one = World::of(server(&[0, 1, 2, 3]))
            .watched(|watch| watch.grew("irq/100/cpu/0", 9000).softirq(0, 0.9));
        assert!(silent(ID, &one.context()), "one flow has one queue");
    }
}
