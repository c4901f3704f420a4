//! What `doctor` prints: text, JSON, and the two formats that pipelines read, SARIF 2.1.0 (OASIS) and
//! JUnit's XML. All show the same diagnosis.

use linerate_analysis::text::words::wrap;
use linerate_model::finding::{Diagnosis, Finding, Profile, Severity, Undetermined};
use linerate_model::known::{Cause, Gap};
use linerate_model::plan::End;
use linerate_model::rules::{self, RULES};
use serde::Serialize;
use serde_json::{Value, json};

use super::junit::{Case, CaseResult, suite};

/// The checked host, and how it was checked.
#[derive(Debug, Clone, Copy)]
pub struct CheckedHost<'a> {
    /// What the host is used for.
    pub profile: Profile,
    /// The seconds that counters were watched for; none when they were not.
    pub watched_s: Option<f64>,
    /// Whether it was read from a capture, not live.
    pub is_captured: bool,
    /// The diagnosis of the rules.
    pub diagnosis: &'a Diagnosis,
}

/// A missing value, and why it is missing.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missing<'a> {
    /// The source that was read: a file, a netlink request.
    path: &'a str,
    reason: &'a str,
    cause: Cause,
}

impl<'a> From<&'a Gap> for Missing<'a> {
    fn from(gap: &'a Gap) -> Self {
        Self {
            path: &gap.path,
            reason: &gap.reason,
            cause: gap.cause,
        }
    }
}

/// What `linerate doctor --format json` prints: findings, worst first, and skipped checks.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorDocument<'a> {
    schema: &'static str,
    profile: Profile,
    /// The seconds that counters were watched for; null if they were not.
    watched_s: Option<f64>,
    /// The number of rules that ran.
    rules: usize,
    findings: Vec<Explained<'a>>,
    undetermined: Vec<Skipped<'a>>,
}

/// A finding, with what its rule says of the fix.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Explained<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    #[serde(flatten)]
    fix: Option<FixWords>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FixWords {
    /// The expected effect of the fix, with its source.
    effect: &'static str,
    /// How a remedy is made persistent across reboots.
    persist: &'static str,
    /// Where sources disagree, both positions: measure the remedy; null where they agree.
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    contested: Option<&'static str>,
}

/// A check that was skipped because data is not available; it is never passed.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Skipped<'a> {
    /// A rule's id; linerate explain ID.
    rule: &'a str,
    end: End,
    /// nic/eth2, rdma/mlx5_0, cpu/3, block/nvme0n1, host.
    subject: &'a str,
    missing: Vec<Missing<'a>>,
}

impl<'a> From<&'a Finding> for Explained<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            finding,
            fix: rules::find(&finding.rule).map(|rule| FixWords {
                effect: rule.effect,
                persist: rule.persist,
                contested: rule.contested,
            }),
        }
    }
}

impl<'a> From<&'a Undetermined> for Skipped<'a> {
    fn from(one: &'a Undetermined) -> Self {
        Self {
            rule: &one.rule,
            end: one.end,
            subject: &one.subject,
            missing: one.missing.iter().map(Missing::from).collect(),
        }
    }
}

/// `doctor --format json`.
pub fn doctor_json<'a>(visit: &CheckedHost<'a>) -> DoctorDocument<'a> {
    let diagnosis = visit.diagnosis;
    DoctorDocument {
        schema: "linerate.doctor/1",
        profile: visit.profile,
        watched_s: visit.watched_s,
        rules: RULES.len(),
        findings: diagnosis.findings.iter().map(Explained::from).collect(),
        undetermined: diagnosis.undetermined.iter().map(Skipped::from).collect(),
    }
}

/// `doctor` for a person: one line for each finding, everything with `verbose`. A finding that is longer
/// than `width` is set in parts below each other: about what, what is wrong, what to do.
pub fn doctor_text(visit: &CheckedHost<'_>, verbose: bool, width: Option<usize>) -> String {
    let diagnosis = visit.diagnosis;
    let mut lines = Vec::new();
    for finding in &diagnosis.findings {
        lines.extend(finding_lines(finding, width));
        if verbose {
            lines.extend(details(finding));
        }
    }
    let skipped = skipped_text(diagnosis);
    match (diagnosis.findings.is_empty(), &skipped) {
        // What was not checked belongs to the same sentence: it is not a pass.
        (true, Some(skipped)) => {
            let how = if verbose { "" } else { ", `-v` lists them" };
            lines.push(format!(
                "no findings ({} rules; {skipped}{how})",
                RULES.len()
            ));
        }
        (true, None) => lines.push(format!("no findings ({} rules)", RULES.len())),
        (false, _) if !verbose => lines.extend(closing(visit)),
        (false, _) => {}
    }
    if verbose {
        lines.extend(undetermined_lines(visit));
    } else if !diagnosis.findings.is_empty() {
        lines.extend(skipped.map(|skipped| format!("{skipped} (`-v` lists them)")));
    }
    lines.join("\n")
}

/// Under the subject, to which a severity and two blanks lead.
const UNDER: usize = 6;

fn finding_lines(finding: &Finding, width: Option<usize>) -> Vec<String> {
    let head = format!(
        "{:<4}  {}  {}",
        finding.severity, finding.subject, finding.rule
    );
    let whole = format!("{head}: {}", finding.summary);
    let Some(width) = width.filter(|width| whole.chars().count() > *width) else {
        return vec![whole];
    };
    let (wrong, mend) = parts(&finding.summary);
    let mut lines = vec![head];
    let mut set = |text: &str, first: &str| {
        let rest = " ".repeat(UNDER + first.len());
        for (at, line) in wrap(text, width.saturating_sub(rest.len()))
            .iter()
            .enumerate()
        {
            lines.push(match at {
                0 => format!("{}{first}{line}", " ".repeat(UNDER)),
                _ => format!("{rest}{line}"),
            });
        }
    };
    set(wrong, "");
    if let Some(mend) = mend {
        set(mend, "-> ");
    }
    lines
}

/// Problem and advice: a summary ends with the advice, after the last colon or semicolon
/// outside brackets.
pub(crate) fn parts(summary: &str) -> (&str, Option<&str>) {
    let mut depth = 0usize;
    let mut last = None;
    for (at, character) in summary.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ':' | ';' if depth == 0 && summary[at + 1..].starts_with(' ') => last = Some(at),
            _ => {}
        }
    }
    match last {
        Some(at) => (&summary[..at], Some(&summary[at + 2..])),
        None => (summary, None),
    }
}

fn details(finding: &Finding) -> Vec<String> {
    let mut lines: Vec<String> = finding
        .remedies
        .iter()
        .map(|remedy| {
            format!(
                "      fix [{}, {}]: {}",
                remedy.class,
                remedy.class.words(),
                remedy.change
            )
        })
        .collect();
    lines.push(format!("      threshold: {}", finding.threshold));
    lines.extend(finding.evidence.iter().map(|evidence| {
        format!(
            "      {}: {}  [{}]",
            evidence.what, evidence.value, evidence.path
        )
    }));
    if let Some(rule) = rules::find(&finding.rule) {
        lines.push(format!("      effect: {}", rule.effect));
        lines.push(format!("      make it persistent: {}", rule.persist));
        if let Some(both) = rule.contested {
            lines.push(format!("      sources disagree, measure it: {both}"));
        }
    }
    lines
}

/// The missing data of a check: where it would be found, and why it is missing.
fn missing_text(visit: &CheckedHost<'_>, missing: &[Gap]) -> String {
    let one = |gap: &Gap| match gap.cause {
        Cause::NotAsked if visit.is_captured && gap.is_unread() => {
            format!("{} (not in this capture)", gap.path)
        }
        Cause::NotAsked if gap.is_unread() => format!("{} (not read)", gap.path),
        Cause::NotAsked => format!("{} ({})", gap.path, gap.reason),
        _ => gap.to_string(),
    };
    missing.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Skipped checks; those that lack the same data share a line.
fn undetermined_lines(visit: &CheckedHost<'_>) -> Vec<String> {
    let all = &visit.diagnosis.undetermined;
    let mut groups: Vec<(&[Gap], Vec<&Undetermined>)> = Vec::new();
    for one in all {
        match groups
            .iter_mut()
            .find(|(missing, _)| *missing == one.missing)
        {
            Some((_, group)) => group.push(one),
            None => groups.push((&one.missing, vec![one])),
        }
    }
    let line = |(missing, group): (&[Gap], Vec<&Undetermined>)| match group.as_slice() {
        [one] => format!(
            "?     {}  {}: skipped, missing {}",
            one.subject,
            one.rule,
            missing_text(visit, missing)
        ),
        group => {
            let names: Vec<String> = group
                .iter()
                .map(|one| match one.subject.as_str() {
                    "host" => one.rule.clone(),
                    subject => format!("{} ({subject})", one.rule),
                })
                .collect();
            format!(
                "?     {} checks skipped, missing {}: {}",
                group.len(),
                missing_text(visit, missing),
                names.join(", ")
            )
        }
    };
    groups.into_iter().map(line).collect()
}

/// The changes that a terse page does not list.
fn closing(visit: &CheckedHost<'_>) -> Option<String> {
    let findings = visit.diagnosis.findings.iter();
    let changes: usize = findings.map(|finding| finding.remedies.len()).sum();
    // A plan is made for this host, not for a captured one.
    let how = if visit.is_captured {
        "`-v` lists them with the evidence"
    } else {
        "`-v` lists them with the evidence; preview them with `linerate tune plan`"
    };
    (changes > 0).then(|| format!("{} proposed ({how})", counted(changes, "change")))
}

/// How many checks were skipped.
pub(crate) fn skipped_text(diagnosis: &Diagnosis) -> Option<String> {
    let skipped = diagnosis.undetermined.len();
    (skipped > 0).then(|| format!("{} skipped: data not available", counted(skipped, "check")))
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// `doctor --format sarif`: Static Analysis Results Interchange Format 2.1.0. A skipped check
/// is a result of kind `open`.
pub fn doctor_sarif(visit: &CheckedHost<'_>) -> Value {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id,
                "shortDescription": {"text": rule.title},
                "help": {"text": rule.page, "markdown": rule.page},
                "properties": {"threshold": rule.threshold, "source": rule.source},
            })
        })
        .collect();
    let place = |subject: &str| json!([{"logicalLocations": [{"fullyQualifiedName": subject}]}]);
    let found = visit.diagnosis.findings.iter().map(|finding| {
        json!({
            "ruleId": finding.rule,
            "kind": "fail",
            "level": match finding.severity {
                Severity::Crit => "error",
                Severity::Warn => "warning",
                Severity::Note => "note",
            },
            "message": {"text": finding.summary},
            "locations": place(&finding.subject),
            "properties": {
                "evidence": finding.evidence,
                "threshold": finding.threshold,
                "remedies": finding.remedies,
            },
        })
    });
    let open = visit.diagnosis.undetermined.iter().map(|unknown| {
        let missing = missing_text(visit, &unknown.missing);
        json!({
            "ruleId": unknown.rule,
            "kind": "open",
            "level": "none",
            "message": {"text": format!("skipped, missing {missing}")},
            "locations": place(&unknown.subject),
        })
    });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "linerate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": found.chain(open).collect::<Vec<_>>(),
        }],
    })
}

/// `doctor --format junit`: a test suite with a case for each rule and subject. Findings of warn and crit
/// are failures, notes pass with their text, skipped checks are skipped.
pub fn doctor_junit(visit: &CheckedHost<'_>) -> String {
    let case = |rule: &str, subject: &str, result| Case {
        class: rule.to_owned(),
        name: subject.to_owned(),
        result,
    };
    let mut cases = Vec::new();
    for rule in RULES {
        let all = &visit.diagnosis;
        let findings = all.findings.iter().filter(|f| f.rule == rule.id);
        let unknown = all.undetermined.iter().filter(|u| u.rule == rule.id);
        let before = cases.len();
        for finding in findings {
            let result = if finding.severity >= Severity::Warn {
                CaseResult::Failed {
                    kind: finding.severity.to_string(),
                    message: finding.summary.clone(),
                    text: details(finding).join("\n"),
                }
            } else {
                CaseResult::Passed(Some(finding.summary.clone()))
            };
            cases.push(case(rule.id, &finding.subject, result));
        }
        for one in unknown {
            let why = format!("missing {}", missing_text(visit, &one.missing));
            cases.push(case(rule.id, &one.subject, CaseResult::Skipped(why)));
        }
        if cases.len() == before {
            cases.push(case(rule.id, "host", CaseResult::Passed(None)));
        }
    }
    suite("linerate doctor", &cases)
}

#[cfg(test)]
mod tests {
    use linerate_model::finding::Evidence;
    use linerate_model::plan::End;

    use super::*;

    fn diagnosis() -> Diagnosis {
        Diagnosis {
            findings: vec![Finding {
                rule: "rps-wrong".to_owned(),
                severity: Severity::Warn,
                end: End::Local,
                subject: "nic/<eth0>".to_owned(),
                summary: "a & b \u{1}".to_owned(),
                evidence: vec![Evidence::new("mask", "1", "/sys/x")],
                threshold: "t".to_owned(),
                remedies: Vec::new(),
            }],
            undetermined: vec![Undetermined {
                rule: "irq-remote-numa".to_owned(),
                end: End::Local,
                subject: "nic/eth0".to_owned(),
                missing: vec![Gap::new(Cause::Denied, "/p", "needs root")],
            }],
        }
    }

    fn visit(diagnosis: &Diagnosis) -> CheckedHost<'_> {
        CheckedHost {
            profile: Profile::Throughput,
            watched_s: Some(2.0),
            is_captured: false,
            diagnosis,
        }
    }

    #[test]
    fn a_pipeline_reads_failures_skips_and_passes() {
        let diagnosis = diagnosis();
        let text = doctor_junit(&visit(&diagnosis));
        let count = format!(
            "tests=\"{}\" failures=\"1\" errors=\"0\" skipped=\"1\"",
            RULES.len()
        );
        assert!(text.contains(&count), "{text}");
        assert!(text.contains("name=\"nic/&lt;eth0&gt;\"") && text.contains("a &amp; b \u{fffd}"));
    }

    #[test]
    fn sarif_says_what_is_wrong_and_what_is_open() {
        let diagnosis = diagnosis();
        let sarif = doctor_sarif(&visit(&diagnosis));
        let results = &sarif["runs"][0]["results"];
        assert_eq!(results[0]["level"], "warning");
        assert_eq!(results[1]["kind"], "open");
        let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array();
        assert_eq!(rules.map(Vec::len), Some(RULES.len()));
    }

    #[test]
    fn on_a_terminal_a_long_finding_is_set_in_parts_that_fit_and_a_short_one_is_not() {
        let mut diagnosis = diagnosis();
        let short = doctor_text(&visit(&diagnosis), false, Some(80));
        assert!(
            short.starts_with("warn  nic/<eth0>  rps-wrong: a & b"),
            "{short}"
        );
        diagnosis.findings[0].summary = "PCIe passes 31.504 Gb/s of the 252.048 Gb/s that eth2 is \
             capable of, limited at 0000:80:01.0: it runs at 8.0 GT/s x4 (could: x16; x8); check slot and BIOS"
            .to_owned();
        let set = doctor_text(&visit(&diagnosis), false, Some(60));
        let expected = "\
warn  nic/<eth0>  rps-wrong
      PCIe passes 31.504 Gb/s of the 252.048 Gb/s that eth2
      is capable of, limited at 0000:80:01.0: it runs at
      8.0 GT/s x4 (could: x16; x8)
      -> check slot and BIOS
";
        assert!(set.starts_with(expected), "{set}");
        let piped = doctor_text(&visit(&diagnosis), false, None);
        assert_eq!(piped.lines().count(), 2, "{piped}");
    }

    #[test]
    fn a_summary_without_advice_has_one_part() {
        assert_eq!(parts("a card (x: y)"), ("a card (x: y)", None));
        assert_eq!(parts("at 0000:80:01.0"), ("at 0000:80:01.0", None));
        assert_eq!(parts("a: b; mend it"), ("a: b", Some("mend it")));
    }

    #[test]
    fn a_finding_is_one_line_until_more_is_asked_for() {
        let diagnosis = diagnosis();
        let short = doctor_text(&visit(&diagnosis), false, None);
        assert_eq!(short.lines().count(), 2, "{short}");
        let long = doctor_text(&visit(&diagnosis), true, None);
        assert!(
            long.contains("[/sys/x]") && long.contains("needs root"),
            "{long}"
        );
    }
}
