//! Interruptions of RDMA traffic: what reliable connections of soft-RoCE do when their wire loses everything for a while.

use serde_json::Value;

use crate::guest::{Guest, entry};
use crate::rdma::pair;

/// Nothing crosses the wire between the devices for 300 ms.
const CAUSE: &str = "for end in va vb; do tc qdisc add dev $end root netem loss 100%; done; sleep 0.3; \
                     for end in va vb; do tc qdisc del dev $end root; done";

pub(crate) fn an_interruption_of_rdma_writes_is_as_long_as_the_path_s_and_the_devices_retries(
    guest: &Guest,
) {
    pair(guest);
    let command = Guest::command();
    let out = guest.shell(&format!(
        "{command} --format json failover --repeats 1 --time 4s -P 8 --workload udp,verbs --do '{CAUSE}' --address 10.9.0.2 local"
    ));
    let document: Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"));
    let took = document["trials"][0]["events"][0]["took_ns"].as_u64();
    assert!(took.expect("a time") >= 300_000_000, "{document:#}");
    for direction in ["forward", "reverse"] {
        let parts = document["trials"][0]["parts"].as_array().expect("a list");
        let own = |workload: &str| {
            let mut parts = parts.iter();
            let part =
                parts.find(|one| one["direction"] == direction && one["workload"] == workload);
            part.unwrap_or_else(|| panic!("{direction} {workload}: {document:#}"))
        };
        let longest = |part: &Value| {
            let failure = entry(&part["triggers"], "trigger", "failure");
            failure["gaps"]["longest_ns"].as_u64().expect("a time")
        };
        assert!(longest(own("udp")) >= 250_000_000, "{document:#}");
        let verbs = own("verbs");
        assert_eq!(verbs["flows"], 8, "{verbs:#}");
        assert!(longest(verbs) >= 250_000_000, "{verbs:#}");
        // An emulated guest's clock leaps: then the device has retried without effect, and says so.
        let failure = entry(&verbs["triggers"], "trigger", "failure");
        let errors = verbs["hosts"]["send_errors"].as_array().expect("a list");
        let is_ended = errors.iter().any(|one| {
            let error = one["error"].as_str().unwrap_or_default();
            error.contains("timed out")
        });
        assert_eq!(failure["is_over"] == true, !is_ended, "{verbs:#}");
    }
}

pub(crate) fn without_a_device_on_the_path_rdma_writes_are_skipped_by_name(guest: &Guest) {
    let command = Guest::command();
    let done = guest.run(&[
        "bash",
        "-c",
        &format!(
            "ip link set lo up; {command} failover --repeats 1 --time 1s -P 2 --workload verbs --address 127.0.0.1 local"
        ),
    ]);
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(
        done.out
            .contains("verbs: skipped, lo here has no RDMA device"),
        "{done:#?}"
    );
}
