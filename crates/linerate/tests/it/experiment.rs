//! `lab` between two real hosts: levels that are made and rolled back around each trial, runs that are killed and go
//! on, and runs compared with each other.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::fitting;
use crate::job::Job;
use crate::lab::{Lab, assert_same, text};
use crate::watch::Watch;

/// A rate that is kept exactly, and a setting of the local end.
const PACED: &str = r#"
title = "Pacing and segmentation"
question = "Is what is asked for kept?"
workload = "stream"
response = ["rate", "cpu"]

[options]
time = "60"
# So that every trial has a rate, also where other work stalls it.
bytes = "10MB"

[[factors]]
name = "pacing"
option = "pacing"
levels = ["200Mbit", "400Mbit"]

[[factors]]
name = "segmentation"
setting = "nic/@/feature/tso"
on = "local"
levels = ["baseline", false]

[design]
repeats = 3
"#;

fn file(lab: &Lab, name: &str, content: &str) -> PathBuf {
    let file = lab.path(name);
    std::fs::write(&file, content).expect("the lab's folder");
    file
}

fn words<'a>(file: &'a str, run: &'a str) -> [&'a str; 9] {
    [
        "--format",
        "json",
        "lab",
        "run",
        file,
        "netns:far",
        "--out",
        run,
        "--seed=5",
    ]
}

#[test]
fn an_experiment_tells_what_each_factor_does_and_leaves_both_hosts_as_they_were() {
    for lab in Lab::for_each_channel() {
        let before = lab.dump();
        let file = file(&lab, "paced.toml", PACED);
        let run = lab.path("run");
        let done = lab.run(&words(text(&file), text(&run))).expect_code(0);
        let document = fitting(&done.out);
        assert_same(&lab, &before, "after an experiment");
        assert_eq!(document["complete"], true);
        assert_eq!(document["restored"], true);
        assert_eq!(document["trials"].as_array().map(Vec::len), Some(12));
        let effects = document["responses"][0]["effects"]
            .as_array()
            .expect("effects");
        let pacing = &effects[0];
        assert_eq!(pacing["effect"], "pacing");
        // Twice the pace is twice the rate; where other work stalls a trial, the interval is wide and still holds that.
        let bound = |key: &str| pacing[key].as_f64().expect("a number");
        assert!(bound("low") < 1.4 && bound("high") > 0.7, "{pacing:#}");
        assert_eq!(pacing["shown"], bound("low") > 0.0, "{pacing:#}");
        // The run shows the same again, also as text.
        let again = lab.run(&["--format", "json", "lab", "show", text(&run)]);
        assert_eq!(
            fitting(&again.expect_code(0).out)["responses"],
            document["responses"]
        );
        let told = lab.run(&["lab", "show", text(&run)]).expect_code(0).out;
        assert!(told.contains("pacing 400Mbit vs 200Mbit"), "{told}");
    }
}

/// Both ends of a pseudo-terminal of this size: the screen, and the terminal that a program writes to.
pub(crate) fn open_terminal(rows: u16, columns: u16) -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let screen = File::from(openpt(flags).expect("a terminal"));
    unlockpt(&screen).expect("it is ours");
    let terminal = File::from(ioctl_tiocgptpeer(&screen, flags).expect("its other end"));
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).expect("it is a terminal");
    (screen, terminal)
}

/// What a program shows on a terminal of this size, including the movements of the cursor.
pub(crate) fn shown_on_a_terminal(
    mut command: Command,
    rows: u16,
    columns: u16,
) -> (ExitStatus, String) {
    let (screen, terminal) = open_terminal(rows, columns);
    command.stdout(Stdio::null()).stderr(terminal);
    shown(command, screen)
}

/// What a program shows on the terminal that it writes to.
pub(crate) fn shown(mut command: Command, screen: File) -> (ExitStatus, String) {
    let mut program = command.stdin(Stdio::null()).spawn().expect("it starts");
    // This end of the terminal goes with it: reading ends with the program.
    drop(command);
    let text = until_closed(screen);
    let ended = program.wait().expect("it has ended");
    (ended, text)
}

/// What the programs on a terminal show until the last of them has ended.
pub(crate) fn until_closed(mut screen: File) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn while_an_experiment_runs_a_terminal_shows_what_each_combination_has_told_so_far() {
    let Some(lab) = Lab::new() else { return };
    let file = file(&lab, "paced.toml", PACED);
    for (rows, has_room) in [(24, true), (5, false)] {
        let run = lab.path(&format!("run-{rows}"));
        let words = ["lab", "run", text(&file), "netns:far", "--out", text(&run)];
        let (ended, screen) = shown_on_a_terminal(lab.linerate(&words), rows, 90);
        assert!(ended.success(), "{screen}");
        let heads = "pacing   segmentation  trials  mean";
        assert!(screen.contains(heads), "{screen}");
        assert!(screen.contains("  400Mbit  off           2 "), "{screen}");
        assert_eq!(
            screen.contains("  and 3 more combinations"),
            !has_room,
            "{screen}"
        );
    }
}

#[test]
fn an_experiment_that_was_killed_goes_on_where_its_record_ends() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = file(&lab, "paced.toml", PACED);
    for (number, moment) in [12, 25].into_iter().enumerate() {
        let run = lab.path(&format!("run-{number}"));
        let watch = Watch::new(&run, &lab.state());
        let job = Job::start(lab.linerate(&words(text(&file), text(&run))));
        let seen = watch.wait(moment, &job.ending());
        assert!(seen >= moment, "it ended after {seen} events");
        job.kill();
        lab.run(&["tune", "recover"]).expect_code(0);
        assert_same(&lab, &before, "after a kill and `tune recover`");
        let made = |out: &str| fitting(out)["trials"].as_array().map_or(0, Vec::len);
        let shown = lab.run(&["--format", "json", "lab", "show", text(&run)]);
        let early = made(&shown.expect_code(0).out);
        let done = lab.run(&["--format", "json", "lab", "resume", text(&run)]);
        let done = done.expect_code(0);
        let document = fitting(&done.out);
        assert_eq!(document["complete"], true);
        assert_eq!(made(&done.out), 12, "{early} before");
        assert_same(&lab, &before, "after a run that went on");
    }
}

#[test]
fn three_runs_are_compared_with_three_and_single_runs_give_no_verdict() {
    let Some(lab) = Lab::new() else { return };
    let (start, rest) = PACED.split_once("[[factors]]\nname = \"seg").expect("two");
    let (_, design) = rest.split_once("[design]").expect("a design");
    let experiment = format!("{start}[design]{design}");
    let run = |name: &str, experiment: &str| {
        let file = file(&lab, "paced.toml", experiment);
        let run = lab.path(name);
        lab.run(&words(text(&file), text(&run))).expect_code(0);
        text(&run).to_owned()
    };
    let three = |name: &str| -> Vec<String> {
        (0..3)
            .map(|number| run(&format!("{name}-{number}"), &experiment))
            .collect()
    };
    let fast = three("fast");
    // So far below the paced rates that no machine's other work hides it.
    lab.shell(
        "near",
        "tc qdisc add dev near0 root tbf rate 40mbit burst 64kb latency 20ms",
    );
    let slow = three("slow");
    let compare = |before: &[String], after: &[String], code: i32| {
        let (before, after) = (before.join(","), after.join(","));
        let words = ["--format", "json", "compare", &before, &after];
        let done = lab.run(&[&words[..], &["--margin", "20%"]].concat());
        done.expect_code(code)
    };
    let worse = fitting(&compare(&fast, &slow, 11).out);
    assert_eq!(worse["verdict"], "worse", "{worse:#}");
    assert_eq!(worse["cells"].as_array().map(Vec::len), Some(2));
    let better = fitting(&compare(&slow, &fast, 0).out);
    assert_eq!(better["verdict"], "not-worse", "{better:#}");
    for (before, after) in [(&fast, &slow), (&slow, &fast)] {
        let done = compare(&before[..1], &after[..1], 12);
        assert_eq!(fitting(&done.out)["verdict"], "cannot-tell");
        let why = "two runs made at different times: drift not separable";
        assert!(done.err.contains(why), "{}", done.err);
    }
    let again = [fast[0].clone(), fast[0].clone()];
    let done = compare(&again, &slow, 2);
    assert!(done.err.contains("named twice"), "{}", done.err);
    // Another title is the same experiment, another length of trials is not.
    let renamed = run(
        "renamed",
        &experiment.replace("Pacing and", "Only pacing, not"),
    );
    compare(&fast[..1], &[renamed], 12);
    let longer = [run("longer", &experiment.replace("10MB", "20MB"))];
    let done = compare(&fast[..1], &longer, 23);
    let why = "its option `bytes` is 20MB at 200Mbit, not 10MB";
    assert!(done.err.contains(why), "{}", done.err);
}

#[test]
fn paths_of_the_command_line_are_levels_with_their_latency_and_rate() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", "ip addr add 10.78.0.1/24 dev near0");
    lab.shell("far", "ip addr add 10.78.0.2/24 dev far0");
    let run = lab.path("table");
    let words = "--format json lab run fabric-table netns:far --path one=10.77.0.2 --path two=10.78.0.2 --quick --repeats 3 \
                 --force --out";
    let words: Vec<&str> = words.split_whitespace().chain([text(&run)]).collect();
    let document = fitting(&lab.run(&words).expect_code(0).out);
    let fabric = &document["fabric"];
    assert_eq!(fabric["factors"], serde_json::json!(["path", "transport"]));
    let rows = fabric["rows"].as_array().expect("rows");
    let of_tcp = rows.iter().filter(|row| row["levels"][1] == "tcp");
    let mut names = Vec::new();
    for row in of_tcp {
        names.push(row["levels"][0].clone());
        let positive = |key: &str| row[key].as_f64().is_some_and(|value| value > 0.0);
        assert!(positive("latency_s") && positive("rate_bit_per_s"), "{row}");
        // A veth signals nothing.
        assert!(row["of_gross"].is_null(), "{row}");
    }
    assert_eq!(names, ["one", "two"]);
    let effects = document["responses"][0]["effects"].as_array();
    let apart = |effect: &serde_json::Value| effect["at"][0] == "size 4B";
    assert!(
        effects.is_some_and(|all| all.iter().any(apart)),
        "{document:#}"
    );
}

#[test]
fn what_an_experiment_cannot_be_is_told_with_its_line() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    for (change, code, words) in [
        (
            ("option = \"pacing\"", "option = \"pace\""),
            23,
            "`stream` has no option `pace`",
        ),
        (
            ("repeats = 3", "repeats = 1"),
            23,
            "line 24: repeats: 1 would not say",
        ),
        (
            ("repeats = 3", "repeats = 3\nask = [\"pacing*flows\"]"),
            23,
            "no factor `flows`",
        ),
        (
            ("nic/@/feature/tso", "nic/@/feature"),
            23,
            "nic/near0/feature",
        ),
    ] {
        let file = file(&lab, "wrong.toml", &PACED.replace(change.0, change.1));
        let run = lab.path("never");
        let done = lab
            .run(&self::words(text(&file), text(&run)))
            .expect_code(code);
        assert!(done.err.contains(words), "{}", done.err);
        assert!(!run.exists(), "{words}");
    }
    assert_same(&lab, &before, "after experiments that cannot be");
}

/// Two remote hosts, each with its own wire, and a setting that is changed on whichever is measured.
const TWO_PEERS: &str = r#"
title = "Two peers"
workload = "rr"
response = ["operations", "cpu-op", "cpu-op-local", "cpu-op-peer"]

[options]
time = "0.5"

[[factors]]
name = "host"
levels = [{ name = "far" }, { name = "third", peer.at = "netns:third" }, { name = "gone", peer.at = "netns:gone" }]

[[factors]]
name = "offload"
setting = "nic/@/feature/gro"
levels = ["baseline", true, false]

[design]
repeats = 3
"#;

/// A third host behind a second wire of the near one.
fn add_third(lab: &Lab) {
    let mut command = lab.outside("sh");
    command.args([
        "-ec",
        "ip netns add third
        ip -n near link add near1 type veth peer name third0 netns third
        for end in near:near1:1 third:third0:2; do
            IFS=: read -r host nic number <<END
$end
END
            ip -n $host link set $nic addrgenmode none
            ip -n $host address add 10.79.0.$number/24 dev $nic
            ip -n $host link set lo up
            ip -n $host link set $nic up
        done
        for end in near:near1 third:third0; do
            until ip -n ${end%:*} link show ${end#*:} | grep -q 'state UP'; do :; done
        done",
    ]);
    crate::job::run(command).expect_code(0);
}

#[test]
fn another_host_is_a_level_whose_trials_go_there_and_whose_settings_are_its_own() {
    let Some(lab) = Lab::new() else { return };
    add_third(&lab);
    let features = |lab: &Lab| lab.shell("third", "ethtool -k third0; ip -d address");
    let before = (
        lab.dump(),
        features(&lab),
        lab.counter("third", "rx_packets"),
    );
    let file = file(&lab, "hosts.toml", TWO_PEERS);
    let run = lab.path("hosts");
    let done = lab.run(&words(text(&file), text(&run))).expect_code(0);
    assert_same(&lab, &before.0, "after an experiment with two peers");
    assert_eq!(features(&lab), before.1);
    let document = fitting(&done.out);
    assert_eq!(document["complete"], true);
    assert_eq!(document["restored"], true);
    let packets = lab.counter("third", "rx_packets") - before.2;
    assert!(packets > 100, "{packets}: its trials went elsewhere");
    let levels = &document["factors"][0]["levels"];
    assert_eq!(levels[1]["peer"], "netns:third");
    let why = levels[2]["skipped"]
        .as_str()
        .expect("there is no such host");
    assert!(why.contains("netns:gone"), "{why}");
    let peer = &document["peers"][0];
    assert_eq!(
        (&peer["local_nic"], &peer["remote_nic"]),
        (&"near1".into(), &"third0".into())
    );
    // Both hosts in each block, as found and with the setting.
    let trials = document["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 18);
    // On a busy machine a trial may have no operation, and then no cost of one.
    let has_operations =
        |trial: &&serde_json::Value| trial["values"]["operations"].as_f64() > Some(0.0);
    let working: Vec<&serde_json::Value> = trials.iter().filter(has_operations).collect();
    assert!(!working.is_empty(), "{trials:#?}");
    for trial in &working {
        let value = |word: &str| trial["values"][word].as_f64().expect("told");
        let sum = value("cpu-op-local") + value("cpu-op-peer");
        assert!((value("cpu-op") - sum).abs() < 1e-9 * sum, "{trial:#}");
    }
    let effects = document["responses"][0]["effects"]
        .as_array()
        .expect("effects");
    let host = effects.iter().find(|effect| effect["effect"] == "host");
    if working.len() == trials.len() {
        assert_eq!(host.expect("it was asked for")["interleaved"], true);
    }
    // The table of trials shows each one's own remote end.
    let rows = lab
        .run(&["export", "--to", "jsonl", text(&run)])
        .expect_code(0)
        .out;
    let rows = rows
        .lines()
        .map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON"));
    for row in rows.filter(|row| row["kind"] == "cell") {
        let (peer, nic) = match row["factor.host"].as_str() {
            Some("third") => ("netns:third", "third0"),
            _ => ("netns:far", "far0"),
        };
        assert_eq!(
            (&row["peer"], &row["remote_nic"]),
            (&peer.into(), &nic.into()),
            "{row:#}"
        );
        if row["ops_per_s"].as_f64() > Some(0.0) {
            assert!(row["cpu_remote_us_per_op"].as_f64() > Some(0.0), "{row:#}");
        }
    }
}

#[test]
fn an_experiment_with_two_peers_that_was_killed_goes_on_with_both() {
    let Some(lab) = Lab::new() else { return };
    add_third(&lab);
    let features = |lab: &Lab| lab.shell("third", "ethtool -k third0; ip -d address");
    let before = (lab.dump(), features(&lab));
    let file = file(&lab, "hosts.toml", TWO_PEERS);
    let run = lab.path("hosts");
    let watch = Watch::new(&run, &lab.state());
    let job = Job::start(lab.linerate(&words(text(&file), text(&run))));
    let seen = watch.wait(25, &job.ending());
    assert!(seen >= 25, "it ended after {seen} events");
    job.kill();
    let done = lab.run(&["--format", "json", "lab", "resume", text(&run)]);
    let document = fitting(&done.expect_code(0).out);
    assert_eq!(document["complete"], true);
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(18));
    assert_same(&lab, &before.0, "after a run that went on with two peers");
    assert_eq!(features(&lab), before.1);
}

#[test]
fn an_earlier_run_is_a_level_beside_those_that_are_measured() {
    let Some(lab) = Lab::new() else { return };
    let earlier = file(&lab, "paced.toml", PACED);
    let old = lab.path("old");
    lab.run(&words(text(&earlier), text(&old))).expect_code(0);
    // Seen from the file, and with an idle level beside it.
    let day = "[[factors]]\nname = \"day\"\nlevels = [{ name = \"then\", run = \"old\" }, { name = \"now\" }]\n";
    let with_day = |text: &str| text.replace("[design]", &format!("{day}\n[design]"));
    let file = file(&lab, "days.toml", &with_day(PACED));
    let run = lab.path("days");
    let done = lab.run(&words(text(&file), text(&run))).expect_code(0);
    let document = fitting(&done.out);
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(12));
    assert_eq!(
        document["responses"][0]["cells"].as_array().map(Vec::len),
        Some(8)
    );
    let effects = document["responses"][0]["effects"]
        .as_array()
        .expect("effects");
    let day = effects
        .iter()
        .find(|effect| effect["effect"] == "day")
        .expect("it was asked for");
    assert_eq!(
        (&day["interleaved"], &day["against"][0]),
        (&false.into(), &"then".into())
    );
    // Without the earlier run the later one shows the same.
    std::fs::remove_dir_all(&old).expect("the lab's folder");
    let told = lab.run(&["lab", "show", text(&run)]).expect_code(0).out;
    assert!(told.contains("not interleaved with these"), "{told}");
    // Another length of trials is another experiment.
    lab.run(&words(text(&earlier), text(&old))).expect_code(0);
    let longer = self::file(
        &lab,
        "longer.toml",
        &with_day(&PACED.replace("10MB", "20MB")),
    );
    let done = lab
        .run(&words(text(&longer), text(&lab.path("never"))))
        .expect_code(23);
    assert!(
        done.err
            .contains("`bytes` was 10MB in that run and is 20MB here"),
        "{}",
        done.err
    );
}
