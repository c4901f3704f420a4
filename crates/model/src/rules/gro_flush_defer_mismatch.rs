//! `gro-flush-defer-mismatch`: IRQ deferral is partially configured, or its timeout is long. Facts from
//! Documentation/networking/napi.rst, "Software IRQ coalescing".

use super::spreading::needed;
use super::{ALWAYS, Draft, each_nic, found, remedy, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Napi, Nic};
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "gro-flush-defer-mismatch",
    number: 20,
    status: Status::Implemented,
    title: "IRQ deferral is partially configured, or its timeout is long",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "exactly one of gro_flush_timeout and napi_defer_hard_irqs is 0; role latency: also a timeout \
                above 200 us",
    effect: "a timeout alone delays packets, deferral alone does nothing; a long timeout adds latency at low \
             load; no general figure",
    source: "Documentation/networking/napi.rst (software IRQ coalescing)",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot",
    contested: None,
    page: include_str!("../../../../docs/rules/gro-flush-defer-mismatch.md"),
    check,
};

/// The maximum timeout for low latency, nanoseconds.
const LONG_NS: u64 = 200_000;

/// The timeout in the kernel documentation's example, nanoseconds.
const USUAL_NS: u64 = 20_000;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let dispatch = &nic.dispatch;
    let pair = (&dispatch.gro_flush_timeout_ns, &dispatch.defer_hard_irqs);
    let (timeout, defer) = match pair {
        (Known::Value(timeout), Known::Value(defer)) => (*timeout, *defer),
        // An older kernel has no such pair.
        (one, other) => {
            let gaps = [one.gap(), other.gap()].into_iter().flatten();
            let missing: Vec<Gap> = gaps.filter_map(needed).collect();
            let unsure = !missing.is_empty();
            return unsure.then(|| undetermined(rule, context, subject(nic), missing));
        }
    };
    let file = |name: &str| format!("/sys/class/net/{}/{name}", nic.name);
    let mut evidence = vec![
        Evidence::new(
            "gro_flush_timeout",
            format!("{timeout} ns"),
            file("gro_flush_timeout"),
        ),
        Evidence::new("napi_defer_hard_irqs", defer, file("napi_defer_hard_irqs")),
    ];
    let half = |timeout: u64, defer: u32| (timeout == 0) != (defer == 0);
    let long = context.profile == Profile::Latency && timeout > LONG_NS;
    let napi = halved(nic, half);
    let (why, remedies) = if half(timeout, defer) {
        let why = if timeout == 0 {
            format!(
                "napi_defer_hard_irqs is {defer} without a gro_flush_timeout, which has no effect"
            )
        } else {
            format!(
                "gro_flush_timeout delays packets up to {timeout} ns, but napi_defer_hard_irqs is 0"
            )
        };
        (
            format!("{why}; set both or neither"),
            to_neither(context, nic),
        )
    } else if long {
        let key = SettingKey::Nic(nic.name.clone(), NicKnob::GroFlushTimeoutNs);
        let shorter = remedy(context, key, Value::Integer(USUAL_NS));
        let why = format!("packets may wait {timeout} ns at low load; try {USUAL_NS} ns");
        (why, shorter.into_iter().collect())
    } else if let Some((napi, of_napi)) = napi {
        evidence.extend(of_napi);
        let why = format!("NAPI {napi} has only one of the two set; set both or neither");
        (why, Vec::new())
    } else {
        return None;
    };
    let said = Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!("IRQ deferral of {}: {why}", nic.name),
        evidence,
        remedies,
    };
    Some(found(rule, context, said))
}

/// A NAPI instance whose own pair is partially configured.
fn halved(nic: &Nic, half: impl Fn(u64, u32) -> bool) -> Option<(u32, Vec<Evidence>)> {
    nic.dispatch.napis.value()?.iter().find_map(|napi: &Napi| {
        let timeout = napi.gro_flush_timeout_ns.get()?;
        let defer = napi.defer_hard_irqs.get()?;
        let request = format!("netlink netdev napi-get {}", nic.name);
        half(timeout, defer).then(|| {
            let evidence = vec![
                Evidence::new(
                    format!("gro-flush-timeout of NAPI {}", napi.id),
                    format!("{timeout} ns"),
                    request.clone(),
                ),
                Evidence::new(
                    format!("defer-hard-irqs of NAPI {}", napi.id),
                    defer,
                    request,
                ),
            ];
            (napi.id, evidence)
        })
    })
}

fn to_neither(context: &Context<'_>, nic: &Nic) -> Vec<Remedy> {
    [NicKnob::GroFlushTimeoutNs, NicKnob::DeferHardIrqs]
        .into_iter()
        .filter_map(|knob| {
            let key = SettingKey::Nic(nic.name.clone(), knob);
            remedy(context, key, Value::Integer(0))
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{self, Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a timeout alone", || World::of(host(20_000, 0))),
            ("deferring alone", || World::of(host(0, 100))),
            ("a long timeout where latency matters", || {
                World::of(host(500_000, 2)).profile(Profile::Latency)
            }),
        ],
        silent: &[
            ("off", || World::of(host(0, 0))),
            ("both", || World::of(host(20_000, 100))),
            ("a long timeout in bulk", || World::of(host(500_000, 2))),
            ("an older kernel", || {
                let mut host = host(0, 100);
                host.nics[0].dispatch.gro_flush_timeout_ns =
                    Known::unknown(Cause::Absent, "gro_flush_timeout", "no such file");
                World::of(host)
            }),
        ],
        undetermined: &[("not queried", || {
            let mut host = host(20_000, 0);
            host.nics[0].dispatch.defer_hard_irqs = Known::not_asked("napi_defer_hard_irqs");
            World::of(host)
        })],
    };

    fn host(timeout: u64, defer: u32) -> Host {
        build::host()
            .nic("eth2", |nic| {
                nic.with(|nic| {
                    nic.dispatch.gro_flush_timeout_ns = Known::Value(timeout);
                    nic.dispatch.defer_hard_irqs = Known::Value(defer);
                })
            })
            .build()
    }

    #[test]
    fn half_a_pair_is_taken_back() {
        let said = finding(ID, &context(&host(20_000, 0)));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            testing::remedies(&said),
            ["nic/eth2/napi/gro-flush-timeout-ns: 20000 -> 0"]
        );
    }
}
