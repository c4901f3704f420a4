//! Traffic classes of a NIC: dcb-ets(8), dcb-maxrate(8).

use super::super::{Qos, QosClass, Selector};
use super::{PlannedClass, PlannedSetting};
use crate::host::{Dcb, Host};
use crate::ids::NicName;
use crate::units::BitRate;

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

/// The ETS share of each traffic class, per cent; none without a guarantee, which is what ETS is for.
///
/// Every class has a share then: ETS divides what the strict classes leave, so a strict one could take what is guaranteed. A
/// driver accepts shares only if they sum to 100. They are rounded down, and traffic class 0 (the rest) has the remainder.
pub(super) fn shares(qos: &Qos, classes: &[PlannedClass], line: BitRate) -> Option<[u64; CLASSES]> {
    qos.classes.iter().find(|class| class.guarantee.is_some())?;
    let mut share = [0; CLASSES];
    for planned in classes {
        let rate = u128::from(planned.rates.rate.as_bit_per_s());
        let whole = rate * 100 / u128::from(line.as_bit_per_s().max(1));
        share[of(planned)] = u64::try_from(whole).unwrap_or(100).max(1);
    }
    // Small classes are rounded up to 1, which the largest pays for.
    while share[1..].iter().sum::<u64>() > 99 {
        *share[1..].iter_mut().max()? -= 1;
    }
    share[0] = 100 - share[1..].iter().sum::<u64>();
    Some(share)
}

/// Notes what the shares guarantee to each class.
pub(super) fn guarantee(qos: &Qos, classes: &mut [PlannedClass], line: BitRate) {
    let Some(shares) = shares(qos, classes, line) else {
        return;
    };
    for planned in classes {
        let own = u128::from(line.as_bit_per_s()) * u128::from(shares[of(planned)]) / 100;
        let own = BitRate::from_bit_per_s(u64::try_from(own).unwrap_or(u64::MAX));
        planned.guaranteed = Some(own.min(planned.rates.ceil));
    }
}

/// The traffic class of a class.
fn of(planned: &PlannedClass) -> usize {
    usize::from(planned.number).min(CLASSES - 1)
}

/// The priorities of each class, its share and its rate.
pub(super) fn settings(
    qos: &Qos,
    holder: &NicName,
    classes: &[PlannedClass],
    line: BitRate,
) -> Vec<PlannedSetting> {
    let mut of_priority = [0_u16; CLASSES];
    let share = shares(qos, classes, line).unwrap_or_default();
    let mut rates = Vec::new();
    for (class, planned) in qos.classes.iter().zip(classes) {
        if let Some(priority) = class.priority {
            of_priority[usize::from(priority) % CLASSES] = planned.number;
        }
        if planned.limit.is_some() {
            let rate = planned.rates.ceil.as_bit_per_s() / STEP * STEP;
            rates.push(format!("{}:{rate}", of(planned)));
        }
    }
    let list = |name: &str, words: Vec<String>| {
        let words = words.iter().enumerate();
        let words: Vec<String> = words.map(|(at, word)| format!("{at}:{word}")).collect();
        format!("{name} {}", words.join(" "))
    };
    let served = |share: &u64| if *share == 0 { "strict" } else { "ets" }.to_owned();
    let ets = [
        list(
            "prio-tc",
            of_priority.iter().map(ToString::to_string).collect(),
        ),
        list("tc-bw", share.iter().map(ToString::to_string).collect()),
        list("tc-tsa", share.iter().map(served).collect()),
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
