//! A file of classes from what an interface has: the inverse of a plan, as far as the host tells.

use super::file::{OneOrMore, WrittenQos};
use super::plan::{is_vlan_of, nic_of};
use super::{Framing, Mechanism, NotApplicable, QosFile, WrittenClass};
use crate::host::{Dcb, Host, Nic, QdiscClass};
use crate::ids::NicName;
use crate::setting::qdisc_spec::rate_words;
use crate::units::BitRate;

/// The file of an interface, and what it cannot tell.
///
/// # Errors
/// [`NotApplicable`] if there is no such interface, or it is no port.
pub fn imported(host: &Host, interface: &NicName) -> Result<(QosFile, Vec<String>), NotApplicable> {
    let nic = nic_of(host, interface)?;
    let mut notes = Vec::new();
    let mut classes = Vec::new();
    let dcb = nic.shaping.dcb.value();
    let limited = dcb.is_some_and(|dcb| dcb.class_max_bit_per_s.value().is_some());
    for other in &host.nics {
        let id = other
            .stack
            .vlan
            .as_ref()
            .and_then(|vlan| vlan.id.value().copied());
        let id = id.and_then(|id| u16::try_from(id).ok());
        if let Some(id) = id.filter(|id| is_vlan_of(other, *id, interface)) {
            classes.push(of_vlan(other, id, dcb, &mut notes));
        }
    }
    if !limited {
        classes.extend(of_tree(nic, &classes, &mut notes));
    }
    if classes.is_empty() {
        notes.push(format!(
            "{interface} has no VLAN and no limit: the file is only its head"
        ));
    }
    let file = QosFile {
        qos: WrittenQos {
            interface: interface.to_string(),
            limit_of: if limited {
                Framing::Wire
            } else {
                Framing::Frame
            },
            mechanism: limited.then_some(Mechanism::Dcb),
        },
        classes,
    };
    Ok((file, notes))
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
        let rate = dcb
            .class_max_bit_per_s
            .value()?
            .get(usize::try_from(class).ok()?)?;
        (rate.as_bit_per_s() > 0).then(|| rate_words(*rate))
    });
    let addresses = nic.addresses.value().cloned().unwrap_or_default();
    let own: Vec<String> = addresses
        .into_iter()
        .filter(|one| !one.starts_with("fe80:"))
        .collect();
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

/// Classes of the leaves of an `htb`. What selects their traffic is in filters, which are not read: each gets a mark to be
/// replaced.
fn of_tree(nic: &Nic, vlans: &[WrittenClass], notes: &mut Vec<String>) -> Vec<WrittenClass> {
    let all = nic.shaping.classes.value().map_or(&[][..], Vec::as_slice);
    let tree: Vec<&QdiscClass> = all.iter().filter(|class| class.kind == "htb").collect();
    let is_leaf = |class: &&&QdiscClass| !tree.iter().any(|other| other.parent == class.handle);
    let leaves: Vec<&&QdiscClass> = tree.iter().filter(is_leaf).collect();
    if leaves.is_empty() {
        return Vec::new();
    }
    notes.push(format!(
        "what selects the traffic of the htb classes of {} is in filters or rules: replace each `mark`{}",
        nic.name,
        if vlans.is_empty() { "" } else { ", or give the VLANs the limits" }
    ));
    let words = |rate: Option<BitRate>| rate.map(rate_words);
    let class = |class: &&QdiscClass| {
        let minor = class.handle & 0xffff;
        let guarantee = words(class.rate_bit_per_s);
        let limit = words(class.ceil_bit_per_s).unwrap_or_else(|| "none".to_owned());
        WrittenClass {
            name: format!("class-{minor:x}"),
            guarantee: guarantee.filter(|guarantee| *guarantee != limit),
            limit,
            mark: Some(minor),
            ..WrittenClass::default()
        }
    };
    leaves.into_iter().map(class).collect()
}
