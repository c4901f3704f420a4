//! `measure stream --ladder`: every send and receive mode side by side, the kernel's reports
//! of copies, and what is kept if the ladder is interrupted.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fitting;
use crate::lab::Lab;

const SENDS: [&str; 6] = [
    "write",
    "zerocopy",
    "sendfile",
    "splice",
    "uring",
    "uring-zerocopy",
];
const RECEIVES: [&str; 4] = ["read", "trunc", "zerocopy", "uring"];

/// The ladder to `far` as JSON.
#[track_caller]
fn ladder(lab: &Lab, arguments: &[&str]) -> Value {
    let fixed = ["--format", "json", "measure", "stream", "netns:far"];
    let done = lab.run(&[&fixed[..], &["--ladder"], arguments].concat());
    fitting(&done.expect_code(0).out)
}

fn list<'a>(document: &'a Value, key: &str) -> &'a [Value] {
    document[key].as_array().expect("a list")
}

fn way(one: &Value) -> (&str, &str) {
    let word = |key: &str| one[key].as_str().expect("a word");
    (word("send"), word("receive"))
}

#[track_caller]
fn of_way<'a>(document: &'a Value, send: &str, receive: &str) -> &'a Value {
    let mut ways = list(document, "ways").iter();
    ways.find(|one| way(one) == (send, receive))
        .unwrap_or_else(|| panic!("no way {send}, {receive}"))
}

#[test]
fn every_way_is_measured_or_has_the_reason_and_the_same_seed_makes_the_same_order() {
    let Some(lab) = Lab::new() else { return };
    // An amount, not a time: on a busy machine a short time may pass without a byte.
    let arguments = ["--bytes", "8MiB", "--rounds", "2", "--seed", "5"];
    let document = ladder(&lab, &arguments);
    let mut expected: Vec<(&str, &str)> = SENDS.iter().map(|send| (*send, "read")).collect();
    expected.extend(RECEIVES[1..].iter().map(|receive| ("write", *receive)));
    let ways: Vec<(&str, &str)> = list(&document, "ways").iter().map(way).collect();
    assert_eq!(ways, expected);
    for one in list(&document, "ways") {
        let measured = one["rate_bit_per_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0);
        assert!(measured || one["refused"].is_string(), "{one}");
        assert!(one["refused"].is_string() || one["trials"] == 2, "{one}");
    }
    assert_eq!(of_way(&document, "write", "read")["copy"]["answer"], "made");
    assert!(of_way(&document, "write", "read")["ratio"].is_null());
    let order = |document: &Value| -> Vec<(u64, String)> {
        let trials = list(document, "trials").iter();
        trials
            .map(|trial| {
                let (send, receive) = way(trial);
                let round = trial["round"].as_u64().expect("a number");
                (round, format!("{send}, {receive}"))
            })
            .collect()
    };
    let again = ladder(&lab, &arguments);
    assert_eq!(order(&document), order(&again));
    for trial in list(&document, "trials") {
        let stream = &trial["raw"]["spec"]["workload"]["stream"];
        assert_eq!(way(stream), way(trial), "the record is of another way");
    }
}

#[test]
fn a_send_without_a_copy_over_a_veth_is_a_copy_by_the_kernels_own_account() {
    let Some(lab) = Lab::new() else { return };
    // By bytes: in 0.1 s of a busy machine nothing may have been sent.
    let document = ladder(&lab, &["--bytes", "8MiB", "--rounds", "1"]);
    assert_eq!(document["over_wire"], false);
    for send in ["zerocopy", "uring-zerocopy"] {
        let one = of_way(&document, send, "read");
        if one["refused"].is_string() {
            eprintln!("SKIP: {}", one["refused"]);
            continue;
        }
        assert_eq!(one["copy"]["answer"], "after-all", "{one}");
        let flags = one["flags"].as_array().expect("flags");
        assert!(flags.contains(&"copied-after-all".into()), "{flags:?}");
    }
    for send in ["sendfile", "splice"] {
        assert_eq!(
            of_way(&document, send, "read")["copy"]["answer"],
            "not-told"
        );
    }
}

#[test]
fn three_rounds_give_intervals_and_a_table_that_fits_a_terminal() {
    let Some(lab) = Lab::new() else { return };
    let words = [
        "measure",
        "stream",
        "netns:far",
        "--ladder",
        "--bytes",
        "8MiB",
        "--flows",
        "2",
        "--bidir",
    ];
    let done = lab.run(&words).expect_code(0);
    for line in done.out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let row = |start: &str| {
        let mut lines = done.out.lines();
        lines
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no {start} in\n{}", done.out))
    };
    assert!(row("write, read").contains("copies by design"));
    let sendfile = row("send sendfile");
    assert!(
        sendfile.contains('[') && !sendfile.contains('?') && sendfile.contains("not reported"),
        "{sendfile}"
    );
    assert!(row("receive trunc").contains("discarded"));
    assert!(row("order").contains("3 rounds in random order, seed "));
    assert!(row("note").contains("near0 is virtual"));
}

#[test]
fn a_way_that_cannot_be_waited_for_has_the_reason_and_the_others_go_on() {
    let Some(lab) = Lab::new() else { return };
    // What io_uring carries is not waited for by epoll, whatever the kernel has.
    let document = ladder(&lab, &["--time", "0.1", "--rounds", "1", "--wait", "epoll"]);
    for (send, receive) in [("uring", "read"), ("write", "uring")] {
        let one = of_way(&document, send, receive);
        let reason = one["refused"].as_str().expect("a reason");
        assert!(reason.contains("epoll"), "{reason}");
        assert_eq!(one["trials"], 0);
        assert!(one["rate_bit_per_s"].is_null() && one["copy"].is_null());
    }
    assert_eq!(of_way(&document, "splice", "read")["trials"], 1);
    assert!(document["stopped"].is_null());
}

#[test]
fn an_interrupted_ladder_ends_with_130_and_keeps_what_came_so_far() {
    let Some(lab) = Lab::new() else { return };
    let mut child = lab
        .linerate(&[
            "--format",
            "json",
            "measure",
            "stream",
            "netns:far",
            "--ladder",
            "--time",
            "0.3",
            "--rounds",
            "1000",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut talk = String::new();
    // A rate after a mode means that its trial is over.
    while !talk.lines().any(|line| line.ends_with("b/s")) {
        let read = said.read_line(&mut talk).expect("it talks");
        assert!(read > 0, "it ended before its first trial did: {talk}");
    }
    kill_process(pid.expect("a number"), Signal::INT).expect("our own child");
    let mut out = String::new();
    let mut printed = child.stdout.take().expect("piped");
    printed.read_to_string(&mut out).expect("it prints");
    said.read_to_string(&mut talk).expect("it talks");
    let status = child.wait().expect("our own child");
    assert_eq!(status.code(), Some(130), "{talk}");
    assert!(talk.contains("interrupted"), "{talk}");
    let document = fitting(&out);
    assert!(!list(&document, "trials").is_empty());
    for trial in list(&document, "trials") {
        let flags = trial["raw"]["flags"].as_array().expect("flags");
        assert!(!flags.contains(&"cut-short".into()), "a part: {flags:?}");
    }
    assert_eq!(document["stopped"], "interrupted");
}

#[test]
fn what_makes_no_sense_with_the_ladder_is_a_usage_error() {
    let Some(lab) = Lab::new() else { return };
    for words in [
        &["netns:far", "--ladder", "--send", "splice"][..],
        &["netns:far", "--ladder", "--receive", "trunc"],
        &["netns:far", "--ladder", "--perf"],
        &["netns:far", "--ladder", "--rounds", "0"],
        &["netns:far", "--ladder", "--rounds", "3", "--until-ci", "1%"],
        &["netns:far", "--rounds", "3"],
        &["netns:far", "--seed", "3"],
        &["--iperf3", "127.0.0.1", "--ladder"],
        &["netns:far", "--ladder", "--format", "iperf3-json"],
    ] {
        let done = lab.run(&[&["measure", "stream"], words].concat());
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
        assert_eq!(done.out, "", "{words:?}");
    }
}
