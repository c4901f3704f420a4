//! Metrics in the hands of their readers: promtool, the parsers of Python's prometheus_client, node_exporter and
//! Prometheus; and what becomes of an old file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fitting;
use crate::job::{Done, HANGS, Job, linerate, run};
use crate::lab::{Lab, text};

/// Series by their name and labels.
type AllSeries = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP: {program} is not installed");
    }
    found
}

/// A Python that has prometheus_client: Debian's need not be the first one.
fn python() -> Option<&'static str> {
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import prometheus_client.openmetrics.parser"]);
        command.output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("SKIP: prometheus_client of Python is not installed");
    }
    found
}

/// What a program prints of `input`.
#[track_caller]
fn fed(command: &mut Command, input: &str) -> Done {
    let input = input.to_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let writes = thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("our own child");
    writes.join().expect("no panic").expect("it reads all");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done {
        code: output.status.code(),
        signal: None,
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// The series that a parser of prometheus_client reads.
#[track_caller]
fn parsed(python: &str, parser: &str, metrics: &str) -> AllSeries {
    let script = format!(
        "import json, sys
from {parser} import text_string_to_metric_families as families
json.dump([[s.name, s.labels, s.value] for f in families(sys.stdin.read()) for s in f.samples], sys.stdout)"
    );
    let done = fed(Command::new(python).args(["-c", &script]), metrics);
    let all: Vec<(String, BTreeMap<String, String>, f64)> =
        serde_json::from_str(&done.expect_code(0).out).expect("JSON");
    let count = all.len();
    let all: AllSeries = all
        .into_iter()
        .map(|(name, labels, value)| ((name, labels), value))
        .collect();
    assert_eq!(all.len(), count, "a series comes twice");
    all
}

/// The only value of a metric that has these labels.
#[track_caller]
fn value(all: &AllSeries, metric: &str, labels: &[(&str, &str)]) -> f64 {
    let mut found = all.iter().filter(|((name, own), _)| {
        name == metric
            && labels
                .iter()
                .all(|(key, value)| own.get(*key).is_some_and(|own| own == value))
    });
    let one = found
        .next()
        .unwrap_or_else(|| panic!("no {metric} {labels:?} in {all:#?}"));
    assert!(
        found.next().is_none(),
        "{metric} {labels:?} is not one series"
    );
    *one.1
}

/// Compares such a value with a figure of a document; the texts of equal numbers are equal.
#[track_caller]
fn assert_value(all: &AllSeries, metric: &str, labels: &[(&str, &str)], expected: &Value) {
    let expected = expected.as_f64();
    let expected = expected.unwrap_or_else(|| panic!("{metric}: no figure to compare with"));
    let found = value(all, metric, labels);
    assert_eq!(
        found.to_string(),
        expected.to_string(),
        "{metric} {labels:?}"
    );
}

#[track_caller]
fn assert_clean(metrics: &str) {
    let done = fed(Command::new("promtool").args(["check", "metrics"]), metrics);
    assert_eq!(
        (done.code, done.out.as_str(), done.err.as_str()),
        (Some(0), "", ""),
        "{metrics}"
    );
}

/// Runs linerate with a file of metrics.
#[track_caller]
fn run_with_file(lab: &Lab, words: &str, file: &Path) -> Done {
    let mut all: Vec<&str> = words.split(' ').collect();
    all.extend(["--metrics-file", text(file)]);
    lab.run(&all)
}

/// The series of a command's file and of what it prints as openmetrics, which are the same.
#[track_caller]
fn both_formats(lab: &Lab, python: &str, words: &str) -> AllSeries {
    let file = lab.path("metrics.prom");
    let words = format!("--format openmetrics {words}");
    let printed = run_with_file(lab, &words, &file).expect_code(0).out;
    assert!(printed.ends_with("\n# EOF\n"), "{printed}");
    let printed = parsed(python, "prometheus_client.openmetrics.parser", &printed);
    let written = fs::read_to_string(&file).expect("the file");
    assert_clean(&written);
    assert_eq!(
        printed,
        parsed(python, "prometheus_client.parser", &written),
        "{words}"
    );
    fs::remove_file(&file).expect("our own file");
    printed
}

#[test]
fn every_workload_is_clean_to_promtool_and_both_formats_have_the_same_series() {
    let Some(python) = python().filter(|_| is_here("promtool")) else {
        return;
    };
    let Some(lab) = Lab::new() else { return };
    for (words, metric) in [
        (
            "stream netns:far --flows 2 --bidir",
            "rate_bytes_per_second",
        ),
        ("rr netns:far --rate 500", "operations_per_second"),
        ("http netns:far", "operations_per_second"),
        ("udp netns:far --rate 20Mb/s", "datagram_loss_ratio"),
        (
            "pingpong netns:far --sizes 4B,64KiB --repetitions 30",
            "fit_latency_seconds",
        ),
        ("transfer netns:far --bytes 100KiB", "operations_per_second"),
        (
            "diffusion netns:far --buffer 100KiB --repetitions 20",
            "diffusion_same_grid",
        ),
    ] {
        let all = both_formats(&lab, python, &format!("measure {words} --time 1"));
        let (workload, _) = words.split_once(' ').expect("a workload and its peer");
        let labels = [
            ("workload", workload),
            ("peer", "netns:far"),
            ("nic", "near0"),
        ];
        assert!(
            value(&all, &format!("linerate_measure_{metric}"), &labels) >= 0.0,
            "{words}"
        );
    }
    let doctor = both_formats(&lab, python, "doctor near0 --watch 0 --fail-on never");
    assert!(value(&doctor, "linerate_doctor_rules", &[("nic", "near0")]) > 80.0);
}

#[test]
fn a_file_beside_json_has_the_figures_of_the_document() {
    let Some(python) = python() else { return };
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("stream.prom");
    let document = lab.stream(&["--metrics-file", text(&file)]);
    let read = || {
        parsed(
            python,
            "prometheus_client.parser",
            &fs::read_to_string(&file).expect("the file"),
        )
    };
    let all = read();
    let rate = document["total"]["rate_bit_per_s"]
        .as_f64()
        .expect("a rate");
    assert_value(
        &all,
        "linerate_measure_rate_bytes_per_second",
        &[],
        &json!(rate / 8.0),
    );
    let local = [("side", "local"), ("mode", "system")];
    let system = &document["cpu"]["local"]["system_s"];
    assert_value(&all, "linerate_measure_cpu_seconds", &local, system);
    for flag in document["flags"].as_array().expect("flags") {
        let flag = flag.as_str().expect("a word");
        assert_value(&all, "linerate_measure_flag", &[("flag", flag)], &json!(1));
    }
    // iperf3's document comes from the same trial.
    let iperf3 = "--format iperf3-json measure stream netns:far --time 0.3";
    let done = run_with_file(&lab, iperf3, &file).expect_code(0);
    let document: Value = serde_json::from_str(&done.out).expect("JSON");
    let bytes = &document["end"]["sum_received"]["bytes"];
    assert_value(&read(), "linerate_measure_transferred_bytes", &[], bytes);
}

#[test]
fn a_bound_that_is_violated_is_in_the_file_with_the_trials_that_decided_it() {
    let Some(python) = python() else { return };
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("stream.prom");
    // Without a correlation of the trials the bound is violated, with one it is inconclusive: both are results.
    let words = "measure stream netns:far --time 0.1 --require rate>=9999Tb/s --max-time 10";
    let done = run_with_file(&lab, words, &file);
    assert!(matches!(done.code, Some(11 | 12)), "{}", done.err);
    let written = fs::read_to_string(&file).expect("the file");
    let all = parsed(python, "prometheus_client.parser", &written);
    assert!(value(&all, "linerate_measure_trials", &[]) > 1.0);
    let median = value(&all, "linerate_measure_rate_median_bytes_per_second", &[]);
    if done.code == Some(11) {
        let bound = |end| {
            value(
                &all,
                "linerate_measure_rate_ci_bytes_per_second",
                &[("bound", end)],
            )
        };
        assert!((bound("low")..=bound("high")).contains(&median));
    }
}

#[test]
fn a_proof_has_each_remedy_with_its_effect_and_whether_it_was_kept() {
    let Some(python) = python().filter(|_| is_here("promtool")) else {
        return;
    };
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", crate::prove::NO_SEGMENTATION);
    let (file, run) = (lab.path("prove.prom"), lab.path("run"));
    let words = "--format json prove netns:far --undo --trials 3 --time 0.2 --seed 7 --out";
    let done = run_with_file(&lab, &format!("{words} {}", text(&run)), &file);
    let document = fitting(&done.expect_code(0).out);
    let written = fs::read_to_string(&file).expect("the file");
    assert_clean(&written);
    let all = parsed(python, "prometheus_client.parser", &written);
    let before = [
        ("phase", "before"),
        ("workload", "stream"),
        ("peer", "netns:far"),
    ];
    let rate = document["before"]["rate_bit_per_s"]
        .as_f64()
        .expect("a rate");
    assert_value(
        &all,
        "linerate_prove_rate_bytes_per_second",
        &before,
        &json!(rate / 8.0),
    );
    assert_value(&all, "linerate_prove_restored", &[], &json!(1));
    let remedies = document["remedies"].as_array().expect("remedies").iter();
    let mut tested = 0;
    for remedy in remedies.filter(|remedy| remedy["tried_again"] == false) {
        let word = |key: &str| remedy[key].as_str().expect("a word");
        let labels = [
            ("rule", word("rule")),
            ("side", word("end")),
            ("setting", word("setting")),
        ];
        let kept = u8::from(remedy["kept"] == true);
        assert_value(&all, "linerate_prove_remedy_kept", &labels, &json!(kept));
        let relative = &remedy["effect"]["relative"];
        if relative.is_number() {
            tested += 1;
            assert_value(
                &all,
                "linerate_prove_remedy_effect_ratio",
                &labels,
                relative,
            );
        }
    }
    assert!(tested > 0, "{document:#}");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_after_the_result() {
    let Some(lab) = Lab::new() else { return };
    let missing = lab.path("no such folder");
    let file = missing.join("linerate.prom");
    for words in [
        "doctor --watch 0 --fail-on never",
        "measure stream netns:far --time 0.3",
    ] {
        let done = run_with_file(&lab, words, &file).expect_code(23);
        let err = &done.err;
        assert!(!done.out.is_empty(), "{words} printed no result");
        assert!(
            err.contains(&format!(
                "error: cannot write the metrics to {}",
                file.display()
            )),
            "{err}"
        );
        assert!(
            err.contains(&format!("hint: mkdir -p {}", missing.display())),
            "{err}"
        );
        assert!(!err.contains("was not changed"), "{err}");
    }
}

#[test]
fn every_user_can_read_the_file_whatever_the_umask_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("linerate.prom");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\"", crate::LINERATE]);
    command.args(["doctor", "--watch", "0", "--fail-on", "never"]);
    command.args(["--metrics-file", text(&file)]);
    run(command).expect_code(0);
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
}

#[test]
fn on_a_full_disk_the_old_file_stays_as_it_was() {
    let Some(lab) = Lab::new() else { return };
    let disk = lab.small_disk("disk", "64k");
    let file = disk.join("linerate.prom");
    let doctor = [
        "doctor",
        "--watch",
        "0",
        "--fail-on",
        "never",
        "--metrics-file",
        text(&file),
    ];
    lab.run(&doctor).expect_code(0);
    let old = lab.shell("near", &format!("cat {}", file.display()));
    lab.shell(
        "near",
        &format!("cat /dev/zero > {}/filler || true", disk.display()),
    );
    let done = lab.run(&doctor).expect_code(41);
    assert!(done.err.contains("o space left"), "{}", done.err);
    assert_eq!(lab.shell("near", &format!("cat {}", file.display())), old);
    let left = lab.shell("near", &format!("ls -A {}", disk.display()));
    assert_eq!(left, "filler\nlinerate.prom\n");
}

#[test]
fn a_measurement_that_fails_or_is_interrupted_keeps_the_old_file_and_says_so() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("linerate.prom");
    let kept = |done: &Done| {
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "old\n");
        let note = format!(
            "warning: no metrics of this run: {} was not changed",
            file.display()
        );
        assert!(done.err.contains(&note), "{}", done.err);
    };
    fs::write(&file, "old\n").expect("the lab's folder");
    let done = run_with_file(&lab, "measure stream netns:nobody", &file);
    assert!(done.code.is_some_and(|code| code > 2), "{}", done.err);
    kept(&done);
    let words = "--format openmetrics measure stream netns:far --time 600 --metrics-file";
    let words: Vec<&str> = words.split(' ').chain([text(&file)]).collect();
    let job = Job::start(lab.linerate(&words));
    let before = lab.counter("near", "tx_bytes");
    while lab.counter("near", "tx_bytes") < before + 200_000 && !job.has_ended() {}
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    kept(&done);
    let interrupted =
        |line: &str| line.starts_with("linerate_measure_interrupted{") && line.ends_with(" 1");
    assert!(done.out.lines().any(interrupted), "{}", done.out);
}

/// A server that ends with the test.
struct Server(Child);

impl Server {
    /// Starts it, and waits until it prints `ready`.
    #[track_caller]
    fn start(words: &[&str], ready: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut all = String::new();
        while !all.contains(ready) {
            let read = said.read_line(&mut all).expect("text");
            assert!(read > 0, "{words:?} ended: {all}");
        }
        // Its further output must be drained.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    free.local_addr().expect("bound")
}

/// The body of an answer.
#[track_caller]
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it reads");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("text");
    let (head, body) = all.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(" 200 "), "{path}: {all}");
    body.to_owned()
}

/// Asks Prometheus until a query has a result for this workload, and returns its labels and its value.
#[track_caller]
fn queried(prometheus: SocketAddr, query: &str, workload: &Value) -> (Value, f64) {
    let begun = Instant::now();
    let digit = |number: u8| char::from_digit(number.into(), 16).expect("below 16");
    let encoded: String = query
        .bytes()
        .flat_map(|byte| ['%', digit(byte >> 4), digit(byte & 15)])
        .collect();
    let path = format!("/api/v1/query?query={encoded}");
    while begun.elapsed() < HANGS {
        let body = get(prometheus, &path);
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        let series = answer["data"]["result"].as_array().into_iter().flatten();
        let mut wanted = series.filter(|one| one["metric"]["workload"] == *workload);
        if let Some(one) = wanted.next() {
            let value = one["value"][1].as_str().and_then(|text| text.parse().ok());
            return (one["metric"].clone(), value.expect("a number"));
        }
    }
    panic!("{query} has no result");
}

/// The code blocks of the guide in a language.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/guides/metrics.md");
    let page = fs::read_to_string(page).expect("the page");
    let fence = format!("```{language}\n");
    let mut found = Vec::new();
    let mut rest = page.as_str();
    while let Some((_, block)) = rest.split_once(&fence) {
        let (block, after) = block.split_once("```\n").expect("an end");
        found.push(block.to_owned());
        rest = after;
    }
    found
}

/// The query of the guide that joins a rate and its limit.
fn query_of_the_guide() -> String {
    blocks("promql").concat().replace('\n', " ")
}

#[test]
fn prometheus_scrapes_files_through_node_exporter_and_answers_the_query_of_the_guide() {
    if !is_here("prometheus") || !is_here("prometheus-node-exporter") {
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let folder = lab.path("textfile");
    fs::create_dir(&folder).expect("the lab's folder");
    let file = |name: &str| folder.join(name);
    for (words, name) in [
        ("doctor --watch 0 --fail-on never", "doctor.prom"),
        ("measure stream netns:far --time 0.3", "stream.prom"),
        ("measure rr netns:far --time 0.3", "rr.prom"),
    ] {
        run_with_file(&lab, words, &file(name)).expect_code(0);
    }
    let exporter = free_address();
    let directory = format!("--collector.textfile.directory={}", folder.display());
    let listen = |address: SocketAddr| format!("--web.listen-address={address}");
    let _exporter = Server::start(
        &[
            "prometheus-node-exporter",
            "--collector.disable-defaults",
            "--collector.textfile",
            &directory,
            &listen(exporter),
        ],
        "TLS is disabled",
    );
    let exported = get(exporter, "/metrics");
    assert!(
        exported.contains("\nnode_textfile_scrape_error 0\n"),
        "{exported}"
    );
    for name in ["doctor.prom", "stream.prom", "rr.prom"] {
        let time = format!(
            "node_textfile_mtime_seconds{{file=\"{}\"}}",
            file(name).display()
        );
        assert!(exported.contains(&time), "{exported}");
    }
    let address = free_address();
    let config = lab.path("prometheus.yml");
    let targets = format!(
        "global: {{scrape_interval: 200ms}}\nscrape_configs:\n  - job_name: node\n    static_configs: [{{targets: ['{exporter}']}}]\n"
    );
    fs::write(&config, targets).expect("the lab's folder");
    let store = lab.path("prometheus");
    let _prometheus = Server::start(
        &[
            "prometheus",
            &format!("--config.file={}", config.display()),
            &format!("--storage.tsdb.path={}", store.display()),
            &listen(address),
        ],
        "Server is ready to receive web requests",
    );
    let written = fs::read_to_string(file("stream.prom")).expect("the file");
    let rate = written
        .lines()
        .find(|line| line.starts_with("linerate_measure_rate_bytes_per_second{"))
        .and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .expect("a rate");
    let stream = json!("stream");
    let (labels, scraped) = queried(address, "linerate_measure_rate_bytes_per_second", &stream);
    assert_eq!(scraped.to_string(), rate.to_string());
    assert_eq!(labels["peer"], "netns:far");
    let (labels, joined) = queried(address, &query_of_the_guide(), &stream);
    assert_eq!(joined.to_string(), (rate * 8.0 / 1e9).to_string());
    assert!(labels["limit"].is_string(), "{labels}");
    queried(address, "linerate_doctor_rules", &Value::Null);
}

#[test]
fn the_alerts_of_the_guide_are_rules_to_promtool() {
    if !is_here("promtool") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let rules = blocks("yaml");
    let [rules] = rules.as_slice() else {
        panic!("not one block of rules: {rules:?}");
    };
    let file = folder.path().join("rules.yml");
    fs::write(&file, rules).expect("a folder");
    let mut command = Command::new("promtool");
    command.args(["check", "rules", text(&file)]);
    let done = run(command).expect_code(0);
    assert!(done.out.contains("SUCCESS: 3 rules found"), "{}", done.out);
    // Every metric that they name is one of ours.
    let names = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let page = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/guides/metrics.md"),
    );
    let page = page.expect("the page");
    for name in names.filter(|word| word.starts_with("linerate_") && !word.ends_with('_')) {
        assert!(page.contains(&format!("| `{name}` |")), "no metric {name}");
    }
}

#[test]
fn the_units_of_the_guide_are_ones_that_systemd_takes_and_their_commands_ones_of_linerate() {
    if !is_here("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let units = blocks("ini");
    let [service, timer] = units.as_slice() else {
        panic!("not a service and a timer: {units:?}");
    };
    let place = |name: &str| folder.path().join(name);
    let here = service.replace("/usr/bin/linerate", crate::LINERATE);
    fs::write(place("linerate-metrics.service"), here).expect("a folder");
    fs::write(place("linerate-metrics.timer"), timer).expect("a folder");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", text(&place("linerate-metrics.timer"))]);
    let output = verify.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks at the units of this machine too.
    assert!(!said.contains("linerate-metrics"), "{said}");
    let commands: Vec<&str> = service
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/linerate "))
        .collect();
    assert_eq!(commands.len(), 2, "{service}");
    for command in commands {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        run(linerate(&words)).expect_code(0);
    }
}
