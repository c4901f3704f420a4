//! The contract between `mesh` and whatever starts it: which ranks are refused, and what the others see when a host or the root
//! fails. A loop starts the ranks here, each in a namespace; `mesh_engines` has real launchers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job, linerate, run};
use crate::lab::text;
use crate::mesh::{Mesh, flows_in, observations, records_of, stored_flows};
use crate::preload::Library;

/// A rank of a mesh on the host with its number.
fn rank(mesh: &Mesh, rank: usize, size: usize, options: &[&str]) -> Command {
    let mut command = on(mesh, rank, crate::LINERATE);
    command.arg("--state").arg(mesh.lab.state());
    command.args(["--json", "mesh", "--time", "1s", "--no-retest"]);
    command.args(options);
    command
        .env("LINERATE_RANK", rank.to_string())
        .env("LINERATE_SIZE", size.to_string())
        .env("LINERATE_ROOT_FILE", mesh.lab.path("root"));
    command
}

/// A program on a host.
fn on(mesh: &Mesh, host: usize, program: &str) -> Command {
    let name = mesh.peers[host].trim_start_matches("netns:").to_owned();
    mesh.lab.on(&name, program)
}

/// The pairing line of the root, once it has written it.
#[track_caller]
fn line_of(mesh: &Mesh, root: &Job) -> String {
    loop {
        if let Ok(line) = fs::read_to_string(mesh.lab.path("root")) {
            return line;
        }
        assert!(!root.has_ended(), "the root has ended");
        std::thread::yield_now();
    }
}

/// Waits until something is stored, or the root has ended.
fn wait_for_results(mesh: &Mesh, root: &Job) {
    while stored_flows(&mesh.lab.state()) == 0 && !root.has_ended() {
        std::thread::yield_now();
    }
}

/// The names, states and causes of the hosts of a result.
#[track_caller]
fn hosts(done: &Done) -> Vec<(String, String, String)> {
    let document: Value = fitting(&done.out);
    let word = |host: &Value, key: &str| host[key].as_str().unwrap_or("").to_owned();
    let hosts = document["hosts"].as_array().expect("a list").iter();
    hosts
        .map(|host| (word(host, "name"), word(host, "state"), word(host, "cause")))
        .collect()
}

#[test]
fn variables_that_make_no_rank_are_refused_by_name() {
    let file = ("LINERATE_ROOT_FILE", "/no/such/folder/root");
    for (variables, words) in [
        (&[("LINERATE_RANK", "1"), file][..], "--hosts FILE"),
        (&[("LINERATE_SIZE", "4"), file], "--hosts FILE"),
        (
            &[("LINERATE_RANK", "one"), ("LINERATE_SIZE", "4"), file],
            "LINERATE_RANK is `one`: expected a number",
        ),
        (
            &[("LINERATE_RANK", "1"), ("LINERATE_SIZE", "-4"), file],
            "LINERATE_SIZE is `-4`: expected a number",
        ),
        (
            &[("LINERATE_RANK", "4"), ("LINERATE_SIZE", "4"), file],
            "less than LINERATE_SIZE, which is 4",
        ),
        (
            &[("JOB_COMPLETION_INDEX", "4"), ("LINERATE_SIZE", "4"), file],
            "JOB_COMPLETION_INDEX is `4`",
        ),
        (
            &[("LINERATE_RANK", "0"), ("LINERATE_SIZE", "1"), file],
            "needs at least 2",
        ),
        (
            &[("LINERATE_RANK", "1"), ("LINERATE_SIZE", "4")],
            "cannot find the root",
        ),
        (
            &[
                ("LINERATE_RANK", "1"),
                ("LINERATE_SIZE", "4"),
                ("LINERATE_ROOT", "h1:7000"),
            ],
            "cannot join the mesh",
        ),
    ] {
        let state = tempfile::tempdir().expect("a folder");
        let mut command = linerate(&["--state", text(state.path()), "mesh"]);
        command.envs(variables.iter().copied());
        let done = run(command).expect_code(23);
        assert!(done.err.contains(words), "{variables:?}: {}", done.err);
    }
}

#[test]
fn a_second_rank_0_is_refused_and_a_signal_ends_the_first() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let root = Job::start(rank(&mesh, 0, 2, &[]));
    line_of(&mesh, &root);
    let mut second = rank(&mesh, 1, 2, &[]);
    second.env("LINERATE_RANK", "0");
    let second = run(second).expect_code(23);
    let why = "another process has rank 0, or an earlier mesh was killed";
    assert!(second.err.contains(why), "{}", second.err);
    root.send(Signal::TERM);
    root.end().expect_code(130);
    assert!(!mesh.lab.path("root").exists());
}

#[test]
fn a_rank_with_another_token_is_refused_and_the_mesh_waits_for_the_right_one() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let root = Job::start(rank(&mesh, 0, 2, &[]));
    let line = line_of(&mesh, &root);
    let (address, secret) = line.split_once('#').expect("a pairing line");
    let parts: Vec<&str> = secret.split('.').collect();
    let other = format!("{address}#{}.{}.{}", parts[0], "0".repeat(32), parts[2]);
    let mut stranger = rank(&mesh, 1, 2, &[]);
    stranger.env("LINERATE_ROOT", other);
    let stranger = run(stranger).expect_code(21);
    let why = "the pairing line is wrong, used or expired";
    assert!(stranger.err.contains(why), "{}", stranger.err);
    let hint = "start the root and all ranks together";
    assert!(stranger.err.contains(hint), "{}", stranger.err);
    let right = Job::start(rank(&mesh, 1, 2, &[]));
    let root = root.end().expect_code(12);
    right.end().expect_code(0);
    for (name, state, cause) in hosts(&root) {
        assert_eq!(state, "not-tried", "{name}: {cause}");
    }
    assert_eq!(observations(&mesh.records()).len(), 2);
}

#[test]
fn a_rank_of_another_version_is_unreached_with_both_versions_and_the_others_go_on() {
    // It pairs and opens a session, and its agent says another version than ours.
    const OTHER: &str = r#"set -e
        "$linerate" --state "$state" peers pair "$line" >&2
        at=${line#tls://}; at=${at%%#*}
        mkfifo "$state/up"
        { read request
          echo '{"hello":{"protocol":99,"version":"9.9.9","addresses":[]}}'; cat >/dev/null; } <"$state/up" |
            "$linerate" --state "$state" channel "$at" >"$state/up""#;
    let Some(mesh) = Mesh::add(3, &[]) else {
        return;
    };
    let root = Job::start(rank(&mesh, 0, 3, &[]));
    let line = line_of(&mesh, &root);
    let second = Job::start(rank(&mesh, 1, 3, &[]));
    let mut other = on(&mesh, 2, "sh");
    other.args(["-c", OTHER]);
    other
        .env("linerate", crate::LINERATE)
        .env("line", line)
        .env("state", mesh.lab.path("other"));
    let other = Job::start(other);
    let root = root.end().expect_code(12);
    second.end().expect_code(0);
    let hosts = hosts(&root);
    let refused: Vec<_> = hosts.iter().filter(|host| host.1 == "unreached").collect();
    assert_eq!(refused.len(), 1, "{hosts:?}");
    assert_eq!(refused[0].0, "10.206.0.12");
    assert!(refused[0].2.contains("9.9.9"), "{hosts:?}");
    // Whatever the root closes its session with.
    other.end();
}

#[test]
fn a_rank_that_does_not_join_in_time_is_missing_and_the_others_are_measured() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    // Both join long before that, and the third never does.
    let options = ["--join-timeout", "20s"];
    let other = Job::start(rank(&mesh, 1, 3, &options));
    let root = run(rank(&mesh, 0, 3, &options)).expect_code(12);
    other.end().expect_code(0);
    let hosts = hosts(&root);
    assert_eq!(hosts[2].0, "(missing)");
    assert_eq!(hosts[2].1, "unreached");
    assert!(hosts[2].2.contains("did not join within 20 s"), "{hosts:?}");
    let all = observations(&mesh.records());
    let measured = all.iter().filter(|one| one.2["outcome"] == "measured");
    assert_eq!(measured.count(), 2);
}

#[test]
fn two_ranks_on_one_host_are_refused_and_both_end() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let root = Job::start(rank(&mesh, 0, 2, &[]));
    let mut same = on(&mesh, 0, crate::LINERATE);
    same.arg("--state").arg(mesh.lab.state()).arg("mesh");
    same.env("LINERATE_RANK", "1")
        .env("LINERATE_SIZE", "2")
        .env("LINERATE_ROOT_FILE", mesh.lab.path("root"));
    let same = Job::start(same);
    let root = root.end().expect_code(23);
    assert!(root.err.contains("are the same host"), "{}", root.err);
    same.end();
}

#[test]
fn ranks_without_a_root_end_at_their_deadline_with_its_cause() {
    let state = tempfile::tempdir().expect("a folder");
    let file = state.path().join("root");
    let mut command = linerate(&[
        "--state",
        text(state.path()),
        "mesh",
        "--join-timeout",
        "1s",
    ]);
    command
        .env("LINERATE_RANK", "1")
        .env("LINERATE_SIZE", "2")
        .env("LINERATE_ROOT_FILE", &file);
    let done = run(command).expect_code(40);
    assert!(
        done.err.contains("the root has not written"),
        "{}",
        done.err
    );
}

/// In place of `kubectl`: keeps the Secret, and does what the kubelets do with the Job: an index and the Secret for each pod.
const KUBECTL: &str = r#"#!/bin/sh
set -e
work=$(dirname "$0")
echo "$*" >>"$work/calls"
case $1 in
    apply) sed 's/.*"root":"\([^"]*\)".*/\1/' >"$work/secret" ;;
    wait)
        index=0
        for host in $hosts; do
            ip netns exec "$host" env JOB_COMPLETION_INDEX=$index LINERATE_ROOT="$(cat "$work/secret")" LINERATE_SIZE=4 \
                "$linerate" --state "$work/pods" mesh &
            index=$((index + 1))
        done
        wait ;;
esac
"#;

#[test]
fn the_pods_of_an_indexed_job_join_the_root_that_has_started_them() {
    let Some(mesh) = Mesh::add(4, &[]) else {
        return;
    };
    let bin = mesh.lab.path("bin");
    fs::create_dir(&bin).expect("the lab's folder");
    let kubectl = bin.join("kubectl");
    fs::write(&kubectl, KUBECTL).expect("the lab's folder");
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).expect("our own file");
    let names = mesh.peers.iter();
    let names: Vec<&str> = names
        .map(|peer| peer.trim_start_matches("netns:"))
        .collect();
    let mut root = on(&mesh, 0, crate::LINERATE);
    root.arg("--state").arg(mesh.lab.state());
    root.args(["--json", "mesh", "--time", "1s", "--no-retest"]);
    root.args(["--size", "4", "--"]).arg(kubernetes("start.sh"));
    let path = std::env::var("PATH").expect("a search path");
    root.env("PATH", format!("{}:{path}", bin.display()))
        .env("linerate", crate::LINERATE)
        .env("hosts", names.join(" "));
    let done = run(root);
    assert!(matches!(done.code, Some(0 | 10 | 12)), "{done:?}");
    assert_eq!(hosts(&done).len(), 4);
    let all = observations(&mesh.records());
    let measured = all.iter().filter(|one| one.2["outcome"] == "measured");
    assert_eq!(measured.count(), 12, "{}", done.err);
    let calls = fs::read_to_string(bin.join("calls")).expect("it was called");
    let verbs: Vec<&str> = calls
        .lines()
        .filter_map(|call| call.split(' ').next())
        .collect();
    assert_eq!(verbs, ["apply", "create", "wait", "delete"]);
    assert!(!calls.contains("tls://"), "{calls}");
}

#[test]
fn the_manifest_fits_the_schema_of_kubernetes() {
    let validate = |file: &Path| {
        let mut command = Command::new("kubernetes-validate");
        command.arg("--strict").arg(file).output()
    };
    let manifest = kubernetes("mesh.yaml");
    let Ok(output) = validate(&manifest) else {
        eprintln!("SKIP: kubernetes-validate is not installed (pip install kubernetes-validate)");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    // A copy with an error is refused.
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("mesh.yaml");
    let text = fs::read_to_string(&manifest).expect("it is there");
    for (right, wrong) in [
        ("completions: 4", "completions: four"),
        ("backoffLimit", "backOffLimit"),
    ] {
        let changed = text.replacen(right, wrong, 1);
        assert_ne!(changed, text);
        fs::write(&copy, changed).expect("room");
        let output = validate(&copy).expect("it ran before");
        assert!(!output.status.success(), "{wrong}: {output:?}");
    }
}

/// A file of `packaging/kubernetes`.
fn kubernetes(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("packaging/kubernetes").join(name)
}

#[test]
fn ranks_end_with_a_root_that_is_killed_and_its_results_so_far_are_kept() {
    let Some(mesh) = Mesh::add(3, &[]) else {
        return;
    };
    let mut options = vec!["--repeats", "1000", "--name", "killed"];
    let root = Job::start(rank(&mesh, 0, 3, &options));
    options.clear();
    let others: Vec<Job> = (1..3)
        .map(|at| Job::start(rank(&mesh, at, 3, &options)))
        .collect();
    let have_flows = || {
        let of_ranks = mesh.runs(true);
        of_ranks.len() == 2 && of_ranks.iter().all(|run| flows_in(run) > 0)
    };
    while !have_flows() && !root.has_ended() {
        std::thread::yield_now();
    }
    root.kill();
    for other in others {
        let done = other.end().expect_code(20);
        let why = "the connection to the root of the mesh was lost";
        assert!(done.err.contains(why), "{}", done.err);
    }
    let document = |runs: &[&str]| {
        let words = [&["--json", "report"], runs].concat();
        fitting(&run(mesh.command(&words)).expect_code(0).out)
    };
    let of_root = document(&["killed"]);
    assert_eq!(of_root["hosts"].as_array().map(Vec::len), Some(3));
    assert!(of_root["summary"].is_object(), "{of_root}");
    // Without what the root has stored: the ranks have all but the flows of its last round.
    let of_ranks = mesh.runs(true);
    let of_ranks = document(&of_ranks.iter().map(|run| text(run)).collect::<Vec<_>>());
    assert_eq!(of_ranks["stopped"], "the run was not ended");
    let rounds = |document: &Value| document["rounds"].as_u64().expect("a number");
    assert!(rounds(&of_root) - rounds(&of_ranks) <= 1, "{of_ranks}");
}

/// The flows of a run as (round, from, to, outcome).
fn flows_of(folder: &Path) -> Vec<(u64, u64, u64, Value)> {
    let records = records_of(folder);
    let flows = records.iter().filter_map(|record| record.get("mesh-flow"));
    let mut flows: Vec<_> = flows
        .map(|flow| {
            let number = |value: &Value| value.as_u64().expect("a number");
            let [from, to] = ["from", "to"].map(|end| number(&flow["flow"][end]));
            let outcome = flow["observations"][0]["outcome"].clone();
            (number(&flow["round"]), from, to, outcome)
        })
        .collect();
    flows.sort_by_key(|flow| (flow.0, flow.1, flow.2));
    flows
}

/// Each flow of this rank, and no other, is in its run, which has ended.
#[track_caller]
fn assert_has_own_flows(folder: &Path, all: &[(u64, u64, u64, Value)]) {
    let records = records_of(folder);
    let mut ranks = records.iter().filter_map(|one| one["mesh-rank"].as_u64());
    let rank = ranks.next().expect("it says whose it is");
    let is_own = |flow: &&(u64, u64, u64, Value)| flow.1 == rank || flow.2 == rank;
    let expected: Vec<_> = all.iter().filter(is_own).cloned().collect();
    assert_eq!(flows_of(folder), expected, "{rank}");
    let end = records.last().expect("it has records");
    assert!(end["ended"].is_object(), "{end}");
}

/// What `report` prints of these runs, without what only the root knows of itself.
#[track_caller]
fn reported(mesh: &Mesh, runs: &[PathBuf]) -> (Value, String) {
    let page = mesh.lab.path("joined.html");
    let mut words = vec!["--json", "report", "--out", text(&page)];
    words.extend(runs.iter().map(|run| text(run)));
    let done = run(mesh.command(&words)).expect_code(0);
    assert!(page.exists());
    let mut document: Value = fitting(&done.out);
    for host in document["hosts"].as_array_mut().expect("a list") {
        host["clock"] = Value::Null;
    }
    for named in document["named"].as_array_mut().expect("a list") {
        named["differs"] = Value::Null;
    }
    (document, done.err)
}

#[test]
fn what_the_ranks_have_kept_is_joined_to_what_the_root_has_stored() {
    let Some(mesh) = Mesh::add(4, &[]) else {
        return;
    };
    let root = Job::start(rank(&mesh, 0, 4, &[]));
    let others: Vec<Job> = (1..4)
        .map(|at| Job::start(rank(&mesh, at, 4, &[])))
        .collect();
    let root = root.end();
    for other in others {
        other.end().expect_code(0);
    }
    let (own, of_ranks) = (mesh.runs(false), mesh.runs(true));
    assert_eq!((own.len(), of_ranks.len()), (1, 3), "{of_ranks:?}");
    let all = flows_of(&own[0]);
    for folder in &of_ranks {
        assert_has_own_flows(folder, &all);
    }
    // A rank whose disk was full may leave an empty folder.
    let empty = mesh.lab.path("empty");
    fs::create_dir(&empty).expect("the lab's folder");
    let (by_ranks, note) = reported(&mesh, &[&[empty][..], &of_ranks].concat());
    assert!(note.contains("left out: "), "{note}");
    let joined = "joined from the runs of 3 ranks (4 hosts)";
    assert!(note.contains(joined), "{note}");
    let (by_root, _) = reported(&mesh, &own);
    assert_eq!(by_ranks, by_root);
    // Of two ranks, the flows between the other two hosts are missing.
    let (part, _) = reported(&mesh, &of_ranks[..2]);
    let stopped = part["stopped"].as_str().expect("it is partial");
    assert!(
        stopped.contains("only what 2 ranks of 4 hosts kept"),
        "{stopped}"
    );
    // `last` is the run of the root, and the same document as it has printed.
    let last = run(mesh.command(&["--json", "report", "last"])).expect_code(0);
    let [last, printed]: [Value; 2] = [&last, &root].map(|done| fitting(&done.out));
    assert_eq!(last, printed);
}

#[test]
fn a_rank_with_no_store_keeps_nothing_and_parts_of_two_meshes_are_not_joined() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    for (name, options) in [("one", &[][..]), ("other", &["--no-store"])] {
        let other = Job::start(rank(&mesh, 1, 2, options));
        run(rank(&mesh, 0, 2, &["--name", name])).expect_code(12);
        other.end().expect_code(0);
        assert_eq!(mesh.runs(true).len(), 1, "{name}");
    }
    let kept = mesh.runs(true);
    let words = ["report", text(&kept[0]), "other"];
    let refused = run(mesh.command(&words)).expect_code(23);
    let why = "it is not a part of the same mesh";
    assert!(refused.err.contains(why), "{}", refused.err);
}

#[test]
fn a_rank_whose_time_of_day_is_an_hour_ahead_joins_and_its_clock_is_printed() {
    const AHEAD_NS: i64 = 3_600_000_000_000;
    let Some(library) = Library::compile("ahead.so", &["AHEAD_S=3600"]) else {
        return;
    };
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let root = Job::start(rank(&mesh, 0, 2, &["--verbose"]));
    let mut ahead = rank(&mesh, 1, 2, &[]);
    ahead.env("LD_PRELOAD", library.path());
    let ahead = Job::start(ahead);
    root.end().expect_code(12);
    ahead.end().expect_code(0);
    let records = mesh.records();
    let members = records.iter().filter_map(|record| record.get("mesh-host"));
    let clocks: Vec<&Value> = members.map(|member| &member["clock"]).collect();
    for (clock, expected) in clocks.iter().zip([0, AHEAD_NS]) {
        let number = |key: &str| clock[key].as_i64().expect("a number");
        // Both clocks of a reading are read one after the other, and the process may be interrupted in between.
        let error = number("unix_ns").abs_diff(expected);
        assert!(error < 60_000_000_000, "{clock}");
    }
    let all = observations(&records);
    assert_eq!(
        all.iter()
            .filter(|one| one.2["outcome"] == "measured")
            .count(),
        2,
        "{all:?}"
    );
    assert_eq!(mesh.runs(true).len(), 1);
}

#[test]
fn a_host_that_is_cut_off_or_hangs_is_lost_and_the_others_go_on() {
    const HANG: &str = "ip netns pids lr-m1 | xargs kill -STOP";
    const CUT: &str = "ip -n lr-mesh link set p1 down";
    for fault in [CUT, HANG] {
        let Some(mesh) = Mesh::add(3, &[]) else {
            return;
        };
        let options = ["--repeats", "6"];
        let root = Job::start(rank(&mesh, 0, 3, &options));
        let [cut, other] = [1, 2].map(|at| Job::start(rank(&mesh, at, 3, &[])));
        wait_for_results(&mesh, &root);
        let mut cause = mesh.lab.outside("sh");
        cause.args(["-ec", fault]);
        run(cause).expect_code(0);
        let done = root.end().expect_code(12);
        assert!(done.err.contains(" is lost: "), "{fault}: {}", done.err);
        other.end().expect_code(0);
        let all = observations(&mesh.records());
        let others = all.iter().filter(|(from, to, _)| *from != 1 && *to != 1);
        let measured = others.filter(|one| one.2["outcome"] == "measured");
        // Two directions, six times.
        assert_eq!(measured.count(), 12, "{fault}: {}", done.err);
        if fault == CUT {
            // It finds out by itself that nobody answers.
            cut.end().expect_code(20);
        } else {
            cut.kill();
        }
    }
}

/// A host of a file of hosts is a peer of every command that has one.
#[test]
fn a_host_of_a_mesh_is_a_peer_of_measure_failover_and_qos_verify() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let file = mesh.lab.path("hosts.toml");
    let [one, other] = &mesh.peers[..] else {
        panic!("{:?}", mesh.peers)
    };
    let hosts = format!("[[host]]\npeer = \"{one}\"\n[[host]]\npeer = \"{other}\"\n");
    fs::write(&file, hosts).expect("the lab's folder");
    let words = [
        "--json",
        "mesh",
        "--time",
        "500ms",
        "--no-retest",
        "--hosts",
        text(&file),
    ];
    run(mesh.command(&words)).expect_code(12);
    let from = |words: &[&str]| {
        let mut command = on(&mesh, 0, crate::LINERATE);
        command.arg("--state").arg(mesh.lab.state()).args(words);
        run(command)
    };
    let by_command = format!(
        "exec:ip netns exec lr-m1 '{}' agent --stdio",
        crate::LINERATE
    );
    for peer in [other, &by_command] {
        let measured = from(&["--json", "measure", "stream", peer, "--time", "0.6"]);
        fitting(&measured.expect_code(0).out);
    }
    let failover = from(&["--json", "failover", other, "--time", "2s"]);
    fitting(&failover.expect_code(0).out);
    let classes = mesh.lab.path("classes.toml");
    let text_of = "[qos]\ninterface = \"eth0\"\n[[class]]\nname = \"all\"\npriority = 1\nlimit = \"50mbit\"\n";
    fs::write(&classes, text_of).expect("the lab's folder");
    let words = ["--json", "qos", "verify", text(&classes), other];
    let short = ["--rounds", "3", "--time", "500ms", "--flows", "1"];
    let verified = from(&[&words[..], &short].concat());
    // No rule puts traffic into the class: that is found, unless the machine is too busy.
    assert!(matches!(verified.code, Some(11 | 12)), "{verified:?}");
    let document = fitting(&verified.out);
    let class = &document["directions"][0]["classes"][0];
    assert!(class["alone_bit_per_s"]["median"].is_number(), "{document}");
}
