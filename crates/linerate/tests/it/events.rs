//! What happens to the network of both ends during a trial, and the limit that it names.

use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job};
use crate::lab::Lab;

/// The data that shows that a trial runs, far more than two ends exchange before it.
const MOVED: u64 = 200_000;

/// The fault: the other end of the link is down for a second.
const FAULT: &str = "ip link set dev far0 down; sleep 1; ip link set dev far0 up";

/// Runs `measure` and the fault in the midst of it.
#[track_caller]
fn interrupted(lab: &Lab, words: &str) -> Done {
    let all = ["--format", "json", "measure"].into_iter();
    let all: Vec<&str> = all.chain(words.split(' ')).collect();
    let before = lab.counter("near", "tx_bytes");
    let job = Job::start(lab.linerate(&all));
    while lab.counter("near", "tx_bytes") < before + MOVED && !job.has_ended() {}
    lab.shell("far", FAULT);
    job.end().expect_code(0)
}

/// The states of an interface among the events of an end: whether it carries, in order.
fn states(document: &Value, end: &str, nic: &str) -> Vec<bool> {
    let events = &document["raw"][end]["events"]["events"];
    let all = events.as_array().expect("events").iter();
    let links = all.map(|event| &event["change"]["link"]);
    let own = links.filter(|link| link["nic"] == nic);
    own.map(|link| link["up"] == true && link["carrier"] == true)
        .collect()
}

#[test]
fn a_trial_whose_link_went_down_says_so_and_both_ends_recorded_when() {
    let Some(lab) = Lab::new() else { return };
    for words in [
        "udp netns:far --rate 20Mb/s --time 6 --events",
        "stream netns:far --pacing 200Mb/s --time 6 --events",
    ] {
        let document = fitting(&interrupted(&lab, words).out);
        assert_eq!(
            document["limit"]["what"], "link down",
            "{words}: {document}"
        );
        for (end, nic) in [("local", "near0"), ("remote", "far0")] {
            let states = states(&document, end, nic);
            assert!(states.contains(&false), "{words}, {end}: {document}");
            assert_eq!(states.last(), Some(&true), "{words}, {end}");
            let events = &document["raw"][end]["events"];
            assert_eq!(events["nics"], serde_json::json!([nic]), "{words}");
            let time = |place: &Value| place.as_u64().expect("a time");
            let began = time(&events["trial_began_ns"]);
            assert!(time(&events["began"]["monotonic_ns"]) <= began, "{words}");
            assert!(began < time(&events["ended"]["monotonic_ns"]), "{words}");
        }
        let gateways = &document["raw"]["local"]["events"]["gateways"];
        assert_eq!(gateways, &serde_json::json!(["10.77.0.2"]), "{words}");
    }
}

#[test]
fn a_stream_whose_link_went_down_says_so_without_events() {
    let Some(lab) = Lab::new() else { return };
    let document = fitting(&interrupted(&lab, "stream netns:far --time 6").out);
    let limit = &document["limit"];
    assert_eq!(limit["what"], "link down", "{limit:#}");
    assert_eq!(document["raw"]["local"]["events"], Value::Null);
    let evidence = limit["evidence"].as_array().expect("a list");
    let names = |nic| {
        let mut all = evidence.iter().filter_map(|one| one["what"].as_str());
        all.any(|what| what.contains(&format!("carrier changes of {nic}")))
    };
    assert!(names("near0") && names("far0"), "{limit:#}");
}

#[test]
fn a_trial_without_events_records_none() {
    let Some(lab) = Lab::new() else { return };
    let document = lab.stream(&[]);
    assert_eq!(document["raw"]["local"]["events"], Value::Null);
}
