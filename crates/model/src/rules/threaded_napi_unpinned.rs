//! `threaded-napi-unpinned`: threaded NAPI: the polling threads are not pinned to the CPU of their
//! interrupt. Facts from Documentation/networking/napi.rst, "Threaded NAPI": pin each to the CPU of its
//! interrupt.

use super::spreading::needed;
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Host, Napi, Nic, NicKind};
use crate::ids::CpuSet;
use crate::known::Gap;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "threaded-napi-unpinned",
    number: 21,
    status: Status::Implemented,
    title: "threaded NAPI: the polling threads are not pinned to the CPU of their interrupt",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "threaded NAPI is on, and a polling thread is allowed on every CPU, or on none that handles its \
                interrupt",
    effect: "packets stay on one CPU instead of following the scheduler; no general figure",
    source: "Documentation/networking/napi.rst (threaded NAPI)",
    fix: Fix::Advised(&[Class::R1]),
    persist: "a systemd unit at boot and after every reset of the NIC",
    contested: None,
    page: include_str!("../../../../docs/rules/threaded-napi-unpinned.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.online_cpus().len() < 2 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if !(nic.kind.has_wire() || nic.kind == NicKind::Veth) {
        return None;
    }
    let unsure = |gap: &Gap| Some(undetermined(rule, context, subject(nic), vec![gap.clone()]));
    match nic.dispatch.threaded.ok() {
        Ok(true) => {}
        Ok(false) => return None,
        // An older kernel has no such threads.
        Err(gap) => return unsure(&needed(gap)?),
    }
    let napis = match nic.dispatch.napis.ok() {
        Ok(napis) => napis,
        Err(gap) => return unsure(gap),
    };
    let loose: Vec<(&Napi, &CpuSet, Option<CpuSet>)> = napis
        .iter()
        .filter_map(|napi| loose(context.host, napi))
        .collect();
    if loose.is_empty() {
        let gap = napis
            .iter()
            .find_map(|napi| napi.thread.gap().or(napi.thread_cpus.gap()));
        return gap.and_then(unsure);
    }
    let mut evidence = vec![Evidence::new(
        "threaded NAPI",
        "on",
        format!("/sys/class/net/{}/threaded", nic.name),
    )];
    for (napi, cpus, irq) in &loose {
        let thread = napi
            .thread
            .get()
            .map_or_else(String::new, |pid| pid.to_string());
        evidence.push(Evidence::new(
            format!("CPUs allowed to thread {thread} of NAPI {}", napi.id),
            cpus,
            format!("/proc/{thread}/status"),
        ));
        let takes = napi.irq.get().zip(irq.as_ref());
        evidence.extend(takes.map(|(number, cpus)| {
            Evidence::new(
                format!("CPUs of its IRQ {number}"),
                cpus,
                format!("/proc/irq/{number}/effective_affinity_list"),
            )
        }));
    }
    let said = Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} of {} NAPI threads of {} are not pinned to the CPU of their interrupt: pin them (taskset -p)",
            loose.len(),
            napis.len(),
            nic.name
        ),
        evidence,
        remedies: Vec::new(),
    };
    Some(found(rule, context, said))
}

/// A NAPI instance whose thread may run anywhere, or only on other CPUs than its interrupt.
fn loose<'a>(host: &Host, napi: &'a Napi) -> Option<(&'a Napi, &'a CpuSet, Option<CpuSet>)> {
    let cpus = napi.thread_cpus.value()?;
    let irq = napi.irq.get().and_then(|number| {
        let irq = host.irq(number)?;
        irq.effective.value().cloned()
    });
    let anywhere = host.online_cpus().is_subset(cpus);
    let away = irq
        .as_ref()
        .is_some_and(|irq| !irq.is_empty() && irq.is_disjoint(cpus));
    (anywhere || away).then_some((napi, cpus, irq))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::ids::IrqNumber;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("anywhere", || World::of(server(true, "0-3"))),
            ("away from the interrupt", || World::of(server(true, "2-3"))),
        ],
        silent: &[
            ("pinned to it", || World::of(server(true, "0"))),
            ("no threads", || World::of(server(false, "0-3"))),
            ("an older kernel", || {
                let mut host = server(true, "0-3");
                host.nics[0].dispatch.threaded =
                    Known::unknown(Cause::Absent, "threaded", "no such file");
                World::of(host)
            }),
        ],
        undetermined: &[
            ("nobody asked for the threads", || {
                let mut host = server(true, "0-3");
                host.nics[0].dispatch.napis = Known::not_asked("netlink netdev napi-get eth2");
                World::of(host)
            }),
            ("nobody asked whether there are any", || {
                let mut host = server(true, "0-3");
                host.nics[0].dispatch.threaded = Known::not_asked("threaded");
                World::of(host)
            }),
        ],
    };

    fn server(threaded: bool, cpus: &str) -> Host {
        let napi = Napi {
            id: 8193,
            irq: Known::Value(IrqNumber(100)),
            thread: Known::Value(4711),
            thread_cpus: Known::Value(cpus.parse().expect("a list")),
            rx_queues: vec![0],
            tx_queues: vec![0],
            gro_flush_timeout_ns: Known::Value(0),
            defer_hard_irqs: Known::Value(0),
            irq_suspend_timeout_ns: Known::Value(0),
        };
        build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| {
                nic.queues(&[0]).with(|nic| {
                    nic.dispatch.threaded = Known::Value(threaded);
                    nic.dispatch.napis = Known::Value(vec![napi]);
                })
            })
            .build()
    }

    #[test]
    fn the_thread_and_its_interrupt_are_named() {
        let said = finding(ID, &context(&server(true, "0-3")));
        assert_eq!(said.severity, Severity::Note);
        let paths: Vec<&str> = said.evidence.iter().map(|one| one.path.as_str()).collect();
        assert!(paths.contains(&"/proc/4711/status"), "{paths:?}");
        assert!(paths.contains(&"/proc/irq/100/effective_affinity_list"));
    }
}
