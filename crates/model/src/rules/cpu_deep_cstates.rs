//! `cpu-deep-cstates`: deep idle states (C-states) are enabled. Documentation/admin-guide/pm/cpuidle.rst
//! (idle states and PM QoS).

use super::facts::{answer, need};
use super::{Draft, remedy};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::IdleState;
use crate::ids::CpuSet;
use crate::setting::{Class, MachineKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "cpu-deep-cstates",
    number: 52,
    status: Status::InPart("checks which states are enabled, not the time spent in them"),
    title: "deep idle states (C-states) are enabled",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: &[Profile::Latency],
    judges_by: &[Basis::Facts],
    threshold: "an idle state with an exit latency above 10 us is enabled on some CPU and not forbidden by \
                /dev/cpu_dma_latency; role latency only",
    effect: "1.2 ms of LAN ping time on one idle router (slava.cc); not verified on servers, measure it",
    source: "Documentation/admin-guide/pm/cpuidle.rst; Documentation/power/pm_qos_interface.rst",
    fix: Fix::Proposed(&[Class::R0]),
    persist: "a service that holds /dev/cpu_dma_latency open, or TuneD's profile network-latency",
    contested: None,
    page: include_str!("../../../../docs/rules/cpu-deep-cstates.md"),
    check,
};

const LATENCY_US: u32 = 10;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    let states = need(&context.host.power.idle_states, &mut missing).map_or(&[][..], Vec::as_slice);
    let online = context.host.online_cpus();
    let mut deep: Vec<(usize, &IdleState, u32)> = Vec::new();
    for (index, state) in states.iter().enumerate() {
        let latency = need(&state.exit_latency_us, &mut missing).copied();
        let Some(latency) = latency.filter(|latency| *latency > LATENCY_US) else {
            continue;
        };
        // Without these files the state cannot be disabled: it is enabled.
        let off = need(&state.disabled_on, &mut missing);
        if off.is_none_or(|off| off.is_empty() || !online.is_subset(off)) {
            deep.push((index, state, latency));
        }
    }
    let mut said = None;
    if !deep.is_empty() {
        let limit = need(&context.host.power.latency_limit_us, &mut missing).copied();
        deep.retain(|(_, _, latency)| limit.is_none_or(|limit| *latency <= limit));
        if missing.is_empty() {
            said = judge(context, &deep, limit, &online);
        }
    }
    answer(rule, context, "host", said, missing)
}

fn judge(
    context: &Context<'_>,
    deep: &[(usize, &IdleState, u32)],
    limit: Option<u32>,
    online: &CpuSet,
) -> Option<Draft> {
    let (_, deepest, latency) = deep.iter().max_by_key(|(_, _, latency)| *latency)?;
    let mut evidence: Vec<Evidence> = deep
        .iter()
        .map(|(index, state, latency)| {
            let awake = state.disabled_on.value().cloned().unwrap_or_default();
            Evidence::new(
                format!(
                    "exit latency of {}, CPUs {}",
                    state.name,
                    online.minus(&awake)
                ),
                format!("{latency} us"),
                format!("/sys/devices/system/cpu/cpu0/cpuidle/state{index}/latency"),
            )
        })
        .collect();
    evidence.extend(limit.map(|limit| {
        let path = "/dev/cpu_dma_latency";
        Evidence::new(
            "latency limit in /dev/cpu_dma_latency",
            format!("{limit} us"),
            path,
        )
    }));
    let key = SettingKey::Machine(MachineKnob::MaxLatencyUs);
    Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "idle state {} with an exit latency of {latency} us is enabled: hold /dev/cpu_dma_latency at \
             {LATENCY_US} us",
            deepest.name
        ),
        evidence,
        remedies: remedy(context, key, Value::Integer(u64::from(LATENCY_US)))
            .into_iter()
            .collect(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("C6 of 133 us", || latency(deep()))],
        silent: &[
            ("bulk transfer", || World::of(deep())),
            ("none above 10 us", || latency(build::host().build())),
            ("somebody holds 10 us", || {
                let mut host = deep();
                host.power.latency_limit_us = Known::Value(10);
                latency(host)
            }),
            ("switched off on every CPU", || {
                let mut host = deep();
                let all = host.online_cpus();
                if let Known::Value(states) = &mut host.power.idle_states {
                    states[3].disabled_on = Known::Value(all);
                }
                latency(host)
            }),
            ("a guest without idle states", || {
                latency(unknown(Cause::Absent))
            }),
        ],
        undetermined: &[
            ("not read", || latency(unknown(Cause::NotAsked))),
            ("only root sees the limit", || {
                let mut host = deep();
                host.power.latency_limit_us =
                    Known::unknown(Cause::Denied, "/dev/cpu_dma_latency", "only root reads it");
                latency(host)
            }),
        ],
    };

    fn latency(host: Host) -> World {
        World::of(host).profile(Profile::Latency)
    }

    fn deep() -> Host {
        let mut host = build::host().build();
        if let Known::Value(states) = &mut host.power.idle_states {
            states.push(IdleState {
                name: "C6".to_owned(),
                exit_latency_us: Known::Value(133),
                disabled_on: Known::Value(CpuSet::empty()),
            });
        }
        host
    }

    fn unknown(cause: Cause) -> Host {
        let mut host = build::host().build();
        let path = "/sys/devices/system/cpu/cpu0/cpuidle";
        host.power.idle_states = Known::unknown(cause, path, "no such folder");
        host
    }

    #[test]
    fn the_limit_is_what_is_proposed() {
        let world = latency(deep());
        let said = finding(ID, &world.context());
        assert_eq!(remedies(&said), ["cpu/max-latency-us: 2000000000 -> 10"]);
        assert!(said.summary.contains("C6"), "{}", said.summary);
    }
}
