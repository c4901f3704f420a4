//! `pcie-aer`: PCIe errors on the NIC's links (AER). Documentation/PCI/pcieaer-howto.rst;
//! Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats. Either end of a link may count an error.

use super::facts::answer_one;
use super::{ALWAYS, Draft, each_nic, nics, subject, watched};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::ids::PciAddress;
use crate::known::{Gap, Known};
use crate::setting::Class;
use crate::watch::{Watch, total};

pub(super) const RULE: Rule = Rule {
    id: "pcie-aer",
    number: 48,
    status: Status::AdviceOnly,
    title: "PCIe errors on the NIC's links (AER)",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "while watched, on the NIC or an upstream bridge: more than 10 correctable errors per hour \
                (warn), any uncorrectable error (crit)",
    effect: "each correctable error costs a replay on the link; an uncorrectable one loses data or the device",
    source: "Documentation/PCI/pcieaer-howto.rst; Documentation/ABI/testing/sysfs-bus-pci-devices-aer",
    fix: Fix::Advised(&[Class::R4]),
    persist: "hardware: seating, riser, slot; BIOS and firmware",
    contested: None,
    page: include_str!("../../../../docs/rules/pcie-aer.md"),
    check,
};

const CORRECTABLE_PER_HOUR: u128 = 10;
const HOUR_NS: u128 = 3_600_000_000_000;
const KINDS: [&str; 3] = ["aer_correctable", "aer_nonfatal", "aer_fatal"];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let on_pci = |nic: &&Nic| nic.pci_address.value().is_some();
    // Without PCI functions no counters are needed.
    if !nics(context).iter().any(on_pci) {
        return each_nic(rule, context, |_| None);
    }
    let watch = match watched(rule, context) {
        Ok(watch) => watch,
        Err(unsure) => return unsure,
    };
    each_nic(rule, context, |nic| {
        let (said, missing) = judge(watch, nic, &functions(nic)?);
        answer_one(rule, context, subject(nic), said, missing)
    })
}

/// The NIC and the bridges above it.
fn functions(nic: &Nic) -> Option<Vec<PciAddress>> {
    let own = *nic.pci_address.value()?;
    let links = nic.pcie.value().map(|link| link.links.as_slice());
    let above = links.unwrap_or_default().iter().map(|hop| hop.address);
    let mut all = vec![own];
    all.extend(above.filter(|address| *address != own));
    Some(all)
}

fn judge(watch: &Watch, nic: &Nic, functions: &[PciAddress]) -> (Option<Draft>, Vec<Gap>) {
    let mut missing: Vec<Gap> = Vec::new();
    let mut grew: Vec<(PciAddress, &str, u64)> = Vec::new();
    for address in functions {
        for kind in KINDS {
            match watch.grown(&format!("pci/{address}/{kind}")) {
                Known::Value(0) => {}
                Known::Value(by) => grew.push((*address, kind, by)),
                // A function without AER has no such counter.
                Known::Unknown(gap) if !gap.leaves_a_question() => {}
                Known::Unknown(gap) if missing.contains(&gap) => {}
                Known::Unknown(gap) => missing.push(gap),
            }
        }
    }
    let uncorrectable = grew.iter().any(|(_, kind, _)| *kind != KINDS[0]);
    let correctable = grew.iter().filter(|(_, kind, _)| *kind == KINDS[0]);
    let correctable = total(correctable.map(|(_, _, by)| *by));
    let span = u128::from(watch.span_ns.as_u64());
    let often = u128::from(correctable) * HOUR_NS > CORRECTABLE_PER_HOUR * span;
    let severity = match (uncorrectable, often) {
        (true, _) => Severity::Crit,
        (false, true) => Severity::Warn,
        (false, false) => return (None, missing),
    };
    let what = if uncorrectable {
        "uncorrected"
    } else {
        "corrected"
    };
    let all = total(grew.iter().map(|(_, _, by)| *by));
    let said = Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "{all} PCIe errors ({what}) on the path to {} in {}: check seating, riser and firmware",
            nic.name, watch.span_ns
        ),
        evidence: grew
            .iter()
            .map(|(address, kind, by)| {
                let path = watch.path(&format!("pci/{address}/{kind}"));
                let value = format!("+{by} in {}", watch.span_ns);
                Evidence::new(format!("{kind} of {address}"), value, path)
            })
            .collect(),
        remedies: Vec::new(),
    };
    (Some(said), missing)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("corrected errors of the card", || {
                World::of(card()).watched(|w| w.grew("pci/0000:17:00.0/aer_correctable", 3))
            }),
            ("an uncorrected one at the port above", || {
                World::of(card()).watched(|w| w.grew("pci/0000:16:00.0/aer_nonfatal", 1))
            }),
        ],
        silent: &[
            ("none moved", || World::of(card()).watched(|w| w)),
            ("a device that counts none", || {
                World::of(card()).watched(|w| w.without("pci/"))
            }),
            ("nothing is on PCI", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[("not watched", || World::of(card()))],
    };

    fn card() -> Host {
        build::host().nic("eth2", |nic| nic).build()
    }

    #[test]
    fn what_could_not_be_corrected_is_critical() {
        let severity = |key: &'static str| {
            let world = World::of(card()).watched(|w| w.grew(key, 2));
            finding(ID, &world.context()).severity
        };
        assert_eq!(severity("pci/0000:17:00.0/aer_correctable"), Severity::Warn);
        assert_eq!(severity("pci/0000:17:00.0/aer_fatal"), Severity::Crit);
    }
}
