//! `qdisc-class-conflict`: classes of a qdisc that do not hold what they should. Facts from tc-htb(8), tc-mqprio(8), nft(8) and
//! ip-link(8).

use super::devices::{Notice, judged};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NicKind, QdiscClass, QdiscNode};
use crate::known::Known;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "qdisc-class-conflict",
    number: 109,
    status: Status::Implemented,
    title: "classes of a qdisc that hold no traffic, or not all of it",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a rule that selects a class that does not exist; an htb whose default class does not exist beside classes \
                with a limit; an mqprio class without a queue; classes, limits or rules that differ between the ports of a \
                bond; a class that may send more than the link's rate; of the VLANs on an interface without data center \
                bridging, one without egress-qos-map beside one that has it; VLANs of one ID with different egress maps at \
                the two ends",
    effect: "traffic gets its intended class and limit; no verified figure",
    source: "tc-htb(8) (default), tc-mqprio(8), ip-link(8) (egress-qos-map)",
    fix: Fix::Advised(&[Class::R2]),
    persist: "`linerate qos persist`, or the files of systemd-networkd or NetworkManager",
    contested: None,
    page: include_str!("../../../../docs/rules/qdisc-class-conflict.md"),
    check,
};

/// The parent of a root qdisc (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        let root = root(nic);
        let has_classes = root.is_some_and(|root| matches!(root.kind.as_str(), "htb" | "mqprio"));
        let notices = if has_classes {
            let mut notices = vec![
                rule_without_class(nic),
                without_default(nic),
                without_queue(nic),
                above_line(nic),
            ];
            notices.push(other_port(context, nic));
            notices
        } else {
            Vec::new()
        };
        let of_vlans = [without_map(context, nic), other_end(context, nic)];
        let notices = notices.into_iter().chain(of_vlans).flatten().collect();
        judged(rule, context, subject(nic), notices, Vec::new())
    })
}

fn root(nic: &Nic) -> Option<&QdiscNode> {
    let tree = nic.shaping.tree.value()?;
    tree.iter().find(|node| node.parent == ROOT)
}

fn of_kind<'n>(nic: &'n Nic, kind: &str) -> Option<&'n QdiscNode> {
    root(nic).filter(|root| root.kind == kind)
}

/// The classes of the root.
fn classes(nic: &Nic) -> Option<Vec<&QdiscClass>> {
    let root = root(nic)?;
    let all = nic.shaping.classes.value()?.iter();
    let own = all.filter(|class| class.handle >> 16 == root.handle >> 16);
    Some(own.collect())
}

fn handle(handle: u32) -> String {
    format!("{:x}:{:x}", handle >> 16, handle & 0xffff)
}

fn list(classes: &[&QdiscClass]) -> String {
    let words: Vec<String> = classes.iter().map(|class| handle(class.handle)).collect();
    words.join(" ")
}

fn table(nic: &Nic) -> String {
    format!("RTM_GETTCLASS {}", nic.name)
}

fn rule_without_class(nic: &Nic) -> Option<Notice> {
    let root = of_kind(nic, "htb")?;
    let classes = classes(nic)?;
    let rules = nic.shaping.class_rules.value()?;
    let is_there = |class: u32| classes.iter().any(|own| own.handle == class);
    let rule = rules.iter().find(|rule| !is_there(rule.class))?;
    let default = match root.default_class {
        Some(default) => format!("goes to class {}", handle(default)),
        None => "is sent without a limit".to_owned(),
    };
    let summary = format!(
        "the rule for `{}` on {} selects class {}, which does not exist: its traffic {default}",
        rule.packets,
        nic.name,
        handle(rule.class)
    );
    Some(Notice::new(Severity::Warn, summary).with([
        Evidence::new(
            format!("class of `{}`", rule.packets),
            handle(rule.class),
            format!("nf_tables netdev linerate_qos_{}", nic.name),
        ),
        Evidence::new("classes", list(&classes), table(nic)),
    ]))
}

/// An `htb` sends what has no class at the rate of the line, past all limits.
fn without_default(nic: &Nic) -> Option<Notice> {
    let root = of_kind(nic, "htb")?;
    let classes = classes(nic)?;
    if classes.is_empty() {
        return None;
    }
    let is_there = |default: u32| classes.iter().any(|class| class.handle == default);
    if root.default_class.is_some_and(is_there) {
        return None;
    }
    let default = root.default_class.map_or_else(|| "0".to_owned(), handle);
    let summary = format!(
        "the htb of {} has no class for packets that no filter selects: they are sent without a limit",
        nic.name
    );
    Some(Notice::new(Severity::Note, summary).with([
        Evidence::new(
            "default class",
            default,
            format!("RTM_GETQDISC {}", nic.name),
        ),
        Evidence::new("classes", list(&classes), table(nic)),
    ]))
}

fn without_queue(nic: &Nic) -> Option<Notice> {
    let root = of_kind(nic, "mqprio")?;
    let all = root.traffic_classes.iter().enumerate();
    let mut empty = all.filter(|(_, class)| class.queues == 0 && !class.priorities.is_empty());
    let (number, class) = empty.next()?;
    let priorities: Vec<String> = class.priorities.iter().map(ToString::to_string).collect();
    let summary = format!(
        "traffic class {number} of {} has no queue, but priorities {} map to it",
        nic.name,
        priorities.join(" ")
    );
    let path = format!("RTM_GETQDISC {}", nic.name);
    let evidence = Evidence::new(format!("queues of traffic class {number}"), "0", path);
    Some(Notice::new(Severity::Warn, summary).with([evidence]))
}

fn above_line(nic: &Nic) -> Option<Notice> {
    if !nic.kind.has_wire() {
        return None;
    }
    let line = nic
        .link_bit_per_s
        .get()
        .filter(|line| line.as_bit_per_s() > 0)?;
    let classes = classes(nic)?;
    let above = |class: &&&QdiscClass| class.ceil_bit_per_s.is_some_and(|ceil| ceil > line);
    let class = classes.iter().find(above)?;
    let ceil = class.ceil_bit_per_s?;
    let summary = format!(
        "class {} of {} may send {ceil}, above the link's {line}: the NIC's queue fills in place of the class's",
        handle(class.handle),
        nic.name
    );
    Some(Notice::new(Severity::Note, summary).with([
        Evidence::new(
            format!("ceil of class {}", handle(class.handle)),
            ceil.to_string(),
            table(nic),
        ),
        Evidence::new(
            "link rate",
            line.to_string(),
            format!("/sys/class/net/{}/speed", nic.name),
        ),
    ]))
}

/// What two ports that carry the same traffic must have in common, as text: class by class, and the rules.
fn what_it_holds(nic: &Nic) -> Option<String> {
    let root = root(nic)?;
    let mut words = vec![root.kind.clone()];
    let mut classes = classes(nic)?;
    classes.sort_by_key(|class| class.handle);
    for class in classes {
        let ceil = class.ceil_bit_per_s.map(|ceil| ceil.to_string());
        let ceil = ceil.unwrap_or_else(|| "?".to_owned());
        words.push(format!("{:x} {ceil}", class.handle & 0xffff));
    }
    for class in &root.traffic_classes {
        let priorities: Vec<String> = class.priorities.iter().map(ToString::to_string).collect();
        words.push(format!("priorities {}", priorities.join(" ")));
    }
    if let Known::Value(rules) = &nic.shaping.class_rules {
        let rules = rules.iter();
        words.extend(rules.map(|rule| format!("{} {:x}", rule.packets, rule.class & 0xffff)));
    }
    Some(words.join(", "))
}

/// Another port of the same bond.
fn other_port(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    let bond_of = |nic: &Nic| nic.stack.bond_port.as_ref()?.bond.value().cloned();
    let bond = bond_of(nic)?;
    let own = what_it_holds(nic)?;
    let ports = context.host.nics.iter();
    let mut others =
        ports.filter(|other| other.name != nic.name && bond_of(other).as_ref() == Some(&bond));
    let (other, theirs) = others.find_map(|other| {
        let theirs = what_it_holds(other)?;
        (theirs != own).then_some((other, theirs))
    })?;
    // Of two ports with classes, one reports it.
    let has_classes =
        |nic: &Nic| root(nic).is_some_and(|root| root.kind == "htb" || root.kind == "mqprio");
    if has_classes(other) && other.name < nic.name {
        return None;
    }
    let summary = format!(
        "{} and {}, ports of {bond}, differ in their classes: configure the same on both",
        nic.name, other.name
    );
    Some(Notice::new(Severity::Warn, summary).with([
        Evidence::new(format!("classes of {}", nic.name), own, table(nic)),
        Evidence::new(format!("classes of {}", other.name), theirs, table(other)),
    ]))
}

/// The VLANs on an interface with their egress maps, 0 left out.
fn vlans<'h>(context: &Context<'h>, nic: &Nic) -> Vec<(&'h Nic, Vec<(u32, u32)>)> {
    let is_on = |upper: &&Nic| upper.lower().contains(&nic.name);
    let mapped = |upper: &'h Nic| {
        let vlan = upper.stack.vlan.as_ref()?;
        let map = vlan.egress.value()?.iter();
        let mut map: Vec<(u32, u32)> = map.filter(|(_, to)| *to != 0).copied().collect();
        map.sort_unstable();
        Some((upper, map))
    };
    let all = context.host.nics.iter().filter(is_on);
    all.filter_map(mapped).collect()
}

fn map_in_words(map: &[(u32, u32)]) -> String {
    if map.is_empty() {
        return "none".to_owned();
    }
    let pairs: Vec<String> = map
        .iter()
        .take(16)
        .map(|(from, to)| format!("{from}:{to}"))
        .collect();
    pairs.join(" ")
}

fn evidence(vlan: &Nic, map: &[(u32, u32)], place: &str) -> Evidence {
    Evidence::new(
        format!("egress map of {}{place}", vlan.name),
        map_in_words(map),
        format!("/proc/net/vlan/{}", vlan.name),
    )
}

/// One VLAN without a map beside others that have one. A NIC with data center bridging is judged by `qos-map-conflict`.
fn without_map(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    if nic.kind == NicKind::Physical && matches!(nic.shaping.dcb, Known::Value(_)) {
        return None;
    }
    let vlans = vlans(context, nic);
    let (with, map) = vlans.iter().find(|(_, map)| !map.is_empty())?;
    let (without, none) = vlans.iter().find(|(_, map)| map.is_empty())?;
    let summary = format!(
        "{} has no egress-qos-map, but {} on {} has one: its frames have priority 0",
        without.name, with.name, nic.name
    );
    Some(
        Notice::new(Severity::Note, summary)
            .with([evidence(without, none, ""), evidence(with, map, "")]),
    )
}

/// The VLAN of the same ID at the other end, if it has but one.
fn other_end(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    if context.nic.is_some_and(|own| *own != nic.name) {
        return None;
    }
    let other = context.other?;
    let id_of = |nic: &Nic| nic.stack.vlan.as_ref()?.id.get();
    for (vlan, map) in vlans(context, nic) {
        let Some(id) = id_of(vlan) else { continue };
        let mut theirs = other.nics.iter().filter(|one| id_of(one) == Some(id));
        let (Some(one), None) = (theirs.next(), theirs.next()) else {
            continue;
        };
        let egress = one.stack.vlan.as_ref().and_then(|one| one.egress.value());
        let Some(egress) = egress else { continue };
        let mut their_map: Vec<(u32, u32)> =
            egress.iter().filter(|(_, to)| *to != 0).copied().collect();
        their_map.sort_unstable();
        if their_map != map {
            let summary = format!(
                "VLAN {id} has other egress maps on {} and on {} at the remote end: its frames have another priority on the \
                 way back",
                vlan.name, one.name
            );
            return Some(Notice::new(Severity::Note, summary).with([
                evidence(vlan, &map, ""),
                evidence(one, &their_map, " at the remote end"),
            ]));
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::{BondPort, ClassSelector, Host, TrafficClass, Vlan};
    use crate::units::BitRate;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a rule for a class that is gone", || {
                shaped(|nic| nic.shaping.class_rules = rules(&[("vlan 10", 0x1_0040)]))
            }),
            ("no default class", || {
                shaped(|nic| tree(nic)[0].default_class = None)
            }),
            ("a default class that is gone", || {
                shaped(|nic| tree(nic)[0].default_class = Some(0x1_0099))
            }),
            ("a traffic class without a queue", || {
                shaped(|nic| {
                    let root = &mut tree(nic)[0];
                    root.kind = "mqprio".to_owned();
                    root.default_class = None;
                    root.traffic_classes = vec![TrafficClass {
                        priorities: vec![0, 1],
                        first_queue: 0,
                        queues: 0,
                        max_bit_per_s: None,
                    }];
                })
            }),
            ("a class above the line", || {
                shaped(|nic| nic.shaping.classes = Known::Value(vec![class(0x20, 11_000)]))
            }),
            ("a port of a bond without the classes", || {
                bonded(|nic| {
                    nic.shaping.tree = Known::Value(Vec::new());
                    nic.shaping.tree = Known::Value(vec![node("fq")]);
                    nic.shaping.classes = Known::Value(Vec::new());
                })
            }),
            ("ports of a bond with other limits", || {
                bonded(|nic| nic.shaping.classes = Known::Value(vec![class(0x20, 60)]))
            }),
            ("a VLAN without a map beside one with a map", || {
                with_vlans(&[(10, 3), (11, 0)])
            }),
            ("another map at the remote end", || {
                let far = with_vlans(&[(10, 5)]).context().host.clone();
                with_vlans(&[(10, 3)]).towards(far)
            }),
        ],
        silent: &[
            ("classes with a default", || shaped(|_| {})),
            ("a rule for a class that is there", || {
                shaped(|nic| nic.shaping.class_rules = rules(&[("vlan 10", 0x1_0020)]))
            }),
            ("ports of a bond with the same", || bonded(|_| {})),
            ("VLANs that all have a map", || {
                with_vlans(&[(10, 3), (11, 5)])
            }),
            ("the same map at the remote end", || {
                let far = with_vlans(&[(10, 3)]).context().host.clone();
                with_vlans(&[(10, 3)]).towards(far)
            }),
            ("a veth", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[("not queried", || {
            shaped(|nic| nic.shaping.tree = Known::not_asked("RTM_GETQDISC"))
        })],
    };

    fn tree(nic: &mut Nic) -> &mut Vec<QdiscNode> {
        match &mut nic.shaping.tree {
            Known::Value(tree) => tree,
            Known::Unknown(gap) => panic!("{gap}"),
        }
    }

    fn rules(all: &[(&str, u32)]) -> Known<Vec<ClassSelector>> {
        let one = |(packets, class): &(&str, u32)| ClassSelector {
            packets: (*packets).to_owned(),
            class: *class,
        };
        Known::Value(all.iter().map(one).collect())
    }

    fn class(minor: u32, mbit: u64) -> QdiscClass {
        let rate = Some(BitRate::from_bit_per_s(mbit * 1_000_000));
        QdiscClass {
            kind: "htb".to_owned(),
            handle: 0x1_0000 | minor,
            parent: 0x1_0000,
            rate_bit_per_s: rate,
            ceil_bit_per_s: rate,
        }
    }

    fn node(kind: &str) -> QdiscNode {
        QdiscNode {
            kind: kind.to_owned(),
            handle: 0x1_0000,
            parent: ROOT,
            rate_bit_per_s: None,
            drops: Known::Value(0),
            requeues: Known::Value(0),
            overlimits: Known::Value(0),
            offloaded: Known::Value(false),
            default_class: Some(0x1_0020),
            traffic_classes: Vec::new(),
        }
    }

    fn host(change: impl FnOnce(&mut Nic)) -> Host {
        let shape = |nic: &mut Nic| {
            nic.shaping.tree = Known::Value(vec![node("htb")]);
            nic.shaping.classes = Known::Value(vec![class(0x20, 50)]);
            nic.shaping.class_rules = Known::Value(Vec::new());
            change(nic);
        };
        build::host().nic("eth0", |nic| nic.with(shape)).build()
    }

    fn shaped(change: impl FnOnce(&mut Nic)) -> World {
        World::of(host(change))
    }

    /// `eth0` and `eth1` in a bond, the second one changed.
    fn bonded(change: impl FnOnce(&mut Nic)) -> World {
        let mut host = host(|nic| {
            nic.stack.bond_port = Some(BondPort {
                bond: Known::Value("bond0".parse().expect("a name")),
                ..BondPort::default()
            });
        });
        let mut other = host.nics[0].clone();
        other.name = "eth1".parse().expect("a name");
        change(&mut other);
        host.nics.push(other);
        World::of(host)
    }

    /// VLANs of an interface without data center bridging, each with its ID and the PCP of priority 1.
    fn with_vlans(all: &[(u32, u32)]) -> World {
        let mut host = host(|nic| {
            nic.kind = NicKind::Bond;
        });
        for (id, to) in all {
            let mut vlan = host.nics[0].clone();
            vlan.name = format!("eth0.{id}").parse().expect("a name");
            vlan.kind = NicKind::Vlan;
            vlan.shaping.tree = Known::Value(Vec::new());
            vlan.lower = vec!["eth0".parse().expect("a name")].into();
            vlan.stack.vlan = Some(Vlan {
                id: Known::Value(*id),
                egress: Known::Value(vec![(1, *to)]),
                ..Vlan::default()
            });
            host.nics.push(vlan);
        }
        World::of(host)
    }

    #[test]
    fn a_rule_without_its_class_is_named_with_where_its_traffic_goes() {
        let world = shaped(|nic| nic.shaping.class_rules = rules(&[("vlan 10", 0x1_0040)]));
        let found = finding(ID, &world.context());
        assert_eq!(
            found.summary,
            "the rule for `vlan 10` on eth0 selects class 1:40, which does not exist: its traffic goes to class 1:20"
        );
    }
}
