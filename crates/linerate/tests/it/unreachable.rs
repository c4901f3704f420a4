//! Peers that cannot be reached: the error says whether a port refuses or a firewall drops, before anything is measured, and
//! lists the forms of a peer.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, run};
use crate::lab::{FAR, Lab};

/// Accepts on a host only what a firewall before it would, and reports whether this kernel can.
pub(crate) fn has_firewall(lab: &Lab, host: &str, rules: &str) -> bool {
    let script = format!("nft -f - <<'RULES'\n{rules}\nRULES");
    let mut command = lab.on(host, "sh");
    command.args(["-ec", &script]);
    let done = run(command);
    if done.code != Some(0) {
        eprintln!(
            "SKIP: no nftables here: {}",
            done.err.lines().next().unwrap_or_default()
        );
    }
    done.code == Some(0)
}

/// Drops what matches `what` on its way to `far` from now on; false where the kernel has no nftables.
fn dropped_at_far(lab: &Lab, what: &str) -> bool {
    let rules = format!(
        "table inet wall {{ chain input {{ type filter hook input priority 0; policy accept; {what} drop; }}; }}"
    );
    has_firewall(lab, "far", &rules)
}

#[test]
fn a_port_that_refuses_and_one_that_a_firewall_drops_are_told_apart() {
    let Some(lab) = Lab::new() else { return };
    let agent = lab.listen(&[]);
    agent.job().send(Signal::TERM);
    agent.take().end().expect_code(0);
    let refused = lab.run(&["measure", "stream", FAR]).expect_code(20);
    assert!(
        refused.err.contains("connection refused"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("linerate agent --listen"),
        "{}",
        refused.err
    );
    if dropped_at_far(&lab, "tcp dport 5210") {
        let dropped = lab.run(&["measure", "stream", FAR]).expect_code(20);
        assert!(dropped.err.contains("no answer within "), "{}", dropped.err);
        assert!(
            dropped.err.contains("a firewall drops the packets"),
            "{}",
            dropped.err
        );
    }
}

#[test]
fn over_ssh_a_port_that_refuses_and_one_that_a_firewall_drops_are_told_apart() {
    if Command::new("ssh").arg("-V").output().is_err() {
        eprintln!("SKIP: there is no ssh");
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let measure = ["measure", "stream", "nobody@10.77.0.2"];
    let refused = lab.run(&measure).expect_code(20).err;
    for words in ["refused", "no ssh server listens", "tls://host[:port]"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    if dropped_at_far(&lab, "tcp dport 22") {
        let dropped = lab.run(&measure).expect_code(20).err;
        for words in ["timed out", "a firewall drops", "tls://host[:port]"] {
            assert!(dropped.contains(words), "{words}: {dropped}");
        }
    }
}

#[test]
fn what_a_peer_may_be_is_listed_where_there_is_none() {
    let Some(lab) = Lab::new() else { return };
    for (peer, code) in [
        ("ssh://", 2),
        ("tls://a:0", 2),
        ("tls://a#b", 2),
        ("ftp://a", 2),
        ("netns:no-such-host", 20),
        ("exec:false", 20),
    ] {
        let done = lab.run(&["measure", "stream", peer]).expect_code(code);
        assert!(done.err.contains("netns:NAME"), "{peer}: {}", done.err);
    }
    // Who has no key of an agent does not call it, so these are pairing lines.
    let _agent = lab.listen_unpaired(&["--allow-from", "10.99.0.0/16"]);
    let secrets = format!("{}.{}.9999999999", "a5".repeat(32), "0f".repeat(16));
    for (address, why) in [
        ("no-such-host.invalid", "cannot resolve"),
        ("10.77.0.2:1", "connection refused"),
        ("10.77.0.2:5210", "--allow-from"),
        ("10.88.0.1", "unreachable"),
    ] {
        let line = format!("tls://{address}#{secrets}");
        let done = lab.run(&["peers", "pair", &line]).expect_code(20);
        for words in [why, "netns:NAME"] {
            assert!(done.err.contains(words), "{address}: {}", done.err);
        }
    }
}

#[test]
fn datagrams_that_a_firewall_drops_are_an_error_before_the_trial() {
    let Some(lab) = Lab::new() else { return };
    if !dropped_at_far(&lab, "meta l4proto udp") {
        return;
    }
    let _agent = lab.listen(&[]);
    let begun = Instant::now();
    let done = lab
        .run(&["measure", "udp", FAR, "--time", "60"])
        .expect_code(40);
    assert!(done.err.contains("no datagram has reached"), "{}", done.err);
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "only after the trial"
    );
}

#[test]
fn data_ports_that_a_firewall_drops_are_named_before_the_trial() {
    let Some(lab) = Lab::new() else { return };
    if !dropped_at_far(&lab, "tcp dport 5211-5214") {
        return;
    }
    let _agent = lab.listen(&["--data-ports", "5211-5214"]);
    for words in ["http", "rr --reconnect"] {
        let words: Vec<&str> = words.split(' ').collect();
        let words = [&["measure"][..], &words, &["--time", "60", FAR]].concat();
        let begun = Instant::now();
        let done = lab.run(&words).expect_code(40);
        let is_named =
            (5_211..=5_214).any(|port| done.err.contains(&format!("10.77.0.2:{port}: no answer")));
        assert!(is_named, "{}", done.err);
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "only after the trial"
        );
        assert!(
            !done.err.contains("reports"),
            "a consequence is listed: {}",
            done.err
        );
    }
}

#[test]
fn a_control_connection_that_is_lost_ends_the_measurement_without_a_word_of_a_rollback() {
    let Some(lab) = Lab::new() else { return };
    let agent = lab.listen(&[]);
    let words = ["measure", "stream", "--time", "60", FAR];
    let measuring = Job::start(lab.linerate(&words));
    agent.job().wait_for_line(|line| line.contains(" began"));
    if !dropped_at_far(&lab, "tcp dport 5210") {
        measuring.end();
        return;
    }
    let done = measuring.end().expect_code(20);
    assert!(done.err.contains("tls://10.77.0.2"), "{}", done.err);
    assert!(!done.err.contains("rolled back"), "{}", done.err);
    assert_eq!(done.out, "", "no result of a trial that was not heard of");
}
