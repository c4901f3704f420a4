//! `linerate nic`: one NIC in one view. What card it is, its firmware, module and link, and the findings of the rules on
//! its health: those of `doctor`, no others.

mod facts;
mod json;
mod module;
#[cfg(test)]
mod tests;
mod text;

use linerate_model::activity::{LinkErrors, link_errors};
use linerate_model::finding::{Diagnosis, Finding, Severity, Undetermined};
use linerate_model::host::Nic;
use linerate_model::known::{Cause, Known};
use linerate_model::rules::UNWATCHED;
use linerate_model::status_opcode::{StatusOpcode, status_opcode};
use linerate_model::watch::Watch;

pub use self::json::NicDocument;
pub use self::text::nic_text;
use crate::doctor::parts;

/// The rules on the health of a NIC, its module, link and PCIe link. The others are about how a host uses it.
pub const HEALTH: [&str; 11] = [
    "link-speed-below-capability",
    "link-speed-below-module",
    "link-ext-state",
    "fec-health",
    "phy-errors",
    "module-fault",
    "pcie-link-degraded",
    "pcie-ceiling-below-port-rate",
    "pcie-aer",
    "ib-port-health",
    "driver-firmware-health-and-owners",
];

/// One NIC with its findings.
#[derive(Debug)]
pub struct NicView<'a> {
    nic: &'a Nic,
    errors: Known<LinkErrors>,
    watched_s: Option<f64>,
    findings: Vec<&'a Finding>,
    undetermined: Vec<&'a Undetermined>,
    opcode: Option<OpcodeAsked>,
}

/// A status opcode that was asked about; without a meaning if the sources do not list it.
#[derive(Debug, Clone, Copy)]
struct OpcodeAsked {
    opcode: u32,
    meaning: Option<StatusOpcode>,
}

impl<'a> NicView<'a> {
    /// The view of `nic`, whose host has `diagnosis`. `watch` are its counters, if they were read twice; `opcode` is a
    /// status opcode of its firmware to explain.
    pub fn new(
        nic: &'a Nic,
        diagnosis: &'a Diagnosis,
        watch: Option<&Watch>,
        opcode: Option<u32>,
    ) -> Self {
        let own = format!("nic/{}", nic.name);
        let rdma = nic.rdma.value().map(|name| format!("rdma/{name}"));
        let is_own = |subject: &str| {
            let device = rdma.as_ref().and_then(|rdma| subject.strip_prefix(rdma));
            subject == own || device.is_some_and(|port| port.is_empty() || port.starts_with('/'))
        };
        let is_health = |rule: &str| HEALTH.contains(&rule);
        let unwatched =
            |one: &Undetermined| one.missing.iter().any(|missing| missing.path == UNWATCHED);
        Self {
            nic,
            errors: errors(nic, watch),
            watched_s: watch.map(|watch| watch.span_ns.as_secs_f64()),
            findings: (diagnosis.findings.iter())
                .filter(|one| is_health(&one.rule) && is_own(&one.subject))
                .collect(),
            undetermined: (diagnosis.undetermined.iter())
                .filter(|one| is_health(&one.rule) && (is_own(&one.subject) || unwatched(one)))
                .collect(),
            opcode: opcode.map(|opcode| OpcodeAsked {
                opcode,
                meaning: status_opcode(opcode),
            }),
        }
    }

    /// How many findings cost performance or are errors; a status opcode that names a fault is at least one.
    fn problems(&self) -> usize {
        let is_problem = |one: &&&Finding| one.severity >= Severity::Warn;
        let of_opcode = self.opcode.and_then(|asked| asked.meaning);
        let is_fault = of_opcode.is_some_and(|meaning| meaning.opcode != 0);
        let found = self.findings.iter().filter(is_problem).count();
        // The finding of a link that is down is about the same fault.
        found.max(usize::from(is_fault))
    }

    /// What to do, in words: of each finding its advice, and of a status opcode that was asked about.
    fn advice(&self) -> Vec<String> {
        let of_opcode = self.opcode.and_then(|asked| asked.meaning);
        let mut advice: Vec<String> = of_opcode
            .into_iter()
            .map(|meaning| meaning.advice.to_owned())
            .collect();
        for finding in &self.findings {
            let (whole, end) = parts(&finding.summary);
            // A sentence after the problem, or the part after its last colon.
            let sentence = whole.rsplit_once(". ").map(|(_, advice)| advice);
            advice.push(end.or(sentence).unwrap_or(whole).to_owned());
        }
        if advice.is_empty() {
            advice.push(if self.undetermined.is_empty() {
                "nothing to do".to_owned()
            } else {
                "nothing to do, as far as could be read".to_owned()
            });
        }
        advice
    }
}

fn errors(nic: &Nic, watch: Option<&Watch>) -> Known<LinkErrors> {
    let path = || format!("counters of {}", nic.name);
    if !nic.kind.has_wire() {
        let why = "interfaces of this kind have no physical port";
        return Known::unknown(Cause::Inapplicable, path(), why);
    }
    let read = watch.and_then(|watch| link_errors(nic, watch));
    read.map_or_else(
        || {
            let why =
                "needs two readings: `--watch TIME` on this host, `--then LATER` for captures";
            Known::unknown(Cause::NotAsked, path(), why)
        },
        Known::Value,
    )
}
