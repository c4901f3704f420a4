//! A hierarchy of token buckets: tc-htb(8), and nf_tables rules that name the class of a packet.

use super::super::{Qos, QosClass, Selector, dscp_word};
use super::{PlannedClass, PlannedSetting};
use crate::ids::NicName;
use crate::setting::qdisc_spec::{byte_words, rate_words};
use crate::units::BitRate;

/// The handle of the root qdisc, and the number of its top class.
const ROOT: u16 = 1;
const TOP: u16 = 1;
/// The smallest burst, bytes: ten frames; and what a class may send at once otherwise, in microseconds of its rate, so that a
/// timer that is late costs no rate.
const BURST_MIN: u64 = 15 * 1024;
const BURST_US: u64 = 1_000;
/// What a class sends in its turn, bytes: nearly the largest segment that is not split before a qdisc.
const QUANTUM: u32 = 60_000;

/// The qdisc of `holder` with a class for each of the file, and the rules that fill them.
pub(super) fn settings(
    qos: &Qos,
    holder: &NicName,
    classes: &[PlannedClass],
    line: BitRate,
    leaf: &str,
) -> Vec<PlannedSetting> {
    let rest = qos.classes.iter().zip(classes);
    let rest = rest.filter(|(class, _)| class.selector == Selector::Rest);
    let rest = rest
        .map(|(_, planned)| planned.number)
        .next()
        .unwrap_or(TOP);
    let class = |number: u16, below: Option<u16>, rate: BitRate, ceil: BitRate| {
        let parent = below
            .map(|parent| format!(" parent {parent:x}"))
            .unwrap_or_default();
        let (burst, reserve) = (byte_words(burst_of(rate)), byte_words(burst_of(ceil)));
        format!(
            " class {number:x}{parent} rate {} ceil {} burst {burst} cburst {reserve} quantum {QUANTUM}",
            rate_words(rate),
            rate_words(ceil)
        )
    };
    let below = |planned: &PlannedClass| {
        let (rate, ceil) = (planned.rates.rate, planned.rates.ceil);
        class(planned.number, Some(TOP), rate, ceil) + " leaf " + leaf
    };
    let below: String = classes.iter().map(below).collect();
    let top = class(TOP, None, line, line);
    let qdisc = format!("htb default {rest:x}{top}{below}");
    let rules = qos.classes.iter().zip(classes);
    let rules: Vec<String> = rules
        .flat_map(|(class, planned)| selected(class, &format!("{ROOT:x}:{:x}", planned.number)))
        .collect();
    let rules = if rules.is_empty() {
        "none".to_owned()
    } else {
        rules.join("; ")
    };
    vec![
        PlannedSetting {
            key: format!("nic/{holder}/qdisc"),
            value: qdisc,
            about: "the limits".to_owned(),
        },
        PlannedSetting {
            key: format!("nic/{holder}/class-rules"),
            value: rules,
            about: "the class of each packet".to_owned(),
        },
    ]
}

/// What may be sent at once, bytes.
fn burst_of(rate: BitRate) -> u32 {
    let bytes = u128::from(rate.as_bit_per_s()) / 8 * u128::from(BURST_US) / 1_000_000;
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX / 2);
    bytes.max(u32::try_from(BURST_MIN).unwrap_or(u32::MAX)) / 1024 * 1024
}

/// The rules that give a class its packets; the rest needs none.
pub(super) fn selected(class: &QosClass, target: &str) -> Vec<String> {
    let by = |what: String| format!("{what} -> {target}");
    match (&class.selector, &class.vlan) {
        (Selector::Vlan, Some(vlan)) => vec![by(format!("vlan {}", vlan.id))],
        (Selector::Priority(priority), _) => vec![by(format!("priority {priority}"))],
        (Selector::Dscp(dscp), _) => vec![by(format!("dscp {}", dscp_word(*dscp)))],
        (Selector::Ports(ports), _) => ports
            .iter()
            .map(|port| by(format!("port {port}")))
            .collect(),
        (Selector::Mark(mark), _) => vec![by(format!("mark {mark}"))],
        (Selector::Vlan | Selector::Rest, _) => Vec::new(),
    }
}
