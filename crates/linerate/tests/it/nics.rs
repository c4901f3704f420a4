//! `measure stream --nic`: two and four shaped NICs, with and without a common parent, alone and together; bytes that go over
//! another interface than the one they are meant for.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fitting;
use crate::job;
use crate::lab::Lab;

/// Low enough for a busy machine: the send buffers last while a thread waits for a CPU, no token is lost while a timer is
/// 50 ms late, and the queue holds the windows of four flows.
const SHAPER: &str = "tbf rate 10mbit burst 64kb latency 400ms";

/// A script where the hosts are made.
#[track_caller]
fn outside(lab: &Lab, script: &str) {
    let mut command = lab.outside("sh");
    command.args(["-ec", script]);
    job::run(command).expect_code(0);
}

/// Adds `near1` to `far1` and so on, so that there are `count` pairs, each in its own subnet and shaped on `near`.
#[track_caller]
fn pairs(lab: &Lab, count: u32) {
    let script = format!(
        "for i in $(seq 1 {last}); do
            ip -n near link add near$i type veth peer name far$i netns far
            for end in near:1 far:2; do
                host=${{end%:*}}
                ip -n $host link set $host$i addrgenmode none
                ip -n $host address add 10.77.$i.${{end#*:}}/24 dev $host$i
                ip -n $host link set $host$i up
            done
            for host in near far; do
                until ip -n $host link show $host$i | grep -q 'state UP'; do :; done
            done
        done
        for i in $(seq 0 {last}); do
            ip netns exec near tc qdisc add dev near$i root {SHAPER}
        done",
        last = count - 1
    );
    outside(lab, &script);
}

/// Adds `count` macvlans on `near0` and as many on `far0`, each pair in its own subnet, and shapes their common parent;
/// false if this kernel has no macvlan.
#[track_caller]
fn children(lab: &Lab, count: u32) -> bool {
    let mut probe = lab.on("near", "ip");
    probe.args(["link", "add", "probe0", "link", "near0", "type", "macvlan"]);
    if job::run(probe).code != Some(0) {
        eprintln!("SKIP: this kernel has no macvlan");
        return false;
    }
    let script = format!(
        "ip -n near link delete probe0
        for i in $(seq 0 {last}); do
            for end in near:1 far:2; do
                host=${{end%:*}}
                ip -n $host link add child$i link $host'0' type macvlan mode bridge
                ip -n $host link set child$i addrgenmode none
                ip -n $host address add 10.78.$i.${{end#*:}}/24 dev child$i
                ip -n $host link set child$i up
                until ip -n $host link show child$i | grep -q 'state UP'; do :; done
            done
        done
        ip netns exec near tc qdisc add dev near0 root {SHAPER}",
        last = count - 1
    );
    outside(lab, &script);
    true
}

/// The comparison as JSON.
#[track_caller]
fn compared(lab: &Lab, nics: &str, more: &[&str]) -> Value {
    let fixed = [
        "--format",
        "json",
        "measure",
        "stream",
        "netns:far",
        "--nic",
        nics,
    ];
    fitting(&lab.run(&[&fixed[..], more].concat()).expect_code(0).out)
}

fn list<'a>(document: &'a Value, key: &str) -> &'a [Value] {
    document[key].as_array().expect("a list")
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// The interval of the interaction admits that together they move what each moves alone; on a busy machine it is wide.
#[track_caller]
fn assert_adds_up(document: &Value) {
    let interaction = &document["interaction"];
    let (low, high) = (number(&interaction["low"]), number(&interaction["high"]));
    assert!(low < 0.25 && high > -0.25, "{interaction}");
}

#[test]
fn two_nics_without_a_common_parent_move_the_sum_of_each_alone() {
    let Some(lab) = Lab::new() else { return };
    pairs(&lab, 2);
    let document = compared(&lab, "near0,near1", &["--time", "1"]);
    assert_adds_up(&document);
    assert!(number(&document["interaction"]["minimum_detectable"]) > 0.0);
    // One in which a NIC moved nothing is left out.
    let rounds = document["rounds"].as_u64().expect("a number");
    assert!((3..=5).contains(&rounds), "{rounds}");
    for (nic, (name, address)) in list(&document, "nics")
        .iter()
        .zip([("near0", "10.77.0.2"), ("near1", "10.77.1.2")])
    {
        assert_eq!(
            (&nic["nic"], &nic["address"]),
            (&name.into(), &address.into())
        );
        assert_eq!(nic["bound_by"], "device");
        assert_eq!(nic["elsewhere"], Value::Array(Vec::new()));
        assert!(number(&nic["together"]["rate_bit_per_s"]) > 0.0, "{nic}");
    }
}

#[test]
fn four_nics_without_a_common_parent_move_the_sum_of_each_alone() {
    let Some(lab) = Lab::new() else { return };
    pairs(&lab, 4);
    let words = ["--time", "1", "--rounds", "4", "--seed", "7"];
    let document = compared(&lab, "near0,near1,near2,near3", &words);
    assert_adds_up(&document);
    assert_eq!(document["seed"], 7);
    // Four alone, and four at once.
    let rounds = document["rounds"].as_u64().expect("a number");
    assert_eq!(list(&document, "trials").len() as u64, rounds * 8);
}

#[test]
fn the_shaper_of_the_common_parent_of_two_nics_is_their_shared_bound() {
    let Some(lab) = Lab::new() else { return };
    if !children(&lab, 2) {
        return;
    }
    let words = ["--time", "1", "--rounds", "8"];
    let document = compared(&lab, "child0,child1", &words);
    let interaction = &document["interaction"];
    assert_eq!(interaction["verdict"], "less", "{interaction}");
    assert!(number(&interaction["relative"]) < -0.3, "{interaction}");
    let bound = &document["bound"];
    assert_eq!(bound["what"], "interface", "{bound}");
    assert_eq!(bound["end"], "local", "{bound}");
    let says = bound["says"].as_str().expect("text");
    assert!(says.contains("near0, which the paths share"), "{says}");
}

#[test]
fn four_nics_with_a_common_parent_move_as_much_as_one() {
    let Some(lab) = Lab::new() else { return };
    if !children(&lab, 4) {
        return;
    }
    let nics = "child0,child1,child2,child3";
    let document = compared(&lab, nics, &["--time", "1", "--rounds", "4"]);
    let interaction = &document["interaction"];
    assert!(number(&interaction["relative"]) < -0.5, "{interaction}");
    let together = number(&document["together"]["rate_bit_per_s"]);
    assert!(together < 12e6, "{together}");
}

#[test]
fn bytes_that_arrive_at_another_interface_of_the_peer_are_flagged() {
    let Some(lab) = Lab::new() else { return };
    pairs(&lab, 2);
    // far answers for the address of far0 on far1 too, to which near1 leads (arp_ignore is 0).
    let words = ["--time", "1", "--rounds", "1"];
    let document = compared(&lab, "near0,near1=10.77.0.2", &words);
    let flag = Value::from("bytes-on-another-interface");
    assert!(
        list(&document, "flags").contains(&flag),
        "{}",
        document["flags"]
    );
    let [straight, diverted] = list(&document, "nics") else {
        panic!("two NICs");
    };
    assert_eq!(straight["elsewhere"], Value::Array(Vec::new()));
    let missed = &diverted["elsewhere"][0];
    assert_eq!(
        (&missed["end"], &missed["nic"]),
        (&"remote".into(), &"far0".into())
    );
    assert!(
        number(&missed["counted_bytes"]) < number(&missed["payload_bytes"]) / 2.0,
        "{missed}"
    );
}

#[test]
fn two_nics_in_one_subnet_are_measured_and_the_one_that_carries_all_is_named() {
    let Some(lab) = Lab::new() else { return };
    pairs(&lab, 2);
    outside(
        &lab,
        "for end in near:3 far:4; do
            host=${end%:*}
            ip -n $host address flush dev $host'1'
            ip -n $host address add 10.77.0.${end#*:}/24 dev $host'1'
        done",
    );
    let words = ["--time", "1", "--rounds", "1"];
    let document = compared(&lab, "near0,near1", &words);
    let second = &document["nics"][1];
    assert_eq!(second["bound_by"], "address", "{second}");
    let missed = &second["elsewhere"][0];
    assert_eq!(
        (&missed["end"], &missed["nic"]),
        (&"local".into(), &"near1".into())
    );
    assert_eq!(missed["over"], serde_json::json!(["near0"]), "{missed}");
}

#[test]
fn the_text_has_the_interaction_and_fits_a_terminal() {
    for lab in Lab::for_each_channel() {
        pairs(&lab, 2);
        check_text(&lab);
    }
}

#[track_caller]
fn check_text(lab: &Lab) {
    let words = [
        "measure",
        "stream",
        "netns:far",
        "--nic",
        "near0,near1",
        "--time",
        "0.5",
        "--rounds",
        "3",
        "--reverse",
    ];
    let done = lab.run(&words).expect_code(0);
    for line in done.out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for start in [
        "NIC ",
        "near0 to far0 ",
        "near1 to far1 ",
        "sum ",
        "interaction ",
        "order ",
    ] {
        let mut lines = done.out.lines();
        assert!(
            lines.any(|line| line.starts_with(start)),
            "{start}: {}",
            done.out
        );
    }
    let runs = lab.run(&["--format", "json", "runs"]).expect_code(0);
    let runs = fitting(&runs.out);
    let run = runs["runs"][0]["run"].as_str().expect("it is stored");
    let stored = lab.run(&["--format", "json", "report", run]).expect_code(0);
    let stored = fitting(&stored.out);
    let labels: Vec<&Value> = list(&stored, "results")
        .iter()
        .map(|result| &result["label"])
        .collect();
    let expected = [
        "near0 alone",
        "near0 together",
        "near1 alone",
        "near1 together",
    ];
    assert_eq!(labels, expected);
}

#[test]
fn an_interrupted_comparison_ends_with_130_and_keeps_whole_rounds() {
    let Some(lab) = Lab::new() else { return };
    pairs(&lab, 2);
    let words = [
        "--format",
        "json",
        "measure",
        "stream",
        "netns:far",
        "--nic",
        "near0,near1",
        "--time",
        "0.5",
        "--rounds",
        "1000",
    ];
    let mut child = lab
        .linerate(&words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut talk = String::new();
    // One in which a NIC moved nothing is left out: hardly each of the first three.
    while !talk.lines().any(|line| line.starts_with("round 4: ")) {
        let read = said.read_line(&mut talk).expect("it talks");
        assert!(read > 0, "it ended before its fourth round: {talk}");
    }
    kill_process(pid.expect("a number"), Signal::INT).expect("our own child");
    let mut out = String::new();
    let mut printed = child.stdout.take().expect("piped");
    printed.read_to_string(&mut out).expect("it prints");
    said.read_to_string(&mut talk).expect("it talks");
    let status = child.wait().expect("our own child");
    assert_eq!(status.code(), Some(130), "{talk}");
    let document = fitting(&out);
    let rounds = document["rounds"].as_u64().expect("a number");
    assert!(rounds >= 1);
    let trials = list(&document, "trials");
    assert_eq!(trials.len() as u64, 4 * rounds);
    for trial in trials {
        let flags = trial["flags"].as_array().expect("flags");
        assert!(!flags.contains(&"cut-short".into()), "a part: {flags:?}");
    }
    assert_eq!(document["stopped"], "interrupted");
}

#[test]
fn what_cannot_be_measured_over_is_an_error_that_names_the_reason_and_a_way_on() {
    let Some(lab) = Lab::new() else { return };
    pairs(&lab, 2);
    outside(
        &lab,
        "ip -n near link add lone0 type veth peer name lone1
        ip -n near address add 10.79.0.1/24 dev lone0
        ip -n near link set lone1 up
        ip -n near link set lone0 up
        until ip -n near link show lone0 | grep -q 'state UP'; do :; done",
    );
    for (nics, reason, hint) in [
        ("near0,none0", "no such interface", "near0"),
        ("near0,lone0", "no subnet", "lone0=ADDRESS"),
        ("near0,lone1", "it has no address", "ip address add"),
        ("near0,near1=10.9.9.9", "10.9.9.9", "10.77.1.2"),
    ] {
        let done = lab.run(&["measure", "stream", "netns:far", "--nic", nics]);
        assert_eq!(done.code, Some(23), "{nics}: {}", done.err);
        assert!(done.err.contains(reason), "{nics}: {}", done.err);
        assert!(done.err.contains(hint), "{nics}: {}", done.err);
    }
    outside(&lab, "ip -n near link set near1 down");
    let done = lab.run(&["measure", "stream", "netns:far", "--nic", "near0,near1"]);
    assert_eq!(done.code, Some(23), "{}", done.err);
    assert!(done.err.contains("ip link set near1 up"), "{}", done.err);
}

#[test]
fn what_makes_no_sense_with_several_nics_is_a_usage_error() {
    let Some(lab) = Lab::new() else { return };
    for words in [
        &["netns:far", "--nic", "near0"][..],
        &["netns:far", "--nic", "near0,near0"],
        &["netns:far", "--nic", "near0,near1=peer"],
        &["local", "--nic", "near0,near1"],
        &["netns:far", "--nic", "near0,near1", "--ladder"],
        &["netns:far", "--nic", "near0,near1", "--bytes", "1MiB"],
        &[
            "netns:far",
            "--nic",
            "near0,near1",
            "--address",
            "10.77.0.2",
        ],
        &["netns:far", "--nic", "near0,near1", "--transport", "verbs"],
        &["netns:far", "--nic", "near0,near1", "--until-ci", "1%"],
        &["netns:far", "--nic", "near0,near1", "--rounds", "0"],
        &["netns:far", "--nic", "near0,near1", "--verbose"],
        &["--iperf3", "127.0.0.1", "--nic", "near0,near1"],
    ] {
        let done = lab.run(&[&["measure", "stream"], words].concat());
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
        assert_eq!(done.out, "", "{words:?}");
    }
}
