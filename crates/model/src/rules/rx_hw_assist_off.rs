//! `rx-hw-assist-off`: the receive checksum offload or hardware GRO is available and off. `rx-gro-hw` from
//! Documentation/networking/netdev-features.rst.

use super::judged::{Judged, could_be_on, ethtool, judge_each, runs_at, speed};
use super::{BULK, Draft, remedy, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "rx-hw-assist-off",
    number: 30,
    status: Status::InPart(
        "checks the receive checksum and hardware GRO; which program would use header split cannot be read",
    ),
    title: "the receive checksum offload or hardware GRO is available and off",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: BULK,
    judges_by: &[Basis::Facts],
    threshold: "rx-checksum inactive and changeable from 10 Gb/s on (warn); rx-gro-hw inactive and changeable on a link \
                of 100 Gb/s or more (note)",
    effect: "no verified figure; measure it",
    source: "Documentation/networking/netdev-features.rst (rx-gro-hw)",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (GenericReceiveOffloadHardware=) or a systemd unit at boot",
    contested: None,
    page: include_str!("../../../../docs/rules/rx-hw-assist-off.md"),
    check,
};

/// From this speed on software GRO has a significant cost, in Gb/s.
const FROM_GBIT: u64 = 100;
const GRO_HW: &str = "rx-gro-hw";
const CHECKSUM_FROM_GBIT: u64 = 10;
const CHECKSUM: &str = "rx-checksum";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    if let Some(said) = checksum(context, nic)? {
        return Ok(Some(said));
    }
    if !nic.kind.has_wire() || !runs_at(nic, FROM_GBIT)? || !could_be_on(nic, GRO_HW)? {
        return Ok(None);
    }
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Feature(GRO_HW.to_owned()));
    let off = Evidence::new(
        "feature rx-gro-hw",
        "off, could be on",
        ethtool(nic, "features"),
    );
    Ok(Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} supports hardware GRO: turn on rx-gro-hw and measure",
            nic.name
        ),
        evidence: speed(nic).into_iter().chain([off]).collect(),
        remedies: remedy(context, key, Value::Switch(true))
            .into_iter()
            .collect(),
    }))
}

/// The NIC could verify the checksums of received packets, and the CPU does it, over every byte.
fn checksum(context: &Context<'_>, nic: &Nic) -> Judged {
    if !nic.kind.has_wire() || !runs_at(nic, CHECKSUM_FROM_GBIT)? || !could_be_on(nic, CHECKSUM)? {
        return Ok(None);
    }
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Feature(CHECKSUM.to_owned()));
    let off = Evidence::new(
        "feature rx-checksum",
        "off, could be on",
        ethtool(nic, "features"),
    );
    Ok(Some(Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "the CPU verifies the checksums of what {} receives: turn on rx-checksum, unless the NIC is faulty",
            nic.name
        ),
        evidence: speed(nic).into_iter().chain([off]).collect(),
        remedies: remedy(context, key, Value::Switch(true))
            .into_iter()
            .collect(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("off at 100 Gb/s", || World::of(card(100))),
            ("checksums by the CPU", || {
                let host = build::host();
                let host = host.nic("eth0", |nic| nic.gbit(10).feature(CHECKSUM, false, true));
                World::of(host.build())
            }),
        ],
        silent: &[
            ("off at 25 Gb/s", || World::of(card(25))),
            ("a card without it", || {
                World::of(build::host().nic("eth0", |nic| nic.gbit(100)).build())
            }),
        ],
        undetermined: &[("features not read", || {
            let mut host = card(100);
            host.nics[0].features = Known::not_asked("netlink/ethtool/eth0/features");
            World::of(host)
        })],
    };

    fn card(gbit: u64) -> Host {
        build::host()
            .nic("eth0", |nic| nic.gbit(gbit).feature(GRO_HW, false, true))
            .build()
    }

    #[test]
    fn it_is_a_note_with_a_change_to_measure() {
        let host = card(200);
        let said = finding(RULE.id, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["nic/eth0/feature/rx-gro-hw: off -> on"]);
    }
}
