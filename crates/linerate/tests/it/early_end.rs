//! Ctrl-C while `measure` runs, as real signals to the real program: the first one ends the trial with the result so
//! far, the second one aborts it.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job};
use crate::lab::Lab;

/// Far more than a test takes: a trial that is not ended early hangs.
const LONG: &str = "600";
/// What a trial moves until it is interrupted, far more than two ends exchange before it.
const MOVED: u64 = 200_000;

/// Waits until trials have moved so much data, or have ended.
fn wait_for_data(lab: &Lab, job: &Job, moved: u64) {
    let bytes = || lab.counter("near", "tx_bytes") + lab.counter("near", "rx_bytes");
    let before = bytes();
    while bytes() < before + moved && !job.has_ended() {}
}

/// Runs `measure` with these arguments, and interrupts it once it moves data.
#[track_caller]
fn interrupted(lab: &Lab, words: &str) -> Done {
    interrupted_after(MOVED, lab, words)
}

/// The same once `moved` bytes were moved.
#[track_caller]
fn interrupted_after(moved: u64, lab: &Lab, words: &str) -> Done {
    let words: Vec<&str> = words.split(' ').collect();
    let job = Job::start(lab.linerate(&[&["--format", "json", "measure"], &words[..]].concat()));
    wait_for_data(lab, &job, moved);
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    let last = done.err.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("interrupted: the result is that of ") && !done.err.contains("error"),
        "{words:?}: {}",
        done.err
    );
    done
}

/// Whether a process has a thread of this name.
fn has_thread(pid: Pid, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let names = tasks.into_iter().flatten().flatten();
    let mut names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.any(|one| one.trim() == name)
}

/// Whether the document is that of a part of its trial.
#[track_caller]
fn assert_cut_short(document: &Value, words: &str) {
    assert_eq!(document["interrupted"], true, "{words}");
    let flags = document["flags"].as_array().expect("flags");
    assert!(
        flags.iter().any(|flag| flag == "cut-short"),
        "{words}: {flags:?}"
    );
    for end in ["local", "remote"] {
        let elapsed = document["raw"][end]["elapsed_ns"].as_u64().expect("a time");
        assert!(
            (1..600_000_000_000).contains(&elapsed),
            "{words}: {elapsed}"
        );
    }
}

#[test]
fn ctrl_c_ends_every_workload_early_and_its_document_is_whole() {
    for lab in Lab::for_each_channel() {
        for words in [
            "stream netns:far",
            "stream netns:far --reverse --flows 3",
            "stream netns:far --bidir --flows 2 --wait epoll",
            "stream netns:far --bytes 1TB",
            "stream netns:far --pacing 50Mb/s --data-check",
            "rr netns:far",
            "rr netns:far --rate 5000 --flows 2",
            "rr netns:far --depth 8 --reverse --wait epoll",
            "rr netns:far --reconnect",
            "http netns:far",
            "udp netns:far --rate 50Mb/s",
            "udp netns:far --reverse",
            "pingpong netns:far --sizes 4MiB --repetitions 1000000 --volume 100TB",
            "transfer netns:far --bytes 100KiB",
            "diffusion netns:far --buffer 100KiB --repetitions 100000000",
        ] {
            let done = interrupted(&lab, &format!("{words} --time {LONG}"));
            let document = fitting(&done.out);
            assert_cut_short(&document, words);
        }
    }
}

#[test]
fn the_result_of_an_interrupted_trial_is_that_of_the_time_it_ran() {
    let Some(lab) = Lab::new() else { return };
    let words = format!("stream netns:far --pacing 200Mb/s --time {LONG}");
    let document = fitting(&interrupted_after(50_000_000, &lab, &words).out);
    let rate = document["total"]["rate_bit_per_s"]
        .as_f64()
        .expect("a rate");
    let bytes = document["total"]["bytes"].as_f64().expect("a count");
    let elapsed = document["raw"]["remote"]["elapsed_ns"]
        .as_f64()
        .expect("a time");
    let mean = bytes * 8e9 / elapsed;
    assert!(
        (0.5..2.0).contains(&(rate / mean)),
        "{rate} bit/s, {mean} in the mean"
    );
}

#[test]
fn the_text_of_an_interrupted_trial_says_so() {
    let Some(lab) = Lab::new() else { return };
    let job = Job::start(lab.linerate(&["measure", "stream", "netns:far", "--time", LONG]));
    wait_for_data(&lab, &job, MOVED);
    job.send(Signal::TERM);
    let done = job.end().expect_code(130);
    assert!(done.out.contains("rate  "), "{}", done.out);
    assert!(done.out.contains("cut-short"), "{}", done.out);
    assert!(done.err.contains("\ninterrupted: "), "{}", done.err);
}

#[test]
fn a_requirement_on_an_interrupted_measurement_is_inconclusive() {
    let Some(lab) = Lab::new() else { return };
    let words = format!("rr netns:far --require p99<=10s --time {LONG}");
    let document = fitting(&interrupted(&lab, &words).out);
    assert_eq!(document["requirements"][0]["verdict"], "cannot-tell");
}

#[test]
fn of_repeated_trials_those_before_the_interrupt_are_the_result() {
    let Some(lab) = Lab::new() else { return };
    let command = lab.linerate(&[
        "--format",
        "json",
        "measure",
        "stream",
        "netns:far",
        "--bytes",
        "1MB",
        "--time",
        "1",
        "--until-ci",
        "0.01%",
        "--max-time",
        LONG,
    ]);
    let job = Job::start(command);
    // Then the fifth trial has begun.
    wait_for_data(&lab, &job, 4_500_000);
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    let document = fitting(&done.out);
    assert_eq!(document["interrupted"], true);
    assert_eq!(document["repeats"]["interrupted"], true);
    let trials = document["repeats"]["trials"].as_u64().expect("a count");
    assert!(trials >= 2, "{trials}");
    let results = document["repeats"]["results"].as_array().expect("results");
    assert_eq!(results.len() as u64, trials);
    // The trial that is shown is a whole one.
    let flags = document["flags"].as_array().expect("flags");
    assert!(!flags.iter().any(|flag| flag == "cut-short"), "{flags:?}");
}

#[test]
fn a_comparison_that_is_interrupted_in_its_first_trial_shows_the_part_of_it() {
    let Some(lab) = Lab::new() else { return };
    let words = format!("stream netns:far --ladder --time {LONG}");
    let done = interrupted(&lab, &words);
    let document = fitting(&done.out);
    let trials = document["trials"].as_array().expect("trials");
    assert_eq!(
        (trials.len(), &document["stopped"]),
        (1, &"interrupted".into())
    );
    let flags = trials[0]["raw"]["flags"].as_array().expect("flags");
    assert!(flags.contains(&"cut-short".into()), "{flags:?}");
    assert!(done.err.contains("that of 1 trial, "), "{}", done.err);

    let words = "diffusion netns:far --buffer 100KiB --repetitions 100000000 --overhead";
    let document = fitting(&interrupted(&lab, words).out);
    assert_cut_short(&document, words);
    assert!(document["overhead"].is_null(), "{}", document["overhead"]);
}

#[test]
fn an_interrupted_comparison_with_a_library_shows_the_part_over_tcp() {
    let Some(lab) = Lab::new() else { return };
    for words in [
        "stream netns:far",
        "rr netns:far",
        "pingpong netns:far --sizes 1B --repetitions 10000000 --volume 1TB",
    ] {
        let done = interrupted(&lab, &format!("{words} --preload rsocket --time {LONG}"));
        let document = fitting(&done.out);
        assert_eq!(document["interrupted"], true);
        let carriers = document["carriers"].as_array().expect("carriers");
        assert_eq!(
            (carriers.len(), &carriers[0]["carrier"]),
            (1, &"tcp".into())
        );
        assert!(carriers[0]["bytes"].as_u64() > Some(0), "{}", carriers[0]);
        assert!(document["ratio"].is_null(), "{}", document["ratio"]);
        assert!(document["latency_ratio"].is_null(), "{words}");
        assert!(done.err.contains(" s of tcp"), "{}", done.err);
    }
}

#[test]
fn an_interrupted_comparison_of_pairs_is_that_of_the_whole_ones() {
    let Some(lab) = Lab::new() else { return };
    let words =
        "--format json measure diffusion netns:far --buffer 4KiB --repetitions 20 --overhead 1000";
    let words: Vec<&str> = words.split(' ').collect();
    let job = Job::start(lab.linerate(&words));
    job.wait_for_line(|line| line.starts_with("trial 7 of 2000"));
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    let document = fitting(&done.out);
    assert_eq!(document["interrupted"], true);
    let pairs = document["overhead"]["pairs"].as_u64().expect("a count");
    assert!((3..1_000).contains(&pairs), "{pairs}");
    let low = &document["overhead"]["real_s"]["low"];
    assert_eq!(low.is_null(), pairs < 6, "{pairs} pairs: {low}");
    let flags = document["flags"].as_array().expect("flags");
    assert!(!flags.iter().any(|flag| flag == "cut-short"), "{flags:?}");
    let counted = format!("that of {pairs} pairs of trials");
    assert!(done.err.contains(&counted), "{}", done.err);
}

#[test]
fn a_second_ctrl_c_aborts_and_prints_no_result() {
    let Some(lab) = Lab::new() else { return };
    for words in [
        "stream netns:far --time",
        "stream netns:far --ladder --time",
        "diffusion netns:far --buffer 100KiB --repetitions 100000000 --overhead --time",
    ] {
        assert_aborted_by_two(&lab, words);
    }
}

/// Whether the second Ctrl-C aborts a measurement while the first one waits for the remote end.
#[track_caller]
fn assert_aborted_by_two(lab: &Lab, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let job = Job::start(lab.linerate(&[&["measure"], &words[..], &[LONG]].concat()));
    wait_for_data(lab, &job, MOVED);
    // An agent that is stopped confirms nothing, so the trial goes on.
    let family = job.family();
    let agents: Vec<_> = (family.iter())
        .filter(|(_, words)| words.contains("agent"))
        .map(|(pid, _)| *pid)
        .collect();
    assert!(!agents.is_empty(), "{family:?}");
    let to_agents = |signal| {
        for agent in &agents {
            kill_process(*agent, signal).expect("it lives");
        }
    };
    to_agents(Signal::STOP);
    job.send(Signal::INT);
    job.wait_for_line(|line| line.contains("Ctrl-C again"));
    job.send(Signal::INT);
    // The agent answers again only once the trial is aborted here.
    let measures = |(_, words): &&(Pid, String)| words.contains(" measure ");
    let (pid, _) = family.iter().find(measures).expect("it lives");
    while has_thread(*pid, "linerate-watch") {}
    to_agents(Signal::CONT);
    let done = job.end().expect_code(130);
    assert!(done.err.contains("error: interrupted\n"), "{}", done.err);
    assert_eq!(done.out, "", "{words:?}");
}

#[test]
fn a_second_ctrl_c_aborts_programs_with_a_preloaded_library() {
    let Some(lab) = Lab::new() else { return };
    let words = "measure stream netns:far --preload rsocket --time";
    let words: Vec<&str> = words.split(' ').chain([LONG]).collect();
    let job = Job::start(lab.linerate(&words));
    wait_for_data(&lab, &job, MOVED);
    // A sender that is stopped does not end early.
    let mut movers = 0;
    for (pid, words) in job.family() {
        if words.contains(" mover") {
            kill_process(pid, Signal::STOP).expect("it lives");
            movers += 1;
        }
    }
    assert!(movers >= 2, "{movers}");
    job.send(Signal::INT);
    job.wait_for_line(|line| line.contains("Ctrl-C again"));
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    assert!(done.err.contains("error: interrupted\n"), "{}", done.err);
    assert_eq!(done.out, "");
}

#[test]
fn ctrl_c_ends_a_test_with_an_iperf3_server_early_and_shows_what_it_reports() {
    let Some(lab) = Lab::new() else { return };
    if Command::new("iperf3").arg("--version").output().is_err() {
        eprintln!("SKIP: there is no iperf3");
        return;
    }
    let mut server = lab.on("far", "iperf3");
    let mut server = server
        .args(["-s", "--forceflush"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is here");
    crate::iperf3::wait_for_listening(&mut server);
    for words in [
        "stream",
        "stream --reverse",
        "udp --rate 50Mb/s",
        "udp --rate 50Mb/s --reverse",
    ] {
        let words = format!("{words} --iperf3 10.77.0.2 --time {LONG}");
        let document = fitting(&interrupted(&lab, &words).out);
        assert_eq!(document["interrupted"], true, "{words}");
        let flags = document["flags"].as_array().expect("flags");
        assert!(
            flags.iter().any(|flag| flag == "cut-short"),
            "{words}: {flags:?}"
        );
    }
    let job = Job::start(lab.linerate(&[
        "--format",
        "iperf3-json",
        "measure",
        "stream",
        "--iperf3",
        "10.77.0.2",
        "--time",
        LONG,
    ]));
    wait_for_data(&lab, &job, MOVED);
    job.send(Signal::INT);
    let document: Value = serde_json::from_str(&job.end().expect_code(130).out).expect("JSON");
    assert!(
        document["error"]
            .as_str()
            .is_some_and(|error| error.starts_with("interrupt"))
    );
    assert!(
        document["end"]["sum_received"]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );
    let _ = server.kill();
    let _ = server.wait();
}
