//! `lro-on-forwarder`: LRO is on although the host forwards packets. `rx-lro` from
//! Documentation/networking/netdev-features.rst; the kernel switches it off when forwarding or a bridge
//! begins (`dev_disable_lro`), but lets it be switched on again.

use super::judged::{Judged, ethtool, feature, judge_each};
use super::{ALWAYS, Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Host, Nic, NicKind};
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "lro-on-forwarder",
    number: 29,
    status: Status::Implemented,
    title: "LRO is on although the host forwards packets",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "rx-lro active on a host that forwards, on a bridge port, or below a macvlan",
    effect: "packets merged by LRO exceed the egress MTU, and are dropped or sent with wrong lengths",
    source: "Documentation/networking/netdev-features.rst; dev_disable_lro in net/core/dev.c",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (LargeReceiveOffload=) or nmcli ethtool.feature-lro",
    contested: None,
    page: include_str!("../../../../docs/rules/lro-on-forwarder.md"),
    check,
};

const LRO: &str = "rx-lro";

const FORWARDING: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    let applies = nic.kind.has_wire() || nic.kind == NicKind::Bond;
    if !applies {
        return Ok(None);
    }
    let mut passed_on = passes_frames_on(context.host, nic);
    let forwards = forwards(context.host);
    // A host that is known not to forward may use LRO.
    match &forwards {
        Ok(why) => passed_on.extend(why.iter().cloned()),
        Err(_) if !passed_on.is_empty() => {}
        Err(gap) => {
            let on = feature(nic, LRO)?.is_some_and(|lro| lro.active);
            return if on { Err(gap.clone()) } else { Ok(None) };
        }
    }
    if passed_on.is_empty() || !feature(nic, LRO)?.is_some_and(|lro| lro.active) {
        return Ok(None);
    }
    let mut evidence = vec![Evidence::new(
        "feature rx-lro",
        "on",
        ethtool(nic, "features"),
    )];
    evidence.extend(passed_on);
    let severity = match context.profile {
        Profile::Forwarding => Severity::Crit,
        _ => Severity::Warn,
    };
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Feature(LRO.to_owned()));
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "LRO is on for {}, which forwards packets: turn off rx-lro, keep rx-gro",
            nic.name
        ),
        evidence,
        remedies: remedy(context, key, Value::Switch(false))
            .into_iter()
            .collect(),
    }))
}

/// The bridges and macvlans that forward frames of `nic`.
fn passes_frames_on(host: &Host, nic: &Nic) -> Vec<Evidence> {
    let stands_on = |upper: &&Nic| {
        matches!(upper.kind, NicKind::Bridge | NicKind::Macvlan)
            && (upper.lower().contains(&nic.name) || nic.upper().contains(&upper.name))
    };
    let path = format!("/sys/class/net/{}/upper_*", nic.name);
    let uppers = host.nics.iter().filter(stands_on);
    uppers
        .map(|upper| Evidence::new("upper interface", &upper.name, path.clone()))
        .collect()
}

/// The sysctls that show whether the host routes.
fn forwards(host: &Host) -> Result<Vec<Evidence>, Gap> {
    let mut on = Vec::new();
    for name in FORWARDING {
        match host.sysctl(name) {
            Known::Value(text) if text.trim() == "1" => {
                on.push(Evidence::new(name, "1", crate::buffers::path(name)));
            }
            // A kernel without IPv6 routes none of it; if IPv4 is routed, IPv6 does not matter.
            Known::Unknown(gap) if gap.leaves_a_question() && on.is_empty() => return Err(gap),
            Known::Value(_) | Known::Unknown(_) => {}
        }
    }
    Ok(on)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build::{self, HostBuilder};

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a router", || World::of(router().build())),
            ("a port of a bridge", || World::of(bridge())),
        ],
        silent: &[
            ("an endpoint", || World::of(with_lro(build::host()).build())),
            ("a router that merges by GRO", || {
                let host = build::host().sysctl("net.ipv4.ip_forward", "1");
                World::of(host.nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[
            ("features of a router's card not read", || {
                let mut host = router().build();
                host.nics[0].features = Known::not_asked("netlink/ethtool/eth0/features");
                World::of(host)
            }),
            ("not known whether it routes", || {
                let mut host = router().build();
                let gap = Known::not_asked("/proc/sys/net/ipv4/ip_forward");
                host.sysctls.insert("net.ipv4.ip_forward".to_owned(), gap);
                World::of(host)
            }),
        ],
    };

    fn with_lro(host: HostBuilder) -> HostBuilder {
        host.nic("eth0", |nic| nic.feature(LRO, true, true))
    }

    fn router() -> HostBuilder {
        with_lro(build::host()).sysctl("net.ipv4.ip_forward", "1")
    }

    fn bridge() -> Host {
        with_lro(build::host())
            .nic("br0", |nic| {
                nic.veth().with(|nic| {
                    nic.kind = NicKind::Bridge;
                    nic.lower = vec!["eth0".parse().expect("a name")].into();
                })
            })
            .build()
    }

    #[test]
    fn it_is_critical_where_passing_on_is_the_job() {
        let world = World::of(router().build());
        let said = finding(RULE.id, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["nic/eth0/feature/rx-lro: on -> off"]);
        let world = world.profile(Profile::Forwarding);
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Crit);
    }
}
