//! `measure stream --why`: what limits a path, proved by trials that differ in one thing.

use serde_json::Value;

use crate::lab::Lab;

fn effect<'a>(document: &'a Value, intervention: &str) -> &'a Value {
    let all = document["limit"]["interventions"]
        .as_array()
        .expect("a list");
    let found = all.iter().find(|one| one["intervention"] == intervention);
    &found.unwrap_or_else(|| panic!("no {intervention} in {all:#?}"))["effect"]
}

/// On a machine that is busy with other work, effects may be unclear: then nothing is proved, and nothing else is named.
#[track_caller]
fn assert_proved(document: &Value, expected: &[&str], decisive: &[(&str, &str)]) {
    let limit = &document["limit"];
    let clear = |(intervention, wanted): &(&str, &str)| effect(document, intervention) == wanted;
    if !decisive.iter().all(clear) {
        eprintln!(
            "SKIP: too noisy for an intervention: {}",
            limit["interventions"]
        );
        return;
    }
    let what = limit["what"].as_str().expect("a limit");
    assert!(expected.contains(&what), "{limit:#}");
    assert_eq!(limit["status"], "proved", "{limit:#}");
}

#[test]
fn a_shaper_behind_an_ingress_redirection_is_proved_though_no_fact_shows_it() {
    let Some(lab) = Lab::new() else { return };
    let shape = "modprobe ifb numifbs=0 2>/dev/null
        ip link add ifb0 type ifb && ip link set ifb0 up &&
        tc qdisc add dev ifb0 root tbf rate 100mbit burst 128kb latency 20ms &&
        tc qdisc add dev far0 ingress &&
        tc filter add dev far0 parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev ifb0";
    let mut command = lab.on("far", "sh");
    command.args(["-c", shape]);
    let done = crate::job::run(command);
    if done.code != Some(0) {
        eprintln!("SKIP: no ingress redirection here: {}", done.err.trim());
        return;
    }
    let document = lab.stream(&["--why"]);
    let decisive = [("more-flows", "not-higher"), ("datagrams", "not-higher")];
    assert_proved(&document, &["a shaper"], &decisive);
    // The trial was one of a stream, whatever was tried after it.
    assert_eq!(document["transport"], "tcp");
}

#[test]
fn a_small_send_buffer_is_proved_by_more_connections_and_refutes_the_path() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", "sysctl -qw net.ipv4.tcp_wmem='4096 8192 8192'");
    let before = lab.dump();
    let document = lab.stream(&["--why", "--place", "0:0"]);
    crate::lab::assert_same(&lab, &before, "after `--why`");
    let hypotheses = document["limit"]["hypotheses"].as_array().expect("a list");
    assert!(hypotheses.len() > 10, "{hypotheses:#?}");
    if effect(&document, "datagrams") == "higher" {
        let shaper = hypotheses.iter().find(|one| one["what"] == "a shaper");
        let refuted = shaper.expect("every limit")["refuted_by"].as_array();
        assert!(
            refuted.is_some_and(|all| !all.is_empty()),
            "{hypotheses:#?}"
        );
    }
}

#[test]
fn what_interventions_cannot_tell_is_refused_before_anything_moves() {
    let Some(lab) = Lab::new() else { return };
    for (more, why) in [("--bidir", "one direction"), ("--pacing=1Gb/s", "pacing")] {
        let done = lab.run(&["measure", "stream", "netns:far", "--why", more]);
        let done = done.expect_code(2);
        assert!(done.err.contains(why), "{more}: {}", done.err);
    }
}
