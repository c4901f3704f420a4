//! The page of a failover, of made-up trials.

use linerate_analysis::failover::timeline::{Lane, Mark, MarkKind, Span, SpanKind, Timeline};
use linerate_analysis::record::SCHEMA;
use linerate_model::build;
use linerate_model::end::End;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn header() -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        created_unix_s: 0,
        command: vec!["linerate".to_owned(), "failover".to_owned()],
        seed: 1,
        trials: 10,
        peer: "server".to_owned(),
        local_nic: "eth0".parse().expect("a name"),
        remote_nic: "eth1".parse().expect("a name"),
        address: "192.0.2.1".to_owned(),
        copy_bit_per_s: None,
    }
}

/// 64 flows in each direction; those with every fourth number are interrupted, each a little later than the one before.
fn timeline() -> Timeline {
    let flows = (0..64_u64).map(|flow| {
        let from = 2 * SECOND + flow * SECOND / 50;
        let spans = vec![Span {
            from_ns: Nanoseconds::new(from),
            to_ns: Nanoseconds::new(from + SECOND),
            kind: SpanKind::Lost,
        }];
        if flow % 4 == 0 { spans } else { Vec::new() }
    });
    let flows: Vec<Vec<Span>> = flows.collect();
    let lane = |direction| Lane {
        direction,
        workload: "udp",
        flows: flows.clone(),
    };
    Timeline {
        length_ns: Nanoseconds::new(10 * SECOND),
        lanes: vec![lane(Direction::Forward), lane(Direction::Reverse)],
        marks: vec![Mark {
            at_ns: Nanoseconds::new(2 * SECOND),
            kind: MarkKind::Carrier,
            end: Some(End::Local),
            what: "eth0: <no carrier>".to_owned(),
            count: 1,
        }],
    }
}

#[test]
fn the_page_begins_with_the_answer_and_escapes_what_hosts_report() {
    let (header, host, timeline) = (header(), build::host().build(), timeline());
    let page = failover_page(&FailoverPage {
        header: &header,
        local: &host,
        remote: &host,
        gateway: Some(IpAddr::from([10, 205, 1, 1])),
        answer: vec!["failure: interrupted for 1.00 s".to_owned()],
        head: &["trigger", "maximum"],
        rows: vec![vec!["failure".to_owned(), "1.00 s".to_owned()]],
        trials: vec![TrialView {
            timeline: &timeline,
            details: vec!["trial 1".to_owned()],
        }],
        longest: Some(0),
    });
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("no {words}"));
    assert!(at("interrupted for 1.00 s") < at("id=\"interruptions\""));
    assert!(at("id=\"interruptions\"") < at("id=\"timeline\""));
    assert!(page.contains("eth0: &lt;no carrier&gt;"), "not escaped");
    assert!(!page.contains("<no carrier>"));
    assert!(page.contains("network via 10.205.1.1"), "the first router");
}

#[test]
fn ten_trials_of_64_different_flows_in_both_directions_stay_light() {
    let picture = picture(&timeline(), 1);
    // A page of ten trials is smaller than its script.
    assert!(picture.len() < 8_000, "{} bytes", picture.len());
    let gaps = picture.matches('M').count();
    assert_eq!(gaps, 32, "a rectangle for each interrupted flow: {picture}");
}

#[test]
fn the_axis_of_time_has_round_labels() {
    for (length, label) in [(5, "1 s"), (6, "1 s"), (60, "10 s"), (300, "50 s")] {
        let timeline = Timeline {
            length_ns: Nanoseconds::new(length * SECOND),
            ..Timeline::default()
        };
        let picture = picture(&timeline, 1);
        assert!(picture.contains(&format!(">{label}</text>")), "{picture}");
    }
}
