//! Who guards changes that are not decided: the process that made them, its reverter, and with both gone
//! the journal. And who may decide.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::{Signal, kill_process};

use crate::fitting;
use crate::job::{Done, HANGS, Job, run};
use crate::lab::{Lab, assert_same, text};

const PLAN: &str = "[settings]
\"sysctl/net.ipv4.tcp_sack\" = 0
\"sysctl/net.ipv4.tcp_rmem\" = \"4096 131072 7000000\"
\"nic/near0/mtu\" = 1400
";

fn plan(lab: &Lab) -> PathBuf {
    let file = lab.path("plan.toml");
    std::fs::write(&file, PLAN).expect("the lab's folder");
    file
}

/// A `tune apply` that has made its changes and waits for a decision.
fn waiting(lab: &Lab, deadline: &str) -> Job {
    let file = plan(lab);
    let arguments = [
        "tune",
        "apply",
        "--from",
        text(&file),
        "--deadline",
        deadline,
    ];
    let job = Job::start(lab.linerate(&arguments));
    wait_for_a_decision(lab, &job);
    job
}

/// Comes back when `job` has made changes and waits for them to be confirmed.
#[track_caller]
fn wait_for_a_decision(lab: &Lab, job: &Job) {
    let txn = lab.state().join("txn");
    let waits = || {
        let transactions = std::fs::read_dir(&txn).into_iter().flatten().flatten();
        let mut controls = transactions.map(|one| one.path().join("control"));
        controls.any(|control| control.exists())
    };
    let began = Instant::now();
    while !waits() {
        assert!(!job.has_ended(), "it ended before it waited");
        assert!(began.elapsed() < HANGS, "it neither ended nor waited");
        // The tests beside this one need the CPU.
        std::thread::yield_now();
    }
}

/// The family's process that has `word` on its command line.
fn process(job: &Job, word: &str) -> rustix::process::Pid {
    let family = job.family();
    let found = family.iter().find(|(_, line)| line.contains(word));
    found
        .unwrap_or_else(|| panic!("no {word} among {family:?}"))
        .0
}

fn end_of(job: &Job, word: &str, signal: Signal) {
    kill_process(process(job, word), signal).expect("it was there a moment ago");
}

/// The output of linerate for a user who logged in by an ssh server that starts now.
fn over_ssh(lab: &Lab, arguments: &str) -> Done {
    under_sshd(lab, &format!("{}; exit $?", linerate(lab, arguments)))
}

/// The same, where that server has a connection that comes in by near0 from [`neighbour`].
fn by_near0(lab: &Lab, arguments: &str) -> Done {
    let (host, port) = NEIGHBOUR.split_once(':').expect("both");
    let linerate = linerate(lab, arguments);
    under_sshd(
        lab,
        &format!("exec 3<>/dev/tcp/{host}/{port}; {linerate}; exit $?"),
    )
}

fn linerate(lab: &Lab, arguments: &str) -> String {
    let (linerate, state) = (crate::LINERATE, lab.state());
    format!("{linerate} --state {} {arguments}", state.display())
}

/// Runs a script on `near` below a process that is named like the ssh server.
fn under_sshd(lab: &Lab, script: &str) -> Done {
    let server = lab.path("sshd");
    crate::job::install("/bin/bash", &server);
    let mut command = lab.on("near", text(&server));
    command.args(["-c", script]);
    run(command)
}

/// Where [`neighbour`] listens.
const NEIGHBOUR: &str = "10.77.0.2:7777";

/// A process on `far` that has connections and never closes one, however long nothing comes.
fn neighbour(lab: &Lab) -> Job {
    let serve = Job::start({
        let mut command = lab.on("far", "perl");
        let listen = format!(
            "$SIG{{INT}} = sub {{ exit 0 }};
             my $all = IO::Socket::INET->new(Listen => 9, LocalAddr => '{NEIGHBOUR}', ReuseAddr => 1) or die $!;
             sleep while 1;"
        );
        command.args(["-MIO::Socket::INET", "-e", &listen]);
        command
    });
    let script = format!("until ss -Hltn | grep -q {NEIGHBOUR}; do :; done");
    lab.shell("far", &script);
    serve
}

fn status(lab: &Lab) -> String {
    lab.run(&["tune", "status"]).expect_code(0).out
}

#[test]
fn changes_that_are_confirmed_by_somebody_who_came_in_after_them_stay() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let job = waiting(&lab, "120");
    let confirmed = over_ssh(&lab, "--format json tune confirm").expect_code(0);
    let document = fitting(&confirmed.out);
    assert_eq!(document["transactions"][0]["state"], "applied");
    job.end().expect_code(0);
    assert_ne!(lab.dump(), before);
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_same(&lab, &before, "undone after its confirmation");
}

#[test]
fn what_somebody_else_changes_before_the_confirmation_is_told_and_stays() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let job = waiting(&lab, "120");
    lab.shell(
        "near",
        "sysctl -qw net.ipv4.tcp_sack=1; ip link set near0 mtu 1300",
    );
    over_ssh(&lab, "tune confirm").expect_code(0);
    let told = job.end().expect_code(0).err;
    for theirs in [
        "nic/near0/mtu is 1300: another program changed it after it was set to 1400, so it is not restored",
        "sysctl/net.ipv4.tcp_sack is 1: another program changed it after it was set to 0, so it is not restored",
    ] {
        assert!(told.contains(theirs), "{told}");
    }
    assert!(!told.contains("tcp_rmem"), "{told}");
    let undone = lab.run(&["tune", "undo"]).expect_code(0).out;
    let theirs = "nic/near0/mtu is 1300: another program changed it, so it was not restored to";
    assert!(undone.contains(theirs), "{undone}");
    lab.shell("near", "ip link set near0 mtu 1500");
    assert_same(&lab, &before, "with their change taken back by themselves");
}

#[test]
fn ctrl_c_while_nothing_is_decided_takes_everything_back() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let job = waiting(&lab, "120");
    job.send(Signal::INT);
    let err = job.end().expect_code(130).err;
    let words = "error: interrupted; all changes were rolled back";
    assert!(err.contains(words), "{err}");
    assert_same(&lab, &before, "after Ctrl-C");
    assert!(status(&lab).contains("no transactions"));
}

#[test]
fn a_commit_that_finds_no_room_takes_everything_back() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    // A write beyond a limit is an error, and not the end of the process.
    let apply = linerate(
        &lab,
        &format!("tune apply --from {} --deadline 120", file.display()),
    );
    let mut command = lab.on("near", "sh");
    command.args(["-c", &format!("trap '' XFSZ; exec {apply}")]);
    let job = Job::start(command);
    wait_for_a_decision(&lab, &job);
    let maker = process(&job, "tune apply").as_raw_nonzero();
    let journals = lab.state().join("txn");
    // From now on no file of its can grow, as on a disk that is full.
    let limit = format!(
        "prlimit --pid {maker} --fsize=$(stat -c %s {}/*/journal)",
        journals.display()
    );
    lab.shell("near", &limit);
    over_ssh(&lab, "tune confirm");
    let done = job.end();
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("cannot commit"), "{done:?}");
    assert!(
        done.err.contains("all changes were rolled back"),
        "{done:?}"
    );
    assert_same(&lab, &before, "without room for the commit");
    lab.run(&["tune", "recover"]).expect_code(0);
    assert!(status(&lab).contains("no transactions"));
}

#[test]
fn changes_made_over_ssh_are_not_confirmed_over_the_same_connection() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    // Nothing that the connection might come in by: this server has none.
    let file = lab.path("plan.toml");
    std::fs::write(&file, "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n").expect("a plan");
    let tune = linerate(&lab, "tune");
    let script = format!(
        "{tune} apply --from {} --deadline 120 & \
         until ls {}/txn/*/control 2>/dev/null; do kill -0 $! || exit 1; done; \
         {tune} confirm; echo confirmed $?; {tune} undo $({tune} status | cut -d' ' -f1); wait $!; \
         echo applied $?",
        file.display(),
        lab.state().display()
    );
    let done = under_sshd(&lab, &script);
    assert!(
        done.err.contains("older than the last change"),
        "{}",
        done.err
    );
    assert!(done.out.contains("confirmed 21"), "{}", done.out);
    assert!(done.out.contains("applied 30"), "{}", done.out);
    assert_same(&lab, &before, "told to undo while it waited");
}

#[test]
fn changes_that_nobody_confirms_are_taken_back_at_the_deadline() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let done = waiting(&lab, "10").end();
    // On a busy machine the reverter may be first, and ends the maker.
    let by_maker = done.code == Some(40) && done.err.contains("not confirmed within 10 s");
    let by_reverter = done.signal == Some(9) && done.err.contains("rolled back by the reverter");
    assert!(by_maker || by_reverter, "{done:?}");
    assert_same(&lab, &before, "after the deadline");
}

#[test]
fn what_a_killed_process_changed_its_reverter_takes_back() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let job = waiting(&lab, "120");
    end_of(&job, " tune ", Signal::KILL);
    let done = job.end();
    assert!(
        done.err.contains("rolled back by the reverter"),
        "{}",
        done.err
    );
    assert_same(&lab, &before, "killed while it waited");
    assert!(status(&lab).contains("undone"), "{}", status(&lab));
}

#[test]
fn what_a_hanging_process_changed_is_taken_back_at_the_deadline() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let job = waiting(&lab, "30");
    end_of(&job, " tune ", Signal::STOP);
    let done = job.end();
    assert_eq!(done.signal, Some(9), "{}", done.err);
    assert_same(&lab, &before, "stopped while it waited");
    assert!(
        status(&lab).contains("the deadline passed"),
        "{}",
        status(&lab)
    );
}

#[test]
fn without_its_reverter_a_process_holds_the_deadline_itself() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let job = waiting(&lab, "30");
    end_of(&job, " reverter ", Signal::KILL);
    job.end().expect_code(40);
    assert_same(&lab, &before, "the reverter killed");
}

/// Changes with nobody left to take them back: maker and reverter are killed.
fn orphaned(lab: &Lab, before: &str) {
    let job = waiting(lab, "120");
    let maker = process(&job, " tune ");
    end_of(&job, " reverter ", Signal::KILL);
    kill_process(maker, Signal::KILL).expect("it waits");
    job.end();
    assert_ne!(lab.dump(), before, "nobody was left to take it back");
}

#[test]
fn with_both_killed_recover_takes_everything_back() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    orphaned(&lab, &before);
    lab.run(&["tune", "recover"]).expect_code(0);
    assert_same(&lab, &before, "recovered");
}

#[test]
fn with_both_killed_the_next_change_begins_with_a_recovery() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    orphaned(&lab, &before);
    let file = lab.path("next.toml");
    std::fs::write(&file, "[settings]\n\"nic/near0/mtu\" = 1300\n").expect("a plan");
    let next = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    let next = next.expect_code(0);
    assert!(next.err.contains("was incomplete"), "{}", next.err);
    assert!(next.out.contains("mtu: 1500 -> 1300"), "{}", next.out);
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_same(&lab, &before, "recovered, and the next change undone");
}

/// The capability that configuring a network takes (capabilities(7)).
const NET_ADMIN: u64 = 1 << 12;

#[test]
fn a_reverter_holds_what_its_plan_needs_and_nothing_else_and_still_reverts() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let inherited = lab.path("inherited");
    std::fs::write(&inherited, "").expect("the lab's folder");
    // An unrelated file is open when linerate is started.
    let apply = linerate(&lab, "tune apply --deadline 120 --from");
    let script = format!(
        "exec {apply} {} 9<{}",
        plan(&lab).display(),
        text(&inherited)
    );
    let mut command = lab.on("near", "bash");
    command.args(["-c", &script]);
    let job = Job::start(command);
    wait_for_a_decision(&lab, &job);
    let reverter = process(&job, " reverter ").as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{reverter}/status")).expect("it stands by");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {status}"));
        u64::from_str_radix(line.trim(), 16).expect("a number")
    };
    for (set, may) in [
        ("CapPrm:", NET_ADMIN),
        ("CapEff:", NET_ADMIN),
        ("CapBnd:", NET_ADMIN),
        ("CapInh:", 0),
        ("CapAmb:", 0),
        ("NoNewPrivs:", 1),
    ] {
        assert_eq!(field(set), may, "{set} {:x}", field(set));
    }
    let open = std::fs::read_dir(format!("/proc/{reverter}/fd")).expect("it stands by");
    let open: Vec<PathBuf> = open
        .filter_map(|entry| std::fs::read_link(entry.expect("it stands by").path()).ok())
        .collect();
    assert!(open.len() > 2, "{open:?}");
    assert!(!open.contains(&inherited), "{open:?}");
    end_of(&job, " tune ", Signal::KILL);
    let done = job.end();
    assert!(
        done.err.contains("rolled back by the reverter"),
        "{}",
        done.err
    );
    assert_same(&lab, &before, "killed while it waited");
    assert!(
        self::status(&lab).contains("undone"),
        "{}",
        self::status(&lab)
    );
}

#[test]
fn two_transactions_at_once_are_refused_and_the_first_is_named() {
    let Some(lab) = Lab::new() else { return };
    let job = waiting(&lab, "199");
    let other = lab.path("other.toml");
    std::fs::write(
        &other,
        "[settings]\n\"sysctl/net.ipv4.tcp_timestamps\" = 0\n",
    )
    .expect("a plan");
    let second = ["tune", "apply", "--no-confirm", "--from", text(&other)];
    let refused = lab.run(&second).expect_code(41);
    assert!(
        refused.err.contains("is changing settings here"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("it rolls back in 1"),
        "{}",
        refused.err
    );
    job.send(Signal::INT);
    job.end().expect_code(130);
    lab.run(&second).expect_code(0);
}

#[test]
fn a_probe_that_fails_after_the_change_takes_it_back_and_one_that_fails_before_prevents_it() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let nobody = probe(&lab, &plan(&lab), "10.77.0.2:9").expect_code(20);
    assert!(nobody.err.contains("nothing was changed"), "{}", nobody.err);
    assert_same(&lab, &before, "a probe that failed before");
    let serve = neighbour(&lab);
    let done = probe(&lab, &plan(&lab), NEIGHBOUR).expect_code(0);
    assert!(done.err.contains("to roll back"), "{}", done.err);
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_same(&lab, &before, "undone");
    // With one port, the host can connect to one address once a minute (TIME-WAIT, RFC 9293).
    let one_port = lab.path("one-port.toml");
    let text = "[settings]\n\"sysctl/net.ipv4.ip_local_port_range\" = [40000, 40000]\n";
    std::fs::write(&one_port, text).expect("a plan");
    let mut command = lab.linerate(&["tune", "apply", "--from"]);
    command
        .arg(&one_port)
        .args(["--probe", NEIGHBOUR, "--probe", NEIGHBOUR]);
    let done = run(command).expect_code(20);
    assert!(
        done.err.contains("all changes were rolled back"),
        "{}",
        done.err
    );
    assert_same(&lab, &before, "a probe that failed after");
    serve.send(Signal::INT);
    serve.end().expect_code(0);
}

fn probe(lab: &Lab, plan: &Path, address: &str) -> Done {
    lab.run(&["tune", "apply", "--from", text(plan), "--probe", address])
}

#[test]
fn an_mtu_that_would_take_ipv6_away_for_good_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("small.toml");
    std::fs::write(&file, "[settings]\n\"nic/near0/mtu\" = 1000\n").expect("a plan");
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    lab.shell("near", "ip address add fd00:77::1/64 dev near0 nodad");
    let before = lab.dump();
    let refused = lab.run(&apply).expect_code(22);
    assert!(refused.err.contains("removes IPv6 from"), "{}", refused.err);
    assert_same(&lab, &before, "refused");
}

#[test]
fn the_interface_that_an_ssh_connection_comes_in_by_is_not_cut_off() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let serve = neighbour(&lab);
    let apply = |name: &str, setting: &str, flag: &str| {
        let file = lab.path(name);
        std::fs::write(&file, format!("[settings]\n{setting}\n")).expect("a plan");
        let arguments = format!("tune apply --no-confirm --from {} {flag}", file.display());
        by_near0(&lab, &arguments)
    };
    for (name, setting, flag, why) in [
        ("cuts", "\"nic/near0/mtu\" = 1400", "", "may disconnect it"),
        (
            "cuts",
            "\"nic/near0/mtu\" = 1400",
            "--allow-management-disruption",
            "may disconnect it",
        ),
        (
            "stalls",
            "\"nic/near0/feature/tso\" = \"off\"",
            "",
            "--allow-management-disruption",
        ),
    ] {
        let refused = apply(name, setting, flag).expect_code(21);
        assert!(refused.err.contains("uses near0"), "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
        assert_same(&lab, &before, name);
    }
    apply(
        "stalls",
        "\"nic/near0/feature/tso\" = \"off\"",
        "--allow-management-disruption",
    )
    .expect_code(0);
    apply("harmless", "\"sysctl/net.ipv4.tcp_sack\" = 0", "").expect_code(0);
    lab.run(&["tune", "undo"]).expect_code(0);
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_same(&lab, &before, "undone");
    serve.send(Signal::INT);
    serve.end().expect_code(0);
}

#[test]
fn classes_are_made_on_the_management_interface_only_where_it_may_be_disrupted() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let serve = neighbour(&lab);
    let file = lab.path("classes.toml");
    let classes = "[qos]\ninterface = \"near0\"\n[[class]]\nname = \"low\"\npriority = 1\nlimit = \"50mbit\"\n";
    std::fs::write(&file, classes).expect("a file");
    let apply = |flag: &str| {
        let arguments = format!("qos apply {} --no-confirm {flag}", file.display());
        by_near0(&lab, &arguments)
    };
    let refused = apply("");
    if refused.code == Some(22) {
        eprintln!("SKIP: this kernel cannot hold the limits: {}", refused.err);
        return;
    }
    let refused = refused.expect_code(21);
    for part in ["uses near0", "--allow-management-disruption"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert_same(&lab, &before, "refused");
    apply("--allow-management-disruption").expect_code(0);
    lab.run(&["qos", "undo"]).expect_code(0);
    assert_same(&lab, &before, "undone");
    serve.send(Signal::INT);
    serve.end().expect_code(0);
}

#[test]
fn prove_does_not_try_what_would_disturb_the_way_in_unless_told() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", crate::prove::NO_SEGMENTATION);
    let before = lab.dump();
    let serve = neighbour(&lab);
    let prove = |flag: &str| {
        let arguments = format!("prove netns:far --undo --trials 3 --time 0.1 {flag}");
        by_near0(&lab, &arguments).expect_code(0).out
    };
    let spared = prove("");
    let words = spared.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("your ssh connection uses near0"), "{spared}");
    assert!(
        words.contains("allow it with `--allow-management-disruption`"),
        "{spared}"
    );
    assert!(!prove("--allow-management-disruption").contains("your ssh connection"));
    assert_same(&lab, &before, "after both");
    serve.send(Signal::INT);
    serve.end().expect_code(0);
}

/// Every step of the writer, each of the victims: old or new, never a mix.
#[test]
fn whoever_is_killed_at_whatever_step_the_host_is_old_or_new() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    let before = lab.dump();
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    lab.run(&apply).expect_code(0);
    let after = lab.dump();
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_same(&lab, &before, "undone");
    for victims in ["self", "reverter", "both"] {
        let mut steps = 0;
        loop {
            steps += 1;
            let mut command = lab.linerate(&apply);
            command.env("LINERATE_CRASH", format!("maker:{steps}:{victims}"));
            let done = run(command);
            let where_ = format!("{victims} killed at step {steps}: {}", done.err);
            if victims == "both" {
                lab.run(&["tune", "recover"]).expect_code(0);
            }
            let now = lab.dump();
            if now == after {
                lab.run(&["tune", "undo"]).expect_code(0);
                assert_same(&lab, &before, &where_);
                if done.code == Some(0) && victims != "reverter" {
                    break;
                }
            } else {
                assert_eq!(now, before, "{where_}");
            }
            if victims == "reverter" && steps == 60 {
                break;
            }
        }
        assert!(steps > 30, "three changes have more steps than {steps}");
    }
}
