//! The metrics of `prove`: the rate before and after, the limits, the findings, and each remedy with its effect.

use linerate_analysis::trial::operations::real;
use linerate_model::finding::Finding;
use linerate_model::plan::End;
use linerate_model::prove::{LimitDocument, ProveDocument, RemedyResult};
use serde_json::Value;

use super::doctor::set_findings;
use super::limit::limit_labels;
use super::table::{BOUNDS, Metric, SEVERITIES, SIDES};
use super::{MeasuredPath, Metrics, Provenance};

/// Before any change, and with every kept remedy.
const PHASES: &[&str] = &["before", "after"];
/// The labels of a remedy.
const REMEDY: &[(&str, &[&str])] = &[("rule", &[]), ("side", SIDES), ("setting", &[])];
/// Those of an end of its interval.
const REMEDY_BOUND: &[(&str, &[&str])] = &[
    ("rule", &[]),
    ("side", SIDES),
    ("setting", &[]),
    ("bound", BOUNDS),
];

const TIMESTAMP: Metric = Metric::gauge(
    "linerate_prove_timestamp_seconds",
    "seconds",
    "",
    "When the proof ended, Unix time.",
);

const LIMIT: Metric = Metric::info(
    "linerate_prove_limit_info",
    "What limits the path, and how certain that is.",
)
.by(&[
    ("phase", PHASES),
    ("limit", &[]),
    ("status", &["proved", "likely", "not-determined"]),
]);

const FINDING: Metric = Metric::gauge(
    "linerate_prove_finding",
    "",
    "",
    "1 for each rule that found a fault at this end.",
)
.by(&[("side", SIDES), ("rule", &[]), ("severity", SEVERITIES)]);

const SUBJECTS: Metric = Metric::gauge(
    "linerate_prove_finding_subjects",
    "",
    "",
    "Interfaces, devices or CPUs of this end that the rule found a fault on; 1 for the host itself.",
)
.by(&[("side", SIDES), ("rule", &[]), ("severity", SEVERITIES)]);

const FINDINGS: Metric = Metric::gauge(
    "linerate_prove_findings",
    "",
    "",
    "Findings of each severity at this end.",
)
.by(&[("side", SIDES), ("severity", SEVERITIES)]);

/// What the document has as it is.
const TABLE: &[Metric] = &[
    Metric::gauge(
        "linerate_prove_rate_bytes_per_second",
        "bytes_per_second",
        "/{phase}/rate_bit_per_s",
        "Median rate of the trials.",
    )
    .by(&[("phase", PHASES)])
    .divided_by(8.0),
    Metric::gauge(
        "linerate_prove_rate_ci_bytes_per_second",
        "bytes_per_second",
        "/{phase}/{bound}_bit_per_s",
        "95 % confidence interval of the median rate, if there were enough trials for one.",
    )
    .by(&[("phase", PHASES), ("bound", BOUNDS)])
    .divided_by(8.0),
    Metric::gauge(
        "linerate_prove_trials",
        "",
        "/{phase}/trials",
        "Trials of the median rate.",
    )
    .by(&[("phase", PHASES)]),
    Metric::gauge(
        "linerate_prove_cpu_seconds_per_byte",
        "seconds_per_byte",
        "/{phase}/cpu_s_per_gb",
        "User and system time of the data threads of both ends per byte.",
    )
    .by(&[("phase", PHASES)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_prove_ceiling_bytes_per_second",
        "bytes_per_second",
        "/ceiling/bit_per_s",
        "Lowest computed bound of the path.",
    )
    .divided_by(8.0),
    Metric::gauge(
        "linerate_prove_ceiling_reached_ratio",
        "ratio",
        "/ceiling/share",
        "Share of that bound that the rate after the changes reached.",
    ),
    Metric::gauge(
        "linerate_prove_restored",
        "",
        "/restored",
        "1 if every change that was not kept was rolled back, 0 if not.",
    ),
];

/// What the document has of each remedy.
const REMEDIES: &[Metric] = &[
    Metric::gauge(
        "linerate_prove_remedy_effect_ratio",
        "ratio",
        "/effect/relative",
        "Relative effect of the remedy on the rate: 0.4 is 40 % faster.",
    )
    .by(REMEDY),
    Metric::gauge(
        "linerate_prove_remedy_effect_ci_ratio",
        "ratio",
        "/effect/{bound}",
        "Confidence interval of that effect.",
    )
    .by(REMEDY_BOUND),
    Metric::gauge(
        "linerate_prove_remedy_detectable_ratio",
        "ratio",
        "/effect/smallest_detectable",
        "Minimum detectable effect of the trials of the remedy.",
    )
    .by(REMEDY),
    Metric::gauge(
        "linerate_prove_remedy_kept",
        "",
        "/kept",
        "1 if the remedy was kept, 0 if it was rolled back or not tested.",
    )
    .by(REMEDY),
];

/// Every metric of the document.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    let findings = [&FINDING, &SUBJECTS, &FINDINGS];
    [&TIMESTAMP]
        .into_iter()
        .chain(TABLE)
        .chain([&LIMIT])
        .chain(findings)
        .chain(REMEDIES)
}

/// The metrics of a proof of a path with `workload`.
pub fn prove_metrics(
    document: &ProveDocument,
    workload: &str,
    path: &MeasuredPath<'_>,
    provenance: &Provenance<'_>,
) -> Metrics {
    let identity = vec![
        ("workload", workload.to_owned()),
        ("peer", path.peer.to_owned()),
        ("nic", path.nic.unwrap_or_default().to_owned()),
    ];
    let mut metrics = Metrics::new("prove", identity, provenance);
    metrics.set(&TIMESTAMP, &[], Some(real(provenance.unix_s)));
    // Plain data: what cannot be written has no series.
    let mut whole = serde_json::to_value(document).unwrap_or_default();
    for phase in PHASES {
        without_point_interval(&mut whole[phase]);
    }
    metrics.fill(TABLE, &whole, &[]);
    set_limit(&mut metrics, "before", Some(&document.limit));
    set_limit(&mut metrics, "after", document.limit_after.as_ref());
    for end in [End::Local, End::Remote] {
        let of_end = |finding: &&Finding| finding.end == end;
        let findings: Vec<Finding> = document.findings.iter().filter(of_end).cloned().collect();
        let families = [&FINDING, &SUBJECTS, &FINDINGS];
        set_findings(
            &mut metrics,
            &findings,
            families,
            &[("side", &end.to_string())],
        );
    }
    // An earlier test of a remedy is not its result.
    for remedy in document.remedies.iter().filter(|one| !one.tried_again) {
        set_remedy(&mut metrics, remedy);
    }
    metrics
}

/// Takes both ends of an interval away where they are the median itself: too few trials have no interval.
fn without_point_interval(rate: &mut Value) {
    if rate["low_bit_per_s"] == rate["high_bit_per_s"]
        && let Some(rate) = rate.as_object_mut()
    {
        rate.remove("low_bit_per_s");
        rate.remove("high_bit_per_s");
    }
}

fn set_limit(metrics: &mut Metrics, phase: &str, limit: Option<&LimitDocument>) {
    let limit = limit.and_then(|limit| serde_json::to_value(limit).ok());
    if let Some((id, status)) = limit.as_ref().and_then(limit_labels) {
        let labels = [("phase", phase), ("limit", &id), ("status", &status)];
        metrics.set(&LIMIT, &labels, Some(1.0));
    }
}

fn set_remedy(metrics: &mut Metrics, remedy: &RemedyResult) {
    let side = remedy.end.to_string();
    let labels = [
        ("rule", remedy.rule.as_str()),
        ("side", &side),
        ("setting", &remedy.setting),
    ];
    let whole: Value = serde_json::to_value(remedy).unwrap_or_default();
    metrics.fill(REMEDIES, &whole, &labels);
}
