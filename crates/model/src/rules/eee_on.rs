//! `eee-on`: Energy-Efficient Ethernet (EEE) is active. Facts from `ETHTOOL_MSG_EEE_GET`
//! (Documentation/networking/ethtool-netlink.rst).

use super::judged::{Judged, ethtool, judge_each, offered};
use super::{Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "eee-on",
    number: 42,
    status: Status::Implemented,
    title: "Energy-Efficient Ethernet (EEE) is active",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: &[Profile::Latency],
    judges_by: &[Basis::Facts],
    threshold: "Energy-Efficient Ethernet enabled and active on the link",
    effect: "the link's wake-up time, for each packet after an idle period; measure it",
    source: "IEEE 802.3az; Documentation/networking/ethtool-netlink.rst (EEE_GET)",
    fix: Fix::Proposed(&[Class::R3]),
    persist: "a systemd unit at boot, or a .link file (option not verified)",
    contested: None,
    page: include_str!("../../../../docs/rules/eee-on.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    if !nic.kind.has_wire() {
        return Ok(None);
    }
    let Some(eee) = offered(&nic.wire.eee)? else {
        return Ok(None);
    };
    let (enabled, active) = (offered(&eee.enabled)?, offered(&eee.active)?);
    if (enabled, active) != (Some(&true), Some(&true)) {
        return Ok(None);
    }
    let path = ethtool(nic, "eee");
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Eee);
    Ok(Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "EEE is active on {}, which adds wake-up latency after idle periods: turn it off and measure",
            nic.name
        ),
        evidence: vec![
            Evidence::new("EEE enabled", "enabled", path.clone()),
            Evidence::new("EEE on this link", "active", path),
        ],
        remedies: remedy(context, key, Value::Switch(false))
            .into_iter()
            .collect(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::{Eee, Host};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("active", || World::of(card(true)).profile(Profile::Latency))],
        silent: &[
            ("enabled and not in use", || {
                World::of(card(false)).profile(Profile::Latency)
            }),
            ("bulk does not care", || World::of(card(true))),
        ],
        undetermined: &[("not asked", || {
            let mut host = card(true);
            host.nics[0].wire.eee = Known::not_asked("netlink/ethtool/eth0/eee");
            World::of(host).profile(Profile::Latency)
        })],
    };

    fn card(active: bool) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.wire.eee = Known::Value(Eee {
                        enabled: Known::Value(true),
                        active: Known::Value(active),
                    });
                })
            })
            .build()
    }

    #[test]
    fn it_is_a_note_that_names_the_change() {
        let world = World::of(card(true)).profile(Profile::Latency);
        let said = finding(RULE.id, &world.context());
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["nic/eth0/eee: on -> off"]);
    }
}
