//! `measure stream`: the reported bytes, compared with the interfaces' own counters.

use serde_json::{Value, json};

use crate::lab::Lab;

/// Measures and returns the document, with what `near0` sent and received meanwhile.
#[track_caller]
fn measured(lab: &Lab, arguments: &[&str]) -> (Value, u64, u64) {
    let before = (
        lab.counter("near", "tx_bytes"),
        lab.counter("near", "rx_bytes"),
    );
    let document = lab.stream(arguments);
    let after = (
        lab.counter("near", "tx_bytes"),
        lab.counter("near", "rx_bytes"),
    );
    (document, after.0 - before.0, after.1 - before.1)
}

/// The last reading of each flow of one role at one end.
fn totals(document: &Value, end: &str, role: &str) -> Vec<u64> {
    let flows = document["raw"][end]["flows"].as_array().expect("flows");
    let last = |flow: &Value| {
        let readings = flow["bytes"].as_array().expect("readings");
        readings
            .last()
            .map_or(0, |last| last.as_u64().expect("a count"))
    };
    flows
        .iter()
        .filter(|flow| flow["role"] == role)
        .map(last)
        .collect()
}

/// What travelled one way, by both ends' word and the interface's: every byte received was sent, none
/// came from nowhere, and the interface saw them all with their headers and little else.
#[track_caller]
fn assert_agrees(document: &Value, from: &str, to: &str, seen: u64) {
    let sent = totals(document, from, "sender");
    let received = totals(document, to, "receiver");
    assert_eq!(sent.len(), received.len());
    for (flow, (sent, received)) in sent.iter().zip(&received).enumerate() {
        assert!(
            received <= sent,
            "flow {flow}: {received} received of {sent} sent"
        );
        assert!(*received > 0, "flow {flow} moved nothing");
    }
    let (sent, received) = (sent.iter().sum::<u64>(), received.iter().sum::<u64>());
    assert!(
        seen >= received,
        "{received} received, the interface saw {seen}"
    );
    let again: u64 = document["raw"][from]["flows"]
        .as_array()
        .expect("flows")
        .iter()
        .filter_map(|flow| flow["tcp"]["bytes_retransmitted"].as_u64())
        .sum();
    // At most 66 bytes of headers on each 1,448 of payload, the other way's acknowledgements, ARP.
    let most = (sent + again) / 1_448 * 1_514 + (4 << 20) + seen / 10;
    assert!(seen <= most, "{sent} sent, the interface saw {seen}");
}

#[test]
fn four_flows_agree_with_the_interface_about_the_bytes() {
    for lab in Lab::for_each_channel() {
        let (document, sent, _) = measured(&lab, &["--flows", "4"]);
        assert_eq!(document["flows"].as_array().map(Vec::len), Some(4));
        assert_agrees(&document, "local", "remote", sent);
        let total = document["total"]["bytes"].as_u64().expect("a count");
        assert_eq!(
            total,
            totals(&document, "remote", "receiver").iter().sum::<u64>()
        );
        let flows = document["flows"].as_array().expect("flows");
        let of_flows: u64 = flows.iter().filter_map(|flow| flow["bytes"].as_u64()).sum();
        assert_eq!(total, of_flows);
        // The rate leaves the warm-up out: what it stands for is a part of all bytes.
        let rate = document["total"]["rate_bit_per_s"]
            .as_f64()
            .expect("a rate");
        #[expect(clippy::cast_precision_loss, reason = "a few gigabytes")]
        let most = total as f64 * 1.3;
        let kept = 0.6 - document["total"]["warmup_s"].as_f64().unwrap_or(0.0);
        assert!(
            rate > 0.0 && rate * kept / 8.0 <= most,
            "{rate} bit/s for {kept} s, {total} bytes"
        );
    }
}

#[test]
fn a_reverse_stream_comes_from_the_far_end() {
    for lab in Lab::for_each_channel() {
        let (document, _, received) = measured(&lab, &["--reverse"]);
        assert_eq!(document["direction"], "reverse");
        assert_agrees(&document, "remote", "local", received);
    }
}

#[test]
fn a_bidirectional_stream_goes_both_ways() {
    for lab in Lab::for_each_channel() {
        let (document, sent, received) = measured(&lab, &["--bidir", "--flows", "2"]);
        assert_eq!(document["direction"], "bidirectional");
        assert_agrees(&document, "local", "remote", sent);
        assert_agrees(&document, "remote", "local", received);
        let both: u64 = ["local", "remote"]
            .iter()
            .flat_map(|end| totals(&document, end, "receiver"))
            .sum();
        assert_eq!(document["total"]["bytes"].as_u64(), Some(both));
    }
}

#[test]
fn threads_run_where_they_are_placed() {
    let Some(lab) = Lab::new() else { return };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        eprintln!("SKIP: one CPU only");
        return;
    }
    let (document, ..) = measured(&lab, &["--place", "0:1", "--flows", "2"]);
    let asked = json!({"local": {"sender_cpus": "0"}, "remote": {"receiver_cpus": "1"}});
    assert_eq!(document["placement"], asked);
    for (end, cpu) in [("local", 0), ("remote", 1)] {
        for flow in document["raw"][end]["flows"].as_array().expect("flows") {
            assert_eq!(flow["pinned_to"], cpu, "{end}");
            assert_eq!(flow["last_cpu"], cpu, "{end}");
        }
    }
    // In the other direction the sender is the remote end.
    let (document, ..) = measured(&lab, &["--place", "0:1", "--reverse"]);
    let asked = json!({"local": {"receiver_cpus": "1"}, "remote": {"sender_cpus": "0"}});
    assert_eq!(document["placement"], asked);
    assert_eq!(document["raw"]["local"]["flows"][0]["last_cpu"], 1);
    assert_eq!(document["raw"]["remote"]["flows"][0]["last_cpu"], 0);
}

#[test]
fn congestion_control_and_socket_buffers_are_as_asked() {
    for lab in Lab::for_each_channel() {
        let (document, ..) = measured(&lab, &["--cc", "reno", "--socket-buffer", "32KiB"]);
        for end in ["local", "remote"] {
            let tcp = &document["raw"][end]["flows"][0]["tcp"];
            assert_eq!(tcp["congestion_control"], "reno", "{end}");
        }
        // A receive buffer of this size cannot grant a window of more than its double.
        let window = document["raw"]["local"]["flows"][0]["tcp"]["snd_wnd_bytes"].as_u64();
        if let Some(window) = window {
            assert!(window <= 64 << 10, "a window of {window} bytes");
        } else {
            eprintln!("SKIP: this kernel does not tell the window that was granted");
        }
    }
}

#[test]
fn a_thousand_flows_share_a_thread_per_cpu() {
    for lab in Lab::for_each_channel() {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").expect("it is there");
        let cpus = cpus
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count();
        // The listener that takes the connections of strangers has the lowest share of a busy machine.
        let most = if lab.is_listening() { "200" } else { "1000" };
        for flows in ["1", "64", most] {
            let document = lab.stream(&["--flows", flows, "--per-flow"]);
            let flows: usize = flows.parse().expect("a number");
            for end in ["local", "remote"] {
                let threads = document["threads"][end].as_array().expect("threads").len();
                assert!(
                    (1..=flows.min(cpus.max(1))).contains(&threads),
                    "{flows}: {threads}"
                );
                let records = document["raw"][end]["flows"].as_array().expect("flows");
                assert_eq!(records.len(), flows);
            }
        }
    }
}

#[test]
fn more_flows_than_64_are_summarized_and_listed_on_request() {
    let Some(lab) = Lab::new() else { return };
    let document = lab.stream(&["--flows", "65"]);
    assert_eq!(document["flows"], json!([]));
    assert!(document["raw"].is_null());
    let spread = &document["flow_spread"];
    assert_eq!(spread["count"], 65);
    let fairness = spread["fairness"].as_f64().expect("an index");
    assert!((1.0 / 65.0..=1.0).contains(&fairness), "{fairness}");
    let rate = |flow: &str| spread[flow]["rate_bit_per_s"].as_f64().expect("a rate");
    assert!(rate("slowest") <= rate("fastest"));
    let listed = lab.stream(&["--flows", "65", "--per-flow"]);
    assert_eq!(listed["flows"].as_array().map(Vec::len), Some(65));
    assert!(listed["raw"].is_object());
}

#[test]
fn the_intervals_are_in_json_and_what_verbose_and_interval_do_not_go_with_is_refused_by_name() {
    let Some(lab) = Lab::new() else { return };
    let document = lab.stream(&["--interval", "0.2"]);
    let intervals = document["intervals"].as_array().expect("intervals");
    assert!(!intervals.is_empty());
    assert!(
        intervals
            .iter()
            .all(|one| one["rate_bit_per_s"].is_number())
    );
    for (options, named) in [
        (&["--format", "json", "--verbose"][..], "--verbose"),
        (&["--ladder", "--verbose"], "--verbose"),
        (&["--ladder", "--interval", "1"], "--interval"),
        (&["--preload", "rsocket", "--verbose"], "--verbose"),
    ] {
        let words = [&["measure", "stream", "netns:far"][..], options].concat();
        let done = lab.run(&words).expect_code(2);
        assert!(done.err.contains(named), "{}", done.err);
    }
}
