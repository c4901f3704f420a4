//! `driver-firmware-health-and-owners`: the driver reports errors, firmware awaits a reset, or a running
//! program will undo changes. Facts from Documentation/networking/devlink (devlink-health, devlink-info)
//! and the processes that run.

use super::devices::{Notice, growth, judged, unknown};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NicKind, Owner};
use crate::setting::{Class, CpuKnob, NicKnob, SettingKey};
use crate::shell;

pub(super) const RULE: Rule = Rule {
    id: "driver-firmware-health-and-owners",
    number: 80,
    status: Status::AdviceOnly,
    title: "the driver reports errors, firmware awaits a reset, or a running program will undo changes",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "a devlink health reporter in state error, or errors or transmit timeouts that grew while \
                watched; a temperature at its limit (within 3 °C: warn); note: stored firmware differs from the running one, or a \
                program that changes settings by itself is running",
    effect: "a working NIC, and changes that persist; no figure",
    source: "Documentation/networking/devlink/devlink-health.rst; \
             Documentation/networking/devlink/devlink-info.rst",
    fix: Fix::Advised(&[Class::R4]),
    persist: "firmware with the vendor's tool; settings through the program that owns them",
    contested: None,
    page: include_str!("../../../../docs/rules/driver-firmware-health-and-owners.md"),
    check,
};

/// The distance from the critical temperature at which little is left for load or a warmer room, in 1/1000 °C.
const CLOSE_MC: i32 = 3_000;

/// Whether a program may change this setting.
type Owns = fn(&SettingKey) -> bool;

/// Programs that change the same settings as linerate, a description, and the settings concerned.
const OWNERS: &[(&str, &str, Owns)] = &[
    ("irqbalance", "moves interrupts", is_of_interrupts),
    (
        "tuned",
        "sets the sysctls, CPU and disk settings of its profile",
        is_of_a_profile,
    ),
    ("bpftune", "adjusts sysctls", is_sysctl),
    ("lldpad", "sets traffic classes", is_of_classes),
    ("cloud-agent", "sets interfaces", is_of_an_interface),
    (
        "cluster-node-tuning",
        "sets a TuneD profile",
        is_of_a_profile,
    ),
];

fn is_of_interrupts(key: &SettingKey) -> bool {
    matches!(
        key,
        SettingKey::Nic(_, NicKnob::IrqCpus(..)) | SettingKey::IrqCpus(_)
    )
}

fn is_sysctl(key: &SettingKey) -> bool {
    matches!(key, SettingKey::Sysctl(_))
}

fn is_of_a_profile(key: &SettingKey) -> bool {
    is_sysctl(key)
        || matches!(
            key,
            SettingKey::Machine(_)
                | SettingKey::Cpu(_, CpuKnob::ResumeLatencyUs)
                | SettingKey::Policy(..)
                | SettingKey::Block(..)
        )
}

fn is_of_classes(key: &SettingKey) -> bool {
    let SettingKey::Nic(_, knob) = key else {
        return false;
    };
    matches!(
        knob,
        NicKnob::Qdisc | NicKnob::DcbPfc | NicKnob::DcbEts | NicKnob::DcbMaxRate | NicKnob::DcbApp
    )
}

fn is_of_an_interface(key: &SettingKey) -> bool {
    matches!(key, SettingKey::Nic(..)) && !is_of_interrupts(key)
}

/// The program among `owners` that may change `key` by itself, with a description.
pub fn owner_of(owners: &[Owner], key: &SettingKey) -> Option<String> {
    owners.iter().find_map(|owner| {
        let known = OWNERS.iter();
        let mut known = known.filter(|(name, ..)| owner.name.starts_with(name));
        let (_, what, _) = known.find(|(.., owns)| owns(key))?;
        Some(format!("{} {what}", owner.name))
    })
}

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut said = each_nic(rule, context, |nic| {
        if !matches!(nic.kind, NicKind::Physical | NicKind::Virtual) {
            return None;
        }
        let notices = [
            health(context, nic),
            timeouts(context, nic),
            hot(nic),
            firmware(nic),
        ];
        let notices = notices.into_iter().flatten().collect();
        let missing = Vec::from_iter(unknown(&nic.card.health));
        judged(rule, context, subject(nic), notices, missing)
    });
    let owners = &context.host.software.owners;
    let notices = Vec::from_iter(undoing(owners.value().map_or(&[], Vec::as_slice)));
    let missing = Vec::from_iter(unknown(owners));
    said.extend(judged(rule, context, "host".to_owned(), notices, missing));
    said
}

fn health(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    let reporters = nic.card.health.value()?;
    let key = |name: &str| format!("nic/{}/health/{name}/errors", nic.name);
    let mut evidence = Vec::new();
    let mut bad = Vec::new();
    for reporter in reporters {
        let name = reporter.name.as_str();
        let path = format!("devlink health show {}: {name}", nic.name);
        if reporter.state.value().is_some_and(|state| state == "error") {
            bad.push(name);
            evidence.push(Evidence::new(
                format!("state of health reporter {name}"),
                "error",
                path,
            ));
        }
        let grown = context
            .watch
            .and_then(|watch| Some((watch, watch.grown(&key(name)).get()?)));
        if let Some((watch, by)) = grown.filter(|(_, by)| *by > 0) {
            bad.push(name);
            evidence.push(growth(
                watch,
                &format!("errors of health reporter {name}"),
                &key(name),
                by,
            ));
        }
    }
    bad.dedup();
    let first = bad.first()?;
    let summary = format!(
        "the driver of {} reports errors in {first}{}: read its devlink health diagnosis, update driver and \
         firmware",
        nic.name,
        if bad.len() > 1 { " and others" } else { "" }
    );
    Some(Notice::new(Severity::Crit, summary).with(evidence))
}

fn timeouts(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    let watch = context.watch?;
    let prefix = format!("nic/{}/queue/", nic.name);
    let evidence: Vec<Evidence> = watch
        .below(&prefix)
        .filter(|(name, by, _)| name.ends_with("/tx_timeout") && *by > 0)
        .map(|(name, by, _)| {
            let what = format!("transmit timeouts ({name})");
            growth(watch, &what, &format!("{prefix}{name}"), by)
        })
        .collect();
    (!evidence.is_empty()).then(|| {
        let summary = format!(
            "{} transmit queues of {} timed out and were reset: update driver and firmware",
            evidence.len(),
            nic.name
        );
        Notice::new(Severity::Crit, summary).with(evidence)
    })
}

/// Sensors of boards without a limit report 0 or less.
fn hot(nic: &Nic) -> Option<Notice> {
    let all = nic.card.temperatures.value()?;
    let (label, now, limit) = all.iter().find_map(|one| {
        let (now, limit) = (one.value_mc.get()?, one.critical_mc.get()?);
        let close = now >= limit.saturating_sub(CLOSE_MC);
        (limit > 0 && close).then_some((&one.label, now, limit))
    })?;
    let severity = if now >= limit {
        Severity::Crit
    } else {
        Severity::Warn
    };
    let degrees = |mc: i32| format!("{} °C", mc / 1000);
    let summary = format!(
        "{} is at {} ({label}), its limit is {}: improve cooling",
        nic.name,
        degrees(now),
        degrees(limit)
    );
    let path = format!("/sys/class/net/{}/device/hwmon", nic.name);
    Some(Notice::new(severity, summary).with([
        Evidence::new(format!("temperature {label}"), degrees(now), &*path),
        Evidence::new("limit", degrees(limit), &*path),
    ]))
}

fn firmware(nic: &Nic) -> Option<Notice> {
    let (part, stored) = nic.card.firmware_stored.value()?.first_key_value()?;
    // Some drivers list the stored version even if it is the running one.
    let running = nic.card.firmware.value();
    if running.is_some_and(|own| own.split_whitespace().any(|word| word == stored)) {
        return None;
    }
    let path = format!("devlink dev info {}", shell::quoted(nic.name.as_str()));
    let summary = format!(
        "{} has firmware stored that is not running ({part} {stored}): it takes effect at the next reset",
        nic.name
    );
    let running = running.map(|own| Evidence::new("running firmware", own, &*path));
    Some(
        Notice::new(Severity::Note, summary)
            .with([Evidence::new(format!("stored {part}"), stored, &*path)])
            .with(running),
    )
}

fn undoing(owners: &[Owner]) -> Option<Notice> {
    let of = |owner: &Owner| {
        let mut known = OWNERS.iter();
        known.find(|(name, ..)| owner.name.starts_with(name))
    };
    let known: Vec<(&Owner, &str)> = owners
        .iter()
        .filter_map(|owner| match of(owner) {
            Some((_, what, _)) => Some((owner, *what)),
            // A network manager does not touch interfaces without a connection profile.
            None => owner
                .detail
                .is_some()
                .then_some((owner, "sets what is in its configuration")),
        })
        .collect();
    let words: Vec<String> = known
        .iter()
        .map(|(owner, what)| format!("{} {what}", owner.name))
        .collect();
    let mut words = words.join(", ");
    if words.len() > 130 {
        let names: Vec<&str> = known.iter().map(|(owner, _)| owner.name.as_str()).collect();
        words = names.into_iter().take(6).collect::<Vec<_>>().join(", ");
    }
    (!known.is_empty()).then(|| {
        let summary = format!("{words}: make changes of that kind there, or they will be undone");
        Notice::new(Severity::Note, summary).with(known.iter().map(|(owner, _)| {
            let value = match &owner.detail {
                Some(detail) => format!("process {}, {detail}", owner.pid),
                None => format!("process {}", owner.pid),
            };
            Evidence::new(&*owner.name, value, &*owner.path)
        }))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::{HealthReporter, Host, Temperature};
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a reporter in state error", || {
                World::of(card(|nic| report(nic, "error")))
            }),
            ("errors that grew", || {
                World::of(card(|nic| report(nic, "healthy")))
                    .watched(|watch| watch.grew("nic/eth0/health/tx/errors", 2))
            }),
            ("a transmit timeout", || {
                World::of(card(|_| {}))
                    .watched(|watch| watch.grew("nic/eth0/queue/tx-0/tx_timeout", 1))
            }),
            ("at its limit", || World::of(card(heat))),
            ("firmware that waits", || {
                World::of(card(|nic| store(nic, "16.99.0000")))
            }),
            ("irqbalance runs", || World::of(owned("irqbalance", None))),
        ],
        silent: &[
            ("healthy", || World::of(card(|nic| report(nic, "healthy")))),
            ("stored is what runs", || {
                World::of(card(|nic| store(nic, "16.35.2000")))
            }),
            ("a network manager that sets nothing", || {
                World::of(owned("NetworkManager", None))
            }),
        ],
        undetermined: &[("not queried", || {
            World::of(card(|nic| nic.card.health = Known::not_asked("devlink")))
        })],
    };

    fn card(change: impl FnOnce(&mut Nic)) -> Host {
        build::host().nic("eth0", |nic| nic.with(change)).build()
    }

    fn report(nic: &mut Nic, state: &str) {
        nic.card.health = Known::Value(vec![HealthReporter {
            name: "tx".to_owned(),
            state: Known::Value(state.to_owned()),
            errors: Known::Value(3),
            recoveries: Known::Value(3),
        }]);
    }

    fn heat(nic: &mut Nic) {
        nic.card.temperatures = Known::Value(vec![Temperature {
            label: "asic".to_owned(),
            value_mc: Known::Value(106_000),
            critical_mc: Known::Value(105_000),
        }]);
    }

    fn store(nic: &mut Nic, version: &str) {
        let stored = BTreeMap::from([("fw.version".to_owned(), version.to_owned())]);
        nic.card.firmware_stored = Known::Value(stored);
    }

    fn owned(name: &str, detail: Option<&str>) -> Host {
        let owner = Owner {
            name: name.to_owned(),
            pid: 900,
            detail: detail.map(str::to_owned),
            path: "/proc/900/comm".to_owned(),
        };
        build::host()
            .with(|host| host.software.owners = Known::Value(vec![owner]))
            .build()
    }

    #[test]
    fn an_owner_is_a_note_with_what_it_does_and_an_error_is_critical() {
        let said = finding(ID, &World::of(owned("irqbalance", None)).context());
        assert_eq!(
            (said.severity, said.subject.as_str()),
            (Severity::Note, "host")
        );
        assert!(
            said.summary.contains("moves interrupts"),
            "{}",
            said.summary
        );
        let said = finding(ID, &World::of(card(|nic| report(nic, "error"))).context());
        assert_eq!(said.severity, Severity::Crit);
    }
}
