//! A file of classes from what an interface has: the inverse of a plan, as far as the facts of the host go.

mod limits;
mod written;

use self::limits::{Limits, found_limits};
use self::written::{Vlans, of_dcb, of_htb, of_mqprio, only_vlans};
use super::file::{RATE_MIN, WrittenQos};
use super::plan::{VIRTUAL_LINE, holders_of, line_of, nic_of};
use super::{Framing, Mechanism, NotApplicable, QosFile, WrittenClass, unread_filters};
use crate::host::{Host, Nic, QueueKind};
use crate::ids::NicName;
use crate::setting::qdisc_spec::parse_rate;
use crate::setting::{ClassRule, QdiscSpec};
use crate::units::BitRate;

/// What holds the limits of an interface, besides the traffic classes of its NIC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// Its root qdisc; none if it has no parameters to know.
    pub qdisc: Option<QdiscSpec>,
    /// Which packets go to which class.
    pub rules: Vec<ClassRule>,
}

/// The file of an interface, and what is not in it. `held` reads an interface: the one itself, or a port of a bond.
///
/// # Errors
/// [`NotApplicable`] if there is no such interface, or it is no port.
pub fn imported(
    host: &Host,
    interface: &NicName,
    held: impl Fn(&NicName) -> Held,
) -> Result<(QosFile, Vec<String>), NotApplicable> {
    let nic = nic_of(host, interface)?;
    let mut notes = Vec::new();
    let found = found_limits(host, nic, held, &mut notes);
    let vlans = Vlans::of(host, interface, &mut notes);
    let (holders, _) = holders_of(host, nic);
    let known_line = line_of(host, nic, &holders);
    let line = known_line.unwrap_or(VIRTUAL_LINE);
    let mut classes = match &found.limits {
        Limits::Dcb(dcb) => of_dcb(dcb, line, &vlans, &mut notes),
        Limits::Mqprio(mqprio, rules) => of_mqprio(mqprio, rules, &vlans, &mut notes),
        Limits::Htb(htb, rules) => of_htb(htb, rules, &vlans, &mut notes),
        Limits::None => only_vlans(&vlans),
    };
    match found.limits {
        Limits::None => notes.extend(unread_qdisc(found.nic)),
        Limits::Dcb(_) => notes.extend(qdisc_beside(found.nic)),
        _ => {}
    }
    notes.extend(unread_filters(found.nic));
    let line_there = if found.nic.name == nic.name {
        known_line
    } else {
        line_of(host, found.nic, std::slice::from_ref(&found.nic.name))
    };
    if let (Limits::Htb(htb, _), Some(line)) = (&found.limits, line_there)
        && let Some(top) = htb.top_ceil().filter(|top| *top < line)
    {
        notes.push(format!(
            "all classes of {} together have {top}, less than the line's {line}: that is not in the file",
            found.nic.name
        ));
    }
    make_readable(&mut classes, line, &mut notes);
    if classes.is_empty() {
        notes.push(format!(
            "{interface} has no VLAN and no limit: the file is only its head"
        ));
    }
    let file = QosFile {
        qos: WrittenQos {
            interface: interface.to_string(),
            limit_of: match found.limits {
                Limits::Dcb(_) => Framing::Wire,
                _ => Framing::Frame,
            },
            mechanism: mechanism_of(&found.limits, found.nic, &classes)
                .filter(|_| holders.contains(&found.nic.name)),
        },
        classes,
    };
    Ok((file, notes))
}

/// The mechanism that holds the limits now, if a plan can use it for these classes.
fn mechanism_of(limits: &Limits, nic: &Nic, classes: &[WrittenClass]) -> Option<Mechanism> {
    match limits {
        Limits::Dcb(_) => Some(Mechanism::Dcb),
        Limits::Htb(..) => Some(Mechanism::Htb),
        Limits::Mqprio(mqprio, _) => {
            let queues = nic
                .queues
                .iter()
                .filter(|queue| queue.kind == QueueKind::Tx);
            let mechanism = if mqprio.limits_in_nic() {
                Mechanism::Offload
            } else {
                Mechanism::Mqprio
            };
            (classes.len() < queues.count()).then_some(mechanism)
        }
        Limits::None => None,
    }
}

/// A qdisc with classes above the traffic classes of the NIC.
fn qdisc_beside(nic: &Nic) -> Option<String> {
    let kind = nic.qdisc.value()?.kind.as_str();
    matches!(kind, "htb" | "mqprio").then(|| {
        format!(
            "{} also has an {kind} qdisc, through which packets pass before the NIC's traffic classes: its limits are not in the file",
            nic.name
        )
    })
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

/// Removes what a file of classes may not have, and notes it: two classes of one priority, and rates that do not fit the line.
fn make_readable(classes: &mut [WrittenClass], line: BitRate, notes: &mut Vec<String>) {
    for priority in 0..=7_u8 {
        let own = |class: &&WrittenClass| class.priority == Some(priority);
        let names: Vec<&str> = (classes.iter().filter(own))
            .map(|class| class.name.as_str())
            .collect();
        if names.len() < 2 {
            continue;
        }
        notes.push(format!(
            "the classes {} have priority {priority}, and a file has one class for each: the VLANs are in it without `priority`, so \
             that their egress maps stay as they are",
            names.join(", ")
        ));
        for class in classes.iter_mut() {
            if class.vlan.is_some() && class.priority == Some(priority) {
                class.priority = None;
            }
        }
    }
    let does_not_fit = |words: &str| {
        parse_rate(words).filter(|rate| *rate > line || rate.as_bit_per_s() < RATE_MIN)
    };
    for class in classes.iter_mut() {
        if let Some(limit) = does_not_fit(&class.limit) {
            notes.push(format!(
                "class {}: a limit of {limit} does not fit a line of {line} and is not in the file",
                class.name
            ));
            "none".clone_into(&mut class.limit);
        }
        let own = class.guarantee.as_deref();
        if let Some(guarantee) = own.and_then(does_not_fit) {
            notes.push(format!(
                "class {}: a guarantee of {guarantee} does not fit a line of {line} and is not in the file",
                class.name
            ));
            class.guarantee = None;
        }
        let own = class.guarantee.as_deref();
        let limit = parse_rate(&class.limit);
        if let (Some(guarantee), Some(limit)) = (own.and_then(parse_rate), limit)
            && guarantee > limit
        {
            notes.push(format!(
                "class {}: a guarantee of {guarantee} is more than its limit of {limit}: the limit applies",
                class.name
            ));
            class.guarantee = Some(class.limit.clone());
        }
    }
}

#[cfg(test)]
mod tests;
