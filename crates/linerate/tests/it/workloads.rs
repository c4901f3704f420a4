//! Every workload of `measure` but the stream, by the command line: the document fits its schema, both ends
//! counted alike, and what was requested is what was done.

use serde_json::Value;

use crate::fitting;
use crate::lab::Lab;

/// Measures with these arguments, and returns the document.
#[track_caller]
fn measured(lab: &Lab, words: &str) -> Value {
    let words = format!("--format json measure {words}");
    let words: Vec<&str> = words.split(' ').collect();
    fitting(&lab.run(&words).expect_code(0).out)
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn requests_are_counted_and_every_one_is_timed() {
    for lab in Lab::for_each_channel() {
        for wait in ["blocking", "epoll", "spin"] {
            let document = measured(
                &lab,
                &format!("rr netns:far --time 0.3 --request 64B --wait {wait}"),
            );
            let operations = number(&document["total"]["operations"]);
            assert!(operations > 0.0, "{wait}");
            assert_eq!(
                document["latency_ns"]["count"], document["total"]["operations"],
                "{wait}"
            );
            assert_eq!(document["total"]["failed"], 0, "{wait}");
            let at = |key: &str| number(&document["latency_ns"][key]);
            assert!(at("min") <= at("p50") && at("p50") <= at("p99") && at("p99") <= at("max"));
        }
    }
}

#[test]
fn each_end_has_the_threads_and_the_wait_method_that_are_requested_for_it() {
    let Some(lab) = Lab::new() else { return };
    for workload in [
        "stream",
        "stream --bidir",
        "rr",
        "rr --reconnect",
        "rr --reverse",
        "pingpong --sizes 8B --repetitions 30",
        "http",
        "http --reverse",
        "udp --rate 10Mb/s",
    ] {
        for (local, remote) in [(1, 3), (3, 1)] {
            let document = measured(
                &lab,
                &format!(
                    "{workload} netns:far -P 4 --time 0.3 --threads {local} --threads-remote {remote} --wait-remote spin"
                ),
            );
            let threads = |end: &str| {
                let threads = document["threads"][end].as_array().expect("threads");
                let roles = if workload.contains("bidir") { 2 } else { 1 };
                threads.len() / roles
            };
            assert_eq!(
                (threads("local"), threads("remote")),
                (local, remote),
                "{workload}"
            );
            if let Some(failed) = document["total"]["failed"].as_u64() {
                assert_eq!(failed, 0, "{workload}");
            }
        }
    }
    let refused = lab.run(&["measure", "http", "netns:far", "--wait-remote", "uring"]);
    assert_eq!(refused.code, Some(22), "{}", refused.err);
    // Its pairs take turns at both ends.
    let words = "measure diffusion netns:far -P 4 --threads 4 --threads-remote 2";
    let refused = lab.run(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(
        refused.err.contains("as many as at this end"),
        "{}",
        refused.err
    );
}

#[test]
fn the_rates_of_single_threads_are_shown_as_wrk_shows_them() {
    let Some(lab) = Lab::new() else { return };
    let document = measured(&lab, "http netns:far -P 4 --threads 2 --time 0.5");
    let rates = &document["thread_ops_per_s"];
    let at = |key: &str| number(&rates[key]);
    assert!(at("mean") > 0.0 && at("max") >= at("mean"), "{rates}");
    assert!((0.0..=1.0).contains(&at("within_stddev")), "{rates}");
    assert!(number(&document["total"]["received_bytes_per_s"]) > 0.0);
    // What was not sent while others waited adds times above the mean, at most about as many as were sent.
    let of = |latency: &str, key: &str| number(&document[latency][key]);
    assert!(of("corrected_latency_ns", "min") >= of("latency_ns", "min"));
    assert!(of("corrected_latency_ns", "count") <= 3.0 * of("latency_ns", "count"));
}

#[test]
fn an_open_loop_keeps_its_rate_and_tells_what_a_closed_one_would_have_said() {
    let Some(lab) = Lab::new() else { return };
    let document = measured(&lab, "rr netns:far --time 0.5 --rate 200 --flows 2");
    // What a busy machine does not get an answer to within a second after the end is not counted.
    let operations = document["total"]["operations"].as_u64().expect("a count");
    assert!((50..=100).contains(&operations), "{operations}");
    assert_eq!(document["service_latency_ns"]["count"], operations);
}

#[test]
fn a_ping_pong_has_a_row_for_each_size_and_a_line_through_them() {
    for lab in Lab::for_each_channel() {
        let sizes = "0B,4B,1KiB,64KiB,4MiB";
        let document = measured(
            &lab,
            &format!("pingpong netns:far --sizes {sizes} --repetitions 30"),
        );
        let rows = document["sizes"].as_array().expect("rows");
        let bytes: Vec<&Value> = rows.iter().map(|row| &row["bytes"]).collect();
        assert_eq!(bytes, [0, 4, 1_024, 65_536, 4 << 20]);
        let repetitions: Vec<&Value> = rows.iter().map(|row| &row["repetitions"]).collect();
        assert_eq!(repetitions, [30, 30, 30, 30, 10]);
        assert!(document["fit"]["line"]["latency_ns"].is_number());
        assert!(
            !document["flags"]
                .as_array()
                .expect("flags")
                .iter()
                .any(|flag| flag == "cut-short")
        );
    }
}

#[test]
fn a_transfer_of_so_many_repetitions_makes_them_and_compares_every_byte() {
    for lab in Lab::for_each_channel() {
        let document = measured(
            &lab,
            "transfer netns:far --bytes 100KiB --repetitions 20 --flows 2 --data-check",
        );
        assert_eq!(document["total"]["operations"], 40);
    }
}

#[test]
fn a_grid_that_goes_there_and_back_is_the_same_at_both_ends_and_drawn() {
    for lab in Lab::for_each_channel() {
        let folder = tempfile::tempdir().expect("a folder");
        let pictures = folder.path().join("pictures");
        let of_all = |document: &Value| {
            let found = &document["diffusion"];
            assert_eq!(found["same_grid"], true, "{found:#}");
            assert_eq!(found["local"]["checksums"], found["remote"]["checksums"]);
            let checksums = found["local"]["checksums"].as_array().expect("a row");
            assert!(
                checksums.iter().all(|one| *one == checksums[0]),
                "{found:#}"
            );
            (checksums[0].clone(), checksums.len())
        };
        let words = "diffusion netns:far --buffer 100KiB --repetitions 120 --pairs 3 --data-check --pictures";
        let document = measured(&lab, &format!("{words} {}", pictures.display()));
        let (stepped, pairs) = of_all(&document);
        let found = &document["diffusion"];
        assert_eq!((pairs, &found["side"]), (3, &Value::from(112)));
        assert_eq!(document["total"]["operations"], 360);
        for end in ["local", "remote"] {
            assert!(number(&found[end]["real_s"]) > 0.0 && number(&found[end]["work_s"]) > 0.0);
        }
        let gigabytes = 2.0 * 102_400.0 * 360.0 / 1e9 / number(&found["real_s"]);
        assert!((number(&found["aggregate_gb_per_s"]) / gigabytes - 1.0).abs() < 1e-6);
        let csv = std::fs::read_to_string(pictures.join("section.csv")).expect("it was written");
        assert!(
            csv.starts_with("column,after_100,after_120\n0,0.0,0.0\n"),
            "{csv}"
        );
        assert_eq!(csv.lines().count(), 1 + 112);
        for picture in ["after-100.svg", "after-120.svg", "section.svg"] {
            let svg = std::fs::read_to_string(pictures.join(picture)).expect("it was written");
            assert!(
                svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
                "{picture}"
            );
        }
        // The other way round the peer asks, and the grid is the same; without work it is another.
        let words = "diffusion netns:far --buffer 100KiB --repetitions 120";
        let reverse = measured(&lab, &format!("{words} --reverse --wait spin"));
        assert_eq!(of_all(&reverse), (stepped.clone(), 1));
        let idle = measured(&lab, &format!("{words} --no-compute"));
        assert_eq!(idle["diffusion"]["work"], false);
        assert_ne!(of_all(&idle), (stepped, 1));
    }
}

#[test]
fn what_the_work_on_a_grid_costs_is_a_difference_with_its_interval() {
    let Some(lab) = Lab::new() else { return };
    let words = "diffusion netns:far --buffer 256KiB --repetitions 40 --overhead 6 --seed 5";
    let document = measured(&lab, words);
    let overhead = &document["overhead"];
    assert_eq!(
        (&overhead["pairs"], &overhead["seed"]),
        (&6.into(), &5.into())
    );
    let real = &overhead["real_s"];
    let [low, middle, high] = ["low", "difference", "high"].map(|key| number(&real[key]));
    assert!(low <= middle && middle <= high, "{real}");
    assert_eq!(document["diffusion"]["work"], true);
}

#[test]
fn the_defaults_of_another_program_are_printed_and_options_override_them() {
    let Some(lab) = Lab::new() else { return };
    let words = "--format json measure rr netns:far --like qperf --time 0.2 --request 3B";
    let words: Vec<&str> = words.split(' ').collect();
    let done = lab.run(&words).expect_code(0);
    let note = "like qperf tcp_lat: --response 1B, --flows 1, --depth 1";
    assert_eq!(done.err.lines().next(), Some(note), "{}", done.err);
    let spec = &fitting(&done.out)["raw"]["spec"];
    let rr = &spec["workload"]["rr"];
    assert_eq!(
        (&rr["request_bytes"], &rr["response_bytes"]),
        (&3.into(), &1.into())
    );
    assert_eq!(spec["duration_ns"], 200_000_000);

    let done = lab.run(&["measure", "stream", "netns:far", "--like", "wrk"]);
    let err = done.expect_code(2).err;
    assert!(err.contains("`--like wrk` is for `http`"), "{err}");
    assert!(err.contains("linerate measure stream"), "{err}");
}

#[test]
fn datagrams_at_a_low_rate_all_arrive() {
    for lab in Lab::for_each_channel() {
        for batch in ["single", "mmsg", "gso"] {
            let document = measured(
                &lab,
                &format!("udp netns:far --time 2 --rate 250kbit/s --size 500B --batch {batch}"),
            );
            let datagrams = &document["datagrams"];
            // A machine with other work may begin the last ones after the end, and then they are not sent.
            let sent = datagrams["sent"].as_u64().expect("a count");
            assert!((60..=125).contains(&sent), "{batch}: {sent}");
            assert_eq!(datagrams["received"], datagrams["sent"], "{batch}");
            assert_eq!(datagrams["lost"], 0, "{batch}");
        }
        for direction in ["--reverse", "--bidir"] {
            let words = format!("udp netns:far --time 0.5 --rate 1Mbit/s --size 500B {direction}");
            let document = measured(&lab, &words);
            let datagrams = &document["datagrams"];
            assert!(number(&datagrams["received"]) > 0.0, "{direction}");
            assert_eq!(datagrams["lost"], 0, "{direction}");
        }
    }
}

#[test]
fn our_server_answers_our_client() {
    for lab in Lab::for_each_channel() {
        let document = measured(
            &lab,
            "http netns:far --time 0.4 --connections 4 --body 1KiB",
        );
        let operations = number(&document["total"]["operations"]);
        assert!(operations > 0.0 && document["total"]["failed"] == 0);
        // A body of 1 KiB behind each head.
        assert!(number(&document["total"]["bytes"]) >= operations * 1_024.0);
    }
}

#[test]
fn a_server_of_others_is_loaded_and_what_it_does_not_tell_is_null() {
    let Some(lab) = Lab::new() else { return };
    let document = measured(&lab, "rr local --time 0.2");
    assert!(number(&document["total"]["operations"]) > 0.0);
    let done = lab.run(&["measure", "http", "http://127.0.0.1:9/", "--time", "0.2"]);
    assert_ne!(done.code, Some(0), "nobody listens there");
    assert!(done.err.contains("127.0.0.1:9"), "{}", done.err);
}

#[test]
fn datagrams_that_a_short_queue_drops_are_found_at_the_queue_by_its_own_counter() {
    let Some(lab) = Lab::new() else { return };
    // Twice as much is sent as goes through, and the queue holds a few datagrams.
    let queue = "tc qdisc add dev near0 root tbf rate 50mbit burst 15kb limit 15kb";
    lab.shell("near", queue);
    let document = measured(
        &lab,
        "udp netns:far --time 1 --size 1400B --rate 100M --batch single",
    );
    let lost = number(&document["raw"]["remote"]["flows"][0]["datagrams"]["lost"]);
    assert!(lost > 0.0, "{document:#}");
    let limit = &document["limit"];
    let evidence = limit["evidence"].as_array().expect("evidence");
    let what = limit["what"].as_str().expect("a word");
    assert_eq!(what, "a shaper", "{limit:#}");
    let drops = evidence
        .iter()
        .find(|one| one["what"] == "dropped at the local end, qdisc of near0 (drops)");
    let drops = drops.unwrap_or_else(|| panic!("{limit:#}"));
    let count: f64 = drops["value"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a count");
    assert!(count > 0.0, "{limit:#}");
    // By a hand of others: the same counter.
    let seen = lab.shell("near", "tc -s qdisc show dev near0");
    assert!(!seen.contains("(dropped 0,"), "{seen}");
}

#[test]
fn a_result_that_is_certain_enough_ends_the_repeating() {
    for lab in Lab::for_each_channel() {
        let document = measured(&lab, "rr netns:far --time 0.1 --rate 100 --until-ci 20%");
        let repeats = &document["repeats"];
        assert!(number(&repeats["trials"]) >= 20.0);
        assert!(number(&repeats["reached"]) <= 0.2, "{repeats}");
        assert!(number(&repeats["effective"]) > 1.0, "{repeats}");
        assert_eq!(repeats["valid"], true, "{repeats}");
    }
}

#[test]
fn threads_and_memory_are_where_they_were_asked_to_be() {
    for lab in Lab::for_each_channel() {
        let document = measured(
            &lab,
            "stream netns:far --time 0.2 --place cpu:0 --memory bind:0",
        );
        for end in ["local", "remote"] {
            for thread in document["threads"][end].as_array().expect("threads") {
                assert_eq!(thread["pinned_to"], 0, "{end}");
                // None on a machine that was too busy to look.
                let seen_on = thread["seen_on"].as_array().expect("a list");
                assert!(seen_on.iter().all(|cpu| *cpu == 0), "{end}: {seen_on:?}");
                assert!(
                    thread["memory_node"].is_null() || thread["memory_node"] == 0,
                    "{end}"
                );
            }
        }
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_before_anything_is_measured() {
    for lab in Lab::for_each_channel() {
        for (words, code, word) in [
            ("rr netns:far --request 0B", 2, "request"),
            ("rr netns:far --request 1TiB", 2, "request"),
            ("stream netns:far --buffer 1TiB", 2, "buffer"),
            ("udp netns:far --size 3B", 2, "datagram"),
            ("diffusion netns:far --buffer 511B", 2, "buffer of a grid"),
            ("diffusion netns:far --overhead", 2, "--repetitions"),
            ("diffusion netns:far --repetitions 5 --overhead 3", 2, "6"),
            ("diffusion netns:far --device rxe0", 2, "verbs"),
            ("stream netns:far --place cpu:4000", 23, "4000"),
            ("stream netns:far --place somewhere", 2, "somewhere"),
            ("http https://127.0.0.1/", 23, "TLS"),
            (
                "stream netns:far --wait uring --send zerocopy",
                22,
                "cannot",
            ),
        ] {
            let arguments: Vec<&str> = words.split(' ').collect();
            let done = lab.run(&[&["measure"][..], &arguments].concat());
            assert_eq!(done.code, Some(code), "{words}: {}", done.err);
            assert!(done.err.contains(word), "{words}: {}", done.err);
        }
    }
}

#[test]
fn an_omitted_start_is_not_in_the_rate_and_intervals_are_reported_as_asked() {
    for lab in Lab::for_each_channel() {
        let sample = measured(&lab, "stream netns:far -t 1 -O 1");
        assert_eq!(sample["seconds"], 2.0);
        assert!(
            number(&sample["total"]["warmup_s"]) > 0.2,
            "{}",
            sample["total"]
        );
        let done = lab.run(&["measure", "rr", "netns:far", "-t", "0.2", "-O", "0.1"]);
        let err = &done.expect_code(2).err;
        assert!(err.contains("the omitted start"), "{err}");

        let words = ["measure", "stream", "netns:far", "-t", "1.1", "-i", "0.5"];
        let text = lab.run(&words).expect_code(0).out;
        let ends = |line: &str| -> Option<(u64, u64)> {
            let hundredths = |text: &str| text.trim().replace('.', "").parse().ok();
            let (from, rest) = line.split_once(" - ")?;
            let (to, _) = rest.split_once(" s  ")?;
            Some((hundredths(from)?, hundredths(to)?))
        };
        let rows: Vec<(u64, u64)> = text.lines().filter_map(ends).collect();
        assert_eq!(rows.first().map(|row| row.0), Some(0), "{text}");
        assert!(rows.windows(2).all(|two| two[0].1 == two[1].0), "{text}");
        // A last one shorter than half belongs to the one before.
        let mut inner = rows.iter().skip(1);
        assert!(inner.all(|(from, to)| to - from >= 24), "{text}");
    }
}

#[test]
fn the_result_is_a_few_lines_and_the_evidence_is_left_to_verbose() {
    let Some(lab) = Lab::new() else { return };
    let words = ["measure", "stream", "netns:far", "-t", "0.5"];
    let short = lab.run(&words).expect_code(0).out;
    let labels = |text: &str| -> Vec<String> {
        let first = |line: &str| Some(line.split("  ").next()?.trim_end().to_owned());
        text.lines().filter_map(first).collect()
    };
    assert_eq!(labels(&short)[..3], ["rate", "limit", "cpu"], "{short}");
    // Only what is wrong with the trial may follow.
    assert!(
        labels(&short)[3..].iter().all(|label| label == "flags"),
        "{short}"
    );
    let verbose = lab.run(&[&words[..], &["-v"]].concat()).expect_code(0).out;
    for label in ["rate", "over time", "ceiling", "limit", "cpu"] {
        let is_label = |line: &str| line.starts_with(label);
        assert!(verbose.lines().any(is_label), "{label}: {verbose}");
    }
    assert!(verbose.contains("[TCP_INFO tcpi_busy_time]"), "{verbose}");

    let rr = ["measure", "rr", "netns:far", "-t", "0.3"];
    let short = lab.run(&rr).expect_code(0).out;
    assert_eq!(
        labels(&short)[..3],
        ["requests", "latency", "cpu"],
        "{short}"
    );
}

#[test]
fn what_recording_took_is_told_and_an_unrecorded_trial_only_counts_bytes() {
    let Some(lab) = Lab::new() else { return };
    let recorded = measured(&lab, "stream netns:far --time 0.3");
    let unrecorded = measured(&lab, "stream netns:far --time 0.3 --no-record");
    for end in ["local", "remote"] {
        assert!(number(&recorded["cpu"][end]["recording_s"]) > 0.0, "{end}");
        assert!(
            recorded["raw"][end]["counters"]["span_ns"].is_u64(),
            "{end}"
        );
        let raw = &unrecorded["raw"][end];
        assert!(
            raw["counters"]["span_ns"].is_null(),
            "{end}: {}",
            raw["counters"]
        );
        assert_eq!(raw["cpu"]["series"], serde_json::json!([]), "{end}");
        // No reading but each flow's own at its end.
        assert!(number(&unrecorded["total"]["bytes"]) > 0.0);
    }
    let done = lab.run(&["measure", "stream", "local", "--no-record", "--perf"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
}
