//! `mesh` between namespaces on a bridge (`testbed mesh`): every pair is measured and stored; a host that is lost, hangs or is
//! another program is a result, not the end of the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job, linerate, run};
use crate::lab::{Lab, text};

/// A lab in which the mesh is removed however a test ends.
pub(crate) struct Mesh {
    pub(crate) lab: Lab,
    pub(crate) peers: Vec<String>,
}

impl Drop for Mesh {
    fn drop(&mut self) {
        run(self.command(&["testbed", "mesh", "remove"]));
    }
}

impl Mesh {
    /// Makes `hosts` hosts; none where that is not possible, with a line that says so.
    #[track_caller]
    pub(crate) fn add(hosts: usize, faults: &[&str]) -> Option<Self> {
        let mut mesh = Self {
            lab: Lab::new()?,
            peers: Vec::new(),
        };
        let number = hosts.to_string();
        let mut words = vec!["--format", "json", "testbed", "mesh", "add", &number];
        for fault in faults {
            words.extend(["--fault", fault]);
        }
        let done = run(mesh.command(&words));
        if done.code == Some(22) {
            eprintln!("SKIP: {}", done.err.trim_end());
            return None;
        }
        let document = fitting(&done.expect_code(0).out);
        let names = document["mesh"]["hosts"].as_array().expect("a list");
        mesh.peers = names
            .iter()
            .map(|name| format!("netns:{}", name.as_str().expect("a name")))
            .collect();
        assert_eq!(mesh.peers.len(), hosts);
        Some(mesh)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.lab.outside(crate::LINERATE);
        command.arg("--state").arg(self.lab.state()).args(words);
        command
    }

    /// `mesh` over its hosts and these others.
    fn mesh(&self, others: &[&str], options: &[&str]) -> Command {
        let mut words = vec!["--format", "json", "mesh"];
        words.extend(self.peers.iter().map(String::as_str));
        words.extend(others);
        words.extend(options);
        self.command(&words)
    }

    #[track_caller]
    fn run(&self, others: &[&str], options: &[&str]) -> Done {
        run(self.mesh(others, options))
    }

    /// The folders of the runs of the root, or of those of the other ranks.
    pub(crate) fn runs(&self, of_ranks: bool) -> Vec<PathBuf> {
        let runs = fs::read_dir(self.lab.state().join("runs")).into_iter();
        let is_wanted = |path: &PathBuf| {
            let is_of_rank = text(path).contains("-mesh-rank-");
            path.is_dir() && is_of_rank == of_ranks
        };
        let mut folders: Vec<_> = runs
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(is_wanted)
            .collect();
        folders.sort();
        folders
    }

    /// The records of the only run of a root.
    #[track_caller]
    pub(crate) fn records(&self) -> Vec<Value> {
        let folders = self.runs(false);
        let [folder] = &folders[..] else {
            panic!("{folders:?}")
        };
        records_of(folder)
    }
}

/// The records of a run.
#[track_caller]
pub(crate) fn records_of(folder: &Path) -> Vec<Value> {
    let stored = fs::read_to_string(folder.join("records.jsonl")).expect("its records");
    // Each line begins with its checksum.
    let json = |line: &str| serde_json::from_str(line.split_once(' ')?.1).ok();
    stored.lines().filter_map(json).collect()
}

/// The results of flows among the records, as (from, to, outcome).
pub(crate) fn observations(records: &[Value]) -> Vec<(u64, u64, Value)> {
    let flows = records.iter().filter_map(|record| record.get("mesh-flow"));
    let observed = flows.flat_map(|flow| flow["observations"].as_array().expect("a list"));
    observed
        .map(|one| {
            let host = |key: &str| one[key].as_u64().expect("a number");
            (host("from"), host("to"), one["outcome"].clone())
        })
        .collect()
}

#[test]
fn every_pair_is_measured_in_both_directions_and_stored() {
    let Some(mesh) = Mesh::add(3, &[]) else {
        return;
    };
    // Three hosts cannot show which of them is slow.
    let done = mesh
        .run(&[], &["--time", "1s", "--no-retest"])
        .expect_code(12);
    let document = fitting(&done.out);
    for host in document["hosts"].as_array().expect("a list") {
        assert_eq!(host["state"], "not-tried", "{host}");
        assert_eq!(host["measured"], 4, "{host}");
    }
    let records = mesh.records();
    let mut pairs: Vec<(u64, u64)> = observations(&records)
        .into_iter()
        .map(|(from, to, outcome)| {
            assert_eq!(outcome["outcome"], "measured", "{outcome}");
            // The limit of each host is 50 Mb/s; a busy machine may make it slower, and never faster.
            let rate = outcome["rate"].as_f64().expect("a rate");
            assert!(rate > 0.0 && rate < 60e6, "{rate}");
            (from, to)
        })
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
    let members = records.iter().filter_map(|record| record.get("mesh-host"));
    let members: Vec<&Value> = members.collect();
    assert_eq!(members.len(), 3);
    // One kernel has one clock: what is estimated is within the stated bound of 0.
    for member in members {
        let clock = &member["clock"];
        let offset = clock["monotonic_ns"]
            .as_i64()
            .expect("a number")
            .unsigned_abs();
        assert!(
            offset <= clock["within_ns"].as_u64().expect("a number"),
            "{clock}"
        );
    }
}

/// The clock by which rounds start, in a time namespace (`time_namespaces(7)`), which has no time of day of its own.
#[test]
fn a_clock_that_is_an_hour_ahead_is_printed_and_its_host_is_measured() {
    const AHEAD_NS: u64 = 3_600_000_000_000;
    if !Path::new("/proc/self/ns/time").exists() {
        eprintln!("SKIP: this kernel has no time namespaces (CONFIG_TIME_NS)");
        return;
    }
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let ahead = format!(
        "exec:exec unshare --time --monotonic 3600 --fork --kill-child ip netns exec lr-m1 '{}' agent --stdio",
        crate::LINERATE
    );
    let words = ["mesh", &mesh.peers[0], &ahead, "--time", "1s"];
    let options = ["--repeats", "4", "--no-retest", "--verbose"];
    let done = run(mesh.command(&[&words[..], &options].concat())).expect_code(12);
    let records = mesh.records();
    let members = records.iter().filter_map(|record| record.get("mesh-host"));
    let clocks: Vec<&Value> = members.map(|member| &member["clock"]).collect();
    for (clock, expected) in clocks.iter().zip([0, AHEAD_NS]) {
        let number = |key: &str| clock[key].as_i64().expect("a number");
        let error = number("monotonic_ns").abs_diff(expected.cast_signed());
        assert!(error <= number("within_ns").unsigned_abs(), "{clock}");
    }
    let ahead_s = clocks[1]["monotonic_ns"].as_f64().expect("a number") / 1e9;
    let shown = format!("(monotonic {ahead_s:+.3} s)");
    assert!(done.out.contains(&shown), "{shown}: {}", done.out);
    // With an hour between the starts of its ends no trial would be measured; on a busy machine one may fail.
    let all = observations(&records);
    let measured = all.iter().filter(|one| one.2["outcome"] == "measured");
    let pairs: std::collections::BTreeSet<_> = measured.map(|one| (one.0, one.1)).collect();
    assert_eq!(pairs.len(), 2, "{all:?}");
}

/// Requests and messages are counted, each kind by its own workload, which is in the document.
#[test]
fn the_workloads_of_measure_give_rates_per_second() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    for (workload, bits_of_one) in [("rr", 8.0), ("pingpong", 65_536.0 * 8.0)] {
        let options = ["--time", "1s", "--no-retest", "--workload", workload];
        let name = ["--name", workload];
        let done = mesh
            .run(&[], &[&options[..], &name].concat())
            .expect_code(12);
        let document = fitting(&done.out);
        assert_eq!(document["workload"], workload);
        assert_eq!(document["unit"], "1/s");
        let folder = mesh.lab.state().join("runs").join(workload);
        let all = observations(&records_of(&folder));
        assert_eq!(all.len(), 2, "{all:?}");
        for (from, to, outcome) in all {
            assert_eq!(outcome["outcome"], "measured", "{from} to {to}: {outcome}");
            let rate = outcome["rate"].as_f64().expect("a rate");
            // 50 Mb/s each way, and a bucket that is full at the start.
            assert!(rate > 0.0 && rate * bits_of_one < 100e6, "{rate}");
        }
    }
}

#[test]
fn both_directions_at_once_are_two_results_of_one_flow() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let options = ["--time", "1s", "--directions", "together", "--no-retest"];
    mesh.run(&[], &options).expect_code(12);
    let mut pairs: Vec<(u64, u64)> = observations(&mesh.records())
        .into_iter()
        .map(|(from, to, outcome)| {
            assert_eq!(outcome["outcome"], "measured", "{outcome}");
            (from, to)
        })
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 1), (1, 0)]);
}

#[test]
fn a_host_in_several_flows_of_a_round_has_a_session_for_each() {
    let Some(mesh) = Mesh::add(3, &[]) else {
        return;
    };
    let options = [
        "--time",
        "1s",
        "--pattern",
        "ring",
        "--directions",
        "forward",
        "--no-retest",
    ];
    mesh.run(&[], &options).expect_code(12);
    let mut pairs: Vec<(u64, u64)> = observations(&mesh.records())
        .into_iter()
        .map(|(from, to, outcome)| {
            assert_eq!(outcome["outcome"], "measured", "{outcome}");
            (from, to)
        })
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 1), (1, 2), (2, 0)]);
}

#[test]
fn hosts_that_do_not_join_are_unreached_with_their_cause_and_the_others_are_measured() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let other_version = r#"exec:read line; echo '{"hello":{"protocol":99,"version":"9.9.9","addresses":[]}}'; cat >/dev/null"#;
    let others = ["exec:cat >/dev/null", "exec:exit 3", other_version];
    let options = ["--time", "1s", "--join-timeout", "20s", "--no-retest"];
    let done = mesh.run(&others, &options).expect_code(12);
    fitting(&done.out);
    let records = mesh.records();
    let states: Vec<(String, String)> = records
        .iter()
        .filter_map(|record| record.get("mesh-host"))
        .map(|member| {
            let state = &member["state"];
            let word = |key: &str| state[key].as_str().unwrap_or("").to_owned();
            (word("stage"), word("cause"))
        })
        .collect();
    let stages: Vec<&str> = states.iter().map(|(stage, _)| stage.as_str()).collect();
    assert_eq!(stages, ["", "", "join", "join", "refused"]);
    for (at, words) in [(2, "within 20 s"), (3, "exit code 3"), (4, "9.9.9")] {
        assert!(states[at].1.contains(words), "{words}: {states:?}");
    }
    for (from, to, outcome) in observations(&records) {
        let is_measured = from < 2 && to < 2;
        let expected = if is_measured { "measured" } else { "not-tried" };
        assert_eq!(outcome["outcome"], expected, "{from} to {to}: {outcome}");
    }
}

/// The number of results that are stored so far.
pub(crate) fn stored_flows(state: &Path) -> usize {
    let runs = fs::read_dir(state.join("runs"))
        .into_iter()
        .flatten()
        .flatten();
    runs.map(|run| flows_in(&run.path())).sum()
}

/// The same of one run.
pub(crate) fn flows_in(run: &Path) -> usize {
    let text = fs::read_to_string(run.join("records.jsonl"));
    text.map_or(0, |text| text.matches("\"mesh-flow\"").count())
}

#[test]
fn a_host_that_is_killed_during_the_run_is_lost_and_the_others_go_on() {
    let Some(mesh) = Mesh::add(3, &[]) else {
        return;
    };
    let options = ["--time", "1s", "--repeats", "4", "--no-retest"];
    let job = Job::start(mesh.mesh(&[], &options));
    while stored_flows(&mesh.lab.state()) == 0 && !job.has_ended() {
        std::thread::yield_now();
    }
    let mut kill = mesh.lab.outside("sh");
    kill.args(["-ec", "ip netns pids lr-m1 | xargs kill -9"]);
    run(kill).expect_code(0);
    let done = job.end().expect_code(12);
    let cause = "netns:lr-m1 is lost: the agent at netns:lr-m1 was killed by signal 9 (SIGKILL)";
    assert!(done.err.contains(cause), "{}", done.err);
    let records = mesh.records();
    let lost: Vec<&Value> = records
        .iter()
        .filter_map(|record| record.get("mesh-lost"))
        .collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0]["host"], 1);
    let all = observations(&records);
    // Three rounds of one pair each, in two directions, four times; nothing about the others is missing.
    let between_others = |from: &u64, to: &u64| *from != 1 && *to != 1;
    let others = all.iter().filter(|(from, to, _)| between_others(from, to));
    let measured = others.filter(|(_, _, outcome)| outcome["outcome"] == "measured");
    assert_eq!(measured.count(), 8);
}

#[test]
fn a_signal_ends_the_run_at_once_with_what_was_measured() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let job = Job::start(mesh.mesh(&[], &["--time", "500ms", "--repeats", "1000"]));
    while stored_flows(&mesh.lab.state()) == 0 && !job.has_ended() {
        std::thread::yield_now();
    }
    job.send(Signal::TERM);
    let done = job.end().expect_code(12);
    let document = fitting(&done.out);
    assert_eq!(document["schema"], "linerate.mesh/1");
    assert!(
        done.err.contains("interrupted: the result is that of"),
        "{}",
        done.err
    );
    let records = mesh.records();
    assert!(
        records
            .iter()
            .any(|record| record["stopped"] == "interrupted")
    );
}

#[test]
fn a_path_that_drops_large_packets_is_a_failed_flow_and_no_lost_host() {
    let Some(mesh) = Mesh::add(3, &["mtu:0-1"]) else {
        return;
    };
    let options = ["--time", "1s", "--directions", "forward", "--no-retest"];
    let done = mesh.run(&[], &options);
    assert!(!done.err.contains("is lost"), "{}", done.err);
    for (from, to, outcome) in observations(&mesh.records()) {
        let is_dropped = from < 2 && to < 2;
        let expected = if is_dropped { "failed" } else { "measured" };
        assert_eq!(outcome["outcome"], expected, "{from} to {to}: {outcome}");
    }
}

#[test]
fn a_host_that_sends_slower_is_named_with_the_fact_that_differs_and_shown_again_by_report() {
    let Some(mesh) = Mesh::add(6, &["send:2"]) else {
        return;
    };
    let options = ["--time", "2s", "--seed", "7", "--name", "slow"];
    let document = fitting(&mesh.run(&[], &options).expect_code(10).out);
    let named = document["named"].as_array().expect("a list");
    let sends = named
        .iter()
        .find(|one| one["host"] == "netns:lr-m2" && one["what"] == "host-send")
        .unwrap_or_else(|| panic!("{named:?}"));
    // 15 % of 50 Mb/s; the interval of a busy machine is wider, and does not contain 0.
    assert!(sends["effect"]["high"].as_f64() < Some(0.0), "{sends}");
    let differs = sends["differs"].as_array().expect("a list");
    let rate = "nics/eth0/qdisc/rate_bit_per_s";
    let rate = differs.iter().find(|one| one["key"] == rate);
    let rate = rate.unwrap_or_else(|| panic!("{differs:?}"));
    assert_eq!(
        (&rate["value"], &rate["most"]),
        (&42_500_000.into(), &50_000_000.into())
    );

    let page = mesh.lab.path("page.html");
    let words = ["--json", "report", "slow", "--out", text(&page)];
    let again = run(mesh.command(&words)).expect_code(0);
    assert_eq!(fitting(&again.out), document);
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("netns:lr-m2 sends "));
}

/// The ratios of the victim's rate and of its p99 with the incast and without, and the verdict.
fn incast(fault: &str, workload: &str) -> Option<(f64, Option<f64>, String)> {
    let mesh = Mesh::add(8, &[fault])?;
    let options = "--pattern incast --root netns:lr-m6 --incast 4 --victim netns:lr-m4 netns:lr-m7 --directions forward \
                   --time 1s --repeats 6 --no-retest --seed 1 --workload";
    let mut options: Vec<&str> = options.split_whitespace().collect();
    options.push(workload);
    let document = fitting(&mesh.run(&[], &options).out);
    let incast = &document["incast"];
    let ratio = |key: &str| incast[key]["ratio"].as_f64();
    let rate = ratio("rate").unwrap_or_else(|| panic!("{incast}"));
    let verdict = incast["verdict"].as_str().expect("a verdict").to_owned();
    Some((rate, ratio("latency_p99"), verdict))
}

#[test]
fn an_incast_slows_a_flow_in_the_class_that_both_receivers_share_and_not_one_in_a_class_of_its_own()
{
    let (Some(shared), Some(separate)) = (
        incast("shared:6-7", "stream"),
        incast("separate:6-7", "stream"),
    ) else {
        return;
    };
    // One of five flows in a class of 50 Mb/s; in a class of its own it has all of it.
    assert_ne!(shared.2, "not-slowed", "{shared:?}");
    assert!(shared.0 < 0.6 * separate.0, "{shared:?} {separate:?}");
}

#[test]
fn an_incast_raises_the_p99_of_requests_that_wait_in_the_same_queue() {
    let Some((rate, p99, verdict)) = incast("shared:6-7", "rr") else {
        return;
    };
    // A full queue of 512 kB at 50 Mb/s is 82 ms; the path alone has less than a millisecond, and a busy machine some tens.
    assert!(p99.is_some_and(|p99| p99 > 1.5), "{p99:?}");
    assert!(rate < 0.8 && verdict != "not-slowed", "{rate} {verdict}");
}

#[test]
fn two_stored_meshes_are_compared_host_by_host() {
    let Some(mesh) = Mesh::add(4, &[]) else {
        return;
    };
    let run_as = |name: &str| {
        mesh.run(&[], &["--time", "1s", "--no-retest", "--name", name]);
    };
    run_as("before");
    run(mesh.command(&["testbed", "mesh", "remove"])).expect_code(0);
    let slow = ["testbed", "mesh", "add", "4", "--fault", "mtu:0-1"];
    run(mesh.command(&slow)).expect_code(0);
    let short = ["--time", "1s", "--no-retest", "--name", "after"];
    mesh.run(&[], &short);
    let compare = |before: &str, after: &str| {
        run(mesh.command(&["--format", "json", "compare", before, after]))
    };
    // A pair that fails after the change is a regression however busy the machine is.
    let document = fitting(&compare("before", "after").expect_code(11).out);
    assert_eq!(document["schema"], "linerate.mesh-compare/1");
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(9));
    assert_eq!(
        document["failed"].as_array().map(Vec::len),
        Some(2),
        "{document}"
    );
    let back = compare("after", "before");
    let lists = fitting(&back.out);
    assert_eq!(lists["unmatched"], 0, "{lists}");
}

#[test]
fn the_result_is_printed_as_metrics_and_written_to_their_file() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let file = mesh.lab.path("mesh.prom");
    let mut words = vec!["--format", "openmetrics", "mesh"];
    words.extend(mesh.peers.iter().map(String::as_str));
    words.extend(["--time", "1s", "--no-retest", "--metrics-file", text(&file)]);
    let done = run(mesh.command(&words)).expect_code(12);
    assert!(done.out.ends_with("# EOF\n"), "{}", done.out);
    let written = fs::read_to_string(&file).expect("metrics");
    for text in [&done.out, &written] {
        let line =
            "linerate_mesh_flows{pattern=\"pairs\",workload=\"stream\",result=\"measured\"} 2";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("linerate_mesh_host_not_ok{"), "{text}");
    }
}

#[test]
fn bounds_decide_the_exit_code() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let run = |bound: &str| {
        let options = ["--time", "1s", "--no-retest", "--require", bound];
        mesh.run(&[], &options)
    };
    // Faster than the limits of the hosts.
    let done = run("min-rate>=1G").expect_code(11);
    assert_eq!(fitting(&done.out)["requirements"][0]["verdict"], "broken");
    run("unreached<=0").expect_code(0);
    // Two hosts cannot show which of them is slow.
    run("named<=0").expect_code(12);
    run("speed>=1").expect_code(2);
}

/// Starts this program once for each host of a mesh, by a loop, as a launcher would, and returns what rank 0 has ended with.
#[track_caller]
fn launch(mesh: &Mesh, environment: &[(&str, &str)]) -> Done {
    let size = mesh.peers.len().to_string();
    let rank = |rank: usize| {
        let name = mesh.peers[rank].trim_start_matches("netns:").to_owned();
        let mut command = mesh.lab.outside("ip");
        command.args(["netns", "exec", &name, crate::LINERATE, "--state"]);
        command.arg(mesh.lab.state());
        command.args(["--format", "json", "mesh", "--time", "1s", "--no-retest"]);
        command
            .env("LINERATE_RANK", rank.to_string())
            .env("LINERATE_SIZE", &size);
        command.envs(environment.iter().copied());
        command
    };
    let others: Vec<Job> = (1..mesh.peers.len())
        .map(|at| Job::start(rank(at)))
        .collect();
    let root = run(rank(0));
    for other in others {
        other.end().expect_code(0);
    }
    root
}

#[test]
fn ranks_that_a_launcher_has_started_find_the_root_by_a_shared_file_and_measure_all_pairs() {
    let Some(mesh) = Mesh::add(3, &[]) else {
        return;
    };
    let file = mesh.lab.path("root");
    let done = launch(&mesh, &[("LINERATE_ROOT_FILE", text(&file))]).expect_code(12);
    let document = fitting(&done.out);
    assert_eq!(document["hosts"].as_array().map(Vec::len), Some(3));
    let mut pairs: Vec<(u64, u64)> = observations(&mesh.records())
        .into_iter()
        .map(|(from, to, outcome)| {
            assert_eq!(outcome["outcome"], "measured", "{outcome}");
            (from, to)
        })
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
    // The keys of the mesh are gone with it.
    let left = fs::read_dir(mesh.lab.state()).expect("a folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with("mesh-")),
        "{left:?}"
    );
}

#[test]
fn a_process_of_a_launcher_that_cannot_find_the_root_is_refused_with_what_to_do() {
    for (variables, words) in [
        (
            &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")][..],
            "linerate mesh -- mpirun",
        ),
        (
            &[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")],
            "--mpi=pmi2",
        ),
        (&[("SLURM_JOB_NUM_NODES", "4")], "not a step of it"),
        (&[], "--hosts FILE"),
    ] {
        let state = tempfile::tempdir().expect("a folder");
        let mut command = linerate(&["--state", text(state.path()), "mesh"]);
        command.envs(variables.iter().copied());
        let done = run(command).expect_code(23);
        assert!(done.err.contains(words), "{variables:?}: {}", done.err);
    }
}

#[test]
fn a_list_of_hosts_that_is_no_mesh_is_refused_with_its_reason() {
    for (words, code, why) in [
        (&["mesh", "h1"][..], 23, "at least 2 hosts"),
        (&["mesh", "h1", "h1"], 23, "the same host"),
        (
            &["mesh", "h1", "h2", "--pattern", "incast", "--incast", "4"],
            23,
            "at least",
        ),
        (
            &["mesh", "h1", "h2", "--root", "h3"],
            23,
            "no host of the mesh is named `h3`",
        ),
        (
            &["mesh", "h1", "h2", "--root", "h2"],
            2,
            "--pattern to-root",
        ),
        (
            &["mesh", "--hosts", "/no/such/file"],
            23,
            "cannot read /no/such/file",
        ),
    ] {
        let state = tempfile::tempdir().expect("a folder");
        let done = run(linerate(
            &[&["--state", text(state.path())], words].concat(),
        ));
        let done = done.expect_code(code);
        assert!(done.err.contains(why), "{words:?}: {}", done.err);
    }
}

#[test]
fn one_host_under_two_names_is_refused() {
    let Some(mesh) = Mesh::add(2, &[]) else {
        return;
    };
    let same = format!(
        "exec:ip netns exec lr-m0 '{}' agent --stdio",
        crate::LINERATE
    );
    let done = mesh.run(&[&same], &["--time", "500ms"]).expect_code(23);
    assert!(done.err.contains("are the same host"), "{}", done.err);
}
