//! `linerate` without a command: a check of this host on a terminal, help anywhere else.

use std::fs;
use std::process::Stdio;

use crate::experiment::{open_terminal, shown};
use crate::job::{linerate, run};

#[test]
fn on_a_terminal_it_checks_this_host_and_leaves_nothing_behind() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let (screen, terminal) = open_terminal(40, 100);
    let mut command = linerate(&["--state"]);
    command
        .arg(state.path())
        .stdout(terminal)
        .stderr(Stdio::null());
    let (ended, text) = shown(command, screen);
    assert_eq!(ended.code(), Some(0), "{text}");
    let nics = fs::read_dir("/sys/class/net").expect("sysfs is mounted");
    let is_wired =
        |name: &String| fs::exists(format!("/sys/class/net/{name}/device")).is_ok_and(|yes| yes);
    let names = nics
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(is_wired) {
        let line = text.lines().find(|line| line.starts_with(&name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(line.contains("queue") && line.contains("node"), "{line}");
    }
    let nouns = ["no findings", "critical finding", "warning", "note"];
    let is_count = |line: &str| {
        let found = line.split(';').next().unwrap_or_default();
        found
            .split(", ")
            .all(|part| nouns.iter().any(|noun| part.contains(noun)))
    };
    assert!(text.lines().any(is_count), "{text}");
    let is_command = |line: &&str| line.contains("fix: ") || line.contains("see: ");
    assert!(text.lines().filter(is_command).count() <= 3, "{text}");
    assert!(text.contains("next  linerate doctor -v"), "{text}");
    let left = fs::read_dir(state.path()).expect("the folder").count();
    assert_eq!(left, 0, "it wrote into its state directory");
}

#[test]
fn as_json_it_is_the_document_of_the_doctor_and_pictures_need_a_command() {
    let done = run(linerate(&["-J"])).expect_code(0);
    let document: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert!(document["findings"].is_array(), "{document:#}");
    let done = run(linerate(&["--format", "svg"])).expect_code(2);
    assert!(done.err.contains("map"), "{}", done.err);
}

#[test]
fn elsewhere_it_prints_help_and_checks_nothing() {
    let done = run(linerate(&[])).expect_code(2);
    assert!(
        done.err.contains("Usage: linerate") && done.err.contains("Examples:"),
        "{}",
        done.err
    );
    assert_eq!(done.out, "");
}
