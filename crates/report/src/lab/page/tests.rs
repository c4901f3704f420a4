//! The page of an experiment, made of records that have all that its pictures show.

use linerate_analysis::experiment::judge;
use linerate_analysis::made_up;
use linerate_analysis::record::Record;
use linerate_model::build::{self, cpu_times};
use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::sample::{CpuStep, Operations, Sample, SizeRecord, Step};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Pingpong, Rr, Workload};
use serde_json::Value;

use super::{LabData, lab_page};

/// Sizes by flows, three times each: requests that take the longer, the larger they are.
const EXPERIMENT: &str = r#"
title = "Sizes & flows"
workload = "rr"
response = ["operations", "p99"]
[[factors]]
name = "request"
option = "request"
levels = ["64B", "1KiB", "64KiB"]
[[factors]]
option = "flows"
levels = [1, 4]
"#;

fn trial(size: u64, flows: u64, block: u64) -> Sample {
    let mut sample = build::sample().build();
    let mut latency = Histogram::default();
    for number in 0..1_000 {
        let time = 10_000 + size * 4_000 * flows + number * 7 + block * 31;
        latency.record(Nanoseconds::new(time));
    }
    let step = |number: u64| Step {
        at_ns: Nanoseconds::from_millis(100 * number),
        completed: 100 * number + block,
    };
    sample.spec.workload = Workload::Rr(Rr {
        request_bytes: Bytes::new(64),
        response_bytes: Bytes::new(64),
        depth: 1,
        connect_each: false,
        rate_per_s: None,
    });
    sample.local.operations = Some(Operations {
        completed: 1_000 * flows + 10 * block + size,
        latency,
        steps: (1..=10).map(step).collect(),
        ..Operations::default()
    });
    sample.local.cpu.machine =
        Known::Value(vec![cpu_times(0, 500, 250, 250), cpu_times(1, 0, 0, 1_000)]);
    sample.remote.cpu.machine = Known::Value(vec![cpu_times(7, 100 * size, 100, 500)]);
    sample
}

fn records() -> Vec<Record> {
    let experiment =
        linerate_analysis::experiment::definition::parse(EXPERIMENT).expect("a sound experiment");
    let mut records = vec![
        Record::Lab {
            experiment: Box::new(experiment),
            include_way_in: false,
            own_hosts: false,
        },
        made_up::hosts("far"),
    ];
    for block in 0..3 {
        for size in 0..3 {
            for flows in 0..2 {
                let sample = trial(size as u64, [1, 4][flows], block.into());
                records.push(Record::Cell {
                    block,
                    levels: vec![size, flows],
                    samples: vec![sample],
                    why: None,
                });
            }
        }
    }
    records
}

fn page(records: &[Record]) -> (String, Vec<Value>) {
    let header = made_up::header(5, 0);
    let document = judge::document(&header, records).expect("an experiment");
    let page = lab_page(&document, &header, &LabData::of(records));
    let (_, data) = page
        .split_once("id=\"linerate-data\">")
        .expect("the page holds its data");
    let (data, _) = data.split_once("</script>").expect("to its end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    let drawn = data["drawn"].as_array().expect("a list").clone();
    (page, drawn)
}

/// The picture with a title that begins so.
fn picture<'d>(page: &str, drawn: &'d [Value], title: &str) -> &'d Value {
    let begin = format!("<figcaption>{title}");
    let (_, rest) = page
        .split_once(&begin)
        .unwrap_or_else(|| panic!("no {title}"));
    let (_, index) = rest.split_once("data-chart=\"").expect("an index");
    let (index, _) = index.split_once('"').expect("to its end");
    &drawn[index.parse::<usize>().expect("a number")]
}

fn values<'d>(picture: &'d Value, field: &str) -> Vec<&'d Value> {
    let data = picture["data"].as_array().expect("a list");
    let mut values: Vec<&Value> = data.iter().map(|one| &one[field]).collect();
    values.dedup();
    values
}

#[test]
fn every_place_for_a_picture_has_one_with_data() {
    let (page, drawn) = page(&records());
    assert_eq!(page.matches("data-chart=").count(), drawn.len());
    for picture in &drawn {
        assert!(
            !picture["data"].as_array().expect("a list").is_empty(),
            "{picture}"
        );
        assert!(picture["height"].as_u64().is_some_and(|height| height > 0));
    }
}

#[test]
fn cpu_time_has_a_row_for_each_cpu_and_each_kind_that_was_seen() {
    let (page, drawn) = page(&records());
    let here = picture(&page, &drawn, "This host");
    let rows = ["CPU 0 user", "CPU 0 softirq", "CPU 1 user", "CPU 1 softirq"];
    assert_eq!(values(here, "row"), rows);
    assert_eq!(here["data"][0]["share"], 0.5);
    // Eighteen trials, three of each combination side by side.
    let columns = here["data"].as_array().expect("a list").len() / rows.len();
    assert_eq!(columns, 18);
    assert!(page.contains("The peer: means of all trials"));
    assert_eq!(values(picture(&page, &drawn, "The peer"), "row").len(), 2);
}

#[test]
fn on_one_kernel_the_cpus_are_shown_once() {
    let mut records = records();
    for record in &mut records {
        if let Record::Cell { samples, .. } = record {
            for sample in samples {
                sample.shared_kernel = true;
            }
        }
    }
    let (page, _) = page(&records);
    assert!(page.contains("<figcaption>Both ends, on one kernel"));
    assert!(!page.contains("<figcaption>The peer"));
}

#[test]
fn times_of_operations_have_a_strip_for_each_combination_and_their_quantiles_in_a_table() {
    let (page, drawn) = page(&records());
    let strips = picture(&page, &drawn, "Operation latency");
    let names = [
        "64B, flows 1",
        "64B, flows 4",
        "1KiB, flows 1",
        "1KiB, flows 4",
        "64KiB, flows 1",
        "64KiB, flows 4",
    ];
    assert_eq!(values(strips, "name"), names);
    assert!(page.contains("<caption>Operation latency</caption>"));
    let marks = strips["layer"][1]["data"]["values"]
        .as_array()
        .expect("marks");
    assert_eq!(marks.len(), 4 * names.len());
    let median = marks[0]["at"].as_f64().expect("microseconds");
    assert!((median - 13.5).abs() < 0.2, "{median}");
}

#[test]
fn sizes_make_curves_and_two_factors_a_grid() {
    let (page, drawn) = page(&records());
    let grid = picture(&page, &drawn, "operations of each combination");
    assert_eq!(grid["data"].as_array().expect("a list").len(), 6);
    assert_eq!(grid["layer"][1]["encoding"]["text"]["field"], "text");
    let curves = picture(&page, &drawn, "operations, 1/s</figcaption>");
    assert_eq!(curves["layer"][0]["encoding"]["x"]["scale"]["type"], "log");
    let lines: std::collections::BTreeSet<String> = (values(curves, "line").iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(lines.len(), 2);
    for point in curves["data"].as_array().expect("points") {
        let of = |key: &str| point[key].as_f64().expect("a number");
        assert!(
            of("low") <= of("mean") && of("mean") <= of("high"),
            "{point}"
        );
    }
}

/// Five steps of a second; the user's share of a CPU grows with them and with the block.
fn course(number: u32, block: u32) -> Vec<CpuStep> {
    let step = |at: u64| CpuStep {
        at_ns: Nanoseconds::from_millis(1_000 * at),
        cpus: vec![cpu_times(
            number,
            100 * at + 50 * u64::from(block),
            200,
            800 - 100 * at - 50 * u64::from(block),
        )],
    };
    (1..=5).map(step).collect()
}

#[test]
fn the_course_of_the_cpus_is_that_of_the_middle_trial_of_each_combination() {
    let mut records = records();
    for record in &mut records {
        if let Record::Cell { block, samples, .. } = record {
            samples[0].local.cpu.series = course(0, *block);
            samples[0].remote.cpu.series = course(7, *block);
        }
    }
    let (page, drawn) = page(&records);
    assert!(page.contains("<h3>Over the time of one trial</h3>"));
    assert_eq!(page.matches(": this host, block 2</figcaption>").count(), 6);
    let peer = picture(&page, &drawn, "64B, flows 4: the peer, block 2");
    assert_eq!(values(peer, "row"), ["CPU 7 user", "CPU 7 softirq"]);
    let shares = |row: &str| -> Vec<f64> {
        let data = peer["data"].as_array().expect("a list").iter();
        let of_row = data.filter(|one| one["row"] == row);
        of_row.filter_map(|one| one["share"].as_f64()).collect()
    };
    assert_eq!(shares("CPU 7 user"), [0.15, 0.25, 0.35, 0.45, 0.55]);
    assert_eq!(shares("CPU 7 softirq"), [0.2; 5]);
    assert_eq!(peer["data"][1]["from"], 1.0);
    assert_eq!(peer["data"][1]["to"], 2.0);
}

#[test]
fn trials_that_are_too_short_for_a_course_are_said_to_be() {
    let (page, _) = page(&records());
    assert!(page.contains("Not shown: no trial has 4 CPU time samples"));
}

/// A ping-pong through three sizes, slower in the second of two combinations, whose names are made to steer the page.
const SIZES: &str = r#"
title = "Sizes"
workload = "pingpong"
[options]
sizes = ["0B", "64B", "1KiB"]
[[factors]]
name = "<b>way</b>"
levels = [
    { name = "</script><img src=x onerror=alert(1)>", options = { flows = 1 } },
    { name = "2 & more", options = { flows = 2 } },
]
"#;

fn pingpong(slower: u64, block: u64) -> Sample {
    let sizes = [0, 64, 1_024];
    let mut sample = build::sample().build();
    sample.spec.workload = Workload::Pingpong(Pingpong {
        sizes: sizes.map(Bytes::new).to_vec(),
        repetitions: 100,
        volume_bytes: Pingpong::imb_volume(),
        data_check: false,
    });
    let size = |bytes: u64| {
        let mut one_way = Histogram::default();
        // Below 512 ns every time has its own bucket.
        for number in 0..100 {
            let late = if number < 98 { 0 } else { 100 };
            one_way.record(Nanoseconds::new(
                (100 + bytes / 16) * slower + 10 * block + late,
            ));
        }
        SizeRecord {
            bytes: Bytes::new(bytes),
            repetitions: 100,
            elapsed_ns: Nanoseconds::from_millis(1),
            one_way,
            peak_bit_per_s: None,
            alone_ns: None,
        }
    };
    sample.local.operations = Some(Operations {
        completed: 300,
        sizes: sizes.map(size).to_vec(),
        ..Operations::default()
    });
    sample
}

#[test]
fn trials_of_several_sizes_make_curves_with_bands_and_a_table() {
    let experiment =
        linerate_analysis::experiment::definition::parse(SIZES).expect("a sound experiment");
    let mut records = vec![Record::Lab {
        experiment: Box::new(experiment),
        include_way_in: false,
        own_hosts: false,
    }];
    for block in 0..3 {
        for way in 0..2 {
            records.push(Record::Cell {
                block,
                levels: vec![way],
                samples: vec![pingpong(1 + way as u64, block.into())],
                why: None,
            });
        }
    }
    let (page, drawn) = page(&records);
    let times = picture(&page, &drawn, "one way (median), us");
    let names = values(times, "line");
    assert_eq!(names, ["</script><img src=x onerror=alert(1)>", "2 & more"]);
    let data = times["data"].as_array().expect("a list");
    assert_eq!(data.len(), 4, "no payload has no place on the axis");
    let of = |place: usize, key: &str| data[place][key].as_f64().expect("a number");
    assert_eq!((of(0, "at"), of(1, "at")), (64.0, 1_024.0));
    assert_eq!((of(0, "least"), of(0, "most")), (0.104, 0.124));
    let mean = (104.0_f64 * 114.0 * 124.0).powf(1.0 / 3.0) / 1e3;
    assert!((of(0, "middle") / mean - 1.0).abs() < 1e-4);
    for axis in ["x", "y"] {
        let scale = &times["layer"][0]["encoding"][axis]["scale"];
        assert_eq!(scale["type"], "log");
    }
    let rates = picture(&page, &drawn, "rate, Gb/s");
    let least = rates["data"][0]["least"].as_f64().expect("a number");
    let slowest_mean_ns = 124.0 + 2.0;
    assert!((least / (64.0 * 8.0 / slowest_mean_ns) - 1.0).abs() < 1e-3);
    // Three sizes of two combinations, and a head.
    let (_, table) = page
        .split_once("<caption>Figures by size</caption>")
        .expect("a table");
    let (table, _) = table.split_once("</table>").expect("its end");
    assert_eq!(table.matches("<tr ").count(), 7);
    assert!(table.contains("0.11 us") && table.contains("2 &amp; more"));
    assert!(!page.contains("<img src=x") && !page.contains("<b>way</b>"));
}

#[test]
fn many_trials_are_thinned_in_pictures_and_whole_in_their_table() {
    let experiment = EXPERIMENT.to_owned() + "[design]\nrepeats = 200\n";
    let experiment =
        linerate_analysis::experiment::definition::parse(&experiment).expect("a sound experiment");
    let mut records = vec![Record::Lab {
        experiment: Box::new(experiment),
        include_way_in: false,
        own_hosts: false,
    }];
    for block in 0..200 {
        for cell in 0..6 {
            records.push(Record::Cell {
                block,
                levels: vec![cell / 2, cell % 2],
                samples: vec![trial((cell / 2) as u64, 1, u64::from(block) % 7)],
                why: None,
            });
        }
    }
    let (page, drawn) = page(&records);
    assert!(page.contains("All 1200 trials"));
    let of_all: usize = drawn.iter().map(|one| one.to_string().len()).sum();
    assert!(of_all < 400_000, "{of_all} bytes are drawn");
    let here = picture(&page, &drawn, "This host");
    // A column for each combination.
    assert_eq!(here["data"].as_array().expect("a list").len(), 4 * 6);
}

#[test]
fn the_page_of_tcp_against_rdma_has_the_seven_graphs_of_its_source() {
    let (page, drawn) = page(&made_up::tcp_vs_rdma());
    let words = [
        "rate",
        "user-local",
        "user-peer",
        "system-local",
        "system-peer",
    ];
    for word in words {
        for factor in ["buffer", "pairs"] {
            let heading = format!(">By {factor}: {word}</h2>");
            let at = page
                .find(&heading)
                .unwrap_or_else(|| panic!("no {heading}"));
            // The pictures come before the tables of effects.
            let effects = page.find("<h2 id=\"effects-1\">").expect("effects");
            assert!(at < effects, "{heading}");
        }
    }
    // With and without work, a line for each transport and number of pairs.
    for title in ["work no", "work yes"] {
        let curves = picture(&page, &drawn, &format!("{title}</figcaption>"));
        assert_eq!(curves["layer"][0]["encoding"]["x"]["scale"]["type"], "log");
        assert_eq!(curves["data"].as_array().expect("points").len(), 2 * 4 * 3);
    }
    assert!(page.contains(">By buffer: work yes less no</h2>"));
    let (_, overhead) = page
        .split_once(">By buffer: work yes less no</h2>")
        .expect("the overhead");
    let (_, index) = overhead.split_once("data-chart=\"").expect("a picture");
    let (index, _) = index.split_once('"').expect("to its end");
    let overhead = &drawn[index.parse::<usize>().expect("a number")];
    let points = overhead["data"].as_array().expect("points");
    assert_eq!(points.len(), 2 * 4 * 3);
    for point in points {
        let of = |key: &str| point[key].as_f64().expect("a number");
        assert!(of("low") < 0.2 && 0.2 < of("high"), "{point}");
        assert!((of("mean") - 0.198).abs() < 0.001, "{point}");
    }
    assert!(page.contains("id=\"difference\"") && page.contains("work yes minus work no"));
    // Published figures of the source next to them, also of the difference.
    assert!(page.contains("0.1420 s/GB") && page.contains("0.00024 s/GB"));
}

#[test]
fn a_system_time_of_0_is_a_mean_that_is_shown_and_effects_on_it_are_left_out_with_the_cause() {
    let (page, drawn) = page(&made_up::tcp_vs_rdma());
    let means = picture(&page, &drawn, "system-local of each combination");
    let texts = values(means, "text");
    assert!(texts.iter().any(|text| *text == "0"), "{texts:?}");
    assert!(page.contains("Arithmetic means of the trials.") && page.contains(">0 s/GB<"));
    assert!(page.contains("24 effects omitted: 72 of 144 trials have a system-local of 0"));
    let (said, _) = page.split_once("<script").expect("the data follows");
    assert!(!said.contains("NaN") && !said.contains("inf s/GB"));
}
