//! `qos verify` beside limits that tc(8) and nft(8) made: correct ones hold, and of wrong ones it names the class and the reason.
//!
//! A busy machine may leave a class empty, so that its limit cannot be judged (exit code 12): a correct limit never fails.

use rustix::process::Signal;
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job};
use crate::lab::{FAR, Lab};

/// A class as tc(8) makes it.
struct Made {
    /// `1:10`.
    id: &'static str,
    rate: &'static str,
    ceil: &'static str,
}

const fn made(id: &'static str, rate: &'static str, ceil: &'static str) -> Made {
    Made { id, rate, ceil }
}

/// Makes the classes below one of `top`, with a short queue each, and the rules that fill them; what no rule selects is of class
/// `rest`.
#[track_caller]
fn make(lab: &Lab, top: &str, rest: &str, classes: &[Made], rules: &[&str]) {
    let class = |Made { id, rate, ceil }: &Made| {
        format!(
            "tc class add dev near0 parent 1:1 classid {id} htb rate {rate} ceil {ceil} burst 64k cburst 64k quantum 60000
            tc qdisc add dev near0 parent {id} pfifo limit 100\n"
        )
    };
    let classes: String = classes.iter().map(class).collect();
    let rules = if rules.is_empty() {
        String::new()
    } else {
        format!(
            "nft 'table netdev qos {{ chain classes {{ type filter hook egress device \"near0\" priority 0; {} ; }} ; }}'\n",
            rules.join(" ; ")
        )
    };
    let script = format!(
        "set -e
        tc qdisc add dev near0 root handle 1: htb default {rest}
        tc class add dev near0 parent 1: classid 1:1 htb rate {top} ceil {top} quantum 60000
        {classes}{rules}"
    );
    lab.shell("near", &script);
}

/// Whether this kernel and these tools have what the tests make.
fn can_make(lab: &Lab) -> bool {
    let probe = "tc qdisc add dev lo root handle 1: htb && tc qdisc del dev lo root \
        && nft 'table netdev probe { chain c { type filter hook egress device \"lo\" priority 0; meta priority 0:1 meta priority set 1:10 ; } ; }' \
        && nft delete table netdev probe && echo fine || true";
    let fine = lab.shell("near", probe).contains("fine");
    if !fine {
        eprintln!("SKIP: no htb or no nf_tables egress hook here");
    }
    fine
}

/// Runs `qos verify` on a file with that text.
#[track_caller]
fn verify(lab: &Lab, classes: &str, more: &[&str]) -> (Done, Value) {
    let path = lab.path("classes.toml");
    let text = format!("[qos]\ninterface = \"near0\"\n{classes}");
    std::fs::write(&path, text).expect("a file of the test");
    let file = path.to_str().expect("UTF-8");
    let fixed = ["--format", "json", "qos", "verify", file, "netns:far"];
    let short = ["--rounds", "3", "--time", "1s", "--flows", "4"];
    let done = lab.run(&[&fixed[..], &short[..], more].concat());
    let document = fitting(&done.out);
    (done, document)
}

#[track_caller]
fn class<'a>(document: &'a Value, name: &str) -> &'a Value {
    let classes = document["directions"][0]["classes"].as_array();
    let mut classes = classes.expect("a list").iter();
    classes
        .find(|class| class["class"] == name)
        .unwrap_or_else(|| panic!("class {name}: {document}"))
}

/// No class fails, and each that holds has its limit within 1 %. The exit code is 0 if all hold; a busy machine may leave one open.
#[track_caller]
fn assert_holds(done: &Done, document: &Value) {
    let of_all = document["directions"].as_array().expect("a list").iter();
    let mut of_all = of_all.flat_map(|one| one["classes"].as_array().expect("a list"));
    let all_hold = of_all.all(|class| class["verdict"] == "holds");
    let code = if all_hold { 0 } else { 12 };
    assert_eq!(done.code, Some(code), "{}\n{document:#}", done.err);
    let classes = document["directions"][0]["classes"].as_array();
    for class in classes.expect("a list") {
        assert_ne!(class["verdict"], "fails", "{class:#}");
        if let (Some(share), "holds") = (
            class["share_of_limit"]["median"].as_f64(),
            class["verdict"].as_str().expect("a word"),
        ) {
            assert!((share - 1.0).abs() <= 0.01, "{class:#}");
        }
    }
}

/// The reasons of a class, where the machine was not too busy to find them.
#[track_caller]
fn reasons(done: &Done, document: &Value, name: &str) -> Option<String> {
    if done.code == Some(12) {
        eprintln!("SKIP: the machine is too busy to judge class {name}");
        return None;
    }
    assert_eq!(done.code, Some(11), "{}\n{document:#}", done.err);
    let class = class(document, name);
    if class["verdict"] == "cannot-tell" {
        eprintln!("SKIP: the machine is too busy to judge class {name}; another one fails");
        return None;
    }
    assert_eq!(class["verdict"], "fails", "{class:#}");
    Some(class["reasons"].to_string())
}

const BY_PRIORITY: &str = "meta priority 0:1 meta priority set 1:10";
const TWO: &str = "
[[class]]
name = \"storage\"
priority = 1
limit = \"20mbit\"
[[class]]
name = \"rest\"
limit = \"40mbit\"
";

#[test]
fn limits_by_priority_mark_and_dscp_hold_beside_a_class_without_a_limit() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    let classes = [
        made("1:10", "50mbit", "50mbit"),
        made("1:20", "100mbit", "100mbit"),
        made("1:30", "40mbit", "40mbit"),
        made("1:40", "1gbit", "10gbit"),
    ];
    let rules = [
        BY_PRIORITY,
        "meta mark 7 meta priority set 1:20",
        "ip dscp af21 meta priority set 1:30",
    ];
    make(&lab, "10gbit", "40", &classes, &rules);
    let file = "
        [[class]]
        name = \"storage\"
        priority = 1
        limit = \"50mbit\"
        [[class]]
        name = \"backup\"
        mark = 7
        limit = \"100mbit\"
        [[class]]
        name = \"mail\"
        dscp = \"af21\"
        limit = \"40mbit\"";
    let (done, document) = verify(&lab, file, &["--seed", "7"]);
    assert_holds(&done, &document);
    assert_eq!(document["seed"], 7);
    assert_eq!(class(&document, "rest")["limit_bit_per_s"], Value::Null);
    assert_eq!(
        class(&document, "storage")["others"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

#[test]
fn limits_hold_over_ipv6_by_dscp_and_port() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    lab.shell("near", "ip address add fd77::1/64 dev near0 nodad");
    lab.shell("far", "ip address add fd77::2/64 dev far0 nodad");
    let classes = [
        made("1:10", "20mbit", "20mbit"),
        made("1:20", "30mbit", "30mbit"),
        made("1:30", "40mbit", "40mbit"),
    ];
    let rules = [
        "ip6 dscp ef meta priority set 1:10",
        "tcp dport 5001 meta priority set 1:20",
    ];
    make(&lab, "10gbit", "30", &classes, &rules);
    let file = "
        [[class]]
        name = \"voice\"
        dscp = \"ef\"
        limit = \"20mbit\"
        [[class]]
        name = \"backup\"
        ports = [5001]
        limit = \"30mbit\"
        [[class]]
        name = \"rest\"
        limit = \"40mbit\"";
    let (done, document) = verify(&lab, file, &["--address", "fd77::2"]);
    assert_holds(&done, &document);
}

#[test]
fn datagrams_are_held_to_the_limit_and_both_directions_are_judged() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    let classes = [
        made("1:10", "20mbit", "20mbit"),
        made("1:20", "40mbit", "40mbit"),
    ];
    make(&lab, "10gbit", "20", &classes, &[BY_PRIORITY]);
    let (done, document) = verify(&lab, TWO, &["--udp"]);
    assert_holds(&done, &document);
    // The peer has no limit.
    let (done, document) = verify(&lab, TWO, &["--bidir"]);
    assert_eq!(done.code, Some(11), "{}\n{document:#}", done.err);
    let back = &document["directions"][1];
    assert_eq!(back["direction"], "reverse");
    for class in back["classes"].as_array().expect("a list") {
        assert_eq!(class["verdict"], "fails", "{class:#}");
    }
}

#[test]
fn a_limit_that_is_off_by_five_per_cent_is_named_with_what_is_configured() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    let classes = [
        made("1:10", "21mbit", "21mbit"),
        made("1:20", "40mbit", "40mbit"),
    ];
    make(&lab, "10gbit", "20", &classes, &[BY_PRIORITY]);
    let (done, document) = verify(&lab, TWO, &[]);
    if let Some(reasons) = reasons(&done, &document, "storage") {
        assert!(
            reasons.contains("class 1:10 of near0 has a ceil of 21.0"),
            "{reasons}"
        );
    }
    assert_ne!(class(&document, "rest")["verdict"], "fails", "{document:#}");
}

#[test]
fn a_rule_that_misses_its_class_is_named_with_the_class_that_got_the_traffic() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    let classes = [
        made("1:10", "20mbit", "20mbit"),
        made("1:20", "40mbit", "40mbit"),
    ];
    let wrong = "meta priority 0:2 meta priority set 1:10";
    make(&lab, "10gbit", "20", &classes, &[wrong]);
    let (done, document) = verify(&lab, TWO, &[]);
    assert_eq!(done.code, Some(11), "{}\n{document:#}", done.err);
    let reasons = class(&document, "storage")["reasons"].to_string();
    let expected = "its traffic passed class rest (1:20): check its filter for priority 1";
    assert!(reasons.contains(expected), "{reasons}");
    assert_ne!(class(&document, "rest")["verdict"], "fails", "{document:#}");
}

#[test]
fn classes_that_share_a_parent_without_a_guarantee_are_found() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    let classes = [
        made("1:10", "1mbit", "20mbit"),
        made("1:20", "1mbit", "40mbit"),
    ];
    make(&lab, "40mbit", "20", &classes, &[BY_PRIORITY]);
    let (done, document) = verify(&lab, TWO, &[]);
    if let Some(reasons) = reasons(&done, &document, "rest") {
        assert!(reasons.contains("while all send it sends"), "{reasons}");
    }
}

#[test]
fn a_queue_that_all_classes_share_is_found() {
    let Some(lab) = Lab::new() else { return };
    let shared = "tc qdisc add dev near0 root tbf rate 40mbit burst 64kb limit 300000";
    lab.shell("near", shared);
    let file = TWO.replace("20mbit", "40mbit");
    let (done, document) = verify(&lab, &file, &[]);
    if let Some(reasons) = reasons(&done, &document, "storage") {
        assert!(
            reasons.contains("it shares the queue of that class"),
            "{reasons}"
        );
    }
}

#[test]
fn the_text_names_each_class_and_fits_a_terminal() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    let classes = [
        made("1:10", "20mbit", "20mbit"),
        made("1:20", "40mbit", "40mbit"),
    ];
    make(&lab, "10gbit", "20", &classes, &[BY_PRIORITY]);
    let path = lab.path("classes.toml");
    std::fs::write(&path, format!("[qos]\ninterface = \"near0\"\n{TWO}")).expect("a file");
    let file = path.to_str().expect("UTF-8");
    let done = lab.run(&[
        "qos",
        "verify",
        file,
        "netns:far",
        "--rounds",
        "3",
        "--time",
        "500ms",
        "--flows",
        "2",
    ]);
    assert!(
        matches!(done.code, Some(0 | 12)),
        "{}\n{}",
        done.out,
        done.err
    );
    for line in done.out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for start in ["class ", "storage ", "rest "] {
        let mut lines = done.out.lines();
        assert!(
            lines.any(|line| line.starts_with(start)),
            "{start}: {}",
            done.out
        );
    }
}

#[test]
fn what_cannot_be_verified_is_an_error_that_names_the_class_or_the_file() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.path("classes.toml");
    let file = path.to_str().expect("UTF-8");
    for (text, code, words) in [
        (
            "[qos]\ninterface = \"none0\"\n[[class]]\nname = \"a\"\npriority = 1\n",
            23,
            "none0",
        ),
        ("[qos]\ninterface = \"near0\"\n", 23, "there is no class"),
        (
            "[qos]\ninterface = \"near0\"\n[[class]]\nname = \"a\"\nvlan = 10\n",
            23,
            "near0.10",
        ),
    ] {
        std::fs::write(&path, text).expect("a file");
        let done = lab.run(&["qos", "verify", file, "netns:far"]);
        assert_eq!(done.code, Some(code), "{text}: {}", done.err);
        assert!(done.err.contains(words), "{text}: {}", done.err);
    }
    let done = lab.run(&["qos", "verify", file, "netns:far", "--port", "5000"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
}

/// Two classes with their limits.
fn made_twice(lab: &Lab) {
    let classes = [
        made("1:10", "20mbit", "20mbit"),
        made("1:20", "40mbit", "40mbit"),
    ];
    make(lab, "10gbit", "20", &classes, &[BY_PRIORITY]);
}

#[test]
fn a_verification_is_stored_shown_the_same_later_listed_exported_and_compared() {
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    made_twice(&lab);
    let (done, document) = verify(&lab, TWO, &["--name", "before"]);
    assert_holds(&done, &document);
    let path = lab.path("classes.toml");
    let file = path.to_str().expect("UTF-8");
    let taken = lab.run(&["qos", "verify", file, "netns:far", "--name", "before"]);
    assert_eq!(taken.code, Some(23), "the name is taken: {}", taken.err);
    verify(&lab, TWO, &[]);

    let shown = lab.run(&["report", "before", "--format", "json"]);
    let shown = fitting(&shown.expect_code(0).out);
    assert_eq!(shown, document);
    let page = lab.path("state/runs/before/report.html");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("linerate qos verify near0 netns:far"));
    assert!(page.contains("of limit [95 % CI]"), "the table");
    assert!(
        page.contains("<pre class=\"wide\" tabindex=\"0\""),
        "its columns do not wrap"
    );
    assert!(page.contains("Rates here count payload"));

    let listed = lab.run(&["runs", "--kind", "qos", "--format", "json"]);
    let listed = fitting(&listed.expect_code(0).out);
    let runs = listed["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2, "{listed:#}");
    for run in runs {
        assert_eq!(run["state"], "ended", "{run:#}");
        // 3 rounds: 2 alone, both together, both quiet, 2 beside.
        assert_eq!(run["trials"], 3 * (2 + 2 + 2 + 4), "{run:#}");
        let headline = run["headline"].as_str().expect("a headline");
        assert!(headline.ends_with("of 2 classes hold"), "{headline}");
    }

    let compared = lab.run(&["compare", "before", "last", "--format", "json"]);
    // Two runs at different times do not show a regression.
    assert_eq!(compared.code, Some(12), "{}", compared.err);
    let compared = fitting(&compared.out);
    let cells = compared["cells"].as_array().expect("a list");
    let cells: Vec<&Value> = cells.iter().map(|cell| &cell["levels"][0]).collect();
    assert_eq!(
        cells,
        [
            "rest alone",
            "rest together",
            "storage alone",
            "storage together"
        ]
    );

    let table = lab.run(&["export", "before"]).expect_code(0);
    assert_eq!(table.out.lines().count(), 1 + 30, "a row for each sample");
    assert!(table.out.contains("qos-trial"), "{}", table.out);
}

#[test]
fn a_signal_ends_it_early_with_what_is_judged_so_far_and_nothing_is_left() {
    const SEEN: &str = "tc -d qdisc show dev near0; tc -d class show dev near0; nft list ruleset";
    let Some(lab) = Lab::new() else { return };
    if !can_make(&lab) {
        return;
    }
    made_twice(&lab);
    let before = lab.shell("near", SEEN);
    let path = lab.path("classes.toml");
    std::fs::write(&path, format!("[qos]\ninterface = \"near0\"\n{TWO}")).expect("a file");
    let file = path.to_str().expect("UTF-8");
    let words = [
        "--format",
        "json",
        "qos",
        "verify",
        file,
        "netns:far",
        "--rounds",
        "1000",
        "--time",
        "500ms",
        "--flows",
        "2",
    ];
    // Before the first round is over, and after four.
    for (line, signal) in [("verifying", Signal::TERM), ("round 4", Signal::INT)] {
        let job = Job::start(lab.linerate(&words));
        job.wait_for_line(|text| text.starts_with(line));
        if line == "verifying" {
            wait_for_data(&lab, &job);
        }
        job.send(signal);
        let done = job.end().expect_code(130);
        assert!(
            done.err.contains("interrupted: the result is that of "),
            "{}",
            done.err
        );
        let document = fitting(&done.out);
        assert_eq!(document["interrupted"], true);
        let classes = document["directions"][0]["classes"].as_array();
        for class in classes.expect("a list") {
            let verdict = class["verdict"].as_str().expect("a word");
            if line == "verifying" {
                assert!(["not-tried", "cannot-tell"].contains(&verdict), "{class:#}");
            } else {
                assert_ne!(verdict, "not-tried", "{class:#}");
                assert!(class["alone_bit_per_s"]["median"].is_f64(), "{class:#}");
            }
        }
        if document["rounds"] != 0 {
            let shown = lab.run(&["report", "last", "--format", "json"]);
            assert_eq!(fitting(&shown.expect_code(0).out), document);
            let listed = lab.run(&["runs"]).expect_code(0);
            assert!(listed.out.contains("qos (stopped)"), "{}", listed.out);
        }
        assert_eq!(lab.shell("near", SEEN), before);
    }
}

/// Waits until a trial has moved data.
fn wait_for_data(lab: &Lab, job: &Job) {
    let before = lab.counter("near", "tx_bytes");
    while lab.counter("near", "tx_bytes") < before + 200_000 && !job.has_ended() {}
}

#[test]
fn a_class_of_ports_cannot_be_verified_with_a_listening_agent() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.path("classes.toml");
    let file = path.to_str().expect("UTF-8");
    let text = TWO.replace("priority = 1", "ports = [5001]");
    std::fs::write(&path, format!("[qos]\ninterface = \"near0\"\n{text}")).expect("a file");
    let done = lab.run(&["qos", "verify", file, FAR]);
    assert_eq!(done.code, Some(23), "{}", done.err);
    for part in ["class storage", "at its own port 5210", "hint: "] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}
