//! Every table against the schemas, and made documents of each kind as their readers get them.

use std::collections::{BTreeMap, BTreeSet};

use linerate_analysis::text::visible::{steers, visible_lines};
use linerate_model::finding::{Diagnosis, Finding, Profile, Severity, Undetermined};
use linerate_model::known::{Cause, Gap};
use linerate_model::plan::End;
use linerate_model::prove::ProveDocument;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::doctor::CheckedHost;

const MADE: Provenance<'_> = Provenance {
    commit: None,
    target: "x86_64-unknown-linux-gnu",
    unix_s: 1_800_000_000,
};

const PATH: MeasuredPath<'_> = MeasuredPath {
    peer: "netns:far",
    nic: Some("near0"),
};

/// A series as a reader understands it.
type Series = (String, BTreeMap<String, String>);

/// Reads a text strictly: each family once with its type, its series below it, no series twice.
fn read(text: &str) -> BTreeMap<Series, f64> {
    let mut all = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family = String::new();
    for line in text
        .strip_suffix('\n')
        .expect("a last line end")
        .split('\n')
    {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, _) = rest.split_once(' ').expect("a type");
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            family = name.to_owned();
        }
        if line.starts_with("# ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name_ends = series.find('{').unwrap_or(series.len());
        let (name, labels) = series.split_at(name_ends);
        assert!(name == family || name == format!("{family}_info"), "{name}");
        let labels = labels_of(labels);
        let value = value.parse().expect("a number");
        let twice = all.insert((name.to_owned(), labels), value);
        assert_eq!(twice, None, "{line} comes twice");
    }
    all
}

/// Reads `{name="value",...}` with its escapes.
fn labels_of(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        assert_eq!(text, "");
        return labels;
    };
    loop {
        let (name, value) = rest.split_once("=\"").expect("a label");
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(!name.is_empty() && name.chars().all(is_name), "{name}");
        let mut chars = value.char_indices();
        let mut read = String::new();
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at + 1,
                (_, '\\') => read.push(match chars.next().expect("an escape").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("no escape: {c}"),
                }),
                (_, c) => read.push(c),
            }
        };
        assert_eq!(labels.insert(name.to_owned(), read), None, "{name} twice");
        rest = &value[end..];
        if rest == "}" {
            return labels;
        }
        rest = rest.strip_prefix(',').expect("another label");
    }
}

/// The value of the only series of a metric that has these labels.
fn value(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let all = read(&metrics.render(Exposition::Prometheus));
    let mut found = all.iter().filter(|((one, has), _)| {
        one == name
            && labels
                .iter()
                .all(|(key, value)| has.get(*key).is_some_and(|own| own == value))
    });
    let first = found.next().map(|(_, value)| *value);
    assert_eq!(found.next(), None, "{name} {labels:?} is not one series");
    first
}

fn every_metric() -> impl Iterator<Item = &'static Metric> {
    [&BUILD_INFO]
        .into_iter()
        .chain(doctor::all())
        .chain(measure::all())
        .chain(prove::all())
}

#[test]
fn a_name_is_unique_and_ends_in_its_unit_and_none_is_that_of_a_counter() {
    let mut names = BTreeSet::new();
    for metric in every_metric() {
        let name = metric.name;
        assert!(names.insert(name), "{name} comes twice");
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        for reserved in ["_total", "_count", "_sum", "_bucket", "_created"] {
            assert!(!name.ends_with(reserved), "{name}");
        }
        let is_info = metric.kind == exposition::Kind::Info;
        assert_eq!(is_info, name.ends_with("_info"), "{name}");
        let unit = format!("_{}", metric.unit);
        assert!(metric.unit.is_empty() || name.ends_with(&unit), "{name}");
        // The formats disagree about the escapes of a help text.
        assert!(!metric.help.contains(['\\', '"', '\n', '|']), "{name}");
    }
}

/// The schema of the value that a JSON pointer leads to.
fn place<'s>(root: &'s Value, schema: &'s Value, words: &[&str]) -> Option<&'s Value> {
    if let Some(definition) = schema["$ref"].as_str() {
        return place(root, root.pointer(&definition[1..])?, words);
    }
    let Some((word, rest)) = words.split_first() else {
        return Some(schema);
    };
    let own = schema["properties"].get(*word);
    let own = own.and_then(|schema| place(root, schema, rest));
    let alternatives = ["anyOf", "allOf", "oneOf"].into_iter();
    let alternatives = alternatives.flat_map(|key| schema[key].as_array().into_iter().flatten());
    own.or_else(|| {
        let mut found = alternatives.filter_map(|schema| place(root, schema, words));
        found.next()
    })
}

#[test]
fn the_schema_has_every_value_that_a_table_takes_from_a_document() {
    let schema = |text: &str| -> Value { serde_json::from_str(text).expect("a schema") };
    let sample = schema(include_str!("../../../../schema/sample-1.json"));
    let prove = schema(include_str!("../../../../schema/prove-1.json"));
    let of = |root: &Value, under: &str, metric: &Metric| {
        for (pointer, _) in metric.places() {
            let pointer = format!("{under}{pointer}");
            let words: Vec<&str> = pointer.split('/').skip(1).collect();
            let [first, rest @ ..] = words.as_slice() else {
                panic!("{pointer} has a word");
            };
            let top = &root["properties"][*first];
            let top = if under.is_empty() { top } else { &top["items"] };
            let found = place(root, top, rest);
            assert!(found.is_some(), "{}: no {pointer}", metric.name);
        }
    };
    for metric in measure::all() {
        let is_of_size = metric.labels.iter().any(|(name, _)| *name == "size_bytes");
        of(&sample, if is_of_size { "/sizes" } else { "" }, metric);
    }
    for metric in prove::all() {
        let is_of_remedy = metric.name.starts_with("linerate_prove_remedy");
        of(&prove, if is_of_remedy { "/remedies" } else { "" }, metric);
    }
}

proptest! {
    #[test]
    fn any_label_is_read_back_without_what_steers_a_terminal(peer in any::<String>(), nic in "\\PC*") {
        let document = json!({"workload": "stream", "total": {"bytes": 7}});
        let path = MeasuredPath { peer: &peer, nic: Some(&nic) };
        let metrics = measure_metrics(&document, &path, &MADE);
        let harmless = |text: &str| -> String {
            let replace = |c: char| if c != '\n' && steers(c) { '\u{fffd}' } else { c };
            text.chars().map(replace).collect()
        };
        for format in [Exposition::Prometheus, Exposition::OpenMetrics] {
            let text = metrics.render(format);
            prop_assert_eq!(visible_lines(&text), &*text);
            let text = text.strip_suffix("# EOF\n").unwrap_or(&text);
            for ((_, labels), _) in read(text) {
                for (name, value) in [("peer", &peer), ("nic", &nic)] {
                    let value = Some(harmless(value)).filter(|value| !value.is_empty());
                    prop_assert_eq!(labels.get(name), value.as_ref());
                }
            }
        }
    }

    #[test]
    fn any_finite_value_is_read_back_and_no_other_has_a_series(number in any::<f64>()) {
        let document = json!({"workload": "stream", "seconds": number});
        let metrics = measure_metrics(&document, &PATH, &MADE);
        let read = value(&metrics, "linerate_measure_duration_seconds", &[]);
        prop_assert_eq!(read, Some(number).filter(|number| number.is_finite()));
    }
}

#[test]
fn a_stream_has_base_units_and_nothing_of_what_is_not_known() {
    let document = json!({
        "workload": "stream", "transport": "tcp", "direction": "forward", "seconds": 10.0,
        "interrupted": false,
        "total": {"rate_bit_per_s": 8e9, "bytes": 10_000_000_000_u64, "ops_per_s": null, "warmup_s": 0.5},
        "latency_ns": null,
        "cpu": {"local": {"user_s": 0.25, "softirq_s": null, "s_per_gb": 0.5}, "remote": null},
        "ceiling": {"bit_per_s": null, "share": null, "reason": "no bound can be computed"},
        "limit": {"what": "the sender's CPU", "status": "likely", "rule": null},
        "flags": ["shared-kernel", "not-settled"],
        "hosts": {"local": {"hostname": "a", "kernel_release": null}, "remote": null},
    });
    let metrics = measure_metrics(&document, &PATH, &MADE);
    let get = |name: &str, labels: &[(&str, &str)]| {
        let path = [
            ("peer", "netns:far"),
            ("nic", "near0"),
            ("workload", "stream"),
        ];
        value(
            &metrics,
            &format!("linerate_measure_{name}"),
            &[&path, labels].concat(),
        )
    };
    assert_eq!(get("rate_bytes_per_second", &[]), Some(1e9));
    assert_eq!(get("timestamp_seconds", &[]), Some(1.8e9));
    assert_eq!(get("cpu_seconds", &[("mode", "user")]), Some(0.25));
    assert_eq!(get("cpu_seconds_per_byte", &[]), Some(0.5e-9));
    assert_eq!(
        get(
            "limit_info",
            &[("limit", "sender-cpu"), ("status", "likely")]
        ),
        Some(1.0)
    );
    assert_eq!(get("flag", &[("flag", "not-settled")]), Some(1.0));
    assert_eq!(get("flags", &[]), Some(2.0));
    assert_eq!(get("interrupted", &[]), Some(0.0));
    for unknown in [
        "operations_per_second",
        "latency_seconds",
        "ceiling_bytes_per_second",
        "trials",
    ] {
        assert_eq!(get(unknown, &[]), None, "{unknown}");
    }
    let open = metrics.render(Exposition::OpenMetrics);
    for lines in [
        "# TYPE linerate_measure_rate_bytes_per_second gauge\n# UNIT linerate_measure_rate_bytes_per_second bytes_per_second\n",
        "# TYPE linerate_measure_limit info\nlinerate_measure_limit_info{",
        "hostname=\"a\"} 1\n# EOF\n",
    ] {
        assert!(open.contains(lines), "no {lines} in {open}");
    }
}

#[test]
fn a_median_has_the_unit_of_its_workload_and_an_interval_only_if_there_is_one() {
    let of = |ops_per_s: Option<f64>, valid: bool| {
        let repeats =
            json!({"trials": 20, "median": 800.0, "low": 720.0, "high": 880.0, "valid": valid});
        let document = json!({"total": {"ops_per_s": ops_per_s}, "repeats": repeats});
        measure_metrics(&document, &PATH, &MADE)
    };
    let rate = of(None, true);
    let low = [("bound", "low")];
    assert_eq!(
        value(&rate, "linerate_measure_rate_median_bytes_per_second", &[]),
        Some(100.0)
    );
    assert_eq!(
        value(&rate, "linerate_measure_rate_ci_bytes_per_second", &low),
        Some(90.0)
    );
    let operations = of(Some(1.0), true);
    assert_eq!(
        value(
            &operations,
            "linerate_measure_median_operations_per_second",
            &[]
        ),
        Some(800.0)
    );
    assert_eq!(
        value(
            &operations,
            "linerate_measure_ci_operations_per_second",
            &low
        ),
        Some(720.0)
    );
    let range = of(None, false);
    assert_eq!(
        value(&range, "linerate_measure_rate_ci_bytes_per_second", &[]),
        None
    );
    assert_eq!(value(&range, "linerate_measure_trials", &[]), Some(20.0));
}

#[test]
fn the_largest_sweep_of_ten_thousand_flows_has_a_bounded_number_of_series() {
    let latency = json!({"p50": 1, "p90": 2, "p99": 3});
    let size = |bytes: u64| json!({"bytes": bytes, "latency_ns": latency, "rate_bit_per_s": 8.0, "messages_per_s": 1.0});
    let sizes: Vec<Value> = (0..256).map(size).collect();
    let flows: Vec<Value> = (0..10_000)
        .map(|flow| json!({"flow": flow, "rate_bit_per_s": 8.0}))
        .collect();
    let document =
        json!({"workload": "rdma-write", "sizes": sizes, "flows": flows, "latency_ns": latency});
    let metrics = measure_metrics(&document, &PATH, &MADE);
    assert!(metrics.series() < 1_100, "{}", metrics.series());
    let one = value(
        &metrics,
        "linerate_measure_size_rate_bytes_per_second",
        &[("size_bytes", "255")],
    );
    assert_eq!(one, Some(1.0));
}

fn finding(rule: &str, severity: Severity, end: End, subject: &str) -> Finding {
    Finding {
        rule: rule.to_owned(),
        severity,
        end,
        subject: subject.to_owned(),
        summary: String::new(),
        evidence: Vec::new(),
        threshold: String::new(),
        remedies: Vec::new(),
    }
}

#[test]
fn a_rule_has_one_series_however_many_interfaces_it_found() {
    let on = |nic: u32| {
        finding(
            "eee-on",
            Severity::Note,
            End::Local,
            &format!("nic/eth{nic}"),
        )
    };
    let mut diagnosis = Diagnosis {
        findings: (0..500).map(on).collect(),
        undetermined: vec![Undetermined {
            rule: "irq-remote-numa".to_owned(),
            end: End::Local,
            subject: "nic/eth0".to_owned(),
            missing: vec![Gap::new(Cause::Denied, "/p", "needs root")],
        }],
    };
    diagnosis.findings.push(finding(
        "pcie-link-degraded",
        Severity::Crit,
        End::Local,
        "nic/eth0",
    ));
    let visit = CheckedHost {
        profile: Profile::Latency,
        watched_s: None,
        is_captured: false,
        diagnosis: &diagnosis,
    };
    let metrics = doctor_metrics(&visit, None, &MADE);
    let get = |name: &str, labels: &[(&str, &str)]| {
        let role = [("role", "latency")];
        value(
            &metrics,
            &format!("linerate_doctor_{name}"),
            &[&role, labels].concat(),
        )
    };
    let eee = [("rule", "eee-on"), ("severity", "note")];
    assert_eq!(get("finding", &eee), Some(1.0));
    assert_eq!(get("finding_subjects", &eee), Some(500.0));
    for (severity, count) in [("crit", 1.0), ("warn", 0.0), ("note", 500.0)] {
        assert_eq!(get("findings", &[("severity", severity)]), Some(count));
    }
    assert_eq!(get("skipped", &[("rule", "irq-remote-numa")]), Some(1.0));
    assert_eq!(get("skipped_checks", &[]), Some(1.0));
    assert_eq!(get("timestamp_seconds", &[]), Some(1.8e9));
    let captured = CheckedHost {
        is_captured: true,
        ..visit
    };
    let captured = doctor_metrics(&captured, None, &MADE);
    let time = value(&captured, "linerate_doctor_timestamp_seconds", &[]);
    assert_eq!(time, None, "the time of the capture is not known");
    assert_eq!(
        get("watched_seconds", &[]),
        None,
        "counters were not watched"
    );
}

#[test]
fn a_remedy_has_its_last_effect_and_whether_it_was_kept() {
    let rate = json!({"rate_bit_per_s": 8e9, "low_bit_per_s": 7e9, "high_bit_per_s": 9e9, "trials": 7, "cpu_s_per_gb": null});
    let remedy = |kept: bool, tried_again: bool, relative: Option<f64>| {
        let effect = relative.map(|relative| {
            json!({
                "relative": relative, "low": relative - 0.1, "high": relative + 0.1, "level": 0.99,
                "trials_without": 3, "trials_with": 3, "smallest_detectable": 0.05,
            })
        });
        json!({
            "rule": "rcvbuf-below-bdp", "end": "remote", "setting": "sysctl/net.ipv4.tcp_rmem", "from": "1", "to": "2",
            "changes": [], "effect": effect, "kept": kept, "tried_again": tried_again, "note": null,
            "without_bit_per_s": [], "with_bit_per_s": [],
        })
    };
    let mut document: ProveDocument = serde_json::from_value(json!({
        "schema": "linerate.prove/1", "before": rate, "after": rate,
        "ceiling": {"bit_per_s": 1e10, "share": 0.8, "reason": "the link"},
        "limit": {"what": "the receive window", "status": "likely", "evidence": []},
        "findings": [], "remedies": [remedy(false, true, Some(0.1)), remedy(true, false, Some(0.5))],
        "restored": true, "planted": [], "found": [], "seed": 7, "run": null, "report": null,
    }))
    .expect("a document");
    let get = |document: &ProveDocument, name: &str, labels: &[(&str, &str)]| {
        let metrics = prove_metrics(document, "stream", &PATH, &MADE);
        value(&metrics, &format!("linerate_prove_{name}"), labels)
    };
    let of = [
        ("rule", "rcvbuf-below-bdp"),
        ("side", "remote"),
        ("setting", "sysctl/net.ipv4.tcp_rmem"),
    ];
    assert_eq!(get(&document, "remedy_effect_ratio", &of), Some(0.5));
    assert_eq!(
        get(&document, "remedy_effect_ci_ratio", &[("bound", "low")]),
        Some(0.4)
    );
    assert_eq!(get(&document, "remedy_kept", &of), Some(1.0));
    assert_eq!(
        get(
            &document,
            "limit_info",
            &[("phase", "before"), ("limit", "receive-window")]
        ),
        Some(1.0)
    );
    assert_eq!(get(&document, "limit_info", &[("phase", "after")]), None);
    assert_eq!(
        get(
            &document,
            "rate_ci_bytes_per_second",
            &[("phase", "after"), ("bound", "low")]
        ),
        Some(8.75e8)
    );
    // Not tested, and no trial after the changes.
    document.remedies = vec![serde_json::from_value(remedy(false, false, None)).expect("a remedy")];
    document.after.rate_bit_per_s = f64::NAN;
    (
        document.before.low_bit_per_s,
        document.before.high_bit_per_s,
    ) = (8e9, 8e9);
    let before = [("phase", "before")];
    assert_eq!(get(&document, "rate_ci_bytes_per_second", &before), None);
    assert_eq!(get(&document, "rate_bytes_per_second", &before), Some(1e9));
    assert_eq!(get(&document, "remedy_effect_ratio", &of), None);
    assert_eq!(get(&document, "remedy_kept", &of), Some(0.0));
    assert_eq!(
        get(&document, "rate_bytes_per_second", &[("phase", "after")]),
        None
    );
}

#[test]
fn a_series_that_comes_twice_has_its_last_value() {
    let size = |rate: f64| json!({"bytes": 64, "rate_bit_per_s": rate});
    let document = json!({"workload": "rdma-write", "sizes": [size(8.0), size(16.0)]});
    let metrics = measure_metrics(&document, &PATH, &MADE);
    let rate = value(&metrics, "linerate_measure_size_rate_bytes_per_second", &[]);
    assert_eq!(rate, Some(2.0));
}

#[test]
fn a_command_of_a_peer_is_no_label() {
    let label = |text: &str| peer_label(&text.parse().expect("a peer"));
    assert_eq!(
        label("exec:sh -c 'token=secret linerate agent --stdio'"),
        "exec"
    );
    assert_eq!(label("root@far"), "ssh://root@far");
    assert_eq!(label("netns:far"), "netns:far");
}
