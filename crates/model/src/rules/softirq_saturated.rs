//! `softirq-saturated`: a CPU is saturated by softirq. Facts from `/proc/stat`
//! (Documentation/filesystems/proc.rst) and, where the kernel has it, `/proc/pressure/irq`.

use super::spreading::{
    few, in_use, irq_counts, percent, queue_name, softirq_evidence, softirq_share, taken,
};
use super::{ALWAYS, Draft, found, nics, undetermined, watched};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::QueueKind;
use crate::ids::CpuId;
use crate::known::{Gap, Known};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "softirq-saturated",
    number: 18,
    status: Status::Implemented,
    title: "a CPU is saturated by softirq",
    severity: Severity::Crit,
    stage: Stage::Saturation,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "more than 80 % of a CPU's time in softirq and interrupts while watched",
    effect: "this CPU limits the throughput of its queues; no sysctl lifts that",
    source: "Documentation/filesystems/proc.rst (/proc/stat); Documentation/accounting/psi.rst; \
             amzn-drivers, ENA_Linux_Best_Practices.rst",
    fix: Fix::Elsewhere,
    persist: "see the rule that spreads the work (irq-single-cpu, queues-too-few, rss-table-uneven)",
    contested: None,
    page: include_str!("../../../../docs/rules/softirq-saturated.md"),
    check,
};

const SATURATED: f64 = 0.8;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let watch = match watched(rule, context) {
        Ok(watch) => watch,
        Err(unsure) => return unsure,
    };
    let mut missing: Vec<Gap> = Vec::new();
    let mut full: Vec<(CpuId, f64)> = Vec::new();
    for cpu in context.host.online_cpus().iter() {
        match softirq_share(watch, cpu) {
            Known::Value(share) if share > SATURATED => full.push((cpu, share)),
            Known::Value(_) => {}
            Known::Unknown(gap) => missing.push(gap),
        }
    }
    full.sort_by(|one, other| other.1.total_cmp(&one.1));
    let Some((worst, share)) = full.first().copied() else {
        missing.truncate(1);
        return if missing.is_empty() {
            Vec::new()
        } else {
            vec![undetermined(rule, context, "host".to_owned(), missing)]
        };
    };
    let queues = queues_of(context, worst);
    let whose = if queues.is_empty() {
        String::new()
    } else {
        format!(" (queues {})", few(&queues))
    };
    let others = match full.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more CPUs"),
    };
    let mut evidence: Vec<Evidence> = full
        .iter()
        .map(|(cpu, share)| softirq_evidence(watch, *cpu, *share))
        .collect();
    evidence.extend(interrupts(context, watch, worst));
    let pressure = "pressure/irq/total_us";
    let stalled = watch.grown(pressure).get().filter(|grown| *grown > 0);
    evidence.extend(stalled.map(|us| {
        let what = "time that tasks stalled on interrupts";
        Evidence::new(what, format!("{us} us"), watch.path(pressure))
    }));
    let said = Draft {
        severity: Severity::Crit,
        subject: format!("cpu/{worst}"),
        summary: format!(
            "CPU {worst}{whose} spends {} of its time in softirq and interrupts{others}: spread them over more \
             CPUs",
            percent(share)
        ),
        evidence,
        remedies: Vec::new(),
    };
    vec![found(rule, context, said)]
}

/// The receive queues with interrupts on `cpu`.
fn queues_of(context: &Context<'_>, cpu: CpuId) -> Vec<String> {
    let of_nic = nics(context).into_iter().flat_map(|nic| {
        taken(&in_use(nic, QueueKind::Rx))
            .into_iter()
            .filter(|taken| taken.cpus.contains(cpu))
            .map(|taken| format!("{} {}", nic.name, queue_name(taken.queue)))
            .collect::<Vec<_>>()
    });
    of_nic.collect()
}

/// The interrupt rate of its queues.
fn interrupts(context: &Context<'_>, watch: &Watch, cpu: CpuId) -> Vec<Evidence> {
    let all = nics(context)
        .into_iter()
        .flat_map(|nic| taken(&in_use(nic, QueueKind::Rx)));
    all.filter_map(|taken| {
        let count = irq_counts(watch, taken.irq).get(&cpu).copied()?;
        Some(Evidence::new(
            format!("IRQs {} on CPU {cpu}", taken.irq),
            count,
            format!("/sys/kernel/irq/{}/per_cpu_count", taken.irq),
        ))
    })
    .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("a CPU full of softirq", || loaded(0.95))],
        silent: &[("a CPU with time left", || loaded(0.6))],
        undetermined: &[
            ("counters not watched", || World::of(build::veth_pair().0)),
            ("the kernel's file was not read", || {
                World::of(build::veth_pair().0).watched(|watch| watch.without("cpu/0/time"))
            }),
        ],
    };

    fn loaded(share: f64) -> World {
        let host = build::host().nic("eth2", |nic| nic.queues(&[0, 1])).build();
        World::of(host).watched(|watch| watch.grew("irq/101/cpu/1", 900).softirq(1, share))
    }

    #[test]
    fn the_queue_of_the_cpu_is_named() {
        let said = finding(ID, &loaded(0.95).context());
        assert_eq!(said.severity, Severity::Crit);
        assert_eq!(said.subject, "cpu/1");
        assert!(said.summary.contains("eth2 rx-1"), "{}", said.summary);
        assert!(said.evidence.iter().any(|one| one.value == "900"));
        let far = finding(ID, &loaded(0.95).remote().context());
        assert_eq!(far.end, crate::plan::End::Remote);
    }
}
