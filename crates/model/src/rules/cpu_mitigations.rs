//! `cpu-mitigations`: CPU vulnerability mitigations add cost to every kernel entry.
//! Documentation/admin-guide/hw-vuln; the words are those of arch/x86/kernel/cpu/bugs.c.

use std::collections::BTreeMap;

use super::facts::{answer, need};
use super::{ALWAYS, Draft};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "cpu-mitigations",
    number: 53,
    status: Status::AdviceOnly,
    title: "CPU vulnerability mitigations add cost to every kernel entry",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "page table isolation, IBRS on kernel entry, CPU buffer clearing, or an SRSO/Retbleed return \
                thunk in use",
    effect: "depends on the system call rate; measure it",
    source: "Documentation/admin-guide/hw-vuln; Documentation/ABI/testing/sysfs-devices-system-cpu \
             (vulnerabilities)",
    fix: Fix::Advised(&[Class::R4]),
    persist: "nothing to set: newer processors need fewer mitigations",
    contested: None,
    page: include_str!("../../../../docs/rules/cpu-mitigations.md"),
    check,
};

/// The vulnerability, the kernel's name for its costly mitigation, and a description.
const COSTLY: [(&str, &str, &str); 8] = [
    ("meltdown", "PTI", "page table isolation"),
    ("spectre_v2", "Mitigation: IBRS", "IBRS on kernel entry"),
    (
        "retbleed",
        "untrained return thunk",
        "SRSO/Retbleed return thunk",
    ),
    ("retbleed", "Mitigation: IBRS", "IBRS on kernel entry"),
    (
        "spec_rstack_overflow",
        "Safe RET",
        "SRSO/Retbleed return thunk",
    ),
    ("mds", "Clear CPU buffers", "CPU buffer clearing"),
    (
        "tsx_async_abort",
        "Clear CPU buffers",
        "CPU buffer clearing",
    ),
    (
        "mmio_stale_data",
        "Clear CPU buffers",
        "CPU buffer clearing",
    ),
];
const FOLDER: &str = "/sys/devices/system/cpu/vulnerabilities";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    let said = need(&context.host.kernel.mitigations, &mut missing).and_then(judge);
    answer(rule, context, "host", said, missing)
}

fn judge(all: &BTreeMap<String, String>) -> Option<Draft> {
    let mut names: Vec<&str> = Vec::new();
    let mut evidence: Vec<Evidence> = Vec::new();
    for (vulnerability, words, name) in COSTLY {
        let Some(text) = all.get(vulnerability) else {
            continue;
        };
        // "Vulnerable: Clear CPU buffers attempted" costs the same.
        if text.to_lowercase().contains(&words.to_lowercase()) {
            if !names.contains(&name) {
                names.push(name);
            }
            let path = format!("{FOLDER}/{vulnerability}");
            evidence.push(Evidence::new(vulnerability, text.trim(), path));
        }
    }
    (!names.is_empty()).then(|| Draft {
        severity: Severity::Note,
        subject: "host".to_owned(),
        summary: format!(
            "CPU mitigations add overhead to every system call ({}): keep them, but compare only hosts with the \
             same mitigations",
            names.join(", ")
        ),
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
        fires: &[("page table isolation", || {
            World::of(host("meltdown", "Mitigation: PTI"))
        })],
        silent: &[
            ("not affected", || {
                World::of(host("meltdown", "Not affected"))
            }),
            ("the cheap answer", || {
                let text = "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional";
                World::of(host("spectre_v2", text))
            }),
            ("a kernel that does not say", || {
                World::of(unknown(Cause::Absent))
            }),
        ],
        undetermined: &[("not readable", || World::of(unknown(Cause::Denied)))],
    };

    fn host(vulnerability: &str, text: &str) -> Host {
        let mut host = build::host().build();
        let all = BTreeMap::from([(vulnerability.to_owned(), text.to_owned())]);
        host.kernel.mitigations = Known::Value(all);
        host
    }

    fn unknown(cause: Cause) -> Host {
        let mut host = build::host().build();
        host.kernel.mitigations = Known::unknown(cause, FOLDER, "no such folder");
        host
    }

    #[test]
    fn it_never_proposes_to_disable_them() {
        let host = host("mds", "Mitigation: Clear CPU buffers; SMT vulnerable");
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert!(said.remedies.is_empty());
        assert!(said.summary.contains("keep them"), "{}", said.summary);
    }
}
