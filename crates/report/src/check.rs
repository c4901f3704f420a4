//! What `linerate` without a command prints: the NICs of this host, and its worst findings with what to type for each.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::{count, wrap};
use linerate_model::finding::{Finding, Severity};
use linerate_model::host::{Host, Nic, NicKind, QueueKind};
use linerate_model::setting::by_hand;

use crate::doctor::{CheckedHost, skipped_text};
use crate::map::text::{link_text, show};

/// Findings that are shown; `doctor` shows all.
const WORST: usize = 3;
/// What to type next.
const NEXT: [(&str, &str); 3] = [
    ("linerate doctor -v", "all findings, with their evidence"),
    (
        "linerate measure stream HOST",
        "how fast is the path to HOST?",
    ),
    (
        "linerate prove HOST",
        "test every fix, keep those that help",
    ),
];

/// The lines for a person; a finding fits `width`.
pub fn check_text(host: &Host, visit: &CheckedHost<'_>, width: Option<usize>) -> String {
    let mut lines = nic_lines(host);
    lines.push(counts(visit));
    let findings = &visit.diagnosis.findings;
    for finding in findings.iter().take(WORST) {
        lines.push(String::new());
        lines.extend(finding_lines(finding, width));
    }
    lines.push(String::new());
    for (at, (command, what)) in NEXT.into_iter().enumerate() {
        let label = if at == 0 { "next" } else { "" };
        lines.push(format!("{label:<4}  {command:<30}  # {what}"));
    }
    lines.join("\n")
}

/// A line for each NIC; without any, for each other interface that is not the loopback.
fn nic_lines(host: &Host) -> Vec<String> {
    let (wired, others): (Vec<&Nic>, Vec<&Nic>) = host
        .nics
        .iter()
        .filter(|nic| nic.kind != NicKind::Loopback)
        .partition(|nic| nic.kind.has_wire());
    let (shown, more) = if wired.is_empty() {
        (others, 0)
    } else {
        (wired, others.len())
    };
    let names = shown.iter().map(|nic| nic.name.as_str().chars().count());
    let name = names.max().unwrap_or_default();
    let mut lines: Vec<String> = shown
        .iter()
        .map(|nic| format!("{:<name$}  {}", visible(nic.name.as_str()), nic_text(nic)))
        .collect();
    if more > 0 {
        let noun = count(more, "virtual interface");
        lines.push(format!("{noun}: `linerate map` shows them"));
    }
    lines
}

/// Speed, node, queues, PCIe; of a device without a wire only what it has.
fn nic_text(nic: &Nic) -> String {
    let queues = |kind| nic.queues.iter().filter(|queue| queue.kind == kind).count();
    let (rx, tx) = (queues(QueueKind::Rx), queues(QueueKind::Tx));
    let mut parts = vec![link_text(nic)];
    if nic.kind.has_wire() {
        parts.push(format!("node {}", show(&nic.numa_node)));
    }
    parts.push(if rx == tx {
        count(rx, "queue")
    } else {
        format!("{rx} RX and {tx} TX queues")
    });
    if nic.kind.has_wire() {
        let (available, capable) = match nic.pcie.value() {
            Some(pcie) => (pcie.available_bit_per_s.get(), pcie.capable_bit_per_s.get()),
            None => (None, None),
        };
        parts.push(match (available, capable) {
            (Some(now), Some(most)) if now < most => format!("PCIe {now} of {most}"),
            (Some(now), _) => format!("PCIe {now}"),
            (None, _) => "no PCIe link information".to_owned(),
        });
    }
    parts.join(", ")
}

/// `2 warnings, 1 note; 13 checks skipped: data not available`.
fn counts(visit: &CheckedHost<'_>) -> String {
    let nouns = [
        (Severity::Crit, "critical finding"),
        (Severity::Warn, "warning"),
        (Severity::Note, "note"),
    ];
    let findings = &visit.diagnosis.findings;
    let counted = nouns.into_iter().filter_map(|(severity, noun)| {
        let of = findings.iter().filter(|one| one.severity == severity);
        let number = of.count();
        (number > 0).then(|| count(number, noun))
    });
    let found: Vec<String> = counted.collect();
    let found = if found.is_empty() {
        "no findings".to_owned()
    } else {
        found.join(", ")
    };
    match skipped_text(visit.diagnosis) {
        Some(skipped) => format!("{found}; {skipped}"),
        None => found,
    }
}

/// A finding, and the command that fixes it: by hand where one setting does, else linerate's own.
fn finding_lines(finding: &Finding, width: Option<usize>) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<4}  {}  {}",
        finding.severity, finding.subject, finding.rule
    )];
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(6));
    lines.extend(
        wrap(&finding.summary, room)
            .iter()
            .map(|line| format!("      {line}")),
    );
    let by_hand = match &finding.remedies[..] {
        [only] => by_hand(&only.change.setting, &only.change.to),
        _ => None,
    };
    lines.push(match by_hand {
        Some(command) => format!("      fix: {command}"),
        // What no setting fixes is explained.
        None if finding.remedies.is_empty() => {
            format!("      see: linerate explain {}", finding.rule)
        }
        None => "      fix: linerate tune plan, then linerate tune apply".to_owned(),
    });
    lines
}

#[cfg(test)]
mod tests {
    use linerate_model::finding::{Diagnosis, Profile};
    use linerate_model::plan::End;

    use super::*;

    fn finding(rule: &str, severity: Severity) -> Finding {
        Finding {
            rule: rule.to_owned(),
            severity,
            end: End::Local,
            subject: "host".to_owned(),
            summary: "something is off".to_owned(),
            evidence: Vec::new(),
            threshold: String::new(),
            remedies: Vec::new(),
        }
    }

    #[test]
    fn the_three_worst_findings_stand_below_the_counts_of_all() {
        let severities = [
            Severity::Warn,
            Severity::Warn,
            Severity::Note,
            Severity::Note,
        ];
        let rules = ["one", "two", "three", "four"];
        let findings = rules.into_iter().zip(severities);
        let diagnosis = Diagnosis {
            findings: findings
                .map(|(rule, severity)| finding(rule, severity))
                .collect(),
            ..Diagnosis::default()
        };
        let visit = CheckedHost {
            profile: Profile::Throughput,
            watched_s: None,
            is_captured: false,
            diagnosis: &diagnosis,
        };
        let text = check_text(&linerate_model::build::host().build(), &visit, Some(80));
        assert!(text.contains("2 warnings, 2 notes\n"), "{text}");
        for rule in ["one", "two", "three"] {
            assert!(
                text.contains(&format!("see: linerate explain {rule}")),
                "{text}"
            );
        }
        assert!(!text.contains("four"), "{text}");
    }
}
