//! `lab run --url --server`: any program as the server of an experiment, started for each trial and gone after it,
//! however linerate ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job, run};
use crate::lab::{Lab, assert_same, text};

/// Two memory policies and two placements.
const EXPERIMENT: &str = r#"
title = "A server of others"
workload = "http"
response = ["operations", "cpu-op-local"]

[options]
time = "0.3"
flows = 4

[[factors]]
option = "memory"
levels = ["default", "local"]

[[factors]]
option = "place"
levels = ["free", "cpu:0"]

[design]
repeats = 3
"#;

/// Where the server on `near` listens.
const URL: &str = "http://10.77.0.1:8080/";

fn experiment(lab: &Lab) -> String {
    let file = lab.path("server.toml");
    std::fs::write(&file, EXPERIMENT).expect("the lab's folder");
    text(&file).to_owned()
}

/// linerate's own HTTP server as any program.
fn own_server(address: &str) -> String {
    format!("{} agent --http {address}", crate::LINERATE)
}

/// The words of a run on `near`.
fn words<'a>(file: &'a str, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["--format", "json", "lab", "run", file, "--out", out];
    [&fixed, more].concat()
}

fn lab_run(lab: &Lab, name: &str, more: &[&str]) -> Done {
    let (file, out) = (experiment(lab), lab.path(name));
    lab.run(&words(&file, text(&out), more))
}

/// The files of an nginx with two workers, and the command that starts it.
fn nginx(lab: &Lab) -> String {
    let folder = lab.path("nginx");
    std::fs::create_dir(&folder).expect("the lab's folder");
    let place = text(&folder);
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("{kind}_temp_path {place}/{kind};\n"));
    let temporary = temporary.concat();
    let content = format!(
        "user root;\npid {place}/pid;\nerror_log stderr;\nworker_processes 2;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; keepalive_requests 1000000000;\n{temporary}\
         server {{ listen 8080; location / {{ return 200 \"hello\\n\"; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, content).expect("the lab's folder");
    format!(
        "nginx -e stderr -p {place} -c {} -g \"daemon off;\"",
        text(&file)
    )
}

/// Every trial of a document.
fn trials(document: &Value) -> &Vec<Value> {
    document["trials"].as_array().expect("trials")
}

#[test]
fn nginx_is_measured_under_two_memory_policies_and_compared_run_with_run() {
    let Some(lab) = Lab::new() else { return };
    let version = Command::new("nginx")
        .arg("-v")
        .stderr(Stdio::null())
        .status();
    if version.is_err() {
        eprintln!("SKIP: nginx is not installed");
        return;
    }
    let before = lab.dump();
    let command = nginx(&lab);
    let more = ["netns:far", "--url", URL, "--server", &command];
    let document = fitting(&lab_run(&lab, "one", &more).expect_code(0).out);
    assert_same(&lab, &before, "after a server of others");
    assert_eq!(document["complete"], true);
    assert_eq!(document["server"]["at"], "here");
    assert_eq!(document["server"]["command"], command);
    assert_eq!(trials(&document).len(), 12);
    for trial in trials(&document) {
        let figure = |name: &str| trial["values"][name].as_f64();
        assert!(
            figure("operations").is_some_and(|rate| rate > 0.0),
            "{trial:#}"
        );
    }
    let hits = document["server"]["hits"].as_array().expect("hits");
    assert_eq!(hits.len(), 4, "of each combination");
    for one in hits {
        let steps = one["per_s"].as_array().map(Vec::len);
        assert_eq!(steps, Some(12), "a short trial has twelve steps: {one:#}");
    }
    // nginx removes the file when it ends.
    assert!(!lab.path("nginx/pid").exists(), "nginx was stopped");

    lab_run(&lab, "two", &more).expect_code(0);
    let (one, two) = (lab.path("one"), lab.path("two"));
    let compared = lab.run(&["compare", text(&one), text(&two)]);
    assert!(!compared.err.contains("cannot compare"), "{}", compared.err);
    assert!(compared.out.contains("local, cpu:0"), "{}", compared.out);
    let own = lab_run(&lab, "own", &["netns:far"]).expect_code(0);
    assert_eq!(fitting(&own.out)["server"], Value::Null);
    let own = lab.path("own");
    let refused = lab
        .run(&["compare", text(&one), text(&own)])
        .expect_code(23);
    assert!(
        refused.err.contains("its server is linerate's own"),
        "{}",
        refused.err
    );
}

#[test]
fn a_server_runs_under_the_memory_policy_and_on_the_cpus_of_its_trial() {
    if !std::path::Path::new("/proc/self/numa_maps").exists() {
        eprintln!("SKIP: this kernel has no NUMA policies (CONFIG_NUMA)");
        return;
    }
    for lab in Lab::for_each_channel() {
        let seen = lab.path("seen");
        let command = format!(
            "awk 'NR == 1 {{ print $2 }}' /proc/$$/numa_maps >>{0}; \
             sed -n 's/Cpus_allowed_list:.//p' /proc/$$/status >>{0}; exec {1}",
            text(&seen),
            own_server("10.77.0.1:8080")
        );
        let more = ["netns:far", "--url", URL, "--server", &command];
        lab_run(&lab, "run", &more).expect_code(0);
        let seen = std::fs::read_to_string(&seen).expect("the server wrote it");
        let lines: Vec<&str> = seen.lines().collect();
        let starts: BTreeSet<(&str, bool)> = (lines.chunks(2))
            .map(|start| (start[0], start[1] == "0"))
            .collect();
        // A machine with one CPU has no other set.
        let mut expected = BTreeSet::from([("default", true), ("local", true)]);
        if online_cpus() > 1 {
            expected.extend([("default", false), ("local", false)]);
        }
        assert_eq!(starts, expected, "{seen}");
    }
}

fn online_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A run whose trials do not end by themselves, its server and a process that the server has detached.
fn running(lab: &Lab, name: &str) -> (Job, [rustix::fd::OwnedFd; 2]) {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let (file, out) = (experiment(lab), lab.path(name));
    let pids = lab.path(&format!("{name}.pids"));
    let pids = text(&pids);
    let command = format!(
        "setsid sleep 1000 & echo $! >{pids}.new; echo $$ >>{pids}.new; mv {pids}.new {pids}; \
         exec {}",
        own_server("10.77.0.1:8080")
    );
    let more = [
        "netns:far",
        "--url",
        URL,
        "--time",
        "1000",
        "--server",
        &command,
    ];
    let job = Job::start(lab.linerate(&words(&file, text(&out), &more)));
    let wait = format!("until [ -e {pids} ]; do :; done; cat {pids}");
    let told = lab.shell("near", &wait);
    let pid = |line: &str| Pid::from_raw(line.parse().expect("a number")).expect("not 0");
    let ends: Vec<_> = (told.lines())
        .map(|line| pidfd_open(pid(line), PidfdFlags::empty()).expect("it lives"))
        .collect();
    (job, ends.try_into().expect("two processes"))
}

#[test]
fn however_linerate_ends_no_process_of_the_server_is_left() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let (job, ends) = running(&lab, &format!("{signal:?}"));
        if signal == Signal::KILL {
            job.kill();
        } else {
            job.send(signal);
            job.end().expect_code(130);
        }
        for end in &ends {
            assert!(
                crate::job::ends_within(end, crate::job::HANGS),
                "{signal:?}"
            );
        }
        assert_same(&lab, &before, "after a signal");
    }
}

#[test]
fn a_server_that_does_not_start_is_named_with_its_own_words() {
    let Some(lab) = Lab::new() else { return };
    for (number, (command, words)) in [
        ("no-such-program", "exited with status 127"),
        (
            "echo the port is 80 >&2; exit 3",
            "exited with status 3: the port is 80",
        ),
        ("kill -9 $$", "was ended by signal 9 and printed nothing"),
    ]
    .into_iter()
    .enumerate()
    {
        let more = ["netns:far", "--url", URL, "--server", command];
        let done = lab_run(&lab, &format!("run{number}"), &more).expect_code(30);
        assert!(done.err.contains("cannot start the server"), "{}", done.err);
        assert!(done.err.contains(words), "{words}: {}", done.err);
    }
}

#[test]
fn a_port_that_another_program_holds_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let holder = serving(&lab, "near", "10.77.0.1:8080");
    let more = ["netns:far", "--url", URL, "--server", "sleep 1000"];
    let done = lab_run(&lab, "run", &more).expect_code(41);
    assert!(
        done.err.contains("already listens on 10.77.0.1:8080"),
        "{}",
        done.err
    );
    holder.send(Signal::INT);
    holder.end().expect_code(0);
}

/// linerate's own HTTP server, running on a host.
fn serving(lab: &Lab, host: &str, address: &str) -> Job {
    let mut command = lab.on(host, crate::LINERATE);
    command.args(["agent", "--http", address]);
    let job = Job::start(command);
    job.wait_for_line(|line| line.starts_with("serving HTTP on "));
    job
}

#[test]
fn a_server_that_ignores_sigterm_is_killed_with_everything_it_started() {
    let mut launcher = Command::new(crate::LINERATE)
        .arg("launcher")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("linerate");
    let mut input = launcher.stdin.take().expect("piped");
    let script = "trap '' TERM; setsid sleep 1000 & echo ready >&2; while :; do sleep 1000; done";
    let job = serde_json::json!({"command": script, "cpus": "", "memory": "default"});
    writeln!(input, "{job}").expect("it reads its job");
    let mut ready = String::new();
    let errors = launcher.stderr.take().expect("piped");
    let mut errors = BufReader::new(errors);
    errors.read_line(&mut ready).expect("the server's words");
    assert_eq!(ready, "ready\n");
    drop(input);
    let mut reports = String::new();
    let mut output = launcher.stdout.take().expect("piped");
    output.read_to_string(&mut reports).expect("reports");
    let last = reports.lines().last().expect("a report");
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(
        last,
        serde_json::json!({"ended": {"code": null, "signal": 9}})
    );
    // The end of its output: no process holds it any more.
    errors.read_to_string(&mut ready).expect("an end");
    assert!(launcher.wait().expect("our own child").success());
}

#[test]
fn a_server_that_runs_already_is_loaded_and_levels_that_need_its_start_are_skipped() {
    let Some(lab) = Lab::new() else { return };
    let server = serving(&lab, "far", "10.77.0.2:8080");
    let url = ["--url", "http://10.77.0.2:8080/"];
    for (name, peer, at) in [
        ("alone", None, "elsewhere"),
        ("peer", Some("netns:far"), "peer"),
    ] {
        let more: Vec<&str> = peer.into_iter().chain(url).collect();
        let document = fitting(&lab_run(&lab, name, &more).expect_code(0).out);
        assert_eq!(document["server"]["at"], at);
        assert_eq!(document["server"]["command"], Value::Null);
        assert_eq!(trials(&document).len(), 3, "one combination, three blocks");
        for factor in document["factors"].as_array().expect("factors") {
            let skipped = &factor["levels"][1]["skipped"];
            let why = skipped.as_str().unwrap_or_default();
            assert!(why.contains("needs `--server`"), "{factor:#}");
        }
        for trial in trials(&document) {
            assert!(trial["values"]["operations"].is_number(), "{trial:#}");
            let flags = trial["flags"].as_array().expect("flags");
            assert!(!flags.contains(&"cut-short".into()), "{trial:#}");
        }
    }
    server.send(Signal::INT);
    server.end().expect_code(0);
}

#[test]
fn a_run_resumes_only_with_the_command_that_its_user_types_again() {
    let Some(lab) = Lab::new() else { return };
    let (job, _) = running(&lab, "run");
    job.send(Signal::INT);
    let stopped = job.end().expect_code(130);
    assert!(stopped.err.contains("--server "), "{}", stopped.err);
    let run = lab.path("run");
    let resume = ["lab", "resume", text(&run)];
    let refused = lab.run(&resume).expect_code(2);
    let words = "commands from stored runs are not executed";
    assert!(refused.err.contains(words), "{}", refused.err);
    let other = [&resume[..], &["--server", "sleep 1000"]].concat();
    let refused = lab.run(&other).expect_code(2);
    assert!(
        refused.err.contains("the run has another"),
        "{}",
        refused.err
    );
}

#[test]
fn a_request_that_no_server_can_meet_is_refused_with_what_to_type() {
    let Some(lab) = Lab::new() else { return };
    let file = experiment(&lab);
    let stream = lab.path("stream.toml");
    let other = EXPERIMENT
        .replace("\"http\"", "\"stream\"")
        .replace("\"cpu-op-local\"", "\"rate\"");
    std::fs::write(&stream, other).expect("the lab's folder");
    let stored = lab.path("stored.toml");
    let with_server = format!(
        "{EXPERIMENT}\n[server]\nurl = \"{URL}\"\naddress = \"10.77.0.1:1\"\nhost = \"h\"\npath = \"/\"\nat = \"here\"\ncommand = \"true\"\n"
    );
    std::fs::write(&stored, with_server).expect("the lab's folder");
    let peer = "netns:far";
    for (words, code, expected) in [
        (vec![&file[..], peer, "--server", "true"], 2, "--url"),
        (
            vec![&file, peer, "--url", "https://10.77.0.1/"],
            23,
            "without TLS",
        ),
        (vec![text(&stream), peer, "--url", URL], 2, "`http` only"),
        (vec![text(&stored), peer], 23, "not a key of a file"),
        (
            vec![&file, peer, "--url", "http://10.77.0.9:8080/x"],
            23,
            "use `--url http://10.77.0.1:8080/x`",
        ),
        (
            vec![
                &file,
                peer,
                "--url",
                "http://10.77.0.2/",
                "--server",
                "true",
            ],
            23,
            "a command on this host only",
        ),
    ] {
        let done = lab.run(&[&["lab", "run"], &words[..]].concat());
        assert_eq!(done.code, Some(code), "{words:?}: {}", done.err);
        assert!(done.err.contains(expected), "{expected}: {}", done.err);
    }
    // A job of a launcher comes from linerate alone.
    let mut launcher = Command::new(crate::LINERATE);
    launcher.arg("launcher");
    run(launcher).expect_code(23);
}
