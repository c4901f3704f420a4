//! `pcie-aspm`: ASPM is enabled on the NIC's PCIe link. Documentation/ABI/testing/sysfs-bus-pci
//! (`link/l0s_aspm` ...), Documentation/power/pci.rst.

use super::facts::{answer_one, need};
use super::{Draft, each_nic, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "pcie-aspm",
    number: 47,
    status: Status::Implemented,
    title: "ASPM is enabled on the NIC's PCIe link",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: &[Profile::Latency, Profile::Rdma, Profile::Measurement],
    judges_by: &[Basis::Facts],
    threshold: "any of L0s, L1, L1.1, L1.2 enabled on the NIC's link; roles latency, rdma and measurement",
    effect: "no verified figure: leaving L1 takes microseconds; measure it",
    source: "Documentation/ABI/testing/sysfs-bus-pci (link/l1_aspm); drivers/pci/pcie/aspm.c",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot, or pcie_aspm=off on the kernel command line",
    contested: None,
    page: include_str!("../../../../docs/rules/pcie-aspm.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        nic.pci_address.value()?;
        let mut missing = Vec::new();
        let enabled = need(&nic.pci, &mut missing).and_then(|pci| need(&pci.aspm, &mut missing));
        let said = enabled.and_then(|enabled| judge(context, nic, enabled));
        answer_one(rule, context, subject(nic), said, missing)
    })
}

fn judge(context: &Context<'_>, nic: &Nic, enabled: &[String]) -> Option<Draft> {
    // `clkpm` stops a clock, not the link; `l1_1_pcipm` is for devices in a low-power state.
    let states: Vec<&String> = enabled
        .iter()
        .filter(|state| state.ends_with("_aspm"))
        .collect();
    if states.is_empty() {
        return None;
    }
    let file = |state: &str| format!("/sys/class/net/{}/device/link/{state}", nic.name);
    let mut evidence: Vec<Evidence> = states
        .iter()
        .map(|state| Evidence::new((*state).clone(), "1", file(state)))
        .collect();
    evidence.extend(context.host.kernel.aspm_policy.value().map(|policy| {
        let path = "/sys/module/pcie_aspm/parameters/policy";
        Evidence::new("ASPM policy", policy, path)
    }));
    let off = |state: &&String| {
        let knob = NicKnob::Aspm(state.replace('_', "-"));
        let key = SettingKey::Nic(nic.name.clone(), knob);
        remedy(context, key, Value::Switch(false))
    };
    let names: Vec<&str> = states
        .iter()
        .map(|state| state.trim_end_matches("_aspm"))
        .collect();
    Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "ASPM is enabled on the PCIe link of {} ({}), which delays the first packet after idle: disable it \
             and measure",
            nic.name,
            names.join(", ")
        ),
        evidence,
        remedies: states.iter().filter_map(off).collect(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("l1 in the latency profile", || latency(card(&["l1_aspm"])))],
        silent: &[
            ("none enabled", || latency(card(&[]))),
            ("only the clock", || latency(card(&["clkpm"]))),
            ("bulk transfer", || World::of(card(&["l1_aspm"]))),
            ("the kernel controls none", || {
                latency(unknown(Cause::Absent))
            }),
        ],
        undetermined: &[("not readable", || latency(unknown(Cause::Denied)))],
    };

    fn latency(host: Host) -> World {
        World::of(host).profile(Profile::Latency)
    }

    fn card(states: &[&str]) -> Host {
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        with(Known::Value(states))
    }

    fn unknown(cause: Cause) -> Host {
        with(Known::unknown(cause, "device/link", "no such folder"))
    }

    fn with(aspm: Known<Vec<String>>) -> Host {
        let mut host = build::host().nic("eth2", |nic| nic).build();
        if let Known::Value(pci) = &mut host.nics[0].pci {
            pci.aspm = aspm;
        }
        host
    }

    #[test]
    fn each_state_is_switched_off_by_its_own_file() {
        let world = latency(card(&["l0s_aspm", "l1_aspm"]));
        let said = finding(ID, &world.context());
        assert_eq!(
            remedies(&said),
            [
                "nic/eth2/pci/l0s-aspm: on -> off",
                "nic/eth2/pci/l1-aspm: on -> off"
            ]
        );
    }
}
