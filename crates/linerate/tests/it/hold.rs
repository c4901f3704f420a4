//! `tune hold`: settings that last as long as a command, however it or linerate ends.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::job::{HANGS, Job, ends_within};
use crate::lab::{Lab, assert_same, text};

const PLAN: &str = "[settings]
\"sysctl/net.ipv4.tcp_sack\" = 0
\"sysctl/net.ipv4.tcp_rmem\" = \"4096 131072 7000000\"
";

fn plan(lab: &Lab) -> String {
    let file = lab.path("held.toml");
    std::fs::write(&file, PLAN).expect("the lab's folder");
    text(&file).to_owned()
}

#[test]
fn a_command_runs_with_what_is_held_and_its_exit_code_is_handed_on() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    let script = "sysctl -n net.ipv4.tcp_sack net.ipv4.tcp_rmem; exit 7";
    let held = lab.run(&["tune", "hold", "--from", &file, "--", "sh", "-c", script]);
    let held = held.expect_code(7);
    assert_eq!(held.out, "0\n4096\t131072\t7000000\n");
    assert!(held.err.contains("settings were restored"), "{}", held.err);
    assert_same(&lab, &before, "after the command");
    let absent = lab.run(&["tune", "hold", "--from", &file, "--", "/no/such/program"]);
    let absent = absent.expect_code(23);
    assert!(
        absent.err.contains("cannot run /no/such/program"),
        "{}",
        absent.err
    );
    assert_same(&lab, &before, "after a command that is not there");
}

/// A `tune hold` whose command runs, and that command.
fn holding(lab: &Lab) -> (Job, Pid) {
    let file = plan(lab);
    let told = lab.path("pid");
    let told = text(&told);
    let script = format!("echo $$ >{told}.new; mv {told}.new {told}; exec sleep 1000");
    let hold = ["tune", "hold", "--from", &file, "--", "sh", "-c", &script];
    let job = Job::start(lab.linerate(&hold));
    let wait = format!("until [ -e {told} ]; do :; done; cat {told}; rm {told}");
    let command = lab.shell("near", &wait);
    let command = command.trim().parse().ok().and_then(Pid::from_raw);
    (job, command.expect("a process"))
}

#[test]
fn what_was_held_is_taken_back_when_the_command_or_linerate_is_killed() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let (job, command) = holding(&lab);
    assert_ne!(lab.dump(), before, "held");
    kill_process(command, Signal::KILL).expect("it sleeps");
    job.end().expect_code(137);
    assert_same(&lab, &before, "the command killed");

    let (job, command) = holding(&lab);
    let family = job.family();
    let find = |word: &str| {
        let found = family.iter().find(|(_, line)| line.contains(word));
        found
            .unwrap_or_else(|| panic!("no {word} among {family:?}"))
            .0
    };
    let its_end = pidfd_open(find(" reverter "), PidfdFlags::empty()).expect("it lives");
    kill_process(find(" tune "), Signal::KILL).expect("it waits");
    assert!(
        ends_within(&its_end, HANGS),
        "the reverter does its work and ends"
    );
    assert_same(&lab, &before, "linerate killed, its command not");
    kill_process(command, Signal::KILL).expect("it outlives linerate");
    job.end();
}

#[test]
fn sigterm_reaches_the_command_and_then_everything_is_taken_back() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let (job, _) = holding(&lab);
    job.send(Signal::TERM);
    job.end().expect_code(143);
    assert_same(&lab, &before, "after SIGTERM");
}

#[test]
fn without_a_command_settings_are_held_until_ctrl_c() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    let job = Job::start(lab.linerate(&["tune", "hold", "--from", &file]));
    lab.shell(
        "near",
        "until [ $(sysctl -n net.ipv4.tcp_sack) = 0 ]; do :; done",
    );
    job.send(Signal::INT);
    job.end().expect_code(0);
    assert_same(&lab, &before, "after Ctrl-C");
}

#[test]
fn what_only_a_process_can_hold_is_not_applied_and_says_who_can() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("latency.toml");
    std::fs::write(&file, "[settings]\n\"cpu/max-latency-us\" = 5\n").expect("a plan");
    let refused = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    let refused = refused.expect_code(22);
    assert!(refused.err.contains("tune hold"), "{}", refused.err);
    let other = lab.run(&["tune", "hold", "--role", "latency", "--", "true"]);
    let other = other.expect_code(2);
    assert!(other.err.contains("--from"), "{}", other.err);
}

#[track_caller]
fn assert_goes_on(lab: &Lab, state: &str) {
    let seen = lab.shell("near", state);
    // Right after it was continued it may not have gone back to sleep.
    assert!(matches!(&*seen, "State:\tS\n" | "State:\tR\n"), "{seen}");
}

/// A process that is named like irqbalance, and what state it is in.
#[test]
fn irqbalance_is_stopped_while_a_command_runs_and_goes_on_after_it() {
    let Some(lab) = Lab::new() else { return };
    if lab.is_user() {
        eprintln!("SKIP: a setting of the machine takes root");
        return;
    }
    let program = lab.path("irqbalance");
    crate::job::install("/bin/sleep", &program);
    let mut daemon = lab.on("near", text(&program));
    daemon.arg("1000");
    let daemon = Job::start(daemon);
    lab.shell(
        "near",
        "until grep -qx irqbalance /proc/[0-9]*/comm; do :; done",
    );
    let file = lab.path("paused.toml");
    std::fs::write(&file, "[settings]\n\"irqbalance/paused\" = true\n").expect("a plan");
    let planned = lab.run(&["tune", "plan", "--role", "measurement"]);
    let planned = planned.expect_code(0);
    assert!(
        planned.out.contains("irqbalance/paused: off -> on   [R1"),
        "{}",
        planned.out
    );
    assert!(planned.err.contains("tune hold"), "{}", planned.err);
    let state = "grep -lx irqbalance /proc/[0-9]*/comm | while read file; do \
                 grep -o 'State:.[A-Z]' ${file%comm}status; done";
    let hold = [
        "tune",
        "hold",
        "--from",
        text(&file),
        "--",
        "sh",
        "-c",
        state,
    ];
    let held = lab.run(&hold).expect_code(0);
    assert_eq!(held.out, "State:\tT\n");
    assert_goes_on(&lab, state);
    daemon.kill();
    // Another user's process of that name does not count: it neither blocks nor is it stopped.
    let mut foreign = lab.on("near", "setpriv");
    foreign.args(["--reuid", "65534", "--clear-groups", text(&program), "1000"]);
    let foreign = Job::start(foreign);
    lab.shell(
        "near",
        "until grep -qx irqbalance /proc/[0-9]*/comm; do :; done",
    );
    let gone = lab.run(&hold).expect_code(22);
    assert!(gone.err.contains("no irqbalance runs"), "{}", gone.err);
    assert_goes_on(&lab, state);
    foreign.kill();
}
