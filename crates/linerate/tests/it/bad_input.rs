//! What people get wrong: each with its documented exit code and a message that names the place.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::job::{Done, linerate, run};
use crate::lab::{Lab, assert_same, text};

/// Arguments, exit code, words of the message.
type Row<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[track_caller]
fn assert_refused(rows: &[Row<'_>]) {
    let state = tempfile::tempdir().expect("a temporary folder");
    for (arguments, code, words) in rows {
        let mut command = linerate(&["--state", text(state.path())]);
        command.args(*arguments);
        let done = run(command);
        assert_eq!(done.code, Some(*code), "{arguments:?}: {}", done.err);
        for word in *words {
            assert!(
                done.err.contains(word),
                "{arguments:?}: no {word:?} in {}",
                done.err
            );
        }
        assert!(
            done.out.is_empty(),
            "{arguments:?} printed data: {}",
            done.out
        );
    }
}

#[test]
fn what_names_no_peer_is_usage_and_shows_the_forms() {
    assert_refused(&[
        (&["measure", "stream", "ftp://x"], 2, &["ftp://x", "ssh://"]),
        (&["measure", "stream", "tls://x:0"], 2, &["1 to 65535"]),
        (
            &["measure", "stream", "tls://x#y"],
            2,
            &["KEY.TOKEN.EXPIRES"],
        ),
        (&["measure", "stream", "netns:a/b"], 2, &["netns:NAME"]),
        (&["measure", "stream", "exec: "], 2, &["exec:COMMAND"]),
        (&["measure", "stream", "-oProxyCommand=x"], 2, &["-o"]),
    ]);
}

#[test]
fn a_wrong_command_line_is_usage_and_names_the_word() {
    assert_refused(&[
        (&[], 2, &["Usage"]),
        (&["fly"], 2, &["fly"]),
        (&["measure", "juggle", "local"], 2, &["juggle"]),
        (
            &["measure", "stream", "local", "--reverse", "--bidir"],
            2,
            &["--bidir"],
        ),
        (
            &["measure", "stream", "local", "--flows", "0"],
            2,
            &["--flows"],
        ),
        (
            &["measure", "stream", "local", "--flows", "10001"],
            2,
            &["10000"],
        ),
        (
            &["measure", "stream", "local", "--place", "0"],
            2,
            &["near", "cpu:"],
        ),
        (
            &["measure", "stream", "local", "--time", "soon"],
            2,
            &["soon", "start with a number", "500ms"],
        ),
        (
            &["measure", "stream", "local", "--time", "0.001"],
            2,
            &["duration", "50 ms"],
        ),
        (
            &["measure", "stream", "local", "--buffer", "0"],
            2,
            &["buffer", "1 B to 1 GiB"],
        ),
        (
            &[
                "measure",
                "stream",
                "local",
                "--cc",
                "a name of many letters",
            ],
            2,
            &["congestion"],
        ),
        (
            &["measure", "stream", "local", "--push"],
            2,
            &["--push", "ssh"],
        ),
        (&["prove", "local", "--trials", "2"], 2, &["--trials", "3"]),
        (&["prove", "local", "--seed", "-1"], 2, &["-1"]),
        (&["doctor", "--role", "speed"], 2, &["throughput"]),
        (&["doctor", "--fail-on", "maybe"], 2, &["never"]),
        (&["ceiling"], 2, &["--speed"]),
        (&["ceiling", "--speed", "fast"], 2, &["fast"]),
        (&["ceiling", "--window", "1MiB"], 2, &["--rtt"]),
        (&["agent"], 2, &["--stdio"]),
        (&["tune", "apply", "--from"], 2, &["--from"]),
    ]);
}

#[test]
fn a_wrong_value_is_refused_with_what_is_wrong_and_what_works() {
    assert_refused(&[
        (
            &["measure", "stream", "local", "-t", "3days"],
            2,
            &["`days`", "min or h"],
        ),
        (
            &["measure", "udp", "local", "-b", "100"],
            2,
            &["no unit", "40Gb/s"],
        ),
        (
            &["measure", "stream", "local", "-l", "4Mb"],
            2,
            &["`Mb`", "MiB"],
        ),
        (
            &["measure", "stream", "local", "-u"],
            2,
            &["'-u'", "measure udp"],
        ),
        (
            &["measure", "stream"],
            2,
            &["<PEER>", "netns:NAME", "exec:COMMAND"],
        ),
        (
            &["measure", "udp", "http://x"],
            2,
            &["`http://`", "[user@]host"],
        ),
        (
            &["tune", "apply", "--deadline", "2.5s"],
            2,
            &["whole seconds"],
        ),
    ]);
}

#[test]
fn a_command_without_metrics_is_usage() {
    assert_refused(&[
        (
            &["map", "--format", "openmetrics"],
            2,
            &["only `doctor`, `measure`, `mesh` and `prove`"],
        ),
        (&["map", "--metrics-file", "x"], 2, &["--metrics-file"]),
        (
            &[
                "measure",
                "stream",
                "local",
                "--ladder",
                "--metrics-file",
                "x",
            ],
            2,
            &["`--ladder` does not support `--metrics-file`"],
        ),
        (
            &[
                "measure",
                "stream",
                "local",
                "--ladder",
                "--format",
                "openmetrics",
            ],
            2,
            &["`--ladder` supports only text and json"],
        ),
    ]);
}

#[test]
fn what_contradicts_verbs_is_usage_before_anybody_is_called() {
    // Nobody has that name: what is refused is refused before a peer is looked for.
    const PEER: &str = "netns:nobody";
    let rows: [(&[&str], &[&str]); 20] = [
        (&["rdma-write", "--service", "ud"], &["UD, of `rdma-write`"]),
        (
            &["rdma-send", "--service", "ud", "--sizes", "8KiB"],
            &["a message of UD", "8 KiB"],
        ),
        (
            &["rdma-send", "--service", "ud", "--connect", "cm"],
            &["the connecting of UD"],
        ),
        (
            &["rdma-read", "--cc", "cubic"],
            &["a congestion control, over verbs"],
        ),
        (
            &["rdma-read", "--window", "1MiB"],
            &["a socket buffer, over verbs"],
        ),
        (
            &["rdma-write", "--wait", "epoll"],
            &["epoll, over verbs", "spin"],
        ),
        (&["rdma-write", "--mtu", "1500"], &["1024, 2048"]),
        (
            &["rdma-write", "--latency", "--bidir"],
            &["both at once, of latency"],
        ),
        (&["rdma-write", "--latency", "--depth", "4"], &["--depth"]),
        (&["rdma-write", "--device", "../x"], &["../x", "mlx5_0"]),
        (&["rdma-atomic", "--sizes", "16B"], &["an atomic operation"]),
        (&["rdma-atomic", "--sweep"], &["does not apply"]),
        (
            &["stream", "--device", "rxe0"],
            &["`--device`", "--transport verbs"],
        ),
        (
            &["stream", "--depth", "4"],
            &["`--depth`", "--transport verbs"],
        ),
        (
            &["stream", "--transport", "verbs", "--send", "zerocopy"],
            &["verbs bypass the kernel"],
        ),
        (
            &["rr", "--transport", "verbs", "--reconnect"],
            &["connections that last"],
        ),
        (&["http", "--transport", "verbs"], &["--transport"]),
        (
            &["stream", "--transport", "verbs", "--ladder"],
            &["`--ladder`", "verbs"],
        ),
        (
            &["stream", "--transport", "verbs", "--format", "iperf3-json"],
            &["verbs support only"],
        ),
        (
            &["stream", "--preload", "rsocket", "--format", "openmetrics"],
            &["`--preload` supports only text and json"],
        ),
    ];
    for (words, said) in rows {
        let mut all = vec!["measure", words[0], PEER];
        all.extend(&words[1..]);
        assert_refused(&[(&all, 2, said)]);
    }
}

#[test]
fn who_does_not_answer_is_an_unreachable_peer_in_every_workload() {
    // Port 1 (tcpmux) has no listener, and a name below `invalid` no address (RFC 2606).
    assert_refused(&[
        (
            &["measure", "stream", "--iperf3", "127.0.0.1:1"],
            20,
            &["127.0.0.1:1"],
        ),
        (
            &["measure", "udp", "--iperf3", "127.0.0.1", "-p", "1"],
            20,
            &["127.0.0.1:1"],
        ),
        (
            &["measure", "http", "http://127.0.0.1:1/"],
            20,
            &["127.0.0.1:1"],
        ),
        (
            &["measure", "stream", "--iperf3", "x.invalid"],
            20,
            &["x.invalid"],
        ),
        (
            &["measure", "http", "http://x.invalid/"],
            20,
            &["x.invalid"],
        ),
        (&["measure", "rr", "netns:nobody"], 20, &["nobody"]),
        (&["measure", "http", "netns:nobody"], 20, &["nobody"]),
        (&["measure", "rdma-write", "netns:nobody"], 20, &["nobody"]),
    ]);
}

#[test]
fn what_is_not_there_is_bad_input_and_named() {
    assert_refused(&[
        (&["map", "nosuch0"], 23, &["nosuch0", "interfaces: "]),
        (&["doctor", "nosuch0"], 23, &["nosuch0"]),
        (&["ceiling", "nosuch0"], 23, &["nosuch0"]),
        (
            &["explain", "no-such-rule"],
            23,
            &["no-such-rule", "explain rules"],
        ),
        (&["explain", "irqs"], 23, &["similar: irq-"]),
        (
            &["explain", "remote numa irqs"],
            23,
            &["similar: irq-remote-numa"],
        ),
        (
            &["report", "/nowhere/run"],
            23,
            &["/nowhere/run", "not a run"],
        ),
        (
            &["map", "--from", "/nowhere/host.lrcap"],
            23,
            &["/nowhere/host.lrcap"],
        ),
        (
            &["tune", "plan", "--from", "/nowhere/plan.toml"],
            23,
            &["/nowhere/plan.toml"],
        ),
    ]);
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/vm-virtio.lrcap")
}

#[test]
fn a_captured_archive_cut_short_anywhere_is_refused_and_never_read_as_a_smaller_host() {
    let whole = fs::read(fixture()).expect("the fixture is in the repository");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("cut.lrcap");
    let lines: Vec<usize> = whole
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(place, _)| place + 1)
        .collect();
    // Between lines, where it looks whole, and in the middle of them.
    let mut cuts = vec![
        0,
        1,
        lines[0],
        lines[1],
        lines[lines.len() / 3],
        lines[lines.len() / 2],
    ];
    cuts.extend([
        lines[lines.len() - 2],
        whole.len() / 7,
        whole.len() / 2,
        whole.len() - 1,
    ]);
    for cut in cuts {
        fs::write(&file, &whole[..cut]).expect("a temporary folder");
        for command in ["map", "doctor"] {
            let done = run(linerate(&[command, "--from", text(&file)]));
            assert_eq!(
                done.code,
                Some(23),
                "{command}, cut at {cut} of {}: {}",
                whole.len(),
                done.err
            );
            assert!(
                done.err.contains("cannot read the captured host"),
                "{}",
                done.err
            );
            assert_eq!(done.out, "");
        }
    }
    fs::write(&file, &whole).expect("a temporary folder");
    let done = run(linerate(&[
        "--format",
        "json",
        "map",
        "--from",
        text(&file),
    ]))
    .expect_code(0);
    crate::fitting(&done.out);
}

#[test]
fn a_plan_that_cannot_be_meant_is_refused_before_anything_is_changed() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let good = "\"sysctl/net.ipv4.tcp_sack\" = 0\n";
    let rows: [(String, i32, &str); 10] = [
        (
            format!("[settings]\n{good}\"sysctl/net.ipv4.tcp_turbo\" = 1\n"),
            22,
            "tcp_turbo",
        ),
        (
            format!("[settings]\n{good}\"nic/near0/feature/warp\" = \"on\"\n"),
            22,
            "warp",
        ),
        (
            format!("[settings]\n{good}\"nic/near0/mtu\" = \"wide\"\n"),
            23,
            "wide",
        ),
        (format!("[settings]\n{good}\"speed\" = 1\n"), 23, "speed"),
        (
            format!("[settings]\n{good}\"sysctl/../../etc/passwd\" = 1\n"),
            23,
            "passwd",
        ),
        (
            format!("[settings]\n{good}\"nic/nosuch0/mtu\" = 1500\n"),
            22,
            "nosuch0",
        ),
        (format!("[setings]\n{good}"), 23, "setings"),
        (
            format!("[settings]\n{good}[peer.settings]\n{good}"),
            23,
            "--peer",
        ),
        ("settings = 3\n".to_owned(), 23, "[settings]"),
        ("[settings\n".to_owned(), 23, "line 1"),
    ];
    let file = lab.path("plan.toml");
    let mut wrong = Vec::new();
    for (plan, code, word) in rows {
        fs::write(&file, &plan).expect("the lab's folder");
        for action in ["plan", "apply"] {
            let done = lab.run(&["tune", action, "--from", text(&file)]);
            if done.code != Some(code) || !done.err.contains(word) {
                let Done {
                    code: found, err, ..
                } = done;
                wrong.push(format!(
                    "{action} {plan}: {code} {word:?} expected, {found:?} {err}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_same(&lab, &before, "after plans that were refused");
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(status.contains("no transactions"), "{status}");
}

#[test]
fn a_state_folder_that_cannot_be_written_is_a_missing_permission() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let disk = lab.small_disk("disk", "64k,ro");
    let plan = lab.path("plan.toml");
    fs::write(&plan, "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n").expect("the lab's folder");
    let rows: [(&[&str], &str); 3] = [
        (
            &["tune", "apply", "--no-confirm", "--from", text(&plan)],
            "undo journal",
        ),
        (&["prove", "netns:far", "--time", "0.1"], "write the run in"),
        (&["demo", "--seed", "1"], "demo-"),
    ];
    for (arguments, word) in rows {
        let mut command = lab.on("near", crate::LINERATE);
        command.args(["--state", text(&disk)]).args(arguments);
        let done = run(command);
        assert_eq!(done.code, Some(21), "{arguments:?}: {}", done.err);
        assert!(
            done.err.contains(word) && done.err.contains(text(&disk)),
            "{}",
            done.err
        );
    }
    assert_same(&lab, &before, "without a state folder");
}

/// A user without any right.
const ORDINARY: u32 = 61_000;

/// linerate as that user, outside of every namespace; none where that user cannot run it.
fn as_user(arguments: &[&str]) -> Option<Command> {
    let command = |arguments: &[&str]| {
        let mut command = linerate(arguments);
        if rustix::process::geteuid().is_root() {
            command.uid(ORDINARY).gid(ORDINARY).current_dir("/");
        }
        command
    };
    let probe = command(&["--version"]).stdout(Stdio::null()).status();
    probe
        .is_ok_and(|status| status.success())
        .then(|| command(arguments))
}

#[test]
fn without_the_right_to_write_a_setting_the_right_is_named_and_nothing_changed() {
    // Where another user gets to: the runner's own temporary folder is closed to others.
    let folder = tempfile::tempdir_in("/tmp").expect("a temporary folder");
    let plan = folder.path().join("plan.toml");
    let sack = || fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").expect("proc is mounted");
    let before = sack();
    let other = u8::from(before.trim() != "1");
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("a temporary folder");
    fs::write(
        &plan,
        format!("[settings]\n\"sysctl/net.ipv4.tcp_sack\" = {other}\n"),
    )
    .expect("a plan");
    if rustix::process::geteuid().is_root() {
        for place in [folder.path(), &state] {
            std::os::unix::fs::chown(place, Some(ORDINARY), None).expect("our own");
        }
    }
    let arguments = [
        "--state",
        text(&state),
        "tune",
        "apply",
        "--no-confirm",
        "--from",
        text(&plan),
    ];
    let Some(command) = as_user(&arguments) else {
        eprintln!("SKIP: an ordinary user cannot run this program here");
        return;
    };
    let done = run(command).expect_code(21);
    assert!(done.err.contains("net.ipv4.tcp_sack"), "{}", done.err);
    assert!(done.err.contains("lacks CAP_"), "{}", done.err);
    assert_eq!(sack(), before);
    let reserved = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if reserved.expect("proc is mounted").trim() == "1024" {
        for server in ["--iperf3", "--http"] {
            let words = ["agent", server, "127.0.0.1:1"];
            let done = run(as_user(&words).expect("as before")).expect_code(21);
            assert!(done.err.contains("CAP_NET_BIND_SERVICE"), "{}", done.err);
        }
    }
}

#[test]
fn packet_steering_is_a_setting_of_the_real_root_alone() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let plan = lab.path("plan.toml");
    fs::write(
        &plan,
        "[settings]\n\"nic/near0/queue/rx-0/rps-cpus\" = \"0\"\n",
    )
    .expect("a plan");
    let done = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&plan)]);
    if lab.is_user() {
        assert_eq!(done.code, Some(21), "{}", done.err);
        assert!(done.err.contains("rps-cpus"), "{}", done.err);
    } else {
        done.expect_code(0);
        let cpus = lab.shell("near", "cat /sys/class/net/near0/queues/rx-0/rps_cpus");
        assert_eq!(cpus.trim().trim_start_matches(['0', ',']), "1");
        lab.run(&["tune", "undo"]).expect_code(0);
    }
    assert_same(&lab, &before, "after packet steering");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let commands: [&[&str]; 6] = [
        &["map"],
        &["--format", "json", "map"],
        &["explain", "rules"],
        &["ceiling", "--speed", "40G"],
        &["completions", "bash"],
        &["--help"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = linerate(arguments);
        let output = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("it starts");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(words, "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn data_that_finds_no_room_is_not_lost_in_silence() {
    for arguments in [&["map"][..], &["completions", "bash"]] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("it is everywhere");
        let mut command = linerate(arguments);
        let output = command
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .expect("it starts");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("standard output"), "{arguments:?}: {words}");
        assert_eq!(output.status.code(), Some(41), "{arguments:?}: {words}");
    }
}
