//! `isolation-misuse`: isolated CPUs receive general work, or are unused.
//! Documentation/admin-guide/kernel-parameters.txt (`isolcpus=`, `nohz_full=`), Documentation/core-api/
//! workqueue.rst.

use super::facts::{answer, need};
use super::{ALWAYS, Draft, nics};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::SocketOwner;
use crate::ids::CpuSet;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "isolation-misuse",
    number: 55,
    status: Status::Implemented,
    title: "isolated CPUs receive general work, or are unused",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a CPU of isolcpus= or nohz_full= in rps_cpus (warn) or in the workqueue cpumask (note); a \
                multi-threaded program allowed on several isolated CPUs, or no program allowed on any (note)",
    effect: "isolated CPUs are unavailable to all other work; no general figure, measure it",
    source: "Documentation/admin-guide/kernel-parameters.txt (isolcpus=, nohz_full=); \
             Documentation/core-api/workqueue.rst",
    fix: Fix::Advised(&[Class::R4]),
    persist: "the kernel command line, or cpuset partitions",
    contested: None,
    page: include_str!("../../../../docs/rules/isolation-misuse.md"),
    check,
};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let facts = &context.host.isolation;
    let mut missing = Vec::new();
    let isolated = need(&facts.isolated, &mut missing)
        .cloned()
        .unwrap_or_default();
    let tickless = need(&facts.nohz_full, &mut missing)
        .cloned()
        .unwrap_or_default();
    let kept: CpuSet = isolated.iter().chain(tickless.iter()).collect();
    let mut said = Vec::new();
    if !kept.is_empty() {
        said.extend(steered(context, &kept));
        if let Some(cpus) = need(&facts.workqueue_cpus, &mut missing) {
            said.extend(unbound(&kept, cpus));
        }
    }
    if !isolated.is_empty()
        && let Some(owners) = need(&context.host.software.socket_owners, &mut missing)
    {
        said.extend(
            owners
                .iter()
                .filter_map(|owner| unbalanced(&isolated, owner)),
        );
        said.extend(unused(context, &isolated, owners));
    }
    answer(rule, context, "host", said, missing)
}

fn finding(
    severity: Severity,
    summary: String,
    kept: &CpuSet,
    evidence: impl IntoIterator<Item = Evidence>,
) -> Draft {
    let mut all = vec![Evidence::new(
        "isolated CPUs",
        kept,
        format!("{ISOLATED}, {NOHZ_FULL}"),
    )];
    all.extend(evidence);
    Draft {
        severity,
        subject: "host".to_owned(),
        summary,
        evidence: all,
        remedies: Vec::new(),
    }
}

fn steered(context: &Context<'_>, kept: &CpuSet) -> Option<Draft> {
    let mut evidence = Vec::new();
    let mut hit = Vec::new();
    for nic in nics(context) {
        for queue in &nic.queues {
            let Some(cpus) = queue
                .rps_cpus
                .value()
                .filter(|cpus| !cpus.is_disjoint(kept))
            else {
                continue;
            };
            hit.extend(cpus.and(kept).iter());
            evidence.push(Evidence::new(
                format!("RPS of {} rx-{}", nic.name, queue.index),
                cpus,
                format!(
                    "/sys/class/net/{}/queues/rx-{}/rps_cpus",
                    nic.name, queue.index
                ),
            ));
        }
    }
    let cpus: CpuSet = hit.into_iter().collect();
    (!cpus.is_empty()).then(|| {
        let summary = format!(
            "RPS of {} queues sends packets to {} isolated CPUs: remove them from rps_cpus",
            evidence.len(),
            cpus.len()
        );
        finding(Severity::Warn, summary, kept, evidence)
    })
}

fn unbound(kept: &CpuSet, cpus: &CpuSet) -> Option<Draft> {
    (!cpus.is_disjoint(kept)).then(|| {
        let path = "/sys/devices/virtual/workqueue/cpumask";
        finding(
            Severity::Note,
            format!(
                "unbound workqueues may run on {} isolated CPUs: remove them from the workqueue cpumask",
                cpus.and(kept).len()
            ),
            kept,
            [Evidence::new("workqueue cpumask", cpus, path)],
        )
    })
}

/// The scheduler does not balance isolated CPUs: threads stay on the CPU where they started, unless the program pins
/// each of them.
fn unbalanced(isolated: &CpuSet, owner: &SocketOwner) -> Option<Draft> {
    let cpus: CpuSet = owner.cpus_allowed.value()?.trim().parse().ok()?;
    let threads = owner.threads.get()?;
    let crowd = threads > 1 && cpus.len() > 1 && cpus.is_subset(isolated);
    crowd.then(|| {
        finding(
            Severity::Note,
            format!(
                "{} has {threads} threads on {} isolated CPUs, where the scheduler does not balance: pin each \
                 thread to a CPU",
                owner.name,
                cpus.len()
            ),
            isolated,
            [
                Evidence::new(
                    format!("CPUs allowed to {}", owner.name),
                    &cpus,
                    format!("/proc/{}/status", owner.pid),
                ),
                Evidence::new("threads", threads, format!("/proc/{}/status", owner.pid)),
            ],
        )
    })
}

/// The CPUs are unused: no busy program may run there, and no interrupt is delivered there.
fn unused(context: &Context<'_>, isolated: &CpuSet, owners: &[SocketOwner]) -> Option<Draft> {
    let busy: Option<Vec<(&SocketOwner, CpuSet)>> = owners
        .iter()
        .filter(|owner| owner.connections > 0)
        .map(|owner| Some((owner, owner.cpus_allowed.value()?.trim().parse().ok()?)))
        .collect();
    let busy = busy.filter(|busy| !busy.is_empty())?;
    let taken = busy.iter().any(|(_, cpus)| !cpus.is_disjoint(isolated))
        || context.host.irqs.iter().any(|irq| {
            let goes = irq.effective.value();
            goes.is_none_or(|cpus| !cpus.is_disjoint(isolated))
        });
    (!taken).then(|| {
        let summary = format!(
            "no program with connections may use the {} isolated CPUs: pin one there, or stop isolating them",
            isolated.len()
        );
        let evidence = busy.iter().map(|(owner, cpus)| {
            Evidence::new(
                format!("CPUs allowed to {}", owner.name),
                cpus,
                format!("/proc/{}/status", owner.pid),
            )
        });
        finding(Severity::Note, summary, isolated, evidence)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("RPS to an isolated CPU", || World::of(host("2-3", "2"))),
            ("unbound work on it", || {
                let mut host = host("2-3", "");
                host.isolation.workqueue_cpus = set("0-3");
                World::of(host)
            }),
            ("many threads on several isolated CPUs", || {
                let mut host = host("2-3", "");
                host.software.socket_owners = Known::Value(vec![owner("2-3", 8)]);
                World::of(host)
            }),
            ("programs elsewhere only", || {
                let mut host = host("2-3", "");
                host.software.socket_owners = Known::Value(vec![owner("0-1", 8)]);
                World::of(host)
            }),
        ],
        silent: &[
            ("nothing is isolated", || World::of(host("", "0-3"))),
            ("a program on its own isolated CPU", || {
                let mut host = host("2-3", "0-1");
                host.software.socket_owners = Known::Value(vec![owner("3", 1)]);
                World::of(host)
            }),
        ],
        undetermined: &[("not readable", || {
            let mut host = host("", "");
            host.isolation.isolated = Known::unknown(Cause::Denied, ISOLATED, "denied");
            World::of(host)
        })],
    };

    fn set(cpus: &str) -> Known<CpuSet> {
        Known::Value(cpus.parse().expect("a test writes a CPU list"))
    }

    fn host(isolated: &str, rps: &str) -> Host {
        let mut host = build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| nic.rps(rps))
            .build();
        host.isolation.isolated = set(isolated);
        host.isolation.workqueue_cpus = set("0-1");
        host
    }

    fn owner(cpus: &str, threads: u32) -> SocketOwner {
        SocketOwner {
            pid: 77,
            name: "server".to_owned(),
            cpus_allowed: Known::Value(cpus.to_owned()),
            last_cpu: Known::Value(0),
            node_pages: Known::Value(Vec::new()),
            connections: 3,
            threads: Known::Value(threads),
        }
    }
}
