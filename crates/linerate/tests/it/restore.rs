//! `prove` stopped at chosen points, by SIGKILL and by Ctrl-C: both hosts are restored byte for byte, no
//! process is left, and the run can be read up to that point.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::fitting;
use crate::job::{Done, Job, run};
use crate::lab::{Lab, assert_same, text};
use crate::watch::{Seeded, Watch};

/// Settings of both ends are changed and undone again and again: the widest target for a kill.
const FAULTS: [(&str, &str); 3] = [
    ("near", "ethtool -K near0 tso off gso off || true"),
    ("near", "sysctl -qw net.ipv4.tcp_wmem='4096 16384 16384'"),
    ("far", "sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384'"),
];
/// How many points are tried.
const KILLS: u32 = 10;
const INTERRUPTS: u32 = 4;
/// The minimum number of events that a whole run of these faults has: the records of fourteen trials and
/// of a stage for two fixes (each record is one), and the journals of their changes (two ends of one
/// fault; made, named, five lines, removed).
const EVENTS: usize = 60;

fn start(lab: &Lab, out: &Path) -> Job {
    Job::start(lab.linerate(&[
        "--format",
        "json",
        "prove",
        "netns:far",
        "--undo",
        "--trials",
        "3",
        "--time",
        "0.1",
        "--seed",
        "3",
        "--out",
        text(out),
    ]))
}

fn plant(lab: &Lab) -> String {
    for (host, fault) in FAULTS {
        lab.shell(host, fault);
    }
    lab.dump()
}

/// The run that a stopped `prove` left must be readable; without both hosts it may report it (12), and
/// without a header it is no run yet (23).
#[track_caller]
fn assert_readable(lab: &Lab, out: &Path) {
    let done = lab.run(&["--format", "json", "report", text(out)]);
    match done.code {
        Some(0) => {
            fitting(&done.out);
        }
        Some(12) => assert!(done.err.contains("ended before"), "{}", done.err),
        Some(23) => assert!(!out.join("records.jsonl").exists(), "{}", done.err),
        _ => {
            done.expect_code(0);
        }
    }
}

/// Stops a run at the `moment`-th event; none if it was over before.
#[track_caller]
fn stopped(
    lab: &Lab,
    number: u32,
    moment: usize,
    stop: impl Fn(Job) -> Done,
) -> (PathBuf, Option<Done>) {
    let out = lab.path(&format!("run-{number}"));
    let watch = Watch::new(&out, &lab.state());
    let job = start(lab, &out);
    let seen = watch.wait(moment, &job.ending());
    if seen < moment {
        job.end().expect_code(0);
        return (out, None);
    }
    (out, Some(stop(job)))
}

#[test]
fn after_a_sigkill_at_any_moment_tune_recover_puts_both_hosts_back() {
    let Some(lab) = Lab::new() else { return };
    let before = plant(&lab);
    let mut random = Seeded::new(1);
    let mut killed = 0;
    for number in 0..KILLS {
        let moment = random.up_to(EVENTS);
        let (out, done) = stopped(&lab, number, moment, Job::kill);
        let Some(done) = done else { continue };
        // It may have ended between the event and the signal.
        if done.signal == Some(9) {
            killed += 1;
        }
        let recovered = lab
            .run(&["--format", "json", "tune", "recover"])
            .expect_code(0);
        assert_same(
            &lab,
            &before,
            &format!("killed at event {moment}\n{}", recovered.out),
        );
        assert_readable(&lab, &out);
        let status = lab.run(&["tune", "status"]).expect_code(0).out;
        assert!(!status.contains("open"), "{status}");
    }
    assert!(
        killed >= KILLS / 2,
        "only {killed} of {KILLS} kills came in time"
    );
    // Recovering again finds nothing.
    let again = lab.run(&["tune", "recover"]).expect_code(0).out;
    assert!(again.contains("nothing to recover"), "{again}");
}

#[test]
fn an_interrupt_at_any_moment_ends_with_130_and_both_hosts_as_before() {
    let Some(lab) = Lab::new() else { return };
    let before = plant(&lab);
    let mut random = Seeded::new(2);
    let mut interrupted = 0;
    for number in 0..INTERRUPTS {
        let moment = random.up_to(EVENTS);
        let (out, done) = stopped(&lab, number, moment, |job| {
            let family = job.family();
            job.send(Signal::INT);
            let done = job.end();
            for (pid, words) in family {
                let proc = format!("/proc/{}", pid.as_raw_nonzero());
                assert!(!Path::new(&proc).exists(), "still there: {words}");
            }
            done
        });
        let Some(done) = done else { continue };
        if done.code == Some(0) {
            continue; // it was over before the signal came
        }
        let done = done.expect_code(130);
        assert!(done.err.contains("interrupted"), "{}", done.err);
        interrupted += 1;
        assert_same(&lab, &before, &format!("interrupted at event {moment}"));
        assert_readable(&lab, &out);
        let status = lab.run(&["tune", "status"]).expect_code(0).out;
        assert!(status.contains("no transactions"), "{status}");
    }
    assert!(interrupted > 0, "no interrupt came in time");
}

#[test]
fn a_measurement_that_is_interrupted_ends_with_130_and_claims_no_rollback() {
    let Some(lab) = Lab::new() else { return };
    let bytes = || lab.counter("near", "tx_bytes");
    let before = bytes();
    let job =
        Job::start(lab.linerate(&["measure", "stream", "netns:far", "--time", "60", "--why"]));
    // Once data flows; each check starts a program, so this is no busy loop.
    while bytes() < before + (1 << 20)
        && !crate::job::ends_within(&job.ending(), std::time::Duration::ZERO)
    {}
    job.send(Signal::INT);
    let done = job.end().expect_code(130);
    let says = "interrupted: the result is that of";
    assert!(done.err.contains(says), "{}", done.err);
    // It had changed nothing.
    assert!(!done.err.contains("rolled back"), "{}", done.err);
    run(lab.on("near", "true")).expect_code(0);
}
