//! `mtu-not-jumbo`: MTU 1500 on a fast link whose NIC supports 9000. The maximum MTU is from rtnetlink
//! (`IFLA_MAX_MTU`). Whether the path supports it is known only from both ends and a probe.

use super::judged::{Judged, judge_each, offered, runs_at, speed};
use super::{Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, NicKind};
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "mtu-not-jumbo",
    number: 34,
    status: Status::Implemented,
    title: "MTU 1500 on a fast link whose NIC supports 9000",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: &[Profile::Throughput, Profile::Storage, Profile::Rdma],
    judges_by: &[Basis::Facts],
    threshold: "MTU 1500 or less on a link of 25 Gb/s or more whose NIC supports 9000, or on a VLAN above an interface \
                with 9000 (note); below 1280 (warn)",
    effect: "six times fewer frames; measure what that gains beyond GRO and TSO",
    source: "Documentation/networking/device_drivers/ethernet/intel/ice.rst (jumbo frames); \
             fasterdata.es.net",
    fix: Fix::Proposed(&[Class::R3]),
    persist: "a systemd .network or .link file (MTUBytes=) or nmcli 802-3-ethernet.mtu, on every host and \
              switch",
    contested: Some(
        "for: fewer packets per byte; against: GRO and TSO hide most of it, every host and switch of the \
         segment must agree, and each lost frame costs more",
    ),
    page: include_str!("../../../../docs/rules/mtu-not-jumbo.md"),
    check,
};

/// From this speed on, in Gb/s.
const FROM_GBIT: u64 = 25;
const USUAL: u32 = 1500;
const JUMBO: u32 = 9000;
/// RFC 8200, section 5.
const IPV6_MINIMUM: u32 = 1280;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    if let Some(said) = below_ipv6(nic).or_else(|| below_lower(context, nic)) {
        return Ok(Some(said));
    }
    if !nic.kind.has_wire() || !runs_at(nic, FROM_GBIT)? {
        return Ok(None);
    }
    let Some(mtu) = offered(&nic.mtu)?.filter(|mtu| **mtu <= USUAL) else {
        return Ok(None);
    };
    let Some(most) = offered(&nic.stack.mtu_max)?.filter(|most| **most >= JUMBO) else {
        return Ok(None);
    };
    let mut evidence: Vec<Evidence> = speed(nic).into_iter().collect();
    evidence.push(Evidence::new(
        "MTU",
        format!("{mtu} bytes"),
        format!("/sys/class/net/{}/mtu", nic.name),
    ));
    evidence.push(Evidence::new(
        "maximum MTU of the NIC",
        format!("{most} bytes"),
        format!("netlink/route/{}/max_mtu", nic.name),
    ));
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Mtu);
    Ok(Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} has MTU {mtu} and supports {JUMBO}: measure it, if every host and switch of the segment \
             supports it",
            nic.name
        ),
        evidence,
        remedies: remedy(context, key, Value::Integer(u64::from(JUMBO)))
            .into_iter()
            .collect(),
    }))
}

/// An MTU that IPv6 does not permit: the kernel disables IPv6 on the interface, and each packet carries little data.
fn below_ipv6(nic: &Nic) -> Option<Draft> {
    let mtu = nic.mtu.get().filter(|mtu| *mtu < IPV6_MINIMUM)?;
    nic.kind.has_wire().then(|| Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{} has MTU {mtu}, below the minimum of IPv6 ({IPV6_MINIMUM}): set it to {USUAL} or more",
            nic.name
        ),
        evidence: vec![mtu_evidence(nic, mtu)],
        remedies: Vec::new(),
    })
}

/// A VLAN that does not use the jumbo frames of the interface below it.
fn below_lower(context: &Context<'_>, nic: &Nic) -> Option<Draft> {
    if nic.kind != NicKind::Vlan {
        return None;
    }
    let mtu = nic.mtu.get().filter(|mtu| *mtu <= USUAL)?;
    let lower = context
        .host
        .nics
        .iter()
        .find(|lower| nic.lower().contains(&lower.name))?;
    let own = lower.mtu.get().filter(|own| *own >= JUMBO)?;
    Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} has MTU {mtu}, {} below it {own}: a VLAN does not follow; raise it if its hosts have jumbo frames",
            nic.name, lower.name
        ),
        evidence: vec![mtu_evidence(nic, mtu), mtu_evidence(lower, own)],
        remedies: Vec::new(),
    })
}

fn mtu_evidence(nic: &Nic, mtu: u32) -> Evidence {
    Evidence::new(
        format!("MTU of {}", nic.name),
        format!("{mtu} bytes"),
        format!("/sys/class/net/{}/mtu", nic.name),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("1500 at 100 Gb/s", || World::of(card(100, 1500))),
            ("576", || World::of(card(10, 576))),
        ],
        silent: &[
            ("1500 at 10 Gb/s", || World::of(card(10, 1500))),
            ("9000 already", || World::of(card(100, 9000))),
            ("for answers it does not matter", || {
                World::of(card(100, 1500)).profile(Profile::Latency)
            }),
        ],
        undetermined: &[("the largest MTU not asked for", || {
            let mut host = card(100, 1500);
            host.nics[0].stack.mtu_max = Known::not_asked("netlink/route/eth0/max_mtu");
            World::of(host)
        })],
    };

    fn card(gbit: u64, mtu: u32) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.gbit(gbit).with(|nic| nic.mtu = Known::Value(mtu))
            })
            .build()
    }

    #[test]
    fn a_vlan_does_not_follow_the_mtu_below_it() {
        let with = |own: u32| {
            build::host()
                .nic("eth0", |nic| {
                    nic.gbit(10).with(|nic| nic.mtu = Known::Value(9000))
                })
                .nic("eth0.7", |nic| {
                    nic.with(|nic| {
                        nic.kind = NicKind::Vlan;
                        nic.mtu = Known::Value(own);
                        nic.lower = vec!["eth0".parse().expect("a name")].into();
                    })
                })
                .build()
        };
        let said = finding(RULE.id, &context(&with(1500)));
        assert_eq!(
            (said.severity, said.subject.as_str()),
            (Severity::Note, "nic/eth0.7")
        );
        assert!(silent(RULE.id, &context(&with(9000))));
    }

    #[test]
    fn it_is_a_note_to_measure() {
        let host = card(100, 1500);
        let said = finding(RULE.id, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["nic/eth0/mtu: 1500 -> 9000"]);
        assert!(RULE.contested.is_some());
    }
}
