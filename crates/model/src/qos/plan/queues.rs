//! A transmit queue for each class, with a token bucket: tc-mqprio(8), tc-tbf(8).

use super::super::{Qos, Selector};
use super::tree::selected;
use super::{PRIORITIES, PlannedClass, PlannedSetting};
use crate::host::{Host, NicKind, QueueKind};
use crate::ids::NicName;
use crate::setting::qdisc_spec::{byte_words, rate_words};
use crate::units::BitRate;

/// The most traffic classes (`TC_QOPT_MAX_QUEUE`).
const CLASSES: usize = 16;
/// How long a packet may wait for tokens.
const LATENCY: &str = "50ms";
/// What may be sent at once, bytes: at least two of the largest segments, which a bucket that is smaller never passes.
const BURST_MIN: u64 = 128 * 1024;
const BURST_US: u64 = 1_000;

pub(super) fn tx_queues(host: &Host, holder: &NicName) -> usize {
    let queues = host.nic(holder).map(|nic| nic.queues.as_slice());
    let queues = queues.unwrap_or_default().iter();
    queues.filter(|queue| queue.kind == QueueKind::Tx).count()
}

/// What the interfaces lack for it.
pub(super) fn lacks(
    qos: &Qos,
    host: &Host,
    holders: &[NicName],
    has_qdisc: impl Fn(&str) -> bool,
) -> Option<String> {
    let count = qos.classes.len();
    if let Some(class) = qos.classes.iter().find(|class| class.guarantee.is_some()) {
        return Some(format!(
            "class {} has a guarantee, which queues do not give",
            class.name
        ));
    }
    if let Some(why) = lacks_queues(count, host, holders) {
        return Some(why);
    }
    let missing = ["mqprio", "tbf"]
        .into_iter()
        .find(|kind| !has_qdisc(kind))?;
    Some(format!(
        "the kernel has no {missing} (module sch_{missing})"
    ))
}

/// Why the interfaces cannot give each of `count` classes a queue.
pub(super) fn lacks_queues(count: usize, host: &Host, holders: &[NicName]) -> Option<String> {
    if count > CLASSES {
        return Some(format!("there are {count} classes, and it has {CLASSES}"));
    }
    for holder in holders {
        let kind = host.nic(holder).map(|nic| nic.kind);
        // `bond_select_queue` and `team_select_queue` do not use the traffic class of the priority.
        if let Some(what @ (NicKind::Bond | NicKind::Team)) = kind {
            let what = if what == NicKind::Bond {
                "bond"
            } else {
                "team"
            };
            return Some(format!(
                "{holder} is a {what}, which does not choose its queue by priority"
            ));
        }
        let queues = tx_queues(host, holder);
        if queues < count {
            return Some(format!(
                "{holder} has too few transmit queues: {queues} for {count} classes"
            ));
        }
    }
    None
}

/// The queue of each class and its bucket, and the rules that give packets the priority of their class.
pub(super) fn settings(
    qos: &Qos,
    host: &Host,
    holder: &NicName,
    classes: &[PlannedClass],
) -> Vec<PlannedSetting> {
    let (queues, leaves) = queues_of(classes, tx_queues(host, holder));
    let leaves = leaves.concat();
    let (map, rules) = priorities(qos, classes);
    let words = format!(
        "mqprio num_tc {} map {map} queues {queues} hw 0{leaves}",
        classes.len()
    );
    with_rules(holder, words, &rules)
}

/// The qdisc, and the rules by which packets get the priority of their class.
pub(super) fn with_rules(holder: &NicName, words: String, rules: &[String]) -> Vec<PlannedSetting> {
    let mut settings = vec![PlannedSetting {
        key: format!("nic/{holder}/qdisc"),
        value: words,
        about: "the limits".to_owned(),
    }];
    if !rules.is_empty() {
        settings.push(PlannedSetting {
            key: format!("nic/{holder}/class-rules"),
            value: rules.join("; "),
            about: "the class of each packet".to_owned(),
        });
    }
    settings
}

/// The queues of each class by its number, and the buckets below them. A class with a limit has one queue; the others share
/// the queues that are left.
fn queues_of(classes: &[PlannedClass], available: usize) -> (String, Vec<String>) {
    let mut by_number: Vec<&PlannedClass> = classes.iter().collect();
    by_number.sort_by_key(|class| class.number);
    let mut open = by_number
        .iter()
        .filter(|class| class.limit.is_none())
        .count();
    let mut spare = available.saturating_sub(classes.len());
    let (mut queues, mut leaves, mut first) = (Vec::new(), Vec::new(), 0_usize);
    for class in by_number {
        let more = match class.limit {
            Some(_) => 0,
            None => spare / open.max(1),
        };
        if class.limit.is_some() {
            leaves.push(leaf(first + 1, class.rates.ceil));
        } else {
            (spare, open) = (spare - more, open - 1);
        }
        queues.push(format!("{}@{first}", 1 + more));
        first += 1 + more;
    }
    (queues.join(" "), leaves)
}

/// A token bucket below a queue, whose number is from 1.
fn leaf(queue: usize, rate: BitRate) -> String {
    let bytes = (rate.as_bit_per_s() / 8 * BURST_US / 1_000_000).max(BURST_MIN) / 1024 * 1024;
    let burst = byte_words(u32::try_from(bytes).unwrap_or(u32::MAX / 2));
    let rate = rate_words(rate);
    format!(" leaf {queue:x} tbf rate {rate} burst {burst} latency {LATENCY}")
}

/// The class of each socket priority. Classes that no priority selects get one from the top, by a rule.
pub(super) fn priorities(qos: &Qos, classes: &[PlannedClass]) -> (String, Vec<String>) {
    let mut map = [0; PRIORITIES as usize];
    let mut rules = Vec::new();
    let mut free = (0..PRIORITIES).rev();
    for (class, planned) in qos.classes.iter().zip(classes) {
        match class.selector {
            Selector::Rest => {}
            Selector::Priority(priority) => map[usize::from(priority)] = planned.number,
            _ => {
                let Some(priority) = free.next() else { break };
                map[usize::from(priority)] = planned.number;
                rules.extend(selected(class, &format!("0:{priority:x}")));
            }
        }
    }
    let map: Vec<String> = map.iter().map(ToString::to_string).collect();
    (map.join(" "), rules)
}
