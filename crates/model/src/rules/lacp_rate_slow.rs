//! `lacp-rate-slow`: a bond gives up a silent member only after 90 s. Facts from Documentation/networking/bonding.rst
//! (`lacp_rate`) and IEEE 802.1AX, 6.4.4 (Short_Timeout_Time, Long_Timeout_Time).

use super::devices::{Notice, judged, unknown};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::Gap;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "lacp-rate-slow",
    number: 108,
    status: Status::AdviceOnly,
    title: "a bond gives up a silent LACP partner only after 90 s",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "mode 802.3ad with lacp_rate slow",
    effect: "after a failure that keeps the carrier, packets of one member are lost for 2 to 3 s instead of 60 to 90 s",
    source: "Documentation/networking/bonding.rst; IEEE 802.1AX, 6.4.4",
    fix: Fix::Advised(&[Class::R3]),
    persist: "bond options in NetworkManager, systemd-networkd (LACPTransmitRate=) or netplan",
    contested: None,
    page: include_str!("../../../../docs/rules/lacp-rate-slow.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        let bond = nic.stack.bond.as_ref()?;
        // `802.3ad 4` as sysfs prints it, or `802.3ad`.
        let word = |text: &String| text.split_whitespace().next().map(str::to_owned);
        let mode = bond.mode.value().and_then(word);
        if mode.is_some_and(|mode| mode != "802.3ad") {
            return None;
        }
        let missing: Vec<Gap> = unknown(&bond.mode)
            .into_iter()
            .chain(unknown(&bond.lacp_rate))
            .collect();
        let rate = bond.lacp_rate.value().and_then(word);
        let slow = rate.filter(|rate| rate == "slow" && bond.mode.value().is_some());
        let notices = slow.map(|rate| {
            let summary = format!(
                "{} requests LACPDUs every 30 s (lacp_rate slow), so it uses a member whose partner is silent for up \
                 to 90 s: set lacp_rate fast here and at the switch",
                nic.name
            );
            let path = format!("/sys/class/net/{}/bonding/lacp_rate", nic.name);
            Notice::new(Severity::Note, summary).with([Evidence::new("LACP rate", rate, path)])
        });
        judged(
            rule,
            context,
            subject(nic),
            notices.into_iter().collect(),
            missing,
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::{Bond, Host, NicKind};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("slow", || World::of(bond("802.3ad", "slow"))),
            ("as sysfs prints it", || {
                World::of(bond("802.3ad 4", "slow 0"))
            }),
        ],
        silent: &[
            ("fast", || World::of(bond("802.3ad", "fast"))),
            ("without LACP", || World::of(bond("active-backup", "slow"))),
            ("no bond", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[("the rate is not known", || {
            let mut host = bond("802.3ad", "slow");
            let own = host.nics[0].stack.bond.as_mut().expect("a bond");
            own.lacp_rate = Known::not_asked("lacp_rate");
            World::of(host)
        })],
    };

    fn bond(mode: &str, rate: &str) -> Host {
        let text = |word: &str| Known::Value(word.to_owned());
        let own = Bond {
            mode: text(mode),
            lacp_rate: text(rate),
            ..Bond::default()
        };
        build::host()
            .nic("bond0", |nic| {
                nic.with(|nic| {
                    nic.kind = NicKind::Bond;
                    nic.stack.bond = Some(own);
                })
            })
            .build()
    }

    #[test]
    fn it_is_a_note_with_both_times() {
        let host = bond("802.3ad", "slow");
        let said = finding(RULE.id, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert!(said.summary.contains("90 s"), "{}", said.summary);
    }
}
