//! `failover` with commands at the peer, and with a failure that takes the control channel with it.

use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::Value;

use crate::failover::{
    assert_lost, backlog_drops, covers, dropped, holed, number, part, rules, trigger,
};
use crate::fitting;
use crate::job::{HANGS, Job, ends_within};
use crate::lab::{FAR, Lab, text};

/// Both directions of UDP, on near0: each counted by its own counter.
const HOLE: &str = "add rule netdev hole out meta l4proto udp counter name there drop
add rule netdev hole in meta l4proto udp counter name back drop
";
/// New connections of the control channel are refused.
const CUT_OFF: &str = "add table inet cut
add chain inet cut out { type filter hook output priority 0 ; }
add rule inet cut out tcp dport 5210 reject with tcp reset
";

const SHORT: [&str; 6] = ["--repeats", "1", "--time", "4s", "--workload", "udp"];

/// So few packets that a busy machine loses none, and none that is late.
const FEW: [&str; 6] = ["-P", "4", "--rate", "50", "--late", "5s"];

/// A command on `far` that fails `far0` for UDP, and one that repairs it.
fn far_hole(lab: &Lab) -> Option<(String, String)> {
    let table = "add table netdev hole
add counter netdev hole gone
add chain netdev hole out { type filter hook egress device far0 priority 0 ; }
";
    let hole = "add rule netdev hole out meta l4proto udp counter name gone drop\n";
    let heal = "flush chain netdev hole out\n";
    for (name, rules) in [("far-table", table), ("far-hole", hole), ("far-heal", heal)] {
        std::fs::write(lab.path(name), rules).expect("the lab's folder");
    }
    let mut nft = lab.on("far", "nft");
    nft.args(["-f", text(&lab.path("far-table"))]);
    let done = crate::job::run(nft);
    if done.code != Some(0) {
        eprintln!("SKIP: nftables cannot drop on egress here: {}", done.err);
        return None;
    }
    Some((rules(lab, "far-hole"), rules(lab, "far-heal")))
}

fn failover(lab: &Lab, peer: &str, options: &[&str]) -> Value {
    let words = [&["--format", "json", "failover", peer], options].concat();
    fitting(&lab.run(&words).expect_code(0).out)
}

/// Waits for a file that another process makes.
#[track_caller]
fn wait_for(path: &Path, job: Option<&Job>) -> String {
    let begun = std::time::Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => std::thread::yield_now(),
        }
        assert!(begun.elapsed() < HANGS, "{} is not made", path.display());
        assert!(!job.is_some_and(Job::has_ended), "linerate has ended");
    }
}

#[test]
fn a_command_at_the_peer_causes_a_failure_that_is_measured_and_ended() {
    let Some(lab) = Lab::new() else { return };
    let Some((hole, heal)) = far_hole(&lab) else {
        return;
    };
    let hole = format!("echo down; {hole}");
    let commands = ["--do-remote", &hole, "--restore-remote", &heal];
    let before = backlog_drops();
    let document = failover(&lab, "netns:far", &[&commands[..], &SHORT].concat());
    let udp = part(&document, "reverse", "udp");
    let listed = lab.shell("far", "nft -j list counter netdev hole gone");
    let listed: Value = serde_json::from_str(&listed).expect("JSON of nft");
    let counters = listed["nftables"].as_array().expect("a list");
    let mut counters = counters.iter();
    let gone = counters.find_map(|one| one["counter"]["packets"].as_u64());
    assert_lost(udp, gone.expect("a counter"), before);
    let failure = trigger(udp, "failure");
    assert!(number(&failure["gaps"]["count"]) > 0, "{udp:#}");
    let events = document["trials"][0]["events"].as_array().expect("a list");
    let shown: Vec<_> = events
        .iter()
        .map(|one| {
            (
                &one["end"],
                &one["trigger"],
                &one["exit_code"],
                &one["output"],
            )
        })
        .map(|(end, trigger, code, output)| format!("{end} {trigger} {code} {output}"))
        .collect();
    let expected = [
        r#""remote" "failure" 0 "down""#,
        r#""remote" "return" 0 """#,
    ];
    assert_eq!(shown, expected, "{document:#}");
    assert!(number(&events[0]["start_ns"]) < number(&events[1]["start_ns"]));
    let marks = document["trials"][0]["marks"].as_array().expect("a list");
    let is_shown = |mark: &Value| {
        let what = mark["what"].as_str();
        mark["kind"] == "failure"
            && what.is_some_and(|what| what.starts_with("failure at the peer"))
    };
    assert!(marks.iter().any(is_shown), "{marks:#?}");
    is_stored(&lab, &document);
}

/// The last run shows the same again.
#[track_caller]
fn is_stored(lab: &Lab, document: &Value) {
    let shown = lab.run(&["report", "last", "--format", "json"]);
    assert_eq!(&fitting(&shown.expect_code(0).out), document);
}

#[test]
fn a_listening_agent_runs_a_command_only_if_its_owner_allows_it() {
    let Some(lab) = Lab::new() else { return };
    let mark = lab.path("mark");
    let touch = format!("touch {}", text(&mark));
    let words = [&["failover", FAR, "--do-remote", &touch], &SHORT[..]].concat();
    let agent = lab.listen(&[]);
    let done = lab.run(&words).expect_code(21);
    assert!(done.err.contains("permits no commands"), "{}", done.err);
    assert!(done.err.contains("`--allow-commands`"), "{}", done.err);
    assert!(!mark.exists(), "it was run");
    // What the near end alone runs is its own affair.
    let here = [&["failover", FAR, "--do", "true"], &SHORT[..]].concat();
    lab.run(&here).expect_code(0);
    drop(agent);
    let _agent = lab.listen(&["--allow-commands"]);
    lab.run(&words).expect_code(0);
    assert!(mark.exists(), "it was not run");
}

#[test]
fn a_command_that_fails_at_the_peer_is_reported_with_its_output_and_the_return_is_run() {
    let Some(lab) = Lab::new() else { return };
    let mark = lab.path("restored");
    let restore = format!("touch {}", text(&mark));
    let words = [
        "failover",
        "netns:far",
        "--do-remote",
        "echo no such link >&2; exit 3",
        "--restore-remote",
        &restore,
        "--time",
        "20s",
    ];
    let err = lab.run(&words).expect_code(30).err;
    assert!(err.contains("at the peer: cannot run `echo no"), "{err}");
    assert!(err.contains("exit code 3: no such link"), "{err}");
    assert!(mark.exists(), "`--restore-remote` was not run: {err}");
}

#[test]
fn a_failure_that_the_peer_cannot_end_is_exit_code_31() {
    let Some(lab) = Lab::new() else { return };
    let commands = [
        "--do-remote",
        "true",
        "--restore-remote",
        "echo stuck; false",
    ];
    let words = [&["failover", "netns:far"], &commands[..], &SHORT].concat();
    let err = lab.run(&words).expect_code(31).err;
    assert!(err.contains("stuck"), "{err}");
}

#[test]
fn whatever_ends_this_end_the_command_at_the_peer_is_killed_with_its_children_and_the_failure_ended()
 {
    for signal in [Signal::INT, Signal::KILL] {
        let Some(lab) = Lab::new() else { return };
        let (pid, mark) = (lab.path("pid"), lab.path("restored"));
        let cause = format!("sh -c 'echo $$ >{}; exec sleep 1000' | cat", text(&pid));
        let restore = format!("echo done >{}", text(&mark));
        let job = Job::start(lab.linerate(&[
            "failover",
            "netns:far",
            "--do-remote",
            &cause,
            "--restore-remote",
            &restore,
        ]));
        let child = wait_for(&pid, Some(&job));
        let child = child.trim().parse().ok().and_then(Pid::from_raw);
        let child = pidfd_open(child.expect("a process"), PidfdFlags::empty());
        let child = child.expect("it runs until it is killed");
        job.send(signal);
        assert!(
            ends_within(&child, HANGS),
            "the command outlives {signal:?}"
        );
        wait_for(&mark, None);
        let done = job.end();
        if signal == Signal::INT {
            let done = done.expect_code(130);
            let result = "the result is that of 1 trial";
            assert!(done.err.contains(result), "{}", done.err);
        }
    }
}

/// The command that ends the near end of the control channel, and nothing else.
fn lose_control(lab: &Lab) -> String {
    format!(
        "kill -KILL $(pgrep -f -- '--state {} [c]hannel')",
        text(&lab.state())
    )
}

fn records(lab: &Lab) -> usize {
    let folder = lab.path("agent").join("records");
    std::fs::read_dir(folder).expect("it was made").count()
}

/// Each direction lost what the rule has dropped, although the record of one end came later.
#[track_caller]
fn is_whole(lab: &Lab, document: &Value, before: u64) {
    for (direction, counter) in [("forward", "there"), ("reverse", "back")] {
        let udp = part(document, direction, "udp");
        assert_lost(udp, dropped(lab, counter), before);
        // A sender that did not run while the hole was there lost nothing.
        let gaps = number(&trigger(udp, "failure")["gaps"]["count"]);
        assert!(gaps > 0 || dropped(lab, counter) == 0, "{udp:#}");
    }
}

#[test]
fn a_failure_that_takes_the_control_channel_is_measured_and_the_peers_record_fetched() {
    let Some(lab) = holed(HOLE) else { return };
    let before = backlog_drops();
    let _agent = lab.listen(&["--allow-commands"]);
    let mark = lab.path("restored");
    let cause = format!("{}; {}", lose_control(&lab), rules(&lab, "hole"));
    // The peer ends its part of the failure on its own.
    let restore = format!("echo done >{}", text(&mark));
    let heal = format!("sleep 0.3; {}", rules(&lab, "heal"));
    let cause = format!("{cause}; {heal}");
    let options = ["--do", &cause, "--restore-remote", &restore];
    let document = failover(&lab, FAR, &[&options[..], &SHORT].concat());
    is_whole(&lab, &document, before);
    assert!(mark.exists(), "the peer has not run its command");
    let events = document["trials"][0]["events"].as_array().expect("a list");
    assert_eq!(events.len(), 2, "{document:#}");
    assert_eq!(records(&lab), 0);
}

#[test]
fn a_control_connection_over_another_path_outlives_a_link_that_fails() {
    let Some(lab) = Lab::new() else { return };
    lab.shell(
        "near",
        "ip link add near1 type veth peer name far1 netns far && ip link set near1 up
         ip address add 10.78.0.1/24 dev near1
         ip -n far address add 10.78.0.2/24 dev far1 && ip -n far link set far1 up",
    );
    let _agent = lab.listen_unpaired(&[]);
    let pair = lab.of_agent(&["pair", "--advertise", "10.78.0.2"]);
    let line = crate::job::run(pair).expect_code(0).out;
    lab.run(&["peers", "pair", line.trim_end()]).expect_code(0);
    let path = ["--address", "10.77.0.2"];
    let event = ["--do", "ip link set near0 down"];
    let back = "ip link set near0 up";
    let options = [&path[..], &event, &["--restore", back], &SHORT].concat();
    let management = "tls://10.78.0.2:5210";
    let words = [&["--format", "json", "failover", management], &options[..]].concat();
    let done = lab.run(&words).expect_code(0);
    for what in ["uses near0, too", "control connection was lost"] {
        assert!(!done.err.contains(what), "{}", done.err);
    }
    let document = fitting(&done.out);
    assert_eq!(document["interrupted"], false);
    let events = &document["trials"][0]["events"];
    let down = number(&events[1]["start_ns"])
        - number(&events[0]["start_ns"])
        - number(&events[0]["took_ns"]);
    // The last packets before the link is up again wait for ARP, and are not late: `--late` is 100 ms.
    for direction in ["forward", "reverse"] {
        covers(
            part(&document, direction, "udp"),
            down.saturating_sub(100_000_000),
        );
    }
}

#[test]
fn records_of_a_peer_that_stays_away_are_joined_later() {
    let Some(lab) = holed(HOLE) else { return };
    let before = backlog_drops();
    std::fs::write(lab.path("cut"), CUT_OFF).expect("the lab's folder");
    let _agent = lab.listen(&[]);
    let cause = format!(
        "{}; {}; {}; sleep 0.3; {}",
        lose_control(&lab),
        rules(&lab, "cut"),
        rules(&lab, "hole"),
        rules(&lab, "heal")
    );
    let options = ["--do", &cause, "--reconnect", "1ms"];
    let words = [&["failover", FAR], &options[..], &SHORT].concat();
    let done = lab.run(&words).expect_code(20);
    assert!(
        done.err.contains("record of trial 1 is missing"),
        "{}",
        done.err
    );
    let hint = done.err.lines().find_map(|line| line.split_once("--join "));
    let (_, file) = hint.expect("it prints what to type");
    let file = file.trim_end_matches('`');
    lab.run(&["failover", FAR, "--join", file]).expect_code(20);
    let shown = lab.run(&["report", file]).expect_code(23);
    assert!(shown.err.contains("failover PEER --join"), "{}", shown.err);
    lab.shell("near", "nft delete table inet cut");
    assert_eq!(records(&lab), 1);
    let document = failover(&lab, FAR, &["--join", file]);
    is_whole(&lab, &document, before);
    is_stored(&lab, &document);
    assert_eq!(document["interrupted"], false);
    assert_eq!(records(&lab), 0);
    let again = lab.run(&["failover", FAR, "--join", file]).expect_code(23);
    assert!(again.err.contains("cannot read"), "{}", again.err);
}

#[test]
fn until_event_ends_with_the_trial_in_which_something_happens() {
    let Some(lab) = holed(HOLE) else { return };
    let words = ["--format", "json", "failover", "netns:far", "--until-event"];
    let job = Job::start(
        lab.linerate(&[&words[..], &FEW, &["--time", "1s", "--workload", "udp"]].concat()),
    );
    job.wait_for_line(|line| line.starts_with("trial 1: no interruption"));
    let fault = format!(
        "{}; sleep 0.2; {}",
        rules(&lab, "hole"),
        rules(&lab, "heal")
    );
    // It may fall between two trials.
    while !job.has_ended() {
        lab.shell("near", &fault);
    }
    let document = fitting(&job.end().expect_code(0).out);
    // A fault at the edge of a trial may be seen in one direction alone.
    let gaps = ["forward", "reverse"].map(|direction| {
        let udp = part(&document, direction, "udp");
        number(&trigger(udp, "no-event")["gaps"]["count"])
    });
    assert!(gaps.iter().any(|count| *count > 0), "{document:#}");
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(1));
    assert_eq!(document["trials"][0]["events"], serde_json::json!([]));
}

#[test]
fn until_event_ends_without_one_after_its_trials_or_by_ctrl_c() {
    let Some(lab) = Lab::new() else { return };
    let words = [
        "failover",
        "netns:far",
        "--until-event",
        "--workload",
        "udp",
    ];
    let words = [&words[..], &FEW, &["--time", "1s"]].concat();
    let two = lab.run(&[&words[..], &["--repeats", "2"]].concat());
    let two = two.expect_code(0);
    assert!(
        two.err.contains("in at most 2 trials of 1 s "),
        "{}",
        two.err
    );
    assert!(two.out.contains("no event: no packet lost"), "{}", two.out);
    let job = Job::start(lab.linerate(&words));
    job.wait_for_line(|line| line.starts_with("trial 1: no interruption"));
    job.send(Signal::INT);
    job.end().expect_code(130);
}

#[test]
fn a_peer_that_is_not_there_is_named_with_what_to_do() {
    let Some(lab) = Lab::new() else { return };
    let done = lab.run(&["failover", "netns:nowhere"]).expect_code(20);
    assert!(done.err.contains("nowhere"), "{}", done.err);
    assert!(done.err.contains("`ip netns list`"), "{}", done.err);
    let peer = "exec:/nonexistent/linerate agent --stdio";
    let done = lab.run(&["failover", peer]).expect_code(20);
    assert!(done.err.contains("exit code 127"), "{}", done.err);
    assert!(
        done.err.contains("must run `linerate agent"),
        "{}",
        done.err
    );
}

#[test]
fn a_peer_without_cap_net_raw_measures_and_names_what_it_could_not_record() {
    let Some(lab) = Lab::new() else { return };
    let peer = format!(
        "exec:exec ip netns exec far setpriv --bounding-set=-net_raw -- {} --state {} agent --stdio",
        crate::LINERATE,
        text(&lab.path("agent"))
    );
    let document = failover(&lab, &peer, &SHORT);
    let missing = document["trials"][0]["not_recorded"].as_array();
    let missing = missing.expect("a list");
    assert!(!missing.is_empty(), "{document:#}");
    let is_named = |one: &Value| {
        let reason = one["reason"].as_str().expect("text");
        one["end"] == "remote" && reason.contains("CAP_NET_RAW")
    };
    assert!(missing.iter().any(is_named), "{missing:#?}");
    let words = [&["failover", &peer], &SHORT[..]].concat();
    let out = lab.run(&words).expect_code(0).out;
    assert!(out.contains("not recorded at the peer: "), "{out}");
}

#[test]
fn a_management_path_over_the_interface_of_the_probes_is_warned_of() {
    let Some(lab) = Lab::new() else { return };
    let _agent = lab.listen(&[]);
    for (peer, is_warned) in [(FAR, true), ("netns:far", false)] {
        let words = [&["failover", peer], &SHORT[..]].concat();
        let err = lab.run(&words).expect_code(0).err;
        let warning = "the control connection to tls://10.77.0.2:5210 uses near0, too";
        assert_eq!(err.contains(warning), is_warned, "{err}");
    }
}
