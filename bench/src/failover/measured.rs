//! What `failover` printed, as the table needs it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A fault, and what it interrupted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// Each trial; empty if the network cannot be made here.
    pub(super) trials: Vec<Trial>,
    /// Why it was not measured.
    pub(super) skipped: Option<String>,
    /// The load average of the machine at its end.
    pub(super) load: String,
}

/// A failure and its return.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trial {
    pub(super) failure: Interruption,
    pub(super) back: Interruption,
    /// The time between two packets of a flow.
    pub(super) step_ns: u64,
    /// The longest time in which a sender did not run.
    pub(super) send_gap_ns: u64,
}

/// The worse of the two directions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Interruption {
    pub(super) longest_ns: u64,
    pub(super) flows: u64,
    pub(super) lost: u64,
    /// Phase and mechanism; `none` without an interruption.
    pub(super) phase: String,
    pub(super) expected_ns: Option<[u64; 2]>,
    /// The longest stall of an established connection.
    pub(super) tcp_ns: u64,
    /// The sentence of the verdict.
    pub(super) summary: Option<String>,
}

/// The trials of a document of `failover`.
pub(super) fn trials(document: &Value) -> Vec<Trial> {
    let all = document["trials"].as_array();
    all.into_iter().flatten().map(trial).collect()
}

fn trial(trial: &Value) -> Trial {
    let udp = || parts(trial, "udp");
    let most = |key: fn(&Value) -> &Value| {
        udp()
            .filter_map(|part| key(part).as_u64())
            .max()
            .unwrap_or(0)
    };
    Trial {
        failure: interruption(trial, "failure"),
        back: interruption(trial, "return"),
        step_ns: most(|part| &part["step_ns"]),
        send_gap_ns: most(|part| &part["hosts"]["longest_send_gap_ns"]),
    }
}

fn parts<'a>(trial: &'a Value, workload: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = trial["parts"].as_array().into_iter().flatten();
    all.filter(move |part| part["workload"] == workload)
}

fn interruption(trial: &Value, trigger: &str) -> Interruption {
    let of = |workload| {
        parts(trial, workload).filter_map(|part| {
            let mut all = part["triggers"].as_array()?.iter();
            all.find(|one| one["trigger"] == trigger)
        })
    };
    let longest = |one: &Value| one["gaps"]["longest_ns"].as_u64().unwrap_or(0);
    let Some(worst) = of("udp").max_by_key(|one| longest(one)) else {
        return Interruption::default();
    };
    let verdict = &worst["held_up"];
    let word = |key: &str| verdict[key].as_str();
    let phase = [word("phase").or(Some("none")), word("mechanism")];
    let range = |key: &str| verdict["expected"][key].as_u64();
    let number = |key: &str| worst[key].as_u64().unwrap_or(0);
    Interruption {
        longest_ns: longest(worst),
        flows: number("flows_affected"),
        lost: of("udp").filter_map(|one| one["lost"].as_u64()).sum(),
        phase: phase.into_iter().flatten().collect::<Vec<_>>().join(" "),
        expected_ns: range("min_ns").zip(range("max_ns")).map(<[u64; 2]>::from),
        tcp_ns: of("tcp").map(longest).max().unwrap_or(0),
        summary: word("summary").map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_worse_direction_names_the_phase_and_both_count_their_losses() {
        let part = |workload: &str, longest: u64, mechanism: &str| {
            let phase = json!({"phase": "detection", "mechanism": mechanism, "summary": "s",
                "expected": {"min_ns": 1, "max_ns": 2}});
            json!({"workload": workload, "step_ns": 6, "hosts": {"longest_send_gap_ns": 7}, "triggers": [
                {"trigger": "failure", "gaps": {"longest_ns": longest}, "lost": 3, "flows_affected": 64, "held_up": phase},
                {"trigger": "return", "gaps": {"longest_ns": 0}, "lost": 0, "flows_affected": 0, "held_up": null}]})
        };
        let document = json!({"trials": [{"parts":
            [part("udp", 10, "carrier"), part("udp", 20, "vrrp"), part("tcp", 30, "vrrp")]}]});
        let trials = trials(&document);
        let failure = &trials[0].failure;
        assert_eq!(
            (failure.longest_ns, failure.lost, failure.tcp_ns),
            (20, 6, 30)
        );
        assert_eq!(failure.phase, "detection vrrp");
        assert_eq!(failure.expected_ns, Some([1, 2]));
        assert_eq!(trials[0].back.phase, "none");
        assert_eq!((trials[0].step_ns, trials[0].send_gap_ns), (6, 7));
    }
}
