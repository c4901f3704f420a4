//! The metrics of `mesh`, from its document: its counts and rates, and the hosts that are not ok. A mesh may have thousands of
//! hosts, so those that are ok have no series of their own.

use linerate_analysis::mesh::{Effect, HostResult, HostVerdict, MeshDocument, RateUnit};
use linerate_analysis::trial::operations::real;

use super::table::{BOUNDS, Metric};
use super::{Metrics, Provenance};

/// The results of a host.
const STATES: &[&str] = &["ok", "named", "unreached", "not-tried"];
/// The summary of the rates.
const STATS: &[&str] = &["min", "p5", "median", "p95", "max"];

const TIMESTAMP: Metric = Metric::gauge(
    "linerate_mesh_timestamp_seconds",
    "seconds",
    "",
    "When the mesh ended, Unix time.",
);
const HOSTS: Metric = Metric::gauge("linerate_mesh_hosts", "", "", "Hosts with each result.")
    .by(&[("state", STATES)]);
const NOT_OK: Metric = Metric::gauge(
    "linerate_mesh_host_not_ok",
    "",
    "",
    "1 for each host that is named, unreached or not tried.",
)
.by(&[("host", &[]), ("state", STATES)]);
const CHANGE: Metric = Metric::gauge(
    "linerate_mesh_host_rate_change_ratio",
    "ratio",
    "",
    "Rate of a host that is not ok relative to most hosts, minus 1, before the retest.",
)
.by(&[("host", &[]), ("side", &["send", "receive"])]);
const NAMED: Metric = Metric::gauge(
    "linerate_mesh_named_change_ratio",
    "ratio",
    "",
    "Change of the rate of what is named, from the retest.",
)
.by(&[("what", &[]), ("host", &[]), ("to", &[]), ("group", &[])]);
const NAMED_CI: Metric = Metric::gauge(
    "linerate_mesh_named_change_ci_ratio",
    "ratio",
    "",
    "Simultaneous confidence interval of that change.",
)
.by(&[
    ("what", &[]),
    ("host", &[]),
    ("to", &[]),
    ("group", &[]),
    ("bound", BOUNDS),
]);
const LOSS: Metric = Metric::gauge(
    "linerate_mesh_named_retransmitted_ratio",
    "ratio",
    "",
    "Share of the segments of a named host that were retransmitted, if higher than that of most hosts.",
)
.by(&[("what", &[]), ("host", &[])]);
const RATE: Metric = Metric::gauge(
    "linerate_mesh_rate_bytes_per_second",
    "bytes_per_second",
    "",
    "Rates of all directed pairs; of bulk workloads.",
)
.by(&[("stat", STATS)]);
const OPERATIONS: Metric = Metric::gauge(
    "linerate_mesh_operations_per_second",
    "operations_per_second",
    "",
    "Rates of all directed pairs; of request workloads.",
)
.by(&[("stat", STATS)]);
const FLOWS: Metric = Metric::gauge(
    "linerate_mesh_flows",
    "",
    "",
    "Flows of the pattern, before the retest.",
)
.by(&[("result", &["measured", "failed", "not-tried"])]);
const DETECTABLE: Metric = Metric::gauge(
    "linerate_mesh_detectable_ratio",
    "ratio",
    "",
    "Smallest slowdown of a host that a retest would have confirmed (minimum detectable effect).",
);
const PARTIAL: Metric = Metric::gauge(
    "linerate_mesh_interrupted",
    "",
    "",
    "1 if the mesh ended early: its values are those of the rounds until then.",
);

/// Every metric of the document.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    [
        &TIMESTAMP,
        &HOSTS,
        &NOT_OK,
        &CHANGE,
        &NAMED,
        &NAMED_CI,
        &LOSS,
        &RATE,
        &OPERATIONS,
        &FLOWS,
        &DETECTABLE,
        &PARTIAL,
    ]
    .into_iter()
}

/// The metrics of a mesh.
pub fn mesh_metrics(document: &MeshDocument, provenance: &Provenance<'_>) -> Metrics {
    let identity = vec![
        ("pattern", document.pattern.clone()),
        ("workload", document.workload.clone()),
    ];
    let mut metrics = Metrics::new("mesh", identity, provenance);
    metrics.set(&TIMESTAMP, &[], Some(real(provenance.unix_s)));
    let states = [
        HostVerdict::Ok,
        HostVerdict::Named,
        HostVerdict::Unreached,
        HostVerdict::NotTried,
    ];
    for state in states {
        let count = number(document.count(state));
        metrics.set(&HOSTS, &[("state", word(state))], count);
    }
    for host in document
        .hosts
        .iter()
        .filter(|host| host.state != HostVerdict::Ok)
    {
        set_host(&mut metrics, host);
    }
    set_named(&mut metrics, document);
    set_pairs(&mut metrics, document);
    metrics.set(&DETECTABLE, &[], document.detectable);
    let is_partial = u8::from(document.stopped.is_some());
    metrics.set(&PARTIAL, &[], Some(f64::from(is_partial)));
    metrics
}

fn set_host(metrics: &mut Metrics, host: &HostResult) {
    let name = host.host.name.as_str();
    metrics.set(
        &NOT_OK,
        &[("host", name), ("state", word(host.state))],
        Some(1.0),
    );
    let relative = |effect: Option<Effect>| effect.map(|effect| effect.relative);
    metrics.set(
        &CHANGE,
        &[("host", name), ("side", "send")],
        relative(host.send),
    );
    metrics.set(
        &CHANGE,
        &[("host", name), ("side", "receive")],
        relative(host.receive),
    );
}

fn set_named(metrics: &mut Metrics, document: &MeshDocument) {
    for one in &document.named {
        let what = serde_json::to_value(one.what).unwrap_or_default();
        let group = one
            .group
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let labels = [
            ("what", what.as_str().unwrap_or_default()),
            ("host", one.host.as_deref().unwrap_or_default()),
            ("to", one.to.as_deref().unwrap_or_default()),
            ("group", group.as_str()),
        ];
        metrics.set(&NAMED, &labels, one.effect.map(|effect| effect.relative));
        let ends = [
            ("low", one.effect.map(|effect| effect.low)),
            ("high", one.effect.map(|effect| effect.high)),
        ];
        for (bound, value) in ends {
            let with_bound: Vec<_> = labels.into_iter().chain([("bound", bound)]).collect();
            metrics.set(&NAMED_CI, &with_bound, value);
        }
        metrics.set(&LOSS, &labels[..2], one.loss.map(|loss| loss.share));
    }
}

fn set_pairs(metrics: &mut Metrics, document: &MeshDocument) {
    let pairs = &document.summary;
    let (metric, divisor) = match document.unit {
        RateUnit::BitPerSecond => (&RATE, 8.0),
        RateUnit::PerSecond => (&OPERATIONS, 1.0),
    };
    let values = [pairs.min, pairs.p5, pairs.median, pairs.p95, pairs.max];
    for (stat, value) in STATS.iter().zip(values) {
        metrics.set(
            metric,
            &[("stat", *stat)],
            value.map(|value| value / divisor),
        );
    }
    let counts = [
        ("measured", pairs.measured),
        ("failed", pairs.failed),
        ("not-tried", pairs.not_tried),
    ];
    for (result, count) in counts {
        metrics.set(&FLOWS, &[("result", result)], number(count));
    }
}

const fn word(state: HostVerdict) -> &'static str {
    match state {
        HostVerdict::Ok => "ok",
        HostVerdict::Named => "named",
        HostVerdict::Unreached => "unreached",
        HostVerdict::NotTried => "not-tried",
    }
}

fn number(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}
