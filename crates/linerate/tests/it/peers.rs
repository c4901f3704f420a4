//! Peers that are not there, are not linerate, have another version, or die: each a clear message
//! and its documented exit code, both hosts as before, and what was recorded kept.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use crate::job::{Job, linerate, run};
use crate::lab::{Lab, assert_same, text};
use crate::watch::Watch;

/// An agent of another protocol: it reads the greeting and answers with its own.
const OTHER_PROTOCOL: &str =
    r#"exec:read line; echo '{"hello":{"protocol":99,"version":"9.9.9","addresses":[]}}'"#;
/// One that refuses our protocol, as an older agent does.
const REFUSES: &str = r#"exec:read line; echo '{"failed":{"kind":"version","message":"this agent (linerate 0.0.1) speaks 0"}}'"#;

#[test]
fn a_peer_that_is_no_linerate_of_this_version_ends_with_its_code_and_says_why() {
    let table: [(&str, i32, &[&str]); 9] = [
        ("netns:no-such-host", 20, &["no-such-host", "ip netns list"]),
        ("exec:false", 20, &["exit code 1", "before it answered"]),
        ("exec:cat", 20, &["invalid response"]),
        (
            "exec:echo Welcome; cat",
            20,
            &["invalid response", "Welcome", "print nothing"],
        ),
        (
            "exec:exec >&2; echo no such container; exit 3",
            20,
            &["exit code 3", "no such container"],
        ),
        (
            "exec:no-such-program-of-ours agent --stdio",
            20,
            &["exit code 127"],
        ),
        (OTHER_PROTOCOL, 20, &["9.9.9", "protocol 99"]),
        (REFUSES, 20, &["speaks 0"]),
        ("exec:kill -9 $$", 20, &["was killed"]),
    ];
    let state = tempfile::tempdir().expect("a temporary folder");
    for (peer, code, words) in table {
        for command in [&["measure", "stream"][..], &["prove"]] {
            let fixed = ["--state", text(state.path())];
            let done = run(linerate(&[&fixed, command, &[peer]].concat())).expect_code(code);
            for word in words {
                assert!(
                    done.err.contains(word),
                    "{peer}: no {word:?} in {}",
                    done.err
                );
            }
            assert_eq!(done.out, "", "{peer}: data without a measurement");
        }
    }
    assert!(!state.path().join("runs").exists(), "a run without a trial");
}

#[test]
fn without_ssh_an_ssh_peer_names_the_package() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let mut command = linerate(&[
        "--state",
        text(empty.path()),
        "measure",
        "stream",
        "ssh://nobody@nowhere",
    ]);
    command.env("PATH", empty.path());
    let done = run(command).expect_code(22);
    assert!(done.err.contains("not installed"), "{}", done.err);
    assert!(done.err.contains("openssh-client"), "{}", done.err);
}

/// An `ssh` of our own in the search path: what it does is `script`.
fn with_ssh(script: &str, arguments: &[&str]) -> crate::job::Done {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("ssh");
    crate::job::script(&file, script);
    let mut command = linerate(&["--state", text(folder.path())]);
    command.args(arguments);
    let path = std::env::var("PATH").expect("a search path");
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    run(command)
}

#[test]
fn a_far_end_without_linerate_is_told_from_one_that_cannot_be_reached() {
    let measure = ["measure", "stream", "ssh://me@apricot:2222"];
    let done = with_ssh("echo 'sh: linerate: not found' >&2; exit 127", &measure).expect_code(20);
    assert!(
        done.err.contains("no `linerate` in PATH on"),
        "{}",
        done.err
    );
    assert!(done.err.contains("--push"), "{}", done.err);
    let refused = "echo 'Connection refused' >&2; exit 255";
    let done = with_ssh(refused, &measure).expect_code(20);
    assert!(
        done.err.contains("cannot reach ssh://me@apricot:2222"),
        "{}",
        done.err
    );
    assert!(done.err.contains("Connection refused"), "{}", done.err);
    assert!(done.err.contains("tls://host[:port]"), "{}", done.err);
    let full = "echo 'No space left on device' >&2; exit 1";
    let done = with_ssh(full, &[&measure[..], &["--push"]].concat()).expect_code(20);
    assert!(
        done.err.contains("cannot copy linerate to me@apricot"),
        "{}",
        done.err
    );
    assert!(done.err.contains("No space left"), "{}", done.err);
}

/// Kills the agent of a running `prove` at the `moment`-th event; returns how it ended.
#[track_caller]
fn agent_killed(lab: &Lab, run: &str, moment: usize) -> crate::job::Done {
    let out = lab.path(run);
    let watch = Watch::new(&out, &lab.state());
    let job = Job::start(lab.linerate(&[
        "prove",
        "netns:far",
        "--undo",
        "--trials",
        "3",
        "--time",
        "0.2",
        "--seed",
        "5",
        "--out",
        text(&out),
    ]));
    assert_eq!(
        watch.wait(moment, &job.ending()),
        moment,
        "it was over too soon"
    );
    let family = job.family();
    let agent = family
        .iter()
        .find(|(_, words)| words.contains("agent --stdio"));
    let (agent, _) = agent.unwrap_or_else(|| panic!("no agent in {family:?}"));
    kill_process(*agent, Signal::KILL).expect("it was alive a moment ago");
    job.end()
}

#[test]
fn a_peer_that_dies_in_mid_trial_ends_with_20_and_keeps_the_run() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", crate::prove::NO_SEGMENTATION);
    let before = lab.dump();
    // After the header, the hosts and some trials; nothing is changed yet.
    let done = agent_killed(&lab, "run", 9).expect_code(20);
    assert!(done.err.contains("was killed"), "{}", done.err);
    assert_same(&lab, &before, "after the agent was killed");
    let report = lab.run(&["--format", "json", "report", text(&lab.path("run"))]);
    let document = crate::fitting(&report.expect_code(0).out);
    assert_eq!(document["restored"], true);
    let records = fs::read_to_string(lab.path("run").join("records.jsonl")).expect("kept");
    assert!(
        records.contains("\"stopped\""),
        "the reason is not in the record"
    );
}

#[test]
fn a_peer_that_dies_while_it_is_changed_is_doubted_and_recovered() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", "sysctl -qw net.ipv4.tcp_wmem='4096 16384 16384'");
    lab.shell("far", "sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384'");
    let before = lab.dump();
    // In the middle of the experiments; the state of the journal shows whether the remote end is changed
    // at that time.
    let done = agent_killed(&lab, "run", 30);
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    if status.contains("open") {
        assert_eq!(done.code, Some(31), "{}", done.err);
        assert!(done.err.contains("tune recover"), "{}", done.err);
    } else {
        assert!(
            matches!(done.code, Some(20 | 31)),
            "{:?} {}",
            done.code,
            done.err
        );
    }
    lab.run(&["tune", "recover"]).expect_code(0);
    assert_same(&lab, &before, "after `tune recover`");
}

#[test]
fn a_peer_that_is_lost_at_the_end_is_a_note_after_a_result_and_an_error_in_a_change() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    // What carries the connection fails after the agent's end, as ssh does when its path breaks.
    let (linerate, state) = (crate::LINERATE, lab.state());
    let state = text(&state);
    let peer = format!("exec:ip netns exec far {linerate} --state {state} agent --stdio; exit 255");
    let done = lab
        .run(&["measure", "stream", &peer, "--time", "0.2"])
        .expect_code(0);
    assert!(done.err.contains("done, but exec:"), "{}", done.err);
    assert!(done.out.contains("rate"), "{}", done.out);
    let plan = lab.path("plan.toml");
    let far_only = "[peer.settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n";
    fs::write(&plan, far_only).expect("the lab's folder");
    let done = lab
        .run(&["tune", "apply", "--peer", &peer, "--from", text(&plan)])
        .expect_code(20);
    assert!(done.err.contains("rolled back"), "{}", done.err);
    assert_same(&lab, &before, "after a change whose peer was lost");
}

#[test]
fn a_peer_that_hangs_after_the_commit_does_not_end_the_one_that_waits_for_it() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let (linerate, state, first) = (crate::LINERATE, lab.state(), lab.path("first"));
    // The first to end is that of the check of the path. The other hangs longer than the changes may be unconfirmed.
    let peer = format!(
        "exec:ip netns exec far {linerate} --state {} agent --stdio; mkdir {} 2>/dev/null || exec sleep 300",
        text(&state),
        text(&first)
    );
    let plan = lab.path("plan.toml");
    let both = "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n[peer.settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n";
    fs::write(&plan, both).expect("the lab's folder");
    let words = ["tune", "apply", "--peer", &peer, "--from", text(&plan)];
    let applying = Job::start(lab.linerate(&words));
    applying.wait_for_line(|line| line.starts_with("confirmed by the peer"));
    // From then on there is nothing that its reverter might end it for.
    let family = applying.family();
    let (own, _) = (family
        .iter()
        .find(|(_, words)| words.contains(" tune apply ")))
    .expect("it waits for its peer");
    let reverter = format!("reverter --of {} ", own.as_raw_nonzero());
    assert!(
        family.iter().all(|(_, words)| !words.contains(&reverter)),
        "{family:?}"
    );
    let done = applying.end().expect_code(0);
    assert!(done.err.contains("done, but exec:"), "{}", done.err);
    fs::remove_dir(&first).expect("the first has ended");
    let undo = ["tune", "undo", "--peer", words[3]];
    lab.run(&undo).expect_code(0);
    assert_same(&lab, &before, "after `tune undo`");
}

#[test]
fn a_data_port_that_cannot_be_reached_is_named() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    // What a firewall between the hosts does: control passes, data does not.
    lab.shell("near", "ip route add blackhole 10.77.0.2/32");
    let done = lab.run(&["measure", "stream", "netns:far", "--time", "0.2"]);
    assert!(
        matches!(done.code, Some(20)),
        "{:?} {}",
        done.code,
        done.err
    );
    assert!(done.err.contains("10.77.0.2"), "{}", done.err);
    lab.shell("near", "ip route del blackhole 10.77.0.2/32");
    assert_same(&lab, &before, "after a measurement without a way");
    // An address of nobody here.
    let done = lab
        .run(&["measure", "stream", "netns:far", "--address", "10.77.0.9"])
        .expect_code(23);
    assert!(done.err.contains("10.77.0.9"), "{}", done.err);
}

#[test]
fn a_firewall_that_drops_the_data_is_a_time_out_that_names_the_port() {
    let Some(lab) = Lab::new() else { return };
    // The remote end cannot answer: its way back is closed, so the handshake never ends.
    lab.shell("far", "ip route add blackhole 10.77.0.1/32");
    let done = lab.run(&["measure", "stream", "netns:far", "--time", "0.2"]);
    assert!(
        matches!(done.code, Some(20 | 40)),
        "{:?} {}",
        done.code,
        done.err
    );
    assert!(done.err.contains("10.77.0.2"), "{}", done.err);
}

#[test]
fn two_hosts_without_a_common_subnet_are_told_to_name_the_address() {
    let Some(lab) = Lab::new() else { return };
    lab.shell(
        "far",
        "ip address flush dev far0 && ip address add 10.99.0.2/24 dev far0",
    );
    let done = lab.run(&["measure", "stream", "netns:far"]).expect_code(23);
    assert!(done.err.contains("share no subnet"), "{}", done.err);
    assert!(done.err.contains("--address"), "{}", done.err);
}

#[test]
fn of_several_common_subnets_the_used_one_and_the_others_are_named() {
    let Some(lab) = Lab::new() else { return };
    let words = ["measure", "stream", "netns:far", "--time", "0.2"];
    let done = lab.run(&words).expect_code(0);
    assert!(!done.err.contains("several paths"), "{}", done.err);
    let mut command = lab.outside("sh");
    command.args([
        "-ec",
        "ip -n near link add near1 type veth peer name far1 netns far
        ip -n near address add 10.78.0.1/24 dev near1; ip -n near link set near1 up
        ip -n far address add 10.78.0.2/24 dev far1; ip -n far link set far1 up",
    ]);
    run(command).expect_code(0);
    let done = lab.run(&words).expect_code(0);
    let note = "of several paths this is over near0 to 10.77.0.2; others, for `--address`: 10.78.0.2 over near1";
    assert!(done.err.contains(note), "{}", done.err);
    let done = lab.run(&[&words[..], &["--address", "10.78.0.2"]].concat());
    let done = done.expect_code(0);
    assert!(!done.err.contains("several paths"), "{}", done.err);
}

#[test]
fn the_peer_that_is_waited_for_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gate = folder.path().join("gate");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, mode).expect("a FIFO");
    // It does not answer until the gate is opened.
    let peer = format!("exec:cat {}; exit 3", text(&gate));
    let mut command = linerate(&["--state", text(folder.path()), "measure", "stream", &peer]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut program = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut err = BufReader::new(program.stderr.take().expect("piped"));
    let mut line = String::new();
    err.read_line(&mut line).expect("a line");
    assert_eq!(line, format!("connecting to {peer}...\n"));
    drop(
        fs::File::options()
            .write(true)
            .open(&gate)
            .expect("the gate"),
    );
    let mut rest = String::new();
    err.read_to_string(&mut rest).expect("the error");
    assert_eq!(
        program.wait().expect("our own child").code(),
        Some(20),
        "{rest}"
    );
    assert!(rest.contains("exit code 3"), "{rest}");
}
