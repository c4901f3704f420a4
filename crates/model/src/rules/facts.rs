//! What many rules ask alike: facts that may be missing, and the answer that is made of them.

use super::{Draft, found, undetermined};
use crate::finding::{Evidence, Outcome, Rule, Scene};
use crate::host::{Host, Nic, PcieControl, PcieHop, PcieLink};
use crate::known::{Cause, Gap, Known};
use crate::units::BitRate;

/// A fact that the judgement needs. One that the kernel does not offer here does not apply here; any other
/// gap is noted in `missing`.
pub(super) fn need<'a, T>(fact: &'a Known<T>, missing: &mut Vec<Gap>) -> Option<&'a T> {
    if let Known::Unknown(gap) = fact
        && gap.leaves_a_question()
        && !missing.contains(gap)
    {
        missing.push(gap.clone());
    }
    fact.value()
}

/// The findings, and then what could not be judged.
pub(super) fn answer(
    rule: &Rule,
    scene: &Scene<'_>,
    subject: &str,
    said: impl IntoIterator<Item = Draft>,
    missing: Vec<Gap>,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = said
        .into_iter()
        .map(|said| found(rule, scene, said))
        .collect();
    if !missing.is_empty() {
        outcomes.push(undetermined(rule, scene, subject.to_owned(), missing));
    }
    outcomes
}

/// The same where one interface has one answer: a finding hides what else could not be judged of it.
pub(super) fn answer_one(
    rule: &Rule,
    scene: &Scene<'_>,
    subject: String,
    said: Option<Draft>,
    missing: Vec<Gap>,
) -> Option<Outcome> {
    match said {
        Some(said) => Some(found(rule, scene, said)),
        None if missing.is_empty() => None,
        None => Some(undetermined(rule, scene, subject, missing)),
    }
}

/// Whether the host is known to be a guest: the bus that a hypervisor shows it is made up.
pub(super) fn is_guest(host: &Host) -> bool {
    host.kernel
        .hypervisor
        .value()
        .is_some_and(|name| name != "none")
}

/// The first number of a sysctl.
pub(super) fn sysctl_number(host: &Host, name: &str, missing: &mut Vec<Gap>) -> Option<u64> {
    let text = host.sysctl(name).and_then(|text| {
        let number = text.split_whitespace().next().and_then(|n| n.parse().ok());
        number.map_or_else(
            || {
                Known::unknown(
                    Cause::Unreadable,
                    crate::buffers::path(name),
                    format!("expected a number, found `{}`", text.trim()),
                )
            },
            Known::Value,
        )
    });
    need(&text, missing).copied()
}

/// The value of a sysctl as evidence.
pub(super) fn sysctl_evidence(name: &str, value: impl std::fmt::Display) -> Evidence {
    Evidence::new(name, value, crate::buffers::path(name))
}

/// The PCIe link of an interface with a port of its own. None where there is nothing to judge: the
/// interface is not on PCI, or the kernel shows no link.
pub(super) fn pcie_link<'a>(nic: &'a Nic, missing: &mut Vec<Gap>) -> Option<&'a PcieLink> {
    nic.pci_address.value()?;
    if !nic.kind.has_wire() {
        return None;
    }
    need(&nic.pcie, missing)
}

/// Whether the NIC's link is the invention of the chipset that it sits in (Intel's X722 and the like): a
/// single lane that could not carry the port even at its best.
pub(super) fn made_up(link: &PcieLink, port: BitRate) -> bool {
    let one_lane = link.links.first().and_then(|own| own.width_max.get()) == Some(1);
    one_lane && link.capable_bit_per_s.get().is_none_or(|most| most < port)
}

/// The device control of every function from the NIC to the root that could be read.
pub(super) fn controls<'a>(
    link: &'a PcieLink,
    missing: &mut Vec<Gap>,
) -> Vec<(&'a PcieHop, PcieControl)> {
    let all = link.links.iter();
    all.filter_map(|hop| Some((hop, *need(&hop.control, missing)?)))
        .collect()
}

/// Where the configuration space of a function is read.
pub(super) fn config(hop: &PcieHop) -> String {
    format!("{}/config", hop.path)
}

/// The rate of the port as evidence.
pub(super) fn rate_evidence(nic: &Nic, rate: BitRate) -> Evidence {
    Evidence::new(
        format!("link speed of {}", nic.name),
        rate,
        format!("/sys/class/net/{}/speed", nic.name),
    )
}

/// `gbit` Gb/s.
pub(super) const fn gbit(gbit: u64) -> BitRate {
    BitRate::from_mbit_per_s(gbit * 1_000)
}
