//! `measure stream --preload`: what must be refused, and what is missing. That rsocket carries a stream is shown in
//! the virtual machine (`tests/vm`).

use std::path::Path;

use crate::job::{linerate, run};
use crate::lab::Lab;

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
    let mut command = linerate(&["measure", "stream", "exec:linerate agent --stdio"]);
    command.args(["--preload", "rsocket"]);
    let done = run(command).expect_code(22);
    assert!(done.err.contains("exec:"), "{}", done.err);
}

#[test]
fn a_mover_that_nobody_waits_for_ends() {
    let mut command = linerate(&["--quiet", "mover"]);
    command.stdin(std::process::Stdio::null());
    let done = run(command).expect_code(23);
    assert!(done.err.contains("task"), "{}", done.err);
}

/// Where the library is and no device, it falls back to TCP by itself, and that is no measurement of rsocket.
#[test]
fn a_host_without_rdma_is_not_said_to_have_measured_rsocket() {
    let Some(lab) = Lab::new() else { return };
    if Path::new("/sys/class/infiniband").exists() {
        eprintln!("SKIP: this host has RDMA");
        return;
    }
    let done = lab.run(&[
        "--quiet",
        "measure",
        "stream",
        "netns:far",
        "--preload",
        "rsocket",
        "--time",
        "0.2",
    ]);
    let done = done.expect_code(22);
    assert!(
        done.err.contains("fell back") || done.err.contains("librspreload.so is in none"),
        "{}",
        done.err
    );
    assert_eq!(done.out, "");
}
