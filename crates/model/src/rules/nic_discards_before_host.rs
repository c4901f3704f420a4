//! `nic-discards-before-host`: the NIC drops packets because PCIe or memory cannot absorb them. Counter
//! names from Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst and
//! intel/ice.rst.

use super::judged::{Growth, Judged, growth, judge_watched};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "nic-discards-before-host",
    number: 23,
    status: Status::AdviceOnly,
    title: "the NIC drops packets because PCIe or memory cannot absorb them",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "any packet discarded in the NIC's own buffer (crit); PCIe writes stalled for more than 5 % of \
                the last second (note), 30 % (crit)",
    effect: "the rate that PCIe and memory sustain; no ring size helps",
    source: "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; \
             Documentation/networking/device_drivers/ethernet/intel/ice.rst",
    fix: Fix::Elsewhere,
    persist: "see the rule that finds the cause (PCIe, IOMMU, NUMA node, CPU frequency)",
    contested: None,
    page: include_str!("../../../../docs/rules/nic-discards-before-host.md"),
    check,
};

/// Per cent of the last second in which the NIC stalled on writes to memory.
const STALLED_NOTE: u64 = 5;
const STALLED_CRIT: u64 = 30;

const DISCARDS: [&str; 3] = [
    "driver/rx_discards_phy",
    "driver/outbound_pci_buffer_overflow",
    "driver/rx_dropped.nic",
];
/// Stall seconds and nearly-full events: explanatory, not loss.
const SIGNS: [&str; 2] = [
    "driver/outbound_pci_stalled_wr_events",
    "driver/rx_buffer_passed_thres_phy",
];

/// What the NIC discarded.
pub(super) fn discards(watch: &Watch, nic: &Nic) -> Growth {
    growth(watch, nic, &DISCARDS).and_below(watch, nic, "driver", |name| {
        name.starts_with("rx_prio") && name.ends_with("_discards")
    })
}

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_watched(rule, context, |nic| nic.kind.has_wire(), check_nic)
}

fn check_nic(nic: &Nic, watch: &Watch) -> Judged {
    let discards = discards(watch, nic);
    let signs = growth(watch, nic, &SIGNS);
    let key = format!("nic/{}/driver/outbound_pci_stalled_wr", nic.name);
    // A percentage of the last second, not a counter: the last reading is the current one.
    let stalled = watch.counters.get(&key).map_or(0, |gauge| gauge.after);
    let long_stall = stalled > STALLED_CRIT || signs.by(SIGNS[0]) > 0;
    let mut evidence = discards.evidence();
    evidence.extend(signs.evidence());
    if stalled > 0 {
        evidence.push(Evidence::new(
            "share of the last second in which PCIe writes stalled",
            format!("{stalled} %"),
            watch.path(&key),
        ));
    }
    let (severity, what) = if discards.grew.is_empty() {
        let severity = match (long_stall, stalled > STALLED_NOTE) {
            (true, _) => Severity::Crit,
            (false, true) => Severity::Note,
            (false, false) => return discards.quiet(),
        };
        let what = format!("{} stalls on PCIe writes", nic.name);
        (severity, what)
    } else {
        let words = discards.words();
        let what = format!(
            "{} discards packets before they reach host memory ({words})",
            nic.name
        );
        (Severity::Crit, what)
    };
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "{what}, and a larger ring does not help: check PCIe, IOMMU, NUMA node and CPU frequency"
        ),
        evidence,
        remedies: Vec::new(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("discards on the port", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/driver/rx_discards_phy", 1))
            }),
            ("discards of one priority", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/driver/rx_prio3_discards", 1))
            }),
            ("seconds in which PCIe stalled", || {
                World::of(host())
                    .watched(|w| w.grew("nic/eth0/driver/outbound_pci_stalled_wr_events", 2))
            }),
        ],
        silent: &[
            ("a driver that counts no discards", || {
                World::of(host()).watched(|w| w)
            }),
            ("none", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/driver/rx_discards_phy", 0))
            }),
        ],
        undetermined: &[
            ("counters not watched", || World::of(host())),
            ("the driver's counters may not be read", || {
                World::of(host()).watched(|w| w.denied("nic/eth0/driver"))
            }),
        ],
    };

    fn host() -> Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    #[test]
    fn a_short_stall_is_a_note_and_a_long_one_critical() {
        for (per_cent, severity) in [(6, Severity::Note), (31, Severity::Crit)] {
            let world = World::of(host()).watched(|w| {
                w.grew("nic/eth0/driver/outbound_pci_stalled_wr", 0)
                    .with(|watch| {
                        let key = "nic/eth0/driver/outbound_pci_stalled_wr";
                        watch.counters.get_mut(key).expect("a gauge").after = per_cent;
                    })
            });
            assert_eq!(finding(RULE.id, &world.context()).severity, severity);
        }
    }
}
