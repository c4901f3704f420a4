//! `mtu-not-jumbo`: MTU 1500 on a fast link whose NIC supports 9000. The maximum MTU is from rtnetlink
//! (`IFLA_MAX_MTU`). Whether the path supports it is known only from both ends and a probe.

use super::judged::{Judged, judge_each, offered, runs_at, speed};
use super::{Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "mtu-not-jumbo",
    number: 34,
    status: Status::Implemented,
    title: "MTU 1500 on a fast link whose NIC supports 9000",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: &[Profile::Throughput, Profile::Storage, Profile::Rdma],
    judges_by: &[Basis::Facts],
    threshold: "MTU 1500 or less on a link of 25 Gb/s or more whose NIC supports 9000",
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

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("1500 at 100 Gb/s", || World::of(card(100, 1500)))],
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
    fn it_is_a_note_to_measure() {
        let host = card(100, 1500);
        let said = finding(RULE.id, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["nic/eth0/mtu: 1500 -> 9000"]);
        assert!(RULE.contested.is_some());
    }
}
