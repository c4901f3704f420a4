//! `pcie-mps-mrrs`: Max_Payload_Size or Max_Read_Request_Size is smaller than the path supports. PCI
//! Express Base Specification 7.5.3.4 (Device Control); Documentation/admin-guide/kernel-parameters.txt,
//! `pci=pcie_bus_*`.

use super::facts::{answer_one, config, controls, gbit, is_guest, need, pcie_link, rate_evidence};
use super::{ALWAYS, Draft, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, PcieControl, PcieHop};
use crate::setting::Class;
use crate::units::{BitRate, Bytes};

pub(super) const RULE: Rule = Rule {
    id: "pcie-mps-mrrs",
    number: 45,
    status: Status::Implemented,
    title: "Max_Payload_Size or Max_Read_Request_Size is smaller than the path supports",
    severity: Severity::Warn,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "Max_Payload_Size 128 where all functions on the path support 256, at 10 Gb/s or more (note), \
                at 100 Gb/s or more (warn); Max_Read_Request_Size below 512 at 100 Gb/s or more (warn)",
    effect: "with 24 bytes of header, 84 % of the link is payload at 128 bytes and 91 % at 256 (computed)",
    source: "PCI Express Base Specification, 7.5.3.4 (Device Control); \
             Documentation/admin-guide/kernel-parameters.txt (pci=pcie_bus_*)",
    fix: Fix::Advised(&[Class::R4]),
    persist: "kernel command line: pci=pcie_bus_safe or pci=pcie_bus_perf",
    contested: None,
    page: include_str!("../../../../docs/rules/pcie-mps-mrrs.md"),
    check,
};

/// The payload that every function supports, and the recommended one.
const PAYLOAD_SMALL: Bytes = Bytes::new(128);
const PAYLOAD_WANTED: Bytes = Bytes::new(256);
const READ_WANTED: Bytes = Bytes::new(512);
/// A slower port has bandwidth to spare ...
const CONCERNED: BitRate = gbit(10);
/// ... and above this share headers use bandwidth that the port needs.
const FAST: BitRate = gbit(100);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        let mut missing = Vec::new();
        let link = pcie_link(nic, &mut missing);
        let rate = need(&nic.link_bit_per_s, &mut Vec::new()).copied();
        let rate = rate.filter(|rate| *rate >= CONCERNED)?;
        let said = link.and_then(|link| judge(context, nic, rate, &controls(link, &mut missing)));
        answer_one(rule, context, subject(nic), said, missing)
    })
}

fn judge(
    context: &Context<'_>,
    nic: &Nic,
    rate: BitRate,
    way: &[(&PcieHop, PcieControl)],
) -> Option<Draft> {
    let (card, own) = way.first()?;
    let payload = way
        .iter()
        .map(|(_, control)| control.max_payload_bytes)
        .min()?;
    let supported = way
        .iter()
        .map(|(_, control)| control.max_payload_supported_bytes)
        .min()?;
    let small = payload <= PAYLOAD_SMALL && supported >= PAYLOAD_WANTED;
    let short = rate >= FAST && own.max_read_request_bytes < READ_WANTED;
    let octets = |size: Bytes| size.as_u64();
    let name = &nic.name;
    let summary = match (small, short) {
        (false, false) => return None,
        (true, _) => format!(
            "Max_Payload_Size of {name} is {} bytes, all functions on the path support {}: boot with \
             pci=pcie_bus_safe, or set it in the BIOS",
            octets(payload),
            octets(supported)
        ),
        (false, true) => format!(
            "Max_Read_Request_Size of {name} is {} bytes, too small for {rate}: raise it to {} or more",
            octets(own.max_read_request_bytes),
            octets(READ_WANTED)
        ),
    };
    let mut evidence: Vec<Evidence> = Vec::new();
    for (hop, control) in way {
        let words = format!(
            "{} of {} bytes",
            octets(control.max_payload_bytes),
            octets(control.max_payload_supported_bytes)
        );
        let what = format!("Max_Payload_Size of {}, set and supported", hop.address);
        evidence.push(Evidence::new(what, words, config(hop)));
    }
    let request = format!("{} bytes", octets(own.max_read_request_bytes));
    evidence.push(Evidence::new(
        "Max_Read_Request_Size",
        request,
        config(card),
    ));
    evidence.push(rate_evidence(nic, rate));
    Some(Draft {
        severity: if rate >= FAST && !is_guest(context.host) {
            Severity::Warn
        } else {
            Severity::Note
        },
        subject: subject(nic),
        summary,
        evidence,
        remedies: Vec::new(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("128 octets of 256", || World::of(card(100, 128, 256, 4096))),
            ("reads of 128 octets", || {
                World::of(card(100, 256, 256, 128))
            }),
        ],
        silent: &[
            ("256 octets", || World::of(card(100, 256, 256, 512))),
            ("128 octets are all there is", || {
                World::of(card(100, 128, 128, 512))
            }),
            ("a port of 1 Gb/s", || World::of(card(1, 128, 256, 128))),
            ("a function without the capability", || {
                World::of(unknown(Cause::Absent))
            }),
        ],
        undetermined: &[("only root sees the configuration space", || {
            World::of(unknown(Cause::Denied))
        })],
    };

    fn card(gbit: u64, payload: u64, supported: u64, read: u64) -> Host {
        let mut link = build::pcie_link((8_000, 16), (8_000, 16));
        for hop in &mut link.links {
            hop.control = Known::Value(PcieControl {
                max_payload_bytes: Bytes::new(payload),
                max_payload_supported_bytes: Bytes::new(supported),
                max_read_request_bytes: Bytes::new(read),
                relaxed_ordering: true,
                acs_redirect: None,
            });
        }
        build::host()
            .nic("eth2", |nic| nic.gbit(gbit).pcie(link))
            .build()
    }

    fn unknown(cause: Cause) -> Host {
        let mut host = card(100, 128, 256, 512);
        if let Known::Value(link) = &mut host.nics[0].pcie {
            for hop in &mut link.links {
                hop.control = Known::unknown(cause, format!("{}/config", hop.path), "not shown");
            }
        }
        host
    }

    #[test]
    fn headers_matter_to_a_fast_port_only() {
        let severity = |gbit| finding(ID, &context(&card(gbit, 128, 256, 512))).severity;
        assert_eq!(severity(100), Severity::Warn);
        assert_eq!(severity(25), Severity::Note);
    }
}
