//! `measure stream|rr|pingpong --preload`: with a library that bypasses the kernel's TCP (`preload.c`), with those that
//! leave it to the kernel, and what must be refused. That rsocket carries the payload is shown in the virtual machine
//! (`tests/vm`).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::fitting;
use crate::job::{Job, linerate, run};
use crate::lab::{Lab, text};

/// A library that is compiled for a test.
pub(crate) struct Library {
    _folder: TempDir,
    file: PathBuf,
}

impl Library {
    /// `preload.c` with these macros; none if there is no C compiler.
    pub(crate) fn compile(name: &str, macros: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/preload.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o", text(&file)])
            .args(macros.iter().map(|one| format!("-D{one}")))
            .arg(format!("-DHERE=\"{}\"", text(folder.path())))
            .arg(source)
            .output();
        let Ok(done) = compiled else {
            eprintln!("SKIP: there is no cc");
            return None;
        };
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        Some(Self {
            _folder: folder,
            file,
        })
    }

    /// One whose sockets are beside it.
    fn bypass() -> Option<Self> {
        Self::compile("bypass.so", &["FOLDER=HERE"])
    }

    pub(crate) fn path(&self) -> &str {
        text(&self.file)
    }
}

const STREAM: [&str; 6] = [
    "measure",
    "stream",
    "local",
    "--preload",
    "rsocket",
    "--quiet",
];

#[test]
fn what_plain_calls_cannot_do_is_refused() {
    for words in [
        &["--reverse"][..],
        &["--wait", "epoll"],
        &["--cc", "cubic"],
        &["--transport", "verbs"],
        &["--place", "near"],
        &["--ladder"],
        &["--data-check"],
    ] {
        let mut command = linerate(&STREAM);
        command.args(words);
        let done = run(command).expect_code(2);
        assert_eq!(done.out, "", "{words:?}");
    }
    for words in [
        "rr local --depth 2",
        "rr local --reconnect",
        "rr local --rate 1000",
        "rr local --wait spin",
        "rr local --bidir",
        "rr local --transport verbs",
        "rr local --require p99<=1ms",
        "rr local --until-ci 1%",
        "rr local --verbose",
        "rr local --like qperf",
        "rr local --format openmetrics",
        "pingpong local --data-check",
        "pingpong local --memory near",
        "pingpong local --socket-buffer 1MiB",
        "pingpong local --threads 2",
    ] {
        let mut command = linerate(&["--quiet", "measure"]);
        command
            .args(words.split(' '))
            .args(["--preload", "rsocket"]);
        let done = run(command).expect_code(2);
        assert!(
            done.out.is_empty() && done.err.contains("--preload"),
            "{words}: {}",
            done.err
        );
    }
    for workload in ["stream", "rr", "pingpong"] {
        let mut command = linerate(&["measure", workload, "exec:linerate agent --stdio"]);
        command.args(["--preload", "rsocket"]);
        let done = run(command).expect_code(22);
        assert!(done.err.contains("exec:"), "{}", done.err);
    }
}

#[test]
fn a_mover_that_nobody_waits_for_ends() {
    let mut command = linerate(&["--quiet", "mover"]);
    command.stdin(std::process::Stdio::null());
    let done = run(command).expect_code(23);
    assert!(done.err.contains("task"), "{}", done.err);
}

/// Runs a measurement with the library for a moment, and returns its document.
fn measured(lab: &Lab, words: &str, library: &Library) -> Value {
    let words: Vec<&str> = words.split(' ').collect();
    let common = ["--format", "json", "--quiet", "measure"];
    let preload = ["--preload", library.path()];
    let done = lab.run(&[&common[..], &words, &preload].concat());
    fitting(&done.expect_code(0).out)
}

#[test]
fn a_bypass_that_no_counter_shows_is_measured_and_reported_as_neither() {
    let Some(lab) = Lab::new() else { return };
    let Some(library) = Library::bypass() else {
        return;
    };
    for words in [
        "stream netns:far --time 0.2",
        "rr netns:far --time 1 --request 10B --response 2000B --flows 2",
        "pingpong netns:far --sizes 0B,1B,100kB --repetitions 50",
    ] {
        let document = measured(&lab, words, &library);
        assert_eq!(document["library"], library.path());
        let carriers = document["carriers"].as_array().expect("two");
        let of = |index: usize, key: &str| carriers[index][key].clone();
        assert_eq!(
            (of(0, "carrier"), of(1, "carrier")),
            ("tcp".into(), "bypass.so".into())
        );
        assert_eq!(
            (of(0, "carried_by"), of(1, "carried_by")),
            ("kernel".into(), "neither".into()),
            "{words}: {document:#}"
        );
        let count = |index: usize, key: &str| carriers[index]["counters"][key].as_u64();
        let bytes = of(0, "bytes").as_u64();
        assert!(count(0, "kernel_tcp_bytes") >= bytes && count(0, "interface_bytes") >= bytes);
        assert_eq!(count(1, "kernel_tcp_bytes"), None);
        assert!(
            count(1, "interface_bytes") < of(1, "bytes").as_u64(),
            "{document:#}"
        );
        assert_eq!(carriers[1]["counters"]["interface"], "near0");
    }
}

#[test]
fn every_request_and_every_round_trip_has_a_latency_over_tcp_and_with_the_library() {
    let Some(lab) = Lab::new() else { return };
    let Some(library) = Library::bypass() else {
        return;
    };
    let words = "rr netns:far --time 1 --request 10B --response 2000B --flows 2";
    let document = measured(&lab, words, &library);
    assert_eq!(document["request_bytes"], 10);
    for carrier in document["carriers"].as_array().expect("two") {
        let operations = carrier["operations"].as_u64().expect("a count");
        assert!(operations > 0);
        assert_eq!(carrier["latency_ns"]["count"], operations);
        assert_eq!(carrier["bytes"], 10 * operations);
        assert_eq!(carrier["bytes_back"], 2_000 * operations);
    }
    assert!(document["latency_ratio"]["p50"].as_f64() > Some(0.0));
    assert!(document["latency_ratio"]["p99"].as_f64() > Some(0.0));

    let words = "pingpong netns:far --sizes 0B,1B,100kB --repetitions 50 --volume 1MB";
    let document = measured(&lab, words, &library);
    for carrier in document["carriers"].as_array().expect("two") {
        let sizes = carrier["sizes"].as_array().expect("three");
        let rows: Vec<_> = (sizes.iter())
            .map(|size| (size["bytes"].as_u64(), size["repetitions"].as_u64()))
            .collect();
        let expected = [(0, 50), (1, 50), (100_000, 10)];
        assert_eq!(
            rows,
            expected.map(|(bytes, often)| (Some(bytes), Some(often)))
        );
        for size in sizes {
            assert_eq!(size["latency_ns"]["count"], size["repetitions"]);
        }
        assert_eq!(carrier["operations"], 110);
    }
    assert!(document["latency_ratio"].is_null());
}

#[test]
fn the_text_has_both_latencies_their_ratio_and_what_carried_the_payload() {
    let Some(lab) = Lab::new() else { return };
    let Some(library) = Library::bypass() else {
        return;
    };
    let told = |words: &[&str]| {
        let common = ["--quiet", "measure"];
        let preload = ["--preload", library.path()];
        let done = lab.run(&[&common[..], words, &preload].concat());
        done.expect_code(0).out
    };
    let out = told(&["rr", "netns:far", "--time", "0.2"]);
    for wanted in [
        "tcp        p50 ",
        "bypass.so  p50 ",
        "ratio      p50 ",
        "(bypass.so over tcp, one trial of each)",
        "tcp        carried by the kernel's TCP (",
        "bypass.so  accounted for by neither ",
        "near0 ",
    ] {
        assert!(out.contains(wanted), "{wanted:?} in {out}");
    }
    let sizes = ["--sizes", "1B,64KiB", "--repetitions", "20"];
    let out = told(&[&["pingpong", "netns:far"], &sizes[..]].concat());
    for wanted in [
        "tcp p50",
        "bypass.so p99",
        "ratio of p50",
        "       1 B  ",
        "    64 KiB  ",
    ] {
        assert!(out.contains(wanted), "{wanted:?} in {out}");
    }
}

#[test]
fn a_library_that_leaves_the_payload_to_the_kernel_is_no_measurement_of_it() {
    let Some(lab) = Lab::new() else { return };
    let words = [
        "--quiet",
        "measure",
        "rr",
        "netns:far",
        "--time",
        "0.2",
        "--preload",
    ];
    for (name, macros, wanted) in [
        (
            "passes.so",
            &[][..],
            "left 100 % of the bytes to the kernel's TCP\n",
        ),
        (
            "hides.so",
            &["HIDES"],
            "kernel's TCP: its interface near0 carried ",
        ),
    ] {
        let Some(library) = Library::compile(name, macros) else {
            return;
        };
        let done = lab.run(&[&words[..], &[library.path()]].concat());
        let done = done.expect_code(22);
        let why = format!("error: the library {name} left 100 % of the bytes");
        assert!(
            done.err.contains(&why) && done.err.contains(wanted),
            "{}",
            done.err
        );
        assert_eq!(done.out, "");
    }
}

#[test]
fn what_a_host_sends_to_its_own_address_is_counted_by_the_loopback_interface() {
    let Some(lab) = Lab::new() else { return };
    let Some(library) = Library::compile("hides.so", &["HIDES"]) else {
        return;
    };
    let words = ["--quiet", "measure", "stream", "local", "--time", "0.2"];
    let address = ["--address", "10.77.0.1", "--preload", library.path()];
    let done = lab.run(&[&words[..], &address].concat());
    let done = done.expect_code(22);
    assert!(
        done.err.contains("its interface lo carried "),
        "{}",
        done.err
    );
}

#[test]
fn a_library_that_cannot_be_loaded_is_an_error_that_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let no_library = folder.path().join("text.so");
    fs::write(&no_library, "no ELF file").expect("written");
    let missing = folder.path().join("missing.so");
    for (path, code, wanted) in [
        ("libvma.so", 2, "absolute path"),
        ("/tmp/a:b.so", 2, "letters, digits"),
        (text(&missing), 23, "No such file"),
        (text(folder.path()), 23, "is not a regular file"),
        (text(&no_library), 23, "the dynamic linker did not load it"),
    ] {
        for workload in ["stream", "rr", "pingpong"] {
            let mut command = linerate(&["--quiet", "measure", workload, "local"]);
            command.args(["--no-store", "--preload", path, "--time", "0.1"]);
            let done = run(command).expect_code(code);
            assert!(done.err.contains(wanted), "{path}: {}", done.err);
            let is_linkers = code == 23 && path.ends_with("text.so");
            assert_eq!(
                is_linkers,
                done.err.contains("ld.so: object"),
                "{}",
                done.err
            );
            assert_eq!(done.out, "");
        }
    }
}

#[test]
fn root_preloads_no_library_that_other_users_may_write_to() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root trusts fewer files than its own");
        return;
    }
    let Some(library) = Library::bypass() else {
        return;
    };
    fs::set_permissions(&library.file, Permissions::from_mode(0o777)).expect("our own");
    let mut command = linerate(&["--quiet", "measure", "rr", "local", "--no-store"]);
    command.args(["--preload", library.path()]);
    let done = run(command).expect_code(23);
    assert!(
        done.err.contains("other users may write to"),
        "{}",
        done.err
    );
}

#[test]
fn a_mover_that_its_library_kills_or_that_is_killed_is_reported() {
    let Some(lab) = Lab::new() else { return };
    let Some(library) = Library::compile("crashes.so", &["CRASHES"]) else {
        return;
    };
    let words = [
        "--quiet",
        "measure",
        "rr",
        "netns:far",
        "--time",
        "0.1",
        "--preload",
    ];
    let done = lab.run(&[&words[..], &[library.path()]].concat());
    let done = done.expect_code(30);
    assert!(
        done.err.contains("the mover was killed by signal 6"),
        "{}",
        done.err
    );

    let Some(library) = Library::bypass() else {
        return;
    };
    let words = ["measure", "rr", "netns:far", "--time", "600", "--preload"];
    let job = Job::start(lab.linerate(&[&words[..], &[library.path()]].concat()));
    let movers = loop {
        let movers: Vec<_> = (job.family().into_iter())
            .filter(|(_, words)| words.contains(" mover"))
            .collect();
        assert!(!job.has_ended(), "it measures");
        if movers.len() == 2 {
            break movers;
        }
    };
    for (pid, _) in movers {
        // The second may have ended with the first.
        let _ = kill_process(pid, Signal::KILL);
    }
    let done = job.end();
    assert!(done.code.is_some_and(|code| code != 0), "{:?}", done.code);
    assert!(done.err.contains("error: "), "{}", done.err);
    assert_eq!(done.out, "");
}

#[test]
fn both_trials_are_stored_reported_and_compared_by_their_own_figure() {
    let Some(lab) = Lab::new() else { return };
    let Some(library) = Library::bypass() else {
        return;
    };
    for (words, response) in [
        ("rr netns:far --time 0.2", "operations"),
        (
            "pingpong netns:far --sizes 1B,64KiB --repetitions 20",
            "mean",
        ),
    ] {
        for _ in 0..2 {
            measured(&lab, words, &library);
        }
        let report = lab.run(&["--json", "report", "last"]).expect_code(0);
        let document = fitting(&report.out);
        let results = document["results"].as_array().expect("two");
        for (result, label) in results.iter().zip(["tcp", "bypass.so"]) {
            assert_eq!(
                (&result["label"], &result["response"]),
                (&label.into(), &response.into())
            );
            for figure in [response, "p50", "p99"] {
                assert!(
                    result["figures"][figure][0].as_f64() > Some(0.0),
                    "{result:#}"
                );
            }
        }
        let out = lab.run(&["report", "last"]).expect_code(0).out;
        assert!(out.contains("bypass.so"), "{out}");
        // One trial each is too little for a verdict.
        let compared = lab.run(&["compare", "last~1", "last"]).expect_code(12);
        assert!(compared.out.contains("bypass.so"), "{}", compared.out);
    }
}

/// Where the library is and no device, it falls back to TCP by itself, and that is no measurement of rsocket.
#[test]
fn a_host_without_rdma_is_not_said_to_have_measured_rsocket() {
    let Some(lab) = Lab::new() else { return };
    if Path::new("/sys/class/infiniband").exists() {
        eprintln!("SKIP: this host has RDMA");
        return;
    }
    for workload in ["stream", "rr", "pingpong"] {
        let words = ["--quiet", "measure", workload, "netns:far", "--time", "0.2"];
        let done = lab.run(&[&words[..], &["--preload", "rsocket"]].concat());
        let done = done.expect_code(22);
        assert!(
            done.err.contains("fell back") || done.err.contains("librspreload.so is in none"),
            "{}",
            done.err
        );
        assert_eq!(done.out, "");
    }
}
