//! `irq-cpu-collision`: two queues interrupt one core while another local core is free. Facts from
//! Documentation/networking/scaling.rst ("hyperthreading has shown no benefit in initial tests" for
//! interrupt handling).

use super::spreading::{
    Taken, brief, homes, in_use, irq_counts, irq_gaps, percent, queue_name, share, siblings,
    spread, taken, used, workers,
};
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Host, Nic, QueueKind};
use crate::ids::{CpuId, CpuSet};
use crate::known::{self, Known};
use crate::setting::Class;
use crate::units::real;
use crate::watch::total;

pub(super) const RULE: Rule = Rule {
    id: "irq-cpu-collision",
    number: 5,
    status: Status::Implemented,
    title: "two queues interrupt one core while another local core is free",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters, Basis::Trial],
    threshold: "two receive queues on one CPU while a local core has none, or three while as many local CPUs have none \
                (note), each with more than 10 % of \
                at least 1000 packets per second (warn); a queue's core runs a thread of the trial (note)",
    effect: "interrupts of two streams on one core \"greatly impact\" results (fasterdata); no figure",
    source: "Documentation/networking/scaling.rst; fasterdata.es.net, 100G tuning",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot and after every link reset or channel change; ban the IRQs in irqbalance",
    contested: None,
    page: include_str!("../../../../docs/rules/irq-cpu-collision.md"),
    check,
};

/// A queue with more than this share of the packets is busy.
const BUSY_QUEUE: f64 = 0.1;

/// Below this packet rate the traffic is background: it does not show which queues are busy.
const FEW_PER_S: f64 = 1000.0;

/// This many queues on one CPU, while as many local CPUs have none, is no accident of rounding.
const CROWD: usize = 3;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.online_cpus().len() < 2 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let queues = in_use(nic, QueueKind::Rx);
    if !nic.kind.has_wire() || queues.is_empty() {
        return None;
    }
    let all = taken(&queues);
    if all.is_empty() {
        let missing = irq_gaps(&queues);
        let unsure = queues.len() > 1 && !missing.is_empty();
        return unsure.then(|| undetermined(rule, context, subject(nic), missing));
    }
    let homes = homes(context.host, nic);
    // If every core has a queue, sharing is unavoidable; all queues on one CPU is a separate finding.
    let free = free_of(context.host, &homes, &used(&all).iter().collect::<Vec<_>>());
    let on_one = all.len() > 1 && used(&all).len() == 1;
    if on_one {
        return None;
    }
    if free.is_empty() {
        return crowded(rule, context, nic, &all, &homes);
    }
    let pairs = collisions(context.host, &all);
    let shares = traffic(context, nic, &all);
    let busy = |at: &usize| {
        shares
            .as_ref()
            .is_some_and(|s| s.get(*at) > Some(&BUSY_QUEUE))
    };
    let hot = pairs
        .iter()
        .find(|(one, other, _)| busy(one) && busy(other));
    let same_cpu = pairs.iter().find(|(_, _, same)| *same);
    // If counters show idle queues, the sharing costs nothing.
    let idle = shares.is_some();
    let (severity, pair) = match (hot, same_cpu) {
        (Some(pair), _) => (Severity::Warn, pair),
        (None, Some(pair)) if !idle => (Severity::Note, pair),
        _ => return beside_a_worker(rule, context, nic, &all, &free),
    };
    let (one, other) = (all.get(pair.0)?, all.get(pair.1)?);
    let mut evidence = vec![one.evidence(context.host), other.evidence(context.host)];
    for at in [pair.0, pair.1] {
        let part = shares.as_ref().and_then(|shares| shares.get(at));
        evidence.extend(part.zip(all.get(at)).map(|(part, taken)| {
            Evidence::new(
                format!("packets of the NIC by {}", queue_name(taken.queue)),
                percent(*part),
                format!("nic/{}/queue, irq/{}/cpu", nic.name, taken.irq),
            )
        }));
    }
    evidence.push(cores_evidence(&free));
    let summary = format!(
        "queues {} and {} of {} interrupt one core (CPU {}) while CPUs {} take none: move one",
        queue_name(one.queue),
        queue_name(other.queue),
        nic.name,
        other.cpus,
        brief(&free)
    );
    let move_of = (severity, &[*other][..], &free);
    Some(moved(rule, context, nic, move_of, summary, evidence))
}

/// The finding that some interrupts should be moved to free CPUs.
fn moved(
    rule: &Rule,
    context: &Context<'_>,
    nic: &Nic,
    (severity, interrupts, free): (Severity, &[Taken<'_>], &CpuSet),
    summary: String,
    evidence: Vec<Evidence>,
) -> Outcome {
    let said = Draft {
        severity,
        subject: subject(nic),
        summary,
        evidence,
        remedies: spread(context, nic, interrupts, free, &CpuSet::empty()),
    };
    found(rule, context, said)
}

/// Every local core has a queue, but one CPU has several while others have none: the table of interrupts is uneven.
fn crowded(
    rule: &Rule,
    context: &Context<'_>,
    nic: &Nic,
    all: &[Taken<'_>],
    homes: &CpuSet,
) -> Option<Outcome> {
    let idle = homes.minus(&used(all));
    let on = |cpu: CpuId| -> Vec<Taken<'_>> {
        let alone = all.iter().copied();
        alone
            .filter(|taken| *taken.cpus == CpuSet::one(cpu))
            .collect()
    };
    let most = homes.iter().max_by_key(|cpu| on(*cpu).len())?;
    let there = on(most);
    if there.len() < CROWD || idle.len() < there.len() - 1 {
        return None;
    }
    let path = "/proc/irq/*/effective_affinity_list";
    let evidence = there
        .iter()
        .map(|taken| taken.evidence(context.host))
        .chain([Evidence::new(
            "local CPUs without a queue interrupt",
            &idle,
            path,
        )]);
    let summary = format!(
        "CPU {most} handles {} queues of {} while the local CPUs {} handle none: move them",
        there.len(),
        nic.name,
        brief(&idle)
    );
    let move_of = (Severity::Note, there.get(1..)?, &idle);
    Some(moved(
        rule,
        context,
        nic,
        move_of,
        summary,
        evidence.collect(),
    ))
}

fn cores_evidence(free: &CpuSet) -> Evidence {
    let path = "/sys/devices/system/cpu/cpu*/topology/core_cpus_list";
    Evidence::new("local cores without a queue interrupt", free, path)
}

/// Those of `homes` whose core contains none of `taken`.
fn free_of(host: &Host, homes: &CpuSet, taken: &[CpuId]) -> CpuSet {
    let cores: CpuSet = taken
        .iter()
        .flat_map(|cpu| siblings(host, *cpu).iter().collect::<Vec<_>>())
        .collect();
    homes.minus(&cores)
}

/// The pairs of interrupts on one core, by index, and whether it is the same CPU.
fn collisions(host: &Host, all: &[Taken<'_>]) -> Vec<(usize, usize, bool)> {
    let core = |(at, taken): (usize, &Taken<'_>)| {
        let cpus = taken.cpus;
        let cpu = cpus.first().filter(|_| cpus.len() == 1)?;
        Some((at, cpu, siblings(host, cpu)))
    };
    let on_one: Vec<_> = all.iter().enumerate().filter_map(core).collect();
    let mut pairs = Vec::new();
    for (from, (at, cpu, core)) in on_one.iter().enumerate() {
        let others = on_one.iter().skip(from + 1);
        pairs.extend(
            others
                .filter(|(.., other)| other == core)
                .map(|(to, other, _)| (*at, *to, other == cpu)),
        );
    }
    pairs
}

/// Each queue's share of the packets, from its own counter or its interrupts; none if hardly anything was counted.
fn traffic(context: &Context<'_>, nic: &Nic, all: &[Taken<'_>]) -> Option<Vec<f64>> {
    let watch = context.watch?;
    let packets = |taken: &Taken<'_>| {
        let key = format!("nic/{}/queue/{}/packets", nic.name, queue_name(taken.queue));
        match watch.grown(&key) {
            Known::Value(grown) => grown,
            Known::Unknown(gap) => {
                let interrupts = total(irq_counts(watch, taken.irq).into_values());
                if interrupts == 0 {
                    known::miss(&gap);
                }
                interrupts
            }
        }
    };
    let counts: Vec<u64> = all.iter().map(packets).collect();
    let whole = total(counts.iter().copied());
    let seconds = watch.span_ns.as_secs_f64();
    (real(whole) >= FEW_PER_S * seconds)
        .then(|| counts.iter().map(|count| share(*count, whole)).collect())
}

/// A queue's interrupt on an SMT sibling of a trial thread's CPU.
fn beside_a_worker(
    rule: &Rule,
    context: &Context<'_>,
    nic: &Nic,
    all: &[Taken<'_>],
    free: &CpuSet,
) -> Option<Outcome> {
    let workers = workers(context);
    let taken = all.iter().find(|taken| {
        taken.cpus.iter().any(|cpu| {
            let beside = siblings(context.host, cpu).minus(&CpuSet::one(cpu));
            !beside.is_disjoint(&workers) && !workers.contains(cpu)
        })
    })?;
    let free = free_of(context.host, free, &workers.iter().collect::<Vec<_>>());
    if free.is_empty() {
        return None;
    }
    let summary = format!(
        "queue {} of {} interrupts CPU {}, an SMT sibling of a CPU that runs the trial: try CPUs {}",
        queue_name(taken.queue),
        nic.name,
        brief(taken.cpus),
        brief(&free)
    );
    let evidence = vec![
        taken.evidence(context.host),
        Evidence::new("CPUs of the trial's threads", workers, "the trial"),
        cores_evidence(&free),
    ];
    let move_of = (Severity::Note, &[*taken][..], &free);
    Some(moved(rule, context, nic, move_of, summary, evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies, silent, with_trial};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("two of three queues on CPU 0", || {
                World::of(server(&[0, 0, 1]))
            }),
            ("both are busy", || {
                World::of(server(&[0, 0, 1])).watched(|watch| {
                    watch
                        .grew("nic/eth2/queue/rx-0/packets", 50_000)
                        .grew("nic/eth2/queue/rx-1/packets", 50_000)
                })
            }),
        ],
        silent: &[
            ("each has its CPU", || World::of(server(&[0, 1, 2]))),
            ("every core has its queue, two of them a second", || {
                World::of(server(&[0, 1, 2, 3, 0, 1]))
            }),
            ("one of the two is idle", || {
                World::of(server(&[0, 0, 1])).watched(|watch| watch.grew("irq/100/cpu/0", 50_000))
            }),
            ("a pair without interrupts", || {
                World::of(build::veth_pair().0)
            }),
        ],
        undetermined: &[("IRQs unknown", || {
            let mut host = server(&[0, 0, 1]);
            for queue in &mut host.nics[0].queues {
                queue.irq = Known::not_asked("device/msi_irqs");
            }
            World::of(host)
        })],
    };

    /// Four CPUs; the NIC's queues interrupt `cpus`.
    #[test]
    fn a_crowd_on_one_cpu_is_a_note_although_every_core_has_a_queue() {
        // Two CPUs per core: cores 0,4 to 3,7.
        let smt = |cpus: &[u32]| {
            build::host()
                .nodes(1, 8)
                .nic("eth2", |nic| nic.queues(cpus))
                .with(|host| {
                    for cpu in &mut host.cpus {
                        let core = cpu.id.0 % 4;
                        let both = format!("{core},{}", core + 4);
                        cpu.siblings = Known::Value(both.parse().expect("a list"));
                    }
                })
                .build()
        };
        let said = finding(ID, &context(&smt(&[0, 0, 0, 1, 2, 3])));
        assert_eq!(said.severity, Severity::Note);
        assert!(
            said.summary.starts_with("CPU 0 handles 3 queues"),
            "{}",
            said.summary
        );
        assert!(silent(ID, &context(&smt(&[0, 0, 1, 2, 3]))));
    }

    fn server(cpus: &[u32]) -> Host {
        build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| nic.queues(cpus))
            .build()
    }

    /// The same with the cores 0-1 and 2-3.
    fn threaded(cpus: &[u32]) -> Host {
        let mut host = server(cpus);
        for cpu in &mut host.cpus {
            let core = if cpu.id.0 < 2 { "0-1" } else { "2-3" };
            cpu.siblings = Known::Value(core.parse().expect("a list"));
        }
        host
    }

    #[test]
    fn sharing_is_a_note_until_both_carry_traffic() {
        let host = server(&[0, 0, 1]);
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["nic/eth2/queue/rx-1/irq-cpus: 0 -> 2"]);
        let busy = (CASES.fires[1].1)();
        assert_eq!(finding(ID, &busy.context()).severity, Severity::Warn);
    }

    #[test]
    fn halves_of_a_core_count_only_when_both_are_busy() {
        let world = World::of(threaded(&[0, 1]));
        assert!(silent(ID, &world.context()));
        let busy = world.watched(|w| {
            w.grew("irq/100/cpu/0", 50_000)
                .grew("irq/101/cpu/1", 50_000)
        });
        assert_eq!(finding(ID, &busy.context()).severity, Severity::Warn);
    }

    #[test]
    fn a_thread_of_the_trial_beside_a_queue_is_a_note() {
        let host = build::host()
            .nodes(1, 6)
            .nic("eth2", |nic| nic.queues(&[0]))
            .with(|host| {
                for (at, cpu) in host.cpus.iter_mut().enumerate() {
                    let core = ["0-1", "2-3", "4-5"][at / 2];
                    cpu.siblings = Known::Value(core.parse().expect("a list"));
                }
            })
            .build();
        let sample = build::sample().cpus(1, 1).shared_kernel().build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Note);
        assert!(silent(ID, &context(&host)));
    }
}
