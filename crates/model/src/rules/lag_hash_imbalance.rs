//! `lag-hash-imbalance`: a bond uses one slave only, or its LACP partner is missing. Facts from
//! Documentation/networking/bonding.rst (`xmit_hash_policy`, 802.3ad).

use std::collections::BTreeSet;

use super::devices::{Notice, growth, judged, unknown};
use super::{ALWAYS, each_nic, remedy, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Bond, Nic, NicKind};
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "lag-hash-imbalance",
    number: 66,
    status: Status::Implemented,
    title: "a bond uses one slave only, or its LACP partner is missing",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "802.3ad or balance-xor with two or more slaves and xmit_hash_policy layer2 (warn), layer2+3 \
                (note); ad_partner_mac all zero (crit); slaves in different aggregators or of different speeds \
                (warn), on different nodes (note); one slave at 80 % of its link while another sends less than \
                half as much (warn); a slave without a link (warn); balance-rr (note)",
    effect: "several flows get up to the sum of the slaves; a single flow never gets more than one slave",
    source: "Documentation/networking/bonding.rst",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "bond options in NetworkManager, systemd-networkd (TransmitHashPolicy=) or netplan",
    contested: None,
    page: include_str!("../../../../docs/rules/lag-hash-imbalance.md"),
    check,
};

const BUSY_SHARE: f64 = 0.8;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        let bond = nic.stack.bond.as_ref()?;
        let mut missing: Vec<Gap> = Vec::from_iter(unknown(&bond.mode));
        let mode = word(&bond.mode);
        let lacp = mode == Some("802.3ad");
        let slaves = slaves(context, nic);
        let mut notices = Vec::new();
        notices.extend(reordering(nic, bond));
        notices.extend(no_backup(context, nic, bond, &slaves));
        // Active-backup and round-robin modes do not hash.
        if !(lacp || mode == Some("balance-xor")) {
            return judged(rule, context, subject(nic), notices, missing);
        }
        missing.extend(unknown(&bond.hash_policy));
        if slaves.len() >= 2 {
            notices.extend(hash(context, nic, bond, slaves.len()));
            notices.extend(speeds(nic, &slaves));
            notices.extend(nodes(context, nic, &slaves));
            notices.extend(uneven(context, nic, bond, &slaves));
        }
        if lacp {
            missing.extend(unknown(&bond.partner_mac));
            notices.extend(no_partner(nic, bond));
            notices.extend(split(nic, &slaves));
        }
        judged(rule, context, subject(nic), notices, missing)
    })
}

/// `802.3ad 4` as sysfs prints it, or `802.3ad`.
fn word(fact: &Known<String>) -> Option<&str> {
    fact.value()?.split_whitespace().next()
}

fn file(bond: &Nic, name: &str) -> String {
    format!("/sys/class/net/{}/bonding/{name}", bond.name)
}

/// The interfaces of the bond that have a link.
fn slaves<'a>(context: &Context<'a>, bond: &Nic) -> Vec<&'a Nic> {
    let down = |nic: &&Nic| nic.operstate.value().is_some_and(|state| state == "down");
    let mut all = members(context, bond);
    all.retain(|nic| !down(nic));
    all
}

/// The interfaces of the bond.
pub(super) fn members<'a>(context: &Context<'a>, bond: &Nic) -> Vec<&'a Nic> {
    let of_bond = |nic: &Nic| match &nic.stack.bond_port {
        Some(port) if port.bond.value().is_some() => port.bond.value() == Some(&bond.name),
        _ => bond.lower().contains(&nic.name),
    };
    let all = context.host.nics.iter();
    all.filter(|nic| of_bond(nic) && nic.kind != NicKind::Bond)
        .collect()
}

/// bonding.rst, balance-rr: "packets [of one connection] arrive out of order".
fn reordering(nic: &Nic, bond: &Bond) -> Option<Notice> {
    let mode = word(&bond.mode).filter(|mode| *mode == "balance-rr")?;
    let summary = format!(
        "{} sends the packets of a flow over all slaves (balance-rr), which reorders them: TCP takes that for loss; \
         use 802.3ad with layer3+4",
        nic.name
    );
    let evidence = Evidence::new("mode", mode, file(nic, "mode"));
    Some(Notice::new(Severity::Note, summary).with([evidence]))
}

/// A slave without a link: the bond works, with less bandwidth or without a backup.
fn no_backup(context: &Context<'_>, nic: &Nic, bond: &Bond, slaves: &[&Nic]) -> Option<Notice> {
    let is_down = |slave: &&Nic| slave.operstate.value().is_some_and(|state| state == "down");
    let all = members(context, nic);
    let down: Vec<&Nic> = all.into_iter().filter(is_down).collect();
    let first = down.first()?;
    let left = slaves.len();
    let effect = match word(&bond.mode) {
        Some("active-backup") if left < 2 => "it has no backup",
        _ => "it has less bandwidth",
    };
    let summary = format!(
        "{} of {} has no link, so {effect}: check its cable and switch port",
        first.name, nic.name
    );
    Some(
        Notice::new(Severity::Warn, summary).with(down.iter().map(|slave| {
            let path = format!("/sys/class/net/{}/operstate", slave.name);
            Evidence::new(format!("state of {}", slave.name), "down", path)
        })),
    )
}

fn hash(context: &Context<'_>, nic: &Nic, bond: &Bond, slaves: usize) -> Option<Notice> {
    let policy = word(&bond.hash_policy)?;
    let (severity, why) = match policy {
        "layer2" => (
            Severity::Warn,
            "all packets to one peer or gateway use one slave",
        ),
        "layer2+3" => (Severity::Note, "all flows to one address use one slave"),
        _ => return None,
    };
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::BondHashPolicy);
    let summary = format!(
        "{} has xmit_hash_policy {policy}, so {why} of {slaves}: use layer3+4",
        nic.name
    );
    Some(
        Notice::new(severity, summary)
            .with([
                Evidence::new("hash policy", policy, file(nic, "xmit_hash_policy")),
                Evidence::new("slaves with link", slaves, file(nic, "slaves")),
            ])
            .fixed_by(remedy(context, key, Value::Text("layer3+4".to_owned()))),
    )
}

fn no_partner(nic: &Nic, bond: &Bond) -> Option<Notice> {
    let partner = bond.partner_mac.value()?;
    if partner.is_empty() || partner.chars().any(|c| c != '0' && c != ':') {
        return None;
    }
    let summary = format!(
        "{} has no LACP partner, so at most one slave carries packets: configure LACP on the switch",
        nic.name
    );
    let evidence = Evidence::new("LACP partner", partner, file(nic, "ad_partner_mac"));
    Some(Notice::new(Severity::Crit, summary).with([evidence]))
}

fn split(nic: &Nic, slaves: &[&Nic]) -> Option<Notice> {
    let own: Vec<(&Nic, u32)> = slaves
        .iter()
        .filter_map(|slave| {
            let port = slave.stack.bond_port.as_ref()?;
            Some((*slave, port.aggregator.get()?))
        })
        .collect();
    let different: BTreeSet<u32> = own.iter().map(|(_, id)| *id).collect();
    if different.len() < 2 {
        return None;
    }
    let summary = format!(
        "slaves of {} are in {} aggregators, only one of which carries packets: check the switch ports",
        nic.name,
        different.len()
    );
    Some(
        Notice::new(Severity::Warn, summary).with(own.iter().map(|(slave, id)| {
            let path = format!(
                "/sys/class/net/{}/bonding_slave/ad_aggregator_id",
                slave.name
            );
            Evidence::new(format!("aggregator of {}", slave.name), id, path)
        })),
    )
}

fn speeds(nic: &Nic, slaves: &[&Nic]) -> Option<Notice> {
    let own: Vec<(&Nic, BitRate)> = slaves
        .iter()
        .filter_map(|slave| Some((*slave, slave.link_bit_per_s.get()?)))
        .collect();
    let different: BTreeSet<BitRate> = own.iter().map(|(_, rate)| *rate).collect();
    if different.len() < 2 {
        return None;
    }
    let summary = format!(
        "slaves of {} run at different speeds, LACP aggregates only equal ones and a hash fills the slowest \
         first: use equal speeds",
        nic.name
    );
    Some(
        Notice::new(Severity::Warn, summary).with(own.iter().map(|(slave, rate)| {
            let path = format!("/sys/class/net/{}/speed", slave.name);
            Evidence::new(format!("speed of {}", slave.name), rate, path)
        })),
    )
}

fn nodes(context: &Context<'_>, nic: &Nic, slaves: &[&Nic]) -> Option<Notice> {
    let own: Vec<_> = slaves
        .iter()
        .filter_map(|slave| Some((*slave, slave.numa_node.get()?)))
        .collect();
    let different: BTreeSet<_> = own.iter().map(|(_, node)| *node).collect();
    if different.len() < 2 || context.host.nodes.len() < 2 {
        return None;
    }
    let summary = format!(
        "slaves of {} are on different NUMA nodes, and the switch's hash selects the slave for each received \
         flow",
        nic.name
    );
    Some(
        Notice::new(Severity::Note, summary).with(own.iter().map(|(slave, node)| {
            let path = format!("/sys/class/net/{}/device/numa_node", slave.name);
            Evidence::new(format!("NUMA node of {}", slave.name), node, path)
        })),
    )
}

/// One slave was close to its link's speed and another less than half as busy.
fn uneven(context: &Context<'_>, nic: &Nic, bond: &Bond, slaves: &[&Nic]) -> Option<Notice> {
    let watch = context.watch?;
    let key = |slave: &Nic| format!("nic/{}/stat/tx_bytes", slave.name);
    let sent: Vec<(&Nic, u64)> = slaves
        .iter()
        .filter_map(|slave| Some((*slave, watch.grown(&key(slave)).get()?)))
        .collect();
    let (busy, most) = sent.iter().max_by_key(|(_, bytes)| *bytes)?;
    let (idle, least) = sent.iter().min_by_key(|(_, bytes)| *bytes)?;
    let rate = watch.per_second(&key(busy)).get()? * 8.0;
    let near = rate >= BUSY_SHARE * busy.link_bit_per_s.get()?.as_f64();
    if !near || least.saturating_mul(2) >= *most {
        return None;
    }
    // With ports in the hash, a few large flows have the same effect.
    let by_port = word(&bond.hash_policy).is_some_and(|policy| policy.contains("3+4"));
    let (severity, what) = if by_port {
        (Severity::Note, "more flows would balance it")
    } else {
        (Severity::Warn, "set xmit_hash_policy to layer3+4")
    };
    let summary = format!(
        "{} of {} is near link speed while {} sends less than half as much: {what}",
        busy.name, nic.name, idle.name
    );
    let evidence = sent.iter().map(|(slave, bytes)| {
        growth(
            watch,
            &format!("bytes sent by {}", slave.name),
            &key(slave),
            *bytes,
        )
    });
    Some(Notice::new(severity, summary).with(evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::{BondPort, Host};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("layer2", || World::of(bond("802.3ad", "layer2"))),
            ("a backup without a link", || {
                let mut host = bond("active-backup", "layer2");
                host.nics[2].operstate = Known::Value("down".to_owned());
                World::of(host)
            }),
            ("one flow over all slaves", || {
                World::of(bond("balance-rr", "layer2"))
            }),
            ("layer2 as sysfs prints it", || {
                World::of(bond("balance-xor 2", "layer2 0"))
            }),
            ("one slave full and the other idle", || {
                World::of(bond("802.3ad", "layer3+4")).watched(|watch| {
                    watch
                        .grew("nic/eth0/stat/tx_bytes", 12_000_000_000)
                        .grew("nic/eth1/stat/tx_bytes", 10_000)
                })
            }),
        ],
        silent: &[
            ("layer3+4", || World::of(bond("802.3ad", "layer3+4"))),
            ("active-backup", || {
                World::of(bond("active-backup", "layer2"))
            }),
            ("no bond", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[("the policy is not known", || {
            let mut host = bond("802.3ad", "layer2");
            let bond = host.nics[0].stack.bond.as_mut().expect("a bond");
            bond.hash_policy = Known::not_asked("xmit_hash_policy");
            World::of(host)
        })],
    };

    fn bond(mode: &str, policy: &str) -> Host {
        let text = |word: &str| Known::Value(word.to_owned());
        let own = Bond {
            mode: text(mode),
            hash_policy: text(policy),
            partner_mac: text("00:1c:73:00:00:01"),
            ..Bond::default()
        };
        let slave = |aggregator: u32| BondPort {
            bond: Known::Value("bond0".parse().expect("a name")),
            aggregator: Known::Value(aggregator),
            ..BondPort::default()
        };
        build::host()
            .nic("bond0", |nic| {
                nic.with(|nic| {
                    nic.kind = NicKind::Bond;
                    nic.stack.bond = Some(own);
                })
            })
            .nic("eth0", |nic| {
                nic.with(|nic| nic.stack.bond_port = Some(slave(1)))
            })
            .nic("eth1", |nic| {
                nic.with(|nic| nic.stack.bond_port = Some(slave(1)))
            })
            .build()
    }

    #[test]
    fn layer2_is_changed_to_layer3_and_4() {
        let host = bond("802.3ad", "layer2");
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            ["nic/bond0/bond/hash-policy: layer2 -> layer3+4"]
        );
    }

    #[test]
    fn no_partner_is_critical_and_a_split_warns() {
        let mut host = bond("802.3ad", "layer3+4");
        host.nics[2]
            .stack
            .bond_port
            .as_mut()
            .expect("a slave")
            .aggregator = Known::Value(2);
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
        let bond = host.nics[0].stack.bond.as_mut().expect("a bond");
        bond.partner_mac = Known::Value("00:00:00:00:00:00".to_owned());
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Crit);
    }

    #[test]
    fn different_speeds_warn() {
        let mut host = bond("balance-xor", "layer3+4");
        host.nics[1].link_bit_per_s = Known::Value(BitRate::from_mbit_per_s(1_000));
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
    }
}
