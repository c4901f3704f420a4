//! `measure udp`: the runs of lost datagrams that a black hole of nftables makes.

use std::time::Instant;

use serde_json::Value;

use crate::failover::{BOTH, holed, rules};
use crate::fitting;
use crate::job::Job;
use crate::lab::Lab;

fn number(value: &Value) -> u128 {
    let number = value.as_u64();
    number
        .unwrap_or_else(|| panic!("{value} is no number"))
        .into()
}

#[test]
fn a_black_hole_is_a_gap_of_its_length_and_without_loss_there_is_none() {
    let Some(lab) = holed(BOTH) else { return };
    let words = ["--format", "json", "measure", "udp", "netns:far"];
    // A datagram each 4 ms.
    let options = ["--time", "10s", "--size", "500", "--rate", "1Mb/s"];
    let job = Job::start(lab.linerate(&[&words[..], &options].concat()));
    let before = lab.counter("near", "tx_bytes");
    while lab.counter("near", "tx_bytes") < before + 50_000 && !job.has_ended() {}
    let hole = format!("nft -f {}", rules_of_udp(&lab));
    let heal = rules(&lab, "heal");
    let began = Instant::now();
    lab.shell("near", &format!("{hole}; sleep 0.5; {heal}"));
    let most = began.elapsed().as_nanos();
    let document = fitting(&job.end().expect_code(0).out);
    let datagrams = &document["datagrams"];
    let gaps = &datagrams["gaps"];
    let around = number(&gaps["step_ns"]) + number(&gaps["longest_send_gap_ns"]);
    let longest = number(&gaps["longest_ns"]);
    assert!(number(&gaps["count"]) >= 1, "{datagrams:#}");
    assert!(
        // The sender may also have paused at both ends of it.
        longest + around >= 500_000_000 && longest <= most + around + 500_000_000,
        "{datagrams:#}"
    );
    assert_eq!(number(&gaps["step_ns"]), 4_000_000);
    let whole = lab.run(&[
        "measure",
        "udp",
        "netns:far",
        "--time",
        "1s",
        "--rate",
        "1Mb/s",
    ]);
    let out = &whole.expect_code(0).out;
    // What a busy machine loses is lost, and has a gap; a pause alone has none.
    assert_eq!(
        out.contains("gaps      none; resolution"),
        out.contains(" 0 lost "),
        "{out}"
    );
}

/// Rules that drop datagrams and let the companions of the flows pass.
fn rules_of_udp(lab: &Lab) -> String {
    let udp = BOTH.lines().filter(|line| line.contains("l4proto udp"));
    let rules: Vec<&str> = udp.collect();
    let path = lab.path("udp");
    std::fs::write(&path, format!("{}\n", rules.join("\n"))).expect("the lab's folder");
    path.display().to_string()
}
