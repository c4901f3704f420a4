//! `iommu-strict`: the IOMMU runs in strict mode: it flushes the IOTLB on every unmap.
//! Documentation/ABI/testing/sysfs-kernel-iommu_groups (`DMA`, `DMA-FQ`, `identity`); the command line is
//! not what counts.

use super::facts::{answer_one, gbit, is_guest, need, rate_evidence};
use super::{ALWAYS, Draft, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::setting::Class;
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "iommu-strict",
    number: 50,
    status: Status::Implemented,
    title: "the IOMMU runs in strict mode: it flushes the IOTLB on every unmap",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "IOMMU domain type DMA (strict): 25 Gb/s or more on x86-64 (warn), where lazy is the kernel's default; \
                10 Gb/s or more, other architectures, or a guest (note)",
    effect: "up to 20 % of throughput at 200 Gb/s goes to IOTLB misses (Farshin et al., PeerJ CS 2023); \
             strict mode adds the cost of each unmap",
    source: "Documentation/ABI/testing/sysfs-kernel-iommu_groups; \
             Documentation/admin-guide/kernel-parameters.txt (iommu.strict=); Farshin et al., PeerJ \
             Computer Science 2023",
    fix: Fix::Advised(&[Class::R4, Class::R5]),
    persist: "kernel command line: iommu.strict=0, or iommu.passthrough=1 if the device is trusted",
    contested: None,
    page: include_str!("../../../../docs/rules/iommu-strict.md"),
    check,
};

const CONCERNED: BitRate = gbit(10);
const FAST: BitRate = gbit(25);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        nic.pci_address.value()?;
        let rate = need(&nic.link_bit_per_s, &mut Vec::new()).copied();
        let rate = rate.filter(|rate| *rate >= CONCERNED)?;
        let mut missing = Vec::new();
        let kind = need(&nic.pci, &mut missing).and_then(|pci| need(&pci.iommu_type, &mut missing));
        let said = kind
            .filter(|kind| kind.as_str() == "DMA")
            .map(|kind| strict(context, nic, rate, kind));
        answer_one(rule, context, subject(nic), said, missing)
    })
}

fn strict(context: &Context<'_>, nic: &Nic, rate: BitRate, kind: &str) -> Draft {
    // Elsewhere (Arm) strict is the kernel's default.
    let architecture = context.host.identity.architecture.value();
    // A guest with an IOMMU cannot change it.
    let x86 = architecture.is_some_and(|name| name == "x86_64");
    let chosen = x86 && !is_guest(context.host);
    let path = format!("/sys/class/net/{}/device/iommu_group/type", nic.name);
    Draft {
        severity: if chosen && rate >= FAST {
            Severity::Warn
        } else {
            Severity::Note
        },
        subject: subject(nic),
        summary: format!(
            "the IOMMU domain of {} ({rate}) is strict, with an IOTLB flush per unmap: boot with \
             iommu.strict=0, or iommu.passthrough=1 if the device is trusted",
            nic.name
        ),
        evidence: vec![
            Evidence::new("IOMMU domain type", kind, path),
            rate_evidence(nic, rate),
        ],
        remedies: Vec::new(),
    }
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
        fires: &[("strict at 100 Gb/s", || World::of(card(100, "DMA")))],
        silent: &[
            ("lazy", || World::of(card(100, "DMA-FQ"))),
            ("passthrough", || World::of(card(100, "identity"))),
            ("strict at 1 Gb/s", || World::of(card(1, "DMA"))),
            ("no IOMMU", || World::of(unknown(Cause::Absent))),
        ],
        undetermined: &[("not readable", || World::of(unknown(Cause::Denied)))],
    };

    fn card(gbit: u64, kind: &str) -> Host {
        with(gbit, Known::Value(kind.to_owned()))
    }

    fn unknown(cause: Cause) -> Host {
        with(100, Known::unknown(cause, "iommu_group/type", "not shown"))
    }

    fn with(gbit: u64, kind: Known<String>) -> Host {
        let mut host = build::host().nic("eth2", |nic| nic.gbit(gbit)).build();
        if let Known::Value(pci) = &mut host.nics[0].pci {
            pci.iommu_type = kind;
        }
        host
    }

    #[test]
    fn a_guest_that_has_no_choice_is_only_noted_and_the_threshold_says_so() {
        let mut host = card(100, "DMA");
        host.kernel.hypervisor = Known::Value("KVM".to_owned());
        let noted = finding(ID, &context(&host));
        assert_eq!(noted.severity, Severity::Note);
        assert!(noted.threshold.contains("guest"), "{}", noted.threshold);
    }

    #[test]
    fn the_default_of_arm_is_only_noted() {
        let mut host = card(100, "DMA");
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
        host.identity.architecture = Known::Value("aarch64".to_owned());
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }
}
