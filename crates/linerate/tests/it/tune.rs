//! `tune`: settings of a namespace planned, applied, rolled back, each seen by sysctl and ethtool.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::fitting;
use crate::lab::{Lab, assert_same, text};

const PLAN: &str = "[settings]
\"sysctl/net.ipv4.tcp_rmem\" = \"4096 131072 7000000\"
\"sysctl/net.ipv4.tcp_sack\" = 0
\"nic/near0/feature/gro\" = OTHER_GRO
";

/// A plan that changes two sysctls and one feature, whatever the feature is now.
fn plan(lab: &Lab) -> std::path::PathBuf {
    let features = lab.shell("near", "ethtool -k near0");
    let on = features.contains("generic-receive-offload: on");
    let file = lab.path("plan.toml");
    let other = if on { "\"off\"" } else { "\"on\"" };
    std::fs::write(&file, PLAN.replace("OTHER_GRO", other)).expect("the lab's folder");
    file
}

#[track_caller]
fn json(lab: &Lab, arguments: &[&str]) -> Value {
    let done = lab
        .run(&[&["--format", "json", "tune"], arguments].concat())
        .expect_code(0);
    fitting(&done.out)
}

#[test]
fn the_kernel_tracks_connections_while_linerates_own_table_is_there_and_no_longer() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("tracking.toml");
    let plan = "[settings]\n\"netfilter/track-connections\" = true\n";
    std::fs::write(&file, plan).expect("the lab's folder");
    let before = lab.dump();
    let applied = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    if applied.code == Some(22) {
        eprintln!(
            "SKIP: this kernel has no connection tracking: {}",
            applied.err
        );
        return;
    }
    applied.expect_code(0);
    lab.run(&["measure", "rr", "netns:far", "-t", "0.1"])
        .expect_code(0);
    let tracked = lab.shell("near", "cat /proc/sys/net/netfilter/nf_conntrack_count");
    assert_ne!(tracked.trim(), "0");
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_same(&lab, &before, "after `tune undo`");
    let read = json(&lab, &["plan", "--from", text(&file)]);
    assert_eq!(read["changes"][0]["from"], false, "{read:#}");
}

#[test]
fn a_plan_is_shown_applied_once_and_taken_back() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    let file = text(&file);
    let before = lab.dump();

    let planned = json(&lab, &["plan", "--from", file]);
    assert_eq!(
        planned["changes"].as_array().map(Vec::len),
        Some(3),
        "{planned:#}"
    );
    assert_same(&lab, &before, "after `tune plan`");

    json(&lab, &["apply", "--no-confirm", "--from", file]);
    let rmem = lab.shell("near", "sysctl -n net.ipv4.tcp_rmem net.ipv4.tcp_sack");
    let words: Vec<&str> = rmem.split_whitespace().collect();
    assert_eq!(words, ["4096", "131072", "7000000", "0"]);
    let after = lab.dump();
    assert_ne!(after, before);

    let again = json(&lab, &["apply", "--no-confirm", "--from", file]);
    assert_eq!(
        again["changes"].as_array().map(Vec::len),
        Some(0),
        "{again:#}"
    );
    assert_same(&lab, &after, "after the second `tune apply`");
    let status = json(&lab, &["status"]);
    let transactions = status["transactions"].as_array().expect("a list");
    assert_eq!(transactions.len(), 1, "{status:#}");
    assert_eq!(transactions[0]["state"], "applied");

    // What is committed is nobody's to recover.
    json(&lab, &["recover"]);
    assert_same(&lab, &after, "after `tune recover`");

    json(&lab, &["undo"]);
    assert_same(&lab, &before, "after `tune undo`");
    let status = json(&lab, &["status"]);
    assert!(!status.to_string().contains("applied"), "{status:#}");
    json(&lab, &["undo"]);
    assert_same(&lab, &before, "after a second `tune undo`");
}

#[test]
fn a_plan_tells_why_what_it_disturbs_and_who_else_changes_it() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", crate::prove::NO_SEGMENTATION);
    let before = lab.dump();
    // What the doctor printed, and what this host's findings ask for, are one plan.
    let found = lab.run(&[
        "--format",
        "json",
        "doctor",
        "--watch",
        "0",
        "--fail-on",
        "never",
    ]);
    let findings = lab.path("findings.json");
    std::fs::write(&findings, found.expect_code(0).out).expect("the lab's folder");
    let from_findings = json(&lab, &["plan", "--from", text(&findings)]);
    let from_host = json(&lab, &["plan"]);
    assert_eq!(from_findings, from_host);
    let changes = from_host["changes"].as_array().expect("a list");
    let of = |key: &str| changes.iter().find(|change| change["setting"] == key);
    let tso = of("nic/near0/feature/tx-tcp-segmentation").expect("it was planted");
    assert_eq!(tso["why"]["rule"], "tx-segmentation-or-csum-off");
    assert_eq!(tso["class"], "R2");
    let others = tso["disturbs"].as_array().expect("a list");
    assert!(
        others
            .iter()
            .any(|key| key == "nic/near0/feature/tx-tcp6-segmentation"),
        "{tso:#}"
    );
    let said = lab.run(&["tune", "plan"]).expect_code(0).out;
    assert!(said.contains("(tx-segmentation-or-csum-off)"), "{said}");
    assert!(said.contains("may disrupt: nic/near0/feature/"), "{said}");
    assert_same(&lab, &before, "after `tune plan`");

    // Of one finding only: others may be of the whole machine.
    let mut only: Value =
        serde_json::from_str(&std::fs::read_to_string(&findings).expect("it was just written"))
            .expect("a document");
    let list = only["findings"].as_array_mut().expect("a list");
    list.retain(|finding| finding["rule"] == "tx-segmentation-or-csum-off");
    std::fs::write(&findings, only.to_string()).expect("the lab's folder");
    json(&lab, &["apply", "--no-confirm", "--from", text(&findings)]);
    let features = lab.shell("near", "ethtool -k near0");
    assert!(
        features.contains("tcp-segmentation-offload: on"),
        "{features}"
    );
    json(&lab, &["undo"]);
    assert_same(&lab, &before, "after `tune undo`");

    let owner = lab.path("bpftune");
    crate::job::install("/bin/sleep", &owner);
    let mut command = lab.on("near", text(&owner));
    command.arg("1000");
    let job = crate::job::Job::start(command);
    // It is in the namespace before it is this program.
    let is_owner = |line: &str| line.starts_with(text(&owner));
    while !job.family().iter().any(|(_, line)| is_owner(line)) {
        assert!(!job.has_ended());
    }
    let file = plan(&lab);
    let planned = json(&lab, &["plan", "--from", text(&file)]);
    let needs = &planned["changes"][0]["needs"];
    assert_eq!(*needs, serde_json::json!(["CAP_NET_ADMIN"]), "{planned:#}");
    let of_sysctl = &planned["changes"][0]["owner"];
    assert_eq!(of_sysctl, "bpftune adjusts sysctls", "{planned:#}");
    let of_feature = planned["changes"].as_array().and_then(|all| all.last());
    let of_feature = of_feature.expect("three changes");
    assert_eq!(of_feature["owner"], Value::Null, "{of_feature:#}");
    job.send(rustix::process::Signal::TERM);
    job.end();
}

#[test]
fn undo_leaves_alone_what_somebody_else_has_set_since() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    json(&lab, &["apply", "--no-confirm", "--from", text(&file)]);
    lab.shell("near", "sysctl -qw net.ipv4.tcp_rmem='4096 131072 8000000'");
    let done = lab.run(&["tune", "undo"]).expect_code(0);
    assert!(done.out.contains("tcp_rmem"), "{}", done.out);
    let rmem = lab.shell("near", "sysctl -n net.ipv4.tcp_rmem");
    assert!(rmem.contains("8000000"), "{rmem}");
    assert_eq!(lab.shell("near", "sysctl -n net.ipv4.tcp_sack").trim(), "1");
}

#[test]
fn a_transaction_is_undone_by_its_name_only_when_there_is_one() {
    let Some(lab) = Lab::new() else { return };
    let done = lab
        .run(&["tune", "undo", "no-such-transaction"])
        .expect_code(23);
    assert!(done.err.contains("no applied transaction"), "{}", done.err);
}

#[test]
fn the_short_name_of_a_transaction_undoes_that_one_and_no_other() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    json(&lab, &["apply", "--no-confirm", "--from", text(&file)]);
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    let first = status.split_whitespace().next().unwrap_or_default();
    let number = first.strip_prefix('t').map(str::parse::<u64>);
    assert!(matches!(number, Some(Ok(_))), "{status}");
    let unknown = lab.run(&["tune", "undo", "t987654"]).expect_code(23);
    assert!(unknown.err.contains("t987654"), "{}", unknown.err);
    assert_ne!(lab.shell("near", "sysctl -n net.ipv4.tcp_sack").trim(), "1");
    let done = lab.run(&["tune", "undo", first]).expect_code(0);
    assert!(done.out.contains(first), "{}", done.out);
    assert_same(&lab, &before, "after `tune undo` by the short name");
}

#[test]
fn a_value_that_the_kernel_refuses_leaves_nothing_half_done() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = lab.path("refused.toml");
    let plan = "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n\
        \"sysctl/net.ipv4.tcp_congestion_control\" = \"nosuchcc\"\n";
    std::fs::write(&file, plan).expect("the lab's folder");
    let done = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    assert!(
        matches!(done.code, Some(21 | 22 | 23 | 30)),
        "{:?} {}",
        done.code,
        done.err
    );
    assert!(done.err.contains("tcp_congestion_control"), "{}", done.err);
    assert_same(&lab, &before, "after a refused `tune apply`");
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(
        !status.contains("applied") && !status.contains("open"),
        "{status}"
    );
}

#[test]
fn a_discipline_is_asked_for_with_parameters_and_taken_back_whatever_was_there() {
    let Some(lab) = Lab::new() else { return };
    let told = || {
        lab.shell(
            "near",
            "tc -d qdisc show dev near0; tc -d class show dev near0",
        )
    };
    let theirs = "tc qdisc add dev near0 root handle 1: htb default 10
        tc class add dev near0 parent 1: classid 1:10 htb rate 1gbit ceil 2gbit burst 15k";
    for there in [
        None,
        Some("tc qdisc add dev near0 root tbf rate 1gbit burst 64k limit 1m"),
        Some(theirs),
    ] {
        if let Some(make) = there {
            lab.shell("near", make);
        }
        let before = told();
        for (words, shown) in [
            ("tbf rate 500mbit burst 128k latency 20ms", "tbf"),
            (
                "htb default 20 rate 2gbit ceil 4gbit burst 256k cburst 256k",
                "htb",
            ),
        ] {
            let file = lab.path("qdisc.toml");
            let text_of = format!("[settings]\n\"nic/near0/qdisc\" = \"{words}\"\n");
            std::fs::write(&file, text_of).expect("the lab's folder");
            let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
            let applied = lab.run(&apply).expect_code(0);
            assert!(
                applied.out.contains(&format!("-> {words}")),
                "{}",
                applied.out
            );
            assert!(told().contains(&format!("qdisc {shown} ")), "{}", told());
            assert_ne!(told(), before);
            let again = lab.run(&apply).expect_code(0);
            assert!(again.err.contains("nothing to change"), "{}", again.err);
            lab.run(&["tune", "undo"]).expect_code(0);
            assert_eq!(told(), before, "{words}");
        }
        if there.is_some() {
            lab.shell("near", "tc qdisc del dev near0 root");
        }
    }
}

/// A plan that would replace what could not be restored is not begun.
#[track_caller]
fn assert_refused_for_good(lab: &Lab, file: &std::path::Path, told: impl Fn() -> String) {
    let before = told();
    let apply = ["tune", "apply", "--no-confirm", "--from", text(file)];
    let refused = lab.run(&apply).expect_code(22);
    assert!(
        refused.err.contains("could not be restored"),
        "{}",
        refused.err
    );
    assert_eq!(told(), before);
}

#[test]
fn the_queues_of_a_card_are_served_in_turn_and_by_what_was_there_again() {
    let Some(lab) = Lab::new() else { return };
    lab.shell(
        "near",
        "ip link add many0 numtxqueues 4 numrxqueues 4 type veth peer name many1
        ip link set many0 up; ip link set many1 up",
    );
    let told = || lab.shell("near", "tc -d qdisc show dev many0");
    for (there, words) in [
        (None, "mq"),
        (
            Some("tc qdisc add dev many0 root handle 7: tbf rate 1gbit burst 64k limit 1m"),
            "mq",
        ),
        (
            Some("tc qdisc add dev many0 root handle 8: mq"),
            "tbf rate 500mbit burst 128k latency 20ms",
        ),
    ] {
        if let Some(make) = there {
            lab.shell("near", make);
        }
        let before = told();
        let file = lab.path("qdisc.toml");
        let plan = format!("[settings]\n\"nic/many0/qdisc\" = \"{words}\"\n");
        std::fs::write(&file, plan).expect("the lab's folder");
        let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
        lab.run(&apply).expect_code(0);
        let kind = words.split(' ').next().unwrap_or(words);
        assert!(told().contains(&format!("qdisc {kind} ")), "{}", told());
        lab.run(&["tune", "undo"]).expect_code(0);
        assert_eq!(told(), before, "{there:?}");
        if there.is_some() {
            lab.shell("near", "tc qdisc del dev many0 root");
        }
    }
    // Another user's qdisc below it is restored with it; its filter with an action could not be.
    lab.shell(
        "near",
        "tc qdisc add dev many0 root handle 9: mq; tc qdisc replace dev many0 parent 9:2 handle a: pfifo limit 9",
    );
    let before = told();
    let file = lab.path("qdisc.toml");
    lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)])
        .expect_code(0);
    assert_ne!(told(), before);
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_eq!(told(), before);
    lab.shell(
        "near",
        "tc qdisc del dev many0 root; tc qdisc add dev many0 root handle 9: htb
        tc filter add dev many0 parent 9: protocol ip u32 match u32 0 0 action mirred egress redirect dev lo",
    );
    assert_refused_for_good(&lab, &file, told);
}

/// Three classes below one rate, each with a qdisc.
const CLASSES: &str = "htb default 30 class 1 rate 10gbit quantum 60000 \
    class 10 parent 1 rate 50mbit burst 15k cburst 15k quantum 60000 prio 1 leaf pfifo limit 100 \
    class 30 parent 1 rate 5gbit ceil 10gbit quantum 60000 leaf bfifo limit 1m";

#[test]
fn a_hierarchy_is_changed_where_it_differs_and_taken_back_with_the_filters_of_others() {
    let Some(lab) = Lab::new() else { return };
    let told = || {
        lab.shell(
            "near",
            "tc -j -d qdisc show dev near0; tc -j -d class show dev near0
            tc -j -d filter show dev near0 parent 1:",
        )
    };
    lab.shell(
        "near",
        "tc qdisc add dev near0 root handle 1: htb default 2
        tc class add dev near0 parent 1: classid 1:2 htb rate 1gbit quantum 9000
        tc qdisc add dev near0 parent 1:2 handle 5: pfifo limit 55
        tc filter add dev near0 parent 1: protocol ip prio 1 u32 match ip tos 0x88 0xfc flowid 1:2",
    );
    let before = told();
    let file = lab.path("qdisc.toml");
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    let mut shown = Vec::new();
    for words in [
        CLASSES.to_owned(),
        CLASSES.replace("rate 50mbit", "rate 80mbit"),
        CLASSES.replace("leaf pfifo limit 100 ", ""),
    ] {
        std::fs::write(
            &file,
            format!("[settings]\n\"nic/near0/qdisc\" = \"{words}\"\n"),
        )
        .expect("the lab's folder");
        shown.push(told());
        lab.run(&apply).expect_code(0);
        let again = lab.run(&apply).expect_code(0);
        assert!(again.err.contains("nothing to change"), "{}", again.err);
    }
    // The last one first: each undo leaves what was there before that change.
    for earlier in shown.iter().rev() {
        lab.run(&["tune", "undo"]).expect_code(0);
        assert_eq!(told(), *earlier);
    }
    assert_eq!(told(), before);
}

#[test]
fn an_interface_that_is_gone_is_told_and_another_of_its_name_is_left_alone() {
    let Some(lab) = Lab::new() else { return };
    let make = "ip link add spare0 type veth peer name spare1";
    let file = lab.path("spare.toml");
    let plan = "[settings]
\"nic/spare0/mtu\" = 1400
\"sysctl/net.ipv4.tcp_sack\" = \"0\"
";
    std::fs::write(&file, plan).expect("the lab's folder");
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    let sack = || lab.shell("near", "sysctl -n net.ipv4.tcp_sack");
    for happens in [
        "ip link del spare0",
        "ip link del spare0; ip link add spare0 mtu 1400 type veth peer name spare1",
    ] {
        lab.shell("near", make);
        lab.run(&apply).expect_code(0);
        assert_eq!(sack().trim(), "0");
        lab.shell("near", happens);
        let undone = lab.run(&["tune", "undo"]).expect_code(0).out;
        assert!(
            undone.contains("nic/spare0/mtu was 1500 and no longer exists"),
            "{happens}: {undone}"
        );
        assert_eq!(sack().trim(), "1", "{happens}");
    }
    assert_eq!(
        lab.shell("near", "cat /sys/class/net/spare0/mtu").trim(),
        "1400"
    );
}

#[test]
fn a_plan_whose_later_change_moves_an_earlier_one_is_taken_back_and_says_which() {
    let Some(lab) = Lab::new() else { return };
    // Routers accept no redirects: the kernel changes the one with the other.
    let now = || {
        lab.shell(
            "near",
            "sysctl net.ipv4.ip_forward net.ipv4.conf.all.accept_redirects",
        )
    };
    lab.shell(
        "near",
        "sysctl -qw net.ipv4.ip_forward=0; sysctl -qw net.ipv4.conf.all.accept_redirects=0",
    );
    let before = now();
    let file = lab.path("both.toml");
    let plan = "[settings]
\"sysctl/net.ipv4.conf.all.accept_redirects\" = \"1\"
\"sysctl/net.ipv4.ip_forward\" = \"1\"
";
    std::fs::write(&file, plan).expect("the lab's folder");
    let told = lab
        .run(&["tune", "apply", "--no-confirm", "--from", text(&file)])
        .expect_code(30);
    let why = "sysctl/net.ipv4.conf.all.accept_redirects was set to `1`, but after all changes it is \
               `0`; the later change of sysctl/net.ipv4.ip_forward modified it; all changes were rolled back";
    assert!(told.err.contains(why), "{}", told.err);
    assert_eq!(now(), before);
}

#[test]
fn classes_with_a_filter_that_could_not_be_made_again_are_not_touched() {
    let Some(lab) = Lab::new() else { return };
    lab.shell(
        "near",
        "tc qdisc add dev near0 root handle 1: htb default 10
        tc class add dev near0 parent 1: classid 1:10 htb rate 1gbit
        tc class add dev near0 parent 1: classid 1:11 htb rate 1gbit
        tc filter add dev near0 parent 1: protocol ip prio 1 u32 match ip dport 9 0xffff flowid 1:11 \
            action mirred egress redirect dev near0",
    );
    let told = || {
        lab.shell(
            "near",
            "tc -d qdisc show dev near0; tc -d class show dev near0; tc filter show dev near0",
        )
    };
    let file = lab.path("qdisc.toml");
    let plan = "[settings]\n\"nic/near0/qdisc\" = \"tbf rate 1gbit burst 128k limit 1m\"\n";
    std::fs::write(&file, plan).expect("the lab's folder");
    assert_refused_for_good(&lab, &file, told);
}

#[test]
fn what_a_veth_does_not_have_is_refused_and_changes_nothing() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    for setting in [
        "\"nic/near0/link/speed\" = \"1000 full\"",
        "\"nic/near0/rss/key\" = \"00:01\"",
        "\"nic/near0/dcb/app\" = \"dscp-prio 26:3\"",
    ] {
        let file = lab.path("refused.toml");
        std::fs::write(&file, format!("[settings]\n{setting}\n")).expect("the lab's folder");
        let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
        lab.run(&apply).expect_code(22);
        assert_eq!(lab.dump(), before, "{setting}");
    }
}

#[test]
fn on_a_console_the_user_is_asked_whether_to_keep_the_changes() {
    if ["SSH_CONNECTION", "SSH_TTY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        eprintln!("SKIP: the tests run over ssh, where the question is not asked");
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let file = plan(&lab);
    for (answer, code) in [("n", 30), ("y", 0)] {
        let (mut screen, terminal) = crate::experiment::open_terminal(24, 80);
        let mut command = lab.linerate(&["tune", "apply", "--from", text(&file)]);
        let stdin = terminal.try_clone().expect("the terminal");
        command.stdin(stdin).stdout(Stdio::null()).stderr(terminal);
        let mut program = command.spawn().expect("it starts");
        drop(command);
        let (mut shown, mut piece) = (String::new(), [0; 4096]);
        while !shown.contains("[y/N]") {
            let count = screen.read(&mut piece).expect("the question");
            shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        assert!(shown.contains("Keep these changes?"), "{shown}");
        writeln!(screen, "{answer}").expect("the answer");
        while let Ok(1..) = screen.read(&mut piece) {}
        let ended = program.wait().expect("it ends");
        assert_eq!(ended.code(), Some(code), "{answer}");
        match answer {
            "n" => assert_same(&lab, &before, "after no"),
            _ => assert_ne!(lab.dump(), before, "after yes"),
        }
    }
    json(&lab, &["undo"]);
    assert_same(&lab, &before, "after `tune undo`");
}

#[test]
fn settings_of_both_hosts_change_together_and_are_undone_from_here() {
    for lab in Lab::for_each_channel() {
        let before = lab.dump();
        let plan = lab.path("both.toml");
        let both = "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n[peer.settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n";
        std::fs::write(&plan, both).expect("the lab's folder");
        let apply = ["apply", "--peer", "netns:far", "--from", text(&plan)];
        let applied = json(&lab, &apply);
        assert_eq!(
            applied["peer_changes"].as_array().map(Vec::len),
            Some(1),
            "{applied:#}"
        );
        let sack = || ["near", "far"].map(|host| lab.shell(host, "sysctl -n net.ipv4.tcp_sack"));
        assert_eq!(sack(), ["0\n", "0\n"]);
        lab.run(&["tune", "undo"]).expect_code(0);
        assert_same(&lab, &before, "after `tune undo`");
        // Changes of the other host alone are undone from here, too.
        let far_only = "[peer.settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n";
        std::fs::write(&plan, far_only).expect("the lab's folder");
        json(&lab, &apply);
        assert_eq!(sack(), ["1\n", "0\n"]);
        let status = lab.run(&["tune", "status"]).expect_code(0).out;
        assert!(status.contains("nothing here; with "), "{status}");
        lab.run(&["tune", "undo"]).expect_code(0);
        assert_same(
            &lab,
            &before,
            "after `tune undo` of changes of the other host alone",
        );
    }
}
