//! `lab run` without a peer: it makes its own two hosts, which an ordinary user may do in another way than root.

use crate::fitting;
use crate::job::Job;
use crate::lab::{Lab, text};
use crate::watch::Watch;

#[test]
fn an_experiment_without_a_peer_makes_its_own_two_hosts() {
    let Some(lab) = Lab::new() else { return };
    let run = lab.path("alone");
    // Outside of both hosts: it makes others.
    let mut command = lab.outside(crate::LINERATE);
    command.arg("--state").arg(lab.state());
    command.args(["--format", "json", "lab", "run", "vxlan-cost", "--quick"]);
    command.args(["--time", "0.5", "--out", text(&run)]);
    let done = crate::job::run(command).expect_code(0);
    let document = fitting(&done.out);
    assert_eq!(document["complete"], true);
    let path = &document["factors"][0]["levels"];
    assert_eq!(path[0]["skipped"], serde_json::Value::Null);
    // The hosts that are made here have a VXLAN where the kernel can make one.
    if !has_vxlan(&lab) {
        let why = path[1]["skipped"].as_str().expect("there is no VXLAN here");
        assert!(why.contains("`tunnel`"), "{why}");
        return;
    }
    assert_eq!(path[1]["skipped"], serde_json::Value::Null, "{path:#}");
    let cells = document["responses"][0]["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["trials"] == 3), "{cells:#?}");
    // Published figures are shown with it, for two of the four combinations of the experiment.
    let published = document["published"].as_array().expect("figures");
    let yours = |at: usize| published[at]["yours"]["levels"].clone();
    assert_eq!(published.len(), 2);
    assert_eq!(yours(1), serde_json::json!(["vxlan", "1"]));
    assert_eq!(published[1]["low"], 28e9);
    let ratio = |at: usize| published[at]["yours"]["ratio_low"].as_f64();
    assert!(
        ratio(0) > Some(0.0) && ratio(1) > Some(0.0),
        "{published:#?}"
    );
}

/// Whether the kernel makes VXLANs in these hosts.
fn has_vxlan(lab: &Lab) -> bool {
    let mut command = lab.on("near", "sh");
    let add = "ip link add try0 type vxlan id 9 remote 10.77.0.2 dstport 4790 dev near0";
    command.args(["-ec", &format!("{add}; ip link del try0")]);
    crate::job::run(command).code == Some(0)
}

#[test]
fn a_run_between_its_own_hosts_that_was_killed_makes_them_again() {
    let Some(lab) = Lab::new() else { return };
    let run = lab.path("alone");
    let linerate = |words: &[&str]| {
        let mut command = lab.outside(crate::LINERATE);
        command.arg("--state").arg(lab.state()).args(words);
        command
    };
    let words = [
        "--format",
        "json",
        "lab",
        "run",
        "vxlan-cost",
        "--quick",
        "--time",
        "0.5",
    ];
    let watch = Watch::new(&run, &lab.state());
    let job = Job::start(linerate(&[&words[..], &["--out", text(&run)]].concat()));
    let seen = watch.wait(8, &job.ending());
    assert!(seen >= 8, "it ended after {seen} events");
    job.kill();
    let done = crate::job::run(linerate(&["--format", "json", "lab", "resume", text(&run)]));
    let document = fitting(&done.expect_code(0).out);
    assert_eq!(document["complete"], true);
    let trials = if has_vxlan(&lab) { 12 } else { 6 };
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(trials));
}
