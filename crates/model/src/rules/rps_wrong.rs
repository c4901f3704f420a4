//! `rps-wrong`: receive packet steering (`rps_cpus`) sends packets where they should not go. Facts from
//! Documentation/networking/scaling.rst, "RPS: Receive Packet Steering".

use std::collections::BTreeSet;

use super::{Said, each_nic, found, remedy, subject, undetermined};
use crate::finding::{Evidence, Outcome, Profile, Rule, Scene, Severity, Stage};
use crate::host::{Nic, Queue, QueueKind};
use crate::ids::CpuSet;
use crate::plan::End;
use crate::sample::{FlowRecord, SideSample};
use crate::setting::{NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "rps-wrong",
    number: 12,
    title: "receive packet steering loads one CPU, or one that has other work, or is not needed",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: &[
        Profile::Throughput,
        Profile::Latency,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ],
    threshold: "warn: all queues steered to one CPU of several, or only to CPUs that ran the trial's \
                threads; note: steering with as many receive queues as CPUs",
    effect: "an interrupt between CPUs and a second queue for every packet; contested, measure it \
             (OpenShift turned RPS off by default, the ENA guide advises it for more CPUs than queues)",
    source: "Documentation/networking/scaling.rst; research/rules.md rule 12",
    persist: "a unit that runs at boot; net.core.rps_default_mask for new queues",
    contested: Some("the ENA guide recommends it where CPUs outnumber queues; OpenShift turned it off by default"),
    page: include_str!("../../../../docs/rules/rps-wrong.md"),
    check,
};

fn check(rule: &Rule, scene: &Scene<'_>) -> Vec<Outcome> {
    each_nic(rule, scene, |nic| check_nic(rule, scene, nic))
}

fn check_nic(rule: &Rule, scene: &Scene<'_>, nic: &Nic) -> Option<Outcome> {
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
    let Some((severity, why)) = fault(scene, queues.len(), &steered) else {
        let unsure = !missing.is_empty();
        return unsure.then(|| undetermined(rule, scene, subject(nic), missing));
    };
    let evidence = steered
        .iter()
        .map(|(queue, cpus)| {
            Evidence::new(
                format!("CPUs that queue rx-{} is steered to", queue.index),
                cpus,
                format!(
                    "/sys/class/net/{}/queues/rx-{}/rps_cpus",
                    nic.name, queue.index
                ),
            )
        })
        .chain([Evidence::new(
            "CPUs online",
            scene.host.online_cpus(),
            "/sys/devices/system/cpu/online",
        )])
        .collect();
    let remedies = steered
        .iter()
        .filter_map(|(queue, _)| {
            let key = SettingKey::Nic(nic.name.clone(), NicKnob::RpsCpus(queue.index));
            remedy(scene, key, Value::Text(String::new()))
        })
        .collect();
    Some(found(
        rule,
        scene,
        Said {
            severity,
            subject: subject(nic),
            summary: format!("receive packet steering of {}: {why}; try it off", nic.name),
            evidence,
            remedies,
        },
    ))
}

/// What is wrong with the steering, worst first.
fn fault(
    scene: &Scene<'_>,
    queues: usize,
    steered: &[(&Queue, &CpuSet)],
) -> Option<(Severity, String)> {
    let online = scene.host.online_cpus();
    let targets: CpuSet = steered
        .iter()
        .flat_map(|(_, cpus)| cpus.iter())
        .filter(|cpu| online.contains(*cpu))
        .collect();
    if targets.is_empty() || online.len() < 2 {
        return None;
    }
    let workers = workers(scene);
    if !workers.is_empty() && targets.is_subset(&workers) && workers != online {
        let why = format!("packets go only to CPUs {targets}, which ran the trial's threads");
        return Some((Severity::Warn, why));
    }
    if targets.len() == 1 {
        let why = format!(
            "every packet goes to CPU {targets}, one of {}",
            online.len()
        );
        return Some((Severity::Warn, why));
    }
    (queues >= online.len()).then(|| {
        let why = format!(
            "{queues} receive queues for {} CPUs spread already",
            online.len()
        );
        (Severity::Note, why)
    })
}

/// The CPUs of the trial's threads on this host: of both ends, where they share a kernel.
fn workers(scene: &Scene<'_>) -> CpuSet {
    let Some(sample) = scene.sample else {
        return CpuSet::empty();
    };
    let own = match scene.end {
        End::Local => &sample.local,
        End::Remote => &sample.remote,
    };
    let both = [&sample.local, &sample.remote];
    let sides: &[&SideSample] = if sample.shared_kernel { &both } else { &[own] };
    let cpus: BTreeSet<_> = sides
        .iter()
        .flat_map(|side| &side.flows)
        .filter_map(FlowRecord::cpu)
        .collect();
    cpus.into_iter().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, missing, remedies, scene, silent, with_trial};
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
        let said = finding(ID, &scene(&host));
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
            silent(ID, &scene(&host)),
            "without a trial nobody works there"
        );
    }

    #[test]
    fn steering_with_a_queue_for_each_cpu_is_a_note() {
        let host = build::host()
            .nic("eth0", |nic| nic.queues(&[0, 1]).rps("0-1"))
            .build();
        assert_eq!(finding(ID, &scene(&host)).severity, Severity::Note);
    }

    #[test]
    fn no_steering_and_spreading_over_idle_cpus_are_no_fault() {
        assert!(silent(ID, &scene(&veth(""))));
        let host = veth("2-3");
        let sample = build::sample().shared_kernel().build();
        assert!(silent(ID, &with_trial(&host, &host, &sample)));
        let single = build::host()
            .nodes(1, 1)
            .nic("far0", |nic| nic.veth().rps("0"))
            .build();
        assert!(silent(ID, &scene(&single)), "there is no other CPU");
    }

    #[test]
    fn an_unknown_mask_is_not_passed() {
        let mut host = veth("");
        host.nics[0].queues[0].rps_cpus = Known::not_asked("rps_cpus");
        assert_eq!(missing(ID, &scene(&host))[0].path, "rps_cpus");
    }
}
