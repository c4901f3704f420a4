//! The metrics of `measure`, from its document (`linerate.sample/1`): those of the whole result, never of single flows.

use linerate_analysis::trial::operations::real;
use serde_json::Value;

use super::limit::limit_labels;
use super::table::{BOUNDS, Metric, SIDES};
use super::{MeasuredPath, Metrics, Provenance};

/// The figures of a latency, as the document names them.
const STATS: &[&str] = &["min", "mean", "stddev", "p50", "p90", "p99", "p999", "max"];
/// Those of each message size, of which there may be 256.
const SIZE_STATS: &[&str] = &["p50", "p99"];

const TIMESTAMP: Metric = Metric::gauge(
    "linerate_measure_timestamp_seconds",
    "seconds",
    "",
    "When the measurement ended, Unix time.",
);

/// What the document has as it is.
const TABLE: &[Metric] = &[
    Metric::gauge(
        "linerate_measure_duration_seconds",
        "seconds",
        "/seconds",
        "Planned duration of a trial.",
    ),
    Metric::gauge(
        "linerate_measure_interrupted",
        "",
        "/interrupted",
        "1 if the measurement was interrupted: its values are those of the time until then.",
    ),
    Metric::gauge(
        "linerate_measure_warmup_seconds",
        "seconds",
        "/total/warmup_s",
        "Time at the beginning that the rate excludes.",
    ),
    Metric::gauge(
        "linerate_measure_rate_bytes_per_second",
        "bytes_per_second",
        "/total/rate_bit_per_s",
        "Rate of the payload after the warm-up; of several trials that of the one nearest to the median.",
    )
    .divided_by(8.0),
    Metric::gauge(
        "linerate_measure_transferred_bytes",
        "bytes",
        "/total/bytes",
        "Payload of the trial.",
    ),
    Metric::gauge(
        "linerate_measure_operations_per_second",
        "operations_per_second",
        "/total/ops_per_s",
        "Operations per second.",
    ),
    Metric::gauge(
        "linerate_measure_operations",
        "",
        "/total/operations",
        "Completed operations of the trial.",
    ),
    Metric::gauge(
        "linerate_measure_failed_operations",
        "",
        "/total/failed",
        "Operations that failed.",
    ),
    Metric::gauge(
        "linerate_measure_unanswered_operations",
        "",
        "/total/unanswered",
        "Operations that were not completed in time.",
    ),
    Metric::gauge(
        "linerate_measure_latency_seconds",
        "seconds",
        "/latency_ns/{stat}",
        "Latency of the operations; in open loop from the planned time of each.",
    )
    .by(&[("stat", STATS)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_service_latency_seconds",
        "seconds",
        "/service_latency_ns/{stat}",
        "In open loop: latency from when each request was sent.",
    )
    .by(&[("stat", STATS)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_corrected_latency_seconds",
        "seconds",
        "/corrected_latency_ns/{stat}",
        "In closed loop: latency with the requests that were not sent while others waited.",
    )
    .by(&[("stat", STATS)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_datagrams",
        "",
        "/datagrams/{result}",
        "Datagrams of the trial.",
    )
    .by(&[(
        "result",
        &["sent", "received", "lost", "reordered", "duplicated"],
    )]),
    Metric::gauge(
        "linerate_measure_datagram_loss_ratio",
        "ratio",
        "/datagrams/lost_share",
        "Share of the datagrams that were lost.",
    ),
    Metric::gauge(
        "linerate_measure_datagram_jitter_seconds",
        "seconds",
        "/datagrams/jitter_ns",
        "Interarrival jitter (RFC 3550); of several flows the largest.",
    )
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_datagram_delay_seconds",
        "seconds",
        "/datagrams/delay_ns/{stat}",
        "One-way delay, if both ends share a clock.",
    )
    .by(&[("stat", STATS)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_flows",
        "",
        "/flow_spread/count",
        "Flows, if there are several.",
    ),
    Metric::gauge(
        "linerate_measure_flow_rate_bytes_per_second",
        "bytes_per_second",
        "/flow_spread/{flow}/rate_bit_per_s",
        "Rate of the slowest and the fastest flow.",
    )
    .by(&[("flow", &["slowest", "fastest"])])
    .divided_by(8.0),
    Metric::gauge(
        "linerate_measure_flow_fairness_ratio",
        "ratio",
        "/flow_spread/fairness",
        "Jain's fairness index of the flows' rates: 1 if all are equal.",
    ),
    Metric::gauge(
        "linerate_measure_fit_latency_seconds",
        "seconds",
        "/fit/line/latency_ns",
        "pingpong: time of a message without payload, by the fit over all sizes.",
    )
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_fit_seconds_per_byte",
        "seconds_per_byte",
        "/fit/line/ns_per_byte",
        "pingpong: time for each further byte, by the fit over all sizes.",
    )
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_diffusion_seconds",
        "seconds",
        "/diffusion/{side}/{time}_s",
        "diffusion: elapsed time, CPU time of the data threads, and time on the grids themselves.",
    )
    .by(&[
        ("side", SIDES),
        ("time", &["real", "user", "system", "work"]),
    ]),
    Metric::gauge(
        "linerate_measure_diffusion_repetitions",
        "",
        "/diffusion/repetitions",
        "diffusion: round trips of each grid.",
    ),
    Metric::gauge(
        "linerate_measure_diffusion_same_grid",
        "",
        "/diffusion/same_grid",
        "diffusion: 1 if both ends held the same bytes at the end, 0 if data was corrupted.",
    ),
    Metric::gauge(
        "linerate_measure_diffusion_overhead_seconds",
        "seconds",
        "/overhead/real_s/difference",
        "diffusion --overhead: median time that the computation adds.",
    ),
    Metric::gauge(
        "linerate_measure_diffusion_overhead_ci_seconds",
        "seconds",
        "/overhead/real_s/{bound}",
        "diffusion --overhead: confidence interval of that time.",
    )
    .by(&[("bound", BOUNDS)]),
    Metric::gauge(
        "linerate_measure_cpu_seconds",
        "seconds",
        "/cpu/{side}/{mode}_s",
        "CPU time: user and system of the data threads, the rest of the whole machine.",
    )
    .by(&[
        ("side", SIDES),
        ("mode", &["user", "system", "softirq", "irq", "steal"]),
    ]),
    Metric::gauge(
        "linerate_measure_cpu_seconds_per_byte",
        "seconds_per_byte",
        "/cpu/{side}/s_per_gb",
        "User and system time of the data threads per byte.",
    )
    .by(&[("side", SIDES)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_cpu_seconds_per_operation",
        "seconds_per_operation",
        "/cpu/{side}/s_per_operation",
        "User and system time of the data threads per operation.",
    )
    .by(&[("side", SIDES)]),
    Metric::gauge(
        "linerate_measure_ceiling_bytes_per_second",
        "bytes_per_second",
        "/ceiling/bit_per_s",
        "Lowest computed bound of the path.",
    )
    .divided_by(8.0),
    Metric::gauge(
        "linerate_measure_ceiling_reached_ratio",
        "ratio",
        "/ceiling/share",
        "Share of that bound that was reached.",
    ),
];

/// What repeated trials gave (`--until-ci`, `--require`).
const REPEATS: &[Metric] = &[
    Metric::gauge(
        "linerate_measure_trials",
        "",
        "/repeats/trials",
        "Trials of the median.",
    ),
    Metric::gauge(
        "linerate_measure_drift_ratio",
        "ratio",
        "/repeats/drift",
        "Significant trend from the first to the last trial, relative to the median.",
    ),
];

/// The median of bulk workloads, whose result is a rate.
const REPEATED_RATE: &[Metric] = &[Metric::gauge(
    "linerate_measure_rate_median_bytes_per_second",
    "bytes_per_second",
    "/repeats/median",
    "Median rate of the trials.",
)
.divided_by(8.0)];

/// Its interval.
const RATE_INTERVAL: &[Metric] = &[Metric::gauge(
    "linerate_measure_rate_ci_bytes_per_second",
    "bytes_per_second",
    "/repeats/{bound}",
    "95 % confidence interval of the median rate, if there were enough trials for one.",
)
.by(&[("bound", BOUNDS)])
.divided_by(8.0)];

/// The median of the other workloads.
const REPEATED_OPERATIONS: &[Metric] = &[Metric::gauge(
    "linerate_measure_median_operations_per_second",
    "operations_per_second",
    "/repeats/median",
    "Median of the operations per second of the trials.",
)];

/// Its interval.
const OPERATIONS_INTERVAL: &[Metric] = &[Metric::gauge(
    "linerate_measure_ci_operations_per_second",
    "operations_per_second",
    "/repeats/{bound}",
    "95 % confidence interval of that median, if there were enough trials for one.",
)
.by(&[("bound", BOUNDS)])];

/// What the document has of each message size, of `pingpong` and `rdma-*`.
const SIZES: &[Metric] = &[
    Metric::gauge(
        "linerate_measure_size_latency_seconds",
        "seconds",
        "/latency_ns/{stat}",
        "pingpong, rdma-*: latency of messages of this size.",
    )
    .by(&[("size_bytes", &[]), ("stat", SIZE_STATS)])
    .divided_by(1e9),
    Metric::gauge(
        "linerate_measure_size_rate_bytes_per_second",
        "bytes_per_second",
        "/rate_bit_per_s",
        "pingpong, rdma-*: rate of messages of this size.",
    )
    .by(&[("size_bytes", &[])])
    .divided_by(8.0),
    Metric::gauge(
        "linerate_measure_size_messages_per_second",
        "messages_per_second",
        "/messages_per_s",
        "rdma-*: messages of this size per second.",
    )
    .by(&[("size_bytes", &[])]),
];

const LIMIT: Metric = Metric::info(
    "linerate_measure_limit_info",
    "What limits the rate, how certain that is, and the rule for the same problem.",
)
.by(&[
    ("limit", &[]),
    ("status", &["proved", "likely", "not-determined"]),
    ("rule", &[]),
]);

const FLAG: Metric = Metric::gauge(
    "linerate_measure_flag",
    "",
    "",
    "1 for each flag of the trial: why it may not be reliable, or how to interpret it.",
)
.by(&[("flag", &[])]);

const FLAGS: Metric = Metric::gauge("linerate_measure_flags", "", "", "Flags of the trial.");

const HOST: Metric = Metric::info("linerate_measure_host_info", "The two ends.").by(&[
    ("side", SIDES),
    ("hostname", &[]),
    ("kernel", &[]),
]);

/// Every metric of the document.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    let repeats = [
        REPEATS,
        REPEATED_RATE,
        RATE_INTERVAL,
        REPEATED_OPERATIONS,
        OPERATIONS_INTERVAL,
    ];
    [&TIMESTAMP]
        .into_iter()
        .chain(TABLE)
        .chain(repeats.into_iter().flatten())
        .chain(SIZES)
        .chain([&LIMIT, &FLAG, &FLAGS, &HOST])
}

/// The metrics of a document of `measure`.
pub fn measure_metrics(
    document: &Value,
    path: &MeasuredPath<'_>,
    provenance: &Provenance<'_>,
) -> Metrics {
    let word = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
    let identity = vec![
        ("workload", word("workload")),
        ("transport", word("transport")),
        ("direction", word("direction")),
        ("peer", path.peer.to_owned()),
        ("nic", path.nic.unwrap_or_default().to_owned()),
    ];
    let mut metrics = Metrics::new("measure", identity, provenance);
    metrics.set(&TIMESTAMP, &[], Some(real(provenance.unix_s)));
    metrics.fill(TABLE, document, &[]);
    set_repeats(&mut metrics, document);
    for size in document["sizes"].as_array().into_iter().flatten() {
        let bytes = size["bytes"].to_string();
        metrics.fill(SIZES, size, &[("size_bytes", &bytes)]);
    }
    if let Some((id, status)) = limit_labels(&document["limit"]) {
        let rule = document["limit"]["rule"].as_str().unwrap_or_default();
        let labels = [("limit", id.as_str()), ("status", &status), ("rule", rule)];
        metrics.set(&LIMIT, &labels, Some(1.0));
    }
    if let Some(flags) = document["flags"].as_array() {
        for flag in flags.iter().filter_map(Value::as_str) {
            metrics.set(&FLAG, &[("flag", flag)], Some(1.0));
        }
        metrics.set(&FLAGS, &[], Some(real(flags.len() as u64)));
    }
    for side in SIDES {
        let host = &document["hosts"][side];
        let word = |key: &str| host[key].as_str().unwrap_or_default();
        let labels = [
            ("side", *side),
            ("hostname", word("hostname")),
            ("kernel", word("kernel_release")),
        ];
        metrics.set(&HOST, &labels, host.is_object().then_some(1.0));
    }
    metrics
}

/// The median and its interval: of a rate in bit/s for bulk, else of operations per second. The range of too few trials
/// is no interval.
fn set_repeats(metrics: &mut Metrics, document: &Value) {
    let (median, interval) = if document["total"]["ops_per_s"].is_null() {
        (REPEATED_RATE, RATE_INTERVAL)
    } else {
        (REPEATED_OPERATIONS, OPERATIONS_INTERVAL)
    };
    metrics.fill(REPEATS, document, &[]);
    metrics.fill(median, document, &[]);
    if document["repeats"]["valid"] == true {
        metrics.fill(interval, document, &[]);
    }
}
