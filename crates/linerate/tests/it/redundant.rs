//! `testbed redundant`: each kind of network is made, forwards, forwards after a fault by what is left, and is removed
//! without a trace. Faults are injected by the commands that it prints.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::failover::{backlog_drops, number, part, trigger};
use crate::fitting;
use crate::job::{Done, Job, run};
use crate::lab::{Lab, text};

/// A lab in which a network is removed however a test ends.
struct Network {
    lab: Lab,
    document: Value,
}

impl Drop for Network {
    fn drop(&mut self) {
        run(command(&self.lab, &["remove"]));
    }
}

fn command(lab: &Lab, words: &[&str]) -> std::process::Command {
    let mut command = lab.outside(crate::LINERATE);
    command.arg("--state").arg(lab.state());
    command.args(["--format", "json", "testbed", "redundant"]);
    command.args(words);
    command
}

impl Network {
    /// Makes a network; none where its programs are missing, with a line that says so.
    #[track_caller]
    fn add(needs_root: bool, words: &[&str]) -> Option<Self> {
        let lab = Lab::new()?;
        if needs_root && lab.is_user() {
            eprintln!(
                "SKIP: the daemons of `testbed redundant add {}` need root",
                words[0]
            );
            return None;
        }
        let done = run(command(&lab, &[&["add"], words].concat()));
        if done.code == Some(22) {
            // Every missing program is named with its package.
            assert!(done.err.contains("Debian package"), "{}", done.err);
            eprintln!("SKIP: {}", done.err.trim_end());
            return None;
        }
        let mut network = Self {
            lab,
            document: Value::Null,
        };
        network.document = fitting(&done.expect_code(0).out);
        assert_eq!(network.document["network"]["ready"], true);
        Some(network)
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Done {
        run(command(&self.lab, words))
    }

    /// The command `which` (`do` or `restore`) of a fault.
    #[track_caller]
    fn command_of(&self, name: &str, which: &str) -> String {
        let faults = self.document["network"]["faults"]
            .as_array()
            .expect("a list");
        let fault = faults.iter().find(|fault| fault["name"] == name);
        let script = fault.expect("it is offered")[which]
            .as_str()
            .expect("a command");
        script.strip_prefix("linerate ").map_or_else(
            || script.to_owned(),
            |words| format!("'{}' {words}", crate::LINERATE),
        )
    }

    /// Runs the command `which` of a fault, as a shell does.
    #[track_caller]
    fn fault(&self, name: &str, which: &str) {
        let mut shell = self.lab.outside("sh");
        shell.args(["-ec", &self.command_of(name, which)]);
        run(shell).expect_code(0);
    }

    /// The interruption that a fault causes in packets from client to server, as `failover` measures it.
    #[track_caller]
    fn interruption(&self, fault: &str, time: &str) -> Value {
        let server = self.document["network"]["server"][0].as_str();
        let path = ["lr-client", "lr-server", server.expect("an address")];
        let document = self.failover(path, fault, &["--time", time]);
        trigger(part(&document, "forward", "udp"), "failure").clone()
    }

    /// What `failover` measures of a fault with datagrams from one node to the other, at an address.
    #[track_caller]
    fn failover(&self, [from, to, address]: [&str; 3], fault: &str, more: &[&str]) -> Value {
        let (cause, restore) = (
            self.command_of(fault, "do"),
            self.command_of(fault, "restore"),
        );
        let mut failover = self.lab.outside("ip");
        failover.args(["netns", "exec", from, crate::LINERATE, "--state"]);
        failover.arg(self.lab.state());
        failover.args(["--format", "json", "failover", &format!("netns:{to}")]);
        failover.args(["--address", address, "--repeats", "1", "--workload", "udp"]);
        failover.args(["--do", &cause, "--restore", &restore]);
        failover.args(more);
        fitting(&run(failover).expect_code(0).out)
    }

    /// Requests and responses really pass between client and server: a connection is opened, by retransmissions if it must
    /// be.
    #[track_caller]
    fn forwards(&self, family: usize) {
        let server = self.document["network"]["server"][family]
            .as_str()
            .expect("an address");
        let mut measure = self.lab.outside("ip");
        measure.args(["netns", "exec", "lr-client", crate::LINERATE, "--state"]);
        measure.arg(self.lab.state());
        measure.args(["--format", "json", "measure", "--no-store", "pingpong"]);
        measure.args(["netns:lr-server", "--address", server]);
        // A number of round trips, however long they take on a busy machine.
        measure.args(["--sizes", "64B", "--repetitions", "200"]);
        run(measure).expect_code(0);
    }

    /// Packets that an interface of a node received.
    #[track_caller]
    fn received(&self, node: &str, nic: &str) -> u64 {
        let mut show = self.lab.outside("ip");
        show.args(["-n", node, "-j", "-s", "link", "show", "dev", nic]);
        let links: Value = serde_json::from_str(&run(show).expect_code(0).out).expect("JSON");
        links[0]["stats64"]["rx"]["packets"]
            .as_u64()
            .expect("a number")
    }

    /// What `work` makes cross r2, in both directions.
    #[track_caller]
    fn crosses_r2(&self, nics: [&str; 2], work: impl FnOnce()) {
        let before = nics.map(|nic| self.received("lr-r2", nic));
        work();
        for (nic, before) in nics.into_iter().zip(before) {
            let growth = self.received("lr-r2", nic) - before;
            // A few are of the routing protocol.
            assert!(growth > 100, "{nic}: {growth} packets");
        }
    }

    #[track_caller]
    fn remove(self) {
        let removed = fitting(&self.run(&["remove"]).expect_code(0).out);
        assert_eq!(removed["removed"], true);
        assert_eq!(removed["network"], Value::Null);
        self.nothing_is_left();
        let again = fitting(&self.run(&["remove"]).expect_code(0).out);
        assert_eq!(again["removed"], false);
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        assert_eq!(namespaces(&self.lab), [""; 0]);
        let daemons = self.document["network"]["daemons"].as_array();
        for daemon in daemons.into_iter().flatten() {
            let exe = fs::read_link(format!("/proc/{}/exe", daemon["pid"]));
            let program = daemon["program"].as_str().expect("a name");
            assert!(
                exe.is_err() || !exe.expect("a link").ends_with(program),
                "{daemon}"
            );
        }
        let left = fs::read_dir(self.lab.state()).expect("it exists").flatten();
        let left: Vec<String> = left
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("testbed"))
            .collect();
        assert_eq!(left, ["testbed-redundant.lock"]);
    }
}

/// The namespaces of a network that exist.
fn namespaces(lab: &Lab) -> Vec<String> {
    let mut list = lab.outside("ls");
    list.arg("/run/netns");
    let names = run(list).expect_code(0).out;
    let ours = names.lines().filter(|name| name.starts_with("lr-"));
    ours.map(str::to_owned).collect()
}

#[test]
fn vrrp_moves_the_gateway_to_the_second_router_and_back() {
    let Some(network) = Network::add(true, &["vrrp", "--advert", "100ms"]) else {
        return;
    };
    network.forwards(0);
    network.forwards(1);
    let again = network.run(&["add", "magp"]).expect_code(23);
    assert!(again.err.contains("VRRP"), "{}", again.err);
    network.fault("silent-router", "do");
    network.crosses_r2(["to-sw1", "to-sw2"], || network.forwards(0));
    network.fault("silent-router", "restore");
    let failure = network.interruption("silent-router", "6s");
    assert!(failure["lost"].as_u64() > Some(0), "{failure:#}");
    // The first sign of a takeover is an advertisement of the new master, or its gratuitous ARP.
    let mechanism = failure["held_up"]["mechanism"].as_str();
    assert!(
        matches!(mechanism, Some("vrrp" | "gateway-moved")),
        "{failure:#}"
    );
    network.fault("daemon-killed", "do");
    let list = fitting(&network.run(&["list"]).expect_code(0).out);
    assert_eq!(
        list["network"]["daemons"][0]["pid"],
        Value::Null,
        "{list:#}"
    );
    network.fault("daemon-killed", "restore");
    let list = fitting(&network.run(&["list"]).expect_code(0).out);
    assert!(list["network"]["daemons"][0]["pid"].is_u64(), "{list:#}");
    network.run(&["stop", "lr-client"]).expect_code(23);
    network.remove();
}

#[test]
fn bgp_with_bfd_uses_the_other_next_hop() {
    // On a busy machine the usual 150 ms take down sessions of routers that are alive.
    ecmp(true, &["ecmp", "--igp", "bgp", "--bfd", "1s"]);
}

#[test]
fn ospf_uses_the_other_next_hop() {
    ecmp(true, &["ecmp", "--igp", "ospf", "--bfd", "off"]);
}

#[test]
fn a_static_nexthop_group_uses_the_other_next_hop() {
    ecmp(false, &["ecmp", "--igp", "static"]);
}

#[test]
fn a_resilient_nexthop_group_uses_the_other_next_hop() {
    ecmp(false, &["ecmp", "--igp", "static", "--resilient"]);
}

fn ecmp(needs_root: bool, words: &[&str]) {
    let Some(network) = Network::add(needs_root, words) else {
        return;
    };
    network.forwards(0);
    network.forwards(1);
    network.fault("router-down", "do");
    network.crosses_r2(["to-a", "to-b"], || network.forwards(0));
    network.crosses_r2(["to-a", "to-b"], || network.forwards(1));
    network.fault("router-down", "restore");
    network.forwards(0);
    network.remove();
}

#[test]
fn flows_of_the_next_hop_that_fails_are_interrupted_and_no_others() {
    let Some(network) = Network::add(false, &["ecmp", "--igp", "static"]) else {
        return;
    };
    let path = ["lr-a", "lr-b", "10.205.2.1"];
    // Nothing notices a silent router, so its flows are lost until it is back. On a busy machine packets may be late.
    let more = ["--time", "3s", "--late", "10s"];
    let before = backlog_drops();
    let document = network.failover(path, "dead-router", &more);
    for direction in ["forward", "reverse"] {
        let udp = part(&document, direction, "udp");
        let failure = trigger(udp, "failure");
        let hops = failure["by_next_hop"].as_array().expect("known");
        assert_eq!(hops.len(), 2, "{failure:#}");
        let flows: u64 = hops.iter().map(|hop| number(&hop["flows"])).sum();
        assert_eq!(flows, number(&udp["flows"]), "{failure:#}");
        let dropped = number(&udp["hosts"]["socket_drops"]) + (backlog_drops() - before);
        for hop in hops {
            let is_dead = hop["interface"] == "to-r1";
            let expected = if is_dead { number(&hop["flows"]) } else { 0 };
            // What a receiver's own socket or a CPU's backlog drops may be of any flow.
            let affected = number(&hop["affected"]);
            assert!(
                affected == expected || (!is_dead && dropped > 0),
                "{failure:#}"
            );
            assert!(!is_dead || expected > 0, "no flow crosses r1: {failure:#}");
        }
    }
    network.remove();
}

#[test]
fn one_gateway_on_two_routers_outlives_a_link() {
    let Some(network) = Network::add(false, &["magp"]) else {
        return;
    };
    network.forwards(0);
    network.fault("link-down", "do");
    network.forwards(0);
    network.forwards(1);
    network.fault("link-down", "restore");
    network.remove();
}

#[test]
fn a_lag_over_two_switches_outlives_a_member() {
    let Some(network) = Network::add(true, &["mlag"]) else {
        return;
    };
    network.forwards(0);
    for fault in ["member-down", "second-member-down"] {
        network.fault(fault, "do");
        network.forwards(0);
        network.forwards(1);
        network.fault(fault, "restore");
    }
    network.remove();
}

#[test]
fn a_lag_without_bonding_and_open_vswitch_names_both() {
    let Some(lab) = Lab::new() else { return };
    if std::path::Path::new("/sys/module/bonding").exists() {
        eprintln!("SKIP: this kernel has bonding");
        return;
    }
    // In this lab's own mount namespace the programs are files that cannot be run.
    let nothing = lab.path("nothing");
    fs::write(&nothing, "").expect("the lab's folder");
    let hide = "for name in ovs-vswitchd modprobe; do
        for file in $(which -a $name); do mount --bind $0 $file; done
    done";
    let mut shell = lab.outside("sh");
    shell.args(["-c", hide, text(&nothing)]);
    run(shell).expect_code(0);
    for words in [&["add", "mlag"][..], &["add", "active-backup"]] {
        let done = run(command(&lab, words));
        if done.code == Some(21) {
            eprintln!("SKIP: {}", done.err.trim_end());
            return;
        }
        let err = &done.expect_code(22).err;
        assert!(err.contains("has no bonding driver"), "{err}");
        let is_named = err.contains("Debian package openvswitch-switch");
        assert_eq!(is_named, words[1] == "mlag", "{err}");
    }
    assert_eq!(namespaces(&lab), [""; 0]);
}

#[test]
fn a_maker_that_was_killed_leaves_what_a_removal_takes_away() {
    let Some(lab) = Lab::new() else { return };
    let network = Network {
        lab,
        document: Value::Null,
    };
    let words = if network.lab.is_user() {
        &["add", "magp"][..]
    } else {
        &["add", "vrrp"]
    };
    let job = Job::start(command(&network.lab, words));
    while !job.has_ended() && !namespaces(&network.lab).contains(&"lr-r1".to_owned()) {}
    job.send(Signal::KILL);
    let done = job.end();
    if done.code == Some(22) {
        eprintln!("SKIP: {}", done.err.trim_end());
        return;
    }
    network.run(&["add", "magp"]).expect_code(23);
    network.remove();
}

#[test]
fn namespaces_of_others_are_neither_used_nor_removed() {
    let Some(lab) = Lab::new() else { return };
    let mut make = lab.outside("ip");
    make.args(["netns", "add", "lr-r2"]);
    run(make).expect_code(0);
    let network = Network {
        lab,
        document: Value::Null,
    };
    let refused = network.run(&["add", "magp"]).expect_code(23);
    assert!(refused.err.contains("lr-r2"), "{}", refused.err);
    let removed = fitting(&network.run(&["remove"]).expect_code(0).out);
    assert_eq!(removed["removed"], false);
    assert_eq!(namespaces(&network.lab), ["lr-r2"]);
}

#[test]
fn what_does_not_fit_together_or_is_not_there_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, code) in [
        (&["add", "ecmp", "--resilient"][..], 2),
        (&["add", "ecmp", "--igp", "static", "--bfd", "50ms"], 2),
        (&["add", "vrrp", "--advert", "15ms"], 2),
        (&["stop", "lr-r1"], 23),
        (&["start", "lr-r1"], 23),
        (&["list"], 0),
    ] {
        let state = text(folder.path());
        let fixed = ["--state", state, "testbed", "redundant"];
        let done = run(crate::job::linerate(&[&fixed, words].concat()));
        assert!(
            done.code == Some(code) || done.code == Some(21),
            "{words:?}: {:?} {}",
            done.code,
            done.err
        );
    }
}
