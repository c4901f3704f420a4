//! `--require`: a measurement that passes, fails, or is inconclusive.

use std::process::{Command, Stdio};

use crate::fitting;
use crate::job::{Done, run};
use crate::lab::{Lab, text};

/// The distribution's, for which the reader's module is installed.
const PYTHON: &str = "/usr/bin/python3";
/// All data of `near` passes this rate.
const SHAPER: &str = "tc qdisc add dev near0 root tbf rate 100mbit burst 32kb latency 20ms";

/// Short trials, of which there are at least 20.
fn measured(lab: &Lab, before: &[&str], require: &[&str]) -> Done {
    let mut words = before.to_vec();
    words.extend(["measure", "stream", "netns:far", "-t", "0.3"]);
    words.extend(require.iter().flat_map(|bound| ["--require", bound]));
    lab.run(&words)
}

#[test]
fn a_share_of_the_ceiling_is_a_bound_and_a_path_without_one_tells_nothing() {
    let Some(lab) = Lab::new() else { return };
    let done = measured(&lab, &[], &["rate>=90%ceiling"]).expect_code(12);
    assert!(
        done.err.contains("no ceiling of this path is known"),
        "{}",
        done.err
    );
    lab.shell("near", SHAPER);
    // Far from what passes: on a busy machine little arrives in some of the short trials.
    let done = measured(&lab, &["--json"], &["rate >= 0.5%ceiling"]).expect_code(0);
    let document = fitting(&done.out);
    let judged = &document["requirements"][0];
    assert_eq!(judged["verdict"], "kept");
    let bound = judged["bound"].as_f64().expect("a bound");
    // The shaper counts the frames, so the payload's ceiling is a little below it.
    assert!((4.5e5..5e5).contains(&bound), "{judged:#}");
    let done = measured(&lab, &[], &["rate<=0.5%ceiling", "rate>=10kb/s"]).expect_code(11);
    assert!(
        done.out.contains("BROKEN") && done.out.contains("kept"),
        "{}",
        done.out
    );
    assert!(
        done.err.contains("violated: rate<=0.5%ceiling"),
        "{}",
        done.err
    );
}

#[test]
fn junit_has_a_case_for_each_requirement_and_its_own_reader_counts_them() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", SHAPER);
    let bounds = ["rate>=1Gb/s", "rate>=10kb/s", "p99<=1us"];
    let done = measured(&lab, &["--format", "junit"], &bounds).expect_code(11);
    let file = lab.path("junit.xml");
    std::fs::write(&file, &done.out).expect("the lab's folder");
    let script = "import sys, junitparser\n\
        xml = junitparser.JUnitXml.fromfile(sys.argv[1])\n\
        for suite in xml:\n    print(suite.tests, suite.failures, suite.errors, suite.skipped)";
    let module = Command::new(PYTHON)
        .args(["-c", "import junitparser"])
        .stderr(Stdio::null())
        .status();
    if module.is_ok_and(|status| status.success()) {
        let mut reader = Command::new(PYTHON);
        reader.args(["-c", script, text(&file)]);
        assert_eq!(
            run(reader).expect_code(0).out.trim(),
            "3 1 1 0",
            "{}",
            done.out
        );
    } else {
        eprintln!(
            "SKIP: python3-junitparser is not installed: JUnit's XML is not read by a reader of others"
        );
    }
    let done = measured(&lab, &["--format", "junit"], &[]).expect_code(2);
    assert!(done.err.contains("without `--require`"), "{}", done.err);
}
