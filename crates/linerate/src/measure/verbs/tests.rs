//! Documents and texts of made samples, compared with the schema that people read them by.

use linerate_model::build;
use linerate_model::host::Host;
use linerate_model::known::Known;
use linerate_model::path::PathView;
use linerate_model::sample::{Datagrams as Counted, Flag};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Verb;
use linerate_report::metrics::{Exposition, MeasuredPath, measure_metrics};
use serde_json::{Value, json};

use super::super::fitting::told_and_fitting;
use super::super::measured::Measured;
use super::*;
use crate::metrics::provenance;

fn host(name: &str) -> Host {
    build::host()
        .nic(name, |nic| nic.gbit(100))
        .with(|host| host.rdma = vec![build::roce("mlx5_0", name)])
        .build()
}

/// The output for `sample`: the document, and the text.
fn shown(sample: Sample) -> (Value, String) {
    let (near, far) = (host("eth0"), host("eth1"));
    let ends = PathView {
        local: &near,
        remote: &far,
        local_nic: &near.nics[0].name,
        remote_nic: &far.nics[0].name,
        ipv6: false,
    };
    let measured = Measured::between(ends, sample, None);
    told_and_fitting(&measured)
}

/// Counters of the port, two of which moved.
fn counted(name: &str) -> Known<linerate_model::watch::Watch> {
    let watch = build::watch(&host(name))
        .grew("rdma/mlx5_0/1/hw/rx_write_requests", 7)
        .grew("rdma/mlx5_0/1/counter/port_xmit_data", 4_096);
    Known::Value(watch.build())
}

fn writes() -> Sample {
    let mut sample = build::over_verbs(
        build::sample().gbit(40).threads((0.0, 2), (0.0, 2)).build(),
        build::rdma(Verb::Write, 65_536),
    );
    sample.local.counters = counted("eth0");
    let operations = sample.local.operations.as_mut().expect("operations");
    operations.sizes[0].peak_bit_per_s = Some(BitRate::from_mbit_per_s(41_000));
    sample
}

#[test]
fn the_metrics_of_a_rate_have_its_message_size() {
    let (document, _) = shown(writes());
    let path = MeasuredPath {
        peer: "far",
        nic: Some("eth0"),
    };
    let metrics = measure_metrics(&document, &path, &provenance());
    let text = metrics.render(Exposition::Prometheus);
    let labels = "{workload=\"rdma-write\",transport=\"verbs\",direction=\"forward\",peer=\"far\",nic=\"eth0\"";
    let rate = document["sizes"][0]["rate_bit_per_s"]
        .as_f64()
        .expect("a rate")
        / 8.0;
    for series in [
        format!(
            "linerate_measure_size_rate_bytes_per_second{labels},size_bytes=\"65536\"}} {rate}\n"
        ),
        format!("linerate_measure_size_messages_per_second{labels},size_bytes=\"65536\"}} "),
    ] {
        assert!(text.contains(&series), "no {series} in {text}");
    }
    assert!(
        !text.contains("size_latency_seconds"),
        "a rate has no latency: {text}"
    );
}

#[test]
fn a_rate_has_what_perftest_prints_and_what_it_lacks() {
    let (value, text) = shown(writes());
    assert_eq!(value["workload"], "rdma-write");
    assert_eq!(value["transport"], "verbs");
    assert_eq!(value["mode"], "rate");
    let size = &value["sizes"][0];
    assert_eq!(size["bytes"], 65_536);
    // 10 GB in 2 s are 152,587 messages.
    assert_eq!(size["repetitions"], 152_587);
    assert_eq!(size["peak_bit_per_s"], 41e9);
    assert_eq!(size["latency_ns"], Value::Null);
    assert_eq!(value["total"]["bytes"], 10_000_000_000_u64);
    assert_eq!(value["verbs"]["local"]["device"], "mlx5_0");
    assert_eq!(value["verbs"]["remote"]["completions"], 0);
    assert_eq!(
        value["rdma_counters"]["local"][1]["counter"],
        "rx_write_requests"
    );
    assert_eq!(value["rdma_counters"]["remote"], Value::Null);
    let flags = value["flags"].as_array().expect("flags");
    assert!(!flags.contains(&json!(Flag::CountsDisagree)), "{flags:?}");
    for words in [
        "BW peak[Gb/s]",
        "41.000",
        "verbs     local  mlx5_0/1, RoCE v2 ::ffff:10.0.0.1 (index 3), MTU 4096, QP 131",
        "passive: receives no completions",
        "ports     local  mlx5_0/1: port_xmit_data +4096, rx_write_requests +7",
        "s per GB",
        "CPU per message",
        "ceiling   ",
        "1 queue pair",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("TCP_INFO"), "{text}");
}

#[test]
fn latency_has_the_columns_of_perftest_and_no_rate() {
    let mut sample = writes();
    if let Workload::Rdma(rdma) = &mut sample.spec.workload {
        rdma.latency = true;
    }
    let operations = sample.local.operations.as_mut().expect("operations");
    let size = &mut operations.sizes[0];
    (size.bytes, size.peak_bit_per_s, size.alone_ns) = (Bytes::new(2), None, None);
    for us in [2, 2, 2, 10] {
        size.one_way.record(Nanoseconds::from_micros(us));
    }
    let (value, text) = shown(sample);
    assert_eq!(value["mode"], "latency");
    assert_eq!(value["latency_ns"]["count"], 4);
    assert_eq!(value["sizes"][0]["rate_bit_per_s"], Value::Null);
    assert_eq!(value["total"]["rate_bit_per_s"], Value::Null);
    assert_eq!(value["ceiling"]["bit_per_s"], Value::Null);
    for words in ["t_typical[us]", "99.9%[us]", "10.00", "CPU each"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_sweep_tells_each_size_and_no_limit_of_them_all() {
    let mut sample = writes();
    if let Workload::Rdma(rdma) = &mut sample.spec.workload {
        rdma.sizes = vec![Bytes::new(2), Bytes::kib(64)];
    }
    let operations = sample.local.operations.as_mut().expect("operations");
    let mut small = operations.sizes[0].clone();
    (small.bytes, small.peak_bit_per_s) = (Bytes::new(2), None);
    operations.sizes.insert(0, small);
    let (value, text) = shown(sample);
    assert_eq!(value["sizes"].as_array().map(Vec::len), Some(2));
    assert_eq!(value["ceiling"]["share"], Value::Null);
    assert_eq!(value["limit"]["what"], "not determined");
    let flags = value["flags"].as_array().expect("flags");
    assert!(!flags.contains(&json!(Flag::NotSettled)), "{flags:?}");
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.contains("#bytes")),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("2 ") && line.contains(" - "))
    );
}

#[test]
fn both_ends_that_post_are_one_row() {
    let both = build::sample()
        .direction(linerate_model::workload::Direction::Bidirectional)
        .gbit(40);
    let sample = build::over_verbs(both.build(), build::rdma(Verb::Send, 65_536));
    let (value, _) = shown(sample);
    let size = &value["sizes"][0];
    assert_eq!(size["repetitions"], 2 * 152_587);
    let rate = size["rate_bit_per_s"].as_f64().expect("a rate");
    assert!((79.9e9..80.1e9).contains(&rate), "{rate}");
}

#[test]
fn datagrams_that_did_not_arrive_are_counted() {
    let mut sample = build::over_verbs(build::sample().build(), build::rdma(Verb::Send, 1_024));
    if let Some(verbs) = &mut sample.spec.verbs {
        verbs.service = Service::Ud;
    }
    for (side, count) in [(&mut sample.local, 1_000), (&mut sample.remote, 990)] {
        for flow in &mut side.flows {
            flow.datagrams = Some(Counted {
                count,
                ..Counted::default()
            });
        }
    }
    let (value, text) = shown(sample);
    assert_eq!(value["datagrams"]["lost"], 10);
    assert_eq!(value["datagrams"]["reordered"], Value::Null);
    assert_eq!(value["limit"]["what"], "loss");
    assert!(
        text.contains("1000 sent, 990 received, 10 lost (1.000 %)"),
        "{text}"
    );
}

#[test]
fn a_stream_over_verbs_has_the_document_of_a_stream_and_its_queue_pairs() {
    let mut sample = build::over_verbs(build::sample().build(), build::rdma(Verb::Send, 131_072));
    sample.spec.workload = Workload::default();
    sample.local.operations = None;
    let (value, text) = shown(sample);
    assert_eq!(
        (&value["workload"], &value["transport"]),
        (&json!("stream"), &json!("verbs"))
    );
    assert_eq!(value.get("sizes"), None);
    assert_eq!(value["verbs"]["remote"]["mtu"], 4096);
    assert!(text.starts_with("rate      "), "{text}");
    assert!(text.contains("verbs     remote mlx5_0/1"), "{text}");
}
