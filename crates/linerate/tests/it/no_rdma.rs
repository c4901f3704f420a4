//! Measuring over RDMA where there is none: one sentence that names what is missing, and its exit code.

use std::fs;
use std::process::Command;

use crate::job::{Done, linerate, run};
use crate::lab::text;

/// What is measured over verbs.
const WORKLOADS: [&[&str]; 2] = [
    &["rdma-write", "local"],
    &["stream", "local", "--transport", "verbs"],
];

fn measured(words: &[&str], library: Option<&str>) -> Done {
    let state = tempfile::tempdir().expect("a folder");
    let mut command: Command = linerate(&["--quiet", "--state", text(state.path()), "measure"]);
    command.args(words).args(["--time", "1", "--no-record"]);
    if let Some(library) = library {
        command.env("LINERATE_LIBIBVERBS", library);
    }
    run(command)
}

#[test]
fn a_library_that_is_not_installed_is_named() {
    for words in WORKLOADS {
        let done = measured(words, Some("/nonexistent/libibverbs.so.1")).expect_code(22);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        for word in ["libibverbs.so.1", "rdma-core"] {
            assert!(done.err.contains(word), "no {word} in {}", done.err);
        }
        assert_eq!(done.out, "");
    }
}

#[test]
fn a_host_without_a_device_is_told_how_to_have_one() {
    let devices = fs::read_dir("/sys/class/infiniband");
    if devices.is_ok_and(|mut all| all.next().is_some()) {
        eprintln!("SKIP: this host has an RDMA device");
        return;
    }
    for words in WORKLOADS {
        let done = measured(words, None).expect_code(22);
        if done.err.contains("cannot be loaded") {
            eprintln!("SKIP: libibverbs is not installed");
            return;
        }
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        for word in ["no RDMA device", "rdma_rxe", "linerate testbed rxe"] {
            assert!(done.err.contains(word), "no {word} in {}", done.err);
        }
        assert_eq!(done.out, "");
    }
}
