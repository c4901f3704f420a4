//! `pcie-ceiling-below-port-rate`: PCIe bandwidth is below the port speed, or below all ports of the NIC
//! together. Functions of one device, and devices behind one switch, share links; figures per lane as
//! `PCIE_SPEED2MBS_ENC` of drivers/pci/pci.h.

use super::facts::{answer_one, hop_rate, is_guest, made_up, pcie_link, rate_evidence, reported};
use super::{ALWAYS, Draft, each_nic, subject};
use crate::ceiling::{gigabits, link_words};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Host, Nic, NicKind, PcieHop, PcieLink};
use crate::ids::PciAddress;
use crate::known::Gap;
use crate::setting::Class;
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "pcie-ceiling-below-port-rate",
    number: 44,
    status: Status::AdviceOnly,
    title: "PCIe bandwidth is below the port speed, or below all ports of the NIC together",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "90 % of the NIC's own PCIe link is below the port speed (crit); 90 % of a PCIe link is below \
                the sum of the ports that share it (warn)",
    effect: "exact: Gen3 x8 carries 63.008 Gb/s, Gen3 x16 126.016 Gb/s for both ports of a 2 x 100 Gb/s NIC",
    source: "pcie_bandwidth_available in drivers/pci/pci.c; PCIE_SPEED2MBS_ENC in drivers/pci/pci.h",
    fix: Fix::Advised(&[Class::R4]),
    persist: "hardware: another slot, or the ports on two NICs",
    contested: None,
    page: include_str!("../../../../docs/rules/pcie-ceiling-below-port-rate.md"),
    check,
};

/// The approximate maximum payload share of a link, after packet headers and descriptors.
const USABLE: f64 = 0.9;

/// A port that is up, and its links.
struct Port<'a> {
    nic: &'a Nic,
    rate: BitRate,
    link: &'a PcieLink,
}

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let ports = ports(context.host);
    let mut told = Vec::new();
    for nic in &context.host.nics {
        if let Some(shared) = too_narrow_for_all(&ports, nic)
            && !told
                .iter()
                .any(|(_, hop): &(&Nic, &PcieHop)| hop.address == shared.address)
        {
            told.push((nic, shared));
        }
    }
    each_nic(rule, context, |nic| {
        let mut missing = Vec::new();
        let mut said = match port(nic, &mut missing) {
            None => None,
            Some(port) => too_narrow(&port).or_else(|| {
                // Reported once, for the first port that is checked.
                let mine =
                    |hop: &PcieHop| sharing(&ports, hop).any(|port| port.nic.name == nic.name);
                let (first, hop) = told.iter().find(|(_, hop)| mine(hop))?;
                (first.name == nic.name || context.nic == Some(&nic.name))
                    .then(|| shared(&ports, nic, hop))
            }),
        };
        // A guest's virtual bridges limit nothing.
        if let Some(said) = said.as_mut().filter(|_| is_guest(context.host)) {
            said.severity = Severity::Note;
        }
        answer_one(rule, context, subject(nic), said, missing)
    })
}

fn ports(host: &Host) -> Vec<Port<'_>> {
    let mut ports: Vec<Port<'_>> = Vec::new();
    for nic in &host.nics {
        let down = nic.operstate.value().is_some_and(|state| state != "up");
        let Some(port) = port(nic, &mut Vec::new()).filter(|_| !down) else {
            continue;
        };
        // Representors and child interfaces use the function of their port. Only mlx4 has two Ethernet ports on one
        // function.
        let same = ports.iter().any(|other| {
            other.nic.pci_address == nic.pci_address
                && nic.driver.value().is_none_or(|driver| driver != "mlx4_en")
        });
        if !same {
            ports.push(port);
        }
    }
    ports
}

fn port<'a>(nic: &'a Nic, missing: &mut Vec<Gap>) -> Option<Port<'a>> {
    // A virtual function has its physical function's port.
    if !matches!(nic.kind, NicKind::Physical | NicKind::Ipoib)
        || nic
            .pci
            .value()
            .is_some_and(|pci| pci.physical_function.value().is_some())
    {
        return None;
    }
    let link = pcie_link(nic, missing)?;
    let rate = *reported(&nic.link_bit_per_s)?;
    // A link without a speed is not a real link (integrated, paravirtual).
    hop_rate(link.links.first()?)?;
    if made_up(link, rate) {
        return None;
    }
    Some(Port { nic, rate, link })
}

fn feeds(hop: &PcieHop, rate: f64) -> bool {
    hop_rate(hop).is_none_or(|passes| passes.as_f64() * USABLE >= rate)
}

/// The functions of one device have one link; bridges of one device have one each.
fn same_link(one: (usize, &PcieHop), other: (usize, &PcieHop)) -> bool {
    let device = |(depth, hop): (usize, &PcieHop)| match depth {
        0 => PciAddress {
            function: 0,
            ..hop.address
        },
        _ => hop.address,
    };
    (one.0 == 0) == (other.0 == 0) && device(one) == device(other)
}

/// The ports that use the link of `hop`.
fn sharing<'p, 'a>(ports: &'p [Port<'a>], hop: &'p PcieHop) -> impl Iterator<Item = &'p Port<'a>> {
    ports.iter().filter(move |port| {
        let mut links = port.link.links.iter().enumerate();
        links.any(|at| [0, 1].iter().any(|depth| same_link(at, (*depth, hop))))
    })
}

/// The narrowest link of `nic` that is too slow for all ports that share it.
fn too_narrow_for_all<'a>(ports: &[Port<'a>], nic: &Nic) -> Option<&'a PcieHop> {
    let own = ports.iter().find(|port| port.nic.name == nic.name)?;
    let short = own.link.links.iter().filter(|hop| {
        let all: Vec<&Port<'_>> = sharing(ports, hop).collect();
        let each_is_fed = all.iter().all(|port| feeds(hop, port.rate.as_f64()));
        all.len() > 1 && each_is_fed && !feeds(hop, sum(&all))
    });
    short.min_by_key(|hop| hop_rate(hop))
}

fn sum(ports: &[&Port<'_>]) -> f64 {
    ports.iter().map(|port| port.rate.as_f64()).sum()
}

fn too_narrow(port: &Port<'_>) -> Option<Draft> {
    // A link below the NIC's own capability is reported by `pcie-link-degraded`.
    let (available, capable) = (
        port.link.available_bit_per_s.get(),
        port.link.capable_bit_per_s.get(),
    );
    if available.zip(capable).is_some_and(|(now, most)| now < most) {
        return None;
    }
    let starved = port
        .link
        .links
        .iter()
        .filter(|hop| !feeds(hop, port.rate.as_f64()));
    let hop = starved.min_by_key(|hop| hop_rate(hop))?;
    let passes = hop_rate(hop)?;
    let name = &port.nic.name;
    Some(Draft {
        severity: Severity::Crit,
        subject: subject(port.nic),
        summary: format!(
            "PCIe carries {} at {} (about {} of payload), and the port of {name} is {}: use a wider slot",
            gigabits(passes),
            hop.address,
            usable(passes),
            port.rate,
        ),
        evidence: evidence(hop, passes)
            .into_iter()
            .chain([rate_evidence(port.nic, port.rate)])
            .collect(),
        remedies: Vec::new(),
    })
}

fn shared(ports: &[Port<'_>], nic: &Nic, hop: &PcieHop) -> Draft {
    let all: Vec<&Port<'_>> = sharing(ports, hop).collect();
    let passes = hop_rate(hop).unwrap_or_default();
    let whole = BitRate::from_f64(sum(&all)).unwrap_or_default();
    let mut evidence = evidence(hop, passes);
    evidence.extend(all.iter().map(|port| rate_evidence(port.nic, port.rate)));
    Draft {
        // Two ports of an active-backup bond are never used together.
        severity: if in_turn(&all) {
            Severity::Note
        } else {
            Severity::Warn
        },
        subject: subject(nic),
        summary: format!(
            "{} ports with {whole} in total share a PCIe link of {} at {} (about {} of payload): split them \
             over two slots",
            all.len(),
            gigabits(passes),
            hop.address,
            usable(passes)
        ),
        evidence,
        remedies: Vec::new(),
    }
}

fn in_turn(ports: &[&Port<'_>]) -> bool {
    let bond = |port: &&Port<'_>| {
        let own = port.nic.stack.bond_port.as_ref()?;
        Some((own.bond.value()?.clone(), own.state.value()?.clone()))
    };
    let states: Option<Vec<_>> = ports.iter().map(bond).collect();
    states.is_some_and(|all| {
        let active = all.iter().filter(|(_, state)| state == "active");
        active.count() == 1 && all.windows(2).all(|two| two[0].0 == two[1].0)
    })
}

fn usable(passes: BitRate) -> BitRate {
    BitRate::from_f64(passes.as_f64() * USABLE).unwrap_or_default()
}

fn evidence(hop: &PcieHop, passes: BitRate) -> Vec<Evidence> {
    let words = link_words(hop.transfer_mt_per_s.get(), hop.width.get());
    let file = |name: &str| format!("{}/{name}", hop.path);
    let mut all = vec![Evidence::new(
        format!("PCIe link at {}", hop.address),
        format!("{words}, {}", gigabits(passes)),
        file("current_link_speed"),
    )];
    let width = hop.width.get();
    all.extend(
        width.map(|lanes| Evidence::new("lanes", format!("x{lanes}"), file("current_link_width"))),
    );
    all
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, silent};
    use super::*;
    use crate::build;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("100 Gb/s behind eight lanes", || {
                World::of(card(100, (8_000, 8)))
            }),
            ("two ports of 100 Gb/s behind sixteen lanes", || {
                World::of(two(100, (8_000, 16)))
            }),
        ],
        silent: &[
            ("sixteen lanes", || World::of(card(100, (8_000, 16)))),
            ("two ports of 25 Gb/s behind eight", || {
                World::of(two(25, (8_000, 8)))
            }),
            ("a paravirtual card whose link has no speed", || {
                World::of(without_link(Cause::NotSaid))
            }),
            ("a link that the chipset makes up", || {
                World::of(card(10, (2_500, 1)))
            }),
            ("a link that was trained below what the card can", || {
                let link = build::pcie_link((8_000, 8), (8_000, 16));
                let host = build::host().nic("eth2", |nic| nic.gbit(100).pcie(link));
                World::of(host.build())
            }),
        ],
        undetermined: &[("the link was not read", || {
            let mut host = card(100, (8_000, 8));
            host.nics[0].pcie = Known::not_asked("current_link_speed");
            World::of(host)
        })],
    };

    fn card(gbit: u64, link: (u32, u32)) -> Host {
        build::host()
            .nic("eth2", |nic| {
                nic.gbit(gbit).pcie(build::pcie_link(link, link))
            })
            .build()
    }

    fn two(gbit: u64, link: (u32, u32)) -> Host {
        let mut host = card(gbit, link);
        let mut other = host.nics[0].clone();
        other.name = "eth3".parse().expect("a name");
        let function = PciAddress {
            function: 1,
            ..*other.pci_address.value().expect("a card")
        };
        other.pci_address = Known::Value(function);
        if let Known::Value(link) = &mut other.pcie {
            link.links[0].address = function;
        }
        host.nics.push(other);
        host
    }

    fn without_link(cause: Cause) -> Host {
        let mut host = card(100, (8_000, 8));
        if let Known::Value(link) = &mut host.nics[0].pcie {
            link.links[0].transfer_mt_per_s =
                Known::unknown(cause, "current_link_speed", "Unknown");
        }
        host
    }

    #[test]
    fn a_port_that_its_slot_cannot_feed_is_critical() {
        let said = finding(ID, &context(&card(100, (8_000, 8))));
        assert_eq!(said.severity, Severity::Crit);
        assert!(said.summary.contains("63.008 Gb/s"), "{}", said.summary);
    }

    #[test]
    fn a_guest_is_told_and_not_warned() {
        let mut host = card(100, (8_000, 8));
        host.kernel.hypervisor = Known::Value("KVM".to_owned());
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn ports_that_share_a_link_are_summed_and_named_once() {
        let host = two(100, (8_000, 16));
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert!(
            said.summary.contains("2 ports with 200"),
            "{}",
            said.summary
        );
        let ports = said.evidence.iter().filter(|e| e.path.ends_with("/speed"));
        assert_eq!(ports.count(), 2);
    }

    #[test]
    fn a_port_that_is_down_and_a_representor_take_nothing() {
        let mut host = two(100, (8_000, 16));
        host.nics[1].operstate = Known::Value("down".to_owned());
        assert!(silent(ID, &context(&host)));
        let mut host = two(100, (8_000, 16));
        host.nics[1].pci_address = host.nics[0].pci_address.clone();
        assert!(silent(ID, &context(&host)));
    }

    #[test]
    fn ports_of_one_bond_that_take_turns_are_only_noted() {
        let mut host = two(100, (8_000, 16));
        for (nic, state) in host.nics.iter_mut().zip(["active", "backup"]) {
            nic.stack.bond_port = Some(crate::host::BondPort {
                bond: Known::Value("bond0".parse().expect("a name")),
                state: Known::Value(state.to_owned()),
                ..Default::default()
            });
        }
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }
}
