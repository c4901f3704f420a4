//! `bond-aggregator`: a bond over several aggregators stays with a weaker one until it is gone. Facts from
//! Documentation/networking/bonding.rst (`ad_select`).

use std::collections::BTreeMap;

use super::devices::{Notice, judged, unknown};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::known::Gap;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "bond-aggregator",
    number: 113,
    status: Status::AdviceOnly,
    title: "a bond does not change to its better aggregator",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "mode 802.3ad with members in two or more aggregators, and ad_select stable",
    effect: "after a failure of some members of the active aggregator the bond uses the others, not the aggregator with \
             more bandwidth",
    source: "Documentation/networking/bonding.rst (ad_select)",
    fix: Fix::Advised(&[Class::R3]),
    persist: "bond options in NetworkManager, systemd-networkd (AdSelect=) or netplan",
    contested: None,
    page: include_str!("../../../../docs/rules/bond-aggregator.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        let bond = nic.stack.bond.as_ref()?;
        let word = |text: &String| text.split_whitespace().next().map(str::to_owned);
        let mode = bond.mode.value().and_then(word);
        if mode.as_deref().is_some_and(|mode| mode != "802.3ad") {
            return None;
        }
        let mut missing: Vec<Gap> = unknown(&bond.mode)
            .into_iter()
            .chain(unknown(&bond.ad_select))
            .collect();
        let members = members(context, nic, &mut missing);
        let select = bond.ad_select.value().and_then(word);
        let keeps = mode.is_some() && select.as_deref() == Some("stable") && members.len() >= 2;
        let notice = keeps.then(|| notice(nic, &members));
        judged(
            rule,
            context,
            subject(nic),
            notice.into_iter().collect(),
            missing,
        )
    })
}

/// The members by aggregator.
fn members<'a>(
    context: &Context<'a>,
    bond: &Nic,
    missing: &mut Vec<Gap>,
) -> BTreeMap<u32, Vec<&'a Nic>> {
    let mut all: BTreeMap<u32, Vec<&Nic>> = BTreeMap::new();
    for nic in &context.host.nics {
        let Some(port) = &nic.stack.bond_port else {
            continue;
        };
        missing.extend(unknown(&port.bond));
        if port.bond.value() != Some(&bond.name) {
            continue;
        }
        missing.extend(unknown(&port.aggregator));
        if let Some(aggregator) = port.aggregator.value() {
            all.entry(*aggregator).or_default().push(nic);
        }
    }
    all
}

fn notice(bond: &Nic, members: &BTreeMap<u32, Vec<&Nic>>) -> Notice {
    let summary = format!(
        "{} has {} aggregators and ad_select stable: it stays with the active one until all members of that are down; \
         ad_select bandwidth changes at once to the one with the most bandwidth",
        bond.name,
        members.len()
    );
    let path = format!("/sys/class/net/{}/bonding/ad_select", bond.name);
    let select = Evidence::new("ad_select", "stable", path);
    let each = members.iter().map(|(aggregator, nics)| {
        let names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
        let path = format!("/sys/class/net/{}/bonding_slave/ad_aggregator_id", names[0]);
        Evidence::new(format!("aggregator {aggregator}"), names.join(", "), path)
    });
    Notice::new(Severity::Note, summary).with(std::iter::once(select).chain(each))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::{Bond, BondPort, Host, NicKind};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("two aggregators", || {
            World::of(bond("802.3ad", "stable", [1, 2]))
        })],
        silent: &[
            ("one aggregator", || {
                World::of(bond("802.3ad", "stable", [1, 1]))
            }),
            ("by bandwidth", || {
                World::of(bond("802.3ad 4", "bandwidth 1", [1, 2]))
            }),
            ("without LACP", || {
                World::of(bond("active-backup", "stable", [1, 2]))
            }),
        ],
        undetermined: &[("the choice is not known", || {
            let mut host = bond("802.3ad", "stable", [1, 2]);
            let own = host.nics[0].stack.bond.as_mut().expect("a bond");
            own.ad_select = Known::not_asked("ad_select");
            World::of(host)
        })],
    };

    fn bond(mode: &str, select: &str, aggregators: [u32; 2]) -> Host {
        let text = |word: &str| Known::Value(word.to_owned());
        let own = Bond {
            mode: text(mode),
            ad_select: text(select),
            ..Bond::default()
        };
        let mut host = build::host().nic("bond0", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Bond;
                nic.stack.bond = Some(own);
            })
        });
        for (name, aggregator) in ["eth0", "eth1"].into_iter().zip(aggregators) {
            let port = BondPort {
                bond: Known::Value("bond0".parse().expect("a name")),
                aggregator: Known::Value(aggregator),
                ..BondPort::default()
            };
            host = host.nic(name, |nic| nic.with(|nic| nic.stack.bond_port = Some(port)));
        }
        host.build()
    }

    #[test]
    fn the_members_of_each_aggregator_are_listed() {
        let host = bond("802.3ad", "stable", [1, 2]);
        let found = finding(RULE.id, &context(&host));
        let listed: Vec<&str> = found
            .evidence
            .iter()
            .map(|one| one.value.as_str())
            .collect();
        assert_eq!(listed, ["stable", "eth0", "eth1"]);
    }
}
