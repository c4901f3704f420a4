//! `lab` between two real hosts: levels that are made and taken back around each trial, runs that are killed and go
//! on, and two runs held against each other.

use std::path::PathBuf;

use crate::fitting;
use crate::job::Job;
use crate::lab::{Lab, assert_same, text};
use crate::watch::Watch;

/// A rate that is kept exactly, and a setting of the near end.
const PACED: &str = r#"
title = "Pacing and segmentation"
question = "Is what is asked for kept?"
workload = "stream"
response = ["rate", "cpu"]

[options]
time = "0.1"

[[factors]]
name = "pacing"
option = "pacing"
levels = ["200Mbit", "400Mbit"]

[[factors]]
name = "segmentation"
setting = "nic/@/feature/tso"
on = "local"
levels = ["as found", false]

[design]
repeats = 3
"#;

fn file(lab: &Lab, name: &str, content: &str) -> PathBuf {
    let file = lab.path(name);
    std::fs::write(&file, content).expect("the lab's folder");
    file
}

fn words<'a>(file: &'a str, run: &'a str) -> [&'a str; 9] {
    [
        "--format",
        "json",
        "lab",
        "run",
        file,
        "netns:far",
        "--out",
        run,
        "--seed=5",
    ]
}

#[test]
fn an_experiment_tells_what_each_factor_does_and_leaves_both_hosts_as_they_were() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = file(&lab, "paced.toml", PACED);
    let run = lab.path("run");
    let done = lab.run(&words(text(&file), text(&run))).expect_code(0);
    let document = fitting(&done.out);
    assert_same(&lab, &before, "after an experiment");
    assert_eq!(document["complete"], true);
    assert_eq!(document["restored"], true);
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(12));
    let effects = document["responses"][0]["effects"]
        .as_array()
        .expect("effects");
    let pacing = &effects[0];
    assert_eq!(pacing["effect"], "pacing");
    // Twice the pace is twice the rate, whatever the machine does beside it.
    let relative = pacing["relative"].as_f64().expect("a number");
    assert!((0.7..1.4).contains(&relative), "{pacing:#}");
    assert_eq!(pacing["shown"], true);
    // The run tells the same again, in words too.
    let again = lab.run(&["--format", "json", "lab", "show", text(&run)]);
    assert_eq!(
        fitting(&again.expect_code(0).out)["responses"],
        document["responses"]
    );
    let told = lab.run(&["lab", "show", text(&run)]).expect_code(0).out;
    assert!(told.contains("pacing 400Mbit against 200Mbit"), "{told}");
}

#[test]
fn an_experiment_that_was_killed_goes_on_where_its_record_ends() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = file(&lab, "paced.toml", PACED);
    for (number, moment) in [12, 25].into_iter().enumerate() {
        let run = lab.path(&format!("run-{number}"));
        let watch = Watch::new(&run, &lab.state());
        let job = Job::start(lab.linerate(&words(text(&file), text(&run))));
        let seen = watch.wait(moment, &job.ending());
        assert!(seen >= moment, "it ended after {seen} events");
        job.kill();
        lab.run(&["tune", "recover"]).expect_code(0);
        assert_same(&lab, &before, "after a kill and `tune recover`");
        let made = |out: &str| fitting(out)["trials"].as_array().map_or(0, Vec::len);
        let shown = lab.run(&["--format", "json", "lab", "show", text(&run)]);
        let early = made(&shown.expect_code(0).out);
        let done = lab.run(&["--format", "json", "lab", "resume", text(&run)]);
        let done = done.expect_code(0);
        let document = fitting(&done.out);
        assert_eq!(document["complete"], true);
        assert_eq!(made(&done.out), 12, "{early} before");
        assert_same(&lab, &before, "after a run that went on");
    }
}

#[test]
fn two_runs_of_an_experiment_are_held_against_each_other() {
    let Some(lab) = Lab::new() else { return };
    let paced =
        |name: &str, high: &str| {
            let file = file(&lab, name, &PACED.replace("\"400Mbit\"", high).replace(
            "levels = [\"as found\", false]",
            "levels = [{ name = \"a\", settings = {} }, { name = \"b\", settings = {} }]",
        ).replace("setting = \"nic/@/feature/tso\"\non = \"local\"\n", ""));
            let run = lab.path(&format!("{name}-run"));
            lab.run(&words(text(&file), text(&run))).expect_code(0);
            run
        };
    let one = paced(
        "one",
        "{ name = \"fast\", options = { pacing = \"400Mbit\" } }",
    );
    let other = paced(
        "other",
        "{ name = \"fast\", options = { pacing = \"250Mbit\" } }",
    );
    let compare = |before: &PathBuf, after: &PathBuf| {
        lab.run(&[
            "--format",
            "json",
            "compare",
            text(before),
            text(after),
            "--margin",
            "20%",
        ])
    };
    let worse = compare(&one, &other).expect_code(11);
    let document = fitting(&worse.out);
    assert_eq!(document["verdict"], "worse", "{document:#}");
    let better = compare(&other, &one).expect_code(0);
    assert_eq!(fitting(&better.out)["verdict"], "not-worse");
}

#[test]
fn what_an_experiment_cannot_be_is_told_with_its_line() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    for (change, code, words) in [
        (
            ("option = \"pacing\"", "option = \"pace\""),
            23,
            "`pace` is no option of `stream`",
        ),
        (
            ("repeats = 3", "repeats = 1"),
            23,
            "line 22: repeats: 1 would not say",
        ),
        (
            ("repeats = 3", "repeats = 3\nask = [\"pacing*flows\"]"),
            23,
            "there is no factor `flows`",
        ),
        (
            ("nic/@/feature/tso", "nic/@/feature"),
            23,
            "nic/near0/feature",
        ),
    ] {
        let file = file(&lab, "wrong.toml", &PACED.replace(change.0, change.1));
        let run = lab.path("never");
        let done = lab
            .run(&self::words(text(&file), text(&run)))
            .expect_code(code);
        assert!(done.err.contains(words), "{}", done.err);
        assert!(!run.exists(), "{words}");
    }
    assert_same(&lab, &before, "after experiments that cannot be");
}

#[test]
fn an_experiment_without_a_peer_makes_its_own_two_hosts() {
    let Some(lab) = Lab::new() else { return };
    let run = lab.path("alone");
    // Outside of both hosts: it makes others.
    let mut command = lab.outside(crate::LINERATE);
    command.arg("--state").arg(lab.state());
    command.args(["--format", "json", "lab", "run", "vxlan-cost", "--quick"]);
    command.args(["--time", "0.1", "--out", text(&run)]);
    let done = crate::job::run(command).expect_code(0);
    let document = fitting(&done.out);
    assert_eq!(document["complete"], true);
    let path = &document["factors"][0]["levels"];
    assert_eq!(path[0]["skipped"], serde_json::Value::Null);
    let why = path[1]["skipped"].as_str().expect("there is no VXLAN here");
    assert!(why.contains("`tunnel`"), "{why}");
}

#[test]
fn a_run_between_its_own_hosts_that_was_killed_makes_them_again() {
    let Some(lab) = Lab::new() else { return };
    let run = lab.path("alone");
    let linerate = |words: &[&str]| {
        let mut command = lab.outside(crate::LINERATE);
        command.arg("--state").arg(lab.state()).args(words);
        command
    };
    let words = [
        "--format",
        "json",
        "lab",
        "run",
        "vxlan-cost",
        "--quick",
        "--time",
        "0.1",
    ];
    let watch = Watch::new(&run, &lab.state());
    let job = Job::start(linerate(&[&words[..], &["--out", text(&run)]].concat()));
    let seen = watch.wait(8, &job.ending());
    assert!(seen >= 8, "it ended after {seen} events");
    job.kill();
    let done = crate::job::run(linerate(&["--format", "json", "lab", "resume", text(&run)]));
    let document = fitting(&done.expect_code(0).out);
    assert_eq!(document["complete"], true);
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(6));
}
