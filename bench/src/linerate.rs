//! One trial of `linerate measure stream`.

use std::path::Path;
use std::process::Command;

use linerate_model::analysis::ways;
use linerate_model::sample::{FlowRecord, Sample};
use serde::Deserialize;

use crate::cases::{Case, Direction};
use crate::trial::{BenchError, Trial, bytes_by};
use crate::work::{FAR, Work};

pub(crate) const NAME: &str = "linerate";

/// The command that does `case`; it is typed in `near`.
pub(crate) fn command(program: &Path, state: &Path, case: &Case, work: &Work) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--quiet", "--format", "json", "--state"])
        .arg(state);
    command.args(["measure", "stream", &format!("netns:{FAR}")]);
    command.args(["--time", &work.seconds.to_string()]);
    command.args(["--flows", &case.flows.to_string()]);
    command.args(["--buffer", &format!("{}B", work.buffer_bytes)]);
    if case.direction == Direction::Reverse {
        command.arg("--reverse");
    }
    if let Some(size) = case.socket_buffer_bytes {
        command.args(["--socket-buffer", &format!("{size}B")]);
    }
    if let Some(pins) = case.pins {
        command.args(["--place", &format!("{}:{}", pins.sender, pins.receiver)]);
    }
    command
}

/// The part of `linerate.sample/1` that is compared.
#[derive(Debug, Deserialize)]
struct Document {
    total: Total,
    raw: Sample,
}

#[derive(Debug, Deserialize)]
struct Total {
    rate_bit_per_s: Option<f64>,
}

/// The figures of a trial from what the command printed.
pub(crate) fn parse(printed: &[u8], case: &Case, work: &Work) -> Result<Trial, BenchError> {
    let unreadable = |what: String| BenchError::Unreadable {
        program: NAME,
        what,
    };
    let document: Document =
        serde_json::from_slice(printed).map_err(|error| unreadable(error.to_string()))?;
    let sample = &document.raw;
    let printed_bit_per_s = document
        .total
        .rate_bit_per_s
        .ok_or_else(|| unreadable("it gave no rate".to_owned()))?;
    let ways = ways(sample);
    let receivers = || ways.iter().flat_map(|way| way.receiver.receivers());
    let (from, to) = work.window();
    // A sender may stop a moment before the receiver's clock has come to the end.
    let last = receivers().filter_map(|flow| flow.at_ns.last()).min();
    let last = last.map_or(0.0, |last| last.as_secs_f64()).min(to);
    if receivers().count() != case.flows as usize || last < to * 0.98 {
        return Err(unreadable(format!("the trial was over after {last} s")));
    }
    let bytes = receivers()
        .map(|flow| bytes_by(readings(flow), last) - bytes_by(readings(flow), from))
        .sum();
    let cpu = [&sample.local.cpu, &sample.remote.cpu];
    Ok(Trial {
        bytes,
        seconds: last - from,
        printed_bit_per_s,
        bytes_all: receivers().map(|flow| flow.total().as_u64()).sum(),
        cpu_moving_s: cpu
            .iter()
            .map(|cpu| cpu.threads_user_ns.as_secs_f64() + cpu.threads_system_ns.as_secs_f64())
            .sum(),
        cpu_command_s: 0.0,
    })
}

/// What a flow's counter held, and when.
fn readings(flow: &FlowRecord) -> impl Iterator<Item = (f64, u64)> {
    let times = flow.at_ns.iter().map(|at| at.as_secs_f64());
    times.zip(flow.bytes.iter().map(|bytes| bytes.as_u64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Pins;
    use crate::work::work_for_tests;

    fn words(command: &Command) -> String {
        let words: Vec<String> = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words.join(" ")
    }

    #[test]
    fn the_command_asks_for_the_whole_case() {
        let case = Case {
            flows: 4,
            direction: Direction::Reverse,
            pins: Some(Pins {
                sender: 2,
                receiver: 5,
            }),
            socket_buffer_bytes: Some(212_992),
        };
        let command = command(
            Path::new("linerate"),
            Path::new("/s"),
            &case,
            &work_for_tests(),
        );
        assert_eq!(
            words(&command),
            "--quiet --format json --state /s measure stream netns:far --time 2 --flows 4 \
             --buffer 131072B --reverse --socket-buffer 212992B --place 2:5"
        );
    }

    fn one_flow() -> Case {
        Case {
            flows: 1,
            direction: Direction::Forward,
            pins: None,
            socket_buffer_bytes: None,
        }
    }

    /// A document of one flow that receives 1000 bytes in each half of a second.
    fn document() -> serde_json::Value {
        let unknown = serde_json::json!({"unknown": "absent", "path": "/x", "reason": "test"});
        let flow = |role: &str| {
            serde_json::json!({
                "flow": 0, "role": role, "at_ns": [500_000_000u64, 1_000_000_000u64, 2_000_000_000u64],
                "bytes": [1000, 2000, 4000], "pinned_to": null, "last_cpu": unknown,
                "incoming_cpu": unknown, "user_ns": 1_000_000_000u64, "system_ns": 0, "tcp": unknown,
            })
        };
        let side = |role: &str| {
            serde_json::json!({
                "flows": [flow(role)], "elapsed_ns": 2_000_000_000u64,
                "cpu": {"threads_user_ns": 1_000_000_000u64, "threads_system_ns": 500_000_000u64,
                    "machine": unknown},
            })
        };
        serde_json::json!({
            "total": {"rate_bit_per_s": 17000.0},
            "raw": {
                "spec": {"flows": 1, "direction": "forward", "duration_ns": 2_000_000_000u64,
                    "interval_ns": 100_000_000, "buffer_bytes": 131_072, "socket_buffer_bytes": null,
                    "congestion_control": null,
                    "placement": {"sender_cpus": "", "receiver_cpus": ""}},
                "local": side("sender"), "remote": side("receiver"),
                "shared_kernel": true, "flags": [],
            },
        })
    }

    #[test]
    fn only_what_is_received_within_the_window_counts() {
        let trial = parse(
            document().to_string().as_bytes(),
            &one_flow(),
            &work_for_tests(),
        )
        .expect("it fits");
        assert_eq!(trial.bytes, 3000);
        assert!((trial.bit_per_s() - 16_000.0).abs() < 1e-6, "{trial:?}");
        assert!((trial.cpu_moving_s - 3.0).abs() < 1e-9, "{trial:?}");
        assert_eq!(trial.bytes_all, 4000);
    }

    #[test]
    fn a_trial_cut_short_is_refused_not_averaged() {
        let mut cut = document();
        cut["raw"]["remote"]["flows"][0]["at_ns"] = serde_json::json!([500_000_000u64]);
        cut["raw"]["remote"]["flows"][0]["bytes"] = serde_json::json!([1000]);
        let error = parse(cut.to_string().as_bytes(), &one_flow(), &work_for_tests());
        assert!(
            matches!(error, Err(BenchError::Unreadable { .. })),
            "{error:?}"
        );
    }
}
