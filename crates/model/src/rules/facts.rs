//! Helpers of many rules: values that may be missing, and the outcomes made from them.

use super::{Draft, found, remedy, undetermined};
use crate::ceiling::pcie_lane;
use crate::finding::{Context, Evidence, Outcome, Rule, Severity};
use crate::host::{Host, Nic, PcieControl, PcieHop, PcieLink};
use crate::known::{Cause, Gap, Known};
use crate::setting::{SettingKey, Value};
use crate::units::BitRate;

/// A value that the check needs. If it is absent, the check does not apply; any other gap is added to `missing`.
pub(super) fn need<'a, T>(fact: &'a Known<T>, missing: &mut Vec<Gap>) -> Option<&'a T> {
    if let Known::Unknown(gap) = fact
        && gap.leaves_a_question()
        && !missing.contains(gap)
    {
        missing.push(gap.clone());
    }
    fact.value()
}

/// A value that the kernel reports only where it has one: the speed of a port or of a PCIe link. "Unknown" is its answer
/// for a port without a link, or a virtual one.
pub(super) fn reported<T>(fact: &Known<T>) -> Option<&T> {
    match fact {
        Known::Unknown(gap) if gap.cause == Cause::NotSaid => None,
        fact => fact.value(),
    }
}

/// A value that narrows a check: one that was never read (older captures do not have it) leaves the check as it is.
pub(super) fn if_read<T>(fact: &Known<T>) -> Option<&T> {
    match fact {
        Known::Unknown(gap) if gap.cause == Cause::NotAsked => None,
        fact => fact.value(),
    }
}

/// The bandwidth of a PCIe link now, if the kernel reports one.
pub(super) fn hop_rate(hop: &PcieHop) -> Option<BitRate> {
    let lane = pcie_lane(*reported(&hop.transfer_mt_per_s)?)?;
    let width = u64::from(*reported(&hop.width)?);
    Some(BitRate::from_bit_per_s(
        lane.as_bit_per_s().checked_mul(width)?,
    ))
}

/// The findings, followed by the skipped checks.
pub(super) fn answer(
    rule: &Rule,
    context: &Context<'_>,
    subject: &str,
    said: impl IntoIterator<Item = Draft>,
    missing: Vec<Gap>,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = said
        .into_iter()
        .map(|said| found(rule, context, said))
        .collect();
    if !missing.is_empty() {
        outcomes.push(undetermined(rule, context, subject.to_owned(), missing));
    }
    outcomes
}

/// The same with one outcome per interface: a finding hides the skipped checks.
pub(super) fn answer_one(
    rule: &Rule,
    context: &Context<'_>,
    subject: String,
    said: Option<Draft>,
    missing: Vec<Gap>,
) -> Option<Outcome> {
    match said {
        Some(said) => Some(found(rule, context, said)),
        None if missing.is_empty() => None,
        None => Some(undetermined(rule, context, subject, missing)),
    }
}

/// Whether the host is known to be a guest: its PCI bus is virtual. If that is not known, it is judged as a machine.
pub(super) fn is_guest(host: &Host) -> bool {
    matches!(&host.kernel.hypervisor, Known::Value(name) if name != "none")
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

/// A sysctl below which no workload is served well, whatever the counters show.
pub(super) struct Floor {
    pub(super) name: &'static str,
    /// Below this it is a fault.
    pub(super) least: u64,
    /// The kernel's default.
    pub(super) usual: u64,
    /// What happens below it.
    pub(super) effect: &'static str,
}

/// The finding about a sysctl below its floor.
pub(super) fn too_low(
    context: &Context<'_>,
    floor: &Floor,
    missing: &mut Vec<Gap>,
) -> Option<Draft> {
    let Floor { name, usual, .. } = floor;
    let now = sysctl_number(context.host, name, missing).filter(|now| *now < floor.least)?;
    let key = SettingKey::Sysctl((*name).to_owned());
    Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "{name} is {now}, so {}: set it to the default, {usual}",
            floor.effect
        ),
        evidence: vec![sysctl_evidence(name, now)],
        remedies: Vec::from_iter(remedy(context, key, Value::Text(usual.to_string()))),
    })
}

/// The value of a sysctl as evidence.
pub(super) fn sysctl_evidence(name: &str, value: impl std::fmt::Display) -> Evidence {
    Evidence::new(name, value, crate::buffers::path(name))
}

/// The PCIe link of an interface with its own port. None if there is nothing to check: the interface is not on PCI,
/// or the kernel shows no link.
pub(super) fn pcie_link<'a>(nic: &'a Nic, missing: &mut Vec<Gap>) -> Option<&'a PcieLink> {
    nic.pci_address.value()?;
    if !nic.kind.has_wire() {
        return None;
    }
    need(&nic.pcie, missing)
}

/// Whether the NIC's link is a placeholder of the chipset that it is integrated in (Intel's X722 and similar): a
/// single lane that could not carry the port even at its maximum.
pub(super) fn made_up(link: &PcieLink, port: BitRate) -> bool {
    let one_lane = link.links.first().and_then(|own| own.width_max.get()) == Some(1);
    one_lane && link.capable_bit_per_s.get().is_none_or(|most| most < port)
}

/// The readable device control registers of every function from the NIC to the root port.
pub(super) fn controls<'a>(
    link: &'a PcieLink,
    missing: &mut Vec<Gap>,
) -> Vec<(&'a PcieHop, PcieControl)> {
    let all = link.links.iter();
    all.filter_map(|hop| Some((hop, *need(&hop.control, missing)?)))
        .collect()
}

/// The PCI config space file of a function.
pub(super) fn config(hop: &PcieHop) -> String {
    format!("{}/config", hop.path)
}

/// The port speed as evidence.
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
