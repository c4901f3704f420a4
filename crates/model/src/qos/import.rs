//! A file of classes from what an interface has: the inverse of a plan, as far as the facts of the host go.

use super::file::{Dscp, OneOrMore, WrittenQos};
use super::plan::{is_vlan_of, nic_of};
use super::{Framing, Mechanism, NotApplicable, QosFile, WrittenClass, dscp_word, unread_filters};
use crate::host::{Dcb, Host, Nic};
use crate::ids::NicName;
use crate::setting::qdisc_spec::{Htb, Mqprio, rate_words};
use crate::setting::{ClassRule, Packets, QdiscSpec};
use crate::units::BitRate;

/// What holds the limits of an interface, besides the traffic classes of its NIC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// Its root qdisc; none if it has no parameters to know.
    pub qdisc: Option<QdiscSpec>,
    /// Which packets go to which class.
    pub rules: Vec<ClassRule>,
}

/// The file of an interface, and what it cannot tell.
///
/// # Errors
/// [`NotApplicable`] if there is no such interface, or it is no port.
pub fn imported(
    host: &Host,
    interface: &NicName,
    held: &Held,
) -> Result<(QosFile, Vec<String>), NotApplicable> {
    let nic = nic_of(host, interface)?;
    let mut notes = Vec::new();
    let dcb = nic.shaping.dcb.value();
    let limited = dcb.filter(|dcb| {
        let rates = dcb.class_max_bit_per_s.value();
        rates.is_some_and(|rates| rates.iter().any(|rate| rate.as_bit_per_s() > 0))
    });
    let mut classes = Vec::new();
    for other in &host.nics {
        let vlan = other.stack.vlan.as_ref();
        let id = vlan.and_then(|vlan| u16::try_from(vlan.id.get()?).ok());
        if let Some(id) = id.filter(|id| is_vlan_of(other, *id, interface)) {
            classes.push(of_vlan(other, id, limited, &mut notes));
        }
    }
    let mechanism = match (limited, &held.qdisc) {
        (Some(_), _) => Some(Mechanism::Dcb),
        (None, Some(QdiscSpec::Htb(htb))) => {
            of_htb(htb, &held.rules, &mut classes, &mut notes);
            Some(Mechanism::Htb)
        }
        (None, Some(QdiscSpec::Mqprio(mqprio))) => {
            of_mqprio(mqprio, &held.rules, &mut classes);
            Some(Mechanism::Mqprio)
        }
        (None, None) => {
            notes.extend(unread_qdisc(nic));
            None
        }
        (None, Some(_)) => None,
    };
    notes.extend(unread_filters(nic));
    if classes.is_empty() {
        notes.push(format!(
            "{interface} has no VLAN and no limit: the file is only its head"
        ));
    }
    let file = QosFile {
        qos: WrittenQos {
            interface: interface.to_string(),
            limit_of: match mechanism {
                Some(Mechanism::Dcb) => Framing::Wire,
                _ => Framing::Frame,
            },
            mechanism,
        },
        classes,
    };
    Ok((file, notes))
}

/// A qdisc with classes that is there, and has something that cannot be expressed.
fn unread_qdisc(nic: &Nic) -> Option<String> {
    let qdisc = nic.qdisc.value()?;
    matches!(qdisc.kind.as_str(), "htb" | "mqprio").then(|| {
        format!(
            "the {} of {} has something that linerate cannot express, such as a qdisc of another kind below a class: its limits \
             are not in the file",
            qdisc.kind, nic.name
        )
    })
}

/// A class of a VLAN: its PCP, if all of its socket priorities have the same, and the limit of that traffic class.
fn of_vlan(nic: &Nic, id: u16, dcb: Option<&Dcb>, notes: &mut Vec<String>) -> WrittenClass {
    let egress = nic.stack.vlan.as_ref().and_then(|vlan| vlan.egress.value());
    let mut of_all: Vec<u32> = egress.into_iter().flatten().map(|(_, pcp)| *pcp).collect();
    let is_whole = of_all.len() >= 8;
    of_all.dedup();
    let priority = match of_all[..] {
        [one] if is_whole => u8::try_from(one).ok(),
        [] => None,
        _ => {
            notes.push(format!(
                "{} maps only some socket priorities, or to several PCPs; a class has one",
                nic.name
            ));
            None
        }
    };
    let limit = priority.zip(dcb).and_then(|(priority, dcb)| {
        let class = *dcb.priority_class.value()?.get(usize::from(priority))?;
        let rates = dcb.class_max_bit_per_s.value()?;
        let rate = rates.get(usize::try_from(class).ok()?)?;
        (rate.as_bit_per_s() > 0).then(|| rate_words(*rate))
    });
    let addresses = nic.addresses.value().cloned().unwrap_or_default();
    let own = addresses.into_iter();
    let own: Vec<String> = own.filter(|one| !one.starts_with("fe80:")).collect();
    WrittenClass {
        name: format!("vlan{id}"),
        vlan: Some(id),
        device: Some(nic.name.to_string()),
        address: match <[String; 1]>::try_from(own) {
            Ok([one]) => OneOrMore::One(one),
            Err(all) => OneOrMore::More(all),
        },
        limit: limit.unwrap_or_else(|| "none".to_owned()),
        priority,
        ..WrittenClass::default()
    }
}

/// The limit and the guarantee of a class, as words; none if it has none.
type Rates = (Option<String>, Option<String>);

/// Gives the classes that the rules select their rates, in the order of the rules: the VLANs that are there, and new ones.
fn of_rules(
    rules: &[ClassRule],
    classes: &mut Vec<WrittenClass>,
    rates: impl Fn(u32) -> Option<Rates>,
) {
    for rule in rules {
        let Some((limit, guarantee)) = rates(rule.class) else {
            continue;
        };
        let mut own = match rule.packets {
            Packets::Vlan(id) => {
                let mut there = classes.iter_mut();
                let Some(class) = there.find(|class| class.vlan == Some(id)) else {
                    continue;
                };
                (class.limit, class.guarantee) = (limit.unwrap_or_else(none), guarantee);
                continue;
            }
            Packets::Priority(priority) => WrittenClass {
                name: format!("priority{priority}"),
                priority: u8::try_from(priority).ok(),
                ..WrittenClass::default()
            },
            Packets::Dscp(dscp) => WrittenClass {
                name: format!("dscp-{}", dscp_word(dscp)),
                dscp: Some(Dscp::Name(dscp_word(dscp))),
                ..WrittenClass::default()
            },
            Packets::Mark(mark) => WrittenClass {
                name: format!("mark{mark}"),
                mark: Some(mark),
                ..WrittenClass::default()
            },
            Packets::Port(port) => {
                let name = format!("ports-{:x}", rule.class & 0xffff);
                let mut there = classes.iter_mut();
                if let Some(class) = there.find(|class| class.name == name) {
                    class.ports.push(port);
                    continue;
                }
                WrittenClass {
                    name,
                    ports: vec![port],
                    ..WrittenClass::default()
                }
            }
        };
        (own.limit, own.guarantee) = (limit.unwrap_or_else(none), guarantee);
        classes.push(own);
    }
}

fn none() -> String {
    "none".to_owned()
}

/// The leaves of an `htb`. What filters select is not read: such a class gets a mark to be replaced.
fn of_htb(
    htb: &Htb,
    rules: &[ClassRule],
    classes: &mut Vec<WrittenClass>,
    notes: &mut Vec<String>,
) {
    // A ceil of the top class is the line.
    let tops = htb.classes.values().filter(|class| class.parent == 0);
    let line = tops.map(|class| class.ceil).max();
    let has_top = htb.classes.values().any(|class| class.parent != 0);
    let rates = |minor: u16| {
        let class = htb.classes.get(&minor)?;
        let is_open = has_top && Some(class.ceil) == line;
        let limit = (!is_open).then(|| rate_words(class.ceil));
        let guarantee = (class.rate != class.ceil).then(|| rate_words(class.rate));
        Some((limit, guarantee))
    };
    let minor_of = |class: u32| u16::try_from(class & 0xffff).unwrap_or(0);
    of_rules(rules, classes, |class| rates(minor_of(class)));
    let is_leaf = |minor: u16| !htb.classes.values().any(|class| class.parent == minor);
    let is_ruled = |minor: u16| rules.iter().any(|rule| minor_of(rule.class) == minor);
    let mut others = Vec::new();
    for minor in htb.classes.keys().copied().filter(|minor| is_leaf(*minor)) {
        if is_ruled(minor) {
            continue;
        }
        let (limit, guarantee) = rates(minor).unwrap_or_default();
        let is_rest = minor == htb.default;
        if !is_rest {
            others.push(format!("{minor:x}"));
        }
        classes.push(WrittenClass {
            name: if is_rest {
                "rest".to_owned()
            } else {
                format!("class-{minor:x}")
            },
            limit: limit.unwrap_or_else(none),
            guarantee,
            mark: (!is_rest).then_some(u32::from(minor)),
            ..WrittenClass::default()
        });
    }
    if !others.is_empty() {
        notes.push(format!(
            "what selects the traffic of the htb classes {} is not in rules of linerate: replace their `mark`",
            others.join(", ")
        ));
    }
}

/// The classes of an `mqprio`, limited by a token bucket below their queue.
fn of_mqprio(mqprio: &Mqprio, rules: &[ClassRule], classes: &mut Vec<WrittenClass>) {
    let limit_of = |priority: usize| -> Option<Rates> {
        let number = usize::from(*mqprio.map.get(priority)?);
        let (_, first) = mqprio.queues.get(number)?;
        let limit: Option<BitRate> = match mqprio.leaves.get(&(first + 1)) {
            Some(QdiscSpec::Tbf(tbf)) => Some(tbf.rate),
            _ => mqprio.max_rates.get(number).copied(),
        };
        let limit = limit.filter(|limit| limit.as_bit_per_s() > 0);
        Some((limit.map(rate_words), None))
    };
    let priority_of = |class: u32| usize::try_from(class & 0xffff).unwrap_or(usize::MAX);
    of_rules(rules, classes, |class| limit_of(priority_of(class)));
    // Priorities that have a limit, and that no rule gives to its packets.
    let ruled: Vec<usize> = rules.iter().map(|rule| priority_of(rule.class)).collect();
    for priority in (0..8_u8).filter(|priority| !ruled.contains(&usize::from(*priority))) {
        if let Some((Some(limit), _)) = limit_of(usize::from(priority)) {
            classes.push(WrittenClass {
                name: format!("priority{priority}"),
                priority: Some(priority),
                limit,
                ..WrittenClass::default()
            });
        }
    }
}
