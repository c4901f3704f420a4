//! A listening agent (`linerate agent --listen`) and its `tls://` peers, end to end. What both ends do over any channel is
//! shown by the tests that run over each ([`Lab::for_each_channel`]).

use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::fitting;
use crate::job::{HANGS, Job, linerate, run};
use crate::lab::{FAR, FarAgent, Lab, assert_same, text};
use crate::unreachable::has_firewall;

/// linerate on `near`, as another host than the lab's: with a key of its own.
fn other_host(lab: &Lab, words: &[&str]) -> Command {
    let mut command = lab.on("near", crate::LINERATE);
    command.arg("--state").arg(lab.path("other")).args(words);
    command
}

const STREAM: [&str; 4] = ["measure", "stream", "--time", "0.2"];

#[test]
fn a_pairing_line_works_once_and_later_connections_survive_restarts_of_both_ends() {
    let Some(lab) = Lab::new() else { return };
    let agent = lab.listen_unpaired(&[]);
    let line = FarAgent::pairing_line(&lab, &[]);
    assert!(line.starts_with("tls://10.77.0.2:5210#"), "{line}");
    let done = lab.run(&[&STREAM[..], &[&line]].concat()).expect_code(0);
    assert!(
        done.err.contains(&format!("paired with {FAR}")),
        "{}",
        done.err
    );
    let secret = line.rsplit('.').nth(1).expect("a token");
    assert!(!done.out.contains(secret) && !done.err.contains(secret));
    // The same line again: this host is paired, another one is not.
    lab.run(&[&STREAM[..], &[&line]].concat()).expect_code(0);
    let done = run(other_host(&lab, &[&STREAM[..], &[&line]].concat())).expect_code(21);
    assert!(done.err.contains("wrong, used or expired"), "{}", done.err);
    assert!(done.err.contains("linerate agent pair"), "{}", done.err);

    agent.job().send(Signal::TERM);
    agent.take().end().expect_code(0);
    let _agent = lab.listen_unpaired(&[]);
    lab.run(&[&STREAM[..], &[FAR]].concat()).expect_code(0);

    let listed = lab
        .run(&["--format", "json", "peers", "list"])
        .expect_code(0);
    let listed = fitting(&listed.out);
    assert_eq!(listed["keys"][0]["name"], "10.77.0.2:5210");
    let paired = run(lab.of_agent(&["paired", "--format", "json"])).expect_code(0);
    let paired = fitting(&paired.out);
    assert_eq!(paired["keys"][0]["name"], "10.77.0.1");
    assert_eq!(
        paired["keys"].as_array().map(Vec::len),
        Some(1),
        "the other host is not paired"
    );

    run(lab.of_agent(&["forget", "10.77.0.1"])).expect_code(0);
    let done = lab.run(&[&STREAM[..], &[FAR]].concat()).expect_code(21);
    assert!(done.err.contains("not paired"), "{}", done.err);
    let line = FarAgent::pairing_line(&lab, &[]);
    let pair = ["--pair", &line, FAR];
    lab.run(&[&STREAM[..], &pair].concat()).expect_code(0);
    lab.run(&["peers", "forget", "10.77.0.2:5210"])
        .expect_code(0);
    let done = lab.run(&[&STREAM[..], &[FAR]].concat()).expect_code(21);
    assert!(
        done.err.contains("not paired with tls://10.77.0.2:5210"),
        "{}",
        done.err
    );
    lab.run(&["peers", "forget", "10.77.0.2:5210"])
        .expect_code(23);
}

#[test]
fn the_agent_prints_its_pairing_line_alone_on_standard_output() {
    let Some(lab) = Lab::new() else { return };
    let mut command = lab.on("far", crate::LINERATE);
    command
        .arg("--state")
        .arg(lab.path("agent"))
        .args(["agent", "--listen"]);
    let agent = Job::start(command);
    agent.wait_for_line(|line| line.contains("pairing line"));
    agent.send(Signal::TERM);
    let done = agent.end().expect_code(0);
    let mut lines = done.out.lines();
    let line = lines.next().expect("a line");
    assert!(line.starts_with("tls://10.77.0.2:5210#"), "{line}");
    assert_eq!(lines.next(), None);
    // The token is stored as its digest only: the agent need not run for the line to be valid.
    let stored = std::fs::read_to_string(lab.path("agent").join("keys/tokens")).expect("stored");
    let secret = line.rsplit('.').nth(1).expect("a token");
    assert!(!stored.contains(secret), "{stored}");
}

#[test]
fn what_the_owner_does_not_permit_is_refused_with_its_reason() {
    let Some(lab) = Lab::new() else { return };
    let limits = [
        "--max-time",
        "2",
        "--max-flows",
        "2",
        "--max-rate",
        "1Gb/s",
        "--max-memory",
        "1MiB",
        "--workloads",
        "stream,udp,rr,diffusion",
    ];
    let _agent = lab.listen(&limits);
    for (words, why) in [
        ("stream --time 3", "maximum is 2.00 s"),
        ("stream --time 0.2 --flows 3", "3 flows; its maximum is 2"),
        ("stream --time 0.2", "--pacing 1000Mb/s"),
        (
            "stream --time 0.2 --pacing 600Mb/s --flows 2",
            "--pacing 500Mb/s",
        ),
        (
            "stream --time 0.2 --pacing 1Mb/s --buffer 2MiB",
            "buffers of 2 MiB",
        ),
        ("udp --time 0.2", "--rate 1000Mb/s"),
        ("pingpong", "it permits stream, udp, rr, diffusion"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let done = lab.run(&[&["measure"][..], &words, &[FAR]].concat());
        assert_eq!(done.code, Some(21), "{words:?}: {}", done.err);
        assert!(done.err.contains(why), "{words:?}: {}", done.err);
    }
    for words in [
        "stream --pacing 500Mb/s --flows 2",
        "udp --rate 5Mb/s",
        "rr",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        lab.run(&[&["measure"][..], &words, &["--time", "0.3", FAR]].concat())
            .expect_code(0);
    }
    // Settings are read, not changed.
    let before = lab.dump();
    let plan = lab.path("plan.toml");
    std::fs::write(&plan, "[peer.settings]\n\"nic/far0/mtu\" = 9000\n").expect("our own");
    let done = lab
        .run(&["tune", "apply", "--peer", FAR, "--from", text(&plan)])
        .expect_code(21);
    assert!(done.err.contains("--allow-changes"), "{}", done.err);
    assert_same(&lab, &before, "after a refused change");
}

#[test]
fn a_trial_that_exceeds_the_permitted_rate_is_aborted() {
    let Some(lab) = Lab::new() else { return };
    // Large answers: no pacing of the asking end limits them.
    let _agent = lab.listen(&["--max-rate", "1Mb/s"]);
    let words = ["measure", "rr", FAR, "--time", "30", "--response", "1MiB"];
    let done = lab.run(&words).expect_code(21);
    assert!(
        done.err.contains("exceeded the maximum rate"),
        "{}",
        done.err
    );
    lab.run(&["measure", "rr", FAR, "--time", "0.2", "--rate", "10"])
        .expect_code(0);
}

#[test]
fn an_ordinary_user_cannot_permit_changes_and_is_shown_which_capabilities_are_missing() {
    let state = tempfile::tempdir().expect("a folder");
    let mut command = linerate(&[
        "--state",
        text(state.path()),
        "agent",
        "--listen",
        "127.0.0.1:0",
    ]);
    command.arg("--allow-changes");
    if rustix::process::geteuid().is_root() {
        let mut without = Command::new("setpriv");
        without.args([
            "--bounding-set",
            "-net_admin,-dac_override,-sys_admin",
            "--inh-caps",
            "-all",
            "--",
        ]);
        without.arg(command.get_program()).args(command.get_args());
        command = without;
    }
    let done = run(command).expect_code(21);
    for name in ["CAP_NET_ADMIN", "CAP_DAC_OVERRIDE", "CAP_SYS_ADMIN"] {
        assert!(done.err.contains(name), "{}", done.err);
    }
}

#[test]
fn settings_of_the_agents_host_are_validated_and_the_interface_of_the_control_connection_is_protected()
 {
    let Some(lab) = Lab::new() else { return };
    let _agent = lab.listen(&["--allow-changes"]);
    let before = lab.dump();
    let plan = lab.path("plan.toml");
    let apply = ["tune", "apply", "--peer", FAR, "--from", text(&plan)];
    let absent = "[peer.settings]\n\"sysctl/net.ipv4.tcp_nonsense\" = 1\n";
    std::fs::write(&plan, absent).expect("our own");
    let done = lab.run(&apply).expect_code(22);
    assert!(done.err.contains("has no such sysctl"), "{}", done.err);
    std::fs::write(&plan, "[peer.settings]\n\"nic/far0/mtu\" = 9000\n").expect("our own");
    let done = lab.run(&apply).expect_code(21);
    assert!(
        done.err.contains("your control connection uses far0"),
        "{}",
        done.err
    );
    assert_same(&lab, &before, "after a refused change");
}

#[test]
fn one_port_and_a_range_are_all_that_a_firewall_must_let_through() {
    let Some(lab) = Lab::new() else { return };
    let rules = "table inet wall { chain input { type filter hook input priority 0; policy drop;
        iif lo accept
        ct state established,related accept
        icmp type echo-request accept
        tcp dport 5210-5214 accept
        udp dport 5211-5214 accept; }; }";
    // Connection tracking may be missing: then what is not of these ports, as source or destination, is dropped.
    let plain = "table inet wall { chain input { type filter hook input priority 0; policy drop;
        iif lo accept
        tcp dport 5210-5214 accept
        udp dport 5211-5214 accept; }; }";
    if !has_firewall(&lab, "far", plain) && !has_firewall(&lab, "far", rules) {
        return;
    }
    let _agent = lab.listen(&["--data-ports", "5211-5214"]);
    for words in [
        "stream",
        "stream --reverse",
        "stream --bidir --flows 4",
        "rr",
        "rr --reconnect",
        "pingpong --sizes 4KiB --repetitions 20",
        "http",
        "transfer --bytes 100KiB --repetitions 5",
        "diffusion --buffer 100KiB --repetitions 5",
        "udp --rate 5Mb/s",
        "udp --rate 5Mb/s --reverse",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let done = lab.run(&[&["measure"][..], &words, &["--time", "0.3", FAR]].concat());
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.err);
    }
    // More than the range has.
    let done = lab.run(&[
        "measure", "udp", FAR, "--rate", "1Mb/s", "--flows", "5", "--time", "0.2",
    ]);
    assert_eq!(done.code, Some(41), "{}", done.err);
}

#[test]
fn behind_port_forwarding_data_goes_where_control_went() {
    let Some(lab) = Lab::new() else { return };
    // Only `far` has the address of the agent; `near` knows another address and another port.
    let nat = "ip address add 10.99.0.1/32 dev lo
        nft -f - <<'RULES'
table ip nat { chain output { type nat hook output priority -100;
    ip daddr 10.99.0.2 tcp dport 6000 dnat to 10.77.0.2:5210
    ip daddr 10.99.0.2 udp dport 5211-5214 dnat to 10.77.0.2; }
  chain after { type nat hook postrouting priority 100;
    oif near0 ip saddr 10.77.0.1 udp sport 1024-65535 masquerade to :20000-20100; }; }
RULES
        ip route add 10.99.0.2/32 dev near0";
    let mut command = lab.on("near", "sh");
    command.args(["-ec", nat]);
    let done = run(command);
    if done.code != Some(0) {
        eprintln!(
            "SKIP: no address translation here: {}",
            done.err.lines().next().unwrap_or_default()
        );
        return;
    }
    let _agent = lab.listen_unpaired(&["--data-ports", "5211-5214"]);
    let line = FarAgent::pairing_line(&lab, &[]);
    let at = "tls://10.99.0.2:6000";
    for words in [
        "stream",
        "stream --reverse",
        "udp --rate 5Mb/s",
        "udp --rate 5Mb/s --reverse",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let done = lab.run(
            &[
                &["measure"][..],
                &words,
                &["--time", "0.3", "--pair", &line, at],
            ]
            .concat(),
        );
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.err);
    }
}

#[test]
fn the_near_end_opens_the_connections_also_of_data_that_comes_to_it() {
    let Some(lab) = Lab::new() else { return };
    // As behind address translation: what `near` has not asked for does not get in.
    let rules = "table inet nat { chain input { type filter hook input priority 0; policy accept;
        iif lo accept
        tcp flags & (syn | ack) == syn drop
        ct state new,invalid drop; }; }";
    if !has_firewall(&lab, "near", rules) {
        return;
    }
    let _agent = lab.listen(&["--data-ports", "5211-5214"]);
    for words in [
        "stream --reverse",
        "stream --bidir --flows 4",
        "rr --reverse",
        "udp --rate 5Mb/s --reverse",
        "udp --rate 5Mb/s --bidir",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let more = ["--time", "0.3", "--data-from", "near", FAR];
        let done = lab.run(&[&["measure"][..], &words, &more].concat());
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.err);
    }
    // Clients at the peer.
    for words in ["rr --reverse --reconnect", "http --reverse"] {
        let words: Vec<&str> = words.split(' ').collect();
        let more = ["--data-from", "near", FAR];
        let done = lab.run(&[&["measure"][..], &words, &more].concat());
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
        assert!(done.err.contains("--data-from near"), "{}", done.err);
        // Without the option, the address that nobody answers at is shown as people write it.
        let done = lab.run(&[&["measure"][..], &words, &[FAR]].concat());
        assert_eq!(done.code, Some(40), "{words:?}: {}", done.err);
        assert!(done.err.contains(" 10.77.0.1:"), "{}", done.err);
    }
}

#[test]
fn a_killed_listener_leaves_nothing_changed() {
    let Some(lab) = Lab::new() else { return };
    let agent = lab.listen(&["--allow-changes"]);
    let before = lab.dump();
    lab.shell("far", "sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384'");
    let changed = lab.dump();
    assert_ne!(before, changed);
    let prove = lab.linerate(&["prove", FAR, "--trials", "5", "--time", "0.5"]);
    let proof = Job::start(prove);
    proof.wait_for_line(|line| line.contains("stage 1"));
    agent.take().kill();
    let done = proof.end();
    assert!(
        [Some(20), Some(31)].contains(&done.code),
        "{:?}: {}",
        done.code,
        done.err
    );
    run(lab.of_agent(&["paired"])).expect_code(0);
    let mut recover = lab.on("far", crate::LINERATE);
    recover
        .arg("--state")
        .arg(lab.path("agent"))
        .args(["tune", "recover"]);
    run(recover).expect_code(0);
    assert_same(&lab, &changed, "after the listener was killed");
}

#[test]
fn a_socket_of_the_service_manager_is_listened_on() {
    if Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("SKIP: there is no systemd-socket-activate");
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let mut command = lab.on("far", "systemd-socket-activate");
    command.args([
        "--listen",
        "10.77.0.2:5210",
        "--",
        crate::LINERATE,
        "--state",
    ]);
    command
        .arg(lab.path("agent"))
        .args(["agent", "--listen", "--no-pairing"]);
    let agent = Job::start(command);
    agent.wait_for_line(|line| line.contains("Listening on"));
    // The first connection starts the agent.
    let words = ["pair", "--advertise", "10.77.0.2"];
    let line = run(lab.of_agent(&words)).expect_code(0).out;
    lab.run(&[&STREAM[..], &[line.trim_end()]].concat())
        .expect_code(0);
    agent.send(Signal::TERM);
    agent.end().expect_code(0);
}

/// What strangers do, in a shell that keeps what it has opened: slow ones, and then connections with garbage, with the start
/// of a handshake, with the start of a data connection's greeting, and with nothing.
const STRANGERS: &str = r"trap '' PIPE
for number in $(seq SLOW); do
    exec {slow}<>/dev/tcp/10.77.0.2/5210
    printf '\026\003\001\002' >&$slow
done
for number in $(seq COUNT); do
    exec 3<>/dev/tcp/10.77.0.2/5210
    case $((number % 4)) in
        0) printf 'GET / HTTP/1.1\r\n\r\n' >&3 ;;
        1) printf '\026\003\001\002\000\001garbage' >&3 ;;
        2) printf 'LNRT\000\000\000\001xxxx' >&3 ;;
    esac 2>/dev/null
    exec 3>&-
done
true";

#[track_caller]
fn strangers(lab: &Lab, slow: &str, count: &str) {
    let mut command = lab.on("near", "bash");
    let script = STRANGERS.replace("SLOW", slow).replace("COUNT", count);
    command.args(["-c", &script]);
    run(command).expect_code(0);
}

/// The resident memory of a process in KiB, its descriptors and its threads.
fn figures(pid: Pid) -> [usize; 3] {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(format!("{folder}/status")).expect("it runs");
    let number = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key));
        let word = line.and_then(|line| line.split_whitespace().nth(1));
        word.and_then(|word| word.parse().ok()).expect("a number")
    };
    let descriptors = std::fs::read_dir(format!("{folder}/fd")).expect("it runs");
    [number("VmRSS:"), descriptors.count(), number("Threads:")]
}

#[test]
fn ten_thousand_strangers_and_slow_ones_leave_a_trial_and_the_agent_as_they_were() {
    let Some(lab) = Lab::new() else { return };
    let agent = lab.listen(&[]);
    let family = agent.job().family();
    let listener = family
        .iter()
        .find(|(_, words)| words.contains("agent --listen"));
    let listener = listener.expect("it runs").0;
    strangers(&lab, "70", "500");
    lab.run(&[&STREAM[..], &[FAR]].concat()).expect_code(0);
    agent.job().wait_for_line(|line| line.contains(" ended"));
    let before = figures(listener);
    let words = [
        "--format", "json", "measure", "rr", FAR, "--time", "6", "--rate", "100",
    ];
    let trial = Job::start(lab.linerate(&words));
    agent.job().wait_for_line(|line| line.contains(" began"));
    strangers(&lab, "200", "10000");
    let document: Value = fitting(&trial.end().expect_code(0).out);
    assert_eq!(document["total"]["failed"], 0);
    let operations = document["total"]["operations"].as_u64();
    assert!(operations > Some(0), "{document:#}");
    // Those that are still held have 5 s.
    let deadline = Instant::now() + HANGS;
    let has_more = |now: [usize; 3]| now[1] > before[1] || now[2] > before[2];
    while has_more(figures(listener)) {
        let now = figures(listener);
        assert!(Instant::now() < deadline, "{before:?}, now {now:?}");
        std::thread::yield_now();
    }
    let memory = figures(listener)[0];
    assert!(memory < before[0] + 8_192, "{memory} KiB, {before:?}");
    let done = agent.take();
    done.send(Signal::TERM);
    let printed = done.end().expect_code(0).err;
    assert!(printed.lines().count() < 20, "{printed}");
}

#[test]
fn a_pairing_line_printed_later_has_the_address_of_the_agent_that_listens() {
    let Some(lab) = Lab::new() else { return };
    let done = run(lab.of_agent(&["pair"])).expect_code(0);
    assert!(
        done.err
            .contains("no agent is running with the state folder"),
        "{}",
        done.err
    );
    let mut command = lab.on("far", crate::LINERATE);
    command.args([
        "--state",
        text(&lab.path("agent")),
        "agent",
        "--listen",
        "10.77.0.2:6000",
    ]);
    command.args(["--no-pairing", "--allow-from", "10.77.0.0/24"]);
    let agent = Job::start(command);
    agent.wait_for_line(|line| line.contains("callers from 10.77.0.0/24 only"));
    let done = run(lab.of_agent(&["pair"])).expect_code(0);
    assert!(!done.err.contains("no agent"), "{}", done.err);
    let line = done.out.trim_end();
    assert!(line.starts_with("tls://10.77.0.2:6000#"), "{line}");
    for expected in ["paired: the peer", "paired already: the peer"] {
        let done = lab.run(&["peers", "pair", line]).expect_code(0);
        assert!(done.err.contains(expected), "{}", done.err);
    }
    lab.run(&["peers", "forget", "tls://10.77.0.2:6000"])
        .expect_code(0);
    agent.send(Signal::TERM);
    agent.end().expect_code(0);
    let words = ["--listen", "127.0.0.1:5300", "--data-ports", "5299-5301"];
    let done = run(lab.of_agent(&words)).expect_code(2);
    assert!(done.err.contains("contains port 5300"), "{}", done.err);
}

#[test]
fn a_run_does_not_keep_the_token_of_its_pairing_line() {
    let Some(lab) = Lab::new() else { return };
    let _agent = lab.listen_unpaired(&[]);
    let line = FarAgent::pairing_line(&lab, &[]);
    let (name, _) = line.split_once('#').expect("the address comes first");
    let token = line.rsplit('.').nth(1).expect("key, token, and expiry");
    lab.run(&[&STREAM[..], &["--name", "kept", &line]].concat())
        .expect_code(0);
    let found = |text: &str| {
        let mut grep = Command::new("grep");
        grep.args(["-rqF", "-e", text, self::text(&lab.path("state"))]);
        run(grep).code == Some(0)
    };
    assert!(found(name), "the peer is not in the run");
    assert!(!found(token), "the token is in the run");
}

#[test]
fn a_proof_with_an_agent_that_permits_no_changes_begins_with_that() {
    let Some(lab) = Lab::new() else { return };
    let _agent = lab.listen(&[]);
    let proof = Job::start(lab.linerate(&["prove", FAR]));
    proof.wait_for_line(|line| line.contains("permits no changes"));
    proof.send(Signal::INT);
    let done = proof.end();
    assert!(matches!(done.code, Some(0 | 130)), "{}", done.err);
}
