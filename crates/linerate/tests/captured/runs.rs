//! A stored run made of captured hosts and built samples: its header, the verdict that is printed of it,
//! and the data of its page fit their schemas.

use std::path::Path;

use linerate_analysis::record::{Header, Record, SCHEMA};
use linerate_model::build;
use linerate_model::finding::Context;
use linerate_model::plan::{Change, End};
use linerate_model::prove::EndChange;
use linerate_model::rules::diagnose;
use linerate_model::sample::Sample;
use linerate_report::ReportData;
use linerate_store::{Log, Run};
use serde_json::Value;

use super::archives::{Edit, archive, host, repository};
use super::documents::{document, fits};
use super::program::{linerate, within};

const WMEM: Edit = Edit::File("proc/sys/net/ipv4/tcp_wmem", Some("4096\t16384\t65536"));

fn trial(mbit: u64) -> Box<Sample> {
    let sample = build::sample().shared_kernel().mbit(mbit);
    Box::new(sample.cpu_share(0.6, 0.4).limited(0.0, 0.8).build())
}

fn header() -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        created_unix_s: 1_800_000_000,
        command: vec![
            "linerate".to_owned(),
            "prove".to_owned(),
            "netns:far".to_owned(),
        ],
        seed: u64::MAX,
        trials: 3,
        peer: "netns:far".to_owned(),
        local_nic: "near0".parse().expect("a name"),
        remote_nic: "far0".parse().expect("a name"),
        address: "10.196.219.76".to_owned(),
        copy_bit_per_s: Some(60_000_000_000),
    }
}

/// A run over the captured veth pair whose local end has a small send buffer.
fn store(folder: &Path) {
    let near = host(WMEM.applied(archive("veth-pair-near")));
    let far = host(archive("veth-pair-far"));
    let header = header();
    let mut run = Run::create(folder, &header).expect("a new run");
    let first = trial(9_000);
    let diagnosis = diagnose(&Context {
        end: End::Local,
        host: &near,
        nic: Some(&header.local_nic),
        other: Some(&far),
        sample: Some(&first),
        watch: None,
        profile: linerate_model::finding::Profile::Throughput,
        owns_shapers: false,
    });
    let mut found = diagnosis.findings.iter();
    let finding = found
        .find(|finding| finding.rule == "tcp-buffer-below-bdp")
        .expect("the small buffer")
        .clone();
    let mut records = vec![Record::Hosts {
        local: Box::new(near),
        remote: Box::new(far),
    }];
    records.extend([9_000, 9_100, 8_900, 9_050, 8_950].map(|mbit| Record::Before(trial(mbit))));
    records.push(Record::Diagnosis(Box::new(diagnosis)));
    records.push(Record::Remedy {
        remedy: 0,
        rule: finding.rule,
        changes: finding
            .remedies
            .iter()
            .map(|remedy| EndChange {
                end: remedy.end,
                change: Change::clone(&remedy.change),
            })
            .collect(),
        level: 0.045,
        beside: Vec::new(),
    });
    for place in 0..10_u64 {
        let (without, mbit) = if place % 2 == 0 {
            (vec![0], 9_000)
        } else {
            (Vec::new(), 18_000)
        };
        records.push(Record::Staged {
            stage: 0,
            place: usize::try_from(place).expect("a small number"),
            without,
            sample: trial(mbit + 10 * place),
        });
    }
    records.push(Record::Decided {
        remedy: 0,
        kept: true,
        note: None,
    });
    records.extend([18_000, 18_100, 17_900].map(|mbit| Record::After(trial(mbit))));
    records.push(Record::Ended {
        restored: true,
        kept: false,
    });
    for record in records {
        run.add(record).expect("a record");
    }
}

#[test]
fn a_stored_run_its_verdict_and_the_data_of_its_page_fit_their_schemas() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    store(&run);
    let header = std::fs::read_to_string(run.join("run.json")).expect("the header");
    document(&header);
    let name = run.to_str().expect("a path in UTF-8");
    let verdict = document(&linerate(&["report", name, "--format", "json"]).with_code(0));
    assert_eq!(verdict["schema"], "linerate.prove/1");
    assert_eq!(verdict["seed"], u64::MAX);
    assert_eq!(verdict["restored"], true);
    let remedy = &verdict["remedies"][0];
    assert_eq!(remedy["setting"], "sysctl/net.ipv4.tcp_wmem");
    assert_eq!(remedy["from"], "4096 16384 65536");
    assert_eq!(remedy["kept"], true);
    assert_eq!(verdict["planted"], serde_json::json!([]));
    let found = verdict["found"].as_array().expect("a list");
    assert!(found.contains(&"tcp-buffer-below-bdp".into()), "{found:?}");
    fits(&data_of(&run.join("report.html")));
}

#[test]
fn every_row_of_a_stored_run_fits_its_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    store(&run);
    let name = run.to_str().expect("a path in UTF-8");
    let text = linerate(&["export", name, "--to", "jsonl"]).with_code(0);
    let rows: Vec<Value> = text.lines().map(document).collect();
    assert_eq!(rows.len(), 5 + 10 + 3);
    assert_eq!(rows[5]["rule"], "tcp-buffer-below-bdp");
    assert_eq!(rows[5]["flags"], "");
    assert_eq!(rows[17]["rate_bit_per_s"], 17.9e9);
    assert_eq!(rows[17]["seed"], u64::MAX);
    let csv = linerate(&["export", name]).with_code(0);
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(csv.starts_with("schema,run,run_kind,created,"), "{csv:.80}");
}

#[test]
fn a_run_that_cannot_be_exported_is_named_and_makes_the_exit_code_23() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    store(&run);
    let name = run.to_str().expect("a path in UTF-8");
    let ended = linerate(&["export", "no-such-run", name]);
    assert!(ended.err.contains("no-such-run"), "{}", ended.err);
    let csv = ended.with_code(23);
    assert_eq!(csv.lines().count(), 1 + 18);
    linerate(&["export", name, "--to", "parquet"]).with_code(2);
}

#[test]
fn the_list_of_stored_runs_fits_its_schema() {
    let state = tempfile::tempdir().expect("a folder");
    let list = |words: &[&str]| {
        let words: Vec<&str> = ["runs", "--format", "json"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        document(&within(state.path(), &words).with_code(0))
    };
    assert_eq!(list(&[])["runs"], serde_json::json!([]));
    store(&state.path().join("runs/one"));
    let broken = state.path().join("runs/broken");
    std::fs::create_dir(&broken).expect("a folder");
    std::fs::write(broken.join("run.json"), "{}").expect("a header of nothing");
    let said = list(&[]);
    assert_eq!(said["runs"][0]["run"], "one");
    assert_eq!(said["runs"][0]["trials"], 18);
    assert_eq!(said["unreadable"][0]["run"], "broken");
    assert_eq!(
        list(&["--since", "2027-01-16"])["runs"],
        serde_json::json!([])
    );
    assert_eq!(list(&["--kind", "prove"])["runs"][0]["run"], "one");
    let text = within(state.path(), &["runs"]).with_code(0);
    assert!(text.contains("2027-01-15 08:00:00"), "{text}");
    for words in [["runs", "--since", "soon"], ["runs", "--flag", "steel"]] {
        linerate(&words).with_code(2);
    }
}

/// The JSON that a page carries for its pictures.
fn data_of(page: &Path) -> Value {
    let page = std::fs::read_to_string(page).expect("the page");
    let start = page.find("{\"schema\":\"linerate.report/1\"");
    let start = start.expect("the data name their schema first");
    let mut values = serde_json::Deserializer::from_str(&page[start..]).into_iter();
    values.next().expect("the data").expect("JSON")
}

#[test]
fn the_sample_report_of_an_earlier_version_fits_its_schema_when_it_is_written_again() {
    let text = std::fs::read_to_string(repository("fixtures/report/sample.json"));
    let data: ReportData = serde_json::from_str(&text.expect("the sample")).expect("report data");
    fits(&serde_json::to_value(data).expect("plain data"));
}
