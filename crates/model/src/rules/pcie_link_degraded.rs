//! `pcie-link-degraded`: a PCIe link on the path to the NIC has less bandwidth than the NIC supports. The
//! same walk as `pcie_bandwidth_available` and `__pcie_print_link_status` in drivers/pci/pci.c, whose
//! line in the kernel log is "63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at
//! 0000:16:00.0 (capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)".

use super::facts::{gbit, hop_rate, is_guest, made_up};
use super::{ALWAYS, Draft, each_nic, found, subject, undetermined};
use crate::ceiling::{gigabits, link_words};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, PcieHop, PcieLink};
use crate::ids::PciAddress;
use crate::known::{self, Gap, Known};
use crate::setting::Class;
use crate::units::{BitRate, TransferRate};

pub(super) const RULE: Rule = Rule {
    id: "pcie-link-degraded",
    number: 43,
    status: Status::AdviceOnly,
    title: "a PCIe link on the path to the NIC has less bandwidth than the NIC supports",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "crit: 0.9 x available bandwidth below the port speed; warn: available below capable bandwidth; \
                note instead: in a guest, or sufficient for a port below 10 Gb/s or for a slot that supports no \
                more",
    effect: "the rate is at most the available bandwidth, before packet headers (Gen3 x8, for example: 63.008 Gb/s)",
    source: "pcie_bandwidth_available in drivers/pci/pci.c; PCIE_SPEED2MBS_ENC in drivers/pci/pci.h",
    fix: Fix::Advised(&[Class::R4]),
    persist: "hardware: slot, riser or a BIOS setting",
    contested: None,
    page: include_str!("../../../../docs/rules/pcie-link-degraded.md"),
    check,
};

/// The approximate payload share of a link: 256/(256 + 24) = 91 % at a Max_Payload_Size of 256 bytes, with a header
/// of 12 to 16 and 8 to 12 bytes of framing.
const USABLE: f64 = 0.9;
/// Below this port speed, a sufficient link is no reason to open the machine.
const SLOW: BitRate = gbit(10);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    // What is not on PCI (veth, virtio-mmio, USB) has no link to judge.
    nic.pci_address.value()?;
    let unsure = |gap: &Gap| undetermined(rule, context, subject(nic), vec![gap.clone()]);
    let guest = is_guest(context.host);
    let link = match &nic.pcie {
        Known::Value(link) => link,
        Known::Unknown(gap) => return (!not_there(gap)).then(|| unsure(gap)),
    };
    let port = nic.link_bit_per_s.get();
    if no_link(link) || port.is_some_and(|port| made_up(link, port)) {
        return None;
    }
    let least = narrowest_known(link);
    let (available, capable) = match (&link.available_bit_per_s, &link.capable_bit_per_s) {
        (Known::Value(available), Known::Value(capable)) => (*available, *capable),
        // One link that is narrow enough is a fault, whatever the others are.
        (Known::Unknown(gap), Known::Value(capable)) => match least {
            Some((available, _)) if available < *capable => (available, *capable),
            _ if guest && not_there(gap) => return None,
            _ => return Some(unsure(gap)),
        },
        (_, Known::Unknown(gap)) => return (!(guest && not_there(gap))).then(|| unsure(gap)),
    };
    if available >= capable {
        return None;
    }
    let at = link.limited_by.get().or(least.map(|(_, hop)| hop.address));
    let mut said = said(nic, link, at, available, capable);
    // A guest's virtual bridges limit nothing.
    if guest {
        said.severity = Severity::Note;
    }
    Some(found(rule, context, said))
}

/// The narrowest of the links whose rate and width are known; the highest one, if several are equal.
fn narrowest_known(link: &PcieLink) -> Option<(BitRate, &PcieHop)> {
    let known = link.links.iter().rev();
    let known = known.filter_map(|hop| Some((hop_rate(hop)?, hop)));
    known.min_by_key(|(rate, _)| *rate)
}

fn not_there(gap: &Gap) -> bool {
    !gap.leaves_a_question() || gap.cause == known::Cause::NotSaid
}

/// Whether the kernel shows no link of the NIC itself ("Unknown", or no files): it is integrated in the chipset,
/// virtual (virtio), or on conventional PCI.
fn no_link(link: &PcieLink) -> bool {
    link.links.first().is_none_or(|own| {
        let gaps = [own.transfer_mt_per_s.gap(), own.width.gap()];
        gaps.into_iter().flatten().any(not_there)
    })
}

fn said(
    nic: &Nic,
    link: &PcieLink,
    limited_by: Option<PciAddress>,
    available: BitRate,
    capable: BitRate,
) -> Draft {
    let at = limited_by.map_or_else(String::new, |address| format!(" at {address}"));
    let narrowest = link
        .links
        .iter()
        .find(|hop| Some(hop.address) == limited_by);
    let evidence = evidence(nic, link, narrowest, (available, capable));
    let feeds_port = nic
        .link_bit_per_s
        .get()
        .map(|rate| available.as_f64() * USABLE >= rate.as_f64());
    let words = |rate: Option<TransferRate>, width: Option<u32>| link_words(rate, width);
    let cause = narrowest.and_then(|hop| cause(link, hop));
    // Bandwidth that the slot does not have and the port does not need costs nothing; a link trained below the
    // capability of both its ends is a fault even if it is still wide enough.
    // A slow port is not worth reporting either; and wireless NICs have no fixed rate and change their link at will.
    let slow = nic.link_bit_per_s.get().is_some_and(|rate| rate < SLOW);
    let class = nic.pci.value().and_then(|pci| pci.class.value());
    let radio = class.is_some_and(|class| class.starts_with("0x0280"));
    let severity = match (feeds_port, &cause) {
        (Some(false), _) => Severity::Crit,
        (Some(true), _) if slow => Severity::Note,
        (None, _) if radio => Severity::Note,
        (Some(true), Some(Cause::Slot)) => Severity::Note,
        _ => Severity::Warn,
    };
    let why = match cause {
        Some(Cause::Trained(now, most)) => format!(
            "it runs at {} and supports {}; check slot, riser and BIOS",
            words(Some(now.0), Some(now.1)),
            words(Some(most.0), Some(most.1))
        ),
        Some(Cause::Slot) => "the slot does not support more; use another".to_owned(),
        None => "compare the links in the evidence".to_owned(),
    };
    Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "PCIe carries {} of the {} that {} supports, limited{at}: {why}",
            gigabits(available),
            gigabits(capable),
            nic.name
        ),
        evidence,
        remedies: Vec::new(),
    }
}

fn evidence(
    nic: &Nic,
    link: &PcieLink,
    narrowest: Option<&PcieHop>,
    (available, capable): (BitRate, BitRate),
) -> Vec<Evidence> {
    let path = narrowest.or(link.links.first()).map_or_else(
        || format!("/sys/class/net/{}/device", nic.name),
        |hop| hop.path.clone(),
    );
    let mut evidence = vec![
        Evidence::new(
            "available PCIe bandwidth",
            gigabits(available),
            path.clone(),
        ),
        Evidence::new("PCIe bandwidth the NIC supports", gigabits(capable), path),
    ];
    evidence.extend(link.links.iter().map(|hop| {
        Evidence::new(
            format!("link at {}", hop.address),
            format!(
                "{}, capable of {}",
                link_words(hop.transfer_mt_per_s.get(), hop.width.get()),
                link_words(hop.transfer_max_mt_per_s.get(), hop.width_max.get())
            ),
            hop.path.clone(),
        )
    }));
    evidence.extend(narrowest.into_iter().flat_map(files));
    evidence.push(match &nic.link_bit_per_s {
        Known::Value(rate) => Evidence::new(
            "port speed",
            rate,
            format!("/sys/class/net/{}/speed", nic.name),
        ),
        Known::Unknown(gap) => Evidence::new("port speed", "unknown", gap.to_string()),
    });
    evidence
}

/// A link has four files; the two with its current state are named individually.
fn files(hop: &PcieHop) -> impl Iterator<Item = Evidence> {
    let part = |what: &str, value: String, file: &str| {
        let what = format!("{what} of the narrowest link, {}", hop.address);
        Evidence::new(what, value, format!("{}/{file}", hop.path))
    };
    let rate = hop.transfer_mt_per_s.get();
    let lanes = hop.width.get();
    [
        rate.map(|rate| part("transfer rate", rate.to_string(), "current_link_speed")),
        lanes.map(|lanes| part("lanes", format!("x{lanes}"), "current_link_width")),
    ]
    .into_iter()
    .flatten()
}

/// Transfer rate and lanes.
type Speed = (TransferRate, u32);

/// Why the narrowest link is narrow.
enum Cause {
    /// Trained to less (first) than its capability (second).
    Trained(Speed, Speed),
    /// At its capability, which is below the NIC's.
    Slot,
}

/// None if the capability of an end is unknown: then the slot may or may not be the cause. A link's capability is the
/// minimum of both ends; from the NIC up, ends come in pairs.
fn cause(link: &PcieLink, hop: &PcieHop) -> Option<Cause> {
    let index = link.links.iter().position(|own| own == hop)?;
    let now = hop.transfer_mt_per_s.get().zip(hop.width.get())?;
    let most = |hop: &PcieHop| hop.transfer_max_mt_per_s.get().zip(hop.width_max.get());
    let mut could = most(hop)?;
    if let Some(other) = link.links.get(index ^ 1) {
        let other = most(other)?;
        could = (could.0.min(other.0), could.1.min(other.1));
    }
    Some(if now.0 < could.0 || now.1 < could.1 {
        Cause::Trained(now, could)
    } else {
        Cause::Slot
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, missing, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("eight lanes of sixteen", || {
            World::of(card(100, (8_000, 8), (8_000, 16)))
        })],
        silent: &[
            ("the whole link", || {
                World::of(card(100, (8_000, 16), (8_000, 16)))
            }),
            ("a paravirtual card whose link is unknown", || {
                World::of(without_speed(known::Cause::NotSaid))
            }),
            ("a card on conventional PCI", || {
                World::of(without_speed(known::Cause::Absent))
            }),
            ("a link that the chipset makes up", || {
                let mut host = card(10, (2_500, 1), (8_000, 1));
                if let Known::Value(link) = &mut host.nics[0].pcie {
                    link.links[1].transfer_max_mt_per_s =
                        Known::Value(TransferRate::from_mt_per_s(2_500));
                }
                World::of(host)
            }),
        ],
        undetermined: &[("the link cannot be read", || {
            let mut host = card(100, (8_000, 8), (8_000, 16));
            host.nics[0].pcie = Known::not_asked("current_link_speed");
            World::of(host)
        })],
    };

    fn card(gbit: u64, now: (u32, u32), most: (u32, u32)) -> Host {
        build::host()
            .nic("eth2", |nic| {
                nic.gbit(gbit).pcie(build::pcie_link(now, most))
            })
            .build()
    }

    /// As `pci_bandwidth` sees a NIC whose link files say "Unknown", or that has none.
    fn without_speed(cause: known::Cause) -> Host {
        let mut host = card(100, (8_000, 8), (8_000, 16));
        let unknown = || Gap::new(cause, "current_link_speed", "Unknown");
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.links[0].transfer_mt_per_s = Known::Unknown(unknown());
            link.available_bit_per_s = Known::Unknown(unknown());
            link.limited_by = Known::Unknown(unknown());
        }
        host
    }

    #[test]
    fn a_narrow_link_is_found_below_a_bridge_that_cannot_be_read() {
        let mut host = card(100, (8_000, 8), (8_000, 16));
        let Known::Value(link) = &mut host.nics[0].pcie else {
            panic!("the card has a link");
        };
        let denied = || Gap::new(known::Cause::Denied, "current_link_width", "no permission");
        (link.available_bit_per_s, link.limited_by) =
            (Known::Unknown(denied()), Known::Unknown(denied()));
        link.links[1].width = Known::Unknown(denied());
        let own = link.links[0].clone();
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Crit);
        assert!(said.summary.contains(&own.address.to_string()), "{said:#?}");
        // The bridge alone could be narrow.
        let Known::Value(link) = &mut host.nics[0].pcie else {
            panic!("the card has a link");
        };
        link.links[0].width = Known::Value(16);
        assert_eq!(missing(ID, &context(&host)), [denied()]);
    }

    #[test]
    fn a_guest_is_told_and_not_warned() {
        let mut host = card(100, (8_000, 8), (8_000, 16));
        host.kernel.hypervisor = Known::Value("kvm".to_owned());
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn a_narrow_nic_below_a_wide_port_of_an_old_machine_is_the_slots_matter() {
        // Gen4 x8 in a slot of sixteen lanes of Gen3: eight lanes are all that the NIC has.
        let mut host = card(25, (8_000, 8), (16_000, 8));
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.links[1].width_max = Known::Value(16);
            link.links[1].transfer_max_mt_per_s = Known::Value(TransferRate::from_mt_per_s(8_000));
        }
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn a_hundred_gigabit_port_on_eight_lanes_is_critical() {
        let host = card(100, (8_000, 8), (8_000, 16));
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Crit);
        for part in ["63.008 Gb/s", "126.016 Gb/s", "0000:16:00.0", "8.0 GT/s x8"] {
            assert!(said.summary.contains(part), "{part}: {}", said.summary);
        }
        assert!(said.remedies.is_empty(), "no setting mends a slot");
    }

    #[test]
    fn a_port_that_the_link_still_feeds_is_warned_about() {
        let host = card(25, (8_000, 8), (16_000, 8));
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
    }

    #[test]
    fn a_slow_port_that_is_fed_and_a_radio_nic_are_only_noted() {
        let host = card(1, (2_500, 1), (5_000, 1));
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
        let mut host = card(1, (5_000, 1), (8_000, 1));
        host.nics[0].link_bit_per_s = Known::not_asked("speed");
        if let Known::Value(pci) = &mut host.nics[0].pci {
            pci.class = Known::Value("0x028000".to_owned());
        }
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn a_slot_that_does_all_it_can_is_named_as_the_slot() {
        let mut host = card(100, (8_000, 8), (8_000, 16));
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.links[1].width_max = Known::Value(8);
        }
        let said = finding(ID, &context(&host));
        assert!(
            said.summary.contains("the slot does not support more"),
            "{}",
            said.summary
        );
    }

    #[test]
    fn a_slot_that_feeds_the_port_costs_nothing_and_is_a_note() {
        let mut host = card(25, (8_000, 8), (8_000, 16));
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.links[1].width_max = Known::Value(8);
        }
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn a_slot_that_does_not_say_what_it_could_do_is_not_blamed() {
        let mut host = card(25, (8_000, 8), (8_000, 16));
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.links[1].width_max = Known::not_asked("max_link_width");
        }
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert!(!said.summary.contains("slot itself"), "{}", said.summary);
    }

    #[test]
    fn a_port_of_unknown_rate_is_no_proof_that_the_link_binds() {
        let mut host = card(100, (8_000, 8), (8_000, 16));
        host.nics[0].link_bit_per_s = Known::not_asked("speed");
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
    }

    #[test]
    fn the_narrow_link_is_shown_by_its_own_files() {
        let host = card(100, (8_000, 8), (8_000, 16));
        let said = finding(ID, &context(&host));
        for (file, value) in [
            ("current_link_speed", "8.0 GT/s"),
            ("current_link_width", "x8"),
        ] {
            let path = format!("/sys/bus/pci/devices/0000:16:00.0/{file}");
            let evidence = said.evidence.iter().find(|one| one.path == path);
            assert_eq!(
                evidence.map(|one| one.value.as_str()),
                Some(value),
                "{path}"
            );
        }
    }

    #[test]
    fn a_full_link_and_what_is_not_on_pci_are_no_fault() {
        assert!(silent(ID, &context(&card(100, (8_000, 16), (8_000, 16)))));
        let (near, _) = build::veth_pair();
        assert!(silent(ID, &context(&near)));
    }

    #[test]
    fn an_unknown_link_is_not_passed() {
        let host = build::host()
            .nic("eth2", |nic| {
                nic.with(|nic| nic.pcie = Known::not_asked("current_link_speed"))
            })
            .build();
        assert_eq!(missing(ID, &context(&host))[0].path, "current_link_speed");
        let mut host = card(100, (8_000, 8), (8_000, 16));
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.capable_bit_per_s = Known::not_asked("max_link_width");
        }
        assert_eq!(
            missing(ID, &context(&host)),
            [Gap::new(
                known::Cause::NotAsked,
                "max_link_width",
                "not read"
            )]
        );
    }
}
