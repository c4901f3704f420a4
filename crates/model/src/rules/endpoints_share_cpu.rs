//! `endpoints-share-cpu`: sender and receiver share one CPU while others are idle. The CPUs of pinned threads come
//! from the trial; for unpinned threads, the CPU that both last ran on counts only together with their CPU time
//! (proc(5)).

use std::collections::BTreeSet;

use super::{Draft, found, undetermined};
use crate::ceiling::same_kernel;
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::Host;
use crate::ids::{CpuId, CpuSet};
use crate::known::{Cause, Gap, Known};
use crate::plan::{Change, End};
use crate::sample::{FlowRecord, Sample};
use crate::setting::{Class, SettingKey, TrialKnob, Value};

pub(super) const RULE: Rule = Rule {
    id: "endpoints-share-cpu",
    number: 102,
    status: Status::Implemented,
    title: "sender and receiver share one CPU while others are idle",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: &[
        Profile::Throughput,
        Profile::Latency,
        Profile::Mixed,
        Profile::Measurement,
    ],
    judges_by: &[Basis::Trial],
    threshold: "all threads of both ends on one CPU, and another CPU online; if they are not pinned, also: \
                they use 80 % of that CPU and no other CPU is more than 20 % busy",
    effect: "15 -> 18 Gb/s for one flow over veth (measured for linerate, Linux 6.18, two CPUs)",
    source: "sched_setaffinity(2); Documentation/networking/scaling.rst",
    fix: Fix::Proposed(&[Class::R0]),
    persist: "the program's own placement: systemd CPUAffinity=, taskset, or linerate's --place",
    contested: None,
    page: include_str!("../../../../docs/rules/endpoints-share-cpu.md"),
    check,
};

/// Unpinned threads that together had this share of one CPU, and at most all of it, ...
const TOGETHER_LEAST: f64 = 0.8;
const TOGETHER_MOST: f64 = 1.02;
/// ... while no other CPU was busier than this, really ran on that one.
const OTHERS_MOST: f64 = 0.2;

/// The CPU that every thread of both ends of `sample` ran on, if there is one.
pub(crate) fn shared_cpu(sample: &Sample) -> Result<Option<CpuId>, Vec<Gap>> {
    if !sample.shared_kernel {
        return Ok(None);
    }
    let flows = || sample.local.flows.iter().chain(&sample.remote.flows);
    let cpus: BTreeSet<CpuId> = flows().filter_map(FlowRecord::cpu).collect();
    if cpus.len() > 1 {
        return Ok(None);
    }
    let missing: Vec<Gap> = flows()
        .filter(|flow| flow.pinned_to.is_none())
        .filter_map(|flow| flow.last_cpu.gap().cloned())
        .collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let Some(cpu) = cpus.first().copied() else {
        return Ok(None);
    };
    if flows().all(|flow| flow.pinned_to.is_some()) {
        return Ok(Some(cpu));
    }
    // Two unpinned threads may end on the same CPU by chance; their CPU times show whether they shared it.
    let together: f64 = [&sample.local, &sample.remote]
        .into_iter()
        .flat_map(|side| {
            side.flows
                .iter()
                .map(|flow| flow.cpu_share(side.elapsed_ns))
        })
        .flatten()
        .map(crate::units::Ratio::as_f64)
        .sum();
    if !(TOGETHER_LEAST..=TOGETHER_MOST).contains(&together) {
        return Ok(None);
    }
    match &sample.local.cpu.machine {
        Known::Unknown(gap) => Err(vec![gap.clone()]),
        Known::Value(machine) => {
            let others_idle = machine
                .iter()
                .filter(|times| times.cpu != cpu)
                .all(|times| {
                    times.busy().as_secs_f64() <= OTHERS_MOST * times.total().as_secs_f64()
                });
            Ok(others_idle.then_some(cpu))
        }
    }
}

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    // One finding for the pair, at the end that decides the placement.
    let (End::Local, Some(other)) = (context.end, context.other) else {
        return Vec::new();
    };
    let unsure = |missing| vec![undetermined(rule, context, "host".to_owned(), missing)];
    let Some(sample) = context.sample else {
        if !same_kernel(context.host, other) {
            return Vec::new();
        }
        let why = "no trial recorded where the threads of both ends run";
        return unsure(vec![Gap::new(Cause::NotAsked, "sample", why)]);
    };
    let cpu = match shared_cpu(sample) {
        Ok(Some(cpu)) => cpu,
        Ok(None) => return Vec::new(),
        Err(missing) => return unsure(missing),
    };
    let Some(free) = other_cpu(context.host, cpu) else {
        let unknown: Vec<Gap> = context
            .host
            .cpus
            .iter()
            .filter_map(|cpu| cpu.online.gap().cloned())
            .collect();
        return if unknown.is_empty() {
            Vec::new()
        } else {
            unsure(unknown)
        };
    };
    let pinned = sample
        .local
        .flows
        .iter()
        .all(|flow| flow.pinned_to.is_some());
    let how = if pinned { "pinned to" } else { "last on" };
    let evidence = vec![
        Evidence::new(
            "CPU of every sending and receiving thread",
            format!("{how} {cpu}"),
            "the trial",
        ),
        Evidence::new(
            "CPUs online",
            context.host.online_cpus(),
            "/sys/devices/system/cpu/online",
        ),
    ];
    let change = Change {
        setting: SettingKey::Trial(TrialKnob::SenderCpus),
        from: Value::Text(sample.spec.placement.sender_cpus.to_string()),
        to: Value::Text(CpuSet::one(free).to_string()),
    };
    let remedy = Remedy {
        end: End::Local,
        class: change.setting.spec().class,
        change,
    };
    vec![found(
        rule,
        context,
        Draft {
            severity: Severity::Warn,
            subject: format!("cpu/{cpu}"),
            summary: format!("sender and receiver share CPU {cpu}: place the sender on CPU {free}"),
            evidence,
            remedies: vec![remedy],
        },
    )]
}

/// The best other online CPU: on the same node (it shares the memory), and not an SMT sibling (it would share the
/// core).
fn other_cpu(host: &Host, taken: CpuId) -> Option<CpuId> {
    let of = |id: CpuId| host.cpu(id);
    let node = of(taken).and_then(|cpu| cpu.node.get());
    let siblings = of(taken)
        .and_then(|cpu| cpu.siblings.value().cloned())
        .unwrap_or_default();
    host.online_cpus()
        .iter()
        .filter(|cpu| *cpu != taken)
        .min_by_key(|cpu| {
            let far = of(*cpu).and_then(|cpu| cpu.node.get()) != node;
            (far, siblings.contains(*cpu), *cpu)
        })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, missing, remedies, silent, with_trial};
    use super::*;
    use crate::build::{self, SampleBuilder};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("both pinned to CPU 0", || {
            let (near, far) = build::veth_pair();
            let sample = on_one_cpu().pinned().build();
            World::of(near).towards(far).tried(sample)
        })],
        silent: &[("pinned apart", || {
            let (near, far) = build::veth_pair();
            let sample = build::sample().shared_kernel().pinned().build();
            World::of(near).towards(far).tried(sample)
        })],
        undetermined: &[("no trial", || {
            let (near, far) = build::veth_pair();
            World::of(near).towards(far)
        })],
    };

    fn on_one_cpu() -> SampleBuilder {
        build::sample()
            .shared_kernel()
            .cpus(0, 0)
            .cpu_share(0.5, 0.48)
    }

    #[test]
    fn both_pinned_to_one_cpu_the_sender_moves_to_another() {
        let (near, far) = build::veth_pair();
        let sample = on_one_cpu().pinned().build();
        let said = finding(ID, &with_trial(&near, &far, &sample));
        assert_eq!(
            (said.severity, said.subject.as_str()),
            (Severity::Warn, "cpu/0")
        );
        assert_eq!(remedies(&said), ["placement/sender-cpus: 0 -> 1"]);
    }

    #[test]
    fn unpinned_threads_that_shared_a_cpu_are_found_by_their_times() {
        let (near, far) = build::veth_pair();
        let sample = on_one_cpu().build();
        let said = finding(ID, &with_trial(&near, &far, &sample));
        assert_eq!(remedies(&said), ["placement/sender-cpus: none -> 1"]);
    }

    #[test]
    fn ending_on_the_same_cpu_by_chance_is_no_fault() {
        let (near, far) = build::veth_pair();
        let both_busy = on_one_cpu().cpu_share(0.9, 0.8).build();
        assert!(silent(ID, &with_trial(&near, &far, &both_busy)));
        let mut other_busy = on_one_cpu().build();
        let Known::Value(machine) = &mut other_busy.local.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        machine[1].system_ns = machine[1].idle_ns;
        assert!(silent(ID, &with_trial(&near, &far, &other_busy)));
    }

    #[test]
    fn two_machines_two_cpus_and_a_machine_of_one_cpu_are_no_fault() {
        let (near, far) = build::veth_pair();
        let apart = build::sample().shared_kernel().pinned().build();
        assert!(silent(ID, &with_trial(&near, &far, &apart)));
        let mut two_machines = on_one_cpu().pinned().build();
        two_machines.shared_kernel = false;
        assert!(silent(ID, &with_trial(&near, &far, &two_machines)));
        let single = build::host().nodes(1, 1).build();
        let sample = on_one_cpu().pinned().build();
        assert!(silent(ID, &with_trial(&single, &single, &sample)));
    }

    #[test]
    fn the_far_end_does_not_say_it_again() {
        let (near, far) = build::veth_pair();
        let sample = on_one_cpu().pinned().build();
        let context = Context {
            end: End::Remote,
            ..with_trial(&far, &near, &sample)
        };
        assert!(silent(ID, &context));
    }

    #[test]
    fn without_a_trial_or_its_cpus_it_is_not_passed() {
        let (near, far) = build::veth_pair();
        let mut sample = on_one_cpu().build();
        let untried = Context {
            sample: None,
            ..with_trial(&near, &far, &sample)
        };
        assert_eq!(missing(ID, &untried)[0].cause, Cause::NotAsked);
        sample.remote.flows[0].last_cpu = Known::not_asked("/proc/thread-self/stat");
        assert_eq!(missing(ID, &with_trial(&near, &far, &sample)).len(), 1);
        let mut sample = on_one_cpu().build();
        sample.local.cpu.machine = Known::not_asked("/proc/stat");
        assert_eq!(
            missing(ID, &with_trial(&near, &far, &sample))[0].path,
            "/proc/stat"
        );
    }

    #[test]
    fn the_other_cpu_is_near_and_of_another_core() {
        let mut host = build::host().nodes(2, 4).build();
        let pair: CpuSet = "0-1".parse().expect("a list");
        host.cpus[0].siblings = Known::Value(pair);
        assert_eq!(other_cpu(&host, CpuId(0)), Some(CpuId(2)));
        assert_eq!(other_cpu(&host, CpuId(5)), Some(CpuId(4)));
    }
}
