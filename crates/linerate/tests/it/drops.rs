//! Where a trial's packets were dropped or shaped: places that no interface counts, and classes.

use serde_json::Value;

use crate::lab::Lab;

/// How much a counter of one end's trial grew; skips where the kernel or the user's rights do not let it count.
fn grown(document: &Value, end: &str, key: &str) -> Option<u64> {
    let watch = &document["raw"][end]["counters"];
    if let Some(gap) = watch["gaps"].get("drop") {
        eprintln!("SKIP: drop reasons are not counted here: {gap}");
        return None;
    }
    let counter = &watch["counters"][key];
    let value = |when: &str| counter[when].as_u64();
    let grown = value("after")
        .zip(value("before"))
        .and_then(|(after, before)| after.checked_sub(before));
    assert!(grown.is_some(), "{key}: {counter} of {watch:#}");
    grown
}

/// Runs a script on `far`; skips where a tool or the kernel does not know it.
fn prepared(lab: &Lab, script: &str) -> bool {
    prepared_on(lab, "far", script)
}

fn prepared_on(lab: &Lab, host: &str, script: &str) -> bool {
    let mut command = lab.on(host, "sh");
    command.args(["-ec", script]);
    let done = crate::job::run(command);
    let is_ready = done.code == Some(0);
    if !is_ready {
        eprintln!(
            "SKIP: cannot drop or shape packets here: {}",
            done.err.trim()
        );
    }
    is_ready
}

fn says(document: &Value, what: &str) -> bool {
    let evidence = document["limit"]["evidence"].as_array();
    evidence.is_some_and(|all| {
        let text = |one: &Value| one["what"].as_str().unwrap_or_default().contains(what);
        all.iter().any(text)
    })
}

#[test]
fn what_netfilter_drops_is_counted_and_named_as_the_place_of_the_loss() {
    let Some(lab) = Lab::new() else { return };
    let rules = "nft add table ip t
        nft 'add chain ip t c { type filter hook input priority 0 ; }'
        nft 'add rule ip t c meta l4proto tcp tcp dport != 22 limit rate over 1 mbytes/second burst 64 kbytes drop'";
    if !prepared(&lab, rules) {
        return;
    }
    let document = lab.stream(&[]);
    let Some(dropped) = grown(&document, "remote", "drop/NETFILTER_DROP") else {
        return;
    };
    assert!(dropped > 0, "{:#}", document["limit"]);
    let limit = &document["limit"];
    if limit["what"] == "loss" {
        let place = "netfilter (NETFILTER_DROP, of the whole machine)";
        assert!(says(&document, place), "{limit:#}");
    } else {
        eprintln!("SKIP: loss was not the limit: {}", limit["what"]);
    }
}

#[test]
fn a_path_without_drops_counts_none_of_netfilter() {
    let Some(lab) = Lab::new() else { return };
    let document = lab.stream(&[]);
    for end in ["local", "remote"] {
        // Other programs of this machine may drop packets: only that it was counted is certain.
        let counted = grown(&document, end, "drop/NETFILTER_DROP");
        let gap = document["raw"][end]["counters"]["gaps"].get("drop");
        assert!(counted.is_some() || gap.is_some(), "{end}");
    }
}

#[test]
fn an_ingress_filter_that_drops_is_counted_by_its_reason() {
    let Some(lab) = Lab::new() else { return };
    // TC_ACT_SHOT (2) for packets whose IP identification is a multiple of 32, else TC_ACT_OK.
    let filter = "tc qdisc add dev far0 ingress
        tc filter add dev far0 parent ffff: protocol ip bpf da \
            bytecode '5,40 0 0 18,84 0 0 31,21 0 1 0,6 0 0 2,6 0 0 0'";
    if !prepared(&lab, filter) {
        return;
    }
    let document = lab.stream(&[]);
    if let Some(dropped) = grown(&document, "remote", "drop/TC_INGRESS") {
        assert!(dropped > 0, "{:#}", document["limit"]);
    }
}

#[test]
fn an_htb_with_filters_below_one_class_is_a_shaper_at_the_rate_of_that_class() {
    let Some(lab) = Lab::new() else { return };
    // The top class has no parent to borrow from: its ceil has no effect.
    let classes = "tc qdisc add dev near0 root handle 1: htb default 20
        tc class add dev near0 parent 1: classid 1:1 htb rate 20mbit ceil 90mbit
        tc class add dev near0 parent 1:1 classid 1:10 htb rate 12mbit ceil 90mbit
        tc class add dev near0 parent 1:1 classid 1:20 htb rate 8mbit ceil 90mbit
        tc filter add dev near0 parent 1: protocol ip u32 match ip protocol 6 0xff flowid 1:10";
    if !prepared_on(&lab, "near", classes) {
        return;
    }
    let document = lab.stream(&[]);
    // On a busy machine the rate may be far below it, and then another limit.
    if document["limit"]["what"] != "a shaper" {
        let share = document["ceiling"]["share"].as_f64().expect("a share");
        assert!(share < 0.9, "{document:#}");
    }
    // The payload of 20 Mb/s of frames: 1448 of 1514 bytes. The rate itself is lower on a busy machine.
    let ceiling = &document["ceiling"];
    let rate = ceiling["bit_per_s"].as_f64().expect("a rate");
    assert!((19.0e6..19.3e6).contains(&rate), "{ceiling:#}");
}

#[test]
fn datagrams_that_the_senders_firewall_drops_are_lost_and_no_error() {
    let Some(lab) = Lab::new() else { return };
    let rules = "nft add table ip t
        nft 'add chain ip t c { type filter hook output priority 0 ; }'
        nft 'add rule ip t c meta l4proto udp numgen inc mod 4 == 0 drop'";
    if !prepared_on(&lab, "near", rules) {
        return;
    }
    let measure = [
        "--format",
        "json",
        "measure",
        "udp",
        "netns:far",
        "--time",
        "0.6",
    ];
    let plain = ["--rate", "20Mbit/s", "--batch", "single"];
    let done = lab.run(&[&measure[..], &plain].concat()).expect_code(0);
    let document: Value = serde_json::from_str(&done.out).expect("JSON");
    let flows = document["raw"]["remote"]["flows"].as_array();
    let datagrams = &flows.expect("flows")[0]["datagrams"];
    let count = |key: &str| datagrams[key].as_u64().expect("a count");
    let (arrived, lost) = (count("count"), count("lost"));
    assert!(arrived > 0 && lost > 0, "{datagrams}");

    lab.shell("near", "nft 'add rule ip t c meta l4proto udp drop'");
    let all = lab.run(&[&measure[..], &plain].concat());
    assert_eq!(all.code, Some(21), "{}", all.err);
    assert!(
        all.err.contains("a packet filter of this host"),
        "{}",
        all.err
    );
}

#[test]
fn a_stream_that_a_path_stops_in_the_middle_ends_with_what_arrived() {
    let Some(lab) = Lab::new() else { return };
    // After 8 MB no packet of TCP arrives: the connection retransmits ever more rarely, and never ends.
    let rules = "nft add table ip t
        nft 'add chain ip t c { type filter hook input priority 0 ; }'
        nft 'add rule ip t c meta l4proto tcp quota over 8 mbytes drop'";
    if !prepared(&lab, rules) {
        return;
    }
    let document = lab.stream(&[]);
    let arrived = document["total"]["bytes"].as_u64().expect("bytes");
    assert!((1..=8 << 20).contains(&arrived), "{arrived}");
}
