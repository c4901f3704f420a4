//! Runs of `failover` as they are stored: shown again, listed, exported, compared, ended early.

use rustix::process::Signal;
use serde_json::Value;

use crate::failover::{QUARTER, holed, rules};
use crate::fitting;
use crate::job::Job;
use crate::lab::{Lab, text};

/// Short trials of probes alone, with a failure and its return.
fn trials(lab: &Lab, options: &[&str]) -> Vec<String> {
    let (hole, heal) = (rules(lab, "hole"), rules(lab, "heal"));
    let words = ["--format", "json", "failover", "netns:far", "--time", "2s"];
    let event = ["--workload", "udp", "--do", &hole, "--restore", &heal];
    let all = [&words[..], &event, options].concat();
    all.into_iter().map(str::to_owned).collect()
}

fn run(lab: &Lab, options: &[&str]) -> Value {
    let words = trials(lab, options);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = lab.run(&words);
    // A busy machine may not show the return within a trial: a bound on gaps is inconclusive then.
    assert!(matches!(done.code, Some(0 | 12)), "{done:#?}");
    fitting(&done.out)
}

#[test]
fn a_failover_is_stored_shown_the_same_later_listed_exported_and_compared() {
    let Some(lab) = holed(QUARTER) else { return };
    let options = ["--repeats", "2", "--require", "gap<30s"];
    let document = run(&lab, &[&options[..], &["--name", "before"]].concat());
    assert_eq!(document["interrupted"], false);
    run(&lab, &options);

    let shown = lab.run(&["report", "before", "--format", "json"]);
    assert_eq!(fitting(&shown.expect_code(0).out), document);
    let shown = lab.run(&["report", "before"]).expect_code(0).out;
    let rows = shown
        .lines()
        .filter(|line| line.starts_with("  to the peer udp"));
    let rows: Vec<&str> = rows.collect();
    // A quarter of the flows: lost in some rows, and not in all columns.
    assert!(rows.iter().any(|row| row.contains(['+', '#'])), "{shown}");
    assert!(rows.iter().all(|row| row.contains('.')), "{shown}");
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{shown}");
    let page = lab.path("state/runs/before/report.html");
    let page = std::fs::read_to_string(page).expect("the page");
    for part in [
        "linerate failover netns:far",
        "id=\"timeline\"",
        "class=\"lost\"",
        "failure: `nft -f",
        "affected packets sent from ",
        "throughput down to ",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }

    let listed = lab.run(&["runs", "--kind", "failover", "--format", "json"]);
    let listed = fitting(&listed.expect_code(0).out);
    let runs = listed["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2, "{listed:#}");
    for run in runs {
        assert_eq!(
            (&run["state"], &run["trials"]),
            (&"ended".into(), &2.into())
        );
        let headline = run["headline"].as_str().expect("a headline");
        assert!(headline.starts_with("failure "), "{headline}");
    }

    let table = lab.run(&["export", "before"]).expect_code(0);
    assert_eq!(table.out.lines().count(), 1 + 2, "a row for each trial");
    assert!(table.out.contains("failover-trial"), "{}", table.out);

    // Two failures on each side cannot show whether they take longer.
    let compared = lab.run(&["compare", "before", "last", "--format", "json"]);
    let compared = fitting(&compared.expect_code(12).out);
    assert_eq!(compared["why"], "too few trials");
    let rows = compared["rows"].as_array().expect("a list");
    assert!(
        rows.iter().any(|row| row["trigger"] == "failure"),
        "{compared:#}"
    );
    lab.run(&["measure", "stream", "netns:far", "--time", "100ms"])
        .expect_code(0);
    let mixed = lab.run(&["compare", "before", "last"]);
    assert!(
        mixed
            .expect_code(23)
            .err
            .contains("not a run of `failover`")
    );
}

#[test]
fn nothing_is_stored_with_no_store() {
    let Some(lab) = holed(QUARTER) else { return };
    run(&lab, &["--repeats", "1", "--no-store"]);
    let listed = lab.run(&["runs", "--format", "json"]).expect_code(0);
    assert_eq!(fitting(&listed.out)["runs"], Value::Array(Vec::new()));
}

#[test]
fn a_signal_ends_it_early_with_the_trials_so_far_and_the_failure_is_ended() {
    let Some(lab) = holed(QUARTER) else { return };
    let words = trials(&lab, &["--repeats", "1000"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let job = Job::start(lab.linerate(&words));
    job.wait_for_line(|line| line.starts_with("trial 2 of 1000 done"));
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    assert!(done.err.contains("the result is that of "), "{}", done.err);
    let document = fitting(&done.out);
    assert_eq!(document["interrupted"], true);
    let trials = document["trials"].as_array().expect("a list");
    assert!(trials.len() >= 2);
    assert!(trials.iter().all(|trial| trial["cut_short"] == false));
    let shown = lab.run(&["report", "last", "--format", "json"]);
    assert_eq!(fitting(&shown.expect_code(0).out), document);
    let listed = lab.run(&["runs"]).expect_code(0);
    assert!(listed.out.contains("failover (stopped)"), "{}", listed.out);
    let left = lab.shell("near", "nft list chain netdev hole out");
    assert!(!left.contains("drop"), "the failure was not ended: {left}");
}

#[test]
fn a_signal_in_the_only_trial_keeps_what_it_saw_and_runs_the_command_of_the_return() {
    let Some(lab) = holed(QUARTER) else { return };
    let begun = lab.path("begun");
    let cause = format!("{}; touch {}", rules(&lab, "hole"), text(&begun));
    let job = Job::start(lab.linerate(&[
        "--format",
        "json",
        "failover",
        "netns:far",
        "--time",
        "60s",
        "--repeats",
        "1",
        "--workload",
        "udp",
        "--do",
        &cause,
        "--restore",
        &rules(&lab, "heal"),
    ]));
    while !begun.exists() && !job.has_ended() {}
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    let document = fitting(&done.out);
    assert_eq!(document["trials"][0]["cut_short"], true, "{document:#}");
    assert_eq!(document["trials"][0]["events"][1]["trigger"], "return");
    let left = lab.shell("near", "nft list chain netdev hole out");
    assert!(!left.contains("drop"), "the failure was not ended: {left}");
}
