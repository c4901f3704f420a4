//! Traffic classes of a NIC: dcb-ets(8), dcb-maxrate(8).

use super::super::{Qos, QosClass, Selector};
use super::{PlannedClass, PlannedSetting};
use crate::host::{Dcb, Host};
use crate::ids::NicName;

/// The number of priorities and of traffic classes (IEEE 802.1Qaz).
const CLASSES: usize = 8;
/// The kernel's unit of a maximum rate, bit/s (`struct ieee_maxrate`).
const STEP: u64 = 1_000;

/// What the interfaces lack for it.
pub(super) fn lacks(qos: &Qos, host: &Host, holders: &[NicName]) -> Option<String> {
    for holder in holders {
        let dcb = host.nic(holder).and_then(|nic| nic.shaping.dcb.value());
        let rates = dcb.map(|dcb: &Dcb| dcb.class_max_bit_per_s.value());
        match rates {
            Some(Some(_)) => {}
            Some(None) => return Some(format!("{holder} has no maximum rate of a traffic class")),
            None => return Some(format!("{holder} has no data center bridging")),
        }
    }
    if qos.classes.len() > CLASSES {
        return Some(format!("a NIC has {CLASSES} traffic classes"));
    }
    let of_frame = |selector: &Selector| {
        matches!(
            selector,
            Selector::Vlan | Selector::Priority(_) | Selector::Rest
        )
    };
    if let Some(class) = qos.classes.iter().find(|class| !of_frame(&class.selector)) {
        let name = &class.name;
        return Some(format!(
            "class {name} is not selected by a priority or a VLAN"
        ));
    }
    let has_none = |class: &&QosClass| class.selector == Selector::Vlan && class.priority.is_none();
    let class = qos.classes.iter().find(has_none)?;
    Some(format!(
        "class {} has no priority, by which the NIC would know its frames",
        class.name
    ))
}

/// The priorities of each class, its share and its rate.
pub(super) fn settings(
    qos: &Qos,
    holder: &NicName,
    classes: &[PlannedClass],
) -> Vec<PlannedSetting> {
    let mut of_priority = [0_u16; CLASSES];
    let mut strict = [true; CLASSES];
    let mut share = [0_u64; CLASSES];
    let mut rates = Vec::new();
    let line: u64 = classes
        .iter()
        .map(|class| class.rates.ceil.as_bit_per_s())
        .max()
        .unwrap_or(1);
    for (class, planned) in qos.classes.iter().zip(classes) {
        let number = usize::from(planned.number).min(CLASSES - 1);
        if let Some(priority) = class.priority {
            of_priority[usize::from(priority) % CLASSES] = planned.number;
        }
        if class.guarantee.is_some() {
            strict[number] = false;
            share[number] = (planned.rates.rate.as_bit_per_s() * 100).div_ceil(line.max(1));
        }
        if planned.limit.is_some() {
            let rate = planned.rates.ceil.as_bit_per_s() / STEP * STEP;
            rates.push(format!("{number}:{rate}"));
        }
    }
    // Shares sum to 100; what no guarantee takes goes to the class of the rest.
    if strict.contains(&false) {
        strict[0] = false;
        share[0] = 100_u64.saturating_sub(share[1..].iter().sum());
    }
    let list = |name: &str, words: Vec<String>| {
        let words = words.iter().enumerate();
        let words: Vec<String> = words.map(|(at, word)| format!("{at}:{word}")).collect();
        format!("{name} {}", words.join(" "))
    };
    let served = |strict: &bool| if *strict { "strict" } else { "ets" }.to_owned();
    let ets = [
        list(
            "prio-tc",
            of_priority.iter().map(ToString::to_string).collect(),
        ),
        list("tc-bw", share.iter().map(ToString::to_string).collect()),
        list("tc-tsa", strict.iter().map(served).collect()),
    ];
    rates.sort();
    vec![
        PlannedSetting {
            key: format!("nic/{holder}/dcb/ets"),
            value: ets.join(" "),
            about: "the class of each priority".to_owned(),
        },
        PlannedSetting {
            key: format!("nic/{holder}/dcb/maxrate"),
            value: rates.join(" "),
            about: "the limits".to_owned(),
        },
    ]
}
