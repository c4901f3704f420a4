//! `bond-unmonitored`: a bond does not notice that a link has failed. Facts from Documentation/networking/bonding.rst
//! (`miimon`, `arp_interval`).

use super::devices::{Notice, judged, unknown};
use super::facts::if_read;
use super::lag_hash_imbalance::members;
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Bond, Nic};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "bond-unmonitored",
    number: 114,
    status: Status::AdviceOnly,
    title: "a bond does not monitor its links",
    severity: Severity::Warn,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "miimon 0, and not arp_interval above 0",
    effect: "a member whose link has failed stays in use: its share of the packets, or all of them, is lost until it is back",
    source: "Documentation/networking/bonding.rst (miimon, arp_interval)",
    fix: Fix::Advised(&[Class::R2]),
    persist: "bond options in NetworkManager, systemd-networkd (MIIMonitorSec=) or netplan (mii-monitor-interval)",
    contested: None,
    page: include_str!("../../../../docs/rules/bond-unmonitored.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        let bond = nic.stack.bond.as_ref()?;
        // The driver makes one without members when it is loaded.
        if members(context, nic).is_empty() {
            return None;
        }
        let missing = unknown(&bond.miimon_ms).into_iter().collect();
        let notices = unmonitored(nic, bond).into_iter().collect();
        judged(rule, context, subject(nic), notices, missing)
    })
}

fn unmonitored(nic: &Nic, bond: &Bond) -> Option<Notice> {
    let interval = *if_read(&bond.miimon_ms).filter(|interval| **interval == 0)?;
    // Monitoring by ARP takes its place; an older capture does not have it.
    let by_arp = if_read(&bond.arp_interval_ms).copied();
    if by_arp.is_some_and(|interval| interval > 0) {
        return None;
    }
    let unless = if by_arp.is_none() {
        ", unless arp_interval is set"
    } else {
        ""
    };
    let summary = format!(
        "{} does not monitor its links (miimon 0): packets to a failed member are lost; set miimon to 100{unless}",
        nic.name
    );
    let file = |name: &str| format!("/sys/class/net/{}/bonding/{name}", nic.name);
    let mut evidence = vec![Evidence::new("miimon", interval, file("miimon"))];
    evidence.extend(
        by_arp.map(|interval| Evidence::new("arp_interval", interval, file("arp_interval"))),
    );
    Some(Notice::new(Severity::Warn, summary).with(evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build::{self, NicBuilder};
    use crate::host::{BondPort, Host, NicKind};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("neither carrier nor ARP", || {
                World::of(bond(Known::Value(0), Known::Value(0)))
            }),
            ("a capture without arp_interval", || {
                World::of(bond(Known::Value(0), Known::not_asked("arp_interval")))
            }),
        ],
        silent: &[
            ("by carrier", || {
                World::of(bond(Known::Value(100), Known::Value(0)))
            }),
            ("by ARP", || {
                World::of(bond(Known::Value(0), Known::Value(100)))
            }),
            ("no members", || {
                let mut host = bond(Known::Value(0), Known::Value(0));
                host.nics.retain(|nic| nic.name.as_str() == "bond0");
                World::of(host)
            }),
            ("no bond", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[("the interval is not known", || {
            World::of(bond(Known::not_asked("miimon"), Known::Value(0)))
        })],
    };

    fn bond(miimon_ms: Known<u32>, arp_interval_ms: Known<u32>) -> Host {
        let own = Bond {
            miimon_ms,
            arp_interval_ms,
            ..Bond::default()
        };
        let bond = build::host().nic("bond0", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Bond;
                nic.stack.bond = Some(own);
            })
        });
        let port = BondPort {
            bond: Known::Value("bond0".parse().expect("a name")),
            ..BondPort::default()
        };
        let member = |nic: NicBuilder| nic.with(|nic| nic.stack.bond_port = Some(port));
        bond.nic("eth0", member).build()
    }

    #[test]
    fn the_summary_names_what_an_old_capture_lacks() {
        let summary = |arp| finding(RULE.id, &context(&bond(Known::Value(0), arp))).summary;
        assert!(summary(Known::not_asked("arp_interval")).contains("unless arp_interval is set"));
        assert!(!summary(Known::Value(0)).contains("unless"));
    }
}
