//! `testbed rxe` where there can be no soft-RoCE: each lack with its exit code and its name. That it works where
//! there can is shown in the virtual machine (`tests/vm`).

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fitting;
use crate::job::{Done, linerate, run};
use crate::lab::text;

/// Whether the kernel could make a device, which no test here may do.
fn skipped() -> bool {
    let is_there = Path::new("/sys/module/rdma_rxe").exists();
    if is_there {
        eprintln!("SKIP: this kernel has rdma_rxe loaded already");
    }
    is_there
}

/// `testbed rxe WORDS` with a replaced `modprobe`, and what is left in its state folder.
fn testbed(modprobe: &str, words: &[&str]) -> (Done, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("modprobe");
    crate::job::script(&program, modprobe);
    let path = std::env::var("PATH").unwrap_or_default();
    let state = folder.path().join("state");
    let mut command: Command = linerate(&["--state", text(&state), "testbed", "rxe"]);
    command
        .args(words)
        .env("PATH", format!("{}:{path}", text(folder.path())));
    let done = run(command);
    let files = fs::read_dir(state).expect("made").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    (
        done,
        names.filter(|name| name != "testbed-rxe.lock").collect(),
    )
}

#[test]
fn a_kernel_without_the_module_is_said_and_nothing_is_left() {
    if skipped() {
        return;
    }
    for words in [&["pair"][..], &["add", "lo"]] {
        let (done, left) = testbed("exit 1", words);
        let done = done.expect_code(22);
        assert!(done.err.contains("has no module rdma_rxe"), "{}", done.err);
        assert_eq!(done.err.trim_end().lines().count(), 1, "{}", done.err);
        assert_eq!(left, [""; 0]);
    }
}

#[test]
fn a_module_that_will_not_load_is_a_right_that_is_missing_or_modprobes_own_words() {
    if skipped() {
        return;
    }
    let refused = "[ \"$1\" = --dry-run ] || { echo could not insert >&2; exit 1; }";
    let (done, left) = testbed(refused, &["pair"]);
    match done.code {
        Some(21) => assert!(done.err.contains("CAP_SYS_MODULE"), "{}", done.err),
        Some(22) => assert!(done.err.contains("could not insert"), "{}", done.err),
        other => panic!("{other:?}: {}", done.err),
    }
    assert_eq!(left, [""; 0]);
}

#[test]
fn an_interface_or_a_device_that_is_not_there_is_bad_input() {
    for (words, told) in [
        (&["add", "nosuch0"][..], "nosuch0"),
        (&["remove", "rxe7"], "rxe7"),
    ] {
        let (done, _) = testbed("exit 1", words);
        let done = done.expect_code(23);
        assert!(done.err.contains(told), "{}", done.err);
    }
    for words in [
        &["remove"][..],
        &["remove", "rxe0", "--all"],
        &["add", "lo", "--name", "rxe%d"],
        &["pair", "--mtu", "100"],
    ] {
        let mut command = linerate(&["testbed", "rxe"]);
        command.args(words);
        run(command).expect_code(2);
    }
}

#[test]
fn where_nothing_was_made_nothing_is_listed_and_nothing_taken_away() {
    for words in [&["list"][..], &["remove", "--all"]] {
        let (done, left) = testbed("exit 1", &[words, &["--format", "json"]].concat());
        let document = fitting(&done.expect_code(0).out);
        assert_eq!(document["devices"], serde_json::json!([]));
        assert_eq!(left, [""; 0]);
    }
}
