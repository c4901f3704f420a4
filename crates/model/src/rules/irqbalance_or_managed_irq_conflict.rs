//! `irqbalance-or-managed-irq-conflict`: irqbalance or the kernel controls the affinity of the NIC's
//! interrupts. Facts from kernel/irq/proc.c and irqbalance(1).

use super::spreading::{
    Taken, all_in_use, few, in_use, irq_counts, irq_gaps, is_managed, kept_apart, local_cpus,
    needed, queue_name, taken,
};
use super::{ALWAYS, Draft, each_nic, found, nics, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, Owner, QueueKind};
use crate::known::{Gap, Known};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "irqbalance-or-managed-irq-conflict",
    number: 7,
    status: Status::Implemented,
    title: "irqbalance or the kernel controls the affinity of the NIC's interrupts",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "irqbalance runs and moved an interrupt of the NIC while watched (roles latency and \
                measurement: warn; others: note), or may move those of two or more queues (note); a managed \
                interrupt on a remote node or an isolated CPU (note)",
    effect: "affinity set by hand is lost within 10 s, irqbalance's default interval; contested, measure both",
    source: "irqbalance(1); kernel/irq/proc.c; amzn-drivers, ENA_Linux_Best_Practices.rst; \
             Documentation/networking/device_drivers/ethernet/intel/ice.rst",
    fix: Fix::Advised(&[Class::R1]),
    persist: "irqbalance --banirq= or a policy script, in a drop-in; do not edit its own file",
    contested: Some(
        "the ENA guide keeps irqbalance and bans CPUs; the ice and mlx5 guides stop it, and chef-bcpc #2115 \
         measured 10-20 % for pinning in Ceph",
    ),
    page: include_str!("../../../../docs/rules/irqbalance-or-managed-irq-conflict.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.online_cpus().len() < 2 {
        return Vec::new();
    }
    let mut outcomes = each_nic(rule, context, |nic| managed(rule, context, nic));
    outcomes.extend(balanced(rule, context));
    outcomes
}

/// Interrupts that are managed by the kernel and badly placed.
fn managed(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let all = taken(&all_in_use(nic));
    let apart = kept_apart(context.host);
    let near = local_cpus(context.host, nic);
    let badly = |taken: &&Taken<'_>| {
        let far = |(near, _): &(crate::ids::CpuSet, String)| {
            !near.is_empty() && taken.cpus.is_disjoint(near)
        };
        !taken.cpus.is_disjoint(&apart) || near.value().is_some_and(far)
    };
    let stuck: Vec<Taken<'_>> = all
        .iter()
        .filter(|taken| is_managed(context.host, taken.irq))
        .filter(badly)
        .copied()
        .collect();
    if stuck.is_empty() {
        return unsure_of_managed(rule, context, nic, all.iter().filter(badly));
    }
    let evidence = stuck.iter().flat_map(|taken| {
        let mode = Evidence::new(
            format!("affinity of IRQ {}", taken.irq),
            "managed by the kernel (read-only)",
            format!("/proc/irq/{}/smp_affinity", taken.irq),
        );
        [mode, taken.evidence(context.host)]
    });
    let said = Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} badly placed interrupts of {} are managed by the kernel: change the number of queues or \
             irqaffinity=",
            stuck.len(),
            nic.name
        ),
        evidence: evidence.collect(),
        remedies: Vec::new(),
    };
    Some(found(rule, context, said))
}

/// A gap: it is not known whether a badly placed interrupt can be moved.
fn unsure_of_managed<'a>(
    rule: &Rule,
    context: &Context<'_>,
    nic: &Nic,
    badly: impl Iterator<Item = &'a Taken<'a>>,
) -> Option<Outcome> {
    let missing: Vec<Gap> = badly
        .filter_map(|taken| {
            let irq = context.host.irq(taken.irq)?;
            needed(irq.managed.gap()?)
        })
        .take(1)
        .collect();
    (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing))
}

/// irqbalance beside NICs with several queues.
fn balanced(rule: &Rule, context: &Context<'_>) -> Option<Outcome> {
    let cards: Vec<&Nic> = nics(context)
        .into_iter()
        .filter(|nic| nic.kind.has_wire() && in_use(nic, QueueKind::Rx).len() > 1)
        .collect();
    if cards.is_empty() {
        return None;
    }
    let owners = match &context.host.software.owners {
        Known::Value(owners) => owners,
        Known::Unknown(gap) => {
            let gap = needed(gap)?;
            return Some(undetermined(rule, context, "host".to_owned(), vec![gap]));
        }
    };
    let irqbalance = owners.iter().find(|owner| owner.name == "irqbalance")?;
    let mut evidence = vec![Evidence::new(
        "irqbalance runs",
        format!("process {}", irqbalance.pid),
        irqbalance.path.clone(),
    )];
    evidence.extend(
        irqbalance
            .detail
            .as_ref()
            .map(|detail| Evidence::new("irqbalance options", detail, irqbalance.path.clone())),
    );
    let (moved, of_moved) = moved(context, &cards);
    let movable: Vec<String> = cards
        .iter()
        .filter(|nic| may_move(nic, irqbalance))
        .map(|nic| nic.name.to_string())
        .collect();
    let (severity, summary) = match (moved.is_empty(), movable.is_empty()) {
        (false, _) => (
            // Moving interrupts is its purpose; low-latency and measurement hosts need fixed affinity.
            match context.profile {
                Profile::Latency | Profile::Measurement => Severity::Warn,
                _ => Severity::Note,
            },
            format!(
                "irqbalance moved interrupts while watched ({}): ban them in irqbalance, then set their \
                 affinity",
                few(&moved)
            ),
        ),
        (true, false) => (
            Severity::Note,
            format!(
                "irqbalance may move the interrupts of {}, so their affinity will not persist: measure with \
                 and without it",
                few(&movable)
            ),
        ),
        (true, true) => return None,
    };
    evidence.extend(of_moved);
    let said = Draft {
        severity,
        subject: "host".to_owned(),
        summary,
        evidence,
        remedies: Vec::new(),
    };
    Some(found(rule, context, said))
}

/// Whether irqbalance may move an interrupt of the NIC.
fn may_move(nic: &Nic, irqbalance: &Owner) -> bool {
    let queues = all_in_use(nic);
    let all = taken(&queues);
    let banned = |taken: &Taken<'_>| {
        irqbalance.detail.as_ref().is_some_and(|detail| {
            detail.contains("ban")
                && detail
                    .split(|c: char| !c.is_ascii_digit())
                    .any(|word| word == taken.irq.to_string())
        })
    };
    // A NIC whose interrupts are unknown may be affected; one without any is not.
    (all.is_empty() && !irq_gaps(&queues).is_empty()) || all.iter().any(|taken| !banned(taken))
}

/// The interrupts with one CPU in their affinity that were counted on several.
fn moved(context: &Context<'_>, cards: &[&Nic]) -> (Vec<String>, Vec<Evidence>) {
    let Some(watch) = context.watch else {
        return (Vec::new(), Vec::new());
    };
    let mut names = Vec::new();
    let mut evidence = Vec::new();
    for nic in cards {
        for taken in taken(&all_in_use(nic)) {
            let counts = irq_counts(watch, taken.irq);
            let cpus: Vec<String> = counts
                .iter()
                .filter(|(_, grown)| **grown > 0)
                .map(|(cpu, _)| cpu.to_string())
                .collect();
            if cpus.len() > 1 && taken.cpus.len() == 1 {
                names.push(format!("{} {}", nic.name, queue_name(taken.queue)));
                evidence.push(Evidence::new(
                    format!("CPUs that handled IRQ {}", taken.irq),
                    cpus.join(","),
                    format!("/sys/kernel/irq/{}/per_cpu_count", taken.irq),
                ));
            }
        }
    }
    (names, evidence)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("irqbalance may move two queues", || {
                World::of(server(true, None))
            }),
            ("a managed interrupt on the other node", || {
                World::of(managed_remote())
            }),
        ],
        silent: &[
            ("nobody else", || World::of(server(false, None))),
            ("it was told to leave them alone", || {
                World::of(server(true, Some("banned interrupts: 100 101")))
            }),
            ("a pair without interrupts", || {
                World::of(build::veth_pair().0)
            }),
        ],
        undetermined: &[
            ("programs not read", || {
                let mut host = server(false, None);
                host.software.owners = Known::not_asked("/proc");
                World::of(host)
            }),
            ("who places them is not known", || {
                let mut host = managed_remote();
                for irq in &mut host.irqs {
                    irq.managed = Known::not_asked("/proc/irq/100/smp_affinity");
                }
                World::of(host)
            }),
        ],
    };

    fn server(runs: bool, detail: Option<&str>) -> Host {
        let owner = Owner {
            name: "irqbalance".to_owned(),
            pid: 700,
            detail: detail.map(str::to_owned),
            path: "/proc/700/comm".to_owned(),
        };
        build::host()
            .nic("eth2", |nic| nic.queues(&[0, 1]))
            .with(|host| {
                host.software.owners = Known::Value(runs.then_some(owner).into_iter().collect());
            })
            .build()
    }

    fn managed_remote() -> Host {
        let mut host = build::host()
            .nodes(2, 2)
            .nic("eth2", |nic| nic.queues(&[0, 2]))
            .build();
        for irq in &mut host.irqs {
            irq.managed = Known::Value(true);
        }
        host
    }

    #[test]
    fn only_a_move_that_was_seen_is_warned_about_where_it_disturbs() {
        let host = server(true, None);
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
        let world = World::of(host)
            .watched(|watch| watch.grew("irq/100/cpu/0", 50).grew("irq/100/cpu/1", 60));
        assert_eq!(finding(ID, &world.context()).severity, Severity::Note);
        let world = world.profile(Profile::Latency);
        let said = finding(ID, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert!(said.summary.contains("eth2 rx-0"), "{}", said.summary);
    }
}
