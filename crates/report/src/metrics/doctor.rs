//! The metrics of `doctor`: its findings by rule, not by subject. A host may have thousands of interfaces.

use std::collections::BTreeMap;

use linerate_analysis::trial::operations::real;
use linerate_model::finding::{Finding, Severity};
use linerate_model::ids::NicName;
use linerate_model::rules::RULES;
use serde_json::{Value, json};

use super::table::{Metric, SEVERITIES};
use super::{Metrics, Provenance};
use crate::doctor::CheckedHost;

const TIMESTAMP: Metric = Metric::gauge(
    "linerate_doctor_timestamp_seconds",
    "seconds",
    "",
    "When the host was read, Unix time; of a capture it is not known.",
);

const FINDING: Metric = Metric::gauge(
    "linerate_doctor_finding",
    "",
    "",
    "1 for each rule that found a fault.",
)
.by(&[("rule", &[]), ("severity", SEVERITIES)]);

const SUBJECTS: Metric = Metric::gauge(
    "linerate_doctor_finding_subjects",
    "",
    "",
    "Interfaces, devices or CPUs that the rule found a fault on; 1 for the host itself.",
)
.by(&[("rule", &[]), ("severity", SEVERITIES)]);

const FINDINGS: Metric = Metric::gauge(
    "linerate_doctor_findings",
    "",
    "",
    "Findings of each severity.",
)
.by(&[("severity", SEVERITIES)]);

const SKIPPED: Metric = Metric::gauge(
    "linerate_doctor_skipped",
    "",
    "",
    "1 for each rule with a check that was skipped because data is not available: it has not passed.",
)
.by(&[("rule", &[])]);

/// What the document has as it is.
const TABLE: &[Metric] = &[
    Metric::gauge(
        "linerate_doctor_skipped_checks",
        "",
        "/skipped",
        "Checks that were skipped because data is not available, of all rules and subjects.",
    ),
    Metric::gauge("linerate_doctor_rules", "", "/rules", "Rules that ran."),
    Metric::gauge(
        "linerate_doctor_watched_seconds",
        "seconds",
        "/watched_s",
        "How long counters were watched.",
    ),
];

/// Every metric of the document.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    [&TIMESTAMP, &FINDING, &SUBJECTS, &FINDINGS, &SKIPPED]
        .into_iter()
        .chain(TABLE)
}

/// The metrics of a checked host; `nic` is the interface that the check was limited to.
pub fn doctor_metrics(
    visit: &CheckedHost<'_>,
    nic: Option<&NicName>,
    provenance: &Provenance<'_>,
) -> Metrics {
    let role = serde_json::to_value(visit.profile).unwrap_or_default();
    let identity = vec![
        ("role", role.as_str().unwrap_or_default().to_owned()),
        ("nic", nic.map(NicName::to_string).unwrap_or_default()),
    ];
    let mut metrics = Metrics::new("doctor", identity, provenance);
    let read = (!visit.is_captured).then(|| real(provenance.unix_s));
    metrics.set(&TIMESTAMP, &[], read);
    set_findings(
        &mut metrics,
        &visit.diagnosis.findings,
        [&FINDING, &SUBJECTS, &FINDINGS],
        &[],
    );
    for one in &visit.diagnosis.undetermined {
        metrics.set(&SKIPPED, &[("rule", &one.rule)], Some(1.0));
    }
    let counts: Value = json!({
        "skipped": visit.diagnosis.undetermined.len(),
        "rules": RULES.len(),
        "watched_s": visit.watched_s,
    });
    metrics.fill(TABLE, &counts, &[]);
    metrics
}

/// Sets the series of findings: of each rule that has some and how many subjects it found, and their count by severity.
pub(super) fn set_findings(
    metrics: &mut Metrics,
    findings: &[Finding],
    [finding, subjects, count]: [&'static Metric; 3],
    given: &[(&'static str, &str)],
) {
    let mut by_rule: BTreeMap<(&str, Severity), u64> = BTreeMap::new();
    let mut by_severity = [Severity::Crit, Severity::Warn, Severity::Note].map(|one| (one, 0_u64));
    for one in findings {
        *by_rule.entry((&one.rule, one.severity)).or_default() += 1;
        for (severity, number) in &mut by_severity {
            *number += u64::from(*severity == one.severity);
        }
    }
    for ((rule, severity), number) in by_rule {
        let severity = severity.to_string();
        let labels = [given, &[("rule", rule), ("severity", &severity)]].concat();
        metrics.set(finding, &labels, Some(1.0));
        metrics.set(subjects, &labels, Some(real(number)));
    }
    for (severity, number) in by_severity {
        let severity = severity.to_string();
        let labels = [given, &[("severity", &severity)]].concat();
        metrics.set(count, &labels, Some(real(number)));
    }
}
