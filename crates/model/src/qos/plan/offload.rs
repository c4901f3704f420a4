//! Transmit queues with maximum rates in the NIC: `mqprio` with `hw 1 mode channel shaper bw_rlimit` (tc-mqprio(8)).
//!
//! Only a file that names it gets it: no kernel interface reports whether a driver has it (in Linux 6.12 among others `mlx5`, `i40e`,
//! `iavf`, `ice`, `cxgb4`, `otx2`, `mvneta` and `am65-cpsw`), and each has conditions of its own. The driver refuses what it cannot do.

use super::super::Qos;
use super::queues::{lacks_queues, priorities, tx_queues, with_rules};
use super::{PlannedClass, PlannedSetting};
use crate::host::Host;
use crate::ids::NicName;
use crate::setting::qdisc_spec::rate_words;
use crate::units::BitRate;

/// The kernel counts whole bytes per second.
const STEP: u64 = 8;

/// What the interfaces lack for it.
pub(super) fn lacks(
    qos: &Qos,
    host: &Host,
    holders: &[NicName],
    has_qdisc: impl Fn(&str) -> bool,
) -> Option<String> {
    if !has_qdisc("mqprio") {
        return Some("the kernel has no mqprio (module sch_mqprio)".to_owned());
    }
    lacks_queues(qos.classes.len(), host, holders)
}

/// Only what the file asks for is guaranteed, by the NIC's minimum rates.
pub(super) fn guarantee(qos: &Qos, classes: &mut [PlannedClass]) {
    for (class, planned) in qos.classes.iter().zip(classes) {
        planned.guaranteed = class.guarantee.map(|_| planned.rates.rate);
    }
}

/// The queues of each class with its rates, and the rules that give packets the priority of their class.
pub(super) fn settings(
    qos: &Qos,
    host: &Host,
    holder: &NicName,
    classes: &[PlannedClass],
) -> Vec<PlannedSetting> {
    let mut by_number: Vec<&PlannedClass> = classes.iter().collect();
    by_number.sort_by_key(|class| class.number);
    let (map, rules) = priorities(qos, classes);
    let rates = |name: &str, of: &dyn Fn(&PlannedClass) -> Option<BitRate>| {
        let all: Vec<Option<BitRate>> = by_number.iter().map(|class| of(class)).collect();
        if all.iter().all(Option::is_none) {
            return String::new();
        }
        let words = all.iter().map(|rate| match rate {
            Some(rate) => rate_words(BitRate::from_bit_per_s(rate.as_bit_per_s() / STEP * STEP)),
            None => "0bit".to_owned(),
        });
        format!(" {name} {}", words.collect::<Vec<_>>().join(" "))
    };
    let words = format!(
        "mqprio num_tc {} map {map} queues {} hw 1 mode channel shaper bw_rlimit{}{}",
        classes.len(),
        queues(by_number.len(), tx_queues(host, holder)),
        rates("min_rate", &|class| class.guaranteed),
        rates("max_rate", &|class| class.limit.map(|_| class.rates.ceil)),
    );
    with_rules(holder, words, &rules)
}

/// The same number of queues for each class: the NIC limits all of a class together.
fn queues(classes: usize, available: usize) -> String {
    let each = (available / classes.max(1)).max(1);
    let all: Vec<String> = (0..classes)
        .map(|class| format!("{each}@{}", class * each))
        .collect();
    all.join(" ")
}
