//! `irq-on-isolated-cpu`: interrupts of the NIC go to isolated CPUs. Facts from
//! Documentation/admin-guide/kernel-parameters.txt (`isolcpus=`, `nohz_full=`, `irqaffinity=`).

use super::spreading::{
    Taken, all_in_use, booted_with, brief, cpu_gaps, irq_gaps, is_managed, kept_apart, local_cpus,
    needed, spread, taken, used,
};
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::ids::CpuSet;
use crate::known::{Cause, Gap, Known};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "irq-on-isolated-cpu",
    number: 6,
    status: Status::Implemented,
    title: "interrupts of the NIC go to isolated CPUs",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a queue interrupt on a CPU of isolcpus= or nohz_full= (role latency: warn; others: note), or \
                default_smp_affinity includes one (note)",
    effect: "less jitter on the isolated CPUs; no general figure",
    source: "Documentation/admin-guide/kernel-parameters.txt (isolcpus=, nohz_full=, irqaffinity=); \
             TuneD, irq plugin",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "irqaffinity= on the kernel's command line; isolcpus=managed_irq,... for managed interrupts",
    contested: None,
    page: include_str!("../../../../docs/rules/irq-on-isolated-cpu.md"),
    check,
};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";
const DEFAULT: &str = "/proc/irq/default_smp_affinity";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let isolation = &context.host.isolation;
    let kept = kept_apart(context.host);
    if kept.is_empty() {
        // A kernel without these lists isolates no CPU.
        let missing: Vec<Gap> = [&isolation.isolated, &isolation.nohz_full]
            .into_iter()
            .filter_map(|cpus| needed(cpus.gap()?))
            .collect();
        return if missing.is_empty() {
            Vec::new()
        } else {
            vec![undetermined(rule, context, "host".to_owned(), missing)]
        };
    }
    let mut outcomes = each_nic(rule, context, |nic| check_nic(rule, context, nic, &kept));
    outcomes.extend(check_default(rule, context, &kept));
    outcomes
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic, kept: &CpuSet) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let queues = all_in_use(nic);
    let all = taken(&queues);
    if all.is_empty() {
        let missing = irq_gaps(&queues);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    let there: Vec<Taken<'_>> = all
        .iter()
        .copied()
        .filter(|taken| !taken.cpus.is_disjoint(kept))
        .collect();
    if there.is_empty() {
        let missing = cpu_gaps(&queues);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    let managed = there
        .iter()
        .filter(|taken| is_managed(context.host, taken.irq))
        .count();
    let online = context.host.online_cpus().minus(kept);
    let near = local_cpus(context.host, nic);
    let homes = near
        .value()
        .map(|(near, _)| near.minus(kept))
        .filter(|near| !near.is_empty())
        .unwrap_or(online);
    let advice = if managed == there.len() {
        "they are managed by the kernel; see isolcpus=managed_irq".to_owned()
    } else {
        format!("move them to CPUs {}", brief(&homes))
    };
    Some(found(
        rule,
        context,
        Draft {
            severity: match context.profile {
                Profile::Latency => Severity::Warn,
                _ => Severity::Note,
            },
            subject: subject(nic),
            summary: format!(
                "{} of {} interrupts of {} go to isolated CPUs ({}): {advice}",
                there.len(),
                all.len(),
                nic.name,
                brief(kept)
            ),
            evidence: apart(context)
                .chain(there.iter().map(|taken| taken.evidence(context.host)))
                .collect(),
            remedies: spread(context, nic, &there, &homes, &used(&all)),
        },
    ))
}

/// The isolated CPUs, with the source file.
fn apart<'a>(context: &Context<'a>) -> impl Iterator<Item = Evidence> + 'a {
    let isolation = &context.host.isolation;
    [
        (&isolation.isolated, "isolated CPUs", ISOLATED, "isolcpus="),
        (
            &isolation.nohz_full,
            "nohz_full CPUs",
            NOHZ_FULL,
            "nohz_full=",
        ),
    ]
    .into_iter()
    .filter_map(|(cpus, what, path, option)| {
        let booted = match cpus {
            Known::Unknown(gap) if gap.cause == Cause::Absent => booted_with(context.host, option),
            _ => CpuSet::empty(),
        };
        if !booted.is_empty() {
            return Some(Evidence::new(what, booted, "/proc/cmdline"));
        }
        let cpus = cpus.value().filter(|cpus| !cpus.is_empty())?;
        Some(Evidence::new(what, cpus, path))
    })
}

/// New interrupts may go to isolated CPUs: a risk, not yet a fault.
fn check_default(rule: &Rule, context: &Context<'_>, kept: &CpuSet) -> Option<Outcome> {
    let default = context.host.isolation.default_irq_cpus.value()?;
    let exposed = default.and(kept);
    if exposed.is_empty() {
        return None;
    }
    let said = Draft {
        severity: Severity::Note,
        subject: "host".to_owned(),
        summary: format!(
            "new interrupts may go to the isolated CPUs {}: boot with irqaffinity=",
            brief(&exposed)
        ),
        evidence: apart(context)
            .chain([Evidence::new("default IRQ affinity", default, DEFAULT)])
            .collect(),
        remedies: Vec::new(),
    };
    Some(found(rule, context, said))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("an interrupt on an isolated CPU", || {
                World::of(server("2-3", &[0, 2]))
            }),
            ("isolated on the command line of an old kernel", || {
                let mut host = server("", &[0, 2]);
                let absent = || Known::unknown(Cause::Absent, ISOLATED, "no such file");
                host.isolation.isolated = absent();
                host.isolation.nohz_full = absent();
                host.identity.command_line =
                    Known::Value("ro isolcpus=domain,managed_irq,2-3 quiet".to_owned());
                World::of(host)
            }),
            ("new interrupts are allowed there", || {
                let mut host = server("2-3", &[0, 1]);
                host.isolation.default_irq_cpus = Known::Value("0-3".parse().expect("a list"));
                World::of(host)
            }),
        ],
        silent: &[
            ("no CPU is set apart", || World::of(server("", &[0, 2]))),
            ("the interrupts keep away", || {
                World::of(server("2-3", &[0, 1]))
            }),
        ],
        undetermined: &[
            ("the list cannot be read", || {
                let mut host = server("", &[0, 2]);
                host.isolation.isolated = Known::not_asked(ISOLATED);
                World::of(host)
            }),
            ("IRQs unknown", || {
                let mut host = server("2-3", &[0, 2]);
                for queue in &mut host.nics[0].queues {
                    queue.irq = Known::not_asked("device/msi_irqs");
                }
                World::of(host)
            }),
        ],
    };

    fn server(isolated: &str, cpus: &[u32]) -> Host {
        build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| nic.queues(cpus))
            .with(|host| {
                host.isolation.isolated = Known::Value(isolated.parse().expect("a list"));
            })
            .build()
    }

    #[test]
    fn it_is_warned_about_where_latency_matters_and_moved_away() {
        let world = World::of(server("2-3", &[0, 2]));
        assert_eq!(finding(ID, &world.context()).severity, Severity::Note);
        let said = finding(ID, &world.profile(Profile::Latency).context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["nic/eth2/queue/rx-1/irq-cpus: 2 -> 1"]);
    }

    #[test]
    fn what_the_kernel_places_is_left_to_it() {
        let mut host = server("2-3", &[0, 2]);
        for irq in &mut host.irqs {
            irq.managed = Known::Value(true);
        }
        let said = finding(ID, &context(&host));
        assert!(said.summary.contains("managed_irq"), "{}", said.summary);
        assert!(said.remedies.is_empty());
    }
}
