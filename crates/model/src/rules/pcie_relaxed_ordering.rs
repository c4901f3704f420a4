//! `pcie-relaxed-ordering`: PCIe relaxed ordering is off on a fast NIC. PCI Express Base Specification
//! 7.5.3.4; `pci_configure_relaxed_ordering` in drivers/pci/probe.c clears it below root ports that
//! handle it badly.

use super::facts::{answer_one, config, gbit, need, pcie_link, rate_evidence};
use super::{Draft, each_nic, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Host, Nic, PcieControl, PcieHop};
use crate::setting::Class;
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "pcie-relaxed-ordering",
    number: 46,
    status: Status::Implemented,
    title: "PCIe relaxed ordering is off on a fast NIC",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: &[
        Profile::Throughput,
        Profile::Rdma,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ],
    judges_by: &[Basis::Facts],
    threshold: "Enable Relaxed Ordering cleared in Device Control of a NIC of 100 Gb/s or more",
    effect: "150 -> 200 Gb/s on AMD EPYC (openucx/ucx #8062), about 16 -> more than 40 GB/s on Emerald Rapids \
             (#10955); slower on Haswell and Broadwell (perftest #116)",
    source: "PCI Express Base Specification, 7.5.3.4 (Device Control); openucx/ucx#8062, #10955, \
             #9055; linux-rdma/perftest#116",
    fix: Fix::Advised(&[Class::R4]),
    persist: "BIOS, or the NIC's configuration (mlxconfig PCI_WR_ORDERING); and the application",
    contested: Some(
        "UCX: needed for full rate on EPYC and newer Xeons; perftest #116: slower on older Intel root ports",
    ),
    page: include_str!("../../../../docs/rules/pcie-relaxed-ordering.md"),
    check,
};

const FAST: BitRate = gbit(100);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if cleared_by_the_kernel(context.host) {
        return Vec::new();
    }
    each_nic(rule, context, |nic| {
        let rate = need(&nic.link_bit_per_s, &mut Vec::new()).copied();
        let rate = rate.filter(|rate| *rate >= FAST)?;
        let mut missing = Vec::new();
        let link = pcie_link(nic, &mut missing);
        // The bridges above are not checked: they forward the NIC's bit.
        let own = link.and_then(|link| {
            let own = link.links.first()?;
            Some((own, *need(&own.control, &mut missing)?))
        });
        let said = own.and_then(|own| judge(nic, rate, own));
        answer_one(rule, context, subject(nic), said, missing)
    })
}

/// Below root ports of Haswell and Broadwell, which handle it badly, the kernel clears the bit.
fn cleared_by_the_kernel(host: &Host) -> bool {
    host.identity.cpu_model.value().is_some_and(|model| {
        let mut words = model.split_whitespace();
        model.contains("Xeon") && words.any(|word| matches!(word, "v3" | "v4"))
    })
}

fn judge(nic: &Nic, rate: BitRate, (hop, control): (&PcieHop, PcieControl)) -> Option<Draft> {
    (!control.relaxed_ordering).then(|| Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "PCIe relaxed ordering is off for {} at {rate}, which helps on some processors and costs on \
             others: measure both (BIOS, mlxconfig PCI_WR_ORDERING)",
            nic.name
        ),
        evidence: vec![
            Evidence::new("relaxed ordering", "off", config(hop)),
            rate_evidence(nic, rate),
        ],
        remedies: Vec::new(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("100 Gb/s without it", || World::of(card(100, false)))],
        silent: &[
            ("100 Gb/s with it", || World::of(card(100, true))),
            ("25 Gb/s without it", || World::of(card(25, false))),
            ("a processor for which the kernel clears it", || {
                let mut host = card(100, false);
                let model = "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz";
                host.identity.cpu_model = Known::Value(model.to_owned());
                World::of(host)
            }),
        ],
        undetermined: &[("only root sees it", || {
            let mut host = card(100, false);
            if let Known::Value(link) = &mut host.nics[0].pcie {
                let why = "only root sees more than 64 octets";
                link.links[0].control = Known::unknown(Cause::Denied, "config", why);
            }
            World::of(host)
        })],
    };

    fn card(gbit: u64, relaxed_ordering: bool) -> Host {
        let mut link = build::pcie_link((16_000, 16), (16_000, 16));
        if let Known::Value(control) = &mut link.links[0].control {
            control.relaxed_ordering = relaxed_ordering;
        }
        build::host()
            .nic("eth2", |nic| nic.gbit(gbit).pcie(link))
            .build()
    }

    #[test]
    fn it_is_a_note_that_asks_to_measure() {
        let said = finding(ID, &context(&card(200, false)));
        assert_eq!(said.severity, Severity::Note);
        assert!(said.summary.contains("measure both"), "{}", said.summary);
    }
}
