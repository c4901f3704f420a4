//! `rps-wrong`: RPS is redundant, missing, or targets unsuitable CPUs. Facts from
//! Documentation/networking/scaling.rst, "RPS: Receive Packet Steering".

use super::spreading::{
    brief, homes, in_use, kept_apart, local_cpus, queue_file, siblings, softirq_evidence,
    softirq_share, taken, workers,
};
use super::{Draft, each_nic, found, remedy, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, Queue, QueueKind};
use crate::ids::CpuSet;
use crate::known::Known;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "rps-wrong",
    number: 12,
    status: Status::Implemented,
    title: "RPS is redundant, missing, or targets unsuitable CPUs",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: &[
        Profile::Throughput,
        Profile::Latency,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ],
    judges_by: &[Basis::Facts, Basis::Counters, Basis::Trial],
    threshold: "warn: RPS of all queues targets one CPU of several, only CPUs of the trial's threads, or only \
                a remote node; or no RPS while the CPU of the only queue has more than 80 % softirq; note: as \
                many queues as CPUs, or a mask that includes the IRQ's core, a remote node or isolated CPUs \
                (role latency: warn)",
    effect: "saves an inter-processor interrupt and a backlog queue; contested, measure it",
    source: "Documentation/networking/scaling.rst; amzn-drivers, ENA_Linux_Best_Practices.rst; \
             openshift/cluster-node-tuning-operator#1370",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot; net.core.rps_default_mask for new queues",
    contested: Some(
        "the ENA guide recommends RPS where CPUs outnumber queues; OpenShift turned it off by default",
    ),
    page: include_str!("../../../../docs/rules/rps-wrong.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

/// Above this softirq share the CPU of a single queue needs help.
const SATURATED: f64 = 0.8;

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let queues: Vec<&Queue> = nic
        .queues
        .iter()
        .filter(|q| q.kind == QueueKind::Rx)
        .collect();
    let missing: Vec<_> = queues
        .iter()
        .filter_map(|q| q.rps_cpus.gap().cloned())
        .collect();
    let steered: Vec<(&Queue, &CpuSet)> = queues
        .iter()
        .filter_map(|queue| Some((*queue, queue.rps_cpus.value()?)))
        .filter(|(_, cpus)| !cpus.is_empty())
        .collect();
    if steered.is_empty() && missing.is_empty() {
        return needed_and_off(rule, context, nic);
    }
    let fault =
        fault(context, queues.len(), &steered).or_else(|| misplaced(context, nic, &steered));
    let Some((severity, why)) = fault else {
        let unsure = !missing.is_empty();
        return unsure.then(|| undetermined(rule, context, subject(nic), missing));
    };
    let irqs = taken(&in_use(nic, QueueKind::Rx));
    let evidence = steered
        .iter()
        .map(|(queue, cpus)| {
            Evidence::new(
                format!("rps_cpus of rx-{}", queue.index),
                cpus,
                queue_file(nic, queue, "rps_cpus"),
            )
        })
        .chain([Evidence::new(
            "CPUs online",
            context.host.online_cpus(),
            "/sys/devices/system/cpu/online",
        )])
        .chain(irqs.iter().map(|taken| taken.evidence(context.host)))
        .chain(by_default(context))
        .collect();
    let remedies = steered
        .iter()
        .filter_map(|(queue, _)| {
            let key = SettingKey::Nic(nic.name.clone(), NicKnob::RpsCpus(queue.index));
            remedy(context, key, Value::Text(String::new()))
        })
        .collect();
    Some(found(
        rule,
        context,
        Draft {
            severity,
            subject: subject(nic),
            summary: format!("RPS of {}: {why}; try it off", nic.name),
            evidence,
            remedies,
        },
    ))
}

/// The default mask of new queues, if set.
fn by_default(context: &Context<'_>) -> Option<Evidence> {
    let mask = context.host.sysctl("net.core.rps_default_mask");
    let mask = mask.value()?;
    CpuSet::from_mask(mask)
        .is_ok_and(|cpus| !cpus.is_empty())
        .then(|| {
            let path = "/proc/sys/net/core/rps_default_mask";
            Evidence::new("rps_default_mask", mask, path)
        })
}

/// The RPS faults, worst first.
fn fault(
    context: &Context<'_>,
    queues: usize,
    steered: &[(&Queue, &CpuSet)],
) -> Option<(Severity, String)> {
    let online = context.host.online_cpus();
    let targets = targets(context, steered);
    if targets.is_empty() || online.len() < 2 {
        return None;
    }
    let workers = workers(context);
    if !workers.is_empty() && targets.is_subset(&workers) && workers != online {
        let why = format!(
            "it targets only CPUs {}, which ran the trial's threads",
            brief(&targets)
        );
        return Some((Severity::Warn, why));
    }
    if targets.len() == 1 {
        let why = format!(
            "it sends every packet to CPU {targets}, one of {}",
            online.len()
        );
        return Some((Severity::Warn, why));
    }
    (queues >= online.len()).then(|| {
        let why = format!(
            "{queues} receive queues already cover {} CPUs",
            online.len()
        );
        (Severity::Note, why)
    })
}

/// The online CPUs in the RPS mask.
fn targets(context: &Context<'_>, steered: &[(&Queue, &CpuSet)]) -> CpuSet {
    let all: CpuSet = steered.iter().flat_map(|(_, cpus)| cpus.iter()).collect();
    all.and(&context.host.online_cpus())
}

/// RPS to unsuitable CPUs, worst first.
fn misplaced(
    context: &Context<'_>,
    nic: &Nic,
    steered: &[(&Queue, &CpuSet)],
) -> Option<(Severity, String)> {
    let targets = targets(context, steered);
    if targets.is_empty() || context.host.online_cpus().len() < 2 {
        return None;
    }
    let apart = targets.and(&kept_apart(context.host));
    let latency = context.profile == Profile::Latency;
    let far = match local_cpus(context.host, nic) {
        Known::Value((near, _)) if nic.kind.has_wire() && !near.is_empty() => targets.minus(&near),
        _ => CpuSet::empty(),
    };
    if far == targets {
        let why = format!("it targets only CPUs of a remote node, {}", brief(&far));
        return Some((Severity::Warn, why));
    }
    if !apart.is_empty() {
        let severity = if latency {
            Severity::Warn
        } else {
            Severity::Note
        };
        return Some((
            severity,
            format!("it targets the isolated CPUs {}", brief(&apart)),
        ));
    }
    if !far.is_empty() {
        let why = format!("it includes CPUs of a remote node, {}", brief(&far));
        return Some((Severity::Note, why));
    }
    steered.iter().find_map(|(queue, cpus)| {
        let irq = queue.cpus.value().filter(|_| nic.kind.has_wire())?;
        let core: CpuSet = irq
            .iter()
            .flat_map(|cpu| siblings(context.host, cpu).iter().collect::<Vec<_>>())
            .collect();
        let shared = cpus.and(&core);
        (!shared.is_empty()).then(|| {
            let why = format!(
                "the mask of rx-{} includes CPUs {}, the core that handles its interrupt",
                queue.index,
                brief(&shared)
            );
            (Severity::Note, why)
        })
    })
}

/// One queue, no RPS, and its CPU is saturated: RPS may help.
fn needed_and_off(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let watch = context.watch?;
    let queues = in_use(nic, QueueKind::Rx);
    let [queue] = queues.as_slice() else {
        return None;
    };
    let irqs = taken(&queues);
    let only = irqs.first().filter(|_| nic.kind.has_wire())?;
    let cpu = only.cpus.first()?;
    let busy = softirq_share(watch, cpu).get()?;
    let others = homes(context.host, nic).minus(&siblings(context.host, cpu));
    if busy <= SATURATED || others.is_empty() {
        return None;
    }
    let off = Evidence::new(
        format!("rps_cpus of rx-{}", queue.index),
        "none",
        queue_file(nic, queue, "rps_cpus"),
    );
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::RpsCpus(queue.index));
    let to = Value::Text(others.to_string());
    let said = Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "the only queue of {} saturates CPU {cpu} with softirq: try RPS to CPUs {}",
            nic.name,
            brief(&others)
        ),
        evidence: vec![
            softirq_evidence(watch, cpu, busy),
            only.evidence(context.host),
            off,
        ],
        remedies: remedy(context, key, to).into_iter().collect(),
    };
    Some(found(rule, context, said))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{
        Cases, World, context, finding, missing, remedies, silent, with_trial,
    };
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("one CPU for all packets", || World::of(veth("1")))],
        silent: &[("off", || World::of(veth("")))],
        undetermined: &[("the mask cannot be read", || {
            let mut host = veth("");
            host.nics[0].queues[0].rps_cpus = Known::not_asked("rps_cpus");
            World::of(host)
        })],
    };

    fn veth(rps: &str) -> Host {
        build::host()
            .nodes(1, 4)
            .nic("far0", |nic| nic.veth().rps(rps))
            .build()
    }

    #[test]
    fn one_cpu_for_all_packets_is_warned_about_and_off_is_tried() {
        let host = veth("1");
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["nic/far0/queue/rx-0/rps-cpus: 1 -> none"]);
    }

    #[test]
    fn steering_onto_the_cpus_of_the_trial_is_warned_about() {
        let host = veth("0-1");
        let sample = build::sample().shared_kernel().build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert!(
            said.summary.contains("ran the trial's threads"),
            "{}",
            said.summary
        );
        assert!(
            silent(ID, &context(&host)),
            "without a trial nobody works there"
        );
    }

    #[test]
    fn steering_with_a_queue_for_each_cpu_is_a_note() {
        let host = build::host()
            .nic("eth0", |nic| nic.queues(&[0, 1]).rps("0-1"))
            .build();
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn no_steering_and_spreading_over_idle_cpus_are_no_fault() {
        assert!(silent(ID, &context(&veth(""))));
        let host = veth("2-3");
        let sample = build::sample().shared_kernel().build();
        assert!(silent(ID, &with_trial(&host, &host, &sample)));
        let single = build::host()
            .nodes(1, 1)
            .nic("far0", |nic| nic.veth().rps("0"))
            .build();
        assert!(silent(ID, &context(&single)), "there is no other CPU");
    }

    #[test]
    fn an_unknown_mask_is_not_passed() {
        let mut host = veth("");
        host.nics[0].queues[0].rps_cpus = Known::not_asked("rps_cpus");
        assert_eq!(missing(ID, &context(&host))[0].path, "rps_cpus");
    }

    #[test]
    fn a_mask_with_a_remote_node_isolated_cpus_or_the_core_of_the_interrupt_is_found() {
        let server = |rps: &str| {
            build::host()
                .nodes(2, 4)
                .nic("eth2", |nic| nic.node(1).queues(&[4]).rps(rps))
                .build()
        };
        let far = finding(ID, &context(&server("0-3")));
        assert_eq!(far.severity, Severity::Warn);
        assert!(far.summary.contains("remote node"), "{}", far.summary);
        assert_eq!(
            finding(ID, &context(&server("3,5-7"))).severity,
            Severity::Note
        );
        let core = finding(ID, &context(&server("4-7")));
        assert!(core.summary.contains("CPUs 4"), "{}", core.summary);
        assert!(silent(ID, &context(&server("5-7"))));
        let mut apart = server("5-7");
        apart.isolation.isolated = Known::Value("7".parse().expect("a list"));
        assert_eq!(finding(ID, &context(&apart)).severity, Severity::Note);
        let latency = World::of(apart).profile(Profile::Latency);
        assert_eq!(finding(ID, &latency.context()).severity, Severity::Warn);
    }

    #[test]
    fn a_saturated_lone_queue_without_steering_is_found() {
        let host = build::host()
            .nodes(1, 4)
            .nic("eth0", |nic| nic.queues(&[0]))
            .build();
        let world = World::of(host).watched(|watch| watch.softirq(0, 0.9));
        let said = finding(ID, &world.context());
        assert_eq!(
            remedies(&said),
            ["nic/eth0/queue/rx-0/rps-cpus: none -> 1-3"]
        );
    }
}
