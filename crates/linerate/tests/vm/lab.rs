//! A designed experiment over soft-RoCE: `verbs` as a level beside `tcp`.

use crate::guest::Guest;
use crate::rdma::pair;

/// Messages to and fro over both.
const TRANSPORTS: &str = r#"
title = "Messages over both"
workload = "pingpong"
response = ["mean", "cpu-op"]

[options]
sizes = ["64B", "4KiB"]
repetitions = 20

[[factors]]
option = "transport"
levels = ["tcp", "verbs"]

[design]
repeats = 3

[[published]]
source = "IMB's PingPong, 40 Gb/s Ethernet with RoCE"
response = "mean"
figures = [{ at = { transport = "verbs" }, figure = "1.4 to 1.9 us" }]
"#;

pub(crate) fn an_experiment_holds_verbs_against_tcp(guest: &Guest) {
    pair(guest);
    guest.shell(&format!(
        "rm -rf /run/lab; cat >/run/lab.toml <<'END'{TRANSPORTS}END"
    ));
    let document = guest.linerate(&[
        "lab",
        "run",
        "/run/lab.toml",
        "local",
        "--address",
        "10.9.0.2",
        "--seed",
        "3",
        "--out",
        "/run/lab",
    ]);
    assert_eq!(document["complete"], true);
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(6));
    let levels = document["factors"][0]["levels"].as_array().expect("levels");
    assert!(
        levels.iter().all(|level| level["skipped"].is_null()),
        "{levels:#?}"
    );
    for response in document["responses"].as_array().expect("responses") {
        let cells = response["cells"].as_array().expect("cells");
        assert!(cells.iter().all(|cell| cell["trials"] == 3), "{cells:#?}");
        assert_eq!(response["effects"].as_array().map(Vec::len), Some(1));
    }
    // No speed of an emulated card is one, but it has its place beside the published one.
    let published = &document["published"][0];
    assert_eq!(published["yours"]["levels"], serde_json::json!(["verbs"]));
    let ratio = |end: &str| published["yours"][end].as_f64();
    assert!(ratio("ratio_low") < ratio("ratio_high"), "{published:#}");
}
